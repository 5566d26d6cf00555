/* Reading and writing files and descriptors whole: see file.h. */
#include "ir/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

const char *temp_folder(void)
{
    const char *folder = getenv("TMPDIR");
    return folder && *folder ? folder : "/tmp";
}

bool fd_write(int fd, const void *data, size_t size)
{
    for (const char *p = data; size > 0;) {
        ssize_t n = write(fd, p, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        p += n;
        size -= (size_t)n;
    }
    return true;
}

/* How many bytes came; offset < 0: from where the descriptor stands. -1: failed. */
static ssize_t read_until(int fd, char *to, size_t size, off_t offset)
{
    size_t done = 0;
    while (done < size) {
        ssize_t n = offset < 0 ? read(fd, to + done, size - done)
                               : pread(fd, to + done, size - done, offset + (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

bool fd_read(int fd, void *data, size_t size)
{
    return read_until(fd, data, size, -1) == (ssize_t)size;
}

bool fd_pread(int fd, void *data, size_t size, uint64_t offset)
{
    return size <= INT64_MAX && offset <= (uint64_t)INT64_MAX - size &&
           read_until(fd, data, size, (off_t)offset) == (ssize_t)size;
}

bool thread_begin(pthread_t *thread, void *(*run)(void *), void *user)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool begun = pthread_create(thread, NULL, run, user) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return begun;
}

/* ---- whole files ---- */

enum { PIECE = 4 << 20, BIG = 8 * PIECE };

/* A file that is read by whoever has time, piece by piece. */
struct reading {
    int fd;
    char *data;
    size_t size;
    atomic_size_t next; /* the first byte that nobody has taken on */
    atomic_int why;     /* errno of a failure */
    atomic_bool cut;    /* the file ended early */
};

static void *read_pieces(void *user)
{
    struct reading *r = user;
    for (size_t at; (at = atomic_fetch_add(&r->next, PIECE)) < r->size;) {
        size_t n = r->size - at < PIECE ? r->size - at : PIECE;
        ssize_t done = read_until(r->fd, r->data + at, n, (off_t)at);
        if (done < 0)
            atomic_store(&r->why, errno);
        if (done < (ssize_t)n) {
            atomic_store(&r->cut, true);
            break;
        }
    }
    return NULL;
}

/* A second thread helps with big files: most of the time goes into fresh pages and the copy, which share well. */
static void read_big(struct reading *r)
{
    pthread_t helper;
    bool helped = r->size >= BIG && thread_begin(&helper, read_pieces, r);
    read_pieces(r);
    if (helped)
        pthread_join(helper, NULL);
}

static enum file_status failed(struct file_bytes *out, const char *why)
{
    out->why = why;
    return FILE_FAILED;
}

static enum file_status fd_whole(struct context *ctx, int fd, int64_t max, struct file_bytes *out)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return failed(out, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return failed(out, S_ISDIR(st.st_mode) ? "a directory" : "not a regular file");
    out->size = (size_t)st.st_size;
    if (st.st_size > max)
        return FILE_LARGE;
    char *data = arena_try(&ctx->session, out->size + 1);
    if (!data)
        return failed(out, NULL);
    struct reading r = {.fd = fd, .data = data, .size = out->size};
    read_big(&r);
    if (r.why)
        return failed(out, strerror(r.why));
    if (r.cut)
        return failed(out, "it was cut short while it was read");
    char extra;
    if (pread(fd, &extra, 1, (off_t)out->size) > 0)
        return failed(out, "it grew while it was read");
    data[out->size] = 0;
    out->data = data;
    if (ctx->watch.file)
        ctx->watch.file(ctx->watch.user, data, out->size);
    return FILE_OK;
}

enum file_status file_whole(struct context *ctx, const char *path, int64_t max, struct file_bytes *out)
{
    *out = (struct file_bytes){0};
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return failed(out, strerror(errno));
    enum file_status status = fd_whole(ctx, fd, max, out);
    close(fd);
    return status;
}

bool file_head(const char *path, void *out, size_t n)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return false;
    bool ok = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && fd_read(fd, out, n);
    close(fd);
    return ok;
}

const char *path_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool path_ends(const char *path, const char *suffix)
{
    size_t n = strlen(path), k = strlen(suffix);
    return n > k && strcmp(path + n - k, suffix) == 0;
}

const char *path_beside(struct arena *arena, const char *path, const char *name)
{
    return arena_printf(arena, "%.*s%s", (int)(path_name(path) - path), path, name);
}
