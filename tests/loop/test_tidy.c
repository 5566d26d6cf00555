/* lf_tidy: what it merges, what it drops, and what it must leave alone; text before and after. */
#include <string.h>

#include "loops.h"

static void expect(struct context *ctx, const char *before, const char *after)
{
    struct lfunc *f = loops_load(ctx, before);
    lf_tidy(f);
    assert_true(lf_finish(f));
    assert_string_equal(loops_print(ctx, f), loops_print(ctx, loops_load(ctx, after)));
}

#define HEAD                                                                               \
    "kernel @k {\n  arg %0 : buffer f32 in\n  arg %1 : buffer f32 out\n  arg %2 : index\n" \
    "  %3 = const index 0\n  parallel %4 = %3 to %2 {\n"
#define TAIL "  }\n}\n"

static void test_equal_statements_are_one(void **state)
{
    expect(
        *state,
        HEAD
        "    %5 = add index %4, %2\n    %6 = add index %2, %4\n    %7 = load f32 %0[%5]\n    store %1[%6], %7\n" TAIL,
        HEAD "    %5 = add index %4, %2\n    %7 = load f32 %0[%5]\n    store %1[%5], %7\n" TAIL);
    expect(
        *state,   /* different constants, and operands in an order that matters */
        HEAD
        "    %5 = sub index %4, %2\n    %6 = sub index %2, %4\n    %7 = load f32 %0[%5]\n    store %1[%6], %7\n" TAIL,
        HEAD
        "    %5 = sub index %4, %2\n    %6 = sub index %2, %4\n    %7 = load f32 %0[%5]\n    store %1[%6], %7\n" TAIL);
}

static void test_unused_statements_go(void **state)
{
    expect(*state,
           HEAD
           "    %5 = add index %4, %2\n    %6 = mul index %5, %5\n    %8 = load f32 %0[%6]\n    %7 = load f32 %0[%4]\n"
           "    store %1[%4], %7\n" TAIL,
           HEAD "    %7 = load f32 %0[%4]\n    store %1[%4], %7\n" TAIL);
}

static void test_narrow_floats_and_back(void **state)
{
    const char *kept = HEAD
        "    %5 = load f32 %0[%4]\n    %6 = convert bf16 %5\n    %7 = convert bf16 %5 round \"normal\"\n"
        "    %8 = convert f32 %6\n    %9 = convert f32 %7\n    %10 = add f32 %8, %9\n"
        "    store %1[%4], %10\n" TAIL;
    expect(*state, kept, kept);
    expect(*state,
           HEAD
           "    %5 = load f32 %0[%4]\n    %6 = convert bf16 %5\n    %7 = convert f32 %6\n    %8 = convert bf16 %7\n"
           "    %9 = convert f32 %8\n    store %1[%4], %9\n" TAIL,
           HEAD
           "    %5 = load f32 %0[%4]\n    %6 = convert bf16 %5\n    %7 = convert f32 %6\n    store %1[%4], %7\n" TAIL);
}

/* A load is not the load before a store, and what one block has computed is not there in the next. */
static void test_memory_and_blocks(void **state)
{
    const char *loads = HEAD
        "    %5 = load f32 %1[%4]\n    store %1[%3], %5\n    %6 = load f32 %1[%4]\n    store %1[%4], %6\n" TAIL;
    const char *blocks = HEAD
        "    %5 = lt bool %4, %2\n    if %5 {\n      %6 = add index %4, %2\n      %7 = load f32 %0[%6]\n"
        "      store %1[%4], %7\n    }\n    if %5 {\n      %8 = add index %4, %2\n      %9 = load f32 %0[%8]\n"
        "      store %1[%3], %9\n    }\n" TAIL;
    expect(*state, loads, loads);
    expect(*state, blocks, blocks);
}

static void test_loops(void **state)
{
    const char *kept = HEAD "    %5 = const f32 0x0p+0\n    %6 = const index 4\n"
                            "    %10 = for %7 = %3 to %6 step 1 carry(%8 = %5) {\n      %9 = load f32 %0[%7]\n"
                            "      %11 = add f32 %8, %9\n      yield %11\n    }\n    store %1[%4], %10\n" TAIL;
    expect(*state, kept, kept);
    expect(
        *state,   /* nobody wants its result */
        HEAD
        "    %5 = const f32 0x0p+0\n    %6 = const index 4\n    %10 = for %7 = %3 to %6 step 1 carry(%8 = %5) {\n"
        "      %9 = load f32 %0[%7]\n      %11 = add f32 %8, %9\n      yield %11\n    }\n    store %1[%4], %5\n" TAIL,
        HEAD "    %5 = const f32 0x0p+0\n    store %1[%4], %5\n" TAIL);
}

static void test_checks_stay(void **state)
{
    const char *text = HEAD "    %5 = lt bool %4, %2\n    check %5 code -9 node 3 \"too far\"\n" TAIL;
    expect(*state, text, text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_equal_statements_are_one, loops_setup, loops_teardown),
        cmocka_unit_test_setup_teardown(test_narrow_floats_and_back, loops_setup, loops_teardown),
        cmocka_unit_test_setup_teardown(test_unused_statements_go, loops_setup, loops_teardown),
        cmocka_unit_test_setup_teardown(test_memory_and_blocks, loops_setup, loops_teardown),
        cmocka_unit_test_setup_teardown(test_loops, loops_setup, loops_teardown),
        cmocka_unit_test_setup_teardown(test_checks_stay, loops_setup, loops_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
