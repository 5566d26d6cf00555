/* What mcc inspect finds as JSON (docs/json.md). */
#include <string.h>

#include "cli/commands/inspect/inspect.h"
#include "cli/library/compile/build_note.h"

static const char *port_kind(uint64_t flags)
{
    return flags & MCC_PORT_SEQUENCE   ? "sequence"
           : flags & MCC_PORT_OPTIONAL ? "optional"
           : flags & MCC_PORT_MAP      ? "map"
                                       : "tensor";
}

/* A number, the name of a symbol, an expression over such, or null: the data decides. */
static void put_dim(const mcc_api *api, const mcc_dim *dim, struct json *j)
{
    if (dim->extent >= 0)
        json_int(j, NULL, dim->extent);
    else if (dim->extent == -1 && dim->symbol >= 0)
        json_text(j, NULL, api->sym[dim->symbol].name);
    else
        json_text(j, NULL, dim->expr && *dim->expr ? dim->expr : NULL);
}

/* Of each dim its room, null where it has none; left out where no dim has. */
static void put_room(const mcc_port *port, struct json *j)
{
    int32_t n = 0;
    for (int32_t i = 0; i < port->ndim; i++)
        n += port->dims[i].room > 0;
    if (!n)
        return;
    json_open(j, "room", '[');
    for (int32_t i = 0; i < port->ndim; i++)
        if (port->dims[i].room > 0)
            json_int(j, NULL, port->dims[i].room);
        else
            json_null(j, NULL);
    json_close(j, '[');
}

static void put_port(const mcc_api *api, const mcc_port *port, struct json *j)
{
    enum elem elem = elem_by_dlpack(port->dtype);
    json_open(j, NULL, '{');
    json_text(j, "name", port->name);
    json_text(j, "kind", port_kind(port->flags));
    json_text(j, "type", port->flags & MCC_PORT_STRING ? "str" : elem == ELEM_NONE ? NULL : elem_name(elem));
    if (port->ndim < 0) {
        json_null(j, "dims");
    } else {
        json_open(j, "dims", '[');
        for (int32_t i = 0; i < port->ndim; i++)
            put_dim(api, &port->dims[i], j);
        json_close(j, '[');
    }
    json_bool(j, "dynamic", port->flags & MCC_PORT_DYNAMIC);
    if (port->alias > 0 && port->alias <= api->n_in)
        json_text(j, "alias", api->in[port->alias - 1].name);
    put_room(port, j);
    json_close(j, '{');
}

static void put_symbol(const mcc_symbol *sym, struct json *j)
{
    json_open(j, NULL, '{');
    json_text(j, "name", sym->name);
    json_int(j, "least", sym->min);
    if (sym->max)
        json_int(j, "most", sym->max);
    else
        json_null(j, "most");
    json_int(j, "step", sym->step > 1 ? sym->step : 1);
    json_close(j, '{');
}

static void ports_json(const mcc_api *api, struct json *j)
{
    json_open(j, "inputs", '[');
    for (uint32_t i = 0; i < api->n_in; i++)
        put_port(api, &api->in[i], j);
    json_close(j, '[');
    json_open(j, "outputs", '[');
    for (uint32_t i = 0; i < api->n_out; i++)
        put_port(api, &api->out[i], j);
    json_close(j, '[');
    const mcc_state *state = mcc_state_of(api);
    if (state)
        json_open(j, "states", '[');
    for (uint32_t i = 0; state && i < state->n; i++)
        put_port(api, &state->port[i], j);
    if (state)
        json_close(j, '[');
    json_open(j, "symbols", '[');
    for (uint32_t i = 0; i < api->n_sym; i++)
        put_symbol(&api->sym[i], j);
    json_close(j, '[');
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

static void put_sizes(const struct artifact_file *a, struct json *j)
{
    const struct sizes *s = &a->sizes;
    uint64_t variants = 0, known = s->weights + s->code + s->tables + s->symbols + s->graph + s->debug + s->headers;
    const char *p = a->api.features;
    json_open(j, "bytes", '{');
    json_uint(j, "file", s->file);
    json_uint(j, "weights", s->weights);
    json_open(j, "variants", '[');
    for (int i = 0; *p && i < VARIANTS_MAX; i++) {
        size_t n = strcspn(p, ",");
        json_open(j, NULL, '{');
        json_text(j, "cpu", arena_strndup(j->out->arena, p, n));
        json_uint(j, "code", s->variant[i]);
        json_close(j, '{');
        variants += s->variant[i];
        p += n + (p[n] == ',');
    }
    json_close(j, '[');
    json_uint(j, "runtime", s->code > variants ? s->code - variants : 0);
    json_uint(j, "tables", s->tables + s->headers);
    json_uint(j, "names", s->symbols);
    json_uint(j, "graph", s->graph);
    json_uint(j, "lines", s->debug);
    json_uint(j, "padding", s->file > known ? s->file - known : 0);
    if (a->note.sealed)
        json_uint(j, "weights_padding", s->weights_padding);
    else
        json_null(j, "weights_padding");
    json_uint(j, "sidecar", s->sidecar);
    json_close(j, '{');
}

static void put_functions(const struct artifact_file *a, struct json *j)
{
    json_open(j, "functions", '[');
    for (uint32_t i = 0; i < a->functions.n; i++) {
        const struct code_size *f = &a->functions.data[i];
        json_open(j, NULL, '{');
        json_text(j, "name", f->name);
        json_int(j, "variant", (int64_t)f->variant + 1);
        json_uint(j, "bytes", f->bytes);
        json_close(j, '{');
    }
    json_close(j, '[');
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

static void put_source(const mcc_node *node, struct json *j)
{
    json_open(j, NULL, '{');
    json_text(j, "name", node->name);
    json_text(j, "operator", node->op);
    json_text(j, "source", node->source && *node->source ? node->source : NULL);
    json_close(j, '{');
}

/* Row i leads kernels: an object, which is left open. */
static void put_node(const mcc_node *row, uint32_t i, struct json *j)
{
    json_open(j, NULL, '{');
    json_uint(j, "node", i);
    json_text(j, "name", row[i].name);
    json_text(j, "operator", row[i].op);
    json_text(j, "source", row[i].source && *row[i].source ? row[i].source : NULL);
    json_uint(j, "flops", row[i].flops);
    json_uint(j, "bytes", row[i].bytes);
    json_uint(j, "kernels", row[i].kernels);
    json_open(j, "also", '[');
    for (uint64_t k = row[i].next; k; k = row[k].next)
        json_uint(j, NULL, k);
    json_close(j, '[');
    json_open(j, "nodes", '[');
    put_source(&row[i], j);
    for (uint64_t k = row[i].next; k; k = row[k].next)
        put_source(&row[k], j);
    json_close(j, '[');
}

static void put_nodes(const struct artifact_file *a, struct json *j)
{
    const mcc_api *api = &a->api;
    uint32_t *next, *first = kernels_by_node(a, j->out->arena, &next);
    json_open(j, "kernels", '[');
    for (uint32_t i = 0; i < api->n_node; i++) {
        if (!api->node[i].kernels)
            continue;
        put_node(api->node, i, j);
        json_open(j, "functions", '[');
        for (uint32_t k = first[i]; k; k = next[k])
            json_text(j, NULL, a->desc.kernels[k - 1].name);
        json_close(j, '[');
        json_close(j, '{');
    }
    json_close(j, '[');
}

static void put_meta(const char *meta, struct json *j)
{
    json_open(j, "meta", '[');
    while (meta && *meta) {
        const char *value = meta + strlen(meta) + 1;
        json_open(j, NULL, '{');
        json_text(j, "key", meta);
        json_text(j, "value", value);
        json_close(j, '{');
        meta = value + strlen(value) + 1;
    }
    json_close(j, '[');
}

static void put_build(struct span note, struct json *j)
{
    const char *name, *value;
    json_open(j, "build", '[');
    while (build_note_next(j->out->arena, &note, &name, &value))
        json_text(j, NULL, arena_printf(j->out->arena, "%s=%s", name, value));
    json_close(j, '[');
}

static void put_workspace(const mcc_api *api, const struct workspace *w, struct json *j)
{
    if (!w->known) {
        json_null(j, "workspace");
        return;
    }
    json_open(j, "workspace", '{');
    json_uint(j, "bytes", w->bytes);
    json_open(j, "at", '[');
    for (uint32_t i = 0; i < api->n_sym; i++) {
        json_open(j, NULL, '{');
        json_text(j, "name", api->sym[i].name);
        json_int(j, "value", w->symbols[i]);
        json_close(j, '{');
    }
    json_close(j, '[');
    json_close(j, '{');
}

void artifact_json(const struct artifact_file *a, const struct workspace *w, bool verified, const char *key,
                   struct json *j)
{
    const mcc_api *api = &a->api;
    json_open(j, key, '{');
    json_text(j, "kind", "compiled");
    json_text(j, "name", api->name);
    json_text(j, "compiler", api->compiler);
    json_text(j, "target", api->target);
    json_bool(j, "runs_here", a->runs_here && !w->why);
    put_sizes(a, j);
    ports_json(api, j);
    put_workspace(api, w, j);
    put_nodes(a, j);
    put_functions(a, j);
    put_build(a->build, j);
    put_meta(api->meta, j);
    json_bool(j, "verified", verified);
    json_close(j, '{');
}

/* ---- a network --------------------------------------------------------------------------------------------------- */

static void put_weight(const struct module *m, const struct weight *w, struct json *j)
{
    const struct type *t = value_type(m->g, w->value);
    json_open(j, NULL, '{');
    json_text(j, "name", weight_name(m, w->value));
    json_text(j, "type", elem_name(t->elem));
    json_open(j, "dims", '[');
    for (int32_t d = 0; d < t->rank; d++) {
        int64_t n = 0;
        if (ex_is_const(m->ctx->exprs, t->dims[d], &n))
            json_int(j, NULL, n);
        else
            json_null(j, NULL);
    }
    json_close(j, '[');
    json_uint(j, "offset", w->offset);
    json_uint(j, "bytes", w->bytes);
    json_uint(j, "padding", w->bytes - weight_elements_bytes(m, w));
    json_uint(j, "winograd", 0); /* a key of schema 1: no weights are stored transformed */
    json_close(j, '{');
}

void weights_json(const struct module *m, struct json *j)
{
    json_open(j, "weights", '[');
    for (uint32_t i = 0; i < m->plan.weights.n; i++)
        put_weight(m, &m->plan.weights.data[i], j);
    json_close(j, '[');
}

void network_json(const struct compilation *c, const mcc_node *row, uint32_t n, struct json *j)
{
    const struct module *m = c->module;
    json_open(j, NULL, '{');
    json_text(j, "kind", "network");
    json_text(j, "name", c->graph->name ? c->graph->name : "");
    json_open(j, "kernels", '[');
    for (uint32_t i = 1; i < n; i++) {
        if (!row[i].kernels)
            continue;
        put_node(row, i, j);
        json_close(j, '{');
    }
    json_close(j, '[');
    json_int(j, "constants_in_file", c->constants_in);
    json_uint(j, "weights_bytes", m->plan.weights_bytes);
    weights_json(m, j);
    struct strbuf text = strbuf_of(j->out->arena);
    ex_print(m->ctx->exprs, m->plan.arena_bytes, &text);
    json_text(j, "workspace", text.data ? text.data : "0");
    json_close(j, '{');
}
