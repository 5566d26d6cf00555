/* The table of CPUs: names that tell variants apart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "ir/target/target.h"

static void short_names(void **state)
{
    (void)state;
    static const struct target_row rows[] = {{.arch = "aarch64", .name = "armv9-a"},
                                             {.arch = "aarch64", .name = "armv8-a"},
                                             {.arch = "aarch64", .name = "armv8.2-a-dotprod"},
                                             {.arch = "other", .name = "other-dotprod"}};
    static const char *const names[] = {"armv9-a", "armv8-a", "dotprod", "dotprod"};
    for (uint32_t i = 0; i < COUNT_OF(rows); i++)
        assert_string_equal(target_short_name(rows, COUNT_OF(rows), &rows[i]), names[i]);
}

/* Functions of the variants of an artifact have names that end so. */
static void distinct(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < target_count; i++)
        for (uint32_t j = 0; j < i; j++)
            if (!strcmp(target_rows[i].arch, target_rows[j].arch))
                assert_string_not_equal(target_short_name(target_rows, target_count, &target_rows[i]),
                                        target_short_name(target_rows, target_count, &target_rows[j]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(short_names), cmocka_unit_test(distinct)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
