/* The stages of the attention template (emit/attention/attention.h). Each one's loops have ended before the next one's
 * begin. */
#include "passes/emit/attention/attention.h"

enum { WIDENED = 4 }; /* vectors of a key that are widened at a time */

expr_id attn_line(const struct attn *t, expr_id line, int64_t j)
{
    return ex_addc(t->em->x, ex_mulc(t->em->x, line, t->line), j * t->s->lanes);
}

static expr_id at_vector(const struct attn *t, int64_t j)
{
    return ex_const(t->em->x, j * t->s->lanes);
}

/* ---- points ------------------------------------------------------------------------------------------------------ */

void attn_z_point(const struct attn *t, expr_id row, expr_id key, expr_id *idx)
{
    for (uint32_t i = 0; i < t->of_p.n_batch; i++)
        idx[t->of_p.batch[i]] = t->batch[i];
    idx[t->of_p.free] = row;
    idx[t->of_p.contract] = key;
    attention_walk(t->em->g, &t->a->to_z, idx);
}

void attn_operand_point(const struct attn *t, bool of_row, expr_id row, expr_id key, expr_id d, expr_id *idx)
{
    struct exprs *x = t->em->x;
    const struct dot_dims *dims = of_row ? &t->of_row : &t->of_key;
    expr_id at[RANK_MAX], extent = value_type(t->em->g, of_row ? t->row_operand : t->key_operand)->dims[dims->free];
    attn_z_point(t, row, key, at);
    attention_walk(t->em->g, &t->a->to_scores, at);
    for (uint32_t i = 0; i < dims->n_batch; i++)
        idx[dims->batch[i]] = at[i];
    idx[dims->free] = of_row ? row : key;
    if (extent.i != (of_row ? t->rows : t->keys).i) /* not proved equal: it may be 1, and broadcast */
        idx[dims->free] = ex_select(x, ex_eq(x, extent, ex_const(x, 1)), ex_const(x, 0), idx[dims->free]);
    idx[dims->contract] = d;
}

/* ---- the softmax's pieces ---------------------------------------------------------------------------------------- */

/* The largest score of vector j before any key's: the sink's. */
static lreg first_score(struct attn *t, int64_t j)
{
    struct em *em = t->em;
    expr_id idx[RANK_MAX];
    if (!t->a->sink.node.i)
        return em_const(em, ELEM_F32, t->s->lanes, -__builtin_inf(), 0);
    attn_z_point(t, t->row[j], ex_const(em->x, 0), idx);
    attention_walk(em->g, &t->a->to_max, idx);
    return em_splat(em, em_value(em, attention_operand(em->g, t->a->sink), idx, ex_const(em->x, 1)), t->s->lanes);
}

/* What is subtracted where a maximum up to now is this: rows of nothing but minus infinity subtract 0 instead. */
static lreg subtracted(struct attn *t, lreg most)
{
    struct em *em = t->em;
    lreg low = em_const(em, ELEM_F32, t->s->lanes, -__builtin_inf(), 0),
         zero = em_const(em, ELEM_F32, t->s->lanes, 0, 0);
    return em_select(em, em_op2(em, L_EQ, most, low), zero, most);
}

/* A node between z, the maximum and the terms of the softmax, on registers. */
static lreg term_value(struct attn *t, value_id v, lreg z, lreg most)
{
    struct em *em = t->em;
    double f = 0;
    lreg in[3];
    if (v.i == t->a->z.i)
        return z;
    if (v.i == t->a->max.i)
        return most;
    if (value_is_splat(em->g, v, &f, &(int64_t){0}))
        return em_const(em, ELEM_F32, t->s->lanes, f, 0);
    const struct node *n = value_node(em->g, v);
    if (op_shape(n->op) == SHAPE_VIEW)
        return term_value(t, n->in[0], z, most);
    for (uint32_t k = 0; k < n->n_in && k < 3; k++)
        in[k] = term_value(t, n->in[k], z, most);
    em->cond = ex_const(em->x, 1);
    em->at = (struct em_point){NULL, 0};
    return em_map(em, n, in);
}

lreg attn_factor(struct attn *t, lreg before, lreg most)
{
    return term_value(t, t->a->terms, before, subtracted(t, most));
}

/* ---- several spans ----------------------------------------------------------------------------------------------- */

int64_t attn_row_line(const struct attn *t)
{
    return (t->columns + t->s->lanes - 1) / t->s->lanes * t->s->lanes;
}

static void begin_rows(struct attn *t)
{
    struct em *em = t->em;
    struct exprs *x = em->x;
    lreg zero = em_const(em, ELEM_F32, t->s->lanes, 0, 0);
    for (int64_t j = 0; j < t->nv; j++) {
        lreg first = first_score(t, j), sum = zero;
        if (t->a->sink.node.i) { /* of parts, the first one counts it */
            lreg counted = em_cond(em, ex_eq(x, t->part, ex_const(x, 0)));
            sum = em_select(em, counted, attn_factor(t, first, first), zero);
        }
        em_scratch_store(em, t->m, at_vector(t, j), first);
        em_scratch_store(em, t->l, at_vector(t, j), sum);
    }
}

void attn_begin(struct attn *t)
{
    struct em *em = t->em;
    struct exprs *x = em->x;
    struct em_for l;
    lreg zero = em_const(em, ELEM_F32, t->s->lanes, 0, 0);
    if (t->a->sink.node.i)
        attn_either(t, begin_rows, begin_rows);
    else
        begin_rows(t);
    expr_id i = em_for_begin(em, &l, ex_const(x, 0), ex_const(x, t->nv * attn_row_line(t)), NULL, 0);
    em_scratch_store(em, t->o, ex_mulc(x, i, t->s->lanes), zero);
    em_for_end(em, &l, NULL, NULL);
}

/* ---- keys and values --------------------------------------------------------------------------------------------- */

void attn_value_point(const struct attn *t, expr_id key, expr_id column, expr_id *idx)
{
    for (uint32_t i = 0; i < t->of_v.n_batch; i++)
        idx[t->of_v.batch[i]] = t->batch[i];
    idx[t->of_v.contract] = ex_add(t->em->x, t->key0, key);
    idx[t->of_v.free] = column;
}

static expr_id at_wide(const struct attn *t, expr_id key, expr_id element)
{
    return ex_add(t->em->x, ex_mulc(t->em->x, key, t->wide_line), element);
}

/* Elements of number `key` of the span: `vectors` whole vectors from vector number `first` on, then `rest` lanes. */
static void widen_vectors(struct attn *t, bool values, expr_id key, expr_id first, int64_t vectors, uint32_t rest)
{
    struct em *em = t->em;
    struct exprs *x = em->x;
    expr_id idx[RANK_MAX], piece[WIDENED + 1], at = ex_mulc(x, first, t->s->lanes);
    uint32_t lanes[WIDENED + 1], n = em_pieces(em, at, (uint32_t)vectors, rest, t->s->lanes, piece, lanes);
    for (uint32_t i = 0; i < n; i++) {
        if (values)
            attn_value_point(t, key, piece[i], idx);
        else
            attn_operand_point(t, false, t->row0, ex_add(x, t->key0, key), piece[i], idx);
        lreg v = em_value(em, values ? t->values->in[1] : t->key_operand, idx, ex_const(x, 1));
        em_scratch_store(em, t->w, at_wide(t, key, ex_addc(x, at, i * t->s->lanes)), em_splat(em, v, lanes[i]));
    }
}

/* Keys, or values, of the span at hand into W, once for all rows of the block: a stage that reads an element at a time,
 * or a vector for a few rows of many, would widen each again and again. */
static void widen(struct attn *t, bool values)
{
    struct em *em = t->em;
    struct exprs *x = em->x;
    struct em_for l, in;
    int64_t n = values ? t->columns : t->size, vectors = n / t->s->lanes, groups = vectors / WIDENED,
            more = vectors % WIDENED;
    uint32_t rest = (uint32_t)(n % t->s->lanes);
    expr_id key = em_for_begin(em, &l, ex_const(x, 0), t->n_keys, NULL, 0);
    if (groups) {
        expr_id g = em_for_begin(em, &in, ex_const(x, 0), ex_const(x, groups), NULL, 0);
        widen_vectors(t, values, key, ex_mulc(x, g, WIDENED), WIDENED, 0);
        em_for_end(em, &in, NULL, NULL);
    }
    if (more || rest)
        widen_vectors(t, values, key, ex_const(x, groups * WIDENED), more, rest);
    em_for_end(em, &l, NULL, NULL);
}

/* ---- scores ------------------------------------------------------------------------------------------------------ */

bool attn_score_operands(void *step, uint32_t i, uint32_t j, lreg in[2])
{
    struct attn_score_step *s = step;
    struct em *em = s->t->em;
    expr_id idx[RANK_MAX];
    expr_id at = ex_addc(em->x, s->at, i);
    if (j == 0 && s->t->in_w) {
        s->k = em_splat(em, em_scratch_load(em, s->t->w, at_wide(s->t, at, s->d), 1), s->t->s->lanes);
    } else if (j == 0) {
        attn_operand_point(s->t, false, s->t->row0, ex_add(em->x, s->t->key0, at), s->d, idx);
        s->k = em_splat(em, em_value(em, s->t->key_operand, idx, ex_const(em->x, 1)), s->t->s->lanes);
    }
    in[0] = s->k;
    in[1] = s->q[j];
    return true;
}

static void score_step(void *user, expr_id d, lreg *acc)
{
    struct attn_score_step *s = user;
    struct attn *t = s->t;
    s->d = d;
    for (int64_t j = 0; j < t->nv; j++)
        s->q[j] = em_scratch_load(t->em, t->q, attn_line(t, d, j), t->s->lanes);
    em_tile_step(t->em, L_FMA, s->keys, (uint32_t)t->nv, attn_score_operands, s, acc);
}

/* What z is at a row and a key, of which the score is known. */
static lreg z_value(struct attn *t, expr_id row, expr_id key, lreg score)
{
    struct em *em = t->em;
    expr_id idx[RANK_MAX];
    attn_z_point(t, row, key, idx);
    em->anchor = t->scores->out[0];
    em->anchor_value = score;
    lreg z = em_splat(em, em_value(em, t->a->z, idx, ex_const(em->x, 1)), t->s->lanes);
    em->anchor = (value_id){0};
    return z;
}

void attn_store_scores(struct attn *t, expr_id at, uint32_t count, int64_t j, const lreg *score)
{
    struct em *em = t->em;
    struct exprs *x = em->x;
    expr_id key = ex_add(x, ex_add(x, t->key0, at), t->lane_key);
    lreg most = em_scratch_load(em, t->c, at_vector(t, j), t->s->lanes);
    for (uint32_t i = 0; i < count; i++) {
        lreg z = z_value(t, t->row[j], ex_addc(x, key, i), score[i]);
        em_scratch_store(em, t->z, attn_line(t, ex_addc(x, at, i), j), z);
        most = em_op2(em, L_MAX, most, z);
    }
    em_scratch_store(em, t->c, at_vector(t, j), most);
}

/* C starts as the largest score of the span at hand. */
static void score_tile(void *user, expr_id at, uint32_t count)
{
    struct attn *t = user;
    struct em *em = t->em;
    struct exprs *x = em->x;
    lreg acc[EM_POINTS];
    uint32_t n = count * (uint32_t)t->nv;
    for (uint32_t i = 0; i < n; i++)
        acc[i] = em_const(em, ELEM_F32, t->s->lanes, 0, 0);
    em_tile_loop(em, ex_const(x, 0), ex_const(x, t->size), n, acc, score_step,
                 &(struct attn_score_step){.t = t, .at = at, .keys = count});
    for (int64_t j = 0; j < t->nv; j++) {
        lreg score[EM_POINTS];
        for (uint32_t i = 0; i < count; i++)
            score[i] = acc[i * t->nv + j];
        attn_store_scores(t, at, count, j, score);
    }
}

/* The maximum so far into M, the factor for all that was added up before into C. */
static void raise_maximum(struct attn *t)
{
    struct em *em = t->em;
    for (int64_t j = 0; j < t->nv; j++) {
        lreg before = em_scratch_load(em, t->m, at_vector(t, j), t->s->lanes);
        lreg most = em_op2(em, L_MAX, before, em_scratch_load(em, t->c, at_vector(t, j), t->s->lanes));
        lreg factor = attn_factor(t, before, most);
        em_scratch_store(em, t->m, at_vector(t, j), most);
        em_scratch_store(em, t->c, at_vector(t, j), factor);
    }
}

static void many_scores(struct attn *t)
{
    if ((t->in_w = t->widens_keys))
        widen(t, false);
    em_tiles(t->em, t->n_keys, t->s->mr, REST_AGAIN, score_tile, t);
    t->in_w = false;
}

void attn_scores(struct attn *t)
{
    struct em *em = t->em;
    lreg low = em_const(em, ELEM_F32, t->s->lanes, -__builtin_inf(), 0);
    for (int64_t j = 0; j < t->nv; j++)
        em_scratch_store(em, t->c, at_vector(t, j), t->s->span ? low : first_score(t, j));
    attn_either(t, attn_few_scores, many_scores);
    if (t->s->span)
        raise_maximum(t);
}

/* ---- softmax ----------------------------------------------------------------------------------------------------- */

/* What is subtracted from the scores of vector j. */
static lreg maximum(struct attn *t, int64_t j)
{
    lreg most = em_scratch_load(t->em, t->s->span ? t->m : t->c, at_vector(t, j), t->s->lanes);
    return t->s->span ? subtracted(t, most) : most;
}

static lreg factor_of_sum(struct attn *t, lreg sum)
{
    struct em *em = t->em;
    double least = 0;
    if (t->a->least.node.i && value_is_splat(em->g, attention_operand(em->g, t->a->least), &least, &(int64_t){0}) &&
        least > 0)
        sum = em_op2(em, L_MAX, sum, em_const(em, ELEM_F32, t->s->lanes, least, 0));
    lreg by = em_op2(em, L_DIV, em_const(em, ELEM_F32, t->s->lanes, 1, 0), sum);
    if (t->a->cleared.node.i) { /* the sum is NaN where any score is, and else 1 at least, or 0 where no key is seen */
        lreg zero = em_const(em, ELEM_F32, t->s->lanes, 0, 0);
        by = em_select(em, em_op2(em, L_LT, zero, sum), by, zero);
    }
    return by;
}

/* The sum of vector j's terms: into L, or where all are known, what the results are multiplied by into C. */
static void sum_store(struct attn *t, int64_t j, lreg sum)
{
    struct em *em = t->em;
    if (!t->s->span) {
        em_scratch_store(em, t->c, at_vector(t, j), factor_of_sum(t, sum));
        return;
    }
    lreg in[3] = {em_scratch_load(em, t->l, at_vector(t, j), t->s->lanes),
                  em_scratch_load(em, t->c, at_vector(t, j), t->s->lanes), sum};
    em_scratch_store(em, t->l, at_vector(t, j), em_op(em, L_FMA, (struct ltype){ELEM_F32, t->s->lanes}, in, 3));
}

void attn_terms_of(struct attn *t, int64_t j, uint32_t n)
{
    struct em *em = t->em;
    struct em_for l;
    lreg most[ATTENTION_VECTORS], sum[ATTENTION_VECTORS], inner[ATTENTION_VECTORS];
    for (uint32_t i = 0; i < n; i++) {
        most[i] = maximum(t, j + i);
        sum[i] = t->a->sink.node.i && !t->s->span ? term_value(t, t->a->terms, first_score(t, j + i), most[i])
                                                  : em_const(em, ELEM_F32, t->s->lanes, 0, 0);
    }
    expr_id key = em_for_begin(em, &l, ex_const(em->x, 0), t->n_keys, sum, n);
    for (uint32_t i = 0; i < n; i++) {
        lreg e = term_value(t, t->a->terms, em_scratch_load(em, t->z, attn_line(t, key, j + i), t->s->lanes), most[i]);
        em_scratch_store(em, t->z, attn_line(t, key, j + i), e);
        inner[i] = em_op2(em, L_ADD, l.params[i], e);
    }
    em_for_end(em, &l, inner, sum);
    for (uint32_t i = 0; i < n; i++)
        sum_store(t, j + i, t->in_few ? attn_over_keys(t, L_ADD, sum[i]) : sum[i]);
}

static void many_terms(struct attn *t)
{
    int64_t at_once = t->s->terms;
    for (int64_t j = 0; j < t->nv; j += at_once)
        attn_terms_of(t, j, (uint32_t)(t->nv - j < at_once ? t->nv - j : at_once));
}

void attn_terms(struct attn *t)
{
    attn_either(t, attn_few_terms, many_terms);
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

static lreg factor_of(struct attn *t, expr_id row)
{
    return em_scratch_load(t->em, t->c, row, 1);
}

static expr_id at_result(const struct attn *t, expr_id row, uint32_t c)
{
    struct exprs *x = t->em->x;
    return ex_add(x, ex_mulc(x, row, attn_row_line(t)), ex_mulc(x, ex_addc(x, t->column0, c), t->s->lanes));
}

static void result_store(struct attn *t, expr_id row, uint32_t c, lreg sum)
{
    struct em *em = t->em;
    expr_id idx[RANK_MAX];
    lreg by = em_splat(em, factor_of(t, row), t->column_lanes[c]);
    memcpy(idx, t->batch, t->of_p.n_batch * sizeof *idx);
    idx[t->of_p.n_batch] = ex_add(em->x, t->row0, row);
    idx[t->of_p.n_batch + 1] = t->column[c];
    lreg y = em_op2(em, L_MUL, sum, by);
    if (t->a->cleared.node.i) { /* sums of NaN, too, where the factor is 0 */
        lreg zero = em_const(em, ELEM_F32, t->column_lanes[c], 0, 0);
        y = em_select(em, em_op2(em, L_EQ, by, zero), zero, y);
    }
    tile_store(em, idx, y);
}

/* A key, its vectors of columns, and the probability of the row at hand. */
struct value_step {
    struct attn *t;
    expr_id row, key;
    uint32_t count;
    lreg v[ATTENTION_COLUMNS], p;
};

static bool value_operands(void *user, uint32_t i, uint32_t c, lreg in[2])
{
    struct value_step *s = user;
    struct attn *t = s->t;
    struct exprs *x = t->em->x;
    if (c == 0)
        s->p = em_scratch_load(t->em, t->z, ex_add(x, ex_mulc(x, s->key, t->line), ex_addc(x, s->row, i)), 1);
    in[0] = s->p;
    in[1] = s->v[c];
    return true;
}

static void value_step(void *user, expr_id key, lreg *acc)
{
    struct value_step *s = user;
    struct attn *t = s->t;
    struct em *em = t->em;
    struct exprs *x = em->x;
    expr_id idx[RANK_MAX];
    s->key = key;
    struct em_if first;
    if (t->in_few && em_if_known(em, &first, ex_eq(x, ex_add(x, s->row, t->column0), ex_const(x, 0)))) {
        attn_prefetch_key(t, key);
        em_if_end(em, &first);
    }
    for (uint32_t c = 0; c < t->n_columns; c++) {
        if (t->in_w) {
            expr_id at = at_wide(t, key, ex_mulc(x, ex_addc(x, t->column0, c), t->s->lanes));
            s->v[c] = em_scratch_load(em, t->w, at, t->column_lanes[c]);
            continue;
        }
        attn_value_point(t, key, t->column[c], idx);
        s->v[c] = em_splat(em, em_value(em, t->values->in[1], idx, ex_const(x, 1)), t->column_lanes[c]);
    }
    em_tile_step(em, L_FMA, s->count, t->n_columns, value_operands, s, acc);
}

static void value_tile(void *user, expr_id row, uint32_t count)
{
    struct attn *t = user;
    struct em *em = t->em;
    struct exprs *x = em->x;
    lreg acc[EM_POINTS];
    uint32_t nc = t->n_columns, n = count * nc;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t lanes = t->column_lanes[i % nc];
        acc[i] = em_const(em, ELEM_F32, lanes, 0, 0);
        if (t->s->span) {
            lreg before = em_scratch_load(em, t->o, at_result(t, ex_addc(x, row, i / nc), i % nc), lanes);
            acc[i] = em_op2(em, L_MUL, before, em_splat(em, factor_of(t, ex_addc(x, row, i / nc)), lanes));
        }
    }
    em_tile_loop(em, ex_const(x, 0), t->n_keys, n, acc, value_step,
                 &(struct value_step){.t = t, .row = row, .count = count});
    for (uint32_t i = 0; i < n; i++)
        if (t->s->span)
            em_scratch_store(em, t->o, at_result(t, ex_addc(x, row, i / nc), i % nc), acc[i]);
        else
            result_store(t, ex_addc(x, row, i / nc), i % nc, acc[i]);
}

/* Results that are complete in O. */
static void end_tile(void *user, expr_id row, uint32_t count)
{
    struct attn *t = user;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t c = 0; c < t->n_columns; c++) {
            expr_id at = ex_addc(t->em->x, row, i);
            result_store(t, at, c, em_scratch_load(t->em, t->o, at_result(t, at, c), t->column_lanes[c]));
        }
}

/* The columns of a register tile: `vectors` whole vectors from vector number `first` on, then one of `rest` lanes. */
static void column_group(struct attn *t, expr_id first, int64_t vectors, uint32_t rest, int64_t rows, em_tile_fn *fn)
{
    t->column0 = first;
    t->n_columns = em_pieces(t->em, ex_mulc(t->em->x, first, t->s->lanes), (uint32_t)vectors, rest, t->s->lanes,
                             t->column, t->column_lanes);
    em_tiles(t->em, t->computed, rows, REST_POINTS, fn, t);
}

/* Of the first `rows` rows, so many at once. */
static void all_columns(struct attn *t, expr_id rows, int64_t at_once, em_tile_fn *fn)
{
    struct em *em = t->em;
    struct exprs *x = em->x;
    struct em_for l;
    int64_t vectors = t->columns / t->s->lanes, groups = vectors / t->s->pc, more = vectors % t->s->pc;
    uint32_t rest = (uint32_t)(t->columns % t->s->lanes);
    t->computed = rows;
    if (groups) {
        expr_id g = em_for_begin(em, &l, ex_const(x, 0), ex_const(x, groups), NULL, 0);
        column_group(t, ex_mulc(x, g, t->s->pc), t->s->pc, 0, at_once, fn);
        em_for_end(em, &l, NULL, NULL);
    }
    if (more || rest)
        column_group(t, ex_const(x, groups * t->s->pc), more, rest, at_once, fn);
}

/* As many rows as there may be, which is known: O has room, and attn_end leaves out what no row has asked for. */
static void few_values(struct attn *t)
{
    all_columns(t, ex_const(t->em->x, t->few), t->s->pr, value_tile);
}

/* The rows at hand; where their number is open, and O has room for whole tiles of them, as many as those have. */
static expr_id whole_tiles(const struct attn *t)
{
    struct exprs *x = t->em->x;
    if (!t->s->span || ex_is_const(x, t->rows, &(int64_t){0}) || t->nv * t->s->lanes % t->s->pr)
        return t->here;
    return ex_mulc(x, ex_ceildiv(x, t->here, ex_const(x, t->s->pr)), t->s->pr);
}

static void many_values(struct attn *t)
{
    if ((t->in_w = t->widens_values))
        widen(t, true);
    all_columns(t, whole_tiles(t), t->s->pr, value_tile);
    t->in_w = false;
}

void attn_values(struct attn *t)
{
    attn_either(t, few_values, many_values);
}

void attn_end(struct attn *t)
{
    struct em *em = t->em;
    for (int64_t j = 0; j < t->nv; j++) {
        lreg sum = em_scratch_load(em, t->l, at_vector(t, j), t->s->lanes);
        lreg by = factor_of_sum(t, sum);
        if (ex_lo(em->x, t->keys) < 1) /* no key at all: no terms, and the result is 0 */
            by = em_select(em, em_cond(em, ex_eq(em->x, t->keys, ex_const(em->x, 0))),
                           em_const(em, ELEM_F32, t->s->lanes, 0, 0), by);
        em_scratch_store(em, t->c, at_vector(t, j), by);
    }
    all_columns(t, t->here, 1, end_tile);
}
