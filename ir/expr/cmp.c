/* Comparison, minimum, maximum and logic, by what prove.c shows.
 *
 * Canonical: l < r and l == r have no common factor, no term on the wrong side and the constant on one side;
 * min and max are left-leaning chains in the order of ids, without common addend or factor.
 */

#include "ir/expr/internal.h"

enum { LIST_MAX = 64, PRUNE_MAX = 8 };

/* Constants that go from one side of a comparison to the other, or out of a minimum, are smaller: a sum with a larger
 * one may leave the 64 bits that both sides fit into. */
#define MOVED_MOST (INT64_C(1) << 61)
static bool may_move(int64_t c)
{
    return c > -MOVED_MOST && c < MOVED_MOST;
}

/* b - a - less >= 0; an overflow on the way proves nothing. */
static bool ordered(struct exprs *x, expr_id a, expr_id b, int64_t less)
{
    attempt_begin(x);
    expr_id gap = attempt_end(x, ex_addc(x, ex_sub(x, b, a), -less));
    return gap.i && expr_nonneg(x, gap);
}

bool ex_apart(struct exprs *x, expr_id a, expr_id b, int64_t *by)
{
    attempt_begin(x);
    expr_id gap = attempt_end(x, ex_sub(x, a, b));
    return ex_is_const(x, gap, by);
}

static bool expr_le(struct exprs *x, expr_id a, expr_id b)
{
    return a.i && b.i && (a.i == b.i || ex_hi(x, a) <= ex_lo(x, b) || ordered(x, a, b, 0));
}

bool expr_lt(struct exprs *x, expr_id a, expr_id b)
{
    return ex_hi(x, a) < ex_lo(x, b) || (a.i != b.i && ordered(x, a, b, 1));
}

/* ---- comparisons ------------------------------------------------------------------------------------------ */

static int64_t content(const struct view *v)
{
    int64_t g = 0;
    for (uint32_t i = 0; i < v->n; i++)
        g = gcd_i64(g, v->coef[i]);
    return g;
}

/* The terms of e / g with positive coefficients, and those with negative ones, negated. */
static void sides(struct exprs *x, expr_id e, int64_t g, expr_id *plus, expr_id *minus)
{
    VIEW_OF(v, x, e);
    struct poly p = poly_open(x);
    struct poly m = poly_open(x);
    for (uint32_t i = 0; i < v.n; i++) {
        int64_t coef = v.coef[i] / g;
        if (coef > 0)
            poly_add(&p, v.e[i], coef);
        else
            poly_add(&m, v.e[i], -coef);
    }
    *plus = poly_finish(&p);
    *minus = poly_finish(&m);
    poly_drop(&p);
}

/* gap without the atoms, each at least 1, that all its terms have: it is 0, or positive, where gap is. */
static expr_id without_common(struct exprs *x, expr_id gap)
{
    struct view v;
    expr_id atom, rest;
    view_of(x, gap, &v);
    if (!gap.i || v.c != 0 || v.n == 0)
        return gap;
    for (uint32_t k = 0; term_atom(x, v.e[0], k, &atom, &rest); k++) {
        if (ex_lo(x, atom) < 1)
            continue;
        struct poly p = poly_open(x);
        uint32_t i = 0;
        for (expr_id left; i < v.n && (left = term_divide(x, v.e[i], atom)).i; i++)
            poly_add(&p, left, v.coef[i]);
        expr_id less = i == v.n ? poly_finish(&p) : (expr_id){0};
        poly_drop(&p);
        if (less.i)
            return without_common(x, less);
    }
    return gap;
}

/* gap = b - a: a < b as K - 1 < gap's terms / g, K = ceil((1 - c) / g). None after an overflow. */
static expr_id less_than(struct exprs *x, expr_id gap)
{
    struct view v;
    if (!gap.i)
        return gap;
    view_of(x, gap, &v);
    if (v.n == 0)
        return ex_const(x, v.c > 0);
    int64_t g = content(&v), below;
    expr_id left, right;
    sides(x, gap, g, &right, &left);
    if (!may_move(v.c))
        return (expr_id){0};
    below = floordiv_i64(-v.c, g);   /* K - 1 = ceil((1 - c) / g) - 1 = floor(-c / g) */
    bool on_left = ex_is(x, left, 0) || (below > 0 && !ex_is(x, right, 0));
    if (on_left)
        left = ex_addc(x, left, below);
    else
        right = ex_addc(x, right, -below);
    if (!left.i || !right.i)
        return (expr_id){0};
    if (ex_hi(x, left) < ex_lo(x, right))
        return ex_const(x, 1);
    if (ex_hi(x, right) != INT64_MAX && ex_lo(x, left) >= ex_hi(x, right))
        return ex_const(x, 0);
    return expr_intern2(x, EX_LT, left, right);
}

expr_id ex_lt(struct exprs *x, expr_id a, expr_id b)
{
    if (expr_lt(x, a, b))
        return ex_const(x, 1);
    if (expr_le(x, b, a))
        return ex_const(x, 0);
    attempt_begin(x);
    expr_id e = attempt_end(x, less_than(x, without_common(x, ex_sub(x, b, a))));
    return e.i ? e : expr_intern2(x, EX_LT, a, b);
}

expr_id ex_le(struct exprs *x, expr_id a, expr_id b)
{
    if (expr_le(x, a, b))
        return ex_const(x, 1);
    if (expr_lt(x, b, a))
        return ex_const(x, 0);
    attempt_begin(x);
    expr_id e = attempt_end(x, ex_lt(x, a, ex_addc(x, b, 1)));
    if (e.i)
        return e;
    e = expr_intern2(x, EX_LT, b, a);
    return expr_intern(x, &(struct ekey){.kind = EX_NOT, .n = 1, .arg = &e});
}

static bool is_bool(const struct exprs *x, expr_id e)
{
    return enode(x, e)->lo >= 0 && enode(x, e)->hi <= 1;
}

/* gap = a - b is not constant and may be 0. None after an overflow. */
static expr_id equal(struct exprs *x, expr_id gap)
{
    struct view v;
    expr_id chosen = expr_equal_by_choice(x, gap);
    if (chosen.i)
        return chosen;
    view_of(x, gap, &v);
    int64_t g = content(&v), multiple = 0;
    for (uint32_t i = 0; i < v.n; i++) {
        int64_t m, d = enode(x, v.e[i])->div;
        multiple = gcd_i64(multiple, mul_i64(gcd_i64(v.coef[i], 0), d, &m) ? m : d);
    }
    if (!may_move(v.c))
        return (expr_id){0};
    if ((multiple && v.c % multiple != 0) || v.c % g != 0)
        return ex_const(x, 0);
    expr_id plus, minus;
    sides(x, gap, g, &plus, &minus);
    int64_t c = v.c / g;
    if (c > 0)
        plus = ex_addc(x, plus, c);
    else
        minus = ex_addc(x, minus, -c);
    expr_id one = ex_is_const(x, minus, NULL) ? plus : minus, other = one.i == plus.i ? minus : plus;
    if (is_bool(x, one) && ex_is(x, other, 1))
        return one;
    if (is_bool(x, one) && ex_is(x, other, 0))
        return ex_not(x, one);
    return plus.i < minus.i ? expr_intern2(x, EX_EQ, plus, minus) : expr_intern2(x, EX_EQ, minus, plus);
}

expr_id ex_eq(struct exprs *x, expr_id a, expr_id b)
{
    if (!a.i || !b.i)
        return (expr_id){0};
    if (a.i == b.i)
        return ex_const(x, 1);
    if (expr_lt(x, a, b) || expr_lt(x, b, a))
        return ex_const(x, 0);
    attempt_begin(x);
    expr_id gap = without_common(x, ex_sub(x, a, b)), e = gap;
    if (gap.i)
        e = ex_is_const(x, gap, NULL) ? ex_const(x, ex_is(x, gap, 0)) : equal(x, gap);
    e = attempt_end(x, e);
    if (!e.i)
        e = a.i < b.i ? expr_intern2(x, EX_EQ, a, b) : expr_intern2(x, EX_EQ, b, a);
    return e;
}

/* ---- logic ------------------------------------------------------------------------------------------------ */

expr_id expr_to_bool(struct exprs *x, expr_id e)
{
    return is_bool(x, e) ? e : ex_not(x, ex_eq(x, e, ex_const(x, 0)));
}

expr_id ex_not(struct exprs *x, expr_id e)
{
    int64_t c;
    if (!is_bool(x, e))
        return ex_eq(x, e, ex_const(x, 0));
    if (ex_is_const(x, e, &c))
        return ex_const(x, !c);
    if (ex_kind(x, e) == EX_NOT)
        return ex_arg(x, e, 0);
    if (ex_kind(x, e) == EX_LT)
        return ex_le(x, ex_arg(x, e, 1), ex_arg(x, e, 0));
    return expr_intern(x, &(struct ekey){.kind = EX_NOT, .n = 1, .arg = &e});
}

struct list {
    expr_id e[LIST_MAX];
    uint32_t n;
    bool full;
};

ASCENDING(id_order, expr_id, i);

/* The operands of a left-leaning chain of one kind. */
static void list_add(struct list *l, const struct exprs *x, enum expr_kind kind, expr_id e)
{
    for (;;) {
        bool inner = ex_kind(x, e) == kind;
        if (l->n == LIST_MAX) {
            l->full = true;
            return;
        }
        l->e[l->n++] = inner ? ex_arg(x, e, 1) : e;
        if (!inner)
            return;
        e = ex_arg(x, e, 0);
    }
}

static void list_sort(struct list *l)
{
    qsort(l->e, l->n, sizeof *l->e, id_order);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < l->n; i++)
        if (kept == 0 || l->e[kept - 1].i != l->e[i].i)
            l->e[kept++] = l->e[i];
    l->n = kept;
}

static expr_id list_chain(struct exprs *x, enum expr_kind kind, const struct list *l)
{
    expr_id e = l->e[0];
    for (uint32_t i = 1; i < l->n; i++)
        e = expr_intern2(x, kind, e, l->e[i]);
    return e;
}

expr_id ex_and(struct exprs *x, expr_id a, expr_id b)
{
    a = expr_to_bool(x, a);
    b = expr_to_bool(x, b);
    if (!a.i || !b.i)
        return (expr_id){0};
    if (ex_is(x, a, 0) || ex_is(x, b, 1) || a.i == b.i)
        return a;
    if (ex_is(x, b, 0) || ex_is(x, a, 1))
        return b;
    struct list l = {.n = 0};
    list_add(&l, x, EX_AND, a);
    list_add(&l, x, EX_AND, b);
    if (l.full)
        return expr_intern2(x, EX_AND, a, b);
    list_sort(&l);
    for (uint32_t i = 0; i < l.n; i++) {
        uint32_t opposite = ex_not(x, l.e[i]).i;
        for (uint32_t k = 0; k < i; k++)
            if (l.e[k].i == opposite)
                return ex_const(x, 0);
    }
    return list_chain(x, EX_AND, &l);
}

expr_id ex_or(struct exprs *x, expr_id a, expr_id b)
{
    return ex_not(x, ex_and(x, ex_not(x, expr_to_bool(x, a)), ex_not(x, expr_to_bool(x, b))));
}

/* ---- minimum and maximum ------------------------------------------------------------------------------------ */

/* May one of first .. n - 1 leave the 64 bits that the extreme of all fits into? */
static bool list_is_huge(const struct exprs *x, const struct list *l, uint32_t first)
{
    bool huge = false;
    for (uint32_t i = first; i < l->n; i++)
        huge |= !l->e[i].i || enode(x, l->e[i])->largest >= 0x1p62;
    return huge;
}

/* The least addend of the list and what divides all that is left of its members: 0 and 1 where without them a member
 * may overflow. */
static void list_common(const struct exprs *x, const struct list *l, int64_t *addend, int64_t *factor)
{
    struct view v;
    *addend = INT64_MAX;
    *factor = 0;
    for (uint32_t i = 0; i < l->n; i++) {
        view_of(x, l->e[i], &v);
        *addend = v.c < *addend ? v.c : *addend;
    }
    if (!may_move(*addend) || list_is_huge(x, l, 0)) {
        *addend = 0;
        *factor = 1;
        return;
    }
    for (uint32_t i = 0; i < l->n; i++) {
        int64_t left;
        view_of(x, l->e[i], &v);
        *factor = gcd_i64(*factor, content(&v));
        *factor = sub_i64(v.c, *addend, &left) ? gcd_i64(*factor, left) : 1;
    }
}

static expr_id scale_down(struct exprs *x, expr_id e, int64_t addend, int64_t factor)
{
    VIEW_OF(v, x, e);
    int64_t c;
    struct poly p = poly_open(x);
    if (!sub_i64(v.c, addend, &c))
        poly_add(&p, expr_overflow(x), 1);
    else
        poly_add_const(&p, c / factor);
    for (uint32_t i = 0; i < v.n; i++)
        poly_add(&p, v.e[i], v.coef[i] / factor);
    return poly_close(&p);
}

/* Adds e, or what e is an affine image of: min(a, b) + 4 counts as a + 4 and b + 4, unless one of those may overflow */
static void list_add_affine(struct exprs *x, struct list *l, enum expr_kind kind, expr_id e)
{
    VIEW_OF(v, x, e);
    if (v.n != 1 || v.coef[0] < 1 || ex_kind(x, v.e[0]) != kind) {
        list_add(l, x, kind, e);
        return;
    }
    uint32_t first = l->n;
    list_add(l, x, kind, v.e[0]);
    for (uint32_t i = first; i < l->n; i++)
        l->e[i] = ex_addc(x, ex_mulc(x, l->e[i], v.coef[0]), v.c);
    if ((v.coef[0] != 1 || v.c != 0) && list_is_huge(x, l, first)) {
        l->n = first;
        list_add(l, x, kind, e);
    }
}

/* Drops members that another one makes superfluous. */
static void list_prune(struct exprs *x, enum expr_kind kind, struct list *l)
{
    for (uint32_t i = 0; i < l->n && l->n <= PRUNE_MAX; i++) {
        for (uint32_t k = 0; k < l->n; k++) {
            bool useless = k != i && (kind == EX_MIN ? expr_le(x, l->e[k], l->e[i]) : expr_le(x, l->e[i], l->e[k]));
            if (!useless)
                continue;
            memmove(l->e + i, l->e + i + 1, (l->n - i - 1) * sizeof *l->e);
            l->n--;
            i--;
            break;
        }
    }
}

static expr_id extreme_of_list(struct exprs *x, enum expr_kind kind, struct list *l)
{
    int64_t addend, factor;
    list_sort(l);
    list_prune(x, kind, l);
    if (l->n == 1)
        return l->e[0];
    list_common(x, l, &addend, &factor);
    if (factor == 0)
        factor = 1;
    for (uint32_t i = 0; i < l->n; i++)
        l->e[i] = scale_down(x, l->e[i], addend, factor);
    list_sort(l);
    return ex_addc(x, ex_mulc(x, list_chain(x, kind, l), factor), addend);
}

static expr_id extreme(struct exprs *x, enum expr_kind kind, expr_id a, expr_id b)
{
    if (expr_le(x, a, b))
        return kind == EX_MIN ? a : b;
    if (expr_le(x, b, a))
        return kind == EX_MIN ? b : a;
    struct list l = {.n = 0};
    attempt_begin(x);
    list_add_affine(x, &l, kind, a);
    list_add_affine(x, &l, kind, b);
    expr_id e = {0};
    if (!l.full)
        e = extreme_of_list(x, kind, &l);
    e = attempt_end(x, e);
    return e.i ? e : expr_intern2(x, kind, a, b);
}

expr_id ex_min(struct exprs *x, expr_id a, expr_id b)
{
    return extreme(x, EX_MIN, a, b);
}

expr_id ex_max(struct exprs *x, expr_id a, expr_id b)
{
    return extreme(x, EX_MAX, a, b);
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

enum truth ex_truth(const struct exprs *x, expr_id cond)
{
    if (ex_lo(x, cond) > 0 || ex_hi(x, cond) < 0)
        return TRUE_;
    return ex_is(x, cond, 0) ? FALSE_ : UNKNOWN_;
}

enum truth ex_cmp_eq(struct exprs *x, expr_id a, expr_id b)
{
    return ex_truth(x, ex_eq(x, a, b));
}

enum truth ex_cmp_lt(struct exprs *x, expr_id a, expr_id b)
{
    return ex_truth(x, ex_lt(x, a, b));
}

enum truth ex_cmp_le(struct exprs *x, expr_id a, expr_id b)
{
    return expr_le(x, a, b) ? TRUE_ : expr_lt(x, b, a) ? FALSE_ : UNKNOWN_;
}
