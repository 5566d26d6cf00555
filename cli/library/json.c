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

void json_null(struct json *j, const char *key)
{
    json_key(j, key);
    strbuf_append(j->out, "null", 4);
}

void json_uint_known(struct json *j, const char *key, bool known, uint64_t n)
{
    if (known)
        json_uint(j, key, n);
    else
        json_null(j, key);
}

static void put_members(struct json *j, va_list list)
{
    for (const char *key; (key = va_arg(list, const char *));)
        json_text(j, key, va_arg(list, const char *));
}

void json_members(struct json *j, ...)
{
    va_list list;
    va_start(list, j);
    put_members(j, list);
    va_end(list);
}

void json_object(struct json *j, const char *key, ...)
{
    va_list list;
    va_start(list, key);
    json_open(j, key, '{');
    put_members(j, list);
    json_close(j, "}");
    va_end(list);
}

void json_whole(struct json *j, const char *key, struct span value)
{
    json_key(j, key);
    strbuf_append(j->out, value.size ? value.data : "null", value.size ? value.size : 4);
}

void json_text(struct json *j, const char *key, const char *text)
{
    if (!text) {
        json_null(j, key);
        return;
    }
    json_key(j, key);
    json_string(j->out, text);
}

void json_int(struct json *j, const char *key, int64_t n)
{
    json_key(j, key);
    strbuf_printf(j->out, "%lld", (long long)n);
}

void json_uint(struct json *j, const char *key, uint64_t n)
{
    json_key(j, key);
    strbuf_printf(j->out, "%llu", (unsigned long long)n);
}

void json_real(struct json *j, const char *key, double x)
{
    if (!isfinite(x)) {
        json_null(j, key);
        return;
    }
    json_key(j, key);
    strbuf_printf(j->out, "%.12g", x);
}

void json_bool(struct json *j, const char *key, bool yes)
{
    json_key(j, key);
    strbuf_printf(j->out, "%s", yes ? "true" : "false");
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
