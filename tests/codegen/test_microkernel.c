/* Micro-kernels: the accumulators that one loop carries must stay in registers, 24 of AVX-512's in a tile of 6 x 64,
 * and on AArch64 a multiply-add takes its lane from a register. Looks at the assembly, and at the result.
 * `test_microkernel --peak` prints what tiles reach, for a look beside the machine's peak.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "harness.h"

struct tile {
    uint32_t rows, panels, lanes, steps; /* steps of k that a turn of the loop makes */
    enum elem elem;
};

/* Whole numbers around zero. */
static void fill(const struct case_arg *a, enum elem elem, int64_t period)
{
    uint32_t size = elem_size(elem);
    for (int64_t j = 0; j < a->bytes / size; j++)
        elem_from_f64(elem, (double)(j % period - period / 2), (char *)a->data + j * size);
}

/* Aligned as whole vectors are. */
static lreg load_whole(struct build b, struct ltype t, lreg buffer, lreg at)
{
    lreg v = load(b, t, buffer, at);
    struct lblk *blk = &b.f->blocks.data[b.b.i];
    blk->stmts.data[blk->stmts.n - 1].align = elem_size(t.elem) * t.lanes;
    return v;
}

/* One step of k for all rows: acc[rows][panels] += lane `step` of the rows' values * panels. */
static void add_step(struct build b, struct tile t, uint32_t step, const lreg *row, const lreg *panel, lreg *acc)
{
    struct ltype vector = {t.elem, t.lanes};
    for (uint32_t r = 0; r < t.rows; r++) {
        lreg x = row[r];
        if (t.steps > 1) {
            x = op1(b, L_EXTRACT, (struct ltype){t.elem, 1}, x);
            struct lblk *blk = &b.f->blocks.data[b.b.i];
            blk->stmts.data[blk->stmts.n - 1].imm = step;
        }
        x = op1(b, L_SPLAT, vector, x);
        for (uint32_t p = 0; p < t.panels; p++)
            acc[r * t.panels + p] = op3(b, L_FMA, vector, x, panel[p], acc[r * t.panels + p]);
    }
}

/* c[rows][panels * lanes] += over k of a[rows][K] * w[panels][K][lanes]; parallel over one tile. */
static struct kernel_case *add_tile(struct suite *s, const char *name, struct tile t, int64_t depth)
{
    struct ltype vector = {t.elem, t.lanes};
    lreg carried[64], in[66], out[64], yields[64], panel[8], here[8], row[64], value[64], i;
    uint32_t n = t.rows * t.panels, width = t.panels * t.lanes;
    struct kernel_case *k = case_new(s, name);
    k->unfused = true;
    lreg a = case_buffer(s, k, t.elem, LARG_IN, t.rows * depth);
    lreg w = case_buffer(s, k, t.elem, LARG_IN, width * depth);
    lreg c = case_buffer(s, k, t.elem, LARG_OUT, t.rows * width);
    fill(&k->arg[0], t.elem, 13);
    fill(&k->arg[1], t.elem, 17);
    lreg d = case_index(k, depth);
    struct build b = case_parallel(k, &i);
    in[0] = i;
    in[1] = d;
    lblock body = lf_block(b.f);
    struct build inner = {b.f, body};
    lreg var = lf_value(b.f, TINDEX), zero = number(b, vector, 0);
    lreg slice = op2(b, L_MUL, TINDEX, d, index_of(b, t.lanes));
    VEC_PUSH(b.f->arena, &b.f->blocks.data[body.i].params, var);
    for (uint32_t j = 0; j < n; j++) {
        yields[j] = carried[j] = lf_value(b.f, vector);
        VEC_PUSH(b.f->arena, &b.f->blocks.data[body.i].params, carried[j]);
        in[j + 2] = zero;
        out[j] = lf_value(b.f, vector);
    }
    for (uint32_t r = 0; r < t.rows; r++)
        row[r] = op2(b, L_MUL, TINDEX, d, index_of(b, r));
    for (uint32_t p = 0; p < t.panels; p++)
        panel[p] = op2(b, L_MUL, TINDEX, slice, index_of(b, p));
    struct lstmt *loop = lf_stmt(b.f, b.b, L_FOR, in, n + 2);
    loop->imm = t.steps;
    loop->out = lf_lregs(b.f, out, n);
    loop->n_out = n;
    loop->block[0] = body;
    for (uint32_t r = 0; r < t.rows; r++)
        value[r] = load(inner, (struct ltype){t.elem, t.steps}, a, op2(inner, L_ADD, TINDEX, row[r], var));
    for (uint32_t step = 0; step < t.steps; step++) {
        lreg at = op2(inner, L_ADD, TINDEX, var, index_of(inner, step));
        at = op2(inner, L_MUL, TINDEX, at, index_of(inner, t.lanes));
        for (uint32_t p = 0; p < t.panels; p++)
            here[p] = load_whole(inner, vector, w, op2(inner, L_ADD, TINDEX, panel[p], at));
        add_step(inner, t, step, value, here, yields);
    }
    lf_op(b.f, body, L_YIELD, (struct ltype){0}, yields, n);
    for (uint32_t j = 0; j < n; j++)
        store(b, c, index_of(b, (int64_t)j * t.lanes), out[j]);
    return k;
}

static char *assembly(struct suite *s, const struct kernel_case *k, struct target target)
{
    struct codegen_options options = {.self = "/proc/self/exe", .jobs = 1, .opt_level = 2, .emit = EMIT_ASSEMBLY};
    jmp_buf unwind;
    s->ctx->unwind = &unwind;
    if (setjmp(unwind) != 0)
        fail_msg("unwound");
    struct strbuf text = strbuf_of(&s->ctx->session);
    lf_print(k->f, &text);
    struct codegen_unit unit = {.target = &target, .symbol = "kernel", .text = text.data};
    assert_true(codegen_objects(s->ctx, &s->ctx->session, &options, &unit, 1));
    return arena_strndup(&s->ctx->session, unit.object.data, unit.object.size);
}

/* Lines that name both a vector register and the stack. */
static int count_spills(char *text, const char *reg, const char *stack)
{
    int n = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        n += strstr(line, reg) && strstr(line, stack);
    return n;
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = strstr(text, what); at; at = strstr(at + 1, what))
        n++;
    return n;
}

static void test_registers(void **state)
{
    static const struct {
        struct tile tile;
        const char *cpu, *reg;
    } tiles[] = {{{6, 4, 16, 1, ELEM_F32}, "x86-64-v4", "%zmm"},  {{14, 2, 16, 1, ELEM_F32}, "x86-64-v4", "%zmm"},
                 {{12, 2, 16, 1, ELEM_F32}, "x86-64-v4", "%zmm"}, {{9, 3, 16, 1, ELEM_F32}, "x86-64-v4", "%zmm"},
                 {{6, 2, 8, 1, ELEM_F32}, "x86-64-v3", "%ymm"},   {{4, 3, 8, 1, ELEM_F32}, "x86-64-v3", "%ymm"}};
    (void)state;
    struct suite *s = suite_new();
    for (size_t i = 0; i < COUNT_OF(tiles); i++) {
        struct kernel_case *k = add_tile(s, "tile", tiles[i].tile, 40);
        assert_true(lf_finish(k->f));
        char *text = assembly(s, k, (struct target){"x86_64-unknown-linux-gnu", tiles[i].cpu, ""});
        assert_int_equal(count(text, "vfmadd"), tiles[i].tile.rows * tiles[i].tile.panels);
        assert_int_equal(count_spills(text, tiles[i].reg, "(%rsp"), 0);
    }
    suite_run(s);
    suite_free(s);
}

/* AArch64, f32 and f16: each multiply-add takes a lane of the register that holds a row's next steps. */
static void test_lanes(void **state)
{
    static const struct {
        struct tile tile;
        const char *step;
    } tiles[] = {
        {{8, 2, 8, 8, ELEM_F16}, ".8h, "}, {{6, 3, 8, 8, ELEM_F16}, ".8h, "}, {{6, 3, 4, 4, ELEM_F32}, ".4s, "}};
    (void)state;
    struct suite *s = suite_new();
    for (size_t i = 0; i < COUNT_OF(tiles); i++) {
        struct tile t = tiles[i].tile;
        struct kernel_case *k = add_tile(s, "tile", t, 40);
        assert_true(lf_finish(k->f));
        char *text = assembly(s, k, (struct target){"aarch64-unknown-linux-gnu", "generic", "+neon,+fullfp16"});
        assert_int_equal(count(text, "fmla\t"), t.rows * t.panels * t.steps);
        assert_int_equal(count(text, t.elem == ELEM_F16 ? ".h[" : ".s["), t.rows * t.panels * t.steps);
        assert_int_equal(count(text, tiles[i].step), t.rows * t.panels * t.steps * 2);
        assert_int_equal(count(text, "dup\t"), 0);
        assert_int_equal(count_spills(text, "\tq", "[sp"), 0);
    }
    suite_run(s);
    suite_free(s);
}

/* ---- the peak, on request ---- */

enum { PEAK_DEPTH = 256, PEAK_CALLS = 2000 };
static double peak_flops;      /* of one call of the tile being measured */

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void measure(int64_t n, mcc_rt_fn *fn, const int64_t *args, const char *cpu)
{
    double best = 1e9;
    for (int k = 0; k < 30; k++) {
        double start = seconds();
        for (int i = 0; i < PEAK_CALLS; i++)
            fn(args, 0, n, NULL, NULL);
        double t = seconds() - start;
        best = t < best ? t : best;
    }
    printf("  %s: %.1f GFLOPS\n", cpu, PEAK_CALLS * peak_flops / best * 1e-9);
}

static void test_peak(void **state)
{
    static const struct tile tiles[] = {{6, 4, 16, 1, ELEM_F32},
                                        {14, 2, 16, 1, ELEM_F32},
                                        {9, 3, 16, 1, ELEM_F32},
                                        {4, 3, 8, 1, ELEM_F32},
                                        {6, 2, 8, 1, ELEM_F32}};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(tiles); i++) {
        struct suite *s = suite_new();
        add_tile(s, "tile", tiles[i], PEAK_DEPTH)->hook = measure;
        peak_flops = 2.0 * tiles[i].rows * tiles[i].panels * tiles[i].lanes * PEAK_DEPTH;
        printf("%u x %u\n", tiles[i].rows, tiles[i].panels * tiles[i].lanes);
        suite_run(s);
        suite_free(s);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_registers), cmocka_unit_test(test_lanes)};
    const struct CMUnitTest peak[] = {cmocka_unit_test(test_peak)};
    if (argc > 1 && strcmp(argv[1], "--worker") == 0)
        return codegen_worker();
    if (argc > 1 && strcmp(argv[1], "--peak") == 0)
        return cmocka_run_group_tests(peak, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
