/* Hand-written models for the runtime's tests: what the code generator would emit, as C.
 *
 * pair: x f32 [N, 4], y f32 [N, 4] -> z f32 [N, 4] = 2 x + y, s f32 [N] = row sums of z through the arena. N is
 * 0..4096. A value of x above 1e6 fails the run at its row. Knobs below. pick: v f32 [M], names: string [2], list:
 * sequence of f32 -> hits i64 [count] (positions of non-zeros), last: the same strings swapped, longer: the sequence
 * with v put in at its front, and sum: f32 [] of the sequence's length. loose: a f32 of any rank -> hits i64 [rank,
 * count] (NonZero of a), b of a's own rank: the same data.
 */
#ifndef TESTS_RUNTIME_MODELS_H
#define TESTS_RUNTIME_MODELS_H

#include "runtime/rt_internal.h"

extern struct mcc_rt_desc pair_desc, pick_desc, loose_desc;
extern int64_t knob_ns;              /* estimate given to launches: large makes a launch parallel */
extern int64_t knob_work;            /* extra turns per row */
extern int64_t knob_repeats;         /* how often pair launches its first kernel */
extern void (*knob_chunk)(int64_t begin, int64_t end);   /* called for each chunk of pair's first kernel */
extern void (*knob_hook)(void);      /* called by pair's program between its launches */

/* A host that counts and limits memory: allocation number fail_at gives nothing. */
struct counted {
    int64_t calls, bytes, fail_at;
};
mcc_host counted_host(struct counted *);

#endif
