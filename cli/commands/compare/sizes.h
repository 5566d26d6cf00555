/* mcc prove: draws at other sizes than the least, or than --dim gives, until each loop and branch has run. */
#pragma once

#include "cli/commands/compare/prove.h"

/* Sizes that the network refuses are run once, as the code has to refuse them, and replaced by others. Sizes that the
 * code takes stay, and are compared. last, branch: see sizing_mend. False: no others were found. */
bool sizes_settle(struct prove *, bool last, uint32_t branch);
/* Sets p->now->whole if each size that the network takes was drawn. False after a diagnostic. */
bool sizes_draw(struct prove *);
