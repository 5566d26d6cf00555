/* The epilogue of a register tile: straight-line code of each result, or a loop over the tile's rows.
 *
 * Where the number of rows is dynamic, a kernel has tiles of several sizes, 28 rows in all where whole tiles have 13,
 * and an exponential or an error function is some forty statements. The loop has the code once for each size of tile.
 * The sums go through scratch, which takes a store and a load of what the epilogue takes tens of statements for.
 * Products that no instruction computes take so long that this costs nothing.
 */
#include "passes/schedule/tile_cost.h"

enum {
    MATMUL_RESULTS = 8 /* of products by L_MATMUL, in a trip */,
    EMULATED_RESULTS = 4 /* of dot products without an instruction, in a trip */,
    STORE_CYCLES = 2 /* of a lane, stored by itself */
};

/* Are the lanes of a result apart in memory? Each is stored by itself then. */
static bool stores_apart(const struct site *site, const struct node *n, const struct tile_schedule *c)
{
    const struct type *t = value_type(site->g, n->out[0]);
    const struct storage *s = &site->m->fused.storage[site->k->outs.data[0].i];
    expr_id at[RANK_MAX], next[RANK_MAX], step, rest;
    if (c->vec < 0 || s->place == PLACE_NONE)
        return false;
    for (int32_t d = 0; d < t->rank; d++)
        at[d] = d == c->vec ? point_along(site, ex_const(site->x, c->lanes)) : ex_const(site->x, 0);
    sym_id lane = ex_as_sym(site->x, at[c->vec]);
    for (uint32_t v = 0; v < site->k->path.n; v++) {
        view_inverse(site->g, graph_node(site->g, site->k->path.data[v]), at, next);
        memcpy(at, next, sizeof next);
    }
    expr_id address = storage_address(site->x, s, at);
    return !ex_linear(site->x, address, lane, &step, &rest) || !ex_is(site->x, step, 1);
}

static expr_id points_of(const struct site *site, const struct node *n)
{
    const struct type *t = value_type(site->g, n->out[0]);
    return dims_product(site->x, t->dims, t->rank);
}

/* Cycles of a vector's epilogue: of the maps that have as many points as the anchor. */
static int64_t epilogue_cycles(const struct site *site, const struct node *anchor, const struct tile_schedule *c)
{
    int64_t cycles = stores_apart(site, anchor, c) ? STORE_CYCLES * c->lanes : 0;
    expr_id points = points_of(site, anchor);
    for (uint32_t i = 0; i < site->k->nodes.n; i++) {
        const struct node *n = graph_node(site->g, site->k->nodes.data[i]);
        cycles += op_shape(n->op) == SHAPE_MAP && points_of(site, n).i == points.i ? map_cycles(n->op) : 0;
    }
    return cycles;
}

bool epilogue_serves(const struct site *site, const struct tile_schedule *c)
{
    const struct node *n = graph_node(site->g, site->k->anchor);
    return c->matmul || ((n->op == OP_CONV || n->op == OP_DOT) && !c->chunk && site->k->outs.n == 1);
}

/* Are products of bytes several instructions, of vectors? */
static bool emulates_bytes(const struct site *site, const struct node *n)
{
    return anchor_emulated(site, n) && dot_kind_of(site->m, n) != DOT_BF16 && !site->mach->words;
}

void epilogue_choose(const struct site *site, struct tile_schedule *c)
{
    const struct node *n = graph_node(site->g, site->k->anchor);
    const struct type *t = value_type(site->g, n->out[0]);
    bool open = c->a >= 0 && !ex_is_const(site->x, tile_extent(site->x, t, c, c->a), &(int64_t){0});
    c->epilogue = 0;
    if (c->matmul && !dot_scaled(n))
        c->epilogue = MATMUL_RESULTS / c->nr;
    else if (emulates_bytes(site, n) && c->ta > 1 && epilogue_serves(site, c))
        c->epilogue = (EMULATED_RESULTS + c->nr - 1) / c->nr;
    else if (open && c->ta > 1 && epilogue_serves(site, c) && epilogue_cycles(site, n, c) >= RATE_EPILOGUE_LOOP)
        c->epilogue = 1;
}
