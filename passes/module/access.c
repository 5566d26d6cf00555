/* Access functions of the views: index expressions in, index expressions out. Composition of views is nothing but
 * calling these one after the other; the simplifier of ir/expr/expr.c does the rest. */
#include "passes/module/access.h"

#include <string.h>

expr_id storage_address(struct exprs *x, const struct storage *s, const expr_id *idx)
{
    expr_id index[2 * RANK_MAX], stride[2 * RANK_MAX];
    uint32_t n = 0;
    for (int32_t d = 0; d < s->rank; d++) {
        const struct dim_layout *l = &s->dim[d];
        index[n] = idx[d];
        stride[n++] = l->outer;
        if (!l->block)
            continue;
        expr_id b = ex_const(x, l->block);
        index[n - 1] = ex_div(x, idx[d], b);
        index[n] = ex_mod(x, idx[d], b);
        stride[n++] = ex_const(x, l->inner);
    }
    return ex_dot(x, s->origin, index, stride, n);
}

expr_id shape_count(struct exprs *x, const expr_id *dims, int32_t rank)
{
    expr_id n = ex_const(x, 1);
    for (int32_t d = 0; d < rank; d++)
        n = ex_mul(x, n, dims[d]);
    return n;
}

expr_id point_linear(struct exprs *x, const expr_id *idx, const expr_id *dims, int32_t rank)
{
    expr_id n = ex_const(x, 0);
    for (int32_t d = 0; d < rank; d++)
        n = ex_add(x, ex_mul(x, n, dims[d]), idx[d]);
    return n;
}

void point_split(struct exprs *x, expr_id linear, const expr_id *dims, int32_t rank, expr_id *out)
{
    int32_t first = 0;   /* the first dim that is not 1: its index needs no modulus */
    while (first < rank && ex_is(x, dims[first], 1))
        first++;
    for (int32_t d = rank - 1; d >= 0; d--) {
        if (ex_is(x, dims[d], 1)) {
            out[d] = ex_const(x, 0);
        } else if (d == first) {
            out[d] = linear;
        } else {
            out[d] = ex_mod(x, linear, dims[d]);
            linear = ex_div(x, linear, dims[d]);
        }
    }
}

/* The smallest leading parts of two lists of dims with one product. */
static void reshape_part(struct exprs *x, const expr_id *from, int32_t nf, const expr_id *to, int32_t nt,
                         int32_t *part_f, int32_t *part_t)
{
    expr_id f[RANK_MAX + 1], t[RANK_MAX + 1];
    f[0] = t[0] = ex_const(x, 1);
    for (int32_t i = 0; i < nf; i++)
        f[i + 1] = ex_mul(x, f[i], from[i]);
    for (int32_t i = 0; i < nt; i++)
        t[i + 1] = ex_mul(x, t[i], to[i]);
    *part_f = nf;
    *part_t = nt;
    for (int32_t sum = 2; sum < nf + nt; sum++)
        for (int32_t i = sum > nt ? sum - nt : 1; i < sum && i <= nf; i++)
            if (f[i].i == t[sum - i].i) {
                *part_f = i;
                *part_t = sum - i;
                return;
            }
}

/* Parts of equal extent map to one another, each by itself: that keeps symbolic dims out of the arithmetic of
 * others. */
static void reshape_point(struct exprs *x, const struct type *from, const expr_id *idx, const struct type *to,
                          expr_id *out)
{
    expr_id dims[RANK_MAX], one = ex_const(x, 1);
    int32_t f = 0, t = 0, nf = from->rank, nt = to->rank, pf, pt;
    while (nf > 0 && nt > 0 && from->dims[nf - 1].i == to->dims[nt - 1].i)
        out[--nt] = idx[--nf];
    for (; f < nf || t < nt; f += pf, t += pt) {
        if (f < nf && t < nt && from->dims[f].i == to->dims[t].i) {
            out[t] = idx[f];
            pf = pt = 1;
            continue;
        }
        reshape_part(x, from->dims + f, nf - f, to->dims + t, nt - t, &pf, &pt);
        for (int32_t d = t; d < t + pt; d++)
            dims[d] = ex_lo(x, to->dims[d]) >= 1 ? to->dims[d] : ex_max(x, to->dims[d], one);
        expr_id linear = point_linear(x, idx + f, from->dims + f, pf);
        point_split(x, linear, dims + t, pt, out + t);
    }
}

/* Position in [0, n) that a periodic reflection without edge repeat (period 2(n-1)) assigns to i. */
static expr_id reflect_index(struct exprs *x, expr_id i, expr_id n)
{
    expr_id one = ex_const(x, 1);
    expr_id period = ex_max(x, ex_mulc(x, ex_sub(x, n, one), 2), one);
    expr_id m = ex_mod(x, i, period);
    return ex_min(x, m, ex_sub(x, period, m));
}

/* ---- one function for each view: column "index" of ops.def ------------------------------------------------------- */

typedef void index_fn(const struct graph *, const struct node *, uint32_t k, const expr_id *idx, expr_id *out,
                      expr_id *cond);

static void pad_index(const struct graph *g, const struct node *n, uint32_t k, const expr_id *idx, expr_id *out,
                      expr_id *cond)
{
    struct exprs *x = g->ctx->exprs;
    const struct type *from = value_type(g, n->in[k]);
    const expr_id *lo = node_exprs(n, "lo", &(uint32_t){0});
    const char *mode = node_str(n, "mode", "constant");
    for (int32_t d = 0; d < from->rank; d++) {
        expr_id i = ex_sub(x, idx[d], lo[d]), size = from->dims[d];
        if (!strcmp(mode, "constant")) {
            *cond = ex_and(x, *cond, ex_and(x, ex_le(x, ex_const(x, 0), i), ex_lt(x, i, size)));
            out[d] = i;
        } else if (!strcmp(mode, "edge")) {
            out[d] = ex_max(x, ex_const(x, 0), ex_min(x, i, ex_addc(x, size, -1)));
        } else if (!strcmp(mode, "wrap")) {
            out[d] = ex_mod(x, i, ex_max(x, size, ex_const(x, 1)));
        } else {
            out[d] = reflect_index(x, i, size);
        }
    }
}

static void concat_index(const struct graph *g, const struct node *n, uint32_t k, const expr_id *idx, expr_id *out,
                         expr_id *cond)
{
    struct exprs *x = g->ctx->exprs;
    const struct type *from = value_type(g, n->in[k]);
    int64_t axis = node_int(n, "axis", 0);
    expr_id begin = concat_begin(g, n, k);
    memcpy(out, idx, (size_t)from->rank * sizeof *out);
    out[axis] = ex_sub(x, idx[axis], begin);
    *cond = ex_and(x, ex_le(x, begin, idx[axis]), ex_lt(x, out[axis], from->dims[axis]));
}

static void broadcast_index(const struct graph *g, const struct node *n, uint32_t k, const expr_id *idx, expr_id *out,
                            expr_id *cond)
{
    struct exprs *x = g->ctx->exprs;
    const struct type *from = value_type(g, n->in[k]), *to = value_type(g, n->out[0]);
    int32_t shift = to->rank - from->rank;
    expr_id zero = ex_const(x, 0), one = ex_const(x, 1);
    (void)cond;
    for (int32_t d = 0; d < from->rank; d++) {
        if (from->dims[d].i == to->dims[d + shift].i)
            out[d] = idx[d + shift];
        else
            out[d] = ex_select(x, ex_eq(x, from->dims[d], one), zero, idx[d + shift]);
    }
}

static void reshape_index(const struct graph *g, const struct node *n, uint32_t k, const expr_id *idx, expr_id *out,
                          expr_id *cond)
{
    (void)cond;
    reshape_point(g->ctx->exprs, value_type(g, n->out[0]), idx, value_type(g, n->in[k]), out);
}

static void transpose_index(const struct graph *g, const struct node *n, uint32_t k, const expr_id *idx, expr_id *out,
                            expr_id *cond)
{
    uint32_t rank;
    const int64_t *perm = node_ints(n, "perm", &rank);
    (void)g;
    (void)k;
    (void)cond;
    for (uint32_t d = 0; d < rank; d++)
        out[perm[d]] = idx[d];
}

static void slice_index(const struct graph *g, const struct node *n, uint32_t k, const expr_id *idx, expr_id *out,
                        expr_id *cond)
{
    struct exprs *x = g->ctx->exprs;
    uint32_t rank;
    const expr_id *starts = node_exprs(n, "starts", &rank);
    const int64_t *steps = node_ints(n, "steps", &rank);
    (void)k;
    (void)cond;
    for (uint32_t d = 0; d < rank; d++)
        out[d] = ex_add(x, starts[d], ex_mulc(x, idx[d], steps[d]));
}

static void identity_index(const struct graph *g, const struct node *n, uint32_t k, const expr_id *idx, expr_id *out,
                           expr_id *cond)
{
    (void)cond;
    memcpy(out, idx, (size_t)value_type(g, n->in[k])->rank * sizeof *out);
}

/* Of a view that can be turned round: column "inverse". */
typedef void inverse_fn(const struct graph *, const struct node *, const expr_id *idx, expr_id *out);

static void reshape_inverse(const struct graph *g, const struct node *n, const expr_id *idx, expr_id *out)
{
    reshape_point(g->ctx->exprs, value_type(g, n->in[0]), idx, value_type(g, n->out[0]), out);
}

static void transpose_inverse(const struct graph *g, const struct node *n, const expr_id *idx, expr_id *out)
{
    uint32_t rank;
    const int64_t *perm = node_ints(n, "perm", &rank);
    (void)g;
    for (uint32_t d = 0; d < rank; d++)
        out[d] = idx[perm[d]];
}

static void identity_inverse(const struct graph *g, const struct node *n, const expr_id *idx, expr_id *out)
{
    memcpy(out, idx, (size_t)value_type(g, n->out[0])->rank * sizeof *out);
}

static const struct {
    index_fn *index;
    inverse_fn *inverse;
    bool parts;
} views[OP_COUNT] = {
#define VIEW(id, name, least, most, infer, eval, lattice, read, check, idle, index, inverse, parts, attrs) \
    [OP_##id] = {index, inverse, parts},
#include "ir/ops/ops.def"
};

void view_index(const struct graph *g, const struct node *n, uint32_t k, const expr_id *idx, expr_id *out,
                expr_id *cond)
{
    *cond = ex_const(g->ctx->exprs, 1);
    views[n->op].index(g, n, k, idx, out, cond);
}

void view_inverse(const struct graph *g, const struct node *n, const expr_id *idx, expr_id *out)
{
    views[n->op].inverse(g, n, idx, out);
}

bool view_is_whole(enum op op)
{
    return op_shape(op) == SHAPE_VIEW && !views[op].parts;
}

/* ---- indices that memory holds: column "access" of ops.def ------------------------------------------------------- */

static void gather_access(const struct graph *g, const struct node *n, const expr_id *idx, struct index_access *a)
{
    int32_t rank = value_type(g, n->in[1])->rank;
    a->dim = (int32_t)node_int(n, "axis", 0);
    a->behind = a->dim + rank;
    memcpy(a->index, idx + a->dim, (size_t)rank * sizeof *idx);
}

static void gather_elements_access(const struct graph *g, const struct node *n, const expr_id *idx,
                                   struct index_access *a)
{
    a->dim = (int32_t)node_int(n, "axis", 0);
    a->behind = a->dim + 1;
    memcpy(a->index, idx, (size_t)value_type(g, n->in[1])->rank * sizeof *idx);
}

static void gather_nd_access(const struct graph *g, const struct node *n, const expr_id *idx, struct index_access *a)
{
    const struct type *t = value_type(g, n->in[1]);
    int64_t depth = 0;
    ex_is_const(g->ctx->exprs, t->dims[t->rank - 1], &depth);
    a->dim = (int32_t)node_int(n, "batch", 0);
    a->n = (int32_t)depth;
    a->component = a->behind = t->rank - 1;
    memcpy(a->index, idx, (size_t)a->component * sizeof *idx);
}

typedef void access_fn(const struct graph *, const struct node *, const expr_id *idx, struct index_access *);
static access_fn *const accesses[OP_COUNT] = {
#define INDEX(id, name, infer, eval, lattice, check, access, attrs) [OP_##id] = access,
#include "ir/ops/ops.def"
};

void index_access(const struct graph *g, const struct node *n, const expr_id *idx, struct index_access *a)
{
    int32_t rank = value_type(g, n->in[0])->rank;
    *a = (struct index_access){.n = 1, .component = -1};
    accesses[n->op](g, n, idx, a);
    memcpy(a->at, idx, (size_t)a->dim * sizeof *idx);
    for (int32_t d = a->dim + a->n; d < rank; d++)
        a->at[d] = idx[d - a->dim - a->n + a->behind];
}

bool view_invertible(const struct graph *g, node_id id)
{
    return views[graph_node(g, id)->op].inverse != NULL;
}

bool late_expr(struct exprs *x, expr_id e)
{
    return ex_uses_kind(x, e, SYM_VALUE);
}

bool late_type(struct exprs *x, const struct type *t)
{
    for (int32_t d = 0; d < t->rank; d++)
        if (late_expr(x, t->dims[d]))
            return true;
    return false;
}

value_id view_plain(const struct graph *g, value_id v)
{
    while (value_op(g, v) == OP_RESHAPE || value_op(g, v) == OP_IDENTITY)
        v = graph_node(g, graph_value(g, v)->def)->in[0];
    return v;
}

/* Beyond, nothing is claimed: what several nodes read is looked at for each of them. */
enum { MAX_CONST_DEPTH = 64, MAX_CONST_STEPS = 2000 };
static uint32_t invariant(struct graph *g, value_id v, int depth, uint32_t *steps)
{
    const struct type *t = value_type(g, v);
    uint32_t all = t->rank >= 32 ? UINT32_MAX : (1u << t->rank) - 1, mask = 0;
    if (graph_value(g, v)->def.i == 0 || depth > MAX_CONST_DEPTH || ++*steps > MAX_CONST_STEPS)
        return 0;
    const struct node *n = graph_node(g, graph_value(g, v)->def);
    uint32_t count;
    if (n->op == OP_BROADCAST) {
        const struct type *from = value_type(g, n->in[0]);
        uint32_t inner = invariant(g, n->in[0], depth + 1, steps);
        int32_t shift = t->rank - from->rank;
        for (int32_t d = 0; d < t->rank; d++)
            if (d < shift || from->dims[d - shift].i != t->dims[d].i || (inner >> (d - shift) & 1))
                mask |= 1u << d;
        return mask;
    }
    if (n->op == OP_TRANSPOSE) {
        const int64_t *perm = node_ints(n, "perm", &count);
        uint32_t inner = invariant(g, n->in[0], depth + 1, steps);
        for (int32_t d = 0; d < t->rank; d++)
            mask |= (inner >> perm[d] & 1) << d;
        return mask;
    }
    if (n->op == OP_RESHAPE) {
        uint32_t inner = invariant(g, n->in[0], depth + 1, steps);
        int32_t r = value_type(g, n->in[0])->rank;
        return inner == (r >= 32 ? UINT32_MAX : (1u << r) - 1) ? all : 0;
    }
    if (op_shape(n->op) == SHAPE_MAP) {
        mask = all;
        for (uint32_t k = 0; mask && k < n->n_in; k++)
            mask &= invariant(g, n->in[k], depth + 1, steps);
        return mask;
    }
    /* One element along a dim: nothing to vary. */
    for (int32_t d = 0; d < t->rank; d++)
        if (ex_is(g->ctx->exprs, t->dims[d], 1))
            mask |= 1u << d;
    return mask;
}

uint32_t value_const_invariant(struct graph *g, value_id v)
{
    uint32_t steps = 0;
    return invariant(g, v, 0, &steps);
}

/* ---- convolutions ------------------------------------------------------------------------------------------------ */

/* The last window begins where it still fits, so it reaches no further than the upper padding; less far where the
 * stride leaves some of it over, which is known for known extents. */
bool conv_reach(const struct graph *g, const struct node *n, int32_t d, int64_t tile, int64_t *below, int64_t *above)
{
    struct exprs *ex = g->ctx->exprs;
    const struct type *x = value_type(g, n->in[0]), *y = value_type(g, n->out[0]), *w = value_type(g, n->in[1]);
    uint32_t c;
    int64_t lo, hi, size, out, k;
    if (node_ints(n, "xdil", &c)[d] != 1 || !ex_is_const(ex, node_exprs(n, "lo", &c)[d], &lo) ||
        !ex_is_const(ex, node_exprs(n, "hi", &c)[d], &hi))
        return false;
    *below = lo > 0 ? lo : 0;
    int64_t stride = node_ints(n, "strides", &c)[d];
    if (ex_is_const(ex, x->dims[2 + d], &size) && ex_is_const(ex, y->dims[2 + d], &out) &&
        ex_is_const(ex, w->dims[2 + d], &k)) {
        if (size <= 0 || out <= 0)
            return false;
        out = (out + tile - 1) / tile * tile;
        hi = (out - 1) * stride + (k - 1) * node_ints(n, "dilations", &c)[d] - lo - (size - 1);
    } else {
        hi += (tile - 1) * stride;
    }
    *above = hi > 0 ? hi : 0;
    return true;
}

bool conv_depthwise(const struct graph *g, const struct node *n)
{
    return n->op == OP_CONV && node_int(n, "groups", 1) > 1 &&
           ex_is(g->ctx->exprs, value_type(g, n->in[1])->dims[1], 1);
}

bool conv_pixel_lanes(const struct module *m, const struct node *n)
{
    int64_t groups = n->op == OP_CONV ? node_int(n, "groups", 1) : 1, channels;
    if (n->op != OP_CONV || m->layout == LAYOUT_NCHW)
        return n->op == OP_CONV;
    return groups > 1 && m->layout == LAYOUT_AUTO &&
           ex_is_const(m->ctx->exprs, value_type(m->g, n->out[0])->dims[1], &channels) && channels != groups &&
           channels / groups % CHANNEL_BLOCK != 0;
}

int32_t dot_free(const struct graph *g, const struct node *n, int32_t free_dim[RANK_MAX])
{
    uint32_t n_list[2];
    const int64_t *list[2] = {node_ints(n, "batch_b", &n_list[0]), node_ints(n, "contract_b", &n_list[1])};
    int32_t count = 0;
    for (int32_t d = 0; d < value_type(g, n->in[1])->rank; d++) {
        bool bound = false;
        for (int k = 0; k < 2; k++)
            for (uint32_t i = 0; i < n_list[k]; i++)
                bound |= list[k][i] == d;
        if (!bound)
            free_dim[count++] = d;
    }
    return count;
}

int32_t weight_order(const struct graph *g, const struct node *n, const int64_t *perm, int32_t order[RANK_MAX],
                     int32_t *lanes)
{
    int32_t rank = value_type(g, n->in[1])->rank, r = 0, free_dim[RANK_MAX];
    uint32_t nb, nc;
    if (n->op == OP_CONV) {
        bool taps = conv_depthwise(g, n); /* are all that is reduced */
        order[r++] = *lanes = (int32_t)perm[0];
        if (taps)
            order[r++] = (int32_t)perm[1];
        for (int32_t d = 2; d < rank; d++)
            order[r++] = (int32_t)perm[d];
        if (!taps)
            order[r++] = (int32_t)perm[1];
        return r;
    }
    const int64_t *batch = node_ints(n, "batch_b", &nb), *con = node_ints(n, "contract_b", &nc);
    int32_t count = dot_free(g, n, free_dim);
    for (uint32_t i = 0; i < nb; i++)
        order[r++] = (int32_t)perm[batch[i]];
    for (int32_t i = 0; i < count; i++)
        *lanes = order[r++] = (int32_t)perm[free_dim[i]];
    for (uint32_t i = 0; i < nc; i++)
        order[r++] = (int32_t)perm[con[i]];
    return count ? r : 0;
}

bool dot_dims(const struct graph *g, const struct node *n, uint32_t operand, struct dot_dims *d)
{
    uint32_t n_contract;
    const int64_t *batch = node_ints(n, operand ? "batch_b" : "batch_a", &d->n_batch);
    const int64_t *contract = node_ints(n, operand ? "contract_b" : "contract_a", &n_contract);
    int32_t rank = value_type(g, n->in[operand])->rank;
    if (n_contract != 1 || rank != (int32_t)d->n_batch + 2)
        return false;
    d->contract = (int32_t)contract[0];
    d->free = rank * (rank - 1) / 2 - d->contract;
    for (uint32_t i = 0; i < d->n_batch; i++) {
        d->batch[i] = (int32_t)batch[i];
        d->free -= d->batch[i];
    }
    return true;
}
