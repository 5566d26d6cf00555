/* Parsing and writing JSON (RFC 8259): see json.h. Texts are decoded where they stand. */
#include "frontend/json.h"

#include <errno.h>
#include <math.h>

enum { DEPTH_MAX = 256, NUMBER_MAX = 400 };

struct reader {
    struct context *ctx;
    struct arena *arena;
    const char *what;
    char *start, *p, *end; /* *end is 0 */
};

static struct json *fail(struct reader *r, const char *why)
{
    error_model(r->ctx, (src_id){0}, "%s is not JSON: %s at byte %zu; save the model again", r->what, why,
                (size_t)(r->p - r->start));
    return NULL;
}

static void space_skip(struct reader *r)
{
    while (*r->p == ' ' || *r->p == '\n' || *r->p == '\r' || *r->p == '\t')
        r->p++;
}

static struct json *value_new(struct reader *r, enum json_kind kind)
{
    struct json *v = NEW(r->arena, struct json);
    v->kind = kind;
    return v;
}

/* ---- texts ----------------------------------------------------------------------------------------------------- */

static bool hex4(const char *p, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        uint32_t digit = c >= '0' && c <= '9'                 ? (uint32_t)(c - '0')
                         : (c | 32) >= 'a' && (c | 32) <= 'f' ? (uint32_t)((c | 32) - 'a' + 10)
                                                              : 16;
        if (digit == 16)
            return false;
        *out = *out << 4 | digit;
    }
    return true;
}

static char *utf8_put(char *to, uint32_t c)
{
    if (c < 0x80) {
        *to++ = (char)c;
    } else if (c < 0x800) {
        *to++ = (char)(0xC0 | c >> 6);
        *to++ = (char)(0x80 | (c & 63));
    } else if (c < 0x10000) {
        *to++ = (char)(0xE0 | c >> 12);
        *to++ = (char)(0x80 | (c >> 6 & 63));
        *to++ = (char)(0x80 | (c & 63));
    } else {
        *to++ = (char)(0xF0 | c >> 18);
        *to++ = (char)(0x80 | (c >> 12 & 63));
        *to++ = (char)(0x80 | (c >> 6 & 63));
        *to++ = (char)(0x80 | (c & 63));
    }
    return to;
}

/* At a backslash; gives the decoded character. False: no such escape. */
static bool escape_read(struct reader *r, uint32_t *c)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *at = r->p[1] ? strchr(from, r->p[1]) : NULL;
    uint32_t low;
    if (at) {
        *c = (unsigned char)to[at - from];
        r->p += 2;
        return true;
    }
    if (r->p[1] != 'u' || r->end - r->p < 6 || !hex4(r->p + 2, c) || *c == 0)
        return false;
    r->p += 6;
    if (*c >= 0xD800 && *c < 0xDC00 && r->end - r->p >= 6 && r->p[0] == '\\' && r->p[1] == 'u' &&
        hex4(r->p + 2, &low) && low >= 0xDC00 && low < 0xE000) {
        *c = 0x10000 + ((*c - 0xD800) << 10) + (low - 0xDC00);
        r->p += 6;
    }
    return *c < 0xD800 || *c >= 0xE000;
}

/* At the opening quote. NULL after a diagnostic. */
static const char *text_read(struct reader *r, uint32_t *n)
{
    char *begin = ++r->p, *to = begin;
    while (*r->p != '"') {
        uint32_t c;
        if (r->p >= r->end || (unsigned char)*r->p < 0x20)
            return fail(r, r->p >= r->end ? "a text without an end" : "a control character in a text"), NULL;
        if (*r->p != '\\') {
            *to++ = *r->p++;
            continue;
        }
        if (!escape_read(r, &c))
            return fail(r, "a bad escape in a text"), NULL;
        to = utf8_put(to, c);
    }
    r->p++;
    *to = 0; /* at the closing quote or before it */
    if (to - begin > INT32_MAX)
        return fail(r, "a text of more than 2 GiB"), NULL;
    *n = (uint32_t)(to - begin);
    return begin;
}

/* ---- numbers and words ----------------------------------------------------------------------------------------- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool digits_skip(struct reader *r)
{
    const char *begin = r->p;
    while (is_digit(*r->p))
        r->p++;
    return r->p != begin;
}

static struct json *number_read(struct reader *r)
{
    char *begin = r->p, text[NUMBER_MAX];
    bool whole = true, ok;
    r->p += *r->p == '-';
    ok = !(r->p[0] == '0' && is_digit(r->p[1])) && digits_skip(r);
    if (ok && *r->p == '.') {
        r->p++;
        whole = false;
        ok = digits_skip(r);
    }
    if (ok && (*r->p | 32) == 'e') {
        r->p++;
        r->p += *r->p == '+' || *r->p == '-';
        whole = false;
        ok = digits_skip(r);
    }
    if (!ok || r->p - begin >= NUMBER_MAX)
        return fail(r, "a bad number");
    memcpy(text, begin, (size_t)(r->p - begin));
    text[r->p - begin] = 0;
    errno = 0;
    int64_t i = whole ? strtoll(text, NULL, 10) : 0;
    struct json *v = value_new(r, whole && !errno ? JSON_INT : JSON_FLOAT);
    if (v->kind == JSON_INT)
        v->u.i = i;
    else
        v->u.f = strtod(text, NULL);
    return v;
}

static struct json *word_read(struct reader *r)
{
    static const struct {
        const char *text;
        enum json_kind kind;
        bool truth;
        double f;
    } words[] = {
        {"true", JSON_BOOL, true, 0},
        {"false", JSON_BOOL, false, 0},
        {"null", JSON_NULL, false, 0},
        {"Infinity", JSON_FLOAT, false, INFINITY},
        {"-Infinity", JSON_FLOAT, false, -INFINITY},
        {"NaN", JSON_FLOAT, false, NAN},
    };
    for (uint32_t i = 0; i < COUNT_OF(words); i++) {
        size_t n = strlen(words[i].text);
        if (strncmp(r->p, words[i].text, n) != 0)
            continue;
        struct json *v = value_new(r, words[i].kind);
        if (v->kind == JSON_FLOAT)
            v->u.f = words[i].f;
        else
            v->u.truth = words[i].truth;
        r->p += n;
        return v;
    }
    return *r->p == '-' || is_digit(*r->p) ? number_read(r) : fail(r, "no value");
}

/* ---- lists and objects ----------------------------------------------------------------------------------------- */

static struct json *value_read(struct reader *r, uint32_t depth);

/* "key": before a value of an object. */
static bool key_read(struct reader *r, const char **key)
{
    uint32_t n;
    if (*r->p != '"')
        return fail(r, "no key"), false;
    *key = text_read(r, &n);
    if (!*key)
        return false;
    space_skip(r);
    if (*r->p != ':')
        return fail(r, "no colon after a key"), false;
    r->p++;
    return true;
}

static struct json *children_read(struct reader *r, enum json_kind kind, char close, uint32_t depth)
{
    struct json *v = value_new(r, kind), **last = &v->u.first;
    r->p++;
    space_skip(r);
    if (depth > DEPTH_MAX)
        return fail(r, "lists and objects nested too deeply");
    if (*r->p == close) {
        r->p++;
        return v;
    }
    for (;;) {
        const char *key = NULL;
        space_skip(r);
        if (kind == JSON_OBJECT && !key_read(r, &key))
            return NULL;
        struct json *child = value_read(r, depth);
        if (!child)
            return NULL;
        child->key = key;
        *last = child;
        last = &child->next;
        v->n++;
        space_skip(r);
        if (*r->p == close)
            break;
        if (*r->p != ',')
            return fail(r, "no comma");
        r->p++;
    }
    r->p++;
    return v;
}

static struct json *value_read(struct reader *r, uint32_t depth)
{
    space_skip(r);
    if (*r->p == '{')
        return children_read(r, JSON_OBJECT, '}', depth + 1);
    if (*r->p == '[')
        return children_read(r, JSON_LIST, ']', depth + 1);
    if (*r->p != '"')
        return word_read(r);
    struct json *v = value_new(r, JSON_TEXT);
    v->u.text = text_read(r, &v->n);
    return v->u.text ? v : NULL;
}

struct json *json_parse(struct context *ctx, struct arena *arena, char *text, size_t size, const char *what)
{
    struct reader r = {ctx, arena, what, text, text, text + size};
    *r.end = 0;
    struct json *v = value_read(&r, 0);
    if (!v)
        return NULL;
    space_skip(&r);
    return r.p == r.end ? v : fail(&r, "something after the value");
}

/* ---- looking at values ----------------------------------------------------------------------------------------- */

bool json_is(const struct json *v, enum json_kind kind)
{
    return v && v->kind == kind;
}

struct json *json_first(const struct json *v)
{
    return v && (v->kind == JSON_LIST || v->kind == JSON_OBJECT) ? v->u.first : NULL;
}

struct json *json_get(const struct json *v, const char *key)
{
    struct json *child = json_is(v, JSON_OBJECT) ? v->u.first : NULL;
    while (child && strcmp(child->key, key) != 0)
        child = child->next;
    return child;
}

struct json *json_only(const struct json *v)
{
    return json_is(v, JSON_OBJECT) && v->n == 1 ? v->u.first : NULL;
}

const char *json_as_text(const struct json *v)
{
    return json_is(v, JSON_TEXT) ? v->u.text : NULL;
}

bool json_as_int(const struct json *v, int64_t *out)
{
    if (json_is(v, JSON_INT))
        *out = v->u.i;
    return json_is(v, JSON_INT);
}

bool json_as_number(const struct json *v, double *out)
{
    static const struct word {
        const char *text;
        double f;
    } words[] = {{"Infinity", INFINITY}, {"-Infinity", -INFINITY}, {"NaN", NAN}};
    if (json_is(v, JSON_INT))
        *out = (double)v->u.i;
    else if (json_is(v, JSON_FLOAT))
        *out = v->u.f;
    const struct word *word = json_is(v, JSON_TEXT) ? ROW_NAMED(words, COUNT_OF(words), v->u.text) : NULL;
    if (word)
        *out = word->f;
    return word || json_is(v, JSON_INT) || json_is(v, JSON_FLOAT);
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

void json_text_put(struct strbuf *out, const char *text)
{
    strbuf_append(out, "\"", 1);
    for (size_t n; *text; text += n) {
        n = 0;
        while ((unsigned char)text[n] >= ' ' && text[n] != '"' && text[n] != '\\')
            n++;
        strbuf_append(out, text, n);
        if (!text[n])
            break;
        strbuf_printf(out, "\\u%04x", (unsigned)text[n++]);
    }
    strbuf_append(out, "\"", 1);
}

/* Texts end with a quote, so the last byte tells. */
void json_comma_put(struct strbuf *out)
{
    if (out->n && !strchr("[{:,", out->data[out->n - 1]))
        strbuf_append(out, ",", 1);
}

void json_key_put(struct strbuf *out, const char *key)
{
    json_comma_put(out);
    json_text_put(out, key);
    strbuf_append(out, ":", 1);
}

static void number_put(struct strbuf *out, double f)
{
    if (isnan(f))
        strbuf_printf(out, "NaN");
    else if (isinf(f))
        strbuf_printf(out, f < 0 ? "-Infinity" : "Infinity");
    else
        strbuf_printf(out, f == rint(f) && fabs(f) < 1e15 ? "%.1f" : "%.17g", f);
}

void json_put(struct strbuf *out, const struct json *j)
{
    json_comma_put(out);
    switch (j->kind) {
    case JSON_NULL: strbuf_printf(out, "null"); return;
    case JSON_BOOL: strbuf_printf(out, j->u.truth ? "true" : "false"); return;
    case JSON_INT: strbuf_printf(out, "%lld", (long long)j->u.i); return;
    case JSON_FLOAT: number_put(out, j->u.f); return;
    case JSON_TEXT: json_text_put(out, j->u.text); return;
    case JSON_LIST:
    case JSON_OBJECT: break;
    }
    strbuf_append(out, j->kind == JSON_LIST ? "[" : "{", 1);
    for (const struct json *e = json_first(j); e; e = e->next) {
        if (j->kind == JSON_OBJECT)
            json_key_put(out, e->key);
        json_put(out, e);
    }
    strbuf_append(out, j->kind == JSON_LIST ? "]" : "}", 1);
}

void json_put_with(struct strbuf *out, const struct json *object, const struct json_member *members, uint32_t n,
                   void *user)
{
    json_comma_put(out);
    strbuf_append(out, "{", 1);
    for (const struct json *e = json_first(object); e; e = e->next) {
        uint32_t k = 0;
        while (k < n &&
               (strcmp(members[k].key, e->key) != 0 || strcmp(members[k].within, object->key ? object->key : "") != 0))
            k++;
        json_key_put(out, e->key);
        if (k == n)
            json_put(out, e);
        else if (members[k].put)
            members[k].put(user, e);
        else
            json_put_with(out, e, members, n, user);
    }
    strbuf_append(out, "}", 1);
}
