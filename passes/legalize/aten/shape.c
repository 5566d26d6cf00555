/* Views: the elements stay, and the shape changes. Joining and splitting; parts written back into wholes. */
#include "passes/legalize/aten.h"

bool rule_aten_alias(struct rule *r)
{
    return rule_result(r, rule_in(r, 0));
}

/* The other operand's shape, or the one that the list says; one entry may be -1. param: index of the list. */
bool rule_aten_view(struct rule *r)
{
    expr_id sizes[RANK_MAX];
    uint32_t n;
    value_id in[2] = {rule_in(r, 0)};
    const struct attr attrs[] = {attr_int("allowzero", 1)};
    if (!aten_ints(r, 1, r->param ? "shape" : "size", sizes, &n))
        return false;
    in[1] = aten_sizes(r, sizes, n);
    return aten_as(r, rule_reshape, 14, 0, in, 2, attrs, 1);
}

bool rule_aten_view_as(struct rule *r)
{
    value_id other = rule_in(r, 1);
    const struct dims dims = b_dims(r->b, other);
    return dims.d && rule_result(r, r->param ? b_broadcast(r->b, rule_in(r, 0), dims.d, dims.rank)
                                             : b_reshape(r->b, rule_in(r, 0), dims.d, dims.rank));
}

bool rule_aten_flatten(struct rule *r)
{
    value_id x = rule_in(r, 0);
    int32_t first, last;
    const struct dims dims = b_dims(r->b, x);
    expr_id out[RANK_MAX];
    if (!dims.d || !aten_axis(r, 1, "start_dim", 0, dims.rank, &first) ||
        !aten_axis(r, 2, "end_dim", -1, dims.rank, &last))
        return false;
    if (first > last)
        return rule_bad(r, "dimensions %d to %d, which are to be flattened, are in the other order", (int)first,
                        (int)last);
    if (dims.rank == 0) {
        out[0] = ex_const(r->b->x, 1);
        return rule_result(r, b_reshape(r->b, x, out, 1));
    }
    memcpy(out, dims.d, (size_t)first * sizeof *out);
    out[first] = dims_product(r->b->x, dims.d + first, last - first + 1);
    memcpy(out + first + 1, dims.d + last + 1, (size_t)(dims.rank - last - 1) * sizeof *out);
    return rule_result(r, b_reshape(r->b, x, out, dims.rank - last + first));
}

bool rule_aten_unflatten(struct rule *r)
{
    struct exprs *ex = r->b->x;
    value_id x = rule_in(r, 0);
    int32_t axis;
    uint32_t n;
    const struct dims dims = b_dims(r->b, x);
    expr_id sizes[RANK_MAX], out[RANK_MAX], known = ex_const(ex, 1);
    if (!dims.d || !aten_axis(r, 1, "dim", 0, dims.rank, &axis) || !aten_ints(r, 2, "sizes", sizes, &n))
        return false;
    if (n == 0 || dims.rank + (int32_t)n - 1 > RANK_MAX)
        return rule_bad(r, "there are %u sizes for a dimension of an operand of rank %d", n, (int)dims.rank);
    for (uint32_t i = 0; i < n; i++)
        if (!ex_is(ex, sizes[i], -1))
            known = ex_mul(ex, known, sizes[i]);
    memcpy(out, dims.d, (size_t)axis * sizeof *out);
    for (uint32_t i = 0; i < n; i++)
        out[axis + (int32_t)i] = ex_is(ex, sizes[i], -1) ? ex_div(ex, dims.d[axis], ex_max(ex, known, ex_const(ex, 1)))
                                                         : sizes[i];
    memcpy(out + axis + n, dims.d + axis + 1, (size_t)(dims.rank - axis - 1) * sizeof *out);
    return rule_result(r, b_reshape(r->b, x, out, dims.rank + (int32_t)n - 1));
}

bool rule_aten_unsqueeze(struct rule *r)
{
    value_id x = rule_in(r, 0);
    int32_t axis;
    return x.i && aten_axis(r, 1, "dim", 0, v_rank(r->b, x) + 1, &axis) && rule_result(r, b_unsqueeze(r->b, x, axis));
}

/* Named dims of one element go, or all of them; those of other sizes stay. */
bool rule_aten_squeeze(struct rule *r)
{
    value_id x = rule_in(r, 0);
    int32_t kept = 0;
    uint32_t n = 0;
    const struct dims dims = b_dims(r->b, x);
    int64_t axes[RANK_MAX];
    bool marked[RANK_MAX] = {false};
    expr_id out[RANK_MAX];
    if (!dims.d || (r->param && !aten_ints_known(r, 1, "dim", axes, &n)))
        return false;
    for (int32_t d = 0; d < dims.rank; d++)
        marked[d] = !r->param;
    for (uint32_t i = 0; i < n; i++) {
        int32_t axis;
        if (!rule_axis(r, axes[i], dims.rank ? dims.rank : 1, &axis))
            return false;
        marked[axis] = true;
    }
    for (int32_t d = 0; d < dims.rank; d++) /* a dynamic size was not 1 when the program was traced */
        if (!marked[d] || !ex_is(r->b->x, dims.d[d], 1))
            out[kept++] = dims.d[d];
    return rule_result(r, b_reshape(r->b, x, out, kept));
}

/* -1 keeps a dim. */
bool rule_aten_expand(struct rule *r)
{
    value_id x = rule_in(r, 0);
    uint32_t n;
    const struct dims dims = b_dims(r->b, x);
    expr_id sizes[RANK_MAX];
    if (!dims.d || !aten_ints(r, 1, "size", sizes, &n))
        return false;
    if (n < (uint32_t)dims.rank)
        return rule_bad(r, "there are %u sizes for an operand of rank %d", n, (int)dims.rank);
    for (int32_t i = 0; i < dims.rank; i++)
        if (ex_is(r->b->x, sizes[n - (uint32_t)dims.rank + (uint32_t)i], -1))
            sizes[n - (uint32_t)dims.rank + (uint32_t)i] = dims.d[i];
    return rule_result(r, b_broadcast(r->b, x, sizes, (int32_t)n));
}

bool rule_aten_repeat(struct rule *r)
{
    value_id in[2] = {rule_in(r, 0)};
    uint32_t n;
    const struct dims dims = b_dims(r->b, in[0]);
    expr_id repeats[RANK_MAX], padded[RANK_MAX];
    if (!dims.d || !aten_ints(r, 1, r->param ? "dims" : "repeats", repeats, &n))
        return false;
    if (n < (uint32_t)dims.rank && r->param) {
        memmove(repeats + dims.rank - n, repeats, n * sizeof *repeats);
        for (uint32_t i = 0; i < (uint32_t)dims.rank - n; i++)
            repeats[i] = ex_const(r->b->x, 1);
        n = (uint32_t)dims.rank;
    }
    if (n < (uint32_t)dims.rank)
        return rule_bad(r, "there are %u repeats for an operand of rank %d", n, (int)dims.rank);
    for (uint32_t i = 0; i < n; i++)
        padded[i] = i < n - (uint32_t)dims.rank ? ex_const(r->b->x, 1) : dims.d[i - (n - (uint32_t)dims.rank)];
    in[0] = b_reshape(r->b, in[0], padded, (int32_t)n);
    in[1] = aten_sizes(r, repeats, n);
    return aten_as(r, rule_tile, 13, 0, in, 2, NULL, 0);
}

/* Each element, or slice along a dim, several times in a row. */
bool rule_aten_repeat_interleave(struct rule *r)
{
    value_id x = rule_in(r, 0);
    int32_t axis;
    expr_id out[RANK_MAX], wide[RANK_MAX], times = aten_int(r, 1, "repeats", 1);
    if (!x.i || !times.i)
        return false;
    if (!aten_has(r, 2, "dim"))
        x = b_flat(r->b, x);
    const struct dims dims = b_dims(r->b, x);
    if (!dims.d || !aten_axis(r, 2, "dim", 0, dims.rank, &axis))
        return false;
    if (dims.rank + 1 > RANK_MAX)
        return rule_refuse(r, "the result has more than %d dimensions", RANK_MAX);
    for (int32_t i = 0; i < dims.rank; i++) {
        out[i] = i == axis ? ex_mul(r->b->x, dims.d[i], times) : dims.d[i];
        wide[i + (i > axis)] = dims.d[i];
    }
    wide[axis + 1] = times;
    return rule_result(
        r, b_reshape(r->b, b_broadcast(r->b, b_unsqueeze(r->b, x, axis + 1), wide, dims.rank + 1), out, dims.rank));
}

/* ---- parts ----------------------------------------------------------------------------------------------------- */

expr_id aten_bound(struct exprs *ex, expr_id e, expr_id dim)
{
    int64_t c;
    expr_id zero = ex_const(ex, 0);
    if (ex_is_const(ex, e, &c)) {
        if (c >= INT32_MAX)
            return dim;
        if (c <= -INT32_MAX)
            return zero;
        e = c < 0 ? ex_addc(ex, dim, c) : e;
    } else if (ex_lo(ex, e) < 0) {
        e = ex_select(ex, ex_lt(ex, e, zero), ex_add(ex, e, dim), e);
    }
    return ex_max(ex, ex_min(ex, e, dim), zero);
}

struct part {
    int32_t axis;
    expr_id start, size;
    int64_t step;
};

/* Arguments dim, start, end, step from operand `at` on. */
static bool part_read(struct rule *r, uint32_t at, value_id x, struct part *p)
{
    if (!x.i || !aten_axis(r, at, "dim", 0, v_rank(r->b, x), &p->axis) ||
        !aten_int_known(r, at + 3, "step", 1, &p->step))
        return false;
    if (p->step < 1)
        return rule_bad(r, "the step of the slice is %lld, and has to be 1 or more", (long long)p->step);
    if (v_rank(r->b, x) == 0)
        return rule_bad(r, "the operand has rank 0 and cannot be sliced");
    expr_id dim = b_dim(r->b, x, p->axis), start = aten_int(r, at + 1, "start", 0), end = dim;
    if (aten_has(r, at + 2, "end"))
        end = aten_int(r, at + 2, "end", 0);
    if (!start.i || !end.i)
        return false;
    p->start = aten_bound(r->b->x, start, dim);
    expr_id span = ex_max(r->b->x, ex_sub(r->b->x, aten_bound(r->b->x, end, dim), p->start), ex_const(r->b->x, 0));
    p->size = ex_ceildiv(r->b->x, span, ex_const(r->b->x, p->step));
    return true;
}

static value_id part_of(struct builder *b, value_id x, const struct part *p)
{
    const struct dims dims = b_dims(b, x);
    expr_id starts[RANK_MAX], sizes[RANK_MAX];
    int64_t steps[RANK_MAX];
    for (int32_t i = 0; dims.d && i < dims.rank; i++) {
        starts[i] = i == p->axis ? p->start : ex_const(b->x, 0);
        sizes[i] = i == p->axis ? p->size : dims.d[i];
        steps[i] = i == p->axis ? p->step : 1;
    }
    return dims.d ? b_slice(b, x, starts, sizes, steps) : (value_id){0};
}

bool rule_aten_slice(struct rule *r)
{
    struct part p;
    value_id x = rule_in(r, 0);
    return part_read(r, 1, x, &p) && rule_result(r, part_of(r->b, x, &p));
}

/* One index of a dim, which may be negative. */
static bool select_read(struct rule *r, uint32_t at, value_id x, struct part *p)
{
    *p = (struct part){.step = 1, .size = ex_const(r->b->x, 1)};
    if (!x.i || !aten_axis(r, at, "dim", 0, v_rank(r->b, x), &p->axis))
        return false;
    if (v_rank(r->b, x) == 0)
        return rule_bad(r, "the operand has rank 0 and cannot be indexed");
    expr_id dim = b_dim(r->b, x, p->axis), i = aten_int(r, at + 1, "index", 0), zero = ex_const(r->b->x, 0);
    if (!i.i)
        return false;
    p->start = ex_lo(r->b->x, i) >= 0 ? i : ex_select(r->b->x, ex_lt(r->b->x, i, zero), ex_add(r->b->x, i, dim), i);
    b_assert(r->b, ex_and(r->b->x, ex_le(r->b->x, zero, p->start), ex_lt(r->b->x, p->start, dim)), EVAL_VALUE,
             "an index is outside of dimension %d", (int)p->axis);
    return true;
}

bool rule_aten_select(struct rule *r)
{
    struct part p;
    value_id x = rule_in(r, 0);
    return select_read(r, 1, x, &p) && rule_result(r, b_squeeze(r->b, part_of(r->b, x, &p), p.axis));
}

bool rule_aten_narrow(struct rule *r)
{
    struct part p = {.step = 1};
    value_id x = rule_in(r, 0);
    if (!x.i || !aten_axis(r, 1, "dim", 0, v_rank(r->b, x), &p.axis))
        return false;
    expr_id start = aten_int(r, 2, "start", 0), dim = b_dim(r->b, x, p.axis);
    p.size = aten_int(r, 3, "length", 0);
    if (!start.i || !p.size.i)
        return false;
    p.start = aten_bound(r->b->x, start, dim);
    b_assert(r->b, ex_le(r->b->x, ex_add(r->b->x, p.start, p.size), dim), EVAL_VALUE,
             "a part reaches past the end of dimension %d", (int)p.axis);
    return rule_result(r, part_of(r->b, x, &p));
}

/* x with a part of it overwritten: rows of x or of the part, as a number along the axis says. */
static value_id part_put(struct builder *b, value_id x, value_id src, const struct part *p)
{
    const struct dims dims = b_dims(b, x);
    expr_id sizes[RANK_MAX];
    if (!dims.d || !src.i)
        return (value_id){0};
    memcpy(sizes, dims.d, (size_t)dims.rank * sizeof *sizes);
    sizes[p->axis] = p->size;
    src = b_broadcast(b, b_convert(b, src, v_elem(b, x)), sizes, dims.rank);
    if (p->step == 1) {
        expr_id end = ex_add(b->x, p->start, p->size);
        value_id parts[3] = {b_slice_axis(b, x, p->axis, ex_const(b->x, 0), p->start), src,
                             b_slice_axis(b, x, p->axis, end, ex_sub(b->x, dims.d[p->axis], end))};
        return b_concat(b, parts, 3, p->axis);
    }
    value_id row = v_iota(b, ELEM_I64, sizes, dims.rank, p->axis);
    row = b_binary(b, OP_ADD, b_binary_f64(b, OP_MUL, row, (double)p->step), v_expr(b, ELEM_I64, p->start));
    return b_scatter_elements(b, x, row, src, p->axis, "set");
}

bool rule_aten_slice_scatter(struct rule *r)
{
    struct part p;
    value_id x = rule_in(r, 0);
    return part_read(r, 2, x, &p) && rule_result(r, part_put(r->b, x, rule_in(r, 1), &p));
}

bool rule_aten_select_scatter(struct rule *r)
{
    struct part p;
    value_id x = rule_in(r, 0), src = rule_in(r, 1);
    return select_read(r, 2, x, &p) && rule_result(r, part_put(r->b, x, b_unsqueeze(r->b, src, p.axis), &p));
}

/* ---- several tensors ------------------------------------------------------------------------------------------- */

/* Empty tensors of rank 1 are left out, whatever the others' rank is: PyTorch has that from its first days. */
bool rule_aten_cat(struct rule *r)
{
    uint32_t n, kept = 0, first = aten_list(r, 0, &n);
    value_id *in = NEW_ARRAY(&r->b->g->arena, value_id, n + 1);
    int32_t axis, rank = 0;
    for (uint32_t i = 0; i < n; i++) {
        value_id v = rule_in(r, first + i);
        if (!v.i)
            return false;
        if (v_rank(r->b, v) == 1 && ex_is(r->b->x, b_dim(r->b, v, 0), 0))
            continue;
        in[kept++] = b_convert(r->b, v, aten_elem_or(r, v));
        rank = v_rank(r->b, v);
    }
    if (!n)
        return rule_bad(r, "the list of tensors is empty");
    if (!kept)
        return rule_result(r, rule_in(r, first));
    return aten_axis(r, 1, "dim", 0, rank, &axis) && rule_result(r, b_concat(r->b, in, kept, axis));
}

bool rule_aten_stack(struct rule *r)
{
    uint32_t n, first = aten_list(r, 0, &n);
    value_id *in = NEW_ARRAY(&r->b->g->arena, value_id, n + 1);
    int32_t axis;
    if (!n || !aten_axis(r, 1, "dim", 0, v_rank(r->b, rule_in(r, first)) + 1, &axis))
        return n ? false : rule_bad(r, "the list of tensors is empty");
    for (uint32_t i = 0; i < n; i++) {
        value_id v = rule_in(r, first + i);
        in[i] = b_unsqueeze(r->b, b_convert(r->b, v, aten_elem_or(r, v)), axis);
    }
    return rule_result(r, b_concat(r->b, in, n, axis));
}

/* Tensors side by side: those of too few dims get dims of 1, numbers and rows in front (1 of 3 dims: and after), or
 * after for columns. param: the dim along which: 0 vstack, 1 hstack, which joins rows along dim 0, 2 dstack, 3 columns
 */
bool rule_aten_stack_along(struct rule *r)
{
    struct builder *b = r->b;
    uint32_t n, first = aten_list(r, 0, &n);
    value_id *in = NEW_ARRAY(&b->g->arena, value_id, n + 1);
    bool columns = r->param == 3;
    int32_t least = r->param == 1 ? 1 : r->param == 2 ? 3 : 2, axis = columns ? 1 : r->param;
    if (!n)
        return rule_bad(r, "the list of tensors is empty");
    for (uint32_t i = 0; i < n; i++) {
        value_id v = rule_in(r, first + i);
        in[i] = b_convert(b, v, aten_elem_or(r, v));
        while (in[i].i && v_rank(b, in[i]) < least) {
            int32_t rank = v_rank(b, in[i]);
            in[i] = b_unsqueeze(b, in[i], rank == 2 || (columns && rank == 1) ? rank : 0);
        }
        if (!in[i].i)
            return false;
    }
    return rule_result(r, b_concat(b, in, n, axis < v_rank(b, in[0]) ? axis : 0));
}

/* Parts of these sizes along axis, one after the other; at most as many as there are results. */
static bool split_at(struct rule *r, value_id x, int32_t axis, const expr_id *sizes, uint32_t n)
{
    expr_id at = ex_const(r->b->x, 0);
    if (n != r->n_out)
        return rule_bad(r, "there are %u parts and %u results", n, r->n_out);
    for (uint32_t i = 0; i < n; i++) {
        rule_out(r, i, b_slice_axis(r->b, x, axis, at, sizes[i]));
        at = ex_add(r->b->x, at, sizes[i]);
    }
    return true;
}

/* Parts of one size, the last one of what is left. param: 0 split (the size), 1 chunk (the number of parts). */
bool rule_aten_split(struct rule *r)
{
    value_id x = rule_in(r, 0);
    int32_t axis;
    expr_id count = aten_int(r, 1, r->param ? "chunks" : "split_size", 1);
    if (!x.i || !count.i || !aten_axis(r, 2, "dim", 0, v_rank(r->b, x), &axis))
        return false;
    if (ex_lo(r->b->x, count) < 1)
        return rule_refuse(r, "the size of the parts may be 0: export with a larger min of its Dim");
    expr_id dim = b_dim(r->b, x, axis), size = r->param ? ex_ceildiv(r->b->x, dim, count) : count;
    expr_id *sizes = NEW_ARRAY(&r->b->g->arena, expr_id, r->n_out + 1);
    for (uint32_t i = 0; i < r->n_out; i++)
        sizes[i] = i + 1 < r->n_out ? size : ex_sub(r->b->x, dim, ex_mulc(r->b->x, size, i));
    return split_at(r, x, axis, sizes, r->n_out);
}

bool rule_aten_split_sizes(struct rule *r)
{
    value_id x = rule_in(r, 0);
    int32_t axis;
    uint32_t n;
    expr_id sizes[RANK_MAX];
    return x.i && aten_ints(r, 1, r->param ? "split_size" : "split_sizes", sizes, &n) &&
           aten_axis(r, 2, "dim", 0, v_rank(r->b, x), &axis) && split_at(r, x, axis, sizes, n);
}

bool rule_aten_unbind(struct rule *r)
{
    value_id x = rule_in(r, 0);
    int32_t axis;
    if (!x.i || !aten_axis(r, 1, "dim", 0, v_rank(r->b, x), &axis))
        return false;
    if (!ex_is(r->b->x, b_dim(r->b, x, axis), r->n_out))
        return rule_bad(r, "there are %u results, and the dimension has another size", r->n_out);
    for (uint32_t i = 0; i < r->n_out; i++)
        rule_out(r, i, b_squeeze(r->b, b_slice_axis(r->b, x, axis, ex_const(r->b->x, i), ex_const(r->b->x, 1)), axis));
    return true;
}

/* ---- a triangle ------------------------------------------------------------------------------------------------ */

/* param: 1 upper, 0 lower */
bool rule_aten_tri(struct rule *r)
{
    value_id in[2] = {rule_in(r, 0)};
    const struct attr attrs[] = {attr_int("upper", r->param)};
    expr_id k = aten_int(r, 1, "diagonal", 0);
    if (!k.i)
        return false;
    in[1] = v_expr(r->b, ELEM_I64, k);
    return aten_as(r, rule_trilu, 14, 0, in, 2, attrs, 1);
}
