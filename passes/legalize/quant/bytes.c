/* Products of bytes with zero points, as the kernels do them: u8 with i8, or i8 with i8 where some CPU of the artifact
 * multiplies signed bytes only, summed in i32.
 *
 * The sign bit of an operand of the other signedness is turned, which moves it and its zero point by 128. Zero points
 * are not subtracted from the elements but from the sums: sum (a - za)(w - zw) = sum a w - zw sum a - za sum (w - zw),
 * where the last sum is a constant if the weights are, and the middle one is not needed where zw is 0. Wrapping
 * arithmetic makes all of that exact. What a convolution pads with is the zero point.
 */
#include "passes/legalize/driver.h"
#include "passes/legalize/nn/window.h"

bool rule_is_bytes(struct rule *r, value_id x, value_id w)
{
    enum elem a = v_elem(r->b, x), c = v_elem(r->b, w);
    return (a == ELEM_U8 || a == ELEM_I8) && (c == ELEM_U8 || c == ELEM_I8);
}

/* The type of the first operand. */
static enum elem first_elem(const struct rule *r)
{
    return r->lg->options && r->lg->options->signed_bytes ? ELEM_I8 : ELEM_U8;
}

/* x, or its zero point, moved to the range of type `to`. */
static value_id turned(struct builder *b, value_id x, enum elem to)
{
    struct attr attr = attr_elem("elem", to);
    if (!x.i || v_elem(b, x) == to)
        return x;
    x = b_op(b, OP_BITCAST, &x, 1, &attr, 1);
    value_id bit = b_scalar_i64(b, to, to == ELEM_U8 ? 128 : -128);
    return b_binary(b, OP_XOR, x, b_broadcast_like(b, bit, x));
}

/* A zero point in the range of type `to` as i32; {0}: it is 0. */
static value_id zero_point(struct rule *r, value_id zero, enum elem from, enum elem to)
{
    struct builder *b = r->b;
    int64_t n, *values;
    if (!zero.i)
        return from == to ? zero : b_scalar_i64(b, ELEM_I32, to == ELEM_U8 ? 128 : -128);
    zero = b_convert(b, turned(b, zero, to), ELEM_I32);
    if (!zero.i || !ex_is_const(b->x, b_count(b, zero), &n) || n < 1 || n > 1 << 20)
        return zero;
    values = NEW_ARRAY(&b->g->arena, int64_t, n);
    if (!value_is_const(b->g, zero) || !value_const_i64(b->g, zero, values, (uint32_t)n))
        return n == 1 ? v_scalar(b, zero) : zero;
    bool none = true;
    for (int64_t i = 0; i < n; i++)
        none &= values[i] == 0;
    return none ? (value_id){0} : n == 1 ? v_scalar(b, zero) : zero;
}

/* Several zero points along an axis of a tensor of this rank; one stays as it is. */
static value_id along(struct builder *b, value_id zero, int32_t axis, int32_t rank)
{
    return zero.i && v_rank(b, zero) == 1 ? v_along(b, zero, axis, rank) : zero;
}

static value_id minus_product(struct builder *b, value_id sum, value_id zero, value_id other)
{
    return zero.i ? b_binary(b, OP_SUB, sum, b_binary(b, OP_MUL, other, zero)) : sum;
}

/* The weights' sums over axes, dims kept, less their zero point once for each summed element. */
static value_id weight_sums(struct builder *b, value_id w, const int64_t *axes, uint32_t n, value_id zero)
{
    value_id sum = b_reduce(b, b_convert(b, w, ELEM_I32), axes, n, "sum", true);
    expr_id count = ex_const(b->x, 1);
    for (uint32_t i = 0; i < n; i++)
        count = ex_mul(b->x, count, b_dim(b, w, (int32_t)axes[i]));
    return zero.i ? b_binary(b, OP_SUB, sum, b_binary(b, OP_MUL, v_expr(b, ELEM_I32, count), zero)) : sum;
}

value_id rule_matmul_bytes(struct rule *r, value_id x, value_id zx, value_id w, value_id zw)
{
    struct builder *b = r->b;
    int32_t rank_x = v_rank(b, x), rank_w = v_rank(b, w);
    enum elem first = first_elem(r);
    zx = along(b, zero_point(r, zx, v_elem(b, x), first), rank_x - 2, rank_x);
    zw = along(b, zero_point(r, zw, v_elem(b, w), ELEM_I8), rank_w - 1, rank_w);
    x = turned(b, x, first);
    w = turned(b, w, ELEM_I8);
    value_id sum = b_matmul_acc(b, x, w, ELEM_I32);
    int64_t axis_x = rank_x - 1, axis_w = rank_w - 2;
    if (!sum.i)
        return sum;
    if (zw.i)
        sum = minus_product(b, sum, zw, b_reduce(b, b_convert(b, x, ELEM_I32), &axis_x, 1, "sum", true));
    return zx.i ? minus_product(b, sum, zx, weight_sums(b, w, &axis_w, 1, zw)) : sum;
}

/* For each point of the result the sum of what the window covers in all channels. */
static value_id window_sums(struct builder *b, value_id x, value_id w, const struct spatial *s)
{
    int64_t channels = 1, kernel[RANK_MAX];
    uint32_t n = (uint32_t)s->n;
    for (uint32_t i = 0; i < n; i++)
        if (!ex_is_const(b->x, b_dim(b, w, 2 + (int32_t)i), &kernel[i]))
            return (value_id){0};
    struct attr attrs[] = {attr_str("monoid", "sum"),           attr_ints("kernel", kernel, n),
                           attr_ints("strides", s->strides, n), attr_exprs("lo", s->lo, n),
                           attr_exprs("hi", s->hi, n),          attr_ints("dilations", s->dilations, n)};
    value_id sum = b_reduce(b, b_convert(b, x, ELEM_I32), &channels, 1, "sum", true);
    return b_op(b, OP_WINDOW, &sum, 1, attrs, 6);
}

/* How many channels fill a group of four bytes where there are fewer than four: 0 otherwise. On microcontrollers bytes
 * that fill no group are multiplied one by one. */
static int64_t missing_channels(const struct rule *r, value_id w)
{
    int64_t channels;
    int64_t least = r->lg->options ? r->lg->options->few_channels : 0;
    bool known = ex_is_const(r->b->x, b_dim(r->b, w, 1), &channels) && channels > 0 && channels < 4;
    return known && channels >= least ? 4 - channels : 0;
}

static value_id with_channels(struct builder *b, value_id v, int64_t more)
{
    expr_id lo[RANK_MAX], hi[RANK_MAX];
    for (int32_t i = 0; i < v_rank(b, v); i++) {
        lo[i] = ex_const(b->x, 0);
        hi[i] = ex_const(b->x, i == 1 ? more : 0);
    }
    return more && v.i ? b_pad(b, v, (value_id){0}, lo, hi, "constant") : v;
}

/* x with the zero point around it, and no pads left to do. */
static value_id padded(struct builder *b, value_id x, value_id fill, struct spatial *s)
{
    expr_id lo[RANK_MAX], hi[RANK_MAX], none = ex_const(b->x, 0);
    bool any = false;
    lo[0] = lo[1] = hi[0] = hi[1] = none;
    for (int32_t i = 0; i < s->n; i++) {
        lo[2 + i] = s->lo[i];
        hi[2 + i] = s->hi[i];
        any |= !ex_is(b->x, s->lo[i], 0) || !ex_is(b->x, s->hi[i], 0);
        s->lo[i] = s->hi[i] = none;
    }
    return any ? b_pad(b, x, b_convert(b, fill, v_elem(b, x)), lo, hi, "constant") : x;
}

/* Nothing but 0 is subtracted from the weights. */
static bool no_zero(struct rule *r, value_id w, value_id zw)
{
    return v_elem(r->b, w) == ELEM_I8 && !zero_point(r, zw, ELEM_I8, ELEM_I8).i;
}

bool rule_conv_is_bytes(struct rule *r, value_id x, value_id w, value_id zw)
{
    bool depthwise = rule_int(r, "group", 1) > 1 && ex_is(r->b->x, b_dim(r->b, w, 1), 1);
    bool fits = rule_is_bytes(r, x, w) && (depthwise ? no_zero(r, w, zw) : rule_int(r, "group", 1) == 1);
    for (int32_t i = 2; fits && i < v_rank(r->b, w); i++)
        fits = ex_is_const(r->b->x, b_dim(r->b, w, i), NULL);
    return fits;
}

value_id rule_conv_bytes(struct rule *r, value_id x, value_id zx, value_id w, value_id zw)
{
    struct builder *b = r->b;
    struct spatial s;
    int64_t axes[RANK_MAX];
    if (!rule_conv_spatial(r, x, w, &s))
        return (value_id){0};
    value_id own = zero_point(r, zx, v_elem(b, x), v_elem(b, x));
    zx = zero_point(r, zx, v_elem(b, x), first_elem(r));
    zw = along(b, zero_point(r, zw, v_elem(b, w), ELEM_I8), 0, s.n + 2);
    for (int32_t i = 0; i <= s.n; i++)
        axes[i] = 1 + i;
    w = turned(b, w, ELEM_I8);
    int64_t groups = rule_int(r, "group", 1), more = groups == 1 ? missing_channels(r, w) : 0;
    if (zx.i || more)
        x = padded(b, x, own.i ? own : b_scalar_i64(b, ELEM_I32, 0), &s);
    x = turned(b, x, first_elem(r));
    value_id sum = conv_build(b, with_channels(b, x, more), with_channels(b, w, more), &s, groups, ELEM_I32);
    if (!sum.i)
        return sum;
    value_id of_weights = zx.i ? weight_sums(b, w, axes, (uint32_t)s.n + 1, zw) : zx;    /* [M, 1, ...] */
    int32_t rank = s.n + 2;
    expr_id m = b_dim(b, w, 0);
    if (zw.i && v_rank(b, zw) > 0)
        zw = v_along(b, b_reshape(b, zw, &m, 1), 1, rank);
    if (zw.i)
        sum = minus_product(b, sum, zw, window_sums(b, x, w, &s));
    return zx.i ? minus_product(b, sum, zx, v_along(b, b_reshape(b, of_weights, &m, 1), 1, rank)) : sum;
}
