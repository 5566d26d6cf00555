/* Facts (ir/expr/facts.h): bounds of symbols that conditions imply, and expressions made anew with them. */
#include "ir/expr/facts.h"

#include "ir/expr/internal.h"

enum {
    STEPS_MAX = 4096, /* values of a symbol that are tried, from its least on */
    EXCLUDED_MAX = 64, /* ... by proof */
    NUMBERS_MAX = 8, /* of a condition, beyond which values are excluded by proof */
    NUMBER_MOST = 1 << 24 /* larger ones come of the limits of 32 bits, by which no size gets simpler */
};

/* ---- symbols that get narrower ----------------------------------------------------------------------------------- */

static void bounds_renew(struct exprs *x, uint32_t id)
{
    struct enode *e = &x->chunks.data[id / CHUNK][id % CHUNK];
    const struct ekey k = {
        .kind = (enum expr_kind)e->kind, .c = e->c, .n = e->n, .arg = e->arg, .coef = e->coef, .sym = e->sym};
    expr_bounds(x, &k, &e->lo, &e->hi, &e->div);
}

/* What ex_sym gives: the symbol's node, or the constant that it is. */
static void sym_renew(struct exprs *x, sym_id sym, expr_id node)
{
    const struct symbol *s = sym_get(x, sym);
    x->sym_exprs.data[sym.i] = s->lo == s->hi ? ex_const(x, s->lo) : node;
}

void sym_narrow(struct exprs *x, sym_id sym, int64_t lo, int64_t hi, int64_t divisor)
{
    struct symbol *s = sym_get(x, sym);
    s->lo = lo > s->lo ? lo : s->lo;
    if (s->least == s->filled)
        s->least = s->filled = s->lo;
    s->hi = hi < s->hi ? hi : s->hi;
    s->divisor = divisor;
    s->given = (struct sym_bounds){s->lo, s->hi, divisor};
    expr_id known = x->sym_exprs.data[sym.i];
    if (!ex_as_sym(x, known).i)
        return;
    bounds_renew(x, known.i);
    sym_renew(x, sym, known);
}

/* ---- starting over ----------------------------------------------------------------------------------------------- */

struct exprs_mark exprs_mark(const struct exprs *x)
{
    return (struct exprs_mark){x->n, x->syms.n};
}

static void symbols_rewind(struct exprs *x, uint32_t n)
{
    x->syms.n = x->sym_exprs.n = n;
    memset(x->names, 0, x->names_size * sizeof *x->names);
    memset(x->first_sym, 0, sizeof x->first_sym);
    memset(x->last_sym, 0, sizeof x->last_sym);
    for (uint32_t i = 1; i < n; i++) {
        struct symbol *s = x->syms.data[i];
        sym_id *last = &x->last_sym[s->kind];
        *(last->i ? &x->syms.data[last->i]->next : &x->first_sym[s->kind]) = (sym_id){i};
        *last = (sym_id){i};
        s->next = (sym_id){0};
        x->names[expr_name_slot(x, s->name)] = i;
        x->sym_exprs.data[i] = (expr_id){0};
    }
}

void exprs_rewind(struct exprs *x, struct exprs_mark mark)
{
    x->n = mark.nodes;
    symbols_rewind(x, mark.syms);
    memset(x->small, 0, sizeof x->small);
    memset(x->table, 0, x->table_size * sizeof *x->table);
    memset(x->proofs, 0, PROOF_SLOTS * sizeof *x->proofs);
    if (x->results)
        memset(x->results, 0, RESULTS * sizeof *x->results);
    for (uint32_t i = 1; i < mark.nodes; i++) { /* operands come before what is made of them */
        bounds_renew(x, i);
        expr_table_insert(x, i);
    }
    for (uint32_t i = 1; i < mark.nodes; i++)
        if (ex_as_sym(x, (expr_id){i}).i)
            sym_renew(x, ex_as_sym(x, (expr_id){i}), (expr_id){i});
}

/* ---- what a condition says --------------------------------------------------------------------------------------- */

/* No symbol but s is in e. */
static bool uses_only(const struct exprs *x, expr_id e, sym_id s)
{
    const struct enode *node = enode(x, e);
    if (node->kind == EX_SYM)
        return node->sym.i == s.i;
    for (uint32_t i = 0; i < node->n; i++)
        if (!uses_only(x, node->arg[i], s))
            return false;
    return true;
}

/* The least value from f->bounds.lo on for which cond holds. False: it holds for the first, or is not found. */
static bool least_value(struct exprs *x, expr_id cond, struct sym_range *f)
{
    int64_t holds = 0, v = f->bounds.lo;
    if (x->n_tried < x->syms.n) {
        x->n_tried = 2 * x->syms.n;
        x->tried = NEW_ARRAY(x->arena, int64_t, x->n_tried);
    }
    for (uint32_t k = 0; k < STEPS_MAX && v <= f->bounds.hi; k++, v++) {
        x->tried[f->sym.i] = v;
        if (ex_eval(x, cond, x->tried, &holds) && holds)
            break;
    }
    bool found = holds && v > f->bounds.lo;
    f->bounds.lo = found ? v : f->bounds.lo;
    return found;
}

bool fact_of(struct exprs *x, expr_id cond, struct sym_range *f)
{
    int64_t k;
    f->sym = ex_first_sym(x, cond);
    if (!f->sym.i || sym_get(x, f->sym)->kind != SYM_SHAPE || !uses_only(x, cond, f->sym))
        return false;
    const struct symbol *s = sym_get(x, f->sym);
    f->bounds.lo = s->lo;
    f->bounds.hi = s->hi;
    f->bounds.divisor = s->divisor;
    expr_id one = {0}, other = {0};
    if (ex_kind(x, cond) == EX_EQ) {
        bool first = ex_is_const(x, ex_arg(x, cond, 0), &k);
        one = ex_arg(x, cond, first);
        other = ex_arg(x, cond, !first);
    }
    if (one.i && ex_as_sym(x, one).i && ex_is_const(x, other, &k)) {
        f->bounds.lo = f->bounds.hi = k;
        return k >= s->lo && k <= s->hi;
    }
    if (ex_kind(x, cond) == EX_NOT) /* a remainder by 2, itself as good as a predicate */
        one = ex_arg(x, cond, 0), other = ex_const(x, 0);
    if (one.i && ex_kind(x, one) == EX_MOD && ex_is(x, other, 0) && ex_as_sym(x, ex_arg(x, one, 0)).i &&
        ex_is_const(x, ex_arg(x, one, 1), &k) && k > 1 && k < INT32_MAX && s->divisor < INT32_MAX) {
        f->bounds.divisor = s->divisor / gcd_i64(s->divisor, k) * k;
        return f->bounds.divisor != s->divisor;
    }
    return f->bounds.lo >= 0 && least_value(x, cond, f);
}

/* Is there no value within the bounds of `at` for which cond holds? */
static bool excludes(struct exprs *x, expr_id cond, sym_id s, expr_id at)
{
    return ex_truth(x, ex_subst(x, cond, &s, &at, 1)) == FALSE_;
}

/* The numbers in e within [lo, hi). */
static void numbers_collect(const struct exprs *x, expr_id e, int64_t lo, int64_t hi, int64_t *found, uint32_t *n)
{
    int64_t k;
    bool seen = !ex_is_const(x, e, &k) || k < lo || k >= hi || k > NUMBER_MOST || *n == NUMBERS_MAX;
    for (uint32_t i = 0; i < *n; i++)
        seen |= found[i] == k;
    if (!seen)
        found[(*n)++] = k;
    for (uint32_t i = 0; i < ex_n_args(x, e); i++)
        numbers_collect(x, ex_arg(x, e, i), lo, hi, found, n);
}

bool fact_excludes(struct exprs *x, expr_id cond, sym_id s, struct sym_range *f)
{
    const struct symbol *sym = sym_get(x, s);
    int64_t numbers[NUMBERS_MAX];
    uint32_t n = 0;
    *f = (struct sym_range){s, {sym->lo, sym->hi, sym->divisor}};
    if (sym->kind != SYM_SHAPE || sym->lo < 0 || !ex_uses(x, cond, s))
        return false;
    for (uint32_t k = 0; k < EXCLUDED_MAX && f->bounds.lo < sym->hi; k++, f->bounds.lo++)
        if (!excludes(x, cond, s, ex_const(x, f->bounds.lo)))
            break;
    numbers_collect(x, cond, f->bounds.lo + 1, sym->hi, numbers, &n);
    for (uint32_t k = 0; k < n; k++)
        if (numbers[k] < f->bounds.hi &&
            excludes(x, cond, s, ex_sym(x, sym_new(x, SYM_LOOP, "beyond", numbers[k] + 1, sym->hi))))
            f->bounds.hi = numbers[k];
    return f->bounds.lo > sym->lo || f->bounds.hi < sym->hi;
}

bool fact_apply(struct exprs *x, const struct sym_range *f)
{
    const struct symbol before = *sym_get(x, f->sym);
    if (f->bounds.lo > before.hi || f->bounds.hi < before.lo)
        return false; /* no size fits: every run fails, and says why */
    sym_narrow(x, f->sym, f->bounds.lo, f->bounds.hi, f->bounds.divisor);
    struct symbol *s = sym_get(x, f->sym);
    s->given = before.given;
    return s->lo != before.lo || s->hi != before.hi || s->divisor != before.divisor;
}

expr_id fact_missing(const struct exprs *x, expr_id e)
{
    enum expr_kind kind = ex_kind(x, e);
    bool divides = kind == EX_DIV || kind == EX_MOD;
    expr_id found = {0};
    if (kind == EX_SELECT || kind == EX_MAX || kind == EX_MIN || kind == EX_EQ ||
        (divides && !ex_is_const(x, ex_arg(x, e, 1), NULL)))
        return e;
    for (uint32_t i = 0; !found.i && i < ex_n_args(x, e); i++)
        found = fact_missing(x, ex_arg(x, e, i));
    return found;
}
