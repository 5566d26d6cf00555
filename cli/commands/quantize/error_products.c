/* What the search is about: the products of the network, the ranges of their operands, their times.
 *
 * Times are of the network with all products in one arithmetic: the cost model's, where the bytes of the constants
 * decide about what memory bounds, or measured on this machine.
 */
#include <math.h>

#include "cli/commands/command.h"
#include "cli/commands/quantize/error.h"
#include "ir/eval/eval.h"
#include "passes/module/analysis.h"

#define LAST_OF_PRODUCTS "narrow-products"
#define LAST_OF_TIMES "emit"
enum { RUNS_TIMED = 12 }; /* at least */
/* Of f32's time: what takes more saves less than the estimate knows. */
static const double worth_most = 0.98;
/* Bytes a nanosecond that one thread reads from memory: 25 of a Sapphire Rapids. */
static const double memory_rate = 20;

/* ---- products and their operands --------------------------------------------------------------------------------- */

static bool user_chose(const struct error_search *e, const char *label)
{
    bool known = false;
    for (uint32_t i = 0; i < e->options->choices.items.n; i++) {
        const char *text = e->options->choices.items.data[i];
        size_t n = strlen(label);
        known |= strncmp(text, label, n) == 0 &&
                 (strncmp(text + n, ":precision=", 11) == 0 || (e->holds && strncmp(text + n, ":weights=", 9) == 0));
    }
    return known;
}

/* May a configuration hold the name? */
static bool is_plain(const char *label)
{
    for (const unsigned char *p = (const unsigned char *)label; *p; p++)
        if (*p < 0x20 || *p >= 0x7f)
            return false;
    return *label;
}

static void list_products(void *user, struct compilation *c)
{
    struct error_search *e = user;
    trial_outputs(&e->t, c->graph);
    if (c->graph->states.n && e->holds)
        error_at(e->ctx, FAIL_USAGE, (src_id){0}, NULL,
                 "'error': the network keeps values from run to run, which samples of one run say nothing about; use "
                 "--precision= or --weights-type=");
}

bool error_products(struct error_search *e)
{
    struct options o = e->plain;
    o.output = NULL;
    if (!compile_apart(e->ctx, &o, e->model, LAST_OF_PRODUCTS, &e->probe, list_products, e) ||
        e->ctx->fail != FAIL_NONE)
        return false;
    uint32_t n = e->s.n = e->probe.products.n;
    e->s.ways = NEW_ARRAY(&e->ctx->session, struct site_ways, n + 1);
    e->operand = NEW_ARRAY(&e->ctx->session, uint32_t, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        const struct probed_product *p = &e->probe.products.data[i];
        struct way *of = e->s.ways[i].of;
        bool free = (is_plain(p->label) || (!e->holds && !e->options->save_choices)) && !user_chose(e, p->label);
        of[ARITHMETIC_F32].possible = true;
        of[ARITHMETIC_BF16].possible = of[ARITHMETIC_F16].possible = free && p->narrows;
        of[ARITHMETIC_I8].possible = free && p->stores;
        of[ARITHMETIC_I4].possible = free && p->stores && e->options->error_measured; /* the model takes it for i8 */
        of[ARITHMETIC_INT8].possible = free && p->takes_int8;
        of[ARITHMETIC_DYNAMIC].possible = free && p->takes_int8 && !p->is_conv && !e->options->strict;
        VEC_PUSH(&e->ctx->session, &e->seen, (struct seen){0});
    }
    return true;
}

static bool see_operands(void *user, uint32_t k, DLManagedTensorVersioned **out)
{
    struct error_search *e = user;
    (void)k;
    for (uint32_t i = e->t.n_want; i < e->t.s.api->n_out; i++) {
        const char *name = e->t.s.api->out[i].name;
        const DLTensor *t = &out[i]->dl_tensor;
        uint32_t number = (uint32_t)strtoul(name + strlen(PROBE_OPERAND), NULL, 10);
        if (number < e->seen.n &&
            !seen_add(&e->ctx->session, &e->seen.data[number], trial_data(t), t->shape, t->ndim, -1))
            return error_at(e->ctx, FAIL_MODEL, (src_id){0}, e->probe.products.data[number].label,
                            "the samples make an operand of this node infinite or not a number; give other samples "
                            "(--sample)");
    }
    return true;
}

static void observe(void *user)
{
    struct error_search *e = user;
    (void)error_observe(e, see_operands, e);
}

/* Drawn inputs say nothing about the range of real ones. */
bool error_ranges(struct error_search *e)
{
    const struct probed_product *p = e->probe.products.data;
    e->probe.observe = e->holds;
    e->t.probe = &e->probe;
    e->compilations++;
    if (!trial_run(&e->t, &e->plain, e->model, observe, e))
        return false;
    e->probe.observe = false;
    for (uint32_t i = 0; i < e->probe.products.n; i++) {
        uint32_t first = i;
        for (uint32_t k = 0; k < i && first == i; k++)
            first = p[k].x.i == p[i].x.i && p[k].takes_int8 && p[i].takes_int8 ? k : i;
        e->operand[i] = first;
        const struct seen *s = &e->seen.data[first];
        struct range r = s->count ? range_choose(s, OPT_RANGES_SQUARED) : (struct range){0, 0};
        e->probe.products.data[i].range = range_ends(r);
        e->s.ways[i].of[ARITHMETIC_INT8].possible &= s->count && s->most > s->least &&
                                                     (double)r.scale * STEPS_U8 < OPERAND_MOST / 2 &&
                                                     !e->t.samples.drawn;
    }
    return true;
}

/* ---- times ------------------------------------------------------------------------------------------------------- */

struct timing {
    struct error_search *e;
    enum arithmetic how;
    double started, *now; /* of the kernel at hand; by row of mcc_api.node: of the run at hand */
    uint32_t (*product)[2], runs; /* by row: of its kernels; n: none */
};

/* The time of all of the kernel's indices: the cost model's, or what reading its constants from memory takes, where
 * those of the network in f32 do not fit into the caches. */
static double kernel_ns(const struct compilation *c, const struct kernel *k, bool cached)
{
    const struct module *m = c->module;
    double ns = (double)k->ns * (double)extent_hint(c->ctx->exprs, k->count), bytes = 0;
    for (uint32_t i = 0; i < k->args.n && !cached; i++) {
        const value_id v = k->args.data[i].value;
        const struct storage *s = v.i ? &m->fused.storage[v.i] : NULL;
        bytes += s && s->place == PLACE_WEIGHTS ? (double)m->plan.weights.data[s->buffer].bytes : 0;
    }
    return fmax(ns, bytes / memory_rate);
}

/* The product that the kernel computes. */
static struct probed_product *product_of(struct error_search *e, const struct compilation *c, node_id id)
{
    const src_id src = id.i ? graph_node(c->module->g, id)->src : (src_id){0};
    return id.i ? probe_find(&e->probe, source_label(source_get(c->ctx, src))) : NULL;
}

/* A kernel without a product counts for the one that reads what it stores: whether a map is a kernel of its own or part
 * of the product's depends on the product's arithmetic. If a kernel computes two products it is not known what of its
 * time is whose. */
static void add_times(void *user, struct compilation *c)
{
    const struct timing *t = user;
    struct error_search *e = t->e;
    const struct module *m = c->module;
    const struct machine *mach = module_machine(m);
    struct arena *arena = &c->ctx->session;
    const struct run_place *places = kernels_in_order(m, arena);
    struct probed_product **reader = NEW_ARRAY(arena, struct probed_product *, m->g->values.n + 1); /* by value */
    if (t->how == ARITHMETIC_F32)
        e->cached = m->plan.weights_bytes <= (uint64_t)(mach->l2_kib + mach->l3_kib) * 1024;
    for (uint32_t i = m->fused.kernels.n; i-- > 0;) {
        const struct kernel *k = &m->fused.kernels.data[places[i].kernel];
        struct probed_product *own = probe_find(&e->probe, kernel_label(m, k)),
                              *inner = product_of(e, c, k->form.product);
        struct probed_product *of[2] = {own ? own : k->outs.n ? reader[k->outs.data[0].i] : NULL, own ? inner : NULL};
        for (uint32_t j = 0; j < COUNT_OF(of) && of[j] && k->count.i; j++)
            e->s.ways[of[j] - e->probe.products.data].of[t->how].ns += kernel_ns(c, k, e->cached) / (of[1] ? 2 : 1);
        for (uint32_t j = 0; j < k->args.n && of[0]; j++)
            reader[k->args.data[j].value.i] = of[0];
    }
}

/* An arithmetic that is no faster than f32, or than a more exact one, is not worth measuring; f16 is more exact unless
 * a value is too large for it, and i4 weights may be what a constant consists of. */
static void ways_prune(struct way *of)
{
    for (uint32_t k = 0; k < error_n_candidates; k++) {
        struct way *w = &of[error_candidates[k]];
        w->possible &= w->ns < worth_most * of[ARITHMETIC_F32].ns;
        for (uint32_t j = 0; j < k; j++)
            w->possible &= !of[error_candidates[j]].possible || error_candidates[j] == ARITHMETIC_F16 ||
                           error_candidates[k] == ARITHMETIC_I4 || w->ns < of[error_candidates[j]].ns;
    }
}

/* Compiles the network in each arithmetic and calls `time` for it. */
static bool each_arithmetic(struct error_search *e, struct options *o, bool (*time)(struct timing *, struct options *))
{
    for (uint32_t k = 0; k <= error_n_candidates; k++) {
        struct timing t = {.e = e, .how = k ? error_candidates[k - 1] : ARITHMETIC_F32};
        bool any = k == 0;
        for (uint32_t i = 0; i < e->probe.products.n; i++) {
            any |= e->s.ways[i].of[t.how].possible;
            e->s.ways[i].chosen = e->s.ways[i].of[t.how].possible ? t.how : ARITHMETIC_F32;
        }
        if (!any)
            continue;
        o->choices = error_lines(e);
        report_step(&(struct compilation){.options = e->options, .report = terminal_report()}, e->option, k,
                    error_n_candidates + 1);
        if (!time(&t, o))
            return false;
    }
    if (e->options->verbose)
        error_print_times(e);
    for (uint32_t i = 0; i < e->s.n; i++)
        ways_prune(e->s.ways[i].of);
    e->timed = true;
    return true;
}

static bool estimate(struct timing *t, struct options *o)
{
    return compile_apart(t->e->ctx, o, t->e->model, LAST_OF_TIMES, NULL, add_times, t);
}

bool error_times(struct error_search *e)
{
    const struct options *given = e->options;
    struct options o = e->plain;
    if (given->strict) { /* one CPU decides for all, as it does on what else changes bits */
        o.target = "x86_64-linux-gnu";
        o.march = BEST_BY_DEFAULT;
        o.mattr = o.variants = NULL;
    } else if ((given->target && !strchr(given->target, ',')) || given->march) { /* perhaps another machine */
        o.target = given->target;
        o.march = given->march;
        o.mattr = given->mattr;
    }
    o.output = NULL;
    return each_arithmetic(e, &o, estimate);
}

/* ---- times of this machine ---- */

static void on_event(void *user, uint32_t node, int end, uint64_t ns)
{
    struct timing *t = user;
    if (end)
        t->now[node] += (double)ns - t->started;
    else
        t->started = (double)ns;
}

/* The least time of each product so far: what else the machine does only adds. */
static bool end_run(void *user, uint32_t k, DLManagedTensorVersioned **out)
{
    struct timing *t = user;
    (void)k;
    (void)out;
    for (uint32_t p = 0; p < t->e->probe.products.n; p++) {
        double sum = 0, *least = &t->e->s.ways[p].of[t->how].ns;
        for (uint32_t i = 0; i < t->e->t.s.api->n_node; i++)
            sum += t->now[i] * ((t->product[i][0] == p) + (t->product[i][1] == p)) /
                   (t->product[i][1] < t->e->s.n ? 2 : 1);
        *least = t->runs && *least < sum ? *least : sum;
    }
    memset(t->now, 0, t->e->t.s.api->n_node * sizeof *t->now);
    t->runs++;
    return true;
}

static uint32_t number_of(struct error_search *e, const char *label)
{
    const struct probed_product *p = probe_find(&e->probe, label);
    return p ? (uint32_t)(p - e->probe.products.data) : e->s.n;
}

static void run_timed(void *user)
{
    struct timing *t = user;
    struct error_search *e = t->e;
    const mcc_api *api = e->t.s.api;
    t->now = NEW_ARRAY(&e->ctx->session, double, api->n_node + 1);
    t->product = arena_alloc(&e->ctx->session, (api->n_node + (size_t)1) * sizeof *t->product);
    for (uint32_t i = 0; i < api->n_node; i++) {
        t->product[i][0] = number_of(e, api->node[i].name);
        t->product[i][1] = e->s.n;
        for (uint64_t k = api->node[i].next; k && t->product[i][0] < e->s.n && t->product[i][1] == e->s.n;
             k = api->node[k].next)
            t->product[i][1] = number_of(e, api->node[k].name);
    }
    while (t->runs < RUNS_TIMED && trial_observe(&e->t, end_run, t))
        ;
}

static bool run_and_time(struct timing *t, struct options *o)
{
    struct error_search *e = t->e;
    e->t.event = on_event;
    e->t.event_user = t;
    e->compilations++;
    bool ok = trial_run(&e->t, o, e->model, run_timed, t);
    e->t.event = NULL;
    return ok;
}

bool error_clock(struct error_search *e)
{
    struct options o = e->plain;
    e->t.probe = NULL;
    e->t.use = e->part[PART_SCREEN];
    return each_arithmetic(e, &o, run_and_time);
}
