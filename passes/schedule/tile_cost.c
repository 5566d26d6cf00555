/* The cost model of the tiled template: what a register tile takes, and the tiles of a shape.
 *
 * A step of the reduction on a tile of MR points by NR vectors costs MR * NR fused multiply-adds (two per cycle at
 * best), a little for each broadcast, the way of the panels from the cache that holds them, and at least one latency of
 * 4 cycles if there are too few independent sums. The sum over all tiles of the shape, remainders included, is what
 * tile_choose.c minimises (docs/kernels.md), and a little for the code: each size of tile that the shape needs is a
 * body of its own.
 */
#include "passes/schedule/tile_cost.h"

enum {
    CODE_COST = 100 /* so many times the registers, in sums of all bodies, weigh as much as the cost itself */,
    GUESS = 64 /* a dynamic extent */
};

struct anchor_extent anchor_extent(const struct site *site, const struct type *t, int32_t d)
{
    struct anchor_extent e = {1, .known = true};
    if (d < 0 || ex_is_const(site->x, t->dims[d], &e.n))
        return e;
    int64_t most = ex_hi(site->x, t->dims[d]);
    return most > 0 && most < GUESS ? (struct anchor_extent){most, .few = true}
                                    : (struct anchor_extent){GUESS, .few = false};
}

/* The same for one of the taps of a row: what all of them broadcast is loaded once, at not quite two a cycle. */
static int64_t row_cost(int64_t ta, int64_t tb, int64_t nr, const struct anchor_step *s)
{
    const struct machine *m = s->mach;
    int64_t places = tb * row_places(&s->row, ta), fma = s->row.taps * ta * tb * nr * STEP / m->fma_per_cycle;
    int64_t loads = (places + s->row.taps * nr) * 3 * STEP / (2 * m->loads_per_cycle),
            least = s->row.taps * STEP * m->fma_latency;
    int64_t cost = fma > loads ? fma : loads;
    return ((cost > least ? cost : least) + places * RATE_STEP_BROADCAST / 2 + RATE_STEP_LOOP) / s->row.taps;
}

/* Half a product for each row and vector, and what brings the rows of a pair together, once in four steps. */
static int64_t matrix_cost(int64_t mr, int64_t nr, int64_t loads, const struct machine *m)
{
    int64_t rows = mr + mr % 2, products = (2 * rows * nr + rows) * STEP / (4 * m->fma_per_cycle),
            least = STEP * m->fma_latency / 2, cost = products > loads ? products : loads;
    return (cost > least ? cost : least) + RATE_STEP_LOOP;
}

/* Of single registers, the instructions: loads, for halves with what takes each word apart, and products. */
static int64_t words_cost(int64_t mr, int64_t columns, const struct anchor_step *s)
{
    enum { LOOP = 3 };
    int64_t loads = s->shared ? mr + columns : mr * columns + columns;
    return (loads * (s->halves ? 3 : 1) + mr * columns * (s->halves ? 2 : 1) + LOOP) * STEP;
}

/* One of the steps of a block with a scale: products, what unpacks each vector of weights, and at the end of the block
 * what scales each sum, and stores and loads those that are not in registers meanwhile. No sum waits for the one of the
 * block before, and loops are counted by other units. */
static int64_t block_cost(int64_t mr, int64_t nr, const struct anchor_step *s)
{
    enum { SCALE = 3, UNPACK = 3 /* halves */, STORED = 2 };
    const struct machine *m = s->mach;
    int64_t sums = mr * nr, stored = 2 * sums + nr + 1 - (int64_t)m->registers;
    int64_t more = sums * SCALE + (stored > 0 ? STORED * stored : 0);
    int64_t products = (sums * s->block + nr * s->block * UNPACK / 2 + more) * STEP / (s->block * m->fma_per_cycle);
    int64_t loads = (2 * mr * (s->block + 2) + nr * s->block) * STEP / (2 * s->block * m->loads_per_cycle);
    return products > loads ? products + loads / 4 : loads + products / 4;
}

/* Cycles * STEP of one reduction step on mr points x nr vectors. Where the points share the vectors, a broadcast holds
 * the multiply-adds up a little, and the panels of a tile come from the cache level that holds them. Measured on Ice
 * Lake with two multiply-adds a cycle, GEMM 128 x 3072 x 768 and 128 x 768 x 3072, per cent of peak: 6 x 4 vectors 82,
 * 9 x 3 80, 8 x 3 79, 5 x 5 74, 13 x 2 70, 4 x 6 58 to 70, 3 x 7 36 to 50. */
static int64_t step_cost(int64_t ta, int64_t tb, int64_t nr, const struct anchor_step *s)
{
    const struct machine *m = s->mach;
    int64_t mr = ta * tb;
    if (s->row.dim >= 0)
        return row_cost(ta, tb, nr, s);
    if (s->block)
        return block_cost(mr, nr, s);
    if (s->words)
        return words_cost(mr, nr * s->words, s);
    uint64_t panels = (uint64_t)(nr * m->vector_bytes) * s->n;
    bool in_l1 = panels <= (uint64_t)budget(m, SHARE_L1_PANELS), in_l2 = panels <= (uint64_t)budget(m, SHARE_L2_PANELS);
    int64_t near = STEP / m->loads_per_cycle,
            far = (in_l2 ? RATE_STEP_L2_LINE : RATE_STEP_L3_LINE) * (int64_t)m->vector_bytes / 64;
    int64_t fma = mr * nr * STEP / m->fma_per_cycle + (s->shared ? mr * RATE_STEP_BROADCAST : 0);
    int64_t others = s->per_group ? mr : nr; /* weights are broadcast; else vectors */
    int64_t loads = s->shared ? nr * (in_l1 ? near : far) : (mr * nr + others) * STEP / m->loads_per_cycle;
    if (s->matrix)
        return matrix_cost(mr, nr, loads, m);
    int64_t least = STEP * m->fma_latency;
    int64_t cost = fma > loads ? fma : loads;
    return (cost > least ? cost : least) + RATE_STEP_LOOP;
}

/* A line of dynamic length: whole tiles, and what is left of it. */
static int64_t line_cost(int64_t left, int64_t size, int64_t tb, int64_t nr, const struct anchor_step *s)
{
    int64_t line = 0, n = left, tiles;
    for (int64_t k = size; k > 0; left -= tiles * k, k = tile_below(k, s->rest)) {
        tiles = tile_times(left, n, k, s->rest);
        line += tiles * step_cost(k, tb, nr, s);
    }
    return line;
}

/* As many points of lines of dynamic length, or of images, as feature maps have them; of rows, few as often as many. */
static int64_t lines_cost(int64_t points, int64_t size, int64_t tb, int64_t nr, const struct anchor_step *s)
{
    static const int64_t of_line[] = {3, 4, 6, 7, 8, 12, 14, 16, 28, 56},
                         of_image[] = {12, 16, 48, 49, 64, 192, 196, 256, 784, 3136},
                         of_rows[] = {1, 1, 2, 4, 8, 8, 16, 32, 64, 128};
    const int64_t *lengths = s->points == POINTS_OF_ROWS ? of_rows : s->points == POINTS_OF_LINE ? of_line : of_image;
    int64_t cost = 0;
    for (uint32_t i = 0; i < COUNT_OF(of_line); i++)
        cost += line_cost(lengths[i], size, tb, nr, s) * points / lengths[i];
    return cost / (int64_t)COUNT_OF(of_line);
}

/* The same of lines of 1 to n points, each as often. */
static int64_t few_cost(int64_t n, int64_t size, int64_t tb, int64_t nr, const struct anchor_step *s)
{
    int64_t cost = 0;
    for (int64_t length = 1; length <= n; length++)
        cost += line_cost(length, size, tb, nr, s) * n / length;
    return cost / n;
}

/* Sum over the tiles of one dim: extent n in tiles of at most size points (tile_split of emit/template_tiled.c). */
static int64_t dim_cost(struct anchor_extent e, int64_t size, int64_t tb, int64_t nr, const struct anchor_step *s)
{
    if (e.rests)
        return line_cost(e.n, size, tb, nr, s);
    if (e.few)
        return few_cost(e.n, size, tb, nr, s);
    if (!e.known && s->points)
        return lines_cost(e.n, size, tb, nr, s);
    if (!e.known)
        return e.n / size * step_cost(size, tb, nr, s);
    if (!e.n)
        return 0;
    struct even p = even_split(e.n, size);
    return p.large * step_cost(p.small + 1, tb, nr, s) + (p.tiles - p.large) * step_cost(p.small, tb, nr, s);
}

int64_t tile_line_cost(const struct machine *m, int64_t n, bool known, int64_t size, int64_t nr, uint64_t steps)
{
    return dim_cost((struct anchor_extent){n, .known = known, .few = !known && n < GUESS}, size, 1, nr,
                    &(struct anchor_step){.shared = true, .n = steps, .row.dim = -1, .mach = m});
}

int64_t tile_cost(struct anchor_extent a, struct anchor_extent b, int64_t vectors, int64_t ta, int64_t tb, int64_t nr,
                  const struct anchor_step *s)
{
    int64_t cost = 0, n_b = b.n / tb, rest_b = b.n % tb;
    int64_t whole = vectors / nr, rest = vectors % nr;
    for (int part = 0; part < 2; part++) {
        int64_t v = part ? rest : nr, times = part ? (rest ? 1 : 0) : whole;
        if (!times)
            continue;
        cost += times * n_b * dim_cost(a, ta, tb, v, s);
        if (rest_b)
            cost += times * rest_b * dim_cost(a, ta, 1, v, s);
    }
    return cost;
}

/* Points in the bodies that tiles of one dim need, of at most size points each (em_tiles). */
int64_t tile_body_points(struct anchor_extent e, int64_t size, enum tile_rest rest)
{
    int64_t points = 0;
    for (int64_t k = size; !e.known && k > 0; k = tile_below(k, rest))
        points += k;
    if (!e.known)
        return points;
    struct even p = even_split(e.n, size);
    return p.large ? 2 * p.small + 1 : p.small;
}

int64_t tile_line_points(int64_t n, bool known, int64_t size)
{
    return tile_body_points((struct anchor_extent){n, .known = known}, size, REST_AGAIN);
}

/* Vectors in the bodies that n points along the lanes need. */
int64_t tile_body_vectors(int64_t n, const struct tile_schedule *c)
{
    int64_t width = (int64_t)c->nr * c->lanes;
    return (n >= width ? c->nr : 0) + (n % width + c->lanes - 1) / c->lanes;
}

int64_t tile_code_cost(int64_t cost, struct anchor_extent a, struct anchor_extent b, int64_t n,
                       const struct tile_schedule *c, int64_t regs, int64_t weight, enum tile_rest rest)
{
    int64_t sums = tile_body_points(a, c->ta, rest) * tile_body_points(b, c->tb, rest) * tile_body_vectors(n, c),
            product;
    return mul_i64(cost, sums * weight, &product) ? product / (CODE_COST * regs) : 0;
}
