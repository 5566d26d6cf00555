/* Byte pair encoding: tokens by number and by text, pairs of them that become one, the better ones first. */
#ifndef BPE_H
#define BPE_H

#include <stddef.h>
#include <stdint.h>

struct bpe_text {
    char *text;          /* NULL: no token has the number */
    uint32_t bytes;
};

struct bpe_pair {
    int32_t left, right, made;
    uint32_t rank;       /* the smaller, the earlier */
};

struct bpe {
    struct bpe_text *token;
    int32_t n;           /* numbers */
    int32_t *slot;       /* by text */
    uint32_t slots, used;
    struct bpe_pair *pair;
    uint32_t pairs, merges;
    float *score;        /* of each token: neighbours become the best one; NaN: never; NULL: merges go by pairs */
    int32_t byte[256];   /* the token that is one byte; -1 */
    int32_t unknown;     /* for what no token is; -1: that is left out */
    int letters;         /* pieces begin as letters, with bytes for those that are no token; 0: as bytes */
    int fuse;            /* unknown ones together are one */
    int whole;           /* a piece that is a token stays one, whatever the pairs say */
};

struct bpe_ids {
    int64_t *id;
    size_t n, room;
};

enum { BPE_NUMBERS = 1 << 20 }; /* more tokens than any vocabulary has */

/* 0: no memory, or a number beyond BPE_NUMBERS. The first of two tokens of one text is found. */
int bpe_put(struct bpe *b, int64_t id, const char *text, size_t bytes);
int32_t bpe_find(const struct bpe *b, const char *text, size_t bytes);
int bpe_merge(struct bpe *b, int32_t left, int32_t right, int32_t made);

/* The pair, or a free place (left is negative). */
struct bpe_pair *bpe_pair(const struct bpe *b, int32_t left, int32_t right);

int bpe_ids_put(struct bpe_ids *ids, int64_t id);

/* Adds the bytes of a letter that is no token; the unknown token where a byte is none either. begun: of the piece. */
int bpe_put_bytes(const struct bpe *b, const char *text, size_t bytes, size_t begun, struct bpe_ids *ids);

/* merge.c: the two ways of bpe_encode, n log n steps for n bytes. By pairs: the tokens from begun on. 0: no memory. */
int merge_by_scores(const struct bpe *b, const char *piece, size_t bytes, struct bpe_ids *ids);
int merge_by_pairs(const struct bpe *b, struct bpe_ids *ids, size_t begun);

/* Adds the tokens of a piece; 0: no memory. */
int bpe_encode(const struct bpe *b, const char *piece, size_t bytes, struct bpe_ids *ids);

void bpe_free(struct bpe *b);

#endif
