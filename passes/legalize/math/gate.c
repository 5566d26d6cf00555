/* The hard gate written in pieces: clamp(x + 3, 0, 6) / 6, with or without x as a factor, becomes what
 * HardSigmoid(1/6, 1/2) and HardSwish legalize to.
 *
 * Exporters before HardSwish existed (version 14) wrote it as Add, Clip, Div, Mul; Add, Clip, Mul, Div; with Relu and
 * Min, Max and Min or two one-sided Clips in place of Clip; with a multiplication by 1/6; with operands in either
 * order; before version 7 with `broadcast`. All of these reach the rule below as core operators, so what is recognised
 * is their meaning and not their spelling. Constants must be exactly 3, 0, 6 and 6 or the element type's nearest to
 * 1/6; anything else is left as it is written. The division disappears; the last bit may differ from the pieces
 * (docs/notes/onnx-decisions.md). f16 and bf16 compute in f32 and round once, as the operators themselves do.
 */
#include "passes/legalize/legalize.h"

static bool is_splat(const struct rule *r, value_id v, double want)
{
    double have;
    return v_splat_f64(r->b, v, &have) && have == want;
}

/* v = op(x, want) in either order: x. */
static value_id without(const struct rule *r, value_id v, enum op op, double want)
{
    const struct node *node = v_defining(r->b, v, op);
    for (uint32_t i = 0; node && i < 2; i++)
        if (is_splat(r, node->in[1 - i], want))
            return node->in[i];
    return (value_id){0};
}

/* v = clamp(x + 3, 0, 6), its bounds applied in either order: x. */
static value_id ramp_operand(const struct rule *r, value_id v)
{
    value_id inner = without(r, without(r, v, OP_MIN, 6), OP_MAX, 0);
    if (!inner.i)
        inner = without(r, without(r, v, OP_MAX, 0), OP_MIN, 6);
    value_id x = without(r, inner, OP_ADD, 3);
    const struct node *less = v_defining(r->b, inner, OP_SUB);
    return !x.i && less && is_splat(r, less->in[1], -3) ? less->in[0] : x;
}

/* v = x * clamp(x + 3, 0, 6) in either order: x. */
static value_id product_operand(const struct rule *r, value_id v)
{
    const struct node *node = v_defining(r->b, v, OP_MUL);
    for (uint32_t i = 0; node && i < 2; i++) {
        value_id x = ramp_operand(r, node->in[i]);
        if (x.i && x.i == node->in[1 - i].i)
            return x;
    }
    return (value_id){0};
}

/* Whether this node takes operand i to a sixth without changing its shape. */
static bool takes_sixth(const struct rule *r, const value_id in[2], uint32_t i)
{
    if (r->param == OP_DIV && i != 0)
        return false;
    enum elem e = v_elem(r->b, in[i]);
    uint64_t sixth = 0;
    elem_from_f64(e, 1.0 / 6, &sixth);
    return v_rank(r->b, in[1 - i]) <= v_rank(r->b, in[i]) &&
           is_splat(r, in[1 - i], r->param == OP_DIV ? 6 : elem_to_f64(e, &sixth));
}

static value_id hard_gate(struct rule *r, value_id x, bool times_x)
{
    struct builder *b = r->b;
    value_id wide = v_widen(b, x), y = b_clamp(b, v_affine(b, wide, 1.0 / 6, 0.5), 0, 1);
    return b_convert(b, times_x ? b_binary(b, OP_MUL, wide, y) : y, v_elem(b, x));
}

/* Mul and Div of every version. */
bool rule_product(struct rule *r)
{
    value_id in[2];
    rule_operands(r, in);
    for (uint32_t i = 0; i < 2 && v_is_float(r->b, in[0]) && v_is_float(r->b, in[1]); i++) {
        if (!takes_sixth(r, in, i))
            continue;
        value_id ramp = ramp_operand(r, in[i]), product = product_operand(r, in[i]);
        if (ramp.i || product.i)
            return rule_result(r, hard_gate(r, ramp.i ? ramp : product, !ramp.i));
    }
    return (r->param == OP_DIV && quotient_by_root(r, in[0], in[1])) || rule_binary(r);
}
