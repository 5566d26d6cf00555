/* Convolutions of several taps whose operand is a map (kernel.staged): a parallel index is a chunk of rows of the result, and fills
 * scratch with the rows of the operand that they read, zeros around the image included (em_stage_rows), before the tiles run.
 *
 * All blocks of output channels share what was filled; a depthwise convolution's read only their own channels, so each block is
 * a parallel index of its own there.
 */
#include "passes/module/access.h"
#include "passes/module/choices.h"
#include "passes/schedule/tiled.h"

enum { CHUNKS = 8 /* of an image, so that threads have work */ };

/* Bytes of the operand that `rows` rows of the result read. */
static int64_t window_bytes(struct em *em, const struct tiling *t, int64_t rows)
{
    struct stage_rows r;
    int64_t channels = CHANNEL_BLOCK;
    if (!t->by_piece)
        ex_is_const(em->x, value_type(em->g, em->k->staged)->dims[1], &channels);
    return em_stage_extent(em, t->n, rows, &r) ? r.rows * r.width * channels * 4 : INT64_MAX;
}

/* Tiles of a chunk, at most: an image is to have work for several threads. */
static int64_t chunk_most(struct em *em, const struct tiling *t, int64_t tiles)
{
    int64_t channels = 1, vectors = 1;
    if (t->by_piece && ex_is_const(em->x, t->t->dims[1], &channels))
        vectors = (channels + t->lanes - 1) / t->lanes;
    int64_t chunks = (CHUNKS + vectors - 1) / vectors;
    return (tiles + chunks - 1) / chunks;
}

uint32_t window_choose(struct em *em, struct tiling *t)
{
    int64_t rows, l2 = (int64_t)em->mach->l2_kib * 1024;
    bool depthwise = conv_depthwise(em->g, t->n);
    if (t->vec != 1 || t->a != 3 || !ex_is_const(em->x, t->t->dims[2], &rows) || rows < 1 ||
        (depthwise && t->t->dims[1].i != value_type(em->g, em->k->staged)->dims[1].i))
        return 0;
    t->by_piece = depthwise;
    t->b = 2;
    if (rows % t->tb)
        t->tb = 1;
    int64_t tiles = rows / t->tb, n = chunk_most(em, t, tiles);
    const struct choice *told = choice_of_kernel(em->m, em->k, CHOOSE_CHUNK);
    while (n > 1 && window_bytes(em, t, n * t->tb) > l2 / 4)
        n--;
    if (window_bytes(em, t, n * t->tb) > CHUNK_BYTES_MOST)
        return 0;
    int64_t wish = told && told->n[0] < tiles ? told->n[0] : tiles;
    if (told && window_bytes(em, t, wish * t->tb) > CHUNK_BYTES_MOST)
        choice_refuse(em->m, told, "so many tiles take more scratch than 16 MiB a thread");
    else if (told)
        n = wish;
    t->windows = true;
    int64_t chunks = (tiles + n - 1) / n;
    return (uint32_t)((tiles + chunks - 1) / chunks);
}

static void fill(struct em *em, struct tiling *t, const expr_id *channels)
{
    em_stage_rows(em, t->n, t->idx, ex_mulc(em->x, t->row0, t->tb), (int64_t)t->chunk * t->tb, channels);
}

void window_chunk(struct em *em, struct tiling *t, expr_id chunk, expr_id block, expr_id blocks)
{
    struct exprs *x = em->x;
    struct em_for l;
    int64_t rows = 0;
    ex_is_const(x, t->t->dims[t->b], &rows);
    t->row0 = ex_mulc(x, chunk, t->chunk);
    t->here = ex_min(x, ex_const(x, t->chunk), ex_sub(x, ex_const(x, rows / t->tb), t->row0));
    if (!ex_is_const(x, t->here, &(int64_t){0}))
        t->here = em_pin(em, t->here, 1, t->chunk);
    if (t->by_piece) {
        tile_vectors(em, t, block);
        return;
    }
    fill(em, t, NULL);
    tile_vectors(em, t, em_for_begin(em, &l, ex_const(x, 0), blocks, 1, NULL, 0));
    em_for_end(em, &l, NULL, NULL);
}

void window_rows(struct em *em, struct tiling *t)
{
    struct em_for l;
    if (t->by_piece)
        fill(em, t, &t->piece[0]);
    expr_id i = em_for_begin(em, &l, ex_const(em->x, 0), t->here, 1, NULL, 0);
    tile_b(em, t, ex_mulc(em->x, ex_add(em->x, t->row0, i), t->tb), t->tb, NULL);
    em_for_end(em, &l, NULL, NULL);
}
