/* Caches in a narrower type (--cache-type): an output that is an input with new rows, and the input, are of that type.
 *
 *   present = concat(past, rows)                past, present: f32
 *
 *   present = concat(past, convert(rows, T))    past, present: T;    whatever else reads them: convert(present, f32)
 *
 * between them any of the operators below, which move elements and compute nothing. Integers have scales, f32, which
 * go the same way from an input to an output of their own, NAME.scale (cache_scales.h). Rows are rounded as they enter
 * the cache, so that a run reads its own as a later run reads them: results do not depend on how many rows a run adds.
 * The interface changes, so this belongs to the legal graph, which the interpreter runs too. Kernels widen what they
 * load.
 */
#include "passes/legalize/cache_scales.h"
#include "passes/legalize/driver.h"

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
    bool scaled; /* to integers */
    struct way way; /* of the output at work */
    uint32_t *seen, room; /* by value: from those that have the number of the output at work no way leads to an input */
    VEC(struct widened {
        value_id wide;
        struct narrow from;
    })
    wide; /* values in the narrow type, and what others read of them */
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

/* Do both have one type, and the same dims except for one at most? */
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

/* What v is a widened form of; no numbers: of nothing. */
static struct narrow narrow_of(const struct caches *c, value_id v)
{
    for (uint32_t i = 0; i < c->wide.n; i++)
        if (c->wide.data[i].wide.i == v.i)
            return c->wide.data[i].from;
    return (struct narrow){{0}, {0}};
}

/* Depth first. */
static bool find_way(struct caches *c, value_id v, uint32_t stamp)
{
    struct graph *g = c->g;
    const struct node *n = value_node(g, v);
    struct way *w = &c->way;
    uint32_t first, last;
    bool end = n ? narrow_of(c, v).numbers.i : is_user_input(g, v) && w->n;
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
        if ((!c->scaled || scales_move(g, n, k)) && find_way(c, n->in[k], stamp))
            return true;
    }
    w->n--;
    return false;
}

/* Floats of 8 bits end at the largest number, as those of Cast do. */
static struct narrow narrowed(struct caches *c, struct builder *b, value_id v)
{
    struct attr attrs[] = {attr_elem("elem", c->to), attr_int("saturate", 1)};
    if (c->scaled)
        return scales_narrowed(b, v, c->to);
    return (struct narrow){b_op(b, OP_CONVERT, &v, 1, attrs, elem_bits(c->to) == 8 ? 2 : 1), {0}};
}

/* All that read `was` read v as it was, widened; v may be the same value. false after an error. */
static bool widen_for_readers(struct caches *c, struct builder *b, value_id was, struct narrow v, enum elem from)
{
    uint32_t first = c->g->nodes.n;
    struct widened w = {c->scaled ? scales_widened(b, v, from) : b_convert(b, v.numbers, from), v};
    if (!w.wide.i)
        return false;
    graph_replace_uses(c->g, was, w.wide);
    for (uint32_t i = first; i < c->g->nodes.n; i++) /* except for what has just been made */
        for (uint32_t k = 0; k < c->g->nodes.data[i].n_in; k++)
            if (c->g->nodes.data[i].in[k].i == w.wide.i)
                graph_set_operand(c->g, (node_id){i}, k, v.numbers);
    VEC_PUSH(&c->g->ctx->session, &c->wide, w);
    return true;
}

/* The value at step i of the way in the narrow type, computed of the one before it; readers of the wide one read it. */
static struct narrow step_narrow(struct caches *c, uint32_t i, struct narrow before)
{
    struct graph *g = c->g;
    value_id was = c->way.at[i];
    node_id id = graph_value(g, was)->def;
    const struct node n = *graph_node(g, id);
    struct builder b = builder_before(g, id);
    enum elem from = value_type(g, was)->elem;
    uint32_t n_in = c->scaled && n.op == OP_PAD ? 1 : n.n_in; /* with zeros (scales_move) */
    value_id *in = arena_copy(&g->arena, n.in, n_in * sizeof *in),
             *scales = arena_copy(&g->arena, in, n_in * sizeof *in);
    for (uint32_t k = 0; k < n_in; k++) { /* what is of the type in question are elements of the result */
        bool element = k == c->way.operand[i] || value_type(g, in[k])->elem == from;
        struct narrow x = k == c->way.operand[i] ? before
                          : element              ? narrowed(c, &b, in[k])
                                                 : (struct narrow){in[k], {0}};
        scales[k] = element || !c->scaled ? x.scales : scales_operand(&b, &n, k);
        in[k] = x.numbers;
    }
    struct narrow y = {b_op(&b, n.op, in, n_in, n.attr, n.n_attr), {0}};
    if (c->scaled && y.numbers.i)
        y.scales = scales_step(&b, &n, scales, n_in);
    if (!y.numbers.i || !widen_for_readers(c, &b, was, y, from))
        return (struct narrow){{0}, {0}};
    graph_value(g, y.numbers)->name = graph_value(g, was)->name;
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

/* ---- ports of scales --------------------------------------------------------------------------------------------- */

/* Another of n ports, that of the scales of ports[k]: their value is v. Its declared dims are those of ports[k], which
 * name the symbols. false after an error. */
static bool scales_port(struct graph *g, const struct port *ports, uint32_t n, uint32_t k, value_id v,
                        struct port *port)
{
    const struct port *of = &ports[k];
    const char *name = arena_printf(&g->arena, "%s.scale", of->name);
    struct type *t = arena_copy(&g->arena, value_type(g, v), sizeof *t);
    if (ROW_NAMED(ports, n, name))
        return error_at(g->ctx, FAIL_USAGE, (src_id){0}, name,
                        "'cache-type': the scales of '%s' need this name, which another input or output has", of->name);
    if (of->declared && of->declared->rank == t->rank) {
        expr_id *dims = arena_copy(&g->arena, of->declared->dims, (size_t)t->rank * sizeof *dims);
        dims[t->rank - 1] = t->dims[t->rank - 1];
        t->dims = dims;
    }
    *port = (struct port){name, t, v};
    return true;
}

/* Another input, the last of those that callers see: the scales of input number k. */
static value_id scales_input(struct graph *g, uint32_t k)
{
    struct type t = *value_type(g, g->inputs.data[k].value);
    expr_id dims[RANK_MAX];
    struct port port;
    uint32_t at = graph_user_inputs(g);
    if (!scales_dims(g, &t, dims))
        return (value_id){0};
    t.elem = ELEM_F32;
    t.dims = dims;
    value_id v = graph_param(g, (region_id){1}, t, NULL);
    if (!scales_port(g, g->inputs.data, g->inputs.n, k, v, &port))
        return (value_id){0};
    graph_value(g, v)->name = port.name;
    VEC_PUSH(&g->arena, &g->inputs, port);
    value_id *params = graph_get_region(g, (region_id){1})->params.data;
    for (uint32_t i = g->inputs.n - 1; i > at; i--) {
        g->inputs.data[i] = g->inputs.data[i - 1];
        params[i] = params[i - 1];
        graph_value(g, params[i])->result = i;
    }
    g->inputs.data[at] = port;
    params[at] = v;
    graph_value(g, v)->result = at;
    return v;
}

static bool scales_output(struct graph *g, uint32_t k, value_id v)
{
    uint32_t at = graph_user_outputs(g);
    struct port port;
    if (!scales_port(g, g->outputs.data, g->outputs.n, k, v, &port))
        return false;
    VEC_PUSH(&g->arena, &g->outputs, port);
    graph_add_result(g, (region_id){1}, v);
    for (uint32_t i = g->outputs.n - 1; i > at; i--) {
        g->outputs.data[i] = g->outputs.data[i - 1];
        graph_set_result(g, (region_id){1}, i, g->outputs.data[i].value);
    }
    g->outputs.data[at] = port;
    graph_set_result(g, (region_id){1}, at, v);
    return true;
}

/* ---- a cache ----------------------------------------------------------------------------------------------------- */

static bool input_narrow(struct caches *c, value_id past, struct narrow *x)
{
    struct graph *g = c->g;
    struct builder b = builder_before(g, graph_get_region(g, (region_id){1})->nodes.data[0]);
    enum elem from = value_type(g, past)->elem;
    uint32_t input = 0;
    while (g->inputs.data[input].value.i != past.i)
        input++;
    graph_value(g, past)->type.elem = c->to;
    port_narrow(g, &g->inputs.data[input], past, c->to);
    *x = (struct narrow){past, c->scaled ? scales_input(g, input) : (value_id){0}};
    return widen_for_readers(c, &b, past, *x, from);
}

static bool cache_narrow(struct caches *c, uint32_t output)
{
    struct narrow x = narrow_of(c, c->way.past);
    bool ok = x.numbers.i || input_narrow(c, c->way.past, &x);
    for (uint32_t i = c->way.n; ok && i-- > 0;) {
        x = step_narrow(c, i, x);
        ok = x.numbers.i;
    }
    if (!ok)
        return false;
    graph_set_result(c->g, (region_id){1}, output, x.numbers);
    port_narrow(c->g, &c->g->outputs.data[output], x.numbers, c->to);
    return !c->scaled || scales_output(c->g, output, x.scales);
}

static bool output_way(struct caches *c, uint32_t k)
{
    struct graph *g = c->g;
    const struct type *t = value_type(g, g->outputs.data[k].value);
    if (!strncmp(g->outputs.data[k].name, PROBE_OPERAND, strlen(PROBE_OPERAND))) /* what a search sees: no interface */
        return false;
    expr_id dims[RANK_MAX];
    if (t->kind != TYPE_TENSOR || elem_class(t->elem) != 'F' || elem_bits(t->elem) <= elem_bits(c->to) ||
        (c->scaled && (t->rank < 2 || !scales_dims(g, t, dims))))
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
    struct caches c = {.g = g, .to = to, .scaled = elem_class(to) != 'F'};
    bool any = false;
    for (uint32_t k = 0, n = graph_user_outputs(g); k < n; k++)
        if (output_way(&c, k)) {
            if (!cache_narrow(&c, k))
                return false;
            any = true;
        }
    graph_sweep(g);
    return any || error_at(g->ctx, FAIL_USAGE, (src_id){0}, NULL,
                           "'cache-type': the model has no output that is an input of a wider type with new rows");
}
