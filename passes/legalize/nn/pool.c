/* Pooling: MaxPool with indices, AveragePool, LpPool, global forms, MaxUnpool, LRN's neighbours.
 *
 * ceil_mode keeps partial windows at the end but not those that would begin in the end padding (AveragePool-22;
 * earlier versions say nothing, and implementations agree). Without it, what is smaller than a window by less than the
 * stride is one partial window all the same, and none by less than twice the stride: the quotient of the sizes is
 * rounded towards 0 by ONNX's shape inference and by ONNX Runtime, though the text has a floor.
 */
#include "passes/legalize/driver.h"
#include "passes/legalize/nn/window.h"

enum {
    BETWEEN = 4,             /* a store and a load, in elements that are compared */
    PICKED = 3,              /* one whose neighbour is not compared: two loads and a shuffle */
    MOST_APART = 8,          /* farther, and each is a load of its own */
    NEAR_BYTES = 512 * 1024, /* that any L2 holds with the rest */
};

struct pool {
    struct spatial s;
    int64_t kernel[RANK_MAX];
    expr_id hi_pad[RANK_MAX];      /* the end padding as the attributes say, before ceil_mode extends it */
    bool padded, extended;         /* any padding; any partial window at the end */
    bool partial;                  /* at some sizes of the run, one partial window is all of a dim */
};

/* The one partial window of dim i, if it is smaller than a window: extends the dim's end for it. At an open size by as
 * much as the run's needs: then room, which the number of windows is computed from, is max(room, min(0, room + most)).
 */
static void pool_partial(struct rule *r, struct pool *p, int32_t i, expr_id size, expr_id reach)
{
    struct exprs *ex = r->b->x;
    int64_t stride = p->s.strides[i], n, room;
    expr_id left = spatial_room(ex, &p->s, i, size, reach), gap = ex_sub(ex, size, left);
    if (ex_is_const(ex, left, &room) && ex_is_const(ex, size, &n)) {
        if (n < 1 || room >= 0 || room <= -2 * stride)
            return;
        p->s.hi[i] = ex_addc(ex, p->s.hi[i], room > -stride ? -room : -stride - room); /* one window, else none */
        p->extended |= room > -stride;
        return;
    }
    expr_id most = ex_min(ex, ex_const(ex, stride - 1), ex_addc(ex, gap, -1)); /* more is missing: no window */
    expr_id zero = ex_const(ex, 0), up_to = ex_max(ex, left, ex_min(ex, zero, ex_add(ex, left, most)));
    if (ex_lo(ex, left) >= 0 || ex_hi(ex, most) <= 0)
        return;
    p->s.hi[i] = ex_add(ex, p->s.hi[i], ex_sub(ex, up_to, left));
    p->partial = true;
}

static bool pool_read(struct rule *r, value_id x, struct pool *p)
{
    uint32_t n;
    const struct dims dims = b_dims(r->b, x);
    const int64_t *kernel = rule_ints(r, "kernel_shape", &n);
    bool ceil_mode = rule_int(r, "ceil_mode", 0) != 0;
    *p = (struct pool){.padded = false};
    if (!dims.d)
        return false;
    if (dims.rank < 3 || n != (uint32_t)dims.rank - 2)
        return rule_bad(r, "kernel_shape has %u entries for an input of rank %d", n, (int)dims.rank);
    if (!spatial_read(r, dims.rank - 2, &p->s))
        return false;
    for (int32_t i = 0; i < p->s.n; i++) {
        p->kernel[i] = kernel[i];
        if (kernel[i] < 1)
            return rule_bad(r, "kernel_shape holds %lld", (long long)kernel[i]);
        expr_id size = dims.d[2 + i], reach = spatial_reach(r->b->x, &p->s, i, ex_const(r->b->x, kernel[i]));
        spatial_same(r->b->x, &p->s, i, size, reach);
        if (p->s.pad == PAD_NOTSET &&
            (ex_cmp_le(r->b->x, reach, p->s.lo[i]) == TRUE_ || ex_cmp_le(r->b->x, reach, p->s.hi[i]) == TRUE_))
            return rule_bad(r, "pads of dimension %d reach as far as the kernel: windows of padding alone", (int)i + 2);
        p->hi_pad[i] = p->s.hi[i];
        p->padded |= !ex_is(r->b->x, p->s.lo[i], 0) || !ex_is(r->b->x, p->s.hi[i], 0);
        if (!ceil_mode && p->s.pad <= PAD_VALID)
            pool_partial(r, p, i, size, reach);
        spatial_warn_empty(r, i, size, spatial_room(r->b->x, &p->s, i, size, reach), p->s.strides[i]);
        if (!ceil_mode || p->s.pad != PAD_NOTSET)
            continue;
        expr_id stride = ex_const(r->b->x, p->s.strides[i]), ahead = ex_add(r->b->x, size, p->s.lo[i]);
        expr_id room = ex_sub(r->b->x, ex_add(r->b->x, ahead, p->s.hi[i]), reach);
        expr_id last = ex_ceildiv(r->b->x, room, stride); /* index of the last window */
        last = ex_min(r->b->x, last, ex_div(r->b->x, ex_addc(r->b->x, ahead, -1), stride));
        expr_id need = ex_sub(r->b->x, ex_add(r->b->x, ex_mulc(r->b->x, last, p->s.strides[i]), reach), ahead);
        p->s.hi[i] = ex_max(r->b->x, need, ex_const(r->b->x, 0));
        p->extended |= ex_cmp_le(r->b->x, p->s.hi[i], p->hi_pad[i]) != TRUE_;
    }
    return true;
}

static value_id pool_window(struct builder *b, enum op op, value_id x, const struct pool *p, const char *monoid)
{
    uint32_t n = (uint32_t)p->s.n;
    struct attr attrs[] = {
        attr_ints("kernel", p->kernel, n), attr_ints("strides", p->s.strides, n),     attr_exprs("lo", p->s.lo, n),
        attr_exprs("hi", p->s.hi, n),      attr_ints("dilations", p->s.dilations, n), attr_str("monoid", monoid),
    };
    return b_op(b, op, &x, 1, attrs, op == OP_WINDOW ? 6 : 5);
}

/* ---- MaxPool --------------------------------------------------------------------------------------------------- */

/* Bytes of x where MaxPool reads a port and writes one, so both are row-major: what a convolution reads would lie in
 * blocks of channels. -1: it does not, or the size is open. */
static int64_t port_bytes(const struct rule *r, value_id x)
{
    const struct type *t = value_type(r->b->g, x);
    int64_t bytes = elem_size(t->elem), n;
    bool known = !value_node(r->b->g, x) && rule_wants(r, 0) &&
                 value_output(r->lg->from, r->node->out[0]) != UINT32_MAX;
    for (int32_t d = 0; d < t->rank && known; d++)
        known = ex_is_const(r->b->x, t->dims[d], &n) && mul_i64(bytes, n, &bytes);
    return known ? bytes : -1;
}

/* The largest element of each window: along the last dim first, then along the others, where that is less work. 5 x 5
 * elements a result are 5 and 5, and the largest ones along the last dim stored and loaded in between. Between ports,
 * where windows are strides apart along the last dim, the others come first: those are vectors as memory has them, and
 * only the few that are left are picked out of two vectors each, in place of all. What lies in between has to stay
 * near.
 */
static value_id max_window(struct rule *r, value_id x, const struct pool *p)
{
    struct builder *b = r->b;
    struct pool last = *p, others = *p;
    int32_t n = p->s.n;
    int64_t whole = 1, rows = 1, lines = 1, bytes = port_bytes(r, x);
    for (int32_t i = 0; i < n; i++) {
        struct pool *none = i + 1 < n ? &last : &others;
        none->kernel[i] = none->s.strides[i] = none->s.dilations[i] = 1;
        none->s.lo[i] = none->s.hi[i] = ex_const(b->x, 0);
        bool fits = mul_i64(whole, p->kernel[i], &whole);
        if (i + 1 < n)
            fits = fits && mul_i64(rows, p->kernel[i], &rows) && mul_i64(lines, p->s.strides[i], &lines);
        if (!fits || whole > INT32_MAX || lines > INT32_MAX)
            return pool_window(b, OP_WINDOW, x, p, "max");
    }
    int64_t width = p->kernel[n - 1], apart = p->s.strides[n - 1];
    if (n > 1 && apart > 1 && apart < MOST_APART && bytes >= 0 && bytes / lines <= NEAR_BYTES &&
        4 * (rows * apart + BETWEEN + PICKED * width) <= 3 * PICKED * whole)
        return pool_window(b, OP_WINDOW, pool_window(b, OP_WINDOW, x, &others, "max"), &last, "max");
    if (n < 2 || 3 * (width * lines + rows + BETWEEN) > 2 * whole)
        return pool_window(b, OP_WINDOW, x, p, "max");
    return pool_window(b, OP_WINDOW, pool_window(b, OP_WINDOW, x, &last, "max"), &others, "max");
}

/* Flat positions within one channel -> positions in the whole tensor, or column-major ones within it. */
static value_id pool_positions(struct builder *b, value_id x, value_id at, bool column_major)
{
    const struct dims d = b_dims(b, x), dy = b_dims(b, at);
    if (!d.d || !dy.d)
        return (value_id){0};
    expr_id plane = dims_product(b->x, d.d + 2, d.rank - 2), before = ex_const(b->x, 1);
    value_id n = v_iota(b, ELEM_I64, dy.d, d.rank, 0), c = v_iota(b, ELEM_I64, dy.d, d.rank, 1);
    value_id channel = b_binary(b, OP_ADD, b_binary(b, OP_MUL, n, v_expr(b, ELEM_I64, d.d[1])), c);
    value_id base = b_binary(b, OP_MUL, channel, v_expr(b, ELEM_I64, plane));
    if (!column_major)
        return b_binary(b, OP_ADD, base, at);
    expr_id after = plane;
    for (int32_t i = 2; i < d.rank; i++) { /* coordinate i of the position, times the sizes before it */
        after = ex_div(b->x, after, d.d[i]);
        value_id coord = b_binary(b, OP_DIV, at, v_expr(b, ELEM_I64, after));
        coord = b_binary(b, OP_MOD, coord, v_expr(b, ELEM_I64, d.d[i]));
        base = b_binary(b, OP_ADD, base, b_binary(b, OP_MUL, coord, v_expr(b, ELEM_I64, before)));
        before = ex_mul(b->x, before, d.d[i]);
    }
    return base;
}

/* The row's parameter: com.microsoft NhwcMaxPool, whose channels are last. */
bool rule_max_pool(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0);
    struct pool p;
    if (r->param)
        x = v_channels_first(b, x);
    if (!x.i || !pool_read(r, x, &p))
        return false;
    if (r->param)
        return rule_result(r, v_channels_last(b, max_window(r, x, &p)));
    rule_out(r, 0, max_window(r, x, &p));
    if (rule_wants(r, 1))
        rule_out(r, 1,
                 pool_positions(b, x, pool_window(b, OP_ARGWINDOW, x, &p, ""), rule_int(r, "storage_order", 0) != 0));
    return true;
}

/* Values go to the positions that MaxPool reported; a larger output_shape is zero-filled at the end. */
bool rule_max_unpool(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0), at = rule_in(r, 1);
    uint32_t n;
    const struct dims d = b_dims(b, x);
    const int64_t *kernel = rule_ints(r, "kernel_shape", &n);
    struct spatial s;
    expr_id out[RANK_MAX], zero = ex_const(b->x, 0), lo[RANK_MAX], hi[RANK_MAX], count = b_count(b, x);
    if (!d.d || !at.i || !spatial_read(r, d.rank - 2, &s))
        return false;
    if (n != (uint32_t)s.n)
        return rule_bad(r, "kernel_shape has %u entries", n);
    for (int32_t i = 0; i < d.rank; i++) {
        out[i] = d.d[i];
        if (i >= 2) {
            expr_id size = ex_addc(b->x, ex_mulc(b->x, ex_addc(b->x, d.d[i], -1), s.strides[i - 2]), kernel[i - 2]);
            out[i] = ex_sub(b->x, ex_sub(b->x, size, s.lo[i - 2]), s.hi[i - 2]);
        }
    }
    value_id whole = b_splat_f64(b, v_elem(b, x), 0, out, d.rank);
    expr_id total = b_count(b, whole);
    value_id in[3] = {b_reshape(b, whole, &total, 1), b_reshape(b, at, &count, 1), b_reshape(b, x, &count, 1)};
    value_id y = b_reshape(b, b_scatter_elements(b, in[0], in[1], in[2], 0, "set"), out, d.rank);
    if (rule_has(r, 2)) {
        const expr_id *want = b_elems(b, v_exactly(b, rule_in(r, 2), (uint32_t)d.rank), 0, INT32_MAX, &n);
        if (!want || n != (uint32_t)d.rank)
            return want ? rule_bad(r, "output_shape has %u entries", n) : false;
        for (int32_t i = 0; i < d.rank; i++) {
            lo[i] = zero;
            hi[i] = ex_sub(b->x, want[i], out[i]);
            if (ex_hi(b->x, hi[i]) < 0)
                return rule_bad(r, "output_shape is smaller than the unpooled size");
            if (ex_lo(b->x, hi[i]) < 0)
                b_assert(b, ex_le(b->x, zero, hi[i]), -2, "output_shape is smaller than the unpooled size");
        }
        y = b_pad(b, y, (value_id){0}, lo, hi, "constant");
    }
    return rule_result(r, y);
}

/* ---- averages --------------------------------------------------------------------------------------------------- */

/* How many elements the windows of an unpadded tensor average over, where a dim may have one partial window. */
static value_id pool_count_partial(struct builder *b, const expr_id *d, enum elem e, const struct pool *p)
{
    expr_id count = ex_const(b->x, 1);
    for (int32_t i = 0; i < p->s.n; i++) {
        expr_id taps = ex_ceildiv(b->x, ex_max(b->x, d[2 + i], ex_const(b->x, 1)), ex_const(b->x, p->s.dilations[i]));
        count = ex_mul(b->x, count, ex_min(b->x, taps, ex_const(b->x, p->kernel[i])));
    }
    return b_convert(b, v_expr(b, ELEM_I64, count), e);
}

/* How many elements each window averages over; {0} when that is the kernel's size everywhere (*all). */
static value_id pool_counts(struct rule *r, value_id x, enum elem e, const struct pool *p, bool include, double *all)
{
    struct builder *b = r->b;
    const struct dims d = b_dims(b, x);
    *all = 1;
    for (int32_t i = 0; i < p->s.n; i++)
        *all *= (double)p->kernel[i];
    if (!p->extended && !p->partial && (include || !p->padded))
        return (value_id){0};
    if (!p->extended && !p->padded)
        return pool_count_partial(b, d.d, e, p);
    expr_id dims[RANK_MAX], one = ex_const(b->x, 1), zero = ex_const(b->x, 0);
    struct pool counted = *p;
    dims[0] = dims[1] = one;
    for (int32_t i = 0; i < p->s.n; i++) {
        dims[2 + i] = d.d[2 + i];
        if (!include)
            continue;
        expr_id hi = ex_min(b->x, p->hi_pad[i], p->s.hi[i]); /* the padding counts, what ceil_mode adds does not */
        dims[2 + i] = ex_add(b->x, d.d[2 + i], ex_add(b->x, p->s.lo[i], hi));
        counted.s.lo[i] = zero;
        counted.s.hi[i] = ex_sub(b->x, p->s.hi[i], hi);
    }
    return pool_window(b, OP_WINDOW, b_splat_f64(b, e, 1, dims, d.rank), &counted, "sum");
}

static value_id pool_averages(struct rule *r, value_id x)
{
    struct builder *b = r->b;
    struct pool p;
    double all;
    if (!x.i || !pool_read(r, x, &p))
        return (value_id){0};
    value_id sum = pool_window(b, OP_WINDOW, x, &p, "sum");
    value_id n = pool_counts(r, x, v_elem(b, x), &p, rule_int(r, "count_include_pad", 0) != 0, &all);
    return n.i ? b_binary(b, OP_DIV, sum, n) : b_binary_f64(b, OP_DIV, sum, all);
}

bool rule_average_pool(struct rule *r)
{
    value_id x = rule_in(r, 0);
    return rule_result(r, b_convert(r->b, pool_averages(r, v_widen(r->b, x)), v_elem(r->b, x)));
}

/* com.microsoft: operands x, scale, zero, result's scale and zero; the average of the dequantized x. */
bool rule_qlinear_average_pool(struct rule *r)
{
    bool last = rule_int(r, "channels_last", 0) != 0;
    value_id x = rule_dequantized(r, 0), y = pool_averages(r, last ? v_channels_first(r->b, x) : x);
    if (last)
        y = v_channels_last(r->b, y);
    return y.i && rule_result(r, rule_quantized(r, y, 3, v_elem(r->b, rule_in(r, 0)), ZERO_THEN_ROUND));
}

static value_id lp_inner(struct builder *b, value_id x, double p)
{
    value_id a = b_unary(b, OP_ABS, x);
    return p == 1 ? a : p == 2 ? b_binary(b, OP_MUL, x, x) : b_binary_f64(b, OP_POW, a, p);
}

static value_id lp_outer(struct builder *b, value_id x, double p)
{
    return p == 1 ? x : p == 2 ? b_unary(b, OP_SQRT, x) : b_binary_f64(b, OP_POW, x, 1 / p);
}

/* p is a float in version 1, an integer later. */
static double lp_power(const struct rule *r)
{
    const struct attr *a = node_attr(r->node, "p");
    return !a ? 2 : a->kind == ATTR_FLOAT ? a->u.f : (double)a->u.i;
}

bool rule_lp_pool(struct rule *r)
{
    struct builder *b = r->b;
    value_id in = rule_in(r, 0), x = v_widen(b, in);
    struct pool p;
    if (!x.i || !pool_read(r, x, &p))
        return false;
    value_id y = lp_outer(b, pool_window(b, OP_WINDOW, lp_inner(b, x, lp_power(r)), &p, "sum"), lp_power(r));
    return rule_result(r, b_convert(b, y, v_elem(b, in)));
}

/* The row's parameter: 0 average, 1 max, 2 Lp. */
bool rule_global_pool(struct rule *r)
{
    struct builder *b = r->b;
    value_id in = rule_in(r, 0), x = v_widen(b, in), y;
    int64_t axes[RANK_MAX];
    int32_t rank = v_rank(b, x);
    if (rank < 3)
        return x.i ? rule_bad(r, "input of rank %d", (int)rank) : false;
    for (int32_t i = 2; i < rank; i++)
        axes[i - 2] = i;
    uint32_t n = (uint32_t)rank - 2;
    if (r->param == 0)
        y = b_mean(b, x, axes, n, true);
    else if (r->param == 1)
        y = b_reduce(b, x, axes, n, "max", true);
    else
        y = lp_outer(b, b_reduce(b, lp_inner(b, x, lp_power(r)), axes, n, "sum", true), lp_power(r));
    return rule_result(r, b_convert(b, y, v_elem(b, in)));
}

/* x / (bias + alpha / size * sum of squares over neighbouring channels) ^ beta. */
bool rule_lrn(struct rule *r)
{
    struct builder *b = r->b;
    value_id in = rule_in(r, 0), x = v_widen(b, in);
    int32_t rank = v_rank(b, x);
    int64_t size = rule_int(r, "size", 0);
    struct pool p = {.s = {.n = rank - 1}};
    if (!x.i)
        return false;
    if (rank < 2 || size < 1)
        return rule_bad(r, "rank %d, size %lld", (int)rank, (long long)size);
    for (int32_t i = 0; i < rank - 1; i++) {
        p.kernel[i] = i ? 1 : size;
        p.s.strides[i] = p.s.dilations[i] = 1;
        p.s.lo[i] = ex_const(b->x, i ? 0 : (size - 1) / 2);
        p.s.hi[i] = ex_const(b->x, i ? 0 : size - 1 - (size - 1) / 2);
    }
    value_id sum = pool_window(b, OP_WINDOW, b_binary(b, OP_MUL, x, x), &p, "sum");
    value_id base = v_affine(b, sum, rule_float(r, "alpha", 0.0001) / (double)size, rule_float(r, "bias", 1));
    value_id y = b_binary(b, OP_DIV, x, b_binary_f64(b, OP_POW, base, rule_float(r, "beta", 0.75)));
    return rule_result(r, b_convert(b, y, v_elem(b, in)));
}
