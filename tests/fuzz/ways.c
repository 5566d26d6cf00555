/* Runs a graph through the passes and interprets the loops that they emit, every access checked against the value's own
 * memory: buffers are cut to the bytes that the plan gave them, memory that nothing has written holds NaNs, and kernels
 * run in pieces, the last one first.
 */
#include "tests/fuzz/ways.h"

#include <stdlib.h>
#include <string.h>

#include "cli/library/compile/backend.h"
#include "passes/module/access_function.h"
#include "passes/schedule/schedule.h"
#include "passes/module/winograd.h"
#include "runtime/mcc.h"

struct loops {
    struct draw *d;
    struct module *m;
    struct context *ctx;
    struct arena *arena;
    int64_t *symbols; /* by sym_id */
    char *arena_base, *weights;
    int64_t arena_bytes;
    struct lfunc **kernel; /* parsed */
    struct tensor *out;
    struct strbuf *why;
};

void way_print(const struct way *w, struct strbuf *out)
{
    static const char *const layouts[] = {"auto", "NCHW", "NHWC", "NC16c"};
    strbuf_printf(out, "%s -O%d %s", w->native ? "native" : "loops", w->level, layouts[w->layout]);
    if (w->native)
        strbuf_printf(out, " %s, 1 and %u threads", w->variant, w->threads);
    else if (w->cpu)
        strbuf_printf(out, " %s", w->cpu);
    else
        strbuf_printf(out, " {%u, %u}", w->machine.vector_bytes, w->machine.registers);
    if (w->winograd)
        strbuf_printf(out, " winograd %u", w->winograd);
}

static char *memory(struct arena *a, int64_t bytes, int fill)
{
    char *p = arena_alloc(a, (size_t)bytes + 128);
    p += 64 - (uintptr_t)p % 64;
    memset(p, fill, (size_t)bytes);
    return p;
}

void *memory_odd(struct arena *a, int64_t bytes, uint32_t size)
{
    return memory(a, bytes + 64, 0xff) + size;
}

void diags_append(struct context *ctx, struct strbuf *out)
{
    for (uint32_t i = 0; i < ctx->diags.n; i++)
        strbuf_printf(out, "%s\n", ctx->diags.data[i].text);
}

/* ---- what programs call ---------------------------------------------------------------------------------------- */

static int less(enum elem e, const char *a, const char *b)
{
    double x = elem_to_f64(e, a), y = elem_to_f64(e, b);
    if (elem_class(e) == 'U')
        return (uint64_t)elem_to_i64(e, a) < (uint64_t)elem_to_i64(e, b);
    if (elem_class(e) == 'I')
        return elem_to_i64(e, a) < elem_to_i64(e, b);
    return x < y;
}

/* (elem, src, values, positions, outer, n, inner, descending): stable, by insertion. */
static int64_t call_sort(const struct linterp_arg *a)
{
    enum elem e = (enum elem)a[0].index;
    uint32_t size = elem_size(e);
    const char *src = a[1].buffer.data;
    int64_t n = a[5].index, inner = a[6].index, order[4 * DRAW_ELEMENTS];
    for (int64_t line = 0; line < a[4].index * inner; line++) {
        int64_t base = line / inner * n * inner + line % inner;
        for (int64_t i = 0; i < n; i++) {
            int64_t j = i;
            for (; j > 0; j--) {
                const char *x = src + (base + i * inner) * size, *y = src + (base + order[j - 1] * inner) * size;
                if (!(a[7].index ? less(e, y, x) : less(e, x, y)))
                    break;
                order[j] = order[j - 1];
            }
            order[j] = i;
        }
        for (int64_t i = 0; i < n; i++) {
            if (a[2].buffer.data)
                memcpy((char *)a[2].buffer.data + (base + i * inner) * size, src + (base + order[i] * inner) * size,
                       size);
            if (a[3].buffer.data)
                memcpy((char *)a[3].buffer.data + (base + i * inner) * 8, &order[i], 8);
        }
    }
    return 0;
}

/* The number of elements that are not zero; their indices into dst (i64 [rank, count]) when it is given. */
static int64_t nonzero(enum elem e, const char *src, int64_t total, int64_t rank, const int64_t *dims, int64_t *dst,
                       int64_t count)
{
    int64_t found = 0;
    for (int64_t i = 0; i < total; i++) {
        if (elem_to_f64(e, src + i * elem_size(e)) == 0)
            continue;
        for (int64_t d = rank - 1, rest = i; dst && d >= 0; rest /= dims[d--])
            dst[d * count + found] = rest % dims[d];
        found++;
    }
    return found;
}

/* (slot {address, bytes}, bytes, keep): at least so many bytes; the first `keep` stay. */
static int64_t call_grow(struct loops *l, const struct linterp_arg *a)
{
    int64_t *slot = a[0].buffer.data, keep = a[2].index;
    if (slot[0] && a[1].index <= slot[1])
        return slot[0];
    char *p = memory(l->arena, a[1].index, 0xff);
    if (slot[0] && keep > 0)
        memcpy(p, (const void *)(intptr_t)slot[0], (size_t)keep);
    slot[0] = (int64_t)(intptr_t)p;
    slot[1] = a[1].index;
    return slot[0];
}

/* (counter, n) */
static int64_t call_arrive(const struct linterp_arg *a)
{
    int64_t *counter = a[0].buffer.data;
    *counter = (*counter + 1) % a[1].index;
    return *counter == 0;
}

static int64_t call_output(struct loops *l, const struct linterp_arg *a)
{
    struct tensor *t = &l->out[a[0].index];
    t->rank = (int32_t)a[1].index;
    t->dims = arena_copy(l->arena, a[2].buffer.data, (size_t)(t->rank + 1) * 8);
    t->data = a[3].buffer.data;
    return 0;
}

static int64_t on_call(void *user, const char *name, const struct linterp_arg *a, uint32_t n, bool *failed)
{
    struct loops *l = user;
    (void)n;
    if (!strcmp(name, "mcc_rt_segment"))
        return (int64_t)(intptr_t)memory(l->arena, a[0].index, 0xff);
    if (!strcmp(name, "mcc_rt_output"))
        return call_output(l, a);
    if (!strcmp(name, "mcc_rt_grow"))
        return call_grow(l, a);
    if (!strcmp(name, "mcc_rt_poll") || !strcmp(name, "mcc_rt_kept")) /* locals are undefined at each index */
        return 0;
    if (!strcmp(name, "mcc_rt_arrive"))
        return call_arrive(a);
    if (!strcmp(name, "mcc_rt_sort"))
        return call_sort(a);
    if (!strcmp(name, "mcc_rt_nonzero_count"))
        return nonzero((enum elem)a[0].index, a[1].buffer.data, a[2].index, 0, NULL, NULL, 0);
    if (!strcmp(name, "mcc_rt_nonzero"))
        return nonzero((enum elem)a[0].index, a[1].buffer.data,
                       a[4].buffer.data
                           ? tensor_count(&(struct tensor){.rank = (int32_t)a[2].index, .dims = a[3].buffer.data})
                           : 0,
                       a[2].index, a[3].buffer.data, a[4].buffer.data, a[5].index);
    strbuf_printf(l->why, "call of %s", name);
    *failed = true;
    return -1;
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

/* Cuts a kernel's buffer to the bytes that belong to its value. */
static void clip(struct loops *l, struct karg a, struct lbuffer *b)
{
    value_id v = a.value;
    int64_t bytes, start = 0;
    if (a.start.i && ex_eval(l->ctx->exprs, a.start, l->symbols, &start))
        start *= elem_size(value_type(l->m->g, v)->elem);
    if (l->m->fused.storage[v.i].place == PLACE_NONE)
        v = view_plain(l->m->g, v);
    const struct storage *s = &l->m->fused.storage[v.i];
    if (s->place == PLACE_WEIGHTS && (int64_t)l->m->plan.weights.data[s->buffer].bytes < b->bytes)
        b->bytes = (int64_t)l->m->plan.weights.data[s->buffer].bytes;
    if (s->place == PLACE_ARENA &&
        ex_eval(l->ctx->exprs, l->m->plan.buffers.data[s->buffer].bytes, l->symbols, &bytes) &&
        bytes - start < b->bytes)
        b->bytes = bytes - start;
}

static int on_launch(void *user, const struct lstmt *launch, const struct linterp_arg *a, uint32_t n, int64_t count)
{
    const char *name = launch->name;
    struct loops *l = user;
    struct linterp_arg args[256];
    uint32_t number = (uint32_t)strtoul(name + 1, NULL, 10);
    const struct kernel *k = number < l->m->fused.kernels.n ? &l->m->fused.kernels.data[number] : NULL;
    struct lfunc **parsed = &l->kernel[2 * number];
    for (; k && strcmp(name, k->name) != 0; parsed++)
        k = k->version.of;
    if (!k || n != k->args.n) {
        strbuf_printf(l->why, "launch of %s", name);
        return -100;
    }
    const char *text = k->text;
    if (!*parsed)
        *parsed = lf_parse(l->ctx, l->arena, &text);
    if (!*parsed || !lf_finish(*parsed)) {
        strbuf_printf(l->why, "%s does not parse", name);
        return -100;
    }
    memcpy(args, a, n * sizeof *a);
    for (uint32_t i = 0; i < n; i++)
        if (k->args.data[i].value.i)
            clip(l, k->args.data[i], &args[i].buffer);
    int64_t step = count < 4 ? 1 : count / 4;
    struct linterp_host host = {.user = l, .call = on_call}; /* the kernel of a loop asks whether the run goes on */
    for (int64_t end = count; end > 0; end -= step) {
        struct linterp_result r = lf_interpret(*parsed, args, end > step ? end - step : 0, end, &host);
        if (r.code) {
            strbuf_printf(l->why, "%s ends with %d: %s", name, r.code, r.text ? r.text : "");
            if (l->d->verbose)
                strbuf_printf(l->why, "\n%s\n", k->text);
            return r.code;
        }
    }
    return 0;
}

/* ---- plan and program -------------------------------------------------------------------------------------------- */

static bool run_plan_function(struct loops *l)
{
    const struct graph *g = l->m->g;
    int64_t dims[512] = {0}, out[512], n_dims = 0, at = 0;
    for (uint32_t k = 0; k < DRAW_INPUTS && k < g->inputs.n; k++)
        for (int32_t i = 0; i < l->d->inputs[k].rank; i++)
            dims[n_dims++] = l->d->inputs[k].dims[i];
    memset(out, 0xff, sizeof out);
    struct linterp_arg args[2] = {{{dims, n_dims * 8}, 0}, {{out, sizeof out}, 0}};
    struct linterp_result r = lf_interpret(l->m->plan.plan_function, args, 0, 1, NULL);
    if (r.code) {
        strbuf_printf(l->why, "plan ends with %d: %s", r.code, r.text ? r.text : "");
        return false;
    }
    for (sym_id s = sym_next(l->ctx->exprs, SYM_SHAPE, (sym_id){0}); s.i; s = sym_next(l->ctx->exprs, SYM_SHAPE, s))
        l->symbols[s.i] = out[at++];
    for (uint32_t i = 1; i <= sym_count(l->ctx->exprs); i++)
        if (sym_get(l->ctx->exprs, (sym_id){i})->of.i)
            l->symbols[i] = l->symbols[sym_get(l->ctx->exprs, (sym_id){i})->of.i];
    l->arena_bytes = out[at++];
    if (l->arena_bytes < 0) {
        strbuf_printf(l->why, "a workspace of %lld bytes", (long long)l->arena_bytes);
        return false;
    }
    for (uint32_t k = 0; k < g->outputs.n; k++) {
        const struct type *t = value_type(g, g->outputs.data[k].value);
        int64_t *n = NEW_ARRAY(l->arena, int64_t, t->rank + 1);
        for (int32_t i = 0; i < t->rank; i++) {
            n[i] = out[at++];
            if (n[i] < 0 && !late_type(l->ctx->exprs, t)) { /* an assertion of the program is going to fail */
                strbuf_printf(l->why, "output %u has a dim of %lld", k, (long long)n[i]);
                return false;
            }
        }
        l->out[k] = (struct tensor){.kind = TYPE_TENSOR, .elem = t->elem, .rank = t->rank, .dims = n, .present = true};
    }
    return true;
}

struct sink {
    char *at;
};
static bool put_weights(void *sink, const void *p, size_t n)
{
    struct sink *s = sink;
    memcpy(s->at, p, n);
    s->at += n;
    return true;
}

static uint32_t program_args(struct loops *l, struct linterp_arg *a)
{
    const struct graph *g = l->m->g;
    uint32_t n = 0;
    for (uint32_t k = 0; k < g->inputs.n; k++) {
        const struct tensor *t = &l->d->inputs[k];
        int64_t bytes = tensor_count(t) * elem_size(t->elem);
        char *data = memory_odd(l->arena, bytes, elem_size(t->elem));
        memcpy(data, t->data, (size_t)bytes);
        a[n++].buffer = (struct lbuffer){data, bytes};
    }
    for (uint32_t k = 0; k < g->outputs.n; k++) {
        struct tensor *t = &l->out[k];
        bool late = false;
        for (int32_t i = 0; i < t->rank; i++)
            late |= t->dims[i] < 0;
        int64_t bytes = late ? 0 : tensor_count(t) * elem_size(t->elem);
        t->data = late ? NULL : memory_odd(l->arena, bytes, elem_size(t->elem));
        a[n++].buffer = (struct lbuffer){t->data, bytes};
    }
    a[n++].buffer = (struct lbuffer){l->arena_base, l->arena_bytes};
    a[n++].buffer = (struct lbuffer){l->weights, (int64_t)l->m->plan.weights_bytes};
    for (sym_id s = sym_next(l->ctx->exprs, SYM_SHAPE, (sym_id){0}); s.i; s = sym_next(l->ctx->exprs, SYM_SHAPE, s))
        a[n++].index = l->symbols[s.i];
    return n;
}

enum { GRAIN_NS = 40000 }; /* threads share even the smallest kernels */

struct compilation *stages_of_way(struct context *ctx, struct graph *g, const struct way *w, const char *last,
                                  const char *path, struct strbuf *why)
{
    static const enum option_layout layouts[] = {[LAYOUT_AUTO] = OPT_LAYOUT_AUTO,
                                                 [LAYOUT_NCHW] = OPT_LAYOUT_NCHW,
                                                 [LAYOUT_NHWC] = OPT_LAYOUT_NHWC,
                                                 [LAYOUT_NC16C] = OPT_LAYOUT_NC16C};
    struct options *o = NEW(&ctx->session, struct options);
    struct compilation *c = NEW(&ctx->session, struct compilation);
    options_init(o);
    o->self = "/proc/self/exe";
    o->level = w->level;
    o->jobs = 1;
    o->variants = w->native ? w->variant : w->cpu ? w->cpu : "x86-64-v2";
    o->target = w->native ? NULL : w->cpu ? target_find(w->cpu)->arch : "x86_64";
    o->precision = w->precision;
    o->schedules = w->schedules;
    if (w->choice)
        VEC_PUSH(&ctx->session, &o->choices.items, w->choice);
    o->layout = layouts[w->layout];
    o->verify_each = true;
    *c = (struct compilation){.ctx = ctx,
                              .options = o,
                              .output = path,
                              .last = last,
                              .graph = g,
                              .machine = w->native || w->cpu ? NULL : &w->machine};
    if (module_begin(c)) {
        c->module->asked.winograd = w->winograd;
        c->module->asked.attention = true;
        c->module->asked.always = true;
        c->module->asked.grain_ns = GRAIN_NS;
        graph_sweep(g);
        if (stages_run(c, "push-concats"))
            return c;
    }
    strbuf_printf(why, "passes: ");
    diags_append(ctx, why);
    return NULL;
}

struct loops *loops_make(struct draw *d, const struct way *w, struct strbuf *why)
{
    struct compilation *c = stages_of_way(d->ctx, d->g, w, "emit", NULL, why);
    return c ? loops_of(d, c, why) : NULL;
}

struct loops *loops_of(struct draw *d, struct compilation *c, struct strbuf *why)
{
    struct arena *arena = &d->ctx->session;
    struct loops *l = NEW(arena, struct loops);
    *l = (struct loops){.d = d, .m = c->module, .ctx = d->ctx, .arena = arena, .why = why};
    l->kernel = NEW_ARRAY(arena, struct lfunc *, 2 * l->m->fused.kernels.n + 2);
    l->weights = memory(arena, (int64_t)l->m->plan.weights_bytes, 0xff);
    struct sink sink = {l->weights};
    struct weights_writer writer = weights_of(l->m);
    if (!writer.write(writer.user, put_weights, &sink)) {
        diags_append(l->ctx, why);
        return NULL;
    }
    return l;
}

bool loops_run(struct loops *l, struct tensor *out)
{
    l->out = out;
    l->symbols = NEW_ARRAY(l->arena, int64_t, sym_count(l->ctx->exprs) + 1);
    if (!run_plan_function(l))
        return false;
    l->arena_base = memory(l->arena, l->arena_bytes, 0xff);
    struct linterp_arg args[4 * DRAW_VALUES] = {{{0}, 0}};
    program_args(l, args);
    struct linterp_host host = {.user = l, .launch = on_launch, .call = on_call};
    struct linterp_result r = lf_interpret(l->m->plan.program, args, 0, 1, &host);
    for (uint32_t k = 0; l->d->verbose && !r.code && k < l->m->fused.kernels.n; k++)
        strbuf_printf(l->why, "%s\n", l->m->fused.kernels.data[k].text ? l->m->fused.kernels.data[k].text : "");
    if (r.code)
        strbuf_printf(l->why, " program ends with %d: %s", r.code, r.text ? r.text : "");
    return r.code == 0;
}
