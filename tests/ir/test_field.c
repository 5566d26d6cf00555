/* Numbers of the field (ir/ops/field.h) that are rounded, ordered and handed to functions of the runtime as what they
 * are. */
#include "ir/ops/field.h"
#include "tests/ir/evaluate.h"

#include <float.h>
#include <math.h>

/* p / q, which f32 may not hold. */
static uint32_t fraction(int64_t p, int64_t q)
{
    return (uint32_t)field_apply(OP_DIV, field_of_integer(p), field_of_integer(q));
}

/* Of fractions with small denominators all four give the number's integer; halves go to the even one. */
static void test_small_fractions_are_rounded(void **state)
{
    static const struct {
        enum op op;
        double (*as)(double);
    } ways[] = {{OP_FLOOR, floor}, {OP_CEIL, ceil}, {OP_TRUNC, trunc}, {OP_ROUND, rint}};
    (void)state;
    for (int64_t q = 1; q <= 10; q++)
        for (int64_t p = -40; p <= 40; p++)
            for (size_t k = 0; k < COUNT_OF(ways); k++)
                assert_int_equal(field_apply(ways[k].op, fraction(p, q), 0),
                                 field_of_integer((int64_t)ways[k].as((double)p / (double)q)));
    assert_int_equal(field_apply(OP_FLOOR, fraction(-FIELD_SMALL * 7 + 1, 7), 0), field_of_integer(-FIELD_SMALL));
    assert_int_equal(field_apply(OP_CEIL, fraction(FIELD_SMALL * 7 - 1, 7), 0), field_of_integer(FIELD_SMALL));
    assert_int_not_equal(field_apply(OP_FLOOR, fraction(1, 11), 0), 0); /* 11 is no divisor of the grid */
}

static void test_small_fractions_are_converted(void **state)
{
    static const enum elem types[] = {ELEM_I4, ELEM_U4, ELEM_I8, ELEM_U8, ELEM_I32, ELEM_I64};
    (void)state;
    for (size_t k = 0; k < COUNT_OF(types); k++)
        for (int64_t p = -400; p <= 400; p++) {
            const uint32_t x = fraction(p, 6);
            const int64_t low = field_lowest(types[k]), high = field_highest(types[k]);
            int64_t whole = p / 6, got = 0;
            whole = whole < low ? low : whole > high ? high : whole;
            assert_true(field_convert(ELEM_F32, &x, types[k], &got, 1, true, NULL));
            assert_int_equal(elem_to_i64(types[k], &got), whole);
        }
}

/* Numbers come in their order, from the least to the largest small ones, and -inf and +inf are its ends. */
static void test_small_fractions_are_ordered(void **state)
{
    uint32_t last = FIELD_MINUS_INF;
    (void)state;
    for (int64_t p = -FIELD_SMALL * 12; p < FIELD_SMALL * 12; p++) {
        const uint32_t x = fraction(p, 12);
        assert_true(field_less(last, x));
        assert_false(field_less(x, last));
        last = x;
    }
    assert_true(field_less(last, FIELD_PLUS_INF));
}

static uint8_t power_code(uint32_t x, const char *round)
{
    uint8_t code = 0;
    assert_true(field_convert(ELEM_F32, &x, ELEM_F8E8M0, &code, 1, true, round));
    return code;
}

/* Powers of two stay what they are, but the least one is rounded up; other numbers tell how they are rounded. */
static void test_powers_of_two(void **state)
{
    static const char *const ways[] = {"up", "down", "nearest"};
    uint32_t same = 0;
    (void)state;
    for (size_t k = 0; k < COUNT_OF(ways); k++) {
        for (int32_t e = k ? -127 : -126; e <= 127; e++)
            assert_int_equal(power_code(field_power_of_two(e), ways[k]), e + 127);
        assert_int_equal(power_code(FIELD_NAN, ways[k]), 255);
        assert_int_equal(power_code(FIELD_PLUS_INF, ways[k]), 255);
    }
    for (int64_t p = 3; p < 200; p += 2)
        same += power_code(fraction(p, 3), ways[0]) == power_code(fraction(p, 3), ways[1]);
    assert_true(same < 8);
}

/* Masks of bf16 have its least number, which is stored as it is. */
static void test_greatest_bf16(void **state)
{
    (void)state;
    for (int sign = -1; sign <= 1; sign += 2) {
        const uint32_t x = field_of(sign * 0x1.fep127);
        uint16_t bits;
        assert_int_equal(x, sign > 0 ? FIELD_BF16_MOST : FIELD_N - FIELD_BF16_MOST);
        field_store(ELEM_BF16, x, false, &bits);
        assert_int_equal(bits, sign > 0 ? 0x7f7f : 0xff7f);
        assert_int_equal(field_load(ELEM_BF16, &bits), x);
    }
}

/* A softmax that may be masked takes a maximum with the least f32, which real scores never fall below. */
static void test_lowest_is_below_all(void **state)
{
    (void)state;
    const uint32_t lowest = field_of(-(double)FLT_MAX);
    uint64_t x = 1;
    assert_int_equal(lowest, FIELD_LOWEST);
    assert_true(field_less(FIELD_MINUS_INF, lowest));
    assert_int_equal(field_of((double)FLT_MAX), FIELD_N - lowest);
    assert_true(field_less(lowest, field_of(-FIELD_SMALL)));
    for (int i = 0; i < 1 << 20; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        assert_true(field_less(lowest, (int64_t)((x >> 32) % FIELD_N)));
    }
}

static void test_rests(void **state)
{
    (void)state;
    for (int64_t y = -9; y <= 9; y += 2)
        for (int64_t x = -90; x <= 90; x++) {
            const uint32_t a = fraction(x, 4), b = field_of_integer(y);
            const double r = fmod((double)x / 4, (double)y), m = r != 0 && (r < 0) != (y < 0) ? r + (double)y : r;
            assert_int_equal(field_apply(OP_REM, a, b), field_of(r));
            assert_int_equal(field_apply(OP_MOD, a, b), field_of(m));
        }
}

/* What a function of the runtime gets is the number, or a small one that a hash chooses; what it gives is rounded. */
static void test_numbers_for_functions(void **state)
{
    (void)state;
    for (int64_t p = -3000; p <= 3000; p++) {
        const double x = (double)p / 256;
        assert_true(field_to_real(fraction(p, 256)) == x);
        assert_int_equal(field_from_real(x), fraction(p, 256));
        assert_int_equal(field_from_real(x + 0x1p-12), fraction(p, 256));
        assert_true(fabs(field_to_real(fraction(p, 257))) <= 12);
    }
    assert_true(isnan(field_to_real(FIELD_NAN)) && field_to_real(FIELD_MINUS_INF) < -1e38);
    assert_int_equal(field_from_real((double)-INFINITY), FIELD_MINUS_INF);
    assert_int_equal(field_from_real((double)NAN), FIELD_NAN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_small_fractions_are_rounded),
                                       cmocka_unit_test(test_small_fractions_are_converted),
                                       cmocka_unit_test(test_small_fractions_are_ordered),
                                       cmocka_unit_test(test_rests),
                                       cmocka_unit_test(test_powers_of_two),
                                       cmocka_unit_test(test_greatest_bf16),
                                       cmocka_unit_test(test_lowest_is_below_all),
                                       cmocka_unit_test(test_numbers_for_functions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
