/* The text form: print(parse(x)) = x for a function of every statement, exact floats, refusals with a place. */
#include "loops.h"

#include <math.h>
#include <string.h>

static const char every_kernel_statement[] = "kernel @k.7$x nodes(3, 5) {\n"
                                             "  arg %0 : buffer f32 in align 64 noalias\n"
                                             "  arg %1 : buffer f32 out align 64 noalias \"y \\\"quoted\\\" \\\\\"\n"
                                             "  arg %2 : index\n"
                                             "  arg %3 : buffer i8 in out\n"
                                             "  %4 = const index 0\n"
                                             "  %5 = const index 16\n"
                                             "  %6 = const f32x4 0x1.8p+1 residue 77\n"
                                             "  %7 = const f64 -inf\n"
                                             "  %8 = const u64 -1\n"
                                             "  %9 = const bool 1\n"
                                             "  %10 = local buffer f32 1024\n"
                                             "  parallel %11 = %4 to %2 {\n"
                                             "    %12 = local buffer i8 64\n"
                                             "    %13 = load f32x4 %0[%11] align 16 nontemporal invariant\n"
                                             "    %14 = iota i64x4\n"
                                             "    %15 = iota i32x4\n"
                                             "    %16 = lt boolx4 %13, %6\n"
                                             "    %17 = le boolx4 %13, %6\n"
                                             "    %18 = eq boolx4 %13, %6\n"
                                             "    %19 = ne boolx4 %16, %17\n"
                                             "    %20 = load f32x4 %0[%11] mask %16 align 4\n"
                                             "    %21 = loads f32x4 %0[%11] stride %5 mask %16\n"
                                             "    %22 = loads f32x4 %0[%11] stride %5\n"
                                             "    %23 = gather f32x4 %0[%14] mask %16\n"
                                             "    %24 = neg f32x4 %13\n"
                                             "    %25 = abs f32x4 %24\n"
                                             "    %26 = sqrt f32x4 %25\n"
                                             "    %27 = floor f32x4 %26\n"
                                             "    %28 = ceil f32x4 %26\n"
                                             "    %29 = rint f32x4 %26\n"
                                             "    %30 = trunc f32x4 %26\n"
                                             "    %31 = not boolx4 %16\n"
                                             "    %32 = add f32x4 %13, %20\n"
                                             "    %33 = sub f32x4 %13, %20\n"
                                             "    %34 = mul f32x4 %13, %20\n"
                                             "    %35 = div f32x4 %13, %20\n"
                                             "    %36 = rem f32x4 %13, %20\n"
                                             "    %37 = floordiv index %11, %5\n"
                                             "    %38 = floormod index %11, %5\n"
                                             "    %39 = min f32x4 %13, %20\n"
                                             "    %40 = max f32x4 %13, %20\n"
                                             "    %41 = minnum f32x4 %13, %20\n"
                                             "    %42 = maxnum f32x4 %13, %20\n"
                                             "    %43 = and i32x4 %15, %15\n"
                                             "    %44 = or i32x4 %15, %15\n"
                                             "    %45 = xor i32x4 %15, %15\n"
                                             "    %46 = shl i32x4 %15, %15\n"
                                             "    %47 = shr i32x4 %15, %15\n"
                                             "    %48 = fma f32x4 %13, %20, %21\n"
                                             "    %49 = select f32x4 %16, %13, %20\n"
                                             "    %50 = convert i8x4 %13\n"
                                             "    %51 = convert f8e4m3fnx4 %13 saturate\n"
                                             "    %52 = convert f8e8m0x4 %13 saturate round \"up\"\n"
                                             "    %53 = bitcast i32x4 %13\n"
                                             "    %54 = bitcast u8x16 %13\n"
                                             "    %55 = extract f32 %13 lane 3\n"
                                             "    %56 = splat f32x4 %55\n"
                                             "    %57 = insert f32x4 %13, %55 lane 0\n"
                                             "    %58 = shuffle f32x2 %13, %20 [0, 7]\n"
                                             "    %59 = hreduce f32 add %13\n"
                                             "    %60 = hreduce bool or %16\n"
                                             "    %61 = bitcast i8x16 %13\n"
                                             "    %62 = dot i32x4 %54, %61, %15\n"
                                             "    %63 = bitcast bf16x8 %13\n"
                                             "    %64 = dot f32x4 %63, %63, %13\n"
                                             "    %65 = matdot i32x4 %54, %61, %15\n"
                                             "    %66 = matdot f32x4 %63, %63, %13\n"
                                             "    %67 = ldexp f32x4 %13, %20\n"
                                             "    %68 = local buffer i32 256\n"
                                             "    matmul %68, %3, %4, %3, %4, %4, "
                                             "%5, %5, %4, %4, %4, %5, %4, %5, %5, %5\n"
                                             "  }\n"
                                             "}\n";

/* Numbers follow the order parameters, results, body. */
static const char loops_and_ifs[] = "kernel @loops {\n"
                                    "  arg %0 : buffer f32 in out\n"
                                    "  arg %1 : index\n"
                                    "  %2 = const index 0\n"
                                    "  %3 = const index 8\n"
                                    "  %4 = const bool 1\n"
                                    "  %5 = const f32 0x0p+0\n"
                                    "  parallel %6 = %2 to %1 {\n"
                                    "    %10, %11 = for %7 = %2 to %3 step 4 carry(%8 = %5, %9 = %3) {\n"
                                    "      %12 = load f32 %0[%9]\n"
                                    "      yield %12, %7\n"
                                    "    }\n"
                                    "    %15 = for %13 = %2 to %3 step 1 carry(%14 = %4) while unroll {\n"
                                    "      yield %14\n"
                                    "    }\n"
                                    "    for %16 = %2 to %3 step 2 {\n"
                                    "      store %0[%16], %10 align 8 nontemporal\n"
                                    "    }\n"
                                    "    %17 = if %15 {\n"
                                    "      yield %10\n"
                                    "    } else {\n"
                                    "      %18 = neg f32 %10\n"
                                    "      yield %18\n"
                                    "    }\n"
                                    "    if %4 {\n"
                                    "      stores %0[%6] stride %3, %17\n"
                                    "    }\n"
                                    "    if %4 {\n"
                                    "    } else {\n"
                                    "      store %0[%6], %17\n"
                                    "    }\n"
                                    "    %19 = iota i64x2\n"
                                    "    %20 = splat f32x2 %17\n"
                                    "    %21 = splat boolx2 %4\n"
                                    "    scatter %0[%19], %20 mask %21 align 4\n"
                                    "    stores %0[%6] stride %3, %20 mask %21\n"
                                    "    prefetch %0, %3\n"
                                    "    prefetch2 %0, %6\n"
                                    "    %22 = shared bool %0, %0\n"
                                    "    check %21 code -9 node 12 \"index out of range\\n\"\n"
                                    "  }\n"
                                    "}\n";

static const char program[] = "program @\"run me\" nodes(1) {\n"
                              "  arg %0 : buffer u8 in out align 64\n"
                              "  arg %1 : index\n"
                              "  %2 = local buffer i64 4\n"
                              "  %3 = offset buffer f32 %0, %1\n"
                              "  %4 = call @mcc_rt_segment(%1) mayfail\n"
                              "  %5 = address buffer f32 %4\n"
                              "  call @note(%2, %1)\n"
                              "  launch @k7(%3, %5, %1) count %1 grain 250 node 1\n"
                              "  launch @k8(%3, %5, %1) count %1 row 12 node 1\n"
                              "  call @\"odd name\"()\n"
                              "}\n";

static const char entry[] = "entry @net_run {\n"
                            "  arg %0 : index \"n\"\n"
                            "  arg %1 : buffer u8 in out align 64 \"arena\"\n"
                            "  %2 = global buffer u8 @net_weights\n"
                            "  launch @program_net(%1, %2, %0) count %0 grain 0 node 0\n"
                            "}\n";

/* A part applies an earlier one; numbers begin again in each. */
static const char parts[] = "kernel @parts {\n"
                            "  arg %0 : buffer u32 in out\n"
                            "  arg %1 : index\n"
                            "  %2 = const index 0\n"
                            "  parallel %3 = %2 to %1 {\n"
                            "    %4 = load u32 %0[%3]\n"
                            "    %5 = apply u32 @fourth.1(%4)\n"
                            "    store %0[%3], %5\n"
                            "  }\n"
                            "}\n"
                            "value @times.1 {\n"
                            "  arg %0 : u32\n"
                            "  arg %1 : u32\n"
                            "  %2 = mul u32 %0, %1\n"
                            "  yield %2\n"
                            "}\n"
                            "value @fourth.1 {\n"
                            "  arg %0 : u32\n"
                            "  %1 = apply u32 @times.1(%0, %0)\n"
                            "  %2 = apply u32 @times.1(%1, %1)\n"
                            "  yield %2\n"
                            "}\n";

static void round_trip(struct context *ctx, const char *text)
{
    struct lfunc *f = loops_load(ctx, text);
    assert_string_equal(loops_print(ctx, f), text);
}

static void test_round_trips(void **state)
{
    struct context *ctx = *state;
    round_trip(ctx, every_kernel_statement);
    round_trip(ctx, loops_and_ifs);
    round_trip(ctx, parts);
    round_trip(ctx, program);
    round_trip(ctx, entry);
    /* every statement of the table occurs in one of the texts */
    char *all = arena_printf(&ctx->session, "%s%s%s%s%s", every_kernel_statement, loops_and_ifs, parts, program, entry);
    for (uint32_t op = L_NONE + 1; op < L_COUNT; op++) {
        if (!strstr(all, arena_printf(&ctx->session, " %s ", lop_name((enum lop)op))))
            fail_msg("no text has %s", lop_name((enum lop)op));
        assert_int_equal(lop_by_name(lop_name((enum lop)op)), op);
    }
}

static void test_any_numbers_and_spacing(void **state)
{
    struct context *ctx = *state;
    struct lfunc *f = loops_load(ctx, "plan @p{ # a comment\n arg %9:buffer i64 in\n"
                                      "%70000=const index 5 %3=load index%9[%70000]}");
    assert_string_equal(loops_print(ctx, f), "plan @p {\n"
                                             "  arg %0 : buffer i64 in\n"
                                             "  %1 = const index 5\n"
                                             "  %2 = load index %0[%1]\n"
                                             "}\n");
}

static void test_several_functions_in_a_row(void **state)
{
    struct context *ctx = *state;
    const char *text = "plan @a {}\nplan @b {}\n";
    struct lfunc *a = lf_parse(ctx, &ctx->session, &text), *b = lf_parse(ctx, &ctx->session, &text);
    assert_non_null(a);
    assert_non_null(b);
    assert_string_equal(b->name, "b");
}

/* What the verifier refuses is printed all the same. */
static void test_no_statement(void **state)
{
    struct context *ctx = *state;
    struct lfunc *f = lf_new(ctx, &ctx->session, LROLE_PLAN, "p");
    lf_stmt(f, (lblock){1}, L_NONE, NULL, 0);
    lf_stmt(f, (lblock){1}, L_COUNT, NULL, 0);
    assert_string_equal(loops_print(ctx, f), "plan @p {\n  none\n  none\n}\n");
}

/* Values made in another order give the same text. */
static void test_numbering_ignores_construction_order(void **state)
{
    struct context *ctx = *state;
    struct ltype index = {ELEM_I64, 1};
    char *text[2];
    for (int swapped = 0; swapped < 2; swapped++) {
        struct lfunc *f = lf_new(ctx, &ctx->session, LROLE_PLAN, "p");
        lreg unused = swapped ? lf_value(f, index) : (lreg){0};
        lreg c = lf_op(f, (lblock){1}, L_CONST, index, NULL, 0);
        lf_op(f, (lblock){1}, L_ADD, index, (lreg[]){c, c}, 2);
        (void)unused;
        assert_true(lf_finish(f));
        text[swapped] = loops_print(ctx, f);
    }
    assert_string_equal(text[0], text[1]);
}

static void check_float(struct context *ctx, double x)
{
    struct lfunc *f = lf_new(ctx, &ctx->session, LROLE_PLAN, "p"), *g;
    lf_op(f, (lblock){1}, L_CONST, (struct ltype){ELEM_F64, 1}, NULL, 0);
    f->blocks.data[1].stmts.data[0].fimm = x;
    char *text = loops_print(ctx, f);
    g = loops_load(ctx, text);
    assert_memory_equal(&g->blocks.data[1].stmts.data[0].fimm, &x, sizeof x);
    assert_string_equal(loops_print(ctx, g), text);
}

static void test_floats_are_exact(void **state)
{
    static const double cases[] = {0,         -0.0,
                                   1,         -1,
                                   0.1,       1e308,
                                   5e-324,    2.2250738585072014e-308,
                                   3.4e38,    1.5,
                                   255,       INFINITY,
                                   -INFINITY, 1.7976931348623157e308,
                                   4.45e-308};
    struct context *ctx = *state;
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        check_float(ctx, cases[i]);
    uint64_t bits = 88172645463325252u;
    for (int i = 0; i < 2000; i++) {
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        double x;
        memcpy(&x, &bits, sizeof x);
        check_float(ctx, x);
    }
}

static void test_decimal_floats(void **state)
{
    struct lfunc *f = loops_load(*state, "plan @p { %0 = const f64 -0.5 %1 = const f64 1e-3 }");
    assert_true(f->blocks.data[1].stmts.data[0].fimm == -0.5);
    assert_true(f->blocks.data[1].stmts.data[1].fimm == 1e-3);
}

static const struct {
    const char *text, *says;
} refusals[] = {
    {"", "line 1, column 1: expected kernel"},
    {"kernel k {}", "expected '@'"},
    {"kernel @ {}", "expected a name"},
    {"plan @p {", "expected a word"},
    {"plan @p {\n  %0 = frob f32 %0\n}", "line 2, column 12: unknown statement"},
    {"plan @p { %0 = add index %1, %1 }", "this value has no definition above"},
    {"plan @p { %0 = const index 1 %0 = const index 1 }", "this value is defined twice"},
    {"plan @p { arg %0 : index arg %0 : index }", "this value is defined twice"},
    {"plan @p { %0 = const f33 1 }", "unknown type"},
    {"plan @p { %0 = const f32x999 1 }", "too many lanes"},
    {"plan @p { %0 = const f32x4294967296 1 }", "too many lanes"},
    {"plan @p { %0 = const index 9223372036854775808 }", "integer out of range"},
    {"plan @p { %0 = const index 99999999999999999999 }", "integer out of range"},
    {"plan @p { %99999999 = const index 1 }", "value number too large"},
    {"plan @p { %0, %1 = const index 1 }", "wrong number of results"},
    {"plan @p { store %0[%1], %2 }", "no definition"},
    {"plan @p { %0 = const f64 zero }", "expected a number"},
    {"plan @p { %0 = const f64 nan(0x0) }", "not a NaN"},
    {"plan @p { %0 = const f64 0x }", "hexadecimal"},
    {"plan @p { call @\"a\\q\"() }", "bad escape"},
    {"plan @p { call @\"a\\x00\"() }", "bad escape"},
    {"plan @p { call @\"open", "expected '\"'"},
    {"plan @p nodes() {}", "expected an integer"},
    {"plan @p { arg %0 : index %1 = for %2 = %0 to %0 step 1 { } }", ""},
    {"plan @p { arg %0 : index %1 = const bool 1 %2 = if %1 { } }", "more results than its block yields"},
    {"plan @p { %0 = const f32x2 1 %1 = shuffle f32x2 %0, %0 [300] }", "bad lane list"},
};

static void test_refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(refusals); i++) {
        struct context *ctx = context_bare();   /* one for each: a context stops recording after some errors */
        struct lfunc *f = loops_parse(ctx, refusals[i].text);
        if (f && lf_verify(f))
            fail_msg("accepted: %s", refusals[i].text);
        if (!strstr(loops_last_error(ctx), refusals[i].says))
            fail_msg("%s\nsays %s, not %s", refusals[i].text, loops_last_error(ctx), refusals[i].says);
        context_free(ctx);
    }
}

static void test_nesting_is_bounded(void **state)
{
    struct context *ctx = *state;
    struct strbuf text = strbuf_of(&ctx->session);
    strbuf_printf(&text, "plan @p { arg %%0 : index %%1 = const bool 1 ");
    for (int i = 0; i < 100000; i++)
        strbuf_printf(&text, "if %%1 { ");
    assert_null(loops_parse(ctx, text.data));
    assert_non_null(strstr(loops_last_error(ctx), "nest too deeply"));
}

/* Cutting or damaging the text at every place ends in a diagnostic or in a function, never elsewhere. */
static void test_damaged_text(void **state)
{
    struct context *ctx = *state;
    size_t n = strlen(loops_and_ifs) - 1;   /* the last newline may go */
    for (size_t i = 0; i < n; i++) {
        char *cut = arena_strndup(&ctx->session, loops_and_ifs, i);
        assert_null(loops_parse(ctx, cut));
        char *bent = arena_strdup(&ctx->session, loops_and_ifs);
        bent[i] = "%{}@\"9x["[i % 8];
        struct lfunc *f = loops_parse(ctx, bent);
        if (f && lf_verify(f))
            loops_print(ctx, f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trips, loops_setup, loops_teardown),
        cmocka_unit_test_setup_teardown(test_any_numbers_and_spacing, loops_setup, loops_teardown),
        cmocka_unit_test_setup_teardown(test_several_functions_in_a_row, loops_setup, loops_teardown),
        cmocka_unit_test_setup_teardown(test_no_statement, loops_setup, loops_teardown),
        cmocka_unit_test_setup_teardown(test_numbering_ignores_construction_order, loops_setup, loops_teardown),
        cmocka_unit_test_setup_teardown(test_floats_are_exact, loops_setup, loops_teardown),
        cmocka_unit_test_setup_teardown(test_decimal_floats, loops_setup, loops_teardown),
        cmocka_unit_test_setup_teardown(test_refusals, loops_setup, loops_teardown),
        cmocka_unit_test_setup_teardown(test_nesting_is_bounded, loops_setup, loops_teardown),
        cmocka_unit_test_setup_teardown(test_damaged_text, loops_setup, loops_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
