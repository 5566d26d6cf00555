/* How the reductions of a kernel go through what they reduce: lanes and partial results along it, bodies that are
 * unrolled; and the lanes of loops that compute values into scratch. */
#include "passes/schedule/kinds.h"

enum { BODY_WINDOW = 320, BODY_CONTRACTION = 48 /* statements */, SUMS = 4, BOOL_LANES = 16, TRIP = 16 };

/* Vectors along the innermost reduced dim: as long as it is; several of them where that is long, or passed often. */
static void lanes_choose(const struct site *site, const struct node *n, struct reduce_schedule *r)
{
    struct reduced dims;
    enum elem acc = reduce_elem(site->g, n);
    int64_t extent = 0;
    reduced_dims(site, n, false, &dims);
    r->lanes = machine_lanes(module_numerics(site->m, site->mach), acc);
    if (!ex_is_const(site->x, dims.dim[dims.n - 1].extent, &extent) || extent >= 8 * (int64_t)r->lanes)
        r->sums = SUMS;
    while (dims.n > 1 && r->sums < SUMS && (int64_t)r->sums * r->lanes < extent)
        r->sums *= 2;
    while (r->lanes > 2 && extent && extent < r->lanes)
        r->lanes /= 2;
    if (acc == ELEM_BOOL)
        r->lanes = BOOL_LANES;
}

/* The operand of a convolution without taps is walked through in blocks of channels, an image apart: longer steps than
 * what the cache's own prefetching follows. */
bool reduce_is_apart(const struct site *site, const struct node *n)
{
    if (n->op != OP_CONV || node_int(n, "groups", 1) != 1 || site->m->fused.storage[n->in[0].i].place == PLACE_NONE)
        return false;
    const struct type *w = value_type(site->g, n->in[1]);
    for (int32_t d = 2; d < w->rank; d++)
        if (!ex_is(site->x, w->dims[d], 1))
            return false;
    return true;
}

/* Windows are unrolled further than contractions, so that points share loads across taps. */
static struct reduce_schedule reduction_of(const struct site *site, enum schedule_kind kind, node_id id)
{
    const struct node *n = graph_node(site->g, id);
    struct reduce_schedule r = {.sums = 1, .interleave = RATE_INTERLEAVE_LEAST, .unroll = BODY_CONTRACTION};
    r.trip = site->mach->span ? TRIP : 1; /* a core in order runs what a loop adds beside the rest, not under it */
    r.row = row_taps(site, n).dim >= 0;
    if (n->op == OP_WINDOW || n->op == OP_ARGWINDOW ||
        (n->op == OP_CONV && !r.row && ex_is(site->x, value_type(site->g, n->in[1])->dims[1], 1)))
        r.unroll = BODY_WINDOW;
    if (reduce_horizontal(site->m, n))
        lanes_choose(site, n, &r);
    r.prefetch = reduce_is_apart(site, n);
    r.by_lane = tile_by_lane(site, n);
    r.matrix = tile_matrix(site, n);
    r.halves = id.i == site->k->anchor.i && kind == SCHEDULE_TILED ? tile_halves(site, n) : 0;
    r.scaled = !r.halves && !site->m->asked.strict && block_factor(site, n, &(struct block_factor){.factor = 0});
    return r;
}

/* A row buffer's: as long as its last dim, which the loop goes along. */
static uint32_t row_lanes(const struct site *site, const struct row_local *l)
{
    const struct type *t = value_type(site->g, l->value);
    int32_t last = t->rank - 1;
    uint32_t lanes = machine_lanes(site->mach, t->elem);
    int64_t n;
    while (last > 0 && !(l->inner >> last & 1))
        last--;
    n = extent_hint(site->x, t->dims[last]);
    while (lanes > 2 && lanes >= 2 * (uint64_t)n)
        lanes /= 2;
    return lanes;
}

uint32_t kernel_reductions(const struct site *site, enum schedule_kind kind, node_id *out)
{
    const struct kernel *k = site->k;
    bool (*computes)(const struct kernel *, node_id) = kind_of(kind)->computes;
    uint32_t n = 0;
    for (uint32_t i = 0; i < k->nodes.n; i++) {
        node_id id = k->nodes.data[i];
        bool seen = op_shape(graph_node(site->g, id)->op) != SHAPE_REDUCE || (computes && computes(k, id));
        for (uint32_t j = 0; j < n; j++)
            seen |= out[j].i == id.i;
        if (!seen)
            out[n++] = id;
    }
    return n;
}

static void producers_choose(const struct site *site, struct schedule *s)
{
    const struct kernel *k = site->k;
    s->producer = NEW_ARRAY(site->m->arena, struct producer_schedule, k->locals.n + 1);
    s->n_producer = 0;
    for (uint32_t i = 0; i < k->locals.n; i++)
        s->producer[s->n_producer++].lanes = row_lanes(site, &k->locals.data[i]);
    if (s->kind != SCHEDULE_TILED || !k->form.staged.i)
        return;
    uint32_t lanes = machine_lanes(site->mach, value_type(site->g, k->form.staged)->elem);
    s->producer[s->n_producer++].lanes = lanes < CHANNEL_BLOCK ? lanes : CHANNEL_BLOCK;
}

void reduce_choose(const struct site *site, struct schedule *s)
{
    const struct kernel *k = site->k;
    node_id *nodes = NEW_ARRAY(site->arena, node_id, k->nodes.n + 1);
    s->reduce = NEW_ARRAY(site->m->arena, struct reduce_schedule, k->nodes.n + 1);
    s->n_reduce = kernel_reductions(site, s->kind, nodes);
    for (uint32_t i = 0; i < s->n_reduce; i++)
        s->reduce[i] = reduction_of(site, s->kind, nodes[i]);
    producers_choose(site, s);
}
