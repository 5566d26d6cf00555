/* The host-side loader: a file is checked completely before the dynamic linker sees it, so that a truncated, damaged or
 * foreign one is an error with a text and never a signal. C11 (or C++) and libc only.
 *
 * In order: the ELF header (class, byte order, machine, all tables inside the file), the note that every artifact
 * carries (mcc_note.h), its size, its hash over everything but the weights. Then dlopen gets the file's real path, so
 * that debuggers and profilers find the file too; before and after it the path must be the file that was checked, and
 * what was loaded must have its note. A file without such a path (memfd, deleted, replaced meanwhile) is loaded from
 * the descriptor that was checked. Weights are not hashed here: they only hold numbers (MCC_HOST_VERIFY_WEIGHTS does).
 * What cannot be survived: a file that is truncated in place after it was checked, or one that is not whole and takes
 * the path's place between the check and dlopen. Compilers write beside and rename, as mcc does: that is always fine.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "mcc_load.h"
#include "mcc_note.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__x86_64__)
#define HOST_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define HOST_MACHINE EM_AARCH64
#elif defined(__riscv)
#define HOST_MACHINE EM_RISCV
#else
#define HOST_MACHINE EM_NONE
#endif

enum { SEGMENTS_MAX = 64, NOTE_BYTES_MAX = 1 << 16, READ_BYTES = 1 << 16 };

struct file {
    const char *path;
    int fd;
    uint64_t size;
    struct stat stat;
    struct mcc_note note;
    uint64_t note_offset, note_address; /* in the file; in memory, from the load address */
    mcc_error *error;
};

struct library {
    mcc_lib lib; /* first: what the host has of it */
    const mcc_api *(*query)(uint32_t);
    int fd; /* stays open as long as the library bears its name; -1: it has a path */
};

static int fail(const struct file *file, int code, const char *what, const char *detail)
{
    mcc_error *error = file->error;
    if (error) {
        error->code = code;
        error->node = -1;
        size_t n = strlen(file->path), most = 90;
        bool cut = n > most; /* the end says more than the beginning */
        snprintf(error->text, sizeof error->text, "%s%s: %s%.100s", cut ? "..." : "", file->path + (cut ? n - most : 0),
                 what, detail);
    }
    return code;
}

static bool read_at(const struct file *file, void *to, size_t bytes, uint64_t offset)
{
    char *p = (char *)to;
    while (bytes > 0) {
        ssize_t got = pread(file->fd, p, bytes, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        p += got;
        bytes -= (size_t)got;
        offset += (uint64_t)got;
    }
    return true;
}

static bool inside(const struct file *file, uint64_t offset, uint64_t bytes)
{
    return offset <= file->size && bytes <= file->size - offset;
}

/* ---- the hash: XXH64 with seed 0, fed in pieces ------------------ */

#define P1 0x9E3779B185EBCA87u
#define P2 0xC2B2AE3D27D4EB4Fu
#define P3 0x165667B19E3779F9u
#define P4 0x85EBCA77C2B2AE63u
#define P5 0x27D4EB2F165667C5u

struct hash {
    uint64_t acc[4], total;
    unsigned char rest[32];
    size_t n_rest;
};

static void hash_start(struct hash *h)
{
    memset(h, 0, sizeof *h);
    h->acc[0] = P1 + P2;
    h->acc[1] = P2;
    h->acc[3] = 0 - P1;
}

static uint64_t rotate(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}
static uint64_t word_at(const unsigned char *p)
{
    uint64_t x;
    memcpy(&x, p, 8);
    return x;
}
static uint64_t round_of(uint64_t acc, uint64_t lane)
{
    return rotate(acc + lane * P2, 31) * P1;
}

static void hash_add(struct hash *h, const unsigned char *p, size_t n)
{
    h->total += n;
    while (n > 0) {
        size_t part = sizeof h->rest - h->n_rest < n ? sizeof h->rest - h->n_rest : n;
        memcpy(h->rest + h->n_rest, p, part);
        h->n_rest += part;
        p += part;
        n -= part;
        if (h->n_rest < sizeof h->rest)
            return;
        for (int i = 0; i < 4; i++)
            h->acc[i] = round_of(h->acc[i], word_at(h->rest + 8 * i));
        h->n_rest = 0;
    }
}

static uint64_t hash_end(const struct hash *h)
{
    uint64_t x = P5;
    if (h->total >= 32) {
        x = rotate(h->acc[0], 1) + rotate(h->acc[1], 7) + rotate(h->acc[2], 12) + rotate(h->acc[3], 18);
        for (int i = 0; i < 4; i++)
            x = (x ^ round_of(0, h->acc[i])) * P1 + P4;
    }
    x += h->total;
    const unsigned char *p = h->rest, *end = p + h->n_rest;
    for (; end - p >= 8; p += 8)
        x = rotate(x ^ round_of(0, word_at(p)), 27) * P1 + P4;
    if (end - p >= 4) {
        uint32_t word;
        memcpy(&word, p, 4);
        x = rotate(x ^ word * P1, 23) * P2 + P3;
        p += 4;
    }
    for (; p < end; p++)
        x = rotate(x ^ *p * P5, 11) * P1;
    x = (x ^ x >> 33) * P2;
    x = (x ^ x >> 29) * P3;
    return x ^ x >> 32;
}

/* Adds file bytes [from, to), the note's hash field as zeros. */
static bool hash_range(const struct file *file, struct hash *hash, unsigned char *buffer, uint64_t from, uint64_t to)
{
    uint64_t field = file->note_offset + offsetof(struct mcc_note, hash);
    while (from < to) {
        size_t n = to - from < READ_BYTES ? (size_t)(to - from) : (size_t)READ_BYTES;
        if (!read_at(file, buffer, n, from))
            return false;
        for (uint64_t i = 0; i < sizeof file->note.hash; i++)
            if (field + i >= from && field + i < from + n)
                buffer[field + i - from] = 0;
        hash_add(hash, buffer, n);
        from += n;
    }
    return true;
}

static int check_hash(const struct file *file)
{
    const struct mcc_note *note = &file->note;
    unsigned char *buffer = (unsigned char *)malloc(READ_BYTES);
    if (!buffer)
        return fail(file, MCC_E_NOMEM, "out of memory", "");
    struct hash hash;
    hash_start(&hash);
    bool read = hash_range(file, &hash, buffer, 0, note->weights_offset) &&
                hash_range(file, &hash, buffer, note->weights_offset + note->weights_size, file->size);
    free(buffer);
    if (!read)
        return fail(file, MCC_E_IO, "cannot be read: ", strerror(errno));
    return hash_end(&hash) == note->hash ? MCC_OK : fail(file, MCC_E_IO, "damaged, the hash differs", "");
}

/* ---- the checks -------------------------------------------------------------------------------------------------- */

static int check_header(const struct file *file, const Elf64_Ehdr *head)
{
    if (memcmp(head->e_ident, ELFMAG, SELFMAG) != 0)
        return fail(file, MCC_E_IO,
                    memcmp(head, "MZ", 2) == 0 ? "a DLL or program for Windows"
                    : memcmp(head, "\xcf\xfa\xed\xfe", 4) == 0 || memcmp(head, "\xca\xfe\xba\xbe", 4) == 0
                        ? "a library or program for macOS"
                        : "not a shared object",
                    "");
    if (head->e_ident[EI_CLASS] != ELFCLASS64 || head->e_ident[EI_DATA] != ELFDATA2LSB ||
        head->e_machine != HOST_MACHINE)
        return fail(file, MCC_E_IO, "compiled for another kind of machine", "");
    if (head->e_type != ET_DYN || head->e_ident[EI_VERSION] != EV_CURRENT || head->e_version != EV_CURRENT)
        return fail(file, MCC_E_IO, "not a shared object", "");
    if (head->e_phentsize != sizeof(Elf64_Phdr) || head->e_phnum == 0 || head->e_phnum > SEGMENTS_MAX ||
        !inside(file, head->e_phoff, (uint64_t)head->e_phnum * sizeof(Elf64_Phdr)))
        return fail(file, MCC_E_IO, "truncated or damaged: program headers", "");
    if (head->e_shnum > 0 && (head->e_shentsize != sizeof(Elf64_Shdr) ||
                              !inside(file, head->e_shoff, (uint64_t)head->e_shnum * sizeof(Elf64_Shdr))))
        return fail(file, MCC_E_IO, "truncated or damaged: section table", "");
    return MCC_OK;
}

/* Looks for the note in one PT_NOTE segment; notes and their parts are padded to 4, or to 8 where the segment is. */
static bool find_note(struct file *file, const Elf64_Phdr *segment)
{
    uint64_t align = segment->p_align == 8 ? 8 : 4, at = segment->p_offset, end = at + segment->p_filesz;
    if (segment->p_filesz > NOTE_BYTES_MAX)
        return false;
    while (end - at >= 12) {
        uint32_t head[3];
        if (!read_at(file, head, sizeof head, at))
            return false;
        uint64_t body = (12 + (uint64_t)head[0] + align - 1) & -align;
        uint64_t bytes = body + (((uint64_t)head[1] + align - 1) & -align);
        if (bytes > end - at)
            return false;
        if (head[0] == 4 && head[1] == sizeof file->note - 16 && head[2] == MCC_NOTE_TYPE) {
            if (!read_at(file, &file->note, sizeof file->note, at))
                return false;
            file->note_offset = at;
            file->note_address = segment->p_vaddr + (at - segment->p_offset);
            if (memcmp(file->note.owner, "mcc", 4) == 0)
                return true;
        }
        at += bytes;
    }
    return false;
}

static int check_segments(struct file *file, const Elf64_Ehdr *head)
{
    Elf64_Phdr segments[SEGMENTS_MAX];
    bool found = false;
    if (!read_at(file, segments, head->e_phnum * sizeof *segments, head->e_phoff))
        return fail(file, MCC_E_IO, "truncated or damaged: program headers", "");
    for (int i = 0; i < head->e_phnum; i++)
        if (!inside(file, segments[i].p_offset, segments[i].p_filesz))
            return fail(file, MCC_E_IO, "truncated or damaged: a segment leaves the file", "");
    for (int i = 0; i < head->e_phnum && !found; i++)
        found = segments[i].p_type == PT_NOTE && find_note(file, &segments[i]);
    return found ? MCC_OK : fail(file, MCC_E_IO, "a shared object, but not made by mcc, or damaged", "");
}

static int check_note(const struct file *file)
{
    const struct mcc_note *note = &file->note;
    if (note->abi > MCC_ABI)
        return fail(file, MCC_E_IO, "made by a newer mcc than this program knows", "");
    if (note->abi == 0 || note->sealed != 1 || !memchr(note->query, 0, sizeof note->query))
        return fail(file, MCC_E_IO, "damaged, or not completely written", "");
    if (note->file_size != file->size || !inside(file, note->weights_offset, note->weights_size))
        return fail(file, MCC_E_IO, "truncated or damaged: the size differs", "");
    return MCC_OK;
}

static int check_file(struct file *file)
{
    Elf64_Ehdr head;
    if (fstat(file->fd, &file->stat) != 0)
        return fail(file, MCC_E_IO, "", strerror(errno));
    if (!S_ISREG(file->stat.st_mode))
        return fail(file, MCC_E_IO, "not a regular file", "");
    file->size = (uint64_t)file->stat.st_size;
    if (file->size < sizeof head)
        return fail(file, MCC_E_IO, "not a shared object", "");
    if (!read_at(file, &head, sizeof head, 0))
        return fail(file, MCC_E_IO, "cannot be read: ", strerror(errno));
    int code = check_header(file, &head);
    if (!code)
        code = check_segments(file, &head);
    if (!code)
        code = check_note(file);
    return code ? code : check_hash(file);
}

/* ---- loading ----------------------------------------------------------------------------------------------------- */

/* The dynamic linker compares names with those of loaded libraries first, and a path or a descriptor's number comes
 * back with another file behind it. So the file's identity goes into the name, one bit as "./" or ".//": folder, bits,
 * name. */
static bool own_name(const struct file *file, const char *folder, size_t length, const char *name, char *result)
{
    uint64_t id[6] = {(uint64_t)file->stat.st_dev,         (uint64_t)file->stat.st_ino,          file->size,
                      (uint64_t)file->stat.st_ctim.tv_sec, (uint64_t)file->stat.st_ctim.tv_nsec, file->note.hash};
    struct hash hash;
    hash_start(&hash);
    hash_add(&hash, (const unsigned char *)id, sizeof id);
    uint64_t bits = hash_end(&hash);
    size_t n_name = strlen(name) + 1;
    if (length + 3 * 64 + n_name > PATH_MAX)
        return false;
    memcpy(result, folder, length);
    for (int i = 0; i < 64; i++, bits >>= 1) {
        size_t n = bits & 1 ? 3 : 2;
        memcpy(result + length, ".//", n);
        length += n;
    }
    memcpy(result + length, name, n_name);
    return true;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
           a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* Is the name still the file that was checked, and that file still as it was? */
static bool is_unchanged(const struct file *file, const char *name)
{
    struct stat now, open;
    return stat(name, &now) == 0 && fstat(file->fd, &open) == 0 && same_file(&now, &open) &&
           same_file(&open, &file->stat);
}

/* The file's own path without links: what debuggers and profilers open as well. False: it has none that is still the
 * checked file (in memory only, deleted, replaced since), one that is too long, or one where dlopen would replace a
 * "$". */
static bool path_name(const struct file *file, char *name)
{
    char *real = realpath(file->path, NULL), *last = real ? strrchr(real, '/') : NULL;
    bool good = last && !strchr(real, '$') && own_name(file, real, (size_t)(last + 1 - real), last + 1, name) &&
                is_unchanged(file, name);
    free(real);
    return good;
}

/* The descriptor by this process's number and not as /proc/self: a debugger would open a descriptor of its own. */
static bool descriptor_name(const struct file *file, char *name)
{
    char folder[64], number[16];
    int n = snprintf(folder, sizeof folder, "/proc/%ld/fd/", (long)getpid());
    snprintf(number, sizeof number, "%d", file->fd);
    return own_name(file, folder, (size_t)n, number, name);
}

struct loaded {
    const struct file *file;
    uint64_t address;
    bool same;
};

static bool holds(const struct dl_phdr_info *info, uint64_t address, uint64_t bytes)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const Elf64_Phdr *p = &info->dlpi_phdr[i];
        uint64_t at = address - info->dlpi_addr - p->p_vaddr;
        if (p->p_type == PT_LOAD && at < p->p_filesz && bytes <= p->p_filesz - at)
            return true;
    }
    return false;
}

static int compare_note(struct dl_phdr_info *info, size_t size, void *user)
{
    struct loaded *loaded = (struct loaded *)user;
    (void)size;
    if (!holds(info, loaded->address, 1))
        return 0;
    const struct mcc_note *checked = &loaded->file->note;
    uint64_t note = info->dlpi_addr + loaded->file->note_address;
    loaded->same = holds(info, note, sizeof *checked) &&
                   memcmp((const void *)(uintptr_t)note, checked, sizeof *checked) == 0;
    return 1;
}

/* Says why dlopen failed, without the name it was given: that is long, and the reason stands after it. */
static int fail_loading(const struct file *file, const char *name)
{
    char text[256];
    const char *why = dlerror(), *at = why ? strstr(why, name) : NULL;
    if (!at)
        return fail(file, MCC_E_IO, "cannot be loaded: ", why ? why : "");
    const char *rest = at + strlen(name);
    if (at == why && rest[0] == ':') /* "NAME: reason" of glibc; musl has the name in the middle */
        return fail(file, MCC_E_IO, "cannot be loaded", rest);
    snprintf(text, sizeof text, "%.*sit%.100s", at - why < 100 ? (int)(at - why) : 100, why, rest);
    return fail(file, MCC_E_IO, "cannot be loaded: ", text);
}

enum outcome { LOADED, FAILED, CHANGED };

/* What was loaded must be what was checked. Its note, with the hash of everything else, is compared in memory: that
 * sees also a file that was replaced and put back in between. */
static enum outcome load_as(const struct file *file, const char *name, bool by_path, struct library *lib)
{
    lib->lib.handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (by_path && !is_unchanged(file, name))
        return CHANGED;
    if (!lib->lib.handle)
        return fail_loading(file, name), FAILED;
    void *query = dlsym(lib->lib.handle, file->note.query);
    if (!query)
        return fail(file, MCC_E_IO, "lacks the function ", file->note.query), FAILED;
    struct loaded loaded = {file, (uint64_t)(uintptr_t)query, false};
    dl_iterate_phdr(compare_note, &loaded);
    if (!loaded.same)
        return CHANGED;
    *(void **)&lib->query = query;
    return LOADED;
}

/* By its path where it has one, else by the descriptor, which then stays open. */
static int load_checked(struct file *file, struct library *lib)
{
    char name[PATH_MAX];
    enum outcome outcome = path_name(file, name) ? load_as(file, name, true, lib) : CHANGED;
    if (outcome == CHANGED) {
        if (lib->lib.handle)
            dlclose(lib->lib.handle);
        descriptor_name(file, name);
        lib->fd = file->fd;
        outcome = load_as(file, name, false, lib);
    }
    if (outcome == CHANGED)
        return fail(file, MCC_E_IO, "was replaced while it was loaded", "");
    if (outcome == FAILED)
        return MCC_E_IO;
    lib->lib.api = lib->query(MCC_ABI);
    return lib->lib.api ? MCC_OK : fail(file, MCC_E_IO, "serves another version of the interface", "");
}

int mcc_load(const char *path, const mcc_host *host, mcc_lib **result, mcc_error *error)
{
    struct file file;
    memset(&file, 0, sizeof file);
    file.path = path ? path : "(no path)";
    file.error = error;
    if (!result)
        return fail(&file, MCC_E_ARG, "the result is NULL", "");
    *result = NULL;
    if (!path)
        return fail(&file, MCC_E_ARG, "the path is NULL", "");
    struct library *lib = (struct library *)calloc(1, sizeof *lib);
    if (!lib)
        return fail(&file, MCC_E_NOMEM, "out of memory", "");
    lib->fd = -1;
    file.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int code = file.fd < 0 ? fail(&file, MCC_E_IO, "cannot be opened: ", strerror(errno)) : check_file(&file);
    if (!code)
        code = load_checked(&file, lib);
    if (file.fd >= 0 && lib->fd < 0)
        close(file.fd);
    if (!code)
        code = lib->lib.api->open(host, &lib->lib.model, error);
    if (!code)
        *result = &lib->lib;
    else
        mcc_unload(&lib->lib);
    return code;
}

void mcc_unload(mcc_lib *lib)
{
    if (!lib)
        return;
    struct library *own = (struct library *)lib;
    if (lib->model)
        lib->api->close(lib->model);
    if (lib->handle)
        dlclose(lib->handle);
    if (own->fd >= 0)
        close(own->fd);
    free(own);
}
