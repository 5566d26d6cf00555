/* Random legal graphs: the reference interpreter, the loops that the passes emit for any level, layout and machine, and
 * the compiled artifact agree, at several extents of symbolic dims, for every CPU variant and with several threads.
 * Exact values are compared bit by bit, rounded ones within what their operators allow.
 *
 *   test_graphs                       what `make check` runs: some hundred graphs
 *   test_graphs N SEED [--native]     graphs SEED .. SEED + N - 1
 *   test_graphs --show SEED [OPS [OUTPUT [--native]]]   one graph, its kernels and what is wrong with it
 *
 * Each graph runs in a process of its own, so that a crash is a finding like any other. A failing one is cut to its
 * first steps and to one output before it is printed.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/library/options/cpu.h"
#include "codegen/codegen.h"
#include "tests/fuzz/ways.h"

enum { PASSED, FAILED, EMPTY, CRASHED };
#if defined(__SANITIZE_ADDRESS__)
enum { LOOPS = 80, NATIVE = 8 }; /* graphs of one run of the test: several times as slow */
#else
enum { LOOPS = 500, NATIVE = 40 };
#endif
enum { SECONDS = 60, ALL = 1000, MOST_STEPS = 30 };

struct subject {
    uint64_t seed;
    uint32_t n_ops, only;
    bool native, show, verbose, crashes;
};

/* ---- comparison -------------------------------------------------------------------------------------------------- */

static bool same_element(const struct drawn *v, enum elem e, const char *want, const char *have)
{
    if (!strchr("F", elem_class(e)))
        return memcmp(want, have, elem_size(e)) == 0;
    double x = elem_to_f64(e, want), y = elem_to_f64(e, have);
    if (isnan(x) || isinf(x))
        return isnan(x) ? isnan(y) : x == y;
    return x == y || fabs(x - y) <= 4 * v->err;
}

static bool same_tensor(const struct drawn *v, const struct tensor *want, const struct tensor *have, struct strbuf *why)
{
    bool ok = want->elem == have->elem && want->rank == have->rank;
    for (int32_t i = 0; ok && i < want->rank; i++)
        ok = want->dims[i] == have->dims[i];
    if (!ok) {
        strbuf_printf(why, "the shape is wrong");
        return false;
    }
    uint32_t size = elem_size(want->elem);
    for (int64_t i = 0; i < tensor_count(want); i++) {
        const char *x = (const char *)want->data + i * size, *y = (const char *)have->data + i * size;
        if (same_element(v, want->elem, x, y))
            continue;
        strbuf_printf(why, "element %lld is %.9g, expected %.9g (allowed error %.3g)", (long long)i,
                      elem_to_f64(want->elem, y), elem_to_f64(want->elem, x), 4 * v->err);
        return false;
    }
    return true;
}

/* ---- one way ----------------------------------------------------------------------------------------------------- */

/* Vectors of 64, 32 and 16 bytes. */
static struct machine machine_of(uint64_t k)
{
    static const char *const names[] = {"x86-64-v4", "x86-64-v3", "x86-64-v2"};
    return target_find(names[k % COUNT_OF(names)])->machine;
}

struct expected {
    enum eval_status status;
    struct tensor *out;
    const char *text;
};

/* One size; EMPTY when the reference fails there, and then anything may have come out but a wrong result. */
static int compare_size(struct draw *d, const struct expected *want, bool ran, const struct tensor *have,
                        struct strbuf *why)
{
    if (want->status != EVAL_OK)
        return EMPTY;
    if (!ran)
        return FAILED;
    for (uint32_t k = 0; k < d->g->outputs.n; k++)
        if (!same_tensor(&d->output[k], &want->out[k], &have[k], why)) {
            strbuf_printf(why, ", of output %u (%%%u)", k, d->output[k].v.i);
            return FAILED;
        }
    return PASSED;
}

static const char *artifact_path(struct arena *arena)
{
    char self[400];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = 0;
    return arena_printf(arena, "%s.%ld.so", self, (long)getpid());
}

/* May the reference fail so at size i? The first one has the largest extents, for which all indices hold; others may
 * leave an axis nothing to index, or a size 64 bits. */
static bool may_fail(const struct expected *want, uint32_t i)
{
    return want->status == EVAL_SHAPE ||
           (i && want->status == EVAL_VALUE &&
            (strstr(want->text, "is outside of [-0, 0)") || strstr(want->text, "overflows or divides by zero")));
}

/* The reference runs first: the passes add to the graph. */
static int compare(struct draw *d, const struct way *w, struct strbuf *why)
{
    struct arena *arena = &d->ctx->session;
    int64_t size[DRAW_SIZES][DRAW_SYMBOLS] = {{0}};
    struct expected want[DRAW_SIZES];
    uint32_t n = d->n_symbols ? DRAW_SIZES : 1, n_out = d->g->outputs.n;
    struct tensor *have = NEW_ARRAY(arena, struct tensor, n_out + 1);
    int result = EMPTY;
    for (uint32_t i = 0; i < n; i++) {
        want[i] = (struct expected){.out = NEW_ARRAY(arena, struct tensor, n_out + 1), .text = ""};
        draw_extents(d, (int)i, size[i]);
        draw_bind(d, size[i]);
        want[i].status = graph_eval(d->g, d->inputs, want[i].out, arena, &want[i].text);
        if (want[i].status == EVAL_OK || may_fail(&want[i], i))
            continue;
        strbuf_printf(why, "reference: %s", want[i].text);
        return FAILED;
    }
    struct native *native = w->native ? native_make(d, w, artifact_path(arena), why) : NULL;
    struct loops *loops = w->native ? NULL : loops_make(d, w, why);
    if (!native && !loops)
        return FAILED;
    for (uint32_t i = 0; i < n && result != FAILED; i++) {
        if (native && want[i].status == EVAL_VALUE) /* an index outside: rules check it, what is drawn does not */
            continue;
        draw_bind(d, size[i]);
        uint32_t said = why->n;
        bool ran = native ? native_run(native, have) : loops_run(loops, have);
        int r = compare_size(d, &want[i], ran, have, why);
        if (r == FAILED)
            strbuf_printf(why, ", extents %lld %lld", (long long)size[i][0], (long long)size[i][1]);
        else if (want[i].status != EVAL_OK)
            why->n = said;
        if (r != EMPTY)
            result = r;
    }
    native_close(native);
    return result;
}

/* In a context of its own: the passes add to the graph. */
static int try_way(const struct subject *s, const struct way *w)
{
    struct context *ctx = context_new();
    jmp_buf unwind;
    volatile int result = EMPTY;
    if (!ctx)
        return EMPTY;
    struct strbuf why = strbuf_of(&ctx->session), graph = strbuf_of(&ctx->session);
    struct strbuf line = strbuf_of(&ctx->session);
    ctx->unwind = &unwind;
    if (setjmp(unwind) == 0) {
        struct draw *d = draw_graph(ctx, s->seed, s->n_ops, s->only);
        if (!d && s->show)
            diags_append(ctx, &why);
        if (d && graph_verify(d->g)) {
            if (s->show)
                graph_print(d->g, &graph, false);
            if (s->show && s->crashes) {
                printf("%s\n", graph.data);
                fflush(stdout);
                graph.n = 0;
            }
            d->verbose = s->verbose;
            result = compare(d, w, &why);
        }
    } else {
        diags_append(ctx, &why);
        result = strstr(why.data, "does not fit into 64 bits") ? EMPTY : FAILED;
    }
    if (s->show && (result == FAILED || (why.n && result == EMPTY))) {
        way_print(w, &line);
        printf("%s\n%s: %s\n", graph.n ? graph.data : "", line.data, why.data ? why.data : "");
        fflush(stdout);
    }
    context_free(ctx);
    return result;
}

/* One of the variants that this machine runs. */
static const char *variant_of(uint64_t seed)
{
    const char *runs[16];
    uint32_t n = 0;
    struct context *ctx = context_new();
    for (uint32_t i = 0; ctx && i < target_count && n < COUNT_OF(runs); i++)
        if (!strcmp(target_rows[i].arch, cpu_arch()) && cpu_runs(ctx, &target_rows[i]))
            runs[n++] = target_rows[i].name;
    context_free(ctx);
    return n ? runs[seed % n] : "native";
}

/* Some ways of all that there are, by seed. Native: one of the CPU variants that this machine runs. */
static int try_ways(const struct subject *s)
{
    uint64_t k = s->seed;
    struct way ways[3] = {
        {.level = 2, .layout = (enum layout_choice)(k % 4), .machine = machine_of(k / 4)},
        {.level = 2, .layout = (enum layout_choice)((k + 1 + k / 12 % 3) % 4), .machine = machine_of(k / 4 + 1)},
        {.level = (int)(k % 2), .layout = LAYOUT_AUTO, .machine = machine_of(k / 2)},
    };
    /* with dot products, tiles of registers */
    const char *cpus[] = {"x86-64-v4-amx", "neoverse-v1", "x86-64-v4-vnni"};
    if (k % 3 == 1)
        ways[0].cpu = cpus[k / 3 % COUNT_OF(cpus)];
    int result = EMPTY;
    uint32_t n = s->native ? 1 : k % 3 == 0 ? 3 : 2;
    for (uint32_t i = 0; i < n; i++) {
        ways[i].native = s->native;
        if (s->native) {
            ways[i].level = k % 5 == 0 ? 0 : k % 5 == 1 ? 3 : 2;
            ways[i].variant = variant_of(s->seed);
            ways[i].threads = 2 + (uint32_t)(k % 3);
        }
        int r = try_way(s, &ways[i]);
        if (r == FAILED)
            return FAILED;
        if (r == PASSED)
            result = PASSED;
    }
    return result;
}

/* ---- processes --------------------------------------------------------------------------------------------------- */

static int try_apart(const struct subject *s)
{
    int status;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(SECONDS);
        _exit(try_ways(s));
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return EMPTY;
    return WIFEXITED(status) ? WEXITSTATUS(status) : CRASHED;
}

static bool fails(int result)
{
    return result == FAILED || result == CRASHED;
}

static void report(struct subject s)
{
    for (uint32_t k = 1; k <= MOST_STEPS; k++) {
        s.n_ops = k;
        if (fails(try_apart(&s)))
            break;
    }
    for (uint32_t k = 0; k < 24; k++) {
        struct subject one = s;
        one.only = k;
        if (fails(try_apart(&one))) {
            s.only = k;
            break;
        }
    }
    s.crashes = try_apart(&s) == CRASHED;
    s.show = true;
    printf("\nseed %llu, %u steps, output %u:\n", (unsigned long long)s.seed, s.n_ops, s.only);
    if (try_apart(&s) == CRASHED)
        printf("crashed or ran for more than %d s\n", SECONDS);
}

/* Graphs seed .. seed + n - 1; how many fail. */
static uint32_t try_many(uint64_t n, uint64_t seed, bool native)
{
    uint32_t count[4] = {0};
    for (uint64_t i = 0; i < n; i++) {
        struct subject s = {.seed = seed + i, .only = ALL, .native = native};
        int r = try_apart(&s);
        count[r <= CRASHED ? r : CRASHED]++;
        if (fails(r))
            report(s);
    }
    printf("# %llu %s graphs: %u agree, %u differ, %u crash, %u empty\n", (unsigned long long)n,
           native ? "compiled" : "interpreted", count[PASSED], count[FAILED], count[CRASHED], count[EMPTY]);
    return count[FAILED] + count[CRASHED];
}

static void test_loops(void **state)
{
    (void)state;
    assert_int_equal(try_many(LOOPS, 1, false), 0);
}

static void test_native(void **state)
{
    (void)state;
    assert_int_equal(try_many(NATIVE, 1000, true), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_loops), cmocka_unit_test(test_native)};
    if (argc > 1 && strcmp(argv[1], "--worker") == 0)
        return codegen_worker();
    if (argc > 2 && strcmp(argv[1], "--show") == 0) {
        struct subject s = {strtoull(argv[2], NULL, 10),
                            argc > 3 ? (uint32_t)atoi(argv[3]) : 0,
                            argc > 4 ? (uint32_t)atoi(argv[4]) : ALL,
                            argc > 5,
                            true,
                            true,
                            true};
        return try_ways(&s);
    }
    if (argc > 2)
        return try_many(strtoull(argv[1], NULL, 10), strtoull(argv[2], NULL, 10),
                        argc > 3 && strcmp(argv[3], "--native") == 0) > 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
