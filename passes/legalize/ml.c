/* ai.onnx.ml: the operators over tensors of numbers that are plain arithmetic.
 */
#include "passes/legalize/ml.h"

#include <string.h>

/* Columns of the last axis. */
bool rule_array_feature_extractor(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0), idx = rule_in(r, 1);
    if (!x.i || !idx.i)
        return false;
    if (v_rank(b, x) < 1)
        return rule_bad(r, "input of rank 0");
    expr_id n = b_count(b, idx);
    value_id y = b_gather(b, x, b_reshape(b, idx, &n, 1), v_rank(b, x) - 1);
    return rule_result(r, v_rank(b, x) == 1 ? b_unsqueeze(b, y, 0) : y);
}

bool rule_binarizer(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0);
    value_id above = b_binary(b, OP_LT, b_splat_like(b, x, rule_float(r, "threshold", 0)), x);
    return rule_result(r, b_convert(b, above, v_elem(b, x)));
}

value_id ml_floats(struct builder *b, const double *x, int64_t n)
{
    float *f = NEW_ARRAY(&b->g->arena, float, n + 1);
    for (int64_t i = 0; i < n; i++)
        f[i] = (float)x[i];
    return b_const(b, ELEM_F32, &n, 1, f);
}

/* (x - offset) * scale; one value or one per feature. */
bool rule_scaler(struct rule *r)
{
    struct builder *b = r->b;
    uint32_t n_offset, n_scale;
    const double *offset = rule_floats(r, "offset", &n_offset), *scale = rule_floats(r, "scale", &n_scale);
    value_id x = b_convert(b, rule_in(r, 0), ELEM_F32);
    if (offset)
        x = b_binary(b, OP_SUB, x, ml_floats(b, offset, n_offset));
    if (scale)
        x = b_binary(b, OP_MUL, x, ml_floats(b, scale, n_scale));
    return rule_result(r, x);
}

bool rule_linear_regressor(struct rule *r)
{
    struct builder *b = r->b;
    static const int64_t turn[] = {1, 0};
    uint32_t n, n_bias;
    const double *c = rule_floats(r, "coefficients", &n), *bias = rule_floats(r, "intercepts", &n_bias);
    int64_t targets = rule_int(r, "targets", 1);
    if (!rule_str_is(r, "post_transform", "NONE", "NONE"))
        return rule_refuse(r, "post_transform \"%.20s\"", rule_str(r, "post_transform", ""));
    if (targets < 1 || !n || n % targets)
        return rule_bad(r, "%u coefficients for %lld targets", n, (long long)targets);
    int64_t dims[2] = {targets, n / targets};
    value_id w = b_transpose(b, v_reshape_i(b, ml_floats(b, c, n), dims, 2), turn);
    value_id y = b_matmul(b, b_convert(b, rule_in(r, 0), ELEM_F32), w);
    return rule_result(r, bias ? b_binary(b, OP_ADD, y, ml_floats(b, bias, n_bias)) : y);
}

/* x over the largest magnitude, the sum of magnitudes, or the Euclidean length of its row. */
bool rule_normalizer(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = b_convert(b, rule_in(r, 0), ELEM_F32), norm;
    int64_t axis = v_rank(b, x) - 1;
    if (!x.i || axis < 0)
        return x.i ? rule_bad(r, "input of rank 0") : false;
    if (rule_str_is(r, "norm", "MAX", "MAX"))
        norm = b_reduce(b, b_unary(b, OP_ABS, x), &axis, 1, "max", true);
    else if (rule_str_is(r, "norm", "MAX", "L1"))
        norm = b_reduce(b, b_unary(b, OP_ABS, x), &axis, 1, "sum", true);
    else
        norm = b_unary(b, OP_SQRT, b_reduce(b, b_binary(b, OP_MUL, x, x), &axis, 1, "sum", true));
    value_id flat = b_binary(b, OP_EQ, norm, b_splat_like(b, norm, 0));
    return rule_result(r, b_binary(b, OP_DIV, x, b_select(b, flat, b_splat_like(b, norm, 1), norm)));
}

/* ---- classifiers ------------------------------------------------------------------------------------------- */

bool classifier_served(struct rule *r)
{
    static const char *const served[] = {"NONE", "SOFTMAX", "LOGISTIC"};
    bool found = false;
    for (size_t i = 0; i < COUNT_OF(served); i++)
        found |= rule_str_is(r, "post_transform", "NONE", served[i]);
    if (!found)
        return rule_refuse(r, "post_transform \"%.20s\"", rule_str(r, "post_transform", ""));
    if (node_attr(r->node, "classlabels_strings"))
        return rule_refuse(r, "labels that are strings");
    return true;
}

bool classifier_results(struct rule *r, value_id score, const int64_t *labels, int64_t n)
{
    struct builder *b = r->b;
    const int64_t last = 1;
    struct attr attrs[] = {attr_int("axis", 1), attr_int("max", 1), attr_int("last", 0)};
    rule_out(r, 0, b_gather(b, b_const(b, ELEM_I64, &n, 1, labels), b_op(b, OP_ARGREDUCE, &score, 1, attrs, 3), 0));
    if (rule_str_is(r, "post_transform", "NONE", "SOFTMAX"))
        score = v_softmax(b, score, &last, 1, false);
    else if (rule_str_is(r, "post_transform", "NONE", "LOGISTIC"))
        score = b_unary(b, OP_SIGMOID, score);
    rule_out(r, 1, score);
    return score.i != 0;
}

/* One row of coefficients for each class. Of one row for two classes, runtimes make the other score each in its way. */
bool rule_linear_classifier(struct rule *r)
{
    struct builder *b = r->b;
    static const int64_t turn[] = {1, 0};
    uint32_t n, n_bias, n_labels;
    const double *c = rule_floats(r, "coefficients", &n), *bias = rule_floats(r, "intercepts", &n_bias);
    const int64_t *labels = rule_ints(r, "classlabels_ints", &n_labels);
    value_id x = b_convert(b, rule_in(r, 0), ELEM_F32);
    if (!x.i || !classifier_served(r))
        return false;
    if (v_rank(b, x) != 2 || n_labels < 2 || (bias && n_bias == 1))
        return rule_refuse(r, "input of rank %d, %u labels, %u intercepts", (int)v_rank(b, x), n_labels, n_bias);
    if (!n || n % n_labels || (bias && n_bias != n_labels))
        return rule_bad(r, "%u coefficients and %u intercepts for %u classes", n, n_bias, n_labels);
    int64_t dims[2] = {n_labels, n / n_labels};
    value_id score = b_matmul(b, x, b_transpose(b, v_reshape_i(b, ml_floats(b, c, n), dims, 2), turn));
    if (bias)
        score = b_binary(b, OP_ADD, score, ml_floats(b, bias, n_bias));
    return classifier_results(r, score, labels, n_labels);
}
