/* Recombination of sums: quotients and remainders of one division that a sum holds become one term again.
 *
 *   n*(x div n) + (x mod n)             -> x
 *   n*((x div n) mod b) + (x mod n)     -> x mod (n*b)
 *   x - n*(x div n)                     -> x mod n
 *   k*(x div k), x a multiple of k      -> x
 * each also under a common factor. Every step lowers the number of divisions and remainders.
 */
#include "ir/expr/internal.h"

enum { RECOMBINE_STEPS = 16 };

/* p contains f * e, term for term (the constant of e aside). */
static bool poly_contains(const struct poly *p, expr_id e, int64_t f)
{
    struct view v;
    if (!e.i)
        return false;
    view_of(p->x, e, &v);
    for (uint32_t i = 0; i < v.n; i++) {
        int64_t want;
        if (!mul_i64(v.coef[i], f, &want) || poly_coef(p, v.e[i]) != want)
            return false;
    }
    return v.n > 0;
}

/* f * rest * (x mod n), with its n*(x div n) in p as well: becomes f * rest * x. */
static bool join_quotient(struct poly *p, int64_t f, expr_id rest, expr_id mod)
{
    struct exprs *x = p->x;
    expr_id num = ex_arg(x, mod, 0), by = ex_arg(x, mod, 1);
    expr_id quotient = ex_div(x, num, by), whole = ex_mul(x, ex_mul(x, rest, by), quotient);
    VIEW_OF(v, x, whole);
    if (v.c != 0 || !poly_contains(p, whole, f))
        return false;
    poly_add(p, whole, -f);
    poly_add_product(p, rest, mod, -f);
    poly_add_product(p, rest, num, f);
    return true;
}

/* f * rest * (x mod n), with n*((x div n) mod b) in p as well: becomes f * rest * (x mod (n*b)). */
static bool join_remainders(struct poly *p, int64_t f, expr_id rest, expr_id mod)
{
    struct exprs *x = p->x;
    expr_id num = ex_arg(x, mod, 0), by = ex_arg(x, mod, 1);
    expr_id quotient = ex_div(x, num, by);
    expr_id factor = ex_mulc(x, ex_mul(x, rest, by), f);
    for (uint32_t i = 0; factor.i && i < p->n; i++) {
        if (!(enode(x, p->t[i].e)->flags & F_MOD))
            continue;
        expr_id other, others;
        for (uint32_t k = 0; term_atom(x, p->t[i].e, k, &other, &others); k++) {
            if (ex_kind(x, other) != EX_MOD || ex_arg(x, other, 0).i != quotient.i ||
                ex_mulc(x, others, p->t[i].coef).i != factor.i)
                continue;
            expr_id joined = ex_mod(x, num, ex_mul(x, by, ex_arg(x, other, 1)));
            poly_add_product(p, others, other, -p->t[i].coef);
            poly_add_product(p, rest, mod, -f);
            poly_add_product(p, rest, joined, f);
            return true;
        }
    }
    return false;
}

/* coef * rest * (x div n) where p also holds x: f*x - f*n*(x div n) becomes f * (x mod n). Monomial n only. */
static bool make_remainder(struct poly *p, int64_t coef, expr_id rest, expr_id div)
{
    struct exprs *x = p->x;
    expr_id num = ex_arg(x, div, 0), by = ex_arg(x, div, 1);
    VIEW_OF(v, x, by);
    int64_t unit = v.n ? v.coef[0] : v.c;
    if (v.n > 1 || (v.n == 1 && v.c != 0) || unit == 0 || unit == -1 || coef % unit != 0 || coef / unit == INT64_MIN)
        return false;
    int64_t f = -(coef / unit);
    expr_id left = v.n ? (ex_is(x, rest, 1) ? (expr_id){0} : term_divide(x, rest, v.e[0])) : rest;
    if (!left.i)
        return false;
    expr_id whole = ex_mul(x, left, num);
    if (!poly_contains(p, whole, f))
        return false;
    poly_add(p, whole, -f);
    poly_add_product(p, rest, div, -coef);
    poly_add_product(p, left, ex_mod(x, num, by), f);
    return true;
}

/* coef * rest * (x div k) with x a multiple of k: as much of k as coef holds cancels. */
static bool cancel_exact(struct poly *p, int64_t coef, expr_id rest, expr_id div)
{
    struct exprs *x = p->x;
    expr_id num = ex_arg(x, div, 0);
    int64_t k;
    if (!ex_is_const(x, ex_arg(x, div, 1), &k) || k <= 1 || ex_divisor(x, num) % k != 0)
        return false;
    int64_t g = gcd_i64(coef, k);
    if (g == 1)
        return false;
    poly_add_product(p, rest, div, -coef);
    poly_add_product(p, rest, ex_div(x, num, ex_const(x, k / g)), coef / g);
    return true;
}

/* One rewriting of p; false when nothing fits. */
static bool recombine_step(struct poly *p, uint32_t i)
{
    struct exprs *x = p->x;
    expr_id term = p->t[i].e, atom, rest;
    int64_t coef = p->t[i].coef;
    for (uint32_t k = 0; term_atom(x, term, k, &atom, &rest); k++) {
        enum expr_kind kind = ex_kind(x, atom);
        if (kind == EX_DIV && (cancel_exact(p, coef, rest, atom) || make_remainder(p, coef, rest, atom)))
            return true;
        if (kind == EX_MOD && (join_quotient(p, coef, rest, atom) || join_remainders(p, coef, rest, atom)))
            return true;
    }
    return false;
}

/* A step that overflows is not made: p stays as it is. */
static bool recombine_once(struct poly *p)
{
    struct exprs *x = p->x;
    for (uint32_t i = 0; i < p->n; i++) {
        if (!(enode(x, p->t[i].e)->flags & (F_DIV | F_MOD)))
            continue;
        struct poly trial = poly_open(x);
        poly_reserve(&trial, p->n + 8);
        memcpy(trial.t, p->t, p->n * sizeof *p->t);
        trial.n = p->n;
        trial.c = p->c;
        x->speculative++;
        bool changed = recombine_step(&trial, i);
        if (changed)
            poly_merge(&trial);
        x->speculative--;
        if (changed && !trial.none) {
            p->n = 0;
            poly_drop(&trial);
            /* trial lies above p on the stack: claim as much again, then move down. */
            struct term *from = trial.t;
            uint32_t n = trial.n;
            if (n <= p->cap) {
                memmove(p->t, from, n * sizeof *from);
            } else {
                p->t = from;
                p->cap = trial.cap;
                x->scratch_top = (uint32_t)(from - x->scratch) + trial.cap;
            }
            p->n = n;
            p->c = trial.c;
            return true;
        }
        poly_drop(&trial);
    }
    return false;
}

static bool poly_divides(const struct poly *p)
{
    for (uint32_t i = 0; i < p->n; i++)
        if (enode(p->x, p->t[i].e)->flags & (F_DIV | F_MOD))
            return true;
    return false;
}

void poly_recombine(struct poly *p)
{
    if (!poly_divides(p) || !simplify_begin(p->x))
        return;
    for (int step = 0; step < RECOMBINE_STEPS && recombine_once(p); step++)
        ;
    simplify_end(p->x);
}
