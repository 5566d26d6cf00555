/* "Did you mean": the most similar of some names. */
#pragma once

#include <stddef.h>

struct nearest {
    const char *word, *found;
    size_t best;
};
/* Begins a search for what is close to word; found is NULL until a candidate is. Names are compared up to 48 bytes. */
struct nearest nearest_to(const char *word);
/* One candidate; of equally close ones the first stays. */
void nearest_try(struct nearest *, const char *name);
