/* Values at points: views rewrite the point, maps apply their scalar function, stored values are loaded, reductions
 * become loops (emit/reduce_one.c). */
#include "passes/emit/emit.h"

#include <string.h>

/* ---- memory ----------------------------------------------------------------------------------------------------- */

static const struct em_sym *lane_sym(const struct em *em, expr_id e, bool *several)
{
    const struct em_sym *found = NULL;
    *several = false;
    for (uint32_t i = 0; i < em->syms.n; i++) {
        const struct em_sym *s = &em->syms.data[i];
        if (s->lanes && ex_uses(em->x, e, s->sym)) {
            *several |= found != NULL || s->vector;
            found = s;
        }
    }
    return found;
}

enum { LANES_MOST = 128 };

/* How an address expression is reached: scalar, contiguous lanes, strided lanes, or a vector of indices. */
struct reach {
    enum { REACH_SCALAR, REACH_LANES, REACH_STRIDE, REACH_GATHER } how;
    uint32_t lanes;
    lreg index, stride, mask;
};

static lreg mask_and(struct em *em, lreg a, lreg b)
{
    return !a.i ? b : !b.i ? a : em_op2(em, L_AND, a, b);
}

static struct reach reach_address(struct em *em, expr_id addr, expr_id cond)
{
    struct reach r = {REACH_SCALAR, 1, {0}, {0}, {0}};
    bool several, several_cond;
    const struct em_sym *lane = lane_sym(em, addr, &several);
    const struct em_sym *cond_lane = lane_sym(em, cond, &several_cond);
    expr_id coef, rest;
    int64_t c = 0;
    if (!lane && !cond_lane) {
        r.index = em_index(em, addr);
    } else {
        r.lanes = lane ? lane->lanes : cond_lane->lanes;
        if (lane && !several && ex_linear(em->x, addr, lane->sym, &coef, &rest)) {
            r.how = ex_is_const(em->x, coef, &c) && c == 1 ? REACH_LANES : REACH_STRIDE;
            r.index = em_index(em, rest);
            if (r.how == REACH_STRIDE)
                r.stride = em_index(em, coef);
        } else {
            r.how = REACH_GATHER;
            r.index = em_index_lanes(em, addr, r.lanes);
        }
        for (uint32_t i = 0; i < em->syms.n; i++)
            if (em->syms.data[i].mask.i && ex_uses(em->x, addr, em->syms.data[i].sym))
                r.mask = mask_and(em, r.mask, em->syms.data[i].mask);
    }
    if (ex_truth(em->x, cond) != TRUE_)
        r.mask = mask_and(em, r.mask, em_splat(em, em_cond(em, cond), r.lanes));
    return r;
}

/* Converts between what memory holds and what registers hold. */
lreg em_to_register(struct em *em, lreg v, enum elem e)
{
    if (register_elem(e) == e)
        return v;
    return em_op(em, L_CONVERT, (struct ltype){register_elem(e), lf_type(em->f, v).lanes}, &v, 1);
}

static lreg to_mem(struct em *em, lreg v, enum elem e)
{
    if (register_elem(e) == e)
        return v;
    return em_op(em, L_CONVERT, (struct ltype){e, lf_type(em->f, v).lanes}, &v, 1);
}

/* fresh: at the current level, whatever its operands depend on. */
static lreg load_reached(struct em *em, lreg buffer, enum elem e, const struct reach *r, bool fresh)
{
    static const enum lop op[] = {L_LOAD, L_LOAD, L_LOADS, L_GATHER};
    lreg in[4] = {buffer, r->index};
    uint32_t n = 2;
    if (r->how == REACH_STRIDE)
        in[n++] = r->stride;
    if (r->mask.i)
        in[n++] = r->mask;
    if (!fresh)
        return em_op(em, op[r->how], (struct ltype){e, r->lanes}, in, n);
    lreg value = lf_op(em->f, em->level[em->top], op[r->how], (struct ltype){e, r->lanes}, in, n);
    em_set_depth(em, value, em->top);
    return value;
}

/* Lanes whose addresses lie together, though not one after another (each element twice, as enlarging by 2 reads them;
 * the same few again and again; backwards): from[lane] is the element of the `span` behind the expression that is
 * returned. {0}: no such address. */
static expr_id near_lanes(struct em *em, expr_id addr, uint8_t *from, uint32_t *lanes, int64_t *span)
{
    bool several;
    const struct em_sym *lane = lane_sym(em, addr, &several);
    int64_t at[LANES_MOST], least = 0, most = 0;
    expr_id coef, rest, first = {0};
    if (!lane || several || lane->lanes > LANES_MOST ||
        (ex_linear(em->x, addr, lane->sym, &coef, &rest) && !ex_is(em->x, coef, -1)))
        return (expr_id){0};
    int64_t hi = ex_hi(em->x, ex_sym(em->x, lane->sym));
    if (hi >= lane->lanes || (lane->mask.i && hi == lane->lanes - 1)) /* which lanes exist only the run knows */
        return (expr_id){0};
    for (int64_t k = 0; k <= hi; k++) {
        expr_id to = ex_const(em->x, k), here = ex_subst(em->x, addr, &lane->sym, &to, 1);
        first = k ? first : here;
        if (!ex_apart(em->x, here, first, &at[k]))
            return (expr_id){0};
        least = at[k] < least ? at[k] : least;
        most = at[k] > most ? at[k] : most;
        if (most - least >= lane->lanes)
            return (expr_id){0};
    }
    for (int64_t k = 0; k < lane->lanes; k++)
        from[k] = (uint8_t)(k <= hi ? at[k] - least : 0);
    *lanes = lane->lanes;
    *span = most - least + 1;
    return ex_addc(em->x, first, least);
}

lreg em_load_at(struct em *em, lreg buffer, const struct storage *s, enum elem e, const expr_id *idx, expr_id cond)
{
    expr_id addr = storage_address(em->x, s, idx), first = {0};
    uint8_t from[LANES_MOST];
    uint32_t lanes;
    int64_t span;
    if (e != ELEM_BOOL && elem_class(e) != 'C' && elem_class(e) != 'S' && ex_truth(em->x, cond) == TRUE_)
        first = near_lanes(em, addr, from, &lanes, &span);
    if (first.i) {
        struct reach r = {span > 1 ? REACH_LANES : REACH_SCALAR, (uint32_t)span, em_index(em, first), {0}, {0}};
        lreg v = load_reached(em, buffer, e, &r, false);
        return em_to_register(em, span > 1 ? em_shuffle(em, v, v, from, lanes) : em_splat(em, v, lanes), e);
    }
    struct reach r = reach_address(em, addr, cond);
    return em_to_register(em, load_reached(em, buffer, e, &r, false), e);
}

lreg em_load_memory(struct em *em, value_id v, const expr_id *idx)
{
    struct reach r = reach_address(em, storage_address(em->x, &em->m->storage[v.i], idx), ex_const(em->x, 1));
    return load_reached(em, em_buffer(em, v), value_type(em->g, v)->elem, &r, false);
}

lreg em_load(struct em *em, value_id v, const expr_id *idx, expr_id cond)
{
    return em_load_at(em, em_buffer(em, v), &em->m->storage[v.i], value_type(em->g, v)->elem, idx, cond);
}

lreg em_load_fresh(struct em *em, value_id v, const expr_id *idx)
{
    enum elem e = value_type(em->g, v)->elem;
    struct reach r = reach_address(em, storage_address(em->x, &em->m->storage[v.i], idx), ex_const(em->x, 1));
    return em_to_register(em, load_reached(em, em_buffer(em, v), e, &r, true), e);
}

void em_store_at(struct em *em, lreg buffer, const struct storage *s, enum elem e, const expr_id *idx, lreg value)
{
    static const enum lop op[] = {L_STORE, L_STORE, L_STORES, L_SCATTER};
    struct reach r = reach_address(em, storage_address(em->x, s, idx), ex_const(em->x, 1));
    lreg in[5] = {buffer, r.index};
    uint32_t n = 2;
    value = em_splat(em, to_mem(em, value, e), r.lanes);
    if (r.how == REACH_STRIDE)
        in[n++] = r.stride;
    in[n++] = value;
    if (r.mask.i)
        in[n++] = r.mask;
    struct lstmt *st = lf_stmt(em->f, em->level[em->top], op[r.how]);
    st->in = lf_lregs(em->f, in, n);
    st->n_in = n;
}

void em_store(struct em *em, value_id v, const expr_id *idx, lreg value)
{
    em_store_at(em, em_buffer(em, v), &em->m->storage[v.i], value_type(em->g, v)->elem, idx, value);
}

expr_id em_bytes(struct em *em, value_id v, const expr_id *idx)
{
    return ex_mulc(em->x, storage_address(em->x, &em->m->storage[v.i], idx), elem_size(value_type(em->g, v)->elem));
}

void em_prefetch(struct em *em, enum lop near_or_far, lreg buffer, expr_id bytes)
{
    lreg in[2] = {buffer, em_index(em, bytes)};
    struct lstmt *s = lf_stmt(em->f, em->level[em->top], near_or_far);
    s->in = lf_lregs(em->f, in, 2);
    s->n_in = 2;
}

lreg em_scratch(struct em *em, enum elem e, int64_t elements)
{
    struct ltype t = {e, 0};
    lreg buffer = lf_op(em->f, em->level[0], L_LOCAL, t, NULL, 0);
    lf_last(em->f, em->level[0])->imm = elements > 0 ? elements : 1;
    em_set_depth(em, buffer, 0);
    return buffer;
}

lreg em_scratch_load(struct em *em, lreg buffer, expr_id element, uint32_t lanes)
{
    lreg in[2] = {buffer, em_index(em, element)};
    lreg v = lf_op(em->f, em->level[em->top], L_LOAD, (struct ltype){lf_type(em->f, buffer).elem, lanes}, in, 2);
    em_set_depth(em, v, em->top);
    return v;
}

void em_scratch_store(struct em *em, lreg buffer, expr_id element, lreg value)
{
    lreg in[3] = {buffer, em_index(em, element), value};
    struct lstmt *s = lf_stmt(em->f, em->level[em->top], L_STORE);
    s->in = lf_lregs(em->f, in, 3);
    s->n_in = 3;
}

/* Where the kernel's first result has a point of its domain. */
static void out_point(struct em *em, const expr_id *idx, expr_id *at)
{
    value_id out = em->k->outs.data[0];
    memcpy(at, idx, (size_t)value_type(em->g, out)->rank * sizeof *at);
    bool moved = false; /* what is passed begins with the piece */
    for (uint32_t i = 0; i < em->args.n; i++)
        moved |= em->args.data[i].value.i == out.i && em->args.data[i].start.i;
    if (em->k->piece && !moved) { /* behind the operands before it */
        const struct node *n = graph_node(em->g, graph_value(em->g, out)->def);
        int64_t axis = node_int(n, "axis", 0);
        for (uint32_t j = 0; j + 1 < em->k->piece; j++)
            at[axis] = ex_add(em->x, at[axis], value_type(em->g, n->in[j])->dims[axis]);
    }
}

void em_store_out(struct em *em, const expr_id *idx, lreg value)
{
    expr_id at[RANK_MAX];
    out_point(em, idx, at);
    em_store(em, em->k->outs.data[0], at, value);
}

void em_prefetch_out(struct em *em, const expr_id *idx)
{
    value_id out = em->k->outs.data[0];
    expr_id at[RANK_MAX];
    out_point(em, idx, at);
    em_prefetch(em, L_PREFETCH2, em_buffer(em, out), em_bytes(em, out, at));
}

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

static lreg view_value(struct em *em, const struct node *n, const expr_id *idx, expr_id cond)
{
    expr_id at[RANK_MAX], c;
    lreg result = {0};
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
    enum truth t = ex_truth(em->x, c);
    if (n->op != OP_PAD || t == TRUE_)
        return em_value(em, n->in[0], at, cond);
    lreg fill = n->n_in > 1 ? em_value(em, n->in[1], at, ex_const(em->x, 1)) : zero_of(em, n->out[0]);
    if (t == FALSE_)
        return fill;
    return select_cond(em, c, em_value(em, n->in[0], at, ex_and(em->x, cond, c)), fill);
}

lreg em_lanes_live(struct em *em, const expr_id *idx, int32_t rank)
{
    lreg live = {0};
    for (uint32_t s = 0; s < em->syms.n; s++) {
        const struct em_sym *sym = &em->syms.data[s];
        bool used = false;
        for (int32_t d = 0; sym->mask.i && d < rank; d++)
            used |= ex_uses(em->x, idx[d], sym->sym);
        if (used)
            live = mask_and(em, live, sym->mask);
    }
    return live;
}

/* An index that memory holds: negative ones count from the end, out of range fails the run. */
expr_id em_loaded_index(struct em *em, const struct node *n, lreg i, struct em_point at, expr_id dim, expr_id cond)
{
    struct ltype t = {ELEM_I64, lf_type(em->f, i).lanes};
    if (lf_type(em->f, i).elem != ELEM_I64)
        i = em_op(em, L_CONVERT, t, &i, 1);
    lreg size = em_index(em, dim), zero = em_const(em, ELEM_I64, 1, 0, 0), live = {0};
    if (t.lanes > 1)
        live = em_lanes_live(em, at.idx, at.rank);
    lreg in[3] = {em_op2(em, L_LT, i, zero), em_op2(em, L_ADD, i, size), i};
    em_unify(em, in + 1, 2);
    i = em_op(em, L_SELECT, t, in, 3);
    lreg last = em_op2(em, L_SUB, size, em_const(em, ELEM_I64, 1, 0, 1));
    if (node_int(n, "clamp", 0)) {
        i = em_op2(em, L_MAX, em_op2(em, L_MIN, i, last), zero);
    } else {
        lreg ok = em_op2(em, L_AND, em_op2(em, L_LE, zero, i), em_op2(em, L_LT, i, size));
        if (ex_truth(em->x, cond) != TRUE_)
            ok = em_op2(em, L_OR, ok, em_op1(em, L_NOT, em_cond(em, cond)));
        if (live.i) /* lanes past the end hold nothing */
            ok = em_op2(em, L_OR, ok, em_op1(em, L_NOT, live));
        em_check(em, ok, -9, n->src.i, "index out of range");
        /* The check leaves at the end of the chunk's index; until then stay inside. */
        i = em_op2(em, L_MAX, em_op2(em, L_MIN, i, last), zero);
    }
    int64_t hi = ex_hi(em->x, dim);
    expr_id bound = em_bind(em, i, 0, hi == INT64_MAX ? hi : hi > 0 ? hi - 1 : 0);
    if (live.i && em->syms.data[em->syms.n - 1].vector) /* nor do they read: there may be no element at all */
        em->syms.data[em->syms.n - 1].mask = live;
    return bound;
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

static lreg map_value(struct em *em, const struct node *n, const expr_id *idx, expr_id cond)
{
    lreg in[3];
    for (uint32_t k = 0; k < n->n_in && k < 3; k++)
        in[k] = em_value(em, n->in[k], idx, cond);
    em->cond = cond;
    em->at = (struct em_point){idx, value_type(em->g, n->out[0])->rank};
    return em_map(em, n, in);
}

enum { MAX_NESTING = 600 };
lreg em_compute(struct em *em, value_id v, const expr_id *idx, expr_id cond)
{
    const struct node *n = graph_node(em->g, graph_value(em->g, v)->def);
    switch (op_shape(n->op)) {
    case SHAPE_VIEW: return view_value(em, n, idx, cond);
    case SHAPE_MAP: return map_value(em, n, idx, cond);
    case SHAPE_POINT: return points[n->op](em, n, idx);
    case SHAPE_INDEX: return index_value(em, n, idx, cond);
    case SHAPE_REDUCE: return em_reduce_one(em, n, idx, cond);
    default: break;
    }
    em->failed = true;
    error_internal(em->m->ctx, n->src, "kernel %s: %s cannot be computed in place", em->f->name, op_name(n->op));
    return zero_of(em, v);
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
    if (r.i && !(em->k->locals.n && em_local_rides(em, v))) /* a ride has to store each point */
        return r;
    if (em->k->locals.n && em_local_value(em, v, idx, cond, &r)) {
        em_remember(em, v, idx, cond, 0, r);
        return r;
    }
    if (em->stage.buffer.i && em->k->form.staged.i == v.i) {
        r = em_stage_value(em, idx, cond);
        em_remember(em, v, idx, cond, 0, r);
        return r;
    }
    if (em->panel.value.i && em->panel.value.i == v.i) {
        r = em_panel_value(em, idx, cond);
        em_remember(em, v, idx, cond, 0, r);
        return r;
    }
    bool mine = false;
    for (uint32_t k = 0; k < em->k->outs.n; k++)
        mine |= em->k->outs.data[k].i == v.i;
    if (value_is_splat(em->g, v, &f, &i)) {
        if (em->bytes && splat_is_number(em->g, v) && (number = splat_stored(em->m, v)).i)
            return number_value(em, number);
        return em_const(em, register_elem(value_type(em->g, v)->elem), 1, f, i);
    }
    if (em->m->storage[v.i].place != PLACE_NONE && !mine) {
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
