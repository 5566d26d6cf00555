/* What a worker cannot do any more once it has started, each thing tried in a process of its own; and that workers do
 * start it. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "codegen/sandbox.h"
#include "tests/codegen/harness.h"

static bool try_socket(void)
{
    return socket(AF_INET, SOCK_STREAM, 0) >= 0;
}
static bool try_unix_socket(void)
{
    return socket(AF_UNIX, SOCK_STREAM, 0) >= 0;
}
static bool try_write(void)
{
    return open("/tmp/mcc-sandbox", O_WRONLY | O_CREAT, 0600) >= 0;
}
static bool try_append(void)
{
    return open("/dev/null", O_RDWR | O_APPEND) >= 0;
}
static bool try_remove(void)
{
    return unlink("/tmp/mcc-there-is-no-such-file") == 0 || errno == ENOENT;
}
static bool try_folder(void)
{
    return mkdir("/tmp/mcc-sandbox-folder", 0700) == 0;
}
static bool try_rename(void)
{
    return rename("/tmp/mcc-none", "/tmp/mcc-none-2") == 0 || errno == ENOENT;
}
static bool try_mode(void)
{
    return chmod("/tmp", 01777) == 0;
}
static bool try_run(void)
{
    return execl("/bin/true", "true", (char *)NULL) == 0 || errno != EPERM;
}
static bool try_fork(void)
{
    return fork() >= 0;
}
static bool try_kill(void)
{
    return kill(getppid(), 0) == 0;
}

/* The rest by number, with errno: EPERM is the filter's answer. */
static bool passes(long call, long a, long b, long c, long d)
{
    errno = 0;
    return syscall(call, a, b, c, d, 0L, 0L) >= 0 || errno != EPERM;
}

static char page[3 * 4096];
#define PAGE ((long)(((uintptr_t)page + 4095) & ~(uintptr_t)4095))

static bool try_tgkill_parent(void)
{
    return passes(SYS_tgkill, getppid(), getppid(), 0, 0);
}
static bool try_tkill(void)
{
    return passes(SYS_tkill, gettid(), 0, 0, 0);
}
static bool try_kill_self(void)
{
    return passes(SYS_kill, getpid(), 0, 0, 0);
}
static bool try_queue(void)
{
    return passes(SYS_rt_sigqueueinfo, getppid(), 0, 0, 0);
}
static bool try_limits_of_parent(void)
{
    struct rlimit64 old;
    return passes(SYS_prlimit64, getppid(), RLIMIT_AS, 0, (long)&old);
}
static bool try_limits_of_init(void)
{
    return passes(SYS_prlimit64, 1, RLIMIT_AS, 0, 0);
}
static bool try_new_limit(void)
{
    struct rlimit64 limit = {1 << 20, 1 << 20};
    return passes(SYS_prlimit64, 0, RLIMIT_CORE, (long)&limit, 0);
}
static bool try_exec_map(void)
{
    return mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED;
}
static bool try_exec_protect(void)
{
    return passes(SYS_mprotect, PAGE, 4096, PROT_READ | PROT_EXEC, 0);
}
static bool try_exec_key(void)
{
    return passes(SYS_pkey_mprotect, PAGE, 4096, PROT_EXEC, -1);
}
static bool try_ioctl(void)
{
    return passes(SYS_ioctl, 0, 0x5412 /* TIOCSTI */, (long)"x", 0);
}
static bool try_owner(void)
{
    return passes(SYS_fcntl, 0, F_SETOWN, getppid(), 0);
}
static bool try_lock(void)
{
    struct flock lock = {.l_type = F_RDLCK};
    return passes(SYS_fcntl, 0, F_SETLK, (long)&lock, 0);
}
static bool try_flock(void)
{
    return passes(SYS_flock, 0, 5, 0, 0);
}
static bool try_status_flags(void)
{
    return passes(SYS_fcntl, 0, F_SETFL, O_ASYNC, 0);
}
static bool try_vfork(void)
{
    return passes(SYS_clone, CLONE_VM | CLONE_VFORK | SIGCHLD, 0, 0, 0);
}
static bool try_namespace(void)
{
    return passes(SYS_clone, CLONE_NEWUSER | CLONE_THREAD | CLONE_VM | CLONE_SIGHAND, 0, 0, 0);
}
static bool try_clone3(void)
{
    return passes(SYS_clone3, 0, 0, 0, 0) && errno != ENOSYS;
}
static bool try_advice(void)
{
    return passes(SYS_madvise, PAGE, 4096, 100 /* MADV_HWPOISON */, 0);
}
static bool try_affinity(void)
{
    unsigned long mask[16];
    return passes(SYS_sched_getaffinity, getppid(), sizeof mask, (long)mask, 0);
}
static bool try_huge_file(void)
{
    return passes(SYS_memfd_create, (long)"m", MFD_HUGETLB, 0, 0);
}
static bool try_truncate(void)
{
    return passes(SYS_openat, AT_FDCWD, (long)"/dev/null", O_RDONLY | O_TRUNC, 0);
}
static bool try_nameless(void)
{
    return passes(SYS_openat, AT_FDCWD, (long)"/tmp", O_TMPFILE | O_RDWR, 0600);
}
static bool try_ptrace(void)
{
    return passes(SYS_ptrace, 0 /* PTRACE_TRACEME */, 0, 0, 0);
}
static bool try_memory_of_parent(void)
{
    return passes(SYS_process_vm_readv, getppid(), 0, 0, 0);
}
static bool try_ring(void)
{
    return passes(SYS_io_uring_setup, 1, 0, 0, 0);
}
static bool try_pair(void)
{
    int fd[2];
    return passes(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, (long)fd);
}
static bool try_leave(void)
{
    return passes(SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0);
}

static bool may_raise(void)
{
    signal(SIGUSR1, SIG_IGN);
    return raise(SIGUSR1) == 0;
}
static bool may_read_limits(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_STACK, &limit) == 0;
}
static bool may_duplicate(void)
{
    int fd = fcntl(0, F_DUPFD_CLOEXEC, 3);
    return fd >= 0 && fcntl(fd, F_GETFL) >= 0 && dup2(fd, 0) == 0;
}

static void *nothing(void *arg)
{
    return arg;
}

static bool may_read(void)
{
    char byte;
    int fd = open("/proc/self/exe", O_RDONLY);
    return fd >= 0 && read(fd, &byte, 1) == 1;
}

static bool may_thread(void)
{
    pthread_t thread;
    return pthread_create(&thread, NULL, nothing, NULL) == 0 && pthread_join(thread, NULL) == 0;
}

static bool may_map(void)
{
    int fd = memfd_create("test", 0);
    return fd >= 0 && ftruncate(fd, 4096) == 0 && mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0) != MAP_FAILED;
}

static const struct {
    const char *name;
    bool (*done)(void);
    bool allowed;
} rows[] = {
    {"a socket", try_socket, false},
    {"a local socket", try_unix_socket, false},
    {"a file to write", try_write, false},
    {"a device to write", try_append, false},
    {"removing", try_remove, false},
    {"a folder", try_folder, false},
    {"renaming", try_rename, false},
    {"permissions", try_mode, false},
    {"a program", try_run, false},
    {"a process", try_fork, false},
    {"a signal to the parent", try_kill, false},
    {"a signal to a thread of the parent", try_tgkill_parent, false},
    {"a signal to a thread of no known process", try_tkill, false},
    {"a signal to itself by kill", try_kill_self, false},
    {"a signal with a value", try_queue, false},
    {"limits of the parent", try_limits_of_parent, false},
    {"limits of process 1", try_limits_of_init, false},
    {"a new limit", try_new_limit, false},
    {"memory to execute", try_exec_map, false},
    {"memory made executable", try_exec_protect, false},
    {"memory made executable with a key", try_exec_key, false},
    {"ioctl", try_ioctl, false},
    {"a descriptor's owner", try_owner, false},
    {"a lock", try_lock, false},
    {"another lock", try_flock, false},
    {"a descriptor's flags", try_status_flags, false},
    {"a process in this memory", try_vfork, false},
    {"a namespace", try_namespace, false},
    {"clone3", try_clone3, false},
    {"poisoned memory", try_advice, false},
    {"the parent's CPUs", try_affinity, false},
    {"a memory file of huge pages", try_huge_file, false},
    {"an emptied file", try_truncate, false},
    {"a file without a name", try_nameless, false},
    {"ptrace", try_ptrace, false},
    {"the parent's memory", try_memory_of_parent, false},
    {"a ring of calls", try_ring, false},
    {"a pair of sockets", try_pair, false},
    {"prctl", try_leave, false},
    {"a signal to itself", may_raise, true},
    {"its limits", may_read_limits, true},
    {"another descriptor", may_duplicate, true},
    {"a file to read", may_read, true},
    {"a thread", may_thread, true},
    {"memory", may_map, true},
};

/* 0, 1: not done, done; 2: there is no sandbox here. */
static int tried(bool (*done)(void), bool inside)
{
    int status = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(inside && !sandbox_enter() ? 2 : done());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_rows(void **state)
{
    (void)state;
    if (tried(may_read, true) == 2)
        skip(); /* no seccomp filters */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (tried(rows[i].done, true) != rows[i].allowed)
            fail_msg("%s: %s", rows[i].name, rows[i].allowed ? "refused" : "done");
}

/* A worker has entered it when it answers its first job. */
static void test_workers_enter(void **state)
{
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    skip();
#endif
    if (tried(may_read, true) == 2)
        skip();
    int end;
    char path[64], text[4096];
    struct wire_job job = {.magic = WIRE_MAGIC, .kind = 77};
    pid_t child = worker_answered(&job, &end);
    snprintf(path, sizeof path, "/proc/%d/status", (int)child);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    close(end);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_non_null(strstr(text, "\nSeccomp:\t2\n"));
    assert_non_null(strstr(text, "\nNoNewPrivs:\t1\n"));
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--worker") == 0)
        return codegen_worker();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_workers_enter)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
