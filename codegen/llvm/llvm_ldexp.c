/* L_LDEXP: one instruction of AVX-512, elsewhere products with two powers of two of about equal size, of which only the
 * last rounds, overflows or becomes subnormal.
 */
#include "codegen/llvm/llvm.h"

static LLVMValueRef by_instruction(struct emitter *e, LLVMValueRef a, LLVMValueRef n, bool wide, uint32_t bytes)
{
    static const char *const names[2][3] = {{"llvm.x86.avx512.mask.scalef.ps.128", "llvm.x86.avx512.mask.scalef.ps.256",
                                             "llvm.x86.avx512.mask.scalef.ps.512"},
                                            {"llvm.x86.avx512.mask.scalef.pd.128", "llvm.x86.avx512.mask.scalef.pd.256",
                                             "llvm.x86.avx512.mask.scalef.pd.512"}};
    LLVMTypeRef mask = bytes == 64 && !wide ? e->i16 : e->i8;
    LLVMValueRef args[5] = {a, n, a, LLVMConstAllOnes(mask),
                            LLVMConstInt(e->i32, 4, false)}; /* rounded as the CPU is set */
    return call_intrinsic(e, names[wide][bytes / 32], NULL, 0, args, bytes == 64 ? 5 : 4);
}

/* n plus a number whose lowest bit counts 1: the low bits are those of the integer. Exponential functions took n from
 * such a sum (ir/loop/math/exp.c), which is found again. */
static LLVMValueRef sum_with(struct emitter *e, LLVMValueRef n, LLVMTypeRef scalar, uint32_t lanes, double magic)
{
    LLVMValueRef less = const_float(e, scalar, lanes, -magic);
    if (LLVMIsAInstruction(n) && LLVMGetInstructionOpcode(n) == LLVMFAdd && LLVMGetOperand(n, 1) == less)
        return LLVMGetOperand(n, 0);
    return LLVMBuildFAdd(e->b, n, const_float(e, scalar, lanes, magic), "");
}

LLVMValueRef emit_ldexp(struct emitter *e, const struct lstmt *s)
{
    bool wide = s->type.elem == ELEM_F64;
    uint32_t lanes = s->type.lanes, bytes = lanes * (wide ? 8 : 4);
    LLVMValueRef a = e->values[s->in[0].i], n = e->values[s->in[1].i];
    if (e->machine->arch == ARCH_X86_64 && e->machine->vector_bytes == 64 &&
        (bytes == 16 || bytes == 32 || bytes == 64))
        return by_instruction(e, a, n, wide, bytes);
    double magic = wide ? 0x1.8p52 + 2 * 1023 : 0x1.8p23 + 2 * 127;
    LLVMTypeRef real = type_value(e, s->type), integer = wide ? e->i64 : e->i32;
    LLVMValueRef mantissa = const_int(e, integer, lanes, wide ? 52 : 23);
    LLVMValueRef sum = sum_with(e, n, type_scalar(e, s->type.elem), lanes, magic);
    LLVMValueRef fields = LLVMBuildBitCast(e->b, sum, type_lanes(integer, lanes), "");
    LLVMValueRef half = LLVMBuildAShr(e->b, fields, const_int(e, integer, lanes, 1), "");
    LLVMValueRef last = LLVMBuildBitCast(e->b, LLVMBuildShl(e->b, half, mantissa, ""), real, "");
    LLVMValueRef rest = LLVMBuildSub(e->b, fields, half, "");
    a = LLVMBuildFMul(e->b, a, LLVMBuildBitCast(e->b, LLVMBuildShl(e->b, rest, mantissa, ""), real, ""), "");
    return LLVMBuildFMul(e->b, a, last, "");
}
