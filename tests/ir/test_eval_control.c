/* The interpreter on regions, sequences, optionals, asserts and symbols. */
#include "tests/ir/evaluate.h"

#include <string.h>

static struct type tensor_type(struct bench *t, enum elem elem, const int64_t *dims, int32_t rank)
{
    expr_id *list = NEW_ARRAY(&t->ctx->session, expr_id, rank + 1);
    for (int32_t i = 0; i < rank; i++)
        list[i] = ex_const(t->ctx->exprs, dims[i]);
    return (struct type){.kind = TYPE_TENSOR, .elem = elem, .rank = rank, .dims = list};
}

static struct builder in_region(struct bench *t, region_id r)
{
    return builder_in(t->g, r);
}

static enum eval_status status_of(struct bench *t, value_id v, const char **text)
{
    struct tensor out;
    return bench_eval(t, v, &out, text);
}

/* if (c) x + x else x * x */
static void test_if(void **state)
{
    (void)state;
    for (int cond = 0; cond < 2; cond++) {
        struct bench t;
        bench_open(&t);
        value_id c = bench_input(&t, cond ? "bool: 1" : "bool: 0"), x = bench_input(&t, "f32 2: 3 4");
        struct type out = *value_type(t.g, x);
        assert_true(op_infer(t.g, OP_IF, (src_id){0}, &c, 1, NULL, 0, &out, 1));
        node_id n = graph_append(t.g, (region_id){1}, OP_IF, (src_id){0}, &c, 1, NULL, 0, &out, 1);
        for (int k = 0; k < 2; k++) {
            region_id r = graph_region(t.g, (region_id){1}, n);
            struct builder b = in_region(&t, r);
            graph_add_result(t.g, r, b_binary(&b, k ? OP_MUL : OP_ADD, x, x));
        }
        bench_expect(&t, graph_node(t.g, n)->out[0], cond ? "f32 2: 6 8" : "f32 2: 9 16");
        bench_close(&t);
    }
}

/* Carries s = s + i while s < stop; scan output: s before each addition, as a row of one. */
static node_id build_loop(struct bench *t, value_id trip_count, value_id stop)
{
    struct exprs *ex = t->ctx->exprs;
    value_id init = bench_input(t, "i64: 0");
    expr_id trips = ex_sym(ex, sym_new(ex, SYM_VALUE, "trips", 0, INT64_MAX));
    expr_id dims[2] = {trips, ex_const(ex, 1)};
    struct type out[2] = {tensor_type(t, ELEM_I64, NULL, 0),
                          {.kind = TYPE_TENSOR, .elem = ELEM_I64, .rank = 2, .dims = dims}};
    value_id in[3] = {trip_count, bench_input(t, "bool: 1"), init};
    struct attr attrs[] = {attr_int("n_carried", 1), attr_expr("trips", trips)};
    assert_true(op_infer(t->g, OP_LOOP, (src_id){0}, in, 3, attrs, 2, out, 2));
    node_id n = graph_append(t->g, (region_id){1}, OP_LOOP, (src_id){0}, in, 3, attrs, 2, out, 2);
    region_id r = graph_region(t->g, (region_id){1}, n);
    struct builder b = in_region(t, r);
    value_id i = graph_param(t->g, r, tensor_type(t, ELEM_I64, NULL, 0), "i");
    graph_param(t->g, r, tensor_type(t, ELEM_BOOL, NULL, 0), "go");
    value_id s = graph_param(t->g, r, tensor_type(t, ELEM_I64, NULL, 0), "s");
    value_id next = b_binary(&b, OP_ADD, s, i);
    graph_add_result(t->g, r, b_binary(&b, OP_LT, next, stop));
    graph_add_result(t->g, r, next);
    graph_add_result(t->g, r, b_unsqueeze(&b, s, 0));
    return n;
}

static void test_loop(void **state)
{
    static const struct {
        const char *count, *stop, *sum, *rows;
    } cases[] = {
        {"i64: 4", "i64: 100", "i64: 6", "i64 4x1: 0 0 1 3"},
        {"i64: 100", "i64: 6", "i64: 6", "i64 4x1: 0 0 1 3"},
        {"i64: 0", "i64: 6", "i64: 0", "i64 0x1:"},
    };
    (void)state;
    for (size_t k = 0; k < COUNT_OF(cases); k++) {
        struct bench t;
        bench_open(&t);
        value_id count = bench_input(&t, cases[k].count), stop = bench_input(&t, cases[k].stop);
        node_id n = build_loop(&t, count, stop);
        value_id rows = graph_node(t.g, n)->out[1];
        bench_expect(&t, graph_node(t.g, n)->out[0], cases[k].sum);
        bench_expect(&t, rows, cases[k].rows);
        /* the number of trips is a symbol that later nodes may use */
        expr_id trips = b_dim(&t.b, rows, 0);
        bench_expect(&t, b_from_exprs(&t.b, ELEM_I64, &trips, 1, NULL, 0), k == 2 ? "i64: 0" : "i64: 4");
        bench_close(&t);
    }
}

static value_id op(struct bench *t, enum op o, const char *attrs, value_id a, value_id b, value_id c)
{
    value_id in[3] = {a, b, c}, out;
    bench_op(t, o, attrs, in, c.i ? 3 : b.i ? 2 : a.i ? 1 : 0, &out, 1);
    if (!out.i)
        fail_msg("%s: %s", op_name(o), last_error(t->ctx));
    return out;
}
#define NONE ((value_id){0})

static void test_sequences(void **state)
{
    (void)state;
    struct bench t;
    const char *text;
    bench_open(&t);
    value_id a = bench_input(&t, "f32 2: 1 2"), b = bench_input(&t, "f32 2: 3 4"), c = bench_input(&t, "f32 2: 5 6");
    value_id zero = bench_input(&t, "i64: 0"), last = bench_input(&t, "i64: -1"), far = bench_input(&t, "i64: 9");
    value_id s = op(&t, OP_SEQ_MAKE, "elem=f32", a, b, NONE);
    value_id front = op(&t, OP_SEQ_INSERT, "", s, c, zero);        /* c a b */
    value_id back = op(&t, OP_SEQ_INSERT, "", front, c, NONE);     /* c a b c */
    value_id less = op(&t, OP_SEQ_ERASE, "", back, last, NONE);    /* c a b */
    value_id least = op(&t, OP_SEQ_ERASE, "", less, NONE, NONE);   /* c a */
    bench_expect(&t, op(&t, OP_SEQ_LENGTH, "", back, NONE, NONE), "i64: 4");
    bench_expect(&t, op(&t, OP_SEQ_LENGTH, "", least, NONE, NONE), "i64: 2");
    bench_expect(&t, op(&t, OP_SEQ_AT, "", least, last, NONE), "f32 2: 1 2");
    bench_expect(&t, op(&t, OP_SEQ_CONCAT, "axis=0 new_axis=0 dims=@", less, NONE, NONE), "f32 6: 5 6 1 2 3 4");
    bench_expect(&t, op(&t, OP_SEQ_CONCAT, "axis=1 new_axis=1 dims=2,@", less, NONE, NONE), "f32 2x3: 5 1 3 6 2 4");
    value_id empty = op(&t, OP_SEQ_MAKE, "elem=f32", NONE, NONE, NONE);
    bench_expect(&t, op(&t, OP_SEQ_LENGTH, "", empty, NONE, NONE), "i64: 0");
    assert_int_equal(status_of(&t, op(&t, OP_SEQ_AT, "", s, far, NONE), &text), EVAL_VALUE);
    assert_non_null(strstr(text, "position 9 in a sequence of 2"));
    bench_close(&t);
}

static void test_split(void **state)
{
    static const struct {
        const char *split, *attrs;
        int at;
        const char *want;
    } cases[] = {
        {"i64: 2", "axis=0 keepdims=1", 1, "i64 1: 3"},
        {"i64 2: 1 2", "axis=0 keepdims=1", 1, "i64 2: 2 3"},
        {NULL, "axis=0 keepdims=0", 2, "i64: 3"},
        {NULL, "axis=0 keepdims=1", 0, "i64 1: 1"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct bench t;
        bench_open(&t);
        value_id x = bench_input(&t, "i64 3: 1 2 3"), split = NONE;
        if (cases[i].split)
            split = bench_input(&t, cases[i].split);
        value_id s = op(&t, OP_SEQ_SPLIT, cases[i].attrs, x, split, NONE);
        bench_expect(&t, op(&t, OP_SEQ_AT, "", s, b_scalar_i64(&t.b, ELEM_I64, cases[i].at), NONE), cases[i].want);
        bench_close(&t);
    }
}

static void test_optionals(void **state)
{
    (void)state;
    struct bench t;
    const char *text;
    bench_open(&t);
    value_id x = bench_input(&t, "f32 2: 1 2");
    value_id full = op(&t, OP_OPT_MAKE, "", x, NONE, NONE), empty = op(&t, OP_OPT_MAKE, "elem=f32", NONE, NONE, NONE);
    bench_expect(&t, op(&t, OP_OPT_HAS, "", full, NONE, NONE), "bool: 1");
    bench_expect(&t, op(&t, OP_OPT_HAS, "", empty, NONE, NONE), "bool: 0");
    bench_expect(&t, op(&t, OP_OPT_GET, "", full, NONE, NONE), "f32 2: 1 2");
    assert_int_equal(status_of(&t, op(&t, OP_OPT_GET, "", empty, NONE, NONE), &text), EVAL_VALUE);
    bench_close(&t);
}

static void test_strings(void **state)
{
    (void)state;
    struct bench t;
    struct tensor out;
    const char *text;
    bench_open(&t);
    struct span a[2] = {{"ab", 2}, {"", 0}}, b[2] = {{"c", 1}, {"", 0}};
    int64_t dims[1] = {2};
    value_id u = b_const(&t.b, ELEM_STR, dims, 1, a), v = b_const(&t.b, ELEM_STR, dims, 1, b);
    bench_expect(&t, op(&t, OP_STRING, "fn=equal elem=bool dims=2", u, v, NONE), "bool 2: 0 1");
    assert_int_equal(bench_eval(&t, op(&t, OP_STRING, "fn=concat elem=string dims=2", u, v, NONE), &out, &text),
                     EVAL_OK);
    struct span *s = out.data;
    assert_true(s[0].size == 3 && memcmp(s[0].data, "abc", 3) == 0 && s[1].size == 0);
    /* "(ab)*": a, b and the other bytes; nowhere, the start, behind an a */
    uint8_t table[260 + 2 * 3 * 4] = {['a'] = 1, ['b'] = 2, [256] = 3, [258] = 3, [268] = 1, [272] = 2, [282] = 1};
    const int64_t size = sizeof table, cut = size - 2;
    value_id good = b_const(&t.b, ELEM_U8, &size, 1, table);
    bench_expect(&t, op(&t, OP_STRING, "fn=match elem=bool dims=2", u, good, NONE), "bool 2: 1 1");
    bench_expect(&t, op(&t, OP_STRING, "fn=match elem=bool dims=2", v, good, NONE), "bool 2: 0 1");
    value_id x = bench_input(&t, "f32 2: 1 2");
    assert_int_equal(status_of(&t, op(&t, OP_STRING, "fn=upper elem=i64 dims=2", x, NONE, NONE), &text),
                     EVAL_UNSUPPORTED);
    assert_non_null(strstr(text, "upper"));
    bench_close(&t);

    bench_open(&t);   /* the node that failed stays in its graph */
    u = b_const(&t.b, ELEM_STR, dims, 1, a);
    value_id small = b_const(&t.b, ELEM_U8, &cut, 1, table);
    assert_int_equal(status_of(&t, op(&t, OP_STRING, "fn=match elem=bool dims=2", u, small, NONE), &text), EVAL_VALUE);
    bench_close(&t);
}

/* Symbols bind from shapes, whatever the order of the inputs, and are checked. */
static void test_shape_symbols(void **state)
{
    (void)state;
    struct bench t;
    const char *text;
    bench_open(&t);
    bench_symbolic(&t, "2*n", "f32 6: 0 0 0 0 0 0");
    value_id x = bench_symbolic(&t, "n 2", "f32 3x2: 1 2 3 4 5 6");
    bench_expect(&t, b_shape_of(&t.b, x), "i64 2: 3 2");
    t.inputs[0].dims[0] = 5;
    assert_int_equal(status_of(&t, x, &text), EVAL_SHAPE);
    assert_non_null(strstr(text, "5 instead of 6"));
    bench_close(&t);
}

/* Elements known only at run time: reshape to a shape that is an input. */
static void test_value_symbols(void **state)
{
    (void)state;
    struct bench t;
    const char *text;
    uint32_t n;
    bench_open(&t);
    value_id x = bench_input(&t, "f32 6: 1 2 3 4 5 6"), shape = bench_input(&t, "i64 2: 2 3");
    value_id doubled = b_binary(&t.b, OP_MUL, shape, b_scalar_i64(&t.b, ELEM_I64, 1));
    const expr_id *e = b_elems(&t.b, doubled, 0, 100, &n);
    assert_int_equal(n, 2);
    expr_id dims[2] = {e[0], e[1]};
    assert_int_equal(b_elems(&t.b, doubled, 0, 100, &n)[1].i, dims[1].i);   /* cached */
    value_id y = b_reshape(&t.b, x, dims, 2);
    bench_expect(&t, y, "f32 2x3: 1 2 3 4 5 6");
    /* arithmetic on the known elements folds into expressions */
    value_id sum = b_reduce(&t.b, doubled, (int64_t[]){0}, 1, "sum", false);
    assert_int_equal(value_op(t.g, sum), OP_FROM_EXPRS);
    bench_expect(&t, sum, "i64: 5");
    ((int64_t *)t.inputs[1].data)[0] = 4;
    assert_int_equal(status_of(&t, y, &text), EVAL_SHAPE);
    assert_non_null(strstr(text, "number of elements"));
    ((int64_t *)t.inputs[1].data)[0] = -4;
    assert_int_equal(status_of(&t, y, &text), EVAL_VALUE);             /* outside of [0, 100] */
    bench_close(&t);
}

static void test_assert(void **state)
{
    (void)state;
    struct bench t;
    const char *text;
    bench_open(&t);
    value_id x = bench_symbolic(&t, "n", "f32 3: 1 2 3");
    expr_id n = b_dim(&t.b, x, 0);
    b_assert(&t.b, ex_le(t.ctx->exprs, n, ex_const(t.ctx->exprs, 3)), EVAL_VALUE, "n is above %d", 3);
    bench_expect(&t, x, "f32 3: 1 2 3");
    b_assert(&t.b, ex_lt(t.ctx->exprs, n, ex_const(t.ctx->exprs, 3)), EVAL_VALUE, "n is not below %d", 3);
    assert_int_equal(status_of(&t, x, &text), EVAL_VALUE);
    assert_string_equal(text, "n is not below 3");
    bench_close(&t);
}

/* Memory is bounded: a tensor beyond the limit is a status. */
static void test_memory_limit(void **state)
{
    (void)state;
    struct bench t;
    const char *text;
    bench_open(&t);
    t.ctx->limits.tensor_bytes = 1000;
    value_id x = bench_input(&t, "f32: 1");
    expr_id dims[2] = {ex_const(t.ctx->exprs, 1 << 20), ex_const(t.ctx->exprs, 1 << 20)};
    assert_int_equal(status_of(&t, b_broadcast(&t.b, x, dims, 2), &text), EVAL_NOMEM);
    bench_close(&t);
}

/* So is the work of several evaluations together. One that needs more than is left takes nothing of it. */
static void test_work_limit(void **state)
{
    (void)state;
    struct bench t;
    const char *text;
    int64_t left = 1000;
    bench_open(&t);
    t.ctx->eval_left = &left;
    value_id x = bench_input(&t, "f32: 1");
    expr_id dims[2] = {ex_const(t.ctx->exprs, 10), ex_const(t.ctx->exprs, 60)};
    value_id y = b_broadcast(&t.b, x, dims, 2);
    assert_int_equal(status_of(&t, y, &text), EVAL_OK);
    assert_true(left > 0 && left < 400);
    const int64_t before = left;
    assert_int_equal(status_of(&t, y, &text), EVAL_NOMEM);
    assert_string_equal(text, "the tensors have more elements than the interpreter may compute");
    assert_int_equal(left, before);
    bench_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_if),
        cmocka_unit_test(test_loop),
        cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_optionals),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_shape_symbols),
        cmocka_unit_test(test_value_symbols),
        cmocka_unit_test(test_assert),
        cmocka_unit_test(test_memory_limit),
        cmocka_unit_test(test_work_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
