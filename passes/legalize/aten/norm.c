/* Normalisations and dropout, as trained modules compute them. */
#include "passes/legalize/aten.h"

#include <float.h>

/* Operand i, or as many elements of one number as there are channels. */
static value_id channels(struct rule *r, uint32_t i, value_id x, double absent)
{
    struct builder *b = r->b;
    if (rule_has(r, i))
        return rule_in(r, i);
    expr_id n = b_dim(b, x, v_rank(b, x) > 1 ? 1 : 0);
    return b_splat_f64(b, v_elem(b, v_widen(b, x)), absent, &n, 1);
}

/* The rows of batch_norm's operators: where the arguments stand, and what they give. */
enum { NORM_PLAIN, NORM_INFERENCE, NORM_FUNCTIONAL, NORM_NO_STATS };

/* (1 - momentum) * running + momentum * now */
static value_id running(struct rule *r, uint32_t i, value_id now)
{
    struct builder *b = r->b;
    double m = aten_float(r, "momentum", 0.1);
    value_id before = b_convert(b, rule_in(r, i), v_elem(b, now));
    return b_binary(b, OP_ADD, v_affine(b, before, 1 - m, 0), v_affine(b, now, m, 0));
}

/* With the batch's statistics, in f32 at least. Further results: mean, 1 / deviation, the running statistics. */
static bool batch_trained(struct rule *r, value_id in)
{
    struct builder *b = r->b;
    value_id x = v_widen(b, in), scale = channels(r, 1, in, 1), shift = channels(r, 2, in, 0);
    int64_t axes[RANK_MAX];
    int32_t rank = v_rank(b, x);
    uint32_t n = 0;
    expr_id count = ex_const(b->x, 1);
    if (rank < 2)
        return rule_bad(r, "the operand has rank %d, and 2 or more is needed", (int)rank);
    for (int32_t i = 0; i < rank; i++)
        if (i != 1) {
            axes[n++] = i;
            count = ex_mul(b->x, count, b_dim(b, x, i));
        }
    value_id mean = b_mean(b, x, axes, n, true), centred = b_binary(b, OP_SUB, x, mean), squares;
    squares = b_reduce(b, b_binary(b, OP_MUL, centred, centred), axes, n, "sum", true);
    value_id size = v_expr(b, v_elem(b, x), count), var = b_binary(b, OP_DIV, squares, size);
    value_id dev = b_unary(b, OP_SQRT, b_binary_f64(b, OP_ADD, var, aten_float(r, "eps", 1e-5)));
    value_id inv = b_binary(b, OP_DIV, b_splat_like(b, dev, 1), dev);
    value_id y = b_binary(b, OP_MUL, b_binary(b, OP_MUL, centred, inv),
                          v_channels(b, b_convert(b, scale, v_elem(b, x)), x, 1));
    y = b_binary(b, OP_ADD, y, v_channels(b, b_convert(b, shift, v_elem(b, x)), x, 1));
    expr_id c = b_dim(b, x, 1);
    mean = b_reshape(b, mean, &c, 1);
    aten_out(r, 1, mean);
    aten_out(r, 2, b_reshape(b, inv, &c, 1));
    if (r->param == NORM_FUNCTIONAL) {
        value_id unbiased = b_binary(b, OP_DIV, b_reshape(b, squares, &c, 1), b_binary_f64(b, OP_SUB, size, 1));
        aten_out(r, 3, running(r, 3, mean));
        aten_out(r, 4, running(r, 4, unbiased));
    }
    return rule_result(r, b_convert(b, y, v_elem(b, in)));
}

/* param: of the rows above */
bool rule_aten_batch_norm(struct rule *r)
{
    value_id x = rule_in(r, 0);
    if (!x.i)
        return false;
    bool kept = r->param != NORM_NO_STATS && (rule_has(r, 3) || rule_has(r, 4));
    if (r->param != NORM_INFERENCE && aten_flag(r, "training")) {
        if (kept && r->param == NORM_PLAIN)
            return rule_refuse(r,
                               "it writes its running statistics: export with run_decompositions(), or in evaluation "
                               "mode, module.eval()");
        return batch_trained(r, x);
    }
    if (!kept || !rule_has(r, 3) || !rule_has(r, 4))
        return rule_bad(r, "the running statistics are missing");
    const value_id in[5] = {x, channels(r, 1, x, 1), channels(r, 2, x, 0), rule_in(r, 3), rule_in(r, 4)};
    const struct attr attrs[] = {attr_float("epsilon", aten_float(r, "eps", 1e-5))};
    struct rule one = *r;
    one.n_out = 1;
    if (!aten_as(&one, rule_batch_norm, 15, 0, in, 5, attrs, 1))
        return false;
    for (uint32_t k = 1; k < r->n_out; k++)
        if (k > 2)
            aten_out(r, k, rule_in(r, k));
        else
            aten_empty_out(r, k);
    return true;
}

/* The last dims as one lot: mean and 1 / deviation. */
static value_id normalized(struct builder *b, value_id x, uint32_t n, double eps, bool centre, value_id *mean,
                           value_id *inv)
{
    int64_t axes[RANK_MAX];
    for (uint32_t i = 0; i < n; i++)
        axes[i] = v_rank(b, x) - (int64_t)n + i;
    return v_normalized(b, x, axes, n, eps, centre, mean, inv);
}

/* param: 0 layer_norm and native_layer_norm, 1 rms_norm */
bool rule_aten_layer_norm(struct rule *r)
{
    struct builder *b = r->b;
    value_id in = rule_in(r, 0), x = v_widen(b, in), mean, inv;
    expr_id shape[RANK_MAX];
    uint32_t n;
    double eps = aten_float(r, "eps", v_elem(b, in) == ELEM_F64 ? DBL_EPSILON : FLT_EPSILON);
    if (!x.i || !aten_ints(r, 1, "normalized_shape", shape, &n))
        return false;
    if (n == 0 || n > (uint32_t)v_rank(b, x))
        return rule_bad(r, "normalized_shape has %u sizes, and the operand rank %d", n, (int)v_rank(b, x));
    value_id y = normalized(b, x, n, eps, !r->param, &mean, &inv);
    y = v_scaled(b, y, rule_in(r, 2), r->param ? (value_id){0} : rule_in(r, 3));
    aten_out(r, 1, mean);
    aten_out(r, 2, inv);
    return rule_result(r, b_convert(b, y, v_elem(b, in)));
}

/* Channels in groups. param: 0 group_norm, 1 native_group_norm, which also gives means and 1 / deviations */
bool rule_aten_group_norm(struct rule *r)
{
    struct builder *b = r->b;
    value_id in = rule_in(r, 0), x = v_widen(b, in), mean, inv;
    uint32_t i_weight = r->param ? 1 : 2;
    int64_t groups = rule_int(r, r->param ? "group" : "num_groups", 1);
    const struct dims dims = b_dims(b, x);
    if (!dims.d)
        return false;
    if (dims.rank < 2 || dims.rank + 1 > RANK_MAX || groups < 1)
        return rule_bad(r, "an operand of rank %d cannot have %lld groups", (int)dims.rank, (long long)groups);
    value_id apart = v_groups(b, x, groups);
    value_id y = normalized(b, apart, (uint32_t)v_rank(b, apart) - 2, aten_float(r, "eps", 1e-5), true, &mean, &inv);
    y = b_reshape(b, y, dims.d, dims.rank);
    if (rule_has(r, i_weight))
        y = b_binary(b, OP_MUL, y, v_channels(b, b_convert(b, rule_in(r, i_weight), v_elem(b, y)), y, 1));
    if (rule_has(r, i_weight + 1))
        y = b_binary(b, OP_ADD, y, v_channels(b, b_convert(b, rule_in(r, i_weight + 1), v_elem(b, y)), y, 1));
    const expr_id *each = b_dims(b, mean).d;
    aten_out(r, 1, b_reshape(b, mean, each, 2));
    aten_out(r, 2, b_reshape(b, inv, each, 2));
    return rule_result(r, b_convert(b, y, v_elem(b, in)));
}

bool rule_aten_instance_norm(struct rule *r)
{
    value_id x = rule_in(r, 0);
    if (!x.i)
        return false;
    if (!aten_flag(r, "use_input_stats")) {
        const value_id in[5] = {x, channels(r, 1, x, 1), channels(r, 2, x, 0), rule_in(r, 3), rule_in(r, 4)};
        const struct attr attrs[] = {attr_float("epsilon", aten_float(r, "eps", 1e-5))};
        return aten_as(r, rule_batch_norm, 15, 0, in, 5, attrs, 1);
    }
    if (rule_has(r, 3) || rule_has(r, 4))
        return rule_refuse(r, "it updates its running statistics: export the module in evaluation mode, module.eval()");
    const value_id in[3] = {x, channels(r, 1, x, 1), channels(r, 2, x, 0)};
    const struct attr attrs[] = {attr_float("epsilon", aten_float(r, "eps", 1e-5))};
    return aten_as(r, rule_instance_norm, 6, 0, in, 3, attrs, 1);
}

/* param: the name of the flag: 0 train, 1 training */
bool rule_aten_dropout(struct rule *r)
{
    if (aten_flag(r, "train") && aten_float(r, "p", 0.5) != 0)
        return rule_refuse(r, "it drops at random: export the module in evaluation mode, module.eval()");
    if (r->n_out > 1) {
        value_id x = rule_in(r, 0);
        rule_out(r, 1, b_convert(r->b, b_splat_like(r->b, x, 1), ELEM_BOOL));
    }
    return rule_result(r, rule_in(r, 0));
}

/* g * v / |v|, the norm over all dims but one. */
bool rule_aten_weight_norm(struct rule *r)
{
    struct builder *b = r->b;
    value_id in = rule_in(r, 0), v = v_widen(b, in), g = b_convert(b, rule_in(r, 1), v_elem(b, v));
    int64_t axes[RANK_MAX];
    uint32_t n = 0;
    int32_t axis, rank = v_rank(b, v);
    if (!v.i || !g.i || !aten_axis(r, 2, "dim", 0, rank, &axis))
        return false;
    for (int32_t d = 0; d < rank; d++)
        if (d != axis)
            axes[n++] = d;
    value_id norm = b_unary(b, OP_SQRT, b_reduce(b, b_binary(b, OP_MUL, v, v), axes, n, "sum", true));
    return rule_result(r, b_convert(b, b_binary(b, OP_MUL, v, b_binary(b, OP_DIV, g, norm)), v_elem(b, in)));
}
