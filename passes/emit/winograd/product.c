/* The matrix products of the Winograd template: for every point, a block of tiles times a slice of U
 * (emit/winograd/winograd.h). Unless U is resident, the steps prefetch the plain weights of the next slice. */
#include "passes/emit/winograd/winograd.h"

/* Where element `lane` of input channel vector `vec` (of the slice) is in the weights of vector j of the tile. */
static expr_id weight_at(const struct wino *w, const struct product *p, expr_id vec, expr_id lane, int64_t j)
{
    struct exprs *x = w->em->x;
    expr_id ic = ex_add(x, ex_mulc(x, vec, w->lanes), lane);
    expr_id at = ex_mulc(x, ex_addc(x, ex_mulc(x, ic, p->nr), j), w->lanes);
    return ex_add(x, ex_add(x, p->u, ex_mulc(x, p->point, winograd_u_stride(w->s, w->lanes))), at);
}

/* The slice after this one: of the same output channels, or the first of the next. Element of its first weights. */
static expr_id next_slice(const struct wino *w, const struct product *p)
{
    struct exprs *x = w->em->x;
    expr_id slices = ex_const(x, w->icv / w->s->slice), after = ex_addc(x, p->slice, 1),
            wrap = ex_div(x, after, slices);
    expr_id vector = ex_add(x, ex_add(x, w->group0, p->vector), ex_mul(x, wrap, p->n));
    return wino_plain_at(w, vector, ex_mulc(x, ex_mod(x, after, slices), w->s->slice * w->lanes));
}

/* Asks for a few lines of the next slice's plain weights: over all products of this one, for each of them once that was
 * not asked for before. */
static void prefetch_plain(struct wino *w, const struct product *p, expr_id vec)
{
    struct exprs *x = w->em->x;
    int64_t tiles = w->s->chunk / w->s->mr, channels = w->s->slice * w->lanes, turns = w->points * tiles * w->s->slice;
    int64_t taps = 9 - w->s->early, each = (taps * p->nr * channels + turns - 1) / turns;
    expr_id turn = ex_add(x, ex_mulc(x, ex_add(x, ex_mulc(x, p->point, tiles), p->block), w->s->slice), vec),
            three = ex_const(x, 3);
    for (int64_t i = 0; i < each; i++) {
        expr_id line = ex_addc(x, ex_mulc(x, turn, each), i), row = ex_div(x, line, ex_const(x, channels));
        expr_id tap = ex_addc(x, ex_mod(x, row, ex_const(x, taps)), w->s->early),
                oc = ex_mulc(x, ex_div(x, row, ex_const(x, taps)), w->lanes);
        expr_id at = ex_add(x, p->next, ex_mulc(x, ex_div(x, oc, ex_const(x, CHANNEL_BLOCK)), w->stride[0]));
        at = ex_add(x, at, ex_mulc(x, ex_div(x, tap, three), w->stride[1]));
        at = ex_add(x, at, ex_mulc(x, ex_mod(x, tap, three), w->stride[2]));
        at = ex_add(x, at, ex_mulc(x, ex_mod(x, line, ex_const(x, channels)), w->stride[3]));
        em_prefetch(w->em, L_PREFETCH2, w->weights, ex_mulc(x, at, elem_size(lf_type(w->em->f, w->weights).elem)));
    }
}

/* Asks for what is read later, one line in each step, so that a burst of them does not hold up the loads: V of vector
 * vec, from that tile on, of this block or of those that follow; ... */
static void prefetch_v(struct wino *w, const struct product *p, expr_id vec, expr_id tile)
{
    struct exprs *x = w->em->x;
    if (w->s->near)
        em_prefetch(w->em, L_PREFETCH, w->v,
                    ex_mulc(x, wino_v_at(w, p->slice, p->point, p->block, ex_addc(x, vec, w->s->near), tile), 4));
}

/* ... where sums go through M, the next block's. */
static void prefetch_m(struct wino *w, const struct product *p, expr_id step)
{
    struct exprs *x = w->em->x;
    expr_id zero = ex_const(x, 0);
    if (w->s->slice == w->icv)
        return;
    expr_id m = ex_add(x, wino_m_at(w, p->block, p->point, zero, zero),
                       ex_mulc(x, ex_addc(x, step, w->s->mr * w->s->nr), w->lanes));
    em_prefetch(w->em, L_PREFETCH, w->m, ex_mulc(x, m, 4));
}

/* The channel at hand, and its weights of each vector of the tile. By lanes: V of each tile, the channel's value of
 * each, and the weights of the vector at hand. */
struct product_step {
    struct wino *w;
    const struct product *p;
    expr_id vec, lane;
    lreg a, b[EM_POINTS];
    lreg v[EM_POINTS], of_lane[EM_POINTS];
};

static bool product_operands(void *user, uint32_t i, uint32_t j, lreg in[2])
{
    struct product_step *s = user;
    struct wino *w = s->w;
    struct exprs *x = w->em->x;
    if (j == 0)
        s->a = em_scratch_load(
            w->em, w->v,
            ex_add(x, wino_v_at(w, s->p->slice, s->p->point, s->p->block, s->vec, ex_const(x, i)), s->lane), 1);
    in[0] = s->a;
    in[1] = s->b[j];
    return true;
}

static void product_step(void *user, expr_id lane, lreg *acc)
{
    struct product_step *s = user;
    struct wino *w = s->w;
    s->lane = lane;
    prefetch_v(w, s->p, s->vec, lane);
    prefetch_m(w, s->p, ex_add(w->em->x, ex_mulc(w->em->x, s->vec, w->lanes), lane));
    for (int64_t j = 0; j < s->p->nr; j++)
        s->b[j] = em_scratch_load(w->em, w->u, weight_at(w, s->p, s->vec, lane, j), w->lanes);
    em_tile_step(w->em, L_FMA, (uint32_t)w->s->mr, (uint32_t)s->p->nr, product_operands, s, acc);
}

/* With the first vector of a lane. The lanes of a vector of V, and of a step's sums in M, are parts of one line. */
static void prefetch_lane(const struct product_step *s, int64_t lane)
{
    struct wino *w = s->w;
    struct exprs *x = w->em->x;
    enum { LINE = 64 };
    int64_t of_line = LINE / (4 * w->lanes);
    if (lane * of_line < w->s->mr)
        prefetch_v(w, s->p, s->vec, ex_const(x, lane * of_line));
    if (lane % of_line == 0)
        prefetch_m(w, s->p, ex_addc(x, ex_mulc(x, s->vec, w->lanes), lane));
}

/* Vector j of those of all lanes, one lane after the other. */
static bool lane_operands(void *user, uint32_t i, uint32_t j, lreg in[2])
{
    struct product_step *s = user;
    struct wino *w = s->w;
    struct exprs *x = w->em->x;
    const struct product *p = s->p;
    int64_t lane = j / p->nr, vector = j % p->nr;
    if (j == 0)
        s->v[i] = em_scratch_load(w->em, w->v, wino_v_at(w, p->slice, p->point, p->block, s->vec, ex_const(x, i)),
                                  w->lanes);
    if (vector == 0)
        s->of_lane[i] = em_extract(w->em, s->v[i], (uint32_t)lane);
    if (i == 0) {
        s->b[0] = em_scratch_load(w->em, w->u, weight_at(w, p, s->vec, ex_const(x, lane), vector), w->lanes);
        if (vector == 0)
            prefetch_lane(s, lane);
    }
    in[0] = s->of_lane[i];
    in[1] = s->b[0];
    return true;
}

/* Input channels of vector vec, the first n of them. */
static void product_channels(struct wino *w, const struct product *p, expr_id vec, int64_t n, lreg *acc)
{
    struct exprs *x = w->em->x;
    struct product_step s = {.w = w, .p = p, .vec = vec};
    if (w->s->by_lane)
        em_tile_steps_by_vector(w->em, L_FMA, (uint32_t)w->s->mr, (uint32_t)p->nr, (uint32_t)n, lane_operands, &s, acc);
    else
        em_tile_loop(w->em, ex_const(x, 0), ex_const(x, n), (uint32_t)(w->s->mr * p->nr), acc, product_step, &s);
}

static expr_id product_place(const struct wino *w, const struct product *p, int64_t i, int64_t j)
{
    return wino_m_at(w, p->block, p->point, ex_const(w->em->x, j), ex_const(w->em->x, i));
}

/* What the tile's sums begin with: what the slices before left in M. */
static void product_sums(struct wino *w, const struct product *p, lreg *acc, uint32_t count)
{
    struct em *em = w->em;
    struct em_if iff;
    lreg zero[EM_POINTS];
    expr_id later = ex_lt(em->x, ex_const(em->x, 0), p->slice);
    for (uint32_t i = 0; i < count; i++)
        acc[i] = zero[i] = em_const(em, ELEM_F32, w->lanes, 0, 0);
    if (ex_truth(em->x, later) == FALSE_)
        return;
    em_if_begin(em, &iff, em_cond(em, later));
    for (uint32_t i = 0; i < count; i++)
        acc[i] = em_scratch_load(em, w->m, product_place(w, p, i / p->nr, i % p->nr), w->lanes);
    em_if_end_or(em, &iff, acc, zero, count, acc);
}

static void product_tile(struct wino *w, const struct product *p)
{
    struct em *em = w->em;
    struct exprs *x = em->x;
    struct em_for l;
    lreg acc[EM_POINTS], inner[EM_POINTS];
    uint32_t count = (uint32_t)(w->s->mr * p->nr);
    int64_t rest = w->ic % w->lanes, whole = w->s->slice - (rest != 0);
    product_sums(w, p, acc, count);
    if (whole) {
        expr_id vec = em_for_begin(em, &l, ex_const(x, 0), ex_const(x, whole), acc, count);
        memcpy(inner, l.params, count * sizeof *inner);
        if (w->weights.i && !w->s->resident)
            prefetch_plain(w, p, vec);
        product_channels(w, p, vec, w->lanes, inner);
        em_for_end(em, &l, inner, acc);
    }
    if (rest)
        product_channels(w, p, ex_const(x, whole), rest, acc);
    for (uint32_t i = 0; i < count; i++)
        em_scratch_store(em, w->m, product_place(w, p, i / p->nr, i % p->nr), acc[i]);
}

/* With the last slice. */
static void output_ahead(struct wino *w, const struct product *p)
{
    struct em *em = w->em;
    struct em_if iff;
    expr_id last = ex_eq(em->x, p->slice, ex_const(em->x, w->icv / w->s->slice - 1));
    if (em_if_known(em, &iff, last))
        wino_output_ahead(w, p);
    em_if_end(em, &iff);
}

/* Every point's products of one slice, by register tiles of nr vectors. */
struct column_products {
    struct wino *w;
    const struct product *p;
    expr_id blocks;
};

static void column_products(void *user, expr_id vector, uint32_t nr)
{
    const struct column_products *c = user;
    struct wino *w = c->w;
    struct product p = *c->p;
    struct em *em = w->em;
    struct em_for l, t;
    expr_id zero = ex_const(em->x, 0);
    p.vector = vector;
    p.nr = nr;
    p.n = ex_const(em->x, nr);
    p.point = em_for_begin(em, &l, zero, ex_const(em->x, w->points), NULL, 0);
    p.block = em_for_begin(em, &t, zero, c->blocks, NULL, 0);
    product_tile(w, &p);
    output_ahead(w, &p);
    em_for_end(em, &t, NULL, NULL);
    em_for_end(em, &l, NULL, NULL);
}

void wino_products(struct wino *w, struct product *p, expr_id blocks)
{
    struct em *em = w->em;
    struct exprs *x = em->x;
    struct em_for l;
    p->slice = em_for_begin(em, &l, ex_const(x, 0), ex_const(x, w->icv / w->s->slice), NULL, 0);
    if (!w->s->resident && w->weights.i) {
        p->next = next_slice(w, p);
        if (!ex_is_const(x, p->next, &(int64_t){0}))
            p->next = em_pin(em, p->next, 0, INT64_MAX);
    }
    if (!w->s->resident)
        wino_weights(w, p);
    em_tile_number(em, &w->columns, p->number, column_products, &(struct column_products){w, p, blocks});
    em_for_end(em, &l, NULL, NULL);
}
