/* Networks that are compiled for this machine and run on samples, for what rounding does to their outputs
 * (struct error_search).
 */
#pragma once

#include "cli/commands/compare/rounding.h"

/* ---- samples.c --------------------------------------------------------------------------------------------------- */

struct samples {
    uint32_t n, n_inputs;
    struct file_tensor *of; /* n times n_inputs */
    const char **from; /* by sample: the file of its first input */
    bool drawn; /* nobody gave any */
};
/* Those of --sample for the inputs of a network, else drawn ones. False after a diagnostic. */
bool samples_load(struct session *, const struct text_list *given, struct samples *out);

/* ---- trial.c ----------------------------------------------------------------------------------------------------- */

struct trial {
    struct context *ctx;
    const struct options *options; /* as they were given: samples, sizes */
    struct session s; /* of the network at hand */
    struct samples samples; /* from trial_observe on */
    uint32_t n_want; /* outputs, the first ones of each network */
    const char **names; /* of these */
    struct tensor *want; /* n samples times n_want: what they are in f32 */
    struct deviation *error; /* by output, of the last run on samples */
    struct product_probe *probe; /* of the networks that are compiled; NULL: none */
    int64_t product; /* what their input PROBE_INPUT is */
    void (*event)(void *user, uint32_t node, int end,
                  uint64_t ns); /* of kernels, on one thread; NULL: nobody listens */
    void *event_user;
    const bool *use; /* by sample: those to run on; NULL: all. Not the first time */
};
/* How such networks are compiled: nothing is said or written, and no choices are made. */
void trial_options(const struct options *given, struct options *plain);
/* The graph's outputs are what counts. */
void trial_outputs(struct trial *, const struct graph *);
/* Compiles the model up to stage `last` (NULL: all) in a context of its own, and calls use, if any, with what was made.
 * False after a diagnostic. */
typedef void compiled_fn(void *user, struct compilation *);
bool compile_apart(struct context *, const struct options *, const char *model, const char *last,
                   struct product_probe *, compiled_fn *use, void *user);
/* Compiles the model for this machine, in memory that is given back, and calls use with t->s open. False after a
 * diagnostic. */
bool trial_run(struct trial *, const struct options *compiling, const char *model, void (*use)(void *user), void *user);
/* Runs the open network on all samples and calls see, if any, with the outputs of each. The first time it reads the
 * samples, which are for all networks like this one, and takes its first t->n_want outputs as the right ones. False
 * after a diagnostic. */
typedef bool trial_see(void *user, uint32_t k, DLManagedTensorVersioned **out);
bool trial_observe(struct trial *, trial_see *, void *user);
/* The largest of the outputs' errors, by one measure. */
double trial_worst(const struct trial *, double (*measure)(const struct deviation *));
const void *trial_data(const DLTensor *);
