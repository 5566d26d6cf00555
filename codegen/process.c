/* Worker processes, see process.h. Their processor time is the kernel's count: a worker has no say in it. */
#include "codegen/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

enum { ENVIRONMENT_MAX = 64, END_MS = 5000 };

/* Where LLVM's talk goes; -1 with errno. Without /dev (a bare chroot), memory that the worker takes with it. */
static int open_nowhere(void)
{
    int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    return fd >= 0 ? fd : memfd_create("mcc-stderr", MFD_CLOEXEC);
}

/* A worker's environment: what starting a program takes, what sanitizers, coverage and tests read. Nothing else of the
 * user's: LLVM and lld let variables change what they do (LLD_REPRODUCE writes a file). */
static void fill_environment(char *out[ENVIRONMENT_MAX])
{
    static const char *const passed[] = {
        "PATH=",          "LD_LIBRARY_PATH=", "LD_PRELOAD=",        "ASAN_OPTIONS=", "LSAN_OPTIONS=",
        "UBSAN_OPTIONS=", "TSAN_OPTIONS=",    "LLVM_PROFILE_FILE=", "MCC_",
    };
    static char locale[] = "LC_ALL=C";
    uint32_t n = 0;
    out[n++] = locale;
    for (char **e = environ; e && *e; e++)
        for (size_t i = 0; i < COUNT_OF(passed) && n < ENVIRONMENT_MAX - 1; i++)
            if (strncmp(*e, passed[i], strlen(passed[i])) == 0)
                out[n++] = *e;
    out[n] = NULL;
}

static int spawn_with(const struct codegen_options *o, int fd, int err, pid_t *pid)
{
    char *environment[ENVIRONMENT_MAX];
    posix_spawn_file_actions_t actions;
    char *argv[] = {(char[]){"mcc"}, (char[]){"--worker"}, NULL};
    int status = posix_spawn_file_actions_init(&actions);
    if (status)
        return status;
    status = posix_spawn_file_actions_adddup2(&actions, fd, 0);
    if (!status)
        status = posix_spawn_file_actions_adddup2(&actions, fd, 1);
    if (!status && err != 2)
        status = posix_spawn_file_actions_adddup2(&actions, err, 2);
#if __GLIBC_PREREQ(2, 34) /* what the host of libmcc has open is none of the worker's business */
    if (!status)
        status = posix_spawn_file_actions_addclosefrom_np(&actions, 3);
#endif
    fill_environment(environment);
    if (!status)
        status = posix_spawn(pid, o->self, &actions, NULL, argv, environment);
    posix_spawn_file_actions_destroy(&actions);
    return status;
}

int process_start(struct process *p, const struct codegen_options *o, int fd)
{
    *p = (struct process){.began = time_now()};
    int err = o->verbose ? 2 : open_nowhere();
    int status = err < 0 ? errno : spawn_with(o, fd, err, &p->pid);
    if (err > 2)
        close(err);
    return status;
}

/* Where the system does not tell, it counts as always at work. */
double process_used(struct process *p)
{
    struct timespec t;
    clockid_t clock;
    if (!p->pid)
        return p->used;
    bool known = clock_getcpuclockid(p->pid, &clock) == 0 && clock_gettime(clock, &t) == 0;
    p->used = known ? (double)t.tv_sec + (double)t.tv_nsec / 1e9 : time_now() - p->began;
    return p->used;
}

void process_kill(const struct process *p)
{
    if (p->pid)
        kill(p->pid, SIGKILL);
}

int process_end(struct process *p)
{
    struct rusage usage = {0};
    int status = 0;
    pid_t ended = 0;
    for (int waited = 0; p->pid && ended == 0; waited++) {
        if (waited == END_MS)
            process_kill(p);
        ended = wait4(p->pid, &status, waited < END_MS ? WNOHANG : 0, &usage);
        if (ended < 0 && errno == EINTR)
            ended = 0;
        else if (ended == 0)
            nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    double used = (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec / 1e6 + (double)usage.ru_stime.tv_sec +
                  (double)usage.ru_stime.tv_usec / 1e6;
    p->used = used > p->used ? used : p->used;
    p->pid = 0;
    return status;
}
