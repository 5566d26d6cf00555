/* Runs artifacts of another architecture under qemu-user, for tests/support/foreign.py: one process, many artifacts.
 *
 * Reads requests from standard input and answers on standard output. Words have 64 bits, texts are their length and
 * their bytes.
 *
 *   request   path of the artifact, number of inputs, the inputs
 *   value     kind (mcc_value.kind), then a tensor; or: present, number, items, of a map twice as many
 *   tensor    type code, bits, number of dims, dims, bytes, contents; of strings: number of elements in place of bytes,
 * then texts answer    status, then its text, or the number of outputs and the outputs
 *
 * With an argument, a number of threads: one artifact, which after its answer is run as often as each word says that
 * follows, and answers the status (tests/bench/windows.py).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef _WIN32
#include <fcntl.h>
#include <io.h>
#endif

#include "runtime/mcc_load.h"

enum { DEPTH_MOST = 16, RANK_MOST = 64, TEXT_MOST = 4096 };

static void fail(const char *what)
{
    fprintf(stderr, "artifacts: %s\n", what);
    exit(1);
}

static void *memory(size_t n, size_t size)
{
    void *p = calloc(n + 1, size);
    if (!p)
        fail("no memory");
    return p;
}

static void get(void *to, size_t bytes)
{
    if (bytes && fread(to, bytes, 1, stdin) != 1)
        fail("the request ends too early");
}

static int64_t get_word(void)
{
    int64_t w;
    get(&w, sizeof w);
    return w;
}

static size_t get_count(void)
{
    int64_t n = get_word();
    if (n < 0)
        fail("a count below 0");
    return (size_t)n;
}

static char *get_text(size_t *n)
{
    *n = get_count();
    char *text = memory(*n, 1);
    get(text, *n);
    return text;
}

static void put(const void *from, size_t bytes)
{
    if (bytes && fwrite(from, bytes, 1, stdout) != 1)
        fail("nobody reads the answer");
}

static void put_word(int64_t w)
{
    put(&w, sizeof w);
}

static void put_text(const char *text, size_t n)
{
    put_word((int64_t)n);
    put(text, n);
}

struct text {
    const char *utf8;
    size_t bytes;
};

static DLTensor *get_tensor(void)
{
    DLTensor *t = memory(1, sizeof *t);
    t->device.device_type = kDLCPU;
    t->dtype.code = (uint8_t)get_word();
    t->dtype.bits = (uint8_t)get_word();
    t->dtype.lanes = 1;
    t->ndim = (int32_t)get_count();
    if (t->ndim > RANK_MOST)
        fail("too many dims");
    t->shape = memory((size_t)t->ndim, sizeof *t->shape);
    get(t->shape, (size_t)t->ndim * sizeof *t->shape);
    size_t n = get_count();
    if (t->dtype.code != kDLOpaqueHandle) {
        t->data = memory(n + 64, 1);
        get(t->data, n);
        return t;
    }
    struct text *texts = memory(n, sizeof *texts);
    for (size_t i = 0; i < n; i++)
        texts[i].utf8 = get_text(&texts[i].bytes);
    t->data = texts;
    return t;
}

static void get_value(mcc_value *v, int depth)
{
    *v = (mcc_value){.kind = (int32_t)get_word(), .present = 1};
    if (depth > DEPTH_MOST)
        fail("values nested too deeply");
    if (v->kind == MCC_TENSOR) {
        v->tensor = get_tensor();
        return;
    }
    v->present = (int32_t)get_word();
    v->n = get_count();
    size_t items = v->kind == MCC_MAP ? 2 * v->n : v->n;
    v->item = memory(items, sizeof *v->item);
    for (size_t i = 0; i < items; i++)
        get_value(&v->item[i], depth + 1);
}

static void put_tensor(const DLTensor *t)
{
    size_t n = 1;
    for (int32_t d = 0; d < t->ndim; d++)
        n *= (size_t)t->shape[d];
    put_word(t->dtype.code);
    put_word(t->dtype.bits);
    put_word(t->ndim);
    put(t->shape, (size_t)t->ndim * sizeof *t->shape);
    const char *data = (const char *)t->data + t->byte_offset;
    if (t->dtype.code != kDLOpaqueHandle) {
        n = (n * t->dtype.bits + 7) / 8;
        put_text(data, n);
        return;
    }
    put_word((int64_t)n);
    for (size_t i = 0; i < n; i++)
        put_text(((const struct text *)data)[i].utf8, ((const struct text *)data)[i].bytes);
}

static void put_value(const mcc_value *v)
{
    put_word(v->kind);
    if (v->kind == MCC_TENSOR) {
        put_tensor(v->tensor);
        return;
    }
    put_word(v->present);
    put_word((int64_t)v->n);
    for (size_t i = 0; i < (v->kind == MCC_MAP ? 2 * v->n : v->n); i++)
        put_value(&v->item[i]);
}

static void free_value(mcc_value *v)
{
    if (v->kind == MCC_TENSOR) {
        size_t n = v->tensor->dtype.code == kDLOpaqueHandle ? 1 : 0;
        for (int32_t d = 0; d < v->tensor->ndim; d++)
            n *= (size_t)v->tensor->shape[d];
        for (size_t i = 0; i < n; i++)
            free((char *)(size_t)((struct text *)v->tensor->data)[i].utf8);
        free(v->tensor->data);
        free(v->tensor->shape);
        free(v->tensor);
        return;
    }
    for (size_t i = 0; i < (v->kind == MCC_MAP ? 2 * v->n : v->n); i++)
        free_value(&v->item[i]);
    free(v->item);
}

static void run_again(mcc_lib *lib, mcc_ctx *ctx, const mcc_value *in, mcc_value *out)
{
    int64_t times;
    mcc_error error;
    while (fread(&times, sizeof times, 1, stdin) == 1) {
        int status = 0;
        for (int64_t t = 0; t < times && !status; t++) {
            status = lib->api->run_values(ctx, in, out, &error);
            for (uint32_t i = 0; i < lib->api->n_out && !status; i++)
                lib->api->value_release(ctx, &out[i]);
        }
        put_word(status);
        fflush(stdout);
    }
}

/* threads: 0: one, and only once. */
static void answer(const char *path, const mcc_value *in, size_t n, int threads)
{
    mcc_host host = {.size = sizeof host, .threads = threads ? threads : 1};
    mcc_lib *lib = NULL;
    mcc_ctx *ctx = NULL;
    mcc_error error = {.text = ""};
    int status = mcc_load(path, &host, &lib, &error);
    if (!status && n != lib->api->n_in) {
        snprintf(error.text, sizeof error.text, "%zu inputs given, %u in the artifact", n, lib->api->n_in);
        status = MCC_E_ARG;
    }
    if (!status)
        status = lib->api->ctx_new(lib->model, NULL, 0, &ctx, &error);
    mcc_value *out = memory(status ? 0 : lib->api->n_out, sizeof *out);
    if (!status)
        status = lib->api->run_values(ctx, in, out, &error);
    put_word(status);
    if (status) {
        put_text(error.text, strlen(error.text));
    } else {
        put_word(lib->api->n_out);
        for (uint32_t i = 0; i < lib->api->n_out; i++) {
            put_value(&out[i]);
            lib->api->value_release(ctx, &out[i]);
        }
        fflush(stdout);
        if (threads)
            run_again(lib, ctx, in, out);
    }
    if (ctx)
        lib->api->ctx_free(ctx);
    mcc_unload(lib);
    free(out);
}

int main(int argc, char **argv)
{
    int64_t length;
    int threads = argc > 1 ? atoi(argv[1]) : 0;
#ifdef _WIN32
    _setmode(0, _O_BINARY);
    _setmode(1, _O_BINARY);
#endif
    while (fread(&length, sizeof length, 1, stdin) == 1) {
        if (length < 0 || length > TEXT_MOST)
            fail("a path of that length");
        char *path = memory((size_t)length, 1);
        get(path, (size_t)length);
        size_t n = get_count();
        mcc_value *in = memory(n, sizeof *in);
        for (size_t i = 0; i < n; i++)
            get_value(&in[i], 0);
        answer(path, in, n, threads);
        fflush(stdout);
        for (size_t i = 0; i < n; i++)
            free_value(&in[i]);
        free(in);
        free(path);
    }
    return 0;
}
