/* lf_settle_zeros: minimum and maximum of floats say which of two zeros they give, and how NaN comes through.
 *
 * L_MIN and L_MAX leave it to the CPU which of -0 and +0 is the smaller one. Here they become L_MINNUM and L_MAXNUM,
 * which are a comparison and a selection on every CPU, and a selection of a first operand that is NaN. Constants come
 * first, so that they need none. It is what x86-64 and RISC-V compute anyway; AArch64 has one instruction for L_MAX.
 */
#include "ir/loop/internal.h"

#include <math.h>

struct settling {
    struct lfunc *f;
    const bool *number; /* by value: a constant, and not NaN */
    lblock b;
};

static lreg put(struct settling *t, enum lop op, struct ltype type, const lreg *in, uint32_t n_in)
{
    return lf_op(t->f, t->b, op, type, in, n_in);
}

static bool is_number(const struct settling *t, lreg v, uint32_t n)
{
    return v.i < n && t->number[v.i];
}

/* The larger or smaller one of in[0] and in[1]; numbers: values below that are looked up. */
static lreg extreme(struct settling *t, enum lop op, struct ltype type, const lreg in[2], uint32_t numbers)
{
    enum lop exact = op == L_MIN ? L_MINNUM : L_MAXNUM;
    const lreg turned[2] = {in[1], in[0]};
    if (is_number(t, in[0], numbers))
        return put(t, exact, type, in, 2);
    if (is_number(t, in[1], numbers))
        return put(t, exact, type, turned, 2);
    const lreg same[2] = {in[0], in[0]};
    lreg pick[3] = {put(t, L_NE, (struct ltype){ELEM_BOOL, type.lanes}, same, 2), in[0], put(t, exact, type, in, 2)};
    return put(t, L_SELECT, type, pick, 3);
}

/* Lanes from..from + n - 1. */
static lreg lanes_from(struct settling *t, lreg v, uint32_t from, uint32_t n)
{
    const lreg in[2] = {v, v};
    struct ltype type = {lf_type(t->f, v).elem, n};
    uint8_t aux[LOOP_LANES_MAX];
    if (n == 1) {
        lreg x = put(t, L_EXTRACT, type, in, 1);
        lf_last(t->f, t->b)->imm = from;
        return x;
    }
    for (uint32_t i = 0; i < n; i++)
        aux[i] = (uint8_t)(from + i);
    lreg half = put(t, L_SHUFFLE, type, in, 2);
    lf_last(t->f, t->b)->aux = arena_copy(t->f->arena, aux, n);
    lf_last(t->f, t->b)->n_aux = n;
    return half;
}

/* By halves, as L_HREDUCE is defined. */
static lreg folded(struct settling *t, enum lop op, lreg v)
{
    for (struct ltype type = lf_type(t->f, v); type.lanes > 1;) {
        type.lanes /= 2;
        const lreg in[2] = {lanes_from(t, v, 0, type.lanes), lanes_from(t, v, type.lanes, type.lanes)};
        v = extreme(t, op, type, in, 0);
    }
    return v;
}

static void settle_block(struct settling *t, lblock b, uint32_t depth)
{
    struct lblk *blk = &t->f->blocks.data[b.i];
    const struct lstmt *old = blk->stmts.data;
    uint32_t n = blk->stmts.n, numbers = t->f->types.n;
    if (depth > LOOP_DEPTH_MAX)
        return;
    blk->stmts.data = NULL;
    blk->stmts.n = blk->stmts.cap = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct lstmt s = old[i];
        for (uint32_t k = 0; k < COUNT_OF(s.block); k++)
            if (s.block[k].i)
                settle_block(t, s.block[k], depth + 1);
        enum lop op = s.op == L_HREDUCE ? (enum lop)s.imm : s.op;
        bool real = s.n_out == 1 && elem_class(s.type.elem) == 'F', folds = s.op == L_HREDUCE;
        t->b = b;
        if (!real || (op != L_MIN && op != L_MAX) || (folds && lf_type(t->f, s.in[0]).lanes < 2)) {
            VEC_PUSH(t->f->arena, &t->f->blocks.data[b.i].stmts, s);
            continue;
        }
        if (folds)
            folded(t, op, s.in[0]);
        else
            extreme(t, op, s.type, s.in, numbers);
        lf_last(t->f, b)->out = s.out; /* the last statement's result is this one's */
    }
}

/* Constants, and vectors of one. */
static void find_numbers(const struct lfunc *f, bool *number)
{
    for (uint32_t b = 1; b < f->blocks.n; b++)
        for (uint32_t i = 0; i < f->blocks.data[b].stmts.n; i++) {
            const struct lstmt *s = &f->blocks.data[b].stmts.data[i];
            bool constant = s->op == L_CONST && elem_class(s->type.elem) == 'F' && !isnan(s->fimm);
            if (constant || (s->op == L_SPLAT && number[s->in[0].i]))
                number[s->out[0].i] = true;
        }
}

void lf_settle_zeros(struct lfunc *f)
{
    bool *number = NEW_ARRAY(f->arena, bool, f->types.n);
    struct settling t = {.f = f, .number = number};
    find_numbers(f, number);
    settle_block(&t, (lblock){1}, 0);
}
