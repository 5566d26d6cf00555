/* What a worker cannot do any more once it has started, each thing tried in a process of its own; and that workers do
 * start it. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
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
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "codegen/codegen.h"
#include "codegen/sandbox.h"
#include "codegen/wire.h"

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
    int fd[2];
    char path[64], text[4096];
    struct wire_job job = {.magic = WIRE_MAGIC, .kind = 77};
    struct wire_result result;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(fd[1], 0);
        dup2(fd[1], 1);
        close(fd[0]);
        execl("/proc/self/exe", "mcc", "--worker", (char *)NULL);
        _exit(9);
    }
    close(fd[1]);
    assert_int_equal(write(fd[0], &job, sizeof job), sizeof job);
    assert_int_equal(read(fd[0], &result, sizeof result), sizeof result);
    snprintf(path, sizeof path, "/proc/%d/status", (int)child);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    close(fd[0]);
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
