/* The ways in which a random graph is run: the passes with the interpreter of the loop IR (ways.c), or as an artifact
 * (native.c). Both use up the graph: the passes add to it.
 */
#ifndef MCC_TESTS_FUZZ_WAYS_H
#define MCC_TESTS_FUZZ_WAYS_H

#include "passes/kernel.h"
#include "tests/fuzz/draw.h"

struct way {
    int level;                   /* of optimisation */
    enum layout_choice layout;
    struct machine machine;      /* loops only */
    bool native;
    uint32_t winograd;           /* m of F(m x m, 3 x 3) for every convolution that can be; 0: none */
};
void way_print(const struct way *, struct strbuf *);

/* Runs the graph; out: one tensor per output, in the context's memory. False: why says what broke. */
bool way_loops(struct draw *, const struct way *, struct tensor *out, struct strbuf *why);
/* The same through an artifact written to path. */
bool way_native(struct draw *, const struct way *, const char *path, struct tensor *out, struct strbuf *why);

/* Element counts and memory for a result; data starts off alignments larger than the element's. */
int64_t tensor_elements(const struct tensor *);
void *memory_odd(struct arena *, int64_t bytes, uint32_t size);
void diags_append(struct context *, struct strbuf *);

#endif
