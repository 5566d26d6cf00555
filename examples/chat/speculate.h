/* Speculation: tokens are guessed and verified together, several rows in one run of the network. A guess only saves
 * time: every token is drawn from its own row of logits, as if it were decoded alone.
 *
 * That is exact as long as a row's logits are the same bits whatever runs beside it: mcc --strict promises that, and
 * its artifacts say so in their metadata (mcc.strict). Without it the keys of few rows are added up in other parts than
 * those of many, depending on the length. A network may still count its rows itself, so a number of rows is used once
 * the last tokens, decoded one by one, came out with the same bits when they ran together. */
#ifndef SPECULATE_H
#define SPECULATE_H

#include "decoder.h"

enum { SPECULATE_ROWS = 16, SPECULATE_SIZES = 5, SPECULATE_KINDS = 8 };   /* 1, 2, 4, 8, 16 rows */

struct speculate {
    struct decoder *network;
    struct decoder draft;                    /* draft.lib NULL: guesses come from the text */
    float *alone; /* logits of the last tokens as they are alone, a ring of SPECULATE_ROWS */
    int64_t runs, begun; /* how many of those up to the end of the caches; tokens before this run */
    int64_t checked[SPECULATE_SIZES]; /* up to this many tokens that number of rows may be used; -1: never */
    double seconds[SPECULATE_SIZES]; /* of a run, on the average; 0: none yet */
    double drafting; /* of a guess by the draft model */
    double hit[SPECULATE_KINDS]; /* the chance that a guess is right, by how it was found */
    double all, saved; /* seconds of all runs; saved by guesses, less what wrong ones cost */
    int64_t guess[SPECULATE_ROWS], rows; /* rows: of this run */
    int guesses, kind;
    int64_t tried, right; /* guesses */
};

/* draft: an artifact of a smaller network with the same tokens; NULL: none. 0: error says why. */
int speculate_open(struct speculate *s, struct decoder *network, const char *draft, uint32_t threads,
                   const struct decoder_names *names, mcc_error *error);

/* Feeds what the caches lack of the n tokens, guesses behind them. Rows follow: of the last of them, then of each
 * guess; *rows: how many. NULL: error says why. */
const float *speculate_feed(struct speculate *s, const int64_t *ids, int64_t n, int64_t *rows, mcc_error *error);

/* Whether guess i, of the token that row i draws, is this token. */
int speculate_right(struct speculate *s, int64_t i, int64_t token);

/* What the last speculate_feed gave is used: so many guesses were right, and the first n tokens stay. */
void speculate_keep(struct speculate *s, int64_t n, int64_t right);

/* The most rows that were found to be alike. */
int speculate_most(const struct speculate *s);

/* The caches are empty, another text comes. */
void speculate_forget(struct speculate *s);

void speculate_close(struct speculate *s);

#endif
