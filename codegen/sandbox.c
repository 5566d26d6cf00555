/* See sandbox.h. The filter is a list of system calls that are allowed (seccomp(2), mode filter); their numbers are
 * those of the machine that mcc runs on.
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
#include <sys/prctl.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#define HOST_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define HOST_ARCH AUDIT_ARCH_AARCH64
#elif defined(__riscv) && __riscv_xlen == 64
#define HOST_ARCH AUDIT_ARCH_RISCV64
#endif

#ifdef HOST_ARCH

static const uint32_t allowed[] = {
    /* descriptors that are there, and memory files */
    SYS_read,
    SYS_write,
    SYS_readv,
    SYS_writev,
    SYS_pread64,
    SYS_pwrite64,
    SYS_lseek,
    SYS_close,
    SYS_dup,
    SYS_dup3,
    SYS_fcntl,
    SYS_fstat,
    SYS_fstatfs,
    SYS_ftruncate,
    SYS_memfd_create,
    /* what files are */
    SYS_newfstatat,
    SYS_statx,
    SYS_statfs,
    SYS_faccessat,
    SYS_readlinkat,
    SYS_getcwd,
    /* memory */
    SYS_mmap,
    SYS_munmap,
    SYS_mprotect,
    SYS_mremap,
    SYS_madvise,
    SYS_brk,
    SYS_membarrier,
    /* threads and signals of this process */
    SYS_futex,
    SYS_set_robust_list,
    SYS_rseq,
    SYS_set_tid_address,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_sigaltstack,
    SYS_tgkill,
    SYS_exit,
    SYS_exit_group,
    SYS_restart_syscall,
    /* time, chance, and who one is */
    SYS_clock_gettime,
    SYS_clock_getres,
    SYS_clock_nanosleep,
    SYS_nanosleep,
    SYS_gettimeofday,
    SYS_getrandom,
    SYS_getpid,
    SYS_gettid,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_uname,
    SYS_getrusage,
    SYS_sysinfo,
    SYS_prlimit64,
#ifdef __x86_64__ /* older calls that newer ones replace elsewhere */
    SYS_dup2,
    SYS_stat,
    SYS_lstat,
    SYS_access,
    SYS_readlink,
    SYS_arch_prctl,
    SYS_time,
    SYS_getrlimit,
#endif
};
enum { ALLOWED = sizeof allowed / sizeof *allowed, LENGTH_MAX = ALLOWED * 2 + 32 };

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

/* Call `number` gets `answer` where (the low half of) its argument has any of the bits, and `other` where it has
 * none. */
static void put_by_bits(struct program *p, uint32_t number, unsigned argument, uint32_t bits, uint32_t answer,
                        uint32_t other)
{
    put(p, BPF_JMP | BPF_JEQ | BPF_K, number, 0, 4);
    put_load(p, offsetof(struct seccomp_data, args) + argument * sizeof(uint64_t));
    put(p, BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1);
    put_answer(p, answer);
    put_answer(p, other);
}

static void put_all(struct program *p)
{
    const uint32_t refuse = SECCOMP_RET_ERRNO | EPERM, writes = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC;
    put_load(p, offsetof(struct seccomp_data, arch));
    put(p, BPF_JMP | BPF_JEQ | BPF_K, HOST_ARCH, 1, 0);
    put_answer(p, refuse);
    put_load(p, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < ALLOWED; i++) {
        put(p, BPF_JMP | BPF_JEQ | BPF_K, allowed[i], 0, 1);
        put_answer(p, SECCOMP_RET_ALLOW);
    }
    put_by_bits(p, SYS_openat, 2, writes, refuse, SECCOMP_RET_ALLOW);
#ifdef __x86_64__
    put_by_bits(p, SYS_open, 1, writes, refuse, SECCOMP_RET_ALLOW);
#endif
    put_by_bits(p, SYS_clone, 0, CLONE_THREAD, SECCOMP_RET_ALLOW, refuse);
    /* Its flags are in memory, where a filter cannot look: libc takes clone instead. */
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
