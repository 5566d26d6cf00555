/* Every computing statement on every element type it is defined on, scalar and in vectors, against the interpreter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness.h"

enum { COUNT = 64 };

static const enum elem float_elems[] = {ELEM_F32, ELEM_F64};
static const enum elem int_elems[] = {ELEM_I8, ELEM_I16, ELEM_I32, ELEM_I64, ELEM_U8, ELEM_U16, ELEM_U32, ELEM_U64};
static const uint32_t widths[] = {1, 4, 8, 16};

/* Three operand buffers, an output of n_ops results per index, an output of predicates. */
struct frame {
    struct build b;
    lreg a, x, y, z, out, flags, i, count;
    uint32_t n;
    struct ltype t, p;
};

static struct frame frame_new(struct suite *s, enum elem elem, uint32_t lanes, uint32_t n_ops)
{
    char name[64];
    struct frame f = {.t = {elem, lanes}, .p = {ELEM_BOOL, lanes}};
    snprintf(name, sizeof name, "%s_%u_%u", elem_name(elem), lanes, s->cases.n);
    struct kernel_case *k = case_new(s, name);
    k->count = COUNT;
    lreg in[3];
    for (int j = 0; j < 3; j++)
        in[j] = case_buffer(s, k, elem, LARG_IN, (int64_t)COUNT * lanes);
    f.out = case_buffer(s, k, elem, LARG_OUT, (int64_t)n_ops * COUNT * lanes);
    f.flags = case_buffer(s, k, ELEM_BOOL, LARG_OUT, (int64_t)n_ops * COUNT * lanes);
    f.b = case_parallel(k, &f.i);
    lreg at = op2(f.b, L_MUL, TINDEX, f.i, index_of(f.b, lanes));
    f.x = load(f.b, f.t, in[0], at);
    f.y = load(f.b, f.t, in[1], at);
    f.z = load(f.b, f.t, in[2], at);
    return f;
}

static lreg next_place(struct frame *f)
{
    lreg base = index_of(f->b, (int64_t)f->n++ * COUNT * f->t.lanes);
    return op2(f->b, L_ADD, TINDEX, base, op2(f->b, L_MUL, TINDEX, f->i, index_of(f->b, f->t.lanes)));
}

static void put(struct frame *f, lreg v)
{
    store(f->b, f->out, next_place(f), v);
}

static void put_flag(struct frame *f, lreg v)
{
    store(f->b, f->flags, next_place(f), v);
}

static void compares(struct frame *f)
{
    static const enum lop ops[] = {L_EQ, L_NE, L_LT, L_LE};
    for (size_t i = 0; i < COUNT_OF(ops); i++)
        put_flag(f, op2(f->b, ops[i], f->p, f->x, f->y));
    put(f, op3(f->b, L_SELECT, f->t, op2(f->b, L_LT, f->p, f->x, f->z), f->x, f->y));
}

/* v is not a signalling NaN, which AArch64's fmaxnm hands on. */
static lreg clamped(struct frame *f, lreg v, int64_t least, int64_t most)
{
    v = op2(f->b, L_MAXNUM, f->t, v, number(f->b, f->t, least));
    return op2(f->b, L_MINNUM, f->t, v, number(f->b, f->t, most));
}

/* Powers up to the largest, of results that are subnormal or overflow too. */
static void powers_of_two(struct frame *f)
{
    int64_t most = f->t.elem == ELEM_F64 ? 2044 : 252, normal = f->t.elem == ELEM_F64 ? 1080 : 151;
    lreg n = op1(f->b, L_RINT, f->t, f->y), m = op1(f->b, L_RINT, f->t, f->z);
    lreg a = clamped(f, op2(f->b, L_ADD, f->t, f->x, f->z), 1, 4);
    put(f, op2(f->b, L_LDEXP, f->t, a, clamped(f, n, -most, most)));
    put(f, op2(f->b, L_LDEXP, f->t, op1(f->b, L_NEG, f->t, a), clamped(f, m, -normal, -normal + 24)));
}

static void test_floats(void **state)
{
    static const enum lop one[] = {L_NEG, L_ABS, L_SQRT, L_FLOOR, L_CEIL, L_RINT, L_TRUNC};
    static const enum lop two[] = {L_ADD, L_SUB, L_MUL, L_DIV, L_REM, L_MIN, L_MAX, L_MINNUM, L_MAXNUM};
    struct suite *s = suite_new();
    (void)state;
    for (size_t e = 0; e < COUNT_OF(float_elems); e++) {
        for (size_t w = 0; w < COUNT_OF(widths); w++) {
            struct frame f = frame_new(s, float_elems[e], widths[w], 32);
            for (size_t i = 0; i < COUNT_OF(one); i++)
                put(&f, op1(f.b, one[i], f.t, f.x));
            for (size_t i = 0; i < COUNT_OF(two); i++)
                put(&f, op2(f.b, two[i], f.t, f.x, f.y));
            compares(&f);
            powers_of_two(&f);
            f = frame_new(s, float_elems[e], widths[w], 1);
            s->cases.data[s->cases.n - 1].unfused = true;
            put(&f, op3(f.b, L_FMA, f.t, f.x, f.y, f.z));
        }
    }
    suite_run(s);
    suite_free(s);
}

static struct lstmt *last(struct build b)
{
    struct lblk *blk = &b.f->blocks.data[b.b.i];
    return &blk->stmts.data[blk->stmts.n - 1];
}

static lreg with_imm(struct build b, lreg v, int64_t imm)
{
    last(b)->imm = imm;
    return v;
}

/* Rounded once, whatever the target has. */
static void test_halves(void **state)
{
    struct suite *s = suite_new();
    (void)state;
    for (size_t w = 0; w < COUNT_OF(widths); w++)
        for (uint32_t draw = 0; draw < 4; draw++) {
            struct frame f = frame_new(s, ELEM_F16, widths[w], 2);
            put(&f, op3(f.b, L_FMA, f.t, f.x, f.y, f.z));
            lreg one = with_imm(f.b, op1(f.b, L_EXTRACT, (struct ltype){ELEM_F16, 1}, f.x), widths[w] - 1);
            put(&f, op3(f.b, L_FMA, f.t, op1(f.b, L_SPLAT, f.t, one), f.y, number(f.b, f.t, 0)));
        }
    suite_run(s);
    suite_free(s);
}

static void divisions(struct frame *f)
{
    lreg zero = number(f->b, f->t, 0), one = number(f->b, f->t, 1), seven = number(f->b, f->t, 7);
    lreg d = op3(f->b, L_SELECT, f->t, op2(f->b, L_EQ, f->p, f->y, zero), one, f->y);
    lreg positive = op2(f->b, L_MAX, f->t, f->y, one);
    put(f, op2(f->b, L_DIV, f->t, f->x, d));
    put(f, op2(f->b, L_REM, f->t, f->x, d));
    put(f, op2(f->b, L_FLOORDIV, f->t, f->x, positive));
    put(f, op2(f->b, L_FLOORMOD, f->t, f->x, positive));
    put(f, op2(f->b, L_DIV, f->t, f->x, seven));
    put(f, op2(f->b, L_REM, f->t, f->x, seven));
    put(f, op2(f->b, L_FLOORDIV, f->t, f->x, seven));
    put(f, op2(f->b, L_FLOORMOD, f->t, f->x, seven));
    for (int64_t n = 1; n <= 64; n *= 8) { /* shifts */
        put(f, op2(f->b, L_FLOORDIV, f->t, f->x, number(f->b, f->t, n)));
        put(f, op2(f->b, L_FLOORMOD, f->t, f->x, number(f->b, f->t, n)));
    }
}

static void test_integers(void **state)
{
    static const enum lop one[] = {L_NEG, L_ABS, L_NOT};
    static const enum lop two[] = {L_ADD, L_SUB, L_MUL, L_MIN, L_MAX, L_AND, L_OR, L_XOR, L_SHL, L_SHR};
    struct suite *s = suite_new();
    (void)state;
    for (size_t e = 0; e < COUNT_OF(int_elems); e++) {
        for (size_t w = 0; w < COUNT_OF(widths); w++) {
            struct frame f = frame_new(s, int_elems[e], widths[w], 46);
            for (size_t i = 0; i < COUNT_OF(one); i++)
                put(&f, op1(f.b, one[i], f.t, f.x));
            for (size_t i = 0; i < COUNT_OF(two); i++)
                put(&f, op2(f.b, two[i], f.t, f.x, f.y));
            put(&f, op3(f.b, L_FMA, f.t, f.x, f.y, f.z));
            divisions(&f);
            compares(&f);
            put(&f, lf_op(f.b.f, f.b.b, L_IOTA, f.t, NULL, 0));
        }
    }
    suite_run(s);
    suite_free(s);
}

/* Products of bytes, of which the first have a sign or none, and of bf16, lane by lane and of rows by columns, in every
 * width; halves hold small integers, so that no order and no rounding shows. */
static void test_dots(void **state)
{
    static const uint32_t lanes[] = {1, 2, 4, 8, 16, 32};
    struct suite *s = suite_new();
    (void)state;
    for (size_t w = 0; w < COUNT_OF(lanes); w++) {
        char name[32];
        uint32_t n = lanes[w], elements = 4 * n * COUNT;
        snprintf(name, sizeof name, "dot_%u", n);
        struct kernel_case *k = case_new(s, name);
        lreg a = case_buffer(s, k, ELEM_U8, LARG_IN, elements), b = case_buffer(s, k, ELEM_I8, LARG_IN, elements), i;
        lreg c = case_buffer(s, k, ELEM_I32, LARG_IN, n * COUNT), d = case_buffer(s, k, ELEM_I16, LARG_IN, n * COUNT);
        lreg whole = case_buffer(s, k, ELEM_I32, LARG_OUT, n * COUNT),
             whole_signed = case_buffer(s, k, ELEM_I32, LARG_OUT, n * COUNT),
             real = case_buffer(s, k, ELEM_F32, LARG_OUT, n * COUNT),
             blocks = case_buffer(s, k, ELEM_I32, LARG_OUT, n * COUNT),
             blocks_signed = case_buffer(s, k, ELEM_I32, LARG_OUT, n * COUNT),
             reals = case_buffer(s, k, ELEM_F32, LARG_OUT, n * COUNT),
             across = case_buffer(s, k, ELEM_I32, LARG_OUT, COUNT);
        k->count = COUNT;
        struct build f = case_parallel(k, &i);
        struct ltype word = {ELEM_I32, n}, single = {ELEM_F32, n}, half = {ELEM_BF16, 2 * n};
        lreg at = op2(f, L_MUL, TINDEX, i, index_of(f, n)), four = op2(f, L_MUL, TINDEX, i, index_of(f, 4 * n));
        lreg first = load(f, (struct ltype){ELEM_U8, 4 * n}, a, four),
             second = load(f, (struct ltype){ELEM_I8, 4 * n}, b, four), sum = load(f, word, c, at);
        lreg turned = op1(f, L_BITCAST, (struct ltype){ELEM_I8, 4 * n}, first);
        store(f, whole, at, op3(f, L_DOT, word, first, second, sum));
        store(f, whole_signed, at, op3(f, L_DOT, word, turned, second, sum));
        lreg x = op1(f, L_CONVERT, half, load(f, (struct ltype){ELEM_U8, 2 * n}, a, four));
        lreg y = op1(f, L_CONVERT, half, load(f, (struct ltype){ELEM_I8, 2 * n}, b, four));
        lreg z = op1(f, L_CONVERT, single, load(f, (struct ltype){ELEM_I16, n}, d, at));
        store(f, real, at, op3(f, L_DOT, single, x, y, z));
        if (n == 4) { /* 16 bytes */
            struct ltype one = {ELEM_I32, 1};
            lreg begin = load(f, one, c, i), part = op3(f, L_DOT, one, first, second, begin);
            store(f, across, i, op3(f, L_DOT, one, turned, second, part));
        }
        if (n % 4) /* no two rows by two columns */
            continue;
        store(f, blocks, at, op3(f, L_MATDOT, word, first, second, sum));
        store(f, blocks_signed, at, op3(f, L_MATDOT, word, turned, second, sum));
        store(f, reals, at, op3(f, L_MATDOT, single, x, y, z));
    }
    suite_run(s);
    suite_free(s);
}

/* splat, extract, insert, hreduce, shuffle */
static void shapes(struct frame *f, bool is_float)
{
    static const enum lop whole[] = {L_ADD, L_MUL, L_MIN, L_MAX, L_AND, L_OR};
    struct ltype scalar = {f->t.elem, 1};
    uint32_t lanes = f->t.lanes;
    lreg first = with_imm(f->b, op1(f->b, L_EXTRACT, scalar, f->x), lanes - 1);
    put(f, op1(f->b, L_SPLAT, f->t, first));
    put(f, with_imm(f->b, op2(f->b, L_INSERT, f->t, f->y, first), lanes / 2));
    for (size_t i = 0; i < (is_float ? 4 : COUNT_OF(whole)); i++)
        put(f, op1(f->b, L_SPLAT, f->t, with_imm(f->b, op1(f->b, L_HREDUCE, scalar, f->x), whole[i])));
    uint8_t *list = arena_alloc(f->b.f->arena, lanes);
    for (uint32_t i = 0; i < lanes; i++)
        list[i] = (uint8_t)(i * 7 % (2 * lanes));
    lreg v = op2(f->b, L_SHUFFLE, f->t, f->x, f->y);
    last(f->b)->aux = list;
    last(f->b)->n_aux = lanes;
    put(f, v);
    v = op2(f->b, L_SHUFFLE, scalar, f->x, f->y);
    last(f->b)->aux = list + 1;
    last(f->b)->n_aux = 1;
    put(f, op1(f->b, L_SPLAT, f->t, v));
}

static void test_shapes(void **state)
{
    struct suite *s = suite_new();
    (void)state;
    for (size_t w = 1; w < COUNT_OF(widths); w++) {
        for (size_t e = 0; e < COUNT_OF(float_elems); e++) {
            struct frame f = frame_new(s, float_elems[e], widths[w], 12);
            shapes(&f, true);
        }
        for (size_t e = 0; e < COUNT_OF(int_elems); e++) {
            struct frame f = frame_new(s, int_elems[e], widths[w], 12);
            shapes(&f, false);
        }
    }
    suite_run(s);
    suite_free(s);
}

static void test_bools(void **state)
{
    static const enum lop two[] = {L_AND, L_OR, L_XOR, L_EQ, L_NE};
    struct suite *s = suite_new();
    (void)state;
    for (size_t w = 0; w < COUNT_OF(widths); w++) {
        struct frame f = frame_new(s, ELEM_BOOL, widths[w], 12);
        for (size_t i = 0; i < COUNT_OF(two); i++)
            put(&f, op2(f.b, two[i], f.t, f.x, f.y));
        put(&f, op1(f.b, L_NOT, f.t, f.x));
        put(&f, op3(f.b, L_SELECT, f.t, f.x, f.y, f.z));
        lreg all = widths[w] == 1 ? f.x : with_imm(f.b, op1(f.b, L_HREDUCE, T(BOOL, 1), f.x), L_AND);
        lreg any = widths[w] == 1 ? f.x : with_imm(f.b, op1(f.b, L_HREDUCE, T(BOOL, 1), f.x), L_OR);
        put(&f, op1(f.b, L_SPLAT, f.t, all));
        put(&f, op1(f.b, L_SPLAT, f.t, any));
    }
    suite_run(s);
    suite_free(s);
}

static void test_bitcast(void **state)
{
    static const enum elem pairs[][2] = {{ELEM_F32, ELEM_I32},
                                         {ELEM_F64, ELEM_U64},
                                         {ELEM_F16, ELEM_I16},
                                         {ELEM_BF16, ELEM_U16},
                                         {ELEM_F8E5M2, ELEM_U8}};
    struct suite *s = suite_new();
    (void)state;
    for (size_t i = 0; i < COUNT_OF(pairs); i++) {
        for (size_t w = 0; w < COUNT_OF(widths); w++) {
            struct frame f = frame_new(s, pairs[i][0], widths[w], 2);
            struct ltype other = {pairs[i][1], widths[w]};
            lreg v = op1(f.b, L_BITCAST, other, f.x);
            v = op2(f.b, L_XOR, other, v, number(f.b, other, 1));
            put(&f, op1(f.b, L_BITCAST, f.t, v));
        }
    }
    suite_run(s);
    suite_free(s);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_floats),   cmocka_unit_test(test_halves),
                                       cmocka_unit_test(test_integers), cmocka_unit_test(test_dots),
                                       cmocka_unit_test(test_shapes),   cmocka_unit_test(test_bools),
                                       cmocka_unit_test(test_bitcast)};
    if (argc > 1 && strcmp(argv[1], "--worker") == 0)
        return codegen_worker();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
