/* The small prover that decides comparisons, minimum and maximum.
 *
 * It shows e >= 0 from e's interval, after replacing parts of e by bounds they cannot pass: a symbol by its bound,
 * y mod n by n - 1, n*(y div n) by y, a minimum by one side, a factor by its least value. It searches a few such steps
 * and gives up early: "not proved" only costs a run-time check.
 */
#include "ir/expr/internal.h"

enum { PROOF_DEPTH = 4, PROOF_FUEL = 48 };

struct search {
    struct exprs *x;
    int fuel;
};

static bool search_nonneg(struct search *, expr_id e, int depth);

/* e - coef*term + by*rest*bound is a lower bound of e: goes on from there. */
static bool search_replaced(struct search *s, expr_id e, expr_id term, int64_t coef, expr_id rest, expr_id bound,
                            int64_t by, int depth)
{
    struct poly p = poly_open(s->x);
    poly_add(&p, e, 1);
    poly_add(&p, term, -coef);
    poly_add_product(&p, rest, bound, by);
    expr_id lower = poly_close(&p);
    return lower.i && lower.i != e.i && search_nonneg(s, lower, depth - 1);
}

/* coef * rest * (y div n), where coef * rest is a multiple of n: n*(y div n) lies in (y - n, y]. */
static bool search_quotient(struct search *s, expr_id e, expr_id term, int64_t coef, expr_id rest, expr_id div,
                            int depth)
{
    struct exprs *x = s->x;
    expr_id y = ex_arg(x, div, 0), n = ex_arg(x, div, 1), left;
    struct view v;
    int64_t k;
    if (ex_is_const(x, n, &k)) {
        if (k < 1 || coef % k != 0)
            return false;
        left = ex_mulc(x, rest, coef / k);
    } else {
        view_of(x, n, &v);
        if (v.n != 1 || v.c != 0 || v.coef[0] < 1 || coef % v.coef[0] != 0 || ex_is_const(x, rest, NULL))
            return false;
        left = term_divide(x, rest, v.e[0]);
        if (!left.i || ex_lo(x, left) < 0 || ex_lo(x, n) < 1)
            return false;
        left = ex_mulc(x, left, coef / v.coef[0]);
    }
    return search_replaced(s, e, term, coef, left, coef < 0 ? y : ex_addc(x, ex_sub(x, y, n), 1), 1, depth);
}

/* rest * coef * (b div n) next to rest * -coef * (a div n), coef > 0: no less than rest * coef * ((b - a) div n). Sizes
 * only: kernels have too many quotients of loop variables. */
static bool search_quotients(struct search *s, expr_id e, expr_id term, int64_t coef, expr_id rest, expr_id div,
                             int depth)
{
    struct exprs *x = s->x;
    expr_id n = ex_arg(x, div, 1), atom, others;
    VIEW_OF(v, x, e);
    if (coef < 0 || ex_lo(x, n) < 1 || ex_uses_kind(x, e, SYM_LOOP))
        return false;
    for (uint32_t i = 0; i < v.n; i++) {
        if (v.coef[i] >= 0 || v.coef[i] == INT64_MIN)
            continue;
        for (uint32_t k = 0; s->fuel > 0 && term_atom(x, v.e[i], k, &atom, &others); k++) {
            if (ex_kind(x, atom) != EX_DIV || ex_arg(x, atom, 1).i != n.i || others.i != rest.i)
                continue;
            int64_t both = coef < -v.coef[i] ? coef : -v.coef[i];
            struct poly p = poly_open(x);
            poly_add(&p, e, 1);
            poly_add(&p, term, -both);
            poly_add(&p, v.e[i], both);
            poly_add_product(&p, rest, ex_div(x, ex_sub(x, ex_arg(x, div, 0), ex_arg(x, atom, 0)), n), both);
            expr_id lower = poly_close(&p);
            if (lower.i && lower.i != e.i && search_nonneg(s, lower, depth - 1))
                return true;
        }
    }
    return false;
}

/* Bounds of an atom that are expressions: upper ones for coef < 0, else lower ones; at most 3 of them. */
static uint32_t atom_bounds(struct exprs *x, expr_id atom, bool upper, bool in_product, expr_id out[3])
{
    uint32_t n = 0;
    enum expr_kind kind = ex_kind(x, atom);
    if (upper && kind == EX_SYM && sym_get(x, ex_as_sym(x, atom))->bound.i)
        out[n++] = sym_get(x, ex_as_sym(x, atom))->bound;
    if (upper && kind == EX_MOD && ex_lo(x, ex_arg(x, atom, 1)) >= 1) {
        out[n++] = ex_addc(x, ex_arg(x, atom, 1), -1);
        if (ex_lo(x, ex_arg(x, atom, 0)) >= 0)
            out[n++] = ex_arg(x, atom, 0);
    }
    if (kind == (upper ? EX_MIN : EX_MAX)) {
        out[n++] = ex_arg(x, atom, 0);
        out[n++] = ex_arg(x, atom, 1);
    }
    int64_t end = upper ? enode(x, atom)->hi : enode(x, atom)->lo;
    if (in_product && n < 3 && end != (upper ? INT64_MAX : INT64_MIN))
        out[n++] = ex_const(x, end);
    return n;
}

static bool search_term(struct search *s, expr_id e, expr_id term, int64_t coef, int depth)
{
    struct exprs *x = s->x;
    expr_id atom, rest, bounds[3];
    bool in_product = ex_kind(x, term) == EX_PROD;
    for (uint32_t k = 0; s->fuel > 0 && term_atom(x, term, k, &atom, &rest); k++) {
        if (ex_lo(x, rest) < 0)
            continue;
        if (ex_kind(x, atom) == EX_DIV && (search_quotients(s, e, term, coef, rest, atom, depth) ||
                                           search_quotient(s, e, term, coef, rest, atom, depth)))
            return true;
        uint32_t n = atom_bounds(x, atom, coef < 0, in_product, bounds);
        for (uint32_t i = 0; i < n; i++)
            if (search_replaced(s, e, term, coef, rest, bounds[i], coef, depth))
                return true;
    }
    return false;
}

static bool search_nonneg(struct search *s, expr_id e, int depth)
{
    struct exprs *x = s->x;
    if (ex_lo(x, e) >= 0)
        return true;
    if (depth == 0 || ex_hi(x, e) < 0 || s->fuel-- <= 0)
        return false;
    VIEW_OF(v, x, e);
    for (uint32_t i = 0; i < v.n && s->fuel > 0; i++)
        if (search_term(s, e, v.e[i], v.coef[i], depth))
            return true;
    return false;
}

bool expr_nonneg(struct exprs *x, expr_id e)
{
    if (ex_lo(x, e) >= 0)
        return true;
    if (ex_hi(x, e) < 0)
        return false;
    struct proof *known = &x->proofs[e.i % PROOF_SLOTS];
    if (known->e == e.i)
        return known->holds;
    uint32_t cut = x->cut;
    if (!simplify_begin(x))
        return false;
    x->speculative++;
    bool holds = search_nonneg(&(struct search){x, PROOF_FUEL}, e, PROOF_DEPTH);
    x->speculative--;
    simplify_end(x);
    if (holds || x->cut == cut)
        x->proofs[e.i % PROOF_SLOTS] = (struct proof){e.i, holds};
    return holds;
}
