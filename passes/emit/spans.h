/* Lanes in memory: few spans of consecutive elements that hold all lanes of a vector, though not one after another. */
#ifndef MCC_PASSES_EMIT_SPANS_H
#define MCC_PASSES_EMIT_SPANS_H

#include "passes/emit/emit.h"

enum { EM_SPANS_MOST = 4 };

struct em_spans {
    uint32_t n, lanes;
    uint32_t live; /* lanes from here on do not exist */
    bool whole;    /* each lane that exists is wanted, and each element of each span is exactly one lane's */
    struct {
        expr_id first; /* address of the first element */
        int64_t n;     /* elements, at most `lanes` */
    } span[EM_SPANS_MOST];
    uint8_t of[LOOP_LANES_MAX],
        at[LOOP_LANES_MAX]; /* by lane: its span (EM_SPANS_MOST: none), and which element of it */
};

/* The spans of an address that depends on one lane symbol, but neither by 1 nor by another constant a lane, which one
 * load or store statement has; backwards is a span. Lanes where the condition is false are in none. false: no such
 * address, dynamic spans or a dynamic condition, or so many spans that they save nothing over an access for
 * each lane. */
bool em_spans(struct em *, expr_id addr, expr_id cond, struct em_spans *);

/* The lane symbol that an expression depends on; NULL: none. *several: on more than one, or on a vector of indices. */
const struct em_sym *em_lane_of(const struct em *, expr_id, bool *several);

#endif
