/* Random graphs of one kind and one float result, run in one way each and compared with the reference interpreter by
 * the largest error over the largest value. */
#ifndef MCC_TESTS_FUZZ_SINGLE_H
#define MCC_TESTS_FUZZ_SINGLE_H

#include "tests/fuzz/ways.h"

struct single {
    const char *name;
    bool (*build)(struct draw *); /* with inputs bound; false: this seed gives none */
    struct way (*way)(uint64_t seed); /* native, variant and threads are set here */
    double (*limit)(const struct way *);
};
/* Makes `v` the one result of the graph, and its inputs at the largest extents. */
bool single_result(struct draw *, value_id v);
/* Tries n graphs from seed on; the number of those that differ, which are printed, at most 5. A kind that mostly gives
 * no graph counts as one too. */
uint32_t single_many(const struct single *, uint64_t n, uint64_t seed, bool native);

#endif
