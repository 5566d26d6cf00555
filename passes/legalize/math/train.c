/* Optimizer steps of ai.onnx.preview.training: Momentum, Adagrad, Adam. Any number of tensors in one node: operands
 * R (rate), T (update count), then all X, all gradients, then the states; results X, then the states.
 */
#include "passes/legalize/legalize.h"

/* Operand group g (0: X) of tensor i when n tensors are trained. */
static value_id group(struct rule *r, uint32_t n, uint32_t g, uint32_t i)
{
    return rule_in(r, 2 + g * n + i);
}

static value_id regularized(struct rule *r, value_id grad, value_id x)
{
    return b_binary(r->b, OP_ADD, grad, v_affine(r->b, x, rule_float(r, "norm_coefficient", 0), 0));
}

static value_id blend(struct builder *b, value_id old, value_id now, double keep)
{
    return b_binary(b, OP_ADD, v_affine(b, old, keep, 0), v_affine(b, now, 1 - keep, 0));
}

static bool counted(struct rule *r, uint32_t groups, uint32_t *n)
{
    if (r->n_in < 2 + groups || (r->n_in - 2) % groups)
        return rule_bad(r, "%u operands", r->n_in);
    *n = (r->n_in - 2) / groups;
    return r->n_out == *n * (groups - 1) ? true : rule_bad(r, "%u results for %u tensors", r->n_out, *n);
}

bool rule_momentum(struct rule *r)
{
    struct builder *b = r->b;
    uint32_t n;
    double alpha = rule_float(r, "alpha", 0), beta = rule_float(r, "beta", 0);
    bool nesterov = rule_str_is(r, "mode", "standard", "nesterov");
    if (!counted(r, 3, &n))
        return false;
    value_id rate = v_scalar(b, rule_in(r, 0)), t = v_scalar(b, rule_in(r, 1));
    value_id first = b_binary(b, OP_EQ, t, b_splat_like(b, t, 0));
    for (uint32_t i = 0; i < n; i++) {
        value_id x = group(r, n, 0, i), grad = regularized(r, group(r, n, 1, i), x), v = group(r, n, 2, i);
        value_id factor = b_select(b, first, b_splat_like(b, grad, 1), b_splat_like(b, grad, beta));
        value_id speed = b_binary(b, OP_ADD, v_affine(b, v, alpha, 0), b_binary(b, OP_MUL, grad, factor));
        value_id step = nesterov ? b_binary(b, OP_ADD, grad, v_affine(b, speed, alpha, 0)) : speed;
        rule_out(r, i, b_binary(b, OP_SUB, x, b_binary(b, OP_MUL, rate, step)));
        rule_out(r, n + i, speed);
    }
    return true;
}

bool rule_adagrad(struct rule *r)
{
    struct builder *b = r->b;
    uint32_t n;
    if (!counted(r, 3, &n))
        return false;
    value_id rate = v_scalar(b, rule_in(r, 0)), t = b_convert(b, v_scalar(b, rule_in(r, 1)), v_elem(b, rate));
    rate = b_binary(b, OP_DIV, rate, v_affine(b, t, rule_float(r, "decay_factor", 0), 1));
    for (uint32_t i = 0; i < n; i++) {
        value_id x = group(r, n, 0, i), grad = regularized(r, group(r, n, 1, i), x), h = group(r, n, 2, i);
        h = b_binary(b, OP_ADD, h, b_binary(b, OP_MUL, grad, grad));
        value_id scale = b_binary_f64(b, OP_ADD, b_unary(b, OP_SQRT, h), rule_float(r, "epsilon", 1e-6));
        value_id step = b_binary(b, OP_DIV, b_binary(b, OP_MUL, rate, grad), scale);
        rule_out(r, i, b_binary(b, OP_SUB, x, step));
        rule_out(r, n + i, h);
    }
    return true;
}

bool rule_adam(struct rule *r)
{
    struct builder *b = r->b;
    uint32_t n;
    double alpha = rule_float(r, "alpha", 0.9), beta = rule_float(r, "beta", 0.999);
    double after = rule_float(r, "norm_coefficient_post", 0);
    if (!counted(r, 4, &n))
        return false;
    value_id rate = v_scalar(b, rule_in(r, 0)), t = b_convert(b, v_scalar(b, rule_in(r, 1)), v_elem(b, rate));
    value_id one = b_splat_like(b, t, 1), started = b_binary(b, OP_LT, b_splat_like(b, t, 0), t);
    value_id up = b_unary(b, OP_SQRT, b_binary(b, OP_SUB, one, b_binary(b, OP_POW, b_splat_like(b, t, beta), t)));
    value_id down = b_binary(b, OP_SUB, one, b_binary(b, OP_POW, b_splat_like(b, t, alpha), t));
    rate = b_select(b, started, b_binary(b, OP_DIV, b_binary(b, OP_MUL, rate, up), down), rate);
    for (uint32_t i = 0; i < n; i++) {
        value_id x = group(r, n, 0, i), grad = regularized(r, group(r, n, 1, i), x);
        value_id v = blend(b, group(r, n, 2, i), grad, alpha);
        value_id h = blend(b, group(r, n, 3, i), b_binary(b, OP_MUL, grad, grad), beta);
        value_id scale = b_binary_f64(b, OP_ADD, b_unary(b, OP_SQRT, h), rule_float(r, "epsilon", 1e-6));
        value_id y = b_binary(b, OP_SUB, x, b_binary(b, OP_DIV, b_binary(b, OP_MUL, rate, v), scale));
        rule_out(r, i, v_affine(b, y, 1 - after, 0));
        rule_out(r, n + i, v);
        rule_out(r, 2 * n + i, h);
    }
    return true;
}
