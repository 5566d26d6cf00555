/* The template of anchors (conv, dot, window, reduce): TA x TB x NR points at once (emit/reduce.c). With accumulators
 * in registers this is the micro-kernel; the stored value is evaluated at the same points (epilogue).
 */
#include "passes/emit/tiled.h"

/* ---- partial results of a row ------------------------------------------------------------------------------------ */

/* The second result: of the first one's rows, or of the anchor's operand (layout/fuse_partials.c). */
static const struct node *second_node(const struct em *em, bool of_rows)
{
    const struct node *n = em->k->outs.n > 1 ? value_node(em->g, em->k->outs.data[1]) : NULL;
    return n && (n->in[0].i == em->k->outs.data[0].i) == of_rows ? n : NULL;
}

static const struct node *partial_node(const struct em *em)
{
    return second_node(em, true);
}

uint32_t piece_lanes(const struct em *em, const struct tiling *t, uint32_t piece)
{
    uint32_t lanes = em_expr_lanes(em, t->piece[piece]);
    return lanes ? lanes : 1;
}

static expr_id partial_at(struct em *em, const struct tiling *t, uint32_t piece)
{
    return ex_const(em->x, (int64_t)piece * t->s->lanes);
}

void partial_begin(struct em *em, struct tiling *t)
{
    const struct node *n = partial_node(em);
    if (!n)
        return;
    t->combine = em_monoid(node_str(n, "monoid", "sum"), ELEM_F32);
    for (uint32_t p = 0; p < t->n_pieces; p++)
        em_scratch_store(em, t->partial, partial_at(em, t, p),
                         reduction_identity(em, t->combine, ELEM_F32, ELEM_F32, piece_lanes(em, t, p)));
}

void partial_end(struct em *em, struct tiling *t)
{
    for (uint32_t p = 0; p < t->n_pieces && partial_node(em); p++) {
        const expr_id at[3] = {t->idx[0], t->piece[p], t->idx[2]};
        em_store(em, em->k->outs.data[1], at,
                 em_scratch_load(em, t->partial, partial_at(em, t, p), piece_lanes(em, t, p)));
    }
}

/* The n stored values of each piece of the row, pairwise, or strictly one after another, as tiles of another length
 * have them, too; those of one point lie side by side. */
static void partial_add(struct em *em, struct tiling *t, lreg *v, uint32_t n)
{
    uint32_t every = t->n_pieces;
    for (uint32_t p = 0; p < every; p++) {
        bool pairs = !em->m->asked.strict;
        for (uint32_t step = 1; step < n && pairs; step *= 2)
            for (uint32_t i = 0; i + step < n; i += 2 * step)
                v[i * every + p] = em_op2(em, t->combine, v[i * every + p], v[(i + step) * every + p]);
        lreg sum = em_scratch_load(em, t->partial, partial_at(em, t, p), lf_type(em->f, v[p]).lanes);
        for (uint32_t i = 0; i < (pairs ? 1 : n); i++)
            sum = em_op2(em, t->combine, sum, v[i * every + p]);
        em_scratch_store(em, t->partial, partial_at(em, t, p), sum);
    }
}

/* The rows of dynamic length in which ta points of an image from number a0 on are. The first point alone takes a
 * division: the next one is in the next row where the one before is the last of its own. */
static void flat_rows(struct em *em, const struct tiling *t, expr_id a0, uint32_t ta, expr_id *row)
{
    struct exprs *x = em->x;
    expr_id columns = t->t->dims[t->s->a];
    for (uint32_t i = 0; i < ta; i++) {
        expr_id number = ex_addc(x, a0, i);
        expr_id of = i ? ex_add(x, row[i - 1], ex_eq(x, ex_sub(x, number, ex_mul(x, row[i - 1], columns)), columns))
                       : ex_div(x, number, ex_max(x, columns, ex_const(x, 1))); /* without columns, there is no tile */
        row[i] = em_pin(em, of, 0, INT64_MAX);
    }
}

/* From the number p[a] of a point to its row and column. */
static void flat_point(struct em *em, const struct tiling *t, expr_id row, expr_id *p)
{
    struct exprs *x = em->x;
    expr_id number = p[t->s->a], columns = t->t->dims[t->s->a];
    p[t->s->b] = t->even ? ex_div(x, number, columns) : row;
    p[t->s->a] = t->even ? ex_mod(x, number, columns) : ex_sub(x, number, ex_mul(x, row, columns));
}

/* Are so many points of a tile of `size` along the dim what is left of a dynamic extent? */
static bool is_rest(const struct em *em, const struct tiling *t, int32_t dim, uint32_t points, uint32_t size)
{
    return dim >= 0 && points < size && !ex_is_const(em->x, tile_extent(em->x, t->t, t->s, dim), &(int64_t){0});
}

expr_id *tile_point(struct em *em, const struct tiling *t, expr_id a, expr_id b, uint32_t piece)
{
    expr_id *p = arena_copy(em->arena, t->idx, sizeof t->idx);
    if (t->s->vec >= 0)
        p[t->s->vec] = t->piece[piece];
    if (t->s->a >= 0)
        p[t->s->a] = a;
    if (t->s->b >= 0)
        p[t->s->b] = b;
    if (t->s->flat && t->even)
        flat_point(em, t, (expr_id){0}, p);
    return p;
}

uint32_t points_of_tile(struct em *em, const struct tiling *t, const struct tile_at *at, uint32_t tb, expr_id **points)
{
    expr_id row[EM_POINTS] = {{0}};
    uint32_t n = 0;
    if (t->s->flat && !t->even)
        flat_rows(em, t, at->a, at->ta, row);
    for (uint32_t j = 0; j < tb; j++)
        for (uint32_t i = 0; i < at->ta; i++)
            for (uint32_t v = 0; v < t->n_pieces; v++) {
                points[n] = tile_point(em, t, ex_addc(em->x, at->a, i), ex_addc(em->x, at->b, j), v);
                if (t->s->flat && !t->even)
                    flat_point(em, t, row[i], points[n]);
                n++;
            }
    return n;
}

static void tile_body(struct em *em, struct tiling *t, expr_id a0, uint32_t ta, expr_id b0, uint32_t tb);

/* The same rows by one whole vector after the other. */
static void tile_by_vector(struct em *em, struct tiling *t, const struct tile_at *at, uint32_t tb)
{
    struct em_for l;
    uint32_t vectors = t->n_pieces;
    expr_id first = t->piece[0], v = em_for_begin(em, &l, ex_const(em->x, 0), ex_const(em->x, vectors), NULL, 0);
    t->n_pieces = 1;
    t->piece[0] = ex_add(em->x, first, ex_mulc(em->x, v, t->s->lanes));
    tile_body(em, t, at->a, at->ta, at->b, tb);
    em_for_end(em, &l, NULL, NULL);
    t->n_pieces = vectors;
    t->piece[0] = first;
}

static void tile_body(struct em *em, struct tiling *t, expr_id a0, uint32_t ta, expr_id b0, uint32_t tb)
{
    const struct tile_at at = {a0, b0, ta};
    expr_id *points[EM_POINTS];
    lreg acc[EM_POINTS], both[2] = {{0}};
    const struct node *nodes[2] = {t->n, second_node(em, false)};
    struct em_interleave w;
    bool rest = is_rest(em, t, t->s->a, ta, t->s->ta), tiles = t->s->matmul && !(rest && ta < MATMUL_COLUMNS);
    em->rest = !tiles && (rest || is_rest(em, t, t->s->b, tb, t->s->tb));
    if (tiles && (!dot_scaled(t->n) || t->n_pieces > 1)) {
        if (dot_scaled(t->n))
            tile_by_vector(em, t, &at, tb);
        else
            matmul_body(em, t, &at, tb);
        return;
    }
    expr_id cond = ex_const(em->x, 1);
    uint32_t n = points_of_tile(em, t, &at, tb, points);
    if (tiles) {
        matmul_scaled(em, t, &at, n, points, acc);
    } else if (t->k.sums.i) {
        if (!block_tile(em, t, &at, n, points, acc))
            return;
    } else if (n == 1 && t->s->vec < 0) {
        em_reduce_siblings(em, nodes, nodes[1] ? 2 : 1, points[0], cond, both);
        acc[0] = both[0];
    } else {
        em_reduce_points(em, t->n, n, points, cond, acc);
    }
    for (uint32_t i = 0; i < n && nodes[1]; i++)
        em_store(em, em->k->outs.data[1], points[i],
                 both[1].i ? both[1] : em_value(em, em->k->outs.data[1], points[i], cond));
    if (t->s->epilogue) {
        epilogue_of(em, t, &at, tb, acc);
        return;
    }
    em_interleave_begin(em, &w);
    for (uint32_t i = 0; i < n && !em->failed; i++) {
        acc[i] = tile_store(em, points[i], acc[i]);
        em_interleave_next(em, &w);
    }
    em_interleave_end(em, &w, t->s->interleave, t->s->interleave_least);
    if (partial_node(em) && !em->failed)
        partial_add(em, t, acc, n / t->n_pieces);
}

/* Of the rows at hand whole tiles only, or what these leave. */
static void tile_part(struct em *em, const struct tiling *t, uint32_t size, enum tile_rest rest, em_tile_fn *fn,
                      void *user)
{
    struct exprs *x = em->x;
    expr_id n = tile_extent(x, t->t, t->s, t->s->a), from = ex_const(x, 0);
    if (t->s->split && t->s->a == t->split_dim) {
        from = ex_mulc(x, t->first, size);
        n = ex_min(x, ex_sub(x, n, from), ex_const(x, t->s->split * size));
    }
    expr_id whole = ex_mulc(x, ex_div(x, n, ex_const(x, size)), size);
    if (t->which == WHOLE_TILES)
        em_tiles_from(em, from, whole, size, rest, fn, user);
    else
        em_tiles_from(em, ex_add(x, from, whole), ex_sub(x, n, whole), tile_below(size, rest), rest, fn, user);
}

/* Tiles of a dim, as many as the part at hand has; -1: of one point. */
static void tile_split(struct em *em, struct tiling *t, int32_t dim, uint32_t size, em_tile_fn *fn, void *user)
{
    enum tile_rest rest = tile_rest(&em->site, t->n, t->s);
    if (dim < 0)
        fn(user, ex_const(em->x, 0), 1);
    else if (t->which && dim == t->s->a)
        tile_part(em, t, size, rest, fn, user);
    else if (t->s->split && dim == t->split_dim)
        em_tiles_part(em, tile_extent(em->x, t->t, t->s, dim), size, rest, t->first, t->s->split, fn, user);
    else
        em_tiles(em, tile_extent(em->x, t->t, t->s, dim), size, rest, fn, user);
}

static expr_id dim_tiles(struct em *em, const struct tiling *t, int32_t dim, uint32_t size)
{
    return dim < 0 ? ex_const(em->x, 1) : ex_ceildiv(em->x, t->t->dims[dim], ex_const(em->x, size));
}

struct b_tile {
    struct em *em;
    struct tiling *t;
    expr_id at;
    uint32_t count;
};
/* The panels that the tile at hand prefetches. */
static void tile_ahead(const struct b_tile *b, expr_id at, uint32_t count)
{
    struct em *em = b->em;
    struct tiling *t = b->t;
    struct exprs *x = em->x;
    expr_id in_a = dim_tiles(em, t, t->s->a, t->s->ta), in_b = dim_tiles(em, t, t->s->b, t->s->tb);
    expr_id row = ex_div(x, b->at, ex_const(x, b->count)), column = ex_div(x, at, ex_const(x, count));
    int64_t tiles = 0;
    if (t->k.sums.i && t->s->split) { /* the next block of the sums: each part goes through it by itself */
        bool by_b = t->split_dim == t->s->b;
        *(by_b ? &row : &column) = ex_sub(x, by_b ? row : column, t->first);
        *(by_b ? &in_b : &in_a) = ex_const(x, t->s->split);
    }
    bool open = !ex_is_const(x, ex_mulc(x, ex_mul(x, in_a, in_b), t->lines), &tiles);
    if (open) { /* smaller tiles end the rows */
        row = ex_ceildiv(x, b->at, ex_const(x, t->s->tb));
        column = ex_ceildiv(x, at, ex_const(x, t->s->ta));
    }
    expr_id tile = ex_add(x, ex_mul(x, ex_add(x, ex_mul(x, t->line, in_b), row), in_a), column);
    if (open)
        ahead_open_tile(em, t, tile, count);
    else
        ahead_tile(em, t, tile, tiles);
}

static void tile_a(void *user, expr_id at, uint32_t count)
{
    const struct b_tile *b = user;
    if ((b->t->s->early || b->t->s->near) && !b->t->fixed_b)
        tile_ahead(b, at, count);
    tile_body(b->em, b->t, at, count, b->at, b->count);
}

void tile_b(struct em *em, struct tiling *t, expr_id at, uint32_t count)
{
    tile_split(em, t, t->s->a, t->s->ta, tile_a, &(struct b_tile){em, t, at, count});
}

struct tile_call {
    struct em *em;
    struct tiling *t;
};

static void tile_row(void *user, expr_id at, uint32_t count)
{
    const struct tile_call *c = user;
    tile_b(c->em, c->t, at, count);
}

static void tile_points(void *user, expr_id at, uint32_t count)
{
    const struct tile_call *c = user;
    if (c->t->s->early && !c->t->even)
        ahead_open_tile(c->em, c->t, ex_ceildiv(c->em->x, at, ex_const(c->em->x, c->t->s->ta)), count);
    tile_body(c->em, c->t, at, count, ex_const(c->em->x, 0), 1);
}

/* Tile number row0. */
static void tile_flat(struct em *em, struct tiling *t)
{
    struct even e = tile_flat_split(em->x, t->t, t->s);
    em_tile_number(em, &e, t->row0, tile_points, &(struct tile_call){em, t});
}

/* The tiles of a chunk. */
static void tile_chunk(struct em *em, struct tiling *t)
{
    struct em_for l;
    expr_id first = t->row0;
    t->row0 = ex_add(em->x, first, em_for_begin(em, &l, ex_const(em->x, 0), t->here, NULL, 0));
    bool part = t->k.sums.i && t->s->split;
    int64_t tiles = part ? t->s->split : tile_flat_split(em->x, t->t, t->s).tiles;
    expr_id number = part ? ex_sub(em->x, t->row0, first) : t->row0;
    ahead_tile(em, t, ex_add(em->x, ex_mulc(em->x, t->line, tiles), number), t->lines * tiles);
    tile_flat(em, t);
    em_for_end(em, &l, NULL, NULL);
    t->row0 = first;
}

/* All rows of the tile's block of vectors. */
static void tile_rows(struct em *em, struct tiling *t)
{
    if (t->s->windows)
        staged_rows(em, t);
    else if (t->s->flat && !t->even)
        tile_split(em, t, t->s->a, t->s->ta, tile_points, &(struct tile_call){em, t});
    else if (t->s->chunk || (t->s->flat && (t->k.sums.i || t->s->split)))
        tile_chunk(em, t);
    else if (t->s->flat)
        tile_flat(em, t);
    else if (t->fixed_b)
        tile_b(em, t, t->row0, t->s->tb);
    else
        tile_split(em, t, t->s->b, t->s->tb, tile_row, &(struct tile_call){em, t});
}

/* Whole tiles by tile registers, if there are any, which read the second operand from scratch; then the rest of the
 * rows, which compute it for themselves. */
static void tile_rows_unpacked(struct em *em, struct tiling *t, expr_id base)
{
    struct exprs *x = em->x;
    struct em_if iff;
    bool open = tile_rest(&em->site, t->n, t->s) == REST_MATMUL;
    expr_id some = ex_le(x, ex_const(x, t->s->ta), tile_extent(x, t->t, t->s, t->s->a));
    if (open)
        em_if_begin(em, &iff, em_cond(em, some));
    t->which = open ? WHOLE_TILES : ALL_TILES;
    panel_decode(em, t, base);
    tile_rows(em, t);
    if (open) {
        em_if_end(em, &iff);
        t->which = REST_OF_TILES;
        tile_rows(em, t);
    }
    t->which = ALL_TILES;
}

/* All rows, of few of which each computes the second operand that the kernel computes, of many none. */
static void tile_rows_or_decoded(struct em *em, struct tiling *t, expr_id base)
{
    struct em_if iff;
    if (matmul_unpacks(em->m, t->n, t->s)) {
        tile_rows_unpacked(em, t, base);
        return;
    }
    expr_id many = t->s->decode ? ex_lt(em->x, ex_const(em->x, t->s->decode), decode_points(em->x, t->n, t->t, t->s))
                                : ex_const(em->x, 0);
    enum truth is_many = ex_truth(em->x, many);
    if (is_many != UNKNOWN_) {
        if (is_many == TRUE_)
            panel_decode(em, t, base);
        tile_rows(em, t);
        return;
    }
    lreg cond = em_cond(em, many);
    em_if_begin(em, &iff, cond);
    panel_decode(em, t, base);
    tile_rows(em, t);
    em_if_end(em, &iff);
    em_if_begin(em, &iff, em_op1(em, L_NOT, cond));
    tile_rows(em, t);
    em_if_end(em, &iff);
}

static void tile_pieces(struct em *em, struct tiling *t, expr_id block, uint32_t vectors, uint32_t rest_lanes)
{
    expr_id base = ex_mulc(em->x, block, (int64_t)t->s->nr * t->s->lanes);
    uint32_t lanes[COUNT_OF(t->piece)];
    t->n_pieces = em_pieces(em, base, vectors, rest_lanes, t->s->lanes, t->piece, lanes);
    if (t->s->windows) { /* row by row */
        tile_rows(em, t);
        return;
    }
    partial_begin(em, t);
    tile_rows_or_decoded(em, t, base);
    partial_end(em, t);
}

/* Of a dynamic number of points, the vector that begins at `base`: less its lanes past the end. */
static void tile_open_vector(struct em *em, struct tiling *t, expr_id base)
{
    lreg mask = em_tail_mask(em, ex_sub(em->x, t->t->dims[t->s->vec], base), t->s->lanes);
    t->piece[0] = ex_add(em->x, base, em_lane(em, t->s->lanes, mask));
    t->n_pieces = 1;
    tile_rows(em, t);
}

/* A whole block of a dynamic number of points, or the vectors of the last one, one by one. */
static void tile_open_block(struct em *em, struct tiling *t, expr_id block)
{
    struct exprs *x = em->x;
    struct em_if iff;
    struct em_for l;
    expr_id base = ex_mulc(x, block, (int64_t)t->s->nr * t->s->lanes), lanes = ex_const(x, t->s->lanes);
    expr_id left = ex_sub(x, t->t->dims[t->s->vec], base);
    lreg whole = em_cond(em, ex_le(x, ex_const(x, (int64_t)t->s->nr * t->s->lanes), left));
    em_if_begin(em, &iff, whole);
    tile_pieces(em, t, block, t->s->nr, 0);
    em_if_end(em, &iff);
    em_if_begin(em, &iff, em_op1(em, L_NOT, whole));
    expr_id i = em_for_begin(em, &l, ex_const(x, 0), ex_ceildiv(x, left, lanes), NULL, 0);
    tile_open_vector(em, t, ex_add(x, base, ex_mul(x, i, lanes)));
    em_for_end(em, &l, NULL, NULL);
    em_if_end(em, &iff);
}

/* Blocks of NR vectors along vec: whole ones, then what is left. */
void tile_vectors(struct em *em, struct tiling *t, expr_id block)
{
    int64_t n;
    if (t->s->vec < 0) {
        t->n_pieces = 1;
        tile_rows(em, t);
        return;
    }
    if (!ex_is_const(em->x, t->t->dims[t->s->vec], &n)) {
        if (t->s->nr == 1)
            tile_open_vector(em, t, ex_mulc(em->x, block, t->s->lanes));
        else
            tile_open_block(em, t, block);
        return;
    }
    int64_t width = (int64_t)t->s->nr * t->s->lanes, whole = n / width, rest = n % width;
    uint32_t rest_vectors = (uint32_t)(rest / t->s->lanes), rest_lanes = (uint32_t)(rest % t->s->lanes);
    if (!rest) {
        tile_pieces(em, t, block, t->s->nr, 0);
        return;
    }
    if (!whole) {
        tile_pieces(em, t, ex_const(em->x, 0), rest_vectors, rest_lanes);
        return;
    }
    struct em_if iff;
    expr_id last = ex_const(em->x, whole);
    em_if_begin(em, &iff, em_cond(em, ex_lt(em->x, block, last)));
    tile_pieces(em, t, em_pin(em, block, 0, whole - 1), t->s->nr, 0);
    em_if_end(em, &iff);
    em_if_begin(em, &iff, em_cond(em, ex_eq(em->x, block, last)));
    tile_pieces(em, t, em_pin(em, last, whole, whole), rest_vectors, rest_lanes);
    em_if_end(em, &iff);
}

/* ---- the kernel -------------------------------------------------------------------------------------------------- */

/* The parallel loops: what is not tiled, blocks of vectors, then tiles or chunks of tiles. */
struct tile_loops {
    struct loop loop[RANK_MAX + 4];
    uint32_t n, block, rows;
};

static void loop_add(struct tile_loops *l, int32_t dim, expr_id extent)
{
    l->loop[l->n++] = (struct loop){dim, extent, {0}};
}

static expr_id strip_count(struct em *em, const struct tiling *t)
{
    return ex_ceildiv(em->x, ex_const(em->x, tile_count(em->x, t->t, t->s)), ex_const(em->x, t->s->chunk));
}

static struct tile_loops loops_of(struct em *em, struct tiling *t, expr_id blocks)
{
    struct tile_loops l = {.n = 0};
    bool late = t->s->lines_last, strips = t->s->stage_columns > 0;
    for (int32_t d = 0; d < t->t->rank; d++)
        if (d != t->s->vec && d != t->s->a && d != t->s->b && !(late && tile_is_line(t->n, t->s, d)))
            loop_add(&l, d, t->t->dims[d]);
    if (strips) { /* all channels of one strip, whose operand is in L2 by then, before the next one */
        l.rows = l.n;
        loop_add(&l, -1, strip_count(em, t));
        l.block = l.n;
        loop_add(&l, -1, blocks);
        return l;
    }
    l.block = l.n;
    if (t->s->k_block) {
        loop_add(&l, -1, tile_block_indices(em->x, t->t, t->s));
        l.rows = l.n;
        if (t->s->split)
            loop_add(&l, -1, tile_parts(em->x, t->t, t->s));
        return l;
    }
    if (t->s->vec >= 0 && (!t->s->chunk || t->s->by_piece))
        loop_add(&l, -1, blocks);
    for (int32_t d = 0; late && d < t->t->rank; d++)
        if (tile_is_line(t->n, t->s, d))
            loop_add(&l, d, t->t->dims[d]);
    l.rows = l.n;
    if (t->s->windows) {
        loop_add(&l, -1, strip_count(em, t));
        return l;
    }
    t->fixed_b = tile_rows_apart(em->x, t->t, t->s);
    if (t->fixed_b)
        loop_add(&l, -1, ex_const(em->x, tile_count(em->x, t->t, t->s)));
    else if (t->even && !t->s->split)
        loop_add(&l, -1,
                 ex_ceildiv(em->x, ex_const(em->x, tile_flat_split(em->x, t->t, t->s).tiles),
                            ex_const(em->x, t->s->chunk ? t->s->chunk : 1)));
    if (t->s->split)
        loop_add(&l, -1, tile_parts(em->x, t->t, t->s));
    return l;
}

/* Which rows, and which part of the tiles, the last loops have. */
static void rows_begin(struct em *em, struct tiling *t, const struct tile_loops *l)
{
    struct exprs *x = em->x;
    const struct tile_schedule *s = t->s;
    int64_t tiles = t->even ? tile_count(x, t->t, s) : 0;
    t->row0 = ex_const(x, 0);
    t->here = ex_const(x, tiles);
    if (s->split)
        t->first = ex_mulc(x, l->loop[l->n - 1].var, s->split);
    if (t->even && s->split) {
        t->row0 = t->first;
        t->here = ex_min(x, ex_const(x, s->split), ex_sub(x, t->here, t->first));
    } else if (t->fixed_b || t->even) {
        if (l->rows < l->n)
            t->row0 = ex_mulc(x, l->loop[l->rows].var, s->tb);
    }
    ahead_begin(em, t);
    if (t->fixed_b || (t->even && !s->split && !s->k_block))
        ahead_tile(em, t,
                   ex_add(x, ex_mulc(x, t->line, tile_count(x, t->t, s)), ex_div(x, t->row0, ex_const(x, s->tb))),
                   t->lines * tile_count(x, t->t, s));
}

/* Which of the lines after the loop over blocks is at hand; the first, if their number is dynamic: each
 * then prefetches what the next block reads. */
static void line_number(struct em *em, struct tiling *t, const struct tile_loops *l)
{
    int64_t n = 0;
    t->line = ex_const(em->x, 0);
    t->lines = 1;
    for (int32_t d = 0; d < t->t->rank && t->s->k_block; d++)
        if (tile_is_line(t->n, t->s, d) && ex_is_const(em->x, t->t->dims[d], &n))
            t->lines *= n;
    for (uint32_t i = l->block + 1; i < l->rows; i++) {
        t->line = ex_add(em->x, ex_mul(em->x, t->line, l->loop[i].extent), l->loop[i].var);
        if (!ex_is_const(em->x, l->loop[i].extent, &n) || !mul_i64(t->lines, n, &t->lines)) {
            t->line = ex_const(em->x, 0);
            t->lines = 1;
            return;
        }
    }
}

bool emit_tiled(struct em *em)
{
    struct em_parallel par;
    struct exprs *x = em->x;
    const struct tile_schedule *s = &em->schedule->tile;
    struct tiling t = {.s = s, .n = graph_node(em->g, em->k->anchor)};
    t.t = value_type(em->g, t.n->out[0]);
    t.even = tile_flat_even(x, t.t, s);
    t.split_dim = tile_split_dim(x, t.t, s);
    for (int32_t d = 0; d < t.t->rank; d++)
        t.idx[d] = ex_const(x, 0);
    expr_id blocks = tile_blocks(x, t.t, s);
    if (s->k_block)
        block_begin(em, &t);
    if (s->epilogue)
        epilogue_scratch(em, &t);
    matmul_scratch(em, &t);
    struct tile_loops l = loops_of(em, &t, blocks);
    if (partial_node(em))
        t.partial = em_scratch(em, ELEM_F32, (int64_t)s->nr * s->lanes);
    em_parallel_open(em, &par, l.loop, l.n);
    t.own_block = par.n == 0 && !s->chunk && !s->k_block && em->k->count.i == blocks.i;
    for (uint32_t i = 0; i < l.n; i++)
        if (l.loop[i].dim >= 0)
            t.idx[l.loop[i].dim] = l.loop[i].var;
    line_number(em, &t, &l);
    if (s->chunk) {
        staged_chunk(em, &t, l.loop[l.rows].var, l.loop[l.block].var, blocks);
    } else {
        rows_begin(em, &t, &l);
        if (s->k_block)
            block_vectors(em, &t, l.loop[l.block].var);
        else
            tile_vectors(em, &t, s->vec >= 0 ? l.loop[l.block].var : ex_const(x, 0));
    }
    em_parallel_close(em, &par);
    return !em->failed;
}
