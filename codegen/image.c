/* A linked image becomes the artifact's file: weights in place, note sealed, whole or not at all.
 *
 * The weights never pass through the linker. Their segment is the last one, so making it longer moves nothing that
 * code knows of: only sections behind it in the file (symbols, names, the section table), whose places are numbers in
 * headers. Bytes go to a temporary file beside the target, which takes the name when it is complete and on the disk.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "codegen/image.h"
#include "codegen/table.h"
#include "runtime/mcc_note.h"
#include "runtime/rt.h"

enum { TAIL_ALIGN = 64 };

struct image {
    struct context *ctx;
    unsigned char *data;           /* own copy, patched */
    size_t size;
    Elf64_Ehdr *head;
    Elf64_Shdr *sections;
    Elf64_Shdr *weights;           /* NULL: none */
    uint64_t desc, note;           /* file offsets of mcc_rt_model and the note */
};

static bool broken(struct image *im, const char *what)
{
    return error_internal(im->ctx, (src_id){ 0 }, "the linked file is not as expected: %s", what);
}

static const char *section_name(const struct image *im, const Elf64_Shdr *s)
{
    const Elf64_Shdr *names = &im->sections[im->head->e_shstrndx];
    return (const char *)im->data + names->sh_offset + s->sh_name;
}

/* The linker is ours, but its output is still a file: every offset is checked before it is used. */
static bool check_sections(struct image *im)
{
    im->head = (Elf64_Ehdr *)(void *)im->data;
    if (im->size < sizeof *im->head || memcmp(im->data, ELFMAG, SELFMAG) != 0)
        return broken(im, "no ELF file");
    uint64_t table = im->head->e_shoff, n = im->head->e_shnum;
    if (table % 8 || table > im->size || n * sizeof(Elf64_Shdr) > im->size - table || im->head->e_shstrndx >= n)
        return broken(im, "section table");
    uint64_t programs = im->head->e_phoff;
    if (programs % 8 || programs > im->size || im->head->e_phnum * sizeof(Elf64_Phdr) > im->size - programs)
        return broken(im, "program headers");
    im->sections = (Elf64_Shdr *)(void *)(im->data + table);
    for (uint64_t i = 0; i < n; i++) {
        const Elf64_Shdr *s = &im->sections[i];
        bool stored = s->sh_type != SHT_NOBITS && s->sh_type != SHT_NULL;
        if (stored && (s->sh_offset > im->size || s->sh_size > im->size - s->sh_offset))
            return broken(im, "a section outside the file");
    }
    const Elf64_Shdr *names = &im->sections[im->head->e_shstrndx];
    if (names->sh_size == 0 || im->data[names->sh_offset + names->sh_size - 1] != 0)
        return broken(im, "section names");
    for (uint64_t i = 0; i < n; i++)
        if (im->sections[i].sh_name >= names->sh_size)
            return broken(im, "a section's name");
    return true;
}

/* File offset of an address; 0: not in the file. */
static uint64_t offset_of(const struct image *im, uint64_t address)
{
    const Elf64_Phdr *p = (const Elf64_Phdr *)(const void *)(im->data + im->head->e_phoff);
    for (uint32_t i = 0; i < im->head->e_phnum; i++)
        if (p[i].p_type == PT_LOAD && address >= p[i].p_vaddr && address - p[i].p_vaddr < p[i].p_filesz)
            return p[i].p_offset + (address - p[i].p_vaddr);
    return 0;
}

static uint64_t find_symbol(const struct image *im, const char *name)
{
    for (uint32_t k = 0; k < im->head->e_shnum; k++) {
        const Elf64_Shdr *s = &im->sections[k];
        if (s->sh_type != SHT_SYMTAB || s->sh_link >= im->head->e_shnum)
            continue;
        const Elf64_Shdr *text = &im->sections[s->sh_link];
        const Elf64_Sym *sym = (const Elf64_Sym *)(const void *)(im->data + s->sh_offset);
        for (uint64_t i = 0; i < s->sh_size / sizeof *sym; i++)
            if (sym[i].st_name < text->sh_size &&
                strcmp((const char *)im->data + text->sh_offset + sym[i].st_name, name) == 0)
                return offset_of(im, sym[i].st_value);
    }
    return 0;
}

static bool find_parts(struct image *im, bool has_weights)
{
    for (uint32_t i = 0; i < im->head->e_shnum; i++) {
        Elf64_Shdr *s = &im->sections[i];
        if (strcmp(section_name(im, s), ".mcc.weights") == 0)
            im->weights = s;
        if (strcmp(section_name(im, s), ".note.mcc") == 0 && s->sh_size == sizeof(struct mcc_note))
            im->note = s->sh_offset;
    }
    im->desc = find_symbol(im, TABLE_MODEL);
    if (im->note == 0 || im->note % 8)
        return broken(im, "note");
    if (im->desc == 0 || im->desc > im->size - sizeof(struct mcc_rt_desc) || im->desc % 8)
        return broken(im, "table");
    if (has_weights != (im->weights != NULL))
        return broken(im, "weights");
    return true;
}

/* Lengthens the weights' segment and shifts what lies behind it in the file by delta. */
static bool patch_headers(struct image *im, uint64_t size, uint64_t delta)
{
    Elf64_Phdr *p = (Elf64_Phdr *)(void *)(im->data + im->head->e_phoff);
    uint64_t at = im->weights->sh_offset;
    bool found = false;
    for (uint32_t i = 0; i < im->head->e_phnum; i++) {
        if (p[i].p_type == PT_LOAD && p[i].p_offset == at) {
            p[i].p_filesz = p[i].p_memsz = size;
            found = true;
        } else if (p[i].p_type == PT_LOAD && p[i].p_vaddr > im->weights->sh_addr) {
            return broken(im, "a segment behind the weights");
        }
    }
    for (uint32_t i = 0; i < im->head->e_shnum; i++)
        if (im->sections[i].sh_offset > at)
            im->sections[i].sh_offset += delta;
    im->weights->sh_size = size;
    im->head->e_shoff += delta;
    return found || broken(im, "no segment for the weights");
}

/* ---- writing ---- */

struct sink {
    struct context *ctx;
    const char *path;
    int fd;
    XXH64_state_t *hash;           /* of the weights; NULL: not hashed */
    uint64_t written;
    bool ok;
};

static bool put(void *user, const void *data, size_t size)
{
    struct sink *s = user;
    const char *p = data;
    s->written += size;
    if (s->hash)
        XXH64_update(s->hash, data, size);
    while (s->ok && size > 0) {
        ssize_t n = write(s->fd, p, size < (1u << 30) ? size : 1u << 30);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            s->ok = error_env(s->ctx, "cannot write '%s': %s", s->path, n ? strerror(errno) : "no progress");
            break;
        }
        p += n;
        size -= (size_t)n;
    }
    return s->ok;
}

static bool patch_file(struct sink *s, const void *data, size_t size, uint64_t at)
{
    if (s->ok && pwrite(s->fd, data, size, (off_t)at) != (ssize_t)size)
        s->ok = error_env(s->ctx, "cannot write '%s': %s", s->path, strerror(errno));
    return s->ok;
}

static bool write_weights(struct sink *s, struct mcc_rt_desc *desc, const struct weights_writer *w)
{
    uint64_t before = s->written;
    s->hash = XXH64_createState();
    if (!s->hash)
        return error_limit(s->ctx, (src_id){ 0 }, "out of memory");
    XXH64_reset(s->hash, 0);
    bool ok = w->write(w->user, put, s) && s->ok;
    desc->weights_hash = XXH64_digest(s->hash);
    XXH64_freeState(s->hash);
    s->hash = NULL;
    if (ok && s->written - before != w->size)
        return error_internal(s->ctx, (src_id){ 0 }, "weights: %llu bytes written, %llu announced",
                              (unsigned long long)(s->written - before), (unsigned long long)w->size);
    return ok;
}

/* The note's hash covers all but the weights and itself. Fields point into im->data, which is the file without them. */
static void seal(struct image *im, uint64_t cut, const struct weights_writer *w, uint64_t file_size, const char *query)
{
    struct mcc_note *note = (struct mcc_note *)(void *)(im->data + im->note);
    note->sealed = 1;
    note->file_size = file_size;
    note->weights_offset = w->size ? cut : file_size;
    note->weights_size = w->size;
    memset(note->query, 0, sizeof note->query);
    memcpy(note->query, query, strlen(query));
    note->hash = 0;
    note->hash = XXH64(im->data, im->size, 0);
}

static bool write_file(struct image *im, struct sink *s, const struct weights_writer *w, const char *query)
{
    static const char zeros[TAIL_ALIGN];
    struct mcc_rt_desc *desc = (struct mcc_rt_desc *)(void *)(im->data + im->desc);
    uint64_t cut = im->size;
    bool ok;
    if (w->size) {
        /* im->data becomes head, padding, tail: the placeholder makes room for the padding behind the weights. */
        uint64_t end, pad, hole = im->weights->sh_size;
        cut = im->weights->sh_offset;
        end = cut + w->size;
        pad = (TAIL_ALIGN - end % TAIL_ALIGN) % TAIL_ALIGN;
        if (hole != TAIL_ALIGN)
            return broken(im, "placeholder");
        if (!patch_headers(im, w->size, w->size + pad - hole))
            return false;
        memmove(im->data + cut + pad, im->data + cut + hole, im->size - cut - hole);
        memcpy(im->data + cut, zeros, pad);
        im->size -= hole - pad;
    }
    ok = put(s, im->data, cut) && (!w->size || write_weights(s, desc, w)) && put(s, im->data + cut, im->size - cut);
    if (!ok)
        return false;
    seal(im, cut, w, s->written, query);
    return patch_file(s, &desc->weights_hash, sizeof desc->weights_hash,
                      im->desc + offsetof(struct mcc_rt_desc, weights_hash)) &&
           patch_file(s, im->data + im->note, sizeof(struct mcc_note), im->note);
}

/* ---- the file ---- */

/* A link is written through: the name that it points to is replaced. */
static const char *final_path(struct context *ctx, struct arena *arena, const char *path)
{
    struct stat st;
    char *real;
    if (lstat(path, &st) < 0)
        return path;
    if (S_ISLNK(st.st_mode) && (real = realpath(path, NULL)) != NULL) {
        path = arena_strdup(arena, real);
        free(real);
        if (stat(path, &st) < 0)
            return path;
    }
    if (S_ISREG(st.st_mode) || S_ISLNK(st.st_mode))
        return path;
    error_env(ctx, "'%s' is not a regular file", path);
    return NULL;
}

static const char *folder_of(struct arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return ".";
    return slash == path ? "/" : arena_strndup(arena, path, (size_t)(slash - path));
}

/* Creates a file of a fresh name beside the target, with the permissions that umask leaves. */
static int open_temporary(struct context *ctx, struct arena *arena, const char *path, char **name)
{
    const char *folder = folder_of(arena, path);
    for (int k = 0; k < 100; k++) {
        *name = arena_printf(arena, "%s/.mcc-%ld-%d.tmp", folder, (long)getpid(), k);
        int fd = open(*name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST) {
            if (fd < 0)
                error_env(ctx, "cannot write '%s': %s", path, strerror(errno));
            return fd;
        }
    }
    error_env(ctx, "cannot write '%s': too many temporary files", path);
    return -1;
}

static bool commit(struct sink *s, const char *temporary, const char *folder)
{
    if (fsync(s->fd) < 0 && errno != EINVAL && errno != EROFS)
        return error_env(s->ctx, "cannot write '%s': %s", s->path, strerror(errno));
    if (rename(temporary, s->path) < 0)
        return error_env(s->ctx, "cannot rename to '%s': %s", s->path, strerror(errno));
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    return true;
}

/* The temporary file goes even when memory ends inside the weights' writer. */
static bool write_all(struct image *im, struct arena *arena, const struct weights_writer *w, const char *query,
                      const char *path)
{
    struct context *ctx = im->ctx;
    char *temporary;
    jmp_buf *outer = ctx->unwind, here;
    volatile bool ok = false, unwound = false;
    struct sink s = { .ctx = ctx, .path = path, .ok = true };
    const char *folder = folder_of(arena, path);
    s.fd = open_temporary(ctx, arena, path, &temporary);
    if (s.fd < 0)
        return false;
    ctx->temp_file = temporary;
    ctx->unwind = &here;
    if (setjmp(here) == 0)
        ok = write_file(im, &s, w, query) && commit(&s, temporary, folder);
    else
        unwound = true;
    ctx->unwind = outer;
    close(s.fd);
    if (!ok)
        unlink(temporary);
    ctx->temp_file = NULL;
    if (unwound && outer)
        longjmp(*outer, 1);
    return ok;
}

bool image_write(struct context *ctx, struct arena *arena, struct span linked, const struct weights_writer *w,
                 const char *query, const char *path)
{
    struct image im = { .ctx = ctx, .size = linked.size };
    int64_t limit = ctx->limits.max_output_size;
    if (limit > 0 && (w->size > (uint64_t)limit || linked.size > (uint64_t)limit - w->size))
        return error_limit(ctx, (src_id){ 0 }, "the output has %llu bytes, more than the limit of %lld",
                           (unsigned long long)(linked.size + w->size), (long long)limit);
    if (strlen(query) >= sizeof((struct mcc_note *)0)->query)
        return error_at(ctx, FAIL_USAGE, (src_id){ 0 }, NULL, "the prefix is too long");
    im.data = arena_copy(arena, linked.data, linked.size);
    path = final_path(ctx, arena, path);
    return path && check_sections(&im) && find_parts(&im, w->size > 0) && write_all(&im, arena, w, query, path);
}
