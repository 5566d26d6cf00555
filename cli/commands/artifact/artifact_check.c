/* Hashes of artifacts: see artifact_check.h. */
#include "cli/commands/artifact/artifact_check.h"

#include <fcntl.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "ir/base/file.h"

enum { HASH_BYTES = 1 << 16 };

enum { HOLES = COUNT_OF(((struct file_reading *)0)->unsealed) + 1 };

/* [from, from + bytes) of the file; what is in the holes, which count from `base` on, are zeros. */
static bool hash_range(int fd, XXH64_state_t *state, uint64_t base, uint64_t from, uint64_t bytes,
                       const struct file_hole *holes)
{
    unsigned char buffer[HASH_BYTES];
    while (bytes > 0) {
        size_t n = bytes < sizeof buffer ? (size_t)bytes : sizeof buffer;
        if (!fd_pread(fd, buffer, n, base + from))
            return false;
        for (int h = 0; holes && h < HOLES; h++)
            for (uint64_t i = 0; i < holes[h].bytes; i++)
                if (holes[h].at + i >= from && holes[h].at + i - from < n)
                    buffer[holes[h].at + i - from] = 0;
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
    return hash_range(fd, &state, 0, from, bytes, NULL) && XXH64_digest(&state) == expected;
}

bool artifact_check_seal(const struct file_reading *f, const struct mcc_note *note)
{
    uint64_t size = f->sealed ? f->sealed : f->size, at = f->note ? f->parts[f->note - 1].at : 0;
    struct file_hole holes[HOLES] = {{at + offsetof(struct mcc_note, hash), sizeof note->hash}};
    memcpy(holes + 1, f->unsealed, sizeof f->unsealed);
    if (note->sealed != 1 || size > f->size || note->file_size != size || note->weights_offset > size ||
        note->weights_size > size - note->weights_offset)
        return error_env(f->ctx, "truncated or damaged: the size differs; copy the file or compile it again");
    XXH64_state_t state;
    uint64_t end = note->weights_offset + note->weights_size;
    XXH64_reset(&state, 0);
    if (!hash_range(f->fd, &state, f->base, 0, note->weights_offset, holes) ||
        !hash_range(f->fd, &state, f->base, end, size - end, holes) || XXH64_digest(&state) != note->hash)
        return error_env(f->ctx, "damaged, the hash differs; copy the file or compile it again");
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
               error_env(ctx, "the weights are damaged, their hash differs; copy the file or compile it again");
    const char *sidecar = path_beside(&ctx->session, path, d->weights_file);
    int side = open(sidecar, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool good = side >= 0 && hash_is(side, 0, d->sidecar_head, d->sidecar_head_hash) &&
                hash_is(side, d->sidecar_head, d->weights_size, d->weights_hash);
    if (side >= 0)
        close(side);
    return good || error_env(ctx,
                             side < 0 ? "'%s' cannot be opened"
                                      : "'%s' is damaged, its hash differs; copy it or compile it again",
                             sidecar);
}
