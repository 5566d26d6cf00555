/* See text.h. */
#include "tests/text/text.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

enum { BYTES_MOST = 4 << 20 }; /* of a text: larger ones are mostly constants */

/* The text of what `text` is read to. */
static void again(struct context *ctx, const char *text, struct strbuf *out)
{
    if (strstr(text, "\nmodule ")) {
        struct module *m = module_parse(ctx, text);
        if (m)
            module_print(m, out, true);
    } else {
        struct graph *g = graph_parse(ctx, text);
        if (g)
            graph_print(g, out, true);
    }
}

static void compare(struct read_back *r, const char *text, const char *other)
{
    size_t n = 0, line = 0;
    if (strcmp(other, text) == 0) {
        r->n++;
        return;
    }
    for (; other[n] == text[n]; n++)
        line = text[n] == '\n' ? n + 1 : line;
    snprintf(r->why, sizeof r->why, "the text is read to another one: '%.120s' becomes '%.120s'", text + line,
             other + line);
}

void read_back(struct read_back *r, const char *text)
{
    struct context *ctx = context_new();
    jmp_buf here;
    if (!ctx || r->why[0])
        goto end;
    ctx->limits = r->like->limits;
    ctx->unwind = &here;
    struct strbuf out = strbuf_of(&ctx->session);
    if (setjmp(here) == 0)
        again(ctx, text, &out);
    if (ctx->diags.n)
        snprintf(r->why, sizeof r->why, "the text cannot be read: %s", ctx->diags.data[0].text);
    else
        compare(r, text, out.data ? out.data : "");
end:
    if (ctx)
        context_free(ctx);
}

void read_back_put(void *user, int kind, const char *text, size_t size)
{
    (void)kind;
    if (size <= BYTES_MOST && strncmp(text, "mcir 1 ", 7) == 0)
        read_back(user, text);
}
