/* push-concats: a concat of numbers that are quantized becomes a concat of bytes.
 *
 *   convert(f(concat(a, b)), u8)     ->     concat(convert(f(a), u8), convert(f(b), u8))
 *
 * For quantized convolutional networks with concats (Inception, DenseNet, YOLO), which have them between
 * DequantizeLinear and QuantizeLinear: none of the 554 of ../shared/models that compile. After the rounding, the kernel
 * that makes an operand also quantizes it, in the epilogue of its convolution, and stores the bytes in their place of
 * the result (layout/place_pieces.c). Before the rounding, one kernel would read all operands again, and ask for each
 * element which operand it belongs to. f: maps of one operand that varies along the axis; the others are broadcasts
 * that do not. Each operand of the new concat is the part of the rounded value that one operand of the old one makes.
 * In and out: a legal graph.
 */
#include "passes/graph/cut.h"
#include "passes/module/access_function.h"
#include "passes/module/module.h"

enum { MAPS_MOST = 16, PIECES_MOST = 16, DEPTH_MOST = 16 /* of concats in concats */ };

/* The maps from the rounding (first) up to the concat, and which operand of each varies. */
struct chain {
    node_id node[MAPS_MOST], concat;
    uint32_t varies[MAPS_MOST], n;
};

/* The only operand of the map that is no broadcast; n_in: there is none, or more than one. */
static uint32_t varying(const struct graph *g, const struct node *n)
{
    uint32_t found = n->n_in;
    for (uint32_t k = 0; op_shape(n->op) == SHAPE_MAP && k < n->n_in; k++)
        if (value_op(g, n->in[k]) != OP_BROADCAST) {
            if (found < n->n_in)
                return n->n_in;
            found = k;
        }
    return found;
}

/* Does nothing vary along the concat's axis but the concat? The operands have to agree in the other dims. */
static bool is_movable(struct graph *g, const struct chain *c)
{
    const struct node *concat = graph_node(g, c->concat);
    int32_t of[RANK_MAX], axis = (int32_t)node_int(concat, "axis", 0);
    if (concat->n_in < 2 || concat->n_in > PIECES_MOST)
        return false;
    for (uint32_t k = 0; k < concat->n_in; k++) {
        source_dims(g, concat, k, of);
        for (int32_t d = 0; d < value_type(g, concat->out[0])->rank; d++)
            if (d != axis && of[d] != d)
                return false;
    }
    for (uint32_t i = 0; i < c->n; i++) {
        const struct node *n = graph_node(g, c->node[i]);
        for (uint32_t k = 0; k < n->n_in; k++)
            if (k != c->varies[i] && !cut_is_free(g, n->in[k], 1u << axis))
                return false;
    }
    return true;
}

/* What lies between rounding `id` and a concat that nothing else reads; false: no such concat. */
static bool find_chain(struct graph *g, node_id id, struct chain *c)
{
    for (c->n = 0; c->n < MAPS_MOST && id.i; c->n++) {
        const struct node *n = graph_node(g, id);
        if (n->op == OP_CONCAT && c->n) {
            c->concat = id;
            return is_movable(g, c);
        }
        uint32_t k = varying(g, n);
        if (k == n->n_in || graph_value(g, n->in[k])->n_uses != 1)
            return false;
        c->node[c->n] = id;
        c->varies[c->n] = k;
        id = graph_value(g, n->in[k])->def;
    }
    return false;
}

/* The part of the rounded value that operand v of the concat makes. */
static value_id part_of(struct builder *b, const struct chain *c, value_id v)
{
    struct cut part = cut_whole(b->g, v);
    for (uint32_t i = c->n; i-- > 0 && v.i;) {
        const struct node n = *graph_node(b->g, c->node[i]);
        b->src = n.src;
        v = cut_through(b, &n, &part, c->varies[i], v);
    }
    return v;
}

static bool push(struct graph *g, const struct chain *c)
{
    const struct node concat = *graph_node(g, c->concat), last = *graph_node(g, c->node[0]);
    struct builder b = builder_before(g, c->node[0]);
    value_id pieces[PIECES_MOST];
    for (uint32_t k = 0; k < concat.n_in; k++)
        pieces[k] = part_of(&b, c, concat.in[k]);
    b.src = concat.src;
    value_id result = b_concat(&b, pieces, concat.n_in, (int32_t)node_int(&concat, "axis", 0));
    if (!result.i)
        return false;
    graph_value_describe(g, result, last.out[0]);
    graph_replace_uses(g, last.out[0], result);
    return true;
}

/* Those of all concats that can; *any: there was one. What they leave behind still counts as a reader. */
static bool push_all(struct graph *g, bool *any)
{
    struct chain c;
    uint32_t n_nodes = g->nodes.n;
    *any = false;
    for (uint32_t i = 1; i < n_nodes; i++) {
        const struct node *n = graph_node(g, (node_id){i});
        if (n->dead || n->op != OP_CONVERT)
            continue;
        enum elem from = value_type(g, n->in[0])->elem, to = value_type(g, n->out[0])->elem;
        if (from != ELEM_F32 || (to != ELEM_U8 && to != ELEM_I8) || !find_chain(g, (node_id){i}, &c))
            continue;
        if (!push(g, &c))
            return false;
        *any = true;
    }
    return true;
}

/* Concats of concats are pushed as far as they go, one at a time. */
bool push_concats(struct module *m)
{
    bool any = true;
    for (int depth = 0; any && depth < DEPTH_MOST; depth++) {
        if (!push_all(m->g, &any))
            return false;
        graph_sweep(m->g);
    }
    return m->ctx->fail == FAIL_NONE;
}
