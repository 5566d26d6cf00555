/* The template of maps: loops over the stored value's points, lanes along the dim where memory is contiguous; dims that
 * inner reductions depend on are outermost (rows).
 */
#include "passes/emit/templates.h"
#include "passes/emit/turn.h"

enum { MAP_GRAIN = 4096 /* elements per parallel index, about 2 us */, MAP_GRAIN_MAX = 65536 /* elements at most */ };

/* Dims of the stored value by falling stride: the order in which memory lies. */
static void dims_by_stride(struct em *em, value_id v, int32_t *order)
{
    const struct storage *s = &em->m->storage[v.i];
    int32_t rank = s->rank;
    for (int32_t d = 0; d < rank; d++) {
        int32_t j = d;
        int64_t mine = ex_is_const(em->x, s->dim[d].outer, &mine) ? mine : INT64_MAX;
        for (; j > 0; j--) {
            int64_t other;
            if (!ex_is_const(em->x, s->dim[order[j - 1]].outer, &other))
                other = INT64_MAX;
            if (other >= mine)
                break;
            order[j] = order[j - 1];
        }
        order[j] = d;
    }
}

struct map_plan {
    int32_t rank, vec;               /* vec: -1 scalar */
    uint32_t lanes;
    uint32_t n_loops, n_parallel;
    struct loop loop[RANK_MAX];
    bool turned;                     /* the last two loops, over vec and the dim that the operand has, go by squares ... */
    struct turn turn;                /* ... and the first of them, where it is parallel, over its groups */
};

static void map_point(struct em *em, const expr_id *idx)
{
    if (em->failed)
        return;
    em_store_out(em, idx, em_value(em, em->k->domain, idx, ex_const(em->x, 1)));
}

/* The loop over the vectorised dim. */
static void map_vectors(struct em *em, const struct map_plan *p, uint32_t at, expr_id *idx, bool last);

static void map_loops(struct em *em, const struct map_plan *p, uint32_t at, expr_id *idx);

/* The last two loops by squares, or, where the run finds the extents too short, as they are; group: only this one, {0}: all. */
static void map_turned(struct em *em, const struct map_plan *p, expr_id group, expr_id *idx)
{
    struct em_if iff;
    struct map_plan plain = *p;
    expr_id rest = ex_not(em->x, p->turn.fits);
    plain.turned = false;
    plain.loop[p->n_loops - 2].extent = value_type(em->g, em->k->domain)->dims[p->vec];    /* not groups */
    if (ex_truth(em->x, p->turn.fits) == TRUE_) {
        turn_emit(em, &p->turn, group, idx);
        return;
    }
    em_if_begin(em, &iff, em_cond(em, p->turn.fits));
    turn_emit(em, &p->turn, group, idx);
    em_if_end(em, &iff);
    if (group.i)          /* the first one does all */
        rest = ex_and(em->x, rest, ex_eq(em->x, group, ex_const(em->x, 0)));
    em_if_begin(em, &iff, em_cond(em, rest));
    map_loops(em, &plain, p->n_loops - 2, idx);
    em_if_end(em, &iff);
}

static void map_loops(struct em *em, const struct map_plan *p, uint32_t at, expr_id *idx)
{
    if (p->turned && at + 2 == p->n_loops) {
        map_turned(em, p, (expr_id){0}, idx);
        return;
    }
    if (at == p->n_loops) {
        map_point(em, idx);
        return;
    }
    if (p->loop[at].dim == p->vec) {
        map_vectors(em, p, at, idx, at + 2 >= p->n_loops);
        return;
    }
    struct em_for l;
    idx[p->loop[at].dim] = em_for_begin(em, &l, ex_const(em->x, 0), p->loop[at].extent, 1, NULL, 0);
    map_loops(em, p, at + 1, idx);
    em_for_end(em, &l, NULL, NULL);
}

static void map_vectors(struct em *em, const struct map_plan *p, uint32_t at, expr_id *idx, bool last)
{
    expr_id n = p->loop[at].extent, w = ex_const(em->x, p->lanes), zero = ex_const(em->x, 0);
    expr_id full = ex_div(em->x, n, w), rest = ex_mod(em->x, n, w);
    int64_t c;
    bool no_tail = ex_is(em->x, rest, 0);
    struct em_for l;
    if (no_tail || last) {
        if (!ex_is_const(em->x, full, &c) || c > 0) {
            expr_id t = em_for_begin(em, &l, zero, full, 1, NULL, 0);
            idx[p->loop[at].dim] = ex_add(em->x, ex_mulc(em->x, t, p->lanes), em_lane(em, p->lanes, (lval){0}));
            map_loops(em, p, at + 1, idx);
            em_for_end(em, &l, NULL, NULL);
        }
        if (no_tail)
            return;
        struct em_if iff;   /* nothing that the tail loads may move above its test */
        expr_id base = ex_mulc(em->x, full, p->lanes);
        bool guard = !ex_is_const(em->x, rest, &c);
        if (guard)
            em_if_begin(em, &iff, em_cond(em, ex_lt(em->x, zero, rest)));
        idx[p->loop[at].dim] = em_tail(em, guard ? em_pin(em, base, 0, INT64_MAX) : base, rest, p->lanes);
        map_loops(em, p, at + 1, idx);
        if (guard)
            em_if_end(em, &iff);
        return;
    }
    expr_id t = em_for_begin(em, &l, zero, ex_ceildiv(em->x, n, w), 1, NULL, 0);
    expr_id base = ex_mulc(em->x, t, p->lanes);
    lval mask = em_tail_mask(em, ex_sub(em->x, n, base), p->lanes);
    idx[p->loop[at].dim] = ex_add(em->x, base, em_lane(em, p->lanes, mask));
    map_loops(em, p, at + 1, idx);
    em_for_end(em, &l, NULL, NULL);
}

/* The dim along which what is read lies contiguous, when it is not the one of the lanes: a transposing copy. -1: none. */
static int32_t source_dim(struct em *em, const struct map_plan *p)
{
    node_id def = graph_value(em->g, em->k->domain)->def;
    const struct node *n = def.i ? graph_node(em->g, def) : NULL;
    if (!n || p->vec < 0 || em->k->has_rows || !n->n_in || (n->op != OP_IDENTITY && op_shape(n->op) != SHAPE_MAP))
        return -1;
    int32_t d = value_fast_dim(em->m, n->in[0]);
    return d >= 0 && d < p->rank && d != p->vec && extent_hint(em->x, value_type(em->g, em->k->domain)->dims[d]) > 1 ? d : -1;
}

/* The dim along which squares of an operand are turned; -1: none. */
static int32_t turned_dim(struct em *em, struct map_plan *p)
{
    for (int32_t d = 0; d < p->rank && p->vec >= 0 && !em->k->has_rows; d++)
        if (d != p->vec && turn_plan(em, p->vec, d, &p->turn)) {
            p->turned = true;
            return d;
        }
    return -1;
}

/* Moves the loop over dim to the end. */
static void loop_last(struct map_plan *p, int32_t dim)
{
    for (uint32_t i = 0; i + 1 < p->n_loops; i++)
        if (p->loop[i].dim == dim) {
            struct loop l = p->loop[i];
            p->loop[i] = p->loop[i + 1];
            p->loop[i + 1] = l;
        }
}

/* Is there work for several threads in loops [0, n)? */
static bool has_many(struct em *em, const struct map_plan *p, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!ex_is(em->x, p->loop[i].extent, 1))
            return true;
    return false;
}

/* Which loops are flattened into the parallel one: the outer ones, so that what is inside is worth an index. Of unknown
 * extents one goes inside, since an index costs some divisions. */
static void map_split(struct em *em, struct map_plan *p)
{
    const struct kernel *k = em->k;
    uint32_t rows = k->has_rows ? (uint32_t)__builtin_popcount(k->row_mask) : p->n_loops;
    int64_t inner = 1;
    bool unknown = false;
    for (p->n_parallel = p->n_loops; p->n_parallel > 0; p->n_parallel--) {
        const struct loop *l = &p->loop[p->n_parallel - 1];
        int64_t n = 1;
        bool known = ex_is_const(em->x, l->extent, &n), may = known || (!unknown && has_many(em, p, p->n_parallel - 1));
        bool free = l->dim != p->vec || (unknown && !k->has_rows);
        if (p->n_parallel <= rows && free && (!may || inner >= MAP_GRAIN || n > MAP_GRAIN_MAX / (inner > 0 ? inner : 1)))
            break;
        inner *= extent_hint(em->x, l->extent);
        unknown |= !known;
    }
}

/* Sizes in bytes of the elements that the kernel's nodes read and make: the smallest in memory, the largest in registers. */
static void element_sizes(struct em *em, uint32_t *least, uint32_t *most)
{
    const struct kernel *k = em->k;
    *least = elem_size(value_type(em->g, k->domain)->elem);
    *most = elem_size(register_elem(value_type(em->g, k->domain)->elem));
    for (uint32_t i = 0; i < k->nodes.n; i++) {
        const struct node *n = graph_node(em->g, k->nodes.data[i]);
        for (uint32_t j = 0; j < n->n_in + n->n_out; j++) {
            enum elem e = value_type(em->g, j < n->n_in ? n->in[j] : n->out[j - n->n_in])->elem;
            uint32_t size = elem_size(e), wide = elem_size(register_elem(e));
            *least = size < *least ? size : *least;
            *most = wide > *most ? wide : *most;
        }
    }
}

/* Lanes of a map along n points. Elements of one or two bytes come by whole registers where nothing wider is computed of them,
 * else two registers of the wider at a time, so that conversions and the loop cost less for each; rows of few vectors, whose tail would
 * be as long, have one. */
static uint32_t map_lanes(struct em *em, expr_id n)
{
    uint32_t one = machine_vector_lanes(em->mach, value_type(em->g, em->k->domain)->elem), lanes = one, least, most;
    int64_t extent = extent_hint(em->x, n);
    element_sizes(em, &least, &most);
    if (!em->k->has_rows && most <= 4 && least < 4)
        lanes = most == 4 ? 2 * one : em->mach->vector_bytes / most;
    bool known = ex_is_const(em->x, n, &extent);
    while (lanes > one && extent < 4 * (int64_t)lanes && (!known || extent % lanes))
        lanes /= 2;
    while (lanes > 2 && lanes >= 2 * (uint64_t)extent)
        lanes /= 2;
    return lanes;
}

static void map_plan_make(struct em *em, struct map_plan *p)
{
    const struct kernel *k = em->k;
    *p = (struct map_plan){.vec = -1};
    const struct type *t = value_type(em->g, em->k->domain);
    int32_t order[RANK_MAX] = {0}, fast = value_fast_dim(em->m, k->outs.data[0]);
    p->rank = t->rank;
    p->lanes = 1;
    dims_by_stride(em, k->outs.data[0], order);
    if (fast >= 0 && !ex_is(em->x, t->dims[fast], 1)) {
        p->lanes = map_lanes(em, t->dims[fast]);
        p->vec = extent_hint(em->x, t->dims[fast]) > 1 ? fast : -1;
    }
    for (int pass = k->has_rows ? 0 : 1; pass < 2; pass++)   /* rows outermost */
        for (int32_t i = 0; i < t->rank; i++) {
            bool row = k->has_rows && (k->row_mask >> order[i] & 1);
            if (k->has_rows && row != (pass == 0))
                continue;
            p->loop[p->n_loops++] = (struct loop){order[i], t->dims[order[i]], {0}};
        }
    int32_t source = turned_dim(em, p);
    source = source >= 0 ? source : source_dim(em, p);
    if (source >= 0) {   /* lanes stride: the lines and pages that they touch serve the whole inner loop */
        loop_last(p, p->vec);
        loop_last(p, source);
    }
    map_split(em, p);
    if (p->turned && p->n_parallel + 2 > p->n_loops) {
        p->n_parallel = p->n_loops - 2;
        if (!has_many(em, p, p->n_parallel))
            p->n_parallel++;
    }
}

/* Lanes of the vector that a parallel index names. */
static expr_id map_parallel_lanes(struct em *em, const struct map_plan *p, expr_id vector)
{
    expr_id n = value_type(em->g, em->k->domain)->dims[p->vec], base = ex_mulc(em->x, vector, p->lanes);
    bool whole = ex_is(em->x, ex_mod(em->x, n, ex_const(em->x, p->lanes)), 0);
    lval mask = whole ? (lval){0} : em_tail_mask(em, ex_sub(em->x, n, base), p->lanes);
    return ex_add(em->x, base, em_lane(em, p->lanes, mask));
}

bool emit_map(struct em *em)
{
    struct map_plan p;
    struct em_for par;
    expr_id idx[RANK_MAX];
    map_plan_make(em, &p);
    for (uint32_t i = 0; i < p.n_parallel; i++)      /* an index for each vector */
        if (p.loop[i].dim == p.vec)
            p.loop[i].extent = p.turned ? p.turn.groups : ex_ceildiv(em->x, p.loop[i].extent, ex_const(em->x, p.lanes));
    em_parallel_open(em, &par, p.loop, p.n_parallel);
    expr_id group = {0};
    for (uint32_t i = 0; i < p.n_parallel; i++) {
        bool vec = p.loop[i].dim == p.vec;
        group = vec && p.turned ? p.loop[i].var : group;
        idx[p.loop[i].dim] = vec && !p.turned ? map_parallel_lanes(em, &p, p.loop[i].var) : p.loop[i].var;
    }
    if (group.i)
        map_turned(em, &p, group, idx);
    else
        map_loops(em, &p, p.n_parallel, idx);
    em_parallel_end(em, &par);
    int64_t work = 1;
    for (uint32_t i = p.n_parallel; i < p.n_loops; i++)
        work *= extent_hint(em->x, p.loop[i].extent);
    em->k->ns = 20 + work / 2 * (em->k->has_rows ? 3 : 1);
    return !em->failed;
}
