/* Passes on texts: every file tests/passes/PASS/NAME.txt is a module, the pass that runs on it (or the verifier), and
 * what comes out.
 *
 *     ; what the test shows
 *     from conv level 2 layout auto winograd 6 attention      (where the module is from:
 * tests/passes/graphs/conv.mcir) run fuse
 *     ...the module...
 *     ----
 *     ...what came out...
 *
 * What comes out is the new module where the pass has changed the graph, else the lines that have gone (-) and come
 * (+), or the diagnostics; behind `schedule` the records, for the CPU below.
 *
 * BLESS=1 in the environment writes it anew, BLESS=inputs the modules of tests with a line
 * `from` too (docs/testing.md).
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/library/compile/compile.h"
#include "ir/base/file.h"
#include "passes/schedule/schedule.h"

#define FOLDER "tests/passes"
#define RULER "----\n"
#define CPU "x86-64-v3"
enum { FILES_MOST = 1000, OTHERS = 2, PATH_MOST = 300, LINES_MOST = 4000 };

struct sample {
    const char *head; /* lines before `run` */
    const char *from, *options; /* of the line `from`; NULL: none */
    const char *pass;
    const char *in, *out;
};

/* ---- files ------------------------------------------------------------------------------------------------------- */

static char *read_whole(struct arena *arena, const char *path)
{
    FILE *f = fopen(path, "rb");
    struct strbuf text;
    char part[4096];
    strbuf_init(&text, arena);
    strbuf_append(&text, "", 0);
    for (size_t n; f && (n = fread(part, 1, sizeof part, f)) > 0;)
        strbuf_append(&text, part, n);
    if (f)
        fclose(f);
    return f && text.n ? text.data : NULL;
}

static void write_whole(const char *path, const char *text)
{
    FILE *f = fopen(path, "wb");
    if (!f || fputs(text, f) < 0)
        fail_msg("cannot write %s", path);
    if (f)
        fclose(f);
}

static bool sample_read(struct arena *arena, const char *path, struct sample *s)
{
    const char *text = read_whole(arena, path), *run = text ? strstr(text, "\nrun ") : NULL,
               *end = run ? strchr(run + 1, '\n') : NULL;
    if (!end)
        return false;
    const char *ruler = strstr(end, "\n" RULER), *from = strstr(text, "\nfrom ");
    *s = (struct sample){.head = arena_strndup(arena, text, (size_t)(run + 1 - text)),
                         .pass = arena_strndup(arena, run + 5, (size_t)(end - run - 5))};
    s->in = ruler ? arena_strndup(arena, end + 1, (size_t)(ruler - end)) : "";
    s->out = ruler ? ruler + 1 + strlen(RULER) : "";
    if (from && from < run) {
        from += strlen("\nfrom ");
        s->from = arena_strndup(arena, from, strcspn(from, " "));
        from += strcspn(from, " ");
        s->options = arena_strndup(arena, from, strcspn(from, "\n"));
    }
    return true;
}

/* ---- modules ----------------------------------------------------------------------------------------------------- */

static struct compilation *compilation_of(struct context *ctx, const char *text)
{
    struct compilation *c = NEW(&ctx->session, struct compilation);
    struct options *o = NEW(&ctx->session, struct options);
    options_init(o);
    o->verify_each = true;
    o->march = CPU;
    *c = (struct compilation){.ctx = ctx, .options = o, .module = module_parse(ctx, text)};
    c->graph = c->module ? c->module->g : NULL;
    return c->module ? c : NULL;
}

static const char *text_of(const struct compilation *c)
{
    struct strbuf out;
    strbuf_init(&out, &c->ctx->session);
    module_print(c->module, &out, true);
    return out.data;
}

/* The module that the stages before the pass make of the graph; all passes, for the verifier. */
static const char *make_input(struct context *ctx, const struct sample *s)
{
    const char *graph = read_whole(&ctx->session, arena_printf(&ctx->session, FOLDER "/graphs/%s.mcir", s->from));
    struct stage_cost cost;
    if (!graph)
        return NULL;
    struct compilation *c = compilation_of(
        ctx, arena_printf(&ctx->session, "%smodule 1%s\nfacts legal\n", graph, s->options));
    if (c)
        graph_sweep(c->graph);
    const char *end = stage_find(s->pass) ? s->pass : "sizes";
    for (const struct stage *stage = stage_find("push-concats"); c && strcmp(stage->name, end) != 0; stage++)
        if (!stage_run(c, stage, &cost))
            return NULL;
    return c ? text_of(c) : NULL;
}

/* ---- what has changed -------------------------------------------------------------------------------------------- */

struct lines {
    const char *line[LINES_MOST];
    uint32_t n;
};
static void split(struct arena *arena, const char *text, struct lines *out)
{
    for (out->n = 0; *text && out->n < LINES_MOST; text += *text == '\n') {
        out->line[out->n++] = arena_strndup(arena, text, strcspn(text, "\n"));
        text += strcspn(text, "\n");
    }
}

/* The lines that a longest common part of both does not have. */
static void difference(struct arena *arena, const char *was, const char *now, struct strbuf *out)
{
    struct lines *a = NEW(arena, struct lines), *b = NEW(arena, struct lines);
    split(arena, was, a);
    split(arena, now, b);
    uint32_t w = b->n + 1, *same = NEW_ARRAY(arena, uint32_t, (size_t)(a->n + 1) * w), i = 0, j = 0;
    for (uint32_t x = a->n; x-- > 0;)
        for (uint32_t y = b->n; y-- > 0;)
            same[x * w + y] = !strcmp(a->line[x], b->line[y])                ? same[(x + 1) * w + y + 1] + 1
                              : same[(x + 1) * w + y] >= same[x * w + y + 1] ? same[(x + 1) * w + y]
                                                                             : same[x * w + y + 1];
    while (i < a->n || j < b->n) {
        if (i < a->n && j < b->n && !strcmp(a->line[i], b->line[j])) {
            i++;
            j++;
        } else if (j >= b->n || (i < a->n && same[(i + 1) * w + j] >= same[i * w + j + 1])) {
            strbuf_printf(out, "- %s\n", a->line[i++]);
        } else {
            strbuf_printf(out, "+ %s\n", b->line[j++]);
        }
    }
}

static size_t graph_length(const char *text)
{
    const char *end = strstr(text, "\nmodule ");
    return end ? (size_t)(end - text) : strlen(text);
}

static void say(const struct context *ctx, struct strbuf *out)
{
    for (uint32_t i = 0; i < ctx->diags.n; i++)
        strbuf_printf(out, "error: %s\n", ctx->diags.data[i].text);
}

/* ---- one test ---------------------------------------------------------------------------------------------------- */

static void run(struct context *ctx, const struct sample *s, struct strbuf *out)
{
    struct stage_cost cost;
    struct compilation *c = compilation_of(ctx, s->in);
    const struct stage *stage = stage_find(s->pass);
    bool verify = !strcmp(s->pass, "verify");
    if (!c || (!stage && !verify) || (verify ? !module_verify(c->module) : !stage_run(c, stage, &cost))) {
        if (!stage && !verify)
            strbuf_printf(out, "error: no pass '%s'\n", s->pass);
        say(ctx, out);
        return;
    }
    if (stage == stage_find("schedule")) {
        schedules_print(c->module, out);
        return;
    }
    const char *text = text_of(c);
    size_t n = graph_length(text);
    if (n == graph_length(s->in) && !memcmp(text, s->in, n))
        difference(out->arena, s->in, text, out);
    else
        strbuf_printf(out, "%s", text);
}

static void test_file(void **state)
{
    const char *path = *state, *bless = getenv("BLESS");
    struct context *ctx = context_new(), *other = context_new();
    struct sample s;
    struct strbuf out, whole;
    jmp_buf here;
    strbuf_init(&out, &ctx->session);
    strbuf_init(&whole, &ctx->session);
    strbuf_append(&out, "", 0);
    ctx->unwind = other->unwind = &here;
    if (setjmp(here) == 0) {
        if (!sample_read(&ctx->session, path, &s))
            fail_msg("%s is no test", path);
        if (bless && !strcmp(bless, "inputs") && s.from) {
            s.in = make_input(other, &s);
            if (!s.in)
                fail_msg("%s: %s", path, other->diags.n ? other->diags.data[0].text : "no graph");
        }
        run(ctx, &s, &out);
    } else {
        say(ctx, &out);
    }
    if (bless && *bless) {
        strbuf_printf(&whole, "%srun %s\n%s" RULER "%s", s.head, s.pass, s.in, out.n ? out.data : "");
        write_whole(path, whole.data);
    } else if (strcmp(out.n ? out.data : "", s.out) != 0) {
        print_message("%s (BLESS=1 takes it): ---- what comes out\n%s", path, out.n ? out.data : "");
        fail();
    }
    context_free(other);
    context_free(ctx);
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static char paths[FILES_MOST][PATH_MOST];
static struct CMUnitTest tests[FILES_MOST + OTHERS];
static uint32_t n_tests;

static bool ends_in(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n > m && !strcmp(name + n - m, end);
}

static void find_files(const char *folder)
{
    char path[PATH_MOST];
    snprintf(path, sizeof path, FOLDER "/%.80s", folder);
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir)) && n_tests < FILES_MOST;) {
        if (!ends_in(e->d_name, ".txt"))
            continue;
        snprintf(paths[n_tests], PATH_MOST, "%.120s/%.120s", path, e->d_name);
        tests[n_tests] = (struct CMUnitTest){
            .name = paths[n_tests] + strlen(FOLDER) + 1, .test_func = test_file, .initial_state = paths[n_tests]};
        n_tests++;
    }
    if (dir)
        closedir(dir);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct CMUnitTest *)a)->name, ((const struct CMUnitTest *)b)->name);
}

/* What the text cannot say, since it follows from the rest: number 9. */
static void test_kernel_of(void **state)
{
    (void)state;
    struct context *ctx = context_new();
    struct sample s = {0};
    jmp_buf here;
    ctx->unwind = &here;
    bool found = false;
    if (setjmp(here) == 0) {
        assert_true(sample_read(&ctx->session, FOLDER "/place-ports/attention.txt", &s));
        struct compilation *c = compilation_of(ctx, s.in);
        struct kernel *k = &c->module->fused.kernels.data[0];
        assert_true(module_verify(c->module));
        c->module->fused.kernel_of[k->anchor.i] = 0;
        assert_false(module_verify(c->module));
        assert_int_equal(ctx->diags.n, 1);
        found = strstr(ctx->diags.data[0].text, "module invariant 9:");
    }
    assert_true(found);
    context_free(ctx);
}

/* Every pass has three. */
static void test_all_passes_are_there(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < stage_count; i++) {
        uint32_t n = 0;
        for (uint32_t k = 0; k < n_tests; k++) {
            size_t length = strlen(stage_table[i].name);
            n += tests[k].name && !strncmp(tests[k].name, stage_table[i].name, length) && tests[k].name[length] == '/';
        }
        if (stage_table[i].pass && n < 3)
            fail_msg("%s has %u texts", stage_table[i].name, n);
    }
}

int main(void)
{
    DIR *dir = opendir(FOLDER);
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (e->d_name[0] != '.' && (stage_find(e->d_name) || !strcmp(e->d_name, "verify")))
            find_files(e->d_name);
    if (dir)
        closedir(dir);
    qsort(tests, n_tests, sizeof *tests, by_name);
    tests[n_tests++] = (struct CMUnitTest)cmocka_unit_test(test_all_passes_are_there);
    tests[n_tests++] = (struct CMUnitTest)cmocka_unit_test(test_kernel_of);
    return _cmocka_run_group_tests("passes", tests, n_tests, NULL, NULL);
}
