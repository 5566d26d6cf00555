/* Tests of legalize; with --serve the program answers the suite runner (suite.py) instead. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "passes/legalize/driver.h"
#include "tests/legalize/onnx_graph.h"
#include "tests/legalize/serve.h"

static const region_id top = {1};

struct fixture {
    struct context *ctx;
    struct graph *g;
};

static struct fixture *fixture_new(void)
{
    struct context *ctx = context_new();
    struct fixture *f = NEW(&ctx->session, struct fixture);
    f->ctx = ctx;
    f->g = graph_new(ctx);
    ctx->model_path = "test.onnx";
    return f;
}

static uint32_t count_ops(const struct graph *g, enum op op)
{
    uint32_t n = 0;
    for (uint32_t i = 1; i < g->nodes.n; i++)
        n += !g->nodes.data[i].dead && g->nodes.data[i].op == op;
    return n;
}

static const struct type *output_type(const struct graph *g, uint32_t i)
{
    return value_type(g, g->outputs.data[i].value);
}

static int64_t dim_of(const struct graph *g, uint32_t output, int32_t axis)
{
    int64_t n = -1;
    ex_is_const(g->ctx->exprs, output_type(g, output)->dims[axis], &n);
    return n;
}

/* The table binds to the largest version that is not above the node's. */
static void rows_bind_by_version(void **state)
{
    (void)state;
    assert_int_equal(row_find("", "Clip", 6)->since, 1);
    assert_int_equal(row_find("", "Clip", 11)->since, 11);
    assert_int_equal(row_find("ai.onnx", "Clip", 13)->since, 11);
    assert_int_equal(row_find("", "Scan", 9)->since, 9);
    assert_null(row_find("", "Scan", 7));
    assert_null(row_find("com.example", "Clip", 13));
    assert_null(row_find("", "NoSuchOperator", 13));
}

/* Every row is found by its own version, unless it begins before another of its operator. */
static void rows_are_found(void **state)
{
    (void)state;
    assert_true(legalize_row_count() > 200);
    for (uint32_t i = 0; i < legalize_row_count(); i++)
        assert_true(legalize_row_serves(i, legalize_row(i).since));
}

/* A0.5: every operator without a lowering is in one message, with counts, names, domain and version. */
static void refusals_are_collected(void **state)
{
    (void)state;
    struct fixture *f = fixture_new();
    const int64_t dims[] = {2, 3};
    value_id x = onnx_input(f->g, "x", dims, 2);
    value_id a = onnx_node(f->g, top, "com.example", "Foo", 1, &x, 1, NULL, 0);
    value_id b = onnx_node(f->g, top, "com.example", "Foo", 1, &a, 1, NULL, 0);
    value_id c = onnx_node(f->g, top, "", "Bar", 17, &x, 1, NULL, 0);
    value_id dead = onnx_node(f->g, top, "", "DeadOperator", 1, &x, 1, NULL, 0);
    value_id pair[2] = {b, c};
    (void)dead;
    onnx_output(f->g, "y", onnx_node(f->g, top, "", "Add", 14, pair, 2, NULL, 0));
    assert_null(legalize(f->ctx, f->g, NULL));
    assert_int_equal(f->ctx->n_errors, 1);
    assert_int_equal(f->ctx->fail, FAIL_MODEL);
    const char *text = f->ctx->diags.data[f->ctx->diags.n - 1].text;
    assert_non_null(strstr(text, "com.example.Foo-1 x 2"));
    assert_non_null(strstr(text, "Bar-17 x 1"));
    assert_null(strstr(text, "DeadOperator"));
    context_free(f->ctx);
}

/* An If on `size of axis 1 of x == 1`: Squeeze or Identity, as exporters write torch.squeeze(1). */
static value_id squeeze_if(struct graph *g, value_id x)
{
    static const int64_t one = 1;
    value_id at = onnx_ints(g, top, &one, 1), shape = onnx_node(g, top, "", "Shape", 13, &x, 1, NULL, 0);
    value_id gather_in[2] = {shape, at}, equal_in[2];
    equal_in[0] = onnx_node(g, top, "", "Gather", 13, gather_in, 2, NULL, 0);
    equal_in[1] = at;
    value_id cond = onnx_node(g, top, "", "Equal", 13, equal_in, 2, NULL, 0);
    region_id branch[2];
    for (int k = 0; k < 2; k++) {
        branch[k] = graph_region(g, top, (node_id){0});
        value_id in[2] = {x, at};
        graph_add_result(g, branch[k],
                         onnx_node(g, branch[k], "", k ? "Identity" : "Squeeze", 13, in, k ? 1 : 2, NULL, 0));
    }
    struct attr attrs[2] = {{.name = "then_branch", .kind = ATTR_REGION}, {.name = "else_branch", .kind = ATTR_REGION}};
    attrs[0].u.region = branch[0];
    attrs[1].u.region = branch[1];
    value_id y = onnx_node(g, top, "", "If", 16, &cond, 1, attrs, 2);
    for (int k = 0; k < 2; k++)
        graph_adopt_region(g, graph_value(g, y)->def, branch[k]);
    return y;
}

/* A4.1: crop by a negative reflection pad, then squeeze; neither If nor shape arithmetic is left. */
static void crop_then_squeeze(void **state)
{
    static const int64_t dims[2][5] = {{13, 1, 47, 44, 1}, {13, 47, 44, 1}};
    static const int64_t pads[2][10] = {{0, 0, 0, -43, 0, 0, 0, -46, 0, 0}, {0, 0, -43, 0, 0, -46, 0, 0}};
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct fixture *f = fixture_new();
        int32_t rank = 5 - k;
        struct attr mode = attr_str("mode", "reflect");
        value_id in[2] = {onnx_input(f->g, "x", dims[k], rank), onnx_ints(f->g, top, pads[k], 2 * rank)};
        onnx_output(f->g, "y", squeeze_if(f->g, onnx_node(f->g, top, "", "Pad", 13, in, 2, &mode, 1)));
        struct graph *g = legalize(f->ctx, f->g, NULL);
        assert_non_null(g);
        assert_int_equal(output_type(g, 0)->rank, rank - 1);
        assert_int_equal(dim_of(g, 0, 0), 13);
        for (int32_t i = 1; i < rank - 1; i++)
            assert_int_equal(dim_of(g, 0, i), 1);
        assert_int_equal(count_ops(g, OP_IF) + count_ops(g, OP_FROM_EXPRS) + count_ops(g, OP_CONSTANT), 0);
        context_free(f->ctx);
    }
}

/* A4.3: a predicate on a symbolic dim, ranks that differ: the output has the rank that the run chooses; decided by a
 * range. */
static void predicate_on_a_symbol(void **state)
{
    static const int64_t dims[] = {2, -1};
    (void)state;
    for (int ranged = 0; ranged < 2; ranged++) {
        struct fixture *f = fixture_new();
        struct exprs *ex = f->ctx->exprs;
        onnx_output(f->g, "y", squeeze_if(f->g, onnx_input(f->g, "x", dims, 2)));
        expr_id given[2] = {{0}, ex_sym(ex, sym_new(ex, SYM_SHAPE, "n", 2, 64))};
        struct input_spec spec = {.name = "x", .rank = 2, .dims = given};
        struct legalize_options options = {.inputs = &spec, .n_inputs = ranged ? 1 : 0};
        struct graph *g = legalize(f->ctx, f->g, &options);
        assert_non_null(g);
        assert_int_equal(output_type(g, 0)->rank, ranged ? 2 : RANK_UNKNOWN);
        assert_int_equal(count_ops(g, OP_IF), !ranged);
        context_free(f->ctx);
    }
}

/* Gather of one known element is a view of it; of one that does not exist it stays, to fail when it runs. */
static void gather_of_a_known_element(void **state)
{
    static const int64_t dims[] = {3, 4}, at[] = {0, 2, 3, -1, -4, 4, -5};
    (void)state;
    for (size_t k = 0; k < sizeof at / sizeof *at; k++) {
        struct fixture *f = fixture_new();
        struct attr axis = attr_int("axis", 1);
        value_id in[2] = {onnx_input(f->g, "x", dims, 2), onnx_ints(f->g, top, &at[k], 1)};
        onnx_output(f->g, "y", onnx_node(f->g, top, "", "Gather", 13, in, 2, &axis, 1));
        struct graph *g = legalize(f->ctx, f->g, NULL);
        bool there = at[k] >= -4 && at[k] < 4;
        assert_non_null(g);
        assert_int_equal(count_ops(g, OP_GATHER), !there);
        assert_int_equal(dim_of(g, 0, 0), 3);
        assert_int_equal(dim_of(g, 0, 1), 1);
        const struct node *view = graph_node(g, graph_value(g, g->outputs.data[0].value)->def);
        uint32_t n;
        assert_true(!there ||
                    (view->op == OP_SLICE && ex_is(f->ctx->exprs, node_exprs(view, "starts", &n)[1], at[k] & 3)));
        context_free(f->ctx);
    }
}

/* A3.3: output sizes of ConvTranspose; a negative total of pads adds rows at the end. */
static void conv_transpose_shapes(void **state)
{
    static const int64_t x_dims[] = {1, 1, 3, 3}, w_dims[] = {1, 2, 3, 3};
    static const int64_t strides[] = {3, 2}, shape[] = {10, 8}, pads[] = {1, 2, 1, 2}, two[] = {2, 2};
    const struct {
        struct attr attr[2];
        uint32_t n;
        int64_t h, w;
    } rows[] = {
        {{attr_ints("strides", strides, 2), attr_ints("output_shape", shape, 2)}, 2, 10, 8},
        {{attr_ints("strides", strides, 2), attr_ints("pads", pads, 4)}, 2, 7, 3},
        {{attr_ints("strides", two, 2), attr_str("auto_pad", "SAME_UPPER")}, 2, 6, 6},
        {{attr_ints("dilations", two, 2)}, 1, 7, 7},
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct fixture *f = fixture_new();
        value_id in[2] = {onnx_input(f->g, "x", x_dims, 4), onnx_input(f->g, "w", w_dims, 4)};
        onnx_output(f->g, "y", onnx_node(f->g, top, "", "ConvTranspose", 11, in, 2, rows[i].attr, rows[i].n));
        struct graph *g = legalize(f->ctx, f->g, NULL);
        assert_non_null(g);
        assert_int_equal(dim_of(g, 0, 2), rows[i].h);
        assert_int_equal(dim_of(g, 0, 3), rows[i].w);
        context_free(f->ctx);
    }
}

/* A function that calls itself ends with an error, not in endless inlining. */
static void recursion_is_an_error(void **state)
{
    static const int64_t dims[] = {2};
    (void)state;
    struct fixture *f = fixture_new();
    struct model_function function = {.domain = "d", .name = "F", .overload = ""};
    struct type open = {.kind = TYPE_UNKNOWN};
    function.body = graph_region(f->g, (region_id){0}, (node_id){0});
    value_id a = graph_param(f->g, function.body, open, "a");
    graph_add_result(f->g, function.body, onnx_node(f->g, function.body, "d", "F", 1, &a, 1, NULL, 0));
    VEC_PUSH(&f->g->arena, &f->g->functions, function);
    value_id x = onnx_input(f->g, "x", dims, 1);
    onnx_output(f->g, "y", onnx_node(f->g, top, "d", "F", 1, &x, 1, NULL, 0));
    assert_null(legalize(f->ctx, f->g, NULL));
    assert_non_null(strstr(f->ctx->diags.data[0].text, "calls itself"));
    context_free(f->ctx);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--serve") == 0)
        return serve(stdin, stdout);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_bind_by_version),   cmocka_unit_test(rows_are_found),
        cmocka_unit_test(refusals_are_collected), cmocka_unit_test(crop_then_squeeze),
        cmocka_unit_test(predicate_on_a_symbol),  cmocka_unit_test(gather_of_a_known_element),
        cmocka_unit_test(conv_transpose_shapes),  cmocka_unit_test(recursion_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
