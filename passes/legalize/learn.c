/* Facts that a legal graph has shown: what every run of it checks, so that the graph may be made anew on that ground.
 *
 * An assert of the top region about one shape symbol, or an integer division there, fails every run in which it does
 * not hold. So it becomes bounds of the symbol: the run checks those first, when it binds the inputs' shapes, and the
 * assert goes. Sizes that are equal within these bounds then are one expression: (b*s) / b is s where b is not 0.
 *
 * Sizes for which every output is empty, mostly 0, are a case of their own (symbol.filled): nothing runs, so nothing
 * has to hold for them but the outputs' dims. empties_hold compares these with those of the graph made for all sizes.
 */
#include "passes/legalize/driver.h"

#include "ir/expr/facts.h"

enum { SYMBOLS_MOST = 4, CONDITION_SIZE = 200 }; /* of a condition of several symbols */

struct learner {
    struct graph *g;
    struct exprs *x;
    struct learned *to;
    const struct node *node; /* that checks, */
    int64_t code; /* and what it says of a run that does not get through */
    const char *text;
    bool empties; /* some symbol has a case of its own already */
    bool narrower;
};

/* Is the symbol a dim of an input, where the plan finds it? One with room keeps the bounds that the user gave. */
static bool is_bound(const struct learner *l, sym_id s)
{
    if (sym_get(l->x, s)->room)
        return false;
    for (uint32_t i = 0; i < l->g->inputs.n; i++) {
        const struct type *t = value_type(l->g, l->g->inputs.data[i].value);
        for (int32_t d = 0; t->kind == TYPE_TENSOR && d < t->rank; d++)
            if (ex_as_sym(l->x, t->dims[d]).i == s.i)
                return true;
    }
    return false;
}

expr_id size_replaced(struct exprs *x, const struct learned *l, sym_id s)
{
    expr_id e = {0};
    for (uint32_t i = 0; s.i && i < l->checks.n; i++) {
        const struct size_check *c = &l->checks.data[i];
        if (c->sym.i != s.i || !size_check_replaces(c))
            continue;
        e = c->same.i ? ex_sym(x, c->same) : ex_const(x, c->bounds.lo);
        s = c->same;
        i = UINT32_MAX;   /* whose place may be taken as well */
    }
    return e;
}

/* Assumes the range of the symbol from the next round on. False: it is already known, or impossible. */
static bool grant(struct learner *l, const struct sym_range *f)
{
    const struct sym_bounds b = f->bounds;
    if (size_replaced(l->x, l->to, f->sym).i)
        return false;
    if (b.lo == b.hi)   /* the number stands in the symbol's place, also where all outputs are empty */
        return !l->empties && b.lo >= 0;
    return fact_apply(l->x, f);
}

static void check_add(struct learner *l, struct size_check c)
{
    c.unless_empty = l->empties;
    c.code = l->code;
    c.src = l->node->src;
    c.text = arena_strdup(l->to->arena, l->text);
    VEC_PUSH(l->to->arena, &l->to->checks, c);
    l->narrower = true;
}

/* Two symbols are equal: the older one stands for both. */
static bool learn_same(struct learner *l, expr_id cond)
{
    sym_id a, b;
    if (ex_kind(l->x, cond) != EX_EQ || !(a = ex_as_sym(l->x, ex_arg(l->x, cond, 0))).i ||
        !(b = ex_as_sym(l->x, ex_arg(l->x, cond, 1))).i)
        return false;
    sym_id older = a.i < b.i ? a : b, other = a.i < b.i ? b : a;
    if (!l->empties && is_bound(l, older) && is_bound(l, other) && !size_replaced(l->x, l->to, other).i &&
        !size_replaced(l->x, l->to, older).i)
        check_add(l, (struct size_check){.sym = other, .same = older});
    return true;
}

static void learn(struct learner *, expr_id cond);

/* e, a size, is not 0, nor is any factor of it. */
static void learn_positive(struct learner *l, expr_id e)
{
    expr_id zero = ex_const(l->x, 0);
    if (ex_kind(l->x, e) == EX_SUM && ex_n_args(l->x, e) == 1 && ex_addend(l->x, e) == 0)
        e = ex_arg(l->x, e, 0);
    for (uint32_t i = 0; ex_kind(l->x, e) == EX_PROD && i < ex_n_args(l->x, e); i++)
        learn(l, ex_not(l->x, ex_eq(l->x, ex_arg(l->x, e, i), zero)));
    if (ex_kind(l->x, e) != EX_PROD)
        learn(l, ex_not(l->x, ex_eq(l->x, e, zero)));
}

static void learn_range(struct learner *l, const struct sym_range *f)
{
    if (is_bound(l, f->sym) && grant(l, f))
        check_add(l, (struct size_check){.sym = f->sym, .bounds = f->bounds});
}

/* The shape symbols of e, each once, as far as there is place. */
static void symbols_collect(const struct exprs *x, expr_id e, sym_id *found, uint32_t *n)
{
    sym_id s = ex_as_sym(x, e);
    bool seen = !s.i || *n == SYMBOLS_MOST;
    for (uint32_t i = 0; i < *n; i++)
        seen |= found[i].i == s.i;
    if (!seen)
        found[(*n)++] = s;
    for (uint32_t i = 0; i < ex_n_args(x, e) && *n < SYMBOLS_MOST; i++)
        symbols_collect(x, ex_arg(x, e, i), found, n);
}

static void learn_excluded(struct learner *l, expr_id cond)
{
    sym_id found[SYMBOLS_MOST];
    uint32_t n = 0;
    struct sym_range f;
    if (ex_size(l->x, cond) <= CONDITION_SIZE)
        symbols_collect(l->x, cond, found, &n);
    for (uint32_t i = 0; i < n; i++)
        if (is_bound(l, found[i]) && fact_excludes(l->x, cond, found[i], &f))
            learn_range(l, &f);
}

static void learn(struct learner *l, expr_id cond)
{
    struct sym_range f;
    for (; ex_kind(l->x, cond) == EX_AND; cond = ex_arg(l->x, cond, 0))
        learn(l, ex_arg(l->x, cond, 1));
    if (ex_kind(l->x, cond) == EX_LT && ex_is(l->x, ex_arg(l->x, cond, 0), 0) &&
        ex_kind(l->x, ex_arg(l->x, cond, 1)) == EX_PROD)
        learn_positive(l, ex_arg(l->x, cond, 1));
    else if (fact_of(l->x, cond, &f))
        learn_range(l, &f);
    else if (!learn_same(l, cond))
        learn_excluded(l, cond);
}

static bool is_division(const struct graph *g, const struct node *n)
{
    return (n->op == OP_DIV || n->op == OP_MOD || n->op == OP_REM) && elem_class(value_type(g, n->in[0])->elem) == 'I';
}

bool facts_learn(struct graph *g, struct learned *to)
{
    struct learner l = {.g = g, .x = g->ctx->exprs, .to = to};
    const struct region *top = graph_get_region(g, (region_id){1});
    for (sym_id s = sym_next(l.x, SYM_SHAPE, (sym_id){0}); s.i; s = sym_next(l.x, SYM_SHAPE, s))
        l.empties |= sym_get(l.x, s)->least < sym_get(l.x, s)->filled;
    for (uint32_t i = 0; i < top->nodes.n; i++) {
        const struct node *n = l.node = graph_node(g, top->nodes.data[i]);
        if (n->op == OP_ASSERT) {
            l.code = node_int(n, "code", EVAL_SHAPE);
            l.text = node_str(n, "text", "");
            learn(&l, node_expr(n, "cond"));
        }
        if (!is_division(g, n))
            continue;
        l.code = EVAL_VALUE;
        l.text = "integer division by zero";
        const struct value *by = graph_value(g, n->in[1]);
        for (uint32_t k = 0; k < by->n_elems; k++)
            if (by->elems[k].i)
                learn_positive(&l, by->elems[k]);
    }
    return l.narrower;
}

/* ---- sizes that leave nothing to compute ------------------------------------------------------------------------- */

enum { EMPTY_MOST = 256 }; /* values of a symbol that are looked at */

/* Marks the symbols of e. */
static void mark_symbols(const struct exprs *x, expr_id e, bool *worth)
{
    sym_id s = ex_as_sym(x, e);
    if (s.i)
        worth[s.i] = true;
    for (uint32_t i = 0; i < ex_n_args(x, e); i++)
        mark_symbols(x, ex_arg(x, e, i), worth);
}

/* By symbol: is there a size that would be simpler, or a check that would go, if it were larger? */
static bool *worth_marks(const struct graph *g)
{
    const struct exprs *x = g->ctx->exprs;
    bool *worth = NEW_ARRAY(&g->ctx->session, bool, sym_count(x) + 1);
    for (uint32_t i = 1; i < g->values.n; i++) {
        const struct type *t = value_type(g, (value_id){i});
        for (int32_t d = 0; t->kind == TYPE_TENSOR && d < t->rank; d++)
            if (fact_missing(x, t->dims[d]).i)
                mark_symbols(x, t->dims[d], worth);
    }
    for (uint32_t i = 1; i < g->nodes.n; i++) {
        const struct node *n = &g->nodes.data[i];
        expr_id cond = n->op == OP_ASSERT && !n->dead ? node_expr(n, "cond") : (expr_id){0};
        if (fact_missing(x, cond).i)
            mark_symbols(x, cond, worth);
    }
    return worth;
}

static bool is_empty_at(struct graph *g, sym_id s, int64_t value)
{
    struct exprs *x = g->ctx->exprs;
    expr_id to = ex_const(x, value);
    for (uint32_t i = 0; i < g->outputs.n; i++) {
        const struct type *t = value_type(g, g->outputs.data[i].value);
        bool empty = false;
        for (int32_t d = 0; !empty && d < t->rank; d++)
            empty = ex_uses(x, t->dims[d], s) && ex_is(x, ex_subst(x, t->dims[d], &s, &to, 1), 0);
        if (!empty)
            return false;
    }
    return g->outputs.n > 0;
}

/* Does the plan know the dims of all outputs? */
static bool outputs_planned(const struct graph *g)
{
    for (uint32_t i = 0; i < g->outputs.n; i++) {
        const struct type *t = value_type(g, g->outputs.data[i].value);
        if (t->kind != TYPE_TENSOR || t->rank < 0)
            return false;
        for (int32_t d = 0; d < t->rank; d++)
            if (!t->dims[d].i || ex_uses_kind(g->ctx->exprs, t->dims[d], SYM_VALUE) ||
                ex_uses_kind(g->ctx->exprs, t->dims[d], SYM_LOOP))
                return false;
    }
    return true;
}

/* What a dim is where one of its symbols is below its bounds, from the symbol's least value on; -1: not a number. */
struct dim_below {
    sym_id sym;
    const int64_t *values;
};

/* A dim of an output: its text, and one row for each symbol in it that has values below its bounds. */
struct output_dim {
    const char *text;
    const struct dim_below *below;
    uint32_t n;
};

struct empties {
    const struct output_dim *dims;
    uint32_t n;
};

static struct dim_below dim_below(struct graph *g, expr_id e, sym_id s)
{
    struct exprs *x = g->ctx->exprs;
    const struct symbol *sym = sym_get(x, s);
    int64_t *below = NEW_ARRAY(&g->ctx->session, int64_t, (size_t)(sym->filled - sym->least));
    for (int64_t v = sym->least; v < sym->filled; v++) {
        expr_id to = ex_const(x, v);
        if (!ex_is_const(x, ex_subst(x, e, &s, &to, 1), &below[v - sym->least]))
            below[v - sym->least] = -1;
    }
    return (struct dim_below){s, below};
}

static struct output_dim dim_record(struct graph *g, expr_id e)
{
    struct exprs *x = g->ctx->exprs;
    struct strbuf text = strbuf_of(&g->ctx->session);
    ex_print(x, e, &text);
    VEC(struct dim_below) rows = {0};
    for (sym_id s = sym_next(x, SYM_SHAPE, (sym_id){0}); s.i; s = sym_next(x, SYM_SHAPE, s))
        if (sym_get(x, s)->least < sym_get(x, s)->filled && ex_uses(x, e, s))
            VEC_PUSH(&g->ctx->session, &rows, dim_below(g, e, s));
    return (struct output_dim){text.data, rows.data, rows.n};
}

static struct empties dims_record(struct graph *g)
{
    VEC(struct output_dim) dims = {0};
    for (uint32_t i = 0; i < g->outputs.n; i++) {
        const struct type *t = value_type(g, g->outputs.data[i].value);
        for (int32_t d = 0; d < t->rank; d++)
            VEC_PUSH(&g->ctx->session, &dims, dim_record(g, t->dims[d]));
    }
    return (struct empties){dims.data, dims.n};
}

struct empties *empties_find(struct graph *g)
{
    struct exprs *x = g->ctx->exprs;
    const struct learner l = {.g = g, .x = x};
    bool found = false;
    if (!outputs_planned(g))
        return NULL;
    const bool *worth = worth_marks(g);
    for (sym_id s = sym_next(x, SYM_SHAPE, (sym_id){0}); s.i; s = sym_next(x, SYM_SHAPE, s)) {
        struct symbol *sym = sym_get(x, s);
        int64_t v = sym->lo, end = sym->hi - v > EMPTY_MOST ? v + EMPTY_MOST : sym->hi;
        if (v < 0 || !worth[s.i] || !is_bound(&l, s))
            continue;
        while (v < end && is_empty_at(g, s, v))
            v++;
        found |= v > sym->lo;
        sym->lo = sym->filled = v;
    }
    struct empties *e = found ? NEW(&g->ctx->session, struct empties) : NULL;
    if (e)
        *e = dims_record(g);
    return e;
}

/* Has the symbol got narrower since, in a way that runs without elements do not keep to? */
static bool is_narrower(const struct learned *l, sym_id s)
{
    for (uint32_t i = 0; i < l->checks.n; i++)
        if (l->checks.data[i].sym.i == s.i && l->checks.data[i].unless_empty)
            return true;
    return false;
}

/* Do both say the same number wherever a symbol of theirs is below its bounds? */
static bool below_same(struct graph *g, const struct output_dim *a, const struct output_dim *b, const struct learned *l)
{
    bool same = a->n > 0 && a->n == b->n;
    for (uint32_t i = 0; same && i < a->n; i++) {
        const struct dim_below *p = &a->below[i], *q = &b->below[i];
        const struct symbol *s = sym_get(g->ctx->exprs, p->sym);
        same = p->sym.i == q->sym.i && !is_narrower(l, p->sym);
        for (int64_t k = 0; same && k < s->filled - s->least; k++)
            same = p->values[k] >= 0 && p->values[k] == q->values[k];
    }
    return same;
}

bool empties_hold(struct graph *g, const struct empties *e, const struct learned *l)
{
    const struct empties now = dims_record(g);
    bool same = now.n == e->n;
    for (uint32_t i = 0; same && i < now.n; i++)
        same = strcmp(e->dims[i].text, now.dims[i].text) == 0 || below_same(g, &e->dims[i], &now.dims[i], l);
    return same;
}
