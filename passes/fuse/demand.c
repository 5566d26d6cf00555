/* What consumers demand of a value: which kernel wants it, at which of its points, and whether in memory. A demand on a
 * node's result becomes demands on its operands, at the points that the node reads. */
#include "passes/fuse/fuse.h"
#include "passes/module/access_function.h"

sym_id demand_symbol(struct fuser *f, expr_id extent, const char *name)
{
    int64_t hi = ex_hi(f->x, extent);
    return sym_new(f->x, SYM_LOOP, name, 0, hi == INT64_MAX ? hi : (hi > 0 ? hi - 1 : 0));
}

static bool same_point(const struct fuser *f, value_id v, const expr_id *a, const expr_id *b)
{
    const struct type *t = value_type(f->g, v);
    for (int32_t d = 0; d < t->rank; d++)
        if (a[d].i != b[d].i)
            return false;
    return true;
}

static void demand_add(struct fuser *f, value_id v, struct demand want)
{
    struct demand *have = &f->demand[v.i];
    if (have->kernel == DEMAND_NONE) {
        *have = want;
        return;
    }
    have->hard |= want.hard;
    if (have->depth < want.depth)
        have->depth = want.depth;
    if (have->kernel != want.kernel) {
        have->kernel = DEMAND_MANY;
        return;
    }
    if (have->kernel == DEMAND_MANY || !have->idx || !want.idx)
        return;
    if (!same_point(f, v, have->idx, want.idx)) {
        have->several_points = true;
        have->bijective = false;
    }
    have->bijective &= want.bijective;
    if (have->context != want.context)
        have->context = UINT32_MAX;
}

void demand_hard(struct fuser *f, value_id v, uint32_t kernel, uint32_t depth)
{
    if (v.i && !value_is_const(f->g, v))
        demand_add(f, v, (struct demand){.kernel = kernel, .hard = true, .depth = depth});
}

void demand_at(struct fuser *f, value_id v, node_id via, const struct demand *from, const expr_id *idx, bool bijective,
               uint32_t context)
{
    if (value_is_const(f->g, v))
        return;
    int32_t rank = value_type(f->g, v)->rank;
    struct demand want = {
        .kernel = from->kernel, .bijective = bijective, .context = context, .via = via, .depth = from->depth + 1};
    want.idx = arena_copy(f->m->arena, idx, (size_t)rank * sizeof *idx);
    demand_add(f, v, want);
}

void demand_operands(struct fuser *f, node_id id, const struct demand *d)
{
    const struct node *n = graph_node(f->g, id);
    expr_id idx[RANK_MAX], cond;
    bool view = op_shape(n->op) == SHAPE_VIEW;
    if (op_shape(n->op) == SHAPE_INDEX) {
        /* The data is read at run-time indices: memory. One index is read at a point of its own, several, or
         * a dear one, from memory. */
        struct index_access a;
        index_access(f->g, n, d->idx, &a);
        demand_hard(f, n->in[0], d->kernel, 0);
        if (a.component >= 0 || dear_index(f, n))
            demand_hard(f, n->in[1], d->kernel, 0);
        else
            demand_at(f, n->in[1], id, d, a.index,
                      d->bijective && n->op == OP_GATHER && value_type(f->g, n->in[0])->rank == 1, d->context);
        return;
    }
    for (uint32_t k = 0; k < n->n_in; k++) {
        if (!view) {
            demand_at(f, n->in[k], id, d, d->idx, d->bijective, d->context);
            continue;
        }
        if (n->op == OP_PAD && k == 1) {
            demand_at(f, n->in[k], id, d, idx, false, d->context);
            continue;
        }
        view_index(f->g, n, k, d->idx, idx, &cond);
        demand_at(f, n->in[k], id, d, idx, d->bijective && view_invertible(n->op), d->context);
    }
}

void demand_reduce_operand(struct fuser *f, node_id id, const struct demand *d)
{
    const struct node *n = graph_node(f->g, id);
    const struct type *t = value_type(f->g, n->in[0]);
    uint32_t n_axes;
    const int64_t *axes = node_ints(n, "axes", &n_axes);
    expr_id idx[RANK_MAX];
    uint32_t a = 0, o = 0;
    for (int32_t i = 0; i < t->rank; i++) {
        if (a < n_axes && axes[a] == i) {
            const char *name = arena_printf(f->m->arena, "r%u.%d", id.i, i);
            idx[i] = ex_sym(f->x, demand_symbol(f, t->dims[i], name));
            a++;
        } else {
            idx[i] = d->idx[o++];
        }
    }
    demand_at(f, n->in[0], id, d, idx, false, id.i);
}

void demand_segments(struct fuser *f, node_id id, const struct demand *d)
{
    const struct node *n = graph_node(f->g, id);
    const struct type *t = value_type(f->g, n->in[0]);
    int64_t axis = node_int(n, "axis", 0);
    expr_id idx[RANK_MAX];
    for (int32_t i = 0; i < t->rank; i++)
        idx[i] = i == axis ? ex_sym(f->x, demand_symbol(f, t->dims[i], arena_printf(f->m->arena, "r%u", id.i)))
                           : d->idx[i];
    demand_at(f, n->in[0], id, d, idx, false, id.i);
    demand_hard(f, n->in[1], d->kernel, 0);
}

bool demand_row_mask(const struct fuser *f, const struct demand *d, int32_t rank, uint32_t *mask)
{
    const struct kernel *k = &f->m->fused.kernels.data[d->kernel - 1];
    uint32_t first = f->domain_first.data[d->kernel - 1].i;
    int32_t domain_rank = value_type(f->g, k->domain)->rank;
    *mask = 0;
    for (int32_t i = 0; i < rank; i++) {
        sym_id s = ex_as_sym(f->x, d->idx[i]);
        if (ex_is_const(f->x, d->idx[i], NULL))
            continue;
        if (s.i < first || s.i >= first + (uint32_t)domain_rank || domain_rank == 0)
            return false;
        *mask |= 1u << (s.i - first);
    }
    return true;
}
