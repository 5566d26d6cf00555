/* BLAKE3 (digest.h). */
#include "codegen/digest.h"

#include <errno.h>
#include <fcntl.h>
#include <llvm-c/blake3.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ir/base/file.h"

enum { PIECE = 1 << 16 };
struct digest {
    llvm_blake3_hasher state;
};

static bool add_range(llvm_blake3_hasher *state, int fd, uint64_t from, uint64_t bytes)
{
    unsigned char buffer[PIECE];
    while (bytes > 0) {
        size_t n = bytes < sizeof buffer ? (size_t)bytes : sizeof buffer;
        if (!fd_pread(fd, buffer, n, from))
            return false;
        llvm_blake3_hasher_update(state, buffer, n);
        from += n;
        bytes -= n;
    }
    return true;
}

static void finish(const llvm_blake3_hasher *state, char out[DIGEST_TEXT])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char bytes[DIGEST_BYTES];
    llvm_blake3_hasher_finalize(state, bytes, sizeof bytes);
    for (int i = 0; i < DIGEST_BYTES; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[2 * DIGEST_BYTES] = 0;
}

struct digest *digest_new(struct arena *arena)
{
    struct digest *d = NEW(arena, struct digest);
    llvm_blake3_hasher_init(&d->state);
    return d;
}

void digest_add(struct digest *d, const void *data, size_t size)
{
    llvm_blake3_hasher_update(&d->state, data, size);
}

void digest_end(const struct digest *d, char out[DIGEST_TEXT])
{
    finish(&d->state, out);
}

bool digest_range(int fd, uint64_t from, uint64_t bytes, char out[DIGEST_TEXT])
{
    llvm_blake3_hasher state;
    llvm_blake3_hasher_init(&state);
    if (!add_range(&state, fd, from, bytes))
        return false;
    finish(&state, out);
    return true;
}

bool digest_files(struct context *ctx, const char *const *paths, uint32_t n, char out[DIGEST_TEXT])
{
    llvm_blake3_hasher state;
    llvm_blake3_hasher_init(&state);
    for (uint32_t i = 0; i < n; i++) {
        struct stat st;
        int fd = open(paths[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        bool good = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
                    add_range(&state, fd, 0, (uint64_t)st.st_size);
        int why = errno;
        if (fd >= 0)
            close(fd);
        if (!good)
            return error_env(ctx, "cannot read '%s' for its hash: %s", paths[i],
                             fd < 0 ? strerror(why) : "it is not a regular file, or was changed meanwhile");
    }
    finish(&state, out);
    return true;
}
