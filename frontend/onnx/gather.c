/* The file with its external data inside, for what edits or cuts it: the result is read from elsewhere.
 *
 * Messages that hold no tensor of that kind, at any depth, keep their bytes. A tensor loses external_data (13) and
 * data_location (14), and has its bytes as raw_data (9).
 */
#include "frontend/onnx/gather.h"

#include "frontend/onnx/hooks.h"
#include "frontend/onnx/wire.h"

enum message { OTHER, MODEL, FUNCTION, GRAPH, NODE, ATTRIBUTE, TENSOR, SPARSE };
enum { DEPTH_MOST = 100, RAW_DATA = 9, EXTERNAL_DATA = 13, DATA_LOCATION = 14, FAR_AWAY = 1 };

/* Where a message may hold tensors. */
static enum message part_of(enum message m, const struct field *f)
{
    static const struct {
        enum message in;
        uint32_t field;
        enum message part;
    } parts[] = {
        {MODEL, 7, GRAPH},       {MODEL, 25, FUNCTION},   {FUNCTION, 7, NODE},    {GRAPH, 1, NODE},
        {GRAPH, 5, TENSOR},      {GRAPH, 15, SPARSE},     {NODE, 5, ATTRIBUTE},   {ATTRIBUTE, 5, TENSOR},
        {ATTRIBUTE, 6, GRAPH},   {ATTRIBUTE, 10, TENSOR}, {ATTRIBUTE, 11, GRAPH}, {ATTRIBUTE, 22, SPARSE},
        {ATTRIBUTE, 23, SPARSE}, {SPARSE, 1, TENSOR},     {SPARSE, 2, TENSOR},
    };
    for (uint32_t i = 0; i < COUNT_OF(parts) && f->wire == WIRE_BYTES; i++)
        if (parts[i].in == m && parts[i].field == f->number)
            return parts[i].part;
    return OTHER;
}

static bool is_outside(enum message m, struct span bytes, int depth)
{
    struct field f;
    bool outside = false;
    while (!outside && depth < DEPTH_MOST && next_field(&bytes, &f)) {
        enum message part = part_of(m, &f);
        outside = m == TENSOR ? f.number == DATA_LOCATION && f.value == FAR_AWAY
                              : part != OTHER && is_outside(part, f.body, depth + 1);
    }
    return outside;
}

struct gatherer {
    struct context *ctx;
    const char *path;
    const struct import_options *options;
    struct file_list *files;
    int64_t left; /* bytes that the whole may still grow by */
};

static bool put_tensor(struct gatherer *g, struct span bytes, struct strbuf *out)
{
    struct span raw, all = bytes;
    struct field f;
    if (!external_of_bytes(g->ctx, bytes, g->path, g->options, g->files, &raw))
        return false;
    g->left -= (int64_t)raw.size;
    if (g->left < 0)
        return error_model(g->ctx, (src_id){0},
                           "the network and its external data do not fit into one file of 2 GiB - 1");
    while (next_field(&all, &f))
        if (f.number != EXTERNAL_DATA && f.number != DATA_LOCATION)
            strbuf_append(out, f.whole.data, f.whole.size);
    put_bytes(out, RAW_DATA, raw.data, raw.size);
    return true;
}

static bool put_message(struct gatherer *g, enum message m, struct span bytes, struct strbuf *out, int depth)
{
    struct field f;
    while (next_field(&bytes, &f)) {
        enum message part = part_of(m, &f);
        if (part == OTHER || !is_outside(part, f.body, depth + 1)) {
            strbuf_append(out, f.whole.data, f.whole.size);
            continue;
        }
        struct strbuf text = strbuf_of(out->arena);
        if (!(part == TENSOR ? put_tensor(g, f.body, &text) : put_message(g, part, f.body, &text, depth + 1)))
            return false;
        put_bytes(out, f.number, text.data, text.n);
    }
    return true;
}

bool file_gather(struct context *ctx, const char *path, const struct import_options *options, struct file_list *files,
                 struct span *out)
{
    struct gatherer g = {ctx, path, options, files, 0};
    if (!file_read(ctx, path, out))
        return false;
    if (!is_outside(MODEL, *out, 0))
        return true;
    g.left = MODEL_FILE_MAX - (int64_t)out->size;
    struct strbuf text = strbuf_of(&ctx->session);
    if (!put_message(&g, MODEL, *out, &text, 0))
        return false;
    *out = (struct span){text.data, text.n};
    return true;
}
