/* Elements chosen by index tensors, and written through them. */
#include "passes/legalize/aten.h"

#include <math.h>

bool rule_aten_embedding(struct rule *r)
{
    return rule_result(r, v_gather(r->b, rule_in(r, 0), rule_in(r, 1), 0));
}

bool rule_aten_index_select(struct rule *r)
{
    value_id x = rule_in(r, 0), at = rule_in(r, 2);
    int32_t axis;
    if (!x.i || !at.i || !aten_axis(r, 1, "dim", 0, v_rank(r->b, x), &axis))
        return false;
    if (v_rank(r->b, x) == 0)
        return rule_result(r, x);
    return rule_result(r, v_gather(r->b, x, v_rank(r->b, at) ? at : b_unsqueeze(r->b, at, 0), axis));
}

bool rule_aten_gather(struct rule *r)
{
    value_id x = rule_in(r, 0), at = rule_in(r, 2);
    int32_t axis;
    if (!x.i || !at.i || !aten_axis(r, 1, "dim", 0, v_rank(r->b, x), &axis))
        return false;
    return rule_result(r, v_rank(r->b, x) == 0 ? x : v_addressed(r->b, x, b_gather_elements(r->b, x, at, axis)));
}

/* gather of tensors that are broadcast to one another in the other dims; without a dim of all elements in a row. */
bool rule_aten_take_along(struct rule *r)
{
    struct builder *b = r->b;
    value_id in[2] = {rule_in(r, 0), rule_in(r, 1)};
    expr_id sizes[2][RANK_MAX], common[RANK_MAX];
    int32_t axis, rank[2];
    for (uint32_t k = 0; k < 2 && !aten_has(r, 2, "dim"); k++)
        in[k] = b_flat(b, in[k]);
    for (uint32_t k = 0; k < 2; k++) {
        const struct dims dims = b_dims(b, in[k]);
        if (!dims.d)
            return false;
        rank[k] = dims.rank;
        memcpy(sizes[k], dims.d, (size_t)dims.rank * sizeof *dims.d);
    }
    if (rank[0] != rank[1] || rank[0] == 0)
        return rule_bad(r, "the operands have ranks %d and %d, which have to be equal and 1 or more", (int)rank[0],
                        (int)rank[1]);
    if (!aten_axis(r, 2, "dim", 0, rank[0], &axis))
        return false;
    const expr_id along[2] = {sizes[0][axis], sizes[1][axis]};
    sizes[0][axis] = sizes[1][axis] = ex_const(b->x, 1);
    if (b_broadcast_dims(b, sizes[0], rank[0], sizes[1], rank[1], common) < 0)
        return false;
    for (uint32_t k = 0; k < 2; k++) {
        common[axis] = along[k];
        in[k] = b_broadcast(b, in[k], common, rank[0]);
    }
    return rule_result(r, v_addressed(b, in[0], b_gather_elements(b, in[0], in[1], axis)));
}

/* Index tensors of some dims of x, in the order of the dims. */
struct indices {
    value_id x; /* the indexed dims first */
    value_id at; /* i64 [common shape, number of them] */
    uint32_t n;
    int32_t first, rank_x, rank_at; /* the first indexed dim; rank_at: of the common shape */
    bool adjacent;
    int64_t perm[RANK_MAX];
    value_id mask; /* the only index, where it is one of booleans; then nothing else is set */
};

/* Dims of x that index tensors stand for: list[d], or {0}. A mask stands for as many dims as it has. */
static bool indices_list(struct rule *r, uint32_t arg, value_id x, value_id list[RANK_MAX], value_id *mask)
{
    uint32_t n, first = aten_list(r, arg, &n), given = 0;
    int32_t rank = v_rank(r->b, x), d = 0;
    *mask = (value_id){0};
    for (int32_t i = 0; i < RANK_MAX; i++)
        list[i] = (value_id){0};
    for (uint32_t i = 0; i < n; i++) {
        value_id v = rule_in(r, first + i);
        bool flags = v.i && v_elem(r->b, v) == ELEM_BOOL;
        int32_t taken = flags ? v_rank(r->b, v) : 1;
        if (d + taken > rank)
            return rule_bad(r, "there are more index tensors than the %d dimensions", (int)rank);
        given += v.i != 0;
        if (flags) {
            value_id places;
            if (d == 0)
                *mask = v;
            struct rule one = *r;
            struct lowered out = {0};
            one.out = &out;
            one.n_out = 1;
            if (!aten_as(&one, rule_nonzero, 13, 0, &v, 1, NULL, 0))
                return false;
            places = out.v;
            for (int32_t k = 0; k < taken; k++)
                list[d + k] = b_squeeze(r->b, b_slice_axis(r->b, places, 0, ex_const(r->b->x, k), ex_const(r->b->x, 1)),
                                        0);
        } else {
            list[d] = v.i ? b_convert(r->b, v, ELEM_I64) : v;
        }
        d += taken;
    }
    if (given != 1)
        *mask = (value_id){0};
    return given > 0 || rule_bad(r, "there are no index tensors");
}

static bool indices_read(struct rule *r, struct indices *o)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0), list[RANK_MAX], parts[RANK_MAX];
    expr_id common[RANK_MAX];
    int32_t rank = v_rank(b, x), last = -1, k = 0;
    *o = (struct indices){.first = -1, .rank_x = rank, .adjacent = true};
    if (!x.i || !indices_list(r, 1, x, list, &o->mask))
        return false;
    for (int32_t d = 0; d < rank; d++) {
        if (!list[d].i)
            continue;
        const struct dims dims = b_dims(b, list[d]);
        if (!dims.d)
            return false;
        o->adjacent &= o->first < 0 || last == d - 1;
        o->first = o->first < 0 ? d : o->first;
        last = d;
        o->rank_at = b_broadcast_dims(b, common, o->rank_at, dims.d, dims.rank, common);
        if (o->rank_at < 0)
            return false;
        o->perm[k++] = d;
    }
    o->n = (uint32_t)k;
    for (int32_t d = 0; d < rank; d++)
        if (!list[d].i)
            o->perm[k++] = d;
    for (uint32_t i = 0; i < o->n; i++)
        parts[i] = b_unsqueeze(b, b_broadcast(b, list[o->perm[i]], common, o->rank_at), o->rank_at);
    o->at = b_concat(b, parts, o->n, o->rank_at);
    o->x = b_transpose(b, x, o->perm);
    return o->x.i && o->at.i;
}

/* The common shape stands where the indexed dims stood, if they were neighbours; else in front. */
static void result_perm(const struct indices *o, int64_t perm[RANK_MAX])
{
    int32_t rank = o->rank_at + o->rank_x - (int32_t)o->n, before = o->adjacent ? o->first : 0;
    for (int32_t i = 0; i < rank; i++)
        perm[i] = i < before ? o->rank_at + i : i < before + o->rank_at ? i - before : i;
}

bool rule_aten_index(struct rule *r)
{
    struct indices o;
    int64_t perm[RANK_MAX];
    struct attr batch = attr_int("batch", 0);
    if (!indices_read(r, &o))
        return false;
    if (o.rank_at + o.rank_x > RANK_MAX)
        return rule_refuse(r, "the result has more than %d dimensions", RANK_MAX);
    if (o.n == 1) {
        int32_t axis = (int32_t)o.perm[0];
        return rule_result(r, v_gather(r->b, rule_in(r, 0), b_squeeze(r->b, o.at, o.rank_at), axis));
    }
    const value_id in[2] = {o.x, o.at};
    result_perm(&o, perm);
    value_id y = v_addressed(r->b, o.x, b_op(r->b, OP_GATHER_ND, in, 2, &batch, 1));
    return rule_result(r, b_transpose(r->b, y, perm));
}

/* A mask and one value: a choice at each element. */
static value_id masked_put(struct rule *r, value_id x, value_id mask, value_id value)
{
    struct builder *b = r->b;
    expr_id dims[RANK_MAX];
    int32_t rank = v_rank(b, x);
    const struct dims have = b_dims(b, mask);
    if (!have.d)
        return (value_id){0};
    for (int32_t i = 0; i < rank; i++)
        dims[i] = i < have.rank ? have.d[i] : ex_const(b->x, 1);
    return b_select(b, b_reshape(b, mask, dims, rank), value, x);
}

bool rule_aten_index_put(struct rule *r)
{
    struct builder *b = r->b;
    struct indices o;
    value_id x = rule_in(r, 0), value = b_convert(b, rule_in(r, 2), v_elem(b, x));
    int64_t perm[RANK_MAX], back[RANK_MAX], inverse[RANK_MAX];
    int64_t count = 0;
    expr_id dims[RANK_MAX], placed[RANK_MAX];
    if (!value.i || !indices_read(r, &o))
        return false;
    bool one = ex_is_const(b->x, b_count(b, value), &count) && count == 1, add = aten_flag(r, "accumulate");
    if (o.mask.i && one && !add)
        return rule_result(r, masked_put(r, x, o.mask, v_scalar(b, value)));
    int32_t rank = o.rank_at + o.rank_x - (int32_t)o.n;
    if (rank > RANK_MAX)
        return rule_refuse(r, "the result has more than %d dimensions", RANK_MAX);
    const struct dims dims_x = b_dims(b, o.x), dims_at = b_dims(b, o.at);
    if (!dims_x.d || !dims_at.d)
        return false;
    for (int32_t i = 0; i < rank; i++)
        dims[i] = i < o.rank_at ? dims_at.d[i] : dims_x.d[(int32_t)o.n + i - o.rank_at];
    result_perm(&o, perm);
    for (int32_t i = 0; i < rank; i++) {
        placed[i] = dims[perm[i]];
        inverse[perm[i]] = i;
    }
    value = b_transpose(b, b_broadcast(b, value, placed, rank), inverse);
    value_id y = b_scatter_nd(b, o.x, o.at, value, add ? "sum" : "set");
    for (int32_t i = 0; i < o.rank_x; i++)
        back[o.perm[i]] = i;
    return rule_result(r, b_transpose(b, y, back));
}

/* ---- scatters along one dim ------------------------------------------------------------------------------------- */

static const char *monoid_of(const char *reduce)
{
    static const struct monoid {
        const char *torch, *core;
    } names[] = {{"sum", "sum"},       {"add", "sum"},  {"prod", "prod"},
                 {"multiply", "prod"}, {"amax", "max"}, {"amin", "min"}};
    const struct monoid *row = ROW_NAMED(names, COUNT_OF(names), reduce);
    return row ? row->core : NULL;
}

/* What a reduction begins with, as rank 0. */
static value_id monoid_none(struct builder *b, enum elem e, const char *monoid)
{
    const expr_id none = ex_const(b->x, 0);
    return b_reduce(b, b_splat_f64(b, e, 0, &none, 1), ARRAY(int64_t, 0), monoid, false);
}

/* Sums divided by how many elements they have, with own ones or without. */
static value_id scattered_mean(struct builder *b, value_id x, value_id at, value_id sum, int32_t axis, bool own)
{
    const struct dims dims = b_dims(b, at);
    if (!dims.d)
        return (value_id){0};
    value_id ones = b_splat_f64(b, ELEM_I64, 1, dims.d, dims.rank);
    value_id begin = b_convert(b, b_splat_like(b, x, own), ELEM_I64);
    value_id count = b_scatter_elements(b, begin, at, ones, axis, "sum");
    count = b_convert(b, b_binary_f64(b, OP_MAX, count, 1), v_elem(b, x));
    if (v_is_float(b, x))
        return b_binary(b, OP_DIV, sum, count);
    value_id rest = b_binary(b, OP_MOD, sum, count); /* integers are rounded down */
    return b_binary(b, OP_DIV, b_binary(b, OP_SUB, sum, rest), count);
}

/* param: 0 scatter, 1 scatter_add, 2 scatter_reduce and scatter with `reduce` */
bool rule_aten_scatter(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0), at = rule_in(r, 2), src;
    bool mean = r->param == 2 && rule_str_is(r, "reduce", "", "mean"), own = rule_int(r, "include_self", 1) != 0;
    const char *monoid = r->param == 0 ? "set" : r->param == 1 || mean ? "sum" : monoid_of(rule_str(r, "reduce", ""));
    int32_t axis;
    const struct dims dims = b_dims(b, at);
    if (!x.i || !dims.d || !aten_axis(r, 1, "dim", 0, v_rank(b, x), &axis))
        return false;
    if (!monoid)
        return rule_bad(r, "reduce is '%.40s', which is not a reduction", rule_str(r, "reduce", ""));
    if (v_elem(b, x) == ELEM_BOOL && r->param)
        return rule_refuse(r, "the operand is of truth values: convert it to integers before");
    if (rule_has(r, 3) && v_rank(b, rule_in(r, 3)) == dims.rank && dims.rank) {
        expr_id starts[RANK_MAX];
        int64_t steps[RANK_MAX];
        for (int32_t i = 0; i < dims.rank; i++) {
            starts[i] = ex_const(b->x, 0);
            steps[i] = 1;
        }
        src = b_slice(b, b_convert(b, rule_in(r, 3), v_elem(b, x)), starts, dims.d, steps);
    } else {
        src = aten_operand(r, 3, rule_has(r, 3) ? "src" : "value", v_elem(b, x));
        src = b_broadcast_like(b, v_scalar(b, src), at);
    }
    if (!own)
        x = b_scatter_elements(b, x, at, b_broadcast_like(b, monoid_none(b, v_elem(b, x), monoid), at), axis, "set");
    value_id y = b_scatter_elements(b, x, at, src, axis, monoid);
    return rule_result(r, mean ? scattered_mean(b, x, at, y, axis, own) : y);
}

/* Slices along a dim overwritten or added to; param: 0 index_copy, 1 index_add, 2 index_fill */
bool rule_aten_index_write(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0), at = rule_in(r, 2), src;
    int32_t axis;
    const struct dims dims = b_dims(b, x);
    expr_id sizes[RANK_MAX];
    if (!dims.d || !at.i || !aten_axis(r, 1, "dim", 0, dims.rank, &axis))
        return false;
    memcpy(sizes, dims.d, (size_t)dims.rank * sizeof *sizes);
    sizes[axis] = b_count(b, at);
    src = aten_operand(r, 3, r->param == 2 ? "value" : "source", v_elem(b, x));
    if (r->param == 1 && aten_float(r, "alpha", 1) != 1)
        src = b_binary_f64(b, OP_MUL, src, aten_float(r, "alpha", 1));
    if (r->param == 2)
        src = v_scalar(b, src);
    at = b_broadcast(b, v_along(b, at, axis, dims.rank), sizes, dims.rank);
    src = b_broadcast(b, src, sizes, dims.rank);
    return rule_result(r, b_scatter_elements(b, x, at, src, axis, r->param == 1 ? "sum" : "set"));
}

bool rule_aten_nonzero(struct rule *r)
{
    static const int64_t perm[] = {1, 0};
    value_id x = rule_in(r, 0);
    return aten_as(r, rule_nonzero, 13, 0, &x, 1, NULL, 0) && rule_result(r, b_transpose(r->b, r->out[0].v, perm));
}

bool rule_aten_one_hot(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0);
    const struct dims dims = b_dims(b, x);
    expr_id classes = aten_int(r, 1, "num_classes", -1), whole[RANK_MAX];
    if (!dims.d || !classes.i)
        return false;
    if (ex_lo(b->x, classes) < 1 || dims.rank + 1 > RANK_MAX)
        return rule_refuse(r, "num_classes of -1 asks the data for the number of classes: state it when you export");
    memcpy(whole, dims.d, (size_t)dims.rank * sizeof *whole);
    whole[dims.rank] = classes;
    value_id hit = b_binary(b, OP_EQ, v_iota(b, ELEM_I64, whole, dims.rank + 1, dims.rank),
                            b_unsqueeze(b, b_convert(b, x, ELEM_I64), dims.rank));
    return rule_result(r, b_convert(b, hit, ELEM_I64));
}

/* ---- masks ----------------------------------------------------------------------------------------------------- */

/* Both in one row, of the shape that they broadcast to; *dims: that shape. */
static bool flattened(struct rule *r, value_id *x, value_id *mask, const expr_id **dims, int32_t *rank)
{
    struct builder *b = r->b;
    expr_id *common = NEW_ARRAY(&b->g->arena, expr_id, RANK_MAX);
    const struct dims dims_x = b_dims(b, *x), dims_mask = b_dims(b, *mask);
    *rank = dims_x.d && dims_mask.d ? b_broadcast_dims(b, dims_x.d, dims_x.rank, dims_mask.d, dims_mask.rank, common)
                                    : -1;
    if (*rank < 0)
        return false;
    *dims = common;
    *x = b_broadcast(b, *x, common, *rank);
    *mask = b_broadcast(b, *mask, common, *rank);
    expr_id count = b_count(b, *x);
    *x = b_reshape(b, *x, &count, 1);
    *mask = b_reshape(b, *mask, &count, 1);
    return x->i && mask->i;
}

/* Where the mask is set, the elements of the source in their order. */
bool rule_aten_masked_scatter(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0), mask = rule_in(r, 1), source = rule_in(r, 2);
    const expr_id *dims;
    int32_t rank;
    if (!x.i || !mask.i || !source.i || !flattened(r, &x, &mask, &dims, &rank))
        return false;
    expr_id n = b_count(b, source);
    if (ex_is(b->x, n, 0))
        return rule_refuse(r, "the source is empty");
    value_id at = b_cumulate(b, b_convert(b, mask, ELEM_I64), 0, "sum", true, false);
    at = b_select(b, mask, at, b_scalar_i64(b, ELEM_I64, 0));
    value_id y = b_select(b, mask, v_gather(b, b_reshape(b, source, &n, 1), at, 0), x);
    return rule_result(r, b_reshape(b, y, dims, rank));
}

bool rule_aten_masked_select(struct rule *r)
{
    value_id x = rule_in(r, 0), mask = rule_in(r, 1);
    const expr_id *dims;
    int32_t rank;
    return x.i && mask.i && flattened(r, &x, &mask, &dims, &rank) &&
           aten_as(r, rule_nonzero, 13, 0, &mask, 1, NULL, 0) &&
           rule_result(r, b_gather(r->b, x, b_squeeze(r->b, r->out[0].v, 0), 0));
}

/* ---- bags ------------------------------------------------------------------------------------------------------ */

enum bag_mode { BAG_SUM, BAG_MEAN, BAG_MAX };

struct bags {
    value_id rows, bag; /* the weights of each index, and the number of the bag that it is in [indices, 1] */
    value_id kept; /* bool [indices, 1]: not the padding's; {0}: there is none */
    expr_id n; /* offsets */
    bool end; /* the last offset begins no bag: what lies after it is in none */
};

/* The first bag begins at the first index. */
static bool bags_begin(struct builder *b, value_id offsets, expr_id n)
{
    const expr_id one = ex_min(b->x, n, ex_const(b->x, 1)), none = ex_const(b->x, 0);
    value_id first = b_reduce(b, b_slice_axis(b, offsets, 0, none, one), ARRAY(int64_t, 0), "sum", false);
    expr_id begin = b_elem(b, first, -(int64_t)INT32_MAX, INT32_MAX);
    if (begin.i)
        b_assert(b, ex_eq(b->x, begin, none), EVAL_SHAPE, "offsets[0] is not 0");
    return begin.i != 0;
}

/* An index is in the last bag that begins at or before it. */
static bool bags_read(struct rule *r, struct bags *o)
{
    static const int64_t first[] = {0};
    struct builder *b = r->b;
    value_id w = v_widen(b, rule_in(r, 0)), at = rule_in(r, 1), offsets = b_convert(b, rule_in(r, 2), ELEM_I64);
    if (!w.i || !at.i || !offsets.i)
        return false;
    if (v_rank(b, w) != 2 || v_rank(b, at) != 1 || v_rank(b, offsets) != 1)
        return rule_refuse(r, "weights, indices and offsets have ranks %d, %d and %d; 2, 1 and 1 are supported",
                           (int)v_rank(b, w), (int)v_rank(b, at), (int)v_rank(b, offsets));
    o->n = b_dim(b, offsets, 0);
    o->end = aten_flag(r, "include_last_offset");
    if (o->end)
        b_assert(b, ex_lt(b->x, ex_const(b->x, 0), o->n), EVAL_SHAPE, "there is no last offset");
    if (!bags_begin(b, offsets, o->n))
        return false;
    const expr_id grid[2] = {o->n, b_count(b, at)};
    value_id after = b_binary(b, OP_LE, b_unsqueeze(b, offsets, 1), v_iota(b, ELEM_I64, grid, 2, 1));
    value_id bag = b_reduce(b, b_convert(b, after, ELEM_I64), first, 1, "sum", false);
    o->bag = b_unsqueeze(b, b_binary_f64(b, OP_SUB, bag, 1), 1);
    o->rows = v_gather(b, w, at, 0);
    if (rule_has(r, 6))
        o->rows = b_binary(b, OP_MUL, o->rows, b_unsqueeze(b, b_convert(b, rule_in(r, 6), v_elem(b, w)), 1));
    int64_t padding = rule_int(r, "padding_idx", -1);
    if (padding < 0 && strcmp(r->op, "embedding_bag.padding_idx") == 0 && node_attr(r->node, "padding_idx"))
        return rule_refuse(r, "padding_idx is below 0: count it from 0");
    if (padding >= 0)
        o->kept = b_unsqueeze(b, b_binary(b, OP_NE, at, b_splat_like(b, at, (double)padding)), 1);
    return o->rows.i && o->bag.i;
}

/* Rows of each bag as one. */
static value_id bags_joined(struct builder *b, const struct bags *o, value_id rows, double none, const char *monoid)
{
    if (o->kept.i)
        rows = b_select(b, o->kept, rows, b_splat_like(b, rows, none));
    const expr_id whole[2] = {o->n, b_dim(b, rows, 1)};
    value_id y = b_scatter_nd(b, b_splat_f64(b, v_elem(b, rows), none, whole, 2), o->bag, rows, monoid);
    return o->end ? b_slice_axis(b, y, 0, ex_const(b->x, 0), ex_addc(b->x, o->n, -1)) : y;
}

/* The sums, means or largest elements of rows of weights. The other results serve the gradient. */
bool rule_aten_embedding_bag(struct rule *r)
{
    struct builder *b = r->b;
    struct bags o = {.kept = {0}};
    int64_t mode = rule_int(r, "mode", 0);
    if (mode < BAG_SUM || mode > BAG_MAX || (mode != BAG_SUM && rule_has(r, 6)))
        return rule_bad(r, "there is no mode %lld%s", (long long)mode, rule_has(r, 6) ? " of weighted rows" : "");
    if (!bags_read(r, &o))
        return false;
    value_id y = bags_joined(b, &o, o.rows, mode == BAG_MAX ? -INFINITY : 0, mode == BAG_MAX ? "max" : "sum");
    const expr_id ones[2] = {b_dim(b, o.rows, 0), ex_const(b->x, 1)};
    value_id counts = bags_joined(b, &o, b_splat_f64(b, v_elem(b, o.rows), 1, ones, 2), 0, "sum");
    if (mode == BAG_MEAN)
        y = b_binary(b, OP_DIV, y, b_binary_f64(b, OP_MAX, counts, 1));
    if (mode == BAG_MAX)
        y = b_select(b, b_binary(b, OP_EQ, counts, b_splat_like(b, counts, 0)), b_splat_like(b, y, 0), y);
    for (uint32_t k = 1; k < r->n_out; k++)
        aten_empty_out(r, k);
    return aten_result(r, y);
}
