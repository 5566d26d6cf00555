/* Vectors whose lanes lie in a few spans of consecutive elements, but not in the order of the lanes. */
#pragma once

#include "passes/emit/emit.h"

enum { EM_SPANS_MOST = 4 };

struct em_spans {
    uint32_t n, lanes;
    uint32_t live; /* number of valid lanes, which come first */
    bool whole;    /* all valid lanes are in spans, and each element of each span belongs to exactly one lane */
    struct {
        expr_id first; /* address of the first element */
        int64_t n;     /* elements, at most `lanes` */
    } span[EM_SPANS_MOST];
    uint8_t of[LOOP_LANES_MAX],
        at[LOOP_LANES_MAX]; /* by lane: its span (EM_SPANS_MOST: none), and which element of it */
};

/* Finds the spans of an address that depends on one lane symbol. Linear addresses are left to load and store
 * statements, except those with stride -1, which are one span. Lanes whose condition is false are in no span. false:
 * the address is another one, the spans or the condition are dynamic, or there are too many spans to save anything over
 * an access for each lane. */
bool em_spans(struct em *, expr_id addr, expr_id cond, struct em_spans *);

/* The lane symbol that an expression depends on; NULL: none. *several: it depends on more than one, or on a vector of
 * indices. */
const struct em_sym *em_lane_of(const struct em *, expr_id, bool *several);
