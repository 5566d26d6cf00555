/* schedule: every kernel becomes a loop-IR function, from a few templates chosen by shape.
 *
 * map      loops over the stored value's points, lanes along the dim where memory is contiguous; dims that inner
 *          reductions depend on are outermost (rows)
 * tiled    an anchor (conv, dot, window, reduce) at TA x TB x NR points at once (emit_reduce.c): with accumulators in
 *          registers this is the micro-kernel; the stored value is evaluated at the same points (epilogue)
 * scan, scatter   serial along one dim
 *
 * Parallel indices are flattened outer loops; their number depends on the shape only.
 */
#include "passes/emit.h"
#include "passes/schedule.h"

#include <string.h>

enum { MAP_GRAIN = 4096 /* elements per parallel index, about 2 us */, FEW_POINTS = 1024,
       MAP_GRAIN_MAX = 65536 /* elements at most */ };

/* ---- loops over a list of extents ------------------------------------------------------------------------------- */

void em_parallel_open(struct em *em, struct em_for *p, struct loop *loops, uint32_t n)
{
    expr_id extents[RANK_MAX + 4], vars[RANK_MAX + 4], count = ex_const(em->x, 1), one = ex_const(em->x, 1);
    for (uint32_t i = 0; i < n; i++) {
        count = ex_mul(em->x, count, loops[i].extent);
        extents[i] = ex_lo(em->x, loops[i].extent) >= 1 ? loops[i].extent : ex_max(em->x, loops[i].extent, one);
    }
    expr_id flat = em_parallel_begin(em, p, count);
    if (ex_is(em->x, count, 1))
        flat = ex_const(em->x, 0);
    point_split(em->x, flat, extents, (int32_t)n, vars);
    for (uint32_t i = 0; i < n; i++) {
        int64_t hi = ex_hi(em->x, loops[i].extent);
        loops[i].var = ex_is_const(em->x, vars[i], &(int64_t){0})
                           ? vars[i] : em_pin(em, vars[i], 0, hi == INT64_MAX ? hi : hi > 0 ? hi - 1 : 0);
    }
}

static int64_t extent_hint(struct em *em, expr_id e)
{
    int64_t n;
    return ex_is_const(em->x, e, &n) ? n : 16;
}

/* ---- map --------------------------------------------------------------------------------------------------------- */

static uint32_t vector_lanes(const struct em *em, value_id v)
{
    uint32_t size = elem_size(em_reg_elem(value_type(em->g, v)->elem));
    return em->mach.vector_bytes / (size > 4 ? 8 : 4);
}

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
    value_id out;
    int32_t rank, vec;               /* vec: -1 scalar */
    uint32_t lanes;
    uint32_t n_loops, n_parallel;
    struct loop loop[RANK_MAX];
};

static void map_point(struct em *em, const struct map_plan *p, expr_id *idx)
{
    if (em->failed)
        return;
    em_store_out(em, idx, em_value(em, p->out, idx, ex_const(em->x, 1)));
}

/* The loop over the vectorised dim. */
static void map_vectors(struct em *em, const struct map_plan *p, uint32_t at, expr_id *idx, bool last);

static void map_loops(struct em *em, const struct map_plan *p, uint32_t at, expr_id *idx)
{
    if (at == p->n_loops) {
        map_point(em, p, idx);
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
    node_id def = graph_value(em->g, p->out)->def;
    const struct node *n = def.i ? graph_node(em->g, def) : NULL;
    if (!n || p->vec < 0 || em->k->has_rows || !n->n_in || (n->op != OP_IDENTITY && op_shape(n->op) != SHAPE_MAP))
        return -1;
    int32_t d = em_fast_dim(em, n->in[0]);
    return d >= 0 && d < p->rank && d != p->vec && extent_hint(em, value_type(em->g, p->out)->dims[d]) > 1 ? d : -1;
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
        inner *= extent_hint(em, l->extent);
        unknown |= !known;
    }
}

static void map_plan_make(struct em *em, struct map_plan *p)
{
    const struct kernel *k = em->k;
    *p = (struct map_plan){.out = k->domain, .vec = -1};
    const struct type *t = value_type(em->g, p->out);
    int32_t order[RANK_MAX] = {0}, fast = em_fast_dim(em, k->outs.data[0]);
    p->rank = t->rank;
    p->lanes = vector_lanes(em, p->out);
    dims_by_stride(em, k->outs.data[0], order);
    if (fast >= 0 && !ex_is(em->x, t->dims[fast], 1)) {
        int64_t n = extent_hint(em, t->dims[fast]);
        while (p->lanes > 2 && p->lanes >= 2 * (uint64_t)n)
            p->lanes /= 2;
        p->vec = n > 1 ? fast : -1;
    }
    for (int pass = k->has_rows ? 0 : 1; pass < 2; pass++)   /* rows outermost */
        for (int32_t i = 0; i < t->rank; i++) {
            bool row = k->has_rows && (k->row_mask >> order[i] & 1);
            if (k->has_rows && row != (pass == 0))
                continue;
            p->loop[p->n_loops++] = (struct loop){order[i], t->dims[order[i]], {0}};
        }
    int32_t source = source_dim(em, p);
    if (source >= 0) {   /* lanes stride: the lines and pages that they touch serve the whole inner loop */
        loop_last(p, p->vec);
        loop_last(p, source);
    }
    map_split(em, p);
}

/* Lanes of the vector that a parallel index names. */
static expr_id map_parallel_lanes(struct em *em, const struct map_plan *p, expr_id vector)
{
    expr_id n = value_type(em->g, p->out)->dims[p->vec], base = ex_mulc(em->x, vector, p->lanes);
    bool whole = ex_is(em->x, ex_mod(em->x, n, ex_const(em->x, p->lanes)), 0);
    lval mask = whole ? (lval){0} : em_tail_mask(em, ex_sub(em->x, n, base), p->lanes);
    return ex_add(em->x, base, em_lane(em, p->lanes, mask));
}

static bool emit_map(struct em *em)
{
    struct map_plan p;
    struct em_for par;
    expr_id idx[RANK_MAX];
    map_plan_make(em, &p);
    for (uint32_t i = 0; i < p.n_parallel; i++)      /* an index for each vector */
        if (p.loop[i].dim == p.vec)
            p.loop[i].extent = ex_ceildiv(em->x, p.loop[i].extent, ex_const(em->x, p.lanes));
    em_parallel_open(em, &par, p.loop, p.n_parallel);
    for (uint32_t i = 0; i < p.n_parallel; i++)
        idx[p.loop[i].dim] = p.loop[i].dim == p.vec ? map_parallel_lanes(em, &p, p.loop[i].var) : p.loop[i].var;
    map_loops(em, &p, p.n_parallel, idx);
    em_parallel_end(em, &par);
    int64_t work = 1;
    for (uint32_t i = p.n_parallel; i < p.n_loops; i++)
        work *= extent_hint(em, p.loop[i].extent);
    em->k->ns = 20 + work / 2 * (em->k->has_rows ? 3 : 1);
    return !em->failed;
}

/* ---- tiled --------------------------------------------------------------------------------------------------------- */

struct tiling {
    const struct node *n;
    value_id out;
    const struct type *t;            /* of the anchor's result */
    int32_t vec, a, b;               /* dims; -1: none */
    uint32_t lanes, nr, ta, tb;
    expr_id idx[RANK_MAX];
    expr_id piece[8];                /* index along vec of each vector of the tile at hand */
    uint32_t n_pieces;
    bool fixed_b;                    /* the rows of b are a parallel index: only those at row0 */
    bool flat;                       /* dims b and a numbered through: row0 is the number of the tile */
    expr_id row0;
};

void tile_store(struct em *em, const struct node *anchor, value_id domain, const expr_id *point, lval result)
{
    expr_id at[RANK_MAX], next[RANK_MAX];
    memcpy(at, point, (size_t)value_type(em->g, anchor->out[0])->rank * sizeof *at);
    for (uint32_t v = 0; v < em->k->path.n; v++) {
        view_inverse(em->g, graph_node(em->g, em->k->path.data[v]), at, next);
        memcpy(at, next, sizeof at);
    }
    em->anchor = anchor->out[0];
    em->anchor_value = result;
    em_store_out(em, at, domain.i == em->anchor.i ? result : em_value(em, domain, at, ex_const(em->x, 1)));
    em->anchor = (value_id){0};
}

static void tile_body(struct em *em, struct tiling *t, expr_id a0, uint32_t ta, expr_id b0, uint32_t tb)
{
    expr_id *points[EM_POINTS];
    lval acc[EM_POINTS];
    uint32_t n = 0;
    expr_id cond = ex_const(em->x, 1);
    for (uint32_t j = 0; j < tb; j++)
        for (uint32_t i = 0; i < ta; i++)
            for (uint32_t v = 0; v < t->n_pieces; v++) {
                expr_id *p = arena_copy(em->arena, t->idx, sizeof t->idx);
                if (t->vec >= 0)
                    p[t->vec] = t->piece[v];
                if (t->a >= 0)
                    p[t->a] = ex_addc(em->x, a0, i);
                if (t->b >= 0)
                    p[t->b] = ex_addc(em->x, b0, j);
                if (t->flat) {
                    p[t->b] = ex_div(em->x, p[t->a], t->t->dims[t->a]);
                    p[t->a] = ex_mod(em->x, p[t->a], t->t->dims[t->a]);
                }
                points[n++] = p;
            }
    if (n == 1 && t->vec < 0)
        acc[0] = em_reduce_one(em, t->n, points[0], cond);
    else
        em_reduce_points(em, t->n, n, points, cond, acc);
    for (uint32_t i = 0; i < n && !em->failed; i++)
        tile_store(em, t->n, t->out, points[i], acc[i]);
}

typedef void tile_fn(struct em *, struct tiling *, expr_id at, uint32_t count, void *arg);

/* Whole tiles of an extent that the run knows, then small tiles, then single points: one point alone waits for each of its
 * sums, so a short line of them takes as long as a tile would. */
static void tile_open(struct em *em, struct tiling *t, expr_id n, uint32_t size, tile_fn *fn, void *arg)
{
    uint32_t sizes[3] = {size, size >= 8 ? 4 : size >= 4 ? 2 : 1, 1};
    expr_id zero = ex_const(em->x, 0), done = zero;
    for (uint32_t k = 0; k < 3; k++) {
        struct em_for l;
        if (k > 0 && sizes[k] == sizes[k - 1])
            continue;
        expr_id count = ex_div(em->x, ex_sub(em->x, n, done), ex_const(em->x, sizes[k]));
        expr_id i = em_for_begin(em, &l, zero, count, 1, NULL, 0);
        fn(em, t, ex_add(em->x, done, ex_mulc(em->x, i, sizes[k])), sizes[k], arg);
        em_for_end(em, &l, NULL, NULL);
        done = ex_add(em->x, done, ex_mulc(em->x, count, sizes[k]));
    }
}

/* Tiles of a dim: an even split (49 = 13 + 12 + 12 + 12) when the extent is known. */
static void tile_split(struct em *em, struct tiling *t, int32_t dim, uint32_t size, tile_fn *fn, void *arg)
{
    expr_id zero = ex_const(em->x, 0), n;
    struct em_for l;
    int64_t c;
    if (dim < 0) {
        fn(em, t, zero, 1, arg);
        return;
    }
    n = t->t->dims[dim];
    if (!ex_is_const(em->x, n, &c)) {
        tile_open(em, t, n, size, fn, arg);
        return;
    }
    if (c <= 0)
        return;
    int64_t tiles = (c + size - 1) / size, small = c / tiles, large = c % tiles;
    if (large) {
        expr_id i = em_for_begin(em, &l, zero, ex_const(em->x, large), 1, NULL, 0);
        fn(em, t, ex_mulc(em->x, i, small + 1), (uint32_t)small + 1, arg);
        em_for_end(em, &l, NULL, NULL);
    }
    expr_id i = em_for_begin(em, &l, zero, ex_const(em->x, tiles - large), 1, NULL, 0);
    fn(em, t, ex_addc(em->x, ex_mulc(em->x, i, small), large * (small + 1)), (uint32_t)small, arg);
    em_for_end(em, &l, NULL, NULL);
}

struct b_tile { expr_id at; uint32_t count; };
static void tile_a(struct em *em, struct tiling *t, expr_id at, uint32_t count, void *arg)
{
    const struct b_tile *b = arg;
    tile_body(em, t, at, count, b->at, b->count);
}

static void tile_b(struct em *em, struct tiling *t, expr_id at, uint32_t count, void *arg)
{
    struct b_tile b = {at, count};
    (void)arg;
    tile_split(em, t, t->a, t->ta, tile_a, &b);
}

static int64_t flat_points(struct em *em, const struct tiling *t)
{
    int64_t rows = 0, columns = 0;
    ex_is_const(em->x, t->t->dims[t->b], &rows);
    ex_is_const(em->x, t->t->dims[t->a], &columns);
    return rows * columns;
}

/* Tile number row0 of an even split of all points: the first ones have a point more. */
static void tile_flat(struct em *em, struct tiling *t)
{
    struct exprs *x = em->x;
    int64_t n = flat_points(em, t), tiles = (n + t->ta - 1) / t->ta, small = n / tiles, large = n % tiles;
    struct em_if iff;
    expr_id zero = ex_const(x, 0), border = ex_const(x, large);
    if (large) {
        em_if_begin(em, &iff, em_cond(em, ex_lt(x, t->row0, border)));
        expr_id i = em_pin(em, t->row0, 0, large - 1);
        tile_body(em, t, ex_mulc(x, i, small + 1), (uint32_t)small + 1, zero, 1);
        em_if_end(em, &iff);
        em_if_begin(em, &iff, em_cond(em, ex_le(x, border, t->row0)));
    }
    expr_id i = large ? em_pin(em, t->row0, large, tiles - 1) : t->row0;
    tile_body(em, t, ex_addc(x, ex_mulc(x, i, small), large), (uint32_t)small, zero, 1);
    if (large)
        em_if_end(em, &iff);
}

static void tile_rows(struct em *em, struct tiling *t)
{
    if (t->flat)
        tile_flat(em, t);
    else if (t->fixed_b)
        tile_b(em, t, t->row0, t->tb, NULL);
    else
        tile_split(em, t, t->b, t->tb, tile_b, NULL);
}

static void tile_pieces(struct em *em, struct tiling *t, expr_id block, uint32_t vectors, uint32_t rest_lanes)
{
    expr_id base = ex_mulc(em->x, block, (int64_t)t->nr * t->lanes);
    t->n_pieces = 0;
    for (uint32_t v = 0; v < vectors; v++)
        t->piece[t->n_pieces++] = ex_addc(em->x, ex_add(em->x, base, em_lane(em, t->lanes, (lval){0})),
                                          (int64_t)v * t->lanes);
    if (rest_lanes == 1) {   /* a dim of one index may vanish in a view: no lanes then */
        t->piece[t->n_pieces++] = ex_addc(em->x, base, (int64_t)vectors * t->lanes);
    } else if (rest_lanes) {   /* a narrower register where the rest is a power of two, else a mask */
        uint32_t w = 2;
        while (w < rest_lanes)
            w *= 2;
        lval mask = w == rest_lanes ? (lval){0} : em_tail_mask(em, ex_const(em->x, rest_lanes), w);
        t->piece[t->n_pieces++] = ex_addc(em->x, ex_add(em->x, base, em_lane(em, w, mask)),
                                          (int64_t)vectors * t->lanes);
    }
    tile_rows(em, t);
}

/* Blocks of NR vectors along vec: whole ones, then what is left. */
static void tile_vectors(struct em *em, struct tiling *t, expr_id block)
{
    int64_t n;
    if (t->vec < 0) {
        t->n_pieces = 1;
        tile_rows(em, t);
        return;
    }
    if (!ex_is_const(em->x, t->t->dims[t->vec], &n)) {
        expr_id base = ex_mulc(em->x, block, t->lanes);
        lval mask = em_tail_mask(em, ex_sub(em->x, t->t->dims[t->vec], base), t->lanes);
        t->piece[0] = ex_add(em->x, base, em_lane(em, t->lanes, mask));
        t->n_pieces = 1;
        tile_rows(em, t);
        return;
    }
    int64_t width = (int64_t)t->nr * t->lanes, whole = n / width, rest = n % width;
    uint32_t rest_vectors = (uint32_t)(rest / t->lanes), rest_lanes = (uint32_t)(rest % t->lanes);
    if (!rest) {
        tile_pieces(em, t, block, t->nr, 0);
        return;
    }
    if (!whole) {
        tile_pieces(em, t, ex_const(em->x, 0), rest_vectors, rest_lanes);
        return;
    }
    struct em_if iff;
    expr_id last = ex_const(em->x, whole);
    em_if_begin(em, &iff, em_cond(em, ex_lt(em->x, block, last)));
    tile_pieces(em, t, em_pin(em, block, 0, whole - 1), t->nr, 0);
    em_if_end(em, &iff);
    em_if_begin(em, &iff, em_cond(em, ex_eq(em->x, block, last)));
    tile_pieces(em, t, em_pin(em, last, whole, whole), rest_vectors, rest_lanes);
    em_if_end(em, &iff);
}

/* Panels that only a few tiles read come from memory as fast as that gives them, while the others compute: there each tile
 * asks for lines of the next block's panels, when these and its own fit the second-level cache. */
static void tile_ahead(struct em *em, struct tiling *t)
{
    int64_t points = 1, n, slice;
    em->ahead = (expr_id){0};
    bool groups = t->n->op == OP_CONV && node_int(t->n, "groups", 1) != 1;
    if (em->k->kind != KERNEL_CONTRACT || t->vec < 0 || !(t->fixed_b || t->flat) || groups)
        return;
    for (int32_t d = 0; d < t->t->rank; d++)
        if (d != t->vec && (!ex_is_const(em->x, t->t->dims[d], &n) || !mul_i64(points, n, &points)))
            return;
    int64_t steps = (int64_t)(tile_steps(em, t->n) / dot_group(em->m, t->n));
    if (points > FEW_POINTS || !mul_i64(steps, (int64_t)t->nr * em->mach.vector_bytes, &slice) ||
        slice > (int64_t)em->mach.l2_kib * 1024 * 5 / 16)
        return;
    expr_id tile = ex_div(em->x, t->row0, ex_const(em->x, t->tb));
    em->ahead_dim = t->vec;
    em->ahead = ex_mulc(em->x, ex_addc(em->x, ex_mod(em->x, tile, ex_const(em->x, t->nr)), t->nr), t->lanes);
}

/* What was chosen, for the remarks. */
static void choice_note(struct em *em, const struct tiling *t)
{
    em->k->choice = arena_printf(em->m->arena, "tiles of %u x %u points%s by %u vector%s of %u lanes%s", t->tb, t->ta, t->flat ? " of whole images" : "", t->nr,
                                 t->nr == 1 ? "" : "s", t->lanes,
                                 em->ahead.i ? ", panels asked for a block early" : "");
}

static bool emit_tiled(struct em *em)
{
    struct tiling t;
    struct loop loops[RANK_MAX + 4];
    struct em_for par;
    uint32_t n_loops = 0, block_at = 0, b_at = 0;
    struct tile_choice c = tile_choose(em);
    t = (struct tiling){.n = graph_node(em->g, em->k->anchor), .out = em->k->domain, .vec = c.vec, .a = c.a,
                        .b = c.b, .lanes = c.lanes, .nr = c.nr, .ta = c.ta, .tb = c.tb, .flat = c.flat};
    t.t = value_type(em->g, t.n->out[0]);
    for (int32_t d = 0; d < t.t->rank; d++) {
        t.idx[d] = ex_const(em->x, 0);
        if (d != t.vec && d != t.a && d != t.b)
            loops[n_loops++] = (struct loop){d, t.t->dims[d], {0}};
    }
    int64_t n = 0;
    if (t.vec >= 0) {
        bool known = ex_is_const(em->x, t.t->dims[t.vec], &n);
        if (!known)
            t.nr = 1;
        block_at = n_loops;
        loops[n_loops++] = (struct loop){-1, ex_ceildiv(em->x, t.t->dims[t.vec],
                                                        ex_const(em->x, (int64_t)t.nr * t.lanes)), {0}};
    }
    int64_t nb = 0;
    bool split_b = !t.flat && t.b >= 0 && ex_is_const(em->x, t.t->dims[t.b], &nb) && nb % t.tb == 0;
    if (split_b) {   /* rows divide evenly: parallel over them */
        b_at = n_loops;
        loops[n_loops++] = (struct loop){-1, ex_const(em->x, nb / t.tb), {0}};
    }
    if (t.flat) {
        b_at = n_loops;
        loops[n_loops++] = (struct loop){-1, ex_const(em->x, (flat_points(em, &t) + t.ta - 1) / t.ta), {0}};
    }
    em_parallel_open(em, &par, loops, n_loops);
    for (uint32_t i = 0; i < n_loops; i++)
        if (loops[i].dim >= 0)
            t.idx[loops[i].dim] = loops[i].var;
    if (split_b || t.flat)
        t.row0 = ex_mulc(em->x, loops[b_at].var, t.tb);
    t.fixed_b = split_b;
    tile_ahead(em, &t);
    choice_note(em, &t);
    tile_vectors(em, &t, t.vec >= 0 ? loops[block_at].var : ex_const(em->x, 0));
    em_parallel_end(em, &par);
    em->k->ns = c.ns;
    em->k->flops = c.flops;
    return !em->failed;
}

/* ---- scan and scatter ---------------------------------------------------------------------------------------------------- */

static bool emit_scan(struct em *em)
{
    const struct node *n = graph_node(em->g, em->k->anchor);
    const struct type *t = value_type(em->g, n->out[0]);
    int32_t axis = (int32_t)node_int(n, "axis", 0);
    const char *monoid = node_str(n, "monoid", "sum");
    bool exclusive = node_int(n, "exclusive", 0), reverse = node_int(n, "reverse", 0);
    struct loop loops[RANK_MAX];
    struct em_for par, l;
    expr_id idx[RANK_MAX], zero = ex_const(em->x, 0), one = ex_const(em->x, 1);
    uint32_t n_loops = 0;
    for (int32_t d = 0; d < t->rank; d++)
        if (d != axis)
            loops[n_loops++] = (struct loop){d, t->dims[d], {0}};
    em_parallel_open(em, &par, loops, n_loops);
    for (uint32_t i = 0; i < n_loops; i++)
        idx[loops[i].dim] = loops[i].var;
    lval init = em_const(em, em_reg_elem(t->elem), 1, !strcmp(monoid, "prod"), !strcmp(monoid, "prod")), last;
    expr_id i = em_for_begin(em, &l, zero, t->dims[axis], 1, &init, 1);
    idx[axis] = reverse ? ex_sub(em->x, ex_addc(em->x, t->dims[axis], -1), i) : i;
    lval before = l.params[0];
    lval after = em_op2(em, em_monoid(monoid, em_reg_elem(t->elem)), before, em_value(em, n->in[0], idx, one));
    em_store(em, em->k->outs.data[0], idx, exclusive ? before : after);
    em_for_end(em, &l, &after, &last);
    em_parallel_end(em, &par);
    em->k->ns = extent_hint(em, t->dims[axis]) * 2;
    return !em->failed;
}

/* Loops over every point of dims; fn at each. */
typedef void point_fn(struct em *, const struct node *, const expr_id *idx);
static void each_point(struct em *em, const struct node *n, const struct type *t, int32_t d, expr_id *idx, point_fn *fn)
{
    if (d == t->rank) {
        fn(em, n, idx);
        return;
    }
    struct em_for l;
    idx[d] = em_for_begin(em, &l, ex_const(em->x, 0), t->dims[d], 1, NULL, 0);
    each_point(em, n, t, d + 1, idx, fn);
    em_for_end(em, &l, NULL, NULL);
}

static void scatter_copy(struct em *em, const struct node *n, const expr_id *idx)
{
    em_store(em, em->k->outs.data[0], idx, em_value(em, n->in[0], idx, ex_const(em->x, 1)));
}

static void scatter_update(struct em *em, const struct node *n, const expr_id *idx)
{
    const struct type *x = value_type(em->g, n->in[0]), *it = value_type(em->g, n->in[1]);
    value_id out = em->k->outs.data[0];
    expr_id at[RANK_MAX], iat[RANK_MAX], one = ex_const(em->x, 1);
    const char *monoid = node_str(n, "monoid", "set");
    if (n->op == OP_SCATTER_ELEMENTS) {
        int64_t axis = node_int(n, "axis", 0);
        memcpy(at, idx, (size_t)x->rank * sizeof *at);
        at[axis] = em_loaded_index(em, n, em_value(em, n->in[1], idx, one), (struct em_point){idx, it->rank}, x->dims[axis], one);
    } else {
        int64_t depth = 0;
        int32_t q = it->rank;
        ex_is_const(em->x, it->dims[q - 1], &depth);
        memcpy(iat, idx, (size_t)(q - 1) * sizeof *iat);
        for (int64_t j = 0; j < depth; j++) {
            iat[q - 1] = ex_const(em->x, j);
            at[j] = em_loaded_index(em, n, em_value(em, n->in[1], iat, one), (struct em_point){iat, q}, x->dims[j], one);
        }
        for (int32_t d = (int32_t)depth; d < x->rank; d++)
            at[d] = idx[q - 1 + d - depth];
    }
    lval v = em_value(em, n->in[2], idx, one);
    if (strcmp(monoid, "set")) {
        lval old = em_load_fresh(em, out, at);
        v = em_op2(em, em_monoid(monoid, em_reg_elem(x->elem)), old, v);
    }
    em_store(em, out, at, v);
}

static bool emit_scatter(struct em *em)
{
    const struct node *n = graph_node(em->g, em->k->anchor);
    struct em_for par;
    expr_id idx[RANK_MAX];
    em_parallel_begin(em, &par, ex_const(em->x, 1));
    each_point(em, n, value_type(em->g, n->out[0]), 0, idx, scatter_copy);
    each_point(em, n, value_type(em->g, n->in[2]), 0, idx, scatter_update);
    em_parallel_end(em, &par);
    em->k->ns = 1000;
    return !em->failed;
}

/* ---- halos ------------------------------------------------------------------------------------------------------------------- */

static void halo_fill(struct em *em, value_id v, int32_t d, expr_id *idx, bool border);

static void halo_range(struct em *em, value_id v, int32_t d, expr_id *idx, expr_id lo, expr_id hi, bool border)
{
    struct em_for l;
    if (ex_cmp_lt(em->x, lo, hi) == FALSE_)
        return;
    idx[d] = em_for_begin(em, &l, lo, hi, 1, NULL, 0);
    halo_fill(em, v, d + 1, idx, border);
    em_for_end(em, &l, NULL, NULL);
}

/* Zeros at every position of dims d.. that lies outside the value in some dim. */
static void halo_fill(struct em *em, value_id v, int32_t d, expr_id *idx, bool border)
{
    const struct storage *s = &em->m->storage[v.i];
    const struct type *t = value_type(em->g, v);
    if (d == t->rank) {
        if (border)
            em_store(em, v, idx, em_const(em, em_reg_elem(t->elem), 1, 0, 0));
        return;
    }
    expr_id zero = ex_const(em->x, 0), lo = ex_const(em->x, -s->halo[d]), hi = ex_addc(em->x, t->dims[d], s->halo[s->rank + d]);
    if (border) {
        halo_range(em, v, d, idx, lo, hi, true);
        return;
    }
    halo_range(em, v, d, idx, lo, zero, true);
    halo_range(em, v, d, idx, t->dims[d], hi, true);
    if (d + 1 < t->rank)
        halo_range(em, v, d, idx, zero, t->dims[d], false);
}

static bool emit_halo(struct em *em)
{
    value_id v = em->k->outs.data[0];
    const struct type *t = value_type(em->g, v);
    uint32_t lanes = vector_lanes(em, v);
    struct loop loops[2] = {{0, t->dims[0], {0}}, {1, ex_ceildiv(em->x, t->dims[1], ex_const(em->x, lanes)), {0}}};
    struct em_for par;
    expr_id idx[RANK_MAX];
    bool blocked = em->m->storage[v.i].dim[1].block != 0;
    em_parallel_open(em, &par, loops, 2);
    idx[0] = loops[0].var;
    expr_id base = ex_mulc(em->x, loops[1].var, lanes);
    /* Blocks are stored whole, so their last lanes may be written too; row-major channels end at the last one. */
    lval mask = blocked ? (lval){0} : em_tail_mask(em, ex_sub(em->x, t->dims[1], base), lanes);
    idx[1] = ex_add(em->x, base, em_lane(em, lanes, mask));
    halo_fill(em, v, 2, idx, false);
    em_parallel_end(em, &par);
    em->k->ns = 200;
    return !em->failed;
}

/* ---- the pass ---------------------------------------------------------------------------------------------------------------- */

typedef bool template_fn(struct em *);
static template_fn *const templates[] = {
    [KERNEL_MAP] = emit_map, [KERNEL_REDUCE] = emit_tiled, [KERNEL_CONTRACT] = emit_tiled, [KERNEL_SCAN] = emit_scan,
    [KERNEL_SCATTER] = emit_scatter, [KERNEL_OPAQUE] = NULL, [KERNEL_CONTROL] = NULL, [KERNEL_HALO] = emit_halo,
};

bool schedule(struct module *m, const struct machine *mach, const char *suffix)
{
    struct arena scratch;    /* of one kernel */
    bool ok = true;
    arena_init(&scratch, m->ctx);
    for (uint32_t i = 0; ok && i < m->kernels.n; i++) {
        struct kernel *k = &m->kernels.data[i];
        struct em em;
        if (!templates[k->kind])
            continue;
        template_fn *emit = k->winograd ? emit_winograd : templates[k->kind];
        ok = em_begin(&em, m, k, mach, &scratch, arena_printf(&scratch, "k%u%s", i, suffix)) && emit(&em) && em_finish(&em);
        arena_release(&scratch);
    }
    return ok && m->ctx->fail == FAIL_NONE;
}
