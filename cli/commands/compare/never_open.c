/* mcc prove: loops and branches that no size lets run, by residue classes of sizes that have no small bound.
 *
 * A kernel's arguments are quotients and remainders of sizes. Write a size as P q + r, where P is a multiple of all
 * divisors and 0 <= r < P. Then simplification computes remainders, such as the columns left over after full tiles,
 * from r alone. So a few hundred cases cover all sizes: each of the smallest values, then P q + r with symbolic q for
 * each r. Cases that violate a condition of the network are skipped, because the network refuses such sizes.
 */
#include "cli/commands/compare/never.h"
#include "ir/expr/expr.h"

enum { OPEN_MOST = 3, SYMBOLS_MOST = 16, CASES_MOST = 1 << 16, CONDITIONS_MOST = 64 };
/* Least values that are tried by themselves; the largest period; quotients end at 2^40; nodes of an expression. */
enum { EXACT = 64, PERIOD_MOST = 1 << 12, QUOTIENT_BITS = 40, NODES_MOST = 4096 };

struct open_size {
    sym_id symbol, of, quotient; /* of: what the symbol stands for in a version, the same in all others */
    int64_t period, first, end; /* values below first, then classes to end - 1 */
    int64_t *cases;                    /* that no condition of this size alone contradicts */
    uint32_t n, at;
};
/* Of one kernel. */
struct classes {
    struct exprs *x;
    struct open_size open[OPEN_MOST];
    uint32_t n;
    sym_id from[2 * OPEN_MOST];
    expr_id to[2 * OPEN_MOST]; /* the case at hand */
    expr_id *size; /* of the kernel's arguments, and of its parallel indices; {0}: none */
    uint32_t n_size;
    const expr_id *conditions; /* of sizes of inputs, where the kernel runs */
    uint32_t n_conditions;
};

static int64_t common_multiple(int64_t a, int64_t b)
{
    int64_t x = a, y = b;
    while (y) {
        const int64_t rest = x % y;
        x = y;
        y = rest;
    }
    return a / x * b;
}

/* The least multiple of the period that lets simplification compute e of P q + r: there q has a coefficient that is a
 * multiple of `factor`, which the constant divisors around e ask for. 0: none up to PERIOD_MOST. */
static int64_t period_of(const struct exprs *x, expr_id e, sym_id symbol, int64_t factor, int64_t period)
{
    int64_t c;
    const enum expr_kind kind = ex_kind(x, e);
    if (!ex_uses(x, e, symbol))
        return period;
    if (ex_as_sym(x, e).i == symbol.i)
        period = common_multiple(period, factor);
    if ((kind == EX_DIV || kind == EX_MOD) && ex_is_const(x, ex_arg(x, e, 1), &c))
        factor = c < 1 || c > PERIOD_MOST ? PERIOD_MOST + 1 : kind == EX_DIV ? factor * c : c;
    if (factor > PERIOD_MOST)
        return 0;
    for (uint32_t i = 0; i < ex_n_args(x, e) && period && period <= PERIOD_MOST; i++)
        period = period_of(x, ex_arg(x, e, i), symbol, factor, period);
    return period <= PERIOD_MOST ? period : 0;
}

static expr_id case_of(struct exprs *x, const struct open_size *o, int64_t k)
{
    return k < o->first ? ex_const(x, k) : ex_addc(x, ex_mulc(x, ex_sym(x, o->quotient), o->period), k - o->first);
}

static expr_id at_cases(struct exprs *x, expr_id e, const sym_id *from, const expr_id *to, uint32_t n)
{
    const expr_id by = ex_size(x, e) <= NODES_MOST ? ex_subst_try(x, e, from, to, n) : (expr_id){0};
    return by.i ? by : e;
}

/* Does the case contradict no condition, and has the network an output to compute? */
static bool allowed(const struct classes *c, const struct open_size *o, int64_t k)
{
    const expr_id to = case_of(c->x, o, k);
    const struct symbol *sym = sym_get(c->x, o->of);
    if (k < o->first && k >= sym->least && k < sym->filled)
        return false;
    for (uint32_t i = 0; i < c->n_conditions; i++)
        if (ex_uses(c->x, c->conditions[i], o->of) && ex_is(c->x, at_cases(c->x, c->conditions[i], &o->of, &to, 1), 0))
            return false;
    return true;
}

/* The symbol's cases for a period. Is one of them a class? */
static bool take_cases(const struct classes *c, struct arena *arena, struct open_size *o)
{
    const struct symbol *sym = sym_get(c->x, o->symbol);
    const int64_t least = sym->lo, hi = sym->hi, end = (int64_t)1 << QUOTIENT_BITS;
    int64_t exact = o->period;
    for (uint32_t i = 0; i < c->n_conditions; i++) /* an upper bound may lie inside of the first class */
        exact = ex_uses(c->x, c->conditions[i], o->of) ? 2 * o->period : exact;
    exact = exact > EXACT ? exact : EXACT;
    const int64_t q = (least + exact + o->period - 1) / o->period;
    const int64_t q_hi = hi / o->period < end ? hi / o->period : end;
    o->first = q <= q_hi ? q * o->period : hi + 1;
    o->end = o->first + (q <= q_hi ? o->period : 0);
    if (q <= q_hi)
        o->quotient = sym_new(c->x, SYM_LOOP, arena_printf(arena, "class.%u", sym_count(c->x)), q, q_hi);
    o->cases = NEW_ARRAY(arena, int64_t, o->end - least + 1);
    o->n = 0;
    for (int64_t k = least; k < o->end; k++)
        if (allowed(c, o, k))
            o->cases[o->n++] = k;
    return o->n && o->cases[o->n - 1] >= o->first;
}

/* False: it may be negative or is very large, or its divisors are large. */
static bool open_size(const struct classes *c, struct arena *arena, struct open_size *o)
{
    const struct symbol *sym = sym_get(c->x, o->symbol);
    if (sym->lo < 0 || sym->lo > (int64_t)1 << QUOTIENT_BITS)
        return false;
    o->of = sym->of.i ? sym->of : o->symbol;
    o->period = 1;
    for (uint32_t i = 0; i < c->n_conditions && o->period; i++)
        o->period = period_of(c->x, c->conditions[i], o->of, 1, o->period);
    if (o->period && !take_cases(c, arena, o))
        return true; /* the conditions leave no more sizes */
    for (uint32_t i = 0; i < c->n_size && o->period; i++)
        o->period = c->size[i].i ? period_of(c->x, c->size[i], o->symbol, 1, o->period) : o->period;
    if (o->period)
        take_cases(c, arena, o);
    return o->period;
}

static void set(struct classes *c)
{
    for (uint32_t i = 0; i < c->n; i++) {
        const struct open_size *o = &c->open[i];
        c->from[2 * i] = o->symbol;
        c->from[2 * i + 1] = o->of;
        c->to[2 * i] = c->to[2 * i + 1] = case_of(c->x, o, o->cases[o->at]);
    }
}

/* Takes sizes as long as there are few cases, those of long periods first, and begins with the first case. False: there
 * is none. */
static bool first_case(struct classes *c, struct context *ctx)
{
    const uint32_t symbols = sym_count(c->x);
    struct open_size all[SYMBOLS_MOST];
    uint32_t n = 0;
    for (sym_id y = {1}; y.i <= symbols && n < SYMBOLS_MOST; y.i++) {
        struct open_size o = {.symbol = y};
        bool used = false;
        for (uint32_t i = 0; i < c->n_size; i++)
            used |= c->size[i].i && ex_uses(c->x, c->size[i], y);
        if (!used || !open_size(c, &ctx->session, &o))
            continue;
        uint32_t at = n++;
        for (; at && all[at - 1].period < o.period; at--)
            all[at] = all[at - 1];
        all[at] = o;
    }
    uint64_t cases = 1;
    for (uint32_t i = 0; i < n && c->n < OPEN_MOST; i++)
        if (cases * all[i].n <= CASES_MOST) {
            cases *= all[i].n;
            c->open[c->n++] = all[i];
        }
    if (!cases)
        return false;
    set(c);
    return c->n;
}

/* False: that was the last. */
static bool next_case(struct classes *c)
{
    uint32_t i = 0;
    while (i < c->n && ++c->open[i].at == c->open[i].n)
        c->open[i++].at = 0;
    set(c);
    return i < c->n;
}

static struct loop_range range_now(const struct classes *c, expr_id e)
{
    if (!e.i)
        return (struct loop_range){INT64_MIN, INT64_MAX};
    e = at_cases(c->x, e, c->from, c->to, 2 * c->n);
    return (struct loop_range){ex_lo(c->x, e), ex_hi(c->x, e)};
}

static bool may_hold(const struct classes *c)
{
    for (uint32_t i = 0; i < c->n_conditions; i++)
        if (!range_now(c, c->conditions[i]).hi)
            return false;
    return true;
}

static void find_of(struct prove *p, const struct kernel *k, const struct lowered_kernel *l, struct classes *c)
{
    struct context *ctx = p->run.c.ctx;
    struct never_code code;
    const uint32_t n = k->args.n;
    bool any = false;
    if (!never_begin(p, k, l, &code))
        return;
    c->n_size = n + 1;
    c->size = NEW_ARRAY(&ctx->session, expr_id, n + 1);
    for (uint32_t i = 0; i <= n; i++)
        c->size[i] = i < n ? k->args.data[i].size : k->count;
    if (!first_case(c, ctx))
        return;
    do {
        if (range_now(c, c->size[n]).hi < 1 || !may_hold(c))
            continue;
        bool same = true; /* as in the case before: next to each other, quotients are often equal */
        for (uint32_t i = 0; i < n; i++) {
            const struct loop_range r = range_now(c, c->size[i]);
            same &= r.lo == code.args[i].lo && r.hi == code.args[i].hi;
            code.args[i] = r;
        }
        if (!(any && same) && !never_try(&code))
            return;
        any = true;
    } while (next_case(c));
    never_end(p, &code);
}

/* Conditions on sizes that the run checks if it runs the region: those of the region and of all around it. */
static uint32_t conditions_of(const struct graph *g, region_id region, expr_id *conditions)
{
    const struct exprs *x = g->ctx->exprs;
    uint32_t n = 0;
    for (region_id r = region; r.i; r = graph_get_region(g, r)->parent) {
        const struct region *in = graph_get_region(g, r);
        for (uint32_t i = 0; i < in->nodes.n && n < CONDITIONS_MOST; i++) {
            const struct node *a = graph_node(g, in->nodes.data[i]);
            const expr_id holds = !a->dead && a->op == OP_ASSERT ? node_expr(a, "cond") : (expr_id){0};
            if (holds.i && !ex_uses_kind(x, holds, SYM_VALUE) && !ex_uses_kind(x, holds, SYM_LOOP))
                conditions[n++] = holds;
        }
    }
    return n;
}

void never_find_open(struct prove *p)
{
    const struct graph *g = p->run.c.graph;
    expr_id conditions[CONDITIONS_MOST];
    uint32_t n = 0;
    region_id of = {0}; /* of which these are */
    for (uint32_t i = 0; i < prove_kernels(p); i++)
        for (const struct kernel *code = prove_code(p, i); code; code = code->version.of) {
            const struct lowered_kernel *l = verdict_lowered(p, code);
            const region_id region = prove_kernel(p, i)->region;
            if (!never_lacks(p, l))
                continue;
            n = region.i == of.i ? n : conditions_of(g, region, conditions);
            of = region;
            find_of(p, code, l, &(struct classes){.x = g->ctx->exprs, .conditions = conditions, .n_conditions = n});
        }
}
