/* Loads and stores of values at points: scalar, contiguous, strided, in a few spans, or each lane where its address
 * says. */
#include "passes/emit/emit.h"
#include "passes/emit/spans.h"

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
    const struct em_sym *lane = em_lane_of(em, addr, &several);
    const struct em_sym *cond_lane = em_lane_of(em, cond, &several_cond);
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
    return register_elem(e) == e ? v : em_op(em, L_CONVERT, (struct ltype){e, lf_type(em->f, v).lanes}, &v, 1);
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

/* Element types whose vectors a shuffle takes. */
static bool moves_in_parts(enum elem e)
{
    return e != ELEM_BOOL && elem_class(e) != 'C' && elem_class(e) != 'S';
}

/* The lanes of spans in memory, each loaded as it lies there; 0 in those that are in none. */
static lreg load_spans(struct em *em, lreg buffer, enum elem e, const struct em_spans *s)
{
    lreg v = {0};
    for (uint32_t j = 0; j < s->n; j++) {
        uint8_t from[LOOP_LANES_MAX];
        uint32_t n = (uint32_t)s->span[j].n;
        struct reach r = {n > 1 ? REACH_LANES : REACH_SCALAR, n, em_index(em, s->span[j].first), {0}, {0}};
        lreg part = load_reached(em, buffer, e, &r, false);
        for (uint32_t k = 0; k < s->lanes; k++)
            from[k] = k < s->live && s->of[k] == j ? s->at[k] : 0;
        part = n > 1 ? em_shuffle(em, part, part, from, s->lanes) : em_splat(em, part, s->lanes);
        for (uint32_t k = 0; k < s->lanes; k++)
            from[k] = (uint8_t)(k < s->live && s->of[k] == j ? s->lanes + k : k);
        v = j ? em_shuffle(em, v, part, from, s->lanes) : part;
    }
    uint8_t from[LOOP_LANES_MAX];
    bool none = false;
    for (uint32_t k = 0; k < s->lanes; k++) {
        bool out = k < s->live && s->of[k] == EM_SPANS_MOST;
        from[k] = (uint8_t)(out ? s->lanes + k : k);
        none |= out;
    }
    return none ? em_shuffle(em, v, em_const(em, e, s->lanes, 0, 0), from, s->lanes) : v;
}

lreg em_load_at(struct em *em, lreg buffer, const struct storage *s, enum elem e, const expr_id *idx, expr_id cond)
{
    expr_id addr = storage_address(em->x, s, idx);
    struct em_spans spans;
    if (moves_in_parts(e) && em_spans(em, addr, cond, &spans))
        return em_to_register(em, load_spans(em, buffer, e, &spans), e);
    struct reach r = reach_address(em, addr, cond);
    return em_to_register(em, load_reached(em, buffer, e, &r, false), e);
}

lreg em_load_memory(struct em *em, value_id v, const expr_id *idx)
{
    struct reach r = reach_address(em, storage_address(em->x, &em->m->fused.storage[v.i], idx), ex_const(em->x, 1));
    return load_reached(em, em_buffer(em, v), value_type(em->g, v)->elem, &r, false);
}

lreg em_load_table(struct em *em, value_id v, lreg bytes)
{
    enum elem e = value_type(em->g, v)->elem;
    struct reach r = {.how = REACH_GATHER, .lanes = lf_type(em->f, bytes).lanes, .index = bytes};
    return em_to_register(em, load_reached(em, em_buffer(em, v), e, &r, false), e);
}

lreg em_load(struct em *em, value_id v, const expr_id *idx, expr_id cond)
{
    return em_load_at(em, em_buffer(em, v), &em->m->fused.storage[v.i], value_type(em->g, v)->elem, idx, cond);
}

lreg em_load_fresh(struct em *em, value_id v, const expr_id *idx)
{
    enum elem e = value_type(em->g, v)->elem;
    struct reach r = reach_address(em, storage_address(em->x, &em->m->fused.storage[v.i], idx), ex_const(em->x, 1));
    return em_to_register(em, load_reached(em, em_buffer(em, v), e, &r, true), e);
}

static void store_reached(struct em *em, lreg buffer, const struct reach *r, lreg value)
{
    static const enum lop op[] = {L_STORE, L_STORE, L_STORES, L_SCATTER};
    lreg in[5] = {buffer, r->index};
    uint32_t n = 2;
    if (r->how == REACH_STRIDE)
        in[n++] = r->stride;
    in[n++] = value;
    if (r->mask.i)
        in[n++] = r->mask;
    lf_stmt(em->f, em->level[em->top], op[r->how], in, n);
}

/* The lanes that each span of memory takes, in the order in which it has them. */
static void store_spans(struct em *em, lreg buffer, const struct em_spans *s, lreg value)
{
    for (uint32_t j = 0; j < s->n; j++) {
        uint8_t from[LOOP_LANES_MAX];
        uint32_t n = (uint32_t)s->span[j].n;
        for (uint32_t k = 0; k < s->live; k++)
            if (s->of[k] == j)
                from[s->at[k]] = (uint8_t)k;
        struct reach r = {n > 1 ? REACH_LANES : REACH_SCALAR, n, em_index(em, s->span[j].first), {0}, {0}};
        store_reached(em, buffer, &r, n > 1 ? em_shuffle(em, value, value, from, n) : em_extract(em, value, from[0]));
    }
}

/* The number of lanes that exist, where some do not and it is known: small elements are stored without a mask then,
 * which few CPUs have for them. Else 0. */
static uint32_t known_lanes(const struct em *em, expr_id addr)
{
    bool several;
    const struct em_sym *lane = em_lane_of(em, addr, &several);
    if (!lane || several || !lane->mask.i)
        return 0;
    int64_t hi = ex_hi(em->x, ex_sym(em->x, lane->sym));
    return hi >= 0 && hi < (int64_t)lane->lanes - 1 ? (uint32_t)hi + 1 : 0;
}

void em_store_at(struct em *em, lreg buffer, const struct storage *s, enum elem e, const expr_id *idx, lreg value)
{
    expr_id addr = storage_address(em->x, s, idx);
    struct em_spans spans;
    value = to_mem(em, value, e);
    if (moves_in_parts(e) && em_spans(em, addr, ex_const(em->x, 1), &spans) && spans.whole) {
        store_spans(em, buffer, &spans, em_splat(em, value, spans.lanes));
        return;
    }
    struct reach r = reach_address(em, addr, ex_const(em->x, 1));
    /* If all lanes have one address, the run has checked that the axis has one element. */
    value = r.lanes > 1 || lf_type(em->f, value).lanes <= 1 ? em_splat(em, value, r.lanes) : em_extract(em, value, 0);
    bool narrow = moves_in_parts(e) && elem_size(e) <= 2;
    uint32_t first = narrow && r.how == REACH_LANES ? known_lanes(em, addr) : 0;
    if (first) {
        r = (struct reach){first > 1 ? REACH_LANES : REACH_SCALAR, first, r.index, {0}, {0}};
        value = first > 1 ? em_part(em, value, 0, first) : em_extract(em, value, 0);
    }
    store_reached(em, buffer, &r, value);
}

void em_store(struct em *em, value_id v, const expr_id *idx, lreg value)
{
    em_store_at(em, em_buffer(em, v), &em->m->fused.storage[v.i], value_type(em->g, v)->elem, idx, value);
}

expr_id em_bytes(struct em *em, value_id v, const expr_id *idx)
{
    return ex_mulc(em->x, storage_address(em->x, &em->m->fused.storage[v.i], idx),
                   elem_size(value_type(em->g, v)->elem));
}

void em_prefetch(struct em *em, enum lop near_or_far, lreg buffer, expr_id bytes)
{
    if (module_machine(em->m)->span) /* a microcontroller waits for what it reads then, or has no cache */
        return;
    lreg in[2] = {buffer, em_index(em, bytes)};
    lf_stmt(em->f, em->level[em->top], near_or_far, in, 2);
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
    lf_stmt(em->f, em->level[em->top], L_STORE, in, 3);
}

/* Where the kernel's first result has a point of its domain. */
static void out_point(struct em *em, const expr_id *idx, expr_id *at)
{
    value_id out = em->k->outs.data[0];
    memcpy(at, idx, (size_t)value_type(em->g, out)->rank * sizeof *at);
    bool moved = false; /* what is passed begins with the piece */
    for (uint32_t i = 0; i < em->args.n; i++)
        moved |= em->args.data[i].value.i == out.i && em->args.data[i].start.i;
    if (em->k->piece && !moved) { /* after the operands before it */
        const struct node *n = value_node(em->g, out);
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
