/* Single kernels at large sizes: see single.h. */
#include "cli/commands/compare/single.h"

#include "ir/ops/ops.h"

/* Elements of the values that a kernel reads and computes; and views between two kernels. */
enum { KERNEL_ELEMENTS = 1 << 22, VIEWS = 8, LATER_LEAST = 2 };

static bool is_captured(const struct prove *p, value_id v)
{
    for (uint32_t i = 0; i < prove_kernels(p); i++)
        for (uint32_t j = 0; j < prove_kernel(p, i)->outs.n && capture_keeps(prove_kernel(p, i)); j++)
            if (prove_kernel(p, i)->outs.data[j].i == v.i && prove_kernel(p, i)->region.i == 1)
                return true;
    return false;
}

/* Marks what has to be known to compute v. False: the run does not keep it. */
static bool keep_value(struct prove *p, value_id v, double *elements, int depth)
{
    const struct graph *g = p->run.c.graph;
    const struct node *n = v.i ? value_node(g, v) : NULL;
    if (!n || value_is_const(g, v))
        return true;
    if (is_captured(p, v)) {
        *elements += capture_count(&p->run, value_type(g, v));
        p->part.keep[v.i] = true;
        return true;
    }
    if (op_shape(n->op) != SHAPE_VIEW || depth == VIEWS)
        return false;
    for (uint32_t i = 0; i < n->n_in; i++)
        if (!keep_value(p, n->in[i], elements, depth + 1))
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

static bool choose(struct prove *p, const struct kernel *k)
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
            if (!is_inside(p, k, n->in[j]) && !keep_value(p, n->in[j], &elements, 0))
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
    case PART_CHOICES: return verdict_lacks_choices_of(p, i, p->least + drawn, p->least);
    default: return p->now->of[i].marked < p->now->of[i].blocks;
    }
}

bool single_begin(struct prove *p)
{
    struct arena *arena = &p->run.c.ctx->session;
    const size_t values = p->run.c.graph->values.n + 1;
    bool any = false, all = true;
    if (!p->part.keep) {
        p->part.keep = NEW_ARRAY(arena, bool, values);
        p->part.chosen = NEW_ARRAY(arena, bool, prove_kernels(p) + 1);
    }
    memset(p->part.keep, 0, values);
    capture_begin(&p->run); /* the sizes */
    for (uint32_t i = 0; i < prove_kernels(p); i++) {
        const struct kernel *k = prove_kernel(p, i);
        const bool asked = !p->now->of[i].why && lacks(p, i);
        p->part.chosen[i] = asked && k->region.i == 1 && capture_keeps(k) && choose(p, k);
        any |= p->part.chosen[i];
        all &= p->part.chosen[i] || !asked;
    }
    any &= all || p->part.asks != PART_CHOICES;
    p->run.keep = any ? p->part.keep : NULL;
    return any;
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
    memcpy(given, p->run.got, g->values.n * sizeof *given);
    for (uint32_t i = 0; i < prove_kernels(p); i++)
        for (uint32_t j = 0; j < prove_kernel(p, i)->outs.n && p->part.chosen[i]; j++) {
            const value_id v = prove_kernel(p, i)->outs.data[j];
            p->want[v.i] = NEW(&p->draw, struct tensor);
            p->makes[v.i] = i + 1;
            given[v.i] = NULL;
        }
    if (graph_eval_from(g, in, given, p->want, watch, p, &p->draw, NULL) == EVAL_OK)
        for (uint32_t i = 0; i < prove_kernels(p); i++)
            if (p->part.chosen[i])
                verdict_count_of(p, i);
    for (uint32_t i = 0; i < prove_kernels(p); i++)
        p->now->of[i].compared = p->now->of[i].here = 0;
    return true;
}

void single_end(struct prove *p)
{
    p->run.keep = NULL;
}
