/* The imported graph: names and scopes, order, ports, symbols, subgraphs, functions, operator versions and their
 * checks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/frontend/wire.h"

static const float ones[] = {1, 1, 1};

static struct wire plain_output(const char *name)
{
    struct wire v = {0};
    wire_text(&v, 1, name);
    return v;
}

/* A graph x -> nodes -> z. */
static struct wire graph_xz(void)
{
    struct wire g = {0};
    graph_input(&g, value_info("x", 1, "n 3"));
    graph_output(&g, plain_output("z"));
    return g;
}

static struct wire with_attribute(struct wire n, struct wire attribute)
{
    wire_message(&n, 5, &attribute);
    return n;
}

static int32_t version_of(const struct fixture *f, const struct node *n)
{
    return source_get(f->ctx, n->src)->version;
}

/* ---- names and order --------------------------------------------------------------------------------------------- */

static void test_order(void **state)
{
    struct wire g = graph_xz(), loop = graph_xz(), self = graph_xz();
    graph_node_add(&g, node("Sqrt", "b", "z"));
    graph_node_add(&g, node("Exp", "a", "b"));
    graph_node_add(&g, node("Relu", "x", "a"));
    struct graph *got = assert_imported(*state, import(*state, model(g)));
    const struct region *top = graph_get_region(got, (region_id){1});
    assert_int_equal(top->nodes.n, 3);
    assert_string_equal(graph_node(got, top->nodes.data[0])->op_type, "Relu");
    assert_string_equal(graph_node(got, top->nodes.data[2])->op_type, "Sqrt");
    graph_node_add(&loop, node("Add", "x b", "a"));
    graph_node_add(&loop, node("Relu", "a", "b"));
    graph_node_add(&loop, node("Relu", "b", "z"));
    assert_refused(*state, model(loop), FAIL_MODEL, "node 'Add' (Add): error: the node needs its own output 'a'");
    graph_node_add(&self, node("Add", "x z", "z"));
    assert_refused(*state, model(self), FAIL_MODEL, "a cycle");
}

static void refused_nodes(struct fixture *f, struct wire a, struct wire b, const char *says)
{
    struct wire g = graph_xz();
    graph_init(&g, tensor_floats("w", "3", ones, 3));
    graph_node_add(&g, a);
    if (b.n)
        graph_node_add(&g, b);
    assert_refused(f, model(g), FAIL_MODEL, says);
}

static void test_names_refused(void **state)
{
    const struct wire none = {0};
    refused_nodes(*state, node("Add", "x ghost", "z"), none, "input 'ghost'");
    refused_nodes(*state, node("Relu", "x", "y"), none, "output 'z'");
    refused_nodes(*state, node("Relu", "x", "z"), node("Exp", "x", "z"), "'z' is made twice");
    refused_nodes(*state, node("Split", "x", "z z"), none, "'z' is made twice");
    refused_nodes(*state, node("Relu", "x", "x"), node("Exp", "x", "z"), "'x' has the name of an input");
    refused_nodes(*state, node("Relu", "x", "w"), node("Exp", "x", "z"), "'w' has the name of an input or initializer");
    struct wire g = graph_xz(), h = graph_xz(), i = graph_xz(), untyped = {0};
    graph_input(&g, value_info("x", 1, "3"));
    assert_refused(*state, model(g), FAIL_MODEL, "tensor 'x': error: two inputs");
    graph_init(&h, tensor_floats("w", "3", ones, 3));
    graph_init(&h, tensor_floats("w", "3", ones, 3));
    assert_refused(*state, model(h), FAIL_MODEL, "two initializers");
    graph_init(&i, tensor_floats("", "3", ones, 3));
    assert_refused(*state, model(i), FAIL_MODEL, "an initializer has no name");
    graph_input(&untyped, plain_output("x"));
    graph_output(&untyped, plain_output("x"));
    assert_refused(*state, model(untyped), FAIL_MODEL, "tensor 'x': error: an input of the graph has no type");
}

/* ---- ports, types, symbols --------------------------------------------------------------------------------------- */

static void test_dims(void **state)
{
    struct fixture *f = *state;
    struct wire g = {0};
    graph_input(&g, value_info("a", 1, "n 3 ? -1 ??"));
    graph_input(&g, value_info("b", 10, "n (2*n) min"));
    graph_input(&g, value_info("c", 7, NULL));
    graph_output(&g, plain_output("a"));
    struct graph *got = assert_imported(f, import(f, model(g)));
    const struct type *a = got->inputs.data[0].declared, *b = got->inputs.data[1].declared;
    int64_t three;
    assert_int_equal(a->rank, 5);
    assert_int_equal(a->dims[0].i, b->dims[0].i);
    assert_true(ex_is_const(f->ctx->exprs, a->dims[1], &three) && three == 3);
    assert_int_equal(a->dims[2].i, 0);
    assert_int_equal(a->dims[3].i, 0);
    assert_int_equal(a->dims[4].i, 0);
    assert_int_equal(b->elem, ELEM_F16);
    assert_string_equal(sym_get(f->ctx->exprs, ex_as_sym(f->ctx->exprs, b->dims[1]))->name, "__2_n_");
    assert_string_equal(sym_get(f->ctx->exprs, ex_as_sym(f->ctx->exprs, b->dims[2]))->name, "min_2");
    assert_int_equal(ex_lo(f->ctx->exprs, b->dims[0]), 0);
    assert_int_equal(got->inputs.data[2].declared->rank, RANK_UNKNOWN);
    struct wire bad = {0}, huge = {0};
    graph_input(&bad, value_info("x", 1, "-5"));
    graph_output(&bad, plain_output("x"));
    assert_refused(f, model(bad), FAIL_MODEL, "dim 0 is -5");
    graph_input(&huge, value_info("x", 1, "4611686018427387904 3"));
    graph_output(&huge, plain_output("x"));
    assert_refused(f, model(huge), FAIL_LIMIT, "the declared dims");
}

static struct wire overridable_model(int64_t ir_version, const char *dims)
{
    struct wire g = graph_xz(), m = {0};
    graph_node_add(&g, node("Add", "x w", "z"));
    graph_init(&g, tensor_floats("w", "3", ones, 3));
    graph_input(&g, value_info("w", 1, dims));
    wire_int(&m, 1, ir_version);
    opset(&m, 8, "ai.onnx", 17);
    wire_message(&m, 7, &g);
    return m;
}

static void test_overridable(void **state)
{
    struct fixture *f = *state;
    static const char *const names[] = {"w"}, *const ghosts[] = {"ghost"};
    for (int64_t ir = 3; ir < 5; ir++) {
        struct graph *g = assert_imported(f, import(f, overridable_model(ir, "3")));
        assert_int_equal(g->inputs.n, 1);
        assert_non_null(constant_of(g, "w"));
    }
    f->options = (struct import_options){.overridable = names, .n_overridable = 1};
    struct graph *g = assert_imported(f, import(f, overridable_model(8, "3")));
    assert_int_equal(g->inputs.n, 2);
    assert_string_equal(g->inputs.data[1].name, "w");
    assert_null(constant_of(g, "w"));
    f->options.overridable = ghosts;
    assert_refused(f, overridable_model(8, "3"), FAIL_USAGE, "tensor 'ghost'");
    f->options = (struct import_options){0};
    assert_refused(f, overridable_model(8, "7"), FAIL_MODEL,
                   "tensor 'w': error: the initializer and the input of its name have different types");
}

/* ---- operator versions ------------------------------------------------------------------------------------------- */

static int32_t bound_version(struct fixture *f, const char *domain, int64_t version, struct wire n)
{
    struct wire g = graph_xz(), m = {0};
    graph_node_add(&g, n);
    wire_int(&m, 1, 8);
    opset(&m, 8, domain, version);
    wire_message(&m, 7, &g);
    struct graph *got = assert_imported(f, import(f, m));
    return version_of(f, graph_node(got, graph_get_region(got, (region_id){1})->nodes.data[0]));
}

static void test_versions(void **state)
{
    assert_int_equal(bound_version(*state, "", 17, node("Relu", "x", "z")), 14);
    assert_int_equal(bound_version(*state, "ai.onnx", 13, node("Relu", "x", "z")), 13);
    assert_int_equal(bound_version(*state, "", 7, node("Relu", "x", "z")), 6);
    assert_int_equal(bound_version(*state, "", 17, node("relu", "x", "z")), 0);
    assert_int_equal(bound_version(*state, "", 17, node("GroupNormalization", "x x x", "z")), 0);
    assert_int_equal(bound_version(*state, "ai.onnx.ml", 3, node("Relu", "x", "z")), 0);
}

static void refused_head(struct fixture *f, int64_t ir, const char *domain, int64_t version, const char *says)
{
    struct wire g = graph_xz(), m = {0};
    graph_node_add(&g, node("Relu", "x", "z"));
    wire_int(&m, 1, ir);
    opset(&m, 8, "", 17);
    if (domain)
        opset(&m, 8, domain, version);
    wire_message(&m, 7, &g);
    assert_refused(f, m, FAIL_MODEL, says);
}

static void test_heads_refused(void **state)
{
    refused_head(*state, 0, NULL, 0, "ir_version 0");
    refused_head(*state, -1, NULL, 0, "ir_version -1");
    refused_head(*state, 9999, NULL, 0, "ir_version 9999");
    refused_head(*state, 8, "ai.onnx", 9, "versions 17 and 9 of domain ai.onnx");
    refused_head(*state, 8, "ai.onnx.ml", 999, "version 999 of domain ai.onnx.ml");
    refused_head(*state, 8, "org.example", 0, "version 0 of domain org.example");
    refused_head(*state, 8, "org.example", -3, "version -3");
    struct wire no_graph = {0}, empty = {0};
    wire_int(&no_graph, 1, 8);
    opset(&no_graph, 8, "", 17);
    assert_refused(*state, no_graph, FAIL_MODEL, "no graph");
    assert_refused(*state, model(empty), FAIL_MODEL, "no outputs");
}

static void test_nodes_refused(void **state)
{
    const struct wire none = {0};
    struct fixture *f = *state;
    refused_nodes(f, node("Add", "x", "z"), none, "the node has 1 inputs, and Add-14 needs at least 2");
    refused_nodes(f, node("Relu", "x w w", "z"), none, "the node has 3 inputs, and Relu-14 takes at most 1");
    refused_nodes(f, node("Relu", "x", "z y"), none, "2 outputs");
    refused_nodes(f, node("Add", "x _", "z"), none, "input 1 is empty");
    refused_nodes(f, node("", "x", "z"), none, "no operator type");
    refused_nodes(f, node("Relu", "x", "z"), node("Relu", "x", ""), "0 outputs");
    refused_nodes(f, node("Concat", "x w", "z"), none, "Concat-13 needs attribute 'axis'");
    refused_nodes(f, with_attribute(node("Relu", "x", "z"), attribute_int("bogus", 1)), none, "no attribute 'bogus'");
    refused_nodes(f, with_attribute(node("Relu", "x", "z"), attribute_int("", 1)), none, "an attribute has no name");
    refused_nodes(f, with_attribute(node("Conv", "x w", "z"), attribute_int("strides", 1)), none,
                  "must be of type INTS");
    struct wire twice = with_attribute(node("Concat", "x w", "z"), attribute_int("axis", 0));
    refused_nodes(f, with_attribute(twice, attribute_int("axis", 1)), none, "'axis' is given twice");
    static const struct {
        int64_t type;
        const char *says;
    } types[] = {
        {7, "is declared as INTS and holds INT"},
        {0, "has no type"},
        {99, "unknown type 99"},
        {4294967298, "unknown type"},
    };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        struct wire a = attribute_int("axis", 0);
        wire_int(&a, 20, types[i].type);
        refused_nodes(f, with_attribute(node("Concat", "x w", "z"), a), none, types[i].says);
    }
    struct wire reference = {0};
    wire_text(&reference, 1, "axis");
    wire_text(&reference, 21, "k");
    wire_int(&reference, 20, 2);
    refused_nodes(f, with_attribute(node("Concat", "x w", "z"), reference), none, "outside any function");
    struct wire g = graph_xz();
    graph_init(&g, tensor_raw("w", 7, "1", "\1\0\0\0\0\0\0\0", 8));
    graph_node_add(&g, node("Add", "x w", "z"));
    assert_refused(f, model(g), FAIL_MODEL, "their types must be equal");
}

/* All mistakes are told in one go. */
static void test_all_errors(void **state)
{
    struct wire g = graph_xz();
    graph_node_add(&g, node("Add", "x", "a"));
    graph_node_add(&g, node("Exp", "ghost", "b"));
    graph_node_add(&g, node("Relu", "a b", "z"));
    assert_null(import(*state, model(g)));
    const char *text = messages(*state);
    assert_non_null(strstr(text, "node 'Add'"));
    assert_non_null(strstr(text, "ghost"));
    assert_non_null(strstr(text, "node 'Relu'"));
}

/* Lists that are searched one by one are bounded; dim names that look alike stay apart, however many there are. */
static void test_many(void **state)
{
    struct fixture *f = *state;
    struct wire g = graph_xz(), n = node("Relu", "x", "z"), h = {0};
    for (int i = 0; i < 1001; i++)
        n = with_attribute(n, attribute_int("a", i));
    graph_node_add(&g, n);
    assert_refused(f, model(g), FAIL_LIMIT, "1001 attributes");
    for (int i = 0; i < 60; i++) {
        char name[16], dims[16];
        snprintf(name, sizeof name, "x%d", i);
        snprintf(dims, sizeof dims, "n%c%c", '!' + i / 10, '!' + i % 10);
        graph_input(&h, value_info(name, 1, dims));
    }
    graph_output(&h, plain_output("x0"));
    struct graph *got = assert_imported(f, import(f, model(h)));
    for (uint32_t i = 1; i < 60; i++)
        assert_int_not_equal(got->inputs.data[i].declared->dims[0].i, got->inputs.data[i - 1].declared->dims[0].i);
}

static void test_origin(void **state)
{
    struct fixture *f = *state;
    struct wire g = graph_xz(), n = node("Relu", "x", "z"), e = {0};
    wire_text(&e, 1, "pkg.torch.onnx.stack_trace");
    wire_text(&e, 2, "File \"outer.py\", line 3, in f\n  File \"net.py\", line 17, in forward\n    return x");
    wire_message(&n, 9, &e);
    graph_node_add(&g, n);
    struct graph *got = assert_imported(f, import(f, model(g)));
    assert_string_equal(source_get(f->ctx, node_of(got, "Relu")->src)->origin, "net.py:17");
}

/* ---- subgraphs --------------------------------------------------------------------------------------------------- */

static struct wire branch(const char *op, const char *inputs, const char *result)
{
    struct wire g = {0};
    graph_node_add(&g, node(op, inputs, result));
    graph_output(&g, plain_output(result));
    return g;
}

static struct wire if_model(struct wire then, struct wire otherwise)
{
    struct wire g = graph_xz(), n = node("If", "c", "z");
    graph_input(&g, value_info("c", 9, ""));
    graph_init(&g, tensor_floats("w", "3", ones, 3));
    n = with_attribute(n, attribute_graph("then_branch", then));
    if (otherwise.n)
        n = with_attribute(n, attribute_graph("else_branch", otherwise));
    graph_node_add(&g, n);
    return model(g);
}

static void test_if(void **state)
{
    struct fixture *f = *state;
    struct graph *g = assert_imported(f, import(f, if_model(branch("Add", "x w", "t"), branch("Sub", "x w", "t"))));
    const struct node *n = node_of(g, "If");
    assert_int_equal(n->n_region, 2);
    const struct node *add = node_of(g, "Add"), *sub = node_of(g, "Sub");
    assert_int_equal(add->in[0].i, g->inputs.data[0].value.i);
    assert_int_equal(add->in[1].i, sub->in[1].i);
    assert_int_equal(add->parent.i, n->region[0].i);
    assert_int_equal(graph_get_region(g, n->region[0])->parent.i, 1);
    assert_int_equal(graph_get_region(g, n->region[1])->results.data[0].i, sub->out[0].i);
    const struct wire none = {0};
    assert_refused(f, if_model(branch("Add", "x w", "t"), none), FAIL_MODEL, "needs attribute 'else_branch'");
    assert_refused(f, if_model(branch("Add", "x ghost", "t"), branch("Sub", "x w", "e")), FAIL_MODEL, "ghost");
    assert_refused(f, if_model(branch("Add", "x w", "t"), branch("Sub", "x t", "e")), FAIL_MODEL, "input 't'");
    assert_refused(f, if_model(branch("Add", "x w", "x"), branch("Sub", "x w", "e")), FAIL_MODEL,
                   "'x' has the name of a value of an enclosing graph");
    struct wire extra = branch("Add", "x w", "t"), input = branch("Add", "x w", "t");
    graph_output(&extra, plain_output("w"));
    assert_refused(f, if_model(extra, branch("Sub", "x w", "e")), FAIL_MODEL,
                   "then_branch has 2 outputs, 1 are wanted");
    graph_input(&input, value_info("q", 1, "1"));
    assert_refused(f, if_model(input, branch("Sub", "x w", "e")), FAIL_MODEL, "then_branch has 1 inputs, 0 are wanted");
}

/* A capture of a value that a later node of the outer graph makes orders the nodes. */
static void test_capture_order(void **state)
{
    struct wire g = graph_xz(), n = node("If", "c", "z");
    graph_input(&g, value_info("c", 9, ""));
    n = with_attribute(n, attribute_graph("then_branch", branch("Exp", "late", "t")));
    n = with_attribute(n, attribute_graph("else_branch", branch("Exp", "x", "e")));
    graph_node_add(&g, n);
    graph_node_add(&g, node("Relu", "x", "late"));
    struct graph *got = assert_imported(*state, import(*state, model(g)));
    const struct region *top = graph_get_region(got, (region_id){1});
    assert_string_equal(graph_node(got, top->nodes.data[0])->op_type, "Relu");
    assert_int_equal(node_of(got, "Exp")->in[0].i, node_of(got, "Relu")->out[0].i);
}

static struct wire loop_model(struct wire body)
{
    static const int64_t three = 3;
    struct wire g = graph_xz();
    graph_init(&g, tensor_raw("m", 7, "", &three, 8));
    graph_node_add(&g, with_attribute(node("Loop", "m _ x", "z"), attribute_graph("body", body)));
    return model(g);
}

/* The body's input is called like an outer value: inside it means the input. */
static void test_loop(void **state)
{
    struct fixture *f = *state;
    struct wire body = {0}, none = {0};
    graph_input(&body, value_info("i", 7, ""));
    graph_input(&body, value_info("go", 9, ""));
    graph_input(&body, plain_output("x"));
    graph_node_add(&body, node("Relu", "x", "y"));
    graph_output(&body, plain_output("go"));
    graph_output(&body, plain_output("y"));
    struct graph *g = assert_imported(f, import(f, loop_model(body)));
    const struct region *r = graph_get_region(g, node_of(g, "Loop")->region[0]);
    assert_int_equal(node_of(g, "Relu")->in[0].i, r->params.data[2].i);
    assert_int_equal(node_of(g, "Loop")->in[1].i, 0);
    assert_int_equal(r->results.data[0].i, r->params.data[1].i);
    assert_refused(f, loop_model(branch("Relu", "x", "y")), FAIL_MODEL, "body has 0 inputs, 3 are wanted");
    assert_refused(f, loop_model(none), FAIL_MODEL, "body");
}

static void test_depth(void **state)
{
    for (int levels = 30; levels < 32; levels++) {
        struct wire g = branch("Relu", "x", "t");
        for (int i = 0; i < levels; i++) {
            char name[16];
            snprintf(name, sizeof name, "o%d", i);
            struct wire n = with_attribute(node("If", "c", name), attribute_graph("then_branch", g));
            struct wire outer = {0};
            graph_node_add(&outer, with_attribute(n, attribute_graph("else_branch", branch("Exp", "x", "e"))));
            graph_output(&outer, plain_output(name));
            g = outer;
        }
        graph_input(&g, value_info("c", 9, ""));
        graph_input(&g, value_info("x", 1, "3"));
        if (levels == 30)
            assert_imported(*state, import(*state, model(g)));
        else
            assert_refused(*state, model(g), FAIL_LIMIT, "more than 30 deep");
    }
}

/* ---- functions --------------------------------------------------------------------------------------------------- */

static struct wire local_call(const char *name, const char *inputs, const char *outputs)
{
    struct wire n = node(name, inputs, outputs);
    wire_text(&n, 7, "local");
    return n;
}

/* c = f(a, b) with up to two nodes. */
static void function_add(struct wire *m, const char *name, struct wire first, struct wire second)
{
    struct wire f = {0};
    wire_text(&f, 1, name);
    wire_text(&f, 4, "a");
    wire_text(&f, 4, "b");
    wire_text(&f, 5, "c");
    wire_text(&f, 6, "k");
    wire_message(&f, 7, &first);
    if (second.n)
        wire_message(&f, 7, &second);
    opset(&f, 9, "", 13);
    opset(&f, 9, "local", 1);
    wire_text(&f, 10, "local");
    wire_message(m, 25, &f);
}

static struct wire call_model(const char *callee, const char *inputs)
{
    struct wire g = graph_xz();
    graph_init(&g, tensor_floats("w", "3", ones, 3));
    graph_node_add(&g, local_call(callee, inputs, "z"));
    struct wire m = model(g);
    opset(&m, 8, "local", 1);
    return m;
}

static void test_function(void **state)
{
    struct fixture *f = *state;
    const struct wire none = {0};
    struct wire m = call_model("F", "x w"), reference = {0};
    wire_text(&reference, 1, "axis");
    wire_text(&reference, 21, "k");
    wire_int(&reference, 20, 2);
    function_add(&m, "F", node("Add", "a b", "t"), with_attribute(node("Softmax", "t", "c"), reference));
    struct graph *g = assert_imported(f, import(f, m));
    assert_int_equal(g->functions.n, 1);
    const struct model_function *fn = &g->functions.data[0];
    assert_string_equal(fn->domain, "local");
    assert_int_equal(fn->attr_names.n, 1);
    assert_int_equal(graph_get_region(g, fn->body)->params.n, 2);
    assert_int_equal(version_of(f, node_of(g, "Softmax")), 13);
    assert_int_equal(node_attr(node_of(g, "Softmax"), "axis")->kind, ATTR_REF);
    static const struct {
        const char *inputs, *says;
    } calls[] = {{"x w w", "the call has 3 inputs, and function 'F' takes 2"}};
    struct wire arity = call_model("F", calls[0].inputs), outer = call_model("F", "x w"),
                unmade = call_model("F", "x w");
    struct wire twice = call_model("F", "x w"), missing = call_model("H", "x w");
    function_add(&arity, "F", node("Add", "a b", "c"), none);
    assert_refused(f, arity, FAIL_MODEL, calls[0].says);
    function_add(&outer, "F", node("Add", "a x", "c"), none);
    assert_refused(f, outer, FAIL_MODEL, "input 'x'");
    function_add(&unmade, "F", node("Add", "a b", "d"), none);
    assert_refused(f, unmade, FAIL_MODEL, "output 'c'");
    function_add(&twice, "F", node("Add", "a b", "c"), none);
    function_add(&twice, "F", node("Add", "a b", "c"), none);
    assert_refused(f, twice, FAIL_MODEL, "two functions");
    assert_int_equal(version_of(f, node_of(assert_imported(f, import(f, missing)), "H")), 0);
}

static void test_recursion(void **state)
{
    const struct wire none = {0};
    struct wire self = call_model("F", "x w"), ring = call_model("F", "x w");
    function_add(&self, "F", local_call("F", "a b", "c"), none);
    assert_refused(*state, self, FAIL_MODEL, "function 'F' calls itself");
    function_add(&ring, "F", local_call("G", "a b", "c"), none);
    function_add(&ring, "G", local_call("F", "a b", "c"), none);
    assert_refused(*state, ring, FAIL_MODEL, "function 'F' calls itself");
}

/* Chains: `wide` calls of the next function in each of `depth` functions. */
static struct wire chain(uint32_t depth, bool wide)
{
    const struct wire none = {0};
    struct wire m = call_model("F0", "x w");
    for (uint32_t i = 0; i < depth; i++) {
        char name[16], next[16];
        snprintf(name, sizeof name, "F%u", i);
        snprintf(next, sizeof next, "F%u", i + 1);
        if (i + 1 == depth)
            function_add(&m, name, node("Add", "a b", "c"), none);
        else if (wide)
            function_add(&m, name, local_call(next, "a b", "t"), local_call(next, "t b", "c"));
        else
            function_add(&m, name, local_call(next, "a b", "c"), none);
    }
    return m;
}

static void test_bombs(void **state)
{
    struct fixture *f = *state;
    assert_imported(f, import(f, chain(100, false)));
    assert_refused(f, chain(101, false), FAIL_LIMIT, "more than 100 deep");
    assert_refused(f, chain(3000, false), FAIL_LIMIT, "more than 100 deep");
    assert_imported(f, import(f, chain(15, true)));
    assert_refused(f, chain(40, true), FAIL_LIMIT, "more than 1000000 nodes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_names_refused),
        cmocka_unit_test(test_dims),
        cmocka_unit_test(test_overridable),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_heads_refused),
        cmocka_unit_test(test_nodes_refused),
        cmocka_unit_test(test_all_errors),
        cmocka_unit_test(test_if),
        cmocka_unit_test(test_capture_order),
        cmocka_unit_test(test_loop),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_function),
        cmocka_unit_test(test_recursion),
        cmocka_unit_test(test_bombs),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_origin),
    };
    return cmocka_run_group_tests_name("import", tests, fixture_open, fixture_close);
}
