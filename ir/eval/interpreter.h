/* The reference interpreter: the values of a legal graph on given inputs. */
#pragma once

#include "ir/graph/graph.h"

struct tensor { /* a concrete value */
    enum type_kind kind;
    enum elem elem;
    int32_t rank;
    int64_t *dims;
    void *data; /* row-major, graph width; strings: struct span per element */
    bool present; /* optionals */
    uint32_t n; /* sequences: elements; optional: 0 or 1 */
    struct tensor *item;
};
/* Fills the inputs that are states with what they are at first. */
void graph_states(const struct graph *, struct tensor *in);
/* Runs a legal graph on inputs (one per graph input, in order), keeping every value that wanted[value.i] asks for (NULL
 * entries: not asked). Everything lives in `arena`. Symbols are bound from the inputs' shapes and checked. On failure
 * *text says why. */
enum eval_status graph_eval_values(struct graph *, const struct tensor *in, struct tensor **wanted, struct arena *arena,
                                   const char **text);
/* The same, and shows every wanted value as soon as it is computed: watch may put other elements in its place, from
 * which the interpreter then goes on. */
typedef void eval_watch(void *user, value_id, const struct tensor *);
enum eval_status graph_eval_watched(struct graph *, const struct tensor *in, struct tensor **wanted, eval_watch *watch,
                                    void *user, struct arena *arena, const char **text);

/* Runs the nodes alone that the wanted values need, from what is given: by value, NULL entries are computed. Of a graph
 * whose symbols are all bound by the inputs' shapes. */
enum eval_status graph_eval_from(struct graph *, const struct tensor *in, struct tensor *const *given,
                                 struct tensor **wanted, eval_watch *watch, void *user, struct arena *arena,
                                 const char **text);

/* Makes f64 of all f32 values, constants and element types of a legal graph. False: some operator or value, which *why
 * names, is of bits or of a type that this would change; the graph is as before. Constants that were folded are folded
 * again, in f64. */
bool graph_widen(struct graph *, const char **why);
