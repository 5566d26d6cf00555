/* The vector mathematics against libm: ULP bounds over sampled numbers (docs/notes/accuracy.md has the table), special
 * values, independence of lanes. MCC_EXHAUSTIVE=1 takes every float of the f32 functions of one operand. Reference:
 * double for f32, long double for f64. An ULP is the distance of floats at the exact result. */
#include "loops.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 64 };

/* y = op(x, x2) over n elements, n a multiple of the lanes */
static struct lfunc *math_kernel(struct context *ctx, enum op op, enum elem elem, uint32_t lanes, uint32_t n_in)
{
    struct ltype v = {elem, lanes}, buffer = {elem, 0}, index = {ELEM_I64, 1};
    struct lfunc *f = lf_new(ctx, &ctx->session, LROLE_KERNEL, "math");
    lreg x = lf_arg(f, buffer, LARG_IN, 0, NULL), x2 = lf_arg(f, buffer, LARG_IN, 0, NULL);
    lreg y = lf_arg(f, buffer, LARG_OUT, 0, NULL), n = lf_arg(f, index, 0, 0, NULL);
    lblock body = {1}, inner = lf_block(f);
    lreg zero = lf_op(f, body, L_CONST, index, NULL, 0), width = lf_op(f, body, L_CONST, index, NULL, 0);
    f->blocks.data[1].stmts.data[1].imm = lanes;
    lreg i = lf_value(f, index);
    VEC_PUSH(&ctx->session, &f->blocks.data[inner.i].params, i);
    lreg at = lf_op(f, inner, L_MUL, index, (lreg[]){i, width}, 2), in[2];
    in[0] = lf_op(f, inner, L_LOAD, v, (lreg[]){x, at}, 2);
    in[1] = lf_op(f, inner, L_LOAD, v, (lreg[]){x2, at}, 2);
    lreg r = lf_math(f, inner, op, v, in, n_in);
    assert_int_not_equal(r.i, 0);
    lf_op(f, inner, L_STORE, v, (lreg[]){y, at, r}, 3);
    struct lstmt *s = lf_stmt(f, body, L_PARALLEL, (lreg[]){zero, n}, 2);
    s->block[0] = inner;
    if (!lf_finish(f))
        fail_msg("%s", loops_last_error(ctx));
    return f;
}

/* False: it ended with an error. */
static bool run(const struct lfunc *f, const void *x, const void *x2, void *y, size_t n, size_t size, uint32_t lanes)
{
    int64_t bytes = (int64_t)(n * size);
    struct linterp_arg args[] = {{.buffer = {(void *)(uintptr_t)x, bytes}},
                                 {.buffer = {(void *)(uintptr_t)x2, bytes}},
                                 {.buffer = {y, bytes}},
                                 {.index = (int64_t)(n / lanes)}};
    struct linterp_result r = lf_interpret(f, args, 0, (int64_t)(n / lanes), NULL);
    return !r.code;
}

static void run_right(const struct lfunc *f, const void *x, const void *x2, void *y, size_t n, size_t size,
                      uint32_t lanes)
{
    assert_true(run(f, x, x2, y, n, size, lanes));
}

/* ---- f32 --------------------------------------------------------------------------------------------------------- */

static double sigmoid(double x)
{
    return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}

static const struct {
    enum op op;
    double (*reference)(double);
    double ulps;
} unary_f32[] = {
    {OP_EXP, exp, 1},         {OP_EXPM1, expm1, 1.5},     {OP_LOG, log, 1},       {OP_LOG1P, log1p, 1},
    {OP_TANH, tanh, 2.5},     {OP_SIGMOID, sigmoid, 2.5}, {OP_ERF, erf, 2},       {OP_SIN, sin, 1.6},
    {OP_COS, cos, 1.6},       {OP_TAN, tan, 0.501},       {OP_ASIN, asin, 0.501}, {OP_ACOS, acos, 0.501},
    {OP_ATAN, atan, 0.501},   {OP_SINH, sinh, 0.501},     {OP_COSH, cosh, 0.501}, {OP_ASINH, asinh, 0.501},
    {OP_ACOSH, acosh, 0.501}, {OP_ATANH, atanh, 0.501},
};

/* Infinity stands for 2^128 when the other side is finite. */
static double ulps_f32(float got, double want)
{
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got) ? 0 : INFINITY;
    if (isinf((float)want) && isinf(got))
        return (got > 0) == (want > 0) ? 0 : INFINITY;
    if (got == 0 && want == 0)
        return !signbit(got) == !signbit(want) ? 0 : INFINITY;
    if (isinf(want) || fabs(want) > 0x1p129)
        return INFINITY;
    double finite = isinf(got) ? copysign(0x1p128, got) : got;
    int e;
    frexp(want, &e);
    return fabs(finite - want) * ldexp(1, 24 - (e < -125 ? -125 : e));
}

/* The worst of every stride-th float, and where it is; infinity: the function did not get through. */
static double worst_f32(const struct lfunc *f, size_t row, uint64_t stride, float *at, float *got)
{
    enum { CHUNK = 1 << 14 };
    static float x[CHUNK], y[CHUNK];
    double worst = 0;
    for (uint64_t bits = 0; bits <= UINT32_MAX;) {
        for (size_t i = 0; i < CHUNK; i++, bits += stride) {
            uint32_t b = (uint32_t)bits;
            memcpy(&x[i], &b, sizeof b);
        }
        if (!run(f, x, x, y, CHUNK, sizeof *x, LANES))
            return INFINITY;
        for (size_t i = 0; i < CHUNK; i++) {
            double u = ulps_f32(y[i], unary_f32[row].reference(x[i]));
            if (u > worst) {
                worst = u;
                *at = x[i];
                *got = y[i];
            }
        }
    }
    return worst;
}

static void check_unary_f32(struct context *ctx, size_t row, uint64_t stride)
{
    float at = 0, got = 0;
    double worst = worst_f32(math_kernel(ctx, unary_f32[row].op, ELEM_F32, LANES, 1), row, stride, &at, &got);
    print_message("%-8s f32: %.4f ulp at %a\n", op_name(unary_f32[row].op), worst, (double)at);
    if (worst > unary_f32[row].ulps)
        fail_msg("%s(%a) = %a: %g ulp", op_name(unary_f32[row].op), (double)at, (double)got, worst);
}

/* The axiom "functions" of mcc prove stands on these bounds: a statement that is changed breaks them, except for one in
 * twenty (a clamp, a product with a very small number). */
static void test_changed_statements(void **state)
{
    struct context *ctx = *state;
    uint32_t all = 0, left = 0;
    for (size_t row = 0; row <= 6; row++) {
        for (int64_t site = 0;; site++) {
            struct lfunc *f = math_kernel(ctx, unary_f32[row].op, ELEM_F32, LANES, 1);
            int64_t rest = site;
            float at, got;
            if (!lf_mutate(f, &rest))
                break;
            all++;
            if (worst_f32(f, row, 400009, &at, &got) <= unary_f32[row].ulps) {
                left++;
                print_message("%s: changed statement %d is within the bound\n", op_name(unary_f32[row].op), (int)site);
            }
        }
    }
    print_message("%u of %u changed statements are beyond the bound\n", all - left, all);
    assert_true(all >= 100 && left * 20 <= all);
}

static void test_unary_f32(void **state)
{
    uint64_t stride = getenv("MCC_EXHAUSTIVE") ? 1 : 40009; /* a prime: every exponent, all kinds of significands */
    for (size_t row = 0; row < COUNT_OF(unary_f32); row++)
        check_unary_f32(*state, row, stride);
}

/* ---- f64 --------------------------------------------------------------------------------------------------------- */

static long double sigmoidl(long double x)
{
    return x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x));
}

static const struct {
    enum op op;
    long double (*reference)(long double);
    double ulps;
} unary_f64[] = {
    {OP_EXP, expl, 1},     {OP_EXPM1, expm1l, 2},       {OP_LOG, logl, 1},     {OP_LOG1P, log1pl, 1},
    {OP_TANH, tanhl, 3},   {OP_SIGMOID, sigmoidl, 2.5}, {OP_ERF, erfl, 2},     {OP_SIN, sinl, 1},
    {OP_COS, cosl, 1},     {OP_TAN, tanl, 2.5},         {OP_ASIN, asinl, 2.5}, {OP_ACOS, acosl, 2},
    {OP_ATAN, atanl, 2.5}, {OP_SINH, sinhl, 3},         {OP_COSH, coshl, 2},   {OP_ASINH, asinhl, 2.5},
    {OP_ACOSH, acoshl, 3}, {OP_ATANH, atanhl, 2.5},
};

static double ulps_f64(double got, long double want)
{
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got) ? 0 : INFINITY;
    if (isinf((double)want) && isinf(got))
        return (got > 0) == (want > 0) ? 0 : INFINITY;
    if (got == 0 && want == 0)
        return !signbit(got) == !signbit(want) ? 0 : INFINITY;
    if (isinf(want) || isinf(got))
        return fabsl(want) > (long double)DBL_MAX * 0.999999999999999L && fabs(got) > 1e308 ? 0 : INFINITY;
    int e;
    frexpl(want, &e);
    return (double)(fabsl((long double)got - want) * ldexpl(1, 53 - (e < -1021 ? -1021 : e)));
}

static uint64_t next_random(uint64_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s * UINT64_C(0x2545f4914f6cdd1d);
}

/* Any bits, and numbers evenly spread over (-r, r) for several r. */
static double sample_f64(uint64_t *s, size_t i)
{
    static const double spread[] = {0, 1500, 40, 2.5, 0x1p22};
    uint64_t bits = next_random(s);
    double x;
    memcpy(&x, &bits, sizeof x);
    return i % 5 ? ((double)(bits >> 11) * 0x1p-52 - 1) * spread[i % 5] : x;
}

static void check_unary_f64(struct context *ctx, size_t row)
{
    enum { N = 1 << 15 };
    static double x[N], y[N];
    uint64_t seed = 88172645463325252u;
    for (size_t i = 0; i < N; i++)
        x[i] = sample_f64(&seed, i);
    run_right(math_kernel(ctx, unary_f64[row].op, ELEM_F64, LANES, 1), x, x, y, N, sizeof *x, LANES);
    double worst = 0;
    size_t at = 0;
    for (size_t i = 0; i < N; i++) {
        double u = ulps_f64(y[i], unary_f64[row].reference(x[i]));
        if (u > worst) {
            worst = u;
            at = i;
        }
    }
    print_message("%-8s f64: %.4f ulp at %a\n", op_name(unary_f64[row].op), worst, x[at]);
    if (worst > unary_f64[row].ulps)
        fail_msg("%s(%a) = %a: %g ulp", op_name(unary_f64[row].op), x[at], y[at], worst);
}

static void test_unary_f64(void **state)
{
    if (LDBL_MANT_DIG < 64)
        skip(); /* no better reference */
    for (size_t row = 0; row < COUNT_OF(unary_f64); row++)
        check_unary_f64(*state, row);
}

/* ---- two operands ------------------------------------------------------------------------------------------------ */

static const double corners[] = {0,
                                 -0.0,
                                 1,
                                 -1,
                                 2,
                                 -2,
                                 3,
                                 -3,
                                 0.5,
                                 -0.5,
                                 1.5,
                                 INFINITY,
                                 -INFINITY,
                                 NAN,
                                 1e10,
                                 -1e10,
                                 1e-10,
                                 -1e-10,
                                 0x1p53,
                                 0x1p-1060,
                                 0x1p1000,
                                 -0x1p1000,
                                 4503599627370497.0,
                                 -7,
                                 1e300,
                                 -1e-300,
                                 0x1p-126,
                                 0x1p127,
                                 100,
                                 -100,
                                 0.9999999,
                                 1.0000001};
enum { CORNERS = COUNT_OF(corners), PAIRS = 1 << 14 };

static void sample_pair(uint64_t *s, size_t i, double *a, double *b)
{
    if (i < (size_t)CORNERS * CORNERS) {
        *a = corners[i / CORNERS];
        *b = corners[i % CORNERS];
    } else if (i % 3 == 0) { /* moderate powers, quotients near one */
        *a = exp2(sample_f64(s, 3));
        *b = sample_f64(s, i % 2 ? 2 : 3);
    } else if (i % 3 == 1) {
        *a = (double)(next_random(s) % 4000) / 40 - 50;
        *b = (double)(next_random(s) % 64) - 32;
    } else {
        *a = sample_f64(s, 0);
        *b = sample_f64(s, 0);
    }
}

static void check_binary(struct context *ctx, enum op op, double (*f32)(double, double),
                         long double (*f64)(long double, long double), double ulps)
{
    static double a[PAIRS], b[PAIRS], y[PAIRS];
    static float fa[PAIRS], fb[PAIRS], fy[PAIRS];
    uint64_t seed = 88172645463325252u;
    for (size_t i = 0; i < PAIRS; i++) {
        sample_pair(&seed, i, &a[i], &b[i]);
        fa[i] = (float)a[i];
        fb[i] = (float)b[i];
    }
    run_right(math_kernel(ctx, op, ELEM_F64, LANES, 2), a, b, y, PAIRS, sizeof *a, LANES);
    run_right(math_kernel(ctx, op, ELEM_F32, LANES, 2), fa, fb, fy, PAIRS, sizeof *fa, LANES);
    for (size_t i = 0; i < PAIRS; i++) {
        double u = ulps_f64(y[i], f64(a[i], b[i])), fu = ulps_f32(fy[i], f32(fa[i], fb[i]));
        if (u > ulps && LDBL_MANT_DIG >= 64)
            fail_msg("f64 %s(%a, %a) = %a: %g ulp", op_name(op), a[i], b[i], y[i], u);
        if (fu > 0.501)
            fail_msg("f32 %s(%a, %a) = %a: %g ulp", op_name(op), (double)fa[i], (double)fb[i], (double)fy[i], fu);
    }
}

static void test_pow(void **state)
{
    check_binary(*state, OP_POW, pow, powl, 1.1);
}

static void test_atan2(void **state)
{
    check_binary(*state, OP_ATAN2, atan2, atan2l, 2.5);
}

/* ---- lanes ------------------------------------------------------------------------------------------------------- */

/* One lane, odd numbers of lanes and neighbours far from pi give the same bits as 64 lanes. */
static void test_lanes_are_independent(void **state)
{
    static const uint32_t widths[] = {1, 4, 16};
    enum { N = 256 };
    float x[N], y[N], z[N];
    for (size_t row = 0; row < COUNT_OF(unary_f32); row++) {
        for (size_t i = 0; i < N; i++)
            x[i] = (float)((double)i / 16 - 8) * (i % 37 == 0 ? 1e30f : 1);
        run_right(math_kernel(*state, unary_f32[row].op, ELEM_F32, LANES, 1), x, x, y, N, sizeof *x, LANES);
        for (size_t w = 0; w < COUNT_OF(widths); w++) {
            run_right(math_kernel(*state, unary_f32[row].op, ELEM_F32, widths[w], 1), x, x, z, N, sizeof *x, widths[w]);
            for (size_t i = 0; i < N; i++)
                assert_true(memcmp(&y[i], &z[i], sizeof *y) == 0 || (isnan(y[i]) && isnan(z[i])));
        }
    }
}

static void test_others_have_no_expansion(void **state)
{
    struct context *ctx = *state;
    struct lfunc *f = lf_new(ctx, &ctx->session, LROLE_KERNEL, "none");
    lreg x = lf_value(f, (struct ltype){ELEM_F32, 4});
    assert_int_equal(lf_math(f, (lblock){1}, OP_ADD, (struct ltype){ELEM_F32, 4}, (lreg[]){x, x}, 2).i, 0);
    assert_int_equal(lf_math(f, (lblock){1}, OP_EXP, (struct ltype){ELEM_F16, 4}, &x, 1).i, 0);
    assert_int_equal(lf_math(f, (lblock){1}, OP_POW, (struct ltype){ELEM_I32, 4}, (lreg[]){x, x}, 2).i, 0);
    assert_int_equal(lf_math(f, (lblock){1}, OP_EXP, (struct ltype){ELEM_F32, 4}, (lreg[]){x, x}, 2).i, 0);
}

/* ---- bounds of rounding ------------------------------------------------------------------------------------------ */

struct errors {
    const float *x[2];
    double in[2], out; /* of what is read, of what was written last */
};

static double read_error(void *user, enum elem elem, const void *at)
{
    const struct errors *e = user;
    (void)elem;
    return e->in[at == e->x[1]];
}

static void write_error(void *user, enum elem elem, void *at, double error)
{
    (void)elem, (void)at;
    ((struct errors *)user)->out = error;
}

static double near(double x, double distance)
{
    return distance == 0 ? x : x + distance; /* the same zero */
}

static double tan_of(double x, double y)
{
    (void)y;
    return tan(x);
}

/* What lies in the operands' intervals has results within the bound, and there is one unless the function jumps. */
static void test_errors_of_functions(void **state)
{
    static const struct {
        enum op op;
        double (*reference)(double, double);
        uint32_t n_in, least; /* bounds of 2,000 */
    } rows[] = {{OP_TAN, tan_of, 1, 1000}, {OP_POW, pow, 2, 900}, {OP_ATAN2, atan2, 2, 2000}};
    static const double scales[] = {0, 1e-6, 0.01, 0.5};
    struct context *ctx = *state;
    uint64_t seed = 3;
    ctx->function_marks = true;
    for (size_t row = 0; row < COUNT_OF(rows); row++) {
        struct lfunc *f = math_kernel(ctx, rows[row].op, ELEM_F32, 1, rows[row].n_in);
        uint32_t bounded = 0, wrong = 0;
        for (uint32_t i = 0; i < 2000; i++) {
            float x[2], y = NAN;
            struct errors e = {{&x[0], &x[1]}, {0, 0}, -1};
            for (uint32_t k = 0; k < 2; k++) {
                x[k] = (float)((double)(next_random(&seed) % 8001) / 1000 - 4);
                if (next_random(&seed) % 4 == 0)
                    x[k] = rintf(x[k]);
                e.in[k] = scales[next_random(&seed) % COUNT_OF(scales)] * (double)(next_random(&seed) % 100) / 50;
            }
            struct linterp_arg args[] = {{.buffer = {&x[0], sizeof x[0]}},
                                         {.buffer = {&x[1], sizeof x[1]}},
                                         {.buffer = {&y, sizeof y}},
                                         {.index = 1}};
            const struct linterp_host host = {.user = &e, .read_error = read_error, .write_error = write_error};
            assert_int_equal(lf_interpret(f, args, 0, 1, &host).code, 0);
            bounded += isfinite(e.out);
            for (uint32_t k = 0; k < 100 && isfinite(e.out); k++) { /* the first four are corners */
                const double a = k < 4 ? (k & 1) * 2.0 - 1 : (double)(next_random(&seed) % 2001) / 1000 - 1,
                             b = k < 4 ? (k >> 1) * 2.0 - 1 : (double)(next_random(&seed) % 2001) / 1000 - 1,
                             want = rows[row].reference(near(x[0], a * e.in[0]), near(x[1], b * e.in[1]));
                wrong += want != y && !(fabs(want - y) <= e.out * (1 + 1e-9)) && !(isnan(want) && isnan(y));
            }
        }
        print_message("%-8s f32: %u of 2000 have bounds\n", op_name(rows[row].op), bounded);
        assert_int_equal(wrong, 0);
        assert_true(bounded >= rows[row].least && (bounded < 2000 || rows[row].op == OP_ATAN2));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_unary_f32, loops_setup, loops_teardown),
        cmocka_unit_test_setup_teardown(test_changed_statements, loops_setup, loops_teardown),
        cmocka_unit_test_setup_teardown(test_unary_f64, loops_setup, loops_teardown),
        cmocka_unit_test_setup_teardown(test_pow, loops_setup, loops_teardown),
        cmocka_unit_test_setup_teardown(test_atan2, loops_setup, loops_teardown),
        cmocka_unit_test_setup_teardown(test_lanes_are_independent, loops_setup, loops_teardown),
        cmocka_unit_test_setup_teardown(test_errors_of_functions, loops_setup, loops_teardown),
        cmocka_unit_test_setup_teardown(test_others_have_no_expansion, loops_setup, loops_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
