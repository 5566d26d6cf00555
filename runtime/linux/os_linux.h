/* Linux, and Android, whose kernel it is (os.h). System calls without libc: libc's wrappers would write errno, and the
 * artifact leaves the host's state alone. Each returns what the kernel returns: a negative errno value on failure.
 *
 * Of libc only symbols that never had an incompatible older version: artifacts bind without version numbers.
 */
#pragma once

#include "runtime/os.h"

#define OS_NOTE ".note.mcc"

void *aligned_alloc(size_t align, size_t size);
void free(void *);

unsigned long getauxval(unsigned long type);

struct timespec {
    long tv_sec, tv_nsec;
}; /* LP64 targets only */
int clock_gettime(int clock, struct timespec *);

/* Perhaps absent (rt_threads.c). pthread_t is one word in every libc of Linux. */
#define RT_WEAK __attribute__((weak))
RT_WEAK int pthread_create(uintptr_t *thread, const void *attributes, void *(*main)(void *), void *arg);
RT_WEAK int pthread_join(uintptr_t thread, void **result);
RT_WEAK void *dlopen(const char *name, int flags);
RT_WEAK void *dlsym(void *library, const char *name);

/* Linux system call numbers: x86-64 has its own, aarch64 and riscv64 share the generic table. */
#if defined(__x86_64__)
enum {
    SYS_read = 0,
    SYS_close = 3,
    SYS_lseek = 8,
    SYS_mmap = 9,
    SYS_munmap = 11,
    SYS_sigmask = 14,
    SYS_madvise = 28,
    SYS_getpid = 39,
    SYS_arch_prctl = 158,
    SYS_futex = 202,
    SYS_getaffinity = 204,
    SYS_openat = 257
};
#elif defined(__aarch64__) || (defined(__riscv) && __riscv_xlen == 64)
enum {
    SYS_openat = 56,
    SYS_close = 57,
    SYS_lseek = 62,
    SYS_read = 63,
    SYS_futex = 98,
    SYS_getaffinity = 123,
    SYS_sigmask = 135,
    SYS_getpid = 172,
    SYS_munmap = 215,
    SYS_mmap = 222,
    SYS_madvise = 233
};
#else
#error "no system call numbers for this architecture"
#endif

static inline long rt_syscall(long n, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = n;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
#else
    register long a7 __asm__("a7") = n;
    register long a0 __asm__("a0") = a;
    register long a1 __asm__("a1") = b;
    register long a2 __asm__("a2") = c;
    register long a3 __asm__("a3") = d;
    register long a4 __asm__("a4") = e;
    register long a5 __asm__("a5") = f;
    __asm__ volatile("ecall" : "+r"(a0) : "r"(a7), "r"(a1), "r"(a2), "r"(a3), "r"(a4), "r"(a5) : "memory");
    return a0;
#endif
}

/* ---- threads ---- */

static inline void os_wait(uint32_t *word, uint32_t seen)
{
    rt_syscall(SYS_futex, (long)word, 128 /* FUTEX_WAIT_PRIVATE */, (long)seen, 0, 0, 0);
}

static inline void os_wake(uint32_t *word, uint32_t n)
{
    rt_syscall(SYS_futex, (long)word, 129 /* FUTEX_WAKE_PRIVATE */, (long)n, 0, 0, 0);
}

static inline uint64_t os_clock_ns(void)
{
    struct timespec now = {0, 0};
    clock_gettime(1 /* CLOCK_MONOTONIC */, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline int64_t os_cpus(uint64_t *mask, size_t bytes)
{
    return rt_syscall(SYS_getaffinity, 0, (long)bytes, (long)mask, 0, 0, 0);
}

static inline int32_t os_process(void)
{
    return (int32_t)rt_syscall(SYS_getpid, 0, 0, 0, 0, 0, 0);
}

/* The two numbers that libc itself uses between threads stay open. */
static inline bool os_signals_block(uint64_t *saved)
{
    uint64_t all = ~(uint64_t)0 & ~((uint64_t)3 << 31);
    *saved = 0;
    return rt_syscall(SYS_sigmask, 2 /* SIG_SETMASK */, (long)&all, (long)saved, sizeof *saved, 0, 0) == 0;
}

static inline void os_signals_restore(uint64_t *saved)
{
    rt_syscall(SYS_sigmask, 2, (long)saved, 0, sizeof *saved, 0, 0);
}

/* ---- memory ---- */

static inline void *os_memory(size_t align, size_t bytes)
{
    return aligned_alloc(align, bytes);
}

static inline void os_memory_free(void *p)
{
    free(p);
}

static inline void os_large_pages(void *p, size_t bytes)
{
    rt_syscall(SYS_madvise, (long)p, (long)bytes, 14 /* MADV_HUGEPAGE */, 0, 0, 0);
}

/* ---- files ---- */

enum { AT_CWD = -100, OPEN_FLAGS = 02000000 | 04000 /* O_RDONLY | O_CLOEXEC | O_NONBLOCK */ };

static inline int64_t os_file_open(const char *path)
{
    return rt_syscall(SYS_openat, AT_CWD, (long)path, OPEN_FLAGS, 0, 0, 0);
}

static inline int64_t os_file_size(int64_t file)
{
    return rt_syscall(SYS_lseek, file, 0, 2 /* SEEK_END */, 0, 0, 0);
}

static inline int64_t os_file_map(int64_t file, int64_t size)
{
    return rt_syscall(SYS_mmap, 0, size, 1 /* PROT_READ */, 1 /* MAP_SHARED */, file, 0);
}

static inline void os_file_close(int64_t file)
{
    rt_syscall(SYS_close, file, 0, 0, 0, 0, 0);
}

static inline void os_file_unmap(void *p, size_t size)
{
    rt_syscall(SYS_munmap, (long)p, (long)size, 0, 0, 0, 0);
}

static inline const char *os_hex(const char *p, uint64_t *value)
{
    for (*value = 0;; p++) {
        int digit = *p >= '0' && *p <= '9' ? *p - '0' : *p >= 'a' && *p <= 'f' ? *p - 'a' + 10 : -1;
        if (digit < 0)
            return p;
        *value = *value << 4 | (uint64_t)digit;
    }
}

/* "start-end perms offset dev inode   path" of /proc/self/maps; true when `address` is in it and it names a file. */
static inline bool os_line_has(const char *line, const char *end, uintptr_t address, struct os_path *path)
{
    uint64_t low, high;
    const char *p = os_hex(line, &low);
    p = os_hex(p + (*p == '-'), &high);
    if (address < low || address >= high)
        return false;
    while (p < end && *p != '/')
        p++;
    path->n = 0;
    return p < end && os_path_add(path, p, (size_t)(end - p));
}

/* By the maps, not by the dynamic linker: mcc_load opens artifacts through a descriptor, and that would be the name. */
static inline bool os_own_path(const struct mcc_model *model, struct os_path *path)
{
    enum { BUFFER = 4 * OS_PATH_BYTES };
    long fd = os_file_open("/proc/self/maps");
    char *buffer = fd >= 0 ? rt_alloc(model, BUFFER) : NULL;
    bool found = false;
    size_t have = 0;
    while (buffer && !found) {
        long got = rt_syscall(SYS_read, fd, (long)(buffer + have), (long)(BUFFER - 1 - have), 0, 0, 0);
        if (got == -4 /* EINTR */)
            continue;
        if (got <= 0)
            break;
        have += (size_t)got;
        size_t line = 0;
        for (size_t i = 0; i < have && !found; i++)
            if (buffer[i] == '\n') {
                buffer[i] = 0;
                found = os_line_has(buffer + line, buffer + i, (uintptr_t)model->desc, path);
                line = i + 1;
            }
        memmove(buffer, buffer + line, have - line);
        have -= line;
        if (have == BUFFER - 1)
            break;
    }
    rt_release(model, buffer, BUFFER);
    if (fd >= 0)
        os_file_close(fd);
    return found;
}

/* ---- the CPU ---- */

static inline uint64_t os_cpu_word(uint32_t which)
{
    return getauxval(which);
}

/* For all threads of the process, now and later. Refused by a kernel before 5.16, a filter of system calls, or if a
 * thread's alternate stack for signals is too small for the registers. */
static inline bool os_tiles(void)
{
#if defined(__x86_64__)
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    return rt_syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA, 0, 0, 0, 0) == 0;
#else
    return false;
#endif
}
