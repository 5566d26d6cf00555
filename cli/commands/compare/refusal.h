/* Does compiled code refuse only the data that the network refuses? */
#pragma once

#include "cli/commands/compare/prove.h"

/* prove.refusals of a variant at first. */
enum { REFUSAL_ELEMENTS = 1 << 24 };

/* The interpreter runs the graph after legalization on the inputs of the run at hand, which has ended with the error
 * p->run.s.error or with none. If one of the two refuses the inputs and the other one does not, p->now->ended says so.
 * Nothing is said once p->refusals is used up. Of a run that was too long few elements are computed; after some of
 * these p->now->ended says that, too. */
void refusal_judge(struct prove *);
