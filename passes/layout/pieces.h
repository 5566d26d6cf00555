/* Between layout_transform.c and the places of a concat's operands. */
#ifndef MCC_PASSES_LAYOUT_PIECES_H
#define MCC_PASSES_LAYOUT_PIECES_H

#include "passes/module/module.h"

/* After every stored value has a storage: operands of concats that are stored themselves move into the result, and the
 * kernels that would have copied them go. plain, fastest: by value, what layout_transform has found out about its readers. */
void layout_pieces(struct module *, const bool *plain, const int32_t *fastest);

#endif
