/* How loops are made, whatever their source (loop_rules.c).
 *
 * A loop whose trip count and condition are known unrolls while it stays under the limit; its sequences then are
 * lists. Else it becomes the core loop: the body is walked once in a region of its own. A carried value whose
 * shape changes gets symbols for the dims that do, and the body is walked again with them.
 *
 * A carried value may begin as a placeholder of another type than the body gives. Then the first iteration is peeled:
 * it stands in front of the loop, which goes on with what that iteration gives. If it is known only at run time whether
 * there is an iteration, the loop is one of two branches, and the other one gives the initial values.
 */
#include <string.h>

#include "ir/graph/infer.h"
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
    int32_t rank;
    const expr_id *dims = b_dims(b, v, &rank);
    expr_id out[RANK_MAX];
    if (!dims || rank + 1 > RANK_MAX)
        return (value_id){0};
    out[0] = ex_const(b_exprs(b), 0);
    for (int32_t d = 0; d < rank; d++)
        out[d + 1] = inner.i && dim_escapes(b->g, inner, dims[d], 16) ? ex_const(b_exprs(b), 0) : dims[d];
    return b_splat_f64(b, v_elem(b, v), 0, out, rank + 1);
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

/* ---- the core loop ----------------------------------------------------------------------------------------------- */

struct built {
    struct nest nest;
    value_id cond, *next, *scan;
    bool (*wide)[RANK_MAX]; /* by carried value and dim: the dim is a symbol of this loop */
};

/* The number of an iteration: the loop's own count and the iterations in front of it. That none is below the latter may
 * decide conditions in the body. */
static value_id iteration(struct builder *b, value_id own, int64_t peeled)
{
    if (peeled)
        b_elem(b, own, 0, 0, INT64_MAX - peeled);
    return peeled ? b_binary(b, OP_ADD, own, b_scalar_i64(b, ELEM_I64, peeled)) : own;
}

static bool loop_walk(struct rule *r, struct loop_lowering *l, const struct type *types, struct built *out)
{
    struct builder *b = r->b;
    uint32_t width = l->n_carried + l->n_scan + 1;
    struct lowered *param = NEW_ARRAY(&b->g->arena, struct lowered, width),
                   *next = NEW_ARRAY(&b->g->arena, struct lowered, width);
    struct lowered cond;
    const struct type i64 = {.kind = TYPE_TENSOR, .elem = ELEM_I64}, flag = {.kind = TYPE_TENSOR, .elem = ELEM_BOOL};
    nest_begin(b, &out->nest);
    value_id iter = iteration(b, graph_param(b->g, out->nest.inner, i64, "iteration"), l->peeled);
    value_id cond_in = graph_param(b->g, out->nest.inner, flag, "condition");
    for (uint32_t i = 0; i < l->n_carried; i++) {
        value_id v = graph_param(b->g, out->nest.inner, types[i], NULL);
        param[i] = lowered_value(v);
        for (int32_t d = 0; types[i].kind == TYPE_TENSOR && d < types[i].rank; d++)
            if (out->wide[i][d])
                fresh_rebind(b, types[i].dims[d], v);
    }
    bool ok = l->body(r, l, lowered_value(iter), lowered_value(cond_in), param, &cond, next, next + l->n_carried);
    out->next = NEW_ARRAY(&b->g->arena, value_id, width);
    out->scan = out->next + l->n_carried;
    out->cond = ok ? v_scalar(b, lowered_force(b, cond)) : (value_id){0};
    ok = ok && out->cond.i;
    for (uint32_t i = 0; ok && i + 1 < width; i++) {
        out->next[i] = lowered_force(b, next[i]);
        ok = out->next[i].i != 0;
    }
    nest_end(b, &out->nest);
    return ok;
}

static expr_id *dims_copy(struct builder *b, const struct type *t)
{
    expr_id *dims = NEW_ARRAY(&b->g->arena, expr_id, t->rank + 1);
    if (t->rank)
        memcpy(dims, t->dims, (size_t)t->rank * sizeof *dims);
    return dims;
}

enum settled { SETTLED, WIDER, RETYPED };

/* May the one follow the other in a carried value, as far as dims do not tell? */
static bool carries(const struct type *from, const struct type *to)
{
    return from->kind == to->kind && from->elem == to->elem && (from->kind != TYPE_TENSOR || from->rank == to->rank);
}

/* WIDER: dims of carried values that the body changes became symbols, or of what they hold unknown, and the body must
 * be walked again. RETYPED: value *which changes its kind, element type or rank. */
static enum settled types_widen(struct rule *r, struct loop_lowering *l, struct type *types, const struct built *built,
                                uint32_t *which)
{
    struct builder *b = r->b;
    enum settled settled = SETTLED;
    for (uint32_t i = 0; i < l->n_carried; i++) {
        const struct type *t = value_type(b->g, built->next[i]);
        *which = i;
        if (!carries(&types[i], t))
            return RETYPED;
        if (t->kind != TYPE_TENSOR) {
            const struct type before = types[i];
            if (!type_meet(b->g, built->nest.inner, &types[i], t))
                return RETYPED;
            settled = type_equal(&before, &types[i]) ? settled : WIDER;
            continue;
        }
        expr_id *dims = dims_copy(b, &types[i]);
        for (int32_t d = 0; d < t->rank; d++) {
            if (t->dims[d].i == dims[d].i || built->wide[i][d])
                continue;
            dims[d] = fresh_dim(b, "carried_dim");
            built->wide[i][d] = true;
            settled = WIDER;
        }
        types[i].dims = dims;
    }
    return settled;
}

static bool scan_types(struct rule *r, struct loop_lowering *l, const struct built *built, expr_id trips,
                       struct type *types)
{
    struct builder *b = r->b;
    for (uint32_t i = 0; i < l->n_scan; i++) {
        struct type t = *value_type(b->g, built->scan[i]);
        if (t.kind != TYPE_TENSOR || t.rank + 1 > RANK_MAX)
            return rule_bad(r, "scan output %u is no tensor of usable rank", i + 1);
        expr_id *dims = NEW_ARRAY(&b->g->arena, expr_id, t.rank + 1);
        dims[0] = trips;
        const struct type *first = l->first ? value_type(b->g, l->first[i].v) : NULL;
        if (first && first->rank != t.rank)
            return rule_bad(r, "scan output %u changes its rank", i + 1);
        for (int32_t d = 0; d < t.rank; d++)
            dims[d + 1] = !dim_escapes(b->g, built->nest.inner, t.dims[d], 16) ? t.dims[d]
                          : first                                              ? first->dims[d]
                                                                               : fresh_dim(b, "scan_dim");
        t.dims = dims;
        t.rank++;
        types[i] = t;
    }
    return true;
}

/* Results that only the loop can give shapes to: fresh symbols per result, so that the parameter's own are not mixed
 * up. */
static void result_types(struct rule *r, struct loop_lowering *l, const struct built *built, const struct type *param,
                         struct type *types)
{
    struct builder *b = r->b;
    for (uint32_t i = 0; i < l->n_carried; i++) {
        types[i] = param[i];
        if (param[i].kind != TYPE_TENSOR)
            continue;
        expr_id *dims = dims_copy(b, &param[i]);
        for (int32_t d = 0; d < param[i].rank; d++)
            if (dim_escapes(b->g, built->nest.inner, dims[d], 16))
                dims[d] = fresh_dim(b, "loop_dim");
        types[i].dims = dims;
    }
}

static bool loop_append(struct rule *r, struct loop_lowering *l, const struct built *built, const struct type *params)
{
    struct builder *b = r->b;
    uint32_t n_in = 2 + l->n_carried, n_out = l->n_carried + l->n_scan;
    value_id *in = NEW_ARRAY(&b->g->arena, value_id, n_in);
    struct type *types = NEW_ARRAY(&b->g->arena, struct type, n_out + 1);
    expr_id trips = l->trips.i && !l->cond.i && value_truth(b, built->cond) == TRUE_ ? l->trips : fresh_dim(b, "trips");
    struct attr attrs[] = {attr_int("n_carried", l->n_carried), attr_expr("trips", trips),
                           attr_int("forever", l->trips_value.i == 0)};
    in[0] = l->trips_value.i ? l->trips_value : b_scalar_i64(b, ELEM_I64, INT64_MAX);
    in[1] = l->cond.i ? l->cond : b_scalar_i64(b, ELEM_BOOL, 1);
    for (uint32_t i = 0; i < l->n_carried; i++)
        in[2 + i] = lowered_force(b, l->carried[i]);
    result_types(r, l, built, params, types);
    if (!scan_types(r, l, built, trips, types + l->n_carried))
        return false;
    node_id id = graph_append(b->g, b->region, OP_LOOP, b->src, in, n_in, attrs, 3, types, n_out);
    graph_adopt_region(b->g, id, built->nest.inner);
    graph_add_result(b->g, built->nest.inner, built->cond);
    for (uint32_t i = 0; i < n_out; i++)
        graph_add_result(b->g, built->nest.inner, built->next[i]);
    for (uint32_t i = 0; i < n_out; i++) {
        value_id v = graph_node(b->g, id)->out[i];
        for (int32_t d = 0; types[i].kind == TYPE_TENSOR && d < types[i].rank; d++)
            fresh_bind(b, types[i].dims[d], v);
        *(i < l->n_carried ? &l->carried[i] : &l->scan[i - l->n_carried]) = lowered_value(v);
    }
    return true;
}

static void retyped_remark(struct rule *r, uint32_t which, const struct type *from, const struct type *to)
{
    struct graph *g = r->b->g;
    remark_at(r->lg->ctx, r->node->src, "loop",
              "carried value %u begins as %.80s and goes on as %.80s: the first iteration stands in "
              "front of the loop",
              which + 1, type_text(g, from), type_text(g, to));
}

/* Was a dim written only to be replaced? One that nobody knows to differ (two symbols, or a symbol and a size) mostly
 * is the same at run time: no reason to compile the body twice. */
static bool dim_replaced(struct exprs *ex, expr_id before, expr_id after)
{
    return before.i != after.i &&
           (ex_is(ex, before, 0) || ex_is(ex, before, 1) || ex_cmp_eq(ex, before, after) == FALSE_);
}

/* A carried value with a dim that `after` replaces and `later` (NULL: anything) leaves as it is; n_carried: none. */
static uint32_t dim_settled(struct exprs *ex, const struct loop_lowering *l, const struct type *before,
                            const struct type *after, const struct type *later)
{
    for (uint32_t i = 0; i < l->n_carried; i++)
        for (int32_t d = 0; after[i].kind == TYPE_TENSOR && d < after[i].rank; d++)
            if (dim_replaced(ex, before[i].dims[d], after[i].dims[d]) &&
                (!later || after[i].dims[d].i == later[i].dims[d].i))
                return i;
    return l->n_carried;
}

/* The types of the carried values after an iteration that begins with these; false: it cannot be typed, or a rank
 * changes. Nothing is left of the walk. */
static bool types_after(struct rule *r, struct loop_lowering *l, const struct type *types, struct type *after)
{
    struct context *ctx = r->lg->ctx;
    struct built built = {.wide = arena_alloc_array(&r->b->g->arena, l->n_carried + 1, sizeof *built.wide)};
    const struct diag_mark mark = diag_mark(ctx);
    const uint32_t n_refusals = r->lg->refusals.n;
    struct diag_list errors;
    bool ok = loop_walk(r, l, types, &built);
    for (uint32_t i = 0; ok && i < l->n_carried; i++) {
        after[i] = *value_type(r->b->g, built.next[i]);
        ok = carries(&types[i], &after[i]);
    }
    if (ctx->n_errors == mark.n_errors)
        diag_drop(ctx, &mark);
    else
        diag_take(ctx, &mark, &errors); /* a limit stays */
    r->lg->refusals.n = n_refusals;
    return ok;
}

/* Is there a first iteration? Unknown: *starts says it at run time, or is {0}: not even that. */
static enum truth loop_starts(struct rule *r, const struct loop_lowering *l, expr_id *starts)
{
    struct builder *b = r->b;
    struct exprs *ex = b_exprs(b);
    expr_id go = l->cond.i ? b_elem(b, l->cond, 0, 0, 1) : ex_const(ex, 1), trips = {0};
    if (l->trips_value.i)
        trips = b_elem(b, l->trips_value, 0, INT64_MIN, INT64_MAX);
    *starts = (expr_id){0};
    if (!go.i || (l->trips_value.i && !trips.i))
        return UNKNOWN_;
    *starts = trips.i ? ex_and(ex, go, ex_lt(ex, ex_const(ex, 0), trips)) : go;
    enum truth known = ex_truth(ex, *starts);
    return known == UNKNOWN_ ? fact_find(r->lg, *starts) : known;
}

/* Can the first iteration stand in front of the loop? Only a loop_run loop can leave it to the run whether there is
 * one. */
static bool can_peel(struct rule *r, const struct loop_lowering *l)
{
    expr_id starts;
    return l->finish || loop_starts(r, l, &starts) != UNKNOWN_;
}

/* Is what a carried value begins with only a placeholder: do dims settle once the first iteration gave them other
 * values? Then *which is such a value. */
static bool begins_otherwise(struct rule *r, struct loop_lowering *l, const struct type *before,
                             const struct type *wide, const struct built *first, uint32_t *which)
{
    struct graph *g = r->b->g;
    struct exprs *ex = b_exprs(r->b);
    struct type *after = NEW_ARRAY(&g->arena, struct type, l->n_carried + 1),
                *later = NEW_ARRAY(&g->arena, struct type, l->n_carried + 1);
    for (uint32_t i = 0; i < l->n_carried; i++) {
        after[i] = *value_type(g, first->next[i]);
        if (after[i].kind != TYPE_TENSOR)
            after[i] = wide[i];
        for (int32_t d = 0; after[i].kind == TYPE_TENSOR && d < after[i].rank; d++)
            if (dim_escapes(g, first->nest.inner, after[i].dims[d], 16))
                return false;
    }
    if (dim_settled(ex, l, before, after, NULL) == l->n_carried || !can_peel(r, l) || !types_after(r, l, after, later))
        return false;
    *which = dim_settled(ex, l, before, after, later);
    return *which < l->n_carried;
}

enum core { BUILT, FAILED, UNSETTLED };

/* UNSETTLED: carried value *which has another type after an iteration than before it, and nothing is left of the
 * attempt. */
static enum core loop_core(struct rule *r, struct loop_lowering *l, uint32_t *which)
{
    struct builder *b = r->b;
    struct type *types = NEW_ARRAY(&b->g->arena, struct type, l->n_carried + 1);
    struct built built = {.wide = arena_alloc_array(&b->g->arena, l->n_carried + 1, sizeof *built.wide)};
    const struct diag_mark mark = diag_mark(r->lg->ctx);
    for (uint32_t i = 0; i < l->n_carried; i++) {
        value_id v = lowered_force(b, l->carried[i]);
        if (!v.i)
            return FAILED;
        l->carried[i] = lowered_value(v);
        types[i] = *value_type(b->g, v);
    }
    for (int32_t round = 0; round <= RANK_MAX; round++) {
        const struct type *before = arena_copy(&b->g->arena, types, (l->n_carried + 1) * sizeof *types);
        if (!loop_walk(r, l, types, &built))
            return FAILED;
        enum settled settled = types_widen(r, l, types, &built, which);
        if (settled == SETTLED)
            return loop_append(r, l, &built, types) ? BUILT : FAILED;
        diag_drop(r->lg->ctx, &mark); /* said again by the next walk */
        if (settled == WIDER && (round || l->peeled || !begins_otherwise(r, l, before, types, &built, which)))
            continue;
        retyped_remark(r, *which, &before[*which], value_type(b->g, built.next[*which]));
        return UNSETTLED;
    }
    rule_refuse(r, "shapes of carried values do not settle");
    return FAILED;
}

/* ---- the first iteration in front of the loop -------------------------------------------------------------------- */

/* Collected elements of the first iteration and of those after it, as one. */
static value_id rows_join(struct rule *r, struct lowered first, struct lowered rest)
{
    struct builder *b = r->b;
    value_id rows[2] = {stack(r, &first, 1), rest.v};
    bool alone = rows[0].i && rows[1].i && ex_is(b_exprs(b), b_dim(b, rows[1], 0), 0);
    return alone ? rows[0] : b_concat(b, rows, 2, 0);
}

/* At least one iteration: the first in place, the others as a loop of their own. */
static bool loop_peel(struct rule *r, struct loop_lowering *l)
{
    struct builder *b = r->b;
    struct exprs *ex = b_exprs(b);
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
        rest.trips = ex_max(ex, ex_addc(ex, l->trips, -1), ex_const(ex, 0));
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
    bool known = !l->trips_value.i || (l->trips.i && ex_is_const(b_exprs(b), l->trips, &trips));
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
