/* The pool of constants: value numbering over all constants of a legal graph, by content.
 *
 * Exporters write a tensor once for each node that reads it (initializers of equal bytes, Constant nodes, one copy in
 * each branch of an If), and rules and passes compute a constant again for each node that they lower: the weights of
 * four products with the sign bit of their bytes turned, say. Two constants are equal if the same operator makes them,
 * with equal attributes, of equal operands; a constant of the file has its bytes as an attribute. Equal ones become the
 * first of them, so one walk in program order finds all. The bytes are compared only if the types and a sample of the
 * bytes agree, so weights are not read for this; and once, since those that differed at the last sweep still do.
 *
 * Every constant moves to the front of the top region. Two kinds remain values of their own. A copy (identity) is one
 * because whoever made it wants one. A number, one element everywhere, is an argument of kernels: layers that differ in
 * their scales share code only if each has as many of them. What is computed of equal numbers is equal.
 */
#include "ir/graph/graph.h"

struct pool {
    struct graph *g;
    struct arena *arena;
    bool *live; /* by node */
    value_id *first; /* by value: the first constant that is equal, perhaps itself; {0}: it is not in the pool */
    bool *number; /* by value */
    uint32_t *slots, mask; /* hashed: those that are the first */
    VEC(node_id) constants;
    bool merged;
};

static uint64_t key_of(const struct pool *p, const struct node *n)
{
    const struct type *t = value_type(p->g, n->out[0]);
    uint64_t key = hash_mix(n->op, hash_mix(t->elem, (uint64_t)t->rank));
    for (int32_t d = 0; d < t->rank; d++)
        key = hash_mix(key, t->dims[d].i);
    for (uint32_t k = 0; k < n->n_in; k++)
        key = hash_mix(key, p->first[n->in[k].i].i);
    for (uint32_t i = 0; i < n->n_attr; i++)
        key = hash_mix(key, attr_hash(&n->attr[i]));
    return key;
}

static bool are_equal(const struct pool *p, value_id x, value_id y)
{
    const struct node *a = value_node(p->g, x), *b = value_node(p->g, y);
    bool differed = a->op == OP_CONSTANT && x.i < p->g->n_pooled && y.i < p->g->n_pooled && !p->number[x.i];
    if (differed || a->op != b->op || a->n_in != b->n_in || a->n_attr != b->n_attr ||
        !type_equal(value_type(p->g, x), value_type(p->g, y)))
        return false;
    for (uint32_t k = 0; k < a->n_in; k++)
        if (p->first[a->in[k].i].i != p->first[b->in[k].i].i)
            return false;
    for (uint32_t i = 0; i < a->n_attr; i++)
        if (!attr_equal(&a->attr[i], &b->attr[i]))
            return false;
    return true;
}

/* A constant of constants that are in the pool? */
static bool is_pooled(const struct pool *p, const struct node *n)
{
    if (n->n_out != 1 || n->n_region || n->op == OP_IDENTITY || !value_is_const(p->g, n->out[0]))
        return false;
    for (uint32_t k = 0; k < n->n_in; k++)
        if (!p->first[n->in[k].i].i)
            return false;
    return true;
}

static void pool_add(struct pool *p, node_id id)
{
    struct node *n = graph_node(p->g, id);
    const struct type *t = value_type(p->g, n->out[0]);
    uint32_t out = n->out[0].i, i = (uint32_t)key_of(p, n) & p->mask;
    bool one = true;
    for (int32_t d = 0; d < t->rank; d++)
        one &= ex_is(p->g->ctx->exprs, t->dims[d], 1);
    p->number[out] = one || (op_shape(n->op) == SHAPE_VIEW && n->n_in == 1 && p->number[n->in[0].i]);
    while (p->slots[i] && !are_equal(p, (value_id){p->slots[i]}, n->out[0]))
        i = (i + 1) & p->mask;
    if (!p->slots[i])
        p->slots[i] = out;
    p->first[out].i = p->slots[i];
    n->parent = (region_id){1};
    if (p->slots[i] == out || p->number[out]) {
        VEC_PUSH(p->arena, &p->constants, id);
    } else {
        p->live[id.i] = false;
        p->merged = true;
    }
}

/* What stands for v. */
static value_id pooled(const struct pool *p, value_id v)
{
    return p->first[v.i].i && !p->number[v.i] ? p->first[v.i] : v;
}

/* Takes the constants out of the region, and points what is left at those that stand for its operands. */
static void walk(struct pool *p, region_id r)
{
    struct graph *g = p->g;
    struct region *region = graph_get_region(g, r);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < region->nodes.n; i++) {
        node_id id = region->nodes.data[i];
        const struct node *n = graph_node(g, id);
        for (uint32_t k = 0; k < n->n_in; k++)
            graph_set_operand(g, id, k, pooled(p, n->in[k]));
        for (uint32_t k = 0; k < n->n_region; k++)
            walk(p, n->region[k]);
        if (is_pooled(p, n))
            pool_add(p, id);
        else
            region->nodes.data[kept++] = id;
    }
    region->nodes.n = kept;
    for (uint32_t i = 0; i < region->results.n; i++)
        graph_set_result(g, r, i, pooled(p, region->results.data[i]));
}

bool graph_pool(struct graph *g, struct arena *arena, bool *live)
{
    struct pool p = {.g = g, .arena = arena, .live = live};
    struct region *top = graph_get_region(g, (region_id){1});
    uint32_t slots = 64;
    while (slots < 2 * g->values.n)
        slots *= 2;
    p.mask = slots - 1;
    p.slots = NEW_ARRAY(arena, uint32_t, slots);
    p.first = NEW_ARRAY(arena, value_id, g->values.n);
    p.number = NEW_ARRAY(arena, bool, g->values.n);
    walk(&p, (region_id){1});
    for (uint32_t i = 0; i < g->outputs.n; i++)
        g->outputs.data[i].value = pooled(&p, g->outputs.data[i].value);
    for (uint32_t i = 0; i < top->nodes.n; i++)
        VEC_PUSH(arena, &p.constants, top->nodes.data[i]);
    top->nodes.n = 0;
    for (uint32_t i = 0; i < p.constants.n; i++)
        VEC_PUSH(&g->arena, &top->nodes, p.constants.data[i]);
    g->n_pooled = g->values.n;
    return p.merged;
}
