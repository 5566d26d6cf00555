/* Random computations on the symbols of a graph, as its extents, places and paddings (draw.h). */
#include "tests/fuzz/draw.h"

static const int64_t plausible[] = {1, 2, 2, 3, 4, 7, 8, 16, -1, -2, 0};
static const int64_t huge[] = {(int64_t)1 << 31, ((int64_t)1 << 31) - 1, -((int64_t)1 << 31), (int64_t)1 << 40};

static expr_id constant(struct draw *d)
{
    return ex_const(d->x, draw_chance(d, 90) ? DRAW_PICK(d, plausible) : DRAW_PICK(d, huge));
}

/* What is never zero: constants, and symbols or numbers from 1 on. */
static expr_id divisor(struct draw *d, int depth)
{
    static const int64_t divisors[] = {2, 2, 3, 4, 7, 16, -2, -3, (int64_t)1 << 31, (int64_t)1 << 40};
    expr_id one = ex_const(d->x, 1);
    if (draw_chance(d, 60))
        return ex_const(d->x, DRAW_PICK(d, divisors));
    return ex_max(d->x, draw_chance(d, 60) ? draw_symbol(d) : draw_number(d, depth - 1), one);
}

static expr_id condition(struct draw *d, int depth)
{
    expr_id a = draw_number(d, depth - 1), b = draw_chance(d, 50) ? constant(d) : draw_number(d, depth - 1);
    int64_t k = draw_int(d, 0, 3);
    expr_id c = k == 0 ? ex_eq(d->x, a, b) : k == 1 ? ex_lt(d->x, a, b) : ex_le(d->x, a, b);
    return depth > 1 && draw_chance(d, 20) ? ex_and(d->x, c, ex_not(d->x, condition(d, depth - 1))) : c;
}

expr_id draw_number(struct draw *d, int depth)
{
    struct exprs *x = d->x;
    if (depth <= 0 || draw_chance(d, 15))
        return d->n_symbols && draw_chance(d, 70) ? draw_symbol(d) : constant(d);
    expr_id a = draw_number(d, depth - 1), b;
    switch (draw_int(d, 0, 10)) {
    case 0:
    case 1: return ex_add(x, a, draw_number(d, depth - 1));
    case 2: return ex_sub(x, a, draw_number(d, depth - 1));
    case 3:
        return ex_mul(x, a,
                      depth > 1 && draw_chance(d, 40) ? draw_number(d, depth - 2) : ex_const(x, draw_int(d, -2, 8)));
    case 4: return ex_div(x, a, divisor(d, depth));
    case 5: return ex_ceildiv(x, a, ex_const(x, draw_int(d, 1, 5)));
    case 6: return ex_mod(x, a, divisor(d, depth));
    case 7: return ex_min(x, a, draw_number(d, depth - 1));
    case 8: return ex_max(x, a, draw_number(d, depth - 1));
    case 9: /* (a * b) / b */ b = divisor(d, depth); return ex_div(x, ex_mul(x, a, b), b);
    default: return ex_select(x, condition(d, depth - 1), a, draw_number(d, depth - 1));
    }
}

expr_id draw_size(struct draw *d, int64_t lo, int64_t hi)
{
    if (!d->n_symbols || draw_chance(d, 30))
        return ex_const(d->x, draw_int(d, lo, hi));
    expr_id e = draw_number(d, (int)draw_int(d, 1, 4)), least = ex_const(d->x, lo);
    if (draw_chance(d, 40)) /* around */
        return ex_add(d->x, ex_mod(d->x, e, ex_const(d->x, hi - lo + 1)), least);
    return ex_min(d->x, ex_max(d->x, e, least), ex_const(d->x, hi));
}
