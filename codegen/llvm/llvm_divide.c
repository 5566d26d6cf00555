/* Quotients and remainders: no divisor may trap, and what the machine cannot divide becomes floats or a call. */
#include "codegen/llvm/llvm.h"

/* True when every lane of v is a constant that cannot trap as a divisor. */
static bool is_safe_divisor(LLVMValueRef v, struct ltype t)
{
    for (uint32_t i = 0; i < t.lanes; i++) {
        LLVMValueRef lane = t.lanes == 1 ? v : LLVMIsConstant(v) ? LLVMGetAggregateElement(v, i) : NULL;
        if (!lane || !LLVMIsAConstantInt(lane) || LLVMConstIntGetZExtValue(lane) == 0)
            return false;
        if (elem_is_signed(t.elem) && LLVMConstIntGetSExtValue(lane) == -1)
            return false;
    }
    return true;
}

/* The divisor, or 1 where dividing by it would trap: 0, and -1 under the smallest integer, where 1 gives the
 * wrapped answer. */
static LLVMValueRef safe_divisor(struct emitter *e, struct ltype t, LLVMValueRef a, LLVMValueRef b)
{
    bool is_signed = elem_is_signed(t.elem);
    if (is_safe_divisor(b, t))
        return b;
    LLVMValueRef bad = LLVMBuildICmp(e->b, LLVMIntEQ, b, const_like(e, t, 0), "");
    if (is_signed) {
        int64_t min = INT64_MIN >> (64 - elem_bits(t.elem));
        LLVMValueRef is_min = LLVMBuildICmp(e->b, LLVMIntEQ, a, const_like(e, t, min), "");
        LLVMValueRef is_minus = LLVMBuildICmp(e->b, LLVMIntEQ, b, const_like(e, t, -1), "");
        bad = LLVMBuildOr(e->b, bad, LLVMBuildAnd(e->b, is_min, is_minus, ""), "");
    }
    return LLVMBuildSelect(e->b, bad, const_like(e, t, 1), b, "");
}

/* Quotient towards zero; b is safe. Vectors of up to 32 bits divide as floats that hold them with enough room to
 * truncate exactly (no machine divides integer vectors). */
static LLVMValueRef quotient(struct emitter *e, struct ltype t, LLVMValueRef a, LLVMValueRef b)
{
    bool is_signed = elem_is_signed(t.elem);
    uint32_t bits = elem_bits(t.elem);
    if (t.lanes == 1 || bits > 32 || LLVMIsConstant(b))
        return is_signed ? LLVMBuildSDiv(e->b, a, b, "") : LLVMBuildUDiv(e->b, a, b, "");
    LLVMTypeRef real = type_lanes(bits == 32 ? e->f64 : e->f32, t.lanes), whole = LLVMTypeOf(a);
    LLVMValueRef x = is_signed ? LLVMBuildSIToFP(e->b, a, real, "") : LLVMBuildUIToFP(e->b, a, real, "");
    LLVMValueRef y = is_signed ? LLVMBuildSIToFP(e->b, b, real, "") : LLVMBuildUIToFP(e->b, b, real, "");
    LLVMValueRef q = LLVMBuildFDiv(e->b, x, y, "");
    return is_signed ? LLVMBuildFPToSI(e->b, q, whole, "") : LLVMBuildFPToUI(e->b, q, whole, "");
}

static LLVMValueRef remainder_of(struct emitter *e, struct ltype t, LLVMValueRef a, LLVMValueRef b)
{
    if (t.lanes == 1)
        return elem_is_signed(t.elem) ? LLVMBuildSRem(e->b, a, b, "") : LLVMBuildURem(e->b, a, b, "");
    return LLVMBuildSub(e->b, a, LLVMBuildMul(e->b, quotient(e, t, a, b), b, ""), "");
}

/* C's fmod lane by lane: no instruction exists, the runtime has a bit-exact one. */
static LLVMValueRef emit_fmod(struct emitter *e, const struct lstmt *s)
{
    bool wide = s->type.elem == ELEM_F64;
    const char *name = wide ? "mcc_rt_fmod" : "mcc_rt_fmodf";
    LLVMTypeRef scalar = type_scalar(e, s->type.elem);
    LLVMValueRef args[2] = {operand(e, s, 0), operand(e, s, 1)};
    if (s->type.lanes == 1)
        return call_external(e, name, scalar, args, 2);
    LLVMValueRef result = LLVMGetPoison(type_value(e, s->type));
    for (uint32_t i = 0; i < s->type.lanes; i++) {
        LLVMValueRef lane = LLVMConstInt(e->i64, i, false);
        LLVMValueRef pair[2] = {LLVMBuildExtractElement(e->b, args[0], lane, ""),
                                LLVMBuildExtractElement(e->b, args[1], lane, "")};
        LLVMValueRef r = call_external(e, name, scalar, pair, 2);
        result = LLVMBuildInsertElement(e->b, result, r, lane, "");
    }
    return result;
}

LLVMValueRef emit_divide(struct emitter *e, const struct lstmt *s)
{
    LLVMValueRef a = operand(e, s, 0), b = operand(e, s, 1);
    if (elem_is_float(s->type.elem))
        return s->op == L_DIV ? LLVMBuildFDiv(e->b, a, b, "") : emit_fmod(e, s);
    b = safe_divisor(e, s->type, a, b);
    return s->op == L_DIV ? quotient(e, s->type, a, b) : remainder_of(e, s->type, a, b);
}

/* The power of two that a single constant divisor is, as a shift; -1: it is none. */
static int32_t shift_of(LLVMValueRef v)
{
    int64_t n = LLVMIsAConstantInt(v) ? LLVMConstIntGetSExtValue(v) : 0;
    return n > 0 && (n & (n - 1)) == 0 ? __builtin_ctzll((uint64_t)n) : -1;
}

/* The remainder decides: where it is negative, the quotient goes down by one, the remainder up by b (b > 0). Powers of
 * two round down by themselves. */
LLVMValueRef emit_floordiv(struct emitter *e, const struct lstmt *s)
{
    LLVMValueRef a = operand(e, s, 0), b = safe_divisor(e, s->type, a, operand(e, s, 1)),
                 zero = const_like(e, s->type, 0);
    LLVMValueRef q, r, low;
    struct ltype t = s->type;
    if (elem_is_signed(t.elem) && range_is_natural(e, s->in[0]) && range_is_natural(e, s->in[1]))
        t.elem = ELEM_U64;
    if (range_in_word(e, s->in[0]) && range_in_word(e, s->in[1])) {
        t.elem = ELEM_U32;
        q = (s->op == L_FLOORDIV ? quotient : remainder_of)(e, t, low_word(e, a), low_word(e, b));
        return LLVMBuildZExt(e->b, q, e->i64, "");
    }
    if (!elem_is_signed(t.elem))
        return s->op == L_FLOORDIV ? quotient(e, t, a, b) : remainder_of(e, t, a, b);
    int32_t shift = shift_of(b);
    if (shift >= 0)
        return s->op == L_FLOORDIV ? LLVMBuildAShr(e->b, a, const_like(e, t, shift), "")
                                   : LLVMBuildAnd(e->b, a, const_like(e, t, ((int64_t)1 << shift) - 1), "");
    q = quotient(e, t, a, b);
    r = LLVMBuildSub(e->b, a, LLVMBuildMul(e->b, q, b, ""), "");
    low = LLVMBuildICmp(e->b, LLVMIntSLT, r, zero, "");
    if (s->op == L_FLOORDIV)
        return LLVMBuildAdd(e->b, q, LLVMBuildSExt(e->b, low, LLVMTypeOf(q), ""), "");
    return LLVMBuildAdd(e->b, r, LLVMBuildSelect(e->b, low, b, zero, ""), "");
}
