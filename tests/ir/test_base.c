/* Arenas, text, diagnostics: what is recorded, counted and shown of hostile names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <unistd.h>

#include "ir/base/file.h"
#include "ir/base/scan.h"
#include "ir/expr/expr.h"

static const char *shown(struct context *ctx, uint32_t i)
{
    struct strbuf b = strbuf_of(&ctx->session);
    assert_true(i < ctx->diags.n);
    diag_render(ctx, &ctx->diags.data[i], &b);
    return b.data;
}

static void arenas(void **state)
{
    (void)state;
    struct context *ctx = context_new();
    int64_t before = ctx->heap_used;
    struct arena a;
    arena_init(&a, ctx);
    for (size_t size = 0; size < 100000; size = size * 2 + 1) {
        unsigned char *p = arena_alloc(&a, size);
        assert_int_equal((uintptr_t)p % 16, 0);
        for (size_t i = 0; i < size; i++)
            assert_int_equal(p[i], 0);
        memset(p, 0xff, size);
    }
    assert_true(ctx->heap_used > before);
    arena_release(&a);
    assert_int_equal(ctx->heap_used, before);
    VEC(uint32_t) v = {0};
    for (uint32_t i = 0; i < 10000; i++)
        VEC_PUSH(&a, &v, i);
    for (uint32_t i = 0; i < v.n; i++)
        assert_int_equal(v.data[i], i);
    assert_string_equal(arena_strndup(&a, NULL, 0), ""); /* an empty string of a file has no bytes */
    context_free(ctx);   /* the arena's blocks too */
}

static void huge_array(void **state)
{
    (void)state;
    struct context *ctx = context_new();
    jmp_buf point;
    if (!setjmp(point)) {
        ctx->unwind = &point;
        arena_alloc_array(&ctx->session, SIZE_MAX / 2, 3);
        fail();
    }
    assert_int_equal(ctx->fail, FAIL_LIMIT);
    context_free(ctx);
}

struct guarded {
    struct context *ctx;
    bool fails, outcome;
    int ran, ended;
};

static bool guarded_run(void *user)
{
    struct guarded *g = user;
    g->ran++;
    if (g->fails)
        context_unwind(g->ctx, FAIL_LIMIT, (src_id){0}, "too much");
    return g->outcome;
}

static void guarded_end(void *user)
{
    ((struct guarded *)user)->ended++;
}

static void guarding(void **state)
{
    (void)state;
    struct guarded *g = test_calloc(1, sizeof *g);
    jmp_buf point;
    g->ctx = context_new();
    g->ctx->unwind = &point;
    assert_false(run_guarded(g->ctx, guarded_run, guarded_end, g));
    g->outcome = true;
    assert_true(run_guarded(g->ctx, guarded_run, guarded_end, g));
    assert_int_equal(g->ended, 2);
    g->fails = true;
    if (!setjmp(point)) {
        run_guarded(g->ctx, guarded_run, guarded_end, g);
        fail_msg("the unwinding did not go on");
    }
    assert_int_equal(g->ran, 3);
    assert_int_equal(g->ended, 3);
    assert_ptr_equal(g->ctx->unwind, &point);
    context_free(g->ctx);
    test_free(g);
}

static void rendering(void **state)
{
    (void)state;
    struct context *ctx = context_new();
    ctx->model_path = "dir/net.onnx";
    src_id named = source_add(
        ctx, (struct source){.name = "conv1", .op = "Conv", .domain = "", .version = 11, .output = "y"});
    src_id bare = source_add(ctx, (struct source){.name = "", .op = "Foo", .domain = "com.x", .output = "y"});
    error_model(ctx, named, "stride %d", 0);
    error_at(ctx, FAIL_LIMIT, (src_id){0}, "w", "too large");
    warn_at(ctx, bare, "growth", "grows %s", "much");
    remark_at(ctx, named, "if", "gone");
    error_internal(ctx, (src_id){0}, "oops");
    assert_string_equal(shown(ctx, 0), "dir/net.onnx: node 'conv1' (Conv-11): error: stride 0");
    assert_string_equal(shown(ctx, 1), "dir/net.onnx: tensor 'w': error: too large");
    assert_string_equal(shown(ctx, 2), "dir/net.onnx: node -> 'y' (com.x.Foo): warning: grows much [-Wgrowth]");
    assert_string_equal(shown(ctx, 3), "dir/net.onnx: node 'conv1' (Conv-11): remark: gone [-Rif]");
    assert_string_equal(shown(ctx, 4), "dir/net.onnx: internal error: oops");
    assert_int_equal(ctx->fail, FAIL_MODEL);
    assert_int_equal(ctx->n_errors, 3);
    context_free(ctx);
}

static void counting(void **state)
{
    (void)state;
    struct context *ctx = context_new();
    for (int i = 0; i < 3; i++)
        error_model(ctx, (src_id){0}, "the same");
    for (int i = 0; i < 50; i++)
        error_model(ctx, (src_id){0}, "number %d", i);
    assert_int_equal(ctx->diags.n, 21);
    assert_int_equal(ctx->n_errors, 53);
    assert_string_equal(shown(ctx, 0), "error: the same (3 times)");
    assert_string_equal(shown(ctx, 1), "error: number 0");
    assert_string_equal(shown(ctx, 20), "error: number 19 (and 30 more of this kind)");
    context_free(ctx);
}

static void hostile_names(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } rows[] = {
        {"a\nb\x1b[31m\x7f", "a\\x0ab\\x1b[31m\\x7f"},
        {"\xff\xc0\x80", "\\xff\\xc0\\x80"},
        {"\xe2\x80\xae"
         "txt.exe",
         "\\xe2\\x80\\xae"
         "txt.exe"},
        {"gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f"},
        {"\xed\xa0\x80 \xf4\x90\x80\x80 \xc2\x85", "\\xed\\xa0\\x80 \\xf4\\x90\\x80\\x80 \\xc2\\x85"},
        {"cut \xe2\x82", "cut \\xe2\\x82"},
    };
    struct context *ctx = context_new();
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct strbuf b = strbuf_of(&ctx->session);
        strbuf_escaped(&b, rows[i].in, 200);
        assert_string_equal(b.data, rows[i].out);
        error_model(ctx, (src_id){0}, "%s", rows[i].in);
        assert_string_equal(ctx->diags.data[i].text, rows[i].out);
    }
    context_free(ctx);
}

static void long_lines(void **state)
{
    (void)state;
    struct context *ctx = context_new();
    char *name = malloc(100001);
    memset(name, '\x01', 100000);
    name[100000] = 0;
    ctx->model_path = name;
    src_id src = source_add(ctx,
                            (struct source){.name = name, .op = name, .domain = name, .version = 3, .output = name});
    error_at(ctx, FAIL_MODEL, src, name, "%s", name);
    assert_true(strlen(shown(ctx, 0)) < 1000);
    assert_null(strchr(shown(ctx, 0), '\x01'));
    free(name);
    context_free(ctx);
}

static void quoting(void **state)
{
    (void)state;
    static const char *const rows[] = {"", "plain", "a\"b\\c\nd", "\x01\xff", "gr\xc3\xbcn", "\\x41", "\xe2\x80\xae"};
    struct context *ctx = context_new();
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct strbuf b = strbuf_of(&ctx->session);
        strbuf_quoted(&b, rows[i]);
        struct scan s = {b.data, b.data, "", 0};
        const char *text;
        size_t n;
        assert_null(scan_quoted(&s, &ctx->session, &text, &n));
        assert_string_equal(text, rows[i]);
        assert_int_equal(n, strlen(rows[i]));
        assert_ptr_equal(s.p, b.data + b.n);
    }
    context_free(ctx);
}

static void scanning(void **state)
{
    (void)state;
    static const char text[] = "  take takes # take\n -9223372036854775808 9223372036854775808 07 <=";
    struct scan s = {text, text, " \n", '#'};
    int64_t n = 0;
    uint32_t small = 0;
    assert_false(scan_take(&s, "tak"));
    assert_true(scan_take(&s, "take"));
    assert_false(scan_take(&s, "take"));
    assert_int_equal(scan_word(&s), 5);
    assert_string_equal(scan_i64(&s, &n), "expected an integer");
    s.p += scan_word(&s);
    assert_int_equal(scan_line(&s), 1);
    assert_null(scan_i64(&s, &n));
    assert_true(n == INT64_MIN);
    assert_int_equal(scan_line(&s), 2);
    assert_string_equal(scan_i64(&s, &n), "integer out of range");
    assert_true(scan_take(&s, "9223372036854775808"));
    assert_string_equal(scan_u32(&s, 6, &small), "integer out of range");
    assert_null(scan_u32(&s, 7, &small));
    assert_int_equal(small, 7);
    assert_true(scan_take(&s, "<") && scan_take(&s, "=") && !scan_take(&s, "="));
    assert_int_equal(scan_word(&s), 0);
}

/* Two threads read it, piece by piece: every piece is at its place, the last and short one, too. */
static void big_file(void **state)
{
    (void)state;
    enum { SIZE = (101 << 20) + 12345, STEP = 99991 };
    struct context *ctx = context_new();
    struct file_bytes file;
    char *path = arena_printf(&ctx->session, "%s/mcc-test-XXXXXX", temp_folder());
    int fd = mkstemp(path);
    assert_true(fd >= 0 && ftruncate(fd, SIZE) == 0);
    for (uint32_t at = 0; at + sizeof at <= SIZE; at += STEP)
        assert_int_equal(pwrite(fd, &at, sizeof at, at), sizeof at);
    assert_int_equal(pwrite(fd, "z", 1, SIZE - 1), 1);
    assert_int_equal(file_whole(ctx, path, SIZE - 1, &file), FILE_LARGE);
    assert_int_equal(file_whole(ctx, path, SIZE, &file), FILE_OK);
    assert_int_equal(file.size, SIZE);
    for (uint32_t at = 0, found; at + sizeof at <= SIZE; at += STEP) {
        memcpy(&found, file.data + at, sizeof found);
        assert_int_equal(found, at);
    }
    assert_int_equal(file.data[SIZE - 1], 'z');
    assert_int_equal(file.data[SIZE], 0);
    close(fd);
    unlink(path);
    context_free(ctx);
}

static double thread_seconds(void)
{
    struct timespec t;
    assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t), 0);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void burn(double seconds)
{
    for (double end = thread_seconds() + seconds; thread_seconds() < end;)
        continue;
}

/* Says and does the same as missing memory, and counts from its beginning to its end. */
static void processor_time(void **state)
{
    (void)state;
    struct context *ctx = context_new();
    jmp_buf point;
    volatile int unwound = 0;
    ctx->unwind = &point;
    ctx->limits.compile_time = 0.25;
    burn(0.3);
    time_begin(ctx);
    assert_false(time_is_over(ctx));
    ctx->time.workers = 0.2;
    assert_false(time_is_over(ctx));
    assert_true(time_left(ctx) < 0.05);
    burn(0.06);
    assert_null(ctx->diags.n ? ctx->diags.data : NULL);
    if (setjmp(point))
        unwound++;
    for (int i = 0; i < 1000 && unwound == 0; i++)
        arena_alloc(&ctx->session, 1);
    for (int i = 0; i < 1000 && unwound == 1; i++)
        time_spend(ctx, TIME_WORK / 100);
    assert_int_equal(unwound, 2);
    void *p = &point;
    for (int i = 0; i < 1000 && p; i++)
        p = arena_try(&ctx->session, 1);
    assert_null(p);
    assert_true(time_is_over(ctx));
    assert_int_equal(ctx->fail, FAIL_LIMIT);
    assert_int_equal(ctx->n_errors, 1);
    assert_string_equal(shown(ctx, 0),
                        "error: compiling took more than 0.25 s of processor time (--limit-compile-time)");
    time_end(ctx);
    assert_false(time_is_over(ctx));
    ctx->limits.compile_time = 0;
    time_begin(ctx);
    ctx->time.workers = 1e9;
    assert_false(time_is_over(ctx));
    context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arenas),   cmocka_unit_test(huge_array),     cmocka_unit_test(rendering),
        cmocka_unit_test(counting), cmocka_unit_test(hostile_names),  cmocka_unit_test(long_lines),
        cmocka_unit_test(quoting),  cmocka_unit_test(scanning),       cmocka_unit_test(guarding),
        cmocka_unit_test(big_file), cmocka_unit_test(processor_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
