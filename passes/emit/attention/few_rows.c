/* Blocks of few rows: a decoder that adds a token, whose rows are the heads of queries that share a head of keys.
 *
 * With rows as lanes most of each vector would be computed for nothing, and a column of keys is read at a time. So
 * scores are summed along the lanes instead: a row of keys is read once, as it lies, and multiplied by schedule.few
 * rows. Their sums, a vector each, are added up by halves of groups of so many lanes, until lane i has the sum of row
 * i % few: a line of Z, as every other part of the template has it. Rows beyond the last repeat it.
 *
 * Of open rows each block decides at run time. Q[row][size] takes the place of Q[size][row].
 */
#include "passes/emit/attention/attention.h"
#include "passes/module/compressed.h"

#include <string.h>

enum { LINE = 64, LINES_MOST = 16 };

void attn_either(struct attn *t, attn_stage *few, attn_stage *many)
{
    struct em *em = t->em;
    struct exprs *x = em->x;
    struct em_if made;
    expr_id are_few = ex_le(x, t->here, ex_const(x, t->s->few));
    if (t->s->few && em_if_known(em, &made, are_few)) {
        few(t);
        em_if_end(em, &made);
    }
    if (!t->s->few || em_if_known(em, &made, ex_not(x, are_few))) {
        many(t);
        if (t->s->few)
            em_if_end(em, &made);
    }
}

static expr_id lanes_at(const struct attn *t, expr_id vector)
{
    struct em *em = t->em;
    return ex_add(em->x, ex_mulc(em->x, vector, t->s->lanes), em_lane(em, t->s->lanes, (lreg){0}));
}

static expr_id q_at(const struct attn *t, int64_t row, expr_id vector)
{
    return ex_addc(t->em->x, ex_mulc(t->em->x, vector, t->s->lanes), row * t->size);
}

void attn_copy_rows(struct attn *t)
{
    struct em *em = t->em;
    struct exprs *x = em->x;
    struct em_for l;
    expr_id idx[RANK_MAX], row[ATTENTION_FEW], last = ex_addc(x, t->rows, -1);
    int64_t most = ex_hi(x, last);
    for (int64_t i = 0; i < t->s->few; i++)
        row[i] = em_pin(em, ex_min(x, ex_addc(x, t->row0, i), last), 0, most < 0 ? INT64_MAX : most);
    expr_id v = em_for_begin(em, &l, ex_const(x, 0), ex_const(x, t->size / t->s->lanes), 1, NULL, 0);
    for (int64_t i = 0; i < t->s->few; i++) {
        attn_operand_point(t, true, row[i], ex_const(x, 0), lanes_at(t, v), idx);
        em_scratch_store(em, t->q, q_at(t, i, v),
                         em_splat(em, em_value(em, t->row_operand, idx, ex_const(x, 1)), t->s->lanes));
    }
    em_for_end(em, &l, NULL, NULL);
}

static void step(void *user, expr_id vector, lreg *acc)
{
    struct attn_score_step *s = user;
    struct attn *t = s->t;
    s->d = lanes_at(t, vector);
    for (int64_t i = 0; i < t->s->few; i++)
        s->q[i] = em_scratch_load(t->em, t->q, q_at(t, i, vector), t->s->lanes);
    em_tile_step(t->em, L_FMA, s->keys, (uint32_t)t->s->few, attn_score_operands, s, acc);
}

/* Of two vectors a and b, whose groups of `each` lanes lie in blocks of `few`: the first half of a's and b's blocks in
 * turns, group by group, plus the second half of them. */
static lreg halves_added(struct attn *t, lreg a, lreg b, uint32_t each)
{
    uint8_t from[LOOP_LANES_MAX], to[LOOP_LANES_MAX];
    uint32_t lanes = t->s->lanes, few = (uint32_t)t->s->few;
    for (uint32_t i = 0; i < lanes; i++) {
        uint32_t p = i % few, at = i - p + p / (2 * each) * each + p % each;
        from[i] = (uint8_t)(at + (p / each % 2 ? lanes : 0));
        to[i] = (uint8_t)(from[i] + few / 2);
    }
    return em_op2(t->em, L_ADD, em_shuffle(t->em, a, b, from, lanes), em_shuffle(t->em, a, b, to, lanes));
}

/* Lane i of the result is the sum of all lanes of v[i % few]. */
static lreg rows_in_lanes(struct attn *t, const lreg *v)
{
    lreg sum[ATTENTION_FEW];
    uint8_t from[LOOP_LANES_MAX];
    uint32_t lanes = t->s->lanes, n = (uint32_t)t->s->few;
    memcpy(sum, v, n * sizeof *sum);
    for (uint32_t each = 1; n > 1; each *= 2, n /= 2)
        for (uint32_t i = 0; i < n / 2; i++)
            sum[i] = halves_added(t, sum[2 * i], sum[2 * i + 1], each);
    for (uint32_t bit = (uint32_t)t->s->few; bit < lanes; bit *= 2) {
        for (uint32_t i = 0; i < lanes; i++)
            from[i] = (uint8_t)(i ^ bit);
        sum[0] = em_op2(t->em, L_ADD, sum[0], em_shuffle(t->em, sum[0], sum[0], from, lanes));
    }
    return sum[0];
}

/* Lines of a stored value from that point on, as many as a key or its values fill. */
static void prefetch_leaf(void *user, value_id leaf, const expr_id *point)
{
    struct attn *t = user;
    const struct type *type = value_type(t->em->g, leaf);
    int64_t n, most = t->size > t->columns ? t->size : t->columns;
    expr_id bytes = em_bytes(t->em, leaf, point);
    if (type->rank < 1 || !ex_is_const(t->em->x, type->dims[type->rank - 1], &n))
        n = 1;
    n = (n < most ? n : most) * elem_size(type->elem);
    for (int64_t at = 0; at < n && at < LINES_MOST * LINE; at += LINE)
        em_prefetch(t->em, L_PREFETCH2, em_buffer(t->em, leaf), ex_addc(t->em->x, bytes, at));
}

/* Asks for the values of `count` keys of the span, and for the keys that have their places in the next span: what is
 * added and raised meanwhile hides that they come from memory. */
static void prefetch(struct attn *t, expr_id at, uint32_t count)
{
    struct exprs *x = t->em->x;
    const struct leaf_walk w = {.m = t->em->m, .leaf = prefetch_leaf, .user = t, .stored = true};
    expr_id idx[RANK_MAX], zero = ex_const(x, 0), next = ex_addc(x, ex_add(x, t->key0, at), t->s->span);
    for (uint32_t i = 0; i < count; i++) {
        attn_value_point(t, ex_addc(x, at, i), zero, idx);
        constant_leaves(&w, t->values->in[1], idx);
        attn_operand_point(t, false, t->row0, ex_addc(x, next, i), zero, idx);
        constant_leaves(&w, t->key_operand, idx);
    }
}

static void tile(void *user, expr_id at, uint32_t count)
{
    struct attn *t = user;
    struct em *em = t->em;
    struct exprs *x = em->x;
    lreg acc[EM_POINTS], score[TILE_POINTS_MOST];
    uint32_t few = (uint32_t)t->s->few;
    prefetch(t, at, count);
    for (uint32_t i = 0; i < count * few; i++)
        acc[i] = em_const(em, ELEM_F32, t->s->lanes, 0, 0);
    em_tile_loop(em, ex_const(x, 0), ex_const(x, t->size / t->s->lanes), count * few, acc, step,
                 &(struct attn_score_step){.t = t, .at = at, .keys = count});
    for (uint32_t i = 0; i < count; i++)
        score[i] = rows_in_lanes(t, acc + i * few);
    attn_store_scores(t, at, count, 0, score);
}

void attn_few_scores(struct attn *t)
{
    em_tiles(t->em, t->n_keys, t->s->few_keys, REST_AGAIN, tile, t);
}
