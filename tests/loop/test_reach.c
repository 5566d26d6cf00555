/* lf_never: loops and branches that arguments in given ranges rule out, and those that they do not. */
#include <stdio.h>
#include <string.h>

#include "loops.h"

enum { BLOCKS = 8, TYPES = 64 };

/* "-" for each block that never runs, "+" for others, in their order, of the parallel loop first that of its first
 * index, then that of all others; %2 is in [lo, hi]. */
static void expect(struct context *ctx, const char *body, int64_t lo, int64_t hi, const char *blocks)
{
    const struct loop_range args[] = {{0, 0}, {0, 0}, {lo, hi}};
    struct loop_range scratch[TYPES];
    bool never[BLOCKS];
    char found[BLOCKS + 1] = {0}, text[2048];
    snprintf(text, sizeof text,
             "kernel @k {\n  arg %%0 : buffer f32 in\n  arg %%1 : buffer f32 out\n  arg %%2 : index\n"
             "  %%3 = const index 0\n  %%4 = const index 16\n%s}\n",
             body);
    struct lfunc *f = loops_load(ctx, text);
    assert_true(f->types.n <= TYPES);
    const uint32_t n = lf_never(f, args, scratch, never, BLOCKS);
    assert_int_equal(n, strlen(blocks));
    for (uint32_t i = 0; i < n; i++)
        found[i] = never[i] ? '-' : '+';
    assert_string_equal(found, blocks);
}

#define STORE "store %1[%3], %9\n"

static void test_loops(void **state)
{
    const char *body = "  %5 = floordiv index %2, %4\n  parallel %6 = %3 to %2 {\n    for %7 = %3 to %5 step 1 {\n"
                       "      %9 = load f32 %0[%7]\n      " STORE "    }\n  }\n";
    expect(*state, body, 0, 1, "+--");
    expect(*state, body, 0, 15, "++-");
    expect(*state, body, 0, 16, "+++");
    expect(*state, body, 0, 0, "---");
    expect(*state, body, INT64_MIN, 0, "---");
    expect(*state, body, INT64_MIN, INT64_MAX, "+++");
}

static void test_branches(void **state)
{
    const char *body = "  %5 = floormod index %2, %4\n  %6 = lt bool %3, %5\n  parallel %7 = %3 to %4 {\n    if %6 {\n"
                       "      %9 = load f32 %0[%7]\n      " STORE
                       "    } else {\n      %10 = load f32 %0[%3]\n      store "
                       "%1[%7], %10\n    }\n  }\n";
    expect(*state, body, 1, 15, "+++-");
    expect(*state, body, 0, 15, "++++");
    expect(*state, body, 0, 0, "++-+");
    expect(*state, body, 1, 16, "++++");
}

/* What may wrap around is any number. */
static void test_overflow(void **state)
{
    const char *body = "  %5 = mul index %2, %4\n  parallel %6 = %3 to %4 {\n    for %7 = %5 to %3 step 1 {\n"
                       "      %9 = load f32 %0[%3]\n      " STORE "    }\n  }\n";
    expect(*state, body, 0, 1 << 20, "++-");
    expect(*state, body, 0, INT64_MAX / 8, "+++");
}

/* The first index of a block of 1,024 is at most that of the extent. */
static void test_blocks(void **state)
{
    const char *body =
        "  %5 = const index 1024\n  parallel %6 = %3 to %4 {\n    %7 = mul index %6, %5\n    %8 = min index %2, %5\n"
        "    for %10 = %7 to %8 step 1 {\n      %9 = load f32 %0[%10]\n      " STORE "    }\n  }\n";
    expect(*state, body, 0, 0, "++-");
    expect(*state, body, 0, 1, "+++");
}

/* A bool of which nothing is known lets both branches run, and so does its negation. */
static void test_unknown_bools(void **state)
{
    const char *body = "  %5 = lt bool %3, %2\n  parallel %6 = %3 to %4 {\n    %9 = load f32 %0[%6]\n"
                       "    %10 = ne bool %9, %9\n    %11 = xor bool %10, %5\n    %12 = not bool %11\n"
                       "    if %11 {\n      " STORE "    } else {\n      " STORE "    }\n    if %12 {\n      " STORE
                       "    } else {\n      " STORE "    }\n  }\n";
    expect(*state, body, 1, 1, "++++++");
}

/* Each remainder of the parallel index is tried: blocks of 16, 16, 16 and 5 rows, four at a time, then two, then one.
 */
static void test_remainders(void **state)
{
    const char *body =
        "  %5 = const index 4\n  %10 = const index 53\n  %15 = const index 2\n  parallel %6 = %3 to %2 {\n"
        "    %9 = load f32 %0[%6]\n    %7 = floormod index %6, %5\n    %8 = mul index %7, %4\n"
        "    %11 = sub index %10, %8\n    %12 = min index %11, %4\n    %14 = floormod index %12, %5\n"
        "    %16 = floordiv index %14, %15\n    %17 = floormod index %14, %15\n"
        "    for %18 = %3 to %16 step 1 {\n      " STORE "    }\n    for %19 = %3 to %17 step 1 {\n      " STORE
        "    }\n  }\n";
    expect(*state, body, 1, INT64_MAX, "++-+");
    expect(*state, body, 1, 1, "+--+"); /* of an index only its remainder is known */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_loops, loops_setup, loops_teardown),
        cmocka_unit_test_setup_teardown(test_branches, loops_setup, loops_teardown),
        cmocka_unit_test_setup_teardown(test_overflow, loops_setup, loops_teardown),
        cmocka_unit_test_setup_teardown(test_blocks, loops_setup, loops_teardown),
        cmocka_unit_test_setup_teardown(test_remainders, loops_setup, loops_teardown),
        cmocka_unit_test_setup_teardown(test_unknown_bools, loops_setup, loops_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
