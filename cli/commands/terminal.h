/* Standard output and standard error of the mcc command. */
#pragma once

#include "cli/library/compile/compile.h"

/* How a compilation reports: data to standard output, diagnostics to standard error, in colour on a terminal. */
struct report terminal_report(void);
/* Data for standard output; to standard error if --json has standard output for its object alone. */
void terminal_print(const struct strbuf *);
/* json: --json was given. colour: 0 or 1 as an option says, -1: as the terminal and the environment say. */
void terminal_options(bool json, int colour);
/* Flushes both. The exit status: `status`, or FAIL_ENV after a write that failed. */
int terminal_end(int status);
