/* The memory and the runs of an artifact that mcc prove judges: marks, pages around blocks, code that faults. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fenv.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands/compare/guard.h"
#include "ir/expr/expr.h"

enum { ALIGN = 64 };
struct fixture {
    struct context *ctx;
    struct guard guard;
};

static int setup(void **state)
{
    struct fixture *f = *state = calloc(1, sizeof *f);
    f->ctx = context_new();
    return !f->ctx;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    guard_end(&f->guard);
    context_free(f->ctx);
    free(f);
    return 0;
}

static volatile unsigned char *place;

static void touch(void *user)
{
    *(int *)user = *place;
}

static void enter_modes(void *user)
{
    fesetround(FE_UPWARD);
    touch(user);
}

static void unwind(void *user)
{
    longjmp(*((struct context *)user)->unwind, 1);
}

static void test_marks(void **state)
{
    struct fixture *f = *state;
    unsigned char *a = guard_alloc(&f->guard, &f->ctx->session, 100, ALIGN), *b;
    assert_non_null(a);
    assert_int_equal((uintptr_t)a % ALIGN, 0);
    assert_int_equal(a[0], GUARD_MARK);
    memset(a, 0, 100);
    assert_true(guard_holds(&f->guard));
    guard_release(&f->guard, a);
    b = guard_alloc(&f->guard, &f->ctx->session, 100, ALIGN);
    assert_ptr_equal(a, b);
    assert_int_equal(b[99], GUARD_MARK); /* not what the first owner left */
    assert_ptr_not_equal(guard_alloc(&f->guard, &f->ctx->session, 100, ALIGN), b);
    b[100] = 1; /* between its end and that of the page */
    assert_false(guard_holds(&f->guard));
    b[100] = GUARD_MARK;
    b[-1] = 0;
    assert_false(guard_holds(&f->guard));
    assert_null(guard_alloc(&f->guard, &f->ctx->session, SIZE_MAX - ALIGN, ALIGN));
}

/* What is kept of many blocks grows as they do, and trimmed ones make room. */
static void test_many(void **state)
{
    enum { MANY = 1000 };
    struct fixture *f = *state;
    unsigned char *at[MANY];
    const int64_t before = f->ctx->heap_used;
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < MANY; i++)
            assert_non_null(at[i] = guard_alloc(&f->guard, &f->ctx->session, i + 1, ALIGN));
        assert_true(guard_holds(&f->guard));
        for (size_t i = 0; i < MANY; i++)
            guard_release(&f->guard, at[i]);
        guard_trim(&f->guard, false);
    }
    assert_true(f->ctx->heap_used - before < 1 << 20);
}

static void test_faults(void **state)
{
    struct fixture *f = *state;
    unsigned char *a = guard_alloc(&f->guard, &f->ctx->session, 2 * ALIGN, ALIGN);
    int got = -1, mode = fegetround();
    place = a + 2 * ALIGN - 1;
    assert_int_equal(guard_call(f->ctx, touch, &got), 0);
    assert_int_equal(got, GUARD_MARK);
    place = a + 2 * ALIGN;
    assert_int_equal(guard_call(f->ctx, enter_modes, &got), SIGSEGV);
    assert_int_equal(fegetround(), mode);
    place = a - 8192; /* in front of its page */
    assert_int_equal(guard_call(f->ctx, touch, &got), SIGSEGV);
    place = a;
    assert_int_equal(guard_call(f->ctx, touch, &got), 0);
}

/* Code whose callback gives up leaves no handler behind. */
static void test_unwinding(void **state)
{
    struct fixture *f = *state;
    struct sigaction before, after;
    jmp_buf outer;
    sigaction(SIGSEGV, NULL, &before);
    f->ctx->unwind = &outer;
    if (setjmp(outer) == 0) {
        guard_call(f->ctx, unwind, f->ctx);
        fail();
    }
    sigaction(SIGSEGV, NULL, &after);
    assert_ptr_equal(before.sa_handler, after.sa_handler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_marks, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many, setup, teardown),
        cmocka_unit_test_setup_teardown(test_faults, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unwinding, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
