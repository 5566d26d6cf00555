/* Types, constants and calls: the vocabulary of llvm_ops.c, llvm_memory.c and llvm_emit.c.
 *
 * Registers hold a bool as one bit, a float narrower than 32 bits as its bits in an integer (so no half type reaches
 * LLVM, and with it no helper function of a compiler's library), a sub-byte integer as a sign- or zero-extended byte.
 */
#include "codegen/llvm/llvm.h"

void emit_fail(struct emitter *e, const char *why)
{
    if (!e->error)
        e->error = why;
}

bool elem_is_float(enum elem elem)
{
    return elem_class(elem) == 'F';
}

bool elem_is_native_float(enum elem elem)
{
    return elem == ELEM_F32 || elem == ELEM_F64;
}

bool elem_is_signed(enum elem elem)
{
    return elem_class(elem) == 'I';
}

LLVMTypeRef type_scalar(struct emitter *e, enum elem elem)
{
    switch (elem) {
    case ELEM_F32: return e->f32;
    case ELEM_F64: return e->f64;
    case ELEM_BOOL: return e->i1;
    default: return type_memory(e, elem);
    }
}

LLVMTypeRef type_memory(struct emitter *e, enum elem elem)
{
    if (elem == ELEM_F32)
        return e->f32;
    if (elem == ELEM_F64)
        return e->f64;
    switch (elem_size(elem)) {
    case 1: return e->i8;
    case 2: return e->i16;
    case 4: return e->i32;
    case 8: return e->i64;
    case 16: return e->i128;
    default: emit_fail(e, "a value without an element type"); return e->i8;
    }
}

LLVMTypeRef type_lanes(LLVMTypeRef scalar, uint32_t lanes)
{
    return lanes == 1 ? scalar : LLVMVectorType(scalar, lanes);
}

LLVMTypeRef type_value(struct emitter *e, struct ltype type)
{
    return type.lanes == 0 ? e->ptr : type_lanes(type_scalar(e, type.elem), type.lanes);
}

static LLVMValueRef const_splat(LLVMValueRef scalar, uint32_t lanes)
{
    LLVMValueRef lane[256];
    if (lanes == 1)
        return scalar;
    for (uint32_t i = 0; i < lanes && i < COUNT_OF(lane); i++)
        lane[i] = scalar;
    return LLVMConstVector(lane, lanes < COUNT_OF(lane) ? lanes : COUNT_OF(lane));
}

LLVMValueRef const_int(struct emitter *e, LLVMTypeRef scalar, uint32_t lanes, int64_t value)
{
    (void)e;
    return const_splat(LLVMConstInt(scalar, (unsigned long long)value, true), lanes);
}

LLVMValueRef const_like(struct emitter *e, struct ltype t, int64_t value)
{
    return const_int(e, type_scalar(e, t.elem), t.lanes, value);
}

LLVMValueRef const_float(struct emitter *e, LLVMTypeRef scalar, uint32_t lanes, double value)
{
    (void)e;
    return const_splat(LLVMConstReal(scalar, value), lanes);
}

LLVMValueRef value_splat(struct emitter *e, LLVMValueRef scalar, uint32_t lanes)
{
    if (lanes == 1)
        return scalar;
    if (LLVMIsConstant(scalar) && !LLVMIsAConstantExpr(scalar))
        return const_splat(scalar, lanes);
    LLVMTypeRef vector = LLVMVectorType(LLVMTypeOf(scalar), lanes);
    LLVMValueRef first = LLVMBuildInsertElement(e->b, LLVMGetPoison(vector), scalar, LLVMConstInt(e->i64, 0, false),
                                                "");
    LLVMValueRef zeros = LLVMConstNull(LLVMVectorType(e->i32, lanes));
    return LLVMBuildShuffleVector(e->b, first, LLVMGetPoison(vector), zeros, "");
}

LLVMValueRef call_intrinsic(struct emitter *e, const char *name, LLVMTypeRef *types, unsigned n_types,
                            LLVMValueRef *args, unsigned n_args)
{
    unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    LLVMValueRef fn = LLVMGetIntrinsicDeclaration(e->module, id, types, n_types);
    LLVMTypeRef type = LLVMIntrinsicGetType(e->ctx, id, types, n_types);
    return LLVMBuildCall2(e->b, type, fn, args, n_args, "");
}

static LLVMAttributeRef attribute(struct emitter *e, const char *name)
{
    return LLVMCreateEnumAttribute(e->ctx, LLVMGetEnumAttributeKindForName(name, strlen(name)), 0);
}

/* riscv64 passes 32-bit integers sign-extended, whatever their signedness; LLVM needs the attribute at both ends. */
LLVMValueRef call_external(struct emitter *e, const char *name, LLVMTypeRef result, LLVMValueRef *args, unsigned n)
{
    LLVMTypeRef params[64];
    if (n > COUNT_OF(params)) {
        emit_fail(e, "a call with more than 64 arguments");
        n = COUNT_OF(params);
    }
    for (unsigned i = 0; i < n; i++)
        params[i] = LLVMTypeOf(args[i]);
    LLVMTypeRef type = LLVMFunctionType(result, params, n, false);
    LLVMValueRef fn = LLVMGetNamedFunction(e->module, name), call;
    if (!fn) {
        fn = LLVMAddFunction(e->module, name, type);
        LLVMSetVisibility(fn, LLVMHiddenVisibility);
        LLVMAddAttributeAtIndex(fn, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, attribute(e, "nounwind"));
    }
    call = LLVMBuildCall2(e->b, type, fn, args, n, "");
    for (unsigned i = 0; i < n && e->machine->arch == ARCH_RISCV64; i++)
        if (params[i] == e->i32)
            LLVMAddCallSiteAttribute(call, i + 1, attribute(e, "signext"));
    return call;
}

LLVMValueRef external_global(struct emitter *e, const char *name, LLVMTypeRef type)
{
    LLVMValueRef g = LLVMGetNamedGlobal(e->module, name);
    if (g)
        return g;
    g = LLVMAddGlobal(e->module, type, name);
    LLVMSetVisibility(g, LLVMHiddenVisibility);
    LLVMSetGlobalConstant(g, true);
    return g;
}
