/* Threads. A kernel's parallel indices are cut into as many ranges as there are threads, and each thread has its home
 * range: the same part of the image or of the rows from kernel to kernel, so that what it reads is what it wrote, in
 * its own L2. A thread takes chunks from the front of its home, then from the far end of the others'. The caller takes
 * part, can finish everything alone, and at the end waits only for chunks that somebody really claimed: a preempted or
 * busy worker costs one chunk, not a barrier.
 *
 * A pool belongs to an open model and starts at the first launch that is worth it. It serves one run at a time; a
 * second run meanwhile works alone in its own thread. Results cannot depend on any of this: indices are independent,
 * and what a kernel sums up it sums in an order fixed by shapes. After fork() the child's copy has no threads, which
 * the process id tells, and starts its own.
 */
#include "runtime/rt_internal.h"

#include "runtime/os.h"
#include "runtime/rt_fp.h"

enum {
    POLL_NS = 200000,          /* a run alone looks for cancel this often */
    SPIN_NS = 50000,           /* before sleeping: as long as two chunks */
    HOME_WORDS = 8             /* a cache line for each home of the pool */
};

static inline void pause(void)
{
#if defined(__x86_64__)
    __asm__ volatile("pause");
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#else
    __asm__ volatile(".4byte 0x0100000f");   /* pause (Zihintpause); a no-op where unknown */
#endif
}

uint32_t rt_cpu_count(void)
{
    uint64_t mask[RT_THREADS_MAX * 4 / 64] = {0};
    int64_t bytes = os_cpus(mask, sizeof mask);
    uint32_t n = 0;
    for (int64_t i = 0; i < bytes / 8; i++)
        n += (uint32_t)__builtin_popcountll(mask[i]);
    return n == 0 ? 1 : n > RT_THREADS_MAX ? RT_THREADS_MAX : n;
}

static bool has_stopped(const struct mcc_rt_run *run)
{
    return __atomic_load_n(&run->stop, __ATOMIC_RELAXED) != 0;
}

/* ---- ranges: claiming ------------------------------------------------------------------------------------------- */

/* Need unit `begin`, and what follows it, no longer be done? After a failure the units below the failing index still
 * are: one of them may fail too, and the smallest index is reported whatever the number of threads. */
static bool is_cancelled(const struct rt_job *job, uint32_t begin)
{
    if (__atomic_load_n(&job->run->stop, __ATOMIC_ACQUIRE) == 0)
        return false;
    return __atomic_load_n(&job->run->code, __ATOMIC_RELAXED) == 0 ||
           begin * job->cut.unit > __atomic_load_n(&job->run->index, __ATOMIC_RELAXED);
}

/* Claims, for a thread that owns units of the job, the ranges of which nothing need be done; how many units. */
static uint32_t claim_cancelled(const struct rt_homes *homes, const struct rt_job *job)
{
    uint32_t units = 0;
    for (uint32_t i = 0; i < homes->n; i++) {
        if (!is_cancelled(job, (uint32_t)__atomic_load_n(rt_home(homes, i), __ATOMIC_RELAXED)))
            continue;
        uint64_t left = __atomic_exchange_n(rt_home(homes, i), 0, __ATOMIC_ACQUIRE);
        uint32_t begin = (uint32_t)left, end = (uint32_t)(left >> 32);
        units += begin < end ? end - begin : 0;
    }
    return units;
}

static uint32_t kernel_node(const struct mcc_rt_run *run, uint32_t kernel)
{
    const struct mcc_rt_desc *desc = run->model->desc;
    return kernel < desc->n_kernels ? desc->kernels[kernel].node : 0;
}

static void run_indices(const struct rt_job *job, int64_t begin, int64_t end, uint32_t thread)
{
    struct mcc_rt_run *run = job->run;
    const mcc_host *host = &run->model->host;
    bool seen = run->model->seen && host->chunk;
    uint64_t from = seen ? os_clock_ns() : 0;
    job->fn(job->args, begin, end, run->scratch + thread * (size_t)run->model->scratch, run);
    if (seen)
        host->chunk(host->user, kernel_node(run, job->kernel), thread, from, os_clock_ns());
}

/* Runs units that the thread owns, or finds that they are cancelled; how many are finished. */
static uint32_t run_chunk(const struct rt_homes *homes, const struct rt_job *job, uint64_t units, uint32_t thread)
{
    uint32_t begin = (uint32_t)units, end = (uint32_t)(units >> 32);
    if (is_cancelled(job, begin))
        return end - begin + claim_cancelled(homes, job);
    run_indices(job, begin * job->cut.unit, end < job->cut.units ? end * job->cut.unit : job->count, thread);
    return end - begin;
}

/* ---- what threads keep ------------------------------------------------------------------------------------------- */

static struct rt_kept *kept_of(const struct mcc_rt_run *run, size_t thread)
{
    return (struct rt_kept *)(void *)(run->scratch + (thread + 1) * (size_t)run->model->scratch - RT_ALIGN);
}

void rt_kept_reset(struct mcc_rt_run *run)
{
    run->launches = 0;
    for (uint32_t i = 0; i < run->threads; i++)
        kept_of(run, i)->launch = 0;
}

/* After a failure nothing counts as kept: what was being made may have failed. */
int64_t mcc_rt_kept(struct mcc_rt_run *run, const void *local, int64_t tag)
{
    struct rt_kept *kept = kept_of(run, (size_t)((const char *)local - run->scratch) / (size_t)run->model->scratch);
    if (kept->launch == run->launches && kept->tag == tag && !has_stopped(run))
        return 1;
    *kept = (struct rt_kept){run->launches, tag};
    return 0;
}

int64_t mcc_rt_arrive(struct mcc_rt_run *run, int64_t *counter, int64_t n)
{
    (void)run;
    if (__atomic_add_fetch(counter, 1, __ATOMIC_ACQ_REL) < n)
        return 0;
    __atomic_store_n(counter, 0, __ATOMIC_RELAXED);
    return 1;
}

/* ---- the pool: working -------------------------------------------------------------------------------------- */

static void work(struct rt_pool *pool, uint32_t thread)
{
    uint64_t taken;
    while ((taken = rt_claim_near(&pool->homes, thread, __atomic_load_n(&pool->most, __ATOMIC_RELAXED))) != 0) {
        const struct rt_job *job = &pool->job;
        uint32_t n = job->cut.units, finished = run_chunk(&pool->homes, job, taken, thread);
        /* Pairs with wait_done: either this sees caller_waits or the caller sees the last chunk done. */
        uint32_t before = __atomic_fetch_add(&pool->done, finished, __ATOMIC_SEQ_CST);
        if (before + finished == n && __atomic_load_n(&pool->caller_waits, __ATOMIC_SEQ_CST))
            os_wake(&pool->done, 1);
    }
}

/* Spins until *word is (equal: `value`, else: anything but) or the time is up. */
static bool spin(const struct rt_pool *pool, uint32_t *word, uint32_t value, bool equal)
{
    if (pool->spin_ns == 0)
        return false;
    uint64_t start = os_clock_ns();
    do {
        for (int i = 0; i < 64; i++) {
            if ((__atomic_load_n(word, __ATOMIC_RELAXED) == value) == equal)
                return true;
            pause();
        }
    } while (os_clock_ns() - start < pool->spin_ns);
    return false;
}

static void wait_done(struct rt_pool *pool, uint32_t n)
{
    if (spin(pool, &pool->done, n, true) && __atomic_load_n(&pool->done, __ATOMIC_ACQUIRE) == n)
        return;
    __atomic_store_n(&pool->caller_waits, 1, __ATOMIC_SEQ_CST);
    uint32_t done;
    while ((done = __atomic_load_n(&pool->done, __ATOMIC_SEQ_CST)) != n)
        os_wait(&pool->done, done);
    __atomic_store_n(&pool->caller_waits, 0, __ATOMIC_RELAXED);
}

/* Until there is a job after the one that `epoch` counts. */
static void wait_work(struct rt_pool *pool, uint32_t epoch)
{
    if (spin(pool, &pool->epoch, epoch, false))
        return;
    __atomic_fetch_add(&pool->sleepers, 1, __ATOMIC_SEQ_CST);
    os_wait(&pool->epoch, epoch);
    __atomic_fetch_sub(&pool->sleepers, 1, __ATOMIC_RELAXED);
}

static void *worker_main(void *arg)
{
    struct rt_worker *self = arg;
    struct rt_pool *pool = self->pool;
    rt_fp_enter();
    for (;;) {
        uint32_t epoch = __atomic_load_n(&pool->epoch, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(&pool->stop, __ATOMIC_ACQUIRE))
            return NULL;
        work(pool, self->index);
        wait_work(pool, epoch);
    }
}

/* ---- the pool: life ---------------------------------------------------------------------------------------------- */

void rt_pool_init(struct rt_pool *pool, uint32_t threads)
{
    *pool = (struct rt_pool){.spin_ns = threads > 1 && rt_cpu_count() > 1 ? SPIN_NS : 0};
}

static size_t homes_bytes(const struct mcc_model *model)
{
    return (size_t)model->threads * HOME_WORDS * sizeof(uint64_t);
}

/* Starts as many workers as the system grants; none is fine. Their signals stay blocked: handlers of the host run on
 * its own threads. */
static void start_workers(struct mcc_model *model)
{
    struct rt_pool *pool = &model->pool;
    uint32_t n = model->threads - 1;
    pool->threads = rt_threads_find();
    if (!pool->threads.create || !pool->threads.join)
        return;
    pool->workers = rt_alloc(model, n * sizeof *pool->workers);
    pool->homes = (struct rt_homes){rt_alloc(model, homes_bytes(model)), HOME_WORDS, model->threads};
    for (uint32_t i = 0; pool->homes.range && i < model->threads; i++)
        *rt_home(&pool->homes, i) = 0;
    uint64_t signals;
    bool blocked = os_signals_block(&signals);
    for (uint32_t i = 0; pool->workers && pool->homes.range && i < n; i++) {
        struct rt_worker *worker = &pool->workers[i];
        *worker = (struct rt_worker){.pool = pool, .index = i + 1};
        if (pool->threads.create(&worker->thread, NULL, worker_main, worker) != 0)
            break;
        pool->n_workers++;
    }
    if (blocked)
        os_signals_restore(&signals);
}

/* True: this run owns the pool, whose workers are running. False: work alone. */
static bool pool_take(struct mcc_model *model)
{
    struct rt_pool *pool = &model->pool;
    int32_t self = os_process(), owner = __atomic_load_n(&pool->pid, __ATOMIC_ACQUIRE);
    if (owner != 0 && owner != self) {
        /* A fork's child: the threads, and whatever they were doing, are the parent's. */
        if (owner < 0 ||
            !__atomic_compare_exchange_n(&pool->pid, &owner, -1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return false;
        uint64_t spin_ns = pool->spin_ns;
        *pool = (struct rt_pool){.spin_ns = spin_ns, .pid = -1};
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
    if (pool->pid == 0 || pool->pid != os_process())
        return;
    __atomic_store_n(&pool->stop, 1, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&pool->epoch, 1, __ATOMIC_SEQ_CST);
    os_wake(&pool->epoch, INT32_MAX);
    for (uint32_t i = 0; i < pool->n_workers; i++)
        pool->threads.join(pool->workers[i].thread, NULL);
    rt_release(model, pool->workers, (model->threads - 1) * sizeof *pool->workers);
    rt_release(model, pool->homes.range, homes_bytes(model));
    pool->pid = 0;
    pool->n_workers = 0;
}

/* ---- launches ---------------------------------------------------------------------------------------------------- */

static void launch_alone(const struct rt_job *job, int64_t ns)
{
    int64_t chunk = POLL_NS / ns + 1;
    for (int64_t begin = 0; begin < job->count && !has_stopped(job->run);) {
        int64_t end = job->count - begin > chunk ? begin + chunk : job->count;
        run_indices(job, begin, end, 0);
        begin = end;
    }
}

/* The caller owns the pool. Fields first, then the ranges make them visible to whoever claims. */
static void launch_pool(struct rt_pool *pool, const struct rt_job *job)
{
    uint32_t threads = pool->n_workers + 1, chunks = (job->cut.units - 1) / job->cut.most + 1;
    pool->job = *job;
    __atomic_store_n(&pool->most, job->cut.most, __ATOMIC_RELAXED);
    __atomic_store_n(&pool->done, 0, __ATOMIC_RELAXED);
    rt_homes_fill(&pool->homes, threads, job->cut.units);
    __atomic_fetch_add(&pool->epoch, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&pool->sleepers, __ATOMIC_SEQ_CST))
        os_wake(&pool->epoch, chunks - 1 < pool->n_workers ? chunks - 1 : pool->n_workers);
    work(pool, 0);
    wait_done(pool, job->cut.units);
    __atomic_store_n(&pool->busy, 0, __ATOMIC_RELEASE);
}

/* On threads of the host: one call for each home, in whatever order and on however many threads. Each is counted: a
 * second call for a home would share the scratch of the first, so it does nothing, and the run fails. */
struct host_job {
    struct rt_job job;
    struct rt_homes homes;
    uint64_t begun[RT_THREADS_MAX / 64]; /* a bit for each home (atomic) */
    uint32_t ended, wrong; /* calls: that have returned; for a home again, or for none (atomic) */
};

static void host_body(void *arg, size_t i)
{
    struct host_job *host = arg;
    uint64_t taken, bit = (uint64_t)1 << i % 64;
    if (i >= host->homes.n || (__atomic_fetch_or(&host->begun[i / 64], bit, __ATOMIC_RELAXED) & bit)) {
        __atomic_store_n(&host->wrong, 1, __ATOMIC_RELAXED);
        return;
    }
    struct rt_fp fp = rt_fp_enter();
    while ((taken = rt_claim_near(&host->homes, (uint32_t)i, host->job.cut.most)) != 0)
        run_chunk(&host->homes, &host->job, taken, (uint32_t)i);
    rt_fp_leave(fp);
    __atomic_fetch_add(&host->ended, 1, __ATOMIC_RELEASE);
}

static void launch_host(struct mcc_rt_run *run, const struct rt_job *job)
{
    const mcc_host *host = &run->model->host;
    uint64_t range[RT_THREADS_MAX];
    uint32_t chunks = (job->cut.units - 1) / job->cut.most + 1, n = chunks < run->threads ? chunks : run->threads;
    struct host_job body = {.job = *job, .homes = {range, 1, n}};
    rt_homes_fill(&body.homes, n, job->cut.units);
    host->parallel(host->user, n, host_body, &body);
    uint32_t ended = __atomic_load_n(&body.ended, __ATOMIC_ACQUIRE);
    if (ended != n || __atomic_load_n(&body.wrong, __ATOMIC_RELAXED))
        mcc_rt_fail(run, MCC_E_ARG, kernel_node(run, job->kernel),
                    ended != n ? "the host's parallel returned before it had called body for every index"
                               : "the host's parallel called body twice for an index, or for one that it was not given",
                    INT64_MAX);
}

static void launch_shared(struct rt_job *job, int64_t ns)
{
    struct mcc_model *model = job->run->model;
    uint32_t threads = job->run->threads;
    int64_t chunk = rt_chunk_size(job->count, ns, threads);
    if (threads > 1 && chunk < job->count) {
        job->cut = rt_cut_of(job->count, chunk);
        if (model->host.parallel) {
            launch_host(job->run, job);
            return;
        }
        if (pool_take(model)) {
            launch_pool(&model->pool, job);
            return;
        }
    }
    launch_alone(job, ns);
}

/* Have the workers started, and does none of them sleep? What they will do a moment later does not matter: nobody waits
 * for them. */
static bool is_awake(const struct mcc_model *model)
{
    return __atomic_load_n(&model->pool.pid, __ATOMIC_RELAXED) > 0 &&
           __atomic_load_n(&model->pool.sleepers, __ATOMIC_RELAXED) == 0;
}

/* The path of events, kept out of line: mcc_rt_launch pays one branch for it. */
__attribute__((noinline)) static void launch_seen(struct rt_job *job, int64_t ns, bool large)
{
    const mcc_host *host = &job->run->model->host;
    uint32_t node = kernel_node(job->run, job->kernel);
    job->run->seen = job;
    if (host->launch)
        host->launch(host->user, node, job->kernel, job->count, ns);
    if (host->event)
        host->event(host->user, node, 0, os_clock_ns());
    if (large)
        launch_shared(job, ns);
    else
        run_indices(job, 0, job->count, 0);
    if (host->event)
        host->event(host->user, node, 1, os_clock_ns());
    job->run->seen = NULL;
}

int mcc_rt_launch(struct mcc_rt_run *run, mcc_rt_fn *fn, const int64_t *args, int64_t count, uint32_t kernel,
                  int64_t ns_per_index)
{
    if (has_stopped(run))
        return 1;
    if (count <= 0)
        return 0;
    run->launches++;
    int64_t total, ns = ns_per_index < 1 ? 1 : ns_per_index;
    bool large = __builtin_mul_overflow(count, ns, &total) || total >= SERIAL_NS ||
                 (total >= AWAKE_NS && is_awake(run->model)),
         seen = run->model->seen;
    if (!large && !seen) {
        fn(args, 0, count, run->scratch, run);
        return has_stopped(run);
    }
    struct rt_job job = {.fn = fn, .args = args, .run = run, .count = count, .kernel = kernel};
    if (seen)
        launch_seen(&job, ns, large);
    else
        launch_shared(&job, ns);
    return has_stopped(run);
}

int mcc_rt_launch_row(struct mcc_rt_run *run, uint32_t row, const int64_t *args, int64_t count)
{
    const struct mcc_rt_row *r = &run->model->variant->rows[row];
    run->data = r->data;
    return mcc_rt_launch(run, r->fn, args, count, r->kernel, r->ns);
}

int64_t mcc_rt_variant_number(struct mcc_rt_run *run)
{
    return run->model->variant - run->model->desc->variants;
}
