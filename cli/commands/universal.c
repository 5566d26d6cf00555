/* --target=aarch64-macos,x86_64-macos: a library for each, in one file (codegen/container/macho_fat.c). The libraries
 * are compiled one after another to one temporary file, whose descriptor stays when the next one takes its name.
 */
#include <unistd.h>

#include "cli/commands/command.h"
#include "cli/commands/temporary.h"
#include "cli/library/options/targets.h"
#include "codegen/container/macho.h"
#include "ir/base/file.h"

enum { SLICES_MAX = 4 };

struct universal {
    struct context *ctx;
    const struct options *options;
    const char *model, *output;
    struct macho_slice slices[SLICES_MAX];
    struct options *of[SLICES_MAX]; /* the options of each */
    uint32_t n;
};

static bool refuse(struct universal *u, const char *option, const char *why)
{
    return error_usage(u->ctx, "'%s': %s", option, why);
}

/* Options that write other files than a library: those are for one target each. */
static bool options_check(struct universal *u)
{
    const struct options *o = u->options;
    const char *other = o->emit                             ? "emit"
                        : o->assembly                       ? "S"
                        : o->emit_llvm                      ? "emit-llvm"
                        : o->object                         ? "c"
                        : o->stop_after                     ? "stop-after"
                        : o->time_trace                     ? "ftime-trace"
                        : o->save_temps                     ? "save-temps"
                        : o->save_record                    ? "fsave-optimization-record"
                        : o->weights == OPT_WEIGHTS_SIDECAR ? "weights"
                                                            : NULL;
    if (other)
        return refuse(u, other, "a list of targets makes a universal library, and nothing else");
    return path_ends(u->output, ".dylib") ||
           error_usage(u->ctx, "output '%s': a universal file is a library (.dylib)", u->output);
}

/* The list's targets: architectures of one system whose files can be universal. */
static bool targets_read(struct universal *u)
{
    for (const char *p = u->options->target, *end; *p; p = *end ? end + 1 : end) {
        end = p + strcspn(p, ",");
        if (u->n == SLICES_MAX)
            return refuse(u, "target", "a universal file has code for few architectures");
        struct options *o = u->of[u->n] = arena_copy(&u->ctx->session, u->options, sizeof *o);
        o->target = arena_strndup(&u->ctx->session, p, (size_t)(end - p));
        o->depend = false;
        o->depend_file = NULL;
        if (!targets_check(u->ctx, o))
            return false;
        const struct platform *platform = u->slices[u->n].platform = targets_platform(o);
        for (uint32_t i = 0; i < u->n; i++)
            if (strcmp(platform->system, u->slices[i].platform->system) != 0 || platform == u->slices[i].platform)
                return refuse(u, "target", "a universal file is for one system, and for each architecture once");
        if (strcmp(platform->container, "macho") != 0)
            return refuse(u, "target", "universal files are for macOS: --target=aarch64-macos,x86_64-macos");
        u->n++;
    }
    return u->n > 1 || refuse(u, "target", "a list has several targets");
}

/* One library, in a context of its own: all of them are as if compiled alone. last: what else there is to write. */
static bool compile_one(struct universal *u, uint32_t i, const char *path, bool last)
{
    struct context *apart = context_new();
    const struct options *o = u->options;
    if (!apart)
        return error_limit(u->ctx, (src_id){0}, "out of memory");
    u->ctx->apart = apart; /* whose files a signal removes, too */
    u->of[i]->output = path;
    struct compilation c = {.ctx = apart, .options = u->of[i], .report = terminal_report()};
    enum fail fail = compile_keep(&c, u->model, NULL);
    c.ctx = u->ctx;
    c.options = o;
    c.output = u->output;
    bool differs = fail == FAIL_NONE && output_differs(u->ctx, u->output, &c.files, o->config);
    bool good = differs && macho_slice_open(u->ctx, path, &u->slices[i]) &&
                (!last || macho_fat(u->ctx, u->slices, u->n, u->output)) &&
                (!last || !(o->depend || o->depend_file) || depend_write(&c, u->output));
    u->ctx->apart = NULL;
    context_free(apart);
    if (fail != FAIL_NONE)
        u->ctx->fail = fail;
    return good;
}

static void compile_all(void *user, const char *path)
{
    struct universal *u = user;
    for (uint32_t i = 0; i < u->n && compile_one(u, i, path, i + 1 == u->n);)
        i++;
}

static void close_all(void *user)
{
    struct universal *u = user;
    for (uint32_t i = 0; i < u->n; i++)
        if (u->slices[i].fd >= 0)
            close(u->slices[i].fd);
}

static bool universal_begin(struct universal *u)
{
    for (uint32_t i = 0; i < SLICES_MAX; i++)
        u->slices[i].fd = -1;
    u->ctx->model_path = u->model;
    u->output = u->options->output;
    if (targets_read(u) && !u->output)
        u->output = output_default(u->ctx, u->of[0], u->model);
    return u->ctx->fail == FAIL_NONE && options_check(u) && output_check(u->ctx, u->output);
}

bool universal_check(struct context *ctx, const struct options *o, const char *model)
{
    struct universal u = {.ctx = ctx, .options = o, .model = model};
    return universal_begin(&u);
}

enum fail compile_universal(struct context *ctx, const struct options *o, const char *model)
{
    struct universal u = {.ctx = ctx, .options = o, .model = model};
    ctx->limits = o->limits;
    const bool good = universal_begin(&u);
    if (good)
        (void)with_temporary(ctx, path_name(u.output), compile_all, close_all, &u);
    report_diagnostics(ctx, terminal_report(), o);
    return ctx->fail;
}
