/* A decoder that mcc compiled, with its caches: tokens go in, the logits of the last one come out.
 *
 * Inputs and outputs go by their names. Where every cache may be input and output in one piece of memory
 * (mcc_port.alias), there is one buffer for each, and a step writes only its own rows: of `rows` from the start, or,
 * where the length has a maximum (mcc_dim.room), of so many, and past and present are as long as there are tokens.
 * A cache of a window has two, which take turns. Where not, the network allocates its outputs, and what it gave as
 * caches are the inputs of the next step. */
#ifndef DECODER_H
#define DECODER_H

#include "mcc_load.h"

/* A cache's input and output, %d standing for the layer. fixed: the first step's answer stays, as that of attention to
 * an encoder. */
struct decoder_cache {
    const char *past, *present;
    int fixed;
};

/* NULL: the network has none. caches end with a NULL in `past`. */
struct decoder_names {
    const char *ids, *mask, *positions, *logits;
    const struct decoder_cache *caches;
    int64_t window;              /* rows of the caches that hold a window and not the whole text; 0: there are none */
};

/* What follows .lora_A and .lora_B in names of inputs: nothing where mcc --lora made them. */
#define DECODER_LORA_ENDS {"", ".weight", ".MatMul.weight"}

struct decoder_port {
    int output;                  /* of a cache: the output that goes on with it; -1: no cache */
    int fixed, bound;            /* bound: by decoder_bind */
    int adapts;                  /* of an adapter: 1 + the dim that is the rank, which is open; 0: of none */
    int64_t room;                /* of a cache that grows within a maximum; 0: it does not */
    int64_t window; /* rows of a cache of a window, which past and present have alike; 0: it is of the whole */
    int64_t shape[8], present_shape[4], strides[4];
    DLTensor tensor, present; /* present: of a shared cache, the output */
    DLManagedTensorVersioned *held; /* the step before gave it */
};

struct decoder {
    mcc_lib *lib;
    const mcc_api *api;
    mcc_ctx *ctx;
    struct decoder_port *in; /* of every input */
    int ids, mask, positions, logits, shared;
    int windows; /* caches of a window: what they have forgotten cannot be had back */
    int64_t rows, n, vocabulary; /* room for tokens, tokens that the caches hold, words */
    int64_t slots; /* sequences that the caches have room for (streams.h); decoder_feed is of the first */
    int64_t *counted; /* 0, 1, 2, ... rows */
    int64_t *ones;
    float *row; /* the logits */
    int64_t row_tokens;
    DLManagedTensorVersioned **made;
    const DLTensor **ins;
    DLTensor **outs;
};

/* rows: tokens that the caches have room for; a network's maximum may make d->rows less. lib is the decoder's from now
 * on. On failure nothing is left open. */
int decoder_new(struct decoder *d, mcc_lib *lib, const struct decoder_names *names, int64_t rows, int64_t slots,
                mcc_error *error);

/* mcc_load and decoder_new. */
int decoder_open(struct decoder *d, const char *path, uint32_t threads, const struct decoder_names *names, int64_t rows,
                 mcc_error *error);

/* Data of another input, which lives until it is bound anew. shape is copied. */
int decoder_bind(struct decoder *d, const char *name, const void *data, int rank, const int64_t *shape,
                 mcc_error *error);

struct adapter;

/* The next runs have this adapter of the network (adapter.h), which lives until the last of them; NULL: none. Pointers
 * are set, nothing is copied. */
void decoder_adapt(struct decoder *d, const struct adapter *a);

/* The logits of the last of n tokens, valid until the next call; NULL: error says why. */
const float *decoder_feed(struct decoder *d, const int64_t *ids, int64_t n, mcc_error *error);

/* Feeds what the caches lack of the n tokens from the first one on. Logits of all rows would take much memory for a
 * long text, so a network that gives them gets it in pieces. */
const float *decoder_feed_all(struct decoder *d, const int64_t *ids, int64_t n, mcc_error *error);

/* Whether decoder_row has all rows, and decoder_keep forgets: caches are in place, of the whole text, and logits are
 * not the last one's alone. */
int decoder_rows(const struct decoder *d);

/* The logits of token i of those that decoder_feed was given last. */
const float *decoder_row(const struct decoder *d, int64_t i);

/* Forgets what is behind the first n tokens. */
void decoder_keep(struct decoder *d, int64_t n);

/* Forgets all tokens. */
void decoder_reset(struct decoder *d);

void decoder_close(struct decoder *d);

#endif
