/* Single kernels at large sizes: see single.h. */
#include "cli/commands/compare/single.h"

#include "cli/commands/compare/chance.h"
#include "ir/ops/field.h"
#include "ir/ops/ops.h"

/* Elements of the values that a kernel reads and computes; and views between two kernels. */
enum { KERNEL_ELEMENTS = 1 << 22, VIEWS = 8, LATER_LEAST = 2 };

/* Values that a kernel reads and others have stored. */
struct reads {
    value_id *data;
    uint32_t n, cap;
};

static bool is_captured(const struct prove *p, value_id v)
{
    for (uint32_t i = 0; i < prove_kernels(p); i++)
        for (uint32_t j = 0; j < prove_kernel(p, i)->outs.n && capture_keeps(prove_kernel(p, i)); j++)
            if (prove_kernel(p, i)->outs.data[j].i == v.i && prove_kernel(p, i)->region.i == 1)
                return true;
    return false;
}

/* May drawn floats replace value v? Not where it is an integer, or arithmetic makes sizes or indices of it. */
static bool may_replace(const struct prove *p, value_id v)
{
    const struct type *t = value_type(p->run.c.graph, v);
    const struct integer_role *role = &p->part.role[v.i];
    return t->kind == TYPE_TENSOR && field_form(t->elem) && elem_bits(t->elem) >= 8 && !role->decides && !role->extent;
}

/* Marks what has to be known to compute v, and puts it into `reads`. False: the run does not keep it. */
static bool keep_value(struct prove *p, value_id v, struct reads *reads, double *elements, int depth)
{
    const struct graph *g = p->run.c.graph;
    const struct node *n = v.i ? value_node(g, v) : NULL;
    if (!n || value_is_const(g, v))
        return true;
    if (is_captured(p, v)) {
        *elements += capture_count(&p->run, value_type(g, v));
        p->part.keep[v.i] = true;
        VEC_PUSH(&p->draw, reads, v);
        return true;
    }
    if (op_shape(n->op) != SHAPE_VIEW || depth == VIEWS)
        return false;
    for (uint32_t i = 0; i < n->n_in; i++)
        if (!keep_value(p, n->in[i], reads, elements, depth + 1))
            return false;
    return true;
}

static bool is_inside(const struct prove *p, const struct kernel *k, value_id v)
{
    for (uint32_t i = 0; i < k->nodes.n; i++)
        if (v.i && p->run.c.graph->values.data[v.i].def.i == k->nodes.data[i].i)
            return true;
    return false;
}

static bool choose(struct prove *p, const struct kernel *k, struct reads *reads)
{
    const struct graph *g = p->run.c.graph;
    double elements = 0;
    for (uint32_t i = 0; i < k->nodes.n; i++) {
        const struct node *n = graph_node(g, k->nodes.data[i]);
        if (n->n_region)
            return false;
        for (uint32_t j = 0; j < n->n_out; j++)
            elements += capture_count(&p->run, value_type(g, n->out[j]));
        for (uint32_t j = 0; j < n->n_in; j++)
            if (!is_inside(p, k, n->in[j]) && !keep_value(p, n->in[j], reads, &elements, 0))
                return false;
    }
    for (uint32_t j = 0; j < k->outs.n; j++)
        p->part.keep[k->outs.data[j].i] = true;
    return elements <= KERNEL_ELEMENTS;
}

static bool lacks(struct prove *p, uint32_t i)
{
    const uint32_t drawn = p->choosing - 1;
    switch (p->part.asks) {
    case PART_LATER:
        return p->part.sizes[i] == p->part.size && (p->part.turn < LATER_LEAST || verdict_lacks_later(p, i));
    case PART_INTEGERS: return p->now->of[i].uses[AXIOM_INTEGERS] || p->now->of[i].narrows;
    case PART_CHOICES: return verdict_lacks_choices_of(p, i, p->least + drawn, p->least);
    case PART_TIES: return verdict_lacks_ties_of(p, i, 0);
    default: return p->now->of[i].marked < p->now->of[i].blocks;
    }
}

/* Draws for the kernel what it reads, unless its own results are drawn for another one. Of what a kernel that is chosen
 * has stored nothing is drawn: in every other draw some kernels are left out for others. */
static bool choose_drawn(struct prove *p, uint32_t kernel, const struct reads *reads)
{
    const struct kernel *k = prove_kernel(p, kernel);
    bool free = p->part.turn % 2 == 0 || integer_random(&p->part.state) % 2;
    for (uint32_t i = 0; i < k->outs.n; i++)
        free &= !p->part.fresh[k->outs.data[i].i];
    for (uint32_t i = 0; i < reads->n; i++)
        for (uint32_t j = 0; j < kernel; j++)
            for (uint32_t o = 0; o < prove_kernel(p, j)->outs.n && p->part.chosen[j]; o++)
                free &= prove_kernel(p, j)->outs.data[o].i != reads->data[i].i;
    for (uint32_t i = 0; i < reads->n && free; i++)
        p->part.fresh[reads->data[i].i] = may_replace(p, reads->data[i]);
    return free;
}

/* May what the kernel stores be drawn in its place? */
static bool may_skip(const struct prove *p, uint32_t kernel)
{
    const struct kernel *k = prove_kernel(p, kernel);
    bool may = !p->part.chosen[kernel] && k->region.i == 1 && capture_keeps(k);
    for (uint32_t i = 0; i < k->outs.n && may; i++)
        may = may_replace(p, k->outs.data[i]);
    return may;
}

/* A function may be of several kernels. */
static void set_skips(struct prove *p, uint32_t kernel, bool skips)
{
    for (const struct kernel *code = prove_code(p, kernel); code; code = code->version.of) {
        const struct lowered_kernel *l = verdict_lowered(p, code);
        if (l && l->facts.blocks)
            p->skips[l->facts.first] = skips;
    }
}

/* Skips the kernels that are not judged in this draw. Random numbers replace those of their results that judged kernels
 * read. */
static void skip_others(struct prove *p)
{
    p->part.skips = p->skips && !p->part.unskipped && p->part.asks != PART_CHOICES && p->part.asks != PART_TIES;
    for (uint32_t way = 2; p->part.skips && way-- > 0;)
        for (uint32_t i = 0; i < prove_kernels(p); i++) {
            if (may_skip(p, i) != way)
                continue;
            set_skips(p, i, way);
            for (uint32_t j = 0; j < prove_kernel(p, i)->outs.n && way; j++)
                p->part.fresh[prove_kernel(p, i)->outs.data[j].i] = p->part.keep[prove_kernel(p, i)->outs.data[j].i];
        }
}

static void make_lists(struct prove *p, size_t values)
{
    struct arena *arena = &p->run.c.ctx->session;
    struct integers own = {0};
    p->part.keep = NEW_ARRAY(arena, bool, values);
    p->part.fresh = NEW_ARRAY(arena, bool, values);
    p->part.chosen = NEW_ARRAY(arena, bool, prove_kernels(p) + 1);
    integers_roles(&own, p->run.c.graph);
    p->part.role = own.role;
}

bool single_begin(struct prove *p)
{
    const size_t values = p->run.c.graph->values.n + 1;
    bool any = false;
    if (!p->part.keep)
        make_lists(p, values);
    memset(p->part.keep, 0, values);
    memset(p->part.fresh, 0, values);
    memset(p->part.chosen, 0, prove_kernels(p));
    capture_begin(&p->run); /* the sizes */
    p->part.all = true;
    for (uint32_t i = 0; i < prove_kernels(p); i++) {
        const struct kernel *k = prove_kernel(p, i);
        struct reads reads = {0};
        if (p->now->of[i].why || p->now->of[i].differs || !lacks(p, i))
            continue;
        const bool can = k->region.i == 1 && capture_keeps(k) && choose(p, k, &reads);
        p->part.chosen[i] = can && (p->part.asks != PART_TIES || choose_drawn(p, i, &reads));
        any |= p->part.chosen[i];
        p->part.all &= can;
    }
    any &= p->part.all || (p->part.asks != PART_CHOICES && p->part.asks != PART_INTEGERS);
    p->run.keep = any ? p->part.keep : NULL;
    if (any)
        skip_others(p);
    return any;
}

void single_draw(struct prove *p)
{
    const uint32_t kernel = p->run.ended;
    for (uint32_t i = 0; kernel != UINT32_MAX && p->run.keep && i < prove_kernel(p, kernel)->outs.n; i++) {
        const value_id v = prove_kernel(p, kernel)->outs.data[i];
        int64_t n = 0;
        const void **at = p->part.fresh[v.i] ? capture_places(&p->run, &p->draw, v, &n) : NULL;
        if (!at)
            continue;
        struct tensor *t = p->run.got[v.i];
        const size_t size = elem_size(t->elem);
        if (p->part.asks == PART_TIES)
            prove_draw_tied(p, v, t->elem, t->data, (size_t)n, &p->part.state, p->part.draw);
        for (int64_t k = 0; p->part.asks != PART_TIES && k < n; k++)
            field_store(t->elem, (uint32_t)(integer_random(&p->part.state) % FIELD_N), false,
                        (char *)t->data + (size_t)k * size);
        for (int64_t k = 0; k < n; k++)
            memcpy((void *)(uintptr_t)at[k], (const char *)t->data + (size_t)k * size, size);
    }
}

bool single_ends(const struct prove *p)
{
    for (uint32_t i = 0; i < prove_kernels(p); i++)
        if (p->part.chosen[i] && !p->run.ran[i])
            return false;
    return true;
}

bool single_gains(const struct prove *p)
{
    if (p->part.asks != PART_BLOCKS)
        return true;
    for (uint32_t i = 0; i < prove_kernels(p); i++)
        if (p->part.chosen[i] && verdict_gains_of(p, i))
            return true;
    return false;
}

/* Wants what shows the chosen kernels' choices, or for PART_INTEGERS their integers. */
static void want_shown(struct prove *p)
{
    const struct graph *g = p->run.c.graph;
    for (uint32_t i = 0; i < prove_kernels(p); i++)
        for (uint32_t j = 0; j < prove_kernel(p, i)->nodes.n && p->part.chosen[i]; j++) {
            const struct node *n = graph_node(g, prove_kernel(p, i)->nodes.data[j]);
            if (p->part.asks != PART_INTEGERS && verdict_tells(p, n))
                prove_want(p, chance_told(n));
            for (uint32_t k = 0; k < n->n_in + n->n_out && p->part.asks == PART_INTEGERS; k++) {
                const value_id v = k < n->n_in ? n->in[k] : n->out[k - n->n_in];
                if (p->integers.watched[v.i] && !p->given[v.i] && (p->makes[v.i] || !p->run.got[v.i]))
                    prove_want(p, v);
            }
        }
}

/* What a draw in which the kernel was compared tells of its choices. */
static void count_told(struct prove *p, uint32_t kernel)
{
    const struct graph *g = p->run.c.graph;
    for (uint32_t j = 0; j < prove_kernel(p, kernel)->nodes.n && p->part.asks != PART_INTEGERS; j++) {
        const struct node *n = graph_node(g, prove_kernel(p, kernel)->nodes.data[j]);
        if (verdict_tells(p, n))
            prove_count(p, chance_told(n));
    }
    verdict_count_told(p, kernel);
}

/* What the draw shows of integers that the chosen kernels read and compute, each value once, if all were compared. */
static void count_integers(struct prove *p, const struct tensor *in)
{
    const struct graph *g = p->run.c.graph;
    struct arena *arena = &p->run.c.ctx->session;
    for (uint32_t i = 0; i < prove_kernels(p); i++)
        if (p->part.chosen[i] && p->now->of[i].compared != prove_kernel(p, i)->outs.n)
            return;
    for (uint32_t i = 0; i < g->inputs.n; i++)
        integers_count(&p->integers, arena, g->inputs.data[i].value, &in[i]);
    for (uint32_t v = 1; v < g->values.n; v++) {
        prove_count(p, (value_id){v});
        if (p->run.got[v] && !p->makes[v])
            integers_count(&p->integers, arena, (value_id){v}, p->run.got[v]);
    }
}

/* Is a judged kernel's result wrong in a draw that skips kernels? The skipped ones may also store padding, which the
 * judged kernel reads. So the verdicts are restored, and no later draw skips kernels. */
static bool differs_as_skipped(struct prove *p, const struct verdict *before)
{
    bool differs = false;
    for (uint32_t i = 0; i < prove_kernels(p) && p->part.skips; i++)
        differs |= p->now->of[i].differs != before[i].differs;
    if (differs)
        memcpy(p->now->of, before, prove_kernels(p) * sizeof *before);
    p->part.unskipped |= differs;
    return differs;
}

bool single_compare(struct prove *p, eval_watch *watch)
{
    struct context *ctx = p->run.c.ctx;
    struct graph *g = p->run.c.graph;
    struct tensor *in = NEW_ARRAY(&p->draw, struct tensor, g->inputs.n + 1);
    struct tensor **given = NEW_ARRAY(&p->draw, struct tensor *, g->values.n + 1);
    p->want = NEW_ARRAY(&p->draw, struct tensor *, g->values.n + 1);
    p->makes = NEW_ARRAY(&p->draw, uint32_t, g->values.n + 1);
    for (uint32_t i = 0; i < g->inputs.n; i++)
        if (!file_tensor_widen(ctx, &p->run.s.in[i], &in[i]))
            return false;
    p->given = NEW_ARRAY(&p->draw, const struct tensor *, g->values.n + 1);
    for (uint32_t i = 0; i < g->inputs.n; i++)
        p->given[g->inputs.data[i].value.i] = &in[i];
    memcpy(given, p->run.got, g->values.n * sizeof *given);
    for (uint32_t i = 0; i < prove_kernels(p); i++)
        for (uint32_t j = 0; j < prove_kernel(p, i)->outs.n && p->part.chosen[i]; j++) {
            const value_id v = prove_kernel(p, i)->outs.data[j];
            p->want[v.i] = NEW(&p->draw, struct tensor);
            p->makes[v.i] = i + 1;
            given[v.i] = NULL;
        }
    want_shown(p);
    const struct verdict *before = arena_copy(&p->draw, p->now->of, prove_kernels(p) * sizeof *before);
    const bool ok = graph_eval_from(g, in, given, p->want, watch, p, &p->draw, NULL) == EVAL_OK;
    p->part.again = differs_as_skipped(p, before);
    if (ok && !p->part.again && p->part.asks == PART_INTEGERS)
        count_integers(p, in);
    if (ok && !p->part.again)
        for (uint32_t i = 0; i < prove_kernels(p); i++)
            if (p->part.chosen[i] && verdict_count_of(p, i))
                count_told(p, i);
    for (uint32_t i = 0; i < prove_kernels(p); i++)
        p->now->of[i].compared = p->now->of[i].here = 0;
    return true;
}

void single_end(struct prove *p)
{
    if (p->part.skips)
        memset(p->skips, 0, p->run.c.marks);
    p->part.skips = false;
    p->run.keep = NULL;
}
