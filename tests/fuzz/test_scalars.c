/* Every SCALAR row of ir/ops/ops.def on every class of elements that it is defined for: a graph of that one operator,
 * its loops interpreted, against the reference interpreter. A new row is tested without a line here.
 */
#include "tests/fuzz/ways.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ir/target/target.h"

enum { ELEMENTS = 61 }; /* whole vectors, and some more */

static const struct scalar_row {
    enum op op;
    const char *name, *classes;
    uint32_t n_in;
    bool divides;
} rows[] = {
#define NONE false
#define I1(f) false
#define I2(f) false
#define I3(f) false
#define D2(f) true
#define SCALAR(id, name, operands, cost, infer, classes, real, integer, ...) \
    {OP_##id, name, classes, operands, integer},
#include "ir/ops/ops.def"
};
static const enum elem elems[] = {ELEM_F32, ELEM_F64, ELEM_F16, ELEM_I8,  ELEM_I32,
                                  ELEM_I64, ELEM_U8,  ELEM_U32, ELEM_U64, ELEM_BOOL};

/* Each operand goes through the same numbers at another pace, so that they meet. */
static void fill(void *data, enum elem e, uint32_t operand, bool divisor)
{
    static const double reals[] = {0,     1,   -1,   0.5, -0.75,   2.5,      -2.5,      3,  100,
                                   -7.25, 0.1, 1e-3, -20, 12345.5, INFINITY, -INFINITY, NAN};
    static const int64_t integers[] = {0,    1,  -1,        2,         3,         7,         -8,   31, 100,
                                       -100, 65, INT64_MIN, INT64_MAX, INT32_MIN, INT32_MAX, -128, 127};
    static const uint32_t pace[] = {1, 3, 5};
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        char *at = (char *)data + i * elem_size(e);
        uint32_t k = (i * pace[operand] + i / COUNT_OF(integers) * operand) % COUNT_OF(integers);
        if (elem_class(e) == 'F')
            elem_from_f64(e, reals[k], at);
        else if (e == ELEM_BOOL)
            *at = integers[k] & 1;
        else
            elem_from_i64(e, integers[k], at);
        if (divisor && elem_class(e) != 'F' && elem_to_i64(e, at) == 0)
            elem_from_i64(e, 3, at);
    }
}

/* Floats within what docs/numerics.md allows and f16 or the argument's reduction add; everything else exactly. */
static bool is_near(enum elem e, const void *want, const void *have)
{
    if (elem_class(e) != 'F')
        return memcmp(want, have, elem_size(e)) == 0;
    double a = elem_to_f64(e, want), b = elem_to_f64(e, have),
           eps = e == ELEM_F16   ? 2e-3
                 : e == ELEM_F32 ? 2e-6
                                 : 1e-13;
    return a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= eps * fmax(fabs(a), 1e-3);
}

static void run_row(const struct scalar_row *row, enum elem e, int level, const char *cpu)
{
    struct context *ctx = context_new();
    struct draw *d = NEW(&ctx->session, struct draw);
    struct way way = {.level = level, .machine = target_find(cpu)->machine};
    struct tensor want = {0}, have = {0};
    jmp_buf unwind;
    const char *text = "";
    struct strbuf why = strbuf_of(&ctx->session);
    *d = (struct draw){.ctx = ctx, .g = graph_new(ctx), .x = ctx->exprs, .state = 1};
    d->b = builder_in(d->g, (region_id){1});
    ctx->unwind = &unwind;
    if (setjmp(unwind) != 0)
        fail_msg("%s of %s: the passes gave up", row->name, elem_name(e));
    expr_id n = ex_const(d->x, ELEMENTS);
    value_id in[3];
    for (uint32_t k = 0; k < row->n_in; k++)
        in[k] = draw_leaf(d, e, &n, 1, false).v;
    value_id y = b_op(&d->b, row->op, in, row->n_in, NULL, 0);
    if (!y.i)
        fail_msg("%s of %s: %s", row->name, elem_name(e), ctx->diags.n ? ctx->diags.data[0].text : "no result");
    graph_add_result(d->g, (region_id){1}, y);
    VEC_PUSH(&d->g->arena, &d->g->outputs, ((struct port){"y", NULL, y}));
    d->g->legal = true;
    draw_bind(d, d->extent);
    for (uint32_t k = 0; k < row->n_in; k++)
        fill(d->inputs[k].data, e, k, row->divides && k == 1);
    if (graph_eval(d->g, d->inputs, &want, &ctx->session, &text) != EVAL_OK)
        fail_msg("%s of %s: reference: %s", row->name, elem_name(e), text);
    enum elem out = want.elem;
    struct loops *loops = loops_make(d, &way, &why);
    if (!loops || !loops_run(loops, &have))
        fail_msg("%s of %s: %s", row->name, elem_name(e), why.data);
    for (uint32_t i = 0; i < ELEMENTS; i++)
        if (!is_near(out, (char *)want.data + i * elem_size(out), (char *)have.data + i * elem_size(out)))
            fail_msg("%s of %s, element %u: %.9g instead of %.9g", row->name, elem_name(e), i,
                     elem_to_f64(out, (char *)have.data + i * elem_size(out)),
                     elem_to_f64(out, (char *)want.data + i * elem_size(out)));
    context_free(ctx);
}

static void test_every_row(void **state)
{
    static const char *const cpus[] = {"x86-64-v4", "x86-64-v2"};
    (void)state;
    for (size_t r = 0; r < COUNT_OF(rows); r++)
        for (size_t i = 0; i < COUNT_OF(elems); i++)
            if (strchr(rows[r].classes, elem_class(elems[i])))
                run_row(&rows[r], elems[i], i % 2 ? 2 : 0, cpus[r % 2]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_row)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
