/* mcc prove: the compiled network against the network, by randomised identity testing (docs/reference/proof.md).
 *
 * The network is compiled as always, but before code generation each kernel's f32 becomes GF(2^31 - 1)
 * (ir/loop/field.c), and so do the constants (ir/eval/field.h); sizes, layouts, the plan and the program are those of
 * the artifact. It runs on drawn residues, and so do, in the reference interpreter, the graph after legalization, which
 * no pass has changed, end to end, and the graph that the kernels were made of, kernel by kernel, each from what the
 * earlier ones have stored. Equality is exact: there is no tolerance.
 */
#include <math.h>
#include <string.h>

#include "cli/commands/artifact/artifact.h"
#include "cli/commands/artifact/session.h"
#include "cli/commands/command.h"
#include "cli/commands/compare/capture.h"
#include "cli/commands/compare/chance.h"
#include "cli/commands/temporary.h"
#include "cli/library/compile/backend.h"
#include "cli/library/options/cpu.h"
#include "cli/library/options/targets.h"
#include "ir/eval/eval.h"
#include "ir/eval/field.h"
#include "ir/expr/expr.h"
#include "ir/ops/field.h"

/* Draws at the sizes that are given, or the least; then one for each of these, in the place of sizes that are not
 * given: a kernel has other loops for a few rows than for many. Two sizes are the same in the first of each pair, and
 * differ in the second one, where networks take that. */
enum { DRAWS = 2, APART = 3 };
static const int64_t more_sizes[] = {2, 7, 16, 33};

/* What a proof stands on besides the laws of fields and of total orders. */
enum axiom { AXIOM_REALS, AXIOM_FRACTIONS, AXIOM_FUNCTIONS, AXIOM_COUNT };
static const struct {
    const char *name, *says;
} axioms[AXIOM_COUNT] = {
    [AXIOM_REALS] = {"reals", "sums and products of f32 are those of real numbers, but for rounding"},
    [AXIOM_FRACTIONS] = {"fractions",
                         "an f32 that is the nearest one to a fraction of a denominator up to 1024 stands for it"},
    [AXIOM_FUNCTIONS] = {"functions", "the statements of exp, log, tanh and their kin compute these functions "
                                      "(make check-math)"},
};

struct verdict {
    uint32_t seen, differs;  /* draws; seen: all that it stores was compared */
    uint32_t compared;       /* values, in the draw at hand */
    bool any;                /* an element was compared */
    double shows;            /* chance_shows() of all draws, of the worst of its nodes */
    int64_t elements, wrong; /* of the first draw that differs */
    const char *why; /* it cannot be proved; NULL: nothing stands against it */
    bool uses[AXIOM_COUNT];
};

/* Of a CPU variant. */
struct certificate {
    const char *variant;
    struct verdict *of;        /* by kernel; NULL: this CPU does not run it */
    const char *interpreted;   /* why the interpreter ended early; NULL: it did not */
    const char *why;           /* the program is not proved; NULL: all outputs were equal in each draw */
    struct strbuf sizes;       /* "n=1; n=2" */
    uint32_t draws, proved;
    bool any; /* an element of an output was compared */
};

struct prove {
    struct capture run;
    struct tensor **want;      /* by value */
    struct context *apart;     /* of the graph after legalization */
    struct graph *legal;
    struct certificate *all, *now;
    DLManagedTensorVersioned **out;
};

static uint32_t n_kernels(const struct prove *p)
{
    return p->run.c.module->fused.kernels.n;
}
static const struct kernel *kernel_at(const struct prove *p, uint32_t i)
{
    return &p->run.c.module->fused.kernels.data[i];
}

/* ---- what stands against a kernel before it runs ------------------------------------------------------------------
 */

/* Does it compute with integers that the run gives, indices included? */
static bool is_integer_work(const struct graph *g, const struct node *n)
{
    const enum op_shape shape = op_shape(n->op);
    if (shape != SHAPE_MAP && shape != SHAPE_REDUCE && shape != SHAPE_SCAN && shape != SHAPE_SCATTER &&
        shape != SHAPE_INDEX)
        return false;
    for (uint32_t i = 0; i < n->n_in; i++) {
        const struct type *t = n->in[i].i ? value_type(g, n->in[i]) : NULL;
        if (t && t->kind == TYPE_TENSOR && (elem_class(t->elem) == 'I' || elem_class(t->elem) == 'U') &&
            !value_is_const(g, n->in[i]))
            return true;
    }
    return false;
}

/* Of the variant's function of a kernel, whose name is that of the last variant's; NULL: the kernel has none. */
static const struct lowered_kernel *lowered_of(const struct prove *p, const struct kernel *k, uint32_t variant)
{
    const struct compilation *c = &p->run.c;
    const char *last = c->suffixes.data[c->suffixes.n - 1], *own = c->suffixes.data[variant];
    size_t stem = k->text ? strlen(k->name) - strlen(last) : 0;
    for (uint32_t i = 0; stem && i < c->lowered.n; i++)
        if (strncmp(c->lowered.data[i].kernel, k->name, stem) == 0 &&
            strcmp(c->lowered.data[i].kernel + stem, own) == 0)
            return &c->lowered.data[i];
    return NULL;
}

static const char *kernel_why(const struct prove *p, const struct kernel *k, uint32_t variant)
{
    const struct graph *g = p->run.c.graph;
    if (k->kind == KERNEL_OPAQUE)
        return "a function of the runtime computes it";
    if (k->kind == KERNEL_CONTROL)
        return "control flow";
    if (k->region.i != 1)
        return "it is inside of a loop or a branch";
    const struct lowered_kernel *l = lowered_of(p, k, variant);
    if (l && l->why)
        return l->why;
    const struct lowered_kernel *other = k->version.of ? lowered_of(p, k->version.of, variant) : NULL;
    if (other && other->why)
        return other->why;
    for (uint32_t i = 0; i < k->nodes.n; i++)
        if (is_integer_work(g, graph_node(g, k->nodes.data[i])))
            return "it computes with integers, whose equality on drawn values proves nothing";
    for (uint32_t i = 0; i < k->nodes.n; i++) {
        const char *why = chance_why(g, graph_node(g, k->nodes.data[i]));
        if (why)
            return why;
    }
    return NULL;
}

static void kernel_axioms(const struct prove *p, const struct kernel *k, uint32_t variant, struct verdict *v)
{
    const struct graph *g = p->run.c.graph;
    for (uint32_t i = 0; i < k->nodes.n; i++) {
        enum op op = graph_node(g, k->nodes.data[i])->op;
        v->uses[AXIOM_REALS] |= op_shape(op) == SHAPE_MAP || op_shape(op) == SHAPE_REDUCE || op_shape(op) == SHAPE_SCAN;
        v->uses[AXIOM_FUNCTIONS] |= op >= OP_EXP && op <= OP_SIGMOID;
    }
    v->uses[AXIOM_FRACTIONS] = lowered_of(p, k, variant) && lowered_of(p, k, variant)->fractions;
}

/* ---- one draw ---------------------------------------------------------------------------------------------------- */

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u; /* splitmix64 */
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Residues for f32; everything else as mcc run draws it. */
static void draw_inputs(struct prove *p, uint32_t draw)
{
    uint64_t state = draw + 1;
    for (uint32_t i = 0; i < p->run.s.api->n_in; i++) {
        struct file_tensor *t = &p->run.s.in[i];
        uint32_t *words = t->data;
        if (t->elem != ELEM_F32) {
            file_tensor_random(t, draw * p->run.s.api->n_in + i + 1);
            continue;
        }
        for (size_t k = 0; k < t->size / sizeof *words; k++)
            words[k] = (uint32_t)(next_random(&state) % FIELD_P);
    }
}

/* The interpreter has computed v: compared with what the kernel stored, from which it goes on. */
static void on_value(void *user, value_id v, const struct tensor *t)
{
    struct prove *p = user;
    const struct tensor *got = p->run.got[v.i];
    bool same = got && t->kind == TYPE_TENSOR && t->elem == got->elem && t->rank == got->rank;
    for (int32_t k = 0; same && k < t->rank; k++)
        same = t->dims[k] == got->dims[k];
    if (!same)
        return;
    struct verdict *d = &p->now->of[p->run.maker[v.i]];
    const size_t size = elem_size(t->elem);
    int64_t n = tensor_count(t), wrong = 0;
    for (int64_t i = 0; i < n; i++)
        wrong += memcmp((const char *)t->data + (size_t)i * size, (const char *)got->data + (size_t)i * size, size) !=
                 0;
    if (wrong && !d->differs)
        d->elements = n, d->wrong = wrong;
    d->differs += wrong > 0;
    d->compared++;
    d->any |= n > 0;
    if (wrong)
        memcpy(t->data, got->data, (size_t)n * size);
}

static void want_value(struct prove *p, value_id v)
{
    if (v.i && !p->want[v.i])
        p->want[v.i] = NEW(&p->run.c.ctx->session, struct tensor);
}

static bool interpret(struct prove *p)
{
    struct context *ctx = p->run.c.ctx;
    struct graph *g = p->run.c.graph;
    struct tensor *in = NEW_ARRAY(&ctx->session, struct tensor, g->inputs.n + 1);
    p->want = NEW_ARRAY(&ctx->session, struct tensor *, g->values.n + 1);
    for (uint32_t i = 0; i < g->inputs.n; i++)
        if (!file_tensor_widen(ctx, &p->run.s.in[i], &in[i]))
            return false;
    for (uint32_t i = 0; i < n_kernels(p); i++) {
        const struct kernel *k = kernel_at(p, i);
        for (uint32_t j = 0; j < k->outs.n && k->region.i == 1; j++)
            want_value(p, k->outs.data[j]);
    }
    const char *text = "";
    if (graph_eval_watched(g, in, p->want, on_value, p, &ctx->session, &text) != EVAL_OK)
        p->now->interpreted = text && *text ? text : "the interpreter failed";
    return true;
}

/* What the draw at hand says of each kernel. */
static void count_kernels(struct prove *p)
{
    const struct graph *g = p->run.c.graph;
    for (uint32_t i = 0; i < n_kernels(p); i++) {
        const struct kernel *k = kernel_at(p, i);
        struct verdict *d = &p->now->of[i];
        double least = INFINITY;
        for (uint32_t j = 0; j < k->nodes.n; j++)
            least = fmin(least, chance_shows(&p->run, graph_node(g, k->nodes.data[j])));
        d->shows += least;
        d->seen += d->compared && d->compared == k->outs.n;
        d->compared = 0;
    }
}

/* The graph after legalization, and the outputs of the run. */
static bool check_outputs(void *user)
{
    struct prove *p = user;
    struct graph *g = p->legal;
    struct arena *arena = &p->apart->session;
    DLManagedTensorVersioned **out = p->out;
    struct tensor *in = NEW_ARRAY(arena, struct tensor, g->inputs.n + 1),
                  **want = NEW_ARRAY(arena, struct tensor *, g->values.n + 1);
    const char *text = "";
    for (uint32_t i = 0; i < g->inputs.n; i++)
        if (!file_tensor_widen(p->apart, &p->run.s.in[i], &in[i]))
            return false;
    for (uint32_t i = 0; i < g->outputs.n; i++)
        want[g->outputs.data[i].value.i] = NEW(arena, struct tensor);
    if (graph_eval_values(g, in, want, arena, &text) != EVAL_OK) {
        p->now->why = arena_strdup(&p->run.c.ctx->session, text && *text ? text : "the interpreter failed");
        return true;
    }
    for (uint32_t i = 0; i < g->outputs.n && !p->now->why; i++) {
        const struct tensor *t = want[g->outputs.data[i].value.i];
        const DLTensor *got = &out[i]->dl_tensor;
        p->now->any |= tensor_count(t) > 0;
        bool same = got->ndim == t->rank && elem_by_dlpack(got->dtype) == t->elem;
        for (int32_t k = 0; same && k < t->rank; k++)
            same = got->shape[k] == t->dims[k];
        if (!same || memcmp(t->data, (const char *)got->data + got->byte_offset,
                            (size_t)tensor_count(t) * elem_size(t->elem)) != 0)
            p->now->why = arena_printf(&p->run.c.ctx->session, "output '%s' differs", g->outputs.data[i].name);
    }
    return true;
}

static void end_nothing(void *user)
{
    (void)user;
}

/* The sizes of the draw, unless the last one had the same. */
static void put_sizes(struct prove *p)
{
    const mcc_api *api = p->run.s.api;
    struct strbuf text, *all = &p->now->sizes;
    strbuf_init(&text, all->arena);
    for (uint32_t i = 0; i < api->n_in; i++)
        for (int32_t d = 0; d < api->in[i].ndim; d++) {
            const mcc_dim *dim = &api->in[i].dims[d];
            const char *name = dim->extent == -1 && dim->symbol >= 0 ? api->sym[dim->symbol].name : NULL;
            const char *item = name ? arena_printf(all->arena, "%s=%lld", name, (long long)p->run.s.in[i].dims[d]) : "";
            if (name && !(text.n && strstr(text.data, item)))
                strbuf_printf(&text, "%s%s", text.n ? ", " : "", item);
        }
    if (text.n && !(all->n >= text.n && strcmp(all->data + all->n - text.n, text.data) == 0))
        strbuf_printf(all, "%s%s", all->n ? "; " : "", text.data);
}

/* False after a diagnostic. */
static bool draw_once(struct prove *p, uint32_t draw)
{
    struct context *ctx = p->run.c.ctx;
    const uint32_t n = p->run.s.api->n_out;
    p->out = NEW_ARRAY(&ctx->session, DLManagedTensorVersioned *, n + 1);
    draw_inputs(p, draw);
    capture_begin(&p->run);
    if (p->run.s.api->run_dlpack(p->run.s.run, p->run.s.in_pointer, p->out, &p->run.s.error) != MCC_OK)
        return draw >= DRAWS || session_error(&p->run.s, "run"); /* sizes that do not go together are left out */
    put_sizes(p);
    p->apart->unwind = ctx->unwind;
    bool ok = interpret(p) && run_guarded(p->apart, check_outputs, end_nothing, p);
    count_kernels(p);
    for (uint32_t i = 0; i < n; i++)
        p->out[i]->deleter(p->out[i]);
    p->now->draws++;
    return ok;
}

/* ---- the certificate --------------------------------------------------------------------------------------------- */

static bool program_holds(const struct certificate *c)
{
    return c->of && c->draws >= DRAWS && !c->why && c->any;
}

/* NULL: kernel i is proved. */
static const char *against(const struct prove *p, const struct certificate *c, uint32_t i)
{
    const struct verdict *v = &c->of[i];
    const bool part = kernel_at(p, i)->kind == KERNEL_HALO || kernel_at(p, i)->piece;
    if (v->differs)
        return arena_printf(&p->run.c.ctx->session,
                            "%lld of %lld elements differ: its code is wrong, or right by a law that is no axiom here",
                            (long long)v->wrong, (long long)v->elements);
    if (v->why)
        return v->why;
    if (v->shows < CHANCE_ENOUGH)
        return "it chooses among many elements, of which the draws have shown few";
    if ((v->seen >= c->draws && v->any) ||
        (part && program_holds(c))) /* its readers and the outputs have seen what it stores */
        return NULL;
    return c->interpreted ? c->interpreted : "what it stores was not seen";
}

static void put_kernel_json(const struct prove *p, const struct certificate *c, uint32_t i, struct json *j)
{
    const char *why = against(p, c, i);
    json_open(j, NULL, '{');
    json_text(j, "kernel", capture_words(&p->run, i));
    json_bool(j, "proved", !why);
    json_open(j, "axioms", '[');
    for (int a = 0; a < AXIOM_COUNT; a++)
        if (c->of[i].uses[a])
            json_text(j, NULL, axioms[a].name);
    json_close(j, '[');
    json_text(j, "why", why);
    json_close(j, '{');
}

static void put_variant_json(const struct prove *p, const struct certificate *c, struct json *j)
{
    json_open(j, NULL, '{');
    json_text(j, "variant", c->variant);
    json_bool(j, "runs_here", c->of);
    json_uint(j, "draws", c->draws);
    json_text(j, "sizes", c->sizes.n ? c->sizes.data : NULL);
    json_open(j, "program", '{');
    json_bool(j, "proved", program_holds(c));
    json_text(j, "why", c->of && !c->why && !c->any ? "its outputs have no elements at these sizes" : c->why);
    json_close(j, '{');
    json_uint(j, "proved", c->proved);
    json_open(j, "kernels", '[');
    for (uint32_t i = 0; c->of && i < n_kernels(p); i++)
        put_kernel_json(p, c, i, j);
    json_close(j, '[');
    json_close(j, '{');
}

static void put_json(const struct prove *p, bool all, struct json *j)
{
    json_open(j, NULL, '{');
    json_bool(j, "proved", all);
    json_open(j, "variants", '[');
    for (uint32_t v = 0; v < p->run.c.targets.n; v++)
        put_variant_json(p, &p->all[v], j);
    json_close(j, '[');
    json_open(j, "axioms", '[');
    for (int a = 0; a < AXIOM_COUNT; a++) {
        json_open(j, NULL, '{');
        json_text(j, "name", axioms[a].name);
        json_text(j, "statement", axioms[a].says);
        json_close(j, '{');
    }
    json_close(j, '[');
    json_close(j, '{');
}

static void put_kernel(const struct prove *p, const struct certificate *c, uint32_t i, struct strbuf *out)
{
    const char *why = against(p, c, i), *before = " under ";
    if (!why && !p->run.c.options->all)
        return;
    strbuf_printf(out, "  %s: %s", capture_words(&p->run, i), why ? "not proved, because " : "proved");
    if (why)
        strbuf_escaped(out, why, 400);
    for (int a = 0; a < AXIOM_COUNT && !why; a++)
        if (c->of[i].uses[a]) {
            strbuf_printf(out, "%s%s", before, axioms[a].name);
            before = ", ";
        }
    strbuf_printf(out, "\n");
}

static void put_variant(const struct prove *p, const struct certificate *c, struct strbuf *out)
{
    if (!c->of) {
        strbuf_printf(out, "%s: not proved, because this CPU does not run it\n", c->variant);
        return;
    }
    strbuf_printf(out, "%s: %u of %u kernels proved, program %s", c->variant, c->proved, n_kernels(p),
                  program_holds(c) ? "proved" : "not proved, because ");
    if (!program_holds(c))
        strbuf_escaped(out,
                       c->why     ? c->why
                       : c->draws ? "its outputs have no elements at these sizes"
                                  : "it did not run",
                       400);
    if (c->sizes.n)
        strbuf_printf(out, ", at %s", c->sizes.data);
    strbuf_printf(out, "\n");
    for (uint32_t i = 0; i < n_kernels(p); i++)
        put_kernel(p, c, i, out);
}

static bool certify(struct prove *p)
{
    const struct options *o = p->run.c.options;
    struct context *ctx = p->run.c.ctx;
    struct strbuf text;
    uint32_t proved = 0;
    for (uint32_t v = 0; v < p->run.c.targets.n; v++) {
        struct certificate *c = &p->all[v];
        for (uint32_t i = 0; c->of && i < n_kernels(p); i++)
            c->proved += !against(p, c, i);
        proved += program_holds(c) && c->proved == n_kernels(p);
    }
    const bool all = proved == p->run.c.targets.n;
    strbuf_init(&text, &ctx->session);
    if (o->document)
        put_json(p, all, &o->document->result);
    for (uint32_t v = 0; v < p->run.c.targets.n && !o->document && !o->quiet; v++)
        put_variant(p, &p->all[v], &text);
    terminal_print(&text);
    if (o->output) {
        struct json j = {.out = &text};
        text.n = 0;
        put_json(p, all, &j);
        strbuf_append(&text, "\n", 1);
        if (!output_write(ctx, o->output, text.data, text.n))
            return false;
    }
    return all || error_at(ctx, FAIL_CLAIM, (src_id){0}, NULL, "not all is proved: %u of %u CPU variants", proved,
                           p->run.c.targets.n);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

/* The graph that no pass has changed, in a context of its own. */
static bool legal_graph(struct prove *p, const char *model)
{
    struct options o = *p->run.c.options;
    o.quiet = true;
    o.output = NULL;
    p->apart = context_new();
    if (!p->apart)
        return error_limit(p->run.c.ctx, (src_id){0}, "out of memory");
    p->legal = compile_graph(p->apart, &o, model, terminal_report());
    if (!p->legal)
        return error_internal(p->run.c.ctx, (src_id){0}, "the network was imported once only");
    p->apart->unwind = p->run.c.ctx->unwind;
    graph_enter_field(p->legal);
    return true;
}

static bool serves(struct prove *p)
{
    const mcc_api *api = p->run.s.api;
    for (uint32_t i = 0; i < api->n_in + api->n_out; i++) {
        const mcc_port *port = i < api->n_in ? &api->in[i] : &api->out[i - api->n_in];
        if (port->flags & ~(uint64_t)MCC_PORT_DYNAMIC)
            return error_at(p->run.c.ctx, FAIL_USAGE, (src_id){0}, port->name, "only tensors can be compared");
    }
    return !api->state || error_model(p->run.c.ctx, (src_id){0}, "networks with state are not proved yet");
}

/* Inputs of another size: of all symbols that --dim does not give; apart: each is longer than the one before. False:
 * there are none, or not several, or it is none of theirs. */
static bool resize(struct prove *p, struct options *running, int64_t size, bool apart)
{
    const mcc_api *api = p->run.s.api;
    struct text_list dims = {0};
    bool fits = true;
    int64_t given = 0;
    for (uint32_t i = 0; i < p->run.c.options->dims.items.n; i++)
        VEC_PUSH(&p->run.c.ctx->session, &dims.items, p->run.c.options->dims.items.data[i]);
    for (uint32_t i = 0; i < api->n_sym && fits; i++) {
        const mcc_symbol *s = &api->sym[i];
        int64_t step = s->step > 1 ? s->step : 1, asked = size + (apart ? APART * given : 0),
                n = (asked + step - 1) / step * step;
        if (feed_find(&p->run.c.options->dims, s->name))
            continue;
        given++;
        fits = n >= s->min && (!s->max || n <= s->max);
        VEC_PUSH(&p->run.c.ctx->session, &dims.items,
                 arena_printf(&p->run.c.ctx->session, "%s=%lld", s->name, (long long)n));
    }
    running->dims = dims;
    return given > apart && fits && session_feed(&p->run.s, true);
}

/* One variant: loaded, run, closed. */
static bool prove_variant(struct prove *p, const char *library, uint32_t variant)
{
    struct context *ctx = p->run.c.ctx;
    struct options running = *p->run.c.options;
    running.output = NULL;
    mcc_host host = {.size = sizeof host, .user = &p->run, .threads = 1, .event = capture_event, .flags = variant + 1};
    if (!session_open(&p->run.s, ctx, &running, library, &host))
        return false;
    ctx->model_path = running.files.items.data[0];
    strbuf_init(&p->now->sizes, &ctx->session);
    bool ok = serves(p) && session_feed(&p->run.s, true);
    p->now->of = NEW_ARRAY(&ctx->session, struct verdict, n_kernels(p) + 1);
    for (uint32_t i = 0; i < n_kernels(p); i++) {
        p->now->of[i].why = kernel_why(p, kernel_at(p, i), variant);
        kernel_axioms(p, kernel_at(p, i), variant, &p->now->of[i]);
    }
    for (uint32_t draw = 0; ok && draw < DRAWS; draw++)
        ok = draw_once(p, draw);
    for (uint32_t k = 0; ok && k < 2 * COUNT_OF(more_sizes); k++)
        ok = !resize(p, &running, more_sizes[k / 2], k % 2) || draw_once(p, DRAWS + k);
    ok = ok && ctx->fail == FAIL_NONE;
    session_close(&p->run.s);
    return ok;
}

static void prove_model(void *user, const char *library)
{
    struct prove *p = user;
    const struct options *o = p->run.c.options;
    struct context *ctx = p->run.c.ctx;
    struct options compiling = *o;
    compiling.output = library;
    compiling.emit = OPT_EMIT_NONE;
    compiling.weights = OPT_WEIGHTS_EMBEDDED;
    p->run.c.options = &compiling;
    ctx->field_code = true;
    enum fail fail = compile_keep(&p->run.c, o->files.items.data[0], NULL);
    ctx->field_code = false;
    p->run.c.options = o;
    if (fail != FAIL_NONE || !legal_graph(p, o->files.items.data[0]))
        return;
    p->all = NEW_ARRAY(&ctx->session, struct certificate, p->run.c.targets.n + 1);
    for (uint32_t v = 0; v < p->run.c.targets.n; v++) {
        p->now = &p->all[v];
        p->now->variant = p->run.c.targets.data[v]->name;
        if (cpu_runs(ctx, p->run.c.targets.data[v]->row) && !prove_variant(p, library, v))
            return;
    }
    (void)certify(p);
}

static void prove_end(void *user)
{
    struct prove *p = user;
    session_close(&p->run.s);
    if (p->apart)
        context_free(p->apart);
}

enum fail command_prove(struct context *ctx, struct options *o)
{
    struct prove *p = NEW(&ctx->session, struct prove);
    p->run.c = (struct compilation){.ctx = ctx, .options = o, .report = terminal_report(), .in_field = true};
    struct file_list read = {0};
    VEC_PUSH(&ctx->session, &read.paths, o->files.items.data[0]);
    if (o->output && (!output_check(ctx, o->output) || !output_differs(ctx, o->output, &read, o->config)))
        return ctx->fail;
    if (artifact_meant(o->files.items.data[0]))
        error_at(ctx, FAIL_USAGE, (src_id){0}, NULL, "a network is proved, not a compiled one: mcc prove MODEL.onnx");
    else
        (void)(target_serves(ctx, o, true) && with_temporary(ctx, library_name(o), prove_model, prove_end, p));
    return ctx->fail;
}
