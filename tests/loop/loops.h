/* Shared by the tests of the loop IR: a context for each test, parsing, running text. */
#ifndef MCC_TESTS_LOOP_LOOPS_H
#define MCC_TESTS_LOOP_LOOPS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ir/loop/loop.h"
#include "tests/interp/interp.h"

int loops_setup(void **state);        /* *state: struct context *, with an unwind point that fails the test */
int loops_teardown(void **state);

/* NULL after a diagnostic */
struct lfunc *loops_parse(struct context *, const char *text);
/* Parses and verifies; fails the test with the diagnostics otherwise. */
struct lfunc *loops_load(struct context *, const char *text);
char *loops_print(struct context *, const struct lfunc *);
const char *loops_last_error(struct context *);   /* "" when there is none */

#endif
