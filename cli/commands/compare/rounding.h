/* What narrow types cost (mcc diff --against-f32): a run beside the same network in f32. */
#pragma once

#include "cli/commands/compare/capture.h"

/* How far tensors are from what they would be: sums over all elements that were added. */
struct deviation {
    double square, signal;         /* of the difference, of the reference */
    double largest, scale;         /* greatest magnitudes of the same */
    int64_t n;
};
/* Adds `got`, of want's shape and of any element type with numbers; want is a float's. An element that only one of the
 * two has as a finite number counts as infinitely far. */
void deviation_add(struct deviation *, const struct tensor *want, enum elem elem, const void *got);
void deviation_join(struct deviation *, const struct deviation *);
/* The root of the mean square of the difference, over that of the reference. */
double deviation_rms(const struct deviation *);
/* The largest difference over the largest element. */
double deviation_most(const struct deviation *);

/* Prints the error of each output and of what each kernel of the run stored, against the network as the file has it,
 * which the interpreter computes. out: the outputs of the run. False after a diagnostic. */
bool rounding_report(struct capture *, DLManagedTensorVersioned *const *out);
