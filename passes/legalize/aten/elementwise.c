/* Functions of single elements: arithmetic, comparisons, logic, activations, selection, conversion.
 *
 * f16 and bf16 compute in f32 and round once at the end, as PyTorch's kernels do.
 */
#include "passes/legalize/aten.h"

#include <float.h>
#include <math.h>

/* Operand `self` in the type to compute the result in. */
static value_id self_in(struct rule *r)
{
    value_id x = rule_in(r, 0);
    return b_convert(r->b, x, elem_widened(aten_elem_or(r, x)));
}

static value_id number(struct builder *b, value_id like, double f)
{
    return b_scalar_f64(b, v_elem(b, like), f);
}

/* ---- one operand ----------------------------------------------------------------------------------------------- */

bool rule_aten_unary(struct rule *r)
{
    value_id x = self_in(r);
    bool whole = v_elem(r->b, x) != ELEM_NONE && elem_class(v_elem(r->b, x)) != 'F';
    if (whole && (r->param == OP_FLOOR || r->param == OP_CEIL || r->param == OP_ROUND || r->param == OP_TRUNC))
        return aten_result(r, x);
    value_id y = b_unary(r->b, (enum op)r->param, x);
    if (r->param == OP_SIGN && v_is_float(r->b, x)) /* of NaN, the sign is 0 */
        y = b_select(r->b, b_unary(r->b, OP_ISNAN, x), number(r->b, x, 0), y);
    return aten_result(r, y);
}

/* y with erf(y) = x, of f64: a formula that is right to 2e-3 (Winitzki 2008), and steps of Newton's method, each of
 * which squares the error. Past 1 there is none, and the logarithm gives NaN. */
static value_id erf_inverse(struct builder *b, value_id x)
{
    enum { STEPS = 3 };
    const double bend = 0.147;
    value_id one = b_splat_like(b, x, 1), sign = b_unary(b, OP_SIGN, x);
    value_id log = b_unary(b, OP_LOG1P, b_unary(b, OP_NEG, b_binary(b, OP_MUL, x, x)));
    value_id half = b_binary_f64(b, OP_ADD, b_binary_f64(b, OP_MUL, log, 0.5), 2 / (M_PI * bend));
    value_id root = b_unary(b, OP_SQRT,
                            b_binary(b, OP_SUB, b_binary(b, OP_MUL, half, half), b_binary_f64(b, OP_DIV, log, bend)));
    value_id far = b_binary(b, OP_MUL, sign, b_unary(b, OP_SQRT, b_binary(b, OP_SUB, root, half))), y = far;
    for (int i = 0; i < STEPS; i++) {
        value_id by = b_unary(b, OP_EXP, b_binary(b, OP_MUL, y, y));
        value_id off = b_binary(b, OP_SUB, b_unary(b, OP_ERF, y), x);
        y = b_binary(b, OP_SUB, y, b_binary_f64(b, OP_MUL, b_binary(b, OP_MUL, off, by), sqrt(M_PI) / 2));
    }
    return b_select(b, b_binary(b, OP_LT, b_unary(b, OP_ABS, x), one), y, far);
}

/* The rule that computes an expression of x, operand `self`. */
#define FORMULA(name, formula)            \
    bool rule_aten_##name(struct rule *r) \
    {                                     \
        struct builder *b = r->b;         \
        value_id x = self_in(r);          \
        (void)b;                          \
        return aten_result(r, formula);   \
    }                                     \
    rule_fn rule_aten_##name

FORMULA(positive, x);
FORMULA(rsqrt, b_binary(b, OP_DIV, number(b, x, 1), b_unary(b, OP_SQRT, x)));
FORMULA(reciprocal, b_binary(b, OP_DIV, number(b, x, 1), x));
FORMULA(log2, b_binary_f64(b, OP_MUL, b_unary(b, OP_LOG, x), M_LOG2E));
FORMULA(log10, b_binary_f64(b, OP_MUL, b_unary(b, OP_LOG, x), M_LOG10E));
FORMULA(exp2, b_unary(b, OP_EXP, b_binary_f64(b, OP_MUL, x, M_LN2)));
FORMULA(erfc, b_binary(b, OP_SUB, number(b, x, 1), b_unary(b, OP_ERF, x)));
FORMULA(erfinv, b_convert(b, erf_inverse(b, b_convert(b, x, ELEM_F64)), v_elem(b, x)));
FORMULA(square, b_binary(b, OP_MUL, x, x));
FORMULA(relu6, b_clamp(b, x, 0, 6));
FORMULA(silu, b_binary(b, OP_MUL, x, b_unary(b, OP_SIGMOID, x)));
FORMULA(frac, b_binary(b, OP_SUB, x, b_unary(b, OP_TRUNC, x)));
/* min(x, 0) - log1p(e^-|x|) */
FORMULA(log_sigmoid, b_binary(b, OP_SUB, b_binary_f64(b, OP_MIN, x, 0),
                              b_unary(b, OP_LOG1P, b_unary(b, OP_EXP, b_unary(b, OP_NEG, b_unary(b, OP_ABS, x))))));

/* param: 0 isnan, 1 isinf, 2 isfinite, 3 isposinf, 4 isneginf */
bool rule_aten_is(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0);
    if (!x.i)
        return false;
    value_id no = b_splat_like(b, b_binary(b, OP_EQ, x, x), 0);
    bool real = v_is_float(b, x);
    if (r->param > 2)
        return rule_result(r,
                           real ? b_binary(b, OP_EQ, x, b_splat_like(b, x, r->param == 3 ? INFINITY : -INFINITY)) : no);
    value_id nan = real ? b_unary(b, OP_ISNAN, x) : no, inf = real ? b_unary(b, OP_ISINF, x) : no;
    return rule_result(r, r->param == 0 ? nan : r->param == 1 ? inf : b_unary(b, OP_NOT, b_binary(b, OP_OR, nan, inf)));
}

/* NaN and infinities as other numbers: where none is given, 0 and the largest of the type. */
bool rule_aten_nan_to_num(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0);
    enum elem e = v_elem(b, x);
    if (!x.i || !v_is_float(b, x))
        return rule_result(r, x);
    double most = e == ELEM_F16 ? 65504 : e == ELEM_BF16 ? 0x1.FEp127 : e == ELEM_F32 ? FLT_MAX : DBL_MAX;
    value_id high = b_binary(b, OP_EQ, x, b_splat_like(b, x, INFINITY)),
             low = b_binary(b, OP_EQ, x, b_splat_like(b, x, -INFINITY)),
             y = b_select(b, b_unary(b, OP_ISNAN, x), b_splat_like(b, x, aten_float(r, "nan", 0)), x);
    y = b_select(b, high, b_splat_like(b, x, aten_float(r, "posinf", most)), y);
    return rule_result(r, b_select(b, low, b_splat_like(b, x, aten_float(r, "neginf", -most)), y));
}

static value_id truth(struct builder *b, value_id x)
{
    return v_elem(b, x) == ELEM_BOOL ? x : b_binary(b, OP_NE, x, b_splat_like(b, x, 0));
}

bool rule_aten_logical_not(struct rule *r)
{
    return rule_result(r, b_unary(r->b, OP_NOT, truth(r->b, rule_in(r, 0))));
}

bool rule_aten_round_decimals(struct rule *r)
{
    value_id x = self_in(r);
    double scale = pow(10, aten_float(r, "decimals", 0));
    return aten_result(
        r, b_binary_f64(r->b, OP_DIV, b_unary(r->b, OP_ROUND, b_binary_f64(r->b, OP_MUL, x, scale)), scale));
}

/* ---- activations ----------------------------------------------------------------------------------------------- */

/* x where it is above the limit, y elsewhere; NaN stays. */
static value_id above(struct builder *b, value_id x, double limit, value_id y)
{
    return b_select(b, b_binary(b, OP_LE, x, number(b, x, limit)), y, x);
}

FORMULA(leaky_relu, above(b, x, 0, b_binary_f64(b, OP_MUL, x, aten_float(r, "negative_slope", 0.01))));

/* param: 1 for selu, which has constants where elu has arguments */
bool rule_aten_elu(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = self_in(r);
    double alpha = aten_float(r, "alpha", r->param ? 1.6732632423543772848170429916717 : 1);
    double scale = aten_float(r, "scale", r->param ? 1.0507009873554804934193349852946 : 1);
    double in = aten_float(r, "input_scale", 1);
    value_id low = b_binary_f64(b, OP_MUL, b_unary(b, OP_EXPM1, v_affine(b, x, in, 0)), alpha * scale);
    return aten_result(r, b_select(b, b_binary(b, OP_LE, x, number(b, x, 0)), low, v_affine(b, x, scale, 0)));
}

bool rule_aten_celu(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = self_in(r);
    double alpha = aten_float(r, "alpha", 1);
    return aten_result(
        r, above(b, x, 0, b_binary_f64(b, OP_MUL, b_unary(b, OP_EXPM1, b_binary_f64(b, OP_DIV, x, alpha)), alpha)));
}

bool rule_aten_gelu(struct rule *r)
{
    value_id x = rule_in(r, 0);
    const struct attr attrs[] = {attr_str("approximate", rule_str(r, "approximate", "none"))};
    return aten_as(r, rule_gelu, 20, 0, &x, 1, attrs, 1);
}

/* param: 0 hardtanh, 1 hardsigmoid, 2 hardswish */
bool rule_aten_hard(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = self_in(r);
    if (r->param == 0)
        return aten_result(r, b_clamp(b, x, aten_float(r, "min_val", -1), aten_float(r, "max_val", 1)));
    value_id gate = b_clamp(b, v_affine(b, x, 1.0 / 6, 0.5), 0, 1);
    return aten_result(r, r->param == 1 ? gate : b_binary(b, OP_MUL, x, gate));
}

/* log(1 + e^(beta x)) / beta, and x itself above the threshold. */
static value_id softplus(struct builder *b, value_id x, double beta, double threshold)
{
    value_id z = v_affine(b, x, beta, 0);
    value_id y = v_softplus(b, z);
    if (beta != 1)
        y = b_binary_f64(b, OP_DIV, y, beta);
    return b_select(b, b_binary(b, OP_LT, number(b, z, threshold), z), x, y);
}

FORMULA(softplus, softplus(b, x, aten_float(r, "beta", 1), aten_float(r, "threshold", 20)));
FORMULA(mish, b_binary(b, OP_MUL, x, b_unary(b, OP_TANH, softplus(b, x, 1, INFINITY))));
FORMULA(threshold, above(b, x, aten_float(r, "threshold", 0), number(b, x, aten_float(r, "value", 0))));

bool rule_aten_prelu(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = self_in(r), slope = b_convert(b, rule_in(r, 1), v_elem(b, x));
    int64_t n;
    if (!x.i || !slope.i)
        return false;
    bool one = ex_is_const(b->x, b_count(b, slope), &n) && n == 1;
    slope = one ? v_scalar(b, slope) : v_rank(b, slope) == 1 ? v_channels(b, slope, x, 1) : slope;
    return aten_result(r, b_select(b, b_binary(b, OP_LT, number(b, x, 0), x), x, b_binary(b, OP_MUL, x, slope)));
}

bool rule_aten_glu(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = self_in(r);
    int32_t axis;
    if (!x.i || !aten_axis(r, 1, "dim", -1, v_rank(b, x), &axis))
        return false;
    expr_id half = ex_div(b->x, b_dim(b, x, axis), ex_const(b->x, 2));
    value_id first = b_slice_axis(b, x, axis, ex_const(b->x, 0), half), second = b_slice_axis(b, x, axis, half, half);
    return aten_result(r, b_binary(b, OP_MUL, first, b_unary(b, OP_SIGMOID, second)));
}

/* ---- two operands ---------------------------------------------------------------------------------------------- */

/* Both in the type to compute the result in. */
static bool operands(struct rule *r, value_id in[2])
{
    enum elem e = aten_elem_for(r, aten_promoted(r, 0, "self", 1, "other"));
    in[0] = aten_operand(r, 0, "self", elem_widened(e));
    in[1] = aten_operand(r, 1, "other", elem_widened(e));
    return in[0].i && in[1].i;
}

/* Of truths, sums and products are the logical ones. */
static enum op op_for(const struct builder *b, value_id x, enum op op)
{
    if (v_elem(b, x) != ELEM_BOOL)
        return op;
    return op == OP_ADD || op == OP_MAX ? OP_OR : op == OP_MUL || op == OP_MIN ? OP_AND : op;
}

/* self + alpha * other; param OP_ADD or OP_SUB, negative: the operands exchanged. */
bool rule_aten_sum(struct rule *r)
{
    struct builder *b = r->b;
    value_id in[2];
    if (!operands(r, in))
        return false;
    bool swapped = r->param < 0;
    enum op op = (enum op)(swapped ? -r->param : r->param);
    if (rule_has(r, 2) || aten_float(r, "alpha", 1) != 1) {
        value_id alpha = aten_operand(r, 2, "alpha", v_elem(b, in[1])), *scaled = swapped ? &in[0] : &in[1];
        *scaled = b_binary(b, OP_MUL, *scaled, alpha);
    }
    return aten_result(r, b_binary(b, op_for(b, in[0], op), in[swapped], in[!swapped]));
}

bool rule_aten_binary(struct rule *r)
{
    value_id in[2];
    return operands(r, in) && aten_result(r, b_binary(r->b, op_for(r->b, in[0], (enum op)r->param), in[0], in[1]));
}

/* Comparisons in the type that both promote to; param negative: the operands exchanged. */
bool rule_aten_compare(struct rule *r)
{
    bool swapped = r->param < 0;
    enum elem e = aten_promoted(r, 0, "self", 1, "other");
    if (e == ELEM_BOOL && abs(r->param) != OP_EQ && abs(r->param) != OP_NE)
        e = ELEM_U8;
    value_id a = aten_operand(r, 0, "self", e), c = aten_operand(r, 1, "other", e);
    return rule_result(r, b_binary(r->b, (enum op)abs(r->param), swapped ? c : a, swapped ? a : c));
}

bool rule_aten_logical(struct rule *r)
{
    value_id a = aten_operand(r, 0, "self", ELEM_NONE), c = aten_operand(r, 1, "other", ELEM_NONE);
    return rule_result(r, b_binary(r->b, (enum op)r->param, truth(r->b, a), truth(r->b, c)));
}

/* The quotient rounded towards minus infinity, without the error of floor(a / b): a minus its remainder is divided. */
static value_id floor_quotient(struct builder *b, value_id x, value_id y)
{
    if (!v_is_float(b, x))
        return b_binary(b, OP_DIV, b_binary(b, OP_SUB, x, b_binary(b, OP_MOD, x, y)), y);
    value_id zero = number(b, y, 0), rest = b_binary(b, OP_REM, x, y);
    value_id even = b_binary(b, OP_DIV, b_binary(b, OP_SUB, x, rest), y);
    value_id apart = b_binary(b, OP_XOR, b_binary(b, OP_LT, y, zero), b_binary(b, OP_LT, rest, zero));
    value_id below = b_binary(b, OP_AND, b_binary(b, OP_NE, rest, zero), apart);
    even = b_unary(b, OP_ROUND, b_select(b, below, b_binary_f64(b, OP_SUB, even, 1), even));
    return b_select(b, b_binary(b, OP_EQ, y, zero), b_binary(b, OP_DIV, x, y), even);
}

bool rule_aten_div(struct rule *r)
{
    struct builder *b = r->b;
    value_id in[2];
    const char *mode = rule_str(r, "rounding_mode", r->param ? "floor" : "");
    if (!operands(r, in))
        return false;
    if (strcmp(mode, "floor") == 0)
        return aten_result(r, floor_quotient(b, in[0], in[1]));
    value_id q = b_binary(b, OP_DIV, in[0], in[1]);
    if (strcmp(mode, "trunc") == 0 && v_is_float(b, q))
        q = b_unary(b, OP_TRUNC, q);
    return aten_result(r, q);
}

/* self ** exponent. Powers that a multiplication or a root gives are that, as PyTorch computes them. */
bool rule_aten_pow(struct rule *r)
{
    struct builder *b = r->b;
    enum elem e = aten_elem_for(r, aten_promoted(r, 0, "self", 1, "exponent"));
    value_id x = aten_operand(r, 0, "self", elem_widened(e));
    double p = aten_float(r, "exponent", NAN);
    bool real = v_is_float(b, x);
    if (rule_has(r, 1))
        p = NAN;
    if (p == 1)
        return aten_result(r, x);
    if (p == 2)
        return aten_result(r, b_binary(b, OP_MUL, x, x));
    if (p == 3)
        return aten_result(r, b_binary(b, OP_MUL, b_binary(b, OP_MUL, x, x), x));
    if (real && (p == 0.5 || p == -0.5)) {
        value_id root = b_unary(b, OP_SQRT, x);
        return aten_result(r, p > 0 ? root : b_binary(b, OP_DIV, number(b, x, 1), root));
    }
    if (real && (p == -1 || p == -2)) {
        value_id d = p == -1 ? x : b_binary(b, OP_MUL, x, x);
        return aten_result(r, b_binary(b, OP_DIV, number(b, x, 1), d));
    }
    return aten_result(r, b_binary(b, OP_POW, x, aten_operand(r, 1, "exponent", elem_widened(e))));
}

/* Argument i in that type; a number that the type of integers does not hold is its least or largest one. */
static value_id limit(struct rule *r, uint32_t i, const char *name, enum elem e)
{
    const struct attr *a = node_attr(r->node, name);
    bool sign = elem_class(e) == 'I';
    if (rule_has(r, i) || !a || a->kind != ATTR_INT || !strchr("IU", elem_class(e)) || (sign && elem_bits(e) > 32))
        return aten_operand(r, i, name, e);
    int64_t least = sign ? -((int64_t)1 << (elem_bits(e) - 1)) : 0, n = a->u.i < least ? least : a->u.i;
    int64_t most = elem_bits(e) > 32 ? INT64_MAX : ((int64_t)1 << (elem_bits(e) - sign)) - 1;
    return b_scalar_i64(r->b, e, n > most ? most : n);
}

/* min and max are numbers or tensors, and either may be missing. Names of the arguments: param 0 clamp, 1 clamp_min, 2
 * clamp_max. */
bool rule_aten_clamp(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = self_in(r);
    enum elem e = v_elem(b, x);
    uint32_t i_max = r->param == 2 ? 1 : 2;
    if (r->param != 2 && aten_has(r, 1, "min"))
        x = b_binary(b, OP_MAX, x, limit(r, 1, "min", e));
    if (r->param != 1 && aten_has(r, i_max, "max"))
        x = b_binary(b, OP_MIN, x, limit(r, i_max, "max", e));
    return aten_result(r, x);
}

/* ---- three operands -------------------------------------------------------------------------------------------- */

bool rule_aten_where(struct rule *r)
{
    value_id cond = rule_in(r, 0);
    enum elem e = aten_elem_for(r, aten_promoted(r, 1, "self", 2, "other"));
    value_id t = aten_operand(r, 1, "self", e), f = aten_operand(r, 2, "other", e);
    value_id masked = v_softmax_cleared(r->b, cond, t, f); /* torch's decomposition of _safe_softmax */
    return rule_result(r, masked.i ? masked : b_select(r->b, truth(r->b, cond), t, f));
}

bool rule_aten_masked_fill(struct rule *r)
{
    value_id x = rule_in(r, 0), mask = rule_in(r, 1);
    return rule_result(r, b_select(r->b, mask, aten_operand(r, 2, "value", v_elem(r->b, x)), x));
}

/* self + weight * (end - self), from the nearer end. */
bool rule_aten_lerp(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = self_in(r), end = b_convert(b, rule_in(r, 1), v_elem(b, x));
    value_id w = aten_operand(r, 2, "weight", v_elem(b, x)), span = b_binary(b, OP_SUB, end, x);
    value_id near = b_binary(b, OP_ADD, x, b_binary(b, OP_MUL, w, span));
    value_id far = b_binary(b, OP_SUB, end, b_binary(b, OP_MUL, span, b_binary(b, OP_SUB, number(b, w, 1), w)));
    return aten_result(r, b_select(b, b_binary(b, OP_LT, b_unary(b, OP_ABS, w), number(b, w, 0.5)), near, far));
}

/* self + value * tensor1 OP tensor2 */
bool rule_aten_addc(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = self_in(r), t1 = b_convert(b, rule_in(r, 1), v_elem(b, x)),
             t2 = b_convert(b, rule_in(r, 2), v_elem(b, x));
    value_id y = b_binary(b, (enum op)r->param, t1, t2);
    if (rule_has(r, 3) || aten_float(r, "value", 1) != 1)
        y = b_binary(b, OP_MUL, y, aten_operand(r, 3, "value", v_elem(b, x)));
    return aten_result(r, b_binary(b, OP_ADD, x, y));
}

/* ---- conversions ----------------------------------------------------------------------------------------------- */

/* As C converts: floats towards zero; to bool, whether it is not 0. */
bool rule_aten_to(struct rule *r)
{
    value_id x = rule_in(r, 0);
    enum elem e = aten_elem(r, 0) == ELEM_NONE ? v_elem(r->b, x) : aten_elem(r, 0);
    return rule_result(r, e == ELEM_BOOL ? truth(r->b, x) : b_convert(r->b, x, e));
}

/* The operand, broadcast to the first one's shape and in its type: copy, fill. */
bool rule_aten_copy(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0), y = aten_operand(r, 1, r->param ? "value" : "src", ELEM_NONE);
    const struct dims dims = b_dims(b, x);
    if (!dims.d || !y.i)
        return false;
    if (v_rank(b, y) > dims.rank)
        return rule_bad(r, "a tensor of rank %d is copied into one of rank %d", (int)v_rank(b, y), (int)dims.rank);
    y = v_elem(b, x) == ELEM_BOOL ? truth(b, y) : b_convert(b, y, v_elem(b, x));
    return rule_result(r, b_broadcast_like(b, y, x));
}

bool rule_aten_zero(struct rule *r)
{
    return rule_result(r, b_splat_like(r->b, rule_in(r, 0), 0));
}
