/* Operators that read images at computed places: GridSample, AffineGrid, RoiAlign, DeformConv; and Col2Im.
 *
 * A sample is a sum over neighbouring pixels: per spatial dim a list of taps (index, weight), their products over
 * all dims gathered from the flattened image. Indices are clamped, so that gathers need no check.
 */
#include "passes/legalize/nn/window.h"

enum { MAX_DIMS = 3, MAX_TAPS = 4 };
enum padding { PADDING_ZEROS, PADDING_BORDER, PADDING_REFLECTION };

/* One tap in one dim: integer positions as floats, and their weights ({0}: 1). */
struct tap {
    value_id pos, weight;
};
struct dim_taps {
    int n;
    struct tap tap[MAX_TAPS];
};

static value_id clamp_index(struct builder *b, value_id pos, expr_id size)
{
    value_id i = b_binary_f64(b, OP_MAX, b_convert(b, pos, ELEM_I64), 0);
    return b_binary(b, OP_MIN, i, v_expr(b, ELEM_I64, ex_addc(b->x, size, -1)));
}

static value_id inside(struct builder *b, value_id pos, expr_id size)
{
    value_id low = b_binary(b, OP_LE, b_splat_like(b, pos, 0), pos);
    return b_binary(b, OP_AND, low, b_binary(b, OP_LT, pos, v_expr(b, v_elem(b, pos), size)));
}

/* Mirrors x at lo and hi as often as it takes. */
static value_id reflect(struct builder *b, value_id x, value_id lo, value_id hi)
{
    value_id range = b_binary(b, OP_SUB, hi, lo), twice = b_binary_f64(b, OP_MUL, range, 2);
    value_id one = b_splat_like(b, twice, 1), flat = b_binary(b, OP_EQ, range, b_splat_like(b, range, 0));
    value_id t = b_binary(b, OP_MOD, b_binary(b, OP_SUB, x, lo), b_select(b, flat, one, twice));
    t = b_binary(b, OP_MIN, t, b_binary(b, OP_SUB, twice, t));
    return b_binary(b, OP_ADD, lo, b_select(b, flat, b_splat_like(b, t, 0), t));
}

/* Sum over all combinations of taps. image: [A, C, pixels]; positions: [A, 1 or C, P] each; zeros: pixels outside
 * weigh nothing. Result [A, C, P]. */
static value_id sample(struct builder *b, value_id image, const expr_id *size, const struct dim_taps *taps, int dims,
                       const expr_id *out, bool zeros)
{
    int at[MAX_DIMS] = {0}, k;
    value_id sum = {0};
    v_some_check(b, b_dim(b, image, 2), dims_product(b->x, out, 3));
    do {
        value_id flat = {0}, w = {0}, in_range = {0};
        for (k = 0; k < dims; k++) {
            const struct tap *t = &taps[k].tap[at[k]];
            value_id i = clamp_index(b, t->pos, size[k]);
            flat = k ? b_binary(b, OP_ADD, b_binary(b, OP_MUL, flat, v_expr(b, ELEM_I64, size[k])), i) : i;
            if (t->weight.i)
                w = w.i ? b_binary(b, OP_MUL, w, t->weight) : t->weight;
            if (zeros)
                in_range = k ? b_binary(b, OP_AND, in_range, inside(b, t->pos, size[k])) : inside(b, t->pos, size[k]);
        }
        value_id in[2] = {image, b_broadcast(b, flat, out, 3)};
        value_id v = b_op(b, OP_GATHER_ELEMENTS, in, 2, ARRAY(struct attr, attr_int("axis", 2), attr_int("clamp", 1)));
        if (zeros)
            v = b_select(b, in_range, v, b_splat_like(b, v, 0));
        if (w.i)
            v = b_binary(b, OP_MUL, v, b_convert(b, w, v_elem(b, v)));
        sum = sum.i ? b_binary(b, OP_ADD, sum, v) : v;
        for (k = dims - 1; k >= 0 && ++at[k] == taps[k].n; k--)
            at[k] = 0;
    } while (k >= 0 && sum.i);
    return sum;
}

static struct dim_taps linear_taps(struct builder *b, value_id pos)
{
    value_id low = b_unary(b, OP_FLOOR, pos), frac = b_binary(b, OP_SUB, pos, low);
    value_id rest = b_binary(b, OP_SUB, b_splat_like(b, frac, 1), frac);
    return (struct dim_taps){2, {{low, rest}, {b_binary_f64(b, OP_ADD, low, 1), frac}}};
}

/* ---- GridSample -------------------------------------------------------------------------------------------------- */

/* Cubic convolution with a = -0.75 at distances 1 + t, t, 1 - t, 2 - t. */
static struct dim_taps cubic_taps(struct builder *b, value_id pos)
{
    const double a = -0.75;
    struct dim_taps out = {.n = 4};
    value_id low = b_unary(b, OP_FLOOR, pos), t = b_binary(b, OP_SUB, pos, low);
    for (int k = 0; k < 4; k++) {
        value_id d = k < 2 ? b_binary_f64(b, OP_ADD, t, 1 - k) : b_binary(b, OP_SUB, b_splat_like(b, t, k - 1), t), w;
        if (k == 0 || k == 3) {
            w = v_affine(b, d, a, -5 * a);
            w = b_binary_f64(b, OP_ADD, b_binary(b, OP_MUL, w, d), 8 * a);
            w = b_binary_f64(b, OP_SUB, b_binary(b, OP_MUL, w, d), 4 * a);
        } else {
            w = v_affine(b, d, a + 2, -(a + 3));
            w = b_binary_f64(b, OP_ADD, b_binary(b, OP_MUL, b_binary(b, OP_MUL, w, d), d), 1);
        }
        out.tap[k] = (struct tap){b_binary_f64(b, OP_ADD, low, k - 1), w};
    }
    return out;
}

struct grid {
    int method;
    enum padding padding;
    bool align;
}; /* method: taps per dim */

static bool grid_read(struct rule *r, struct grid *g)
{
    const char *mode = rule_str(r, "mode", "linear"), *padding = rule_str(r, "padding_mode", "zeros");
    g->align = rule_int(r, "align_corners", 0) != 0;
    g->method = strcmp(mode, "nearest") == 0 ? 1 : strstr(mode, "linear") ? 2 : strstr(mode, "cubic") ? 4 : 0;
    g->padding = strcmp(padding, "border") == 0       ? PADDING_BORDER
                 : strcmp(padding, "reflection") == 0 ? PADDING_REFLECTION
                                                      : PADDING_ZEROS;
    return g->method ? true : rule_bad(r, "mode is \"%.40s\"", mode);
}

static value_id grid_bound(struct builder *b, const struct grid *g, expr_id size, enum elem e, bool upper)
{
    value_id at = v_expr(b, e, upper ? ex_addc(b->x, size, -1) : ex_const(b->x, 0));
    return g->align ? at : b_binary_f64(b, OP_ADD, at, upper ? 0.5 : -0.5);
}

static value_id grid_pad(struct builder *b, const struct grid *g, value_id pos, expr_id size)
{
    enum elem e = v_elem(b, pos);
    if (g->padding == PADDING_REFLECTION)
        return reflect(b, pos, grid_bound(b, g, size, e, false), grid_bound(b, g, size, e, true));
    if (g->padding != PADDING_BORDER)
        return pos;
    pos = b_binary_f64(b, OP_MAX, pos, 0);
    return b_binary(b, OP_MIN, pos, v_expr(b, e, ex_addc(b->x, size, -1)));
}

/* Coordinates in [-1, 1] -> taps in pixels. */
static struct dim_taps grid_taps(struct builder *b, const struct grid *g, value_id x, expr_id size)
{
    value_id len = v_expr(b, v_elem(b, x), size), up = b_binary_f64(b, OP_ADD, x, 1);
    value_id pos = b_binary(b, OP_MUL, up, g->align ? b_binary_f64(b, OP_SUB, len, 1) : len);
    if (!g->align)
        pos = b_binary_f64(b, OP_SUB, pos, 1);
    pos = b_binary_f64(b, OP_MUL, pos, 0.5);
    struct dim_taps taps;
    if (g->method == 1)
        pos = b_unary(b, OP_ROUND, pos);
    if (g->method < 4)
        pos = grid_pad(b, g, pos, size);
    if (g->method == 1)
        return (struct dim_taps){1, {{b_unary(b, OP_ROUND, pos), {0}}}};
    taps = g->method == 2 ? linear_taps(b, pos) : cubic_taps(b, pos);
    for (int k = 0; k < taps.n; k++)
        taps.tap[k].pos = grid_pad(b, g, taps.tap[k].pos, size);
    return taps;
}

bool rule_grid_sample(struct rule *r)
{
    struct builder *b = r->b;
    value_id in = rule_in(r, 0), x = v_widen(b, in), grid = rule_in(r, 1);
    const struct dims d = b_dims(b, x), dg = b_dims(b, grid);
    struct grid g;
    struct dim_taps taps[MAX_DIMS];
    if (!d.d || !dg.d || !grid_read(r, &g))
        return false;
    int dims = d.rank - 2;
    if (dims < 1 || dims > MAX_DIMS || dg.rank != d.rank)
        return rule_refuse(r, "the input has rank %d and the grid rank %d", (int)d.rank, (int)dg.rank);
    expr_id pixels = dims_product(b->x, d.d + 2, dims), points = dims_product(b->x, dg.d + 1, dims);
    expr_id flat_image[3] = {d.d[0], d.d[1], pixels}, flat_grid[3] = {dg.d[0], points, ex_const(b->x, dims)};
    expr_id flat_out[3] = {d.d[0], d.d[1], points}, out[RANK_MAX] = {d.d[0], d.d[1]};
    grid = b_convert(b, b_reshape(b, grid, flat_grid, 3), v_elem(b, x));
    for (int i = 0; i < dims; i++) { /* the last coordinate belongs to the first spatial dim */
        value_id c = b_slice_axis(b, grid, 2, ex_const(b->x, dims - 1 - i), ex_const(b->x, 1));
        taps[i] = grid_taps(b, &g, b_unsqueeze(b, b_squeeze(b, c, 2), 1), d.d[2 + i]);
        out[2 + i] = dg.d[1 + i];
    }
    value_id y = sample(b, b_reshape(b, x, flat_image, 3), d.d + 2, taps, dims, flat_out, g.padding == PADDING_ZEROS);
    return rule_result(r, b_convert(b, b_reshape(b, y, out, d.rank), v_elem(b, in)));
}

/* ---- AffineGrid -------------------------------------------------------------------------------------------------- */

/* Centres of n pixels in [-1, 1], or with align_corners from -1 to 1; one pixel is in the middle, as in PyTorch. */
static value_id grid_line(struct builder *b, enum elem e, expr_id n, bool align, const expr_id *dims, int32_t rank,
                          int32_t axis)
{
    value_id i = v_iota(b, e, dims, rank, axis);
    expr_id last = ex_addc(b->x, n, -1), steps = align ? ex_max(b->x, last, ex_const(b->x, 1)) : n;
    return b_binary(b, OP_DIV, b_binary(b, OP_SUB, v_affine(b, i, 2, 0), v_expr(b, e, last)), v_expr(b, e, steps));
}

/* The sizes N, C, [D,] H, W, and theta as [N, 2, 3] or [N, 3, 4], as their number says. */
static const expr_id *grid_sizes(struct rule *r, value_id *theta, uint32_t *n)
{
    struct builder *b = r->b;
    const struct dims d = b_dims(b, *theta);
    int64_t rows = 0;
    if (!d.d)
        return NULL;
    if (d.rank > 1 && ex_is_const(b->x, d.d[1], &rows) && (rows == 2 || rows == 3) && !v_count_known(b, rule_in(r, 1)))
        *n = (uint32_t)rows + 2;
    else if (!rule_count(r, 1, "sizes", 4, 5, n))
        return NULL;
    if (*n != 4 && *n != 5)
        return rule_bad(r, "size has %u entries", *n), NULL;
    expr_id want[3] = {d.d[0], ex_const(b->x, *n - 2), ex_const(b->x, *n - 1)};
    if (!rule_shaped(r, *theta, "theta", want, 3))
        return NULL;
    *theta = b_reshape(b, *theta, want, 3);
    return b_elems(b, v_exactly(b, rule_in(r, 1), *n), 0, INT32_MAX, n);
}

bool rule_affine_grid(struct rule *r)
{
    struct builder *b = r->b;
    value_id in = rule_in(r, 0), theta = v_widen(b, in);
    uint32_t n = 0;
    const expr_id *size = grid_sizes(r, &theta, &n);
    bool align = rule_int(r, "align_corners", 0) != 0;
    if (!size)
        return false;
    int dims = (int)n - 2;
    enum elem e = v_elem(b, theta);
    expr_id points = dims_product(b->x, size + 2, dims), space[MAX_DIMS + 1], out[5];
    memcpy(space, size + 2, (size_t)dims * sizeof *space);
    space[dims] = ex_const(b->x, 1);
    value_id columns[MAX_DIMS + 1];
    for (int i = 0; i < dims; i++) /* x first: the last spatial dim */
        columns[i] = grid_line(b, e, size[1 + dims - i], align, space, dims + 1, dims - 1 - i);
    columns[dims] = b_splat_f64(b, e, 1, space, dims + 1);
    expr_id flat[2] = {points, ex_const(b->x, dims + 1)};
    static const int64_t perm[] = {0, 2, 1};
    value_id base = b_reshape(b, b_concat(b, columns, (uint32_t)dims + 1, dims), flat, 2);
    value_id y = b_matmul(b, base, b_transpose(b, theta, perm));
    out[0] = b_dim(b, theta, 0);
    memcpy(out + 1, size + 2, (size_t)dims * sizeof *out);
    out[1 + dims] = ex_const(b->x, dims);
    return rule_result(r, b_convert(b, b_reshape(b, y, out, dims + 2), v_elem(b, in)));
}

/* ---- Col2Im ------------------------------------------------------------------------------------------------------ */

/* Place of (block element, block) along one dim: o * stride + k * dilation - pad. dims: [K.., O..] of all dims. */
static value_id col_place(struct builder *b, const struct spatial *s, int n, int i, const expr_id *dims)
{
    value_id k = v_iota(b, ELEM_I64, dims, 2 * n, i), o = v_iota(b, ELEM_I64, dims, 2 * n, n + i);
    value_id at = b_binary(b, OP_ADD, b_binary_f64(b, OP_MUL, o, (double)s->strides[i]),
                           b_binary_f64(b, OP_MUL, k, (double)s->dilations[i]));
    return b_binary(b, OP_SUB, at, v_expr(b, ELEM_I64, s->lo[i]));
}

enum { OPEN_IMAGE_MAX = 4 }; /* spatial dims, where nothing says how many there are */

/* The number of spatial dims: what any operand or attribute that has one entry for each says. */
static bool col_dims(struct rule *r, uint32_t *n)
{
    static const struct {
        const char *name;
        uint32_t each;
    } lists[] = {{"strides", 1}, {"dilations", 1}, {"pads", 2}};
    for (uint32_t i = 1; i < 3; i++)
        if (v_count_known(r->b, rule_in(r, i)))
            return rule_count(r, i, "sizes", 1, 1, n);
    for (size_t i = 0; i < COUNT_OF(lists); i++) {
        if (rule_ints(r, lists[i].name, n) && *n) {
            *n /= lists[i].each;
            return true;
        }
    }
    return rule_count(r, 1, "image sizes", 1, OPEN_IMAGE_MAX, n);
}

enum { PLACE_PARTS = 8 }; /* of the number of places along a dim: products of it with the others stay short */

bool rule_col2im(struct rule *r)
{
    struct builder *b = r->b;
    struct exprs *ex = b->x;
    value_id in = rule_in(r, 0), x = v_widen(b, in);
    uint32_t n, nb;
    if (!rule_in(r, 1).i || !rule_in(r, 2).i || !col_dims(r, &n))
        return false;
    const expr_id *block = b_elems(b, v_exactly(b, rule_in(r, 2), n), 1, INT32_MAX, &nb);
    const expr_id *image = b_elems(b, v_exactly(b, rule_in(r, 1), n), 0, INT32_MAX, &n);
    struct spatial s;
    const struct dims d = b_dims(b, x);
    if (!d.d || !image || !block || !spatial_read(r, (int32_t)n, &s))
        return false;
    if (d.rank != 3 || n != nb || n > 8)
        return rule_bad(r, "input of rank %d, %u image and %u block sizes", (int)d.rank, n, nb);
    expr_id dims[16], block_size = ex_const(ex, 1), blocks = ex_const(ex, 1), pixels = ex_const(ex, 1), out[RANK_MAX];
    for (uint32_t i = 0; i < n; i++) {
        expr_id room = ex_add(ex, image[i], ex_add(ex, s.lo[i], s.hi[i]));
        room = ex_sub(ex, room, spatial_reach(ex, &s, (int32_t)i, block[i]));
        dims[i] = block[i];
        const expr_id places = ex_addc(ex, ex_div(ex, room, ex_const(ex, s.strides[i])), 1);
        if (ex_lo(ex, places) < 0) /* the product of two such dims may be the number of columns */
            b_assert(b, ex_le(ex, ex_const(ex, 0), places), EVAL_SHAPE, "a block is larger than its image");
        dims[n + i] = b_brief(b, places, PLACE_PARTS);
        block_size = ex_mul(ex, block_size, block[i]);
        blocks = ex_mul(ex, blocks, dims[n + i]);
        pixels = ex_mul(ex, pixels, image[i]);
        out[2 + i] = image[i];
    }
    value_id flat = {0}, valid = {0};
    for (uint32_t i = 0; i < n; i++) {
        value_id at = col_place(b, &s, (int)n, (int)i, dims), fine = inside(b, at, image[i]);
        flat = i ? b_binary(b, OP_ADD, b_binary(b, OP_MUL, flat, v_expr(b, ELEM_I64, image[i])), at) : at;
        valid = i ? b_binary(b, OP_AND, valid, fine) : fine;
    }
    expr_id channels = ex_div(ex, d.d[1], block_size), all = ex_mul(ex, block_size, blocks);
    expr_id columns[3] = {d.d[0], channels, all}, whole[3] = {d.d[0], channels, pixels};
    out[0] = d.d[0];
    out[1] = channels;
    flat = b_select(b, valid, flat, b_splat_like(b, flat, 0));
    value_id idx = b_broadcast(b, b_reshape(b, flat, &all, 1), columns, 3);
    value_id updates = b_reshape(b, x, columns, 3);
    updates = b_select(b, b_reshape(b, valid, &all, 1), updates, b_splat_like(b, updates, 0));
    value_id y = b_scatter_elements(b, b_splat_f64(b, v_elem(b, x), 0, whole, 3), idx, updates, 2, "sum");
    return rule_result(r, b_convert(b, b_reshape(b, y, out, (int32_t)n + 2), v_elem(b, in)));
}

/* ---- DeformConv -------------------------------------------------------------------------------------------------- */

/* Operands: X (N, C, H, W), W (M, C/g, kh, kw), offset (N, og*K*dims, O..), bias, mask (N, og*K, O..). The sampled
 * columns (N, g, C/g * K, O) meet the weights (g, M/g, C/g * K) in one product. */
struct deform {
    struct spatial s;
    const expr_id *x, *w; /* dims */
    expr_id taps, points, pixels, out[RANK_MAX];
    int64_t groups, offset_groups;
};

/* Positions along dim i for every offset group: [N, og, K * O] in the element type of the offsets. */
static value_id deform_positions(struct builder *b, const struct deform *d, value_id offset, int i)
{
    int n = d->s.n;
    expr_id apart[5] = {d->x[0], ex_const(b->x, d->offset_groups), d->taps, ex_const(b->x, n), d->points};
    expr_id flat = ex_mul(b->x, d->taps, d->points), joined[3] = {d->x[0], apart[1], flat}, dims[2 * MAX_DIMS];
    value_id moved = b_squeeze(
        b, b_slice_axis(b, b_reshape(b, offset, apart, 5), 3, ex_const(b->x, i), ex_const(b->x, 1)), 3);
    for (int k = 0; k < n; k++) {
        dims[k] = d->w[2 + k];
        dims[n + k] = d->out[k];
    }
    value_id base = b_convert(b, b_reshape(b, col_place(b, &d->s, n, i, dims), &flat, 1), v_elem(b, offset));
    return b_binary(b, OP_ADD, b_reshape(b, moved, joined, 3), base);
}

/* [N, og, P] -> [N, C, P]: each offset group serves C / og channels. */
static value_id deform_spread(struct builder *b, const struct deform *d, value_id v, expr_id points)
{
    expr_id og = ex_const(b->x, d->offset_groups), per = ex_div(b->x, d->x[1], og);
    expr_id wide[4] = {d->x[0], og, per, points}, out[3] = {d->x[0], d->x[1], points};
    return b_reshape(b, b_broadcast(b, b_unsqueeze(b, v, 2), wide, 4), out, 3);
}

static bool deform_read(struct rule *r, struct deform *d, value_id x, value_id w)
{
    struct builder *b = r->b;
    const struct dims of_x = b_dims(b, x), of_w = b_dims(b, w);
    d->x = of_x.d;
    d->w = of_w.d;
    d->groups = rule_int(r, "group", 1);
    d->offset_groups = rule_int(r, "offset_group", 1);
    if (!d->x || !d->w)
        return false;
    if (of_x.rank != of_w.rank || of_x.rank < 3 || of_x.rank > 2 + MAX_DIMS || d->groups < 1 || d->offset_groups < 1)
        return rule_refuse(r, "the input has rank %d and the weights rank %d", (int)of_x.rank, (int)of_w.rank);
    if (!spatial_read(r, of_x.rank - 2, &d->s))
        return false;
    d->taps = d->points = d->pixels = ex_const(b->x, 1);
    for (int i = 0; i < d->s.n; i++) {
        expr_id room = ex_add(b->x, d->x[2 + i], ex_add(b->x, d->s.lo[i], d->s.hi[i]));
        room = ex_sub(b->x, room, spatial_reach(b->x, &d->s, i, d->w[2 + i]));
        d->out[i] = ex_addc(b->x, ex_div(b->x, room, ex_const(b->x, d->s.strides[i])), 1);
        d->taps = ex_mul(b->x, d->taps, d->w[2 + i]);
        d->points = ex_mul(b->x, d->points, d->out[i]);
        d->pixels = ex_mul(b->x, d->pixels, d->x[2 + i]);
    }
    return true;
}

bool rule_deform_conv(struct rule *r)
{
    struct builder *b = r->b;
    value_id in = rule_in(r, 0), x = v_widen(b, in), w = v_widen(b, rule_in(r, 1)), offset = v_widen(b, rule_in(r, 2));
    struct deform d;
    struct dim_taps taps[MAX_DIMS];
    if (!offset.i || !deform_read(r, &d, x, w))
        return false;
    expr_id flat = ex_mul(b->x, d.taps, d.points), image[3] = {d.x[0], d.x[1], d.pixels},
            columns[3] = {d.x[0], d.x[1], flat};
    for (int i = 0; i < d.s.n; i++)
        taps[i] = linear_taps(b, deform_spread(b, &d, deform_positions(b, &d, offset, i), flat));
    value_id col = sample(b, b_reshape(b, x, image, 3), d.x + 2, taps, d.s.n, columns, true);
    if (rule_has(r, 4)) {
        expr_id m[3] = {d.x[0], ex_const(b->x, d.offset_groups), flat};
        value_id mask = b_reshape(b, v_widen(b, rule_in(r, 4)), m, 3);
        col = b_binary(b, OP_MUL, col, deform_spread(b, &d, mask, flat));
    }
    expr_id g = ex_const(b->x, d.groups), rows = ex_div(b->x, d.w[0], g), inner = ex_mul(b->x, d.w[1], d.taps);
    expr_id wide_col[4] = {d.x[0], g, inner, d.points}, wide_w[3] = {g, rows, inner};
    value_id y = b_matmul(b, b_reshape(b, w, wide_w, 3), b_reshape(b, col, wide_col, 4));
    expr_id out[RANK_MAX] = {d.x[0], d.w[0]};
    memcpy(out + 2, d.out, (size_t)d.s.n * sizeof *out);
    y = b_reshape(b, y, out, d.s.n + 2);
    if (rule_has(r, 3))
        y = b_binary(b, OP_ADD, y, v_channels(b, v_widen(b, rule_in(r, 3)), y, 1));
    return rule_result(r, b_convert(b, y, v_elem(b, in)));
}
