/* Floats narrower than 32 bits, held as their bits in integers: to and from f32 by integer arithmetic, one sequence
 * for every format, driven by a table. Exact, round to nearest even, subnormals kept.
 *
 * Widening moves the bits into f32's fields and multiplies by the power of two between the biases, which also
 * normalises subnormals; f8e4m3fn goes by f16 where the machine converts that. Narrowing rounds in the integer domain;
 * results below the smallest normal number go through an addition of 2^k whose ulp is the format's smallest step. Where
 * the machine converts f16 itself, it does. Sources: IEEE 754-2019 §3.4; OCP 8-bit Floating Point Specification 1.0;
 * OCP Microscaling Formats 1.0 §5.
 */
#include "codegen/llvm/llvm.h"

enum { F32_SIGN = INT32_MIN, F32_INF = 0x7f800000, F32_MANTISSA = 23, F32_BIAS = 127 };
enum { F16_NAN = 0x7e00, F16_MANTISSA = 10, F16_BIAS = 15 };

struct lanes {                      /* the builder with types for one width */
    struct emitter *e;
    LLVMTypeRef whole, real;        /* i32 and f32 lanes */
    uint32_t n;
};

static struct lanes lanes_of(struct emitter *e, uint32_t n)
{
    return (struct lanes){e, type_lanes(e->i32, n), type_lanes(e->f32, n), n};
}

static LLVMValueRef c32(const struct lanes *l, int64_t value)
{
    return const_int(l->e, l->e->i32, l->n, value);
}

static LLVMValueRef as_real(const struct lanes *l, LLVMValueRef bits)
{
    return LLVMBuildBitCast(l->e->b, bits, l->real, "");
}

static LLVMValueRef as_whole(const struct lanes *l, LLVMValueRef x)
{
    return LLVMBuildBitCast(l->e->b, x, l->whole, "");
}

static LLVMValueRef and32(const struct lanes *l, LLVMValueRef a, int64_t mask)
{
    return LLVMBuildAnd(l->e->b, a, c32(l, mask), "");
}

static LLVMValueRef shift(const struct lanes *l, LLVMValueRef a, int32_t left)
{
    if (left == 0)
        return a;
    return left > 0 ? LLVMBuildShl(l->e->b, a, c32(l, left), "") : LLVMBuildLShr(l->e->b, a, c32(l, -left), "");
}

static LLVMValueRef pick(const struct lanes *l, LLVMIntPredicate p, LLVMValueRef a, int64_t b, LLVMValueRef yes,
                         LLVMValueRef no)
{
    return LLVMBuildSelect(l->e->b, LLVMBuildICmp(l->e->b, p, a, c32(l, b), ""), yes, no, "");
}

static double power_of_two(int32_t exponent)
{
    double r = 1;
    for (; exponent > 0; exponent--)
        r *= 2;
    for (; exponent < 0; exponent++)
        r /= 2;
    return r;
}

/* f16 as the operand of an instruction, and back. */
static LLVMValueRef as_half(struct emitter *e, LLVMValueRef bits, uint32_t lanes)
{
    return LLVMBuildBitCast(e->b, bits, type_lanes(LLVMHalfTypeInContext(e->ctx), lanes), "");
}

static LLVMValueRef half_bits(struct emitter *e, LLVMValueRef half, uint32_t lanes)
{
    return LLVMBuildBitCast(e->b, half, type_lanes(e->i16, lanes), "");
}

static LLVMValueRef half_instruction(struct emitter *e, LLVMValueRef v, uint32_t lanes, bool widen)
{
    if (widen)
        return LLVMBuildFPExt(e->b, as_half(e, v, lanes), type_lanes(e->f32, lanes), "");
    return half_bits(e, LLVMBuildFPTrunc(e->b, v, type_lanes(LLVMHalfTypeInContext(e->ctx), lanes), ""), lanes);
}

/* ---- widening ---- */

/* Powers of two, biased by 127; 0 is 2^-127, 255 a NaN. */
static LLVMValueRef e8m0_to_f32(const struct lanes *l, LLVMValueRef code)
{
    LLVMValueRef bits = shift(l, code, F32_MANTISSA);
    bits = pick(l, LLVMIntEQ, code, 0, c32(l, 1 << (F32_MANTISSA - 1)), bits);
    return as_real(l, pick(l, LLVMIntEQ, code, 255, c32(l, 0x7fc00000), bits));
}

/* A float of 8 bits without infinities whose exponents f16 has, as f16, and that over the power of two between the
 * biases: the instruction takes subnormals as fast as others, which a multiplication of f32 does not. */
static LLVMValueRef byte_to_f32(const struct lanes *l, LLVMValueRef v, const struct float_format *f)
{
    struct emitter *e = l->e;
    LLVMTypeRef half = type_lanes(e->i16, l->n);
    int32_t up = F16_MANTISSA - (int32_t)f->mantissa, mag = ((1 << (f->bits - 1)) - 1) << up;
    LLVMValueRef bits = LLVMBuildShl(e->b, LLVMBuildSExt(e->b, v, half, ""), const_int(e, e->i16, l->n, up), "");
    LLVMValueRef sign = LLVMBuildAnd(e->b, bits, const_int(e, e->i16, l->n, INT16_MIN), "");
    LLVMValueRef rest = LLVMBuildAnd(e->b, bits, const_int(e, e->i16, l->n, mag), "");
    LLVMValueRef nan = LLVMBuildICmp(e->b, LLVMIntEQ, rest, const_int(e, e->i16, l->n, (int64_t)f->nan << up), "");
    rest = LLVMBuildSelect(e->b, nan, const_int(e, e->i16, l->n, F16_NAN), rest, "");
    LLVMValueRef x = half_instruction(e, LLVMBuildOr(e->b, sign, rest, ""), l->n, true);
    return LLVMBuildFMul(e->b, x, const_float(e, e->f32, l->n, power_of_two(F16_BIAS - f->bias)), "");
}

LLVMValueRef small_to_f32(struct emitter *e, LLVMValueRef v, enum elem from, uint32_t lanes)
{
    const struct float_format *f = &float_formats[from];
    struct lanes l = lanes_of(e, lanes);
    LLVMValueRef code, mag, bits, sign, x;
    if (from == ELEM_F16 && e->machine->f16)
        return half_instruction(e, v, lanes, true);
    if (from == ELEM_F8E4M3FN && e->machine->f16)
        return byte_to_f32(&l, v, f);
    code = LLVMBuildZExt(e->b, v, l.whole, "");
    if (from == ELEM_BF16)
        return as_real(&l, shift(&l, code, 16));
    if (from == ELEM_F8E8M0)
        return e8m0_to_f32(&l, code);
    mag = and32(&l, code, (1 << (f->bits - 1)) - 1);
    sign = and32(&l, shift(&l, code, 32 - (int32_t)f->bits), F32_SIGN);
    x = as_real(&l, shift(&l, mag, F32_MANTISSA - (int32_t)f->mantissa));
    x = LLVMBuildFMul(e->b, x, const_float(e, e->f32, lanes, power_of_two(F32_BIAS - f->bias)), "");
    bits = as_whole(&l, x);
    if (f->special == SPECIAL_IEEE) {
        LLVMValueRef high = shift(&l, mag, F32_MANTISSA - (int32_t)f->mantissa);
        bits = pick(&l, LLVMIntUGE, mag, f->overflow, LLVMBuildOr(e->b, high, c32(&l, F32_INF), ""), bits);
    } else if (f->special == SPECIAL_FN) {
        bits = pick(&l, LLVMIntEQ, mag, f->nan, c32(&l, 0x7fc00000), bits);
    }
    bits = LLVMBuildOr(e->b, bits, sign, "");
    if (f->special == SPECIAL_FNUZ)
        bits = pick(&l, LLVMIntEQ, code, f->nan, c32(&l, 0x7fc00000), bits);
    return as_real(&l, bits);
}

/* ---- narrowing ---- */

/* The exponent, rounded: up when any mantissa bit is set, else from half way on; half of the smallest normal number
 * is a code itself, so there the tie stays. The sign is dropped; NaN and infinities are NaN. ONNX Cast-24. */
static LLVMValueRef e8m0_from_f32(const struct lanes *l, LLVMValueRef x, struct conversion how)
{
    LLVMBuilderRef b = l->e->b;
    LLVMValueRef a = and32(l, as_whole(l, x), INT32_MAX), exponent = shift(l, a, -F32_MANTISSA), r = a, half;
    if (how.rounding == ROUND_UP) {
        r = LLVMBuildAdd(b, a, c32(l, (1 << F32_MANTISSA) - 1), "");
    } else if (how.rounding != ROUND_DOWN) {
        half = c32(l, 1 << (F32_MANTISSA - 1));
        half = pick(l, LLVMIntEQ, exponent, 0, c32(l, (1 << (F32_MANTISSA - 1)) - 1), half);
        r = LLVMBuildAdd(b, a, half, "");
    }
    r = shift(l, r, -F32_MANTISSA);
    if (how.saturate)
        r = pick(l, LLVMIntEQ, exponent, 254, exponent, r);
    return pick(l, LLVMIntEQ, exponent, 255, exponent, r);
}

/* a: magnitude bits of finite x. Rounded to the format, not yet limited to its largest number. */
static LLVMValueRef round_magnitude(const struct lanes *l, const struct float_format *f, LLVMValueRef a)
{
    LLVMBuilderRef b = l->e->b;
    int32_t drop = F32_MANTISSA - (int32_t)f->mantissa;
    LLVMValueRef even = and32(l, shift(l, a, -drop), 1);
    LLVMValueRef r = LLVMBuildAdd(b, LLVMBuildAdd(b, a, c32(l, (1 << (drop - 1)) - 1), ""), even, "");
    r = shift(l, r, -drop);
    if (f->bias == F32_BIAS)
        return r;
    r = LLVMBuildSub(b, r, c32(l, (int64_t)(F32_BIAS - f->bias) << f->mantissa), "");
    LLVMValueRef magic = const_float(l->e, l->e->f32, l->n,
                                     power_of_two(1 - f->bias - (int32_t)f->mantissa + F32_MANTISSA));
    LLVMValueRef sum = LLVMBuildFAdd(b, as_real(l, a), magic, "");
    LLVMValueRef low = LLVMBuildSub(b, as_whole(l, sum), as_whole(l, magic), "");
    return pick(l, LLVMIntULT, a, (int64_t)(F32_BIAS + 1 - f->bias) << F32_MANTISSA, low, r);
}

/* The instruction counts subnormal numbers as 0. */
static LLVMValueRef bf16_instruction(struct emitter *e, LLVMValueRef x, uint32_t lanes)
{
    const char *name = lanes == 16 ? "llvm.x86.avx512bf16.cvtneps2bf16.512" : "llvm.x86.avx512bf16.cvtneps2bf16.256";
    return LLVMBuildBitCast(e->b, call_intrinsic(e, name, NULL, 0, &x, 1), type_lanes(e->i16, lanes), "");
}

/* Sign and magnitude are rounded as one number; an infinity is not carried over. */
static LLVMValueRef bf16_from_f32(const struct lanes *l, LLVMValueRef x)
{
    LLVMBuilderRef b = l->e->b;
    LLVMValueRef bits = as_whole(l, x), high = shift(l, bits, -16);
    LLVMValueRef r = LLVMBuildAdd(b, LLVMBuildAdd(b, bits, c32(l, 0x7fff), ""), and32(l, high, 1), "");
    LLVMValueRef nan = LLVMBuildOr(b, and32(l, high, 0x8000), c32(l, float_formats[ELEM_BF16].nan), "");
    r = LLVMBuildSelect(b, LLVMBuildFCmp(b, LLVMRealUNO, x, x, ""), nan, shift(l, r, -16), "");
    return LLVMBuildTrunc(b, r, type_lanes(l->e->i16, l->n), "");
}

LLVMValueRef small_from_f32(struct emitter *e, LLVMValueRef x, enum elem to, uint32_t lanes, struct conversion how)
{
    const struct float_format *f = &float_formats[to];
    struct lanes l = lanes_of(e, lanes);
    LLVMTypeRef result = type_lanes(to == ELEM_F16 || to == ELEM_BF16 ? e->i16 : e->i8, lanes);
    bool saturate = how.saturate && f->bits == 8;
    if (to == ELEM_F16 && e->machine->f16)
        return half_instruction(e, x, lanes, false);
    if (to == ELEM_BF16 && how.rounding == ROUND_NORMAL && e->machine->bf16 && (lanes == 8 || lanes == 16))
        return bf16_instruction(e, x, lanes);
    if (to == ELEM_BF16)
        return bf16_from_f32(&l, x);
    if (to == ELEM_F8E8M0)
        return LLVMBuildTrunc(e->b, e8m0_from_f32(&l, x, how), result, "");
    LLVMValueRef bits = as_whole(&l, x), a = and32(&l, bits, INT32_MAX);
    LLVMValueRef sign = and32(&l, shift(&l, bits, (int32_t)f->bits - 32), (int64_t)1 << (f->bits - 1));
    LLVMValueRef r = round_magnitude(&l, f, a);
    r = pick(&l, LLVMIntUGT, r, f->max, c32(&l, saturate ? f->max : f->overflow), r);
    r = pick(&l, LLVMIntEQ, a, F32_INF, c32(&l, saturate ? f->max : f->overflow), r);
    r = pick(&l, LLVMIntUGT, a, F32_INF, c32(&l, f->nan), r);
    if (f->special == SPECIAL_FNUZ)
        sign = pick(&l, LLVMIntEQ, r, 0, c32(&l, 0), sign);
    return LLVMBuildTrunc(e->b, LLVMBuildOr(e->b, r, sign, ""), result, "");
}

/* ---- arithmetic ---- */

LLVMValueRef half_extract(struct emitter *e, LLVMValueRef bits, uint32_t lanes, LLVMValueRef lane)
{
    return half_bits(e, LLVMBuildExtractElement(e->b, as_half(e, bits, lanes), lane, ""), 1);
}

LLVMValueRef half_splat(struct emitter *e, LLVMValueRef bits, uint32_t lanes)
{
    return half_bits(e, value_splat(e, as_half(e, bits, 1), lanes), lanes);
}

/* In f64 the product is exact, and what the sum may lose there changes nothing after its rounding to f16. */
LLVMValueRef half_fma(struct emitter *e, uint32_t lanes, LLVMValueRef args[3])
{
    LLVMTypeRef half = type_lanes(LLVMHalfTypeInContext(e->ctx), lanes);
    const struct conversion even = {0};
    for (int o = 0; o < 3; o++)
        args[o] = e->machine->f16_math ? as_half(e, args[o], lanes)
                                       : emit_convert(e, args[o], ELEM_F16, ELEM_F64, lanes, even);
    if (e->machine->f16_math)
        return half_bits(e, call_intrinsic(e, "llvm.fma", &half, 1, args, 3), lanes);
    LLVMValueRef sum = LLVMBuildFAdd(e->b, LLVMBuildFMul(e->b, args[0], args[1], ""), args[2], "");
    return emit_convert(e, sum, ELEM_F64, ELEM_F16, lanes, even);
}
