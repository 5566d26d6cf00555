/* What mcc prove found, as text and JSON: see prove.h. */
#include "cli/commands/compare/code_check.h"
#include "cli/commands/compare/prove.h"

static void put_kernel_json(const struct prove *p, const struct certificate *c, uint32_t i, struct json *j)
{
    const char *why = verdict_against(p, c, i);
    JSON_GROUP(j, NULL, "{", j_text("kernel", capture_words(&p->run, i)), j_bool("proved", !why));
    json_open(j, "axioms", '[');
    for (int a = 0; a < AXIOM_COUNT; a++)
        if (c->of[i].uses[a])
            json_text(j, NULL, axioms[a].name);
    json_close(j, "]");
    json_text(j, "why", why);
    json_close(j, "}");
}

static void put_variant_json(const struct prove *p, const struct certificate *c, struct json *j)
{
    JSON_GROUP(j, NULL, "{", j_text("variant", c->variant), j_bool("runs_here", c->of),
               j_uint("draws", c->draws + c->single), j_text("sizes", c->sizes.n ? c->sizes.data : NULL),
               j_text("sizes_of_single_kernels", c->more.n ? c->more.data : NULL));
    JSON_GROUP(j, "program", "{", j_bool("proved", verdict_holds(c)));
    json_open(j, "axioms", '[');
    if (p->limits)
        json_text(j, NULL, axioms[AXIOM_LIMITS].name);
    json_close(j, "]");
    json_text(j, "why", c->of && !c->why && !c->any ? "an output has no elements at these sizes" : c->why);
    json_close(j, "}");
    json_uint(j, "proved", c->proved);
    json_open(j, "kernels", '[');
    for (uint32_t i = 0; c->of && i < prove_kernels(p); i++)
        put_kernel_json(p, c, i, j);
    json_close(j, "]}");
}

void certificate_json(const struct prove *p, bool all, struct json *j)
{
    JSON_GROUP(j, NULL, "{", j_bool("proved", all && code_agrees(p->machine)));
    json_open(j, "variants", '[');
    for (uint32_t v = 0; v < p->run.c.targets.n; v++)
        put_variant_json(p, &p->all[v], j);
    json_close(j, "]");
    code_put_json(p->machine, j);
    json_open(j, "axioms", '[');
    for (int a = 0; a < AXIOM_COUNT; a++)
        JSON_GROUP(j, NULL, "{}", j_text("name", axioms[a].name), j_text("statement", axioms[a].says));
    json_close(j, "]}");
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

static void put_sizes(const struct certificate *c, struct strbuf *out)
{
    if (c->sizes.n)
        strbuf_printf(out, ", at %s", c->sizes.data);
    if (c->more.n)
        strbuf_printf(out, ", kernels with other loops for more also at %s", c->more.data);
}

static void put_variant(const struct prove *p, const struct certificate *c, struct strbuf *out)
{
    if (!c->of) {
        strbuf_printf(out, "%s: not proved, because this CPU does not run it\n", c->variant);
        return;
    }
    strbuf_printf(out, "%s: %u of %u kernels proved, program %s", c->variant, c->proved, prove_kernels(p),
                  !verdict_holds(c) ? "not proved, because "
                  : p->limits       ? "proved under limits"
                                    : "proved");
    if (!verdict_holds(c))
        strbuf_escaped(out,
                       c->why     ? c->why
                       : c->draws ? "an output has no elements at these sizes"
                                  : "it did not run",
                       400);
    put_sizes(c, out);
    strbuf_printf(out, "\n");
    for (uint32_t i = 0; i < prove_kernels(p); i++)
        put_kernel(p, c, i, out);
}

uint32_t certificate_count(struct prove *p)
{
    uint32_t proved = 0;
    for (uint32_t v = 0; v < p->run.c.targets.n; v++) {
        struct certificate *c = &p->all[v];
        c->proved = 0;
        for (uint32_t i = 0; c->of && i < prove_kernels(p); i++)
            c->proved += !verdict_against(p, c, i);
        proved += verdict_holds(c) && c->proved == prove_kernels(p);
    }
    return proved;
}

void certificate_text(const struct prove *p, struct strbuf *out)
{
    for (uint32_t v = 0; v < p->run.c.targets.n; v++)
        put_variant(p, &p->all[v], out);
    code_put(p->machine, out);
}

const char *certificate_note(const struct prove *p, const struct certificate *c, struct arena *arena)
{
    const char *before = ", under ";
    struct strbuf out = strbuf_of(arena);
    strbuf_printf(&out, "%s: %u of %u kernels and the program", c->variant, c->proved, prove_kernels(p));
    for (int a = 0; a < AXIOM_COUNT; a++) {
        bool used = a == AXIOM_LIMITS && p->limits;
        for (uint32_t i = 0; i < prove_kernels(p); i++)
            used |= c->of[i].uses[a];
        if (used)
            strbuf_printf(&out, "%s%s", before, axioms[a].name);
        before = used ? ", " : before;
    }
    put_sizes(c, &out);
    return out.data;
}
