/* A linked module becomes the artifact's file (wasm.h): weights in place, whole or not at all.
 *
 * The weights are the last data in memory, of which the linker has seen a placeholder without bytes: a segment is
 * added, memory begins that much larger, and the heap follows.
 */
#include <stdio.h>

#include "codegen/container/wasm.h"
#include "codegen/sink.h"

enum { IMPORT_FUNCTION, IMPORT_MEMORY = 2, EXPORT_GLOBAL = 3, LIMITS_SHARED = 3 /* and a maximum */ };
enum { MODULE_MAX = 1 << 30, PAGES_MAX = 1 << 16 };
/* Of a function: engines refuse more (WebAssembly JavaScript Interface, limits). */
enum { BODY_MAX = 7654321, LOCALS_MAX = 50000 };

struct image {
    struct context *ctx;
    struct arena *arena;
    const struct static_network *of;
    struct span linked;
    uint64_t weights, heap; /* addresses; weights 0: none */
    uint64_t weights_global, heap_global; /* their numbers, and 1; 0: none */
    struct span before, after; /* of the imports: what is around the limits of memory, if it is one */
    uint64_t pages; /* that it begins with */
    struct strbuf out; /* up to the weights */
};

static bool broken(const struct image *im, const char *what)
{
    return error_internal(im->ctx, (src_id){0}, "the linked module is not as expected: %s", what);
}

static uint64_t round_to_16(uint64_t x)
{
    return (x + 15) / 16 * 16;
}

static bool is_named(struct span name, const char *text)
{
    return name.size == strlen(text) && memcmp(name.data, text, name.size) == 0;
}

static bool find_exports(struct image *im, struct span content)
{
    uint64_t n = 0, kind, index;
    struct span name;
    bool ok = span_varint(&content, &n);
    for (uint64_t i = 0; i < n && ok; i++) {
        ok = wasm_take_bytes(&content, &name) && span_varint(&content, &kind) && span_varint(&content, &index);
        if (!ok || kind != EXPORT_GLOBAL)
            continue;
        if (is_named(name, im->of->weights_symbol))
            im->weights_global = index + 1;
        if (is_named(name, WASM_HEAP))
            im->heap_global = index + 1;
    }
    return ok || broken(im, "exports");
}

/* Memory among the imports, without a maximum; the other one is the function that launches. */
static bool find_memory(struct image *im, struct span content)
{
    const char *begin = content.data;
    uint64_t n = 0, kind, flags;
    struct span module, name;
    bool ok = span_varint(&content, &n);
    for (uint64_t i = 0; i < n && ok; i++) {
        ok = wasm_take_bytes(&content, &module) && wasm_take_bytes(&content, &name) && span_varint(&content, &kind);
        struct span here = content;
        ok = ok && span_varint(&content, &flags);
        if (!ok || (kind == IMPORT_FUNCTION && is_named(name, WASM_LAUNCH)))
            continue;
        ok = kind == IMPORT_MEMORY && !flags && !im->before.data && span_varint(&content, &im->pages);
        im->before = (struct span){begin, (size_t)((const char *)here.data - begin)};
        im->after = content;
    }
    return (ok && im->before.data) || broken(im, "imports");
}

/* A global's value, which is a constant; its bytes in *text. */
static bool take_global(struct span *content, struct span *text, uint64_t *value)
{
    struct span before = *content;
    uint64_t type, mutable, code, end;
    if (!span_varint(content, &type) || !span_varint(content, &mutable) || !span_varint(content, &code) ||
        code != WASM_I32_CONST || !span_varint(content, value) || !span_varint(content, &end) || end != WASM_END)
        return false;
    *text = (struct span){before.data, before.size - content->size};
    return true;
}

static bool find_addresses(struct image *im, struct span content)
{
    uint64_t n = 0, value;
    struct span text;
    bool ok = span_varint(&content, &n);
    for (uint64_t i = 0; i < n && ok; i++) {
        ok = take_global(&content, &text, &value);
        if (ok && i + 1 == im->weights_global)
            im->weights = value;
        if (ok && i + 1 == im->heap_global)
            im->heap = value;
    }
    return ok || broken(im, "globals");
}

/* The program of a network with tens of thousands of kernels is the one that can be too large. */
static bool functions_fit(struct image *im, struct span content)
{
    uint64_t n = 0, groups, count, type;
    struct span body;
    bool ok = span_varint(&content, &n);
    for (uint64_t i = 0; i < n && ok; i++) {
        uint64_t size, locals = 0;
        ok = wasm_take_bytes(&content, &body);
        size = body.size;
        ok = ok && span_varint(&body, &groups);
        for (uint64_t k = 0; ok && k < groups; k++) {
            ok = span_varint(&body, &count) && span_varint(&body, &type);
            locals += ok ? count : 0;
        }
        if (ok && (size > BODY_MAX || locals > LOCALS_MAX))
            return error_limit(im->ctx, (src_id){0},
                               "a function of the module has %llu bytes and %llu locals, and engines take %d and %d: "
                               "compile the network in parts",
                               (unsigned long long)size, (unsigned long long)locals, BODY_MAX, LOCALS_MAX);
    }
    return ok || broken(im, "code");
}

static bool find_parts(struct image *im)
{
    struct span left = im->linked, content;
    uint32_t kind;
    struct span globals = {0};
    if (left.size < WASM_HEAD_BYTES || memcmp(left.data, WASM_HEAD, WASM_HEAD_BYTES) != 0)
        return broken(im, "no module");
    left = (struct span){(const char *)left.data + WASM_HEAD_BYTES, left.size - WASM_HEAD_BYTES};
    while (wasm_take_section(&left, &kind, &content)) {
        if (kind == WASM_GLOBAL)
            globals = content;
        if (kind == WASM_IMPORT && !find_memory(im, content))
            return false;
        if ((kind == WASM_EXPORT && !find_exports(im, content)) || (kind == WASM_CODE && !functions_fit(im, content)))
            return false;
    }
    if (left.size || !globals.data || !find_addresses(im, globals))
        return im->ctx->fail != FAIL_NONE ? false : broken(im, "sections");
    if (!im->heap || (im->of->weights.size > 0) != (im->weights > 0) || im->of->workers != (im->before.data != NULL))
        return broken(im, "addresses");
    return !im->weights || im->heap == round_to_16(im->weights + WASM_PLACEHOLDER) ||
           broken(im, "data after the weights");
}

static uint64_t weights_end(const struct image *im)
{
    return im->weights + im->of->weights.size;
}

static uint64_t pages_with_weights(const struct image *im)
{
    return (round_to_16(weights_end(im)) + WASM_PAGE - 1) / WASM_PAGE;
}

/* The sections before the weights, patched; the last one is the data's, whose content ends with them. */
static bool patch_section(struct image *im, uint32_t kind, struct span content)
{
    uint64_t end = weights_end(im), n, low, flags, value, index = 0;
    struct span text;
    struct strbuf edited = strbuf_of(im->arena);
    if (kind == WASM_IMPORT) {
        strbuf_append(&edited, im->before.data, im->before.size);
        strbuf_varint(&edited, LIMITS_SHARED);
        strbuf_varint(&edited, im->pages);
        strbuf_varint(&edited, PAGES_MAX);
        strbuf_append(&edited, im->after.data, im->after.size);
    } else if (im->weights && kind == WASM_MEMORY) {
        if (!span_varint(&content, &n) || n != 1 || !span_varint(&content, &flags) || flags ||
            !span_varint(&content, &low))
            return broken(im, "memory");
        strbuf_append(&edited, "\1\0", 2);
        strbuf_varint(&edited, pages_with_weights(im));
    } else if (im->weights && kind == WASM_GLOBAL) {
        if (!span_varint(&content, &n))
            return broken(im, "globals");
        strbuf_varint(&edited, n);
        for (; index < n; index++) {
            if (!take_global(&content, &text, &value))
                return broken(im, "a global");
            strbuf_append(&edited, text.data, index + 1 == im->heap_global ? 2 : text.size);
            if (index + 1 == im->heap_global)
                wasm_put_address(&edited, round_to_16(end));
        }
    } else if (im->weights && kind == WASM_DATA_COUNT) {
        if (!span_varint(&content, &n))
            return broken(im, "count of data");
        strbuf_varint(&edited, n + 1);
    } else if (content.size) {
        strbuf_append(&edited, content.data, content.size);
    }
    wasm_put_section(&im->out, kind, &edited);
    return true;
}

/* The data's section, which is left open: `embedded` bytes follow. */
static bool put_data(struct image *im, struct span content)
{
    uint64_t n = 0, size = im->of->weights.size;
    if (content.size && !span_varint(&content, &n))
        return broken(im, "data");
    struct strbuf head = strbuf_of(im->arena), segment = strbuf_of(im->arena);
    strbuf_varint(&head, n + (size > 0));
    if (content.size)
        strbuf_append(&head, content.data, content.size);
    if (size) {
        strbuf_varint(&segment, 0);
        wasm_put_address(&segment, im->weights);
        strbuf_varint(&segment, size);
        strbuf_append(&head, segment.data, segment.n);
    }
    strbuf_varint(&im->out, WASM_DATA);
    strbuf_varint(&im->out, head.n + size);
    strbuf_append(&im->out, head.data, head.n);
    return true;
}

static void put_description(struct image *im)
{
    uint64_t size = strlen(WASM_DESCRIPTION) + WASM_SUM_DIGITS + im->of->description.size;
    strbuf_init(&im->out, im->arena);
    strbuf_append(&im->out, WASM_HEAD, WASM_HEAD_BYTES);
    strbuf_varint(&im->out, WASM_CUSTOM);
    for (int i = 0; i < 5; i++) {
        unsigned char byte = (unsigned char)((size >> 7 * i & 127) | (i < 4 ? 128 : 0));
        strbuf_append(&im->out, &byte, 1);
    }
    strbuf_append(&im->out, WASM_DESCRIPTION, strlen(WASM_DESCRIPTION));
    strbuf_printf(&im->out, "%08x", 0u);
    strbuf_append(&im->out, im->of->description.data, im->of->description.size);
}

/* Without a function to start with: of a module whose memory comes from outside the linker makes one that clears what
 * has no bytes in the file, the weights' placeholder. */
static bool make_front(struct image *im)
{
    struct span left = {(const char *)im->linked.data + WASM_HEAD_BYTES, im->linked.size - WASM_HEAD_BYTES}, content,
                data = {0};
    uint32_t kind;
    put_description(im);
    if (im->before.data) {
        struct strbuf pages = strbuf_of(im->arena);
        im->pages = im->weights ? pages_with_weights(im) : im->pages;
        wasm_put_bytes(&pages, WASM_PAGES, strlen(WASM_PAGES));
        strbuf_printf(&pages, "%llu", (unsigned long long)im->pages);
        wasm_put_section(&im->out, WASM_CUSTOM, &pages);
    }
    while (wasm_take_section(&left, &kind, &content)) {
        if (kind == WASM_DATA)
            data = content;
        else if (kind != WASM_CUSTOM && kind != WASM_START && !patch_section(im, kind, content))
            return false;
    }
    return put_data(im, data);
}

/* Between the weights and what takes them. */
struct summed {
    const struct weights_writer *of;
    bool (*put)(void *sink, const void *, size_t);
    void *sink;
    uint32_t sum;
};

static bool put_summed(void *user, const void *data, size_t size)
{
    struct summed *s = user;
    s->sum = wasm_sum(s->sum, data, size);
    return s->put(s->sink, data, size);
}

static bool write_summed(void *user, bool (*put)(void *, const void *, size_t), void *sink)
{
    struct summed *s = user;
    s->put = put;
    s->sink = sink;
    return s->of->write(s->of->user, put_summed, s);
}

static bool write_module(void *user, struct sink *s)
{
    const struct image *im = user;
    const size_t from = WASM_SUM_AT + WASM_SUM_DIGITS;
    struct summed summed = {.of = &im->of->weights,
                            .sum = wasm_sum(WASM_SUM_BEGIN, im->out.data + from, im->out.n - from)};
    struct weights_writer writer = im->of->weights;
    char digits[WASM_SUM_DIGITS + 1];
    uint64_t hash;
    writer.user = &summed;
    writer.write = write_summed;
    if (!sink_put(s, im->out.data, im->out.n) || (writer.size && !sink_weights(s, &writer, &hash)))
        return false;
    snprintf(digits, sizeof digits, "%08x", summed.sum);
    return sink_fits(s, 0) && sink_patch(s, digits, WASM_SUM_DIGITS, WASM_SUM_AT);
}

bool wasm_library(const struct linked *l)
{
    struct image im = {.ctx = l->ctx, .arena = l->arena, .of = l->network, .linked = l->bytes};
    if (im.of->weights.size > MODULE_MAX)
        return error_limit(im.ctx, (src_id){0},
                           "a WebAssembly module has at most 1 GiB in browsers, and the weights are %llu bytes",
                           (unsigned long long)im.of->weights.size);
    return find_parts(&im) && make_front(&im) && sink_file(im.ctx, im.arena, l->path, write_module, &im);
}
