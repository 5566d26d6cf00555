/* emit_entry: the C function of a static network.
 *
 * Its arguments are the symbols that inputs name, inputs, outputs, and memory: scratch of the kernels, then the arena.
 * It checks what the runtime and the plan of an artifact check, and launches the program.
 */
#include "passes/program/program.h"

enum { E_SHAPE = -2 };

bool entry_takes(const struct module *m, sym_id s)
{
    const struct symbol *symbol = sym_get(m->ctx->exprs, s);
    if (symbol->kind != SYM_SHAPE || symbol->lo == symbol->hi)
        return false;
    for (uint32_t k = 0; k < m->g->inputs.n; k++) {
        const struct port *port = &m->g->inputs.data[k];
        const struct type *t = value_type(m->g, port->value);
        for (int32_t d = 0; d < (t->kind == TYPE_TENSOR ? t->rank : 0); d++)
            if (port_symbol(m->g, port, d).i == s.i)
                return true;
    }
    return false;
}

static void check(struct prog *p, enum lop op, lreg a, lreg b, const char *text)
{
    prog_check(p, prog_op(p, op, (struct ltype){ELEM_BOOL, 1}, ARRAY(lreg, a, b)), E_SHAPE, 0, text);
}

/* The symbol is an argument within its range, or the number that it is; 0 where only data tells. */
static void bind_symbol(struct prog *p, sym_id id, lreg given)
{
    const struct symbol *s = sym_get(p->x, id);
    if (!given.i) {
        prog_bind(p, id, prog_const(p, s->lo == s->hi ? s->lo : 0));
        return;
    }
    prog_bind(p, id, given);
    const char *text = arena_printf(p->arena, "'%s' is outside of its range", s->name);
    check(p, L_LE, prog_const(p, s->given.lo), given, text);
    check(p, L_LE, given, prog_const(p, s->given.hi), text);
    if (s->given.divisor > 1) {
        lreg in[2] = {given, prog_const(p, s->given.divisor)};
        check(p, L_EQ, prog_op(p, L_FLOORMOD, (struct ltype){ELEM_I64, 1}, in, 2), prog_const(p, 0), text);
    }
}

static void launch_program(struct prog *p, const struct entry *e, lreg *args, uint32_t n, lreg memory)
{
    struct ltype bytes = {ELEM_U8, 0};
    args[n++] = prog_op(p, L_OFFSET, bytes, ARRAY(lreg, memory, prog_const(p, e->scratch)));
    args[n] = memory;
    if (e->weights) {
        args[n] = prog_op(p, L_GLOBAL, bytes, NULL, 0);
        lf_last(p->f, p->block)->name = e->weights;
    }
    n++;
    for (sym_id s = sym_next(p->x, SYM_SHAPE, (sym_id){0}); s.i; s = sym_next(p->x, SYM_SHAPE, s))
        args[n++] = prog_index(p, ex_sym(p->x, s));
    args[n++] = prog_const(p, 0);
    struct lstmt *s = lf_stmt(p->f, p->block, L_LAUNCH, args, n);
    s->name = e->program;
}

bool emit_entry(struct module *m, const struct entry *e)
{
    struct prog p = {.m = m, .g = m->g, .x = m->ctx->exprs, .arena = m->arena, .block = {1}};
    struct ltype bytes = {ELEM_U8, 0}, index = {ELEM_I64, 1};
    uint32_t n = 0, n_sym = sym_count(p.x) + 1;
    lreg *args = NEW_ARRAY(m->arena, lreg, m->g->inputs.n + m->g->outputs.n + n_sym + 3);
    lreg *given = NEW_ARRAY(m->arena, lreg, n_sym);
    p.f = lf_new(m->ctx, m->arena, LROLE_ENTRY, e->name);
    for (sym_id s = sym_next(p.x, SYM_SHAPE, (sym_id){0}); s.i; s = sym_next(p.x, SYM_SHAPE, s))
        if (entry_takes(m, s))
            given[s.i] = lf_arg(p.f, index, 0, 0, sym_get(p.x, s)->name);
    for (uint32_t k = 0; k < m->g->inputs.n; k++)
        args[n++] = lf_arg(p.f, bytes, LARG_IN, 0, m->g->inputs.data[k].name);
    for (uint32_t k = 0; k < m->g->outputs.n; k++)
        args[n++] = lf_arg(p.f, bytes, LARG_IN | LARG_OUT, 0, m->g->outputs.data[k].name);
    lreg memory = lf_arg(p.f, bytes, LARG_IN | LARG_OUT, 64, "arena");
    for (sym_id s = sym_next(p.x, SYM_SHAPE, (sym_id){0}); s.i; s = sym_next(p.x, SYM_SHAPE, s))
        bind_symbol(&p, s, given[s.i]);
    prog_check_sizes(&p, prog_empty(&p));
    launch_program(&p, e, args, n, memory);
    m->plan.entry_function = p.f;
    lf_tidy(p.f);
    return !p.failed && lf_finish(p.f);
}
