/* What a decoder's ports are named, how long its context is, what ends an answer and how to search: of
 * genai_config.json as onnxruntime-genai's builder writes it, or of a GGUF file. */
#ifndef CONFIG_H
#define CONFIG_H

#include <jansson.h>

#include "decoder.h"
#include "draw.h"
#include "tokens.h"

enum { CONFIG_ENDS = 32, CONFIG_WHY = 256, CONFIG_CONTEXT = 4096 };

struct config {
    json_t *json;                         /* the names live in it; NULL: of a GGUF file */
    struct decoder_names names;
    struct decoder_cache caches[3];
    int64_t context, longest;             /* tokens, at most; what may be asked for */
    int64_t end[CONFIG_ENDS];             /* tokens that end an answer */
    size_t ends;
    int64_t seed;                         /* -1: another one each time */
    struct draw draw;                     /* temperature 0 where do_sample is false */
    char why[CONFIG_WHY];
};

/* 0: why says what is wrong. */
int config_read(struct config *c, const char *folder);

/* Of a network that mcc made of a GGUF file: its metadata (mcc_api.meta) and tokenizer. The context is CONFIG_CONTEXT
 * or less; the likeliest token is taken each time. */
int config_of_meta(struct config *c, const char *meta, const struct tokens *t);

int config_ends(const struct config *c, int64_t token);
void config_free(struct config *c);

#endif
