/* Conversion of every element type to every other, scalar and in vectors, against the interpreter; f16 and bf16 over
 * all their bit patterns.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness.h"

enum { COUNT = 64 };

static bool fits_register(enum elem elem)
{
    return elem_class(elem) != 'C' && elem_class(elem) != 'S';
}

static void add_conversion(struct suite *s, enum elem from, uint32_t lanes, bool saturate)
{
    lreg out[ELEM_COUNT], i;
    char name[64];
    snprintf(name, sizeof name, "from_%s_%u%s", elem_name(from), lanes, saturate ? "_saturate" : "");
    struct kernel_case *k = case_new(s, name);
    k->count = COUNT;
    lreg in = case_buffer(s, k, from, LARG_IN, (int64_t)COUNT * lanes);
    for (uint32_t to = 1; to < ELEM_COUNT; to++)
        if (fits_register((enum elem)to))
            out[to] = case_buffer(s, k, (enum elem)to, LARG_OUT, (int64_t)COUNT * lanes);
    struct build b = case_parallel(k, &i);
    lreg at = op2(b, L_MUL, TINDEX, i, index_of(b, lanes));
    lreg x = load(b, (struct ltype){from, lanes}, in, at);
    for (uint32_t to = 1; to < ELEM_COUNT; to++) {
        if (!fits_register((enum elem)to))
            continue;
        bool tiny = elem_class((enum elem)to) == 'F' && elem_bits((enum elem)to) <= 8;
        lreg y = op1(b, L_CONVERT, (struct ltype){(enum elem)to, lanes}, x);
        struct lblk *blk = &b.f->blocks.data[b.b.i];
        blk->stmts.data[blk->stmts.n - 1].imm = saturate && tiny;
        store(b, out[to], at, y);
    }
}

static void test_all_pairs(void **state)
{
    static const uint32_t widths[] = {1, 8, 16, 32};   /* the last one of f32 and f64 only */
    struct suite *s = suite_new();
    (void)state;
    for (uint32_t from = 1; from < ELEM_COUNT; from++)
        for (size_t w = 0; w < COUNT_OF(widths) && fits_register((enum elem)from); w++)
            if (widths[w] < 32 || from == ELEM_F32 || from == ELEM_F64)
                add_conversion(s, (enum elem)from, widths[w], w == 1);
    suite_run(s);
    suite_free(s);
}

/* Rounding of powers of two, the only format with a choice. */
static void test_e8m0(void **state)
{
    static const char *const roundings[] = {"up", "down", "nearest", "even"};
    struct suite *s = suite_new();
    (void)state;
    for (size_t r = 0; r < COUNT_OF(roundings); r++) {
        lreg i;
        struct kernel_case *k = case_new(s, roundings[r]);
        k->count = 512;
        lreg in = case_buffer(s, k, ELEM_F32, LARG_IN, 8 * 512);
        lreg out = case_buffer(s, k, ELEM_F8E8M0, LARG_OUT, 8 * 512);
        struct build b = case_parallel(k, &i);
        lreg at = op2(b, L_MUL, TINDEX, i, index_of(b, 8));
        lreg y = op1(b, L_CONVERT, T(F8E8M0, 8), load(b, T(F32, 8), in, at));
        struct lblk *blk = &b.f->blocks.data[b.b.i];
        blk->stmts.data[blk->stmts.n - 1].name = roundings[r];
        blk->stmts.data[blk->stmts.n - 1].imm = r % 2;
        store(b, out, at, y);
    }
    suite_run(s);
    suite_free(s);
}

/* All patterns of the 16-bit formats up and down again. */
static void test_every_half(void **state)
{
    static const enum elem halves[] = {ELEM_F16, ELEM_BF16};
    struct suite *s = suite_new();
    (void)state;
    for (size_t h = 0; h < COUNT_OF(halves); h++) {
        lreg i;
        struct kernel_case *k = case_new(s, elem_name(halves[h]));
        k->count = 65536 / 8;
        lreg in = case_buffer(s, k, halves[h], LARG_IN, 65536);
        for (uint32_t v = 0; v < 65536; v++)
            ((uint16_t *)k->arg[0].data)[v] = (uint16_t)v;
        lreg wide = case_buffer(s, k, ELEM_F32, LARG_OUT, 65536), back = case_buffer(s, k, halves[h], LARG_OUT, 65536);
        lreg near = case_buffer(s, k, halves[h], LARG_OUT, 65536);
        struct build b = case_parallel(k, &i);
        lreg at = op2(b, L_MUL, TINDEX, i, index_of(b, 8));
        lreg x = op1(b, L_CONVERT, T(F32, 8), load(b, (struct ltype){halves[h], 8}, in, at));
        store(b, wide, at, x);
        store(b, back, at, op1(b, L_CONVERT, (struct ltype){halves[h], 8}, x));
        /* between two neighbours: the ties, and just beside them */
        lreg bits = op1(b, L_BITCAST, T(I32, 8), x), step = number(b, T(I32, 8), h == 0 ? 0x1001 : 0x7fff);
        lreg y = op1(b, L_BITCAST, T(F32, 8), op2(b, L_ADD, T(I32, 8), bits, step));
        store(b, near, at, op1(b, L_CONVERT, (struct ltype){halves[h], 8}, y));
    }
    suite_run(s);
    suite_free(s);
}

/* What is added to rounded numbers: nothing, constants, bytes of memory, and a float of memory that is not an integer.
 */
enum zero { NONE, ZERO, FIVE, BELOW, BYTE, SIGNED_BYTE, HALF, ZEROS };

static lreg zero_of(struct build b, enum zero zero, uint32_t lanes, const lreg memory[ZEROS])
{
    static const int64_t constants[ZEROS] = {[FIVE] = 5, [BELOW] = -7};
    static const enum elem elems[ZEROS] = {[BYTE] = ELEM_U8, [SIGNED_BYTE] = ELEM_I8, [HALF] = ELEM_F32};
    if (zero < BYTE)
        return number(b, T(F32, lanes), constants[zero]);
    lreg v = load(b, (struct ltype){elems[zero], 1}, memory[zero], index_of(b, 0));
    v = zero == HALF ? v : op1(b, L_CONVERT, T(F32, 1), v);
    return lanes > 1 ? op1(b, L_SPLAT, T(F32, lanes), v) : v;
}

/* Rounded to the nearest integer, a zero point added or not, and then converted, as quantizers do: half of the numbers
 * are quarters, ties among them; the others have extremes. */
static void test_rounded(void **state)
{
    static const uint32_t widths[] = {1, 2, 4, 8, 16, 32, 64};
    static const enum elem narrow[] = {ELEM_U8, ELEM_I8, ELEM_U16, ELEM_I16, ELEM_I32, ELEM_U4, ELEM_I4};
    enum { ROUNDS = 512, BYTES = 3 };
    static const size_t types[ZEROS] = {COUNT_OF(narrow), COUNT_OF(narrow), BYTES, BYTES, BYTES, BYTES, BYTES};
    struct suite *s = suite_new();
    (void)state;
    for (size_t w = 0; w < COUNT_OF(widths); w++) {
        lreg i, memory[ZEROS] = {{0}}, out[ZEROS][COUNT_OF(narrow)];
        uint32_t lanes = widths[w];
        char name[64];
        snprintf(name, sizeof name, "rounded_%u", lanes);
        struct kernel_case *k = case_new(s, name);
        k->count = ROUNDS;
        lreg in = case_buffer(s, k, ELEM_F32, LARG_IN, (int64_t)ROUNDS * lanes);
        for (uint32_t v = 0; v < ROUNDS * lanes / 2; v++)
            ((float *)k->arg[0].data)[v] = (float)((int)(v % 2400) - 1200) / 4;
        memory[BYTE] = case_buffer(s, k, ELEM_U8, LARG_IN, 1);
        memory[SIGNED_BYTE] = case_buffer(s, k, ELEM_I8, LARG_IN, 1);
        memory[HALF] = case_buffer(s, k, ELEM_F32, LARG_IN, 1);
        *(uint8_t *)k->arg[1].data = 200;
        *(int8_t *)k->arg[2].data = -100;
        *(float *)k->arg[3].data = 0.5f;
        for (enum zero z = 0; z < ZEROS; z++)
            for (size_t t = 0; t < types[z]; t++)
                out[z][t] = case_buffer(s, k, narrow[t], LARG_OUT, (int64_t)ROUNDS * lanes);
        struct build b = case_parallel(k, &i);
        lreg at = op2(b, L_MUL, TINDEX, i, index_of(b, lanes));
        lreg x = op1(b, L_RINT, T(F32, lanes), load(b, T(F32, lanes), in, at));
        for (enum zero z = 0; z < ZEROS; z++) {
            lreg y = z ? op2(b, L_ADD, T(F32, lanes), x, zero_of(b, z, lanes, memory)) : x;
            for (size_t t = 0; t < types[z]; t++)
                store(b, out[z][t], at, op1(b, L_CONVERT, (struct ltype){narrow[t], lanes}, y));
        }
    }
    suite_run(s);
    suite_free(s);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_pairs), cmocka_unit_test(test_e8m0),
                                       cmocka_unit_test(test_every_half), cmocka_unit_test(test_rounded)};
    if (argc > 1 && strcmp(argv[1], "--worker") == 0)
        return codegen_worker();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
