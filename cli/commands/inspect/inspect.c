/* mcc inspect: what an artifact is, read from the file, so for any CPU and linked or not. Only the workspace is asked
 * of its code, where this machine can run it; --threads runs it (inspect_threads.c). A network instead of an artifact
 * is inspect_model.c's. */
#include "cli/commands/command.h"
#include "cli/commands/inspect/inspect.h"
#include "cli/library/compile/build_note.h"

static void print_ports(const mcc_api *api, struct strbuf *out)
{
    uint32_t n_extents = 0;
    struct strbuf extents = strbuf_of(out->arena);
    const uint32_t n = api->n_in + api->n_out;
    const mcc_state *state = mcc_state_of(api);
    for (uint32_t i = 0; i < n + (state ? state->n : 0); i++) {
        const mcc_port *port = i < api->n_in ? &api->in[i] : i < n ? &api->out[i - api->n_in] : &state->port[i - n];
        strbuf_printf(out, "%-8s ", i < api->n_in ? "input" : i < n ? "output" : "state");
        strbuf_escaped(out, port->name, 200);
        strbuf_printf(out, ": ");
        port_describe(api, port, &extents, &n_extents, out);
        strbuf_printf(out, port->flags & MCC_PORT_DYNAMIC ? ", the data decides its shape" : "");
        if (port->alias > 0 && port->alias <= api->n_in) {
            strbuf_printf(out, ", may be the memory of ");
            strbuf_escaped(out, api->in[port->alias - 1].name, 200);
        }
        strbuf_printf(out, "\n");
    }
    strbuf_append(out, extents.data, extents.n);
}

static void print_symbols(const mcc_api *api, struct strbuf *out)
{
    for (uint32_t i = 0; i < api->n_sym; i++) {
        const mcc_symbol *sym = &api->sym[i];
        strbuf_printf(out, "symbol   ");
        strbuf_escaped(out, sym->name, 200);
        strbuf_printf(out, ": %lld..", (long long)sym->min);
        if (sym->max)
            strbuf_printf(out, "%lld", (long long)sym->max);
        if (sym->step > 1)
            strbuf_printf(out, " in steps of %lld", (long long)sym->step);
        strbuf_printf(out, "\n");
    }
}

/* The functions of a node's kernels by their names in symbol table and debugger, those of all variants and
 * versions as one: "k3 k4". */
static void print_functions(const struct artifact_file *a, const uint32_t *first, const uint32_t *next, uint32_t node,
                            struct strbuf *out)
{
    enum { FUNCTIONS_SHOWN = 8 };
    const char *shown[FUNCTIONS_SHOWN];
    uint32_t n = 0;
    for (uint32_t k = first[node]; k; k = next[k]) {
        const char *name = a->desc.kernels[k - 1].name;
        uint32_t seen = 0, length = (uint32_t)strcspn(name, "_v");
        while (seen < n && (strncmp(shown[seen], name, length) != 0 || !strchr("_v", shown[seen][length])))
            seen++;
        if (seen < n)
            continue;
        if (n == FUNCTIONS_SHOWN) {
            strbuf_printf(out, " ...");
            break;
        }
        shown[n++] = name;
        strbuf_printf(out, n == 1 ? ": " : " ");
        strbuf_escaped(out, arena_strndup(out->arena, name, length), 40);
    }
}

uint32_t *kernels_by_node(const struct artifact_file *a, struct arena *arena, uint32_t **next)
{
    uint32_t *first = NEW_ARRAY(arena, uint32_t, a->api.n_node + 1);
    *next = NEW_ARRAY(arena, uint32_t, a->desc.n_kernels + 1);
    for (uint32_t k = a->desc.n_kernels; k > 0; k--)
        if (a->desc.kernels[k - 1].node < a->api.n_node) {
            (*next)[k] = first[a->desc.kernels[k - 1].node];
            first[a->desc.kernels[k - 1].node] = k;
        }
    return first;
}

static void print_nodes(const struct artifact_file *a, struct strbuf *out)
{
    uint32_t *next, *first = kernels_by_node(a, out->arena, &next);
    for (uint32_t i = 0; i < a->api.n_node; i++) {
        const mcc_node *node = &a->api.node[i];
        if (!node->kernels)
            continue;
        strbuf_printf(out, "kernel   ");
        node_describe(&a->api, node, out);
        strbuf_printf(out, ": %llu flops, %llu bytes", (unsigned long long)node->flops,
                      (unsigned long long)node->bytes);
        if (node->kernels > 1)
            strbuf_printf(out, ", %llu kernels", (unsigned long long)node->kernels);
        print_functions(a, first, next, i, out);
        strbuf_printf(out, "\n");
    }
}

/* Long values, or those of several lines, are cut: a program reads them whole. */
static void print_meta(const char *meta, struct strbuf *out)
{
    while (meta && *meta) {
        const char *value = meta + strlen(meta) + 1;
        size_t bytes = strlen(value), line = strcspn(value, "\r\n"), shown = line < 60 ? line : 60;
        strbuf_printf(out, "meta     ");
        strbuf_escaped(out, meta, 60);
        strbuf_printf(out, ": ");
        strbuf_escaped(out, arena_strndup(out->arena, value, shown), 4 * shown);
        if (shown < bytes)
            strbuf_printf(out, " ... (%zu bytes)", bytes);
        strbuf_printf(out, "\n");
        meta = value + bytes + 1;
    }
}

/* How it was made: the network's hash, then options, then what was proved. */
static void print_build(struct span note, struct strbuf *out)
{
    const char *name, *value;
    while (build_note_next(out->arena, &note, &name, &value)) {
        bool network = strcmp(name, NOTE_NETWORK) == 0, proof = strcmp(name, NOTE_PROOF) == 0;
        strbuf_printf(out, network ? "network  BLAKE3 " : proof ? "proved   " : "option   --%s=", name);
        strbuf_escaped(out, value, proof ? 2000 : 200);
        strbuf_printf(out, "\n");
    }
}

/* Workspace for the shapes that --dim gives. */
static bool plan_session(struct session *s, struct workspace *w)
{
    for (uint32_t i = 0; i < s->api->n_in; i++)
        if (s->api->in[i].ndim < 0 || (s->api->in[i].flags & ~(uint64_t)MCC_PORT_DYNAMIC))
            return true;
    if (!session_feed(s, true))
        return false;
    if (s->api->plan(s->lib->model, s->in_pointer, NULL, &w->bytes, &s->error) != MCC_OK)
        return session_error(s, "plan");
    w->symbols = NEW_ARRAY(&s->ctx->session, int64_t, s->api->n_sym + 1);
    w->known = session_symbols(s, w->symbols);
    return w->known;
}

bool workspace_ask(struct context *ctx, const struct options *o, const char *path, const struct artifact_file *a,
                   struct workspace *w)
{
    struct session s = {0};
    mcc_error error = {0};
    mcc_host host = {.size = sizeof host, .threads = 1, .flags = (uint32_t)o->variant};
    *w = (struct workspace){0};
    if (!a->runs_here) {
        w->why = a->note.sealed || artifact_is_wasm(path) ? "it is for another machine" : "it is not linked yet";
        return true;
    }
    mcc_lib *lib = NULL;
    if (mcc_load(path, &host, &lib, &error) == MCC_E_CPU) {
        w->why = arena_strdup(&ctx->session, error.text);
        return true;
    }
    mcc_unload(lib);
    bool good = session_open(&s, ctx, o, path, &host) && plan_session(&s, w);
    session_close(&s);
    return good;
}

static void print_workspace(const mcc_api *api, const struct workspace *w, struct strbuf *out)
{
    if (w->why)
        strbuf_printf(out, "plan     only where it can run: %s\n", w->why);
    if (!w->known)
        return;
    strbuf_printf(out, "plan     workspace %zu bytes", w->bytes);
    for (uint32_t i = 0; i < api->n_sym; i++)
        strbuf_printf(out, "%s%s=%lld", i ? ", " : " at ", api->sym[i].name, (long long)w->symbols[i]);
    strbuf_printf(out, "\n");
}

static bool inspect(struct context *ctx, struct options *o)
{
    struct workspace workspace;
    struct artifact_file *a = NEW(&ctx->session, struct artifact_file);
    const mcc_api *api = &a->api;
    const char *path = o->files.items.data[0];
    struct strbuf out = strbuf_of(&ctx->session);
    if (!artifact_read(ctx, path, o->verify, a) || !workspace_ask(ctx, o, path, a, &workspace))
        return false;
    if (o->document) {
        artifact_json(a, &workspace, o->verify, NULL, &o->document->result);
        return true;
    }
    strbuf_printf(&out, "name     ");
    strbuf_escaped(&out, api->name, 200);
    strbuf_printf(&out, "\ncompiler ");
    strbuf_escaped(&out, api->compiler, 200);
    strbuf_printf(&out, "\ntarget   ");
    strbuf_escaped(&out, api->target, 200);
    strbuf_printf(&out, "\n");
    sizes_print(api, &a->sizes, a->note.sealed, &out);
    print_ports(api, &out);
    print_symbols(api, &out);
    print_workspace(api, &workspace, &out);
    print_nodes(a, &out);
    print_build(a->build, &out);
    print_meta(api->meta, &out);
    if (o->verify)
        strbuf_printf(&out, "verified the hash of the weights\n");
    terminal_print(&out);
    return true;
}

enum fail command_inspect(struct context *ctx, struct options *o)
{
    bool network = !artifact_meant(o->files.items.data[0]);
    if (o->sbom && (network || o->document || o->bound_threads || o->profile))
        return fail_usage(
            ctx, network ? "--sbom is about a compiled network: its note has the network's hash"
                         : "--sbom has a form of its own: it does not go with --json, --threads and --profile");
    if (o->sbom)
        return inspect_sbom(ctx, o, o->files.items.data[0]);
    if (o->document && o->output)
        return fail_usage(ctx, "-o draws the network and --json lists it: use one of them");
    if (network && o->bound_threads)
        return fail_usage(ctx, "--threads reads a compiled network; compile this one first (mcc MODEL -o FILE.so)");
    if (network)
        return inspect_model(ctx, o, o->files.items.data[0]);
    if (o->output || o->profile)
        error_usage(ctx, "only a network is drawn: a compiled one has no graph (mcc inspect MODEL -o FILE.svg)");
    else if (o->bound_threads)
        (void)inspect_threads(ctx, o);
    else
        (void)inspect(ctx, o);
    return ctx->fail;
}
