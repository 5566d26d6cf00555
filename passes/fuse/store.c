/* Whether a value is stored, or computed anew wherever it is wanted: what one and the other cost. */
#include "ir/target/budget.h"
#include "passes/fuse/fuse.h"
#include "passes/module/access_function.h"
#include "passes/module/analysis.h"

enum {
    DEAR_DEPTH = 6,
    EPILOGUE_DEPTH = 16,
    FEW_FETCHED = 16, /* elements that an index fetches: a vector */
    MAX_INLINE = 48, /* values computed inside one another: bounds the emitter's recursion and a kernel's size */
    FOLLOWED_MOST = 32, /* values between a row and the result */
    INDEX_PARTS = 400, /* of a point (ex_size of all its dims) that views have made of one */
};

/* Does computing v again at every use cost more than a store and loads? A look at the maps right after it. */
static bool dear(const struct fuser *f, value_id v, int depth)
{
    const struct node *n = value_node(f->g, v);
    if (!n || value_is_const(f->g, v) || f->required[v.i] || depth > DEAR_DEPTH)
        return false;
    if (op_cost(n->op) == COST_DEAR &&
        !(n->op == OP_DIV && value_is_splat(f->g, n->in[1], &(double){0}, &(int64_t){0})))
        return true;
    if (op_shape(n->op) != SHAPE_MAP && op_shape(n->op) != SHAPE_VIEW)
        return false;
    for (uint32_t k = 0; k < n->n_in; k++)
        if (n->in[k].i && dear(f, n->in[k], depth + 1))
            return true;
    return false;
}

/* The dims of v that scratch for a row has, where d is what two stages of a row want and v is dear; 0: it cannot be
 * kept there. The row's indices stand still, the others address the buffer. */
static uint32_t local_dims(const struct fuser *f, value_id v, const struct demand *d)
{
    const struct type *t = value_type(f->g, v);
    const struct kernel *k = &f->m->fused.kernels.data[d->kernel - 1];
    uint32_t first = f->domain_first.data[d->kernel - 1].i, inner = 0;
    int32_t domain_rank = value_type(f->g, k->domain)->rank;
    int64_t bytes = elem_size(t->elem), most = budget(module_machine(f->m), SHARE_L2_KEPT), n;
    for (int32_t i = 0; i < t->rank; i++) {
        bool row = false, other = false;
        for (int32_t j = 0; j < domain_rank; j++)
            if (ex_uses(f->x, d->idx[i], (sym_id){first + (uint32_t)j}))
                *(k->row_mask >> j & 1 ? &row : &other) = true;
        if (row && other)
            return 0;
        if (row || ex_is_const(f->x, d->idx[i], &n))
            continue;
        if (!ex_is_const(f->x, t->dims[i], &n) || n < 1 || n > most || (bytes *= n) > most)
            return 0;
        inner |= 1u << i;
    }
    return inner;
}

/* Do several stages of a row want v, which is dear? */
static bool wanted_by_stages(const struct fuser *f, value_id v, const struct demand *d)
{
    const struct type *t = value_type(f->g, v);
    return d->context == UINT32_MAX && d->kernel != DEMAND_MANY &&
           f->m->fused.kernels.data[d->kernel - 1].kind == KERNEL_MAP &&
           f->m->fused.kernels.data[d->kernel - 1].has_rows && d->idx && f->m->asked.opt_level > 0 && t->rank <= 31 &&
           elem_size(t->elem) >= 4 && dear(f, v, 0);
}

/* What a value made of a row of v is, in dims of v: all of the row, a number for it, the same as a row of one. */
enum made { MADE_NOTHING, MADE_ROW, MADE_NUMBER, MADE_ONE };

/* What n makes of a row of v along dim; MADE_NOTHING: what may belong to another row. */
static enum made made_of(const struct fuser *f, const struct node *n, enum made from, const struct type *row,
                         int32_t dim)
{
    const struct type *t = value_type(f->g, n->out[0]);
    if (op_shape(n->op) == SHAPE_MAP)
        return from;
    if (n->op == OP_REDUCE) {
        uint32_t n_axes;
        const int64_t *axes = node_ints(n, "axes", &n_axes);
        return from == MADE_ROW && n_axes == 1 && axes[0] == dim ? MADE_NUMBER : MADE_NOTHING;
    }
    if (n->op == OP_BROADCAST)
        return from == MADE_ONE && type_same_shape(t, row) ? MADE_ROW : MADE_NOTHING;
    if (n->op != OP_RESHAPE || from != MADE_NUMBER || t->rank != row->rank || !ex_is(f->x, t->dims[dim], 1))
        return MADE_NOTHING;
    for (int32_t d = 0; d < t->rank; d++)
        if (d != dim && t->dims[d].i != row->dims[d].i)
            return MADE_NOTHING;
    return MADE_ONE;
}

/* Does all that kernel k makes of a row of v along dim lie in the same row of its result? So the last stage reads v at
 * the point that it stores, and reductions of rows come before. */
static bool read_where_stored(const struct fuser *f, const struct kernel *k, value_id v, int32_t dim)
{
    value_id made[FOLLOWED_MOST] = {v};
    enum made as[FOLLOWED_MOST] = {MADE_ROW};
    uint32_t n_made = 1;
    for (uint32_t i = k->nodes.n; i > 0; i--) { /* consumers come first */
        const struct node *n = graph_node(f->g, k->nodes.data[i - 1]);
        enum made from = MADE_NOTHING;
        for (uint32_t j = 0; j < n->n_in; j++)
            for (uint32_t l = 0; l < n_made; l++) {
                if (n->in[j].i != made[l].i)
                    continue;
                if (from && from != as[l])
                    return false;
                from = as[l];
            }
        if (!from)
            continue;
        from = made_of(f, n, from, value_type(f->g, v), dim);
        if (!from || n_made == FOLLOWED_MOST)
            return false;
        as[n_made] = from;
        made[n_made++] = n->out[0];
    }
    return true;
}

/* The one dim of v, of dynamic extent, along which the row of the kernel's result may hold v, where d is as for
 * local_dims; 0: it may not. */
static uint32_t result_dims(const struct fuser *f, value_id v, const struct demand *d)
{
    const struct kernel *k = &f->m->fused.kernels.data[d->kernel - 1];
    const struct type *t = value_type(f->g, v);
    uint32_t inner = 0;
    if (k->piece || t->elem != value_type(f->g, k->domain)->elem || register_elem(t->elem) != t->elem ||
        !type_same_shape(t, value_type(f->g, k->domain)))
        return 0;
    for (int32_t i = 0; i < t->rank; i++)
        if (!(k->row_mask >> i & 1) && !ex_is(f->x, t->dims[i], 1))
            inner |= 1u << i;
    for (uint32_t i = 0; i < k->locals.n; i++)
        if (k->locals.data[i].in_result)
            return 0;
    return __builtin_popcount(inner) == 1 && read_where_stored(f, k, v, __builtin_ctz(inner)) ? inner : 0;
}

bool store_row(const struct fuser *f, value_id v, const struct demand *d, struct row_local *out)
{
    const struct type *t = value_type(f->g, v);
    if (!wanted_by_stages(f, v, d))
        return false;
    *out = (struct row_local){v, local_dims(f, v, d), false};
    int64_t bytes = elem_size(t->elem), n;
    for (int32_t i = 0; i < t->rank; i++)
        if (out->inner >> i & 1 && ex_is_const(f->x, t->dims[i], &n))
            bytes *= n; /* at most SHARE_L2_KEPT */
    uint32_t inner = !out->inner || bytes > budget(module_machine(f->m), SHARE_L1_KEPT) ? result_dims(f, v, d) : 0;
    if (inner)
        *out = (struct row_local){v, inner, true};
    return out->inner;
}

/* Do the dims in mask lie before all others? Then what depends on them alone leaves the inner loops. */
static bool outer_dims(const struct fuser *f, const struct kernel *k, uint32_t mask)
{
    const struct type *t = value_type(f->g, k->domain);
    bool others = false;
    for (int32_t i = 0; i < t->rank && i < 32; i++) {
        if (ex_is(f->x, t->dims[i], 1))
            continue;
        if ((mask >> i & 1) && others)
            return false;
        others |= !(mask >> i & 1);
    }
    return true;
}

/* A value smaller than its kernel's domain would be recomputed along the dims that broadcast adds: fine when those are
 * inner loops (hoisted), else only for the cheapest operators. */
static bool inline_repeats(const struct fuser *f, const struct node *n, const struct demand *d)
{
    if (d->bijective)
        return false;
    const struct kernel *k = &f->m->fused.kernels.data[d->kernel - 1];
    int32_t rank = value_type(f->g, n->out[0])->rank;
    uint32_t mask;
    if (demand_row_mask(f, d, rank, &mask) && (k->has_rows ? mask == k->row_mask : outer_dims(f, k, mask)))
        return false;
    expr_id mine = dims_product(f->x, value_type(f->g, n->out[0])->dims, rank);
    bool stage = k->form.staged.i &&
                 d->context == graph_value(f->g, k->form.staged)->def.i; /* ... anew for each chunk */
    const struct type *dom = value_type(f->g, stage ? k->form.staged : k->domain);
    expr_id all = dims_product(f->x, dom->dims, dom->rank);
    return mine.i != all.i && (d->context == 0 || stage);
}

/* Maps and views of a contraction's whole result, and of constants: they cost nothing where that is stored. */
static bool is_epilogue(const struct fuser *f, value_id v)
{
    const struct node *n;
    for (int steps = 0; steps < EPILOGUE_DEPTH && (n = value_node(f->g, v)) && !f->required[v.i]; steps++) {
        uint32_t from = 0;
        if (n->op == OP_DOT || n->op == OP_CONV || n->op == OP_SEGMENTS)
            return true;
        if (!view_invertible(n->op) && op_shape(n->op) != SHAPE_MAP && op_shape(n->op) != SHAPE_INDEX)
            return false;
        while (from + 1 < n->n_in && value_is_const(f->g, n->in[from]))
            from++;
        v = n->in[from];
    }
    return false;
}

bool store_pays(const struct fuser *f, value_id v)
{
    return dear(f, v, 0) || is_epilogue(f, v);
}

bool dear_index(const struct fuser *f, const struct node *n)
{
    const struct type *t = value_type(f->g, n->in[0]);
    int64_t points = 1, extent;
    if (n->op != OP_GATHER || f->m->asked.opt_level == 0)
        return false;
    for (int32_t d = 0; d < t->rank; d++) {
        if (d == node_int(n, "axis", 0))
            continue;
        if (!ex_is_const(f->x, t->dims[d], &extent) || extent >= FEW_FETCHED || (points *= extent) >= FEW_FETCHED)
            return false;
    }
    return points > 1 && dear(f, n->in[1], -DEAR_DEPTH);
}

/* Bytes that are rounded from something wider: where such a chain is cut, here is the least to store. Wanted by a
 * kernel that cannot adopt the contraction they come from, or that would round again and again, they are stored. */
static bool wants_bytes(const struct fuser *f, const struct node *n, const struct demand *d)
{
    if (n->op != OP_CONVERT || elem_size(value_type(f->g, n->out[0])->elem) > 1 ||
        elem_size(value_type(f->g, n->in[0])->elem) < 4 || f->m->asked.opt_level == 0)
        return false;
    const struct kernel *k = &f->m->fused.kernels.data[d->kernel - 1];
    if (is_epilogue(f, n->out[0]))
        return !d->bijective || d->several_points || k->anchor.i || k->has_rows || k->kind != KERNEL_MAP;
    return (d->several_points && d->context != UINT32_MAX) || inline_repeats(f, n, d);
}

/* Rows that are longer than scratch, or of an open length, would compute a dear epilogue of a contraction anew in each
 * stage: it costs nothing where that is stored. */
static bool wants_whole(const struct fuser *f, const struct node *n, const struct demand *d)
{
    value_id v = n->out[0];
    return op_cost(n->op) == COST_DEAR && is_epilogue(f, v) && wanted_by_stages(f, v, d) && !local_dims(f, v, d);
}

/* Is the point at which view n reads an operand too long an expression? Dims that the run computes make it so, as
 * each view divides by products of them. Where n is stored it begins anew, as a point of n; except for a kernel's own
 * point, which is one. */
static bool index_grown(const struct fuser *f, const struct node *n, const struct demand *d)
{
    expr_id idx[RANK_MAX], cond;
    bool own = true;
    for (int32_t i = 0; i < value_type(f->g, n->out[0])->rank; i++)
        own &= ex_size(f->x, d->idx[i]) == 1;
    for (uint32_t k = 0; k < n->n_in && !own; k++) {
        uint32_t parts = 0;
        if (n->op == OP_PAD && k == 1)
            break;
        view_index(f->g, n, k, d->idx, idx, &cond);
        for (int32_t i = 0; i < value_type(f->g, n->in[k])->rank; i++)
            parts += ex_size(f->x, idx[i]);
        if (parts > INDEX_PARTS)
            return true;
    }
    return false;
}

/* Does n cost more than a load where it is computed again and again? Of doubles (places of a Resize) so does a
 * conversion: it is of single points, or of half as many lanes. */
static bool dear_again(const struct fuser *f, const struct node *n)
{
    return op_cost(n->op) != COST_CHEAP || (n->op == OP_CONVERT && value_type(f->g, n->in[0])->elem == ELEM_F64);
}

/* Views move nothing, so only a concat, a pad or a copy that somebody needs in memory is stored, and what would be read
 * at an endless index; a map when several kernels or memory want it, or when it would be computed again and again. */
bool store_wanted(const struct fuser *f, const struct node *n, const struct demand *d, bool required)
{
    if (required || d->depth > MAX_INLINE)
        return true;
    bool shared = d->hard || d->kernel == DEMAND_MANY;
    if (op_shape(n->op) == SHAPE_VIEW)
        return (shared && (n->op == OP_CONCAT || n->op == OP_PAD || n->op == OP_IDENTITY)) ||
               (n->op == OP_CONCAT && (n->n_in > 2 || d->context || !d->bijective)) ||
               (!shared && index_grown(f, n, d));
    return shared || f->m->asked.opt_level == 0 || wants_bytes(f, n, d) || wants_whole(f, n, d) ||
           (dear_again(f, n) && ((d->several_points && d->context != UINT32_MAX) || inline_repeats(f, n, d)));
}
