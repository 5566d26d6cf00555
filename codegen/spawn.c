/* The parent's side of workers: starts them, feeds jobs, collects results, explains deaths.
 *
 * Workers are this very binary (options->self) started with posix_spawn, each on one socket pair that is its standard
 * input and output. One poll loop serves all; which worker takes which job changes nothing in the results, since jobs
 * do not know of each other and results are stored by job. While the parent makes further jobs, it looks at its workers
 * now and then (pool_step). A worker takes some 10 ms to start, so the first may do it before there is a job for it
 * (pool_warm), and all rest between jobs until the pool is ended. A worker that dies takes its job with it: the job is
 * written to a file that replays it, and the class of the failure comes from how the worker ended.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "codegen/wire.h"
#include "ir/base/file.h"

extern char **environ;

enum { WORKERS_MAX = 64, TEXT_MAX = 600, ENVIRONMENT_MAX = 64 };

struct worker {
    pid_t pid;                  /* 0: none, or its end was waited for */
    int fd;                     /* -1: none */
    bool answered;              /* it has sent something: it is one of ours */
    int broken;                 /* errno of a failed send or recv; 0: none */
    uint32_t job;               /* index of its job; UINT32_MAX: idle */
    const char *out;            /* what is still to be sent of the job */
    size_t out_left;
    struct wire_result head;
    size_t got;                 /* bytes of head and body received */
    char *body;
};

struct pool {
    struct context *ctx;
    struct arena *arena;
    struct codegen_options options;
    VEC(struct job) jobs;
    uint32_t n_given;
    struct worker worker[WORKERS_MAX];
    uint32_t n_workers, workers_max;
    job_done *done;             /* told of each result; NULL: nobody */
    void *user;
    bool ok;
    bool unconfined;            /* it was said that workers have no sandbox */
};

/* ---- starting and ending ---- */

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

static int spawn_on(const struct codegen_options *o, int fd, pid_t *pid)
{
    int err = o->verbose ? 2 : open_nowhere();
    int status = err < 0 ? errno : spawn_with(o, fd, err, pid);
    if (err > 2)
        close(err);
    return status;
}

static bool worker_start(struct pool *p, struct worker *w)
{
    int fd[2];
    w->fd = -1;
    w->pid = 0;
    w->job = UINT32_MAX;
    w->broken = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) < 0)
        return error_env(p->ctx, "cannot start a worker: %s", strerror(errno));
    /* Above the standard descriptors, so that dup2 in the child cannot overwrite what it still needs. */
    int child = fcntl(fd[1], F_DUPFD_CLOEXEC, 3);
    int status = child < 0 ? errno : spawn_on(&p->options, child, &w->pid);
    if (child >= 0)
        close(child);
    close(fd[1]);
    if (status) {
        close(fd[0]);
        return error_at(p->ctx, status == ENOMEM ? FAIL_LIMIT : FAIL_ENV, (src_id){0}, NULL,
                        "cannot start the worker '%s': %s", p->options.self, strerror(status));
    }
    fcntl(fd[0], F_SETFL, O_NONBLOCK);
    w->fd = fd[0];
    return true;
}

/* A worker whose connection is closed ends by itself. */
static void worker_dismiss(struct worker *w)
{
    if (w->fd >= 0)
        close(w->fd);
    w->fd = -1;
}

static int worker_end(struct worker *w)
{
    int status = 0;
    worker_dismiss(w);
    if (w->pid)
        while (waitpid(w->pid, &status, 0) < 0 && errno == EINTR)
            continue;
    w->pid = 0;
    return status;
}

/* ---- a job as bytes ---- */

struct span job_bytes(struct arena *arena, const struct job *job)
{
    size_t size = sizeof job->head;
    for (uint64_t i = 0; i < job->head.n_parts; i++)
        size += sizeof(uint64_t) + job->parts[i].size;
    char *data = arena_alloc(arena, size), *p = data;
    memcpy(p, &job->head, sizeof job->head);
    p += sizeof job->head;
    for (uint64_t i = 0; i < job->head.n_parts; i++) {
        uint64_t n = job->parts[i].size;
        memcpy(p, &n, sizeof n);
        p += sizeof n;
        if (n)
            memcpy(p, job->parts[i].data, n);
        p += n;
    }
    return (struct span){data, size};
}

/* Writes the job where its failure can be repeated; the name, or NULL. */
static const char *keep_replay(struct pool *p, const struct job *job)
{
    char *name = arena_printf(p->arena, "%s/mcc-replay-XXXXXX", temp_folder());
    struct span bytes = job_bytes(p->arena, job);
    int fd = mkstemp(name);
    if (fd < 0)
        return NULL;
    bool whole = fd_write(fd, bytes.data, bytes.size);
    close(fd);
    if (!whole)
        unlink(name);
    return whole ? name : NULL;
}

static bool no_memory(struct pool *p, const struct job *job)
{
    return error_limit(p->ctx, (src_id){0}, "%s: the worker ran out of memory%s", job->what,
                       p->options.worker_memory > 0 ? " (--limit-worker-memory)" : "");
}

static void report_death(struct pool *p, const struct job *job, int status, const char *said, bool answered)
{
    char why[160];
    if (!answered && WIFEXITED(status) && (WEXITSTATUS(status) == 126 || WEXITSTATUS(status) == 127)) {
        error_env(p->ctx, "the worker '%s' does not start", p->options.self);
        return;
    }
    /* It ended before it could tell: memory ended while it started, or its connection failed. */
    if (WIFEXITED(status) && WEXITSTATUS(status) == FAIL_LIMIT) {
        (void)no_memory(p, job);
        return;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == FAIL_ENV) {
        error_env(p->ctx, "%s: the connection to the worker failed", job->what);
        return;
    }
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU) {
        error_limit(p->ctx, (src_id){0}, "%s: the worker ran out of processor time", job->what);
        return;
    }
    if (WIFSIGNALED(status))
        snprintf(why, sizeof why, "the worker died of signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(why, sizeof why, "the worker ended with status %d", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    const char *replay = keep_replay(p, job);
    error_internal(p->ctx, (src_id){0}, "%s: %s%s%s%s%s%s", job->what, why, said ? ": " : "", said ? said : "",
                   replay ? "; replay: mcc --worker <" : "", replay ? replay : "", replay ? " >/dev/null" : "");
}

/* ---- the state of one worker ---- */

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Of those that wait, the longest: then no worker begins a long one when the others are done. */
static uint32_t job_next(const struct pool *p)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t i = 0; i < p->jobs.n; i++)
        if (!p->jobs.data[i].given && (best == UINT32_MAX || p->jobs.data[i].length > p->jobs.data[best].length))
            best = i;
    return best;
}

static void give_job(struct pool *p, struct worker *w)
{
    w->job = p->ok ? job_next(p) : UINT32_MAX;
    if (w->job == UINT32_MAX)
        return;
    struct job *job = &p->jobs.data[w->job];
    p->n_given++;
    job->given = true;
    job->began = now_ms();
    job->worker = (uint32_t)(w - p->worker);
    struct span bytes = job_bytes(p->arena, job);
    w->out = bytes.data;
    w->out_left = bytes.size;
    w->got = 0;
    w->body = NULL;
}

static void worker_lost(struct pool *p, struct worker *w)
{
    const struct job *job = &p->jobs.data[w->job];
    int status = worker_end(w);
    if (w->broken)
        error_env(p->ctx, "%s: the connection to the worker failed: %s", job->what, strerror(w->broken));
    else
        report_death(p, job, status, NULL, w->answered);
    w->job = UINT32_MAX;
    p->ok = false;
}

static void worker_send(struct pool *p, struct worker *w)
{
    ssize_t n = send(w->fd, w->out, w->out_left, MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n < 0) { /* it may have said why before it went: the receiving side finds out; if it has not gone, it ends */
        w->out_left = 0;
        if (errno != EPIPE && errno != ECONNRESET)
            w->broken = errno;
        shutdown(w->fd, SHUT_WR);
        return;
    }
    w->out += n;
    w->out_left -= (size_t)n;
    (void)p;
}

/* The first line of what a worker said. */
static const char *clip(struct arena *arena, const char *text, size_t size)
{
    const char *line = memchr(text, '\n', size);
    if (line)
        size = (size_t)(line - text);
    return arena_strndup(arena, text, size < TEXT_MAX ? size : TEXT_MAX);
}

/* Once for all workers: they are alike. */
static void tell_unconfined(struct pool *p)
{
    if (!p->unconfined && !p->options.no_sandbox_warning)
        warn_at(p->ctx, (src_id){0}, "sandbox",
                "this system has no seccomp filters for mcc, so that LLVM runs without its sandbox; "
                "--require-sandbox makes this an error, -Wno-sandbox leaves the warning out");
    p->unconfined = true;
    p->ok = p->ok && p->ctx->fail == FAIL_NONE; /* -Werror */
}

static void worker_finish(struct pool *p, struct worker *w)
{
    struct job *job = &p->jobs.data[w->job];
    w->answered = true;
    job->ended = now_ms();
    if (!w->head.confined && w->head.status != WIRE_UNCONFINED)
        tell_unconfined(p);
    switch (w->head.status) {
    case WIRE_OK:
        job->result = (struct span){w->body, w->head.size};
        if (p->done)
            p->done(p->user, w->job, job);
        break;
    case WIRE_NO_MEMORY: p->ok = no_memory(p, job); break;
    case WIRE_ENVIRONMENT: p->ok = error_env(p->ctx, "%s: %s", job->what, clip(p->arena, w->body, w->head.size)); break;
    case WIRE_UNCONFINED:
        p->ok = error_env(p->ctx, "--require-sandbox: this system has no seccomp filters for mcc, which LLVM's sandbox "
                                  "needs");
        break;
    case WIRE_FATAL:
        report_death(p, job, worker_end(w), clip(p->arena, w->body, w->head.size), true);
        p->ok = false;
        break;
    default:
        p->ok = error_internal(p->ctx, (src_id){0}, "%s: %s", job->what, clip(p->arena, w->body, w->head.size));
        break;
    }
    if (w->fd >= 0)
        give_job(p, w);
}

/* Receives what is there: first the head, then the body. False: the connection is over. */
static bool worker_receive(struct pool *p, struct worker *w)
{
    char *to = (char *)&w->head + w->got;
    size_t want = sizeof w->head - w->got;
    if (w->got >= sizeof w->head) {
        to = w->body + (w->got - sizeof w->head);
        want = w->head.size - (w->got - sizeof w->head);
    }
    ssize_t n = recv(w->fd, to, want, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (n < 0 && errno != ECONNRESET)
        w->broken = errno;
    if (n <= 0)
        return false;
    w->got += (size_t)n;
    if (w->got == sizeof w->head) {
        if (w->head.magic != WIRE_MAGIC || w->head.size > (UINT64_C(1) << 40))
            return false;
        w->body = arena_alloc(p->arena, w->head.size + 1);
    }
    if (w->got >= sizeof w->head && w->got - sizeof w->head == w->head.size)
        worker_finish(p, w);
    return true;
}

/* ---- all of them ---- */

/* Sends and receives what is possible; waits for something if wanted. */
static void pool_exchange(struct pool *p, bool wait)
{
    struct pollfd polled[WORKERS_MAX];
    struct worker *who[WORKERS_MAX];
    nfds_t n = 0;
    for (uint32_t i = 0; i < p->n_workers; i++) {
        struct worker *w = &p->worker[i];
        if (w->fd < 0 || w->job == UINT32_MAX)
            continue;
        who[n] = w;
        polled[n++] = (struct pollfd){w->fd, (short)(POLLIN | (w->out_left ? POLLOUT : 0)), 0};
    }
    int ready = poll(polled, n, wait ? -1 : 0);
    if (ready < 0 && errno != EINTR && errno != EAGAIN)
        p->ok = error_env(p->ctx, "cannot wait for the workers: %s", strerror(errno));
    if (ready <= 0)
        return;
    for (nfds_t i = 0; i < n; i++) {
        if (polled[i].revents & POLLOUT)
            worker_send(p, who[i]);
        if (polled[i].revents & (POLLIN | POLLHUP | POLLERR) && !worker_receive(p, who[i]))
            worker_lost(p, who[i]);
    }
}

/* Jobs that wait to workers that rest, or to new ones. */
static void pool_employ(struct pool *p)
{
    for (uint32_t i = 0; i < p->workers_max && p->ok && p->n_given < p->jobs.n; i++) {
        struct worker *w = &p->worker[i];
        if (i == p->n_workers) {
            p->ok = worker_start(p, w);
            p->n_workers += p->ok;
        }
        if (p->ok && w->fd >= 0 && w->job == UINT32_MAX)
            give_job(p, w);
    }
}

static uint32_t n_busy(const struct pool *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_workers; i++)
        n += p->worker[i].fd >= 0 && p->worker[i].job != UINT32_MAX;
    return n;
}

struct pool *pool_new(struct context *ctx, struct arena *arena, const struct codegen_options *options, job_done *done,
                      void *user)
{
    struct pool *p = NEW(arena, struct pool);
    *p = (struct pool){.ctx = ctx, .arena = arena, .options = *options, .done = done, .user = user, .ok = true};
    p->workers_max = options->jobs < 1 ? 1 : options->jobs < WORKERS_MAX ? options->jobs : WORKERS_MAX;
    for (uint32_t i = 0; i < WORKERS_MAX; i++)
        p->worker[i].fd = -1;
    return p;
}

void pool_add(struct pool *p, const struct job *jobs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct job job = jobs[i];
        job.head.magic = WIRE_MAGIC;
        job.head.memory = p->options.worker_memory;
        job.head.confine = p->options.require_sandbox;
        job.length = 0;
        for (uint64_t k = 0; k < job.head.n_parts; k++)
            job.length += job.parts[k].size;
        job.given = false;
        VEC_PUSH(p->arena, &p->jobs, job);
    }
}

void pool_warm(struct pool *p)
{
    if (!p->ok || p->n_workers)
        return;
    p->ok = worker_start(p, &p->worker[0]);
    p->n_workers += p->ok;
}

bool pool_step(struct pool *p)
{
    pool_employ(p);
    if (p->ok)
        pool_exchange(p, false);
    return p->ok;
}

void pool_dismiss(struct pool *p, uint32_t keep)
{
    for (uint32_t i = keep; i < p->n_workers; i++)
        worker_dismiss(&p->worker[i]);
}

void pool_end(struct pool *p)
{
    for (uint32_t i = 0; i < p->n_workers; i++)
        if (p->worker[i].fd >= 0 && p->worker[i].job != UINT32_MAX)
            kill(p->worker[i].pid, SIGKILL);
    pool_dismiss(p, 0);
    for (uint32_t i = 0; i < p->n_workers; i++)
        worker_end(&p->worker[i]);
}

/* An unwinding (memory) must not leave children behind: they are ended, then it goes on. */
bool pool_wait(struct pool *p)
{
    jmp_buf *outer = p->ctx->unwind, here;
    p->ctx->unwind = &here;
    volatile bool unwound = false;
    if (setjmp(here) == 0) {
        pool_employ(p);
        while (p->ok && n_busy(p) > 0)
            pool_exchange(p, true);
    } else {
        unwound = true;
    }
    if (unwound || !p->ok)
        pool_end(p);
    p->ctx->unwind = outer;
    if (unwound && outer)
        longjmp(*outer, 1);
    return p->ok;
}

const struct job *pool_job(const struct pool *p, uint32_t i)
{
    return &p->jobs.data[i];
}
