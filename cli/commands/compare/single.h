/* mcc prove at sizes that are too large for the interpreter to run the network: the compiled network runs, and the
 * interpreter computes single kernels from what the run has stored. */
#pragma once

#include "cli/commands/compare/prove.h"

/* Chooses the kernels that part.asks for and that are small enough at the sizes of the inputs at hand; the run then
 * keeps what they read and store. False: there are none, or, for PART_CHOICES, another one is asked for, too. Of
 * PART_TIES some are left for other draws, where one stores what is drawn for another. For PART_BLOCKS and PART_LATER
 * other kernels do not run, if random numbers can replace their results. */
bool single_begin(struct prove *);
/* In the run: replaces by drawn floats what the kernel that has ended has stored, as far as chosen ones read it, where
 * the run has it and where it was kept. */
void single_draw(struct prove *);
/* In the run: have all chosen kernels ended? */
bool single_ends(const struct prove *);
/* After the run: has a loop or branch of a chosen kernel run that has not run often? */
bool single_gains(const struct prove *);
/* Compares the chosen kernels, of which the loops and branches that ran then count. False after a diagnostic. */
bool single_compare(struct prove *, eval_watch *);
void single_end(struct prove *);
