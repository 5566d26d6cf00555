/* Squeeze, Unsqueeze: dims of size 1 go and come.
 *
 * Axes are attributes in old versions, operands in new ones. Run-time axes become selections over the possible ones
 * (rule_axis_mask). Where even their number is the run's, the node is walked for each (choose.c).
 */
#include "passes/legalize/control.h"

/* Axes as attribute or operand 1; *known false: operand with run-time elements, and at most `most` where the run says
 * how many. */
static bool axes_read(struct rule *r, uint32_t most, const int64_t **axes, uint32_t *n, bool *given, bool *known)
{
    *known = true;
    if (node_attr(r->node, "axes")) {
        *axes = rule_ints(r, "axes", n);
        *given = true;
        return true;
    }
    *given = rule_has(r, 1);
    *n = 0;
    if (!*given)
        return true;
    value_id v = rule_in(r, 1);
    int64_t value;
    if (!rule_count(r, 1, "axes", 0, most, n))
        return false;
    for (uint32_t k = 0; k < *n && *known; k++)
        *known = v_known_i64(r->b, v, k, &value);
    return *n == 0 || !*known || rule_static_ints(r, axes, n);
}

static bool squeeze_dynamic(struct rule *r, value_id x, const expr_id *dims, int32_t rank, uint32_t n)
{
    struct exprs *ex = r->b->x;
    expr_id mask[RANK_MAX], out[RANK_MAX], one = ex_const(ex, 1);
    if (n > (uint32_t)rank)
        return rule_bad(r, "%u axes for rank %d", n, (int)rank);
    if (!rule_axis_mask(r, v_exactly(r->b, rule_in(r, 1), n), rank, mask, &n))
        return false;
    for (int32_t d = 0; d < rank; d++)
        b_assert(r->b, ex_or(ex, ex_not(ex, mask[d]), ex_eq(ex, dims[d], one)), -2, "squeezed dimension is not 1");
    rule_dims_kept(r, dims, mask, rank, rank - (int32_t)n, out);
    return rule_result(r, b_reshape(r->b, x, out, rank - (int32_t)n));
}

/* Without axes every dim of size 1 goes. The number of those that only the run can tell, which open[] marks. */
static uint32_t squeeze_all(struct rule *r, const expr_id *dims, int32_t rank, bool marked[RANK_MAX],
                            bool open[RANK_MAX])
{
    uint32_t n_open = 0;
    for (int32_t i = 0; i < rank; i++) {
        enum truth t = ex_cmp_eq(r->b->x, dims[i], ex_const(r->b->x, 1));
        if (t == UNKNOWN_)
            t = fact_find(r->lg, ex_eq(r->b->x, dims[i], ex_const(r->b->x, 1)));
        marked[i] = t == TRUE_;
        open[i] = t == UNKNOWN_;
        n_open += open[i];
    }
    return n_open;
}

/* x without the marked dims. */
struct squeezed {
    value_id x;
    bool marked[RANK_MAX];
};

static value_id squeeze_marked(struct builder *b, const struct squeezed *s)
{
    int32_t kept = 0;
    const struct dims dims = b_dims(b, s->x);
    expr_id out[RANK_MAX];
    for (int32_t i = 0; dims.d && i < dims.rank; i++)
        if (!s->marked[i])
            out[kept++] = dims.d[i];
    return dims.d ? b_reshape(b, s->x, out, kept) : (value_id){0};
}

static bool squeeze_way(struct rule *r, const void *data, struct lowered *results, uint32_t n)
{
    results[0] = lowered_value(squeeze_marked(r->b, data));
    return n == 1 && results[0].v.i;
}

/* Whether a dim is 1, and so the rank of the result, is for the run to say. */
static bool squeeze_either(struct rule *r, const struct squeezed *s, const expr_id *dims, int32_t open)
{
    struct squeezed less = *s;
    less.marked[open] = true;
    struct ways ways = {.cond = ex_eq(r->b->x, dims[open], ex_const(r->b->x, 1)),
                        .walk = squeeze_way,
                        .data = {&less, s},
                        .name = {arena_printf(&r->b->g->arena, "dim %d = 1", (int)open),
                                 arena_printf(&r->b->g->arena, "dim %d other than 1", (int)open)}};
    ways.cond_value = v_expr(r->b, ELEM_BOOL, ways.cond);
    return ways.cond_value.i && rule_either(r, &ways);
}

/* Several dims may be 1: the run chooses among the numbers of those that are, so n open dims have n + 1 ways and not
 * 2^n. */
static bool squeeze_several(struct rule *r, struct squeezed *s, const expr_id *dims, int32_t rank, const bool *open)
{
    expr_id is_one[RANK_MAX], out[RANK_MAX], ones = ex_const(r->b->x, 0);
    int64_t n;
    for (int32_t i = 0; i < rank; i++) {
        is_one[i] = open[i] ? ex_eq(r->b->x, dims[i], ex_const(r->b->x, 1)) : ex_const(r->b->x, s->marked[i]);
        ones = ex_add(r->b->x, ones, is_one[i]);
    }
    const int64_t least = ex_lo(r->b->x, ones), most = ex_hi(r->b->x, ones);
    if (!rule_choose(r, ones, 0, rank, "dims of size 1", &n))
        return false;
    for (int32_t i = 0; i < rank; i++)
        s->marked[i] |= n == most && open[i];
    if (n == least || n == most)
        return rule_result(r, squeeze_marked(r->b, s));
    rule_dims_kept(r, dims, is_one, rank, rank - (int32_t)n, out);
    return rule_result(r, b_reshape(r->b, s->x, out, rank - (int32_t)n));
}

bool rule_squeeze(struct rule *r)
{
    struct squeezed s = {.x = rule_in(r, 0)};
    int32_t first = 0;
    const struct dims dims = b_dims(r->b, s.x);
    const int64_t *axes = NULL;
    uint32_t n;
    bool given, known, open[RANK_MAX];
    expr_id one = ex_const(r->b->x, 1);
    if (!dims.d || !axes_read(r, (uint32_t)dims.rank, &axes, &n, &given, &known))
        return false;
    if (!known)
        return squeeze_dynamic(r, s.x, dims.d, dims.rank, n);
    if (given && !rule_axes_marked(r, axes, n, dims.rank, s.marked))
        return false;
    uint32_t n_open = given ? 0 : squeeze_all(r, dims.d, dims.rank, s.marked, open);
    if (n_open > 1)
        return squeeze_several(r, &s, dims.d, dims.rank, open);
    while (n_open && !open[first])
        first++;
    if (n_open)
        return squeeze_either(r, &s, dims.d, first);
    for (int32_t i = 0; i < dims.rank; i++) {
        enum truth t = s.marked[i] ? ex_cmp_eq(r->b->x, dims.d[i], one) : TRUE_;
        if (t == FALSE_)
            return rule_bad(r, "squeezed dimension %d is not 1", (int)i);
        if (t == UNKNOWN_)
            b_assert(r->b, ex_eq(r->b->x, dims.d[i], one), -2, "squeezed dimension %d is not 1", (int)i);
    }
    return rule_result(r, squeeze_marked(r->b, &s));
}

static bool unsqueeze_dynamic(struct rule *r, value_id x, const expr_id *dims, int32_t rank, uint32_t n)
{
    expr_id mask[RANK_MAX], out[RANK_MAX];
    int32_t total = rank + (int32_t)n;
    if (!rule_axis_mask(r, v_exactly(r->b, rule_in(r, 1), n), total, mask, &n))
        return false;
    rule_dims_spread(r, dims, rank, mask, total, out);
    return rule_result(r, b_reshape(r->b, x, out, total));
}

bool rule_unsqueeze(struct rule *r)
{
    value_id x = rule_in(r, 0);
    int32_t from = 0;
    const struct dims dims = b_dims(r->b, x);
    const int64_t *axes = NULL;
    uint32_t n;
    bool given, known, marked[RANK_MAX];
    expr_id out[RANK_MAX];
    if (!dims.d || !axes_read(r, open_rank(dims.rank) - (uint32_t)dims.rank, &axes, &n, &given, &known))
        return false;
    if (!given)
        return rule_bad(r, "axes are missing");
    int64_t total = (int64_t)dims.rank + n;
    if (total > RANK_MAX)
        return rule_bad(r, "rank %lld is above %d", (long long)total, RANK_MAX);
    if (!known)
        return unsqueeze_dynamic(r, x, dims.d, dims.rank, n);
    if (!rule_axes_marked(r, axes, n, (int32_t)total, marked))
        return false;
    for (int32_t i = 0; i < total; i++)
        out[i] = marked[i] ? ex_const(r->b->x, 1) : dims.d[from++];
    return rule_result(r, b_reshape(r->b, x, out, (int32_t)total));
}
