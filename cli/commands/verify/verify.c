/* mcc verify: was the artifact made of this network? Its note says with which options (build_note.h); the network is
 * compiled with them again, and all bytes must be the same, those of the sidecar with the weights included. The note is
 * not believed: only options that decide bytes may stand in it, and what follows of them is compared.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/commands/artifact/artifact.h"
#include "cli/commands/command.h"
#include "cli/commands/temporary.h"
#include "cli/library/compile/build_note.h"
#include "cli/library/mccc.h"
#include "ir/base/file.h"

enum { NAME_MOST = 255, PIECE = 1 << 16 };

struct verify {
    struct context *ctx;
    const struct options *given;
    struct options making;
    struct text_list proof; /* what the note says of one, as it is: mcc prove repeats it */
    struct artifact_file a;
    const char *path, *model;
    const char *name;    /* of the file that is made, for the bytes that its name decides */
    const char *sidecar; /* file name of the weights; NULL: they are embedded */
    const char *made_sidecar; /* the sidecar that was made; NULL: none yet */
    uint64_t differ, at; /* bytes; the first of them */
    const char *where;   /* the file that has it */
    bool network;        /* it is the one that the note names */
    bool same;
};

/* ---- what the note says ---- */

/* A name without folders, as a part of a path. */
static bool is_plain(const char *name)
{
    return *name && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && !strchr(name, '/') &&
           strlen(name) <= NAME_MOST;
}

/* What the file's kind is called, whatever its own name is. */
static const char *suffix_of(const struct verify *v)
{
    const bool windows = strstr(v->a.api.target, "windows");
    return artifact_is_wasm(v->path) ? ".wasm"
           : v->a.archive            ? (windows ? ".lib" : ".a")
           : v->a.linked             ? (windows ? ".dll" : ".so")
                                     : (windows ? ".obj" : ".o");
}

static bool name_choose(struct verify *v)
{
    struct arena *arena = &v->ctx->session;
    const char *noted = build_note_find(arena, v->a.build, NOTE_OUTPUT), *side = v->a.desc.weights_file;
    v->sidecar = side && *side ? side : NULL;
    if ((noted && !is_plain(noted)) || (v->sidecar && !is_plain(v->sidecar)))
        return error_env(v->ctx, "damaged: a file's name in it has folders");
    const char *dot = v->sidecar ? strrchr(v->sidecar, '.') : NULL;
    int stem = dot ? (int)(dot - v->sidecar) : v->sidecar ? (int)strlen(v->sidecar) : 0;
    v->name = noted ? noted : arena_printf(arena, "%.*s%s", stem ? stem : 3, stem ? v->sidecar : "net", suffix_of(v));
    return true;
}

static bool schedules_agree(struct verify *v, const char *noted)
{
    char digest[DIGEST_TEXT];
    const char *path = v->given->schedules;
    if (!noted && !path)
        return true;
    if (!noted)
        return error_usage(v->ctx, "'schedules': the artifact was made without");
    if (!path)
        return error_usage(
            v->ctx,
            "the artifact was made with --schedules, and its note has only the hash of that file, BLAKE3 "
            "%s: give the file, --schedules=FILE",
            noted);
    return digest_files(v->ctx, &path, 1, digest) &&
           (strcmp(digest, noted) == 0 ||
            error_at(
                v->ctx, FAIL_CLAIM, (src_id){0}, NULL,
                "--schedules: the BLAKE3 of '%s' is %s, and that of the file which the artifact was made with is %s",
                path, digest, noted));
}

static bool note_read(struct verify *v)
{
    const char *here = "mcc " MCCC_VERSION;
    if (!v->a.build.size)
        return error_model(v->ctx, (src_id){0},
                           "it has no note of how it was made: it was stripped, or made by an earlier mcc");
    if (strcmp(v->a.api.compiler, here) != 0)
        return error_model(v->ctx, (src_id){0},
                           "made by %.60s, and this is %s, which may make other code: verify it with that version",
                           v->a.api.compiler, here);
    if (v->a.slice)
        return error_model(v->ctx, (src_id){0},
                           "a universal file holds several libraries: take each out (lipo -thin arm64) and verify it");
    v->making = *v->given;
    v->making.target = arena_strdup(&v->ctx->session, v->a.api.target);
    return name_choose(v) && schedules_agree(v, build_note_find(&v->ctx->session, v->a.build, NOTE_SCHEDULES)) &&
           build_note_apply(v->ctx, v->a.build, &v->making);
}

/* ---- bytes ---- */

static int open_file(struct verify *v, const char *path, uint64_t *size)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        *size = (uint64_t)st.st_size;
        return fd;
    }
    error_env(v->ctx, "cannot read '%s': %s", path, fd < 0 ? strerror(errno) : "it is not a regular file");
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Counts bytes that differ; those that one file has alone do. */
static bool compare_open(struct verify *v, int a, int b, uint64_t size_a, uint64_t size_b, const char *path)
{
    unsigned char x[PIECE], y[PIECE];
    const uint64_t both = size_a < size_b ? size_a : size_b, more = (size_a > size_b ? size_a : size_b) - both;
    for (uint64_t at = 0; at < both;) {
        size_t n = both - at < PIECE ? (size_t)(both - at) : PIECE;
        if (!fd_pread(a, x, n, at) || !fd_pread(b, y, n, at))
            return error_env(v->ctx, "cannot read '%s'", path);
        for (size_t i = 0; i < n; i++) {
            if (x[i] == y[i])
                continue;
            if (!v->differ++)
                v->at = at + i, v->where = path;
        }
        at += n;
    }
    if (more && !v->differ)
        v->at = both, v->where = path;
    v->differ += more;
    return true;
}

static bool compare_files(struct verify *v, const char *path, const char *made)
{
    uint64_t size_a = 0, size_b = 0;
    int a = open_file(v, path, &size_a), b = a < 0 ? -1 : open_file(v, made, &size_b);
    bool ok = b >= 0 && compare_open(v, a, b, size_a, size_b, path);
    if (a >= 0)
        close(a);
    if (b >= 0)
        close(b);
    return ok;
}

static void make_and_compare(void *user, const char *library)
{
    struct verify *v = user;
    struct span left = v->a.build;
    const char *name, *value;
    while (build_note_next(&v->ctx->session, &left, &name, &value))
        if (strcmp(name, NOTE_PROOF) == 0)
            VEC_PUSH(&v->ctx->session, &v->proof.items, value);
    struct compilation *c = NEW(&v->ctx->session, struct compilation);
    v->making.output = library;
    *c = (struct compilation){.ctx = v->ctx,
                              .options = &v->making,
                              .report = terminal_report(),
                              .proof = &v->proof,
                              .expected = build_note_find(&v->ctx->session, v->a.build, NOTE_NETWORK)};
    if (!c->expected) {
        error_model(v->ctx, (src_id){0}, "its note of how it was made is damaged");
        return;
    }
    if (compile_keep(c, v->model, NULL) != FAIL_NONE)
        return;
    v->made_sidecar = v->sidecar ? path_beside(&v->ctx->session, library, v->sidecar) : NULL;
    v->ctx->temp_files[0] = v->made_sidecar; /* the compilation is done: the place is free */
    v->network = true;
    v->ctx->model_path = v->path;
    v->same = compare_files(v, v->path, library) &&
              (!v->sidecar || compare_files(v, path_beside(&v->ctx->session, v->path, v->sidecar), v->made_sidecar)) &&
              v->differ == 0;
    if (v->differ)
        error_at(v->ctx, FAIL_CLAIM, (src_id){0}, NULL,
                 "not what mcc makes of '%s': %llu bytes differ, the first is byte %llu of '%s'; it was changed, or "
                 "another build of %s made it",
                 v->model, (unsigned long long)v->differ, (unsigned long long)v->at, v->where, v->a.api.compiler);
}

static void verify_end(void *user)
{
    struct verify *v = user;
    if (v->made_sidecar)
        unlink(v->made_sidecar);
    v->ctx->temp_files[0] = NULL;
}

/* ---- the verdict ---- */

static void put_verdict(const struct verify *v, struct json *j)
{
    JSON_GROUP(j, NULL, "{", j_bool("same", v->same), j_bool("network", v->network),
               j_text("compiler", v->a.api.compiler));
    build_note_json(v->a.build, j);
    JSON_ADD(j, j_uint("differ", v->differ), j_known("at", v->differ, v->at),
             j_text("where", v->differ ? v->where : NULL));
    json_close(j, "}");
}

enum fail command_verify(struct context *ctx, struct options *o)
{
    struct verify *v = NEW(&ctx->session, struct verify);
    *v = (struct verify){.ctx = ctx, .given = o, .path = o->files.items.data[0]};
    if (o->files.items.n != 2)
        return fail_usage(ctx, "two files are needed: mcc verify ARTIFACT NETWORK");
    v->model = o->files.items.data[1];
    if (!artifact_read(ctx, v->path, false, &v->a) || !note_read(v))
        return ctx->fail;
    (void)with_temporary(ctx, v->name, make_and_compare, verify_end, v);
    struct strbuf line = strbuf_of(&ctx->session);
    strbuf_printf(&line, "%s: made of '%s' by %s\n", v->path, v->model, v->a.api.compiler);
    if (o->document && (v->same || ctx->fail == FAIL_CLAIM))
        put_verdict(v, &o->document->result);
    else if (v->same && !o->quiet)
        terminal_print(&line);
    return ctx->fail;
}
