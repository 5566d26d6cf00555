/* What the elements before a place along a dim come to, in loops over the dim. */
#include "passes/legalize/aten.h"

struct scanned {
    value_id x; /* the dim first */
    bool max;
};

/* log(e^x + e^y); infinities as they are. */
static value_id log_add_exp(struct builder *b, value_id x, value_id y)
{
    value_id max = b_binary(b, OP_MAX, x, y), min = b_binary(b, OP_MIN, x, y);
    value_id sum = b_binary(b, OP_ADD, max, b_unary(b, OP_LOG1P, b_unary(b, OP_EXP, b_binary(b, OP_SUB, min, max))));
    return b_select(b, b_binary(b, OP_AND, b_binary(b, OP_EQ, x, y), b_unary(b, OP_ISINF, x)), x, sum);
}

bool rule_aten_logaddexp(struct rule *r)
{
    value_id x = rule_in(r, 0), y = rule_in(r, 1);
    enum elem e = aten_promoted(r, 0, "self", 1, "other");
    e = elem_widened(e);
    return aten_result(r, log_add_exp(r->b, b_convert(r->b, x, e), b_convert(r->b, y, e)));
}

static bool sum_step(struct rule *r, void *data, value_id iter, const value_id *carried, value_id *next, value_id *scan)
{
    const struct scanned *s = data;
    next[0] = scan[0] = log_add_exp(r->b, carried[0], b_gather(r->b, s->x, iter, 0));
    return next[0].i != 0;
}

/* The last one of equal elements counts, and NaN is beyond all. */
static bool extreme_step(struct rule *r, void *data, value_id iter, const value_id *carried, value_id *next,
                         value_id *scan)
{
    const struct scanned *s = data;
    struct builder *b = r->b;
    value_id x = b_gather(b, s->x, iter, 0), had = carried[0];
    value_id newer = s->max ? b_binary(b, OP_LE, had, x) : b_binary(b, OP_LE, x, had);
    if (v_is_float(b, x))
        newer = b_binary(b, OP_OR, newer, b_unary(b, OP_ISNAN, x));
    next[0] = scan[0] = b_select(b, newer, x, had);
    next[1] = scan[1] = b_select(b, newer, iter, carried[1]);
    return next[0].i && next[1].i;
}

/* n results along the dim, from those of no elements. */
static bool scan_run(struct rule *r, loop_body *body, struct scanned *s, int32_t axis, value_id *from, uint32_t n)
{
    struct builder *b = r->b;
    value_id out[2];
    s->x = v_move_axis(b, s->x, axis, 0);
    struct counted_loop loop = {.trips = b_dim(b, s->x, 0), .body = body, .data = s, .n_carried = n, .n_scan = n};
    if (!s->x.i || !rule_counted_loop(r, &loop, from, out))
        return false;
    for (uint32_t k = 0; k < n; k++)
        aten_out(r, k, v_move_axis(b, out[k], 0, axis));
    return true;
}

/* The operand, and what a reduction gives of no elements along the dim; of rank 0, *axis -1. */
static bool scan_read(struct rule *r, enum elem e, const char *monoid, value_id *x, value_id *none, int32_t *axis)
{
    struct builder *b = r->b;
    *x = b_convert(b, rule_in(r, 0), e);
    if (!x->i || !aten_axis(r, 1, "dim", 0, v_rank(b, *x), axis))
        return false;
    int64_t axes[] = {*axis};
    if (v_rank(b, *x) == 0)
        *axis = -1;
    else
        *none = b_reduce(b, b_slice_axis(b, *x, *axis, ex_const(b->x, 0), ex_const(b->x, 0)), axes, 1, monoid, false);
    return true;
}

bool rule_aten_logcumsumexp(struct rule *r)
{
    struct scanned s = {{0}, false};
    enum elem e = v_elem(r->b, v_widen(r->b, rule_in(r, 0)));
    value_id none;
    int32_t axis;
    if (!scan_read(r, e, "max", &s.x, &none, &axis))
        return false;
    return axis < 0 ? aten_result(r, s.x) : scan_run(r, sum_step, &s, axis, &none, 1);
}

/* The extremes so far and where they are; param: 1 the largest */
bool rule_aten_cumulative_extreme(struct rule *r)
{
    struct builder *b = r->b;
    struct scanned s = {.max = r->param != 0};
    value_id from[2];
    int32_t axis;
    enum elem e = v_elem(b, rule_in(r, 0));
    bool flags = e == ELEM_BOOL;
    if (!scan_read(r, flags ? ELEM_U8 : e, r->param ? "max" : "min", &s.x, &from[0], &axis))
        return false;
    from[1] = axis < 0 ? b_scalar_i64(b, ELEM_I64, 0) : b_convert(b, b_splat_like(b, from[0], 0), ELEM_I64);
    if (axis < 0) {
        rule_out(r, 1, from[1]);
        return rule_result(r, rule_in(r, 0));
    }
    if (!scan_run(r, extreme_step, &s, axis, from, 2))
        return false;
    return !flags || rule_result(r, b_convert(b, r->out[0].v, ELEM_BOOL));
}
