/* Reading a small text file of the user's whole: a configuration, a profile. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/compile.h"

/* Opens what is a regular file; -1 after a diagnostic. A FIFO or a device must not make the compiler wait. */
static int open_regular(struct context *ctx, const char *path, const char *what, struct stat *st)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int why = fd < 0 || fstat(fd, st) != 0 ? errno : 0;
    bool regular = !why && S_ISREG(st->st_mode);
    if (regular)
        return fd;
    if (fd >= 0)
        close(fd);
    error_env(ctx, "cannot read the %s: %s", what, why ? strerror(why) : S_ISDIR(st->st_mode) ? "a directory" : "not a regular file");
    return -1;
}

bool text_file_read(struct context *ctx, const char *path, const char *what, size_t most, struct span *out)
{
    struct stat st;
    int fd = open_regular(ctx, path, what, &st);
    if (fd < 0)
        return false;
    if (st.st_size > (off_t)most) {
        close(fd);
        return error_model(ctx, (src_id){0}, "larger than %zu KiB", most / 1024);
    }
    size_t size = (size_t)st.st_size, n = 0;
    char *data = arena_alloc(&ctx->session, size + 1);
    while (n < size) {
        ssize_t got = read(fd, data + n, size - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    close(fd);
    if (n < size)
        return error_env(ctx, "cannot read the %s", what);
    *out = (struct span){data, size};
    return true;
}
