/* A text read by tokens: what the parsers of graphs, modules, loops, expressions, schedules and input specifications
 * share. They say where they are and what is wrong in their own words.
 */
#pragma once

#include "ir/base/base.h"

struct scan {
    const char *start, *p; /* the text, and the place that is reached; after a failure, where it is */
    const char *blanks; /* characters that may stand between tokens */
    char comment; /* what begins a comment up to the end of the line; 0: there are none */
};

/* Of the place that is reached, from 1. */
uint32_t scan_line(const struct scan *);
void scan_blanks(struct scan *);
bool scan_is_word(char); /* a letter, a digit or _ */

/* Each skips blanks and comments first. */

/* This sign or whole word, if it is what comes next. */
bool scan_take(struct scan *, const char *token);
/* The length of the word that comes next; 0: none does. */
size_t scan_word(struct scan *);
/* These return NULL, or what is wrong. */
const char *scan_need(struct scan *, const char *token, struct arena *);
const char *scan_digits(struct scan *, uint64_t most, uint64_t *out); /* decimal */
const char *scan_i64(struct scan *, int64_t *out);
const char *scan_u32(struct scan *, uint32_t most, uint32_t *out);
/* What strbuf_quoted wrote. n: its length, \x00 is allowed; NULL: it is not. */
const char *scan_quoted(struct scan *, struct arena *, const char **out, size_t *n);

int scan_hex(char); /* the digit's value, or -1 */
