/* WebAssembly: bytes, the object with the weights' place, the linker's part (wasm.h). */
#include "codegen/container/wasm.h"

enum { LINKING_VERSION = 2, SEGMENT_INFO = 5, SYMBOL_TABLE = 8, SYMBOL_DATA = 1, SYMBOL_HIDDEN = 4 };
enum { STACK_MIN = 0x10000 };

/* ---- bytes ---- */

bool wasm_take_bytes(struct span *s, struct span *bytes)
{
    uint64_t size;
    if (!span_varint(s, &size) || size > s->size)
        return false;
    *bytes = (struct span){s->data, size};
    s->data = (const char *)s->data + size;
    s->size -= size;
    return true;
}

bool wasm_take_section(struct span *s, uint32_t *kind, struct span *content)
{
    uint64_t k;
    if (!s->size || !span_varint(s, &k) || k > WASM_DATA_COUNT)
        return false;
    *kind = (uint32_t)k;
    return wasm_take_bytes(s, content);
}

bool wasm_head(const unsigned char *head, size_t n)
{
    return n >= WASM_HEAD_BYTES && memcmp(head, WASM_HEAD, WASM_HEAD_BYTES) == 0;
}

uint32_t wasm_sum(uint32_t sum, const void *data, size_t size)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size; i++)
        sum = (sum ^ bytes[i]) * 0x1000193;
    return sum;
}

void wasm_put_bytes(struct strbuf *out, const void *data, size_t size)
{
    strbuf_varint(out, size);
    if (size)
        strbuf_append(out, data, size);
}

void wasm_put_section(struct strbuf *out, uint32_t kind, const struct strbuf *content)
{
    strbuf_varint(out, kind);
    wasm_put_bytes(out, content->data, content->n);
}

/* The constant is signed: its last byte has 6 bits. */
void wasm_put_address(struct strbuf *out, uint64_t address)
{
    strbuf_varint(out, WASM_I32_CONST);
    int64_t left = (int32_t)(uint32_t)address;
    bool more;
    do {
        unsigned char byte = (unsigned char)(left & 127);
        left = left < 0 ? ~(~left >> 7) : left >> 7;
        more = left != (byte & 64 ? -1 : 0);
        byte |= more ? 128 : 0;
        strbuf_append(out, &byte, 1);
    } while (more);
    strbuf_varint(out, WASM_END);
}

static void put_text(struct strbuf *out, const char *text)
{
    wasm_put_bytes(out, text, strlen(text));
}

/* ---- linking ---- */

/* An object with one symbol, in a section without bytes: the linker puts those last. */
static struct span placeholder(struct arena *arena, const char *symbol)
{
    static const char zeros[WASM_PLACEHOLDER];
    struct strbuf out, memory, data, info, symbols, linking;
    struct strbuf *const all[] = {&out, &memory, &data, &info, &symbols, &linking};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        strbuf_init(all[i], arena);
    strbuf_append(&memory, "\1\0\1", 3); /* one, of a page and more */
    strbuf_append(&data, "\1\0", 2); /* one segment, of memory 0 */
    wasm_put_address(&data, 0);
    wasm_put_bytes(&data, zeros, sizeof zeros);
    strbuf_varint(&info, 1);
    put_text(&info, ".bss.weights");
    strbuf_append(&info, "\6\0", 2); /* aligned to 64, no flags */
    strbuf_varint(&symbols, 1);
    strbuf_varint(&symbols, SYMBOL_DATA);
    strbuf_varint(&symbols, SYMBOL_HIDDEN);
    put_text(&symbols, symbol);
    strbuf_append(&symbols, "\0\0", 2); /* segment, offset */
    strbuf_varint(&symbols, sizeof zeros);
    put_text(&linking, "linking");
    strbuf_varint(&linking, LINKING_VERSION);
    wasm_put_section(&linking, SEGMENT_INFO, &info);
    wasm_put_section(&linking, SYMBOL_TABLE, &symbols);
    strbuf_append(&out, WASM_HEAD, WASM_HEAD_BYTES);
    wasm_put_section(&out, WASM_MEMORY, &memory);
    wasm_put_section(&out, WASM_DATA, &data);
    wasm_put_section(&out, WASM_CUSTOM, &linking);
    return (struct span){out.data, out.n};
}

/* The stack lies below all data, so that an overflow is a trap. */
void wasm_link(struct linking *l, const struct static_network *n)
{
    struct span *members = NEW_ARRAY(l->arena, struct span, n->n_units + 1);
    const unsigned long long stack = n->stack > STACK_MIN ? (n->stack + 15) / 16 * 16 : STACK_MIN;
    uint32_t count = 0;
    linking_options(l, ARRAY(char *, "wasm-ld", "--no-entry", "--strip-all", "--stack-first", "--threads=1",
                             "--export=" WASM_HEAP, "-o", "-", "-z", arena_printf(l->arena, "stack-size=%llu", stack)));
    if (n->workers)
        linking_options(l, ARRAY(char *, "--import-memory", "--export-memory", "--export-table",
                                 "--export=__stack_pointer", "--import-undefined"));
    linking_options(l, ARRAY(char *, arena_printf(l->arena, "--export=%s", n->entry),
                             arena_printf(l->arena, "--export=%s", n->plan),
                             arena_printf(l->arena, "--export-if-defined=%s", n->weights_symbol)));
    linking_option(l, "--whole-archive");
    for (uint32_t i = 0; i < n->n_units; i++)
        members[count++] = n->units[i].object;
    if (n->weights.size)
        members[count++] = placeholder(l->arena, n->weights_symbol);
    linking_file(l, "", archive_of(l->arena, members, count));
}
