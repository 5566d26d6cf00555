/* The search for the fastest arithmetic within an error: which product is computed in which, by what that saves and by
 * what it adds to the outputs' error (--error).
 */
#ifndef MCC_CLI_SEARCH_H
#define MCC_CLI_SEARCH_H

#include "cli/commands/quantize/quantize.h"
#include "passes/passes.h"

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

/* ---- error.c, error_measure.c, error_report.c -------------------------------------------------------------------- */

/* The samples: those that the search sees, some of these, for each product alone, and those that it does not see. */
enum part { PART_SEEN, PART_SCREEN, PART_HELD, PARTS };
/* What a network's outputs are off by on a part: the largest of them. */
struct measured {
    double rms;
    double likely; /* by so much at most on other samples as many, as those here vary: two standard deviations */
    uint32_t n, within; /* samples; of these within the bound, each for itself */
};
struct tried {
    const enum arithmetic *chosen; /* by product */
    struct measured error; /* on samples that are seen */
};
struct error_search {
    struct context *ctx;
    struct options *options, plain; /* plain: for networks that run here */
    const char *model;
    double bound;
    struct trial t;
    struct product_probe probe;
    VEC(struct seen) seen; /* by product: of its operand x */
    uint32_t *operand; /* by product: the first one with the same x */
    struct site_ways *ways; /* by product */
    bool *part[PARTS]; /* by sample */
    uint32_t n_part[PARTS];
    struct deviation *sum; /* by output */
    double *mean; /* by output: its mean sum of squares over all samples */
    double *square, *own; /* by sample: largest squared relative error; relative to mean, to the sample */
    struct measured seen_error, held_error; /* of the last network that was tried */
    VEC(struct tried) tried;
    uint32_t attempts; /* networks that were tried for the budget at hand */
    uint32_t compilations, checks; /* checks: networks that samples of PART_HELD judged */
};
/* Lists the products, their operands' ranges, what each takes and costs. False after a diagnostic. */
bool error_products(struct error_search *);
bool error_ranges(struct error_search *);
bool error_times(struct error_search *);
bool error_costs(struct error_search *);
/* Compiles the network with what was chosen, and runs it on the samples of a part. */
bool error_try(struct error_search *, enum part, struct measured *);
/* The chosen arithmetic as lines of --choose, after the user's own. */
struct text_list error_lines(const struct error_search *);
void error_print(const struct error_search *);
/* Writes the lines as a configuration file. */
bool error_save(const struct error_search *, const char *path);

#endif
