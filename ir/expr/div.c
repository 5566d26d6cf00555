/* Floor division and modulus: a = q*b + r, with as much of a as possible moved into q.
 *
 * Terms that b divides go to the quotient, by coefficient or by divisibility, or, for a symbolic b, by long
 * division. What stays is decided by its interval; else b is split: with b = m*b', r = m*X + s and 0 <= s < m,
 * r div b is X div b' and r mod b is m*(X mod b') + s. Divisions of divisions and of remainders merge.
 * A divisor is at least 1 where it is symbolic; with one that may not be, nothing is simplified.
 */
#include "ir/expr/internal.h"

#include <math.h>

enum { LONG_DIVISION_STEPS = 32 };
static const int64_t HUGE_SIZE = INT64_C(1) << 61;
enum part { QUOTIENT, REMAINDER };

static expr_id div_mod(struct exprs *, enum part, expr_id a, expr_id b);

static expr_id make_raw(struct exprs *x, enum part part, expr_id a, expr_id b)
{
    return expr_intern2(x, part == QUOTIENT ? EX_DIV : EX_MOD, a, b);
}

/* ---- moving terms to the quotient ----------------------------------------------------------------------- */

/* term / k for a term that k divides: its factors share k among them. {0}: they do not show it. */
static expr_id term_exact(struct exprs *x, expr_id term, int64_t k)
{
    expr_id result = ex_const(x, 1), atom, rest;
    bool alone = ex_kind(x, term) != EX_PROD;
    for (uint32_t i = 0; term_atom(x, term, i, &atom, &rest); i++) {
        int64_t g = gcd_i64(ex_divisor(x, atom), k);
        if (g > 1) {
            k /= g;
            expr_id by = ex_const(x, g);
            atom = alone ? make_raw(x, QUOTIENT, atom, by) : div_mod(x, QUOTIENT, atom, by);
        }
        result = ex_mul(x, result, atom);
    }
    return k == 1 ? result : (expr_id){0};
}

/* The atoms whose exact quotient the rules below would not improve. */
static bool is_plain(const struct exprs *x, expr_id e)
{
    enum expr_kind kind = ex_kind(x, e);
    return kind != EX_DIV && kind != EX_MOD && kind != EX_PROD;
}

static void extract_term(struct exprs *x, struct poly *q, struct poly *r, expr_id e, int64_t coef, int64_t k,
                         bool alone)
{
    poly_add(q, e, coef / k);
    int64_t left = coef % k;
    if (left == 0)
        return;
    int64_t g = gcd_i64(left, k);
    bool plain = is_plain(x, e);
    if (ex_divisor(x, e) % (k / g) == 0 && (plain || ex_kind(x, e) == EX_PROD) && !(alone && plain && left == 1)) {
        expr_id part = term_exact(x, e, k / g);
        if (part.i) {
            poly_add(q, part, left / g);
            return;
        }
    }
    poly_add(r, e, left);
}

/* a = q*k + r for a constant k >= 2; coefficients in r are below k, its constant is in [0, k) unless k is huge. */
static void extract_const(struct exprs *x, expr_id a, int64_t k, expr_id *quotient, expr_id *remainder)
{
    VIEW_OF(v, x, a);
    struct poly q = poly_open(x);
    struct poly r = poly_open(x);
    for (uint32_t i = 0; i < v.n; i++)
        extract_term(x, &q, &r, v.e[i], v.coef[i], k, v.n == 1 && v.c == 0);
    bool moves = k < HUGE_SIZE; /* else a small negative constant would become a large one */
    poly_add_const(&q, moves ? floordiv_i64(v.c, k) : 0);
    poly_add_const(&r, moves ? floormod_i64(v.c, k) : v.c);
    *quotient = poly_finish(&q);
    *remainder = poly_finish(&r);
    poly_drop(&q);
}

/* The term of a sum that long division looks for: most factors, then the highest id. */
static void leading_term(const struct exprs *x, const struct view *v, expr_id *e, int64_t *coef)
{
    uint32_t best = 0, best_degree = 0;
    for (uint32_t i = 0; i < v->n; i++) {
        uint32_t degree = ex_kind(x, v->e[i]) == EX_PROD ? ex_n_args(x, v->e[i]) : 1;
        if (degree >= best_degree) {
            best = i;
            best_degree = degree;
        }
    }
    *e = v->e[best];
    *coef = v->coef[best];
}

static uint32_t term_count(const struct exprs *x, expr_id e)
{
    VIEW_OF(v, x, e);
    return v.n + (v.c != 0);
}

/* One step of long division: moves one term from *r to *q when *r gets shorter by it. A step that overflows is none. */
static bool extract_step(struct exprs *x, expr_id b, expr_id *q, expr_id *r)
{
    struct view vb, vr;
    expr_id lead;
    int64_t unit;
    view_of(x, b, &vb);
    leading_term(x, &vb, &lead, &unit);
    view_of(x, *r, &vr);
    for (uint32_t i = 0; i < vr.n; i++) {
        if (unit == -1 || vr.coef[i] % unit != 0)
            continue;
        expr_id factor = term_divide(x, vr.e[i], lead);
        if (!factor.i)
            continue;
        factor = ex_mulc(x, factor, vr.coef[i] / unit);
        expr_id shorter = ex_sub(x, *r, ex_mul(x, factor, b));
        if (!shorter.i || term_count(x, shorter) >= term_count(x, *r))
            continue;
        *q = ex_add(x, *q, factor);
        *r = shorter;
        return true;
    }
    return false;
}

static void extract(struct exprs *x, expr_id a, expr_id b, expr_id *q, expr_id *r)
{
    int64_t k;
    if (ex_is_const(x, b, &k)) {
        extract_const(x, a, k, q, r);
        return;
    }
    *q = ex_const(x, 0);
    *r = a;
    for (int step = 0; step < LONG_DIVISION_STEPS && extract_step(x, b, q, r); step++)
        ;
}

/* ---- deciding the rest ------------------------------------------------------------------------------------- */

/* r lies in [z*b, z*b + b): z in *z. */
static bool quotient_known(struct exprs *x, expr_id r, expr_id b, int64_t *z)
{
    int64_t k, lo = ex_lo(x, r), hi = ex_hi(x, r);
    if (ex_is_const(x, b, &k)) {
        if (lo == INT64_MIN || hi == INT64_MAX || floordiv_i64(lo, k) != floordiv_i64(hi, k))
            return false;
        *z = floordiv_i64(lo, k);
        return true;
    }
    if (expr_nonneg(x, r)) {
        *z = 0;
        return expr_lt(x, r, b);
    }
    *z = -1;
    return hi < 0 && expr_nonneg(x, ex_add(x, r, b));
}

/* r = m*X + s with m*X all terms that m divides; true when 0 <= s < m. For a constant m the constant is shared. */
static bool split_by(struct exprs *x, expr_id r, expr_id m, expr_id *big, expr_id *small)
{
    int64_t k = 0;
    bool is_const = ex_is_const(x, m, &k);
    VIEW_OF(v, x, r);
    struct poly p = poly_open(x);
    struct poly s = poly_open(x);
    for (uint32_t i = 0; i < v.n; i++) {
        expr_id factor = is_const ? (expr_id){0} : term_divide(x, v.e[i], m);
        if (is_const && v.coef[i] % k == 0)
            poly_add(&p, v.e[i], v.coef[i] / k);
        else if (factor.i)
            poly_add(&p, factor, v.coef[i]);
        else
            poly_add(&s, v.e[i], v.coef[i]);
    }
    poly_add_const(&p, is_const ? floordiv_i64(v.c, k) : 0);
    poly_add_const(&s, is_const ? floormod_i64(v.c, k) : v.c);
    *big = poly_finish(&p);
    *small = poly_finish(&s);
    poly_drop(&p);
    if (small->i == r.i)
        return false;
    if (is_const)
        return ex_lo(x, *small) >= 0 && ex_hi(x, *small) < k;
    return expr_nonneg(x, *small) && expr_lt(x, *small, m);
}

static expr_id split_result(struct exprs *x, enum part part, expr_id big, expr_id small, expr_id m, expr_id b)
{
    expr_id inner = div_mod(x, part, big, b);
    return part == QUOTIENT ? inner : ex_add(x, ex_mul(x, m, inner), small);
}

/* Factors of a constant divisor worth trying: what it shares with the coefficients. */
static expr_id split_const(struct exprs *x, enum part part, expr_id r, int64_t k)
{
    VIEW_OF(v, x, r);
    int64_t tried = 0;
    for (uint32_t i = 0; i < v.n && i < 16; i++) {
        int64_t g = gcd_i64(v.coef[i], k);
        if (g <= 1 || g == tried)
            continue;
        tried = g;
        expr_id m = ex_const(x, g), big, small;
        if (split_by(x, r, m, &big, &small))
            return split_result(x, part, big, small, m, ex_const(x, k / g));
    }
    return (expr_id){0};
}

/* The same for b = coef * atoms: its constant factor and each atom. */
static expr_id split_symbolic(struct exprs *x, enum part part, expr_id r, expr_id b)
{
    VIEW_OF(vb, x, b);
    if (vb.n != 1 || vb.c != 0 || vb.coef[0] < 1)
        return (expr_id){0};
    expr_id big, small, atom, rest;
    if (vb.coef[0] > 1) {
        expr_id m = ex_const(x, vb.coef[0]);
        if (split_by(x, r, m, &big, &small))
            return split_result(x, part, big, small, m, vb.e[0]);
    }
    for (uint32_t k = 0; term_atom(x, vb.e[0], k, &atom, &rest); k++) {
        if (ex_lo(x, atom) >= 1 && ex_lo(x, rest) >= 1 && split_by(x, r, atom, &big, &small))
            return split_result(x, part, big, small, atom, ex_mulc(x, rest, vb.coef[0]));
    }
    return (expr_id){0};
}

/* ---- divisions of divisions, remainders of remainders --------------------------------------------------------- */

/* May e, which is larger than the numbers that it comes from, be a part of a dividend? Those fit into 64 bits; compiled
 * code computes e modulo 2^64. */
static bool may_grow(const struct exprs *x, expr_id e)
{
    struct view v;
    if (!e.i || enode(x, e)->largest >= 0x1p62)
        return false;
    view_of(x, e, &v);
    for (uint32_t i = 0; i < v.n; i++)
        if ((ex_lo(x, v.e[i]) < -HUGE_SIZE || ex_hi(x, v.e[i]) > HUGE_SIZE) && fabs((double)v.coef[i]) >= 0x1p31)
            return false;
    return true;
}

/* (y div j + s) div b = (y + j*s) div (j*b); with a symbolic j or b only where s is a constant. */
static expr_id merge_quotients(struct exprs *x, expr_id r, expr_id b)
{
    VIEW_OF(v, x, r);
    for (uint32_t i = 0; i < v.n; i++) {
        if (v.coef[i] != 1 || ex_kind(x, v.e[i]) != EX_DIV)
            continue;
        expr_id y = ex_arg(x, v.e[i], 0), j = ex_arg(x, v.e[i], 1);
        bool both_const = ex_is_const(x, j, NULL) && ex_is_const(x, b, NULL);
        if (ex_lo(x, j) < 1 || (!both_const && v.n > 1))
            continue;
        expr_id s = ex_mul(x, j, ex_sub(x, r, v.e[i])), by = ex_mul(x, j, b);
        if (!may_grow(x, s) || !may_grow(x, by))
            continue;
        expr_id sum = ex_add(x, y, s);
        if (ex_is(x, s, 0) || may_grow(x, sum))
            return div_mod(x, QUOTIENT, sum, by);
    }
    return (expr_id){0};
}

/* The index of the one min or max among the terms; v->n: there is none, or several. */
static uint32_t one_extreme(struct exprs *x, const struct view *v)
{
    uint32_t at = v->n;
    for (uint32_t i = 0; i < v->n; i++) {
        if (ex_kind(x, v->e[i]) != EX_MIN && ex_kind(x, v->e[i]) != EX_MAX)
            continue;
        if (at != v->n)
            return v->n;
        at = i;
    }
    return at;
}

/* (max(p, q) + s) div b = (p + s) div b or (q + s) div b where one is known not to be less; a min likewise. Sizes
 * only, as in search_quotients (ir/expr/prove.c); one extreme only, as the sides of n of them are 2^n quotients. */
static expr_id quotient_of_extreme(struct exprs *x, expr_id r, expr_id b)
{
    VIEW_OF(v, x, r);
    uint32_t i = one_extreme(x, &v);
    if (i == v.n || ex_uses_kind(x, r, SYM_LOOP))
        return (expr_id){0};
    expr_id side[2];
    for (uint32_t k = 0; k < 2; k++) {
        expr_id change = ex_mulc(x, ex_sub(x, ex_arg(x, v.e[i], k), v.e[i]), v.coef[i]);
        side[k] = div_mod(x, QUOTIENT, ex_add(x, r, change), b);
    }
    bool larger = (ex_kind(x, v.e[i]) == EX_MAX) == (v.coef[i] > 0);
    for (uint32_t k = 0; k < 2; k++)
        if (side[0].i && side[1].i && ex_cmp_le(x, side[k], side[1 - k]) == TRUE_)
            return side[larger ? 1 - k : k];
    return (expr_id){0};
}

/* The constant or monomial m divides e whatever its symbols are: all coefficients or factors show it. */
static expr_id exact_quotient(struct exprs *x, expr_id e, expr_id m)
{
    expr_id big, small;
    int64_t k;
    if (e.i == m.i)
        return ex_const(x, 1);
    if (ex_is_const(x, m, &k) ? k < 1 : ex_lo(x, m) < 1)
        return (expr_id){0};
    VIEW_OF(v, x, m);
    if (v.n > 1 || (v.n == 1 && (v.c != 0 || v.coef[0] != 1)))
        return (expr_id){0};
    return split_by(x, e, m, &big, &small) && ex_is(x, small, 0) ? big : (expr_id){0};
}

/* (y mod m) div b = (y div b) mod (m / b) where b divides m. */
static expr_id quotient_of_remainder(struct exprs *x, expr_id r, expr_id b)
{
    if (ex_kind(x, r) != EX_MOD)
        return (expr_id){0};
    expr_id rest = exact_quotient(x, ex_arg(x, r, 1), b);
    if (!rest.i || ex_lo(x, rest) < 1)
        return (expr_id){0};
    return div_mod(x, REMAINDER, div_mod(x, QUOTIENT, ex_arg(x, r, 0), b), rest);
}

/* In a dividend of mod b, coef * (y mod m) is as good as coef * y where b divides coef * m. */
static expr_id open_remainders(struct exprs *x, expr_id r, expr_id b)
{
    VIEW_OF(v, x, r);
    for (uint32_t i = 0; i < v.n; i++) {
        if (ex_kind(x, v.e[i]) != EX_MOD)
            continue;
        expr_id y = ex_arg(x, v.e[i], 0), m = ex_arg(x, v.e[i], 1);
        if (!exact_quotient(x, ex_mulc(x, m, v.coef[i] < 0 ? -v.coef[i] : v.coef[i]), b).i)
            continue;
        if (may_grow(x, ex_mulc(x, y, v.coef[i])))
            return ex_add(x, r, ex_mulc(x, ex_sub(x, y, v.e[i]), v.coef[i]));
    }
    return (expr_id){0};
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* r div b or r mod b for an r from which nothing can be moved to the quotient. */
static expr_id reduce(struct exprs *x, enum part part, expr_id r, expr_id b)
{
    int64_t z, k;
    if (!r.i)
        return r;
    if (quotient_known(x, r, b, &z))
        return part == QUOTIENT ? ex_const(x, z) : ex_sub(x, r, ex_mulc(x, b, z));
    expr_id e = {0};
    if (part == REMAINDER && (e = open_remainders(x, r, b)).i)
        return div_mod(x, part, e, b);
    e = ex_is_const(x, b, &k) ? split_const(x, part, r, k) : split_symbolic(x, part, r, b);
    if (!e.i && part == QUOTIENT)
        e = merge_quotients(x, r, b);
    if (!e.i && part == QUOTIENT)
        e = quotient_of_remainder(x, r, b);
    if (!e.i && part == QUOTIENT)
        e = quotient_of_extreme(x, r, b);
    return e.i ? e : make_raw(x, part, r, b);
}

/* a div b or a mod b; b is a constant >= 1 or has a lower bound of 1. */
static expr_id div_mod(struct exprs *x, enum part part, expr_id a, expr_id b)
{
    int64_t k, n;
    if (!a.i || !b.i)
        return (expr_id){0};
    if (ex_is(x, b, 1))
        return part == QUOTIENT ? a : ex_const(x, 0);
    if (ex_is_const(x, a, &n) && ex_is_const(x, b, &k))
        return ex_const(x, part == QUOTIENT ? floordiv_i64(n, k) : floormod_i64(n, k));
    struct result key = {.op = part == QUOTIENT ? EX_DIV : EX_MOD, .a = a, .b = b};
    uint32_t cut = x->cut;
    if (result_recall(x, &key))
        return key.result;
    if (!simplify_begin(x))
        return make_raw(x, part, a, b);
    attempt_begin(x);
    expr_id q, r;
    extract(x, a, b, &q, &r);
    expr_id e = reduce(x, part, r, b);
    e = attempt_end(x, part == QUOTIENT ? ex_add(x, q, e) : e);
    simplify_end(x);
    key.result = e.i ? e : make_raw(x, part, a, b);
    result_keep(x, &key, cut);
    return key.result;
}

/* Divisors that are negative constants -k: floor(a / -k) = floor(-a / k), a mod -k = -((-a) mod k). An a that may be
 * INT64_MIN is not negated: floor(a / -k) = -(floor(a / k) + rest), a mod -k = a mod k - k * rest, where rest says
 * whether a mod k is not 0. */
static expr_id by_negative(struct exprs *x, enum part part, expr_id a, int64_t k)
{
    expr_id e, by = ex_const(x, k);
    if (!a.i || enode(x, a)->largest < 0x1p62) {
        e = div_mod(x, part, ex_mulc(x, a, -1), by);
        return part == QUOTIENT ? e : ex_mulc(x, e, -1);
    }
    expr_id left = div_mod(x, REMAINDER, a, by), rest = ex_not(x, ex_eq(x, left, ex_const(x, 0)));
    if (part == QUOTIENT)
        return ex_mulc(x, ex_add(x, div_mod(x, QUOTIENT, a, by), rest), -1);
    return ex_sub(x, left, ex_mulc(x, rest, k));
}

static expr_id by_divisor(struct exprs *x, enum part part, expr_id a, expr_id b)
{
    int64_t k;
    if (!ex_is_const(x, b, &k))
        return ex_lo(x, b) >= 1 ? div_mod(x, part, a, b) : make_raw(x, part, a, b);
    if (k > 0)
        return div_mod(x, part, a, b);
    if (k == 0 && x->speculative) /* in an arm that is not taken then */
        return (expr_id){0};
    if (k == 0)
        context_unwind(x->ctx, FAIL_MODEL, (src_id){0}, "a size or index is divided by zero");
    return k == INT64_MIN ? expr_overflow(x) : by_negative(x, part, a, -k);
}

expr_id ex_div(struct exprs *x, expr_id a, expr_id b)
{
    return by_divisor(x, QUOTIENT, a, b);
}

expr_id ex_mod(struct exprs *x, expr_id a, expr_id b)
{
    return by_divisor(x, REMAINDER, a, b);
}

/* All values of e are so far from 0 that its sum with another may not fit. */
static bool is_huge(const struct exprs *x, expr_id e)
{
    return ex_lo(x, e) >= HUGE_SIZE || ex_hi(x, e) <= -HUGE_SIZE;
}

expr_id ex_ceildiv(struct exprs *x, expr_id a, expr_id b)
{
    if (a.i && ex_lo(x, b) >= 1 &&
        (ex_lo(x, b) >= HUGE_SIZE || ex_lo(x, a) >= HUGE_SIZE || enode(x, a)->largest >= 0x1p62))
        return ex_add(x, ex_div(x, a, b), ex_not(x, ex_eq(x, ex_mod(x, a, b), ex_const(x, 0))));
    int64_t k;
    if (a.i && ex_is_const(x, b, &k) && k < -1 && k > INT64_MIN && enode(x, a)->largest >= 0x1p62) {
        expr_id by = ex_const(x, -k); /* (a - 1 - k) div -k = -((a - 2) div k), without a number that may not fit */
        return ex_sub(x, ex_lt(x, ex_mod(x, a, by), ex_const(x, 2)), ex_div(x, a, by));
    }
    if (a.i && ex_lo(x, b) < 1 && (is_huge(x, a) || is_huge(x, b)))
        return ex_addc(x, ex_div(x, ex_addc(x, a, -1), b), 1);
    return ex_div(x, ex_addc(x, ex_add(x, a, b), -1), b);
}
