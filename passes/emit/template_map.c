/* The template of maps: loops over the stored value's points, lanes along the dim where memory is contiguous; dims that
 * inner reductions depend on are outermost (rows).
 */
#include "passes/emit/templates.h"
#include "passes/emit/transpose.h"

struct map_plan {
    const struct map_schedule *s;
    struct loop loop[RANK_MAX];
    bool turned; /* the last two loops, over vec and the dim that the operand has, go by tiles ... */
    struct transpose transpose; /* ... and the first of them, where it is parallel, over its groups */
    expr_id steps; /* of the last parallel loop, where an index does several */
};

static void map_point(struct em *em, const expr_id *idx)
{
    if (em->failed)
        return;
    em_store_out(em, idx, em_value(em, em->k->domain, idx, ex_const(em->x, 1)));
}

/* The loop over the vectorised dim. */
static void map_vectors(struct em *em, const struct map_plan *p, uint32_t at, expr_id *idx, bool last);

static void map_loops(struct em *em, const struct map_plan *p, uint32_t at, expr_id *idx);

static void map_packed(struct em *em, const struct map_plan *p, uint32_t at, expr_id *idx);

/* The last two loops by tiles, or, where the run finds the extents too short, as they are; group: only this one, {0}:
 * all. */
static void map_turned(struct em *em, const struct map_plan *p, expr_id group, expr_id *idx)
{
    struct em_if iff;
    struct map_plan plain = *p;
    expr_id rest = ex_not(em->x, p->transpose.fits);
    plain.turned = false;
    plain.loop[p->s->n_loops - 2].extent = value_type(em->g, em->k->domain)->dims[p->s->vec]; /* not groups */
    if (ex_truth(em->x, p->transpose.fits) == TRUE_) {
        transpose_emit(em, &p->transpose, group, idx);
        return;
    }
    em_if_begin(em, &iff, em_cond(em, p->transpose.fits));
    transpose_emit(em, &p->transpose, group, idx);
    em_if_end(em, &iff);
    if (group.i) /* the first one does all */
        rest = ex_and(em->x, rest, ex_eq(em->x, group, ex_const(em->x, 0)));
    em_if_begin(em, &iff, em_cond(em, rest));
    map_loops(em, &plain, p->s->n_loops - 2, idx);
    em_if_end(em, &iff);
}

static void map_loops(struct em *em, const struct map_plan *p, uint32_t at, expr_id *idx)
{
    if (p->turned && at + 2 == p->s->n_loops) {
        map_turned(em, p, (expr_id){0}, idx);
        return;
    }
    if (at == p->s->n_loops) {
        map_point(em, idx);
        return;
    }
    if (p->s->packed && at + 2 == p->s->n_loops) {
        map_packed(em, p, at, idx);
        return;
    }
    if (p->loop[at].dim == p->s->vec) {
        map_vectors(em, p, at, idx, at + 2 >= p->s->n_loops);
        return;
    }
    struct em_for l;
    idx[p->loop[at].dim] = em_for_begin(em, &l, ex_const(em->x, 0), p->loop[at].extent, 1, NULL, 0);
    map_loops(em, p, at + 1, idx);
    em_for_end(em, &l, NULL, NULL);
}

/* `body` at the points of the lanes' dim that vector number `vector` has. */
typedef void map_body(struct em *, const struct map_plan *, uint32_t at, expr_id *idx);
static void map_at_vector(struct em *em, const struct map_plan *p, expr_id vector, map_body *body, uint32_t at,
                          expr_id *idx)
{
    struct exprs *x = em->x;
    expr_id n = value_type(em->g, em->k->domain)->dims[p->s->vec], w = ex_const(x, p->s->lanes), full = ex_div(x, n, w),
            rest = ex_mod(x, n, w);
    struct em_if iff;
    if (!p->s->remainder) {
        idx[p->s->vec] = em_vector_lanes(em, n, p->s->lanes, vector);
        body(em, p, at, idx);
        return;
    }
    em_if_begin(em, &iff, em_cond(em, ex_lt(x, vector, full)));
    idx[p->s->vec] = ex_add(x, ex_mul(x, vector, w), em_lane(em, p->s->lanes, (lreg){0}));
    body(em, p, at, idx);
    em_if_end(em, &iff);
    em_if_begin(em, &iff, em_cond(em, ex_le(x, full, vector)));
    expr_id base = ex_mul(x, full, w);
    base = ex_is_const(x, base, &(int64_t){0}) ? base : em_pin(em, base, 0, INT64_MAX);
    idx[p->s->vec] = em_tail(em, base, rest, p->s->lanes);
    body(em, p, at, idx);
    em_if_end(em, &iff);
}

struct map_at {
    const struct map_plan *p;
    uint32_t at;
    expr_id *idx;
};

static void map_vector(struct em *em, void *user, expr_id points)
{
    const struct map_at *m = user;
    m->idx[m->p->loop[m->at].dim] = points;
    map_loops(em, m->p, m->at + 1, m->idx);
}

/* All n points of a loop by vectors of so many lanes, `few` of them a point. */
static void map_parts(struct em *em, const struct map_plan *p, expr_id n, uint32_t few, uint32_t lanes, vector_fn *fn,
                      struct map_at *at)
{
    expr_id from = ex_const(em->x, 0);
    for (uint32_t i = 0; i <= p->s->n_peels; i++) {
        expr_id to = i < p->s->n_peels ? ex_const(em->x, p->s->peel[i]) : n;
        em_vectors(em, ex_mulc(em->x, from, few), ex_mulc(em->x, ex_sub(em->x, to, from), few), lanes, fn, at);
        from = to;
    }
}

static void map_pair(struct em *em, void *user, expr_id points)
{
    const struct map_at *m = user;
    expr_id few = m->p->loop[m->at + 1].extent;
    m->idx[m->p->loop[m->at].dim] = ex_div(em->x, points, few);
    m->idx[m->p->loop[m->at + 1].dim] = ex_mod(em->x, points, few);
    map_point(em, m->idx);
}

/* The last two loops by vectors that hold all points of the last one for several of the other. */
static void map_packed(struct em *em, const struct map_plan *p, uint32_t at, expr_id *idx)
{
    uint32_t few = (uint32_t)ex_hi(em->x, p->loop[at + 1].extent);
    map_parts(em, p, p->loop[at].extent, few, p->s->packed * few, map_pair, &(struct map_at){p, at, idx});
}

static void map_vectors(struct em *em, const struct map_plan *p, uint32_t at, expr_id *idx, bool last)
{
    expr_id n = p->loop[at].extent, w = ex_const(em->x, p->s->lanes);
    struct em_for l;
    if (last || ex_is(em->x, ex_mod(em->x, n, w), 0)) {
        map_parts(em, p, n, 1, p->s->lanes, map_vector, &(struct map_at){p, at, idx});
        return;
    }
    expr_id t = em_for_begin(em, &l, ex_const(em->x, 0), ex_ceildiv(em->x, n, w), 1, NULL, 0);
    map_at_vector(em, p, t, map_loops, at + 1, idx);
    em_for_end(em, &l, NULL, NULL);
}

/* Steps [first, first + split) of the last parallel loop, of so many in all. */
static void map_part(struct em *em, const struct map_plan *p, expr_id part, expr_id steps, expr_id *idx)
{
    const struct map_schedule *s = p->s;
    uint32_t at = s->parallel - 1, dim = (uint32_t)s->loop[at];
    struct exprs *x = em->x;
    expr_id n = value_type(em->g, em->k->domain)->dims[dim], w = ex_const(x, s->lanes),
            first = ex_mulc(x, part, s->split);
    bool vec = s->loop[at] == s->vec;
    struct em_for l;
    if (vec && s->parallel == s->n_loops && !ex_is(x, ex_mod(x, n, w), 0)) { /* the last vector alone has a mask */
        expr_id from = ex_mul(x, first, w), most = ex_const(x, s->split * s->lanes);
        em_vectors(em, from, ex_min(x, ex_sub(x, n, from), most), s->lanes, map_vector, &(struct map_at){p, at, idx});
        return;
    }
    expr_id end = ex_min(x, ex_addc(x, first, s->split), steps), i = em_for_begin(em, &l, first, end, 1, NULL, 0);
    idx[dim] = i;
    if (vec)
        map_at_vector(em, p, i, map_loops, s->parallel, idx);
    else
        map_loops(em, p, s->parallel, idx);
    em_for_end(em, &l, NULL, NULL);
}

/* What a parallel index does, where idx says which. */
static void map_index(struct em *em, const struct map_plan *p, uint32_t at, expr_id *idx)
{
    if (p->s->split)
        map_part(em, p, p->loop[at - 1].var, p->steps, idx);
    else
        map_loops(em, p, at, idx);
}

bool emit_map(struct em *em)
{
    const struct map_schedule *s = &em->schedule->map;
    struct map_plan p = {.s = s, .turned = s->transpose.columns > 0};
    struct em_for par;
    expr_id idx[RANK_MAX], vector = {0};
    for (uint32_t i = 0; i < s->n_loops; i++)
        p.loop[i] = (struct loop){s->loop[i], value_type(em->g, em->k->domain)->dims[s->loop[i]], {0}};
    if (p.turned)
        p.transpose = transpose_open(em, &s->transpose, s->vec, s->loop[s->n_loops - 1]);
    for (uint32_t i = 0; i < s->parallel; i++) /* an index for each vector */
        if (s->loop[i] == s->vec)
            p.loop[i].extent = p.turned ? p.transpose.groups
                                        : ex_ceildiv(em->x, p.loop[i].extent, ex_const(em->x, s->lanes));
    p.steps = s->split ? p.loop[s->parallel - 1].extent : (expr_id){0};
    if (s->split)
        p.loop[s->parallel - 1].extent = ex_ceildiv(em->x, p.steps, ex_const(em->x, s->split));
    em_parallel_open(em, &par, p.loop, s->parallel);
    for (uint32_t i = 0; i < s->parallel; i++) {
        bool whole = i + 1 < s->parallel || !s->split;
        vector = s->loop[i] == s->vec && whole ? p.loop[i].var : vector;
        idx[s->loop[i]] = p.loop[i].var;
    }
    if (vector.i && p.turned)
        map_turned(em, &p, vector, idx);
    else if (vector.i)
        map_at_vector(em, &p, vector, map_index, s->parallel, idx);
    else
        map_index(em, &p, s->parallel, idx);
    em_parallel_end(em, &par);
    return !em->failed;
}
