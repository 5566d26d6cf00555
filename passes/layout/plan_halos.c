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

bool plan_halos(struct module *m)
{
    struct layouter l = layouter_of(m);
    for (uint32_t i = 0; i < m->fused.kernels.n; i++) {
        const struct kernel *k = &m->fused.kernels.data[i];
        if (k->anchor.i && graph_node(m->g, k->anchor)->op == OP_CONV)
            plan_halo(&l, k);
    }
    return true;
}
