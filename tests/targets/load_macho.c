/* Maps Mach-O libraries on Linux of their architecture and stands in for the functions of libSystem that artifacts take
 * where Linux' have another form: segments by their command, chained fixups of forms 2 and 6, imports of form 1,
 * symbols by the trie of exports. It believes the file, which mcc_load_macos.c has checked, as far as a check can go.
 * What it cannot show: signatures, the loader's own rules, the scheduler and the files of a real macOS.
 *
 * MACHO_OLD=1 in the environment: no function of macOS 14.4 is there.
 */
#include "tests/targets/load_macho.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <linux/futex.h>

#include "codegen/container/macho.h"

enum { PATH_BYTES = 4096, IMAGES_MAX = 64, PAGE = 4096 };
#if defined(__x86_64__)
#define HOST_CPU 0x01000007u
#else
#define HOST_CPU 0x0100000cu
#endif

struct image {
    char *memory;
    size_t bytes;
    char path[PATH_BYTES];
    const unsigned char *exports;
    uint32_t exports_bytes;
};
static struct image images[IMAGES_MAX];
static char problem[256];

/* ---- what artifacts take of macOS ---- */

static int sync_wait(void *address, uint64_t seen, size_t size, uint32_t flags)
{
    (void)flags;
    if (size != 4)
        return errno = EINVAL, -1;
    return (int)syscall(SYS_futex, address, FUTEX_WAIT_PRIVATE, (uint32_t)seen, NULL, NULL, 0);
}

static int sync_wake_any(void *address, size_t size, uint32_t flags)
{
    (void)size, (void)flags;
    return (int)syscall(SYS_futex, address, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static int sync_wake_all(void *address, size_t size, uint32_t flags)
{
    (void)size, (void)flags;
    return (int)syscall(SYS_futex, address, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

/* The system's have 64 and 48 bytes, whose first word says that they are initialized: one pair stands for all. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;

static int lock(const long *m)
{
    return *m == 0x32AAABA7 ? pthread_mutex_lock(&mutex) : EINVAL;
}
static int unlock(const long *m)
{
    return *m == 0x32AAABA7 ? pthread_mutex_unlock(&mutex) : EINVAL;
}
static int wait_changed(const long *c, const long *m)
{
    return *c == 0x3CB0B1BB && *m == 0x32AAABA7 ? pthread_cond_wait(&condition, &mutex) : EINVAL;
}
static int broadcast(const long *c)
{
    return *c == 0x3CB0B1BB ? pthread_cond_broadcast(&condition) : EINVAL;
}

static int *own_errno(void)
{
    return &errno;
}

static uint64_t clock_ns(int clock)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return clock == 8 ? (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec : 0;
}

static long number_of(int name)
{
    return name == 58 ? sysconf(_SC_NPROCESSORS_ONLN) : -1;
}

static int mask_signals(int how, const uint32_t *set, uint32_t *old)
{
    sigset_t now, before;
    if (how != 3)
        return EINVAL;
    sigemptyset(&now);
    for (int i = 0; i < 32; i++)
        if (*set >> i & 1)
            sigaddset(&now, i + 1);
    int code = pthread_sigmask(SIG_SETMASK, &now, &before);
    if (old)
        *old = 0;
    for (int i = 0; i < 32 && old; i++)
        *old |= (uint32_t)(sigismember(&before, i + 1) == 1) << i;
    return code;
}

static int open_file(const char *path, int flags)
{
    return flags == 0x1000004 ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : (errno = EINVAL, -1);
}

static int control(const char *name, void *value, size_t *bytes, void *fresh, size_t fresh_bytes)
{
    static const struct {
        const char *name;
        int second, bit;
    } rows[] = {{"AES", 0, 3},     {"PMULL", 0, 4}, {"SHA1", 0, 5},   {"SHA256", 0, 6},   {"CRC32", 0, 7},
                {"LSE", 0, 8},     {"FP16", 0, 10}, {"RDM", 0, 12},   {"JSCVT", 0, 13},   {"FCMA", 0, 14},
                {"LRCPC", 0, 15},  {"DPB", 0, 16},  {"SHA3", 0, 17},  {"DotProd", 0, 20}, {"SHA512", 0, 21},
                {"FHM", 0, 23},    {"DIT", 0, 24},  {"LSE2", 0, 25},  {"LRCPC2", 0, 26},  {"FlagM", 0, 27},
                {"SSBS", 0, 28},   {"SB", 0, 29},   {"PAuth", 0, 30}, {"DPB2", 1, 0},     {"FlagM2", 1, 7},
                {"FRINTTS", 1, 8}, {"I8MM", 1, 13}, {"BF16", 1, 14},  {"BTI", 1, 17}};
    static const char prefix[] = "hw.optional.arm.FEAT_";
    for (size_t i = 0; i < sizeof rows / sizeof *rows && *bytes == 4 && !fresh && !fresh_bytes; i++)
        if (strncmp(name, prefix, sizeof prefix - 1) == 0 && strcmp(name + sizeof prefix - 1, rows[i].name) == 0) {
            int32_t has = getauxval(rows[i].second ? AT_HWCAP2 : AT_HWCAP) >> rows[i].bit & 1;
            memcpy(value, &has, sizeof has);
            return 0;
        }
    return errno = ENOENT, -1;
}

static void zero(void *p, size_t n)
{
    memset(p, 0, n);
}

#define ROW(name, f) {"_" name, (void *)(uintptr_t)f}
static const struct {
    const char *name;
    void *function;
} functions[] = {ROW("os_sync_wait_on_address", sync_wait),
                 ROW("os_sync_wake_by_address_any", sync_wake_any),
                 ROW("os_sync_wake_by_address_all", sync_wake_all),
                 ROW("pthread_mutex_lock", lock),
                 ROW("pthread_mutex_unlock", unlock),
                 ROW("pthread_cond_wait", wait_changed),
                 ROW("pthread_cond_broadcast", broadcast),
                 ROW("__error", own_errno),
                 ROW("clock_gettime_nsec_np", clock_ns),
                 ROW("sysconf", number_of),
                 ROW("pthread_sigmask", mask_signals),
                 ROW("open", open_file),
                 ROW("sysctlbyname", control),
                 ROW("dladdr", macho_address),
                 ROW("bzero", zero),
                 ROW("__bzero", zero),
                 ROW("memcpy", memcpy),
                 ROW("memmove", memmove),
                 ROW("memset", memset),
                 ROW("memcmp", memcmp),
                 ROW("posix_memalign", posix_memalign),
                 ROW("free", free),
                 ROW("close", close),
                 ROW("lseek", lseek),
                 ROW("mmap", mmap),
                 ROW("munmap", munmap),
                 ROW("getpid", getpid),
                 ROW("pthread_create", pthread_create),
                 ROW("pthread_join", pthread_join)};

/* False: a function that nobody knows, which is no weak reference. */
static int find_function(const char *name, int weak, void **function)
{
    const char *old = getenv("MACHO_OLD");
    *function = NULL;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (strcmp(functions[i].name, name) == 0)
            *function = functions[i].function;
    if (old && *old == '1' && strncmp(name, "_os_sync", 8) == 0)
        *function = NULL;
    return *function || weak;
}

/* ---- loading ---- */

static void *fail(const char *what, const char *detail)
{
    snprintf(problem, sizeof problem, "%s%.100s", what, detail);
    return NULL;
}

static uint32_t big_word(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* The slice of a universal file; 0: the file is one itself; -1: there is none. */
static off_t slice_of(int fd)
{
    unsigned char head[8 + 8 * 20] = {0};
    if (pread(fd, head, sizeof head, 0) < 8 || big_word(head) != MACHO_FAT)
        return 0;
    for (uint32_t i = 0; i < big_word(head + 4) && i < 8; i++)
        if (big_word(head + 8 + 20 * i) == HOST_CPU)
            return (off_t)big_word(head + 8 + 20 * i + 8);
    return -1;
}

static const char *command_at(const char *commands, uint32_t bytes, uint32_t kind)
{
    struct macho_command c;
    for (uint32_t at = 0; at + sizeof c <= bytes; at += c.bytes) {
        memcpy(&c, commands + at, sizeof c);
        if (c.kind == kind)
            return commands + at;
        if (c.bytes < sizeof c)
            break;
    }
    return NULL;
}

/* Each segment at its address, from 0 on, private and writable until fixups are done. */
static int map_segments(struct image *image, int fd, off_t base, const char *commands, uint32_t bytes)
{
    struct macho_segment s;
    size_t end = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t at = 0; at < bytes;) {
            memcpy(&s.command, commands + at, sizeof s.command);
            if (s.command.bytes < 8)
                return 0;
            if (s.command.kind == MACHO_SEGMENT) {
                memcpy(&s, commands + at, sizeof s);
                if (s.address % PAGE || s.at % PAGE)
                    return 0;
                end = s.address + s.room > end ? s.address + s.room : end;
                if (pass && s.bytes &&
                    mmap(image->memory + s.address, s.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd,
                         base + (off_t)s.at) == MAP_FAILED)
                    return 0;
            }
            at += s.command.bytes;
        }
        if (!pass) {
            image->bytes = end;
            image->memory = mmap(NULL, end, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (image->memory == MAP_FAILED)
                return 0;
        }
    }
    return 1;
}

static void protect_segments(struct image *image, const char *commands, uint32_t bytes)
{
    struct macho_segment s;
    for (uint32_t at = 0; at < bytes; at += s.command.bytes) {
        memcpy(&s.command, commands + at, sizeof s.command);
        if (s.command.kind != MACHO_SEGMENT)
            continue;
        memcpy(&s, commands + at, sizeof s);
        int access = (s.access & 1 ? PROT_READ : 0) | (s.access & 2 ? PROT_WRITE : 0) | (s.access & 4 ? PROT_EXEC : 0);
        access = s.flags & 0x10 /* SG_READ_ONLY */ ? PROT_READ : access;
        if (s.room)
            mprotect(image->memory + s.address, (s.room + PAGE - 1) / PAGE * PAGE, access);
    }
}

/* Where in memory a place of the file's last segment is. */
static const char *memory_of(const struct image *image, const char *commands, uint32_t bytes, uint32_t place)
{
    struct macho_segment s;
    for (uint32_t at = 0; at < bytes; at += s.command.bytes) {
        memcpy(&s.command, commands + at, sizeof s.command);
        if (s.command.kind != MACHO_SEGMENT)
            continue;
        memcpy(&s, commands + at, sizeof s);
        if (place >= s.at && place - s.at < s.bytes)
            return image->memory + s.address + (place - s.at);
    }
    return NULL;
}

static int fix_page(struct image *image, uint64_t page, uint64_t at, void *const *imports, uint32_t n)
{
    for (uint64_t next = 1; next;) {
        char *p = image->memory + page + at;
        uint64_t word, value;
        memcpy(&word, p, sizeof word);
        next = word >> 51 & 0xfff;
        at += 4 * next;
        if (word >> 63) {
            if ((word & 0xffffff) >= n)
                return 0;
            value = (uint64_t)(uintptr_t)imports[word & 0xffffff] + (word >> 24 & 0xff);
        } else { /* forms 2 and 6 differ by the address of the image, which is 0 */
            value = (uint64_t)(uintptr_t)image->memory + (word & 0xfffffffff) + ((word >> 36 & 0xff) << 56);
        }
        memcpy(p, &value, sizeof value);
    }
    return 1;
}

static int fix_segments(struct image *image, const char *starts, void *const *imports, uint32_t n)
{
    uint32_t segments, place;
    memcpy(&segments, starts, sizeof segments);
    for (uint32_t i = 0; i < segments; i++) {
        uint16_t page_size, form, pages, first;
        uint64_t at;
        memcpy(&place, starts + 4 + 4 * i, sizeof place);
        if (!place)
            continue;
        memcpy(&page_size, starts + place + 4, sizeof page_size);
        memcpy(&form, starts + place + 6, sizeof form);
        memcpy(&at, starts + place + 8, sizeof at);
        memcpy(&pages, starts + place + 20, sizeof pages);
        if (form != 2 && form != 6)
            return 0;
        for (uint32_t k = 0; k < pages; k++) {
            memcpy(&first, starts + place + 22 + 2 * k, sizeof first);
            if (first != 0xffff && !fix_page(image, at + (uint64_t)k * page_size, first, imports, n))
                return 0;
        }
    }
    return 1;
}

static int fix(struct image *image, const char *fixups)
{
    uint32_t words[7]; /* version, starts, imports, names, number of imports, their form, the names' form */
    memcpy(words, fixups, sizeof words);
    void **imports = calloc(words[4] + (size_t)1, sizeof *imports);
    int good = imports && words[5] == 1 && words[6] == 0;
    for (uint32_t i = 0; good && i < words[4]; i++) {
        uint32_t import; /* library in 8 bits, weak in one, name in 23 */
        memcpy(&import, fixups + words[2] + 4 * i, sizeof import);
        const char *name = fixups + words[3] + (import >> 9);
        good = find_function(name, import >> 8 & 1, &imports[i]);
        if (!good)
            fail("takes a function that the test's loader has not: ", name);
    }
    good = good && fix_segments(image, fixups + words[1], imports, words[4]);
    free(imports);
    return good;
}

static void *load(struct image *image, int fd)
{
    struct macho_head head;
    off_t base = slice_of(fd);
    if (base < 0 || pread(fd, &head, sizeof head, base) != (ssize_t)sizeof head || head.magic != MACHO_MAGIC ||
        head.cpu != HOST_CPU)
        return fail("not a library for this machine", "");
    char *commands = malloc(head.commands_bytes + (size_t)1);
    if (!commands ||
        pread(fd, commands, head.commands_bytes, base + (off_t)sizeof head) != (ssize_t)head.commands_bytes ||
        !map_segments(image, fd, base, commands, head.commands_bytes)) {
        free(commands);
        return fail("its segments", "");
    }
    struct macho_piece piece;
    const char *fixups = command_at(commands, head.commands_bytes, MACHO_FIXUPS);
    const char *exports = command_at(commands, head.commands_bytes, MACHO_EXPORTS);
    problem[0] = 0;
    int good = fixups && exports;
    if (good) {
        memcpy(&piece, fixups, sizeof piece);
        fixups = memory_of(image, commands, head.commands_bytes, piece.at);
        memcpy(&piece, exports, sizeof piece);
        image->exports = (const unsigned char *)memory_of(image, commands, head.commands_bytes, piece.at);
        image->exports_bytes = piece.bytes;
        good = fixups && image->exports && fix(image, fixups);
    }
    if (good)
        protect_segments(image, commands, head.commands_bytes);
    free(commands);
    __builtin___clear_cache(image->memory, image->memory + image->bytes);
    return good ? image : problem[0] ? NULL : fail("its fixups", "");
}

void *macho_open(const char *path, int flags)
{
    struct image *image = images;
    (void)flags;
    while (image < images + IMAGES_MAX && image->memory)
        image++;
    if (image == images + IMAGES_MAX)
        return fail("too many libraries", "");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return fail("cannot be opened", "");
    memset(image, 0, sizeof *image);
    snprintf(image->path, sizeof image->path, "%s", path);
    void *loaded = load(image, fd);
    close(fd);
    if (!loaded)
        memset(image, 0, sizeof *image);
    return loaded;
}

static uint64_t varint(const unsigned char **at)
{
    uint64_t x = 0;
    int shift = 0;
    do
        x |= (uint64_t)(**at & 127) << shift, shift += 7;
    while (*(*at)++ & 128);
    return x;
}

/* Nodes: bytes of what ends here, flags and address; then how many children, a piece of the name and a place for each.
 */
void *macho_symbol(void *library, const char *name)
{
    struct image *image = library;
    const unsigned char *node = image->exports;
    char wanted[256], *rest = wanted;
    snprintf(wanted, sizeof wanted, "_%s", name);
    for (;;) {
        const unsigned char *at = node;
        uint64_t bytes = varint(&at);
        if (!*rest && bytes) {
            varint(&at);
            return image->memory + varint(&at);
        }
        at += bytes;
        int children = *at++;
        const unsigned char *next = NULL;
        while (children-- > 0) {
            const char *piece = (const char *)at;
            at += strlen(piece) + 1;
            uint64_t place = varint(&at);
            if (!next && strncmp(rest, piece, strlen(piece)) == 0) {
                next = image->exports + place;
                rest += strlen(piece);
            }
        }
        if (!next)
            return NULL;
        node = next;
    }
}

int macho_close(void *library)
{
    struct image *image = library;
    munmap(image->memory, image->bytes);
    memset(image, 0, sizeof *image);
    return 0;
}

char *macho_error(void)
{
    return problem;
}

int macho_address(const void *address, Dl_info *info)
{
    for (size_t i = 0; i < IMAGES_MAX; i++) {
        struct image *image = &images[i];
        if (image->memory && (const char *)address >= image->memory &&
            (const char *)address < image->memory + image->bytes) {
            *info = (Dl_info){.dli_fname = image->path, .dli_fbase = image->memory};
            return 1;
        }
    }
    return 0;
}
