/* Reading the model file: whole, into memory, never mapped (a mapped file that is cut short kills the reader), and only
 * when it is a regular file; opening does not wait for the writer of a FIFO. Also: guessing what a wrong file is.
 */
#include "frontend/onnx/scan.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Protobuf's own limit: a message has at most 2 GiB - 1. */
#define FILE_MAX (((int64_t)1 << 31) - 1)

void *arena_try(struct arena *a, size_t size)
{
    jmp_buf here, *outer = a->ctx->unwind;
    void *volatile p = NULL;
    if (setjmp(here) == 0) {
        a->ctx->unwind = &here;
        p = arena_alloc(a, size);
    }
    a->ctx->unwind = outer;
    return p;
}

static bool fd_read(struct context *ctx, int fd, struct span *out)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return error_env(ctx, "cannot read the file: %s", strerror(errno));
    if (!S_ISREG(st.st_mode))
        return error_env(ctx, "not a regular file");
    if (st.st_size == 0)
        return error_model(ctx, (src_id){0}, "empty file");
    if (st.st_size > FILE_MAX)
        return error_model(ctx, (src_id){0}, "the file has %lld bytes, the limit is %lld (2 GiB - 1); larger models keep "
                           "their weights in external data", (long long)st.st_size, (long long)FILE_MAX);
    size_t size = (size_t)st.st_size, done = 0;
    char *data = arena_try(&ctx->session, size);
    if (!data)
        return false;
    while (done < size) {
        ssize_t n = read(fd, data + done, size - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_env(ctx, "cannot read the file: %s", strerror(errno));
        if (n == 0)
            return error_env(ctx, "the file was cut short while it was read");
        done += (size_t)n;
    }
    char extra;
    if (read(fd, &extra, 1) > 0)
        return error_env(ctx, "the file grew while it was read");
    *out = (struct span){data, size};
    return true;
}

bool file_read(struct context *ctx, const char *path, struct span *out)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return error_env(ctx, "cannot open the file: %s", strerror(errno));
    bool ok = fd_read(ctx, fd, out);
    close(fd);
    return ok;
}

/* ---- what a wrong file is ------------------------------------------------------------------------------ */

static const struct magic { uint32_t at, n; const char *bytes, *what; } magics[] = {
    {0, 2, "\x1f\x8b", "a gzip archive"},
    {0, 4, "\x7f" "ELF", "an ELF object or program"},
    {0, 4, "\x89PNG", "a PNG image"},
    {0, 3, "\xff\xd8\xff", "a JPEG image"},
    {0, 4, "PK\x03\x04", "a zip archive (PyTorch saves those: export to ONNX first)"},
    {0, 8, "\x89HDF\r\n\x1a\n", "an HDF5 file (Keras saves those: export to ONNX first)"},
    {0, 4, "GGUF", "a GGUF model"},
    {4, 4, "TFL3", "a TensorFlow Lite model"},
    {0, 2, "\x80\x02", "a Python pickle"},
    {0, 2, "\x80\x03", "a Python pickle"},
    {0, 2, "\x80\x04", "a Python pickle"},
    {0, 2, "\x80\x05", "a Python pickle"},
    {0, 4, "%PDF", "a PDF document"},
    {0, 6, "\xfd" "7zXZ\0", "an xz archive"},
    {0, 4, "\x28\xb5\x2f\xfd", "a zstd archive"},
    {257, 5, "ustar", "a tar archive"},
    {8, 2, "{\"", "a safetensors file"},
};

static bool is_text(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((p[i] < 0x20 && p[i] != '\n' && p[i] != '\r' && p[i] != '\t') || p[i] >= 0x7f)
            return false;
    return n > 0;
}

const char *file_looks_like(struct span file)
{
    for (uint32_t i = 0; i < COUNT_OF(magics); i++) {
        const struct magic *m = &magics[i];
        if (file.size >= m->at + m->n && memcmp((const char *)file.data + m->at, m->bytes, m->n) == 0)
            return m->what;
    }
    return is_text(file.data, file.size < 64 ? file.size : 64) ? "text" : NULL;
}
