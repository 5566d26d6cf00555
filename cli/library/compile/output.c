/* The output's path: its default, whether it can be written, that it is none of the inputs, writing it whole, and the
 * make rule beside it.
 */
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/library/compile/compile.h"
#include "cli/library/options/targets.h"
#include "codegen/sink.h"
#include "ir/base/file.h"

/* An unknown target is refused later (targets_check). */
static bool is_for(const struct options *o, const char *container)
{
    const struct platform *platform = targets_platform(o);
    return platform && strcmp(platform->container, container) == 0;
}

const char *output_default(struct context *ctx, const struct options *o, const char *model)
{
    const char *name = path_name(model);
    const char *dot = strrchr(name, '.');
    size_t n = dot && dot > name ? (size_t)(dot - name) : strlen(name);
    const char *suffix = o->emit_llvm                     ? "ll"
                         : o->assembly                    ? "s"
                         : o->emit == OPT_EMIT_C          ? "c"
                         : targets_wasm(o)                ? "wasm"
                         : targets_static(o)              ? "a"
                         : o->object && is_for(o, "coff") ? "obj"
                         : o->object                      ? "o"
                         : is_for(o, "coff")              ? "dll"
                         : is_for(o, "macho")             ? "dylib"
                                                          : "so";
    return arena_printf(&ctx->session, "%.*s.%s", (int)n, name, suffix);
}

const char *output_beside(struct context *ctx, const char *path, const char *suffix)
{
    const char *dot = strrchr(path, '.'), *slash = strrchr(path, '/');
    bool cut = dot && (!slash || dot > slash + 1) && dot > path;
    return arena_printf(&ctx->session, "%.*s.%s", (int)(cut ? (size_t)(dot - path) : strlen(path)), path, suffix);
}

enum output_kind output_kind(const struct options *o, const char *path)
{
    if (path_ends(path, ".a") || path_ends(path, ".lib"))
        return OUTPUT_ARCHIVE;
    return o->object || path_ends(path, ".o") || path_ends(path, ".obj") ? OUTPUT_OBJECT : OUTPUT_SHARED;
}

#define WINDOWS_MAKES                                                                                            \
    "output '%s': for Windows mcc makes a library (.dll), an object (.obj) or an archive (.lib), and text (-S, " \
    "-emit-llvm)"
#define DARWIN_MAKES                                                                                                 \
    "output '%s': for macOS and iOS mcc makes a library (.dylib), an object (.o) or an archive (.a), and text (-S, " \
    "-emit-llvm)"

/* Names that other systems give to their files. */
static bool foreign_name_check(struct context *ctx, const struct options *o, const char *path)
{
    static const struct {
        const char *suffix, *container, *says; /* says: NULL: nobody makes it here */
    } foreign[] = {
        {".exe", "", NULL},
        {".onnx", "", NULL},
        {".dylib", "macho", "output '%s': libraries of macOS and iOS are for --target=aarch64-macos"},
        {".dll", "coff", "output '%s': files of Windows are for --target=x86_64-windows"},
        {".lib", "coff", "output '%s': files of Windows are for --target=x86_64-windows"},
        {".obj", "coff", "output '%s': files of Windows are for --target=x86_64-windows"},
    };
    const char *makes = is_for(o, "coff")    ? WINDOWS_MAKES
                        : is_for(o, "macho") ? DARWIN_MAKES
                                             : "output '%s': mcc makes ELF files for Linux: a shared object (.so), an "
                                               "object (.o) or an archive (.a), and text (-S, -emit-llvm)";
    for (size_t i = 0; i < COUNT_OF(foreign) && !o->stop_after; i++)
        if (path_ends(path, foreign[i].suffix) && !is_for(o, foreign[i].container))
            return error_usage(ctx, foreign[i].says ? foreign[i].says : makes, path);
    return true;
}

/* Libraries of Windows and of macOS have their names, modules of WebAssembly are all that there is for it, and a static
 * network is an archive, or C, of which nothing is elsewhere. The first row that holds is told, with `what`. */
bool output_name_check(struct context *ctx, const struct options *o, const char *path)
{
    const bool c = o->emit == OPT_EMIT_C, wasm = targets_wasm(o), windows = !c && is_for(o, "coff"),
               darwin = !c && is_for(o, "macho"), elf = !wasm && !windows && !darwin,
               code = o->assembly || o->emit_llvm, text = o->stop_after || code,
               shared = output_kind(o, path) == OUTPUT_SHARED, sidecar = o->weights == OPT_WEIGHTS_SIDECAR,
               network = elf && targets_static(o) && !o->stop_after && (c || !code), source = network && c,
               archive = network && !c;
    const char *name = path_name(path), *more = o->assembly    ? "S"
                                                : o->emit_llvm ? "emit-llvm"
                                                : o->object    ? "c"
                                                : o->debug     ? "g"
                                                               : NULL;
    const struct {
        bool holds;
        const char *says, *what;
    } rows[] = {
        {!wasm && !o->stop_after && path_ends(path, ".wasm"), "output '%s': a module is for --target=wasm32", path},
        {wasm && o->debug, "'%s': code for WebAssembly has no line tables; leave -g out", "g"},
        {wasm && o->emit, "'%s': for WebAssembly mcc makes modules alone, which mcc.mjs loads; leave --emit out",
         "emit"},
        {wasm && sidecar, "'%s': a WebAssembly module holds its weights; leave --weights out", "weights"},
        {wasm && !text && (o->object || !path_ends(path, ".wasm")),
         "output '%s': for WebAssembly mcc makes modules (.wasm), and text (-S, -emit-llvm)", path},
        {windows && o->emit == OPT_EMIT_STATIC,
         "'%s': there are no static networks for Windows; make a .dll, .lib or .obj", "emit"},
        {windows && o->emit == OPT_EMIT_HEADER && shared && !text,
         "'%s': a header is for programs that are linked with the network, and a DLL is loaded (mcc_load_windows.c): "
         "make a .lib or .obj",
         "emit"},
        {windows && !text && path_ends(path, ".dll") != shared, WINDOWS_MAKES, path},
        {darwin && o->emit == OPT_EMIT_STATIC,
         "'%s': there are no static networks for macOS and iOS; --emit=c makes C source", "emit"},
        {darwin && o->debug && !o->stop_after,
         "'%s': files of macOS and iOS have no line tables, only names of functions", "g"},
        {darwin && !text && path_ends(path, ".dylib") != shared, DARWIN_MAKES, path},
        {elf && !c && !text && path_ends(path, ".c"),
         "output '%s': C source is for --emit=c; give that option, or another name", path},
        {network && sidecar, "'%s': a static network holds its weights; leave --weights out", "weights"},
        {source && more, "'%s': --emit=c makes C source alone; leave the option out", more},
        {source && !path_ends(path, ".c"), "output '%s': --emit=c makes C source; name it FILE.c", path},
        {source && strpbrk(name, "\"\\\n\r"),
         "output '%s': the C source includes its header by this name, which cannot have quotes, backslashes or line "
         "breaks; give the file another name",
         path},
        {archive && (o->emit == OPT_EMIT_HEADER || o->object),
         "'%s': for this target mcc makes static networks, archives (.a) with a header of their own",
         o->object ? "c" : "emit"},
        {archive && output_kind(o, path) != OUTPUT_ARCHIVE,
         "output '%s': a static network is an archive; name it FILE.a", path},
    };
    if (!foreign_name_check(ctx, o, path))
        return false;
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (rows[i].holds)
            return error_usage(ctx, rows[i].says, rows[i].what);
    return true;
}

const char *output_sidecar(struct context *ctx, const struct options *o, const char *path)
{
    bool text = o->assembly || o->emit_llvm || o->stop_after;
    return !text && o->weights == OPT_WEIGHTS_SIDECAR ? output_beside(ctx, path, "mccw") : NULL;
}

bool output_check(struct context *ctx, const char *path)
{
    struct stat st;
    if (*path == 0)
        return error_usage(ctx, "the output has no name");
    if (stat(path, &st) == 0) {
        if (!S_ISREG(st.st_mode))
            return error_env(ctx, "output '%s' is %s", path,
                             S_ISDIR(st.st_mode) ? "a directory" : "not a regular file");
        if (access(path, W_OK) != 0)
            return error_env(ctx, "cannot write output '%s': %s", path, strerror(errno));
    } else if (errno != ENOENT) {
        return error_env(ctx, "cannot write output '%s': %s", path, strerror(errno));
    }
    const char *folder = path_folder(&ctx->session, path);
    if (stat(folder, &st) != 0 || !S_ISDIR(st.st_mode))
        return error_env(ctx, "cannot write output '%s': no directory '%s'", path, folder);
    if (access(folder, W_OK | X_OK) != 0)
        return error_env(ctx, "cannot write output '%s': %s", path, strerror(errno));
    return true;
}

static bool is_same_file(const struct stat *a, const char *path)
{
    struct stat b;
    return path && stat(path, &b) == 0 && a->st_dev == b.st_dev && a->st_ino == b.st_ino;
}

bool output_differs(struct context *ctx, const char *path, const struct file_list *files, const char *config)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return true;
    if (is_same_file(&st, config))
        return error_usage(ctx, "output '%s' is the configuration file; choose another name", path);
    for (uint32_t i = 0; i < files->paths.n; i++)
        if (is_same_file(&st, files->paths.data[i]))
            return error_usage(ctx, "output '%s' is the input file '%s'; choose another name", path,
                               files->paths.data[i]);
    return true;
}

bool output_write(struct context *ctx, const char *path, const char *data, size_t size)
{
    return sink_bytes(ctx, &ctx->session, path, (struct span){data, size});
}

bool side_write(struct compilation *c, const char *path, const char *data, size_t size)
{
    struct stat st;
    if (stat(path, &st) == 0 && c->output && is_same_file(&st, c->output))
        return error_usage(c->ctx, "'%s' is already the output; choose another name", path);
    return output_differs(c->ctx, path, &c->files, c->options->config) && output_write(c->ctx, path, data, size);
}

/* A file name as make reads it in a rule. */
static void depend_name(struct strbuf *out, const char *path)
{
    for (const char *p = path; *p; p++) {
        if (*p == '$')
            strbuf_printf(out, "$$");
        else if (strchr(" #\t\\:", *p))
            strbuf_printf(out, "\\%c", *p);
        else
            strbuf_append(out, p, 1);
    }
}

bool depend_write(struct compilation *c, const char *output)
{
    struct strbuf text = strbuf_of(&c->ctx->session);
    depend_name(&text, output);
    strbuf_printf(&text, ":");
    const struct file_list *files = &c->files;
    for (uint32_t i = 0; i <= files->paths.n; i++) {
        const char *path = i < files->paths.n ? files->paths.data[i] : c->options->config;
        if (!path)
            continue;
        strbuf_printf(&text, " \\\n ");
        depend_name(&text, path);
    }
    strbuf_printf(&text, "\n");
    for (uint32_t i = 1; i <= files->paths.n && c->options->depend_phony; i++) {
        const char *path = i < files->paths.n ? files->paths.data[i] : c->options->config;
        if (!path)
            continue;
        depend_name(&text, path);
        strbuf_printf(&text, ":\n");
    }
    const char *path = c->options->depend_file ? c->options->depend_file : output_beside(c->ctx, output, "d");
    return side_write(c, path, text.data, text.n);
}
