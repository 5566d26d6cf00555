/* Probabilities of classes from the scores of their pairs: SVMClassifier with prob_a and prob_b.
 *
 * A score becomes the probability r_ij of class i against class j, and those the p that minimises sum_ij (r_ji p_i -
 * r_ij p_j)^2 under sum p = 1, found by at most 100 rounds of coordinate steps (Wu, Lin, Weng: Probability Estimates
 * for Multi-class Classification by Pairwise Coupling, second approach). A row stays as it is once it is within 0.005 /
 * classes: ONNX Runtime does the same, in f32 too.
 */
#include "passes/legalize/ml/ml.h"

enum { ROUNDS = 100 };

struct coupling {
    int64_t n;                   /* classes */
    value_id q, diagonal;        /* [rows, n, n], [rows, n] */
    value_id one[SVM_PROBABLE];  /* [n]: 1 at that class, else 0 */
};

static value_id column(struct builder *b, value_id v, int64_t i)
{
    return b_slice_axis(b, v, 1, ex_const(b->x, i), ex_const(b->x, 1));
}

static value_id list(struct builder *b, const float *data, int64_t n)
{
    return b_const(b, ELEM_F32, &n, 1, data);
}

/* r [rows, n, n] from scores [rows, pairs] of the pairs (i, j), i < j, in their order: 1 - logistic(score * a + b),
 * kept off 0 and 1. */
static value_id pairwise(struct builder *b, value_id score, int64_t n, const double *prob_a, const double *prob_b)
{
    int64_t pairs = n * (n - 1) / 2, square = n * n, at = 0;
    int64_t *from = NEW_ARRAY(&b->g->arena, int64_t, square);
    float *sign = NEW_ARRAY(&b->g->arena, float, square), *more = NEW_ARRAY(&b->g->arena, float, square);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i + 1; j < n; j++, at++) {
            from[i * n + j] = from[j * n + i] = at;
            sign[i * n + j] = 1;
            sign[j * n + i] = -1;
            more[j * n + i] = 1;
        }
    value_id x = b_binary(b, OP_ADD, b_binary(b, OP_MUL, score, v_floats(b, prob_a, pairs)),
                          v_floats(b, prob_b, pairs));
    value_id r = b_unary(b, OP_SIGMOID, b_unary(b, OP_NEG, x));
    r = b_binary_f64(b, OP_MIN, b_binary_f64(b, OP_MAX, r, (float)1e-7), (float)(1 - 1e-7));
    r = b_gather(b, r, b_const(b, ELEM_I64, &square, 1, from), 1);
    r = b_binary(b, OP_ADD, b_binary(b, OP_MUL, r, list(b, sign, square)), list(b, more, square));
    return b_reshape(b, r, ARRAY(expr_id, b_dim(b, score, 0), ex_const(b->x, n), ex_const(b->x, n)));
}

/* A round: every class's probability once, with the products of q brought up to date. */
static bool couple_round(struct rule *r, void *data, value_id iter, const value_id *carried, value_id *next,
                         value_id *scan)
{
    static const int64_t last[] = {2}, classes[] = {1};
    const struct coupling *c = data;
    struct builder *b = r->b;
    value_id p = carried[0];
    (void)iter, (void)scan;
    value_id qp = b_reduce(b, b_binary(b, OP_MUL, c->q, b_unsqueeze(b, p, 1)), last, 1, "sum", false);
    value_id pqp = b_reduce(b, b_binary(b, OP_MUL, p, qp), classes, 1, "sum", true);
    value_id error = b_reduce(b, b_unary(b, OP_ABS, b_binary(b, OP_SUB, qp, pqp)), classes, 1, "max", true);
    for (int64_t i = 0; i < c->n; i++) {
        value_id own = column(b, c->diagonal, i), here = column(b, qp, i), row = b_squeeze(b, column(b, c->q, i), 1);
        value_id d = b_binary(b, OP_DIV, b_binary(b, OP_SUB, pqp, here), own), whole = b_binary_f64(b, OP_ADD, d, 1);
        value_id by = b_binary(b, OP_MUL, d,
                               b_binary(b, OP_ADD, b_binary(b, OP_MUL, d, own), b_binary_f64(b, OP_MUL, here, 2)));
        pqp = b_binary(b, OP_DIV, b_binary(b, OP_DIV, b_binary(b, OP_ADD, pqp, by), whole), whole);
        qp = b_binary(b, OP_DIV, b_binary(b, OP_ADD, qp, b_binary(b, OP_MUL, d, row)), whole);
        p = b_binary(b, OP_DIV, b_binary(b, OP_ADD, p, b_binary(b, OP_MUL, d, c->one[i])), whole);
    }
    next[0] = b_select(b, b_binary(b, OP_LT, error, b_splat_like(b, error, (float)0.005 / (float)c->n)), carried[0], p);
    return next[0].i != 0;
}

value_id svm_probabilities(struct rule *r, value_id score, int64_t n, const double *prob_a, const double *prob_b)
{
    static const int64_t turn[] = {0, 2, 1}, rows[] = {1};
    struct builder *b = r->b;
    struct coupling c = {.n = n};
    value_id pair = pairwise(b, score, n, prob_a, prob_b);
    int64_t square[2] = {n, n};
    float *eye = NEW_ARRAY(&b->g->arena, float, n *n);
    for (int64_t i = 0; i < n; i++) {
        eye[i * n + i] = 1;
        c.one[i] = list(b, eye + i * n, n);
    }
    c.diagonal = b_reduce(b, b_binary(b, OP_MUL, pair, pair), rows, 1, "sum", false);
    c.q = b_binary(b, OP_SUB, b_binary(b, OP_MUL, b_unsqueeze(b, c.diagonal, 1), b_const(b, ELEM_F32, square, 2, eye)),
                   b_binary(b, OP_MUL, pair, b_transpose(b, pair, turn)));
    value_id p = b_splat_f64(b, ELEM_F32, 1 / (float)n, ARRAY(expr_id, b_dim(b, score, 0), ex_const(b->x, n)));
    struct counted_loop loop = {.trips = ex_const(b->x, ROUNDS), .body = couple_round, .data = &c, .n_carried = 1};
    return p.i && c.q.i && rule_counted_loop(r, &loop, &p, NULL) ? p : (value_id){0};
}
