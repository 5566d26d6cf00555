/* Conversion of values between element types: every pair, by way of f32, f64 or integers.
 *
 * Rules (OP_CONVERT of ir/ops/ops.def): float -> integer truncates, saturates, NaN gives 0; integer -> integer wraps;
 * anything -> bool is "not zero"; small floats round to nearest even, f64 and wide integers with one rounding.
 */
#include "codegen/llvm/llvm.h"

#include <stdio.h>

/* Keeps the low bits of a sub-byte integer and extends them again; other types pass. */
static LLVMValueRef wrap_narrow(struct emitter *e, LLVMValueRef v, enum elem elem, uint32_t lanes)
{
    uint32_t bits = elem_bits(elem);
    if (bits >= 8)
        return v;
    LLVMValueRef by = const_int(e, e->i8, lanes, 8 - bits);
    v = LLVMBuildShl(e->b, v, by, "");
    return elem_is_signed(elem) ? LLVMBuildAShr(e->b, v, by, "") : LLVMBuildLShr(e->b, v, by, "");
}

/* f64 -> f32 rounded to odd: truncated, the last bit set when something was cut off. Rounding that once more to a
 * format of at most 21 bits gives what one rounding of the f64 gives. */
static LLVMValueRef f64_to_odd_f32(struct emitter *e, LLVMValueRef x, uint32_t lanes)
{
    LLVMTypeRef real = type_lanes(e->f32, lanes), whole = type_lanes(e->i32, lanes), wide = LLVMTypeOf(x);
    LLVMValueRef near = LLVMBuildFPTrunc(e->b, x, real, ""), back = LLVMBuildFPExt(e->b, near, wide, "");
    LLVMValueRef bits = LLVMBuildBitCast(e->b, near, whole, ""), past, exact, odd;
    past = LLVMBuildFCmp(e->b, LLVMRealOGT, call_intrinsic(e, "llvm.fabs", &wide, 1, &back, 1),
                         call_intrinsic(e, "llvm.fabs", &wide, 1, &x, 1), "");
    odd = LLVMBuildAdd(e->b, bits, LLVMBuildSExt(e->b, past, whole, ""), "");
    odd = LLVMBuildOr(e->b, odd, const_int(e, e->i32, lanes, 1), "");
    exact = LLVMBuildFCmp(e->b, LLVMRealUEQ, back, x, "");
    return LLVMBuildBitCast(e->b, LLVMBuildSelect(e->b, exact, bits, odd, ""), real, "");
}

static LLVMValueRef float_to_float(struct emitter *e, LLVMValueRef v, enum elem from, enum elem to, uint32_t lanes,
                                   struct conversion how)
{
    if (!elem_is_native_float(from)) {
        v = small_to_f32(e, v, from, lanes);
        from = ELEM_F32;
    }
    if (elem_is_native_float(to)) {
        LLVMTypeRef type = type_lanes(type_scalar(e, to), lanes);
        if (from == to)
            return v;
        return to == ELEM_F64 ? LLVMBuildFPExt(e->b, v, type, "") : LLVMBuildFPTrunc(e->b, v, type, "");
    }
    if (from == ELEM_F64 && to == ELEM_F8E8M0)
        v = LLVMBuildFPTrunc(e->b, v, type_lanes(e->f32, lanes), "");
    else if (from == ELEM_F64)
        v = f64_to_odd_f32(e, v, lanes);
    return small_from_f32(e, v, to, lanes, how);
}

/* ---- floats to integers ------------------------------------------------------------------------------------------ */

struct reals {
    struct emitter *e;
    LLVMTypeRef scalar;
    uint32_t lanes;
}; /* lanes of f32 or f64 */

static LLVMValueRef real_const(const struct reals *t, double c)
{
    return const_float(t->e, t->scalar, t->lanes, c);
}

static LLVMValueRef real_call(const struct reals *t, const char *name, LLVMValueRef x)
{
    LLVMTypeRef type = LLVMTypeOf(x);
    return call_intrinsic(t->e, name, &type, 1, &x, 1);
}

/* x where it is above (below, where p is LLVMRealOLT) the limit, else the limit. */
static LLVMValueRef real_limit(const struct reals *t, LLVMRealPredicate p, LLVMValueRef x, LLVMValueRef c)
{
    return LLVMBuildSelect(t->e->b, LLVMBuildFCmp(t->e->b, p, x, c, ""), x, c, "");
}

/* Lanes of f64 within the range of 64-bit integers, truncated: the upper and the lower 32 bits become low bits of
 * numbers in [2^52, 2^53). */
static LLVMValueRef f64_to_wide(const struct reals *t, LLVMValueRef x, bool is_signed)
{
    LLVMBuilderRef b = t->e->b;
    LLVMTypeRef whole = type_lanes(t->e->i64, t->lanes);
    if (t->e->machine->whole64)
        return is_signed ? LLVMBuildFPToSI(b, x, whole, "") : LLVMBuildFPToUI(b, x, whole, "");
    x = real_call(t, "llvm.trunc", x);
    LLVMValueRef high = real_call(t, "llvm.floor", LLVMBuildFMul(b, x, real_const(t, 0x1p-32), ""));
    LLVMValueRef low = LLVMBuildFSub(b, x, LLVMBuildFMul(b, high, real_const(t, 0x1p32), ""), "");
    high = LLVMBuildBitCast(b, LLVMBuildFAdd(b, high, real_const(t, 0x1.8p52), ""), whole, "");
    low = LLVMBuildBitCast(b, LLVMBuildFAdd(b, low, real_const(t, 0x1p52), ""), whole, "");
    low = LLVMBuildAnd(b, low, const_int(t->e, t->e->i64, t->lanes, UINT32_MAX), "");
    return LLVMBuildOr(b, LLVMBuildShl(b, high, const_int(t->e, t->e->i64, t->lanes, 32), ""), low, "");
}

/* A quantizer's sum of what was rounded to the nearest integer and a zero point. */
struct rounded {
    LLVMValueRef x, zero; /* x NULL: it is none; zero NULL: none; else of f32, as many lanes */
};

/* The one element of all lanes, or x itself. */
static LLVMValueRef splatted(LLVMValueRef x, uint32_t lanes)
{
    LLVMValueRef first = LLVMIsAConstant(x) && lanes > 1 ? LLVMGetAggregateElement(x, 0) : NULL;
    for (uint32_t i = 1; first && i < lanes; i++)
        if (LLVMGetAggregateElement(x, i) != first)
            return x;
    if (first)
        return first;
    if (!LLVMIsAShuffleVectorInst(x) || !LLVMIsAInsertElementInst(LLVMGetOperand(x, 0)) || LLVMGetMaskValue(x, 0) != 0)
        return x;
    for (unsigned i = 1; i < LLVMGetNumMaskElements(x); i++)
        if (LLVMGetMaskValue(x, i) != 0)
            return x;
    return LLVMGetOperand(LLVMGetOperand(x, 0), 1);
}

/* Is it a byte, signed or not, as a float, in all lanes? */
static bool is_byte_number(LLVMValueRef x, uint32_t lanes)
{
    LLVMBool lossy = false;
    LLVMValueRef one = splatted(x, lanes);
    if (LLVMIsASIToFPInst(one) || LLVMIsAUIToFPInst(one)) {
        LLVMTypeRef from = LLVMTypeOf(LLVMGetOperand(one, 0));
        return LLVMGetTypeKind(from) == LLVMIntegerTypeKind && LLVMGetIntTypeWidth(from) <= 8;
    }
    double value = LLVMIsAConstantFP(one) ? LLVMConstRealGetDouble(one, &lossy) : 0.5;
    return value >= INT8_MIN && value <= UINT8_MAX && value == (int32_t)value;
}

static struct rounded rounded_of(const struct reals *t, LLVMValueRef v)
{
    static const char rint[] = "llvm.rint.";
    struct rounded r = {v, NULL};
    if (t->scalar != t->e->f32)
        return (struct rounded){NULL, NULL};
    if (LLVMIsABinaryOperator(v) && LLVMGetInstructionOpcode(v) == LLVMFAdd &&
        is_byte_number(LLVMGetOperand(v, 1), t->lanes))
        r = (struct rounded){LLVMGetOperand(v, 0), LLVMGetOperand(v, 1)};
    const char *name = LLVMIsACallInst(r.x) ? LLVMGetValueName2(LLVMGetCalledValue(r.x), &(size_t){0}) : "";
    r.x = strncmp(name, rint, sizeof rint - 1) == 0 ? LLVMGetOperand(r.x, 0) : NULL;
    r.zero = r.zero && LLVMIsNull(r.zero) ? NULL : r.zero;
    return r;
}

/* Lanes of f32 within the range of a narrow integer, to the nearest one. */
static LLVMValueRef reals_to_nearest(const struct reals *t, LLVMValueRef x)
{
    LLVMTypeRef types[2] = {type_lanes(t->e->i32, t->lanes), LLVMTypeOf(x)};
    return call_intrinsic(t->e, "llvm.lrint", types, 2, &x, 1);
}

/* Lanes within the range of an integer of this width, truncated. */
static LLVMValueRef reals_to_whole(const struct reals *t, LLVMValueRef x, uint32_t bits, bool is_signed)
{
    struct emitter *e = t->e;
    struct reals wide = {e, e->f64, t->lanes};
    LLVMTypeRef word = type_lanes(e->i32, t->lanes);
    if (bits == 64)
        return f64_to_wide(&wide, t->scalar == e->f64 ? x : LLVMBuildFPExt(e->b, x, type_lanes(e->f64, t->lanes), ""),
                           is_signed);
    if (bits < 32 || is_signed)
        return LLVMBuildFPToSI(e->b, x, word, "");
    if (t->scalar == e->f32)
        return LLVMBuildFPToUI(e->b, x, word, "");
    x = LLVMBuildFAdd(e->b, real_call(t, "llvm.trunc", x), real_const(t, 0x1p52), "");
    return LLVMBuildTrunc(e->b, LLVMBuildBitCast(e->b, x, type_lanes(e->i64, t->lanes), ""), word, "");
}

/* Words of two registers as half-words of one, lane of 16 bytes by lane, or half-words as bytes; saturated. */
static LLVMValueRef packed(struct emitter *e, LLVMValueRef a, LLVMValueRef b, const char *kind)
{
    static const struct {
        uint32_t bytes;
        const char *set, *end;
    } forms[] = {{16, "sse2", ".128"}, {32, "avx2", ""}, {64, "avx512", ".512"}};
    uint32_t i = 0;
    LLVMValueRef in[2] = {a, b};
    char name[48];
    while (forms[i].bytes < e->machine->vector_bytes)
        i++;
    snprintf(name, sizeof name, "llvm.x86.%s.%s%s", forms[i].set, kind, forms[i].end);
    return call_intrinsic(e, name, NULL, 0, in, 2);
}

/* Registers of f32, two or four, rounded to bytes by instructions that saturate words: of what is beyond them only
 * numbers above have to be limited before, as these, and NaN, become the smallest word. */
static LLVMValueRef reals_packed(const struct reals *t, struct rounded r, bool is_signed)
{
    enum { REGISTERS = 4, LANE = 16, WORDS = 4 };
    struct emitter *e = t->e;
    uint32_t bytes = e->machine->vector_bytes, each = bytes / 4, n = t->lanes / each;
    LLVMTypeRef halves = type_lanes(e->i16, bytes / 2), words = type_lanes(e->i32, each);
    LLVMValueRef part[REGISTERS], most = const_float(e, e->f32, each, 0x1p16);
    uint8_t list[LOOP_LANES_MAX];
    const struct reals one = {e, e->f32, each};
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < each; k++)
            list[k] = (uint8_t)(i * each + k);
        LLVMValueRef x = shuffle_lanes(e, r.x, r.x, list, each);
        x = LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealOLT, most, x, ""), most, x, "");
        part[i] = reals_to_nearest(&one, x);
    }
    for (uint32_t i = 0; i < n / 2; i++) {
        part[i] = packed(e, part[2 * i], part[2 * i + 1], "packssdw");
        if (!r.zero)
            continue;
        LLVMValueRef z = LLVMBuildFPToSI(e->b, r.zero, type_lanes(e->i16, t->lanes), "");
        for (uint32_t k = 0; k < bytes / 2; k++)
            list[k] = 0;
        LLVMValueRef in[2] = {part[i], shuffle_lanes(e, z, z, list, bytes / 2)};
        part[i] = call_intrinsic(e, "llvm.sadd.sat", &halves, 1, in, 2);
    }
    LLVMValueRef p = packed(e, part[0], part[n / 2 - 1], is_signed ? "packsswb" : "packuswb");
    for (uint32_t i = 0; i < n; i++) /* a lane has four bytes of each register */
        for (uint32_t k = 0; k < bytes / LANE; k++)
            list[i * (bytes / LANE) + k] = (uint8_t)(WORDS * k + i);
    p = LLVMBuildBitCast(e->b, p, words, "");
    p = shuffle_lanes(e, p, p, list, n * bytes / LANE);
    return LLVMBuildBitCast(e->b, p, type_lanes(e->i8, t->lanes), "");
}

/* Do reals_packed's instructions take so many lanes? */
static bool is_packed(const struct emitter *e, uint32_t lanes)
{
    uint32_t bytes = e->machine->vector_bytes, each = bytes / 4;
    return bytes && e->machine->madd[bytes > 32 ? 2 : bytes > 16] && (lanes == 2 * each || lanes == 4 * each);
}

/* Vectors for x86, which has no saturating conversion: limited to what the type holds first. Where its largest number
 * is not a float, the limit is the one below, and what is beyond is replaced afterwards. What was rounded before is
 * converted by the one instruction that rounds, and the zero point added to the integers. */
static LLVMValueRef reals_saturated(const struct reals *t, LLVMValueRef x, enum elem to)
{
    LLVMBuilderRef b = t->e->b;
    uint32_t bits = elem_bits(to), mantissa = t->scalar == t->e->f32 ? 24 : 53;
    bool is_signed = elem_is_signed(to);
    uint32_t digits = is_signed ? bits - 1 : bits;
    double end = (double)(UINT64_C(1) << (digits - 1)) * 2, most = end - 1;
    if (digits > mantissa)
        most = end - (double)(UINT64_C(1) << (digits - mantissa));
    LLVMTypeRef type = type_lanes(LLVMIntTypeInContext(t->e->ctx, bits < 8 ? 8 : bits), t->lanes);
    struct rounded r = bits < 32 ? rounded_of(t, x) : (struct rounded){NULL, NULL};
    x = r.x ? r.x : x;
    if (is_signed) { /* a NaN gives 0; below, the limit 0 does it */
        LLVMValueRef nothing = r.x && r.zero ? LLVMBuildFNeg(b, r.zero, "") : real_const(t, 0);
        x = LLVMBuildSelect(b, LLVMBuildFCmp(b, LLVMRealORD, x, x, ""), x, nothing, "");
    }
    if (r.x && bits == 8 && is_packed(t->e, t->lanes))
        return reals_packed(t, (struct rounded){x, r.zero}, is_signed);
    LLVMValueRef low = real_const(t, is_signed ? -end : 0), high = real_const(t, most);
    if (r.x && r.zero) { /* the limits are integers: they can come before the rounding, and before the sum */
        low = LLVMBuildFSub(b, low, r.zero, "");
        high = LLVMBuildFSub(b, high, r.zero, "");
    }
    LLVMValueRef v = real_limit(t, LLVMRealOLT, real_limit(t, LLVMRealOGT, x, low), high);
    v = r.x ? reals_to_nearest(t, v) : reals_to_whole(t, v, bits, is_signed);
    if (r.x && r.zero)
        v = LLVMBuildAdd(b, v, LLVMBuildFPToSI(b, r.zero, LLVMTypeOf(v), ""), "");
    if (bits < 32)
        return LLVMBuildTrunc(b, v, type, "");
    if (digits <= mantissa)
        return v;
    int64_t largest = is_signed ? (int64_t)((UINT64_C(1) << digits) - 1) : -1;
    LLVMValueRef beyond = LLVMBuildFCmp(b, LLVMRealOGE, x, real_const(t, end), "");
    return LLVMBuildSelect(b, beyond, const_int(t->e, LLVMIntTypeInContext(t->e->ctx, bits), t->lanes, largest), v, "");
}

/* What round_by_magic (llvm_ops.c) has rounded to the nearest integer; NULL: x is something else. */
static LLVMValueRef before_magic(struct emitter *e, LLVMValueRef x, uint32_t lanes)
{
    if (!LLVMIsASelectInst(x))
        return NULL;
    LLVMValueRef small = LLVMGetOperand(x, 0), sign = LLVMGetOperand(x, 1);
    if (!LLVMIsAFCmpInst(small) || LLVMGetOperand(small, 1) != const_float(e, e->f32, lanes, 0x1p23) ||
        !LLVMIsACallInst(sign))
        return NULL;
    const char *name = LLVMGetValueName2(LLVMGetCalledValue(sign), &(size_t){0});
    return strncmp(name, "llvm.copysign.", 14) == 0 && LLVMIsABinaryOperator(LLVMGetOperand(sign, 0)) &&
                   LLVMGetOperand(LLVMGetOperand(sign, 0), 1) == LLVMGetOperand(small, 1)
               ? LLVMGetOperand(x, 2)
               : NULL;
}

/* Is it an integer of at most 16 bits, as a float? */
static bool is_short_integer(LLVMValueRef x, uint32_t lanes)
{
    LLVMBool lossy = false;
    if (LLVMIsASIToFPInst(x) || LLVMIsAUIToFPInst(x)) {
        LLVMTypeRef from = LLVMTypeOf(LLVMGetOperand(x, 0));
        return LLVMGetIntTypeWidth(lanes > 1 ? LLVMGetElementType(from) : from) <= 16;
    }
    for (uint32_t i = 0; i < lanes; i++) {
        LLVMValueRef one = !LLVMIsAConstant(x) ? NULL : lanes > 1 ? LLVMGetAggregateElement(x, i) : x;
        double value = one && LLVMIsAConstantFP(one) ? LLVMConstRealGetDouble(one, &lossy) : 0.5;
        if (!(value >= INT16_MIN && value <= UINT16_MAX) || value != (int32_t)value)
            return false;
    }
    return true;
}

/* Without an instruction that rounds: a quantizer's sum of a rounded f32 and a zero point, which an integer of at most
 * 16 bits is made of next. What is beyond 2^22 may be rounded to anything near, since it saturates; a NaN stays one. */
static LLVMValueRef round_to_short(struct emitter *e, LLVMValueRef v, uint32_t lanes)
{
    LLVMValueRef zero = NULL, x = before_magic(e, v, lanes), magic = const_float(e, e->f32, lanes, 0x1.8p23);
    if (!x && LLVMIsABinaryOperator(v) && LLVMGetInstructionOpcode(v) == LLVMFAdd) {
        zero = LLVMGetOperand(v, 1);
        x = is_short_integer(zero, lanes) ? before_magic(e, LLVMGetOperand(v, 0), lanes) : NULL;
    }
    if (!x)
        return v;
    x = LLVMBuildFAdd(e->b, x, magic, ""); /* an integer: so is what is subtracted, and their difference exact */
    return LLVMBuildFSub(e->b, x, zero ? LLVMBuildFSub(e->b, magic, zero, "") : magic, "");
}

/* By way of i32, to which conversion saturates by itself, and then as words saturate. */
static LLVMValueRef float_to_word(struct emitter *e, LLVMValueRef v, enum elem to, uint32_t lanes)
{
    LLVMTypeRef word = type_lanes(e->i32, lanes), types[2] = {word, LLVMTypeOf(v)};
    uint32_t bits = elem_bits(to);
    int64_t high = (INT64_C(1) << (elem_is_signed(to) ? bits - 1 : bits)) - 1, low = elem_is_signed(to) ? -high - 1 : 0;
    LLVMValueRef args[2] = {call_intrinsic(e, "llvm.fptosi.sat", types, 2, &v, 1), const_int(e, e->i32, lanes, high)};
    args[0] = call_intrinsic(e, "llvm.smin", &word, 1, args, 2);
    args[1] = const_int(e, e->i32, lanes, low);
    v = call_intrinsic(e, "llvm.smax", &word, 1, args, 2);
    return LLVMBuildTrunc(e->b, v, type_lanes(LLVMIntTypeInContext(e->ctx, bits < 8 ? 8 : bits), lanes), "");
}

static LLVMValueRef float_to_int(struct emitter *e, LLVMValueRef v, enum elem from, enum elem to, uint32_t lanes)
{
    uint32_t bits = elem_bits(to);
    bool is_signed = elem_is_signed(to);
    if (!elem_is_native_float(from))
        v = small_to_f32(e, v, from, lanes);
    if (lanes > 1 && e->machine->arch == ARCH_X86_64 && e->machine->round) {
        struct reals t = {e, from == ELEM_F64 ? e->f64 : e->f32, lanes};
        return reals_saturated(&t, v, to);
    }
    if (from == ELEM_F32 && bits <= 16 && !e->machine->round)
        v = round_to_short(e, v, lanes);
    if (from == ELEM_F32 && bits < 32 && e->machine->words32)
        return float_to_word(e, v, to, lanes);
    LLVMTypeRef narrow = LLVMIntTypeInContext(e->ctx, bits < 8 ? 8 : bits);
    LLVMTypeRef types[2] = {type_lanes(narrow, lanes), LLVMTypeOf(v)};
    v = call_intrinsic(e, is_signed ? "llvm.fptosi.sat" : "llvm.fptoui.sat", types, 2, &v, 1);
    if (bits >= 8)
        return v;
    int64_t high = (INT64_C(1) << (is_signed ? bits - 1 : bits)) - 1, low = is_signed ? -high - 1 : 0;
    LLVMValueRef limit[2] = {v, const_int(e, e->i8, lanes, high)};
    v = call_intrinsic(e, is_signed ? "llvm.smin" : "llvm.umin", types, 1, limit, 2);
    limit[0] = v;
    limit[1] = const_int(e, e->i8, lanes, low);
    return call_intrinsic(e, is_signed ? "llvm.smax" : "llvm.umax", types, 1, limit, 2);
}

/* ---- integers to floats ------------------------------------------------------------------------------------------ */

/* 64-bit integers past 2^53: their low bits become one sticky bit, so that rounding the f64 once more rounds the
 * integer. Takes and gives magnitudes. */
static LLVMValueRef sticky(struct emitter *e, LLVMValueRef a, uint32_t lanes)
{
    LLVMValueRef low = LLVMBuildAnd(e->b, a, const_int(e, e->i64, lanes, 0xfff), "");
    LLVMValueRef high = LLVMBuildAnd(e->b, a, const_int(e, e->i64, lanes, ~INT64_C(0xfff)), "");
    LLVMValueRef none = LLVMConstNull(LLVMTypeOf(a)), bit = const_int(e, e->i64, lanes, 0x1000);
    LLVMValueRef lost = LLVMBuildICmp(e->b, LLVMIntNE, low, none, "");
    LLVMValueRef cut = LLVMBuildOr(e->b, high, LLVMBuildSelect(e->b, lost, bit, none, ""), "");
    LLVMValueRef wide = LLVMBuildICmp(e->b, LLVMIntUGE, a, const_int(e, e->i64, lanes, INT64_C(1) << 53), "");
    return LLVMBuildSelect(e->b, wide, cut, a, "");
}

static LLVMValueRef wide_to_small(struct emitter *e, LLVMValueRef v, bool is_signed, enum elem to, uint32_t lanes,
                                  struct conversion how)
{
    LLVMTypeRef whole = LLVMTypeOf(v), real = type_lanes(e->f64, lanes);
    LLVMValueRef args[2] = {v, LLVMConstInt(e->i1, 0, false)}, x, minus;
    LLVMValueRef a = is_signed ? call_intrinsic(e, "llvm.abs", &whole, 1, args, 2) : v;
    x = LLVMBuildUIToFP(e->b, sticky(e, a, lanes), real, "");
    if (is_signed) {
        minus = LLVMBuildICmp(e->b, LLVMIntSLT, v, LLVMConstNull(whole), "");
        x = LLVMBuildSelect(e->b, minus, LLVMBuildFNeg(e->b, x, ""), x, "");
    }
    return float_to_float(e, x, ELEM_F64, to, lanes, how);
}

static LLVMValueRef int_to_float(struct emitter *e, LLVMValueRef v, enum elem from, enum elem to, uint32_t lanes,
                                 struct conversion how)
{
    bool is_signed = elem_is_signed(from), native = elem_is_native_float(to);
    enum elem via = native ? to : elem_bits(from) <= 16 ? ELEM_F32 : ELEM_F64;
    LLVMTypeRef type = type_lanes(type_scalar(e, via), lanes);
    if (!native && elem_bits(from) == 64)
        return wide_to_small(e, v, is_signed, to, lanes, how);
    v = is_signed ? LLVMBuildSIToFP(e->b, v, type, "") : LLVMBuildUIToFP(e->b, v, type, "");
    return float_to_float(e, v, via, to, lanes, how);
}

static LLVMValueRef int_to_int(struct emitter *e, LLVMValueRef v, enum elem from, enum elem to, uint32_t lanes)
{
    LLVMTypeRef type = type_lanes(type_scalar(e, to), lanes);
    v = LLVMBuildIntCast2(e->b, v, type, elem_is_signed(from), "");
    return wrap_narrow(e, v, to, lanes);
}

static LLVMValueRef to_bool(struct emitter *e, LLVMValueRef v, enum elem from, uint32_t lanes)
{
    if (from == ELEM_BOOL)
        return v;
    if (!elem_is_float(from))
        return LLVMBuildICmp(e->b, LLVMIntNE, v, LLVMConstNull(LLVMTypeOf(v)), "");
    if (!elem_is_native_float(from))
        v = small_to_f32(e, v, from, lanes);
    return LLVMBuildFCmp(e->b, LLVMRealUNE, v, LLVMConstNull(LLVMTypeOf(v)), "");
}

LLVMValueRef emit_convert(struct emitter *e, LLVMValueRef v, enum elem from, enum elem to, uint32_t lanes,
                          struct conversion how)
{
    if (from == to)
        return v;
    if (to == ELEM_BOOL)
        return to_bool(e, v, from, lanes);
    if (elem_is_float(from))
        return elem_is_float(to) ? float_to_float(e, v, from, to, lanes, how) : float_to_int(e, v, from, to, lanes);
    return elem_is_float(to) ? int_to_float(e, v, from, to, lanes, how) : int_to_int(e, v, from, to, lanes);
}
