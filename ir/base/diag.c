/* Diagnostics: recording, counting of repeats, rendering as one line, escaping of hostile bytes.
 *
 * A message may quote any byte of a hostile file, so texts are escaped when they are recorded and names
 * when they are rendered: control bytes, bytes that are not UTF-8 and marks that turn the direction of
 * writing come out as \xNN. A line stays under 1000 bytes, a name in it under 200.
 * Room for one more record is kept at all times, so that running out of memory can be recorded too.
 */
#include "ir/base/base.h"

#include <stdio.h>

enum { TEXT_MAX = 900, NAME_MAX_SHOWN = 200, LINE_MAX_SHOWN = 999 };

/* ---- escaping ------------------------------------------------------------------------------------ */

/* Length of the well-formed UTF-8 sequence at s (Unicode 15, table 3-7), its code point; 0 when malformed. */
static size_t utf8_decode(const unsigned char *s, uint32_t *code)
{
    if (s[0] < 0x80) {
        *code = s[0];
        return 1;
    }
    size_t n = s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : 2;
    if (s[0] < 0xC2 || s[0] > 0xF4)
        return 0;
    uint32_t c = s[0] & (0x7Fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xC0) != 0x80)
            return 0;
        c = c << 6 | (s[i] & 0x3F);
    }
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (c < least[n] || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF))
        return 0;
    *code = c;
    return n;
}

/* Characters that change how a terminal shows the rest of the line. */
static bool is_hostile(uint32_t c)
{
    static const struct {
        uint32_t from, to;
    } ranges[] = {
        {0x00, 0x1F},     {0x7F, 0x9F},     {0x061C, 0x061C}, {0x200B, 0x200F},   {0x2028, 0x202E},
        {0x2060, 0x206F}, {0xFEFF, 0xFEFF}, {0xFFF9, 0xFFFB}, {0xE0000, 0xE007F},
    };
    for (size_t i = 0; i < COUNT_OF(ranges); i++)
        if (c >= ranges[i].from && c <= ranges[i].to)
            return true;
    return false;
}

/* Escapes one character at s into out (at most 16 bytes), *used: bytes of s it took. */
static size_t char_escape(const char *s, bool quoted, char out[17], size_t *used)
{
    uint32_t code;
    size_t n = utf8_decode((const unsigned char *)s, &code);
    *used = n ? n : 1;
    if (quoted && n == 1 && (code == '"' || code == '\\' || code == '\n')) {
        snprintf(out, 17, "\\%c", code == '\n' ? 'n' : (char)code);
        return 2;
    }
    if (n && !is_hostile(code)) {
        memcpy(out, s, n);
        out[n] = 0;
        return n;
    }
    size_t len = 0;
    for (size_t i = 0; i < *used; i++)
        len += (size_t)snprintf(out + len, 17 - len, "\\x%02x", (unsigned char)s[i]);
    return len;
}

void strbuf_escaped(struct strbuf *b, const char *s, size_t max)
{
    char piece[17];
    size_t written = 0, used;
    for (; *s; s += used) {
        size_t n = char_escape(s, false, piece, &used);
        if (written + n + (s[used] ? 3 : 0) > max) {
            strbuf_append(b, "...", 3);
            return;
        }
        strbuf_append(b, piece, n);
        written += n;
    }
    strbuf_append(b, "", 0);
}

void strbuf_quoted(struct strbuf *b, const char *s)
{
    char piece[17];
    strbuf_append(b, "\"", 1);
    for (size_t used; *s; s += used) {
        size_t n = char_escape(s, true, piece, &used);
        strbuf_append(b, piece, n);
    }
    strbuf_append(b, "\"", 1);
}

/* ---- recording ------------------------------------------------------------------------------------- */

/* One free record stays in reserve, see heap_fail in base.c. */
static void diag_push(struct context *ctx, const struct diag *d)
{
    if (ctx->diags.n + 2 > ctx->diags.cap)
        vec_grow(&ctx->session, (void **)(void *)&ctx->diags.data, &ctx->diags.cap, ctx->diags.n + 2,
                 sizeof *ctx->diags.data);
    ctx->diags.data[ctx->diags.n++] = *d;
}

static bool same_tensor(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* Counts d where an equal one, or kind_limit of its kind, are there already. */
static bool diag_counted(struct context *ctx, const struct diag *d)
{
    struct diag *last = NULL;
    uint32_t kin = 0;
    for (uint32_t i = 0; i < ctx->diags.n; i++) {
        struct diag *old = &ctx->diags.data[i];
        if (old->severity != d->severity || strcmp(old->format, d->format) != 0)
            continue;
        if (old->src.i == d->src.i && same_tensor(old->tensor, d->tensor) && strcmp(old->text, d->text) == 0) {
            old->repeats++;
            return true;
        }
        last = old;
        kin++;
    }
    if (d->severity == SEV_REMARK || ctx->kind_limit == 0 || kin < ctx->kind_limit)
        return false;
    last->similar++;
    return true;
}

static void diag_record(struct context *ctx, struct diag d, const char *fmt, va_list args)
{
    char raw[4 * TEXT_MAX], text[TEXT_MAX + 20];
    vsnprintf(raw, sizeof raw, fmt, args);
    size_t n = 0, used;
    for (const char *s = raw; *s && n < TEXT_MAX; s += used)
        n += char_escape(s, false, text + n, &used);
    if (n >= TEXT_MAX)
        memcpy(text + n, "...", 3), n += 3;
    text[n] = 0;
    if (d.severity == SEV_ERROR) {
        if (ctx->fail == FAIL_NONE)
            ctx->fail = d.fail;
        ctx->n_errors++;
    }
    d.text = text;
    d.format = fmt;
    if (diag_counted(ctx, &d))
        return;
    d.text = arena_strndup(&ctx->session, text, n);
    d.format = arena_strdup(&ctx->session, fmt);
    d.tensor = d.tensor ? arena_strdup(&ctx->session, d.tensor) : NULL;
    diag_push(ctx, &d);
}

bool error_at(struct context *ctx, enum fail fail, src_id src, const char *tensor, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    diag_record(ctx, (struct diag){.severity = SEV_ERROR, .fail = fail, .src = src, .tensor = tensor}, fmt, args);
    va_end(args);
    return false;
}

void warn_at(struct context *ctx, src_id src, const char *flag, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    enum severity severity = ctx->werror ? SEV_ERROR : SEV_WARNING;
    diag_record(ctx, (struct diag){.severity = severity, .fail = FAIL_MODEL, .src = src, .flag = flag}, fmt, args);
    va_end(args);
}

void remark_at(struct context *ctx, src_id src, const char *flag, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    diag_record(ctx, (struct diag){.severity = SEV_REMARK, .src = src, .flag = flag}, fmt, args);
    va_end(args);
}

_Noreturn void context_unwind(struct context *ctx, enum fail fail, src_id src, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    diag_record(ctx, (struct diag){.severity = SEV_ERROR, .fail = fail, .src = src.i ? src : ctx->at}, fmt, args);
    va_end(args);
    limit_unwind(ctx);
}

/* ---- taking back ----------------------------------------------------------------------------------- */

struct diag_mark diag_mark(const struct context *ctx)
{
    return (struct diag_mark){.n = ctx->diags.n, .n_errors = ctx->n_errors, .fail = ctx->fail};
}

void diag_drop(struct context *ctx, const struct diag_mark *mark)
{
    ctx->diags.n = mark->n;
    ctx->n_errors = mark->n_errors;
    ctx->fail = mark->fail;
}

bool diag_take(struct context *ctx, const struct diag_mark *mark, struct diag_list *out)
{
    bool any = false;
    for (uint32_t i = mark->n; i < ctx->diags.n; i++) {
        const struct diag *d = &ctx->diags.data[i];
        if (d->severity == SEV_ERROR &&
            (d->fail != FAIL_MODEL || d->flag))    /* a limit, a bug, a warning under --Werror */
            return false;
        any |= d->severity == SEV_ERROR;
    }
    if (!any)
        return false;
    out->n = ctx->diags.n - mark->n;
    out->data = arena_copy(&ctx->session, ctx->diags.data + mark->n, out->n * sizeof *out->data);
    diag_drop(ctx, mark);
    return true;
}

void diag_put_back(struct context *ctx, const struct diag_list *list)
{
    for (uint32_t i = 0; i < list->n; i++) {
        diag_push(ctx, &list->data[i]);
        if (list->data[i].severity != SEV_ERROR)
            continue;
        ctx->n_errors++;
        if (ctx->fail == FAIL_NONE)
            ctx->fail = list->data[i].fail;
    }
}

/* ---- rendering ------------------------------------------------------------------------------------- */

static void render_node(const struct source *s, struct strbuf *out)
{
    strbuf_printf(out, "%s", s->name && *s->name ? "node '" : "node -> '");
    strbuf_escaped(out, source_label(s), NAME_MAX_SHOWN);
    strbuf_printf(out, "' (");
    if (s->domain && *s->domain) {
        strbuf_escaped(out, s->domain, NAME_MAX_SHOWN / 4);
        strbuf_printf(out, ".");
    }
    strbuf_escaped(out, s->op ? s->op : "?", NAME_MAX_SHOWN / 4);
    if (s->version > 0)
        strbuf_printf(out, "-%d", s->version);
    if (s->origin) {
        strbuf_printf(out, ", ");
        strbuf_escaped(out, origin_short(s->origin), NAME_MAX_SHOWN / 4);
    }
    strbuf_printf(out, "): ");
}

void diag_render(const struct context *ctx, const struct diag *d, struct strbuf *out)
{
    static const char *const words[] = {"note", "remark", "warning", "error"};
    size_t start = out->n;
    if (*ctx->model_path) {
        strbuf_escaped(out, ctx->model_path, NAME_MAX_SHOWN);
        if (ctx->line)
            strbuf_printf(out, ":%u:%u", ctx->line, ctx->column);
        strbuf_printf(out, ": ");
    }
    if (d->src.i)
        render_node(source_get(ctx, d->src), out);
    if (d->tensor) {
        strbuf_printf(out, "tensor '");
        strbuf_escaped(out, d->tensor, NAME_MAX_SHOWN);
        strbuf_printf(out, "': ");
    }
    strbuf_printf(out, "%s: ", d->fail == FAIL_INTERNAL ? "internal error" : words[d->severity]);
    char tail[160] = "";
    int n = 0;
    if (d->repeats)
        n += snprintf(tail, 40, " (%u times)", d->repeats + 1);
    if (d->similar)
        n += snprintf(tail + n, 60, " (and %u more of this kind)", d->similar);
    static const char *const tails[] = {" [-R%.40s]", " [-R%.40s]", " [-W%.40s]", " [-Werror=%.40s]"};
    if (d->flag)
        snprintf(tail + n, sizeof tail - (size_t)n, tails[d->severity], d->flag);
    size_t room = LINE_MAX_SHOWN - strlen(tail) - (out->n - start);
    strbuf_escaped(out, d->text, room);
    strbuf_append(out, tail, strlen(tail));
}
