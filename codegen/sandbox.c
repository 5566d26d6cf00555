/* See sandbox.h. The filter is a table of system calls that are allowed, with what their arguments must be (seccomp(2),
 * mode filter); their numbers are those of the machine that mcc runs on. What is not in the table fails with EPERM:
 * sockets, ioctl, other processes and their limits, programs, new code, whatever writes to a file system.
 */
#include "codegen/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define HOST_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define HOST_ARCH AUDIT_ARCH_AARCH64
#elif defined(__riscv) && __riscv_xlen == 64
#define HOST_ARCH AUDIT_ARCH_RISCV64
#endif

#ifdef HOST_ARCH

/* An argument, some bits of which must have a value. */
struct condition {
    unsigned argument;
    uint64_t mask, value;
};

/* A system call that is allowed where all conditions hold; several rows of one call are alternatives. */
struct row {
    uint32_t number;
    uint32_t n;
    struct condition at[2];
};

#define OWN_ID UINT32_MAX /* as a condition's value: the id of this process */
#define ALL_BITS UINT64_MAX
#define INT_BITS UINT32_MAX /* of an int: the kernel does not look at the rest of the register */

#define ANY(call)      \
    {                  \
        SYS_##call, 0, \
        {{0, 0, 0}}    \
    }
#define WHERE(call, argument, mask, value) \
    {                                      \
        SYS_##call, 1,                     \
        {                                  \
            {                              \
                argument, mask, value      \
            }                              \
        }                                  \
    }
#define BOTH(call, argument, mask, value, argument2, mask2, value2) \
    {                                                               \
        SYS_##call, 2,                                              \
        {                                                           \
            {argument, mask, value},                                \
            {                                                       \
                argument2, mask2, value2                            \
            }                                                       \
        }                                                           \
    }

#define WRITES (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC | O_APPEND)
/* What libc starts a thread with, and the bit of which older ones think that it says so. */
#define THREAD_FLAGS                                                                                   \
    (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS | \
     CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID | CLONE_DETACHED)

/* clang-format off */
static const struct row rows[] = {
    /* descriptors that are there, and memory files */
    ANY(read), ANY(write), ANY(readv), ANY(writev), ANY(pread64), ANY(pwrite64), ANY(lseek), ANY(close), ANY(dup),
    ANY(dup3), ANY(fstat), ANY(fstatfs), ANY(ftruncate),
    WHERE(fcntl, 1, INT_BITS, F_GETFD),
    WHERE(fcntl, 1, INT_BITS, F_SETFD),
    WHERE(fcntl, 1, INT_BITS, F_GETFL),
    WHERE(fcntl, 1, INT_BITS, F_DUPFD),
    WHERE(fcntl, 1, INT_BITS, F_DUPFD_CLOEXEC),
    WHERE(memfd_create, 1, INT_BITS & ~(uint64_t)MFD_CLOEXEC, 0),
    /* files to read, and what files are */
    WHERE(openat, 2, WRITES, 0),
    ANY(newfstatat), ANY(statx), ANY(statfs), ANY(faccessat), ANY(readlinkat), ANY(getcwd),
    /* memory that is not code */
    WHERE(mmap, 2, PROT_EXEC, 0),
    WHERE(mprotect, 2, PROT_EXEC, 0),
    ANY(munmap), ANY(mremap), ANY(brk),
    WHERE(madvise, 2, INT_BITS & ~(uint64_t)7, 0), /* NORMAL to DONTNEED */
    WHERE(madvise, 2, INT_BITS, MADV_FREE),
    WHERE(madvise, 2, INT_BITS, MADV_HUGEPAGE),
    WHERE(madvise, 2, INT_BITS, MADV_NOHUGEPAGE),
    WHERE(madvise, 2, INT_BITS, MADV_DONTDUMP),
    /* threads and signals of this process */
    BOTH(clone, 0, INT_BITS & ~(uint64_t)THREAD_FLAGS, 0, 0, CLONE_THREAD, CLONE_THREAD),
    ANY(futex), ANY(set_robust_list), ANY(rseq), ANY(set_tid_address), ANY(sched_yield),
    WHERE(sched_getaffinity, 0, INT_BITS, 0),
    WHERE(sched_getaffinity, 0, INT_BITS, OWN_ID),
    ANY(rt_sigaction), ANY(rt_sigprocmask), ANY(rt_sigreturn), ANY(sigaltstack),
    WHERE(tgkill, 0, INT_BITS, OWN_ID),
    ANY(exit), ANY(exit_group), ANY(restart_syscall),
    /* time, chance, and who one is */
    ANY(clock_gettime), ANY(clock_getres), ANY(clock_nanosleep), ANY(nanosleep), ANY(gettimeofday), ANY(getrandom),
    ANY(getpid), ANY(gettid), ANY(getuid), ANY(geteuid), ANY(getgid), ANY(getegid), ANY(uname), ANY(getrusage),
    ANY(sysinfo),
    BOTH(prlimit64, 0, INT_BITS, 0, 2, ALL_BITS, 0), /* its own limits, to read */
#ifdef __x86_64__ /* older calls that newer ones replace elsewhere */
    ANY(dup2),
    WHERE(open, 1, WRITES, 0),
    ANY(stat), ANY(lstat), ANY(access), ANY(readlink), ANY(time), ANY(getrlimit),
#endif
};
/* clang-format on */
enum { ROWS = sizeof rows / sizeof *rows, LENGTH_MAX = ROWS * 16 + 32 };

struct program {
    struct sock_filter at[LENGTH_MAX];
    unsigned short n;
};

static void put(struct program *p, uint16_t code, uint32_t k, uint8_t yes, uint8_t no)
{
    p->at[p->n++] = (struct sock_filter){code, yes, no, k};
}

static void put_load(struct program *p, size_t field)
{
    put(p, BPF_LD | BPF_W | BPF_ABS, (uint32_t)field, 0, 0);
}

static void put_answer(struct program *p, uint32_t answer)
{
    put(p, BPF_RET | BPF_K, answer, 0, 0);
}

/* Goes on where the half of an argument is as it must be. */
static void put_half(struct program *p, size_t field, uint32_t mask, uint32_t value)
{
    if (!mask)
        return;
    put_load(p, field);
    put(p, BPF_ALU | BPF_AND | BPF_K, mask, 0, 0);
    put(p, BPF_JMP | BPF_JEQ | BPF_K, value, 0, UINT8_MAX); /* where else to: put_row */
}

/* Allows the call, or goes on with the next row. */
static void put_row(struct program *p, const struct row *row, uint32_t self)
{
    put_load(p, offsetof(struct seccomp_data, nr));
    unsigned short first = p->n;
    put(p, BPF_JMP | BPF_JEQ | BPF_K, row->number, 0, UINT8_MAX);
    for (uint32_t i = 0; i < row->n; i++) {
        const struct condition *c = &row->at[i];
        size_t field = offsetof(struct seccomp_data, args) + c->argument * sizeof(uint64_t);
        put_half(p, field, (uint32_t)c->mask, c->value == OWN_ID ? self : (uint32_t)c->value);
        put_half(p, field + 4, (uint32_t)(c->mask >> 32), 0);
    }
    put_answer(p, SECCOMP_RET_ALLOW);
    for (unsigned short i = first; i < p->n; i++)
        if (p->at[i].jf == UINT8_MAX)
            p->at[i].jf = (uint8_t)(p->n - i - 1);
}

static void put_all(struct program *p)
{
    const uint32_t refuse = SECCOMP_RET_ERRNO | EPERM;
    put_load(p, offsetof(struct seccomp_data, arch));
    put(p, BPF_JMP | BPF_JEQ | BPF_K, HOST_ARCH, 1, 0);
    put_answer(p, refuse);
    for (size_t i = 0; i < ROWS; i++)
        put_row(p, &rows[i], (uint32_t)getpid());
    /* Its flags are in memory, where a filter cannot look: libc takes clone instead. */
    put_load(p, offsetof(struct seccomp_data, nr));
    put(p, BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1);
    put_answer(p, SECCOMP_RET_ERRNO | ENOSYS);
    put_answer(p, refuse);
}

bool sandbox_enter(void)
{
    struct program p = {.n = 0};
    put_all(&p);
    struct sock_fprog filter = {p.n, p.at};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0;
}

#else

bool sandbox_enter(void)
{
    return false;
}

#endif
