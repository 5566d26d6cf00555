/* Reductions: the value of reduce, window, dot and conv at one or several points at once.
 *
 * All points go through the same loops over the reduced dims, so what they share (a weight vector, a broadcast pixel)
 * is loaded once: with points = pixels x vectors of channels this *is* the register-tiled micro-kernel. The order of
 * summation is fixed by the shape, never by threads.
 */
#include "passes/emit/reduce.h"
#include "passes/emit/tile.h"

#include <string.h>

enum lop em_monoid(const char *monoid, enum elem e)
{
    static const struct {
        const char *name;
        enum lop lop, bool_lop;
    } table[] = {
#define MONOID(name, op, statement, of_bool, classes) {name, statement, of_bool},
#include "ir/ops/monoids.def"
    };
    for (uint32_t i = 0; i < COUNT_OF(table); i++)
        if (!strcmp(monoid, table[i].name))
            return e == ELEM_BOOL ? table[i].bool_lop : table[i].lop;
    return L_ADD;
}

static int64_t int_extreme(enum elem e, bool max)
{
    uint32_t bits = elem_bits(e);
    if (elem_class(e) == 'U')
        return max ? (bits >= 64 ? -1 : (int64_t)((UINT64_C(1) << bits) - 1)) : 0;
    int64_t top = bits >= 64 ? INT64_MAX : (INT64_C(1) << (bits - 1)) - 1;
    return max ? top : -top - 1;
}

lreg reduction_identity(struct em *em, enum lop op, enum elem acc, enum elem e, uint32_t lanes)
{
    bool fl = elem_class(acc) == 'F';
    switch (op) {
    case L_MUL: return em_const(em, acc, lanes, 1, 1);
    case L_AND:
        return em_const(em, acc, lanes, 0, acc == ELEM_BOOL ? 1 : elem_class(e) == 'U' ? int_extreme(e, true) : -1);
    case L_MIN: return em_const(em, acc, lanes, __builtin_inf(), fl ? 0 : int_extreme(e, true));
    case L_MAX: return em_const(em, acc, lanes, -__builtin_inf(), fl ? 0 : int_extreme(e, false));
    default: return em_const(em, acc, lanes, 0, 0);
    }
}

/* Small constant reduced dims are unrolled from the inside out, as far as the schedule's body reaches. */
static void unroll_dims(struct em *em, struct reduction *r)
{
    int64_t budget = r->s->unroll / (r->n_points ? r->n_points : 1), c;
    if (r->row.dim >= 0)
        budget /= r->row.taps;
    for (uint32_t d = r->n_dims; d > 0; d--) {
        if ((int32_t)d - 1 == r->row.dim)
            continue;
        if (!ex_is_const(em->x, r->dim[d - 1].extent, &c) || c < 1 || r->dim[d - 1].order.block ||
            r->dim[d - 1].order.residues > 1)
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

/* ---- the loops --------------------------------------------------------------------------------------------------- */

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

/* The two groups that lie together in the panels, so that their vectors are loaded once. */
static void halves_step(void *user, expr_id i, lreg *acc)
{
    const struct range_step *s = user;
    struct exprs *x = s->em->x;
    for (uint32_t half = 0; half < 2; half++) {
        s->k[s->d] = ex_addc(x, ex_add(x, s->run.base, ex_mulc(x, i, 2 * (int64_t)s->r->group)), half * s->r->group);
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
    int64_t pairs = r->half ? whole / 2 : 0;
    if (pairs && !unroll && !from) {
        em_tile_loop(em, ex_const(em->x, 0), ex_const(em->x, pairs), r->n_acc, acc, halves_step,
                     &(struct range_step){em, r, d, k, {base, 1, 0}});
        from = 2 * pairs;
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
        expr_id i = em_for_begin(em, &l, ex_const(em->x, 0), ex_const(em->x, whole), 1, acc, r->n_acc);
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
    expr_id b = em_for_begin(em, &l, zero, ex_const(em->x, n / dim->order.block), 1, acc, r->n_acc);
    lreg inner[EM_POINTS];
    memcpy(inner, l.params, r->n_acc * sizeof *inner);
    nest_groups(em, r, k, inner, ex_mulc(em->x, b, dim->order.block), dim->order.block, true);
    em_for_end(em, &l, inner, acc);
    nest_groups(em, r, k, acc, ex_const(em->x, n / dim->order.block * dim->order.block), n % dim->order.block, true);
}

/* Asks for the lines of the block that begins with input channel `next`, while this one's are used. */
static void prefetch_block(struct em *em, struct reduction *r, uint32_t d, expr_id next)
{
    const struct node *n = r->n;
    const struct type *x = value_type(em->g, n->in[0]);
    uint32_t count;
    if (r->fill)
        return;
    if (em->stage.buffer.i && em->k->form.staged.i == n->in[0].i)
        em_stage_ahead(em, r->points, r->n_points, next);
    if (!r->s->prefetch || (int32_t)d != x->rank - 2)
        return;
    const int64_t *strides = node_ints(n, "strides", &count);
    const expr_id *lo = node_exprs(n, "lo", &count);
    expr_id at[RANK_MAX], last = {0};
    for (uint32_t i = 0; i < r->n_points; i++) {
        const expr_id *p = r->points[i];
        at[0] = p[0];
        at[1] = next;
        for (int32_t k = 2; k < x->rank; k++)
            at[k] = ex_sub(em->x, ex_mulc(em->x, p[k], strides[k - 2]), lo[k - 2]);
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
        expr_id b = em_for_begin(em, &l, ex_const(em->x, 0), ex_const(em->x, whole), 1, acc, r->n_acc);
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

/* The innermost dim in parts that are summed in f16 each; false: only the run knows how long it is. */
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
    if (dim->unroll && ex_is_const(em->x, dim->extent, &n)) {
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

static const struct reduce_schedule *schedule_of(struct em *em, const struct node *n)
{
    static const struct reduce_schedule none = {.lanes = 0};
    for (uint32_t i = 0; i < em->schedule->n_reduce; i++)
        if (graph_node(em->g, em->schedule->reduce[i].node) == n)
            return &em->schedule->reduce[i];
    em->failed = true;
    error_internal(em->m->ctx, n->src, "kernel %s: a reduction has no schedule", em->f->name);
    return &none;
}

/* A single row, or rows that fill no tile: one pass over the panels is not much more than what reads them. */
static bool few_rows(struct em *em, const struct reduction *r)
{
    uint32_t rows = r->n_points / reduction_vectors(em, r);
    return rows == 1 || rows < em->schedule->tile.ta;
}

static void reduction_init(struct em *em, struct reduction *r, const struct node *n, uint32_t n_points,
                           expr_id *const *points, expr_id cond)
{
    uint32_t c;
    bool arg = n->op == OP_ARGREDUCE || n->op == OP_ARGWINDOW;
    enum elem e = value_type(em->g, arg ? n->in[0] : n->out[0])->elem;
    *r = (struct reduction){
        .n = n, .s = schedule_of(em, n), .n_points = n_points, .points = points, .cond = cond, .row.dim = -1};
    r->acc = register_elem(e);
    r->n_acc = arg ? 2 * n_points : n_points;
    r->combine = n->op == OP_REDUCE || n->op == OP_WINDOW          ? em_monoid(node_str(n, "monoid", "sum"), r->acc)
                 : n->op == OP_ARGREDUCE && !node_int(n, "max", 1) ? L_MIN
                 : arg                                             ? L_MAX
                                                                   : L_ADD;
    r->group = r->valid = dot_group(em->m, n);
    r->lane = -1;
    r->lanes = LANE_STEPS;
    r->half = r->group > 1 && panel_group(em->m, n) > r->group;
    if (r->s->row)
        r->row = row_taps_of(em->m, n);
    struct reduced dims;
    reduced_dims(&em->site, n, em->stage.buffer.i && em->k->form.staged.i == n->in[0].i, &dims);
    r->n_dims = dims.n;
    bool taps = conv_depthwise(em->g, n);
    r->grouped = dims.n - 1 - taps;
    for (int32_t d = 0; taps && d < value_type(em->g, n->in[0])->rank - 2; d++)
        if (!em_halo_covers(em, n, d, 1) &&
            (!ex_is(em->x, node_exprs(n, "lo", &c)[d], 0) || !ex_is(em->x, node_exprs(n, "hi", &c)[d], 0)))
            r->group = r->valid = 1; /* some taps of a group might not exist */
    memcpy(r->dim, dims.dim, dims.n * sizeof *dims.dim);
    r->next = em->schedule->tile.next && n == graph_node(em->g, em->k->anchor) && few_rows(em, r);
    r->vectors = r->s->by_lane ? reduction_vectors(em, r) : 1;
    if (r->s->scaled && em->panel.value.i != n->in[1].i)
        block_factor(&em->site, n, &r->scale);
}

/* Lanes of a point: the widest lane symbol that it mentions. */
static uint32_t point_lanes(const struct em *em, const expr_id *p, int32_t rank)
{
    for (int32_t d = 0; d < rank; d++)
        if (em_expr_lanes(em, p[d]))
            return em_expr_lanes(em, p[d]);
    return 1;
}

static lreg finish_acc(struct em *em, const struct node *n, lreg v)
{
    enum elem e = value_type(em->g, n->out[0])->elem, reg = register_elem(e);
    uint32_t lanes = lf_type(em->f, v).lanes;
    if (reg == e)
        return v;
    v = em_op(em, L_CONVERT, (struct ltype){e, lanes}, &v, 1);
    return em_op(em, L_CONVERT, (struct ltype){reg, lanes}, &v, 1);
}

/* Full vectors only: the sums of narrower ones are no blocks. */
static void matrix_init(const struct em *em, struct reduction *r)
{
    enum { LANES = 4 };
    int32_t rank = value_type(em->g, r->n->out[0])->rank;
    if (!r->s->matrix || r->group == 1 || r->n_points % r->vectors)
        return;
    for (uint32_t i = 0; i < r->n_points; i++)
        if (point_lanes(em, r->points[i], rank) != LANES)
            return;
    r->matrix = true;
    r->group = r->valid = 2 * r->group;
    r->lanes = LANE_STEPS / 2;
    r->n_acc = em_tile_matrix_sums(r->n_points / r->vectors, r->vectors);
}

void em_reduce_points(struct em *em, const struct node *n, uint32_t n_points, expr_id *const *points, expr_id cond,
                      lreg *out)
{
    struct reduction r;
    expr_id k[REDUCED_MOST];
    lreg acc[EM_POINTS];
    reduction_init(em, &r, n, n_points, points, cond);
    bool arg = r.n_acc != n_points;
    matrix_init(em, &r);
    unroll_dims(em, &r);
    int32_t rank = value_type(em->g, n->out[0])->rank;
    enum elem e = value_type(em->g, n->in[0])->elem;
    for (uint32_t i = 0; i < n_points; i++) {
        uint32_t lanes = point_lanes(em, points[i], rank);
        if (arg) {
            acc[2 * i] = reduction_identity(em, r.combine, r.acc, e, lanes);
            acc[2 * i + 1] = em_const(em, ELEM_I64, lanes, 0, -1);
        } else {
            acc[i] = reduction_identity(em, r.combine, r.acc, value_type(em->g, n->out[0])->elem, lanes);
        }
    }
    for (uint32_t i = n_points; r.matrix && i < r.n_acc; i++)
        acc[i] = acc[0];
    nest(em, &r, 0, k, acc);
    if (r.matrix)
        em_tile_rows_of_matrix(em, n_points / r.vectors, r.vectors, acc);
    for (uint32_t i = 0; i < n_points; i++)
        out[i] = arg ? acc[2 * i + 1] : finish_acc(em, n, acc[i]);
}

void em_reduce_part(struct em *em, const struct node *n, uint32_t n_points, expr_id *const *points,
                    const struct cut *cut, expr_id from, int64_t count, lreg *acc)
{
    struct reduction r;
    expr_id k[REDUCED_MOST];
    reduction_init(em, &r, n, n_points, points, ex_const(em->x, 1));
    r.cut = cut->dim;
    r.from = from;
    r.dim[cut->dim].extent = ex_const(em->x, count);
    nest(em, &r, 0, k, acc);
}

void em_reduce_operand(struct em *em, const struct node *n, uint32_t n_points, expr_id *const *points)
{
    struct reduction r;
    expr_id k[REDUCED_MOST];
    lreg none[EM_POINTS];
    reduction_init(em, &r, n, n_points, points, ex_const(em->x, 1));
    r.n_acc = 0;
    r.row.dim = -1;
    r.fill = true;
    r.scale.product = (value_id){0};
    nest(em, &r, 0, k, none);
}

/* ---- lanes along the innermost reduced dim ----------------------------------------------------------------------- */

static void horizontal_steps(struct em *em, struct reduction *r, expr_id *k, uint32_t d, lreg *acc, uint32_t unroll,
                             uint32_t lanes)
{
    int64_t n = 0;
    bool fixed = ex_is_const(em->x, r->dim[d].extent, &n);
    expr_id vectors = ex_div(em->x, r->dim[d].extent, ex_const(em->x, lanes));
    expr_id zero = ex_const(em->x, 0), groups = ex_div(em->x, vectors, ex_const(em->x, unroll));
    expr_id lane = em_lane(em, lanes, (lreg){0});
    lreg inner[SUMS_MOST];
    struct em_for l;
    int64_t g = 0;
    if (!ex_is_const(em->x, groups, &g) || g > 0) {
        expr_id t = em_for_begin(em, &l, zero, groups, 1, acc, unroll);
        memcpy(inner, l.params, unroll * sizeof *inner);
        for (uint32_t u = 0; u < unroll; u++) {
            expr_id v = ex_addc(em->x, ex_mulc(em->x, t, unroll), u);
            k[d] = ex_add(em->x, ex_mulc(em->x, v, lanes), lane);
            reduction_step(em, r, k, &inner[u]);
        }
        em_for_end(em, &l, inner, acc);
    }
    for (int64_t v = g * unroll; fixed && v < n / lanes; v++) { /* whole vectors that fill no group */
        k[d] = ex_addc(em->x, lane, v * lanes);
        reduction_step(em, r, k, &acc[v % unroll]);
    }
    if (!fixed) {
        expr_id v = em_for_begin(em, &l, ex_mulc(em->x, groups, unroll), vectors, 1, acc, 1);
        inner[0] = l.params[0];
        k[d] = ex_add(em->x, ex_mulc(em->x, v, lanes), lane);
        reduction_step(em, r, k, inner);
        em_for_end(em, &l, inner, acc);
    }
    if (fixed && n % lanes == 0)
        return;
    expr_id done = ex_mulc(em->x, vectors, lanes);
    expr_id left = ex_sub(em->x, r->dim[d].extent, done);
    lreg mask = em_tail_mask(em, left, lanes);
    k[d] = em_tail(em, done, left, lanes);
    lreg whole = acc[0], next = acc[0];
    reduction_step(em, r, k, &next);
    acc[0] = em_select(em, mask, next, whole);
}

static void horizontal_nest(struct em *em, struct reduction *r, uint32_t d, expr_id *k, lreg *acc, uint32_t unroll,
                            uint32_t lanes)
{
    if (d + 1 == r->n_dims) {
        horizontal_steps(em, r, k, d, acc, unroll, lanes);
        return;
    }
    struct em_for l;
    lreg inner[SUMS_MOST];
    k[d] = em_for_begin(em, &l, ex_const(em->x, 0), r->dim[d].extent, 1, acc, unroll);
    memcpy(inner, l.params, unroll * sizeof *inner);
    horizontal_nest(em, r, d + 1, k, inner, unroll, lanes);
    em_for_end(em, &l, inner, acc);
}

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
            lreg any = em_op(em, L_HREDUCE, (struct ltype){ELEM_BOOL, 1}, &c, 1);
            lf_last(em->f, em->level[em_depth(em, &any, 1)])->imm = L_OR;
            c = any;
            part = em_bind(em, em_op(em, L_CONVERT, (struct ltype){ELEM_I64, 1}, &any, 1), 0, 1);
        }
        if (em_depth(em, &c, 1) > *depth)
            *depth = em_depth(em, &c, 1);
        result = ex_and(em->x, result, part);
    }
    return result;
}

/* The loop runs at the depth of the point's symbols: deeper levels that are open stay open, and come after it. */
lreg em_reduce_one(struct em *em, const struct node *n, const expr_id *idx, expr_id cond)
{
    struct reduction r;
    expr_id k[REDUCED_MOST],
        *point = arena_copy(em->arena, idx, sizeof *idx * (size_t)(value_type(em->g, n->out[0])->rank + 1));
    expr_id *const points[1] = {point};
    int32_t rank = value_type(em->g, n->out[0])->rank;
    int depth = em->floor > 1 ? em->floor : 1;
    for (uint32_t i = 0; i < em->syms.n; i++)
        for (int32_t d = 0; d < rank; d++)
            if (em->syms.data[i].depth > depth && ex_uses(em->x, idx[d], em->syms.data[i].sym))
                depth = em->syms.data[i].depth;
    cond = point_condition(em, cond, idx, rank, &depth);
    lblock saved[EM_LEVELS];
    int top = em->top;
    memcpy(saved, em->level, sizeof saved);
    em->top = depth < top ? depth : top;
    lreg result;
    bool lanes_taken = point_lanes(em, idx, rank) > 1;
    if (lanes_taken || !schedule_of(em, n)->lanes) {
        em_reduce_points(em, n, 1, points, cond, &result);
    } else {
        reduction_init(em, &r, n, 1, points, cond);
        uint32_t lanes = r.s->lanes, unroll = r.s->sums;
        lreg acc[SUMS_MOST];
        for (uint32_t u = 0; u < unroll; u++)
            acc[u] = reduction_identity(em, r.combine, r.acc, value_type(em->g, n->out[0])->elem, lanes);
        uint32_t n_axes;
        const int64_t *axes = node_ints(n, "axes", &n_axes);
        bool rides = ex_truth(em->x, cond) == TRUE_ && em_local_ride(em, n->in[0], axes, n_axes);
        horizontal_nest(em, &r, 0, k, acc, unroll, lanes);
        if (rides)
            em_local_ride_end(em, n->in[0]);
        for (uint32_t half = unroll / 2; half > 0; half /= 2)
            for (uint32_t u = 0; u < half; u++)
                acc[u] = em_op2(em, r.combine, acc[u], acc[u + half]);
        struct ltype t = {r.acc, 1};
        result = em_op(em, L_HREDUCE, t, acc, 1);
        lf_last(em->f, em->level[em_depth(em, &result, 1)])->imm = r.combine;
        result = finish_acc(em, n, result);
    }
    memcpy(em->level, saved, sizeof saved);
    em->top = top;
    return result;
}
