/* --error: the fastest arithmetic of each product within a relative error of the outputs; --precision=auto: bf16 for as
 * many products as possible within a largest error, all of them first.
 *
 * The network runs on samples. Of each product it is measured what each arithmetic alone adds to the outputs
 * (error_measure.c) and estimated what that saves (error_products.c); search.c chooses. Every fourth sample is not
 * seen by the search, and judges its result.
 */
#include <math.h>

#include "cli/commands/artifact/artifact.h"
#include "cli/commands/command.h"
#include "cli/commands/quantize/error.h"
#include "cli/library/options/targets.h"

/* What a search within a metric alone begins with. */
static const double first_bound = 0.01;

/* "1%" or "0.01"; false: neither, 0 or more than 100 %. */
static bool bound_read(struct context *ctx, const char *text, double *out)
{
    size_t n = strlen(text);
    const bool percent = n && text[n - 1] == '%';
    bool ok = real_parse(arena_strndup(&ctx->session, text, percent ? n - 1 : n), out);
    *out = percent ? *out / 100 : *out;
    return (ok && *out > 0 && *out <= 1) ||
           error_at(ctx, FAIL_USAGE, (src_id){0}, NULL,
                    "'error' takes a part of the outputs' size above 0, such as 1%% or 0.01, not '%s'", text);
}

static bool options_fit(struct context *ctx, const struct options *o)
{
    const char *other = o->precision != OPT_PRECISION_F32          ? "precision"
                        : o->weights_type != OPT_WEIGHTS_TYPE_AUTO ? "weights-type"
                                                                   : NULL;
    if (o->error_measured && (o->target || o->strict || (o->march && strcmp(o->march, "native") != 0)))
        return error_at(ctx, FAIL_USAGE, (src_id){0}, NULL,
                        "'error-measured' times kernels on this machine: leave --target, --strict and -march out, or "
                        "use -march=native");
    return !other || error_at(ctx, FAIL_USAGE, (src_id){0}, NULL,
                              "'error' chooses the arithmetic of each product; leave --%s out, or use --choose "
                              "NODE:precision= for single nodes",
                              other);
}

/* ---- for every search -------------------------------------------------------------------------------------------- */

struct error_search *error_new(struct context *ctx, struct options *o, const char *model, const char *option)
{
    struct error_search *e = NEW(&ctx->session, struct error_search);
    e->ctx = e->t.ctx = e->s.ctx = ctx;
    e->options = o;
    e->t.options = o;
    e->model = model;
    e->option = option;
    e->probe.arena = &ctx->session;
    trial_options(o, &e->plain);
    return e;
}

static bool try_seen(void *user, struct measured *error)
{
    return error_try(user, PART_SEEN, error);
}

static bool measure(void *user)
{
    return error_costs(user);
}

static bool confirm(void *user, double *part)
{
    struct error_search *e = user;
    if (!error_try(e, PART_HELD, &e->held_error))
        return false;
    *part = e->held_error.part;
    return true;
}

/* Do the user's options round something that the search leaves alone? */
static bool rounds(const struct error_search *e)
{
    bool some = e->options->weights_type != OPT_WEIGHTS_TYPE_AUTO;
    for (uint32_t i = 0; i < e->options->choices.items.n; i++) {
        const char *text = e->options->choices.items.data[i];
        some |= strstr(text, ":precision=") || strstr(text, ":weights=") || strstr(text, ":winograd=");
    }
    return some;
}

static bool run(struct error_search *e)
{
    struct search *s = &e->s;
    s->first = fmin(e->bound, first_bound) * fmin(e->bound, first_bound);
    s->try = try_seen;
    s->measure = s->measure ? s->measure : measure;
    s->confirm = e->n_part[PART_HELD] ? confirm : NULL;
    s->user = e;
    s->base = !e->network && rounds(e);
    return search_run(s) &&
           (s->error.part <= 1 ||
            error_at(
                e->ctx, FAIL_USAGE, (src_id){0}, NULL,
                "the outputs are likely to differ by %.3g even with every product in f32, which is more than %g%s: "
                "another option rounds as well; remove it or allow a larger error",
                fmax(s->error.likely, e->held_error.likely), e->bound, e->folder ? ", or than --metric-drop" : ""));
}

bool error_run(struct error_search *e)
{
    return e->holds && e->options->metric ? metric_run(e, run) : run(e);
}

/* ---- --error, --precision=auto ----------------------------------------------------------------------------------- */

static bool search_error(struct error_search *e)
{
    struct options *o = e->options;
    e->holds = true;
    e->size = deviation_rms;
    e->bound = INFINITY; /* the metric alone counts */
    return options_fit(e->ctx, o) && (!o->error || bound_read(e->ctx, o->error, &e->bound)) && error_products(e) &&
           error_ranges(e) && (o->error_measured ? error_clock(e) : error_times(e)) && error_run(e);
}

static bool search_bf16(struct error_search *e)
{
    e->size = deviation_most;
    e->bound = e->options->precision_bound;
    e->s.hopeful = true;
    if (!error_products(e) || !error_ranges(e))
        return false;
    for (uint32_t i = 0; i < e->s.n; i++) {
        struct way *of = e->s.ways[i].of;
        for (uint32_t k = 0; k < error_n_candidates; k++)
            of[error_candidates[k]].possible &= error_candidates[k] == ARITHMETIC_BF16 && e->bound > 0;
        of[ARITHMETIC_F32].ns = 1; /* as many as possible, whatever each saves */
    }
    return error_run(e);
}

bool error_settle(struct context *ctx, struct options *o)
{
    const bool bf16 = o->precision == OPT_PRECISION_AUTO && !o->error && !o->metric;
    const char *model = o->files.items.n ? o->files.items.data[0] : NULL;
    if (!o->metric && !option_is_preset(o, option_find("metric-drop", 'C')))
        return error_at(ctx, FAIL_USAGE, (src_id){0}, NULL, "'metric-drop' is the largest loss of --metric=CMD");
    if (!o->error && !o->metric && (!bf16 || o->error_measured))
        return (!o->save_choices && !o->error_measured) ||
               error_at(ctx, FAIL_USAGE, (src_id){0}, NULL, "'%s' is of the search; give --error=1%%",
                        o->save_choices ? "save-choices" : "error-measured");
    if (!model || artifact_meant(model))
        return !model || bf16 || /* that is refused as any precision is */
               error_at(ctx, FAIL_USAGE, (src_id){0}, NULL,
                        "'%s' is compiled already: --error is for networks as their files have them", model);
    ctx->model_path = model;
    ctx->werror = o->werror;
    if (o->target && strchr(o->target, ',') ? !universal_check(ctx, o, model) : !targets_check(ctx, o))
        return false;
    struct error_search *e = error_new(ctx, o, model, bf16 ? "precision" : "error");
    if (!(bf16 ? search_bf16 : search_error)(e) || ctx->fail != FAIL_NONE)
        return false;
    error_print(e);
    o->choices = error_lines(e);
    o->searched = e->timed ? error_rows(e) : o->searched;
    o->error = o->metric = NULL;
    o->precision = OPT_PRECISION_F32;
    return !o->save_choices || error_save(e, o->save_choices);
}
