/* Names and scopes: a question keeps nothing of the text that asks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "frontend/names.h"

static void test_a_question_keeps_nothing(void **state)
{
    struct context *ctx = context_new();
    struct names names;
    char text[] = "a";
    (void)state;
    names_init(&names, &ctx->session);
    assert_null(name_lookup(&names, text));
    uint32_t a = name_intern(&names, "a");
    name_bind(&names, "a", (value_id){7}, 0);
    assert_null(name_lookup(&names, "b"));
    text[0] = 'c'; /* memory that something else has by now */
    assert_string_equal(name_get(&names, a)->text, "a");
    assert_int_equal(name_lookup(&names, "a")->value.i, 7);
    assert_int_equal(names.list.n, 2);
    context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_question_keeps_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
