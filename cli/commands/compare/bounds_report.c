/* What lies inside of bounds of rounding, as text and JSON: see bounds.h. */
#include <math.h>

#include "cli/commands/compare/bounds.h"
#include "ir/eval/eval.h"

enum { ROWS_SHOWN = 40 };

/* What f64 rounds: of the reference, and of the bounds themselves. */
static double allowed(double bound, double want)
{
    return bound * (1 + 0x1p-10) + fabs(want) * 0x1p-45;
}

struct bounded bounds_judge(const struct bounds *b, value_id v, const struct tensor *want, void *got)
{
    const double *bound = b->error[v.i];
    const uint32_t size = elem_size(want->elem);
    struct bounded r = {.value = v, .of = tensor_count(want), .at = -1};
    for (int64_t i = 0; bound && i < r.of; i++) {
        char *g_at = (char *)got + i * size;
        const char *w_at = (const char *)want->data + i * size;
        if (!isfinite(bound[i]))
            continue;
        const double g = elem_to_f64(want->elem, g_at), w = elem_to_f64(want->elem, w_at);
        const bool same = g == w || (isnan(g) && isnan(w));
        const double most = allowed(bound[i], w), share = same ? 0 : fabs(g - w) / most;
        r.n++;
        if (share <= 1)
            memcpy(g_at, w_at, size);
        r.outside += !(share <= 1);
        if (r.at < 0 || !(share <= r.share))
            r = (struct bounded){v, r.of, r.n, r.outside, i, g, w, bound[i], share};
    }
    return r;
}

static const char *why_none(const struct bounds *b, const struct capture *run, const struct bounded *r)
{
    const struct kernel_bounds *k = &b->of[run->maker[r->value.i]];
    if (r->n)
        return NULL;
    return k->why ? k->why : !b->error[r->value.i] || k->partial ? "not interpreted" : "what it computes has no bound";
}

static void put_row(const struct bounds *b, const struct capture *run, const struct bounded *r, struct strbuf *out)
{
    const char *why = why_none(b, run, r), *words = capture_words(run, run->maker[r->value.i]);
    if (why)
        strbuf_printf(out, "%10s %10s %8s  ", "", "", "");
    else
        strbuf_printf(out, "%10.3g %10.3g %8.2g  ", fabs(r->got - r->want), r->bound, r->share);
    strbuf_printf(out, "%lld of %lld%s  %s", (long long)r->n, (long long)r->of, r->outside ? ", not all inside" : "",
                  words);
    if (why)
        strbuf_printf(out, ": %s", why);
    strbuf_printf(out, "\n");
}

void bounds_put(const struct bounds *b, const struct capture *run, const struct bounded *rows, uint32_t n, bool all,
                struct strbuf *out)
{
    int64_t elements = 0, bounded = 0;
    uint32_t with = 0;
    if (n)
        strbuf_printf(out, "%10s %10s %8s  %s\n", "difference", "bound", "share",
                      "of the element closest to its bound; elements with a bound");
    for (uint32_t i = 0; i < n; i++) {
        elements += rows[i].of;
        bounded += rows[i].n;
        with += rows[i].n > 0;
        if (all || i < ROWS_SHOWN)
            put_row(b, run, &rows[i], out);
    }
    if (n > ROWS_SHOWN && !all)
        strbuf_printf(out, "%u more (--all shows them)\n", n - ROWS_SHOWN);
    strbuf_printf(out, "%u of %u tensors have bounds, %lld of %lld elements\n", with, n, (long long)bounded,
                  (long long)elements);
}

void bounds_put_json(const struct bounds *b, const struct capture *run, const struct bounded *rows, uint32_t n,
                     struct json *j)
{
    json_open(j, "bounds", '[');
    for (uint32_t i = 0; i < n; i++) {
        const struct bounded *r = &rows[i];
        JSON_GROUP(j, NULL, "{}", j_text("where", capture_words(run, run->maker[r->value.i])), j_int("elements", r->of),
                   j_int("bounded", r->n), j_int("outside", r->outside), j_int("at", r->at), j_real("got", r->got),
                   j_real("want", r->want), j_real("bound", r->bound), j_real("share", r->share),
                   j_text("why", why_none(b, run, r)));
    }
    json_close(j, "]");
}
