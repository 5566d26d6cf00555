/* Bounds inference (passes/module/bounds.h) against the points themselves: every element that a part of a result reads
 * lies in the inferred box, and the box has no rim that none reads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "passes/module/bounds.h"
#include "tests/text/text.h"

#define GRAPH(x, w, y, node)                                                                                           \
    "mcir 1 \"t\" legal 8\nopset \"\" 17\n\nregion (%1 \"x\": f32[" x "], %2 \"w\": f32[" w "]) {\n  %3 \"y\": f32[" y \
    "] = " node "\n  return %3\n}\ninput \"x\" %1\ninput \"w\" %2\noutput \"y\" %3\n"
#define CONV(strides, lo, hi, dilations, groups)                                                              \
    "conv(%1, %2) {strides=[" strides "], lo=[" lo "], hi=[" hi "], dilations=[" dilations "], xdil=[1, 1], " \
    "groups=" groups "}"

static const struct graph *graph_of(struct context *ctx, const char *text)
{
    const struct graph *g = graph_parse(ctx, text);
    assert_non_null(g);
    return g;
}

static int64_t constant(const struct graph *g, expr_id e)
{
    int64_t c = 0;
    assert_true(ex_is_const(g->ctx->exprs, e, &c));
    return c;
}

/* Every point of the part, and every reduced index, of which number `at` of all `n` extents is next. */
struct walk {
    const struct graph *g;
    const struct node *node;
    uint32_t operand, n_points, n;
    int64_t first[2 * RANK_MAX], extent[2 * RANK_MAX], least[RANK_MAX], most[RANK_MAX];
    expr_id index[2 * RANK_MAX];
};

static void visit_from(struct walk *w, uint32_t at)
{
    expr_id read[RANK_MAX];
    for (int64_t i = 0; at < w->n && i < w->extent[at]; i++) {
        w->index[at] = ex_const(w->g->ctx->exprs, w->first[at] + i);
        visit_from(w, at + 1);
    }
    if (at < w->n)
        return;
    contraction_point(w->g, w->node, w->operand, w->index, w->index + w->n_points, read);
    for (int32_t d = 0; d < value_type(w->g, w->node->in[w->operand])->rank; d++) {
        int64_t i = constant(w->g, read[d]);
        w->least[d] = i < w->least[d] ? i : w->least[d];
        w->most[d] = i > w->most[d] ? i : w->most[d];
    }
}

static void compare(const struct graph *g, const struct node *n, uint32_t operand, const struct box *of,
                    const int64_t *reduced, uint32_t n_reduced)
{
    struct box box;
    struct walk w = {g, n, operand, (uint32_t)value_type(g, n->out[0])->rank, 0, {0}, {0}, {0}, {0}, {{0}}};
    for (uint32_t d = 0; d < w.n_points; d++) {
        w.first[d] = constant(g, of->first[d]);
        w.extent[d] = of->extent[d] ? of->extent[d] : 1;
    }
    for (uint32_t d = 0; d < n_reduced; d++)
        w.extent[w.n_points + d] = reduced[d];
    w.n = w.n_points + n_reduced;
    for (uint32_t d = 0; d < RANK_MAX; d++) {
        w.least[d] = INT64_MAX;
        w.most[d] = INT64_MIN;
    }
    visit_from(&w, 0);
    assert_true(contraction_box(g, n, operand, of, &box));
    for (int32_t d = 0; d < value_type(g, n->in[operand])->rank; d++) {
        assert_int_equal(constant(g, box.first[d]), w.least[d]);
        assert_int_equal(box.extent[d] ? box.extent[d] : 1, w.most[d] - w.least[d] + 1);
    }
}

static void convolutions(void **state)
{
    static const struct {
        const char *text;
        int64_t reduced[3]; /* taps, channels */
    } cases[] = {
        {GRAPH("1, 6, 9, 11", "4, 6, 3, 3", "1, 4, 9, 11", CONV("1, 1", "1, 1", "1, 1", "1, 1", "1")), {3, 3, 6}},
        {GRAPH("1, 6, 9, 11", "4, 6, 3, 5", "1, 4, 5, 4", CONV("2, 3", "1, 2", "1, 1", "1, 1", "1")), {3, 5, 6}},
        {GRAPH("2, 4, 12, 9", "4, 1, 3, 2", "2, 4, 8, 6", CONV("1, 1", "0, 0", "0, 0", "2, 3", "4")), {3, 2, 1}},
        {GRAPH("1, 6, 7, 7", "4, 6, 1, 1", "1, 4, 7, 7", CONV("1, 1", "0, 0", "0, 0", "1, 1", "1")), {1, 1, 6}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct context *ctx = context_new();
        const struct graph *g = graph_of(ctx, cases[i].text);
        const struct node *n = graph_node(g, (node_id){1});
        struct exprs *x = ctx->exprs;
        expr_id zero = ex_const(x, 0), two = ex_const(x, 2);
        struct box rows = {.first = {zero, zero, two, zero}, .extent = {0, 0, 2, 4}},
                   channels = {.first = {zero, zero, zero, zero}, .extent = {1, 3, 0, 0}},
                   one = {.first = {zero, two, two, zero}};
        for (uint32_t operand = 0; operand < 2; operand++) {
            compare(g, n, operand, &rows, cases[i].reduced, 3);
            compare(g, n, operand, &channels, cases[i].reduced, 3);
            compare(g, n, operand, &one, cases[i].reduced, 3);
        }
        context_free(ctx);
    }
}

static void products(void **state)
{
    struct context *ctx = context_new();
    const struct graph *g = graph_of(ctx,
                                     GRAPH("2, 5, 7", "2, 7, 9", "2, 5, 9",
                                           "dot(%1, %2) {batch_a=[0], batch_b=[0], contract_a=[2], contract_b=[1]}"));
    const struct node *n = graph_node(g, (node_id){1});
    expr_id one = ex_const(ctx->exprs, 1), zero = ex_const(ctx->exprs, 0);
    struct box of = {.first = {one, zero, one}, .extent = {0, 5, 8}};
    const int64_t reduced = 7;
    (void)state;
    compare(g, n, 0, &of, &reduced, 1);
    compare(g, n, 1, &of, &reduced, 1);
    context_free(ctx);
}

/* Points that are numbered through are the operand's own if there is one tap of stride 1 without padding. */
static void numbers(void **state)
{
    struct context *ctx = context_new();
    const struct graph *g = graph_of(
        ctx, GRAPH("1, 6, 7, 7", "4, 6, 1, 1", "1, 4, 7, 7", CONV("1, 1", "0, 0", "0, 0", "1, 1", "1")));
    const struct graph *wide = graph_of(
        ctx, GRAPH("1, 6, 7, 7", "4, 6, 3, 3", "1, 4, 7, 7", CONV("1, 1", "1, 1", "1, 1", "1, 1", "1")));
    expr_id zero = ex_const(ctx->exprs, 0);
    struct box of = {.first = {zero, zero, zero, ex_const(ctx->exprs, 10)}, .extent = {0, 0, 0, 20}, .flat = true}, box;
    int64_t elements;
    (void)state;
    assert_true(contraction_box(g, graph_node(g, (node_id){1}), 0, &of, &box));
    assert_true(box.flat && box.extent[2] == 0 && box.extent[3] == 20 && constant(g, box.first[3]) == 10);
    assert_true(box_elements(&box, 4, &elements) && elements == 6 * 20);
    assert_false(contraction_box(wide, graph_node(wide, (node_id){1}), 0, &of, &box));
    context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(convolutions), cmocka_unit_test(products),
                                       cmocka_unit_test(numbers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
