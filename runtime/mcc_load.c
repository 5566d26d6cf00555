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

#include "mcc_load_file.h"

#include <dlfcn.h>
#include <elf.h>
#include <limits.h>
#include <link.h>

#if defined(__x86_64__)
#define HOST_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define HOST_MACHINE EM_AARCH64
#elif defined(__riscv)
#define HOST_MACHINE EM_RISCV
#else
#define HOST_MACHINE EM_NONE
#endif

enum { SEGMENTS_MAX = 64, NOTE_BYTES_MAX = 1 << 16 };

struct library {
    mcc_lib lib; /* first: what the host has of it */
    void *query;
    int fd; /* stays open as long as the library bears its name; -1: it has a path */
};

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
            if (!note_read(file, at, segment->p_vaddr + (at - segment->p_offset)))
                return false;
            if (note_is_ours(&file->note))
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

static int check_file(struct file *file)
{
    Elf64_Ehdr head;
    int code = file_stat(file);
    if (code)
        return code;
    if (file->size < sizeof head)
        return fail(file, MCC_E_IO, "not a shared object", "");
    if (!read_at(file, &head, sizeof head, 0))
        return fail(file, MCC_E_IO, "cannot be read: ", strerror(errno));
    code = check_header(file, &head);
    if (!code)
        code = check_segments(file, &head);
    return code ? code : note_check(file);
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
    lib->query = dlsym(lib->lib.handle, file->note.query);
    if (!lib->query)
        return LOADED; /* take_api says so */
    struct loaded loaded = {file, (uint64_t)(uintptr_t)lib->query, false};
    dl_iterate_phdr(compare_note, &loaded);
    return loaded.same ? LOADED : CHANGED;
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
    return outcome == FAILED ? MCC_E_IO : take_api(file, &lib->lib, lib->query);
}

int mcc_load(const char *path, const mcc_host *host, mcc_lib **result, mcc_error *error)
{
    struct file file;
    int code = file_begin(&file, path, result, error);
    if (code)
        return code;
    struct library *lib = (struct library *)calloc(1, sizeof *lib);
    if (!lib)
        return fail(&file, MCC_E_NOMEM, "out of memory", "");
    lib->fd = -1;
    file.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    code = file.fd < 0 ? fail(&file, MCC_E_IO, "cannot be opened: ", strerror(errno)) : check_file(&file);
    if (!code)
        code = load_checked(&file, lib);
    if (file.fd >= 0 && lib->fd < 0)
        close(file.fd);
    return file_end(code, &lib->lib, host, result, error);
}

static void unload_library(mcc_lib *lib)
{
    const int fd = ((struct library *)lib)->fd;
    if (lib->handle)
        dlclose(lib->handle);
    if (fd >= 0)
        close(fd);
}
