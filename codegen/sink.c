/* Output files: a temporary file beside the target takes the target's name when it is complete and on the disk.
 *
 * Until then the target is untouched. The temporary file is known to the context (temp_files), so that whoever ends the
 * process by a signal can remove it, and it goes when memory ends somewhere below.
 */
#include "codegen/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

/* Sends what a large file has so far on its way to the disk, so that the sync at the end waits for less. A hint: what
 * fails here fails at the sync, which tells. */
static void send_ahead(struct sink *s)
{
    enum { AHEAD = 8 << 20 };
    uint64_t n = (s->written - s->sent) / AHEAD * AHEAD;
    if (n > 0)
        sync_file_range(s->fd, (off_t)s->sent, (off_t)n, SYNC_FILE_RANGE_WRITE);
    s->sent += n;
}

bool sink_put(struct sink *s, const void *data, size_t size)
{
    const char *p = data;
    s->written += size;
    while (s->ok && size > 0) {
        ssize_t n = write(s->fd, p, size < (1u << 30) ? size : 1u << 30);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            s->ok = error_env(s->ctx, "cannot write '%s': %s", s->path, n ? strerror(errno) : "no progress");
            break;
        }
        p += n;
        size -= (size_t)n;
    }
    if (s->ok)
        send_ahead(s);
    return s->ok;
}

bool sink_patch(struct sink *s, const void *data, size_t size, uint64_t at)
{
    if (s->ok && pwrite(s->fd, data, size, (off_t)at) != (ssize_t)size)
        s->ok = error_env(s->ctx, "cannot write '%s': %s", s->path, strerror(errno));
    return s->ok;
}

static bool put_hashed(void *user, const void *data, size_t size)
{
    struct sink *s = user;
    XXH64_update(s->hash, data, size);
    return sink_put(s, data, size);
}

bool sink_weights(struct sink *s, const struct weights_writer *w, uint64_t *hash)
{
    uint64_t before = s->written;
    if (!sink_fits(s, w->size))
        return false;
    XXH64_state_t *state = arena_alloc(&s->ctx->session, sizeof *state);
    s->hash = state;
    XXH64_reset(state, 0);
    bool ok = w->write(w->user, put_hashed, s) && s->ok;
    *hash = XXH64_digest(state);
    if (ok && s->written - before != w->size)
        return error_internal(s->ctx, (src_id){0}, "weights: %llu bytes written, %llu announced",
                              (unsigned long long)(s->written - before), (unsigned long long)w->size);
    return ok;
}

bool sink_fits(struct sink *s, uint64_t more)
{
    int64_t limit = s->ctx->limits.max_output_size;
    if (limit > 0 && s->written + more > (uint64_t)limit) {
        s->ok = false;
        return error_limit(s->ctx, (src_id){0},
                           "the output has %llu bytes, more than the limit of %lld (--max-output-size)",
                           (unsigned long long)(s->written + more), (long long)limit);
    }
    return true;
}

/* A link is written through: the name that it points to is replaced. */
static const char *final_path(struct context *ctx, struct arena *arena, const char *path)
{
    struct stat st;
    char *real;
    if (lstat(path, &st) < 0)
        return path;
    if (S_ISLNK(st.st_mode) && (real = realpath(path, NULL)) != NULL) {
        path = arena_strdup(arena, real);
        free(real);
        if (stat(path, &st) < 0)
            return path;
    }
    if (S_ISREG(st.st_mode) || S_ISLNK(st.st_mode))
        return path;
    error_env(ctx, "'%s' is not a regular file", path);
    return NULL;
}

static const char *folder_of(struct arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return ".";
    return slash == path ? "/" : arena_strndup(arena, path, (size_t)(slash - path));
}

/* Creates `name` and makes it known to whoever removes it on a signal. No signal is taken in between: one that came
 * after the file was there and before its name was known would leave it behind. */
static int create_known(const char *name, const char *volatile *known)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666), why = errno;
    if (fd >= 0)
        *known = name;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = why;
    return fd;
}

/* Creates a file of a fresh name beside the target, with the permissions that umask leaves. */
static int open_temporary(struct context *ctx, struct arena *arena, const char *path, const char *volatile *known)
{
    const char *folder = folder_of(arena, path);
    for (int k = 0; k < 100; k++) {
        const char *name = arena_printf(arena, "%s/.mcc-%ld-%d.tmp", folder, (long)getpid(), k);
        int fd = create_known(name, known);
        if (fd >= 0 || errno != EEXIST) {
            if (fd < 0)
                error_env(ctx, "cannot write '%s': %s", path, strerror(errno));
            return fd;
        }
    }
    error_env(ctx, "cannot write '%s': too many temporary files", path);
    return -1;
}

/* The place in the context for one more temporary file's name: outputs nest (a sidecar is written inside its
 * library). */
static const char *volatile *temporary_slot(struct context *ctx)
{
    for (size_t i = 0; i < COUNT_OF(ctx->temp_files); i++)
        if (!ctx->temp_files[i])
            return &ctx->temp_files[i];
    return NULL;
}

bool sink_sync(struct sink *s)
{
    if (s->ok && fsync(s->fd) < 0 && errno != EINVAL && errno != EROFS)
        s->ok = error_env(s->ctx, "cannot write '%s': %s", s->path, strerror(errno));
    return s->ok;
}

static bool commit(struct sink *s, const char *temporary, const char *folder)
{
    if (!sink_sync(s))
        return false;
    if (rename(temporary, s->path) < 0)
        return error_env(s->ctx, "cannot rename to '%s': %s", s->path, strerror(errno));
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    return true;
}

bool sink_file(struct context *ctx, struct arena *arena, const char *path, bool (*fill)(void *user, struct sink *),
               void *user)
{
    const char *volatile *volatile known = temporary_slot(ctx);
    jmp_buf *outer = ctx->unwind, here;
    volatile bool ok = false, unwound = false;
    struct sink s = {.ctx = ctx, .ok = true};
    if (!known)
        return error_internal(ctx, (src_id){0}, "too many outputs at once");
    s.path = final_path(ctx, arena, path);
    if (!s.path)
        return false;
    const char *folder = folder_of(arena, s.path);
    s.fd = open_temporary(ctx, arena, s.path, known);
    if (s.fd < 0)
        return false;
    ctx->unwind = &here;
    if (setjmp(here) == 0)
        ok = fill(user, &s) && commit(&s, *known, folder);
    else
        unwound = true;
    ctx->unwind = outer;
    close(s.fd);
    if (!ok)
        unlink(*known);
    *known = NULL;
    if (unwound && outer)
        longjmp(*outer, 1);
    return ok;
}

static bool put_span(void *user, struct sink *s)
{
    const struct span *bytes = user;
    return sink_put(s, bytes->data, bytes->size);
}

bool sink_bytes(struct context *ctx, struct arena *arena, const char *path, struct span bytes)
{
    return sink_file(ctx, arena, path, put_span, &bytes);
}
