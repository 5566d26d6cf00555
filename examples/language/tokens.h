/* Tokenizers of a tokenizer.json of Hugging Face's tokenizers or of a GGUF file: byte pair encoding by bytes (GPT-2,
 * Llama-3, Qwen, SmolLM2) or by letters with U+2581 for spaces (Llama-2, Mistral, Gemma). What it asks for beyond that
 * is refused with a word. */
#ifndef TOKENS_H
#define TOKENS_H

#include <jansson.h>

#include "bpe.h"
#include "split.h"

enum { TOKENS_RULES = 4, TOKENS_FIRST = 4, TOKENS_WHY = 256 };

struct tokens_added {
    int64_t id;
    const char *text;
    size_t bytes;
    int special, left, right;     /* takes the spaces before it, behind it */
};

struct tokens {
    struct bpe bpe;
    struct bpe_text *shown;       /* as text; NULL: the token as it is */
    struct tokens_added *added;   /* longer ones first */
    size_t n_added;
    enum split_rule rule[TOKENS_RULES];
    int rules;
    int marks;                    /* U+2581 stands for a space */
    enum { PREPEND_NEVER, PREPEND_FIRST, PREPEND_MISSING, PREPEND_ALWAYS } prepend;
    int strip;                    /* a text's first space is none */
    int64_t first[TOKENS_FIRST];  /* tokens that begin every text */
    int n_first;
    char why[TOKENS_WHY];
};

/* The file as JSON, bounded in size; NULL: why says what is wrong. */
json_t *json_read(const char *path, char why[TOKENS_WHY]);

/* 0: why says what is wrong, and nothing stays. */
int tokens_read(struct tokens *t, const char *path);

/* The same of what an artifact says of its model, mcc_api.meta. */
int tokens_read_meta(struct tokens *t, const char *meta);

/* Whether a token of this text ends an answer, in every vocabulary that has it. */
int tokens_ends(const char *text);

/* The number of an added token; -1. */
int64_t tokens_added(const struct tokens *t, const char *text);

/* Adds the tokens of a text. Special tokens are not looked for from `from` up to `to`: what a user typed. 0: why says
 * it. */
int tokens_encode(struct tokens *t, const char *text, size_t bytes, size_t from, size_t to, struct bpe_ids *ids);

/* The same of a text whose bytes are typed where typed is not 0; NULL: nowhere. */
int tokens_encode_typed(struct tokens *t, const char *text, size_t bytes, const char *typed, struct bpe_ids *ids);

/* What the token shows; special tokens show nothing. */
const char *tokens_text(const struct tokens *t, int64_t id, size_t *bytes);

void tokens_free(struct tokens *t);

#endif
