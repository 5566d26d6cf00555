/* One loop-IR function -> one LLVM function of the native signature of runtime/rt.h.
 *
 *   void symbol(const i64 *args, i64 begin, i64 end, char *scratch, run *)
 *
 * Arguments are loaded from args at entry. An entry has C's parameters and result:
 *
 *   i32 symbol(i64 or pointer ..., char *memory)
 */
#include "codegen/llvm/llvm.h"

enum { COLD_LAUNCHES = 16 };

static void add_attribute(struct emitter *e, LLVMAttributeIndex at, const char *name, uint64_t value)
{
    unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
    LLVMAddAttributeAtIndex(e->fn, at, LLVMCreateEnumAttribute(e->ctx, kind, value));
}

static void add_string_attribute(struct emitter *e, const char *key, const char *value)
{
    LLVMAddAttributeAtIndex(
        e->fn, (LLVMAttributeIndex)LLVMAttributeFunctionIndex,
        LLVMCreateStringAttribute(e->ctx, key, (unsigned)strlen(key), value, (unsigned)strlen(value)));
}

/* Is it a program that launches many kernels one after the other, so that its own statements take next to none of a
 * run's time? */
static bool is_cold(const struct lfunc *f)
{
    uint32_t launches = 0;
    if (f->role != LROLE_PROGRAM)
        return false;
    for (uint32_t b = 1; b < f->blocks.n; b++)
        for (uint32_t i = 0; i < f->blocks.data[b].stmts.n; i++) {
            const struct lstmt *s = &f->blocks.data[b].stmts.data[i];
            if (s->op == L_FOR)
                return false;
            launches += s->op == L_LAUNCH;
        }
    return launches >= COLD_LAUNCHES;
}

/* The subtarget of code generation is the function's, not the target machine's: without these attributes an fma
 * becomes a call. */
static void add_attributes(struct emitter *e)
{
    add_attribute(e, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, "nounwind", 0);
    if (!e->machine->bare) /* call frames, at every instruction */
        add_attribute(e, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, "uwtable", 2);
    add_string_attribute(e, "target-cpu", e->machine->target.cpu);
    if (e->machine->target.features[0])
        add_string_attribute(e, "target-features", e->machine->target.features);
    if (e->machine->vector_width)
        add_string_attribute(e, "prefer-vector-width", e->machine->vector_width);
    if (e->is_static)
        add_string_attribute(e, "warn-stack-size", "0"); /* tells its frame (llvm_compile.c) */
    if (e->machine->arch == ARCH_X86_64 && is_cold(e->f)) { /* selects instructions one by one, a third of the time */
        add_attribute(e, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, "optnone", 0);
        add_attribute(e, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, "noinline", 0);
    }
}

static void declare_function(struct emitter *e, const char *symbol)
{
    LLVMTypeRef params[5] = {e->ptr, e->i64, e->i64, e->ptr, e->ptr};
    LLVMValueRef old = LLVMGetNamedFunction(e->module, symbol);
    e->fn = old ? old : LLVMAddFunction(e->module, symbol, LLVMFunctionType(e->nothing, params, 5, false));
    LLVMSetVisibility(e->fn, LLVMHiddenVisibility);
    add_attributes(e);
    for (LLVMAttributeIndex i = 1; i <= 5; i += i == 1 ? 3 : 1)
        add_attribute(e, i, "noalias", 0); /* args, scratch, run */
    e->begin = LLVMGetParam(e->fn, 1);
    e->end = LLVMGetParam(e->fn, 2);
    e->scratch = LLVMGetParam(e->fn, 3);
    e->run = LLVMGetParam(e->fn, 4);
}

static void declare_entry(struct emitter *e, const char *symbol)
{
    uint32_t n = e->f->args.n;
    LLVMTypeRef *params = calloc((size_t)n + 1, sizeof *params);
    if (!params || !n) {
        emit_fail(e, n ? EMIT_NO_MEMORY : "an entry without memory");
        free(params);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        params[i] = e->f->args.data[i].type.lanes == 0 ? e->ptr : e->i64;
    e->fn = LLVMAddFunction(e->module, symbol, LLVMFunctionType(e->i32, params, n, false));
    free(params);
    add_attributes(e);
    if (e->machine->arch == ARCH_RISCV64)
        add_attribute(e, (LLVMAttributeIndex)LLVMAttributeReturnIndex, "signext", 0); /* call_external */
    e->scratch = LLVMGetParam(e->fn, n - 1);
}

static void load_arguments(struct emitter *e)
{
    for (uint32_t i = 0; i < e->f->args.n; i++) {
        const struct larg *arg = &e->f->args.data[i];
        LLVMValueRef at = index_const(e, i);
        if (e->f->role == LROLE_ENTRY) {
            e->values[i + 1] = LLVMGetParam(e->fn, i);
            continue;
        }
        LLVMValueRef slot = LLVMBuildGEP2(e->b, e->i64, LLVMGetParam(e->fn, 0), &at, 1, "");
        e->values[i + 1] = LLVMBuildLoad2(e->b, arg->type.lanes == 0 ? e->ptr : e->i64, slot, "");
    }
}

static void make_launch_array(struct emitter *e)
{
    uint32_t longest = 0;
    for (uint32_t b = 1; b < e->f->blocks.n; b++)
        for (uint32_t i = 0; i < e->f->blocks.data[b].stmts.n; i++) {
            const struct lstmt *s = &e->f->blocks.data[b].stmts.data[i];
            if (s->op == L_LAUNCH && s->n_in > longest)
                longest = s->n_in;
        }
    if (longest)
        e->launch_args = LLVMBuildAlloca(e->b, LLVMArrayType2(e->i64, longest), "");
}

static void emit_body(struct emitter *e, const char *symbol)
{
    bool entry = e->f->role == LROLE_ENTRY;
    (entry ? declare_entry : declare_function)(e, symbol);
    if (e->error)
        return;
    debug_function(e, symbol);
    e->entry = block_new(e);
    LLVMPositionBuilderAtEnd(e->b, e->entry);
    e->index = index_const(e, 0);
    if (entry)
        static_begin(e);
    make_launch_array(e);
    load_arguments(e);
    matmul_begin(e);
    emit_block(e, (lblock){1}, NULL);
    if (!e->error) {
        emit_leave(e);
        address_sweep(e);
    }
}

/* A function of values, which is called and not inlined. symbol NULL: other objects do not call it. */
static void emit_part(struct emitter *e, const char *symbol)
{
    const uint32_t n = e->f->args.n;
    const struct lblk *body = &e->f->blocks.data[1];
    LLVMTypeRef params[8], result = type_value(e, lf_type(e->f, body->stmts.data[body->stmts.n - 1].in[0]));
    LLVMValueRef value = NULL;
    for (uint32_t i = 0; i < n && i < COUNT_OF(params); i++)
        params[i] = type_value(e, e->f->args.data[i].type);
    e->fn = LLVMAddFunction(e->module, symbol ? symbol : e->f->name, LLVMFunctionType(result, params, n, false));
    if (symbol)
        LLVMSetVisibility(e->fn, LLVMHiddenVisibility);
    else
        LLVMSetLinkage(e->fn, LLVMPrivateLinkage);
    add_attributes(e);
    e->debug = (struct debug){0};
    e->entry = block_new(e);
    LLVMPositionBuilderAtEnd(e->b, e->entry);
    for (uint32_t i = 0; i < n; i++)
        e->values[i + 1] = LLVMGetParam(e->fn, i);
    emit_block(e, (lblock){1}, &value);
    if (!e->error)
        LLVMBuildRet(e->b, value);
}

/* Emits with tables for the values of e->f. */
static void with_tables(struct emitter *e, const char *symbol)
{
    size_t n = e->f->types.n;
    e->values = calloc(n, sizeof *e->values);
    e->limit = malloc(n * sizeof *e->limit);
    e->local_offset = malloc(n * sizeof *e->local_offset);
    if (e->values && e->limit && e->local_offset) {
        memset(e->limit, 0xff, n * sizeof *e->limit); /* RANGE_UNKNOWN */
        memset(e->local_offset, 0xff, n * sizeof *e->local_offset);
        if (e->f->role == LROLE_VALUE)
            emit_part(e, symbol);
        else
            emit_body(e, symbol);
    } else {
        emit_fail(e, EMIT_NO_MEMORY);
    }
    free(e->values);
    free(e->limit);
    free(e->local_offset);
}

bool emit_function(struct emitter *e, const char *symbol)
{
    for (uint32_t i = 0; i < e->f->parts.n && !e->error; i++) {
        struct emitter part = *e;
        part.f = e->f->parts.data[i];
        with_tables(&part, NULL);
        e->error = part.error;
    }
    if (!e->error)
        with_tables(e, symbol);
    return !e->error;
}
