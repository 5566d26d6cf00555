/* A file that holds one TensorProto (inputs and outputs of test data sets). The scanner knows one root message, a
 * model; so the bytes are put into the shortest model around a tensor: graph (field 7), initializer (field 5).
 */
#include "frontend/onnx/hooks.h"
#include "frontend/onnx/import.h"

enum { TAG_MODEL_GRAPH = 7 << 3 | 2, TAG_GRAPH_INITIALIZER = 5 << 3 | 2, PREFIX_MAX = 24 };

static size_t varint_write(uint8_t *out, uint64_t v)
{
    size_t n = 0;
    for (; v > 127; v >>= 7)
        out[n++] = (uint8_t)(v | 128);
    out[n++] = (uint8_t)v;
    return n;
}

/* external: where the bytes of external data go, as they are in their file; NULL: not wanted. */
static bool tensor_decode(struct context *ctx, struct span file, const char *path, const struct import_options *options,
                          struct file_list *files, struct tensor_data *out, struct span *external)
{
    uint8_t inner[PREFIX_MAX] = {TAG_GRAPH_INITIALIZER};
    size_t n_inner = 1 + varint_write(inner + 1, file.size);
    uint8_t *wrapped = arena_alloc(&ctx->session, PREFIX_MAX + file.size);
    size_t n = 0;
    wrapped[n++] = TAG_MODEL_GRAPH;
    n += varint_write(wrapped + n, n_inner + file.size);
    memcpy(wrapped + n, inner, n_inner);
    n += n_inner;
    memcpy(wrapped + n, file.data, file.size);

    struct importer im = {
        .ctx = ctx, .path = path, .options = options, .files = files, .file = wrapped, .file_size = n + file.size};
    const struct where w = {{0}, path};
    arena_init(&im.scratch, ctx);
    im.keep = &im.scratch;
    im.model = model_decode(ctx, (struct span){wrapped, n + file.size}, &im.scratch);
    const Onnx__TensorProto *t = im.model ? im.model->graph->initializer[0] : NULL;
    bool ok = t && tensor_import(&im, t, w, out);
    if (ok && external) {
        size_t bits = elem_bits(out->elem), count = out->bytes.size / elem_size(out->elem);
        ok = external_read(&im, t, w, bits < 8 ? (count * bits + 7) / 8 : out->bytes.size, external);
    }
    arena_release(&im.scratch);
    return ok;
}

bool tensor_of_bytes(struct context *ctx, struct span file, const char *path, struct tensor_data *out)
{
    return tensor_decode(ctx, file, path, &(struct import_options){0}, NULL, out, NULL);
}

bool external_of_bytes(struct context *ctx, struct span bytes, const char *path, const struct import_options *options,
                       struct file_list *files, struct span *out)
{
    struct tensor_data data;
    return tensor_decode(ctx, bytes, path, options, files, &data, out);
}

static bool tensor_read(struct context *ctx, const char *path, struct tensor_data *out)
{
    struct span file;
    return (file_read(ctx, path, &file) && tensor_of_bytes(ctx, file, path, out)) ||
           error_env(ctx, "cannot read the tensor file '%s'", path);
}

/* Fields of TensorProto: dims 1, data_type 2, raw_data 9; wire types 0 varint, 2 bytes. */
static void tensor_write(enum elem elem, const int64_t *dims, int32_t rank, struct span bytes, struct strbuf *out)
{
    for (int32_t i = 0; i < rank; i++) {
        strbuf_varint(out, 1 << 3);
        strbuf_varint(out, (uint64_t)dims[i]);
    }
    strbuf_varint(out, 2 << 3);
    strbuf_varint(out, (uint64_t)elem_onnx(elem));
    strbuf_varint(out, 9 << 3 | 2);
    strbuf_varint(out, bytes.size);
    strbuf_append(out, bytes.data, bytes.size);
}

const struct tensor_files onnx_tensor_files = {".pb", tensor_read, tensor_write};
