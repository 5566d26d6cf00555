/* Regions of interest: RoiAlign, MaxRoiPool.
 *
 * RoiAlign reads bilinear samples through one indirect gather over the transposed image, so nothing is copied per
 * region. Source: ONNX Operators.md, RoiAlign-16; max mode takes the largest weighted corner, as the reference does.
 *
 * MaxRoiPool reads the pixels of each bin the same way. Bins differ in size, so each is read as often as the largest of
 * them has pixels (a dynamic value), and indices stop at a bin's last pixel: the largest does not mind reading it
 * again.
 */
#include "passes/legalize/legalize.h"

/* Samples along one axis: [R, bins, samples] lower index, upper index, weight of the upper one, inside or not. */
struct line {
    value_id low, high, frac, inside;
};

struct roi {
    int64_t samples;
    double scale, offset;
    bool max;
    value_id rois, batch;      /* [R, 4] of the image's type, widened, as all places are; i64 [R] */
    expr_id n;
};

static value_id roi_column(struct builder *b, const struct roi *o, int64_t k)
{
    value_id c = b_slice_axis(b, o->rois, 1, ex_const(b->x, k), ex_const(b->x, 1));
    return v_affine(b, b_unsqueeze(b, c, 2), o->scale, -o->offset);      /* [R, 1, 1] */
}

static struct line roi_line(struct builder *b, const struct roi *o, int64_t first, int64_t bins, expr_id size)
{
    expr_id dims[3] = {o->n, ex_const(b->x, bins), ex_const(b->x, o->samples)};
    enum elem e = v_elem(b, o->rois);
    value_id start = roi_column(b, o, first), end = roi_column(b, o, first + 2);
    value_id extent = b_binary(b, OP_SUB, end, start);
    if (o->offset == 0)
        extent = b_binary_f64(b, OP_MAX, extent, 1);
    value_id bin = b_binary_f64(b, OP_DIV, extent, (double)bins);
    value_id at = b_binary(b, OP_MUL, v_iota(b, e, dims, 3, 1), bin);
    value_id inner = b_binary_f64(b, OP_DIV, b_binary(b, OP_MUL, v_affine(b, v_iota(b, e, dims, 3, 2), 1, 0.5), bin),
                                  (double)o->samples);
    value_id pos = b_binary(b, OP_ADD, b_binary(b, OP_ADD, start, at), inner);
    value_id len = v_expr(b, e, size), last = v_expr(b, ELEM_I64, ex_addc(b->x, size, -1));
    struct line l;
    l.inside = b_binary(b, OP_AND, b_binary(b, OP_LE, b_splat_like(b, pos, -1), pos), b_binary(b, OP_LE, pos, len));
    pos = b_binary_f64(b, OP_MAX, pos, 0);
    pos = b_binary(b, OP_MIN, pos, b_convert(b, last, e));
    l.low = b_binary(b, OP_MIN, b_convert(b, pos, ELEM_I64), last);
    l.high = b_binary(b, OP_MIN, b_binary_f64(b, OP_ADD, l.low, 1), last);
    l.frac = b_binary(b, OP_SUB, pos, b_convert(b, l.low, e));
    return l;
}

/* [R, bins, samples] along y or x -> [R, PH, S, PW, S] by broadcast. */
static value_id spread(struct builder *b, value_id v, bool is_x)
{
    const struct dims d = b_dims(b, v);
    if (!d.d)
        return (value_id){0};
    expr_id one = ex_const(b->x, 1), dims[5] = {d.d[0], d.d[1], d.d[2], one, one};
    if (is_x) {
        dims[1] = dims[2] = one;
        dims[3] = d.d[1];
        dims[4] = d.d[2];
    }
    return b_reshape(b, v, dims, 5);
}

/* image [N, H, W, C] at (batch, y, x): [R, PH, S, PW, S, C]. */
static value_id corner(struct builder *b, value_id image, const struct roi *o, value_id y, value_id x,
                       const expr_id *dims)
{
    value_id parts[3] = {v_along(b, o->batch, 0, 5), spread(b, y, false), spread(b, x, true)};
    for (int k = 0; k < 3; k++)
        parts[k] = b_unsqueeze(b, b_broadcast(b, parts[k], dims, 5), 5);
    value_id in[2] = {image, b_concat(b, parts, 3, 5)};
    return b_op(b, OP_GATHER_ND, in, 2, ARRAY(struct attr, attr_int("batch", 0), attr_int("clamp", 1)));
}

static value_id roi_samples(struct builder *b, value_id image, const struct roi *o, const struct line *y,
                            const struct line *x, const expr_id *dims)
{
    value_id sum = {0};
    for (int k = 0; k < 4; k++) {
        value_id wy = k & 2 ? y->frac : b_binary(b, OP_SUB, b_splat_like(b, y->frac, 1), y->frac);
        value_id wx = k & 1 ? x->frac : b_binary(b, OP_SUB, b_splat_like(b, x->frac, 1), x->frac);
        value_id w = b_binary(b, OP_MUL, spread(b, wy, false), spread(b, wx, true));
        value_id v = corner(b, image, o, k & 2 ? y->high : y->low, k & 1 ? x->high : x->low, dims);
        v = b_binary(b, OP_MUL, v, b_convert(b, b_unsqueeze(b, w, 5), v_elem(b, v)));
        sum = k == 0 ? v : b_binary(b, o->max ? OP_MAX : OP_ADD, sum, v);
    }
    value_id fine = b_binary(b, OP_AND, spread(b, y->inside, false), spread(b, x->inside, true));
    return b_select(b, b_unsqueeze(b, fine, 5), sum, b_splat_like(b, sum, 0));
}

bool rule_roi_align(struct rule *r)
{
    struct builder *b = r->b;
    value_id in = rule_in(r, 0), x = v_widen(b, in);
    int64_t ph = rule_int(r, "output_height", 1), pw = rule_int(r, "output_width", 1);
    bool half = r->version >= 16 && rule_str_is(r, "coordinate_transformation_mode", "half_pixel", "half_pixel");
    struct roi o = {.samples = rule_int(r, "sampling_ratio", 0),
                    .scale = rule_float(r, "spatial_scale", 1),
                    .offset = half ? 0.5 : 0,
                    .max = rule_str_is(r, "mode", "avg", "max"),
                    .rois = b_convert(b, rule_in(r, 1), v_elem(b, x)),
                    .batch = b_convert(b, rule_in(r, 2), ELEM_I64)};
    static const int64_t last[] = {0, 2, 3, 1}, back[] = {0, 3, 1, 2}, window[] = {2, 4};
    const struct dims d = b_dims(b, x);
    if (!d.d || !o.rois.i || !o.batch.i)
        return false;
    if (d.rank != 4 || ph < 1 || pw < 1)
        return rule_bad(r, "input of rank %d", (int)d.rank);
    if (o.samples > 1024)
        return rule_bad(r, "sampling_ratio is %lld", (long long)o.samples);
    if (o.samples < 1)
        return rule_refuse(r, "sampling_ratio 0: the number of samples depends on each region");
    o.n = b_dim(b, o.rois, 0);
    v_some_check(b, ex_mul(b->x, ex_mul(b->x, d.d[0], d.d[2]), d.d[3]), ex_mul(b->x, o.n, d.d[1]));
    struct line ly = roi_line(b, &o, 1, ph, d.d[2]), lx = roi_line(b, &o, 0, pw, d.d[3]);
    expr_id s = ex_const(b->x, o.samples), dims[5] = {o.n, ex_const(b->x, ph), s, ex_const(b->x, pw), s};
    value_id all = roi_samples(b, b_transpose(b, x, last), &o, &ly, &lx, dims);
    value_id y = b_reduce(b, all, window, 2, o.max ? "max" : "sum", false);
    if (!o.max)
        y = b_binary_f64(b, OP_DIV, y, (double)(o.samples * o.samples));
    return rule_result(r, b_convert(b, y.i ? b_transpose(b, y, back) : y, v_elem(b, in)));
}

/* ---- MaxRoiPool -------------------------------------------------------------------------------------------------- */

/* Bins along one axis: [R, bins] first pixel, end, both in the image; the pixels of the largest of them. */
struct bins {
    value_id start, end;
    expr_id largest;
};

/* To the nearest integer as i64, halves away from 0. Far beyond any image it stops, so that sums stay exact. */
static value_id round_away(struct builder *b, value_id x)
{
    value_id size = b_unary(b, OP_ABS, x), whole = b_unary(b, OP_FLOOR, size), rest = b_binary(b, OP_SUB, size, whole);
    value_id up = b_convert(b, b_binary(b, OP_LE, b_splat_like(b, rest, 0.5), rest), v_elem(b, x));
    value_id near = b_binary(b, OP_MUL, b_unary(b, OP_SIGN, x), b_binary(b, OP_ADD, whole, up));
    return b_convert(b, b_clamp(b, near, -0x1p30, 0x1p30), ELEM_I64);
}

/* From 0 to the size of the image. */
static value_id bin_edge(struct builder *b, value_id edge, value_id roi_start, value_id size)
{
    value_id at = b_binary(b, OP_ADD, b_convert(b, edge, ELEM_I64), roi_start);
    return b_binary(b, OP_MIN, b_binary_f64(b, OP_MAX, at, 0), size);
}

/* Of corners [R, 5] (batch, x1, y1, x2, y2): column `first` and the second after it, both within the region. */
static struct bins roi_bins(struct builder *b, value_id rois, int64_t first, double scale, int64_t n, expr_id size)
{
    static const int64_t all[] = {0, 1};
    enum elem e = v_elem(b, rois);
    expr_id one = ex_const(b->x, 1), dims[2] = {b_dim(b, rois, 0), ex_const(b->x, n)};
    value_id corner[2], length = v_expr(b, ELEM_I64, size), k = v_iota(b, e, dims, 2, 1);
    for (int i = 0; i < 2; i++)
        corner[i] = round_away(b, v_affine(b, b_slice_axis(b, rois, 1, ex_const(b->x, first + 2 * i), one), scale, 0));
    value_id extent = b_binary_f64(b, OP_ADD, b_binary(b, OP_SUB, corner[1], corner[0]), 1);
    value_id bin = b_binary_f64(b, OP_DIV, b_convert(b, b_binary_f64(b, OP_MAX, extent, 1), e), (double)n);
    value_id low = b_unary(b, OP_FLOOR, b_binary(b, OP_MUL, k, bin));
    value_id high = b_unary(b, OP_CEIL, b_binary(b, OP_MUL, b_binary_f64(b, OP_ADD, k, 1), bin));
    struct bins out = {bin_edge(b, low, corner[0], length), bin_edge(b, high, corner[0], length), {0}};
    value_id most = b_reduce(b, b_binary(b, OP_SUB, out.end, out.start), all, 2, "max", false);
    out.largest = b_elem(b, b_binary_f64(b, OP_MAX, most, 0), 0, ex_hi(b->x, size));
    return out;
}

/* [R, bins, largest]: the pixels of each bin, and then the last one again. */
static value_id bin_pixels(struct builder *b, const struct bins *l, int64_t n)
{
    expr_id dims[3] = {b_dim(b, l->start, 0), ex_const(b->x, n), l->largest};
    value_id at = b_binary(b, OP_ADD, b_unsqueeze(b, l->start, 2), v_iota(b, ELEM_I64, dims, 3, 2));
    return b_binary(b, OP_MIN, at, b_binary_f64(b, OP_SUB, b_unsqueeze(b, l->end, 2), 1));
}

/* Numbers of images, which the run checks. */
static value_id roi_images(struct builder *b, value_id rois, expr_id images)
{
    static const int64_t all[] = {0};
    expr_id zero = ex_const(b->x, 0);
    value_id batch = b_convert(b, b_squeeze(b, b_slice_axis(b, rois, 1, zero, ex_const(b->x, 1)), 1), ELEM_I64);
    value_id out = b_binary(b, OP_OR, b_binary(b, OP_LT, batch, b_splat_like(b, batch, 0)),
                            b_binary(b, OP_LE, v_expr(b, ELEM_I64, images), batch));
    value_id any = b_reduce(b, b_convert(b, out, ELEM_I64), all, 1, "sum", false);
    expr_id wrong = b_elem(b, any, 0, INT32_MAX);
    if (!wrong.i)
        return (value_id){0};
    b_assert(b, ex_le(b->x, wrong, zero), EVAL_VALUE, "a region names an image outside of the batch");
    return batch;
}

/* Regions (image, x1, y1, x2, y2), both corners within, rounded to pixels; bins overlap where sizes do not divide. A
 * bin outside of the image is 0. As ONNX Runtime rounds; ONNX's text says nothing. */
bool rule_max_roi_pool(struct rule *r)
{
    static const int64_t last[] = {0, 2, 3, 1}, back[] = {0, 3, 1, 2}, window[] = {2, 4};
    struct builder *b = r->b;
    value_id in = rule_in(r, 0), x = v_widen(b, in), rois = v_widen(b, rule_in(r, 1));
    uint32_t n;
    const int64_t *bins = rule_ints(r, "pooled_shape", &n);
    const struct dims d = b_dims(b, x), dr = b_dims(b, rois);
    double scale = rule_float(r, "spatial_scale", 1);
    if (!d.d || !dr.d)
        return false;
    if (d.rank != 4 || dr.rank != 2 || ex_cmp_eq(b->x, dr.d[1], ex_const(b->x, 5)) == FALSE_)
        return rule_bad(r, "input of rank %d with regions of rank %d: 4, and 2 with five columns", (int)d.rank,
                        (int)dr.rank);
    if (n != 2 || bins[0] < 1 || bins[1] < 1 || bins[0] > INT32_MAX || bins[1] > INT32_MAX || !(scale > 0))
        return rule_bad(r, "pooled_shape of %u sizes with spatial_scale %g", n, scale);
    struct bins ly = roi_bins(b, rois, 2, scale, bins[0], d.d[2]), lx = roi_bins(b, rois, 1, scale, bins[1], d.d[3]);
    struct roi o = {.batch = roi_images(b, rois, d.d[0])};
    if (!ly.largest.i || !lx.largest.i || !o.batch.i)
        return false;
    expr_id dims[5] = {dr.d[0], ex_const(b->x, bins[0]), ly.largest, ex_const(b->x, bins[1]), lx.largest};
    value_id all = corner(b, b_transpose(b, x, last), &o, bin_pixels(b, &ly, bins[0]), bin_pixels(b, &lx, bins[1]),
                          dims);
    value_id y = b_reduce(b, all, window, 2, "max", false);
    value_id some_y = b_binary(b, OP_LT, ly.start, ly.end), some_x = b_binary(b, OP_LT, lx.start, lx.end);
    value_id some = b_binary(b, OP_AND, b_unsqueeze(b, b_unsqueeze(b, some_y, 2), 3),
                             b_unsqueeze(b, b_unsqueeze(b, some_x, 1), 3));
    y = b_select(b, some, y, b_splat_like(b, y, 0));
    return rule_result(r, b_convert(b, y.i ? b_transpose(b, y, back) : y, v_elem(b, in)));
}
