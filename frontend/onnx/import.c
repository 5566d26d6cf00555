/* ONNX file -> imported graph: the entry point. Reads and scans the file, checks the model's head (IR version, opset
 * imports), then functions and the top graph; see import.h for who does what.
 */
#include "frontend/onnx/hooks.h"
#include "frontend/onnx/schemas.h"

/* IR versions that this importer knows: 1 (2017) to 13 (2025, 2-bit integers). */
enum { IR_VERSION_MAX = 13, IR_VERSION_OPSETS = 3 };

static bool head_import(struct importer *im)
{
    const Onnx__ModelProto *m = im->model;
    struct graph *g = im->g;
    struct opset *opsets;
    uint32_t n_opsets;
    if (!m->has_ir_version)
        return error_model(im->ctx, (src_id){0}, "the model has no ir_version");
    if (m->ir_version < 1 || m->ir_version > IR_VERSION_MAX)
        return error_model(im->ctx, (src_id){0}, "ir_version %lld is unknown; 1 to %d are supported",
                           (long long)m->ir_version, IR_VERSION_MAX);
    g->ir_version = m->ir_version;
    if (!opsets_import(im, m->opset_import, m->n_opset_import, NULL, &opsets, &n_opsets))
        return false;
    for (uint32_t i = 0; i < n_opsets; i++)
        VEC_PUSH(&g->arena, &g->opsets, opsets[i]);
    if (n_opsets == 0 && m->ir_version >= IR_VERSION_OPSETS)
        return error_model(im->ctx, (src_id){0}, "the model imports no operator set: no version of domain ai.onnx");
    if (n_opsets == 0)
        VEC_PUSH(&g->arena, &g->opsets, ((struct opset){"", 1}));
    im->opsets = (struct opset_scope){g->opsets.data, g->opsets.n};
    return true;
}

static void metadata_import(struct importer *im)
{
    const Onnx__ModelProto *m = im->model;
    struct arena *arena = &im->g->arena;
    for (size_t i = 0; i < m->n_metadata_props; i++) {
        const Onnx__StringStringEntryProto *e = m->metadata_props[i];
        struct meta meta = {
            arena_strdup(arena, e->key ? e->key : ""),
            arena_strndup(arena, e->value.data ? (const char *)e->value.data : "", e->value.len),
        };
        VEC_PUSH(arena, &im->g->metadata, meta);
    }
}

static bool model_import(struct importer *im)
{
    if (!head_import(im))
        return false;
    if (!im->model->graph)
        return error_model(im->ctx, (src_id){0}, "the model has no graph");
    metadata_import(im);
    bool ok = functions_import(im);
    ok = graph_import(im, im->model->graph) && ok;
    return ok && functions_count(im);
}

static void importer_init(struct importer *im, struct context *ctx, const char *path,
                          const struct import_options *options, struct file_list *files)
{
    *im = (struct importer){.ctx = ctx, .path = path, .options = options, .files = files};
    arena_init(&im->scratch, ctx);
    im->keep = &im->scratch;
    names_init(&im->names, &im->scratch);
    names_init(&im->dims, &im->scratch);
    names_init(&im->symbols, &im->scratch);
    names_init(&im->functions, &im->scratch);
}

struct graph *onnx_import(struct context *ctx, const char *path, const struct import_options *options,
                          struct file_list *files)
{
    struct importer im;
    struct span file;
    uint32_t before = ctx->n_errors;
    importer_init(&im, ctx, path, options, files);
    if (files)
        VEC_PUSH(&ctx->session, &files->paths, arena_strdup(&ctx->session, path));
    if (!file_read(ctx, path, &file))
        return NULL;
    im.file = (uint8_t *)(uintptr_t)file.data;
    im.file_size = file.size;
    im.model = model_decode(ctx, file, &im.scratch);
    if (im.model) {
        im.g = graph_new(ctx);
        model_import(&im);
    }
    arena_release(&im.scratch);
    return im.model && ctx->n_errors == before ? im.g : NULL;
}

const struct format_hooks onnx_hooks = {&onnx_cutter, &onnx_editor, &onnx_tensor_files, &onnx_operator_facts};
