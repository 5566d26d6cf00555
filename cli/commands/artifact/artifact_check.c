/* Hashes of artifacts: see artifact_check.h. */
#include "cli/commands/artifact/artifact_check.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "ir/base/file.h"

enum { HASH_BYTES = 1 << 16 };

static bool hash_range(int fd, XXH64_state_t *state, uint64_t from, uint64_t bytes, uint64_t zero_at)
{
    unsigned char buffer[HASH_BYTES];
    while (bytes > 0) {
        size_t n = bytes < sizeof buffer ? (size_t)bytes : sizeof buffer;
        if (!fd_pread(fd, buffer, n, from))
            return false;
        for (uint64_t i = 0; i < 8; i++)
            if (zero_at + i >= from && zero_at + i - from < n)
                buffer[zero_at + i - from] = 0;
        XXH64_update(state, buffer, n);
        from += n;
        bytes -= n;
    }
    return true;
}

static bool hash_is(int fd, uint64_t from, uint64_t bytes, uint64_t expected)
{
    XXH64_state_t state;
    XXH64_reset(&state, 0);
    return hash_range(fd, &state, from, bytes, UINT64_MAX - 8) && XXH64_digest(&state) == expected;
}

bool artifact_check_seal(struct context *ctx, int fd, uint64_t size, const struct mcc_note *note, uint64_t field)
{
    if (note->sealed != 1 || note->file_size != size || note->weights_offset > size ||
        note->weights_size > size - note->weights_offset)
        return error_env(ctx, "truncated or damaged: the size differs");
    XXH64_state_t state;
    uint64_t end = note->weights_offset + note->weights_size;
    XXH64_reset(&state, 0);
    if (!hash_range(fd, &state, 0, note->weights_offset, field) || !hash_range(fd, &state, end, size - end, field) ||
        XXH64_digest(&state) != note->hash)
        return error_env(ctx, "damaged, the hash differs");
    return true;
}

bool artifact_check_weights(struct context *ctx, const char *path, int fd, const struct artifact_file *file)
{
    const struct mcc_rt_desc *d = &file->desc;
    if (!d->weights_size)
        return true;
    if (!d->weights_file)
        return (d->weights_size == file->sizes.weights &&
                hash_is(fd, file->weights_at, d->weights_size, d->weights_hash)) ||
               error_env(ctx, "the weights are damaged, their hash differs");
    const char *slash = strrchr(path, '/');
    const char *sidecar = arena_printf(&ctx->session, "%.*s%s", slash ? (int)(slash + 1 - path) : 0, path,
                                       d->weights_file);
    int side = open(sidecar, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool good = side >= 0 && hash_is(side, 0, d->sidecar_head, d->sidecar_head_hash) &&
                hash_is(side, d->sidecar_head, d->weights_size, d->weights_hash);
    if (side >= 0)
        close(side);
    return good || error_env(ctx, side < 0 ? "'%s' cannot be opened" : "'%s' is damaged, its hash differs", sidecar);
}
