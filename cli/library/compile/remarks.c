/* Optimisation remarks: what find-attention, fuse, layout-transform and schedule decided, for -Rpass= and
 * -fsave-optimization-record.
 *
 * They are read off the finished module, so asking for them changes nothing that is compiled; find-attention alone
 * records why it found nothing.
 */
#include <regex.h>

#include "ir/expr/facts.h"
#include "passes/schedule/schedule.h"
#include "cli/library/compile/backend.h"
#include "cli/library/options/nearest.h"

enum kind { PASSED, MISSED, ANALYSIS };
static const char *const kind_tags[] = {"Passed", "Missed", "Analysis"};
static const char *const kind_flags[] = {"pass", "pass-missed", "pass-analysis"};

struct remarks {
    struct compilation *c;
    regex_t regex[3];
    bool wanted[3];              /* printed where the pass's name matches */
    struct strbuf record;        /* YAML, as LLVM writes it */
};

static const char *text_of(struct remarks *r, kernel_text_fn *fn, uint32_t kernel)
{
    struct strbuf text = strbuf_of(&r->c->ctx->session);
    fn(r->c->module, kernel, &text);
    return text.n ? text.data : NULL;
}

/* function: of the artifact, as text. */
static void remark(struct remarks *r, enum kind kind, const char *pass, const char *name, src_id src,
                   const char *function, const char *text)
{
    if (r->wanted[kind] && regexec(&r->regex[kind], pass, 0, NULL, 0) == 0)
        remark_at(r->c->ctx, src, arena_printf(&r->c->ctx->session, "%s=%s", kind_flags[kind], pass), "%s", text);
    if (!r->c->options->save_record)
        return;
    strbuf_printf(&r->record,
                  "--- !%s\nPass:            %s\nName:            %s\nFunction:        %s\nArgs:\n  - String: ",
                  kind_tags[kind], pass, name, function);
    strbuf_quoted(&r->record, text);
    strbuf_printf(&r->record, "\n...\n");
}

/* ---- what there is to say ------------------------------------------------------------------------------------ */

struct ranked {
    uint32_t src, at;
};

static int by_source(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    return x->src != y->src ? (x->src > y->src) - (x->src < y->src) : (x->at > y->at) - (x->at < y->at);
}

static int by_place(const void *a, const void *b)
{
    return (((const struct ranked *)a)->at > ((const struct ranked *)b)->at) -
           (((const struct ranked *)a)->at < ((const struct ranked *)b)->at);
}

/* "3 nodes in one kernel (contract): conv1, bias, relu1"; nothing where there is one node only. */
static void fused(const struct module *m, uint32_t kernel, struct strbuf *out)
{
    const struct kernel *k = &m->fused.kernels.data[kernel];
    struct ranked *place = NEW_ARRAY(out->arena, struct ranked, k->nodes.n + 1);
    uint32_t n = 0;
    for (uint32_t i = k->nodes.n; i > 0; i--) {
        uint32_t s = graph_node(m->g, k->nodes.data[i - 1])->src.i;
        if (s)
            place[n++] = (struct ranked){s, k->nodes.n - i};
    }
    qsort(place, n, sizeof *place, by_source);
    uint32_t all = n;
    n = 0;
    for (uint32_t i = 0; i < all; i++)
        if (!n || place[n - 1].src != place[i].src)
            place[n++] = place[i];
    qsort(place, n, sizeof *place, by_place);
    if (n < 2)
        return;
    strbuf_printf(out, "%u nodes in one kernel k%u (%s): ", n, kernel, kernel_kind_name(k->kind));
    for (uint32_t i = 0; i < n; i++)
        strbuf_printf(out, "%s%s", i ? ", " : "", source_label(source_get(m->ctx, (src_id){place[i].src})));
}

static void stored(const struct module *m, uint32_t kernel, struct strbuf *out)
{
    const struct kernel *k = &m->fused.kernels.data[kernel];
    for (uint32_t i = 0; i < k->outs.n; i++) {
        const struct storage *s = &m->fused.storage[k->outs.data[i].i];
        uint32_t uses = graph_value(m->g, k->outs.data[i])->n_uses;
        if (s->place != PLACE_ARENA && s->place != PLACE_SEGMENT)
            continue;
        strbuf_printf(out, "%sthe result of k%u goes through memory to %u use%s", out->n ? "; " : "", kernel, uses,
                      uses == 1 ? "" : "s");
    }
}

/* The dynamic dims of the kernel's results: only values of the same dims are fused over them. */
static void unknown_sizes(const struct module *m, uint32_t kernel, struct strbuf *out)
{
    struct exprs *x = m->ctx->exprs;
    const struct kernel *k = &m->fused.kernels.data[kernel];
    for (uint32_t i = 0; i < k->outs.n && !out->n; i++) {
        const struct type *t = value_type(m->g, k->outs.data[i]);
        for (int32_t d = 0; t->kind == TYPE_TENSOR && d < t->rank && !out->n; d++) {
            expr_id e = fact_missing(x, t->dims[d]);
            enum expr_kind kind = ex_kind(x, e);
            if (!e.i)
                continue;
            strbuf_printf(out, "dimension %d of the result of k%u is ", d, kernel);
            ex_print(x, t->dims[d], out);
            strbuf_printf(out, ": it is not known whether ");
            ex_print(x, ex_arg(x, e, kind == EX_DIV || kind == EX_MOD), out);
            if (kind == EX_EQ || kind == EX_MAX || kind == EX_MIN)
                ex_print(x, ex_arg(x, e, 1), (strbuf_printf(out, kind == EX_EQ ? " = " : " < "), out));
            if (kind == EX_DIV || kind == EX_MOD)
                ex_print(x, ex_arg(x, e, 0), (strbuf_printf(out, " divides "), out));
            strbuf_printf(out, "; --input can say so: one name for equal sizes, ranges (n=1..), multiples (n=0..%%4)");
        }
    }
}

/* A product with values of an attention whose scores go through memory. */
static void unfused_attention(const struct module *m, uint32_t kernel, struct strbuf *out)
{
    const struct kernel *k = &m->fused.kernels.data[kernel];
    for (uint32_t i = 0; i < m->known.attentions_missed.n && k->anchor.i; i++)
        if (m->known.attentions_missed.data[i].values.i == k->anchor.i)
            strbuf_printf(out, "k%u is not one kernel with its scores: %s", kernel,
                          m->known.attentions_missed.data[i].why);
}

static void blocked(const struct module *m, uint32_t kernel, struct strbuf *out)
{
    const struct kernel *k = &m->fused.kernels.data[kernel];
    for (uint32_t i = 0; i < k->outs.n; i++) {
        const struct storage *s = &m->fused.storage[k->outs.data[i].i];
        for (int32_t d = 0; s->dim && d < s->rank; d++)
            if (s->dim[d].block)
                strbuf_printf(out, "%sthe result of k%u is stored in blocks of %lld along dimension %d",
                              out->n ? "; " : "", kernel, (long long)s->dim[d].block, d);
    }
}

/* The estimate is of the last variant that was emitted: all of the kernel's indices on one thread. */
static void cost(const struct module *m, uint32_t kernel, struct strbuf *out)
{
    const struct kernel *k = &m->fused.kernels.data[kernel];
    const struct cpu_schedules *cpu = m->plan.schedules.n ? &m->plan.schedules.data[m->plan.schedules.n - 1] : NULL;
    int64_t count;
    const char *words = schedule_words(m, kernel);
    if (k->flops || k->bytes)
        strbuf_printf(out, "k%u (%s): %llu flops, %llu bytes%s%s", kernel, kernel_kind_name(k->kind),
                      (unsigned long long)k->flops, (unsigned long long)k->bytes, words ? "; " : "",
                      words ? words : "");
    if (out->n && cpu && k->ns && k->count.i && ex_is_const(m->ctx->exprs, k->count, &count))
        strbuf_printf(out, "; %.2f us estimated on %s", (double)count * (double)k->ns * 1e-3, cpu->cpu);
}

/* What every run checks of a size before anything else, and the code relies on. */
static void size_fact(const struct module *m, const struct size_check *c, struct strbuf *out)
{
    const struct sym_bounds b = c->bounds;
    const char *name = sym_get(m->ctx->exprs, c->sym)->name;
    strbuf_printf(out, "the size %s is ", name);
    if (c->same.i)
        strbuf_printf(out, "%s", sym_get(m->ctx->exprs, c->same)->name);
    else if (b.lo == b.hi)
        strbuf_printf(out, "%lld", (long long)b.lo);
    else
        strbuf_printf(out, b.hi == INT64_MAX ? "at least %lld" : "from %lld to %lld", (long long)b.lo, (long long)b.hi);
    if (b.divisor > 1 && b.lo != b.hi)
        strbuf_printf(out, " and a multiple of %lld", (long long)b.divisor);
    strbuf_printf(out, "%s, by a check that is made before anything runs: %s",
                  c->unless_empty ? " unless no output has elements" : "", c->text);
}

/* ---- asking for it -------------------------------------------------------------------------------------------- */

static const struct {
    enum kind kind;
    const char *pass, *name;
    kernel_text_fn *text;
} remark_rows[] = {
    {PASSED, "fuse", "Fused", fused},
    {MISSED, "fuse", "Stored", stored},
    {MISSED, "attention", "UnfusedAttention", unfused_attention},
    {MISSED, "sizes", "UnknownSize", unknown_sizes},
    {ANALYSIS, "layout-transform", "Blocked", blocked},
    {ANALYSIS, "schedule", "Cost", cost},
    {ANALYSIS, "sizes", "CheckedSize", NULL}, /* of no kernel: remark_sizes */
};

static const char *pattern_of(const struct options *o, enum kind kind)
{
    return kind == PASSED ? o->rpass : kind == MISSED ? o->rpass_missed : o->rpass_analysis;
}

/* libc's regcomp recurses for each parenthesis and copies what stands before {N} so many times. */
static bool pattern_bounded(const char *pattern)
{
    enum { LENGTH_MAX = 200, GROUPS_MAX = 20 };
    uint32_t groups = 0;
    if (strlen(pattern) > LENGTH_MAX || strchr(pattern, '{'))
        return false;
    for (const char *p = pattern; *p; p++)
        groups += *p == '(';
    return groups <= GROUPS_MAX;
}

static bool pattern_compile(struct context *ctx, const char *pattern, regex_t *out)
{
    if (!pattern_bounded(pattern))
        return error_usage(ctx,
                           "a regular expression for passes has at most 200 characters and 20 parentheses and no {N}: "
                           "'%.40s%s'",
                           pattern, strlen(pattern) > 40 ? "..." : "");
    char *either = arena_strdup(&ctx->session, pattern); /* a,b: passes that match a or b */
    for (char *p = either; *p; p++)
        *p = *p == ',' ? '|' : *p;
    return regcomp(out, either, REG_EXTENDED | REG_NOSUB) == 0 ||
           error_usage(ctx, "'%s' is not a regular expression", pattern);
}

/* Does a pass that makes remarks of the kind match? */
static bool pattern_check(struct context *ctx, const char *pattern, enum kind kind)
{
    regex_t regex;
    struct nearest near = nearest_to(pattern);
    bool any = false;
    struct strbuf passes = strbuf_of(&ctx->session);
    for (size_t i = 0; i < COUNT_OF(remark_rows); i++)
        if (remark_rows[i].kind == kind) {
            nearest_try(&near, remark_rows[i].pass);
            strbuf_printf(&passes, "%s%s", passes.n ? ", " : "", remark_rows[i].pass);
        }
    if (!pattern_compile(ctx, pattern, &regex))
        return false;
    for (size_t i = 0; i < COUNT_OF(remark_rows); i++)
        any |= remark_rows[i].kind == kind && regexec(&regex, remark_rows[i].pass, 0, NULL, 0) == 0;
    regfree(&regex);
    return any || error_usage(ctx,
                              near.found ? "'R%s': no pass with such remarks matches '%s': %s; did you mean '%s'?"
                                         : "'R%s': no pass with such remarks matches '%s': %s",
                              kind_flags[kind], pattern, passes.data, near.found);
}

bool remarks_check(struct context *ctx, const struct options *o)
{
    for (enum kind kind = PASSED; kind <= ANALYSIS; kind++)
        if (pattern_of(o, kind) && !pattern_check(ctx, pattern_of(o, kind), kind))
            return false;
    return true;
}

static bool compile_patterns(struct remarks *r)
{
    for (enum kind kind = PASSED; kind <= ANALYSIS; kind++) {
        const char *pattern = pattern_of(r->c->options, kind);
        r->wanted[kind] = pattern && pattern_compile(r->c->ctx, pattern, &r->regex[kind]);
        if (pattern && !r->wanted[kind])
            return false;
    }
    return true;
}

static void remark_sizes(struct remarks *r)
{
    const struct graph *g = r->c->module->g;
    for (uint32_t i = 0; i < g->size_checks.n; i++) {
        struct strbuf text = strbuf_of(&r->c->ctx->session);
        size_fact(r->c->module, &g->size_checks.data[i], &text);
        remark(r, ANALYSIS, "sizes", "CheckedSize", g->size_checks.data[i].src, "plan", text.data);
    }
}

static void remark_kernel(struct remarks *r, uint32_t kernel)
{
    const struct module *m = r->c->module;
    const struct kernel *k = &m->fused.kernels.data[kernel];
    src_id src = k->nodes.n ? graph_node(m->g, k->nodes.data[0])->src : (src_id){0};
    const char *name = arena_printf(&r->c->ctx->session, "k%u", kernel);
    for (size_t i = 0; i < COUNT_OF(remark_rows); i++) {
        const char *text = remark_rows[i].text ? text_of(r, remark_rows[i].text, kernel) : NULL;
        if (text)
            remark(r, remark_rows[i].kind, remark_rows[i].pass, remark_rows[i].name, src, name, text);
    }
}

static bool remark_all(void *user)
{
    struct remarks *r = user;
    if (!compile_patterns(r))
        return false;
    remark_sizes(r);
    for (uint32_t k = 0; k < r->c->module->fused.kernels.n; k++)
        remark_kernel(r, k);
    return true;
}

static void remarks_end(void *user)
{
    struct remarks *r = user;
    for (size_t i = 0; i < COUNT_OF(r->regex); i++)
        if (r->wanted[i])
            regfree(&r->regex[i]);
}

bool remarks_report(struct compilation *c)
{
    struct remarks r = {.c = c};
    strbuf_init(&r.record, &c->ctx->session);
    bool ok = run_guarded(c->ctx, remark_all, remarks_end, &r);
    if (ok && c->options->save_record && c->output)
        ok = side_write(c, output_beside(c->ctx, c->output, "opt.yaml"), r.record.data ? r.record.data : "",
                        r.record.n);
    return ok;
}
