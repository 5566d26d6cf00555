/* The map of dims of each view, and the groups of dims of a reshape (view_map.h). */
#include "ir/graph/view_map.h"

/* Changes the map in which each dim of the operand is the same of the result. */
typedef bool map_fn(const struct graph *, const struct node *, uint32_t k, struct view_map *);

static bool map_identity(const struct graph *g, const struct node *n, uint32_t k, struct view_map *m)
{
    (void)g, (void)n, (void)k, (void)m;
    return true;
}

static bool map_broadcast(const struct graph *g, const struct node *n, uint32_t k, struct view_map *m)
{
    const expr_id *from = value_type(g, n->in[k])->dims;
    uint32_t rank;
    const expr_id *to = node_exprs(n, "dims", &rank);
    for (int32_t i = 0; i < m->rank; i++) {
        struct view_dim *d = &m->dim[i];
        d->of += (int32_t)rank - m->rank;
        if (from[i].i != to[d->of].i) {
            d->step = !ex_is(g->ctx->exprs, from[i], 1);
            d->is_chosen = d->step != 0;
        }
    }
    return true;
}

static bool map_transpose(const struct graph *g, const struct node *n, uint32_t k, struct view_map *m)
{
    uint32_t rank;
    const int64_t *perm = node_ints(n, "perm", &rank);
    (void)g, (void)k;
    for (uint32_t d = 0; d < rank; d++)
        m->dim[perm[d]].of = (int32_t)d;
    return true;
}

static bool map_slice(const struct graph *g, const struct node *n, uint32_t k, struct view_map *m)
{
    uint32_t rank;
    const expr_id *starts = node_exprs(n, "starts", &rank);
    const int64_t *steps = node_ints(n, "steps", &rank);
    (void)g, (void)k;
    for (uint32_t d = 0; d < rank; d++) {
        m->dim[d].start = starts[d];
        m->dim[d].step = steps[d];
    }
    return true;
}

static bool map_pad(const struct graph *g, const struct node *n, uint32_t k, struct view_map *m)
{
    const expr_id *lo = node_exprs(n, "lo", &(uint32_t){0});
    (void)k;
    for (int32_t d = 0; d < m->rank; d++) {
        m->dim[d].start = ex_mulc(g->ctx->exprs, lo[d], -1);
        m->dim[d].is_window = true;
    }
    return strcmp(node_str(n, "mode", "constant"), "constant") == 0;
}

static bool map_concat(const struct graph *g, const struct node *n, uint32_t k, struct view_map *m)
{
    struct view_dim *d = &m->dim[node_int(n, "axis", 0)];
    d->start = ex_mulc(g->ctx->exprs, concat_begin(g, n, k), -1);
    d->is_window = true;
    return true;
}

static map_fn *const maps[OP_COUNT] = {
#define VIEW(id, name, least, most, infer, eval, lattice, read, check, idle, map, inverse, parts, attrs) \
    [OP_##id] = map,
#include "ir/ops/ops.def"
};

bool view_map(const struct graph *g, const struct node *n, uint32_t k, struct view_map *m)
{
    m->rank = value_type(g, n->in[k])->rank;
    for (int32_t d = 0; d < m->rank; d++)
        m->dim[d] = (struct view_dim){.of = d, .step = 1, .start = ex_const(g->ctx->exprs, 0)};
    return maps[n->op] && maps[n->op](g, n, k, m);
}

value_id view_plain(const struct graph *g, value_id v)
{
    while (value_op(g, v) == OP_RESHAPE || value_op(g, v) == OP_IDENTITY)
        v = value_node(g, v)->in[0];
    return v;
}

/* ---- reshape ----------------------------------------------------------------------------------------------------- */

expr_id dims_product(struct exprs *x, const expr_id *dims, int32_t rank)
{
    expr_id n = ex_const(x, 1);
    for (int32_t i = 0; i < rank; i++)
        if (ex_is(x, dims[i], 0))
            return dims[i];
    for (int32_t i = 0; i < rank; i++)
        n = ex_mul(x, n, dims[i]);
    return n;
}

/* The smallest leading parts of two lists of dims with one product. */
static struct reshape_group first_group(struct exprs *x, const expr_id *from, int32_t nf, const expr_id *to, int32_t nt)
{
    expr_id f[RANK_MAX + 1], t[RANK_MAX + 1];
    f[0] = t[0] = ex_const(x, 1);
    for (int32_t i = 0; i < nf; i++)
        f[i + 1] = ex_mul(x, f[i], from[i]);
    for (int32_t i = 0; i < nt; i++)
        t[i + 1] = ex_mul(x, t[i], to[i]);
    for (int32_t sum = 2; sum < nf + nt; sum++)
        for (int32_t i = sum > nt ? sum - nt : 1; i < sum && i <= nf; i++)
            if (f[i].i == t[sum - i].i)
                return (struct reshape_group){0, i, 0, sum - i};
    return (struct reshape_group){0, nf, 0, nt};
}

uint32_t reshape_groups(struct exprs *x, const struct type *from, const struct type *to,
                        struct reshape_group group[GROUPS_MOST])
{
    uint32_t n = 0;
    int32_t f = 0, t = 0, nf = from->rank, nt = to->rank;
    while (nf > 0 && nt > 0 && from->dims[nf - 1].i == to->dims[nt - 1].i)
        group[n++] = (struct reshape_group){--nf, 1, --nt, 1};
    while (f < nf || t < nt) {
        struct reshape_group *next = &group[n++];
        *next = (struct reshape_group){0, 1, 0, 1};
        if (f == nf || t == nt || from->dims[f].i != to->dims[t].i)
            *next = first_group(x, from->dims + f, nf - f, to->dims + t, nt - t);
        next->from = f;
        next->to = t;
        f += next->n_from;
        t += next->n_to;
    }
    return n;
}
