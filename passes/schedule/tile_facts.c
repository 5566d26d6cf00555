/* What the cost model takes from an anchor and the CPU before it chooses a register tile: which dim gets the lanes, how
 * a step multiplies, what fits the registers.
 */
#include "passes/module/compressed.h"
#include "passes/schedule/tile_cost.h"

enum {
    MAX_SCATTERED = 9,
    MANY_WORDS = 16 /* single registers: fewer hold the sums of two points and two columns, not of four */
};

bool anchor_is_window(const struct site *site, const struct node *n)
{
    return n->op == OP_WINDOW || conv_depthwise(site->g, n);
}

/* The dim before dim a of a product, if the points of both can be numbered through: they are of dynamic number, few
 * along a for all that is known, and lie equally far apart in the first operand. Of 8 sequences of one token, each
 * would be a tile of its own otherwise. -1: none. */
static int32_t rows_before(const struct site *site, const struct node *n, int32_t a)
{
    const struct storage *s = &site->m->fused.storage[n->in[0].i];
    const struct type *t = value_type(site->g, n->out[0]);
    int32_t free_dim[RANK_MAX], count = dot_free(site->g, n, 0, free_dim);
    int64_t extent;
    if (a < 0 || count < 2 || site->k->kind != KERNEL_CONTRACT || site->k->outs.n != 1 || s->place == PLACE_NONE ||
        ex_is(site->x, t->dims[a - 1], 1) ||
        (ex_is_const(site->x, t->dims[a], &extent) &&
         (extent > RATE_VERSION_ROWS || ex_is_const(site->x, t->dims[a - 1], NULL))))
        return -1;
    const struct dim_layout *outer = &s->dim[free_dim[count - 2]], *inner = &s->dim[free_dim[count - 1]];
    bool even = !outer->block && !inner->block && outer->outer.i == ex_mul(site->x, inner->outer, t->dims[a]).i;
    return even ? a - 1 : -1;
}

/* The last dim of a reduction's result, if its rows lie along memory and take so few ns that a parallel index for each
 * would take as long; -1: not. */
static int32_t short_rows(const struct site *site, const struct node *n)
{
    const struct type *t = value_type(site->g, n->out[0]);
    int32_t last = t->rank - 1;
    int64_t rows;
    bool few = last >= 0 && ex_is_const(site->x, t->dims[last], &rows) && rows > 1 &&
               mul_i64(rows, horizontal_cost(site, n), &rows) && rows <= RATE_ROWS_NS * RATE_CYCLES_PER_NS * STEP;
    return few ? last : -1;
}

/* The dims: lanes along the output channels (or the last dim of b) where the stored value is contiguous there. */
static void choose_dims(const struct site *site, const struct node *n, struct tile_schedule *c)
{
    const struct type *t = value_type(site->g, n->out[0]);
    int32_t rank = t->rank, last = rank - 1;
    c->vec = c->a = c->b = -1;
    if (rank > 0 && reduce_horizontal(site->m, n))
        c->a = n->op == OP_REDUCE ? short_rows(site, n) : -1;
    if (rank == 0 || reduce_horizontal(site->m, n))
        return;
    if (n->op == OP_SEGMENTS) { /* each point of a tile goes through the same segment */
        c->vec = node_int(n, "axis", 0) == last ? -1 : last;
        return;
    }
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
        c->b = rows_before(site, n, c->a);
        return;
    }
    if (n->op == OP_ARGREDUCE) { /* the result lacks the axis */
        int32_t of = value_fast_dim(site->m, n->in[0]), axis = (int32_t)node_int(n, "axis", 0);
        c->vec = of < 0 || of == axis ? last : of < axis ? of : of - 1;
        return;
    }
    /* A convolution's weights are packed along the output channels, unless its lanes are pixels. */
    int32_t fast = n->op == OP_CONV && !conv_depthwise(site->g, n) ? (conv_pixel_lanes(site->m, n) ? last : 1)
                   : site->k->form.product.i && n->in[0].i == site->k->form.staged.i /* scratch, in blocks */
                       ? 1
                       : value_fast_dim(site->m, n->in[0]);
    if (fast < 0 || fast > last)
        fast = last;
    c->vec = fast;
    if (conv_of_rows(site->m, n)) {
        c->a = 0;
        return;
    }
    bool window = anchor_is_window(site, n), open = rank >= 4 && !ex_is_const(site->x, t->dims[last - 1], NULL);
    c->a = c->vec != last                           ? last
           : n->op == OP_CONV && !window            ? 1
           : window && open && site->k->outs.n == 1 ? last - 1
                                                    : -1;
    /* A dynamic number of rows is no parallel dim of a window: each parallel index would need divisions. */
    bool rows = c->a == last && rank >= 4 && (window ? site->k->outs.n == 1 && open : n->op == OP_CONV);
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

/* Where the operand of convolution n lies: of a view that moves channels and images alone (a channel shuffle) what it
 * is a view of. */
static value_id image_of(const struct site *site, const struct node *n)
{
    const struct type *t = value_type(site->g, n->in[0]);
    expr_id idx[RANK_MAX], at[RANK_MAX];
    for (int32_t d = 0; d < t->rank; d++)
        at[d] = idx[d] = point_along(site, t->dims[d]);
    value_id base = behind_views(site->m, n->in[0], at);
    if (value_type(site->g, base)->rank != t->rank)
        return n->in[0];
    for (int32_t d = 2; d < t->rank; d++)
        if (at[d].i != idx[d].i)
            return n->in[0];
    return base;
}

/* May the points of an image be numbered through? A convolution of one tap, or of any if the map is of dynamic size,
 * and may be small: a register tile may then begin in one row and end in the next. Where rows of the operand do not lie
 * one after the other, or points are left out between, each point of the tile has an address of its own: few then, or
 * they would not stay in registers. */
static bool is_flat(const struct site *site, const struct node *n, const struct tile_schedule *c, int64_t *most)
{
    if (n->op == OP_DOT)
        return c->b >= 0;
    if (n->op != OP_CONV || conv_depthwise(site->g, n) || c->b < 0 || c->a != c->b + 1)
        return false;
    const struct type *in = value_type(site->g, n->in[0]), *w = value_type(site->g, n->in[1]),
                      *y = value_type(site->g, n->out[0]);
    uint32_t count;
    const int64_t *strides = node_ints(n, "strides", &count), *xdil = node_ints(n, "xdil", &count);
    int64_t extent;
    bool same = true, staged = site->k->form.staged.i == n->in[0].i;
    bool few = !ex_is_const(site->x, w->dims[1], &extent) ||
               extent < CHANNEL_BLOCK; /* not worth the places of points */
    bool even = ex_is_const(site->x, y->dims[c->b], NULL) && ex_is_const(site->x, y->dims[c->a], NULL);
    const struct storage *s = &site->m->fused.storage[(even ? n->in[0] : image_of(site, n)).i];
    for (int32_t d = c->b; d <= c->a; d++) {
        bool one = ex_is(site->x, w->dims[d], 1);
        if ((!one && (even || staged || few || row_taps(site, n).dim >= 0 || !is_covered(site, n, d - 2))) ||
            xdil[d - 2] != 1 || (!staged && (s->place == PLACE_NONE || s->dim[d].block)))
            return false;
        same &= one && strides[d - 2] == 1 && in->dims[d].i == y->dims[d].i;
    }
    if (staged && !same)
        return false;
    bool lines = same && (staged || s->dim[c->b].outer.i == ex_mul(site->x, s->dim[c->a].outer, y->dims[c->a]).i);
    if (site->mach->tiles && dot_group(site->m, n) > 1 && !lines) /* rows of tiles lie equally far apart */
        return false;
    for (int32_t d = c->b; d <= c->a; d++)
        if (ex_is_const(site->x, y->dims[d], &extent) ? extent < 2 : staged)
            return false;
    *most = staged || lines ? MAX_TA : MAX_SCATTERED;
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

uint64_t anchor_steps(const struct site *site, const struct node *n, bool guess)
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
    } else if (n->op == OP_SEGMENTS) { /* on average */
        int64_t axis = node_int(n, "axis", 0);
        uint64_t lines = extent_steps(site, value_type(site->g, n->out[0])->dims[axis], 1);
        steps = extent_steps(site, value_type(site->g, n->in[0])->dims[axis], guess ? 64 : 0);
        steps = lines ? (steps + lines - 1) / lines : steps;
    } else {
        const int64_t *k = node_ints(n, "kernel", &count);
        for (uint32_t i = 0; i < count; i++)
            steps *= (uint64_t)k[i];
    }
    return steps;
}

uint64_t tile_steps(const struct site *site, const struct node *n)
{
    return anchor_steps(site, n, true);
}

bool anchor_emulated(const struct site *site, const struct node *n)
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
    const struct storage *s = &site->m->fused.storage[weight_whole(site->g, n->in[1]).i];
    const int64_t *contract = n->op == OP_DOT ? node_ints(n, "contract_b", &count) : NULL;
    return s->place == PLACE_WEIGHTS && s->dim[contract ? contract[count - 1] : 1].block == 2 * (int64_t)group;
}

/* Registers of a tile of mr points x nr vectors besides its accumulators. L_DOT without an instruction takes both
 * operands apart: even and odd elements of each vector and of the broadcast, and two temporaries. */
static int64_t more_registers(bool emulated, bool contraction, int64_t nr)
{
    return !contraction ? 4 : emulated ? 2 * nr + 4 : nr + 1;
}

bool anchor_contracts(const struct site *site, const struct node *n)
{
    return n->op == OP_DOT || (n->op == OP_CONV && !conv_depthwise(site->g, n));
}

/* Sums in single registers, besides them their factors, of groups in halves, and addresses. */
static bool fits_words(const struct site *site, const struct node *n, const struct tile_schedule *c)
{
    enum { ADDRESSES = 3, ACROSS = 4 /* sums of a register into one lane: it is one of an even number */ };
    int64_t rows = (int64_t)c->ta * c->tb, sums = rows * c->nr * c->lanes,
            group = n->n_in > 1 ? dot_group(site->m, n) : 1;
    if (group == REGISTER_BYTES)
        return sums <= ACROSS;
    uint32_t width = c->nr * c->lanes;
    if (group > 1 && width > 0 && CHANNEL_BLOCK % width != 0) /* its panels have an address each */
        return false;
    if (group > 1) /* those of all columns, if rows share them, and of a row; the loop's counter may lie in memory */
        return sums + 2 * ((rows > 1 ? width : 1) + 1) + 1 <= site->mach->words;
    return sums + rows + 1 + ADDRESSES <= site->mach->words;
}

/* Are the sums integers of a core without vectors of them, or without lanes? */
static bool has_words(const struct site *site, const struct node *n)
{
    bool contraction = n->op == OP_DOT || n->op == OP_CONV;
    return (site->mach->words && elem_class(reduce_elem(site->g, n)) != 'F') ||
           (contraction && dot_group(site->m, n) == REGISTER_BYTES);
}

/* Steps of a block that has a scale, where each is an instruction; 0: there are none, or they are not. */
static int64_t block_steps(const struct site *site, const struct node *n)
{
    struct reduced dims;
    int64_t steps = 1, extent;
    enum dot_kind kind = dot_kind_of(site->m, n);
    if (!dot_scaled(n) || kind == DOT_KINDS || site->mach->dot[kind] < DOT_WHOLE || tile_by_lane(site, n))
        return 0;
    reduced_dims(site, n, false, &dims);
    for (uint32_t d = 1; d < dims.n; d++)
        if (!ex_is_const(site->x, dims.dim[d].extent, &extent) || !mul_i64(steps, extent, &steps))
            return 0;
    return steps / dot_group(site->m, n);
}

bool tile_fits_row(const struct site *site, const struct node *n, const struct row_taps *row,
                   const struct tile_schedule *c)
{
    bool arg = reduce_is_arg(n), matrix = tile_matrix(site, n);
    if (has_words(site, n))
        return fits_words(site, n, c);
    int64_t rows = (int64_t)c->ta * c->tb, sums = (matrix ? rows + rows % 2 : rows) * c->nr, need = sums;
    if (matrix) /* rows in pairs, the columns at hand and the next */
        need += rows + rows % 2 + 2;
    else if (tile_by_lane(site, n)) /* lanes of each point, the vector at hand and the next */
        need += (int64_t)c->ta * c->tb + 2;
    else
        need += more_registers(anchor_emulated(site, n), anchor_contracts(site, n), c->nr);
    /* The sums of a block, besides those of all, which go to memory once in a block where a step is an instruction. */
    if (dot_scaled(n) && !block_steps(site, n))
        need += sums;
    if (row->dim >= 0) /* the weights of all taps */
        need += (row->taps - 1) * (int64_t)c->nr + 1;
    return need <= (int64_t)site->mach->registers && sums * (arg ? 2 : 1) <= TILE_POINTS_MOST;
}

bool tile_fits(const struct site *site, const struct node *n, const struct tile_schedule *c)
{
    const struct row_taps row = row_taps(site, n);
    return c->matmul ? matmul_serves(site, c) : tile_fits_row(site, n, &row, c);
}

/* Channels of a group where they are points along a; 0: there are no groups. */
static int64_t group_points(const struct site *site, const struct node *n, const struct tile_schedule *c)
{
    int64_t groups = c->a == 1 && conv_pixel_lanes(site->m, n) ? node_int(n, "groups", 1) : 1;
    return groups > 1 ? anchor_extent(site, value_type(site->g, n->out[0]), c->a).n / groups : 0;
}

struct anchor_step anchor_step(const struct site *site, const struct node *n, const struct tile_schedule *c)
{
    uint64_t group = dot_group(site->m, n);
    enum tile_rest rest = tile_rest(site, n, c);
    int64_t block = block_steps(site, n);
    bool line = n->op != OP_DOT && !conv_of_rows(site->m, n) && rest != REST_POINTS;
    return (struct anchor_step){.shared = anchor_contracts(site, n),
                                .per_group = group_points(site, n, c),
                                .n = (tile_steps(site, n) + group - 1) / group,
                                .matrix = tile_matrix(site, n),
                                .points = block             ? POINTS_OF_ROWS
                                          : n->op == OP_DOT ? 0
                                          : c->flat         ? POINTS_OF_IMAGE
                                          : line            ? POINTS_OF_LINE
                                                            : 0,
                                .block = block,
                                .rest = rest,
                                .row = row_taps(site, n),
                                .mach = site->mach,
                                .words = site->mach->words && has_words(site, n) ? c->lanes : 0,
                                .halves = group > 1};
}

/* Dims and lanes; *most: points along a that a tile numbered through may have. */
void tile_form(const struct site *site, const struct node *n, struct tile_schedule *c, int64_t *most)
{
    choose_dims(site, n, c);
    c->lanes = machine_vector_lanes(site->mach, value_type(site->g, reduce_is_arg(n) ? n->in[0] : n->out[0])->elem);
    if (tile_halves(site, n))
        c->lanes *= 2;
    if (c->lanes == 4 && site->mach->words && site->mach->words < MANY_WORDS && has_words(site, n))
        c->lanes = 2;
    c->flat = is_flat(site, n, c, most);
}

struct tile_facts tile_facts(const struct site *site)
{
    struct tile_schedule c = {.chunk = 0};
    tile_form(site, graph_node(site->g, site->k->anchor), &c, &(int64_t){0});
    bool windows = stage_by_rows(site, &c);
    return (struct tile_facts){c.vec, c.a, c.b, c.lanes, c.flat, windows, c.by_piece};
}
