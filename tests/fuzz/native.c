/* Compiles a graph to an artifact, loads it and runs it. */
#include "tests/fuzz/ways.h"

#include <string.h>
#include <unistd.h>

#include "cli/backend.h"
#include "runtime/mcc.h"
#include "runtime/mcc_load.h"

static bool compile(struct draw *d, const struct way *w, const char *path, struct strbuf *why)
{
    static const char *const layouts[] = {"auto", "NCHW", "NHWC", "NC16c"};
    struct options *o = NEW(&d->ctx->session, struct options);
    struct compilation *c = NEW(&d->ctx->session, struct compilation);
    options_init(o);
    o->self = "/proc/self/exe";
    o->level = w->level;
    o->jobs = 1;
    o->variants = "native";
    o->layout = layouts[w->layout];
    c->ctx = d->ctx;
    c->options = o;
    c->output = path;
    c->graph = d->g;
    bool fused = run_fuse(c);
    c->module->winograd = w->winograd;
    c->module->winograd_always = true;
    if (fused && run_layout(c) && run_plan(c) && run_schedule(c) && run_codegen(c) && run_link(c))
        return true;
    strbuf_printf(why, "compilation: ");
    diags_append(d->ctx, why);
    return false;
}

static void bind(DLTensor *t, const mcc_port *port, struct tensor *from, void *data)
{
    *t = (DLTensor){.data = data, .device = {kDLCPU, 0}, .ndim = from->rank, .dtype = port->dtype, .shape = from->dims};
}

static bool run(struct draw *d, mcc_lib *lib, const struct tensor *like, struct tensor *out, mcc_error *error)
{
    struct arena *arena = &d->ctx->session;
    const mcc_api *api = lib->api;
    DLTensor *t = NEW_ARRAY(arena, DLTensor, api->n_in + api->n_out), **outs = NEW_ARRAY(arena, DLTensor *, api->n_out + 1);
    const DLTensor **ins = NEW_ARRAY(arena, const DLTensor *, api->n_in + 1);
    mcc_ctx *ctx;
    for (uint32_t k = 0; k < api->n_in; k++) {
        struct tensor *in = &d->inputs[k];
        int64_t bytes = tensor_elements(in) * elem_size(in->elem);
        char *data = memory_odd(arena, bytes, elem_size(in->elem));
        memcpy(data, in->data, (size_t)bytes);
        bind(&t[k], &api->in[k], in, data);
        ins[k] = &t[k];
    }
    for (uint32_t k = 0; k < api->n_out; k++) {
        out[k] = like[k];
        out[k].data = memory_odd(arena, tensor_elements(&like[k]) * elem_size(like[k].elem), elem_size(like[k].elem));
        bind(&t[api->n_in + k], &api->out[k], &out[k], out[k].data);
        outs[k] = &t[api->n_in + k];
    }
    if (api->ctx_new(lib->model, NULL, 0, &ctx, error) != MCC_OK)
        return false;
    int code = api->run(ctx, ins, outs, error);
    api->ctx_free(ctx);
    return code == MCC_OK;
}

bool way_native(struct draw *d, const struct way *w, const char *path, struct tensor *out, struct strbuf *why)
{
    mcc_lib *lib = NULL;
    mcc_error error = {0};
    const char *text = "";
    struct tensor *like = NEW_ARRAY(&d->ctx->session, struct tensor, d->g->outputs.n + 1);
    if (graph_eval(d->g, d->inputs, like, &d->ctx->session, &text) != EVAL_OK)   /* for the shapes alone */
        return false;
    bool ok = compile(d, w, path, why);
    if (ok && mcc_load(path, NULL, &lib, &error) != MCC_OK) {
        strbuf_printf(why, "load: %s", error.text);
        ok = false;
    }
    unlink(path);
    if (ok && !run(d, lib, like, out, &error)) {
        strbuf_printf(why, "run: %s (%d)", error.text, error.code);
        ok = false;
    }
    mcc_unload(lib);
    return ok;
}
