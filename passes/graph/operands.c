/* What fuse wants of the graph before it looks at demands: results of regions that are values of their own, and copies
 * of operands that kernels read in another order than they lie in.
 */
#include "passes/module/access.h"
#include "passes/graph/find_attention.h"
#include "passes/module/module.h"
#include "passes/module/query.h"

enum { ALIGNED = 16 }; /* lanes of the widest vector */

/* Gives v a copy of its own, made by a node at the end of region r. */
static value_id copy_value(struct module *m, region_id r, value_id v)
{
    struct builder b = {.g = m->g, .region = r};
    const struct type *t = value_type(m->g, v);
    struct attr strings[] = {attr_str("fn", "spread"), attr_elem("elem", t->elem),
                             attr_exprs("dims", t->dims, (uint32_t)t->rank)}; /* no kernel moves them */
    return t->elem == ELEM_STR ? b_op(&b, OP_STRING, &v, 1, strings, 3) : b_copy(&b, v);
}

/* A region's result has to be written by a kernel of that region, once: a parameter, a capture, a constant, a second
 * use or the result of a call gets a copy. */
static bool needs_copy(const struct module *m, region_id r, value_id v)
{
    const struct value *value = graph_value(m->g, v);
    if (!value->def.i || value_is_const(m->g, v))
        return true;
    const struct node *n = graph_node(m->g, value->def);
    if (n->parent.i != r.i || n->op == OP_IDENTITY || n->op == OP_IF || n->op == OP_LOOP ||
        (op_shape(n->op) == SHAPE_OPAQUE && r.i != 1))
        return true;
    return op_info(n->op)->memory == MEMORY_OWN;
}

bool separate_results(struct module *m)
{
    struct graph *g = m->g;
    bool *is_result = NEW_ARRAY(m->arena, bool, g->values.n);
    for (uint32_t r = 1; r < g->regions.n; r++) {
        const struct region *region = graph_get_region(g, (region_id){r});
        for (uint32_t k = 0; k < region->results.n; k++) {
            value_id v = region->results.data[k];
            bool tensor = value_type(g, v)->kind == TYPE_TENSOR && value_type(g, v)->rank >= 0;
            if (tensor && (is_result[v.i] || needs_copy(m, (region_id){r}, v)))
                graph_set_result(g, (region_id){r}, k, copy_value(m, (region_id){r}, v));
            is_result[v.i] = true;
        }
    }
    return true;
}

/* A cache that grows, say: an output has a place, and is no view then. */
static bool is_stored_concat(const struct module *m, value_id v)
{
    return value_op(m->g, v) == OP_CONCAT && value_output(m->g, v) != UINT32_MAX;
}

/* Does memory run along the last free dim of the second operand, where the lanes are? */
static bool lanes_contiguous(const struct module *m, const struct node *n)
{
    value_id b = n->in[1];
    uint32_t count;
    int32_t free_dim[RANK_MAX], n_free = dot_free(m->g, n, free_dim);
    if (n_free == 0)
        return true;
    int32_t d = free_dim[n_free - 1];
    while (graph_value(m->g, b)->def.i) {
        const struct node *v = graph_node(m->g, graph_value(m->g, b)->def);
        if (v->op == OP_TRANSPOSE)
            d = (int32_t)node_ints(v, "perm", &count)[d];
        else if (v->op == OP_RESHAPE && d == value_type(m->g, v->out[0])->rank - 1 &&
                 value_type(m->g, v->in[0])->rank > 0 &&
                 value_type(m->g, v->in[0])->dims[value_type(m->g, v->in[0])->rank - 1].i ==
                     value_type(m->g, v->out[0])->dims[d].i)
            d = value_type(m->g, v->in[0])->rank - 1;
        else if (v->op != OP_IDENTITY)
            break;
        b = v->in[0];
    }
    return d == value_type(m->g, b)->rank - 1 && (op_shape(value_op(m->g, b)) != SHAPE_VIEW || is_stored_concat(m, b));
}

/* Slices of a row-major value: may an attention read its values there, lanes one behind the other and aligned as in a
 * copy? */
static bool lanes_sliced(const struct module *m, const struct node *n)
{
    struct exprs *x = m->ctx->exprs;
    struct dot_dims dims;
    value_id v = n->in[1];
    bool sliced = false;
    if (!dot_dims(m->g, n, 1, &dims))
        return false;
    for (int32_t d = dims.free; graph_value(m->g, v)->def.i;) {
        const struct node *view = graph_node(m->g, graph_value(m->g, v)->def);
        const struct type *from = value_type(m->g, view->in[0]), *to = value_type(m->g, view->out[0]);
        uint32_t count;
        int64_t start, have, want;
        if (op_shape(view->op) != SHAPE_VIEW)
            return sliced && d == to->rank - 1;
        if (view->op == OP_TRANSPOSE) {
            d = (int32_t)node_ints(view, "perm", &count)[d];
        } else if (view->op == OP_SLICE) {
            sliced = true;
            if (node_ints(view, "steps", &count)[d] != 1 ||
                !ex_is_const(x, node_exprs(view, "starts", &count)[d], &start) || start % ALIGNED)
                return false;
        } else if (view->op == OP_RESHAPE) {
            if (d != to->rank - 1 || from->rank < 1 || !ex_is_const(x, from->dims[from->rank - 1], &have) ||
                !ex_is_const(x, to->dims[d], &want) || want < 1 || have % want)
                return false;
            d = from->rank - 1;
        } else if (view->op != OP_IDENTITY) {
            return false;
        }
        v = view->in[0];
    }
    return false;
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
    const struct value *v = graph_value(m->g, a);
    if (!v->def.i || graph_node(m->g, v->def)->op != OP_RESHAPE)
        return false;
    value_id from = graph_node(m->g, v->def)->in[0];
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
    for (value_id v = n->in[0]; graph_value(m->g, v)->def.i;) {
        const struct node *view = graph_node(m->g, graph_value(m->g, v)->def);
        if (view->op == OP_TRANSPOSE || view->op == OP_RESHAPE)
            return true;
        if (view->op != OP_SLICE && view->op != OP_IDENTITY)
            return false;
        if (view->op == OP_SLICE &&
            (node_ints(view, "steps", &count)[1] != 1 ||
             !ex_is_const(m->ctx->exprs, node_exprs(view, "starts", &count)[1], &start) || start % group))
            return true;
        v = view->in[0];
    }
    return false;
}

static void operand_copy(struct module *m, node_id id, uint32_t k)
{
    value_id v = graph_node(m->g, id)->in[k];
    struct builder b = builder_before(m->g, id);
    graph_set_operand(m->g, id, k, b_copy(&b, v));
}

/* Operands that kernels want in another order than they lie in get a copy kernel: the second operand of a contraction
 * when its last free dim is not where memory is contiguous, and a padded convolution's operand when it is a port or a
 * view (so that it can have a halo, and the channel blocks), or where groups of channels lie apart. */
bool copy_operands(struct module *m)
{
    uint32_t n_nodes = m->g->nodes.n;
    for (uint32_t i = 1; i < n_nodes; i++) {
        const struct node *n = graph_node(m->g, (node_id){i});
        if (n->dead || (n->op != OP_DOT && n->op != OP_CONV) || attention_of_scores(m, (node_id){i}))
            continue;
        value_id x = n->in[0];
        const struct value *xv = graph_value(m->g, x);
        bool view = !xv->def.i || op_shape(value_op(m->g, x)) == SHAPE_VIEW;
        bool copy_x = !value_is_const(m->g, x) &&
                      (n->op == OP_CONV ? (view && is_padded(m, n)) || groups_apart(m, n) : flattened(m, n));
        bool copy_b = n->op == OP_DOT && !value_is_const(m->g, n->in[1]) && !lanes_contiguous(m, n) &&
                      !(attention_of_values(m, (node_id){i}) && lanes_sliced(m, n));
        if (copy_x)
            operand_copy(m, (node_id){i}, 0);
        if (copy_b)
            operand_copy(m, (node_id){i}, 1);
    }
    return true;
}
