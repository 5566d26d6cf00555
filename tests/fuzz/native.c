/* Compiles a graph to an artifact for one CPU variant, loads it twice and runs it with one thread and with several,
 * which must give the same bits. Kernels are called large, so that threads share even the smallest. All memory lies
 * next to pages without access.
 */
#include "tests/fuzz/guard.h"
#include "tests/fuzz/ways.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/library/compile/backend.h"
#include "runtime/mcc.h"
#include "runtime/mcc_load.h"

enum { ONE, SEVERAL, LIBS };

struct native {
    struct draw *d;
    struct strbuf *why;
    mcc_lib *lib[LIBS];
};

struct native *native_make(struct draw *d, const struct way *w, const char *path, struct strbuf *why)
{
    struct native *n = NEW(&d->ctx->session, struct native);
    mcc_error error = {0};
    n->d = d;
    n->why = why;
    if (!stages_of_way(d->ctx, d->g, w, NULL, path, why))
        return NULL;
    for (int i = 0; i < LIBS; i++) {
        mcc_host host = {
            .size = sizeof host, .threads = i == ONE ? 1 : w->threads, .alloc = guard_alloc, .release = guard_release};
        if (mcc_load(path, &host, &n->lib[i], &error) == MCC_OK)
            continue;
        strbuf_printf(why, "load: %s", error.text);
        unlink(path);
        return NULL;
    }
    unlink(path);
    return n;
}

void native_close(struct native *n)
{
    for (int i = 0; n && i < LIBS; i++)
        mcc_unload(n->lib[i]);
}

static void copy_out(struct arena *arena, const struct tensor *like, const DLTensor *from, struct tensor *to)
{
    int64_t n = 1;
    *to = *like;
    to->rank = from->ndim;
    to->dims = arena_copy(arena, from->shape, ((size_t)from->ndim + 1) * sizeof *to->dims);
    for (int32_t i = 0; i < to->rank; i++)
        n *= to->dims[i];
    to->data = memory_odd(arena, n * elem_size(to->elem), elem_size(to->elem));
    if (n)
        memcpy(to->data, (const char *)from->data + from->byte_offset, (size_t)n * elem_size(to->elem));
}

/* Through run_dlpack: the artifact knows the shapes. */
static bool run(struct native *native, mcc_lib *lib, struct tensor *out)
{
    struct draw *d = native->d;
    struct arena *arena = &d->ctx->session;
    const mcc_api *api = lib->api;
    DLTensor *t = NEW_ARRAY(arena, DLTensor, api->n_in + 1);
    const DLTensor **ins = NEW_ARRAY(arena, const DLTensor *, api->n_in + 1);
    DLManagedTensorVersioned **outs = NEW_ARRAY(arena, DLManagedTensorVersioned *, api->n_out + 1);
    mcc_ctx *ctx;
    mcc_error error = {0};
    for (uint32_t k = 0; k < api->n_in; k++) {
        struct tensor *in = &d->inputs[k];
        int64_t bytes = tensor_count(in) * elem_size(in->elem);
        char *data = guard_alloc(NULL, (size_t)bytes, elem_size(in->elem));
        memcpy(data, in->data, (size_t)bytes);
        t[k] = (DLTensor){
            .data = data, .device = {kDLCPU, 0}, .ndim = in->rank, .dtype = api->in[k].dtype, .shape = in->dims};
        ins[k] = &t[k];
    }
    bool ok = api->ctx_new(lib->model, NULL, 0, &ctx, &error) == MCC_OK;
    if (ok) {
        ok = api->run_dlpack(ctx, ins, outs, &error) == MCC_OK;
        for (uint32_t k = 0; ok && k < api->n_out; k++) {
            struct tensor like = {
                .kind = TYPE_TENSOR, .elem = value_type(d->g, d->g->outputs.data[k].value)->elem, .present = true};
            copy_out(arena, &like, &outs[k]->dl_tensor, &out[k]);
            outs[k]->deleter(outs[k]);
        }
        api->ctx_free(ctx);
    }
    for (uint32_t k = 0; k < api->n_in; k++)
        guard_release(NULL, t[k].data, (size_t)(tensor_count(&d->inputs[k]) * elem_size(d->inputs[k].elem)));
    if (!ok)
        strbuf_printf(native->why, "run: %s (%d)", error.text, error.code);
    if (guard_broken())
        strbuf_printf(native->why, "bytes next to a block are written");
    return ok && !guard_broken();
}

bool native_run(struct native *n, struct tensor *out)
{
    uint32_t n_out = n->d->g->outputs.n;
    struct tensor *again = NEW_ARRAY(&n->d->ctx->session, struct tensor, n_out + 1);
    if (!run(n, n->lib[ONE], out) || !run(n, n->lib[SEVERAL], again))
        return false;
    for (uint32_t k = 0; k < n_out; k++) {
        int64_t bytes = tensor_count(&out[k]) * elem_size(out[k].elem);
        if (bytes == tensor_count(&again[k]) * elem_size(again[k].elem) &&
            !memcmp(out[k].data, again[k].data, (size_t)bytes))
            continue;
        strbuf_printf(n->why, "output %u depends on the number of threads", k);
        return false;
    }
    return true;
}
