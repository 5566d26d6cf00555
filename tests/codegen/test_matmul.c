/* L_MATMUL: the instructions of AMX, and, where this CPU has them, results as the interpreter has them: of bytes of all
 * signs, of bf16 with its roundings; one set of rows or two that may overlap, short rows, several loops. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "harness.h"

enum { INDICES = 3 };

struct shape {
    int64_t rows, stride, second, place, apart, k, loop[2][3];
};
static const struct shape shapes[] = {
    {16, 192, 16 * 192, 16, 3 * 64 * 16, 64, {{3, 64, 64 * 16}, {1, 0, 0}}}, /* 32 x 32 of 192 */
    {16, 64, 5 * 64, 5, 0, 64, {{1, 0, 0}, {1, 0, 0}}}, /* 21 rows: 16 and the last 16 */
    {7, 96, 0, 0, 2 * 48 * 16, 48, {{2, 48, 48 * 16}, {1, 0, 0}}},
    {9, 32, 200, 9, 0, 16, {{3, 9 * 32, 2 * 16 * 16}, {2, 16, 16 * 16}}}, /* taps, then channels */
    {1, 4, 0, 0, 0, 4, {{5, 4, 4 * 16}, {1, 0, 0}}},
};

static void bytes(const struct case_arg *a, struct suite *s)
{
    for (int64_t i = 0; i < a->bytes; i++)
        ((uint8_t *)a->data)[i] = (uint8_t)(suite_random(s) >> 20);
}

static void bf16_numbers(const struct case_arg *a, struct suite *s)
{
    for (int64_t i = 0; i < a->bytes / 2; i++)
        elem_from_f64(ELEM_BF16, ((double)(suite_random(s) >> 8 & 0xffff) - 32768) / 4096, (char *)a->data + 2 * i);
}

static struct shape of_bf16(struct shape m) /* the same bytes */
{
    int64_t *const halved[] = {&m.stride,     &m.second,     &m.apart,      &m.k,
                               &m.loop[0][1], &m.loop[0][2], &m.loop[1][1], &m.loop[1][2]};
    for (size_t i = 0; i < COUNT_OF(halved); i++)
        *halved[i] /= 2;
    return m;
}

static int64_t sums_of(const struct shape *m)
{
    return (m->place ? m->place + m->rows : m->rows) * (m->apart ? 32 : 16);
}

/* y[index] = the sums at a + index, b: of n products, one after the other. */
static void add_case(struct suite *s, const char *name, enum elem ea, enum elem eb, const struct shape *of, uint32_t n)
{
    enum elem sum = ea == ELEM_BF16 ? ELEM_F32 : ELEM_I32;
    int64_t all = 0, done = 0;
    for (uint32_t i = 0; i < n; i++)
        all += sums_of(&of[i]);
    struct kernel_case *k = case_new(s, name);
    lreg a = case_buffer(s, k, ea, LARG_IN, 16384), b = case_buffer(s, k, eb, LARG_IN, 16384),
         y = case_buffer(s, k, sum, LARG_OUT, all * INDICES), count = case_index(k, INDICES);
    for (int o = 0; o < 2; o++)
        (ea == ELEM_BF16 ? bf16_numbers : bytes)(&k->arg[o], s);
    k->count = INDICES;
    struct build body = {k->f, {1}}, f = {k->f, lf_block(k->f)};
    lreg i = lf_value(k->f, TINDEX), zero = index_of(body, 0);
    VEC_PUSH(k->f->arena, &k->f->blocks.data[f.b.i].params, i);
    lreg from = op2(f, L_MUL, TINDEX, i, index_of(f, 4)), to = op2(f, L_MUL, TINDEX, i, index_of(f, all));
    for (uint32_t p = 0; p < n; p++) {
        struct shape m = ea == ELEM_BF16 ? of_bf16(of[p]) : of[p];
        int64_t elements = sums_of(&m);
        lreg c = lf_op(k->f, body.b, L_LOCAL, (struct ltype){sum, 0}, NULL, 0);
        lf_last(k->f, body.b)->imm = elements;
        lreg in[MATMUL_FIXED + 6] = {c, a, from, b, zero, from};
        const int64_t constants[] = {m.rows,       m.stride,     m.second,     m.place,      m.apart,
                                     m.k,          p % 2 == 0,   m.loop[0][0], m.loop[0][1], m.loop[0][2],
                                     m.loop[1][0], m.loop[1][1], m.loop[1][2]};
        for (size_t j = 0; j < COUNT_OF(constants); j++)
            in[MATMUL_FIRST + j] = index_of(body, constants[j]);
        lf_stmt(f.f, f.b, L_MATMUL, in, COUNT_OF(in));
        for (int64_t at = 0; at < elements; at += 16) {
            lreg place = op2(f, L_ADD, TINDEX, to, index_of(f, done + at));
            store(f, y, place, load(f, (struct ltype){sum, 16}, c, index_of(f, at)));
        }
        done += elements;
    }
    lf_stmt(k->f, body.b, L_PARALLEL, (lreg[]){zero, count}, 2)->block[0] = f.b;
}

static struct suite *all_cases(void)
{
    static const enum elem signs[] = {ELEM_U8, ELEM_I8};
    struct suite *s = suite_new();
    s->tiles = true;
    for (size_t m = 0; m < COUNT_OF(shapes); m++) {
        for (size_t a = 0; a < 2; a++)
            for (size_t b = 0; b < 2; b++)
                add_case(s, arena_printf(&s->ctx->session, "bytes_%zu_%zu_%zu", m, a, b), signs[a], signs[b],
                         &shapes[m], 1);
        add_case(s, arena_printf(&s->ctx->session, "bf16_%zu", m), ELEM_BF16, ELEM_BF16, &shapes[m], 1);
    }
    add_case(s, "bytes_all", ELEM_U8, ELEM_I8, shapes, COUNT_OF(shapes));
    add_case(s, "bf16_all", ELEM_BF16, ELEM_BF16, shapes, COUNT_OF(shapes));
    return s;
}

/* Compiled and linked on every machine; run where it can be. */
static void test_results(void **state)
{
    struct suite *s = all_cases();
    (void)state;
    suite_run(s);
    suite_free(s);
}

static uint32_t count_of(const char *text, size_t n, const char *word)
{
    uint32_t count = 0;
    for (const char *p = text; (p = memmem(p, n - (size_t)(p - text), word, strlen(word))); p++)
        count++;
    return count;
}

/* One configuration before the loop over indices, one release, and each register that is loaded serves two products. */
static void test_instructions(void **state)
{
    struct suite *s = all_cases();
    struct target target = {"x86_64-unknown-linux-gnu", "x86-64-v4",
                            "+avx512vnni,+avx512bf16,+amx-tile,+amx-int8,+amx-bf16"};
    struct codegen_options options = {.self = "/proc/self/exe", .jobs = 1, .opt_level = 2, .emit = EMIT_ASSEMBLY};
    static const char *const products[] = {"tdpbuud", "tdpbusd", "tdpbsud", "tdpbssd", "tdpbf16ps"};
    jmp_buf unwind;
    (void)state;
    s->ctx->unwind = &unwind;
    if (setjmp(unwind) != 0)
        fail_msg("unwound: %s", s->ctx->diags.n ? s->ctx->diags.data[0].text : "");
    for (size_t i = 0; i < COUNT_OF(products); i++) {
        struct strbuf text = strbuf_of(&s->ctx->session);
        assert_true(lf_finish(s->cases.data[i].f));
        lf_print(s->cases.data[i].f, &text);
        struct codegen_unit unit = {.target = &target, .symbol = "k", .text = text.data};
        assert_true(codegen_objects(s->ctx, &s->ctx->session, &options, &unit, 1));
        assert_int_equal(count_of(unit.object.data, unit.object.size, products[i]), 4);
        assert_int_equal(count_of(unit.object.data, unit.object.size, "tileloadd"), 4);
        assert_int_equal(count_of(unit.object.data, unit.object.size, "prefetcht1"), 2);
        assert_int_equal(count_of(unit.object.data, unit.object.size, "tilezero"), 4);
        assert_int_equal(count_of(unit.object.data, unit.object.size, "tilestored"), 4);
        assert_int_equal(count_of(unit.object.data, unit.object.size, "ldtilecfg"), 1);
        assert_int_equal(count_of(unit.object.data, unit.object.size, "tilerelease"), 1);
    }
    suite_free(s);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_results), cmocka_unit_test(test_instructions)};
    if (argc > 1 && strcmp(argv[1], "--worker") == 0)
        return codegen_worker();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
