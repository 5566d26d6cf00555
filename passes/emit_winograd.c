/* The Winograd template: a kernel of stages over a chunk of tiles, with local buffers between them.
 *
 *   input     B' d B of every tile and vector of input channels       -> V[vector][point][tile][lane]
 *   then, for as many output channels as a register tile is wide:
 *   weights   G g G' of a slice of input channels, unless open has done it  -> U[point][channel][vector][lane]
 *   products  for every point, V times the slice of U, added up       -> M[vector][point][tile][lane]
 *   output    A' M A of every tile, then whatever the kernel does behind the convolution
 *
 * A parallel index is a chunk of tiles and a group of output channels. Tiles are numbered over all images; a chunk has a
 * whole number of register tiles, and where the image has no more tiles the last one is repeated, never stored. The first
 * dim of a transform is taken in groups of results, so that what waits for the second dim stays in registers. */
#include "passes/schedule.h"
#include "passes/winograd.h"

#include <string.h>

enum { PANEL = 16, SPARE_REGISTERS = 8, MAX_MR = 14, MAX_NR = 4, FMA_PER_CYCLE = 2, LOADS_PER_CYCLE = 2, FMA_LATENCY = 4,
       STEP_OVERHEAD = 1, CHUNK_BYTES = 512 << 10, MIN_CHUNKS = 4, UNKNOWN_TILES = 256, SLICE_BYTES = 320 << 10 };

struct wino {
    struct em *em;
    const struct node *n;
    const struct winograd_form *f;
    value_id out;                    /* the kernel's domain */
    uint32_t lanes;
    int64_t ic, oc, icv, ocv;        /* channels, vectors of them */
    int64_t points;                  /* alpha^2 */
    int64_t mr, nr;                  /* register tile: tiles x vectors */
    int64_t ct;                      /* tiles of a chunk: a multiple of mr */
    int64_t group;                   /* vectors of output channels of a parallel index */
    int64_t per_mr;                  /* input rows of a first-dim group */
    expr_id th, tw, tiles;           /* per image; in all */
    expr_id first, here;             /* of the chunk at hand */
    expr_id group0;                  /* first vector of its output channels */
    lval v, m, u, weights;           /* u: of open, or the slice at hand; weights: plain, where the kernel derives u */
    int64_t slice;                   /* vectors of input channels of which u is at hand */
    int64_t stride[4];               /* of the plain weights */
    /* of the tile at hand */
    expr_id image, y0, x0, t, vec, lane;
    struct em_if row;
    bool row_open;
};

/* ---- sizes -------------------------------------------------------------------------------------------------------------- */

/* Half cycles of one step of the products over one channel: a tile of mr x nr. */
static int64_t step_cost(int64_t mr, int64_t nr)
{
    int64_t fma = mr * nr * 2 / FMA_PER_CYCLE, loads = (mr + nr) * 2 / LOADS_PER_CYCLE, least = 2 * FMA_LATENCY;
    int64_t cost = fma > loads ? fma : loads;
    return (cost > least ? cost : least) + STEP_OVERHEAD;
}

static int64_t known_tiles(const struct wino *w)
{
    int64_t n;
    return ex_is_const(w->em->x, w->tiles, &n) && n > 0 ? n : UNKNOWN_TILES;
}

/* Tiles of a chunk: what the caches near the core hold of V and M, split evenly, in whole register tiles. */
static int64_t chunk_tiles(const struct wino *w, int64_t mr)
{
    int64_t tiles = known_tiles(w), most = CHUNK_BYTES / (w->points * (w->icv + 2) * w->lanes * 4);
    if (most < 2 * mr)
        most = 2 * mr;
    if (most > tiles)
        most = tiles;
    int64_t chunks = (tiles + most - 1) / most, each = (tiles + chunks - 1) / chunks;
    return (each + mr - 1) / mr * mr;
}

static void choose_tile(struct wino *w)
{
    int64_t best = INT64_MAX, tiles = known_tiles(w);
    for (int64_t nr = 1; nr <= MAX_NR && nr <= w->ocv; nr++)
        for (int64_t mr = 1; mr <= MAX_MR; mr++) {
            if (mr * nr + nr + 1 > (int64_t)w->em->mach.registers)
                continue;
            int64_t ct = chunk_tiles(w, mr), chunks = (tiles + ct - 1) / ct, last = tiles - (chunks - 1) * ct;
            int64_t steps = (chunks - 1) * (ct / mr) + (last + mr - 1) / mr;
            int64_t whole = w->ocv / nr, rest = w->ocv % nr;
            int64_t cost = steps * (whole * step_cost(mr, nr) + (rest ? step_cost(mr, rest) : 0));
            if (cost < best) {
                best = cost;
                w->mr = mr;
                w->nr = nr;
                w->ct = ct;
            }
        }
}

/* Output channels are split too where there are few chunks: each part repeats the input transform, which is little. */
static void choose_group(struct wino *w)
{
    int64_t chunks = (known_tiles(w) + w->ct - 1) / w->ct;
    w->group = w->ocv;
    while (chunks * (w->ocv / w->group) < MIN_CHUNKS && w->group % (2 * w->nr) == 0 && w->group * w->lanes >= 128)
        w->group /= 2;
}

/* Lines between the points of V or M, and elements between those of U: no power of two, or all points of a tile would
 * compete for one set of the cache. */
static int64_t tile_stride(const struct wino *w) { return w->ct | 1; }
static int64_t weight_stride(const struct wino *w, int64_t nr) { return (w->slice * w->lanes * nr | 1) * w->lanes; }

static void wino_init(struct wino *w, struct em *em)
{
    struct exprs *x = em->x;
    *w = (struct wino){.em = em, .n = graph_node(em->g, em->k->anchor), .f = winograd_form(em->k->winograd),
                       .out = em->k->domain, .lanes = em_lanes(em, ELEM_F32)};
    const struct type *y = value_type(em->g, w->n->out[0]), *in = value_type(em->g, w->n->in[1]);
    expr_id m = ex_const(x, w->f->m);
    ex_is_const(x, in->dims[0], &w->oc);
    ex_is_const(x, in->dims[1], &w->ic);
    if (w->lanes > PANEL)
        w->lanes = PANEL;
    w->icv = (w->ic + w->lanes - 1) / w->lanes;
    w->ocv = (w->oc + w->lanes - 1) / w->lanes;
    w->points = (int64_t)w->f->alpha * w->f->alpha;
    w->th = ex_ceildiv(x, y->dims[2], m);
    w->tw = ex_ceildiv(x, y->dims[3], m);
    w->tiles = ex_mul(x, y->dims[0], ex_mul(x, w->th, w->tw));
    choose_tile(w);
    choose_group(w);
    w->slice = w->icv;
    while (!em->k->prepared && w->ic % w->lanes == 0 && w->slice > 1 &&
           w->points * weight_stride(w, w->nr) * 4 > SLICE_BYTES)
        do
            w->slice--;
        while (w->icv % w->slice);
}

/* ---- transforms ------------------------------------------------------------------------------------------------------------ */

typedef lval load_fn(struct wino *, uint32_t row, uint32_t column);
typedef void store_fn(struct wino *, uint32_t row, uint32_t column, lval);

/* Value `number` of a straight-line program whose operands are already in val, or come from load. */
static lval side_value(struct wino *w, const struct winograd_side *s, uint32_t number, lval *val, load_fn *load, uint32_t column)
{
    struct em *em = w->em;
    if (val[number].i)
        return val[number];
    if (number < s->n_in)
        return val[number] = load(w, number, column);
    const struct winograd_step *step = &s->steps[number - s->n_in];
    lval a = side_value(w, s, step->a, val, load, column), b = side_value(w, s, step->b, val, load, column);
    if (step->c == 1 || step->c == -1)
        return val[number] = em_op2(em, step->c == 1 ? L_ADD : L_SUB, a, b);
    lval in[3] = {b, em_const(em, ELEM_F32, w->lanes, step->c, 0), a};
    return val[number] = em_op(em, L_FMA, (struct ltype){ELEM_F32, w->lanes}, in, 3);
}

/* Both dims of a transform; `group` results of the first at a time. */
static void transform(struct wino *w, const struct winograd_side *s, uint32_t group, load_fn *load, store_fn *store)
{
    for (uint32_t first = 0; first < s->n_out; first += group) {
        lval mid[WINOGRAD_ALPHA_MAX][WINOGRAD_ALPHA_MAX];
        uint32_t n = s->n_out - first < group ? s->n_out - first : group;
        for (uint32_t j = 0; j < s->n_in; j++) {
            lval val[WINOGRAD_ALPHA_MAX + WINOGRAD_STEPS_MAX] = {{0}};
            for (uint32_t i = 0; i < n; i++)
                mid[i][j] = side_value(w, s, s->out[first + i], val, load, j);
        }
        for (uint32_t i = 0; i < n; i++) {
            lval val[WINOGRAD_ALPHA_MAX + WINOGRAD_STEPS_MAX] = {{0}};
            memcpy(val, mid[i], s->n_in * sizeof *val);
            for (uint32_t j = 0; j < s->n_out; j++)
                store(w, first + i, j, side_value(w, s, s->out[j], val, load, j));
        }
    }
}

/* As many first-dim results as registers hold a row each of, with some to spare; split evenly. */
static uint32_t transform_group(const struct wino *w, const struct winograd_side *s)
{
    uint32_t regs = w->em->mach.registers, fit = regs > SPARE_REGISTERS ? (regs - SPARE_REGISTERS + 2) / s->n_in : 1;
    if (fit < 2)
        fit = 2;
    uint32_t groups = (s->n_out + fit - 1) / fit;
    return (s->n_out + groups - 1) / groups;
}

/* ---- places --------------------------------------------------------------------------------------------------------------- */

/* Element of V or M: [vector][point][tile][lane]. */
static expr_id place(const struct wino *w, expr_id vector, expr_id point, expr_id tile)
{
    struct exprs *x = w->em->x;
    expr_id at = ex_add(x, ex_mulc(x, vector, w->points), point);
    return ex_mulc(x, ex_add(x, ex_mulc(x, at, tile_stride(w)), tile), w->lanes);
}

static expr_id split_pin(struct em *em, expr_id e, expr_id size)
{
    int64_t hi = ex_hi(em->x, size);
    if (ex_is_const(em->x, e, &(int64_t){0}))
        return e;
    return em_pin(em, e, 0, hi == INT64_MAX ? hi : hi > 0 ? hi - 1 : 0);
}

/* Which image, row and column tile number t of the chunk is at. */
static void tile_at(struct wino *w, expr_id t, bool clamp)
{
    struct em *em = w->em;
    struct exprs *x = em->x;
    const struct type *y = value_type(em->g, w->n->out[0]);
    expr_id one = ex_const(x, 1), at[3], number = ex_add(x, w->first, t);
    expr_id dims[3] = {ex_max(x, y->dims[0], one), ex_max(x, w->th, one), ex_max(x, w->tw, one)};
    if (clamp)
        number = ex_min(x, number, ex_addc(x, w->tiles, -1));
    number = split_pin(em, number, w->tiles);
    point_split(x, number, dims, 3, at);
    w->t = t;
    w->image = split_pin(em, at[0], y->dims[0]);
    w->y0 = ex_mulc(x, split_pin(em, at[1], w->th), w->f->m);
    w->x0 = ex_mulc(x, split_pin(em, at[2], w->tw), w->f->m);
}

/* Lanes of vector number `vec` of `channels`. */
static void lanes_at(struct wino *w, expr_id vec, int64_t channels)
{
    struct em *em = w->em;
    expr_id base = ex_mulc(em->x, vec, w->lanes);
    lval mask = {0};
    if (channels % w->lanes)
        mask = em_tail_mask(em, ex_sub(em->x, ex_const(em->x, channels), base), w->lanes);
    w->vec = vec;
    w->lane = ex_add(em->x, base, em_lane(em, w->lanes, mask));
}

/* ---- the stages -------------------------------------------------------------------------------------------------------------- */

static lval input_load(struct wino *w, uint32_t row, uint32_t column)
{
    struct em *em = w->em;
    struct exprs *x = em->x;
    uint32_t c;
    const expr_id *lo = node_exprs(w->n, "lo", &c);
    expr_id at[4] = {w->image, w->lane, ex_sub(x, ex_addc(x, w->y0, row), lo[0]), ex_sub(x, ex_addc(x, w->x0, column), lo[1])};
    expr_id cond = ex_const(x, 1);
    for (int32_t d = 0; d < 2; d++)
        if (!em_halo_covers(em, w->n, d, w->f->m))
            cond = ex_and(x, cond, em_inside(em, at[2 + d], value_type(em->g, w->n->in[0])->dims[2 + d]));
    return em_load(em, w->n->in[0], at, cond);
}

static void input_store(struct wino *w, uint32_t row, uint32_t column, lval v)
{
    expr_id point = ex_const(w->em->x, row * w->f->alpha + column);
    em_scratch_store(w->em, w->v, place(w, w->vec, point, w->t), v);
}

static void input_stage(struct wino *w, expr_id rows)
{
    struct em *em = w->em;
    struct em_for t, v;
    expr_id zero = ex_const(em->x, 0);
    tile_at(w, em_for_begin(em, &t, zero, ex_mulc(em->x, rows, w->mr), 1, NULL, 0), true);
    lanes_at(w, em_for_begin(em, &v, zero, ex_const(em->x, w->icv), 1, NULL, 0), w->ic);
    transform(w, &w->f->input, transform_group(w, &w->f->input), input_load, input_store);
    em_for_end(em, &v, NULL, NULL);
    em_for_end(em, &t, NULL, NULL);
}

/* The register tiles at hand: vectors of output channels from `vector` of the group on; the slice of input channels. */
struct product { expr_id point, vector, row, tile, slice, next; int64_t nr; bool first; };

/* Where element `lane` of input channel vector `vec` (of the slice) is in the weights of vector j of the tile. */
static expr_id weight_at(const struct wino *w, const struct product *p, expr_id vec, expr_id lane, int64_t j)
{
    struct exprs *x = w->em->x;
    expr_id panel = ex_const(x, PANEL), ic = ex_add(x, ex_mulc(x, vec, w->lanes), lane);
    if (w->weights.i) {
        expr_id at = ex_mulc(x, ex_addc(x, ex_mulc(x, ic, p->nr), j), w->lanes);
        return ex_add(x, ex_mulc(x, p->point, weight_stride(w, p->nr)), at);
    }
    expr_id oc = ex_mulc(x, ex_addc(x, ex_add(x, w->group0, p->vector), j), w->lanes);
    expr_id at = ex_add(x, ex_mul(x, p->point, ex_ceildiv(x, ex_const(x, w->oc), panel)), ex_div(x, oc, panel));
    return ex_add(x, ex_mulc(x, ex_add(x, ex_mulc(x, at, w->ic), ic), PANEL), ex_mod(x, oc, panel));
}

/* Where the plain weights of a channel and a vector of output channels of the kernel are: those of the first tap. */
static expr_id plain_at(const struct wino *w, expr_id vector, expr_id channel)
{
    struct exprs *x = w->em->x;
    expr_id panel = ex_const(x, PANEL), oc = ex_mulc(x, vector, w->lanes);
    expr_id at = ex_add(x, ex_mulc(x, ex_div(x, oc, panel), w->stride[0]), ex_mod(x, oc, panel));
    return ex_add(x, at, ex_mulc(x, channel, w->stride[3]));
}

/* The slice after this one: of the same output channels, or the first of the next. Element of its first weights. */
static expr_id next_slice(const struct wino *w, const struct product *p)
{
    struct exprs *x = w->em->x;
    expr_id slices = ex_const(x, w->icv / w->slice), after = ex_addc(x, p->slice, 1), wrap = ex_div(x, after, slices);
    expr_id vector = ex_add(x, ex_add(x, w->group0, p->vector), ex_mulc(x, wrap, p->nr));
    return plain_at(w, vector, ex_mulc(x, ex_mod(x, after, slices), w->slice * w->lanes));
}

/* Asks for a few lines of the next slice's plain weights: over all points and tiles of the products, for all of them. */
static void prefetch_step(struct wino *w, const struct product *p, expr_id ic)
{
    struct em *em = w->em;
    struct exprs *x = em->x;
    int64_t tiles = w->ct / w->mr, lines = 9 * p->nr, trips = w->points * tiles;
    for (int64_t i = 0; i * trips < lines; i++) {
        expr_id q = ex_addc(x, ex_add(x, ex_mulc(x, p->point, tiles), p->row), i * trips);
        q = ex_mod(x, q, ex_const(x, lines));
        expr_id tap = ex_mod(x, q, ex_const(x, 9)), three = ex_const(x, 3), oc = ex_mulc(x, ex_div(x, q, ex_const(x, 9)), w->lanes);
        expr_id at = ex_add(x, p->next, ex_mulc(x, ex_div(x, oc, ex_const(x, PANEL)), w->stride[0]));
        at = ex_add(x, at, ex_mulc(x, ex_div(x, tap, three), w->stride[1]));
        at = ex_add(x, at, ex_mulc(x, ex_mod(x, tap, three), w->stride[2]));
        at = ex_mulc(x, ex_add(x, at, ex_mulc(x, ic, w->stride[3])), 4);
        lval in[2] = {w->weights, em_index(em, at)};
        struct lstmt *s = lf_stmt(em->f, em->level[em->top], L_PREFETCH2);
        s->in = lf_lvals(em->f, in, 2);
        s->n_in = 2;
    }
}

static void product_step(struct wino *w, const struct product *p, expr_id vec, expr_id lane, lval *acc)
{
    struct em *em = w->em;
    struct exprs *x = em->x;
    struct ltype vector = {ELEM_F32, w->lanes};
    expr_id of_v = ex_add(x, ex_mulc(x, p->slice, w->slice), vec);
    lval b[MAX_NR];
    if (w->weights.i)
        prefetch_step(w, p, ex_add(x, ex_mulc(x, vec, w->lanes), lane));
    for (int64_t j = 0; j < p->nr; j++)
        b[j] = em_scratch_load(em, w->u, weight_at(w, p, vec, lane, j), w->lanes);
    for (int64_t i = 0; i < w->mr; i++) {
        lval a = em_scratch_load(em, w->v, ex_add(x, place(w, of_v, p->point, ex_addc(x, p->tile, i)), lane), 1);
        for (int64_t j = 0; j < p->nr; j++) {
            lval in[3] = {em_splat(em, a, w->lanes), b[j], acc[i * p->nr + j]};
            acc[i * p->nr + j] = em_op(em, L_FMA, vector, in, 3);
        }
    }
}

/* Input channels of vector vec, the first n of them. */
static void product_channels(struct wino *w, const struct product *p, expr_id vec, int64_t n, lval *acc)
{
    struct em *em = w->em;
    struct em_for l;
    lval inner[EM_POINTS];
    uint32_t count = (uint32_t)(w->mr * p->nr);
    expr_id lane = em_for_begin(em, &l, ex_const(em->x, 0), ex_const(em->x, n), 1, acc, count);
    memcpy(inner, l.params, count * sizeof *inner);
    product_step(w, p, vec, lane, inner);
    em_for_end(em, &l, inner, acc);
}

static expr_id product_place(const struct wino *w, const struct product *p, int64_t i, int64_t j)
{
    return place(w, ex_const(w->em->x, j), p->point, ex_addc(w->em->x, p->tile, i));
}

static void product_tile(struct wino *w, const struct product *p)
{
    struct em *em = w->em;
    struct exprs *x = em->x;
    struct em_for l;
    lval acc[EM_POINTS], inner[EM_POINTS];
    uint32_t count = (uint32_t)(w->mr * p->nr);
    int64_t rest = w->ic % w->lanes, whole = w->slice - (rest != 0);
    for (uint32_t i = 0; i < count; i++)
        acc[i] = p->first ? em_const(em, ELEM_F32, w->lanes, 0, 0)
                          : em_scratch_load(em, w->m, product_place(w, p, i / p->nr, i % p->nr), w->lanes);
    if (whole) {
        expr_id vec = em_for_begin(em, &l, ex_const(x, 0), ex_const(x, whole), 1, acc, count);
        memcpy(inner, l.params, count * sizeof *inner);
        product_channels(w, p, vec, w->lanes, inner);
        em_for_end(em, &l, inner, acc);
    }
    if (rest)
        product_channels(w, p, ex_const(x, whole), rest, acc);
    for (uint32_t i = 0; i < count; i++)
        em_scratch_store(em, w->m, product_place(w, p, i / p->nr, i % p->nr), acc[i]);
}

struct weight_put { struct wino *w; const struct product *p; expr_id at; };
static void weight_store(void *user, uint32_t point, lval v)
{
    const struct weight_put *to = user;
    const struct wino *w = to->w;
    em_scratch_store(w->em, w->u, ex_addc(w->em->x, to->at, (int64_t)point * weight_stride(w, to->p->nr)), v);
}

/* U of the slice: every input channel of it and every vector of output channels. */
static void weight_stage(struct wino *w, const struct product *p)
{
    struct em *em = w->em;
    struct exprs *x = em->x;
    struct em_for c, v;
    lval g[3][3];
    int64_t channels = w->slice * w->lanes < w->ic ? w->slice * w->lanes : w->ic;
    expr_id zero = ex_const(x, 0);
    expr_id j = em_for_begin(em, &v, zero, ex_const(x, p->nr), 1, NULL, 0);
    expr_id channel = em_for_begin(em, &c, zero, ex_const(x, channels), 1, NULL, 0);
    expr_id ic = ex_add(x, ex_mulc(x, p->slice, channels), channel);
    expr_id from = plain_at(w, ex_add(x, ex_add(x, w->group0, p->vector), j), ic);
    for (int64_t r = 0; r < 3; r++)
        for (int64_t k = 0; k < 3; k++)
            g[k][r] = em_scratch_load(em, w->weights, ex_addc(x, from, r * w->stride[1] + k * w->stride[2]), w->lanes);
    struct weight_put to = {w, p, ex_mulc(x, ex_add(x, ex_mulc(x, channel, p->nr), j), w->lanes)};
    emit_winograd_weights(em, w->f, (struct ltype){ELEM_F32, w->lanes}, g, weight_store, &to);
    em_for_end(em, &c, NULL, NULL);
    em_for_end(em, &v, NULL, NULL);
}

static void product_slice(struct wino *w, struct product *p, expr_id rows)
{
    struct em *em = w->em;
    struct exprs *x = em->x;
    struct em_for l, t;
    expr_id zero = ex_const(x, 0);
    if (w->weights.i) {
        weight_stage(w, p);
        p->next = next_slice(w, p);
        if (!ex_is_const(x, p->next, &(int64_t){0}))
            p->next = em_pin(em, p->next, 0, INT64_MAX);
    }
    p->point = em_for_begin(em, &l, zero, ex_const(x, w->points), 1, NULL, 0);
    p->row = em_for_begin(em, &t, zero, rows, 1, NULL, 0);
    p->tile = ex_mulc(x, p->row, w->mr);
    product_tile(w, p);
    em_for_end(em, &t, NULL, NULL);
    em_for_end(em, &l, NULL, NULL);
}

static void product_stage(struct wino *w, expr_id vector, int64_t nr, expr_id rows)
{
    struct em *em = w->em;
    struct em_for l;
    struct product p = {.vector = vector, .nr = nr, .slice = ex_const(em->x, 0), .first = true};
    int64_t slices = w->icv / w->slice;
    product_slice(w, &p, rows);
    if (slices == 1)
        return;
    p.first = false;
    p.slice = em_for_begin(em, &l, ex_const(em->x, 1), ex_const(em->x, slices), 1, NULL, 0);
    product_slice(w, &p, rows);
    em_for_end(em, &l, NULL, NULL);
}

static lval output_load(struct wino *w, uint32_t row, uint32_t column)
{
    expr_id point = ex_const(w->em->x, row * w->f->alpha + column);
    return em_scratch_load(w->em, w->m, place(w, w->vec, point, w->t), w->lanes);
}

/* Results past the image's edge exist in the last tiles only: rows and columns are tested where it is not known. */
static void output_store(struct wino *w, uint32_t row, uint32_t column, lval v)
{
    struct em *em = w->em;
    struct exprs *x = em->x;
    const struct type *y = value_type(em->g, w->n->out[0]);
    expr_id at[4] = {w->image, w->lane, ex_addc(x, w->y0, row), ex_addc(x, w->x0, column)};
    expr_id in_row = ex_lt(x, at[2], y->dims[2]), in_column = ex_lt(x, at[3], y->dims[3]);
    struct em_if iff;
    if (column == 0 && ex_truth(x, in_row) != TRUE_) {
        em_if_begin(em, &w->row, em_cond(em, in_row));
        w->row_open = true;
    }
    bool guard = ex_truth(x, in_column) != TRUE_;
    if (guard)
        em_if_begin(em, &iff, em_cond(em, in_column));
    tile_store(em, w->n, w->out, at, v);
    if (guard)
        em_if_end(em, &iff);
    if (column + 1 == w->f->m && w->row_open) {
        em_if_end(em, &w->row);
        w->row_open = false;
    }
}

static void output_stage(struct wino *w, expr_id vector, int64_t nr)
{
    struct em *em = w->em;
    struct em_for t, v;
    expr_id zero = ex_const(em->x, 0);
    tile_at(w, em_for_begin(em, &t, zero, w->here, 1, NULL, 0), false);
    expr_id vec = em_for_begin(em, &v, zero, ex_const(em->x, nr), 1, NULL, 0);
    lanes_at(w, ex_add(em->x, ex_add(em->x, w->group0, vector), vec), w->oc);
    w->vec = vec;
    transform(w, &w->f->output, transform_group(w, &w->f->output), output_load, output_store);
    em_for_end(em, &v, NULL, NULL);
    em_for_end(em, &t, NULL, NULL);
}

/* All output channels of the group: whole register tiles, then what is left. */
static void column_stages(struct wino *w, expr_id rows)
{
    struct em *em = w->em;
    struct exprs *x = em->x;
    struct em_for l;
    int64_t whole = w->group / w->nr, rest = w->group % w->nr;
    if (whole) {
        expr_id vector = ex_mulc(x, em_for_begin(em, &l, ex_const(x, 0), ex_const(x, whole), 1, NULL, 0), w->nr);
        product_stage(w, vector, w->nr, rows);
        output_stage(w, vector, w->nr);
        em_for_end(em, &l, NULL, NULL);
    }
    if (rest) {
        product_stage(w, ex_const(x, whole * w->nr), rest, rows);
        output_stage(w, ex_const(x, whole * w->nr), rest);
    }
}

/* ---- the kernel ---------------------------------------------------------------------------------------------------------------- */

static void wino_cost(const struct wino *w)
{
    struct kernel *k = w->em->k;
    int64_t tiles = known_tiles(w), each = w->ct < tiles ? w->ct : tiles;
    int64_t products = w->points * each * w->ic * w->group / FMA_PER_CYCLE;
    k->ns = 100 + (products + each * (w->icv * 110 + w->group * 75)) / 3;
    k->flops = 2 * (uint64_t)(w->points * tiles) * (uint64_t)w->ic * (uint64_t)w->oc;
}

bool emit_winograd(struct em *em)
{
    struct wino w;
    struct em_for par;
    struct exprs *x = em->x;
    wino_init(&w, em);
    expr_id ct = ex_const(x, w.ct);
    struct loop loops[2] = {{0, ex_const(x, w.ocv / w.group), {0}}, {0, ex_ceildiv(x, w.tiles, ct), {0}}};
    w.v = em_scratch(em, ELEM_F32, w.icv * w.points * tile_stride(&w) * w.lanes);
    w.m = em_scratch(em, ELEM_F32, w.nr * w.points * tile_stride(&w) * w.lanes);
    if (em->k->prepared) {
        w.u = em_prepared(em);
    } else {
        value_id stored;
        if (!winograd_weights(em->m, w.n->in[1], &stored, w.stride))
            return false;
        w.weights = em_buffer(em, stored);
        w.u = em_scratch(em, ELEM_F32, w.points * weight_stride(&w, w.nr));
    }
    em_parallel_open(em, &par, loops, 2);
    w.group0 = ex_mulc(x, loops[0].var, w.group);
    w.first = ex_mulc(x, loops[1].var, w.ct);
    w.here = ex_min(x, ct, ex_sub(x, w.tiles, w.first));
    if (!ex_is_const(x, w.here, &(int64_t){0}))
        w.here = em_pin(em, w.here, 1, w.ct);
    expr_id rows = ex_ceildiv(x, w.here, ex_const(x, w.mr));
    input_stage(&w, rows);
    column_stages(&w, rows);
    em_parallel_end(em, &par);
    wino_cost(&w);
    return !em->failed;
}
