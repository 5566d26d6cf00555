/* Sums and products in canonical form: constant + SUM coef * term, a term being an atom or a product of atoms.
 *
 * Sums are put together on a scratch stack (struct poly), sorted by id, merged, and then recombined
 * (ir/expr/recombine.c).
 */

#include "ir/expr/internal.h"

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

struct poly poly_open(struct exprs *x)
{
    return (struct poly){.x = x, .mark = x->scratch_top};
}

void poly_drop(struct poly *p)
{
    p->x->scratch_top = p->mark;
}

void poly_reserve(struct poly *p, uint32_t need)
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
    VIEW_OF(v, p->x, e);
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

ASCENDING(term_order, struct term, e.i);

void poly_merge(struct poly *p)
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

int64_t poly_coef(const struct poly *p, expr_id e)
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

expr_id term_multiply(struct exprs *x, expr_id a, expr_id b)
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
    return n == 1 ? atoms[0] : expr_intern(x, &(struct ekey){.kind = EX_PROD, .n = n, .arg = atoms});
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
        poly_add(p, term_multiply(x, a, b), coef);
        return;
    }
    for (uint32_t i = 0; i < va.n; i++) {
        for (uint32_t j = 0; j < vb.n; j++) {
            if (!mul_i64(va.coef[i], vb.coef[j], &r) || !mul_i64(r, coef, &r))
                poly_overflow(p);
            else
                poly_add(p, term_multiply(x, va.e[i], vb.e[j]), r);
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

expr_id poly_finish(struct poly *p)
{
    struct exprs *x = p->x;
    poly_merge(p);
    if (p->none)
        return (expr_id){0};
    if (p->n > EXPR_TERMS_MAX)
        return expr_too_large(x, "a size or index has more than %d terms", EXPR_TERMS_MAX);
    poly_recombine(p);
    expr_id result;
    if (p->n == 0) {
        result = ex_const(x, p->c);
    } else if (p->n == 1 && p->t[0].coef == 1 && p->c == 0) {
        result = p->t[0].e;
    } else {
        /* The terms move on as two arrays after the polynomial. */
        uint32_t n = p->n;
        struct poly room = poly_open(x);
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
    uint32_t cut = x->cut;
    if (!key.a.i || result_recall(x, &key))
        return key.result;
    struct poly p = poly_open(x);
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
    struct poly p = poly_open(x);
    poly_add(&p, a, c);
    return poly_close(&p);
}

expr_id ex_mul(struct exprs *x, expr_id a, expr_id b)
{
    return sum_make(x, (struct result){.op = EX_PROD, .a = a, .b = b});
}

expr_id ex_dot(struct exprs *x, expr_id first, const expr_id *a, const expr_id *b, uint32_t n)
{
    struct poly p = poly_open(x);
    poly_add(&p, first, 1);
    for (uint32_t i = 0; i < n; i++)
        poly_add_product(&p, a[i], b[i], 1);
    return poly_close(&p);
}
