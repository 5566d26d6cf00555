/* graph_parse (text.h): what graph_print wrote, or what was written by hand for a test. Symbols that the context
 * already knows are shared when their declarations agree. Values are defined before they are used.
 */
#include "tests/text/text.h"

#include <string.h>

#include "tests/text/read.h"

/* ---- values -------------------------------------------------------------------------------------------- */

static bool read_ref(struct reader *r, value_id *v)
{
    uint32_t k;
    *v = (value_id){0};
    if (read_accept(r, "_"))
        return true;
    if (!read_expect(r, "%") || !read_count(r, &k))
        return false;
    if (k >= r->values.n || !r->values.data[k].i)
        return read_fail(r, "the value is not defined above");
    *v = r->values.data[k];
    return true;
}

static bool number_value(struct reader *r, uint32_t k, value_id v)
{
    while (r->values.n <= k)
        VEC_PUSH(&r->g->arena, &r->values, (value_id){0});
    if (r->values.data[k].i)
        return read_fail(r, "the value is defined twice");
    r->values.data[k] = v;
    return true;
}

/* %3 "name": type known [..], or _ for an omitted result (omitted set). */
struct definition {
    uint32_t number;
    bool omitted;
    const char *name;
    struct type type;
    const expr_id *elems;
    uint32_t n_elems;
};
typedef VEC(struct definition) definition_list;

static bool read_known(struct reader *r, struct definition *d)
{
    VEC(expr_id) elems = {0};
    if (!read_expect(r, "["))
        return false;
    while (!read_accept(r, "]")) {
        expr_id e;
        if ((elems.n && !read_expect(r, ",")) || !read_expr(r, &e))
            return false;
        VEC_PUSH(&r->g->arena, &elems, e);
    }
    d->elems = elems.data ? elems.data : NEW(&r->g->arena, expr_id);
    d->n_elems = elems.n;
    return true;
}

static bool read_definition(struct reader *r, struct definition *d)
{
    *d = (struct definition){0};
    if (read_accept(r, "_")) {
        d->omitted = true;
        return true;
    }
    if (!read_expect(r, "%") || !read_count(r, &d->number))
        return false;
    scan_blanks(&r->s);
    if (*r->s.p == '"' && !(d->name = read_string(r, NULL)))
        return false;
    return read_expect(r, ":") && read_type(r, &d->type) && (!read_accept(r, "known") || read_known(r, d));
}

static bool define(struct reader *r, const struct definition *d, value_id v)
{
    struct value *value = graph_value(r->g, v);
    value->name = d->name;
    value->elems = d->elems;
    value->n_elems = d->n_elems;
    return number_value(r, d->number, v);
}

/* ---- nodes and regions ------------------------------------------------------------------------------------ */

static bool read_region(struct reader *, region_id, uint32_t depth);

static bool read_operands(struct reader *r, value_id **in, uint32_t *n)
{
    VEC(value_id) list = {0};
    if (!read_expect(r, "("))
        return false;
    while (!read_accept(r, ")")) {
        value_id v;
        if ((list.n && !read_expect(r, ",")) || !read_ref(r, &v))
            return false;
        VEC_PUSH(&r->g->arena, &list, v);
    }
    *in = list.data;
    *n = list.n;
    return true;
}

static enum op op_by_name(const char *name)
{
    for (unsigned op = OP_NONE + 1; op < OP_COUNT; op++)
        if (strcmp(op_name((enum op)op), name) == 0)
            return (enum op)op;
    return OP_NONE;
}

static bool read_op(struct reader *r, struct node *node)
{
    node->op = op_by_name(read_word(r));
    if (node->op == OP_NONE)
        return read_fail(r, "unknown operator");
    if (node->op != OP_IMPORTED)
        return true;
    const char **const names[] = {&node->op_type, &node->domain, &node->overload};
    for (uint32_t i = 0; i < COUNT_OF(names); i++) {
        *names[i] = "";
        if ((i == 0 || read_accept(r, ".")) && !(*names[i] = read_string(r, NULL)))
            return false;
    }
    return true;
}

/* "region (...) {...}" as often as it comes; attributes that name regions by index get their ids. */
static bool read_regions(struct reader *r, node_id id, uint32_t depth)
{
    while (read_accept(r, "region")) {
        if (depth >= (uint32_t)r->ctx->limits.subgraph_depth + (uint32_t)r->ctx->limits.call_depth)
            return read_fail(r, "regions are nested too deep (--limit-subgraph-depth, --limit-call-depth)");
        region_id region = graph_region(r->g, graph_node(r->g, id)->parent, id);
        if (!read_region(r, region, depth + 1))
            return false;
    }
    struct node *node = graph_node(r->g, id);
    for (uint32_t i = 0; i < node->n_attr; i++) {
        struct attr *a = &node->attr[i];
        if (a->kind != ATTR_REGION)
            continue;
        if (a->u.i < 0 || a->u.i >= node->n_region)
            return read_fail(r, "an attribute names a region that the node does not have");
        a->u.region = node->region[a->u.i];
    }
    return true;
}

static bool read_results(struct reader *r, definition_list *list)
{
    scan_blanks(&r->s);
    if (*r->s.p != '%' && *r->s.p != '_')
        return true;
    do {
        struct definition d;
        if (!read_definition(r, &d))
            return false;
        VEC_PUSH(&r->g->arena, list, d);
    } while (read_accept(r, ","));
    return read_expect(r, "=");
}

static bool read_src(struct reader *r, src_id *src)
{
    uint32_t k;
    *src = (src_id){0};
    if (!read_accept(r, "@"))
        return true;
    if (!read_count(r, &k))
        return false;
    if (k >= r->srcs.n)
        return read_fail(r, "the source is not declared above");
    *src = r->srcs.data[k];
    return true;
}

static bool read_node(struct reader *r, region_id region, uint32_t depth)
{
    definition_list results = {0};
    attr_list attrs = {0};
    struct node node = {0};
    if (!read_results(r, &results) || !read_op(r, &node) || !read_operands(r, &node.in, &node.n_in) ||
        !read_attrs(r, node.op, &attrs) || !read_src(r, &node.src))
        return false;
    struct type *types = NEW_ARRAY(&r->g->arena, struct type, results.n);
    for (uint32_t i = 0; i < results.n; i++)
        types[i] = results.data[i].type;
    node_id id = graph_append(r->g, region, node.op, node.src, node.in, node.n_in, attrs.data, attrs.n, types,
                              results.n);
    struct node *made = graph_node(r->g, id);
    made->op_type = node.op_type;
    made->domain = node.domain;
    made->overload = node.overload;
    for (uint32_t i = 0; i < results.n; i++) {
        if (results.data[i].omitted)
            made->out[i] = (value_id){0};
        else if (!define(r, &results.data[i], made->out[i]))
            return false;
    }
    return read_regions(r, id, depth);
}

/* After the word: (params) { nodes return results }. Recursion is bounded by read_regions. */
static bool read_region(struct reader *r, region_id region, uint32_t depth)
{
    if (!read_expect(r, "("))
        return false;
    for (bool first = true; !read_accept(r, ")"); first = false) {
        struct definition d;
        if ((!first && !read_expect(r, ",")) || !read_definition(r, &d))
            return false;
        if (d.omitted)
            return read_fail(r, "a parameter cannot be omitted");
        if (!define(r, &d, graph_param(r->g, region, d.type, d.name)))
            return false;
    }
    if (!read_expect(r, "{"))
        return false;
    while (!read_accept(r, "return")) {
        if (!read_node(r, region, depth))
            return false;
    }
    for (bool first = true; !read_accept(r, "}"); first = false) {
        value_id v;
        if ((!first && !read_expect(r, ",")) || !read_ref(r, &v))
            return false;
        graph_add_result(r->g, region, v);
    }
    return true;
}

/* ---- declarations -------------------------------------------------------------------------------------------- */

static bool read_bound(struct reader *r, int64_t *out)
{
    if (read_accept(r, "-inf")) {
        *out = INT64_MIN;
        return true;
    }
    if (read_accept(r, "inf")) {
        *out = INT64_MAX;
        return true;
    }
    return read_int(r, out);
}

/* [lo, hi] / divisor, which is 1 where it is left out. */
static bool read_bounds(struct reader *r, struct sym_bounds *b)
{
    b->divisor = 1;
    return read_expect(r, "[") && read_bound(r, &b->lo) && read_expect(r, ",") && read_bound(r, &b->hi) &&
           read_expect(r, "]") && (!read_accept(r, "/") || read_int(r, &b->divisor)) &&
           ((b->lo <= b->hi && b->divisor >= 1) || read_fail(r, "an empty range"));
}

static bool read_symbol(struct reader *r)
{
    static const char *const kinds[] = {[SYM_SHAPE] = "shape", [SYM_VALUE] = "value", [SYM_LOOP] = "loop"};
    const char *name = read_string(r, NULL);
    if (!name)
        return false;
    const char *word = read_word(r);
    uint32_t kind = 0;
    while (kind < COUNT_OF(kinds) && strcmp(kinds[kind], word) != 0)
        kind++;
    struct sym_bounds b, given;
    if (kind == COUNT_OF(kinds))
        return read_fail(r, "a symbol is a shape, a value or a loop");
    if (!read_bounds(r, &b))
        return false;
    given = b;
    if (read_accept(r, "given") && !read_bounds(r, &given))
        return false;
    struct sym_bounds empty = {b.lo, b.lo - (b.lo != INT64_MIN), 1};
    bool has_case = read_accept(r, "empty");
    if (has_case && !read_bounds(r, &empty))
        return false;
    if (!*name || (has_case && (kind != SYM_SHAPE || empty.lo < 0 || empty.hi >= b.lo)))
        return read_fail(r, "the symbol has no name, or an empty case within its bounds");
    const int64_t filled = has_case ? empty.hi + 1 : b.lo;
    bool room = read_accept(r, "room");
    if (room && (kind != SYM_SHAPE || b.hi > INT32_MAX))
        return read_fail(r, "only a shape of at most 2147483647 can have room");
    sym_id known = sym_find(r->x, name);
    if (!known.i) {
        known = sym_new(r->x, (enum sym_kind)kind, name, b.lo, b.hi);
        struct symbol *s = sym_get(r->x, known);
        s->divisor = b.divisor;
        s->room = room;
        s->given = given;
        s->least = empty.lo;
        s->filled = filled;
    }
    const struct symbol *s = sym_get(r->x, known);
    if (s->kind != (enum sym_kind)kind || s->lo != b.lo || s->hi != b.hi || s->divisor != b.divisor ||
        s->room != room || s->least != empty.lo || s->filled != filled || memcmp(&s->given, &given, sizeof given) != 0)
        return read_fail(r, "the symbol is declared otherwise already");
    return true;
}

static bool read_symbol_id(struct reader *r, sym_id *id)
{
    const char *name = read_string(r, NULL);
    *id = name ? sym_find(r->x, name) : (sym_id){0};
    return id->i || read_fail(r, "the symbol is not declared above");
}

static bool read_symbol_ref(struct reader *r, struct symbol **s)
{
    sym_id id;
    if (!read_symbol_id(r, &id))
        return false;
    *s = sym_get(r->x, id);
    return true;
}

static bool read_symbol_bound(struct reader *r)
{
    struct symbol *s;
    return read_symbol_ref(r, &s) && read_expect(r, "<=") && read_expr(r, &s->bound);
}

static bool read_binding(struct reader *r)
{
    struct symbol *s;
    value_id v;
    if (!read_symbol_ref(r, &s) || !read_expect(r, "="))
        return false;
    bool dim = read_accept(r, "dim");
    if (!read_ref(r, &v))
        return false;
    s->value = v.i;
    s->elem = UINT32_MAX;
    return dim || (read_expect(r, "[") && read_count(r, &s->elem) && read_expect(r, "]"));
}

/* source N "name" "op" "domain" "output" ["origin"] version */
static bool read_source(struct reader *r)
{
    struct source s = {0};
    const char **const texts[] = {&s.name, &s.op, &s.domain, &s.output};
    uint32_t k;
    int64_t version;
    if (!read_count(r, &k))
        return false;
    if (k != r->srcs.n)
        return read_fail(r, "sources are numbered from 1 in order");
    for (uint32_t i = 0; i < COUNT_OF(texts); i++)
        if (!(*texts[i] = read_string(r, NULL)))
            return false;
    scan_blanks(&r->s);
    if (*r->s.p == '"' && !(s.origin = read_string(r, NULL)))
        return false;
    if (!read_int(r, &version))
        return false;
    if (version < 0 || version > INT32_MAX)
        return read_fail(r, "the version is out of range");
    s.version = (int32_t)version;
    /* The context's sources outlive the graph. */
    const char **const all[] = {&s.name, &s.op, &s.domain, &s.output, &s.origin};
    for (uint32_t i = 0; i < COUNT_OF(all); i++)
        if (*all[i])
            *all[i] = arena_strdup(&r->ctx->session, *all[i]);
    src_id id = source_add(r->ctx, s);
    VEC_PUSH(&r->g->arena, &r->srcs, id);
    return true;
}

/* check "NAME" (BOUNDS | = "NAME") [unless empty] CODE "text" [@source] */
static bool read_size_check(struct reader *r)
{
    struct size_check c = {0};
    if (!read_symbol_id(r, &c.sym) || !(read_accept(r, "=") ? read_symbol_id(r, &c.same) : read_bounds(r, &c.bounds)) ||
        (read_accept(r, "unless") && !(c.unless_empty = read_expect(r, "empty"))) || !read_int(r, &c.code) ||
        !(c.text = read_string(r, NULL)) || !read_src(r, &c.src))
        return false;
    VEC_PUSH(&r->g->arena, &r->g->size_checks, c);
    return true;
}

static bool read_opset(struct reader *r, struct opset *out)
{
    return (out->domain = read_string(r, NULL)) != NULL && read_int(r, &out->version);
}

static bool read_function(struct reader *r)
{
    struct model_function f = {0};
    if (!(f.name = read_string(r, NULL)) || !read_expect(r, ".") || !(f.domain = read_string(r, NULL)) ||
        !read_expect(r, ".") || !(f.overload = read_string(r, NULL)) || !read_expect(r, "("))
        return false;
    while (!read_accept(r, ")")) {
        const char *name;
        if ((f.attr_names.n && !read_expect(r, ",")) || !(name = read_string(r, NULL)))
            return false;
        VEC_PUSH(&r->g->arena, &f.attr_names, name);
    }
    attr_list defaults = {0};
    if (!read_attrs(r, OP_NONE, &defaults))
        return false;
    for (uint32_t i = 0; i < defaults.n; i++)
        VEC_PUSH(&r->g->arena, &f.attr_defaults, defaults.data[i]);
    while (read_accept(r, "opset")) {
        struct opset o;
        if (!read_opset(r, &o))
            return false;
        VEC_PUSH(&r->g->arena, &f.opsets, o);
    }
    if (!read_expect(r, "region"))
        return false;
    f.body = graph_region(r->g, (region_id){0}, (node_id){0});
    VEC_PUSH(&r->g->arena, &r->g->functions, f);
    return read_region(r, f.body, 0);
}

static bool read_port(struct reader *r, bool input)
{
    struct port port = {0};
    if (!(port.name = read_string(r, NULL)) || !read_ref(r, &port.value))
        return false;
    if (read_accept(r, ":")) {
        struct type *t = NEW(&r->g->arena, struct type);
        if (!read_type(r, t))
            return false;
        port.declared = t;
    }
    if (input)
        VEC_PUSH(&r->g->arena, &r->g->inputs, port);
    else
        VEC_PUSH(&r->g->arena, &r->g->outputs, port);
    return true;
}

static bool read_graph_opset(struct reader *r)
{
    struct opset o;
    if (!read_opset(r, &o))
        return false;
    VEC_PUSH(&r->g->arena, &r->g->opsets, o);
    return true;
}

static bool read_meta(struct reader *r)
{
    struct meta m;
    if (!(m.key = read_string(r, NULL)) || !(m.value = read_string(r, NULL)))
        return false;
    VEC_PUSH(&r->g->arena, &r->g->metadata, m);
    return true;
}

static bool read_body(struct reader *r)
{
    const struct region *top = graph_get_region(r->g, (region_id){1});
    if (top->nodes.n || top->params.n || top->results.n)
        return read_fail(r, "the graph has a body already");
    return read_region(r, (region_id){1}, 0);
}

static bool read_input(struct reader *r)
{
    return read_port(r, true);
}
static bool read_output(struct reader *r)
{
    return read_port(r, false);
}

static bool read_state(struct reader *r)
{
    struct graph_state state;
    if (!read_tensor(r, &state.initial))
        return false;
    VEC_PUSH(&r->g->arena, &r->g->states, state);
    return r->g->states.n <= r->g->inputs.n && r->g->states.n <= r->g->outputs.n
               ? true
               : read_fail(r, "a state without an input and an output");
}

static bool read_statement(struct reader *r)
{
    static const struct {
        const char *word;
        bool (*read)(struct reader *);
    } statements[] = {
        {"opset", read_graph_opset}, {"meta", read_meta},    {"symbol", read_symbol},     {"bound", read_symbol_bound},
        {"source", read_source},     {"region", read_body},  {"function", read_function}, {"input", read_input},
        {"output", read_output},     {"bind", read_binding}, {"check", read_size_check},  {"state", read_state},
    };
    const char *word = read_word(r);
    for (size_t i = 0; i < COUNT_OF(statements); i++)
        if (strcmp(statements[i].word, word) == 0)
            return statements[i].read(r);
    return read_fail(
        r, "expected opset, meta, symbol, bound, source, function, region, input, output, state, bind or check");
}

static bool read_graph(struct reader *r)
{
    if (!read_expect(r, "mcir 1") || !(r->g->name = read_string(r, NULL)))
        return false;
    r->g->legal = read_accept(r, "legal");
    if ((!r->g->legal && !read_expect(r, "imported")) || !read_int(r, &r->g->ir_version))
        return false;
    for (scan_blanks(&r->s); *r->s.p; scan_blanks(&r->s))
        if (!read_statement(r))
            return false;
    return true;
}

struct graph *graph_parse(struct context *ctx, const char *text)
{
    struct graph *g = graph_new(ctx);
    struct reader r = {.ctx = ctx, .g = g, .x = ctx->exprs, .s = {text, text, " \t\r\n", ';'}, .size = strlen(text)};
    VEC_PUSH(&g->arena, &r.srcs, (src_id){0});
    if (read_graph(&r))
        return g;
    graph_free(g);
    return NULL;
}
