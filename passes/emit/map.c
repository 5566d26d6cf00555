/* Scalar functions: one core operator of shape MAP on registers -> statements. What is one statement is one row of
 * the table; the rest are short functions; transcendentals are ir/loop/math/math.c. */
#include "passes/emit/emit.h"
#include "passes/module/analysis.h"

typedef lreg map_fn(struct em *, const struct node *, const lreg *in, struct ltype);

static lreg f_const(struct em *em, struct ltype t, double f)
{
    int64_t i = f >= -0x1p63 && f < 0x1p63 ? (int64_t)f : 0;     /* infinities are of float types */
    return em_const(em, t.elem, t.lanes, f, i);
}

static bool is_float(struct ltype t)
{
    return t.elem == ELEM_F32 || t.elem == ELEM_F64;
}

static lreg map_math(struct em *em, const struct node *n, const lreg *in, struct ltype t)
{
    bool wide = !is_float(t);
    lreg x[2] = {in[0], n->n_in > 1 ? in[1] : (lreg){0}};
    struct ltype mt = t;
    if (wide) {
        mt.elem = ELEM_F64;
        for (uint32_t k = 0; k < n->n_in; k++)
            x[k] = em_op(em, L_CONVERT, mt, &x[k], 1);
    }
    int depth = em_depth(em, x, n->n_in);
    struct float_range range = float_range(em->g, n->in[0]);
    lreg r = lf_math_within(em->f, em->level[depth], n->op, mt, x, n->n_in, range.lo, range.hi);
    if (!r.i) {
        em->failed = true;
        error_internal(em->m->ctx, n->src, "%s of %s has no expansion", op_name(n->op), elem_name(t.elem));
        return in[0];
    }
    em_set_depth(em, r, depth);
    return wide ? em_op(em, L_CONVERT, t, &r, 1) : r;
}

/* Integer powers wrap: squares and products over the exponent's bits, straight on for small constant exponents.
 * Negative ones give 0 except for bases 1 and -1. */
static lreg int_power_const(struct em *em, lreg base, int64_t e, struct ltype t)
{
    lreg r = em_const(em, t.elem, t.lanes, 1, 1);
    for (bool first = true; e > 0; e >>= 1) {
        if (e & 1) {
            r = first ? base : em_op2(em, L_MUL, r, base);
            first = false;
        }
        if (e > 1)
            base = em_op2(em, L_MUL, base, base);
    }
    return r;
}

static lreg int_power(struct em *em, lreg base, lreg e, struct ltype t)
{
    lreg one = em_const(em, t.elem, t.lanes, 1, 1), zero = em_const(em, t.elem, t.lanes, 0, 0),
         carry[3] = {one, base, e}, out[3];
    struct em_for l;
    em_for_begin(em, &l, ex_const(em->x, 0), ex_const(em->x, elem_bits(t.elem)), carry, 3);
    lreg odd = em_op2(em, L_EQ, em_op2(em, L_AND, l.params[2], one), one);
    carry[0] = em_select(em, odd, em_op2(em, L_MUL, l.params[0], l.params[1]), l.params[0]);
    carry[1] = em_op2(em, L_MUL, l.params[1], l.params[1]);
    carry[2] = em_op2(em, L_SHR, l.params[2], one);
    em_for_end(em, &l, carry, out);
    if (elem_class(t.elem) == 'U')
        return out[0];
    lreg unit = em_op2(em, L_EQ, em_op1(em, L_ABS, base), one);
    return em_select(em, em_op2(em, L_LT, e, zero), em_select(em, unit, out[0], zero), out[0]);
}

static lreg map_pow(struct em *em, const struct node *n, const lreg *in, struct ltype t)
{
    int64_t e = -1;
    if (is_float(t))
        return map_math(em, n, in, t);
    if (value_is_splat(em->g, n->in[1], &(double){0}, &e) && e >= 0 && e <= 64)
        return int_power_const(em, in[0], e, t);
    return int_power(em, in[0], in[1], t);
}

static lreg map_sign(struct em *em, const struct node *n, const lreg *in, struct ltype t)
{
    (void)n;
    lreg zero = f_const(em, t, 0), one = f_const(em, t, 1);
    lreg pos = em_op2(em, L_LT, zero, in[0]);
    if (elem_class(t.elem) == 'U')
        return em_select(em, pos, one, zero);
    lreg r = em_select(em, pos, one, em_select(em, em_op2(em, L_LT, in[0], zero), f_const(em, t, -1), zero));
    return is_float(t) ? em_select(em, em_op2(em, L_EQ, in[0], in[0]), r, in[0]) : r; /* NaN stays */
}

/* A form that is one expression. */
#define MAPPED(name, value)                                                               \
    static lreg name(struct em *em, const struct node *n, const lreg *in, struct ltype t) \
    {                                                                                     \
        (void)n, (void)t;                                                                 \
        return value;                                                                     \
    }

MAPPED(map_isnan, em_op2(em, L_NE, in[0], in[0]))
MAPPED(map_isinf, em_op2(em, L_EQ, em_op1(em, L_ABS, in[0]), f_const(em, t, __builtin_inf())))

/* Lanes past the end of a row hold zeros: they must not fail a divisor check. */
static lreg divisor_checked(struct em *em, const struct node *n, lreg d, struct ltype t)
{
    lreg ok = em_op2(em, L_NE, d, em_const(em, t.elem, 1, 0, 0));
    lreg valid = ok, live = {0};
    if (t.lanes > 1)
        live = em_lanes_live(em, em->at.idx, em->at.rank);
    if (live.i)
        valid = em_op2(em, L_OR, valid, em_op1(em, L_NOT, live));
    if (ex_truth(em->x, em->cond) != TRUE_) /* nor must what a pad or a concat does not take */
        valid = em_op2(em, L_OR, valid, em_op1(em, L_NOT, em_cond(em, em->cond)));
    em_check(em, valid, n->src.i, "integer division by zero");
    return em_select(em, ok, d, em_const(em, t.elem, t.lanes, 1, 1));
}

MAPPED(map_div, em_op2(em, L_DIV, in[0], is_float(t) ? in[1] : divisor_checked(em, n, in[1], t)))
MAPPED(map_rem, em_op2(em, L_REM, in[0], is_float(t) ? in[1] : divisor_checked(em, n, in[1], t)))

/* Remainder with the divisor's sign: the truncated one, moved by a divisor where the signs differ. */
static lreg map_mod(struct em *em, const struct node *n, const lreg *in, struct ltype t)
{
    lreg r = map_rem(em, n, in, t);
    if (elem_class(t.elem) == 'U')
        return r;
    lreg zero = em_const(em, t.elem, t.lanes, 0, 0);
    lreg differ = em_op2(em, L_XOR, em_op2(em, L_LT, r, zero), em_op2(em, L_LT, in[1], zero));
    lreg move = em_op2(em, L_AND, differ, em_op2(em, L_NE, r, zero));
    return em_select(em, move, em_op2(em, L_ADD, r, in[1]), r);
}

MAPPED(map_select, em_select(em, in[0], in[1], in[2]))

static lreg map_convert(struct em *em, const struct node *n, const lreg *in, struct ltype t)
{
    enum elem to = value_type(em->g, n->out[0])->elem;
    lreg v = in[0];
    (void)t;
    if (register_elem(to) == to && lf_type(em->f, v).elem == to)
        return v;
    uint32_t lanes = lf_type(em->f, v).lanes;
    int64_t saturate = node_int(n, "saturate", 1);
    lreg r = em_op(em, L_CONVERT, (struct ltype){to, lanes}, &v, 1);
    struct lstmt *s = lf_last(em->f, em->level[em_depth(em, &r, 1)]);
    s->imm = saturate;
    const char *round = node_str(n, "round", "even");
    if (to == ELEM_F8E8M0 || strcmp(round, "normal") == 0)
        s->name = arena_strdup(em->arena, round);
    return r;
}

static lreg map_bitcast(struct em *em, const struct node *n, const lreg *in, struct ltype t)
{
    enum elem from = value_type(em->g, n->in[0])->elem, to = value_type(em->g, n->out[0])->elem;
    lreg v = in[0];
    (void)t;
    uint32_t lanes = lf_type(em->f, v).lanes;
    if (register_elem(from) != from)
        v = em_op(em, L_CONVERT, (struct ltype){from, lanes}, &v, 1);
    if (from == to)
        return v;
    if (from == ELEM_BOOL || to == ELEM_BOOL) /* a predicate is no byte in registers */
        return em_op(em, L_CONVERT, (struct ltype){to, lanes}, &v, 1);
    return em_op(em, L_BITCAST, (struct ltype){to, lanes}, &v, 1);
}

/* ---- the table: a statement, or a function; bool operands have their own column ------------------------------- */

struct map_row {
    enum lop lop, bool_lop;
    map_fn *fn;
};
static const struct map_row rows[OP_COUNT] = {
#define STMT(statement, of_bool) {.lop = statement, .bool_lop = of_bool}
#define FORM(function) {.fn = function}
#define MAP(id, name, operands, cost, infer, eval, lattice, idle, lower, attrs) [OP_##id] = lower,
#define SCALAR(id, name, operands, cost, infer, classes, real, integer, symbol, lower, math) [OP_##id] = lower,
#include "ir/ops/ops.def"
};

/* Small floats are kept as f32 in registers, but rounded at every node's result (docs/numerics.md). */
static lreg round_to(struct em *em, lreg v, enum elem e)
{
    enum elem reg = register_elem(e);
    if (reg == e)
        return v;
    uint32_t lanes = lf_type(em->f, v).lanes;
    if (lf_type(em->f, v).elem != e)
        v = em_op(em, L_CONVERT, (struct ltype){e, lanes}, &v, 1);
    return em_op(em, L_CONVERT, (struct ltype){reg, lanes}, &v, 1);
}

/* A quantizer's zero point for all elements, loaded: that it is a byte is worth knowing where it is added to what was
 * rounded. */
static lreg zero_point(struct em *em, const struct node *n, lreg v)
{
    double f = 0;
    int64_t i;
    struct ltype t = lf_type(em->f, v);
    if (n->op != OP_ADD || t.elem != ELEM_F32 || t.lanes > 1 || value_op(em->g, n->in[0]) != OP_ROUND || !em->bytes ||
        !splat_stored(em->m, n->in[1]).i || !value_is_splat(em->g, n->in[1], &f, &i) ||
        !(f >= INT8_MIN && f <= UINT8_MAX) || f != (int32_t)f)
        return v;
    v = em_op(em, L_CONVERT, (struct ltype){f < 0 ? ELEM_I8 : ELEM_U8, 1}, &v, 1);
    return em_op(em, L_CONVERT, t, &v, 1);
}

lreg em_map(struct em *em, const struct node *n, const lreg *operands)
{
    lreg in[3] = {{0}};
    for (uint32_t k = 0; k < n->n_in && k < 3; k++)
        in[k] = k == 1 ? zero_point(em, n, operands[k]) : operands[k];
    em_unify(em, in, n->n_in < 3 ? n->n_in : 3);
    struct ltype t = lf_type(em->f, in[0]);
    const struct map_row *row = &rows[n->op];
    enum elem out = value_type(em->g, n->out[0])->elem;
    lreg r;
    if (row->fn) {
        r = row->fn(em, n, in, t);
    } else {
        enum lop op = t.elem == ELEM_BOOL ? row->bool_lop : row->lop;
        bool exact = !is_float(t) && (op == L_FLOOR || op == L_CEIL || op == L_RINT || op == L_TRUNC);
        if (op == L_NONE) {
            em->failed = true;
            error_internal(em->m->ctx, n->src, "%s of %s has no statement", op_name(n->op), elem_name(t.elem));
            return in[0];
        }
        if (exact)
            r = in[0];
        else if (n->n_in == 1)
            r = em_op1(em, op, in[0]);
        else if (n->n_in == 2)
            r = em_op2(em, op, in[0], in[1]);
        else
            r = em_op(em, op, t, in, 3);
    }
    return round_to(em, r, out);
}
