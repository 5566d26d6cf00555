/* Decision trees as tables over flat node numbers: what the tree ensembles of ai.onnx.ml have in common. */
#pragma once

#include "passes/legalize/ml/ml.h"

enum { FOREST_TABLE_MAX = 1 << 26 };    /* elements of a table */

/* What a node compares its feature with its limit by. The six modes of ONNX come down to three: x < v is x <= the
 * number before v, and x != v is x == v with the branches swapped. */
enum branch { BRANCH_NONE /* a leaf */, BRANCH_LE, BRANCH_GE, BRANCH_EQ };

struct forest {
    int64_t n, n_trees, depth; /* nodes, leaves among them; depth: nodes on the longest path */
    int64_t *feature, *yes, *no, *root; /* by node; root: by tree. Leaves lead to themselves. Slots: no `yes` */
    int64_t group, real; /* of slots: trees of a group; 0: there are no groups. From tree `real` on, they fill one up */
    double *limit;
    uint8_t *branch, *missing; /* missing: a NaN goes where `yes` says, whatever the comparison says */
    enum elem elem; /* limits and features are compared as this */
};

/* Which nodes vote for what: lists of n elements. */
struct votes {
    int64_t n;
    const int64_t *at, *id;
    const double *weight;
    enum elem elem;
};

/* Names of the attributes that hold the votes of TreeEnsembleClassifier and TreeEnsembleRegressor. */
struct vote_names {
    const char *ids, *trees, *nodes, *weights, *tensor;
};

/* Both read and check the node's attributes for an operand of element type x; false after a report. The first is for
 * TreeEnsembleClassifier and TreeEnsembleRegressor, the second for TreeEnsemble. */
bool forest_read_named(struct rule *, const struct vote_names *, enum elem x, struct forest *, struct votes *);
bool forest_read_indexed(struct rule *, enum elem x, struct forest *, struct votes *);

/* Room for n nodes, all of them leaves. */
void forest_room(struct rule *, struct forest *, int64_t n, enum elem x, enum elem limits);

/* Turns nodes into slots. The two children of a node become neighbours, `no` first, so a step reads one number. A node
 * with several parents has a slot for each. Votes of a leaf become votes of its slots. Slot t is the root of tree t.
 * False after a report. */
bool forest_slots(struct rule *, struct forest *, struct votes *);
/* Of slots: the leaf that each row of x [rows, features] comes to in each tree: i32 [rows, trees], or
 * [groups, rows, trees of a group]. {0} after a report. */
value_id forest_walk(struct rule *, const struct forest *, value_id x);

/* Numbers from a list of floats, or from a tensor of floats; NULL and n = 0 where there are neither. elem: their
 * type. */
const double *ml_numbers(struct rule *, const char *list, const char *tensor, uint32_t *n, enum elem *elem);
