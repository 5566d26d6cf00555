/* Lets the N-th fallible call of a process fail: what a full disk, a signal or missing memory would do, at each place
 * where it can happen. A library for LD_PRELOAD (test_torture.py), and linked into a test, whose own calls and those of
 * all its libraries come here too. It says how:
 *
 *   MCC_TORTURE_CALLS   "memory", "system", or one name of the table below
 *   MCC_TORTURE_AT      N: the first of these calls is 1. 0: none fails
 *   MCC_TORTURE_EVERY   set: the calls after the N-th fail too
 *   MCC_TORTURE_ERRNO   the number that errno gets; 0: read and write move one byte, what else fails says EIO
 *   MCC_TORTURE_WORKER  "1": only processes whose first argument is --worker count; else all but those
 *   MCC_TORTURE_COUNT   a file: each process that counts appends a line with its number of calls
 *
 * A test steers it with what shim.h has. Sanitizers have an allocator of their own: there the shim is empty.
 */
#include "tests/torture/shim.h"

#if !TORTURE_ABSENT
#pragma GCC visibility push(default)
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);

static struct {
    atomic_long at, calls, live;
    bool memory, system, every;
    const char *only; /* one call's name */
    int error;
    int counts; /* where the count goes: open from the beginning, a worker's sandbox lets nothing be opened to write */
} torture;

void torture_set(enum torture_kind kind, long at)
{
    torture.memory = kind == TORTURE_MEMORY;
    torture.system = kind == TORTURE_SYSTEM;
    atomic_store(&torture.calls, 0);
    atomic_store(&torture.at, at);
}

long torture_calls(void)
{
    return atomic_load(&torture.calls);
}
long torture_live(void)
{
    return atomic_load(&torture.live);
}

static void put_count(void)
{
    const char *path = getenv("MCC_TORTURE_COUNT");
    char line[32];
    int n = snprintf(line, sizeof line, "%ld\n", torture_calls());
    torture_set(TORTURE_NONE, 0);
    torture.only = NULL;
    int fd = torture.counts;
    if (path && fd >= 0 && write(fd, line, (size_t)n) != n)
        abort();
}

static bool is_worker(void)
{
    char line[4096] = {0};
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, line, sizeof line - 1);
    if (fd >= 0)
        close(fd);
    size_t first = strlen(line) + 1;
    return n > 0 && first < (size_t)n && strcmp(line + first, "--worker") == 0;
}

__attribute__((constructor)) static void begin(void)
{
    const char *calls = getenv("MCC_TORTURE_CALLS"), *at = getenv("MCC_TORTURE_AT"),
               *error = getenv("MCC_TORTURE_ERRNO");
    const char *worker = getenv("MCC_TORTURE_WORKER");
    if (!calls || is_worker() != (worker && *worker == '1'))
        return;
    torture.error = error ? atoi(error) : EIO;
    torture.every = getenv("MCC_TORTURE_EVERY") != NULL;
    const char *path = getenv("MCC_TORTURE_COUNT");
    torture.counts = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    atexit(put_count);
    enum torture_kind kind = strcmp(calls, "memory") == 0   ? TORTURE_MEMORY
                             : strcmp(calls, "system") == 0 ? TORTURE_SYSTEM
                                                            : TORTURE_NONE;
    torture.only = kind == TORTURE_NONE ? calls : NULL;
    torture_set(kind, at ? atol(at) : 0);
}

/* Is this the call that fails? */
static bool fails(enum torture_kind kind, const char *name)
{
    if (!(kind == TORTURE_MEMORY ? torture.memory : torture.system) &&
        !(torture.only && strcmp(torture.only, name) == 0))
        return false;
    long n = atomic_fetch_add(&torture.calls, 1) + 1, at = atomic_load(&torture.at);
    if (!at || (torture.every ? n < at : n != at))
        return false;
    errno = kind == TORTURE_MEMORY ? ENOMEM : torture.error ? torture.error : EIO;
    return true;
}

/* ---- memory ---- */

static void *counted(void *block)
{
    if (block)
        atomic_fetch_add(&torture.live, 1);
    return block;
}

void *malloc(size_t n)
{
    return fails(TORTURE_MEMORY, "malloc") ? NULL : counted(__libc_malloc(n));
}
void *calloc(size_t n, size_t size)
{
    return fails(TORTURE_MEMORY, "calloc") ? NULL : counted(__libc_calloc(n, size));
}
void *memalign(size_t align, size_t n)
{
    return fails(TORTURE_MEMORY, "memalign") ? NULL : counted(__libc_memalign(align, n));
}
void *aligned_alloc(size_t align, size_t n)
{
    return memalign(align, n);
}

int posix_memalign(void **out, size_t align, size_t n)
{
    void *block = memalign(align, n);
    if (!block)
        return ENOMEM;
    *out = block;
    return 0;
}

void *realloc(void *block, size_t n)
{
    if (fails(TORTURE_MEMORY, "realloc"))
        return NULL;
    return block ? __libc_realloc(block, n) : counted(__libc_realloc(NULL, n));
}

void free(void *block)
{
    if (block)
        atomic_fetch_sub(&torture.live, 1);
    __libc_free(block);
}

/* ---- the system ---- */

/* NAME(ARGS) -> what the C library's does, or `failed`. */
#define SYSTEM_CALL(type, name, failed, params, args)               \
    type name params                                                \
    {                                                               \
        static type(*next) params;                                  \
        if (!next)                                                  \
            next = (type(*) params)(size_t)dlsym(RTLD_NEXT, #name); \
        return fails(TORTURE_SYSTEM, #name) ? (failed) : next args; \
    }

/* The same, but without an error number a single byte is moved. */
#define SYSTEM_MOVE(name, params, args, args_of_one)                   \
    ssize_t name params                                                \
    {                                                                  \
        static ssize_t(*next) params;                                  \
        if (!next)                                                     \
            next = (ssize_t(*) params)(size_t)dlsym(RTLD_NEXT, #name); \
        if (!fails(TORTURE_SYSTEM, #name))                             \
            return next args;                                          \
        return torture.error || n < 2 ? -1 : next args_of_one;         \
    }

#define SYSTEM_OPEN(name, params, args)                            \
    int name params                                                \
    {                                                              \
        static int(*next) params;                                  \
        va_list rest;                                              \
        va_start(rest, flags);                                     \
        mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;  \
        va_end(rest);                                              \
        if (!next)                                                 \
            next = (int(*) params)(size_t)dlsym(RTLD_NEXT, #name); \
        return fails(TORTURE_SYSTEM, #name) ? -1 : next args;      \
    }

SYSTEM_OPEN(open, (const char *path, int flags, ...), (path, flags, mode))
SYSTEM_OPEN(openat, (int folder, const char *path, int flags, ...), (folder, path, flags, mode))
SYSTEM_MOVE(read, (int fd, void *to, size_t n), (fd, to, n), (fd, to, 1))
SYSTEM_MOVE(pread, (int fd, void *to, size_t n, off_t at), (fd, to, n, at), (fd, to, 1, at))
SYSTEM_MOVE(write, (int fd, const void *from, size_t n), (fd, from, n), (fd, from, 1))
SYSTEM_MOVE(pwrite, (int fd, const void *from, size_t n, off_t at), (fd, from, n, at), (fd, from, 1, at))
SYSTEM_MOVE(send, (int fd, const void *from, size_t n, int flags), (fd, from, n, flags), (fd, from, 1, flags))
SYSTEM_MOVE(recv, (int fd, void *to, size_t n, int flags), (fd, to, n, flags), (fd, to, 1, flags))
SYSTEM_CALL(int, fsync, -1, (int fd), (fd))
SYSTEM_CALL(int, ftruncate, -1, (int fd, off_t size), (fd, size))
SYSTEM_CALL(int, rename, -1, (const char *from, const char *to), (from, to))
SYSTEM_CALL(int, renameat, -1, (int a, const char *from, int b, const char *to), (a, from, b, to))
SYSTEM_CALL(int, stat, -1, (const char *path, struct stat *out), (path, out))
SYSTEM_CALL(int, lstat, -1, (const char *path, struct stat *out), (path, out))
SYSTEM_CALL(int, fstat, -1, (int fd, struct stat *out), (fd, out))
SYSTEM_CALL(int, access, -1, (const char *path, int mode), (path, mode))
SYSTEM_CALL(int, mkdir, -1, (const char *path, mode_t mode), (path, mode))
SYSTEM_CALL(int, unlink, -1, (const char *path), (path))
SYSTEM_CALL(void *, mmap, MAP_FAILED, (void *at, size_t n, int prot, int flags, int fd, off_t from),
            (at, n, prot, flags, fd, from))
SYSTEM_CALL(int, memfd_create, -1, (const char *name, unsigned flags), (name, flags))
SYSTEM_CALL(int, socketpair, -1, (int domain, int type, int protocol, int fd[2]), (domain, type, protocol, fd))
SYSTEM_CALL(int, dup2, -1, (int from, int to), (from, to))
SYSTEM_CALL(int, poll, -1, (struct pollfd * fd, nfds_t n, int timeout), (fd, n, timeout))
SYSTEM_CALL(int, posix_spawn, errno,
            (pid_t * pid, const char *path, const posix_spawn_file_actions_t *actions,
             const posix_spawnattr_t *attributes, char *const argv[], char *const envp[]),
            (pid, path, actions, attributes, argv, envp))
#pragma GCC visibility pop
#endif
