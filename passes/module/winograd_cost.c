/* By which Winograd form a convolution is computed, if by any: by cost (winograd.h).
 *
 * The choice is made for the artifact's best CPU (module_machine), so that all its variants agree on halos. Three terms
 * decide: the products, which are fewer the larger m is, on tiles that the image may not fill; the transforms, per tile
 * and channel; and the weights, which come from memory in each run and are transformed in each group of tiles. The
 * costs of budget.def are cycles of a core with two 16-lane multiply-adds a cycle; what such a core computes takes
 * others longer, memory does not. */
#include "passes/module/winograd.h"

#include "passes/module/access_function.h"
#include "passes/module/choices.h"
#include "passes/module/compressed.h"
#include "passes/module/analysis.h"

#include <math.h>

struct transform_cost {
    uint32_t m;
    double input, output, weights;
};
static const struct transform_cost transform_costs[] = {
#define TRANSFORM(m, input, output, weights, what) {m, input, output, weights},
#include "ir/target/budget.def"
};

struct conv_shape {
    int64_t images, ic, oc, out[2], dilation[2];
};
enum { DILATION_MOST = 64 };

/* A convolution at the sizes that it may have: one where they are known, else those of images of several sizes. */
struct conv_sizes {
    struct conv_shape at[3];
    uint32_t n;
};
static const int64_t sides[] = {128, 256, 512};

/* A 3 x 3 convolution over two dims with stride and groups of 1, in f32, with constant weights. */
static bool shape_of(struct module *m, const struct node *n, int64_t side, struct conv_shape *s)
{
    struct exprs *x = m->ctx->exprs;
    uint32_t c;
    if (n->op != OP_CONV || node_int(n, "groups", 1) != 1 || value_type(m->g, n->out[0])->rank != 4)
        return false;
    const int64_t *strides = node_ints(n, "strides", &c), *dil = node_ints(n, "dilations", &c),
                  *xdil = node_ints(n, "xdil", &c);
    const struct type *w = value_type(m->g, n->in[1]), *y = value_type(m->g, n->out[0]),
                      *in = value_type(m->g, n->in[0]);
    for (int32_t d = 0; d < 2; d++) {
        if (strides[d] != 1 || dil[d] > DILATION_MOST || xdil[d] != 1 || !ex_is(x, w->dims[2 + d], 3) ||
            conv_bounded(m, n, d)) /* which reads no taps outside the map */
            return false;
        if (!ex_is_const(x, y->dims[2 + d], &s->out[d]))
            s->out[d] = extent_of_image(m, y->dims[2 + d], side);
        s->dilation[d] = dil[d];
    }
    s->images = !m->asked.strict && ex_is_const(x, y->dims[0], &s->images) ? s->images : 1;
    double f;
    return in->elem == ELEM_F32 && w->elem == ELEM_F32 && y->elem == ELEM_F32 && ex_is_const(x, w->dims[0], &s->oc) &&
           ex_is_const(x, w->dims[1], &s->ic) && s->oc >= 1 && s->ic >= 1 && value_is_const(m->g, n->in[1]) &&
           !value_is_splat(m->g, n->in[1], &f, NULL);
}

static bool is_form(struct module *m, const struct node *n, struct conv_sizes *s)
{
    const struct type *y = value_type(m->g, n->out[0]);
    bool known = n->op != OP_CONV || y->rank != 4 ||
                 (ex_is_const(m->ctx->exprs, y->dims[2], NULL) && ex_is_const(m->ctx->exprs, y->dims[3], NULL));
    for (s->n = 0; s->n < (known ? 1 : COUNT_OF(sides)); s->n++)
        if (!shape_of(m, n, sides[s->n], &s->at[s->n]))
            return false;
    return true;
}

static bool is_candidate(struct module *m, const struct kernel *k, struct conv_sizes *s)
{
    return k->kind == KERNEL_CONTRACT && is_form(m, graph_node(m->g, k->anchor), s);
}

static double blocks_of(int64_t channels)
{
    return (double)((channels + CHANNEL_BLOCK - 1) / CHANNEL_BLOCK);
}

/* Cycles of this machine for what takes one cycle on a core with two 16-lane multiply-adds. */
static double slowness(const struct machine *m)
{
    return 2 * 64.0 / ((double)m->vector_bytes * m->fma_per_cycle);
}

static double direct_cost(const struct module *m, const struct conv_shape *s)
{
    double products = (double)s->images * (double)s->out[0] * (double)s->out[1] * 9 * (double)s->ic * blocks_of(s->oc) /
                      2;
    return products * slowness(module_machine(m)) * (RATE_DIRECT_PER_CENT / 100.0) +
           9.0 * (double)s->ic * (double)s->oc * 4 / RATE_MEMORY_BYTES;
}

static int64_t tiles_along(struct exprs *x, int64_t extent, int64_t dilation, int64_t m)
{
    int64_t tiles;
    return ex_is_const(x, conv_tiles(x, ex_const(x, extent), dilation, m), &tiles) ? tiles : extent;
}

static double form_cost(const struct module *mod, const struct conv_shape *s, const struct transform_cost *t)
{
    const struct machine *mach = module_machine(mod);
    double alpha = t->m + 2;
    double tiles = (double)s->images;
    for (int32_t d = 0; d < 2; d++)
        tiles *= (double)tiles_along(mod->ctx->exprs, s->out[d], s->dilation[d], t->m);
    double products = alpha * alpha * tiles * (double)s->ic * blocks_of(s->oc) / 2;
    double u = alpha * alpha * (double)s->ic * blocks_of(s->oc) * CHANNEL_BLOCK * 4;
    /* U is derived for each span if it is resident (emit/winograd/winograd.c), else for each chunk. */
    bool resident = u <= (double)budget(mach, SHARE_L2_PANELS);
    double chunks = ceil(tiles / (resident ? RATE_WINOGRAD_SPAN_TILES : RATE_WINOGRAD_CHUNK_TILES));
    double weights = (double)s->ic * blocks_of(s->oc) *
                     (chunks * t->weights * slowness(mach) + 9.0 * CHANNEL_BLOCK * 4 / RATE_MEMORY_BYTES);
    double held = alpha * alpha * (double)s->ic * 4 * RATE_WINOGRAD_HELD_TILES /
                  (double)budget(mach, SHARE_L2_ALL); /* transformed operand of a chunk */
    double share = RATE_WINOGRAD_PER_CENT / 100.0 + (held > 1 ? (held - 1) / 4 : 0);
    double transforms = tiles * (blocks_of(s->ic) * t->input + blocks_of(s->oc) * t->output);
    return (products * share + transforms) * slowness(mach) + weights;
}

/* The m whose cost is the least, and less than `best` times that of a direct convolution; always: the largest. Of
 * several sizes each counts as much. */
static uint32_t cheapest(const struct module *m, const struct conv_sizes *s, uint32_t most, double best, bool always)
{
    uint32_t form = 0;
    best *= s->n == 1 ? direct_cost(m, &s->at[0]) : s->n;
    for (uint32_t j = 0; j < COUNT_OF(transform_costs); j++) {
        double cost = 0;
        for (uint32_t i = 0; i < s->n; i++)
            cost += form_cost(m, &s->at[i], &transform_costs[j]) / (s->n == 1 ? 1 : direct_cost(m, &s->at[i]));
        if (transform_costs[j].m > most || (cost >= best && !always))
            continue;
        best = cost;
        form = transform_costs[j].m;
    }
    return form;
}

uint32_t winograd_wanted(struct module *m, const struct kernel *k)
{
    struct conv_sizes s;
    const struct choice *chosen = k->kind == KERNEL_CONTRACT ? choice_of_kernel(m, k, CHOOSE_WINOGRAD) : NULL;
    if (!(chosen || m->asked.winograd) || !is_candidate(m, k, &s))
        return 0;
    if (chosen)
        return (uint32_t)chosen->n[0];
    if (!m->asked.always && (s.at[0].ic < RATE_WINOGRAD_CHANNELS || s.at[0].oc < RATE_WINOGRAD_CHANNELS))
        return 0;
    return cheapest(m, &s, m->asked.winograd, 1, m->asked.always);
}

bool winograd_beats_pairs(struct module *m, const struct node *n)
{
    struct conv_sizes s;
    if (!m->asked.winograd || m->asked.layout == LAYOUT_NCHW || module_machine(m)->tiles || !is_form(m, n, &s) ||
        s.at[0].ic < RATE_WINOGRAD_CHANNELS || s.at[0].oc < RATE_WINOGRAD_CHANNELS)
        return false;
    return cheapest(m, &s, m->asked.winograd, 0.5, false) != 0;
}

bool winograd_weights(const struct module *m, value_id w, value_id *stored, int64_t stride[4])
{
    static const int32_t order[4] = {0, 2, 3, 1};
    int64_t perm[4] = {0, 1, 2, 3};
    while (m->fused.storage[w.i].place == PLACE_NONE && weight_step(m->g, &w, perm))
        ;
    const struct storage *s = &m->fused.storage[w.i];
    if (s->place != PLACE_WEIGHTS || s->dim[perm[0]].block != CHANNEL_BLOCK || s->dim[perm[0]].inner != 1)
        return false;
    for (int32_t i = 0; i < 4; i++)
        if (!ex_is_const(m->ctx->exprs, s->dim[perm[order[i]]].outer, &stride[i]) ||
            (i > 0 && s->dim[perm[order[i]]].block))
            return false;
    *stored = w;
    return true;
}

bool winograd_computes(const struct module *m, value_id w)
{
    return m->fused.storage[w.i].place == PLACE_NONE && constant_maps(m, w) > 0;
}

bool winograd_serves(struct module *m, const struct kernel *k)
{
    struct conv_sizes s;
    value_id stored;
    int64_t stride[4];
    value_id w = graph_node(m->g, k->anchor)->in[1];
    return is_candidate(m, k, &s) && (winograd_weights(m, w, &stored, stride) || winograd_computes(m, w));
}

uint32_t winograd_best(struct module *m, const struct kernel *k)
{
    struct conv_sizes s;
    return is_candidate(m, k, &s) ? cheapest(m, &s, UINT32_MAX, INFINITY, false) : 0;
}
