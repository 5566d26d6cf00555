/* The core loop: the body is walked in a region of its own until the types of the carried values settle.
 *
 * A carried value whose shape changes gets symbols for the dims that do, and the body is walked again with them. One
 * that begins as a placeholder of another type than the body gives leaves the loop unsettled: its first iteration is
 * to be peeled (loop.c).
 */
#include "ir/graph/infer.h"
#include "passes/legalize/driver.h"
#include "passes/legalize/control/loop.h"

struct built {
    struct nest nest;
    value_id cond, *next, *scan;
    bool (*wide)[RANK_MAX]; /* by carried value and dim: the dim is a symbol of this loop */
};

/* The number of an iteration: the loop's own count and the iterations before it. That none is below the latter may
 * decide conditions in the body. */
static value_id iteration(struct builder *b, value_id own, int64_t peeled)
{
    if (peeled)
        b_elem(b, own, 0, INT64_MAX - peeled);
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
            dims[d] = b_symbol(b, "carried_dim", INT32_MAX);
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
            return rule_bad(r, "scan output %u is not a tensor of usable rank", i + 1);
        expr_id *dims = NEW_ARRAY(&b->g->arena, expr_id, t.rank + 1);
        dims[0] = trips;
        const struct type *first = l->first ? value_type(b->g, l->first[i].v) : NULL;
        if (first && first->rank != t.rank)
            return rule_bad(r, "scan output %u changes its rank", i + 1);
        for (int32_t d = 0; d < t.rank; d++)
            dims[d + 1] = !dim_escapes(b->g, built->nest.inner, t.dims[d], 16) ? t.dims[d]
                          : first                                              ? first->dims[d]
                                                                               : b_symbol(b, "scan_dim", INT32_MAX);
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
                dims[d] = b_symbol(b, "loop_dim", INT32_MAX);
        types[i].dims = dims;
    }
}

static bool loop_append(struct rule *r, struct loop_lowering *l, const struct built *built, const struct type *params)
{
    struct builder *b = r->b;
    uint32_t n_in = 2 + l->n_carried, n_out = l->n_carried + l->n_scan;
    value_id *in = NEW_ARRAY(&b->g->arena, value_id, n_in);
    struct type *types = NEW_ARRAY(&b->g->arena, struct type, n_out + 1);
    expr_id trips = l->trips.i && !l->cond.i && value_truth(b, built->cond) == TRUE_ ? l->trips
                                                                                     : b_symbol(b, "trips", INT32_MAX);
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

enum truth loop_starts(struct rule *r, const struct loop_lowering *l, expr_id *starts)
{
    struct builder *b = r->b;
    expr_id go = l->cond.i ? b_elem(b, l->cond, 0, 1) : ex_const(b->x, 1), trips = {0};
    if (l->trips_value.i)
        trips = b_elem(b, l->trips_value, INT64_MIN, INT64_MAX);
    *starts = (expr_id){0};
    if (!go.i || (l->trips_value.i && !trips.i))
        return UNKNOWN_;
    *starts = trips.i ? ex_and(b->x, go, ex_lt(b->x, ex_const(b->x, 0), trips)) : go;
    enum truth known = ex_truth(b->x, *starts);
    return known == UNKNOWN_ ? fact_find(r->lg, *starts) : known;
}

/* Can the first iteration stand before the loop? Only a loop_run loop can leave it to the run whether there is
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
    struct exprs *ex = r->b->x;
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

enum core loop_core(struct rule *r, struct loop_lowering *l, uint32_t *which)
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
