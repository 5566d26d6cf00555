/* NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss.
 *
 * x is (N, C, d...), target (N, d...). Targets equal to ignore_index weigh nothing; the mean divides by the weights'
 * sum.
 */
#include "passes/legalize/legalize.h"

/* -weight[target] * x[n, target, d...]; *weights: what each element weighs, {0} when all weigh 1. */
static value_id nll(struct rule *r, value_id x, value_id target, value_id weight, value_id *weights)
{
    struct builder *b = r->b;
    struct exprs *ex = b->x;
    value_id ignored = {0};
    *weights = (value_id){0};
    for (int32_t i = 0; i < v_rank(b, target) && v_rank(b, x) == v_rank(b, target) + 1; i++)
        b_assert(b, ex_eq(ex, b_dim(b, target, i), b_dim(b, x, i ? i + 1 : 0)), EVAL_SHAPE,
                 "input and target differ in dimension %d of the target", (int)i);
    if (weight.i)
        b_assert(b, ex_eq(ex, b_dim(b, weight, 0), b_dim(b, x, 1)), EVAL_SHAPE, "there is not a weight for each class");
    target = b_convert(b, target, ELEM_I64);
    if (node_attr(r->node, "ignore_index")) {
        value_id skip = b_scalar_i64(b, ELEM_I64, rule_int(r, "ignore_index", 0));
        ignored = b_binary(b, OP_EQ, target, skip);
        target = b_select(b, ignored, b_scalar_i64(b, ELEM_I64, 0), target);
    }
    value_id own = v_addressed(b, x, b_gather_elements(b, x, b_unsqueeze(b, target, 1), 1));
    value_id loss = b_unary(b, OP_NEG, b_squeeze(b, own, 1));
    if (weight.i)
        *weights = v_gather(b, b_convert(b, weight, v_elem(b, x)), target, 0);
    if (ignored.i) {
        value_id zero = b_scalar_f64(b, v_elem(b, x), 0);
        loss = b_select(b, ignored, zero, loss);     /* 0 also where the element is NaN or infinite */
        *weights = b_select(b, ignored, zero, weights->i ? *weights : b_splat_like(b, loss, 1));
    }
    return weights->i ? b_binary(b, OP_MUL, loss, *weights) : loss;
}

static value_id loss_reduce(struct rule *r, value_id loss, value_id weights)
{
    struct builder *b = r->b;
    int64_t axes[RANK_MAX];
    int32_t rank = v_rank(b, loss);
    const char *how = rule_str(r, "reduction", "mean");
    for (int32_t i = 0; i < rank; i++)
        axes[i] = i;
    if (strcmp(how, "none") == 0)
        return loss;
    if (strcmp(how, "sum") == 0)
        return b_reduce(b, loss, axes, (uint32_t)rank, "sum", false);
    if (strcmp(how, "mean") != 0)
        return rule_bad(r, "no reduction is called \"%.40s\"", how), (value_id){0};
    if (!weights.i)
        return b_mean(b, loss, axes, (uint32_t)rank, false);
    value_id sum = b_reduce(b, loss, axes, (uint32_t)rank, "sum", false);
    return b_binary(b, OP_DIV, sum, b_reduce(b, weights, axes, (uint32_t)rank, "sum", false));
}

/* The row's parameter: 1 takes the log of a softmax first, and gives it as second result. */
bool rule_loss(struct rule *r)
{
    struct builder *b = r->b;
    static const int64_t channel[] = {1};
    value_id in = rule_in(r, 0), x = v_widen(b, in), target = rule_in(r, 1), weights;
    if (!x.i || !target.i)
        return false;
    if (v_rank(b, x) < 2 || v_rank(b, target) != v_rank(b, x) - 1)
        return rule_bad(r, "scores of rank %d with targets of rank %d", (int)v_rank(b, x), (int)v_rank(b, target));
    if (r->param)
        x = v_softmax(b, x, channel, 1, true);
    value_id loss = nll(r, x, target, rule_in(r, 2), &weights);
    if (rule_wants(r, 1))
        rule_out(r, 1, b_convert(b, x, v_elem(b, in)));
    return rule_result(r, b_convert(b, loss_reduce(r, loss, weights), v_elem(b, in)));
}
