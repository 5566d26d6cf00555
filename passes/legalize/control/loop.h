/* Loops under construction, whatever their source: shared by loop.c and loop_core.c, which
 * make them, and loop_rules.c. */
#pragma once

#include "passes/legalize/control.h"

struct loop_lowering;
/* One iteration: next condition, carried values and scan elements. false after a diagnostic. */
typedef bool body_fn(struct rule *, struct loop_lowering *, struct lowered iter, struct lowered cond,
                     const struct lowered *carried, struct lowered *next_cond, struct lowered *next,
                     struct lowered *scan);
/* Sets the rule's results from what the loop carries and collects. false after a diagnostic. */
typedef bool finish_fn(struct rule *, const struct loop_lowering *);
struct loop_lowering {
    body_fn *body;
    finish_fn *finish;                   /* for loop_run */
    region_id region;                    /* of the file: rule_loop, rule_scan */
    const struct counted_loop *counted;  /* rule_counted_loop */
    value_id trips_value;                /* rank-0 i64; {0}: forever */
    expr_id trips;                       /* number of trips where the condition does not end it early; {0}: unknown */
    value_id cond;                       /* rank-0 bool; {0}: true */
    uint32_t n_carried, n_scan;
    struct lowered *carried, *scan;         /* in: initial values; out: results */
    int64_t peeled;                      /* iterations that stand in front of it: the number of its own first one */
    bool forked;                         /* r's results are those of both cases already */
    const struct lowered *first;            /* scan elements of such an iteration; NULL: peeled is 0 */
    /* rule_scan: */
    uint32_t n_inputs;
    value_id *inputs;
    int32_t *in_axis;
    bool *in_reverse;
};

/* Is there a first iteration? Unknown: *starts says it at run time, or is {0}: not even that. */
enum truth loop_starts(struct rule *, const struct loop_lowering *, expr_id *starts);
/* Makes the core loop. UNSETTLED: carried value *which has another type after an iteration than before it, and nothing
 * is left of the attempt. (loop_core.c) */
enum core { BUILT, FAILED, UNSETTLED };
enum core loop_core(struct rule *, struct loop_lowering *, uint32_t *which);

/* Makes the loop in the current place, unrolled or not: carried and scan become its results. false after a
 * diagnostic. */
bool loop_build(struct rule *, struct loop_lowering *);
/* The same, and r's results through finish. Serves more: where it is dynamic whether there is an iteration, and
 * the types of the results depend on it, what follows the loop is looked at for both cases (branch.c). */
bool loop_run(struct rule *, struct loop_lowering *);
