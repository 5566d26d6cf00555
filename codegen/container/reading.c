/* What reading files of all formats has in common (reading.h). */
#include "codegen/container/reading.h"

#include "ir/base/file.h"

enum { ARCHIVE_HEAD = 60, HEAD_BYTES = 64 };

bool reading_refuse(const struct file_reading *f, const char *why)
{
    return error_env(f->ctx, "%s", why);
}

bool reading_damaged(const struct file_reading *f, const char *what)
{
    return error_env(f->ctx, "truncated or damaged: %s", what);
}

bool reading_at(const struct file_reading *f, void *to, uint64_t bytes, uint64_t offset)
{
    return offset <= f->size && bytes <= f->size - offset && fd_pread(f->fd, to, (size_t)bytes, f->base + offset);
}

char *reading_piece(struct file_reading *f, uint64_t at, uint64_t bytes)
{
    if (bytes > f->size - f->held) {
        reading_damaged(f, "sections overlap");
        return NULL;
    }
    f->held += bytes;
    char *piece = arena_alloc(f->arena, (size_t)bytes + 1);
    if (reading_at(f, piece, bytes, at))
        return piece;
    reading_damaged(f, "a section");
    return NULL;
}

char *part_bytes(struct file_reading *f, struct file_part *p)
{
    if (!p->bytes && p->role == PART_ABSENT)
        reading_damaged(f, "a section");
    else if (!p->bytes)
        p->bytes = reading_piece(f, p->at, p->size);
    return p->bytes;
}

bool reading_data(struct file_reading *f)
{
    for (uint32_t i = 0; i < f->n; i++) {
        enum part_role role = f->parts[i].role;
        if ((role == PART_DATA || role == PART_GRAPH || role == PART_BUILD) && !part_bytes(f, &f->parts[i]))
            return false;
    }
    return true;
}

ASCENDING(by_address, struct file_function, address);

void reading_function_sizes(struct file_reading *f)
{
    if (f->functions.n)
        qsort(f->functions.data, f->functions.n, sizeof *f->functions.data, by_address);
    for (uint32_t i = 0; i + 1 < f->functions.n; i++) {
        struct file_function *one = &f->functions.data[i], *next = one + 1;
        if (next->address - one->address < one->size)
            one->size = next->address - one->address;
    }
}

/* mcc's archives have an index and one member (elf_merge.c). */
static bool find_member(struct file_reading *f)
{
    uint64_t at = 8, file = f->size;
    while (at <= file && file - at >= ARCHIVE_HEAD) {
        char head[ARCHIVE_HEAD + 1] = "", number[11] = "", *end;
        if (!reading_at(f, head, ARCHIVE_HEAD, at))
            return reading_damaged(f, "an archive's member");
        memcpy(number, head + 48, 10);
        uint64_t size = strtoull(number, &end, 10);
        if (head[58] != '`' || end == number || *end > ' ' || size > file - at - ARCHIVE_HEAD)
            return reading_damaged(f, "an archive's member");
        if (memcmp(head, "model.o/ ", 9) == 0) {
            f->base = at + ARCHIVE_HEAD;
            f->size = size;
            return true;
        }
        at += ARCHIVE_HEAD + size + size % 2;
    }
    return reading_refuse(f, "an archive without mcc's tables: a static network, which has none, or not made by mcc");
}

bool file_reading_all(struct file_reading *f)
{
    unsigned char head[HEAD_BYTES];
    if (reading_at(f, head, 8, 0) && memcmp(head, "!<arch>\n", 8) == 0 && !find_member(f))
        return false;
    size_t n = f->size < sizeof head ? (size_t)f->size : sizeof head;
    const struct container *c = reading_at(f, head, n, 0) ? container_by_head(head, n) : NULL;
    return c && c->read ? c->read(f) : reading_refuse(f, "not made by mcc: another kind of file");
}
