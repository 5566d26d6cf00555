/* Keys in parts. Where blocks of rows are few (one token after a long cache), the keys of each are cut into parts that
 * are parallel indices of their own. Each part leaves M, L and O of its keys in memory that the indices of the launch
 * share, and the one that is done last adds all of them up, in their order. How many parts there are depends on the
 * shape alone, so results do not depend on threads. One part is what there would be without.
 *
 * The memory is SHARED_COUNTERS counters, one for each block that has parts, then by block and part M[row], L[row] and
 * O[row][column]. */
#include "passes/emit/attention/attention.h"

enum { COUNTERS_F32 = SHARED_COUNTERS * 2 };
_Static_assert(ATTENTION_PARTS <= 2 * SHARED_COUNTERS, "a block of two parts has a counter");

static int64_t rows_most(const struct attn *t)
{
    return t->s->nv * t->s->lanes;
}

static int64_t part_elements(const struct attn *t)
{
    return rows_most(t) * (2 + attn_row_line(t));
}

expr_id attn_parts(struct attn *t, expr_id blocks)
{
    struct exprs *x = t->em->x;
    expr_id one = ex_const(x, 1), most = ex_const(x, t->s->parts);
    expr_id few = ex_div(x, most, ex_max(x, blocks, one));
    expr_id parts = ex_max(x, one, ex_min(x, few, ex_ceildiv(x, t->keys, ex_const(x, t->s->part))));
    expr_id span = ex_const(x, t->s->span), spans = ex_ceildiv(x, ex_ceildiv(x, t->keys, parts), span);
    t->each = ex_mulc(x, ex_max(x, spans, one), t->s->span);
    t->parts = ex_min(x, most, ex_max(x, one, ex_ceildiv(x, t->keys, t->each)));
    t->em->k->shared_bytes = 4 * (COUNTERS_F32 + t->s->parts * part_elements(t));
    return t->parts;
}

expr_id attn_part(struct attn *t, expr_id *first, expr_id *end)
{
    struct exprs *x = t->em->x;
    expr_id zero = ex_const(x, 0), base = em_pin(t->em, ex_mul(x, t->part, t->each), 0, INT64_MAX);
    *first = ex_max(x, ex_sub(x, *first, base), zero);
    *end = ex_max(x, ex_min(x, ex_sub(x, *end, base), t->each), zero);
    return base;
}

/* Where the part has element i of its M, L and O. */
static expr_id at_part(const struct attn *t, expr_id part, expr_id i)
{
    struct exprs *x = t->em->x;
    expr_id number = ex_add(x, ex_mul(x, t->block, t->parts), part);
    return ex_addc(x, ex_add(x, ex_mulc(x, number, part_elements(t)), i), COUNTERS_F32);
}

static expr_id at_rows(const struct attn *t, expr_id part, int64_t vector, bool sums)
{
    return at_part(t, part, ex_const(t->em->x, vector * t->s->lanes + (sums ? rows_most(t) : 0)));
}

static expr_id at_results(const struct attn *t, expr_id part, expr_id i)
{
    return at_part(t, part, ex_addc(t->em->x, i, 2 * rows_most(t)));
}

/* M, L and O of the part at hand to where the others find them. */
static void leave(struct attn *t)
{
    struct em *em = t->em;
    struct exprs *x = em->x;
    struct em_for l;
    uint32_t lanes = t->s->lanes;
    lreg shared = em_shared(em);
    for (int64_t j = 0; j < t->nv; j++) {
        expr_id vector = ex_const(x, j * lanes);
        em_scratch_store(em, shared, at_rows(t, t->part, j, false), em_scratch_load(em, t->m, vector, lanes));
        em_scratch_store(em, shared, at_rows(t, t->part, j, true), em_scratch_load(em, t->l, vector, lanes));
    }
    expr_id vectors = ex_mulc(x, t->here, attn_row_line(t) / lanes);
    expr_id i = ex_mulc(x, em_for_begin(em, &l, ex_const(x, 0), vectors, NULL, 0), lanes);
    em_scratch_store(em, shared, at_results(t, t->part, i), em_scratch_load(em, t->o, i, lanes));
    em_for_end(em, &l, NULL, NULL);
}

/* L of vector j of the rows; what each part counts for, in place of its M. */
static void add_sums(struct attn *t, int64_t j)
{
    struct em *em = t->em;
    struct exprs *x = em->x;
    struct em_for l;
    struct ltype vector = {ELEM_F32, t->s->lanes};
    lreg shared = em_shared(em), most = em_const(em, ELEM_F32, t->s->lanes, -__builtin_inf(), 0),
         sum = em_const(em, ELEM_F32, t->s->lanes, 0, 0);
    expr_id zero = ex_const(x, 0), p = em_for_begin(em, &l, zero, t->parts, &most, 1);
    lreg m = em_op2(em, L_MAX, l.params[0], em_scratch_load(em, shared, at_rows(t, p, j, false), t->s->lanes));
    em_for_end(em, &l, &m, &most);
    p = em_for_begin(em, &l, zero, t->parts, &sum, 1);
    lreg by = attn_factor(t, em_scratch_load(em, shared, at_rows(t, p, j, false), t->s->lanes), most);
    em_scratch_store(em, shared, at_rows(t, p, j, false), by);
    lreg in[3] = {em_scratch_load(em, shared, at_rows(t, p, j, true), t->s->lanes), by, l.params[0]};
    lreg next = em_op(em, L_FMA, vector, in, 3);
    em_for_end(em, &l, &next, &sum);
    em_scratch_store(em, t->l, ex_const(x, j * t->s->lanes), sum);
}

/* O of all rows, a vector at a time. */
static void add_results(struct attn *t)
{
    struct em *em = t->em;
    struct exprs *x = em->x;
    struct em_for rows, columns, l;
    struct ltype vector = {ELEM_F32, t->s->lanes};
    lreg shared = em_shared(em), sum = em_const(em, ELEM_F32, t->s->lanes, 0, 0);
    expr_id zero = ex_const(x, 0), vectors = ex_const(x, attn_row_line(t) / t->s->lanes);
    expr_id row = em_for_begin(em, &rows, zero, t->here, NULL, 0);
    expr_id column = em_for_begin(em, &columns, zero, vectors, NULL, 0);
    expr_id i = ex_add(x, ex_mulc(x, row, attn_row_line(t)), ex_mulc(x, column, t->s->lanes));
    expr_id p = em_for_begin(em, &l, zero, t->parts, &sum, 1);
    lreg by = em_splat(em, em_scratch_load(em, shared, at_part(t, p, row), 1), t->s->lanes);
    lreg in[3] = {em_scratch_load(em, shared, at_results(t, p, i), t->s->lanes), by, l.params[0]};
    lreg next = em_op(em, L_FMA, vector, in, 3);
    em_for_end(em, &l, &next, &sum);
    em_scratch_store(em, t->o, i, sum);
    em_for_end(em, &columns, NULL, NULL);
    em_for_end(em, &rows, NULL, NULL);
}

void attn_join(struct attn *t)
{
    struct em *em = t->em;
    struct exprs *x = em->x;
    struct em_if several, done;
    lreg one = em_const(em, ELEM_I64, 1, 0, 1), cut = em_cond(em, ex_lt(x, ex_const(x, 1), t->parts)), last;
    em_if_begin(em, &several, cut);
    leave(t);
    last = em_arrive(em, t->block, t->parts);
    em_if_end_or(em, &several, &last, &one, 1, &last);
    em_if_begin(em, &done, em_op2(em, L_EQ, last, one));
    em_if_begin(em, &several, cut);
    for (int64_t j = 0; j < t->nv; j++)
        add_sums(t, j);
    add_results(t);
    em_if_end(em, &several);
    attn_end(t);
    em_if_end(em, &done);
}
