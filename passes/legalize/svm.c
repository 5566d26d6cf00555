/* ai.onnx.ml: SVMRegressor. Kernels between the rows and the support vectors, which are constants, then one product.
 */
#include "passes/legalize/ml.h"

static const char *const kernel_names[] = {"LINEAR", "POLY", "RBF", "SIGMOID"};
enum kernel { KERNEL_LINEAR, KERNEL_POLY, KERNEL_RBF, KERNEL_SIGMOID, KERNEL_COUNT };

struct svm {
    enum kernel kernel;
    double gamma, shift, degree;
};

/* kernel_type and kernel_params (gamma, coef0, degree); false after rule_bad. */
static bool svm_read(struct rule *r, struct svm *s)
{
    uint32_t n;
    const double *params = rule_floats(r, "kernel_params", &n);
    *s = (struct svm){.kernel = KERNEL_COUNT};
    for (int k = 0; k < KERNEL_COUNT; k++)
        if (rule_str_is(r, "kernel_type", "LINEAR", kernel_names[k]))
            s->kernel = (enum kernel)k;
    if (s->kernel == KERNEL_COUNT)
        return rule_bad(r, "kernel_type \"%.20s\"", rule_str(r, "kernel_type", ""));
    if (s->kernel == KERNEL_LINEAR)
        return true;
    if (n != 3)
        return rule_bad(r, "%u kernel_params for kernel %s: gamma, coef0 and degree are needed", n, kernel_names[s->kernel]);
    s->gamma = params[0];
    s->shift = params[1];
    s->degree = params[2];
    return true;
}

/* x [rows, features] and vectors [n, features] -> [rows, n]. */
static value_id svm_kernel(struct builder *b, const struct svm *s, value_id x, value_id vectors)
{
    static const int64_t turn[] = {1, 0}, features[] = {2};
    if (s->kernel == KERNEL_RBF) {    /* by differences: squares less twice the product would cancel */
        value_id d = b_binary(b, OP_SUB, b_unsqueeze(b, x, 1), vectors);
        return b_unary(b, OP_EXP, v_affine(b, b_reduce(b, b_binary(b, OP_MUL, d, d), features, 1, "sum", false), -s->gamma, 0));
    }
    value_id dot = b_matmul(b, x, vectors.i ? b_transpose(b, vectors, turn) : vectors);
    if (s->kernel == KERNEL_LINEAR)
        return dot;
    dot = v_affine(b, dot, s->gamma, s->shift);
    return s->kernel == KERNEL_POLY ? b_binary_f64(b, OP_POW, dot, s->degree) : b_unary(b, OP_TANH, dot);
}

/* Without support vectors the coefficients are those of the features, whatever the kernel. */
bool rule_svm_regressor(struct rule *r)
{
    struct builder *b = r->b;
    struct svm s;
    uint32_t n, n_vectors, n_rho;
    const double *c = rule_floats(r, "coefficients", &n), *vectors = rule_floats(r, "support_vectors", &n_vectors);
    const double *rho = rule_floats(r, "rho", &n_rho);
    int64_t supports = rule_int(r, "n_supports", 0);
    value_id x = b_convert(b, rule_in(r, 0), ELEM_F32);
    if (!x.i || !svm_read(r, &s))
        return false;
    if (!rule_str_is(r, "post_transform", "NONE", "NONE"))
        return rule_refuse(r, "post_transform \"%.20s\", which ONNX Runtime passes over: with NONE it is taken", rule_str(r, "post_transform", ""));
    if (v_rank(b, x) != 2)
        return rule_refuse(r, "input of rank %d", (int)v_rank(b, x));
    if (!n || n_rho != 1 || supports < 0 || (supports && (n != supports || !n_vectors || n_vectors % supports)))
        return rule_bad(r, "%u coefficients, %lld supports in %u numbers, %u rho", n, (long long)supports, n_vectors, n_rho);
    int64_t features = supports ? n_vectors / supports : n, grid[2] = {supports, features}, column[2] = {n, 1};
    expr_id rows[2] = {b_dim(b, x, 0), ex_const(b_exprs(b), features)};
    x = b_reshape(b, x, rows, 2);     /* checks the number of features */
    if (supports)
        x = svm_kernel(b, &s, x, v_reshape_i(b, ml_floats(b, vectors, n_vectors), grid, 2));
    value_id y = v_affine(b, b_matmul(b, x, v_reshape_i(b, ml_floats(b, c, n), column, 2)), 1, rho[0]);
    if (y.i && rule_int(r, "one_class", 0))
        y = b_select(b, b_binary(b, OP_LT, b_splat_like(b, y, 0), y), b_splat_like(b, y, 1), b_splat_like(b, y, -1));
    return rule_result(r, y);
}
