/* Conversions and scalar arithmetic: exhaustive over the narrow formats, tables of the corners. */
#include "tests/ir/evaluate.h"

#include <math.h>
#include <string.h>

/* Every bit pattern of a narrow float survives the way to f64, f32 and back; NaNs stay NaNs. */
static void test_round_trips(void **state)
{
    static const enum elem elems[] = {ELEM_F16,        ELEM_BF16,   ELEM_F8E4M3FN,
                                      ELEM_F8E4M3FNUZ, ELEM_F8E5M2, ELEM_F8E5M2FNUZ};
    (void)state;
    for (size_t k = 0; k < COUNT_OF(elems); k++) {
        uint32_t n = elem_size(elems[k]) == 2 ? 65536 : 256;
        for (uint32_t bits = 0; bits < n; bits++) {
            uint32_t from = bits, via_double = 0, via_float = 0;
            float f;
            double x = elem_to_f64(elems[k], &from);
            elems_convert(elems[k], &from, ELEM_F32, &f, 1, false, "even");
            elems_convert(ELEM_F64, &x, elems[k], &via_double, 1, false, "even");
            elems_convert(ELEM_F32, &f, elems[k], &via_float, 1, false, "even");
            if (isnan(x)) {
                assert_true(isnan(f) && isnan(elem_to_f64(elems[k], &via_double)) &&
                            isnan(elem_to_f64(elems[k], &via_float)));
                continue;
            }
            assert_true((double)f == x);
            assert_int_equal(via_double, bits);
            assert_int_equal(via_float, bits);
        }
    }
}

/* f32 -> f16 and bf16: the bit code against rounding by definition, near every boundary. */
static void test_narrowing(void **state)
{
    static const enum elem elems[] = {ELEM_F16, ELEM_BF16};
    (void)state;
    for (size_t k = 0; k < COUNT_OF(elems); k++)
        for (uint64_t i = 0; i < 1 << 20; i++) {
            uint32_t bits = (uint32_t)(i << 12) + (uint32_t)(i * 2654435761u >> 20) % 3 -
                            1;    /* halves and their neighbours */
            float f;
            uint16_t fast = 0, slow = 0;
            memcpy(&f, &bits, sizeof f);
            double x = f;
            elems_convert(ELEM_F32, &f, elems[k], &fast, 1, true, "even");
            elems_convert(ELEM_F64, &x, elems[k], &slow, 1, true, "even");
            if (isnan(f))
                assert_true(isnan(elem_to_f64(elems[k], &fast)));
            else
                assert_int_equal(fast, slow);
        }
}

struct corner {
    double x;
    uint8_t saturated, plain;
};

static void check_corners(enum elem elem, const struct corner *c, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint8_t a = 0, b = 0;
        float f = (float)c[i].x;
        elems_convert(ELEM_F32, &f, elem, &a, 1, true, "even");
        elems_convert(ELEM_F32, &f, elem, &b, 1, false, "even");
        if (a != c[i].saturated || b != c[i].plain)
            fail_msg("%s: %g gives %02x and %02x", elem_name(elem), c[i].x, a, b);
    }
}

/* Values of ONNX Cast-24's table and the ties next to them. */
static void test_float8(void **state)
{
    static const struct corner e4m3fn[] = {
        {NAN, 0x7f, 0x7f}, {INFINITY, 0x7e, 0x7f}, {-INFINITY, 0xfe, 0xff}, {1e9, 0x7e, 0x7f},  {-0.0, 0x80, 0x80},
        {448, 0x7e, 0x7e}, {464, 0x7e, 0x7e},      {465, 0x7e, 0x7f},       {0.25, 0x28, 0x28}, {17, 0x58, 0x58},
        {19, 0x5a, 0x5a},  {0.0009765625, 0, 0},   {0.001, 1, 1},
    };
    static const struct corner e4m3fnuz[] = {
        {NAN, 0x80, 0x80}, {INFINITY, 0x7f, 0x80}, {-1e9, 0xff, 0x80}, {-0.0, 0, 0},
        {-1e-9, 0, 0},     {240, 0x7f, 0x7f},      {248, 0x7f, 0x80},  {0.25, 0x30, 0x30},
    };
    static const struct corner e5m2[] = {
        {NAN, 0x7e, 0x7e},  {INFINITY, 0x7b, 0x7c}, {-1e9, 0xfb, 0xfc}, {61439, 0x7b, 0x7b}, {61440, 0x7b, 0x7c},
        {-0.0, 0x80, 0x80}, {0.75, 0x3a, 0x3a},     {464, 0x5f, 0x5f},  {480, 0x60, 0x60},
    };
    static const struct corner e5m2fnuz[] = {
        {NAN, 0x80, 0x80},   {INFINITY, 0x7f, 0x80}, {61439, 0x7f, 0x7f},
        {61440, 0x7f, 0x80}, {-0.0, 0, 0},           {0.75, 0x3e, 0x3e},
    };
    static const struct corner e2m1[] = {
        {6.9, 7, 7}, {-1e9, 15, 15}, {INFINITY, 7, 7}, {0.25, 0, 0}, {0.75, 2, 2}, {-0.0, 8, 8}, {2.5, 4, 4}, {5, 6, 6},
    };
    (void)state;
    check_corners(ELEM_F8E4M3FN, e4m3fn, COUNT_OF(e4m3fn));
    check_corners(ELEM_F8E4M3FNUZ, e4m3fnuz, COUNT_OF(e4m3fnuz));
    check_corners(ELEM_F8E5M2, e5m2, COUNT_OF(e5m2));
    check_corners(ELEM_F8E5M2FNUZ, e5m2fnuz, COUNT_OF(e5m2fnuz));
    check_corners(ELEM_F4E2M1, e2m1, COUNT_OF(e2m1));
}

static void test_e8m0(void **state)
{
    static const struct {
        double x;
        const char *round;
        uint8_t want;
    } rows[] = {
        {1, "even", 127},    {1.5, "even", 128}, {1.49, "even", 127},   {1.01, "up", 128},   {1.99, "down", 127},
        {3, "nearest", 129}, {NAN, "up", 255},   {INFINITY, "up", 255}, {3.4e38, "up", 254}, {0, "up", 0},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        uint8_t got = 0;
        float f = (float)rows[i].x;
        elems_convert(ELEM_F32, &f, ELEM_F8E8M0, &got, 1, true, rows[i].round);
        if (got != rows[i].want)
            fail_msg("%g rounded %s gives %u, not %u", rows[i].x, rows[i].round, got, rows[i].want);
    }
    uint8_t one = 128;
    assert_true(elem_to_f64(ELEM_F8E8M0, &one) == 2);
}

/* Floats saturate, integers wrap, and sub-byte integers keep their sign. */
static void test_integers(void **state)
{
    static const struct {
        const char *from;
        const char *to;
    } rows[] = {
        {"f32 5: -9.6 7.9 8 nan inf", "i4 5: -8 7 7 0 7"},
        {"f32 4: -1 3.9 4 15", "u2 4: 0 3 3 3"},
        {"i32 4: 7 8 -8 -9", "i4 4: 7 -8 -8 7"},
        {"i32 3: 1 2 3", "i2 3: 1 -2 -1"},
        {"i64 2: 4294967297 -1", "i32 2: 1 -1"},
        {"i8 1: -1", "u64 1: 18446744073709551615"},
        {"u64 1: 18446744073709551615", "f32 1: 1.8446744e19"},
        {"f64 2: 1e30 -1e30", "i64 2: 9223372036854775807 -9223372036854775808"},
        {"f64 2: 1e30 -1", "u64 2: 18446744073709551615 0"},
        {"i4 3: -8 7 0", "bool 3: 1 1 0"},
        {"bool 2: 1 0", "f16 2: 1 0"},
        {"i64 1: 2049", "f16 1: 2048"},
    };
    (void)state;
    struct context *ctx = context_new();
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct tensor a = tensor_parse(ctx, rows[i].from), b = tensor_parse(ctx, rows[i].to);
        elems_convert(a.elem, a.data, b.elem, b.data, (size_t)a.dims[0], true, "even");
        tensor_expect(ctx, rows[i].from, &b, rows[i].to);
    }
    /* 2^60 + 2^7 + 1 sits just above the middle of two floats: rounding through double would lose it */
    int64_t v = ((int64_t)1 << 60) + ((int64_t)1 << 36) + 1;
    float f;
    elems_convert(ELEM_I64, &v, ELEM_F32, &f, 1, true, "even");
    assert_true(f == 0x1p60f + 0x1p37f);
    context_free(ctx);
}

static void test_scalar_status(void **state)
{
    int32_t a = 5, zero = 0, out = 0;
    float x = 1, r = 0;
    const void *ints[2] = {&a, &zero}, *floats[2] = {&x, &x};
    (void)state;
    assert_int_equal(scalar_eval(OP_MOD, ELEM_I32, ints, &out), EVAL_VALUE);
    assert_int_equal(scalar_eval(OP_SHL, ELEM_F32, floats, &r), EVAL_UNSUPPORTED);
    assert_int_equal(scalar_eval(OP_EXP, ELEM_I32, ints, &out), EVAL_UNSUPPORTED);
    assert_int_equal(scalar_eval(OP_ADD, ELEM_F32, floats, &r), EVAL_OK);
    assert_true(r == 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trips), cmocka_unit_test(test_narrowing), cmocka_unit_test(test_float8),
        cmocka_unit_test(test_e8m0),        cmocka_unit_test(test_integers),  cmocka_unit_test(test_scalar_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
