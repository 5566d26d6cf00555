/* Weights in a file of their own next to the library: safetensors, so that other programs can read it.
 *
 *   u64 length of the JSON | JSON, padded with spaces to a multiple of 64 | the weights, as they would lie in the
 * library
 *
 * The JSON names every tensor with its type, shape and bytes, the padding between tensors included (the format allows
 * no holes), and in __metadata__ the hash of the weights: so the hash of the head, which open checks, stands for the
 * whole file. The hash is written with a fixed number of digits, so the head's size is known before the weights are.
 */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "codegen/sidecar.h"
#include "codegen/sink.h"

enum { HEAD_ALIGN = 64 };

static struct span make_head(struct arena *arena, const struct weights_writer *w, uint64_t hash)
{
    uint64_t length = 0;
    struct strbuf out = strbuf_of(arena);
    strbuf_append(&out, &length, sizeof length);
    strbuf_printf(&out, "{\"__metadata__\":{\"format\":\"mcc\",\"xxh64\":\"%016llx\"}", (unsigned long long)hash);
    strbuf_append(&out, w->entries.data, w->entries.size);
    strbuf_append(&out, "}", 1);
    while (out.n % HEAD_ALIGN)
        strbuf_append(&out, " ", 1);
    length = out.n - sizeof length;
    memcpy(out.data, &length, sizeof length);
    return (struct span){out.data, out.n};
}

uint64_t sidecar_head_size(struct arena *arena, const struct weights_writer *w)
{
    return make_head(arena, w, 0).size;
}

bool sidecar_put(struct sink *s, struct arena *arena, const struct weights_writer *w, uint64_t *hash,
                 uint64_t *head_hash)
{
    struct span head = make_head(arena, w, 0);
    if (!sink_put(s, head.data, head.size) || !sink_weights(s, w, hash))
        return false;
    head = make_head(arena, w, *hash);
    *head_hash = XXH64(head.data, head.size, 0);
    return sink_patch(s, head.data, head.size, 0);
}
