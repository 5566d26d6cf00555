/* merge-constants: constants of equal type and bytes become one value.
 *
 * In and out: a legal graph. Exporters write a tensor once for each place that uses it (initializers of equal bytes,
 * Constant nodes, one copy in each branch of an If); here they meet, so that storage, packing and the sizes below count
 * one. The value that stays is the first in program order, or a copy at the head of the top region where that one is
 * inside a nested region. Bytes are compared only where types and a sample of the bytes agree, so weights are not read
 * for this.
 */
#include "passes/module/module.h"

#include <string.h>

enum { SLOTS_MIN = 64, BYTES_MIN = 64 };    /* smaller ones are written into the code, not stored */

struct entry {
    node_id node;
    uint64_t key;
};
struct merger {
    struct graph *g;
    struct entry *slots;
    uint32_t mask;
    VEC(node_id) found;        /* constants in program order */
    value_id *with;            /* by value: what stands for it; {0}: itself */
    uint32_t n_values;         /* of those that existed at the start */
};

static const struct attr *data_of(const struct graph *g, node_id id)
{
    return node_attr(graph_node(g, id), "data");
}

static const struct type *type_of(const struct graph *g, node_id id)
{
    return value_type(g, graph_node(g, id)->out[0]);
}

static void collect(struct merger *m, region_id id)
{
    const struct region *region = graph_get_region(m->g, id);
    for (uint32_t i = 0; i < region->nodes.n; i++) {
        const struct node *node = graph_node(m->g, region->nodes.data[i]);
        const struct attr *data = node->op == OP_CONSTANT && !node->dead ? node_attr(node, "data") : NULL;
        if (data && data->kind == ATTR_DATA && data->u.data.size >= BYTES_MIN &&
            value_type(m->g, node->out[0])->elem != ELEM_STR)
            VEC_PUSH(&m->g->arena, &m->found, region->nodes.data[i]);
        for (uint32_t k = 0; !node->dead && k < node->n_region; k++)
            collect(m, node->region[k]);
    }
}

/* Of the type and of bytes spread over the data. */
static uint64_t key_of(const struct merger *m, node_id id)
{
    const struct type *t = type_of(m->g, id);
    struct span data = data_of(m->g, id)->u.data;
    uint64_t key = hash_mix(t->elem, (uint64_t)t->rank);
    for (int32_t i = 0; i < t->rank; i++)
        key = hash_mix(key, t->dims[i].i);
    return hash_mix(key, hash_spread(data.data, data.size));
}

static bool same_constant(const struct merger *m, node_id a, node_id b)
{
    struct span x = data_of(m->g, a)->u.data, y = data_of(m->g, b)->u.data;
    return type_equal(type_of(m->g, a), type_of(m->g, b)) && x.size == y.size &&
           (x.data == y.data || memcmp(x.data, y.data, x.size) == 0);
}

/* The slot of an equal constant, or the empty one where this belongs. */
static struct entry *slot_of(struct merger *m, node_id id, uint64_t key)
{
    uint32_t i = (uint32_t)key & m->mask;
    while (m->slots[i].node.i && !(m->slots[i].key == key && same_constant(m, m->slots[i].node, id)))
        i = (i + 1) & m->mask;
    return &m->slots[i];
}

/* A copy of the constant before everything else. */
static node_id hoist(struct merger *m, node_id id)
{
    struct graph *g = m->g;
    node_id first = graph_get_region(g, (region_id){1})->nodes.data[0];
    struct type type = *type_of(g, id);
    struct node node = *graph_node(g, id);
    node_id copy = graph_insert_before(g, first, OP_CONSTANT, node.src, NULL, 0, node.attr, node.n_attr, &type, 1);
    graph_value_describe(g, graph_node(g, copy)->out[0], node.out[0]);
    m->with[node.out[0].i] = graph_node(g, copy)->out[0];
    return copy;
}

/* Points every use at what stands for the value. Constants that are results of a region are few: those one by one. */
static void rewrite(struct merger *m)
{
    struct graph *g = m->g;
    for (uint32_t i = 1; i < g->nodes.n; i++) {
        const struct node *node = graph_node(g, (node_id){i});
        for (uint32_t k = 0; !node->dead && k < node->n_in; k++)
            if (node->in[k].i && node->in[k].i < m->n_values && m->with[node->in[k].i].i)
                graph_set_operand(g, (node_id){i}, k, m->with[node->in[k].i]);
    }
    for (uint32_t v = 1; v < m->n_values; v++)
        if (m->with[v].i && graph_value(g, (value_id){v})->n_uses)
            graph_replace_uses(g, (value_id){v}, m->with[v]);
}

bool merge_constants(struct module *module)
{
    struct graph *g = module->g;
    struct merger m = {.g = g};
    collect(&m, (region_id){1});
    uint32_t n_slots = SLOTS_MIN;
    while (n_slots < 2 * m.found.n)
        n_slots *= 2;
    m.mask = n_slots - 1;
    m.n_values = g->values.n;
    m.with = NEW_ARRAY(&g->arena, value_id, m.n_values);
    m.slots = NEW_ARRAY(&g->arena, struct entry, n_slots);
    for (uint32_t i = 0; i < m.found.n; i++) {
        node_id id = m.found.data[i];
        uint64_t key = key_of(&m, id);
        struct entry *slot = slot_of(&m, id, key);
        if (!slot->node.i) {
            *slot = (struct entry){id, key};
            continue;
        }
        if (graph_get_region(g, graph_node(g, slot->node)->parent)->parent.i)
            slot->node = hoist(&m, slot->node);
        m.with[graph_node(g, id)->out[0].i] = graph_node(g, slot->node)->out[0];
    }
    rewrite(&m);
    graph_sweep(g);
    return true;
}
