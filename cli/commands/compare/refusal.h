/* Does compiled code refuse only the data that the network refuses? */
#pragma once

#include "cli/commands/compare/prove.h"

/* prove.refusals of a variant at first. */
enum { REFUSAL_ELEMENTS = 1 << 24 };

/* The run at hand has ended with the error p->run.s.error: the interpreter runs the graph after legalization on the
 * same inputs. If that succeeds, p->now->ended says so. Nothing is said once p->refusals is used up. Of a run that
 * was too long few elements are computed; after some of these p->now->ended says that, too. */
void refusal_judge(struct prove *);
