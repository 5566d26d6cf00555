/* How loops are made, whatever their source (loop_rules.c).
 *
 * A loop whose trip count and condition are known unrolls while it stays under the limit; its sequences then are
 * lists. Else it becomes the core loop (loop_core.c).
 *
 * A carried value may begin as a placeholder of another type than the body gives. Then the first iteration is peeled:
 * it stands before the loop, which goes on with what that iteration gives. If it is known only at run time whether
 * there is an iteration, the loop is one of two branches, and the other one gives the initial values.
 */
#include "passes/legalize/driver.h"
#include "passes/legalize/control/loop.h"

/* The steps of a layer are alike and depend on one another: more than these stay a loop, which becomes one kernel. */
enum { COUNTED_UNROLLED = 2 };

/* ---- unrolling --------------------------------------------------------------------------------------------------- */

static value_id stack(struct rule *r, const struct lowered *items, uint32_t n)
{
    value_id *v = NEW_ARRAY(&r->b->g->arena, value_id, n);
    for (uint32_t i = 0; i < n; i++) {
        v[i] = lowered_force(r->b, items[i]);
        if (v[i].i && value_type(r->b->g, v[i])->kind != TYPE_TENSOR)
            return rule_bad(r, "a scan output is not a tensor"), (value_id){0};
        v[i] = v[i].i ? b_unsqueeze(r->b, v[i], 0) : v[i];
    }
    return b_concat(r->b, v, n, 0);
}

/* No rows at all, of elements like v; what only region inner knows of their dims counts as 0. */
static value_id no_rows(struct builder *b, region_id inner, value_id v)
{
    const struct dims dims = b_dims(b, v);
    expr_id out[RANK_MAX];
    if (!dims.d || dims.rank + 1 > RANK_MAX)
        return (value_id){0};
    out[0] = ex_const(b->x, 0);
    for (int32_t d = 0; d < dims.rank; d++)
        out[d + 1] = inner.i && dim_escapes(b->g, inner, dims.d[d], 16) ? ex_const(b->x, 0) : dims.d[d];
    return b_splat_f64(b, v_elem(b, v), 0, out, dims.rank + 1);
}

/* No trip at all: the body is walked for the types of its scan outputs only. */
static bool loop_empty(struct rule *r, struct loop_lowering *l)
{
    struct builder *b = r->b;
    struct lowered *next = NEW_ARRAY(&b->g->arena, struct lowered, l->n_carried + l->n_scan + 1), cond;
    const struct lowered *rows = l->first;
    struct nest nest = {0};
    if (!l->n_scan)
        return true;
    if (!rows) {
        nest_begin(b, &nest); /* dropped afterwards: belongs to no node */
        bool ok = l->body(r, l, lowered_value(b_scalar_i64(b, ELEM_I64, 0)),
                          lowered_value(b_scalar_i64(b, ELEM_BOOL, 1)), l->carried, &cond, next, next + l->n_carried);
        nest_end(b, &nest);
        rows = ok ? next + l->n_carried : NULL;
    }
    for (uint32_t i = 0; rows && i < l->n_scan; i++) {
        l->scan[i] = lowered_value(no_rows(b, nest.inner, rows[i].v));
        if (l->scan[i].kind == LOWERED_POISON)
            return false;
    }
    return rows != NULL;
}

enum unrolled { UNROLLED, NOT_UNROLLED, UNROLL_FAILED };

/* NOT_UNROLLED when the condition turns out to be unknown or the limit is reached. */
static enum unrolled loop_unroll(struct rule *r, struct loop_lowering *l, int64_t trips)
{
    struct builder *b = r->b;
    uint32_t width = l->n_carried + l->n_scan + 1, start = b->g->nodes.n;
    int64_t limit = legalize_unroll_limit(r);
    struct lowered *now = NEW_ARRAY(&b->g->arena, struct lowered, width),
                   cond = lowered_value(b_scalar_i64(b, ELEM_BOOL, 1));
    VEC(struct lowered) scans = {0};
    int64_t i = 0;
    memcpy(now, l->carried, l->n_carried * sizeof *now);
    for (bool go = true; go && i < trips; i++) {
        struct lowered *next = NEW_ARRAY(&b->g->arena, struct lowered, width);
        if (!l->body(r, l, lowered_value(b_scalar_i64(b, ELEM_I64, i)), cond, now, &cond, next, next + l->n_carried))
            return UNROLL_FAILED;
        value_id more = v_scalar(b, lowered_force(b, cond));
        if (!more.i)
            return UNROLL_FAILED;
        enum truth t = value_truth(b, more);
        if (t == UNKNOWN_)
            return NOT_UNROLLED;
        go = t == TRUE_;
        memcpy(now, next, l->n_carried * sizeof *now);
        for (uint32_t k = 0; k < l->n_scan; k++)
            VEC_PUSH(&b->g->arena, &scans, next[l->n_carried + k]);
        int64_t cost = b->g->nodes.n - start, done = i + 1;
        if (go &&
            (cost > limit || done > limit || (trips != INT64_MAX && cost / done > limit / (trips > 0 ? trips : 1))))
            return NOT_UNROLLED;
    }
    struct lowered *column = NEW_ARRAY(&b->g->arena, struct lowered, i + 1);
    for (uint32_t k = 0; k < l->n_scan; k++) {
        for (int64_t t = 0; t < i; t++)
            column[t] = scans.data[t * l->n_scan + k];
        l->scan[k] = lowered_value(stack(r, column, (uint32_t)i));
    }
    memcpy(l->carried, now, l->n_carried * sizeof *now);
    return UNROLLED;
}

/* ---- the first iteration, before the loop ------------------------------------------------------------------------ */

/* Collected elements of the first iteration and of those after it, as one. */
static value_id rows_join(struct rule *r, struct lowered first, struct lowered rest)
{
    struct builder *b = r->b;
    value_id rows[2] = {stack(r, &first, 1), rest.v};
    bool alone = rows[0].i && rows[1].i && ex_is(b->x, b_dim(b, rows[1], 0), 0);
    return alone ? rows[0] : b_concat(b, rows, 2, 0);
}

/* At least one iteration: the first in place, the others as a loop of their own. */
static bool loop_peel(struct rule *r, struct loop_lowering *l)
{
    struct builder *b = r->b;
    struct loop_lowering rest = *l;
    struct lowered cond, *next = NEW_ARRAY(&b->g->arena, struct lowered, l->n_carried + l->n_scan + 1);
    if (!l->body(r, l, lowered_value(b_scalar_i64(b, ELEM_I64, l->peeled)),
                 lowered_value(b_scalar_i64(b, ELEM_BOOL, 1)), l->carried, &cond, next, next + l->n_carried))
        return false;
    rest.carried = next;
    rest.first = next + l->n_carried;
    rest.scan = NEW_ARRAY(&b->g->arena, struct lowered, l->n_scan + 1);
    rest.peeled++;
    if (l->trips_value.i)
        rest.trips_value = b_binary(b, OP_SUB, l->trips_value, b_scalar_i64(b, ELEM_I64, 1));
    if (l->trips.i)
        rest.trips = ex_max(b->x, ex_addc(b->x, l->trips, -1), ex_const(b->x, 0));
    rest.cond = v_scalar(b, lowered_force(b, cond));
    if (!rest.cond.i || (l->trips_value.i && !rest.trips_value.i) || !loop_build(r, &rest))
        return false;
    memcpy(l->carried, rest.carried, l->n_carried * sizeof *l->carried);
    for (uint32_t i = 0; i < l->n_scan; i++)
        l->scan[i] = lowered_value(rows_join(r, rest.first[i], rest.scan[i]));
    return true;
}

/* after: kinds of the carried values after the loop, once the way with iterations was walked. */
struct loop_way {
    const struct loop_lowering *l;
    bool starts;
    enum type_kind *after;
};

static enum type_kind lowered_kind_of(const struct graph *g, struct lowered v)
{
    return v.kind == LOWERED_LIST       ? TYPE_SEQUENCE
           : v.kind == LOWERED_OPTIONAL ? TYPE_OPTIONAL
                                        : value_type(g, v.v)->kind;
}

/* Without an iteration: an optional where others give what it holds must hold it. */
static bool contents_take(struct rule *r, struct loop_lowering *l, const enum type_kind *after)
{
    for (uint32_t i = 0; i < l->n_carried; i++) {
        struct lowered *v = &l->carried[i];
        if (after[i] == TYPE_UNKNOWN || after[i] == TYPE_OPTIONAL || lowered_kind_of(r->b->g, *v) != TYPE_OPTIONAL)
            continue;
        *v = lowered_value(optional_content(r, v->v)); /* loop_core has made a value of it */
        if (v->kind == LOWERED_POISON)
            return false;
    }
    return true;
}

static bool loop_way(struct rule *r, const void *data, struct lowered *results, uint32_t n)
{
    const struct loop_way *way = data;
    struct rule inner = *r;
    struct loop_lowering l = *way->l;
    l.finish = NULL; /* one fork for one loop */
    l.carried = arena_copy(&r->b->g->arena, l.carried, (l.n_carried + 1) * sizeof *l.carried);
    l.scan = NEW_ARRAY(&r->b->g->arena, struct lowered, l.n_scan + 1);
    inner.out = results;
    inner.n_out = n;
    if (way->starts ? !loop_peel(r, &l) : !loop_empty(r, &l) || !contents_take(r, &l, way->after))
        return false;
    for (uint32_t i = 0; i < l.n_carried && way->starts; i++)
        way->after[i] = lowered_kind_of(r->b->g, l.carried[i]);
    return way->l->finish(&inner, &l);
}

static bool loop_roll(struct rule *r, struct loop_lowering *l)
{
    uint32_t which;
    enum core built = loop_core(r, l, &which);
    if (built != UNSETTLED)
        return built == BUILT;
    if (l->peeled > l->n_carried)
        return rule_refuse(r, "carried value %u changes its type or rank from iteration to iteration", which + 1);
    expr_id starts;
    enum truth known = loop_starts(r, l, &starts);
    if (known != UNKNOWN_)
        return known == TRUE_ ? loop_peel(r, l) : loop_empty(r, l);
    if (!starts.i)
        return false;
    if (!l->finish)
        return rule_refuse(
            r,
            "carried value %u has its final type or rank only after more than one iteration, and the number of "
            "iterations is dynamic",
            which + 1);
    enum type_kind *after = NEW_ARRAY(&r->b->g->arena, enum type_kind, l->n_carried + 1);
    const struct loop_way way[2] = {{l, true, after}, {l, false, after}};
    const struct ways ways = {.cond_value = v_expr(r->b, ELEM_BOOL, starts),
                              .cond = starts,
                              .walk = loop_way,
                              .data = {&way[0], &way[1]},
                              .name = {"the case of some iterations", "the case of no iteration"}};
    l->forked = true;
    return ways.cond_value.i && rule_either(r, &ways);
}

/* ---- what it becomes --------------------------------------------------------------------------------------------- */

/* Loops in loops: each is walked to see whether it unrolls, and again where it does not. What was found out of an inner
 * one in the first of these walks counts in the second, or the walks would double with each level. */
static struct rolled *rolled_of(struct rule *r)
{
    struct legalizer *lg = r->lg;
    while (lg->rolled.n <= r->node->src.i)
        VEC_PUSH(lg->arena, &lg->rolled, (struct rolled){0});
    return &lg->rolled.data[r->node->src.i];
}

static bool was_rolled(struct rule *r, int64_t trips)
{
    const struct rolled *last = rolled_of(r);
    return last->turn == r->lg->loop_turn && last->trips == trips;
}

static bool build(struct rule *r, struct loop_lowering *l)
{
    struct builder *b = r->b;
    int64_t trips = INT64_MAX;
    enum truth start = l->cond.i ? value_truth(b, l->cond) : TRUE_;
    bool known = !l->trips_value.i || (l->trips.i && ex_is_const(b->x, l->trips, &trips));
    if (start == TRUE_)
        l->cond = (value_id){0};
    if (start == FALSE_ || (known && trips <= 0))
        return loop_empty(r, l);
    bool few = !l->counted || trips <= COUNTED_UNROLLED;
    if (!l->peeled && start == TRUE_ && known && few && (trips == INT64_MAX || trips <= legalize_unroll_limit(r)) &&
        !was_rolled(r, trips)) {
        struct lowered *carried = arena_copy(&b->g->arena, l->carried, (l->n_carried + 1) * sizeof *carried);
        enum unrolled u = loop_unroll(r, l, trips);
        if (u != NOT_UNROLLED)
            return u == UNROLLED;
        memcpy(l->carried, carried, l->n_carried * sizeof *carried);
        *rolled_of(r) = (struct rolled){r->lg->loop_turn, trips};
    }
    return loop_roll(r, l);
}

bool loop_build(struct rule *r, struct loop_lowering *l)
{
    r->lg->loop_turn += r->lg->n_loops++ == 0;
    bool ok = build(r, l);
    r->lg->n_loops--;
    return ok;
}

bool loop_run(struct rule *r, struct loop_lowering *l)
{
    return loop_build(r, l) && (l->forked || l->finish(r, l));
}
