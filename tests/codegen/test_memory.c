/* Memory and control statements against the interpreter: masks, strides, gathers, scatters, locals, loops that carry,
 * end early or unroll, conditions with results. Kernels are written in the loop IR's text.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness.h"

/* Loads and stores of one type: plain, masked, strided both ways, gathered, scattered. */
static void add_access(struct suite *s, enum elem elem, uint32_t lanes)
{
    char name[64];
    lreg i;
    struct ltype t = {elem, lanes}, p = {ELEM_BOOL, lanes}, v64 = {ELEM_I64, lanes}, none = {0};
    int64_t count = 20, n = count * lanes;
    snprintf(name, sizeof name, "access_%s_%u", elem_name(elem), lanes);
    struct kernel_case *k = case_new(s, name);
    k->count = count;
    lreg in = case_buffer(s, k, elem, LARG_IN, 3 * n), masks = case_buffer(s, k, ELEM_BOOL, LARG_IN, n);
    for (int64_t j = 0; j < n; j++)      /* any byte that is not zero is true */
        ((uint8_t *)k->arg[1].data)[j] = (uint8_t)(j % 3 ? j * 37 : 0);
    lreg places = case_buffer(s, k, ELEM_I64, LARG_IN, n);
    for (int64_t j = 0; j < n; j++)
        ((int64_t *)k->arg[2].data)[j] = (j * 7919 + 13) % (3 * n);
    lreg out[6];
    for (int j = 0; j < 6; j++)
        out[j] = case_buffer(s, k, elem, LARG_OUT, 3 * n);
    lreg flags = case_buffer(s, k, ELEM_BOOL, LARG_OUT, n), stride = case_index(k, 2);
    struct build b = case_parallel(k, &i);
    lreg at = op2(b, L_MUL, TINDEX, i, index_of(b, lanes)), two = index_of(b, 2), three = index_of(b, 3);
    lreg at2 = op2(b, L_MUL, TINDEX, at, two), at3 = op2(b, L_MUL, TINDEX, at, three);
    lreg mask = load(b, p, masks, at), place = load(b, v64, places, at), x = load(b, t, in, at);
    store(b, flags, at, mask);
    op2(b, L_PREFETCH, none, in, op2(b, L_MUL, TINDEX, at, index_of(b, 1 << 20)));   /* anywhere: nothing happens */
    op2(b, L_PREFETCH2, none, places, at);
    store(b, out[0], at, op3(b, L_LOAD, t, in, at, mask));
    store_masked(b, out[1], at, x, mask);
    lreg far = op3(b, L_LOADS, t, in, at3, three), far_masked = op4(b, L_LOADS, t, in, at2, stride, mask);
    op4(b, L_STORES, none, out[2], at2, stride, far);
    lreg in5[5] = {out[3], at3, three, far_masked, mask};
    lf_op(b.f, b.b, L_STORES, none, in5, 5);
    lreg picked = op2(b, L_GATHER, t, in, place), picked_masked = op3(b, L_GATHER, t, in, place, mask);
    store(b, out[4], at, picked);
    if (lanes > 1) {
        op3(b, L_SCATTER, none, out[5], place, picked_masked);
        op4(b, L_SCATTER, none, out[4], op2(b, L_ADD, v64, place, number(b, v64, 0)), x, mask);
    } else {
        store(b, out[5], at, picked_masked);
    }
}

/* All bytes by tables of them. */
static void add_tables(struct suite *s, enum elem elem, uint32_t lanes)
{
    char name[64];
    lreg i;
    struct ltype t = {elem, lanes}, bytes = {ELEM_U8, lanes};
    int64_t count = 2 * LOOP_TABLE / lanes + 1, n = count * lanes;
    snprintf(name, sizeof name, "table_%s_%u", elem_name(elem), lanes);
    struct kernel_case *k = case_new(s, name);
    k->count = count;
    lreg table = case_buffer(s, k, elem, LARG_IN, LOOP_TABLE), in = case_buffer(s, k, ELEM_U8, LARG_IN, n);
    for (int64_t j = 0; j < n; j++)
        ((uint8_t *)k->arg[1].data)[j] = (uint8_t)(j * 77);
    lreg out = case_buffer(s, k, elem, LARG_OUT, n);
    struct build b = case_parallel(k, &i);
    lreg at = op2(b, L_MUL, TINDEX, i, index_of(b, lanes));
    store(b, out, at, op2(b, L_GATHER, t, table, load(b, bytes, in, at)));
}

/* Every second, third or fourth element, all lanes and some; the buffer ends with the last lane's element. */
static void add_steps(struct suite *s, enum elem elem, uint32_t lanes, int64_t step)
{
    char name[64];
    lreg i;
    struct ltype t = {elem, lanes}, p = {ELEM_BOOL, lanes};
    int64_t count = 20, n = count * lanes;
    snprintf(name, sizeof name, "steps_%s_%u_%d", elem_name(elem), lanes, (int)step);
    struct kernel_case *k = case_new(s, name);
    k->count = count;
    lreg in = case_buffer(s, k, elem, LARG_IN, step * (n - 1) + 1), masks = case_buffer(s, k, ELEM_BOOL, LARG_IN, n);
    for (int64_t j = 0; j < n; j++)
        ((uint8_t *)k->arg[1].data)[j] = (uint8_t)(j * 29 % 5 > 1);
    lreg all = case_buffer(s, k, elem, LARG_OUT, n), some = case_buffer(s, k, elem, LARG_OUT, n);
    struct build b = case_parallel(k, &i);
    lreg by = index_of(b, step), at = op2(b, L_MUL, TINDEX, i, index_of(b, lanes)),
         first = op2(b, L_MUL, TINDEX, at, by);
    store(b, all, at, op3(b, L_LOADS, t, in, first, by));
    store(b, some, at, op4(b, L_LOADS, t, in, first, by, load(b, p, masks, at)));
}

static void test_access(void **state)
{
    static const uint32_t widths[] = {1, 4, 8, 16};
    struct suite *s = suite_new();
    (void)state;
    for (uint32_t w = 0; w < COUNT_OF(widths); w++)
        for (int64_t step = 2; step <= 4; step++) {
            add_steps(s, ELEM_F32, widths[w], step);
            add_steps(s, ELEM_I64, widths[w], step);
            add_steps(s, ELEM_U8, widths[w], step);
            add_steps(s, ELEM_BOOL, widths[w], step);
        }
    for (uint32_t lanes = 4; lanes <= LOOP_LANES_MAX; lanes *= 2) {
        add_tables(s, ELEM_U8, lanes);
        add_tables(s, ELEM_BOOL, lanes);
        add_tables(s, ELEM_I8, 3 * lanes / 4);
        if (lanes <= 16)
            add_tables(s, ELEM_F32, lanes);
    }
    for (uint32_t e = 1; e < ELEM_COUNT; e++)
        for (size_t w = 0; w < COUNT_OF(widths); w++)
            if (elem_class((enum elem)e) != 'C' && elem_class((enum elem)e) != 'S')
                add_access(s, (enum elem)e, widths[w]);
    suite_run(s);
    suite_free(s);
}

/* ---- control, in text ---- */

static void add_text(struct suite *s, const char *text, int64_t count)
{
    const char *at = text;
    jmp_buf unwind;
    s->ctx->unwind = &unwind;
    if (setjmp(unwind) != 0)
        fail_msg("unwound");
    struct lfunc *f = lf_parse(s->ctx, &s->ctx->session, &at);
    if (!f)
        fail_msg("%s", s->ctx->diags.data[0].text);
    struct kernel_case *k = case_new(s, f->name);
    k->count = count;
    for (uint32_t i = 0; i < f->args.n; i++) {
        const struct larg *a = &f->args.data[i];
        if (a->type.lanes)
            case_index(k, count);
        else
            case_buffer(s, k, a->type.elem, a->flags, 4096);
    }
    k->f = f;
}

static const char sum_text[] =
    "kernel @sum {\n"
    "  arg %0 : buffer i64 in align 64 noalias\n  arg %1 : buffer i64 out align 64 noalias\n  arg %2 : index\n"
    "  %3 = const index 0\n"
    "  parallel %4 = %3 to %2 {\n"
    "    %8, %9 = for %5 = %4 to %2 step 3 carry(%6 = %3, %7 = %4) {\n"
    "      %10 = load index %0[%5]\n"
    "      %11 = add index %6, %10\n"
    "      %12 = xor index %7, %5\n"
    "      yield %11, %12\n"
    "    }\n"
    "    %13 = const index 64\n"
    "    %14 = add index %13, %4\n"
    "    store %1[%4], %8\n"
    "    store %1[%14], %9\n"
    "  }\n}\n";

/* Counts the steps of 3n + 1 to 1, at most 1000. */
static const char while_text[] =
    "kernel @steps {\n"
    "  arg %0 : buffer i64 out align 64 noalias\n  arg %1 : index\n"
    "  %2 = const index 0\n  %3 = const index 1\n  %4 = const index 2\n  %5 = const index 3\n  %6 = const index 1000\n"
    "  parallel %7 = %2 to %1 {\n"
    "    %8 = add index %7, %3\n"
    "    %9 = ne bool %8, %3\n"
    "    %14, %15, %16 = for %10 = %2 to %6 step 1 carry(%11 = %9, %12 = %8, %13 = %2) while {\n"
    "      %17 = floormod index %12, %4\n"
    "      %18 = eq bool %17, %2\n"
    "      %19 = if %18 {\n"
    "        %20 = div index %12, %4\n"
    "        yield %20\n"
    "      } else {\n"
    "        %21 = mul index %12, %5\n"
    "        %22 = add index %21, %3\n"
    "        yield %22\n"
    "      }\n"
    "      %23 = ne bool %19, %3\n"
    "      %24 = add index %13, %3\n"
    "      yield %23, %19, %24\n"
    "    }\n"
    "    store %0[%7], %16\n"
    "  }\n}\n";

static const char unroll_text[] =
    "kernel @unroll {\n"
    "  arg %0 : buffer f32 in align 64 noalias\n  arg %1 : buffer f32 out align 64 noalias\n  arg %2 : index\n"
    "  %3 = const index 0\n  %4 = const index 7\n  %5 = const index 8\n  %6 = const f32x8 0\n"
    "  parallel %7 = %3 to %2 {\n"
    "    %8 = local buffer f32 64\n"
    "    %11 = for %9 = %3 to %4 step 2 carry(%10 = %6) unroll {\n"
    "      %12 = add index %7, %9\n"
    "      %13 = load f32x8 %0[%12] align 4\n"
    "      %14 = mul index %9, %5\n"
    "      store %8[%14], %13\n"
    "      %15 = load f32x8 %8[%14]\n"
    "      %16 = add f32x8 %10, %15\n"
    "      yield %16\n"
    "    }\n"
    "    %17 = mul index %7, %5\n"
    "    store %1[%17], %11 align 32\n"
    "  }\n}\n";

/* Nothing runs when the bounds are empty; carried values pass through; an if without else. */
static const char empty_text[] = "kernel @empty {\n"
                                 "  arg %0 : buffer i32 out align 64 noalias\n  arg %1 : index\n"
                                 "  %2 = const index 0\n  %3 = const index 5\n  %4 = const i32 77\n"
                                 "  parallel %5 = %2 to %1 {\n"
                                 "    %8 = for %6 = %5 to %3 step 100 carry(%7 = %4) {\n"
                                 "      %9 = add i32 %7, %7\n"
                                 "      yield %9\n"
                                 "    }\n"
                                 "    store %0[%5], %8\n"
                                 "    %10 = lt bool %5, %3\n"
                                 "    if %10 {\n"
                                 "      %11 = add index %5, %1\n"
                                 "      store %0[%11], %4\n"
                                 "    }\n"
                                 "  }\n}\n";

static void test_control(void **state)
{
    struct suite *s = suite_new();
    (void)state;
    add_text(s, sum_text, 12);
    add_text(s, while_text, 100);
    add_text(s, unroll_text, 100);
    add_text(s, empty_text, 40);
    suite_run(s);
    suite_free(s);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_access), cmocka_unit_test(test_control)};
    if (argc > 1 && strcmp(argv[1], "--worker") == 0)
        return codegen_worker();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
