/* NumPy's .npy files: format 1.0 to 3.0, little-endian, C order.
 *
 * The header is a Python dictionary, written by whoever made the file. A scanner reads it that knows where the header
 * ends, and never looks beyond.
 */
#include "cli/commands/artifact/file_tensor.h"

enum { MAGIC = 6, VERSION_MAX = 3 };

static const struct {
    enum elem elem;
    const char *descr;
} npy_types[] = {
    {ELEM_F32, "<f4"}, {ELEM_F64, "<f8"},  {ELEM_F16, "<f2"}, {ELEM_I8, "|i1"},    {ELEM_I16, "<i2"},
    {ELEM_I32, "<i4"}, {ELEM_I64, "<i8"},  {ELEM_U8, "|u1"},  {ELEM_U16, "<u2"},   {ELEM_U32, "<u4"},
    {ELEM_U64, "<u8"}, {ELEM_BOOL, "|b1"}, {ELEM_C64, "<c8"}, {ELEM_C128, "<c16"},
};
static const char npy_magic[] = "\x93NUMPY";

static bool npy_error(struct context *ctx, const char *path, const char *what)
{
    return error_env(ctx, "'%s': %s", path, what);
}

bool npy_is(struct span file)
{
    return file.size >= MAGIC && memcmp(file.data, npy_magic, MAGIC) == 0;
}

/* ---- the header -------------------------------------------------------------------------------------------------- */

struct scanner {
    const char *at, *end;
};

/* The next character that is no space, without taking it; 0 at the end. */
static char peek(struct scanner *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\n' || *s->at == '\t'))
        s->at++;
    return s->at < s->end ? *s->at : 0;
}

static bool take(struct scanner *s, char c)
{
    bool found = peek(s) == c && c;
    s->at += found;
    return found;
}

/* A text in quotes, which has no escapes. */
static bool take_text(struct scanner *s, struct span *out)
{
    char quote = peek(s);
    if (quote != '\'' && quote != '"')
        return false;
    const char *from = ++s->at, *to = memchr(from, quote, (size_t)(s->end - from));
    if (!to)
        return false;
    *out = (struct span){from, (size_t)(to - from)};
    s->at = to + 1;
    return true;
}

static bool is_text(struct span text, const char *other)
{
    return text.size == strlen(other) && memcmp(text.data, other, text.size) == 0;
}

static bool take_word(struct scanner *s, const char *word)
{
    size_t n = strlen(word);
    (void)peek(s);
    if ((size_t)(s->end - s->at) < n || memcmp(s->at, word, n) != 0)
        return false;
    s->at += n;
    return true;
}

static bool take_number(struct scanner *s, int64_t *out)
{
    char c = peek(s);
    if (c < '0' || c > '9')
        return false;
    for (*out = 0; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++)
        if (!mul_i64(*out, 10, out) || !add_i64(*out, *s->at - '0', out))
            return false;
    return true;
}

static bool take_shape(struct scanner *s, struct file_tensor *out)
{
    out->rank = 0;
    if (!take(s, '('))
        return false;
    while (!take(s, ')')) {
        if (out->rank == RANK_MAX || !take_number(s, &out->dims[out->rank]))
            return false;
        out->rank++;
        if (!take(s, ',') && peek(s) != ')')
            return false;
    }
    return true;
}

/* The type that a descr names, "<f4"; its first character is the order of bytes. */
static enum elem elem_by_descr(struct span descr)
{
    const char *text = descr.data;
    for (size_t i = 0; i < COUNT_OF(npy_types); i++)
        if (descr.size > 1 && memchr("<|=", text[0], 3) &&
            is_text((struct span){text + 1, descr.size - 1}, npy_types[i].descr + 1))
            return npy_types[i].elem;
    return ELEM_NONE;
}

/* What is wrong with one entry of the dictionary; NULL: nothing. *seen: a bit for each key that came. */
static const char *read_entry(struct scanner *s, struct file_tensor *out, unsigned *seen)
{
    static const char no_dictionary[] = "a header that cannot be read";
    struct span key, descr;
    if (!take_text(s, &key) || !take(s, ':'))
        return no_dictionary;
    if (is_text(key, "descr")) {
        *seen |= 1;
        out->elem = take_text(s, &descr) ? elem_by_descr(descr) : ELEM_NONE;
        return out->elem == ELEM_NONE ? "an element type that mcc does not read from .npy files" : NULL;
    }
    if (is_text(key, "fortran_order")) {
        *seen |= 2;
        return take_word(s, "False") ? NULL : "stored in Fortran order; save a C-ordered copy";
    }
    if (is_text(key, "shape")) {
        *seen |= 4;
        return take_shape(s, out) ? NULL : "a shape that cannot be read";
    }
    return no_dictionary;
}

static const char *read_header(struct scanner s, struct file_tensor *out)
{
    unsigned seen = 0;
    const char *why = take(&s, '{') ? NULL : "a header that cannot be read";
    while (!why && !take(&s, '}')) {
        why = read_entry(&s, out, &seen);
        if (!why && !take(&s, ',') && peek(&s) != '}')
            why = "a header that cannot be read";
    }
    return why || seen == 7 ? why : "a header without descr, fortran_order or shape";
}

bool npy_parse(struct context *ctx, const char *path, struct span file, struct file_tensor *out)
{
    const unsigned char *p = file.data;
    size_t prefix = file.size > MAGIC && p[MAGIC] > 1 ? 12 : 10;
    if (file.size < prefix)
        return npy_error(ctx, path, "cut short in its header");
    if (p[MAGIC] < 1 || p[MAGIC] > VERSION_MAX)
        return npy_error(ctx, path, "a version of the .npy format that mcc does not read");
    size_t length = p[8] | (size_t)p[9] << 8;
    if (prefix == 12)
        length |= (size_t)p[10] << 16 | (size_t)p[11] << 24;
    if (length > file.size - prefix)
        return npy_error(ctx, path, "cut short in its header");
    const char *header = (const char *)p + prefix;
    const char *why = read_header((struct scanner){header, header + length}, out);
    int64_t elements, bytes;
    if (!why && !file_tensor_sizes(out->elem, out->rank, out->dims, &elements, &bytes))
        why = "a shape that cannot be read";
    if (!why && (size_t)bytes > file.size - prefix - length)
        why = "fewer bytes than its shape needs";
    if (why)
        return npy_error(ctx, path, why);
    out->size = (size_t)bytes;
    out->data = arena_alloc(&ctx->session, out->size + 64);
    memcpy(out->data, p + prefix + length, out->size);
    return true;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

bool npy_format(struct context *ctx, const struct file_tensor *b, struct strbuf *out)
{
    const char *descr = NULL;
    for (size_t i = 0; i < COUNT_OF(npy_types); i++)
        if (npy_types[i].elem == b->elem)
            descr = npy_types[i].descr;
    if (!descr)
        return error_env(ctx, ".npy has no element type %s; use --format=pb or raw", elem_name(b->elem));
    struct strbuf header = strbuf_of(&ctx->session);
    strbuf_printf(&header, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (int32_t i = 0; i < b->rank; i++)
        strbuf_printf(&header, b->rank == 1 ? "%lld," : i ? ", %lld" : "%lld", (long long)b->dims[i]);
    strbuf_printf(&header, "), }");
    while ((10 + header.n + 1) % 64)
        strbuf_append(&header, " ", 1);
    strbuf_append(&header, "\n", 1);
    const unsigned char size[2] = {(unsigned char)(header.n & 255), (unsigned char)(header.n >> 8)};
    strbuf_append(out, npy_magic, MAGIC);
    strbuf_append(out, "\1\0", 2);
    strbuf_append(out, size, 2);
    strbuf_append(out, header.data, header.n);
    strbuf_append(out, b->data, b->size);
    return true;
}
