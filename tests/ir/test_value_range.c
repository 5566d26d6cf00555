/* value_range against the interpreter: every element of what random nodes make of random inputs lies inside of it; and
 * the ranges that index checks rely on.
 *
 * MCC_TEST_SEED and MCC_TEST_COUNT override what is tried; a failure prints its seed. */
#include "tests/ir/evaluate.h"

#include "ir/eval/constants.h"

#include <stdio.h>
#include <stdlib.h>

static uint64_t rng_state;

static uint32_t below(uint32_t n)
{
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng_state >> 33) % n;
}

static void expect(struct bench *t, value_id v, int64_t lo, int64_t hi)
{
    struct value_range r = value_range(t->g, v);
    assert_int_equal(r.lo, lo);
    assert_int_equal(r.hi, hi);
}

static void test_by_operator(void **state)
{
    struct bench t;
    (void)state;
    bench_open(&t);
    value_id bytes = bench_symbolic(&t, "n", "u8 3: 1 2 3"), table = bench_const(&t, "i32 4: -7 3 9 0");
    value_id flags = bench_symbolic(&t, "n", "bool 3: 1 0 1"), open = bench_symbolic(&t, "n", "i64 3: 1 2 3");
    value_id read = b_gather(&t.b, table, bytes, 0), one = b_convert(&t.b, flags, ELEM_I32);
    expect(&t, bytes, 0, 255);
    expect(&t, open, INT64_MIN, INT64_MAX);
    expect(&t, table, -7, 9);
    expect(&t, read, -7, 9);
    expect(&t, b_binary(&t.b, OP_ADD, read, one), -7, 10);
    expect(&t, b_binary(&t.b, OP_SUB, read, one), -8, 9);
    expect(&t, b_binary(&t.b, OP_MUL, read, read), -63, 81);
    expect(&t, b_select(&t.b, flags, read, one), -7, 9);
    expect(&t, b_binary(&t.b, OP_MAX, read, one), 0, 9);
    expect(&t, b_binary(&t.b, OP_MIN, read, one), -7, 1);
    expect(&t, b_convert(&t.b, read, ELEM_I64), -7, 9);
    expect(&t, b_convert(&t.b, read, ELEM_U8), 0, 255);      /* -7 wraps */
    expect(&t, b_binary(&t.b, OP_ADD, bytes, bytes), 0, 255); /* so does 255 + 255 */
    expect(&t, b_convert(&t.b, open, ELEM_U8), 0, 255);
    expect(&t, b_binary(&t.b, OP_SUB, open, open), 0, 0);
    bench_close(&t);
}

static value_id draw_node(struct bench *t, const value_id *have, uint32_t n, value_id flags)
{
    static const enum op ops[] = {OP_ADD, OP_SUB, OP_MUL, OP_MIN, OP_MAX};
    static const enum elem elems[] = {ELEM_I8, ELEM_U8, ELEM_I16, ELEM_I32, ELEM_I64, ELEM_U64};
    value_id a = have[below(n)], b = have[below(n)];
    enum elem e = value_type(t->g, a)->elem;
    value_id same = value_type(t->g, b)->elem == e ? b : b_convert(&t->b, b, e);
    expr_id one = ex_const(t->ctx->exprs, 1);
    switch (below(6)) {
    case 0: return b_convert(&t->b, a, elems[below(COUNT_OF(elems))]);
    case 1: return b_select(&t->b, flags, a, same);
    case 2: {
        value_id pair[2] = {a, same};
        expr_id start = ex_const(t->ctx->exprs, 0), size = value_type(t->g, a)->dims[0];
        return b_slice_axis(&t->b, b_concat(&t->b, pair, 2, 0), 0, start, size);
    }
    case 3:
        return b_slice_axis(&t->b, b_pad(&t->b, a, (value_id){0}, &one, &one, "constant"), 0,
                            ex_const(t->ctx->exprs, 0), value_type(t->g, a)->dims[0]);
    default: return b_binary(&t->b, ops[below(COUNT_OF(ops))], a, same);
    }
}

static void draw(uint64_t seed)
{
    struct bench t;
    char text[3][120];
    static const char *const types[3] = {"i8", "u8", "bool"};
    rng_state = seed * 77 + 1;
    bench_open(&t);
    for (int k = 0; k < 3; k++) {
        int used = snprintf(text[k], sizeof text[k], "%s 6:", types[k]);
        for (int i = 0; i < 6; i++) {
            uint32_t x = below(k == 2 ? 2 : 256);
            used += snprintf(text[k] + used, sizeof text[k] - (size_t)used, " %d", k ? (int)x : (int)x - 128);
        }
    }
    value_id have[24] = {bench_symbolic(&t, "n", text[0]), bench_symbolic(&t, "n", text[1])};
    value_id flags = bench_symbolic(&t, "n", text[2]);
    uint32_t n = 2;
    while (n < COUNT_OF(have)) {
        have[n] = draw_node(&t, have, n, flags);
        assert_true(have[n].i != 0);
        n++;
    }
    for (uint32_t k = 0; k < n; k++) {
        struct value_range r = value_range(t.g, have[k]);
        struct tensor got;
        const char *why = NULL;
        assert_int_equal(bench_eval(&t, have[k], &got, &why), EVAL_OK);
        for (int64_t i = 0; i < 6 && got.elem != ELEM_U64; i++) {
            int64_t x = elem_to_i64(got.elem, (const char *)got.data + (size_t)i * elem_size(got.elem));
            if (x < r.lo || x > r.hi)
                fail_msg("seed %llu, value %u: %lld is not in %lld .. %lld", (unsigned long long)seed, k, (long long)x,
                         (long long)r.lo, (long long)r.hi);
        }
    }
    bench_close(&t);
}

static void test_drawn(void **state)
{
    const char *seed = getenv("MCC_TEST_SEED"), *count = getenv("MCC_TEST_COUNT");
    uint64_t from = seed ? strtoull(seed, NULL, 10) : 1, n = count ? strtoull(count, NULL, 10) : 300;
    (void)state;
    for (uint64_t s = from; s < from + n; s++)
        draw(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_operator),
        cmocka_unit_test(test_drawn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
