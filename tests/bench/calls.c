/* Time of one call of run through the C interface: what a host pays for a small network, everything included.
 *
 * usage: calls MODEL.so [THREADS]        prints the quartiles of ns per call, of CPU time of the calling thread
 *
 * Inputs are fixed f32 tensors with every open extent 1. The median of 41 blocks of calls of about 2 ms each. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "runtime/mcc_load.h"

enum { BLOCKS = 41, PORTS_MAX = 16, RANK_MAX = 16 };
static const double BLOCK_NS = 2e6;

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_number(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A tensor for the port; false when it is none of fixed rank with f32 elements, or memory ends. */
static int tensor_make(const mcc_port *port, DLTensor *t, int64_t *shape)
{
    size_t n = 1;
    if (port->ndim < 0 || port->ndim > RANK_MAX || port->dtype.code != kDLFloat || port->dtype.bits != 32 ||
        port->flags)
        return 0;
    for (int32_t d = 0; d < port->ndim; d++) {
        shape[d] = port->dims[d].extent < 0 ? 1 : port->dims[d].extent;
        n *= (size_t)shape[d];
    }
    float *data = aligned_alloc(64, (n * sizeof *data + 64) / 64 * 64);
    if (!data)
        return 0;
    for (size_t i = 0; i < n; i++)
        data[i] = (float)(i % 13) * 0.1f;
    *t = (DLTensor){.data = data, .device = {kDLCPU, 0}, .ndim = port->ndim, .dtype = port->dtype, .shape = shape};
    return 1;
}

static int calls_time(const mcc_api *api, mcc_ctx *ctx, const DLTensor *const *in, DLTensor *const *out, double *ns,
                      mcc_error *error)
{
    double reps = 1;
    for (int block = -12; block < BLOCKS; block++) {   /* first the number of calls in a block is found */
        double start = now_ns();
        for (double i = 0; i < reps; i++)
            if (api->run(ctx, in, out, error) != MCC_OK)
                return 0;
        double spent = now_ns() - start;
        if (block >= 0)
            ns[block] = spent / reps;
        else if (spent < BLOCK_NS / 2)
            reps *= 4;
    }
    qsort(ns, BLOCKS, sizeof *ns, by_number);
    return 1;
}

int main(int argc, char **argv)
{
    mcc_host host = {.size = sizeof host, .threads = argc > 2 ? (uint32_t)atoi(argv[2]) : 1};
    mcc_lib *lib;
    mcc_ctx *ctx = NULL;
    mcc_error error = {0};
    DLTensor tensor[2 * PORTS_MAX];
    DLTensor *out[PORTS_MAX];
    const DLTensor *in[PORTS_MAX];
    static int64_t shape[2 * PORTS_MAX][RANK_MAX];
    double ns[BLOCKS];
    if (argc < 2 || mcc_load(argv[1], &host, &lib, &error)) {
        fprintf(stderr, "usage: calls MODEL.so [THREADS]\n%s\n", error.text);
        return 2;
    }
    const mcc_api *api = lib->api;
    for (uint32_t i = 0; i < api->n_in + api->n_out; i++) {
        const mcc_port *port = i < api->n_in ? &api->in[i] : &api->out[i - api->n_in];
        if (api->n_in > PORTS_MAX || api->n_out > PORTS_MAX || !tensor_make(port, &tensor[i], shape[i])) {
            fprintf(stderr, "%s: only f32 tensors of known rank are timed\n", argv[1]);
            return 2;
        }
        if (i < api->n_in)
            in[i] = &tensor[i];
        else
            out[i - api->n_in] = &tensor[i];
    }
    if (api->ctx_new(lib->model, NULL, 0, &ctx, &error) || !calls_time(api, ctx, in, out, ns, &error)) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    printf("%.1f %.1f %.1f\n", ns[BLOCKS / 4], ns[BLOCKS / 2], ns[BLOCKS * 3 / 4]);
    api->ctx_free(ctx);
    mcc_unload(lib);
    return 0;
}
