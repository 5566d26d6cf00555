/* libmcc: the public functions of mccc.h over options.c and compile.c. */
#include "cli/library/mccc.h"

#include <dlfcn.h>
#include <unistd.h>

#include "cli/library/compile/compile.h"

#define PUBLIC __attribute__((visibility("default")))

struct mccc {
    struct context *ctx;         /* owns the texts of the options */
    struct options options;
    struct report report;
};

static void put_nothing(void *user, int kind, const char *text, size_t size)
{
    (void)user, (void)kind, (void)text, (void)size;
}

/* The mcc program beside this library: in its own folder or in ../bin. NULL when there is none. */
static const char *find_worker(struct context *ctx)
{
    Dl_info here;
    if (!dladdr((const void *)&option_table, &here) || !here.dli_fname)
        return NULL;
    const char *slash = strrchr(here.dli_fname, '/');
    int n = slash ? (int)(slash - here.dli_fname) + 1 : 0;
    static const char *const places[] = {"mcc", "../bin/mcc"};
    for (size_t i = 0; i < COUNT_OF(places); i++) {
        const char *path = arena_printf(&ctx->session, "%.*s%s%s", n, here.dli_fname, n ? "" : "./", places[i]);
        if (access(path, X_OK) == 0)
            return path;
    }
    return NULL;
}

PUBLIC mccc *mccc_new(void)
{
    mccc *volatile c = calloc(1, sizeof *c);   /* lives across setjmp */
    if (!c)
        return NULL;
    c->ctx = context_new();
    if (!c->ctx) {
        free(c);
        return NULL;
    }
    c->report.put = put_nothing;
    jmp_buf here;
    c->ctx->unwind = &here;
    options_init(&c->options);
    if (setjmp(here) == 0)
        c->options.self = find_worker(c->ctx);
    c->ctx->unwind = NULL;
    return c;
}

PUBLIC void mccc_free(mccc *c)
{
    if (!c)
        return;
    context_free(c->ctx);
    free(c);
}

PUBLIC void mccc_on_message(mccc *c, mccc_message *fn, void *user)
{
    c->report = (struct report){user, fn ? fn : put_nothing, NULL};
}

static void set_option(mccc *c, const char *name, const char *value)
{
    const struct option *def = option_find(name, 'C');
    const char *gone = option_gone(name), *near = def || gone ? NULL : option_suggest(name, 'C');
    if (def)
        option_set(c->ctx, &c->options, def, value, FAIL_USAGE);
    else
        error_usage(c->ctx,
                    gone   ? "option '%s' is gone: %s"
                    : near ? "unknown option '%s'; did you mean '%s'?"
                           : "unknown option '%s'",
                    name, gone ? gone : near);
    if (def && c->ctx->fail == FAIL_NONE && strcmp(name, "config") == 0)
        config_load(c->ctx, &c->options, value, 'C');
}

PUBLIC int mccc_set(mccc *c, const char *name, const char *value)
{
    jmp_buf here;
    c->ctx->unwind = &here;
    c->ctx->fail = FAIL_NONE;
    c->ctx->model_path = "";
    c->ctx->line = c->ctx->column = 0;
    if (setjmp(here) == 0)
        set_option(c, name, value);
    if (setjmp(here) == 0)
        report_diagnostics(c->ctx, c->report, &c->options);
    c->ctx->unwind = NULL;
    return (int)c->ctx->fail;
}

PUBLIC int mcc_compile(mccc *c, const char *model, const char *output)
{
    struct context *ctx = context_new();
    if (!ctx)
        return FAIL_LIMIT;
    struct options options = c->options;
    if (output)
        options.output = output;
    int status = (int)compile_model(ctx, &options, model, NULL, c->report);
    context_free(ctx);
    return status;
}
