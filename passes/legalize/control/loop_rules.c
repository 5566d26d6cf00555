/* What runs as a loop: Loop, Scan, SequenceMap over a run-time sequence, and the counted loops of other rules. */
#include "passes/legalize/driver.h"
#include "passes/legalize/control/loop.h"

/* ---- Loop -------------------------------------------------------------------------------------------------------- */

/* The one element v in the shape that the body declares for its input k: files declare the iteration number and the
 * condition as [1], too, and take them apart by operators that need a dim. */
static struct lowered as_declared(struct rule *r, region_id body, uint32_t k, struct lowered v)
{
    const struct graph *from = r->lg->from;
    const struct region *region = graph_get_region(from, body);
    const struct type *t = k < region->params.n ? value_type(from, region->params.data[k]) : NULL;
    expr_id ones[RANK_MAX];
    for (int32_t i = 0; i < RANK_MAX; i++)
        ones[i] = ex_const(r->b->x, 1);
    return t && t->kind == TYPE_TENSOR && t->rank > 0 ? lowered_value(b_reshape(r->b, v.v, ones, t->rank)) : v;
}

static bool is_bool(struct rule *r, struct lowered v)
{
    return v.kind == LOWERED_VALUE && v_elem(r->b, v.v) == ELEM_BOOL;
}

static bool onnx_body(struct rule *r, struct loop_lowering *l, struct lowered iter, struct lowered cond,
                      const struct lowered *carried, struct lowered *next_cond, struct lowered *next,
                      struct lowered *scan)
{
    struct arena *arena = &r->b->g->arena;
    struct lowered *params = NEW_ARRAY(arena, struct lowered, l->n_carried + 2);
    struct lowered *results = NEW_ARRAY(arena, struct lowered, l->n_carried + l->n_scan + 1);
    params[0] = as_declared(r, l->region, 0, iter);
    params[1] = as_declared(r, l->region, 1, cond);
    memcpy(params + 2, carried, l->n_carried * sizeof *params);
    if (!legalize_region(r, l->region, params, l->n_carried + 2, results, 1 + l->n_carried + l->n_scan))
        return false;
    *next_cond = results[0];
    if (!is_bool(r, *next_cond))
        return rule_bad(r, "the body's condition is not a bool tensor");
    memcpy(next, results + 1, l->n_carried * sizeof *next);
    memcpy(scan, results + 1 + l->n_carried, l->n_scan * sizeof *scan);
    return true;
}

static bool onnx_finish(struct rule *r, const struct loop_lowering *l)
{
    for (uint32_t i = 0; i < r->n_out; i++)
        r->out[i] = i < l->n_carried ? l->carried[i] : l->scan[i - l->n_carried];
    return true;
}

bool rule_loop(struct rule *r)
{
    struct builder *b = r->b;
    uint32_t n_carried = r->n_in > 2 ? r->n_in - 2 : 0;
    struct loop_lowering l = {
        .body = onnx_body, .finish = onnx_finish, .region = rule_region(r, "body"), .n_carried = n_carried};
    if (!l.region.i)
        return rule_bad(r, "no body");
    uint32_t results = region_n_results(r, l.region);
    if (results < 1 + n_carried || r->n_out > results - 1)
        return rule_bad(r, "the body has %u outputs for %u carried values", results, n_carried);
    l.n_scan = results - 1 - n_carried;
    l.carried = NEW_ARRAY(&b->g->arena, struct lowered, n_carried + 1);
    l.scan = NEW_ARRAY(&b->g->arena, struct lowered, l.n_scan + 1);
    for (uint32_t i = 0; i < n_carried; i++)
        l.carried[i] = r->arg[2 + i];
    if (rule_has(r, 0)) {
        int64_t trips;
        if (r->arg[0].kind != LOWERED_VALUE || v_elem(b, r->arg[0].v) != ELEM_I64)
            return rule_bad(r, "the number of trips is not an int64 tensor");
        l.trips_value = v_scalar(b, r->arg[0].v);
        if (!l.trips_value.i)
            return false;
        if (v_known_i64(b, l.trips_value, 0, &trips))
            l.trips = ex_const(b->x, trips);
    }
    if (rule_has(r, 1)) {
        if (!is_bool(r, r->arg[1]))
            return rule_bad(r, "the condition is not a bool tensor");
        l.cond = v_scalar(b, r->arg[1].v);
        if (!l.cond.i)
            return false;
    }
    return loop_run(r, &l);
}

/* ---- Scan -------------------------------------------------------------------------------------------------------- */

static bool scan_body(struct rule *r, struct loop_lowering *l, struct lowered iter, struct lowered cond,
                      const struct lowered *carried, struct lowered *next_cond, struct lowered *next,
                      struct lowered *scan)
{
    struct builder *b = r->b;
    uint32_t n = l->n_carried + l->n_inputs;
    struct lowered *params = NEW_ARRAY(&b->g->arena, struct lowered, n + 1);
    struct lowered *results = NEW_ARRAY(&b->g->arena, struct lowered, l->n_carried + l->n_scan + 1);
    int64_t at;
    bool known = v_known_i64(b, iter.v, 0, &at);
    memcpy(params, carried, l->n_carried * sizeof *params);
    for (uint32_t i = 0; i < l->n_inputs; i++) {
        value_id x = l->inputs[i], item;
        int32_t axis = l->in_axis[i];
        if (known) {
            expr_id pos = ex_const(b->x, at);
            if (l->in_reverse[i])
                pos = ex_sub(b->x, ex_addc(b->x, l->trips, l->peeled - 1), pos);
            item = b_squeeze(b, b_slice_axis(b, x, axis, pos, ex_const(b->x, 1)), axis);
        } else {
            value_id pos = iter.v;
            if (l->in_reverse[i])
                pos = b_binary(b, OP_SUB, v_expr(b, ELEM_I64, ex_addc(b->x, l->trips, l->peeled - 1)), pos);
            item = b_gather(b, x, pos, axis);
        }
        params[l->n_carried + i] = lowered_value(item);
    }
    (void)cond;
    *next_cond = lowered_value(b_scalar_i64(b, ELEM_BOOL, 1));
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
static bool scan_read(struct rule *r, struct loop_lowering *l, uint32_t first, const char *directions)
{
    struct builder *b = r->b;
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
        else if (ex_cmp_eq(b->x, n, l->trips) == FALSE_)
            return rule_bad(r, "scan inputs have different lengths");
        else
            b_assert(b, ex_eq(b->x, n, l->trips), -2, "scan inputs have different lengths");
    }
    l->trips_value = v_expr(b, ELEM_I64, l->trips);
    return true;
}

static bool scan_finish(struct rule *r, const struct loop_lowering *l)
{
    for (uint32_t i = 0; i < r->n_out; i++) {
        r->out[i] = i < l->n_carried ? l->carried[i] : l->scan[i - l->n_carried];
        if (i < l->n_carried)
            continue;
        value_id v = r->out[i].v;
        int32_t axis;
        if (!rule_axis(r, list_at(r, "scan_output_axes", i - l->n_carried), v_rank(r->b, v), &axis))
            return false;
        if (list_at(r, "scan_output_directions", i - l->n_carried))
            v = v_flip(r->b, v, 0);
        rule_out(r, i, v_move_axis(r->b, v, 0, axis));
    }
    return true;
}

/* Reads what all versions of Scan have in common. first: the number of operands before the states and the scanned
 * inputs. False after a diagnostic. */
static bool scan_begin(struct rule *r, uint32_t first, struct loop_lowering *l)
{
    int64_t n = rule_int(r, "num_scan_inputs", 0);
    if (n < 1 || n > (int64_t)r->n_in - first)
        return rule_bad(r, "num_scan_inputs is %lld for %u operands", (long long)n, r->n_in);
    *l = (struct loop_lowering){.body = scan_body,
                                .region = rule_region(r, "body"),
                                .n_inputs = (uint32_t)n,
                                .n_carried = r->n_in - first - (uint32_t)n};
    if (!l->region.i || region_n_results(r, l->region) < l->n_carried)
        return rule_bad(r, "no body, or it has too few outputs");
    l->n_scan = region_n_results(r, l->region) - l->n_carried;
    l->carried = NEW_ARRAY(&r->b->g->arena, struct lowered, l->n_carried + 1);
    l->scan = NEW_ARRAY(&r->b->g->arena, struct lowered, l->n_scan + 1);
    return true;
}

bool rule_scan(struct rule *r)
{
    struct loop_lowering l;
    if (!scan_begin(r, 0, &l))
        return false;
    if (r->n_out > l.n_carried + l.n_scan)
        return rule_bad(r, "the body has too few outputs");
    l.finish = scan_finish;
    for (uint32_t i = 0; i < l.n_carried; i++)
        l.carried[i] = r->arg[i];
    return scan_read(r, &l, 0, "scan_input_directions") && loop_run(r, &l);
}

/* Version 8: every operand has a leading batch axis; the batches run one after the other. */
bool rule_scan_old(struct rule *r)
{
    struct builder *b = r->b;
    struct loop_lowering l;
    int64_t batches;
    if (rule_has(r, 0))
        return rule_refuse(r, "version 8 is given sequence_lens");
    if (!scan_begin(r, 1, &l))
        return false;
    uint32_t n_out = l.n_carried + l.n_scan;
    value_id first = rule_in(r, 1);
    if (!first.i || !ex_is_const(b->x, b_dim(b, first, 0), &batches) || batches < 1 ||
        batches > legalize_unroll_limit(r) || r->n_out > n_out)
        return rule_refuse(r, "the number of batches is unknown (version 8)");
    value_id *rows = NEW_ARRAY(&b->g->arena, value_id, n_out * (size_t)batches + 1);
    for (int64_t k = 0; k < batches; k++) {
        expr_id at = ex_const(b->x, k), one = ex_const(b->x, 1);
        if (!scan_read(r, &l, 1, "directions"))
            return false;
        for (uint32_t i = 0; i < l.n_inputs; i++)
            l.inputs[i] = b_squeeze(b, b_slice_axis(b, l.inputs[i], 0, at, one), 0);
        l.trips = b_dim(b, l.inputs[0], l.in_axis[0]);
        l.trips_value = v_expr(b, ELEM_I64, l.trips);
        for (uint32_t i = 0; i < l.n_carried; i++)
            l.carried[i] = lowered_value(b_squeeze(b, b_slice_axis(b, rule_in(r, 1 + i), 0, at, one), 0));
        if (!loop_build(r, &l))
            return false;
        for (uint32_t i = 0; i < n_out; i++)
            rows[i * batches + k] = b_unsqueeze(b, (i < l.n_carried ? l.carried[i] : l.scan[i - l.n_carried]).v, 0);
    }
    for (uint32_t i = 0; i < r->n_out; i++)
        rule_out(r, i, b_concat(b, rows + i * batches, (uint32_t)batches, 0));
    return true;
}

/* ---- SequenceMap over a run-time sequence ------------------------------------------------------------------------ */

static bool is_sequence(struct rule *r, uint32_t i)
{
    return rule_has(r, i) &&
           (r->arg[i].kind == LOWERED_LIST ||
            (r->arg[i].kind == LOWERED_VALUE && value_type(r->b->g, r->arg[i].v)->kind == TYPE_SEQUENCE));
}

/* One call of the body on the elements at iter. */
static bool map_call(struct rule *r, region_id body, value_id iter, struct lowered *results)
{
    struct lowered *params = NEW_ARRAY(&r->b->g->arena, struct lowered, r->n_in + 1);
    for (uint32_t i = 0; i < r->n_in; i++) {
        params[i] = r->arg[i];
        if (is_sequence(r, i))
            params[i] = lowered_value(sequence_item(r, rule_in(r, i), iter));
        if (params[i].kind == LOWERED_POISON)
            return false;
    }
    return legalize_region(r, body, params, r->n_in, results, r->n_out);
}

static bool map_body(struct rule *r, struct loop_lowering *l, struct lowered iter, struct lowered cond,
                     const struct lowered *carried, struct lowered *next_cond, struct lowered *next,
                     struct lowered *scan)
{
    struct lowered *results = NEW_ARRAY(&r->b->g->arena, struct lowered, r->n_out + 1);
    (void)cond;
    (void)scan;
    *next_cond = lowered_value(b_scalar_i64(r->b, ELEM_BOOL, 1));
    if (!map_call(r, l->region, v_scalar(r->b, iter.v), results))
        return false;
    for (uint32_t i = 0; i < r->n_out; i++) {
        value_id in[2] = {lowered_force(r->b, carried[i]), lowered_force(r->b, results[i])};
        next[i] = lowered_value(b_op(r->b, OP_SEQ_INSERT, in, 2, NULL, 0));
        if (next[i].kind == LOWERED_POISON)
            return false;
    }
    return true;
}

bool sequence_map_loop(struct rule *r, region_id body)
{
    struct builder *b = r->b;
    value_id seq = rule_in(r, 0);
    struct lowered *first = NEW_ARRAY(&b->g->arena, struct lowered, r->n_out + 1);
    struct loop_lowering l = {.body = map_body, .region = body, .n_carried = r->n_out};
    struct nest nest;
    if (!is_sequence(r, 0))
        return rule_bad(r, "operand 1 is not a sequence");
    nest_begin(b, &nest); /* only for the element types of the results; belongs to no node */
    bool ok = map_call(r, body, b_scalar_i64(b, ELEM_I64, 0), first);
    nest_end(b, &nest);
    l.carried = NEW_ARRAY(&b->g->arena, struct lowered, r->n_out + 1);
    for (uint32_t i = 0; ok && i < r->n_out; i++) {
        enum elem e = first[i].kind == LOWERED_VALUE ? v_elem(b, first[i].v) : ELEM_NONE;
        if (e == ELEM_NONE)
            return rule_refuse(r, "the elements of the sequences are not tensors");
        struct attr attr = attr_elem("elem", e);
        l.carried[i] = lowered_value(b_op(b, OP_SEQ_MAKE, NULL, 0, &attr, 1));
    }
    l.trips_value = b_op(b, OP_SEQ_LENGTH, &seq, 1, NULL, 0);
    if (!ok || !l.trips_value.i || !loop_build(r, &l))
        return false;
    memcpy(r->out, l.carried, r->n_out * sizeof *r->out);
    return true;
}

/* ---- loops made by rules ----------------------------------------------------------------------------------------- */

static bool counted_body(struct rule *r, struct loop_lowering *l, struct lowered iter, struct lowered cond,
                         const struct lowered *carried, struct lowered *next_cond, struct lowered *next,
                         struct lowered *scan)
{
    uint32_t width = l->n_carried + l->n_scan + 1;
    value_id *in = NEW_ARRAY(&r->b->g->arena, value_id, width), *out = NEW_ARRAY(&r->b->g->arena, value_id, width);
    (void)cond;
    for (uint32_t i = 0; i < l->n_carried; i++)
        in[i] = carried[i].v;
    if (!l->counted->body(r, l->counted->data, iter.v, in, out, out + l->n_carried))
        return false;
    *next_cond = lowered_value(b_scalar_i64(r->b, ELEM_BOOL, 1));
    for (uint32_t i = 0; i + 1 < width; i++)
        *(i < l->n_carried ? &next[i] : &scan[i - l->n_carried]) = lowered_value(out[i]);
    return true;
}

bool rule_counted_loop(struct rule *r, const struct counted_loop *c, value_id *carried, value_id *scan)
{
    struct builder *b = r->b;
    struct loop_lowering l = {
        .body = counted_body, .counted = c, .trips = c->trips, .n_carried = c->n_carried, .n_scan = c->n_scan};
    l.trips_value = v_expr(b, ELEM_I64, c->trips);
    l.carried = NEW_ARRAY(&b->g->arena, struct lowered, c->n_carried + 1);
    l.scan = NEW_ARRAY(&b->g->arena, struct lowered, c->n_scan + 1);
    for (uint32_t i = 0; i < c->n_carried; i++)
        l.carried[i] = lowered_value(carried[i]);
    if (!l.trips_value.i || !loop_build(r, &l))
        return false;
    for (uint32_t i = 0; i < c->n_carried; i++)
        carried[i] = l.carried[i].v;
    for (uint32_t i = 0; i < c->n_scan; i++)
        scan[i] = l.scan[i].v;
    return true;
}
