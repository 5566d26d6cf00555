/* Resize and Upsample: separable, axis by axis.
 *
 * Positions of the output in the input are a small F64 vector per axis; nearest is then a gather, linear and cubic
 * are weighted sums of gathers, antialiased forms a product with a matrix of weights. Everything works for sizes
 * that are dynamic; what is known is folded. A nearest enlargement by a whole factor is a view.
 * Source: ONNX Operators.md, Resize-19; the output's real length (input length * scale) enters align_corners. Places
 * are rounded to f32, as ONNX Runtime computes them: which of two elements is nearest can hang on it.
 */
#include "passes/legalize/nn/window.h"

#include <math.h>

enum transform {
    HALF_PIXEL,
    HALF_PIXEL_SYMMETRIC,
    PYTORCH_HALF_PIXEL,
    ALIGN_CORNERS,
    ASYMMETRIC,
    TF_HALF_PIXEL,
    TF_CROP
};
static const char *const transform_names[] = {"half_pixel",        "half_pixel_symmetric", "pytorch_half_pixel",
                                              "align_corners",     "asymmetric",           "tf_half_pixel_for_nn",
                                              "tf_crop_and_resize"};
enum method { NEAREST, LINEAR, CUBIC };
enum { SCALE_MOST = 1000000 };

struct resize {
    enum transform transform;
    enum method method;
    const char *nearest;
    double cubic_a, extrapolation;
    bool exclude_outside, antialias;
};

struct axis {
    int32_t axis;
    value_id scale;             /* rank-0 f64 */
    expr_id in, out;
    value_id start, end;        /* rank-0 f64: region of interest, for TF_CROP */
};

static value_id num(struct builder *b, double x)
{
    return b_scalar_f64(b, ELEM_F64, x);
}

static value_id length(struct builder *b, expr_id e)
{
    return v_expr(b, ELEM_F64, e);
}

static bool options_read(struct rule *r, struct resize *o)
{
    const char *mode = rule_str(r, "mode", "nearest");
    const char *transform = rule_str(r, "coordinate_transformation_mode",
                                     r->version >= 11 ? "half_pixel" : "asymmetric");
    o->nearest = rule_str(r, "nearest_mode", r->version >= 11 ? "round_prefer_floor" : "floor");
    o->cubic_a = rule_float(r, "cubic_coeff_a", -0.75);
    o->extrapolation = rule_float(r, "extrapolation_value", 0);
    o->exclude_outside = rule_int(r, "exclude_outside", 0) != 0;
    o->antialias = rule_int(r, "antialias", 0) != 0;
    if (strcmp(mode, "nearest") == 0)
        o->method = NEAREST;
    else if (strcmp(mode, "linear") == 0 || strcmp(mode, "bilinear") == 0)
        o->method = LINEAR;
    else if (strcmp(mode, "cubic") == 0)
        o->method = CUBIC;
    else
        return rule_bad(r, "mode is \"%.40s\"", mode);
    for (size_t i = 0; i < COUNT_OF(transform_names); i++) {
        o->transform = (enum transform)i;
        if (strcmp(transform, transform_names[i]) == 0)
            return true;
    }
    return rule_bad(r, "coordinate_transformation_mode is \"%.40s\"", transform);
}

/* ---- positions --------------------------------------------------------------------------------------------------- */

/* x where the output has one element, else y. */
static value_id unless_one(struct builder *b, value_id out, value_id x, value_id y)
{
    return b_select(b, b_binary(b, OP_EQ, out, num(b, 1)), x, y);
}

/* The value in f64 that it has in f32. */
static value_id to_f32(struct builder *b, value_id x)
{
    return b_convert(b, b_convert(b, x, ELEM_F32), ELEM_F64);
}

/* i / scale, rounded to f32 as long as f32 holds i and its half: beyond 2^23 elements places would fall together. */
static value_id over_scale(struct builder *b, value_id i, value_id scale)
{
    value_id exact = b_binary(b, OP_DIV, i, scale);
    return b_select(b, b_binary(b, OP_LT, i, num(b, 1 << 23)), to_f32(b, exact), exact);
}

/* The place of each of the `out` output elements in the input: f64 [out]. */
static value_id positions(struct builder *b, const struct resize *o, const struct axis *a)
{
    value_id i = v_iota(b, ELEM_F64, &a->out, 1, 0), len = length(b, a->in);
    value_id real_out = b_binary(b, OP_MUL, a->scale, len), last = b_binary_f64(b, OP_SUB, len, 1);
    value_id spread = b_binary_f64(b, OP_SUB, real_out, 1);
    value_id half = b_binary_f64(b, OP_SUB, over_scale(b, b_binary_f64(b, OP_ADD, i, 0.5), a->scale), 0.5);
    switch (o->transform) {
    case HALF_PIXEL: return half;
    case HALF_PIXEL_SYMMETRIC: {
        value_id adjust = b_binary(b, OP_DIV, length(b, a->out), real_out);
        value_id offset = b_binary(b, OP_MUL, b_binary_f64(b, OP_MUL, len, 0.5),
                                   b_binary(b, OP_SUB, num(b, 1), adjust));
        return b_binary(b, OP_ADD, half, offset);
    }
    case PYTORCH_HALF_PIXEL: return unless_one(b, length(b, a->out), num(b, 0), half);
    case ALIGN_CORNERS:
        return unless_one(b, real_out, num(b, 0), b_binary(b, OP_DIV, b_binary(b, OP_MUL, i, last), spread));
    case ASYMMETRIC: return over_scale(b, i, a->scale);
    case TF_HALF_PIXEL: return over_scale(b, b_binary_f64(b, OP_ADD, i, 0.5), a->scale);
    case TF_CROP: {
        value_id width = b_binary(b, OP_MUL, b_binary(b, OP_SUB, a->end, a->start), last);
        value_id many = b_binary(b, OP_DIV, b_binary(b, OP_MUL, i, width), spread);
        value_id x = unless_one(b, real_out, b_binary_f64(b, OP_MUL, width, 0.5), many);
        return b_binary(b, OP_ADD, x, b_binary(b, OP_MUL, a->start, last));
    }
    }
    return (value_id){0};
}

/* An i64 index -> one within [0, in). */
static value_id index_clamped(struct builder *b, value_id i, expr_id in)
{
    return b_binary(b, OP_MIN, b_binary_f64(b, OP_MAX, i, 0), v_expr(b, ELEM_I64, ex_addc(b->x, in, -1)));
}

static value_id gather_clamped(struct builder *b, value_id x, value_id idx, int32_t axis)
{
    struct attr attrs[] = {attr_int("axis", axis), attr_int("clamp", 1)};
    return b_op(b, OP_GATHER, ARRAY(value_id, x, idx), attrs, 2);
}

/* ---- kernels of interpolation ------------------------------------------------------------------------------------ */

/* Cubic convolution at distance |d| (a vector), as a select of its two pieces. */
static value_id cubic_weight(struct builder *b, value_id d, double a)
{
    value_id x = b_unary(b, OP_ABS, d);
    value_id inner = v_affine(b, x, a + 2, -(a + 3));
    inner = b_binary_f64(b, OP_ADD, b_binary(b, OP_MUL, b_binary(b, OP_MUL, inner, x), x), 1);
    value_id outer = v_affine(b, x, a, -5 * a);
    outer = b_binary_f64(b, OP_ADD, b_binary(b, OP_MUL, outer, x), 8 * a);
    outer = b_binary_f64(b, OP_SUB, b_binary(b, OP_MUL, outer, x), 4 * a);
    value_id far = b_select(b, b_binary(b, OP_LT, x, num(b, 2)), outer, num(b, 0));
    return b_select(b, b_binary(b, OP_LE, x, num(b, 1)), inner, far);
}

static value_id weight(struct builder *b, const struct resize *o, value_id d)
{
    if (o->method == CUBIC)
        return cubic_weight(b, d, o->cubic_a);
    return b_binary_f64(b, OP_MAX, b_binary(b, OP_SUB, num(b, 1), b_unary(b, OP_ABS, d)), 0);
}

/* 1 where 0 <= p <= in - 1, else 0. */
static value_id inside(struct builder *b, value_id p, expr_id in)
{
    value_id low = b_binary(b, OP_LE, num(b, 0), p);
    value_id high = b_binary(b, OP_LE, p, length(b, ex_addc(b->x, in, -1)));
    return b_convert(b, b_binary(b, OP_AND, low, high), ELEM_F64);
}

/* The index of the first of `taps` elements that are weighted, from the place rounded down: i64. Places that are so far
 * outside that all taps have one end of the input come nearer, so that indices of the others do not wrap around. */
static value_id first_tap(struct builder *b, value_id floor, const struct axis *a, int taps)
{
    value_id most = length(b, ex_addc(b->x, a->in, taps));
    value_id near = b_binary(b, OP_MIN, b_binary_f64(b, OP_MAX, floor, -taps), most);
    return b_binary_f64(b, OP_SUB, b_convert(b, near, ELEM_I64), taps / 2 - 1);
}

static value_id resize_taps(struct builder *b, const struct resize *o, const struct axis *a, value_id x, value_id pos)
{
    int taps = o->method == CUBIC ? 4 : 2, rank = v_rank(b, x);
    value_id floor = b_unary(b, OP_FLOOR, pos), first = first_tap(b, floor, a, taps), w[4], total = {0}, y = {0};
    for (int t = 0; t < taps; t++) {
        value_id p = b_binary_f64(b, OP_ADD, floor, t - (taps / 2 - 1));
        w[t] = weight(b, o, b_binary(b, OP_SUB, pos, p));
        if (o->exclude_outside)
            w[t] = b_binary(b, OP_MUL, w[t], inside(b, p, a->in));
        total = t ? b_binary(b, OP_ADD, total, w[t]) : w[t];
    }
    for (int t = 0; t < taps; t++) {
        if (o->exclude_outside)
            w[t] = b_binary(b, OP_DIV, w[t], total);
        value_id along = v_along(b, b_convert(b, w[t], v_elem(b, x)), a->axis, rank);
        value_id i = index_clamped(b, b_binary_f64(b, OP_ADD, first, t), a->in);
        value_id part = b_binary(b, OP_MUL, gather_clamped(b, x, i, a->axis), along);
        y = t ? b_binary(b, OP_ADD, y, part) : part;
    }
    return y;
}

/* Downsampling widens the kernel by 1 / scale: a matrix of weights over the input extended by its edge values. */
static value_id resize_antialias(struct builder *b, const struct resize *o, const struct axis *a, value_id x,
                                 value_id pos)
{
    value_id s = b_binary_f64(b, OP_MIN, a->scale, 1);
    expr_id reach = ex_const(b->x, 0), lo[RANK_MAX], hi[RANK_MAX];
    int32_t rank = v_rank(b, x);
    if (!o->exclude_outside) {
        value_id wide = b_unary(b, OP_CEIL, b_binary(b, OP_DIV, num(b, o->method == CUBIC ? 2 : 1), s));
        reach = b_elem(b, b_convert(b, b_binary_f64(b, OP_ADD, wide, 1), ELEM_I64), 0, INT32_MAX);
        if (!reach.i)
            return (value_id){0};
    }
    for (int32_t d = 0; d < rank; d++)
        lo[d] = hi[d] = d == a->axis ? reach : ex_const(b->x, 0);
    expr_id dims[2] = {a->out, ex_add(b->x, a->in, ex_mulc(b->x, reach, 2))};
    value_id place = b_binary(b, OP_SUB, v_iota(b, ELEM_F64, dims, 2, 1), length(b, reach));
    value_id d = b_binary(b, OP_MUL, b_binary(b, OP_SUB, place, b_unsqueeze(b, pos, 1)), s);
    value_id w = weight(b, o, d);
    static const int64_t second[] = {1};
    w = b_binary(b, OP_DIV, w, b_reduce(b, w, second, 1, "sum", true));
    value_id in[2] = {b_pad(b, x, (value_id){0}, lo, hi, "edge"), b_convert(b, w, v_elem(b, x))};
    struct attr attrs[] = {attr_ints("batch_a", NULL, 0), attr_ints("batch_b", NULL, 0),
                           attr_ints("contract_a", &(int64_t){a->axis}, 1), attr_ints("contract_b", second, 1)};
    value_id y = b_op(b, OP_DOT, in, 2, attrs, 4);
    return y.i ? v_move_axis(b, y, rank - 1, a->axis) : y;
}

static value_id resize_nearest(struct builder *b, const struct resize *o, const struct axis *a, value_id x,
                               value_id pos)
{
    if (strcmp(o->nearest, "round_prefer_floor") == 0)
        pos = b_unary(b, OP_CEIL, b_binary_f64(b, OP_SUB, pos, 0.5));
    else if (strcmp(o->nearest, "round_prefer_ceil") == 0)
        pos = b_unary(b, OP_FLOOR, b_binary_f64(b, OP_ADD, pos, 0.5));
    else
        pos = b_unary(b, strcmp(o->nearest, "ceil") == 0 ? OP_CEIL : OP_FLOOR, pos);
    return gather_clamped(b, x, index_clamped(b, b_convert(b, pos, ELEM_I64), a->in), a->axis);
}

/* Each element `factor` times: [.., n, ..] -> [.., n, 1, ..] -> broadcast -> [.., n * factor, ..]. */
value_id v_repeated(struct builder *b, value_id x, int32_t axis, int64_t factor)
{
    const struct dims d = b_dims(b, x);
    expr_id wide[RANK_MAX + 1], out[RANK_MAX];
    if (!d.d || d.rank + 1 > RANK_MAX)
        return (value_id){0};
    for (int32_t i = 0; i < d.rank; i++) {
        wide[i + (i > axis)] = d.d[i];
        out[i] = i == axis ? ex_mulc(b->x, d.d[i], factor) : d.d[i];
    }
    wide[axis + 1] = ex_const(b->x, factor);
    return b_reshape(b, b_broadcast(b, b_unsqueeze(b, x, axis + 1), wide, d.rank + 1), out, d.rank);
}

static value_id resize_axis(struct builder *b, const struct resize *o, const struct axis *a, value_id x)
{
    double scale = 0;
    bool known = v_known_f64(b, a->scale, &scale);
    bool whole = known && scale >= 1 && scale < 4096 && scale == floor(scale) &&
                 ex_cmp_eq(b->x, a->out, ex_mulc(b->x, a->in, (int64_t)scale)) == TRUE_;
    if (known && scale == 1 && whole && o->transform != TF_CROP && o->transform != TF_HALF_PIXEL)
        return x;
    if (whole && o->method == NEAREST &&
        ((o->transform == ASYMMETRIC && strcmp(o->nearest, "floor") == 0) ||
         (o->transform == HALF_PIXEL && strncmp(o->nearest, "round", 5) == 0)))
        return v_repeated(b, x, a->axis, (int64_t)scale);
    value_id pos = positions(b, o, a), y;
    if (o->method == NEAREST)
        y = resize_nearest(b, o, a, x, pos);
    else if (o->antialias)
        y = resize_antialias(b, o, a, x, pos);
    else
        y = resize_taps(b, o, a, x, pos);
    if (o->transform != TF_CROP || !y.i)
        return y;
    value_id in = b_binary(b, OP_EQ, inside(b, pos, a->in), num(b, 1));
    return b_select(b, v_along(b, in, a->axis, v_rank(b, y)), y, b_splat_like(b, y, o->extrapolation));
}

/* ---- scales and sizes -------------------------------------------------------------------------------------------- */

static value_id vector_at(struct builder *b, value_id v, int64_t k)
{
    return v_scalar(b, b_slice_axis(b, v, 0, ex_const(b->x, k), ex_const(b->x, 1)));
}

/* The run fails for a scale that is refused when compiling: NaN, infinite, 0 and below. */
static bool scale_check(struct builder *b, value_id s)
{
    value_id within = b_binary_f64(b, OP_LE, b_convert(b, s, ELEM_F64), SCALE_MOST);
    value_id fine = b_binary(b, OP_AND, b_binary(b, OP_LT, num(b, 0), b_convert(b, s, ELEM_F64)), within);
    expr_id holds = fine.i ? b_elem(b, fine, 0, 1) : (expr_id){0};
    if (holds.i)
        b_assert(b, holds, EVAL_VALUE, "a scale is not above 0 and at most %d", SCALE_MOST);
    return holds.i;
}

enum { DYADIC = 4096 };

/* floor(in * scale) as a size; false: the scale is not a fraction of DYADIC, and the rounding of f32 would decide. */
static bool scaled_length(struct builder *b, expr_id in, double scale, expr_id *out)
{
    int64_t parts = 1;
    while (scale * (double)parts != floor(scale * (double)parts) && parts < DYADIC)
        parts *= 2;
    if (scale * (double)parts != floor(scale * (double)parts))
        return false;
    *out = ex_div(b->x, ex_mulc(b->x, in, (int64_t)(scale * (double)parts)), ex_const(b->x, parts));
    return true;
}

/* floor(length * scale). What f32, which scales are in, rounds counts if the scale is not a fraction of DYADIC. */
static bool axes_by_scales(struct rule *r, value_id scales, struct axis *axes, uint32_t n)
{
    struct builder *b = r->b;
    scales = v_exactly(b, b_convert(b, scales, ELEM_F32), n);
    if (!scales.i || v_rank(b, scales) != 1 || ex_cmp_eq(b->x, b_count(b, scales), ex_const(b->x, n)) == FALSE_)
        return scales.i ? rule_bad(r, "the number of scales is not %u", n) : false;
    for (uint32_t i = 0; i < n; i++) {
        value_id s = vector_at(b, scales, i);
        double known;
        axes[i].scale = b_convert(b, s, ELEM_F64);
        if (v_known_f64(b, s, &known)) {
            int64_t size;
            if (!(known > 0) || known > SCALE_MOST)
                return rule_bad(r, "scale %g", known);
            if (ex_is_const(b->x, axes[i].in, &size)) {
                axes[i].out = ex_const(b->x, (int64_t)floorf((float)size * (float)known));
                continue;
            }
            if (scaled_length(b, axes[i].in, known, &axes[i].out))
                continue;
        }
        if (!v_known_f64(b, s, &known) && !scale_check(b, s))
            return false;
        value_id size = b_binary(b, OP_MUL, v_expr(b, ELEM_F32, axes[i].in), s);
        axes[i].out = b_elem(b, b_convert(b, b_unary(b, OP_FLOOR, size), ELEM_I64), 0, INT32_MAX);
        if (!axes[i].out.i)
            return false;
    }
    return true;
}

/* One scale for all axes: the smallest (not_larger) or largest (not_smaller) of the wanted ones. Sizes come from the
 * quotient before it is rounded to f32: 33 elements scaled by 10/12 are 27.5, which is 28 and not 27. */
static bool axes_keep_ratio(struct rule *r, struct axis *axes, uint32_t n, bool smallest)
{
    struct builder *b = r->b;
    value_id scale = {0};
    for (uint32_t i = 0; i < n; i++) {
        value_id ratio = b_binary(b, OP_DIV, length(b, axes[i].out), length(b, axes[i].in));
        scale = i ? b_binary(b, smallest ? OP_MIN : OP_MAX, scale, ratio) : ratio;
    }
    for (uint32_t i = 0; i < n; i++) {
        value_id size = b_binary_f64(b, OP_ADD, b_binary(b, OP_MUL, scale, length(b, axes[i].in)), 0.5);
        axes[i].scale = to_f32(b, scale);
        axes[i].out = b_elem(b, b_convert(b, b_unary(b, OP_FLOOR, size), ELEM_I64), 0, INT32_MAX);
        if (!axes[i].out.i)
            return false;
    }
    return true;
}

static bool axes_by_sizes(struct rule *r, value_id sizes, struct axis *axes, uint32_t n)
{
    struct builder *b = r->b;
    const char *policy = rule_str(r, "keep_aspect_ratio_policy", "stretch");
    uint32_t given;
    const expr_id *want = b_elems(b, v_exactly(b, sizes, n), 0, INT32_MAX, &given);
    if (!want || given != n)
        return want ? rule_bad(r, "%u sizes for %u axes", given, n) : false;
    for (uint32_t i = 0; i < n; i++) {
        axes[i].out = want[i];
        axes[i].scale = want[i].i == axes[i].in.i
                            ? num(b, 1)
                            : to_f32(b, b_binary(b, OP_DIV, length(b, want[i]), length(b, axes[i].in)));
    }
    if (strcmp(policy, "stretch") != 0)
        return axes_keep_ratio(r, axes, n, strcmp(policy, "not_larger") == 0);
    for (uint32_t i = 0; i < n; i++)
        v_some_check(b, axes[i].in, axes[i].out);
    return true;
}

static bool resize_all(struct rule *r, const struct resize *o, value_id in, struct axis *axes, uint32_t n)
{
    struct builder *b = r->b;
    enum elem e = v_elem(b, in);
    value_id x = o->method == NEAREST ? in : elem_class(e) == 'F' ? v_widen(b, in) : b_convert(b, in, ELEM_F32);
    for (uint32_t i = 0; i < n; i++)
        x = resize_axis(b, o, &axes[i], x);
    if (o->antialias && strchr("IU", elem_class(e))) /* filters of pictures round; plain interpolation truncates */
        x = b_unary(b, OP_FLOOR, b_binary_f64(b, OP_ADD, x, 0.5));
    return rule_result(r, b_convert(b, x, e));
}

/* Lengths are sizes, and places are scaled by the scales above 0. */
static bool axes_by_both(struct rule *r, struct axis *axes, uint32_t n)
{
    if (!axes_by_sizes(r, rule_in(r, 3), axes, n))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        double known;
        if (v_known_f64(r->b, vector_at(r->b, rule_in(r, 2), i), &known) && known > 0)
            axes[i].scale = num(r->b, known);
    }
    return true;
}

/* param: 1 PyTorch's, where sizes and scales may stand together */
bool rule_resize(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0);
    const struct dims d = b_dims(b, x);
    uint32_t n, n_roi, i_scales = r->version < 11 ? 1 : 2;
    const int64_t *list = rule_ints(r, "axes", &n);
    struct resize o;
    struct axis axes[RANK_MAX] = {{0}};
    int64_t empty = 0;
    if (!d.d || !options_read(r, &o))
        return false;
    n = list ? n : (uint32_t)d.rank;
    for (uint32_t i = 0; i < n; i++) {
        if (n > RANK_MAX || !rule_axis(r, list ? list[i] : i, d.rank, &axes[i].axis))
            return rule_bad(r, "bad axes");
        axes[i].in = d.d[axes[i].axis];
    }
    bool scales = rule_has(r, i_scales) && !(ex_is_const(b->x, b_count(b, rule_in(r, i_scales)), &empty) && empty == 0);
    if (!scales && !rule_has(r, 3))
        return rule_bad(r, "neither scales nor sizes");
    bool both = r->param && scales && rule_has(r, 3);
    if (both     ? !axes_by_both(r, axes, n)
        : scales ? !axes_by_scales(r, rule_in(r, i_scales), axes, n)
                 : !axes_by_sizes(r, rule_in(r, 3), axes, n))
        return false;
    if (o.transform == TF_CROP) {
        value_id roi = rule_has(r, 1) ? v_exactly(b, b_convert(b, rule_in(r, 1), ELEM_F64), 2 * n) : (value_id){0};
        int64_t count = roi.i && ex_is_const(b->x, b_count(b, roi), &count) ? count : 0;
        n_roi = (uint32_t)count;
        if (n_roi != 2 * n)
            return rule_bad(r, "region of interest with %u entries for %u axes", n_roi, n);
        for (uint32_t i = 0; i < n; i++) {
            axes[i].start = vector_at(b, roi, i);
            axes[i].end = vector_at(b, roi, n + i);
        }
    }
    return resize_all(r, &o, x, axes, n);
}

/* Upsample: scales as an operand (9), an attribute (7), or for height and width only (1). */
bool rule_upsample(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0), scales = {0};
    const struct dims d = b_dims(b, x);
    uint32_t n = 0;
    const double *given = rule_floats(r, "scales", &n);
    float list[RANK_MAX];
    struct resize o;
    struct axis axes[RANK_MAX] = {{0}};
    if (!d.d || !options_read(r, &o))
        return false;
    if (r->version < 7) {
        if (d.rank != 4)
            return rule_bad(r, "input of rank %d", (int)d.rank);
        list[0] = list[1] = 1;
        list[2] = (float)rule_float(r, "height_scale", 1);
        list[3] = (float)rule_float(r, "width_scale", 1);
    } else if (r->version < 9) {
        if (n != (uint32_t)d.rank)
            return rule_bad(r, "%u scales for rank %d", n, (int)d.rank);
        for (uint32_t i = 0; i < n; i++)
            list[i] = (float)given[i];
    } else {
        scales = rule_in(r, 1);
    }
    for (int32_t i = 0; i < d.rank; i++) {
        axes[i].axis = i;
        axes[i].in = d.d[i];
    }
    if (r->version < 9)
        scales = b_const(b, ELEM_F32, &(int64_t){d.rank}, 1, list);
    return axes_by_scales(r, scales, axes, (uint32_t)d.rank) && resize_all(r, &o, x, axes, (uint32_t)d.rank);
}
