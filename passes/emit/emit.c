/* The emission engine's core: statements, placed by the depth of what they read, and symbols. Index expressions are in
 * emit/index.c, loops in emit/loops.c, a kernel's arguments in emit/frame.c, values and loads in emit/value_at_point.c,
 * scalar functions in emit/map.c, reductions in emit/reduce.c. */
#include "passes/emit/emit.h"

/* ---- statements ------------------------------------------------------------------------------------------ */

int em_depth_of(const struct em *em, lreg v)
{
    return v.i < em->depth.n ? em->depth.data[v.i] : 0;
}

void em_set_depth(struct em *em, lreg v, int depth)
{
    while (em->depth.n <= v.i) {
        VEC_PUSH(em->arena, &em->depth, 0);
        VEC_PUSH(em->arena, &em->home, (lblock){0});
    }
    em->depth.data[v.i] = depth;
    em->home.data[v.i] = em->level[depth];
}

bool em_visible(const struct em *em, lreg v)
{
    int depth = em_depth_of(em, v);
    return depth == 0 || (depth <= em->top && em->level[depth].i == em->home.data[v.i].i);
}

int em_depth(const struct em *em, const lreg *in, uint32_t n)
{
    int depth = em->floor;
    for (uint32_t i = 0; i < n; i++)
        if (em_depth_of(em, in[i]) > depth)
            depth = em_depth_of(em, in[i]);
    return depth;
}

lreg em_op(struct em *em, enum lop op, struct ltype type, const lreg *in, uint32_t n)
{
    int depth = em_depth(em, in, n);
    lreg v = lf_op(em->f, em->level[depth], op, type, in, n);
    em_set_depth(em, v, depth);
    return v;
}

lreg em_op1(struct em *em, enum lop op, lreg a)
{
    return em_op(em, op, lf_type(em->f, a), &a, 1);
}

lreg em_op2(struct em *em, enum lop op, lreg a, lreg b)
{
    lreg in[2] = {a, b};
    em_unify(em, in, 2);
    struct ltype t = lf_type(em->f, in[0]);
    if (op == L_EQ || op == L_NE || op == L_LT || op == L_LE)
        t.elem = ELEM_BOOL;
    return em_op(em, op, t, in, 2);
}

lreg em_splat(struct em *em, lreg v, uint32_t lanes)
{
    struct ltype t = lf_type(em->f, v);
    if (lanes <= 1 || t.lanes == lanes)
        return v;
    t.lanes = lanes;
    return em_op(em, L_SPLAT, t, &v, 1);
}

void em_unify(struct em *em, lreg *v, uint32_t n)
{
    uint32_t lanes = 1;
    for (uint32_t i = 0; i < n; i++)
        if (lf_type(em->f, v[i]).lanes > lanes)
            lanes = lf_type(em->f, v[i]).lanes;
    for (uint32_t i = 0; i < n; i++)
        v[i] = em_splat(em, v[i], lanes);
}

lreg em_select(struct em *em, lreg cond, lreg a, lreg b)
{
    lreg in[3] = {cond, a, b};
    em_unify(em, in, 3);
    return em_op(em, L_SELECT, lf_type(em->f, in[1]), in, 3);
}

lreg em_const(struct em *em, enum elem e, uint32_t lanes, double f, int64_t i)
{
    struct em_const key = {e, lanes ? lanes : 1, f, elem_class(e) == 'F' ? 0 : i, {0}};
    struct em_const *slot = &em->consts[hash_bytes(&key, offsetof(struct em_const, v)) % COUNT_OF(em->consts)];
    if (slot->v.i && !memcmp(slot, &key, offsetof(struct em_const, v)))
        return slot->v;
    lreg v = lf_op(em->f, em->level[0], L_CONST, (struct ltype){e, key.lanes}, NULL, 0);
    *slot = key;
    slot->v = v;
    lf_last(em->f, em->level[0])->fimm = f;
    lf_last(em->f, em->level[0])->imm = i;
    return v;
}

lreg em_shuffle(struct em *em, lreg a, lreg b, const uint8_t *from, uint32_t n)
{
    lreg in[2] = {a, b};
    lreg v = em_op(em, L_SHUFFLE, (struct ltype){lf_type(em->f, a).elem, n}, in, 2);
    struct lstmt *s = lf_last(em->f, em->level[em_depth(em, in, 2)]);
    s->aux = arena_copy(em->f->arena, from, n);
    s->n_aux = n;
    return v;
}

lreg em_part(struct em *em, lreg v, uint32_t first, uint32_t n)
{
    uint8_t from[256];
    for (uint32_t i = 0; i < n; i++)
        from[i] = (uint8_t)(first + i);
    return em_shuffle(em, v, v, from, n);
}

lreg em_extract(struct em *em, lreg v, uint32_t lane)
{
    lreg x = em_op(em, L_EXTRACT, (struct ltype){lf_type(em->f, v).elem, 1}, &v, 1);
    lf_last(em->f, em->level[em_depth(em, &v, 1)])->imm = lane;
    return x;
}

lreg em_hreduce(struct em *em, enum lop op, lreg v)
{
    lreg one = em_op(em, L_HREDUCE, (struct ltype){lf_type(em->f, v).elem, 1}, &v, 1);
    lf_last(em->f, em->level[em_depth(em, &one, 1)])->imm = op;
    return one;
}

lreg em_any(struct em *em, lreg cond)
{
    uint8_t from[256];
    uint32_t lanes = lf_type(em->f, cond).lanes, padded = lanes_padded(lanes, from);
    if (padded != lanes)
        cond = em_shuffle(em, cond, cond, from, padded);
    if (padded > 1)
        cond = em_hreduce(em, L_OR, cond);
    return em_op(em, L_CONVERT, (struct ltype){ELEM_I64, 1}, &cond, 1);
}

void em_check(struct em *em, lreg cond, uint32_t node, const char *text)
{
    int depth = em_depth(em, &cond, 1);
    struct lstmt *s = lf_stmt(em->f, em->level[depth > 1 ? depth : 1], L_CHECK, &cond, 1);
    s->imm = -9; /* MCC_E_VALUE */
    s->node = node;
    s->name = text;
}

/* ---- symbols -------------------------------------------------------------------------------------------------- */

expr_id em_symbol_new(struct em *em, int64_t lo, int64_t hi, struct em_sym info)
{
    info.sym = sym_new(em->x, SYM_LOOP, arena_printf(em->arena, "%s.e%u", em->f->name, sym_count(em->x)), lo, hi);
    VEC_PUSH(em->arena, &em->syms, info);
    return ex_sym(em->x, info.sym);
}

expr_id em_lane(struct em *em, uint32_t lanes, lreg mask)
{
    return em_symbol_new(em, 0, (int64_t)lanes - 1,
                         (struct em_sym){.depth = mask.i ? em_depth_of(em, mask) : 0, .lanes = lanes, .mask = mask});
}

expr_id em_bind(struct em *em, lreg index, int64_t hi)
{
    uint32_t lanes = lf_type(em->f, index).lanes;
    return em_symbol_new(
        em, 0, hi,
        (struct em_sym){
            .depth = em_depth_of(em, index), .var = index, .lanes = lanes > 1 ? lanes : 0, .vector = lanes > 1});
}
