/* What static networks have in place of the runtime: one thread, and three words for a run in the entry's frame.
 *
 *   run[0]  0, or the code of the first failure
 *   run[1]  1 where the scratch holds what this launch made for the tag in run[2] (mcc_rt_kept)
 *
 * A launch is a call of the kernel over all its indices. Indices run in ascending order and a failure leaves the
 * function, so the first failure is the smallest. Nobody can cancel.
 *
 * With workers (WebAssembly, -mattr=+atomics) the host's function mcc_launch calls the kernel, over a range in each of
 * several instances that share the memory, with scratch and a run for each (runtime/mcc_threads.mjs).
 */
#include "codegen/llvm/llvm.h"
#include "codegen/container/wasm.h"

enum { RUN_CODE, RUN_KEPT, RUN_TAG, RUN_WORDS };

static LLVMValueRef word(struct emitter *e, uint64_t value)
{
    return LLVMConstInt(e->i64, value, true);
}

static LLVMValueRef run_at(struct emitter *e, unsigned at)
{
    LLVMValueRef index = LLVMConstInt(e->i32, at, false);
    return LLVMBuildGEP2(e->b, e->i64, e->run, &index, 1, "");
}

static void run_store(struct emitter *e, unsigned at, LLVMValueRef value)
{
    LLVMBuildStore(e->b, value, run_at(e, at));
}

static LLVMValueRef run_load(struct emitter *e, unsigned at)
{
    return LLVMBuildLoad2(e->b, e->i64, run_at(e, at), "");
}

void static_begin(struct emitter *e)
{
    e->run = LLVMBuildAlloca(e->b, LLVMArrayType2(e->i64, RUN_WORDS), "");
    run_store(e, RUN_CODE, word(e, 0));
}

LLVMValueRef static_code(struct emitter *e)
{
    return LLVMBuildTrunc(e->b, run_load(e, RUN_CODE), e->i32, "");
}

void static_fail(struct emitter *e, int64_t code)
{
    run_store(e, RUN_CODE, word(e, (uint64_t)code));
}

/* mcc_launch(kernel, args, count, ns of an index, scratch, run): the numbers as JavaScript has them. */
static LLVMValueRef host_launch(struct emitter *e)
{
    LLVMTypeRef params[6] = {e->ptr, e->ptr, e->f64, e->f64, e->ptr, e->ptr};
    LLVMTypeRef type = LLVMFunctionType(e->nothing, params, COUNT_OF(params), false);
    LLVMValueRef fn = LLVMGetNamedFunction(e->module, WASM_LAUNCH);
    return fn ? fn : LLVMAddFunction(e->module, WASM_LAUNCH, type);
}

LLVMValueRef static_launch(struct emitter *e, LLVMValueRef function, const struct lstmt *s, LLVMValueRef count)
{
    LLVMValueRef operands[6] = {e->launch_args, word(e, 0), count, e->scratch, e->run};
    unsigned n = 5;
    run_store(e, RUN_KEPT, word(e, 0));
    if (e->machine->workers && e->f->role == LROLE_PROGRAM) {
        LLVMValueRef numbers[6] = {
            function,   e->launch_args, LLVMBuildSIToFP(e->b, count, e->f64, ""), LLVMConstReal(e->f64, (double)s->imm),
            e->scratch, e->run};
        memcpy(operands, numbers, sizeof numbers);
        function = host_launch(e);
        n = 6;
    }
    LLVMBuildCall2(e->b, LLVMGlobalGetValueType(function), function, operands, n, "");
    return LLVMBuildICmp(e->b, LLVMIntEQ, run_load(e, RUN_CODE), word(e, 0), "");
}

/* After a failure the function has been left, so what is kept is whole. */
static LLVMValueRef kept(struct emitter *e, LLVMValueRef tag)
{
    LLVMValueRef same = LLVMBuildICmp(e->b, LLVMIntEQ, run_load(e, RUN_TAG), tag, "");
    LLVMValueRef is = LLVMBuildAnd(e->b, run_load(e, RUN_KEPT), LLVMBuildZExt(e->b, same, e->i64, ""), "");
    run_store(e, RUN_KEPT, word(e, 1));
    run_store(e, RUN_TAG, tag);
    return is;
}

static LLVMValueRef arrive(struct emitter *e, LLVMValueRef counter, LLVMValueRef n)
{
    LLVMValueRef one = word(e, 1), before;
    before = e->machine->workers ? LLVMBuildAtomicRMW(e->b, LLVMAtomicRMWBinOpAdd, counter, one,
                                                      LLVMAtomicOrderingSequentiallyConsistent, false)
                                 : LLVMBuildLoad2(e->b, e->i64, counter, "");
    LLVMValueRef count = LLVMBuildAdd(e->b, before, one, ""), more = LLVMBuildICmp(e->b, LLVMIntSLT, count, n, "");
    if (e->machine->workers) /* the last one subtracts what all have added: nobody else counts by then */
        LLVMBuildAtomicRMW(e->b, LLVMAtomicRMWBinOpSub, counter, LLVMBuildSelect(e->b, more, word(e, 0), n, ""),
                           LLVMAtomicOrderingSequentiallyConsistent, false);
    else
        LLVMBuildStore(e->b, LLVMBuildSelect(e->b, more, count, word(e, 0), ""), counter);
    return LLVMBuildSelect(e->b, more, word(e, 0), word(e, 1), "");
}

LLVMValueRef static_call(struct emitter *e, const struct lstmt *s)
{
    LLVMValueRef a = s->n_in == 2 ? e->values[s->in[0].i] : NULL, b = a ? e->values[s->in[1].i] : NULL;
    if (a && strcmp(s->name, "mcc_rt_kept") == 0)
        return kept(e, b);
    if (a && strcmp(s->name, "mcc_rt_arrive") == 0)
        return arrive(e, a, b);
    if (strcmp(s->name, "mcc_rt_poll") != 0)
        emit_fail(e, "a static network calls the runtime");
    return word(e, 0);
}
