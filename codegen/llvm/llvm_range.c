/* What is known of indices while they are emitted: that they are natural numbers, and how large they get.
 *
 * A loop's variable is at least its natural lower bound and less than its upper one; quotients, remainders, sums and
 * products of natural numbers are natural where their limits show that nothing wraps. Division by a constant then needs
 * no fix for negative operands, which is most of what a parallel index is taken apart with.
 */
#include "codegen/llvm/llvm.h"

static uint64_t limit_of_sum(uint64_t a, uint64_t b)
{
    return a <= INT64_MAX && b <= INT64_MAX - a ? a + b : RANGE_UNKNOWN;
}

static uint64_t limit_of_product(uint64_t a, uint64_t b)
{
    int64_t r;
    return a > INT64_MAX || b > INT64_MAX || !mul_i64((int64_t)a, (int64_t)b, &r) ? RANGE_UNKNOWN : (uint64_t)r;
}

static uint64_t limit_of_rest(uint64_t a, uint64_t b)
{
    uint64_t most = b <= INT64_MAX && b > 0 ? b - 1 : INT64_MAX;
    return a < most ? a : most;
}

void range_learn(struct emitter *e, const struct lstmt *s)
{
    uint64_t a = s->n_in > 0 ? e->limit[s->in[0].i] : 0, b = s->n_in > 1 ? e->limit[s->in[1].i] : 0, r = RANGE_UNKNOWN;
    if (s->n_out != 1 || s->type.elem != ELEM_I64 || s->type.lanes != 1)
        return;
    switch (s->op) {
    case L_CONST: r = s->imm >= 0 ? (uint64_t)s->imm : RANGE_UNKNOWN; break;
    case L_ADD: r = limit_of_sum(a, b); break;
    case L_MUL: r = limit_of_product(a, b); break;
    case L_FLOORDIV: /* a negative divisor would turn the sign */ r = b <= INT64_MAX ? a : RANGE_UNKNOWN; break;
    case L_FLOORMOD: /* has the divisor's sign */ r = b <= INT64_MAX ? limit_of_rest(a, b) : RANGE_UNKNOWN; break;
    case L_MIN: r = a > INT64_MAX || b > INT64_MAX ? RANGE_UNKNOWN : a < b ? a : b; break;
    default: break;
    }
    e->limit[s->out[0].i] = r;
}

void range_of_variable(struct emitter *e, lreg var, lreg lo, lreg hi)
{
    uint64_t end = e->limit[hi.i];
    if (e->limit[lo.i] <= INT64_MAX)
        e->limit[var.i] = end <= INT64_MAX && end > 0 ? end - 1 : INT64_MAX;
}

bool range_is_natural(const struct emitter *e, lreg v)
{
    return e->limit[v.i] <= INT64_MAX;
}

bool range_in_word(const struct emitter *e, lreg v)
{
    return e->machine->words32 && e->limit[v.i] <= INT32_MAX;
}

LLVMValueRef low_word(struct emitter *e, LLVMValueRef v)
{
    if (LLVMIsAZExtInst(v) && LLVMTypeOf(LLVMGetOperand(v, 0)) == e->i32)
        return LLVMGetOperand(v, 0);
    return LLVMBuildTrunc(e->b, v, e->i32, "");
}
