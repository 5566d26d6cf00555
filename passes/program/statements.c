/* Statements of a program under construction: index expressions, buffers, calls, checks. */
#include "passes/program/program.h"

const struct ltype prog_i64 = {ELEM_I64, 1};

lreg prog_op(struct prog *p, enum lop op, struct ltype t, const lreg *in, uint32_t n)
{
    return lf_op(p->f, p->block, op, t, in, n);
}

lreg prog_const(struct prog *p, int64_t c)
{
    lreg v = lf_op(p->f, p->block, L_CONST, prog_i64, NULL, 0);
    lf_last(p->f, p->block)->imm = c;
    return v;
}

lreg prog_op2(struct prog *p, enum lop op, lreg a, lreg b)
{
    lreg in[2] = {a, b};
    struct ltype t = lf_type(p->f, a);
    if (op == L_LT || op == L_LE || op == L_EQ || op == L_NE)
        t.elem = ELEM_BOOL;
    return prog_op(p, op, t, in, 2);
}

/* ---- index expressions ------------------------------------------------------------------------------------ */

static void bind_key(struct prog *p, uint32_t key, lreg v)
{
    while (p->binding.n <= key)
        VEC_PUSH(p->arena, &p->binding, 0);
    VEC_PUSH(p->arena, &p->syms, ((struct prog_sym){key, v, p->binding.data[key]}));
    p->binding.data[key] = p->syms.n;
}

static lreg bound_key(const struct prog *p, uint32_t key)
{
    uint32_t i = key < p->binding.n ? p->binding.data[key] : 0;
    return i ? p->syms.data[i - 1].v : (lreg){0};
}

void prog_bind(struct prog *p, sym_id s, lreg v)
{
    bind_key(p, 2 * s.i, v);
}

bool prog_is_bound(const struct prog *p, sym_id s)
{
    return bound_key(p, 2 * s.i).i;
}

void prog_unbind(struct prog *p, uint32_t n)
{
    while (p->syms.n > n) {
        const struct prog_sym *last = &p->syms.data[--p->syms.n];
        p->binding.data[last->key] = last->outer;
    }
}

lreg prog_symbol(struct prog *p, sym_id s)
{
    lreg v = bound_key(p, 2 * s.i);
    if (v.i)
        return v;
    p->failed = true;
    error_internal(p->m->ctx, (src_id){0}, "symbol '%s' is used before anything binds it", sym_get(p->x, s)->name);
    return prog_const(p, 0);
}

lreg prog_cond(struct prog *p, expr_id e)
{
    enum expr_kind kind = ex_kind(p->x, e);
    if (kind == EX_LT || kind == EX_EQ)
        return prog_op2(p, kind == EX_LT ? L_LT : L_EQ, prog_index(p, ex_arg(p->x, e, 0)),
                        prog_index(p, ex_arg(p->x, e, 1)));
    return prog_op2(p, L_NE, prog_index(p, e), prog_const(p, 0));
}

/* A quotient or remainder by 2^n rounds down as a shift does: one instruction where a division takes ten, and LLVM
 * leaves programs as they are. {0}: another divisor. */
static lreg by_power_of_two(struct prog *p, enum expr_kind kind, lreg a, expr_id by)
{
    int64_t c;
    if (!ex_is_const(p->x, by, &c) || c < 2 || (c & (c - 1)) != 0)
        return (lreg){0};
    return kind == EX_DIV ? prog_op2(p, L_SHR, a, prog_const(p, __builtin_ctzll((uint64_t)c)))
                          : prog_op2(p, L_AND, a, prog_const(p, c - 1));
}

static lreg index_value(struct prog *p, expr_id e)
{
    enum expr_kind kind = ex_kind(p->x, e);
    uint32_t n = ex_n_args(p->x, e);
    static const enum lop binary[] = {
        [EX_PROD] = L_MUL, [EX_DIV] = L_FLOORDIV, [EX_MOD] = L_FLOORMOD, [EX_MIN] = L_MIN,
        [EX_MAX] = L_MAX,  [EX_LT] = L_LT,        [EX_EQ] = L_EQ,        [EX_AND] = L_MUL};
    if (kind == EX_SUM) {
        lreg sum = prog_const(p, ex_addend(p->x, e));
        for (uint32_t i = 0; i < n; i++)
            sum = prog_op2(p, L_ADD, sum,
                           prog_op2(p, L_MUL, prog_index(p, ex_arg(p->x, e, i)), prog_const(p, ex_coef(p->x, e, i))));
        return sum;
    }
    if (kind == EX_NOT)
        return prog_op2(p, L_SUB, prog_const(p, 1), prog_index(p, ex_arg(p->x, e, 0)));
    if (kind == EX_SELECT) {
        return prog_op(p, L_SELECT, prog_i64,
                       ARRAY(lreg, prog_cond(p, ex_arg(p->x, e, 0)), prog_index(p, ex_arg(p->x, e, 1)),
                             prog_index(p, ex_arg(p->x, e, 2))));
    }
    lreg v = prog_index(p, ex_arg(p->x, e, 0)), shifted = {0};
    if (kind == EX_DIV || kind == EX_MOD)
        shifted = by_power_of_two(p, kind, v, ex_arg(p->x, e, 1));
    if (shifted.i)
        return shifted;
    for (uint32_t i = 1; i < n; i++)
        v = prog_op2(p, binary[kind], v, prog_index(p, ex_arg(p->x, e, i)));
    if (kind == EX_LT || kind == EX_EQ)
        v = prog_op(p, L_CONVERT, prog_i64, &v, 1);
    return v;
}

lreg prog_index(struct prog *p, expr_id e)
{
    int64_t c;
    if (ex_is_const(p->x, e, &c))
        return prog_const(p, c);
    if (ex_kind(p->x, e) == EX_SYM)
        return prog_symbol(p, ex_as_sym(p->x, e));
    if (p->at_start)   /* what the open block has computed is not there yet */
        return index_value(p, e);
    lreg v = bound_key(p, 2 * e.i + 1);
    if (!v.i) {
        v = index_value(p, e);
        bind_key(p, 2 * e.i + 1, v);
    }
    return v;
}

/* ---- memory ------------------------------------------------------------------------------------------------- */

lreg prog_call(struct prog *p, const char *name, const lreg *in, uint32_t n, bool may_fail)
{
    lreg r = lf_value(p->f, prog_i64);
    struct lstmt *s = lf_stmt(p->f, p->block, L_CALL, in, n);
    s->type = prog_i64;
    s->name = name;
    s->out = lf_lregs(p->f, &r, 1);
    s->n_out = 1;
    s->flags = may_fail ? L_FLAG_MAYFAIL : 0;
    return r;
}

struct lstmt *prog_if_empty(struct prog *p, lblock in)
{
    struct lstmt *s = lf_stmt(p->f, in, L_IF, &p->empty, 1);
    s->type = prog_i64;
    s->block[0] = lf_block(p->f);
    return s;
}

lreg prog_zeroed(struct prog *p, lreg buffer, int64_t words, bool used)
{
    lblock here = p->block;
    p->block = (lblock){1};   /* what is under construction here comes after it */
    if (used && p->empty.i)
        p->block = prog_if_empty(p, p->block)->block[1] = lf_block(p->f);
    for (int64_t i = 0; i < words; i++) {
        lf_op(p->f, p->block, L_STORE, prog_i64, ARRAY(lreg, buffer, prog_const(p, i), prog_const(p, 0)));
    }
    p->block = here;
    return buffer;
}

lreg prog_slot(struct prog *p)
{
    return prog_zeroed(p, prog_local(p, 2), 2, false);
}

lreg prog_grow(struct prog *p, lreg slot, lreg bytes, lreg keep)
{
    lreg in[3] = {slot, bytes, keep}, at = prog_call(p, "mcc_rt_grow", in, 3, true);
    return prog_op(p, L_ADDRESS, (struct ltype){ELEM_U8, 0}, &at, 1);
}

lreg prog_memory(struct prog *p, lreg bytes)
{
    if (p->loops)
        return prog_grow(p, prog_slot(p), bytes, prog_const(p, 0));
    lreg at = PROG_CALL(p, "mcc_rt_segment", true, bytes);
    return prog_op(p, L_ADDRESS, (struct ltype){ELEM_U8, 0}, &at, 1);
}

lreg prog_offset(struct prog *p, lreg base, expr_id bytes, enum elem e)
{
    lreg in[2] = {base, prog_index(p, bytes)};
    if (elem_size(e) > 8)   /* strings: only passed on */
        e = ELEM_U8;
    return prog_op(p, L_OFFSET, (struct ltype){e, 0}, in, 2);
}

lreg prog_buffer(struct prog *p, value_id v, enum elem e)
{
    if (p->m->fused.storage[v.i].place == PLACE_NONE && !p->pointer[v.i].i)
        v = view_plain(p->g, v);
    const struct storage *s = &p->m->fused.storage[v.i];
    expr_id zero = ex_const(p->x, 0);
    if (p->pointer[v.i].i)
        return prog_offset(p, p->pointer[v.i], zero, e);
    switch (s->place) {
    case PLACE_INPUT: return prog_offset(p, p->in[s->port], zero, e);
    case PLACE_OUTPUT: return prog_offset(p, p->out[s->port], zero, e);
    case PLACE_WEIGHTS:
        return prog_offset(p, p->weights_base, ex_const(p->x, (int64_t)p->m->plan.weights.data[s->buffer].offset), e);
    case PLACE_ARENA: return prog_offset(p, p->arena_base, p->m->plan.buffers.data[s->buffer].offset, e);
    default: break;
    }
    p->failed = true;
    error_internal(p->m->ctx, (src_id){0}, "value %u has no memory", v.i);
    return p->arena_base;
}

lreg prog_load(struct prog *p, value_id v, int64_t element)
{
    enum elem e = value_type(p->g, v)->elem;
    lreg r = prog_op(p, L_LOAD, (struct ltype){e, 1}, ARRAY(lreg, prog_buffer(p, v, e), prog_const(p, element)));
    return e == ELEM_I64 ? r : prog_op(p, L_CONVERT, prog_i64, &r, 1);
}

void prog_check(struct prog *p, lreg cond, int32_t code, uint32_t node, const char *text)
{
    struct lstmt *s = lf_stmt(p->f, p->block, L_CHECK, &cond, 1);
    s->imm = code;
    s->node = node;
    s->name = text;
}
