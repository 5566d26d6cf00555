/* Reading and writing files and descriptors whole: see file.h. */
#include "ir/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
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
    ssize_t done = read_until(fd, data, out->size, -1);
    if (done < 0)
        return failed(out, strerror(errno));
    if ((size_t)done < out->size)
        return failed(out, "it was cut short while it was read");
    char extra;
    if (read(fd, &extra, 1) > 0)
        return failed(out, "it grew while it was read");
    data[out->size] = 0;
    out->data = data;
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
