/* What mcc prove --machine found, as text and JSON: see code_check.h. */

#include "cli/commands/compare/code_check.h"
#include "cli/library/options/targets.h"

/* Is unit i a kernel of the variant? */
static bool is_kernel_of(const struct code_check *m, uint32_t i, uint32_t variant)
{
    const struct compilation *c = &m->run.c;
    for (uint32_t k = 0; k < c->kernel_rows.n; k++)
        if (c->kernel_rows.data[k].unit == i)
            return c->units.data[i].target == &c->targets.data[variant]->target;
    return false;
}

/* Where all sizes are given, code for other ones need not run, if some has. */
static const char *against(const struct code_check *m, uint32_t i, uint32_t variant)
{
    const struct agreement *k = &m->of[i];
    if (k->differs || k->why)
        return k->differs ? k->differs : k->why;
    if (!m->variants[variant].any)
        return "nothing is stored at the sizes drawn";
    return !k->draws && m->open ? "it did not run at the sizes drawn" : NULL;
}

/* "k3_v4, kernel k3 (tiled; conv1)" */
static const char *words_of(const struct code_check *m, uint32_t i)
{
    const char *symbol = m->run.c.units.data[i].symbol;
    const uint32_t kernel = (uint32_t)strtoul(symbol + 1, NULL, 10);
    return kernel < m->run.c.module->fused.kernels.n
               ? arena_printf(&m->run.c.ctx->session, "%s, %s", symbol, capture_words(&m->run, kernel))
               : symbol;
}

static uint32_t count_variant(const struct code_check *m, uint32_t v, uint32_t *agree)
{
    uint32_t n = 0;
    *agree = 0;
    for (uint32_t i = 0; i < m->run.c.units.n; i++)
        if (is_kernel_of(m, i, v)) {
            n++;
            *agree += !against(m, i, v);
        }
    return n;
}

bool code_agrees(const struct code_check *m)
{
    bool all = true;
    uint32_t agree;
    for (uint32_t v = 0; m && v < m->run.c.targets.n; v++)
        all &= m->variants[v].ran && !m->variants[v].program && count_variant(m, v, &agree) == agree;
    return all;
}

static void put_variant(const struct code_check *m, uint32_t v, struct strbuf *out)
{
    const struct code_variant *variant = &m->variants[v];
    uint32_t agree, n = count_variant(m, v, &agree);
    if (!variant->ran) {
        strbuf_printf(out, "%s: machine code was not compared, because this CPU does not run it\n", variant->name);
        return;
    }
    strbuf_printf(out, "%s: machine code of %u of %u kernels has the loop IR's bits, that of plan and program %s",
                  variant->name, agree, n, variant->program ? "not, because " : "too");
    if (variant->program)
        strbuf_escaped(out, variant->program, 400);
    strbuf_printf(out, "\n");
    for (uint32_t i = 0; i < m->run.c.units.n; i++) {
        const struct agreement *k = &m->of[i];
        const char *why = against(m, i, v);
        if (!is_kernel_of(m, i, v) || (!why && !m->run.c.options->all))
            continue;
        strbuf_printf(out, "  %s: ", words_of(m, i));
        if (why)
            strbuf_escaped(out, why, 400);
        strbuf_printf(out, "%s%lld of %lld parallel indices, %lld elements\n",
                      why        ? "; "
                      : k->draws ? "the same bits, "
                                 : "not run at these sizes, ",
                      (long long)k->indices, (long long)k->of, (long long)k->elements);
    }
}

void code_put(const struct code_check *m, struct strbuf *out)
{
    for (uint32_t v = 0; m && v < m->run.c.targets.n; v++)
        put_variant(m, v, out);
}

static void put_kernel_json(const struct code_check *m, uint32_t i, uint32_t v, struct json *j)
{
    const struct agreement *k = &m->of[i];
    JSON_GROUP(j, NULL, "{}", j_text("function", m->run.c.units.data[i].symbol), j_text("kernel", words_of(m, i)),
               j_bool("agrees", !against(m, i, v)), j_bool("differs", k->differs), j_uint("draws", k->draws),
               j_int("indices", k->indices), j_int("of", k->of), j_int("elements", k->elements),
               j_text("why", against(m, i, v)));
}

void code_put_json(const struct code_check *m, struct json *j)
{
    if (!m) {
        json_null(j, "machine");
        return;
    }
    JSON_GROUP(j, "machine", "{", j_bool("agrees", code_agrees(m)));
    json_open(j, "variants", '[');
    for (uint32_t v = 0; v < m->run.c.targets.n; v++) {
        JSON_GROUP(j, NULL, "{", j_text("variant", m->variants[v].name), j_bool("runs_here", m->variants[v].ran),
                   j_text("program", m->variants[v].program));
        json_open(j, "kernels", '[');
        for (uint32_t i = 0; m->variants[v].ran && i < m->run.c.units.n; i++)
            if (is_kernel_of(m, i, v))
                put_kernel_json(m, i, v, j);
        json_close(j, "]}");
    }
    json_close(j, "]}");
}
