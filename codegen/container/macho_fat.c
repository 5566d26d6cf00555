/* A universal file: libraries for several architectures one after another, each on a page of its own; the loader takes
 * the one for its machine.
 */
#include "codegen/container/bytes.h"
#include "codegen/container/macho.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "codegen/sink.h"
#include "ir/base/file.h"

enum { ALIGN_SHIFT = 14, COPY_BYTES = 1 << 20 };

struct fat {
    struct context *ctx;
    struct arena arena;
    const struct macho_slice *slices;
    uint32_t n;
};

static bool copy(struct fat *f, struct sink *s, const struct macho_slice *slice, char *buffer)
{
    for (uint64_t at = 0, n; at < slice->size; at += n) {
        n = slice->size - at < COPY_BYTES ? slice->size - at : COPY_BYTES;
        if (!fd_pread(slice->fd, buffer, n, at))
            return error_env(f->ctx, "cannot read a temporary file");
        if (!sink_put(s, buffer, n))
            return false;
    }
    return true;
}

static bool fill(void *user, struct sink *s)
{
    struct fat *f = user;
    uint64_t at = 1 << ALIGN_SHIFT;
    char *buffer = arena_alloc(&f->arena, COPY_BYTES);
    struct strbuf out = strbuf_of(&f->arena);
    put_big(&out, MACHO_FAT, 4);
    put_big(&out, f->n, 4);
    for (uint32_t i = 0; i < f->n; at = round_to(at + f->slices[i].size, 1 << ALIGN_SHIFT), i++) {
        const struct macho_machine *machine = macho_machine_of(f->slices[i].platform);
        if (at + f->slices[i].size > UINT32_MAX)
            return error_limit(f->ctx, (src_id){0},
                               "a universal file is at most 4 GiB, the weights of all its libraries included: make a "
                               "library for each target");
        put_big(&out, machine->cpu, 4);
        put_big(&out, machine->kind, 4);
        put_big(&out, at, 4);
        put_big(&out, f->slices[i].size, 4);
        put_big(&out, ALIGN_SHIFT, 4);
    }
    for (uint32_t i = 0; i < f->n; i++) {
        while ((s->written + out.n) % (1 << ALIGN_SHIFT))
            strbuf_append(&out, "", 1);
        if (!sink_put(s, out.data, out.n) || !copy(f, s, &f->slices[i], buffer))
            return false;
        out.n = 0;
    }
    return sink_fits(s, 0);
}

bool macho_slice_open(struct context *ctx, const char *path, struct macho_slice *slice)
{
    struct stat st;
    slice->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (slice->fd < 0 || fstat(slice->fd, &st) != 0)
        return error_env(ctx, "cannot read '%s': %s", path, strerror(errno));
    slice->size = (uint64_t)st.st_size;
    return true;
}

bool macho_fat(struct context *ctx, const struct macho_slice *slices, uint32_t n, const char *path)
{
    struct fat f = {.ctx = ctx, .slices = slices, .n = n};
    arena_init(&f.arena, ctx);
    bool ok = sink_file(ctx, &f.arena, path, fill, &f);
    arena_release(&f.arena);
    return ok;
}
