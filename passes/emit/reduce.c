/* Reductions: the value of reduce, window, dot and conv at one or several points at once.
 *
 * All points go through the same loops over the reduced dims, so what they share (a weight vector, a broadcast pixel)
 * is loaded once: with points = pixels x vectors of channels this *is* the register-tiled micro-kernel. The order of
 * summation is fixed by the shape, never by threads. Here a reduction is set up and its sums become results; the loops
 * are in emit/reduce_loops.c, what they do at a step in emit/reduce_step.c, and one point alone in emit/reduce_one.c.
 */
#include "passes/emit/producer.h"
#include "passes/emit/reduce.h"
#include "passes/emit/register_tile.h"

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

const struct reduce_schedule *reduction_schedule(struct em *em, const struct node *n)
{
    static const struct reduce_schedule none = {.lanes = 0};
    for (uint32_t i = 0; i < em->schedule->n_reduce; i++)
        if (graph_node(em->g, em->facts->reductions[i]) == n)
            return &em->schedule->reduce[i];
    em->failed = true;
    error_internal(em->m->ctx, n->src, "kernel %s: a reduction has no schedule", em->f->name);
    return &none;
}

/* A single row, or rows that fill no tile: one pass over the panels is not much more than what reads them. */
static bool few_rows(struct em *em, const struct reduction *r)
{
    uint32_t rows = r->n_points / reduction_vectors(em, r);
    return rows == 1 || rows < em->schedule->tile.ta || dot_scaled(r->n);
}

/* Indices of 32 bits where these do. Where there is an element, the first one counts as found before. */
static void arg_begin(struct em *em, struct reduction *r)
{
    const struct type *t = value_type(em->g, r->n->in[0]);
    int64_t last = 1, most;
    r->index = ELEM_I32;
    for (int32_t d = 0; d < t->rank; d++) {
        most = ex_hi(em->x, t->dims[d]);
        if (!mul_i64(last, most > 1 ? most : 1, &last) || last > INT32_MAX)
            r->index = ELEM_I64;
    }
    r->found = r->n->op == OP_ARGREDUCE && ex_truth(em->x, r->cond) == TRUE_ &&
               ex_lo(em->x, t->dims[node_int(r->n, "axis", 0)]) > 0;
}

void reduction_begin(struct em *em, struct reduction *r, const struct node *n, uint32_t n_points,
                     expr_id *const *points, expr_id cond)
{
    uint32_t c;
    bool arg = reduce_is_arg(n);
    *r = (struct reduction){
        .n = n, .s = reduction_schedule(em, n), .n_points = n_points, .points = points, .cond = cond, .row.dim = -1};
    r->acc = reduce_elem(em->g, n);
    if (arg)
        arg_begin(em, r);
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
    reduced_dims(&em->site, n, em_producer_seen(em, n->in[0]), &dims);
    r->n_dims = dims.n;
    r->joined = dims.joined;
    bool taps = conv_by_taps(em->m, n);
    r->grouped = dims.n - 1 - taps;
    for (int32_t d = 0; taps && d < value_type(em->g, n->in[0])->rank - 2; d++)
        if (!em_halo_covers(em, n, d, 1) &&
            (!ex_is(em->x, node_exprs(n, "lo", &c)[d], 0) || !ex_is(em->x, node_exprs(n, "hi", &c)[d], 0)))
            r->group = r->valid = 1; /* some taps of a group might not exist */
    memcpy(r->dim, dims.dim, dims.n * sizeof *dims.dim);
    r->next = em->schedule->tile.next && n == graph_node(em->g, em->k->anchor) && few_rows(em, r);
    r->vectors = r->s->by_lane ? reduction_vectors(em, r) : 1;
    if (r->s->scaled && !em_producer_seen(em, n->in[1]))
        block_factor(&em->site, n, &r->scale);
}

/* The points of the tile along spatial dim d of a convolution's result, counted from the first one. */
static bool points_along(struct em *em, const struct reduction *r, int32_t d, int64_t *least, int64_t *most)
{
    expr_id first = r->points[0][2 + d];
    *least = *most = 0;
    for (uint32_t i = 0; i < r->n_points; i++) {
        int64_t by;
        if (em_expr_lanes(em, r->points[i][2 + d]) || !ex_apart(em->x, r->points[i][2 + d], first, &by))
            return false;
        *least = by < *least ? by : *least;
        *most = by > *most ? by : *most;
    }
    return true;
}

/* The taps along spatial dim d that read the map at one of the points at least. Other points read as far beside it as
 * the tile is long. */
static void tap_range(struct em *em, struct reduction *r, int32_t d)
{
    struct exprs *x = em->x;
    const struct storage *s = &em->m->fused.storage[r->n->in[0].i];
    int64_t least, most, below, above;
    if (!conv_bounded(em->m, r->n, d) || !conv_reach(em->g, r->n, d, 1, &below, &above) ||
        !points_along(em, r, d, &least, &most))
        return;
    uint32_t c;
    int64_t stride = node_ints(r->n, "strides", &c)[d], beside = (most - least) * stride;
    expr_id zero = ex_const(x, 0), apart = ex_const(x, node_ints(r->n, "dilations", &c)[d]);
    /* where tap 0 of the first point is in the map */
    expr_id at = ex_sub(x, ex_mulc(x, r->points[0][2 + d], stride), node_exprs(r->n, "lo", &c)[d]);
    expr_id first = ex_addc(x, at, least * stride), last = ex_addc(x, at, most * stride);
    expr_id from = ex_max(x, zero, ex_ceildiv(x, ex_sub(x, zero, last), apart));
    expr_id end = ex_ceildiv(x, ex_sub(x, value_type(em->g, r->n->in[0])->dims[2 + d], first), apart);
    below = below < beside ? below : beside;
    above = above < beside ? above : beside;
    r->taps[d] = (struct tap_range){from, ex_max(x, from, ex_min(x, end, r->dim[d].extent)),
                                    !beside ||
                                        (s->halo && s->halo[2 + d] >= below && s->halo[s->rank + 2 + d] >= above)};
}

uint32_t reduction_lanes(const struct em *em, const expr_id *p, int32_t rank)
{
    for (int32_t d = 0; d < rank; d++)
        if (em_expr_lanes(em, p[d]))
            return em_expr_lanes(em, p[d]);
    return 1;
}

lreg reduction_result(struct em *em, const struct node *n, lreg v)
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
        if (reduction_lanes(em, r->points[i], rank) != LANES)
            return;
    r->matrix = true;
    r->group = r->valid = 2 * r->group;
    r->lanes = LANE_STEPS / 2;
    r->n_acc = em_tile_matrix_sums(r->n_points / r->vectors, r->vectors);
}

expr_id em_at_lane(const struct em *em, expr_id e, uint32_t lane)
{
    expr_id coef, rest;
    for (uint32_t i = 0; i < em->syms.n; i++)
        if (em->syms.data[i].lanes && ex_uses(em->x, e, em->syms.data[i].sym) &&
            ex_linear(em->x, e, em->syms.data[i].sym, &coef, &rest))
            e = ex_add(em->x, rest, ex_mulc(em->x, coef, lane));
    return e;
}

/* The same where a register of bytes is summed into one lane: each lane of a point is a point, until all is summed. The
 * last lanes of a tail may be none; panels have zeros there. */
static void reduce_lanes(struct em *em, const struct node *n, uint32_t n_points, expr_id *const *points, expr_id cond,
                         lreg *out)
{
    expr_id *one[EM_POINTS];
    lreg sum[EM_POINTS];
    uint32_t count = 0;
    int32_t rank = value_type(em->g, n->out[0])->rank;
    for (uint32_t i = 0; i < n_points; i++)
        for (uint32_t lane = 0; lane < reduction_lanes(em, points[i], rank); lane++) {
            one[count] = arena_copy(em->arena, points[i], (size_t)rank * sizeof *points[i]);
            for (int32_t d = 0; d < rank; d++)
                one[count][d] = em_at_lane(em, one[count][d], lane);
            count++;
        }
    em_reduce_points(em, n, count, one, cond, sum);
    count = 0;
    for (uint32_t i = 0; i < n_points; i++) {
        uint32_t lanes = reduction_lanes(em, points[i], rank);
        enum elem e = lf_type(em->f, sum[count]).elem;
        out[i] = lanes > 1 ? em_const(em, e, lanes, 0, 0) : sum[count++];
        for (uint32_t lane = 0; lane < lanes && lanes > 1; lane++)
            out[i] = em_insert(em, out[i], sum[count++], lane);
    }
}

/* Where the points' segment begins and how long it is. */
static void segment_begin(struct em *em, struct reduction *r)
{
    struct ltype i64 = {ELEM_I64, 1};
    int64_t axis = node_int(r->n, "axis", 0), most = ex_hi(em->x, r->dim[0].extent);
    lreg at[2];
    for (int j = 0; j < 2; j++) {
        expr_id of = ex_addc(em->x, r->points[0][axis], j);
        at[j] = em_value(em, r->n->in[1], &of, ex_const(em->x, 1));
        at[j] = em_op(em, L_CONVERT, i64, &at[j], 1);
    }
    r->first = em_bind(em, at[0], most);
    r->dim[0].extent = em_bind(em, em_op2(em, L_SUB, at[1], at[0]), most);
}

/* Have the points segments of their own, in lanes even? */
static bool segments_differ(const struct em *em, const struct node *n, uint32_t n_points, expr_id *const *points)
{
    int64_t axis = node_int(n, "axis", 0);
    bool differ = em_expr_lanes(em, points[0][axis]) > 1;
    for (uint32_t i = 1; i < n_points; i++)
        differ |= points[i][axis].i != points[0][axis].i;
    return differ;
}

void em_reduce_points(struct em *em, const struct node *n, uint32_t n_points, expr_id *const *points, expr_id cond,
                      lreg *out)
{
    struct reduction r;
    lreg acc[EM_POINTS];
    int32_t rank = value_type(em->g, n->out[0])->rank;
    bool apart = false;
    for (uint32_t i = 0; i < n_points; i++)
        apart |= reduction_lanes(em, points[i], rank) > 1;
    bool differ = n->op == OP_SEGMENTS && segments_differ(em, n, n_points, points);
    for (uint32_t i = 0; differ && !apart && i < n_points; i++)
        em_reduce_points(em, n, 1, points + i, cond, out + i);
    if (differ && !apart)
        return;
    if (differ || (apart && dot_group(em->m, n) == REGISTER_BYTES)) {
        reduce_lanes(em, n, n_points, points, cond, out);
        return;
    }
    reduction_begin(em, &r, n, n_points, points, cond);
    bool arg = r.n_acc != n_points;
    matrix_init(em, &r);
    if (n->op == OP_SEGMENTS) {
        segment_begin(em, &r);
        em_lines_begin(em, &r);
    }
    for (int32_t d = 0; n->op == OP_CONV && d < value_type(em->g, n->out[0])->rank - 2; d++)
        tap_range(em, &r, d);
    reduction_unroll(em, &r);
    enum elem e = value_type(em->g, n->in[0])->elem;
    for (uint32_t i = 0; i < n_points; i++) {
        uint32_t lanes = reduction_lanes(em, points[i], rank);
        if (arg) {
            acc[2 * i] = reduction_identity(em, r.combine, r.acc, e, lanes);
            acc[2 * i + 1] = em_const(em, r.index, lanes, 0, r.found ? 0 : -1);
        } else {
            acc[i] = reduction_identity(em, r.combine, r.acc, value_type(em->g, n->out[0])->elem, lanes);
        }
    }
    for (uint32_t i = n_points; r.matrix && i < r.n_acc; i++)
        acc[i] = acc[0];
    reduction_loops(em, &r, acc);
    if (r.line.i)
        em_lines_end(em, &r, acc);
    if (r.matrix)
        em_tile_rows_of_matrix(em, n_points / r.vectors, r.vectors, acc);
    for (uint32_t i = 0; i < n_points; i++)
        out[i] = arg ? reduction_index(em, acc[2 * i + 1]) : reduction_result(em, n, acc[i]);
}

void em_reduce_block(struct em *em, const struct node *n, uint32_t n_points, expr_id *const *points,
                     const struct k_dim *k, expr_id from, int64_t count, lreg *acc)
{
    struct reduction r;
    reduction_begin(em, &r, n, n_points, points, ex_const(em->x, 1));
    r.cut = k->dim;
    r.from = from;
    r.dim[k->dim].extent = ex_const(em->x, count);
    reduction_loops(em, &r, acc);
}

void em_reduce_operand(struct em *em, const struct node *n, uint32_t n_points, expr_id *const *points)
{
    struct reduction r;
    lreg none[EM_POINTS];
    reduction_begin(em, &r, n, n_points, points, ex_const(em->x, 1));
    r.n_acc = 0;
    r.row.dim = -1;
    r.fill = true;
    if (dot_scaled(n)) { /* the numbers alone; those of a byte at once */
        r.acc = ELEM_I32;
        reduction_unroll(em, &r);
    }
    r.scale.product = (value_id){0};
    reduction_loops(em, &r, none);
}
