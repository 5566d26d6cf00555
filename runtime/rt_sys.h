/* System calls without libc: libc's wrappers would write errno, and the artifact leaves the host's state alone.
 * Each returns what the kernel returns: a negative errno value on failure.
 */
#ifndef MCC_RT_SYS_H
#define MCC_RT_SYS_H

#include <stddef.h>
#include <stdint.h>

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

/* Asks for large pages behind [p, p + bytes), which must lie on page boundaries; a kernel that has none ignores it. */
static inline void rt_large_pages(void *p, size_t bytes)
{
    rt_syscall(SYS_madvise, (long)p, (long)bytes, 14 /* MADV_HUGEPAGE */, 0, 0, 0);
}

/* Sleeps while *word is `seen`; may also return for no reason. */
static inline void rt_futex_wait(uint32_t *word, uint32_t seen)
{
    rt_syscall(SYS_futex, (long)word, 128 /* FUTEX_WAIT_PRIVATE */, (long)seen, 0, 0, 0);
}

static inline void rt_futex_wake(uint32_t *word, uint32_t n)
{
    rt_syscall(SYS_futex, (long)word, 129 /* FUTEX_WAKE_PRIVATE */, (long)n, 0, 0, 0);
}

static inline int32_t rt_getpid(void)
{
    return (int32_t)rt_syscall(SYS_getpid, 0, 0, 0, 0, 0, 0);
}

static inline void rt_pause(void)
{
#if defined(__x86_64__)
    __asm__ volatile("pause");
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#else
    __asm__ volatile(".4byte 0x0100000f");   /* pause (Zihintpause); a no-op where unknown */
#endif
}

#endif
