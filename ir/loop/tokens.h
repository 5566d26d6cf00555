/* Between the parser of the loop IR (ir/loop/parse.c) and what it reads: words, numbers and names (ir/loop/tokens.c).
 * Each function skips blanks and comments first; false after a diagnostic, or, for take, where something else stands.
 */
#pragma once

#include "ir/base/scan.h"
#include "ir/loop/internal.h"

enum { WORD_MAX = 40 };

struct parser {
    struct context *ctx;
    struct lfunc *f;
    struct scan s;
    const char *counted;    /* line is that of this place */
    uint32_t line;
    bool failed;
    uint32_t depth;
    VEC(uint32_t) map;      /* text number -> lreg.i; 0: not seen */
    VEC(lreg) list;         /* operands of the statement being read */
};

/* Always false: a diagnostic with the place that is reached, if it is the first. */
bool token_fail(struct parser *, const char *what);
/* The line of the place that the parser has reached. */
uint32_t token_line(struct parser *);
/* This sign or word, if it is what comes next; ... */
bool token_take(struct parser *, const char *token);
/* ... which it has to be. */
bool token_need(struct parser *, const char *token);
bool token_word(struct parser *, char word[WORD_MAX]);
bool token_u32(struct parser *, uint32_t *);
/* Signed; values of u64 above INT64_MAX are written as their two's complement. */
bool token_i64(struct parser *, int64_t *);
bool token_f64(struct parser *, double *);
bool token_string(struct parser *, const char **);
/* @word, or @"any text". */
bool token_name(struct parser *, const char **);
