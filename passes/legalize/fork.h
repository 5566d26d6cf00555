/* Two ways on trial: what branch.c (branches of one node) and fork.c (a branch with all that follows it) share. */
#pragma once

#include "passes/legalize/control.h"
#include "passes/legalize/driver.h"

/* BROKEN: cannot run. REFUSED: reported, as an operator without a lowering is: the compilation fails. */
enum outcome { RUNS, BROKEN, REFUSED };

/* One of two ways: a branch, or a branch with what follows it. */
struct side {
    region_id region;            /* legal; under construction, owned by no node */
    uint32_t n;
    struct lowered *results;
    value_id *values;            /* the same as graph values */
    struct fork *sub; /* not NULL: forks again, with results of several ranks, which are those of its sides */
    enum outcome outcome;
    struct diag_list errors; /* BROKEN: all that was said, */
    src_id where; /* the node that cannot run, */
    const char *why; /* and the reason */
};

struct fork {
    struct rule rule; /* of the node whose results differ in rank or type */
    struct ways ways;
    struct side side[2];
    uint32_t output; /* that differs */
    bool again; /* the node itself is walked for each side, too: the sides have no results yet */
};

/* ---- branch.c ---------------------------------------------------------------------------------------------------- */

/* Builds a side: walks it in place and sets s->results or s->sub. false: results are missing. */
typedef bool side_fn(struct rule *, struct side *, void *data);
void side_walk(struct rule *, expr_id cond, bool holds, struct side *, side_fn *, void *data);
struct side side_new(struct builder *, region_id, uint32_t n);
/* The side that can run when the other one cannot; -1: neither. */
int side_alone(const struct side[2]);
/* Neither leads on: what is wrong with them is said now. */
void sides_report(struct rule *, const struct side[2]);
/* Goes on with side k in the place of the If: a run in which the predicate chooses the other one fails, as the node
 * would. */
void side_keep(struct rule *, const struct ways *, int k, const struct side *other, region_id);
/* Can result i of the two sides be one value? Makes it an optional on a side, where it is one on the other. */
bool types_meet(struct rule *, struct side[2], uint32_t i);
/* Appends the core If of two sides, with the values that `pick` lists (NULL: all n) as its results. Where they differ
 * in rank, so does that result from run to run. */
node_id if_append(struct rule *, const struct side[2], const struct ways *, const uint32_t *pick, uint32_t n);
const char *source_name(const struct legalizer *, src_id);

/* ---- fork.c ------------------------------------------------------------------------------------------------------ */

/* Asks walk_rest for a fork at this node. */
bool fork_ask(struct rule *, struct fork *);
