/* Every rule of the verifier refuses what breaks it, and says its number. */
#include "loops.h"

#include <string.h>

/* Bodies of a kernel with these arguments and constants; P opens the parallel loop over %11. */
#define HEAD                                                                                                         \
    "kernel @k { arg %0 : buffer f32 in arg %1 : buffer f32 out arg %2 : index arg %3 : buffer i8 in out "           \
    "%4 = const index 0 %5 = const bool 1 %6 = const f32 1 %7 = const f32x4 1 %8 = const i32 1 %9 = const boolx4 1 " \
    "%10 = const i64x4 0 "
#define P "parallel %11 = %4 to %2 { "
#define END " } }"
/* A local for so many sums, and constants of a product's shape. */
#define SUMS(elem, n) \
    "%20 = local buffer " elem " " #n " %21 = const index 1 %22 = const index 4 %23 = const index 65536 "

#define TWICE " value @twice { arg %0 : f32 %1 = add f32 %0, %0 yield %1 }"

static const struct {
    int rule;
    const char *text;
} broken[] = {
    {1, HEAD P "%20 = add f32 %6" END},
    {1, HEAD P "%20 = fma f32 %6, %6, %6, %6" END},
    {1, HEAD P "%20 = load f32 %0[%4] %21 = select f32 %5, %6" END},
    {2, HEAD P "if %5 { %20 = neg f32 %6 } %21 = neg f32 %20" END},
    {2, HEAD P "for %20 = %4 to %2 step 1 { } store %1[%20], %6" END},
    {4, "plan @p { arg %0 : f32 }"},
    {4, "plan @p { arg %0 : buffer f32 align 3 }"},
    {4, "plan @p { arg %0 : buffer string }"},
    {5, HEAD P "%20 = add f32 %6, %8" END},
    {5, HEAD P "%20 = add f32 %7, %7" END},
    {5, HEAD P "%20 = add bool %5, %5" END},
    {5, HEAD P "%20 = and f32 %6, %6" END},
    {5, HEAD P "%20 = sqrt i32 %8" END},
    {5, HEAD P "%20 = floordiv f32 %6, %6" END},
    {5, HEAD P "%20 = minnum i32 %8, %8" END},
    {5, HEAD P "%20 = const f16 1 %21 = add f16 %20, %20" END},
    {5, HEAD P "%20 = const bf16 1 %21 = fma bf16 %20, %20, %20" END},
    {5, HEAD P "%20 = const f16 1 %21 = fma f16 %20, %6, %20" END},
    {5, HEAD P "%20 = const i4 1 %21 = add i4 %20, %20" END},
    {5, HEAD P "%20 = iota f32x4" END},
    {6, HEAD P "%20 = const i8 128" END},
    {6, HEAD P "%20 = const u8 -1" END},
    {6, HEAD P "%20 = const i4 8" END},
    {6, HEAD P "%20 = const bool 2" END},
    {6, HEAD P "%20 = const f32 0x1.0000001p+0" END},
    {6, HEAD P "%20 = const f8e4m3fn 0x1p+0 residue 1" END},
    {6, HEAD P "%20 = const f32 0x1p+0 residue -1" END},
    {7, HEAD P "%20 = lt f32 %6, %6" END},
    {7, HEAD P "%20 = lt boolx2 %7, %7" END},
    {7, HEAD P "%20 = lt bool %5, %5" END},
    {7, HEAD P "%20 = select f32 %8, %6, %6" END},
    {7, HEAD P "%20 = select f32 %9, %6, %6" END},
    {7, HEAD P "%20 = select f32 %5, %6, %8" END},
    {8, HEAD P "%20 = convert f32x2 %7" END},
    {8, HEAD P "%20 = convert i32 %6 round \"sideways\"" END},
    {8, HEAD P "%20 = bitcast f64 %6" END},
    {8, HEAD P "%20 = bitcast u8 %5" END},
    {9, HEAD P "%20 = splat f32x4 %7" END},
    {9, HEAD P "%20 = extract f32 %7 lane 4" END},
    {9, HEAD P "%20 = extract f32 %7 lane -1" END},
    {9, HEAD P "%20 = extract i32 %7 lane 0" END},
    {9, HEAD P "%20 = insert f32x4 %7, %8 lane 0" END},
    {9, HEAD P "%20 = shuffle f32x2 %7, %7 [0, 8]" END},
    {9, HEAD P "%20 = shuffle f32x3 %7, %7 [0, 1]" END},
    {9, HEAD P "%20 = hreduce f32 sub %7" END},
    {9, HEAD P "%20 = hreduce f32 and %7" END},
    {9, HEAD P "%20 = const f32x3 1 %21 = hreduce f32 add %20" END},
    {10, HEAD P "%20 = load f32 %6[%4]" END},
    {10, HEAD P "%20 = load i32 %0[%4]" END},
    {10, HEAD P "%20 = load f32 %0[%8]" END},
    {10, HEAD P "%20 = load f32x4 %0[%4] mask %5" END},
    {10, HEAD P "%20 = load f32 %0[%4] align 48" END},
    {10, HEAD P "%20 = loads f32x4 %0[%4] stride %8" END},
    {10, HEAD P "%20 = gather f32x4 %0[%4]" END},
    {10, HEAD P "store %1[%4], %8" END},
    {10, HEAD P "scatter %1[%10], %6" END},
    {10, HEAD P "%20 = offset buffer f32 %0, %8" END},
    {10, HEAD P "%20 = offset f32 %0, %4" END},
    {10, HEAD P "prefetch %0, %8" END},
    {10, HEAD P "prefetch2 %6, %4" END},
    {10, HEAD P "%20 = shared bool %0, %4" END},
    {10, HEAD P "%20 = shared f32 %0, %1" END},
    {11, HEAD P "store %0[%4], %6" END},
    {11, HEAD P "%20 = offset buffer f32 %0, %4 store %20[%4], %6" END},
    {11, HEAD P "%20 = load f32 %1[%4] invariant" END},
    {11, HEAD P "%20 = local buffer f32 4 %21 = load f32 %20[%4] invariant" END},
    {12, HEAD P "for %20 = %4 to %8 step 1 { }" END},
    {12, HEAD P "for %20 = %4 to %2 step 0 { }" END},
    {12, HEAD P "%21 = for %20 = %4 to %2 step 1 { yield %6 }" END},
    {12, HEAD P "for %20 = %4 to %2 step 1 carry(%21 = %6) { yield %6 }" END},
    {12, HEAD P "%22 = for %20 = %4 to %2 step 1 carry(%21 = %6) while { yield %6 }" END},
    {12, HEAD P "for %20 = %4 to %2 step 1 while { }" END},
    {12, HEAD P "for %20 = %4 to %2 step 1 unroll { }" END},
    {12, HEAD P "%21 = const index 5000 for %20 = %4 to %21 step 1 unroll { }" END},
    {13, HEAD "}"},
    {13, HEAD P "} parallel %12 = %4 to %2 { " END},
    {13, HEAD P "parallel %12 = %4 to %2 { } " END},
    {13, HEAD P "} %20 = neg f32 %6 }"},
    {13, HEAD "store %1[%4], %6 " P END},
    {13, "program @p { arg %0 : index parallel %1 = %0 to %0 { } }"},
    {14, HEAD P "if %9 { }" END},
    {15, HEAD P "%20 = if %5 { yield %6 }" END},
    {15, HEAD P "%20 = if %5 { yield %6 } else { yield %8 }" END},
    {15, HEAD P "if %5 { yield %6 }" END},
    {15, HEAD P "%21 = for %20 = %4 to %2 step 1 carry(%22 = %6) { yield %8 }" END},
    {15, HEAD P "%21 = for %20 = %4 to %2 step 1 carry(%22 = %6) { }" END},
    {15, HEAD P "%21 = for %20 = %4 to %2 step 1 carry(%22 = %6) { yield %6 yield %6 }" END},
    {15, HEAD P "yield %6" END},
    {16, HEAD P "check %6 code -9 node 0 \"x\"" END},
    {16, HEAD P "check %5 code 0 node 0 \"x\"" END},
    {17, HEAD P "call @f(%6)" END},
    {17, HEAD P "call @\"\"()" END},
    {17, HEAD P "launch @k7(%0) count %4 grain 0 node 0" END},
    {17, "program @p { arg %0 : buffer f32 launch @k7() count %0 grain 0 node 0 }"},
    {17, "program @p { arg %0 : index launch @k7() count %0 grain -1 node 0 }"},
    {17, "plan @p { arg %0 : index launch @k7() count %0 grain 1 node 0 }"},
    {18, HEAD P "%20 = local buffer f32 0" END},
    {18, HEAD P "%20 = local f32 4" END},
    {18, HEAD P "if %5 { %20 = local buffer f32 4 }" END},
    {18, HEAD P "%20 = address buffer f32 %2" END},
    {18, "program @p { %0 = global buffer u8 @w }"},
    {18, "entry @p { %0 = global f32 @w }"},
    {18, "program @p { %0 = local buffer u8 65537 }"},
    {18, "program @p { %0 = const bool 1 if %0 { %1 = local buffer u8 4 } }"},
    {20, HEAD SUMS("i32", 16) P "matmul %3, %3, %4, %3, %4, %4, %21, %22, %4, %4, %4, %22, %4, %21, %4, %4" END},
    {20, HEAD SUMS("f32", 16) P "matmul %20, %3, %4, %3, %4, %4, %21, %22, %4, %4, %4, %22, %4, %21, %4, %4" END},
    {20, HEAD SUMS("i32", 15) P "matmul %20, %3, %4, %3, %4, %4, %21, %22, %4, %4, %4, %22, %4, %21, %4, %4" END},
    {20, HEAD SUMS("i32", 16) P "matmul %20, %3, %4, %3, %4, %4, %21, %22, %4, %21, %4, %22, %4, %21, %4, %4" END},
    {20, HEAD SUMS("i32", 16) P "matmul %20, %3, %4, %3, %4, %4, %2, %22, %4, %4, %4, %22, %4, %21, %4, %4" END},
    {20, HEAD SUMS("i32", 16) P "matmul %20, %3, %4, %3, %4, %4, %21, %22, %4, %4, %4, %21, %4, %21, %4, %4" END},
    {20, HEAD SUMS("i32", 16) P "matmul %20, %3, %4, %3, %4, %4, %21, %22, %4, %4, %4, %22, %4, %4, %4, %4" END},
    {20, HEAD SUMS("i32", 16) P "matmul %20, %3, %4, %3, %4, %4, %21, %22, %4, %4, %4, %22, %22, %21, %4, %4" END},
    {20, HEAD SUMS("i32", 16) P "matmul %20, %3, %4, %3, %4, %6, %21, %22, %4, %4, %4, %22, %4, %21, %4, %4" END},
    {20, HEAD SUMS("i32", 16) P
     "matmul %20, %3, %4, %3, %4, %4, %21, %22, %4, %4, %4, %22, %4, %23, %4, %4, %23, %4, %4, %23, %4, %4" END},
    {20, HEAD SUMS("i32", 16) "matmul %20, %3, %4, %3, %4, %4, %21, %22, %4, %4, %4, %22, %4, %21, %4, %4 }"},
    {21, HEAD P "%20 = apply f32 @other(%6)" END TWICE},
    {21, HEAD P "%20 = apply f32 @twice(%7)" END TWICE},
    {21, HEAD P "%20 = apply f32x4 @twice(%6)" END TWICE},
    {21, HEAD P "%20 = apply f32 @twice(%6, %6)" END TWICE},
    {21, HEAD P "%20 = apply f32 @v(%6)" END "value @v { arg %0 : f32 }"},
    {21, HEAD P "%20 = apply f32 @v(%6)" END "value @v { arg %0 : f32 %1 = apply f32 @v(%0) yield %1 }"},
    {21, HEAD P "%20 = apply f32 @v(%6)" END "value @v { arg %0 : f32 %1 = apply f32 @twice(%0) yield %1 }" TWICE},
    {21, "plan @p { }"
         "value @v { arg %0 : index %1 = local buffer f32 4 %2 = load f32 %1[%0] yield %2 }"},
    {21, "plan @p { }"
         "value @v { arg %0 : bool %1 = if %0 { yield %0 } else { yield %0 } yield %1 }"},
    {4, "plan @p { }"
        "value @v { arg %0 : buffer f32 %1 = const f32 1 yield %1 }"},
};

static void expect_rule(struct context *ctx, struct lfunc *f, int rule, const char *text)
{
    if (!f)
        fail_msg("%s\nin\n%s", loops_last_error(ctx), text);
    if (lf_verify(f))
        fail_msg("rule %d does not refuse\n%s", rule, text);
    char *number = arena_printf(&ctx->session, "rule %d:", rule);
    for (uint32_t i = 0; i < ctx->diags.n; i++)
        if (strstr(ctx->diags.data[i].text, number))
            return;
    fail_msg("%s\nis not of rule %d in\n%s", loops_last_error(ctx), rule, text);
}

static void test_rules(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(broken); i++) {
        struct context *ctx = context_bare();
        expect_rule(ctx, loops_parse(ctx, broken[i].text), broken[i].rule, broken[i].text);
        context_free(ctx);
    }
}

static void test_whole_is_fine(void **state)
{
    loops_load(*state, HEAD P "store %1[%4], %6" END);
}

/* What the text cannot say: values defined twice, blocks shared, lost or circular, results of wrong number. */

static struct lfunc *with_if(struct context *ctx, struct lstmt **s)
{
    struct lfunc *f = loops_load(ctx, "program @p { %0 = const bool 1 if %0 { } else { } }");
    *s = &f->blocks.data[1].stmts.data[1];
    return f;
}

static void test_blocks_form_a_tree(void **state)
{
    struct context *ctx = *state;
    struct lstmt *s;
    struct lfunc *f = with_if(ctx, &s);
    s->block[1] = s->block[0];
    expect_rule(ctx, f, 3, "a block used twice");
    f = with_if(ctx, &s);
    s->block[0] = (lblock){1};
    expect_rule(ctx, f, 3, "the body inside itself");
    f = with_if(ctx, &s);
    s->block[0] = (lblock){1000};
    expect_rule(ctx, f, 3, "no such block");
    f = with_if(ctx, &s);
    f->blocks.data[1].stmts.data[0].block[0] = lf_block(f);
    expect_rule(ctx, f, 3, "a constant with a block");
}

static void test_values_are_defined_once(void **state)
{
    struct context *ctx = *state;
    struct lfunc *f = loops_load(ctx, "plan @p { %0 = const index 1 %1 = const index 2 }");
    f->blocks.data[1].stmts.data[1].out[0] = f->blocks.data[1].stmts.data[0].out[0];
    expect_rule(ctx, f, 2, "one value, two definitions");
    f = loops_load(ctx, "plan @p { %0 = const index 1 }");
    f->blocks.data[1].stmts.data[0].out[0] = (lreg){77};
    lf_verify(f);   /* must survive */
    f = loops_load(ctx, "plan @p { %0 = const index 1 %1 = neg index %0 }");
    f->blocks.data[1].stmts.data[1].in[0] = (lreg){77};
    expect_rule(ctx, f, 2, "no such operand");
}

static void test_depth_is_bounded(void **state)
{
    struct context *ctx = *state;
    struct lfunc *f = lf_new(ctx, &ctx->session, LROLE_PROGRAM, "deep");
    lreg c = lf_op(f, (lblock){1}, L_CONST, (struct ltype){ELEM_BOOL, 1}, NULL, 0);
    lblock b = {1};
    for (int i = 0; i < 1000; i++) {
        lblock inner = lf_block(f);
        struct lstmt *s = lf_stmt(f, b, L_IF, &c, 1);
        s->block[0] = inner;
        b = inner;
    }
    expect_rule(ctx, f, 3, "a thousand blocks deep");
    assert_non_null(loops_print(ctx, f));
}

static void test_unknown_statement(void **state)
{
    struct context *ctx = *state;
    struct lfunc *f = lf_new(ctx, &ctx->session, LROLE_PROGRAM, "odd");
    lf_stmt(f, (lblock){1}, L_CONST, NULL, 0)->op = L_COUNT;
    expect_rule(ctx, f, 1, "no such operation");
    assert_non_null(loops_print(ctx, f));
}

static void test_many_errors_are_cut(void **state)
{
    struct context *ctx = *state;
    struct strbuf text = strbuf_of(&ctx->session);
    strbuf_printf(&text, "plan @p { %%0 = const f32 1 ");
    for (int i = 1; i < 100; i++)
        strbuf_printf(&text, "%%%d = not f32 %%0 ", i);
    strbuf_printf(&text, "}");
    assert_false(lf_verify(loops_parse(ctx, text.data)));
    assert_true(ctx->diags.n <= 10);
}

static void test_locals_are_laid_out(void **state)
{
    struct lfunc *f = loops_load(*state, "kernel @k { arg %0 : index %1 = local buffer f32 17 parallel %2 = %0 to %0 { "
                                         "%3 = local buffer i8 1 %4 = local buffer f64 8 } }");
    assert_int_equal(f->local_bytes, 128 + 64 + 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules),
        cmocka_unit_test_setup_teardown(test_whole_is_fine, loops_setup, loops_teardown),
        cmocka_unit_test_setup_teardown(test_blocks_form_a_tree, loops_setup, loops_teardown),
        cmocka_unit_test_setup_teardown(test_values_are_defined_once, loops_setup, loops_teardown),
        cmocka_unit_test_setup_teardown(test_depth_is_bounded, loops_setup, loops_teardown),
        cmocka_unit_test_setup_teardown(test_unknown_statement, loops_setup, loops_teardown),
        cmocka_unit_test_setup_teardown(test_many_errors_are_cut, loops_setup, loops_teardown),
        cmocka_unit_test_setup_teardown(test_locals_are_laid_out, loops_setup, loops_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
