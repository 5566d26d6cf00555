/* What mcc inspect finds as JSON (docs/json.md). */
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
        JSON_ADD(j, j_known(NULL, port->dims[i].room > 0, (uint64_t)port->dims[i].room));
    json_close(j, "]");
}

static void put_port(const mcc_api *api, const mcc_port *port, struct json *j)
{
    enum elem elem = elem_by_dlpack(port->dtype);
    JSON_GROUP(j, NULL, "{", j_text("name", port->name), j_text("kind", port_kind(port->flags)),
               j_text("type", port->flags & MCC_PORT_STRING ? "str"
                              : elem == ELEM_NONE           ? NULL
                                                            : elem_name(elem)));
    if (port->ndim < 0) {
        json_null(j, "dims");
    } else {
        json_open(j, "dims", '[');
        for (int32_t i = 0; i < port->ndim; i++)
            put_dim(api, &port->dims[i], j);
        json_close(j, "]");
    }
    json_bool(j, "dynamic", port->flags & MCC_PORT_DYNAMIC);
    if (port->alias > 0 && port->alias <= api->n_in)
        json_text(j, "alias", api->in[port->alias - 1].name);
    put_room(port, j);
    json_close(j, "}");
}

static void put_ports(const mcc_api *api, const char *key, const mcc_port *ports, uint32_t n, struct json *j)
{
    json_open(j, key, '[');
    for (uint32_t i = 0; i < n; i++)
        put_port(api, &ports[i], j);
    json_close(j, "]");
}

static void put_symbol(const mcc_symbol *sym, struct json *j)
{
    JSON_GROUP(j, NULL, "{}", j_text("name", sym->name), j_int("least", sym->min),
               j_known("most", sym->max, (uint64_t)sym->max), j_int("step", sym->step > 1 ? sym->step : 1));
}

static void ports_json(const mcc_api *api, struct json *j)
{
    const mcc_state *state = mcc_state_of(api);
    put_ports(api, "inputs", api->in, api->n_in, j);
    put_ports(api, "outputs", api->out, api->n_out, j);
    if (state)
        put_ports(api, "states", state->port, state->n, j);
    json_open(j, "symbols", '[');
    for (uint32_t i = 0; i < api->n_sym; i++)
        put_symbol(&api->sym[i], j);
    json_close(j, "]");
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

static void put_sizes(const struct artifact_file *a, struct json *j)
{
    const struct sizes *s = &a->sizes;
    uint64_t variants = 0, known = s->weights + s->code + s->tables + s->symbols + s->graph + s->debug + s->headers;
    const char *p = a->api.features;
    JSON_GROUP(j, "bytes", "{", j_uint("file", s->file), j_uint("weights", s->weights));
    json_open(j, "variants", '[');
    for (int i = 0; *p && i < VARIANTS_MAX; i++) {
        size_t n = strcspn(p, ",");
        JSON_GROUP(j, NULL, "{}", j_text("cpu", arena_strndup(j->out->arena, p, n)), j_uint("code", s->variant[i]));
        variants += s->variant[i];
        p += n + (p[n] == ',');
    }
    json_close(j, "]");
    JSON_ADD(j, j_uint("runtime", s->code > variants ? s->code - variants : 0),
             j_uint("tables", s->tables + s->headers), j_uint("names", s->symbols), j_uint("graph", s->graph),
             j_uint("lines", s->debug), j_uint("padding", s->file > known ? s->file - known : 0),
             j_known("weights_padding", a->note.sealed, s->weights_padding), j_uint("sidecar", s->sidecar));
    json_close(j, "}");
}

static void put_functions(const struct artifact_file *a, struct json *j)
{
    json_open(j, "functions", '[');
    for (uint32_t i = 0; i < a->functions.n; i++) {
        const struct code_size *f = &a->functions.data[i];
        JSON_GROUP(j, NULL, "{}", j_text("name", f->name), j_int("variant", (int64_t)f->variant + 1),
                   j_uint("bytes", f->bytes));
    }
    json_close(j, "]");
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

static void put_source(const mcc_node *node, struct json *j)
{
    JSON_GROUP(j, NULL, "{}", j_text("name", node->name), j_text("operator", node->op),
               j_text("source", node->source && *node->source ? node->source : NULL));
}

/* Row i leads kernels: an object, which is left open. */
static void put_node(const mcc_node *row, uint32_t i, struct json *j)
{
    JSON_GROUP(j, NULL, "{", j_uint("node", i), j_text("name", row[i].name), j_text("operator", row[i].op),
               j_text("source", row[i].source && *row[i].source ? row[i].source : NULL), j_uint("flops", row[i].flops),
               j_uint("bytes", row[i].bytes), j_uint("kernels", row[i].kernels));
    json_open(j, "also", '[');
    for (uint64_t k = row[i].next; k; k = row[k].next)
        json_uint(j, NULL, k);
    json_close(j, "]");
    json_open(j, "nodes", '[');
    put_source(&row[i], j);
    for (uint64_t k = row[i].next; k; k = row[k].next)
        put_source(&row[k], j);
    json_close(j, "]");
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
        json_close(j, "]}");
    }
    json_close(j, "]");
}

static void put_meta(const char *meta, struct json *j)
{
    json_open(j, "meta", '[');
    while (meta && *meta) {
        const char *value = meta + strlen(meta) + 1;
        JSON_GROUP(j, NULL, "{}", j_text("key", meta), j_text("value", value));
        meta = value + strlen(value) + 1;
    }
    json_close(j, "]");
}

static void put_workspace(const mcc_api *api, const struct workspace *w, struct json *j)
{
    if (!w->known) {
        json_null(j, "workspace");
        return;
    }
    JSON_GROUP(j, "workspace", "{", j_uint("bytes", w->bytes));
    json_open(j, "at", '[');
    for (uint32_t i = 0; i < api->n_sym; i++)
        JSON_GROUP(j, NULL, "{}", j_text("name", api->sym[i].name), j_int("value", w->symbols[i]));
    json_close(j, "]}");
}

void artifact_json(const struct artifact_file *a, const struct workspace *w, bool verified, const char *key,
                   struct json *j)
{
    const mcc_api *api = &a->api;
    JSON_GROUP(j, key, "{", j_text("kind", "compiled"), j_text("name", api->name), j_text("compiler", api->compiler),
               j_text("target", api->target), j_bool("runs_here", a->runs_here && !w->why));
    put_sizes(a, j);
    ports_json(api, j);
    put_workspace(api, w, j);
    put_nodes(a, j);
    put_functions(a, j);
    build_note_json(a->build, j);
    put_meta(api->meta, j);
    json_bool(j, "verified", verified);
    json_close(j, "}");
}

/* ---- a network --------------------------------------------------------------------------------------------------- */

static void put_weight(const struct module *m, const struct weight *w, struct json *j)
{
    const struct type *t = value_type(m->g, w->value);
    JSON_GROUP(j, NULL, "{", j_text("name", weight_name(m, w->value)), j_text("type", elem_name(t->elem)));
    json_open(j, "dims", '[');
    for (int32_t d = 0; d < t->rank; d++) {
        int64_t n = 0;
        bool known = ex_is_const(m->ctx->exprs, t->dims[d], &n);
        JSON_ADD(j, j_known(NULL, known, (uint64_t)n));
    }
    json_close(j, "]");
    JSON_ADD(j, j_uint("offset", w->offset), j_uint("bytes", w->bytes),
             j_uint("padding", w->bytes - weight_elements_bytes(m, w)));
    json_uint(j, "winograd", 0); /* a key of schema 1: no weights are stored transformed */
    json_close(j, "}");
}

void weights_json(const struct module *m, struct json *j)
{
    json_open(j, "weights", '[');
    for (uint32_t i = 0; i < m->plan.weights.n; i++)
        put_weight(m, &m->plan.weights.data[i], j);
    json_close(j, "]");
}

void network_json(const struct compilation *c, const mcc_node *row, uint32_t n, struct json *j)
{
    const struct module *m = c->module;
    JSON_GROUP(j, NULL, "{", j_text("kind", "network"), j_text("name", c->graph->name ? c->graph->name : ""));
    json_open(j, "kernels", '[');
    for (uint32_t i = 1; i < n; i++) {
        if (!row[i].kernels)
            continue;
        put_node(row, i, j);
        json_close(j, "}");
    }
    json_close(j, "]");
    JSON_ADD(j, j_int("constants_in_file", c->constants_in), j_uint("weights_bytes", m->plan.weights_bytes));
    weights_json(m, j);
    struct strbuf text = strbuf_of(j->out->arena);
    ex_print(m->ctx->exprs, m->plan.arena_bytes, &text);
    json_text(j, "workspace", text.data ? text.data : "0");
    json_close(j, "}");
}
