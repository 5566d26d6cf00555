/* What so many threads can gain at most: the runtime's rules of sharing (runtime/rt_share.h) played with estimates, on
 * cores that do not slow one another down. */
#pragma once

#include "ir/base/base.h"

enum { BOUND_THREADS_MOST = 256, BOUND_COUNTS_MAX = 16 };

/* Nanoseconds, while workers are awake, that a launch of so many parallel indices takes, from the launch until the last
 * thread is done. */
double bound_launch(int64_t count, int64_t ns, uint32_t threads);
/* "1,2,4": ascending numbers of threads. How many there are; 0: the text is none of that. */
uint32_t bound_counts(const char *text, uint32_t out[BOUND_COUNTS_MAX]);
