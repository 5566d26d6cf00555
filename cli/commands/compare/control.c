/* mcc prove: loops and branches. What reads the values that one gives shows whether they are right, trips and choices
 * included; the kernels inside are proved with it, if they ran. So it is with a function of the runtime. */
#include "cli/commands/compare/control.h"

enum { VIEWS = 8 }; /* between two kernels */

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

/* Is v compared end to end, or read by kernels that are proved alone? What they compute shows what v is, as the
 * interpreter computes them from its own v. */
static bool is_seen(const struct prove *p, const struct certificate *c, value_id v, int depth)
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
                if (prove_kernel(p, i)->region.i != 1 || kind == KERNEL_CONTROL || kind == KERNEL_OPAQUE ||
                    verdict_against(p, c, i))
                    return false;
            }
        const bool view = n && !read && op_shape(n->op) == SHAPE_VIEW && depth < VIEWS;
        if (!read && !(n ? view && is_seen(p, c, n->out[0], depth + 1) : value_output(g, v) != UINT32_MAX))
            return false;
    }
    return true;
}

const char *control_against(const struct prove *p, const struct certificate *c, uint32_t kernel)
{
    const struct kernel *k = prove_kernel(p, kernel);
    const uint32_t top = k->region.i == 1 ? kernel : control_of(p, k);
    if (k->kind == KERNEL_OPAQUE && c->of[kernel].ran < verdict_enough(&c->of[kernel]))
        return "a function of the runtime that was called in few draws";
    if (top != kernel && k->kind != KERNEL_CONTROL && c->of[kernel].ran < verdict_enough(&c->of[kernel]))
        return "it is inside of a loop or a branch, and ran in few draws";
    if (top != kernel && top != UINT32_MAX && verdict_against(p, c, top))
        return "the loop or branch that it is inside of is not proved";
    bool seen = verdict_holds(c) && top != UINT32_MAX;
    for (uint32_t i = 0; seen && i < prove_kernel(p, top)->outs.n; i++)
        seen = is_seen(p, c, prove_kernel(p, top)->outs.data[i], 0);
    if (seen)
        return NULL;
    return prove_kernel(p, top == UINT32_MAX ? kernel : top)->kind == KERNEL_OPAQUE
               ? "what reads the values of the function of the runtime is not proved"
               : "what reads the values of the loop or branch is not proved";
}
