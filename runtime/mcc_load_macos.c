/* mcc_load.h on macOS and iOS: a file is checked completely before the system's loader sees it, so that a truncated,
 * damaged or foreign one is an error with a text. C11 and libSystem only.
 *
 * In order: of a universal file the slice for this machine, the Mach-O header and its commands (all segments inside the
 * file), the note (mcc_note.h), its hash over everything but the weights. The note ends where the signature begins: a
 * library that was signed anew is still what mcc made, so the hash leaves out the signature and its lengths.
 */
#include "mcc_load.h"
#include "mcc_note.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__x86_64__)
#define HOST_CPU 0x01000007u
#else
#define HOST_CPU 0x0100000cu
#endif

/* Layouts: Apple's headers of Mach-O and universal files. */
#define MAGIC 0xfeedfacfu
#define FAT_MAGIC 0xcafebabeu
enum {
    HEAD_BYTES = 32,
    SEGMENT_BYTES = 72,
    SECTION_BYTES = 80,
    LIBRARY = 6,
    SEGMENT = 0x19,
    SIGNATURE = 0x1d,
    COMMANDS_MAX = 1 << 16,
    SLICES_MAX = 8,
    SLICE_BYTES = 20,
    READ_BYTES = 1 << 16
};

struct hole {
    uint64_t at, bytes;
};

struct file {
    const char *path;
    int fd;
    uint64_t base, size; /* of the slice */
    struct mcc_note note;
    uint64_t note_offset, note_address; /* in the slice; in memory, from the library's begin */
    uint64_t signed_at; /* where the signature begins */
    struct hole holes[4]; /* what the hash takes for zeros */
    mcc_error *error;
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
        ssize_t got = pread(file->fd, p, bytes, (off_t)(file->base + offset));
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

/* ---- the hash: XXH64 with seed 0, fed in pieces ---- */

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

/* Adds the slice's bytes [from, to). */
static bool hash_range(const struct file *file, struct hash *hash, unsigned char *buffer, uint64_t from, uint64_t to)
{
    while (from < to) {
        size_t n = to - from < READ_BYTES ? (size_t)(to - from) : (size_t)READ_BYTES;
        if (!read_at(file, buffer, n, from))
            return false;
        for (size_t h = 0; h < sizeof file->holes / sizeof *file->holes; h++)
            for (uint64_t i = 0; i < file->holes[h].bytes; i++)
                if (file->holes[h].at + i >= from && file->holes[h].at + i < from + n)
                    buffer[file->holes[h].at + i - from] = 0;
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
                hash_range(file, &hash, buffer, note->weights_offset + note->weights_size, note->file_size);
    free(buffer);
    if (!read)
        return fail(file, MCC_E_IO, "cannot be read: ", strerror(errno));
    return hash_end(&hash) == note->hash ? MCC_OK : fail(file, MCC_E_IO, "damaged, the hash differs", "");
}

/* ---- the checks ---- */

static uint32_t word(const unsigned char *at)
{
    uint32_t x;
    memcpy(&x, at, sizeof x);
    return x;
}

static uint64_t long_word(const unsigned char *at)
{
    uint64_t x;
    memcpy(&x, at, sizeof x);
    return x;
}

static uint32_t big_word(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static bool is_named(const unsigned char *name, const char *what)
{
    return strncmp((const char *)name, what, 16) == 0;
}

/* Of a universal file: the slice for this machine. */
static int find_slice(struct file *file)
{
    unsigned char head[8 + SLICES_MAX * SLICE_BYTES];
    if (!inside(file, 0, 8) || !read_at(file, head, 8, 0) || big_word(head) != FAT_MAGIC)
        return MCC_OK;
    uint32_t n = big_word(head + 4);
    if (n > SLICES_MAX || !inside(file, 8, n * SLICE_BYTES) || !read_at(file, head + 8, n * SLICE_BYTES, 8))
        return fail(file, MCC_E_IO, "truncated or damaged: headers", "");
    for (uint32_t i = 0; i < n; i++) {
        const unsigned char *row = head + 8 + i * SLICE_BYTES;
        if (big_word(row) != HOST_CPU)
            continue;
        if (!inside(file, big_word(row + 8), big_word(row + 12)))
            return fail(file, MCC_E_IO, "truncated or damaged: a slice leaves the file", "");
        file->base = big_word(row + 8);
        file->size = big_word(row + 12);
        return MCC_OK;
    }
    return fail(file, MCC_E_IO, "compiled for another kind of machine", "");
}

/* The note is the section __mccnote. False: something of the segment lies outside. */
static bool take_segment(struct file *file, const unsigned char *at, uint32_t bytes, uint64_t place)
{
    if (bytes < SEGMENT_BYTES || !inside(file, long_word(at + 40), long_word(at + 48)) ||
        word(at + 64) > (bytes - SEGMENT_BYTES) / SECTION_BYTES)
        return false;
    if (is_named(at + 8, "__LINKEDIT")) {
        file->holes[1].at = place + 32;
        file->holes[2].at = place + 48;
        file->holes[1].bytes = file->holes[2].bytes = 8;
    }
    for (uint32_t i = 0; i < word(at + 64); i++) {
        const unsigned char *section = at + SEGMENT_BYTES + i * SECTION_BYTES;
        if (!is_named(section, "__mccnote") || long_word(section + 40) != sizeof file->note)
            continue;
        file->note_offset = word(section + 48);
        file->note_address = long_word(section + 32);
        if (!inside(file, file->note_offset, sizeof file->note) ||
            !read_at(file, &file->note, sizeof file->note, file->note_offset))
            return false;
        file->holes[0].at = file->note_offset + offsetof(struct mcc_note, hash);
        file->holes[0].bytes = sizeof file->note.hash;
    }
    return true;
}

static bool take_commands(struct file *file, const unsigned char *commands, uint32_t bytes)
{
    for (uint32_t at = 0; at < bytes;) {
        const unsigned char *c = commands + at;
        if (bytes - at < 8 || word(c + 4) < 8 || word(c + 4) > bytes - at)
            return false;
        if (word(c) == SEGMENT && !take_segment(file, c, word(c + 4), HEAD_BYTES + (uint64_t)at))
            return false;
        if (word(c) == SIGNATURE) {
            if (word(c + 4) < 16 || !inside(file, word(c + 8), word(c + 12)))
                return false;
            file->signed_at = word(c + 8);
            file->holes[3].at = HEAD_BYTES + (uint64_t)at + 12;
            file->holes[3].bytes = 4;
        }
        at += word(c + 4);
    }
    return true;
}

static int check_commands(struct file *file)
{
    unsigned char head[HEAD_BYTES];
    if (!inside(file, 0, sizeof head) || !read_at(file, head, sizeof head, 0))
        return fail(file, MCC_E_IO, "not a dynamic library", "");
    if (word(head) != MAGIC)
        return fail(file, MCC_E_IO,
                    memcmp(head, "\177ELF", 4) == 0 ? "a file for Linux"
                    : memcmp(head, "MZ", 2) == 0    ? "a DLL or program for Windows"
                                                    : "not a dynamic library",
                    "");
    if (word(head + 4) != HOST_CPU)
        return fail(file, MCC_E_IO, "compiled for another kind of machine", "");
    if (word(head + 12) != LIBRARY)
        return fail(file, MCC_E_IO, "not a dynamic library", "");
    uint32_t bytes = word(head + 20);
    unsigned char *commands = (unsigned char *)(bytes <= COMMANDS_MAX ? malloc(bytes + (size_t)1) : NULL);
    bool whole = commands && inside(file, HEAD_BYTES, bytes) && read_at(file, commands, bytes, HEAD_BYTES) &&
                 take_commands(file, commands, bytes);
    free(commands);
    if (!whole)
        return fail(file, MCC_E_IO, "truncated or damaged: a segment leaves the file", "");
    bool found = file->note.type == MCC_NOTE_TYPE && memcmp(file->note.owner, "mcc", 4) == 0;
    return found ? MCC_OK : fail(file, MCC_E_IO, "a dynamic library, but not made by mcc, or damaged", "");
}

static int check_file(struct file *file)
{
    const struct mcc_note *note = &file->note;
    struct stat st;
    if (fstat(file->fd, &st) != 0)
        return fail(file, MCC_E_IO, "", strerror(errno));
    if (!S_ISREG(st.st_mode))
        return fail(file, MCC_E_IO, "not a regular file", "");
    file->size = (uint64_t)st.st_size;
    int code = find_slice(file);
    if (!code)
        code = check_commands(file);
    if (code)
        return code;
    if (note->abi > MCC_ABI)
        return fail(file, MCC_E_IO, "made by a newer mcc than this program knows", "");
    if (note->abi == 0 || note->sealed != 1 || !memchr(note->query, 0, sizeof note->query))
        return fail(file, MCC_E_IO, "damaged, or not completely written", "");
    if (note->file_size != file->signed_at || !inside(file, 0, note->file_size) ||
        note->weights_offset > note->file_size || note->weights_size > note->file_size - note->weights_offset)
        return fail(file, MCC_E_IO, "truncated or damaged: the size differs", "");
    return check_hash(file);
}

/* ---- loading ---- */

/* A file that took the name of one that is still loaded gives the library of that one. */
static int load_checked(const struct file *file, mcc_lib *lib)
{
    Dl_info info;
    lib->handle = dlopen(file->path, RTLD_NOW | RTLD_LOCAL);
    if (!lib->handle) {
        const char *why = dlerror();
        return fail(file, MCC_E_IO, "cannot be loaded: ", why ? why : "");
    }
    void *found = dlsym(lib->handle, file->note.query);
    if (!found || !dladdr(found, &info))
        return fail(file, MCC_E_IO, "lacks the function ", file->note.query);
    if (memcmp((const char *)info.dli_fbase + file->note_address, &file->note, sizeof file->note) != 0)
        return fail(file, MCC_E_IO, "an older file of this name is still loaded", "");
    const mcc_api *(*query)(uint32_t) = NULL;
    memcpy(&query, &found, sizeof query);
    lib->api = query(MCC_ABI);
    return lib->api ? MCC_OK : fail(file, MCC_E_IO, "serves another version of the interface", "");
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
    /* Of a name without a folder the system's loader would look for another file first. */
    char *real = realpath(path, NULL);
    mcc_lib *lib = (mcc_lib *)calloc(1, sizeof *lib);
    file.path = real ? real : path;
    file.fd = lib ? open(file.path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    int code = !lib          ? fail(&file, MCC_E_NOMEM, "out of memory", "")
               : file.fd < 0 ? fail(&file, MCC_E_IO, "cannot be opened: ", strerror(errno))
                             : check_file(&file);
    if (!code)
        code = load_checked(&file, lib);
    if (file.fd >= 0)
        close(file.fd);
    if (!code)
        code = lib->api->open(host, &lib->model, error);
    if (!code)
        *result = lib;
    else
        mcc_unload(lib);
    free(real);
    return code;
}

void mcc_unload(mcc_lib *lib)
{
    if (!lib)
        return;
    if (lib->model)
        lib->api->close(lib->model);
    if (lib->handle)
        dlclose(lib->handle);
    free(lib);
}
