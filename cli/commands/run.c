/* mcc run: one run of an artifact, or of a network that is compiled for it; outputs into files, or one line each on
 * standard output. */
#include "cli/commands/command.h"
#include "cli/commands/temporary.h"
#include "cli/commands/artifact/session.h"

static bool wants(const struct text_list *dump, const char *name)
{
    return dump->items.n == 0 || text_list_has(dump, name);
}

static bool dumps_known(struct session *s)
{
    const struct text_list *dump = &s->options->dump;
    for (uint32_t i = 0; i < dump->items.n; i++)
        if (!ROW_NAMED(s->api->out, s->api->n_out, dump->items.data[i]))
            return error_at(s->ctx, FAIL_USAGE, (src_id){0}, dump->items.data[i],
                            "not an output (mcc eval shows inner values)");
    return true;
}

static bool put_tensor(struct session *s, const char *name, const DLTensor *t)
{
    struct file_tensor b = {.elem = elem_by_dlpack(t->dtype), .rank = t->ndim};
    int64_t elements, bytes;
    if (b.elem == ELEM_NONE || b.elem == ELEM_STR || t->ndim > RANK_MAX)
        return error_model(s->ctx, (src_id){0}, "output '%s' is not a tensor of numbers", name);
    memcpy(b.dims, t->shape, sizeof *t->shape * (size_t)t->ndim);
    if (!file_tensor_sizes(b.elem, b.rank, b.dims, &elements, &bytes))
        return error_limit(s->ctx, (src_id){0}, "output '%s' is too large", name);
    b.data = (char *)t->data + t->byte_offset;
    b.size = (size_t)bytes;
    if (s->options->document)
        file_tensor_json(name, &b, &s->options->document->result);
    if (s->options->output)
        return file_tensor_write(s->ctx, s->options->output, name, s->options->format, &b);
    if (s->options->document)
        return true;
    struct strbuf line = strbuf_of(&s->ctx->session);
    file_tensor_describe(name, &b, &line);
    terminal_print(&line);
    return true;
}

static bool run_once(struct session *s)
{
    uint32_t n = s->api->n_out;
    DLManagedTensorVersioned **out = NEW_ARRAY(&s->ctx->session, DLManagedTensorVersioned *, n + 1);
    if (s->api->run_dlpack(s->run, s->in_pointer, out, &s->error) != MCC_OK)
        return session_error(s, "run");
    bool ok = true;
    struct json *j = s->options->document ? &s->options->document->result : NULL;
    if (j) {
        json_open(j, NULL, '{');
        json_open(j, "outputs", '[');
    }
    for (uint32_t i = 0; i < n; i++) {
        if (ok && wants(&s->options->dump, s->api->out[i].name))
            ok = put_tensor(s, s->api->out[i].name, &out[i]->dl_tensor);
        out[i]->deleter(out[i]);
    }
    if (j && ok)
        json_close(j, "]}");
    return ok;
}

struct run {
    struct context *ctx;
    struct options *options;
    struct session s;
};

/* Inputs of a network that is compiled for this run alone may be drawn: it is tried, not used. */
static void run_library(void *user, const char *library, struct compilation *c)
{
    (void)c;
    struct run *r = user;
    struct options *o = r->options;
    const char *path = o->files.items.data[0];
    mcc_host host = {.size = sizeof host, .threads = (uint32_t)o->threads, .flags = (uint32_t)o->variant};
    if (!session_open(&r->s, r->ctx, o, library, &host))
        return;
    r->ctx->model_path = path;
    if (dumps_known(&r->s) && session_feed(&r->s, library != path))
        (void)run_once(&r->s);
}

static void run_end(void *user)
{
    session_close(&((struct run *)user)->s);
}

enum fail command_run(struct context *ctx, struct options *o)
{
    struct run *r = NEW(&ctx->session, struct run);
    *r = (struct run){.ctx = ctx, .options = o};
    return with_library(ctx, o, true, run_library, run_end, r);
}
