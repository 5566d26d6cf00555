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

/* A result and what it may replace lie alike. */
static void match_halos(struct layouter *l, const struct kernel *k)
{
    value_id from[IN_PLACE_MOST], to = k->outs.n ? k->outs.data[0] : (value_id){0};
    uint32_t n = in_place_operands(l->m, k, from, IN_PLACE_MOST);
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
        match_halos(&l, &m->fused.kernels.data[i]);
    return true;
}
