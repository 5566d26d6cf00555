/* Output files: a temporary file next to the target takes the target's name when it is complete and on the disk.
 *
 * Until then the target is untouched. The temporary file is known to the context (temp_files), so that whoever ends the
 * process by a signal can remove it, and it goes when memory or time ends somewhere below.
 */
#include "codegen/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "codegen/queue.h"
#include "ir/base/file.h"

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

/* Where it fails, errno says why, and it is the caller who tells. */
static bool write_out(struct sink *s, const void *data, size_t size)
{
    errno = 0;
    if (!fd_write(s->fd, data, size))
        return false;
    s->written += size;
    send_ahead(s);
    return true;
}

static bool not_written(struct sink *s, int why)
{
    s->ok = false;
    return error_env(s->ctx, "cannot write '%s': %s", s->path, why ? strerror(why) : "no progress");
}

bool sink_put(struct sink *s, const void *data, size_t size)
{
    return s->ok && (write_out(s, data, size) || not_written(s, errno));
}

bool sink_patch(struct sink *s, const void *data, size_t size, uint64_t at)
{
    if (s->ok && pwrite(s->fd, data, size, (off_t)at) != (ssize_t)size)
        s->ok = error_env(s->ctx, "cannot write '%s': %s", s->path, strerror(errno));
    return s->ok;
}

/* On the queue's thread: no diagnostics, no arena. */
static bool take_hashed(void *user, const void *data, size_t size)
{
    struct sink *s = user;
    XXH64_update(s->hash, data, size);
    bool ok = write_out(s, data, size);
    s->why = errno;
    return ok;
}

static bool put_queued(void *user, const void *data, size_t size)
{
    struct sink *s = user;
    return size ? queue_give(s->queue, data, size) : queue_wait(s->queue);
}

/* One thread packs, the other hashes and writes. */
bool sink_weights(struct sink *s, const struct weights_writer *w, uint64_t *hash)
{
    uint64_t before = s->written;
    if (!s->ok || !sink_fits(s, w->size))
        return false;
    XXH64_state_t *state = arena_alloc(&s->ctx->session, sizeof *state);
    s->hash = state;
    XXH64_reset(state, 0);
    s->queue = queue_begin(&s->ctx->session, take_hashed, s);
    bool packed = w->write(w->user, put_queued, s), written = queue_end(s->queue);
    *hash = XXH64_digest(state);
    if (!written)
        return not_written(s, s->why);
    if (packed && s->written - before != w->size)
        return error_internal(s->ctx, (src_id){0}, "weights: %llu bytes written, %llu announced",
                              (unsigned long long)(s->written - before), (unsigned long long)w->size);
    return packed;
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
    char real[PATH_MAX];
    if (lstat(path, &st) < 0)
        return path;
    if (S_ISLNK(st.st_mode) && realpath(path, real)) {
        path = arena_strdup(arena, real);
        if (stat(path, &st) < 0)
            return path;
    }
    if (S_ISREG(st.st_mode) || S_ISLNK(st.st_mode))
        return path;
    error_env(ctx, "'%s' is not a regular file", path);
    return NULL;
}

const char *path_folder(struct arena *arena, const char *path)
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

/* Creates a file of a fresh name next to the target, with the permissions that umask leaves. */
static int open_temporary(struct context *ctx, struct arena *arena, const char *path, const char *volatile *known)
{
    const char *folder = path_folder(arena, path);
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
    if (time_is_over(s->ctx) || !sink_sync(s))
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

/* A sink at work. */
struct filling {
    struct sink s;
    const char *volatile *known; /* the temporary file's place in the context */
    const char *folder;
    bool (*fill)(void *user, struct sink *);
    void *user;
    bool done;
};

static bool filling_run(void *user)
{
    struct filling *f = user;
    f->done = f->fill(f->user, &f->s) && commit(&f->s, *f->known, f->folder);
    return f->done;
}

static void filling_end(void *user)
{
    struct filling *f = user;
    if (f->s.queue)
        queue_end(f->s.queue);
    close(f->s.fd);
    if (!f->done)
        unlink(*f->known);
    *f->known = NULL;
}

bool sink_file(struct context *ctx, struct arena *arena, const char *path, bool (*fill)(void *user, struct sink *),
               void *user)
{
    struct filling f = {.s = {.ctx = ctx, .ok = true}, .known = temporary_slot(ctx), .fill = fill, .user = user};
    if (!f.known)
        return error_internal(ctx, (src_id){0}, "too many outputs at once");
    f.s.path = final_path(ctx, arena, path);
    if (!f.s.path)
        return false;
    f.folder = path_folder(arena, f.s.path);
    f.s.fd = open_temporary(ctx, arena, f.s.path, f.known);
    return f.s.fd >= 0 && run_guarded(ctx, filling_run, filling_end, &f);
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
