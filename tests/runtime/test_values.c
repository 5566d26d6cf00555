/* Ports that are not plain tensors, extents that the data decides, sequences inside a run, sidecar weights. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/ops/rt_ops.h"
#include "tests/runtime/models.h"

static DLTensor tensor_of(void *data, int32_t ndim, int64_t *shape)
{
    return (DLTensor){.data = data, .device = {kDLCPU, 0}, .ndim = ndim, .dtype = {kDLFloat, 32, 1}, .shape = shape};
}

static mcc_value value_of(DLTensor *tensor)
{
    return (mcc_value){.kind = MCC_TENSOR, .present = 1, .tensor = tensor};
}

/* ---- pick: strings and sequences ------------------------------------------------------------------------------ */

struct pick {
    float v[4], e0[2], e1[3];
    struct rt_string names[2];
    int64_t m[1], two[1], n0[1], n1[1], step[1];
    DLTensor tv, tn, t0, t1;
    mcc_value list[2], in[3], out[4];
};

static void pick_init(struct pick *p)
{
    *p = (struct pick){.v = {0, 5, 0, 7},
                       .e0 = {1, 2},
                       .e1 = {9, 8, 7},
                       .names = {{"one", 3}, {"zwei", 4}},
                       .m = {4},
                       .two = {2},
                       .n0 = {2},
                       .n1 = {2},
                       .step = {2}};
    p->tv = tensor_of(p->v, 1, p->m);
    p->tn = tensor_of(p->names, 1, p->two);
    p->tn.dtype = (DLDataType){kDLOpaqueHandle, 128, 1};
    p->t0 = tensor_of(p->e0, 1, p->n0);
    p->t1 = tensor_of(p->e1, 1, p->n1);   /* 9, 7 */
    p->t1.strides = p->step;
    p->list[0] = value_of(&p->t0);
    p->list[1] = value_of(&p->t1);
    p->in[0] = value_of(&p->tv);
    p->in[1] = value_of(&p->tn);
    p->in[2] = (mcc_value){.kind = MCC_SEQUENCE, .present = 1, .n = 2, .item = p->list};
}

static void pick_check(const struct pick *p)
{
    const mcc_value *out = p->out;
    assert_true(out[0].kind == MCC_TENSOR && out[0].tensor->ndim == 1 && out[0].tensor->shape[0] == 2);
    assert_memory_equal(out[0].tensor->data, ((int64_t[]){1, 3}), 16);
    const struct rt_string *last = out[1].tensor->data;
    assert_true(last[0].bytes == 4 && memcmp(last[0].utf8, "zwei", 4) == 0 && last[0].utf8 != p->names[1].utf8);
    assert_true(last[1].bytes == 3 && memcmp(last[1].utf8, "one", 3) == 0);
    assert_true(out[2].kind == MCC_SEQUENCE && out[2].n == 3);
    assert_memory_equal(out[2].item[0].tensor->data, p->v, 16);
    assert_true(out[2].item[1].tensor->shape[0] == 2 && out[2].item[2].tensor->strides == NULL);
    assert_memory_equal(out[2].item[2].tensor->data, ((float[]){9, 7}), 8);
    assert_true(*(float *)out[3].tensor->data == 3 && out[3].tensor->ndim == 0);
}

static void test_values(void **state)
{
    struct counted memory = {0, 0, -1};
    mcc_host host = counted_host(&memory);
    mcc_model *model;
    mcc_ctx *ctx;
    mcc_error error;
    struct pick p;
    (void)state;
    assert_int_equal(rt_open_desc(&pick_desc, &host, &model, &error), MCC_OK);
    assert_int_equal(mcc_rt_ctx_new(model, NULL, 0, &ctx, &error), MCC_OK);
    for (int i = 0; i < 3; i++) {
        pick_init(&p);
        assert_int_equal(mcc_rt_run_values(ctx, p.in, p.out, &error), MCC_OK);
        pick_check(&p);
        for (int k = 0; k < 4; k++)
            mcc_rt_value_release(ctx, &p.out[k]);
        mcc_rt_value_release(ctx, &p.out[0]);   /* empty by now */
    }
    pick_init(&p);
    p.in[2].n = 0;
    p.in[2].item = NULL;
    assert_int_equal(mcc_rt_run_values(ctx, p.in, p.out, &error), MCC_OK);
    assert_int_equal(p.out[2].n, 1);
    for (int k = 0; k < 4; k++)
        mcc_rt_value_release(ctx, &p.out[k]);
    mcc_rt_ctx_free(ctx);
    mcc_rt_close(model);
    assert_int_equal(memory.bytes, 0);
}

static void test_values_refused(void **state)
{
    mcc_model *model;
    mcc_ctx *ctx;
    mcc_error error;
    struct pick p;
    (void)state;
    assert_int_equal(rt_open_desc(&pick_desc, NULL, &model, &error), MCC_OK);
    assert_int_equal(mcc_rt_ctx_new(model, NULL, 0, &ctx, &error), MCC_OK);
    pick_init(&p);
    const DLTensor *in[3] = {&p.tv, &p.tn, &p.t0};
    DLTensor *out[4] = {&p.tv, &p.tv, &p.tv, &p.tv};
    DLManagedTensorVersioned *managed[4];
    assert_int_equal(mcc_rt_run_api(ctx, in, out, &error), MCC_E_ARG);
    assert_non_null(strstr(error.text, "'names' is not a plain tensor: only run_values"));
    assert_int_equal(mcc_rt_run_dlpack(ctx, in, managed, &error), MCC_E_ARG);
#define REFUSED(change, code, word)                                      \
    pick_init(&p);                                                       \
    change;                                                              \
    assert_int_equal(mcc_rt_run_values(ctx, p.in, p.out, &error), code); \
    assert_non_null(strstr(error.text, word));                           \
    assert_true(p.out[0].tensor == NULL && p.out[2].item == NULL)
    REFUSED(p.in[2].kind = MCC_OPTIONAL, MCC_E_ARG, "'list': a value of kind 2");
    REFUSED(p.in[0].kind = MCC_SEQUENCE, MCC_E_ARG, "'v': a tensor");
    REFUSED(p.in[0].tensor = NULL, MCC_E_ARG, "'v': the tensor is NULL");
    REFUSED(p.in[2].item = NULL, MCC_E_ARG, "'list': items are NULL");
    REFUSED(p.in[2].n = SIZE_MAX, MCC_E_ARG, "too many");
    REFUSED(p.list[1].kind = MCC_SEQUENCE, MCC_E_ARG, "'list': a value of kind 1");
    REFUSED(p.list[1].tensor = NULL, MCC_E_ARG, "'list': a tensor inside is NULL");
    REFUSED(p.t1.dtype.bits = 64, MCC_E_DTYPE, "'list': a tensor inside");
    REFUSED(p.t1.ndim = -5, MCC_E_ARG, "'list'");
    REFUSED(p.n1[0] = -5, MCC_E_SHAPE, "'list': dim 0 is negative");
    REFUSED(p.t1.data = NULL, MCC_E_ARG, "'list': data is NULL");
    REFUSED(p.m[0] = 0, MCC_E_SHAPE, "'M' goes from 1");
#undef REFUSED
    assert_int_equal(mcc_rt_run_values(ctx, NULL, p.out, &error), MCC_E_ARG);
    mcc_rt_ctx_free(ctx);
    mcc_rt_close(model);
}

static void test_out_of_memory(void **state)
{
    bool passed = false;
    (void)state;
    for (int64_t at = 0; at < 60 && !passed; at++) {
        struct counted memory = {0, 0, at};
        mcc_host host = counted_host(&memory);
        mcc_model *model;
        mcc_ctx *ctx = NULL;
        struct pick p;
        pick_init(&p);
        int code = rt_open_desc(&pick_desc, &host, &model, NULL);
        if (!code)
            code = mcc_rt_ctx_new(model, NULL, 0, &ctx, NULL);
        if (!code)
            code = mcc_rt_run_values(ctx, p.in, p.out, NULL);
        assert_true(code == MCC_OK || code == MCC_E_NOMEM);
        passed = code == MCC_OK;
        for (int k = 0; k < 4; k++)
            mcc_rt_value_release(ctx, &p.out[k]);
        mcc_rt_ctx_free(ctx);
        mcc_rt_close(model);
        assert_int_equal(memory.bytes, 0);
    }
    assert_true(passed);
}

/* ---- loose: the data decides ------------------------------------------------------------------------------------- */

static void test_dynamic(void **state)
{
    float a[] = {0, 1, 2, 0, 0, 3};
    int64_t dims[2] = {2, 3}, got[2] = {0, 0}, *shapes[2] = {got, NULL};
    DLTensor t = tensor_of(a, 2, dims);
    const DLTensor *in[1] = {&t};
    DLTensor *none[2] = {&t, &t};
    DLManagedTensorVersioned *out[2];
    mcc_model *model;
    mcc_ctx *ctx;
    mcc_error error;
    size_t bytes;
    (void)state;
    assert_int_equal(rt_open_desc(&loose_desc, NULL, &model, &error), MCC_OK);
    assert_int_equal(mcc_rt_plan(model, in, shapes, &bytes, &error), MCC_OK);
    assert_true(got[0] == -1 && got[1] == -1);
    assert_int_equal(mcc_rt_ctx_new(model, NULL, 0, &ctx, &error), MCC_OK);
    assert_int_equal(mcc_rt_run_api(ctx, in, none, &error), MCC_E_ARG);
    assert_non_null(strstr(error.text, "'hits': the data decides"));
    for (int rank = 0; rank <= 2; rank++) {
        t.ndim = rank;
        int64_t n = rank == 0 ? 1 : rank == 1 ? 2 : 6, found = rank == 0 ? 0 : rank == 1 ? 1 : 3;
        assert_int_equal(mcc_rt_run_dlpack(ctx, in, out, &error), MCC_OK);
        assert_true(out[0]->dl_tensor.shape[0] == rank && out[0]->dl_tensor.shape[1] == found);
        assert_int_equal(out[1]->dl_tensor.ndim, rank);
        assert_memory_equal(out[1]->dl_tensor.data, a, (size_t)n * 4);
        for (int k = 0; k < 2; k++)
            out[k]->deleter(out[k]);
    }
    dims[1] = -3;
    assert_int_equal(mcc_rt_run_dlpack(ctx, in, out, &error), MCC_E_SHAPE);
    t.ndim = 33;
    assert_int_equal(mcc_rt_run_dlpack(ctx, in, out, &error), MCC_E_SHAPE);
    mcc_rt_ctx_free(ctx);
    mcc_rt_close(model);
}

static int blocks; /* that the host has handed out and not got back */
static int allocations;

static void *counting_alloc(void *user, size_t bytes, size_t align)
{
    (void)user;
    blocks++, allocations++;
    return aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void counting_free(void *user, void *block, size_t bytes)
{
    (void)user, (void)bytes;
    blocks--;
    free(block);
}

/* The segment that a run made becomes the output's block: nothing is allocated for it anew, and it outlives the
 * context. */
static void test_dynamic_is_not_copied(void **state)
{
    float a[64];
    int64_t dims[1] = {64};
    DLTensor t = tensor_of(a, 1, dims);
    const DLTensor *in[1] = {&t};
    DLManagedTensorVersioned *out[2];
    mcc_host host = {.size = sizeof host, .threads = 1, .alloc = counting_alloc, .release = counting_free};
    mcc_model *model;
    mcc_ctx *ctx;
    (void)state;
    blocks = 0;
    for (int i = 0; i < 64; i++)
        a[i] = (float)(i % 2);
    assert_int_equal(rt_open_desc(&loose_desc, &host, &model, NULL), MCC_OK);
    assert_int_equal(mcc_rt_ctx_new(model, NULL, 0, &ctx, NULL), MCC_OK);
    for (int run = 0; run < 2; run++) {
        allocations = 0;
        assert_int_equal(mcc_rt_run_dlpack(ctx, in, out, NULL), MCC_OK);
        if (run == 0)
            for (int k = 0; k < 2; k++)
                out[k]->deleter(out[k]);
    }
    assert_int_equal(allocations, 3); /* the input as a value, the segment, b */
    mcc_rt_ctx_free(ctx);
    mcc_rt_close(model);
    assert_int_equal(blocks, 2);
    assert_int_equal((uintptr_t)out[0]->dl_tensor.data % 64, 0);
    for (int64_t i = 0; i < 32; i++)
        assert_int_equal(((int64_t *)out[0]->dl_tensor.data)[i], 2 * i + 1);
    for (int k = 0; k < 2; k++)
        out[k]->deleter(out[k]);
    assert_int_equal(blocks, 0);
}

/* In the caller's memory, buffers whose size the data decides come out of what is left there. */
static void test_dynamic_in_caller_memory(void **state)
{
    float a[64];
    int64_t dims[1] = {64};
    DLTensor t = tensor_of(a, 1, dims);
    const DLTensor *in[1] = {&t};
    DLManagedTensorVersioned *out[2];
    mcc_host host = {.size = sizeof host, .threads = 1};
    mcc_model *model;
    mcc_ctx *ctx;
    size_t bytes;
    (void)state;
    for (int i = 0; i < 64; i++)
        a[i] = 1;
    assert_int_equal(rt_open_desc(&loose_desc, &host, &model, NULL), MCC_OK);
    assert_int_equal(mcc_rt_plan(model, in, NULL, &bytes, NULL), MCC_OK);
    for (int extra = 0; extra < 2; extra++) {
        size_t size = bytes + (extra ? 64 * 8 + 8192 : 0);
        void *mem = malloc(size);
        assert_int_equal(mcc_rt_ctx_new(model, mem, size, &ctx, NULL), MCC_OK);
        int code = mcc_rt_run_dlpack(ctx, in, out, NULL);
        assert_int_equal(code, extra ? MCC_OK : MCC_E_NOMEM);
        for (int k = 0; k < 2 && extra; k++)
            out[k]->deleter(out[k]);
        mcc_rt_ctx_free(ctx);
        free(mem);
    }
    mcc_rt_close(model);
}

/* ---- sequences inside a run -------------------------------------------------------------------------------------- */

#define VALUE(word) ((struct mcc_rt_value *)(intptr_t)(word))

static void test_sequences(void **state)
{
    mcc_model *model;
    mcc_ctx *ctx;
    float x[12];
    int64_t dims[2] = {3, 4}, by_two = 2, parts[2] = {1, 3}, wrong[2] = {1, 1};
    (void)state;
    for (int i = 0; i < 12; i++)
        x[i] = (float)i;
    assert_int_equal(rt_open_desc(&loose_desc, NULL, &model, NULL), MCC_OK);
    assert_int_equal(mcc_rt_ctx_new(model, NULL, 0, &ctx, NULL), MCC_OK);
    assert_int_equal(rt_run_begin(ctx, &ctx, &ctx, NULL), MCC_OK);
    struct mcc_rt_run *run = &ctx->run;
    struct mcc_rt_value *t = VALUE(mcc_rt_tensor(run, RT_ELEM_F32, 2, dims, x));
    struct mcc_rt_value *columns = VALUE(mcc_rt_seq_split(run, 0, t, parts, 2, 1, 1));
    assert_true(columns->n == 2 && columns->items[1]->dims[1] == 3 && ((const float *)columns->items[1]->data)[3] == 5);
    struct mcc_rt_value *whole = VALUE(mcc_rt_seq_concat(run, 0, columns, -1, 0));
    assert_memory_equal(whole->data, x, sizeof x);
    struct mcc_rt_value *rows = VALUE(mcc_rt_seq_split(run, 0, t, NULL, -1, 0, 0));
    assert_true(rows->n == 3 && rows->items[2]->rank == 1 && rows->items[2]->dims[0] == 4);
    whole = VALUE(mcc_rt_seq_concat(run, 0, rows, 0, 1));
    assert_true(whole->rank == 2 && whole->dims[0] == 3 && memcmp(whole->data, x, sizeof x) == 0);
    whole = VALUE(mcc_rt_seq_concat(run, 0, rows, 1, 1));
    assert_true(whole->dims[0] == 4 && whole->dims[1] == 3 && ((const float *)whole->data)[1] == 4);
    struct mcc_rt_value *pairs = VALUE(mcc_rt_seq_split(run, 0, t, &by_two, 0, 0, 1));
    assert_true(pairs->n == 2 && pairs->items[1]->dims[0] == 1);
    struct mcc_rt_value *list = VALUE(mcc_rt_seq_new(run, RT_ELEM_F32));
    list = VALUE(mcc_rt_seq_append(run, list, t));
    list = VALUE(mcc_rt_seq_insert(run, 0, list, whole, -1));
    assert_true(list->n == 2 && VALUE(mcc_rt_seq_at(run, 0, list, -1)) == t);
    list = VALUE(mcc_rt_seq_erase(run, 0, list, 0));
    assert_true(mcc_rt_seq_length(run, list) == 1 && list->items[0] == t);
    assert_true(mcc_rt_opt_has(run, VALUE(mcc_rt_opt_new(run, RT_ELEM_F32, t))) == 1);
    assert_true(VALUE(mcc_rt_opt_get(run, 0, VALUE(mcc_rt_opt_new(run, RT_ELEM_F32, t)))) == t);
    assert_int_equal(mcc_rt_poll(run), 0);
    struct mcc_rt_value *empty = VALUE(mcc_rt_opt_new(run, RT_ELEM_F32, NULL));
    assert_int_equal(mcc_rt_opt_has(run, empty), 0);
    assert_int_equal(mcc_rt_opt_get(run, 0, empty), MCC_E_VALUE);
    assert_int_equal(mcc_rt_seq_at(run, 0, list, 1), MCC_E_VALUE);
    assert_int_equal(mcc_rt_seq_at(run, 0, list, INT64_MIN), MCC_E_VALUE);
    assert_int_equal(mcc_rt_seq_erase(run, 0, list, -2), MCC_E_VALUE);
    assert_int_equal(mcc_rt_seq_insert(run, 0, list, t, 2), MCC_E_VALUE);
    assert_int_equal(mcc_rt_seq_split(run, 0, t, wrong, 2, 1, 1), MCC_E_VALUE);
    assert_int_equal(mcc_rt_seq_concat(run, 0, VALUE(mcc_rt_seq_append(run, list, rows->items[0])), 0, 0), MCC_E_SHAPE);
    assert_true(mcc_rt_poll(run) < 0);
    rt_run_end(ctx);
    mcc_rt_ctx_free(ctx);
    mcc_rt_close(model);
}

/* ---- sidecar weights --------------------------------------------------------------------------------------------- */

enum { HEAD = 64, WEIGHTS = 256 };

struct sidecar {
    _Alignas(64) unsigned char file[HEAD + WEIGHTS + 64];
    struct mcc_rt_desc desc;
    mcc_host host;
};

static void sidecar_init(struct sidecar *s)
{
    for (size_t i = 0; i < sizeof s->file; i++)
        s->file[i] = (unsigned char)(i * 7);
    s->desc = pair_desc;
    s->desc.weights_file = "model.mccw";
    s->desc.weights_size = WEIGHTS;
    s->desc.sidecar_head = HEAD;
    s->desc.sidecar_head_hash = rt_hash(s->file, HEAD);
    s->desc.weights_hash = rt_hash(s->file + HEAD, WEIGHTS);
    s->host = (mcc_host){.size = sizeof s->host, .flags = MCC_HOST_VERIFY_WEIGHTS};
}

static void opens(const struct sidecar *s, int code, const char *word)
{
    mcc_model *model;
    mcc_error error = {0};
    assert_int_equal(rt_open_desc(&s->desc, &s->host, &model, &error), code);
    if (!strstr(error.text, word))
        fail_msg("'%s' lacks '%s'", error.text, word);
    if (code != MCC_OK)
        return;
    assert_memory_equal(model->weights, s->file + HEAD, WEIGHTS);
    mcc_rt_close(model);
}

static void test_sidecar_file(void **state)
{
    static struct sidecar s;
    char path[] = "/tmp/mcc-test-weights-XXXXXX";
    (void)state;
    sidecar_init(&s);
    int fd = mkstemp(path);
    s.host.weights_path = path;
    opens(&s, MCC_E_IO, "has 0 bytes where 320");
    assert_int_equal(write(fd, s.file, HEAD + WEIGHTS), HEAD + WEIGHTS);
    opens(&s, MCC_OK, "");
    s.desc.weights_hash++;
    opens(&s, MCC_E_IO, "damaged");
    s.host.flags = 0;
    opens(&s, MCC_OK, "");
    s.desc.sidecar_head_hash++;
    opens(&s, MCC_E_IO, "another model");
    s.desc.sidecar_head_hash--;
    assert_int_equal(ftruncate(fd, HEAD + WEIGHTS - 1), 0);
    opens(&s, MCC_E_IO, "has 319 bytes");
    close(fd);
    unlink(path);
    opens(&s, MCC_E_IO, "cannot open");
    s.host.weights_path = "/tmp";
    opens(&s, MCC_E_IO, "'/tmp'");
}

static void test_sidecar_in_memory(void **state)
{
    static struct sidecar s;
    (void)state;
    sidecar_init(&s);
    s.host.weights = s.file;
    s.host.weights_size = HEAD + WEIGHTS;
    opens(&s, MCC_OK, "");
    s.host.weights_size--;
    opens(&s, MCC_E_IO, "319 bytes");
    s.host.weights_size = 0;
    opens(&s, MCC_E_ARG, "weights_size");
    s.host.weights = s.file + 4;
    s.host.weights_size = HEAD + WEIGHTS;
    opens(&s, MCC_E_ARG, "multiple of 64");
}

/* Beside the library, which here is the test program: found by the address of the description. */
static void test_sidecar_beside(void **state)
{
    static struct sidecar s = {.desc = {.n_sym = 99}}; /* in the file's data, as in an artifact */
    struct sidecar on_stack;
    char own[4096];
    (void)state;
    ssize_t n = readlink("/proc/self/exe", own, sizeof own - 32);
    assert_true(n > 0);
    while (own[n - 1] != '/')
        n--;
    snprintf(own + n, 32, "test-%d.mccw", (int)getpid());
    sidecar_init(&s);
    s.desc.weights_file = own + n;
    opens(&s, MCC_E_IO, "cannot open");
    int fd = open(own, O_CREAT | O_WRONLY, 0600);
    assert_int_equal(write(fd, s.file, HEAD + WEIGHTS), HEAD + WEIGHTS);
    close(fd);
    mcc_model *model;
    int code = rt_open_desc(&s.desc, &s.host, &model, NULL);
    unlink(own);
    assert_int_equal(code, MCC_OK);
    mcc_rt_close(model);
    sidecar_init(&on_stack); /* in no file */
    opens(&on_stack, MCC_E_IO, "cannot tell where the library is");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_values_refused),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_dynamic),
        cmocka_unit_test(test_dynamic_is_not_copied),
        cmocka_unit_test(test_dynamic_in_caller_memory),
        cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_sidecar_file),
        cmocka_unit_test(test_sidecar_in_memory),
        cmocka_unit_test(test_sidecar_beside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
