/* Passes on texts: every file tests/passes/PASS/NAME.txt names a module and the pass that runs on it (or the verifier),
 * and says what the pass decides.
 *
 *     ; what the test shows
 *     from modules/conv
 *     run plan-halos
 *     ----
 *     ...what the pass changes (tests/passes/delta.h), or the diagnostics...
 *
 * `from graphs/NAME OPTIONS` is a legal graph, on which the graph passes before this one run first. `from modules/NAME`
 * is a module that is kept: after `fuse`, for `fuse` itself (which makes its kernels anew) and the passes of layout
 * (those before this one run first); after `plan`, for `schedule` and the verifier. So a change of another phase
 * changes no test. Lines of - and + replace text of the module. Without `from` the module is after the line `run`.
 * `run schedule PREFIX...` shows those fields of the records alone, for the CPU below.
 *
 * BLESS=1 in the environment writes what comes out, BLESS=inputs first makes the files of graphs/ and modules/ anew:
 * a module begins with the line `from GRAPH OPTIONS to PASS` (docs/testing.md).
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
#include "tests/passes/delta.h"
#include "tests/text/text.h"

#define FOLDER "tests/passes"
#define RULER "----\n"
#define CPU "x86-64-v3"
enum { FILES_MOST = 1000, OTHERS = 2, PATH_MOST = 300, LIST_LEAST = 128 };

struct sample {
    const char *head; /* lines before `run` */
    const char *from, *options; /* of the line `from`; NULL: none */
    const char *pass, *fields;
    const char *in, *out;
};

/* ---- files ------------------------------------------------------------------------------------------------------- */

static char *read_whole(struct arena *arena, const char *path)
{
    FILE *f = fopen(path, "rb");
    char part[4096];
    struct strbuf text = strbuf_of(arena);
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

/* The rest of the line of the head that begins with a word; NULL: there is none. */
static const char *line_of(struct arena *arena, const char *head, const char *word)
{
    const char *p = strstr(head, arena_printf(arena, "\n%s ", word));
    p = p ? p + 2 + strlen(word) : NULL;
    return p ? arena_strndup(arena, p, strcspn(p, "\n")) : NULL;
}

static bool sample_read(struct arena *arena, const char *path, struct sample *s)
{
    const char *text = read_whole(arena, path), *ruler = text ? strstr(text, "\n" RULER) : NULL,
               *run = text ? strstr(text, "\nrun ") : NULL;
    const char *end = run ? strchr(run + 1, '\n') : NULL;
    if (!end)
        return false;
    *s = (struct sample){.head = arena_strndup(arena, text, (size_t)(run + 1 - text))};
    s->pass = line_of(arena, text, "run");
    s->from = line_of(arena, s->head, "from");
    s->in = ruler ? arena_strndup(arena, end + 1, (size_t)(ruler - end)) : "";
    s->out = ruler ? ruler + 1 + strlen(RULER) : "";
    if (strchr(s->pass, ' ')) {
        s->fields = strchr(s->pass, ' ') + 1;
        s->pass = arena_strndup(arena, s->pass, strcspn(s->pass, " "));
    }
    if (s->from && strchr(s->from, ' ')) {
        s->options = strchr(s->from, ' ') + 1;
        s->from = arena_strndup(arena, s->from, strcspn(s->from, " "));
    }
    return true;
}

/* ---- modules ----------------------------------------------------------------------------------------------------- */

/* Long bytes of constants that repeat are written once: hex"..." to their number of digits. */
static const char *shortened(struct arena *arena, const char *text)
{
    struct strbuf out = strbuf_of(arena);
    for (const char *p; (p = strstr(text, "hex\"")); text = p) {
        size_t n = strcspn(p += 4, "\""), period = 2;
        strbuf_append(&out, text, (size_t)(p - text));
        while (period < n && memcmp(p, p + period, n - period) != 0)
            period += 2;
        if (n >= LIST_LEAST && period <= n / 2)
            strbuf_printf(&out, "%.*s\" to %zu", (int)period, p, n);
        else
            strbuf_append(&out, p, n + 1);
        p += n + 1;
    }
    strbuf_printf(&out, "%s", text);
    return out.data;
}

static const char *lengthened(struct arena *arena, const char *text)
{
    struct strbuf out = strbuf_of(arena);
    for (const char *p; (p = strstr(text, "hex\"")); text = p) {
        size_t period = strcspn(p += 4, "\""), n = period;
        const char *end = p + period + 1;
        strbuf_append(&out, text, (size_t)(p - text));
        if (!strncmp(end, " to ", 4))
            n = strtoul(end + 4, (char **)(uintptr_t)&end, 10);
        for (size_t i = 0; i < n; i++)
            strbuf_append(&out, &p[i % period], 1);
        strbuf_printf(&out, "\"");
        p = end;
    }
    strbuf_printf(&out, "%s", text);
    return out.data;
}

static const char *path_of(struct arena *arena, const char *name)
{
    return arena_printf(arena, FOLDER "/%s.mcir", name);
}

/* The graph at the head of a text. */
static const char *graph_alone(struct arena *arena, const char *text)
{
    const char *end = strstr(text, "\nmodule ");
    return end ? arena_strndup(arena, text, (size_t)(end + 1 - text)) : text;
}

/* The text of a file of graphs/, modules/ or verify/; a line `graph FILE` is that file's graph. NULL: there is none. */
static const char *kept(struct arena *arena, const char *name)
{
    const char *text = read_whole(arena, path_of(arena, name));
    while (text && (*text == ';' || !strncmp(text, "from ", 5)))
        text += strcspn(text, "\n") + 1;
    if (!text || strncmp(text, "graph ", 6) != 0)
        return text ? lengthened(arena, text) : NULL;
    size_t n = strcspn(text, "\n");
    const char *of = kept(arena, arena_strndup(arena, text + 6, n - 6));
    return of ? arena_printf(arena, "%s%s", graph_alone(arena, of), text + n + 1) : NULL;
}

static struct compilation *compilation_of(struct context *ctx, const char *text)
{
    struct compilation *c = NEW(&ctx->session, struct compilation);
    struct options *o = NEW(&ctx->session, struct options);
    options_init(o);
    o->verify_each = true;
    o->march = CPU;
    *c = (struct compilation){.ctx = ctx, .options = o, .module = text ? module_parse(ctx, text) : NULL};
    c->graph = c->module ? c->module->g : NULL;
    return c->module ? c : NULL;
}

static const char *text_of(const struct compilation *c)
{
    struct strbuf out = strbuf_of(&c->ctx->session);
    module_print(c->module, &out, true);
    return out.data;
}

/* Runs the stages from one on up to, not including, another. */
static bool run_up_to(struct compilation *c, const char *first, const struct stage *end)
{
    struct stage_cost cost;
    for (const struct stage *stage = stage_find(first); stage < end; stage++)
        if (!stage_run(c, stage, &cost))
            return false;
    return true;
}

static struct compilation *of_graph(struct context *ctx, const char *name, const char *options)
{
    const char *graph = kept(&ctx->session, arena_printf(&ctx->session, "graphs/%s", name));
    return graph ? compilation_of(ctx, arena_printf(&ctx->session, "%smodule 1 %s\nfacts legal\n", graph, options))
                 : NULL;
}

/* The text of a module as `fuse` finds it. */
static const char *without_kernels(struct arena *arena, const char *text)
{
    struct strbuf out = strbuf_of(arena);
    for (size_t n; *text; text += n) {
        n = strcspn(text, "\n") + 1;
        if (!strncmp(text, "facts ", 6))
            strbuf_printf(&out, "facts legal results\n");
        else if (strncmp(text, "kernel ", 7) != 0 && strncmp(text, "value ", 6) != 0)
            strbuf_append(&out, text, n);
    }
    return out.data;
}

/* The lines of the head from p on that begin with a sign, joined; *p: the line after them. */
static const char *marked(struct arena *arena, const char **p, char sign)
{
    struct strbuf out = strbuf_of(arena);
    strbuf_append(&out, "", 0);
    for (; **p == sign; *p += strcspn(*p, "\n") + 1)
        strbuf_printf(&out, "%s%.*s", out.n ? "\n" : "", (int)strcspn(*p, "\n") - 2, *p + 2);
    return out.data ? out.data : "";
}

/* The text with what the lines - of the head say replaced by the lines + after them; NULL: there is no such text. */
static const char *edited(struct arena *arena, const char *text, const char *head)
{
    for (const char *p = head; *p;) {
        if (*p != '-') {
            p += strcspn(p, "\n") + 1;
            continue;
        }
        const char *old = marked(arena, &p, '-'), *new = marked(arena, &p, '+'), *at = strstr(text, old);
        if (!at)
            return NULL;
        text = arena_printf(arena, "%.*s%s%s", (int)(at - text), text, new, at + strlen(old));
    }
    return text;
}

/* What the pass runs on. */
static struct compilation *input_of(struct context *ctx, const struct sample *s)
{
    const struct stage *stage = stage_find(s->pass);
    if (!s->from)
        return compilation_of(ctx, s->in);
    if (s->options) {
        struct compilation *c = of_graph(ctx, s->from + strlen("graphs/"), s->options);
        return c && stage && run_up_to(c, "push-concats", stage) ? c : NULL;
    }
    const char *text = kept(&ctx->session, s->from);
    if (stage == stage_find("fuse") && text)
        text = without_kernels(&ctx->session, text);
    text = text ? edited(&ctx->session, text, s->head) : NULL;
    struct compilation *c = compilation_of(ctx, text);
    bool layout = c && stage && (c->module->facts & HAS_KERNELS) && !(c->module->facts & HAS_PLACES);
    return c && (!layout || run_up_to(c, "place-ports", stage)) ? c : NULL;
}

/* ---- the files of graphs/ and modules/ anew ------------------------------------------------------------------------
 */

static void say(const struct context *ctx, struct strbuf *out)
{
    for (uint32_t i = 0; i < ctx->diags.n; i++)
        strbuf_printf(out, "error: %s\n", ctx->diags.data[i].text);
}

/* The graph, swept, behind the comment. */
static bool remake_graph(struct context *ctx, const char *name)
{
    struct arena *arena = &ctx->session;
    const char *path = path_of(arena, arena_printf(arena, "graphs/%s", name)), *text = read_whole(arena, path);
    struct compilation *c = of_graph(ctx, name, "level 2 layout auto winograd 6");
    if (!c)
        return false;
    graph_sweep(c->graph);
    write_whole(path, arena_printf(arena, "%.*s%s", (int)(strstr(text, "mcir 1") - text), text,
                                   shortened(arena, graph_alone(arena, text_of(c)))));
    return true;
}

/* What the stages up to the pass make of the module's graph. The graph is not repeated: NAME_SUFFIX takes that of NAME
 * if it is the same, others that of graphs/. */
static bool remake_module(struct context *ctx, const char *name)
{
    struct arena *arena = &ctx->session;
    const char *path = path_of(arena, arena_printf(arena, "modules/%s", name)), *text = read_whole(arena, path);
    const char *head = text ? line_of(arena, arena_printf(arena, "\n%s", text), "from") : NULL,
               *to = head ? strstr(head, " to ") : NULL;
    if (!to || !stage_find(to + 4))
        return false;
    const char *from = arena_strndup(arena, head, strcspn(head, " ")), *options = head + strlen(from) + 1;
    struct compilation *c = of_graph(ctx, from, arena_strndup(arena, options, (size_t)(to - options)));
    if (!c || !run_up_to(c, "push-concats", stage_find(to + 4) + 1))
        return false;
    const char *now = text_of(c), *graph = graph_alone(arena, now), *stem = strrchr(name, '_');
    const char *const others[] = {arena_printf(arena, "modules/%.*s", stem ? (int)(stem - name) : 0, name),
                                  arena_printf(arena, "graphs/%s", from)};
    for (size_t i = 0; i < COUNT_OF(others); i++)
        if ((text = kept(arena, others[i])) && !strcmp(graph, graph_alone(arena, text))) {
            write_whole(path, arena_printf(arena, "from %s\ngraph %s\n%s", head, others[i], now + strlen(graph)));
            return true;
        }
    write_whole(path, arena_printf(arena, "from %s\n%s", head, shortened(arena, now)));
    return true;
}

static bool ends_in(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n > m && !strcmp(name + n - m, end);
}

static void remake(const char *folder, bool (*one)(struct context *, const char *))
{
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        struct context *ctx = context_new();
        jmp_buf here;
        volatile bool done = !ends_in(e->d_name, ".mcir");
        struct strbuf out = strbuf_of(&ctx->session);
        ctx->unwind = &here;
        if (setjmp(here) == 0)
            done = done || one(ctx, arena_strndup(&ctx->session, e->d_name, strlen(e->d_name) - strlen(".mcir")));
        say(ctx, &out);
        if (!done)
            print_error("%s/%s is not made: %s\n", folder, e->d_name, out.n ? out.data : "no graph\n");
        context_free(ctx);
    }
    if (dir)
        closedir(dir);
}

/* ---- one test ---------------------------------------------------------------------------------------------------- */

static void run(struct context *ctx, const struct sample *s, struct strbuf *out)
{
    struct stage_cost cost;
    struct compilation *c = input_of(ctx, s);
    const struct stage *stage = stage_find(s->pass);
    const char *before = c ? text_of(c) : NULL;
    bool verify = !strcmp(s->pass, "verify");
    if (!c || (!stage && !verify) || (verify ? !module_verify(c->module) : !stage_run(c, stage, &cost))) {
        if (!ctx->diags.n)
            strbuf_printf(out, "error: no pass '%s', no file or no such line\n", s->pass);
        say(ctx, out);
        return;
    }
    if (stage == stage_find("schedule")) {
        fields_print(c->module, s->fields, out);
        return;
    }
    struct read_back again = {.like = ctx};
    read_back(&again, text_of(c));
    strbuf_printf(out, "%s", again.why);
    delta_print(out->arena, before, text_of(c), out);
}

static void test_file(void **state)
{
    const char *path = *state, *bless = getenv("BLESS");
    struct context *ctx = context_new();
    struct sample s;
    jmp_buf here;
    struct strbuf out = strbuf_of(&ctx->session);
    strbuf_append(&out, "", 0);
    ctx->unwind = &here;
    if (setjmp(here) == 0) {
        if (!sample_read(&ctx->session, path, &s))
            fail_msg("%s is no test", path);
        run(ctx, &s, &out);
    } else {
        say(ctx, &out);
    }
    const char *now = out.n ? out.data : "";
    if (bless && *bless) {
        write_whole(path, arena_printf(&ctx->session, "%srun %s%s%s\n%s" RULER "%s", s.head, s.pass,
                                       s.fields ? " " : "", s.fields ? s.fields : "", s.in, now));
    } else if (strcmp(now, s.out) != 0) {
        print_message("%s (BLESS=1 takes it): ---- what comes out\n%s", path, now);
        fail();
    }
    context_free(ctx);
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static char paths[FILES_MOST][PATH_MOST];
static struct CMUnitTest tests[FILES_MOST + OTHERS];
static uint32_t n_tests;

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
        struct compilation *c = input_of(ctx, &s);
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
    const char *bless = getenv("BLESS");
    if (bless && !strcmp(bless, "inputs")) {
        remake(FOLDER "/graphs", remake_graph);
        remake(FOLDER "/modules", remake_module);
    }
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
