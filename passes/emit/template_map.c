/* The template of maps: loops over the stored value's points, lanes along the dim where memory is contiguous; dims that
 * inner reductions depend on are outermost (rows).
 */
#include "passes/emit/templates.h"
#include "passes/emit/turn.h"

struct map_plan {
    const struct map_schedule *s;
    struct loop loop[RANK_MAX];
    bool turned;                     /* the last two loops, over vec and the dim that the operand has, go by squares ... */
    struct turn turn;                /* ... and the first of them, where it is parallel, over its groups */
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

/* The last two loops by squares, or, where the run finds the extents too short, as they are; group: only this one, {0}: all. */
static void map_turned(struct em *em, const struct map_plan *p, expr_id group, expr_id *idx)
{
    struct em_if iff;
    struct map_plan plain = *p;
    expr_id rest = ex_not(em->x, p->turn.fits);
    plain.turned = false;
    plain.loop[p->s->n_loops - 2].extent = value_type(em->g, em->k->domain)->dims[p->s->vec];    /* not groups */
    if (ex_truth(em->x, p->turn.fits) == TRUE_) {
        turn_emit(em, &p->turn, group, idx);
        return;
    }
    em_if_begin(em, &iff, em_cond(em, p->turn.fits));
    turn_emit(em, &p->turn, group, idx);
    em_if_end(em, &iff);
    if (group.i)          /* the first one does all */
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
    if (p->loop[at].dim == p->s->vec) {
        map_vectors(em, p, at, idx, at + 2 >= p->s->n_loops);
        return;
    }
    struct em_for l;
    idx[p->loop[at].dim] = em_for_begin(em, &l, ex_const(em->x, 0), p->loop[at].extent, 1, NULL, 0);
    map_loops(em, p, at + 1, idx);
    em_for_end(em, &l, NULL, NULL);
}

static void map_vectors(struct em *em, const struct map_plan *p, uint32_t at, expr_id *idx, bool last)
{
    expr_id n = p->loop[at].extent, w = ex_const(em->x, p->s->lanes), zero = ex_const(em->x, 0);
    expr_id full = ex_div(em->x, n, w), rest = ex_mod(em->x, n, w);
    int64_t c;
    bool no_tail = ex_is(em->x, rest, 0);
    struct em_for l;
    if (no_tail || last) {
        if (!ex_is_const(em->x, full, &c) || c > 0) {
            expr_id t = em_for_begin(em, &l, zero, full, 1, NULL, 0);
            idx[p->loop[at].dim] = ex_add(em->x, ex_mulc(em->x, t, p->s->lanes), em_lane(em, p->s->lanes, (lval){0}));
            map_loops(em, p, at + 1, idx);
            em_for_end(em, &l, NULL, NULL);
        }
        if (no_tail)
            return;
        struct em_if iff;   /* nothing that the tail loads may move above its test */
        expr_id base = ex_mulc(em->x, full, p->s->lanes);
        bool guard = !ex_is_const(em->x, rest, &c);
        if (guard)
            em_if_begin(em, &iff, em_cond(em, ex_lt(em->x, zero, rest)));
        idx[p->loop[at].dim] = em_tail(em, guard ? em_pin(em, base, 0, INT64_MAX) : base, rest, p->s->lanes);
        map_loops(em, p, at + 1, idx);
        if (guard)
            em_if_end(em, &iff);
        return;
    }
    expr_id t = em_for_begin(em, &l, zero, ex_ceildiv(em->x, n, w), 1, NULL, 0);
    expr_id base = ex_mulc(em->x, t, p->s->lanes);
    lval mask = em_tail_mask(em, ex_sub(em->x, n, base), p->s->lanes);
    idx[p->loop[at].dim] = ex_add(em->x, base, em_lane(em, p->s->lanes, mask));
    map_loops(em, p, at + 1, idx);
    em_for_end(em, &l, NULL, NULL);
}

/* Lanes of the vector that a parallel index names. */
static expr_id map_parallel_lanes(struct em *em, const struct map_plan *p, expr_id vector)
{
    expr_id n = value_type(em->g, em->k->domain)->dims[p->s->vec], base = ex_mulc(em->x, vector, p->s->lanes);
    bool whole = ex_is(em->x, ex_mod(em->x, n, ex_const(em->x, p->s->lanes)), 0);
    lval mask = whole ? (lval){0} : em_tail_mask(em, ex_sub(em->x, n, base), p->s->lanes);
    return ex_add(em->x, base, em_lane(em, p->s->lanes, mask));
}

bool emit_map(struct em *em)
{
    const struct map_schedule *s = &em->schedule->map;
    struct map_plan p = {.s = s, .turned = s->turn.columns > 0};
    struct em_for par;
    expr_id idx[RANK_MAX], group = {0};
    for (uint32_t i = 0; i < s->n_loops; i++)
        p.loop[i] = (struct loop){s->loop[i], value_type(em->g, em->k->domain)->dims[s->loop[i]], {0}};
    if (p.turned)
        p.turn = turn_open(em, &s->turn, s->vec, s->loop[s->n_loops - 1]);
    for (uint32_t i = 0; i < s->parallel; i++)      /* an index for each vector */
        if (s->loop[i] == s->vec)
            p.loop[i].extent = p.turned ? p.turn.groups : ex_ceildiv(em->x, p.loop[i].extent, ex_const(em->x, s->lanes));
    em_parallel_open(em, &par, p.loop, s->parallel);
    for (uint32_t i = 0; i < s->parallel; i++) {
        bool vec = s->loop[i] == s->vec;
        group = vec && p.turned ? p.loop[i].var : group;
        idx[s->loop[i]] = vec && !p.turned ? map_parallel_lanes(em, &p, p.loop[i].var) : p.loop[i].var;
    }
    if (group.i)
        map_turned(em, &p, group, idx);
    else
        map_loops(em, &p, s->parallel, idx);
    em_parallel_end(em, &par);
    return !em->failed;
}
