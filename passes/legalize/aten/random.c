/* Random numbers. The file has no seed: each node draws from a seed of its own, the same numbers each run, as operators
 * of ONNX without a seed do (docs/notes/onnx-decisions.md).
 */
#include "passes/legalize/aten.h"

#include <float.h>

/* The shape that results have: of the list, argument `at`, or of operand 0 where the name is NULL. */
static bool shape_read(struct rule *r, uint32_t at, const char *name, expr_id dims[RANK_MAX], int32_t *rank)
{
    uint32_t n = 0;
    if (name) {
        bool ok = aten_ints(r, at, name, dims, &n);
        *rank = (int32_t)n;
        return ok;
    }
    const struct dims like = b_dims(r->b, rule_in(r, 0));
    *rank = like.rank;
    for (int32_t i = 0; i < like.rank; i++)
        dims[i] = like.d[i];
    return like.d != NULL;
}

static double seed(const struct rule *r)
{
    return r->node->out[0].i;
}

/* From 0 to below 1, in f64. */
static value_id units(struct rule *r, const expr_id *dims, int32_t rank)
{
    return v_random(r->b, dims, rank, &(struct random){ELEM_F64, .high = 1, .seed = &(double){seed(r)}});
}

/* From a to b, or with mean a and deviation b. */
static bool fill(struct rule *r, const expr_id *dims, int32_t rank, bool normal, double a, double c)
{
    enum elem e = aten_elem(r, 0);
    value_id like = b_splat_f64(r->b, e == ELEM_NONE ? ELEM_F32 : e, 0, dims, rank);
    const struct attr attrs[] = {attr_float(normal ? "mean" : "low", a), attr_float(normal ? "scale" : "high", c),
                                 attr_float("seed", seed(r))};
    return like.i && aten_as(r, rule_random_like, 1, normal, &like, 1, attrs, 3);
}

/* rand, randn, as many as a list says, or as operand 0 has. param: 0 uniform, 1 normal; 2 more: of operand 0 */
bool rule_aten_rand(struct rule *r)
{
    expr_id dims[RANK_MAX];
    int32_t rank;
    return shape_read(r, 0, r->param & 2 ? NULL : "size", dims, &rank) && fill(r, dims, rank, r->param & 1, 0, 1);
}

/* param: 0 uniform_, 1 normal_ and normal_functional, 2 normal.float_float */
bool rule_aten_rand_within(struct rule *r)
{
    expr_id dims[RANK_MAX];
    int32_t rank;
    bool normal = r->param != 0;
    double a = aten_float(r, normal ? "mean" : "from", 0), c = aten_float(r, normal ? "std" : "to", 1);
    return shape_read(r, 2, r->param == 2 ? "size" : NULL, dims, &rank) && fill(r, dims, rank, normal, a, c);
}

/* -log(1 - u): above 0, with rate 1, in f64. */
static value_id exponential(struct rule *r, const expr_id *dims, int32_t rank)
{
    struct builder *b = r->b;
    value_id u = units(r, dims, rank);
    return b_binary_f64(b, OP_MAX, b_unary(b, OP_NEG, b_unary(b, OP_LOG1P, b_unary(b, OP_NEG, u))), DBL_MIN);
}

bool rule_aten_exponential(struct rule *r)
{
    expr_id dims[RANK_MAX];
    int32_t rank;
    return shape_read(r, 0, NULL, dims, &rank) &&
           aten_result(r, b_binary_f64(r->b, OP_DIV, exponential(r, dims, rank), aten_float(r, "lambd", 1)));
}

/* Whole numbers from low to below high. param: index of `high`, 8 more: of operand 0 */
bool rule_aten_randint(struct rule *r)
{
    struct builder *b = r->b;
    bool like = r->param & 8;
    uint32_t i_high = (uint32_t)r->param & 7;
    expr_id dims[RANK_MAX];
    int32_t rank;
    value_id low = i_high > like ? aten_operand(r, i_high - 1, "low", ELEM_F64) : b_scalar_f64(b, ELEM_F64, 0);
    value_id high = aten_operand(r, i_high, "high", ELEM_F64);
    if (!low.i || !high.i || !shape_read(r, i_high + 1, like ? NULL : "size", dims, &rank))
        return false;
    value_id step = b_binary(b, OP_MUL, units(r, dims, rank), b_binary(b, OP_SUB, high, low));
    return aten_result_stated(r, b_binary(b, OP_ADD, b_unary(b, OP_FLOOR, step), low));
}

/* The order of random numbers. */
bool rule_aten_randperm(struct rule *r)
{
    expr_id n = aten_int(r, 0, "n", 0);
    value_id out[2], u = n.i ? units(r, &n, 1) : (value_id){0};
    const struct attr attrs[] = {attr_int("axis", 0), attr_int("descending", 0)};
    return u.i && b_op_multi(r->b, OP_SORT, &u, 1, attrs, 2, out, 2) && aten_result_stated(r, out[1]);
}

/* 1 with the probability that operand 0 has, or p. param: 0 operand, 1 p */
bool rule_aten_bernoulli(struct rule *r)
{
    struct builder *b = r->b;
    expr_id dims[RANK_MAX];
    int32_t rank;
    if (!shape_read(r, 0, NULL, dims, &rank))
        return false;
    value_id p = r->param ? b_scalar_f64(b, ELEM_F64, aten_float(r, "p", 0.5)) : b_convert(b, rule_in(r, 0), ELEM_F64);
    return aten_result_stated(r, b_convert(b, b_binary(b, OP_LT, units(r, dims, rank), p), ELEM_U8));
}

/* Classes by weights in the last dim: of weight / exponential, the largest is class i with probability weight i.
 * Without replacement the largest ones are draws one after the other. */
bool rule_aten_multinomial(struct rule *r)
{
    struct builder *b = r->b;
    value_id p = b_convert(b, rule_in(r, 0), ELEM_F64), out[2];
    expr_id n = aten_int(r, 1, "num_samples", 1), dims[3];
    const struct dims have = b_dims(b, p);
    if (!have.d || !n.i)
        return false;
    if (have.rank != 1 && have.rank != 2)
        return rule_bad(r, "the weights have rank %d", (int)have.rank);
    bool again = aten_flag(r, "replacement");
    for (int32_t i = 0; i < have.rank; i++)
        dims[i + (again && i + 1 == have.rank)] = have.d[i];
    if (again) {
        dims[have.rank - 1] = n;
        p = b_unsqueeze(b, p, have.rank - 1);
    }
    value_id score = b_binary(b, OP_DIV, p, exponential(r, dims, have.rank + again));
    const struct attr sorted[] = {attr_int("axis", have.rank - 1), attr_int("descending", 1)};
    if (again)
        return rule_result(r, b_argreduce(b, score, have.rank, true, false));
    if (!score.i || !b_op_multi(b, OP_SORT, &score, 1, sorted, 2, out, 2))
        return false;
    b_assert(b, ex_le(b->x, n, have.d[have.rank - 1]), EVAL_VALUE, "more draws than there are classes");
    return rule_result(r, b_slice_axis(b, out[1], have.rank - 1, ex_const(b->x, 0), n));
}
