/* Draws a token by the network's logits: temperature, the likeliest so many, the likeliest that together have a chance.
 */
#ifndef DRAW_H
#define DRAW_H

#include <stdint.h>

struct draw_chance {
    float logit;
    int token;
};

struct draw {
    double temperature; /* 0: the likeliest token each time */
    double top_p; /* 1: all */
    double penalty; /* logits of tokens that were there: divided by it above 0, multiplied below; 1: no */
    int64_t top_k; /* 0: all */
    uint64_t state; /* draw_seed */
    struct draw_chance *heap; /* of `room` */
    int room;
};

void draw_seed(struct draw *d, uint64_t seed);

/* A token below n; -1: no memory. seen: the tokens so far, whose logits are lowered by the penalty. */
int draw_token(struct draw *d, const float *logits, int n, const int64_t *seen, int64_t count);

void draw_free(struct draw *d);

#endif
