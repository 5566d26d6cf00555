/* Temporary files: see temporary.h. */
#include "cli/commands/temporary.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cli/commands/artifact/artifact.h"
#include "cli/commands/command.h"
#include "cli/library/options/cpu.h"
#include "cli/library/options/targets.h"
#include "ir/base/file.h"

/* A file that is used, and its folder. */
struct temporary {
    struct context *ctx;
    const char *folder, *path;
    void (*use)(void *user, const char *path);
    void (*end)(void *user);
    void *user;
};

static bool temporary_use(void *user)
{
    struct temporary *t = user;
    t->use(t->user, t->path);
    return true;
}

static void temporary_end(void *user)
{
    struct temporary *t = user;
    t->end(t->user);
    unlink(t->path);
    rmdir(t->folder);
    t->ctx->temp_files[COUNT_OF(t->ctx->temp_files) - 1] = NULL;
    t->ctx->temp_made = NULL;
}

bool with_temporary(struct context *ctx, const char *name, void (*use)(void *user, const char *path),
                    void (*end)(void *user), void *user)
{
    char *folder = arena_printf(&ctx->session, "%s/mcc-XXXXXX", temp_folder());
    char *path = arena_printf(&ctx->session, "%s/%s", folder, name);
    struct temporary t = {ctx, folder, path, use, end, user};
    ctx->temp_made = folder;     /* before it has its name: until then there is none of this one */
    if (!mkdtemp(folder)) {
        ctx->temp_made = NULL;
        return error_env(ctx, "cannot make a folder '%s'", folder);
    }
    memcpy(path, folder, strlen(folder)); /* its name now */
    /* A signal must not leave the file behind, either. */
    ctx->temp_files[COUNT_OF(ctx->temp_files) - 1] = path;
    return run_guarded(ctx, temporary_use, temporary_end, &t);
}

/* opendir allocates, which a handler must not. */
void folder_clear(const char *folder)
{
    union {
        char bytes[2048];
        uint64_t align;
    } entries;
    enum { LENGTH = 16, NAME = 19 }; /* offsets in an entry of the kernel */
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (bool removed = true; fd >= 0 && removed && lseek(fd, 0, SEEK_SET) == 0;) {
        removed = false;
        for (long n; (n = syscall(SYS_getdents64, fd, entries.bytes, sizeof entries.bytes)) > 0;)
            for (long at = 0; at < n;) {
                uint16_t length;
                memcpy(&length, entries.bytes + at + LENGTH, sizeof length);
                removed |= unlinkat(fd, entries.bytes + at + NAME, 0) == 0; /* "." and ".." are no files */
                at += length;
            }
    }
    if (fd >= 0)
        close(fd);
}

static bool only_running(struct context *ctx, const struct options *o)
{
    for (uint32_t i = 0; i < option_count; i++)
        if (strchr(option_table[i].where, 'N') && !option_is_preset(o, &option_table[i]))
            return error_usage(ctx, "'%s' is for networks: the file is compiled already", option_table[i].name);
    return true;
}

const char *library_name(const struct options *o)
{
    const struct platform *platform = targets_platform(o); /* NULL: refused later (targets_check) */
    const char *container = platform ? platform->container : "";
    return strcmp(container, "coff") == 0 ? "net.dll" : strcmp(container, "macho") == 0 ? "net.dylib" : "net.so";
}

bool target_serves(struct context *ctx, const struct options *o, bool runs)
{
    const struct platform *p = targets_platform(o); /* NULL: refused later (targets_check) */
    bool library = !p || (strcmp(p->system, "none") != 0 && !targets_wasm(o)),
         here = !p || (strcmp(p->system, "linux") == 0 && strcmp(p->arch, cpu_arch()) == 0);
    if (o->target && strchr(o->target, ','))
        return targets_check(ctx, o); /* which refuses lists */
    if (library && (here || !runs))
        return true;
    if (library)
        error_usage(ctx,
                    "'target': this machine (%s-linux) cannot run code for %s-%s; leave --target out, or compile with "
                    "'mcc MODEL --target=%s -o FILE' and run the file there",
                    cpu_arch(), p->arch, p->system, o->target);
    else
        error_usage(ctx, "'target': '%s' is for compiling only: mcc runs no %s", o->target,
                    targets_wasm(o) ? "WebAssembly (mcc.mjs does)" : "static networks");
    return option_blame(ctx, o, "target", NULL);
}

struct making {
    struct context *ctx;
    struct options *options;
    library_fn *use;
    void (*end)(void *user);
    void *user;
};

static void make_end(void *user)
{
    struct making *m = user;
    m->end(m->user);
}

/* Profiles and outputs are the command's, so the compilation gets options of its own. */
static void make_and_use(void *user, const char *library)
{
    struct making *m = user;
    struct options compiling = *m->options;
    struct compilation *c = NEW(&m->ctx->session, struct compilation);
    const char *model = m->options->files.items.data[0];
    compiling.output = library;
    compiling.emit = OPT_EMIT_NONE;     /* nothing but the library goes into the folder, which is removed with it */
    compiling.weights = OPT_WEIGHTS_EMBEDDED;
    *c = (struct compilation){.ctx = m->ctx, .options = &compiling, .report = terminal_report()};
    if (compile_keep(c, model, NULL) == FAIL_NONE)
        m->use(m->user, library, c);
}

enum fail with_library(struct context *ctx, struct options *o, bool runs, library_fn *use, void (*end)(void *user),
                       void *user)
{
    const char *path = o->files.items.data[0];
    struct making m = {ctx, o, use, end, user};
    if (!artifact_meant(path)) {
        (void)(target_serves(ctx, o, runs) && with_temporary(ctx, library_name(o), make_and_use, make_end, &m));
    } else if (only_running(ctx, o)) {
        use(user, path, NULL);
        end(user);
    }
    return ctx->fail;
}
