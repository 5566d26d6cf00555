/* find-attention: recognises attention in the graph of core operators and records it (passes/module/attention.h).
 * In and out: a legal graph, which stays as it is.
 *
 * From each contraction backwards: its first operand is a quotient of exponentials and their sum over the contracted
 * dim; what the exponentials are of leads, through maps and views, to another contraction whose free dims are the rows
 * and the keys. Every value on the way is wanted here alone. A contraction that has everything but that is
 * noted, too, with the first obstacle (attention_missed.c). Points decide, not operators' names: symbols for a row and
 * a key go through all views and have to come out as they were.
 *
 * For transformers: found in 8 of the 554 networks of ../shared/models that compile, in 3 of the 14 of `make bench`.
 */
#include "ir/target/budget.h"
#include "passes/module/attention.h"
#include "passes/module/analysis.h"

#include <float.h>

enum {
    MAX_STEPS = 24,
    MAX_VISITS = 128,
    ROWS_LEAST = 8 /* fewer leave most lanes idle */,
    ROWS_BLOCK = 64 /* of a block, at most */,
    LOWEST = -80 /* its exponential is less than half a last bit of the sum, which is 1 at least */
};

/* Of a head: the rows of Q of a block stay in L2. */
static int64_t size_most(const struct module *m)
{
    return budget(module_machine(m), SHARE_L2_QUERIES) / (ROWS_BLOCK * 4);
}

struct finder {
    struct module *m;
    struct graph *g;
    struct exprs *x;
    struct attention *a;
    region_id region;
    expr_id row, key;
    value_id sum_max, sum_sink; /* of what the sum has of a sink; {0}: there is none */
    const expr_id *sink_point;
    sym_id row_sym, key_sym;
    uint32_t visits;
    const char *why; /* what does not match; NULL: the form, which attention_obstacle() looks at */
};

static bool differs(struct finder *f, const char *why)
{
    f->why = why;
    return false;
}

/* The node that makes v, if it is op, in this region, and v has that many uses. Notes it as computed inside. */
static const struct node *inner(struct finder *f, value_id v, enum op op, uint32_t uses)
{
    const struct node *n = value_node(f->g, v);
    if (!n || n->op != op || n->parent.i != f->region.i || graph_value(f->g, v)->n_uses != uses)
        return NULL;
    VEC_PUSH(f->m->arena, &f->a->nodes, graph_value(f->g, v)->def);
    return n;
}

static bool is_splat_of(const struct finder *f, value_id v, double want)
{
    double have = 0;
    return value_is_splat(f->g, v, &have, &(int64_t){0}) && have == want;
}

/* v at idx = x at another point, by reshape and broadcast: x, and that point in place. Alone: no further than each view
 * is wanted here alone, which notes it. */
static value_id spread_from(struct finder *f, value_id v, expr_id *idx, bool alone)
{
    enum op op = value_op(f->g, v);
    for (; (op == OP_BROADCAST || op == OP_RESHAPE) && (!alone || inner(f, v, op, 1)); op = value_op(f->g, v))
        v = operand_at(f->g, value_node(f->g, v), 0, idx, idx);
    return v;
}

static value_id spread_of(struct finder *f, value_id v, expr_id *idx)
{
    return spread_from(f, v, idx, true);
}

/* Is v at point `at` the reduction, over the dim `axis` alone, of the line of x that point idx lies in? */
static bool is_reduce(struct finder *f, value_id v, const expr_id *at, const char *monoid, value_id x,
                      const expr_id *idx, int32_t axis)
{
    const struct node *n = inner(f, v, OP_REDUCE, 1);
    uint32_t n_axes;
    const int64_t *axes = n ? node_ints(n, "axes", &n_axes) : NULL;
    if (!n || strcmp(node_str(n, "monoid", ""), monoid) || n_axes != 1 || axes[0] != axis || n->in[0].i != x.i)
        return false;
    for (int32_t d = 0; d < value_type(f->g, x)->rank; d++)
        if (d != axis && at[d - (d > axis)].i != idx[d].i)
            return false;
    return true;
}

/* v at idx = the larger of x, at another point, and a splat: x, that point in place, and where the splat is; else v. */
static value_id raised_from(struct finder *f, value_id v, expr_id *idx, struct attention_step *least)
{
    const struct node *n = value_node(f->g, v);
    if (!n || n->op != OP_MAX)
        return v;
    for (uint32_t k = 0; k < 2; k++)
        if (value_is_splat(f->g, n->in[1 - k], &(double){0}, &(int64_t){0}) && inner(f, v, OP_MAX, 1)) {
            *least = (struct attention_step){graph_value(f->g, v)->def, 1 - k};
            return spread_of(f, n->in[k], idx);
        }
    return v;
}

/* e = exp(d), or that except for 0 where d is below a bound; sets d = z - max. */
static bool match_terms(struct finder *f, value_id e, value_id *d)
{
    const struct node *n = value_node(f->g, e), *cut;
    value_id far = {0};
    if (n && n->op == OP_SELECT) {
        far = n->in[0];
        if (!inner(f, e, OP_SELECT, 2) || !is_splat_of(f, n->in[1], 0))
            return false;
        e = n->in[2];
    }
    n = inner(f, e, OP_EXP, far.i ? 1 : 2);
    if (!n)
        return false;
    *d = n->in[0];
    if (!far.i)
        return true;
    cut = inner(f, n->in[0], OP_SELECT, 1);
    if (!cut || cut->in[0].i != far.i || !is_splat_of(f, cut->in[1], 0))
        return false;
    *d = cut->in[2];
    n = inner(f, far, OP_LT, 2);
    double bound = 0;
    return n && n->in[0].i == d->i && value_is_splat(f->g, n->in[1], &bound, &(int64_t){0}) && bound < LOWEST;
}

/* Are v at idx and w at `at` one element of one value, whoever reads the views between? */
static bool is_same(struct finder *f, value_id v, const expr_id *idx, value_id w, const expr_id *at)
{
    expr_id from[2][RANK_MAX];
    memcpy(from[0], idx, (size_t)value_type(f->g, v)->rank * sizeof *idx);
    memcpy(from[1], at, (size_t)value_type(f->g, w)->rank * sizeof *at);
    v = spread_from(f, v, from[0], false);
    w = spread_from(f, w, from[1], false);
    for (int32_t d = 0; v.i == w.i && d < value_type(f->g, v)->rank; d++)
        if (from[0][d].i != from[1][d].i)
            return false;
    return v.i == w.i;
}

/* v at idx = a sum at another point + the exponential of a sink less the maximum: that sum, and its point in place;
 * else v. Notes the sink and the maximum, at idx. */
static value_id sum_of_keys(struct finder *f, value_id v, expr_id *idx)
{
    const struct node *n = value_node(f->g, v), *e, *d;
    size_t rank = (size_t)value_type(f->g, v)->rank;
    for (uint32_t k = 0; k < 2 && n && n->op == OP_ADD; k++) {
        if (!(e = value_node(f->g, n->in[k])) || e->op != OP_EXP || !(d = value_node(f->g, e->in[0])) ||
            d->op != OP_SUB || !inner(f, v, OP_ADD, 1) || !inner(f, n->in[k], OP_EXP, 1) ||
            !inner(f, e->in[0], OP_SUB, 1))
            continue;
        f->sum_sink = d->in[0];
        f->sum_max = d->in[1];
        f->sink_point = arena_copy(f->m->arena, idx, (rank ? rank : 1) * sizeof *idx);
        return spread_of(f, n->in[1 - k], idx);
    }
    return v;
}

/* v at idx is subtracted from z: the maximum of the keys, and its point in place. With a sink, v has to be the larger
 * one of both, and what the sum has; {0}: it is not. */
static value_id max_of_keys(struct finder *f, value_id v, expr_id *idx)
{
    struct attention *a = f->a;
    const struct node *n = value_node(f->g, v);
    bool same = f->sum_sink.i && is_same(f, v, idx, f->sum_max, f->sink_point);
    a->max = v;
    if (!f->sum_sink.i)
        return v;
    for (int32_t d = 0; d < value_type(f->g, v)->rank; d++)
        same = same && !ex_uses(f->x, idx[d], f->key_sym); /* else each key has its own */
    for (uint32_t k = 0; k < 2 && same && n && n->op == OP_MAX; k++) {
        if (!is_same(f, n->in[k], idx, f->sum_sink, f->sink_point) || !inner(f, v, OP_MAX, 2))
            continue;
        a->sink = (struct attention_step){graph_value(f->g, v)->def, k};
        return spread_of(f, n->in[1 - k], idx);
    }
    return (value_id){0};
}

/* From v back to max, which max_of_keys found. */
static void steps_to_max(struct finder *f, value_id v)
{
    while (v.i != f->a->max.i) {
        node_id id = graph_value(f->g, v)->def;
        const struct node *n = graph_node(f->g, id);
        uint32_t k = n->op == OP_MAX && value_is_splat(f->g, n->in[0], &(double){0}, &(int64_t){0});
        VEC_PUSH(f->m->arena, &f->a->to_max, ((struct attention_step){id, k}));
        v = n->in[k];
    }
}

/* v at idx = softmax of z along dim `axis`, there. */
static bool match_softmax(struct finder *f, value_id v, const expr_id *idx, int32_t axis)
{
    struct attention *a = f->a;
    const struct node *n = value_node(f->g, v), *one;
    size_t size = (size_t)value_type(f->g, v)->rank * sizeof *idx;
    expr_id at[RANK_MAX];
    value_id d, sum;
    struct attention_step lowest = {{0}, 0};
    if (!n || (n->op != OP_MUL && n->op != OP_DIV) || !inner(f, v, n->op, a->cleared.node.i ? 2 : 1))
        return false;
    memcpy(at, idx, size);
    a->terms = n->in[0];
    sum = spread_of(f, n->in[1], at);
    if (n->op == OP_MUL) {
        one = inner(f, sum, OP_DIV, 1);
        if (!one || !is_splat_of(f, one->in[0], 1))
            return false;
        sum = spread_of(f, one->in[1], at);
    }
    sum = sum_of_keys(f, raised_from(f, sum, at, &a->least), at);
    if (!is_reduce(f, sum, at, "sum", a->terms, idx, axis) || !match_terms(f, a->terms, &d))
        return false;
    n = inner(f, d, OP_SUB, value_op(f->g, a->terms) == OP_SELECT ? 2 : 1);
    if (!n)
        return false;
    memcpy(at, idx, size);
    a->z = n->in[0];
    value_id max = max_of_keys(f, raised_from(f, spread_of(f, n->in[1], at), at, &lowest), at);
    double bound = -FLT_MAX; /* applied where the terms are; a higher one were wrong for the spans before */
    if (lowest.node.i)
        value_is_splat(f->g, attention_operand(f->g, lowest), &bound, &(int64_t){0});
    if (bound > -FLT_MAX || !max.i || !is_reduce(f, max, at, "max", a->z, idx, axis))
        return false;
    steps_to_max(f, n->in[1]);
    return true;
}

/* v = 0 where p is NaN, else p: p, which both read, and which select it is; else v. */
static value_id cleared_from(struct finder *f, value_id v)
{
    const struct node *n = inner(f, v, OP_SELECT, 1), *nan, *negated;
    if (!n)
        return v;
    negated = inner(f, n->in[0], OP_NOT, 1);
    nan = inner(f, negated ? negated->in[0] : n->in[0], OP_ISNAN, 1);
    uint32_t k = negated ? 1 : 2;
    if (!nan || nan->in[0].i != n->in[k].i || !is_splat_of(f, n->in[3 - k], 0))
        return v;
    f->a->cleared = (struct attention_step){graph_value(f->g, v)->def, k};
    return n->in[k];
}

static bool fits_head(struct finder *f, expr_id dim)
{
    int64_t size;
    return (ex_is_const(f->x, dim, &size) && size >= 1 && size <= size_most(f->m)) ||
           differs(f, "the size of a head is not known, or large");
}

/* Is e the symbol, or 0 where a dim that broadcasts to it is 1 (which is dynamic)? */
static bool is_index(const struct finder *f, expr_id e, expr_id sym)
{
    while (ex_kind(f->x, e) == EX_SELECT && ex_is(f->x, ex_arg(f->x, e, 1), 0))
        e = ex_arg(f->x, e, 2);
    return e.i == sym.i;
}

/* A broadcast of dims that may be 1, though none is: masks of a size that is not proved equal to that of the scores. */
static bool is_idle_broadcast(const struct finder *f, const struct node *n)
{
    const struct type *to = value_type(f->g, n->out[0]);
    for (int32_t d = 0; n->op == OP_BROADCAST && d < to->rank; d++) {
        const struct type *from = value_type(f->g, n->in[0]);
        int32_t own = d - (to->rank - from->rank);
        if (!ex_is(f->x, to->dims[d], 1) && (own < 0 || ex_is(f->x, from->dims[own], 1)))
            return false;
    }
    return n->op == OP_BROADCAST;
}

/* Is the contraction's result at this point that of a row and a key, in batches that know of neither? */
static bool match_scores(struct finder *f, const struct node *n, const expr_id *idx)
{
    struct dot_dims q, k;
    if (value_type(f->g, n->out[0])->elem != ELEM_F32 || value_type(f->g, n->in[0])->elem != ELEM_F32 ||
        value_type(f->g, n->in[1])->elem != ELEM_F32)
        return differs(f, "the scores are not of f32");
    if (!attention_dims(f->g, n, 0, &q) || !attention_dims(f->g, n, 1, &k))
        return differs(f, "a product has several dimensions of keys");
    for (uint32_t i = 0; i < q.n_batch; i++)
        if (ex_uses(f->x, idx[i], f->row_sym) || ex_uses(f->x, idx[i], f->key_sym))
            return differs(f, "views mix the rows or keys of the scores with other dimensions");
    const expr_id *free = idx + q.n_batch;
    f->a->rows_of = !is_index(f, free[0], f->row);
    if (!is_index(f, free[f->a->rows_of], f->row) || !is_index(f, free[1 - f->a->rows_of], f->key))
        return differs(f, "views mix the rows or keys of the scores with other dimensions");
    return fits_head(f, value_type(f->g, n->in[0])->dims[q.contract]);
}

/* From v, wanted at idx, back to the scores: through maps and views that nobody else reads. */
static bool find_scores(struct finder *f, value_id v, const expr_id *idx, uint32_t depth)
{
    const struct node *n = value_node(f->g, v);
    uint32_t uses = v.i == f->a->z.i ? 2 : 1;
    expr_id at[RANK_MAX];
    if (!n || depth > MAX_STEPS || ++f->visits > MAX_VISITS || n->parent.i != f->region.i || value_is_const(f->g, v) ||
        graph_value(f->g, v)->n_uses != uses)
        return false;
    node_id id = graph_value(f->g, v)->def;
    if (n->op == OP_DOT) {
        if (!match_scores(f, n, idx))
            return false;
        f->a->scores = id;
        VEC_PUSH(f->m->arena, &f->a->nodes, id);
        return true;
    }
    if (!view_invertible(n->op) && !is_idle_broadcast(f, n) && op_shape(n->op) != SHAPE_MAP)
        return false;
    for (uint32_t k = 0; k < n->n_in; k++) {
        if (!find_scores(f, operand_at(f->g, n, k, idx, at), at, depth + 1))
            continue;
        VEC_PUSH(f->m->arena, &f->a->to_scores,
                 ((struct attention_step){id, k})); /* from the scores on: turned later */
        VEC_PUSH(f->m->arena, &f->a->nodes, id);
        return true;
    }
    return false;
}

/* Symbols for all points of p; the row's and the key's stand apart. */
static void point_of_p(struct finder *f, const struct type *t, const struct dot_dims *d, expr_id *idx)
{
    for (int32_t i = 0; i < t->rank; i++) {
        int64_t hi = ex_hi(f->x, t->dims[i]);
        const char *name = arena_printf(f->m->arena, "a%u.%d", f->a->values.i, i);
        sym_id s = sym_new(f->x, SYM_LOOP, name, 0, hi == INT64_MAX ? hi : hi > 0 ? hi - 1 : 0);
        idx[i] = ex_sym(f->x, s);
        if (i == d->free) {
            f->row_sym = s;
            f->row = idx[i];
        } else if (i == d->contract) {
            f->key_sym = s;
            f->key = idx[i];
        }
    }
}

static bool fixed_or_open(const struct finder *f, expr_id e, int64_t least)
{
    int64_t n;
    return !ex_is_const(f->x, e, &n) || n >= least;
}

static bool match(struct finder *f, const struct node *n)
{
    struct dot_dims p, v;
    expr_id idx[RANK_MAX] = {{0}};
    value_id from = n->in[0];
    const struct type *t = value_type(f->g, from), *vt = value_type(f->g, n->in[1]);
    if (t->elem != ELEM_F32 || vt->elem != ELEM_F32 || value_type(f->g, n->out[0])->elem != ELEM_F32)
        return differs(f, "the product with the values is not of f32");
    if (!attention_dims(f->g, n, 0, &p) || !attention_dims(f->g, n, 1, &v))
        return differs(f, "the product with the values has several dimensions of keys or columns");
    if (!fits_head(f, vt->dims[v.free]) || !fixed_or_open(f, t->dims[p.contract], 1))
        return false;
    if (!fixed_or_open(f, t->dims[p.free], f->m->asked.strict ? 1 : ROWS_LEAST))
        return differs(f, "fewer than 8 rows would leave most lanes idle");
    point_of_p(f, t, &p, idx);
    while (view_invertible(value_op(f->g, from))) {
        if (f->a->to_z.n >= MAX_STEPS || !inner(f, from, value_op(f->g, from), 1))
            return false;
        VEC_PUSH(f->m->arena, &f->a->to_z, ((struct attention_step){graph_value(f->g, from)->def, 0}));
        from = operand_at(f->g, value_node(f->g, from), 0, idx, idx);
    }
    from = cleared_from(f, from);
    int32_t axis = -1, rank = value_type(f->g, from)->rank;
    for (int32_t d = 0; d < rank; d++)
        if (idx[d].i == f->key.i)
            axis = d;
        else if (ex_uses(f->x, idx[d], f->key_sym))
            return false;
    return axis >= 0 && match_softmax(f, from, idx, axis) && find_scores(f, f->a->z, idx, 0);
}

/* Records the attention whose results the contraction makes, if there is one. */
static void record(struct module *m, node_id id)
{
    struct attention a = {.values = id};
    struct finder f = {.m = m, .g = m->g, .x = m->ctx->exprs, .a = &a, .region = graph_node(m->g, id)->parent};
    if (!match(&f, graph_node(m->g, id))) {
        const char *why = attention_obstacle(m, id, f.why);
        if (why)
            VEC_PUSH(m->arena, &m->known.attentions_missed, ((struct missed_attention){id, why}));
        return;
    }
    for (uint32_t j = 0; j < a.to_scores.n / 2; j++) {
        struct attention_step s = a.to_scores.data[j];
        a.to_scores.data[j] = a.to_scores.data[a.to_scores.n - 1 - j];
        a.to_scores.data[a.to_scores.n - 1 - j] = s;
    }
    attention_record(m, &a);
}

bool find_attention(struct module *m)
{
    for (uint32_t i = 1; i < m->g->nodes.n; i++)
        if (!graph_node(m->g, (node_id){i})->dead && graph_node(m->g, (node_id){i})->op == OP_DOT)
            record(m, (node_id){i});
    return true;
}
