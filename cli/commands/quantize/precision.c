/* --precision=auto: which contractions keep operands of f32, so that the outputs' largest error stays within a bound.
 *
 * The search of --error with bf16 alone: all in bf16 first, which may be within the bound. Else as many as fit, those
 * that cost least first. Contractions with one name stand and fall together, since --choose, which this fills in, goes
 * by name.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands/command.h"
#include "cli/commands/quantize/error.h"

/* A product that may be rounded, with what it adds to the squared error. */
struct unit {
    uint32_t product;
    double square;
};

static int by_square(const void *a, const void *b)
{
    const struct unit *x = a, *y = b;
    if (x->square != y->square)
        return x->square < y->square ? 1 : -1;
    return (x->product > y->product) - (x->product < y->product);
}

/* The products with the largest squares first; their number. */
static uint32_t units_order(const struct error_search *e, struct unit **out)
{
    struct unit *units = *out = NEW_ARRAY(&e->ctx->session, struct unit, e->probe.products.n + 1);
    uint32_t n = 0;
    for (uint32_t i = 0; i < e->probe.products.n; i++)
        if (e->s.ways[i].of[ARITHMETIC_BF16].possible)
            units[n++] = (struct unit){i, e->s.ways[i].of[ARITHMETIC_BF16].square};
    qsort(units, n, sizeof *units, by_square);
    return n;
}

static double share(double square, double whole)
{
    if (!isfinite(whole))
        return isfinite(square) ? 0 : 100;
    return whole > 0 ? 100 * square / whole : 0;
}

static void print_table(const struct error_search *e, const struct unit *units, uint32_t n, bool measured)
{
    struct report report = terminal_report();
    struct strbuf text;
    double whole = 0;
    uint32_t rounded = 0;
    strbuf_init(&text, &e->ctx->session);
    strbuf_printf(&text, "%8s  %-5s  %s\n", "share", "width", "of the squared error with each in bf16");
    for (uint32_t i = 0; i < n; i++)
        whole += units[i].square;
    for (uint32_t i = 0; i < n; i++) {
        const struct probed_product *p = &e->probe.products.data[units[i].product];
        const bool narrow = e->s.ways[units[i].product].chosen == ARITHMETIC_BF16;
        if (measured)
            strbuf_printf(&text, "%7.2f%%", share(units[i].square, whole));
        else
            strbuf_printf(&text, "%8s", "-");
        strbuf_printf(&text, "  %-5s  ", narrow ? "bf16" : "f32");
        strbuf_escaped(&text, p->label, 200);
        strbuf_printf(&text, " (%s)\n", p->op);
        rounded += narrow;
    }
    trial_print(&e->t, &text);
    strbuf_printf(&text, "%u of %u products in bf16, %u sample%s, %u compilations\n", rounded, n, e->t.samples.n,
                  e->t.samples.n == 1 ? "" : "s", e->compilations);
    if (!e->options->quiet)
        report.put(report.user, e->options->stop_after ? TEXT_LOG : TEXT_DATA, text.data, text.n);
}

/* What the command line would say: bf16 for all, f32 for some, after the user's choices. */
static void put_choices(const struct error_search *e, const struct unit *units, uint32_t n, struct options *o)
{
    struct text_list choices = {0};
    for (uint32_t i = 0; i < o->choices.items.n; i++)
        VEC_PUSH(&e->ctx->session, &choices.items, o->choices.items.data[i]);
    o->precision = search_all_exact(&e->s) ? OPT_PRECISION_F32 : OPT_PRECISION_BF16;
    for (uint32_t i = 0; i < n && o->precision == OPT_PRECISION_BF16; i++)
        if (e->s.ways[units[i].product].chosen == ARITHMETIC_F32)
            VEC_PUSH(
                &e->ctx->session, &choices.items,
                arena_printf(&e->ctx->session, "%s:precision=f32", e->probe.products.data[units[i].product].label));
    o->choices = choices;
}

bool precision_settle(struct context *ctx, struct options *o)
{
    struct error_search *e = NULL;
    struct unit *units;
    if (o->precision != OPT_PRECISION_AUTO || !error_begin(ctx, o, "precision", &e) || !e)
        return o->precision != OPT_PRECISION_AUTO || ctx->fail == FAIL_NONE; /* compiled: refused as any precision is */
    e->size = deviation_most;
    e->bound = o->precision_bound;
    if (!error_products(e) || !error_ranges(e))
        return false;
    for (uint32_t i = 0; i < e->s.n; i++) {
        struct way *of = e->s.ways[i].of;
        for (uint32_t k = 0; k < error_n_candidates; k++)
            of[error_candidates[k]].possible &= error_candidates[k] == ARITHMETIC_BF16;
        of[ARITHMETIC_F32].ns = 1; /* as many as possible, whatever each saves */
    }
    e->s.n = e->bound > 0 ? e->s.n : 0;
    e->s.hopeful = true;
    if (!error_run(e) || ctx->fail != FAIL_NONE)
        return false;
    e->s.n = e->probe.products.n;
    if (e->s.error.n)
        e->t.error = e->s.error.outputs;
    else /* what all in f32 are off by */
        memset(e->t.error, 0, e->t.n_want * sizeof *e->t.error);
    const uint32_t n = units_order(e, &units);
    print_table(e, units, n, n && units[0].square > 0);
    put_choices(e, units, n, o);
    return true;
}
