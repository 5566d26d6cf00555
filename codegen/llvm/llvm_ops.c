/* Computations: one loop-IR statement with one result -> LLVM instructions (ir/loop/loop.h says what each means).
 *
 * Scalars and vectors go the same way; LLVM legalises vectors wider than the machine. Nothing here may become
 * undefined behaviour of LLVM IR: divisors are guarded, shift amounts selected, conversions saturate.
 */
#include "codegen/llvm/llvm.h"

typedef LLVMValueRef emit_fn(struct emitter *, const struct lstmt *);

/* A word of what the launch's row has; the run begins with where that is. */
static LLVMValueRef data_word(struct emitter *e, const struct lstmt *s)
{
    LLVMValueRef data = LLVMBuildLoad2(e->b, e->ptr, e->run, ""), at = index_const(e, s->imm);
    LLVMValueRef word = LLVMBuildGEP2(e->b, e->i32, data, &at, 1, "");
    return LLVMBuildLoad2(e->b, type_scalar(e, s->type.elem), word, "");
}

static LLVMValueRef emit_const(struct emitter *e, const struct lstmt *s)
{
    unsigned char bytes[16] = {0};
    uint64_t bits = 0;
    LLVMTypeRef scalar = type_scalar(e, s->type.elem);
    if (s->flags & L_FLAG_DATA)
        return data_word(e, s);
    if (elem_is_native_float(s->type.elem))
        return const_float(e, scalar, s->type.lanes, s->fimm);
    if (!elem_is_float(s->type.elem))
        return const_int(e, scalar, s->type.lanes, s->imm);
    elem_from_f64(s->type.elem, s->fimm, bytes);
    memcpy(&bits, bytes, sizeof bits);
    return const_int(e, scalar, s->type.lanes, (int64_t)bits);
}

static LLVMValueRef unary_intrinsic(struct emitter *e, const struct lstmt *s, const char *name)
{
    LLVMTypeRef type = type_value(e, s->type);
    LLVMValueRef arg = operand(e, s, 0);
    return call_intrinsic(e, name, &type, 1, &arg, 1);
}

static LLVMValueRef emit_neg(struct emitter *e, const struct lstmt *s)
{
    return elem_is_float(s->type.elem) ? LLVMBuildFNeg(e->b, operand(e, s, 0), "")
                                       : LLVMBuildNeg(e->b, operand(e, s, 0), "");
}

static LLVMValueRef emit_abs(struct emitter *e, const struct lstmt *s)
{
    LLVMTypeRef type = type_value(e, s->type);
    LLVMValueRef args[2] = {operand(e, s, 0), LLVMConstInt(e->i1, 0, false)};
    if (elem_is_float(s->type.elem))
        return unary_intrinsic(e, s, "llvm.fabs");
    return elem_is_signed(s->type.elem) ? call_intrinsic(e, "llvm.abs", &type, 1, args, 2) : args[0];
}

static LLVMValueRef emit_sqrt(struct emitter *e, const struct lstmt *s)
{
    return unary_intrinsic(e, s, "llvm.sqrt");
}

/* Rounding without a rounding instruction: adding and subtracting 2^mantissa rounds to even, the rest are
 * corrections; arguments too large to have a fraction and NaN pass, the sign of zero stays. */
static LLVMValueRef round_by_magic(struct emitter *e, const struct lstmt *s)
{
    bool wide = s->type.elem == ELEM_F64;
    LLVMTypeRef type = type_value(e, s->type), scalar = type_scalar(e, s->type.elem);
    LLVMValueRef x = operand(e, s, 0), one = const_float(e, scalar, s->type.lanes, 1.0);
    LLVMValueRef zero = const_float(e, scalar, s->type.lanes, 0.0);
    LLVMValueRef magic = const_float(e, scalar, s->type.lanes, wide ? 0x1p52 : 0x1p23);
    LLVMValueRef mag = call_intrinsic(e, "llvm.fabs", &type, 1, &x, 1);
    LLVMValueRef r = LLVMBuildFSub(e->b, LLVMBuildFAdd(e->b, mag, magic, ""), magic, "");
    LLVMValueRef pair[2] = {r, x}, up, result;
    if (s->op == L_TRUNC) {
        up = LLVMBuildFCmp(e->b, LLVMRealOGT, r, mag, "");
        pair[0] = LLVMBuildFSub(e->b, r, LLVMBuildSelect(e->b, up, one, zero, ""), "");
    }
    result = call_intrinsic(e, "llvm.copysign", &type, 1, pair, 2);
    if (s->op == L_FLOOR || s->op == L_CEIL) {
        bool floor = s->op == L_FLOOR;
        up = LLVMBuildFCmp(e->b, floor ? LLVMRealOGT : LLVMRealOLT, result, x, "");
        one = LLVMBuildSelect(e->b, up, one, zero, "");
        pair[0] = floor ? LLVMBuildFSub(e->b, result, one, "") : LLVMBuildFAdd(e->b, result, one, "");
        result = call_intrinsic(e, "llvm.copysign", &type, 1, pair, 2);
    }
    return LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealOLT, mag, magic, ""), result, x, "");
}

static LLVMValueRef emit_round(struct emitter *e, const struct lstmt *s)
{
    static const char *const name[L_COUNT] = {
        [L_FLOOR] = "llvm.floor", [L_CEIL] = "llvm.ceil", [L_RINT] = "llvm.rint", [L_TRUNC] = "llvm.trunc"};
    return e->machine->round ? unary_intrinsic(e, s, name[s->op]) : round_by_magic(e, s);
}

static LLVMValueRef emit_not(struct emitter *e, const struct lstmt *s)
{
    return LLVMBuildNot(e->b, operand(e, s, 0), "");
}

/* ---- arithmetic ---- */

static LLVMValueRef emit_arith(struct emitter *e, const struct lstmt *s)
{
    static const struct {
        LLVMOpcode integer, real;
    } code[L_COUNT] = {[L_ADD] = {LLVMAdd, LLVMFAdd}, [L_SUB] = {LLVMSub, LLVMFSub}, [L_MUL] = {LLVMMul, LLVMFMul},
                       [L_AND] = {LLVMAnd, LLVMAnd},  [L_OR] = {LLVMOr, LLVMOr},     [L_XOR] = {LLVMXor, LLVMXor}};
    LLVMOpcode op = elem_is_float(s->type.elem) ? code[s->op].real : code[s->op].integer;
    LLVMValueRef looked_up = op == LLVMFSub ? lookup_less(e, operand(e, s, 0), operand(e, s, 1)) : NULL;
    return looked_up ? looked_up : LLVMBuildBinOp(e->b, op, operand(e, s, 0), operand(e, s, 1), "");
}

/* The same by name, for a whole register of x86: instruction selection finds it in a comparison and a selection, too,
 * but takes longer for that than for the rest of such a statement. NULL: there is none for this type. */
static LLVMValueRef x86_extreme(struct emitter *e, LLVMValueRef a, LLVMValueRef b, bool is_min)
{
    static const struct {
        uint32_t bytes;
        const char *name[2][2]; /* f32, f64; max, min */
    } known[] = {
        {16, {{"llvm.x86.sse.max.ps", "llvm.x86.sse.min.ps"}, {"llvm.x86.sse2.max.pd", "llvm.x86.sse2.min.pd"}}},
        {32,
         {{"llvm.x86.avx.max.ps.256", "llvm.x86.avx.min.ps.256"},
          {"llvm.x86.avx.max.pd.256", "llvm.x86.avx.min.pd.256"}}},
        {64,
         {{"llvm.x86.avx512.max.ps.512", "llvm.x86.avx512.min.ps.512"},
          {"llvm.x86.avx512.max.pd.512", "llvm.x86.avx512.min.pd.512"}}}};
    LLVMTypeRef type = LLVMTypeOf(a);
    LLVMValueRef args[3] = {a, b, LLVMConstInt(e->i32, 4, false)}; /* of 64 bytes: rounded as the CPU is set */
    if (!e->machine->vector_bytes || LLVMGetTypeKind(type) != LLVMVectorTypeKind ||
        (LLVMIsConstant(a) && LLVMIsConstant(b)))
        return NULL;
    bool wide = LLVMGetElementType(type) == e->f64;
    uint32_t bytes = LLVMGetVectorSize(type) * (wide ? 8 : 4);
    for (size_t i = 0; i < COUNT_OF(known); i++)
        if (known[i].bytes == bytes && bytes <= e->machine->vector_bytes)
            return call_intrinsic(e, known[i].name[wide][is_min], NULL, 0, args, bytes == 64 ? 3 : 2);
    return NULL;
}

/* a < b ? a : b or a > b ? a : b: what x86 has as one instruction. */
static LLVMValueRef select_extreme(struct emitter *e, LLVMValueRef a, LLVMValueRef b, bool is_min)
{
    LLVMValueRef one = x86_extreme(e, a, b, is_min);
    if (one)
        return one;
    LLVMValueRef c = LLVMBuildFCmp(e->b, is_min ? LLVMRealOLT : LLVMRealOGT, a, b, "");
    return LLVMBuildSelect(e->b, c, a, b, "");
}

/* A constant of which no lane is NaN: comparing constants gives a constant. */
static bool never_nan(struct emitter *e, LLVMValueRef v)
{
    return LLVMIsConstant(v) && LLVMIsNull(LLVMBuildFCmp(e->b, LLVMRealUNO, v, v, ""));
}

static LLVMValueRef extreme(struct emitter *e, enum lop op, struct ltype t, LLVMValueRef a, LLVMValueRef b)
{
    bool is_min = op == L_MIN || op == L_MINNUM, is_signed = elem_is_signed(t.elem);
    LLVMTypeRef type = type_value(e, t);
    LLVMValueRef args[2] = {a, b};
    if (!elem_is_float(t.elem)) {
        const char *name = is_min ? is_signed ? "llvm.smin" : "llvm.umin" : is_signed ? "llvm.smax" : "llvm.umax";
        return call_intrinsic(e, name, &type, 1, args, 2);
    }
    if (op == L_MINNUM || op == L_MAXNUM)
        return select_extreme(e, a, b, is_min);
    if (e->machine->arch == ARCH_AARCH64)
        return call_intrinsic(e, is_min ? "llvm.minimum" : "llvm.maximum", &type, 1, args, 2);
    if (never_nan(e, a) || never_nan(e, b)) /* the second operand wins when either is NaN: one instruction */
        return never_nan(e, a) ? select_extreme(e, a, b, is_min) : select_extreme(e, b, a, is_min);
    LLVMValueRef nan = LLVMBuildFCmp(e->b, LLVMRealUNO, a, a, "");
    return LLVMBuildSelect(e->b, nan, a, select_extreme(e, a, b, is_min), "");
}

static LLVMValueRef emit_extreme(struct emitter *e, const struct lstmt *s)
{
    return extreme(e, s->op, s->type, operand(e, s, 0), operand(e, s, 1));
}

static LLVMValueRef emit_shift(struct emitter *e, const struct lstmt *s)
{
    LLVMValueRef a = operand(e, s, 0), n = operand(e, s, 1);
    int64_t width = elem_bits(s->type.elem);
    LLVMValueRef fits = LLVMBuildICmp(e->b, LLVMIntULT, n, const_like(e, s->type, width), "");
    bool fills = s->op == L_SHR && elem_is_signed(s->type.elem);
    n = LLVMBuildSelect(e->b, fits, n, const_like(e, s->type, fills ? width - 1 : 0), "");
    if (fills)
        return LLVMBuildAShr(e->b, a, n, "");
    a = s->op == L_SHL ? LLVMBuildShl(e->b, a, n, "") : LLVMBuildLShr(e->b, a, n, "");
    return LLVMBuildSelect(e->b, fits, a, const_like(e, s->type, 0), "");
}

static LLVMValueRef emit_fma(struct emitter *e, const struct lstmt *s)
{
    LLVMTypeRef type = type_value(e, s->type);
    LLVMValueRef args[3] = {operand(e, s, 0), operand(e, s, 1), operand(e, s, 2)};
    if (s->type.elem == ELEM_F16)
        return half_fma(e, s->type.lanes, args);
    if (!elem_is_float(s->type.elem))
        return LLVMBuildAdd(e->b, LLVMBuildMul(e->b, args[0], args[1], ""), args[2], "");
    if (s->type.elem == ELEM_F64 ? e->machine->fma64 : e->machine->fma)
        return call_intrinsic(e, "llvm.fma", &type, 1, args, 3);
    if (e->machine->relaxed_madd && s->type.lanes * elem_size(s->type.elem) == 16)
        return call_intrinsic(e, "llvm.wasm.relaxed.madd", &type, 1, args, 3);
    return LLVMBuildFAdd(e->b, LLVMBuildFMul(e->b, args[0], args[1], ""), args[2], "");
}

static LLVMValueRef emit_compare(struct emitter *e, const struct lstmt *s)
{
    enum elem elem = operand_type(e, s, 0).elem;
    static const struct {
        LLVMRealPredicate real;
        LLVMIntPredicate with_sign, without;
    } code[L_COUNT] = {[L_EQ] = {LLVMRealOEQ, LLVMIntEQ, LLVMIntEQ},
                       [L_NE] = {LLVMRealUNE, LLVMIntNE, LLVMIntNE},
                       [L_LT] = {LLVMRealOLT, LLVMIntSLT, LLVMIntULT},
                       [L_LE] = {LLVMRealOLE, LLVMIntSLE, LLVMIntULE}};
    if (elem_is_float(elem))
        return LLVMBuildFCmp(e->b, code[s->op].real, operand(e, s, 0), operand(e, s, 1), "");
    LLVMIntPredicate whole = elem_is_signed(elem) ? code[s->op].with_sign : code[s->op].without;
    if (range_in_word(e, s->in[0]) && range_in_word(e, s->in[1]))
        return LLVMBuildICmp(e->b, whole, low_word(e, operand(e, s, 0)), low_word(e, operand(e, s, 1)), "");
    return LLVMBuildICmp(e->b, whole, operand(e, s, 0), operand(e, s, 1), "");
}

static LLVMValueRef emit_select(struct emitter *e, const struct lstmt *s)
{
    return LLVMBuildSelect(e->b, operand(e, s, 0), operand(e, s, 1), operand(e, s, 2), "");
}

/* ---- shapes of registers ---- */

static LLVMValueRef emit_convert_stmt(struct emitter *e, const struct lstmt *s)
{
    struct conversion how = {.saturate = s->imm != 0, .rounding = ROUND_EVEN};
    round_mode_by_name(s->name, &how.rounding);
    LLVMValueRef looked_up = lookup_convert(e, operand(e, s, 0), operand_type(e, s, 0).elem, s->type.elem,
                                            s->type.lanes);
    return looked_up ? looked_up
                     : emit_convert(e, operand(e, s, 0), operand_type(e, s, 0).elem, s->type.elem, s->type.lanes, how);
}

/* Lanes that were loaded just to be one word are loaded as that word: AArch64 would widen each and narrow it again. */
static LLVMValueRef load_as_word(struct emitter *e, LLVMValueRef lanes, LLVMTypeRef word)
{
    const struct place here = place_of(e);
    LLVMPositionBuilderBefore(e->b, lanes);
    LLVMValueRef v = LLVMBuildLoad2(e->b, word, LLVMGetOperand(lanes, 0), "");
    LLVMSetAlignment(v, LLVMGetAlignment(lanes));
    place_again(e, here);
    return v;
}

static LLVMValueRef emit_bitcast(struct emitter *e, const struct lstmt *s)
{
    if (e->machine->arch == ARCH_AARCH64 && LLVMIsALoadInst(operand(e, s, 0)) && operand_type(e, s, 0).lanes > 1 &&
        s->type.lanes == 1)
        return load_as_word(e, operand(e, s, 0), type_value(e, s->type));
    return LLVMBuildBitCast(e->b, operand(e, s, 0), type_value(e, s->type), "");
}

static LLVMValueRef emit_splat(struct emitter *e, const struct lstmt *s)
{
    if (s->type.elem == ELEM_F16 && e->machine->f16_math)
        return half_splat(e, operand(e, s, 0), s->type.lanes);
    return value_splat(e, operand(e, s, 0), s->type.lanes);
}

static LLVMValueRef emit_iota(struct emitter *e, const struct lstmt *s)
{
    LLVMValueRef lane[256];
    LLVMTypeRef scalar = type_scalar(e, s->type.elem);
    for (uint32_t i = 0; i < s->type.lanes && i < COUNT_OF(lane); i++)
        lane[i] = LLVMConstInt(scalar, i, false);
    return s->type.lanes == 1 ? lane[0] : LLVMConstVector(lane, s->type.lanes);
}

static LLVMValueRef emit_extract(struct emitter *e, const struct lstmt *s)
{
    if (operand_type(e, s, 0).lanes == 1)
        return operand(e, s, 0);
    LLVMValueRef lane = LLVMConstInt(e->i64, (unsigned long long)s->imm, false);
    if (s->type.elem == ELEM_F16 && e->machine->f16_math)
        return half_extract(e, operand(e, s, 0), operand_type(e, s, 0).lanes, lane);
    return LLVMBuildExtractElement(e->b, operand(e, s, 0), lane, "");
}

static LLVMValueRef emit_insert(struct emitter *e, const struct lstmt *s)
{
    LLVMValueRef lane = LLVMConstInt(e->i64, (unsigned long long)s->imm, false);
    if (s->type.lanes == 1)
        return operand(e, s, 1);
    return LLVMBuildInsertElement(e->b, operand(e, s, 0), operand(e, s, 1), lane, "");
}

LLVMValueRef shuffle_lanes(struct emitter *e, LLVMValueRef a, LLVMValueRef b, const uint8_t *list, uint32_t n)
{
    LLVMValueRef mask[256];
    if (n == 1) {
        uint32_t lanes = LLVMGetVectorSize(LLVMTypeOf(a));
        LLVMValueRef lane = LLVMConstInt(e->i64, list[0] % lanes, false);
        return LLVMBuildExtractElement(e->b, list[0] < lanes ? a : b, lane, "");
    }
    for (uint32_t i = 0; i < n; i++)
        mask[i] = LLVMConstInt(e->i32, list[i], false);
    return LLVMBuildShuffleVector(e->b, a, b, LLVMConstVector(mask, n), "");
}

static LLVMValueRef emit_shuffle(struct emitter *e, const struct lstmt *s)
{
    uint32_t lanes = operand_type(e, s, 0).lanes;
    if (lanes > 1)
        return shuffle_lanes(e, operand(e, s, 0), operand(e, s, 1), s->aux, s->n_aux);
    LLVMValueRef result = LLVMGetPoison(type_value(e, s->type));
    for (uint32_t i = 0; i < s->n_aux; i++) {
        LLVMValueRef v = operand(e, s, s->aux[i] ? 1 : 0);
        result = s->n_aux == 1 ? v : LLVMBuildInsertElement(e->b, result, v, LLVMConstInt(e->i64, i, false), "");
    }
    return result;
}

static LLVMValueRef combine(struct emitter *e, enum lop op, struct ltype t, LLVMValueRef a, LLVMValueRef b)
{
    bool real = elem_is_float(t.elem);
    switch (op) {
    case L_ADD: return real ? LLVMBuildFAdd(e->b, a, b, "") : LLVMBuildAdd(e->b, a, b, "");
    case L_MUL: return real ? LLVMBuildFMul(e->b, a, b, "") : LLVMBuildMul(e->b, a, b, "");
    case L_AND: return LLVMBuildAnd(e->b, a, b, "");
    case L_OR: return LLVMBuildOr(e->b, a, b, "");
    case L_XOR: return LLVMBuildXor(e->b, a, b, "");
    default: return extreme(e, op, t, a, b);
    }
}

/* Halves combined pairwise, lane i with lane i + n/2: the order that the interpreter has too. */
static LLVMValueRef emit_hreduce(struct emitter *e, const struct lstmt *s)
{
    struct ltype t = operand_type(e, s, 0);
    LLVMValueRef v = operand(e, s, 0);
    uint8_t low[256], high[256];
    while (t.lanes > 1) {
        uint32_t half = t.lanes / 2;
        for (uint32_t i = 0; i < half; i++) {
            low[i] = (uint8_t)i;
            high[i] = (uint8_t)(i + half);
        }
        LLVMValueRef a = shuffle_lanes(e, v, v, low, half), b = shuffle_lanes(e, v, v, high, half);
        t.lanes = half;
        v = combine(e, (enum lop)s->imm, t, a, b);
    }
    return v;
}

LLVMValueRef mask_all(struct emitter *e, LLVMValueRef mask, uint32_t lanes)
{
    if (lanes == 1)
        return mask;
    LLVMTypeRef bits = LLVMIntTypeInContext(e->ctx, lanes);
    mask = LLVMBuildBitCast(e->b, mask, bits, "");
    return LLVMBuildICmp(e->b, LLVMIntEQ, mask, LLVMConstAllOnes(bits), "");
}

LLVMValueRef emit_value(struct emitter *e, const struct lstmt *s)
{
    static emit_fn *const table[L_COUNT] = {
#define LOP(id, name, least, most, results, class, form, rule, exec, error, emit, elements) [L_##id] = emit,
#include "ir/loop/loop.def"
    };
    if (!table[s->op]) {
        emit_fail(e, "a statement that is not a computation");
        return LLVMGetPoison(type_value(e, s->type));
    }
    return table[s->op](e, s);
}
