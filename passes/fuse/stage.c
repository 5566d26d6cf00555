/* Which operands a convolution computes for itself: a chunk of points or rows at a time (emit/stage.c), or tile by tile
 * (emit/winograd/transform.c).
 *
 * A map in front of a convolution (the producer's normalisation and activation, a gate per channel) that cannot be the
 * epilogue of what makes its operand would be a kernel of its own, which writes all of it for the convolution to read
 * back. Where the convolution has one tap, each point's channels are wanted by this point alone: the kernel computes
 * them for a chunk of points into scratch, and all its blocks of output channels read them there. A Winograd kernel's
 * input transform reads each element about (m + 2)^2 / m^2 times, for all output channels: few and cheap maps may as
 * well be computed there each time. Other taps read a few rows, which are computed for a chunk of the result's rows.
 *
 * A depthwise convolution needs no channels but its own: there the map may also be what lies between it and a
 * convolution of one tap (the expansion of an inverted residual), which is then computed inside too, strip by strip,
 * where the whole of its result would go through a cache beyond L2.
 */
#include "passes/schedule/decisions.h"
#include "passes/module/winograd.h"

/* Measured on densenet121 and efficientnet_b0: with fewer points or channels, or weights (bytes) that L2 does not
 * hold beside a chunk, the map's own kernel is as fast. The largest extents bound the scratch. */
enum {
    DEPTH_MAX = 8,
    LEAST_POINTS = 96,
    POINTS_MAX = 1 << 24,
    LEAST_CHANNELS = 16,
    CHANNELS_MAX = 4096,
    TILE_MAPS = 6,
    CHAIN_MOST = 32,
    VECTORS_MOST = 8,
    ROW_MOST = 1 << 16
};

/* Is what v is computed from in memory anyway? Not so where the map could be the epilogue of a reduction after it. */
static bool leaves_stored(const struct module *m, value_id v, int depth)
{
    const struct node *n = value_node(m->g, v);
    if (!n || value_is_const(m->g, v) || (depth > 0 && graph_value(m->g, v)->n_uses > 1))
        return true;
    if (n->op == OP_CONCAT && depth > 0)
        return true;
    if (n->op == OP_BROADCAST) /* small, whatever makes it */
        return true;
    if (!op_is_pointwise(n->op) || op_shape(n->op) == SHAPE_INDEX || depth > DEPTH_MAX)
        return false;
    for (uint32_t k = 0; k < n->n_in; k++)
        if (!leaves_stored(m, n->in[k], depth + 1))
            return false;
    return true;
}

/* One tap, all points in order. */
static bool is_pointwise(const struct module *m, const struct node *n)
{
    struct exprs *x = m->ctx->exprs;
    const struct type *w = value_type(m->g, n->in[1]);
    uint32_t c;
    if (n->op != OP_CONV || node_int(n, "groups", 1) != 1 || w->rank < 4 || conv_pixel_lanes(m, n))
        return false;
    const int64_t *strides = node_ints(n, "strides", &c), *xdil = node_ints(n, "xdil", &c);
    const expr_id *lo = node_exprs(n, "lo", &c), *hi = node_exprs(n, "hi", &c);
    for (int32_t d = 0; d < w->rank - 2; d++)
        if (!ex_is(x, w->dims[2 + d], 1) || strides[d] != 1 || xdil[d] != 1 || !ex_is(x, lo[d], 0) ||
            !ex_is(x, hi[d], 0))
            return false;
    return true;
}

/* Fewer points of the result, or channels, than that are not worth it, and weights have to stay in L2 from chunk to
 * chunk. */
static bool is_worth(const struct module *m, const struct node *n)
{
    const struct type *w = value_type(m->g, n->in[1]), *y = value_type(m->g, n->out[0]);
    int64_t weights = 4, points = 1, channels, e;
    for (int32_t d = 0; d < w->rank; d++)
        if (!ex_is_const(m->ctx->exprs, w->dims[d], &e) || !mul_i64(weights, e, &weights))
            return false;
    for (int32_t d = 2; d < y->rank; d++)
        if (!ex_is_const(m->ctx->exprs, y->dims[d], &e) || !mul_i64(points, e, &points))
            return false;
    return points >= LEAST_POINTS && ex_is_const(m->ctx->exprs, value_type(m->g, n->in[0])->dims[1], &channels) &&
           channels >= LEAST_CHANNELS && weights <= budget(module_machine(m), SHARE_L2_PANELS);
}

static bool is_chunked(const struct module *m, const struct kernel *k, value_id v)
{
    struct exprs *x = m->ctx->exprs;
    const struct node *n = graph_node(m->g, k->anchor);
    const struct type *t = value_type(m->g, v);
    int64_t oc, ic, rows, columns, points;
    /* An image of other ranks has more or fewer points than those of the last two dims, which flat tiles number. */
    if (t->rank != 4 || !is_pointwise(m, n) || !ex_is_const(x, value_type(m->g, n->in[1])->dims[0], &oc) ||
        !ex_is_const(x, t->dims[1], &ic) || !ex_is_const(x, t->dims[t->rank - 2], &rows) ||
        !ex_is_const(x, t->dims[t->rank - 1], &columns))
        return false;
    return rows >= 2 && columns >= 2 && ic >= 1 && ic <= CHANNELS_MAX && oc >= 1 && mul_i64(rows, columns, &points) &&
           points <= POINTS_MAX && (m->asked.always || is_worth(m, n));
}

/* What computing v again and again costs: its maps, and the values of its shape that they read. */
struct work {
    uint32_t maps, sources;
    bool dear, ports;
};
static void work_of(const struct module *m, const struct type *shape, value_id v, int depth, struct work *w)
{
    const struct value *value = graph_value(m->g, v);
    const struct node *n = value_node(m->g, v);
    if (!type_same_shape(value_type(m->g, v), shape) || value_is_const(m->g, v) || (n && n->op == OP_BROADCAST))
        return;
    if (!n || !op_is_pointwise(n->op) || (depth > 0 && value->n_uses > 1) || depth > DEPTH_MAX) {
        w->sources++;
        w->ports |= !n;
        return;
    }
    w->maps++;
    w->dear |= op_cost(n->op) != COST_CHEAP;
    for (uint32_t k = 0; k < n->n_in; k++)
        work_of(m, shape, n->in[k], depth + 1, w);
}

/* Is there an element wherever a 3 x 3 convolution has results? Not so in an empty image with enough zeros around
 * it. */
static bool has_elements(const struct module *m, const struct node *n)
{
    struct exprs *x = m->ctx->exprs;
    uint32_t c;
    const expr_id *lo = node_exprs(n, "lo", &c), *hi = node_exprs(n, "hi", &c);
    for (int32_t d = 0; d < 2; d++)
        if (ex_lo(x, value_type(m->g, n->in[0])->dims[2 + d]) < 1 && ex_hi(x, ex_add(x, lo[d], hi[d])) > 2)
            return false;
    return true;
}

/* The tiles of the Winograd form that the kernel will have; 0: it has none, or the map's own kernel is as good. What a
 * caller gives is not laid out for it. */
static uint32_t tiles_wanted(struct module *m, const struct kernel *k, value_id v)
{
    const struct type *t = value_type(m->g, v);
    struct work w = {0};
    uint32_t form = m->asked.layout != LAYOUT_NCHW ? winograd_wanted(m, k) : 0;
    if (!form || !has_elements(m, graph_node(m->g, k->anchor)))
        return 0;
    work_of(m, t, v, 0, &w);
    return !w.ports && (m->asked.always || (w.sources == 1 && w.maps <= TILE_MAPS && !w.dear)) ? form : 0;
}

/* Rows of the operand that a row of results reads, and their bytes, zeros included; 0: not known, or too many. */
static int64_t row_bytes(const struct module *m, const struct node *n, int64_t *rows)
{
    const expr_id zero = ex_const(m->ctx->exprs, 0), point[2] = {zero, zero};
    struct box b;
    int64_t bytes;
    if (!conv_rows_box(m->g, n, point, zero, 1, &b) || !box_elements(&b, 4, &bytes) || !mul_i64(bytes, 4, &bytes) ||
        bytes > budget(module_machine(m), SHARE_L2_ROW_OF_CHANNELS))
        return 0;
    *rows = b.extent[2];
    return bytes;
}

/* May rows of the operand wait in scratch? A convolution of several taps, with results in blocks of channels. */
static bool has_rows(const struct module *m, const struct kernel *k, value_id v)
{
    struct exprs *x = m->ctx->exprs;
    const struct node *n = graph_node(m->g, k->anchor);
    const struct type *t = value_type(m->g, v), *w = value_type(m->g, n->in[1]), *y = value_type(m->g, n->out[0]);
    int64_t rows, columns, oc;
    bool depthwise = conv_depthwise(m->g, n);
    if (n->op != OP_CONV || t->rank != 4 || k->path.n || dot_group(m, n) > 1 || conv_pixel_lanes(m, n) ||
        (depthwise ? t->dims[1].i != y->dims[1].i : node_int(n, "groups", 1) != 1))
        return false;
    const int64_t *xdil = node_ints(n, "xdil", NULL);
    if (!m->asked.always && value_output(m->g, k->outs.data[0]) != UINT32_MAX)
        return false;
    return xdil[0] == 1 && xdil[1] == 1 && ex_is_const(x, t->dims[2], &rows) && ex_is_const(x, y->dims[2], &rows) &&
           rows >= 1 && ex_is_const(x, t->dims[3], &columns) && columns <= ROW_MOST &&
           ex_is_const(x, y->dims[1], &oc) && oc >= CHANNEL_BLOCK / 2 && row_bytes(m, n, &rows) &&
           !(ex_is(x, w->dims[2], 1) && ex_is(x, w->dims[3], 1));
}

static bool is_by_rows(const struct module *m, const struct kernel *k, value_id v)
{
    const struct node *n = graph_node(m->g, k->anchor);
    struct work work = {0};
    if (!leaves_stored(m, v, 0) || !has_rows(m, k, v))
        return false;
    work_of(m, value_type(m->g, v), v, 0, &work);
    return m->asked.always ||
           (!work.ports && work.sources == 1 && work.maps <= TILE_MAPS && !work.dear && is_worth(m, n));
}

/* ---- a convolution of one tap in front --------------------------------------------------------------------------- */

/* What lies between a value and the convolution that it is made of, each with how often others of them read it. */
struct chain {
    value_id at[CHAIN_MOST];
    uint32_t uses[CHAIN_MOST], n;
    node_id product;
};

static bool chain_add(struct chain *c, value_id v)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (c->at[i].i == v.i) {
            c->uses[i]++;
            return true;
        }
    if (c->n == CHAIN_MOST)
        return false;
    c->at[c->n] = v;
    c->uses[c->n++] = 1;
    return true;
}

/* Constants, and what a broadcast of them shows. */
static bool is_fixed(const struct module *m, value_id v)
{
    return value_is_const(m->g, v) || value_op(m->g, v) == OP_BROADCAST;
}

/* Is v made of one convolution and constants by maps of its own shape, none of which anybody else reads? */
static bool chain_of(const struct module *m, value_id v, struct chain *c)
{
    const struct type *shape = value_type(m->g, v);
    if (!chain_add(c, v))
        return false;
    for (uint32_t i = 0; i < c->n; i++) {
        const struct value *value = graph_value(m->g, c->at[i]);
        if (is_fixed(m, c->at[i]))
            continue;
        const struct node *n = value_node(m->g, c->at[i]);
        if (!n || !type_same_shape(value_type(m->g, c->at[i]), shape))
            return false;
        if (n->op == OP_CONV && i > 0 && !c->product.i) {
            c->product = value->def;
            continue;
        }
        if (op_shape(n->op) != SHAPE_MAP)
            return false;
        for (uint32_t k = 0; k < n->n_in; k++)
            if (!chain_add(c, n->in[k]))
                return false;
    }
    for (uint32_t i = 0; i < c->n; i++)
        if (!is_fixed(m, c->at[i]) && graph_value(m->g, c->at[i])->n_uses != c->uses[i])
            return false;
    return c->product.i != 0;
}

/* Rows of the operand that a strip in L2 has, and of those the ones that the next strip has again. */
static void strip_rows(const struct module *m, const struct node *n, const struct type *t, int64_t *rows,
                       int64_t *again)
{
    int64_t span = 1, most = 1, bytes = row_bytes(m, n, &span);
    uint32_t c;
    ex_is_const(m->ctx->exprs, t->dims[2], &most);
    *rows = budget(module_machine(m), SHARE_L2_ROWS) / (bytes / span);
    *again = *rows < most && span > node_ints(n, "strides", &c)[0] ? span - node_ints(n, "strides", &c)[0] : 0;
    *rows = *rows > most ? most : *rows;
}

/* What a step costs at one point and one vector, in thousandths of a cycle, in the best register tile of so many
 * vectors at most. */
static int64_t point_cost(const struct machine *m, int64_t vectors, uint64_t steps)
{
    int64_t least = INT64_MAX;
    for (int64_t nr = 1; nr <= vectors && nr <= VECTORS_MOST && 2 * nr < (int64_t)m->registers; nr++) {
        int64_t points = ((int64_t)m->registers - nr - 1) / nr, /* at least one: its accumulators, weights, broadcast */
            cost = 100 * tile_line_cost(m, points, true, points, nr, steps) / (points * nr);
        least = cost < least ? cost : least;
    }
    return least;
}

/* A strip computes some rows again, and by tiles of one vector, which share no broadcasts: that has to cost less than
 * writing all rows beyond L2 and reading them back. */
static bool is_product_worth(const struct module *m, const struct node *n, const struct node *product)
{
    const struct type *t = value_type(m->g, n->in[0]);
    int64_t bytes = elem_size(t->elem), steps = 0, channels = 1, rows, again, e;
    for (int32_t d = 1; d < t->rank; d++)
        if (!ex_is_const(m->ctx->exprs, t->dims[d], &e) || !mul_i64(bytes, e, &bytes))
            return false;
    ex_is_const(m->ctx->exprs, value_type(m->g, product->in[1])->dims[1], &steps);
    ex_is_const(m->ctx->exprs, t->dims[1], &channels);
    strip_rows(m, n, t, &rows, &again);
    const struct machine *mach = module_machine(m);
    int64_t narrow = point_cost(mach, 1, (uint64_t)steps),
            wide = point_cost(mach, (channels * 4 + mach->vector_bytes - 1) / mach->vector_bytes, (uint64_t)steps);
    return bytes > budget(mach, SHARE_L2_STRIPS) && rows > again &&
           steps * (rows * narrow - (rows - again) * wide) <= (rows - again) * 100 * 2 * RATE_STEP_L3_LINE;
}

/* The convolution that the kernel computes as well to have v by strips; {0}: none. */
static node_id strips_of(const struct module *m, const struct kernel *k, value_id v)
{
    const struct node *n = graph_node(m->g, k->anchor);
    struct chain c = {.n = 0};
    int64_t channels;
    if (!conv_depthwise(m->g, n) || !has_rows(m, k, v) || !chain_of(m, v, &c))
        return (node_id){0};
    const struct node *product = graph_node(m->g, c.product);
    const struct type *x = value_type(m->g, product->in[0]);
    bool fits = is_pointwise(m, product) && value_is_const(m->g, product->in[1]) && x->elem == ELEM_F32 &&
                value_type(m->g, product->out[0])->elem == ELEM_F32 && dot_group(m, product) == 1 &&
                ex_is_const(m->ctx->exprs, x->dims[1], &channels) && channels >= 1 && channels <= CHANNELS_MAX;
    return fits && (m->asked.always || is_product_worth(m, n, product)) ? c.product : (node_id){0};
}

bool stage_adopts(const struct module *m, const struct kernel *k, node_id product)
{
    return k->form.staged.i && !k->form.winograd && k->kind == KERNEL_CONTRACT &&
           strips_of(m, k, k->form.staged).i == product.i;
}

bool stage_wanted(struct module *m, struct kernel *k, value_id v)
{
    const struct node *n = graph_node(m->g, k->anchor);
    enum elem elem = value_type(m->g, v)->elem;
    if (m->asked.opt_level == 0 || k->kind != KERNEL_CONTRACT || n->in[0].i != v.i ||
        graph_value(m->g, v)->n_uses != 1 || (elem != ELEM_F32 && (elem != ELEM_BF16 || dot_group(m, n) == 1)))
        return false;
    if (module_machine(m)->tiles && elem == ELEM_BF16 && !conv_by_taps(m, n)) /* tile registers read memory */
        return false;
    bool stored = leaves_stored(m, v, 0), chunked = stored && is_chunked(m, k, v);
    uint32_t form = chunked || !stored ? 0 : tiles_wanted(m, k, v);
    if (!chunked && !form && !is_by_rows(m, k, v) && !strips_of(m, k, v).i)
        return false;
    k->form.staged = v;
    k->form.winograd = form;
    return true;
}
