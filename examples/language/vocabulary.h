/* What readers of tokenizers share: the letters that ByteLevel writes bytes as, merges, bytes as tokens. */
#ifndef VOCABULARY_H
#define VOCABULARY_H

#include "bpe.h"
#include "tokens.h"

enum { VOCABULARY_POINTS = 512 };

/* The byte that each of ByteLevel's code points stands for: visible ones themselves, the others from 256 on; -1. */
void vocabulary_points(int byte[VOCABULARY_POINTS]);

/* A token's text as the bytes it stands for; as it is where byte is NULL or a letter stands for none. The copy is the
 * caller's; NULL: no memory. */
char *vocabulary_text(const char *text, size_t bytes, const int *byte, size_t *n);

/* 0: a and b or what they become are no tokens, or there is no memory. */
int vocabulary_merge(struct bpe *b, const char *left, size_t left_bytes, const char *right, size_t right_bytes,
                     const int *byte);

/* b->byte: of tokens of one byte; named: of those whose text is <0xNN>. */
void vocabulary_bytes(struct bpe *b, int named);

/* Longer ones first. */
void tokens_sort_added(struct tokens *t);

/* t->shown: spaces for U+2581, bytes for <0xNN>. 0: no memory. */
int tokens_show_marks(struct tokens *t);

#endif
