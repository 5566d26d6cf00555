/* The search for the fastest arithmetic within a bound, by what a product saves in it and by what it adds to the
 * outputs' error: --error, --precision=auto and mcc quantize.
 */
#pragma once

#include "cli/commands/quantize/trial.h"
#include "ir/graph/probe.h"

/* ---- search.c ---------------------------------------------------------------------------------------------------- */

/* What a product costs in an arithmetic. */
struct way {
    bool possible;
    double ns; /* of its kernels */
    double square; /* of what it alone adds to the outputs, over theirs: the largest of all outputs */
};
struct site_ways {
    struct way of[ARITHMETICS]; /* F32 is always possible and adds nothing */
    enum arithmetic chosen;
};
/* Chooses an arithmetic for each of n products: near the least time with a sum of squared errors of at most `most`. The
 * squares of uncorrelated errors add up. */
void search_choose(struct arena *, struct site_ways *, uint32_t n, double most);
double search_ns(const struct site_ways *, uint32_t n);
/* The sum of squared errors of what is chosen, each product's alone. */
double search_square(const struct site_ways *, uint32_t n);

/* What a network's outputs are off by on some samples: the largest of them. */
struct measured {
    double rms;
    double deviation; /* of the samples' squared errors: standard deviation */
    double likely; /* by so much at most on other samples as many, as those here vary: two standard deviations */
    uint32_t n, within; /* samples; of these within the bound, each for itself */
    struct deviation *outputs; /* of each */
    double metric; /* what the user's program says of them */
    double part; /* of what is allowed: 1 is just within */
};
struct tried {
    const enum arithmetic *chosen; /* by product */
    struct measured error; /* on samples that are seen */
    double ns;
};
/* A search. The functions get user and return false after a diagnostic; `try` sets error.part at least. */
struct search {
    struct context *ctx;
    struct site_ways *ways; /* by product */
    uint32_t n;
    double first; /* budget of squared error to begin with */
    bool hopeful; /* everything at its fastest comes first, before anything is measured; confirm is NULL */
    bool base; /* with all products in f32 there is an error already */
    bool (*try)(void *user, struct measured *error); /* the network with what is chosen */
    bool (*measure)(void *user); /* ways[].of[].square */
    bool (*confirm)(void *user, double *part); /* as measured.part, of unseen samples; NULL: there are none */
    void *user;
    struct measured error; /* of what is chosen */
    VEC(struct tried) tried;
    uint32_t attempts, checks; /* networks tried for the budget at hand; that `confirm` was asked about */
};
/* Leaves ways[].chosen within what is allowed, and search.error: part above 1 where not even f32 is. */
bool search_run(struct search *);
bool search_all_exact(const struct search *);
