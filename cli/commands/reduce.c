/* mcc reduce MODEL -- COMMAND: the smallest network for which COMMAND still ends with status 0.
 *
 * A candidate is some of the nodes as a file of their own: what they read and nobody makes becomes an input, what
 * nobody reads an output, with the types that legalize found. COMMAND gets the candidate's path as its last argument,
 * or in place of each {}. Nodes go by delta debugging (Zeller and Hildebrandt, 2002): halves, quarters, ... single
 * ones, again until nothing more goes; then the extents of the inputs are made smaller.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/commands/command.h"
#include "cli/commands/temporary.h"
#include "cli/library/json.h"
#include "codegen/sink.h"

extern char **environ;

struct shrunk {
    const char *name;
    int32_t dim;
    int64_t extent;
};
struct port_size {
    const char *name;
    struct cut_type type;
};

struct reduction {
    struct context *ctx;
    const struct options *options;
    const struct graph *legal;
    const struct format *format;
    struct cut_file *cut;
    bool *keep;
    uint32_t n_nodes, runs;
    const char *candidate;                 /* path */
    VEC(struct shrunk) shrunk;
    VEC(struct port_size) asked;           /* types that the last candidate was given */
    struct arena scratch;
    bool stopped;                          /* the command was interrupted */
};

/* ---- types ------------------------------------------------------------------------------------------------------- */

static bool value_named(struct reduction *r, const char *name, struct cut_type *out)
{
    const struct graph *g = r->legal;
    const struct port *in = ROW_NAMED(g->inputs.data, g->inputs.n, name),
                      *port = in ? in : ROW_NAMED(g->outputs.data, g->outputs.n, name);
    const struct type *t = port ? value_type(g, port->value) : NULL;
    for (uint32_t i = 1; i < g->values.n && !t; i++)
        if (g->values.data[i].name && strcmp(g->values.data[i].name, name) == 0 &&
            g->values.data[i].type.kind == TYPE_TENSOR)
            t = &g->values.data[i].type;
    if (!t || t->kind != TYPE_TENSOR || t->elem == ELEM_NONE)
        return false;
    int64_t *dims = NEW_ARRAY(&r->scratch, int64_t, RANK_MAX);
    for (int32_t d = 0; d < t->rank; d++)
        if (!ex_is_const(r->ctx->exprs, t->dims[d], &dims[d]))
            dims[d] = -1;
    *out = (struct cut_type){t->elem, t->rank, dims};
    return true;
}

static bool type_of(void *user, const char *name, struct cut_type *out)
{
    struct reduction *r = user;
    if (!value_named(r, name, out))
        return false;
    int64_t *dims = arena_copy(&r->scratch, out->dims, sizeof *dims * RANK_MAX);
    out->dims = dims;
    for (uint32_t i = 0; i < r->shrunk.n; i++)
        if (strcmp(r->shrunk.data[i].name, name) == 0 && r->shrunk.data[i].dim < out->rank)
            dims[r->shrunk.data[i].dim] = r->shrunk.data[i].extent;
    struct port_size seen = {arena_strdup(&r->scratch, name), *out};
    VEC_PUSH(&r->scratch, &r->asked, seen);
    return true;
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static char **command_line(struct reduction *r)
{
    const struct text_list *files = &r->options->files;
    char **argv = NEW_ARRAY(&r->scratch, char *, files->items.n + 2);
    bool placed = false;
    uint32_t n = 0;
    for (uint32_t i = 1; i < files->items.n; i++) {
        bool here = strcmp(files->items.data[i], "{}") == 0;
        argv[n++] = arena_strdup(&r->scratch, here ? r->candidate : files->items.data[i]);
        placed |= here;
    }
    if (!placed)
        argv[n] = arena_strdup(&r->scratch, r->candidate);
    return argv;
}

/* Does the command end with 0? Its words are dropped without -v. */
static bool command_accepts(struct reduction *r)
{
    posix_spawn_file_actions_t actions;
    char **argv = command_line(r);
    pid_t pid;
    int status = 0;
    if (posix_spawn_file_actions_init(&actions) != 0)
        return error_limit(r->ctx, (src_id){0}, "out of memory");
    int bad = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    for (int fd = 1; fd <= 2 && !bad; fd++) /* --json has standard output for itself */
        if (!r->options->verbose || (fd == 1 && r->options->document))
            bad = posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_WRONLY, 0);
    if (!bad)
        bad = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (bad)
        return error_env(r->ctx, "cannot run '%s': %s", argv[0], strerror(bad));
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    r->stopped |= WIFSIGNALED(status) && (WTERMSIG(status) == SIGINT || WTERMSIG(status) == SIGTERM);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Writes the candidate as r->keep and r->shrunk say; into `path` whole or not at all. */
static bool write_candidate(struct reduction *r, const char *path)
{
    struct strbuf bytes = strbuf_of(&r->scratch);
    memset(&r->asked, 0, sizeof r->asked);
    return r->format->hooks->cutter->write(r->cut, r->keep, type_of, r, &bytes) &&
           sink_bytes(r->ctx, &r->scratch, path, (struct span){bytes.data, bytes.n});
}

static bool interesting(struct reduction *r)
{
    if (r->stopped || r->ctx->fail != FAIL_NONE)
        return false;
    arena_release(&r->scratch);
    if (!write_candidate(r, r->candidate))
        return false;
    r->runs++;
    return command_accepts(r);
}

/* ---- fewer nodes, smaller extents -------------------------------------------------------------------------------- */

static uint32_t nodes_left(const struct reduction *r)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n_nodes; i++)
        n += r->keep[i];
    return n;
}

/* Tries to do without each run of `size` kept nodes; were some of them dropped? */
static bool drop_runs(struct reduction *r, uint32_t size)
{
    bool *before = NEW_ARRAY(&r->ctx->session, bool, r->n_nodes), any = false;
    for (uint32_t i = 0; i < r->n_nodes;) {
        uint32_t n = 0, end = i;
        memcpy(before, r->keep, r->n_nodes);
        for (; end < r->n_nodes && n < size; end++) {
            n += r->keep[end];
            r->keep[end] = false;
        }
        if (n && nodes_left(r) && interesting(r))
            any = true;
        else
            memcpy(r->keep, before, r->n_nodes);
        i = end;
    }
    return any;
}

static void drop_nodes(struct reduction *r)
{
    for (bool again = true; again && !r->stopped;) {
        again = false;
        for (uint32_t size = nodes_left(r) / 2; size > 0; size /= 2)
            again |= drop_runs(r, size);
    }
}

/* Makes extent d of the input smaller, as small as goes: 1, else halves. */
static void shrink_dim(struct reduction *r, const char *name, int32_t d, int64_t extent)
{
    struct shrunk s = {name, d, extent};
    VEC_PUSH(&r->ctx->session, &r->shrunk, s);
    struct shrunk *mine = &r->shrunk.data[r->shrunk.n - 1];
    mine->extent = 1;
    if (interesting(r))
        return;
    for (mine->extent = extent / 2; mine->extent > 1 && interesting(r); mine->extent /= 2)
        extent = mine->extent;
    mine->extent = extent;
}

static void shrink_dims(struct reduction *r)
{
    arena_release(&r->scratch);
    if (!write_candidate(r, r->candidate))
        return;
    uint32_t n = r->asked.n;
    struct port_size *ports = NEW_ARRAY(&r->ctx->session, struct port_size, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        ports[i] = r->asked.data[i];
        ports[i].name = arena_strdup(&r->ctx->session, ports[i].name);
        ports[i].type.dims = arena_copy(&r->ctx->session, ports[i].type.dims, sizeof(int64_t) * RANK_MAX);
    }
    for (uint32_t i = 0; i < n && !r->stopped; i++)
        for (int32_t d = 0; d < ports[i].type.rank && !r->stopped; d++)
            if (ports[i].type.dims[d] > 1)
                shrink_dim(r, ports[i].name, d, ports[i].type.dims[d]);
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static void reduce(struct reduction *r, const char *output)
{
    r->n_nodes = r->format->hooks->cutter->n_nodes(r->cut);
    r->keep = NEW_ARRAY(&r->ctx->session, bool, r->n_nodes + 1);
    memset(r->keep, true, r->n_nodes);
    if (!interesting(r)) {
        if (r->ctx->fail == FAIL_NONE)
            error_usage(
                r->ctx,
                "the command does not end with status 0 for the whole network, and has to for each network that is kept");
        return;
    }
    drop_nodes(r);
    shrink_dims(r);
    arena_release(&r->scratch);
    if (r->ctx->fail != FAIL_NONE || !write_candidate(r, output))
        return;
    if (r->options->document) {
        struct json *j = &r->options->document->result;
        JSON_GROUP(j, NULL, "{}", j_text("output", output), j_uint("nodes", nodes_left(r)),
                   j_uint("nodes_before", r->n_nodes), j_uint("runs", r->runs));
        return;
    }
    struct strbuf line = strbuf_of(&r->ctx->session);
    strbuf_printf(&line, "%s: %u of %u nodes, after %u runs of the command\n", output, nodes_left(r), r->n_nodes,
                  r->runs);
    if (!r->options->quiet)
        terminal_print(&line);
}

struct reducing {
    struct reduction *r;
    const char *output;
};

static void reduce_with(void *user, const char *candidate)
{
    struct reducing *w = user;
    w->r->candidate = candidate;
    reduce(w->r, w->output);
}

static void reduce_end(void *user)
{
    (void)user;
}

enum fail command_reduce(struct context *ctx, struct options *o)
{
    struct reduction *r = NEW(&ctx->session, struct reduction);
    if (o->files.items.n < 2)
        return fail_usage(ctx, "no command given: mcc reduce MODEL -- COMMAND");
    r->ctx = ctx;
    r->options = o;
    arena_init(&r->scratch, ctx);
    r->format = format_of(o->files.items.data[0]);
    const struct cutter *cutter = r->format->hooks->cutter;
    if (!cutter) {
        error_at(ctx, FAIL_MODEL, (src_id){0}, NULL, "%s files cannot be cut down: export the network to ONNX",
                 r->format->name);
        return ctx->fail;
    }
    r->legal = compile_graph(ctx, o, o->files.items.data[0], terminal_report());
    const struct import_options import = {.allow_hard_links = o->hard_links};
    struct file_list read = {0};
    r->cut = r->legal ? cutter->open(ctx, o->files.items.data[0], &import, &read) : NULL;
    if (!r->cut)
        return ctx->fail;
    const char *output = o->output ? o->output : arena_printf(&ctx->session, "reduced%s", r->format->suffix);
    VEC_PUSH(&ctx->session, &read.paths, o->files.items.data[0]);
    if (!output_check(ctx, output) || !output_differs(ctx, output, &read, o->config))
        return ctx->fail;
    struct reducing reducing = {r, output};
    (void)with_temporary(ctx, arena_printf(&ctx->session, "candidate%s", r->format->suffix), reduce_with, reduce_end,
                         &reducing);
    return ctx->fail;
}
