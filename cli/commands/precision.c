/* --precision=auto: which contractions keep operands of f32, so that the outputs' error stays within a bound.
 *
 * The network runs on samples: in f32, which says what is right; then once for each contraction, with that one's
 * operands alone in bf16. Squares of errors that have nothing to do with each other add up, so a contraction's share of
 * the whole is its square over the sum of all. The largest shares go back to f32 until what is left should be within
 * the bound, and the network runs with the others in bf16 together: as long as that is off by more than the bound, more
 * go back. Contractions with one name stand and fall together, since --choose, which this fills in, goes by name.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/artifact/artifact.h"
#include "cli/command.h"
#include "cli/commands/trial.h"
#include "ir/expr/expr.h"

#define LAST_OF_NARROWING "narrow-products"

struct unit {
    const char *label, *op;
    double square; /* of what it adds to the outputs, over theirs; the sum of all outputs */
    bool kept; /* in f32 */
};
struct settling {
    struct context *ctx;
    struct options *options, plain;
    struct trial t;
    VEC(struct unit) units; /* as the network has them; then the most costly first */
    uint32_t alone; /* the unit whose turn it is */
    double whole, error; /* sum of squares; of the last attempt */
};

/* ---- what there is to decide ------------------------------------------------------------------------------------- */

static void add_unit(struct settling *s, const struct source *src)
{
    const char *label = source_label(src);
    bool known = false;
    for (uint32_t i = 0; i < s->units.n; i++)
        known |= strcmp(s->units.data[i].label, label) == 0;
    for (uint32_t i = 0; i < s->options->choices.items.n; i++) { /* the user has said it */
        const char *text = s->options->choices.items.data[i];
        size_t n = strlen(label);
        known |= strncmp(text, label, n) == 0 && strncmp(text + n, ":precision=", 11) == 0;
    }
    if (!known)
        VEC_PUSH(&s->ctx->session, &s->units,
                 ((struct unit){.label = arena_strdup(&s->ctx->session, label),
                                .op = arena_strdup(&s->ctx->session, src->op ? src->op : "")}));
}

/* The contractions that --precision=bf16 rounds, and the number of the network's outputs. */
static bool find_units(struct settling *s, const char *model)
{
    struct context *apart = context_new();
    if (!apart)
        return error_limit(s->ctx, (src_id){0}, "out of memory");
    struct options o = s->plain;
    struct compilation c = {.ctx = apart, .options = &o, .report = terminal_report()};
    o.precision = "bf16";
    o.output = NULL;
    enum fail fail = compile_keep(&c, model, LAST_OF_NARROWING);
    if (fail == FAIL_NONE) {
        for (uint32_t i = 0; i < c.module->narrowed.n; i++)
            add_unit(s, source_get(apart, graph_node(c.graph, c.module->narrowed.data[i])->src));
        trial_outputs(&s->t, c.graph);
    } else {
        s->ctx->fail = fail; /* which has been said */
    }
    context_free(apart);
    return fail == FAIL_NONE;
}

/* ---- trials ------------------------------------------------------------------------------------------------------ */

static void see_exact(void *user)
{
    struct settling *s = user;
    if (!trial_begin(&s->t))
        return;
    DLManagedTensorVersioned **out = NEW_ARRAY(&s->ctx->session, DLManagedTensorVersioned *, s->t.n_want + 1);
    for (uint32_t k = 0; k < s->t.samples.n && trial_sample(&s->t, k, out); k++) {
        trial_keep(&s->t, k, out);
        trial_delete(out, s->t.n_want);
    }
}

static void see_one(void *user)
{
    struct settling *s = user;
    if (trial_judge(&s->t))
        s->units.data[s->alone].square = trial_square(&s->t);
}

static void see_all(void *user)
{
    struct settling *s = user;
    if (trial_judge(&s->t))
        s->error = trial_worst(&s->t, deviation_most);
}

/* What the command line would say: bf16 for all, f32 for some, behind other choices. */
static void put_choices(const struct settling *s, const struct text_list *others, struct options *o)
{
    struct text_list choices = {0};
    for (uint32_t i = 0; i < others->items.n; i++)
        VEC_PUSH(&s->ctx->session, &choices.items, others->items.data[i]);
    o->precision = "f32";
    for (uint32_t i = 0; i < s->units.n; i++)
        if (!s->units.data[i].kept)
            o->precision = "bf16";
    for (uint32_t i = 0; i < s->units.n && !strcmp(o->precision, "bf16"); i++)
        if (s->units.data[i].kept)
            VEC_PUSH(&s->ctx->session, &choices.items,
                     arena_printf(&s->ctx->session, "%s:precision=f32", s->units.data[i].label));
    o->choices = choices;
}

/* In the end with what else the user has rounded. */
static bool try_units(struct settling *s, const char *model, bool whole, void (*use)(void *user))
{
    struct options o = s->plain;
    if (whole)
        o.weights_type = s->options->weights_type;
    put_choices(s, whole ? &s->options->choices : &s->plain.choices, &o);
    return trial_run(&s->t, &o, model, use, s);
}

static int by_square(const void *a, const void *b)
{
    double x = ((const struct unit *)a)->square, y = ((const struct unit *)b)->square;
    return (x < y) - (x > y);
}

static bool measure_units(struct settling *s, const char *model)
{
    if (!try_units(s, model, false, see_exact))
        return false;
    for (s->alone = 0; s->alone < s->units.n; s->alone++) {
        s->units.data[s->alone].kept = false;
        if (!try_units(s, model, false, see_one))
            return false;
        s->units.data[s->alone].kept = true;
        s->whole += s->units.data[s->alone].square;
        report_step(&(struct compilation){.options = s->options, .report = terminal_report()}, "precision",
                    s->alone + 1, s->units.n);
    }
    if (s->units.n)
        qsort(s->units.data, s->units.n, sizeof *s->units.data, by_square);
    return true;
}

/* Keeps more and more in f32, by their shares, until the bound holds. */
static bool attempt_all(struct settling *s, const char *model)
{
    const double bound = s->options->precision_bound;
    double *squares = NEW_ARRAY(&s->ctx->session, double, s->units.n + 1);
    uint32_t n = bound > 0 ? 0 : s->units.n;
    for (uint32_t i = 0; i < s->units.n; i++)
        squares[i] = s->units.data[i].square;
    for (;; n = trial_keep_more(squares, s->units.n, n, s->error, bound)) {
        for (uint32_t i = 0; i < s->units.n; i++)
            s->units.data[i].kept = i < n;
        if (!try_units(s, model, true, see_all))
            return false;
        if (s->error <= bound)
            return true;
        if (n >= s->units.n)
            return error_at(
                s->ctx, FAIL_USAGE, (src_id){0}, NULL,
                "outputs are off by %.3g with all that --precision=auto decides in f32, more than %g: other "
                "options round as well",
                s->error, bound);
    }
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static double share(const struct settling *s, const struct unit *u)
{
    if (!isfinite(s->whole))
        return isfinite(u->square) ? 0 : 100;
    return s->whole > 0 ? 100 * u->square / s->whole : 0;
}

static void print_table(const struct settling *s)
{
    struct report report = terminal_report();
    struct strbuf text;
    uint32_t kept = 0;
    if (s->options->quiet)
        return;
    strbuf_init(&text, &s->ctx->session);
    strbuf_printf(&text, "%8s  %-5s  %s\n", "share", "width", "of the squared error with all in bf16");
    for (uint32_t i = 0; i < s->units.n; i++) {
        const struct unit *u = &s->units.data[i];
        strbuf_printf(&text, "%7.2f%%  %-5s  ", share(s, u), u->kept ? "f32" : "bf16");
        strbuf_escaped(&text, u->label, 200);
        strbuf_printf(&text, " (%s)\n", u->op);
        kept += u->kept;
    }
    trial_print(&s->t, &text);
    strbuf_printf(&text, "%u of %u products in bf16, %u sample%s\n", s->units.n - kept, s->units.n, s->t.samples.n,
                  s->t.samples.n == 1 ? "" : "s");
    report.put(report.user, s->options->stop_after ? TEXT_LOG : TEXT_DATA, text.data, text.n);
}

bool precision_settle(struct context *ctx, struct options *o)
{
    const char *model = o->files.items.n ? o->files.items.data[0] : NULL;
    if (!model || strcmp(o->precision, "auto") != 0 || artifact_meant(model))
        return true; /* compiled ones are refused as with any precision */
    struct settling *s = NEW(&ctx->session, struct settling);
    s->ctx = s->t.ctx = ctx;
    s->options = o;
    s->t.options = o;
    trial_options(o, &s->plain);
    ctx->model_path = model;
    if (!find_units(s, model))
        return false;
    for (uint32_t i = 0; i < s->units.n; i++)
        s->units.data[i].kept = true;
    if (!measure_units(s, model) || !attempt_all(s, model))
        return false;
    print_table(s);
    put_choices(s, &o->choices, o);
    return true;
}
