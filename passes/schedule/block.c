/* What keeps the panels of a contraction near: the order of lines and blocks of vectors, blocks of a long K, prefetch.
 *
 * Long contractions of few points are done in blocks of their outermost reduced dim: all points at one block before
 * the next one, so that its panels and those of the next fit L2 together, and come from memory while this one is
 * computed. One parallel index does all blocks, so the order of its sums stays (split-K is passes/graph/split_k.c).
 */
#include "passes/module/choices.h"
#include "passes/module/compressed.h"
#include "passes/schedule/decisions.h"

enum {
    DECODE_MAPS = 2, /* of an element: less, as one conversion, is computed at each read, but ... */
    DECODE_ROWS = 6, /* ... where a tile has no more rows than this, which share a read */
    DECODE_TILES = 8, /* ... and there are more tiles than this */
    STEP_REGISTERS = 4 /* operands of a step, besides its sums */
};

/* A contraction whose second operand lies in panels: the points of its result that one block of vectors goes through,
 * and the bytes that it reads of the panels; 0 for others. Images and rows of several dims, of which there may be as
 * many as the run says, count as one where they lie outside of the blocks or are not known. */
struct slice {
    int64_t points, bytes;
    bool all; /* these are all points */
    bool dynamic; /* it has as many times so many points as the run says */
};

bool tile_shares_columns(const struct site *site, const struct node *n, const struct tile_schedule *c)
{
    bool groups = n->op == OP_CONV && node_int(n, "groups", 1) != 1;
    return site->k->kind == KERNEL_CONTRACT && c->vec >= 0 && c->a >= 0 && !c->chunk && !groups;
}

bool tile_keeps_taps(const struct site *site, const struct node *n, const struct tile_schedule *c)
{
    return site->k->kind == KERNEL_CONTRACT && c->vec >= 0 && !c->chunk && conv_depthwise(site->g, n);
}

bool tile_keeps_points(const struct node *n, const struct tile_schedule *c)
{
    return n->op == OP_SEGMENTS && c->vec >= 0;
}

/* Dims of the operand before the first one that is reduced. */
static uint32_t reduce_outside(const struct node *n)
{
    uint32_t n_axes;
    const int64_t *axes = node_ints(n, "axes", &n_axes);
    int64_t least = RANK_MAX;
    for (uint32_t i = 0; i < n_axes; i++)
        least = axes[i] < least ? axes[i] : least;
    return (uint32_t)least;
}

bool tile_is_line(const struct node *n, const struct tile_schedule *c, int32_t d)
{
    uint32_t batch = 0;
    if (n->op == OP_REDUCE)
        batch = reduce_outside(n);
    if (n->op == OP_DOT)
        node_ints(n, "batch_a", &batch);
    if (n->op == OP_SEGMENTS)
        batch = (uint32_t)node_int(n, "axis", 0);
    return d != c->vec && d != c->a && d != c->b && d >= (int32_t)batch;
}

/* Is it a product of rows, or a convolution whose images are rows? */
static bool has_rows(const struct module *m, const struct node *n)
{
    return n->op == OP_DOT || conv_of_rows(m, n);
}

static struct slice slice_of(const struct site *site, const struct node *n, const struct type *t,
                             const struct tile_schedule *c)
{
    struct slice none = {.points = 0}, s = {.points = 1, .all = true};
    int64_t extent;
    if (!tile_shares_columns(site, n, c) ||
        site->m->fused.storage[weight_whole(site->g, n->in[1]).i].place != PLACE_WEIGHTS)
        return none;
    for (int32_t d = 0; d < t->rank; d++) {
        bool known = ex_is_const(site->x, t->dims[d], &extent), line = tile_is_line(n, c, d);
        bool batch = !line && d != c->vec && d != c->a && d != c->b; /* each has panels of its own */
        if (d == c->vec)
            continue;
        if (batch || (line && (!known || !c->lines_last)))
            s.all &= known && extent == 1;
        else if (!known)
            s.dynamic = true;
        else if (!mul_i64(s.points, extent, &s.points))
            return none;
    }
    s.all &= !s.dynamic;
    if (!mul_i64((int64_t)(tile_steps(site, n) / dot_group(site->m, n)), (int64_t)c->nr * site->mach->vector_bytes,
                 &s.bytes))
        return none;
    return s;
}

int64_t tile_block_points(const struct exprs *x, const struct node *n, const struct type *t,
                          const struct tile_schedule *c)
{
    int64_t extent, points = 1;
    for (int32_t d = 0; d < t->rank; d++)
        if ((d == c->a || d == c->b || tile_is_line(n, c, d)) && ex_is_const(x, t->dims[d], &extent))
            points *= extent;
    return points;
}

struct even tile_flat_split(const struct exprs *x, const struct type *t, const struct tile_schedule *c)
{
    int64_t rows = 0, columns = 0;
    ex_is_const(x, t->dims[c->b], &rows);
    ex_is_const(x, t->dims[c->a], &columns);
    return even_split(rows * columns, c->ta);
}

enum tile_rest tile_rest(const struct site *site, const struct node *n, const struct tile_schedule *c)
{
    const struct kernel *k = site->k;
    bool image = value_type(site->g, n->out[0])->rank >= 4,
         window = image && (n->op == OP_WINDOW || conv_depthwise(site->g, n)),
         again = k->outs.n == 1 && !k->in_place && !k->shares && !k->has_rows && !k->locals.n && k->region.i == 1 &&
                 !c->k_block && !c->matmul && !c->chunk;
    if (c->matmul && matmul_open(site, c))
        return REST_MATMUL;
    if (has_rows(site->m, n) || window)
        return window && again ? REST_AGAIN_LINE : REST_ROWS;
    if (!image || n->op != OP_CONV)
        return REST_POINTS;
    return !again ? REST_IMAGE : c->flat ? REST_AGAIN : REST_AGAIN_LINE;
}

bool tile_flat_even(const struct exprs *x, const struct type *t, const struct tile_schedule *c)
{
    return c->flat && ex_is_const(x, t->dims[c->b], &(int64_t){0}) && ex_is_const(x, t->dims[c->a], &(int64_t){0});
}

expr_id tile_extent(struct exprs *x, const struct type *t, const struct tile_schedule *c, int32_t d)
{
    return c->flat && d == c->a ? ex_mul(x, t->dims[c->b], t->dims[d]) : t->dims[d];
}

int64_t tile_count(const struct exprs *x, const struct type *t, const struct tile_schedule *c)
{
    int64_t rows = 0;
    ex_is_const(x, t->dims[c->b], &rows);
    return c->flat ? tile_flat_split(x, t, c).tiles : rows / c->tb;
}

bool tile_rows_apart(const struct exprs *x, const struct type *t, const struct tile_schedule *c)
{
    int64_t rows;
    return !c->flat && c->b >= 0 && ex_is_const(x, t->dims[c->b], &rows) && rows % c->tb == 0;
}

int32_t tile_split_dim(const struct exprs *x, const struct type *t, const struct tile_schedule *c)
{
    int64_t rows;
    bool apart = !c->k_block && tile_rows_apart(x, t, c);
    if (tile_flat_even(x, t, c) || c->chunk)
        return -1;
    return !c->flat && c->b >= 0 && !apart && (!ex_is_const(x, t->dims[c->b], &rows) || rows > c->tb) ? c->b : c->a;
}

expr_id tile_parts(struct exprs *x, const struct type *t, const struct tile_schedule *c)
{
    int32_t dim = tile_split_dim(x, t, c);
    expr_id tiles = tile_flat_even(x, t, c)
                        ? ex_const(x, tile_count(x, t, c))
                        : ex_ceildiv(x, tile_extent(x, t, c, dim), ex_const(x, dim == c->b ? c->tb : c->ta));
    return ex_ceildiv(x, tiles, ex_const(x, c->split));
}

expr_id tile_blocks(struct exprs *x, const struct type *t, const struct tile_schedule *c)
{
    return c->vec < 0 ? ex_const(x, 1) : ex_ceildiv(x, t->dims[c->vec], ex_const(x, (int64_t)c->nr * c->lanes));
}

expr_id tile_block_indices(struct exprs *x, const struct type *t, const struct tile_schedule *c)
{
    return ex_ceildiv(x, tile_blocks(x, t, c), ex_const(x, c->k_columns ? c->k_columns : 1));
}

bool tile_sums_rows(const struct site *site, const struct node *n, const struct tile_schedule *c)
{
    return site->k->kind == KERNEL_REDUCE && n->op == OP_REDUCE && site->k->outs.n == 1 && c->vec >= 0 &&
           c->vec >= (int32_t)reduce_outside(n);
}

/* The bytes of an operand. */
static int64_t operand_bytes(const struct site *site, value_id v)
{
    const struct type *t = value_type(site->g, v);
    int64_t n = elem_size(t->elem);
    for (int32_t d = 0; d < t->rank; d++)
        if (!mul_i64(n, extent_hint(site->x, t->dims[d]), &n))
            return INT64_MAX;
    return n;
}

/* Rows of a large operand that are added up, one after another: a few at a time and as much of each as L1 has room for
 * the sums of, since a tile's columns of all rows are pieces of lines in as many pages. What L2 holds is read as fast
 * in columns. */
static void rows_choose(const struct site *site, const struct node *n, const struct type *t, struct tile_schedule *c)
{
    struct k_dim k;
    int64_t sums = 1, extent, columns;
    if (!tile_sums_rows(site, n, c) || operand_bytes(site, n->in[0]) <= budget(site->mach, SHARE_L2_ALL) ||
        value_fast_dim(site->m, n->in[0]) != value_type(site->g, n->in[0])->rank - 1 || !outer_k(site, n, &k) ||
        k.extent <= RATE_ROWS_AT_ONCE)
        return;
    for (int32_t d = 0; d < t->rank; d++)
        if ((d == c->vec || tile_is_line(n, c, d)) && !ex_is_const(site->x, t->dims[d], &extent))
            return;
    sums = tile_block_points(site->x, n, t, c);
    ex_is_const(site->x, tile_blocks(site->x, t, c), &columns);
    int64_t most = budget(site->mach, SHARE_L1_SUMS) / 4 / c->nr / c->lanes;
    if (sums > most || sums * columns < 2)
        return;
    most /= sums;
    c->k_block = RATE_ROWS_AT_ONCE;
    c->k_columns = columns <= most ? columns
                                   : (columns + (columns + most - 1) / most - 1) / ((columns + most - 1) / most);
}

/* k: the dim that is cut. */
static void k_block_choose(const struct site *site, const struct node *n, const struct type *t, const struct slice *s,
                           struct k_dim *k, struct tile_schedule *c)
{
    int64_t block = budget(site->mach, SHARE_L2_BLOCK), most = budget(site->mach, SHARE_L2_BLOCK_MOST);
    if (!s->all || s->bytes <= most || !outer_k(site, n, k))
        return;
    int64_t points = tile_block_points(site->x, n, t, c);
    if (points > RATE_FEW_ROWS || points <= c->ta * c->tb)
        return;
    int64_t blocks = (s->bytes + block - 1) / block,
            size = ((k->extent + blocks - 1) / blocks + k->unit - 1) / k->unit * k->unit;
    if (size >= k->extent || size * k->inner * c->nr * site->mach->vector_bytes > most)
        return;
    c->k_block = size;
}

/* Do all lines (images, rows of several dims) come before the next block of vectors? Either order reads one of the
 * operands again and again: better the one that L2 holds, or the fewer bytes. */
static bool lines_last(const struct site *site, const struct node *n, const struct type *t,
                       const struct tile_schedule *c)
{
    struct exprs *x = site->x;
    int64_t a, b, lines = 1, half = budget(site->mach, SHARE_L2_OPERAND);
    if (!tile_shares_columns(site, n, c))
        return false;
    int64_t blocks = extent_hint(x, tile_blocks(x, t, c));
    for (int32_t d = 0; d < t->rank; d++)
        if (tile_is_line(n, c, d) && !mul_i64(lines, extent_hint(x, t->dims[d]), &lines))
            return false;
    a = operand_bytes(site, n->in[0]), b = operand_bytes(site, n->in[1]);
    if (lines < 2 || !mul_i64(b, b > half ? lines : 1, &b) || !mul_i64(a, a > half ? blocks : 1, &a))
        return false;
    return a < b;
}

/* Are the panels of the next block worth fetching while this one is computed? Few tiles use them as fast as memory
 * gives them. Many rows of a product wait in their first tile only, and gain where they stay in L2 beside both
 * blocks. */
static bool is_early(const struct site *site, const struct node *n, const struct slice *s)
{
    int64_t rows, all = budget(site->mach, SHARE_L2_EARLY), size = elem_size(value_type(site->g, n->in[0])->elem);
    if (s->dynamic) /* the first tiles do it, whether others follow or not */
        return s->bytes <= budget(site->mach, SHARE_L2_BLOCK_MOST);
    bool rows_only = has_rows(site->m, n);
    if (rows_only && s->points > RATE_FEW_ROWS)
        return mul_i64(s->points, (int64_t)tile_steps(site, n) * size, &rows) && rows <= all &&
               s->bytes <= (all - rows) / 2;
    return s->points <= (rows_only ? RATE_FEW_ROWS : RATE_FEW_POINTS) &&
           s->bytes <= budget(site->mach, SHARE_L2_BLOCK_MOST);
}

/* Panels that only a few tiles read come from memory as fast as that gives them, while the others compute: there each
 * tile prefetches its share of the next block's panels, when these and its own fit L2. The panels of a product come
 * from L2 for each row of tiles: its steps prefetch the lines that are due some steps later. */
static void prefetch_choose(const struct site *site, const struct node *n, const struct type *t, const struct slice *s,
                            const struct k_dim *k, struct tile_schedule *c)
{
    int64_t rows = 0;
    bool dot = has_rows(site->m, n);
    bool fixed_b = c->b >= 0 && ex_is_const(site->x, t->dims[c->b], &rows) && rows % c->tb == 0;
    if (!s->bytes || (s->points < 2 && !s->dynamic) || !(fixed_b || c->flat || dot || c->k_block || s->dynamic))
        return;
    if (dot && s->bytes > budget(site->mach, SHARE_L1_UNPREFETCHED))
        c->near = RATE_NEAR_STEPS * dot_group(site->m, n);
    if (c->k_block)
        c->early = c->k_block * k->inner;
    else if (is_early(site, n, s))
        c->early = (int64_t)tile_steps(site, n);
    /* From L3 they take longer than one tile. */
    if (c->early && s->dynamic && n->op == OP_DOT && c->a >= 0 &&
        site->m->plan.weights_bytes > (uint64_t)budget(site->mach, SHARE_L2_WEIGHTS))
        c->shares = RATE_EARLY_SHARES;
}

bool decode_box(const struct site *site, const struct tile_schedule *c, expr_id base, struct box *r)
{
    const struct node *n = graph_node(site->g, site->k->anchor);
    const struct type *t = value_type(site->g, n->out[0]), *w = value_type(site->g, n->in[1]);
    struct box of = {.flat = false};
    for (int32_t d = 0; d < t->rank; d++)
        of.first[d] = d == c->vec ? base : ex_const(site->x, 0);
    of.extent[c->vec] = (int64_t)c->nr * c->lanes;
    if (!contraction_box(site->g, n, 1, &of, r))
        return false;
    for (int32_t d = 0; d < w->rank; d++) {
        r->extent[d] = ex_is(site->x, w->dims[d], 1) ? 1 : r->extent[d];
        if (!r->extent[d]) /* not all points read the same */
            return false;
    }
    return true;
}

int64_t decode_bytes(const struct site *site, const struct tile_schedule *c)
{
    const struct node *n = graph_node(site->g, site->k->anchor);
    const struct type *t = value_type(site->g, n->out[0]);
    struct box r;
    int64_t bytes;
    bool groups = dot_group(site->m, n) != 1; /* as tile registers take them, if at all (schedule/matmul.c) */
    if ((groups && !dot_scaled(n)) || tile_halves(site, n) || site->k->kind != KERNEL_CONTRACT || c->vec < 0 ||
        c->a < 0 || c->chunk || c->k_block || !ex_is_const(site->x, t->dims[c->vec], &(int64_t){0}) ||
        (n->op != OP_CONV && n->op != OP_DOT) || conv_pixel_lanes(site->m, n) || conv_depthwise(site->g, n) ||
        !constant_maps(site->m, n->in[1]) || site->m->fused.storage[n->in[1].i].place != PLACE_NONE ||
        !decode_box(site, c, ex_const(site->x, 0), &r))
        return 0;
    return box_elements(&r, value_type(site->g, n->in[1])->rank, &bytes) && mul_i64(bytes, groups ? 1 : 4, &bytes) &&
                   bytes <= CHUNK_BYTES_MOST
               ? bytes
               : 0;
}

expr_id decode_points(struct exprs *x, const struct node *n, const struct type *t, const struct tile_schedule *c)
{
    expr_id points = t->dims[c->a];
    for (int32_t d = 2; n->op == OP_CONV && d < t->rank; d++)
        points = d == c->a ? points : ex_mul(x, points, t->dims[d]);
    return points;
}

/* A second operand that the kernel computes: each tile of rows would compute it anew. */
static void decode_choose(const struct site *site, const struct type *t, struct tile_schedule *c)
{
    const struct node *n = graph_node(site->g, site->k->anchor);
    c->decode = 0;
    if (dot_group(site->m, n) != 1 || !decode_bytes(site, c))
        return;
    bool cheap = constant_maps(site->m, n->in[1]) < DECODE_MAPS;
    int64_t rows, above = cheap ? c->ta * DECODE_TILES : c->ta;
    bool several = !ex_is_const(site->x, decode_points(site->x, n, t, c), &rows) || rows > above;
    c->decode = several && !(cheap && c->ta > DECODE_ROWS) ? above : 0;
}

void scale_choose(const struct site *site, struct schedule *s)
{
    const struct tile_schedule *c = &s->tile;
    int64_t points = (int64_t)c->tb * c->ta * c->nr;
    for (uint32_t i = 0; i < s->n_reduce; i++)
        s->reduce[i].scaled &= c->decode || 2 * points + STEP_REGISTERS <= site->mach->registers;
}

bool next_serves(const struct site *site, const struct node *n, const struct tile_schedule *c)
{
    enum { LINE = 64 };
    value_id w = weight_whole(site->g, n->in[1]);
    if (n->op != OP_DOT || c->vec < 0 || !value_is_const(site->g, w))
        return false;
    uint32_t size = elem_size(value_type(site->g, n->in[1])->elem) * dot_group(site->m, n) * CHANNEL_BLOCK;
    return dot_scaled(n) || (size >= LINE && site->m->fused.storage[w.i].place == PLACE_WEIGHTS);
}

/* A single row's product waits for its panels. Where these are short, as those of packed numbers are, what the core
 * prefetches by itself begins anew in each; of f32 it keeps up. Products of dynamic rows have a body for
 * one. */
static bool next_choose(const struct site *site, const struct node *n, const struct type *t,
                        const struct tile_schedule *c)
{
    int64_t extent;
    bool single = dot_scaled(n);
    for (int32_t d = 0; d < t->rank; d++)
        single &= d == c->vec || !ex_is_const(site->x, t->dims[d], &extent) || extent == 1;
    return single && next_serves(site, n, c);
}

void block_choose(const struct site *site, struct tile_schedule *c)
{
    const struct node *n = graph_node(site->g, site->k->anchor);
    const struct type *t = value_type(site->g, n->out[0]);
    c->lines_last = true;
    struct k_dim k = {.inner = 1};
    struct slice s = slice_of(site, n, t, c);
    if (c->matmul) {
        c->lines_last = lines_last(site, n, t, c);
        s = slice_of(site, n, t, c);
        c->early = s.bytes && !dot_scaled(n) && is_early(site, n, &s) ? (int64_t)tile_steps(site, n) : 0;
        c->shares = c->early && matmul_open(site, c) ? RATE_EARLY_SHARES : 0;
        c->next = dot_scaled(n) && next_choose(site, n, t, c);
        return;
    }
    k_block_choose(site, n, t, &s, &k, c);
    rows_choose(site, n, t, c);
    c->lines_last = c->k_block || lines_last(site, n, t, c) || tile_keeps_points(n, c) ||
                    (site->mach->span && tile_keeps_taps(site, n, c));
    s = slice_of(site, n, t, c);
    prefetch_choose(site, n, t, &s, &k, c);
    decode_choose(site, t, c);
    c->next = next_choose(site, n, t, c);
}
