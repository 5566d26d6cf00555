/* What a compilation is at, on a terminal: one line that is written again and again, from its second second on. */
#pragma once

#include <stdint.h>

/* As report.step. Without a terminal at standard error, or with the variable CI set, it does nothing. */
void progress_step(void *user, const char *stage, uint32_t done, uint32_t of);
/* Takes the line away, before something else is written. */
void progress_clear(void);
/* The same from a signal's handler. */
void progress_wipe(void);
