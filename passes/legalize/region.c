/* Regions of interest: RoiAlign, MaxRoiPool.
 *
 * RoiAlign reads bilinear samples through one indirect gather over the transposed image, so nothing is copied per
 * region. Source: ONNX Operators.md, RoiAlign-16; max mode takes the largest weighted corner, as the reference does.
 */
#include "passes/legalize/legalize.h"

#include <string.h>

/* Samples along one axis: [R, bins, samples] lower index, upper index, weight of the upper one, inside or not. */
struct line { value_id low, high, frac, inside; };

struct roi {
    int64_t samples;
    double scale, offset;
    bool max;
    value_id rois, batch;      /* f32 [R, 4], i64 [R] */
    expr_id n;
};

static value_id roi_column(struct builder *b, const struct roi *o, int64_t k)
{
    struct exprs *ex = b_exprs(b);
    value_id c = b_slice_axis(b, o->rois, 1, ex_const(ex, k), ex_const(ex, 1));
    return v_affine(b, b_unsqueeze(b, c, 2), o->scale, -o->offset);      /* [R, 1, 1] */
}

static struct line roi_line(struct builder *b, const struct roi *o, int64_t first, int64_t bins, expr_id size)
{
    struct exprs *ex = b_exprs(b);
    expr_id dims[3] = {o->n, ex_const(ex, bins), ex_const(ex, o->samples)};
    value_id start = roi_column(b, o, first), end = roi_column(b, o, first + 2);
    value_id extent = b_binary(b, OP_SUB, end, start);
    if (o->offset == 0)
        extent = b_binary_f64(b, OP_MAX, extent, 1);
    value_id bin = b_binary_f64(b, OP_DIV, extent, (double)bins);
    value_id at = b_binary(b, OP_MUL, v_iota(b, ELEM_F32, dims, 3, 1), bin);
    value_id inner = b_binary_f64(b, OP_DIV, b_binary(b, OP_MUL, v_affine(b, v_iota(b, ELEM_F32, dims, 3, 2), 1, 0.5), bin),
                                  (double)o->samples);
    value_id pos = b_binary(b, OP_ADD, b_binary(b, OP_ADD, start, at), inner);
    value_id len = v_expr(b, ELEM_F32, size), last = v_expr(b, ELEM_I64, ex_addc(ex, size, -1));
    struct line l;
    l.inside = b_binary(b, OP_AND, b_binary(b, OP_LE, b_splat_like(b, pos, -1), pos), b_binary(b, OP_LE, pos, len));
    pos = b_binary_f64(b, OP_MAX, pos, 0);
    pos = b_binary(b, OP_MIN, pos, b_convert(b, last, ELEM_F32));
    l.low = b_binary(b, OP_MIN, b_convert(b, pos, ELEM_I64), last);
    l.high = b_binary(b, OP_MIN, b_binary_f64(b, OP_ADD, l.low, 1), last);
    l.frac = b_binary(b, OP_SUB, pos, b_convert(b, l.low, ELEM_F32));
    return l;
}

/* [R, bins, samples] along y or x -> [R, PH, S, PW, S] by broadcast. */
static value_id spread(struct builder *b, value_id v, bool is_x)
{
    int32_t rank;
    const expr_id *d = b_dims(b, v, &rank);
    if (!d)
        return (value_id){0};
    expr_id one = ex_const(b_exprs(b), 1), dims[5] = {d[0], d[1], d[2], one, one};
    if (is_x) {
        dims[1] = dims[2] = one;
        dims[3] = d[1];
        dims[4] = d[2];
    }
    return b_reshape(b, v, dims, 5);
}

/* image [N, H, W, C] at (batch, y, x): [R, PH, S, PW, S, C]. */
static value_id corner(struct builder *b, value_id image, const struct roi *o, value_id y, value_id x, const expr_id *dims)
{
    value_id parts[3] = {v_along(b, o->batch, 0, 5), spread(b, y, false), spread(b, x, true)};
    for (int k = 0; k < 3; k++)
        parts[k] = b_unsqueeze(b, b_broadcast(b, parts[k], dims, 5), 5);
    value_id in[2] = {image, b_concat(b, parts, 3, 5)};
    struct attr attrs[] = {attr_int("batch", 0), attr_int("clamp", 1)};
    return b_op(b, OP_GATHER_ND, in, 2, attrs, 2);
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
    struct exprs *ex = b_exprs(b);
    value_id in = rule_in(r, 0), x = v_widen(b, in);
    int64_t ph = rule_int(r, "output_height", 1), pw = rule_int(r, "output_width", 1);
    bool half = r->version >= 16 && rule_str_is(r, "coordinate_transformation_mode", "half_pixel", "half_pixel");
    struct roi o = {.samples = rule_int(r, "sampling_ratio", 0), .scale = rule_float(r, "spatial_scale", 1),
                    .offset = half ? 0.5 : 0, .max = rule_str_is(r, "mode", "avg", "max"),
                    .rois = b_convert(b, rule_in(r, 1), ELEM_F32), .batch = b_convert(b, rule_in(r, 2), ELEM_I64)};
    static const int64_t last[] = {0, 2, 3, 1}, back[] = {0, 3, 1, 2}, window[] = {2, 4};
    int32_t rank;
    const expr_id *d = b_dims(b, x, &rank);
    if (!d || !o.rois.i || !o.batch.i)
        return false;
    if (rank != 4 || ph < 1 || pw < 1)
        return rule_bad(r, "input of rank %d", (int)rank);
    if (o.samples > 1024)
        return rule_bad(r, "sampling_ratio is %lld", (long long)o.samples);
    if (o.samples < 1)
        return rule_refuse(r, "sampling_ratio 0: the number of samples depends on each region");
    o.n = b_dim(b, o.rois, 0);
    struct line ly = roi_line(b, &o, 1, ph, d[2]), lx = roi_line(b, &o, 0, pw, d[3]);
    expr_id s = ex_const(ex, o.samples), dims[5] = {o.n, ex_const(ex, ph), s, ex_const(ex, pw), s};
    value_id all = roi_samples(b, b_transpose(b, x, last), &o, &ly, &lx, dims);
    value_id y = b_reduce(b, all, window, 2, o.max ? "max" : "sum", false);
    if (!o.max)
        y = b_binary_f64(b, OP_DIV, y, (double)(o.samples * o.samples));
    return rule_result(r, b_convert(b, y.i ? b_transpose(b, y, back) : y, v_elem(b, in)));
}
