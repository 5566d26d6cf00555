/* Which constants are computed where they are read, and of what: the cut through the operators over a constant whose
 * values take the fewest bytes, from the bottom up.
 */
#include "passes/module/compressed.h"

#include "passes/module/access_function.h"
#include "passes/module/analysis.h"

enum {
    LEAVES_MOST = 12,
    STEPS_MOST = 256, /* operators on the ways to the leaves */
    GAIN = 2 /* so many times smaller, at least */
};

struct leaves {
    value_id value[LEAVES_MOST];
    uint32_t n;
    int64_t bytes;
};

static bool value_bytes(const struct graph *g, value_id v, int64_t *bytes)
{
    const struct type *t = value_type(g, v);
    int64_t n;
    *bytes = t->kind == TYPE_TENSOR ? elem_size(t->elem) : 0;
    for (int32_t d = 0; d < t->rank; d++)
        if (!ex_is_const(g->ctx->exprs, t->dims[d], &n) || !mul_i64(*bytes, n, bytes))
            return false;
    return *bytes > 0;
}

static bool is_stored(const struct module *m, value_id v)
{
    return m->fused.storage && m->fused.storage[v.i].place != PLACE_NONE;
}

/* An operator that a kernel computes at each read: no more than a few instructions. A copy is stored: whoever made it
 * wants that. */
static bool is_cheap(const struct module *m, value_id v)
{
    const struct node *n = value_node(m->g, v);
    return n && n->op != OP_DIV && n->op != OP_IDENTITY &&
           (op_shape(n->op) == SHAPE_VIEW || n->op == OP_IOTA ||
            (op_shape(n->op) == SHAPE_MAP && op_cost(n->op) != COST_DEAR));
}

static bool is_splat(const struct module *m, value_id v)
{
    return value_is_splat(m->g, v, &(double){0}, &(int64_t){0});
}

static void leaf_add(struct leaves *l, value_id v, int64_t bytes)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (l->value[i].i == v.i)
            return;
    if (l->n == LEAVES_MOST) {
        l->bytes = INT64_MAX;
        return;
    }
    l->value[l->n++] = v;
    l->bytes = l->bytes > INT64_MAX - bytes ? INT64_MAX : l->bytes + bytes;
}

/* The leaves of v, by bytes; where it takes no more than they do, v is the only one. */
static void find_leaves(const struct module *m, value_id v, struct leaves *l, uint32_t *steps)
{
    int64_t mine, one;
    *l = (struct leaves){.n = 0};
    if (is_splat(m, v))
        return;
    if (!value_bytes(m->g, v, &mine))
        mine = INT64_MAX;
    if (!is_stored(m, v) && is_cheap(m, v) && ++*steps <= STEPS_MOST) {
        const struct node *n = value_node(m->g, v);
        for (uint32_t k = 0; k < n->n_in; k++) {
            struct leaves of;
            find_leaves(m, n->in[k], &of, steps);
            for (uint32_t i = 0; i < of.n; i++)
                leaf_add(l, of.value[i], value_bytes(m->g, of.value[i], &one) ? one : INT64_MAX);
        }
        if (l->bytes <= mine && *steps <= STEPS_MOST)
            return;
    }
    *l = (struct leaves){.value = {v}, .n = 1, .bytes = mine};
}

int32_t leaf_lanes(const struct module *m, value_id v, const expr_id *point, expr_id lanes)
{
    for (int32_t d = 0; d < value_type(m->g, v)->rank && lanes.i; d++)
        if (point[d].i == lanes.i)
            return d;
    return -1;
}

/* Is e the same for all lanes of a register: does it have them in quotients by multiples of a panel's only? */
static bool is_of_panel(const struct leaf_walk *w, expr_id e, int depth)
{
    struct exprs *x = w->m->ctx->exprs;
    sym_id s = ex_as_sym(x, w->lanes);
    int64_t n;
    if (!ex_uses(x, e, s))
        return true;
    if (ex_kind(x, e) == EX_DIV && ex_as_sym(x, ex_arg(x, e, 0)).i == s.i && ex_is_const(x, ex_arg(x, e, 1), &n))
        return n % CHANNEL_BLOCK == 0;
    for (uint32_t i = 0; i < ex_n_args(x, e); i++)
        if (depth > 16 || !is_of_panel(w, ex_arg(x, e, i), depth + 1))
            return false;
    return ex_n_args(x, e) > 0;
}

/* Would lanes along one dim of a reshape's result straddle dims of what it shows? */
static bool splits_lanes(const struct leaf_walk *w, value_id v, const expr_id *idx)
{
    expr_id at[RANK_MAX];
    if (value_op(w->m->g, v) != OP_RESHAPE || leaf_lanes(w->m, v, idx, w->lanes) < 0)
        return false;
    memcpy(at, idx, (size_t)value_type(w->m->g, v)->rank * sizeof *at);
    v = behind_views(w->m, v, at);
    bool whole = true;
    for (int32_t d = 0; d < value_type(w->m->g, v)->rank; d++)
        whole &= is_of_panel(w, at[d], 0);
    return !whole && leaf_lanes(w->m, v, at, w->lanes) < 0;
}

static bool is_leaf(const struct leaf_walk *w, value_id v, const expr_id *idx)
{
    struct leaves l;
    if (w->stored || is_stored(w->m, v))
        return is_stored(w->m, v);
    if (splits_lanes(w, v, idx))
        return true;
    find_leaves(w->m, v, &l, &(uint32_t){0});
    return l.n == 1 && l.value[0].i == v.i;
}

static void walk(const struct leaf_walk *w, value_id v, const expr_id *idx, uint32_t *steps)
{
    struct graph *g = w->m->g;
    expr_id at[RANK_MAX], cond;
    if (is_splat(w->m, v))
        return;
    if (is_leaf(w, v, idx)) {
        w->leaf(w->user, v, idx);
        return;
    }
    if (!is_cheap(w->m, v) || ++*steps > STEPS_MOST)
        return;
    const struct node *n = value_node(g, v);
    if (w->inside)
        w->inside(w->user, v, idx);
    for (uint32_t k = 0; k < n->n_in; k++) {
        if (op_shape(n->op) != SHAPE_VIEW) {
            walk(w, n->in[k], idx, steps);
        } else if (n->op != OP_PAD || k == 0) {
            view_index(g, n, k, idx, at, &cond);
            if (ex_truth(g->ctx->exprs, cond) != FALSE_)
                walk(w, n->in[k], at, steps);
        }
    }
}

void constant_leaves(const struct leaf_walk *w, value_id v, const expr_id *idx)
{
    walk(w, v, idx, &(uint32_t){0});
}

/* ---- is it worth that? ------------------------------------------------------------------------------------------- */

void constant_point(const struct module *m, value_id v, expr_id *idx)
{
    struct exprs *x = m->ctx->exprs;
    const struct type *t = value_type(m->g, v);
    int64_t n;
    for (int32_t d = 0; d < t->rank; d++)
        idx[d] = ex_is_const(x, t->dims[d], &n) && n > 1
                     ? ex_sym(x, sym_new(x, SYM_LOOP, arena_printf(m->arena, "w%u", sym_count(x)), 0, n - 1))
                     : ex_const(x, 0);
}

struct leaf_bytes {
    const struct module *m;
    struct leaves l;
};

static void count_leaf(void *user, value_id leaf, const expr_id *point)
{
    struct leaf_bytes *b = user;
    int64_t one;
    (void)point;
    leaf_add(&b->l, leaf, value_bytes(b->m->g, leaf, &one) ? one : INT64_MAX);
}

bool constant_is_compressed(const struct module *m, value_id v, int32_t lanes)
{
    struct leaf_bytes b = {m, {.n = 0}};
    expr_id idx[RANK_MAX];
    int64_t bytes;
    if (!value_is_const(m->g, v) || m->asked.opt_level == 0 || is_splat(m, v) || !value_bytes(m->g, v, &bytes))
        return false;
    find_leaves(m, v, &b.l, &(uint32_t){0});
    if (b.l.n == 0 || (b.l.n == 1 && b.l.value[0].i == v.i) || b.l.bytes > bytes / GAIN)
        return false;
    b.l = (struct leaves){.n = 0};
    constant_point(m, v, idx);
    struct leaf_walk w = {.m = m, .leaf = count_leaf, .user = &b, .lanes = lanes >= 0 ? idx[lanes] : (expr_id){0}};
    constant_leaves(&w, v, idx);
    return b.l.n > 0 && b.l.bytes <= bytes / GAIN;
}

/* ---- maps -------------------------------------------------------------------------------------------------------- */

struct map_count {
    const struct graph *g;
    uint32_t maps;
};

static void no_leaf(void *user, value_id v, const expr_id *point)
{
    (void)user, (void)v, (void)point;
}

static void count_map(void *user, value_id v, const expr_id *point)
{
    struct map_count *c = user;
    (void)point;
    c->maps += op_shape(value_op(c->g, v)) == SHAPE_MAP;
}

uint32_t constant_maps(const struct module *m, value_id v)
{
    struct map_count c = {m->g, 0};
    expr_id idx[RANK_MAX];
    if (!value_is_const(m->g, weight_whole(m->g, v)))
        return 0;
    for (int32_t d = 0; d < value_type(m->g, v)->rank; d++)
        idx[d] = ex_const(m->ctx->exprs, 0);
    constant_leaves(&(struct leaf_walk){.m = m, .leaf = no_leaf, .inside = count_map, .user = &c, .stored = true}, v,
                    idx);
    return c.maps;
}
