/* Tensors made of numbers: constants, sequences of numbers, sizes and arithmetic of sizes. */
#include "passes/legalize/aten.h"

#include <math.h>

/* ---- one number everywhere --------------------------------------------------------------------------------------- */

/* Sizes from a list. param: the number, or 2: `fill_value`; 8 more: sizes are argument 1 */
bool rule_aten_full(struct rule *r)
{
    expr_id sizes[RANK_MAX];
    uint32_t n, at = r->param >= 8;
    enum elem e = aten_elem(r, 0);
    int kind = r->param & 7;
    if (!aten_ints(r, at, "size", sizes, &n))
        return false;
    if (e == ELEM_NONE)
        return rule_bad(r, "the file does not say what type the result has");
    value_id fill = kind == 2 ? aten_operand(r, at + 1, "fill_value", e)
                              : b_convert(r->b, b_scalar_i64(r->b, ELEM_I64, kind), e);
    return rule_result(r, b_broadcast(r->b, v_scalar(r->b, fill), sizes, (int32_t)n));
}

/* The shape of operand 0. param: the number, or 2: `fill_value` */
bool rule_aten_full_like(struct rule *r)
{
    value_id x = rule_in(r, 0);
    enum elem e = aten_elem_or(r, x);
    if (!x.i)
        return false;
    value_id fill = r->param == 2 ? aten_operand(r, 1, "fill_value", e)
                                  : b_convert(r->b, b_scalar_i64(r->b, ELEM_I64, r->param), e);
    return rule_result(r, b_broadcast_like(r->b, v_scalar(r->b, fill), x));
}

bool rule_aten_scalar_tensor(struct rule *r)
{
    return aten_result(r, aten_operand(r, 0, r->param ? "data" : "s", aten_elem(r, 0)));
}

bool rule_aten_eye(struct rule *r)
{
    struct builder *b = r->b;
    expr_id dims[2] = {aten_int(r, 0, "n", 0)};
    dims[1] = r->param ? aten_int(r, 1, "m", 0) : dims[0];
    return dims[0].i && dims[1].i &&
           aten_result(
               r, b_convert(b, b_binary(b, OP_EQ, v_iota(b, ELEM_I64, dims, 2, 0), v_iota(b, ELEM_I64, dims, 2, 1)),
                            aten_elem(r, 0)));
}

/* Rows and columns of a triangle, row by row. param: 1 the upper one */
bool rule_aten_tri_indices(struct rule *r)
{
    enum { SIDE_MAX = 1 << 20, COUNT_MAX = 1 << 24 };
    struct builder *b = r->b;
    int64_t rows, columns, offset, n = 0;
    if (!aten_int_known(r, 0, "row", 0, &rows) || !aten_int_known(r, 1, "col", 0, &columns) ||
        !aten_int_known(r, 2, "offset", 0, &offset))
        return false;
    if (rows < 0 || columns < 0 || rows > SIDE_MAX || columns > SIDE_MAX || rows * columns > COUNT_MAX)
        return rule_refuse(r, "%lld rows and %lld columns are too many", (long long)rows, (long long)columns);
    offset = offset < -SIDE_MAX ? -SIDE_MAX : offset > SIDE_MAX ? SIDE_MAX : offset;
    int64_t *at = NEW_ARRAY(&b->g->arena, int64_t, 2 * rows * columns + 1);
    for (int64_t i = 0; i < rows * columns; i++) {
        int64_t row = i / columns, column = i % columns;
        if (r->param ? column - row < offset : column - row > offset)
            continue;
        at[n] = row;
        at[rows * columns + n++] = column;
    }
    memmove(at + n, at + rows * columns, (size_t)n * sizeof *at);
    return aten_result(r, b_convert(b, b_const(b, ELEM_I64, ARRAY(int64_t, 2, n), at), aten_elem(r, 0)));
}

/* ---- sequences of numbers ---------------------------------------------------------------------------------------- */

/* The argument as an f64 that is known. */
static bool known(struct rule *r, uint32_t i, const char *name, double *out)
{
    *out = aten_float(r, name, 0);
    return !rule_has(r, i) || v_known_f64(r->b, rule_in(r, i), out) ||
           rule_refuse(r, "'%s' is known only at run time: export with a constant", name);
}

static bool is_whole(struct rule *r, uint32_t i, const char *name)
{
    const struct attr *a = node_attr(r->node, name);
    return rule_has(r, i) ? elem_class(v_elem(r->b, rule_in(r, i))) != 'F' : !a || a->kind != ATTR_FLOAT;
}

/* Numbers of floats: as many as the bounds say, each by one multiplication and one addition, in f64. */
static bool arange_floats(struct rule *r, uint32_t at)
{
    struct builder *b = r->b;
    value_id in[3] = {
        at ? aten_operand(r, 0, "start", ELEM_F64) : b_scalar_f64(b, ELEM_F64, 0), aten_operand(r, at, "end", ELEM_F64),
        aten_has(r, at + 1, "step") ? aten_operand(r, at + 1, "step", ELEM_F64) : b_scalar_f64(b, ELEM_F64, 1)};
    if (!in[0].i || !in[1].i || !in[2].i || !aten_as(r, rule_range, 11, 0, in, 3, NULL, 0))
        return false;
    enum elem e = aten_elem(r, 0);
    if (e == ELEM_NONE || elem_class(e) == 'F')
        return aten_result(r, r->out[0].v);
    expr_id n = b_count(b, r->out[0].v); /* as many as floats would be, but integers */
    value_id step = b_convert(b, in[2], ELEM_I64), y = b_binary(b, OP_MUL, v_iota(b, ELEM_I64, &n, 1, 0), step);
    return aten_result_stated(r, b_binary(b, OP_ADD, y, b_convert(b, in[0], ELEM_I64)));
}

/* A step that is a whole number counts as one: torch.arange(n, -m, -1.0). */
static bool step_read(struct rule *r, uint32_t i, int64_t *step)
{
    const struct attr *a = node_attr(r->node, "step");
    bool whole = !rule_has(r, i) && a && a->kind == ATTR_FLOAT && fabs(a->u.f) <= INT32_MAX && a->u.f == trunc(a->u.f);
    *step = whole ? (int64_t)a->u.f : 1;
    return whole || is_whole(r, i, "step");
}

/* param: 1 with a start before the end */
bool rule_aten_arange(struct rule *r)
{
    struct builder *b = r->b;
    uint32_t at = (uint32_t)r->param;
    int64_t step;
    if ((at && !is_whole(r, 0, "start")) || !is_whole(r, at, "end") || !step_read(r, at + 1, &step))
        return arange_floats(r, at);
    expr_id start = at ? aten_int(r, 0, "start", 0) : ex_const(b->x, 0), end = aten_int(r, at, "end", 0);
    if (!start.i || !end.i || (is_whole(r, at + 1, "step") && !aten_int_known(r, at + 1, "step", 1, &step)))
        return false;
    if (step == 0)
        return rule_bad(r, "the step of a sequence is 0");
    expr_id span = step > 0 ? ex_sub(b->x, end, start) : ex_sub(b->x, start, end);
    expr_id n = ex_max(b->x, ex_ceildiv(b->x, span, ex_const(b->x, step < 0 ? -step : step)), ex_const(b->x, 0));
    value_id y = v_iota(b, ELEM_I64, &n, 1, 0);
    if (step != 1)
        y = b_binary(b, OP_MUL, y, b_scalar_i64(b, ELEM_I64, step));
    if (!ex_is(b->x, start, 0))
        y = b_binary(b, OP_ADD, y, v_expr(b, ELEM_I64, start));
    return aten_result(r, b_convert(b, y, aten_elem_or(r, y)));
}

/* From both ends, so that the last number is the end. */
bool rule_aten_linspace(struct rule *r)
{
    struct builder *b = r->b;
    double start, end;
    int64_t n;
    if (!known(r, 0, "start", &start) || !known(r, 1, "end", &end) || !aten_int_known(r, 2, "steps", 0, &n))
        return false;
    if (n < 0 || n > 1 << 24)
        return rule_bad(r, "the sequence has %lld steps, and 0 to %d are possible", (long long)n, 1 << 24);
    double *list = NEW_ARRAY(&b->g->arena, double, n + 1), step = n > 1 ? (end - start) / (double)(n - 1) : 0;
    for (int64_t i = 0; i < n; i++)
        list[i] = i < n / 2 || n == 1 ? start + step * (double)i : end - step * (double)(n - 1 - i);
    value_id y = b_const(b, ELEM_F64, &n, 1, list);
    return aten_result(r, b_convert(b, y, aten_elem_or(r, y)));
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

static bool number_out(struct rule *r, expr_id e)
{
    return e.i && rule_result(r, v_expr(r->b, ELEM_I64, e));
}

bool rule_aten_sym_size(struct rule *r)
{
    value_id x = rule_in(r, 0);
    int32_t axis;
    return x.i && aten_axis(r, 1, "dim", 0, v_rank(r->b, x), &axis) && number_out(r, b_dim(r->b, x, axis));
}

bool rule_aten_sym_numel(struct rule *r)
{
    value_id x = rule_in(r, 0);
    return x.i && number_out(r, b_count(r->b, x));
}

/* The number in a tensor of one element. */
bool rule_aten_item(struct rule *r)
{
    value_id x = v_scalar(r->b, rule_in(r, 0));
    char class = elem_class(v_elem(r->b, x));
    return x.i && rule_result(r, b_convert(r->b, x, class == 'F' ? ELEM_F64 : class == 'B' ? ELEM_BOOL : ELEM_I64));
}

static value_id number_in(struct rule *r, uint32_t i)
{
    static const char *const names[] = {"a", "b"};
    return aten_operand(r, i, names[i], ELEM_NONE);
}

/* Arithmetic of two sizes. Divisions round towards minus infinity, and the divisor is above 0. */
static expr_id size_of_two(struct rule *r, expr_id a, expr_id c)
{
    if ((r->param == OP_FLOOR || r->param == OP_MOD) && ex_lo(r->b->x, c) < 1)
        return rule_refuse(r, "a size is divided by one that may be 0 or below: export with a larger min of its Dim"),
               (expr_id){0};
    switch (r->param) {
    case OP_ADD: return ex_add(r->b->x, a, c);
    case OP_SUB: return ex_sub(r->b->x, a, c);
    case OP_MUL: return ex_mul(r->b->x, a, c);
    case OP_FLOOR: return ex_div(r->b->x, a, c);
    case OP_MOD: return ex_mod(r->b->x, a, c);
    case OP_MAX: return ex_max(r->b->x, a, c);
    case OP_MIN: return ex_min(r->b->x, a, c);
    default:
        return rule_refuse(
                   r,
                   "no lowering of this operator on sizes: compute the size by +, -, *, //, %%, min and max when you export"),
               (expr_id){0};
    }
}

/* param: of two numbers the operator, OP_FLOOR: of the quotient; negative: the operands exchanged. */
bool rule_aten_number(struct rule *r)
{
    struct builder *b = r->b;
    const enum op op = (enum op)abs(r->param);
    value_id a = number_in(r, 0), c = r->n_in > 1 || node_attr(r->node, "b") ? number_in(r, 1) : a;
    if (!a.i || !c.i)
        return false;
    if (op == OP_NOT)
        return rule_result(r, b_unary(b, OP_NOT, b_convert(b, a, ELEM_BOOL)));
    if (op == OP_NEG)
        return rule_result(r, b_unary(b, OP_NEG, a));
    if (op == OP_AND || op == OP_OR)
        return rule_result(r, b_binary(b, op, a, c));
    bool real = v_is_float(b, a) || v_is_float(b, c) || op == OP_DIV;
    enum elem e = real ? ELEM_F64 : ELEM_I64;
    a = b_convert(b, a, e);
    c = b_convert(b, c, e);
    const bool swapped = r->param < 0, compares = op == OP_EQ || op == OP_NE || op == OP_LT || op == OP_LE;
    if (!real && !compares)
        return number_out(r, size_of_two(r, b_elem(b, a, -(int64_t)INT32_MAX, INT32_MAX),
                                         b_elem(b, c, -(int64_t)INT32_MAX, INT32_MAX)));
    if (op == OP_FLOOR)
        return rule_result(r, b_unary(b, OP_FLOOR, b_binary(b, OP_DIV, a, c)));
    return rule_result(r, b_binary(b, op, swapped ? c : a, swapped ? a : c));
}

/* A number as another kind of number. param: 0 float, 1 int (towards zero), 2 floor, 3 ceil */
bool rule_aten_number_as(struct rule *r)
{
    struct builder *b = r->b;
    value_id a = number_in(r, 0);
    if (r->param == 0)
        return rule_result(r, b_convert(b, a, ELEM_F64));
    if (v_is_float(b, a) && r->param > 1)
        a = b_unary(b, r->param == 2 ? OP_FLOOR : OP_CEIL, a);
    return rule_result(r, b_convert(b, a, ELEM_I64));
}
