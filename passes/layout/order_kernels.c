/* order_kernels: the kernels of the top region in the order in which the program runs them (module.order).
 *
 * A kernel comes where the value that it stores stood in the graph; those of one place stay in the order in which they
 * were made.
 */
#include "passes/layout/layout.h"

bool order_kernels(struct module *m)
{
    for (uint32_t i = 0; i < m->kernels.n; i++) {
        if (m->kernels.data[i].region.i != 1)
            continue;
        VEC_PUSH(m->arena, &m->order, i);
        for (uint32_t j = m->order.n - 1; j > 0; j--) {
            uint32_t a = m->order.data[j - 1], b = m->order.data[j];
            if (m->kernels.data[a].order <= m->kernels.data[b].order)
                break;
            m->order.data[j - 1] = b;
            m->order.data[j] = a;
        }
    }
    return true;
}
