/* How many tiles of a contraction share the operand that its kernel computes for itself (kernel.form.staged): points of
 * a flat tile, or whole rows of a convolution of several taps.
 *
 * All blocks of output channels share what was filled; a depthwise convolution's read only their own channels, so each
 * block is a parallel index of its own there.
 *
 * For inverted residuals, and products of what is cheap to compute: in 5 of the 554 networks of ../shared/models that
 * compile, and in 6 of the 14 of `make bench`.
 */
#include "passes/module/choices.h"
#include "passes/schedule/decisions.h"

enum { LEAST_TILES = 2, COLUMNS_MOST = 28 };

/* Tiles of a chunk, unless their number is given: half of L1 holds their staged operand, or there are two. */
static uint32_t chunk_tiles(const struct site *site, const struct type *t, const struct tile_schedule *c)
{
    int64_t channels = 1, tiles = tile_flat_split(site->x, t, c).tiles;
    ex_is_const(site->x, value_type(site->g, site->k->form.staged)->dims[1], &channels);
    int64_t fit = budget(site->mach, SHARE_L1_STAGED) / (channels * 4 * c->ta), n = tiles / RATE_STAGED_CHUNKS;
    if (n > fit)
        n = fit;
    if (n < LEAST_TILES)
        n = LEAST_TILES;
    if (c->chunk)
        n = c->chunk < tiles ? c->chunk : tiles;
    int64_t chunks = (tiles + n - 1) / n;
    return (uint32_t)((tiles + chunks - 1) / chunks);
}

/* Rows of the operand that `rows` rows of the result read; 0: not known. */
static int64_t rows_read(const struct site *site, const struct node *n, int64_t rows)
{
    const expr_id zero = ex_const(site->x, 0), point[2] = {zero, zero};
    struct box r;
    return conv_rows_box(site->g, n, point, zero, rows, &r) ? r.extent[2] : 0;
}

bool stage_box(const struct site *site, const struct tile_schedule *c, const expr_id *point, expr_id first,
               struct box *r)
{
    const struct node *n = graph_node(site->g, site->k->anchor);
    int32_t last = value_type(site->g, n->out[0])->rank - 1;
    struct box of = {.first = {point[0], point[1]}, .flat = true};
    if (c->windows)
        return conv_rows_box(site->g, n, point, first, (int64_t)c->chunk * c->tb, r);
    struct even e = tile_flat_split(site->x, value_type(site->g, n->out[0]), c);
    for (int32_t d = 2; d < last; d++)
        of.first[d] = ex_const(site->x, 0);
    of.first[last] = first;
    of.extent[last] = (int64_t)c->chunk * (e.small + (e.large > 0));
    return contraction_box(site->g, n, 0, &of, r);
}

static int64_t staged_extent(const struct site *site, int32_t d)
{
    int64_t n = 1;
    ex_is_const(site->x, value_type(site->g, site->k->form.staged)->dims[d], &n);
    return n;
}

/* Rows of the operand that a row of results reads and the next one reads again. */
static int64_t rows_again(const struct site *site, const struct node *n)
{
    int64_t again = 2 * rows_read(site, n, 1) - rows_read(site, n, 2);
    return again > 0 ? again : 0;
}

/* Do so many chunks of an image compute little again of the contraction in front, as a part of both? */
static bool may_cut(const struct site *site, const struct node *n, int64_t rows, int64_t chunks)
{
    if (!site->k->form.product.i)
        return false;
    int64_t before = (int64_t)tile_steps(site, graph_node(site->g, site->k->form.product)),
            own = (int64_t)tile_steps(site, n);
    return (chunks - 1) * rows_again(site, n) * before * RATE_SHARED_PART <=
           staged_extent(site, 2) * before + rows * own;
}

/* Chunks that the busiest of RATE_SHARED_INDICES threads goes through, of so many in each of so many pieces, as a part
 * of them all. */
static double busiest(int64_t chunks, int64_t pieces)
{
    int64_t indices = chunks * pieces;
    return (double)((indices + RATE_SHARED_INDICES - 1) / RATE_SHARED_INDICES) / (double)indices;
}

/* Tiles of a chunk, at most: an image is to have work for several threads. Where a contraction in front makes each
 * chunk long, up to twice as many chunks, if several threads are done sooner. */
static int64_t chunk_most(const struct site *site, const struct node *n, const struct type *t,
                          const struct tile_schedule *c, int64_t tiles)
{
    int64_t channels = 1, pieces = 1;
    if (c->by_piece && ex_is_const(site->x, t->dims[1], &channels))
        pieces = (channels + (int64_t)c->nr * c->lanes - 1) / ((int64_t)c->nr * c->lanes);
    int64_t chunks = (RATE_STAGED_CHUNKS + pieces - 1) / pieces, most = (2 * RATE_STAGED_CHUNKS + pieces - 1) / pieces;
    if (may_cut(site, n, tiles * c->tb, most))
        chunks = most;
    for (int64_t more = chunks + 1; more <= most && more <= tiles && may_cut(site, n, tiles * c->tb, more); more++)
        if (busiest(more, pieces) < busiest(chunks, pieces))
            chunks = more;
    return (tiles + chunks - 1) / chunks;
}

bool stage_by_rows(const struct site *site, struct tile_schedule *c)
{
    const struct node *n = graph_node(site->g, site->k->anchor);
    const struct type *t = value_type(site->g, n->out[0]);
    int64_t rows;
    bool depthwise = conv_depthwise(site->g, n);
    if (!site->k->form.staged.i || c->flat || c->vec != 1 || c->a != 3 || !ex_is_const(site->x, t->dims[2], &rows) ||
        rows < 1 || (depthwise && t->dims[1].i != value_type(site->g, site->k->form.staged)->dims[1].i))
        return false;
    c->by_piece = depthwise;
    c->b = 2;
    return true;
}

int64_t stage_bytes(const struct site *site, const struct tile_schedule *c)
{
    const expr_id zero = ex_const(site->x, 0), point[2] = {zero, zero};
    struct box r;
    int64_t n;
    return stage_box(site, c, point, zero, &r) &&
                   box_elements(&r, value_type(site->g, site->k->form.staged)->rank, &n) && mul_i64(n, 4, &n)
               ? n
               : INT64_MAX;
}

/* Of so many tiles of rows. */
static int64_t rows_bytes(const struct site *site, const struct tile_schedule *c, int64_t tiles)
{
    struct tile_schedule rows = *c;
    rows.windows = true;
    rows.chunk = (uint32_t)tiles;
    return stage_bytes(site, &rows);
}

/* Tiles of b that share the operand, after tb has become a divisor of the rows; 0: it is computed where it is read. */
static uint32_t window_rows(const struct site *site, const struct node *n, const struct type *t,
                            struct tile_schedule *c)
{
    int64_t rows = 0;
    if (!stage_by_rows(site, c))
        return 0;
    ex_is_const(site->x, t->dims[2], &rows);
    if (rows % c->tb || site->k->outs.n > 1) /* sums of each row are stored after it */
        c->tb = 1;
    int64_t tiles = rows / c->tb, most = chunk_most(site, n, t, c, tiles);
    while (most > 1 && rows_bytes(site, c, most) > budget(site->mach, SHARE_L2_ROWS))
        most--;
    if (rows_bytes(site, c, most) > CHUNK_BYTES_MOST)
        return 0;
    if (c->chunk)
        most = c->chunk < tiles ? c->chunk : tiles;
    c->windows = true;
    int64_t chunks = (tiles + most - 1) / most;
    return (uint32_t)((tiles + chunks - 1) / chunks);
}

/* ---- a contraction that is staged -------------------------------------------------------------------------------- */

static const struct node *product_of(const struct site *site)
{
    return site->k->form.product.i ? graph_node(site->g, site->k->form.product) : NULL;
}

/* One does on any CPU: the vectors of a piece are the tile's, of which few registers spill some. */
bool stage_columns_fit(const struct site *site, uint32_t columns, uint32_t vectors)
{
    return columns >= 1 && columns <= staged_extent(site, 3) && columns <= COLUMNS_MOST &&
           (columns == 1 ||
            tile_fits(site, product_of(site), &(struct tile_schedule){.nr = vectors, .ta = columns, .tb = 1}));
}

/* The steps of a row of the product by the vectors of a piece, in tenths of a cycle. */
static int64_t columns_cost(const struct site *site, uint32_t columns, uint32_t vectors)
{
    uint64_t steps = tile_steps(site, product_of(site));
    return (int64_t)steps * tile_line_cost(site->mach, staged_extent(site, 3), true, columns, vectors, steps);
}

static uint32_t columns_choose(const struct site *site, uint32_t vectors)
{
    uint32_t best = 1;
    for (uint32_t n = 2; product_of(site) && stage_columns_fit(site, n, vectors); n++)
        if (columns_cost(site, n, vectors) < columns_cost(site, best, vectors))
            best = n;
    return product_of(site) ? best : 0;
}

int64_t stage_ns(const struct site *site, const struct tile_schedule *c)
{
    if (!c->stage_columns)
        return 0;
    int64_t rows = rows_read(site, graph_node(site->g, site->k->anchor), (int64_t)c->chunk * c->tb);
    return rows * columns_cost(site, c->stage_columns, c->nr) / (RATE_CYCLES_PER_NS * 10);
}

/* Is an image more than what L2 may still hold of it when it comes to be read? Filling then waits for lines, one
 * miss for each: asking for the next chunk's while this one's products are computed gives large images 10 % of their
 * time, and takes 3 % from small ones. */
static bool is_far(const struct site *site, const struct type *t)
{
    int64_t bytes = elem_size(t->elem), n;
    for (int32_t d = 1; d < t->rank; d++)
        if (!ex_is_const(site->x, t->dims[d], &n) || !mul_i64(bytes, n, &bytes))
            return false;
    return site->m->asked.always || bytes > budget(site->mach, SHARE_L2_IMAGE);
}

void stage_choose(const struct site *site, struct tile_schedule *c)
{
    const struct node *n = graph_node(site->g, site->k->anchor);
    const struct type *t = value_type(site->g, n->out[0]);
    c->chunk = !site->k->form.staged.i ? 0 : c->flat ? chunk_tiles(site, t, c) : window_rows(site, n, t, c);
    if (!c->chunk)
        return;
    const struct type *staged = value_type(site->g, site->k->form.staged);
    c->stage_ahead = c->flat && is_far(site, staged);
    c->stage_columns = columns_choose(site, c->nr);
}
