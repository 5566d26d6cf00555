/* genai_config.json: what onnxruntime-genai's builder says of a decoder and of how to search. */
#ifndef CONFIG_H
#define CONFIG_H

#include <jansson.h>

#include "decoder.h"
#include "draw.h"

enum { CONFIG_ENDS = 32, CONFIG_WHY = 256 };

struct config {
    json_t *json;                         /* the names live in it */
    struct decoder_names names;
    struct decoder_cache caches[3];
    int64_t context;                      /* tokens, at most */
    int64_t end[CONFIG_ENDS];             /* tokens that end an answer */
    size_t ends;
    int64_t seed;                         /* -1: another one each time */
    struct draw draw;                     /* temperature 0 where do_sample is false */
    char why[CONFIG_WHY];
};

/* 0: why says what is wrong. */
int config_read(struct config *c, const char *folder);
int config_ends(const struct config *c, int64_t token);
void config_free(struct config *c);

#endif
