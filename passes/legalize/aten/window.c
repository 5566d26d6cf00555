/* Pooling, resizing, padding. */
#include "passes/legalize/aten.h"

#include <math.h>

/* x with a batch, where it comes without one. */
static value_id batched(struct builder *b, value_id x, int32_t spatial, bool *single)
{
    *single = x.i && v_rank(b, x) == spatial + 1;
    return *single ? b_unsqueeze(b, x, 0) : x;
}

static void unbatch(struct rule *r, bool single)
{
    for (uint32_t k = 0; single && k < r->n_out; k++)
        if (r->out[k].kind == LOWERED_VALUE)
            rule_out(r, k, b_squeeze(r->b, r->out[k].v, 0));
}

struct pool_window {
    int64_t kernel[RANK_MAX], stride[RANK_MAX], pads[2 * RANK_MAX], dilation[RANK_MAX];
};

static bool window_read(struct rule *r, uint32_t n, bool dilated, struct pool_window *w)
{
    uint32_t given;
    if (!aten_window(r, 1, "kernel_size", n, 1, w->kernel) || !aten_ints_known(r, 2, "stride", w->stride, &given) ||
        !aten_window(r, 3, "padding", n, 0, w->pads))
        return false;
    if (!given)
        memcpy(w->stride, w->kernel, n * sizeof *w->kernel);
    else if (!aten_window(r, 2, "stride", n, 1, w->stride))
        return false;
    memcpy(w->pads + n, w->pads, n * sizeof *w->pads);
    if (dilated)
        return aten_window(r, 4, "dilation", n, 1, w->dilation);
    for (uint32_t i = 0; i < n; i++)
        w->dilation[i] = 1;
    return true;
}

/* param: spatial dims; the positions that it may give count within a plane. */
bool rule_aten_max_pool(struct rule *r)
{
    struct builder *b = r->b;
    struct pool_window w;
    uint32_t n = (uint32_t)r->param;
    bool single;
    value_id x = batched(b, rule_in(r, 0), r->param, &single);
    if (!x.i || !window_read(r, n, true, &w))
        return false;
    const struct attr attrs[] = {attr_ints("kernel_shape", w.kernel, n), attr_ints("strides", w.stride, n),
                                 attr_ints("pads", w.pads, 2 * n), attr_ints("dilations", w.dilation, n),
                                 attr_int("ceil_mode", aten_flag(r, "ceil_mode"))};
    if (!aten_as(r, rule_max_pool, 12, 0, &x, 1, attrs, 5))
        return false;
    if (rule_wants(r, 1)) {
        expr_id plane = dims_product(b->x, b_dims(b, x).d + 2, r->param);
        rule_out(r, 1, b_binary(b, OP_MOD, r->out[1].v, v_expr(b, ELEM_I64, plane)));
    }
    unbatch(r, single);
    return true;
}

bool rule_aten_avg_pool(struct rule *r)
{
    struct builder *b = r->b;
    struct pool_window w;
    uint32_t n = (uint32_t)r->param;
    bool single;
    value_id x = batched(b, rule_in(r, 0), r->param, &single);
    if (!x.i || !window_read(r, n, false, &w))
        return false;
    int64_t divisor = rule_int(r, "divisor_override", 0), size = 1;
    if (divisor && aten_flag(r, "ceil_mode"))
        return rule_refuse(r, "divisor_override and ceil_mode are both given");
    const struct attr attrs[] = {attr_ints("kernel_shape", w.kernel, n), attr_ints("strides", w.stride, n),
                                 attr_ints("pads", w.pads, 2 * n), attr_int("ceil_mode", aten_flag(r, "ceil_mode")),
                                 attr_int("count_include_pad", divisor ? 1 : rule_int(r, "count_include_pad", 1))};
    if (!aten_as(r, rule_average_pool, 19, 0, &x, 1, attrs, 5))
        return false;
    for (uint32_t i = 0; i < n; i++)
        size *= w.kernel[i];
    if (divisor)
        rule_out(r, 0, v_affine(b, r->out[0].v, (double)size / (double)divisor, 0));
    unbatch(r, single);
    return true;
}

/* ---- pools whose windows cover the input evenly ------------------------------------------------------------------ */

/* Averages of `out` spans of a dim of n elements, which may overlap: a product with a constant matrix. */
static value_id spans_averaged(struct builder *b, value_id x, int32_t axis, int64_t n, int64_t out)
{
    int32_t rank = v_rank(b, x);
    int64_t dims[2] = {n, out};
    double *m = NEW_ARRAY(&b->g->arena, double, n *out);
    for (int64_t i = 0; i < out; i++) {
        int64_t begin = i * n / out, end = ((i + 1) * n + out - 1) / out;
        for (int64_t k = begin; k < end; k++)
            m[k * out + i] = 1 / (double)(end - begin);
    }
    value_id w = b_convert(b, b_const(b, ELEM_F64, dims, 2, m), v_elem(b, x));
    return v_move_axis(b, b_matmul(b, v_move_axis(b, x, axis, rank - 1), w), rank - 1, axis);
}

/* Where span i of `out` begins, or ends, in a dim of n elements: floor(i n / out), ceil((i + 1) n / out). */
static value_id span_bound(struct builder *b, value_id i, value_id n, value_id out, bool end)
{
    value_id at = b_binary(b, OP_MUL, end ? b_binary_f64(b, OP_ADD, i, 1) : i, n);
    if (end)
        at = b_binary(b, OP_ADD, at, b_binary_f64(b, OP_SUB, out, 1));
    return b_binary(b, OP_DIV, at, out);
}

/* Which of n elements (the first dim) are in which of `out` spans, and how many are; sizes of the run. */
static value_id spans_mask(struct builder *b, expr_id n, expr_id out, value_id *size)
{
    const expr_id dims[2] = {n, out};
    value_id k = v_iota(b, ELEM_I64, dims, 2, 0), i = v_iota(b, ELEM_I64, dims, 2, 1);
    value_id all = v_expr(b, ELEM_I64, n), spans = v_expr(b, ELEM_I64, out);
    value_id begin = span_bound(b, i, all, spans, false), end = span_bound(b, i, all, spans, true);
    *size = b_binary(b, OP_SUB, end, begin);
    return b_binary(b, OP_AND, b_binary(b, OP_LE, begin, k), b_binary(b, OP_LT, k, end));
}

/* Averages where a size is dynamic: a product with a matrix that the run makes. */
static value_id open_spans_averaged(struct builder *b, value_id x, int32_t axis, expr_id out)
{
    value_id size, mask = spans_mask(b, b_dim(b, x, axis), out, &size);
    value_id w = b_binary(b, OP_DIV, b_convert(b, b_convert(b, mask, ELEM_U8), v_elem(b, x)),
                          b_convert(b, size, v_elem(b, x)));
    int32_t last = v_rank(b, x) - 1;
    return v_move_axis(b, b_matmul(b, v_move_axis(b, x, axis, last), w), last, axis);
}

/* Averages of one dim. */
static value_id averaged(struct rule *r, value_id x, int32_t axis, expr_id out)
{
    enum { MATRIX_MAX = 1 << 20 };
    struct builder *b = r->b;
    int64_t n, known, axes[] = {axis};
    expr_id dim = b_dim(b, x, axis);
    if (ex_cmp_eq(b->x, dim, out) == TRUE_)
        return x;
    if (ex_is(b->x, out, 1))
        return b_mean(b, x, axes, 1, true);
    bool fixed = ex_is_const(b->x, dim, &n) && ex_is_const(b->x, out, &known);
    if (!fixed)
        return open_spans_averaged(b, x, axis, out);
    if (known < 1 || n > MATRIX_MAX / known)
        return rule_refuse(r, "%lld averages of a dimension of %lld are too many", (long long)known, (long long)n),
               (value_id){0};
    return spans_averaged(b, x, axis, n, known);
}

bool rule_aten_adaptive_avg_pool(struct rule *r)
{
    struct builder *b = r->b;
    value_id in = rule_in(r, 0), x = v_widen(b, in);
    expr_id out[RANK_MAX];
    int64_t axes[RANK_MAX];
    uint32_t spatial = (uint32_t)r->param, n_axes = 0, n;
    int32_t rank = v_rank(b, x);
    if (!x.i || !aten_ints(r, 1, "output_size", out, &n))
        return false;
    if (rank < (int32_t)spatial + 1 || (n != 1 && n != spatial))
        return rule_bad(r, "there are %u sizes for an operand of rank %d", n, (int)rank);
    for (uint32_t i = n; i < spatial; i++)
        out[i] = out[0];
    for (uint32_t i = 0; i < spatial; i++)
        if (ex_is(b->x, out[i], 1))
            axes[n_axes++] = rank - (int64_t)spatial + i;
    if (n_axes)
        x = b_mean(b, x, axes, n_axes, true);
    for (uint32_t i = 0; i < spatial && x.i; i++)
        x = averaged(r, x, rank - (int32_t)(spatial - i), out[i]);
    return rule_result(r, b_convert(b, x, v_elem(b, in)));
}

/* The largest of each of `out` spans of a dim of n elements. *at: their positions in the dims up to this one, of which
 * one is `step` elements; before the first dim {0}; NULL: not wanted. */
static value_id spans_max(struct builder *b, value_id x, int32_t axis, int64_t n, int64_t out, int64_t step,
                          value_id *at)
{
    value_id *parts = NEW_ARRAY(&b->g->arena, value_id, out), *places = NEW_ARRAY(&b->g->arena, value_id, out);
    const int64_t axes[] = {axis};
    for (int64_t i = 0; i < out; i++) {
        expr_id begin = ex_const(b->x, i * n / out), size = ex_const(b->x, ((i + 1) * n + out - 1) / out - i * n / out);
        value_id part = b_slice_axis(b, x, axis, begin, size);
        parts[i] = b_reduce(b, part, axes, 1, "max", true);
        if (!at)
            continue;
        value_id place = b_unsqueeze(b, b_argreduce(b, part, axis, true, false), axis);
        value_id before = at->i ? b_slice_axis(b, *at, axis, begin, size) : *at;
        places[i] = b_binary(b, OP_MUL, b_binary(b, OP_ADD, place, v_expr(b, ELEM_I64, begin)),
                             b_scalar_i64(b, ELEM_I64, step));
        if (at->i)
            places[i] = b_binary(b, OP_ADD, places[i], b_gather_elements(b, before, place, axis));
    }
    if (at)
        *at = b_concat(b, places, (uint32_t)out, axis);
    return b_concat(b, parts, (uint32_t)out, axis);
}

/* The same where a size is dynamic: of all elements, those of other spans as the least number. */
static value_id open_spans_max(struct builder *b, value_id x, int32_t axis, expr_id out)
{
    int64_t axes[] = {v_rank(b, x) - 1};
    value_id size, mask = spans_mask(b, b_dim(b, x, axis), out, &size);
    static const int64_t turn[] = {1, 0};
    x = b_unsqueeze(b, v_move_axis(b, x, axis, (int32_t)axes[0]), (int32_t)axes[0]);
    x = b_select(b, b_transpose(b, mask, turn), x, b_convert(b, b_scalar_f64(b, ELEM_F64, -INFINITY), v_elem(b, x)));
    axes[0]++;
    return v_move_axis(b, b_reduce(b, x, axes, 1, "max", false), (int32_t)axes[0] - 1, axis);
}

/* Spans of unequal sizes: dim by dim, from the last one on. */
static bool adaptive_max_uneven(struct rule *r, value_id x, const int64_t *out, uint32_t spatial)
{
    enum { SPANS_MAX = 64 };
    int64_t n, step = 1;
    value_id at = {0};
    bool placed = rule_wants(r, 1);
    for (uint32_t i = spatial; i-- > 0;) {
        int32_t axis = 2 + (int32_t)i;
        if (out[i] < 1 || out[i] > SPANS_MAX)
            return rule_refuse(r, "output_size is above %d", SPANS_MAX);
        bool known = ex_is_const(r->b->x, b_dim(r->b, x, axis), &n);
        if (!known && placed)
            return rule_refuse(r, "the positions of extremes are asked for, and the size is dynamic");
        x = known ? spans_max(r->b, x, axis, n, out[i], step, placed ? &at : NULL)
                  : open_spans_max(r->b, x, axis, ex_const(r->b->x, out[i]));
        step *= known ? n : 1;
    }
    rule_out(r, 1, at);
    return rule_result(r, x);
}

/* Windows of equal size that cover the dims exactly. */
bool rule_aten_adaptive_max_pool(struct rule *r)
{
    struct builder *b = r->b;
    int64_t out[RANK_MAX], kernel[RANK_MAX], n;
    bool even = true;
    uint32_t spatial = (uint32_t)r->param;
    bool single;
    value_id x = batched(b, rule_in(r, 0), r->param, &single);
    if (!x.i || !aten_window(r, 1, "output_size", spatial, 1, out))
        return false;
    expr_id plane = ex_const(b->x, 1);
    for (uint32_t i = 0; i < spatial; i++) {
        even &= ex_is_const(b->x, b_dim(b, x, 2 + (int32_t)i), &n) && out[i] >= 1 && n % out[i] == 0;
        kernel[i] = even ? n / out[i] : 1;
        plane = ex_mulc(b->x, plane, n);
    }
    const struct attr attrs[] = {attr_ints("kernel_shape", kernel, spatial), attr_ints("strides", kernel, spatial)};
    if (!even ? !adaptive_max_uneven(r, x, out, spatial) : !aten_as(r, rule_max_pool, 12, 0, &x, 1, attrs, 2))
        return false;
    if (even && rule_wants(r, 1))
        rule_out(r, 1, b_binary(b, OP_MOD, r->out[1].v, v_expr(b, ELEM_I64, plane)));
    unbatch(r, single);
    return true;
}

/* ---- resizing -------------------------------------------------------------------------------------------------- */

enum { RESIZE_NEAREST, RESIZE_EXACT, RESIZE_LINEAR, RESIZE_CUBIC, RESIZE_SMOOTH };

/* A scale for each dim, 0 for what has none; {0}: none has one. */
static value_id scales_of(struct rule *r, uint32_t n)
{
    static const char *const names[3][3] = {{"scales"}, {"scales_h", "scales_w"}, {"scales_d", "scales_h", "scales_w"}};
    uint32_t given;
    float f[3];
    int64_t dim = n;
    bool any = false;
    const double *list = rule_floats(r, "scale_factors", &given);
    for (uint32_t i = 0; i < n; i++) {
        f[i] = (float)(list ? (given == n ? list[i] : 0) : aten_float(r, names[n - 1][i], 0));
        any |= f[i] > 0;
    }
    return any ? b_const(r->b, ELEM_F32, &dim, 1, f) : (value_id){0};
}

/* The sizes that factors make, where they are wanted themselves: corners are aligned by sizes. */
static bool sizes_of_scales(struct rule *r, uint32_t n, expr_id *sizes)
{
    uint32_t given;
    const double *list = rule_floats(r, "scale_factors", &given);
    for (uint32_t i = 0; i < n; i++) {
        expr_id in = b_dim(r->b, rule_in(r, 0), 2 + (int32_t)i);
        int64_t known;
        if (!list || given != n)
            return rule_bad(r, "neither output_size nor scale factors are given are given");
        if (ex_is_const(r->b->x, in, &known) && list[i] > 0 && list[i] < 1e6)
            sizes[i] = ex_const(r->b->x, (int64_t)floor((double)known * list[i]));
        else if (list[i] >= 1 && list[i] < 1e6 && list[i] == floor(list[i]))
            sizes[i] = ex_mulc(r->b->x, in, (int64_t)list[i]);
        else
            return rule_refuse(
                r, "align_corners is given, the sizes are dynamic and the scale is a fraction: give output_size");
    }
    return true;
}

/* Sizes, or factors by which sizes grow and positions are scaled. param: kind + RESIZE_SMOOTH if antialiased + 8 *
 * spatial dims */
bool rule_aten_upsample(struct rule *r)
{
    struct builder *b = r->b;
    static const char *const modes[] = {"nearest", "nearest", "linear", "cubic"};
    bool smooth = r->param & RESIZE_SMOOTH;
    uint32_t kind = (uint32_t)r->param & 3, n = (uint32_t)r->param >> 3, given;
    int64_t axes[3] = {2, 3, 4};
    expr_id sizes[RANK_MAX];
    value_id in[4] = {rule_in(r, 0)};
    if (!in[0].i || !aten_ints(r, 1, "output_size", sizes, &given))
        return false;
    if (v_rank(b, in[0]) != (int32_t)n + 2 || (given && given != n))
        return rule_bad(r, "the operand has rank %d, and there are %u sizes", (int)v_rank(b, in[0]), given);
    if (smooth && aten_flag(r, "align_corners")) /* PyTorch does not align them: it only scales by them */
        return rule_refuse(r, "align_corners is given: resize without it");
    const char *transform = kind == RESIZE_NEAREST          ? "asymmetric"
                            : aten_flag(r, "align_corners") ? "align_corners"
                                                            : "half_pixel";
    if (!given && aten_flag(r, "align_corners")) {
        if (!sizes_of_scales(r, n, sizes))
            return false;
        given = n;
    }
    if (!given || !aten_flag(r, "align_corners"))
        in[2] = scales_of(r, n);
    if (!in[2].i && !given)
        return rule_bad(r, "neither output_size nor scale factors");
    if (given)
        in[3] = aten_sizes(r, sizes, n);
    const struct attr attrs[] = {attr_str("mode", modes[kind]),
                                 attr_str("coordinate_transformation_mode", transform),
                                 attr_str("nearest_mode", kind == RESIZE_EXACT ? "round_prefer_ceil" : "floor"),
                                 attr_float("cubic_coeff_a", smooth ? -0.5 : -0.75),
                                 attr_ints("axes", axes, n),
                                 attr_int("antialias", smooth),
                                 attr_int("exclude_outside", smooth)};
    if (v_elem(b, in[0]) != ELEM_U8 || kind < RESIZE_LINEAR)
        return aten_as(r, rule_resize, 18, 1, in, 4, attrs, 7);
    in[0] = b_convert(b, in[0], ELEM_F32); /* bytes are rounded to the nearest */
    return aten_as(r, rule_resize, 18, 1, in, 4, attrs, 7) &&
           aten_result_stated(r, b_clamp(b, b_unary(b, OP_FLOOR, b_binary_f64(b, OP_ADD, r->out[0].v, 0.5)), 0, 255));
}

/* Where the points of an image lie in another. */
bool rule_aten_affine_grid(struct rule *r)
{
    expr_id sizes[RANK_MAX];
    uint32_t n;
    if (!rule_in(r, 0).i || !aten_ints(r, 1, "size", sizes, &n))
        return false;
    if (!v_is_float(r->b, rule_in(r, 0)))
        return rule_refuse(r, "the operand is of integers: convert it to floats before");
    const value_id in[2] = {rule_in(r, 0), aten_sizes(r, sizes, n)};
    struct attr align = attr_int("align_corners", aten_flag(r, "align_corners"));
    return aten_as(r, rule_affine_grid, 20, 0, in, 2, &align, 1);
}

/* ---- samples --------------------------------------------------------------------------------------------------- */

/* grid_sampler, and grid_sampler_2d, _3d. Modes are numbers: bilinear, nearest, bicubic; zeros, border, reflection. */
bool rule_aten_grid_sampler(struct rule *r)
{
    static const char *const modes[] = {"linear", "nearest", "cubic"}, *const pads[] = {"zeros", "border",
                                                                                        "reflection"};
    const value_id in[2] = {rule_in(r, 0), rule_in(r, 1)};
    int64_t mode = rule_int(r, "interpolation_mode", 0), pad = rule_int(r, "padding_mode", 0);
    if (mode < 0 || mode > 2 || pad < 0 || pad > 2)
        return rule_bad(r, "interpolation_mode is %lld and padding_mode %lld; 0 to 2 are possible", (long long)mode,
                        (long long)pad);
    const struct attr attrs[] = {attr_str("mode", modes[mode]), attr_str("padding_mode", pads[pad]),
                                 attr_int("align_corners", aten_flag(r, "align_corners"))};
    return aten_as(r, rule_grid_sample, 22, 0, in, 2, attrs, 3);
}

/* ---- padding --------------------------------------------------------------------------------------------------- */

static const char *pad_mode(struct rule *r)
{
    static const struct mode {
        const char *torch, *core;
    } names[] = {{"constant", "constant"}, {"reflect", "reflect"}, {"replicate", "edge"}, {"circular", "wrap"}};
    const struct mode *row = ROW_NAMED(names, COUNT_OF(names), rule_str(r, "mode", "constant"));
    return row ? row->core : NULL;
}

/* Two pads a dim, from the last dim on. param: 0 as `mode` says, 1 constant, 2 reflect, 3 edge */
bool rule_aten_pad(struct rule *r)
{
    static const char *const modes[] = {NULL, "constant", "reflect", "edge"};
    struct builder *b = r->b;
    value_id x = rule_in(r, 0), in[4] = {x};
    expr_id pads[RANK_MAX], ordered[RANK_MAX];
    int64_t axes[RANK_MAX];
    uint32_t n, i_value = r->param ? 2 : 3;
    int32_t rank = v_rank(b, x);
    const char *mode = r->param ? modes[r->param] : pad_mode(r);
    if (!x.i || !aten_ints(r, 1, r->param > 1 ? "padding" : "pad", pads, &n))
        return false;
    if (!mode || n % 2 || n > 2 * (uint32_t)rank)
        return rule_bad(r, "there are %u pads for rank %d, or the mode is unknown", n, (int)rank);
    if (!n)
        return rule_result(r, x);
    for (uint32_t i = 0; i < n / 2; i++) {
        ordered[i] = pads[2 * i];
        ordered[n / 2 + i] = pads[2 * i + 1];
        axes[i] = rank - 1 - (int64_t)i;
    }
    int64_t count = n / 2;
    in[1] = aten_sizes(r, ordered, n);
    if (strcmp(mode, "constant") == 0 && aten_has(r, i_value, "value"))
        in[2] = aten_operand(r, i_value, "value", v_elem(b, x));
    in[3] = b_const(b, ELEM_I64, &count, 1, axes);
    return aten_as(r, rule_pad, 18, 0, in, 4, ARRAY(struct attr, attr_str("mode", mode)));
}
