/* The emission engine's core: types, statements placed by depth, loops, index expressions. Values and loads are in
 * emit/value.c, scalar functions in emit/map.c, reductions in emit/reduce.c. */
#include "passes/emit/emit.h"
#include "passes/module/query.h"

#include <string.h>

/* ---- statements ------------------------------------------------------------------------------------------ */

static int depth_of(const struct em *em, lreg v)
{
    return v.i < em->depth.n ? em->depth.data[v.i] : 0;
}

void em_set_depth(struct em *em, lreg v, int depth)
{
    while (em->depth.n <= v.i) {
        VEC_PUSH(em->arena, &em->depth, 0);
        VEC_PUSH(em->arena, &em->home, (lblock){0});
    }
    em->depth.data[v.i] = depth;
    em->home.data[v.i] = em->level[depth];
}

bool em_visible(const struct em *em, lreg v)
{
    int depth = depth_of(em, v);
    return depth == 0 || (depth <= em->top && em->level[depth].i == em->home.data[v.i].i);
}

int em_depth(const struct em *em, const lreg *in, uint32_t n)
{
    int depth = em->floor;
    for (uint32_t i = 0; i < n; i++)
        if (depth_of(em, in[i]) > depth)
            depth = depth_of(em, in[i]);
    return depth;
}

lreg em_op(struct em *em, enum lop op, struct ltype type, const lreg *in, uint32_t n)
{
    int depth = em_depth(em, in, n);
    lreg v = lf_op(em->f, em->level[depth], op, type, in, n);
    em_set_depth(em, v, depth);
    return v;
}

lreg em_op1(struct em *em, enum lop op, lreg a)
{
    return em_op(em, op, lf_type(em->f, a), &a, 1);
}

lreg em_op2(struct em *em, enum lop op, lreg a, lreg b)
{
    lreg in[2] = {a, b};
    em_unify(em, in, 2);
    struct ltype t = lf_type(em->f, in[0]);
    if (op == L_EQ || op == L_NE || op == L_LT || op == L_LE)
        t.elem = ELEM_BOOL;
    return em_op(em, op, t, in, 2);
}

lreg em_splat(struct em *em, lreg v, uint32_t lanes)
{
    struct ltype t = lf_type(em->f, v);
    if (lanes <= 1 || t.lanes == lanes)
        return v;
    t.lanes = lanes;
    return em_op(em, L_SPLAT, t, &v, 1);
}

void em_unify(struct em *em, lreg *v, uint32_t n)
{
    uint32_t lanes = 1;
    for (uint32_t i = 0; i < n; i++)
        if (lf_type(em->f, v[i]).lanes > lanes)
            lanes = lf_type(em->f, v[i]).lanes;
    for (uint32_t i = 0; i < n; i++)
        v[i] = em_splat(em, v[i], lanes);
}

lreg em_select(struct em *em, lreg cond, lreg a, lreg b)
{
    lreg in[3] = {cond, a, b};
    em_unify(em, in, 3);
    return em_op(em, L_SELECT, lf_type(em->f, in[1]), in, 3);
}

lreg em_const(struct em *em, enum elem e, uint32_t lanes, double f, int64_t i)
{
    struct em_const key = {e, lanes ? lanes : 1, f, elem_class(e) == 'F' ? 0 : i, {0}};
    struct em_const *slot = &em->consts[hash_bytes(&key, offsetof(struct em_const, v)) % COUNT_OF(em->consts)];
    if (slot->v.i && !memcmp(slot, &key, offsetof(struct em_const, v)))
        return slot->v;
    lreg v = lf_op(em->f, em->level[0], L_CONST, (struct ltype){e, key.lanes}, NULL, 0);
    *slot = key;
    slot->v = v;
    lf_last(em->f, em->level[0])->fimm = f;
    lf_last(em->f, em->level[0])->imm = i;
    return v;
}

void em_check(struct em *em, lreg cond, int32_t code, uint32_t node, const char *text)
{
    int depth = em_depth(em, &cond, 1);
    struct lstmt *s = lf_stmt(em->f, em->level[depth > 1 ? depth : 1], L_CHECK);
    s->in = lf_lregs(em->f, &cond, 1);
    s->n_in = 1;
    s->imm = code;
    s->node = node;
    s->name = text;
}

/* ---- symbols -------------------------------------------------------------------------------------------------- */

static struct em_sym *sym_info(const struct em *em, sym_id s)
{
    for (uint32_t i = em->syms.n; i > 0; i--)
        if (em->syms.data[i - 1].sym.i == s.i)
            return &em->syms.data[i - 1];
    return NULL;
}

static expr_id sym_fresh(struct em *em, int64_t lo, int64_t hi, struct em_sym info)
{
    info.sym = sym_new(em->x, SYM_LOOP, arena_printf(em->arena, "%s.e%u", em->f->name, sym_count(em->x)), lo, hi);
    VEC_PUSH(em->arena, &em->syms, info);
    return ex_sym(em->x, info.sym);
}

expr_id em_lane(struct em *em, uint32_t lanes, lreg mask)
{
    return sym_fresh(em, 0, (int64_t)lanes - 1,
                     (struct em_sym){.depth = mask.i ? depth_of(em, mask) : 0, .lanes = lanes, .mask = mask});
}

lreg em_tail_mask(struct em *em, expr_id left, uint32_t lanes)
{
    lreg iota = lf_op(em->f, em->level[0], L_IOTA, (struct ltype){ELEM_I64, lanes}, NULL, 0);
    return em_op2(em, L_LT, iota, em_index(em, left));
}

/* The lane stops where the dim does, as far as the simplifier is concerned: what lies behind is masked everywhere. */
expr_id em_tail(struct em *em, expr_id base, expr_id left, uint32_t lanes)
{
    int64_t n;
    bool known = ex_is_const(em->x, left, &n);
    if (known && n == 1)
        return base;
    lreg mask = em_tail_mask(em, left, lanes);
    expr_id lane = sym_fresh(em, 0, known ? n - 1 : (int64_t)lanes - 1,
                             (struct em_sym){.depth = depth_of(em, mask), .lanes = lanes, .mask = mask});
    return ex_add(em->x, base, lane);
}

expr_id em_bind(struct em *em, lreg index, int64_t lo, int64_t hi)
{
    uint32_t lanes = lf_type(em->f, index).lanes;
    return sym_fresh(
        em, lo, hi,
        (struct em_sym){
            .depth = depth_of(em, index), .var = index, .lanes = lanes > 1 ? lanes : 0, .vector = lanes > 1});
}

expr_id em_pin(struct em *em, expr_id e, int64_t lo, int64_t hi)
{
    lreg v = em_index(em, e);
    return sym_fresh(em, lo, hi, (struct em_sym){.depth = em->top, .var = v});
}

/* ---- index expressions ------------------------------------------------------------------------------------------ */

static lreg index_memo(const struct em *em, expr_id e, uint32_t lanes)
{
    for (uint32_t i = em->index_memo.n; i > 0; i--)
        if (em->index_memo.data[i - 1].e.i == e.i && em->index_memo.data[i - 1].lanes == lanes &&
            em_visible(em, em->index_memo.data[i - 1].v))
            return em->index_memo.data[i - 1].v;
    return (lreg){0};
}

uint32_t em_expr_lanes(const struct em *em, expr_id e)
{
    for (uint32_t i = 0; i < em->syms.n; i++)
        if (em->syms.data[i].lanes && ex_uses(em->x, e, em->syms.data[i].sym))
            return em->syms.data[i].lanes;
    return 0;
}

static lreg index_sym(struct em *em, sym_id s, uint32_t lanes)
{
    struct em_sym *info = sym_info(em, s);
    if (!info) {   /* a shape or value symbol that collect() did not see */
        em->failed = true;
        error_internal(em->m->ctx, (src_id){0}, "kernel %s: unbound symbol '%s'", em->f->name, sym_get(em->x, s)->name);
        return em_const(em, ELEM_I64, lanes, 0, 0);
    }
    if (!info->lanes)
        return em_splat(em, info->var, lanes);
    if (info->vector)
        return info->var;
    if (lanes <= 1)
        return em_const(em, ELEM_I64, 1, 0, 0);
    lreg v = lf_op(em->f, em->level[0], L_IOTA, (struct ltype){ELEM_I64, lanes}, NULL, 0);
    em_set_depth(em, v, 0);
    return v;
}

static lreg index_sum(struct em *em, expr_id e, uint32_t lanes)
{
    lreg sum = {0};
    int64_t c = ex_addend(em->x, e);
    uint32_t n = ex_n_args(em->x, e);
    /* Terms that depend on outer loops first, so that partial sums are hoisted: order by depth of the emitted term. */
    lreg term[64];
    uint32_t m = n < COUNT_OF(term) ? n : (uint32_t)COUNT_OF(term);
    for (uint32_t i = 0; i < n; i++) {
        lreg t = em_index_lanes(em, ex_arg(em->x, e, i), lanes);
        int64_t coef = ex_coef(em->x, e, i);
        if (coef != 1)
            t = em_op2(em, L_MUL, t, em_const(em, ELEM_I64, 1, 0, coef));
        if (i < m)
            term[i] = t;
        else
            term[m - 1] = em_op2(em, L_ADD, term[m - 1], t);
    }
    for (uint32_t i = 1; i < m; i++)
        for (uint32_t j = i; j > 0 && depth_of(em, term[j]) < depth_of(em, term[j - 1]); j--) {
            lreg t = term[j];
            term[j] = term[j - 1];
            term[j - 1] = t;
        }
    for (uint32_t i = 0; i < m; i++)
        sum = sum.i ? em_op2(em, L_ADD, sum, term[i]) : term[i];
    if (c != 0 || !sum.i) {
        lreg k = em_const(em, ELEM_I64, 1, 0, c);
        sum = sum.i ? em_op2(em, L_ADD, sum, k) : k;
    }
    return sum;
}

static lreg index_new(struct em *em, expr_id e, uint32_t lanes)
{
    int64_t c;
    lreg a, b;
    if (ex_is_const(em->x, e, &c))
        return em_const(em, ELEM_I64, lanes, 0, c);
    switch (ex_kind(em->x, e)) {
    case EX_SYM: return index_sym(em, ex_as_sym(em->x, e), lanes);
    case EX_SUM: return index_sum(em, e, lanes);
    case EX_PROD:
        a = em_index_lanes(em, ex_arg(em->x, e, 0), lanes);
        for (uint32_t i = 1; i < ex_n_args(em->x, e); i++)
            a = em_op2(em, L_MUL, a, em_index_lanes(em, ex_arg(em->x, e, i), lanes));
        return a;
    case EX_SELECT: {
        lreg in[3] = {em_cond(em, ex_arg(em->x, e, 0)), em_index_lanes(em, ex_arg(em->x, e, 1), lanes),
                      em_index_lanes(em, ex_arg(em->x, e, 2), lanes)};
        em_unify(em, in + 1, 2);
        struct ltype t = lf_type(em->f, in[1]);
        if (lf_type(em->f, in[0]).lanes > t.lanes) {
            t.lanes = lf_type(em->f, in[0]).lanes;
            in[1] = em_splat(em, in[1], t.lanes);
            in[2] = em_splat(em, in[2], t.lanes);
        }
        return em_op(em, L_SELECT, t, in, 3);
    }
    case EX_LT:
    case EX_EQ:
    case EX_AND:
    case EX_NOT: {
        lreg p = em_cond(em, e);
        struct ltype t = {ELEM_I64, lf_type(em->f, p).lanes};
        return em_splat(em, em_op(em, L_CONVERT, t, &p, 1), lanes);
    }
    default: break;
    }
    a = em_index_lanes(em, ex_arg(em->x, e, 0), lanes);
    b = em_index_lanes(em, ex_arg(em->x, e, 1), lanes);
    switch (ex_kind(em->x, e)) {
    case EX_DIV: return em_op2(em, L_FLOORDIV, a, b);
    case EX_MOD: return em_op2(em, L_FLOORMOD, a, b);
    case EX_MIN: return em_op2(em, L_MIN, a, b);
    default: return em_op2(em, L_MAX, a, b);
    }
}

lreg em_index_lanes(struct em *em, expr_id e, uint32_t lanes)
{
    if (lanes > 1 && !em_expr_lanes(em, e))
        return em_splat(em, em_index_lanes(em, e, 1), lanes);
    lreg v = index_memo(em, e, lanes);
    if (v.i)
        return v;
    v = em_splat(em, index_new(em, e, lanes), lanes);
    VEC_PUSH(em->arena, &em->index_memo, ((struct em_index_memo){e, lanes, v}));
    return v;
}

lreg em_index(struct em *em, expr_id e)
{
    return em_index_lanes(em, e, 1);
}

lreg em_cond(struct em *em, expr_id e)
{
    int64_t c;
    uint32_t lanes = em_expr_lanes(em, e);
    if (ex_is_const(em->x, e, &c))
        return em_const(em, ELEM_BOOL, 1, 0, c != 0);
    enum expr_kind kind = ex_kind(em->x, e);
    if (kind == EX_NOT) {
        return em_op1(em, L_NOT, em_cond(em, ex_arg(em->x, e, 0)));
    } else if (kind == EX_AND) {
        lreg p = em_cond(em, ex_arg(em->x, e, 0));
        for (uint32_t i = 1; i < ex_n_args(em->x, e); i++)
            p = em_op2(em, L_AND, p, em_cond(em, ex_arg(em->x, e, i)));
        return p;
    } else if (kind == EX_LT || kind == EX_EQ) {
        lreg a = em_index_lanes(em, ex_arg(em->x, e, 0), lanes ? lanes : 1);
        lreg b = em_index_lanes(em, ex_arg(em->x, e, 1), lanes ? lanes : 1);
        return em_op2(em, kind == EX_LT ? L_LT : L_EQ, a, b);
    }
    lreg v = em_index_lanes(em, e, lanes ? lanes : 1);
    return em_op2(em, L_NE, v, em_const(em, ELEM_I64, 1, 0, 0));
}

/* ---- loops ------------------------------------------------------------------------------------------------------- */

static void level_push(struct em *em, lblock b)
{
    if (em->top + 1 >= EM_LEVELS)
        context_unwind(em->m->ctx, FAIL_LIMIT, (src_id){0}, "kernel %s: loops nested too deeply", em->f->name);
    em->level[++em->top] = b;
}

expr_id em_for_begin(struct em *em, struct em_for *l, expr_id lo, expr_id hi, int64_t step, const lreg *inits,
                     uint32_t n)
{
    int64_t a, b;
    *l = (struct em_for){.n_carry = n, .lo = lo, .hi = hi, .step = step, .parent = em->top, .floor = em->floor};
    if (n)
        memcpy(l->inits, inits, n * sizeof *inits);
    if (ex_is_const(em->x, lo, &a) && ex_is_const(em->x, hi, &b) && b > a && b - a <= step) {
        l->trivial = true;
        if (n)
            memcpy(l->params, inits, n * sizeof *inits);
        return lo;
    }
    l->body = lf_block(em->f);
    l->var = lf_value(em->f, (struct ltype){ELEM_I64, 1});
    VEC_PUSH(em->arena, &em->f->blocks.data[l->body.i].params, l->var);
    /* The bounds are computed before the body opens. */
    em_index(em, lo);
    em_index(em, hi);
    level_push(em, l->body);
    em_set_depth(em, l->var, em->top);
    for (uint32_t i = 0; i < n; i++) {
        l->params[i] = lf_value(em->f, lf_type(em->f, inits[i]));
        VEC_PUSH(em->arena, &em->f->blocks.data[l->body.i].params, l->params[i]);
        em_set_depth(em, l->params[i], em->top);
    }
    int64_t max = ex_hi(em->x, hi);
    /* One trip or none: the variable is a constant, on which nothing depends, and yet it all has to stay inside. */
    if (max != INT64_MAX && max - 1 <= ex_lo(em->x, lo))
        em->floor = em->top;
    expr_id var = sym_fresh(em, ex_lo(em->x, lo), max == INT64_MAX ? max : max - 1,
                            (struct em_sym){.depth = em->top, .var = l->var});
    if (step > 1 && ex_is_const(em->x, lo, &a) && a % step == 0)
        sym_get(em->x, ex_as_sym(em->x, var))->divisor = step;
    return var;
}

static void yield_from(struct em *em, lblock block, const lreg *yields, uint32_t n)
{
    struct lstmt *y = lf_stmt(em->f, block, L_YIELD);
    y->in = lf_lregs(em->f, yields, n);
    y->n_in = n;
}

void em_for_end(struct em *em, struct em_for *l, const lreg *yields, lreg *results)
{
    if (l->trivial) {
        if (l->n_carry)
            memcpy(results, yields, l->n_carry * sizeof *yields);
        return;
    }
    if (l->n_carry)
        yield_from(em, em->level[em->top], yields, l->n_carry);
    em->top = l->parent;
    em->floor = l->floor;
    lreg in[EM_POINTS + 2] = {em_index(em, l->lo), em_index(em, l->hi)};
    for (uint32_t i = 0; i < l->n_carry; i++) {
        in[i + 2] = l->inits[i];
        results[i] = lf_value(em->f, lf_type(em->f, l->inits[i]));
        em_set_depth(em, results[i], em->top);
    }
    struct lstmt *s = lf_stmt(em->f, em->level[em->top], L_FOR);
    s->in = lf_lregs(em->f, in, l->n_carry + 2);
    s->n_in = l->n_carry + 2;
    s->out = l->n_carry ? lf_lregs(em->f, results, l->n_carry) : NULL;
    s->n_out = l->n_carry;
    s->imm = l->step;
    s->block[0] = l->body;
}

expr_id em_parallel_begin(struct em *em, struct em_for *l, expr_id count)
{
    *l = (struct em_for){.lo = ex_const(em->x, 0), .hi = count, .parent = 0};
    l->body = lf_block(em->f);
    l->var = lf_value(em->f, (struct ltype){ELEM_I64, 1});
    VEC_PUSH(em->arena, &em->f->blocks.data[l->body.i].params, l->var);
    em_index(em, l->lo);
    em_index(em, count);
    level_push(em, l->body);
    em_set_depth(em, l->var, em->top);
    em->k->count = count;
    int64_t max = ex_hi(em->x, count);
    return sym_fresh(em, 0, max == INT64_MAX ? max : (max > 0 ? max - 1 : 0),
                     (struct em_sym){.depth = em->top, .var = l->var});
}

void em_parallel_end(struct em *em, struct em_for *l)
{
    em->top = l->parent;
    lreg in[2] = {em_index(em, l->lo), em_index(em, l->hi)};
    struct lstmt *s = lf_stmt(em->f, em->level[0], L_PARALLEL);
    s->in = lf_lregs(em->f, in, 2);
    s->n_in = 2;
    s->block[0] = l->body;
}

void em_if_begin(struct em *em, struct em_if *l, lreg cond)
{
    l->block = lf_block(em->f);
    l->parent = em->top;
    l->cond = cond;
    l->floor = em->floor;
    level_push(em, l->block);
    em->floor = em->top;
}

/* A function of the runtime, of a buffer and an index, here and now. */
static lreg runtime_call(struct em *em, const char *name, lreg buffer, expr_id index)
{
    lreg in[2] = {buffer, em_index(em, index)}, result = lf_value(em->f, (struct ltype){ELEM_I64, 1});
    struct lstmt *s = lf_stmt(em->f, em->level[em->top], L_CALL);
    *s = (struct lstmt){.op = L_CALL, .type = {ELEM_I64, 1}, .name = name, .n_in = 2, .n_out = 1};
    s->in = lf_lregs(em->f, in, 2);
    s->out = lf_lregs(em->f, &result, 1);
    em_set_depth(em, result, em->top);
    return result;
}

void em_kept_begin(struct em *em, struct em_if *l, lreg keeper, expr_id tag)
{
    lreg kept = runtime_call(em, "mcc_rt_kept", keeper, tag);
    em_if_begin(em, l, em_op2(em, L_EQ, kept, em_const(em, ELEM_I64, 1, 0, 0)));
}

lreg em_arrive(struct em *em, expr_id counter, expr_id n)
{
    lreg in[2] = {em_shared(em), em_index(em, ex_mulc(em->x, counter, 8))};
    lreg at = lf_op(em->f, em->level[em->top], L_OFFSET, (struct ltype){ELEM_I64, 0}, in, 2);
    em_set_depth(em, at, em->top);
    return runtime_call(em, "mcc_rt_arrive", at, n);
}

static struct lstmt *if_close(struct em *em, struct em_if *l)
{
    em->top = l->parent;
    em->floor = l->floor;
    struct lstmt *s = lf_stmt(em->f, em->level[em->top], L_IF);
    s->in = lf_lregs(em->f, &l->cond, 1);
    s->n_in = 1;
    s->block[0] = l->block;
    return s;
}

void em_if_end(struct em *em, struct em_if *l)
{
    if_close(em, l);
}

void em_if_end_or(struct em *em, struct em_if *l, const lreg *yields, const lreg *otherwise, uint32_t n, lreg *results)
{
    lblock rest = lf_block(em->f);
    yield_from(em, l->block, yields, n);
    yield_from(em, rest, otherwise, n);
    struct lstmt *s = if_close(em, l);
    for (uint32_t i = 0; i < n; i++) {
        results[i] = lf_value(em->f, lf_type(em->f, yields[i]));
        em_set_depth(em, results[i], em->top);
    }
    s->out = lf_lregs(em->f, results, n);
    s->n_out = n;
    s->block[1] = rest;
}

/* ---- a kernel's frame: arguments first --------------------------------------------------------------------------- */

struct collector {
    struct em *em;
    bool *seen_value;
    uint32_t n_syms_seen;
    VEC(sym_id) syms;
    VEC(value_id) work;
};

static void collect_sym(struct collector *c, sym_id s)
{
    for (uint32_t i = 0; i < c->syms.n; i++)
        if (c->syms.data[i].i == s.i)
            return;
    VEC_PUSH(c->em->arena, &c->syms, s);
}

static void collect_expr(struct collector *c, expr_id e)
{
    struct exprs *x = c->em->x;
    if (!e.i)
        return;
    if (ex_kind(x, e) == EX_SYM) {
        sym_id s = ex_as_sym(x, e);
        if (sym_get(x, s)->kind != SYM_LOOP)
            collect_sym(c, s);
        return;
    }
    for (uint32_t i = 0; i < ex_n_args(x, e); i++)
        collect_expr(c, ex_arg(x, e, i));
}

static void collect_type(struct collector *c, value_id v)
{
    const struct type *t = value_type(c->em->g, v);
    for (int32_t d = 0; d < t->rank; d++)
        collect_expr(c, t->dims[d]);
}

static void collect_storage(struct collector *c, value_id v)
{
    const struct storage *s = &c->em->m->storage[v.i];
    for (int32_t d = 0; d < s->rank; d++)
        collect_expr(c, s->dim[d].outer);
    collect_expr(c, s->origin);
    collect_type(c, v);
}

static void collect_buffer(struct collector *c, value_id v)
{
    struct em *em = c->em;
    for (uint32_t i = 0; i < em->args.n; i++)
        if (em->args.data[i].value.i == v.i)
            return;
    VEC_PUSH(em->arena, &em->args, ((struct karg){.value = v}));
    collect_storage(c, v);
}

static void collect_node(struct collector *c, const struct node *n)
{
    for (uint32_t a = 0; a < n->n_attr; a++) {
        const struct attr *at = &n->attr[a];
        if (at->kind == ATTR_EXPR)
            collect_expr(c, at->u.e);
        else if (at->kind == ATTR_EXPRS)
            for (uint32_t i = 0; i < at->n; i++)
                collect_expr(c, at->u.exprs[i]);
    }
    for (uint32_t k = 0; k < n->n_in; k++)
        if (n->in[k].i)
            VEC_PUSH(c->em->arena, &c->work, n->in[k]);
}

/* Buffers and symbols that the kernel's values can mention: a walk from the stored values to what is in memory. */
static void collect(struct em *em)
{
    struct collector c = {.em = em, .seen_value = NEW_ARRAY(em->arena, bool, em->g->values.n)};
    for (uint32_t i = 0; i < em->k->outs.n; i++) {
        value_id v = em->k->outs.data[i];
        collect_buffer(&c, v);
        c.seen_value[v.i] = true;
        if (em->k->piece) { /* pieces of equal shape then have equal code */
            const struct node *n = graph_node(em->g, graph_value(em->g, v)->def);
            expr_id start;
            if (piece_start(em->m, n, em->k->piece - 1, &start) && !ex_is(em->x, start, 0))
                em->args.data[em->args.n - 1].start = ex_min(em->x, start, em->m->storage[v.i].size); /* may be empty */
            VEC_PUSH(em->arena, &c.work, em->k->domain);
        }
        if (!em->k->piece && em->k->kind != KERNEL_HALO)
            collect_node(&c, graph_node(em->g, graph_value(em->g, v)->def));
    }
    const struct schedule *s = em->schedule;
    if (s && s->kind == SCHEDULE_WINOGRAD &&
        s->winograd.source != WEIGHTS_BY_KERNEL) { /* in place of the weights themselves */
        VEC_PUSH(em->arena, &em->args, ((struct karg){.prepared = em->k->form.prepared}));
        c.seen_value[graph_node(em->g, em->k->anchor)->in[1].i] = true;
    }
    if (s && s->kind == SCHEDULE_ATTENTION && s->attention.parts)
        VEC_PUSH(em->arena, &em->args, ((struct karg){.shared = true}));
    while (c.work.n) {
        value_id v = c.work.data[--c.work.n];
        if (c.seen_value[v.i])
            continue;
        c.seen_value[v.i] = true;
        collect_type(&c, v);
        bool constant = value_is_const(em->g, v);
        if (em->m->storage[v.i].place != PLACE_NONE)
            collect_buffer(&c, v);
        if (em->m->stored[v.i] && !constant)
            continue;
        if (graph_value(em->g, v)->def.i)
            collect_node(&c, graph_node(em->g, graph_value(em->g, v)->def));
    }
    for (uint32_t i = 0; i < c.syms.n; i++)
        VEC_PUSH(em->arena, &em->args, ((struct karg){.sym = c.syms.data[i]}));
}

bool em_begin(struct em *em, const struct site *site, const struct schedule *schedule, const char *name)
{
    struct module *m = site->m;
    struct kernel *k = site->k;
    *em = (struct em){
        .m = m, .k = k, .g = site->g, .x = site->x, .arena = site->arena, .site = *site, .schedule = schedule};
    em->f = lf_new(m->ctx, site->arena, LROLE_KERNEL, name);
    k->shared_bytes = 0;
    em->level[0] = (lblock){1};
    em->bytes = kernel_has_bytes(m->g, k);
    em->memo_cap = 256;
    em->memo = NEW_ARRAY(em->arena, struct em_memo, em->memo_cap);
    collect(em);
    for (uint32_t i = 0; i < em->args.n; i++) {
        struct karg a = em->args.data[i];
        lreg v;
        if (a.value.i) {
            bool out = false;
            for (uint32_t j = 0; j < k->outs.n; j++)
                out |= k->outs.data[j].i == a.value.i;
            struct ltype t = {value_type(m->g, a.value)->elem, 0};
            v = lf_arg(em->f, t, LARG_IN | (out ? LARG_OUT : 0) | (k->shares ? 0 : LARG_NOALIAS), 0, NULL);
        } else if (a.prepared) {
            v = lf_arg(em->f, (struct ltype){ELEM_F32, 0}, LARG_IN | LARG_NOALIAS, 64, NULL);
        } else if (a.shared) {
            v = lf_arg(em->f, (struct ltype){ELEM_F32, 0}, LARG_IN | LARG_OUT, 64, NULL);
        } else {
            v = lf_arg(em->f, (struct ltype){ELEM_I64, 1}, 0, 0, sym_get(em->x, a.sym)->name);
            VEC_PUSH(em->arena, &em->syms, ((struct em_sym){.sym = a.sym, .var = v}));
        }
        VEC_PUSH(em->arena, &em->arg_lreg, v);
    }
    em_locals_begin(em);
    return true;
}

lreg em_buffer(struct em *em, value_id v)
{
    for (uint32_t i = 0; i < em->args.n; i++)
        if (em->args.data[i].value.i == v.i)
            return em->arg_lreg.data[i];
    em->failed = true;
    error_internal(em->m->ctx, (src_id){0}, "kernel %s: value %u is not an argument", em->f->name, v.i);
    return (lreg){1};
}

lreg em_prepared(struct em *em)
{
    for (uint32_t i = 0; i < em->args.n; i++)
        if (em->args.data[i].prepared)
            return em->arg_lreg.data[i];
    em->failed = true;
    error_internal(em->m->ctx, (src_id){0}, "kernel %s has no open-time constant", em->f->name);
    return (lreg){1};
}

lreg em_shared(struct em *em)
{
    for (uint32_t i = 0; i < em->args.n; i++)
        if (em->args.data[i].shared)
            return em->arg_lreg.data[i];
    em->failed = true;
    error_internal(em->m->ctx, (src_id){0}, "kernel %s shares no memory", em->f->name);
    return (lreg){1};
}

/* Does the kernel compute the node that is to come out wrong? */
static bool is_broken(const struct em *em)
{
    for (uint32_t i = 0; em->m->broken && i < em->k->nodes.n; i++) {
        const char *name = source_get(em->m->ctx, graph_node(em->g, em->k->nodes.data[i])->src)->name;
        if (name && strcmp(name, em->m->broken) == 0)
            return true;
    }
    return false;
}

bool em_finish(struct em *em)
{
    struct strbuf text;
    struct kernel *k = em->k;
    if (em->failed)
        return false;
    for (uint32_t i = 0; i < k->nodes.n; i++) {
        uint32_t src = graph_node(em->g, k->nodes.data[i])->src.i, j = 0;
        while (j < em->f->nodes.n && em->f->nodes.data[j] != src)
            j++;
        if (src && j == em->f->nodes.n)
            VEC_PUSH(em->arena, &em->f->nodes, src);
    }
    lf_tidy(em->f);
    if (is_broken(em))
        lf_break(em->f);
    if (!lf_finish(em->f)) {
        strbuf_init(&text, em->arena);
        lf_print(em->f, &text);
        remark_at(em->m->ctx, (src_id){0}, "broken-kernel", "%.900s", text.data ? text.data : "");
        return false;
    }
    strbuf_init(&text, em->arena);
    lf_print(em->f, &text);
    k->bytes = 0;
    for (uint32_t i = 0; i < em->args.n; i++) { /* each buffer read or written once */
        value_id v = em->args.data[i].value;
        if (v.i)
            k->bytes += (uint64_t)extent_least(em->m, em->m->storage[v.i].size) * elem_size(value_type(em->g, v)->elem);
        if (em->args.data[i].prepared)
            k->bytes += em->m->prepared.data[em->args.data[i].prepared - 1].bytes;
    }
    k->name = arena_strdup(em->m->arena, em->f->name);
    k->text = arena_strndup(em->m->arena, text.data, text.n);
    k->local_bytes = em->f->local_bytes;
    k->args.data = arena_copy(em->m->arena, em->args.data, em->args.n * sizeof *em->args.data);
    k->args.n = k->args.cap = em->args.n;
    return true;
}
