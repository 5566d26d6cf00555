/* Tests of legalize; with --serve the program answers the suite runner (suite.py) instead. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "passes/legalize/driver.h"
#include "tests/legalize/serve.h"

/* The table binds to the largest version that is not above the node's. */
static void rows_bind_by_version(void **state)
{
    (void)state;
    assert_int_equal(row_find("", "Clip", 6)->since, 1);
    assert_int_equal(row_find("", "Clip", 11)->since, 11);
    assert_int_equal(row_find("ai.onnx", "Clip", 13)->since, 11);
    assert_int_equal(row_find("", "Scan", 9)->since, 9);
    assert_null(row_find("", "Scan", 7));
    assert_null(row_find("com.example", "Clip", 13));
    assert_null(row_find("", "NoSuchOperator", 13));
}

/* The support matrix has a line per row and its head. */
static void matrix_lists_rows(void **state)
{
    (void)state;
    struct context *ctx = context_new();
    struct strbuf text;
    strbuf_init(&text, &ctx->session);
    legalize_list_ops(&text);
    assert_non_null(strstr(text.data, "ConvTranspose"));
    assert_non_null(strstr(text.data, "ai.onnx"));
    context_free(ctx);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--serve") == 0)
        return serve(stdin, stdout);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_bind_by_version),
        cmocka_unit_test(matrix_lists_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
