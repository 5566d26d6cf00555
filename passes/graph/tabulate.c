/* tabulate: a dear or long function of one byte becomes a table of its 256 results.
 *
 *   y = convert(round(sigmoid(s * x) / t), u8)     ->     y = gather(table, x),   table = the same of 0, 1, ..., 255
 *
 * where x and y are of 8 bits and everything in between is elementwise, of x alone and of constants of one element.
 * That is what stands between a quantizer and the next: the functions that networks of bytes would otherwise compute in
 * f32. What ends in bytes is a table whatever lies on the way, so the sigmoid of a SiLU and the product with x are one.
 * The table is a constant like any other, which the interpreter computes, so its results have no error of code's
 * functions.
 *
 * Cheap chains, such as a change of scale or a maximum, stay: they are as fast as the table, or go into the epilogue of
 * a contraction. In and out: a legal graph.
 */
#include "passes/module/analysis.h"

enum { STEPS_LONG = 16, STEPS_MOST = 64 }; /* nodes of a chain */

/* What is known of a value. */
struct function {
    value_id leaf; /* the bytes that it is a function of, point by point; only if it varies */
    bool known, dear, varies;
    uint32_t steps; /* nodes on all paths from the leaf */
};
struct tabulator {
    struct graph *g;
    struct function *of; /* by value */
    uint32_t *uses; /* by value: those that are left */
    struct made {
        value_id v; /* of all bytes */
        uint32_t table;
    } *made; /* by value of the chain, of the last table that it was made for */
    uint32_t tables;
};

static bool is_byte(const struct type *t)
{
    return t->kind == TYPE_TENSOR && (t->elem == ELEM_U8 || t->elem == ELEM_I8);
}

/* A constant of one element, however it is spread. */
static bool is_single(struct graph *g, value_id v)
{
    const struct type *t = value_type(g, v = value_unspread(g, v));
    if (!value_is_const(g, v))
        return false;
    for (int32_t d = 0; d < t->rank; d++)
        if (!ex_is(g->ctx->exprs, t->dims[d], 1))
            return false;
    return true;
}

static struct function operand_function(struct tabulator *t, value_id v)
{
    if (!v.i || is_single(t->g, v))
        return (struct function){.known = true};
    struct function f = t->of[v.i];
    if (!f.known && is_byte(value_type(t->g, v)) && !value_is_const(t->g, v))
        return (struct function){.leaf = v, .known = true, .varies = true};
    return f;
}

static void learn(struct tabulator *t, const struct node *n)
{
    struct function f = {.known = true, .steps = 1};
    f.dear = op_cost(n->op) == COST_DEAR && (n->op != OP_DIV || !is_single(t->g, n->in[1]));
    if (n->n_out != 1 || op_shape(n->op) != SHAPE_MAP)
        return;
    for (uint32_t k = 0; f.known && k < n->n_in; k++) {
        const struct function of = operand_function(t, n->in[k]);
        f.known = of.known && (!of.varies || !f.varies || of.leaf.i == f.leaf.i);
        f.dear |= of.dear;
        f.steps += of.steps;
        if (of.varies)
            f.leaf = of.leaf;
        f.varies |= of.varies;
    }
    f.known &= f.varies && f.steps <= STEPS_MOST;
    f.dear |= f.steps >= STEPS_LONG;
    if (f.known)
        t->of[n->out[0].i] = f;
}

/* v of all bytes, in the order of their bits. */
static value_id of_all(struct tabulator *t, struct builder *b, value_id v, value_id leaf, value_id all)
{
    if (!v.i || v.i == leaf.i)
        return v.i ? all : v;
    const struct type *type = value_type(t->g, all);
    if (is_single(t->g, v))
        return b_broadcast(b, b_reshape(b, value_unspread(t->g, v), NULL, 0), type->dims, 1);
    if (t->made[v.i].table == t->tables)
        return t->made[v.i].v;
    const struct node n = *value_node(t->g, v);
    value_id in[8];
    for (uint32_t k = 0; k < n.n_in && k < COUNT_OF(in); k++)
        in[k] = of_all(t, b, n.in[k], leaf, all);
    t->made[v.i] = (struct made){b_op(b, n.op, in, n.n_in, n.attr, n.n_attr), t->tables};
    return t->made[v.i].v;
}

/* v is wanted no longer, nor is what only v wants. */
static void release(struct tabulator *t, value_id v, value_id leaf)
{
    if (!v.i || v.i == leaf.i || is_single(t->g, v) || --t->uses[v.i])
        return;
    const struct node *n = value_node(t->g, v);
    for (uint32_t k = 0; k < n->n_in; k++)
        release(t, n->in[k], leaf);
}

static void tabulate_node(struct tabulator *t, node_id id)
{
    const struct node n = *graph_node(t->g, id);
    const struct function f = t->of[n.out[0].i];
    struct builder b = builder_before(t->g, id);
    const struct attr bits = attr_elem("elem", ELEM_U8);
    static const int64_t count = 256;
    uint8_t *all = NEW_ARRAY(&t->g->arena, uint8_t, count);
    value_id x = f.leaf;
    t->tables++;
    for (int64_t i = 0; i < count; i++)
        all[i] = (uint8_t)i;
    value_id table = of_all(
        t, &b, n.out[0], x,
        b_const_borrow(&b, value_type(t->g, x)->elem, &count, 1, (struct span){all, (size_t)count}));
    if (value_type(t->g, x)->elem != ELEM_U8)
        x = b_op(&b, OP_BITCAST, &x, 1, &bits, 1);
    for (uint32_t k = 0; k < n.n_in; k++)
        release(t, n.in[k], f.leaf);
    graph_replace(t->g, id, b_gather(&b, table, x, 0));
}

bool tabulate(struct module *m)
{
    struct graph *g = m->g;
    const uint32_t values = g->values.n, regions = g->regions.n;
    struct tabulator t = {.g = g, .of = NEW_ARRAY(m->arena, struct function, values)};
    t.uses = NEW_ARRAY(m->arena, uint32_t, values);
    t.made = NEW_ARRAY(m->arena, struct made, values);
    for (uint32_t i = 1; i < values; i++)
        t.uses[i] = g->values.data[i].n_uses;
    for (uint32_t r = 1; r < regions; r++) {
        const struct region *region = graph_get_region(g, (region_id){r});
        const uint32_t n = region->nodes.n;
        node_id *nodes = arena_copy(m->arena, region->nodes.data, n * sizeof *nodes);
        for (uint32_t i = 0; i < n; i++)
            if (!graph_node(g, nodes[i])->dead)
                learn(&t, graph_node(g, nodes[i]));
        for (uint32_t i = n; i > 0; i--) { /* the longest chains first */
            const struct node *node = graph_node(g, nodes[i - 1]);
            if (node->dead || node->n_out != 1 || !t.of[node->out[0].i].dear || !t.uses[node->out[0].i] ||
                !is_byte(value_type(g, node->out[0])) ||
                !type_same_shape(value_type(g, node->out[0]), value_type(g, t.of[node->out[0].i].leaf)))
                continue;
            tabulate_node(&t, nodes[i - 1]);
        }
    }
    graph_sweep(g);
    return true;
}
