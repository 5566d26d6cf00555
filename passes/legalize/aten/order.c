/* Another order of elements: permutations of dims, flips and rolls, pixels from channels. */
#include "passes/legalize/aten.h"

/* The dims in that order. A dequantized matrix stays one: its integers are transposed, and the axis of its scales. */
static bool result_permuted(struct rule *r, value_id x, const int64_t *perm)
{
    const struct quantized *from = r->arg[0].quantized;
    if (!rule_result(r, b_transpose(r->b, x, perm)))
        return false;
    if (!from || v_rank(r->b, x) != 2)
        return true;
    struct quantized to = *from;
    to.q = b_transpose(r->b, from->q, perm);
    to.axis = perm[0] == from->axis ? 0 : 1;
    r->out[0].quantized = arena_copy(&r->b->g->arena, &to, sizeof to);
    return true;
}

bool rule_aten_permute(struct rule *r)
{
    value_id x = rule_in(r, 0);
    int64_t axes[RANK_MAX], perm[RANK_MAX];
    bool seen[RANK_MAX];
    uint32_t n;
    int32_t rank = v_rank(r->b, x), axis;
    if (!x.i || !aten_ints_known(r, 1, "dims", axes, &n))
        return false;
    if (n != (uint32_t)rank)
        return rule_bad(r, "the permutation has %u dimensions, and the operand rank %d", n, (int)rank);
    if (!rule_axes_marked(r, axes, n, rank, seen))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        rule_axis(r, axes[i], rank, &axis);
        perm[i] = axis;
    }
    return result_permuted(r, x, perm);
}

/* param: 0 two named dims, 1 the last two, 2 all in reverse order */
bool rule_aten_transpose(struct rule *r)
{
    value_id x = rule_in(r, 0);
    int64_t perm[RANK_MAX];
    int32_t rank = v_rank(r->b, x), a = rank - 2, c = rank - 1;
    bool axes = strcmp(r->op, "swapaxes.default") == 0;
    if (!x.i || (r->param == 0 && (!aten_axis(r, 1, axes ? "axis0" : "dim0", 0, rank, &a) ||
                                   !aten_axis(r, 2, axes ? "axis1" : "dim1", 0, rank, &c))))
        return false;
    if (rank < 2)
        return rule_result(r, x);
    for (int32_t i = 0; i < rank; i++)
        perm[i] = r->param == 2 ? rank - 1 - i : i == a ? c : i == c ? a : i;
    return result_permuted(r, x, perm);
}

bool rule_aten_movedim(struct rule *r)
{
    value_id x = rule_in(r, 0);
    int64_t from[RANK_MAX], to[RANK_MAX], perm[RANK_MAX];
    uint32_t n, m;
    int32_t rank = v_rank(r->b, x), next = 0, axis;
    bool moved[RANK_MAX], taken[RANK_MAX];
    if (!x.i || !aten_ints_known(r, 1, "source", from, &n) || !aten_ints_known(r, 2, "destination", to, &m))
        return false;
    if (n != m || !rule_axes_marked(r, from, n, rank, moved) || !rule_axes_marked(r, to, n, rank, taken))
        return n != m ? rule_bad(r, "%u dimensions are moved to %u places", n, m) : false;
    for (int32_t i = 0; i < rank; i++) {
        if (taken[i])
            continue;
        while (moved[next])
            next++;
        perm[i] = next++;
    }
    for (uint32_t k = 0; k < n; k++) {
        rule_axis(r, from[k], rank, &axis);
        int32_t place;
        rule_axis(r, to[k], rank, &place);
        perm[place] = axis;
    }
    return rule_result(r, b_transpose(r->b, x, perm));
}

/* param: 1 + the dim that is turned (flipud, fliplr), 0: the dims of the list */
bool rule_aten_flip(struct rule *r)
{
    value_id x = rule_in(r, 0);
    int64_t axes[RANK_MAX];
    bool marked[RANK_MAX];
    uint32_t n;
    int32_t rank = v_rank(r->b, x);
    if (x.i && rank < r->param)
        return rule_bad(r, "the operand has rank %d, which the operator does not take", (int)rank);
    if (x.i && r->param)
        return rule_result(r, v_flip(r->b, x, r->param - 1));
    if (!x.i || !aten_ints_known(r, 1, "dims", axes, &n) || !rule_axes_marked(r, axes, n, rank, marked))
        return false;
    for (int32_t d = 0; d < rank; d++)
        if (marked[d])
            x = v_flip(r->b, x, d);
    return rule_result(r, x);
}

bool rule_aten_roll(struct rule *r)
{
    struct exprs *ex = r->b->x;
    value_id x = rule_in(r, 0), whole = x;
    expr_id shifts[RANK_MAX], count;
    int64_t axes[RANK_MAX] = {0};
    uint32_t n, n_axes;
    int32_t axis;
    if (!x.i || !aten_ints(r, 1, "shifts", shifts, &n) || !aten_ints_known(r, 2, "dims", axes, &n_axes))
        return false;
    if (n_axes ? n != n_axes : n != 1)
        return rule_bad(r, "there are %u shifts for %u dimensions", n, n_axes);
    count = b_count(r->b, x);
    if (!n_axes)
        x = b_reshape(r->b, x, &count, 1);
    for (uint32_t i = 0; i < n; i++) {
        if (!rule_axis(r, axes[i], v_rank(r->b, x) ? v_rank(r->b, x) : 1, &axis))
            return false;
        expr_id dim = b_dim(r->b, x, axis), head = ex_mod(ex, shifts[i], ex_max(ex, dim, ex_const(ex, 1)));
        expr_id tail = ex_sub(ex, dim, head);
        value_id parts[2] = {b_slice_axis(r->b, x, axis, tail, head),
                             b_slice_axis(r->b, x, axis, ex_const(ex, 0), tail)};
        x = b_concat(r->b, parts, 2, axis);
    }
    const struct dims dims = b_dims(r->b, whole);
    return rule_result(r, n_axes || !dims.d ? x : b_reshape(r->b, x, dims.d, dims.rank));
}

/* Channels [C, f, f] and pixels [H, W] to pixels [H, f] and [W, f]; param: 1 back again. */
bool rule_aten_pixel_shuffle(struct rule *r)
{
    value_id x = rule_in(r, 0);
    const struct dims dims = b_dims(r->b, x);
    int64_t f = rule_int(r, r->param ? "downscale_factor" : "upscale_factor", 1), perm[RANK_MAX];
    if (!dims.d)
        return false;
    int32_t at = dims.rank - 3; /* of the channels */
    if (at < 0 || dims.rank + 2 > RANK_MAX || f < 1 || f > INT32_MAX)
        return rule_bad(r, "an operand of rank %d cannot be shuffled by a factor of %lld", (int)dims.rank,
                        (long long)f);
    expr_id apart[RANK_MAX], out[RANK_MAX], by = ex_const(r->b->x, f), square = ex_mulc(r->b->x, by, f);
    memcpy(apart, dims.d, (size_t)at * sizeof *apart);
    memcpy(out, dims.d, (size_t)at * sizeof *out);
    const expr_id c = dims.d[at], h = dims.d[at + 1], w = dims.d[at + 2];
    const expr_id up[] = {ex_div(r->b->x, c, square), by, by, h, w},
                  down[] = {c, ex_div(r->b->x, h, by), by, ex_div(r->b->x, w, by), by};
    static const int64_t perm_up[] = {0, 3, 1, 4, 2}, perm_down[] = {0, 2, 4, 1, 3};
    for (int32_t i = 0; i < dims.rank + 2; i++)
        perm[i] = i < at ? i : at + (r->param ? perm_down : perm_up)[i - at];
    memcpy(apart + at, r->param ? down : up, sizeof up);
    out[at] = r->param ? ex_mul(r->b->x, c, square) : up[0];
    out[at + 1] = r->param ? down[1] : ex_mul(r->b->x, h, by);
    out[at + 2] = r->param ? down[3] : ex_mul(r->b->x, w, by);
    return rule_result(
        r, b_reshape(r->b, b_transpose(r->b, b_reshape(r->b, x, apart, dims.rank + 2), perm), out, dims.rank));
}

/* Channels [groups, n] to [n, groups]. */
bool rule_aten_channel_shuffle(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0);
    const struct dims dims = b_dims(b, x);
    int64_t groups, perm[RANK_MAX];
    expr_id apart[RANK_MAX];
    if (!dims.d || !aten_int_known(r, 1, "groups", 1, &groups))
        return false;
    if (dims.rank < 3 || dims.rank + 1 > RANK_MAX || groups < 1)
        return rule_bad(r, "an operand of rank %d cannot have %lld groups", (int)dims.rank, (long long)groups);
    apart[0] = dims.d[0];
    apart[1] = ex_const(b->x, groups);
    apart[2] = ex_div(b->x, dims.d[1], apart[1]);
    memcpy(apart + 3, dims.d + 2, (size_t)(dims.rank - 2) * sizeof *apart);
    for (int32_t i = 0; i <= dims.rank; i++)
        perm[i] = i == 1 ? 2 : i == 2 ? 1 : i;
    return rule_result(r, b_reshape(b, b_transpose(b, b_reshape(b, x, apart, dims.rank + 1), perm), dims.d, dims.rank));
}
