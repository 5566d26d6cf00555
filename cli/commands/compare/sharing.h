/* mcc prove: runs in which outputs lie in the memory of inputs, as a host may have it (docs/abi.md): a cache of which
 * the run writes some rows, and which the code copies elsewhere. */
#pragma once

#include "cli/commands/compare/prove.h"

/* Runs on copies of the inputs at hand: p->code, and p->out if it succeeds. False: no output may have the memory of an
 * input at these sizes, or data decides extents; nothing was run. */
bool sharing_run(struct prove *);
