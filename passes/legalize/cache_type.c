/* Caches in a narrower type (--cache-type): an output that is an input with new rows, and the input, are of that type.
 *
 *   present = concat(past, rows)                past, present: f32
 *
 *   present = concat(past, convert(rows, T))    past, present: T;    whatever else reads them: convert(present, f32)
 *
 * between them any of the operators below, which move elements and compute nothing. Rows are rounded as they enter the
 * cache, so that a run reads its own as a later run reads them: results do not depend on how many rows a run adds. The
 * interface changes, so this belongs to the legal graph, which the interpreter runs too. Kernels widen what they load.
 */
#include "passes/legalize/driver.h"

#include <string.h>

enum { STEPS_MOST = 64 }; /* operators between an input and its output */

/* The way from an output back to the input: each value, and which operand of its node is the next one. */
struct way {
    value_id at[STEPS_MOST];
    uint32_t operand[STEPS_MOST], n;
    value_id past;
};

/* Operands first to last - 1 hold elements of the result; none: first == last. */
static void moved_operands(const struct node *n, uint32_t *first, uint32_t *last)
{
    *first = *last = 0;
    switch (n->op) {
    case OP_IDENTITY:
    case OP_SLICE:
    case OP_PAD:
    case OP_TRANSPOSE:
    case OP_RESHAPE: *last = 1; break;
    case OP_CONCAT: *last = n->n_in; break;
    case OP_SELECT:
        *first = 1;
        *last = 3;
        break;
    case OP_SCATTER_ELEMENTS:
    case OP_SCATTER_ND: *last = strcmp(node_str(n, "monoid", ""), "set") ? 0 : 1; break;
    default: break;
    }
}

/* Do both have one type, and the same dims but for one at most? */
static bool is_cache(const struct graph *g, value_id past, value_id present)
{
    const struct type *from = value_type(g, past), *to = value_type(g, present);
    int32_t differ = 0;
    if (from->kind != TYPE_TENSOR || from->elem != to->elem || from->rank != to->rank || from->rank < 2)
        return false;
    for (int32_t d = 0; d < from->rank; d++)
        differ += from->dims[d].i != to->dims[d].i;
    return differ <= 1;
}

static bool is_user_input(const struct graph *g, value_id v)
{
    for (uint32_t k = 0; k < graph_user_inputs(g); k++)
        if (g->inputs.data[k].value.i == v.i)
            return true;
    return false;
}

/* Depth first; seen, by value: from those of this stamp no way leads to an input. */
static bool find_way(const struct graph *g, value_id v, uint32_t stamp, uint32_t *seen, struct way *w)
{
    const struct node *n = value_node(g, v);
    uint32_t first, last;
    if (!n && is_user_input(g, v) && w->n && is_cache(g, v, w->at[0])) {
        w->past = v;
        return true;
    }
    if (!n || seen[v.i] == stamp || w->n == STEPS_MOST)
        return false;
    seen[v.i] = stamp;
    moved_operands(n, &first, &last);
    w->at[w->n++] = v;
    for (uint32_t k = first; k < last; k++) {
        w->operand[w->n - 1] = k;
        if (find_way(g, n->in[k], stamp, seen, w))
            return true;
    }
    w->n--;
    return false;
}

/* All that read v read this instead, but for the node that makes it of v. */
static void widen_for_readers(struct graph *g, value_id v, value_id wide)
{
    const struct node *n = value_node(g, wide);
    graph_replace_uses(g, v, wide);
    if (n->in[0].i == wide.i)
        graph_set_operand(g, graph_value(g, wide)->def, 0, v);
}

/* The value at step i of the way in the narrow type, computed of the one before it; readers of the wide one read it. */
static value_id narrowed(struct graph *g, const struct way *w, uint32_t i, value_id before, enum elem to)
{
    node_id id = graph_value(g, w->at[i])->def;
    const struct node n = *graph_node(g, id);
    struct builder b = builder_before(g, id);
    enum elem from = value_type(g, w->at[i])->elem;
    value_id *in = arena_copy(&g->arena, n.in, n.n_in * sizeof *in);
    for (uint32_t k = 0; k < n.n_in; k++) /* what is of the type in question are elements of the result */
        in[k] = k == w->operand[i] ? before : value_type(g, in[k])->elem == from ? b_convert(&b, in[k], to) : in[k];
    value_id y = b_op(&b, n.op, in, n.n_in, n.attr, n.n_attr), wide = b_convert(&b, y, from);
    if (!wide.i)
        return wide;
    graph_value(g, y)->name = graph_value(g, w->at[i])->name;
    widen_for_readers(g, w->at[i], wide);
    return y;
}

static void port_narrow(struct graph *g, struct port *p, value_id v, enum elem to)
{
    p->value = v;
    if (p->declared) {
        struct type *t = arena_copy(&g->arena, p->declared, sizeof *t);
        t->elem = to;
        p->declared = t;
    }
}

static bool cache_narrow(struct graph *g, const struct way *w, uint32_t output, enum elem to)
{
    struct value *past = graph_value(g, w->past);
    enum elem from = past->type.elem;
    struct builder b = builder_before(g, graph_get_region(g, (region_id){1})->nodes.data[0]);
    uint32_t input = 0;
    while (g->inputs.data[input].value.i != w->past.i)
        input++;
    past->type.elem = to;
    value_id v = w->past, wide = b_convert(&b, v, from);
    if (!wide.i)
        return false;
    widen_for_readers(g, v, wide);
    port_narrow(g, &g->inputs.data[input], v, to);
    for (uint32_t i = w->n; v.i && i-- > 0;)
        v = narrowed(g, w, i, v, to);
    if (!v.i)
        return false;
    graph_set_result(g, (region_id){1}, output, v);
    port_narrow(g, &g->outputs.data[output], v, to);
    return true;
}

/* Finds the way from output k; *seen has room for *room values. */
static bool output_way(const struct graph *g, uint32_t k, enum elem to, uint32_t **seen, uint32_t *room, struct way *w)
{
    const struct type *t = value_type(g, g->outputs.data[k].value);
    if (t->kind != TYPE_TENSOR || elem_class(t->elem) != 'F' || elem_bits(t->elem) <= elem_bits(to))
        return false;
    if (*room < g->values.n) {
        *room = 2 * g->values.n;
        *seen = NEW_ARRAY(&g->ctx->session, uint32_t, *room);
    }
    w->n = 0;
    return find_way(g, g->outputs.data[k].value, k + 1, *seen, w);
}

bool caches_narrow(struct graph *g, enum elem to)
{
    struct way w;
    uint32_t *seen = NULL, room = 0;
    bool any = false;
    for (uint32_t k = 0; k < graph_user_outputs(g); k++)
        if (output_way(g, k, to, &seen, &room, &w)) {
            if (!cache_narrow(g, &w, k, to))
                return false;
            any = true;
        }
    graph_sweep(g);
    return any || error_at(g->ctx, FAIL_USAGE, (src_id){0}, NULL,
                           "'cache-type': the model has no output that is an input of a wider type with new rows");
}
