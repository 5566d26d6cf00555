/* Threads. A kernel's parallel indices are cut into chunks that are claimed in ascending order by whoever is free; the
 * caller takes part, can finish everything alone, and at the end waits only for chunks that somebody really claimed. So
 * a preempted or busy worker costs one chunk, not a barrier.
 *
 * A pool belongs to an open model and starts at the first launch that is worth it. It serves one run at a time; a second
 * run meanwhile works alone in its own thread. Results cannot depend on any of this: indices are independent, and what
 * a kernel sums up it sums in an order fixed by shapes. After fork() the child's copy has no threads, which the process
 * id tells, and starts its own.
 */
#include "runtime/rt_internal.h"

#include "runtime/rt_fp.h"
#include "runtime/rt_libc.h"
#include "runtime/rt_sys.h"

enum {
    SERIAL_NS = 10000,         /* less work than this is not worth waking anybody: a futex round trip is 5 to 10 us */
    CHUNK_NS = 30000,          /* long against a claim (0.1 us), short against a preemption */
    CHUNK_MIN_NS = 3000,
    POLL_NS = 200000,          /* a run alone looks for cancel this often */
    CHUNKS_PER_THREAD = 4,     /* at least, for balance, where CHUNK_MIN_NS allows */
    SPIN_NS = 50000,           /* before sleeping: as long as two chunks */
    CHUNKS_MAX = 1 << 30
};

uint64_t rt_clock(void)
{
    struct timespec now = { 0, 0 };
    clock_gettime(1 /* CLOCK_MONOTONIC */, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint32_t rt_cpu_count(void)
{
    uint64_t mask[RT_THREADS_MAX * 4 / 64] = { 0 };
    long bytes = rt_syscall(SYS_getaffinity, 0, sizeof mask, (long)mask, 0, 0, 0);
    uint32_t n = 0;
    for (long i = 0; i < bytes / 8; i++)
        n += (uint32_t)__builtin_popcountll(mask[i]);
    return n == 0 ? 1 : n > RT_THREADS_MAX ? RT_THREADS_MAX : n;
}

static bool has_stopped(const struct mcc_rt_run *run) { return __atomic_load_n(&run->stop, __ATOMIC_RELAXED) != 0; }

/* ---- the pool: claiming ------------------------------------------------------------------------------------- */

/* `remaining` counts down to 0. Whoever lowers it owns a chunk of the job that is current then, even if the thread had
 * read the counter during an earlier job; as long as a chunk is owned the job's fields stay. */
static bool claim(struct rt_pool *pool, uint32_t *chunk)
{
    uint32_t left = __atomic_load_n(&pool->remaining, __ATOMIC_RELAXED);
    do
        if (left == 0)
            return false;
    while (!__atomic_compare_exchange_n(&pool->remaining, &left, left - 1, true, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED));
    *chunk = pool->n_chunks - left;
    return true;
}

static void work(struct rt_pool *pool, uint32_t thread)
{
    uint32_t chunk;
    while (claim(pool, &chunk)) {
        uint32_t n = pool->n_chunks, finished = 1;
        struct mcc_rt_run *run = pool->run;
        if (has_stopped(run)) {
            finished += __atomic_exchange_n(&pool->remaining, 0, __ATOMIC_RELAXED);
        } else {
            int64_t begin = pool->chunk * chunk, end = begin + pool->chunk;
            pool->fn(pool->args, begin, end < pool->count ? end : pool->count,
                     run->scratch + thread * (size_t)run->model->scratch, run);
        }
        /* Pairs with wait_done: either this sees caller_waits or the caller sees the last chunk done. */
        uint32_t before = __atomic_fetch_add(&pool->done, finished, __ATOMIC_SEQ_CST);
        if (before + finished == n && __atomic_load_n(&pool->caller_waits, __ATOMIC_SEQ_CST))
            rt_futex_wake(&pool->done, 1);
    }
}

/* Spins until *word is (equal: `value`, else: anything but) or the time is up. */
static bool spin(const struct rt_pool *pool, uint32_t *word, uint32_t value, bool equal)
{
    if (pool->spin_ns == 0)
        return false;
    uint64_t start = rt_clock();
    do {
        for (int i = 0; i < 64; i++) {
            if ((__atomic_load_n(word, __ATOMIC_RELAXED) == value) == equal)
                return true;
            rt_pause();
        }
    } while (rt_clock() - start < pool->spin_ns);
    return false;
}

static void wait_done(struct rt_pool *pool, uint32_t n)
{
    if (spin(pool, &pool->done, n, true) && __atomic_load_n(&pool->done, __ATOMIC_ACQUIRE) == n)
        return;
    __atomic_store_n(&pool->caller_waits, 1, __ATOMIC_SEQ_CST);
    uint32_t done;
    while ((done = __atomic_load_n(&pool->done, __ATOMIC_SEQ_CST)) != n)
        rt_futex_wait(&pool->done, done);
    __atomic_store_n(&pool->caller_waits, 0, __ATOMIC_RELAXED);
}

static void wait_work(struct rt_pool *pool)
{
    if (spin(pool, &pool->remaining, 0, false))
        return;
    uint32_t epoch = __atomic_load_n(&pool->epoch, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&pool->sleepers, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&pool->remaining, __ATOMIC_SEQ_CST) == 0 && !__atomic_load_n(&pool->stop, __ATOMIC_SEQ_CST))
        rt_futex_wait(&pool->epoch, epoch);
    __atomic_fetch_sub(&pool->sleepers, 1, __ATOMIC_RELAXED);
}

static void *worker_main(void *arg)
{
    struct rt_worker *self = arg;
    rt_fp_enter();
    while (!__atomic_load_n(&self->pool->stop, __ATOMIC_ACQUIRE)) {
        work(self->pool, self->index);
        wait_work(self->pool);
    }
    return NULL;
}

/* ---- the pool: life ---------------------------------------------------------------------------------------------- */

void rt_pool_init(struct rt_pool *pool, uint32_t threads)
{
    *pool = (struct rt_pool){ .spin_ns = threads > 1 && rt_cpu_count() > 1 ? SPIN_NS : 0 };
}

/* Starts as many workers as the system grants; none is fine. Their signals stay blocked: handlers of the host run on
 * its own threads. The two numbers that libc itself uses between threads stay open. */
static void start_workers(struct mcc_model *model)
{
    struct rt_pool *pool = &model->pool;
    uint32_t n = model->threads - 1;
    pool->workers = rt_alloc(model, n * sizeof *pool->workers);
    uint64_t all = ~(uint64_t)0 & ~((uint64_t)3 << 31), saved = 0;
    long masked = rt_syscall(SYS_sigmask, 2 /* SIG_SETMASK */, (long)&all, (long)&saved, 8, 0, 0);
    for (uint32_t i = 0; pool->workers && i < n; i++) {
        struct rt_worker *worker = &pool->workers[i];
        *worker = (struct rt_worker){ .pool = pool, .index = i + 1 };
        if (pthread_create(&worker->thread, NULL, worker_main, worker) != 0)
            break;
        pool->n_workers++;
    }
    if (masked == 0)
        rt_syscall(SYS_sigmask, 2, (long)&saved, 0, 8, 0, 0);
}

/* True: this run owns the pool, whose workers are running. False: work alone. */
static bool pool_take(struct mcc_model *model)
{
    struct rt_pool *pool = &model->pool;
    int32_t self = rt_getpid(), owner = __atomic_load_n(&pool->pid, __ATOMIC_ACQUIRE);
    if (owner != 0 && owner != self) {
        /* A fork's child: the threads, and whatever they were doing, are the parent's. */
        if (owner < 0 || !__atomic_compare_exchange_n(&pool->pid, &owner, -1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return false;
        uint64_t spin_ns = pool->spin_ns;
        *pool = (struct rt_pool){ .spin_ns = spin_ns, .pid = -1 };
        __atomic_store_n(&pool->pid, 0, __ATOMIC_RELEASE);
    }
    if (__atomic_exchange_n(&pool->busy, 1, __ATOMIC_ACQUIRE))
        return false;
    if (__atomic_load_n(&pool->pid, __ATOMIC_RELAXED) == 0) {
        start_workers(model);
        __atomic_store_n(&pool->pid, self, __ATOMIC_RELEASE);
    }
    if (pool->n_workers > 0)
        return true;
    __atomic_store_n(&pool->busy, 0, __ATOMIC_RELEASE);
    return false;
}

void rt_pool_close(struct mcc_model *model)
{
    struct rt_pool *pool = &model->pool;
    if (pool->pid == 0 || pool->pid != rt_getpid())
        return;
    __atomic_store_n(&pool->stop, 1, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&pool->epoch, 1, __ATOMIC_SEQ_CST);
    rt_futex_wake(&pool->epoch, INT32_MAX);
    for (uint32_t i = 0; i < pool->n_workers; i++)
        pthread_join(pool->workers[i].thread, NULL);
    rt_release(model, pool->workers, (model->threads - 1) * sizeof *pool->workers);
    pool->pid = 0;
    pool->n_workers = 0;
}

/* ---- launches --------------------------------------------------------------------------------------------------------- */

static int64_t chunk_size(int64_t count, int64_t ns, uint32_t threads)
{
    int64_t chunk = CHUNK_NS / ns, balanced = count / (threads * CHUNKS_PER_THREAD), least = CHUNK_MIN_NS / ns;
    if (chunk > balanced)
        chunk = balanced;
    if (chunk < least)
        chunk = least;
    if (chunk < count / CHUNKS_MAX + 1)
        chunk = count / CHUNKS_MAX + 1;
    return chunk;
}

static void launch_alone(struct mcc_rt_run *run, mcc_rt_fn *fn, const int64_t *args, int64_t count, int64_t ns)
{
    int64_t chunk = POLL_NS / ns + 1;
    for (int64_t begin = 0; begin < count && !has_stopped(run);) {
        int64_t end = count - begin > chunk ? begin + chunk : count;
        fn(args, begin, end, run->scratch, run);
        begin = end;
    }
}

/* The caller owns the pool. Fields first, then `remaining` makes them visible to whoever claims. */
static void launch_pool(struct mcc_rt_run *run, mcc_rt_fn *fn, const int64_t *args, int64_t count, int64_t chunk)
{
    struct rt_pool *pool = &run->model->pool;
    uint32_t n = (uint32_t)((count - 1) / chunk + 1);
    pool->n_chunks = n;
    pool->fn = fn;
    pool->args = args;
    pool->count = count;
    pool->chunk = chunk;
    pool->run = run;
    __atomic_store_n(&pool->done, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&pool->remaining, n, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&pool->epoch, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&pool->sleepers, __ATOMIC_SEQ_CST))
        rt_futex_wake(&pool->epoch, n - 1 < pool->n_workers ? n - 1 : pool->n_workers);
    work(pool, 0);
    wait_done(pool, n);
    __atomic_store_n(&pool->busy, 0, __ATOMIC_RELEASE);
}

struct host_job {
    struct mcc_rt_run *run;
    mcc_rt_fn *fn;
    const int64_t *args;
    int64_t count, chunk, next;
};

static void host_body(void *arg, size_t i)
{
    struct host_job *job = arg;
    struct mcc_rt_run *run = job->run;
    if (i >= run->threads)
        return;
    struct rt_fp fp = rt_fp_enter();
    while (!has_stopped(run)) {
        int64_t begin = __atomic_fetch_add(&job->next, job->chunk, __ATOMIC_RELAXED);
        if (begin >= job->count)
            break;
        int64_t end = job->count - begin > job->chunk ? begin + job->chunk : job->count;
        job->fn(job->args, begin, end, run->scratch + i * (size_t)run->model->scratch, run);
    }
    rt_fp_leave(fp);
}

static void launch_body(struct mcc_rt_run *run, mcc_rt_fn *fn, const int64_t *args, int64_t count, int64_t ns)
{
    struct mcc_model *model = run->model;
    int64_t chunk = chunk_size(count, ns, run->threads);
    if (run->threads == 1 || chunk >= count) {
        launch_alone(run, fn, args, count, ns);
    } else if (model->host.parallel) {
        struct host_job job = { run, fn, args, count, chunk, 0 };
        int64_t chunks = (count - 1) / chunk + 1;
        model->host.parallel(model->host.user, chunks < run->threads ? (size_t)chunks : run->threads, host_body, &job);
    } else if (pool_take(model)) {
        launch_pool(run, fn, args, count, chunk);
    } else {
        launch_alone(run, fn, args, count, ns);
    }
}

/* The path of events, kept out of line: mcc_rt_launch pays one branch for it. */
__attribute__((noinline)) static void launch_event(struct mcc_rt_run *run, mcc_rt_fn *fn, const int64_t *args,
                                                   int64_t count, uint32_t kernel, int64_t ns, bool large)
{
    const struct mcc_rt_desc *desc = run->model->desc;
    const mcc_host *host = &run->model->host;
    uint32_t node = kernel < desc->n_kernels ? desc->kernels[kernel].node : 0;
    host->event(host->user, node, 0, rt_clock());
    if (large)
        launch_body(run, fn, args, count, ns);
    else
        fn(args, 0, count, run->scratch, run);
    host->event(host->user, node, 1, rt_clock());
}

int mcc_rt_launch(struct mcc_rt_run *run, mcc_rt_fn *fn, const int64_t *args, int64_t count, uint32_t kernel,
                  int64_t ns_per_index)
{
    if (has_stopped(run))
        return 1;
    if (count <= 0)
        return 0;
    int64_t total;
    if (ns_per_index < 1)
        ns_per_index = 1;
    bool large = __builtin_mul_overflow(count, ns_per_index, &total) || total >= SERIAL_NS;
    if (run->model->host.event)
        launch_event(run, fn, args, count, kernel, ns_per_index, large);
    else if (large)
        launch_body(run, fn, args, count, ns_per_index);
    else
        fn(args, 0, count, run->scratch, run);
    return has_stopped(run);
}
