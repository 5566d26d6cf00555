/* The loops of a reduction over its reduced dims, for all its points at once: unrolled, in groups, in the blocks in
 * which memory has them, or in parts that are summed apart.
 */
#include "passes/emit/producer.h"
#include "passes/emit/reduce.h"
#include "passes/emit/register_tile.h"

/* Steps x points: what tiles leave of a dynamic extent has a body for each size, and waits for its few sums anyway. */
enum { REST_UNROLL = 32 };

void reduction_unroll(struct em *em, struct reduction *r)
{
    int64_t most = em->rest && r->s->unroll > REST_UNROLL ? REST_UNROLL : r->s->unroll,
            budget = most / (r->n_points ? r->n_points : 1), c;
    if (r->row.dim >= 0)
        budget /= r->row.taps;
    for (uint32_t d = r->n_dims; d > 0; d--) {
        if ((int32_t)d - 1 == r->row.dim)
            continue;
        if (!ex_is_const(em->x, r->dim[d - 1].extent, &c) || c < 1 || r->taps[d - 1].to.i ||
            r->dim[d - 1].order.block || r->dim[d - 1].order.residues > 1)
            break;
        if (d == r->grouped + 1)
            c = (c + r->group - 1) / r->group;
        bool bytes = dot_scaled(r->n) && d == r->n_dims; /* that hold several numbers each: loaded once */
        if (c > budget && !bytes)
            break;
        r->dim[d - 1].unroll = true;
        budget /= c;
    }
}

static void nest(struct em *em, struct reduction *r, uint32_t d, expr_id *k, lreg *acc);

/* A piece of one dim's loop: indices (base + i) * every + first for i in [0, n). */
struct run {
    expr_id base;
    int64_t every, first;
};

struct range_step {
    struct em *em;
    struct reduction *r;
    uint32_t d;
    expr_id *k;
    struct run run;
};

static void range_step(void *user, expr_id i, lreg *acc)
{
    const struct range_step *s = user;
    struct exprs *x = s->em->x;
    s->k[s->d] = ex_addc(x, ex_mulc(x, ex_add(x, s->run.base, i), s->run.every), s->run.first);
    nest(s->em, s->r, s->d + 1, s->k, acc);
}

/* As many groups of the innermost dim from k on as a register has, each a lane. */
static void step_lanes(struct em *em, struct reduction *r, expr_id *k, lreg *acc)
{
    uint32_t d = r->n_dims - 1;
    expr_id first = k[d];
    for (r->lane = 0; r->lane < (int32_t)r->lanes; r->lane++) {
        k[d] = ex_addc(em->x, first, r->lane * (int64_t)r->group);
        reduction_step(em, r, k, acc);
    }
    r->lane = -1;
}

static void lane_step(void *user, expr_id i, lreg *acc)
{
    const struct range_step *s = user;
    struct exprs *x = s->em->x;
    s->k[s->d] = ex_addc(x, ex_add(x, s->run.base, ex_mulc(x, i, s->r->lanes * (int64_t)s->r->group)), s->run.first);
    step_lanes(s->em, s->r, s->k, acc);
}

static void together_step(void *user, expr_id i, lreg *acc)
{
    const struct range_step *s = user;
    struct exprs *x = s->em->x;
    int64_t n = s->r->dim[s->d].together;
    for (int64_t t = 0; t < n; t++) {
        s->k[s->d] = ex_addc(x, ex_add(x, s->run.base, ex_mulc(x, i, n)), s->run.first + t);
        nest(s->em, s->r, s->d + 1, s->k, acc);
    }
}

/* The range in whole steps of `width` indices, a step by `body`, as far as its length is a constant. True: nothing is
 * left; else *run and *n are the rest. */
static bool nest_steps(struct em *em, struct range_step *s, expr_id *n, int64_t width, em_step_fn *body, lreg *acc)
{
    int64_t count;
    if (s->run.every != 1 || !ex_is_const(em->x, *n, &count) || count < width)
        return false;
    em_tile_loop(em, ex_const(em->x, 0), ex_const(em->x, count / width), s->r->n_acc, acc, body, s);
    s->run.base = ex_addc(em->x, s->run.base, count / width * width);
    *n = ex_const(em->x, count % width);
    return count % width == 0;
}

static void nest_range(struct em *em, struct reduction *r, uint32_t d, expr_id *k, lreg *acc, struct run run, expr_id n)
{
    struct range_step s = {em, r, d, k, run};
    int64_t together = r->dim[d].together;
    if (r->s->by_lane && d + 1 == r->n_dims && nest_steps(em, &s, &n, LANE_STEPS, lane_step, acc))
        return;
    if (together > 1 && nest_steps(em, &s, &n, together, together_step, acc))
        return;
    em_tile_loop(em, ex_const(em->x, 0), n, r->n_acc, acc, range_step, &s);
}

/* Groups of a trip: the two that lie together in the panels, so that their vectors are loaded once, or what the record
 * says. */
static uint32_t trip_groups(const struct reduction *r)
{
    return r->half ? 2 : r->s->trip;
}

static void trip_step(void *user, expr_id i, lreg *acc)
{
    const struct range_step *s = user;
    struct exprs *x = s->em->x;
    uint32_t n = trip_groups(s->r);
    for (uint32_t t = 0; t < n; t++) {
        s->k[s->d] = ex_addc(x, ex_add(x, s->run.base, ex_mulc(x, i, n * (int64_t)s->r->group)), t * s->r->group);
        reduction_step(s->em, s->r, s->k, acc);
    }
}

/* Steps base, base + group ... below base + extent along the grouped dim: whole groups, then one that is not. */
static void nest_groups(struct em *em, struct reduction *r, expr_id *k, lreg *acc, expr_id base, int64_t extent,
                        bool unroll)
{
    uint32_t d = r->grouped;
    int64_t whole = extent / r->group, lanes = r->s->by_lane ? whole / r->lanes : 0, from = 0;
    r->valid = r->group;
    if (lanes && !unroll) {
        em_tile_loop(em, ex_const(em->x, 0), ex_const(em->x, lanes), r->n_acc, acc, lane_step,
                     &(struct range_step){em, r, d, k, {base, 1, 0}});
        from = lanes * r->lanes;
    }
    int64_t trip = trip_groups(r), trips = trip > 1 ? whole / trip : 0;
    if (trips && !unroll && !from) {
        em_tile_loop(em, ex_const(em->x, 0), ex_const(em->x, trips), r->n_acc, acc, trip_step,
                     &(struct range_step){em, r, d, k, {base, 1, 0}});
        from = trip * trips;
    }
    if (unroll || from) {
        for (; from < lanes * r->lanes; from += r->lanes) {
            k[d] = ex_addc(em->x, base, from * r->group);
            step_lanes(em, r, k, acc);
        }
        for (; from < whole; from++) {
            k[d] = ex_addc(em->x, base, from * r->group);
            reduction_step(em, r, k, acc);
        }
    } else if (whole) {
        struct em_for l;
        expr_id i = em_for_begin(em, &l, ex_const(em->x, 0), ex_const(em->x, whole), acc, r->n_acc);
        lreg inner[EM_POINTS];
        memcpy(inner, l.params, r->n_acc * sizeof *inner);
        k[d] = ex_add(em->x, base, ex_mulc(em->x, i, r->group));
        reduction_step(em, r, k, inner);
        em_for_end(em, &l, inner, acc);
    }
    if (extent % r->group) {
        r->valid = (uint32_t)(extent % r->group);
        k[d] = ex_addc(em->x, base, whole * r->group);
        reduction_step(em, r, k, acc);
    }
}

/* Are the steps of a block of channels written out? Without an instruction that multiplies groups, a step is several
 * for each point, and a loop costs nothing, but where loops go by trips of several. */
static bool writes_block(const struct em *em, const struct reduction *r)
{
    return !anchor_emulated(&em->site, r->n) || r->s->trip > 1;
}

/* The grouped dim, which is the innermost of more than one index: over the blocks in which it is stored, or in one
 * run. */
static void nest_grouped(struct em *em, struct reduction *r, expr_id *k, lreg *acc)
{
    const struct rdim *dim = &r->dim[r->grouped];
    expr_id zero = ex_const(em->x, 0);
    int64_t n = 0;
    for (uint32_t d = r->grouped + 1; d < r->n_dims; d++)
        k[d] = zero;
    ex_is_const(em->x, dim->extent, &n);
    if (!dim->order.block || n < dim->order.block) {
        nest_groups(em, r, k, acc, zero, n, dim->unroll || n <= dim->order.block);
        return;
    }
    struct em_for l;
    expr_id b = em_for_begin(em, &l, zero, ex_const(em->x, n / dim->order.block), acc, r->n_acc);
    lreg inner[EM_POINTS];
    memcpy(inner, l.params, r->n_acc * sizeof *inner);
    nest_groups(em, r, k, inner, ex_mulc(em->x, b, dim->order.block), dim->order.block, writes_block(em, r));
    em_for_end(em, &l, inner, acc);
    nest_groups(em, r, k, acc, ex_const(em->x, n / dim->order.block * dim->order.block), n % dim->order.block, true);
}

/* Asks for the lines of the block that begins with input channel `next`, while this one's are used. */
static void prefetch_block(struct em *em, struct reduction *r, uint32_t d, expr_id next)
{
    const struct node *n = r->n;
    const struct type *x = value_type(em->g, n->in[0]);
    if (r->fill)
        return;
    const struct em_producer *staged = em_producer_seen(em, n->in[0]);
    if (staged && staged->source.i)
        em_stage_ahead(em, staged, r->points, r->n_points, next);
    if (!r->s->prefetch || (int32_t)d != x->rank - 2)
        return;
    expr_id k[RANK_MAX], at[RANK_MAX], last = {0};
    for (int32_t i = 0; i < x->rank - 2; i++)
        k[i] = ex_const(em->x, 0);
    k[x->rank - 2] = next;
    for (uint32_t i = 0; i < r->n_points; i++) {
        contraction_point(em->g, n, 0, r->points[i], k, at);
        expr_id bytes = em_bytes(em, n->in[0], at);
        if (i > 0 && bytes.i == last.i)
            continue;
        em_prefetch(em, L_PREFETCH, em_buffer(em, n->in[0]), bytes);
        last = bytes;
    }
}

static expr_id first_index(struct em *em, const struct reduction *r, uint32_t d)
{
    return r->from.i && d == r->cut ? r->from : ex_const(em->x, 0);
}

/* n indices of one block from base on. Where the block has a factor, its sums begin at 0, and are multiplied. */
static void nest_block(struct em *em, struct reduction *r, uint32_t d, expr_id *k, lreg *acc, struct run run, int64_t n)
{
    lreg part[EM_POINTS];
    if (!r->scale.product.i || d + 1 < r->n_dims) {
        nest_range(em, r, d, k, acc, run, ex_const(em->x, n));
        return;
    }
    for (uint32_t i = 0; i < r->n_acc; i++)
        part[i] = em_const(em, r->acc, lf_type(em->f, acc[i]).lanes, 0, 0);
    nest_range(em, r, d, k, part, run, ex_const(em->x, n));
    k[d] = run.base;
    reduction_scale(em, r, k, part, acc);
}

/* n indices, `every` apart from `first` on, cut where the blocks of memory are: what is left of the first one, whole
 * ones, the rest. */
static void nest_blocks(struct em *em, struct reduction *r, uint32_t d, expr_id *k, lreg *acc, int64_t n, int64_t every,
                        int64_t first)
{
    const struct channel_order *o = &r->dim[d].order;
    int64_t phase = o->phase[first], lead = phase ? o->block - phase : 0;
    if (lead > n)
        lead = n;
    int64_t whole = (n - lead) / o->block, rest = (n - lead) % o->block;
    expr_id begin = first_index(em, r, d);
    if (lead)
        nest_block(em, r, d, k, acc, (struct run){begin, every, first}, lead);
    if (whole) {
        struct em_for l;
        expr_id b = em_for_begin(em, &l, ex_const(em->x, 0), ex_const(em->x, whole), acc, r->n_acc);
        lreg inner[EM_POINTS];
        memcpy(inner, l.params, r->n_acc * sizeof *inner);
        expr_id base = ex_add(em->x, begin, ex_addc(em->x, ex_mulc(em->x, b, o->block), lead));
        prefetch_block(em, r, d, ex_addc(em->x, ex_mulc(em->x, ex_addc(em->x, base, o->block), every), first));
        nest_block(em, r, d, k, inner, (struct run){base, every, first}, o->block);
        em_for_end(em, &l, inner, acc);
    }
    if (rest)
        nest_block(em, r, d, k, acc, (struct run){ex_addc(em->x, begin, lead + whole * o->block), every, first}, rest);
}

/* The sums of one block of a scaled product, whose number is k[0]. */
static void nest_scaled(struct em *em, struct reduction *r, expr_id *k, lreg *acc)
{
    lreg part[EM_POINTS];
    for (uint32_t i = 0; i < r->n_acc; i++)
        part[i] = em_const(em, ELEM_I32, lf_type(em->f, acc[i]).lanes, 0, 0);
    r->acc = ELEM_I32;
    nest(em, r, 1, k, part);
    r->acc = ELEM_F32;
    reduction_add_block(em, r, k[0], part, acc);
}

/* Steps base .. base + n - 1 of the innermost dim summed in f16. */
static void nest_half(struct em *em, struct reduction *r, uint32_t d, expr_id *k, lreg *acc, expr_id base, int64_t n)
{
    lreg part[EM_POINTS];
    for (uint32_t i = 0; i < r->n_acc; i++)
        part[i] = em_const(em, ELEM_F16, lf_type(em->f, acc[i]).lanes, 0, 0);
    int64_t block = r->dim[d].order.block ? r->dim[d].order.block : n;
    r->acc = ELEM_F16;
    for (int64_t at = 0; at < n; at += block)
        nest_range(em, r, d, k, part, (struct run){ex_addc(em->x, base, at), 1, 0},
                   ex_const(em->x, n - at < block ? n - at : block));
    r->acc = ELEM_F32;
    for (uint32_t i = 0; i < r->n_acc; i++) {
        struct ltype t = lf_type(em->f, acc[i]);
        acc[i] = em_op2(em, L_ADD, acc[i], em_op(em, L_CONVERT, t, &part[i], 1));
    }
}

struct halves {
    struct em *em;
    struct reduction *r;
    uint32_t d;
    expr_id *k, base;
};

static void half_step(void *user, expr_id i, lreg *acc)
{
    const struct halves *h = user;
    expr_id base = ex_add(h->em->x, h->base, ex_mulc(h->em->x, i, h->r->s->halves));
    nest_half(h->em, h->r, h->d, h->k, acc, base, h->r->s->halves);
}

/* The innermost dim in parts that are summed in f16 each; false: its extent is dynamic. */
static bool nest_halves(struct em *em, struct reduction *r, uint32_t d, expr_id *k, lreg *acc)
{
    struct halves h = {em, r, d, k, first_index(em, r, d)};
    int64_t n, each = r->s->halves;
    if (!ex_is_const(em->x, r->dim[d].extent, &n))
        return false;
    if (n >= each)
        em_tile_loop(em, ex_const(em->x, 0), ex_const(em->x, n / each), r->n_acc, acc, half_step, &h);
    if (n % each)
        nest_half(em, r, d, k, acc, ex_addc(em->x, h.base, n / each * each), n % each);
    return true;
}

static void nest(struct em *em, struct reduction *r, uint32_t d, expr_id *k, lreg *acc)
{
    if (r->s->halves && !r->fill && d + 1 == r->n_dims && nest_halves(em, r, d, k, acc))
        return;
    if (d == 1 && dot_scaled(r->n) && r->acc == ELEM_F32) {
        nest_scaled(em, r, k, acc);
        return;
    }
    if (d == r->n_dims && r->row.dim >= 0) {
        reduction_row(em, r, k, acc);
        return;
    }
    if (d == r->n_dims) {
        reduction_step(em, r, k, acc);
        return;
    }
    if ((int32_t)d == r->row.dim) {
        nest(em, r, d + 1, k, acc);
        return;
    }
    if (r->group > 1 && d == r->grouped) {
        nest_grouped(em, r, k, acc);
        return;
    }
    struct rdim *dim = &r->dim[d];
    expr_id zero = ex_const(em->x, 0);
    int64_t n;
    if (ex_is_const(em->x, dim->extent, &n) && n <= 0)
        return;
    if (r->taps[d].to.i) {
        nest_range(em, r, d, k, acc, (struct run){r->taps[d].from, 1, 0},
                   ex_sub(em->x, r->taps[d].to, r->taps[d].from));
    } else if (dim->unroll && ex_is_const(em->x, dim->extent, &n)) {
        for (int64_t i = 0; i < n; i++) {
            k[d] = ex_const(em->x, i);
            nest(em, r, d + 1, k, acc);
        }
    } else if (ex_is_const(em->x, dim->extent, &n) && (dim->order.block || dim->order.residues > 1)) {
        int64_t g = dim->order.residues;
        for (int64_t i = 0; i < g; i++) {
            if (dim->order.block)
                nest_blocks(em, r, d, k, acc, n / g, g, i);
            else
                nest_range(em, r, d, k, acc, (struct run){zero, g, i}, ex_const(em->x, n / g));
        }
    } else {
        nest_range(em, r, d, k, acc, (struct run){first_index(em, r, d), 1, 0}, dim->extent);
    }
}

void reduction_loops(struct em *em, struct reduction *r, lreg *acc)
{
    expr_id k[REDUCED_MOST];
    nest(em, r, 0, k, acc);
}
