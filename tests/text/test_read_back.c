/* The text after each stage reads back (text.h): of one network in several forms, or of the files that are named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "cli/library/compile/compile.h"
#include "tests/text/text.h"

#define DIGITS "examples/digits/digits.onnx"

/* Up to the plan, -verify-each besides. FAIL_NONE: every text was read back. */
static enum fail compiled(const char *path, const char *const *settings, struct read_back *r, char *said, size_t size)
{
    struct context *ctx = context_new();
    struct options options;
    *r = (struct read_back){.like = ctx};
    options_init(&options);
    for (; *settings; settings += 2)
        assert_true(option_set(ctx, &options, option_find(settings[0], 'C'), settings[1], FAIL_USAGE));
    options.print_after_all = options.print_full = options.verify_each = true;
    enum fail failed = compile_model(ctx, &options, path, "plan", (struct report){.user = r, .put = read_back_put});
    snprintf(said, size, "%s", r->why[0] ? r->why : ctx->diags.n ? ctx->diags.data[0].text : "");
    context_free(ctx);
    return r->why[0] ? FAIL_INTERNAL : failed;
}

static void test_forms(void **state)
{
    static const char *const forms[][5] = {
        {NULL},
        {"O", "0"},
        {"precision", "bf16", "weights-type", "i8"},
        {"input", "picture:f32[4,1,8,8]", "march", "x86-64-v3"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(forms); i++) {
        struct read_back r;
        char said[400];
        assert_int_equal(compiled(DIGITS, forms[i], &r, said, sizeof said), FAIL_NONE);
        assert_true(r.n > 15);
    }
}

/* A text that is not what it is read to, one that cannot be read, and one that can. */
static void test_what_does_not(void **state)
{
    static const char graph[] = "mcir 1 \"g\" legal 8\nregion (%1 \"x\": f32[2]) {\n  return %1\n}\ninput \"x\" %1\n"
                                "output \"x\" %1\n";
    struct context *ctx = context_new();
    (void)state;
    struct strbuf text = strbuf_of(&ctx->session);
    struct read_back good = {.like = ctx}, other = good, bad = good;
    graph_print(graph_parse(ctx, graph), &text, true);
    read_back(&good, text.data);
    assert_string_equal(good.why, "");
    assert_int_equal(good.n, 1);
    read_back(&other, arena_printf(&ctx->session, "%s ", text.data));
    assert_non_null(strstr(other.why, "is read to another one"));
    read_back(&bad, "mcir 1 nothing\n");
    assert_non_null(strstr(bad.why, "cannot be read"));
    assert_int_equal(other.n + bad.n, 0);
    context_free(ctx);
}

int main(int argc, char **argv)
{
    static const char *const none[] = {NULL};
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forms), cmocka_unit_test(test_what_does_not)};
    int wrong = 0;
    if (argc == 1)
        return cmocka_run_group_tests(tests, NULL, NULL);
    for (int i = 1; i < argc; i++) {
        struct read_back r;
        char said[400];
        enum fail failed = compiled(argv[i], none, &r, said, sizeof said);
        printf("%s %d %u %s\n", argv[i], (int)failed, r.n, said);
        wrong |= failed == FAIL_INTERNAL;
    }
    return wrong;
}
