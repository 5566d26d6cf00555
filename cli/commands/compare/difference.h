/* Two tensors held against each other (mcc diff). */
#pragma once

#include "ir/eval/interpreter.h"

/* What is no difference. relative: as a part of the largest element. step: for integers that were rounded from floats,
 * one more or less in at most a hundredth of the elements, since a tie may be broken either way. */
struct closeness {
    double relative;
    bool step;
};
struct difference {
    int64_t count, total, at;
    double largest, scale, got, want;
};

/* How much less exact than float32 a float type's arithmetic is: 1, 10 for float16, 80 for the others; 0: no float. */
double elem_looseness(enum elem);
/* Is `got` (as many elements of want's type, row-major) too far from `want`? Fills *out either way. */
bool tensor_differs(const struct tensor *want, const void *got, struct closeness, struct difference *out);
