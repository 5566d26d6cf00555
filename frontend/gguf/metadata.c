/* What a GGUF file says in its keys, as metadata of the artifact: hosts find the tokenizer and the chat's template
 * there. Texts stand as they are, numbers in decimal, arrays as JSON.
 */
#include "frontend/gguf/gguf.h"

#include <math.h>

enum { METADATA_MOST = 64 << 20 };

/* The bytes of the UTF-8 sequence at s; 0: there is none, or a NUL. */
static uint32_t sequence(const uint8_t *s, size_t n)
{
    uint32_t length = *s < 0x80 ? 1 : *s < 0xc2 ? 0 : *s < 0xe0 ? 2 : *s < 0xf0 ? 3 : *s < 0xf5 ? 4 : 0;
    if (length > n || !*s || (*s == 0xe0 && s[1] < 0xa0) || (*s == 0xed && s[1] > 0x9f) ||
        (*s == 0xf0 && s[1] < 0x90) || (*s == 0xf4 && s[1] > 0x8f))
        return 0;
    for (uint32_t i = 1; i < length; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    return length;
}

/* Bytes that are no text become U+FFFD. */
static void put_string(struct strbuf *out, struct span s)
{
    const uint8_t *at = s.data, *end = at + s.size;
    strbuf_append(out, "\"", 1);
    while (at < end) {
        uint32_t n = sequence(at, (size_t)(end - at));
        if (n == 0)
            strbuf_append(out, *at ? "\xef\xbf\xbd" : "\\u0000", *at ? 3 : 6);
        else if (*at < 0x20 || *at == '"' || *at == '\\')
            strbuf_printf(out, *at < 0x20 ? "\\u%04x" : "\\%c", *at);
        else
            strbuf_append(out, at, n);
        at += n ? n : 1;
    }
    strbuf_append(out, "\"", 1);
}

static void put_element(struct strbuf *out, const struct gguf_key *k, uint64_t i)
{
    int64_t whole;
    uint64_t large;
    double f = gguf_number(k, i);
    if (k->elem == GGUF_BOOL)
        strbuf_printf(out, k->data[i] ? "true" : "false");
    else if (gguf_whole(k, i, &whole))
        strbuf_printf(out, "%lld", (long long)whole);
    else if (k->elem == GGUF_U64)
        strbuf_printf(out, "%llu", (unsigned long long)*(uint64_t *)memcpy(&large, k->data + i * 8, 8));
    else
        strbuf_printf(out, isfinite(f) ? "%.9g" : "null", f);
}

static void put_array(struct strbuf *out, const struct gguf_key *k)
{
    struct gguf_key rest = *k;
    strbuf_append(out, "[", 1);
    for (uint64_t i = 0; i < k->n && out->n <= METADATA_MOST; i++) {
        strbuf_append(out, ",", i > 0);
        if (k->elem != GGUF_STRING) {
            put_element(out, k, i);
            continue;
        }
        struct span s = gguf_string(&rest); /* a walk from string to string */
        put_string(out, s);
        rest.data = (const uint8_t *)s.data + s.size;
    }
    strbuf_append(out, "]", 1);
}

bool gguf_metadata(struct gguf *p)
{
    size_t all = 0;
    for (uint32_t i = 0; i < p->keys.n; i++) {
        const struct gguf_key *k = &p->keys.data[i];
        struct strbuf text = strbuf_of(&p->g->arena);
        if (k->kind == GGUF_ARRAY) {
            put_array(&text, k);
        } else if (k->kind == GGUF_STRING) {
            struct span s = gguf_string(k);
            const uint8_t *nul = memchr(s.data, 0, s.size);
            if (nul)
                return gguf_refuse(p, "key '%s' at byte %llu: a text with a NUL", k->name, (unsigned long long)k->at);
            strbuf_append(&text, s.data, s.size);
        } else {
            put_element(&text, k, 0);
        }
        all += text.n + strlen(k->name);
        if (all > METADATA_MOST)
            return error_limit(p->ctx, (src_id){0}, "key '%s': metadata of more than %d bytes", k->name, METADATA_MOST);
        struct meta meta = {arena_strdup(&p->g->arena, k->name), text.data ? text.data : ""};
        VEC_PUSH(&p->g->arena, &p->g->metadata, meta);
    }
    return true;
}
