/* add-halo-kernels: the zeros of a halo are written anew in each run, by a kernel of their own right after the one that
 * stores the value. */
#include "passes/module/module.h"

bool add_halo_kernels(struct module *m)
{
    uint32_t n = m->fused.kernels.n;
    for (uint32_t i = 0; i < n; i++) {
        const struct kernel *k = &m->fused.kernels.data[i];
        for (uint32_t o = 0; o < k->outs.n; o++) {
            value_id v = k->outs.data[o];
            struct kernel h = {.kind = KERNEL_HALO, .region = k->region, .order = k->order};
            if (!m->fused.storage[v.i].halo || k->piece > 1 ||
                m->fused.constraint[v.i].frame.i) /* padded by its reader */
                continue;
            VEC_PUSH(m->arena, &h.outs, v);
            VEC_PUSH(m->arena, &m->fused.kernels, h);
            k = &m->fused.kernels.data[i];
        }
    }
    return true;
}
