/* The Winograd template: a kernel of three stages over a chunk of tiles, with two local buffers between them.
 *
 *   input     B' d B of every tile and vector of input channels       -> V[vector][point][tile][lane]
 *   products  for every point, V times the transformed weights        -> M[vector][point][tile][lane]
 *   output    A' M A of every tile and vector of output channels, then whatever the kernel does behind the convolution
 *
 * A parallel index is a chunk of tiles and a group of output channels. Tiles are numbered over all images; a chunk has a
 * whole number of register tiles, and where the image has no more tiles the last one is repeated, never stored. The first
 * dim of a transform is taken in groups of results, so that what waits for the second dim stays in registers. */
#include "passes/schedule.h"
#include "passes/winograd.h"

#include <string.h>

enum { PANEL = 16, SPARE_REGISTERS = 8, MAX_MR = 14, MAX_NR = 6, FMA_PER_CYCLE = 2, LOADS_PER_CYCLE = 2, FMA_LATENCY = 4,
       STEP_OVERHEAD = 1, CHUNK_BYTES = 768 << 10, MIN_CHUNKS = 4, UNKNOWN_TILES = 256 };

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
    lval v, m, u;
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
    int64_t tiles = known_tiles(w), most = CHUNK_BYTES / (w->points * (w->icv + w->ocv) * w->lanes * 4);
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
    return ex_mulc(x, ex_add(x, ex_mulc(x, at, w->ct), tile), w->lanes);
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

struct product { expr_id point, vector, tile; int64_t nr; };     /* a register tile: vector counts within the group */

static void product_step(struct wino *w, const struct product *p, expr_id vec, expr_id lane, lval *acc)
{
    struct em *em = w->em;
    struct exprs *x = em->x;
    struct ltype vector = {ELEM_F32, w->lanes};
    lval b[MAX_NR];
    expr_id panel = ex_const(x, PANEL), blocks = ex_ceildiv(x, ex_const(x, w->oc), panel);
    expr_id ic = ex_add(x, ex_mulc(x, vec, w->lanes), lane);
    for (int64_t j = 0; j < p->nr; j++) {
        expr_id oc = ex_mulc(x, ex_addc(x, ex_add(x, w->group0, p->vector), j), w->lanes);
        expr_id at = ex_add(x, ex_mul(x, p->point, blocks), ex_div(x, oc, panel));
        at = ex_add(x, ex_mulc(x, ex_add(x, ex_mulc(x, at, w->ic), ic), PANEL), ex_mod(x, oc, panel));
        b[j] = em_scratch_load(em, w->u, at, w->lanes);
    }
    for (int64_t i = 0; i < w->mr; i++) {
        lval a = em_scratch_load(em, w->v, ex_add(x, place(w, vec, p->point, ex_addc(x, p->tile, i)), lane), 1);
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

static void product_tile(struct wino *w, const struct product *p)
{
    struct em *em = w->em;
    struct exprs *x = em->x;
    struct em_for l;
    lval acc[EM_POINTS], inner[EM_POINTS];
    uint32_t count = (uint32_t)(w->mr * p->nr);
    int64_t whole = w->ic / w->lanes, rest = w->ic % w->lanes;
    for (uint32_t i = 0; i < count; i++)
        acc[i] = em_const(em, ELEM_F32, w->lanes, 0, 0);
    if (whole) {
        expr_id vec = em_for_begin(em, &l, ex_const(x, 0), ex_const(x, whole), 1, acc, count);
        memcpy(inner, l.params, count * sizeof *inner);
        product_channels(w, p, vec, w->lanes, inner);
        em_for_end(em, &l, inner, acc);
    }
    if (rest)
        product_channels(w, p, ex_const(x, whole), rest, acc);
    for (int64_t i = 0; i < w->mr; i++)
        for (int64_t j = 0; j < p->nr; j++)
            em_scratch_store(em, w->m, place(w, ex_addc(x, p->vector, j), p->point, ex_addc(x, p->tile, i)), acc[i * p->nr + j]);
}

static void product_stage(struct wino *w, expr_id rows)
{
    struct em *em = w->em;
    struct exprs *x = em->x;
    struct em_for p, v, t;
    expr_id zero = ex_const(x, 0), point = em_for_begin(em, &p, zero, ex_const(x, w->points), 1, NULL, 0);
    int64_t whole = w->group / w->nr, rest = w->group % w->nr;
    for (int part = 0; part < 2; part++) {
        struct product tile = {.point = point, .nr = part ? rest : w->nr};
        int64_t trips = part ? rest != 0 : whole;
        if (!trips)
            continue;
        expr_id i = em_for_begin(em, &v, zero, ex_const(x, trips), 1, NULL, 0);
        tile.vector = part ? ex_const(x, whole * w->nr) : ex_mulc(x, i, w->nr);
        tile.tile = ex_mulc(x, em_for_begin(em, &t, zero, rows, 1, NULL, 0), w->mr);
        product_tile(w, &tile);
        em_for_end(em, &t, NULL, NULL);
        em_for_end(em, &v, NULL, NULL);
    }
    em_for_end(em, &p, NULL, NULL);
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

static void output_stage(struct wino *w)
{
    struct em *em = w->em;
    struct em_for t, v;
    expr_id zero = ex_const(em->x, 0);
    tile_at(w, em_for_begin(em, &t, zero, w->here, 1, NULL, 0), false);
    expr_id vec = em_for_begin(em, &v, zero, ex_const(em->x, w->group), 1, NULL, 0);
    lanes_at(w, ex_add(em->x, w->group0, vec), w->oc);
    w->vec = vec;
    transform(w, &w->f->output, transform_group(w, &w->f->output), output_load, output_store);
    em_for_end(em, &v, NULL, NULL);
    em_for_end(em, &t, NULL, NULL);
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
    w.v = em_scratch(em, ELEM_F32, w.icv * w.points * w.ct * w.lanes);
    w.m = em_scratch(em, ELEM_F32, w.group * w.points * w.ct * w.lanes);
    w.u = em_prepared(em);
    em_parallel_open(em, &par, loops, 2);
    w.group0 = ex_mulc(x, loops[0].var, w.group);
    w.first = ex_mulc(x, loops[1].var, w.ct);
    w.here = ex_min(x, ct, ex_sub(x, w.tiles, w.first));
    if (!ex_is_const(x, w.here, &(int64_t){0}))
        w.here = em_pin(em, w.here, 1, w.ct);
    expr_id rows = ex_ceildiv(x, w.here, ex_const(x, w.mr));
    input_stage(&w, rows);
    product_stage(&w, rows);
    output_stage(&w);
    em_parallel_end(em, &par);
    wino_cost(&w);
    return !em->failed;
}
