/* The search over products of a network that is compiled in each arithmetic: --error, --precision=auto, mcc quantize */
#pragma once

#include "cli/commands/quantize/quantize.h"
#include "cli/commands/quantize/search.h"

/* The samples: those that the search sees, some of these, for each product alone, and those that it does not see. */
enum part { PART_SEEN, PART_SCREEN, PART_HELD, PARTS };
struct error_search {
    struct context *ctx;
    struct options *options, plain; /* plain: for networks that run here */
    const char *model, *option; /* option: whose search it is */
    double bound;
    double (*size)(const struct deviation *); /* of an output's error */
    bool holds; /* some samples are not seen */
    bool timed, costed; /* ways[].of[].ns, .square are known */
    /* Compiles the network with what is chosen, and calls use with t.s open; NULL: by lines of --choose. False after a
     * diagnostic. */
    bool (*network)(struct error_search *, void (*use)(void *user), void *user);
    void *network_user;
    struct search s;
    struct trial t;
    struct product_probe probe;
    VEC(struct seen) seen; /* by product: of its operand x */
    uint32_t *operand; /* by product: the first one with the same x */
    bool *part[PARTS]; /* by sample */
    uint32_t n_part[PARTS];
    double *mean; /* by output: its mean sum of squares over all samples */
    double *square, *own; /* by sample: largest squared relative error; relative to mean, to the sample */
    struct measured held_error; /* of the last network that was tried */
    uint32_t compilations;
    bool cached; /* the constants in f32 fit into the caches */
    const char *folder; /* --metric: of the outputs at hand; NULL: nobody asks */
    struct strbuf list; /* samples.txt of it */
    bool asking; /* the outputs of the run are for the program */
    double exact_metric[PARTS]; /* of the outputs in f32 */
};
/* What is tried, the more exact first. */
extern const enum arithmetic error_candidates[];
extern const uint32_t error_n_candidates;

/* ---- error.c ----------------------------------------------------------------------------------------------------- */

/* A search in the network of a file, named as `option`. Session memory. */
struct error_search *error_new(struct context *, struct options *, const char *model, const char *option);
/* Searches. What the options round besides counts; false after a diagnostic, where that alone is too much, too. */
bool error_run(struct error_search *);

/* ---- error_products.c: which products there are, their operands' ranges and their times. False after a diagnostic. */

bool error_products(struct error_search *);
bool error_ranges(struct error_search *);
bool error_times(struct error_search *); /* the cost model's */
bool error_clock(struct error_search *); /* measured here */

/* ---- error_measure.c: errors. False after a diagnostic. */

/* Runs the open network on the samples, of which it finds the parts the first time, and calls see with the outputs of
 * those that are seen. */
bool error_observe(struct error_search *, trial_see *see, void *user);
/* Of each product in each arithmetic that is possible. */
bool error_costs(struct error_search *);
/* Compiles the network with what was chosen, and runs it on the samples of a part. */
bool error_try(struct error_search *, enum part, struct measured *);

/* ---- metric.c: what the user's program says of outputs. False after a diagnostic. */

/* Calls use(e) with a folder for outputs and the metric of f32's, and removes the folder. */
bool metric_run(struct error_search *, bool (*use)(struct error_search *));
/* Empties the folder; writes an output of a sample into it; runs the program on it. */
void metric_begin(struct error_search *);
bool metric_put(struct error_search *, uint32_t k, uint32_t output, const DLTensor *);
bool metric_ask(struct error_search *, double *out);

/* ---- error_report.c ---------------------------------------------------------------------------------------------- */

/* The chosen arithmetic as lines of --choose, after the user's own. */
struct text_list error_lines(const struct error_search *);
void error_print(const struct error_search *);
/* A line for each product: its time in each arithmetic that is possible. */
void error_print_times(const struct error_search *);
/* A line for each output's error in the network that was found. */
void error_print_outputs(const struct error_search *, struct strbuf *);
/* What mcc report draws of the search: rows of --searched. Chooses anew for each point of the frontier, so it comes
 * last. */
struct text_list error_rows(struct error_search *);
/* Writes the lines and the rows that are in e->options by now as a configuration file. */
bool error_save(const struct error_search *, const char *path);
