/* The parent's side of workers: starts them, feeds jobs, collects results, explains deaths.
 *
 * Workers are this very binary (options->self) started with posix_spawn, each on one socket pair that is its standard
 * input and output. One poll loop serves all; which worker takes which job changes nothing in the results, since jobs
 * do not know of each other and results are stored by job. While the parent makes further jobs, it looks at its workers
 * now and then (pool_step). A worker takes some 10 ms to start, so the first may do it before there is a job for it
 * (pool_warm), and all rest between jobs until the pool is ended. A worker that dies takes its job with it: the job is
 * written to a file that replays it, and the class of the failure comes from how the worker ended.
 *
 * If the compilation's processor time is limited, each look at the workers counts what they have used by now, and the
 * parent looks every LOOK_MS while it waits. A worker with a job must use a LEAST_SHARE-th of each stretch of
 * STRETCH_MIN to STRETCH_MAX seconds, else it is stopped or waits for something. Only the time that the parent spends
 * in poll() counts: a terminal may stop all of them.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "codegen/process.h"
#include "codegen/wire.h"
#include "ir/base/file.h"

enum { WORKERS_MAX = 64, TEXT_MAX = 600 };
enum { LOOK_MS = 100, STRETCH_MIN = 5, STRETCH_MAX = 60, LEAST_SHARE = 1000, SECONDS_MAX = 1 << 30 };

struct worker {
    struct process process;
    double counted;             /* of its processor time: in ctx->time.workers */
    double awaited, used;       /* seconds of a stretch of waiting for it; its processor time before that */
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
    job_done *done;             /* called with each result; NULL: none */
    void *user;
    bool ok;
    bool finished;              /* pool_wait: all jobs are done */
    bool unconfined;            /* it was said that workers have no sandbox */
};

/* ---- starting and ending ---- */

static bool worker_start(struct pool *p, struct worker *w)
{
    int fd[2];
    w->fd = -1;
    w->counted = 0;
    w->job = UINT32_MAX;
    w->broken = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) < 0)
        return error_env(p->ctx, "cannot start a worker: %s", strerror(errno));
    /* Above the standard descriptors, so that dup2 in the child cannot overwrite what it still needs. */
    int child = fcntl(fd[1], F_DUPFD_CLOEXEC, 3);
    int status = child < 0 ? errno : process_start(&w->process, &p->options, child);
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

/* What it used since the last time counts. */
static void worker_count(struct pool *p, struct worker *w)
{
    p->ctx->time.workers += w->process.used - w->counted;
    w->counted = w->process.used;
}

static int worker_end(struct pool *p, struct worker *w)
{
    worker_dismiss(w);
    int status = process_end(&w->process);
    worker_count(p, w);
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
        if (!time_is_over(p->ctx)) /* else that is what it says */
            error_limit(p->ctx, (src_id){0}, "%s: the worker ran out of the processor time that the system gives it",
                        job->what);
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

/* Of those that wait, the longest: then no worker begins a long one when the others are done. */
static uint32_t job_next(const struct pool *p)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t i = 0; i < p->jobs.n; i++)
        if (!p->jobs.data[i].given && (best == UINT32_MAX || p->jobs.data[i].length > p->jobs.data[best].length))
            best = i;
    return best;
}

/* RLIMIT_CPU for a worker: it ends by itself where nobody looks after it any more. 0: none. */
static int64_t seconds_for(const struct pool *p, const struct worker *w)
{
    double left = time_left(p->ctx) + w->counted + 1;
    return isinf(left) ? 0 : left < 1 ? 1 : left < SECONDS_MAX ? (int64_t)ceil(left) : SECONDS_MAX;
}

static void give_job(struct pool *p, struct worker *w)
{
    w->job = p->ok ? job_next(p) : UINT32_MAX;
    if (w->job == UINT32_MAX)
        return;
    struct job *job = &p->jobs.data[w->job];
    p->n_given++;
    job->given = true;
    job->began = time_now() * 1e3;
    job->worker = (uint32_t)(w - p->worker);
    struct job sent = *job; /* a replay has all the time that it wants */
    sent.head.seconds = seconds_for(p, w);
    struct span bytes = job_bytes(p->arena, &sent);
    w->awaited = 0;
    w->out = bytes.data;
    w->out_left = bytes.size;
    w->got = 0;
    w->body = NULL;
}

static void worker_lost(struct pool *p, struct worker *w)
{
    const struct job *job = &p->jobs.data[w->job];
    int status = worker_end(p, w);
    if (w->broken)
        error_env(p->ctx, "%s: the connection to the worker failed: %s", job->what, strerror(w->broken));
    else
        report_death(p, job, status, NULL, w->answered);
    w->job = UINT32_MAX;
    p->ok = false;
}

static void worker_send(struct worker *w)
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
    job->ended = time_now() * 1e3;
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
        report_death(p, job, worker_end(p, w), clip(p->arena, w->body, w->head.size), true);
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

/* A worker with a job was waited for, for so many seconds more. False after a diagnostic: it gets nothing done. */
static bool worker_works(struct pool *p, struct worker *w, double waited)
{
    double most = p->ctx->time.most, stretch = most < STRETCH_MIN   ? STRETCH_MIN
                                               : most > STRETCH_MAX ? STRETCH_MAX
                                                                    : most;
    if (w->awaited <= 0)
        w->used = w->counted;
    w->awaited += waited;
    if (w->awaited < stretch)
        return true;
    double used = w->counted - w->used;
    w->awaited = 0;
    return used >= stretch / LEAST_SHARE ||
           error_limit(p->ctx, (src_id){0},
                       "%s: the worker used %.3f s of processor time in %g s: it is stopped or waits for something "
                       "(--limit-compile-time)",
                       p->jobs.data[w->job].what, used, stretch);
}

/* Is there time left, and does each worker use it? */
static void pool_look(struct pool *p, double waited)
{
    for (uint32_t i = 0; i < p->n_workers; i++) {
        process_used(&p->worker[i].process);
        worker_count(p, &p->worker[i]);
    }
    p->ok = p->ok && !time_is_over(p->ctx);
    for (uint32_t i = 0; i < p->n_workers && p->ok; i++)
        if (p->worker[i].fd >= 0 && p->worker[i].job != UINT32_MAX)
            p->ok = worker_works(p, &p->worker[i], waited);
}

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
    bool limited = p->ctx->time.most > 0;
    double before = limited ? time_now() : 0;
    int ready = poll(polled, n, !wait ? 0 : limited ? LOOK_MS : -1);
    if (ready < 0 && errno != EINTR && errno != EAGAIN)
        p->ok = error_env(p->ctx, "cannot wait for the workers: %s", strerror(errno));
    double waited = limited ? time_now() - before : 0;
    for (nfds_t i = 0; i < n && ready > 0; i++) {
        if (polled[i].revents & POLLOUT)
            worker_send(who[i]);
        if (polled[i].revents & (POLLIN | POLLHUP | POLLERR) && !worker_receive(p, who[i]))
            worker_lost(p, who[i]);
    }
    if (limited)
        pool_look(p, waited < LOOK_MS / 1e3 ? waited : LOOK_MS / 1e3);
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
    bool failed = !p->ok || p->ctx->fail != FAIL_NONE;
    for (uint32_t i = 0; i < p->n_workers; i++)
        if (p->worker[i].fd >= 0 && (failed || p->worker[i].job != UINT32_MAX))
            process_kill(&p->worker[i].process);
    pool_dismiss(p, 0);
    for (uint32_t i = 0; i < p->n_workers; i++)
        worker_end(p, &p->worker[i]);
}

/* An unwinding (memory, time) must not leave children behind: they are ended, then it goes on. */
static bool pool_finish(void *user)
{
    struct pool *p = user;
    pool_employ(p);
    while (p->ok && n_busy(p) > 0)
        pool_exchange(p, true);
    p->finished = p->ok;
    return p->ok;
}

static void pool_settle(void *user)
{
    struct pool *p = user;
    if (!p->finished)
        pool_end(p);
}

bool pool_wait(struct pool *p)
{
    p->finished = false;
    return run_guarded(p->ctx, pool_finish, pool_settle, p);
}

const struct job *pool_job(const struct pool *p, uint32_t i)
{
    return &p->jobs.data[i];
}
