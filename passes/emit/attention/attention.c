/* The attention template: for each batch and block of rows, all scores of the block in scratch, their softmax, and the product
 * with the values, so that scores and probabilities never reach memory. Where not all keys fit the second-level cache beside a
 * block, or their number is open, they come in spans, and what was added up is scaled down whenever a larger score turns up. */
#include "passes/emit/attention/attention.h"

enum { MAX_MR = 14,
       GUESS = 64,               /* an extent that only the run knows, for costs */
       SPAN_OPEN = 128, SPAN_LEAST = 32,     /* keys of a span: at most, so that few are computed for nothing; at least, to hide the scaling */
       EXP_CYCLES = 14,          /* of a vector's exponential, measured on Ice Lake */
       CYCLES_PER_NS = 3, FEW_KEYS = 1 << 20 /* more cost the same: long enough for any thread */ };

/* ---- sizes -------------------------------------------------------------------------------------------------------------- */

static int64_t extent_or_guess(const struct attn *t, expr_id e, bool *known)
{
    int64_t n;
    *known = ex_is_const(t->em->x, e, &n);
    return *known ? n : GUESS;
}

static bool fits(const struct attn *t, int64_t points, int64_t vectors)
{
    return points * vectors + vectors + 1 <= (int64_t)t->em->mach->registers && points * vectors <= EM_POINTS / 2;
}

/* Vectors of rows per block, evenly split, and keys per register tile: the least cost of all scores. */
static void choose_scores(struct attn *t)
{
    bool known_rows, known_keys;
    int64_t rows = extent_or_guess(t, t->rows, &known_rows), keys = extent_or_guess(t, t->keys, &known_keys), best = INT64_MAX;
    int64_t vectors = (rows + t->lanes - 1) / t->lanes;
    const struct machine *m = t->em->mach;
    for (int64_t most = 1; most <= ATTENTION_VECTORS && most <= vectors; most++)
        for (int64_t mr = 1; mr <= MAX_MR && fits(t, mr, most); mr++) {
            int64_t blocks = (vectors + most - 1) / most, nv = vectors / blocks, large = vectors % blocks;
            int64_t cost = (blocks - large) * tile_line_cost(m, keys, known_keys, mr, nv, (uint64_t)t->size);
            if (large)
                cost += large * tile_line_cost(m, keys, known_keys, mr, nv + 1, (uint64_t)t->size);
            if (cost >= best)
                continue;
            best = cost;
            t->mr = mr;
            t->nv = nv + (large > 0);
        }
}

static void choose_values(struct attn *t)
{
    bool known;
    int64_t keys = extent_or_guess(t, t->keys, &known), vectors = (t->columns + t->lanes - 1) / t->lanes, best = INT64_MAX;
    for (int64_t pc = 1; pc <= MAX_COLUMNS && pc <= vectors; pc++)
        for (int64_t pr = 1; pr <= MAX_MR && fits(t, pr, pc); pr++) {
            const struct machine *m = t->em->mach;
            int64_t rows = t->nv * t->lanes, rest = vectors % pc;
            int64_t cost = vectors / pc * tile_line_cost(m, rows, true, pr, pc, (uint64_t)keys);
            if (rest)
                cost += tile_line_cost(m, rows, true, pr, rest, (uint64_t)keys);
            if (cost >= best)
                continue;
            best = cost;
            t->pr = pr;
            t->pc = pc;
        }
}

/* All keys at once where the scores of a block fill no more than a quarter of the second cache; else spans of equal length
 * that the first cache holds. */
static void choose_span(struct attn *t)
{
    int64_t keys, line = t->line * 4, most = (int64_t)t->em->mach->l1_kib * 1024 / line;
    bool known = ex_is_const(t->em->x, t->keys, &keys);
    if (known && keys <= (int64_t)t->em->mach->l2_kib * 1024 / 4 / line)
        return;
    most = most < SPAN_LEAST ? SPAN_LEAST : most;
    t->span = SPAN_OPEN < most ? SPAN_OPEN : most;
    if (known)
        t->span = (keys + (keys + t->span - 1) / t->span - 1) / ((keys + t->span - 1) / t->span);
}

static bool attn_init(struct attn *t, struct em *em)
{
    const struct attention *a = em->k->attention;
    *t = (struct attn){.em = em, .a = a, .scores = graph_node(em->g, a->scores), .values = graph_node(em->g, a->values),
                       .lanes = machine_lanes(em->mach, ELEM_F32)};
    if (!dot_dims(em->g, t->scores, a->rows_of, &t->of_row) || !dot_dims(em->g, t->scores, 1 - a->rows_of, &t->of_key) ||
        !dot_dims(em->g, t->values, 0, &t->of_p) || !dot_dims(em->g, t->values, 1, &t->of_v))
        return error_internal(em->m->ctx, t->values->src, "kernel %s: an attention's operands have changed", em->f->name);
    t->row_operand = t->scores->in[a->rows_of];
    t->key_operand = t->scores->in[1 - a->rows_of];
    const struct type *p = value_type(em->g, t->values->in[0]);
    t->rows = p->dims[t->of_p.free];
    t->keys = p->dims[t->of_p.contract];
    ex_is_const(em->x, value_type(em->g, t->row_operand)->dims[t->of_row.contract], &t->size);
    ex_is_const(em->x, value_type(em->g, t->values->in[1])->dims[t->of_v.free], &t->columns);
    choose_scores(t);
    choose_values(t);
    t->line = (t->nv | 1) * t->lanes;
    choose_span(t);
    return true;
}

/* ---- the kernel -------------------------------------------------------------------------------------------------------------- */

void attn_tiles(struct attn *t, expr_id n, int64_t size, attn_tile_fn *fn)
{
    struct em *em = t->em;
    struct exprs *x = em->x;
    struct em_for l;
    int64_t c, tiles;
    expr_id zero = ex_const(x, 0), done = zero;
    bool known = ex_is_const(x, n, &c);
    if (known && c < 1)
        return;
    tiles = known ? (c + size - 1) / size : 0;
    int64_t small = known ? c / tiles : 0, large = known ? c % tiles : 0;
    int64_t sizes[3] = {known ? small + 1 : size, known ? small : size >= 8 ? 4 : size >= 4 ? 2 : 1, known ? 0 : 1};
    for (uint32_t k = 0; k < 3; k++) {
        if (sizes[k] < 1 || (k > 0 && sizes[k] == sizes[k - 1]) || (known && k == 0 && !large))
            continue;
        expr_id count = known ? ex_const(x, k ? tiles - large : large) : ex_div(x, ex_sub(x, n, done), ex_const(x, sizes[k]));
        expr_id i = em_for_begin(em, &l, zero, count, 1, NULL, 0);
        fn(t, ex_add(x, done, ex_mulc(x, i, sizes[k])), (uint32_t)sizes[k]);
        em_for_end(em, &l, NULL, NULL);
        done = ex_add(x, done, ex_mulc(x, count, sizes[k]));
    }
}

/* Keys in spans: with a running maximum. */
static void spans(struct attn *t)
{
    struct em *em = t->em;
    struct exprs *x = em->x;
    struct em_for l;
    expr_id span = ex_const(x, t->span), count = ex_ceildiv(x, t->keys, span);
    attn_begin(t);
    expr_id i = em_for_begin(em, &l, ex_const(x, 0), count, 1, NULL, 0);
    expr_id first = ex_mul(x, i, span), here = ex_min(x, span, ex_sub(x, t->keys, first));
    int64_t keys = ex_hi(x, t->keys);
    t->key0 = em_pin(em, first, 0, keys == INT64_MAX ? keys : keys - 1);
    t->n_keys = ex_is(x, ex_mod(x, t->keys, span), 0) ? span : em_pin(em, here, 1, t->span);
    attn_scores(t);
    attn_terms(t);
    attn_values(t);
    em_for_end(em, &l, NULL, NULL);
    attn_end(t);
}

/* A block of nv vectors of rows, of which the last (or, where the rows' number is open, any) may reach beyond them. */
static void block(struct attn *t, expr_id vector, int64_t nv, bool whole)
{
    struct em *em = t->em;
    struct exprs *x = em->x;
    int64_t most = t->nv, rows, lanes = t->lanes, top = INT64_MAX;
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
        expr_id base = ex_addc(x, t->row0, j * lanes), behind = ex_sub(x, t->rows, base);
        if (!ex_is_const(x, base, &(int64_t){0}))
            base = em_pin(em, base, 0, top);
        bool full = whole || (known && (j + 1 < nv || rows % lanes == 0));
        t->row[j] = !full && known && rows < lanes ? em_tail(em, base, behind, t->lanes)
                    : ex_add(x, base, em_lane(em, t->lanes, full ? (lval){0} : em_tail_mask(em, behind, t->lanes)));
    }
    attn_turn(t);
    if (t->span) {
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

/* Blocks of a known number of vectors of rows: the first ones have a vector more. */
static void blocks(struct attn *t, expr_id number)
{
    struct em *em = t->em;
    struct exprs *x = em->x;
    struct em_if iff;
    int64_t rows;
    if (!ex_is_const(x, t->rows, &rows)) {
        block(t, ex_mulc(x, number, t->nv), t->nv, false);
        return;
    }
    int64_t vectors = (rows + t->lanes - 1) / t->lanes, count = (vectors + t->nv - 1) / t->nv;
    int64_t small = vectors / count, large = vectors % count;
    bool even = rows % t->lanes == 0;
    expr_id border = ex_const(x, large);
    if (!large) {
        block(t, ex_mulc(x, number, small), small, even);
        return;
    }
    em_if_begin(em, &iff, em_cond(em, ex_lt(x, number, border)));
    block(t, ex_mulc(x, em_pin(em, number, 0, large - 1), small + 1), small + 1, true);
    em_if_end(em, &iff);
    em_if_begin(em, &iff, em_cond(em, ex_le(x, border, number)));
    block(t, ex_addc(x, ex_mulc(x, em_pin(em, number, large, count - 1), small), large), small, even);
    em_if_end(em, &iff);
}

static void scratch(struct attn *t)
{
    struct em *em = t->em;
    int64_t keys = t->span, rows = t->nv * t->lanes;
    if (!keys)
        ex_is_const(em->x, t->keys, &keys);
    t->q = em_scratch(em, ELEM_F32, t->size * t->line);
    t->z = em_scratch(em, ELEM_F32, keys * t->line);
    t->m = em_scratch(em, ELEM_F32, rows);
    t->l = em_scratch(em, ELEM_F32, rows);
    t->c = em_scratch(em, ELEM_F32, rows);
    if (t->span)
        t->o = em_scratch(em, ELEM_F32, rows * attn_row_line(t));
}

static void cost(struct attn *t)
{
    struct em *em = t->em;
    const struct type *y = value_type(em->g, t->values->out[0]);
    bool known;
    int64_t keys = extent_or_guess(t, t->keys, &known), rows = t->nv * t->lanes, least = extent_least(em->m, t->keys);
    uint64_t points = 1;
    for (int32_t d = 0; d + 1 < y->rank; d++)
        points *= (uint64_t)extent_least(em->m, y->dims[d]);
    em->k->flops = 2 * points * (uint64_t)least * (uint64_t)(t->size + t->columns);
    int64_t vectors = (keys < FEW_KEYS ? keys : FEW_KEYS) * t->nv;
    em->k->ns = 100 + (vectors * (t->size + t->columns) / em->mach->fma_per_cycle + vectors * EXP_CYCLES + rows * t->size) / CYCLES_PER_NS;
}

/* What was chosen, for the remarks: in the first variant, the fastest. */
static void choice_note(struct attn *t)
{
    struct kernel *k = t->em->k;
    const char *how = t->span ? "spans of keys with a running maximum" : "all keys, exact softmax";
    if (!k->choice)
        k->choice = arena_printf(t->em->m->arena, "attention: blocks of %lld rows by %s, scores in tiles of %lld keys by %lld vectors, "
                                 "results of %lld rows by %lld vectors of %u lanes", (long long)(t->nv * t->lanes), how, (long long)t->mr,
                                 (long long)t->nv, (long long)t->pr, (long long)t->pc, t->lanes);
}

bool emit_attention(struct em *em)
{
    struct attn t;
    struct loop loops[RANK_MAX + 1];
    struct em_for par;
    struct exprs *x = em->x;
    if (!attn_init(&t, em))
        return false;
    const struct type *y = value_type(em->g, t.values->out[0]);
    uint32_t n = t.of_p.n_batch;
    for (uint32_t d = 0; d < n; d++)
        loops[d] = (struct loop){(int32_t)d, y->dims[d], {0}};
    loops[n] = (struct loop){-1, ex_ceildiv(x, t.rows, ex_const(x, t.nv * t.lanes)), {0}};
    scratch(&t);
    em_parallel_open(em, &par, loops, n + 1);
    for (uint32_t d = 0; d < n; d++)
        t.batch[d] = loops[d].var;
    blocks(&t, loops[n].var);
    em_parallel_end(em, &par);
    cost(&t);
    choice_note(&t);
    return !em->failed;
}
