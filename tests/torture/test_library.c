/* Each allocation and each system call that libmcc and a compiled network make fails once: there is an error of the
 * right class, or it was not needed; nothing is leaked, neither memory nor descriptors; and the object serves again.
 * Worker processes are test_torture.py's.
 */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/library/mccc.h"
#include "codegen/codegen.h"
#include "runtime/mcc_load.h"
#include "tests/torture/shim.h"

static char folder[] = "/tmp/mcc-torture-XXXXXX";
static char artifact[64];

#if !TORTURE_ABSENT

static const char *cache; /* NULL: none */

enum { LONGEST = 100000 };

static int descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

/* Runs `once` with the first, second, ... call failing until none fails; a status other than 0 is one of `allowed`. */
static void fail_each(enum torture_kind kind, int (*once)(void), const char *allowed)
{
    assert_int_equal(once(), 0);
    assert_int_equal(once(), 0); /* what libraries keep from a first use is there now */
    long calls, at = 1, live = torture_live(), failed = 0;
    int open = descriptors();
    do {
        torture_set(kind, at);
        int status = once();
        calls = torture_calls();
        torture_set(TORTURE_NONE, 0);
        failed += status != 0;
        if (status && !strchr(allowed, '0' + status))
            fail_msg("status %d when call %ld fails", status, at);
        if (torture_live() > live)
            assert_int_equal(once(), 0); /* what libraries keep until their next use (dlerror) goes now */
        if (torture_live() > live)
            fail_msg("%ld blocks leaked when call %ld fails (status %d)", torture_live() - live, at, status);
        if (descriptors() != open)
            fail_msg("%d descriptors instead of %d when call %ld fails (status %d)", descriptors(), open, at, status);
    } while (at++ <= calls && at < LONGEST);
    assert_true(failed > 0 && at < LONGEST);
    assert_int_equal(once(), 0);
    print_message("%ld calls\n", at - 2);
}

/* What is wrong is worth seeing where nothing was made to fail. */
static void say(void *user, int kind, const char *text, size_t size)
{
    (void)user;
    if (kind == MCCC_ERROR && torture_calls() == 0)
        print_error("%.*s", (int)size, text);
}

static void keep(void *user, int kind, const char *text, size_t size)
{
    if (kind == MCCC_ERROR)
        snprintf(user, 200, "%.*s", (int)size, text);
}

static int compile(const char *model, const char *level)
{
    mccc *c = mccc_new();
    int status = 4;
    if (!c)
        return status;
    mccc_on_message(c, say, NULL);
    status = mccc_set(c, "worker", "/proc/self/exe");
    status = status ? status : mccc_set(c, "march", "x86-64-v3");
    status = status ? status : mccc_set(c, "jobs", "1");
    status = status ? status : mccc_set(c, cache ? "cache" : "no-cache", cache);
    status = status ? status : mccc_set(c, "O", level);
    status = status ? status : mcc_compile(c, model, artifact);
    mccc_free(c);
    return status;
}

static int compile_once(void)
{
    return compile("examples/digits/digits.onnx", "0");
}

/* y = x exp(w): the weights are computed while they are written. */
static const char computed[] =
    "\010\010:}\012\013\012\001w\022\001t\042\003Exp\012\021\012\001x\012\001t\022\001y\042\006MatMul\022\000"
    "*/\010\003\010\003\020\001\042$\000\000\200?\000\000\000@\000\000@@\000\000\200@\000\000\240@\000\000"
    "\300@\000\000\340@\000\000\000A\000\000\020AB\001wZ\023\012\001x\022\016\012\014\010\001\022\010\012\002"
    "\010\001\012\002\010\003b\023\012\001y\022\016\012\014\010\001\022\010\012\002\010\001\012\002\010\003"
    "B\004\012\000\020\021";
static char computed_path[64];

static int compile_computed(void)
{
    return compile(computed_path, "2");
}

/* What the host did before does not count; the object serves after its limit was reached. */
static void test_compile_time(void **state)
{
    char text[200] = "";
    clock_t end = clock() + 22 * CLOCKS_PER_SEC / 10;
    mccc *c = mccc_new();
    (void)state;
    while (clock() < end)
        continue;
    assert_non_null(c);
    mccc_on_message(c, keep, text);
    assert_int_equal(mccc_set(c, "worker", "/proc/self/exe"), 0);
    assert_int_equal(mccc_set(c, "march", "x86-64-v3"), 0);
    assert_int_equal(mccc_set(c, "no-cache", NULL), 0);
    assert_int_equal(mccc_set(c, "limit-compile-time", "1e-3"), 0);
    assert_int_equal(mcc_compile(c, "examples/digits/digits.onnx", artifact), 4);
    assert_non_null(strstr(text, "compiling took more than 0.001 s of processor time (--limit-compile-time)"));
    assert_int_equal(access(artifact, F_OK), -1);
    assert_int_equal(mccc_set(c, "limit-compile-time", "2"), 0);
    assert_int_equal(mcc_compile(c, "examples/digits/digits.onnx", artifact), 0);
    mccc_free(c);
}

static void test_compile_memory(void **state)
{
    (void)state;
    fail_each(TORTURE_MEMORY, compile_once, "4");
}

static void test_compile_weights(void **state)
{
    (void)state;
    snprintf(computed_path, sizeof computed_path, "%s/net.onnx", folder);
    FILE *f = fopen(computed_path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(computed, sizeof computed - 1, 1, f), 1);
    assert_int_equal(fclose(f), 0);
    fail_each(TORTURE_MEMORY, compile_computed, "4");
    unlink(computed_path);
}

/* What is in the cache is found there; a compilation without memory leaves its folder and its files closed. */
static void test_compile_cached(void **state)
{
    (void)state;
    cache = folder;
    fail_each(TORTURE_MEMORY, compile_once, "4");
    cache = NULL;
}

static void test_compile_system(void **state)
{
    (void)state;
    fail_each(TORTURE_SYSTEM, compile_once, "3");
}

/* Loads, runs twice and closes; the class of the code as the command has it (cli/commands/artifact/session.c). */
static int run_once(void)
{
    static float x[64], y[10];
    int64_t in_shape[4] = {1, 1, 8, 8}, out_shape[2] = {1, 10};
    DLTensor in = {x, {kDLCPU, 0}, 4, {kDLFloat, 32, 1}, in_shape, NULL, 0};
    DLTensor out = {y, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, out_shape, NULL, 0};
    const DLTensor *ins[] = {&in};
    DLTensor *outs[] = {&out};
    mcc_host host = {.size = sizeof host, .threads = 2};
    mcc_error error;
    mcc_lib *lib;
    mcc_ctx *ctx = NULL;
    int code = mcc_load(artifact, &host, &lib, &error);
    if (code == MCC_OK)
        code = lib->api->ctx_new(lib->model, NULL, 0, &ctx, &error);
    for (int i = 0; i < 2 && code == MCC_OK; i++)
        code = lib->api->run(ctx, ins, outs, &error);
    if (ctx)
        lib->api->ctx_free(ctx);
    mcc_unload(lib);
    return code == MCC_OK ? 0 : code == MCC_E_NOMEM ? 4 : code == MCC_E_IO ? 3 : 5;
}

static void test_run_memory(void **state)
{
    (void)state;
    fail_each(TORTURE_MEMORY, run_once, "34"); /* dlopen does not say that it was memory */
}

static void test_run_system(void **state)
{
    (void)state;
    fail_each(TORTURE_SYSTEM, run_once, "34");
}

#else
static void absent(void **state)
{
    (void)state;
    skip();
}
#endif

static int make_folder(void **state)
{
    (void)state;
    bool made = mkdtemp(folder) != NULL;
    snprintf(artifact, sizeof artifact, "%s/net.so", folder);
    return made ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--worker") == 0)
        return codegen_worker();
    static const struct CMUnitTest tests[] = {
#if !TORTURE_ABSENT
        cmocka_unit_test(test_compile_time),   cmocka_unit_test(test_compile_weights),
        cmocka_unit_test(test_compile_memory), cmocka_unit_test(test_compile_cached),
        cmocka_unit_test(test_compile_system), cmocka_unit_test(test_run_memory),
        cmocka_unit_test(test_run_system),
#else
        cmocka_unit_test(absent),
#endif
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
