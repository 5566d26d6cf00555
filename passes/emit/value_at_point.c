/* Values at points: views rewrite the point, maps apply their scalar function, stored values are loaded
 * (emit/memory.c), reductions become loops (emit/reduce_one.c). */
#include "ir/eval/constants.h"
#include "ir/eval/field.h"
#include "ir/ops/field.h"
#include "passes/emit/producer.h"

/* ---- memo -------------------------------------------------------------------------------------------------------- */

static uint64_t memo_key(const struct em *em, value_id v, const expr_id *idx, expr_id cond, uint32_t group)
{
    int32_t rank = value_type(em->g, v)->rank;
    uint64_t h = hash_mix(v.i, (uint64_t)group << 32 | cond.i);
    return hash_mix(h, rank ? hash_bytes(idx, (size_t)rank * sizeof *idx) : 0);
}

static struct em_memo *memo_slot(struct em *em, uint64_t key, value_id v, const expr_id *idx, expr_id cond,
                                 uint32_t group)
{
    size_t size = (size_t)value_type(em->g, v)->rank * sizeof *idx;
    for (uint32_t i = (uint32_t)key & (em->memo_cap - 1);; i = (i + 1) & (em->memo_cap - 1)) {
        struct em_memo *e = &em->memo[i];
        if (!e->value.i || (e->key == key && e->value.i == v.i && e->cond.i == cond.i && e->group == group &&
                            !memcmp(e->idx, idx, size)))
            return e;
    }
}

void em_remember(struct em *em, value_id v, const expr_id *idx, expr_id cond, uint32_t group, lreg result)
{
    if (em->memo_n * 2 >= em->memo_cap) {
        struct em_memo *old = em->memo;
        uint32_t n = em->memo_cap;
        em->memo_cap *= 2;
        em->memo = NEW_ARRAY(em->arena, struct em_memo, em->memo_cap);
        for (uint32_t i = 0; i < n; i++)
            if (old[i].value.i)
                *memo_slot(em, old[i].key, old[i].value, old[i].idx, old[i].cond, old[i].group) = old[i];
    }
    uint64_t key = memo_key(em, v, idx, cond, group);
    struct em_memo *e = memo_slot(em, key, v, idx, cond, group);
    em->memo_n += !e->value.i;
    int32_t rank = value_type(em->g, v)->rank;
    *e = (struct em_memo){key,  v,     arena_copy(em->arena, idx, (size_t)(rank ? rank : 1) * sizeof *idx),
                          cond, group, result};
}

lreg em_recall(struct em *em, value_id v, const expr_id *idx, expr_id cond, uint32_t group)
{
    lreg r = memo_slot(em, memo_key(em, v, idx, cond, group), v, idx, cond, group)->result;
    return r.i && em_visible(em, r) ? r : (lreg){0};
}

/* ---- computed values --------------------------------------------------------------------------------------------- */

static lreg zero_of(struct em *em, value_id v)
{
    return em_const(em, register_elem(value_type(em->g, v)->elem), 1, 0, 0);
}

static lreg select_cond(struct em *em, expr_id c, lreg a, lreg b)
{
    lreg p = em_cond(em, c), in[3] = {p, a, b};
    em_unify(em, in + 1, 2);
    uint32_t lanes = lf_type(em->f, in[1]).lanes;
    if (lf_type(em->f, p).lanes > lanes) {
        lanes = lf_type(em->f, p).lanes;
        in[1] = em_splat(em, a, lanes);
        in[2] = em_splat(em, b, lanes);
    }
    return em_op(em, L_SELECT, lf_type(em->f, in[1]), in, 3);
}

/* A constant around an image. Where all lanes of a vector are beside it along some dim, or none, the nearest point of
 * the image is taken, without a mask, and the constant selected. */
static lreg padded_value(struct em *em, const struct node *n, const expr_id *idx, expr_id cond)
{
    const struct type *from = value_type(em->g, n->in[0]);
    const expr_id *lo = node_exprs(n, "lo", &(uint32_t){0}), *hi = node_exprs(n, "hi", &(uint32_t){0});
    expr_id at[RANK_MAX], zero = ex_const(em->x, 0), inside = ex_const(em->x, 1), lanes = inside;
    for (int32_t d = 0; d < from->rank; d++) {
        expr_id size = from->dims[d], here;
        at[d] = ex_sub(em->x, idx[d], lo[d]);
        if (ex_is(em->x, lo[d], 0) && ex_is(em->x, hi[d], 0))
            continue;
        here = ex_and(em->x, ex_le(em->x, zero, at[d]), ex_lt(em->x, at[d], size));
        inside = ex_and(em->x, inside, here);
        if (ex_truth(em->x, here) != UNKNOWN_ || em_expr_lanes(em, idx[d]) || ex_lo(em->x, size) < 1)
            lanes = ex_and(em->x, lanes, here);
        else
            at[d] = ex_max(em->x, zero, ex_min(em->x, at[d], ex_addc(em->x, size, -1)));
    }
    if (ex_truth(em->x, inside) == TRUE_)
        return em_value(em, n->in[0], at, cond);
    lreg fill = n->n_in > 1 ? em_value(em, n->in[1], at, ex_const(em->x, 1)) : zero_of(em, n->out[0]);
    if (ex_truth(em->x, inside) == FALSE_)
        return fill;
    return select_cond(em, inside, em_value(em, n->in[0], at, ex_and(em->x, cond, lanes)), fill);
}

static lreg view_value(struct em *em, const struct node *n, const expr_id *idx, expr_id cond)
{
    expr_id at[RANK_MAX], c;
    lreg result = {0};
    if (n->op == OP_PAD && !strcmp(node_str(n, "mode", "constant"), "constant"))
        return padded_value(em, n, idx, cond);
    if (n->op == OP_CONCAT) {
        for (uint32_t k = n->n_in; k > 0; k--) {
            view_index(em->g, n, k - 1, idx, at, &c);
            enum truth t = ex_truth(em->x, c);
            if (t == FALSE_)
                continue;
            lreg v = em_value(em, n->in[k - 1], at, t == TRUE_ ? cond : ex_and(em->x, cond, c));
            result = result.i && t != TRUE_ ? select_cond(em, c, v, result) : v;
            if (t == TRUE_)
                break;
        }
        return result.i ? result : zero_of(em, n->out[0]);
    }
    view_index(em->g, n, 0, idx, at, &c);
    return em_value(em, n->in[0], at, cond);
}

/* An index that memory holds: negative ones count from the end, out of range fails the run. What the range of the
 * indices excludes is not asked. */
expr_id em_loaded_index(struct em *em, const struct node *n, lreg i, struct em_point at, expr_id dim, expr_id cond)
{
    struct ltype t = {ELEM_I64, lf_type(em->f, i).lanes};
    struct value_range range = value_range(em->g, n->in[1]);
    if (lf_type(em->f, i).elem != ELEM_I64)
        i = em_op(em, L_CONVERT, t, &i, 1);
    lreg size = em_index(em, dim), zero = em_const(em, ELEM_I64, 1, 0, 0), live = {0};
    int64_t least = ex_lo(em->x, dim), hi = ex_hi(em->x, dim);
    if (t.lanes > 1)
        live = em_lanes_live(em, at.idx, at.rank);
    if (range.lo < 0) {
        lreg in[3] = {em_op2(em, L_LT, i, zero), em_op2(em, L_ADD, i, size), i};
        em_unify(em, in + 1, 2);
        i = em_op(em, L_SELECT, t, in, 3);
    }
    bool inside = least > 0 && range.hi < least && range.lo >= -least, always = ex_truth(em->x, cond) == TRUE_;
    if (!inside || !always) {
        lreg last = em_op2(em, L_SUB, size, em_const(em, ELEM_I64, 1, 0, 1));
        if (!inside && !node_int(n, "clamp", 0)) {
            lreg ok = em_op2(em, L_AND, em_op2(em, L_LE, zero, i), em_op2(em, L_LT, i, size));
            if (!always)
                ok = em_op2(em, L_OR, ok, em_op1(em, L_NOT, em_cond(em, cond)));
            if (live.i) /* lanes past the end hold nothing */
                ok = em_op2(em, L_OR, ok, em_op1(em, L_NOT, live));
            em_check(em, ok, n->src.i, "index out of range");
        }
        /* The check leaves at the end of the parallel index; until then, and where `cond` is false, stay inside. */
        i = em_op2(em, L_MAX, em_op2(em, L_MIN, i, last), zero);
    }
    int64_t most = inside && range.lo >= 0 ? range.hi : INT64_MAX, last = hi == INT64_MAX ? hi : hi > 0 ? hi - 1 : 0;
    expr_id bound = em_bind(em, i, most < last ? most : last);
    if (live.i && em->syms.data[em->syms.n - 1].vector) /* nor do they read: there may be no element at all */
        em->syms.data[em->syms.n - 1].mask = live;
    return bound;
}

/* A constant of 256 elements of a byte each, by an index of a byte: nothing is outside. */
static bool is_byte_table(const struct em *em, const struct node *n)
{
    const struct type *t = value_type(em->g, n->in[0]);
    const struct storage *s = &em->m->fused.storage[n->in[0].i];
    return n->op == OP_GATHER && value_is_const(em->g, n->in[0]) && elem_size(t->elem) == 1 && t->rank == 1 &&
           ex_is(em->x, t->dims[0], LOOP_TABLE) && value_type(em->g, n->in[1])->elem == ELEM_U8 && s->rank == 1 &&
           !s->dim[0].block && ex_is(em->x, s->dim[0].outer, 1) && ex_is(em->x, s->origin, 0);
}

static lreg index_value(struct em *em, const struct node *n, const expr_id *idx, expr_id cond)
{
    const struct type *t = value_type(em->g, n->in[0]), *of_index = value_type(em->g, n->in[1]);
    struct index_access a;
    index_access(em->g, n, idx, &a);
    for (int32_t j = 0; j < a.n; j++) {
        if (a.component >= 0)
            a.index[a.component] = ex_const(em->x, j);
        lreg i = em_value(em, n->in[1], a.index, cond);
        if (lf_type(em->f, i).lanes > 1 && is_byte_table(em, n))
            return em_load_table(em, n->in[0], i);
        a.at[a.dim + j] = em_loaded_index(em, n, i, (struct em_point){a.index, of_index->rank}, t->dims[a.dim + j],
                                          cond);
    }
    return em_value(em, n->in[0], a.at, cond);
}

/* ---- functions of the point alone -------------------------------------------------------------------------------- */

static lreg iota_value(struct em *em, const struct node *n, const expr_id *idx)
{
    enum elem to = register_elem(value_type(em->g, n->out[0])->elem);
    expr_id e = idx[node_int(n, "axis", 0)];
    uint32_t lanes = em_expr_lanes(em, e);
    lreg v = em_index_lanes(em, e, lanes ? lanes : 1);
    return to == ELEM_I64 ? v : em_op(em, L_CONVERT, (struct ltype){to, lf_type(em->f, v).lanes}, &v, 1);
}

static lreg exprs_value(struct em *em, const struct node *n, const expr_id *idx)
{
    const struct type *t = value_type(em->g, n->out[0]);
    uint32_t count;
    const expr_id *e = node_exprs(n, "exprs", &count);
    expr_id flat = point_linear(em->x, idx, t->dims, t->rank), v = count ? e[0] : ex_const(em->x, 0);
    for (uint32_t i = 1; i < count; i++)
        v = ex_select(em->x, ex_eq(em->x, flat, ex_const(em->x, i)), e[i], v);
    uint32_t lanes = em_expr_lanes(em, v);
    lreg r = em_index_lanes(em, v, lanes ? lanes : 1);
    enum elem to = register_elem(t->elem);
    return to == ELEM_I64 ? r : em_op(em, L_CONVERT, (struct ltype){to, lf_type(em->f, r).lanes}, &r, 1);
}

typedef lreg point_fn(struct em *, const struct node *, const expr_id *idx);
static point_fn *const points[OP_COUNT] = {
#define POINT(id, name, infer, eval, lattice, read, value, attrs) [OP_##id] = value,
#include "ir/ops/ops.def"
};

/* Operands in row buffers come last: a reduction in another operand may fill them on its way. */
static lreg map_value(struct em *em, const struct node *n, const expr_id *idx, expr_id cond)
{
    lreg in[3];
    for (uint32_t last = 0; last < 2; last++)
        for (uint32_t k = 0; k < n->n_in && k < 3; k++)
            if ((em_producer_of(em, n->in[k]) != NULL) == last)
                in[k] = em_value(em, n->in[k], idx, cond);
    em->cond = cond;
    em->at = (struct em_point){idx, value_type(em->g, n->out[0])->rank};
    return em_map(em, n, in);
}

enum { MAX_NESTING = 600 };
lreg em_compute(struct em *em, value_id v, const expr_id *idx, expr_id cond)
{
    const struct node *n = value_node(em->g, v);
    switch (op_shape(n->op)) {
    case SHAPE_VIEW: return view_value(em, n, idx, cond);
    case SHAPE_MAP: return map_value(em, n, idx, cond);
    case SHAPE_POINT: return points[n->op](em, n, idx);
    case SHAPE_INDEX: return n->op == OP_WALK ? em_walk(em, n, idx, cond) : index_value(em, n, idx, cond);
    case SHAPE_REDUCE: return em_reduce_one(em, n, idx, cond);
    default: break;
    }
    em->failed = true;
    error_internal(em->m->ctx, n->src, "kernel %s: %s cannot be computed in place", em->f->name, op_name(n->op));
    return zero_of(em, v);
}

/* A constant of one element. Of mcc prove it says what it is in the field, as it may be folded. */
static lreg em_number(struct em *em, value_id v, double f, int64_t i)
{
    const enum elem e = register_elem(value_type(em->g, v)->elem);
    uint32_t residue;
    if (!field_holds(e) || !em->m->ctx->field_code || !field_number(em->g, v, f, &residue) || residue == field_of(f))
        return em_const(em, e, 1, f, i);
    lreg r = lf_op(em->f, em->level[0], L_CONST, (struct ltype){e, 1}, NULL, 0);
    struct lstmt *s = lf_last(em->f, em->level[0]);
    s->fimm = f;
    s->imm = residue;
    s->flags = L_FLAG_RESIDUE;
    return r;
}

/* The one element of a stored constant. */
static lreg number_value(struct em *em, value_id v)
{
    expr_id first[RANK_MAX], always = ex_const(em->x, 1);
    for (int32_t d = 0; d < value_type(em->g, v)->rank; d++)
        first[d] = ex_const(em->x, 0);
    lreg r = em_recall(em, v, first, always, 0);
    if (!r.i) {
        r = em_load(em, v, first, always);
        em_remember(em, v, first, always, 0, r);
    }
    return r;
}

lreg em_value(struct em *em, value_id v, const expr_id *idx, expr_id cond)
{
    value_id number;
    double f = 0;
    int64_t i = 0;
    if (em->anchor.i && em->anchor.i == v.i)
        return em->anchor_value;
    lreg r = em_recall(em, v, idx, cond, 0);
    const struct em_producer *p = em_producer_of(em, v);
    if (r.i && !(p && p->carried && !p->filling)) /* the reduction that carries it stores each point */
        return r;
    if (p && em_produced(em, v, idx, cond, &r)) {
        em_remember(em, v, idx, cond, 0, r);
        return r;
    }
    bool mine = false;
    for (uint32_t k = 0; k < em->k->outs.n; k++)
        mine |= em->k->outs.data[k].i == v.i;
    if (value_is_splat(em->g, v, &f, &i)) {
        if (em->bytes && splat_is_number(em->g, v) && (number = splat_stored(em->m, v)).i)
            return number_value(em, number);
        return em_number(em, v, f, i);
    }
    if (em->m->fused.storage[v.i].place != PLACE_NONE && !mine) {
        r = em_load(em, v, idx, cond);
    } else {
        if (++em->nesting > MAX_NESTING)
            context_unwind(em->m->ctx, FAIL_LIMIT, (src_id){0}, "more than %d operators lie between stored values",
                           MAX_NESTING);
        r = em_compute(em, v, idx, cond);
        em->nesting--;
    }
    em_remember(em, v, idx, cond, 0, r);
    return r;
}
