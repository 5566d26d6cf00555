/* guards_code: conditions of the inputs' sizes under which the program holds, as Python expressions:
 *
 *     L['x'].size()[1] == 2*L['y'].size()[0]
 *
 * The exporter has chosen branches and shapes by them. What they say of one symbol becomes its range; the others become
 * checks of every run, from which legalize learns what it learns from any other. Two kinds are left out:
 * - Those by which it tells 0 and 1 from other sizes (E != 1, E >= 2, where E is no rest of a division): as with
 *   ranges, what was traced holds for 1, too. That is so of quotients (n//4 != 1), too, which PyTorch asks of small
 *   maps when it broadcasts; a branch of the network's own looks the same. A quotient that is 0 (n//4 != 0) is checked:
 *   its tensors are empty, which was not traced. Other inequalities need not hold where a size is 1, of which the
 *   exporter has not thought.
 * - Those that are not understood. A guard adds no meaning to the nodes, which are what is compiled: without it a run
 *   that PyTorch refuses gets the results of the branches that were traced. Where sizes are concerned, a warning says
 * so; what guards say of strides, types and constants are no properties that inputs of an artifact have.
 */
#include "frontend/pt2/pt2.h"

#include "ir/expr/facts.h"

enum { NESTING_MAX = 50, GUARDS_MAX = 100000, ROUNDS_MAX = 4 };

struct guard {
    struct pt2 *p;
    const char *at;
    uint32_t depth, negated;
};

static bool take(struct guard *g, const char *text)
{
    size_t n = strlen(text);
    while (*g->at == ' ')
        g->at++;
    if (strncmp(g->at, text, n) != 0)
        return false;
    g->at += n;
    return true;
}

static expr_id either(struct guard *);

/* Is there a symbol in e that may be 1? Then "some such symbol is", else "false". */
static expr_id some_one(struct exprs *ex, expr_id e)
{
    sym_id s = ex_as_sym(ex, e);
    expr_id any = s.i && ex_lo(ex, e) < 2 ? ex_lt(ex, e, ex_const(ex, 2)) : ex_const(ex, 0);
    for (uint32_t i = 0; i < ex_n_args(ex, e); i++)
        any = ex_or(ex, any, some_one(ex, ex_arg(ex, e, i)));
    return any;
}

/* Does e have one of that kind? The rest of a division is no size. */
static bool has(struct exprs *ex, expr_id e, enum expr_kind kind)
{
    bool found = ex_kind(ex, e) == kind;
    for (uint32_t i = 0; i < ex_n_args(ex, e) && !found; i++)
        found = has(ex, ex_arg(ex, e, i), kind);
    return found;
}

/* a OP c; {0}: another operator. True where it only tells 0 and 1 apart. */
static expr_id relation(struct guard *g, expr_id a, const char *op, expr_id c)
{
    struct exprs *ex = g->p->ctx->exprs;
    expr_id yes = ex_eq(ex, a, a);
    int64_t n;
    bool number = !g->negated && ex_is_const(ex, c, &n) && !has(ex, a, EX_MOD);
    expr_id one = g->negated ? ex_const(ex, 0) : ex_or(ex, some_one(ex, a), some_one(ex, c));
    if (strcmp(op, "==") == 0)
        return ex_eq(ex, a, c);
    if (strcmp(op, "!=") == 0 && number && n == 0 && has(ex, a, EX_DIV))
        return ex_lo(ex, a) < 0 ? ex_not(ex, ex_eq(ex, a, c)) : ex_lt(ex, c, a);
    if (strcmp(op, "!=") == 0)
        return number && (n == 0 || n == 1) ? yes : ex_or(ex, ex_not(ex, ex_eq(ex, a, c)), one);
    if (strcmp(op, ">=") == 0)
        return number && n == 2 ? yes : ex_le(ex, c, a);
    if (strcmp(op, ">") == 0)
        return number && n == 1 ? yes : ex_lt(ex, c, a);
    return strcmp(op, "<=") == 0 ? ex_le(ex, a, c) : ex_lt(ex, a, c);
}

/* Sizes one after the other: a < b <= c. {0}: it is none. */
static expr_id comparison(struct guard *g)
{
    static const char *const ops[] = {"==", "!=", ">=", "<=", ">", "<"};
    expr_id a, all = {0};
    if (!size_read(g->p, &g->at, &a))
        return all;
    for (;;) {
        const char *op = NULL;
        expr_id c;
        for (uint32_t i = 0; i < COUNT_OF(ops) && !op; i++)
            op = take(g, ops[i]) ? ops[i] : NULL;
        if (!op)
            return all;
        if (!size_read(g->p, &g->at, &c))
            return (expr_id){0};
        expr_id one = relation(g, a, op, c);
        all = all.i ? ex_and(g->p->ctx->exprs, all, one) : one;
        a = c;
    }
}

static expr_id term(struct guard *g)
{
    const char *begin = g->at;
    expr_id e = {0};
    if (++g->depth > NESTING_MAX)
        return e;
    if (take(g, "not ")) {
        g->negated++;
        e = term(g);
        g->negated--;
        e = e.i ? ex_not(g->p->ctx->exprs, e) : e;
    } else if (e = comparison(g), !e.i) {
        g->at = begin;
        e = take(g, "(") ? either(g) : e;
        e = e.i && take(g, ")") ? e : (expr_id){0};
    }
    g->depth--;
    return e;
}

static expr_id both(struct guard *g)
{
    expr_id e = term(g), next;
    while (e.i && take(g, "and ")) {
        next = term(g);
        e = next.i ? ex_and(g->p->ctx->exprs, e, next) : next;
    }
    return e;
}

static expr_id either(struct guard *g)
{
    expr_id e = both(g), next;
    while (e.i && take(g, "or ")) {
        next = both(g);
        e = next.i ? ex_or(g->p->ctx->exprs, e, next) : next;
    }
    return e;
}

/* The condition; {0}: it is not understood. */
static expr_id guard_read(struct pt2 *p, const char *text)
{
    struct guard g = {.p = p, .at = text};
    expr_id cond = either(&g);
    take(&g, "");
    return *g.at ? (expr_id){0} : cond;
}

/* Narrows symbols to what the condition says of each. True: some got narrower. */
static bool narrow(struct exprs *ex, expr_id cond)
{
    struct sym_range f;
    bool any = false;
    for (; ex_kind(ex, cond) == EX_AND; cond = ex_arg(ex, cond, 0))
        any |= narrow(ex, ex_arg(ex, cond, 1));
    if (!fact_of(ex, cond, &f))
        return any;
    const struct symbol *s = sym_get(ex, f.sym);
    int64_t lo = f.bounds.lo > s->lo ? f.bounds.lo : s->lo, hi = f.bounds.hi < s->hi ? f.bounds.hi : s->hi;
    if (lo >= hi) /* a number, or no size at all: each run checks it */
        return any;
    sym_narrow(ex, f.sym, lo, hi, f.bounds.divisor);
    return true;
}

static const struct json *guard_next(struct pt2 *p, const struct json *t, uint32_t *n)
{
    t = t ? t->next : json_first(json_get(p->program, "guards_code"));
    return (*n)++ < GUARDS_MAX ? t : NULL;
}

void guards_narrow(struct pt2 *p)
{
    struct exprs *ex = p->ctx->exprs;
    const struct exprs_mark mark = exprs_mark(ex);
    bool any = true;
    for (int round = 0; any && round < ROUNDS_MAX; round++) {
        uint32_t n = 0;
        any = false;
        for (const struct json *t = guard_next(p, NULL, &n); t; t = guard_next(p, t, &n)) {
            expr_id cond = json_as_text(t) ? guard_read(p, json_as_text(t)) : (expr_id){0};
            any |= cond.i && narrow(ex, cond);
        }
        exprs_rewind(ex, mark);
    }
}

void guards_import(struct pt2 *p)
{
    uint32_t n = 0;
    for (const struct json *t = guard_next(p, NULL, &n); t; t = guard_next(p, t, &n)) {
        const char *text = json_as_text(t);
        expr_id cond = text ? guard_read(p, text) : (expr_id){0};
        if (!cond.i) {
            if (text && strstr(text, ".size()"))
                warn_at(p->ctx, (src_id){0}, "guards", "runs do not check that %.300s, which is not understood", text);
            continue;
        }
        const char *says = arena_printf(&p->g->arena, "the program was exported for %.200s", text);
        const struct attr attrs[] = {attr_expr("cond", cond), attr_int("code", EVAL_SHAPE), attr_str("text", says)};
        graph_append(p->g, p->region, OP_ASSERT, (src_id){0}, NULL, 0, attrs, 3, NULL, 0);
    }
}
