/* lf_settle_zeros: minimum and maximum of floats as comparisons and selections; text before and after. */
#include <string.h>

#include "loops.h"

#define HEAD                                                                               \
    "kernel @k {\n  arg %0 : buffer f32 in\n  arg %1 : buffer f32 out\n  arg %2 : index\n" \
    "  %3 = const index 0\n  parallel %4 = %3 to %2 {\n"
#define TAIL "  }\n}\n"

static void expect(struct context *ctx, const char *before, const char *after)
{
    struct lfunc *f = loops_load(ctx, before);
    lf_settle_zeros(f);
    assert_true(lf_finish(f));
    assert_string_equal(loops_print(ctx, f), loops_print(ctx, loops_load(ctx, after)));
}

static void test_nan_of_the_first_operand_is_selected(void **state)
{
    expect(*state,
           HEAD "    %5 = load f32x4 %0[%4]\n    %6 = load f32x4 %1[%4]\n    %7 = max f32x4 %5, %6\n"
                "    store %1[%4], %7\n" TAIL,
           HEAD "    %5 = load f32x4 %0[%4]\n    %6 = load f32x4 %1[%4]\n    %8 = ne boolx4 %5, %5\n"
                "    %9 = maxnum f32x4 %5, %6\n    %7 = select f32x4 %8, %5, %9\n    store %1[%4], %7\n" TAIL);
}

static void test_numbers_come_first(void **state)
{
    expect(*state,
           HEAD "    %5 = load f32 %0[%4]\n    %6 = const f32 0x0p+0\n    %7 = min f32 %5, %6\n"
                "    %8 = max f32 %6, %7\n    store %1[%4], %8\n" TAIL,
           HEAD "    %5 = load f32 %0[%4]\n    %6 = const f32 0x0p+0\n    %7 = minnum f32 %6, %5\n"
                "    %8 = maxnum f32 %6, %7\n    store %1[%4], %8\n" TAIL);
    expect(*state, /* NaN is none */
           HEAD "    %5 = load f32 %0[%4]\n    %6 = const f32 nan\n    %7 = min f32 %5, %6\n"
                "    store %1[%4], %7\n" TAIL,
           HEAD "    %5 = load f32 %0[%4]\n    %6 = const f32 nan\n    %8 = ne bool %5, %5\n"
                "    %9 = minnum f32 %5, %6\n    %7 = select f32 %8, %5, %9\n    store %1[%4], %7\n" TAIL);
}

static void test_lanes_are_folded_by_halves(void **state)
{
    expect(*state, HEAD "    %5 = load f32x4 %0[%4]\n    %6 = hreduce f32 max %5\n    store %1[%4], %6\n" TAIL,
           HEAD "    %5 = load f32x4 %0[%4]\n    %7 = shuffle f32x2 %5, %5 [0, 1]\n"
                "    %8 = shuffle f32x2 %5, %5 [2, 3]\n    %9 = ne boolx2 %7, %7\n    %10 = maxnum f32x2 %7, %8\n"
                "    %11 = select f32x2 %9, %7, %10\n    %12 = extract f32 %11 lane 0\n"
                "    %13 = extract f32 %11 lane 1\n    %14 = ne bool %12, %12\n    %15 = maxnum f32 %12, %13\n"
                "    %6 = select f32 %14, %12, %15\n    store %1[%4], %6\n" TAIL);
}

static void test_others_stay(void **state)
{
    const char *kept = HEAD "    %5 = load f32x4 %0[%4]\n    %6 = hreduce f32 add %5\n    %7 = max index %4, %2\n"
                            "    %8 = maxnum f32 %6, %6\n    store %1[%7], %8\n" TAIL;
    expect(*state, kept, kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_nan_of_the_first_operand_is_selected, loops_setup, loops_teardown),
        cmocka_unit_test_setup_teardown(test_numbers_come_first, loops_setup, loops_teardown),
        cmocka_unit_test_setup_teardown(test_lanes_are_folded_by_halves, loops_setup, loops_teardown),
        cmocka_unit_test_setup_teardown(test_others_stay, loops_setup, loops_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
