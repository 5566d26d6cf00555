/* What mcc prove found, as text and JSON: see prove.h. */
#include "cli/commands/artifact/artifact.h"
#include "cli/commands/command.h"
#include "cli/commands/compare/prove.h"
#include "cli/library/options/targets.h"

static void put_kernel_json(const struct prove *p, const struct certificate *c, uint32_t i, struct json *j)
{
    const char *why = verdict_against(p, c, i);
    json_open(j, NULL, '{');
    json_text(j, "kernel", capture_words(&p->run, i));
    json_bool(j, "proved", !why);
    json_open(j, "axioms", '[');
    for (int a = 0; a < AXIOM_COUNT; a++)
        if (c->of[i].uses[a])
            json_text(j, NULL, axioms[a].name);
    json_close(j, '[');
    json_text(j, "why", why);
    json_close(j, '{');
}

static void put_variant_json(const struct prove *p, const struct certificate *c, struct json *j)
{
    json_open(j, NULL, '{');
    json_text(j, "variant", c->variant);
    json_bool(j, "runs_here", c->of);
    json_uint(j, "draws", c->draws);
    json_text(j, "sizes", c->sizes.n ? c->sizes.data : NULL);
    json_open(j, "program", '{');
    json_bool(j, "proved", verdict_holds(c));
    json_text(j, "why", c->of && !c->why && !c->any ? "its outputs have no elements at these sizes" : c->why);
    json_close(j, '{');
    json_uint(j, "proved", c->proved);
    json_open(j, "kernels", '[');
    for (uint32_t i = 0; c->of && i < prove_kernels(p); i++)
        put_kernel_json(p, c, i, j);
    json_close(j, '[');
    json_close(j, '{');
}

static void put_json(const struct prove *p, bool all, struct json *j)
{
    json_open(j, NULL, '{');
    json_bool(j, "proved", all);
    json_open(j, "variants", '[');
    for (uint32_t v = 0; v < p->run.c.targets.n; v++)
        put_variant_json(p, &p->all[v], j);
    json_close(j, '[');
    json_open(j, "axioms", '[');
    for (int a = 0; a < AXIOM_COUNT; a++) {
        json_open(j, NULL, '{');
        json_text(j, "name", axioms[a].name);
        json_text(j, "statement", axioms[a].says);
        json_close(j, '{');
    }
    json_close(j, '[');
    json_close(j, '{');
}

static void put_kernel(const struct prove *p, const struct certificate *c, uint32_t i, struct strbuf *out)
{
    const char *why = verdict_against(p, c, i), *before = " under ";
    if (!why && !p->run.c.options->all)
        return;
    strbuf_printf(out, "  %s: %s", capture_words(&p->run, i), why ? "not proved, because " : "proved");
    if (why)
        strbuf_escaped(out, why, 400);
    for (int a = 0; a < AXIOM_COUNT && !why; a++)
        if (c->of[i].uses[a]) {
            strbuf_printf(out, "%s%s", before, axioms[a].name);
            before = ", ";
        }
    strbuf_printf(out, "\n");
}

static void put_variant(const struct prove *p, const struct certificate *c, struct strbuf *out)
{
    if (!c->of) {
        strbuf_printf(out, "%s: not proved, because this CPU does not run it\n", c->variant);
        return;
    }
    strbuf_printf(out, "%s: %u of %u kernels proved, program %s", c->variant, c->proved, prove_kernels(p),
                  verdict_holds(c) ? "proved" : "not proved, because ");
    if (!verdict_holds(c))
        strbuf_escaped(out,
                       c->why     ? c->why
                       : c->draws ? "its outputs have no elements at these sizes"
                                  : "it did not run",
                       400);
    if (c->sizes.n)
        strbuf_printf(out, ", at %s", c->sizes.data);
    strbuf_printf(out, "\n");
    for (uint32_t i = 0; i < prove_kernels(p); i++)
        put_kernel(p, c, i, out);
}

bool certify(struct prove *p)
{
    const struct options *o = p->run.c.options;
    struct context *ctx = p->run.c.ctx;
    struct strbuf text;
    uint32_t proved = 0;
    for (uint32_t v = 0; v < p->run.c.targets.n; v++) {
        struct certificate *c = &p->all[v];
        for (uint32_t i = 0; c->of && i < prove_kernels(p); i++)
            c->proved += !verdict_against(p, c, i);
        proved += verdict_holds(c) && c->proved == prove_kernels(p);
    }
    const bool all = proved == p->run.c.targets.n;
    strbuf_init(&text, &ctx->session);
    if (o->document)
        put_json(p, all, &o->document->result);
    for (uint32_t v = 0; v < p->run.c.targets.n && !o->document && !o->quiet; v++)
        put_variant(p, &p->all[v], &text);
    terminal_print(&text);
    if (o->output) {
        struct json j = {.out = &text};
        text.n = 0;
        put_json(p, all, &j);
        strbuf_append(&text, "\n", 1);
        if (!output_write(ctx, o->output, text.data, text.n))
            return false;
    }
    return all || error_at(ctx, FAIL_CLAIM, (src_id){0}, NULL, "not all is proved: %u of %u CPU variants", proved,
                           p->run.c.targets.n);
}
