/* What --error says: lines of --choose, a configuration of them, and a table. */
#include <float.h>
#include <math.h>

#include "cli/commands/command.h"
#include "cli/commands/quantize/error.h"

enum { FRONTIER_MOST = 40 };
static const char *const words[ARITHMETICS] = {
    [ARITHMETIC_F32] = "f32",   [ARITHMETIC_BF16] = "bf16",        [ARITHMETIC_F16] = "f16",
    [ARITHMETIC_INT8] = "int8", [ARITHMETIC_DYNAMIC] = "int8 dyn", [ARITHMETIC_I8] = "i8 wts",
    [ARITHMETIC_I4] = "i4 wts"};

static const char *line_of(const struct error_search *e, uint32_t i)
{
    const struct probed_product *p = &e->probe.products.data[i];
    struct arena *arena = &e->ctx->session;
    switch (e->s.ways[i].chosen) {
    case ARITHMETIC_INT8:
        return arena_printf(arena, "%s:precision=int8:%.9g,%.9g", p->label, p->range.least, p->range.most);
    case ARITHMETIC_DYNAMIC: return arena_printf(arena, "%s:precision=int8", p->label);
    case ARITHMETIC_I4: return arena_printf(arena, "%s:weights=i4", p->label);
    case ARITHMETIC_I8: return arena_printf(arena, "%s:weights=i8", p->label);
    case ARITHMETIC_BF16:
    case ARITHMETIC_F16: return arena_printf(arena, "%s:precision=%s", p->label, words[e->s.ways[i].chosen]);
    default: return NULL;
    }
}

struct text_list error_lines(const struct error_search *e)
{
    struct text_list lines = {0};
    for (uint32_t i = 0; i < e->options->choices.items.n; i++)
        VEC_PUSH(&e->ctx->session, &lines.items, e->options->choices.items.data[i]);
    for (uint32_t i = 0; i < e->probe.products.n; i++) {
        const char *line = line_of(e, i);
        if (line)
            VEC_PUSH(&e->ctx->session, &lines.items, line);
    }
    return lines;
}

static void put_row(struct error_search *e, struct text_list *rows, const char *kind, double ns, double error)
{
    VEC_PUSH(&e->ctx->session, &rows->items,
             arena_printf(&e->ctx->session, "%s %.6g %.6g", kind, ns / 1e3, isfinite(error) ? error : -1));
}

/* The frontier as the search knew it: each budget is below what the one before spent. */
static void put_frontier(struct error_search *e, struct text_list *rows)
{
    struct search *s = &e->s;
    double budget = DBL_MAX;
    for (uint32_t k = 0; k < FRONTIER_MOST && budget > 0; k++) {
        search_choose(&e->ctx->session, s->ways, s->n, budget);
        if (search_all_exact(s))
            break;
        const double square = search_square(s->ways, s->n);
        put_row(e, rows, "frontier", search_ns(s->ways, s->n), sqrt(square));
        budget = square / 1.4;
    }
    for (uint32_t i = 0; i < s->n; i++)
        s->ways[i].chosen = ARITHMETIC_F32;
    put_row(e, rows, "frontier", search_ns(s->ways, s->n), 0);
}

struct text_list error_rows(struct error_search *e)
{
    const struct search *s = &e->s;
    const struct measured *last = e->held_error.n ? &e->held_error : &s->error;
    struct text_list rows = {0};
    if (isfinite(e->bound))
        put_row(e, &rows, "bound", 0, e->bound);
    put_row(e, &rows, "chosen", search_ns(s->ways, s->n), search_all_exact(s) ? 0 : last->rms);
    for (uint32_t i = 0; i < s->tried.n; i++)
        put_row(e, &rows, "tried", s->tried.data[i].ns, s->tried.data[i].error.rms);
    for (uint32_t i = 0; i < s->n; i++) {
        const struct way *w = &s->ways[i].of[s->ways[i].chosen];
        struct strbuf row;
        strbuf_init(&row, &e->ctx->session);
        strbuf_printf(&row, "product %.6g %.6g %.6g %s: ", s->ways[i].of[ARITHMETIC_F32].ns / 1e3, w->ns / 1e3,
                      sqrt(w->square), words[s->ways[i].chosen]);
        strbuf_escaped(&row, e->probe.products.data[i].label, 200);
        VEC_PUSH(&e->ctx->session, &rows.items, row.data);
    }
    put_frontier(e, &rows);
    return rows;
}

static void put_list(struct strbuf *out, const char *key, const struct text_list *list)
{
    strbuf_printf(out, "%s:%s\n", key, list->items.n ? "" : " []");
    for (uint32_t i = 0; i < list->items.n; i++) {
        strbuf_printf(out, "  - '");
        for (const char *p = list->items.data[i]; *p; p++)
            strbuf_printf(out, *p == '\'' ? "''" : "%c", *p);
        strbuf_printf(out, "'\n");
    }
}

bool error_save(const struct error_search *e, const char *path)
{
    struct file_list read = {0};
    struct strbuf text;
    strbuf_init(&text, &e->ctx->session);
    strbuf_printf(&text, "# What mcc chose for the network within %s %g.\n",
                  isfinite(e->bound) ? "an error of" : "a metric's loss of",
                  isfinite(e->bound) ? e->bound : e->options->metric_drop);
    put_list(&text, "choose", &e->options->choices);
    put_list(&text, "searched", &e->options->searched);
    VEC_PUSH(&e->ctx->session, &read.paths, e->model);
    return output_check(e->ctx, path) && output_differs(e->ctx, path, &read, e->options->config) &&
           output_write(e->ctx, path, text.data, text.n);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* With n samples of which none is off by more, how likely it is at most, at 95 % confidence, that another one is; the
 * confidence is shared by all networks that these samples judged. */
static double exceeds_at_most(uint32_t n, uint32_t checks)
{
    return n ? 1 - pow(0.05 / (checks ? checks : 1), 1.0 / n) : 1;
}

static void print_confidence(const struct error_search *e, struct strbuf *out)
{
    const struct measured *s = &e->s.error, *h = &e->held_error;
    if (search_all_exact(&e->s))
        strbuf_printf(out, "every product stays in f32: nothing else keeps %s%.3g on the samples\n",
                      isfinite(e->bound) ? "an error of " : "the metric within ",
                      isfinite(e->bound) ? e->bound : e->options->metric_drop);
    if (!s->n)
        return;
    if (e->folder)
        strbuf_printf(out, "metric %.6g, %.6g in f32", h->n ? h->metric : s->metric,
                      e->exact_metric[h->n ? PART_HELD : PART_SEEN]);
    if (e->folder)
        strbuf_printf(out, h->n ? ", on %u samples that the search did not see\n" : ", on %u samples\n",
                      h->n ? h->n : s->n);
    strbuf_printf(out, "error %.3g on %u samples that the search saw", s->rms, s->n);
    if (!h->n) {
        strbuf_printf(out, e->holds ? "; there is no other sample, so nothing is known of others\n" : "\n");
        return;
    }
    strbuf_printf(out, ", %.3g on %u that it did not see", h->rms, h->n);
    if (!isfinite(e->bound)) {
        strbuf_printf(out, "\n");
        return;
    }
    strbuf_printf(out, "; of these %u are within %g each\n", h->within, e->bound);
    if (h->within < h->n)
        strbuf_printf(out, "the bound is on the error of all samples together; single ones may be above it\n");
    else
        strbuf_printf(out, "with 95 %% confidence less than %.0f %% of further samples like these are above it\n",
                      ceil(100 * exceeds_at_most(h->n, e->s.checks)));
}

static void print_product(const struct error_search *e, uint32_t i, struct strbuf *out)
{
    const struct probed_product *p = &e->probe.products.data[i];
    const struct site_ways *w = &e->s.ways[i];
    const bool bf16 = !e->timed && w->of[ARITHMETIC_BF16].possible; /* the only other one: what it would cost */
    if (e->costed)
        strbuf_printf(out, "%10.3g ", sqrt(w->of[bf16 ? ARITHMETIC_BF16 : w->chosen].square));
    else
        strbuf_printf(out, "%10s ", "-");
    if (e->timed)
        strbuf_printf(out, "%8.1f %8.1f ", w->of[ARITHMETIC_F32].ns / 1e3, w->of[w->chosen].ns / 1e3);
    strbuf_printf(out, " %-8s  ", words[w->chosen]);
    strbuf_escaped(out, p->label, 200);
    strbuf_printf(out, " (%s)\n", p->op);
}

void error_print_times(const struct error_search *e)
{
    struct strbuf text;
    strbuf_init(&text, &e->ctx->session);
    for (uint32_t i = 0; i < e->s.n; i++) {
        const struct way *of = e->s.ways[i].of;
        strbuf_printf(&text, "us of '");
        strbuf_escaped(&text, e->probe.products.data[i].label, 200);
        strbuf_printf(&text, "': %.4g in f32", of[ARITHMETIC_F32].ns / 1e3);
        for (uint32_t k = 0; k < error_n_candidates; k++)
            if (of[error_candidates[k]].possible)
                strbuf_printf(&text, ", %.4g in %s", of[error_candidates[k]].ns / 1e3, words[error_candidates[k]]);
        strbuf_printf(&text, "\n");
    }
    terminal_print(&text);
}

void error_print_outputs(const struct error_search *e, struct strbuf *out)
{
    const struct deviation none = {0};
    for (uint32_t i = 0; i < e->t.n_want; i++) {
        const struct deviation *d = e->s.error.outputs ? &e->s.error.outputs[i] : &none; /* all in f32 */
        strbuf_printf(out, "%10.3g %10.3g  output '%s': rms and largest error as a part of the f32 network's values\n",
                      deviation_rms(d), deviation_most(d), e->t.names[i]);
    }
}

void error_print(const struct error_search *e)
{
    struct report report = terminal_report();
    const uint32_t n = e->probe.products.n;
    uint32_t count[ARITHMETICS] = {0};
    struct strbuf text;
    double exact = 0;
    const char *how = e->options->error_measured ? "measured" : "estimated";
    if (e->options->quiet)
        return;
    strbuf_init(&text, &e->ctx->session);
    if (e->timed)
        strbuf_printf(&text, "%10s %8s %8s  %-8s  error: of the outputs, from this product alone; %s us\n", "error",
                      "f32", "chosen", "type", how);
    else
        strbuf_printf(&text, "%10s  %-8s  error: of the outputs, from this product alone in bf16\n", "error", "type");
    for (uint32_t i = 0; i < n; i++) {
        print_product(e, i, &text);
        count[e->s.ways[i].chosen]++;
        exact += e->s.ways[i].of[ARITHMETIC_F32].ns;
    }
    for (uint32_t k = 0, listed = 0; k < ARITHMETICS; k++)
        if (count[k])
            strbuf_printf(&text, "%s%u in %s", listed++ ? ", " : "", count[k], words[k]);
    if (e->timed)
        strbuf_printf(&text, "%s%.2f of the products' time, %s", n ? "; " : "",
                      exact > 0 ? search_ns(e->s.ways, n) / exact : 1, how);
    strbuf_printf(&text, "%s%u compilations\n", n || e->timed ? "; " : "", e->compilations);
    if (!e->holds)
        error_print_outputs(e, &text);
    print_confidence(e, &text);
    report.put(report.user, e->options->stop_after ? TEXT_LOG : TEXT_DATA, text.data, text.n);
}
