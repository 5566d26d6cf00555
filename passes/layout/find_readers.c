/* find_readers: what those who read a value need of its order.
 *
 * Calls of the runtime, regions and the program read row-major memory (constraint.plain); a contraction takes its lanes
 * along the last free dim of its second operand, which had better be contiguous (constraint.fastest). Channels are
 * blocked later.
 */
#include "passes/module/access_function.h"
#include "passes/module/analysis.h"
#include "passes/layout/layout.h"

/* The second operand of a contraction wants its last free dim contiguous: that is where the lanes go. */
static void want_order(struct layouter *l, const struct node *n)
{
    int32_t free_dim[RANK_MAX], count = dot_free(l->g, n, 1, free_dim);
    value_id b = n->in[1];
    if (count > 0 && l->m->fused.stored[b.i] && l->m->fused.storage[b.i].place == PLACE_ARENA &&
        !l->constraint[b.i].plain)
        l->constraint[b.i].fastest = free_dim[count - 1] + 1;
}

/* Too few to be blocked: groups of channels lie together where the channels are innermost. */
static bool few_channels(const struct layouter *l, value_id x)
{
    int64_t c;
    return l->m->fused.stored[x.i] && l->m->fused.storage[x.i].place == PLACE_ARENA && !l->constraint[x.i].plain &&
           fixed(l, value_type(l->g, x)->dims[1], &c) && c < MIN_BLOCKED;
}

bool *read_as_a_whole(const struct module *m)
{
    bool *whole = NEW_ARRAY(m->arena, bool, m->fused.n_values);
    struct exprs *x = m->ctx->exprs;
    for (uint32_t i = 0; i < m->fused.kernels.n; i++) {
        const struct kernel *k = &m->fused.kernels.data[i];
        if (!k->anchor.i || (k->kind != KERNEL_OPAQUE && k->kind != KERNEL_CONTROL))
            continue;
        const struct node *n = graph_node(m->g, k->anchor);
        for (uint32_t o = 0; o < n->n_in; o++)
            whole[view_plain(m->g, n->in[o]).i] = true;
        for (uint32_t o = 0; o < k->outs.n; o++)
            whole[k->outs.data[o].i] = true;
    }
    for (uint32_t r = 2; r < m->g->regions.n; r++) {
        const struct region *region = graph_get_region(m->g, (region_id){r});
        for (uint32_t i = 0; i < region->params.n; i++)
            whole[region->params.data[i].i] = true;
        for (uint32_t i = 0; i < region->results.n; i++)
            whole[region->results.data[i].i] = true;
    }
    for (sym_id s = sym_next(x, SYM_VALUE, (sym_id){0}); s.i; s = sym_next(x, SYM_VALUE, s)) {
        const struct symbol *sym = sym_get(x, s);
        if (sym->value && sym->value < m->fused.n_values)
            whole[sym->value] = true;
    }
    return whole;
}

bool find_readers(struct module *m)
{
    struct layouter layouter = layouter_of(m), *l = &layouter;
    const bool *whole = read_as_a_whole(m);
    for (uint32_t v = 0; v < m->fused.n_values; v++)
        l->constraint[v].plain |= whole[v];
    for (uint32_t i = 0; i < l->m->fused.kernels.n; i++) {   /* now that it is known what has to stay row-major */
        const struct kernel *k = &l->m->fused.kernels.data[i];
        const struct node *n = k->anchor.i ? graph_node(l->g, k->anchor) : NULL;
        if (n && n->op == OP_DOT)
            want_order(l, n);
        else if (n && n->op == OP_CONV && dot_group(l->m, n) > 1 && few_channels(l, n->in[0]))
            l->constraint[n->in[0].i].fastest = 2;
    }
    return true;
}
