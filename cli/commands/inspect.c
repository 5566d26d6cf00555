/* mcc inspect: what an artifact is, from its table, its note and its section table; nothing is run. A network instead of an
 * artifact is inspect_model.c's. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/commands/inspect.h"

static void print_ports(const struct session *s, const char *title, const mcc_port *ports, uint32_t n,
                        struct strbuf *out)
{
    for (uint32_t i = 0; i < n; i++) {
        strbuf_printf(out, "%-8s ", title);
        strbuf_escaped(out, ports[i].name, 200);
        strbuf_printf(out, ": ");
        port_describe(s->api, &ports[i], out);
        strbuf_printf(out, ports[i].flags & MCC_PORT_DYNAMIC ? ", the data decides its shape\n" : "\n");
    }
}

static void print_symbols(const struct session *s, struct strbuf *out)
{
    for (uint32_t i = 0; i < s->api->n_sym; i++) {
        const mcc_symbol *sym = &s->api->sym[i];
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

static void print_nodes(const struct session *s, struct strbuf *out)
{
    for (uint32_t i = 0; i < s->api->n_node; i++) {
        const mcc_node *node = &s->api->node[i];
        if (!node->kernels)
            continue;
        strbuf_printf(out, "kernel   ");
        session_node(s, node, out);
        strbuf_printf(out, ": %llu flops, %llu bytes", (unsigned long long)node->flops,
                      (unsigned long long)node->bytes);
        strbuf_printf(out, node->kernels > 1 ? ", %llu kernels\n" : "\n", (unsigned long long)node->kernels);
    }
}

/* Workspace for the shapes that --dim gives. */
static bool print_plan(struct session *s, struct strbuf *out)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < s->api->n_in; i++)
        if (s->api->in[i].ndim < 0 || (s->api->in[i].flags & ~(uint64_t)MCC_PORT_DYNAMIC))
            return true;
    if (!session_feed(s, true))
        return false;
    if (s->api->plan(s->lib->model, s->in_pointer, NULL, &bytes, &s->error) != MCC_OK)
        return session_error(s, "plan");
    int64_t *symbols = NEW_ARRAY(&s->ctx->session, int64_t, s->api->n_sym + 1);
    strbuf_printf(out, "plan     workspace %zu bytes", bytes);
    for (uint32_t i = 0; session_symbols(s, symbols) && i < s->api->n_sym; i++)
        strbuf_printf(out, "%s%s=%lld", i ? ", " : " at ", s->api->sym[i].name, (long long)symbols[i]);
    strbuf_printf(out, "\n");
    return true;
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

static bool inspect(struct session *s)
{
    struct strbuf out;
    struct sizes sizes;
    const mcc_api *api = s->api;
    strbuf_init(&out, &s->ctx->session);
    if (!sizes_read(s, s->ctx->model_path, &sizes))
        return error_env(s->ctx, "cannot read the file: %s", strerror(errno));
    strbuf_printf(&out, "name     ");
    strbuf_escaped(&out, api->name, 200);
    strbuf_printf(&out, "\ncompiler %s\ntarget   %s\n", api->compiler, api->target);
    sizes_print(api, &sizes, &out);
    print_ports(s, "input", api->in, api->n_in, &out);
    print_ports(s, "output", api->out, api->n_out, &out);
    print_symbols(s, &out);
    if (!print_plan(s, &out))
        return false;
    print_nodes(s, &out);
    print_meta(api->meta, &out);
    if (s->options->verify)
        strbuf_printf(&out, "verified the hash of the weights\n");
    terminal_print(&out);
    return true;
}

/* Is the file a network rather than an artifact? By its name where that says so, else by its first bytes. */
static bool is_network(const char *path)
{
    static const char elf[4] = "\177ELF";
    char head[4] = "";
    size_t n = strlen(path);
    if (format_by_suffix(path))
        return true;
    if (n > 3 && strcmp(path + n - 3, ".so") == 0)
        return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool read_it = fd >= 0 && read(fd, head, sizeof head) == (ssize_t)sizeof head;
    if (fd >= 0)
        close(fd);
    return read_it && memcmp(head, elf, sizeof elf) != 0;
}

enum fail command_inspect(struct context *ctx, struct options *o)
{
    if (is_network(o->files.items.data[0]))
        return inspect_model(ctx, o, o->files.items.data[0]);
    if (o->output || o->profile) {
        error_at(ctx, FAIL_USAGE, (src_id){0}, NULL,
                 "only a network is drawn: a compiled one has no graph (mcc inspect MODEL -o FILE.svg)");
        return ctx->fail;
    }
    struct session s;
    mcc_host host = {.size = sizeof host, .threads = 1, .flags = o->verify ? MCC_HOST_VERIFY_WEIGHTS : 0};
    if (session_open(&s, ctx, o, o->files.items.data[0], &host))
        (void)inspect(&s);
    session_close(&s);
    return ctx->fail;
}
