/* One step of a reduction: what reduce, window, dot and conv read at a point and a reduced index, and how that goes
 * into the accumulators.
 */
#include "passes/emit/producer.h"
#include "passes/emit/reduce.h"
#include "passes/module/access_function.h"
#include "passes/module/compressed.h"
#include "passes/emit/register_tile.h"

static lreg to_acc(struct em *em, lreg v, enum elem acc)
{
    struct ltype t = lf_type(em->f, v);
    if (t.elem == acc)
        return v;
    t.elem = acc;
    return em_op(em, L_CONVERT, t, &v, 1);
}

/* Position i that a tap reads along spatial dim d exists. Windows begin at -lo, and infer_window and infer_conv let the
 * last one end at size + hi: without padding there is nothing to ask. */
static expr_id tap_inside(struct em *em, const struct node *n, uint32_t d, expr_id i, expr_id size)
{
    uint32_t c;
    expr_id yes = ex_const(em->x, 1), zero = ex_const(em->x, 0);
    bool below = ex_hi(em->x, node_exprs(n, "lo", &c)[d]) > 0, above = ex_hi(em->x, node_exprs(n, "hi", &c)[d]) > 0;
    return ex_and(em->x, below ? ex_le(em->x, zero, i) : yes, above ? ex_lt(em->x, i, size) : yes);
}

/* Does the stored operand carry enough zeros around it that every tap may be read unconditionally? layout_transform
 * plans the halo for exactly the convolutions that read it. */
bool em_halo_covers(struct em *em, const struct node *n, int32_t d, int64_t tile)
{
    const struct storage *s = &em->m->fused.storage[n->in[0].i];
    int64_t below, above;
    const struct em_producer *p = em_producer_seen(em, n->in[0]);
    if (p && p->padded)
        return true;
    return s->halo && conv_reach(em->g, n, d, tile, &below, &above) && s->halo[2 + d] >= below &&
           s->halo[s->rank + 2 + d] >= above;
}

/* The product under the views over the second operand (block_factor), and idx there. */
static const struct node *scaled_product(const struct em *em, const struct reduction *r, expr_id *idx)
{
    return value_node(em->g, behind_views(em->m, r->n->in[1], idx));
}

/* The second operand at idx, without the factor that its block's sum is multiplied by. */
static lreg operand_b(struct em *em, const struct reduction *r, expr_id *idx)
{
    value_id v = r->n->in[1];
    if (r->scale.product.i)
        v = scaled_product(em, r, idx)->in[!r->scale.factor];
    return to_acc(em, em_value(em, v, idx, r->cond), r->acc);
}

void reduction_scale(struct em *em, const struct reduction *r, const expr_id *k, const lreg *part, lreg *acc)
{
    for (uint32_t i = 0; i < r->n_points; i++) {
        expr_id at[RANK_MAX];
        contraction_point(em->g, r->n, 1, r->points[i], k, at);
        const struct node *product = scaled_product(em, r, at);
        lreg in[3] = {part[i], to_acc(em, em_value(em, product->in[r->scale.factor], at, r->cond), r->acc), acc[i]};
        em_unify(em, in, 3);
        acc[i] = em_op(em, L_FMA, lf_type(em->f, acc[i]), in, 3);
    }
}

/* Where the taps of a convolution are in the image, of which xi is a point afterwards. */
static expr_id taps_inside(struct em *em, const struct reduction *r, expr_id *xi)
{
    const struct node *n = r->n;
    const struct type *x = value_type(em->g, n->in[0]);
    uint32_t c;
    const int64_t *xdil = node_ints(n, "xdil", &c);
    bool splat = value_is_splat(em->g, n->in[0], &(double){0}, &(int64_t){0}); /* of which memory is never read */
    expr_id cond = r->cond;
    for (int32_t d = 0; d < x->rank - 2; d++) {
        expr_id i = xi[2 + d];
        if (xdil[d] > 1) {
            expr_id e = ex_const(em->x, xdil[d]);
            cond = ex_and(em->x, cond, ex_eq(em->x, ex_mod(em->x, i, e), ex_const(em->x, 0)));
            i = ex_div(em->x, i, e);
        }
        xi[2 + d] = i;
        if (!r->taps[d].inside && (splat || !em_halo_covers(em, n, d, 1)))
            cond = ex_and(em->x, cond, tap_inside(em, n, (uint32_t)d, i, x->dims[2 + d]));
    }
    return cond;
}

/* The dims of the operands along which steps follow one another (-1: none), and how far apart the first one's are. */
static void step_dims(const struct em *em, const struct reduction *r, int32_t dim[2], int64_t *step)
{
    const struct node *n = r->n;
    uint32_t c;
    *step = 1;
    dim[0] = dim[1] = n->op == OP_CONV ? 1 : -1;
    if (n->op == OP_CONV && r->group > 1 && conv_by_taps(em->m, n)) {
        dim[0] = value_type(em->g, n->in[0])->rank - 1;
        dim[1] = value_type(em->g, n->in[1])->rank - 1;
        *step = node_ints(n, "dilations", &c)[dim[0] - 2];
    }
    for (int o = 0; o < 2 && n->op != OP_CONV; o++) {
        const int64_t *of = node_ints(n, o ? "contract_b" : "contract_a", &c);
        dim[o] = c ? (int32_t)of[c - 1] : -1;
    }
}

static bool operands_at(struct em *em, struct reduction *r, const expr_id *p, const expr_id *k, uint32_t lanes,
                        lreg in[2])
{
    const struct node *n = r->n;
    expr_id at[2][RANK_MAX], cond = r->cond;
    int32_t dim[2];
    int64_t step;
    for (uint32_t o = 0; o < 2; o++)
        contraction_point(em->g, n, o, p, k, at[o]);
    bool conv = n->op == OP_CONV;
    if (conv && ex_truth(em->x, cond = taps_inside(em, r, at[0])) == FALSE_)
        return false;
    step_dims(em, r, dim, &step);
    if (r->group > 1) {
        struct em_group g = {{at[0], at[1]}, {dim[0], dim[1]}, {step, 1}, r->group, r->valid,
                             lanes,          r->lane,          r->matrix};
        em_dot_group(em, n, &g, cond, r->cond, in);
        return true;
    }
    in[0] = dim[0] < 0 ? (lreg){0} : em_lane_group(em, n->in[0], at[0], dim[0], 1, r->lane, r->acc, cond);
    if (!in[0].i)
        in[0] = to_acc(em, em_value(em, n->in[0], at[0], cond), r->acc);
    in[1] = operand_b(em, r, at[1]);
    if (conv && ex_truth(em->x, cond) != TRUE_ && !em_is_stored(em, n->in[0])) /* a masked load is 0 already */
        in[0] = em_select(em, em_cond(em, cond), in[0], em_const(em, r->acc, 1, 0, 0));
    return true;
}

/* Points first, first + 1 ... of a contraction, each with its own operands: what they share is computed once
 * (em_recall). */
struct contraction_step {
    struct em *em;
    struct reduction *r;
    const expr_id *k;
    uint32_t first, vectors;
    lreg *acc;
};

static bool contraction_operands(void *user, uint32_t row, uint32_t vector, lreg in[2])
{
    const struct contraction_step *s = user;
    uint32_t point = row * s->vectors + vector;
    const expr_id *p = s->r->points[s->first + point];
    uint32_t lanes = lf_type(s->em->f, s->acc[point]).lanes;
    return operands_at(s->em, s->r, p, s->k, lanes, in);
}

static void contraction_step(struct em *em, struct reduction *r, const expr_id *k, uint32_t first, uint32_t n,
                             lreg *acc)
{
    if (r->matrix) {
        struct contraction_step s = {em, r, k, 0, r->vectors, acc};
        struct em_matrix m = {n / r->vectors, r->vectors, value_type(em->g, r->n->in[0])->elem, r->lane};
        em_tile_step_matrix(em, &m, contraction_operands, &s, acc);
        return;
    }
    bool by_vector = r->vectors > 1 && n == r->n_points && n % r->vectors == 0;
    struct contraction_step s = {em, r, k, first, by_vector ? r->vectors : 1, acc + first};
    enum lop op = r->group > 1 ? L_DOT : L_FMA;
    if (by_vector)
        em_tile_steps_by_vector(em, op, n / s.vectors, s.vectors, 1, contraction_operands, &s, acc + first);
    else
        em_tile_step(em, op, n / s.vectors, s.vectors, contraction_operands, &s, acc + first);
}

static void reduce_operand_point(struct em *em, const struct reduction *r, const expr_id *p, const expr_id *k,
                                 expr_id *at)
{
    uint32_t n_axes = 1, a = 0, o = 0;
    const struct node *n = r->n;
    const struct type *t = value_type(em->g, n->in[0]);
    int64_t axis = node_int(n, "axis", 0);
    const int64_t *axes = n->op == OP_REDUCE ? node_ints(n, "axes", &n_axes) : &axis;
    expr_id of[RANK_MAX], number = r->n_dims ? k[r->n_dims - 1] : (expr_id){0};
    for (uint32_t i = 0; i + 1 < r->n_dims; i++)
        of[i] = k[i];
    for (uint32_t i = n_axes; i + 1 > r->n_dims && r->n_dims; i--) { /* joined dims, the last one first */
        expr_id extent = t->dims[axes[i - 1]];
        of[i - 1] = i == r->n_dims ? number : ex_mod(em->x, number, extent);
        number = i == r->n_dims ? number : ex_div(em->x, number, extent);
    }
    for (int32_t d = 0; d < t->rank; d++)
        at[d] = a < n_axes && axes[a] == d ? of[a++] : p[o++];
}

/* Operand value and validity of window tap k at output point p. */
static lreg window_operand(struct em *em, struct reduction *r, const expr_id *p, const expr_id *k, expr_id *at,
                           expr_id *cond)
{
    const struct node *n = r->n;
    const struct type *x = value_type(em->g, n->in[0]);
    uint32_t c;
    const int64_t *strides = node_ints(n, "strides", &c), *dil = node_ints(n, "dilations", &c);
    const expr_id *lo = node_exprs(n, "lo", &c);
    int32_t lead = x->rank - (int32_t)c;
    *cond = r->cond;
    memcpy(at, p, (size_t)lead * sizeof *at);
    for (uint32_t d = 0; d < c; d++) {
        expr_id i = ex_add(em->x, ex_mulc(em->x, p[lead + (int32_t)d], strides[d]), ex_mulc(em->x, k[d], dil[d]));
        at[lead + (int32_t)d] = ex_sub(em->x, i, lo[d]);
        *cond = ex_and(em->x, *cond, tap_inside(em, n, d, at[lead + (int32_t)d], x->dims[lead + (int32_t)d]));
    }
    return em_value(em, n->in[0], at, *cond);
}

static lreg step_window(struct em *em, struct reduction *r, const expr_id *p, const expr_id *k, lreg acc)
{
    expr_id at[RANK_MAX], cond;
    lreg v = to_acc(em, window_operand(em, r, p, k, at, &cond), r->acc);
    enum truth t = ex_truth(em->x, cond);
    if (t == FALSE_)
        return acc;
    if (t != TRUE_)
        v = em_select(em, em_cond(em, cond), v,
                      reduction_identity(em, r->combine, r->acc, value_type(em->g, r->n->in[0])->elem, 1));
    return em_op2(em, r->combine, acc, v);
}

/* Argument reductions: (best value, its index or -1). NaN beats everything. */
static void step_arg(struct em *em, struct reduction *r, const expr_id *p, const expr_id *k, lreg acc[2])
{
    const struct node *n = r->n;
    const struct type *x = value_type(em->g, n->in[0]);
    expr_id at[RANK_MAX], cond = r->cond, index = k[0];
    lreg v;
    bool max = true, last = false;
    if (n->op == OP_ARGREDUCE) {
        reduce_operand_point(em, r, p, k, at);
        v = em_value(em, n->in[0], at, cond);
        max = node_int(n, "max", 1);
        last = node_int(n, "last", 0);
    } else {
        v = window_operand(em, r, p, k, at, &cond);
        index = point_linear(em->x, at + x->rank - (int32_t)r->n_dims, x->dims + x->rank - (int32_t)r->n_dims,
                             (int32_t)r->n_dims);
    }
    v = to_acc(em, v, r->acc);
    /* The first of what is best or NaN: of floats what is not worse, unless NaN is best; the last: what is as good. */
    bool floats = elem_class(r->acc) == 'F', turned = floats && !last;
    lreg a = max == turned ? v : acc[0], b = max == turned ? acc[0] : v;
    lreg take = em_op2(em, last || floats ? L_LE : L_LT, a, b);
    if (turned)
        take = em_op2(em, L_AND, em_op1(em, L_NOT, take), em_op2(em, L_EQ, acc[0], acc[0]));
    else if (floats)
        take = em_op2(em, L_OR, take, em_op2(em, L_NE, v, v));
    if (!r->found)
        take = em_op2(em, L_OR, take, em_op2(em, L_LT, acc[1], em_const(em, r->index, 1, 0, 0)));
    if (ex_truth(em->x, cond) != TRUE_)
        take = em_op2(em, L_AND, take, em_cond(em, cond));
    uint32_t lanes = em_expr_lanes(em, index);
    lreg at_v = em_index_lanes(em, index, lanes ? lanes : 1);
    if (r->index != ELEM_I64)
        at_v = em_op(em, L_CONVERT, (struct ltype){r->index, lf_type(em->f, at_v).lanes}, &at_v, 1);
    acc[0] = em_select(em, take, v, acc[0]);
    acc[1] = em_select(em, take, at_v, acc[1]);
}

lreg reduction_index(struct em *em, lreg index)
{
    struct ltype t = {ELEM_I64, lf_type(em->f, index).lanes};
    return lf_type(em->f, index).elem == ELEM_I64 ? index : em_op(em, L_CONVERT, t, &index, 1);
}

/* The second operand's place, in bytes, at point p and so many steps of the innermost dim after k. */
static expr_id panel_bytes(struct em *em, const struct reduction *r, const expr_id *p, const expr_id *k, int64_t steps)
{
    expr_id at[RANK_MAX], later[RANK_MAX];
    memcpy(later, k, r->n_dims * sizeof *later);
    later[r->n_dims - 1] = ex_addc(em->x, k[r->n_dims - 1], steps);
    contraction_point(em->g, r->n, 1, p, later, at);
    value_id v = behind_views(em->m, r->n->in[1], at);
    return em_bytes(em, v, at);
}

static lreg panel_buffer(struct em *em, const struct reduction *r)
{
    return em_buffer(em, weight_whole(em->g, r->n->in[1]));
}

uint32_t reduction_vectors(struct em *em, const struct reduction *r)
{
    expr_id k[REDUCED_MOST], first[RANK_MAX], at[RANK_MAX];
    size_t size = (size_t)value_type(em->g, r->n->in[1])->rank * sizeof *at;
    for (uint32_t d = 0; d < r->n_dims; d++)
        k[d] = ex_const(em->x, 0);
    contraction_point(em->g, r->n, 1, r->points[0], k, first);
    for (uint32_t i = 1; i < r->n_points; i++) {
        contraction_point(em->g, r->n, 1, r->points[i], k, at);
        if (!memcmp(first, at, size))
            return i;
    }
    return r->n_points;
}

/* The number of the step at k among those of the whole reduction. */
static expr_id step_number(struct em *em, const struct reduction *r, const expr_id *k)
{
    expr_id n = ex_const(em->x, 0);
    for (uint32_t d = 0; d < r->n_dims; d++)
        n = ex_add(em->x, ex_mul(em->x, n, r->dim[d].extent), k[d]);
    return n;
}

/* Asks for some of the panels that the tiles read next. */
static void prefetch_far(struct em *em, const struct reduction *r, const expr_id *k)
{
    const struct em_ahead *a = &em->ahead;
    expr_id p[RANK_MAX], first[REDUCED_MOST];
    memcpy(p, r->points[0], (size_t)value_type(em->g, r->n->out[0])->rank * sizeof *p);
    for (uint32_t d = 0; d < r->n_dims; d++)
        first[d] = d == a->cut ? a->k : ex_const(em->x, 0);
    expr_id step = ex_sub(em->x, step_number(em, r, k), a->now);
    for (uint32_t i = 0; i < a->n; i++) {
        p[a->dim] = ex_add(em->x, r->points[0][a->dim], a->panel[i]);
        expr_id bytes = ex_add(em->x, panel_bytes(em, r, p, first, 0), a->bytes);
        em_prefetch(em, L_PREFETCH2, panel_buffer(em, r), ex_add(em->x, bytes, ex_mul(em->x, step, a->far)));
    }
}

/* Asks for what the same vectors hold some steps later, for each line once: the points begin with those of one row. */
static void prefetch_near(struct em *em, const struct reduction *r, const expr_id *k)
{
    enum { LINE = 64 };
    expr_id first = {0}, last = {0};
    for (uint32_t i = 0; i < r->n_points; i++) {
        int64_t apart;
        expr_id bytes = em_at_lane(em, panel_bytes(em, r, r->points[i], k, em->ahead.near), 0);
        if (bytes.i == first.i)
            return;
        first = i ? first : bytes;
        if (i && ex_apart(em->x, bytes, last, &apart) && apart > 0 && apart < LINE)
            continue; /* panels lie by whole lines: last is where one begins */
        last = bytes;
        em_prefetch(em, L_PREFETCH, panel_buffer(em, r), bytes);
    }
}

static void prefetch_leaf(void *user, value_id leaf, const expr_id *point)
{
    struct em *em = user;
    em_prefetch(em, L_PREFETCH2, em_buffer(em, leaf), em_at_lane(em, em_bytes(em, leaf, point), 0));
}

/* Asks for what the second operand, or what scales it (o), is computed from at k, of the next block of vectors. */
static void prefetch_next(struct em *em, const struct reduction *r, uint32_t o, const expr_id *k)
{
    const struct tile_schedule *s = &em->schedule->tile;
    const struct leaf_walk w = {.m = em->m, .leaf = prefetch_leaf, .user = em, .stored = true};
    expr_id p[RANK_MAX], at[RANK_MAX];
    uint32_t n = reduction_vectors(em, r); /* rows share them */
    for (uint32_t i = 0; i < n; i++) {
        memcpy(p, r->points[i], (size_t)value_type(em->g, r->n->out[0])->rank * sizeof *p);
        p[s->vec] = ex_addc(em->x, p[s->vec], (int64_t)s->nr * s->lanes);
        contraction_point(em->g, r->n, 1, p, k, at);
        constant_leaves(&w, r->n->in[o], at);
    }
}

void reduction_ahead(struct em *em, struct reduction *r, const expr_id *k)
{
    const struct em_ahead *a = &em->ahead;
    bool anchor = (a->far.i || a->near) && r->n_dims && r->n == graph_node(em->g, em->k->anchor);
    if (anchor && a->far.i)
        prefetch_far(em, r, k);
    if (anchor && a->near)
        prefetch_near(em, r, k);
    if (r->next && (!dot_scaled(r->n) || ex_is(em->x, k[r->n_dims - 1], 0)))
        prefetch_next(em, r, 1, k);
}

/* Scale or offset o of a scaled product at point p and the block that begins at k, {0}: it has none. */
static lreg block_scale(struct em *em, const struct reduction *r, uint32_t o, const expr_id *p, const expr_id *k)
{
    expr_id at[RANK_MAX];
    if (o >= r->n->n_in)
        return (lreg){0};
    contraction_point(em->g, r->n, o & 1, p, k, at);
    return to_acc(em, em_value(em, r->n->in[o], at, r->cond), ELEM_F32);
}

static lreg fma_of(struct em *em, lreg a, lreg b, lreg c)
{
    lreg in[3] = {a, b, c};
    em_unify(em, in, 3);
    return em_op(em, L_FMA, lf_type(em->f, in[2]), in, 3);
}

void reduction_add_block(struct em *em, const struct reduction *r, expr_id number, const lreg *part, lreg *acc)
{
    expr_id k[REDUCED_MOST] = {number};
    for (uint32_t d = 1; d < r->n_dims; d++)
        k[d] = ex_const(em->x, 0);
    for (uint32_t o = 3; o < r->n->n_in && r->next; o += 2)
        prefetch_next(em, r, o, k);
    for (uint32_t i = 0; i < r->n_points; i++) {
        lreg scale[6], sum = to_acc(em, part[i], ELEM_F32);
        for (uint32_t o = 2; o < COUNT_OF(scale); o++)
            scale[o] = block_scale(em, r, o, r->points[i], k);
        lreg offset = scale[5].i ? em_op2(em, L_MUL, scale[4], scale[5]) : scale[4];
        sum = offset.i ? fma_of(em, sum, scale[2], offset) : em_op2(em, L_MUL, sum, scale[2]);
        acc[i] = fma_of(em, sum, scale[3], acc[i]);
    }
}

/* A product goes into its sum by one multiply-add. */
static lreg step_segment(struct em *em, struct reduction *r, const expr_id *p, const expr_id *k, lreg acc)
{
    const struct node *mul = value_node(em->g, r->n->in[0]);
    expr_id at[RANK_MAX], always = ex_const(em->x, 1);
    int64_t axis = node_int(r->n, "axis", 0);
    memcpy(at, p, (size_t)value_type(em->g, r->n->in[0])->rank * sizeof *at);
    at[axis] = ex_add(em->x, r->first, k[0]);
    if (mul && mul->op == OP_MUL && r->acc == ELEM_F32 && !em_is_stored(em, r->n->in[0]))
        return fma_of(em, em_value(em, mul->in[0], at, always), em_value(em, mul->in[1], at, always), acc);
    return em_op2(em, L_ADD, acc, to_acc(em, em_value(em, r->n->in[0], at, always), r->acc));
}

void reduction_point(struct em *em, struct reduction *r, uint32_t i, const expr_id *k, lreg *acc)
{
    expr_id at[RANK_MAX];
    switch (r->n->op) {
    case OP_CONV:
    case OP_DOT: contraction_step(em, r, k, i, 1, acc); break;
    case OP_WINDOW: acc[i] = step_window(em, r, r->points[i], k, acc[i]); break;
    case OP_REDUCE:
        reduce_operand_point(em, r, r->points[i], k, at);
        acc[i] = em_op2(em, r->combine, acc[i], to_acc(em, em_value(em, r->n->in[0], at, r->cond), r->acc));
        break;
    case OP_SEGMENTS: acc[i] = step_segment(em, r, r->points[i], k, acc[i]); break;
    default: step_arg(em, r, r->points[i], k, acc + 2 * i); break;
    }
}

/* Stores a group of each lane, side by side. */
static void fill_group(struct em *em, const struct reduction *r, const expr_id *p, expr_id *at)
{
    struct em_group g = {.idx[1] = at, .step[1] = 1, .size = r->group, .valid = r->valid};
    struct em_producer *d = em->decoded;
    int64_t step;
    step_dims(em, r, g.dim, &step);
    g.lanes = reduction_lanes(em, p, value_type(em->g, r->n->out[0])->rank);
    lreg v = em_panel_group(em, r->n, &g, r->cond);
    em_scratch_store(em, d->buffer, em_at_lane(em, storage_address(em->x, &d->storage, at), 0), v);
}

static void fill_step(struct em *em, const struct reduction *r, const expr_id *k)
{
    expr_id at[RANK_MAX];
    for (uint32_t i = 0; i < r->n_points; i++) {
        contraction_point(em->g, r->n, 1, r->points[i], k, at);
        if (r->group > 1)
            fill_group(em, r, r->points[i], at);
        else
            em_producer_point(em, em->decoded, at, r->cond);
    }
}

void reduction_step(struct em *em, struct reduction *r, const expr_id *k, lreg *acc)
{
    if (r->fill) {
        fill_step(em, r, k);
        return;
    }
    reduction_ahead(em, r, k);
    if (r->n->op == OP_CONV || r->n->op == OP_DOT) {
        contraction_step(em, r, k, 0, r->n_points, acc);
        return;
    }
    if (r->line.i) {
        em_lines_step(em, r, k, acc);
        return;
    }
    for (uint32_t i = 0; i < r->n_points; i++)
        reduction_point(em, r, i, k, acc);
}
