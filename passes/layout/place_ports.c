/* place_ports: what the caller gives and takes lies where the caller has it, everything else that is stored in the
 * arena.
 *
 * In: kernels. Out: module.fused.storage with places only, module.fused.constraint with the outputs, which are
 * row-major. An output of dynamic size is in the arena (or a segment: plan_memory) until the program hands it over.
 */
#include "passes/module/access_function.h"
#include "passes/layout/layout.h"

bool place_ports(struct module *m)
{
    struct graph *g = m->g;
    m->fused.storage = NEW_ARRAY(m->arena, struct storage, m->fused.n_values);
    m->fused.constraint = NEW_ARRAY(m->arena, struct layout_constraint, m->fused.n_values);
    for (uint32_t k = 0; k < g->inputs.n; k++) {
        struct storage *s = &m->fused.storage[g->inputs.data[k].value.i];
        if (!in_memory(value_type(g, g->inputs.data[k].value)))
            continue;
        s->place = PLACE_INPUT;
        s->port = k;
    }
    for (uint32_t k = 0; k < g->outputs.n; k++) {
        struct storage *s = &m->fused.storage[g->outputs.data[k].value.i];
        if (!in_memory(value_type(g, g->outputs.data[k].value)))
            continue;
        if (!late_type(m->ctx->exprs,
                       value_type(g, g->outputs.data[k].value))) /* else the caller cannot know its size */
            s->place = PLACE_OUTPUT;
        s->port = k;
        m->fused.constraint[g->outputs.data[k].value.i].plain = true;
    }
    for (uint32_t v = 1; v < m->fused.n_values; v++)
        if (m->fused.stored[v] && m->fused.storage[v].place == PLACE_NONE && in_memory(value_type(g, (value_id){v})))
            m->fused.storage[v].place = PLACE_ARENA;
    return true;
}
