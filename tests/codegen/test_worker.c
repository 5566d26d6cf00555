/* Workers that fail: missing, dying, out of memory, given nonsense. Each is one diagnostic of the right class, nothing
 * hangs, and a death leaves a file that replays the job.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "codegen/wire.h"
#include "tests/codegen/harness.h"

static const char good[] = "kernel @k {\n  arg %0 : index\n  %1 = const index 0\n  parallel %2 = %1 to %0 {\n  }\n}\n";
static const struct target native = {"x86_64-unknown-linux-gnu", "x86-64-v2", ""};

struct outcome {
    bool ok;
    enum fail fail;
    uint32_t n_errors;
    char text[1000];
    size_t size;
};

static struct outcome compile(const struct codegen_options *options, const struct target *target, const char *text,
                              uint32_t n)
{
    struct outcome r = {0};
    struct context *ctx = context_bare();
    struct codegen_unit *units = calloc(n, sizeof *units);
    jmp_buf unwind;
    assert_non_null(ctx);
    ctx->unwind = &unwind;
    if (setjmp(unwind) == 0) {
        time_begin(ctx);
        for (uint32_t i = 0; i < n; i++)
            units[i] = (struct codegen_unit){.target = target, .symbol = "k", .text = text};
        r.ok = codegen_objects(ctx, &ctx->session, options, units, n);
        r.size = units[0].object.size;
    }
    r.fail = ctx->fail;
    r.n_errors = ctx->n_errors;
    if (ctx->diags.n)
        snprintf(r.text, sizeof r.text, "%s", ctx->diags.data[0].text);
    free(units);
    context_free(ctx);
    return r;
}

static struct codegen_options options_for(const char *self)
{
    return (struct codegen_options){.self = self, .jobs = 2, .opt_level = 2};
}

static void test_good(void **state)
{
    (void)state;
    struct codegen_options o = options_for("/proc/self/exe");
    struct outcome r = compile(&o, &native, good, 3);
    assert_true(r.ok);
    assert_true(r.size > 100);
}

static void test_text_kinds(void **state)
{
    (void)state;
    struct codegen_options o = options_for("/proc/self/exe");
    o.emit = EMIT_LLVM;
    assert_true(compile(&o, &native, good, 1).ok);
    o.emit = EMIT_ASSEMBLY;
    assert_true(compile(&o, &native, good, 1).ok);
}

/* Given in two lots, with looks at the workers between, the units have the objects that they have alone. */
static void test_lots(void **state)
{
    static const char other[] =
        "kernel @k2 {\n  arg %0 : index\n  %1 = const index 1\n  parallel %2 = %1 to %0 {\n  }\n}\n";
    static const char *const texts[] = {good, other};
    struct codegen_options o = options_for("/proc/self/exe");
    struct context *ctx = context_bare();
    struct codegen_unit units[2], alone;
    (void)state;
    assert_non_null(ctx);
    struct codegen *g = codegen_begin(ctx, &ctx->session, &o);
    for (uint32_t i = 0; i < 2; i++) {
        units[i] = (struct codegen_unit){.target = &native, .symbol = i ? "k2" : "k", .text = texts[i]};
        codegen_add(g, &units[i], 1);
        assert_true(codegen_step(g));
    }
    assert_true(codegen_finish(g, units));
    codegen_end(g);
    for (uint32_t i = 0; i < 2; i++) {
        alone = (struct codegen_unit){.target = &native, .symbol = units[i].symbol, .text = texts[i]};
        assert_true(codegen_objects(ctx, &ctx->session, &o, &alone, 1));
        assert_int_equal(units[i].object.size, alone.object.size);
        assert_memory_equal(units[i].object.data, alone.object.data, alone.object.size);
    }
    assert_ptr_not_equal(units[0].object.data, units[1].object.data);
    context_free(ctx);
}

/* What was given ahead is the unit of a later lot that has its code, whatever the name; the rest is of no account. */
static void test_ahead(void **state)
{
    static const char other[] =
        "kernel @k2 {\n  arg %0 : index\n  %1 = const index 1\n  parallel %2 = %1 to %0 {\n  }\n}\n";
    static const char again[] =
        "kernel @k3 {\n  arg %0 : index\n  %1 = const index 0\n  parallel %2 = %1 to %0 {\n  }\n}\n";
    struct codegen_options o = options_for("/proc/self/exe");
    struct context *ctx = context_bare();
    struct codegen_unit early[] = {{.target = &native, .symbol = "unused", .text = other},
                                   {.target = &native, .symbol = "k", .text = good}},
                        units[] = {{.target = &native, .symbol = "k3", .text = again},
                                   {.target = &native, .symbol = "k", .text = good}},
                        alone = units[0];
    (void)state;
    assert_non_null(ctx);
    struct codegen *g = codegen_begin(ctx, &ctx->session, &o);
    codegen_warm(g);
    codegen_ahead(g, &early[0]);
    codegen_ahead(g, &early[1]);
    assert_true(codegen_step(g));
    codegen_add(g, &units[0], 1);
    codegen_add(g, &units[1], 1);
    assert_true(codegen_finish(g, units));
    codegen_end(g);
    assert_null(units[0].same);
    assert_ptr_equal(units[1].same, &units[0]);
    assert_true(codegen_objects(ctx, &ctx->session, &o, &alone, 1));
    assert_int_equal(units[0].object.size, alone.object.size);
    assert_memory_equal(units[0].object.data, alone.object.data, alone.object.size);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    context_free(ctx);
}

/* Given up while a worker is busy: no child is left. */
static void test_given_up(void **state)
{
    struct codegen_options o = options_for("/proc/self/exe");
    struct context *ctx = context_bare();
    struct codegen_unit unit = {.target = &native, .symbol = "k", .text = good};
    (void)state;
    assert_non_null(ctx);
    struct codegen *g = codegen_begin(ctx, &ctx->session, &o);
    codegen_add(g, &unit, 1);
    assert_true(codegen_step(g));
    codegen_end(g);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    context_free(ctx);
}

static void test_missing(void **state)
{
    (void)state;
    struct codegen_options o = options_for("/nonexistent/mcc");
    struct outcome r = compile(&o, &native, good, 3);
    assert_false(r.ok);
    assert_int_equal(r.fail, FAIL_ENV);
    assert_int_equal(r.n_errors, 1);
}

static void test_nonsense(void **state)
{
    (void)state;
    struct codegen_options o = options_for("/proc/self/exe");
    static const struct target unknown = {"z80-unknown-none", "", ""};
    assert_int_equal(compile(&o, &native, "kernel @k {\n  %1 = frob\n}\n", 1).fail, FAIL_INTERNAL);
    assert_int_equal(compile(&o, &unknown, good, 1).fail, FAIL_INTERNAL);
}

static void test_memory(void **state)
{
    (void)state;
    struct codegen_options o = options_for("/proc/self/exe");
#if defined(__SANITIZE_ADDRESS__)
    skip();   /* the shadow of the memory alone is beyond any limit */
#endif
    o.worker_memory = 1 << 20;
    struct outcome r = compile(&o, &native, good, 1);
    assert_false(r.ok);
    assert_int_equal(r.fail, FAIL_LIMIT);
    assert_int_equal(r.n_errors, 1);
}

/* A script in place of the worker: takes the job, then dies of a signal. */
static void test_killed(void **state)
{
    (void)state;
    struct wire_job head;
    char script[300], command[1200];
    snprintf(script, sizeof script, "%s.sh", program_invocation_name);
    FILE *f = fopen(script, "w");
    assert_non_null(f);
    fputs("#!/bin/sh\nkill -SEGV $$\n", f);
    fclose(f);
    assert_int_equal(chmod(script, 0700), 0);
    struct codegen_options o = options_for(script);
    struct outcome r = compile(&o, &native, good, 1);
    unlink(script);
    assert_false(r.ok);
    assert_int_equal(r.fail, FAIL_INTERNAL);
    assert_int_equal(r.n_errors, 1);
    assert_non_null(strstr(r.text, "signal 11"));
    char *name = strstr(r.text, "--worker <");
    assert_non_null(name);
    name += strlen("--worker <");
    name[strcspn(name, " ")] = 0;
    snprintf(command, sizeof command, "'%s' --worker <'%s' | head -c 4 | grep -q mccj", program_invocation_name, name);
    assert_int_equal(system(command), 0);
    f = fopen(name, "rb");
    assert_non_null(f);
    assert_int_equal(fread(&head, sizeof head, 1, f), 1);
    fclose(f);
    assert_int_equal(head.magic, WIRE_MAGIC);
    assert_int_equal(head.seconds, 0); /* the compilation's time is none of the replay's business */
    unlink(name);
}

/* Its child, or 0. */
static pid_t only_child(void)
{
    char path[64];
    int child = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *f = fopen(path, "r");
    if (f) {
        child = fscanf(f, "%d", &child) == 1 ? child : 0;
        fclose(f);
    }
    return child;
}

/* A worker that rests and is stopped does not end when it is told to: nobody waits for that for long. */
static void test_stopped_at_rest(void **state)
{
    struct codegen_options o = options_for("/proc/self/exe");
    struct context *ctx = context_bare();
    struct codegen_unit unit = {.target = &native, .symbol = "k", .text = good};
    (void)state;
    assert_non_null(ctx);
    struct codegen *g = codegen_begin(ctx, &ctx->session, &o);
    codegen_add(g, &unit, 1);
    assert_true(codegen_finish(g, &unit));
    pid_t child = only_child();
    if (child)
        kill(child, SIGSTOP);
    codegen_end(g);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    assert_int_equal(ctx->fail, FAIL_NONE);
    context_free(ctx);
    if (!child)
        skip(); /* the kernel lists no children */
}

/* A worker takes the time that its first job allows it, whoever sends it. */
static void test_time_of_a_worker(void **state)
{
    int end;
    struct wire_job job = {.magic = WIRE_MAGIC, .kind = 77, .seconds = 7};
    struct rlimit cpu;
    (void)state;
    pid_t child = worker_answered(&job, &end);
    assert_int_equal(prlimit(child, RLIMIT_CPU, NULL, &cpu), 0);
    close(end);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(cpu.rlim_cur, 7);
}

/* Options without an end, or none: no linker has a name then. */
static void test_linker_without_name(void **state)
{
    static const char *const options[] = {"", "ld.lld"};
    char path[] = "/tmp/mcc-job-XXXXXX", command[300];
    int fd = mkstemp(path);
    (void)state;
    assert_true(fd >= 0);
    snprintf(command, sizeof command, "'%s' --worker <'%s' | grep -q 'a job that this worker does not know'",
             program_invocation_name, path);
    for (size_t i = 0; i < COUNT_OF(options); i++) {
        struct wire_job job = {.magic = WIRE_MAGIC, .kind = WIRE_LINK, .n_parts = 2};
        uint64_t size[2] = {strlen(options[i]), 0};
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(pwrite(fd, &job, sizeof job, 0), sizeof job);
        assert_int_equal(pwrite(fd, &size[0], 8, sizeof job), 8);
        assert_int_equal(pwrite(fd, options[i], size[0], sizeof job + 8), size[0]);
        assert_int_equal(pwrite(fd, &size[1], 8, (off_t)(sizeof job + 8 + size[0])), 8);
        assert_int_equal(system(command), 0);
    }
    close(fd);
    unlink(path);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_good),
                                       cmocka_unit_test(test_text_kinds),
                                       cmocka_unit_test(test_lots),
                                       cmocka_unit_test(test_given_up),
                                       cmocka_unit_test(test_missing),
                                       cmocka_unit_test(test_nonsense),
                                       cmocka_unit_test(test_linker_without_name),
                                       cmocka_unit_test(test_memory),
                                       cmocka_unit_test(test_killed),
                                       cmocka_unit_test(test_ahead),
                                       cmocka_unit_test(test_stopped_at_rest),
                                       cmocka_unit_test(test_time_of_a_worker)};
    if (argc > 1 && strcmp(argv[1], "--worker") == 0)
        return codegen_worker();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
