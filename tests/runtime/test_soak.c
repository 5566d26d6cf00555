/* Runs for a while, as hosts do it: models of 1 to 8 threads that come and go, several callers of one model, gaps of no
 * length to some milliseconds, runs cancelled at any moment, failing ones between them, and other work on one CPU. Each
 * result that counts is compared byte for byte; at the end there is no memory, thread or file more than before. A run
 * that hangs is ended by the alarm.
 *
 * usage: test_soak [SECONDS [SEED]]       make soak MINUTES=10; make check runs it for two seconds
 */
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/runtime/models.h"

enum { ROWS = 1500, CALLERS_MOST = 3, THREADS_MOST = 8, RUNS_OF_A_MODEL = 40, HANG_SECONDS = 60, FAILING_ROW = 700 };

static double soak_seconds = 2;
static uint64_t soak_seed = 1;
static int64_t bytes_held;
static uint64_t runs, cancelled, failed, models;

static uint64_t draw(uint64_t *state, uint64_t below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % below;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void nap(uint64_t us)
{
    nanosleep(&(struct timespec){(time_t)(us / 1000000), (long)(us % 1000000) * 1000}, NULL);
}

/* ---- the host's memory, counted ---------------------------------------------------------------------------------- */

static void *host_alloc(void *user, size_t bytes, size_t align)
{
    (void)user;
    __atomic_fetch_add(&bytes_held, (int64_t)bytes, __ATOMIC_RELAXED);
    return aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void host_release(void *user, void *p, size_t bytes)
{
    (void)user;
    if (p)
        __atomic_fetch_sub(&bytes_held, (int64_t)bytes, __ATOMIC_RELAXED);
    free(p);
}

/* ---- callers ----------------------------------------------------------------------------------------------------- */

static float given[ROWS * 8], wanted[ROWS * 5];

struct caller {
    mcc_model *model;
    mcc_ctx *ctx;
    uint64_t seed;
    int code; /* what went wrong; 0: nothing */
    uint32_t done; /* runs that are over; for the one who cancels */
    uint32_t leaves;
};

static int caller_run(struct caller *c, float *x, float *out)
{
    int64_t dims[2] = {ROWS, 4};
    DLTensor tensor[4];
    void *data[4] = {x, given + ROWS * 4, out, out + ROWS * 4};
    for (int i = 0; i < 4; i++)
        tensor[i] = (DLTensor){
            .data = data[i], .device = {kDLCPU, 0}, .ndim = i == 3 ? 1 : 2, .dtype = {kDLFloat, 32, 1}, .shape = dims};
    const DLTensor *in[2] = {&tensor[0], &tensor[1]};
    DLTensor *outs[2] = {&tensor[2], &tensor[3]};
    mcc_error error;
    int code = mcc_rt_run_api(c->ctx, in, outs, &error);
    bool bad = x[4 * FAILING_ROW] > 1e6f;
    if (code == MCC_E_CANCELLED) {
        __atomic_fetch_add(&cancelled, 1, __ATOMIC_RELAXED);
        return 0;
    }
    if (bad)
        return code == MCC_E_VALUE ? 0 : code ? code : -1000;
    return code ? code : memcmp(out, wanted, sizeof wanted) ? -1001 : 0;
}

static void *caller_main(void *arg)
{
    struct caller *c = arg;
    float *x = malloc(sizeof given / 2), *out = malloc(sizeof wanted);
    for (int i = 0; i < RUNS_OF_A_MODEL && !c->code; i++) {
        memcpy(x, given, sizeof given / 2);
        if (draw(&c->seed, 8) == 0) {
            x[4 * FAILING_ROW] = 1e7f;
            __atomic_fetch_add(&failed, 1, __ATOMIC_RELAXED);
        }
        memset(out, 0xff, sizeof wanted);
        c->code = caller_run(c, x, out);
        __atomic_fetch_add(&c->done, 1, __ATOMIC_RELAXED);
        __atomic_fetch_add(&runs, 1, __ATOMIC_RELAXED);
        uint64_t kind = draw(&c->seed, 8);
        if (kind < 4) /* none; else as long as workers spin, longer, or much longer */
            nap(kind == 0 ? 3000 : draw(&c->seed, kind == 1 ? 1000 : 100));
    }
    free(out);
    free(x);
    __atomic_store_n(&c->leaves, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* Cancels now and then until the callers have left. */
static void cancel_some(struct caller *c, uint32_t n, uint64_t *seed)
{
    for (uint32_t left = n; left > 0;) {
        nap(draw(seed, 700));
        left = 0;
        for (uint32_t i = 0; i < n; i++)
            left += !__atomic_load_n(&c[i].leaves, __ATOMIC_ACQUIRE);
        if (draw(seed, 3) == 0)
            mcc_rt_cancel(c[draw(seed, n)].ctx);
    }
}

/* One model from open to close. */
static void one_model(uint64_t *seed)
{
    mcc_host host = {.size = sizeof host, .alloc = host_alloc, .release = host_release};
    struct caller c[CALLERS_MOST] = {{0}};
    pthread_t thread[CALLERS_MOST];
    mcc_model *model;
    mcc_error error;
    host.threads = 1 + (uint32_t)draw(seed, THREADS_MOST);
    knob_ns = draw(seed, 4) ? 500 : 1 + (int64_t)draw(seed, 5000);
    knob_work = (int64_t)draw(seed, 60);
    knob_repeats = 1 + (int64_t)draw(seed, 4);
    assert_int_equal(mcc_rt_open(&host, &model, &error), MCC_OK);
    uint32_t n = 1 + (uint32_t)draw(seed, CALLERS_MOST);
    for (uint32_t i = 0; i < n; i++) {
        c[i] = (struct caller){.model = model, .seed = draw(seed, 1u << 30)};
        assert_int_equal(mcc_rt_ctx_new(model, NULL, 0, &c[i].ctx, &error), MCC_OK);
    }
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, caller_main, &c[i]), 0);
    cancel_some(c, n, seed);
    for (uint32_t i = 0; i < n; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(c[i].code, 0);
    }
    bool early = draw(seed, 2);
    if (early) /* contexts may outlive their model */
        mcc_rt_close(model);
    for (uint32_t i = 0; i < n; i++)
        mcc_rt_ctx_free(c[i].ctx);
    if (!early)
        mcc_rt_close(model);
    models++;
}

/* ---- the soak ---------------------------------------------------------------------------------------------------- */

static uint32_t competitor_stops;

static void *compete(void *arg)
{
    cpu_set_t set, one;
    (void)arg;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        for (int i = CPU_SETSIZE - 1; i >= 0 && CPU_COUNT(&one) == 0; i--)
            if (CPU_ISSET(i, &set))
                CPU_SET(i, &one);
    (void)sched_setaffinity(0, sizeof one, &one);
    while (!__atomic_load_n(&competitor_stops, __ATOMIC_RELAXED))
        for (volatile int i = 0; i < 10000; i++)
            ;
    return NULL;
}

static int entries(const char *path)
{
    int n = 0;
    DIR *d = opendir(path);
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

static void test_soak(void **state)
{
    uint64_t seed = soak_seed;
    pthread_t busy;
    (void)state;
    for (int i = 0; i < ROWS * 8; i++)
        given[i] = (float)(i % 977) / 7;
    for (int i = 0; i < ROWS; i++) {
        for (int j = 0; j < 4; j++)
            wanted[4 * i + j] = 2 * given[4 * i + j] + given[ROWS * 4 + 4 * i + j];
        const float *z = wanted + (size_t)4 * i;
        wanted[ROWS * 4 + i] = z[0] + z[1] + z[2] + z[3];
    }
    knob_hook = NULL;
    knob_chunk = NULL;
    competitor_stops = 1; /* a checker's own thread comes with the first one */
    assert_int_equal(pthread_create(&busy, NULL, compete, NULL), 0);
    pthread_join(busy, NULL);
    int tasks = entries("/proc/self/task"), files = entries("/proc/self/fd");
    for (double end = now() + soak_seconds; now() < end;) {
        alarm(HANG_SECONDS);
        bool beside = draw(&seed, 2);
        competitor_stops = 0;
        if (beside)
            assert_int_equal(pthread_create(&busy, NULL, compete, NULL), 0);
        for (int i = 0; i < 4 && now() < end; i++)
            one_model(&seed);
        __atomic_store_n(&competitor_stops, 1, __ATOMIC_RELAXED);
        if (beside)
            pthread_join(busy, NULL);
        assert_int_equal(bytes_held, 0);
    }
    alarm(0);
    for (int i = 0; i < 100 && entries("/proc/self/task") > tasks;
         i++) /* a joined thread's entry goes a moment later */
        nap(10000);
    assert_int_equal(entries("/proc/self/task"), tasks);
    assert_int_equal(entries("/proc/self/fd"), files);
    print_message("%llu models, %llu runs, %llu cancelled, %llu made to fail\n", (unsigned long long)models,
                  (unsigned long long)runs, (unsigned long long)cancelled, (unsigned long long)failed);
    assert_true(runs > 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_soak)};
    if (argc > 1)
        soak_seconds = atof(argv[1]);
    if (argc > 2)
        soak_seed = strtoull(argv[2], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
