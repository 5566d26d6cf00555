/* The tensor graph: use counts, sweeping, text there and back, the verifier, memory that ends anywhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "ir/graph/graph.h"
#include "tests/text/text.h"

static const char legal_text[] =
    "mcir 1 \"net\" legal 8\n"
    "opset \"\" 17\n"
    "meta \"author\" \"nobody\"\n"
    "symbol \"batch size\" shape [2, 64] given [0, 64] empty [0, 1]\n"
    "symbol \"c\" value [0, inf] / 2\n"
    "symbol \"trips\" value [0, inf]\n"
    "symbol \"rows\" shape [0, inf]\n"
    "bound \"c\" <= 3*\"batch size\"\n"
    "source 1 \"conv1\" \"Conv\" \"\" \"y\" 11\n"
    "source 2 \"\" \"If\" \"\" \"z\" \"net.py:3\" 16\n"
    "check \"batch size\" [2, 64] unless empty -9 \"too few\" @1\n"
    "check \"rows\" = \"batch size\" -2 \"not equal\" @2\n"
    "\n"
    "region (%1 \"x\": f32[\"batch size\", 3], %2: i64[]) {\n"
    "  %3: i64[2] known [\"batch size\", 3] = from_exprs() {elem=i64, dims=[2], exprs=[\"batch size\", 3]} @1\n"
    "  %4: i64[2, c] = nonzero(%1) {count=c}\n"
    "  %5: f32[] = constant() {elem=f32, dims=[], data=hex\"0000803f\"}  ; 1\n"
    "  %6: bool[] = constant() {elem=bool, dims=[], data=hex\"01\"}  ; 1\n"
    "  %7: f32[] = if(%6) @2\n"
    "    region () {\n"
    "      return %5\n"
    "    }\n"
    "    region () {\n"
    "      %8: f32[] = neg(%5)\n"
    "      return %8\n"
    "    }\n"
    "  %9: f32[], %10: f32[trips] = loop(%2, %6, %7) {n_carried=1, trips=trips}\n"
    "    region (%11: i64[], %12: bool[], %13: f32[]) {\n"
    "      %14: f32[] = exp(%13)\n"
    "      return %12, %14, %13\n"
    "    }\n"
    "  assert() {cond=c < 6, code=-2, text=\"too many\"}\n"
    "  return %9, %10, %4, %3\n"
    "}\n"
    "input \"x\" %1: f32[?, 3]\n"
    "input \"n\" %2\n"
    "output \"y\" %9\n"
    "output \"steps\" %10\n"
    "output \"where\" %4: i64[2, ?]\n"
    "output \"shape\" %3\n"
    "bind \"c\" = dim %4\n"
    "bind \"trips\" = dim %10\n";

static const char imported_text[] =
    "mcir 1 \"\" imported 10\n"
    "opset \"\" 22\n"
    "opset \"com.x\" 1\n"
    "function \"f\".\"dom\".\"\" (\"a\", \"b\") {\"k\":i=3, \"x\":f=0.1, \"y\":F=[1, inf, nan, -0], \"s\":s=\"\\x61\\x00\\x62\"}\n"
    "opset \"\" 13\n"
    "\n"
    "region (%1: f32[?, 3], %2: f32[*]) {\n"
    "  %3: unknown, _, %4 \"hi\": seq<map<i64, f32[2]>> = imported \"Split\".\"com.x\"(%1, _, %2) "
    "{\"t\":T=f32[2, 1] \"w\" hex\"0000803f00000040\", \"l\":L=[string[2] strings [\"a\", \"\\x62\\x00\"]], \"r\":r=\"a\"}\n"
    "  return %3\n"
    "}\n"
    "\n"
    "region (%5: unknown) {\n"
    "  %6: unknown = imported \"If\"(%5) {\"then\":R=0, \"type\":P=opt<f32[-]>, \"names\":S=[\"p\", \"q\"]}\n"
    "    region () {\n"
    "      %7: unknown = imported \"Abs\"(%5)\n"
    "      return %7\n"
    "    }\n"
    "  return %6\n"
    "}\n"
    "input \"i\" %5: unknown\n"
    "output \"o\" %6\n";

static const char *diagnostics(struct context *ctx)
{
    struct strbuf b = strbuf_of(&ctx->session);
    strbuf_append(&b, "", 0);
    for (uint32_t i = 0; i < ctx->diags.n; i++) {
        diag_render(ctx, &ctx->diags.data[i], &b);
        strbuf_printf(&b, "\n");
    }
    return b.data;
}

static struct graph *read_graph(struct context *ctx, const char *text)
{
    struct graph *g = graph_parse(ctx, text);
    if (!g)
        fail_msg("%s", diagnostics(ctx));
    return g;
}

static const char *print_graph(const struct graph *g)
{
    struct strbuf b = strbuf_of(&g->ctx->session);
    graph_print(g, &b, true);
    return b.data;
}

/* ---- text -------------------------------------------------------------------------------------------- */

static void text_there_and_back(void **state)
{
    (void)state;
    const char *texts[] = {legal_text, imported_text};
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        struct context *ctx = context_new();
        struct graph *g = read_graph(ctx, texts[i]);
        assert_string_equal(print_graph(g), texts[i]);
        if (!graph_verify(g))
            fail_msg("%s", diagnostics(ctx));
        struct strbuf dot = strbuf_of(&ctx->session);
        graph_dot(g, &dot);
        assert_non_null(strstr(dot.data, "digraph"));
        context_free(ctx);
    }
}

static void read_damaged(const char *text)
{
    struct context *ctx = context_new();
    jmp_buf point;
    if (!setjmp(point)) {
        ctx->unwind = &point;
        struct graph *g = graph_parse(ctx, text);
        if (g)
            print_graph(g);
        else if (!ctx->n_errors)
            fail_msg("refused without a word:\n%s", text);
    }
    context_free(ctx);
}

/* Prefixes, and texts with one byte changed, are read or refused, and never more. */
static void damaged_text(void **state)
{
    (void)state;
    const char *texts[] = {legal_text, imported_text};
    static const char bytes[] = {'\0', '"', '%', '9', '{', ']', '<', '\xff'};
    char copy[4096];
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        size_t n = strlen(texts[i]);
        assert_true(n < sizeof copy);
        for (size_t k = 0; k < n * COUNT_OF(bytes); k += 7) {   /* 7: all kinds of damage take turns */
            memcpy(copy, texts[i], n + 1);
            copy[k / COUNT_OF(bytes)] = bytes[k % COUNT_OF(bytes)];
            read_damaged(copy);
        }
    }
}

static void elided_constants(void **state)
{
    (void)state;
    struct context *ctx = context_new();
    struct graph *g = graph_new(ctx);
    unsigned char bytes[100] = {0};
    const int64_t dims[] = {100};
    const struct attr attrs[] = {attr_elem("elem", ELEM_U8), attr_ints("dims", dims, 1), attr_data(bytes, 100)};
    expr_id dim = ex_const(ctx->exprs, 100);
    const struct type type = {.kind = TYPE_TENSOR, .elem = ELEM_U8, .rank = 1, .dims = &dim};
    graph_append(g, (region_id){1}, OP_CONSTANT, (src_id){0}, NULL, 0, attrs, 3, &type, 1);
    struct strbuf b = strbuf_of(&ctx->session);
    graph_print(g, &b, false);
    assert_non_null(strstr(b.data, "data=..."));
    assert_null(graph_parse(ctx, b.data));
    assert_non_null(graph_parse(ctx, print_graph(g)));
    context_free(ctx);
}

/* ---- changes -------------------------------------------------------------------------------------------- */

static value_id unary(struct graph *g, enum op op, value_id in)
{
    struct type t = *value_type(g, in);
    node_id n = graph_append(g, (region_id){1}, op, (src_id){0}, &in, 1, NULL, 0, &t, 1);
    return graph_node(g, n)->out[0];
}

static void uses_are_counted(void **state)
{
    (void)state;
    struct context *ctx = context_new();
    struct graph *g = graph_new(ctx);
    const struct type t = {.kind = TYPE_TENSOR, .elem = ELEM_F32};
    value_id x = graph_param(g, (region_id){1}, t, "x");
    value_id a = unary(g, OP_EXP, x), b = unary(g, OP_NEG, a), c = unary(g, OP_ABS, a);
    graph_add_result(g, (region_id){1}, c);
    VEC_PUSH(&g->arena, &g->inputs, ((struct port){.name = "x", .value = x}));
    VEC_PUSH(&g->arena, &g->outputs, ((struct port){.name = "c", .value = c}));
    assert_int_equal(graph_value(g, a)->n_uses, 2);
    node_id before = graph_insert_before(g, graph_value(g, b)->def, OP_TANH, (src_id){0}, &x, 1, NULL, 0, &t, 1);
    assert_int_equal(graph_get_region(g, (region_id){1})->nodes.data[1].i, before.i);
    graph_replace_uses(g, a, graph_node(g, before)->out[0]);
    assert_int_equal(graph_value(g, a)->n_uses, 0);
    assert_int_equal(graph_value(g, graph_node(g, before)->out[0])->n_uses, 2);
    assert_null(graph_user(g, a, NULL));
    assert_non_null(graph_user(g, graph_node(g, before)->out[0], NULL));
    assert_int_equal(value_output(g, b), UINT32_MAX);
    assert_int_equal(value_output(g, c), 0);
    graph_erase(g, graph_value(g, a)->def);
    assert_int_equal(graph_value(g, x)->n_uses, 1);
    graph_replace_uses(g, c, b);
    assert_int_equal(g->outputs.data[0].value.i, b.i);
    assert_int_equal(value_output(g, b), 0);
    assert_int_equal(value_output(g, c), UINT32_MAX);
    graph_sweep(g);
    assert_int_equal(graph_get_region(g, (region_id){1})->nodes.n, 2);
    g->legal = true;
    if (!graph_verify(g))
        fail_msg("%s", diagnostics(ctx));
    context_free(ctx);
}

/* What binds a symbol that a live node uses is live; the rest goes. */
static void sweep_keeps_symbols(void **state)
{
    (void)state;
    struct context *ctx = context_new();
    struct graph *g = read_graph(ctx, "mcir 1 \"\" legal 8\n"
                                      "symbol \"c\" value [0, inf]\n"
                                      "region (%1: f32[3]) {\n"
                                      "  %2: i64[1, c] = nonzero(%1) {count=c}\n"
                                      "  %3: f32[3] = exp(%1)\n"
                                      "  %4: f32[3] = neg(%3)\n"
                                      "  %5: i64[c] = iota() {elem=i64, dims=[c], axis=0}\n"
                                      "  return %5\n"
                                      "}\n"
                                      "input \"x\" %1\n"
                                      "output \"y\" %5\n"
                                      "bind \"c\" = dim %2\n");
    graph_sweep(g);
    assert_int_equal(graph_get_region(g, (region_id){1})->nodes.n, 2);
    if (!graph_verify(g))
        fail_msg("%s", diagnostics(ctx));
    context_free(ctx);
}

/* Equal constants are one value in front of the top region, whoever makes them: the file, a branch, an operator. What
 * differs in type, bytes or an attribute stays, and so does a copy. */
static void sweep_pools_constants(void **state)
{
    (void)state;
    static const char was[] = "mcir 1 \"\" legal 8\n"
                              "symbol \"c\" value [0, 1]\n"
                              "region (%1 \"x\": f32[2], %2 \"c\": bool[] known [c]) {\n"
                              "  %3: f32[2] = add(%1, %1)\n"
                              "  %4 \"a\": f32[2] = constant() {elem=f32, dims=[2], data=hex\"0000000000000000\"}\n"
                              "  %5: f32[2] = neg(%4)\n"
                              "  %6: f32[2] = if(%2)\n"
                              "    region () {\n"
                              "      %7 \"b\": f32[2] = constant() {elem=f32, dims=[2], data=hex\"0000000000000000\"}\n"
                              "      %8: f32[2] = neg(%7)\n"
                              "      %9: f32[2] = mul(%3, %8)\n"
                              "      return %9\n"
                              "    }\n"
                              "    region () {\n"
                              "      %10: f32[2] = constant() {elem=f32, dims=[2], data=hex\"0000000000000080\"}\n"
                              "      %11: f32[2] = neg(%10)\n"
                              "      return %11\n"
                              "    }\n"
                              "  %12: i32[2] = constant() {elem=i32, dims=[2], data=hex\"0000000000000000\"}\n"
                              "  %13: f32[2] = identity(%5)\n"
                              "  %14: f32[2] = neg(%4)\n"
                              "  return %6, %12, %13, %14\n"
                              "}\n"
                              "input \"x\" %1\n"
                              "input \"c\" %2\n"
                              "output \"y\" %6\n"
                              "output \"i\" %12\n"
                              "output \"s\" %13\n"
                              "output \"n\" %14\n"
                              "bind \"c\" = %2[0]\n";
    static const char becomes[] =
        "mcir 1 \"\" legal 8\n"
        "symbol \"c\" value [0, 1]\n"
        "\n"
        "region (%1 \"x\": f32[2], %2 \"c\": bool[] known [c]) {\n"
        "  %3 \"a\": f32[2] = constant() {elem=f32, dims=[2], data=hex\"0000000000000000\"}  ; 0, 0\n"
        "  %4: f32[2] = neg(%3)\n"
        "  %5: f32[2] = constant() {elem=f32, dims=[2], data=hex\"0000000000000080\"}  ; 0, -0\n"
        "  %6: f32[2] = neg(%5)\n"
        "  %7: i32[2] = constant() {elem=i32, dims=[2], data=hex\"0000000000000000\"}  ; 0, 0\n"
        "  %8: f32[2] = add(%1, %1)\n"
        "  %9: f32[2] = if(%2)\n"
        "    region () {\n"
        "      %10: f32[2] = mul(%8, %4)\n"
        "      return %10\n"
        "    }\n"
        "    region () {\n"
        "      return %6\n"
        "    }\n"
        "  %11: f32[2] = identity(%4)\n"
        "  return %9, %7, %11, %4\n"
        "}\n"
        "input \"x\" %1\n"
        "input \"c\" %2\n"
        "output \"y\" %9\n"
        "output \"i\" %7\n"
        "output \"s\" %11\n"
        "output \"n\" %4\n"
        "bind \"c\" = %2[0]\n";
    struct context *ctx = context_new();
    struct graph *g = read_graph(ctx, was);
    for (int again = 0; again < 2; again++) {
        graph_sweep(g);
        if (!graph_verify(g))
            fail_msg("%s", diagnostics(ctx));
        assert_string_equal(print_graph(g), becomes);
    }
    /* what comes later meets what was there: another copy of %3, and what is computed of it */
    value_id a = graph_node(g, graph_get_region(g, (region_id){1})->nodes.data[0])->out[0];
    const struct node constant = *graph_node(g, graph_value(g, a)->def);
    struct type t = *value_type(g, a);
    node_id copy = graph_append(g, (region_id){1}, OP_CONSTANT, (src_id){0}, NULL, 0, constant.attr, constant.n_attr,
                                &t, 1);
    graph_add_result(g, (region_id){1}, unary(g, OP_NEG, graph_node(g, copy)->out[0]));
    VEC_PUSH(&g->arena, &g->outputs,
             ((struct port){.name = "o", .value = graph_get_region(g, (region_id){1})->results.data[4]}));
    graph_sweep(g);
    assert_int_equal(g->outputs.data[4].value.i, g->outputs.data[3].value.i);
    if (!graph_verify(g))
        fail_msg("%s", diagnostics(ctx));
    context_free(ctx);
}

/* Equal numbers remain two arguments of a kernel, spread or not; what is computed of them is one. */
static void sweep_keeps_numbers(void **state)
{
    (void)state;
    struct context *ctx = context_new();
    struct graph *g = read_graph(ctx, "mcir 1 \"\" legal 8\n"
                                      "region (%1: f32[2]) {\n"
                                      "  %2: f32[] = constant() {elem=f32, dims=[], data=hex\"00004040\"}\n"
                                      "  %3: f32[] = constant() {elem=f32, dims=[], data=hex\"00004040\"}\n"
                                      "  %4: f32[2] = broadcast(%2) {dims=[2]}\n"
                                      "  %5: f32[2] = broadcast(%3) {dims=[2]}\n"
                                      "  %6: f32[2] = exp(%4)\n"
                                      "  %7: f32[2] = exp(%5)\n"
                                      "  %8: f32[2] = fma(%1, %4, %5)\n"
                                      "  %9: f32[2] = fma(%8, %6, %7)\n"
                                      "  return %9\n"
                                      "}\n"
                                      "input \"x\" %1\n"
                                      "output \"y\" %9\n");
    for (int again = 0; again < 2; again++) {
        graph_sweep(g);
        const struct node *last = graph_node(g, graph_value(g, g->outputs.data[0].value)->def);
        assert_int_equal(graph_get_region(g, (region_id){1})->nodes.n, 7);
        assert_int_equal(last->in[1].i, last->in[2].i);
        if (!graph_verify(g))
            fail_msg("%s", diagnostics(ctx));
    }
    context_free(ctx);
}

/* ---- the verifier ------------------------------------------------------------------------------------------ */

static void verifier_finds(void **state)
{
    (void)state;
#define HEAD "mcir 1 \"\" legal 8\nregion (%1: f32[3]) {\n"
#define TAIL "}\ninput \"x\" %1\noutput \"y\" "
    static const struct {
        int invariant;
        const char *text;
    } rows[] = {
        {6, HEAD "%2: f32[3] = exp(%1) return %2 }\noutput \"y\" %2"},
        {6, HEAD "%2: f32[3] = exp(%1) return %2" TAIL "%1"},
        {6, HEAD "%2: f32[3] = exp(%1) return %2" TAIL "%2 state f32 [2] hex\"0000000000000000\""},
        {7, HEAD "%2: f32[3] = exp(%1, %1) return %2" TAIL "%2"},
        {7, HEAD "%2: f32[3] = imported \"Exp\"(%1) return %2" TAIL "%2"},
        {8, HEAD "%2: f32[3] = cumulate(%1) {axis=0, monoid=\"sum\", exclusive=0} return %2" TAIL "%2"},
        {8, HEAD "%2: f32[3] = exp(%1) {\"axis\":i=0} return %2" TAIL "%2"},
        {8, HEAD "%2: f32[3] = transpose(%1) {\"perm\":i=0} return %2" TAIL "%2"},
        {9, HEAD "%2: f32[?] = exp(%1) return %2" TAIL "%2"},
        {9, HEAD "%2: unknown = exp(%1) return %2" TAIL "%2"},
        {10, HEAD "%2: f32[4] = exp(%1) return %2" TAIL "%2"},
        {10, HEAD "%2: f32[3] = reduce(%1) {axes=[5], monoid=\"sum\"} return %2" TAIL "%2"},
        {10, HEAD "%2: bool[] = constant() {elem=bool, dims=[], data=hex\"01\"} %3: f32[3] = if(%2) "
                  "region () { return %1 } return %3" TAIL "%3"},
        {11, HEAD "%2: f32[3] known [1, 2] = exp(%1) return %2" TAIL "%2"},
        {12, "mcir 1 \"\" legal 8\nsymbol \"c\" value [0, 9]\nregion (%1: f32[c]) {\n return %1" TAIL "%1"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct context *ctx = context_new();
        struct graph *g = read_graph(ctx, rows[i].text);
        char want[40];
        snprintf(want, sizeof want, "graph invariant %d:", rows[i].invariant);
        if (graph_verify(g) || !strstr(diagnostics(ctx), want))
            fail_msg("no \"%s\" but \"%s\" for\n%s", want, diagnostics(ctx), rows[i].text);
        context_free(ctx);
    }
}

/* Damage that no text can express. */
static void verifier_finds_links(void **state)
{
    (void)state;
    for (int damage = 1; damage <= 5; damage++) {
        struct context *ctx = context_new();
        struct graph *g = read_graph(ctx, legal_text);
        struct region *top = graph_get_region(g, (region_id){1});
        if (damage == 1)
            top->nodes.data[0] = top->nodes.data[1];
        else if (damage == 2)
            g->regions.data[2].owner = (node_id){1};
        else if (damage == 3)
            g->values.data[3].result = 7;
        else if (damage == 4)
            graph_node(g, top->nodes.data[1])->in[0] = top->results.data[0];
        else
            g->values.data[3].n_uses++;
        char want[40];
        snprintf(want, sizeof want, "graph invariant %d:", damage);
        if (graph_verify(g) || !strstr(diagnostics(ctx), want))
            fail_msg("no \"%s\" but \"%s\"", want, diagnostics(ctx));
        context_free(ctx);
    }
}

/* ---- memory that ends ---------------------------------------------------------------------------------------- */

static void build_and_check(struct context *ctx)
{
    struct graph *g = read_graph(ctx, legal_text);
    graph_sweep(g);
    assert_true(graph_verify(g));
    print_graph(g);
    error_model(ctx, (src_id){0}, "an error of its own");
    graph_free(g);
}

/* True when the n-th allocation was reached and failed. */
static bool fails_at(int64_t n)
{
    struct context *ctx = context_new();
    assert_non_null(ctx);
    jmp_buf point;
    if (setjmp(point)) {
        assert_int_equal(ctx->diags.data[ctx->diags.n - 1].fail, FAIL_LIMIT);
        assert_non_null(strstr(ctx->diags.data[ctx->diags.n - 1].text, "out of memory"));
        context_free(ctx);
        return true;
    }
    ctx->unwind = &point;
    ctx->fail_alloc = n;
    build_and_check(ctx);
    context_free(ctx);
    return false;
}

static void every_allocation_fails(void **state)
{
    (void)state;
    int64_t n = 1;
    while (fails_at(n))
        n++;
    assert_true(n > 100);
}

static void budget_ends(void **state)
{
    (void)state;
    struct context *ctx = context_new();
    int64_t enough = ctx->heap_used;
    jmp_buf point;
    if (!setjmp(point)) {
        ctx->unwind = &point;
        ctx->limits.compile_heap = enough + 10000;
        for (;;)
            arena_alloc(&ctx->session, 100);
    }
    assert_int_equal(ctx->fail, FAIL_LIMIT);
    context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_there_and_back),  cmocka_unit_test(damaged_text),
        cmocka_unit_test(elided_constants),     cmocka_unit_test(uses_are_counted),
        cmocka_unit_test(sweep_keeps_symbols),  cmocka_unit_test(verifier_finds),
        cmocka_unit_test(verifier_finds_links), cmocka_unit_test(every_allocation_fails),
        cmocka_unit_test(budget_ends),          cmocka_unit_test(sweep_pools_constants),
        cmocka_unit_test(sweep_keeps_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
