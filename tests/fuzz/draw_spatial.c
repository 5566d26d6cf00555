/* Random windows and convolutions, with what networks put in front of them and behind (draw.h). */
#include "tests/fuzz/draw.h"

#include <math.h>
#include <string.h>

struct spatial {
    uint32_t n;
    int64_t kernel[4], strides[4], dilations[4], xdil[4];
    expr_id lo[4], hi[4];
    double taps;
};

/* Some window over the last n dims of t; false where none fits. */
static bool draw_spatial(struct draw *d, const struct type *t, uint32_t n, bool conv, struct spatial *s)
{
    s->n = n;
    s->taps = 1;
    for (uint32_t i = 0; i < n; i++) {
        int64_t size = draw_dim(d, t->dims[(uint32_t)t->rank - n + i]), most = size < 5 ? size : 5;
        s->kernel[i] = draw_chance(d, 30) ? 1 : draw_int(d, 1, most < 3 ? 3 : most);
        s->strides[i] = draw_chance(d, 60) ? 1 : draw_int(d, 1, 3);
        s->dilations[i] = draw_chance(d, 75) ? 1 : draw_int(d, 1, 3);
        s->xdil[i] = conv && draw_chance(d, 15) ? draw_int(d, 1, 3) : 1;
        int64_t reach = (s->kernel[i] - 1) * s->dilations[i], lo = 0, hi = 0;
        if (draw_chance(d, 60)) {
            lo = draw_int(d, 0, reach);
            hi = draw_int(d, 0, reach);
        }
        if (draw_chance(d, 30))
            lo = hi = reach / 2;
        if (conv && draw_chance(d, 6))
            lo = -1;
        if (conv && draw_chance(d, 6))
            hi = -1;
        s->lo[i] = ex_const(d->x, lo);
        s->hi[i] = ex_const(d->x, hi);
        s->taps *= (double)s->kernel[i];
        if ((size - 1) * s->xdil[i] + 1 + lo + hi < reach + 1)
            return false;
    }
    return true;
}

static uint32_t spatial_attrs(const struct spatial *s, struct attr *a)
{
    a[0] = attr_ints("strides", s->strides, s->n);
    a[1] = attr_exprs("lo", s->lo, s->n);
    a[2] = attr_exprs("hi", s->hi, s->n);
    a[3] = attr_ints("dilations", s->dilations, s->n);
    return 4;
}

void draw_window(struct draw *d, struct drawn x, const struct type *t)
{
    struct spatial s;
    struct attr a[6];
    uint32_t n = (uint32_t)draw_int(d, 1, t->rank < 3 ? t->rank : 3);
    char class = elem_class(t->elem);
    if (class == 'B' || !draw_spatial(d, t, n, false, &s))
        return;
    uint32_t k = spatial_attrs(&s, a);
    a[k++] = attr_ints("kernel", s.kernel, s.n);
    bool padded = false; /* a window of nothing but padding has no position */
    for (uint32_t i = 0; i < n; i++)
        padded |= !ex_is(d->x, s.lo[i], 0) || !ex_is(d->x, s.hi[i], 0);
    if (!padded && draw_chance(d, 25) && drawn_exact(&x)) {
        draw_keep(d, drawn_make(d, b_op(&d->b, OP_ARGWINDOW, &x.v, 1, a, k), DRAW_ELEMENTS, 0, 0));
        return;
    }
    const char *monoid = draw_monoid(d, class, s.taps, x.mag);
    a[k++] = attr_str("monoid", monoid);
    value_id v = b_op(&d->b, OP_WINDOW, &x.v, 1, a, k);
    struct drawn r = draw_folded(d, v, monoid, s.taps, &x);
    if (r.v.i && class == 'F' && (!strcmp(monoid, "max") || !strcmp(monoid, "min"))) /* a window of padding: infinite */
        r.v = b_clamp(&d->b, r.v, -1024, 1024), r.mag = fmax(r.mag, 1024);
    draw_keep(d, r);
}

static int64_t draw_channels(struct draw *d)
{
    static const int64_t often[] = {1, 3, 4, 8, 16, 16, 17, 32};
    return draw_chance(d, 60) ? DRAW_PICK(d, often) : draw_int(d, 1, 40);
}

/* A feature map to convolve: one of the pool or a new one. */
static struct drawn feature_map(struct draw *d)
{
    if (d->n && draw_chance(d, 75)) {
        struct drawn x = draw_value(d, "F", 3);
        if (x.v.i && drawn_type(d, &x)->rank <= 5 && draw_dim(d, drawn_type(d, &x)->dims[1]) <= 40)
            return x;
    }
    expr_id dims[5];
    int32_t rank = draw_chance(d, 70) ? 4 : draw_chance(d, 70) ? 3 : 5;
    dims[0] = d->n_symbols && draw_chance(d, 60) ? draw_symbol(d) : ex_const(d->x, draw_int(d, 1, 2));
    dims[1] = ex_const(d->x, draw_channels(d));
    for (int32_t i = 2; i < rank; i++)
        dims[i] = d->n_symbols && draw_chance(d, 12) ? draw_symbol(d)
                                                     : ex_const(d->x, draw_int(d, 1,
                                                                               rank == 5   ? 5
                                                                               : rank == 4 ? 9
                                                                                           : 20));
    return draw_leaf(d, draw_float(d), dims, rank, draw_chance(d, 5));
}

/* What networks put in front of a convolution: a channel shuffle, a part of the channels. */
static struct drawn channels_regrouped(struct draw *d, struct drawn x)
{
    const struct type t = *drawn_type(d, &x);
    int64_t c, g = draw_int(d, 2, 4), perm[RANK_MAX];
    expr_id split[RANK_MAX];
    if (!ex_is_const(d->x, t.dims[1], &c) || !draw_chance(d, 25))
        return x;
    if (c % g == 0) {
        for (int32_t i = 0; i < t.rank; i++) {
            split[i + (i > 1)] = t.dims[i];
            perm[i + (i > 1)] = i + (i > 1);
        }
        split[1] = ex_const(d->x, g);
        split[2] = ex_const(d->x, c / g);
        perm[1] = 2;
        perm[2] = 1;
        value_id v = b_reshape(&d->b, b_transpose(&d->b, b_reshape(&d->b, x.v, split, t.rank + 1), perm), t.dims,
                               t.rank);
        x.v = v;
    }
    if (x.v.i && c > 1 && draw_chance(d, 40)) {
        int64_t from = draw_int(d, 0, c - 1);
        x.v = b_slice_axis(&d->b, x.v, 1, ex_const(d->x, from), ex_const(d->x, draw_int(d, 1, c - from)));
    }
    return x;
}

/* In so many cases of a hundred: x op a constant for each channel. */
static struct drawn with_channels(struct draw *d, enum op op, struct drawn x, uint32_t percent)
{
    const struct type t = *drawn_type(d, &x);
    expr_id one[RANK_MAX];
    for (int32_t i = 0; i < t.rank; i++)
        one[i] = ex_const(d->x, 1);
    one[1] = t.dims[1];
    return draw_chance(d, percent) ? draw_binary(d, op, x, draw_leaf(d, t.elem, one + 1, t.rank - 1, true)) : x;
}

/* A normalisation and an activation, or a factor for each channel of each image: what networks put in front of a
 * convolution that the convolution's kernel may compute itself. */
static struct drawn prologue(struct draw *d, struct drawn x)
{
    const struct type t = *drawn_type(d, &x);
    expr_id one[RANK_MAX];
    for (int32_t i = 0; i < t.rank; i++)
        one[i] = ex_const(d->x, 1);
    one[0] = t.dims[0];
    one[1] = t.dims[1];
    x = with_channels(d, OP_MUL, x, 50);
    if (x.v.i)
        x = with_channels(d, OP_ADD, x, 50);
    if (x.v.i && draw_chance(d, 30))
        x = draw_binary(d, OP_MUL, x, draw_leaf(d, t.elem, one, t.rank, false));
    if (x.v.i && draw_chance(d, 60))
        x = draw_binary(d, OP_MAX, x, draw_const(d, &x, 0));
    return x;
}

/* One tap, every point. */
static void draw_pointwise(struct draw *d, struct spatial *s)
{
    s->taps = 1;
    for (uint32_t i = 0; i < s->n; i++) {
        s->kernel[i] = s->strides[i] = s->dilations[i] = s->xdil[i] = 1;
        s->lo[i] = s->hi[i] = ex_const(d->x, 0);
    }
}

/* Bias per channel, an activation, a residual: what networks put behind a convolution. */
static struct drawn epilogue(struct draw *d, struct drawn r, struct drawn x)
{
    if (!r.v.i)
        return r;
    const struct type t = *drawn_type(d, &r);
    r = with_channels(d, OP_ADD, r, 40);
    if (r.v.i)
        r = with_channels(d, OP_MUL, r, 20);
    if (r.v.i && type_same_shape(drawn_type(d, &x), &t) && drawn_type(d, &x)->elem == t.elem && draw_chance(d, 50))
        r = draw_binary(d, OP_ADD, r, x);
    if (r.v.i && draw_chance(d, 40))
        r = draw_binary(d, OP_MAX, r, draw_const(d, &r, 0));
    return r;
}

void draw_conv(struct draw *d)
{
    struct drawn x = feature_map(d);
    struct spatial s;
    struct attr a[8];
    int64_t c;
    if (x.v.i)
        x = channels_regrouped(d, x);
    bool staged = x.v.i && draw_chance(d, 30);
    if (staged)
        x = prologue(d, x);
    if (!x.v.i)
        return;
    const struct type t = *drawn_type(d, &x);
    uint32_t n = (uint32_t)t.rank - 2;
    if (!ex_is_const(d->x, t.dims[1], &c) || !draw_spatial(d, &t, n, true, &s))
        return;
    if (staged && draw_chance(d, 60))
        draw_pointwise(d, &s);
    int64_t groups = 1, m = draw_channels(d);
    if (draw_chance(d, 20))
        groups = c, m = c * (draw_chance(d, 70) ? 1 : 2);
    else if (draw_chance(d, 15))
        for (int64_t g = 2; g <= 4; g++)
            if (c % g == 0)
                groups = g, m = g * draw_int(d, 1, 16);
    if (groups == 1 && draw_chance(d, 25))
        m = c;
    expr_id dims[5] = {ex_const(d->x, m), ex_const(d->x, c / groups)};
    double out = (double)(m * draw_dim(d, t.dims[0]));
    for (uint32_t i = 0; i < n; i++) {
        dims[2 + i] = ex_const(d->x, s.kernel[i]);
        out *= (double)(draw_dim(d, t.dims[2 + i]) * s.xdil[i] / s.strides[i] + 4);
    }
    double terms = s.taps * (double)(c / groups);
    if (d->work + out * terms > DRAW_WORK || m > 80)
        return;
    struct drawn w = draw_leaf(d, t.elem, dims, t.rank, draw_chance(d, 80));
    uint32_t k = spatial_attrs(&s, a);
    a[k++] = attr_ints("xdil", s.xdil, n);
    a[k++] = attr_int("groups", groups);
    if (!w.v.i)
        return;
    d->work += out * terms;
    value_id in[2] = {x.v, w.v}, v = b_op(&d->b, OP_CONV, in, 2, a, k);
    if (v.i)
        draw_keep(
            d, epilogue(d, draw_summed(d, v, terms, x.mag * w.mag, x.err * w.mag + w.err * x.mag, x.places + w.places),
                        x));
}

/* A convolution of `m` filters over `taps` x `taps`, padded all round by `pad`. */
static struct drawn plain_conv(struct draw *d, struct drawn x, int64_t m, int64_t groups, int64_t taps, int64_t pad)
{
    const struct type t = *drawn_type(d, &x);
    int64_t c = draw_dim(d, t.dims[1]), stride = draw_int(d, 1, taps > 1 ? 2 : 1);
    const int64_t strides[] = {stride, stride}, one[] = {1, 1};
    const expr_id dims[] = {ex_const(d->x, m), ex_const(d->x, c / groups), ex_const(d->x, taps), ex_const(d->x, taps)};
    const expr_id pads[] = {ex_const(d->x, pad), ex_const(d->x, pad)};
    struct drawn w = draw_leaf(d, t.elem, dims, 4, true);
    struct attr a[] = {attr_ints("strides", strides, 2), attr_exprs("lo", pads, 2), attr_exprs("hi", pads, 2),
                       attr_ints("dilations", one, 2),   attr_ints("xdil", one, 2), attr_int("groups", groups)};
    double terms = (double)(c / groups * taps * taps);
    value_id in[] = {x.v, w.v}, v = w.v.i ? b_op(&d->b, OP_CONV, in, 2, a, COUNT_OF(a)) : (value_id){0};
    d->work += terms * (double)(m * draw_count(d, &x) / c);
    return v.i ? draw_summed(d, v, terms, x.mag * w.mag, x.err * w.mag + w.err * x.mag, x.places + w.places)
               : (struct drawn){0};
}

/* To c channels by a convolution of one tap, and what networks put behind it: in front of a depthwise one, whose kernel
 * may compute it strip by strip. */
static struct drawn expansion(struct draw *d, struct drawn x, int64_t c)
{
    const struct drawn from = x;
    x = plain_conv(d, x, c, 1, 1, 0);
    x = epilogue(d, x, from);
    if (x.v.i && draw_chance(d, 60))
        x = draw_binary(d, OP_MAX, x, draw_const(d, &x, 0));
    return x;
}

void draw_squeeze(struct draw *d)
{
    static const int64_t channels[] = {8, 9, 16, 17, 24, 33, 40}, axes[] = {2, 3};
    const int64_t taps = draw_int(d, 1, 4), c = DRAW_PICK(d, channels), h = draw_int(d, 2, 9), w = draw_int(d, 2, 12);
    expr_id dims[] = {d->n_symbols && draw_chance(d, 40) ? draw_symbol(d) : ex_const(d->x, draw_int(d, 1, 2)),
                      ex_const(d->x, c), ex_const(d->x, h), ex_const(d->x, w)};
    if (d->work + 40.0 * (double)(2 * c * h * w) > DRAW_WORK)
        return;
    struct drawn x = draw_leaf(d, ELEM_F32, dims, 4, false), r;
    if (x.v.i && draw_chance(d, 80))
        x = draw_binary(d, OP_MAX, x, draw_const(d, &x, 0));
    if (x.v.i && draw_chance(d, 50))
        x = expansion(d, x, c);
    r = x.v.i ? plain_conv(d, x, c, c, taps, taps / 2) : x;
    r = epilogue(d, r, x);
    if (!r.v.i)
        return;
    double n = (double)(draw_count(d, &r) / c);
    const char *monoid = draw_monoid(d, 'F', n, r.mag);
    struct drawn sum = draw_folded(d, b_reduce(&d->b, r.v, axes, 2, monoid, true), monoid, n, &r);
    if (sum.v.i && sum.mag > 8)
        sum = drawn_make(d, b_clamp(&d->b, sum.v, -8, 8), 8, sum.err, sum.places);
    r = draw_binary(d, OP_MUL, r, sum);
    if (r.v.i && draw_chance(d, 60))
        r = plain_conv(d, r, draw_channels(d), 1, 1, 0);
    draw_keep(d, r);
}
