/* plan-halos: zero padding of convolutions becomes a halo around the stored operand (add_halo_kernels.c writes it). */
#include "passes/module/access_function.h"
#include "passes/layout/layout.h"

/* Zero padding of the convolutions that read v, as a halo: {lower widths, upper widths}. */
static void plan_halo(struct layouter *l, const struct kernel *kernel)
{
    const struct node *n = graph_node(l->g, kernel->anchor);
    int64_t tile = kernel->form.winograd ? kernel->form.winograd : 1; /* read whole */
    value_id v = n->in[0];
    struct storage *s = &l->m->fused.storage[v.i];
    int32_t rank = value_type(l->g, v)->rank;
    int64_t need[2 * RANK_MAX] = {0};
    bool any = false;
    if (s->place != PLACE_ARENA || l->constraint[v.i].plain || l->constraint[v.i].fastest)
        return;
    for (int32_t d = 2; d < rank; d++) {
        if (!conv_reach(l->g, n, d - 2, tile, &need[d], &need[rank + d]))
            return;
        if (conv_bounded(l->m, n, d - 2)) {
            int64_t most = d + 1 < rank ? 0 : (BOUNDED_POINTS - 1) * node_ints(n, "strides", &(uint32_t){0})[d - 2];
            need[d] = need[d] < most ? need[d] : most;
            need[rank + d] = need[rank + d] < most ? need[rank + d] : most;
        }
        if (need[d] > 64 || need[rank + d] > 64)
            return;
        any |= need[d] || need[rank + d];
    }
    if (!any)
        return;
    if (!s->halo)
        s->halo = NEW_ARRAY(l->m->arena, int64_t, 2 * rank);
    for (int32_t d = 0; d < 2 * rank; d++)
        if (need[d] > s->halo[d])
            s->halo[d] = need[d];
}

/* A kernel that only pads spatial dims of v: how far; {0}: another one. */
static value_id padded_by(const struct layouter *l, const struct kernel *k, int64_t *widths)
{
    uint32_t count;
    if (k->kind != KERNEL_MAP || k->nodes.n != 1 || k->outs.n != 1 || k->region.i != 1)
        return (value_id){0};
    const struct node *n = graph_node(l->g, k->nodes.data[0]);
    if (n->op != OP_PAD || strcmp(node_str(n, "mode", "constant"), "constant"))
        return (value_id){0};
    const expr_id *lo = node_exprs(n, "lo", &count), *hi = node_exprs(n, "hi", &count);
    for (uint32_t d = 0; d < count; d++)
        if (!fixed(l, lo[d], &widths[d]) || !fixed(l, hi[d], &widths[count + d]) || widths[d] < 0 ||
            widths[count + d] < 0 || (d < 2 && (widths[d] || widths[count + d])))
            return (value_id){0};
    return n->in[0];
}

/* Does a convolution read v with zeros around it? */
static bool is_padded_itself(const struct layouter *l, value_id v)
{
    for (uint32_t i = 1; i < l->g->nodes.n; i++) {
        const struct node *n = graph_node(l->g, (node_id){i});
        uint32_t count;
        if (n->dead || n->op != OP_CONV || n->in[0].i != v.i)
            continue;
        const expr_id *lo = node_exprs(n, "lo", &count), *hi = node_exprs(n, "hi", &count);
        for (uint32_t d = 0; d < count; d++)
            if (!ex_is(l->x, lo[d], 0) || !ex_is(l->x, hi[d], 0))
                return true;
    }
    return false;
}

/* What is stored to be padded lies within its padded copy: the copy is made in place. */
static void plan_frame(struct layouter *l, const struct kernel *k)
{
    int64_t widths[2 * RANK_MAX] = {0};
    value_id v = padded_by(l, k, widths), copy = k->outs.n ? k->outs.data[0] : v;
    const struct storage *s = &l->m->fused.storage[v.i], *of = &l->m->fused.storage[copy.i];
    const struct layout_constraint *a = &l->constraint[v.i], *b = &l->constraint[copy.i];
    if (!v.i || s->place != PLACE_ARENA || of->place != PLACE_ARENA || s->halo || of->halo || a->frame.i ||
        b->frame.i || a->plain || b->plain || a->blocked != b->blocked || a->fastest != b->fastest ||
        graph_value(l->g, v)->def.i == 0 || is_padded_itself(l, v))
        return;
    int32_t rank = value_type(l->g, v)->rank;
    l->m->fused.storage[v.i].halo = arena_copy(l->m->arena, widths, 2 * (size_t)rank * sizeof *widths);
    l->constraint[v.i].frame = copy;
}

/* A result and what it may replace lie alike. */
static void match_halos(struct layouter *l, const struct kernel *k)
{
    value_id from[IN_PLACE_MOST], to = k->outs.n ? k->outs.data[0] : (value_id){0};
    uint32_t n = in_place_operands(l->m, k, from);
    for (uint32_t i = 0; i < n; i++) {
        const struct layout_constraint *a = &l->constraint[to.i], *b = &l->constraint[from[i].i];
        int64_t **mine = &l->m->fused.storage[to.i].halo, **of = &l->m->fused.storage[from[i].i].halo;
        int32_t rank = value_type(l->g, to)->rank;
        if (!*mine || !*of || a->plain || b->plain || a->blocked != b->blocked || a->fastest != b->fastest)
            continue;
        for (int32_t d = 0; d < 2 * rank; d++)
            (*mine)[d] = (*of)[d] = (*mine)[d] > (*of)[d] ? (*mine)[d] : (*of)[d];
    }
}

bool plan_halos(struct module *m)
{
    struct layouter l = layouter_of(m);
    for (uint32_t i = 0; i < m->fused.kernels.n; i++) {
        const struct kernel *k = &m->fused.kernels.data[i];
        if (k->anchor.i && graph_node(m->g, k->anchor)->op == OP_CONV)
            plan_halo(&l, k);
    }
    for (uint32_t i = 0; i < m->fused.kernels.n && module_machine(m)->span; i++)
        plan_frame(&l, &m->fused.kernels.data[i]);
    for (uint32_t i = 0; i < m->fused.kernels.n && module_machine(m)->span; i++)
        match_halos(&l, &m->fused.kernels.data[i]);
    return true;
}
