/* Regular expressions for full matches, compiled to tables: RE2's syntax over UTF-8, one step of a table for each byte.
 *
 * A pattern becomes a tree (parse.c, class.c), the tree a nondeterministic automaton over bytes (nfa.c), that a
 * deterministic one (dfa.c). Each stage is bounded, whatever the pattern: what needs more is an error. Captures and
 * lazy repetition have no meaning here, since only whether the whole text matches is asked.
 */
#pragma once

#include "ir/base/base.h"

struct regex_error {
    const char *text;
    uint32_t at; /* which character of the pattern it is about, from 1; 0: the pattern as a whole */
    bool broken; /* RE2 has no such syntax; false: it has, or the automaton would be too large */
};

/* The table of a pattern of n bytes, in memory of the arena, as mcc_rt_str_match (runtime/ops/rt_ops.h) reads it: u8
 * class[256] of the bytes, u16 classes, u16 states, then for each state u16 accepts (0 or 1) and u16 next[classes].
 * State 0 leads nowhere, state 1 is the start. A text matches if the state after its last byte accepts. false: *error
 * says why. */
bool regex_compile(struct arena *, const char *pattern, size_t n, struct span *table, struct regex_error *error);
