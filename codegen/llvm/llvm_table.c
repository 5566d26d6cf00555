/* A constant of 256 bytes by vectors of bytes, which CPUs look up in registers.
 *
 * AVX-512 VBMI selects from two registers of 64 bytes at a time, by the low 7 bits of its index; the last bit chooses
 * between two such selections. Other AVX-512 does the same with words of four bytes, of which a shift takes one. Arm
 * selects from four registers of 16, and leaves what lies outside. AVX2 and SSSE3 select from 16 bytes, by the low 4
 * bits, and give 0 where the index has its highest bit: each 16 of the table in turn, with indices that have this bit
 * unless they are among these. A few bytes are loaded one by one there.
 */
#include "codegen/llvm/llvm.h"

struct byte_table {
    struct emitter *e;
    LLVMValueRef base;
    bool invariant;
    uint32_t width; /* bytes of a register */
};

/* n bytes of the table from `first` on. */
static LLVMValueRef part(const struct byte_table *t, uint32_t first, uint32_t n)
{
    struct emitter *e = t->e;
    LLVMValueRef at = LLVMConstInt(e->i64, first, false);
    LLVMValueRef v = LLVMBuildLoad2(e->b, LLVMVectorType(e->i8, n), LLVMBuildGEP2(e->b, e->i8, t->base, &at, 1, ""),
                                    "");
    LLVMSetAlignment(v, 1);
    if (t->invariant)
        set_invariant(e, v);
    return v;
}

/* Lanes from[0] ... of v, again and again up to n. */
static LLVMValueRef lanes_of(struct emitter *e, LLVMValueRef v, uint32_t first, uint32_t each, uint32_t n)
{
    LLVMValueRef lane[LOOP_LANES_MAX];
    for (uint32_t i = 0; i < n; i++)
        lane[i] = LLVMConstInt(e->i32, first + i % each, false);
    return LLVMBuildShuffleVector(e->b, v, LLVMGetPoison(LLVMTypeOf(v)), LLVMConstVector(lane, n), "");
}

static LLVMValueRef by_64(const struct byte_table *t, LLVMValueRef x)
{
    struct emitter *e = t->e;
    LLVMValueRef half[2];
    for (uint32_t i = 0; i < 2; i++) {
        LLVMValueRef args[3] = {part(t, 128 * i, 64), x, part(t, 128 * i + 64, 64)};
        half[i] = call_intrinsic(e, "llvm.x86.avx512.vpermi2var.qi.512", NULL, 0, args, 3);
    }
    LLVMValueRef upper = LLVMBuildICmp(e->b, LLVMIntSLT, x, LLVMConstNull(LLVMTypeOf(x)), "");
    return LLVMBuildSelect(e->b, upper, half[1], half[0], "");
}

/* 16 bytes x. */
static LLVMValueRef by_words(const struct byte_table *t, LLVMValueRef x)
{
    struct emitter *e = t->e;
    LLVMTypeRef words = LLVMVectorType(e->i32, 16);
    LLVMValueRef half[2], at, shift;
    x = LLVMBuildZExt(e->b, x, words, "");
    at = LLVMBuildLShr(e->b, x, const_int(e, e->i32, 16, 2), "");
    for (uint32_t i = 0; i < 2; i++) {
        LLVMValueRef args[3] = {LLVMBuildBitCast(e->b, part(t, 128 * i, 64), words, ""), at,
                                LLVMBuildBitCast(e->b, part(t, 128 * i + 64, 64), words, "")};
        half[i] = call_intrinsic(e, "llvm.x86.avx512.vpermi2var.d.512", NULL, 0, args, 3);
    }
    LLVMValueRef upper = LLVMBuildICmp(e->b, LLVMIntUGE, x, const_int(e, e->i32, 16, 128), "");
    shift = LLVMBuildAnd(e->b, LLVMBuildShl(e->b, x, const_int(e, e->i32, 16, 3), ""), const_int(e, e->i32, 16, 24),
                         "");
    x = LLVMBuildLShr(e->b, LLVMBuildSelect(e->b, upper, half[1], half[0], ""), shift, "");
    return LLVMBuildTrunc(e->b, x, LLVMVectorType(e->i8, 16), "");
}

static LLVMValueRef one_by_one(const struct byte_table *t, LLVMValueRef x, uint32_t lanes)
{
    struct emitter *e = t->e;
    LLVMValueRef r = LLVMGetPoison(LLVMTypeOf(x));
    for (uint32_t i = 0; i < lanes; i++) {
        LLVMValueRef lane = LLVMConstInt(e->i32, i, false);
        LLVMValueRef at = LLVMBuildZExt(e->b, LLVMBuildExtractElement(e->b, x, lane, ""), e->i64, "");
        LLVMValueRef v = LLVMBuildLoad2(e->b, e->i8, LLVMBuildGEP2(e->b, e->i8, t->base, &at, 1, ""), "");
        if (t->invariant)
            set_invariant(e, v);
        r = LLVMBuildInsertElement(e->b, r, v, lane, "");
    }
    return r;
}

static LLVMValueRef by_16(const struct byte_table *t, LLVMValueRef x)
{
    static const char *const names[] = {"llvm.x86.ssse3.pshuf.b.128", "llvm.x86.avx2.pshuf.b"};
    struct emitter *e = t->e;
    LLVMTypeRef type = LLVMTypeOf(x);
    LLVMValueRef r = LLVMConstNull(type), outside = const_int(e, e->i8, t->width, 0x70);
    for (uint32_t i = 0; i < LOOP_TABLE / 16; i++) {
        LLVMValueRef entries = lanes_of(e, part(t, 16 * i, 16), 0, 16, t->width);
        LLVMValueRef sum[2] = {LLVMBuildSub(e->b, x, const_int(e, e->i8, t->width, 16 * i), ""), outside};
        LLVMValueRef args[2] = {entries, call_intrinsic(e, "llvm.uadd.sat", &type, 1, sum, 2)};
        r = LLVMBuildOr(e->b, r, call_intrinsic(e, names[t->width / 32], NULL, 0, args, 2), "");
    }
    return r;
}

static LLVMValueRef by_four(const struct byte_table *t, LLVMValueRef x)
{
    struct emitter *e = t->e;
    LLVMTypeRef type = LLVMTypeOf(x);
    LLVMValueRef r = NULL;
    for (uint32_t i = 0; i < 4; i++) {
        LLVMValueRef args[6] = {r}, *in = args + (r != NULL);
        for (uint32_t k = 0; k < 4; k++)
            *in++ = part(t, 64 * i + 16 * k, 16);
        *in++ = i ? LLVMBuildSub(e->b, x, const_int(e, e->i8, 16, 64 * i), "") : x;
        r = call_intrinsic(e, r ? "llvm.aarch64.neon.tbx4" : "llvm.aarch64.neon.tbl4", &type, 1, args,
                           (unsigned)(in - args));
    }
    return r;
}

LLVMValueRef emit_byte_table(struct emitter *e, LLVMValueRef base, bool invariant, LLVMValueRef x, uint32_t lanes)
{
    const struct llvm_machine *m = e->machine;
    const bool words = m->table_bytes == 64 && !m->vbmi, arm = m->arch == ARCH_AARCH64;
    struct byte_table t = {e, base, invariant, words ? 16 : m->table_bytes};
    LLVMValueRef r = NULL;
    if (!t.width || (lanes < 16 && !words && !arm && !m->vbmi))
        return one_by_one(&t, x, lanes);
    if (t.width == 32 && lanes < 32)
        t.width = 16;
    for (uint32_t i = 0; i < lanes; i += t.width) {
        uint32_t n = lanes - i < t.width ? lanes - i : t.width;
        LLVMValueRef lane[LOOP_LANES_MAX], some = n == lanes && n == t.width ? x : lanes_of(e, x, i, n, t.width);
        some = arm ? by_four(&t, some) : m->vbmi ? by_64(&t, some) : words ? by_words(&t, some) : by_16(&t, some);
        for (uint32_t k = 0; k < lanes && r; k++)
            lane[k] = LLVMConstInt(e->i32, k < i ? k : k - i < n ? lanes + k - i : 0, false);
        some = n == lanes && n == t.width ? some : lanes_of(e, some, 0, t.width, lanes);
        r = r ? LLVMBuildShuffleVector(e->b, r, some, LLVMConstVector(lane, lanes), "") : some;
    }
    return r;
}
