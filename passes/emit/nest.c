/* Loop nests (struct nest_schedule), which maps, scans, scatters and halos have, and the template of maps. */
#include "passes/emit/templates.h"

struct nest {
    const struct nest_schedule *s;
    const expr_id *extent; /* by dim, as the next two */
    expr_id idx[RANK_MAX];
    struct {
        expr_id trip; /* of the loop over the dim that is open ... */
        int64_t step; /* ... and the points that it takes; 0: none is, or it takes single points */
    } around[RANK_MAX];
    nest_fn *body;
    void *user;
    bool fits; /* the dims are known to hold the tiles that are transposed */
};

static void loops(struct em *em, struct nest *n, uint32_t at);

/* The trips of loop `at`: all of its dim, or those within the trip of the loop around it. */
static void trips(struct em *em, const struct nest *n, uint32_t at, expr_id *first, expr_id *end)
{
    int32_t d = n->s->loop[at];
    int64_t step = n->s->step[at], ratio = n->around[d].step / step;
    *first = ex_const(em->x, 0);
    *end = ex_ceildiv(em->x, n->extent[d], ex_const(em->x, step));
    if (!n->around[d].step)
        return;
    *first = ex_mulc(em->x, n->around[d].trip, ratio);
    *end = ex_min(em->x, *end, ex_addc(em->x, *first, ratio));
}

/* What follows loop `at`, whose trip takes these points: with packed ones all that the last loop has for each. */
static void at_points(struct em *em, struct nest *n, uint32_t at, uint32_t next, expr_id points)
{
    int32_t d = n->s->loop[at], vec = n->s->vec;
    n->idx[d] = d == vec ? points : ex_div(em->x, points, n->extent[vec]);
    if (d != vec)
        n->idx[vec] = ex_mod(em->x, points, n->extent[vec]);
    loops(em, n, d == vec ? next : next + 1);
}

/* Vectors of points [from, to) of loop at's dim, or of those within the trip of the loop around it. What fills no
 * vector has code of its own, so that the others have no mask. */
static void segment(struct em *em, struct nest *n, uint32_t at, uint32_t next, expr_id from, expr_id to)
{
    struct exprs *x = em->x;
    int32_t d = n->s->loop[at];
    int64_t step = n->s->step[at], few = d == n->s->vec ? 1 : ex_hi(x, n->extent[n->s->vec]);
    uint32_t lanes = (uint32_t)(step * few);
    expr_id count = ex_sub(x, to, from), whole = ex_div(x, count, ex_const(x, step)),
            rest = ex_mod(x, count, ex_const(x, step)), first = ex_const(x, 0), end = whole;
    bool exact = ex_is(x, rest, 0), one = n->around[d].step == step, some;
    expr_id more = ex_lt(x, first, rest);
    struct em_if iff = {.block = {0}};
    struct em_for l;
    if (n->around[d].step) {
        trips(em, n, at, &first, &end);
        if (!one && !exact && !ex_is_const(x, n->extent[d], &(int64_t){0})) { /* whole and rest say the extent */
            end = ex_addc(x, first, n->around[d].step / step);
            more = ex_and(x, more, ex_lt(x, whole, end));
        } else {
            more = one ? ex_le(x, whole, first) : ex_lt(x, whole, end);
        }
        end = exact ? end : ex_min(x, end, whole);
    }
    from = ex_mulc(x, from, few);
    some = one && !exact ? em_if_known(em, &iff, ex_lt(x, first, whole)) : !ex_is(x, end, 0);
    if (some) {
        expr_id t = one ? first : em_for_begin(em, &l, first, end, NULL, 0);
        at_points(em, n, at, next, ex_add(x, from, ex_add(x, ex_mulc(x, t, lanes), em_lane(em, lanes, (lreg){0}))));
        if (!one)
            em_for_end(em, &l, NULL, NULL);
    }
    em_if_end(em, &iff);
    if (exact || !em_if_known(em, &iff, more))
        return;
    expr_id base = ex_add(x, from, ex_mulc(x, whole, lanes));
    if (iff.block.i && !ex_is_const(x, base, &(int64_t){0})) /* nothing that it loads may move above its test */
        base = em_pin(em, base, 0, INT64_MAX);
    at_points(em, n, at, next, em_tail(em, base, ex_mulc(x, rest, few), lanes));
    em_if_end(em, &iff);
}

/* Loop `at`, whose trips are vectors: all of its segments. */
static void vectors(struct em *em, struct nest *n, uint32_t at, uint32_t next)
{
    expr_id from = ex_const(em->x, 0);
    for (uint32_t i = 0; i <= n->s->n_peels; i++) {
        expr_id to = i < n->s->n_peels ? ex_const(em->x, n->s->peel[i]) : n->extent[n->s->loop[at]];
        segment(em, n, at, next, from, to);
        from = to;
    }
}

/* Where trip t of tiles begins: the last one ends with the dim, and computes some points again. */
static expr_id begin_of(struct em *em, expr_id t, expr_id extent, int64_t size)
{
    expr_id begin = ex_mulc(em->x, t, size);
    int64_t hi = ex_hi(em->x, extent);
    return ex_is(em->x, ex_mod(em->x, extent, ex_const(em->x, size)), 0)
               ? begin
               : em_pin(em, ex_min(em->x, begin, ex_addc(em->x, extent, -size)), 0, hi == INT64_MAX ? hi : hi - size);
}

/* The loops of tiles or, where the run finds the extents too short for one, of vectors and points. */
static void tiles(struct em *em, struct nest *n, uint32_t at)
{
    const struct nest_schedule *s = n->s;
    const uint32_t last = s->n_loops - 1;
    struct nest_schedule plain = *s;
    struct nest other = *n;
    struct exprs *x = em->x;
    struct em_if iff;
    expr_id fits = ex_and(x, ex_le(x, ex_const(x, nest_lanes(s)), n->extent[s->vec]),
                          ex_le(x, ex_const(x, nest_transposed(s)), n->extent[s->loop[last]]));
    n->fits = true;
    em_if_known(em, &iff, fits);
    loops(em, n, at);
    em_if_end(em, &iff);
    plain.n_loops = at;
    for (uint32_t i = at; i <= last; i++)
        if (i + 1 >= last || (s->loop[i] != s->vec && s->loop[i] != s->loop[last]))
            nest_add(&plain, s->loop[i], i < last ? s->step[i] : 1);
    other.s = &plain;
    if (em_if_known(em, &iff, ex_not(x, fits)))
        loops(em, &other, at);
    em_if_end(em, &iff);
}

static void loops(struct em *em, struct nest *n, uint32_t at)
{
    const struct nest_schedule *s = n->s;
    uint32_t columns = nest_transposed(s);
    if (at == s->n_loops) {
        if (columns)
            em_transposed(em, s->vec, s->loop[at - 1], nest_lanes(s), columns, n->idx);
        else
            n->body(em, n->user, n->idx);
        return;
    }
    int32_t d = s->loop[at];
    if (columns && !n->fits && (d == s->vec || d == s->loop[s->n_loops - 1])) {
        tiles(em, n, at);
        return;
    }
    int64_t step = s->step[at], saved = n->around[d].step;
    bool last = nest_is_last(s, at);
    if (last && step > 1 && !columns) {
        vectors(em, n, at, at + 1);
        return;
    }
    struct em_for l;
    expr_id first, end, outer = n->around[d].trip;
    trips(em, n, at, &first, &end);
    expr_id t = em_for_begin(em, &l, first, end, NULL, 0);
    if (last)
        n->idx[d] = step > 1 ? begin_of(em, t, n->extent[d], step) : t;
    n->around[d].trip = t;
    n->around[d].step = step;
    loops(em, n, at + 1);
    n->around[d].trip = outer;
    n->around[d].step = saved;
    em_for_end(em, &l, NULL, NULL);
}

void em_nest_serial(struct em *em, const struct nest_schedule *s, const expr_id *extents, nest_fn *body, void *user)
{
    loops(em, &(struct nest){.s = s, .extent = extents, .body = body, .user = user}, 0);
}

void em_nest(struct em *em, const struct nest_schedule *s, const expr_id *extents, nest_fn *body, void *user)
{
    struct nest n = {.s = s, .extent = extents, .body = body, .user = user};
    struct loop loop[RANK_MAX];
    struct em_parallel par;
    uint32_t vector = s->n_loops;
    for (uint32_t i = 0; i < s->parallel; i++)
        loop[i] = (struct loop){s->loop[i], ex_ceildiv(em->x, extents[s->loop[i]], ex_const(em->x, s->step[i])), {0}};
    em_parallel_open(em, &par, loop, s->parallel);
    for (uint32_t i = 0; i < s->parallel; i++) {
        int32_t d = s->loop[i];
        n.idx[d] = n.around[d].trip = loop[i].var;
        n.around[d].step = s->step[i];
        vector = nest_is_last(s, i) && s->step[i] > 1 ? i : vector;
    }
    if (vector < s->parallel) /* an index for each */
        vectors(em, &n, vector, s->parallel);
    else
        loops(em, &n, s->parallel);
    em_parallel_close(em, &par);
}

/* Where the points of a padded copy are there already, since its operand lies within it (layout/plan_halos.c:
 * plan_frame): a condition. */
static expr_id is_there(struct em *em, const struct node *pad, const expr_id *idx)
{
    value_id copy = em->k->domain;
    expr_id at[RANK_MAX], inside, nowhere = ex_const(em->x, 0);
    int64_t apart;
    if (!pad || pad->op != OP_PAD || pad->n_in < 2 || strcmp(node_str(pad, "mode", "constant"), "constant") ||
        em->k->piece || em->m->fused.constraint[pad->in[0].i].frame.i != copy.i)
        return nowhere;
    const struct storage *s = &em->m->fused.storage[copy.i], *of = &em->m->fused.storage[pad->in[0].i];
    view_index(em->g, pad, 0, idx, at, &inside);
    bool same = s->place == PLACE_ARENA && of->place == PLACE_ARENA && s->buffer == of->buffer &&
                ex_apart(em->x, storage_address(em->x, s, idx), storage_address(em->x, of, at), &apart) && !apart;
    return same && !em_expr_lanes(em, inside) ? inside : nowhere;
}

static void map_point(struct em *em, void *user, expr_id *idx)
{
    const struct node *n = value_node(em->g, em->k->domain);
    expr_id there = is_there(em, n, idx), yes = ex_const(em->x, 1);
    struct em_if iff = {.block = {0}};
    (void)user;
    if (em->failed || !em_if_known(em, &iff, ex_not(em->x, there)))
        return;
    em_store_out(em, idx, em_value(em, ex_truth(em->x, there) == FALSE_ ? em->k->domain : n->in[1], idx, yes));
    em_if_end(em, &iff);
}

bool emit_map(struct em *em)
{
    em_nest(em, &em->schedule->nest, value_type(em->g, em->k->domain)->dims, map_point, NULL);
    return !em->failed;
}
