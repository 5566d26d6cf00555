/* The builder: identities that fold, broadcasting of symbolic shapes, the value lattice, poison, messages. */
#include "tests/ir/evaluate.h"

#include <string.h>

static expr_id num(struct bench *t, int64_t v)
{
    return ex_const(t->ctx->exprs, v);
}

static expr_id sym(struct bench *t, const char *name, int64_t lo, int64_t hi)
{
    return ex_sym(t->ctx->exprs, sym_new(t->ctx->exprs, SYM_SHAPE, name, lo, hi));
}

static const char *text_of(struct bench *t, expr_id e)
{
    struct strbuf s = strbuf_of(&t->ctx->session);
    ex_print(t->ctx->exprs, e, &s);
    return s.data;
}

static uint32_t count_nodes(struct bench *t, enum op op)
{
    uint32_t n = 0;
    for (uint32_t i = 1; i < t->g->nodes.n; i++)
        n += t->g->nodes.data[i].op == op && !t->g->nodes.data[i].dead;
    return n;
}

static void test_identities(void **state)
{
    struct bench t;
    (void)state;
    bench_open(&t);
    value_id x = bench_symbolic(&t, "n 3", "f32 2x3: 1 2 3 4 5 6"), none = {0};
    const expr_id *dims = b_dims(&t.b, x).d;
    expr_id zeros[2] = {num(&t, 0), num(&t, 0)};
    int64_t same[2] = {0, 1}, ones[2] = {1, 1};
    assert_int_equal(b_reshape(&t.b, x, dims, 2).i, x.i);
    assert_int_equal(b_broadcast(&t.b, x, dims, 2).i, x.i);
    assert_int_equal(b_transpose(&t.b, x, same).i, x.i);
    assert_int_equal(b_slice(&t.b, x, zeros, dims, ones).i, x.i);
    assert_int_equal(b_pad(&t.b, x, none, zeros, zeros, "reflect").i, x.i);
    assert_int_equal(b_convert(&t.b, x, ELEM_F32).i, x.i);
    assert_int_equal(b_concat(&t.b, &x, 1, 0).i, x.i);
    assert_int_equal(b_unary(&t.b, OP_IDENTITY, x).i, x.i);
    assert_int_equal(b_reduce(&t.b, x, NULL, 0, "sum", false).i, x.i);
    assert_int_equal(t.g->nodes.n, 1);
    /* the same type, but something moves */
    value_id sq = bench_input(&t, "f32 2x2: 1 2 3 4");
    int64_t swap[2] = {1, 0}, back[2] = {-1, 1};
    expr_id two[2] = {num(&t, 2), num(&t, 2)}, starts[2] = {num(&t, 1), num(&t, 0)};
    assert_int_not_equal(b_transpose(&t.b, sq, swap).i, sq.i);
    bench_expect(&t, b_slice(&t.b, sq, starts, two, back), "f32 2x2: 3 4 1 2");
    bench_close(&t);
}

static void test_broadcast_dims(void **state)
{
    struct bench t;
    (void)state;
    bench_open(&t);
    expr_id n = sym(&t, "n", 1, INT64_MAX), m = sym(&t, "m", 1, INT64_MAX), big = sym(&t, "big", 2, 9), out[4];
    /* decided without the run */
    expr_id a[3] = {n, num(&t, 1), num(&t, 5)}, b[2] = {num(&t, 7), num(&t, 1)};
    assert_int_equal(b_broadcast_dims(&t.b, a, 3, b, 2, out), 3);
    assert_true(out[0].i == n.i && ex_is(t.ctx->exprs, out[1], 7) && ex_is(t.ctx->exprs, out[2], 5));
    assert_int_equal(b_broadcast_dims(&t.b, &n, 1, &n, 1, out), 1);
    assert_int_equal(count_nodes(&t, OP_ASSERT), 0);
    /* an interval that excludes 1 decides who wins, the run only checks */
    assert_int_equal(b_broadcast_dims(&t.b, &n, 1, &big, 1, out), 1);
    assert_int_equal(out[0].i, big.i);
    assert_int_equal(count_nodes(&t, OP_ASSERT), 1);
    /* undecided */
    assert_int_equal(b_broadcast_dims(&t.b, &n, 1, &m, 1, out), 1);
    assert_int_equal(ex_kind(t.ctx->exprs, out[0]), EX_SELECT);
    assert_int_equal(count_nodes(&t, OP_ASSERT), 2);
    /* refused: both shapes are named */
    expr_id c[2] = {n, num(&t, 3)}, d[1] = {num(&t, 4)};
    assert_int_equal(b_broadcast_dims(&t.b, c, 2, d, 1, out), -1);
    assert_non_null(strstr(last_error(t.ctx), "shapes [n, 3] and [4] do not broadcast"));
    bench_close(&t);
}

/* One graph, three runs: which operand is stretched is the run's decision. */
static void test_symbolic_binary(void **state)
{
    static const struct {
        const char *x, *y, *want;
        enum eval_status status;
    } cases[] = {
        {"f32 2: 1 2", "f32 2: 10 20", "f32 2: 11 22", EVAL_OK},
        {"f32 1: 1", "f32 2: 10 20", "f32 2: 11 21", EVAL_OK},
        {"f32 3: 1 2 3", "f32 1: 10", "f32 3: 11 12 13", EVAL_OK},
        {"f32 3: 1 2 3", "f32 2: 10 20", NULL, EVAL_SHAPE},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct bench t;
        struct tensor out;
        const char *text;
        bench_open(&t);
        value_id x = bench_symbolic(&t, "n", cases[i].x), y = bench_symbolic(&t, "m", cases[i].y);
        value_id sum = b_binary(&t.b, OP_ADD, x, y);
        if (cases[i].want)
            bench_expect(&t, sum, cases[i].want);
        assert_int_equal(bench_eval(&t, sum, &out, &text), cases[i].status);
        bench_close(&t);
    }
}

/* The usual shape arithmetic of exporters stays symbolic: Shape, Gather, Mul, Concat, Reshape. */
static void test_shape_arithmetic(void **state)
{
    struct bench t;
    uint32_t n;
    (void)state;
    bench_open(&t);
    value_id x = bench_symbolic(&t, "n h w",
                                "f32 2x3x4: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24");
    value_id shape = b_shape_of(&t.b, x);
    value_id h = b_gather(&t.b, shape, b_scalar_i64(&t.b, ELEM_I64, 1), 0);
    value_id w = b_gather(&t.b, shape, b_scalar_i64(&t.b, ELEM_I64, -1), 0);
    value_id hw = b_unsqueeze(&t.b, b_binary(&t.b, OP_MUL, h, w), 0);
    value_id batch = b_slice_axis(&t.b, shape, 0, num(&t, 0), num(&t, 1));
    value_id parts[2] = {batch, hw}, to = b_concat(&t.b, parts, 2, 0);
    to = b_convert(&t.b, b_convert(&t.b, to, ELEM_I32), ELEM_I64);
    const expr_id *e = b_elems(&t.b, to, 0, INT64_MAX, &n);
    assert_int_equal(n, 2);
    assert_string_equal(text_of(&t, e[0]), "n");
    assert_string_equal(text_of(&t, e[1]), "h*w");
    value_id y = b_reshape(&t.b, x, e, 2);
    assert_int_equal(count_nodes(&t, OP_ASSERT), 0);    /* the element count is proved */
    bench_expect(&t, b_shape_of(&t.b, y), "i64 2: 2 12");
    bench_close(&t);
}

static void test_lattice(void **state)
{
    struct bench t;
    uint32_t n;
    (void)state;
    bench_open(&t);
    value_id a = bench_const(&t, "i64 2x3: 1 2 3 4 5 6");
    int64_t perm[2] = {1, 0}, axis = 0;
    value_id v = b_reduce(&t.b, b_transpose(&t.b, a, perm), &axis, 1, "sum", false);
    const expr_id *e = b_elems(&t.b, v, INT64_MIN, INT64_MAX, &n);
    assert_true(n == 2 && ex_is(t.ctx->exprs, e[0], 6) && ex_is(t.ctx->exprs, e[1], 15));
    /* bytes wrap as they would at run time; symbols in bytes are not trusted to */
    value_id u = b_binary(&t.b, OP_ADD, bench_const(&t, "u8: 200"), bench_const(&t, "u8: 100"));
    assert_true(ex_is(t.ctx->exprs, b_elem(&t.b, u, 0, 255), 44));
    value_id x = bench_symbolic(&t, "n", "f32 300:"), dim = b_shape_of(&t.b, x);
    assert_null(graph_value(t.g, b_convert(&t.b, dim, ELEM_U8))->elems);
    /* comparisons and select */
    value_id c = b_binary(&t.b, OP_LT, dim, bench_const(&t, "i64 1: 0"));
    e = b_elems(&t.b, c, 0, 1, &n);
    assert_true(ex_is(t.ctx->exprs, e[0], 0));
    value_id s = b_select(&t.b, c, bench_const(&t, "i64 1: 7"), dim);
    assert_string_equal(text_of(&t, b_elem(&t.b, s, 0, INT64_MAX)), "n");
    /* a zero divisor is the run's failure, not the compiler's */
    value_id z = b_binary(&t.b, OP_DIV, bench_const(&t, "i64: 1"), bench_const(&t, "i64: 0"));
    assert_int_equal(value_op(t.g, z), OP_DIV);
    /* near the ends of int64 nothing overflows */
    value_id huge = b_binary(&t.b, OP_ADD, bench_const(&t, "i64: 9223372036854775807"), bench_const(&t, "i64: 1"));
    assert_true(ex_is(t.ctx->exprs, b_elem(&t.b, huge, INT64_MIN, INT64_MAX), INT64_MIN));
    b_binary(&t.b, OP_MUL, dim, bench_const(&t, "i64: 9223372036854775807"));
    assert_int_equal(t.ctx->n_errors, 0);
    bench_close(&t);
}

static void test_poison(void **state)
{
    struct bench t;
    (void)state;
    bench_open(&t);
    value_id x = bench_input(&t, "f32 2: 1 2"), y = bench_input(&t, "f32 3: 1 2 3");
    value_id bad = b_binary(&t.b, OP_ADD, x, y);
    assert_int_equal(bad.i, 0);
    assert_int_equal(t.ctx->n_errors, 1);
    assert_int_equal(t.ctx->fail, FAIL_MODEL);
    bad = b_clamp(&t.b, b_matmul(&t.b, b_select(&t.b, bad, x, x), x), 0, 6);
    bad = b_concat(&t.b, (value_id[]){x, bad}, 2, 0);
    bad = b_mean(&t.b, b_unsqueeze(&t.b, b_convert(&t.b, bad, ELEM_F64), 0), NULL, 0, true);
    assert_int_equal(b_shape_of(&t.b, bad).i, 0);
    assert_int_equal(b_dim(&t.b, bad, 0).i, 0);
    assert_int_equal(t.ctx->n_errors, 1);    /* reported once */
    bench_close(&t);
}

static void test_matmul(void **state)
{
    static const struct {
        const char *x, *y, *want;
    } cases[] = {
        {"f32 2: 1 2", "f32 2: 3 4", "f32: 11"},
        {"f32 2x2: 1 2 3 4", "f32 2: 1 10", "f32 2: 21 43"},
        {"f32 2: 1 10", "f32 2x2: 1 2 3 4", "f32 2: 31 42"},
        {"f32 2x2: 1 2 3 4", "f32 2x1: 1 10", "f32 2x1: 21 43"},
        {"f32 2x1x2: 1 2 3 4", "f32 2x1: 1 10", "f32 2x1x1: 21 43"},
        {"f32 2x1x2: 1 2 3 4", "f32 2x2x1: 1 10 2 20", "f32 2x1x1: 21 86"},
        {"f32 1x2: 1 2", "f32 2x2x1: 1 10 2 20", "f32 2x1x1: 21 42"},
        {"f32 2x1x1x2: 1 2 3 4", "f32 1x1x2x1: 1 10", "f32 2x1x1x1: 21 43"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct bench t;
        bench_open(&t);
        value_id v = b_matmul(&t.b, bench_input(&t, cases[i].x), bench_input(&t, cases[i].y));
        bench_expect(&t, v, cases[i].want);
        bench_close(&t);
    }
}

static void test_vocabulary(void **state)
{
    struct bench t;
    int64_t axes[1] = {1};
    (void)state;
    bench_open(&t);
    value_id x = bench_input(&t, "f32 2x2: 1 3 5 nan"), n = bench_symbolic(&t, "n", "f32 4: 1 2 3 6");
    bench_expect(&t, b_clamp(&t.b, x, 2, 4), "f32 2x2: 2 3 4 nan");
    bench_expect(&t, b_mean(&t.b, b_slice_axis(&t.b, x, 0, num(&t, 0), num(&t, 1)), axes, 1, true), "f32 1x1: 2");
    axes[0] = 0;
    bench_expect(&t, b_mean(&t.b, n, axes, 1, false), "f32: 3");
    bench_expect(&t, b_squeeze(&t.b, b_unsqueeze(&t.b, n, 1), 1), "f32 4: 1 2 3 6");
    bench_expect(&t, b_binary_f64(&t.b, OP_MUL, n, 2), "f32 4: 2 4 6 12");
    bench_expect(&t, b_mean(&t.b, bench_const(&t, "f16 2: 60000 60000"), axes, 1, false), "f16: 60000");
    assert_int_equal(b_squeeze(&t.b, bench_input(&t, "f32 3: 1 2 3"), 0).i, 0);
    bench_close(&t);
}

/* Windows larger than their input are refused when certain, checked by the run when not. */
static void test_window_bounds(void **state)
{
    static const char attrs[] = "monoid=max kernel=3 strides=1 lo=0 hi=0 dilations=1";
    struct bench t;
    struct tensor out;
    const char *text;
    value_id x, y;
    (void)state;
    bench_open(&t);
    x = bench_input(&t, "f32 1x1x1: 1");
    assert_false(bench_op(&t, OP_WINDOW, attrs, &x, 1, &y, 1));
    assert_non_null(strstr(last_error(t.ctx), "larger than spatial dim 0"));
    bench_close(&t);
    bench_open(&t);
    x = bench_symbolic(&t, "1 1 w", "f32 1x1x1: 1");
    assert_true(bench_op(&t, OP_WINDOW, attrs, &x, 1, &y, 1));
    assert_int_equal(bench_eval(&t, y, &out, &text), EVAL_SHAPE);
    assert_non_null(strstr(text, "window is larger"));
    bench_close(&t);
}

static void test_provably_wrong(void **state)
{
    struct bench t;
    (void)state;
    bench_open(&t);
    b_assert(&t.b, num(&t, 1), EVAL_VALUE, "fine");
    assert_int_equal(t.g->nodes.n, 1);
    b_assert(&t.b, num(&t, 0), EVAL_VALUE, "%d is wrong", 7);
    assert_string_equal(last_error(t.ctx), "7 is wrong");
    bench_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_identities),      cmocka_unit_test(test_broadcast_dims),
        cmocka_unit_test(test_symbolic_binary), cmocka_unit_test(test_shape_arithmetic),
        cmocka_unit_test(test_lattice),         cmocka_unit_test(test_poison),
        cmocka_unit_test(test_matmul),          cmocka_unit_test(test_vocabulary),
        cmocka_unit_test(test_window_bounds),   cmocka_unit_test(test_provably_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
