/* Reductions: the value of reduce, window, dot and conv at one or several points at once.
 *
 * All points go through the same loops over the reduced dims, so what they share (a weight vector, a broadcast pixel)
 * is loaded once: with points = pixels x vectors of channels this *is* the register-tiled micro-kernel. The order of
 * summation is fixed by the shape, never by threads.
 */
#include "passes/emit.h"
#include "passes/emit_split.h"

#include <string.h>

enum { MAX_RDIMS = RANK_MAX, UNROLL_WINDOW = 320, UNROLL_CONTRACTION = 48 /* statements per trip */ };
struct rdim { expr_id extent; struct channel_order order; bool unroll; };
struct reduction {
    const struct node *n;
    uint32_t n_dims;
    struct rdim dim[MAX_RDIMS];
    enum lop combine;
    enum elem acc;               /* register element of the accumulators */
    uint32_t group, valid;       /* steps at once along the innermost dim (emit_dot.c), and those that exist; 1: one by one */
    uint32_t n_points, n_acc;    /* argument reductions keep two per point */
    expr_id *const *points;
    expr_id cond;
};

enum lop em_monoid(const char *monoid, enum elem e)
{
    static const struct { const char *name; enum lop lop, bool_lop; } table[] = {
        {"sum", L_ADD, L_OR}, {"prod", L_MUL, L_AND}, {"min", L_MIN, L_AND}, {"max", L_MAX, L_OR},
        {"and", L_AND, L_AND}, {"or", L_OR, L_OR}, {"xor", L_XOR, L_XOR},
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

static lval identity(struct em *em, enum lop op, enum elem acc, enum elem e, uint32_t lanes)
{
    bool fl = elem_class(acc) == 'F';
    switch (op) {
    case L_MUL: return em_const(em, acc, lanes, 1, 1);
    case L_AND: return em_const(em, acc, lanes, 0, acc == ELEM_BOOL ? 1 : elem_class(e) == 'U' ? int_extreme(e, true) : -1);
    case L_MIN: return em_const(em, acc, lanes, __builtin_inf(), fl ? 0 : int_extreme(e, true));
    case L_MAX: return em_const(em, acc, lanes, -__builtin_inf(), fl ? 0 : int_extreme(e, false));
    default: return em_const(em, acc, lanes, 0, 0);
    }
}

/* The dim of a gather's result that runs along dim d of its data; -1: none. */
static int32_t gather_dim(struct em *em, const struct node *n, int32_t d)
{
    const struct type *it = value_type(em->g, n->in[1]);
    int64_t axis = node_int(n, "axis", 0), batch = node_int(n, "batch", 0), depth = 0;
    if (d < 0 || n->op == OP_GATHER_ELEMENTS)
        return d;
    if (n->op == OP_GATHER)
        return d < axis ? d : d == axis ? -1 : d - 1 + it->rank;
    ex_is_const(em->x, it->dims[it->rank - 1], &depth);
    return d < batch ? d : d < batch + depth ? -1 : d - (int32_t)(batch + depth) + it->rank - 1;
}

int32_t em_fast_dim(struct em *em, value_id v)
{
    for (int steps = 0; steps < 64; steps++) {
        const struct storage *s = &em->m->storage[v.i];
        const struct type *t = value_type(em->g, v);
        if (s->place != PLACE_NONE) {
            for (int32_t d = s->rank - 1; d >= 0; d--)
                if ((!s->dim[d].block && ex_is(em->x, s->dim[d].outer, 1) && !ex_is(em->x, t->dims[d], 1)) ||
                    (s->dim[d].block && s->dim[d].inner == 1))
                    return d;
            return -1;
        }
        if (!graph_value(em->g, v)->def.i)
            return -1;
        const struct node *n = graph_node(em->g, graph_value(em->g, v)->def);
        if (n->op == OP_GATHER || n->op == OP_GATHER_ELEMENTS || n->op == OP_GATHER_ND)
            return gather_dim(em, n, em_fast_dim(em, n->in[0]));
        if (op_shape(n->op) == SHAPE_MAP && n->n_in) {
            uint32_t k = 0;
            while (k + 1 < n->n_in && value_is_const(em->g, n->in[k]))
                k++;
            while (k + 1 < n->n_in && value_op(em->g, n->in[k]) == OP_BROADCAST)
                k++;
            v = n->in[k];
        } else if (n->op == OP_IDENTITY || n->op == OP_SLICE || n->op == OP_PAD) {
            v = n->in[0];
        } else if (n->op == OP_TRANSPOSE || n->op == OP_RESHAPE) {
            int32_t in = em_fast_dim(em, n->in[0]);
            const struct type *from = value_type(em->g, n->in[0]);
            if (n->op == OP_RESHAPE)
                return in >= 0 && in == from->rank - 1 ? t->rank - 1 : -1;
            uint32_t count;
            const int64_t *perm = node_ints(n, "perm", &count);
            for (int32_t d = 0; d < t->rank; d++)
                if (perm[d] == in)
                    return d;
            return -1;
        } else {
            return -1;
        }
    }
    return -1;
}

bool em_reduce_horizontal(struct em *em, const struct node *n)
{
    if (n->op != OP_REDUCE || !strcmp(node_str(n, "monoid", "sum"), "xor"))   /* no register folds itself by xor */
        return false;
    uint32_t n_axes;
    const int64_t *axes = node_ints(n, "axes", &n_axes);
    return n_axes > 0 && em_fast_dim(em, n->in[0]) == axes[n_axes - 1];
}

/* ---- what is reduced ------------------------------------------------------------------------------------------- */

static void rdim_add(struct reduction *r, expr_id extent, int64_t block)
{
    r->dim[r->n_dims++] = (struct rdim){.extent = extent, .order = {.residues = 1, .block = block}};
}

static int64_t channel_block(struct em *em, value_id v, int32_t d)
{
    const struct storage *s = &em->m->storage[v.i];
    return s->place != PLACE_NONE && s->rank > d ? s->dim[d].block : 0;
}

static void dims_of_conv(struct em *em, struct reduction *r)
{
    const struct type *w = value_type(em->g, r->n->in[1]);
    for (int32_t d = 2; d < w->rank; d++)
        rdim_add(r, w->dims[d], 0);
    bool groups = node_int(r->n, "groups", 1) != 1;
    rdim_add(r, w->dims[1], groups ? 0 : channel_block(em, conv_data(em->m, r->n), 1));
    if (!groups && r->group == 1)
        r->dim[r->n_dims - 1].order = em_channel_order(em, conv_data(em->m, r->n));
}

static void dims_of(struct em *em, struct reduction *r)
{
    const struct node *n = r->n;
    uint32_t count;
    if (n->op == OP_CONV) {
        dims_of_conv(em, r);
    } else if (n->op == OP_DOT) {
        const int64_t *ca = node_ints(n, "contract_a", &count), *cb = node_ints(n, "contract_b", &count);
        for (uint32_t i = 0; i < count; i++) {    /* equal, but one may be known and the other not */
            expr_id a = value_type(em->g, n->in[0])->dims[ca[i]], b = value_type(em->g, n->in[1])->dims[cb[i]];
            rdim_add(r, ex_is_const(em->x, b, &(int64_t){0}) ? b : a, 0);
        }
    } else if (n->op == OP_REDUCE) {
        const int64_t *axes = node_ints(n, "axes", &count);
        for (uint32_t i = 0; i < count; i++)
            rdim_add(r, value_type(em->g, n->in[0])->dims[axes[i]],
                     channel_block(em, n->in[0], (int32_t)axes[i]));
    } else if (n->op == OP_ARGREDUCE) {
        rdim_add(r, value_type(em->g, n->in[0])->dims[node_int(n, "axis", 0)], 0);
    } else {
        const int64_t *kernel = node_ints(n, "kernel", &count);
        for (uint32_t i = 0; i < count; i++)
            rdim_add(r, ex_const(em->x, kernel[i]), 0);
    }
}

/* Small constant window dims are unrolled from the inside out, so that points share loads across taps. */
static void choose_unroll(struct em *em, struct reduction *r)
{
    bool window = r->n->op == OP_WINDOW || r->n->op == OP_ARGWINDOW ||
                  (r->n->op == OP_CONV && ex_is(em->x, value_type(em->g, r->n->in[1])->dims[1], 1));
    int64_t budget = (window ? UNROLL_WINDOW : UNROLL_CONTRACTION) / (r->n_points ? r->n_points : 1), c;
    for (uint32_t d = r->n_dims; d > 0; d--) {
        if (!ex_is_const(em->x, r->dim[d - 1].extent, &c) || c < 1 || r->dim[d - 1].order.block || r->dim[d - 1].order.residues > 1)
            break;
        if (d == r->n_dims)
            c = (c + r->group - 1) / r->group;
        if (c > budget)
            break;
        r->dim[d - 1].unroll = true;
        budget /= c;
    }
}

/* ---- one step: the operands at point p and reduced index k ---------------------------------------------------------- */

static lval to_acc(struct em *em, lval v, enum elem acc)
{
    struct ltype t = lf_type(em->f, v);
    if (t.elem == acc)
        return v;
    t.elem = acc;
    return em_op(em, L_CONVERT, t, &v, 1);
}

/* Position along a spatial dim that window tap k of output o reads; cond: it exists. */
static expr_id tap(struct em *em, expr_id o, int64_t stride, expr_id lo, expr_id k, int64_t dilation)
{
    return ex_sub(em->x, ex_add(em->x, ex_mulc(em->x, o, stride), ex_mulc(em->x, k, dilation)), lo);
}

expr_id em_inside(struct em *em, expr_id i, expr_id size)
{
    return ex_and(em->x, ex_le(em->x, ex_const(em->x, 0), i), ex_lt(em->x, i, size));
}

/* Position i that a tap reads along spatial dim d exists. Windows begin at -lo, and infer_window and infer_conv let the last
 * one end at size + hi: without padding there is nothing to ask. */
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
    const struct storage *s = &em->m->storage[n->in[0].i];
    int64_t below, above;
    return s->halo && conv_reach(em->g, n, d, tile, &below, &above) && s->halo[2 + d] >= below &&
           s->halo[s->rank + 2 + d] >= above;
}

static lval step_conv(struct em *em, struct reduction *r, const expr_id *p, const expr_id *k, lval acc)
{
    const struct node *n = r->n;
    const struct type *x = value_type(em->g, n->in[0]), *w = value_type(em->g, n->in[1]);
    uint32_t c;
    const int64_t *strides = node_ints(n, "strides", &c), *dil = node_ints(n, "dilations", &c),
                  *xdil = node_ints(n, "xdil", &c);
    const expr_id *lo = node_exprs(n, "lo", &c);
    int64_t groups = node_int(n, "groups", 1);
    int32_t sp = x->rank - 2;
    bool splat = value_is_splat(em->g, n->in[0], &(double){0}, &(int64_t){0});   /* of which memory is never read */
    expr_id xi[RANK_MAX], wi[RANK_MAX], cond = r->cond, ic = k[sp];
    wi[0] = p[1];
    wi[1] = ic;
    xi[0] = p[0];
    xi[1] = ic;
    if (groups > 1) {
        expr_id per_out = ex_div(em->x, w->dims[0], ex_const(em->x, groups));
        xi[1] = ex_add(em->x, ex_mul(em->x, ex_div(em->x, p[1], per_out), w->dims[1]), ic);
    }
    for (int32_t d = 0; d < sp; d++) {
        expr_id i = tap(em, p[2 + d], strides[d], lo[d], k[d], dil[d]);
        wi[2 + d] = k[d];
        if (xdil[d] > 1) {
            expr_id e = ex_const(em->x, xdil[d]);
            cond = ex_and(em->x, cond, ex_eq(em->x, ex_mod(em->x, i, e), ex_const(em->x, 0)));
            i = ex_div(em->x, i, e);
        }
        xi[2 + d] = i;
        if (splat || !em_halo_covers(em, n, d, 1))
            cond = ex_and(em->x, cond, tap_inside(em, n, (uint32_t)d, i, x->dims[2 + d]));
    }
    enum truth t = ex_truth(em->x, cond);
    if (t == FALSE_)
        return acc;
    if (r->group > 1) {
        struct em_group at = {{xi, wi}, {1, 1}, r->group, r->valid};
        return em_dot_group(em, n, &at, cond, r->cond, acc);
    }
    value_id data = n->in[0], scale;
    bool scaled = conv_scale(em->m, n, &data, &scale);
    lval a = to_acc(em, em_value(em, data, xi, cond), r->acc);
    lval b = to_acc(em, em_value(em, n->in[1], wi, r->cond), r->acc);
    if (scaled)
        b = em_op2(em, L_MUL, b, to_acc(em, em_value(em, scale, xi, cond), r->acc));
    if (t != TRUE_ && (splat || em->m->storage[n->in[0].i].place == PLACE_NONE)) {   /* a masked load is 0 already */
        lval in[3] = {em_cond(em, cond), a, em_const(em, r->acc, 1, 0, 0)};
        em_unify(em, in, 3);
        a = em_op(em, L_SELECT, lf_type(em->f, in[1]), in, 3);
    }
    lval in[3] = {a, b, acc};
    em_unify(em, in, 3);
    return em_op(em, L_FMA, lf_type(em->f, in[2]), in, 3);
}

/* Where the second operand of a contraction without groups is read at point p and reduced index k. */
static void operand_b_point(const struct em *em, const struct node *n, const expr_id *p, const expr_id *k, expr_id *at)
{
    uint32_t nb = 0, nc = 0, na = 0, count;
    int32_t rank = value_type(em->g, n->in[1])->rank;
    if (n->op == OP_CONV) {
        at[0] = p[1];
        at[1] = k[rank - 2];
        for (int32_t d = 2; d < rank; d++)
            at[d] = k[d - 2];
        return;
    }
    const int64_t *batch = node_ints(n, "batch_b", &nb), *con = node_ints(n, "contract_b", &nc);
    node_ints(n, "contract_a", &na);
    uint32_t free_dim = (uint32_t)value_type(em->g, n->in[0])->rank - na;
    for (int32_t d = 0; d < rank; d++) {
        at[d] = (expr_id){0};
        for (count = 0; count < nb; count++)
            if (batch[count] == d)
                at[d] = p[count];
        for (count = 0; count < nc; count++)
            if (con[count] == d)
                at[d] = k[count];
        if (!at[d].i)
            at[d] = p[free_dim++];
    }
}

static lval step_dot(struct em *em, struct reduction *r, const expr_id *p, const expr_id *k, lval acc)
{
    const struct node *n = r->n;
    expr_id at[2][RANK_MAX];
    static const char *const batch_name[2] = {"batch_a", "batch_b"}, *const contract_name[2] = {"contract_a", "contract_b"};
    uint32_t n_batch = 0, n_contract = 0, free_dim = 0;
    int32_t last[2] = {0, 0};
    node_ints(n, "batch_a", &n_batch);
    free_dim = n_batch;
    for (int o = 0; o < 2; o++) {
        const int64_t *batch = node_ints(n, batch_name[o], &n_batch), *con = node_ints(n, contract_name[o], &n_contract);
        int32_t rank = value_type(em->g, n->in[o])->rank;
        for (int32_t d = 0; d < rank; d++) {
            expr_id i = {0};
            for (uint32_t j = 0; j < n_batch; j++)
                if (batch[j] == d)
                    i = p[j];
            for (uint32_t j = 0; j < n_contract; j++)
                if (con[j] == d)
                    i = k[j];
            at[o][d] = i.i ? i : p[free_dim++];
        }
        last[o] = n_contract ? (int32_t)con[n_contract - 1] : 0;
    }
    if (r->group > 1) {
        struct em_group g = {{at[0], at[1]}, {last[0], last[1]}, r->group, r->valid};
        return em_dot_group(em, n, &g, r->cond, r->cond, acc);
    }
    lval in[3] = {to_acc(em, em_value(em, n->in[0], at[0], r->cond), r->acc),
                  to_acc(em, em_value(em, n->in[1], at[1], r->cond), r->acc), acc};
    em_unify(em, in, 3);
    return em_op(em, L_FMA, lf_type(em->f, in[2]), in, 3);
}

static void reduce_operand_point(struct em *em, const struct node *n, const expr_id *p, const expr_id *k, expr_id *at)
{
    uint32_t n_axes = 1;
    int64_t axis = node_int(n, "axis", 0);
    const int64_t *axes = n->op == OP_REDUCE ? node_ints(n, "axes", &n_axes) : &axis;
    uint32_t a = 0, o = 0;
    for (int32_t d = 0; d < value_type(em->g, n->in[0])->rank; d++) {
        if (a < n_axes && axes[a] == d)
            at[d] = k[a++];
        else
            at[d] = p[o++];
    }
}

/* Operand value and validity of window tap k at output point p. */
static lval window_operand(struct em *em, struct reduction *r, const expr_id *p, const expr_id *k, expr_id *at, expr_id *cond)
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
        at[lead + (int32_t)d] = tap(em, p[lead + (int32_t)d], strides[d], lo[d], k[d], dil[d]);
        *cond = ex_and(em->x, *cond, tap_inside(em, n, d, at[lead + (int32_t)d], x->dims[lead + (int32_t)d]));
    }
    return em_value(em, n->in[0], at, *cond);
}

static lval select_lanes(struct em *em, lval c, lval a, lval b)
{
    lval in[3] = {c, a, b};
    em_unify(em, in, 3);
    return em_op(em, L_SELECT, lf_type(em->f, in[1]), in, 3);
}

static lval step_window(struct em *em, struct reduction *r, const expr_id *p, const expr_id *k, lval acc)
{
    expr_id at[RANK_MAX], cond;
    lval v = to_acc(em, window_operand(em, r, p, k, at, &cond), r->acc);
    enum truth t = ex_truth(em->x, cond);
    if (t == FALSE_)
        return acc;
    if (t != TRUE_)
        v = select_lanes(em, em_cond(em, cond), v,
                         identity(em, r->combine, r->acc, value_type(em->g, r->n->in[0])->elem, 1));
    return em_op2(em, r->combine, acc, v);
}

/* Argument reductions: (best value, its index or -1). NaN beats everything. */
static void step_arg(struct em *em, struct reduction *r, const expr_id *p, const expr_id *k, lval acc[2])
{
    const struct node *n = r->n;
    const struct type *x = value_type(em->g, n->in[0]);
    expr_id at[RANK_MAX], cond = r->cond, index = k[0];
    lval v;
    bool max = true, last = false;
    if (n->op == OP_ARGREDUCE) {
        reduce_operand_point(em, n, p, k, at);
        v = em_value(em, n->in[0], at, cond);
        max = node_int(n, "max", 1);
        last = node_int(n, "last", 0);
    } else {
        v = window_operand(em, r, p, k, at, &cond);
        index = point_linear(em->x, at + x->rank - (int32_t)r->n_dims, x->dims + x->rank - (int32_t)r->n_dims,
                             (int32_t)r->n_dims);
    }
    v = to_acc(em, v, r->acc);
    lval best = acc[0];
    lval take = last ? (max ? em_op2(em, L_LE, best, v) : em_op2(em, L_LE, v, best))
                     : (max ? em_op2(em, L_LT, best, v) : em_op2(em, L_LT, v, best));
    if (elem_class(r->acc) == 'F') {
        lval nan = em_op2(em, L_NE, v, v);
        if (!last)
            nan = em_op2(em, L_AND, nan, em_op2(em, L_EQ, best, best));
        else
            take = em_op2(em, L_AND, take, em_op2(em, L_EQ, best, best));
        take = em_op2(em, L_OR, take, nan);
    }
    take = em_op2(em, L_OR, take, em_op2(em, L_LT, acc[1], em_const(em, ELEM_I64, 1, 0, 0)));
    if (ex_truth(em->x, cond) != TRUE_)
        take = em_op2(em, L_AND, take, em_cond(em, cond));
    uint32_t lanes = em_expr_lanes(em, index);
    acc[0] = select_lanes(em, take, v, acc[0]);
    acc[1] = select_lanes(em, take, em_index_lanes(em, index, lanes ? lanes : 1), acc[1]);
}

/* Asks for the line of a later panel that lies where this step reads its own. */
static void prefetch_panel(struct em *em, struct reduction *r, const expr_id *k)
{
    expr_id p[RANK_MAX], at[RANK_MAX];
    value_id w = r->n->in[1];
    const struct storage *s = &em->m->storage[w.i];
    if (s->place != PLACE_WEIGHTS)
        return;
    memcpy(p, r->points[0], (size_t)value_type(em->g, r->n->out[0])->rank * sizeof *p);
    p[em->ahead_dim] = ex_add(em->x, p[em->ahead_dim], em->ahead);
    operand_b_point(em, r->n, p, k, at);
    expr_id bytes = ex_mulc(em->x, em_address(em, s, at), elem_size(value_type(em->g, w)->elem));
    lval in[2] = {em_buffer(em, w), em_index(em, bytes)};
    struct lstmt *st = lf_stmt(em->f, em->level[em->top], L_PREFETCH2);
    st->in = lf_lvals(em->f, in, 2);
    st->n_in = 2;
}

static void step(struct em *em, struct reduction *r, const expr_id *k, lval *acc)
{
    if (em->ahead.i && r->n->n_in > 1)
        prefetch_panel(em, r, k);
    expr_id at[RANK_MAX];
    for (uint32_t i = 0; i < r->n_points; i++) {
        switch (r->n->op) {
        case OP_CONV: acc[i] = step_conv(em, r, r->points[i], k, acc[i]); break;
        case OP_DOT: acc[i] = step_dot(em, r, r->points[i], k, acc[i]); break;
        case OP_WINDOW: acc[i] = step_window(em, r, r->points[i], k, acc[i]); break;
        case OP_REDUCE:
            reduce_operand_point(em, r->n, r->points[i], k, at);
            acc[i] = em_op2(em, r->combine, acc[i], to_acc(em, em_value(em, r->n->in[0], at, r->cond), r->acc));
            break;
        default: step_arg(em, r, r->points[i], k, acc + 2 * i); break;
        }
    }
}

/* ---- the loops -------------------------------------------------------------------------------------------------------- */

static void nest(struct em *em, struct reduction *r, uint32_t d, expr_id *k, lval *acc);

/* A piece of one dim's loop: indices (base + i) * every + first for i in [0, n). */
struct run { expr_id base; int64_t every, first; };

static void nest_range(struct em *em, struct reduction *r, uint32_t d, expr_id *k, lval *acc, struct run run, expr_id n)
{
    struct em_for l;
    expr_id i = em_for_begin(em, &l, ex_const(em->x, 0), n, 1, acc, r->n_acc);
    lval inner[EM_POINTS];
    memcpy(inner, l.params, r->n_acc * sizeof *inner);
    k[d] = ex_addc(em->x, ex_mulc(em->x, ex_add(em->x, run.base, i), run.every), run.first);
    nest(em, r, d + 1, k, inner);
    em_for_end(em, &l, inner, acc);
}

/* Steps base, base + group ... below base + extent along the innermost dim: whole groups, then one that is not. */
static void nest_groups(struct em *em, struct reduction *r, expr_id *k, lval *acc, expr_id base, int64_t extent, bool unroll)
{
    uint32_t d = r->n_dims - 1;
    int64_t whole = extent / r->group;
    r->valid = r->group;
    if (unroll) {
        for (int64_t i = 0; i < whole; i++) {
            k[d] = ex_addc(em->x, base, i * r->group);
            step(em, r, k, acc);
        }
    } else if (whole) {
        struct em_for l;
        expr_id i = em_for_begin(em, &l, ex_const(em->x, 0), ex_const(em->x, whole), 1, acc, r->n_acc);
        lval inner[EM_POINTS];
        memcpy(inner, l.params, r->n_acc * sizeof *inner);
        k[d] = ex_add(em->x, base, ex_mulc(em->x, i, r->group));
        step(em, r, k, inner);
        em_for_end(em, &l, inner, acc);
    }
    if (extent % r->group) {
        r->valid = (uint32_t)(extent % r->group);
        k[d] = ex_addc(em->x, base, whole * r->group);
        step(em, r, k, acc);
    }
}

/* The innermost dim by groups: over the blocks in which it is stored, or in one run. */
static void nest_grouped(struct em *em, struct reduction *r, expr_id *k, lval *acc)
{
    const struct rdim *dim = &r->dim[r->n_dims - 1];
    expr_id zero = ex_const(em->x, 0);
    int64_t n = 0;
    ex_is_const(em->x, dim->extent, &n);
    if (!dim->order.block || n < dim->order.block) {
        nest_groups(em, r, k, acc, zero, n, dim->unroll || n <= dim->order.block);
        return;
    }
    struct em_for l;
    expr_id b = em_for_begin(em, &l, zero, ex_const(em->x, n / dim->order.block), 1, acc, r->n_acc);
    lval inner[EM_POINTS];
    memcpy(inner, l.params, r->n_acc * sizeof *inner);
    nest_groups(em, r, k, inner, ex_mulc(em->x, b, dim->order.block), dim->order.block, true);
    em_for_end(em, &l, inner, acc);
    nest_groups(em, r, k, acc, ex_const(em->x, n / dim->order.block * dim->order.block), n % dim->order.block, true);
}

/* The operand of a convolution without taps is walked through in blocks of channels, an image apart: longer steps than what
 * the cache's own prefetching follows. Asks for the lines of the block that begins with channel `next`, while this one's are used. */
static void prefetch_block(struct em *em, struct reduction *r, uint32_t d, expr_id next)
{
    const struct node *n = r->n;
    const struct storage *s = &em->m->storage[n->in[0].i];
    const struct type *x = value_type(em->g, n->in[0]);
    uint32_t count;
    if (n->op != OP_CONV || node_int(n, "groups", 1) != 1 || s->place == PLACE_NONE || (int32_t)d != x->rank - 2)
        return;
    const int64_t *strides = node_ints(n, "strides", &count);
    const expr_id *lo = node_exprs(n, "lo", &count);
    expr_id at[RANK_MAX], last = {0};
    for (uint32_t i = 0; i < d; i++)
        if (!ex_is(em->x, r->dim[i].extent, 1))
            return;
    for (uint32_t i = 0; i < r->n_points; i++) {
        const expr_id *p = r->points[i];
        at[0] = p[0];
        at[1] = next;
        for (int32_t k = 2; k < x->rank; k++)
            at[k] = ex_sub(em->x, ex_mulc(em->x, p[k], strides[k - 2]), lo[k - 2]);
        expr_id bytes = ex_mulc(em->x, em_address(em, s, at), elem_size(x->elem));
        if (i > 0 && bytes.i == last.i)
            continue;
        lval in[2] = {em_buffer(em, n->in[0]), em_index(em, bytes)};
        struct lstmt *st = lf_stmt(em->f, em->level[em->top], L_PREFETCH);
        st->in = lf_lvals(em->f, in, 2);
        st->n_in = 2;
        last = bytes;
    }
}

/* n indices, `every` apart from `first` on, cut where the blocks of memory are: what is left of the first one, whole ones, the
 * rest. */
static void nest_blocks(struct em *em, struct reduction *r, uint32_t d, expr_id *k, lval *acc, int64_t n, int64_t every, int64_t first)
{
    const struct channel_order *o = &r->dim[d].order;
    int64_t phase = o->phase[first], lead = phase ? o->block - phase : 0;
    if (lead > n)
        lead = n;
    int64_t whole = (n - lead) / o->block, rest = (n - lead) % o->block;
    if (lead)
        nest_range(em, r, d, k, acc, (struct run){ex_const(em->x, 0), every, first}, ex_const(em->x, lead));
    if (whole) {
        struct em_for l;
        expr_id b = em_for_begin(em, &l, ex_const(em->x, 0), ex_const(em->x, whole), 1, acc, r->n_acc);
        lval inner[EM_POINTS];
        memcpy(inner, l.params, r->n_acc * sizeof *inner);
        expr_id base = ex_addc(em->x, ex_mulc(em->x, b, o->block), lead);
        prefetch_block(em, r, d, ex_addc(em->x, ex_mulc(em->x, ex_addc(em->x, base, o->block), every), first));
        nest_range(em, r, d, k, inner, (struct run){base, every, first}, ex_const(em->x, o->block));
        em_for_end(em, &l, inner, acc);
    }
    if (rest)
        nest_range(em, r, d, k, acc, (struct run){ex_const(em->x, lead + whole * o->block), every, first}, ex_const(em->x, rest));
}

static void nest(struct em *em, struct reduction *r, uint32_t d, expr_id *k, lval *acc)
{
    if (d == r->n_dims) {
        step(em, r, k, acc);
        return;
    }
    if (r->group > 1 && d + 1 == r->n_dims) {
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
        nest_range(em, r, d, k, acc, (struct run){zero, 1, 0}, dim->extent);
    }
}

static void reduction_init(struct em *em, struct reduction *r, const struct node *n, uint32_t n_points,
                           expr_id *const *points, expr_id cond)
{
    bool arg = n->op == OP_ARGREDUCE || n->op == OP_ARGWINDOW;
    enum elem e = value_type(em->g, arg ? n->in[0] : n->out[0])->elem;
    *r = (struct reduction){.n = n, .n_points = n_points, .points = points, .cond = cond};
    r->acc = em_reg_elem(e);
    r->n_acc = arg ? 2 * n_points : n_points;
    r->combine = n->op == OP_REDUCE || n->op == OP_WINDOW ? em_monoid(node_str(n, "monoid", "sum"), r->acc)
                 : n->op == OP_ARGREDUCE && !node_int(n, "max", 1) ? L_MIN
                 : arg ? L_MAX : L_ADD;
    r->group = r->valid = dot_group(em->m, n);
    dims_of(em, r);
}

/* Lanes of a point: the widest lane symbol that it mentions. */
static uint32_t point_lanes(const struct em *em, const expr_id *p, int32_t rank)
{
    for (int32_t d = 0; d < rank; d++)
        if (em_expr_lanes(em, p[d]))
            return em_expr_lanes(em, p[d]);
    return 1;
}

static lval finish_acc(struct em *em, const struct node *n, lval v)
{
    enum elem e = value_type(em->g, n->out[0])->elem, reg = em_reg_elem(e);
    uint32_t lanes = lf_type(em->f, v).lanes;
    if (reg == e)
        return v;
    v = em_op(em, L_CONVERT, (struct ltype){e, lanes}, &v, 1);
    return em_op(em, L_CONVERT, (struct ltype){reg, lanes}, &v, 1);
}

void em_reduce_points(struct em *em, const struct node *n, uint32_t n_points, expr_id *const *points, expr_id cond, lval *out)
{
    struct reduction r;
    expr_id k[MAX_RDIMS];
    lval acc[EM_POINTS];
    reduction_init(em, &r, n, n_points, points, cond);
    choose_unroll(em, &r);
    bool arg = r.n_acc != n_points;
    int32_t rank = value_type(em->g, n->out[0])->rank;
    enum elem e = value_type(em->g, n->in[0])->elem;
    for (uint32_t i = 0; i < n_points; i++) {
        uint32_t lanes = point_lanes(em, points[i], rank);
        if (arg) {
            acc[2 * i] = identity(em, r.combine, r.acc, e, lanes);
            acc[2 * i + 1] = em_const(em, ELEM_I64, lanes, 0, -1);
        } else {
            acc[i] = identity(em, r.combine, r.acc, value_type(em->g, n->out[0])->elem, lanes);
        }
    }
    nest(em, &r, 0, k, acc);
    for (uint32_t i = 0; i < n_points; i++)
        out[i] = arg ? acc[2 * i + 1] : finish_acc(em, n, acc[i]);
}

/* ---- lanes along the innermost reduced dim --------------------------------------------------------------------------- */

static void horizontal_steps(struct em *em, struct reduction *r, expr_id *k, uint32_t d, lval *acc, uint32_t unroll,
                             uint32_t lanes)
{
    int64_t n = 0;
    bool fixed = ex_is_const(em->x, r->dim[d].extent, &n);
    expr_id vectors = ex_div(em->x, r->dim[d].extent, ex_const(em->x, lanes));
    expr_id zero = ex_const(em->x, 0), groups = ex_div(em->x, vectors, ex_const(em->x, unroll));
    expr_id lane = em_lane(em, lanes, (lval){0});
    lval inner[8];
    struct em_for l;
    int64_t g = 0;
    if (!ex_is_const(em->x, groups, &g) || g > 0) {
        expr_id t = em_for_begin(em, &l, zero, groups, 1, acc, unroll);
        memcpy(inner, l.params, unroll * sizeof *inner);
        for (uint32_t u = 0; u < unroll; u++) {
            expr_id v = ex_addc(em->x, ex_mulc(em->x, t, unroll), u);
            k[d] = ex_add(em->x, ex_mulc(em->x, v, lanes), lane);
            step(em, r, k, &inner[u]);
        }
        em_for_end(em, &l, inner, acc);
    }
    for (int64_t v = g * unroll; fixed && v < n / lanes; v++) {   /* whole vectors that fill no group */
        k[d] = ex_addc(em->x, lane, v * lanes);
        step(em, r, k, &acc[v % unroll]);
    }
    if (!fixed) {
        expr_id v = em_for_begin(em, &l, ex_mulc(em->x, groups, unroll), vectors, 1, acc, 1);
        inner[0] = l.params[0];
        k[d] = ex_add(em->x, ex_mulc(em->x, v, lanes), lane);
        step(em, r, k, inner);
        em_for_end(em, &l, inner, acc);
    }
    if (fixed && n % lanes == 0)
        return;
    expr_id done = ex_mulc(em->x, vectors, lanes);
    expr_id left = ex_sub(em->x, r->dim[d].extent, done);
    lval mask = em_tail_mask(em, left, lanes);
    k[d] = em_tail(em, done, left, lanes);
    lval whole = acc[0], next = acc[0];
    step(em, r, k, &next);
    acc[0] = select_lanes(em, mask, next, whole);
}

static void horizontal_nest(struct em *em, struct reduction *r, uint32_t d, expr_id *k, lval *acc, uint32_t unroll,
                            uint32_t lanes)
{
    if (d + 1 == r->n_dims) {
        horizontal_steps(em, r, k, d, acc, unroll, lanes);
        return;
    }
    struct em_for l;
    lval inner[8];
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

/* The part of a condition that says whether a reduction's point exists. Parts that mention nothing of the point are about
 * dims that a broadcast has added; one that mixes both counts when it holds in any lane. Deepens *depth as it needs. */
static expr_id point_condition(struct em *em, expr_id cond, const expr_id *idx, int32_t rank, int *depth)
{
    expr_id result = ex_const(em->x, 1);
    uint32_t n = ex_kind(em->x, cond) == EX_AND ? ex_n_args(em->x, cond) : 1;
    for (uint32_t i = 0; i < n; i++) {
        expr_id part = ex_kind(em->x, cond) == EX_AND ? ex_arg(em->x, cond, i) : cond;
        bool foreign;
        if (ex_truth(em->x, part) == TRUE_ || !shares_symbols(em, part, idx, rank, &foreign))
            continue;
        lval c = em_cond(em, part);
        if (foreign) {
            lval any = em_op(em, L_HREDUCE, (struct ltype){ELEM_BOOL, 1}, &c, 1);
            struct lblk *b = &em->f->blocks.data[em->level[em_depth(em, &any, 1)].i];
            b->stmts.data[b->stmts.n - 1].imm = L_OR;
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
lval em_reduce_one(struct em *em, const struct node *n, const expr_id *idx, expr_id cond)
{
    struct reduction r;
    expr_id k[MAX_RDIMS], *point = arena_copy(em->arena, idx, sizeof *idx *
                                              (size_t)(value_type(em->g, n->out[0])->rank + 1));
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
    lval result;
    bool lanes_taken = point_lanes(em, idx, rank) > 1;
    if (lanes_taken || !em_reduce_horizontal(em, n)) {
        em_reduce_points(em, n, 1, points, cond, &result);
    } else {
        int64_t extent = 0;
        reduction_init(em, &r, n, 1, points, cond);
        uint32_t lanes = em_lanes(em, r.acc), unroll = 1;
        if (!ex_is_const(em->x, r.dim[r.n_dims - 1].extent, &extent) || extent >= 8 * (int64_t)lanes)
            unroll = 4;
        while (lanes > 2 && extent && extent < lanes)
            lanes /= 2;
        if (r.acc == ELEM_BOOL)
            lanes = 16;
        lval acc[8];
        for (uint32_t u = 0; u < unroll; u++)
            acc[u] = identity(em, r.combine, r.acc, value_type(em->g, n->out[0])->elem, lanes);
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
        struct lblk *b = &em->f->blocks.data[em->level[em_depth(em, &result, 1)].i];
        b->stmts.data[b->stmts.n - 1].imm = r.combine;
        result = finish_acc(em, n, result);
    }
    memcpy(em->level, saved, sizeof saved);
    em->top = top;
    return result;
}
