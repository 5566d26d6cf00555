/* L_DOT: products of bytes (u8 with i8) summed in fours, or of bf16 summed in twos, into 32-bit lanes.
 *
 * Where the machine has the instruction (VNNI, BF16) it is that instruction. Elsewhere the lanes are taken apart as
 * 32-bit words: bytes into even and odd 16-bit halves, whose products an x86 adds in pairs without saturating (the
 * instruction that multiplies bytes directly saturates its sums: never used), or one by one; bf16 is the upper half
 * of an f32. What depends on one operand only is the same value wherever it is used, and selected once.
 */
#include "codegen/llvm.h"

struct words {
    struct emitter *e;
    LLVMTypeRef type;
    uint32_t lanes;
};

static LLVMValueRef count(const struct words *w, int64_t bits)
{
    return const_int(w->e, w->e->i32, w->lanes, bits);
}

static LLVMValueRef shl(const struct words *w, LLVMValueRef x, int64_t bits)
{
    return bits ? LLVMBuildShl(w->e->b, x, count(w, bits), "") : x;
}

/* 128, 256, 512 bits of words: 0, 1, 2; another width: -1. */
static int size_class(uint32_t lanes)
{
    return lanes == 4 ? 0 : lanes == 8 ? 1 : lanes == 16 ? 2 : -1;
}

static LLVMValueRef call_fixed(struct emitter *e, const char *name, LLVMValueRef *args, unsigned n)
{
    return call_intrinsic(e, name, NULL, 0, args, n);
}

/* ---- bytes ------------------------------------------------------------------------------------------------------ */

/* Sixteen-bit products of the even or the odd bytes, two to a word, added in pairs: exact, 2 * 255 * 128 fits. */
static LLVMValueRef pair_products(const struct words *w, LLVMValueRef a, LLVMValueRef b, bool odd)
{
    static const char *const names[] = {"llvm.x86.sse2.pmadd.wd", "llvm.x86.avx2.pmadd.wd",
                                        "llvm.x86.avx512.pmaddw.d.512"};
    LLVMBuilderRef build = w->e->b;
    LLVMTypeRef halves = LLVMVectorType(w->e->i16, 2 * w->lanes);
    LLVMValueRef eight = const_int(w->e, w->e->i16, 2 * w->lanes, 8), args[2];
    LLVMValueRef a16 = LLVMBuildBitCast(build, a, halves, ""), b16 = LLVMBuildBitCast(build, b, halves, "");
    if (odd) {
        args[0] = LLVMBuildLShr(build, a16, eight, "");
        args[1] = LLVMBuildAShr(build, b16, eight, "");
    } else {
        args[0] = LLVMBuildAnd(build, a16, const_int(w->e, w->e->i16, 2 * w->lanes, 255), "");
        args[1] = LLVMBuildAShr(build, LLVMBuildShl(build, b16, eight, ""), eight, "");
    }
    return call_fixed(w->e, names[size_class(w->lanes)], args, 2);
}

static LLVMValueRef dot_bytes(const struct words *w, LLVMValueRef a, LLVMValueRef b, LLVMValueRef sum)
{
    static const char *const vnni[] = {"llvm.x86.avx512.vpdpbusd.128", "llvm.x86.avx512.vpdpbusd.256",
                                       "llvm.x86.avx512.vpdpbusd.512"};
    LLVMBuilderRef build = w->e->b;
    int size = size_class(w->lanes);
    if (size >= 0 && w->e->machine->dot_u8) {
        LLVMValueRef args[3] = {sum, a, b};
        return call_fixed(w->e, vnni[size], args, 3);
    }
    if (size >= 0 && w->e->machine->madd[size]) {
        LLVMValueRef pairs = LLVMBuildAdd(build, pair_products(w, a, b, false), pair_products(w, a, b, true), "");
        return LLVMBuildAdd(build, sum, pairs, "");
    }
    for (int64_t k = 0; k < 4; k++) {
        LLVMValueRef x = LLVMBuildLShr(build, shl(w, a, 24 - 8 * k), count(w, 24), "");
        LLVMValueRef y = LLVMBuildAShr(build, shl(w, b, 24 - 8 * k), count(w, 24), "");
        sum = LLVMBuildAdd(build, sum, LLVMBuildMul(build, x, y, ""), "");
    }
    return sum;
}

/* ---- bf16 -------------------------------------------------------------------------------------------------------- */

static LLVMValueRef half_of(const struct words *w, LLVMValueRef x, bool upper)
{
    LLVMTypeRef type = w->lanes == 1 ? w->e->f32 : LLVMVectorType(w->e->f32, w->lanes);
    x = upper ? LLVMBuildAnd(w->e->b, x, count(w, (int32_t)0xffff0000), "") : shl(w, x, 16);
    return LLVMBuildBitCast(w->e->b, x, type, "");
}

static LLVMValueRef dot_halves(const struct words *w, LLVMValueRef a, LLVMValueRef b, LLVMValueRef sum)
{
    static const char *const names[] = {"llvm.x86.avx512bf16.dpbf16ps.128", "llvm.x86.avx512bf16.dpbf16ps.256",
                                        "llvm.x86.avx512bf16.dpbf16ps.512"};
    int size = size_class(w->lanes);
    if (size >= 0 && w->e->machine->dot_bf16) {
        LLVMTypeRef halves = LLVMVectorType(LLVMBFloatTypeInContext(w->e->ctx), 2 * w->lanes);
        LLVMValueRef args[3] = {sum, LLVMBuildBitCast(w->e->b, a, halves, ""),
                                LLVMBuildBitCast(w->e->b, b, halves, "")};
        return call_fixed(w->e, names[size], args, 3);
    }
    for (int upper = 1; upper >= 0; upper--) {
        LLVMValueRef args[3] = {half_of(w, a, upper), half_of(w, b, upper), sum};
        LLVMTypeRef type = LLVMTypeOf(sum);
        sum = w->e->machine->fma ? call_intrinsic(w->e, "llvm.fma", &type, 1, args, 3)
                                 : LLVMBuildFAdd(w->e->b, LLVMBuildFMul(w->e->b, args[0], args[1], ""), sum, "");
    }
    return sum;
}

LLVMValueRef emit_dot(struct emitter *e, const struct lstmt *s)
{
    struct words w = {e, s->type.lanes == 1 ? e->i32 : LLVMVectorType(e->i32, s->type.lanes), s->type.lanes};
    LLVMValueRef a = LLVMBuildBitCast(e->b, e->values[s->in[0].i], w.type, "");
    LLVMValueRef b = LLVMBuildBitCast(e->b, e->values[s->in[1].i], w.type, "");
    LLVMValueRef sum = e->values[s->in[2].i];
    return s->type.elem == ELEM_F32 ? dot_halves(&w, a, b, sum) : dot_bytes(&w, a, b, sum);
}
