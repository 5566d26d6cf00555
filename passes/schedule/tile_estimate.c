/* What a tiled kernel takes: flops, ns of a parallel index and of the whole, sums of products in its code. */
#include "passes/schedule/tile_cost.h"

static uint64_t node_flops(const struct site *site, node_id id)
{
    const struct node *n = graph_node(site->g, id);
    const struct type *t = value_type(site->g, n->out[0]);
    uint64_t points = 1;
    for (int32_t d = 0; d < t->rank; d++)
        points *= (uint64_t)extent_counted(site->m, t->dims[d]);
    return 2 * points * anchor_steps(site, n, false);
}

uint64_t anchor_flops(const struct site *site)
{
    node_id product = site->k->form.product;
    return node_flops(site, site->k->anchor) + (product.i ? node_flops(site, product) : 0);
}

int64_t horizontal_cost(const struct site *site, const struct node *n)
{
    const struct machine *m = site->mach;
    uint64_t all = tile_steps(site, n);
    int64_t steps = all > INT32_MAX ? INT32_MAX : (int64_t)all;
    enum elem e = value_type(site->g, n->in[0])->elem;
    int64_t size = elem_size(e), lanes = machine_vector_lanes(m, e), line = steps * size / 64,
            vectors = (steps + lanes - 1) / lanes, rows;
    const struct type *y = value_type(site->g, n->out[0]);
    if (!ex_is_const(site->x, dims_product(site->x, y->dims, y->rank), &rows) || !mul_i64(rows, steps * size, &rows))
        rows = steps * size;
    int64_t adds = vectors * STEP / m->loads_per_cycle,
            lines = rows > budget(m, SHARE_L1_STAGED) ? line * RATE_STEP_L2_LINE : 0;
    return (adds > lines ? adds : lines) + RATE_HORIZONTAL * STEP;
}

/* The extent of a dim where the size is so large; dynamic in the code, if it depends on it. */
static struct anchor_extent extent_at(const struct site *site, const struct type *t, int32_t d,
                                      const struct size_at *at)
{
    struct anchor_extent e = anchor_extent(site, t, d);
    if (at->size.i && !e.known && ex_is_const(site->x, size_at(site->x, t->dims[d], at), &e.n))
        e = (struct anchor_extent){e.n, .known = true, .rests = true};
    return e;
}

/* All points along a and b of a block of vectors. */
static int64_t block_estimate(const struct site *site, const struct size_at *at, const struct tile_schedule *c)
{
    const struct node *n = graph_node(site->g, site->k->anchor);
    const struct type *t = value_type(site->g, n->out[0]);
    struct anchor_extent v = extent_at(site, t, c->vec, at), a = extent_at(site, t, c->a, at),
                         b = extent_at(site, t, c->b, at);
    const struct anchor_step step = anchor_step(site, n, c);
    int64_t vectors = (v.n + c->lanes - 1) / c->lanes, steps = step.n > INT32_MAX ? INT32_MAX : (int64_t)step.n;
    if (c->flat) {
        a = (struct anchor_extent){a.n * b.n, .known = a.known && b.known, .rests = a.rests};
        b = (struct anchor_extent){1, .known = true};
    }
    if (c->vec < 0 && reduce_horizontal(site->m, n))
        return a.n * horizontal_cost(site, n) / (RATE_CYCLES_PER_NS * STEP);
    int64_t blocks = vectors > c->nr ? (vectors + c->nr - 1) / c->nr : 1;
    bool open = c->matmul && matmul_open(site, c);
    int64_t by_tiles = c->matmul ? matmul_cost(site, c, vectors) / (blocks * RATE_CYCLES_PER_NS * STEP) : 0, ta = c->ta;
    int64_t unpack = matmul_unpacks(site->m, n, c) && a.n >= c->ta
                         ? c->nr * steps * RATE_TILE_UNPACK / RATE_CYCLES_PER_NS
                         : 0;
    if (c->matmul && !open)
        return by_tiles + unpack;
    if (open) { /* all tiles but those of the rest cost as much a row as the guess's */
        int64_t guess = matmul_rows(site, c), left = a.n % MATMUL_COLUMNS;
        by_tiles = by_tiles * (a.n - left) / guess + unpack;
        if (!left)
            return by_tiles;
        a = (struct anchor_extent){left, .known = true, .rests = true};
        ta = tile_below(MATMUL_COLUMNS, REST_MATMUL);
    }
    int64_t cost = tile_cost(a, b, vectors > 0 ? vectors : 1, ta, c->tb, c->nr, &step);
    if (anchor_emulated(site, n))
        cost *= RATE_DOT_STATEMENTS;
    int64_t each = cost / blocks;
    return by_tiles + steps * (each > 0 ? each : 1) / (RATE_CYCLES_PER_NS * STEP);
}

int64_t tile_whole(const struct site *site, const struct size_at *at, const struct tile_schedule *c)
{
    const struct node *n = graph_node(site->g, site->k->anchor);
    const struct type *t = value_type(site->g, n->out[0]);
    int64_t whole = block_estimate(site, at, c);
    if (c->chunk || !mul_i64(whole, extent_hint(site->x, size_at(site->x, tile_blocks(site->x, t, c), at)), &whole))
        return 0;
    for (int32_t d = 0; d < t->rank; d++)
        if (d != c->vec && d != c->a && d != c->b &&
            !mul_i64(whole, extent_hint(site->x, size_at(site->x, t->dims[d], at)), &whole))
            return 0;
    return whole;
}

int64_t tile_code(const struct site *site, const struct tile_schedule *c)
{
    const struct node *n = graph_node(site->g, site->k->anchor);
    const struct type *t = value_type(site->g, n->out[0]);
    struct anchor_extent v = anchor_extent(site, t, c->vec), a = anchor_extent(site, t, c->a),
                         b = anchor_extent(site, t, c->b);
    enum tile_rest rest = tile_rest(site, n, c);
    return tile_body_points(a, c->ta, rest) * tile_body_points(b, c->tb, rest) * tile_body_vectors(v.n, c);
}

int64_t tile_estimate(const struct site *site, const struct tile_schedule *c)
{
    const struct node *n = graph_node(site->g, site->k->anchor);
    const struct type *t = value_type(site->g, n->out[0]);
    int64_t lots = 1, parts = 1, extent = 0; /* an index is lots / parts of the points of a block of vectors */
    for (int32_t d = 0; d < t->rank && c->k_block; d++)
        if (tile_is_line(n, c, d) && ex_is_const(site->x, t->dims[d], &extent))
            lots *= extent;
    lots *= c->k_columns ? c->k_columns : 1;
    if (c->chunk) {
        lots = (int64_t)c->chunk * (c->by_piece ? 1 : extent_hint(site->x, tile_blocks(site->x, t, c)));
        parts = tile_count(site->x, t, c);
    } else if (!c->k_block && ((tile_flat_even(site->x, t, c) && !c->split) || tile_rows_apart(site->x, t, c))) {
        parts = tile_count(site->x, t, c);
    }
    parts *= tile_split_parts(site, c);
    double ns = (double)block_estimate(site, &(struct size_at){.n = 0}, c) * (double)lots /
                (double)(parts > 0 ? parts : 1);
    return RATE_INDEX_NS + (int64_t)ns + stage_ns(site, c);
}
