/* Quantization: QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear and the integer products.
 *
 * Products sum in i32 exactly; zero points are subtracted before. Rounding is half to even, then saturation.
 * Scales are per tensor, along one axis, or blocked along one axis.
 */
#include "passes/legalize/driver.h"
#include "passes/legalize/nn/window.h"

#include <math.h>

value_id v_quantize(struct builder *b, value_id x, value_id zero, enum elem e)
{
    enum elem wide = v_elem(b, x);
    value_id y = b_unary(b, OP_ROUND, x);
    if (zero.i)
        y = b_binary(b, OP_ADD, y, b_convert(b, zero, wide));
    return b_convert(b, y, e);
}

static value_id convert_saturating(struct builder *b, value_id x, enum elem e, bool saturate)
{
    struct attr attrs[] = {attr_elem("elem", e), attr_int("saturate", saturate)};
    return x.i ? b_op(b, OP_CONVERT, &x, 1, attrs, 2) : x;
}

value_id v_blocks_spread(struct builder *b, value_id s, int32_t axis, int64_t block, expr_id size)
{
    return b_slice_axis(b, v_repeated(b, s, axis, block), axis, ex_const(b->x, 0), size);
}

/* A scale or zero point (the row's parameter 1: of com.microsoft, whose only version has axes), spread so that it
 * broadcasts against x. */
static value_id spread(struct rule *r, value_id s, value_id x)
{
    struct builder *b = r->b;
    int64_t block = rule_int(r, "block_size", 0);
    int32_t axis;
    const struct dims dims = b_dims(b, x), sd = b_dims(b, s);
    if (!dims.d || !sd.d)
        return (value_id){0};
    int64_t count, at = rule_int(r, "axis", 1);
    bool several = r->param || r->version >= 13; /* may there be more than one? */
    bool one = sd.rank == 1 && !ex_is_const(b->x, sd.d[0], &count) && (!several || at < -dims.rank || at >= dims.rank);
    if (sd.rank == 0 || one ||
        (sd.rank == 1 && ex_is(b->x, sd.d[0], 1))) /* one: no axis for several, so the run checks it */
        return v_scalar(b, s);
    if (!several && sd.rank == 1)
        return rule_bad(r, "version %d has one scale", (int)r->version), (value_id){0};
    if (!rule_axis(r, rule_int(r, "axis", 1), dims.rank, &axis))
        return (value_id){0};
    if (sd.rank == 1 && !block)
        return v_along(b, s, axis, dims.rank);
    if (sd.rank != dims.rank || block < 1 || dims.rank >= RANK_MAX)
        return rule_bad(r, "scale of rank %d for rank %d", (int)sd.rank, (int)dims.rank), (value_id){0};
    return v_blocks_spread(b, s, axis, block, dims.d[axis]);
}

/* Is v one number, the same in every run? */
static bool one_number(struct builder *b, value_id v, double *c)
{
    int64_t n, i = 0;
    if (!v.i || !ex_is_const(b->x, b_count(b, v), &n) || n != 1 || !value_is_const(b->g, v))
        return false;
    if (elem_class(v_elem(b, v)) == 'F')
        return value_const_f64(b->g, v, c, 1);
    bool known = value_const_i64(b->g, v, &i, 1);
    *c = (double)i;
    return known;
}

static bool same_zero(struct builder *b, value_id a, value_id c)
{
    double x = 0, y = 0;
    return (!a.i || one_number(b, a, &x)) && (!c.i || one_number(b, c, &y)) && x == y;
}

/* Was the operand made of integers of this type with the very scale and zero point that it gets here? Then they come
 * out as they were: (n s) / s is less than half from n for |n| < 2^16, wherever n s is a normal number. */
static bool unchanged(struct rule *r, enum elem to)
{
    const struct quantized *q = r->arg[0].quantized;
    double mine, theirs;
    return q && elem_bits(to) <= 16 && elem_class(to) != 'F' && v_elem(r->b, q->q) == to &&
           v_elem(r->b, rule_in(r, 1)) == ELEM_F32 && one_number(r->b, rule_in(r, 1), &mine) &&
           one_number(r->b, q->scale, &theirs) && mine == theirs && fabs(mine) > 1e-30 && fabs(mine) < 1e30 &&
           same_zero(r->b, rule_in(r, 2), q->zero);
}

bool rule_quantize(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0), scale = rule_in(r, 1), zero = rule_in(r, 2);
    enum elem to = zero.i ? v_elem(b, zero) : rule_elem_attr(r, "output_dtype", ELEM_U8);
    enum elem precision = rule_elem_attr(r, "precision", ELEM_NONE);
    if (!x.i || !scale.i)
        return false;
    if (precision == ELEM_NONE && unchanged(r, to))
        return rule_result(r, r->arg[0].quantized->q);
    enum elem wide = precision != ELEM_NONE ? precision : v_elem(b, scale);
    if (elem_class(wide) != 'F' || elem_size(wide) < 4)
        wide = ELEM_F32;
    value_id y = b_binary(b, OP_DIV, b_convert(b, x, wide), b_convert(b, spread(r, scale, x), wide));
    if (precision != ELEM_NONE && elem_size(precision) < 4)
        y = b_convert(b, b_convert(b, y, precision), wide);
    if (elem_class(to) == 'F') {
        if (zero.i)
            y = b_binary(b, OP_ADD, y, b_convert(b, spread(r, zero, x), wide));
        return rule_result(r, convert_saturating(b, y, to, rule_int(r, "saturate", 1) != 0));
    }
    return rule_result(r, v_quantize(b, y, zero.i ? spread(r, zero, x) : zero, to));
}

bool rule_dequantize(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0), scale = rule_in(r, 1), zero = rule_in(r, 2);
    if (!x.i || !scale.i)
        return false;
    enum elem to = rule_elem_attr(r, "output_dtype", v_elem(b, scale));
    bool ints = elem_class(v_elem(b, x)) != 'F';
    value_id y = b_convert(b, x, ints ? ELEM_I32 : ELEM_F32);
    if (zero.i)
        y = b_binary(b, OP_SUB, y, b_convert(b, spread(r, zero, x), v_elem(b, y)));
    y = b_binary(b, OP_MUL, b_convert(b, y, ELEM_F32), b_convert(b, spread(r, scale, x), ELEM_F32));
    if (!rule_result(r, b_convert(b, y, to)))
        return false;
    if (to == ELEM_F32 && v_elem(b, scale) == ELEM_F32 && ints && !rule_int(r, "block_size", 0)) {
        int64_t axis = rule_int(r, "axis", 1), rank = v_rank(b, x);
        struct quantized q = {x, scale, zero, (int32_t)(axis < 0 ? axis + rank : axis),
                              false}; /* unchecked where there is one scale */
        r->out[0].quantized = arena_copy(&b->g->arena, &q, sizeof q);
    }
    return true;
}

/* Operators that put elements of their first operand elsewhere, and make none: a maximum is one of them, where the
 * scale is positive. */
static bool is_move(const struct rule *r, double scale)
{
    static const char *const names[] = {"Transpose", "Reshape", "Flatten",      "Unsqueeze",   "Identity",
                                        "Slice",     "Gather",  "DepthToSpace", "SpaceToDepth"};
    bool maximum = strcmp(r->op, "MaxPool") == 0 || strcmp(r->op, "GlobalMaxPool") == 0;
    return r->n_out == 1 && (ROW_NAMED(names, COUNT_OF(names), r->op) || (scale > 0 && maximum));
}

bool rule_move(struct rule *r, rule_fn *rule)
{
    struct builder *b = r->b;
    const struct quantized *from = r->n_in ? r->arg[0].quantized : NULL;
    double scale, zero;
    if (!from || !one_number(b, from->scale, &scale) || !is_move(r, scale) ||
        (from->zero.i && !one_number(b, from->zero, &zero)))
        return rule(r);
    struct lowered *arg = NEW_ARRAY(&b->g->arena, struct lowered, r->n_in);
    struct quantized to = *from;
    memcpy(arg, r->arg, r->n_in * sizeof *arg);
    arg[0] = lowered_value(from->q);
    struct rule bytes = *r;
    bytes.arg = arg;
    bool ok = rule(&bytes);
    if (r->lg->fork) { /* what follows would get bytes: it gets numbers, and asks again */
        r->lg->fork = NULL;
        return rule(r);
    }
    if (!ok || r->out[0].kind != LOWERED_VALUE || !r->out[0].v.i)
        return false;
    to.q = r->out[0].v;
    to.moved = true;
    value_id y = b_convert(b, to.q, ELEM_I32);
    if (to.zero.i)
        y = b_binary(b, OP_SUB, y, b_convert(b, v_scalar(b, to.zero), ELEM_I32));
    if (!rule_result(r, b_binary(b, OP_MUL, b_convert(b, y, ELEM_F32), v_scalar(b, to.scale))))
        return false;
    r->out[0].quantized = arena_copy(&b->g->arena, &to, sizeof to);
    return true;
}

/* u8 over the range of x, stretched to hold 0. A range of nothing but 0, or one too small to be divided, has scale 1:
 * ONNX's formula would divide by 0. */
void v_quantize_dynamic(struct builder *b, value_id x, value_id out[3])
{
    int32_t rank = v_rank(b, x);
    int64_t axes[RANK_MAX];
    for (int32_t i = 0; i < rank; i++)
        axes[i] = i;
    value_id hi = b_binary_f64(b, OP_MAX, b_reduce(b, x, axes, (uint32_t)rank, "max", false), 0);
    value_id lo = b_binary_f64(b, OP_MIN, b_reduce(b, x, axes, (uint32_t)rank, "min", false), 0);
    value_id step = b_binary_f64(b, OP_DIV, b_binary(b, OP_SUB, hi, lo), 255);
    value_id scale = b_select(b, b_binary_f64(b, OP_EQ, step, 0), b_splat_like(b, step, 1), step);
    value_id start = b_binary(b, OP_DIV, b_unary(b, OP_NEG, lo), scale);
    value_id zero = b_convert(b, b_unary(b, OP_ROUND, b_clamp(b, start, 0, 255)), ELEM_U8);
    out[0] = v_quantize(b, b_binary(b, OP_DIV, x, scale), zero, ELEM_U8);
    out[1] = scale;
    out[2] = zero;
}

bool rule_dynamic_quantize(struct rule *r)
{
    value_id x = rule_in(r, 0), out[3];
    if (!x.i)
        return false;
    v_quantize_dynamic(r->b, x, out);
    for (uint32_t i = 0; i < 3; i++)
        rule_out(r, i, out[i]);
    return true;
}

/* ---- integer products -------------------------------------------------------------------------------------------- */

/* Operand minus its zero point, in i32; along axis of the operand when there are several. */
static value_id centred(struct builder *b, value_id x, value_id zero, int32_t axis)
{
    int64_t n;
    if (!x.i)
        return x;
    value_id y = b_convert(b, x, ELEM_I32);
    if (!zero.i)
        return y;
    zero = b_convert(b, zero, ELEM_I32);
    bool one = ex_is_const(b->x, b_count(b, zero), &n) && n == 1;
    if (one)
        zero = v_scalar(b, zero);
    else if (v_rank(b, zero) == 1 && v_rank(b, x) > 1)
        zero = v_along(b, zero, axis < 0 ? v_rank(b, x) + axis : axis, v_rank(b, x));
    return b_binary(b, OP_SUB, y, zero);
}

/* Sums of products of operands less their zero points; bytes stay bytes (bytes.c). */
value_id rule_integer_matmul(struct rule *r, value_id x, value_id zx, value_id w, value_id zw)
{
    struct builder *b = r->b;
    if (x.i && w.i && rule_is_bytes(r, x, w) && v_rank(b, x) > 1 && v_rank(b, w) > 1)
        return rule_matmul_bytes(r, x, zx, w, zw);
    return b_matmul(b, centred(b, x, zx, -2), centred(b, w, zw, -1));
}

static value_id integer_conv(struct rule *r, value_id x, value_id zx, value_id w, value_id zw)
{
    struct builder *b = r->b;
    if (x.i && w.i && rule_conv_is_bytes(r, x, w, zw))
        return rule_conv_bytes(r, x, zx, w, zw);
    return rule_conv_core(r, centred(b, x, zx, 1), centred(b, w, zw, 0), ELEM_I32);
}

bool rule_matmul_integer(struct rule *r)
{
    return rule_result(r, rule_integer_matmul(r, rule_in(r, 0), rule_in(r, 2), rule_in(r, 1), rule_in(r, 3)));
}

bool rule_conv_integer(struct rule *r)
{
    return rule_result(r, integer_conv(r, rule_in(r, 0), rule_in(r, 2), rule_in(r, 1), rule_in(r, 3)));
}

/* sum (i32) * scale -> rounded, saturated. */
static value_id requantize(struct builder *b, value_id sum, value_id scale, value_id out_scale, value_id zero)
{
    value_id factor = b_binary(b, OP_DIV, scale, b_convert(b, v_scalar(b, out_scale), v_elem(b, scale)));
    value_id y = b_binary(b, OP_MUL, b_convert(b, sum, v_elem(b, scale)), factor);
    return v_quantize(b, y, v_scalar(b, zero), v_elem(b, zero));
}

/* Scales per row of a or column of b broadcast as they stand after alignment. */
static value_id scale_along(struct builder *b, value_id s, int32_t axis, int32_t rank)
{
    int64_t n;
    s = b_convert(b, s, ELEM_F32);
    if (ex_is_const(b->x, b_count(b, s), &n) && n == 1)
        return v_scalar(b, s);
    return v_rank(b, s) == 1 ? v_along(b, s, axis, rank) : s;
}

/* x, its scale and zero point, w, its own, and those of the result. */
enum { QLINEAR_OPERANDS = 8 };
static bool qlinear_operands(struct rule *r, value_id *in, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        in[i] = rule_in(r, i);
        if (!in[i].i)
            return false;
    }
    return true;
}

bool rule_qlinear_matmul(struct rule *r)
{
    struct builder *b = r->b;
    value_id in[QLINEAR_OPERANDS];
    if (!qlinear_operands(r, in, QLINEAR_OPERANDS))
        return false;
    value_id sum = rule_integer_matmul(r, in[0], in[2], in[3], in[5]);
    int32_t rank = v_rank(b, sum);
    value_id scale = b_binary(b, OP_MUL, scale_along(b, in[1], rank > 1 ? rank - 2 : 0, rank),
                              scale_along(b, in[4], rank - 1, rank));
    return rule_result(r, sum.i ? requantize(b, sum, scale, in[6], in[7]) : sum);
}

bool rule_qlinear_conv(struct rule *r)
{
    struct builder *b = r->b;
    value_id in[QLINEAR_OPERANDS];
    if (!qlinear_operands(r, in, QLINEAR_OPERANDS))
        return false;
    bool last = rule_int(r, "channels_last", 0) != 0; /* com.microsoft */
    value_id sum = integer_conv(r, last ? v_channels_first(b, in[0]) : in[0], in[2], in[3], in[5]);
    if (!sum.i)
        return false;
    int32_t rank = v_rank(b, sum);
    if (rule_has(r, 8))
        sum = b_binary(b, OP_ADD, sum, v_channels(b, rule_in(r, 8), sum, 1));
    value_id scale = b_binary(b, OP_MUL, scale_along(b, in[1], 1, rank), scale_along(b, in[4], 1, rank));
    value_id y = requantize(b, sum, scale, in[6], in[7]);
    return rule_result(r, last ? v_channels_last(b, y) : y);
}

/* ---- integer products of com.microsoft --------------------------------------------------------------------------- */

/* An optional operand. */
static value_id maybe(struct rule *r, uint32_t i)
{
    return rule_has(r, i) ? rule_in(r, i) : (value_id){0};
}

value_id v_product_scaled(struct builder *b, value_id sum, value_id scale_x, value_id scale_w, value_id bias)
{
    if (!sum.i)
        return sum;
    int32_t rank = v_rank(b, sum);
    value_id scale = b_binary(b, OP_MUL, scale_along(b, scale_x, 0, rank), scale_along(b, scale_w, rank - 1, rank));
    value_id y = b_binary(b, OP_MUL, b_convert(b, sum, ELEM_F32), scale);
    return bias.i ? b_binary(b, OP_ADD, y, b_convert(b, bias, ELEM_F32)) : y;
}

/* Operands a, b, their scales, [zero of a, zero of b, bias]; a float result. */
bool rule_matmul_integer_to_float(struct rule *r)
{
    struct builder *b = r->b;
    value_id sum = rule_integer_matmul(r, rule_in(r, 0), maybe(r, 4), rule_in(r, 1), maybe(r, 5));
    value_id y = v_product_scaled(b, sum, rule_in(r, 2), rule_in(r, 3), maybe(r, 6));
    return rule_result(r, b_convert(b, y, v_elem(b, rule_in(r, 2))));
}

/* Operands a in f32, quantized by its range, b, scale of b, [zero of b, bias]. */
bool rule_dynamic_quantize_matmul(struct rule *r)
{
    struct builder *b = r->b;
    value_id a[3], x = rule_in(r, 0);
    if (!x.i)
        return false;
    v_quantize_dynamic(b, x, a);
    value_id sum = rule_integer_matmul(r, a[0], a[2], rule_in(r, 1), maybe(r, 3));
    return rule_result(r, v_product_scaled(b, sum, a[1], rule_in(r, 2), maybe(r, 4)));
}

/* Operands a, scale, zero, b, scale, zero, [C: i32 as large as the sum, result's scale and zero]; without those,
 * f32. */
bool rule_qgemm(struct rule *r)
{
    static const int64_t turn[] = {1, 0};
    struct builder *b = r->b;
    value_id in[6];
    if (!qlinear_operands(r, in, COUNT_OF(in)))
        return false;
    if (v_rank(b, in[0]) != 2 || v_rank(b, in[3]) != 2)
        return rule_bad(r, "operands of rank %d and %d", (int)v_rank(b, in[0]), (int)v_rank(b, in[3]));
    if (rule_has(r, 7) != rule_has(r, 8))
        return rule_refuse(r, "a result has a scale and no zero point, or the reverse");
    value_id x = rule_int(r, "transA", 0) ? b_transpose(b, in[0], turn) : in[0];
    value_id w = rule_int(r, "transB", 0) ? b_transpose(b, in[3], turn) : in[3];
    value_id sum = rule_integer_matmul(r, x, in[2], w, in[5]);
    if (rule_has(r, 6))
        sum = b_binary(b, OP_ADD, sum, rule_in(r, 6));
    value_id scale = b_binary(b, OP_MUL, v_affine(b, scale_along(b, in[1], 0, 2), rule_float(r, "alpha", 1), 0),
                              scale_along(b, in[4], 1, 2));
    if (rule_has(r, 7))
        return sum.i && rule_result(r, requantize(b, sum, scale, rule_in(r, 7), rule_in(r, 8)));
    return rule_result(r, b_binary(b, OP_MUL, b_convert(b, sum, ELEM_F32), scale));
}

/* Products of 16-bit integers, summed in 32 bits that wrap; of two unsigned ones the sum is unsigned. */
bool rule_matmul_integer16(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0), w = rule_in(r, 1);
    enum elem e = v_elem(b, x) == ELEM_U16 && v_elem(b, w) == ELEM_U16 ? ELEM_U32 : ELEM_I32;
    return rule_result(r, b_matmul(b, b_convert(b, x, e), b_convert(b, w, e)));
}

/* ---- products of dequantized operands ---------------------------------------------------------------------------- */

/* Is there one scale, and one zero point, or are they along this axis? */
static bool scaled_along(struct builder *b, const struct quantized *q, int32_t axis, bool *several)
{
    int64_t n, zeros = 1;
    if (!ex_is_const(b->x, b_count(b, q->scale), &n) || (q->zero.i && !ex_is_const(b->x, b_count(b, q->zero), &zeros)))
        return false;
    *several = n != 1;
    return (n == 1 || (v_rank(b, q->scale) == 1 && q->axis == axis)) &&
           (zeros == 1 || (v_rank(b, q->zero) == 1 && zeros == n));
}

/* Bytes of which the second, w, has its scales along axis_w, and the first has one. */
static bool byte_operands(struct rule *r, int32_t axis_w, const struct quantized *q[2])
{
    bool several_x, several_w;
    for (uint32_t i = 0; i < 2; i++) {
        q[i] = i < r->n_in ? r->arg[i].quantized : NULL;
        if (!q[i] || q[i]->moved)
            return false;
    }
    return rule_is_bytes(r, q[0]->q, q[1]->q) && scaled_along(r->b, q[0], -1, &several_x) && !several_x &&
           scaled_along(r->b, q[1], axis_w, &several_w);
}

/* The sum in f32, times both scales; those of w lie along axis of the result. */
static value_id rescaled(struct builder *b, value_id sum, const struct quantized *q[2], int32_t axis)
{
    value_id w = scale_along(b, q[1]->scale, axis, v_rank(b, sum));
    return sum.i ? b_binary(b, OP_MUL, b_convert(b, sum, ELEM_F32),
                            b_binary(b, OP_MUL, scale_along(b, q[0]->scale, 0, 1), w))
                 : sum;
}

bool rule_conv_dequantized(struct rule *r, value_id *y)
{
    const struct quantized *q[2];
    if (!byte_operands(r, 0, q) || !rule_conv_is_bytes(r, q[0]->q, q[1]->q, q[1]->zero))
        return false;
    *y = rescaled(r->b, rule_conv_bytes(r, q[0]->q, q[0]->zero, q[1]->q, q[1]->zero), q, 1);
    return true;
}

bool rule_matmul_dequantized(struct rule *r, bool turned_w, value_id *y)
{
    static const int64_t turn[] = {1, 0};
    const struct quantized *q[2];
    if (r->n_in < 2 || !r->arg[0].quantized || !r->arg[1].quantized) /* byte_operands looks closer */
        return false;
    int32_t rank_x = v_rank(r->b, r->arg[0].quantized->q), rank_w = v_rank(r->b, r->arg[1].quantized->q);
    if (rank_x < 2 || rank_w != 2 || !byte_operands(r, turned_w ? 0 : 1, q))
        return false;
    value_id w = turned_w ? b_transpose(r->b, q[1]->q, turn) : q[1]->q;
    *y = rescaled(r->b, rule_matmul_bytes(r, q[0]->q, q[0]->zero, w, q[1]->zero), q, rank_x - 1);
    return true;
}
