/* Sums and products in canonical form: constant + SUM coef * term, a term being an atom or a product of atoms.
 *
 * Sums are put together on a scratch stack (struct poly), sorted by id, merged, and then recombined:
 *   n*(x div n) + (x mod n)             -> x
 *   n*((x div n) mod b) + (x mod n)     -> x mod (n*b)
 *   x - n*(x div n)                     -> x mod n
 *   k*(x div k), x a multiple of k      -> x
 * each also under a common factor. Every step lowers the number of divisions and remainders.
 */
#include <stdlib.h>
#include <string.h>

#include "ir/expr/internal.h"

enum { RECOMBINE_STEPS = 16 };

/* ---- views ------------------------------------------------------------------------------------------ */

void view_of(const struct exprs *x, expr_id e, struct view *v)
{
    const struct enode *node = enode(x, e);
    *v = (struct view){0};
    if (node->kind == EX_CONST) {
        v->c = node->c;
    } else if (node->kind == EX_SUM) {
        v->n = node->n;
        v->c = node->c;
        v->coef = node->coef;
        v->e = node->arg;
    } else {
        v->n = 1;
        v->one_e = e;
        v->one_coef = 1;
        v->coef = &v->one_coef;
        v->e = &v->one_e;
    }
}

/* ---- polynomials on the scratch stack ----------------------------------------------------------------- */

void poly_open(struct exprs *x, struct poly *p)
{
    *p = (struct poly){.x = x, .mark = x->scratch_top};
}

void poly_drop(struct poly *p)
{
    p->x->scratch_top = p->mark;
}

/* Moves p to the top of the stack with room for need terms; its old place is free again when p ends. */
static void poly_reserve(struct poly *p, uint32_t need)
{
    struct exprs *x = p->x;
    if (need <= p->cap)
        return;
    uint32_t cap = need < 8 ? 8 : need + need / 2;
    if (cap > EXPR_SCRATCH - x->scratch_top)
        context_unwind(x->ctx, FAIL_LIMIT, (src_id){0}, "a size or index has too many terms");
    struct term *t = x->scratch + x->scratch_top;
    x->scratch_top += cap;
    if (p->n)
        memcpy(t, p->t, p->n * sizeof *t);
    p->t = t;
    p->cap = cap;
}

/* An overflow of a coefficient or of the constant. */
static void poly_overflow(struct poly *p)
{
    p->none |= !expr_overflow(p->x).i;
}

void poly_add_const(struct poly *p, int64_t c)
{
    if (!add_i64(p->c, c, &p->c))
        poly_overflow(p);
}

static void poly_push(struct poly *p, expr_id e, int64_t coef)
{
    p->none |= !e.i;
    if (coef == 0 || p->none)
        return;
    poly_reserve(p, p->n + 1);
    p->t[p->n++] = (struct term){coef, e};
}

void poly_add(struct poly *p, expr_id e, int64_t coef)
{
    struct view v;
    view_of(p->x, e, &v);
    int64_t r;
    if (!mul_i64(v.c, coef, &r))
        poly_overflow(p);
    else
        poly_add_const(p, r);
    poly_reserve(p, p->n + v.n);
    for (uint32_t i = 0; i < v.n; i++) {
        if (!mul_i64(v.coef[i], coef, &r))
            poly_overflow(p);
        else
            poly_push(p, v.e[i], r);
    }
}

static int term_order(const void *a, const void *b)
{
    uint32_t i = ((const struct term *)a)->e.i, j = ((const struct term *)b)->e.i;
    return (i > j) - (i < j);
}

/* Sorts by id, adds up what belongs together, drops zeros. Every coefficient that is left can be negated: INT64_MIN is
 * an overflow. */
static void poly_merge(struct poly *p)
{
    bool sorted = true;
    for (uint32_t i = 1; i < p->n && sorted; i++)
        sorted = p->t[i - 1].e.i < p->t[i].e.i;
    if (!sorted)
        qsort(p->t, p->n, sizeof *p->t, term_order);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < p->n;) {
        struct term t = p->t[i++];
        for (; i < p->n && p->t[i].e.i == t.e.i; i++)
            if (!add_i64(t.coef, p->t[i].coef, &t.coef))
                poly_overflow(p);
        if (t.coef == INT64_MIN)
            poly_overflow(p);
        if (t.coef)
            p->t[kept++] = t;
    }
    p->n = kept;
}

static int64_t poly_coef(const struct poly *p, expr_id e)
{
    uint32_t lo = 0, hi = p->n;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (p->t[mid].e.i < e.i)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < p->n && p->t[lo].e.i == e.i ? p->t[lo].coef : 0;
}

/* ---- products ------------------------------------------------------------------------------------------ */

static bool is_bool(const struct enode *e)
{
    return e->lo >= 0 && e->hi <= 1;
}

/* The product of two terms, neither none (neither sum nor constant, unless a sum stands as an atom). */
static expr_id term_mul(struct exprs *x, expr_id a, expr_id b)
{
    expr_id atoms[64];
    const struct enode *ea = enode(x, a), *eb = enode(x, b);
    uint32_t na = ea->kind == EX_PROD ? ea->n : 1, nb = eb->kind == EX_PROD ? eb->n : 1;
    if (na + nb > COUNT_OF(atoms))
        return expr_too_large(x, "a size or index is a product of more than 64 factors");
    const expr_id *pa = ea->kind == EX_PROD ? ea->arg : &a, *pb = eb->kind == EX_PROD ? eb->arg : &b;
    uint32_t n = 0;
    for (uint32_t i = 0, j = 0; i < na || j < nb;) {
        expr_id next = j == nb || (i < na && pa[i].i <= pb[j].i) ? pa[i++] : pb[j++];
        if (n > 0 && atoms[n - 1].i == next.i && is_bool(enode(x, next)))
            continue;   /* 0 and 1 are their own squares */
        atoms[n++] = next;
    }
    if (n == 1)
        return atoms[0];
    return expr_intern(x, &(struct ekey){.kind = EX_PROD, .n = n, .arg = atoms});
}

void poly_add_product(struct poly *p, expr_id a, expr_id b, int64_t coef)
{
    struct exprs *x = p->x;
    struct view va, vb;
    p->none |= !a.i || !b.i;
    if (p->none)
        return;
    view_of(x, a, &va);
    view_of(x, b, &vb);
    int64_t r;
    if ((uint64_t)(va.n + (va.c != 0)) * (vb.n + (vb.c != 0)) > DISTRIBUTE_MAX && va.n && vb.n) {
        poly_add(p, term_mul(x, a, b), coef);
        return;
    }
    for (uint32_t i = 0; i < va.n; i++) {
        for (uint32_t j = 0; j < vb.n; j++) {
            if (!mul_i64(va.coef[i], vb.coef[j], &r) || !mul_i64(r, coef, &r))
                poly_overflow(p);
            else
                poly_add(p, term_mul(x, va.e[i], vb.e[j]), r);
        }
        if (!mul_i64(va.coef[i], vb.c, &r) || !mul_i64(r, coef, &r))
            poly_overflow(p);
        else
            poly_push(p, va.e[i], r);
    }
    if (!mul_i64(va.c, coef, &r))
        poly_overflow(p);
    else
        poly_add(p, b, r);
}

bool term_atom(struct exprs *x, expr_id term, uint32_t k, expr_id *atom, expr_id *rest)
{
    const struct enode *e = enode(x, term);
    if (e->kind != EX_PROD) {
        *atom = term;
        *rest = ex_const(x, 1);
        return k == 0;
    }
    if (k >= e->n)
        return false;
    expr_id others[64];
    uint32_t n = 0;
    for (uint32_t i = 0; i < e->n; i++)
        if (i != k)
            others[n++] = e->arg[i];
    *atom = e->arg[k];
    *rest = n == 1 ? others[0] : expr_intern(x, &(struct ekey){.kind = EX_PROD, .n = n, .arg = others});
    return true;
}

expr_id term_divide(struct exprs *x, expr_id term, expr_id by)
{
    const struct enode *t = enode(x, term), *b = enode(x, by);
    const expr_id *pt = t->kind == EX_PROD ? t->arg : &term, *pb = b->kind == EX_PROD ? b->arg : &by;
    uint32_t nt = t->kind == EX_PROD ? t->n : 1, nb = b->kind == EX_PROD ? b->n : 1;
    expr_id left[64];
    uint32_t n = 0, j = 0;
    for (uint32_t i = 0; i < nt; i++) {
        if (j < nb && pt[i].i == pb[j].i)
            j++;
        else
            left[n++] = pt[i];
    }
    if (j < nb)
        return (expr_id){0};
    if (n == 0)
        return ex_const(x, 1);
    return n == 1 ? left[0] : expr_intern(x, &(struct ekey){.kind = EX_PROD, .n = n, .arg = left});
}

/* ---- recombination ---------------------------------------------------------------------------------------- */

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

static expr_id mul3(struct exprs *x, expr_id a, expr_id b, expr_id c)
{
    return ex_mul(x, ex_mul(x, a, b), c);
}

/* f * rest * (x mod n), with its n*(x div n) in p as well: becomes f * rest * x. */
static bool join_quotient(struct poly *p, int64_t f, expr_id rest, expr_id mod)
{
    struct exprs *x = p->x;
    expr_id num = ex_arg(x, mod, 0), by = ex_arg(x, mod, 1);
    expr_id whole = mul3(x, rest, by, ex_div(x, num, by));
    struct view v;
    view_of(x, whole, &v);
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
    struct view v;
    view_of(x, by, &v);
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
        struct poly trial;
        poly_open(x, &trial);
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

expr_id poly_finish(struct poly *p)
{
    struct exprs *x = p->x;
    poly_merge(p);
    if (p->none)
        return (expr_id){0};
    if (p->n > EXPR_TERMS_MAX)
        return expr_too_large(x, "a size or index has more than %d terms", EXPR_TERMS_MAX);
    if (poly_divides(p) && simplify_begin(x)) {
        for (int step = 0; step < RECOMBINE_STEPS && recombine_once(p); step++)
            ;
        simplify_end(x);
    }
    expr_id result;
    if (p->n == 0) {
        result = ex_const(x, p->c);
    } else if (p->n == 1 && p->t[0].coef == 1 && p->c == 0) {
        result = p->t[0].e;
    } else {
        /* The terms move on as two arrays after the polynomial. */
        uint32_t n = p->n;
        struct poly room;
        poly_open(x, &room);
        poly_reserve(&room, n);
        int64_t *coef = (int64_t *)(void *)room.t;
        expr_id *arg = (expr_id *)(void *)(coef + n);
        for (uint32_t i = 0; i < n; i++) {
            coef[i] = p->t[i].coef;
            arg[i] = p->t[i].e;
        }
        result = expr_intern(x, &(struct ekey){.kind = EX_SUM, .c = p->c, .n = n, .arg = arg, .coef = coef});
        poly_drop(&room);
    }
    return result;
}

expr_id poly_close(struct poly *p)
{
    expr_id result = poly_finish(p);
    poly_drop(p);
    return result;
}

/* ---- the constructors -------------------------------------------------------------------------------------- */

/* a + coef * b + c (a + c for coef 0), or a * b. */
static expr_id sum_make(struct exprs *x, struct result key)
{
    struct poly p;
    uint32_t cut = x->cut;
    if (!key.a.i || result_recall(x, &key))
        return key.result;
    poly_open(x, &p);
    if (key.op == EX_PROD) {
        poly_add_product(&p, key.a, key.b, 1);
    } else {
        poly_add(&p, key.a, 1);
        if (key.coef)
            poly_add(&p, key.b, key.coef);
        poly_add_const(&p, key.c);
    }
    key.result = poly_close(&p);
    result_keep(x, &key, cut);
    return key.result;
}

static expr_id linear(struct exprs *x, expr_id a, expr_id b, int64_t coef, int64_t c)
{
    return sum_make(x, (struct result){.op = EX_SUM, .a = a, .b = b, .coef = coef, .c = c});
}

expr_id ex_add(struct exprs *x, expr_id a, expr_id b)
{
    return linear(x, a, b, 1, 0);
}

expr_id ex_sub(struct exprs *x, expr_id a, expr_id b)
{
    return linear(x, a, b, -1, 0);
}

expr_id ex_addc(struct exprs *x, expr_id a, int64_t c)
{
    return linear(x, a, (expr_id){0}, 0, c);
}

expr_id ex_mulc(struct exprs *x, expr_id a, int64_t c)
{
    struct poly p;
    poly_open(x, &p);
    poly_add(&p, a, c);
    return poly_close(&p);
}

expr_id ex_mul(struct exprs *x, expr_id a, expr_id b)
{
    return sum_make(x, (struct result){.op = EX_PROD, .a = a, .b = b});
}

expr_id ex_dot(struct exprs *x, expr_id first, const expr_id *a, const expr_id *b, uint32_t n)
{
    struct poly p;
    poly_open(x, &p);
    poly_add(&p, first, 1);
    for (uint32_t i = 0; i < n; i++)
        poly_add_product(&p, a[i], b[i], 1);
    return poly_close(&p);
}
