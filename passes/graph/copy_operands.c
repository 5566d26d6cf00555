/* copy-operands: operands that kernels want in another order than they lie in get a copy, which is a kernel.
 *
 * - The second operand of a contraction, if its last free dim is not where memory is contiguous.
 * - The first one, if what it sums over are several dims of what is stored.
 * - A padded convolution's operand that is a port or a view: a copy can have a halo, and blocks of channels.
 * - That of a convolution of bytes, if groups of channels lie apart.
 * - The result of a convolution, where an output's channels lie whole KiB apart: see is_scattered.
 * For most graphs with products or convolutions of what is not a kernel's result: it changes 79 of the 554 networks of
 * ../shared/models that compile. In and out: a legal graph; comes right before fuse.
 */
#include "passes/module/attention.h"
#include "passes/module/analysis.h"

enum { ALIGNED = 16 }; /* lanes of the widest vector */

/* A cache that grows, say: an output has a place, and is not a view then. */
static bool is_stored_concat(const struct module *m, value_id v)
{
    return value_op(m->g, v) == OP_CONCAT && value_output(m->g, v) != UINT32_MAX;
}

/* Dim `dim` of v, along which the lanes of a product lie, on its way through views to what is stored. */
struct lanes {
    value_id v;
    int32_t dim;
    bool sliced, repeated; /* a slice, a broadcast was on the way */
};

/* The last dim of a reshape's operand that its last one is a whole part of; -1: it is none. */
static int32_t row_behind(const struct module *m, const struct node *reshape, int32_t dim)
{
    const struct type *from = value_type(m->g, reshape->in[0]), *to = value_type(m->g, reshape->out[0]);
    int64_t have, want;
    bool part = dim == to->rank - 1 && from->rank > 0 &&
                ex_is_const(m->ctx->exprs, from->dims[from->rank - 1], &have) &&
                ex_is_const(m->ctx->exprs, to->dims[dim], &want) && want >= 1 && have % want == 0;
    return part ? from->rank - 1 : -1;
}

/* One view on. False: it is not a view, or lanes are not neighbours there. Only `in_place`: broadcasts along other
 * dims, slices and parts of rows in which the lanes of a register stay aligned. */
static bool lanes_step(const struct module *m, struct lanes *l, bool in_place)
{
    const struct node *n = value_node(m->g, l->v);
    int32_t of[RANK_MAX], to = l->dim;
    uint32_t count;
    int64_t start;
    if (!n || !view_is_whole(n->op) || (n->op == OP_BROADCAST && !in_place) || !source_dims(m->g, n, 0, of))
        return false;
    if (n->op != OP_SLICE) {
        to = of[l->dim];
        if (in_place && n->op == OP_RESHAPE)
            to = row_behind(m, n, l->dim);
    } else if (!in_place || node_ints(n, "steps", &count)[to] != 1 ||
               !ex_is_const(m->ctx->exprs, node_exprs(n, "starts", &count)[to], &start) || start % ALIGNED) {
        return false;
    }
    if (to < 0)
        return false;
    *l = (struct lanes){n->in[0], to, l->sliced || n->op == OP_SLICE, l->repeated || n->op == OP_BROADCAST};
    return true;
}

/* Is dim `dim` of v where memory is contiguous? */
static bool lanes_contiguous(const struct module *m, value_id v, int32_t dim)
{
    struct lanes l = {.v = v, .dim = dim};
    while (lanes_step(m, &l, false))
        ;
    return l.dim == value_type(m->g, l.v)->rank - 1 &&
           (op_shape(value_op(m->g, l.v)) != SHAPE_VIEW || is_stored_concat(m, l.v));
}

/* Does v show slices of something row-major that a kernel stores, or a stored value or input whose heads are repeated,
 * so that an attention may read it there? */
static bool lanes_in_place(const struct module *m, value_id v, int32_t dim)
{
    struct lanes l = {.v = v, .dim = dim};
    while ((l.sliced || !is_stored_concat(m, l.v)) && lanes_step(m, &l, true))
        ;
    bool made = graph_value(m->g, l.v)->def.i,
         stored = made && (op_shape(value_op(m->g, l.v)) != SHAPE_VIEW || (!l.sliced && is_stored_concat(m, l.v)));
    return l.dim == value_type(m->g, l.v)->rank - 1 &&
           (stored ? l.sliced || l.repeated : !made && l.repeated && !l.sliced);
}

/* Lanes lie along the last free dim of the second operand; an attention may read its values in place. */
static bool lanes_apart(const struct module *m, node_id id)
{
    const struct node *n = graph_node(m->g, id);
    int32_t free_dim[RANK_MAX], n_free = dot_free(m->g, n, 1, free_dim);
    return n_free > 0 && !lanes_contiguous(m, n->in[1], free_dim[n_free - 1]) &&
           !(attention_of_values(m, id) && lanes_in_place(m, n->in[1], free_dim[n_free - 1]));
}

static bool is_padded(const struct module *m, const struct node *n)
{
    uint32_t c;
    const expr_id *lo = node_exprs(n, "lo", &c), *hi = node_exprs(n, "hi", &c);
    for (uint32_t d = 0; d < c; d++)
        if (!ex_is(m->ctx->exprs, lo[d], 0) || !ex_is(m->ctx->exprs, hi[d], 0))
            return true;
    return false;
}

/* Does the contracted dim of a run over several dims of what is stored (a flattened feature map)? A part of one dim
 * does not. */
static bool flattened(const struct module *m, const struct node *n)
{
    value_id a = n->in[0];
    if (value_op(m->g, a) != OP_RESHAPE)
        return false;
    value_id from = value_node(m->g, a)->in[0];
    const struct type *t = value_type(m->g, from), *to = value_type(m->g, a);
    int32_t last = t->rank - 1;
    while (last > 0 && ex_is(m->ctx->exprs, t->dims[last], 1))
        last--;
    if (t->rank < 1 || to->rank < 1)
        return false;
    expr_id have = t->dims[last], part = to->dims[to->rank - 1];
    return have.i != part.i &&
           !(ex_lo(m->ctx->exprs, part) >= 1 && ex_is(m->ctx->exprs, ex_mod(m->ctx->exprs, have, part), 0));
}

/* Pairs of channels, or fours, that lie apart in what is stored, a channel shuffle say, would be put together one by
 * one for each tile. */
static bool groups_apart(const struct module *m, const struct node *n)
{
    uint32_t group = dot_group(m, n), count;
    int64_t start;
    if (n->op != OP_CONV || group == 1)
        return false;
    for (const struct node *view = value_node(m->g, n->in[0]); view; view = value_node(m->g, view->in[0])) {
        if (view->op == OP_TRANSPOSE || view->op == OP_RESHAPE)
            return true;
        if (view->op != OP_SLICE && view->op != OP_IDENTITY)
            return false;
        if (view->op == OP_SLICE &&
            (node_ints(view, "steps", &count)[1] != 1 ||
             !ex_is_const(m->ctx->exprs, node_exprs(view, "starts", &count)[1], &start) || start % group))
            return true;
    }
    return false;
}

static void operand_copy(struct module *m, node_id id, uint32_t k)
{
    value_id v = graph_node(m->g, id)->in[k];
    struct builder b = builder_before(m->g, id);
    graph_set_operand(m->g, id, k, b_copy(&b, v));
}

/* A register tile stores a few points of each of its channels, 16 of every vector. If those are whole KiB apart, as in
 * an output of 32 x 32 floats, they share a few sets of L1, and each store misses it. A copy goes by whole lines. */
static bool is_scattered(const struct module *m, value_id v)
{
    enum { APART = 1024, MAPS_MOST = 16 };
    const struct type *t = value_type(m->g, v), *of;
    int64_t bytes = t->kind == TYPE_TENSOR && t->rank >= 3 ? elem_size(t->elem) : 0, extent;
    for (int32_t d = 1; d < t->rank && bytes; d++)
        if (!ex_is_const(m->ctx->exprs, t->dims[d], &extent) || extent < (d == 1 ? MIN_BLOCKED : 1) ||
            (d > 1 && !mul_i64(bytes, extent, &bytes)))
            return false;
    if (!bytes || bytes % APART)
        return false;
    const struct node *n;
    for (int maps = 0; maps < MAPS_MOST && (n = value_node(m->g, v)); maps++) {
        of = value_type(m->g, v);
        if (n->op == OP_CONV)
            return of->rank == t->rank && of->dims[1].i == t->dims[1].i && !conv_depthwise(m->g, n) &&
                   !conv_pixel_lanes(m, n);
        if (op_shape(n->op) != SHAPE_MAP)
            return false;
        v = map_source(m->g, n);
    }
    return false;
}

/* Stored once in the order that the convolution wants, then as the caller does. */
static void copy_outputs(struct module *m)
{
    const struct region *top = graph_get_region(m->g, (region_id){1});
    struct builder b = builder_in(m->g, (region_id){1});
    for (uint32_t k = 0; k < top->results.n; k++)
        if (top->results.data[k].i && is_scattered(m, top->results.data[k]))
            graph_set_result(m->g, (region_id){1}, k, b_copy(&b, top->results.data[k]));
}

bool copy_operands(struct module *m)
{
    uint32_t n_nodes = m->g->nodes.n;
    for (uint32_t i = 1; i < n_nodes; i++) {
        const struct node *n = graph_node(m->g, (node_id){i});
        if (n->dead || (n->op != OP_DOT && n->op != OP_CONV) || attention_of_scores(m, (node_id){i}))
            continue;
        value_id x = n->in[0];
        bool view = value_op(m->g, x) == OP_NONE || op_shape(value_op(m->g, x)) == SHAPE_VIEW;
        bool copy_x = !value_is_const(m->g, x) &&
                      (n->op == OP_CONV ? (view && is_padded(m, n)) || groups_apart(m, n) : flattened(m, n));
        bool copy_b = n->op == OP_DOT && !value_is_const(m->g, weight_whole(m->g, n->in[1])) &&
                      lanes_apart(m, (node_id){i});
        if (copy_x)
            operand_copy(m, (node_id){i}, 0);
        if (copy_b)
            operand_copy(m, (node_id){i}, 1);
    }
    copy_outputs(m);
    return true;
}
