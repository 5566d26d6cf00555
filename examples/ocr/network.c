/* See network.h. */
#include "network.h"

#include <stdio.h>

#include "image.h"

static void check(int status, const char *what, const mcc_error *error)
{
    if (status != MCC_OK) {
        fprintf(stderr, "ocr: %s: %s\n", what, error->text);
        exit(2);
    }
}

network network_open(const char *path)
{
    network n = {0};
    mcc_error error;
    check(mcc_load(path, NULL, &n.lib, &error), path, &error);
    check(n.lib->api->ctx_new(n.lib->model, NULL, 0, &n.ctx, &error), path, &error);
    if (n.lib->api->n_in != 1 || n.lib->api->n_out != 1 || n.lib->api->out->ndim < 1 || n.lib->api->out->ndim > 8) {
        fprintf(stderr, "ocr: %s: another network\n", path);
        exit(2);
    }
    return n;
}

void network_run(network *n, float *in, int64_t batch, int64_t channels, int64_t height, int64_t width)
{
    int64_t in_shape[] = {batch, channels, height, width}, *shapes[] = {n->shape};
    DLTensor x = {in, {kDLCPU, 0}, 4, {kDLFloat, 32, 1}, in_shape, NULL, 0};
    DLTensor y = {NULL, {kDLCPU, 0}, n->lib->api->out->ndim, {kDLFloat, 32, 1}, n->shape, NULL, 0};
    const DLTensor *ins[] = {&x};
    DLTensor *outs[] = {&y};
    mcc_error error;
    check(n->lib->api->plan(n->lib->model, ins, shapes, NULL, &error), n->lib->api->name, &error);
    size_t values = 1;
    for (int i = 0; i < y.ndim; i++)
        values *= (size_t)n->shape[i];
    y.data = n->out = need(realloc(n->out, (values + 1) * sizeof(float)));
    check(n->lib->api->run(n->ctx, ins, outs, &error), n->lib->api->name, &error);
}

void network_close(network *n)
{
    n->lib->api->ctx_free(n->ctx);
    mcc_unload(n->lib);
    free(n->out);
}
