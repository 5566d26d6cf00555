/* Blocks that open and close: loops with carried values, the parallel one, conditionals. */
#include "passes/emit/emit.h"

static void level_push(struct em *em, lblock b)
{
    if (em->top + 1 >= EM_LEVELS)
        context_unwind(em->m->ctx, FAIL_LIMIT, (src_id){0}, "kernel %s: loops nested too deeply", em->f->name);
    em->level[++em->top] = b;
}

/* A loop's variable stays below an open end, whatever is known of that; one of a single value is no symbol. */
static void ends_before(struct em *em, expr_id var, expr_id end)
{
    sym_id s = ex_as_sym(em->x, var);
    expr_id last = ex_addc(em->x, end, -1);
    if (s.i && !ex_is_const(em->x, end, &(int64_t){0}))
        sym_get(em->x, s)->bound = last;
}

expr_id em_for_begin(struct em *em, struct em_for *l, expr_id lo, expr_id hi, const lreg *inits, uint32_t n)
{
    int64_t a, b;
    *l = (struct em_for){.n_carry = n, .lo = lo, .hi = hi, .parent = em->top, .floor = em->floor};
    if (n)
        memcpy(l->inits, inits, n * sizeof *inits);
    if (ex_is_const(em->x, lo, &a) && ex_is_const(em->x, hi, &b) && b > a && b - a == 1) {
        l->trivial = true;
        if (n)
            memcpy(l->params, inits, n * sizeof *inits);
        return lo;
    }
    l->body = lf_block(em->f);
    l->var = lf_value(em->f, (struct ltype){ELEM_I64, 1});
    VEC_PUSH(em->arena, &em->f->blocks.data[l->body.i].params, l->var);
    /* The bounds are computed before the body opens. */
    em_index(em, lo);
    em_index(em, hi);
    level_push(em, l->body);
    em_set_depth(em, l->var, em->top);
    for (uint32_t i = 0; i < n; i++) {
        l->params[i] = lf_value(em->f, lf_type(em->f, inits[i]));
        VEC_PUSH(em->arena, &em->f->blocks.data[l->body.i].params, l->params[i]);
        em_set_depth(em, l->params[i], em->top);
    }
    int64_t max = ex_hi(em->x, hi);
    /* One trip or none: the variable is a constant, on which nothing depends, and yet it all has to stay inside. */
    if (max != INT64_MAX && max - 1 <= ex_lo(em->x, lo))
        em->floor = em->top;
    expr_id var = em_symbol_new(em, ex_lo(em->x, lo), max == INT64_MAX ? max : max - 1,
                                (struct em_sym){.depth = em->top, .var = l->var});
    ends_before(em, var, hi);
    return var;
}

static void yield_from(struct em *em, lblock block, const lreg *yields, uint32_t n)
{
    lf_stmt(em->f, block, L_YIELD, yields, n);
}

void em_for_end(struct em *em, struct em_for *l, const lreg *yields, lreg *results)
{
    if (l->trivial) {
        if (l->n_carry)
            memcpy(results, yields, l->n_carry * sizeof *yields);
        return;
    }
    if (l->n_carry)
        yield_from(em, em->level[em->top], yields, l->n_carry);
    em->top = l->parent;
    em->floor = l->floor;
    lreg in[EM_POINTS + 2] = {em_index(em, l->lo), em_index(em, l->hi)};
    for (uint32_t i = 0; i < l->n_carry; i++) {
        in[i + 2] = l->inits[i];
        results[i] = lf_value(em->f, lf_type(em->f, l->inits[i]));
        em_set_depth(em, results[i], em->top);
    }
    struct lstmt *s = lf_stmt(em->f, em->level[em->top], L_FOR, in, l->n_carry + 2);
    s->out = l->n_carry ? lf_lregs(em->f, results, l->n_carry) : NULL;
    s->n_out = l->n_carry;
    s->imm = 1;
    s->flags = l->is_while ? L_FLAG_WHILE : 0;
    s->block[0] = l->body;
}

expr_id em_parallel_begin(struct em *em, struct em_for *l, expr_id count)
{
    *l = (struct em_for){.lo = ex_const(em->x, 0), .hi = count, .parent = 0};
    l->body = lf_block(em->f);
    l->var = lf_value(em->f, (struct ltype){ELEM_I64, 1});
    VEC_PUSH(em->arena, &em->f->blocks.data[l->body.i].params, l->var);
    em_index(em, l->lo);
    em_index(em, count);
    level_push(em, l->body);
    em_set_depth(em, l->var, em->top);
    em->k->count = count;
    int64_t max = ex_hi(em->x, count);
    expr_id var = em_symbol_new(em, 0, max == INT64_MAX ? max : (max > 0 ? max - 1 : 0),
                                (struct em_sym){.depth = em->top, .var = l->var});
    ends_before(em, var, count);
    return var;
}

void em_parallel_end(struct em *em, struct em_for *l)
{
    em->top = l->parent;
    lreg in[2] = {em_index(em, l->lo), em_index(em, l->hi)};
    struct lstmt *s = lf_stmt(em->f, em->level[0], L_PARALLEL, in, 2);
    s->block[0] = l->body;
}

void em_if_begin(struct em *em, struct em_if *l, lreg cond)
{
    l->block = lf_block(em->f);
    l->parent = em->top;
    l->cond = cond;
    l->floor = em->floor;
    level_push(em, l->block);
    em->floor = em->top;
}

/* A function of the runtime, of a buffer and an index, here and now. */
static lreg runtime_call(struct em *em, const char *name, lreg buffer, expr_id index)
{
    lreg in[2] = {buffer, em_index(em, index)}, result = lf_value(em->f, (struct ltype){ELEM_I64, 1});
    struct lstmt *s = lf_stmt(em->f, em->level[em->top], L_CALL, in, 2);
    s->type = (struct ltype){ELEM_I64, 1};
    s->name = name;
    s->out = lf_lregs(em->f, &result, 1);
    s->n_out = 1;
    em_set_depth(em, result, em->top);
    return result;
}

void em_kept_begin(struct em *em, struct em_if *l, lreg keeper, expr_id tag)
{
    em->k->keeps_scratch = true;
    lreg kept = runtime_call(em, "mcc_rt_kept", keeper, tag);
    em_if_begin(em, l, em_op2(em, L_EQ, kept, em_const(em, ELEM_I64, 1, 0, 0)));
}

lreg em_arrive(struct em *em, expr_id counter, expr_id n)
{
    lreg in[2] = {em_shared(em), em_index(em, ex_mulc(em->x, counter, 8))};
    lreg at = lf_op(em->f, em->level[em->top], L_OFFSET, (struct ltype){ELEM_I64, 0}, in, 2);
    em_set_depth(em, at, em->top);
    return runtime_call(em, "mcc_rt_arrive", at, n);
}

static struct lstmt *if_close(struct em *em, struct em_if *l)
{
    em->top = l->parent;
    em->floor = l->floor;
    struct lstmt *s = lf_stmt(em->f, em->level[em->top], L_IF, &l->cond, 1);
    s->block[0] = l->block;
    return s;
}

bool em_if_known(struct em *em, struct em_if *l, expr_id cond)
{
    enum truth known = ex_truth(em->x, cond);
    *l = (struct em_if){.block = {0}};
    if (known == UNKNOWN_)
        em_if_begin(em, l, em_cond(em, cond));
    return known != FALSE_;
}

void em_if_end(struct em *em, struct em_if *l)
{
    if (l->block.i)
        if_close(em, l);
}

void em_if_end_or(struct em *em, struct em_if *l, const lreg *yields, const lreg *otherwise, uint32_t n, lreg *results)
{
    lblock rest = lf_block(em->f);
    yield_from(em, l->block, yields, n);
    yield_from(em, rest, otherwise, n);
    struct lstmt *s = if_close(em, l);
    for (uint32_t i = 0; i < n; i++) {
        results[i] = lf_value(em->f, lf_type(em->f, yields[i]));
        em_set_depth(em, results[i], em->top);
    }
    s->out = lf_lregs(em->f, results, n);
    s->n_out = n;
    s->block[1] = rest;
}
