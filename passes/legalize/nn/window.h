/* Strides, pads and dilations of convolutions and pools, as their attributes say. */
#pragma once

#include "passes/legalize/legalize.h"

enum auto_pad { PAD_NOTSET, PAD_VALID, PAD_SAME_UPPER, PAD_SAME_LOWER, PAD_COUNT };
struct spatial {
    int32_t n;
    enum auto_pad pad;
    int64_t strides[RANK_MAX], dilations[RANK_MAX];
    expr_id lo[RANK_MAX], hi[RANK_MAX];      /* explicit pads, else 0 until spatial_same */
};

/* Attributes strides, dilations, pads, auto_pad for n spatial dims; false after rule_bad. */
bool spatial_read(struct rule *, int32_t n, struct spatial *);
/* A list of n integers, each at least `least`; all `absent` if the attribute is. False after rule_bad. */
bool rule_ints_or(struct rule *, const char *name, int32_t n, int64_t absent, int64_t least, int64_t *out);
/* The attribute kernel_shape, if there is one, agrees with the weights. False after rule_bad. */
bool conv_kernel_check(struct rule *, const expr_id *w, int32_t n);
/* Size of the dilated kernel. */
expr_id spatial_reach(struct exprs *, const struct spatial *, int32_t i, expr_id kernel);
/* With auto_pad SAME_*: the pads of dim i, so that its output is ceil(size / stride). Pads the input: not for
 * ConvTranspose. */
void spatial_same(struct exprs *, struct spatial *, int32_t i, expr_id size, expr_id reach);
/* What is left of the padded dim beside one window; below 0: there is none that is whole. */
expr_id spatial_room(struct exprs *, const struct spatial *, int32_t i, expr_id size, expr_id reach);
/* Warns (-Wempty) where a dim of `size` elements, not 0, has no window at all: room is spatial_room's. */
void spatial_warn_empty(struct rule *, int32_t i, expr_id size, expr_id room, int64_t stride);
/* Convolution by the node's attributes; acc: ELEM_I32 for integers. */
value_id rule_conv_core(struct rule *, value_id x, value_id w, enum elem acc);
/* Its parts: strides, pads and dilations for operands x and w, whose ranks and sizes are checked; the operator
 * itself. */
bool rule_conv_spatial(struct rule *, value_id x, value_id w, struct spatial *);
/* xdil: by so much the input is dilated, for each spatial dim. */
value_id conv_op(struct builder *, value_id x, value_id w, const struct spatial *, const int64_t *xdil, int64_t groups,
                 enum elem acc);
value_id conv_build(struct builder *, value_id x, value_id w, const struct spatial *, int64_t groups, enum elem acc);
/* Transposed convolution of x by w (C, M / groups, k...), phase by phase: s has its strides, and the pads of the
 * input-dilated convolution that it equals. False: that takes another form (gaps between taps, dilation, extents not
 * known), nothing was built. (phases.c) */
bool conv_by_phases(struct builder *, value_id x, value_id w, const struct spatial *s, int64_t groups, value_id *y);
/* Products of bytes less zero points (one, or one for each row of x, column or output channel of w; {0}: 0), i32
 * (bytes.c). Matrices of rank 2 or more; convolutions of one group. */
bool rule_is_bytes(struct rule *, value_id x, value_id w);
bool rule_conv_is_bytes(struct rule *, value_id x, value_id w,
                        value_id zw); /* one group, or depthwise with weights less 0 */
value_id rule_matmul_bytes(struct rule *, value_id x, value_id zx, value_id w, value_id zw);
value_id rule_conv_bytes(struct rule *, value_id x, value_id zx, value_id w, value_id zw);
/* The same of any shapes and integers. */
value_id rule_integer_matmul(struct rule *, value_id x, value_id zx, value_id w, value_id zw);
/* sum * scale of x * scale of w (one, or one for each column) + bias or {0}, in f32. */
value_id v_product_scaled(struct builder *, value_id sum, value_id scale_x, value_id scale_w, value_id bias);
/* The node's convolution or matrix product where both operands come from bytes by DequantizeLinear: summed exactly in
 * i32, scaled in f32. False: they don't, and nothing was done. */
bool rule_conv_dequantized(struct rule *, value_id *y);
/* The node's Gemm before it is rounded to its element type *e: that type, or f32. {0} after a diagnostic. */
value_id rule_gemm_wide(struct rule *, enum elem *e);
/* Rounds x to integers, adds the zero point ({0}: 0), saturates to type e, as conversion to integers does. */
value_id v_quantize(struct builder *, value_id x, value_id zero, enum elem e);
/* Quantized as DynamicQuantizeLinear says: out is the bytes, the scale and the zero point. */
void v_quantize_dynamic(struct builder *, value_id x, value_id out[3]);
/* Each element repeated `times` times along axis. {0}: the rank is RANK_MAX. */
value_id v_repeated(struct builder *, value_id x, int32_t axis, int64_t times);
/* The same of `block` times, cut to `size` there: what scales of blocks are for single elements. */
value_id v_blocks_spread(struct builder *, value_id s, int32_t axis, int64_t block, expr_id size);
/* Bytes along the last axis as the unsigned numbers of `bits` bits in them, the lowest first; `count` of each line. */
value_id v_unpacked(struct builder *, value_id bytes, int64_t bits, expr_id count);
/* com.microsoft quantized forms: operand i with its scale and zero point as f32; y quantized to e by operands i, i + 1.
 * Which comes first decides ties, by ONNX Runtime's kernel of the operator. */
enum zero_point { ROUND_THEN_ZERO, ZERO_THEN_ROUND };
value_id rule_dequantized(struct rule *, uint32_t i);
value_id rule_quantized(struct rule *, value_id y, uint32_t i, enum elem e, enum zero_point);
