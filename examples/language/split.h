/* Cuts text into the pieces that byte pairs are merged in, as the regular expressions of common tokenizers do. */
#ifndef SPLIT_H
#define SPLIT_H

#include <stddef.h>
#include <stdint.h>

enum split_rule {
    SPLIT_GPT2,          /* the expression of GPT-2, which ByteLevel has built in */
    SPLIT_WORDS_3,       /* Llama-3: at most three digits together */
    SPLIT_WORDS_1,       /* Qwen2: each digit alone */
    SPLIT_DIGITS,        /* runs of numbers apart from the rest */
    SPLIT_DIGITS_1,      /* each number apart */
    SPLIT_MARKS          /* before each U+2581, which stands for a space */
};

/* The rule that has this expression; -1: none. */
int split_rule_of(const char *expression);

/* Where the piece ends that begins with text; bytes > 0. */
size_t split_next(enum split_rule rule, const char *text, size_t bytes);

/* The code point at text and its bytes; a byte that begins none is one by itself, as -1. */
int32_t split_point(const char *text, size_t bytes, size_t *used);

#endif
