/* mcc prove: tries ranges of a kernel's arguments, and notes which loops and branches run for none of them. Shared by
 * never.c and never_open.c. */
#pragma once

#include "cli/commands/compare/prove.h"

struct never_code {
    const struct lowered_kernel *of;
    struct lfunc *f;
    uint32_t n_args;
    struct loop_range *args, *scratch; /* args: the caller writes them before never_try */
    bool *never, *may;                 /* by block: ruled out by the arguments at hand; not ruled out by some */
};

/* Has some loop or branch run in no draw, although sizes may let it run? */
bool never_lacks(const struct prove *, const struct lowered_kernel *);
/* code: a kernel or a version of it, whose code is `of`. False: its code cannot be read. */
bool never_begin(struct prove *, const struct kernel *code, const struct lowered_kernel *of, struct never_code *);
/* False: the code has other blocks than the draws have marked. */
bool never_try(struct never_code *);
/* Notes the blocks that no arguments let run, if no draw has run them. */
void never_end(struct prove *, const struct never_code *);
