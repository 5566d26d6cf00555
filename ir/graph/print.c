/* Text form of the tensor graph (docs/mcir.md), imported and legal alike.
 *
 * Values, sources and regions have numbers in the order of the text, so a graph that was parsed back prints the same
 * text. Symbols are those that the graph's types, attributes and known elements use (ir/graph/numbers.c).
 */
#include "ir/graph/graph.h"

#include <math.h>
#include <stdio.h>

enum { DATA_SHORT = 64, VALUES_SHOWN = 8, INDENT = 2 };

struct printer {
    const struct graph *g;
    struct exprs *x;
    struct strbuf *out;
    bool full;
    uint32_t n_syms;
    struct graph_numbers n;
};

#define PUT(p, ...) strbuf_printf((p)->out, __VA_ARGS__)

/* ---- pieces ---------------------------------------------------------------------------------------------------- */

/* As strbuf_quoted; NULs too. */
static void put_quoted(struct printer *p, const char *s, size_t n)
{
    if (strlen(s) >= n) {
        strbuf_quoted(p->out, s);
        return;
    }
    PUT(p, "\"");
    for (size_t i = 0; i < n; i++)
        PUT(p, "\\x%02x", (unsigned char)s[i]);
    PUT(p, "\"");
}

static void put_name(struct printer *p, const char *s)
{
    strbuf_quoted(p->out, s ? s : "");
}

static void put_type(struct printer *p, const struct type *t)
{
    uint32_t depth = 0;
    for (; t && t->kind != TYPE_TENSOR && t->kind != TYPE_UNKNOWN; t = t->inner, depth++) {
        if (t->kind == TYPE_MAP)
            PUT(p, "map<%s, ", elem_name(t->elem));
        else
            PUT(p, t->kind == TYPE_SEQUENCE ? "seq<" : "opt<");
    }
    if (!t || t->kind == TYPE_UNKNOWN) {
        PUT(p, "unknown");
    } else {
        PUT(p, "%s[", elem_name(t->elem));
        for (int32_t i = 0; i < t->rank; i++) {
            PUT(p, "%s", i ? ", " : "");
            ex_print(p->x, t->dims[i], p->out);
        }
        PUT(p, t->rank == RANK_NONE ? "-]" : t->rank < 0 ? "*]" : "]");
    }
    while (depth--)
        PUT(p, ">");
}

/* The shortest text that reads back as the same double. */
static void put_double(struct printer *p, double v)
{
    char text[40];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    PUT(p, "%s", isnan(v) ? "nan" : text);
}

static void put_hex(struct printer *p, struct span data)
{
    static const char digits[] = "0123456789abcdef";
    if (data.size > DATA_SHORT && !p->full) {
        PUT(p, "...");
        return;
    }
    PUT(p, "hex\"");
    const unsigned char *bytes = data.data;
    char pair[64];
    uint32_t n = 0;
    for (size_t i = 0; i < data.size; i++) {
        pair[n++] = digits[bytes[i] >> 4];
        pair[n++] = digits[bytes[i] & 15];
        if (n == sizeof pair || i + 1 == data.size) {
            strbuf_append(p->out, pair, n);
            n = 0;
        }
    }
    PUT(p, "\"");
}

static void put_tensor(struct printer *p, const struct tensor_data *t)
{
    PUT(p, "%s[", elem_name(t->elem));
    for (int32_t i = 0; i < t->rank; i++)
        PUT(p, "%s%lld", i ? ", " : "", (long long)t->dims[i]);
    PUT(p, "] ");
    if (t->name) {
        put_name(p, t->name);
        PUT(p, " ");
    }
    if (t->elem != ELEM_STR) {
        put_hex(p, t->bytes);
        return;
    }
    const struct span *strings = t->bytes.data;
    size_t n = t->bytes.size / sizeof *strings;
    PUT(p, "strings [");
    for (size_t i = 0; i < n; i++) {
        PUT(p, "%s", i ? ", " : "");
        put_quoted(p, arena_strndup(p->out->arena, strings[i].data ? strings[i].data : "", strings[i].size),
                   strings[i].size);
    }
    PUT(p, "]");
}

static uint32_t region_index(const struct node *node, region_id r)
{
    uint32_t k = 0;
    while (k < node->n_region && node->region[k].i != r.i)
        k++;
    return k;
}

static void put_list_item(struct printer *p, const struct attr *a, uint32_t i)
{
    switch (a->kind) {
    case ATTR_INTS: PUT(p, "%lld", (long long)a->u.ints[i]); break;
    case ATTR_FLOATS: put_double(p, a->u.floats[i]); break;
    case ATTR_STRS: put_name(p, a->u.strs[i]); break;
    case ATTR_EXPRS: ex_print(p->x, a->u.exprs[i], p->out); break;
    default: put_tensor(p, &a->u.tensor[i]); break;
    }
}

static void put_attr_value(struct printer *p, const struct node *node, const struct attr *a)
{
    switch (a->kind) {
    case ATTR_INT: PUT(p, "%lld", (long long)a->u.i); return;
    case ATTR_FLOAT: put_double(p, a->u.f); return;
    case ATTR_STR:
    case ATTR_REF: put_quoted(p, a->u.s, a->n); return;
    case ATTR_EXPR: ex_print(p->x, a->u.e, p->out); return;
    case ATTR_ELEM: PUT(p, "%s", elem_name(a->u.elem)); return;
    case ATTR_DATA: put_hex(p, a->u.data); return;
    case ATTR_TENSOR: put_tensor(p, a->u.tensor); return;
    case ATTR_REGION: PUT(p, "%u", node ? region_index(node, a->u.region) : 0); return;
    case ATTR_TYPE: put_type(p, a->u.type); return;
    default: break;
    }
    PUT(p, "[");
    for (uint32_t i = 0; i < a->n; i++) {
        PUT(p, "%s", i ? ", " : "");
        put_list_item(p, a, i);
    }
    PUT(p, "]");
}

/* {axis=1, perm=[0, 1]}; the kind is spelled out where ops.def does not say it. */
static void put_attrs(struct printer *p, const struct node *node, const struct attr *attrs, uint32_t n)
{
    struct op_attr declared[OP_ATTR_MAX];
    uint32_t n_declared = node ? op_attrs(node->op, declared) : 0;
    PUT(p, " {");
    for (uint32_t i = 0; i < n; i++) {
        const struct attr *a = &attrs[i];
        bool known = false;
        for (uint32_t k = 0; k < n_declared; k++)
            known |= strcmp(declared[k].name, a->name) == 0 && declared[k].kind == (char)a->kind;
        PUT(p, "%s", i ? ", " : "");
        if (known)
            PUT(p, "%s=", a->name);
        else {
            put_name(p, a->name);
            PUT(p, ":%c=", (char)a->kind);
        }
        put_attr_value(p, node, a);
    }
    PUT(p, "}");
}

/* ---- nodes and regions ------------------------------------------------------------------------------------------- */

static void put_ref(struct printer *p, value_id v)
{
    if (v.i)
        PUT(p, "%%%u", p->n.value[v.i]);
    else
        PUT(p, "_");
}

static void put_definition(struct printer *p, value_id v)
{
    put_ref(p, v);
    if (!v.i)
        return;
    const struct value *value = graph_value(p->g, v);
    if (value->name) {
        PUT(p, " ");
        put_name(p, value->name);
    }
    PUT(p, ": ");
    put_type(p, &value->type);
    if (!value->elems)
        return;
    PUT(p, " known [");
    for (uint32_t i = 0; i < value->n_elems; i++) {
        PUT(p, "%s", i ? ", " : "");
        ex_print(p->x, value->elems[i], p->out);
    }
    PUT(p, "]");
}

/* The first elements of a constant in decimal, as a comment. */
static void put_values(struct printer *p, const struct node *node)
{
    const struct attr *data = node_attr(node, "data");
    enum elem elem = node_elem(node, "elem");
    char class = elem_class(elem);
    if (!data || data->kind != ATTR_DATA || class == 'C' || class == 'S' || !elem_size(elem))
        return;
    size_t n = data->u.data.size / elem_size(elem);
    const char *bytes = data->u.data.data;
    for (size_t i = 0; i < n && i < VALUES_SHOWN; i++) {
        PUT(p, i ? ", " : "  ; ");
        if (class == 'F')
            PUT(p, "%.6g", elem_to_f64(elem, bytes + i * elem_size(elem)));
        else
            PUT(p, "%lld", (long long)elem_to_i64(elem, bytes + i * elem_size(elem)));
    }
    if (n > VALUES_SHOWN)
        PUT(p, ", ...");
}

static void put_region(struct printer *p, region_id r, int indent);

static void put_node(struct printer *p, const struct node *node, int indent)
{
    PUT(p, "%*s", indent, "");
    for (uint32_t i = 0; i < node->n_out; i++) {
        PUT(p, "%s", i ? ", " : "");
        put_definition(p, node->out[i]);
    }
    PUT(p, "%s%s", node->n_out ? " = " : "", op_name(node->op));
    if (node->op == OP_IMPORTED) {
        const char *const names[] = {node->op_type, node->domain, node->overload};
        for (uint32_t i = 0; i < COUNT_OF(names) && (i == 0 || (names[i] && *names[i])); i++) {
            PUT(p, i ? "." : " ");
            put_name(p, names[i]);
        }
    }
    PUT(p, "(");
    for (uint32_t i = 0; i < node->n_in; i++) {
        PUT(p, "%s", i ? ", " : "");
        put_ref(p, node->in[i]);
    }
    PUT(p, ")");
    if (node->n_attr)
        put_attrs(p, node, node->attr, node->n_attr);
    if (node->src.i)
        PUT(p, " @%u", p->n.src[node->src.i]);
    if (node->op == OP_CONSTANT)
        put_values(p, node);
    for (uint32_t i = 0; i < node->n_region; i++)
        put_region(p, node->region[i], indent + INDENT);
    PUT(p, "\n");
}

/* On a line of its own: region (params) { nodes, return results } */
static void put_region(struct printer *p, region_id r, int indent)
{
    const struct region *region = graph_get_region(p->g, r);
    PUT(p, "\n%*sregion (", indent, "");
    for (uint32_t i = 0; i < region->params.n; i++) {
        PUT(p, "%s", i ? ", " : "");
        put_definition(p, region->params.data[i]);
    }
    PUT(p, ") {\n");
    for (uint32_t i = 0; i < region->nodes.n; i++)
        put_node(p, graph_node(p->g, region->nodes.data[i]), indent + INDENT);
    PUT(p, "%*sreturn ", indent + INDENT, "");
    for (uint32_t i = 0; i < region->results.n; i++) {
        PUT(p, "%s", i ? ", " : "");
        put_ref(p, region->results.data[i]);
    }
    PUT(p, "\n%*s}", indent, "");
}

/* ---- the parts around the body ----------------------------------------------------------------------------------- */

static void put_bound(struct printer *p, int64_t v)
{
    if (v == INT64_MIN || v == INT64_MAX)
        PUT(p, v < 0 ? "-inf" : "inf");
    else
        PUT(p, "%lld", (long long)v);
}

static void put_bounds(struct printer *p, struct sym_bounds b)
{
    PUT(p, " [");
    put_bound(p, b.lo);
    PUT(p, ", ");
    put_bound(p, b.hi);
    PUT(p, "]");
    if (b.divisor != 1)
        PUT(p, " / %lld", (long long)b.divisor);
}

static void put_symbols(struct printer *p)
{
    static const char *const kinds[] = {[SYM_SHAPE] = "shape", [SYM_VALUE] = "value", [SYM_LOOP] = "loop"};
    for (uint32_t s = 1; s <= p->n_syms; s++) {
        if (!p->n.symbol[s])
            continue;
        const struct symbol *sym = sym_get(p->x, (sym_id){s});
        PUT(p, "symbol ");
        put_name(p, sym->name);
        PUT(p, " %s", kinds[sym->kind]);
        put_bounds(p, (struct sym_bounds){sym->lo, sym->hi, sym->divisor});
        const struct sym_bounds g = sym->given;
        if (g.lo != sym->lo || g.hi != sym->hi || g.divisor != sym->divisor) {
            PUT(p, " given");
            put_bounds(p, g);
        }
        if (sym->least < sym->filled)
            PUT(p, " empty [%lld, %lld]", (long long)sym->least, (long long)sym->filled - 1);
        PUT(p, sym->room ? " room\n" : "\n");
    }
    for (uint32_t s = 1; s <= p->n_syms; s++) {
        const struct symbol *sym = sym_get(p->x, (sym_id){s});
        if (!p->n.symbol[s] || !sym->bound.i)
            continue;
        PUT(p, "bound ");
        put_name(p, sym->name);
        PUT(p, " <= ");
        ex_print(p->x, sym->bound, p->out);
        PUT(p, "\n");
    }
}

/* Which element of which value a symbol is, or that it is a dim of one; after the body, where the values have
 * numbers. */
static void put_bindings(struct printer *p)
{
    for (uint32_t s = 1; s <= p->n_syms; s++) {
        const struct symbol *sym = sym_get(p->x, (sym_id){s});
        if (!p->n.symbol[s] || sym->kind != SYM_VALUE || !sym->value || sym->value >= p->g->values.n ||
            !p->n.value[sym->value])
            continue;
        PUT(p, "bind ");
        put_name(p, sym->name);
        if (sym->elem == UINT32_MAX)
            PUT(p, " = dim %%%u\n", p->n.value[sym->value]);
        else
            PUT(p, " = %%%u[%u]\n", p->n.value[sym->value], sym->elem);
    }
}

static void put_opsets(struct printer *p, const struct opset *opsets, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        PUT(p, "opset ");
        put_name(p, opsets[i].domain);
        PUT(p, " %lld\n", (long long)opsets[i].version);
    }
}

static void put_sources(struct printer *p)
{
    for (uint32_t i = 0; i < p->n.n_srcs; i++) {
        const struct source *s = source_get(p->g->ctx, p->n.srcs[i]);
        const char *const texts[] = {s->name, s->op, s->domain, s->output, s->origin};
        PUT(p, "source %u", i + 1);
        for (uint32_t k = 0; k < COUNT_OF(texts) && (texts[k] || k < 4); k++) {
            PUT(p, " ");
            put_name(p, texts[k]);
        }
        PUT(p, " %d\n", s->version);
    }
}

static void put_size_checks(struct printer *p)
{
    for (uint32_t i = 0; i < p->g->size_checks.n; i++) {
        const struct size_check *c = &p->g->size_checks.data[i];
        PUT(p, "check ");
        put_name(p, sym_get(p->x, c->sym)->name);
        if (c->same.i)
            put_name(p, (PUT(p, " = "), sym_get(p->x, c->same)->name));
        else
            put_bounds(p, c->bounds);
        PUT(p, "%s %lld ", c->unless_empty ? " unless empty" : "", (long long)c->code);
        put_name(p, c->text);
        if (c->src.i)
            PUT(p, " @%u", p->n.src[c->src.i]);
        PUT(p, "\n");
    }
}

static void put_functions(struct printer *p)
{
    for (uint32_t i = 0; i < p->g->functions.n; i++) {
        const struct model_function *f = &p->g->functions.data[i];
        PUT(p, "function ");
        put_name(p, f->name);
        PUT(p, ".");
        put_name(p, f->domain);
        PUT(p, ".");
        put_name(p, f->overload);
        PUT(p, " (");
        for (uint32_t k = 0; k < f->attr_names.n; k++) {
            PUT(p, "%s", k ? ", " : "");
            put_name(p, f->attr_names.data[k]);
        }
        PUT(p, ")");
        put_attrs(p, NULL, f->attr_defaults.data, f->attr_defaults.n);
        PUT(p, "\n");
        put_opsets(p, f->opsets.data, f->opsets.n);
        if (f->body.i)
            put_region(p, f->body, 0);
        PUT(p, "\n");
    }
}

static void put_ports(struct printer *p, const char *word, const struct port *ports, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        PUT(p, "%s ", word);
        put_name(p, ports[i].name);
        PUT(p, " ");
        put_ref(p, ports[i].value);
        if (ports[i].declared) {
            PUT(p, ": ");
            put_type(p, ports[i].declared);
        }
        PUT(p, "\n");
    }
}

void graph_print(const struct graph *g, struct strbuf *out, bool full)
{
    struct exprs *x = g->ctx->exprs;
    struct printer p = {g, x, out, full, sym_count(x), graph_numbers(g, out->arena)};
    PUT(&p, "mcir 1 ");
    put_name(&p, g->name);
    PUT(&p, " %s %lld\n", g->legal ? "legal" : "imported", (long long)g->ir_version);
    put_opsets(&p, g->opsets.data, g->opsets.n);
    for (uint32_t i = 0; i < g->metadata.n; i++) {
        PUT(&p, "meta ");
        put_name(&p, g->metadata.data[i].key);
        PUT(&p, " ");
        put_name(&p, g->metadata.data[i].value);
        PUT(&p, "\n");
    }
    put_symbols(&p);
    put_sources(&p);
    put_size_checks(&p);
    put_functions(&p);
    put_region(&p, (region_id){1}, 0);
    PUT(&p, "\n");
    put_ports(&p, "input", g->inputs.data, g->inputs.n);
    put_ports(&p, "output", g->outputs.data, g->outputs.n);
    for (uint32_t i = 0; i < g->states.n; i++) {
        PUT(&p, "state ");
        put_tensor(&p, &g->states.data[i].initial);
        PUT(&p, "\n");
    }
    put_bindings(&p);
}
