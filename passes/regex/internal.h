/* What the stages of regex_compile hand on. Memory is an arena that the call releases at its end. */
#pragma once

#include "passes/regex/regex.h"

enum { RUNE_MAX = 0x10ffff };

/* ---- sets of characters (class.c) -------------------------------------------------------------------------------- */

struct range {
    uint32_t lo, hi;
}; /* code points, both included */
struct ranges {
    struct range *data;
    uint32_t n, cap;
};

/* Adds the range; fold: with the other case of its letters, as far as they are ASCII. */
void ranges_add(struct arena *, struct ranges *, uint32_t lo, uint32_t hi, bool fold);
/* Sorts and merges, and takes the complement. */
void ranges_tidy(struct ranges *);
void ranges_negate(struct arena *, struct ranges *);
/* \d, \s, \w and their complements D, S, W; false: no such letter. */
bool ranges_add_escape(struct arena *, struct ranges *, char letter, bool fold);
/* The class [:NAME:], or its complement; false: no such name. */
bool ranges_add_named(struct arena *, struct ranges *, struct span name, bool negate, bool fold);

/* ---- the tree (parse.c) ------------------------------------------------------------------------------------------ */

/* Conditions between two characters: at the text's ends, at a line's, at a word's or not. */
enum look { LOOK_BEGIN = 1, LOOK_END = 2, LOOK_LINE_BEGIN = 4, LOOK_LINE_END = 8, LOOK_WORD = 16, LOOK_NO_WORD = 32 };

enum tree_kind { TREE_EMPTY, TREE_CLASS, TREE_LOOK, TREE_CAT, TREE_ALT, TREE_REPEAT };
struct tree {
    enum tree_kind kind;
    enum look look; /* LOOK */
    struct ranges ranges; /* CLASS: sorted, disjoint, none is adjacent to another */
    const struct tree *child; /* REPEAT; CAT, ALT: the last one */
    const struct tree *before; /* the one in front of this among its parent's */
    int32_t min, max; /* REPEAT; max -1: any number */
    int32_t copies; /* how often the innermost counted repetition in it is written out, at least 1 */
};

/* NULL: *error says why. Trees are at most 2 * DEPTH_MAX nodes deep. */
const struct tree *regex_parse(struct arena *, const char *pattern, size_t n, struct regex_error *error);

/* ---- the nondeterministic automaton (nfa.c) ---------------------------------------------------------------------- */

enum nfa_kind { NFA_BYTES, NFA_SPLIT, NFA_LOOK, NFA_ACCEPT };
struct nfa_state {
    enum nfa_kind kind;
    uint8_t lo, hi; /* BYTES */
    uint8_t look; /* LOOK */
    uint32_t next, other; /* all but ACCEPT; SPLIT has both */
};
struct nfa {
    VEC(struct nfa_state) states;
    uint32_t start;
    uint8_t looks; /* of enum look: those that occur */
};

bool nfa_build(struct arena *, const struct tree *, struct nfa *out, struct regex_error *error);

/* ---- the table (dfa.c) ------------------------------------------------------------------------------------------- */

/* The table is in memory of `to`, all else in that of `scratch`. */
bool dfa_build(struct arena *scratch, struct arena *to, const struct nfa *, struct span *table,
               struct regex_error *error);
