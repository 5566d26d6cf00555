/* What equality on drawn values says little of: choices among elements, which few of them decide (prove.c). */
#ifndef MCC_CLI_CHANCE_H
#define MCC_CLI_CHANCE_H

#include "cli/commands/compare/capture.h"

/* Why no draw shows whether the node's code is right; NULL: draws do. */
const char *chance_why(const struct graph *, const struct node *);
/* How often, in the run in progress, an element that a maximum, minimum, `and` or `or` leaves out is one that decides;
 * INFINITY: the node is none of these, or all that it decides is the range of exponentials. */
double chance_shows(const struct capture *, const struct node *);
/* So often or more: one that is left out stays unseen with a probability of e^-8. */
enum { CHANCE_ENOUGH = 8 };

#endif
