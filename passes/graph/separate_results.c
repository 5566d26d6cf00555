/* separate-results: a result of a region that no kernel of the region writes for itself becomes a copy: a parameter, a
 * capture, a constant, a second use, the result of a call. In and out: a legal graph; what comes after may rely on a
 * writer for each result. For graphs with control flow, and those that return an input, a constant or a value twice: 83
 * of the 554 networks of ../shared/models that compile.
 */
#include "passes/module/module.h"

/* Gives v a copy of its own, made by a node at the end of region r. */
static value_id copy_value(struct module *m, region_id r, value_id v)
{
    struct builder b = builder_in(m->g, r);
    const struct type *t = value_type(m->g, v);
    struct attr strings[] = {attr_str("fn", "spread"), attr_elem("elem", t->elem),
                             attr_exprs("dims", t->dims, (uint32_t)t->rank)}; /* no kernel moves them */
    return t->elem == ELEM_STR ? b_op(&b, OP_STRING, &v, 1, strings, 3) : b_copy(&b, v);
}

/* A region's result has to be written by a kernel of that region, once: a parameter, a capture, a constant, a second
 * use or the result of a call gets a copy. */
static bool needs_copy(const struct module *m, region_id r, value_id v)
{
    const struct node *n = value_node(m->g, v);
    if (!n || value_is_const(m->g, v))
        return true;
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
