/* --precision=auto: which contractions keep operands of f32, so that the outputs' error stays within a bound.
 *
 * The network runs on samples: in f32, which says what is right, and with all operands in bf16. If that is within the
 * bound, nothing else is to be found out. Else the contractions are one group, which is split where the error comes
 * from: the network runs with the operands of a group's first half alone in bf16. Squares of errors that have nothing
 * to do with each other add up, so the other half has the rest of the group's square. Of the groups those with the
 * largest squares go back to f32 until what is left should be within the bound; as long as one of these has several
 * contractions, it is split. A few contractions that cost most are so found in a multiple of log2 of their number of
 * compilations.
 * Then the network runs with the others in bf16 together: as long as that is off by more than the bound, more go back.
 * Contractions with one name stand and fall together, since --choose, which this fills in, goes by name.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands/artifact/artifact.h"
#include "cli/commands/command.h"
#include "cli/commands/quantize/trial.h"
#include "ir/expr/expr.h"

#define LAST_OF_NARROWING "narrow-products"

struct unit {
    const char *label, *op;
    double square; /* of what it adds to the outputs, over theirs; the sum of all outputs: its part of the group's */
    uint32_t group; /* number of units that the square was measured of */
    bool kept; /* in f32 */
};
/* Units of the network, one after the other. */
struct group {
    uint32_t first, n;
    double square;
    bool kept;
};
struct settling {
    struct context *ctx;
    struct options *options, plain;
    struct trial t;
    VEC(struct unit) units; /* as the network has them; then the most costly first */
    VEC(struct group) groups;
    double whole, square, error; /* square: of all in bf16, of the last attempt; error: its largest */
    uint32_t compilations, most; /* so far; at most so many to look for what costs */
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

static void list_units(void *user, struct compilation *c)
{
    struct settling *s = user;
    for (uint32_t i = 0; i < c->module->known.narrowed.n; i++)
        add_unit(s, source_get(c->ctx, graph_node(c->graph, c->module->known.narrowed.data[i])->src));
    trial_outputs(&s->t, c->graph);
}

/* The contractions that --precision=bf16 rounds, and the number of the network's outputs. */
static bool find_units(struct settling *s, const char *model)
{
    struct options o = s->plain;
    o.precision = OPT_PRECISION_BF16;
    o.output = NULL;
    return compile_apart(s->ctx, &o, model, LAST_OF_NARROWING, NULL, list_units, s);
}

/* ---- trials ------------------------------------------------------------------------------------------------------ */

static void see_exact(void *user)
{
    (void)trial_observe(&((struct settling *)user)->t, NULL, NULL);
}

static void see_error(void *user)
{
    struct settling *s = user;
    if (!trial_judge(&s->t))
        return;
    s->square = trial_square(&s->t);
    s->error = trial_worst(&s->t, deviation_most);
}

/* What the command line would say: bf16 for all, f32 for some, after other choices. */
static void put_choices(const struct settling *s, const struct text_list *others, struct options *o)
{
    struct text_list choices = {0};
    for (uint32_t i = 0; i < others->items.n; i++)
        VEC_PUSH(&s->ctx->session, &choices.items, others->items.data[i]);
    o->precision = OPT_PRECISION_F32;
    for (uint32_t i = 0; i < s->units.n; i++)
        if (!s->units.data[i].kept)
            o->precision = OPT_PRECISION_BF16;
    for (uint32_t i = 0; i < s->units.n && o->precision == OPT_PRECISION_BF16; i++)
        if (s->units.data[i].kept)
            VEC_PUSH(&s->ctx->session, &choices.items,
                     arena_printf(&s->ctx->session, "%s:precision=f32", s->units.data[i].label));
    o->choices = choices;
}

/* whole: with what else the user has rounded. */
static bool try_units(struct settling *s, const char *model, bool whole, void (*use)(void *user))
{
    struct options o = s->plain;
    if (whole)
        o.weights_type = s->options->weights_type;
    put_choices(s, whole ? &s->options->choices : &s->plain.choices, &o);
    s->compilations++;
    return trial_run(&s->t, &o, model, use, s);
}

/* With those from `first` on in bf16, n of them, and all others in f32. */
static bool try_stretch(struct settling *s, const char *model, bool whole, uint32_t first, uint32_t n)
{
    for (uint32_t i = 0; i < s->units.n; i++)
        s->units.data[i].kept = i < first || i - first >= n;
    return try_units(s, model, whole, see_error);
}

/* ---- what costs most --------------------------------------------------------------------------------------------- */

static int group_by_square(const void *a, const void *b)
{
    const struct group *x = a, *y = b;
    if (x->square != y->square)
        return x->square < y->square ? 1 : -1;
    return (x->first > y->first) - (x->first < y->first);
}

/* Keeps those with the largest squares, so that the rest should be within the bound. The largest of these that has
 * several units; NULL: none has. */
static struct group *groups_keep(struct settling *s, double most)
{
    struct group *wide = NULL;
    double left = 0;
    qsort(s->groups.data, s->groups.n, sizeof *s->groups.data, group_by_square);
    for (uint32_t i = s->groups.n; i-- > 0;) { /* the smallest first: what may stay in bf16 */
        struct group *g = &s->groups.data[i];
        left += g->square;
        g->kept = !(left <= most);
        if (g->kept && g->n > 1 && (!wide || g->n >= wide->n))
            wide = g;
    }
    return wide;
}

static bool group_split(struct settling *s, const char *model, struct group *g)
{
    struct group half = {.first = g->first, .n = g->n / 2};
    if (!try_stretch(s, model, false, half.first, half.n))
        return false;
    half.square = s->square;
    g->first += half.n;
    g->n -= half.n;
    g->square = isfinite(half.square) ? fmax(g->square - half.square, 0) : g->square;
    VEC_PUSH(&s->ctx->session, &s->groups, half);
    report_step(&(struct compilation){.options = s->options, .report = terminal_report()}, "precision", s->compilations,
                s->most);
    return true;
}

/* The units of the groups that cost most first, with their parts of these; the number of those to keep. */
static uint32_t units_order(struct settling *s)
{
    struct unit *units = NEW_ARRAY(&s->ctx->session, struct unit, s->units.n + 1);
    uint32_t n = 0, kept = 0;
    for (uint32_t i = 0; i < s->groups.n; i++) {
        const struct group *g = &s->groups.data[i];
        s->whole += g->square;
        kept += g->kept ? g->n : 0;
        for (uint32_t k = 0; k < g->n; k++) {
            units[n] = s->units.data[g->first + k];
            units[n].square = g->square / g->n;
            units[n++].group = g->n;
        }
    }
    s->units.data = units;
    return kept;
}

/* Where the error of all in bf16 comes from, which is above the bound. */
static bool measure_units(struct settling *s, const char *model, uint32_t *keep)
{
    enum { FIRST = 4, EACH_HALVING = 3 };
    const double part = s->options->precision_bound / s->error, most = s->square * part * part;
    struct group *wide;
    s->most = FIRST;
    for (uint32_t n = s->units.n; n; n /= 2)
        s->most += EACH_HALVING;
    VEC_PUSH(&s->ctx->session, &s->groups, ((struct group){.n = s->units.n, .square = s->square}));
    while ((wide = groups_keep(s, most)) && s->compilations < s->most)
        if (!group_split(s, model, wide))
            return false;
    *keep = units_order(s);
    return true;
}

/* Keeps more and more in f32, by their shares, until the bound holds: n first, at least twice as many more each time.
 */
static bool attempt_all(struct settling *s, const char *model, uint32_t n)
{
    const double bound = s->options->precision_bound;
    double *squares = NEW_ARRAY(&s->ctx->session, double, s->units.n + 1);
    for (uint32_t i = 0; i < s->units.n; i++)
        squares[i] = s->units.data[i].square;
    for (uint32_t more = 1;; more *= 2) {
        if (!try_stretch(s, model, true, n, s->units.n - n))
            return false;
        if (s->error <= bound)
            return true;
        if (n >= s->units.n)
            return error_at(
                s->ctx, FAIL_USAGE, (src_id){0}, NULL,
                "the outputs differ by %.3g even with every product in f32, which is more than %g: another option "
                "rounds as well; remove it or allow a larger error",
                s->error, bound);
        uint32_t by_share = trial_keep_more(squares, s->units.n, n, s->error, bound);
        n = by_share - n > more ? by_share : s->units.n - n > more ? n + more : s->units.n;
    }
}

static bool settle_units(struct settling *s, const char *model)
{
    const double bound = s->options->precision_bound;
    const bool others = s->options->choices.items.n || s->options->weights_type != s->plain.weights_type;
    uint32_t keep = s->units.n;
    if (bound <= 0 || !keep)
        return attempt_all(s, model, keep);
    if (!try_stretch(s, model, true, 0, s->units.n))
        return false;
    if (s->error <= bound)
        return true;
    return (!others || try_stretch(s, model, false, 0, s->units.n)) && measure_units(s, model, &keep) &&
           attempt_all(s, model, keep);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static double share(const struct settling *s, const struct unit *u)
{
    if (!isfinite(s->whole))
        return isfinite(u->square) ? 0 : 100;
    return s->whole > 0 ? 100 * u->square / s->whole : 0;
}

/* Of one among several that were measured together: at most what all of them have. */
static void put_share(const struct settling *s, const struct unit *u, struct strbuf *out)
{
    if (!u->group)
        strbuf_printf(out, "%8s", "-");
    else if (u->group == 1)
        strbuf_printf(out, "%7.2f%%", share(s, u));
    else
        strbuf_printf(out, "%8s", arena_printf(out->arena, "<%.2f%%", share(s, u) * u->group));
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
        put_share(s, u, &text);
        strbuf_printf(&text, "  %-5s  ", u->kept ? "f32" : "bf16");
        strbuf_escaped(&text, u->label, 200);
        strbuf_printf(&text, " (%s)\n", u->op);
        kept += u->kept;
    }
    trial_print(&s->t, &text);
    strbuf_printf(&text, "%u of %u products in bf16, %u sample%s, %u compilations\n", s->units.n - kept, s->units.n,
                  s->t.samples.n, s->t.samples.n == 1 ? "" : "s", s->compilations);
    report.put(report.user, s->options->stop_after ? TEXT_LOG : TEXT_DATA, text.data, text.n);
}

bool precision_settle(struct context *ctx, struct options *o)
{
    const char *model = o->files.items.n ? o->files.items.data[0] : NULL;
    if (!model || o->precision != OPT_PRECISION_AUTO || artifact_meant(model))
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
    if (!try_units(s, model, false, see_exact) || !settle_units(s, model))
        return false;
    print_table(s);
    put_choices(s, &o->choices, o);
    return true;
}
