/* Several sequences in one network that mcc compiled, each with caches of its own: one run makes the next token of all
 * that have the same adapter.
 *
 * The caches of all sequences lie behind one another, [slots, heads, rows, size]. The streams that are alive are the
 * first ones, those of one adapter side by side, so a run takes a part of the slots: when a stream comes or goes, one
 * stream of each adapter after it changes its place. How many tokens each has, the network learns from the
 * mask, so the decoder must be of the kind that writes new rows there (GroupQueryAttention, networks of GGUF files). */
#ifndef STREAMS_H
#define STREAMS_H

#include "adapter.h"
#include "decoder.h"

struct stream {
    int64_t held; /* tokens in its caches */
    const struct adapter *adapter; /* NULL: none */
    void *user; /* the caller's */
};

struct streams {
    struct decoder decoder;
    int64_t n; /* streams that are alive */
    struct stream *of;
    int64_t *given, *mask, *places;
    float *logits; /* [slots, words] */
};

/* lib is the streams' from now on. On failure nothing is left open. */
int streams_open(struct streams *s, mcc_lib *lib, const struct decoder_names *names, int64_t rows, int64_t slots,
                 mcc_error *error);

/* A new stream without tokens; there must be a free slot. Others may have other numbers afterwards: user says who is
 * who. The adapter lives until the stream is removed. */
void streams_add(struct streams *s, const struct adapter *adapter, void *user);

/* The stream goes. Others after it may have other numbers afterwards. */
void streams_remove(struct streams *s, int64_t stream);

/* Feeds one stream; the logits of the last token, until the next call. NULL: error says why. */
const float *streams_feed(struct streams *s, int64_t stream, const int64_t *ids, int64_t n, mcc_error *error);

/* Feeds each stream its token, or -1: nothing; a run for each adapter that has a token to feed. Logits [streams,
 * words]; what a stream without a token has there is nothing. NULL: error says why. */
const float *streams_step(struct streams *s, const int64_t *ids, mcc_error *error);

void streams_close(struct streams *s);

#endif
