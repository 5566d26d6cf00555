/* Random reductions and scans, softmax and normalisation (draw.h). */
#include "tests/fuzz/draw.h"

#include <math.h>
#include <string.h>

struct drawn draw_summed(struct draw *d, value_id v, double n, double mag, double err, int places)
{
    struct drawn r = drawn_make(d, v, n * mag, n * err, places);
    if (r.err)
        r.err += n * elem_eps(value_type(d->g, v)->elem) * n * mag;
    return r;
}

struct drawn draw_folded(struct draw *d, value_id v, const char *monoid, double n, const struct drawn *x)
{
    if (!v.i)
        return (struct drawn){0};
    if (!strcmp(monoid, "sum"))
        return draw_summed(d, v, n, x->mag, x->err, x->places);
    if (strcmp(monoid, "prod"))
        return drawn_like(d, v, x);
    double mag = pow(fmax(1, x->mag), n);
    return drawn_make(d, v, mag, n * mag * (x->err + (x->err ? elem_eps(value_type(d->g, v)->elem) * n : 0)),
                      (int)n * x->places);
}

const char *draw_monoid(struct draw *d, char class, double n, double mag)
{
    static const char *const floats[] = {"sum", "sum", "sum", "max", "min", "prod"};
    static const char *const ints[] = {"sum", "max", "min", "prod", "and", "or", "xor"};
    static const char *const bools[] = {"and", "or", "xor"};
    const char *m = class == 'F' ? DRAW_PICK(d, floats) : class == 'B' ? DRAW_PICK(d, bools) : DRAW_PICK(d, ints);
    return class == 'F' && !strcmp(m, "prod") && n * log2(fmax(mag, 1)) > 20 ? "sum" : m;
}

static uint32_t draw_axes(struct draw *d, const struct type *t, int64_t *axes, double *n)
{
    uint32_t k = 0;
    *n = 1;
    for (int32_t i = 0; i < t->rank; i++)
        if (draw_chance(d, 45)) {
            axes[k++] = i;
            *n *= (double)draw_dim(d, t->dims[i]);
        }
    return k;
}

static void reduce(struct draw *d, struct drawn x, const struct type *t)
{
    int64_t axes[RANK_MAX];
    double n;
    uint32_t k = draw_axes(d, t, axes, &n);
    const char *monoid = draw_monoid(d, elem_class(t->elem), n, x.mag);
    draw_keep(d, draw_folded(d, b_reduce(&d->b, x.v, axes, k, monoid, draw_chance(d, 50)), monoid, n, &x));
}

static void argreduce(struct draw *d, struct drawn x, const struct type *t)
{
    int64_t axis = draw_int(d, 0, t->rank - 1);
    struct attr a[3] = {attr_int("axis", axis), attr_int("max", draw_int(d, 0, 1)),
                        attr_int("last", draw_int(d, 0, 1))};
    if (drawn_exact(&x) && elem_class(t->elem) != 'B')
        draw_keep(d, drawn_make(d, b_op(&d->b, OP_ARGREDUCE, &x.v, 1, a, 3), 64, 0, 0));
}

static void cumulate(struct draw *d, struct drawn x, const struct type *t)
{
    int64_t axis = draw_int(d, 0, t->rank - 1);
    double n = (double)draw_dim(d, t->dims[axis]);
    const char *monoid = elem_class(t->elem) == 'F' && n * log2(fmax(x.mag, 1)) > 16 ? "sum"
                         : draw_chance(d, 70)                                        ? "sum"
                                                                                     : "prod";
    struct attr a[4] = {attr_int("axis", axis), attr_str("monoid", monoid), attr_int("exclusive", draw_int(d, 0, 1)),
                        attr_int("reverse", draw_int(d, 0, 1))};
    if (elem_class(t->elem) != 'B')
        draw_keep(d, draw_folded(d, b_op(&d->b, OP_CUMULATE, &x.v, 1, a, 4), monoid, n, &x));
}

void draw_reduce(struct draw *d)
{
    struct drawn x = draw_value(d, draw_chance(d, 80) ? "F" : "BIUF", 1);
    if (!x.v.i)
        return;
    const struct type t = *drawn_type(d, &x);
    int64_t k = draw_int(d, 0, 99);
    if (k < 50)
        reduce(d, x, &t);
    else if (k < 62)
        argreduce(d, x, &t);
    else if (k < 85)
        draw_window(d, x, &t);
    else
        cumulate(d, x, &t);
}

/* ---- rows: softmax, normalisation -------------------------------------------------------------------------------- */

static void softmax(struct draw *d, struct drawn x, const int64_t *axes, uint32_t k, double n)
{
    struct builder *b = &d->b;
    double eps = elem_eps(drawn_type(d, &x)->elem);
    value_id max = b_reduce(b, x.v, axes, k, "max", true);
    value_id e = b_unary(b, OP_EXP, b_binary(b, OP_SUB, x.v, max));
    value_id y = b_binary(b, OP_DIV, e, b_reduce(b, e, axes, k, "sum", true));
    draw_keep(d, drawn_make(d, y, 1, (2 * x.err + 4 * x.mag * eps + 8 * eps) * (n + 2), 0));
}

static void normalise(struct draw *d, struct drawn x, const int64_t *axes, uint32_t k, double n)
{
    struct builder *b = &d->b;
    const struct type t = *drawn_type(d, &x);
    double eps = elem_eps(t.elem), m = 2 * x.mag, e = 2 * x.err + 4 * n * eps * x.mag;
    value_id c = b_binary(b, OP_SUB, x.v, b_mean(b, x.v, axes, k, true));
    value_id var = b_mean(b, b_binary(b, OP_MUL, c, c), axes, k, true);
    value_id y = b_binary(b, OP_DIV, c, b_unary(b, OP_SQRT, b_binary_f64(b, OP_ADD, var, 0.5)));
    double err = 2 * e + 2 * m * (2 * m * e + (n + 4) * eps * m * m) + 8 * eps * m;
    struct drawn r = drawn_make(d, y, 2 * fmin(m, sqrt(n) + 1), err, 0);
    if (r.v.i && t.rank > 0 && draw_chance(d, 50))
        r = draw_binary(d, OP_MUL, r, draw_leaf(d, t.elem, t.dims + t.rank - 1, 1, true));
    if (r.v.i && t.rank > 0 && draw_chance(d, 50))
        r = draw_binary(d, OP_ADD, r, draw_leaf(d, t.elem, t.dims + t.rank - 1, 1, true));
    draw_keep(d, r);
}

void draw_rows(struct draw *d)
{
    struct drawn x = draw_value(d, "F", 1);
    int64_t axes[RANK_MAX];
    double n;
    if (!x.v.i || x.mag > 50)
        return;
    const struct type t = *drawn_type(d, &x);
    uint32_t k = draw_axes(d, &t, axes, &n);
    if (draw_chance(d, 60) || !k) {
        axes[0] = t.rank - 1;
        k = 1;
        n = (double)draw_dim(d, t.dims[t.rank - 1]);
    }
    if (draw_chance(d, 50))
        softmax(d, x, axes, k, n);
    else
        normalise(d, x, axes, k, n);
}
