/* Views that strides describe: diagonals, windows, as_strided; pieces at given places, grids. */
#include "passes/legalize/aten.h"

static value_id scaled(struct builder *b, value_id i, int64_t by)
{
    return by == 1 ? i : b_binary(b, OP_MUL, i, b_scalar_i64(b, ELEM_I64, by));
}

/* i of [n, m], in dim 0, times `step` + k in dim 1 times `by`. */
static value_id places(struct builder *b, expr_id n, expr_id m, int64_t step, int64_t by)
{
    const expr_id dims[2] = {n, m};
    return b_binary(b, OP_ADD, scaled(b, v_iota(b, ELEM_I64, dims, 2, 0), step),
                    scaled(b, v_iota(b, ELEM_I64, dims, 2, 1), by));
}

/* ---- diagonals ------------------------------------------------------------------------------------------------- */

/* x with dims a and c after the others. */
static value_id moved_last(struct builder *b, value_id x, int32_t a, int32_t c)
{
    int64_t perm[RANK_MAX];
    int32_t rank = v_rank(b, x), n = 0;
    for (int32_t i = 0; i < rank; i++)
        if (i != a && i != c)
            perm[n++] = i;
    perm[rank - 2] = a;
    perm[rank - 1] = c;
    return b_transpose(b, x, perm);
}

/* The elements (i, i + offset) of dims a and c, as a last dim. */
static value_id diagonal(struct builder *b, value_id x, int64_t offset, int32_t a, int32_t c)
{
    struct exprs *ex = b->x;
    const struct dims dims = b_dims(b, moved_last(b, x, a, c));
    if (!dims.d)
        return (value_id){0};
    expr_id flat[RANK_MAX], rows = dims.d[dims.rank - 2], cols = dims.d[dims.rank - 1];
    memcpy(flat, dims.d, (size_t)(dims.rank - 2) * sizeof *flat);
    flat[dims.rank - 2] = ex_mul(ex, rows, cols);
    expr_id n = ex_min(ex, ex_addc(ex, rows, offset < 0 ? offset : 0), ex_addc(ex, cols, offset > 0 ? -offset : 0));
    n = ex_max(ex, n, ex_const(ex, 0));
    value_id at = b_binary(b, OP_MUL, v_iota(b, ELEM_I64, &n, 1, 0), v_expr(b, ELEM_I64, ex_addc(ex, cols, 1)));
    expr_id start = offset < 0 ? ex_mulc(ex, cols, -offset) : ex_const(ex, offset);
    at = b_binary(b, OP_ADD, at, v_expr(b, ELEM_I64, start));
    return b_gather(b, b_reshape(b, moved_last(b, x, a, c), flat, dims.rank - 1), at, dims.rank - 2);
}

static bool offset_read(struct rule *r, const char *name, int64_t *offset)
{
    return aten_int_known(r, 1, name, 0, offset) && ((*offset > -INT32_MAX && *offset < INT32_MAX) ||
                                                     rule_bad(r, "there is no diagonal %lld", (long long)*offset));
}

bool rule_aten_diagonal(struct rule *r)
{
    value_id x = rule_in(r, 0);
    int64_t offset;
    int32_t a, c, rank = v_rank(r->b, x);
    if (!x.i || !offset_read(r, "offset", &offset) || !aten_axis(r, 2, "dim1", 0, rank, &a) ||
        !aten_axis(r, 3, "dim2", 1, rank, &c))
        return false;
    if (rank < 2 || a == c)
        return rule_bad(r, "there is no diagonal of dimensions %d and %d of %d", (int)a, (int)c, (int)rank);
    return rule_result(r, diagonal(r->b, x, offset, a, c));
}

/* The last dim as a diagonal of two, 0 elsewhere. */
static value_id embedded(struct builder *b, value_id x, int64_t offset)
{
    const struct dims dims = b_dims(b, x);
    expr_id whole[RANK_MAX + 1], lo[RANK_MAX], hi[RANK_MAX];
    if (!dims.d)
        return (value_id){0};
    for (int32_t i = 0; i < dims.rank; i++) {
        lo[i] = hi[i] = ex_const(b->x, 0);
        whole[i] = dims.d[i];
    }
    hi[dims.rank - 1] = ex_const(b->x, llabs(offset));
    whole[dims.rank - 1] = whole[dims.rank] = ex_add(b->x, dims.d[dims.rank - 1], hi[dims.rank - 1]);
    value_id row = v_iota(b, ELEM_I64, whole, dims.rank + 1, dims.rank - 1),
             col = v_iota(b, ELEM_I64, whole, dims.rank + 1, dims.rank);
    value_id hit = b_binary(b, OP_EQ, b_binary(b, OP_SUB, col, row), b_scalar_i64(b, ELEM_I64, offset));
    value_id line = b_unsqueeze(b, b_pad(b, x, (value_id){0}, lo, hi, "constant"),
                                offset < 0 ? dims.rank - 1 : dims.rank);
    return b_select(b, hit, line, b_convert(b, b_scalar_i64(b, ELEM_I64, 0), v_elem(b, x)));
}

bool rule_aten_diag_embed(struct rule *r)
{
    value_id x = rule_in(r, 0);
    int64_t offset, perm[RANK_MAX];
    int32_t a, c, rank = v_rank(r->b, x) + 1, next = 0;
    if (!x.i || !offset_read(r, "offset", &offset) || !aten_axis(r, 2, "dim1", -2, rank, &a) ||
        !aten_axis(r, 3, "dim2", -1, rank, &c))
        return false;
    if (rank < 2 || rank > RANK_MAX || a == c)
        return rule_bad(r, "there is no diagonal of dimensions %d and %d of %d", (int)a, (int)c, (int)rank);
    for (int32_t i = 0; i < rank; i++)
        perm[i] = i == a ? rank - 2 : i == c ? rank - 1 : next++;
    return rule_result(r, b_transpose(r->b, embedded(r->b, x, offset), perm));
}

bool rule_aten_diag(struct rule *r)
{
    value_id x = rule_in(r, 0);
    int64_t offset;
    int32_t rank = v_rank(r->b, x);
    if (!x.i || !offset_read(r, "diagonal", &offset))
        return false;
    if (rank != 1 && rank != 2)
        return rule_bad(r, "the operand has rank %d, and 1 or 2 is needed", (int)rank);
    return rule_result(r, rank == 1 ? embedded(r->b, x, offset) : diagonal(r->b, x, offset, 0, 1));
}

/* ---- windows --------------------------------------------------------------------------------------------------- */

/* Windows of `size` elements along a dim, each `step` after the one before; their elements become the last dim. */
bool rule_aten_unfold(struct rule *r)
{
    struct builder *b = r->b;
    struct exprs *ex = b->x;
    value_id x = rule_in(r, 0);
    int64_t size, step;
    int32_t axis, rank = v_rank(b, x);
    if (!x.i || !aten_axis(r, 1, "dimension", 0, rank, &axis) || !aten_int_known(r, 2, "size", 1, &size) ||
        !aten_int_known(r, 3, "step", 1, &step))
        return false;
    if (rank == 0 || rank == RANK_MAX || size < 0 || size > INT32_MAX || step < 1 || step > INT32_MAX)
        return rule_refuse(r, "windows of %lld elements, %lld apart, of rank %d are not supported", (long long)size,
                           (long long)step, (int)rank);
    expr_id room = ex_addc(ex, b_dim(b, x, axis), -size), n = ex_addc(ex, ex_div(ex, room, ex_const(ex, step)), 1);
    b_assert(b, ex_le(ex, ex_const(ex, 0), room), EVAL_SHAPE, "a window is longer than dimension %d", (int)axis);
    value_id y = b_gather(b, x, places(b, n, ex_const(ex, size), step, 1), axis);
    return rule_result(r, v_move_axis(b, y, axis + 1, rank));
}

/* Kernel, dilation, padding, stride of two dims from argument `at` on. */
struct patch {
    int64_t kernel[RANK_MAX], dilation[RANK_MAX], pads[RANK_MAX], stride[RANK_MAX];
};
static bool patch_read(struct rule *r, uint32_t at, struct patch *p)
{
    if (!aten_window(r, at, "kernel_size", 2, 1, p->kernel) || !aten_window(r, at + 1, "dilation", 2, 1, p->dilation) ||
        !aten_window(r, at + 2, "padding", 2, 0, p->pads) || !aten_window(r, at + 3, "stride", 2, 1, p->stride))
        return false;
    for (uint32_t i = 0; i < 2; i++)
        if (p->kernel[i] < 1 || p->dilation[i] < 1 || p->pads[i] < 0 || p->stride[i] < 1 || p->kernel[i] > 1 << 20 ||
            p->dilation[i] > 1 << 20 || p->pads[i] > 1 << 20 || p->stride[i] > 1 << 20)
            return rule_bad(r, "the kernel, dilation, padding or stride is out of range");
    return true;
}

/* [N, C, H, W] -> [N, C * kernel, places]: dim by dim. */
bool rule_aten_im2col(struct rule *r)
{
    static const int64_t perm[] = {0, 1, 2, 4, 3, 5};
    struct builder *b = r->b;
    struct exprs *ex = b->x;
    struct patch p;
    value_id x = rule_in(r, 0);
    bool single = v_rank(b, x) == 3;
    x = single ? b_unsqueeze(b, x, 0) : x;
    if (!x.i || !patch_read(r, 1, &p))
        return false;
    if (v_rank(b, x) != 4)
        return rule_bad(r, "the operand has rank %d, and 4 is needed", (int)v_rank(b, x));
    expr_id zero = ex_const(ex, 0), pads[4] = {zero, zero, ex_const(ex, p.pads[0]), ex_const(ex, p.pads[1])}, n[2];
    x = b_pad(b, x, (value_id){0}, pads, pads, "constant");
    for (int32_t i = 0; i < 2 && x.i; i++) {
        expr_id room = ex_addc(ex, b_dim(b, x, 2 + 2 * i), -p.dilation[i] * (p.kernel[i] - 1) - 1);
        n[i] = ex_addc(ex, ex_div(ex, room, ex_const(ex, p.stride[i])), 1);
        b_assert(b, ex_le(ex, zero, room), EVAL_SHAPE, "a window is larger than the image");
        x = b_gather(b, x, places(b, ex_const(ex, p.kernel[i]), n[i], p.dilation[i], p.stride[i]), 2 + 2 * i);
    }
    x = b_transpose(b, x, perm);
    const struct dims d = b_dims(b, x);
    if (!d.d)
        return false;
    const expr_id out[3] = {d.d[0], ex_mulc(ex, d.d[1], p.kernel[0] * p.kernel[1]), ex_mul(ex, d.d[4], d.d[5])};
    x = b_reshape(b, x, out, 3);
    return rule_result(r, single ? b_squeeze(b, x, 0) : x);
}

bool rule_aten_col2im(struct rule *r)
{
    struct patch p;
    expr_id sizes[RANK_MAX];
    uint32_t n;
    value_id in[3] = {rule_in(r, 0)};
    bool single = v_rank(r->b, in[0]) == 2;
    if (!in[0].i || !aten_ints(r, 1, "output_size", sizes, &n) || !patch_read(r, 2, &p))
        return false;
    if (n != 2)
        return rule_bad(r, "output_size has %u sizes, and 2 are needed", n);
    in[0] = single ? b_unsqueeze(r->b, in[0], 0) : in[0];
    in[1] = aten_sizes(r, sizes, 2);
    in[2] = b_const(r->b, ELEM_I64, &(int64_t){2}, 1, p.kernel);
    const int64_t pads[4] = {p.pads[0], p.pads[1], p.pads[0], p.pads[1]};
    const struct attr attrs[] = {attr_ints("dilations", p.dilation, 2), attr_ints("pads", pads, 4),
                                 attr_ints("strides", p.stride, 2)};
    return aten_as(r, rule_col2im, 18, 0, in, 3, attrs, 3) &&
           (!single || rule_result(r, b_squeeze(r->b, r->out[0].v, 0)));
}

/* ---- as_strided ------------------------------------------------------------------------------------------------ */

/* x in the order of memory, as one dim, where its dims and strides say that it fills its memory without gaps. */
static bool in_memory_order(struct builder *b, value_id *x, const int64_t *dims, const int64_t *strides, int32_t rank)
{
    int64_t perm[RANK_MAX], next = 1;
    bool used[RANK_MAX] = {false};
    for (int32_t k = rank - 1; k >= 0; k--) { /* from the innermost on */
        int32_t found = -1;
        for (int32_t i = rank - 1; i >= 0 && found < 0; i--)
            if (!used[i] && (dims[i] == 1 || strides[i] == next))
                found = i;
        if (found < 0)
            return false;
        used[found] = true;
        perm[k] = found;
        next *= dims[found];
    }
    expr_id count = ex_const(b->x, next);
    *x = b_reshape(b, b_transpose(b, *x, perm), &count, 1);
    return x->i != 0;
}

/* Elements by places in memory. The importer says how operand 0 lies there: self_strides, self_offset. */
bool rule_aten_as_strided(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0);
    uint32_t n, n_strides, n_own;
    const int64_t *own = rule_ints(r, "self_strides", &n_own);
    const struct dims dims_x = b_dims(b, x);
    int64_t sizes[RANK_MAX], strides[RANK_MAX], dims[RANK_MAX], first;
    expr_id whole[RANK_MAX];
    if (!dims_x.d || !aten_ints_known(r, 1, "size", sizes, &n) || !aten_ints_known(r, 2, "stride", strides, &n_strides))
        return false;
    if (n != n_strides)
        return rule_bad(r, "there are %u sizes and %u strides", n, n_strides);
    for (int32_t i = 0; i < dims_x.rank; i++)
        if (!ex_is_const(b->x, dims_x.d[i], &dims[i]) || n_own != (uint32_t)dims_x.rank)
            return rule_refuse(r, "the operand's sizes or strides are known only at run time");
    int64_t own_first = rule_int(r, "self_offset", 0), last, have;
    if (own_first < 0 || !add_i64(rule_int(r, "storage_offset", own_first), -own_first, &first))
        return rule_bad(r, "the operand cannot begin at element %lld of its memory", (long long)own_first);
    bool empty = false, far = false;
    last = first;
    for (uint32_t i = 0; i < n; i++) {
        if (sizes[i] < 0 || strides[i] < 0 || sizes[i] > INT32_MAX || strides[i] > INT32_MAX)
            return rule_bad(r, "size %lld with stride %lld is impossible", (long long)sizes[i], (long long)strides[i]);
        empty |= sizes[i] == 0;
        far |= !add_i64(last, (sizes[i] - 1) * strides[i], &last);
        whole[i] = ex_const(b->x, sizes[i]);
    }
    if (empty)
        return rule_result(r,
                           b_broadcast(b, b_convert(b, b_scalar_i64(b, ELEM_I64, 0), v_elem(b, x)), whole, (int32_t)n));
    if (!in_memory_order(b, &x, dims, own, dims_x.rank))
        return rule_refuse(r, "the operand does not fill its memory: use contiguous() first");
    if (!ex_is_const(b->x, b_count(b, x), &have) || far || first < 0 || last >= have)
        return rule_refuse(r, "it reads elements around its operand: use contiguous() or clone() first");
    value_id place = b_broadcast(b, b_scalar_i64(b, ELEM_I64, first), whole, (int32_t)n);
    for (uint32_t i = 0; i < n; i++)
        place = b_binary(b, OP_ADD, place, scaled(b, v_iota(b, ELEM_I64, whole, (int32_t)n, (int32_t)i), strides[i]));
    return rule_result(r, b_gather(b, x, place, 0));
}

/* ---- pieces ---------------------------------------------------------------------------------------------------- */

/* As many pieces as there are results, the first ones longer by one where they are not equal. */
bool rule_aten_split_sections(struct rule *r)
{
    value_id x = rule_in(r, 0);
    int32_t axis;
    int64_t n;
    if (!x.i || !aten_int_known(r, 1, "sections", 1, &n) || !aten_axis(r, 2, "dim", 0, v_rank(r->b, x), &axis))
        return false;
    if (n < 1 || n != r->n_out)
        return rule_bad(r, "there are %lld pieces and %u results", (long long)n, r->n_out);
    expr_id dim = b_dim(r->b, x, axis), at = ex_const(r->b->x, 0);
    for (uint32_t i = 0; i < r->n_out; i++) {
        expr_id size = ex_div(r->b->x, ex_addc(r->b->x, dim, n - 1 - i), ex_const(r->b->x, n));
        rule_out(r, i, b_slice_axis(r->b, x, axis, at, size));
        at = ex_add(r->b->x, at, size);
    }
    return true;
}

/* Pieces between places, as slices of Python have them. */
bool rule_aten_split_indices(struct rule *r)
{
    struct exprs *ex = r->b->x;
    value_id x = rule_in(r, 0);
    int32_t axis;
    uint32_t n;
    expr_id places_at[RANK_MAX], at = ex_const(ex, 0);
    if (!x.i || !aten_ints(r, 1, "indices", places_at, &n) || !aten_axis(r, 2, "dim", 0, v_rank(r->b, x), &axis))
        return false;
    if (n + 1 != r->n_out)
        return rule_bad(r, "there are %u places and %u results", n, r->n_out);
    expr_id dim = b_dim(r->b, x, axis);
    for (uint32_t i = 0; i <= n; i++) {
        expr_id end = i < n ? aten_bound(ex, places_at[i], dim) : dim;
        rule_out(r, i, b_slice_axis(r->b, x, axis, at, ex_max(ex, ex_sub(ex, end, at), ex_const(ex, 0))));
        at = end;
    }
    return true;
}

/* ---- several tensors broadcast --------------------------------------------------------------------------------- */

/* Tensor k along dim k; indexing "xy": the first two dims are exchanged. */
bool rule_aten_meshgrid(struct rule *r)
{
    struct builder *b = r->b;
    uint32_t n, first = aten_list(r, 0, &n);
    bool turned = strcmp(rule_str(r, "indexing", "ij"), "xy") == 0 && n > 1;
    expr_id dims[RANK_MAX];
    if (!n || n > RANK_MAX || n != r->n_out)
        return rule_bad(r, "there are %u tensors and %u results", n, r->n_out);
    for (uint32_t k = 0; k < n; k++) {
        value_id v = rule_in(r, first + k);
        if (!v.i)
            return false;
        if (v_rank(b, v) > 1)
            return rule_bad(r, "a tensor has rank %d", (int)v_rank(b, v));
        dims[turned && k < 2 ? 1 - k : k] = b_count(b, v);
    }
    for (uint32_t k = 0; k < n; k++) {
        value_id v = rule_in(r, first + k);
        v = v_along(b, v_rank(b, v) ? v : b_unsqueeze(b, v, 0), (int32_t)(turned && k < 2 ? 1 - k : k), (int32_t)n);
        rule_out(r, k, b_broadcast(b, v, dims, (int32_t)n));
    }
    return true;
}

bool rule_aten_broadcast_tensors(struct rule *r)
{
    struct builder *b = r->b;
    uint32_t n, first = aten_list(r, 0, &n);
    expr_id dims[RANK_MAX];
    int32_t rank = 0;
    if (!n || n != r->n_out)
        return rule_bad(r, "there are %u tensors and %u results", n, r->n_out);
    for (uint32_t k = 0; k < n && rank >= 0; k++) {
        const struct dims d = b_dims(b, rule_in(r, first + k));
        if (!d.d)
            return false;
        rank = b_broadcast_dims(b, dims, rank, d.d, d.rank, dims);
    }
    for (uint32_t k = 0; k < n && rank >= 0; k++)
        rule_out(r, k, b_broadcast(b, rule_in(r, first + k), dims, rank));
    return rank >= 0;
}
