/* Between layout_transform.c and the places of a concat's operands. */
#ifndef MCC_PASSES_LAYOUT_PIECES_H
#define MCC_PASSES_LAYOUT_PIECES_H

#include "passes/module/module.h"

/* After every stored value has a storage: operands of concats that are stored themselves move into the result, and the
 * kernels that would have copied them go. plain, fastest: by value, what layout_transform has found out about its readers. */
void layout_pieces(struct module *, const bool *plain, const int32_t *fastest);
/* Elements from the first one of a stored concat's result to operand `piece`; false where that is inside a block. */
bool piece_start(const struct module *, const struct node *concat, uint32_t piece, expr_id *start);

/* Drops kernels, by number, and says in kernel_of who is left of those that compute a node. */
void kernels_remove(struct module *, const bool *gone);

#endif
