/* Loop, Scan, and the counted loops that other rules are made of.
 *
 * A loop whose trip count and condition are known unrolls while it stays under the limit; its sequences then are
 * lists. Else it becomes the core loop: the body is walked once in a region of its own. A carried value whose
 * shape changes gets symbols for the dims that do, and the body is walked again with them.
 */
#include <string.h>

#include "passes/legalize/control.h"
#include "passes/legalize/driver.h"

/* The steps of a layer are alike and depend on one another: more than these stay a loop, which becomes one kernel. */
enum { COUNTED_UNROLLED = 2 };

/* A loop to build, whatever its source: body() gives next condition, carried values and scan elements. */
struct loop;
typedef bool body_fn(struct rule *, struct loop *, struct lval iter, struct lval cond, const struct lval *carried,
                     struct lval *next_cond, struct lval *next, struct lval *scan);
struct loop {
    body_fn *body;
    region_id region;                    /* rule_loop, rule_scan */
    const struct counted_loop *counted;  /* rule_counted_loop */
    value_id trips_value;                /* rank-0 i64; {0}: forever */
    expr_id trips;                       /* known number of trips, or {0} */
    value_id cond;                       /* rank-0 bool; {0}: true */
    uint32_t n_carried, n_scan;
    struct lval *carried, *scan;         /* in: initial values; out: results */
    /* rule_scan: */
    uint32_t n_inputs;
    value_id *inputs;
    int32_t *in_axis;
    bool *in_reverse;
};

/* ---- unrolling ------------------------------------------------------------------------------------------------------ */

static value_id stack(struct rule *r, const struct lval *items, uint32_t n)
{
    value_id *v = NEW_ARRAY(&r->b->g->arena, value_id, n);
    for (uint32_t i = 0; i < n; i++) {
        v[i] = lval_force(r->b, items[i]);
        if (v[i].i && value_type(r->b->g, v[i])->kind != TYPE_TENSOR)
            return rule_bad(r, "a scan output is not a tensor"), (value_id){0};
        v[i] = v[i].i ? b_unsqueeze(r->b, v[i], 0) : v[i];
    }
    return b_concat(r->b, v, n, 0);
}

/* No trip at all: the body is walked for the types of its scan outputs only. */
static bool loop_empty(struct rule *r, struct loop *l)
{
    struct builder *b = r->b;
    struct lval *next = NEW_ARRAY(&b->g->arena, struct lval, l->n_carried + l->n_scan + 1), cond;
    struct nest nest;
    if (!l->n_scan)
        return true;
    nest_begin(b, &nest);      /* dropped afterwards: belongs to no node */
    bool ok = l->body(r, l, lval_value(b_scalar_i64(b, ELEM_I64, 0)), lval_value(b_scalar_i64(b, ELEM_BOOL, 1)),
                      l->carried, &cond, next, next + l->n_carried);
    nest_end(b, &nest);
    for (uint32_t i = 0; ok && i < l->n_scan; i++) {
        value_id v = next[l->n_carried + i].v;
        int32_t rank;
        const expr_id *dims = b_dims(b, v, &rank);
        expr_id out[RANK_MAX];
        if (!dims || rank + 1 > RANK_MAX)
            return false;
        out[0] = ex_const(b_exprs(b), 0);
        for (int32_t d = 0; d < rank; d++) {
            bool local = dim_escapes(b->g, nest.inner, dims[d], 16);
            out[d + 1] = local ? ex_const(b_exprs(b), 0) : dims[d];
        }
        l->scan[i] = lval_value(b_splat_f64(b, v_elem(b, v), 0, out, rank + 1));
    }
    return ok;
}

enum unrolled { UNROLLED, NOT_UNROLLED, UNROLL_FAILED };

/* NOT_UNROLLED when the condition turns out to be unknown or the limit is reached. */
static enum unrolled loop_unroll(struct rule *r, struct loop *l, int64_t trips)
{
    struct builder *b = r->b;
    uint32_t width = l->n_carried + l->n_scan + 1, start = b->g->nodes.n;
    int64_t limit = legalize_unroll_limit(r);
    struct lval *now = NEW_ARRAY(&b->g->arena, struct lval, width), cond = lval_value(b_scalar_i64(b, ELEM_BOOL, 1));
    VEC(struct lval) scans = {0};
    int64_t i = 0;
    memcpy(now, l->carried, l->n_carried * sizeof *now);
    for (bool go = true; go && i < trips; i++) {
        struct lval *next = NEW_ARRAY(&b->g->arena, struct lval, width);
        if (!l->body(r, l, lval_value(b_scalar_i64(b, ELEM_I64, i)), cond, now, &cond, next, next + l->n_carried))
            return UNROLL_FAILED;
        enum truth t = cond.kind == LVAL_VALUE ? value_truth(b, v_scalar(b, cond.v)) : UNKNOWN_;
        if (t == UNKNOWN_)
            return NOT_UNROLLED;
        go = t == TRUE_;
        memcpy(now, next, l->n_carried * sizeof *now);
        for (uint32_t k = 0; k < l->n_scan; k++)
            VEC_PUSH(&b->g->arena, &scans, next[l->n_carried + k]);
        int64_t cost = b->g->nodes.n - start, done = i + 1;
        if (go && (cost > limit || done > limit || (trips != INT64_MAX && cost / done > limit / (trips > 0 ? trips : 1))))
            return NOT_UNROLLED;
    }
    struct lval *column = NEW_ARRAY(&b->g->arena, struct lval, i + 1);
    for (uint32_t k = 0; k < l->n_scan; k++) {
        for (int64_t t = 0; t < i; t++)
            column[t] = scans.data[t * l->n_scan + k];
        l->scan[k] = lval_value(stack(r, column, (uint32_t)i));
    }
    memcpy(l->carried, now, l->n_carried * sizeof *now);
    return UNROLLED;
}

/* ---- the core loop -------------------------------------------------------------------------------------------------- */

struct built {
    struct nest nest;
    value_id cond, *next, *scan;
    bool (*wide)[RANK_MAX];      /* by carried value and dim: the dim is a symbol of this loop */
};

static bool loop_walk(struct rule *r, struct loop *l, const struct type *types, struct built *out)
{
    struct builder *b = r->b;
    uint32_t width = l->n_carried + l->n_scan + 1;
    struct lval *param = NEW_ARRAY(&b->g->arena, struct lval, width), *next = NEW_ARRAY(&b->g->arena, struct lval, width);
    struct lval cond;
    const struct type i64 = {.kind = TYPE_TENSOR, .elem = ELEM_I64}, flag = {.kind = TYPE_TENSOR, .elem = ELEM_BOOL};
    nest_begin(b, &out->nest);
    value_id iter = graph_param(b->g, out->nest.inner, i64, "iteration");
    value_id cond_in = graph_param(b->g, out->nest.inner, flag, "condition");
    for (uint32_t i = 0; i < l->n_carried; i++) {
        value_id v = graph_param(b->g, out->nest.inner, types[i], NULL);
        param[i] = lval_value(v);
        for (int32_t d = 0; types[i].kind == TYPE_TENSOR && d < types[i].rank; d++)
            if (out->wide[i][d])
                fresh_rebind(b, types[i].dims[d], v);
    }
    bool ok = l->body(r, l, lval_value(iter), lval_value(cond_in), param, &cond, next, next + l->n_carried);
    out->next = NEW_ARRAY(&b->g->arena, value_id, width);
    out->scan = out->next + l->n_carried;
    out->cond = ok ? v_scalar(b, lval_force(b, cond)) : (value_id){0};
    ok = ok && out->cond.i;
    for (uint32_t i = 0; ok && i + 1 < width; i++) {
        out->next[i] = lval_force(b, next[i]);
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

/* Dims of carried values that the body changes become symbols. true: some did, the body must be walked again. */
static bool types_widen(struct rule *r, struct loop *l, struct type *types, const struct built *built, bool *again)
{
    struct builder *b = r->b;
    *again = false;
    for (uint32_t i = 0; i < l->n_carried; i++) {
        const struct type *t = value_type(b->g, built->next[i]);
        if (t->kind != types[i].kind || t->elem != types[i].elem)
            return rule_bad(r, "carried value %u changes its type", i + 1);
        if (t->kind != TYPE_TENSOR)
            continue;
        if (t->rank != types[i].rank)
            return rule_refuse(r, "carried value %u changes its rank from iteration to iteration", i + 1);
        expr_id *dims = dims_copy(b, &types[i]);
        for (int32_t d = 0; d < t->rank; d++) {
            if (t->dims[d].i == dims[d].i || built->wide[i][d])
                continue;
            dims[d] = fresh_dim(b, "carried_dim");
            built->wide[i][d] = *again = true;
        }
        types[i].dims = dims;
    }
    return true;
}

static bool scan_types(struct rule *r, struct loop *l, const struct built *built, expr_id trips, struct type *types)
{
    struct builder *b = r->b;
    for (uint32_t i = 0; i < l->n_scan; i++) {
        struct type t = *value_type(b->g, built->scan[i]);
        if (t.kind != TYPE_TENSOR || t.rank + 1 > RANK_MAX)
            return rule_bad(r, "scan output %u is no tensor of usable rank", i + 1);
        expr_id *dims = NEW_ARRAY(&b->g->arena, expr_id, t.rank + 1);
        dims[0] = trips;
        for (int32_t d = 0; d < t.rank; d++)
            dims[d + 1] = dim_escapes(b->g, built->nest.inner, t.dims[d], 16) ? fresh_dim(b, "scan_dim") : t.dims[d];
        t.dims = dims;
        t.rank++;
        types[i] = t;
    }
    return true;
}

/* Results that only the loop can give shapes to: fresh symbols per result, so that the parameter's own are not mixed up. */
static void result_types(struct rule *r, struct loop *l, const struct built *built, const struct type *param,
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

static bool loop_append(struct rule *r, struct loop *l, const struct built *built, const struct type *params)
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
        in[2 + i] = lval_force(b, l->carried[i]);
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
        *(i < l->n_carried ? &l->carried[i] : &l->scan[i - l->n_carried]) = lval_value(v);
    }
    return true;
}

static bool loop_core(struct rule *r, struct loop *l)
{
    struct builder *b = r->b;
    struct type *types = NEW_ARRAY(&b->g->arena, struct type, l->n_carried + 1);
    struct built built = {.wide = arena_alloc_array(&b->g->arena, l->n_carried + 1, sizeof *built.wide)};
    bool again = true;
    for (uint32_t i = 0; i < l->n_carried; i++) {
        value_id v = lval_force(b, l->carried[i]);
        if (!v.i)
            return false;
        l->carried[i] = lval_value(v);
        types[i] = *value_type(b->g, v);
        if (types[i].kind != TYPE_TENSOR)
            types[i] = type_open(b->g, &types[i]);
    }
    for (int32_t round = 0; again; round++) {
        if (round > RANK_MAX)
            return rule_refuse(r, "shapes of carried values do not settle");
        if (!loop_walk(r, l, types, &built) || !types_widen(r, l, types, &built, &again))
            return false;
    }
    return loop_append(r, l, &built, types);
}

static bool loop_build(struct rule *r, struct loop *l)
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
    if (start == TRUE_ && known && few && (trips == INT64_MAX || trips <= legalize_unroll_limit(r))) {
        struct lval *carried = arena_copy(&b->g->arena, l->carried, (l->n_carried + 1) * sizeof *carried);
        enum unrolled u = loop_unroll(r, l, trips);
        if (u != NOT_UNROLLED)
            return u == UNROLLED;
        memcpy(l->carried, carried, l->n_carried * sizeof *carried);
    }
    return loop_core(r, l);
}

/* ---- Loop ------------------------------------------------------------------------------------------------------------ */

static bool onnx_body(struct rule *r, struct loop *l, struct lval iter, struct lval cond, const struct lval *carried,
                      struct lval *next_cond, struct lval *next, struct lval *scan)
{
    struct arena *arena = &r->b->g->arena;
    struct lval *params = NEW_ARRAY(arena, struct lval, l->n_carried + 2);
    struct lval *results = NEW_ARRAY(arena, struct lval, l->n_carried + l->n_scan + 1);
    params[0] = iter;
    params[1] = cond;
    memcpy(params + 2, carried, l->n_carried * sizeof *params);
    if (!legalize_region(r, l->region, params, l->n_carried + 2, results, 1 + l->n_carried + l->n_scan))
        return false;
    *next_cond = results[0];
    memcpy(next, results + 1, l->n_carried * sizeof *next);
    memcpy(scan, results + 1 + l->n_carried, l->n_scan * sizeof *scan);
    return true;
}

bool rule_loop(struct rule *r)
{
    struct builder *b = r->b;
    uint32_t n_carried = r->n_in > 2 ? r->n_in - 2 : 0;
    struct loop l = {.body = onnx_body, .region = rule_region(r, "body"), .n_carried = n_carried};
    if (!l.region.i)
        return rule_bad(r, "no body");
    uint32_t results = region_n_results(r, l.region);
    if (results < 1 + n_carried || r->n_out > results - 1)
        return rule_bad(r, "the body has %u outputs for %u carried values", results, n_carried);
    l.n_scan = results - 1 - n_carried;
    l.carried = NEW_ARRAY(&b->g->arena, struct lval, n_carried + 1);
    l.scan = NEW_ARRAY(&b->g->arena, struct lval, l.n_scan + 1);
    for (uint32_t i = 0; i < n_carried; i++)
        l.carried[i] = r->arg[2 + i];
    if (rule_has(r, 0)) {
        int64_t trips;
        l.trips_value = v_scalar(b, b_convert(b, rule_in(r, 0), ELEM_I64));
        if (!l.trips_value.i)
            return false;
        if (v_known_i64(b, l.trips_value, 0, &trips))
            l.trips = ex_const(b_exprs(b), trips);
    }
    if (rule_has(r, 1)) {
        l.cond = v_scalar(b, rule_in(r, 1));
        if (!l.cond.i)
            return false;
    }
    if (!loop_build(r, &l))
        return false;
    for (uint32_t i = 0; i < r->n_out; i++)
        r->out[i] = i < n_carried ? l.carried[i] : l.scan[i - n_carried];
    return true;
}

/* ---- Scan ------------------------------------------------------------------------------------------------------------- */

static bool scan_body(struct rule *r, struct loop *l, struct lval iter, struct lval cond, const struct lval *carried,
                      struct lval *next_cond, struct lval *next, struct lval *scan)
{
    struct builder *b = r->b;
    struct exprs *ex = b_exprs(b);
    uint32_t n = l->n_carried + l->n_inputs;
    struct lval *params = NEW_ARRAY(&b->g->arena, struct lval, n + 1);
    struct lval *results = NEW_ARRAY(&b->g->arena, struct lval, l->n_carried + l->n_scan + 1);
    int64_t at;
    bool known = v_known_i64(b, iter.v, 0, &at);
    memcpy(params, carried, l->n_carried * sizeof *params);
    for (uint32_t i = 0; i < l->n_inputs; i++) {
        value_id x = l->inputs[i], item;
        int32_t axis = l->in_axis[i];
        if (known) {
            expr_id pos = ex_const(ex, at);
            if (l->in_reverse[i])
                pos = ex_sub(ex, ex_addc(ex, l->trips, -1), pos);
            item = b_squeeze(b, b_slice_axis(b, x, axis, pos, ex_const(ex, 1)), axis);
        } else {
            value_id pos = iter.v;
            if (l->in_reverse[i])
                pos = b_binary(b, OP_SUB, v_expr(b, ELEM_I64, ex_addc(ex, l->trips, -1)), pos);
            item = b_gather(b, x, pos, axis);
        }
        params[l->n_carried + i] = lval_value(item);
    }
    (void)cond;
    *next_cond = lval_value(b_scalar_i64(b, ELEM_BOOL, 1));
    if (!legalize_region(r, l->region, params, n, results, l->n_carried + l->n_scan))
        return false;
    memcpy(next, results, l->n_carried * sizeof *next);
    memcpy(scan, results + l->n_carried, l->n_scan * sizeof *scan);
    return true;
}

static int64_t list_at(struct rule *r, const char *name, uint32_t i)
{
    uint32_t n;
    const int64_t *list = rule_ints(r, name, &n);
    return i < n ? list[i] : 0;
}

/* first: the operand of the first state; the scan inputs follow the states. */
static bool scan_read(struct rule *r, struct loop *l, uint32_t first, const char *directions)
{
    struct builder *b = r->b;
    struct exprs *ex = b_exprs(b);
    l->inputs = NEW_ARRAY(&b->g->arena, value_id, l->n_inputs + 1);
    l->in_axis = NEW_ARRAY(&b->g->arena, int32_t, l->n_inputs + 1);
    l->in_reverse = NEW_ARRAY(&b->g->arena, bool, l->n_inputs + 1);
    for (uint32_t i = 0; i < l->n_inputs; i++) {
        value_id x = l->inputs[i] = rule_in(r, first + l->n_carried + i);
        if (!x.i || !rule_axis(r, list_at(r, "scan_input_axes", i), v_rank(b, x), &l->in_axis[i]))
            return false;
        l->in_reverse[i] = list_at(r, directions, i) != 0;
        expr_id n = b_dim(b, x, l->in_axis[i]);
        if (i == 0)
            l->trips = n;
        else if (ex_cmp_eq(ex, n, l->trips) == FALSE_)
            return rule_bad(r, "scan inputs have different lengths");
        else
            b_assert(b, ex_eq(ex, n, l->trips), -2, "scan inputs have different lengths");
    }
    l->trips_value = v_expr(b, ELEM_I64, l->trips);
    return true;
}

bool rule_scan(struct rule *r)
{
    struct builder *b = r->b;
    int64_t n_inputs = rule_int(r, "num_scan_inputs", 0);
    if (n_inputs < 1 || n_inputs > r->n_in)
        return rule_bad(r, "num_scan_inputs is %lld for %u operands", (long long)n_inputs, r->n_in);
    struct loop l = {.body = scan_body, .region = rule_region(r, "body"), .n_inputs = (uint32_t)n_inputs,
                     .n_carried = r->n_in - (uint32_t)n_inputs};
    if (!l.region.i || region_n_results(r, l.region) < l.n_carried)
        return rule_bad(r, "no body, or it has too few outputs");
    l.n_scan = region_n_results(r, l.region) - l.n_carried;
    if (r->n_out > l.n_carried + l.n_scan)
        return rule_bad(r, "the body has too few outputs");
    l.carried = NEW_ARRAY(&b->g->arena, struct lval, l.n_carried + 1);
    l.scan = NEW_ARRAY(&b->g->arena, struct lval, l.n_scan + 1);
    for (uint32_t i = 0; i < l.n_carried; i++)
        l.carried[i] = r->arg[i];
    if (!scan_read(r, &l, 0, "scan_input_directions") || !loop_build(r, &l))
        return false;
    for (uint32_t i = 0; i < r->n_out; i++) {
        r->out[i] = i < l.n_carried ? l.carried[i] : l.scan[i - l.n_carried];
        if (i < l.n_carried)
            continue;
        value_id v = r->out[i].v;
        int32_t axis;
        if (!rule_axis(r, list_at(r, "scan_output_axes", i - l.n_carried), v_rank(b, v), &axis))
            return false;
        if (list_at(r, "scan_output_directions", i - l.n_carried))
            v = v_flip(b, v, 0);
        rule_out(r, i, v_move_axis(b, v, 0, axis));
    }
    return true;
}

/* Version 8: every operand has a leading batch axis; the batches run one after the other. */
bool rule_scan_old(struct rule *r)
{
    struct builder *b = r->b;
    struct exprs *ex = b_exprs(b);
    int64_t n_inputs = rule_int(r, "num_scan_inputs", 0), batches;
    if (rule_has(r, 0))
        return rule_refuse(r, "sequence_lens of version 8");
    if (n_inputs < 1 || n_inputs >= r->n_in)
        return rule_bad(r, "num_scan_inputs is %lld for %u operands", (long long)n_inputs, r->n_in);
    struct loop l = {.body = scan_body, .region = rule_region(r, "body"), .n_inputs = (uint32_t)n_inputs,
                     .n_carried = r->n_in - 1 - (uint32_t)n_inputs};
    if (!l.region.i || region_n_results(r, l.region) < l.n_carried)
        return rule_bad(r, "no body, or it has too few outputs");
    l.n_scan = region_n_results(r, l.region) - l.n_carried;
    uint32_t n_out = l.n_carried + l.n_scan;
    l.carried = NEW_ARRAY(&b->g->arena, struct lval, l.n_carried + 1);
    l.scan = NEW_ARRAY(&b->g->arena, struct lval, l.n_scan + 1);
    value_id first = rule_in(r, 1);
    if (!first.i || !ex_is_const(ex, b_dim(b, first, 0), &batches) || batches < 1 || batches > legalize_unroll_limit(r) || r->n_out > n_out)
        return rule_refuse(r, "version 8 with an unknown number of batches");
    value_id *rows = NEW_ARRAY(&b->g->arena, value_id, n_out * (size_t)batches + 1);
    for (int64_t k = 0; k < batches; k++) {
        expr_id at = ex_const(ex, k), one = ex_const(ex, 1);
        if (!scan_read(r, &l, 1, "directions"))
            return false;
        for (uint32_t i = 0; i < l.n_inputs; i++)
            l.inputs[i] = b_squeeze(b, b_slice_axis(b, l.inputs[i], 0, at, one), 0);
        l.trips = b_dim(b, l.inputs[0], l.in_axis[0]);
        l.trips_value = v_expr(b, ELEM_I64, l.trips);
        for (uint32_t i = 0; i < l.n_carried; i++)
            l.carried[i] = lval_value(b_squeeze(b, b_slice_axis(b, rule_in(r, 1 + i), 0, at, one), 0));
        if (!loop_build(r, &l))
            return false;
        for (uint32_t i = 0; i < n_out; i++)
            rows[i * batches + k] = b_unsqueeze(b, (i < l.n_carried ? l.carried[i] : l.scan[i - l.n_carried]).v, 0);
    }
    for (uint32_t i = 0; i < r->n_out; i++)
        rule_out(r, i, b_concat(b, rows + i * batches, (uint32_t)batches, 0));
    return true;
}

/* ---- SequenceMap over a run-time sequence ---------------------------------------------------------------------------------- */

static bool is_sequence(struct rule *r, uint32_t i)
{
    return rule_has(r, i) && (r->arg[i].kind == LVAL_LIST || (r->arg[i].kind == LVAL_VALUE &&
           value_type(r->b->g, r->arg[i].v)->kind == TYPE_SEQUENCE));
}

/* One call of the body on the elements at iter. */
static bool map_call(struct rule *r, region_id body, value_id iter, struct lval *results)
{
    struct lval *params = NEW_ARRAY(&r->b->g->arena, struct lval, r->n_in + 1);
    for (uint32_t i = 0; i < r->n_in; i++) {
        params[i] = r->arg[i];
        if (is_sequence(r, i))
            params[i] = lval_value(sequence_item(r, rule_in(r, i), iter));
        if (params[i].kind == LVAL_POISON)
            return false;
    }
    return legalize_region(r, body, params, r->n_in, results, r->n_out);
}

static bool map_body(struct rule *r, struct loop *l, struct lval iter, struct lval cond, const struct lval *carried,
                     struct lval *next_cond, struct lval *next, struct lval *scan)
{
    struct lval *results = NEW_ARRAY(&r->b->g->arena, struct lval, r->n_out + 1);
    (void)cond;
    (void)scan;
    *next_cond = lval_value(b_scalar_i64(r->b, ELEM_BOOL, 1));
    if (!map_call(r, l->region, v_scalar(r->b, iter.v), results))
        return false;
    for (uint32_t i = 0; i < r->n_out; i++) {
        value_id in[2] = {lval_force(r->b, carried[i]), lval_force(r->b, results[i])};
        next[i] = lval_value(b_op(r->b, OP_SEQ_INSERT, in, 2, NULL, 0));
        if (next[i].kind == LVAL_POISON)
            return false;
    }
    return true;
}

bool sequence_map_loop(struct rule *r, region_id body)
{
    struct builder *b = r->b;
    value_id seq = rule_in(r, 0);
    struct lval *first = NEW_ARRAY(&b->g->arena, struct lval, r->n_out + 1);
    struct loop l = {.body = map_body, .region = body, .n_carried = r->n_out};
    struct nest nest;
    if (!is_sequence(r, 0))
        return rule_bad(r, "operand 1 is no sequence");
    nest_begin(b, &nest);      /* only for the element types of the results; belongs to no node */
    bool ok = map_call(r, body, b_scalar_i64(b, ELEM_I64, 0), first);
    nest_end(b, &nest);
    l.carried = NEW_ARRAY(&b->g->arena, struct lval, r->n_out + 1);
    for (uint32_t i = 0; ok && i < r->n_out; i++) {
        enum elem e = first[i].kind == LVAL_VALUE ? v_elem(b, first[i].v) : ELEM_NONE;
        if (e == ELEM_NONE)
            return rule_refuse(r, "sequences of other things than tensors");
        struct attr attr = attr_elem("elem", e);
        l.carried[i] = lval_value(b_op(b, OP_SEQ_MAKE, NULL, 0, &attr, 1));
    }
    l.trips_value = b_op(b, OP_SEQ_LENGTH, &seq, 1, NULL, 0);
    if (!ok || !l.trips_value.i || !loop_core(r, &l))
        return false;
    memcpy(r->out, l.carried, r->n_out * sizeof *r->out);
    return true;
}

/* ---- loops made by rules -------------------------------------------------------------------------------------------------- */

static bool counted_body(struct rule *r, struct loop *l, struct lval iter, struct lval cond, const struct lval *carried,
                         struct lval *next_cond, struct lval *next, struct lval *scan)
{
    uint32_t width = l->n_carried + l->n_scan + 1;
    value_id *in = NEW_ARRAY(&r->b->g->arena, value_id, width), *out = NEW_ARRAY(&r->b->g->arena, value_id, width);
    (void)cond;
    for (uint32_t i = 0; i < l->n_carried; i++)
        in[i] = carried[i].v;
    if (!l->counted->body(r, l->counted->data, iter.v, in, out, out + l->n_carried))
        return false;
    *next_cond = lval_value(b_scalar_i64(r->b, ELEM_BOOL, 1));
    for (uint32_t i = 0; i + 1 < width; i++)
        *(i < l->n_carried ? &next[i] : &scan[i - l->n_carried]) = lval_value(out[i]);
    return true;
}

bool rule_counted_loop(struct rule *r, const struct counted_loop *c, value_id *carried, value_id *scan)
{
    struct builder *b = r->b;
    struct loop l = {.body = counted_body, .counted = c, .trips = c->trips, .n_carried = c->n_carried, .n_scan = c->n_scan};
    l.trips_value = v_expr(b, ELEM_I64, c->trips);
    l.carried = NEW_ARRAY(&b->g->arena, struct lval, c->n_carried + 1);
    l.scan = NEW_ARRAY(&b->g->arena, struct lval, c->n_scan + 1);
    for (uint32_t i = 0; i < c->n_carried; i++)
        l.carried[i] = lval_value(carried[i]);
    if (!l.trips_value.i || !loop_build(r, &l))
        return false;
    for (uint32_t i = 0; i < c->n_carried; i++)
        carried[i] = l.carried[i].v;
    for (uint32_t i = 0; i < c->n_scan; i++)
        scan[i] = l.scan[i].v;
    return true;
}
