/* What the loaders of all systems share (mcc_load.c, mcc_load_macos.c, mcc_load_windows.c): the file that is checked,
 * the note's checks and the hash. C11 or C++.
 */
#ifndef MCC_LOAD_FILE_H
#define MCC_LOAD_FILE_H

#include "mcc_load.h"
#include "mcc_note.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifndef _WIN32
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

enum { READ_BYTES = 1 << 16 };

struct hole {
    uint64_t at, bytes;
};

struct file {
    const char *path;
#ifdef _WIN32
    const unsigned char *data; /* the whole file, mapped */
#else
    int fd;
    struct stat stat;
#endif
    uint64_t base, size; /* of a universal file the slice for this machine, else the whole file */
    uint64_t end;        /* what follows is not a part of what mcc made: a signature */
    struct mcc_note note;
    uint64_t note_offset, note_address; /* in the file or slice; in memory, from the library's begin */
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

/* The arguments of mcc_load. */
static int file_begin(struct file *file, const char *path, mcc_lib **result, mcc_error *error)
{
    memset(file, 0, sizeof *file);
    file->path = path ? path : "(no path)";
    file->error = error;
    if (!result)
        return fail(file, MCC_E_ARG, "the result is NULL", "");
    *result = NULL;
    return path ? MCC_OK : fail(file, MCC_E_ARG, "the path is NULL", "");
}

static bool inside(const struct file *file, uint64_t offset, uint64_t bytes)
{
    return offset <= file->size && bytes <= file->size - offset;
}

static bool read_at(const struct file *file, void *to, size_t bytes, uint64_t offset)
{
#ifdef _WIN32
    memcpy(to, file->data + offset, bytes);
#else
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
#endif
    return true;
}

#ifndef _WIN32
static int file_stat(struct file *file)
{
    if (fstat(file->fd, &file->stat) != 0)
        return fail(file, MCC_E_IO, "", strerror(errno));
    if (!S_ISREG(file->stat.st_mode))
        return fail(file, MCC_E_IO, "not a regular file", "");
    file->size = file->end = (uint64_t)file->stat.st_size;
    return MCC_OK;
}
#endif

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

/* Adds bytes [from, to). */
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
                hash_range(file, &hash, buffer, note->weights_offset + note->weights_size, file->end);
    free(buffer);
    if (!read)
        return fail(file, MCC_E_IO, "cannot be read: ", strerror(errno));
    return hash_end(&hash) == note->hash ? MCC_OK : fail(file, MCC_E_IO, "damaged, the hash differs", "");
}

/* ---- the note ---- */

/* Reads what may be the note. False: it cannot be read. */
static bool note_read(struct file *file, uint64_t offset, uint64_t address)
{
    file->note_offset = offset;
    file->note_address = address;
    file->holes[0].at = offset + offsetof(struct mcc_note, hash);
    file->holes[0].bytes = sizeof file->note.hash;
    return inside(file, offset, sizeof file->note) && read_at(file, &file->note, sizeof file->note, offset);
}

static bool note_is_ours(const struct mcc_note *note)
{
    return note->type == MCC_NOTE_TYPE && memcmp(note->owner, "mcc", 4) == 0;
}

/* The note and what it says of the file. */
static int note_check(const struct file *file)
{
    const struct mcc_note *note = &file->note;
    if (note->abi > MCC_ABI)
        return fail(file, MCC_E_IO, "made by a newer mcc than this program knows", "");
    if (note->abi == 0 || note->sealed != 1 || !memchr(note->query, 0, sizeof note->query))
        return fail(file, MCC_E_IO, "damaged, or not completely written", "");
    if (note->file_size != file->end || !inside(file, 0, file->end) || note->weights_offset > file->end ||
        note->weights_size > file->end - note->weights_offset)
        return fail(file, MCC_E_IO, "truncated or damaged: the size differs", "");
    return check_hash(file);
}

/* ---- the end of loading ---- */

/* found: the library's function of that name, as data; NULL: it has none. */
static int take_api(const struct file *file, mcc_lib *lib, const void *found)
{
    const mcc_api *(*query)(uint32_t) = NULL;
    if (!found)
        return fail(file, MCC_E_IO, "lacks the function ", file->note.query);
    memcpy(&query, &found, sizeof query);
    lib->api = query(MCC_ABI);
    return lib->api ? MCC_OK : fail(file, MCC_E_IO, "serves another version of the interface", "");
}

/* Opens the model of a library that is loaded if code is MCC_OK, else unloads what there is. */
static int file_end(int code, mcc_lib *lib, const mcc_host *host, mcc_lib **result, mcc_error *error)
{
    if (!code)
        code = lib->api->open(host, &lib->model, error);
    if (!code)
        *result = lib;
    else
        mcc_unload(lib);
    return code;
}

static void unload_library(mcc_lib *lib); /* the system's: lib->handle and what else there is, but not *lib */

void mcc_unload(mcc_lib *lib)
{
    if (!lib)
        return;
    if (lib->model)
        lib->api->close(lib->model);
    unload_library(lib);
    free(lib);
}

#endif
