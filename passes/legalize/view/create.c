/* Operators that make tensors: Constant, ConstantOfShape, Range, EyeLike, OneHot, random numbers, window functions.
 *
 * Constants borrow the file's bytes; everything else is an expression that is evaluated when it is needed.
 */
#include "passes/legalize/legalize.h"

#include <math.h>

static value_id tensor_const(struct builder *b, const struct tensor_data *t)
{
    return b_const_borrow(b, t->elem, t->dims, t->rank, t->bytes);
}

static value_id string_const(struct builder *b, const char *const *s, int64_t n, int32_t rank)
{
    struct span *spans = NEW_ARRAY(&b->g->arena, struct span, n + 1);
    for (int64_t i = 0; i < n; i++)
        spans[i] = (struct span){arena_strdup(&b->g->arena, s[i]), strlen(s[i])};
    return b_const_borrow(b, ELEM_STR, &n, rank, (struct span){spans, (size_t)n * sizeof *spans});
}

bool rule_constant(struct rule *r)
{
    struct builder *b = r->b;
    const struct attr *a = r->node->n_attr ? &r->node->attr[0] : NULL;
    for (uint32_t i = 0; i < r->node->n_attr; i++)
        if (strncmp(r->node->attr[i].name, "value", 5) == 0 || strcmp(r->node->attr[i].name, "sparse_value") == 0)
            a = &r->node->attr[i];
    if (!a)
        return rule_bad(r, "no value");
    int64_t n = a->n;
    switch (a->kind) {
    case ATTR_TENSOR: return rule_result(r, tensor_const(b, a->u.tensor));
    case ATTR_INT: return rule_result(r, b_scalar_i64(b, ELEM_I64, a->u.i));
    case ATTR_FLOAT: return rule_result(r, b_scalar_f64(b, ELEM_F32, a->u.f));
    case ATTR_INTS: return rule_result(r, b_const(b, ELEM_I64, &n, 1, a->u.ints));
    case ATTR_FLOATS: return rule_result(r, v_floats(b, a->u.floats, n));
    case ATTR_STR: return rule_result(r, string_const(b, &a->u.s, 1, 0));
    case ATTR_STRS: return rule_result(r, string_const(b, a->u.strs, n, 1));
    default: return rule_bad(r, "attribute %.60s holds no tensor", a->name);
    }
}

bool rule_constant_of_shape(struct rule *r)
{
    struct builder *b = r->b;
    uint32_t n;
    const expr_id *dims = rule_elems(r, 0, "dims", OPEN_RANK_MAX, 0, INT32_MAX, &n);
    const struct attr *a = node_attr(r->node, "value");
    if (!dims)
        return false;
    if (n > RANK_MAX)
        return rule_bad(r, "rank %u is above %d", n, RANK_MAX);
    value_id fill = a && a->kind == ATTR_TENSOR ? v_scalar(b, tensor_const(b, a->u.tensor))
                                                : b_scalar_f64(b, ELEM_F32, 0);
    return rule_result(r, b_broadcast(b, fill, dims, (int32_t)n));
}

/* ---- Range ------------------------------------------------------------------------------------------------------ */

/* n = max(0, ceil((limit - start) / delta)); known now, a shape expression, or a symbol of the run. */
static bool range_count(struct rule *r, value_id start, value_id limit, value_id delta, expr_id *n)
{
    struct builder *b = r->b;
    double s, l, d;
    if (v_known_f64(b, start, &s) && v_known_f64(b, limit, &l) && v_known_f64(b, delta, &d)) {
        double count = d == 0 ? -1 : ceil((l - s) / d);
        if (d == 0 || !(count < 1e15))
            return rule_bad(r, "delta is 0, or the range has no end");
        *n = ex_const(b->x, count > 0 ? (int64_t)count : 0);
        return true;
    }
    int64_t step;
    if (elem_class(v_elem(b, start)) != 'F' && v_known_i64(b, delta, 0, &step) && step != 0) {
        expr_id from = b_elem(b, start, INT32_MIN, INT32_MAX), to = b_elem(b, limit, INT32_MIN, INT32_MAX);
        if (!from.i || !to.i)
            return false;
        expr_id span = step > 0 ? ex_sub(b->x, to, from) : ex_sub(b->x, from, to);
        *n = ex_max(b->x, ex_ceildiv(b->x, span, ex_const(b->x, step > 0 ? step : -step)), ex_const(b->x, 0));
        return true;
    }
    value_id span = b_convert(b, b_binary(b, OP_SUB, limit, start), ELEM_F64);
    if (elem_class(v_elem(b, start)) != 'F') {
        /* The difference of integers is exact unless it wraps, which the difference of their approximations shows. */
        value_id rough = b_binary(b, OP_SUB, b_convert(b, limit, ELEM_F64), b_convert(b, start, ELEM_F64));
        value_id wraps = b_binary(b, OP_LE, b_splat_like(b, rough, 0x1p62), b_unary(b, OP_ABS, rough));
        span = b_select(b, wraps, rough, span);
    }
    value_id q = b_binary(b, OP_DIV, span, b_convert(b, delta, ELEM_F64));
    value_id count = b_binary_f64(b, OP_MAX, b_convert(b, b_unary(b, OP_CEIL, q), ELEM_I64), 0);
    *n = b_elem(b, count, 0, INT32_MAX);
    return n->i != 0;
}

/* Numbers from 0 on are those of the elements themselves: what masks compare (passes/module/attention_bounds.c). */
bool rule_range(struct rule *r)
{
    struct builder *b = r->b;
    value_id start = v_scalar(b, rule_in(r, 0)), limit = v_scalar(b, rule_in(r, 1)), delta = v_scalar(b, rule_in(r, 2));
    double first, step;
    expr_id n;
    if (!start.i || !limit.i || !delta.i || !range_count(r, start, limit, delta, &n))
        return false;
    enum elem e = v_elem(b, start), wide = elem_widened(e);
    value_id y = v_iota(b, wide, &n, 1, 0);
    if (!v_known_f64(b, delta, &step) || step != 1)
        y = b_binary(b, OP_MUL, y, b_convert(b, delta, wide));
    if (!v_known_f64(b, start, &first) || first != 0)
        y = b_binary(b, OP_ADD, y, b_convert(b, start, wide));
    return rule_result(r, b_convert(b, y, e));
}

/* ---- EyeLike, OneHot --------------------------------------------------------------------------------------------- */

bool rule_eye_like(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0);
    const struct dims dims = b_dims(b, x);
    if (!dims.d)
        return false;
    if (dims.rank != 2)
        return rule_bad(r, "rank %d", (int)dims.rank);
    value_id row = v_iota(b, ELEM_I64, dims.d, 2, 0), col = v_iota(b, ELEM_I64, dims.d, 2, 1);
    value_id diagonal = b_binary_f64(b, OP_ADD, row, (double)rule_int(r, "k", 0));
    return rule_result(r, b_convert(b, b_binary(b, OP_EQ, diagonal, col), rule_elem_attr(r, "dtype", v_elem(b, x))));
}

/* Indices outside [-depth, depth) give off values everywhere. */
bool rule_one_hot(struct rule *r)
{
    struct builder *b = r->b;
    value_id idx = rule_in(r, 0), values = rule_in(r, 2);
    int32_t axis;
    const struct dims dims = b_dims(b, idx);
    expr_id depth = b_elem(b, v_scalar(b, b_convert(b, rule_in(r, 1), ELEM_I64)), 0, INT32_MAX), out[RANK_MAX];
    if (!dims.d || !depth.i || !values.i)
        return false;
    if (dims.rank + 1 > RANK_MAX || !rule_axis(r, rule_int(r, "axis", -1), dims.rank + 1, &axis))
        return rule_bad(r, "bad axis or rank");
    for (int32_t i = 0; i <= dims.rank; i++)
        out[i] = i == axis ? depth : dims.d[i - (i > axis)];
    idx = b_unsqueeze(b, b_convert(b, idx, ELEM_I64), axis);
    value_id wrapped = b_binary(b, OP_ADD, idx, v_expr(b, ELEM_I64, depth));
    idx = b_select(b, b_binary(b, OP_LT, idx, b_splat_like(b, idx, 0)), wrapped, idx);
    value_id hit = b_binary(b, OP_EQ, v_iota(b, ELEM_I64, out, dims.rank + 1, axis), idx);
    expr_id zero = ex_const(b->x, 0), one = ex_const(b->x, 1);
    value_id off = v_scalar(b, b_slice_axis(b, values, 0, zero, one));
    value_id on = v_scalar(b, b_slice_axis(b, values, 0, one, one));
    return rule_result(r, b_select(b, hit, on, off));
}

/* ---- random numbers: kind of the row's parameter, 0 uniform, 1 normal -------------------------------------------- */

static bool random_fill(struct rule *r, enum elem e, const expr_id *dims, int32_t rank)
{
    const bool normal = r->param != 0;
    const double seed = rule_float(r, "seed", 0);
    if (elem_class(e) != 'F')
        return rule_bad(r, "element type %s", elem_name(e));
    const struct random of = {elem_widened(e), normal, rule_float(r, normal ? "mean" : "low", 0),
                              rule_float(r, normal ? "scale" : "high", 1), node_attr(r->node, "seed") ? &seed : NULL};
    return rule_result(r, b_convert(r->b, v_random(r->b, dims, rank, &of), e));
}

bool rule_random(struct rule *r)
{
    uint32_t n;
    const int64_t *shape = rule_ints(r, "shape", &n);
    expr_id dims[RANK_MAX];
    if (n > RANK_MAX)
        return rule_bad(r, "rank %u", n);
    for (uint32_t i = 0; i < n; i++)
        dims[i] = ex_const(r->b->x, shape[i]);
    return random_fill(r, rule_elem_attr(r, "dtype", ELEM_F32), dims, (int32_t)n);
}

bool rule_random_like(struct rule *r)
{
    value_id x = rule_in(r, 0);
    const struct dims dims = b_dims(r->b, x);
    return dims.d && random_fill(r, rule_elem_attr(r, "dtype", v_elem(r->b, x)), dims.d, dims.rank);
}

/* 1 with probability x. */
bool rule_bernoulli(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0);
    const struct dims dims = b_dims(b, x);
    if (!dims.d)
        return false;
    value_id hit = b_binary(b, OP_LT, rule_random_units(r, dims.d, dims.rank, rule_float(r, "seed", 0)),
                            b_convert(b, x, ELEM_F64));
    return rule_result(r, b_convert(b, hit, rule_elem_attr(r, "dtype", v_elem(b, x))));
}

/* The probability of a score relative to the likeliest of its row, in f64; 0 of what is not finite. scores: [rows,
 * classes]. */
static value_id relative_odds(struct builder *b, value_id scores)
{
    value_id x = b_convert(b, scores, ELEM_F64);
    value_id finite = b_binary(b, OP_LT, b_unary(b, OP_ABS, x), b_splat_like(b, x, HUGE_VAL));
    value_id most = b_reduce(b, b_select(b, finite, x, b_splat_like(b, x, -HUGE_VAL)), ARRAY(int64_t, 1), "max", true);
    return b_select(b, finite, b_unary(b, OP_EXP, b_binary(b, OP_SUB, x, most)), b_splat_like(b, x, 0));
}

/* How many of the classes in the last dim reach no further than `to`. */
static value_id classes_within(struct builder *b, enum op cmp, value_id reach, value_id to, enum elem e)
{
    return b_reduce(b, b_convert(b, b_binary(b, cmp, reach, to), e), ARRAY(int64_t, 2), "sum", false);
}

/* Draws of classes by unnormalized log probabilities [rows, classes]: the first class whose running sum of
 * probabilities is above a uniform number times the whole sum. The second count keeps a product that rounds up to the
 * whole sum from a class without any. */
bool rule_multinomial(struct rule *r)
{
    struct builder *b = r->b;
    value_id in = rule_in(r, 0);
    const struct dims d = b_dims(b, in);
    int64_t samples = rule_int(r, "sample_size", 1);
    enum elem e = rule_elem_attr(r, "dtype", ELEM_I32);
    if (!d.d || e == ELEM_NONE)
        return false;
    if (d.rank != 2 || samples < 1 || samples > INT32_MAX || (e != ELEM_I32 && e != ELEM_I64))
        return rule_bad(r, "input of rank %d, sample_size %lld, dtype %s", (int)d.rank, (long long)samples,
                        elem_name(e));
    expr_id one = ex_const(b->x, 1), dims[2] = {d.d[0], ex_const(b->x, samples)};
    if (ex_hi(b->x, d.d[1]) < 1)
        return rule_bad(r, "no classes");
    if (ex_lo(b->x, d.d[1]) < 1)
        b_assert(b, ex_le(b->x, one, d.d[1]), EVAL_SHAPE, "no classes to draw from");
    value_id odds = relative_odds(b, in);
    value_id reach = b_cumulate(b, odds, 1, "sum", false, false),
             whole = b_slice_axis(b, reach, 1, ex_addc(b->x, d.d[1], -1), one);
    value_id u = b_binary(b, OP_MUL, rule_random_units(r, dims, 2, rule_float(r, "seed", 0)), whole);
    reach = b_unsqueeze(b, reach, 1);
    value_id drawn = classes_within(b, OP_LE, reach, b_unsqueeze(b, u, 2), e);
    return rule_result(r, b_binary(b, OP_MIN, drawn, classes_within(b, OP_LT, reach, b_unsqueeze(b, whole, 2), e)));
}
