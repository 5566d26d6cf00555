/* Operators of torchvision and quantized_decomposed, as ONNX's. */
#include "passes/legalize/aten.h"

#include <float.h>

/* ---- quantized_decomposed ---------------------------------------------------------------------------------------- */

/* The least and the largest integer of the type that 64 bits hold. */
static void bounds_of(enum elem e, int64_t *least, int64_t *most)
{
    uint32_t bits = elem_bits(e) < 63 ? elem_bits(e) : 63;
    bool sign = elem_class(e) == 'I';
    *least = sign ? -((int64_t)1 << (bits - 1)) : 0;
    *most = ((int64_t)1 << (bits - sign)) - 1;
}

/* x and its scale and zero point in the types that ONNX's rules read; e: of the integers. param: 1 along an axis */
static bool quantizer_read(struct rule *r, enum elem e, value_id in[3], struct attr *axis)
{
    const struct attr *zero = node_attr(r->node, "zero_point");
    int64_t least = INT64_MIN, most = INT64_MAX;
    int32_t at = 0;
    if (e != ELEM_NONE && strchr("IU", elem_class(e)))
        bounds_of(e, &least, &most);
    if (zero && zero->kind == ATTR_INT && (zero->u.i < least || zero->u.i > most))
        return rule_refuse(r, "the type of the integers does not hold the zero point %lld", (long long)zero->u.i);
    in[0] = rule_in(r, 0);
    in[1] = aten_operand(r, 1, "scale", ELEM_F32);
    in[2] = !r->param || rule_has(r, 2) ? aten_operand(r, 2, "zero_point", e) : (value_id){0};
    if (!in[0].i || !in[1].i || (r->param && !aten_axis(r, 3, "axis", 0, v_rank(r->b, in[0]), &at)))
        return false;
    *axis = attr_int("axis", at);
    return true;
}

/* y kept within quant_min and quant_max, where the type holds more. */
static value_id within(struct rule *r, value_id y, uint32_t i)
{
    enum elem e = v_elem(r->b, y);
    int64_t least, most, lo, hi;
    bounds_of(e, &least, &most);
    if (!aten_int_known(r, i, "quant_min", least, &lo) || !aten_int_known(r, i + 1, "quant_max", most, &hi))
        return (value_id){0};
    if (lo > most || hi < least)
        return rule_bad(r, "quant_min %lld and quant_max %lld leave no value that the type can hold", (long long)lo,
                        (long long)hi),
               (value_id){0};
    if (lo > least)
        y = b_binary(r->b, OP_MAX, y, b_scalar_i64(r->b, e, lo));
    return hi < most ? b_binary(r->b, OP_MIN, y, b_scalar_i64(r->b, e, hi)) : y;
}

bool rule_decomposed_quantize(struct rule *r)
{
    enum elem e = aten_elem(r, 0);
    value_id in[3];
    struct attr axis;
    if (e == ELEM_NONE || !strchr("IU", elem_class(e)))
        return rule_refuse(r, "the type of quantized values is not an integer type");
    if (!quantizer_read(r, e, in, &axis) || !aten_as(r, rule_quantize, 21, 0, in, in[2].i ? 3 : 2, &axis, 1))
        return false;
    return rule_result(r, within(r, r->out[0].v, r->param ? 4 : 3));
}

/* f64 results, of scales that f32 does not hold. */
static bool dequantize_exactly(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = b_convert(b, rule_in(r, 0), ELEM_F64), scale = aten_operand(r, 1, "scale", ELEM_F64), zero = {0};
    int32_t at, rank = v_rank(b, x);
    bool shifted = aten_has(r, 2, "zero_point");
    if (shifted)
        zero = aten_operand(r, 2, "zero_point", ELEM_F64);
    if (!x.i || !scale.i || (shifted && !zero.i) || (r->param && !aten_axis(r, 3, "axis", 0, rank, &at)))
        return false;
    scale = r->param ? v_channels(b, scale, x, at) : v_scalar(b, scale);
    if (shifted)
        x = b_binary(b, OP_SUB, x, r->param ? v_channels(b, zero, x, at) : v_scalar(b, zero));
    return rule_result(r, b_binary(b, OP_MUL, x, scale));
}

bool rule_decomposed_dequantize(struct rule *r)
{
    value_id in[3];
    struct attr axis;
    enum elem e = aten_elem(r, 0);
    if (e == ELEM_F64)
        return dequantize_exactly(r);
    if (!quantizer_read(r, v_elem(r->b, rule_in(r, 0)), in, &axis) ||
        !aten_as(r, rule_dequantize, 21, 0, in, in[2].i ? 3 : 2, &axis, 1))
        return false;
    return e == ELEM_F32 || e == ELEM_NONE || aten_result(r, r->out[0].v);
}

/* Scale and zero point of the range of x, which holds 0: the range and its part for one step in x's own type. param: 1
 * the same on both sides of it */
bool rule_decomposed_qparams(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0);
    int64_t axes[RANK_MAX], lo, hi, steps;
    int32_t rank = v_rank(b, x);
    const struct attr *type = node_attr(r->node, "dtype");
    if (!x.i || !aten_int_known(r, 1, "quant_min", 0, &lo) || !aten_int_known(r, 2, "quant_max", 0, &hi))
        return false;
    if (lo >= hi || !sub_i64(hi, lo, &steps))
        return rule_bad(r, "quant_min is %lld and quant_max %lld; quant_min has to be below, by less than 2^63",
                        (long long)lo, (long long)hi);
    for (int32_t i = 0; i < rank; i++)
        axes[i] = i;
    value_id most = b_binary_f64(b, OP_MAX, b_reduce(b, x, axes, (uint32_t)rank, "max", false), 0);
    value_id least = b_binary_f64(b, OP_MIN, b_reduce(b, x, axes, (uint32_t)rank, "min", false), 0), zero;
    if (r->param)
        most = b_binary(b, OP_MAX, b_unary(b, OP_NEG, least), most);
    value_id span = r->param ? most : b_binary(b, OP_SUB, most, least);
    value_id scale = b_binary_f64(b, OP_DIV, span, (double)steps / (r->param ? 2 : 1));
    scale = b_binary_f64(b, OP_MAX, b_convert(b, scale, ELEM_F32), aten_float(r, "eps", FLT_EPSILON));
    if (r->param) {
        zero = b_scalar_i64(b, ELEM_I64, type && type->kind == ATTR_ELEM && type->u.elem == ELEM_U8 ? 128 : 0);
    } else {
        zero = b_convert(b, b_unary(b, OP_ROUND, b_binary(b, OP_DIV, b_convert(b, least, ELEM_F32), scale)), ELEM_I64);
        zero = b_binary(b, OP_SUB, b_scalar_i64(b, ELEM_I64, lo), zero);
        zero = b_binary(b, OP_MAX, b_scalar_i64(b, ELEM_I64, lo), zero);
        zero = b_binary(b, OP_MIN, b_scalar_i64(b, ELEM_I64, hi), zero);
    }
    aten_out(r, 1, b_unsqueeze(b, zero, 0)); /* both of one element, rank 1 */
    return aten_result(r, b_unsqueeze(b, scale, 0));
}

/* ---- torchvision ------------------------------------------------------------------------------------------------- */

/* Boxes that are kept, by descending score. */
bool rule_torchvision_nms(struct rule *r)
{
    struct builder *b = r->b;
    value_id boxes = b_convert(b, rule_in(r, 0), ELEM_F32), scores = b_convert(b, rule_in(r, 1), ELEM_F32);
    if (!boxes.i || !scores.i)
        return false;
    if (v_rank(b, boxes) != 2 || v_rank(b, scores) != 1)
        return rule_bad(r, "boxes have rank %d and scores rank %d; 2 and 1 are needed", (int)v_rank(b, boxes),
                        (int)v_rank(b, scores));
    const value_id in[4] = {b_unsqueeze(b, boxes, 0), b_unsqueeze(b, b_unsqueeze(b, scores, 0), 0),
                            v_expr(b, ELEM_I64, b_dim(b, boxes, 0)), aten_operand(r, 2, "iou_threshold", ELEM_F32)};
    if (!aten_as(r, rule_nms, 11, 0, in, 4, NULL, 0))
        return false;
    return rule_result(r, b_squeeze(b, b_slice_axis(b, r->out[0].v, 1, ex_const(b->x, 2), ex_const(b->x, 1)), 1));
}

/* Regions as rows: image, then two corners. */
bool rule_torchvision_roi_align(struct rule *r)
{
    struct builder *b = r->b;
    value_id rois = rule_in(r, 1);
    int64_t height, width, samples;
    if (!rois.i || !aten_int_known(r, 3, "pooled_height", 1, &height) ||
        !aten_int_known(r, 4, "pooled_width", 1, &width) || !aten_int_known(r, 5, "sampling_ratio", 0, &samples))
        return false;
    if (v_rank(b, rois) != 2)
        return rule_bad(r, "the regions have rank %d, and 2 is needed", (int)v_rank(b, rois));
    const value_id in[3] = {rule_in(r, 0), b_slice_axis(b, rois, 1, ex_const(b->x, 1), ex_const(b->x, 4)),
                            b_squeeze(b, b_slice_axis(b, rois, 1, ex_const(b->x, 0), ex_const(b->x, 1)), 1)};
    const struct attr attrs[] = {
        attr_int("output_height", height), attr_int("output_width", width),
        attr_int("sampling_ratio", samples > 0 ? samples : 0),
        attr_float("spatial_scale", aten_float(r, "spatial_scale", 1)),
        attr_str("coordinate_transformation_mode", aten_flag(r, "aligned") ? "half_pixel" : "output_half_pixel")};
    return aten_as(r, rule_roi_align, 16, 0, in, 3, attrs, 5);
}

bool rule_torchvision_deform_conv(struct rule *r)
{
    static const char *const names[] = {"stride_h",   "stride_w",   "pad_h",  "pad_w",
                                        "dilation_h", "dilation_w", "groups", "offset_groups"};
    int64_t n[8];
    value_id in[5] = {rule_in(r, 0), rule_in(r, 1), rule_in(r, 2), {0}, {0}};
    in[3] = b_convert(r->b, rule_in(r, 4), v_elem(r->b, in[0]));
    for (uint32_t i = 0; i < COUNT_OF(names); i++)
        if (!aten_int_known(r, 5 + i, names[i], 1, &n[i]))
            return false;
    if (aten_flag(r, "use_mask"))
        in[4] = rule_in(r, 3);
    const int64_t strides[] = {n[0], n[1]}, pads[] = {n[2], n[3], n[2], n[3]}, dilations[] = {n[4], n[5]};
    const struct attr attrs[] = {attr_ints("strides", strides, 2), attr_ints("pads", pads, 4),
                                 attr_ints("dilations", dilations, 2), attr_int("group", n[6]),
                                 attr_int("offset_group", n[7])};
    return aten_as(r, rule_deform_conv, 19, 0, in, in[4].i ? 5 : 4, attrs, 5);
}
