/* The thread pool: equal bytes for every thread count, failures that do not depend on it, concurrent contexts, cancel,
 * the host's own parallel, fork. Clean under the thread sanitizer. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/runtime/models.h"

enum { ROWS = 2000 };

struct job {
    mcc_model *model;
    mcc_ctx *ctx;
    float *x, *y, *z, *s;
    int64_t dims[2];
    DLTensor tensors[4];
    const DLTensor *in[2];
    DLTensor *out[2];
    mcc_error error;
    int code;
};

static void job_open(struct job *job, const mcc_host *host, mcc_model *shared)
{
    *job = (struct job){.dims = {ROWS, 4}};
    float *block = calloc(ROWS * 13, sizeof *block);
    job->x = block;
    job->y = block + ROWS * 4;
    job->z = block + ROWS * 8;
    job->s = block + ROWS * 12;
    for (int i = 0; i < ROWS * 4; i++) {
        job->x[i] = (float)(i % 977) / 7;
        job->y[i] = (float)(i % 613) / 3;
    }
    void *data[] = {job->x, job->y, job->z, job->s};
    for (int i = 0; i < 4; i++)
        job->tensors[i] = (DLTensor){.data = data[i],
                                     .device = {kDLCPU, 0},
                                     .ndim = i == 3 ? 1 : 2,
                                     .dtype = {kDLFloat, 32, 1},
                                     .shape = job->dims};
    job->in[0] = &job->tensors[0];
    job->in[1] = &job->tensors[1];
    job->out[0] = &job->tensors[2];
    job->out[1] = &job->tensors[3];
    job->model = shared;
    if (!shared)
        assert_int_equal(mcc_rt_open(host, &job->model, &job->error), MCC_OK);
    assert_int_equal(mcc_rt_ctx_new(job->model, NULL, 0, &job->ctx, &job->error), MCC_OK);
}

static void job_close(struct job *job, bool model)
{
    mcc_rt_ctx_free(job->ctx);
    if (model)
        mcc_rt_close(job->model);
    free(job->x);
}

static int job_run(struct job *job)
{
    memset(job->z, 0, ROWS * 5 * sizeof *job->z);
    return job->code = mcc_rt_run_api(job->ctx, job->in, job->out, &job->error);
}

static int setup(void **state)
{
    (void)state;
    knob_ns = 500;     /* chunks of 60 rows */
    knob_work = 50;
    knob_repeats = 3;
    knob_hook = NULL;
    knob_chunk = NULL;
    return 0;
}

static void reference(float *result)
{
    struct job job;
    mcc_host host = {.size = sizeof host, .threads = 1};
    job_open(&job, &host, NULL);
    assert_int_equal(job_run(&job), MCC_OK);
    memcpy(result, job.z, ROWS * 5 * sizeof *result);
    job_close(&job, true);
}

static void test_thread_counts(void **state)
{
    static float expected[ROWS * 5];
    (void)state;
    reference(expected);
    for (uint32_t threads = 1; threads <= 4; threads++) {
        struct job job;
        mcc_host host = {.size = sizeof host, .threads = threads};
        job_open(&job, &host, NULL);
        for (int i = 0; i < 20; i++) {
            assert_int_equal(job_run(&job), MCC_OK);
            assert_memory_equal(expected, job.z, sizeof expected);
        }
        job_close(&job, true);
    }
}

/* Workers go to sleep between runs and come back. */
static void test_sleep(void **state)
{
    struct job job;
    mcc_host host = {.size = sizeof host, .threads = 3};
    (void)state;
    job_open(&job, &host, NULL);
    for (int i = 0; i < 20; i++) {
        nanosleep(&(struct timespec){0, 300000}, NULL);
        assert_int_equal(job_run(&job), MCC_OK);
    }
    job_close(&job, true);
}

static void test_failure(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 4; threads++) {
        struct job job;
        mcc_host host = {.size = sizeof host, .threads = threads};
        job_open(&job, &host, NULL);
        for (int i = 0; i < 50; i++) {
            for (int row = 700; row < ROWS; row += 37)
                job.x[4 * row] = 1e7f;
            assert_int_equal(job_run(&job), MCC_E_VALUE);
            assert_string_equal(job.error.text, "node 'scale' (Mul): value out of range");
            assert_int_equal(job.error.node, 1);
            assert_int_equal(job.ctx->run.index, 700);
            for (int row = 700; row < ROWS; row += 37)
                job.x[4 * row] = 0;
            assert_int_equal(job_run(&job), MCC_OK);
        }
        job_close(&job, true);
    }
}

static void *run_often(void *arg)
{
    struct job *job = arg;
    for (int i = 0; i < 200 && job->code == MCC_OK; i++) {
        job->z[0] = -1;
        job_run(job);
        if (job->z[ROWS * 4 - 1] != 2 * job->x[ROWS * 4 - 1] + job->y[ROWS * 4 - 1])
            job->code = 1;
    }
    return NULL;
}

/* Contexts of one model on several threads: one at a time has the pool, the others work alone. */
static void test_concurrent_contexts(void **state)
{
    enum { THREADS = 6 };
    struct job jobs[THREADS];
    pthread_t threads[THREADS];
    mcc_host host = {.size = sizeof host, .threads = 3};
    (void)state;
    for (int i = 0; i < THREADS; i++)
        job_open(&jobs[i], &host, i ? jobs[0].model : NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, run_often, &jobs[i]);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = THREADS - 1; i >= 0; i--) {
        assert_int_equal(jobs[i].code, MCC_OK);
        job_close(&jobs[i], i == 0);
    }
}

static bool run_ended;

static void *run_once(void *arg)
{
    job_run(arg);
    __atomic_store_n(&run_ended, true, __ATOMIC_RELEASE);
    return NULL;
}

/* A run that would take minutes ends soon after cancel, and the context works again. A cancel before the run has begun
 * is lost, so there is one every 2 ms until it has ended. */
static void test_cancel(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 3; threads += 2) {
        struct job job;
        pthread_t thread;
        mcc_host host = {.size = sizeof host, .threads = threads};
        job_open(&job, &host, NULL);
        knob_repeats = 10000000;
        run_ended = false;
        pthread_create(&thread, NULL, run_once, &job);
        while (!__atomic_load_n(&run_ended, __ATOMIC_ACQUIRE)) {
            nanosleep(&(struct timespec){0, 2000000}, NULL);
            mcc_rt_cancel(job.ctx);
        }
        pthread_join(thread, NULL);
        assert_int_equal(job.code, MCC_E_CANCELLED);
        knob_repeats = 1;
        assert_int_equal(job_run(&job), MCC_OK);
        job_close(&job, true);
    }
}

/* ---- the host's parallel -------------------------------------------------------------------------------------- */

struct part {
    void (*body)(void *, size_t);
    void *arg;
    size_t i;
};

static void *part_main(void *arg)
{
    struct part *part = arg;
    part->body(part->arg, part->i);
    return NULL;
}

static void parallel_threads(void *user, size_t n, void (*body)(void *, size_t), void *arg)
{
    pthread_t threads[16];
    struct part parts[16];
    ++*(int *)user;
    assert_true(n <= 16);
    for (size_t i = 0; i < n; i++) {
        parts[i] = (struct part){body, arg, i};
        pthread_create(&threads[i], NULL, part_main, &parts[i]);
    }
    for (size_t i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
}

/* Allowed, if unusual: all in one thread, the last first. */
static void parallel_backwards(void *user, size_t n, void (*body)(void *, size_t), void *arg)
{
    ++*(int *)user;
    while (n-- > 0)
        body(arg, n);
}

static void test_host_parallel(void **state)
{
    static float expected[ROWS * 5];
    int calls = 0;
    (void)state;
    reference(expected);
    for (int kind = 0; kind < 2; kind++) {
        struct job job;
        mcc_host host = {.size = sizeof host,
                         .user = &calls,
                         .threads = 4,
                         .parallel = kind ? parallel_backwards : parallel_threads};
        job_open(&job, &host, NULL);
        for (int i = 0; i < 10; i++) {
            assert_int_equal(job_run(&job), MCC_OK);
            assert_memory_equal(expected, job.z, sizeof expected);
        }
        assert_int_equal(job.model->pool.pid, 0);
        job_close(&job, true);
    }
    assert_int_equal(calls, 2 * 10 * 4);
}

/* What a host does wrong: nothing; all but the last index; the first one twice; one beyond. */
static void parallel_wrong(void *user, size_t n, void (*body)(void *, size_t), void *arg)
{
    int kind = *(const int *)user;
    for (size_t i = 0; kind && i < n - (kind == 1); i++)
        body(arg, i);
    if (kind == 2)
        body(arg, 0);
    if (kind == 3)
        body(arg, n);
}

static void test_host_parallel_counts(void **state)
{
    static const char *const words[] = {"before it had called", "before it had called", "twice", "twice"};
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        struct job job;
        mcc_host host = {.size = sizeof host, .user = &kind, .threads = 4, .parallel = parallel_wrong};
        job_open(&job, &host, NULL);
        assert_int_equal(job_run(&job), MCC_E_ARG);
        if (!strstr(job.error.text, words[kind]))
            fail_msg("%d: %s", kind, job.error.text);
        job_close(&job, true);
    }
}

/* ---- place ----------------------------------------------------------------------------------------------------- */

static struct {
    int64_t begin, end;
} seen[ROWS];
static int n_seen;

static void see_chunk(int64_t begin, int64_t end)
{
    assert_true(n_seen < ROWS);
    seen[n_seen].begin = begin;
    seen[n_seen++].end = end;
}

/* One thread does everything, as the last of four: its own quarter upwards, then the others' from their far ends. */
static void test_homes(void **state)
{
    struct job job;
    int calls = 0;
    mcc_host host = {.size = sizeof host, .user = &calls, .threads = 4, .parallel = parallel_backwards};
    (void)state;
    job_open(&job, &host, NULL);
    knob_repeats = 1;
    knob_chunk = see_chunk;
    n_seen = 0;
    assert_int_equal(job_run(&job), MCC_OK);
    int i = 0;
    for (int64_t at = ROWS * 3 / 4; at < ROWS; at = seen[i++].end)
        assert_int_equal(seen[i].begin, at);
    for (int64_t home = 2; home >= 0; home--)
        for (int64_t at = ROWS * (home + 1) / 4; at > ROWS * home / 4; at = seen[i++].begin)
            assert_int_equal(seen[i].end, at);
    assert_int_equal(i, n_seen);
    job_close(&job, true);
}

static void see_launch(void *user, uint32_t node, uint32_t kernel, int64_t count, int64_t ns)
{
    int64_t *told = user;
    assert_int_equal(node, kernel + 1);
    told[0]++;
    told[1] = count;
    told[2] = ns;
}

/* Every launch is told to the host, those that one thread does alone, too. */
static void test_launches_are_told(void **state)
{
    (void)state;
    for (int64_t ns = 1; ns <= 500; ns += 499) {
        struct job job;
        int64_t told[3] = {0};
        mcc_host host = {.size = sizeof host, .user = told, .threads = 2, .launch = see_launch};
        knob_ns = ns;
        job_open(&job, &host, NULL);
        assert_int_equal(job_run(&job), MCC_OK);
        assert_int_equal(told[0], knob_repeats + 1);
        assert_int_equal(told[1], ROWS);
        assert_int_equal(told[2], ns);
        job_close(&job, true);
    }
}

static void count_chunks(void *user, uint32_t node, uint32_t thread, uint64_t from, uint64_t to)
{
    (void)thread, (void)from, (void)to;
    if (node == 1)
        __atomic_fetch_add((int *)user, 1, __ATOMIC_RELAXED);
}

/* A launch of 6 us: alone where workers would have to be started or woken, shared while they wait awake. */
static void test_small_launches(void **state)
{
    struct job job;
    int chunks = 0;
    mcc_host host = {.size = sizeof host, .user = &chunks, .threads = 2, .chunk = count_chunks};
    (void)state;
    job_open(&job, &host, NULL);
    knob_repeats = 1;
    knob_ns = 3;
    assert_int_equal(job_run(&job), MCC_OK);
    assert_int_equal(job.model->pool.pid, 0);
    assert_int_equal(chunks, 1);
    job.model->pool.spin_ns = 60000000000u;
    knob_ns = 500;
    assert_int_equal(job_run(&job), MCC_OK);
    if (job.model->pool.pid && rt_cpu_count() > 1) {
        chunks = 0;
        knob_ns = 3;
        assert_int_equal(job_run(&job), MCC_OK);
        assert_int_equal(chunks, 2);
        knob_ns = 1;
        chunks = 0;
        assert_int_equal(job_run(&job), MCC_OK);
        assert_int_equal(chunks, 1);
    }
    job_close(&job, true);
}

/* What a thread keeps: until another tag, another launch, a failure; each thread for itself. */
static void test_kept(void **state)
{
    struct job job;
    mcc_host host = {.size = sizeof host, .threads = 2};
    (void)state;
    job_open(&job, &host, NULL);
    assert_int_equal(job_run(&job), MCC_OK);
    struct mcc_rt_run *run = &job.ctx->run;
    memset(run->scratch, 0, 2 * (size_t)run->model->scratch); /* launch 0, tag 0 */
    rt_kept_reset(run);
    run->launches++;
    const char *mine = run->scratch + 16, *other = run->scratch + run->model->scratch;
    assert_int_equal(mcc_rt_kept(run, mine, 0), 0);
    assert_int_equal(mcc_rt_kept(run, mine, 0), 1);
    assert_int_equal(mcc_rt_kept(run, other, 0), 0);
    assert_int_equal(mcc_rt_kept(run, mine, 7), 0);
    assert_int_equal(mcc_rt_kept(run, mine, 0), 0);
    run->launches++;
    assert_int_equal(mcc_rt_kept(run, mine, 0), 0);
    assert_int_equal(mcc_rt_kept(run, mine, 0), 1);
    mcc_rt_fail(run, MCC_E_VALUE, 1, "value out of range", 0);
    assert_int_equal(mcc_rt_kept(run, mine, 0), 0);
    assert_int_equal(job_run(&job), MCC_OK);
    job_close(&job, true);
}

/* The last one of so many is told, and the counter begins anew. */
static void test_arrive(void **state)
{
    int64_t counter = 0;
    (void)state;
    for (int round = 0; round < 2; round++) {
        assert_int_equal(mcc_rt_arrive(NULL, &counter, 3), 0);
        assert_int_equal(mcc_rt_arrive(NULL, &counter, 3), 0);
        assert_int_equal(mcc_rt_arrive(NULL, &counter, 3), 1);
    }
    assert_int_equal(mcc_rt_arrive(NULL, &counter, 1), 1);
}

/* What fails first is not what is reported: rows below it are still run, those above no longer. */
static void test_failure_order(void **state)
{
    struct job job;
    int calls = 0;
    mcc_host host = {.size = sizeof host, .user = &calls, .threads = 4, .parallel = parallel_backwards};
    (void)state;
    job_open(&job, &host, NULL);
    knob_repeats = 1;
    knob_chunk = see_chunk;
    n_seen = 0;
    job.x[4 * 1600] = job.x[4 * 700] = job.x[4 * 30] = 1e7f;
    assert_int_equal(job_run(&job), MCC_E_VALUE);
    assert_int_equal(job.ctx->run.index, 30);
    int64_t rows = 0;
    for (int i = 0; i < n_seen; i++)
        rows += seen[i].end - seen[i].begin;
    assert_true(rows < ROWS);
    job_close(&job, true);
}

/* ---- fork -------------------------------------------------------------------------------------------------------- */

static int run_in_child(struct job *job)
{
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        int bad = job_run(job) != MCC_OK || job_run(job) != MCC_OK;
        mcc_rt_ctx_free(job->ctx);
        mcc_rt_close(job->model);
        _exit(bad);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

/* R16: before the threads exist, while they sleep, and while another thread is in a run. */
static void test_fork(void **state)
{
    struct job job, other;
    pthread_t thread;
    mcc_host host = {.size = sizeof host, .threads = 3};
    (void)state;
#if defined(__SANITIZE_THREAD__)
    skip(); /* the sanitizer does not support threads in a fork's child */
#endif
    job_open(&job, &host, NULL);
    job_open(&other, &host, job.model);
    assert_int_equal(run_in_child(&job), 0);
    assert_int_equal(job_run(&job), MCC_OK);
    assert_int_equal(run_in_child(&job), 0);
    knob_repeats = 300;
    pthread_create(&thread, NULL, run_once, &other);
    nanosleep(&(struct timespec){0, 2000000}, NULL);
    int status = run_in_child(&job);
    pthread_join(thread, NULL);
    assert_int_equal(status, 0);
    assert_int_equal(other.code, MCC_OK);
    job_close(&other, false);
    job_close(&job, true);
}

/* An MLP-sized call costs about 0.1 us; the bound leaves room for a loaded machine and sanitizers. */
static void test_overhead(void **state)
{
    struct job job;
    struct timespec from, to;
    int64_t best = INT64_MAX;
    (void)state;
    knob_ns = 1;
    knob_work = 0;
    knob_repeats = 1;
    job_open(&job, NULL, NULL);
    job.dims[0] = 1;
    for (int k = 0; k < 20; k++) {
        clock_gettime(CLOCK_MONOTONIC, &from);
        for (int i = 0; i < 1000; i++)
            job.code |= mcc_rt_run_api(job.ctx, job.in, job.out, &job.error);
        clock_gettime(CLOCK_MONOTONIC, &to);
        int64_t ns = (to.tv_sec - from.tv_sec) * 1000000000 + to.tv_nsec - from.tv_nsec;
        best = ns < best ? ns : best;
    }
    print_message("a call takes %.0f ns\n", (double)best / 1000);
    assert_int_equal(job.code, MCC_OK);
    assert_true(best / 1000 < 100000);
    job_close(&job, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_thread_counts, setup),
        cmocka_unit_test_setup(test_sleep, setup),
        cmocka_unit_test_setup(test_failure, setup),
        cmocka_unit_test_setup(test_concurrent_contexts, setup),
        cmocka_unit_test_setup(test_cancel, setup),
        cmocka_unit_test_setup(test_host_parallel, setup),
        cmocka_unit_test_setup(test_host_parallel_counts, setup),
        cmocka_unit_test_setup(test_homes, setup),
        cmocka_unit_test_setup(test_launches_are_told, setup),
        cmocka_unit_test_setup(test_small_launches, setup),
        cmocka_unit_test_setup(test_kept, setup),
        cmocka_unit_test(test_arrive),
        cmocka_unit_test_setup(test_failure_order, setup),
        cmocka_unit_test_setup(test_fork, setup),
        cmocka_unit_test_setup(test_overhead, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
