/* File image -> protobuf-c's structs, by way of the scanner.
 *
 * protobuf-c allocates from an arena through a bump allocator with a budget: limits.import_heap + 32 bytes for each
 * byte of the compact copy, so that a file of many empty messages ends in a diagnostic and not in swap. Nothing is
 * given back piecewise: the arena goes when the import is done.
 */
#include "frontend/onnx/scan.h"

enum { CHUNK = 256 * 1024, ALIGN = 16, BYTES_PER_BYTE = 32 };

struct message_heap {
    struct arena *arena;
    int64_t budget;            /* bytes that may still be taken */
    bool over;                 /* it ran out */
    char *next;
    size_t left;
};

static void *pool_alloc(void *data, size_t size)
{
    struct message_heap *p = data;
    if (size > (size_t)INT32_MAX || (int64_t)size > p->budget) {
        p->over = true;
        return NULL;
    }
    size = (size + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    if (size > p->left) {
        size_t chunk = size > CHUNK / 4 ? size : CHUNK;
        char *fresh = arena_try(p->arena, chunk);
        if (!fresh)
            return NULL;
        if (chunk == size) {
            p->budget -= (int64_t)size;
            return fresh;
        }
        p->next = fresh;
        p->left = chunk;
    }
    void *at = p->next;
    p->next += size;
    p->left -= size;
    p->budget -= (int64_t)size;
    return at;
}

static void pool_free(void *data, void *at)
{
    (void)data;
    (void)at;
}

/* protobuf-c frees its temporary tables, which a bump allocator cannot reuse; they are a small multiple of the
 * message. */
static ProtobufCMessage *decode(struct context *ctx, struct span compact, struct arena *arena, size_t file_size)
{
    struct message_heap pool = {.arena = arena,
                                .budget = ctx->limits.import_heap + BYTES_PER_BYTE * (int64_t)compact.size};
    ProtobufCAllocator allocator = {pool_alloc, pool_free, &pool};
    uint32_t before = ctx->n_errors;
    ProtobufCMessage *m = protobuf_c_message_unpack(&onnx__model_proto__descriptor, &allocator, compact.size,
                                                    compact.data);
    if (m || ctx->n_errors != before)
        return m;
    if (pool.over)
        error_limit(ctx, (src_id){0},
                    "decoding the file takes more memory than its %zu bytes may (--limit-import-heap)", file_size);
    else
        error_model(ctx, (src_id){0}, "the decoder refuses the file's messages");
    return NULL;
}

Onnx__ModelProto *model_decode(struct context *ctx, struct span file, struct arena *pool)
{
    struct span compact;
    const char *looks = file_looks_like(file);
    if (!scan_model(ctx, file, pool, &compact)) {
        if (looks && ctx->fail == FAIL_MODEL)
            error_model(ctx, (src_id){0}, "this is not an ONNX model: it looks like %s", looks);
        return NULL;
    }
    return (Onnx__ModelProto *)decode(ctx, compact, pool, file.size);
}
