/* One loop-IR function -> one LLVM function of the native signature of runtime/rt.h.
 *
 *   void symbol(const i64 *args, i64 begin, i64 end, char *scratch, run *)
 *
 * Arguments are loaded from args at entry. A kernel's `parallel` loop runs over [begin, end). Values that loops carry
 * are phis, so accumulators live in registers without any IR pass. Loops are emitted rotated (one branch a trip). A
 * failing check records itself through mcc_rt_fail and leaves the function. An entry has C's parameters and result:
 *
 *   i32 symbol(i64 or pointer ..., char *memory)
 */
#include "codegen/llvm.h"

#include <stdlib.h>
#include <string.h>

enum {
    DEPTH_MAX = 250, /* nested blocks; the parser refuses earlier */
    COLD_LAUNCHES = 16
};

static void emit_block(struct emitter *, lblock, LLVMValueRef *yields);

static LLVMValueRef in(struct emitter *e, const struct lstmt *s, uint32_t i)
{
    return e->values[s->in[i].i];
}

static LLVMBasicBlockRef block_new(struct emitter *e)
{
    return LLVMAppendBasicBlockInContext(e->ctx, e->fn, "");
}

static LLVMValueRef index_const(struct emitter *e, int64_t value)
{
    return LLVMConstInt(e->i64, (uint64_t)value, false);
}

static void leave(struct emitter *e)
{
    if (e->nontemporal)
        LLVMBuildFence(e->b, LLVMAtomicOrderingSequentiallyConsistent, false, "");
    if (e->f->role == LROLE_ENTRY)
        LLVMBuildRet(e->b, static_code(e));
    else
        LLVMBuildRetVoid(e->b);
}

/* Branches to a fresh block that goes on when ok, to `bad` when not; expects ok. */
static void branch_ok(struct emitter *e, LLVMValueRef ok, LLVMBasicBlockRef bad)
{
    LLVMBasicBlockRef good = block_new(e);
    LLVMValueRef br = LLVMBuildCondBr(e->b, ok, good, bad);
    LLVMMetadataRef weight[3] = {LLVMMDStringInContext2(e->ctx, "branch_weights", 14),
                                 LLVMValueAsMetadata(LLVMConstInt(e->i32, 1000000, false)),
                                 LLVMValueAsMetadata(LLVMConstInt(e->i32, 1, false))};
    LLVMSetMetadata(br, LLVMGetMDKindIDInContext(e->ctx, "prof", 4),
                    LLVMMetadataAsValue(e->ctx, LLVMMDNodeInContext2(e->ctx, weight, 3)));
    LLVMPositionBuilderAtEnd(e->b, good);
}

/* One block leaves a program or entry for all launches and calls; a kernel's fence depends on where it is left. */
static void leave_unless(struct emitter *e, LLVMValueRef ok)
{
    bool known = e->exit && e->f->role != LROLE_KERNEL;
    LLVMBasicBlockRef bad = known ? e->exit : block_new(e), here;
    branch_ok(e, ok, bad);
    if (known)
        return;
    here = LLVMGetInsertBlock(e->b);
    LLVMPositionBuilderAtEnd(e->b, bad);
    leave(e);
    LLVMPositionBuilderAtEnd(e->b, here);
    e->exit = bad;
}

static void emit_check(struct emitter *e, const struct lstmt *s)
{
    LLVMBasicBlockRef bad = block_new(e), here;
    branch_ok(e, mask_all(e, in(e, s, 0), lf_type(e->f, s->in[0]).lanes), bad);
    here = LLVMGetInsertBlock(e->b);
    LLVMPositionBuilderAtEnd(e->b, bad);
    if (e->is_static) {
        static_fail(e, s->imm);
    } else {
        LLVMValueRef text = LLVMBuildGlobalStringPtr(e->b, s->name ? s->name : "", "");
        LLVMValueRef args[5] = {e->run, LLVMConstInt(e->i32, (uint64_t)s->imm, true),
                                LLVMConstInt(e->i32, s->node, false), text, e->index};
        call_external(e, "mcc_rt_fail", e->nothing, args, 5);
    }
    leave(e);
    LLVMPositionBuilderAtEnd(e->b, here);
}

/* ---- loops ---- */

struct loop {
    const struct lstmt *s;
    const struct lblk *body;
    uint32_t n_carried;
    bool is_while, in_word; /* the variable and its bounds are the low words of indices */
};

static LLVMValueRef bound_of(struct emitter *e, const struct loop *l, uint32_t i)
{
    return l->in_word ? low_word(e, in(e, l->s, i)) : in(e, l->s, i);
}

/* Would the variable and the sum after its last trip fit? */
static bool fits_word(const struct emitter *e, const struct lstmt *s, int64_t step)
{
    return range_in_word(e, s->in[0]) && range_in_word(e, s->in[1]) && step < INT32_MAX &&
           e->limit[s->in[1].i] <= (uint64_t)(INT32_MAX - step);
}

/* May another trip start? The variable is below the bound and, in a while, the first carried value is true. */
static LLVMValueRef trip_starts(struct emitter *e, const struct loop *l, LLVMValueRef var, LLVMValueRef first)
{
    LLVMValueRef more = LLVMBuildICmp(e->b, LLVMIntSLT, var, bound_of(e, l, 1), "");
    return l->is_while ? LLVMBuildAnd(e->b, more, first, "") : more;
}

/* Is there a trip after the one at var? With step 1 the sum cannot pass the bound; a larger step could wrap near the
 * end of the integers, so there it is the distance left that is compared. */
static LLVMValueRef trip_follows(struct emitter *e, const struct loop *l, LLVMValueRef var, LLVMValueRef *next,
                                 LLVMValueRef first)
{
    LLVMValueRef step = LLVMConstInt(LLVMTypeOf(var), (uint64_t)l->s->imm, false), hi = bound_of(e, l, 1), more;
    bool near = l->in_word || (LLVMIsAConstantInt(hi) && LLVMConstIntGetSExtValue(hi) <= INT64_MAX - l->s->imm);
    if (l->s->imm == 1 || near) {
        *next = LLVMBuildNSWAdd(e->b, var, step, "");
        return trip_starts(e, l, *next, first);
    }
    *next = LLVMBuildAdd(e->b, var, step, "");
    more = LLVMBuildICmp(e->b, LLVMIntUGT, LLVMBuildSub(e->b, hi, var, ""), step, "");
    return l->is_while ? LLVMBuildAnd(e->b, more, first, "") : more;
}

/* Loops of programs have as many trips as the data says: cancelling must end them. */
static void emit_poll(struct emitter *e)
{
    if (e->f->role != LROLE_PROGRAM || e->is_static)
        return;
    LLVMValueRef status = call_external(e, "mcc_rt_poll", e->i64, &e->run, 1);
    leave_unless(e, LLVMBuildICmp(e->b, LLVMIntEQ, status, index_const(e, 0), ""));
}

static void emit_for_loop(struct emitter *e, const struct loop *l)
{
    const struct lstmt *s = l->s;
    uint32_t n = l->n_carried;
    LLVMValueRef *slots = calloc(3 * (size_t)n + 3, sizeof *slots);
    if (!slots) {
        emit_fail(e, EMIT_NO_MEMORY);
        return;
    }
    LLVMValueRef *phi = slots, *yields = slots + n + 1, *outs = slots + 2 * (size_t)n + 2;
    LLVMBasicBlockRef from = LLVMGetInsertBlock(e->b), body = block_new(e), done = block_new(e), latch;
    LLVMValueRef first = n ? in(e, s, 2) : NULL, again, var, next, start = bound_of(e, l, 0);
    LLVMValueRef starts = trip_starts(e, l, start, first);
    bool always = LLVMIsAConstantInt(starts) && LLVMConstIntGetZExtValue(starts);
    if (always)
        LLVMBuildBr(e->b, body);
    else
        LLVMBuildCondBr(e->b, starts, body, done);

    LLVMPositionBuilderAtEnd(e->b, body);
    var = LLVMBuildPhi(e->b, LLVMTypeOf(start), "");
    range_of_variable(e, l->body->params.data[0], s->in[0], s->in[1]);
    for (uint32_t i = 0; i < n; i++)
        e->values[l->body->params.data[i + 1].i] = phi[i] = LLVMBuildPhi(e->b, LLVMTypeOf(in(e, s, i + 2)), "");
    e->values[l->body->params.data[0].i] = l->in_word ? LLVMBuildZExt(e->b, var, e->i64, "") : var;
    emit_poll(e);
    emit_block(e, s->block[0], yields);
    if (!e->error) {
        again = trip_follows(e, l, var, &next, n ? yields[0] : NULL);
        latch = LLVMGetInsertBlock(e->b);
        LLVMBuildCondBr(e->b, again, body, done);
        LLVMAddIncoming(var, (LLVMValueRef[]){start, next}, (LLVMBasicBlockRef[]){from, latch}, 2);
        LLVMPositionBuilderAtEnd(e->b, done);
        for (uint32_t i = 0; i < n; i++) {
            LLVMAddIncoming(phi[i], (LLVMValueRef[]){in(e, s, i + 2), yields[i]}, (LLVMBasicBlockRef[]){from, latch},
                            2);
            outs[i] = yields[i];
            if (always)
                continue;
            outs[i] = LLVMBuildPhi(e->b, LLVMTypeOf(phi[i]), "");
            LLVMAddIncoming(outs[i], (LLVMValueRef[]){in(e, s, i + 2), yields[i]}, (LLVMBasicBlockRef[]){from, latch},
                            2);
        }
        for (uint32_t i = 0; i < n; i++)
            e->values[s->out[i].i] = outs[i];
    }
    free(slots);
}

/* Emits the body once per trip; bounds are constants. */
static void emit_for_unrolled(struct emitter *e, const struct loop *l, int64_t lo, int64_t hi)
{
    const struct lstmt *s = l->s;
    LLVMValueRef *carried = calloc((size_t)l->n_carried + 1, sizeof *carried);
    if (!carried) {
        emit_fail(e, EMIT_NO_MEMORY);
        return;
    }
    for (uint32_t i = 0; i < l->n_carried; i++)
        carried[i] = in(e, s, i + 2);
    for (int64_t at = lo; at < hi && !e->error; at += s->imm) {
        e->values[l->body->params.data[0].i] = index_const(e, at);
        for (uint32_t i = 0; i < l->n_carried; i++)
            e->values[l->body->params.data[i + 1].i] = carried[i];
        emit_block(e, s->block[0], carried);
        if (hi - at <= s->imm)
            break;
    }
    for (uint32_t i = 0; i < l->n_carried; i++)
        e->values[s->out[i].i] = carried[i];
    free(carried);
}

static void emit_for(struct emitter *e, const struct lstmt *s)
{
    struct loop l = {s, &e->f->blocks.data[s->block[0].i], s->n_in - 2, s->flags & L_FLAG_WHILE,
                     fits_word(e, s, s->imm)};
    LLVMValueRef lo = in(e, s, 0), hi = in(e, s, 1);
    bool fixed = LLVMIsAConstantInt(lo) && LLVMIsAConstantInt(hi);
    if (s->flags & L_FLAG_UNROLL && fixed && !l.is_while)
        emit_for_unrolled(e, &l, LLVMConstIntGetSExtValue(lo), LLVMConstIntGetSExtValue(hi));
    else
        emit_for_loop(e, &l);
}

/* The variable runs from begin to end: the caller's chunk of [lo, hi). */
static void emit_parallel(struct emitter *e, const struct lstmt *s)
{
    const struct lblk *body_ir = &e->f->blocks.data[s->block[0].i];
    LLVMBasicBlockRef from = LLVMGetInsertBlock(e->b), body = block_new(e), done = block_new(e);
    bool in_word = fits_word(e, s, 1);
    LLVMValueRef begin = in_word ? low_word(e, e->begin) : e->begin, end = in_word ? low_word(e, e->end) : e->end, next;
    LLVMBuildCondBr(e->b, LLVMBuildICmp(e->b, LLVMIntSLT, begin, end, ""), body, done);
    LLVMPositionBuilderAtEnd(e->b, body);
    LLVMValueRef var = LLVMBuildPhi(e->b, LLVMTypeOf(begin), "");
    e->index = in_word ? LLVMBuildZExt(e->b, var, e->i64, "") : var;
    e->values[body_ir->params.data[0].i] = e->index;
    range_of_variable(e, body_ir->params.data[0], s->in[0], s->in[1]);
    emit_block(e, s->block[0], NULL);
    if (e->error)
        return;
    next = LLVMBuildNSWAdd(e->b, var, LLVMConstInt(LLVMTypeOf(var), 1, false), "");
    LLVMAddIncoming(var, (LLVMValueRef[]){begin, next}, (LLVMBasicBlockRef[]){from, LLVMGetInsertBlock(e->b)}, 2);
    LLVMBuildCondBr(e->b, LLVMBuildICmp(e->b, LLVMIntSLT, next, end, ""), body, done);
    LLVMPositionBuilderAtEnd(e->b, done);
}

static void emit_if(struct emitter *e, const struct lstmt *s)
{
    LLVMBasicBlockRef start[2] = {block_new(e), NULL}, done, end[2];
    LLVMValueRef *yields = calloc(2 * (size_t)s->n_out + 2, sizeof *yields);
    bool has_else = s->block[1].i != 0;
    if (!yields) {
        emit_fail(e, EMIT_NO_MEMORY);
        return;
    }
    start[1] = block_new(e);
    done = has_else ? block_new(e) : start[1];
    LLVMBuildCondBr(e->b, in(e, s, 0), start[0], start[1]);
    for (uint32_t k = 0; k < (has_else ? 2u : 1u) && !e->error; k++) {
        LLVMPositionBuilderAtEnd(e->b, start[k]);
        emit_block(e, s->block[k], yields + (size_t)k * s->n_out);
        end[k] = LLVMGetInsertBlock(e->b);
        LLVMBuildBr(e->b, done);
    }
    LLVMPositionBuilderAtEnd(e->b, done);
    for (uint32_t i = 0; i < s->n_out && !e->error; i++) {
        LLVMValueRef phi = LLVMBuildPhi(e->b, type_value(e, lf_type(e->f, s->out[i])), "");
        LLVMAddIncoming(phi, (LLVMValueRef[]){yields[i], yields[s->n_out + i]}, end, 2);
        e->values[s->out[i].i] = phi;
    }
    free(yields);
}

/* ---- calls ---- */

static void emit_call(struct emitter *e, const struct lstmt *s)
{
    LLVMValueRef args[64] = {e->run}, result;
    if (s->n_in + 1 > COUNT_OF(args)) {
        emit_fail(e, "a call with more than 63 arguments");
        return;
    }
    for (uint32_t i = 0; i < s->n_in; i++)
        args[i + 1] = in(e, s, i);
    result = e->is_static ? static_call(e, s) : call_external(e, s->name, e->i64, args, s->n_in + 1);
    if (s->n_out)
        e->values[s->out[0].i] = result;
    if (s->flags & L_FLAG_MAYFAIL)
        leave_unless(e, LLVMBuildICmp(e->b, LLVMIntSGE, result, index_const(e, 0), ""));
}

static LLVMValueRef kernel_function(struct emitter *e, const char *name)
{
    LLVMTypeRef params[5] = {e->ptr, e->i64, e->i64, e->ptr, e->ptr};
    LLVMValueRef fn = LLVMGetNamedFunction(e->module, name);
    if (fn)
        return fn;
    fn = LLVMAddFunction(e->module, name, LLVMFunctionType(e->nothing, params, 5, false));
    LLVMSetVisibility(fn, LLVMHiddenVisibility);
    return fn;
}

/* mcc_rt_launch returns when the kernel is done, so one argument array in the frame serves every launch. The kernel's
 * number comes from the artifact's table: the constant KERNEL.index. */
static void emit_launch(struct emitter *e, const struct lstmt *s)
{
    char name[512];
    LLVMValueRef args[6], value, number;
    size_t length = strlen(s->name);
    if (length + sizeof ".index" > sizeof name) {
        emit_fail(e, "a kernel name of more than 500 bytes");
        return;
    }
    for (uint32_t i = 0; i + 1 < s->n_in; i++) {
        value = in(e, s, i);
        if (lf_type(e->f, s->in[i]).lanes == 0)
            value = LLVMBuildPtrToInt(e->b, value, e->i64, "");
        LLVMValueRef at = index_const(e, i);
        LLVMBuildStore(e->b, value, LLVMBuildGEP2(e->b, e->i64, e->launch_args, &at, 1, ""));
    }
    if (e->is_static) {
        LLVMValueRef count = in(e, s, s->n_in - 1);
        leave_unless(e, static_launch(e, kernel_function(e, s->name), e->launch_args, count));
        return;
    }
    memcpy(name, s->name, length);
    memcpy(name + length, ".index", sizeof ".index");
    number = LLVMBuildLoad2(e->b, e->i32, external_global(e, name, e->i32), "");
    args[0] = e->run;
    args[1] = kernel_function(e, s->name);
    args[2] = e->launch_args;
    args[3] = in(e, s, s->n_in - 1);
    args[4] = number;
    args[5] = index_const(e, s->imm);
    value = call_external(e, "mcc_rt_launch", e->i32, args, 6);
    leave_unless(e, LLVMBuildICmp(e->b, LLVMIntEQ, value, LLVMConstInt(e->i32, 0, false), ""));
}

/* ---- blocks ---- */

static void emit_statement(struct emitter *e, const struct lstmt *s, LLVMValueRef *yields)
{
    debug_line(e, s);
    switch (s->op) {
    case L_FOR: emit_for(e, s); return;
    case L_PARALLEL: emit_parallel(e, s); return;
    case L_IF: emit_if(e, s); return;
    case L_YIELD:
        for (uint32_t i = 0; i < s->n_in; i++)
            yields[i] = in(e, s, i);
        return;
    case L_CHECK: emit_check(e, s); return;
    case L_CALL: emit_call(e, s); return;
    case L_LAUNCH: emit_launch(e, s); return;
    default: break;
    }
    LLVMValueRef v = emit_value(e, s);
    if (s->n_out)
        e->values[s->out[0].i] = v;
    range_learn(e, s);
}

static void emit_block(struct emitter *e, lblock b, LLVMValueRef *yields)
{
    const struct lblk *blk = &e->f->blocks.data[b.i];
    if (++e->depth > DEPTH_MAX)
        emit_fail(e, "blocks nested too deep");
    for (uint32_t i = 0; i < blk->stmts.n && !e->error; i++)
        emit_statement(e, &blk->stmts.data[i], yields);
    e->depth--;
}

/* ---- the function ---- */

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
    emit_block(e, (lblock){1}, NULL);
    if (!e->error) {
        leave(e);
        address_sweep(e);
    }
}

bool emit_function(struct emitter *e, const char *symbol)
{
    size_t n = e->f->types.n;
    e->values = calloc(n, sizeof *e->values);
    e->limit = malloc(n * sizeof *e->limit);
    e->local_offset = malloc(n * sizeof *e->local_offset);
    if (e->values && e->limit && e->local_offset) {
        memset(e->limit, 0xff, n * sizeof *e->limit); /* RANGE_UNKNOWN */
        memset(e->local_offset, 0xff, n * sizeof *e->local_offset);
        emit_body(e, symbol);
    } else {
        emit_fail(e, EMIT_NO_MEMORY);
    }
    free(e->values);
    free(e->limit);
    free(e->local_offset);
    return !e->error;
}
