/* mcc_load.h on macOS and iOS: a file is checked completely before the system's loader sees it, so that a truncated,
 * damaged or foreign one is an error with a text. C11 and libSystem only.
 *
 * In order: of a universal file the slice for this machine, the Mach-O header and its commands (all segments inside the
 * file), the note (mcc_note.h), its hash over everything but the weights. The note ends where the signature begins: a
 * library that was signed anew is still what mcc made, so the hash leaves out the signature and its lengths.
 */
#include "mcc_load_file.h"

#include <dlfcn.h>

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
    SLICE_BYTES = 20
};

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
        if (!note_read(file, word(section + 48), long_word(section + 32)))
            return false;
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
            file->end = word(c + 8);
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
    return note_is_ours(&file->note) ? MCC_OK
                                     : fail(file, MCC_E_IO, "a dynamic library, but not made by mcc, or damaged", "");
}

static int check_file(struct file *file)
{
    int code = file_stat(file);
    file->end = 0; /* the signature says it */
    if (!code)
        code = find_slice(file);
    if (!code)
        code = check_commands(file);
    return code ? code : note_check(file);
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
    if (found && (!dladdr(found, &info) ||
                  memcmp((const char *)info.dli_fbase + file->note_address, &file->note, sizeof file->note) != 0))
        return fail(file, MCC_E_IO, "an older file of this name is still loaded", "");
    return take_api(file, lib, found);
}

int mcc_load(const char *path, const mcc_host *host, mcc_lib **result, mcc_error *error)
{
    struct file file;
    int code = file_begin(&file, path, result, error);
    if (code)
        return code;
    /* Of a name without a folder the system's loader would look for another file first. */
    char *real = realpath(path, NULL);
    mcc_lib *lib = (mcc_lib *)calloc(1, sizeof *lib);
    file.path = real ? real : path;
    file.fd = lib ? open(file.path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    code = !lib          ? fail(&file, MCC_E_NOMEM, "out of memory", "")
           : file.fd < 0 ? fail(&file, MCC_E_IO, "cannot be opened: ", strerror(errno))
                         : check_file(&file);
    if (!code)
        code = load_checked(&file, lib);
    if (file.fd >= 0)
        close(file.fd);
    free(real);
    return file_end(code, lib, host, result, error);
}

static void unload_library(mcc_lib *lib)
{
    if (lib->handle)
        dlclose(lib->handle);
}
