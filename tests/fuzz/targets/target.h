/* What the programs of `make fuzz-model`, fuzz-pt2, fuzz-gguf, fuzz-config, fuzz-so and fuzz-npy share: libFuzzer calls
 * LLVMFuzzerTestOneInput() of each, with the sanitizers on. A finding is a signal, a report of a sanitizer, an internal
 * error, or too much time or memory.
 */
#ifndef MCC_TESTS_FUZZ_TARGET_H
#define MCC_TESTS_FUZZ_TARGET_H

#include "ir/base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

/* Compiles the file with these bytes, of any format, up to a stage; ends the process at an internal error (whole.c). 0.
 */
int compile_bytes(const uint8_t *data, size_t size, const char *last);

/* A file in memory with these bytes, as a path; valid until the next call. */
const char *file_of(const uint8_t *data, size_t size);

/* Calls `use` with that path and a context of its own, whose unwind point is set; ends the process at an internal
 * error (file.c). 0. */
int fuzz_bytes(const uint8_t *data, size_t size, void (*use)(struct context *, const char *path));

struct mutation {
    uint64_t state; /* of the generator */
    size_t (*mutate)(uint8_t *data, size_t n, size_t max); /* bytes without a structure */
    const uint8_t *other; /* a field that may be added, with its tag */
    size_t n_other;
};
/* Changes one field of a protobuf message in place; the new size. */
size_t wire_mutate(struct mutation *, uint8_t *data, size_t n, size_t max);

#endif
