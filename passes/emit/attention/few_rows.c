/* Blocks of few rows: a decoder that adds a token, whose rows are the heads of queries that share a head of keys.
 *
 * With rows as lanes most of each vector would be computed for nothing, and a column of keys is read at a time. So
 * scores are summed along the lanes instead: a row of keys is read once, as it lies, and multiplied by t->few rows.
 * Their sums, a vector each, are added up in pairs until one vector has the scores of several keys: lane i is row
 * i % schedule.few of key i / schedule.few. Masks and exponentials work on such vectors. Rows beyond the last repeat
 * it.
 *
 * Z[key][few] takes the place of Z[key][line], Q[row][size] that of Q[size][row]; M, L and C repeat the rows. Of open
 * rows each block decides at run time.
 */
#include "passes/emit/attention/attention.h"
#include "passes/module/compressed.h"

enum { LINE = 64, LINES_MOST = 16 };

static uint32_t lane_keys(const struct attn *t)
{
    return t->s->lanes / (uint32_t)t->s->few;
}

/* Lanes are rows of several keys while the stage runs. */
static void run_few(struct attn *t, attn_stage *few)
{
    struct exprs *x = t->em->x;
    expr_id row = t->row[0], lane = ex_mod(x, t->lane, ex_const(x, t->s->few));
    int64_t line = t->line;
    t->row[0] = ex_add(x, t->row0, ex_min(x, lane, ex_addc(x, t->here, -1)));
    t->line = t->s->few;
    t->in_few = true;
    few(t);
    t->row[0] = row;
    t->line = line;
    t->in_few = false;
}

void attn_either(struct attn *t, attn_stage *few, attn_stage *many)
{
    struct em *em = t->em;
    struct exprs *x = em->x;
    struct em_if made;
    expr_id are_few = ex_le(x, t->here, ex_const(x, t->few));
    if (t->few && em_if_known(em, &made, are_few)) {
        run_few(t, few);
        em_if_end(em, &made);
    }
    if (!t->few || em_if_known(em, &made, ex_not(x, are_few))) {
        many(t);
        if (t->few)
            em_if_end(em, &made);
    }
}

lreg attn_over_keys(struct attn *t, enum lop op, lreg v)
{
    uint8_t from[LOOP_LANES_MAX];
    for (uint32_t bit = (uint32_t)t->s->few; bit < t->s->lanes; bit *= 2) {
        for (uint32_t i = 0; i < t->s->lanes; i++)
            from[i] = (uint8_t)(i ^ bit);
        v = em_op2(t->em, op, v, em_shuffle(t->em, v, v, from, t->s->lanes));
    }
    return v;
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
    for (uint32_t i = 0; i < t->few; i++)
        row[i] = em_pin(em, ex_min(x, ex_addc(x, t->row0, i), last), 0, most < 0 ? INT64_MAX : most);
    expr_id v = em_for_begin(em, &l, ex_const(x, 0), ex_const(x, t->size / t->s->lanes), NULL, 0);
    for (uint32_t i = 0; i < t->few; i++) {
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
    for (uint32_t i = 0; i < t->few; i++)
        s->q[i] = em_scratch_load(t->em, t->q, q_at(t, i, vector), t->s->lanes);
    em_tile_step(t->em, L_FMA, s->keys, t->few, attn_score_operands, s, acc);
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

/* Of two vectors a and b, whose groups of `few` lanes are parts of the sums of keys: sums of two neighbours each, a's
 * then b's. */
static lreg neighbours_added(struct attn *t, lreg a, lreg b)
{
    uint8_t from[LOOP_LANES_MAX], to[LOOP_LANES_MAX];
    uint32_t few = (uint32_t)t->s->few;
    for (uint32_t i = 0; i < t->s->lanes; i++) {
        from[i] = (uint8_t)(2 * i - i % few);
        to[i] = (uint8_t)(from[i] + few);
    }
    return em_op2(t->em, L_ADD, em_shuffle(t->em, a, b, from, t->s->lanes), em_shuffle(t->em, a, b, to, t->s->lanes));
}

/* Lane i of the result is a part of the sum of v[i % few]: such lanes hold all of it. */
static lreg rows_added(struct attn *t, const lreg *v)
{
    lreg sum[ATTENTION_FEW];
    uint32_t n = (uint32_t)t->s->few;
    for (uint32_t i = 0; i < n; i++)
        sum[i] = v[i < t->few ? i : t->few - 1];
    for (uint32_t each = 1; n > 1; each *= 2, n /= 2)
        for (uint32_t i = 0; i < n / 2; i++)
            sum[i] = halves_added(t, sum[2 * i], sum[2 * i + 1], each);
    return sum[0];
}

/* Lane i of the result is the sum of v[key][i % few], key = i / few; beyond the `keys` the last one is repeated. */
static lreg keys_added(struct attn *t, const lreg *v, uint32_t keys)
{
    lreg sum[LOOP_LANES_MAX];
    uint32_t n = lane_keys(t);
    for (uint32_t i = 0; i < n; i++)
        sum[i] = i < keys ? rows_added(t, v + i * t->few) : sum[i - 1];
    for (; n > 1; n /= 2)
        for (uint32_t i = 0; i < n / 2; i++)
            sum[i] = neighbours_added(t, sum[2 * i], sum[2 * i + 1]);
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

/* Asks for the values of a key of the span. */
static void prefetch_value(struct attn *t, expr_id key)
{
    expr_id idx[RANK_MAX];
    attn_value_point(t, key, ex_const(t->em->x, 0), idx);
    constant_leaves(&(struct leaf_walk){.m = t->em->m, .leaf = prefetch_leaf, .user = t, .stored = true},
                    t->values->in[1], idx);
}

void attn_prefetch_key(struct attn *t, expr_id key)
{
    struct exprs *x = t->em->x;
    expr_id idx[RANK_MAX], next = ex_addc(x, ex_add(x, t->key0, key), t->s->span);
    attn_operand_point(t, false, t->row0, next, ex_const(x, 0), idx);
    constant_leaves(&(struct leaf_walk){.m = t->em->m, .leaf = prefetch_leaf, .user = t, .stored = true},
                    t->key_operand, idx);
}

static void tile(void *user, expr_id at, uint32_t count)
{
    struct attn *t = user;
    struct em *em = t->em;
    struct exprs *x = em->x;
    lreg acc[EM_POINTS];
    for (uint32_t i = 0; i < count; i++)
        prefetch_value(t, ex_addc(x, at, i));
    for (uint32_t i = 0; i < count * t->few; i++)
        acc[i] = em_const(em, ELEM_F32, t->s->lanes, 0, 0);
    em_tile_loop(em, ex_const(x, 0), ex_const(x, t->size / t->s->lanes), count * t->few, acc, step,
                 &(struct attn_score_step){.t = t, .at = at, .keys = count});
    for (uint32_t i = 0, n; i < count; i += n) {
        n = count - i < lane_keys(t) ? count - i : lane_keys(t);
        lreg score = keys_added(t, acc + i * t->few, n);
        t->lane_key = ex_min(x, ex_div(x, t->lane, ex_const(x, t->s->few)), ex_const(x, n - 1));
        attn_store_scores(t, ex_addc(x, at, i), 1, 0, &score);
        t->lane_key = ex_const(x, 0);
    }
}

/* Keys that fill up the last vector of Z have no part. */
void attn_few_scores(struct attn *t)
{
    struct em *em = t->em;
    em_tiles(em, t->n_keys, t->s->few_keys, REST_AGAIN, tile, t);
    em_scratch_store(em, t->z, attn_line(t, t->n_keys, 0), em_const(em, ELEM_F32, t->s->lanes, -__builtin_inf(), 0));
    lreg most = em_scratch_load(em, t->c, ex_const(em->x, 0), t->s->lanes);
    em_scratch_store(em, t->c, ex_const(em->x, 0), attn_over_keys(t, L_MAX, most));
}

void attn_few_terms(struct attn *t)
{
    expr_id keys = t->n_keys;
    t->n_keys = ex_ceildiv(t->em->x, keys, ex_const(t->em->x, lane_keys(t)));
    t->line = t->s->lanes;
    attn_terms_of(t, 0, 1);
    t->n_keys = keys;
    t->line = t->s->few;
}
