/* mcc prove: draws at other sizes than the least, or than --dim gives, until each loop and branch has run. */
#pragma once

#include "cli/commands/compare/prove.h"

/* Sizes that the network refuses are run once, as the code has to refuse them, and replaced by others. Sizes that the
 * code takes stay, and are compared. last: symbols change from the last one on. False: no others were found. */
bool sizes_settle(struct prove *, bool last);
/* Sets p->now->whole if each size that the network takes was drawn. False after a diagnostic. */
bool sizes_draw(struct prove *);
