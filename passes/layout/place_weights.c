/* place_weights: offsets of the stored constants in the weights segment, in the order in which they were asked for. */
#include "passes/layout/layout.h"

enum { WEIGHT_ALIGN = 64 };     /* a cache line, and what the emitters promise of a load */

bool place_weights(struct module *m)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < m->plan.weights.n; i++) {
        struct weight *w = &m->plan.weights.data[i];
        int64_t n = 0;
        ex_is_const(m->ctx->exprs, m->fused.storage[w->value.i].size, &n);
        w->offset = at;
        w->bytes = (uint64_t)n * elem_size(value_type(m->g, w->value)->elem);
        at += (w->bytes + WEIGHT_ALIGN - 1) / WEIGHT_ALIGN * WEIGHT_ALIGN;
    }
    m->plan.weights_bytes = at;
    return true;
}
