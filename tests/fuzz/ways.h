/* The ways in which a random graph is run: the passes with the interpreter of the loop IR (ways.c), or as an artifact
 * (native.c). Both use up the graph: the passes add to it.
 */
#ifndef MCC_TESTS_FUZZ_WAYS_H
#define MCC_TESTS_FUZZ_WAYS_H

#include "cli/library/options/options.h"
#include "ir/eval/eval.h"
#include "passes/module/module.h"
#include "tests/fuzz/draw.h"
#include "tests/interp/interp.h"

struct way {
    int level;                   /* of optimisation */
    enum layout_choice layout;
    struct machine machine;      /* loops only, where cpu is NULL */
    const char *cpu;             /* loops only: a row of target.def */
    enum option_precision precision;
    const char *choice;          /* --choose; NULL: none */
    const char *schedules;       /* --schedules; NULL: none */
    bool native;
    const char *variant;         /* native only: of the CPU */
    uint32_t threads;            /* native only: the larger number */
    uint32_t winograd;           /* m of F(m x m, 3 x 3) for every convolution that can be; 0: none */
};
void way_print(const struct way *, struct strbuf *);

/* Both: make, once for a graph, returns NULL when why says what broke. run takes the inputs that draw_bind made last,
 * and gives one tensor per output, in the context's memory; false when why says what broke. */
struct loops;
struct compilation;
struct loops *loops_make(struct draw *, const struct way *, struct strbuf *why);
/* Of what stages_of_way has made up to `emit`. */
struct loops *loops_of(struct draw *, struct compilation *, struct strbuf *why);
bool loops_run(struct loops *, struct tensor *out);

/* An artifact, written to path and loaded for one and for several threads; run compares the two bit by bit. */
struct native;
struct native *native_make(struct draw *, const struct way *, const char *path, struct strbuf *why);
bool native_run(struct native *, struct tensor *out);
void native_close(struct native *);

/* Runs the stages of the table on a legal graph from push-concats to `last` (NULL: to the artifact at `path`), as
 * the way says; NULL when why says what broke. */
struct compilation *stages_of_way(struct context *, struct graph *, const struct way *, const char *last,
                                  const char *path, struct strbuf *why);

/* Element counts and memory for a result; data starts off alignments larger than the element's. */
void *memory_odd(struct arena *, int64_t bytes, uint32_t size);
void diags_append(struct context *, struct strbuf *);

#endif
