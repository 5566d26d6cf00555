/* order_kernels: the kernels of the top region in the order in which the program runs them (module.fused.order).
 *
 * A kernel comes where the value that it stores stood in the graph; those of one place stay in the order in which they
 * were made.
 */
#include "passes/layout/layout.h"

bool order_kernels(struct module *m)
{
    const struct run_place *place = kernels_in_order(m, m->arena);
    for (uint32_t i = 0; i < m->fused.kernels.n && place[i].region == 1; i++)
        VEC_PUSH(m->arena, &m->fused.order, place[i].kernel);
    return true;
}
