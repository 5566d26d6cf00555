/* JSON texts: a quoted string of any bytes, values and what stands between them, the document of --json. */
#include "cli/library/json.h"

#include <math.h>

/* Bytes of the well-formed UTF-8 sequence at s (RFC 3629), 0 for none. */
static size_t utf8_length(const unsigned char *s)
{
    static const struct {
        unsigned char low, high, first, last;
        size_t n;
    } rows[] = {
        {0x20, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        if (s[0] < rows[i].low || s[0] > rows[i].high)
            continue;
        for (size_t k = 1; k < rows[i].n; k++)
            if (s[k] < (k == 1 ? rows[i].first : 0x80) || s[k] > (k == 1 ? rows[i].last : 0xbf))
                return 0;
        return rows[i].n;
    }
    return 0;
}

void json_string(struct strbuf *out, const char *text)
{
    strbuf_append(out, "\"", 1);
    for (const char *p = text; *p;) {
        size_t n = utf8_length((const unsigned char *)p);
        if (n == 0) {
            /* A control byte as it is, a byte that is not UTF-8 as the character of its number (ISO 8859-1). */
            strbuf_printf(out, "\\u%04x", (unsigned char)*p);
            p++;
            continue;
        }
        if (*p == '"' || *p == '\\')
            strbuf_append(out, "\\", 1);
        strbuf_append(out, p, n);
        p += n;
    }
    strbuf_append(out, "\"", 1);
}

/* The key, or the place of an item. */
static void json_key(struct json *j, const char *key)
{
    if (j->more)
        strbuf_append(j->out, ",", 1);
    j->more = true;
    if (!key)
        return;
    json_string(j->out, key);
    strbuf_append(j->out, ":", 1);
}

void json_open(struct json *j, const char *key, char bracket)
{
    json_key(j, key);
    strbuf_append(j->out, &bracket, 1);
    j->more = false;
    j->depth++;
}

void json_close(struct json *j, const char *brackets)
{
    const uint32_t n = (uint32_t)strlen(brackets);
    strbuf_append(j->out, brackets, n);
    j->more = true;
    j->depth -= n;
}

void json_whole(struct json *j, const char *key, struct span value)
{
    json_key(j, key);
    strbuf_append(j->out, value.size ? value.data : "null", value.size ? value.size : 4);
}

struct json_item j_null(const char *key)
{
    return (struct json_item){key, ITEM_NULL, {0}};
}

struct json_item j_text(const char *key, const char *text)
{
    return (struct json_item){key, text ? ITEM_TEXT : ITEM_NULL, {.text = text}};
}

struct json_item j_int(const char *key, int64_t i)
{
    return (struct json_item){key, ITEM_INT, {.i = i}};
}

struct json_item j_uint(const char *key, uint64_t u)
{
    return (struct json_item){key, ITEM_UINT, {.u = u}};
}

struct json_item j_known(const char *key, bool known, uint64_t u)
{
    return known ? j_uint(key, u) : j_null(key);
}

struct json_item j_real(const char *key, double x)
{
    return (struct json_item){key, isfinite(x) ? ITEM_REAL : ITEM_NULL, {.x = x}};
}

struct json_item j_bool(const char *key, bool yes)
{
    return (struct json_item){key, ITEM_BOOL, {.i = yes}};
}

void json_add(struct json *j, const struct json_item *item)
{
    for (; item->kind != ITEM_END; item++) {
        json_key(j, item->key);
        switch (item->kind) {
        case ITEM_TEXT: json_string(j->out, item->v.text); break;
        case ITEM_INT: strbuf_printf(j->out, "%lld", (long long)item->v.i); break;
        case ITEM_UINT: strbuf_printf(j->out, "%llu", (unsigned long long)item->v.u); break;
        case ITEM_REAL: strbuf_printf(j->out, "%.12g", item->v.x); break;
        case ITEM_BOOL: strbuf_printf(j->out, "%s", item->v.i ? "true" : "false"); break;
        default: strbuf_append(j->out, "null", 4);
        }
    }
}

struct json_document *json_document(struct context *ctx)
{
    struct json_document *d = NEW(&ctx->session, struct json_document);
    strbuf_init(&d->text, &ctx->session);
    strbuf_init(&d->diagnostics_text, &ctx->session);
    d->result.out = &d->text;
    d->diagnostics.out = &d->diagnostics_text;
    return d;
}

void json_finish(const struct json_document *d, const char *command, const char *file, int status, struct strbuf *out)
{
    struct json j = {.out = out};
    json_open(&j, NULL, '{');
    json_int(&j, "schema", 1);
    json_text(&j, "command", command);
    json_text(&j, "file", file);
    json_int(&j, "status", status);
    json_open(&j, "diagnostics", '[');
    strbuf_append(out, d->diagnostics_text.data, d->diagnostics_text.n);
    json_close(&j, "]");
    json_key(&j, "result");
    bool whole = d->text.n && d->result.depth == 0;
    strbuf_append(out, whole ? d->text.data : "null", whole ? d->text.n : 4);
    json_close(&j, "}");
    strbuf_append(out, "\n", 1);
}
