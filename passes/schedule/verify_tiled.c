/* The rules of tiled records' fields (fields.def). */
#include "passes/module/access_function.h"
#include "passes/module/choices.h"
#include "passes/schedule/fields.h"

static const struct node *anchor(const struct check *c)
{
    return graph_node(c->site->g, c->site->k->anchor);
}

static const struct type *result(const struct check *c)
{
    return value_type(c->site->g, anchor(c)->out[0]);
}

/* ---- what the layouts decided ------------------------------------------------------------------------------------ */

#define FOLLOWS(name, member)                       \
    RULE(name, c->s->tile.member == c->tile.member, \
         arena_printf(c->site->m->arena, "it follows from the layout, and is %lld", (long long)c->tile.member))
FOLLOWS(tile_vec, vec);
FOLLOWS(tile_lanes, lanes);
FOLLOWS(tile_a, a);
FOLLOWS(tile_b, b);
FOLLOWS(tile_flat, flat);
FOLLOWS(staged_piece, by_piece);
RULE(staged_rows, c->s->tile.windows == (c->tile.windows && c->s->tile.chunk),
     "it is 1 where rows of an operand are staged, else 0");

/* ---- the register tile ------------------------------------------------------------------------------------------- */

/* Points of dims a and b, both where they are numbered through; INT64_MAX: dynamic. */
static int64_t points_of(const struct check *c, int32_t a, int32_t b)
{
    int64_t points = 1, n;
    for (int i = 0; i < 2; i++) {
        int32_t d = i ? b : a;
        if (d < 0)
            continue;
        if (!ex_is_const(c->site->x, result(c)->dims[d], &n) || !mul_i64(points, n > 1 ? n : 1, &points))
            return INT64_MAX;
    }
    return points;
}

static const char *at_most(struct check *c, int64_t have, int64_t most)
{
    return have <= most
               ? NULL
               : arena_printf(c->site->m->arena, "the tile is larger than the result: at most %lld", (long long)most);
}

const char *rule_tile_rows(struct check *c)
{
    const struct tile_schedule *s = &c->s->tile;
    int64_t rows = s->flat ? 1 : points_of(c, s->b, -1);
    if (s->tb > rows)
        return at_most(c, s->tb, rows);
    if (!c->tile.windows || !s->chunk)
        return NULL;
    if (c->site->k->outs.n > 1)
        return unless(s->tb == 1, "it is 1: rows that are summed up come one by one");
    return unless(rows % s->tb == 0, "the rows are staged, and it has to divide their number");
}

const char *rule_tile_columns(struct check *c)
{
    const struct tile_schedule *s = &c->s->tile;
    if (s->vec < 0 && s->ta > 1)
        return "it is 1: the lanes of a point are along what is reduced";
    return at_most(c, s->ta, points_of(c, s->a, s->flat ? s->b : -1));
}

/* The sums of a tile and what they are multiplied with fit the registers. A dim of open extent has one vector. */
const char *rule_tile_vectors(struct check *c)
{
    const struct tile_schedule *s = &c->s->tile;
    int64_t width = s->lanes;
    bool open = s->vec < 0 || !ex_is_const(c->site->x, result(c)->dims[s->vec], &width);
    uint32_t piece = s->nr * s->lanes;
    if (s->nr > 1 && open && (s->vec < 0 || anchor(c)->op != OP_SEGMENTS))
        return "it is 1: the number of vectors is dynamic, or there are none";
    if (s->nr > 1 && !open && s->nr > (width + s->lanes - 1) / s->lanes)
        return at_most(c, s->nr, (width + s->lanes - 1) / s->lanes);
    if (!tile_fits(c->site, anchor(c), s))
        return arena_printf(
            c->site->m->arena,
            "the tile of %u x %u points does not fit the registers: take fewer vectors, rows or columns", s->tb, s->ta);
    return unless(!s->by_piece || !s->chunk ||
                      (piece <= CHANNEL_BLOCK && (CHANNEL_BLOCK % piece == 0 || piece >= width)),
                  "a staged piece is not a part of a block of 16 channels");
}

RULE(tile_matmul, !c->s->tile.matmul || matmul_serves(c->site, &c->s->tile),
     "this CPU has no tile registers, the operands lie otherwise, or tiles of that size are no products of 16 rows; "
     "here 0");

RULE(
    tile_epilogue,
    c->s->tile.epilogue ? epilogue_serves(c->site, &c->s->tile) : !c->s->tile.matmul || dot_scaled(anchor(c)),
    "it is 1 at least for products by tile registers without scales, and 0 for reductions, staged operands and second results");

RULE(tile_shares,
     !c->s->tile.shares ||
         (c->s->tile.early && anchor(c)->op == OP_DOT && c->s->tile.a >= 0 &&
          (c->s->tile.shares & (c->s->tile.shares - 1)) == 0 && points_of(c, c->s->tile.a, c->s->tile.b) == INT64_MAX),
     "it is a power of 2, of the next block's panels of a product of a dynamic number of rows; here 0");

RULE(tile_lines_last,
     !c->s->tile.lines_last || tile_shares_columns(c->site, anchor(c), &c->s->tile) ||
         tile_keeps_taps(c->site, anchor(c), &c->s->tile) || tile_keeps_points(anchor(c), &c->s->tile) ||
         (c->s->tile.k_block && tile_sums_rows(c->site, anchor(c), &c->s->tile)),
     "this is not a contraction whose rows share their columns, or its operand is staged; here 0");

/* ---- a staged operand -------------------------------------------------------------------------------------------- */

const char *rule_staged_tiles(struct check *c)
{
    struct tile_schedule s = c->s->tile;
    if (!s.chunk)
        return NULL;
    s.windows = c->tile.windows;
    s.by_piece = c->tile.by_piece;
    if (!c->site->k->form.staged.i || (!s.flat && !s.windows))
        return "no operand is staged here; here 0";
    return unless(stage_bytes(c->site, &s) <= CHUNK_BYTES_MOST,
                  "so many tiles take more scratch than 16 MiB a thread: take fewer");
}

const char *rule_staged_columns(struct check *c)
{
    const struct tile_schedule *s = &c->s->tile;
    if (!s->chunk || !c->site->k->form.product.i)
        return unless(!s->stage_columns, "they are points of a row of a staged contraction; here 0");
    return unless(stage_columns_fit(c->site, s->stage_columns, s->nr),
                  "they are points of a row of a staged contraction that the registers hold, 1 at least");
}

RULE(staged_ahead, !c->s->tile.stage_ahead || (c->s->tile.chunk && c->s->tile.flat),
     "it is of an operand that is staged by points; here 0");

/* ---- blocks, parts, prefetch ------------------------------------------------------------------------------------- */

/* A block of the reduced dim has whole units and is less than the dim; the sums of all points wait in scratch. */
const char *rule_tile_block(struct check *c)
{
    const struct tile_schedule *s = &c->s->tile;
    const struct type *t = result(c);
    struct k_dim k;
    int64_t sums = 1, extent;
    if (!s->k_block)
        return NULL;
    bool rows = tile_sums_rows(c->site, anchor(c), s);
    bool may = !s->matmul && (rows || tile_shares_columns(c->site, anchor(c), s)) && outer_k(c->site, anchor(c), &k);
    for (int32_t d = 0; may && d < t->rank; d++) {
        bool apart = d == s->vec || (rows && !tile_is_line(anchor(c), s, d));
        may = apart || (ex_is_const(c->site->x, t->dims[d], &extent) && mul_i64(sums, extent, &sums));
    }
    if (!may)
        return "these sums can't be cut into blocks; here 0";
    if (s->k_block >= k.extent || s->k_block % k.unit != 0)
        return arena_printf(c->site->m->arena, "a block is a multiple of %lld, below %lld", (long long)k.unit,
                            (long long)k.extent);
    sums = tile_block_points(c->site->x, anchor(c), t, s);
    if (!mul_i64(sums, (int64_t)s->nr * s->lanes * 4, &sums) || sums > CHUNK_BYTES_MOST)
        return "the sums between two blocks take more than 16 MiB; here 0";
    return unless(s->lines_last, "blocks need lines.last 1");
}

/* The sums of all columns wait in scratch. */
const char *rule_tile_columns_of_block(struct check *c)
{
    const struct tile_schedule *s = &c->s->tile;
    int64_t sums = tile_block_points(c->site->x, anchor(c), result(c), s), blocks;
    if (!s->k_columns)
        return NULL;
    if (!s->k_block || !tile_sums_rows(c->site, anchor(c), s) ||
        !ex_is_const(c->site->x, tile_blocks(c->site->x, result(c), s), &blocks))
        return "it is of a reduction in blocks, of a known number of columns; here 0";
    if (s->k_columns > blocks)
        return at_most(c, (uint32_t)s->k_columns, blocks);
    return unless(mul_i64(sums, s->k_columns * s->nr * s->lanes * 4, &sums) && sums <= CHUNK_BYTES_MOST,
                  "the sums between two blocks take more than 16 MiB: take fewer");
}

RULE(tile_split, !c->s->tile.split || tile_split_serves(c->site, &c->s->tile),
     "the tiles of this kernel can't be cut into parts; here 0");
RULE(tile_decode,
     !c->s->tile.decode ||
         (!c->s->tile.matmul && dot_group(c->site->m, anchor(c)) == 1 && decode_bytes(c->site, &c->s->tile)),
     "it is of a product whose second operand is computed, and takes at most 16 MiB a thread; here 0");

const char *rule_tile_prefetch(struct check *c)
{
    const struct tile_schedule *s = &c->s->tile;
    const struct node *n = anchor(c);
    bool panels = (n->op == OP_DOT || n->op == OP_CONV) &&
                  c->site->m->fused.storage[weight_whole(c->site->g, n->in[1]).i].place != PLACE_NONE;
    return unless((panels && !(s->matmul && (s->near || dot_scaled(n)))) || (!s->near && !s->early),
                  "it is of a stored second operand; here 0");
}

RULE(tile_next, !c->s->tile.next || next_serves(c->site, anchor(c), &c->s->tile),
     "it is of a product by a constant, of whose panels a step reads whole lines; here 0");
