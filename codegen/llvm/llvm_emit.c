/* Control: loops, branches, checks, calls, launches, as blocks of LLVM.
 *
 * A kernel's `parallel` loop runs over [begin, end). Values that loops carry are phis, so accumulators live in
 * registers without any IR pass. Loops are emitted rotated (one branch a trip). A failing check records itself through
 * mcc_rt_fail and leaves the function.
 */
#include "codegen/llvm/llvm.h"

enum { DEPTH_MAX = 250 }; /* nested blocks; the parser refuses earlier */

LLVMBasicBlockRef block_new(struct emitter *e)
{
    return LLVMAppendBasicBlockInContext(e->ctx, e->fn, "");
}

LLVMValueRef index_const(struct emitter *e, int64_t value)
{
    return LLVMConstInt(e->i64, (uint64_t)value, false);
}

void emit_leave(struct emitter *e)
{
    if (e->nontemporal)
        LLVMBuildFence(e->b, LLVMAtomicOrderingSequentiallyConsistent, false, "");
    if (e->tile_memory)
        call_intrinsic(e, "llvm.x86.tilerelease", NULL, 0, NULL, 0);
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
    emit_leave(e);
    LLVMPositionBuilderAtEnd(e->b, here);
    e->exit = bad;
}

static void emit_check(struct emitter *e, const struct lstmt *s)
{
    LLVMBasicBlockRef bad = block_new(e), here;
    branch_ok(e, mask_all(e, operand(e, s, 0), lf_type(e->f, s->in[0]).lanes), bad);
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
    emit_leave(e);
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
    return l->in_word ? low_word(e, operand(e, l->s, i)) : operand(e, l->s, i);
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
    LLVMValueRef first = n ? operand(e, s, 2) : NULL, again, var, next, start = bound_of(e, l, 0);
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
        e->values[l->body->params.data[i + 1].i] = phi[i] = LLVMBuildPhi(e->b, LLVMTypeOf(operand(e, s, i + 2)), "");
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
            LLVMAddIncoming(phi[i], (LLVMValueRef[]){operand(e, s, i + 2), yields[i]},
                            (LLVMBasicBlockRef[]){from, latch}, 2);
            outs[i] = yields[i];
            if (always)
                continue;
            outs[i] = LLVMBuildPhi(e->b, LLVMTypeOf(phi[i]), "");
            LLVMAddIncoming(outs[i], (LLVMValueRef[]){operand(e, s, i + 2), yields[i]},
                            (LLVMBasicBlockRef[]){from, latch}, 2);
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
        carried[i] = operand(e, s, i + 2);
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
    LLVMValueRef lo = operand(e, s, 0), hi = operand(e, s, 1);
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
    LLVMBuildCondBr(e->b, operand(e, s, 0), start[0], start[1]);
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
        args[i + 1] = operand(e, s, i);
    result = e->is_static ? static_call(e, s) : call_external(e, s->name, e->i64, args, s->n_in + 1);
    if (s->n_out)
        e->values[s->out[0].i] = result;
    if (s->flags & L_FLAG_MAYFAIL)
        leave_unless(e, LLVMBuildICmp(e->b, LLVMIntSGE, result, index_const(e, 0), ""));
}

static LLVMValueRef emit_apply(struct emitter *e, const struct lstmt *s)
{
    LLVMValueRef args[8], part = LLVMGetNamedFunction(e->module, s->name);
    LLVMTypeRef params[8];
    for (uint32_t i = 0; i < s->n_in && i < COUNT_OF(args); i++) {
        args[i] = operand(e, s, i);
        params[i] = type_value(e, operand_type(e, s, i));
    }
    if (!part) { /* of another object */
        part = LLVMAddFunction(e->module, s->name, LLVMFunctionType(type_value(e, s->type), params, s->n_in, false));
        LLVMSetVisibility(part, LLVMHiddenVisibility);
    }
    return LLVMBuildCall2(e->b, LLVMGlobalGetValueType(part), part, args, s->n_in, "");
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
 * number comes from the artifact's table: the constant KERNEL.index; of a row the runtime knows all. */
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
        value = operand(e, s, i);
        if (lf_type(e->f, s->in[i]).lanes == 0)
            value = LLVMBuildPtrToInt(e->b, value, e->i64, "");
        LLVMValueRef at = index_const(e, i);
        LLVMBuildStore(e->b, value, LLVMBuildGEP2(e->b, e->i64, e->launch_args, &at, 1, ""));
    }
    if (e->is_static) {
        LLVMValueRef count = operand(e, s, s->n_in - 1);
        leave_unless(e, static_launch(e, kernel_function(e, s->name), s, count));
        return;
    }
    if (s->flags & L_FLAG_ROW) {
        LLVMValueRef of[4] = {e->run, LLVMConstInt(e->i32, (uint64_t)s->imm, false), e->launch_args,
                              operand(e, s, s->n_in - 1)};
        value = call_external(e, "mcc_rt_launch_row", e->i32, of, 4);
        leave_unless(e, LLVMBuildICmp(e->b, LLVMIntEQ, value, LLVMConstInt(e->i32, 0, false), ""));
        return;
    }
    memcpy(name, s->name, length);
    memcpy(name + length, ".index", sizeof ".index");
    number = LLVMBuildLoad2(e->b, e->i32, external_global(e, name, e->i32), "");
    args[0] = e->run;
    args[1] = kernel_function(e, s->name);
    args[2] = e->launch_args;
    args[3] = operand(e, s, s->n_in - 1);
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
            yields[i] = operand(e, s, i);
        return;
    case L_CHECK: emit_check(e, s); return;
    case L_CALL: emit_call(e, s); return;
    case L_LAUNCH: emit_launch(e, s); return;
    default: break;
    }
    LLVMValueRef v = s->op == L_APPLY ? emit_apply(e, s) : emit_value(e, s);
    if (s->n_out)
        e->values[s->out[0].i] = v;
    range_learn(e, s);
}

void emit_block(struct emitter *e, lblock b, LLVMValueRef *yields)
{
    const struct lblk *blk = &e->f->blocks.data[b.i];
    if (++e->depth > DEPTH_MAX)
        emit_fail(e, "blocks nested too deep");
    for (uint32_t i = 0; i < blk->stmts.n && !e->error; i++)
        emit_statement(e, &blk->stmts.data[i], yields);
    e->depth--;
}
