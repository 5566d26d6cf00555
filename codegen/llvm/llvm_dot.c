/* L_DOT: products of bytes (u8 or i8 with i8) summed in fours, or of bf16 summed in twos, into 32-bit lanes, or all of
 * a register into one; L_MATDOT, the same of two rows by two columns.
 *
 * Where the machine has an instruction for it, a row of the table below says which. Elsewhere the lanes are taken apart
 * as 32-bit words: bytes into even and odd 16-bit halves, whose products an x86 adds in pairs without saturating (the
 * instruction that multiplies bytes directly saturates its sums: never used), or one by one; bf16 is the upper half
 * of an f32. What depends on one operand only is the same value wherever it is used, and selected once.
 */
#include "codegen/llvm/llvm.h"

/* The instructions, best first. typed: the intrinsic is overloaded on the types of sums and operands, which are the
 * elements themselves rather than words. first: of the first operand; the other one's bytes are signed. Where only the
 * form for the other signedness exists, a = (a ^ 128) + 128 or - 128 there: 128 times the sum of b's bytes is added or
 * subtracted, one value for all that b is multiplied with. matrix: L_MATDOT. overloads: types that the intrinsic's name
 * takes. */
struct dot_form {
    enum arch arch;
    const char *features[2];
    enum elem first, sum;
    uint32_t lanes;
    const char *intrinsic;
    bool typed, matrix;
    unsigned overloads;
};
static const struct dot_form dot_forms[] = {
#define VNNI ARCH_X86_64, {"+avx512vnni", "+avx512vl"}, ELEM_U8, ELEM_I32
#define BF16 ARCH_X86_64, {"+avx512bf16", "+avx512vl"}, ELEM_BF16, ELEM_F32
#define ARM(feature) ARCH_AARCH64, {feature, "+neon"}
    {VNNI, 4, "llvm.x86.avx512.vpdpbusd.128", false, false, 0},
    {VNNI, 8, "llvm.x86.avx512.vpdpbusd.256", false, false, 0},
    {VNNI, 16, "llvm.x86.avx512.vpdpbusd.512", false, false, 0},
    {BF16, 4, "llvm.x86.avx512bf16.dpbf16ps.128", true, false, 0},
    {BF16, 8, "llvm.x86.avx512bf16.dpbf16ps.256", true, false, 0},
    {BF16, 16, "llvm.x86.avx512bf16.dpbf16ps.512", true, false, 0},
    {ARM("+i8mm"), ELEM_U8, ELEM_I32, 2, "llvm.aarch64.neon.usdot", true, false, 2},
    {ARM("+i8mm"), ELEM_U8, ELEM_I32, 4, "llvm.aarch64.neon.usdot", true, false, 2},
    {ARM("+dotprod"), ELEM_I8, ELEM_I32, 2, "llvm.aarch64.neon.sdot", true, false, 2},
    {ARM("+dotprod"), ELEM_I8, ELEM_I32, 4, "llvm.aarch64.neon.sdot", true, false, 2},
    {ARM("+bf16"), ELEM_BF16, ELEM_F32, 2, "llvm.aarch64.neon.bfdot", true, false, 2},
    {ARM("+bf16"), ELEM_BF16, ELEM_F32, 4, "llvm.aarch64.neon.bfdot", true, false, 2},
    {ARM("+i8mm"), ELEM_U8, ELEM_I32, 4, "llvm.aarch64.neon.usmmla", true, true, 2},
    {ARM("+i8mm"), ELEM_I8, ELEM_I32, 4, "llvm.aarch64.neon.smmla", true, true, 2},
    {ARM("+bf16"), ELEM_BF16, ELEM_F32, 4, "llvm.aarch64.neon.bfmmla", true, true, 0},
#undef VNNI
#undef BF16
#undef ARM
};
_Static_assert(COUNT_OF(dot_forms) <= 32, "a bit of llvm_machine.dot_forms for each");

void dot_learn(struct llvm_machine *m)
{
    for (uint32_t i = 0; i < COUNT_OF(dot_forms); i++) {
        const struct dot_form *d = &dot_forms[i];
        if (d->arch == m->arch && machine_has(m->tm, d->features[0]) && machine_has(m->tm, d->features[1]))
            m->dot_forms |= 1u << i;
    }
}

struct words {
    struct emitter *e;
    LLVMTypeRef type;
    uint32_t lanes;
    enum elem first; /* of the first operand */
};

static LLVMValueRef count(const struct words *w, int64_t bits)
{
    return const_int(w->e, w->e->i32, w->lanes, bits);
}

/* Shifted right by 8 or more, with the sign or zeros: elements of type e. */
static LLVMValueRef shr(const struct words *w, enum elem e, LLVMValueRef x, LLVMValueRef bits)
{
    return elem_is_signed(e) ? LLVMBuildAShr(w->e->b, x, bits, "") : LLVMBuildLShr(w->e->b, x, bits, "");
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

/* 255 in every half of a word, as a value of the entry block: LLVM takes a constant for bytes that an instruction
 * moves, and looks for such an instruction again and again. */
static LLVMValueRef even_bytes(const struct words *w)
{
    struct emitter *e = w->e;
    LLVMValueRef *kept = &e->even_bytes[size_class(w->lanes)];
    if (*kept)
        return *kept;
    const struct place here = place_of(e);
    LLVMValueRef end = LLVMGetBasicBlockTerminator(e->entry);
    if (end)
        LLVMPositionBuilderBefore(e->b, end);
    else
        LLVMPositionBuilderAtEnd(e->b, e->entry);
    *kept = LLVMBuildFreeze(e->b, const_int(e, e->i16, 2 * w->lanes, 255), "");
    place_again(e, here);
    return *kept;
}

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
        args[0] = shr(w, w->first, a16, eight);
        args[1] = LLVMBuildAShr(build, b16, eight, "");
    } else {
        args[0] = w->first == ELEM_I8 ? LLVMBuildAShr(build, LLVMBuildShl(build, a16, eight, ""), eight, "")
                                      : LLVMBuildAnd(build, a16, even_bytes(w), "");
        args[1] = LLVMBuildAShr(build, LLVMBuildShl(build, b16, eight, ""), eight, "");
    }
    return LLVMBuildFreeze(build, call_fixed(w->e, names[size_class(w->lanes)], args, 2), "");
}

/* The even or the odd bytes of a word, each in a half of it: SMLAD multiplies halves and adds both products. */
static LLVMValueRef halves_of(const struct words *w, enum elem e, LLVMValueRef x, bool odd)
{
    LLVMValueRef turn[3] = {x, x, LLVMConstInt(w->e->i32, 8, false)};
    if (odd)
        x = call_intrinsic(w->e, "llvm.fshr", &w->e->i32, 1, turn, 3);
    return call_fixed(w->e, elem_is_signed(e) ? "llvm.arm.sxtb16" : "llvm.arm.uxtb16", &x, 1);
}

/* Lane by lane, which single registers are; a lane's sum wraps. */
static LLVMValueRef dot_bytes_dsp(const struct words *w, LLVMValueRef a, LLVMValueRef b, LLVMValueRef sum)
{
    LLVMBuilderRef build = w->e->b;
    for (uint32_t i = 0; i < w->lanes; i++) {
        LLVMValueRef at = LLVMConstInt(w->e->i32, i, false), one = w->lanes == 1 ? NULL : at;
        LLVMValueRef x = one ? LLVMBuildExtractElement(build, a, at, "") : a;
        LLVMValueRef y = one ? LLVMBuildExtractElement(build, b, at, "") : b;
        LLVMValueRef part = one ? LLVMBuildExtractElement(build, sum, at, "") : sum;
        for (int odd = 0; odd < 2; odd++) {
            LLVMValueRef args[3] = {halves_of(w, w->first, x, odd), halves_of(w, ELEM_I8, y, odd), part};
            part = call_fixed(w->e, "llvm.arm.smlad", args, 3);
        }
        sum = one ? LLVMBuildInsertElement(build, sum, part, at, "") : part;
    }
    /* No instruction: what the next products load stays after these, where registers are free by then. LLVM would
     * load for a whole body first, and keep sums in memory. */
    LLVMBuildFence(build, LLVMAtomicOrderingAcquireRelease, true, "");
    return sum;
}

static LLVMValueRef dot_bytes(const struct words *w, LLVMValueRef a, LLVMValueRef b, LLVMValueRef sum)
{
    LLVMBuilderRef build = w->e->b;
    int size = size_class(w->lanes);
    if (w->e->machine->dsp)
        return dot_bytes_dsp(w, a, b, sum);
    if (size >= 0 && w->e->machine->madd[size]) {
        /* One after the other, so that one register serves both: a tile has none to spare. */
        sum = LLVMBuildAdd(build, sum, pair_products(w, a, b, true), "");
        return LLVMBuildAdd(build, sum, pair_products(w, a, b, false), "");
    }
    for (int64_t k = 0; k < 4; k++) {
        LLVMValueRef x = shr(w, w->first, shl(w, a, 24 - 8 * k), count(w, 24));
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
    for (int upper = 1; upper >= 0; upper--) {
        LLVMValueRef args[3] = {half_of(w, a, upper), half_of(w, b, upper), sum};
        LLVMTypeRef type = LLVMTypeOf(sum);
        sum = w->e->machine->fma ? call_intrinsic(w->e, "llvm.fma", &type, 1, args, 3)
                                 : LLVMBuildFAdd(w->e->b, LLVMBuildFMul(w->e->b, args[0], args[1], ""), sum, "");
    }
    return sum;
}

/* ---- instructions ------------------------------------------------------------------------------------------------ */

static const struct dot_form *form_of(const struct emitter *e, enum elem first, struct ltype sum, bool matrix)
{
    for (uint32_t i = 0; i < COUNT_OF(dot_forms); i++)
        if (e->machine->dot_forms >> i & 1 && dot_forms[i].first == first && dot_forms[i].sum == sum.elem &&
            dot_forms[i].lanes == sum.lanes && dot_forms[i].matrix == matrix)
            return &dot_forms[i];
    return NULL;
}

static LLVMValueRef call_form(const struct words *w, const struct dot_form *d, LLVMValueRef sum, LLVMValueRef a,
                              LLVMValueRef b)
{
    struct emitter *e = w->e;
    bool swap = d->arch == ARCH_AARCH64 && !d->matrix &&
                d->first != ELEM_U8; /* one lane for all, which the first operand often is, comes last */
    LLVMValueRef args[3] = {sum, swap ? b : a, swap ? a : b};
    if (!d->typed)
        return call_fixed(e, d->intrinsic, args, 3);
    LLVMTypeRef element = d->sum == ELEM_F32 ? LLVMBFloatTypeInContext(e->ctx) : e->i8;
    LLVMTypeRef types[2] = {LLVMTypeOf(sum), LLVMVectorType(element, (d->sum == ELEM_F32 ? 2 : 4) * w->lanes)};
    for (int o = 1; o < 3; o++)
        args[o] = LLVMBuildBitCast(e->b, args[o], types[1], "");
    return call_intrinsic(e, d->intrinsic, types, d->overloads, args, 3);
}

/* By the form for first operands of the other signedness. */
static LLVMValueRef dot_turned(const struct words *w, const struct dot_form *d, LLVMValueRef a, LLVMValueRef b,
                               LLVMValueRef sum)
{
    LLVMBuilderRef build = w->e->b;
    LLVMValueRef more = shl(w, call_form(w, d, count(w, 0), count(w, 0x01010101), b), 7);
    sum = w->first == ELEM_U8 ? LLVMBuildAdd(build, sum, more, "") : LLVMBuildSub(build, sum, more, "");
    return call_form(w, d, sum, LLVMBuildXor(build, a, count(w, (int32_t)0x80808080), ""), b);
}

static LLVMValueRef dot_words(const struct words *w, enum elem sum_elem, LLVMValueRef a, LLVMValueRef b,
                              LLVMValueRef sum)
{
    struct ltype t = {sum_elem, w->lanes};
    const struct dot_form *d = form_of(w->e, w->first, t, false);
    if (d)
        return call_form(w, d, sum, a, b);
    if (sum_elem == ELEM_F32)
        return dot_halves(w, a, b, sum);
    d = form_of(w->e, w->first == ELEM_U8 ? ELEM_I8 : ELEM_U8, t, false);
    return d ? dot_turned(w, d, a, b, sum) : dot_bytes(w, a, b, sum);
}

/* All bytes into one lane. MVE has an instruction for it (VMLADAVA), which LLVM selects. */
static LLVMValueRef dot_register(struct emitter *e, const struct lstmt *s)
{
    struct ltype a = lf_type(e->f, s->in[0]);
    LLVMTypeRef wide = LLVMVectorType(e->i32, a.lanes);
    LLVMValueRef x = e->values[s->in[0].i], y = LLVMBuildSExt(e->b, e->values[s->in[1].i], wide, "");
    x = a.elem == ELEM_I8 ? LLVMBuildSExt(e->b, x, wide, "") : LLVMBuildZExt(e->b, x, wide, "");
    LLVMValueRef product = LLVMBuildMul(e->b, x, y, "");
    return LLVMBuildAdd(e->b, e->values[s->in[2].i], call_intrinsic(e, "llvm.vector.reduce.add", &wide, 1, &product, 1),
                        "");
}

/* v as words: as what it was loaded, since bytes that live from one block into another lie in a register each. */
static LLVMValueRef as_words(struct emitter *e, LLVMValueRef v, LLVMTypeRef type)
{
    LLVMValueRef loaded = LLVMIsABitCastInst(v) ? LLVMGetOperand(v, 0) : NULL;
    return loaded && LLVMTypeOf(loaded) == type ? loaded : LLVMBuildBitCast(e->b, v, type, "");
}

static struct words words_of(struct emitter *e, const struct lstmt *s, LLVMValueRef in[3])
{
    struct words w = {e, s->type.lanes == 1 ? e->i32 : LLVMVectorType(e->i32, s->type.lanes), s->type.lanes,
                      lf_type(e->f, s->in[0]).elem};
    for (int o = 0; o < 2; o++)
        in[o] = as_words(e, e->values[s->in[o].i], w.type);
    in[2] = e->values[s->in[2].i];
    return w;
}

LLVMValueRef emit_dot(struct emitter *e, const struct lstmt *s)
{
    LLVMValueRef in[3];
    if (lf_type(e->f, s->in[0]).lanes > 4 * s->type.lanes)
        return dot_register(e, s);
    struct words w = words_of(e, s, in);
    return dot_words(&w, s->type.elem, in[0], in[1], in[2]);
}

LLVMValueRef emit_matdot(struct emitter *e, const struct lstmt *s)
{
    LLVMValueRef in[3];
    struct words w = words_of(e, s, in);
    const struct dot_form *d = form_of(e, w.first, s->type, true);
    if (d)
        return call_form(&w, d, in[2], in[0], in[1]);
    for (uint32_t step = 0; step < 2; step++) {
        uint8_t row[256], column[256];
        for (uint32_t i = 0; i < w.lanes; i++) {
            row[i] = (uint8_t)matdot_row(i, step);
            column[i] = (uint8_t)matdot_column(i, step);
        }
        LLVMValueRef a = shuffle_lanes(e, in[0], in[0], row, w.lanes);
        LLVMValueRef b = shuffle_lanes(e, in[1], in[1], column, w.lanes);
        in[2] = dot_words(&w, s->type.elem, a, b, in[2]);
    }
    return in[2];
}
