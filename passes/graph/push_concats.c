/* push-concats: a concat of numbers that are quantized becomes a concat of bytes, and so does a maximum of windows.
 *
 *   convert(f(concat(a, b)), u8)     ->     concat(convert(f(a), u8), convert(f(b), u8))
 *   convert(f(window(a)), u8)        ->     window(convert(f(a), u8))
 *
 * For quantized convolutional networks with concats (Inception, DenseNet, YOLO), which have them between
 * DequantizeLinear and QuantizeLinear: none of the 554 of ../shared/models that compile. After the rounding, the kernel
 * that makes an operand also quantizes it, in the epilogue of its convolution, and stores the bytes in their place of
 * the result (layout/place_pieces.c). Before the rounding, one kernel would read all operands again, and ask for each
 * element which operand it belongs to. f: maps of one operand that varies along the axis; the others are broadcasts
 * that do not. Each operand of the new concat is the part of the rounded value that one operand of the old one makes.
 *
 * Rounding keeps the order of numbers, so the largest of a window is the same one before and after; then f has to keep
 * it, too. The map that MaxPool reads is stored in a quarter of the bytes. A NaN, which becomes the byte 0, no longer
 * hides the other numbers of its window (as in ONNX Runtime).
 * In and out: a legal graph.
 */
#include "passes/graph/cut.h"
#include "passes/module/access_function.h"
#include "passes/module/analysis.h"

enum { MAPS_MOST = 16, PIECES_MOST = 16, DEPTH_MOST = 16 /* of concats in concats */ };

/* The maps from the rounding (first) up to the concat or window, and which operand of each varies. */
struct chain {
    node_id node[MAPS_MOST], end;
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

/* Are the other operands of the maps the same along those dims? */
static bool others_are_free(struct graph *g, const struct chain *c, uint32_t dims)
{
    for (uint32_t i = 0; i < c->n; i++) {
        const struct node *n = graph_node(g, c->node[i]);
        for (uint32_t k = 0; k < n->n_in; k++)
            if (k != c->varies[i] && !cut_is_free(g, n->in[k], dims))
                return false;
    }
    return true;
}

/* Is v one positive number? */
static bool is_positive(struct graph *g, value_id v)
{
    double x;
    v = value_unspread(g, v);
    const struct type *t = value_type(g, v);
    int64_t extent;
    for (int32_t d = 0; d < t->rank; d++)
        if (!ex_is_const(g->ctx->exprs, t->dims[d], &extent) || extent != 1)
            return false;
    return value_is_const(g, v) && value_const_f64(g, v, &x, 1) && x > 0;
}

/* Is map n's result no less where operand k is larger? */
static bool keeps_order(struct graph *g, const struct node *n, uint32_t k)
{
    switch (n->op) {
    case OP_ADD:
    case OP_MAX:
    case OP_MIN:
    case OP_ROUND: return true;
    case OP_SUB: return k == 0;
    case OP_MUL: return is_positive(g, n->in[1 - k]);
    case OP_DIV: return k == 0 && is_positive(g, n->in[1]);
    case OP_CONVERT: {
        enum elem from = value_type(g, n->in[0])->elem, to = value_type(g, n->out[0])->elem;
        return from == ELEM_F32 && (to == ELEM_U8 || to == ELEM_I8);
    }
    default: return false;
    }
}

/* A maximum of windows that all hold an element (of an empty map, too, whose windows would hold padding alone), of
 * numbers that nothing else reads, if all maps keep their order. */
static bool is_movable_window(struct graph *g, const struct chain *c)
{
    const struct node *n = graph_node(g, c->end);
    const struct value *x = graph_value(g, n->in[0]);
    uint32_t count;
    int64_t below, above;
    const int64_t *kernel = node_ints(n, "kernel", &count), *dilations = node_ints(n, "dilations", &count);
    const expr_id *lo = node_exprs(n, "lo", &count), *hi = node_exprs(n, "hi", &count);
    if (strcmp(node_str(n, "monoid", ""), "max") != 0 || x->n_uses != 1 || !x->def.i)
        return false;
    for (uint32_t d = 0; d < count; d++)
        if (dilations[d] != 1 || !ex_is_const(g->ctx->exprs, lo[d], &below) ||
            !ex_is_const(g->ctx->exprs, hi[d], &above) || below >= kernel[d] || above >= kernel[d] ||
            (below + above >= kernel[d] && ex_lo(g->ctx->exprs, x->type.dims[x->type.rank - (int32_t)(count - d)]) < 1))
            return false;
    for (uint32_t i = 0; i < c->n; i++)
        if (!keeps_order(g, graph_node(g, c->node[i]), c->varies[i]))
            return false;
    uint32_t rank = (uint32_t)value_type(g, n->out[0])->rank;
    return others_are_free(g, c, ((1u << count) - 1) << (rank - count));
}

/* Does nothing vary along the concat's axis but the concat? The operands have to agree in the other dims. */
static bool is_movable(struct graph *g, const struct chain *c)
{
    const struct node *concat = graph_node(g, c->end);
    int32_t of[RANK_MAX], axis = (int32_t)node_int(concat, "axis", 0);
    if (concat->n_in < 2 || concat->n_in > PIECES_MOST)
        return false;
    for (uint32_t k = 0; k < concat->n_in; k++) {
        source_dims(g, concat, k, of);
        for (int32_t d = 0; d < value_type(g, concat->out[0])->rank; d++)
            if (d != axis && of[d] != d)
                return false;
    }
    return others_are_free(g, c, 1u << axis);
}

/* What lies between rounding `id` and a concat or window that nothing else reads; false: there is none. */
static bool find_chain(struct graph *g, node_id id, struct chain *c)
{
    for (c->n = 0; c->n < MAPS_MOST && id.i; c->n++) {
        const struct node *n = graph_node(g, id);
        if ((n->op == OP_CONCAT || n->op == OP_WINDOW) && c->n) {
            c->end = id;
            return n->op == OP_CONCAT ? is_movable(g, c) : is_movable_window(g, c);
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

/* The part of the rounded value that operand v of the concat makes; of a window, all that is rounded. */
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

static bool push(struct module *m, const struct chain *c)
{
    struct graph *g = m->g;
    const struct node end = *graph_node(g, c->end), last = *graph_node(g, c->node[0]);
    struct builder b = builder_before(g, c->node[0]);
    value_id pieces[PIECES_MOST];
    for (uint32_t k = 0; k < end.n_in; k++)
        pieces[k] = part_of(&b, c, end.in[k]);
    b.src = end.src;
    value_id result = end.op == OP_CONCAT ? b_concat(&b, pieces, end.n_in, (int32_t)node_int(&end, "axis", 0))
                                          : b_op(&b, end.op, pieces, end.n_in, end.attr, end.n_attr);
    if (!result.i)
        return false;
    if (end.op == OP_WINDOW)
        VEC_PUSH(m->arena, &m->known.pooled, ((struct pooled_bytes){c->node[0], graph_value(g, pieces[0])->def}));
    graph_value_describe(g, result, last.out[0]);
    graph_replace_uses(g, last.out[0], result);
    return true;
}

/* Those of all concats and windows that can; *any: there was one. What they leave still counts as a reader. */
static bool push_all(struct module *m, bool *any)
{
    struct graph *g = m->g;
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
        if (!push(m, &c))
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
        if (!push_all(m, &any))
            return false;
        graph_sweep(m->g);
    }
    return m->ctx->fail == FAIL_NONE;
}
