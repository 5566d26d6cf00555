/* The attention template: for each batch and block of rows, all scores of the block in scratch, their softmax, and the
 * product with the values, so that scores and probabilities never reach memory. Where not all keys fit L2 beside a
 * block, or their number is open, they come in spans, and what was added up is scaled down whenever a larger score
 * turns up. */
#include "passes/emit/attention/attention.h"

#include <math.h>

static bool attn_init(struct attn *t, struct em *em)
{
    const struct attention_schedule *s = &em->schedule->attention;
    struct attention_shape shape;
    if (!attention_shape(&em->site, &shape))
        return false;
    const struct attention *a = em->k->form.attention;
    *t = (struct attn){.em = em,
                       .s = s,
                       .a = a,
                       .scores = shape.scores,
                       .values = shape.values,
                       .of_row = shape.of_row,
                       .of_key = shape.of_key,
                       .of_p = shape.of_p,
                       .of_v = shape.of_v,
                       .row_operand = shape.scores->in[a->rows_of],
                       .key_operand = shape.scores->in[1 - a->rows_of],
                       .widens_keys = shape.widens_keys,
                       .widens_values = shape.widens_values,
                       .wide_line = attention_wide_line(&shape, s),
                       .rows = shape.rows,
                       .keys = shape.keys,
                       .size = shape.size,
                       .columns = shape.columns,
                       .line = attention_line(s),
                       .nv = s->nv};
    if (s->few) { /* one token's rows are a multiple of some number */
        int64_t heads = ex_divisor(em->x, shape.rows);
        t->few = (uint32_t)(heads > 0 && heads < s->few ? s->few / heads * heads : s->few);
        t->lane = em_lane(em, s->lanes, (lreg){0});
    }
    t->lane_key = ex_const(em->x, 0);
    return true;
}

/* ---- the kernel -------------------------------------------------------------------------------------------------- */

/* Keys in spans, with a running maximum: those that rows can see, or where `every` holds all of them. */
static void run_spans(struct attn *t, lreg every)
{
    struct em *em = t->em;
    struct exprs *x = em->x;
    struct em_for l;
    expr_id span = ex_const(x, t->s->span), from = ex_const(x, 0), end = t->keys;
    attn_begin(t);
    if (t->s->reach)
        attn_reach(t, every, &from, &end);
    expr_id base = t->s->parts ? attn_part(t, &from, &end) : ex_const(x, 0);
    expr_id i = em_for_begin(em, &l, ex_div(x, from, span), ex_ceildiv(x, end, span), NULL, 0);
    expr_id first = ex_mul(x, i, span), here = ex_min(x, span, ex_sub(x, end, first));
    int64_t keys = ex_hi(x, t->keys);
    t->key0 = em_pin(em, ex_add(x, base, first), 0, keys == INT64_MAX ? keys : keys - 1);
    t->n_keys = ex_is(x, ex_mod(x, end, span), 0) ? span : em_pin(em, here, 1, t->s->span);
    attn_scores(t);
    attn_terms(t);
    attn_values(t);
    em_for_end(em, &l, NULL, NULL);
}

/* Where keys that no row should see may have a part after all, a second trip has every key; mostly it is not made. */
static void spans(struct attn *t)
{
    struct em *em = t->em;
    struct exprs *x = em->x;
    struct em_for trips;
    struct em_if made;
    double low = t->s->reach ? attn_low(t) : -INFINITY;
    if (low > -INFINITY) {
        lreg no = em_const(em, ELEM_I64, 1, 0, 0), yes = em_const(em, ELEM_I64, 1, 0, 1);
        expr_id trip = em_for_begin(em, &trips, ex_const(x, 0), ex_const(x, 2), &yes, 1);
        em_if_begin(em, &made, em_op2(em, L_EQ, trips.params[0], yes));
        run_spans(t, em_cond(em, ex_eq(x, trip, ex_const(x, 1))));
        lreg more = em_select(em, attn_far(t, low), no, yes);
        em_if_end_or(em, &made, &more, &no, 1, &more);
        em_for_end(em, &trips, &more, &more);
    } else {
        run_spans(t, (lreg){0});
    }
    if (t->s->parts)
        attn_join(t);
    else
        attn_end(t);
}

/* A block of nv vectors of rows, of which the last (or, where the rows' number is open, any) may reach beyond them. */
static void block(struct attn *t, expr_id vector, int64_t nv, bool whole)
{
    struct em *em = t->em;
    struct exprs *x = em->x;
    int64_t most = t->nv, rows, lanes = t->s->lanes, top = INT64_MAX;
    bool known = ex_is_const(x, t->rows, &rows);
    if (known)
        top = rows > lanes ? rows - lanes : 0;
    t->nv = nv;
    t->row0 = ex_mulc(x, vector, lanes);
    expr_id left = ex_sub(x, t->rows, t->row0), all = ex_const(x, nv * lanes);
    t->here = whole ? all : ex_min(x, all, left);
    if (!ex_is_const(x, t->here, &(int64_t){0}))
        t->here = em_pin(em, t->here, 1, nv * lanes);
    for (int64_t j = 0; j < nv; j++) {
        expr_id base = ex_addc(x, t->row0, j * lanes), after = ex_sub(x, t->rows, base);
        if (!ex_is_const(x, base, &(int64_t){0}))
            base = em_pin(em, base, 0, top);
        bool full = whole || (known && (j + 1 < nv || rows % lanes == 0));
        t->row[j] = !full && known && rows < lanes
                        ? em_tail(em, base, after, t->s->lanes)
                        : ex_add(x, base,
                                 em_lane(em, t->s->lanes, full ? (lreg){0} : em_tail_mask(em, after, t->s->lanes)));
    }
    attn_transpose(t);
    if (t->s->span) {
        spans(t);
    } else {
        t->key0 = ex_const(x, 0);
        t->n_keys = t->keys;
        attn_scores(t);
        attn_terms(t);
        attn_values(t);
    }
    t->nv = most;
}

static void known_block(void *user, expr_id at, uint32_t count)
{
    struct attn *t = user;
    int64_t rows = 0;
    ex_is_const(t->em->x, t->rows, &rows);
    struct even e = even_split((rows + t->s->lanes - 1) / t->s->lanes, t->nv);
    block(t, at, count, rows % t->s->lanes == 0 || count > e.small);
}

/* Blocks of a known number of vectors of rows: the first ones have a vector more. */
static void blocks(struct attn *t, expr_id number)
{
    int64_t rows;
    if (!ex_is_const(t->em->x, t->rows, &rows)) {
        block(t, ex_mulc(t->em->x, number, t->nv), t->nv, false);
        return;
    }
    struct even e = even_split((rows + t->s->lanes - 1) / t->s->lanes, t->nv);
    em_tile_number(t->em, &e, number, known_block, t);
}

static void scratch(struct attn *t)
{
    struct em *em = t->em;
    int64_t keys = t->s->span, rows = t->nv * t->s->lanes;
    if (!keys)
        ex_is_const(em->x, t->keys, &keys);
    t->q = em_scratch(em, ELEM_F32, t->size * t->line);
    t->z = em_scratch(em, ELEM_F32, keys * t->line + (t->few ? t->s->lanes : 0));
    t->m = em_scratch(em, ELEM_F32, rows);
    t->l = em_scratch(em, ELEM_F32, rows);
    if (t->widens_keys || t->widens_values)
        t->w = em_scratch(em, ELEM_F32, keys * t->wide_line);
    t->c = em_scratch(em, ELEM_F32, rows);
    if (t->s->span)
        t->o = em_scratch(em, ELEM_F32, rows * attn_row_line(t));
}

bool emit_attention(struct em *em)
{
    struct attn t;
    struct loop loops[RANK_MAX + 2];
    struct em_parallel par;
    struct exprs *x = em->x;
    if (!attn_init(&t, em))
        return false;
    const struct type *y = value_type(em->g, t.values->out[0]);
    uint32_t n = t.of_p.n_batch;
    for (uint32_t d = 0; d < n; d++)
        loops[d] = (struct loop){(int32_t)d, y->dims[d], {0}};
    loops[n] = (struct loop){-1, ex_ceildiv(x, t.rows, ex_const(x, t.nv * t.s->lanes)), {0}};
    scratch(&t);
    if (t.s->parts) {
        expr_id number = ex_const(x, 1);
        for (uint32_t d = 0; d <= n; d++)
            number = ex_mul(x, number, loops[d].extent);
        loops[n + 1] = (struct loop){-1, attn_parts(&t, number), {0}};
    }
    em_parallel_open(em, &par, loops, n + 1 + (t.s->parts > 0));
    t.block = ex_const(x, 0);
    t.part = t.s->parts ? loops[n + 1].var : ex_const(x, 0);
    for (uint32_t d = 0; t.s->parts && d <= n; d++)
        t.block = ex_add(x, ex_mul(x, t.block, loops[d].extent), loops[d].var);
    for (uint32_t d = 0; d < n; d++)
        t.batch[d] = loops[d].var;
    blocks(&t, loops[n].var);
    em_parallel_close(em, &par);
    return !em->failed;
}
