/* U = G g G': by a kernel itself (emit/winograd/transform.c), or for all runs when the model is opened
 * (emit/winograd/prepare.c). */
#ifndef MCC_PASSES_EMIT_WINOGRAD_WEIGHTS_H
#define MCC_PASSES_EMIT_WINOGRAD_WEIGHTS_H

#include "passes/emit/emit.h"
#include "passes/schedule/winograd.h"

/* The alpha^2 points of U = G g G', given g[column][row], in order through put; registers are of type t. */
typedef void winograd_put(void *user, uint32_t point, lreg);
void emit_winograd_weights(struct em *, const struct winograd_form *, struct ltype t, lreg g[3][3], winograd_put *,
                           void *user);

#endif
