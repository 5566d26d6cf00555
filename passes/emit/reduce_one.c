/* A reduction at one point: with lanes along its innermost reduced dim where memory is contiguous there, and no deeper
 * in the loops than the point's own symbols are.
 */
#include "passes/emit/producer.h"
#include "passes/emit/reduce.h"

/* ---- lanes along the innermost reduced dim ----------------------------------------------------------------------- */

enum { SIBLINGS_MOST = 2, WRITTEN = 4 /* vectors of a row that need no loop */ };

/* Reductions over the same dims, whose loops are one: accumulators of each vector of the first, then of the second. */
struct siblings {
    struct reduction r[SIBLINGS_MOST];
    uint32_t n, n_acc; /* of all */
};

static void siblings_step(struct em *em, struct siblings *all, const expr_id *k, lreg *acc)
{
    for (uint32_t i = 0; i < all->n; i++)
        reduction_step(em, &all->r[i], k, acc + i * all->r[i].n_acc);
}

static void horizontal_steps(struct em *em, struct siblings *all, expr_id *k, uint32_t d, lreg *acc, uint32_t unroll,
                             uint32_t lanes)
{
    const struct reduction *r = &all->r[0];
    int64_t n = 0;
    bool fixed = ex_is_const(em->x, r->dim[d].extent, &n);
    expr_id vectors = ex_div(em->x, r->dim[d].extent, ex_const(em->x, lanes));
    expr_id zero = ex_const(em->x, 0), groups = ex_div(em->x, vectors, ex_const(em->x, unroll));
    expr_id lane = em_lane(em, lanes, (lreg){0});
    lreg inner[2 * SIBLINGS_MOST * SUMS_MOST];
    uint32_t each = all->n_acc;
    struct em_interleave w;
    struct em_for l;
    int64_t g = 0;
    bool written = fixed && unroll == 1 && n / lanes <= WRITTEN;
    if (!written && (!ex_is_const(em->x, groups, &g) || g > 0)) {
        expr_id t = em_for_begin(em, &l, zero, groups, acc, each * unroll);
        memcpy(inner, l.params, each * unroll * sizeof *inner);
        em_interleave_begin(em, &w);
        for (uint32_t u = 0; u < unroll; u++) {
            expr_id v = ex_addc(em->x, ex_mulc(em->x, t, unroll), u);
            k[d] = ex_add(em->x, ex_mulc(em->x, v, lanes), lane);
            siblings_step(em, all, k, &inner[each * u]);
            em_interleave_next(em, &w);
        }
        em_interleave_end(em, &w, unroll, r->s->interleave);
        em_for_end(em, &l, inner, acc);
    }
    for (int64_t v = g * unroll; fixed && v < n / lanes; v++) { /* whole vectors that fill no group */
        k[d] = ex_addc(em->x, lane, v * lanes);
        siblings_step(em, all, k, &acc[each * (v % unroll)]);
    }
    if (!fixed) {
        expr_id v = em_for_begin(em, &l, ex_mulc(em->x, groups, unroll), vectors, acc, each);
        memcpy(inner, l.params, each * sizeof *inner);
        k[d] = ex_add(em->x, ex_mulc(em->x, v, lanes), lane);
        siblings_step(em, all, k, inner);
        em_for_end(em, &l, inner, acc);
    }
    if (fixed && n % lanes == 0)
        return;
    expr_id done = ex_mulc(em->x, vectors, lanes);
    expr_id left = ex_sub(em->x, r->dim[d].extent, done);
    lreg mask = em_tail_mask(em, left, lanes);
    k[d] = em_tail(em, done, left, lanes);
    memcpy(inner, acc, each * sizeof *inner);
    siblings_step(em, all, k, inner);
    for (uint32_t i = 0; i < each; i++)
        acc[i] = em_select(em, mask, inner[i], acc[i]);
}

static void horizontal_nest(struct em *em, struct siblings *all, uint32_t d, expr_id *k, lreg *acc, uint32_t unroll,
                            uint32_t lanes)
{
    const struct reduction *r = &all->r[0];
    if (d + 1 == r->n_dims) {
        horizontal_steps(em, all, k, d, acc, unroll, lanes);
        return;
    }
    struct em_for l;
    lreg inner[2 * SIBLINGS_MOST * SUMS_MOST];
    k[d] = em_for_begin(em, &l, ex_const(em->x, 0), r->dim[d].extent, acc, all->n_acc * unroll);
    memcpy(inner, l.params, all->n_acc * unroll * sizeof *inner);
    horizontal_nest(em, all, d + 1, k, inner, unroll, lanes);
    em_for_end(em, &l, inner, acc);
}

/* Of n vectors of best elements and their indices: the first index of the best of all, or of a NaN. Where a lane has
 * come to nothing better than what it began with, its index is 0, of an element that is as good. */
static lreg first_best(struct em *em, const struct reduction *r, const lreg *acc, uint32_t n)
{
    uint32_t lanes = lf_type(em->f, acc[0]).lanes;
    lreg best = acc[0], index = {0},
         none = em_const(em, r->index, lanes, 0, r->index == ELEM_I32 ? INT32_MAX : INT64_MAX);
    for (uint32_t u = 1; u < n; u++)
        best = em_op2(em, r->combine, best, acc[2 * u]);
    best = em_splat(em, em_hreduce(em, r->combine, best), lanes);
    for (uint32_t u = 0; u < n; u++) {
        lreg is = em_op2(em, L_EQ, acc[2 * u], best);
        if (elem_class(r->acc) == 'F')
            is = em_op2(em, L_OR, is, em_op2(em, L_NE, acc[2 * u], acc[2 * u]));
        lreg mine = em_select(em, is, acc[2 * u + 1], none);
        index = index.i ? em_op2(em, L_MIN, index, mine) : mine;
    }
    return reduction_index(em, em_hreduce(em, L_MIN, index));
}

/* What the accumulators of reduction i come to. */
static lreg sum_of(struct em *em, const struct siblings *all, uint32_t i, const lreg *acc)
{
    const struct reduction *r = &all->r[i];
    lreg sum[2 * SUMS_MOST];
    for (uint32_t u = 0; u < r->s->sums; u++)
        memcpy(sum + u * r->n_acc, acc + u * all->n_acc + i * r->n_acc, r->n_acc * sizeof *sum);
    if (reduce_is_arg(r->n))
        return first_best(em, r, sum, r->s->sums);
    for (uint32_t half = r->s->sums / 2; half > 0; half /= 2)
        for (uint32_t u = 0; u < half; u++)
            sum[u] = em_op2(em, r->combine, sum[u], sum[u + half]);
    return reduction_result(em, r->n, em_hreduce(em, r->combine, sum[0]));
}

/* Reductions at one point, several sums of vectors at a time; these are added in the end. */
static void along_lanes(struct em *em, const struct node *const *nodes, uint32_t n, expr_id *const *points,
                        expr_id cond, lreg *out)
{
    struct siblings all = {.n = n};
    expr_id k[REDUCED_MOST];
    lreg acc[2 * SIBLINGS_MOST * SUMS_MOST];
    for (uint32_t i = 0; i < n; i++) {
        reduction_begin(em, &all.r[i], nodes[i], 1, points, cond);
        all.n_acc += all.r[i].n_acc;
    }
    uint32_t lanes = all.r[0].s->lanes, unroll = all.r[0].s->sums;
    for (uint32_t i = 0, at = 0; i < n; at += all.r[i++].n_acc) {
        struct reduction *r = &all.r[i];
        bool arg = reduce_is_arg(r->n);
        enum elem e = value_type(em->g, arg ? r->n->in[0] : r->n->out[0])->elem;
        for (uint32_t u = 0; u < unroll; u++) {
            acc[u * all.n_acc + at] = reduction_identity(em, r->combine, r->acc, e, lanes);
            if (arg)
                acc[u * all.n_acc + at + 1] = em_const(em, r->index, lanes, 0, 0);
        }
    }
    const struct node *first = nodes[0];
    uint32_t n_axes = 1;
    const int64_t axis = node_int(first, "axis", 0),
                  *axes = reduce_is_arg(first) ? &axis : node_ints(first, "axes", &n_axes);
    bool carries = ex_truth(em->x, cond) == TRUE_ &&
                   em_row_buffer_carry_begin(em, first->in[0], axes, n_axes, points[0]);
    horizontal_nest(em, &all, 0, k, acc, unroll, lanes);
    if (carries)
        em_row_buffer_carry_end(em, first->in[0]);
    for (uint32_t i = 0; i < n; i++)
        out[i] = sum_of(em, &all, i, acc);
}

/* ---- where the loop runs ----------------------------------------------------------------------------------------- */

/* Which loop symbols do two expressions share, and does e have lanes that the point has not? */
static bool shares_symbols(const struct em *em, expr_id e, const expr_id *idx, int32_t rank, bool *foreign_lanes)
{
    bool shared = false;
    *foreign_lanes = false;
    for (uint32_t i = 0; i < em->syms.n; i++) {
        const struct em_sym *s = &em->syms.data[i];
        bool mine = false;
        if (!ex_uses(em->x, e, s->sym))
            continue;
        for (int32_t d = 0; d < rank; d++)
            mine |= ex_uses(em->x, idx[d], s->sym);
        shared |= mine && sym_get(em->x, s->sym)->kind == SYM_LOOP;
        *foreign_lanes |= !mine && s->lanes > 0;
    }
    return shared;
}

/* The part of a condition that says whether a reduction's point exists. Parts that mention nothing of the point are
 * about dims that a broadcast has added; one that mixes both counts when it holds in any lane. Deepens *depth as it
 * needs. */
static expr_id point_condition(struct em *em, expr_id cond, const expr_id *idx, int32_t rank, int *depth)
{
    expr_id result = ex_const(em->x, 1);
    uint32_t n = ex_kind(em->x, cond) == EX_AND ? ex_n_args(em->x, cond) : 1;
    for (uint32_t i = 0; i < n; i++) {
        expr_id part = ex_kind(em->x, cond) == EX_AND ? ex_arg(em->x, cond, i) : cond;
        bool foreign;
        if (ex_truth(em->x, part) == TRUE_ || !shares_symbols(em, part, idx, rank, &foreign))
            continue;
        lreg c = em_cond(em, part);
        if (foreign) {
            c = em_any(em, c);
            part = em_bind(em, c, 1);
        }
        if (em_depth(em, &c, 1) > *depth)
            *depth = em_depth(em, &c, 1);
        result = ex_and(em->x, result, part);
    }
    return result;
}

void em_hoist_begin(struct em *em, struct em_hoist *h, const expr_id *idx, int32_t rank, int depth)
{
    depth = em->floor > depth ? em->floor : depth;
    for (uint32_t i = 0; i < em->syms.n; i++)
        for (int32_t d = 0; d < rank; d++)
            if (em->syms.data[i].depth > depth && ex_uses(em->x, idx[d], em->syms.data[i].sym))
                depth = em->syms.data[i].depth;
    h->top = em->top;
    memcpy(h->level, em->level, sizeof h->level);
    em->top = depth < h->top ? depth : h->top;
}

void em_hoist_end(struct em *em, const struct em_hoist *h)
{
    memcpy(em->level, h->level, sizeof h->level);
    em->top = h->top;
}

/* Along memory, with vectors alike? Else one after another. */
static bool share_loops(struct em *em, const struct node *const *nodes, uint32_t n)
{
    const struct reduce_schedule *first = reduction_schedule(em, nodes[0]);
    struct reduced dims, others;
    reduced_dims(&em->site, nodes[0], false, &dims);
    for (uint32_t i = 1; i < n; i++) {
        const struct reduce_schedule *s = reduction_schedule(em, nodes[i]);
        reduced_dims(&em->site, nodes[i], false, &others);
        if (s->lanes != first->lanes || s->sums != first->sums || others.joined != dims.joined)
            return false;
    }
    return first->lanes > 0;
}

void em_reduce_siblings(struct em *em, const struct node *const *nodes, uint32_t n, const expr_id *idx, expr_id cond,
                        lreg *out)
{
    expr_id *point = arena_copy(em->arena, idx, sizeof *idx * (size_t)(value_type(em->g, nodes[0]->out[0])->rank + 1));
    expr_id *const points[1] = {point};
    int32_t rank = value_type(em->g, nodes[0]->out[0])->rank;
    int depth = 1;
    struct em_hoist h;
    cond = point_condition(em, cond, idx, rank, &depth);
    em_hoist_begin(em, &h, idx, rank, depth);
    bool lanes_taken = reduction_lanes(em, idx, rank) > 1;
    if (!lanes_taken && share_loops(em, nodes, n)) {
        along_lanes(em, nodes, n, points, cond, out);
    } else {
        for (uint32_t i = 0; i < n; i++)
            if (lanes_taken || !reduction_schedule(em, nodes[i])->lanes)
                em_reduce_points(em, nodes[i], 1, points, cond, &out[i]);
            else
                along_lanes(em, &nodes[i], 1, points, cond, &out[i]);
    }
    em_hoist_end(em, &h);
}

lreg em_reduce_one(struct em *em, const struct node *n, const expr_id *idx, expr_id cond)
{
    lreg result;
    em_reduce_siblings(em, &n, 1, idx, cond, &result);
    return result;
}
