/* Discrete Fourier transforms as core operators (passes/legalize/math/dft.c). */
#pragma once

#include "passes/legalize/legalize.h"

/* Of an f64 tensor along `axis`; its last dim has 1 or 2 parts of a number. */
struct dft {
    int32_t axis;
    bool inverse, onesided;
    expr_id length; /* the elements that are transformed: the rest is cut off, or zero */
};
value_id dft_build(struct builder *, value_id x, const struct dft *);
/* Frames [batch, count, length, parts] of x [batch, samples, parts], each `step` after the one before; there is one at
 * least. */
value_id dft_frames(struct builder *, value_id x, expr_id step, expr_id length, expr_id count);
