/* Shared by the rules of control flow: nested regions of the legal graph and dims that differ between ways. */
#pragma once

#include "passes/legalize/legalize.h"

/* A region under construction: between the two calls the builder appends to it. It belongs to no node yet. */
struct nest {
    region_id outer, inner;
};
bool nest_begin(struct builder *, struct nest *);
void nest_end(struct builder *, const struct nest *);

/* Says which value, a result or a parameter, defines the dim: a symbol made by b_symbol. */
void fresh_bind(struct builder *, expr_id dim, value_id);
/* As fresh_bind for a symbol that another value defined before. */
void fresh_rebind(struct builder *, expr_id dim, value_id);
/* Does the expression use a symbol that only exists within region inner? */
bool dim_escapes(const struct graph *, region_id inner, expr_id, uint32_t depth);
/* Makes *a the type of a sequence or optional that is an *a or a *b, and leaves dims open that only exist within region
 * inner (there may be none: {0}). false: no such type exists. */
bool type_meet(struct graph *, region_id inner, struct type *a, const struct type *b);
/* The one bool element of v, as far as it is known now. */
enum truth value_truth(struct builder *, value_id v);
/* As far as the place at work knows it: inside of a branch, after a check. cond is 0 or 1. */
enum truth fact_find(const struct legalizer *, expr_id cond);
/* One of two ways to a node's n results: appends to the current region. false after a diagnostic. */
typedef bool way_fn(struct rule *, const void *data, struct lowered *results, uint32_t n);
struct ways {
    value_id cond_value; /* bool, rank 0: way 0 if true, else way 1 */
    expr_id cond; /* the same as an expression, not decided */
    way_fn *walk;
    const void *data[2]; /* for walk */
    const char *name[2]; /* "the then branch" */
};
/* Sets r's results to those of the way that the run chooses: whatever an If may need (branch.c). */
bool rule_either(struct rule *, const struct ways *);
/* A rule that has to know whether cond, which is 0 or 1 and not decided here, holds: its node, with all that follows,
 * is walked again where it does and where it does not, and there fact_find tells. To be asked before anything that has
 * an effect of its own, an assert for one, is appended. The names are those of the two ways, for messages: "2 axes",
 * "another number of axes". The rule returns false at once. (fork.c) */
void rule_fork(struct rule *, expr_id cond, const char *holds, const char *fails);
/* Element of a run-time sequence at a rank-0 position; open dims become symbols. {0} after a diagnostic. */
value_id sequence_item(struct rule *, value_id seq, value_id at);
/* What a run-time optional holds; the run fails where it is empty. {0} after a diagnostic. */
value_id optional_content(struct rule *, value_id);
/* SequenceMap over a run-time sequence (operand 0): a loop of SequenceAt, body, SequenceInsert. */
bool sequence_map_loop(struct rule *, region_id body);
