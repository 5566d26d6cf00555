/* Maps of transposed operands, by tiles of registers: random orders of dims, element types and remainders, symbolic
 * extents above and below a tile's, few channels, constants around the operand, other operands that lie as the result
 * does or are broadcast, interpreted as loops and compiled, against the reference interpreter.
 *
 *   test_turn [graphs seed [--native]]
 */
#include "tests/fuzz/single.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codegen/codegen.h"
#include "ir/target/target.h"

static const enum elem elems[] = {ELEM_F32,  ELEM_F32, ELEM_U8,  ELEM_I8,   ELEM_F16, ELEM_I16,
                                  ELEM_BF16, ELEM_I64, ELEM_F64, ELEM_BOOL, ELEM_I32};

static expr_id extent(struct draw *d, int32_t rank)
{
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 40, 65},
                         few[] = {1, 2, 3, 4, 7, 8, 12, 16, 17, 19};
    if (d->n_symbols < DRAW_SYMBOLS && draw_chance(d, 15)) {
        d->extent[d->n_symbols] = draw_chance(d, 5) ? 0 : draw_int(d, 1, rank > 3 ? 20 : 50);
        d->symbol[d->n_symbols] = sym_new(d->x, SYM_SHAPE, d->n_symbols ? "m" : "n", 0,
                                          draw_chance(d, 50) ? 512 : INT64_MAX);
        return ex_sym(d->x, d->symbol[d->n_symbols++]);
    }
    return ex_const(d->x, rank > 3 ? DRAW_PICK(d, few) : DRAW_PICK(d, sizes));
}

/* An operand of these dims, with a constant around it where there is room. */
static value_id draw_operand(struct draw *d, enum elem e, expr_id *dims, int32_t rank)
{
    expr_id lo[RANK_MAX], hi[RANK_MAX];
    int64_t n;
    bool pads = draw_chance(d, 30);
    for (int32_t i = 0; i < rank; i++) {
        int64_t before = pads && draw_chance(d, 60) ? draw_int(d, 0, 2) : 0,
                after = pads && draw_chance(d, 60) ? draw_int(d, 0, 2) : 0;
        bool room = ex_is_const(d->x, dims[i], &n) && n >= before + after;
        lo[i] = ex_const(d->x, room ? before : 0);
        hi[i] = ex_const(d->x, room ? after : 0);
        dims[i] = ex_sub(d->x, dims[i], ex_const(d->x, room ? before + after : 0));
    }
    value_id v = draw_leaf(d, e, dims, rank, false).v;
    return v.i && pads ? b_pad(&d->b, v, (value_id){0}, lo, hi, "constant") : v;
}

/* The operand, turned, with what is computed of it; *perm: into the result's dims. */
static value_id build_turned(struct draw *d, enum elem e, const expr_id *dims, const int64_t *perm, int32_t rank)
{
    expr_id from[RANK_MAX];
    for (int32_t i = 0; i < rank; i++)
        from[perm[i]] = dims[i];
    value_id v = draw_operand(d, e, from, rank);
    if (v.i && draw_chance(d, 40))
        v = b_convert(&d->b, v, ELEM_F32);
    return v.i ? b_transpose(&d->b, v, perm) : v;
}

static bool build(struct draw *d)
{
    struct builder *b = &d->b;
    int32_t rank = (int32_t)draw_int(d, 2, 4);
    int64_t perm[RANK_MAX];
    expr_id dims[RANK_MAX], one[RANK_MAX];
    for (int32_t i = 0; i < rank; i++) {
        dims[i] = extent(d, rank);
        one[i] = draw_chance(d, 60) ? ex_const(d->x, 1) : dims[i];
        perm[i] = i;
    }
    for (int32_t i = rank - 1; i > 0; i--) {
        int64_t j = draw_int(d, 0, i), p = perm[i];
        perm[i] = perm[j];
        perm[j] = p;
    }
    enum elem e = DRAW_PICK(d, elems);
    value_id y = build_turned(d, e, dims, perm, rank);
    if (!y.i)
        return false;
    if (draw_chance(d, 40)) /* by way of another type */
        y = b_convert(b, b_convert(b, y, ELEM_F32), elem_class(e) != 'F' || draw_chance(d, 50) ? ELEM_I32 : ELEM_F16);
    y = b_convert(b, y, ELEM_F32);
    if (draw_chance(d, 30))
        y = b_binary(b, OP_ADD, y, draw_leaf(d, ELEM_F32, dims, rank, draw_chance(d, 30)).v);
    if (y.i && draw_chance(d, 30))
        y = b_binary(b, OP_ADD, y, draw_leaf(d, ELEM_F32, one, rank, draw_chance(d, 30)).v);
    if (y.i && draw_chance(d, 20))
        y = b_binary(b, OP_MAX, y, build_turned(d, ELEM_F32, dims, perm, rank));
    return y.i && single_result(d, y);
}

static struct way way_of(uint64_t seed)
{
    static const char *const names[] = {"x86-64-v4", "x86-64-v3", "x86-64-v2"};
    static const enum layout_choice layouts[] = {LAYOUT_AUTO, LAYOUT_NC16C, LAYOUT_NHWC};
    return (struct way){
        .level = seed % 4 ? 2 : 0, .layout = layouts[seed / 4 % 3], .machine = target_find(names[seed % 3])->machine};
}

static double limit_of(const struct way *way)
{
    (void)way;
    return 1e-6;
}

static const struct single turns = {"transposed maps", build, way_of, limit_of};

static void test_loops(void **state)
{
    (void)state;
    assert_int_equal(single_many(&turns, 400, 1, false), 0);
}

static void test_native(void **state)
{
    (void)state;
    assert_int_equal(single_many(&turns, 40, 1000, true), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_loops), cmocka_unit_test(test_native)};
    if (argc > 1 && strcmp(argv[1], "--worker") == 0)
        return codegen_worker();
    bool native = argc > 3 && strcmp(argv[3], "--native") == 0;
    if (argc > 2)
        return single_many(&turns, strtoull(argv[1], NULL, 10), strtoull(argv[2], NULL, 10), native) > 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
