/* What a golden text of a pass holds: only what that pass decides. */
#ifndef MCC_TESTS_PASSES_DELTA_H
#define MCC_TESTS_PASSES_DELTA_H

#include "passes/module/module.h"

/* What differs between two texts of a module, values under the numbers that they had before:
 *
 *     + %+1: f32[32, 16] = transpose(%3) {perm=[1, 0]} @fc   a line that is new
 *     - %4 %5                                                nodes that are gone
 *     kernel 1 - plain + winograd 4 blocked                  the words of a line that are gone and new
 *
 * Nodes are the same if they compute the same, or else have the same operator, type and name. Sources have their
 * names, long lists of numbers their hash. */
void delta_print(struct arena *, const char *before, const char *after, struct strbuf *out);

/* The fields of each record that are not the least their bounds allow; fields: only those with these prefixes. NULL:
 * all but estimates. */
void fields_print(const struct module *, const char *fields, struct strbuf *out);

#endif
