/* .gguf file -> imported graph: a language model from its tensors and what the file says of them. */
#include "frontend/gguf/gguf.h"

#include "ir/base/file.h"

static const int64_t FILE_MOST = (int64_t)1 << 40;

static bool file_read(struct gguf *p, const char *path)
{
    struct file_bytes file;
    enum file_status status = file_whole(p->ctx, path, FILE_MOST, &file);
    if (status == FILE_LARGE)
        return gguf_refuse(p, "the file has %zu bytes, the limit is %lld", file.size, (long long)FILE_MOST);
    if (status == FILE_FAILED)
        return file.why && error_env(p->ctx, "cannot read the file: %s", file.why);
    p->data = (const uint8_t *)file.data;
    p->size = file.size;
    return file.size >= 4 && memcmp(file.data, "GGUF", 4) == 0 ? true : gguf_refuse(p, "this is not a GGUF file");
}

static bool model_import(struct gguf *p)
{
    p->g = graph_new(p->ctx);
    p->g->name = "model";
    VEC_PUSH(&p->g->arena, &p->g->opsets, ((struct opset){"", 23}));
    VEC_PUSH(&p->g->arena, &p->g->opsets, ((struct opset){"com.microsoft", 1}));
    VEC_PUSH(&p->g->arena, &p->g->opsets, ((struct opset){"ggml", 1}));
    return gguf_metadata(p) && gguf_decoder(p);
}

struct graph *gguf_import(struct context *ctx, const char *path, const struct import_options *options,
                          struct file_list *files)
{
    struct gguf p = {.ctx = ctx};
    uint32_t before = ctx->n_errors;
    if (options && options->n_overridable) {
        error_at(ctx, FAIL_USAGE, (src_id){0}, options->overridable[0],
                 "the tensors of a .gguf file cannot be overridden");
        return NULL;
    }
    if (files)
        VEC_PUSH(&ctx->session, &files->paths, arena_strdup(&ctx->session, path));
    arena_init(&p.scratch, ctx);
    names_init(&p.key_names, &p.scratch);
    names_init(&p.tensor_names, &p.scratch);
    bool ok = file_read(&p, path) && gguf_read(&p) && gguf_hyper(&p) && model_import(&p);
    arena_release(&p.scratch);
    return ok && ctx->n_errors == before ? p.g : NULL;
}
