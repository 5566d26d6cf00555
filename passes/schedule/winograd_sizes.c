/* The sizes of the Winograd template (emit/winograd/winograd.h), by cost: register tile, chunk of tiles, parts of the
 * output channels, slice of the input channels, and whether all of U is derived first. */
#include "passes/schedule/kinds.h"

#include <math.h>

enum {
    MAX_MR = 14,
    MAX_NR = 4,
    UNKNOWN_TILES = 256,
    SMALL_IMAGE = 128,
    MANY_CHUNKS = 4,
    GOOD_CHUNK = 48,
    MORE_CHUNKS = 3,
    SPARE_REGISTERS = 8
};

/* The kernel's shape, what the record overrides (0: nothing), and what is decided so far. */
struct sizing {
    const struct site *site;
    struct winograd_shape shape;
    struct winograd_schedule given, *s;
};

/* A register tile of mr tiles by nr vectors, tiles of a chunk, vectors of output channels of a parallel index. */
struct fit {
    int64_t mr, nr, ct, group;
};

static int64_t ceil_of(int64_t n, int64_t d)
{
    return (n + d - 1) / d;
}
static int64_t share(const struct sizing *w, enum share s)
{
    return budget(w->site->mach, s);
}

/* Channels of a vector in Winograd's transforms. */
static uint32_t winograd_lanes(const struct machine *m)
{
    uint32_t lanes = machine_lanes(m, ELEM_F32);
    return lanes < CHANNEL_BLOCK ? lanes : CHANNEL_BLOCK;
}

/* Twentieths of a cycle of one step of the products over one channel: a tile of mr x nr. Where all of U stays near, the
 * way of V to the registers counts as it does in tile_cost.c: with 64 output channels 6 x 4 takes 0.91 of the time of
 * 14 x 2. */
static int64_t step_cost(const struct machine *m, int64_t mr, int64_t nr, bool near)
{
    int64_t of_v = winograd_by_lane(m) ? ceil_of(mr, winograd_lanes(m)) : mr;
    int64_t fma = mr * nr * 2 / m->fma_per_cycle, loads = (of_v + nr) * 2 / m->loads_per_cycle,
            least = 2 * m->fma_latency;
    int64_t cost = fma > loads ? fma : loads;
    return (cost > least ? cost : least) * 10 + 2 * RATE_WINOGRAD_STEP + (near ? mr * 2 * RATE_STEP_BROADCAST : 0);
}

bool winograd_by_lane(const struct machine *m)
{
    return m->fma_by_lane && winograd_lanes(m) == LANE_STEPS;
}

int64_t winograd_held(const struct winograd_schedule *s, const struct winograd_shape *w)
{
    return w->points * winograd_u_stride(s, w->lanes) * (s->resident ? even_split(s->group, s->nr).tiles : 1);
}

void winograd_shape(const struct site *site, uint32_t form, struct winograd_shape *w)
{
    struct exprs *x = site->x;
    const struct node *n = graph_node(site->g, site->k->anchor);
    const struct type *y = value_type(site->g, n->out[0]), *in = value_type(site->g, n->in[1]);
    *w = (struct winograd_shape){.form = winograd_form(form), .lanes = winograd_lanes(site->mach)};
    w->dilation = node_ints(n, "dilations", NULL);
    ex_is_const(x, in->dims[0], &w->oc);
    ex_is_const(x, in->dims[1], &w->ic);
    w->icv = (w->ic + w->lanes - 1) / w->lanes;
    w->ocv = (w->oc + w->lanes - 1) / w->lanes;
    w->points = (int64_t)w->form->alpha * w->form->alpha;
    w->th = conv_tiles(x, y->dims[2], w->dilation[0], form);
    w->tw = conv_tiles(x, y->dims[3], w->dilation[1], form);
    w->tiles = ex_mul(x, y->dims[0], ex_mul(x, w->th, w->tw));
    if (!ex_is_const(x, w->tiles, &w->known_tiles) || w->known_tiles < 1)
        w->known_tiles = UNKNOWN_TILES;
    w->least_tiles = extent_least(site->m, w->tiles);
    if (!ex_is_const(x, w->th, NULL) || !ex_is_const(x, w->tw, NULL))
        w->least_tiles = extent_least(site->m, y->dims[0]) * extent_of_image(site->m, w->th, SMALL_IMAGE) *
                         extent_of_image(site->m, w->tw, SMALL_IMAGE);
    if (w->least_tiles < 1)
        w->least_tiles = 1;
}

/* All of U; one tile of V. */
static int64_t u_bytes(const struct sizing *w)
{
    return w->shape.points * w->shape.ic * w->shape.ocv * w->shape.lanes * 4;
}
static int64_t v_bytes(const struct sizing *w)
{
    return w->shape.points * w->shape.icv * w->shape.lanes * 4;
}

/* The fewest chunks of tiles. The fewer they are, the less often U is derived: each as large as L3 may hold V of, which
 * the products read in order, and L2 M of, which they add to for each slice; but several threads are to have work. */
static int64_t least_chunks(const struct sizing *w, int64_t mr, int64_t nr)
{
    int64_t tiles = w->shape.known_tiles, most = share(w, SHARE_L3_V) / v_bytes(w),
            sums = share(w, SHARE_L2_WINOGRAD) / (w->shape.points * nr * w->shape.lanes * 4);
    if (w->given.chunk)
        return ceil_of(tiles, w->given.chunk);
    most = most < sums ? most : sums;
    int64_t chunks = ceil_of(tiles, most < 2 * mr ? 2 * mr : most);
    return chunks < MANY_CHUNKS && tiles >= MANY_CHUNKS * GOOD_CHUNK ? MANY_CHUNKS : chunks;
}

/* Parallel indices of the smallest input. */
static int64_t indices_of(const struct sizing *w, int64_t ct, int64_t group)
{
    return ceil_of(w->shape.least_tiles, ct) * (w->shape.ocv / group);
}

/* Vectors of output channels of a parallel index: whole register tiles. Since a thread makes V once for all groups of a
 * chunk, more of them cost one thread nothing. */
static int64_t group_of(const struct sizing *w, int64_t nr, int64_t ct)
{
    int64_t panel = w->shape.lanes < CHANNEL_BLOCK ? CHANNEL_BLOCK / w->shape.lanes : 1, group = w->shape.ocv;
    int64_t tiles = w->shape.least_tiles < ct ? w->shape.least_tiles : ct;
    int64_t vector_ns = tiles * w->shape.points * w->shape.ic / w->site->mach->fma_per_cycle / RATE_CYCLES_PER_NS;
    if (w->given.group)
        return w->given.group;
    while (!w->s->resident && group % (2 * panel) == 0 && group >= 2 * nr &&
           indices_of(w, ct, group) < RATE_SHARED_MOST && group / 2 * vector_ns >= RATE_SHARED_LEAST_NS)
        group /= 2;
    return group;
}

/* Cycles of the kernel: the products; U, which each chunk derives again; V, which each column reads from L3, as far as
 * the products do not hide it; what too few parallel indices count, as in tile_cost.c. */
static double fit_cost_of(const struct sizing *w, const struct fit *f, int64_t tiles)
{
    const struct machine *m = w->site->mach;
    int64_t chunks = ceil_of(tiles, f->ct), last = tiles - (chunks - 1) * f->ct;
    int64_t steps = (chunks - 1) * (f->ct / f->mr) + ceil_of(last, f->mr);
    struct even columns = even_split(f->group, f->nr);
    int64_t nr = columns.small + (columns.large > 0), wide = columns.large ? columns.large : columns.tiles,
            narrow = columns.tiles - wide;
    bool far = f->ct * v_bytes(w) > share(w, SHARE_L2_WINOGRAD);
    double parts = (double)w->shape.ocv / (double)f->group, v_lines = (double)tiles * (double)v_bytes(w) / 64;
    double step = (double)(wide * step_cost(m, f->mr, nr, w->s->resident) +
                           (narrow ? narrow * step_cost(m, f->mr, nr - 1, w->s->resident) : 0));
    double cost = (double)(w->shape.points * w->shape.ic * steps) * parts * step / 20 +
                  v_lines * (far ? RATE_WINOGRAD_V_FAR : RATE_WINOGRAD_V_NEAR);
    if (far)
        cost += v_lines * parts * (double)(wide + narrow) * RATE_WINOGRAD_V_READ;
    if (!w->s->resident)
        cost += (double)chunks * (double)u_bytes(w) / 64 * RATE_WINOGRAD_U_LINE;
    int64_t missing = RATE_SHARED_INDICES - indices_of(w, f->ct, f->group);
    if (missing > 0 && cost >= (double)(RATE_SHARED_NS * RATE_CYCLES_PER_NS))
        cost += cost / RATE_SHARED_PART * (double)missing / RATE_SHARED_INDICES;
    return cost;
}

/* Of an open number of images: one counts, too, and many count RATE_WINOGRAD_MANY times as much. */
static double fit_cost(const struct sizing *w, const struct fit *f)
{
    double many = fit_cost_of(w, f, w->shape.known_tiles);
    return w->shape.least_tiles >= w->shape.known_tiles
               ? many
               : RATE_WINOGRAD_MANY * many + fit_cost_of(w, f, w->shape.least_tiles) * (double)w->shape.known_tiles /
                                                 (double)w->shape.least_tiles;
}

/* The best sizes around a register tile: with a chunk more, parts of the output channels may be fewer. */
static double fit_tile(const struct sizing *w, struct fit *f)
{
    double best = INFINITY;
    int64_t tiles = w->shape.known_tiles;
    if (w->s->resident && !w->given.chunk) {
        f->ct = f->mr;
        f->group = group_of(w, f->nr, f->ct);
        return fit_cost(w, f);
    }
    int64_t least = least_chunks(w, f->mr, f->nr);
    for (int64_t chunks = least; chunks <= least + (w->given.chunk ? 0 : MORE_CHUNKS); chunks++) {
        struct fit g = {.mr = f->mr, .nr = f->nr, .ct = ceil_of(ceil_of(tiles, chunks), f->mr) * f->mr};
        g.group = group_of(w, g.nr, g.ct);
        double cost = fit_cost(w, &g);
        if (cost >= best)
            continue;
        best = cost;
        *f = g;
    }
    return best;
}

static void fit_set(const struct sizing *w, const struct fit *f)
{
    w->s->mr = f->mr;
    w->s->nr = f->nr;
    w->s->chunk = f->ct;
    w->s->group = f->group;
}

static void fit_take(const struct sizing *w, struct fit *f, double *best)
{
    double cost = fit_tile(w, f);
    if (cost >= *best)
        return;
    *best = cost;
    fit_set(w, f);
}

/* A tile that divides one image well must not be so small that many images wait for the latency: eight images through
 * resnet18 lost 2 % to tiles of 2 x 4, where 6 x 2 are possible (AVX2). */
static bool is_slack(const struct sizing *w, int64_t mr, int64_t nr)
{
    const struct machine *m = w->site->mach;
    return w->shape.least_tiles >= w->shape.known_tiles || w->shape.ocv == 1 ||
           mr * nr > (int64_t)m->fma_latency * m->fma_per_cycle;
}

/* Narrower register tiles for threads, where parts of the output channels would be few: with as many chunks, so that
 * only V is read more often, which costs no more than a part. Within a width the cheapest, of equal ones the tallest.
 */
static void choose_narrower(const struct sizing *w, double best)
{
    struct winograd_schedule *s = w->s;
    int64_t chunks = ceil_of(w->shape.known_tiles, s->chunk), registers = w->site->mach->registers,
            indices = indices_of(w, s->chunk, s->group);
    double most = best + best / RATE_SHARED_PART;
    bool by_lane = winograd_by_lane(w->site->mach);
    for (int64_t nr = s->nr - 1; nr >= 1 && indices < RATE_SHARED_INDICES; nr--) {
        double least = most;
        for (int64_t mr = 1; mr <= MAX_MR && winograd_registers(mr, nr, by_lane) <= registers; mr++) {
            struct fit f = {.mr = mr, .nr = nr};
            double cost = fit_tile(w, &f);
            if (cost > least || ceil_of(w->shape.known_tiles, f.ct) > chunks || !is_slack(w, mr, nr) ||
                indices_of(w, f.ct, f.group) < 2 * indices)
                continue;
            least = cost;
            fit_set(w, &f);
        }
        indices = indices_of(w, s->chunk, s->group);
    }
}

static void choose_fit(const struct sizing *w)
{
    int64_t registers = w->site->mach->registers;
    bool by_lane = winograd_by_lane(w->site->mach);
    double best = INFINITY;
    for (int64_t nr = 1; nr <= MAX_NR && nr <= w->shape.ocv && !w->given.mr; nr++)
        for (int64_t mr = 1; mr <= MAX_MR && winograd_registers(mr, nr, by_lane) <= registers; mr++)
            if (is_slack(w, mr, nr))
                fit_take(w, &(struct fit){.mr = mr, .nr = nr}, &best);
    if (w->given.mr)
        fit_take(w, &(struct fit){.mr = w->given.mr, .nr = w->given.nr}, &best);
    else if (!w->s->resident && !w->given.group)
        choose_narrower(w, best);
    w->s->nr = ceil_of(w->s->group, even_split(w->s->group, w->s->nr).tiles);
}

/* Where all of U is resident, which a thread derives once: as many chunks to a parallel index as make it long
 * enough. */
static void choose_span(const struct sizing *w)
{
    int64_t chunks = ceil_of(w->shape.least_tiles, w->s->chunk);
    int64_t ns = w->s->chunk * w->shape.points * w->shape.ic * w->shape.ocv / w->site->mach->fma_per_cycle /
                 RATE_CYCLES_PER_NS,
            long_enough = ceil_of(RATE_SHARED_LEAST_NS, ns > 0 ? ns : 1),
            few = (chunks + RATE_SHARED_MOST / 2) / RATE_SHARED_MOST;
    w->s->span = !w->s->resident ? 1 : few > long_enough ? few : long_enough;
}

/* Vectors of input channels of which U is at hand at a time. */
static void choose_slice(const struct sizing *w)
{
    int64_t each = w->shape.points * w->shape.lanes * w->s->nr * w->shape.lanes * 4, most = share(w, SHARE_L2_SLICE);
    w->s->slice = w->shape.icv;
    if (w->s->resident || w->shape.ic % w->shape.lanes != 0)
        return;
    while (w->s->slice > 1 && (w->shape.icv % w->s->slice != 0 || w->s->slice * each > most))
        w->s->slice--;
}

/* Memory brings the next slice's plain weights all the time: while U is derived as many of the 9 taps as that takes of
 * the time. */
static void choose_early(const struct sizing *w)
{
    int64_t tiles = w->s->chunk < w->shape.least_tiles ? w->s->chunk : w->shape.least_tiles,
            products = tiles / w->site->mach->fma_per_cycle;
    bool computed = winograd_computes(w->site->m, graph_node(w->site->g, w->site->k->anchor)->in[1]);
    w->s->early = w->s->resident || computed ? 0 : ceil_of(9 * RATE_WINOGRAD_U_LINE, RATE_WINOGRAD_U_LINE + products);
}

/* As many results of a transform's first dim as registers hold a row each of, with some to spare; split evenly. */
static uint32_t transform_rows(const struct machine *m, const struct winograd_side *s)
{
    uint32_t fit = m->registers > SPARE_REGISTERS ? (m->registers - SPARE_REGISTERS + 2) / s->n_in : 1;
    if (fit < 2)
        fit = 2;
    uint32_t groups = (s->n_out + fit - 1) / fit;
    return (s->n_out + groups - 1) / groups;
}

/* Cycles of what is done at each parallel index, in ns, with its share of what a thread keeps, and the work of a
 * convolution by that form. */
static void facts(const struct site *site, const struct schedule *of, struct schedule_facts *f)
{
    const struct winograd_schedule *s = &of->winograd;
    struct winograd_shape shape, *w = &shape;
    winograd_shape(site, s->m, &shape);
    int64_t each = s->chunk * s->span < w->known_tiles ? s->chunk * s->span : w->known_tiles;
    int64_t products = w->points * each * w->ic * s->group / site->mach->fma_per_cycle, groups = w->ocv / s->group,
            indices = groups * ceil_of(w->known_tiles, s->chunk * s->span);
    int64_t derive = w->points * w->ic * s->group * w->lanes * 4 / 64 * RATE_WINOGRAD_U_LINE;
    int64_t transforms = each * (w->icv * RATE_WINOGRAD_INPUT / groups + s->group * RATE_WINOGRAD_OUTPUT);
    f->ns = RATE_BLOCK_INDEX_NS +
            (products + transforms + (s->resident ? derive / indices : derive)) / RATE_CYCLES_PER_NS;
    int64_t tiles = extent_counted(site->m, w->tiles); /* not the guess */
    f->flops = 2 * (uint64_t)(w->points * tiles) * (uint64_t)w->ic * (uint64_t)w->oc;
}

/* U is resident if L2 holds all of it and a register tile's V and M, and several tiles use it. */
static bool choose(const struct site *site, struct schedule *out)
{
    struct sizing sizing = {.site = site, .given = out->winograd, .s = &out->winograd}, *w = &sizing;
    uint32_t m = w->given.m               ? w->given.m
                 : site->k->form.winograd ? site->k->form.winograd
                                          : winograd_best(site->m, site->k);
    winograd_shape(site, m, &w->shape);
    const struct winograd_form *form = w->shape.form;
    int64_t near = u_bytes(w) + MAX_MR * v_bytes(w);
    *w->s = (struct winograd_schedule){.m = m,
                                       .resident = u_bytes(w) <= share(w, SHARE_L2_PANELS) &&
                                                   near <= share(w, SHARE_L2_ALL) && w->shape.known_tiles >= 4 * MAX_MR,
                                       .near = RATE_WINOGRAD_NEAR,
                                       .by_lane = winograd_by_lane(site->mach),
                                       .input_rows = transform_rows(site->mach, &form->input),
                                       .output_rows = transform_rows(site->mach, &form->output)};
    choose_fit(w);
    choose_span(w);
    choose_slice(w);
    choose_early(w);
    return true;
}

/* ---- the kind ---------------------------------------------------------------------------------------------------- */

static bool owns(const struct kernel *k)
{
    return k->form.winograd;
}

static bool serves(const struct site *site)
{
    return kernel_is_free(site) && !site->k->form.staged.i && winograd_serves(site->m, site->k);
}

static bool check(struct check *c, struct strbuf *why)
{
    uint32_t m = c->s->winograd.m;
    bool ok = winograd_form(m);
    if (ok)
        winograd_shape(c->site, m, &c->winograd);
    else
        strbuf_printf(why, "winograd.m is %u: 2, 4 or 6 are possible", m);
    return ok;
}

static bool computes(const struct kernel *k, node_id id)
{
    return id.i == k->anchor.i;
}

static const char *words(const struct module *m, const struct kernel *k, const struct schedule *s,
                         const struct schedule_facts *f)
{
    const struct winograd_schedule *w = &s->winograd;
    (void)f;
    return arena_printf(
        m->arena, "tiles of %d results of %ux%u by %d vectors of %u lanes, in groups of %d; U derived %s%s", (int)w->mr,
        w->m, w->m, (int)w->nr, winograd_lanes(m->plan.schedules.data[0].mach), (int)w->chunk,
        w->resident ? "first" : "by slices", k->form.staged.i ? "; operand computed where tiles read it" : "");
}

const struct kind winograd_kind = {.owns = owns,
                                   .serves = serves,
                                   .choose = choose,
                                   .facts = facts,
                                   .check = check,
                                   .computes = computes,
                                   .words = words};
