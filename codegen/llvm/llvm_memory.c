/* Memory statements: loads, stores, strided and indexed access, and how buffers are made from buffers.
 *
 * A buffer is an opaque pointer; the element type is the statement's. A bool is a byte in memory: any non-zero byte
 * loads as true, 0 or 1 is stored. Addresses are base + i64 index, not `inbounds`: the loop IR proves bounds of
 * accesses, not of addresses. Masked-out lanes are not touched and load as 0; where every second element is wanted,
 * those between two that exist are read too.
 */
#include "codegen/llvm/llvm.h"

struct access {
    struct ltype type;             /* register type of what moves */
    LLVMTypeRef scalar, vector;    /* the same in memory */
    LLVMValueRef base, index, stride, value, mask;
    uint32_t align;                /* bytes */
    uint32_t flags;
};

/* Where what is made of a mask of another block belongs: after it, so that no loop makes it again. Only AVX-512 has
 * registers for it. False: in the block at hand. */
static bool place_after_mask(struct emitter *e, LLVMValueRef mask)
{
    LLVMBasicBlockRef of = LLVMIsAInstruction(mask) ? LLVMGetInstructionParent(mask) : NULL;
    if (!of || of == LLVMGetInsertBlock(e->b) || LLVMIsAPHINode(mask) || e->machine->vector_bytes < 64)
        return false;
    LLVMValueRef next = LLVMGetNextInstruction(mask);
    if (next)
        LLVMPositionBuilderBefore(e->b, next);
    else
        LLVMPositionBuilderAtEnd(e->b, of);
    return true;
}

/* LLVM repeats a comparison of vectors in each block that uses it, unless it is frozen. */
static LLVMValueRef kept_mask(struct emitter *e, LLVMValueRef mask)
{
    const struct place here = place_of(e);
    if (!LLVMIsAICmpInst(mask) || LLVMGetTypeKind(LLVMTypeOf(mask)) != LLVMVectorTypeKind || !place_after_mask(e, mask))
        return mask;
    LLVMValueRef next = LLVMGetNextInstruction(mask), kept = next && LLVMIsAFreezeInst(next) ? next : NULL;
    if (!kept)
        kept = LLVMBuildFreeze(e->b, mask, "");
    place_again(e, here);
    return kept;
}

static struct access access_of(struct emitter *e, const struct lstmt *s)
{
    struct access a = {.type = s->type, .flags = s->flags, .align = s->align};
    bool stores = s->op == L_STORE || s->op == L_STORES || s->op == L_SCATTER;
    uint32_t next = 2;
    a.base = e->values[s->in[0].i];
    a.index = e->values[s->in[1].i];
    if (s->op == L_LOADS || s->op == L_STORES)
        a.stride = e->values[s->in[next++].i];
    if (stores) {
        a.type = lf_type(e->f, s->in[next]);
        a.value = e->values[s->in[next++].i];
    }
    if (next < s->n_in)
        a.mask = kept_mask(e, e->values[s->in[next].i]);
    a.scalar = type_memory(e, a.type.elem);
    a.vector = type_lanes(a.scalar, a.type.lanes);
    if (a.align == 0)
        a.align = elem_size(a.type.elem);
    return a;
}

static LLVMValueRef to_memory(struct emitter *e, const struct access *a)
{
    return a->type.elem == ELEM_BOOL ? LLVMBuildZExt(e->b, a->value, a->vector, "") : a->value;
}

static LLVMValueRef from_memory(struct emitter *e, const struct access *a, LLVMValueRef v)
{
    return a->type.elem != ELEM_BOOL ? v : LLVMBuildICmp(e->b, LLVMIntNE, v, LLVMConstNull(a->vector), "");
}

static void set_metadata(struct emitter *e, LLVMValueRef access, const char *kind, LLVMValueRef operand)
{
    LLVMMetadataRef list = operand ? LLVMValueAsMetadata(operand) : NULL;
    LLVMMetadataRef node = LLVMMDNodeInContext2(e->ctx, &list, operand ? 1 : 0);
    LLVMSetMetadata(access, LLVMGetMDKindIDInContext(e->ctx, kind, (unsigned)strlen(kind)),
                    LLVMMetadataAsValue(e->ctx, node));
}

void set_invariant(struct emitter *e, LLVMValueRef access)
{
    set_metadata(e, access, "invariant.load", NULL);
}

static void set_flags(struct emitter *e, const struct access *a, LLVMValueRef access)
{
    LLVMSetAlignment(access, a->align);
    if (a->flags & L_FLAG_INVARIANT && !a->value)
        set_invariant(e, access);
    if (a->flags & L_FLAG_NONTEMPORAL) {
        set_metadata(e, access, "nontemporal", LLVMConstInt(e->i32, 1, false));
        e->nontemporal = e->nontemporal || a->value;
    }
}

/* The masked intrinsics exist for vectors only: one lane travels as a vector of one. */
static LLVMValueRef as_vector(struct emitter *e, LLVMValueRef v)
{
    if (!v || LLVMGetTypeKind(LLVMTypeOf(v)) == LLVMVectorTypeKind)
        return v;
    LLVMValueRef none = LLVMGetPoison(LLVMVectorType(LLVMTypeOf(v), 1));
    return LLVMBuildInsertElement(e->b, none, v, LLVMConstInt(e->i64, 0, false), "");
}

static LLVMValueRef masked_load(struct emitter *e, const struct access *a, LLVMValueRef pointer)
{
    LLVMTypeRef vector = LLVMVectorType(a->scalar, a->type.lanes), types[2] = {vector, e->ptr};
    LLVMValueRef args[4] = {pointer, LLVMConstInt(e->i32, a->align, false), as_vector(e, a->mask),
                            LLVMConstNull(vector)};
    LLVMValueRef v = call_intrinsic(e, "llvm.masked.load", types, 2, args, 4);
    return a->type.lanes == 1 ? LLVMBuildExtractElement(e->b, v, LLVMConstInt(e->i64, 0, false), "") : v;
}

static void masked_store(struct emitter *e, const struct access *a, LLVMValueRef pointer)
{
    LLVMTypeRef types[2] = {LLVMVectorType(a->scalar, a->type.lanes), e->ptr};
    LLVMValueRef args[4] = {as_vector(e, to_memory(e, a)), pointer, LLVMConstInt(e->i32, a->align, false),
                            as_vector(e, a->mask)};
    call_intrinsic(e, "llvm.masked.store", types, 2, args, 4);
}

/* Room in the frame, made at the function's entry. */
static LLVMValueRef frame_room(struct emitter *e, LLVMTypeRef type, uint32_t align)
{
    const struct place here = place_of(e);
    LLVMValueRef first = LLVMGetFirstInstruction(e->entry), room;
    if (first)
        LLVMPositionBuilderBefore(e->b, first);
    else
        LLVMPositionBuilderAtEnd(e->b, e->entry);
    room = LLVMBuildAlloca(e->b, type, "");
    LLVMSetAlignment(room, align);
    place_again(e, here);
    return room;
}

/* Of one lane with a mask: LLVM has no code for such vectors where it has masked vectors of Arm. Without the lane it is
 * a word of the frame that is read, or written. */
static LLVMValueRef scalar_place(struct emitter *e, struct access *a, LLVMValueRef pointer)
{
    LLVMValueRef nowhere = frame_room(e, a->scalar, elem_size(a->type.elem));
    if (!a->value)
        LLVMBuildStore(e->b, LLVMConstNull(a->scalar), nowhere);
    pointer = LLVMBuildSelect(e->b, a->mask, pointer, nowhere, "");
    a->mask = NULL;
    a->flags = 0;
    a->align = elem_size(a->type.elem) < a->align ? elem_size(a->type.elem) : a->align;
    return pointer;
}

static bool is_masked_scalar(const struct emitter *e, const struct access *a)
{
    return a->mask && a->type.lanes == 1 && e->machine->arch == ARCH_ARM;
}

/* Bytes that fill words: a core without vectors would load each of them, though it reads words at any address. */
static bool is_words(const struct emitter *e, const struct access *a)
{
    return e->machine->dsp && elem_size(a->type.elem) == 1 && a->type.elem != ELEM_BOOL && !a->mask &&
           a->type.lanes % 4 == 0;
}

static LLVMValueRef load(struct emitter *e, struct access *a)
{
    LLVMValueRef pointer = address_of(e, a->scalar, a->base, a->index), v;
    if (is_masked_scalar(e, a))
        pointer = scalar_place(e, a, pointer);
    if (a->mask)
        return from_memory(e, a, masked_load(e, a, pointer));
    LLVMTypeRef memory = is_words(e, a) ? type_lanes(e->i32, a->type.lanes / 4) : a->vector;
    v = LLVMBuildLoad2(e->b, memory, pointer, "");
    set_flags(e, a, v);
    return from_memory(e, a, LLVMBuildBitCast(e->b, v, a->vector, ""));
}

static void store(struct emitter *e, struct access *a)
{
    LLVMValueRef pointer = address_of(e, a->scalar, a->base, a->index);
    if (is_masked_scalar(e, a))
        pointer = scalar_place(e, a, pointer);
    if (a->mask)
        masked_store(e, a, pointer);
    else
        set_flags(e, a, LLVMBuildStore(e->b, to_memory(e, a), pointer));
}

/* ---- lanes at addresses of their own ---- */

/* Pointers of lanes index + lane * stride. A constant stride keeps the lanes' offsets a small constant vector, which
 * x86 takes as 32-bit gather indices with a scalar base. */
static LLVMValueRef strided_pointers(struct emitter *e, const struct access *a)
{
    LLVMValueRef lane[256], first = address_of(e, a->scalar, a->base, a->index), offsets;
    bool fixed = LLVMIsAConstantInt(a->stride) != NULL;
    int64_t stride = fixed ? LLVMConstIntGetSExtValue(a->stride) : 1;
    bool narrow = fixed && stride < INT32_MAX / 256 && stride > INT32_MIN / 256;
    for (uint32_t i = 0; i < a->type.lanes; i++)
        lane[i] = LLVMConstInt(narrow ? e->i32 : e->i64, (uint64_t)i * (narrow ? (uint64_t)stride : 1), false);
    offsets = LLVMConstVector(lane, a->type.lanes);
    if (!narrow)
        offsets = LLVMBuildMul(e->b, offsets, value_splat(e, a->stride, a->type.lanes), "");
    return LLVMBuildGEP2(e->b, a->scalar, first, &offsets, 1, "");
}

static LLVMValueRef all_lanes(struct emitter *e, const struct access *a)
{
    return a->mask ? a->mask : LLVMConstAllOnes(LLVMVectorType(e->i1, a->type.lanes));
}

/* Eight bytes of zeros, which lanes read that read nothing. */
static LLVMValueRef zeros(struct emitter *e)
{
    LLVMValueRef g = LLVMGetNamedGlobal(e->module, "zeros");
    if (g)
        return g;
    g = LLVMAddGlobal(e->module, e->i64, "zeros");
    LLVMSetInitializer(g, LLVMConstNull(e->i64));
    LLVMSetLinkage(g, LLVMPrivateLinkage);
    LLVMSetGlobalConstant(g, true);
    return g;
}

/* Where the CPU does not gather, bytes and halves nowhere, LLVM loads lane by lane, with a branch around each that has
 * a mask which is not constant. Instead, lanes that do not exist read zeros: a third of the code. */
static LLVMValueRef load_each(struct emitter *e, const struct access *a, LLVMValueRef pointers)
{
    LLVMValueRef none = value_splat(e, zeros(e), a->type.lanes), v = LLVMGetPoison(a->vector);
    pointers = LLVMBuildSelect(e->b, a->mask, pointers, none, "");
    for (uint32_t i = 0; i < a->type.lanes; i++) {
        LLVMValueRef lane = LLVMConstInt(e->i64, i, false);
        LLVMValueRef x = LLVMBuildLoad2(e->b, a->scalar, LLVMBuildExtractElement(e->b, pointers, lane, ""), "");
        set_flags(e, a, x);
        v = LLVMBuildInsertElement(e->b, v, x, lane, "");
    }
    return from_memory(e, a, v);
}

static LLVMValueRef gather(struct emitter *e, const struct access *a, LLVMValueRef pointers)
{
    bool branches = a->mask && !e->machine->gathers && !LLVMIsConstant(a->mask);
    if (branches || (a->mask && elem_size(a->type.elem) <= 2))
        return load_each(e, a, pointers);
    LLVMTypeRef types[2] = {a->vector, LLVMTypeOf(pointers)};
    LLVMValueRef args[4] = {pointers, LLVMConstInt(e->i32, a->align, false), all_lanes(e, a), LLVMConstNull(a->vector)};
    return from_memory(e, a, call_intrinsic(e, "llvm.masked.gather", types, 2, args, 4));
}

/* By indices of a byte. */
static LLVMValueRef table(struct emitter *e, struct access *a)
{
    if (elem_size(a->type.elem) == 1)
        return from_memory(e, a, emit_byte_table(e, a->base, a->flags & L_FLAG_INVARIANT, a->index, a->type.lanes));
    a->index = LLVMBuildZExt(e->b, a->index, type_lanes(e->i64, a->type.lanes), "");
    return gather(e, a, address_of(e, a->scalar, a->base, a->index));
}

static void scatter(struct emitter *e, const struct access *a, LLVMValueRef pointers)
{
    LLVMTypeRef types[2] = {a->vector, LLVMTypeOf(pointers)};
    LLVMValueRef args[4] = {to_memory(e, a), pointers, LLVMConstInt(e->i32, a->align, false), all_lanes(e, a)};
    call_intrinsic(e, "llvm.masked.scatter", types, 2, args, 4);
}

/* Lanes to places a stride apart, one store each: with a constant stride each address is a displacement, and where the
 * CPU scatters, it takes as long. */
static void store_lanes(struct emitter *e, const struct access *a)
{
    LLVMValueRef first = address_of(e, a->scalar, a->base, a->index), v = to_memory(e, a);
    for (uint32_t i = 0; i < a->type.lanes; i++) {
        LLVMValueRef lane = LLVMConstInt(e->i64, i, false), far = LLVMBuildMul(e->b, lane, a->stride, "");
        LLVMValueRef pointer = LLVMBuildGEP2(e->b, a->scalar, first, &far, 1, "");
        set_flags(e, a, LLVMBuildStore(e->b, LLVMBuildExtractElement(e->b, v, lane, ""), pointer));
    }
}

/* ---- every second, third or fourth element ---- */

enum { MAX_STEP = 4 };

/* The stride, where as many loads and a shuffle or two serve instead of a gather, which costs a cycle a lane and more;
 * else 0. */
static uint32_t small_step(const struct emitter *e, const struct access *a)
{
    uint32_t size = elem_size(a->type.elem);
    if (!a->stride || a->value || !LLVMIsAConstantInt(a->stride))
        return 0;
    long long step = LLVMConstIntGetSExtValue(a->stride);
    if (step < 2 || step > MAX_STEP || a->type.lanes % 2 || (step > 2 && a->type.lanes < 4))
        return 0;
    return !a->mask || (e->machine->masks && (size == 4 || size == 8)) ? (uint32_t)step : 0;
}

static LLVMValueRef shuffled(struct emitter *e, LLVMValueRef a, LLVMValueRef b, const uint32_t *from, uint32_t n)
{
    LLVMValueRef lane[256];
    for (uint32_t i = 0; i < n; i++)
        lane[i] = LLVMConstInt(e->i32, from[i], false);
    return LLVMBuildShuffleVector(e->b, a, b, LLVMConstVector(lane, n), "");
}

/* Lanes `from` of a mask, of which number n is 0; all loads of a loop share them. */
static LLVMValueRef mask_lanes(struct emitter *e, LLVMValueRef mask, const uint32_t *from, uint32_t n)
{
    const struct place here = place_of(e);
    LLVMValueRef none = LLVMConstNull(LLVMTypeOf(mask));
    if (!place_after_mask(e, mask))
        return shuffled(e, mask, none, from, n);
    LLVMValueRef at = LLVMGetNextInstruction(mask);
    for (; at && LLVMIsAShuffleVectorInst(at) && LLVMGetOperand(at, 0) == mask; at = LLVMGetNextInstruction(at)) {
        uint32_t same = 0;
        while (same < n && LLVMGetMaskValue(at, same) == (int)from[same])
            same++;
        if (same == n)
            break;
    }
    bool made = at && LLVMIsAShuffleVectorInst(at) && LLVMGetOperand(at, 0) == mask;
    LLVMValueRef v = made ? at : shuffled(e, mask, none, from, n);
    place_again(e, here);
    return v;
}

/* `lanes` elements from pointer + skip, of which those at the places of lanes that exist are read. */
static LLVMValueRef load_around(struct emitter *e, const struct access *a, LLVMValueRef pointer, uint32_t skip,
                                uint32_t step)
{
    uint32_t from[256], n = a->type.lanes;
    struct access part = *a;
    LLVMValueRef at = LLVMConstInt(e->i64, skip, false);
    if (skip) {
        pointer = LLVMBuildGEP2(e->b, a->scalar, pointer, &at, 1, "");
        part.align = elem_size(a->type.elem);
    }
    if (!a->mask) {
        LLVMValueRef v = LLVMBuildLoad2(e->b, a->vector, pointer, "");
        set_flags(e, &part, v);
        return v;
    }
    for (uint32_t i = 0; i < n; i++)
        from[i] = (i + skip) % step == 0 ? (i + skip) / step : n;
    part.mask = mask_lanes(e, a->mask, from, n);
    return masked_load(e, &part, pointer);
}

/* One load after another, the last one ending with the last lane's element, so that nothing after it is read. */
static LLVMValueRef every_step(struct emitter *e, const struct access *a, uint32_t step)
{
    uint32_t from[256], n = a->type.lanes;
    LLVMValueRef pointer = address_of(e, a->scalar, a->base, a->index), result = NULL;
    for (uint32_t k = 0; k < step; k++) {
        uint32_t skip = k + 1 < step ? k * n : (n - 1) * (step - 1);
        LLVMValueRef part = load_around(e, a, pointer, skip, step);
        for (uint32_t i = 0; i < n; i++) {
            bool mine = i * step >= k * n && (k + 1 == step || i * step < (k + 1) * n);
            from[i] = mine ? i * step - skip + (k ? n : 0) : i;
        }
        result = shuffled(e, result ? result : part, part, from, n);
    }
    return from_memory(e, a, result);
}

/* ---- buffers ---- */

/* LOCAL: in kernels a place in the thread's scratch, in programs and plans in the native frame. One statement, one
 * place, however often unrolling emits it. */
static LLVMValueRef local(struct emitter *e, const struct lstmt *s)
{
    int64_t bytes = (s->imm * elem_size(s->type.elem) + 63) & ~(int64_t)63, *at = &e->local_offset[s->out[0].i];
    if (e->f->role == LROLE_KERNEL) {
        if (*at < 0) {
            *at = e->local_next;
            e->local_next += bytes;
        }
        return address_of(e, e->i8, e->scratch, LLVMConstInt(e->i64, (uint64_t)*at, false));
    }
    if (*at >= 0)
        return e->values[s->out[0].i];
    LLVMValueRef frame = frame_room(e, LLVMArrayType2(e->i8, (uint64_t)(bytes ? bytes : 64)), 64);
    *at = 0;
    return frame;
}

void emit_prefetch(struct emitter *e, LLVMValueRef address, bool near)
{
    enum { READ = 0, L1 = 3, L2 = 2, DATA = 1 };
    LLVMValueRef args[4] = {address, LLVMConstInt(e->i32, READ, 0), LLVMConstInt(e->i32, near ? L1 : L2, 0),
                            LLVMConstInt(e->i32, DATA, 0)};
    call_intrinsic(e, "llvm.prefetch", &e->ptr, 1, args, 4);
}

static LLVMValueRef prefetch(struct emitter *e, const struct lstmt *s)
{
    emit_prefetch(e, address_of(e, e->i8, e->values[s->in[0].i], e->values[s->in[1].i]), s->op == L_PREFETCH);
    return NULL;
}

LLVMValueRef emit_memory(struct emitter *e, const struct lstmt *s)
{
    struct access a;
    switch (s->op) {
    case L_LOCAL: return local(e, s);
    case L_OFFSET: return address_of(e, e->i8, e->values[s->in[0].i], e->values[s->in[1].i]);
    case L_PREFETCH:
    case L_PREFETCH2: return prefetch(e, s);
    case L_SHARED: return LLVMBuildICmp(e->b, LLVMIntEQ, e->values[s->in[0].i], e->values[s->in[1].i], "");
    case L_GLOBAL: return external_global(e, s->name, e->i8);
    case L_ADDRESS: return LLVMBuildIntToPtr(e->b, e->values[s->in[0].i], e->ptr, "");
    default: break;
    }
    a = access_of(e, s);
    bool indexed = a.type.lanes > 1 && s->op != L_LOAD && s->op != L_STORE;
    LLVMValueRef pointers = NULL;
    uint32_t step = indexed ? small_step(e, &a) : 0;
    if (step)
        return every_step(e, &a, step);
    if (indexed && a.value && a.stride && !a.mask) {
        store_lanes(e, &a);
        return NULL;
    }
    if (s->op == L_GATHER && operand_type(e, s, 1).elem == ELEM_U8)
        return table(e, &a);
    if (indexed)
        pointers = a.stride ? strided_pointers(e, &a) : address_of(e, a.scalar, a.base, a.index);
    if (!a.value)
        return indexed ? gather(e, &a, pointers) : load(e, &a);
    if (indexed)
        scatter(e, &a, pointers);
    else
        store(e, &a);
    return NULL;
}
