/* module_verify_text: what a module prints is all that it is: it parses back, and prints again as it did. */
#include <setjmp.h>
#include <string.h>

#include "ir/expr/expr.h"
#include "passes/module/module.h"

enum { CONSTANTS_MOST = 1 << 20 };

/* Bytes that graph_print would write in full; more than CONSTANTS_MOST: many. */
static size_t constant_bytes(const struct graph *g)
{
    size_t bytes = 0;
    for (uint32_t i = 1; i < g->nodes.n && bytes <= CONSTANTS_MOST; i++) {
        const struct node *n = graph_node(g, (node_id){i});
        for (uint32_t k = 0; k < n->n_attr && !n->dead; k++)
            bytes += n->attr[k].kind == ATTR_DATA ? n->attr[k].u.data.size : 0;
    }
    return bytes;
}

/* The text of what `text` parses to, in a context of its own; in `arena`, or NULL, and then *why is what is wrong. */
static const char *again(const struct context *like, const char *text, struct arena *arena, const char **why)
{
    struct context *ctx = context_new();
    struct strbuf out;
    jmp_buf here;
    const char *volatile result = NULL;
    *why = "memory ends";
    if (!ctx)
        return NULL;
    ctx->limits = like->limits;
    ctx->unwind = &here;
    if (setjmp(here) == 0) {
        struct module *m = module_parse(ctx, text);
        if (m) {
            strbuf_init(&out, &ctx->session);
            module_print(m, &out, true);
            result = arena_strndup(arena, out.data, out.n);
        }
    }
    if (!result && ctx->diags.n)
        *why = arena_strdup(arena, ctx->diags.data[0].text);
    context_free(ctx);
    return result;
}

bool module_verify_text(struct module *m)
{
    struct arena arena;
    struct strbuf text;
    const char *why;
    bool ok = true;
    if (constant_bytes(m->g) > CONSTANTS_MOST)
        return true;
    arena_init(&arena, m->ctx);
    strbuf_init(&text, &arena);
    module_print(m, &text, true);
    const char *other = again(m->ctx, text.data, &arena, &why);
    if (!other)
        ok = error_internal(m->ctx, (src_id){0}, "the text of the module does not parse: %s", why);
    else if (strcmp(other, text.data) != 0) {
        size_t n = 0, line = 0;
        for (; other[n] == text.data[n]; n++)
            line = text.data[n] == '\n' ? n + 1 : line;
        ok = error_internal(m->ctx, (src_id){0},
                            "the text of the module parses to another one: '%.120s' becomes '%.120s'", text.data + line,
                            other + line);
    }
    arena_release(&arena);
    return ok;
}
