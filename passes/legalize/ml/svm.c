/* ai.onnx.ml: SVMRegressor, SVMClassifier. Kernels between the rows and the support vectors, which are constants, then
 * one product.
 */
#include "passes/legalize/ml/ml.h"

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
        return rule_bad(r, "%u kernel_params for kernel %s: gamma, coef0 and degree are needed", n,
                        kernel_names[s->kernel]);
    s->gamma = params[0];
    s->shift = params[1];
    s->degree = params[2];
    return true;
}

/* x [rows, features] and vectors [n, features] -> [rows, n]. */
static value_id svm_kernel(struct builder *b, const struct svm *s, value_id x, value_id vectors)
{
    static const int64_t turn[] = {1, 0}, features[] = {2};
    if (s->kernel == KERNEL_RBF) { /* by differences: squares less twice the product would cancel */
        value_id d = b_binary(b, OP_SUB, b_unsqueeze(b, x, 1), vectors);
        return b_unary(b, OP_EXP,
                       v_affine(b, b_reduce(b, b_binary(b, OP_MUL, d, d), features, 1, "sum", false), -s->gamma, 0));
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
        return rule_refuse(r, "post_transform is \"%.20s\", which ONNX Runtime ignores: use NONE",
                           rule_str(r, "post_transform", ""));
    if (v_rank(b, x) != 2)
        return rule_refuse(r, "the input has rank %d", (int)v_rank(b, x));
    if (!n || n_rho != 1 || supports < 0 || (supports && (n != supports || !n_vectors || n_vectors % supports)))
        return rule_bad(r, "%u coefficients, %lld supports in %u numbers, %u rho", n, (long long)supports, n_vectors,
                        n_rho);
    int64_t features = supports ? n_vectors / supports : n, grid[2] = {supports, features}, column[2] = {n, 1};
    x = b_reshape(b, x, ARRAY(expr_id, b_dim(b, x, 0), ex_const(b->x, features))); /* checks the number of features */
    if (supports)
        x = svm_kernel(b, &s, x, v_reshape_i(b, v_floats(b, vectors, n_vectors), grid, 2));
    value_id y = v_affine(b, b_matmul(b, x, v_reshape_i(b, v_floats(b, c, n), column, 2)), 1, rho[0]);
    if (y.i && rule_int(r, "one_class", 0))
        y = b_select(b, b_binary(b, OP_LT, b_splat_like(b, y, 0), y), b_splat_like(b, y, 1), b_splat_like(b, y, -1));
    return rule_result(r, y);
}

/* ---- SVMClassifier ----------------------------------------------------------------------------------------------- */

/* Support vectors lie class by class; pairs of classes (i, j), i < j, in their order. */
struct machines {
    int64_t classes, vectors, pairs;
    const int64_t *per_class;
};

static value_id matrix(struct builder *b, const float *data, int64_t rows, int64_t columns)
{
    return b_const(b, ELEM_F32, ARRAY(int64_t, rows, columns), data);
}

/* Kernels [rows, vectors] -> [rows, pairs]: what the vectors of class i add up to by row j - 1 of the coefficients, and
 * those of class j by row i. No other vectors are in the sum: a weight of 0 would make NaN of their infinities. */
static value_id pair_sums(struct builder *b, const struct machines *m, value_id near, const double *c)
{
    int64_t others = m->classes - 1, at = 0, pair = 0;
    value_id *part = NEW_ARRAY(&b->g->arena, value_id, m->classes);
    int64_t *first = NEW_ARRAY(&b->g->arena, int64_t, m->pairs), *second = NEW_ARRAY(&b->g->arena, int64_t, m->pairs);
    for (int64_t i = 0; i < m->classes; at += m->per_class[i++]) {
        int64_t n = m->per_class[i];
        float *w = NEW_ARRAY(&b->g->arena, float, n *others + 1);
        for (int64_t k = 0; k < n * others; k++)
            w[k] = (float)c[k % others * m->vectors + at + k / others];
        value_id own = b_slice_axis(b, near, 1, ex_const(b->x, at), ex_const(b->x, n));
        part[i] = b_matmul(b, own, matrix(b, w, n, others));
        for (int64_t j = i + 1; j < m->classes; j++, pair++) {
            first[pair] = i * others + j - 1;
            second[pair] = j * others + i;
        }
    }
    value_id sums = b_concat(b, part, (uint32_t)m->classes, 1);
    return b_binary(b, OP_ADD, b_gather(b, sums, b_const(b, ELEM_I64, &m->pairs, 1, first), 1),
                    b_gather(b, sums, b_const(b, ELEM_I64, &m->pairs, 1, second), 1));
}

/* Scores [rows, pairs] -> votes [rows, classes]: of each pair one for i where the score is above 0, else for j. */
static value_id pair_votes(struct builder *b, const struct machines *m, value_id score)
{
    float *w = NEW_ARRAY(&b->g->arena, float, m->pairs * m->classes),
          *least = NEW_ARRAY(&b->g->arena, float, m->classes);
    int64_t pair = 0;
    for (int64_t i = 0; i < m->classes; i++) {
        for (int64_t j = i + 1; j < m->classes; j++, pair++) {
            w[pair * m->classes + i] = 1;
            w[pair * m->classes + j] = -1;
        }
        least[i] = (float)i; /* class i is the second of i pairs */
    }
    value_id above = b_convert(b, b_binary(b, OP_LT, b_splat_like(b, score, 0), score), ELEM_F32);
    return b_binary(b, OP_ADD, b_matmul(b, above, matrix(b, w, m->pairs, m->classes)),
                    b_const(b, ELEM_F32, &m->classes, 1, least));
}

/* The rows of x with n columns; the run checks that there are as many. */
static value_id rows_of(struct builder *b, value_id x, int64_t n)
{
    return b_reshape(b, x, ARRAY(expr_id, b_dim(b, x, 0), ex_const(b->x, n)));
}

/* The one score s of two classes as two: -s and s, or what ONNX Runtime makes of them. */
static value_id two_scores(struct builder *b, value_id s, enum ml_post post)
{
    value_id both[2] = {post == POST_NONE || post == POST_LOGISTIC ? b_unary(b, OP_NEG, s)
                                                                   : b_binary(b, OP_SUB, b_splat_like(b, s, 1), s),
                        s};
    value_id all = b_concat(b, both, 2, 1);
    return post == POST_LOGISTIC ? ml_post(b, all, post) : all;
}

/* Without support vectors: coefficients of the features for each class. Of two classes the second is chosen where the
 * larger score is above 0 (without negative coefficients: from 1/2 on), as ONNX Runtime does. */
static bool linear_machine(struct rule *r, value_id x, const struct ml_labels *labels, enum ml_post post)
{
    static const int64_t turn[] = {1, 0}, classes[] = {1};
    struct builder *b = r->b;
    uint32_t n, n_rho;
    bool positive = true;
    const double *c = rule_floats(r, "coefficients", &n), *rho = rule_floats(r, "rho", &n_rho);
    int64_t count = labels->n;
    if (!n || count < 2 || n % count || !n_rho)
        return rule_bad(r, "%u coefficients and %u rho for %lld labels", n, n_rho, (long long)count);
    for (uint32_t i = 0; i < n; i++)
        positive = positive && c[i] >= 0;
    int64_t grid[2] = {count, n / count};
    value_id w = b_transpose(b, v_reshape_i(b, v_floats(b, c, n), grid, 2), turn);
    value_id score = v_affine(b, b_matmul(b, rows_of(b, x, grid[1]), w), 1, rho[0]);
    value_id at = b_argreduce(b, score, 1, true, false);
    if (count == 2 && n_rho == 1) {
        value_id most = b_reduce(b, score, classes, 1, "max", false);
        value_id second = positive ? b_binary(b, OP_LE, b_splat_like(b, most, 0.5), most)
                                   : b_binary(b, OP_LT, b_splat_like(b, most, 0), most);
        at = b_select(b, second, b_splat_like(b, at, 1), at);
    }
    rule_out(r, 0, ml_label(r, labels, at));
    rule_out(r, 1, ml_post(b, score, post));
    return score.i != 0;
}

/* Reads and checks vectors_per_class and the lists that depend on it; false after a refusal. */
static bool machines_read(struct rule *r, struct machines *m, uint32_t n_labels)
{
    enum { MOST = 1 << 26 };
    uint32_t n, n_vectors, n_rho, n_classes;
    rule_floats(r, "coefficients", &n);
    rule_floats(r, "support_vectors", &n_vectors);
    rule_floats(r, "rho", &n_rho);
    *m = (struct machines){.per_class = rule_ints(r, "vectors_per_class", &n_classes)};
    m->classes = n_classes;
    m->pairs = m->classes * (m->classes - 1) / 2;
    for (int64_t i = 0; i < m->classes; i++) {
        if (m->per_class[i] < 0 || m->per_class[i] > n_vectors)
            return rule_bad(r, "vectors_per_class holds %lld", (long long)m->per_class[i]);
        m->vectors += m->per_class[i];
    }
    if (m->classes < 2 || !m->vectors || n_vectors % m->vectors || n != (m->classes - 1) * m->vectors ||
        n_rho != m->pairs || n_labels != n_classes)
        return rule_bad(r, "%lld vectors in %u numbers, %u coefficients, %u rho, %u labels for %u classes",
                        (long long)m->vectors, n_vectors, n, n_rho, n_labels, n_classes);
    if (m->pairs > MOST / m->vectors || m->pairs > MOST / m->classes)
        return rule_refuse(r, "%u classes have %lld vectors", n_classes, (long long)m->vectors);
    return true;
}

/* By votes of the pairs of classes, with the pairs' scores or, by prob_a and prob_b, probabilities; or linear, without
 * support vectors. */
bool rule_svm_classifier(struct rule *r)
{
    struct builder *b = r->b;
    struct svm s;
    struct machines m;
    struct ml_labels labels;
    enum ml_post post;
    uint32_t n, n_vectors, n_prob, n_prob_b, n_rho;
    const double *c = rule_floats(r, "coefficients", &n), *vectors = rule_floats(r, "support_vectors", &n_vectors);
    const double *rho = rule_floats(r, "rho", &n_rho), *prob_a = rule_floats(r, "prob_a", &n_prob),
                 *prob_b = rule_floats(r, "prob_b", &n_prob_b);
    value_id x = b_convert(b, rule_in(r, 0), ELEM_F32);
    if (!x.i || !svm_read(r, &s) || !ml_labels_read(r, "classlabels_ints", &labels) || !ml_post_read(r, &post))
        return false;
    if (v_rank(b, x) != 2 || (n_prob && (!n_vectors || labels.n > SVM_PROBABLE)))
        return rule_refuse(
            r,
            "input of rank %d, %u prob_a, %u numbers of support vectors, %u classes: rank 2, and probabilities of at most %d classes with "
            "support vectors are taken",
            (int)v_rank(b, x), n_prob, n_vectors, labels.n, (int)SVM_PROBABLE);
    if (!n_vectors)
        return linear_machine(r, x, &labels, post);
    if (!machines_read(r, &m, labels.n))
        return false;
    if (n_prob != n_prob_b || (n_prob && n_prob != m.pairs))
        return rule_bad(r, "%u prob_a and %u prob_b for %lld pairs of classes", n_prob, n_prob_b, (long long)m.pairs);
    if (m.classes == 2 && !n_prob && post == POST_PROBIT)
        return rule_refuse(
            r, "post_transform is \"PROBIT\" for two classes, which ONNX Runtime gives no numbers for: leave it out");
    int64_t grid[2] = {m.vectors, n_vectors / m.vectors};
    value_id near = svm_kernel(b, &s, rows_of(b, x, grid[1]), v_reshape_i(b, v_floats(b, vectors, n_vectors), grid, 2));
    value_id score = b_binary(b, OP_ADD, pair_sums(b, &m, near, c), v_floats(b, rho, n_rho));
    value_id votes = pair_votes(b, &m, score);
    rule_out(r, 0, ml_label(r, &labels, b_argreduce(b, votes, 1, true, false)));
    if (n_prob)
        score = svm_probabilities(r, score, m.classes, prob_a, prob_b);
    rule_out(r, 1, m.classes == 2 && !n_prob ? two_scores(b, score, post) : ml_post(b, score, post));
    return votes.i && score.i;
}
