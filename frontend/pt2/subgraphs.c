/* Higher-order operators: nodes whose arguments are graphs of the file.
 *
 * cond, while_loop, scan and map_impl become nodes with regions, lowered by the rules of ONNX's If, Loop and Scan. A
 * graph takes its inputs by position, as values from around the node or parameters of the region, and sees no others:
 * what it is given is up to date, so no view is made again within a region that somebody reads outside. Wrappers
 * (wrap_with_set_grad_enabled) are inlined: the nodes of their graph stand in their place.
 */
#include "frontend/pt2/pt2.h"

struct call {
    struct pt2 *p;
    const struct json *node;
    src_id src;
    const char *op;
};
/* Indices into pt2.values; 0: none. */
struct values {
    VEC(uint32_t) list;
};

#define refuse(c, ...) error_model((c)->p->ctx, (c)->src, __VA_ARGS__)

static const struct json *positional(const struct call *c, uint32_t i)
{
    const struct json *arg = json_first(json_get(c->node, "inputs"));
    for (; arg && i > 0; i--)
        arg = arg->next;
    return json_only(json_get(arg, "arg"));
}

/* ---- operands -------------------------------------------------------------------------------------------------- */

/* A tensor or number of the run, or a known number. u: {name}, or the member of a union. */
static bool operand(struct call *c, const struct json *u, struct values *out)
{
    static const char *const known[] = {"as_int", "as_bool", "as_float"};
    struct pt2 *p = c->p;
    uint32_t index = 0;
    int64_t i = 0;
    double f = 0;
    if (json_is(u, JSON_OBJECT) && !json_get(u, "name")) /* {as_sym_int: {as_name: "n"}} */
        u = json_only(u);
    const char *name = json_get(u, "graph") ? NULL : json_as_text(json_get(u, "name"));
    if (u && u->key && strcmp(u->key, "as_name") == 0)
        name = json_as_text(u);
    if (name) {
        if (!value_now(p, name, c->src, &index).i)
            return false;
        VEC_PUSH(&p->scratch, &out->list, index);
        return true;
    }
    bool number = u && u->key && ROW_NAMED(known, COUNT_OF(known), u->key);
    bool truth = json_is(u, JSON_BOOL), whole = !truth && json_as_int(u, &i);
    if (!number || (!truth && !whole && !json_as_number(u, &f)))
        return refuse(c, "an operand of %s is neither a tensor nor a number", c->op);
    const uint8_t bit = truth && u->u.truth;
    const void *data = truth ? (const void *)&bit : whole ? (const void *)&i : (const void *)&f;
    enum elem elem = truth ? ELEM_BOOL : whole ? ELEM_I64 : ELEM_F64;
    size_t size = (size_t)elem_size(elem);
    value_id v = pt2_constant(p, elem, NULL, 0, arena_copy(&p->ctx->session, data, size), "");
    VEC_PUSH(&p->scratch, &out->list, value_new(p, "", v));
    return true;
}

/* All of a list, or the one that argument i is; none: an absent one. */
static bool operands(struct call *c, uint32_t i, struct values *out)
{
    const struct json *u = positional(c, i);
    if (!u || strcmp(u->key, "as_none") == 0)
        return true;
    if (!json_is(u, JSON_LIST))
        return operand(c, u, out);
    for (const struct json *e = json_first(u); e; e = e->next)
        if (!operand(c, json_get(e, "name") ? e : json_only(e), out))
            return false;
    return true;
}

static const struct json *graph_at(struct call *c, uint32_t i)
{
    const struct json *u = positional(c, i);
    const struct json *graph = u && strcmp(u->key, "as_graph") == 0 ? json_get(u, "graph") : NULL;
    if (!json_is(graph, JSON_OBJECT))
        refuse(c, "argument %u of %s is not a graph", i, c->op);
    return graph;
}

/* ---- graphs ---------------------------------------------------------------------------------------------------- */

/* The name in {as_tensor: {name}} or {as_sym_int: {as_name}}; NULL: it has none. */
static const char *name_in(const struct json *arg)
{
    const struct json *u = json_only(arg);
    const char *name = json_as_text(json_get(u, "name"));
    return name ? name : json_as_text(json_get(u, "as_name"));
}

static bool inputs_bind(struct call *c, const struct json *graph, const struct values *in)
{
    const struct json *inputs = json_get(graph, "inputs");
    uint32_t n = 0;
    if (!json_is(inputs, JSON_LIST) || inputs->n != in->list.n)
        return refuse(c, "a graph of %s has %u inputs, and is given %u", c->op, inputs ? inputs->n : 0, in->list.n);
    for (const struct json *i = json_first(inputs); i; i = i->next, n++) {
        const char *name = name_in(i);
        if (name && pt2_is_bound(c->p, name))
            return refuse(c, "two inputs of a graph of %s are called '%s'", c->op, name);
        if (name) /* else it is not read */
            name_bind(&c->p->names, name, (value_id){in->list.data[n]}, 0);
    }
    return true;
}

static bool results_find(struct call *c, const struct json *graph, struct values *out)
{
    for (const struct json *o = json_first(json_get(graph, "outputs")); o; o = o->next) {
        const struct json *u = json_only(o);
        bool none = u && strcmp(u->key, "as_none") == 0;
        if (none)
            VEC_PUSH(&c->p->scratch, &out->list, 0);
        else if (!operand(c, json_is(u, JSON_OBJECT) ? u : json_only(o), out))
            return false;
    }
    return true;
}

/* The nodes of a graph whose inputs are these values; its results. */
static bool graph_import(struct call *c, const struct json *graph, const struct values *in, struct values *out)
{
    struct pt2 *p = c->p;
    uint32_t floor = p->floor;
    if (p->depth >= (uint32_t)p->ctx->limits.subgraph_depth)
        return error_limit(p->ctx, c->src, "graphs within nodes, nested deeper than %d (--limit-subgraph-depth)",
                           (int)p->ctx->limits.subgraph_depth);
    p->depth++;
    scope_open(&p->names);
    scope_open(&p->metas);
    scope_open(&p->numbers);
    p->floor = p->names.scope;
    pt2_metas(p, graph);
    bool ok = inputs_bind(c, graph, in) && pt2_nodes(p, graph) && results_find(c, graph, out);
    p->floor = floor;
    p->depth--;
    scope_close(&p->numbers);
    scope_close(&p->metas);
    scope_close(&p->names);
    return ok;
}

/* ---- regions --------------------------------------------------------------------------------------------------- */

/* Within a region of its own, the values are others: what is written there is not seen outside. */
static void values_enter(struct call *c, const struct values *from, struct values *to)
{
    for (uint32_t i = 0; i < from->list.n; i++) {
        uint32_t index = value_new(c->p, c->op, c->p->values.data[from->list.data[i]].v);
        c->p->storages.data[c->p->values.data[index].storage].kind = STORAGE_OPERAND;
        VEC_PUSH(&c->p->scratch, &to->list, index);
    }
}

/* Parameters of the region that begin as these values. */
static void params_enter(struct call *c, const struct values *from, struct values *to)
{
    struct pt2 *p = c->p;
    for (uint32_t i = 0; i < from->list.n; i++) {
        const struct type *t = value_type(p->g, p->values.data[from->list.data[i]].v);
        struct type type = t->kind == TYPE_TENSOR ? pt2_any(t->elem) : *t;
        uint32_t index = value_new(p, c->op, graph_param(p->g, p->region, type, ""));
        p->storages.data[p->values.data[index].storage].kind = STORAGE_OPERAND;
        VEC_PUSH(&p->scratch, &to->list, index);
    }
}

static bool results_add(struct call *c, region_id region, const struct values *results)
{
    for (uint32_t i = 0; i < results->list.n; i++) {
        if (!results->list.data[i])
            return refuse(c, "a graph of %s has a result that is None", c->op);
        graph_add_result(c->p->g, region, c->p->values.data[results->list.data[i]].v);
    }
    return true;
}

static node_id node_with_regions(struct call *c, const struct values *in, bool skip, const struct attr *attrs,
                                 uint32_t n_attrs)
{
    struct pt2 *p = c->p;
    value_id *list = NEW_ARRAY(&p->scratch, value_id, in->list.n + 2);
    uint32_t n = skip;
    for (uint32_t i = 0; i < in->list.n; i++)
        list[n++] = p->values.data[in->list.data[i]].v;
    return node_results(p, c->node, c->src, "higher_order", c->op, list, n, attrs, n_attrs);
}

static struct attr attr_region(const char *name)
{
    return (struct attr){.name = name, .kind = ATTR_REGION};
}

/* The region of attribute k, in which nodes are appended until region_leave. */
static region_id region_enter(struct call *c, node_id id, uint32_t k)
{
    region_id outer = c->p->region;
    c->p->region = graph_region(c->p->g, outer, id);
    graph_node(c->p->g, id)->attr[k].u.region = c->p->region;
    return outer;
}

/* cond(predicate, graph, graph, operands) */
static bool import_cond(struct call *c)
{
    const struct attr attrs[] = {attr_region("then_branch"), attr_region("else_branch")};
    struct values predicate = {0}, in = {0};
    if (!operands(c, 0, &predicate) || !operands(c, 3, &in))
        return false;
    if (predicate.list.n != 1)
        return refuse(c, "the predicate is not a single value");
    node_id id = node_with_regions(c, &predicate, false, attrs, 2);
    for (uint32_t k = 0; id.i && k < 2; k++) {
        const struct json *graph = graph_at(c, k + 1);
        struct values inner = {0}, out = {0};
        region_id outer = region_enter(c, id, k);
        values_enter(c, &in, &inner);
        bool ok = graph && graph_import(c, graph, &inner, &out) && results_add(c, c->p->region, &out);
        c->p->region = outer;
        if (!ok)
            return false;
    }
    return id.i;
}

/* The condition of a loop, which a graph computes from the carried values and others. */
static bool condition(struct call *c, const struct values *in, struct values *out)
{
    const struct json *graph = graph_at(c, 0);
    return graph && graph_import(c, graph, in, out) &&
           ((out->list.n == 1 && out->list.data[0]) ||
            refuse(c, "the graph of the condition has %u results", out->list.n));
}

/* while_loop(graph of the condition, graph of the body, carried, others): the condition is computed before the loop and
 * at the end of the body. */
static bool import_while(struct call *c)
{
    const struct attr attrs[] = {attr_region("body")};
    const struct type i64 = {.kind = TYPE_TENSOR, .elem = ELEM_I64}, flag = {.kind = TYPE_TENSOR, .elem = ELEM_BOOL};
    struct values in = {0}, around = {0}, both = {0}, first = {0}, inner = {0}, next = {0}, last = {0};
    struct pt2 *p = c->p;
    if (!operands(c, 2, &in) || !operands(c, 3, &around))
        return false;
    values_enter(c, &in, &both);
    values_enter(c, &around, &both);
    if (!condition(c, &both, &first))
        return false;
    for (uint32_t i = 0; i < in.list.n; i++)
        VEC_PUSH(&p->scratch, &first.list, in.list.data[i]);
    node_id id = node_with_regions(c, &first, true, attrs, 1);
    if (!id.i)
        return false;
    region_id outer = region_enter(c, id, 0);
    graph_param(p->g, p->region, i64, "");
    graph_param(p->g, p->region, flag, "");
    params_enter(c, &in, &inner);
    values_enter(c, &around, &inner);
    const struct json *body = graph_at(c, 1);
    bool ok = body && graph_import(c, body, &inner, &next);
    if (ok && next.list.n != in.list.n)
        ok = refuse(c, "the body has %u results for %u carried values", next.list.n, in.list.n);
    struct values after = {0};
    for (uint32_t i = 0; ok && i < next.list.n; i++)
        VEC_PUSH(&p->scratch, &after.list, next.list.data[i]);
    values_enter(c, &around, &after);
    ok = ok && condition(c, &after, &last) && results_add(c, p->region, &last) && results_add(c, p->region, &next);
    p->region = outer;
    return ok;
}

/* scan(graph, carried, scanned, others), and map_impl(graph, scanned, others). */
static bool import_scan(struct call *c, uint32_t scanned)
{
    struct values in = {0}, around = {0}, inner = {0}, out = {0};
    struct pt2 *p = c->p;
    if (scanned == 2 && !operands(c, 1, &in))
        return false;
    uint32_t carried = in.list.n;
    if (!operands(c, scanned, &in) || !operands(c, scanned + 1, &around))
        return false;
    const struct attr attrs[] = {attr_region("body"), attr_int("num_scan_inputs", in.list.n - carried)};
    node_id id = node_with_regions(c, &in, false, attrs, 2);
    const struct json *body = graph_at(c, 0);
    if (!id.i || !body)
        return false;
    region_id outer = region_enter(c, id, 0);
    params_enter(c, &in, &inner);
    values_enter(c, &around, &inner);
    bool ok = graph_import(c, body, &inner, &out) && results_add(c, p->region, &out);
    p->region = outer;
    return ok;
}

/* ---- wrappers -------------------------------------------------------------------------------------------------- */

/* The graph is argument `at`, its inputs are those from `first` on. The results are those of the graph, views as they
 * are. */
static bool import_inline(struct call *c, uint32_t at, uint32_t first)
{
    struct values in = {0}, out = {0};
    struct pt2 *p = c->p;
    const struct json *graph = graph_at(c, at);
    uint32_t n = json_get(c->node, "inputs")->n, k = 0;
    const char *const *names;
    for (uint32_t i = first; i < n; i++)
        if (!operands(c, i, &in))
            return false;
    if (!graph || !graph_import(c, graph, &in, &out))
        return false;
    names = node_result_names(p, c->node, c->src, &n);
    if (!names || n != out.list.n)
        return names && refuse(c, "the graph of %s has %u results, the node %u", c->op, out.list.n, n);
    for (; k < n; k++) {
        if (names[k] && pt2_is_bound(p, names[k]))
            return refuse(c, "two values are called '%s'", names[k]);
        if (names[k] && out.list.data[k])
            name_bind(&p->names, names[k], (value_id){out.list.data[k]}, 0);
    }
    return true;
}

/* wrap_with_autocast(device, type, enabled, cache, graph, ...): operators in it are not cast in the file. */
static bool import_autocast(struct call *c)
{
    enum elem outer = c->p->autocast;
    const struct json *enabled = positional(c, 2), *type = positional(c, 1);
    int64_t code = 0;
    json_as_int(type, &code);
    c->p->autocast = json_is(enabled, JSON_BOOL) && enabled->u.truth ? elem_by_torch(code) : ELEM_NONE;
    if (json_is(enabled, JSON_BOOL) && enabled->u.truth && c->p->autocast == ELEM_NONE)
        return refuse(c, "autocast has no dtype: state it and export again");
    bool ok = import_inline(c, 4, 5);
    c->p->autocast = outer;
    return ok;
}

bool higher_order_import(struct pt2 *p, const struct json *node, src_id src, const char *op)
{
    static const struct wrapper {
        const char *op;
        uint32_t graph, first; /* places of the graph and of its first input */
    } wrappers[] = {{"wrap_with_set_grad_enabled", 1, 2},
                    {"tag_activation_checkpoint", 0, 1},
                    {"wrap_activation_checkpoint", 0, 1},
                    {"invoke_subgraph", 0, 2}};
    struct call c = {p, node, src, op};
    if (strcmp(op, "cond") == 0)
        return import_cond(&c);
    if (strcmp(op, "while_loop") == 0)
        return import_while(&c);
    if (strcmp(op, "scan") == 0 || strcmp(op, "map_impl") == 0)
        return import_scan(&c, *op == 's' ? 2 : 1);
    if (strcmp(op, "wrap_with_autocast") == 0)
        return import_autocast(&c);
    const struct wrapper *w = ROW_NAMED(wrappers, COUNT_OF(wrappers), op);
    if (w)
        return import_inline(&c, w->graph, w->first);
    return refuse(&c, "higher-order operator '%.60s' is not supported: write it with cond, while_loop, scan or map",
                  op);
}
