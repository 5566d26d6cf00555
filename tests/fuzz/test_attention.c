/* Attention: random shapes with every remainder (rows, keys, head sizes, batches, symbolic extents), masks of every
 * kind and all orders in which operands may lie, interpreted as loops and compiled, against the reference interpreter;
 * and that no tensor of scores is left in memory.
 *
 *   test_attention [graphs seed [--native]]
 */
#include "tests/fuzz/single.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/library/compile/compile.h"
#include "codegen/codegen.h"
#include "ir/target/target.h"
#include "passes/legalize/legalize.h"

struct shape {
    expr_id batch, heads, rows, keys, size, columns;
    bool empty_rows;
    bool cleared; /* probabilities that are NaN are 0: rows may be empty, or have NaN for scores */
};

/* ---- drawing ----------------------------------------------------------------------------------------------------- */

/* [batch, heads, n, m], lying so, or [batch, n, heads, m] behind a transpose, or a slice of something longer, or one
 * head for all. */
static value_id operand(struct draw *d, const struct shape *s, expr_id n, expr_id m)
{
    static const int64_t swap[] = {0, 2, 1, 3};
    expr_id plain[4] = {s->batch, s->heads, n, m}, apart[4] = {s->batch, n, s->heads, m},
            one[4] = {s->batch, ex_const(d->x, 1), n, m};
    if (draw_chance(d, 15))
        return b_broadcast(&d->b, draw_leaf(d, ELEM_F32, one, 4, false).v, plain, 4);
    if (draw_chance(d, 40))
        return draw_leaf(d, ELEM_F32, plain, 4, false).v;
    if (draw_chance(d, 70))
        return b_transpose(&d->b, draw_leaf(d, ELEM_F32, apart, 4, false).v, swap);
    apart[3] = ex_addc(d->x, ex_mulc(d->x, m, 2), 1);
    value_id whole = draw_leaf(d, ELEM_F32, apart, 4, false).v;
    return whole.i ? b_transpose(&d->b, b_slice_axis(&d->b, whole, 3, ex_addc(d->x, m, draw_int(d, 0, 1)), m), swap)
                   : whole;
}

static value_id turned(struct draw *d, value_id v)
{
    static const int64_t last[] = {0, 1, 3, 2};
    return b_transpose(&d->b, v, last);
}

static value_id scores(struct draw *d, const struct shape *s)
{
    value_id q = operand(d, s, s->rows, s->size), k = operand(d, s, s->keys, s->size);
    if (!q.i || !k.i)
        return q;
    if (draw_chance(d, 40))
        q = b_binary_f64(&d->b, OP_MUL, b_binary_f64(&d->b, OP_ADD, q, 0.25), 0.5);
    if (draw_chance(d, 20)) /* keys times rows, turned */
        return turned(d, b_matmul(&d->b, k, turned(d, q)));
    return b_matmul(&d->b, q, turned(d, k));
}

/* key <= end where `below`, else key > end, in one of the forms that a comparison has. */
static value_id compared(struct draw *d, value_id key, value_id end, bool below)
{
    struct builder *b = &d->b;
    value_id next = b_binary(b, OP_ADD, end, v_expr(b, value_type(d->g, end)->elem, ex_const(d->x, 1)));
    value_id not_below = draw_chance(d, 50) ? b_binary(b, OP_LT, end, key) : b_binary(b, OP_LE, next, key);
    value_id is_below = draw_chance(d, 50) ? b_binary(b, OP_LE, key, end) : b_binary(b, OP_LT, key, next);
    if (draw_chance(d, 50))
        return below ? is_below : not_below;
    return b_unary(b, OP_NOT, below ? not_below : is_below);
}

/* -inf, or a number that stands for it, behind the row and some keys, or behind a length of the batch; where rows may
 * be empty, in front of a window, too: bounds that leave out spans (passes/module/attention_bounds.h). */
static value_id bounded(struct draw *d, const struct shape *s, value_id z)
{
    struct builder *b = &d->b;
    const expr_id one = ex_const(d->x, 1);
    expr_id rows[4] = {one, one, s->rows, one}, keys[4] = {one, one, one, s->keys},
            batches[4] = {s->batch, one, one, one};
    enum elem e = draw_chance(d, 50) ? ELEM_I32 : ELEM_I64;
    double far[] = {-INFINITY, -INFINITY, -FLT_MAX, -1e9};
    value_id row = v_iota(b, e, rows, 4, 2), key = v_iota(b, e, keys, 4, 3),
             low = b_scalar_f64(b, ELEM_F32, DRAW_PICK(d, far));
    value_id end = b_binary(b, OP_ADD, row, v_expr(b, e, ex_const(d->x, draw_int(d, 0, 60))));
    int64_t least = s->empty_rows ? -1 : 0;
    value_id length = draw_indices(d, e, batches, 4, least, draw_chance(d, 40) ? 0 : draw_int(d, 0, 120)).v;
    if (!length.i)
        return (value_id){0};
    value_id seen = compared(d, key, draw_chance(d, 70) ? end : length, true);
    if (draw_chance(d, 30))
        seen = b_binary(b, OP_AND, seen, compared(d, key, length, true));
    if (s->empty_rows && draw_chance(d, 60)) {
        value_id start = b_binary(b, OP_SUB, end, v_expr(b, e, ex_const(d->x, draw_int(d, 1, 70))));
        seen = b_binary(b, OP_AND, compared(d, key, start, false), seen);
    }
    if (draw_chance(d, 30))
        return b_binary(b, OP_ADD, z, b_select(b, seen, b_scalar_f64(b, ELEM_F32, 0), low));
    return draw_chance(d, 50) ? b_select(b, seen, z, low) : b_select(b, b_unary(b, OP_NOT, seen), low, z);
}

/* -inf (or far below) where a key comes after the row, or is one of the first few but not of the last; where rows may
 * be empty, all of every third row. */
static value_id masked(struct draw *d, const struct shape *s, value_id z)
{
    struct builder *b = &d->b;
    expr_id dims[2] = {s->rows, s->keys}, all[4] = {s->batch, ex_const(d->x, 1), s->rows, s->keys}, key[4];
    value_id row = v_iota(b, ELEM_I64, dims, 2, 0), col = v_iota(b, ELEM_I64, dims, 2, 1), hidden, low, zero;
    double far = draw_chance(d, 50) ? -INFINITY : -1000;
    if (draw_chance(d, 50))
        return bounded(d, s, z);
    memcpy(key, all, sizeof key);
    key[2] = ex_const(d->x, 1);
    switch (s->cleared && draw_chance(d, 60) ? 4 : draw_int(d, 0, s->empty_rows ? 4 : 3)) {
    case 0: return b_binary(b, OP_ADD, z, draw_leaf(d, ELEM_F32, all, 4, draw_chance(d, 50)).v);
    case 1: return b_binary(b, OP_ADD, z, draw_leaf(d, ELEM_F32, key, 4, draw_chance(d, 50)).v);
    case 2: hidden = b_binary(b, OP_LT, row, col); break;
    case 4:
        hidden = b_binary(b, OP_EQ, b_binary(b, OP_MOD, row, v_expr(b, ELEM_I64, ex_const(d->x, 3))),
                          v_expr(b, ELEM_I64, ex_const(d->x, 1)));
        hidden = b_binary(b, OP_OR, hidden,
                          b_binary(b, OP_LT, col, v_expr(b, ELEM_I64, ex_const(d->x, draw_int(d, 0, 3)))));
        far = s->cleared && draw_chance(d, 50) ? NAN : -INFINITY;
        break;
    default: /* whole spans of keys count for nothing */
        hidden = b_binary(b, OP_LT, col, v_expr(b, ELEM_I64, ex_addc(d->x, s->keys, -draw_int(d, 1, 9))));
        break;
    }
    low = b_scalar_f64(b, ELEM_F32, far);
    zero = b_scalar_f64(b, ELEM_F32, 0);
    if (draw_chance(d, 50))
        return b_select(b, hidden, low, z);
    return b_binary(b, OP_ADD, z, b_select(b, hidden, low, zero));
}

/* Batches in another order, and back. */
static value_id in_other_dims(struct draw *d, const struct shape *s, value_id z)
{
    expr_id other[5] = {ex_const(d->x, 1), s->batch, s->heads, s->rows, s->keys};
    z = b_reshape(&d->b, z, other, 5);
    z = b_binary_f64(&d->b, OP_MUL, z, 0.75);
    return b_reshape(&d->b, z, other + 1, 4);
}

/* p, but 0 where it is NaN, in one of the forms that exporters have. */
static value_id cleared(struct draw *d, value_id p)
{
    value_id nan = b_unary(&d->b, OP_ISNAN, p), zero = b_scalar_f64(&d->b, ELEM_F32, 0);
    return draw_chance(d, 70) ? b_select(&d->b, nan, zero, p) : b_select(&d->b, b_unary(&d->b, OP_NOT, nan), p, zero);
}

static value_id softmax(struct draw *d, const struct shape *s, value_id z)
{
    static const int64_t last[] = {3};
    struct builder *b = &d->b;
    if (s->cleared)
        return cleared(d, draw_chance(d, 20) ? v_softmax_masked(b, z, last, 1) : v_softmax(b, z, last, 1, false));
    if (s->empty_rows)
        return v_softmax_masked(b, z, last, 1);
    if (draw_chance(d, 70))
        return v_softmax(b, z, last, 1, false);
    value_id e = b_unary(b, OP_EXP, b_binary(b, OP_SUB, z, b_reduce(b, z, last, 1, "max", true)));
    return b_binary(b, OP_DIV, e, b_reduce(b, e, last, 1, "sum", true));
}

static value_id attend(struct draw *d, const struct shape *s)
{
    static const int64_t swap[] = {0, 2, 1, 3};
    struct builder *b = &d->b;
    value_id z = scores(d, s), v = operand(d, s, s->keys, s->columns);
    if (!z.i || !v.i)
        return (value_id){0};
    z = draw_chance(d, 50) ? b_binary_f64(b, OP_MUL, z, 0.03125) : b_binary_f64(b, OP_DIV, z, 24);
    if (draw_chance(d, 30))
        z = in_other_dims(d, s, z);
    if (draw_chance(d, s->cleared ? 90 : 60))
        z = masked(d, s, z);
    value_id y = z.i ? b_matmul(b, softmax(d, s, z), v) : z;
    expr_id joined[3] = {s->batch, s->rows, ex_mul(d->x, s->heads, s->columns)};
    if (y.i && draw_chance(d, 60))
        y = b_reshape(b, b_transpose(b, y, swap), joined, 3);
    if (y.i && draw_chance(d, 40))
        y = b_binary_f64(b, OP_ADD, y, 0.5);
    return y;
}

static bool build(struct draw *d)
{
    static const int64_t sizes[] = {1, 3, 4, 7, 8, 12, 15, 16, 17, 20, 31, 32, 33, 48};
    struct exprs *x = d->x;
    struct shape s = {ex_const(x, draw_int(d, 1, 2)),
                      ex_const(x, draw_int(d, 1, 3)),
                      ex_const(x, draw_int(d, 8, 70)),
                      ex_const(x, draw_int(d, 1, 90)),
                      ex_const(x, DRAW_PICK(d, sizes)),
                      ex_const(x, DRAW_PICK(d, sizes)),
                      draw_chance(d, 30),
                      draw_chance(d, 25)};
    s.empty_rows |= s.cleared;
    if (draw_chance(d, 40)) {
        bool keys = draw_chance(d, 70);
        d->extent[0] = draw_chance(d, 5) ? 0 : draw_int(d, 1, keys ? 280 : 70);
        sym_id n = d->symbol[d->n_symbols++] = sym_new(x, SYM_SHAPE, "n", 0, draw_chance(d, 50) ? 512 : INT64_MAX);
        *(keys ? &s.keys : draw_chance(d, 70) ? &s.rows : &s.batch) = ex_sym(x, n);
        if (keys && draw_chance(d, 30))
            s.rows = s.keys;
        if (s.batch.i == ex_sym(x, n).i)
            d->extent[0] = 1 + d->extent[0] % 4;
    }
    value_id y = attend(d, &s);
    return y.i && single_result(d, y);
}

static struct way way_of(uint64_t seed)
{
    static const char *const names[] = {"x86-64-v4", "x86-64-v3", "x86-64-v2"};
    struct way way = {.level = 2, .layout = LAYOUT_AUTO, .machine = target_find(names[seed % 3])->machine};
    if (seed % 5 < 2) { /* caches so small that few keys are a span */
        way.machine.l1_kib = 4;
        way.machine.l2_kib = 8;
    }
    return way;
}

static double limit_of(const struct way *way)
{
    (void)way;
    return 2e-6;
}

static const struct single attentions = {"attention", build, way_of, limit_of};

/* ---- what stays in memory ---------------------------------------------------------------------------------------- */

/* The kernels of what was drawn; NULL: the passes fail. */
static const struct module *kernels_of(struct draw *d)
{
    const struct way way = {.level = 2, .layout = LAYOUT_AUTO, .machine = target_find("x86-64-v4")->machine};
    struct strbuf why = strbuf_of(&d->ctx->session);
    const struct compilation *c = stages_of_way(d->ctx, d->g, &way, "fuse", NULL, &why);
    return c ? c->module : NULL;
}

/* Is every score inside a kernel: one kernel with an attention, and no stored value with a row and a key? */
static bool nothing_stored(const struct module *m, const struct shape *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->fused.kernels.n; i++)
        n += m->fused.kernels.data[i].form.attention != NULL;
    for (uint32_t v = 1; v < m->fused.n_values; v++) {
        const struct type *t = value_type(m->g, (value_id){v});
        bool row = false, key = false;
        for (int32_t d = 0; m->fused.stored[v] && d < t->rank; d++) {
            row |= t->dims[d].i == s->rows.i;
            key |= t->dims[d].i == s->keys.i;
        }
        if (row && key)
            return false;
    }
    return n == 1;
}

/* One attention whose last part the argument changes; is it one kernel? */
enum change { PLAIN, EMPTY_ROWS, CLEARED, SCORES_READ, PROBABILITIES_READ, WRONG_AXIS, FEW_ROWS };
static bool fused(enum change change)
{
    struct context *ctx = context_new();
    struct draw *d = NEW(&ctx->session, struct draw);
    static const int64_t last[] = {3}, other[] = {2};
    jmp_buf unwind;
    volatile bool one = false;
    *d = (struct draw){.ctx = ctx, .g = graph_new(ctx), .x = ctx->exprs, .state = 7};
    d->b = builder_in(d->g, (region_id){1});
    struct exprs *x = d->x;
    struct shape s = {ex_const(x, 1),
                      ex_const(x, 2),
                      ex_const(x, change == FEW_ROWS ? 3 : 33),
                      ex_const(x, change == WRONG_AXIS ? 33 : 21),
                      ex_const(x, 8),
                      ex_const(x, 8),
                      change == EMPTY_ROWS,
                      change == CLEARED};
    ctx->unwind = &unwind;
    if (setjmp(unwind) == 0) {
        struct builder *b = &d->b;
        value_id v = operand(d, &s, s.keys, s.columns), z = b_binary_f64(b, OP_MUL, scores(d, &s), 0.5);
        value_id p = s.empty_rows ? v_softmax_masked(b, z, last, 1)
                                  : v_softmax(b, z, change == WRONG_AXIS ? other : last, 1, false);
        p = s.cleared ? cleared(d, p) : p;
        value_id y = b_matmul(b, p, v), read = change == SCORES_READ          ? z
                                               : change == PROBABILITIES_READ ? p
                                                                              : (value_id){0};
        single_result(d, y);
        if (read.i) {
            graph_add_result(d->g, (region_id){1}, read);
            VEC_PUSH(&d->g->arena, &d->g->outputs, ((struct port){"z", NULL, read}));
        }
        const struct module *m = kernels_of(d);
        one = m && nothing_stored(m, &s);
    }
    context_free(ctx);
    return one;
}

/* Rows, keys and values are slices of one tensor, the rows scaled: how many kernels, copies included? */
static uint32_t sliced(int64_t start)
{
    struct context *ctx = context_new();
    struct draw *d = NEW(&ctx->session, struct draw);
    static const int64_t apart[] = {0, 2, 1, 3};
    jmp_buf unwind;
    volatile uint32_t kernels = 0;
    *d = (struct draw){.ctx = ctx, .g = graph_new(ctx), .x = ctx->exprs, .state = 7};
    d->b = builder_in(d->g, (region_id){1});
    ctx->unwind = &unwind;
    if (setjmp(unwind) == 0) {
        struct builder *b = &d->b;
        struct exprs *x = d->x;
        expr_id dims[3] = {ex_const(x, 1), ex_const(x, 33), ex_const(x, 160)},
                heads[4] = {dims[0], dims[1], ex_const(x, 2), ex_const(x, 16)};
        value_id all = draw_leaf(d, ELEM_F32, dims, 3, false).v, part[3];
        all = b_binary_f64(b, OP_ADD, all, 0.5);
        for (int64_t i = 0; i < 3; i++) {
            value_id v = b_slice_axis(b, all, 2, ex_const(x, start + 32 * i), ex_const(x, 32));
            part[i] = b_transpose(b, b_reshape(b, v, heads, 4), apart);
        }
        part[0] = b_binary_f64(b, OP_MUL, part[0], 0.25);
        static const int64_t last[] = {3};
        value_id p = v_softmax(b, b_matmul(b, part[0], turned(d, part[1])), last, 1, false);
        single_result(d, b_matmul(b, p, part[2]));
        const struct module *m = kernels_of(d);
        kernels = m ? m->fused.kernels.n : 0;
    }
    context_free(ctx);
    return kernels;
}

static void test_slices(void **state)
{
    (void)state;
    assert_int_equal(sliced(0), 2); /* the tensor, and the attention */
    assert_int_equal(sliced(16), 2);
    assert_int_equal(sliced(8), 3); /* values that lie across the vectors' borders are copied */
}

static void test_memory(void **state)
{
    (void)state;
    assert_true(fused(PLAIN));
    assert_true(fused(EMPTY_ROWS));
    assert_true(fused(CLEARED));
    assert_false(fused(SCORES_READ));
    assert_false(fused(PROBABILITIES_READ));
    assert_false(fused(WRONG_AXIS));
    assert_false(fused(FEW_ROWS));
}

static void test_loops(void **state)
{
    (void)state;
    assert_int_equal(single_many(&attentions, 90, 1, false), 0);
}

static void test_native(void **state)
{
    (void)state;
    assert_int_equal(single_many(&attentions, 24, 1000, true), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_memory), cmocka_unit_test(test_slices),
                                       cmocka_unit_test(test_loops), cmocka_unit_test(test_native)};
    if (argc > 1 && strcmp(argv[1], "--worker") == 0)
        return codegen_worker();
    bool native = argc > 3 && strcmp(argv[3], "--native") == 0;
    if (argc > 2)
        return single_many(&attentions, strtoull(argv[1], NULL, 10), strtoull(argv[2], NULL, 10), native) > 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
