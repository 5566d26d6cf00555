/* The artifact's functions over the hand-written models: every refusal of the contract, and what must work instead. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <cmocka.h>

#include "tests/runtime/models.h"

enum { ROWS = 8 };

/* One set of tensors for pair. */
struct feed {
    float x[ROWS * 4 + 8], y[ROWS * 4 + 8], z[ROWS * 4 + 8], s[ROWS + 8];
    int64_t dims[2], s_dims[1];
    DLTensor tx, ty, tz, ts;
    const DLTensor *in[2];
    DLTensor *out[2];
};

static DLTensor tensor_of(void *data, int32_t ndim, int64_t *shape)
{
    return (DLTensor){.data = data, .device = {kDLCPU, 0}, .ndim = ndim, .dtype = {kDLFloat, 32, 1}, .shape = shape};
}

static void feed_init(struct feed *f, int64_t rows)
{
    memset(f, 0, sizeof *f);
    for (int i = 0; i < ROWS * 4; i++) {
        f->x[i] = (float)i;
        f->y[i] = (float)(100 * i);
    }
    f->dims[0] = f->s_dims[0] = rows;
    f->dims[1] = 4;
    f->tx = tensor_of(f->x, 2, f->dims);
    f->ty = tensor_of(f->y, 2, f->dims);
    f->tz = tensor_of(f->z, 2, f->dims);
    f->ts = tensor_of(f->s, 1, f->s_dims);
    f->in[0] = &f->tx;
    f->in[1] = &f->ty;
    f->out[0] = &f->tz;
    f->out[1] = &f->ts;
}

static void feed_check(const struct feed *f)
{
    for (int64_t i = 0; i < f->dims[0]; i++) {
        float sum = 0;
        for (int64_t j = 4 * i; j < 4 * i + 4; j++) {
            assert_true(f->z[j] == 2 * f->x[j] + f->y[j]);
            sum += f->z[j];
        }
        assert_true(f->s[i] == sum);
    }
    assert_true(f->z[4 * f->dims[0]] == 0 && f->s[f->dims[0]] == 0);
}

struct fixture {
    mcc_model *model;
    mcc_ctx *ctx;
    struct feed feed;
    mcc_error error;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    knob_ns = 1;
    knob_work = 0;
    knob_repeats = 1;
    knob_hook = NULL;
    *state = f;
    feed_init(&f->feed, ROWS);
    return mcc_rt_open(NULL, &f->model, &f->error) || mcc_rt_ctx_new(f->model, NULL, 0, &f->ctx, &f->error);
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    mcc_rt_ctx_free(f->ctx);
    mcc_rt_close(f->model);
    free(f);
    return 0;
}

static int run(struct fixture *f)
{
    return mcc_rt_run_api(f->ctx, f->feed.in, f->feed.out, &f->error);
}

/* The run fails with `code` and a text that has `word`; the context works afterwards. */
static void refused(struct fixture *f, int code, const char *word)
{
    assert_int_equal(run(f), code);
    assert_int_equal(f->error.code, code);
    if (!strstr(f->error.text, word))
        fail_msg("'%s' lacks '%s'", f->error.text, word);
    feed_init(&f->feed, ROWS);
    assert_int_equal(run(f), MCC_OK);
    feed_check(&f->feed);
}

static void test_run(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(run(f), MCC_OK);
    feed_check(&f->feed);
    for (int64_t rows = 0; rows <= ROWS; rows += 4) {
        feed_init(&f->feed, rows);
        assert_int_equal(run(f), MCC_OK);
        feed_check(&f->feed);
    }
}

/* R8 */
static void test_null_and_types(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(mcc_rt_run_api(NULL, f->feed.in, f->feed.out, &f->error), MCC_E_ARG);
    assert_int_equal(mcc_rt_run_api(f->ctx, NULL, f->feed.out, &f->error), MCC_E_ARG);
    assert_int_equal(mcc_rt_run_api(f->ctx, f->feed.in, NULL, NULL), MCC_E_ARG);
    f->feed.in[1] = NULL;
    refused(f, MCC_E_ARG, "'y'");
    f->feed.out[1] = NULL;
    refused(f, MCC_E_ARG, "'s'");
    f->feed.tx.data = NULL;
    refused(f, MCC_E_ARG, "'x': data is NULL");
    f->feed.tz.data = NULL;
    refused(f, MCC_E_ARG, "'z': data is NULL");
    f->feed.tx.shape = NULL;
    refused(f, MCC_E_ARG, "'x': the shape");
    f->feed.ty.dtype.bits = 64;
    refused(f, MCC_E_DTYPE, "'y'");
    f->feed.ty.dtype.code = kDLInt;
    refused(f, MCC_E_DTYPE, "'y'");
    f->feed.tz.dtype.lanes = 4;
    refused(f, MCC_E_DTYPE, "'z'");
    f->feed.tx.device.device_type = kDLCUDA;
    refused(f, MCC_E_ARG, "'x': device");
    f->feed.tx.ndim = 3;
    refused(f, MCC_E_SHAPE, "'x': rank 3");
    f->feed.tx.ndim = -1;
    refused(f, MCC_E_SHAPE, "'x': rank -1");
    f->feed.ty.ndim = 1000000;
    refused(f, MCC_E_SHAPE, "'y': rank 1000000");
}

/* R9, R10: odd addresses and strides work, as copies. */
static void test_strides(void **state)
{
    struct fixture *f = *state;
    int64_t columns[2] = {1, ROWS}, zero[2] = {0, 1}, back[2] = {-4, 1}, far[2] = {INT64_MAX / 2, 1};
    float by_column[ROWS * 4];
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < 4; j++)
            by_column[j * ROWS + i] = f->feed.x[4 * i + j];
    f->feed.tx.data = by_column;
    f->feed.tx.strides = columns;
    assert_int_equal(run(f), MCC_OK);
    feed_check(&f->feed);

    feed_init(&f->feed, ROWS);
    f->feed.ty.strides = zero;
    assert_int_equal(run(f), MCC_OK);
    assert_true(f->feed.z[4 * 7 + 2] == 2 * 30 + 200);

    feed_init(&f->feed, ROWS);
    f->feed.tx.strides = back;
    f->feed.tx.byte_offset = 16 * (ROWS - 1);
    assert_int_equal(run(f), MCC_OK);
    assert_true(f->feed.z[1] == 2 * 29 + 100);

    feed_init(&f->feed, ROWS);
    char bytes[ROWS * 16 + 1];
    memcpy(bytes + 1, f->feed.x, ROWS * 16);
    f->feed.tx.data = bytes;
    f->feed.tx.byte_offset = 1;
    assert_int_equal(run(f), MCC_OK);
    feed_check(&f->feed);

    feed_init(&f->feed, ROWS);
    f->feed.tx.strides = far;
    refused(f, MCC_E_ARG, "'x': strides");
    f->feed.tx.byte_offset = UINT64_MAX;
    refused(f, MCC_E_ARG, "'x': strides or byte_offset");
    f->feed.tz.strides = columns;
    refused(f, MCC_E_ARG, "'z': must be compact");
    f->feed.tz.byte_offset = 2;
    refused(f, MCC_E_ARG, "'z': data must be aligned");
}

/* R11 */
static void test_overlap(void **state)
{
    struct fixture *f = *state;
    f->feed.tz.data = f->feed.x;
    refused(f, MCC_E_ARG, "'z' overlaps input 'x'");
    f->feed.tz.data = f->feed.y + 4;
    refused(f, MCC_E_ARG, "'z' overlaps input 'y'");
    f->feed.ts.data = f->feed.z + 31;
    refused(f, MCC_E_ARG, "'s' overlaps output 'z'");
    int64_t small[2] = {ROWS - 1, 4};
    f->feed.tz.shape = small;
    refused(f, MCC_E_SHAPE, "'z': dim 0 is 7");
}

/* R12, R13 */
static void test_shapes(void **state)
{
    struct fixture *f = *state;
    feed_init(&f->feed, 0);
    f->feed.tx.data = f->feed.ty.data = f->feed.tz.data = f->feed.ts.data = NULL;
    assert_int_equal(run(f), MCC_OK);
    int64_t other[2] = {5, 4}, wide[2] = {ROWS, 5}, huge[2] = {INT64_MAX, 4}, less[2] = {-1, 4};
    feed_init(&f->feed, ROWS);
    f->feed.ty.shape = other;
    refused(f, MCC_E_SHAPE, "('N') is 5, but 8 in input 'x'");
    f->feed.ty.shape = wide;
    refused(f, MCC_E_SHAPE, "'y': dim 1 is 5");
    f->feed.tx.shape = f->feed.ty.shape = huge;
    refused(f, MCC_E_SHAPE, "goes from 0 to 4096");
    f->feed.tx.shape = f->feed.ty.shape = less;
    refused(f, MCC_E_SHAPE, "negative");
    int64_t thirteen[2] = {13, 4};
    f->feed.tx.shape = f->feed.ty.shape = thirteen;
    refused(f, MCC_E_SHAPE, "node 'total' (ReduceSum): N must not be 13");
}

static void test_plan(void **state)
{
    struct fixture *f = *state;
    int64_t z[2] = {0, 0}, s[1] = {0};
    int64_t *shapes[2] = {z, s};
    size_t bytes = 0, more = 0;
    f->feed.tx.data = f->feed.ty.data = NULL;
    assert_int_equal(mcc_rt_plan(f->model, f->feed.in, shapes, &bytes, &f->error), MCC_OK);
    assert_true(z[0] == ROWS && z[1] == 4 && s[0] == ROWS && bytes > 0);
    int64_t columns[2] = {1, ROWS};
    f->feed.tx.strides = columns;
    assert_int_equal(mcc_rt_plan(f->model, f->feed.in, NULL, &more, NULL), MCC_OK);
    assert_int_equal(more - bytes, ROWS * 16);
    f->feed.dims[0] = 5000;
    assert_int_equal(mcc_rt_plan(f->model, f->feed.in, shapes, &bytes, &f->error), MCC_E_SHAPE);
    assert_int_equal(mcc_rt_plan(NULL, f->feed.in, shapes, &bytes, &f->error), MCC_E_ARG);
    assert_int_equal(mcc_rt_plan(f->model, NULL, shapes, &bytes, &f->error), MCC_E_ARG);
}

static void test_caller_memory(void **state)
{
    struct fixture *f = *state;
    struct counted memory = {0, 0, -1};
    mcc_host host = counted_host(&memory);
    mcc_model *model;
    mcc_ctx *ctx;
    size_t bytes;
    assert_int_equal(mcc_rt_open(&host, &model, &f->error), MCC_OK);
    assert_int_equal(mcc_rt_plan(model, f->feed.in, NULL, &bytes, &f->error), MCC_OK);
    char *mem = malloc(bytes + 1);
    assert_int_equal(mcc_rt_ctx_new(model, mem + 1, 100, &ctx, &f->error), MCC_E_NOMEM);
    assert_int_equal(mcc_rt_ctx_new(model, mem + 1, bytes, &ctx, &f->error), MCC_OK);
    int64_t calls = memory.calls;
    for (int i = 0; i < 3; i++)
        assert_int_equal(mcc_rt_run_api(ctx, f->feed.in, f->feed.out, &f->error), MCC_OK);
    feed_check(&f->feed);
    assert_int_equal(memory.calls, calls);
    float big[64 * 4] = {0}, z[64 * 4], s[64];
    int64_t dims[2] = {64, 4};
    f->feed.tx = f->feed.ty = tensor_of(big, 2, dims);
    f->feed.tz = tensor_of(z, 2, dims);
    f->feed.ts = tensor_of(s, 1, dims);
    assert_int_equal(mcc_rt_run_api(ctx, f->feed.in, f->feed.out, &f->error), MCC_E_NOMEM);
    feed_init(&f->feed, ROWS);
    assert_int_equal(mcc_rt_run_api(ctx, f->feed.in, f->feed.out, &f->error), MCC_OK);
    mcc_rt_ctx_free(ctx);
    mcc_rt_close(model);
    free(mem);
    assert_int_equal(memory.bytes, 0);
}

/* Every allocation fails once: always an error code, never a leak. */
static void test_out_of_memory(void **state)
{
    struct fixture *f = *state;
    int passed = 0;
    for (int64_t at = 0; at < 40 && !passed; at++) {
        struct counted memory = {0, 0, at};
        mcc_host host = counted_host(&memory);
        mcc_model *model = NULL;
        mcc_ctx *ctx = NULL;
        DLManagedTensorVersioned *out[2] = {NULL, NULL};
        size_t bytes;
        int code = mcc_rt_open(&host, &model, &f->error);
        if (!code)
            code = mcc_rt_plan(model, f->feed.in, NULL, &bytes, &f->error);
        if (!code)
            code = mcc_rt_ctx_new(model, NULL, 0, &ctx, &f->error);
        if (!code)
            code = mcc_rt_run_dlpack(ctx, f->feed.in, out, &f->error);
        assert_true(code == MCC_OK || code == MCC_E_NOMEM);
        passed = code == MCC_OK;
        for (int k = 0; k < 2; k++)
            if (out[k])
                out[k]->deleter(out[k]);
        mcc_rt_ctx_free(ctx);
        mcc_rt_close(model);
        assert_int_equal(memory.bytes, 0);
    }
    assert_true(passed);
}

static void test_dlpack(void **state)
{
    struct fixture *f = *state;
    DLManagedTensorVersioned *out[2];
    assert_int_equal(mcc_rt_run_dlpack(f->ctx, f->feed.in, out, &f->error), MCC_OK);
    assert_true(out[0]->version.major == 1 && out[0]->dl_tensor.ndim == 2 && out[0]->dl_tensor.shape[0] == ROWS);
    assert_int_equal((uintptr_t)out[0]->dl_tensor.data % 64, 0);
    memcpy(f->feed.z, out[0]->dl_tensor.data, ROWS * 16);
    memcpy(f->feed.s, out[1]->dl_tensor.data, ROWS * 4);
    feed_check(&f->feed);
    mcc_rt_ctx_free(f->ctx);
    f->ctx = NULL;
    out[0]->deleter(out[0]);
    out[1]->deleter(out[1]);
}

/* R15 */
static void test_closed(void **state)
{
    struct fixture *f = *state;
    mcc_model *model;
    mcc_ctx *ctx, *other;
    mcc_rt_close(NULL);
    mcc_rt_ctx_free(NULL);
    mcc_rt_cancel(NULL);
    assert_int_equal(mcc_rt_open(NULL, &model, NULL), MCC_OK);
    assert_int_equal(mcc_rt_ctx_new(model, NULL, 0, &ctx, NULL), MCC_OK);
    mcc_rt_close(model);
    mcc_rt_close(model);   /* the context still holds it */
    assert_int_equal(mcc_rt_run_api(ctx, f->feed.in, f->feed.out, &f->error), MCC_E_ARG);
    assert_non_null(strstr(f->error.text, "closed"));
    assert_int_equal(mcc_rt_ctx_new(model, NULL, 0, &other, &f->error), MCC_E_ARG);
    mcc_rt_ctx_free(ctx);
}

static void test_open(void **state)
{
    struct fixture *f = *state;
    mcc_model *model;
    mcc_host host = {.size = sizeof host, .flags = 1};
    assert_int_equal(mcc_rt_open(&host, &model, &f->error), MCC_E_CPU);
    assert_non_null(strstr(f->error.text, "impossible"));
    host.flags = 3;
    assert_int_equal(mcc_rt_open(&host, &model, &f->error), MCC_E_ARG);
    host.flags = 2;
    assert_int_equal(mcc_rt_open(&host, &model, &f->error), MCC_OK);
    mcc_rt_close(model);
    host.size = 4;
    assert_int_equal(mcc_rt_open(&host, &model, &f->error), MCC_E_ARG);
    assert_int_equal(mcc_rt_open(NULL, NULL, &f->error), MCC_E_ARG);
    assert_null(mcc_query(MCC_ABI + 1));
}

static struct fixture *hooked;
static int hooked_code;

static void *run_hooked(void *arg)
{
    struct feed feed;
    (void)arg;
    feed_init(&feed, ROWS);
    hooked_code = mcc_rt_run_api(hooked->ctx, feed.in, feed.out, NULL);
    return NULL;
}

static void hook_busy(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, run_hooked, NULL);
    pthread_join(thread, NULL);
}

static void hook_cancel(void)
{
    mcc_rt_cancel(hooked->ctx);
}

/* R14 */
static void test_busy_and_cancel(void **state)
{
    struct fixture *f = hooked = *state;
    knob_hook = hook_busy;
    assert_int_equal(run(f), MCC_OK);
    assert_int_equal(hooked_code, MCC_E_BUSY);
    feed_check(&f->feed);
    mcc_rt_cancel(f->ctx);   /* nothing to cancel */
    knob_hook = hook_cancel;
    assert_int_equal(run(f), MCC_E_CANCELLED);
    knob_hook = NULL;
    assert_int_equal(run(f), MCC_OK);
    feed_check(&f->feed);
}

/* R20: the host's rounding mode and flags survive, and do not matter. */
static void test_fp_state(void **state)
{
#if defined(__x86_64__)
    struct fixture *f = *state;
    unsigned int before = _mm_getcsr();
    _mm_setcsr(0x1f80 | 0x8040 | 0x6000 | 0x04);
    f->feed.x[0] = 1e-40f;   /* denormals are zero in the host, but not in the run */
    f->feed.y[0] = 0;
    int code = run(f);
    unsigned int after = _mm_getcsr();
    _mm_setcsr(before);
    assert_int_equal(code, MCC_OK);
    assert_int_equal(after, 0x1f80 | 0x8040 | 0x6000 | 0x04);
    assert_true(f->feed.z[0] > 1.9e-40f);
#else
    (void)state;
#endif
}

struct events {
    int n;
    uint32_t node[8];
    int end[8];
    uint64_t last;
};

static void on_event(void *user, uint32_t node, int end, uint64_t ns)
{
    struct events *e = user;
    assert_true(ns >= e->last && e->n < 8);
    e->last = ns;
    e->node[e->n] = node;
    e->end[e->n++] = end;
}

static void test_events(void **state)
{
    struct fixture *f = *state;
    struct events events = {0};
    mcc_host host = {.size = sizeof host, .user = &events, .event = on_event};
    mcc_model *model;
    mcc_ctx *ctx;
    assert_int_equal(mcc_rt_open(&host, &model, NULL), MCC_OK);
    assert_int_equal(mcc_rt_ctx_new(model, NULL, 0, &ctx, NULL), MCC_OK);
    assert_int_equal(mcc_rt_run_api(ctx, f->feed.in, f->feed.out, NULL), MCC_OK);
    assert_int_equal(events.n, 4);
    assert_true(events.node[0] == 1 && events.node[1] == 1 && events.node[2] == 2 && events.end[0] == 0 &&
                events.end[3] == 1);
    mcc_rt_ctx_free(ctx);
    mcc_rt_close(model);
}

/* R17 in small: open, run and close leave nothing behind (descriptors and threads; memory is the sanitizer's). */
static void test_many_opens(void **state)
{
    struct fixture *f = *state;
    int before = dup(0);
    close(before);
    knob_ns = 100000;
    for (int i = 0; i < 300; i++) {
        mcc_host host = {.size = sizeof host, .threads = 3};
        mcc_model *model;
        mcc_ctx *ctx;
        assert_int_equal(mcc_rt_open(&host, &model, NULL), MCC_OK);
        assert_int_equal(mcc_rt_ctx_new(model, NULL, 0, &ctx, NULL), MCC_OK);
        assert_int_equal(mcc_rt_run_api(ctx, f->feed.in, f->feed.out, NULL), MCC_OK);
        mcc_rt_ctx_free(ctx);
        mcc_rt_close(model);
    }
    int after = dup(0);
    close(after);
    assert_int_equal(before, after);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_run),      TEST(test_null_and_types), TEST(test_strides),       TEST(test_overlap),
        TEST(test_shapes),   TEST(test_plan),           TEST(test_caller_memory), TEST(test_out_of_memory),
        TEST(test_dlpack),   TEST(test_closed),         TEST(test_open),          TEST(test_busy_and_cancel),
        TEST(test_fp_state), TEST(test_events),         TEST(test_many_opens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
