/* mcc prove: loops and branches of a network, judged by what reads their values. */
#pragma once

#include "cli/commands/compare/prove.h"

/* The kernel of the loop or branch of the top region that a kernel is inside of; UINT32_MAX: none. */
uint32_t control_of(const struct prove *, const struct kernel *);
/* Are there kernels inside of loops or branches? Is there one that few draws have reached? */
bool control_runs(const struct prove *);
bool control_lacks(const struct prove *);
/* What stands against a kernel that is control flow, or inside of it; NULL: it is proved. */
const char *control_against(const struct prove *, const struct certificate *, uint32_t kernel);
