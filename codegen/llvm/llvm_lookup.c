/* Numbers of up to 4 bits as f32, by AVX-512: a permutation of a register looks 16 of them up in a table, where
 * masking, conversion and the subtraction of a zero point would be three instructions. It reads the low 4 bits of its
 * index.
 */
#include "codegen/llvm/llvm.h"

enum { ENTRIES = 16 };
static const char lookup_name[] = "llvm.x86.avx512.permvar.sf.512";

static LLVMValueRef lookup(struct emitter *e, LLVMValueRef *table, LLVMValueRef index)
{
    LLVMValueRef args[2] = {LLVMConstVector(table, ENTRIES), index};
    return call_intrinsic(e, lookup_name, NULL, 0, args, 2);
}

/* The same number in all lanes of v, which is at most `most`; -1: something else. */
static int64_t same_in_lanes(LLVMValueRef v, int64_t most)
{
    int64_t n = -1;
    for (unsigned i = 0; i < ENTRIES; i++) {
        LLVMValueRef lane = LLVMIsConstant(v) ? LLVMGetAggregateElement(v, i) : NULL;
        if (!lane || !LLVMIsAConstantInt(lane) || LLVMConstIntGetZExtValue(lane) > (uint64_t)most ||
            (i && (int64_t)LLVMConstIntGetZExtValue(lane) != n))
            return -1;
        n = (int64_t)LLVMConstIntGetZExtValue(lane);
    }
    return n;
}

LLVMValueRef lookup_convert(struct emitter *e, LLVMValueRef v, enum elem from, enum elem to, uint32_t lanes)
{
    LLVMValueRef table[ENTRIES];
    if (e->machine->vector_bytes < 4 * ENTRIES || lanes != ENTRIES || from != ELEM_I32 || to != ELEM_F32 ||
        !LLVMIsAInstruction(v) || LLVMGetInstructionOpcode(v) != LLVMAnd)
        return NULL;
    int64_t mask = same_in_lanes(LLVMGetOperand(v, 1), ENTRIES - 1);
    if (mask < 0)
        return NULL;
    for (unsigned i = 0; i < ENTRIES; i++)
        table[i] = LLVMConstReal(e->f32, i);
    return lookup(e, table, mask == ENTRIES - 1 ? LLVMGetOperand(v, 0) : v);
}

LLVMValueRef lookup_less(struct emitter *e, LLVMValueRef v, LLVMValueRef by)
{
    LLVMValueRef table[ENTRIES];
    size_t length;
    LLVMBool lossy;
    if (!LLVMIsACallInst(v) || !LLVMIsConstant(by) || !LLVMIsAFunction(LLVMGetCalledValue(v)) ||
        strcmp(LLVMGetValueName2(LLVMGetCalledValue(v), &length), lookup_name) != 0)
        return NULL;
    for (unsigned i = 0; i < ENTRIES; i++) {
        LLVMValueRef entry = LLVMGetAggregateElement(LLVMGetOperand(v, 0), i), less = LLVMGetAggregateElement(by, i);
        if (!entry || !less || !LLVMIsAConstantFP(entry) || !LLVMIsAConstantFP(less) ||
            LLVMConstRealGetDouble(less, &lossy) != LLVMConstRealGetDouble(LLVMGetAggregateElement(by, 0), &lossy))
            return NULL;
        float entry_less = (float)LLVMConstRealGetDouble(entry, &lossy) - (float)LLVMConstRealGetDouble(less, &lossy);
        table[i] = LLVMConstReal(e->f32, entry_less);
    }
    return lookup(e, table, LLVMGetOperand(v, 1));
}
