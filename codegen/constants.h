/* Kernels that differ in constants only, as those of quantized networks do in scales and zero points (constants.c). */
#pragma once

#include "codegen/codegen.h"

/* May the unit share its code with others that have other constants? Then it waits for them. */
bool constants_wait(const struct codegen_unit *);
/* Such units of one target get one text in place of their own, and each the words that stand for its constants in it:
 * copies of the units, with text and data. */
struct codegen_unit *constants_share(struct arena *, const struct codegen_unit *, uint32_t n);
