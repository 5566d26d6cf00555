/* Addresses: base + index, with what a loop does not change in the base.
 *
 * An index is a sum whose parts were placed at the depth of the loops that they depend on, the inner part last:
 * (outer + inner) + constant. LLVM sees no more of it than an addition in the loop. Here the outer part is added to the
 * base where it is known, once for all accesses that share both, so that the loop is left with base + inner * size +
 * constant, which x86 addresses without an instruction. LLVM's own pass for this (loop strength reduction) costs as
 * much time as all the rest of code generation and gains nothing beyond it on these loops, so it is off
 * (llvm_compile.c).
 */
#include "codegen/llvm/llvm.h"

enum {
    MAX_USES = 32,    /* looked at for an address that is there already */
    MAX_TURNS = 4
};  /* over the function, for what is unused */

static LLVMValueRef gep(struct emitter *e, LLVMTypeRef scalar, LLVMValueRef base, LLVMValueRef index)
{
    return LLVMBuildGEP2(e->b, scalar, base, &index, 1, "");
}

static bool is_sum(LLVMValueRef v)
{
    return LLVMIsAInstruction(v) && LLVMGetInstructionOpcode(v) == LLVMAdd &&
           LLVMGetTypeKind(LLVMTypeOf(v)) == LLVMIntegerTypeKind;
}

/* Is v an instruction of another block than the one that is being written? */
static bool is_outer(const struct emitter *e, LLVMValueRef v)
{
    return LLVMIsAInstruction(v) && LLVMGetInstructionParent(v) != LLVMGetInsertBlock(e->b);
}

/* Is base known at the end of `block`: an argument, or computed there or in the entry? */
static bool is_known_in(const struct emitter *e, LLVMValueRef base, LLVMBasicBlockRef block)
{
    if (LLVMIsAArgument(base))
        return true;
    return LLVMIsAInstruction(base) &&
           (LLVMGetInstructionParent(base) == e->entry || LLVMGetInstructionParent(base) == block);
}

/* base + index if the block has computed it already; NULL: not among the uses that were looked at. */
static LLVMValueRef gep_there(LLVMTypeRef scalar, LLVMValueRef base, LLVMValueRef index, LLVMBasicBlockRef block)
{
    uint32_t seen = 0;
    for (LLVMUseRef u = LLVMGetFirstUse(index); u && seen < MAX_USES; u = LLVMGetNextUse(u), seen++) {
        LLVMValueRef v = LLVMGetUser(u);
        if (LLVMIsAGetElementPtrInst(v) && LLVMGetInstructionParent(v) == block && LLVMGetOperand(v, 0) == base &&
            LLVMGetOperand(v, 1) == index && LLVMGetGEPSourceElementType(v) == scalar)
            return v;
    }
    return NULL;
}

/* base + index, shared by the accesses of this block, and then + rest, which addressing does for nothing. */
static LLVMValueRef near_gep(struct emitter *e, LLVMTypeRef scalar, LLVMValueRef base, LLVMValueRef index,
                             LLVMValueRef rest)
{
    LLVMValueRef from = gep_there(scalar, base, index, LLVMGetInsertBlock(e->b));
    if (!from)
        from = gep(e, scalar, base, index);
    return rest ? gep(e, scalar, from, rest) : from;
}

/* base + outer, computed at the end of the block of `outer`; NULL: not possible there. */
static LLVMValueRef outer_base(struct emitter *e, LLVMTypeRef scalar, LLVMValueRef base, LLVMValueRef outer)
{
    const struct place here = place_of(e);
    LLVMBasicBlockRef home = LLVMGetInstructionParent(outer);
    LLVMValueRef end = LLVMGetBasicBlockTerminator(home);
    if (!end || !is_known_in(e, base, home))
        return NULL;
    LLVMValueRef v = gep_there(scalar, base, outer, home);
    if (v)
        return v;
    LLVMPositionBuilderBefore(e->b, end);
    v = gep(e, scalar, base, outer);
    place_again(e, here);
    return v;
}

LLVMValueRef address_of(struct emitter *e, LLVMTypeRef scalar, LLVMValueRef base, LLVMValueRef index)
{
    LLVMValueRef sum = index, rest = NULL;
    if (is_sum(sum) && !is_outer(e, sum) && LLVMIsAConstantInt(LLVMGetOperand(sum, 1))) {
        rest = LLVMGetOperand(sum, 1);
        sum = LLVMGetOperand(sum, 0);
    }
    if (!is_sum(sum) || is_outer(e, sum))
        return near_gep(e, scalar, base, sum, rest);
    LLVMValueRef outer = LLVMGetOperand(sum, 0), inner = LLVMGetOperand(sum, 1);
    if (!is_outer(e, outer)) {
        LLVMValueRef swap = outer;
        outer = inner;
        inner = swap;
    }
    if (!is_outer(e, outer))
        return near_gep(e, scalar, base, sum, rest);
    LLVMValueRef from = outer_base(e, scalar, base, outer);
    return from ? near_gep(e, scalar, from, inner, rest) : near_gep(e, scalar, base, sum, rest);
}

static bool is_unused(LLVMValueRef v)
{
    LLVMOpcode op = LLVMGetInstructionOpcode(v);
    return (op == LLVMAdd || op == LLVMMul || op == LLVMGetElementPtr) && !LLVMGetFirstUse(v);
}

/* Sums are emitted before it is known that all who want them are accesses, which take their parts. */
void address_sweep(struct emitter *e)
{
    bool again = true;
    for (uint32_t turn = 0; again && turn < MAX_TURNS; turn++) {
        again = false;
        for (LLVMBasicBlockRef b = LLVMGetLastBasicBlock(e->fn); b; b = LLVMGetPreviousBasicBlock(b))
            for (LLVMValueRef v = LLVMGetLastInstruction(b), next; v; v = next) {
                next = LLVMGetPreviousInstruction(v);
                if (!is_unused(v))
                    continue;
                LLVMInstructionEraseFromParent(v);
                again = true;
            }
    }
}
