/* Access functions of the views: index expressions in, index expressions out. Composition of views is nothing but
 * calling these one after the other; the simplifier of ir/expr/expr.c does the rest. */
#include "passes/module/access_function.h"

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

/* Expressions that may be 0, and what is the same and at least 1 where a point exists. */
struct above_zero {
    expr_id was[4 * RANK_MAX], is[4 * RANK_MAX];
    uint32_t n;
};

static void add_above_zero(struct exprs *x, struct above_zero *a, expr_id e)
{
    if (ex_lo(x, e) >= 1 || a->n == COUNT_OF(a->was))
        return;
    a->was[a->n] = e;
    a->is[a->n++] = ex_max(x, e, ex_const(x, 1));
}

/* The factors of a dim, or the dim where it is a sum. */
static void dim_above_zero(struct exprs *x, struct above_zero *a, expr_id dim)
{
    if (ex_lo(x, dim) >= 1)
        return;
    if (ex_kind(x, dim) == EX_SUM && ex_n_args(x, dim) == 1 && ex_addend(x, dim) == 0 && ex_coef(x, dim, 0) > 0)
        dim = ex_arg(x, dim, 0);
    if (ex_kind(x, dim) != EX_PROD) {
        add_above_zero(x, a, dim);
        return;
    }
    for (uint32_t i = 0; i < ex_n_args(x, dim); i++)
        add_above_zero(x, a, ex_arg(x, dim, i));
}

/* No dim of a type that has a point is 0. Divisors say so, as divisions may be computed where no point is; the dividend
 * has the same expressions, so that they cancel. */
static void split_group(struct exprs *x, const struct reshape_group *g, const struct type *from, const expr_id *idx,
                        const struct type *to, expr_id *out)
{
    struct above_zero above = {.n = 0};
    expr_id dims[RANK_MAX], one = ex_const(x, 1);
    for (int32_t d = 0; d < g->n_from; d++)
        dim_above_zero(x, &above, from->dims[g->from + d]);
    for (int32_t d = 0; d < g->n_to; d++)
        dim_above_zero(x, &above, to->dims[g->to + d]);
    for (int32_t d = 0; d < g->n_to; d++) {
        dims[d] = ex_replace(x, to->dims[g->to + d], above.was, above.is, above.n);
        if (ex_lo(x, dims[d]) < 1)
            dims[d] = ex_max(x, dims[d], one);
    }
    expr_id linear = point_linear(x, idx + g->from, from->dims + g->from, g->n_from);
    if (g->n_to > 1)
        linear = ex_replace(x, linear, above.was, above.is, above.n);
    point_split(x, linear, dims, g->n_to, out + g->to);
}

static void reshape_point(struct exprs *x, const struct type *from, const expr_id *idx, const struct type *to,
                          expr_id *out)
{
    struct reshape_group group[GROUPS_MOST];
    uint32_t n = reshape_groups(x, from, to, group);
    for (uint32_t i = 0; i < n; i++) {
        if (group[i].n_from == 1 && group[i].n_to == 1)
            out[group[i].to] = idx[group[i].from];
        else
            split_group(x, &group[i], from, idx, to, out);
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

/* ---- views ------------------------------------------------------------------------------------------------------- */

/* Elements around the operand are some of its own. */
static void repeated_index(const struct graph *g, const struct node *n, const expr_id *idx, expr_id *out)
{
    struct exprs *x = g->ctx->exprs;
    const struct type *from = value_type(g, n->in[0]);
    const expr_id *lo = node_exprs(n, "lo", &(uint32_t){0});
    const char *mode = node_str(n, "mode", "constant");
    for (int32_t d = 0; d < from->rank; d++) {
        expr_id i = ex_sub(x, idx[d], lo[d]), size = from->dims[d];
        if (!strcmp(mode, "edge"))
            out[d] = ex_max(x, ex_const(x, 0), ex_min(x, i, ex_addc(x, size, -1)));
        else if (!strcmp(mode, "wrap"))
            out[d] = ex_mod(x, i, ex_max(x, size, ex_const(x, 1)));
        else
            out[d] = reflect_index(x, i, size);
    }
}

void view_index(const struct graph *g, const struct node *n, uint32_t k, const expr_id *idx, expr_id *out,
                expr_id *cond)
{
    struct exprs *x = g->ctx->exprs;
    const struct type *from = value_type(g, n->in[k]);
    expr_id zero = ex_const(x, 0), one = ex_const(x, 1);
    struct view_map map;
    *cond = one;
    if (n->op == OP_RESHAPE) {
        reshape_point(x, value_type(g, n->out[0]), idx, from, out);
    } else if (n->op == OP_WINDOWS) {
        memcpy(out, idx, (size_t)from->rank * sizeof *out);
        out[from->rank - 1] = ex_add(x, idx[from->rank - 1], idx[from->rank]);
    } else if (!view_map(g, n, k, &map)) {
        repeated_index(g, n, idx, out);
    } else {
        for (int32_t i = 0; i < map.rank; i++) {
            const struct view_dim *d = &map.dim[i];
            out[i] = ex_add(x, d->start, ex_mulc(x, idx[d->of], d->step));
            if (d->is_chosen)
                out[i] = ex_select(x, ex_eq(x, from->dims[i], one), zero, out[i]);
            if (d->is_window)
                *cond = ex_and(x, *cond, ex_and(x, ex_le(x, zero, out[i]), ex_lt(x, out[i], from->dims[i])));
        }
    }
}

value_id operand_at(const struct graph *g, const struct node *n, uint32_t k, const expr_id *idx, expr_id *at)
{
    expr_id shown[RANK_MAX], cond;
    bool view = op_shape(n->op) == SHAPE_VIEW;
    if (view)
        view_index(g, n, k, idx, shown, &cond);
    memmove(at, view ? shown : idx, (size_t)value_type(g, n->in[k])->rank * sizeof *at);
    return n->in[k];
}

void view_inverse(const struct graph *g, const struct node *n, const expr_id *idx, expr_id *out)
{
    struct view_map map;
    if (n->op == OP_RESHAPE)
        reshape_point(g->ctx->exprs, value_type(g, n->in[0]), idx, value_type(g, n->out[0]), out);
    else if (view_map(g, n, 0, &map))
        for (int32_t i = 0; i < map.rank; i++)
            out[map.dim[i].of] = idx[i];
}

static const struct {
    bool inverse, parts;
} views[OP_COUNT] = {
#define VIEW(id, name, least, most, infer, eval, lattice, read, check, idle, map, inverse, parts, attrs) \
    [OP_##id] = {inverse, parts},
#include "ir/ops/ops.def"
};

bool view_is_whole(enum op op)
{
    return op_shape(op) == SHAPE_VIEW && !views[op].parts;
}

value_id behind_views(const struct module *m, value_id v, expr_id *idx)
{
    while ((!m->fused.storage || m->fused.storage[v.i].place == PLACE_NONE) && view_is_whole(value_op(m->g, v)))
        v = operand_at(m->g, value_node(m->g, v), 0, idx, idx);
    return v;
}

/* ---- which dims of an operand make those of the result ----------------------------------------------------------- */

static void view_sources(const struct graph *g, const struct type *from, const struct type *t,
                         const struct view_map *map, int32_t *of)
{
    for (int32_t i = 0; i < map->rank; i++) {
        const struct view_dim *d = &map->dim[i];
        bool same = d->step == 1 && !d->is_chosen && from->dims[i].i == t->dims[d->of].i &&
                    ex_is(g->ctx->exprs, d->start, 0);
        if (d->step)
            of[d->of] = same ? i : SOURCE_MIXED;
    }
}

/* Less the dims of one element on either side, except for the last one. */
static void trim(struct exprs *x, const expr_id *dims, int32_t *first, int32_t *n)
{
    while (*n > 1 && ex_is(x, dims[*first + *n - 1], 1))
        --*n;
    for (; *n > 1 && ex_is(x, dims[*first], 1); --*n)
        ++*first;
}

static void reshape_sources(const struct graph *g, const struct type *from, const struct type *t, int32_t *of)
{
    struct reshape_group group[GROUPS_MOST];
    uint32_t n = reshape_groups(g->ctx->exprs, from, t, group);
    for (int32_t d = 0; d < t->rank; d++)
        of[d] = SOURCE_MIXED;
    for (uint32_t k = 0; k < n; k++) {
        struct reshape_group *r = &group[k];
        trim(g->ctx->exprs, from->dims, &r->from, &r->n_from);
        trim(g->ctx->exprs, t->dims, &r->to, &r->n_to);
        if (r->n_from == 1 && r->n_to == 1 && from->dims[r->from].i == t->dims[r->to].i)
            of[r->to] = r->from;
    }
}

static bool holds(const int64_t *list, uint32_t n, int64_t d)
{
    for (uint32_t i = 0; i < n; i++)
        if (list[i] == d)
            return true;
    return false;
}

/* Batch dims belong to both operands, the free ones to one. Scales (operand 2 and on) have the dims of what they
 * scale. */
static void dot_sources(const struct graph *g, const struct node *n, uint32_t k, int32_t *of)
{
    uint32_t n_batch, own = k & 1;
    const int64_t *batch = node_ints(n, own ? "batch_b" : "batch_a", &n_batch);
    int32_t free_dim[RANK_MAX], d = 0;
    for (; d < (int32_t)n_batch; d++)
        of[d] = (int32_t)batch[d];
    for (uint32_t o = 0; o < 2; o++) {
        int32_t count = dot_free(g, n, o, free_dim);
        for (int32_t i = 0; i < count; i++)
            of[d++] = o == own ? free_dim[i] : SOURCE_NONE;
    }
}

bool source_dims(const struct graph *g, const struct node *n, uint32_t k, int32_t of[RANK_MAX])
{
    const struct type *from = value_type(g, n->in[k]), *t = value_type(g, n->out[0]);
    struct view_map map;
    uint32_t n_axes;
    for (int32_t d = 0; d < t->rank; d++)
        of[d] = op_shape(n->op) == SHAPE_MAP ? d : SOURCE_NONE;
    if (n->op == OP_RESHAPE) {
        reshape_sources(g, from, t, of);
    } else if (op_shape(n->op) == SHAPE_VIEW) {
        if (!view_map(g, n, k, &map))
            return false;
        view_sources(g, from, t, &map, of);
    } else if (n->op == OP_REDUCE) {
        const int64_t *axes = node_ints(n, "axes", &n_axes);
        for (int32_t i = 0, d = 0; i < from->rank; i++)
            if (!holds(axes, n_axes, i))
                of[d++] = i;
    } else if (n->op == OP_DOT) {
        dot_sources(g, n, k, of);
    } else {
        return op_shape(n->op) == SHAPE_MAP;
    }
    return true;
}

/* ---- indices that memory holds: column "access" of ops.def ------------------------------------------------------- */

static void gather_access(const struct graph *g, const struct node *n, const expr_id *idx, struct index_access *a)
{
    int32_t rank = value_type(g, n->in[1])->rank;
    a->dim = (int32_t)node_int(n, "axis", 0);
    a->after = a->dim + rank;
    memcpy(a->index, idx + a->dim, (size_t)rank * sizeof *idx);
}

static void gather_elements_access(const struct graph *g, const struct node *n, const expr_id *idx,
                                   struct index_access *a)
{
    a->dim = (int32_t)node_int(n, "axis", 0);
    a->after = a->dim + 1;
    memcpy(a->index, idx, (size_t)value_type(g, n->in[1])->rank * sizeof *idx);
}

static void gather_nd_access(const struct graph *g, const struct node *n, const expr_id *idx, struct index_access *a)
{
    const struct type *t = value_type(g, n->in[1]);
    int64_t depth = 0;
    ex_is_const(g->ctx->exprs, t->dims[t->rank - 1], &depth);
    a->dim = (int32_t)node_int(n, "batch", 0);
    a->n = (int32_t)depth;
    a->component = a->after = t->rank - 1;
    memcpy(a->index, idx, (size_t)a->component * sizeof *idx);
}

/* Row and column of x, the whole table: memory. */
static void walk_access(const struct graph *g, const struct node *n, const expr_id *idx, struct index_access *a)
{
    (void)g, (void)n;
    a->dim = 1;
    a->component = a->after = 1;
    a->index[0] = idx[1];
}

typedef void access_fn(const struct graph *, const struct node *, const expr_id *idx, struct index_access *);
static access_fn *const accesses[OP_COUNT] = {
#define INDEX(id, name, infer, eval, lattice, read, check, access, attrs) [OP_##id] = access,
#include "ir/ops/ops.def"
};

void index_access(const struct graph *g, const struct node *n, const expr_id *idx, struct index_access *a)
{
    int32_t rank = value_type(g, n->in[0])->rank;
    *a = (struct index_access){.n = 1, .component = -1};
    accesses[n->op](g, n, idx, a);
    memcpy(a->at, idx, (size_t)a->dim * sizeof *idx);
    for (int32_t d = a->dim + a->n; d < rank; d++)
        a->at[d] = idx[d - a->dim - a->n + a->after];
}

bool view_invertible(enum op op)
{
    return views[op].inverse;
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

static uint32_t all_dims(const struct type *t)
{
    return t->rank >= 32 ? UINT32_MAX : (1u << t->rank) - 1;
}

/* Beyond, nothing is claimed: what several nodes read is looked at for each of them. */
enum { MAX_CONST_DEPTH = 64, MAX_CONST_STEPS = 2000 };
static uint32_t invariant(struct graph *g, value_id v, int depth, uint32_t *steps)
{
    const struct type *t = value_type(g, v);
    uint32_t all = all_dims(t), mask = 0;
    if (graph_value(g, v)->def.i == 0 || depth > MAX_CONST_DEPTH || ++*steps > MAX_CONST_STEPS)
        return 0;
    for (int32_t d = 0; d < t->rank; d++)
        if (ex_is(g->ctx->exprs, t->dims[d], 1))
            mask |= 1u << d; /* one element: nothing to vary */
    const struct node *n = value_node(g, v);
    if (op_shape(n->op) != SHAPE_MAP && op_shape(n->op) != SHAPE_VIEW)
        return mask;
    for (uint32_t k = 0; all & ~mask && k < n->n_in; k++) {
        int32_t of[RANK_MAX];
        uint32_t inner = invariant(g, n->in[k], depth + 1, steps);
        if (inner == all_dims(value_type(g, n->in[k])) && op_shape(n->op) != SHAPE_MAP && view_is_whole(n->op))
            continue;
        if (!source_dims(g, n, k, of))
            return mask;
        for (int32_t d = 0; d < t->rank; d++)
            if (of[d] == SOURCE_MIXED || (of[d] >= 0 && !(inner >> of[d] & 1)))
                all &= ~(1u << d);
    }
    return all | mask;
}

uint32_t value_const_invariant(struct graph *g, value_id v)
{
    return invariant(g, v, 0, &(uint32_t){0});
}

/* ---- convolutions ------------------------------------------------------------------------------------------------ */

expr_id conv_tiles(struct exprs *x, expr_id extent, int64_t dilation, int64_t tile)
{
    expr_id apart = ex_const(x, dilation * tile);
    if (dilation == 1)
        return ex_ceildiv(x, extent, apart);
    return ex_add(x, ex_mulc(x, ex_div(x, extent, apart), dilation),
                  ex_min(x, ex_mod(x, extent, apart), ex_const(x, dilation)));
}

expr_id conv_tile_at(struct exprs *x, expr_id number, int64_t dilation, int64_t tile)
{
    expr_id residues = ex_const(x, dilation);
    return ex_add(x, ex_mulc(x, ex_div(x, number, residues), dilation * tile), ex_mod(x, number, residues));
}

/* The last window begins where it still fits, so it reaches no further than the upper padding; less far where the
 * stride leaves some of it over, which is known for known extents. */
bool conv_reach(const struct graph *g, const struct node *n, int32_t d, int64_t tile, int64_t *below, int64_t *above)
{
    struct exprs *ex = g->ctx->exprs;
    const struct type *x = value_type(g, n->in[0]), *y = value_type(g, n->out[0]), *w = value_type(g, n->in[1]);
    uint32_t c;
    int64_t lo, hi, size, out, k, dilation = node_ints(n, "dilations", &c)[d];
    if (node_ints(n, "xdil", &c)[d] != 1 || !ex_is_const(ex, node_exprs(n, "lo", &c)[d], &lo) ||
        !ex_is_const(ex, node_exprs(n, "hi", &c)[d], &hi))
        return false;
    *below = lo > 0 ? lo : 0;
    int64_t stride = node_ints(n, "strides", &c)[d];
    if (ex_is_const(ex, x->dims[2 + d], &size) && ex_is_const(ex, y->dims[2 + d], &out) &&
        ex_is_const(ex, w->dims[2 + d], &k)) {
        if (size <= 0 || out <= 0)
            return false;
        if (tile > 1) { /* as far as the last tile reaches */
            expr_id last = ex_addc(ex, conv_tiles(ex, y->dims[2 + d], dilation, tile), -1);
            ex_is_const(ex, conv_tile_at(ex, last, dilation, tile), &out);
            out += (tile - 1) * dilation + 1;
        }
        hi = (out - 1) * stride + (k - 1) * dilation - lo - (size - 1);
    } else {
        hi += (tile - 1) * stride * dilation;
    }
    *above = hi > 0 ? hi : 0;
    return true;
}

bool conv_bounded(const struct module *m, const struct node *n, int32_t d)
{
    enum { FAR = 5 };
    const struct exprs *x = m->ctx->exprs;
    int64_t below, above;
    return n->op == OP_CONV && !conv_depthwise(m->g, n) && !conv_pixel_lanes(m, n) &&
           !ex_is_const(x, value_type(m->g, n->in[0])->dims[2 + d], NULL) &&
           ex_is_const(x, value_type(m->g, n->in[1])->dims[2 + d], NULL) && conv_reach(m->g, n, d, 1, &below, &above) &&
           (below >= FAR || above >= FAR);
}

bool conv_depthwise(const struct graph *g, const struct node *n)
{
    return n->op == OP_CONV && node_int(n, "groups", 1) > 1 &&
           ex_is(g->ctx->exprs, value_type(g, n->in[1])->dims[1], 1);
}

bool conv_of_rows(const struct module *m, const struct node *n)
{
    const struct exprs *x = m->ctx->exprs;
    int64_t images;
    if (n->op != OP_CONV || conv_depthwise(m->g, n) || conv_pixel_lanes(m, n))
        return false;
    const struct type *y = value_type(m->g, n->out[0]);
    for (int32_t d = 2; d < y->rank; d++)
        if (!ex_is(x, y->dims[d], 1))
            return false;
    return ex_is_const(x, y->dims[0], &images) && images > 1;
}

bool conv_one_channel(const struct graph *g, const struct node *n)
{
    return node_int(n, "groups", 1) == 1 && ex_is(g->ctx->exprs, value_type(g, n->in[1])->dims[1], 1);
}

bool conv_pixel_lanes(const struct module *m, const struct node *n)
{
    int64_t groups = n->op == OP_CONV ? node_int(n, "groups", 1) : 1, channels;
    if (n->op != OP_CONV || m->asked.layout == LAYOUT_NCHW)
        return n->op == OP_CONV;
    return groups > 1 && m->asked.layout == LAYOUT_AUTO &&
           ex_is_const(m->ctx->exprs, value_type(m->g, n->out[0])->dims[1], &channels) && channels != groups &&
           channels / groups % CHANNEL_BLOCK != 0;
}

int32_t dot_free(const struct graph *g, const struct node *n, uint32_t operand, int32_t free_dim[RANK_MAX])
{
    uint32_t n_batch, n_contract;
    const int64_t *batch = node_ints(n, operand ? "batch_b" : "batch_a", &n_batch);
    const int64_t *contract = node_ints(n, operand ? "contract_b" : "contract_a", &n_contract);
    int32_t count = 0;
    for (int32_t d = 0; d < value_type(g, n->in[operand])->rank; d++)
        if (!holds(batch, n_batch, d) && !holds(contract, n_contract, d))
            free_dim[count++] = d;
    return count;
}

static bool widens(const struct graph *g, const struct node *n)
{
    enum elem from = n->op == OP_CONVERT ? value_type(g, n->in[0])->elem : ELEM_NONE;
    return (from == ELEM_F16 || from == ELEM_BF16 || from == ELEM_I8) && value_type(g, n->out[0])->elem == ELEM_F32;
}

value_id weight_whole(const struct graph *g, value_id v)
{
    struct exprs *x = g->ctx->exprs;
    const struct node *n = value_node(g, v);
    uint32_t count;
    if (!n || n->op != OP_SLICE || value_is_const(g, v) || !value_is_const(g, n->in[0]))
        return v;
    const struct type *whole = value_type(g, n->in[0]), *t = value_type(g, v);
    const expr_id *starts = node_exprs(n, "starts", &count);
    const int64_t *steps = node_ints(n, "steps", &count);
    for (int32_t d = 0; d < t->rank; d++)
        if (steps[d] != 1 ||
            (!ex_is(x, t->dims[d], 1) && (t->dims[d].i != whole->dims[d].i || !ex_is(x, starts[d], 0))))
            return v;
    return n->in[0];
}

bool weight_step(const struct graph *g, value_id *v, int64_t *perm)
{
    const struct node *n = value_node(g, *v);
    int32_t of[RANK_MAX];
    if (!n || (n->op != OP_TRANSPOSE && n->op != OP_IDENTITY && !widens(g, n)) || !source_dims(g, n, 0, of))
        return false;
    for (int32_t d = 0; perm && d < value_type(g, *v)->rank; d++)
        perm[d] = of[perm[d]];
    *v = n->in[0];
    return true;
}

int32_t weight_order(const struct graph *g, const struct node *n, const int64_t *perm, int32_t order[RANK_MAX],
                     int32_t *lanes)
{
    int32_t rank = value_type(g, n->in[1])->rank, r = 0, free_dim[RANK_MAX];
    uint32_t nb, nc;
    if (n->op == OP_CONV) {
        bool taps = ex_is(g->ctx->exprs, value_type(g, n->in[1])->dims[1], 1); /* are all that is reduced */
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
    int32_t count = dot_free(g, n, 1, free_dim);
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
