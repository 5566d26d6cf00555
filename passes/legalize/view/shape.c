/* Views that change the shape: Reshape, Flatten, Transpose, Expand, Tile, Concat, Split, and the operators that read
 * shapes: Shape, Size. Squeeze and Unsqueeze are in squeeze.c.
 *
 * Target shapes are attributes in old versions, operands in new ones; dynamic elements of operands become value symbols
 * of the shape.
 */
#include "passes/legalize/control.h"

/* ---- Reshape ------------------------------------------------------------------------------------------------ */

static bool uses_value(const struct exprs *ex, expr_id e, uint32_t depth)
{
    sym_id s = ex_as_sym(ex, e);
    if (s.i)
        return sym_get((struct exprs *)(uintptr_t)ex, s)->kind != SYM_SHAPE;
    if (!depth)
        return true;
    for (uint32_t i = 0; i < ex_n_args(ex, e); i++)
        if (uses_value(ex, ex_arg(ex, e, i), depth - 1))
            return true;
    return false;
}

/* Can the element be 0 (copy) or -1 (infer) at run time? A size made of shape symbols stands for itself: if it is
 * 0 then the tensor is empty either way. */
static bool may_be_special(struct exprs *ex, expr_id e)
{
    return ex_lo(ex, e) < 1 && uses_value(ex, e, 16);
}

/* Product of `have` divided by `rest`; common factors of the two lists cancel first, so that symbols do. What is left
 * of `rest` is at least 1 where `checked` says so: it is asserted, if only shape symbols are in it. */
static expr_id quotient(struct builder *b, const expr_id *have, int32_t n_have, const expr_id *rest, int32_t n_rest,
                        bool checked)
{
    expr_id a[RANK_MAX], c[RANK_MAX];
    int32_t na = 0, nc = 0;
    bool gone[RANK_MAX] = {false};
    for (int32_t i = 0; i < n_have; i++) {
        int32_t k = 0;
        while (k < n_rest && (gone[k] || rest[k].i != have[i].i))
            k++;
        if (k < n_rest)
            gone[k] = true;
        else
            a[na++] = have[i];
    }
    for (int32_t k = 0; k < n_rest; k++)
        if (!gone[k])
            c[nc++] = rest[k];
    expr_id up = dims_product(b->x, a, na), down = dims_product(b->x, c, nc);
    int64_t d;
    if (ex_is_const(b->x, down, &d))
        return d == 0 ? ex_const(b->x, 0) : ex_div(b->x, up, down);
    if (checked && !uses_value(b->x, down, 16))
        b_assert(b, ex_lt(b->x, ex_const(b->x, 0), down), EVAL_SHAPE,
                 "a dimension is -1 and another one has 0 elements: any size would fit");
    return ex_div(b->x, up, ex_max(b->x, down, ex_const(b->x, 1)));
}

enum { DIM_PARTS = 40 }; /* of a dim that depends on what the run gives: the next shape is made of such dims */

static bool reshape_to(struct rule *r, value_id x, const expr_id *want, uint32_t n, bool allowzero)
{
    int32_t infer = -1;
    const struct dims have = b_dims(r->b, x);
    expr_id dims[RANK_MAX], rest[RANK_MAX];
    int32_t n_rest = 0;
    bool dynamic = false;
    if (!have.d)
        return false;
    if (n > RANK_MAX)
        return rule_bad(r, "rank %u is above %d", n, RANK_MAX);
    for (uint32_t i = 0; i < n; i++) {
        expr_id e = want[i];
        if (ex_is(r->b->x, e, -1)) {
            if (infer >= 0)
                return rule_bad(r, "two dimensions are -1");
            infer = (int32_t)i;
            continue;
        }
        if (ex_hi(r->b->x, e) < -1)
            return rule_bad(r, "dimension %u is below -1", i);
        if (!allowzero && ex_is(r->b->x, e, 0)) {
            if ((int32_t)i >= have.rank)
                return rule_bad(r, "dimension %u is copied from an input of rank %d", i, (int)have.rank);
            e = have.d[i];
        } else if (may_be_special(r->b->x, e)) {
            dynamic = true;
            if (!allowzero && (int32_t)i < have.rank)
                e = ex_select(r->b->x, ex_eq(r->b->x, e, ex_const(r->b->x, 0)), have.d[i], e);
        }
        dims[i] = e;
        rest[n_rest++] = e;
    }
    for (int32_t i = 0; infer >= 0 && i < n_rest; i++)
        if (ex_is(r->b->x, rest[i], 0))
            return rule_bad(r, "dimension %d is -1 and another one has 0 elements: any size would fit", (int)infer);
    if (infer >= 0)
        dims[infer] = quotient(r->b, have.d, have.rank, rest, n_rest, true);
    for (uint32_t i = 0; dynamic && infer < 0 && i < n; i++) /* a run-time -1 */
        if (ex_lo(r->b->x, dims[i]) < 0)
            rest[i] = ex_select(r->b->x, ex_lt(r->b->x, dims[i], ex_const(r->b->x, 0)), ex_const(r->b->x, 1), dims[i]);
    for (uint32_t i = 0; dynamic && infer < 0 && i < n; i++)
        if (ex_lo(r->b->x, dims[i]) < 0)
            dims[i] = ex_select(r->b->x, ex_lt(r->b->x, dims[i], ex_const(r->b->x, 0)),
                                quotient(r->b, have.d, have.rank, rest, n_rest, false), dims[i]);
    if (dynamic || (infer >= 0 && uses_value(r->b->x, dims[infer], 16)))
        b_brief_all(r->b, dims, n, DIM_PARTS);
    return rule_result(r, b_reshape(r->b, x, dims, (int32_t)n));
}

bool rule_reshape(struct rule *r)
{
    value_id x = rule_in(r, 0);
    uint32_t n;
    const expr_id *want = rule_elems(r, 1, "dims", OPEN_RANK_MAX, -1, INT32_MAX, &n);
    return want && reshape_to(r, x, want, n, rule_int(r, "allowzero", 0) != 0);
}

bool rule_reshape_old(struct rule *r)
{
    uint32_t n;
    const int64_t *shape = rule_ints(r, "shape", &n);
    expr_id want[RANK_MAX];
    if (n > RANK_MAX)
        return rule_bad(r, "rank %u is above %d", n, RANK_MAX);
    for (uint32_t i = 0; i < n; i++)
        want[i] = ex_const(r->b->x, shape[i]);
    return reshape_to(r, rule_in(r, 0), want, n, false);
}

bool rule_flatten(struct rule *r)
{
    value_id x = rule_in(r, 0);
    const struct dims have = b_dims(r->b, x);
    int64_t axis = rule_int(r, "axis", 1);
    if (!have.d)
        return false;
    if (axis < -have.rank || axis > have.rank)
        return rule_bad(r, "axis %lld is out of range for rank %d", (long long)axis, (int)have.rank);
    int32_t at = (int32_t)(axis < 0 ? axis + have.rank : axis);
    expr_id dims[2] = {dims_product(r->b->x, have.d, at), dims_product(r->b->x, have.d + at, have.rank - at)};
    return rule_result(r, b_reshape(r->b, x, dims, 2));
}

/* ---- Transpose, Expand, Tile ------------------------------------------------------------------------------------- */

bool rule_transpose(struct rule *r)
{
    value_id x = rule_in(r, 0);
    int32_t rank = v_rank(r->b, x);
    uint32_t n;
    const int64_t *given = rule_ints(r, "perm", &n);
    int64_t perm[RANK_MAX];
    if (n && n != (uint32_t)rank)
        return rule_bad(r, "permutation of %u axes for rank %d", n, (int)rank);
    for (int32_t i = 0; i < rank; i++) {
        int32_t axis;
        if (n && !rule_axis(r, given[i], rank, &axis))
            return false;
        perm[i] = n ? axis : rank - 1 - i;
    }
    return rule_result(r, b_transpose(r->b, x, perm));
}

/* The wanted dims; if their number is dynamic, it is as if fewer than x has were filled up with ones in
 * front. */
static const expr_id *expand_dims(struct rule *r, int32_t rank, uint32_t *n)
{
    struct builder *b = r->b;
    value_id shape = rule_in(r, 1);
    expr_id least = ex_const(b->x, rank);
    int64_t to;
    if (shape.i && v_rank(b, shape) == 1 && !v_count_known(b, shape)) {
        expr_id given = b_dim(b, shape, 0);
        if (!rule_choose(r, ex_max(b->x, given, least), rank, open_rank(rank), "dims", &to))
            return NULL;
        value_id both[2] = {b_broadcast(b, b_scalar_i64(b, ELEM_I64, 1), &least, 1), shape};
        shape = to > rank ? v_exactly(b, shape, (uint32_t)to)
                          : b_slice_axis(b, b_concat(b, both, 2, 0), 0, given, least);
    }
    return b_elems(b, shape, 0, INT32_MAX, n);
}

bool rule_expand(struct rule *r)
{
    value_id x = rule_in(r, 0);
    uint32_t n;
    const struct dims dims = b_dims(r->b, x);
    const expr_id *want = dims.d ? expand_dims(r, dims.rank, &n) : NULL;
    expr_id out[RANK_MAX];
    if (!dims.d || !want)
        return false;
    if (n > RANK_MAX)
        return rule_bad(r, "rank %u is above %d", n, RANK_MAX);
    int32_t to = b_broadcast_dims(r->b, dims.d, dims.rank, want, (int32_t)n, out);
    return to >= 0 && rule_result(r, b_broadcast(r->b, x, out, to));
}

/* Tile: [d0, d1] -> [1, d0, 1, d1] -> broadcast [r0, d0, r1, d1] -> [r0*d0, r1*d1]; no data moves. */
static bool tile(struct rule *r, value_id x, const expr_id *repeats, uint32_t n)
{
    int32_t wide = 0;
    const struct dims dims = b_dims(r->b, x);
    expr_id apart[RANK_MAX], spread[RANK_MAX], out[RANK_MAX];
    if (!dims.d)
        return false;
    if (n != (uint32_t)dims.rank)
        return rule_bad(r, "%u repeats for rank %d", n, (int)dims.rank);
    for (int32_t i = 0; i < dims.rank; i++) {
        out[i] = ex_mul(r->b->x, repeats[i], dims.d[i]);
        if (ex_is(r->b->x, repeats[i], 1) ? wide >= RANK_MAX : wide + 1 >= RANK_MAX)
            return rule_refuse(r, "the rank of the result is too high");
        if (!ex_is(r->b->x, repeats[i], 1)) {
            apart[wide] = ex_const(r->b->x, 1);
            spread[wide++] = repeats[i];
        }
        apart[wide] = dims.d[i];
        spread[wide++] = dims.d[i];
    }
    value_id y = b_broadcast(r->b, b_reshape(r->b, x, apart, wide), spread, wide);
    return rule_result(r, b_reshape(r->b, y, out, dims.rank));
}

bool rule_tile(struct rule *r)
{
    uint32_t n;
    value_id x = rule_in(r, 0), given = v_exactly(r->b, rule_in(r, 1), (uint32_t)v_rank(r->b, x));
    const expr_id *repeats = b_elems(r->b, given, 0, INT32_MAX, &n);
    return repeats && tile(r, x, repeats, n);
}

/* Version 1: one axis, both as one-element operands. */
bool rule_tile_old(struct rule *r)
{
    value_id x = rule_in(r, 0);
    int64_t tiles, axis;
    int32_t at, rank = v_rank(r->b, x);
    expr_id repeats[RANK_MAX];
    if (!v_known_i64(r->b, b_convert(r->b, rule_in(r, 1), ELEM_I64), 0, &tiles) ||
        !v_known_i64(r->b, b_convert(r->b, rule_in(r, 2), ELEM_I64), 0, &axis))
        return rule_refuse(r, "tiles or axis are known only at run time");
    if (!rule_axis(r, axis, rank, &at))
        return false;
    for (int32_t i = 0; i < rank; i++)
        repeats[i] = ex_const(r->b->x, i == at ? tiles : 1);
    return tile(r, x, repeats, (uint32_t)rank);
}

/* ---- Concat, Split ----------------------------------------------------------------------------------------------- */

/* Can v, which has no elements, not stand beside like? */
static bool concat_misfit(struct builder *b, value_id v, value_id like, int64_t axis)
{
    const struct dims dims = b_dims(b, v), want = b_dims(b, like);
    bool misfit = dims.rank != want.rank;
    for (int32_t d = 0; dims.d && want.d && !misfit && d < dims.rank; d++)
        misfit = d != axis && d != axis + dims.rank && ex_cmp_eq(b->x, dims.d[d], want.d[d]) == FALSE_;
    return misfit;
}

/* An operand without elements is left out where its other dims do not fit: loops that collect rows begin with such. */
bool rule_concat(struct rule *r)
{
    struct builder *b = r->b;
    value_id *in = NEW_ARRAY(&b->g->arena, value_id, r->n_in + 1), full = {0};
    int64_t wanted = rule_int(r, "axis", 1);
    uint32_t n = 0;
    int32_t axis;
    if (!r->n_in)
        return rule_bad(r, "no operands");
    for (uint32_t i = 0; i < r->n_in; i++) {
        in[i] = rule_in(r, i);
        if (!in[i].i)
            return false;
        if (!full.i && !ex_is(b->x, b_count(b, in[i]), 0))
            full = in[i];
    }
    for (uint32_t i = 0; i < r->n_in; i++)
        if (!full.i || !ex_is(b->x, b_count(b, in[i]), 0) || !concat_misfit(b, in[i], full, wanted))
            in[n++] = in[i];
    return rule_axis(r, wanted, v_rank(b, in[0]), &axis) && rule_result(r, b_concat(b, in, n, axis));
}

/* Sizes of the pieces from `split` (attribute or operand), num_outputs, or equal parts. */
static bool split_sizes(struct rule *r, expr_id dim, expr_id *sizes)
{
    uint32_t n = 0;
    if (rule_has(r, 1)) {
        const expr_id *given = b_elems(r->b, v_exactly(r->b, rule_in(r, 1), r->n_out), 0, INT32_MAX, &n);
        if (!given)
            return false;
        for (uint32_t i = 0; i < n && i < r->n_out; i++)
            sizes[i] = given[i];
    } else if (node_attr(r->node, "split")) {
        const int64_t *given = rule_ints(r, "split", &n);
        for (uint32_t i = 0; i < n && i < r->n_out; i++)
            sizes[i] = ex_const(r->b->x, given[i]);
    } else {
        int64_t parts = rule_int(r, "num_outputs", r->n_out), d;
        n = r->n_out;
        if (parts != n)
            return rule_bad(r, "num_outputs is %lld, the node has %u", (long long)parts, n);
        if (r->version < 18 && ex_is_const(r->b->x, dim, &d) && d % parts)
            return rule_bad(r, "%lld elements in %lld equal parts", (long long)d, (long long)parts);
        expr_id chunk = ex_ceildiv(r->b->x, dim, ex_const(r->b->x, parts));
        for (uint32_t i = 0; i < n; i++) {
            expr_id left = ex_max(r->b->x, ex_sub(r->b->x, dim, ex_mulc(r->b->x, chunk, i)), ex_const(r->b->x, 0));
            sizes[i] = i + 1 < n || r->version >= 18 ? ex_min(r->b->x, chunk, left) : left;
        }
        return true;
    }
    if (n != r->n_out)
        return rule_bad(r, "%u sizes for %u outputs", n, r->n_out);
    expr_id sum = ex_const(r->b->x, 0);
    for (uint32_t i = 0; i < n; i++)
        sum = ex_add(r->b->x, sum, sizes[i]);
    if (ex_cmp_eq(r->b->x, sum, dim) == FALSE_)
        return rule_bad(r, "the sizes do not add up to the dimension");
    b_assert(r->b, ex_eq(r->b->x, sum, dim), -2, "sizes do not add up to the dimension");
    return true;
}

bool rule_split(struct rule *r)
{
    value_id x = rule_in(r, 0);
    int32_t axis;
    expr_id *sizes = NEW_ARRAY(&r->b->g->arena, expr_id, r->n_out + 1), start = ex_const(r->b->x, 0);
    if (!x.i || !rule_axis(r, rule_int(r, "axis", 0), v_rank(r->b, x), &axis) ||
        !split_sizes(r, b_dim(r->b, x, axis), sizes))
        return false;
    for (uint32_t i = 0; i < r->n_out; i++) {
        if (rule_wants(r, i))
            rule_out(r, i, b_slice_axis(r->b, x, axis, start, sizes[i]));
        start = ex_add(r->b->x, start, sizes[i]);
    }
    return true;
}

/* ---- Shape, Size ------------------------------------------------------------------------------------------------- */

bool rule_shape(struct rule *r)
{
    const struct dims dims = b_dims(r->b, rule_in(r, 0));
    if (!dims.d)
        return false;
    int64_t from = rule_int(r, "start", 0), to = rule_int(r, "end", dims.rank);
    from = from < 0 ? from + dims.rank : from;
    to = to < 0 ? to + dims.rank : to;
    from = from < 0 ? 0 : from > dims.rank ? dims.rank : from;
    to = to < from ? from : to > dims.rank ? dims.rank : to;
    int64_t n = to - from;
    return rule_result(r, b_from_exprs(r->b, ELEM_I64, dims.d + from, (uint32_t)n, &n, 1));
}

bool rule_size(struct rule *r)
{
    value_id x = rule_in(r, 0);
    return x.i && rule_result(r, v_expr(r->b, ELEM_I64, b_count(r->b, x)));
}
