/* Whether a kernel is proved, and why not: see prove.h. */
#include <math.h>
#include <sys/mman.h>

#include "cli/commands/compare/chance.h"
#include "cli/commands/compare/control.h"
#include "cli/commands/compare/prove.h"
#include "ir/expr/expr.h"
#include "ir/ops/field.h"

const struct axiom_text axioms[AXIOM_COUNT] = {
    [AXIOM_REALS] = {"reals", "sums and products of floats are those of real numbers, except for rounding"},
    [AXIOM_FRACTIONS] =
        {"fractions", "a float whose f32 is the nearest one to a fraction of a denominator up to 1024 stands for it"},
    [AXIOM_FUNCTIONS] = {"functions", "the statements of exp, log, tanh and their kin compute these functions "
                                      "(make check-math)"},
    [AXIOM_EXPONENTIALS] = {"exponentials", "exp(a + b) = exp(a) exp(b), exp(-inf) = 0, -inf + a = -inf"},
    [AXIOM_UNDERFLOW] = {"underflow", "exp of less than -87 counts as 0 in a softmax"},
    [AXIOM_ROUNDING] = {"rounding", "floats that are equal except for rounding are rounded to the same integer or "
                                    "narrower float, which a tie may miss by one"},
    [AXIOM_LIMITS] = {"limits", "for s > 0, max(x, c) s + d = max(x s + d, c s + d), min likewise; a limit beyond the "
                                "range of bytes is none where the conversion saturates; the largest of some numbers, "
                                "rounded, is the largest of the rounded ones"},
    [AXIOM_INTEGERS] = {"integers", "integers are compared on 96 draws, a third of them over all bits: code that "
                                    "is wrong on a share s of these passes with (1 - s)^32"},
    [AXIOM_RUNTIME] = {"runtime", "functions of the runtime (sort, unique, dft, ...) compute of all operands what they "
                                  "compute of drawn ones"},
};

/* ---- what stands against a kernel before it runs ----------------------------------------------------------------- */

const struct lowered_kernel *verdict_lowered(const struct prove *p, const struct kernel *code)
{
    const struct compilation *c = &p->run.c;
    for (uint32_t i = 0; code->text && i < c->lowered.n; i++)
        if (strcmp(c->lowered.data[i].kernel, code->name) == 0)
            return &c->lowered.data[i];
    return NULL;
}

/* The code of kernel k in the variant, or that of its other version (1); NULL: it has none. */
static const struct kernel *code_of(const struct prove *p, const struct kernel *k, uint32_t version)
{
    const struct kernel *code = prove_code(p, (uint32_t)(k - p->run.c.module->fused.kernels.data));
    return version ? code->version.of : code;
}

/* Why the kernel's code, or that of its other version, stayed that of floats; NULL: it did not. */
static const char *field_why(const struct prove *p, const struct kernel *k)
{
    const struct kernel *both[2] = {code_of(p, k, 0), code_of(p, k, 1)};
    for (uint32_t i = 0; i < 2 && both[i]; i++) {
        const struct lowered_kernel *l = verdict_lowered(p, both[i]);
        if (l && l->facts.why)
            return l->facts.why;
    }
    return NULL;
}

/* Does its code round f64 where the network does not? In the field f32 and f64 are the same numbers. */
static bool rounds_wide(const struct prove *p, const struct kernel *k)
{
    const struct graph *g = p->run.c.graph;
    const struct kernel *both[2] = {code_of(p, k, 0), code_of(p, k, 1)};
    bool wide = false, rounds = false;
    for (uint32_t i = 0; i < k->nodes.n; i++) {
        const struct node *n = graph_node(g, k->nodes.data[i]);
        for (uint32_t j = 0; j < n->n_in; j++)
            if (n->in[j].i && value_type(g, n->in[j])->elem == ELEM_F64) {
                wide = true;
                rounds |= n->op == OP_CONVERT && field_form(value_type(g, n->out[0])->elem);
            }
    }
    for (uint32_t i = 0; i < 2 && both[i] && wide && !rounds; i++) {
        const struct lowered_kernel *l = verdict_lowered(p, both[i]);
        if (l && l->facts.rounds_wide)
            return true;
    }
    return false;
}

static const char *kernel_why(const struct prove *p, const struct kernel *k)
{
    const struct graph *g = p->run.c.graph;
    if (k->kind == KERNEL_OPAQUE && graph_node(g, k->anchor)->op == OP_STRING)
        return "a function of the runtime computes it of strings";
    if (field_why(p, k))
        return field_why(p, k);
    if (rounds_wide(p, k))
        return "its code rounds f64 to a narrower float, which the network does not";
    return NULL;
}

/* Does it compute with integers that have to be watched? */
static void kernel_integers(struct prove *p, const struct kernel *k, struct verdict *v)
{
    const char *why = NULL;
    for (uint32_t i = 0; i < k->nodes.n && k->kind != KERNEL_CONTROL; i++)
        v->uses[AXIOM_INTEGERS] |= integers_need_draws(&p->integers, p->run.c.graph,
                                                       graph_node(p->run.c.graph, k->nodes.data[i]), &why);
    v->why = v->why ? v->why : why;
    p->many |= v->uses[AXIOM_INTEGERS] && !v->why;
}

static void kernel_axioms(struct prove *p, const struct kernel *k, struct verdict *v)
{
    const struct graph *g = p->run.c.graph;
    for (uint32_t i = 0; i < k->nodes.n; i++) {
        enum op op = graph_node(g, k->nodes.data[i])->op;
        v->uses[AXIOM_REALS] |= op_shape(op) == SHAPE_MAP || op_shape(op) == SHAPE_REDUCE || op_shape(op) == SHAPE_SCAN;
        v->uses[AXIOM_FUNCTIONS] |= op >= OP_EXP && op <= OP_SIGMOID;
        v->uses[AXIOM_EXPONENTIALS] |= op == OP_EXP;
        v->uses[AXIOM_RUNTIME] |= op_shape(op) == SHAPE_OPAQUE;
    }
    const struct kernel *both[2] = {code_of(p, k, 0), code_of(p, k, 1)};
    for (uint32_t i = 0; i < 2 && both[i]; i++) {
        const struct lowered_kernel *l = verdict_lowered(p, both[i]);
        v->uses[AXIOM_FRACTIONS] |= l && l->facts.fractions;
        v->uses[AXIOM_UNDERFLOW] |= l && l->facts.underflow;
        v->uses[AXIOM_ROUNDING] |= l && l->facts.rounds;
        v->narrows |= l && l->facts.narrows; /* a hash of few values often is another one's */
    }
    p->many |= v->narrows;
}

/* What of it only equal floats show. */
static void kernel_tells(struct prove *p, const struct kernel *k, struct verdict *v)
{
    const struct graph *g = p->run.c.graph;
    for (uint32_t i = 0; i < k->nodes.n; i++) {
        const struct node *n = graph_node(g, k->nodes.data[i]);
        const char *tells = chance_tells(g, n);
        if (!tells || (n->out[0].i && value_is_const(g, n->out[0])) || integer_is_fixed(p->run.c.graph, chance_told(n)))
            continue;
        v->tells = v->tells ? v->tells : tells;
        p->special |= n->op == OP_ISNAN || n->op == OP_ISINF || n->op == OP_LT || n->op == OP_LE;
        integers_watch(&p->integers, chance_told(n));
    }
}

static uint8_t reads(const struct graph *g, const struct node *n)
{
    if (n->op == OP_ISNAN || n->op == OP_ISINF || n->op == OP_LT || n->op == OP_LE)
        return PROVE_TESTS;
    const bool orders = n->op == OP_ARGREDUCE || n->op == OP_ARGWINDOW;
    return orders && elem_class(value_type(g, n->in[0])->elem) == 'F' ? PROVE_ORDERS : 0;
}

/* Which values reach a test or an order. What loops and branches read, and their nodes, reaches all that there are. */
static void find_reads(struct prove *p)
{
    const struct graph *g = p->run.c.graph;
    uint8_t any = 0;
    p->read_by = NEW_ARRAY(&p->run.c.ctx->session, uint8_t, g->values.n + 1);
    for (uint32_t i = 1; i < g->nodes.n; i++)
        any |= g->nodes.data[i].dead ? 0 : reads(g, &g->nodes.data[i]);
    for (uint32_t region = g->regions.n; region-- > 1;)
        for (uint32_t i = g->regions.data[region].nodes.n; i-- > 0;) {
            const struct node *n = graph_node(g, g->regions.data[region].nodes.data[i]);
            uint8_t by = region > 1 || n->n_region ? any : reads(g, n);
            for (uint32_t k = 0; k < n->n_out; k++)
                by |= p->read_by[n->out[k].i];
            for (uint32_t k = 0; k < n->n_in; k++)
                p->read_by[n->in[k].i] |= by;
        }
}

bool verdict_tells(const struct prove *p, const struct node *n)
{
    const struct graph *g = p->run.c.graph;
    return chance_tells(g, n) && !value_is_const(g, n->out[0]) && p->integers.watched[chance_told(n).i];
}

/* What the draws have told of the node's choice. */
static double told(const struct prove *p, const struct node *n)
{
    const value_id v = chance_told(n);
    if (!verdict_tells(p, n))
        return INFINITY;
    const double ties = p->ties[v.i] * CHANCE_ENOUGH / CHANCE_ELEMENTS;
    if (n->op == OP_ARGREDUCE || n->op == OP_ARGWINDOW)
        return ties;
    const double shown = integers_shown_of(&p->integers, v), *found = &p->infinite[2 * (size_t)v.i];
    if (n->op == OP_SORT)
        return fmin(ties, shown);
    return n->op == OP_ISINF ? fmin(shown, fmin(found[0], found[1])) : shown;
}

bool verdict_begin(struct prove *p)
{
    const struct compilation *c = &p->run.c;
    p->now->of = NEW_ARRAY(&c->ctx->session, struct verdict, prove_kernels(p) + 1);
    p->now->filled = NEW_ARRAY(&c->ctx->session, bool, p->legal->outputs.n + 1);
    integers_origins(&p->integers, c->graph);
    p->ties = NEW_ARRAY(&c->ctx->session, double, c->graph->values.n + 1);
    p->infinite = NEW_ARRAY(&c->ctx->session, double, 2 * (size_t)c->graph->values.n + 2);
    p->special = p->calls = false;
    p->never = NULL;
    p->many = p->by_data = sym_next(c->ctx->exprs, SYM_VALUE, (sym_id){0}).i;
    for (uint32_t i = 0; i < prove_kernels(p); i++) {
        p->now->of[i].why = kernel_why(p, prove_kernel(p, i));
        p->now->of[i].floats = !!field_why(p, prove_kernel(p, i));
        kernel_axioms(p, prove_kernel(p, i), &p->now->of[i]);
        kernel_integers(p, prove_kernel(p, i), &p->now->of[i]);
        kernel_tells(p, prove_kernel(p, i), &p->now->of[i]);
        p->calls |= prove_kernel(p, i)->kind == KERNEL_OPAQUE;
    }
    find_reads(p);
    if (p->marks || !c->marks)
        return true;
    char *const from = (char *)FIELD_MARKS - FIELD_POLLS;
    void *at = mmap(from, FIELD_POLLS + c->marks, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (at != from)
        return error_limit(c->ctx, (src_id){0}, "the memory of the marks is not free");
    p->marks = (unsigned char *)at + FIELD_POLLS;
    at = mmap(p->marks + FIELD_SKIPS, c->marks, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (at != p->marks + FIELD_SKIPS)
        return error_limit(c->ctx, (src_id){0}, "the memory of the marks is not free");
    p->skips = at;
    p->runs = NEW_ARRAY(&c->ctx->session, uint32_t, c->marks);
    p->later = NEW_ARRAY(&c->ctx->session, bool, c->marks);
    for (uint32_t i = 0; i < c->lowered.n; i++)
        if (c->lowered.data[i].facts.later)
            p->later[c->lowered.data[i].facts.first + c->lowered.data[i].facts.later] = true;
    return true;
}

void verdict_end(struct prove *p)
{
    if (p->marks)
        munmap(p->marks - FIELD_POLLS, FIELD_POLLS + p->run.c.marks);
    if (p->skips)
        munmap(p->skips, p->run.c.marks);
    p->marks = p->skips = NULL;
}

/* A loop or branch of a kernel or of its other version: next after `at`, from 0 on; false: none is left. */
static bool block_next(const struct prove *p, const struct kernel *k, uint32_t *at, uint32_t *mark)
{
    const struct kernel *both[2] = {code_of(p, k, 0), code_of(p, k, 1)};
    uint32_t before = 0;
    for (uint32_t i = 0; i < 2 && both[i]; i++) {
        const struct lowered_kernel *l = verdict_lowered(p, both[i]);
        const uint32_t n = l ? l->facts.blocks : 0;
        if (*at < before + n) {
            *mark = l->facts.first + (*at)++ - before;
            return true;
        }
        before += n;
    }
    return false;
}

/* Of a kernel's loops and branches those that have run, or never do; all: how many it has. A second parallel index that
 * no draw had counts as one that has run, as only large sizes may have one. */
static uint32_t marked_of(const struct prove *p, const struct kernel *k, uint32_t *all)
{
    uint32_t n = 0, mark;
    for (uint32_t at = 0; block_next(p, k, &at, &mark); ++*all)
        n += p->runs[mark] >= PROVE_RUNS || (p->never && p->never[mark]) || (p->later[mark] && !p->runs[mark]);
    return n;
}

bool verdict_lacks(struct prove *p)
{
    uint32_t n = 0, all = 0;
    if (!p->never)
        never_find(p);
    for (uint32_t i = 0; i < prove_kernels(p); i++) {
        struct verdict *v = &p->now->of[i];
        v->blocks = 0;
        v->marked = marked_of(p, prove_kernel(p, i), &v->blocks);
        n += v->why || v->differs ? v->blocks : v->marked; /* no draw changes what is said of such a kernel */
        all += v->blocks;
    }
    return n < all;
}

bool verdict_lacks_choices_of(const struct prove *p, uint32_t kernel, uint32_t drawn, uint32_t least)
{
    const struct verdict *v = &p->now->of[kernel];
    const bool two = drawn < least + 2 && v->shows < INFINITY;
    const bool few = v->shows < CHANCE_ENOUGH && v->shows * CHANCE_MOST >= CHANCE_ENOUGH * (double)v->ran;
    return v->ran && !v->why && !v->differs && ((drawn < CHANCE_DRAWS && v->choices < CHANCE_ELEMENTS) || few || two);
}

bool verdict_lacks_choices(const struct prove *p, uint32_t drawn, uint32_t least)
{
    for (uint32_t i = 0; i < prove_kernels(p); i++)
        if (verdict_lacks_choices_of(p, i, drawn, least))
            return true;
    return false;
}

bool verdict_lacks_ties_of(const struct prove *p, uint32_t kernel, uint32_t drawn)
{
    const struct verdict *v = &p->now->of[kernel];
    const bool will = drawn < CHANCE_DRAWS || v->told * CHANCE_MOST >= CHANCE_ENOUGH * (double)drawn;
    return v->tells && v->ran && !v->why && !v->differs && v->told < CHANCE_ENOUGH && will;
}

bool verdict_lacks_ties(const struct prove *p, uint32_t drawn)
{
    for (uint32_t i = 0; i < prove_kernels(p); i++)
        if (verdict_lacks_ties_of(p, i, drawn))
            return true;
    return false;
}

bool verdict_lacks_integers(const struct prove *p, uint32_t drawn, uint32_t least)
{
    for (uint32_t i = 0; i < prove_kernels(p); i++) {
        const struct verdict *v = &p->now->of[i];
        const bool will = drawn < CHANCE_DRAWS || v->integers * INTEGER_MOST >= CHANCE_ENOUGH * (double)drawn;
        const bool lacks = drawn < least || (v->integers < CHANCE_ENOUGH && will);
        if (v->uses[AXIOM_INTEGERS] && !v->why && !v->differs && lacks)
            return true;
    }
    return false;
}

bool verdict_lacks_later(const struct prove *p, uint32_t kernel)
{
    bool lacks = false;
    uint32_t mark;
    for (uint32_t at = 0; block_next(p, prove_kernel(p, kernel), &at, &mark);)
        lacks |= p->later[mark] && p->runs[mark] < PROVE_RUNS;
    return lacks;
}

bool verdict_gains(const struct prove *p)
{
    for (uint32_t i = 0; i < p->run.c.marks; i++)
        if (p->marks[i] && p->runs[i] < PROVE_RUNS)
            return true;
    return false;
}

bool verdict_gains_of(const struct prove *p, uint32_t kernel)
{
    uint32_t mark;
    for (uint32_t at = 0; block_next(p, prove_kernel(p, kernel), &at, &mark);)
        if (p->marks[mark] && p->runs[mark] < PROVE_RUNS)
            return true;
    return false;
}

/* ---- and after that ---------------------------------------------------------------------------------------------- */

/* Kernels of a loop that is one launch have none of their own: one of its loops and branches has to run. */
static bool has_run(const struct prove *p, uint32_t kernel)
{
    const struct kernel *k = prove_kernel(p, kernel);
    if (k->kind == KERNEL_OPAQUE) /* as the network does, where the outputs are equal */
        return p->want[k->outs.data[0].i] && p->want[k->outs.data[0].i]->kind != TYPE_UNKNOWN;
    const uint32_t loop = prove_kernel(p, kernel)->text ? UINT32_MAX : control_of(p, prove_kernel(p, kernel));
    uint32_t mark;
    for (uint32_t at = 0; loop != UINT32_MAX && block_next(p, prove_kernel(p, loop), &at, &mark);)
        if (p->marks[mark])
            return true;
    return p->run.ran[kernel];
}

/* What the kernel's nodes have chosen in the draw at hand. */
static void count_choices(struct prove *p, const struct kernel *k, struct verdict *d, bool runs)
{
    const struct graph *g = p->run.c.graph;
    const bool counts = k->region.i == 1 || runs; /* INFINITY: it does not choose, whether it ran or not */
    double least = INFINITY, choices = INFINITY;
    for (uint32_t j = 0; j < k->nodes.n; j++) {
        const struct node *n = graph_node(g, k->nodes.data[j]);
        least = fmin(least, chance_shows(&p->run, n));
        choices = fmin(choices, chance_choices(&p->run, n, k->region.i == 1 ? d->here : 1));
    }
    d->ran += runs;
    d->shows += counts || least == INFINITY ? least : 0;
    d->choices += counts || choices == INFINITY ? choices : 0;
}

static void count_mark(struct prove *p, uint32_t mark)
{
    p->runs[mark] += p->marks[mark];
    if (p->marks[mark] && p->never && p->never[mark])
        p->now->why = "a loop or branch ran that the sizes rule out";
}

/* Has an input no elements in the draw at hand, or has no output any? Then some values that no other depends on, such
 * as zeros around nothing, need not be computed. */
static bool leaves_out(const struct prove *p)
{
    bool any = false, none = true;
    for (uint32_t i = 0; i < p->run.s.api->n_in; i++)
        any |= p->run.s.in[i].size == 0;
    for (uint32_t i = 0; i < p->run.s.api->n_out; i++) {
        const DLTensor *t = &p->out[i]->dl_tensor;
        bool empty = false;
        for (int32_t k = 0; k < t->ndim; k++)
            empty |= t->shape[k] == 0;
        none &= empty;
    }
    return any || none;
}

void verdict_count(struct prove *p)
{
    const bool leaves = leaves_out(p);
    for (uint32_t i = 0; i < p->run.c.marks; i++)
        count_mark(p, i);
    for (uint32_t i = 0; i < prove_kernels(p); i++) {
        const struct kernel *k = prove_kernel(p, i);
        struct verdict *d = &p->now->of[i];
        d->blocks = 0;
        d->marked = marked_of(p, k, &d->blocks);
        verdict_count_told(p, i);
        count_choices(p, k, d, has_run(p, i));
        d->filled += d->here > 0;
        d->here = 0;
        d->seen += (d->compared && d->compared == k->outs.n) || (leaves && !p->run.ran[i]);
        d->compared = 0;
    }
}

void verdict_count_told(struct prove *p, uint32_t kernel)
{
    const struct kernel *k = prove_kernel(p, kernel);
    struct verdict *d = &p->now->of[kernel];
    d->told = d->integers = INFINITY;
    for (uint32_t j = 0; j < k->nodes.n; j++) {
        const struct node *n = graph_node(p->run.c.graph, k->nodes.data[j]);
        d->told = fmin(d->told, told(p, n));
        d->integers = fmin(d->integers, integers_shown(&p->integers, p->run.c.graph, n));
    }
}

bool verdict_count_of(struct prove *p, uint32_t kernel)
{
    const struct kernel *k = prove_kernel(p, kernel);
    struct verdict *d = &p->now->of[kernel];
    uint32_t mark;
    if (!d->compared || d->compared != k->outs.n)
        return false;
    for (uint32_t at = 0; block_next(p, k, &at, &mark);)
        count_mark(p, mark);
    d->blocks = 0;
    d->marked = marked_of(p, k, &d->blocks);
    count_choices(p, k, d, true);
    d->filled += d->here > 0;
    return true;
}

bool verdict_holds(const struct certificate *c)
{
    return c->of && c->draws >= PROVE_DRAWS && !c->why && c->any;
}

/* Does it store elements that share bytes? */
static bool is_packed(const struct graph *g, const struct kernel *k)
{
    bool packed = k->outs.n > 0;
    for (uint32_t i = 0; i < k->outs.n; i++)
        packed &= elem_bits(value_type(g, k->outs.data[i])->elem) < 8 && value_output(g, k->outs.data[i]) != UINT32_MAX;
    return packed;
}

/* Has nothing that it stores an element at any size? */
static bool stores_none(const struct graph *g, const struct kernel *k)
{
    bool none = k->outs.n > 0;
    for (uint32_t i = 0; i < k->outs.n; i++)
        none &= chance_empty(g, k->outs.data[i]);
    return none;
}

uint32_t verdict_enough(const struct verdict *v)
{
    return v->uses[AXIOM_INTEGERS] ? INTEGER_DRAWS / 2 : PROVE_DRAWS;
}

const char *verdict_of_itself(const struct prove *p, const struct certificate *c, uint32_t i)
{
    const struct verdict *v = &c->of[i];
    if (v->differs && !v->floats)
        return arena_printf(
            &p->run.c.ctx->session,
            "%lld of %lld elements differ: its code is wrong, or right by a law that is not an axiom here",
            (long long)v->wrong, (long long)v->elements);
    if (v->why)
        return v->why;
    if (c->ended)
        return c->ended;
    if (v->tells && v->told < CHANCE_ENOUGH)
        return v->tells;
    if (v->shows < CHANCE_ENOUGH)
        return "it chooses among many elements, of which the draws have shown few";
    if (v->choices < CHANCE_ELEMENTS)
        return "it chooses between elements, and has done so for few of them in all draws";
    if (v->uses[AXIOM_INTEGERS] && v->integers < CHANCE_ENOUGH)
        return "its integers have shown few of their values";
    if (v->marked < v->blocks && !c->whole)
        return arena_printf(&p->run.c.ctx->session,
                            "%u of its %u loops and branches run at few or none of the sizes drawn",
                            v->blocks - v->marked, v->blocks);
    return NULL;
}

const char *verdict_against(const struct prove *p, const struct certificate *c, uint32_t i)
{
    const struct verdict *v = &c->of[i];
    const struct kernel *k = prove_kernel(p, i);
    const bool part = k->kind == KERNEL_HALO || k->piece || is_packed(p->run.c.graph, k);
    const char *why = verdict_of_itself(p, c, i);
    if (why)
        return why;
    if (k->kind == KERNEL_CONTROL || k->kind == KERNEL_OPAQUE || k->region.i != 1)
        return control_against(p, c, i);
    if ((v->seen >= c->draws && (v->filled >= verdict_enough(v) || stores_none(p->run.c.graph, k))) ||
        (part && verdict_holds(c))) /* its readers and the outputs have seen what it stores */
        return NULL;
    return c->interpreted ? c->interpreted : "what it stores was not seen";
}
