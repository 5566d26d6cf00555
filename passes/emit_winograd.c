/* The Winograd template: a kernel of stages over a chunk of tiles, with local buffers between them.
 *
 *   input     B' d B of every tile and vector of input channels       -> V
 *   then, for as many output channels as a register tile is wide:
 *   weights   G g G' of a slice of input channels, unless U is resident     -> U
 *   products  for every point, V times the slice of U, added up       -> M
 *   output    A' M A of every tile, then whatever the kernel does behind the convolution
 *
 * A parallel index is a chunk of tiles and a group of output channels. Tiles are numbered over all images; a chunk has a
 * whole number of register tiles, and where the image has no more tiles the last one is repeated, never stored. Where the
 * second cache holds all of U beside a chunk it is resident: an index derives it once and does a span of chunks. */
#include "passes/choices.h"
#include "passes/emit_winograd.h"

enum { MAX_MR = 14, MAX_NR = 4, STEP_OVERHEAD = 1 /* half cycles */, BROADCAST = 6, UNKNOWN_TILES = 256,
       FAR_BYTES = 4 << 20, MANY_CHUNKS = 4, LEAST_GROUP = 4, GOOD_GROUP = 16, MAX_SPANS = 16,
       LINE_STORE = 5 /* cycles to where the second cache has it, at any stride: Ice Lake */ };

/* ---- sizes -------------------------------------------------------------------------------------------------------------- */

static int64_t ceil_of(int64_t n, int64_t d) { return (n + d - 1) / d; }
static int64_t l2_bytes(const struct wino *w) { return (int64_t)w->em->mach.l2_kib * 1024; }

/* Twentieths of a cycle of one step of the products over one channel: a tile of mr x nr. Where all of U stays near, the way of
 * V to the registers counts as it does in tile.c: with 64 output channels 6 x 4 takes 0.91 of the time of 14 x 2. */
static int64_t step_cost(const struct machine *m, int64_t mr, int64_t nr, bool near)
{
    int64_t fma = mr * nr * 2 / m->fma_per_cycle, loads = (mr + nr) * 2 / m->loads_per_cycle, least = 2 * m->fma_latency;
    int64_t cost = fma > loads ? fma : loads;
    return ((cost > least ? cost : least) + STEP_OVERHEAD) * 10 + (near ? mr * BROADCAST : 0);
}

/* The columns that `vectors` of output channels are split into evenly, at most `nr` in each: how many of *nr, how many of one less. */
static int64_t split_columns(int64_t vectors, int64_t *nr, int64_t *narrow)
{
    int64_t columns = ceil_of(vectors, *nr);
    *nr = ceil_of(vectors, columns);
    *narrow = columns * *nr - vectors;
    return columns - *narrow;
}

static int64_t known_tiles(const struct wino *w)
{
    int64_t n;
    return ex_is_const(w->em->x, w->tiles, &n) && n > 0 ? n : UNKNOWN_TILES;
}

/* All of U; one tile of V. */
static int64_t u_bytes(const struct wino *w) { return w->points * w->ic * w->ocv * w->lanes * 4; }
static int64_t v_bytes(const struct wino *w) { return w->points * w->icv * w->lanes * 4; }

/* Is all of U, derived or kept, in the second cache while a chunk is at hand? */
static bool is_near(const struct wino *w)
{
    return w->resident || (w->em->k->prepared && u_bytes(w) <= l2_bytes(w) * 5 / 8);
}

/* Tiles of a chunk, split evenly, in whole register tiles: one where all of U stays near, else what half of the second cache holds
 * of V and M. Where that is so little that deriving U for each chunk would outweigh it, V comes from the third cache. */
static int64_t chunk_tiles(const struct wino *w, int64_t mr)
{
    int64_t tiles = known_tiles(w), most = l2_bytes(w) / 2 / (v_bytes(w) + w->points * 2 * w->lanes * 4);
    if (is_near(w) && !w->told_chunk)
        return mr;
    if (most < MAX_MR && tiles * v_bytes(w) <= FAR_BYTES)
        most = tiles;
    if (most < 2 * mr)
        most = 2 * mr;
    if (most > tiles)
        most = tiles;
    if (w->told_chunk)
        most = w->told_chunk;
    int64_t chunks = ceil_of(tiles, most);
    return ceil_of(ceil_of(tiles, chunks), mr) * mr;
}

static void read_chunk(struct wino *w)
{
    const struct choice *told = choice_of_kernel(w->em->m, w->em->k, CHOOSE_CHUNK);
    if (told && told->n[0] * v_bytes(w) > CHUNK_BYTES_MOST)
        choice_refuse(w->em->m, told, "so many tiles take more scratch than 16 MiB a thread");
    else if (told)
        w->told_chunk = told->n[0];
}

static void choose_tile(struct wino *w)
{
    const struct machine *m = &w->em->mach;
    int64_t best = INT64_MAX, tiles = known_tiles(w);
    bool near = is_near(w), met = false;
    const struct choice *told = choice_of_kernel(w->em->m, w->em->k, CHOOSE_TILE);
    for (int64_t nr = 1; nr <= MAX_NR && nr <= w->ocv; nr++)
        for (int64_t mr = 1; mr <= MAX_MR && mr * nr + nr + 1 <= (int64_t)m->registers; mr++) {
            int64_t ct = chunk_tiles(w, mr), chunks = ceil_of(tiles, ct), last = tiles - (chunks - 1) * ct;
            int64_t steps = (chunks - 1) * (ct / mr) + ceil_of(last, mr), most = nr, narrow, wide = split_columns(w->ocv, &most, &narrow);
            int64_t cost = steps * (wide * step_cost(m, mr, most, near) + (narrow ? narrow * step_cost(m, mr, most - 1, near) : 0));
            bool asked = told && told->n[0] == 1 && mr == told->n[1] && nr == told->n[2];
            if (asked || (cost < best && !met)) {
                met = asked;
                best = cost;
                w->mr = mr;
                w->nr = nr;
                w->ct = ct;
            }
        }
    if (told && !met)
        choice_refuse(w->em->m, told, arena_printf(w->em->arena, "a CPU of %u registers takes 1 x %d tiles by %d vectors", m->registers,
                                                   (int)w->mr, (int)w->nr));
}

/* Output channels are split too where there are few chunks. Each part repeats the input transform, which is little where it
 * has many channels. */
static void choose_group(struct wino *w)
{
    int64_t chunks = ceil_of(known_tiles(w), w->ct), panel = w->lanes < CHANNEL_BLOCK ? CHANNEL_BLOCK / w->lanes : 1, parts = chunks;
    const struct choice *told = choice_of_kernel(w->em->m, w->em->k, CHOOSE_SPLIT);
    w->group = w->ocv;
    if (told) {
        w->group = told->n[0] <= w->ocv && w->ocv % told->n[0] == 0 && (!w->resident || told->n[0] == 1) ? w->ocv / told->n[0] : w->ocv;
        if (w->group * told->n[0] != w->ocv)
            choice_refuse(w->em->m, told, w->resident ? "all of the weights are derived first, for all channels"
                                                      : "the vectors of output channels are no multiple of it");
        return;
    }
    while (!w->resident && w->group % 2 == 0 && w->group >= 2 * w->nr && parts < MANY_CHUNKS &&
           w->group >= 2 * (parts < 2 ? LEAST_GROUP : GOOD_GROUP) * panel) {
        w->group /= 2;
        parts *= 2;
    }
}

/* How many chunks use the U of one parallel index: as many as make deriving it small, but not one index for all. */
static void choose_span(struct wino *w)
{
    int64_t chunks = ceil_of(known_tiles(w), w->ct), products = known_tiles(w) * w->points * w->ic * w->ocv / w->em->mach.fma_per_cycle;
    int64_t derive = u_bytes(w) / 64 * LINE_STORE, spans = products / (16 * (derive > 0 ? derive : 1));
    spans = spans < 2 ? 2 : spans > MAX_SPANS ? MAX_SPANS : spans;
    w->span = w->resident ? ceil_of(chunks, spans) : 1;
}

/* Vectors of input channels of which U is at hand at a time. */
static void choose_slice(struct wino *w)
{
    int64_t each = w->points * w->lanes * w->nr * w->lanes * 4, most = l2_bytes(w) * 5 / 16;
    w->slice = w->icv;
    if (w->resident || w->em->k->prepared || w->ic % w->lanes != 0)
        return;
    while (w->slice > 1 && (w->icv % w->slice != 0 || w->slice * each > most))
        w->slice--;
}

/* U is resident where the second cache holds all of it beside a register tile's V and M, and several tiles use it. */
static void choose_sizes(struct wino *w)
{
    int64_t near = u_bytes(w) + MAX_MR * v_bytes(w);
    w->resident = !w->em->k->prepared && u_bytes(w) <= l2_bytes(w) * 5 / 8 && near <= l2_bytes(w) && known_tiles(w) >= 4 * MAX_MR;
    read_chunk(w);
    choose_tile(w);
    choose_group(w);
    w->wide = split_columns(w->group, &w->nr, &w->narrow);
    choose_span(w);
    choose_slice(w);
}

static void wino_init(struct wino *w, struct em *em)
{
    struct exprs *x = em->x;
    *w = (struct wino){.em = em, .n = graph_node(em->g, em->k->anchor), .f = winograd_form(em->k->winograd),
                       .lanes = em_lanes(em, ELEM_F32)};
    const struct type *y = value_type(em->g, w->n->out[0]), *in = value_type(em->g, w->n->in[1]);
    expr_id m = ex_const(x, w->f->m);
    ex_is_const(x, in->dims[0], &w->oc);
    ex_is_const(x, in->dims[1], &w->ic);
    if (w->lanes > CHANNEL_BLOCK)
        w->lanes = CHANNEL_BLOCK;
    w->icv = (w->ic + w->lanes - 1) / w->lanes;
    w->ocv = (w->oc + w->lanes - 1) / w->lanes;
    w->points = (int64_t)w->f->alpha * w->f->alpha;
    w->th = ex_ceildiv(x, y->dims[2], m);
    w->tw = ex_ceildiv(x, y->dims[3], m);
    w->tiles = ex_mul(x, y->dims[0], ex_mul(x, w->th, w->tw));
    choose_sizes(w);
}

/* ---- places --------------------------------------------------------------------------------------------------------------- */

expr_id wino_v_at(const struct wino *w, expr_id slice, expr_id point, expr_id block, expr_id vector, expr_id tile)
{
    struct exprs *x = w->em->x;
    expr_id at = ex_mulc(x, ex_add(x, ex_mulc(x, slice, w->points), point), wino_v_stride(w));
    expr_id line = ex_add(x, ex_mulc(x, ex_add(x, ex_mulc(x, block, w->slice), vector), w->mr), tile);
    return ex_add(x, at, ex_mulc(x, line, w->lanes));
}

expr_id wino_m_at(const struct wino *w, expr_id block, expr_id point, expr_id vector, expr_id tile)
{
    struct exprs *x = w->em->x;
    expr_id line = ex_add(x, ex_mulc(x, ex_add(x, ex_mulc(x, block, w->mr), tile), w->nr), vector);
    return ex_add(x, ex_mulc(x, point, wino_m_stride(w)), ex_mulc(x, line, w->lanes));
}

expr_id wino_plain_at(const struct wino *w, expr_id vector, expr_id channel)
{
    struct exprs *x = w->em->x;
    expr_id panel = ex_const(x, CHANNEL_BLOCK), oc = ex_mulc(x, vector, w->lanes);
    expr_id at = ex_add(x, ex_mulc(x, ex_div(x, oc, panel), w->stride[0]), ex_mod(x, oc, panel));
    return ex_add(x, at, ex_mulc(x, channel, w->stride[3]));
}

/* ---- the kernel ---------------------------------------------------------------------------------------------------------------- */

/* Column number `number` of those of nr vectors. */
static struct product column_at(const struct wino *w, expr_id number, int64_t nr)
{
    struct exprs *x = w->em->x;
    expr_id zero = ex_const(x, 0);
    int64_t before = nr == w->nr ? 0 : w->wide;
    expr_id u = ex_addc(x, ex_mulc(x, number, w->points * wino_u_stride(w, nr)), before * w->points * wino_u_stride(w, w->nr));
    return (struct product){.vector = ex_addc(x, ex_mulc(x, number, nr), before * w->nr), .nr = nr, .u = w->resident ? u : zero,
                            .slice = zero, .first = true};
}

typedef void column_fn(struct wino *, struct product *, expr_id blocks);

static void products_and_output(struct wino *w, struct product *p, expr_id blocks)
{
    wino_products(w, p, blocks);
    wino_output(w, p->vector, p->nr, blocks);
}

static void only_weights(struct wino *w, struct product *p, expr_id blocks)
{
    (void)blocks;
    wino_weights(w, p);
}

/* All output channels of the group. */
static void columns(struct wino *w, column_fn *fn, expr_id blocks)
{
    struct em *em = w->em;
    struct exprs *x = em->x;
    struct em_for l;
    const int64_t count[2] = {w->wide, w->narrow};
    for (int64_t i = 0; i < 2; i++) {
        if (!count[i])
            continue;
        struct product p = column_at(w, em_for_begin(em, &l, ex_const(x, 0), ex_const(x, count[i]), 1, NULL, 0), w->nr - i);
        fn(w, &p, blocks);
        em_for_end(em, &l, NULL, NULL);
    }
}

/* A chunk of tiles from w->first on. */
static void chunk(struct wino *w)
{
    struct em *em = w->em;
    struct exprs *x = em->x;
    w->here = ex_min(x, ex_const(x, w->ct), ex_sub(x, w->tiles, w->first));
    if (!ex_is_const(x, w->here, &(int64_t){0}))
        w->here = em_pin(em, w->here, 1, w->ct);
    expr_id blocks = ex_ceildiv(x, w->here, ex_const(x, w->mr));
    wino_input(w, blocks);
    columns(w, products_and_output, blocks);
}

/* The chunks of parallel index `index`. */
static void chunks_of(struct wino *w, expr_id index)
{
    struct em *em = w->em;
    struct exprs *x = em->x;
    struct em_for l;
    expr_id first = ex_mulc(x, index, w->span), chunks = ex_ceildiv(x, w->tiles, ex_const(x, w->ct));
    expr_id n = ex_min(x, ex_const(x, w->span), ex_sub(x, chunks, first));
    if (w->resident)
        columns(w, only_weights, n);
    expr_id number = em_for_begin(em, &l, ex_const(x, 0), n, 1, NULL, 0);
    w->first = ex_mulc(x, ex_add(x, first, number), w->ct);
    chunk(w);
    em_for_end(em, &l, NULL, NULL);
}

/* What of U is held at a time, in elements. */
static int64_t held_weights(const struct wino *w)
{
    int64_t wide = wino_u_stride(w, w->nr);
    return w->points * (w->resident ? w->wide * wide + w->narrow * wino_u_stride(w, w->nr - 1) : wide);
}

static void wino_cost(const struct wino *w)
{
    struct kernel *k = w->em->k;
    int64_t tiles = known_tiles(w), each = w->ct * w->span < tiles ? w->ct * w->span : tiles;
    int64_t products = w->points * each * w->ic * w->group / w->em->mach.fma_per_cycle;
    k->ns = 100 + (products + each * (w->icv * 110 + w->group * 75)) / 3;
    k->flops = 2 * (uint64_t)(w->points * tiles) * (uint64_t)w->ic * (uint64_t)w->oc;
}

static const char *u_source(const struct wino *w)
{
    uint32_t prepared = w->em->k->prepared;
    if (prepared)
        return w->em->m->prepared.data[prepared - 1].stored ? "from the file" : "from open";
    return w->resident ? "derived first" : "derived by slices";
}

bool emit_winograd(struct em *em)
{
    struct wino w;
    struct em_for par;
    struct exprs *x = em->x;
    wino_init(&w, em);
    expr_id chunks = ex_ceildiv(x, w.tiles, ex_const(x, w.ct));
    struct loop loops[2] = {{0, ex_const(x, w.ocv / w.group), {0}}, {0, ex_ceildiv(x, chunks, ex_const(x, w.span)), {0}}};
    w.v = em_scratch(em, ELEM_F32, w.icv / w.slice * w.points * wino_v_stride(&w));
    w.m = em_scratch(em, ELEM_F32, w.points * wino_m_stride(&w));
    if (em->k->prepared) {
        w.u = em_prepared(em);
    } else {
        value_id stored;
        if (!winograd_weights(em->m, w.n->in[1], &stored, w.stride))
            return false;
        w.weights = em_buffer(em, stored);
        w.u = em_scratch(em, ELEM_F32, held_weights(&w));
    }
    em_parallel_open(em, &par, loops, 2);
    w.group0 = ex_mulc(x, loops[0].var, w.group);
    chunks_of(&w, loops[1].var);
    em_parallel_end(em, &par);
    wino_cost(&w);
    if (!em->k->choice)
        em->k->choice = arena_printf(em->m->arena, "tiles of %d results of %ux%u by %d vectors of %u lanes, %d in a chunk; U %s%s", (int)w.mr,
                                     w.f->m, w.f->m, (int)w.nr, w.lanes, (int)w.ct,
                                     u_source(&w), em->k->staged.i ? "; operand computed where tiles read it" : "");
    return !em->failed;
}
