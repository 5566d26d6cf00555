/* What the value that a map computes is computed of: the stored values under its nodes and views, each at its point.
 */
#include "passes/module/visited.h"
#include "passes/schedule/schedule.h"

expr_id point_along(const struct site *s, expr_id extent)
{
    int64_t hi = ex_hi(s->x, extent), last = hi == INT64_MAX ? hi : hi > 0 ? hi - 1 : 0;
    return ex_sym(s->x, sym_new(s->x, SYM_LOOP, arena_printf(s->arena, "t%u", sym_count(s->x)), 0, last));
}

void domain_points(const struct site *s, expr_id *idx)
{
    const struct type *t = value_type(s->g, s->k->domain);
    for (int32_t d = 0; d < t->rank; d++)
        idx[d] = point_along(s, t->dims[d]);
}

static void walk(const struct operand_walk *w, struct visited *seen, value_id v, const expr_id *idx, uint32_t nesting)
{
    const struct site *s = w->site;
    if (nesting > 64 || value_is_splat(s->g, v, &(double){0}, &(int64_t){0}) || !visit(seen, v, idx))
        return;
    if (s->m->fused.storage[v.i].place != PLACE_NONE && s->k->outs.data[0].i != v.i) {
        if (w->operand)
            w->operand(w->user, v, idx);
        return;
    }
    const struct node *n = value_node(s->g, v);
    bool view = n && op_shape(n->op) == SHAPE_VIEW;
    if (!n || (view ? !w->view(w->user, n, idx) : op_shape(n->op) != SHAPE_MAP))
        return;
    for (uint32_t k = 0; k < n->n_in && (n->op == OP_CONCAT || k < (view ? 1 : 3)); k++) {
        expr_id at[RANK_MAX];
        walk(w, seen, operand_at(s->g, n, k, idx, at), at, nesting + 1);
    }
}

void operands_walk(const struct operand_walk *w, const expr_id *idx)
{
    walk(w, &(struct visited){.g = w->site->g, .arena = w->site->arena}, w->site->k->domain, idx, 0);
}
