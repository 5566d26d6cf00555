/* The cost model of the tiled template: which dim gets the lanes, and how many points a register tile holds.
 *
 * A step of the reduction on a tile of MR points by NR vectors costs MR * NR fused multiply-adds (two per cycle at
 * best), a little for each broadcast, the way of the panels from the cache that holds them, and at least one latency of
 * 4 cycles if there are too few independent sums. The choice minimises the sum over all tiles of the shape, remainders
 * included (docs/kernels.md), and a little for the code: each size of tile that the shape needs is a body of its own.
 */
#include "passes/module/compressed.h"
#include "passes/schedule/schedule.h"

#include <string.h>

enum {
    STEP = 10 /* to the cycle */,
    CODE_COST = 100 /* so many times the registers, in sums of all bodies, weigh as much as the cost itself */,
    MAX_TA = 28,
    MAX_SCATTERED = 9,
    MAX_TB = 4,
    GUESS = 64 /* a dynamic extent */
};

struct extent {
    int64_t n;
    bool known;
    bool few; /* not known, but from 1 to n */
    bool rests; /* n, but the code takes it for dynamic: whole tiles and what is left */
};

static struct extent extent_of(const struct site *site, const struct type *t, int32_t d)
{
    struct extent e = {1, .known = true};
    if (d < 0 || ex_is_const(site->x, t->dims[d], &e.n))
        return e;
    int64_t most = ex_hi(site->x, t->dims[d]);
    return most > 0 && most < GUESS ? (struct extent){most, .few = true} : (struct extent){GUESS, .few = false};
}

/* What a step costs besides its multiply-adds. */
struct step {
    bool shared;                 /* the points share the vectors: a contraction */
    uint64_t n;                  /* steps of the whole reduction */
    bool matrix; /* pairs of rows by pairs of columns; a step is one of the two groups of such a product */
    enum { POINTS_OF_LINE = 1, POINTS_OF_IMAGE } points; /* along dim a, of a feature map */
    enum tile_rest rest;
    struct row_taps row;         /* that are passed in one step, if any: a step here is one of them */
    const struct machine *mach;
};

/* The same for one of the taps of a row: what all of them broadcast is loaded once, at not quite two a cycle. */
static int64_t row_cost(int64_t ta, int64_t tb, int64_t nr, const struct step *s)
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

/* Cycles * STEP of one reduction step on mr points x nr vectors. Where the points share the vectors, a broadcast holds
 * the multiply-adds up a little, and the panels of a tile come from the cache level that holds them. Measured on Ice
 * Lake with two multiply-adds a cycle, GEMM 128 x 3072 x 768 and 128 x 768 x 3072, per cent of peak: 6 x 4 vectors 82,
 * 9 x 3 80, 8 x 3 79, 5 x 5 74, 13 x 2 70, 4 x 6 58 to 70, 3 x 7 36 to 50. */
static int64_t step_cost(int64_t ta, int64_t tb, int64_t nr, const struct step *s)
{
    const struct machine *m = s->mach;
    int64_t mr = ta * tb;
    if (s->row.dim >= 0)
        return row_cost(ta, tb, nr, s);
    uint64_t panels = (uint64_t)(nr * m->vector_bytes) * s->n;
    bool in_l1 = panels <= (uint64_t)budget(m, SHARE_L1_PANELS), in_l2 = panels <= (uint64_t)budget(m, SHARE_L2_PANELS);
    int64_t near = STEP / m->loads_per_cycle,
            far = (in_l2 ? RATE_STEP_L2_LINE : RATE_STEP_L3_LINE) * (int64_t)m->vector_bytes / 64;
    int64_t fma = mr * nr * STEP / m->fma_per_cycle + (s->shared ? mr * RATE_STEP_BROADCAST : 0);
    int64_t loads = s->shared ? nr * (in_l1 ? near : far) : (mr * nr + nr) * STEP / m->loads_per_cycle;
    if (s->matrix)
        return matrix_cost(mr, nr, loads, m);
    int64_t least = STEP * m->fma_latency;
    int64_t cost = fma > loads ? fma : loads;
    return (cost > least ? cost : least) + RATE_STEP_LOOP;
}

/* A line of dynamic length: whole tiles, and what is left of it. */
static int64_t line_cost(int64_t left, int64_t size, int64_t tb, int64_t nr, const struct step *s)
{
    int64_t line = 0;
    for (int64_t k = size; k > 0; left %= k, k = tile_below(k, s->rest))
        line += left / k * step_cost(k, tb, nr, s);
    return line;
}

/* As many points of lines of dynamic length, or of images, as feature maps have them. */
static int64_t lines_cost(int64_t points, int64_t size, int64_t tb, int64_t nr, const struct step *s)
{
    static const int64_t of_line[] = {3, 4, 6, 7, 8, 12, 14, 16, 28, 56},
                         of_image[] = {12, 16, 48, 49, 64, 192, 196, 256, 784, 3136};
    const int64_t *lengths = s->points == POINTS_OF_LINE ? of_line : of_image;
    int64_t cost = 0;
    for (uint32_t i = 0; i < COUNT_OF(of_line); i++)
        cost += line_cost(lengths[i], size, tb, nr, s) * points / lengths[i];
    return cost / (int64_t)COUNT_OF(of_line);
}

/* The same of lines of 1 to n points, each as often. */
static int64_t few_cost(int64_t n, int64_t size, int64_t tb, int64_t nr, const struct step *s)
{
    int64_t cost = 0;
    for (int64_t length = 1; length <= n; length++)
        cost += line_cost(length, size, tb, nr, s) * n / length;
    return cost / n;
}

/* Sum over the tiles of one dim: extent n in tiles of at most size points (tile_split of emit/template_tiled.c). */
static int64_t dim_cost(struct extent e, int64_t size, int64_t tb, int64_t nr, const struct step *s)
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
    return dim_cost((struct extent){n, .known = known, .few = !known && n < GUESS}, size, 1, nr,
                    &(struct step){.shared = true, .n = steps, .row.dim = -1, .mach = m});
}

static int64_t tile_cost(struct extent a, struct extent b, int64_t vectors, int64_t ta, int64_t tb, int64_t nr,
                         const struct step *s)
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
static int64_t body_points(struct extent e, int64_t size, enum tile_rest rest)
{
    int64_t points = 0;
    for (int64_t k = size; !e.known && k > 0; k = tile_below(k, rest))
        points += k;
    if (!e.known)
        return points;
    struct even p = even_split(e.n, size);
    return p.large ? 2 * p.small + 1 : p.small;
}

/* Vectors in the bodies that n points along the lanes need. */
static int64_t body_vectors(int64_t n, const struct tile_schedule *c)
{
    int64_t width = (int64_t)c->nr * c->lanes;
    return (n >= width ? c->nr : 0) + (n % width + c->lanes - 1) / c->lanes;
}

/* What the code of a choice counts: in proportion to its cost, 1 % for a body that fills the registers, times `weight`.
 * n along the lanes. */
static int64_t code_cost(int64_t cost, struct extent a, struct extent b, int64_t n, const struct tile_schedule *c,
                         int64_t regs, int64_t weight, enum tile_rest rest)
{
    int64_t sums = body_points(a, c->ta, rest) * body_points(b, c->tb, rest) * body_vectors(n, c), product;
    return mul_i64(cost, sums * weight, &product) ? product / (CODE_COST * regs) : 0;
}

/* What too few parallel indices count, where the whole takes long enough for threads to share it. Rows that do not
 * divide evenly into tiles are one index. */
static int64_t share_cost(const struct site *site, const struct type *t, int64_t cost, uint64_t steps, int64_t vectors,
                          const struct tile_schedule *c)
{
    int64_t indices = (vectors + c->nr - 1) / c->nr, extent, cycles;
    if (c->flat || c->b < 0 || !mul_i64(cost, steps > INT32_MAX ? INT32_MAX : (int64_t)steps, &cycles) ||
        cycles / STEP / RATE_CYCLES_PER_NS < RATE_SHARED_NS)
        return 0;
    for (int32_t d = 0; d < t->rank && indices < RATE_SHARED_INDICES; d++)
        if (d != c->vec && d != c->a && d != c->b && ex_is_const(site->x, t->dims[d], &extent) &&
            !mul_i64(indices, extent, &indices))
            return 0;
    if (tile_rows_apart(site->x, t, c) && !mul_i64(indices, tile_count(site->x, t, c), &indices))
        return 0;
    return indices < RATE_SHARED_INDICES ? cost / RATE_SHARED_PART : 0;
}

/* Each point has its own taps of its own channel. */
static bool is_window(const struct site *site, const struct node *n)
{
    return n->op == OP_WINDOW || conv_depthwise(site->g, n);
}

/* The dims: lanes along the output channels (or the last dim of b) where the stored value is contiguous there. */
static void choose_dims(const struct site *site, const struct node *n, struct tile_schedule *c)
{
    const struct type *t = value_type(site->g, n->out[0]);
    int32_t rank = t->rank, last = rank - 1;
    c->vec = c->a = c->b = -1;
    if (rank == 0 || reduce_horizontal(site->m, n))
        return;
    if (n->op == OP_REDUCE) {
        int32_t fast = value_fast_dim(site->m, n->in[0]);
        uint32_t n_axes;
        const int64_t *axes = node_ints(n, "axes", &n_axes);
        int32_t below = 0;
        for (uint32_t i = 0; i < n_axes; i++)
            below += axes[i] < fast;
        bool reduced = fast < 0;
        for (uint32_t i = 0; i < n_axes; i++)
            reduced |= axes[i] == fast;
        c->vec = reduced ? last : fast - below;
        return;
    }
    if (n->op == OP_DOT) {
        const struct type *bt = value_type(site->g, n->in[1]);
        uint32_t nb, nc;
        node_ints(n, "batch_b", &nb);
        node_ints(n, "contract_b", &nc);
        int32_t free_b = bt->rank - (int32_t)nb - (int32_t)nc;
        c->vec = last;
        c->a = free_b > 0 && last - free_b >= (int32_t)nb ? last - free_b : -1;
        return;
    }
    /* A convolution's weights are packed along the output channels, unless its lanes are pixels. */
    int32_t fast = n->op == OP_CONV && !conv_depthwise(site->g, n) ? (conv_pixel_lanes(site->m, n) ? last : 1)
                   : site->k->form.product.i && n->in[0].i == site->k->form.staged.i /* scratch, in blocks */
                       ? 1
                       : value_fast_dim(site->m, n->in[0]);
    if (fast < 0 || fast > last)
        fast = last;
    if (n->op == OP_ARGREDUCE) {
        c->vec = fast == node_int(n, "axis", 0) ? last : fast < node_int(n, "axis", 0) ? fast : fast - 1;
        return;
    }
    c->vec = fast;
    c->a = c->vec == last ? (n->op == OP_CONV && !conv_depthwise(site->g, n) ? 1 : -1) : last;
    /* Rows of which the run knows how many are no parallel indices of windows: each would be split by divisions. */
    bool rows = c->a == last && rank >= 4 &&
                (is_window(site, n) ? site->k->outs.n == 1 && !ex_is_const(site->x, t->dims[last - 1], NULL)
                                    : n->op == OP_CONV);
    if (rows)
        c->b = rank - 2;
    if (c->a == c->vec)
        c->a = -1;
}

/* Are all taps along spatial dim d read where the operand lies, its halo included? */
static bool is_covered(const struct site *site, const struct node *n, int32_t d)
{
    const struct storage *s = &site->m->fused.storage[n->in[0].i];
    int64_t below, above;
    return s->halo && conv_reach(site->g, n, d, 1, &below, &above) && s->halo[2 + d] >= below &&
           s->halo[s->rank + 2 + d] >= above;
}

/* May the points of an image be numbered through? A convolution of one tap, or of any if the map is of dynamic size,
 * and may be small: a register tile may then begin in one row and end in the next. Where rows of the operand do not lie
 * one behind the other, or points are left out between, each point of the tile has an address of its own: few then, or
 * they would not stay in registers. */
static bool is_flat(const struct site *site, const struct node *n, const struct tile_schedule *c, int64_t *most)
{
    if (n->op != OP_CONV || conv_depthwise(site->g, n) || c->b < 0 || c->a != c->b + 1)
        return false;
    const struct type *in = value_type(site->g, n->in[0]), *w = value_type(site->g, n->in[1]),
                      *y = value_type(site->g, n->out[0]);
    const struct storage *s = &site->m->fused.storage[n->in[0].i];
    uint32_t count;
    const int64_t *strides = node_ints(n, "strides", &count), *xdil = node_ints(n, "xdil", &count);
    int64_t extent;
    bool same = true, staged = site->k->form.staged.i == n->in[0].i;
    bool few = !ex_is_const(site->x, w->dims[1], &extent) ||
               extent < CHANNEL_BLOCK; /* not worth the places of points */
    bool even = ex_is_const(site->x, y->dims[c->b], NULL) && ex_is_const(site->x, y->dims[c->a], NULL);
    for (int32_t d = c->b; d <= c->a; d++) {
        bool one = ex_is(site->x, w->dims[d], 1);
        if ((!one && (even || staged || few || row_taps(site, n).dim >= 0 || !is_covered(site, n, d - 2))) ||
            xdil[d - 2] != 1 || (!staged && (s->place == PLACE_NONE || s->dim[d].block)))
            return false;
        same &= one && strides[d - 2] == 1 && in->dims[d].i == y->dims[d].i;
    }
    if (staged && !same)
        return false;
    for (int32_t d = c->b; d <= c->a; d++)
        if (ex_is_const(site->x, y->dims[d], &extent) ? extent < 2 : staged)
            return false;
    *most = staged || (same && s->dim[c->b].outer.i == ex_mul(site->x, s->dim[c->a].outer, y->dims[c->a]).i)
                ? MAX_TA
                : MAX_SCATTERED;
    return true;
}

/* An extent that is summed over; a guess, 0: what is counted, where it is open. */
static uint64_t extent_steps(const struct site *site, expr_id e, uint64_t guess)
{
    int64_t c;
    if (ex_is_const(site->x, e, &c))
        return (uint64_t)c;
    return guess ? guess : (uint64_t)extent_counted(site->m, e);
}

static uint64_t steps_of(const struct site *site, const struct node *n, bool guess)
{
    uint64_t steps = 1;
    uint32_t count;
    const struct type *w = n->n_in > 1 ? value_type(site->g, n->in[1]) : NULL;
    if (n->op == OP_CONV) {
        for (int32_t d = 1; d < w->rank; d++)
            steps *= extent_steps(site, w->dims[d], guess ? 16 : 0);
    } else if (n->op == OP_DOT) {
        const int64_t *k = node_ints(n, "contract_b", &count);
        for (uint32_t i = 0; i < count; i++)
            steps *= extent_steps(site, w->dims[k[i]], guess ? 64 : 0);
    } else if (n->op == OP_REDUCE) {
        const int64_t *axes = node_ints(n, "axes", &count);
        for (uint32_t i = 0; i < count; i++)
            steps *= extent_steps(site, value_type(site->g, n->in[0])->dims[axes[i]], guess ? 64 : 0);
    } else {
        const int64_t *k = node_ints(n, "kernel", &count);
        for (uint32_t i = 0; i < count; i++)
            steps *= (uint64_t)k[i];
    }
    return steps;
}

uint64_t tile_steps(const struct site *site, const struct node *n)
{
    return steps_of(site, n, true);
}

/* Groups of elements that the CPU has no instruction for. */
static bool is_emulated(const struct site *site, const struct node *n)
{
    enum dot_kind kind = dot_kind_of(site->m, n);
    return kind < DOT_KINDS && !site->mach->dot[kind];
}

bool tile_by_lane(const struct site *site, const struct node *n)
{
    int64_t extent, group = n->op == OP_DOT || n->op == OP_CONV ? (int64_t)dot_group(site->m, n) : 0;
    struct reduced dims;
    if (!site->mach->fma_by_lane || !group || conv_depthwise(site->g, n) || row_taps(site, n).dim >= 0 ||
        (group == 1 ? value_type(site->g, n->in[0])->elem != ELEM_F32 : !dot_is_whole(site->mach, site->m, n)))
        return false;
    reduced_dims(site, n, false, &dims);
    return dims.n && ex_is_const(site->x, dims.dim[dims.n - 1].extent, &extent) && extent >= LANE_STEPS * group;
}

int64_t tile_halves(const struct site *site, const struct node *n)
{
    int64_t extent;
    struct reduced dims;
    if (!site->mach->fp16 || (n->op != OP_DOT && n->op != OP_CONV) || node_elem(n, "part") != ELEM_F16 ||
        dot_group(site->m, n) != 1 || conv_depthwise(site->g, n) || row_taps(site, n).dim >= 0 ||
        value_type(site->g, n->in[0])->elem != ELEM_F32 || value_type(site->g, n->out[0])->elem != ELEM_F32 ||
        constant_maps(site->m, n->in[1]) > 1) /* more than widened: computed once, in f32 */
        return 0;
    reduced_dims(site, n, false, &dims);
    if (!dims.n)
        return 0;
    const struct channel_order *o = &dims.dim[dims.n - 1].order;
    bool straight = o->residues <= 1 && (!o->block || (HALF_STEPS % o->block == 0 && o->phase[0] == 0));
    return straight && ex_is_const(site->x, dims.dim[dims.n - 1].extent, &extent) && extent >= HALF_LEAST ? HALF_STEPS
                                                                                                          : 0;
}

bool tile_matrix(const struct site *site, const struct node *n)
{
    uint32_t group = n->op == OP_DOT || n->op == OP_CONV ? dot_group(site->m, n) : 1, count;
    if (group == 1 || site->mach->dot[dot_kind_of(site->m, n)] < DOT_MATRIX || !tile_by_lane(site, n))
        return false;
    const struct storage *s = &site->m->fused.storage[n->in[1].i];
    const int64_t *contract = n->op == OP_DOT ? node_ints(n, "contract_b", &count) : NULL;
    return s->place == PLACE_WEIGHTS && s->dim[contract ? contract[count - 1] : 1].block == 2 * (int64_t)group;
}

/* Registers of a tile of mr points x nr vectors beside its accumulators. L_DOT without an instruction takes both
 * operands apart: even and odd elements of each vector and of the broadcast, and two temporaries. */
static int64_t more_registers(bool emulated, bool contraction, int64_t nr)
{
    return !contraction ? 4 : emulated ? 2 * nr + 4 : nr + 1;
}

/* How much the code of a sum of products counts. Those of bytes are written out for a block of channels, and bytes are
 * rounded behind each. Without an instruction for dot products a smaller tile costs more than the model knows. */
static int64_t code_weight(const struct site *site, const struct node *n)
{
    enum elem e = value_type(site->g, site->k->domain)->elem;
    bool bytes = elem_size(e) == 1 && elem_class(e) != 'F';
    if (!bytes || dot_group(site->m, n) <= 1)
        return 1;
    return is_emulated(site, n) ? RATE_CODE_OF_EMULATED : RATE_CODE_OF_BYTES;
}

static bool is_contraction(const struct site *site, const struct node *n)
{
    return n->op == OP_DOT || (n->op == OP_CONV && !conv_depthwise(site->g, n));
}

static bool fits(const struct site *site, const struct node *n, const struct row_taps *row,
                 const struct tile_schedule *c)
{
    bool arg = reduce_is_arg(n), matrix = tile_matrix(site, n);
    int64_t rows = (int64_t)c->ta * c->tb, sums = (matrix ? rows + rows % 2 : rows) * c->nr, need = sums;
    if (matrix) /* rows in pairs, the columns at hand and the next */
        need += rows + rows % 2 + 2;
    else if (tile_by_lane(site, n)) /* lanes of each point, the vector at hand and the next */
        need += (int64_t)c->ta * c->tb + 2;
    else
        need += more_registers(is_emulated(site, n), is_contraction(site, n), c->nr);
    if (dot_scaled(n)) /* the sums of a block beside those of all */
        need += sums;
    if (row->dim >= 0) /* the weights of all taps */
        need += (row->taps - 1) * (int64_t)c->nr + 1;
    return need <= (int64_t)site->mach->registers && sums * (arg ? 2 : 1) <= TILE_POINTS_MOST;
}

bool tile_fits(const struct site *site, const struct node *n, const struct tile_schedule *c)
{
    const struct row_taps row = row_taps(site, n);
    return fits(site, n, &row, c);
}

/* Does what follows the anchor hold a function of some hundred statements for each vector of points? */
static bool has_long_map(const struct site *site)
{
    for (uint32_t i = 0; i < site->k->nodes.n; i++)
        if (lf_math_is_long(graph_node(site->g, site->k->nodes.data[i])->op))
            return true;
    return false;
}

static struct step step_of(const struct site *site, const struct node *n, bool flat)
{
    uint64_t group = dot_group(site->m, n);
    enum tile_rest rest = tile_rest(site->g, n);
    bool line = n->op != OP_DOT && rest != REST_POINTS;
    return (struct step){.shared = is_contraction(site, n),
                         .n = (tile_steps(site, n) + group - 1) / group,
                         .matrix = tile_matrix(site, n),
                         .points = flat   ? POINTS_OF_IMAGE
                                   : line ? POINTS_OF_LINE
                                          : 0,
                         .rest = rest,
                         .row = row_taps(site, n),
                         .mach = site->mach};
}

/* A single row's product waits for its panels, and two lines of them at once arrive as fast as eight: blocks as narrow
 * as give each thread one that is long enough, of whole lines. */
static uint32_t narrow_vectors(const struct site *site, const struct type *t, const struct tile_schedule *c,
                               int64_t vectors, const struct step *step)
{
    int64_t points = 1, extent, line = site->mach->vector_bytes < 64 ? 64 / site->mach->vector_bytes : 1;
    for (int32_t d = 0; d < t->rank; d++)
        if (d != c->vec && (!ex_is_const(site->x, t->dims[d], &extent) || !mul_i64(points, extent, &points)))
            return c->nr;
    int64_t steps = step->n > INT32_MAX ? INT32_MAX : (int64_t)step->n,
            cost = tile_cost((struct extent){1, .known = true}, (struct extent){1, .known = true}, vectors, 1, 1, c->nr,
                             step),
            cycles;
    if (points != 1 || c->vec < 0 || !mul_i64(cost, steps, &cycles))
        return c->nr;
    int64_t indices = cycles / STEP / RATE_CYCLES_PER_NS / RATE_SHARED_LEAST_NS;
    indices = indices > RATE_SHARED_MOST ? RATE_SHARED_MOST : indices;
    if (indices < 2)
        return c->nr;
    int64_t nr = vectors / indices / line * line, least = RATE_ROW_LINES * line;
    nr = nr < least ? least : nr;
    return nr < c->nr ? (uint32_t)nr : c->nr;
}

/* Dims and lanes; *most: points along a that a tile numbered through may have. */
static void tile_form(const struct site *site, const struct node *n, struct tile_schedule *c, int64_t *most)
{
    choose_dims(site, n, c);
    c->lanes = machine_vector_lanes(site->mach, value_type(site->g, reduce_is_arg(n) ? n->in[0] : n->out[0])->elem);
    if (tile_halves(site, n))
        c->lanes *= 2;
    c->flat = is_flat(site, n, c, most);
}

struct tile_facts tile_facts(const struct site *site)
{
    struct tile_schedule c = {.chunk = 0};
    tile_form(site, graph_node(site->g, site->k->anchor), &c, &(int64_t){0});
    bool windows = stage_by_rows(site, &c);
    return (struct tile_facts){c.vec, c.a, c.b, c.lanes, c.flat, windows, c.by_piece};
}

/* Points along a of a product with one vector of columns: each step reads a line of each row, and those of rows that
 * lie whole pages apart share a set of L1. With more than its ways none is there at the next step. */
static int64_t rows_most(const struct site *site, const struct node *n, int64_t most)
{
    enum { PAGE = 4096, WAYS = 8 };
    const struct storage *s = &site->m->fused.storage[n->in[0].i];
    int32_t free_dim[RANK_MAX], count = n->op == OP_DOT ? dot_free(site->g, n, 0, free_dim) : 0;
    int64_t apart;
    return count > 0 && s->place != PLACE_NONE && most > WAYS &&
                   ex_is_const(site->x, s->dim[free_dim[count - 1]].outer, &apart) && apart > 0 &&
                   apart * (int64_t)elem_size(value_type(site->g, n->in[0])->elem) % PAGE == 0
               ? WAYS
               : most;
}

void tile_choose(const struct site *site, struct schedule *out)
{
    const struct node *n = graph_node(site->g, site->k->anchor);
    const struct type *t = value_type(site->g, n->out[0]);
    struct tile_schedule c = {
        .nr = 1, .ta = 1, .tb = 1, .interleave = RATE_INTERLEAVE, .interleave_least = RATE_INTERLEAVE_LEAST};
    int64_t max_ta = MAX_TA, max_apart = has_long_map(site) ? 4 : 8; /* where points share nothing */
    tile_form(site, n, &c, &max_ta);
    struct extent v = extent_of(site, t, c.vec), a = extent_of(site, t, c.a), b = extent_of(site, t, c.b);
    int64_t vectors = (v.n + c.lanes - 1) / c.lanes;
    if (c.flat) {
        a = (struct extent){a.n * b.n, .known = a.known && b.known};
        b = (struct extent){1, .known = true};
    }
    bool contraction = is_contraction(site, n);
    const struct step step = step_of(site, n, c.flat);
    int64_t regs = site->mach->registers, least = INT64_MAX, weight = code_weight(site, n);
    int64_t max_nr = c.vec >= 0 && v.known ? (contraction ? TILE_VECTORS_MOST : n->op == OP_REDUCE ? 4 : 1) : 1;
    /* What is left of a line of dynamic length are a few points, whose sums a second vector hides the latency of. */
    bool lines = is_window(site, n) && step.points && c.a >= 0 && !a.known && v.known;
    if (lines)
        max_nr = 2;
    int64_t first_nr = 1, whole = CHANNEL_BLOCK / c.lanes;
    if (site->k->form.product.i && c.vec >= 0 && v.known) /* points share broadcasts within a block of channels */
        first_nr = max_nr = vectors < 1 ? 1 : vectors < whole ? vectors : whole;
    if (vectors <= 1)
        max_ta = rows_most(site, n, max_ta);
    for (int64_t nr = first_nr; nr <= max_nr && nr <= (vectors > 0 ? vectors : 1); nr++)
        for (int64_t tb = 1; tb <= (c.b >= 0 && b.known ? MAX_TB : 1) && tb <= b.n; tb++)
            for (int64_t ta = 1; ta <= (c.a >= 0 ? max_ta : 1) && (ta <= a.n || ta == 1); ta++) {
                struct tile_schedule with = c;
                with.nr = (uint32_t)nr;
                with.ta = (uint32_t)ta;
                with.tb = (uint32_t)tb;
                if (!fits(site, n, &step.row, &with) || (!contraction && ta * (lines ? nr : 1) > max_apart))
                    continue;
                int64_t cost = tile_cost(a, b, vectors > 0 ? vectors : 1, ta, tb, nr, &step);
                int64_t both = cost + code_cost(cost, a, b, v.n, &with, regs, weight, tile_rest(site->g, n)) +
                               share_cost(site, t, cost, step.n, vectors, &with);
                if (both < least) {
                    least = both;
                    c = with;
                }
            }
    if (contraction && v.known)
        c.nr = narrow_vectors(site, t, &c, vectors, &step);
    if (out->tile.nr) { /* told */
        c.tb = out->tile.tb;
        c.ta = out->tile.ta;
        c.nr = out->tile.nr;
    }
    c.chunk = out->tile.chunk;
    out->tile = c;
}

static uint64_t node_flops(const struct site *site, node_id id)
{
    const struct node *n = graph_node(site->g, id);
    const struct type *t = value_type(site->g, n->out[0]);
    uint64_t points = 1;
    for (int32_t d = 0; d < t->rank; d++)
        points *= (uint64_t)extent_counted(site->m, t->dims[d]);
    return 2 * points * steps_of(site, n, false);
}

uint64_t anchor_flops(const struct site *site)
{
    node_id product = site->k->form.product;
    return node_flops(site, site->k->anchor) + (product.i ? node_flops(site, product) : 0);
}

/* A row of the operand by vectors along the reduced dim, in as many sums as hide the latency of an addition; its lines
 * come from L2 where L1 does not hold all rows. Cycles * STEP. */
static int64_t horizontal_cost(const struct site *site, const struct node *n, int64_t steps)
{
    const struct machine *m = site->mach;
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
static struct extent extent_at(const struct site *site, const struct type *t, int32_t d, const struct size_at *at)
{
    struct extent e = extent_of(site, t, d);
    if (at->size.i && !e.known && ex_is_const(site->x, size_at(site->x, t->dims[d], at), &e.n))
        e = (struct extent){e.n, .known = true, .rests = true};
    return e;
}

/* All points along a and b of a block of vectors. */
static int64_t block_estimate(const struct site *site, const struct size_at *at, const struct tile_schedule *c)
{
    const struct node *n = graph_node(site->g, site->k->anchor);
    const struct type *t = value_type(site->g, n->out[0]);
    struct extent v = extent_at(site, t, c->vec, at), a = extent_at(site, t, c->a, at),
                  b = extent_at(site, t, c->b, at);
    const struct step step = step_of(site, n, c->flat);
    int64_t vectors = (v.n + c->lanes - 1) / c->lanes, steps = step.n > INT32_MAX ? INT32_MAX : (int64_t)step.n;
    if (c->flat) {
        a = (struct extent){a.n * b.n, .known = a.known && b.known, .rests = a.rests};
        b = (struct extent){1, .known = true};
    }
    if (c->vec < 0 && reduce_horizontal(site->m, n))
        return horizontal_cost(site, n, steps) / (RATE_CYCLES_PER_NS * STEP);
    int64_t cost = tile_cost(a, b, vectors > 0 ? vectors : 1, c->ta, c->tb, c->nr, &step);
    if (is_emulated(site, n))
        cost *= RATE_DOT_STATEMENTS;
    int64_t each = cost / (vectors > c->nr ? (vectors + c->nr - 1) / c->nr : 1);
    return steps * (each > 0 ? each : 1) / (RATE_CYCLES_PER_NS * STEP);
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

int64_t tile_line_points(int64_t n, bool known, int64_t size)
{
    return body_points((struct extent){n, .known = known}, size, REST_POINTS);
}

int64_t tile_code(const struct site *site, const struct tile_schedule *c)
{
    const struct node *n = graph_node(site->g, site->k->anchor);
    const struct type *t = value_type(site->g, n->out[0]);
    struct extent v = extent_of(site, t, c->vec), a = extent_of(site, t, c->a), b = extent_of(site, t, c->b);
    return body_points(a, c->ta, tile_rest(site->g, n)) * body_points(b, c->tb, tile_rest(site->g, n)) *
           body_vectors(v.n, c);
}

int64_t tile_estimate(const struct site *site, const struct tile_schedule *c)
{
    const struct node *n = graph_node(site->g, site->k->anchor);
    const struct type *t = value_type(site->g, n->out[0]);
    int64_t lots = 1, parts = 1, extent = 0; /* an index is lots / parts of the points of a block of vectors */
    for (int32_t d = 0; d < t->rank && c->k_block; d++)
        if (tile_is_line(n, c, d) && ex_is_const(site->x, t->dims[d], &extent))
            lots *= extent;
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
