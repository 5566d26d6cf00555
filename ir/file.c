/* Reading a file: see file.h. */
#include "ir/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
    size_t done = 0;
    char *data = arena_try(&ctx->session, out->size + 1);
    if (!data)
        return failed(out, NULL);
    while (done < out->size) {
        ssize_t n = read(fd, data + done, out->size - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return failed(out, strerror(errno));
        if (n == 0)
            return failed(out, "it was cut short while it was read");
        done += (size_t)n;
    }
    char extra;
    if (read(fd, &extra, 1) > 0)
        return failed(out, "it grew while it was read");
    data[done] = 0;
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
