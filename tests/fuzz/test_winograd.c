/* Winograd convolutions: the tables against matrices derived from their points, and random shapes with every remainder
 * (channels, edges, padding, batches, symbolic extents, what goes before and follows a convolution) interpreted as
 * loops, and compiled, against the reference interpreter. Some convolutions between them have one tap, or are no
 * Winograd ones.
 *
 *   test_winograd [graphs seed [--native]]
 */
#include "tests/fuzz/single.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codegen/codegen.h"
#include "passes/module/winograd.h"

/* ---- tables ------------------------------------------------------------------------------------------------------ */

/* Coefficients of the product of (x - p) over all finite points but `skip`. */
static void polynomial(const struct winograd_form *f, uint32_t skip, double *c)
{
    uint32_t degree = 0;
    memset(c, 0, (WINOGRAD_ALPHA_MAX + 1) * sizeof *c);
    c[0] = 1;
    for (uint32_t i = 0; i < f->alpha; i++) {
        if (i == skip || isinf(f->points[i]))
            continue;
        for (uint32_t k = ++degree; k > 0; k--)
            c[k] = c[k - 1] - f->points[i] * c[k];
        c[0] *= -f->points[i];
    }
}

static void run_side(const struct winograd_side *s, const double *in, double *out)
{
    double v[WINOGRAD_ALPHA_MAX + WINOGRAD_STEPS_MAX] = {0};
    uint32_t last = 0;
    memcpy(v, in, s->n_in * sizeof *v);
    for (uint32_t j = 0; j < s->n_out; j++)
        last = s->out[j] > last ? s->out[j] : last;
    for (uint32_t k = s->n_in; k <= last; k++)
        v[k] = v[s->steps[k - s->n_in].a] + s->steps[k - s->n_in].c * v[s->steps[k - s->n_in].b];
    for (uint32_t j = 0; j < s->n_out; j++)
        out[j] = v[s->out[j]];
}

static int table_matches(uint32_t m)
{
    const struct winograd_form *f = winograd_form(m);
    double c[WINOGRAD_ALPHA_MAX + 1], unit[WINOGRAD_ALPHA_MAX], have[WINOGRAD_ALPHA_MAX];
    int bad = 0;
    for (uint32_t i = 0; i < f->alpha; i++) { /* column i of each matrix */
        memset(unit, 0, sizeof unit);
        unit[i] = 1;
        run_side(&f->input, unit, have);
        for (uint32_t row = 0; row < f->alpha; row++) { /* exact: every coefficient is a short binary fraction */
            polynomial(f, row, c);
            bad += have[row] != (m == 2 && row == 0 ? -c[i] : c[i]); /* 0 - 2 is cheaper: G has the sign */
        }
        run_side(&f->output, unit, have);
        for (uint32_t k = 0; k < f->m; k++)
            bad += have[k] != (isinf(f->points[i]) ? k + 1 == f->m : pow(f->points[i], k));
        polynomial(f, i, c);
        double at = 0, sign = m == 2 && i == 0 ? -1 : 1;
        for (uint32_t k = f->alpha; k-- > 0;)
            at = at * (isinf(f->points[i]) ? 0 : f->points[i]) + c[k];
        for (uint32_t k = 0; k < 3; k++) {
            double want = isinf(f->points[i]) ? k == 2 : sign * pow(f->points[i], k) / at;
            bad += !(fabs(f->g[i][k] - want) <= 1e-15);
        }
    }
    if (bad)
        printf("F(%u x %u): %d entries differ from what the points give\n", m, m, bad);
    return bad;
}

/* ---- random convolutions ----------------------------------------------------------------------------------------- */

static value_id convolution(struct draw *d, value_id x, int64_t channels)
{
    const expr_id *dims = b_dims(&d->b, x).d;
    expr_id taps = ex_const(d->x, draw_chance(d, 20) ? 1 : 3); /* 1: tiles that begin in one row and end in another */
    expr_id w[4] = {ex_const(d->x, channels), dims[1], taps, taps}, lo[2], hi[2];
    const int64_t one[2] = {1, 1};
    int64_t dilations[2] = {1, 1}, most = draw_chance(d, 40) ? 6 : 1;
    for (int i = 0; i < 2 && !ex_is(d->x, taps, 1); i++)
        dilations[i] = draw_int(d, 1, most);
    for (int i = 0; i < 2; i++) {
        int64_t size = draw_dim(d, dims[2 + i]), reach = 2 * dilations[i] + 1, least = size < reach ? reach - size : 0;
        lo[i] = ex_const(d->x, ex_is(d->x, taps, 1) ? 0 : draw_int(d, 0, reach - 1));
        hi[i] = ex_const(d->x, ex_is(d->x, taps, 1) ? 0 : draw_int(d, least, least + reach - 1));
    }
    struct attr a[] = {attr_ints("strides", one, 2),         attr_exprs("lo", lo, 2),   attr_exprs("hi", hi, 2),
                       attr_ints("dilations", dilations, 2), attr_ints("xdil", one, 2), attr_int("groups", 1)};
    value_id in[2] = {x, draw_leaf(d, ELEM_F32, w, 4, true).v};
    return b_op(&d->b, OP_CONV, in, 2, a, COUNT_OF(a));
}

/* One that has no such form: any taps, strides, dilations and zeros around, or a filter for each channel. */
static value_id windowed(struct draw *d, value_id x, int64_t channels)
{
    const expr_id *dims = b_dims(&d->b, x).d;
    bool depthwise = draw_chance(d, 50);
    int64_t strides[2], dilations[2], c = draw_dim(d, dims[1]), m = depthwise ? c : channels;
    const int64_t one[2] = {1, 1};
    expr_id w[4] = {ex_const(d->x, m), ex_const(d->x, depthwise ? 1 : c)}, lo[2], hi[2];
    for (int i = 0; i < 2; i++) {
        int64_t taps = draw_int(d, 1, 5), size = draw_dim(d, dims[2 + i]);
        strides[i] = draw_int(d, 1, 3);
        dilations[i] = draw_int(d, 1, 2);
        int64_t reach = (taps - 1) * dilations[i] + 1, least = reach > size ? reach - size : 0;
        w[2 + i] = ex_const(d->x, taps);
        lo[i] = ex_const(d->x, draw_int(d, 0, 3));
        hi[i] = ex_const(d->x, draw_int(d, least, least + 2));
    }
    struct attr a[] = {attr_ints("strides", strides, 2), attr_exprs("lo", lo, 2),
                       attr_exprs("hi", hi, 2),          attr_ints("dilations", dilations, 2),
                       attr_ints("xdil", one, 2),        attr_int("groups", depthwise ? c : 1)};
    value_id in[2] = {x, draw_leaf(d, ELEM_F32, w, 4, true).v};
    return b_op(&d->b, OP_CONV, in, 2, a, COUNT_OF(a));
}

/* max(x + s x + b, 0), s and b per channel, s of each image at times: x has two readers, so it is in memory, and the
 * map is left to the convolution. */
static value_id mapped(struct draw *d, value_id x)
{
    const expr_id *dims = b_dims(&d->b, x).d;
    expr_id c[4] = {dims[0], dims[1], ex_const(d->x, 1), ex_const(d->x, 1)};
    bool gate = draw_chance(d, 30);
    value_id s = gate ? draw_leaf(d, ELEM_F32, c, 4, false).v : draw_leaf(d, ELEM_F32, c + 1, 3, true).v;
    value_id v = b_binary(&d->b, OP_MUL, x, s);
    v = v.i ? b_binary(&d->b, OP_ADD, v, draw_leaf(d, ELEM_F32, c + 1, 3, true).v) : v;
    v = v.i ? b_binary(&d->b, OP_ADD, v, x) : v;
    return v.i ? b_binary_f64(&d->b, OP_MAX, v, 0) : v;
}

/* Small images with any number of channels; so many channels that transformed weights come in slices; so many tiles
 * that all of them are derived first. */
struct kind {
    int64_t channels[10], least, most;
};
static const struct kind kinds[] = {
    {{8, 9, 16, 17, 24, 31, 32, 33, 40, 48}, 1, 14},
    {{64, 72, 80, 96, 100, 112, 128, 144, 160, 192}, 1, 6},
    {{8, 9, 16, 16, 16, 17, 20, 24, 24, 32}, 40, 46},
};

/* x -> a map, so that the operand is a stored feature map -> one or two convolutions with what may go before and follow
 * them. */
static bool build(struct draw *d)
{
    const struct kind *kind = &kinds[draw_chance(d, 75) ? 0 : draw_chance(d, 60) ? 1 : 2];
    const int64_t *channels = kind->channels, most = COUNT_OF(kind->channels) - 1;
    int64_t h = draw_int(d, kind->least, kind->most), w = draw_int(d, kind->least, kind->most), n = draw_int(d, 1, 2);
    bool symbolic = draw_chance(d, 30);
    d->extent[0] = draw_int(d, 1, 9);
    if (symbolic)
        d->symbol[d->n_symbols++] = sym_new(d->x, SYM_SHAPE, "n", 1, draw_chance(d, 50) ? 64 : INT64_MAX);
    bool batch = draw_chance(d, 60);
    expr_id dims[4] = {ex_const(d->x, n), ex_const(d->x, channels[draw_int(d, 0, most)]), ex_const(d->x, h),
                       ex_const(d->x, w)};
    if (symbolic)
        dims[batch ? 0 : draw_int(d, 2, 3)] = ex_sym(d->x, d->symbol[0]);
    value_id x = draw_leaf(d, ELEM_F32, dims, 4, false).v;
    x = x.i ? b_binary_f64(&d->b, OP_ADD, x, 0.25) : x;
    for (int64_t i = draw_int(d, 1, 2); i > 0 && x.i; i--) {
        bool map = draw_chance(d, 40);
        value_id from = map ? mapped(d, x) : x;
        if (!from.i)
            return false;
        value_id y = (map && draw_chance(d, 40) ? windowed : convolution)(d, from, channels[draw_int(d, 0, most)]);
        if (!y.i)
            return false;
        expr_id c[3] = {b_dims(&d->b, y).d[1], ex_const(d->x, 1), ex_const(d->x, 1)};
        if (draw_chance(d, 60))
            y = b_binary(&d->b, OP_ADD, y, draw_leaf(d, ELEM_F32, c, 3, true).v);
        if (y.i && type_same_shape(value_type(d->g, x), value_type(d->g, y)) && draw_chance(d, 60))
            y = b_binary(&d->b, OP_ADD, y, x);
        if (y.i && draw_chance(d, 50))
            y = b_binary_f64(&d->b, OP_MAX, y, 0);
        x = y;
    }
    return x.i && single_result(d, x);
}

static struct way way_of(uint64_t seed)
{
    static const char *const names[] = {"x86-64-v4", "x86-64-v3", "x86-64-v2"};
    return (struct way){.level = 2,
                        .layout = seed % 7 == 0 ? LAYOUT_NHWC : LAYOUT_AUTO,
                        .machine = target_find(names[seed % 3])->machine,
                        .winograd = 2 + 2 * (uint32_t)(seed / 3 % 3)};
}

static double limit_of(const struct way *way)
{
    static const double limits[] = {[2] = 3e-6, [4] = 2e-5, [6] = 5e-5};
    return limits[way->winograd];
}

static const struct single convolutions = {"convolutions", build, way_of, limit_of};

static void test_tables(void **state)
{
    (void)state;
    for (uint32_t m = 2; m <= 6; m += 2)
        assert_int_equal(table_matches(m), 0);
    assert_null(winograd_form(3));
}

static void test_loops(void **state)
{
    (void)state;
    assert_int_equal(single_many(&convolutions, 60, 1, false), 0);
}

static void test_native(void **state)
{
    (void)state;
    assert_int_equal(single_many(&convolutions, 24, 1000, true), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tables), cmocka_unit_test(test_loops),
                                       cmocka_unit_test(test_native)};
    if (argc > 1 && strcmp(argv[1], "--worker") == 0)
        return codegen_worker();
    if (argc > 2)
        return single_many(&convolutions, strtoull(argv[1], NULL, 10), strtoull(argv[2], NULL, 10),
                           argc > 3 && strcmp(argv[3], "--native") == 0) > 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
