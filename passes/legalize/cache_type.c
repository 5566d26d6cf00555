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

/* The way from an output back to the input, or to what was widened after a way before: each value, and which operand of
 * its node is the next one. */
struct way {
    value_id at[STEPS_MOST];
    uint32_t operand[STEPS_MOST], n;
    value_id past;
};
struct caches {
    struct graph *g;
    enum elem to;
    struct way way; /* of the output at work */
    uint32_t *seen, room; /* by value: from those that have the number of the output at work no way leads to an input */
    VEC(value_id) wide; /* conversions of values in the narrow type */
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

static bool is_wide(const struct caches *c, value_id v)
{
    bool found = false;
    for (uint32_t i = 0; i < c->wide.n && !found; i++)
        found = c->wide.data[i].i == v.i;
    return found;
}

/* Depth first. */
static bool find_way(struct caches *c, value_id v, uint32_t stamp)
{
    const struct graph *g = c->g;
    const struct node *n = value_node(g, v);
    struct way *w = &c->way;
    uint32_t first, last;
    bool end = n ? n->op == OP_CONVERT && is_wide(c, v) : is_user_input(g, v) && w->n;
    if (end && (!w->n || is_cache(g, v, w->at[0]))) {
        w->past = v;
        return true;
    }
    if (!n || c->seen[v.i] == stamp || w->n == STEPS_MOST)
        return false;
    c->seen[v.i] = stamp;
    moved_operands(n, &first, &last);
    w->at[w->n++] = v;
    for (uint32_t k = first; k < last; k++) {
        w->operand[w->n - 1] = k;
        if (find_way(c, n->in[k], stamp))
            return true;
    }
    w->n--;
    return false;
}

/* All that read `was` read v as it was, widened; v may be the same value. false after an error. */
static bool widen_for_readers(struct caches *c, struct builder *b, value_id was, value_id v, enum elem from)
{
    value_id wide = b_convert(b, v, from);
    if (!wide.i)
        return false;
    graph_replace_uses(c->g, was, wide);
    if (was.i == v.i)
        graph_set_operand(c->g, graph_value(c->g, wide)->def, 0, v);
    VEC_PUSH(&c->g->ctx->session, &c->wide, wide);
    return true;
}

/* Floats of 8 bits end at the largest number, as those of Cast do. */
static value_id narrowed(struct caches *c, struct builder *b, value_id v)
{
    struct attr attrs[] = {attr_elem("elem", c->to), attr_int("saturate", 1)};
    return b_op(b, OP_CONVERT, &v, 1, attrs, elem_bits(c->to) == 8 ? 2 : 1);
}

/* The value at step i of the way in the narrow type, computed of the one before it; readers of the wide one read it. */
static value_id step_narrow(struct caches *c, uint32_t i, value_id before)
{
    struct graph *g = c->g;
    value_id was = c->way.at[i];
    node_id id = graph_value(g, was)->def;
    const struct node n = *graph_node(g, id);
    struct builder b = builder_before(g, id);
    enum elem from = value_type(g, was)->elem;
    value_id *in = arena_copy(&g->arena, n.in, n.n_in * sizeof *in);
    for (uint32_t k = 0; k < n.n_in; k++) /* what is of the type in question are elements of the result */
        in[k] = k == c->way.operand[i] ? before : value_type(g, in[k])->elem == from ? narrowed(c, &b, in[k]) : in[k];
    value_id y = b_op(&b, n.op, in, n.n_in, n.attr, n.n_attr);
    if (!y.i || !widen_for_readers(c, &b, was, y, from))
        return (value_id){0};
    graph_value(g, y)->name = graph_value(g, was)->name;
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

static bool input_narrow(struct caches *c, value_id past)
{
    struct graph *g = c->g;
    struct builder b = builder_before(g, graph_get_region(g, (region_id){1})->nodes.data[0]);
    enum elem from = value_type(g, past)->elem;
    uint32_t input = 0;
    while (g->inputs.data[input].value.i != past.i)
        input++;
    graph_value(g, past)->type.elem = c->to;
    port_narrow(g, &g->inputs.data[input], past, c->to);
    return widen_for_readers(c, &b, past, past, from);
}

static bool cache_narrow(struct caches *c, uint32_t output)
{
    value_id v = c->way.past;
    const struct node *wide = value_node(c->g, v);
    if (!wide && !input_narrow(c, v))
        return false;
    v = wide ? wide->in[0] : v;
    for (uint32_t i = c->way.n; v.i && i-- > 0;)
        v = step_narrow(c, i, v);
    if (!v.i)
        return false;
    graph_set_result(c->g, (region_id){1}, output, v);
    port_narrow(c->g, &c->g->outputs.data[output], v, c->to);
    return true;
}

static bool output_way(struct caches *c, uint32_t k)
{
    struct graph *g = c->g;
    const struct type *t = value_type(g, g->outputs.data[k].value);
    if (!strncmp(g->outputs.data[k].name, PROBE_OPERAND, strlen(PROBE_OPERAND))) /* what a search sees: no interface */
        return false;
    if (t->kind != TYPE_TENSOR || elem_class(t->elem) != 'F' || elem_bits(t->elem) <= elem_bits(c->to))
        return false;
    if (c->room < g->values.n) {
        c->room = 2 * g->values.n;
        c->seen = NEW_ARRAY(&g->ctx->session, uint32_t, c->room);
    }
    c->way.n = 0;
    return find_way(c, g->outputs.data[k].value, k + 1);
}

bool caches_narrow(struct graph *g, enum elem to)
{
    struct caches c = {.g = g, .to = to};
    bool any = false;
    for (uint32_t k = 0; k < graph_user_outputs(g); k++)
        if (output_way(&c, k)) {
            if (!cache_narrow(&c, k))
                return false;
            any = true;
        }
    graph_sweep(g);
    return any || error_at(g->ctx, FAIL_USAGE, (src_id){0}, NULL,
                           "'cache-type': the model has no output that is an input of a wider type with new rows");
}
