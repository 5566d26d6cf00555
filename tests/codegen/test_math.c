/* The vector mathematics as machine code against the interpreter, bit for bit where the target fuses multiplications.
 * How good the results are, tests/loop/test_math.c measures on samples.
 *
 *   test_math --every OP [STRIDE]     the machine code on every float (of which STRIDE takes some) against libm's
 * double: fails beyond the bound that docs/notes/accuracy.md states (make check-math)
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness.h"

enum { COUNT = 40 };

static const enum op unary[] = {OP_EXP, OP_EXPM1, OP_LOG,  OP_LOG1P, OP_TANH, OP_SIGMOID, OP_ERF,   OP_SIN,   OP_COS,
                                OP_TAN, OP_ASIN,  OP_ACOS, OP_ATAN,  OP_SINH, OP_COSH,    OP_ASINH, OP_ACOSH, OP_ATANH};
static const enum op binary[] = {OP_POW, OP_ATAN2};

/* Bits at random seldom lie where a function is interesting: every other vector is scaled into (-8, 8). */
static void tame(struct kernel_case *k, uint32_t arg, enum elem elem)
{
    int64_t n = k->arg[arg].bytes / elem_size(elem);
    for (int64_t i = 0; i < n; i += 2) {
        char *at = (char *)k->arg[arg].data + i * elem_size(elem);
        elem_from_f64(elem, (double)(i % 97) / 6 - 8, at);
    }
}

static void add_case(struct suite *s, enum op op, uint32_t n_in, enum elem elem, uint32_t lanes)
{
    char name[64];
    struct ltype t = {elem, lanes};
    lreg in[2], i;
    snprintf(name, sizeof name, "%s_%s_%u", op_name(op), elem_name(elem), lanes);
    struct kernel_case *k = case_new(s, name);
    k->count = COUNT;
    k->unfused = true;
    for (uint32_t j = 0; j < 2; j++) {
        in[j] = case_buffer(s, k, elem, LARG_IN, COUNT * lanes);
        tame(k, j, elem);
    }
    lreg out = case_buffer(s, k, elem, LARG_OUT, COUNT * lanes);
    struct build b = case_parallel(k, &i);
    lreg at = op2(b, L_MUL, TINDEX, i, index_of(b, lanes));
    for (uint32_t j = 0; j < 2; j++)
        in[j] = load(b, t, in[j], at);
    lreg r = lf_math(b.f, b.b, op, t, in, n_in);
    assert_int_not_equal(r.i, 0);
    store(b, out, at, r);
}

static void run_all(enum elem elem, uint32_t lanes)
{
    struct suite *s = suite_new();
    for (size_t i = 0; i < COUNT_OF(unary); i++)
        add_case(s, unary[i], 1, elem, lanes);
    for (size_t i = 0; i < COUNT_OF(binary); i++)
        add_case(s, binary[i], 2, elem, lanes);
    suite_run(s);
    suite_free(s);
}

static void test_f32_vector(void **state)
{
    (void)state;
    run_all(ELEM_F32, 16);
}

static void test_f32_scalar(void **state)
{
    (void)state;
    run_all(ELEM_F32, 1);
}

static void test_f64_vector(void **state)
{
    (void)state;
    run_all(ELEM_F64, 8);
}

/* ---- every float ------------------------------------------------------------------------------------------------- */

static double sigmoid(double x)
{
    return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}

static const struct bound {
    enum op op;
    double (*reference)(double);
    double ulps;
} bounds[] = {{OP_EXP, exp, 1},           {OP_LOG, log, 1},   {OP_TANH, tanh, 2.5},
              {OP_SIGMOID, sigmoid, 2.5}, {OP_ERF, erf, 2},   {OP_EXPM1, expm1, 1.5},
              {OP_LOG1P, log1p, 1},       {OP_SIN, sin, 1.6}, {OP_COS, cos, 1.6}};
static const struct bound *every; /* what the hook measures */
static uint64_t stride = 1;
static bool measured; /* all variants that fuse give the same bits: one is enough */

/* An ULP is the distance of floats at the exact result; infinity stands for 2^128 beside a finite number. */
static double ulps(float got, double want)
{
    int e;
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got) ? 0 : INFINITY;
    if (isinf((float)want) && isinf(got))
        return (got > 0) == (want > 0) ? 0 : INFINITY;
    if (isinf(want) || fabs(want) > 0x1p129)
        return INFINITY;
    frexp(want, &e);
    return fabs((isinf(got) ? copysign(0x1p128, got) : got) - want) * ldexp(1, 24 - (e < -125 ? -125 : e));
}

static void measure(int64_t count, mcc_rt_fn *fn, const int64_t *args, const char *cpu)
{
    float *x = (float *)(intptr_t)args[0];
    const float *y = (const float *)(intptr_t)args[2];
    size_t n = (size_t)count * 16;
    double worst = 0;
    float at = 0;
    if (measured || strcmp(cpu, __builtin_cpu_supports("x86-64-v4") ? "x86-64-v4" : "x86-64-v3") != 0)
        return;
    measured = true;
    for (uint64_t bits = 0; bits <= UINT32_MAX;) {
        for (size_t i = 0; i < n; i++, bits += stride) {
            uint32_t b = (uint32_t)bits;
            memcpy(&x[i], &b, sizeof b);
        }
        fn(args, 0, count, NULL, NULL);
        for (size_t i = 0; i < n; i++) {
            double u = ulps(y[i], every->reference(x[i]));
            if (u > worst) {
                worst = u;
                at = x[i];
            }
        }
    }
    printf("%-8s %s: at most %.4f ulp, at %a; stated: %g\n", op_name(every->op), cpu, worst, (double)at, every->ulps);
    fflush(stdout);
    if (worst > every->ulps)
        fail_msg("%s: %g ulp", op_name(every->op), worst);
}

static void test_every(void **state)
{
    (void)state;
    struct suite *s = suite_new();
    add_case(s, every->op, 1, ELEM_F32, 16);
    s->cases.data[0].hook = measure;
    suite_run(s);
    suite_free(s);
    assert_true(measured); /* on a CPU without fused multiplications nothing is stated */
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_f32_vector), cmocka_unit_test(test_f32_scalar),
                                       cmocka_unit_test(test_f64_vector)};
    const struct CMUnitTest all[] = {cmocka_unit_test(test_every)};
    if (argc > 1 && strcmp(argv[1], "--worker") == 0)
        return codegen_worker();
    if (argc < 3 || strcmp(argv[1], "--every") != 0)
        return cmocka_run_group_tests(tests, NULL, NULL);
    for (size_t i = 0; i < COUNT_OF(bounds); i++)
        if (strcmp(op_name(bounds[i].op), argv[2]) == 0)
            every = &bounds[i];
    stride = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    if (!every || !stride) {
        fprintf(stderr, "no bound is stated for %s\n", argv[2]);
        return 2;
    }
    return cmocka_run_group_tests(all, NULL, NULL);
}
