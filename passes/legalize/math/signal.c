/* DFT, STFT, window functions, MelWeightMatrix, Det.
 *
 * All of it computes in f64: results near zero must be near zero (ONNX's own tolerance for them is 1e-7).
 */
#include "passes/legalize/math/dft.h"

#include <math.h>

/* x with a last dim, the parts of its numbers, that is known: 1, real, where the transform is of reals; 2, complex,
 * where it is the inverse of such a one; else reals get an imaginary part of 0. */
static value_id dft_operand(struct builder *b, value_id x, bool inverse, bool onesided)
{
    const struct dims d = b_dims(b, x);
    expr_id lo[RANK_MAX], hi[RANK_MAX], out[RANK_MAX];
    if (!d.d || d.rank < 1 || ex_is_const(b->x, d.d[d.rank - 1], NULL))
        return x;
    expr_id parts = d.d[d.rank - 1], one = ex_const(b->x, 1), two = ex_const(b->x, 2),
            want = onesided && !inverse ? one : two;
    b_assert(b, ex_or(b->x, ex_eq(b->x, parts, want), onesided ? ex_const(b->x, 0) : ex_eq(b->x, parts, one)),
             EVAL_SHAPE, onesided ? "the last dim must be %d" : "the last dim must be 1 (real) or %d (complex)",
             want.i == one.i ? 1 : 2);
    for (int32_t i = 0; i < d.rank; i++) {
        lo[i] = hi[i] = ex_const(b->x, 0);
        out[i] = d.d[i];
    }
    out[d.rank - 1] = want;
    hi[d.rank - 1] = onesided ? hi[0] : ex_max(b->x, ex_sub(b->x, two, parts), ex_const(b->x, 0));
    return b_reshape(b, b_pad(b, x, (value_id){0}, lo, hi, "constant"), out, d.rank);
}

static expr_id dft_length(struct rule *r, expr_id dim, bool real_inverse)
{
    if (rule_has(r, 1))
        return b_elem(r->b, v_scalar(r->b, rule_in(r, 1)), 1, INT32_MAX);
    return real_inverse ? ex_mulc(r->b->x, ex_addc(r->b->x, dim, -1), 2) : dim;
}

/* An axis known only at run time: the dims before it and after it become one each, [before, n, after, parts]. */
static bool dft_any_axis(struct rule *r, value_id x, bool inverse, bool onesided)
{
    struct builder *b = r->b;
    uint32_t n;
    const struct dims d = b_dims(b, x);
    expr_id mask[RANK_MAX], one = ex_const(b->x, 1), flat[4] = {one, one, one, d.d[d.rank - 1]},
                            seen = ex_const(b->x, 0), out[RANK_MAX];
    if (!rule_axis_mask(r, rule_in(r, 2), d.rank, mask, &n))
        return false;
    for (int32_t i = 0; i + 1 < d.rank; i++) {
        expr_id before = ex_and(b->x, ex_not(b->x, seen), ex_not(b->x, mask[i]));
        flat[0] = ex_mul(b->x, flat[0], ex_select(b->x, before, d.d[i], one));
        flat[1] = ex_mul(b->x, flat[1], ex_select(b->x, mask[i], d.d[i], one));
        flat[2] = ex_mul(b->x, flat[2], ex_select(b->x, seen, d.d[i], one));
        seen = ex_or(b->x, seen, mask[i]);
    }
    b_assert(b, seen, -9, "the last axis holds real and imaginary parts");
    expr_id length = dft_length(r, flat[1], inverse && onesided);
    if (!length.i)
        return false;
    value_id y = dft_build(b, b_reshape(b, x, flat, 4), &(struct dft){1, inverse, onesided, length});
    if (!y.i)
        return false;
    for (int32_t i = 0; i + 1 < d.rank; i++)
        out[i] = ex_select(b->x, mask[i], b_dim(b, y, 1), d.d[i]);
    out[d.rank - 1] = b_dim(b, y, 3);
    return rule_result(r, b_convert(b, b_reshape(b, y, out, d.rank), v_elem(b, rule_in(r, 0))));
}

/* Version 17: axis is an attribute, default 1; 20: an operand, default -2. */
bool rule_dft(struct rule *r)
{
    struct builder *b = r->b;
    value_id in = rule_in(r, 0), x = b_convert(b, in, ELEM_F64);
    int32_t rank = v_rank(b, in), axis;
    int64_t at = r->version < 20 ? rule_int(r, "axis", 1) : -2;
    bool inverse = rule_int(r, "inverse", 0) != 0, onesided = rule_int(r, "onesided", 0) != 0;
    if (!in.i)
        return false;
    if (rank < 2)
        return rule_bad(r, "input of rank %d", (int)rank);
    x = dft_operand(b, x, inverse, onesided);
    if (rule_has(r, 2) && !v_known_i64(b, rule_in(r, 2), 0, &at))
        return dft_any_axis(r, x, inverse, onesided);
    if (!rule_axis(r, at, rank, &axis))
        return false;
    if (axis == rank - 1)
        return rule_bad(r, "the last axis holds real and imaginary parts");
    expr_id length = dft_length(r, b_dim(b, in, axis), inverse && onesided);
    if (!length.i)
        return false;
    value_id y = dft_build(b, x, &(struct dft){axis, inverse, onesided, length});
    return rule_result(r, b_convert(b, y, v_elem(b, in)));
}

/* Frames [batch, frame, length, 1 or 2] times the window, transformed along the third axis. */
bool rule_stft(struct rule *r)
{
    struct builder *b = r->b;
    value_id in = rule_in(r, 0), x = b_convert(b, in, ELEM_F64), window = rule_in(r, 2);
    expr_id step = b_elem(b, v_scalar(b, rule_in(r, 1)), 1, INT32_MAX), length;
    if (!x.i || !step.i)
        return false;
    if (v_rank(b, x) == 2)
        x = b_unsqueeze(b, x, 2);
    if (v_rank(b, x) != 3)
        return rule_bad(r, "signal of rank %d", (int)v_rank(b, x));
    if (!rule_has(r, 3) && !window.i)
        return rule_bad(r, "neither window nor frame_length");
    x = dft_operand(b, x, false, rule_int(r, "onesided", 1) != 0);
    length = rule_has(r, 3) ? b_elem(b, v_scalar(b, rule_in(r, 3)), 1, INT32_MAX) : b_dim(b, window, 0);
    if (!length.i)
        return false;
    expr_id room = ex_sub(b->x, b_dim(b, x, 1), length);
    b_assert(b, ex_le(b->x, ex_const(b->x, 0), room), EVAL_SHAPE, "a frame is longer than the signal");
    value_id frames = dft_frames(b, x, step, length, ex_addc(b->x, ex_div(b->x, room, step), 1));
    if (window.i)
        frames = b_binary(b, OP_MUL, frames, v_along(b, b_convert(b, window, ELEM_F64), 2, 4));
    value_id y = dft_build(b, frames, &(struct dft){2, false, rule_int(r, "onesided", 1) != 0, length});
    return rule_result(r, b_convert(b, y, v_elem(b, in)));
}

/* a - b cos(2 pi n / N) + c cos(4 pi n / N); the row's parameter: 0 Hann, 1 Hamming, 2 Blackman. */
bool rule_window(struct rule *r)
{
    static const double terms[][3] = {{0.5, 0.5, 0}, {25.0 / 46, 21.0 / 46, 0}, {0.42, 0.5, 0.08}};
    const double *t = terms[r->param];
    struct builder *b = r->b;
    expr_id size = b_elem(b, v_scalar(b, rule_in(r, 0)), 0, INT32_MAX);
    if (!size.i)
        return false;
    expr_id period = rule_int(r, "periodic", 1) ? size : ex_addc(b->x, size, -1);
    value_id n = v_iota(b, ELEM_F64, &size, 1, 0);
    value_id angle = b_binary(b, OP_DIV, b_binary_f64(b, OP_MUL, n, 2 * M_PI), v_expr(b, ELEM_F64, period));
    value_id y = v_affine(b, b_unary(b, OP_COS, angle), -t[1], t[0]);
    if (t[2] != 0) {
        value_id twice = b_unary(b, OP_COS, b_binary_f64(b, OP_MUL, angle, 2));
        y = b_binary(b, OP_ADD, y, b_binary_f64(b, OP_MUL, twice, t[2]));
    }
    return rule_result(r, b_convert(b, y, rule_elem_attr(r, "output_datatype", ELEM_F32)));
}

static value_id to_mel(struct builder *b, value_id hertz)
{
    value_id x = b_binary_f64(b, OP_ADD, b_binary_f64(b, OP_DIV, hertz, 700), 1);
    return b_binary_f64(b, OP_MUL, b_unary(b, OP_LOG, x), 2595 / log(10));
}

/* Triangles over spectrogram bins whose corners are equally spaced on the mel scale. */
bool rule_mel_weight_matrix(struct rule *r)
{
    struct builder *b = r->b;
    value_id in[5];
    for (uint32_t i = 0; i < 5; i++) {
        in[i] = v_scalar(b, rule_in(r, i));
        if (!in[i].i)
            return false;
    }
    expr_id mels = b_elem(b, in[0], 1, INT32_MAX), length = b_elem(b, in[1], 1, INT32_MAX);
    if (!mels.i || !length.i)
        return false;
    expr_id dims[2] = {ex_addc(b->x, ex_div(b->x, length, ex_const(b->x, 2)), 1), mels};
    value_id rate = b_convert(b, in[2], ELEM_F64), low = to_mel(b, b_convert(b, in[3], ELEM_F64));
    value_id high = to_mel(b, b_convert(b, in[4], ELEM_F64));
    value_id spacing = b_binary(b, OP_DIV, b_binary(b, OP_SUB, high, low), v_expr(b, ELEM_F64, ex_addc(b->x, mels, 2)));
    value_id bin = v_iota(b, ELEM_F64, dims, 2, 0), corner[3];
    for (int k = 0; k < 3; k++) {
        value_id i = b_binary_f64(b, OP_ADD, v_iota(b, ELEM_F64, dims, 2, 1), k);
        value_id mel = b_binary(b, OP_ADD, b_binary(b, OP_MUL, i, spacing), low);
        value_id ten = b_unary(b, OP_EXP, b_binary_f64(b, OP_MUL, mel, log(10) / 2595));
        value_id hertz = b_binary_f64(b, OP_MUL, b_binary_f64(b, OP_SUB, ten, 1), 700);
        value_id scaled = b_binary(b, OP_MUL, hertz, v_expr(b, ELEM_F64, ex_addc(b->x, length, 1)));
        corner[k] = b_unary(b, OP_FLOOR, b_binary(b, OP_DIV, scaled, rate));
    }
    value_id one = b_splat_like(b, bin, 1), zero = b_splat_like(b, bin, 0);
    value_id up = b_binary(b, OP_SUB, corner[1], corner[0]), down = b_binary(b, OP_SUB, corner[2], corner[1]);
    value_id flat = b_binary(b, OP_EQ, up, zero);
    value_id rise = b_binary(b, OP_DIV, b_binary(b, OP_SUB, bin, corner[0]), b_select(b, flat, one, up));
    value_id fall = b_binary(b, OP_DIV, b_binary(b, OP_SUB, corner[2], bin),
                             b_select(b, b_binary(b, OP_EQ, down, zero), one, down));
    value_id rising = b_binary(b, OP_AND, b_binary(b, OP_LE, corner[0], bin), b_binary(b, OP_LE, bin, corner[1]));
    value_id falling = b_binary(b, OP_AND, b_binary(b, OP_LE, corner[1], bin), b_binary(b, OP_LT, bin, corner[2]));
    value_id y = b_select(b, rising, b_select(b, flat, one, rise), zero);
    y = b_select(b, falling, fall, y);
    return rule_result(r, b_convert(b, y, rule_elem_attr(r, "output_datatype", ELEM_F32)));
}

bool rule_det(struct rule *r)
{
    value_id x = rule_in(r, 0);
    return rule_result(r, b_op(r->b, OP_DET, &x, 1, NULL, 0));
}
