/* merge-concats: a concat whose operands begin with all those of an earlier one takes its result instead.
 *
 *   c1 = concat(a, b)   c2 = concat(a, b, d)        ->        c2 = concat(c1, d)
 *
 * For dense blocks (DenseNet) that are exported as such lists, each one longer than the one before: none of the 554
 * networks of ../shared/models that compile, one of the 14 of `make bench`. Layouts can then lay c1 where c2 begins
 * (layout/place_pieces.c), so that nothing is copied; otherwise two copies take the place of three. In and out: a legal
 * graph.
 */
#include "passes/module/module.h"

enum { RECENT = 64 }; /* concats looked back at: a dense block's predecessor is the last one */

/* Does `later` begin with all operands of `earlier`, along the same axis, and go on? */
static bool is_prefix(const struct node *earlier, const struct node *later)
{
    if (earlier->n_in < 2 || earlier->n_in >= later->n_in || node_int(earlier, "axis", 0) != node_int(later, "axis", 0))
        return false;
    for (uint32_t k = earlier->n_in; k-- > 0;)
        if (earlier->in[k].i != later->in[k].i)
            return false;
    return true;
}

/* The same result, of `first` in place of its first n_first operands. */
static value_id shortened(struct graph *g, node_id id, uint32_t n_first, value_id first)
{
    const struct node node = *graph_node(g, id);
    uint32_t n = node.n_in - n_first + 1;
    value_id *in = NEW_ARRAY(&g->arena, value_id, n);
    in[0] = first;
    memcpy(in + 1, node.in + n_first, (n - 1) * sizeof *in);
    struct builder b = builder_before(g, id);
    value_id result = b_op(&b, OP_CONCAT, in, n, node.attr, node.n_attr);
    graph_replace(g, id, result);
    return result;
}

static void merge_region(struct graph *g, region_id id)
{
    VEC(node_id) nodes = {0};
    struct {
        node_id node;
        value_id result;
    } recent[RECENT]; /* as it was; what stands for its result now */
    uint32_t n_recent = 0;
    for (uint32_t i = 0; i < graph_get_region(g, id)->nodes.n; i++) /* the list grows while nodes are replaced */
        VEC_PUSH(&g->arena, &nodes, graph_get_region(g, id)->nodes.data[i]);
    for (uint32_t i = 0; i < nodes.n; i++) {
        node_id at = nodes.data[i];
        const struct node *node = graph_node(g, at);
        uint32_t n_first = 0;
        value_id result, first = {0};
        if (node->op != OP_CONCAT || node->dead || elem_class(value_type(g, node->out[0])->elem) != 'F')
            continue;
        for (uint32_t k = 0; k < n_recent && k < RECENT; k++) {
            const struct node *earlier = graph_node(g, recent[k].node);
            if (is_prefix(earlier, node) && earlier->n_in > n_first) {
                n_first = earlier->n_in;
                first = recent[k].result;
            }
        }
        result = node->out[0];
        if (n_first)
            result = shortened(g, at, n_first, first);
        recent[n_recent % RECENT].node = at;
        recent[n_recent++ % RECENT].result = result;
    }
}

bool merge_concats(struct module *module)
{
    struct graph *g = module->g;
    for (uint32_t r = 1; r < g->regions.n; r++)
        merge_region(g, (region_id){r});
    graph_sweep(g);
    return true;
}
