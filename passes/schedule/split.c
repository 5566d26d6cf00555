/* Parts of the rows of a contraction. A block of vectors of a product has all rows, and a large product few blocks:
 * where there are more threads than blocks, each block's rows are cut into parts that are parallel indices of their
 * own. The parts of a block follow one another, so that a thread alone finds its panels where the part before has left
 * them, and the order of each sum is what it was. For large contractions: in 14 of the 554 networks of ../shared/models
 * that compile, and in 13 of the 14 of `make bench`.
 */
#include "passes/schedule/decisions.h"

static int64_t ceil_of(int64_t n, int64_t d)
{
    return (n + d - 1) / d;
}

bool tile_split_serves(const struct site *site, const struct tile_schedule *c)
{
    const struct type *t = value_type(site->g, graph_node(site->g, site->k->anchor)->out[0]);
    return !c->chunk && site->k->outs.n == 1 && (tile_flat_even(site->x, t, c) || tile_split_dim(site->x, t, c) >= 0);
}

/* Tiles that are cut; of an open extent a guess. */
static int64_t tiles_of(const struct site *site, const struct type *t, struct tile_schedule c)
{
    c.split = 1;
    return extent_hint(site->x, tile_parts(site->x, t, &c));
}

/* Parallel indices, as long as nothing is split. */
static int64_t indices_of(const struct site *site, const struct node *n, const struct type *t,
                          const struct tile_schedule *c)
{
    int64_t indices = extent_hint(site->x, tile_blocks(site->x, t, c));
    for (int32_t d = 0; d < t->rank; d++)
        if (d != c->vec && d != c->a && d != c->b && !(c->k_block && tile_is_line(n, c, d)) &&
            !mul_i64(indices, extent_hint(site->x, t->dims[d]), &indices))
            return INT64_MAX;
    if (!c->k_block && tile_rows_apart(site->x, t, c) && !mul_i64(indices, tile_count(site->x, t, c), &indices))
        return INT64_MAX;
    return indices;
}

void tile_split_choose(const struct site *site, struct tile_schedule *c)
{
    const struct node *n = graph_node(site->g, site->k->anchor);
    const struct type *t = value_type(site->g, n->out[0]);
    c->split = 0;
    if (site->k->kind != KERNEL_CONTRACT || (tile_flat_even(site->x, t, c) && !c->k_block) || c->decode ||
        !tile_split_serves(site, c))
        return;
    int64_t tiles = tiles_of(site, t, *c), indices = indices_of(site, n, t, c), ns = tile_estimate(site, c),
            parts = indices > 0 ? ceil_of(RATE_SPLIT_INDICES, indices) : 1;
    if (parts > ns / RATE_SPLIT_LEAST_NS)
        parts = ns / RATE_SPLIT_LEAST_NS;
    if (parts < 2 || tiles < 2 || indices >= RATE_SPLIT_INDICES / 2)
        return;
    c->split = parts < tiles ? ceil_of(tiles, parts) : 1;
}

int64_t tile_split_parts(const struct site *site, const struct tile_schedule *c)
{
    const struct type *t = value_type(site->g, graph_node(site->g, site->k->anchor)->out[0]);
    return c->split ? extent_hint(site->x, tile_parts(site->x, t, c)) : 1;
}
