/* mcc inspect --threads: what a launch takes with so many threads, against times reckoned by hand: 500 ns for the
 * launch, 100 for each claim. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli/commands/artifact/bound.h"

static void test_alone(void **state)
{
    (void)state;
    assert_true(bound_launch(0, 1000, 4) == 0);
    assert_true(bound_launch(4, 1000, 4) == 4000); /* below AWAKE_NS */
    assert_true(bound_launch(1, 1000000, 64) == 1000000);
    assert_true(bound_launch(1000, 1000, 1) == 1000000);
}

static void test_shared(void **state)
{
    (void)state;
    /* Chunks of 30 indices, 50 for each: 30, then 20. */
    assert_true(bound_launch(100, 100, 2) == 500 + 100 + 3000 + 100 + 2000);
    /* Two chunks of 3 us, the least. */
    assert_true(bound_launch(6, 1000, 2) == 500 + 100 + 3000);
    /* One and two indices; the first thread takes the third one. */
    assert_true(bound_launch(3, 20000, 2) == 500 + 2 * (100 + 20000));
    /* Nothing to do for half of the threads. */
    assert_true(bound_launch(16, 250000, 32) == 500 + 100 + 250000);
    /* 28 for 8: four threads take a fourth one, those with three in their homes are done first. */
    assert_true(bound_launch(28, 55000, 8) == 500 + 4 * (100 + 55000));
    /* 7 for 3: homes of 2, 2 and 3. */
    assert_true(bound_launch(7, 40000, 3) == 500 + 3 * (100 + 40000));
}

/* More claims than are played: even, except for the launch. */
static void test_large(void **state)
{
    (void)state;
    assert_true(bound_launch((int64_t)1 << 40, 40000, 4) == 500 + 40000.0 * 1099511627776.0 / 4);
    assert_true(bound_launch(INT64_MAX, INT64_MAX, 256) > 0);
}

static void test_counts(void **state)
{
    uint32_t n[BOUND_COUNTS_MAX];
    (void)state;
    assert_int_equal(bound_counts("1,2,64", n), 3);
    assert_int_equal(n[2], 64);
    assert_int_equal(bound_counts("256", n), 1);
    static const char *const bad[] = {"",
                                      "0",
                                      "1,",
                                      "2,1",
                                      "1,1",
                                      "257",
                                      "1;2",
                                      "-1",
                                      "1, 2",
                                      "x",
                                      "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17",
                                      "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(bound_counts(bad[i], n), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
