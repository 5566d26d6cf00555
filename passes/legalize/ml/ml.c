/* ai.onnx.ml: the operators over tensors of numbers that are plain arithmetic. */
#include "passes/legalize/ml/ml.h"

/* Columns of the last axis. */
bool rule_array_feature_extractor(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0), idx = rule_in(r, 1);
    if (!x.i || !idx.i)
        return false;
    if (v_rank(b, x) < 1)
        return rule_bad(r, "input of rank 0");
    value_id y = b_gather(b, x, b_flat(b, idx), v_rank(b, x) - 1);
    return rule_result(r, v_rank(b, x) == 1 ? b_unsqueeze(b, y, 0) : y);
}

bool rule_binarizer(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0);
    value_id above = b_binary(b, OP_LT, b_splat_like(b, x, rule_float(r, "threshold", 0)), x);
    return rule_result(r, b_convert(b, above, v_elem(b, x)));
}

/* (x - offset) * scale; one value or one per feature. */
bool rule_scaler(struct rule *r)
{
    struct builder *b = r->b;
    uint32_t n_offset, n_scale;
    const double *offset = rule_floats(r, "offset", &n_offset), *scale = rule_floats(r, "scale", &n_scale);
    value_id x = b_convert(b, rule_in(r, 0), ELEM_F32);
    if (offset)
        x = b_binary(b, OP_SUB, x, v_floats(b, offset, n_offset));
    if (scale)
        x = b_binary(b, OP_MUL, x, v_floats(b, scale, n_scale));
    return rule_result(r, x);
}

bool rule_linear_regressor(struct rule *r)
{
    struct builder *b = r->b;
    static const int64_t turn[] = {1, 0};
    uint32_t n, n_bias;
    const double *c = rule_floats(r, "coefficients", &n), *bias = rule_floats(r, "intercepts", &n_bias);
    int64_t targets = rule_int(r, "targets", 1);
    enum ml_post post;
    if (!ml_post_read(r, &post))
        return false;
    if (targets < 1 || !n || n % targets)
        return rule_bad(r, "%u coefficients for %lld targets", n, (long long)targets);
    value_id w = b_transpose(b, v_reshape_i(b, v_floats(b, c, n), ARRAY(int64_t, targets, n / targets)), turn);
    value_id y = b_matmul(b, b_convert(b, rule_in(r, 0), ELEM_F32), w);
    if (bias)
        y = b_binary(b, OP_ADD, y, v_floats(b, bias, n_bias));
    return rule_result(r, ml_post(b, y, post));
}

/* x over its row's largest element (docs/notes/onnx-decisions.md), sum of magnitudes, or Euclidean length. */
bool rule_normalizer(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = b_convert(b, rule_in(r, 0), ELEM_F32), norm;
    int64_t axis = v_rank(b, x) - 1;
    if (!x.i || axis < 0)
        return x.i ? rule_bad(r, "input of rank 0") : false;
    if (rule_str_is(r, "norm", "MAX", "MAX"))
        norm = b_reduce(b, x, &axis, 1, "max", true);
    else if (rule_str_is(r, "norm", "MAX", "L1"))
        norm = b_reduce(b, b_unary(b, OP_ABS, x), &axis, 1, "sum", true);
    else
        norm = b_unary(b, OP_SQRT, b_reduce(b, b_binary(b, OP_MUL, x, x), &axis, 1, "sum", true));
    value_id flat = b_binary(b, OP_EQ, norm, b_splat_like(b, norm, 0));
    return rule_result(r, b_binary(b, OP_DIV, x, b_select(b, flat, b_splat_like(b, norm, 1), norm)));
}

/* Elements that are the replaced value (or NaN, where it is) become the imputed one: one, or one for each feature. */
bool rule_imputer(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0), with, absent;
    uint32_t n_floats, n_ints, n;
    const double *floats = rule_floats(r, "imputed_value_floats", &n_floats);
    const int64_t *ints = rule_ints(r, "imputed_value_int64s", &n_ints);
    double replaced = rule_float(r, "replaced_value_float", 0);
    int64_t count;
    if (!x.i)
        return false;
    n = v_is_float(b, x) ? n_floats : n_ints;
    count = n;
    if (!n || (floats && ints) || v_rank(b, x) < 1)
        return rule_bad(r, "%u imputed_value_floats, %u imputed_value_int64s for %s of rank %d", n_floats, n_ints,
                        elem_name(v_elem(b, x)), (int)v_rank(b, x));
    if (count > 1)
        b_assert(b, ex_eq(b->x, b_dim(b, x, -1), ex_const(b->x, count)), EVAL_SHAPE,
                 "there is not a value for each feature");
    if (v_is_float(b, x)) {
        with = b_convert(b, v_floats(b, floats, count), v_elem(b, x));
        absent = replaced != replaced ? b_unary(b, OP_ISNAN, x)
                                      : b_binary(b, OP_EQ, x, b_splat_like(b, x, (float)replaced));
    } else {
        with = b_convert(b, b_const(b, ELEM_I64, &count, 1, ints), v_elem(b, x));
        absent = b_binary(
            b, OP_EQ, x, b_convert(b, b_scalar_i64(b, ELEM_I64, rule_int(r, "replaced_value_int64", 0)), v_elem(b, x)));
    }
    return rule_result(r, b_select(b, absent, with, x));
}

/* The operands' features, concatenated, as f32. */
bool rule_feature_vectorizer(struct rule *r)
{
    struct builder *b = r->b;
    uint32_t n;
    const int64_t *sizes = rule_ints(r, "inputdimensions", &n);
    value_id *parts = NEW_ARRAY(&b->g->arena, value_id, r->n_in + 1);
    if (n != r->n_in)
        return rule_bad(r, "%u inputdimensions for %u operands", n, r->n_in);
    for (uint32_t i = 0; i < r->n_in; i++) {
        value_id x = rule_in(r, i);
        if (!x.i)
            return false;
        x = v_rank(b, x) == 1 ? b_unsqueeze(b, x, 0) : x;
        expr_id fits = v_rank(b, x) == 2 ? ex_eq(b->x, b_dim(b, x, 1), ex_const(b->x, sizes[i])) : (expr_id){0};
        if (!fits.i || ex_truth(b->x, fits) == FALSE_)
            return rule_refuse(r, "operand %u is not %lld features wide", i + 1, (long long)sizes[i]);
        b_assert(b, fits, EVAL_SHAPE, "operand %u is not %lld features wide", i + 1, (long long)sizes[i]);
        parts[i] = b_convert(b, x, ELEM_F32);
    }
    return rule_result(r, b_concat(b, parts, r->n_in, 1));
}

/* ---- transforms of scores ------------------------------------------------------------------------------------ */

bool ml_post_read(struct rule *r, enum ml_post *post)
{
    static const char *const names[POST_COUNT] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};
    for (int k = 0; k < POST_COUNT; k++)
        if (rule_str_is(r, "post_transform", "NONE", names[k])) {
            *post = (enum ml_post)k;
            return true;
        }
    return rule_bad(r, "post_transform \"%.20s\"", rule_str(r, "post_transform", ""));
}

/* The softmax of the scores that are not 0; a score of 0 stays 0. */
static value_id softmax_zero(struct builder *b, value_id x)
{
    const int64_t last = 1;
    value_id max = b_reduce(b, x, &last, 1, "max", true), none = b_splat_like(b, x, 0);
    value_id zero = b_binary(b, OP_LE, b_unary(b, OP_ABS, x), b_splat_like(b, x, 1e-7f));
    value_id term = b_select(b, zero, none, b_unary(b, OP_EXP, b_binary(b, OP_SUB, x, max)));
    return b_binary(b, OP_DIV, term, b_reduce(b, term, &last, 1, "sum", true));
}

/* The number below which a normal variable falls with that probability, by the approximation that ONNX's reference
 * evaluator and ONNX Runtime take: sqrt(2) times the inverse of erf after Winitzki, with a = 0.147. */
static value_id probit(struct builder *b, value_id x)
{
    const double a = 0.147, pi = 3.14159265358979323846;
    value_id e = v_affine(b, b_convert(b, x, ELEM_F64), 2, -1), one = b_splat_like(b, e, 1);
    value_id l = b_unary(b, OP_LOG, b_binary(b, OP_MUL, b_binary(b, OP_SUB, one, e), b_binary(b, OP_ADD, one, e)));
    value_id u = v_affine(b, l, 0.5, 2 / (pi * a)),
             under = b_binary(b, OP_SUB, b_binary(b, OP_MUL, u, u), v_affine(b, l, 1 / a, 0));
    value_id size = b_unary(b, OP_SQRT, b_binary(b, OP_SUB, b_unary(b, OP_SQRT, under), u));
    value_id y = v_affine(b, b_binary(b, OP_MUL, b_unary(b, OP_SIGN, e), size), 1.41421356237309504880, 0);
    return b_convert(b, y, v_elem(b, x));
}

value_id ml_post(struct builder *b, value_id scores, enum ml_post post)
{
    switch (post) {
    case POST_SOFTMAX: return v_softmax(b, scores, &(int64_t){1}, 1, false);
    case POST_LOGISTIC: return b_unary(b, OP_SIGMOID, scores);
    case POST_SOFTMAX_ZERO: return softmax_zero(b, scores);
    case POST_PROBIT: return probit(b, scores);
    default: return scores;
    }
}

/* ---- classifiers ------------------------------------------------------------------------------------------- */

bool ml_labels_read(struct rule *r, const char *ints, struct ml_labels *labels)
{
    const struct attr *strings = node_attr(r->node, "classlabels_strings");
    *labels = (struct ml_labels){0};
    labels->ints = rule_ints(r, ints, &labels->n);
    if (!strings || strings->kind != ATTR_STRS || !strings->n)
        return true;
    if (labels->ints)
        return rule_bad(r, "labels that are integers and labels that are strings");
    labels->n = strings->n;
    labels->strings = strings->u.strs;
    return true;
}

value_id ml_label(struct rule *r, const struct ml_labels *labels, value_id at)
{
    int64_t n = labels->n;
    if (labels->ints)
        return b_gather(r->b, b_const(r->b, ELEM_I64, &n, 1, labels->ints), at, 0);
    return v_string_pick(r->b, at, b_spans(r->b, labels->strings, labels->n), labels->n);
}

bool classifier_results(struct rule *r, value_id score, const struct ml_labels *labels, enum ml_post post)
{
    struct builder *b = r->b;
    rule_out(r, 0, ml_label(r, labels, b_argreduce(b, score, 1, true, false)));
    rule_out(r, 1, b_convert(b, ml_post(b, score, post), ELEM_F32));
    return score.i != 0;
}

/* One row of coefficients for each class. Of one row for two classes, runtimes make the other score each in its way. */
bool rule_linear_classifier(struct rule *r)
{
    struct builder *b = r->b;
    static const int64_t turn[] = {1, 0};
    uint32_t n, n_bias;
    struct ml_labels labels;
    enum ml_post post;
    const double *c = rule_floats(r, "coefficients", &n), *bias = rule_floats(r, "intercepts", &n_bias);
    value_id x = b_convert(b, rule_in(r, 0), ELEM_F32);
    if (!x.i || !ml_labels_read(r, "classlabels_ints", &labels) || !ml_post_read(r, &post))
        return false;
    uint32_t n_labels = labels.n;
    if (v_rank(b, x) != 2 || n_labels < 2 || (bias && n_bias == 1))
        return rule_refuse(r, "the input has rank %d, with %u labels and %u intercepts", (int)v_rank(b, x), n_labels,
                           n_bias);
    if (!n || n % n_labels || (bias && n_bias != n_labels))
        return rule_bad(r, "%u coefficients and %u intercepts for %u classes", n, n_bias, n_labels);
    int64_t dims[2] = {n_labels, n / n_labels};
    value_id score = b_matmul(b, x, b_transpose(b, v_reshape_i(b, v_floats(b, c, n), dims, 2), turn));
    if (bias)
        score = b_binary(b, OP_ADD, score, v_floats(b, bias, n_bias));
    return classifier_results(r, score, &labels, post);
}
