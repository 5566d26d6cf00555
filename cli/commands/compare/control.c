/* mcc prove: loops and branches. What reads the values that one gives shows whether they are right, trips and choices
 * included; the kernels inside are proved with it, if they ran. So it is with a function of the runtime. */
#include "cli/commands/compare/control.h"

#include "cli/commands/compare/chance.h"

enum { VIEWS = 8, LOOPS = 4 }; /* views between two kernels; loops that read one another's values */

uint32_t control_of(const struct prove *p, const struct kernel *k)
{
    const struct graph *g = p->run.c.graph;
    region_id r = k->region;
    while (r.i && graph_get_region(g, r)->depth > 1)
        r = graph_get_region(g, r)->parent;
    const node_id owner = r.i ? graph_get_region(g, r)->owner : (node_id){0};
    for (uint32_t i = 0; owner.i && i < prove_kernels(p); i++)
        for (uint32_t j = 0; j < prove_kernel(p, i)->nodes.n; j++)
            if (prove_kernel(p, i)->kind == KERNEL_CONTROL && prove_kernel(p, i)->nodes.data[j].i == owner.i)
                return i;
    return UINT32_MAX;
}

bool control_runs(const struct prove *p)
{
    for (uint32_t i = 0; i < prove_kernels(p); i++)
        if (prove_kernel(p, i)->region.i != 1)
            return true;
    return false;
}

bool control_lacks(const struct prove *p)
{
    for (uint32_t i = 0; i < prove_kernels(p); i++) {
        const struct verdict *v = &p->now->of[i];
        if (prove_kernel(p, i)->region.i != 1 && prove_kernel(p, i)->kind != KERNEL_CONTROL && !v->why &&
            v->ran < verdict_enough(v))
            return true;
    }
    return false;
}

static const char *against(const struct prove *p, const struct certificate *c, uint32_t kernel, int loops);

/* Is the kernel, or the loop or branch that it is inside of, a proved one that hides nothing of what it reads? Then
 * what reads its values shows what it read. */
static bool is_clear(const struct prove *p, const struct certificate *c, uint32_t kernel, int loops)
{
    const struct graph *g = p->run.c.graph;
    const uint32_t top = prove_kernel(p, kernel)->region.i == 1 ? kernel : control_of(p, prove_kernel(p, kernel));
    if (top == UINT32_MAX || prove_kernel(p, top)->kind != KERNEL_CONTROL || loops == LOOPS)
        return false;
    for (uint32_t i = 0; i < prove_kernels(p); i++) {
        const struct kernel *k = prove_kernel(p, i);
        if (k->region.i == 1 || control_of(p, k) != top)
            continue;
        bool hides = k->kind == KERNEL_OPAQUE || k->kind == KERNEL_CONTROL || c->of[i].uses[AXIOM_INTEGERS] ||
                     verdict_of_itself(p, c, i);
        for (uint32_t j = 0; j < k->nodes.n; j++)
            hides |= chance_hides(g, graph_node(g, k->nodes.data[j]));
        if (hides)
            return false;
    }
    return !verdict_of_itself(p, c, top) && !against(p, c, top, loops + 1);
}

/* Is v compared end to end, or read by kernels that are proved alone? What they compute shows what v is, as the
 * interpreter computes them from its own v. */
static bool is_seen(const struct prove *p, const struct certificate *c, value_id v, int depth, int loops)
{
    const struct graph *g = p->run.c.graph;
    for (const struct graph_user *u = graph_user(g, v, NULL); u; u = graph_user(g, v, u)) {
        const struct node *n = u->node.i ? graph_node(g, u->node) : NULL;
        bool read = false;
        if (n && (n->dead || u->at >= n->n_in || n->in[u->at].i != v.i))
            continue;
        for (uint32_t i = 0; n && i < prove_kernels(p); i++)
            for (uint32_t j = 0; j < prove_kernel(p, i)->nodes.n; j++) {
                if (prove_kernel(p, i)->nodes.data[j].i != u->node.i)
                    continue;
                read = true;
                const enum kernel_kind kind = prove_kernel(p, i)->kind;
                const bool alone = prove_kernel(p, i)->region.i == 1 && kind != KERNEL_CONTROL && kind != KERNEL_OPAQUE;
                if (alone ? !!verdict_against(p, c, i) : !is_clear(p, c, i, loops))
                    return false;
            }
        const bool view = n && !read && op_shape(n->op) == SHAPE_VIEW && depth < VIEWS;
        if (!read && !(n ? view && is_seen(p, c, n->out[0], depth + 1, loops) : value_output(g, v) != UINT32_MAX))
            return false;
    }
    return true;
}

/* loops: so many read one another's values so far. */
static const char *against(const struct prove *p, const struct certificate *c, uint32_t kernel, int loops)
{
    const struct kernel *k = prove_kernel(p, kernel);
    const uint32_t top = k->region.i == 1 ? kernel : control_of(p, k);
    if (k->kind == KERNEL_OPAQUE && c->of[kernel].ran < verdict_enough(&c->of[kernel]))
        return "a function of the runtime that was called in few draws";
    if (top != kernel && k->kind != KERNEL_CONTROL && c->of[kernel].ran < verdict_enough(&c->of[kernel]))
        return "it is inside of a loop or a branch, and ran in few draws";
    if (top != kernel && top != UINT32_MAX && (verdict_of_itself(p, c, top) || against(p, c, top, loops)))
        return "the loop or branch that it is inside of is not proved";
    bool seen = verdict_holds(c) && top != UINT32_MAX;
    for (uint32_t i = 0; seen && i < prove_kernel(p, top)->outs.n; i++)
        seen = is_seen(p, c, prove_kernel(p, top)->outs.data[i], 0, loops);
    if (seen)
        return NULL;
    return prove_kernel(p, top == UINT32_MAX ? kernel : top)->kind == KERNEL_OPAQUE
               ? "what reads the values of the function of the runtime is not proved"
               : "what reads the values of the loop or branch is not proved";
}

const char *control_against(const struct prove *p, const struct certificate *c, uint32_t kernel)
{
    return against(p, c, kernel, 0);
}
