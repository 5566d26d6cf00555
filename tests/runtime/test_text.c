/* Numbers as text beside the C library: drawn bits, and the forms that Cast reads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/rt_internal.h"
#include "runtime/ops/rt_ops.h"
#include "tests/runtime/models.h"

static mcc_model *model;
static mcc_ctx *ctx;

static int setup(void **state)
{
    (void)state;
    return mcc_rt_open(NULL, &model, NULL) || mcc_rt_ctx_new(model, NULL, 0, &ctx, NULL);
}

static int teardown(void **state)
{
    (void)state;
    rt_run_end(ctx);     /* what the texts took */
    mcc_rt_ctx_free(ctx);
    mcc_rt_close(model);
    return 0;
}

/* A positive number, of any size with subnormals among them, or near the first ones. */
static double draw(uint64_t *seed)
{
    uint64_t bits = *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    bits ^= bits >> 29;
    bits &= bits % 5 == 0 ? ~(uint64_t)0 >> 12 : ~(uint64_t)0 >> 1;
    double x;
    memcpy(&x, &bits, sizeof x);
    return isfinite(x) ? x : (double)(bits % 100000) / 64;
}

static int64_t parse(int64_t elem, const char *text, void *out)
{
    const struct rt_string s = {text, strlen(text)};
    return mcc_rt_str_parse(&ctx->run, 0, elem, &s, 1, out);
}

static void test_writes(void **state)
{
    uint64_t seed = 1;
    (void)state;
    for (int i = 0; i < 20000; i++) {
        char want[40];
        struct rt_string got;
        double x = i % 3 ? draw(&seed) : round(draw(&seed) * 1e4) / 1e4;
        x = i % 2 ? x : -x;
        x = i == 0 || !isfinite(x) ? 0.0 : i == 2 ? -0.0 : x;
        snprintf(want, sizeof want, "%.8g", x);
        assert_int_equal(mcc_rt_str_format(&ctx->run, RT_ELEM_F64, &x, 1, &got), 0);
        if (got.bytes != strlen(want) || memcmp(got.utf8, want, got.bytes))
            fail_msg("%a: %s, not %.*s", x, want, (int)got.bytes, got.utf8);
    }
}

static void test_reads(void **state)
{
    static const char *const forms[] = {"%.17g", "%.25e", "%.3f", "%.9e", " %.6E\n", "+%.40f"};
    uint64_t seed = 7;
    (void)state;
    for (int i = 0; i < 20000; i++) {
        char text[800], *end;
        double x = draw(&seed), got;
        snprintf(text, sizeof text, forms[i % 6], x);
        double want = strtod(text, &end);
        assert_int_equal(parse(RT_ELEM_F64, text, &got), 0);
        if (memcmp(&got, &want, sizeof got))
            fail_msg("%s: %a, not %a", text, want, got);
    }
}

/* Halfway between two numbers, and the digit that decides far behind. */
static void test_reads_ties(void **state)
{
    uint64_t seed = 3;
    (void)state;
    for (int i = 0; i < 2000; i++) {
        char text[2000];
        double x = i % 2 ? ldexp(draw(&seed), -1022) : 1 + ldexp((double)(i % 4096), -52), got;
        long double half = ((long double)x + (long double)nextafter(x, INFINITY)) / 2;
        int n = snprintf(text, sizeof text, "%.1090Lf", half);
        if (i % 3)
            strcpy(text + n, i % 3 == 1 ? "1" : "0");
        double want = strtod(text, NULL);
        assert_int_equal(parse(RT_ELEM_F64, text, &got), 0);
        if (memcmp(&got, &want, sizeof got))
            fail_msg("%s: %a, not %a", text, want, got);
    }
}

static void test_forms(void **state)
{
    static const char *const bad[] = {"",   " ",  "abc",  "1.5abc", "--1", "1 2",  ".",
                                      "e5", "1e", "0x10", "nan(1)", "1,5", "infin"};
    static const struct {
        const char *text;
        int64_t want;
    } integers[] = {
        {"9223372036854775807", INT64_MAX},
        {"-9223372036854775808", INT64_MIN},
        {" +17\t", 17},
        {"-2.99", -2},
        {"1e3", 1000},
        {"12345e-3", 12},
        {".5", 0},
        {"0", 0},
        {"00012", 12},
        {"-0", 0},
    };
    double f;
    int64_t i;
    uint64_t u;
    (void)state;
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
        assert_int_equal(parse(RT_ELEM_F64, bad[k], &f), MCC_E_VALUE);
    for (size_t k = 0; k < sizeof integers / sizeof *integers; k++) {
        assert_int_equal(parse(RT_ELEM_I64, integers[k].text, &i), 0);
        assert_true(i == integers[k].want);
    }
    assert_int_equal(parse(RT_ELEM_I64, "9223372036854775808", &i), MCC_E_VALUE);
    assert_int_equal(parse(RT_ELEM_U64, "18446744073709551615", &u), 0);
    assert_true(u == UINT64_MAX);
    assert_int_equal(parse(RT_ELEM_U64, "18446744073709551616", &u), MCC_E_VALUE);
    assert_int_equal(parse(RT_ELEM_U64, "1e300", &u), MCC_E_VALUE);
    assert_int_equal(parse(RT_ELEM_U64, "inf", &u), MCC_E_VALUE);
    assert_int_equal(parse(RT_ELEM_F64, "-InF", &f), 0);
    assert_true(isinf(f) && f < 0);
    assert_int_equal(parse(RT_ELEM_F64, "NaN", &f), 0);
    assert_true(isnan(f));
    assert_int_equal(parse(RT_ELEM_F64, "1e99999999999", &f), 0);
    assert_true(isinf(f));
    assert_int_equal(parse(RT_ELEM_F64, "-1e-99999999999", &f), 0);
    assert_true(f == 0 && signbit(f));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_writes),
        cmocka_unit_test(test_reads),
        cmocka_unit_test(test_reads_ties),
        cmocka_unit_test(test_forms),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
