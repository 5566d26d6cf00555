/* Which operands a convolution computes for itself, a chunk of points at a time (emit_stage.c) or tile by tile (emit_winograd.c).
 *
 * A map in front of a convolution (the producer's normalisation and activation, a gate per channel) that cannot be the
 * epilogue of what makes its operand would be a kernel of its own, which writes all of it for the convolution to read
 * back. Where the convolution has one tap, each point's channels are wanted by this point alone: the kernel computes
 * them for a chunk of points into scratch, and all its blocks of output channels read them there. A Winograd kernel's input
 * transform reads each element about (m + 2)^2 / m^2 times, for all output channels: few and cheap maps may as well be
 * computed there each time.
 */
#include "passes/access.h"
#include "passes/kernel.h"
#include "passes/winograd.h"

/* Measured on densenet121 and efficientnet_b0: with fewer points or channels, or weights (bytes) that the second cache does not
 * hold beside a chunk, the map's own kernel is as fast. The largest extents bound the scratch. */
enum { DEPTH_MAX = 8, LEAST_POINTS = 96, POINTS_MAX = 1 << 24, LEAST_CHANNELS = 16, CHANNELS_MAX = 4096, WEIGHTS_MAX = 640 << 10,
       TILE_MAPS = 6 };

/* Is what v is computed from in memory anyway? Not so where the map could be the epilogue of a reduction behind it. */
static bool leaves_stored(const struct module *m, value_id v, int depth)
{
    const struct value *value = graph_value(m->g, v);
    if (!value->def.i || value_is_const(m->g, v) || (depth > 0 && value->n_uses > 1))
        return true;
    const struct node *n = graph_node(m->g, value->def);
    if (n->op == OP_CONCAT && depth > 0)
        return true;
    if (n->op == OP_BROADCAST)   /* small, whatever makes it */
        return true;
    if (op_shape(n->op) != SHAPE_MAP || n->op == OP_GATHER || n->op == OP_GATHER_ELEMENTS || n->op == OP_GATHER_ND || depth > DEPTH_MAX)
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
    if (n->op != OP_CONV || node_int(n, "groups", 1) != 1 || w->rank < 4 || dot_group(m, n) > 1 || conv_pixel_lanes(m, n))
        return false;
    const int64_t *strides = node_ints(n, "strides", &c), *xdil = node_ints(n, "xdil", &c);
    const expr_id *lo = node_exprs(n, "lo", &c), *hi = node_exprs(n, "hi", &c);
    for (int32_t d = 0; d < w->rank - 2; d++)
        if (!ex_is(x, w->dims[2 + d], 1) || strides[d] != 1 || xdil[d] != 1 || !ex_is(x, lo[d], 0) || !ex_is(x, hi[d], 0))
            return false;
    return true;
}

/* Fewer points or channels than that are not worth it, and weights have to stay in the second cache from chunk to chunk. */
static bool is_worth(int64_t points, int64_t ic, int64_t oc)
{
    int64_t bytes;
    return points >= LEAST_POINTS && ic >= LEAST_CHANNELS && mul_i64(oc, ic, &bytes) && mul_i64(bytes, 4, &bytes) && bytes <= WEIGHTS_MAX;
}

static bool is_chunked(const struct module *m, const struct kernel *k, value_id v)
{
    struct exprs *x = m->ctx->exprs;
    const struct node *n = graph_node(m->g, k->anchor);
    const struct type *t = value_type(m->g, v);
    int64_t oc, ic, rows, columns, points;
    if (!is_pointwise(m, n) || !ex_is_const(x, value_type(m->g, n->in[1])->dims[0], &oc) || !ex_is_const(x, t->dims[1], &ic) ||
        !ex_is_const(x, t->dims[t->rank - 2], &rows) || !ex_is_const(x, t->dims[t->rank - 1], &columns))
        return false;
    return rows >= 2 && columns >= 2 && ic >= 1 && ic <= CHANNELS_MAX && oc >= 1 && mul_i64(rows, columns, &points) && points <= POINTS_MAX &&
           (m->always || is_worth(points, ic, oc));
}

/* What computing v again and again costs: its maps, and the values of its shape that they read. */
struct work { uint32_t maps, sources; bool dear, ports; };
static void work_of(const struct module *m, const struct type *shape, value_id v, int depth, struct work *w)
{
    const struct value *value = graph_value(m->g, v);
    const struct node *n = value->def.i ? graph_node(m->g, value->def) : NULL;
    if (!type_same_shape(value_type(m->g, v), shape) || value_is_const(m->g, v) || (n && n->op == OP_BROADCAST))
        return;
    if (!n || op_shape(n->op) != SHAPE_MAP || (depth > 0 && value->n_uses > 1) || depth > DEPTH_MAX) {
        w->sources++;
        w->ports |= !n;
        return;
    }
    w->maps++;
    w->dear |= op_is_expensive(n->op);
    for (uint32_t k = 0; k < n->n_in; k++)
        work_of(m, shape, n->in[k], depth + 1, w);
}

/* Is there an element wherever a 3 x 3 convolution has results? Not so in an empty image with enough zeros around it. */
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

/* The tiles of the Winograd form that the kernel will have; 0: it has none, or the map's own kernel is as good. What a caller gives is
 * not laid out for it. */
static uint32_t tiles_wanted(const struct module *m, const struct kernel *k, value_id v)
{
    const struct type *t = value_type(m->g, v);
    struct work w = {0};
    uint32_t form = m->layout != LAYOUT_NCHW ? winograd_wanted(m, k) : 0;
    if (!form || !has_elements(m, graph_node(m->g, k->anchor)))
        return 0;
    work_of(m, t, v, 0, &w);
    return !w.ports && (m->always || (w.sources == 1 && w.maps <= TILE_MAPS && !w.dear)) ? form : 0;
}

bool stage_wanted(const struct module *m, struct kernel *k, value_id v)
{
    const struct node *n = graph_node(m->g, k->anchor);
    if (m->opt_level == 0 || k->kind != KERNEL_CONTRACT || n->in[0].i != v.i || graph_value(m->g, v)->n_uses != 1 ||
        value_type(m->g, v)->elem != ELEM_F32 || !leaves_stored(m, v, 0))
        return false;
    bool chunked = is_chunked(m, k, v);
    uint32_t form = chunked ? 0 : tiles_wanted(m, k, v);
    if (!chunked && !form)
        return false;
    k->staged = v;
    k->winograd = form;
    return true;
}
