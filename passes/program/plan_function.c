/* The plan function of an artifact: from the dims of the inputs, the symbols, the bytes of the arena and the dims of
 * the outputs, after the checks that the inputs must hold. */
#include "passes/program/program.h"

static void plan_bind(struct prog *p, lreg dims)
{
    uint32_t at = 0;
    for (uint32_t k = 0; k < p->g->inputs.n; k++) {
        const struct port *port = &p->g->inputs.data[k];
        const struct type *t = value_type(p->g, port->value);
        for (int32_t d = 0; d < (t->kind == TYPE_TENSOR ? t->rank : 0); d++, at++) {
            sym_id s = port_symbol(p->g, port, d);
            if (!s.i || prog_is_bound(p, s))
                continue;
            lreg in[2] = {dims, prog_const(p, at)};
            prog_bind(p, s, prog_op(p, L_LOAD, prog_i64, in, 2));
        }
    }
}

static void plan_check(struct prog *p, lreg dims)
{
    uint32_t at = 0;
    for (uint32_t k = 0; k < p->g->inputs.n; k++) {
        const struct port *port = &p->g->inputs.data[k];
        const struct type *t = value_type(p->g, port->value);
        for (int32_t d = 0; d < (t->kind == TYPE_TENSOR ? t->rank : 0); d++, at++) {
            if (ex_is_const(p->x, t->dims[d], NULL) || ex_as_sym(p->x, t->dims[d]).i)
                continue;
            struct strbuf text = strbuf_of(p->arena);
            strbuf_printf(&text, "input '%.64s': dim %d is not ", port->name, d);
            ex_print(p->x, t->dims[d], &text);
            lreg have = prog_op(p, L_LOAD, prog_i64, ARRAY(lreg, dims, prog_const(p, at)));
            prog_check(p, prog_op2(p, L_EQ, have, prog_index(p, t->dims[d])), -2, 0, text.data);
        }
    }
}

static void plan_check_size(struct prog *p, const struct size_check *c, lreg holds, lreg empty)
{
    holds = c->unless_empty && empty.i ? prog_op2(p, L_OR, empty, holds) : holds;
    prog_check(p, holds, (int32_t)c->code, c->src.i, c->text);
}

/* What the symbols' bounds hold beyond those that the artifact gives: the reasons are the model's. */
void prog_check_sizes(struct prog *p, lreg empty)
{
    for (uint32_t i = 0; i < p->g->size_checks.n; i++) {
        const struct size_check *c = &p->g->size_checks.data[i];
        const struct sym_bounds given = sym_get(p->x, c->sym)->given, b = c->bounds;
        lreg v = prog_symbol(p, c->sym);
        if (c->same.i) {
            plan_check_size(p, c, prog_op2(p, L_EQ, v, prog_symbol(p, c->same)), empty);
            continue;
        }
        if (b.lo > given.lo)
            plan_check_size(p, c, prog_op2(p, L_LE, prog_const(p, b.lo), v), empty);
        if (b.hi < given.hi)
            plan_check_size(p, c, prog_op2(p, L_LE, v, prog_const(p, b.hi)), empty);
        if (b.divisor > given.divisor)
            plan_check_size(
                p, c, prog_op2(p, L_EQ, prog_op2(p, L_FLOORMOD, v, prog_const(p, b.divisor)), prog_const(p, 0)), empty);
    }
}

static void plan_store(struct prog *p, lreg out, uint32_t *at, lreg v)
{
    lf_op(p->f, p->block, L_STORE, prog_i64, ARRAY(lreg, out, prog_const(p, (*at)++), v));
}

/* Bytes of the arena: for sizes within the bounds of the symbols, which alone it is for. */
static lreg plan_arena(struct prog *p, lreg empty)
{
    expr_id bytes = ex_addc(p->x, p->m->plan.arena_bytes, p->m->plan.shared_bytes);
    uint32_t bound = p->syms.n;
    if (!empty.i)
        return prog_index(p, bytes);
    for (sym_id s = sym_next(p->x, SYM_SHAPE, (sym_id){0}); s.i; s = sym_next(p->x, SYM_SHAPE, s))
        if (sym_get(p->x, s)->given.lo < sym_get(p->x, s)->lo)
            prog_bind(p, s, prog_op2(p, L_MAX, prog_symbol(p, s), prog_const(p, sym_get(p->x, s)->lo)));
    lreg arena = prog_op(p, L_SELECT, prog_i64, ARRAY(lreg, empty, prog_const(p, 0), prog_index(p, bytes)));
    prog_unbind(p, bound);
    return arena;
}

bool prog_plan(struct module *m)
{
    struct prog p = {.m = m, .g = m->g, .x = m->ctx->exprs, .arena = m->arena, .block = {1}};
    uint32_t at = 0;
    p.f = lf_new(m->ctx, m->arena, LROLE_PLAN, "plan");
    lreg dims = lf_arg(p.f, (struct ltype){ELEM_I64, 0}, LARG_IN, 0, "dims");
    lreg out = lf_arg(p.f, (struct ltype){ELEM_I64, 0}, LARG_OUT, 0, "out");
    plan_bind(&p, dims);
    plan_check(&p, dims);
    lreg empty = prog_empty(&p);
    prog_check_sizes(&p, empty);
    for (sym_id s = sym_next(p.x, SYM_SHAPE, (sym_id){0}); s.i; s = sym_next(p.x, SYM_SHAPE, s)) {
        if (!prog_is_bound(&p, s))
            prog_bind(&p, s, prog_const(&p, 0));
        plan_store(&p, out, &at, prog_symbol(&p, s));
    }
    plan_store(&p, out, &at, plan_arena(&p, empty));
    for (uint32_t k = 0; k < m->g->outputs.n; k++) {
        const struct type *t = value_type(m->g, m->g->outputs.data[k].value);
        for (int32_t d = 0; d < (t->kind == TYPE_TENSOR ? t->rank : 0); d++)
            plan_store(&p, out, &at, late_expr(p.x, t->dims[d]) ? prog_const(&p, -1) : prog_index(&p, t->dims[d]));
    }
    m->plan.plan_function = p.f;
    lf_tidy(p.f);
    return !p.failed && lf_finish(p.f);
}
