/* macOS 11, iOS 14 and later (os.h): public functions of libSystem, since its system calls have no fixed numbers and
 * app stores refuse private names. Those that fail write errno, which the artifact leaves as it was.
 */
#pragma once

#include "runtime/os.h"

#define OS_NOTE "__TEXT,__mccnote"

/* macOS 14.4, iOS 17.4; NULL before. */
#define DARWIN_LATER __attribute__((weak_import))
DARWIN_LATER int os_sync_wait_on_address(void *address, uint64_t seen, size_t size, uint32_t flags);
DARWIN_LATER int os_sync_wake_by_address_any(void *address, size_t size, uint32_t flags);
DARWIN_LATER int os_sync_wake_by_address_all(void *address, size_t size, uint32_t flags);
/* In their place (rt_threads.c). */
void rt_wait_before(uint32_t *word, uint32_t seen);
void rt_wake_before(void);

int *__error(void);
uint64_t clock_gettime_nsec_np(int clock);
long sysconf(int name);
int32_t getpid(void);
int pthread_sigmask(int how, const uint32_t *set, uint32_t *old);
int posix_memalign(void **, size_t align, size_t bytes);
void free(void *);
int open(const char *path, int flags, ...);
int64_t lseek(int file, int64_t offset, int whence);
void *mmap(void *, size_t bytes, int protection, int flags, int file, int64_t offset);
int munmap(void *, size_t bytes);
int close(int file);
int sysctlbyname(const char *name, void *value, size_t *bytes, void *fresh, size_t fresh_bytes);

struct darwin_place {
    const char *path;
    void *image;
    const char *symbol;
    void *address;
};
int dladdr(const void *address, struct darwin_place *);

/* ---- threads ---- */

static inline void os_wait(uint32_t *word, uint32_t seen)
{
    int before = *__error();
    if (os_sync_wait_on_address)
        os_sync_wait_on_address(word, seen, sizeof *word, 0);
    else
        rt_wait_before(word, seen);
    *__error() = before;
}

static inline void os_wake(uint32_t *word, uint32_t n)
{
    int before = *__error();
    if (!os_sync_wait_on_address)
        rt_wake_before();
    else if (n == 1)
        os_sync_wake_by_address_any(word, sizeof *word, 0);
    else
        os_sync_wake_by_address_all(word, sizeof *word, 0);
    *__error() = before;
}

static inline uint64_t os_clock_ns(void)
{
    return clock_gettime_nsec_np(8 /* CLOCK_UPTIME_RAW */);
}

/* No thread is bound to a CPU: the first bits stand for as many as there are. */
static inline int64_t os_cpus(uint64_t *mask, size_t bytes)
{
    long n = sysconf(58 /* _SC_NPROCESSORS_ONLN */), most = (long)bytes * 8;
    for (long i = 0; i < n && i < most; i++)
        mask[i / 64] |= (uint64_t)1 << i % 64;
    return n > 0 ? (int64_t)bytes : 0;
}

static inline int32_t os_process(void)
{
    return getpid();
}

static inline bool os_signals_block(uint64_t *saved)
{
    const uint32_t all = ~(uint32_t)0;
    uint32_t old = 0;
    bool blocked = pthread_sigmask(3 /* SIG_SETMASK */, &all, &old) == 0;
    *saved = old;
    return blocked;
}

static inline void os_signals_restore(uint64_t *saved)
{
    uint32_t old = (uint32_t)*saved;
    pthread_sigmask(3, &old, NULL);
}

/* ---- memory ---- */

static inline void *os_memory(size_t align, size_t bytes)
{
    void *p = NULL;
    return posix_memalign(&p, align, bytes) == 0 ? p : NULL;
}

static inline void os_memory_free(void *p)
{
    free(p);
}

static inline void os_large_pages(void *p, size_t bytes)
{
    (void)p;
    (void)bytes;
}

/* ---- files ---- */

/* The result of a function that failed: what it wrote to errno, negated. */
static inline int64_t os_failure(int before)
{
    int64_t why = *__error();
    *__error() = before;
    return why > 0 ? -why : -1;
}

static inline int64_t os_file_open(const char *path)
{
    int before = *__error(), file = open(path, 0x1000004 /* O_RDONLY | O_CLOEXEC | O_NONBLOCK */);
    return file >= 0 ? file : os_failure(before);
}

static inline int64_t os_file_size(int64_t file)
{
    int before = *__error();
    int64_t size = lseek((int)file, 0, 2 /* SEEK_END */);
    return size >= 0 ? size : os_failure(before);
}

static inline int64_t os_file_map(int64_t file, int64_t size)
{
    int before = *__error();
    void *p = mmap(NULL, (size_t)size, 1 /* PROT_READ */, 1 /* MAP_SHARED */, (int)file, 0);
    return p != (void *)-1 ? (int64_t)(intptr_t)p : os_failure(before);
}

static inline void os_file_close(int64_t file)
{
    int before = *__error();
    close((int)file);
    *__error() = before;
}

static inline void os_file_unmap(void *p, size_t size)
{
    munmap(p, size);
}

static inline bool os_own_path(const struct mcc_model *model, struct os_path *path)
{
    struct darwin_place place;
    size_t n = 0;
    path->n = 0;
    if (!dladdr(model->desc, &place) || !place.path)
        return false;
    while (place.path[n])
        n++;
    return os_path_add(path, place.path, n);
}

/* ---- the CPU ---- */

static inline bool os_cpu_has(const char *name)
{
    int32_t value = 0;
    size_t bytes = sizeof value;
    int before = *__error();
    bool has = sysctlbyname(name, &value, &bytes, NULL, 0) == 0 && value;
    *__error() = before;
    return has;
}

static inline bool os_tiles(void)
{
    return false;
}

/* What the system tells of a CPU, as Linux' words have it. The last names are those of macOS 11. */
static inline uint64_t os_cpu_word(uint32_t which)
{
    uint64_t word = 0;
#if defined(__aarch64__)
#define FEATURE(name, second, bits) {"hw.optional.arm.FEAT_" name, second, bits}
    static const struct {
        const char *name;
        uint8_t second; /* of HWCAP2 */
        uint32_t bits;
    } rows[] = {FEATURE("AES", 0, 1u << 3),
                FEATURE("PMULL", 0, 1u << 4),
                FEATURE("SHA1", 0, 1u << 5),
                FEATURE("SHA256", 0, 1u << 6),
                FEATURE("CRC32", 0, 1u << 7),
                FEATURE("LSE", 0, 1u << 8),
                FEATURE("FP16", 0, 3u << 9),
                FEATURE("RDM", 0, 1u << 12),
                FEATURE("JSCVT", 0, 1u << 13),
                FEATURE("FCMA", 0, 1u << 14),
                FEATURE("LRCPC", 0, 1u << 15),
                FEATURE("DPB", 0, 1u << 16),
                FEATURE("SHA3", 0, 1u << 17),
                FEATURE("DotProd", 0, 1u << 20),
                FEATURE("SHA512", 0, 1u << 21),
                FEATURE("FHM", 0, 1u << 23),
                FEATURE("DIT", 0, 1u << 24),
                FEATURE("LSE2", 0, 1u << 25),
                FEATURE("LRCPC2", 0, 1u << 26),
                FEATURE("FlagM", 0, 1u << 27),
                FEATURE("SSBS", 0, 1u << 28),
                FEATURE("SB", 0, 1u << 29),
                FEATURE("PAuth", 0, 3u << 30),
                FEATURE("DPB2", 1, 1u << 0),
                FEATURE("FlagM2", 1, 1u << 7),
                FEATURE("FRINTTS", 1, 1u << 8),
                FEATURE("I8MM", 1, 1u << 13),
                FEATURE("BF16", 1, 1u << 14),
                FEATURE("BTI", 1, 1u << 17),
                {"hw.optional.armv8_crc32", 0, 1u << 7},
                {"hw.optional.armv8_1_atomics", 0, 1u << 8},
                {"hw.optional.neon_fp16", 0, 3u << 9}};
#undef FEATURE
    static uint64_t known[2]; /* open asks for a word once a feature; 1 << 63: it was found out */
    uint8_t second = which != 16 /* AT_HWCAP */;
    uint64_t found = __atomic_load_n(&known[second], __ATOMIC_RELAXED);
    if (found)
        return found & ~((uint64_t)1 << 63);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].second == second && os_cpu_has(rows[i].name))
            word |= rows[i].bits;
    __atomic_store_n(&known[second], word | (uint64_t)1 << 63, __ATOMIC_RELAXED);
#endif
    (void)which;
    return word;
}
