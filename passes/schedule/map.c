/* The loops of a map: lanes along the dim where memory is contiguous, dims that inner reductions depend on outermost
 * (rows), and as many loops in the parallel index as leave work inside of it. */
#include "passes/schedule/kinds.h"

/* Points of a parallel index. */
enum { GRAIN = RATE_GRAIN_POINTS, GRAIN_MOST = RATE_GRAIN_POINTS_MOST };
/* ... of a part of an open dim: some us; along the dim at least, whatever other dims have, whole vectors of any CPU. */
enum { PART_POINTS = 4 * RATE_GRAIN_POINTS, PART_POINTS_LEAST = 256 };

/* Dims of the stored value by falling stride: the order in which memory lies. */
static void dims_by_stride(const struct site *site, value_id v, int32_t *order)
{
    const struct storage *s = &site->m->fused.storage[v.i];
    int32_t rank = s->rank;
    for (int32_t d = 0; d < rank; d++) {
        int32_t j = d;
        int64_t mine = ex_is_const(site->x, s->dim[d].outer, &mine) ? mine : INT64_MAX;
        for (; j > 0; j--) {
            int64_t other;
            if (!ex_is_const(site->x, s->dim[order[j - 1]].outer, &other))
                other = INT64_MAX;
            if (other >= mine)
                break;
            order[j] = order[j - 1];
        }
        order[j] = d;
    }
}

static expr_id extent_of(const struct site *site, int32_t d)
{
    return value_type(site->g, site->k->domain)->dims[d];
}

/* The dim along which what is read lies contiguous, when it is not the one of the lanes: a transposing copy. -1:
 * none. */
static int32_t source_dim(const struct site *site, const struct nest_schedule *s)
{
    const struct node *n = value_node(site->g, site->k->domain);
    if (!n || s->vec < 0 || site->k->has_rows || !n->n_in || (n->op != OP_IDENTITY && !op_is_pointwise(n->op)))
        return -1;
    int32_t d = value_fast_dim(site->m, n->in[0]);
    return d >= 0 && d < (int32_t)s->n_loops && d != s->vec && extent_hint(site->x, extent_of(site, d)) > 1 ? d : -1;
}

/* The dim along which tiles of an operand are transposed; -1: none. */
static int32_t transposed_dim(const struct site *site, const struct nest_schedule *s, struct transpose_tile *tile)
{
    for (int32_t d = 0; d < (int32_t)s->n_loops && s->vec >= 0 && !site->k->has_rows; d++) {
        if (d != s->vec)
            *tile = transpose_choose(site, s->vec, d);
        if (tile->columns)
            return d;
    }
    return -1;
}

/* Is there work for several threads in loops [0, n)? */
static bool has_many(const struct site *site, const struct nest_schedule *s, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!ex_is(site->x, extent_of(site, s->loop[i]), 1))
            return true;
    return false;
}

/* Which loops are flattened into the parallel one: the outer ones, so that what is inside is worth an index. Of unknown
 * extents one goes inside, since an index costs some divisions. */
static void parallel_choose(const struct site *site, struct nest_schedule *s, bool transposed)
{
    const struct kernel *k = site->k;
    uint32_t rows = k->has_rows ? (uint32_t)__builtin_popcount(k->row_mask) : s->n_loops;
    int64_t inner = 1;
    bool unknown = false;
    for (s->parallel = s->n_loops; s->parallel > 0; s->parallel--) {
        int32_t dim = s->loop[s->parallel - 1];
        int64_t n = 1;
        bool known = ex_is_const(site->x, extent_of(site, dim), &n),
             may = known || (!unknown && has_many(site, s, s->parallel - 1));
        bool free = dim != s->vec || (unknown && !k->has_rows);
        if (s->parallel <= rows && free && (!may || inner >= GRAIN || n > GRAIN_MOST / (inner > 0 ? inner : 1)))
            break;
        inner *= extent_hint(site->x, extent_of(site, dim));
        unknown |= !known;
    }
    if ((transposed || nest_packed(s)) && s->parallel + 2 > s->n_loops) {
        s->parallel = s->n_loops - 2;
        if (!has_many(site, s, s->parallel) && transposed)
            s->parallel++;
    }
}

/* Does a node before number i of the kernel read v? Then its lines are in L1. Of a stored concat the kernel of a piece
 * computes one operand. */
static bool is_read_before(const struct site *site, uint32_t i, value_id v)
{
    for (uint32_t k = 0; k < i; k++) {
        const struct node *n = graph_node(site->g, site->k->nodes.data[k]);
        bool concat = site->k->piece && n->out[0].i == site->k->outs.data[0].i;
        for (uint32_t j = concat ? site->k->piece - 1 : 0; j < (concat ? site->k->piece : n->n_in); j++)
            if (n->in[j].i == v.i)
                return true;
    }
    return false;
}

int64_t map_cycles(enum op op)
{
    return lf_math_is_long(op) ? RATE_LONG_CYCLES : op_cost(op) == COST_DEAR ? RATE_MAP_DEAR : RATE_MAP_CHEAP;
}

/* Cycles of a vector of points: what the nodes cost that are computed at each of them, and the lines that they read and
 * write. What has fewer points, and what only some dims of the domain decide, leaves the inner loops. */
static int64_t vector_cycles(const struct site *site)
{
    const struct type *domain = value_type(site->g, site->k->domain);
    int64_t cycles = RATE_MAP_LINE;
    if (site->k->anchor.i) { /* each point has the loop of a reduction, whose steps read both operands */
        uint64_t steps = tile_steps(site, graph_node(site->g, site->k->anchor));
        cycles += (int64_t)(steps < INT32_MAX ? steps : INT32_MAX) * RATE_MAP_LINE;
    }
    for (uint32_t i = 0; i < site->k->nodes.n; i++) {
        const struct node *n = graph_node(site->g, site->k->nodes.data[i]);
        bool reduces = op_shape(n->op) == SHAPE_REDUCE;
        if (!type_same_shape(value_type(site->g, reduces ? n->in[0] : n->out[0]), domain))
            continue;
        if (reduces)
            cycles += RATE_MAP_CHEAP;
        else if (op_is_pointwise(n->op))
            cycles += map_cycles(n->op);
        for (uint32_t j = 0; j < n->n_in; j++)
            if (site->m->fused.storage[n->in[j].i].place != PLACE_NONE &&
                type_same_shape(value_type(site->g, n->in[j]), domain) && !is_read_before(site, i, n->in[j]))
                cycles += RATE_MAP_LINE;
    }
    return cycles;
}

static int64_t estimate_ns(const struct site *site, const struct nest_schedule *s)
{
    int64_t lanes = machine_vector_lanes(site->mach, value_type(site->g, site->k->domain)->elem), work = 1;
    uint32_t seen = 0;
    for (uint32_t i = 0; i < s->n_loops; i++) {
        int64_t extent = extent_hint(site->x, extent_of(site, s->loop[i]));
        bool known = ex_is_const(site->x, extent_of(site, s->loop[i]), &extent);
        if (!(seen >> s->loop[i] & 1))
            work *= i < s->parallel && (!known || s->step[i] < extent) ? s->step[i] : extent;
        seen |= 1u << s->loop[i];
    }
    int64_t vectors = s->vec < 0 ? work : (work + lanes - 1) / lanes;
    return RATE_INDEX_NS + (vectors < INT32_MAX ? vectors : INT32_MAX) * vector_cycles(site) / RATE_CYCLES_PER_NS;
}

/* One index, and a dim of open extent: parts of that, each long enough for a thread, are indices. They come before all
 * other loops, so that small extents, which are one part, cost nothing, and are as many on each CPU level, whose
 * launches then pass the same. */
static void open_parts_choose(const struct site *site, struct nest_schedule *s)
{
    uint32_t at = 0, loops = s->n_loops - (nest_packed(s) ? 2 : 0);
    while (at < loops && ex_is_const(site->x, extent_of(site, s->loop[at]), &(int64_t){0}))
        at++;
    if (site->k->has_rows || has_many(site, s, s->parallel) || at == loops || (s->n_peels && s->loop[at] == s->vec))
        return;
    int32_t dim = s->loop[at];
    int64_t points = PART_POINTS, known;
    for (uint32_t i = 0; i < s->n_loops; i++)
        if (s->loop[i] != dim && ex_is_const(site->x, extent_of(site, s->loop[i]), &known) && known > 0)
            for (int64_t n = 1; n < known && points > PART_POINTS_LEAST; n *= 2)
                points /= 2;
    nest_insert(s, 0, dim, points);
    s->parallel++;
}

/* Few indices that take long: parts of the next loop, of whole steps, are indices of their own. For blocks of channels
 * of a batch of one: 40 of 1432 maps, in 9 of 568 networks, DenseNet and EfficientNet first. */
static void parts_choose(const struct site *site, struct nest_schedule *s)
{
    const struct kernel *k = site->k;
    uint32_t at = s->parallel,
             loops = k->has_rows ? (uint32_t)__builtin_popcount(k->row_mask) : s->n_loops - (nest_packed(s) ? 2 : 0);
    int64_t indices = 1, extent;
    if (at >= loops || (s->n_peels && s->loop[at] == s->vec) ||
        !ex_is_const(site->x, extent_of(site, s->loop[at]), &extent))
        return;
    int64_t ns = estimate_ns(site, s);
    for (uint32_t i = 0; i < at; i++)
        if (!mul_i64(indices, extent_hint(site->x, extent_of(site, s->loop[i])), &indices))
            return;
    if (indices < 1 || indices >= RATE_SPLIT_INDICES / 2)
        return;
    int64_t most = (RATE_SPLIT_INDICES + indices - 1) / indices, steps = (extent + s->step[at] - 1) / s->step[at],
            parts = ns / RATE_SPLIT_LEAST_NS;
    parts = parts < most ? parts : most;
    if (parts < 2 || steps < 2)
        return;
    if (parts < steps)
        nest_insert(s, at, s->loop[at], (steps + parts - 1) / parts * s->step[at]);
    s->parallel++;
}

/* The last two loops by tiles: groups of them that fill whole lines on both sides before the next lines are begun. */
static void tiles_choose(struct nest_schedule *s, const struct transpose_tile *t)
{
    int32_t source = s->loop[s->n_loops - 1];
    s->n_loops -= 2;
    nest_add(s, s->vec, (int64_t)t->tiles * t->lanes);
    nest_add(s, source, TRANSPOSE_LINE / TRANSPOSE_BYTES * t->columns);
    nest_add(s, s->vec, t->lanes);
    nest_add(s, source, t->columns);
}

/* Sizes in bytes of the elements that the kernel's nodes read and make: the smallest in memory, the largest in
 * registers. */
void map_elements(const struct site *site, uint32_t *least, uint32_t *most)
{
    const struct kernel *k = site->k;
    *least = elem_size(value_type(site->g, k->domain)->elem);
    *most = elem_size(register_elem(value_type(site->g, k->domain)->elem));
    for (uint32_t i = 0; i < k->nodes.n; i++) {
        const struct node *n = graph_node(site->g, k->nodes.data[i]);
        uint32_t n_in;
        const value_id *in = kernel_operands(k, n, &n_in);
        for (uint32_t j = 0; j < n_in + n->n_out; j++) {
            enum elem e = value_type(site->g, j < n_in ? in[j] : n->out[j - n_in])->elem;
            uint32_t size = elem_size(e), wide = elem_size(register_elem(e));
            *least = size < *least ? size : *least;
            *most = wide > *most ? wide : *most;
        }
    }
}

/* Lanes of a map along n points. Elements of one or two bytes come by whole registers where nothing wider is computed
 * of them, else two registers of the wider at a time, four where bytes are made of them, so that conversions and the
 * loop cost less for each; rows of few vectors, whose tail would be as long, have one; what lies in blocks is read and
 * written by no more than a block. */
static uint32_t lanes_of(const struct site *site, int32_t fast)
{
    expr_id n = value_type(site->g, site->k->domain)->dims[fast];
    int64_t block = site->m->fused.storage[site->k->outs.data[0].i].dim[fast].block;
    uint32_t one = machine_vector_lanes(site->mach, value_type(site->g, site->k->domain)->elem), lanes = one, least,
             most;
    int64_t extent = extent_hint(site->x, n);
    bool to_bytes = elem_size(value_type(site->g, site->k->domain)->elem) == 1;
    map_elements(site, &least, &most);
    if (!site->k->has_rows && most <= 4 && least < 4)
        lanes = most < 4 ? site->mach->vector_bytes / most : to_bytes ? 4 * one : 2 * one;
    bool known = ex_is_const(site->x, n, &extent);
    while (lanes > one && extent < 4 * (int64_t)lanes && (!known || extent % lanes))
        lanes /= 2;
    while (lanes > 2 && lanes >= 2 * (uint64_t)extent)
        lanes /= 2;
    while (block > 0 && lanes > one && lanes > block)
        lanes /= 2;
    return lanes;
}

static bool choose(const struct site *site, struct schedule *out)
{
    const struct kernel *k = site->k;
    struct nest_schedule *s = &out->nest;
    struct transpose_tile tile = {.columns = 0};
    const struct type *t = value_type(site->g, k->domain);
    int32_t order[RANK_MAX] = {0}, fast = value_fast_dim(site->m, k->outs.data[0]);
    *s = (struct nest_schedule){.vec = -1};
    dims_by_stride(site, k->outs.data[0], order);
    if (fast >= 0 && !ex_is(site->x, t->dims[fast], 1) && extent_hint(site->x, t->dims[fast]) > 1)
        s->vec = fast;
    for (int pass = k->has_rows ? 0 : 1; pass < 2; pass++) /* rows outermost */
        for (int32_t i = 0; i < t->rank; i++) {
            bool row = k->has_rows && (k->row_mask >> order[i] & 1);
            if (!k->has_rows || row == (pass == 0))
                nest_add(s, order[i], order[i] == s->vec ? lanes_of(site, fast) : 1);
        }
    int32_t source = transposed_dim(site, s, &tile);
    source = source >= 0 ? source : source_dim(site, s);
    if (!tile.columns)
        packed_choose(site, s);
    if (source >= 0 && !nest_packed(s)) { /* lanes stride: their lines and pages serve the whole inner loop */
        nest_last(s, s->vec);
        nest_last(s, source);
    }
    parallel_choose(site, s, tile.columns > 0);
    if (tile.columns) {
        tiles_choose(s, &tile);
    } else {
        peels_choose(site, s);
        parts_choose(site, s);
        open_parts_choose(site, s);
    }
    return true;
}

static void facts(const struct site *site, const struct schedule *s, struct schedule_facts *f)
{
    f->ns = estimate_ns(site, &s->nest);
    f->flops = site->k->anchor.i ? anchor_flops(site) : 0;
}

static bool owns(const struct kernel *k)
{
    return k->kind == KERNEL_MAP;
}

const struct kind map_kind = {.owns = owns, .serves = kernel_is_free, .choose = choose, .facts = facts};
