/* Elementwise operators: unary, binary with both kinds of broadcasting, variadic, comparison, logic, selection.
 *
 * The core operator is the row's parameter. Before version 7 a binary operator broadcasts its second operand only
 * when `broadcast` says so, aligned at `axis` (ONNX Changelog, Add-6). f16 and bf16 functions that are not
 * correctly rounded anyway (exp, tanh, ...) are left to the core operators, which compute wide and round once.
 */
#include "passes/legalize/legalize.h"

#include <math.h>

bool rule_unary(struct rule *r)
{
    return rule_result(r, b_unary(r->b, (enum op)r->param, rule_in(r, 0)));
}

bool rule_identity(struct rule *r)
{
    r->out[0] = r->arg[0];
    return true;
}

/* Version 1 and 6: b's dims match a's from `axis` on; trailing alignment without axis. */
static value_id broadcast_old(struct rule *r, value_id a, value_id v)
{
    int32_t ra = v_rank(r->b, a), rb = v_rank(r->b, v), axis;
    if (!a.i || !v.i || !rule_int(r, "broadcast", 0) || !node_attr(r->node, "axis"))
        return v;
    if (!rule_axis(r, rule_int(r, "axis", 0), ra, &axis))
        return (value_id){0};
    if (axis + rb > ra)
        return rule_bad(r, "axis %d leaves no room for %d dimensions", (int)axis, (int)rb), (value_id){0};
    const struct dims have = b_dims(r->b, v);
    expr_id dims[RANK_MAX];
    for (int32_t i = 0; i < ra - axis; i++)
        dims[i] = i < rb ? have.d[i] : ex_const(r->b->x, 1);
    return b_reshape(r->b, v, dims, ra - axis);
}

void rule_operands(struct rule *r, value_id in[2])
{
    in[0] = rule_in(r, 0);
    in[1] = r->version < 7 ? broadcast_old(r, in[0], rule_in(r, 1)) : rule_in(r, 1);
}

bool rule_binary(struct rule *r)
{
    value_id in[2];
    rule_operands(r, in);
    if (v_is_string(r->b, in[0]))
        return r->param == OP_EQ ? rule_string_binary(r) : rule_refuse(r, "strings are compared");
    return rule_result(r, b_binary(r->b, (enum op)r->param, in[0], in[1]));
}

/* Greater and GreaterOrEqual are Less and LessOrEqual with the operands exchanged. */
bool rule_binary_swap(struct rule *r)
{
    value_id in[2];
    rule_operands(r, in);
    return rule_result(r, b_binary(r->b, (enum op)r->param, in[1], in[0]));
}

/* x to the power p, where p is one of -2, -1.5 ... 2.5, 3, 4: products and a square root, within 2 units of the last
 * place, in place of a logarithm and an exponential. {0}: p is another one. Computed wide, rounded once. As in C, -0
 * and -infinity count as 0 and infinity where p is not a whole number. */
static value_id power_of_halves(struct builder *b, value_id x, double p)
{
    double halves = 2 * p;
    bool is_odd = fmod(halves, 2) != 0;
    if (p == 0 || halves != floor(halves) || halves < -4 || halves > 8 || (halves > 5 && is_odd))
        return (value_id){0};
    enum elem e = v_elem(b, x);
    x = v_widen(b, x);
    if (is_odd) {
        value_id infinite = b_binary(b, OP_EQ, x, b_splat_like(b, x, -INFINITY));
        x = b_select(b, infinite, b_splat_like(b, x, INFINITY), b_binary_f64(b, OP_ADD, x, 0));
    }
    value_id root = is_odd ? b_unary(b, OP_SQRT, x) : (value_id){0}, one = b_splat_like(b, x, 1);
    if (p == -0.5)
        return b_convert(b, b_binary(b, OP_DIV, one, root), e);
    if (p < 0) { /* of the reciprocal: the power itself may overflow */
        x = b_binary(b, OP_DIV, one, x);
        root = is_odd ? b_unary(b, OP_SQRT, x) : root;
    }
    value_id square = fabs(p) >= 2 ? b_binary(b, OP_MUL, x, x) : x;
    value_id power = p == 3 ? b_binary(b, OP_MUL, square, x) : p == 4 ? b_binary(b, OP_MUL, square, square) : square;
    return b_convert(b, p == 0.5 ? root : is_odd ? b_binary(b, OP_MUL, power, root) : power, e);
}

/* Base and exponent types may differ; the result has the base's. A whole-number exponent of a float base is exact
 * in the exponent's conversion; an integer base with a float exponent computes in double. */
bool rule_pow(struct rule *r)
{
    struct builder *b = r->b;
    value_id in[2];
    rule_operands(r, in);
    value_id x = in[0], y = in[1];
    enum elem e = v_elem(b, x), ey = v_elem(b, y);
    double p;
    if (v_is_float(b, x) && v_rank(b, y) <= v_rank(b, x) && v_known_f64(b, y, &p)) {
        value_id power = power_of_halves(b, x, p);
        if (power.i)
            return rule_result(r, power);
    }
    if (e == ey)
        return rule_result(r, b_binary(b, OP_POW, x, y));
    if (elem_class(e) == 'F' || elem_class(ey) != 'F') {
        enum elem wide = e == ELEM_F64 || ey == ELEM_F64 ? ELEM_F64 : elem_class(e) == 'F' ? ELEM_F32 : ELEM_I64;
        if (elem_class(e) == 'F' && elem_size(ey) > 2)
            wide = ELEM_F64;
        return rule_result(r, b_convert(b, b_binary(b, OP_POW, b_convert(b, x, wide), b_convert(b, y, wide)), e));
    }
    value_id z = b_binary(b, OP_POW, b_convert(b, x, ELEM_F64), b_convert(b, y, ELEM_F64));
    return rule_result(r, b_convert(b, z, e));
}

bool rule_mod(struct rule *r)
{
    value_id a = rule_in(r, 0), v = rule_in(r, 1);
    bool fmod = rule_int(r, "fmod", 0) != 0;
    if (!fmod && v_is_float(r->b, a)) {
        warn_at(r->b->g->ctx, r->node->src, "fmod",
                "fmod is not 1, which ONNX asks for with floating-point operands: the result has the "
                "sign of the dividend all the same");
        fmod = true;
    }
    return rule_result(r, b_binary(r->b, fmod ? OP_REM : OP_MOD, a, v));
}

/* Max, Min, Sum, Mean of any number of operands; before version 8 of equal shapes. */
bool rule_variadic(struct rule *r)
{
    if (!r->n_in)
        return rule_bad(r, "no operands");
    value_id acc = rule_in(r, 0);
    for (uint32_t i = 1; i < r->n_in; i++)
        acc = b_binary(r->b, (enum op)r->param, acc, rule_in(r, i));
    return rule_result(r, acc);
}

bool rule_mean(struct rule *r)
{
    struct builder *b = r->b;
    if (!r->n_in)
        return rule_bad(r, "no operands");
    enum elem e = v_elem(b, rule_in(r, 0));
    value_id acc = v_widen(b, rule_in(r, 0));
    for (uint32_t i = 1; i < r->n_in; i++)
        acc = b_binary(b, OP_ADD, acc, v_widen(b, rule_in(r, i)));
    return rule_result(r, b_convert(b, b_binary_f64(b, OP_DIV, acc, r->n_in), e));
}

bool rule_where(struct rule *r)
{
    value_id masked = v_softmax_cleared(r->b, rule_in(r, 0), rule_in(r, 1), rule_in(r, 2));
    return rule_result(r, masked.i ? masked : b_select(r->b, rule_in(r, 0), rule_in(r, 1), rule_in(r, 2)));
}

bool rule_reciprocal(struct rule *r)
{
    value_id x = rule_in(r, 0);
    return rule_result(r, b_binary(r->b, OP_DIV, b_splat_like(r->b, x, 1), x));
}

bool rule_bitshift(struct rule *r)
{
    bool left = rule_str_is(r, "direction", "", "LEFT");
    if (!left && !rule_str_is(r, "direction", "", "RIGHT"))
        return rule_bad(r, "direction must be LEFT or RIGHT");
    return rule_result(r, b_binary(r->b, left ? OP_SHL : OP_SHR, rule_in(r, 0), rule_in(r, 1)));
}

bool rule_isinf(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0);
    bool neg = rule_int(r, "detect_negative", 1) != 0, pos = rule_int(r, "detect_positive", 1) != 0;
    enum elem e = v_elem(b, x);
    if (e != ELEM_NONE && elem_size(e) == 1)
        x = b_convert(b, x, ELEM_F32);
    value_id inf = b_unary(b, OP_ISINF, x);
    if (neg && pos)
        return rule_result(r, inf);
    value_id zero = b_splat_like(b, x, 0);
    value_id side = neg ? b_binary(b, OP_LT, x, zero) : b_binary(b, OP_LT, zero, x);
    if (!neg && !pos)
        side = b_splat_like(b, inf, 0);
    return rule_result(r, b_binary(b, OP_AND, inf, side));
}

bool rule_isnan(struct rule *r)
{
    value_id x = rule_in(r, 0);
    enum elem e = v_elem(r->b, x);
    if (e != ELEM_NONE && elem_size(e) == 1)
        x = b_convert(r->b, x, ELEM_F32);
    return rule_result(r, b_unary(r->b, OP_ISNAN, x));
}

/* ---- Clip --------------------------------------------------------------------------------------------------- */

/* Versions 1 and 6: bounds are attributes. */
bool rule_clip_old(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0);
    if (node_attr(r->node, "min"))
        x = b_binary_f64(b, OP_MAX, x, rule_float(r, "min", 0));
    if (node_attr(r->node, "max"))
        x = b_binary_f64(b, OP_MIN, x, rule_float(r, "max", 0));
    return rule_result(r, x);
}

/* Version 11 on: optional scalar operands; min above max gives max. */
bool rule_clip(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0);
    if (rule_has(r, 1))
        x = b_binary(b, OP_MAX, x, v_scalar(b, rule_in(r, 1)));
    if (rule_has(r, 2))
        x = b_binary(b, OP_MIN, x, v_scalar(b, rule_in(r, 2)));
    return rule_result(r, x);
}

/* ---- Cast, CastLike, BitCast ------------------------------------------------------------------------------------- */

static enum elem elem_by_old_name(const char *name)
{
    static const struct old_name {
        const char *name;
        enum elem elem;
    } names[] = {
        {"FLOAT", ELEM_F32},  {"UINT8", ELEM_U8},   {"INT8", ELEM_I8},    {"UINT16", ELEM_U16}, {"INT16", ELEM_I16},
        {"INT32", ELEM_I32},  {"INT64", ELEM_I64},  {"STRING", ELEM_STR}, {"BOOL", ELEM_BOOL},  {"FLOAT16", ELEM_F16},
        {"DOUBLE", ELEM_F64}, {"UINT32", ELEM_U32}, {"UINT64", ELEM_U64},
    };
    const struct old_name *row = ROW_NAMED(names, COUNT_OF(names), name);
    return row ? row->elem : ELEM_NONE;
}

static bool cast_to(struct rule *r, value_id x, enum elem to)
{
    struct builder *b = r->b;
    if (to == ELEM_NONE)
        return rule_bad(r, "unknown target type");
    if (!x.i || v_elem(b, x) == to)
        return rule_result(r, x);
    if (to == ELEM_STR || v_is_string(b, x))
        return rule_cast_text(r, x, to);
    if (elem_class(to) != 'F' && elem_bits(to) < 8 && to != ELEM_BOOL && v_is_float(b, x))
        x = b_convert(b, x, ELEM_I32); /* sub-byte integers keep the low bits, as integers do, and do not saturate */
    struct attr attrs[3] = {attr_elem("elem", to), attr_int("saturate", rule_int(r, "saturate", 1))};
    uint32_t n = 1;
    if (elem_class(to) == 'F' && elem_size(to) == 1)
        n = 2;
    if (to == ELEM_F8E8M0)
        attrs[n++] = attr_str("round", rule_str(r, "round_mode", "up"));
    return rule_result(r, b_op(b, OP_CONVERT, &x, 1, attrs, n));
}

bool rule_cast_old(struct rule *r)
{
    return cast_to(r, rule_in(r, 0), elem_by_old_name(rule_str(r, "to", "")));
}

bool rule_cast(struct rule *r)
{
    return cast_to(r, rule_in(r, 0), rule_elem_attr(r, "to", ELEM_NONE));
}

bool rule_cast_like(struct rule *r)
{
    return cast_to(r, rule_in(r, 0), v_elem(r->b, rule_in(r, 1)));
}

bool rule_bitcast(struct rule *r)
{
    value_id x = rule_in(r, 0);
    enum elem to = rule_elem_attr(r, "to", ELEM_NONE);
    if (to == ELEM_NONE || v_is_string(r->b, x) || to == ELEM_STR)
        return rule_bad(r, "unknown or unusable target type");
    if (elem_bits(to) != elem_bits(v_elem(r->b, x)))
        return rule_bad(r, "the target type has another width");
    if (v_elem(r->b, x) == to)
        return rule_result(r, x);
    struct attr attr = attr_elem("elem", to);
    return rule_result(r, b_op(r->b, OP_BITCAST, &x, 1, &attr, 1));
}
