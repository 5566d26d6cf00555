/* sink-concats: a concat of numbers that are rounded to bytes becomes a concat of bytes.
 *
 *   convert(f(concat(a, b)), u8)     ->     concat(convert(f(a), u8), convert(f(b), u8))
 *
 * A quantized network has its concats between DequantizeLinear and QuantizeLinear. Behind the rounding each operand is
 * computed where it is made, in the epilogue of its convolution, and stored as bytes in its place of the result
 * (layout/place_pieces.c); in front of it one kernel would read all of them again, and ask for each element whose it
 * is. f: maps with one operand that varies, the others one constant for all elements. In and out: a legal graph.
 */
#include "passes/module/module.h"
#include "passes/module/query.h"

#include <string.h>

enum { MAPS_MOST = 16, PIECES_MOST = 16, DEPTH_MOST = 16 /* of concats in concats */ };

/* The maps from the rounding (first) up to the concat, and which operand of each varies. */
struct chain {
    node_id node[MAPS_MOST], concat;
    uint32_t varies[MAPS_MOST], n;
};

/* A constant of which all elements are one? */
static bool is_uniform(const struct graph *g, value_id v)
{
    v = value_unspread(g, v);
    const struct type *t = value_type(g, v);
    for (int32_t d = 0; d < t->rank; d++)
        if (!ex_is(g->ctx->exprs, t->dims[d], 1))
            return false;
    return value_is_const(g, v) && t->rank >= 0;
}

/* The only operand of the map that varies; n_in: there is none, or more than one. */
static uint32_t varying(const struct graph *g, const struct node *n)
{
    uint32_t found = n->n_in;
    if (op_shape(n->op) != SHAPE_MAP)
        return n->n_in;
    for (uint32_t k = 0; k < n->n_in; k++) {
        if (!n->in[k].i)
            return n->n_in;
        if (is_uniform(g, n->in[k]))
            continue;
        if (found < n->n_in)
            return n->n_in;
        found = k;
    }
    return found;
}

/* What lies between rounding `id` and a concat that nothing else reads; false: no such concat. */
static bool find_chain(const struct graph *g, node_id id, struct chain *c)
{
    for (c->n = 0; c->n < MAPS_MOST; c->n++) {
        const struct node *n = graph_node(g, id);
        if (n->op == OP_CONCAT && c->n) {
            c->concat = id;
            return n->n_in > 1 && n->n_in <= PIECES_MOST;
        }
        uint32_t k = varying(g, n);
        if (k == n->n_in || graph_value(g, n->in[k])->n_uses != 1)
            return false;
        c->node[c->n] = id;
        c->varies[c->n] = k;
        id = graph_value(g, n->in[k])->def;
        if (!id.i)
            return false;
    }
    return false;
}

/* The maps of piece v. */
static value_id mapped(struct builder *b, const struct chain *c, value_id v)
{
    struct graph *g = b->g;
    for (uint32_t i = c->n; i-- > 0 && v.i;) {
        const struct node n = *graph_node(g, c->node[i]);
        const struct type t = *value_type(g, v);
        value_id in[MAPS_MOST];
        if (n.n_in > MAPS_MOST)
            return (value_id){0};
        b->src = n.src;
        for (uint32_t k = 0; k < n.n_in; k++)
            in[k] = k == c->varies[i] ? v : b_broadcast(b, value_unspread(g, n.in[k]), t.dims, t.rank);
        v = b_op(b, n.op, in, n.n_in, n.attr, n.n_attr);
    }
    return v;
}

static bool sink(struct graph *g, const struct chain *c)
{
    const struct node concat = *graph_node(g, c->concat), last = *graph_node(g, c->node[0]);
    struct builder b = builder_before(g, c->node[0]);
    value_id pieces[PIECES_MOST];
    for (uint32_t k = 0; k < concat.n_in; k++) {
        pieces[k] = mapped(&b, c, concat.in[k]);
        if (!pieces[k].i)
            return false;
    }
    b.src = concat.src;
    value_id result = b_concat(&b, pieces, concat.n_in, (int32_t)node_int(&concat, "axis", 0));
    if (!result.i)
        return false;
    graph_value_describe(g, result, last.out[0]);
    graph_replace_uses(g, last.out[0], result);
    return true;
}

/* Those of all concats that can; *any: there was one. What they leave behind still counts as a reader. */
static bool sink_all(struct graph *g, bool *any)
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
        if (!sink(g, &c))
            return false;
        *any = true;
    }
    return true;
}

/* Concats of concats sink as far as they can, one at a time. */
bool sink_concats(struct module *m)
{
    bool any = true;
    for (int depth = 0; any && depth < DEPTH_MOST; depth++) {
        if (!sink_all(m->g, &any))
            return false;
        graph_sweep(m->g);
    }
    return m->ctx->fail == FAIL_NONE;
}
