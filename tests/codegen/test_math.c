/* The vector mathematics as machine code against the interpreter, bit for bit where the target fuses multiplications. How
 * good the results are, tests/loop/test_math.c measures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "harness.h"

enum { COUNT = 40 };

static const enum op unary[] = { OP_EXP, OP_EXPM1, OP_LOG, OP_LOG1P, OP_TANH, OP_SIGMOID, OP_ERF, OP_SIN, OP_COS, OP_TAN,
                                 OP_ASIN, OP_ACOS, OP_ATAN, OP_SINH, OP_COSH, OP_ASINH, OP_ACOSH, OP_ATANH };
static const enum op binary[] = { OP_POW, OP_ATAN2 };

/* Bits at random seldom lie where a function is interesting: every other vector is scaled into (-8, 8). */
static void tame(struct kernel_case *k, uint32_t arg, enum elem elem)
{
    int64_t n = k->arg[arg].bytes / elem_size(elem);
    for (int64_t i = 0; i < n; i += 2) {
        char *at = (char *)k->arg[arg].data + i * elem_size(elem);
        elem_from_f64(elem, (double)(i % 97) / 6 - 8, at);
    }
}

static void add_case(struct suite *s, enum op op, uint32_t n_in, enum elem elem, uint32_t lanes)
{
    char name[64];
    struct ltype t = { elem, lanes };
    lval in[2], i;
    snprintf(name, sizeof name, "%s_%s_%u", op_name(op), elem_name(elem), lanes);
    struct kernel_case *k = case_new(s, name);
    k->count = COUNT;
    k->unfused = true;
    for (uint32_t j = 0; j < 2; j++) {
        in[j] = case_buffer(s, k, elem, LARG_IN, COUNT * lanes);
        tame(k, j, elem);
    }
    lval out = case_buffer(s, k, elem, LARG_OUT, COUNT * lanes);
    struct build b = case_parallel(k, &i);
    lval at = op2(b, L_MUL, TINDEX, i, index_of(b, lanes));
    for (uint32_t j = 0; j < 2; j++)
        in[j] = load(b, t, in[j], at);
    lval r = lf_math(b.f, b.b, op, t, in, n_in);
    assert_int_not_equal(r.i, 0);
    store(b, out, at, r);
}

static void run_all(enum elem elem, uint32_t lanes)
{
    struct suite *s = suite_new();
    for (size_t i = 0; i < COUNT_OF(unary); i++)
        add_case(s, unary[i], 1, elem, lanes);
    for (size_t i = 0; i < COUNT_OF(binary); i++)
        add_case(s, binary[i], 2, elem, lanes);
    suite_run(s);
    suite_free(s);
}

static void test_f32_vector(void **state)
{
    (void)state;
    run_all(ELEM_F32, 16);
}

static void test_f32_scalar(void **state)
{
    (void)state;
    run_all(ELEM_F32, 1);
}

static void test_f64_vector(void **state)
{
    (void)state;
    run_all(ELEM_F64, 8);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f32_vector), cmocka_unit_test(test_f32_scalar), cmocka_unit_test(test_f64_vector)
    };
    if (argc > 1 && strcmp(argv[1], "--worker") == 0)
        return codegen_worker();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
