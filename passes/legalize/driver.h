/* What legalize.c shares with the files that walk regions: state of one run of the pass. */
#pragma once

#include "passes/legalize/legalize.h"

struct rule_row {
    const char *domain, *op;
    int32_t since;
    rule_fn *rule;
    const char *rule_name;
    int param;
    const char *note;
};
/* The row with the largest version <= version; NULL: no such operator, or none so old. */
const struct rule_row *row_find(const char *domain, const char *op, int32_t version);

/* Operators that could not be served, one record per (domain, operator, version, reason). */
struct refusal {
    const char *domain, *op, *reason;
    const char *types;           /* of the first one's operands: "f32[n,4], i64[]" */
    const char *attributes;      /* the first one's: "axis=1, mode='linear'" */
    int32_t version;
    uint32_t count;
    src_id first[3];
};

/* A function call being inlined: where its attribute references look. */
struct frame {
    const struct frame *caller;
    const struct model_function *function;
    const struct node *call;
    uint32_t depth;
};

/* What follows a node is walked for each of two ways (fork.c). */
struct fork;

/* Nodes of one region, in its order, that are walked one after the other. */
struct stretch {
    region_id region;
    const node_id *nodes;
    uint32_t n;
    const uint32_t *result; /* the places of the region's results that come of them; NULL: 0, 1, ... */
    uint32_t n_results;
};

/* What forks cost: the outermost one being walked began at `start`, those before it cost `over` more than is free. */
struct spent {
    uint32_t n, start;
    uint64_t over;
};

/* A predicate that is known to hold, or not to, at the place at work: inside of a branch, or after an assert. */
struct fact {
    expr_id cond;
    bool holds;
};

/* A value that products by weights in blocks read: its bytes, scales and offsets (quant/block_product.c). */
struct block_quantized {
    value_id x, q[3];
    region_id region;
    int64_t size, bits;
    double zero;
};
/* A value quantized by a range, for all products that choose the same. */
struct calibrated {
    value_id x;
    struct operand_range range;
    region_id region;
    const struct quantized *bytes;
};
/* What a matrix of GGUF's blocks is made of (quant/ggml.c). */
struct ggml_parts {
    value_id w, part[5];
    region_id region;
};
/* What a specification puts in the place of a dim, and the first input that says so. */
struct dim_spec {
    expr_id dim;
    const char *by;
};
struct rolled {
    uint32_t turn; /* legalizer.loop_turn */
    int64_t trips;
};
/* What has been learned of the sizes: for graph.size_checks. */
struct learned {
    struct arena *arena;
    VEC(struct size_check) checks;
};
struct legalizer {
    struct context *ctx;
    const struct graph *from;
    struct graph *to;
    struct builder b;
    struct lowered *map;              /* by imported value id */
    bool *live;                    /* by imported node id */
    uint32_t *waits;               /* by imported node id: its place among walk.c's nodes that wait, where it does */
    VEC(uint32_t) cond_waits;      /* by condition: the same for a node that asks for a fork about it */
    const struct legalize_options *options;
    const struct input_spec **spec; /* by input of the imported graph: what the options say of it; NULL: nothing */
    struct dim_spec *dim_specs; /* by dim (expr_id.i) of the imported inputs */
    uint32_t n_dim_specs;
    VEC(sym_id) stated; /* sizes that the file's types are written in and options, or what was learned, replace */
    VEC(expr_id) stated_now; /* by these */
    bool sizes_unstated;            /* they allow none that the file speaks of: its sizes say nothing */
    VEC(struct rolled) rolled; /* by source: the last loop that did not unroll */
    uint32_t n_loops, loop_turn; /* loops being built, one inside of the other; outermost ones up to now */
    const struct frame *frame;
    VEC(struct block_quantized) block_quantized;
    VEC(struct ggml_parts) ggml;
    VEC(struct calibrated) calibrated;
    value_id probe; /* the input PROBE_INPUT; {0}: there is none */
    VEC(struct refusal) refusals;
    struct arena *arena; /* the legal graph's */
    struct fork *fork; /* that the node just walked asks for; NULL: none */
    region_id inlined; /* walked in the place of the node that holds or calls it, */
    struct fork *passed_on; /* which a fork in it has reached the end of, with results of several ranks */
    VEC(struct fact) facts;
    const struct diag_mark *trial; /* of the innermost walk on trial: it ends with its first error; NULL: none */
    src_id split; /* of the node that the innermost rule_fork is about; {0}: none */
    uint32_t n_forks; /* forks being walked, one inside of the other */
    struct spent fork_nodes; /* nodes walked for forks, */
    struct spent fork_legal; /* and legal nodes that came of them */
    uint32_t fork_looks; /* nodes looked at for what depends on forks */
};

/* The types of the inputs, as the file and the options say; dims that neither names get symbols. NULL after an error */
struct type *inputs_settle(struct context *, const struct graph *imported, const struct legalize_options *);
/* One walk over the imported graph; NULL after an error. */
struct graph *legalize_once(struct context *, const struct graph *imported, const struct legalize_options *,
                            const struct type *inputs, const struct learned *);
/* What has been learned to stand in the symbol's place: a number or another symbol; {0}: nothing. */
expr_id size_replaced(struct exprs *, const struct learned *, sym_id);
/* Narrows the symbols of the inputs' dims to what every run of the legal graph checks: true when some got narrower. */
bool facts_learn(struct graph *, struct learned *);
/* Gives symbols with sizes for which all outputs are empty a case of their own (symbol.filled), where that is worth it.
 * NULL: there are none; else what empties_hold compares a graph with that was made since. */
struct empties *empties_find(struct graph *);
/* Are the outputs' dims in this graph those of that one also where symbols are below their bounds? */
bool empties_hold(struct graph *, const struct empties *, const struct learned *);
/* A product of a float by a constant, as arithmetic.c of quant/ sees it. */
struct product_form {
    bool is_conv, takes_int8;
    int32_t out_axis; /* of the constant */
    uint32_t first; /* the operand that is computed; the constant follows */
};
/* Is the node one? */
bool product_form(const struct rule *, struct product_form *);
/* Its operands as they were chosen to be. False after a diagnostic. */
bool product_choose(struct rule *, const struct product_form *);
/* After the rule of a node: lists it for the probe if it is a product (else NULL), and computes it in another
 * arithmetic as well. False after a diagnostic. */
bool node_probed(struct rule *, rule_fn *, const struct product_form *);
/* The probe's further input, after the network's own, and further outputs, after all. */
void probe_begin(struct legalizer *);
void probe_end(struct legalizer *);
void node_walk(struct legalizer *, const struct node *);
void node_poison(struct legalizer *, const struct node *);
bool walk_region(struct legalizer *, region_id);
/* From the node at index first on. On return the map holds the stretch's results. */
void walk_rest(struct legalizer *, const struct stretch *, uint32_t first);
/* Notes in which sizes the file's types are written, and whether they hold for these inputs. */
void declared_sizes(struct legalizer *);
/* A condition of the file's on sizes: a check of the legal graph. */
void declared_guard(struct legalizer *, const struct node *);
/* Can v have the type that the file states for result i of the node, if it states one? false after an error. */
bool declared_result(struct legalizer *, const struct node *, uint32_t i, value_id v);
/* Does v have the element type and kind that the model declares for its output? false after an error. */
bool declared_fits(struct legalizer *, const struct port *, value_id);
/* The same, and dims that differ are a warning where they can be: *out is the type that the output declares from now
 * on, the computed one where the model's was wrong or the run chooses the rank. Borrowed from either graph. */
bool declared_settle(struct legalizer *, const struct port *, value_id, const struct type **out);
/* Do the outputs that are states have their element types and dims, and names of their own? false after an error. */
bool declared_states(struct context *, struct graph *legal);
/* If --last-logits applies to this output, *v becomes its last position alone and *out that one's type. */
bool last_settle(struct legalizer *, const struct port *, value_id *v, const struct type **out);
/* Is there an output for --last-logits? false after a usage error. */
bool last_possible(const struct legalizer *);
/* Outputs of a legal graph that are an input with new rows, and these inputs, become `to` where that is narrower
 * (cache_type.c). false after an error: a usage error where there is none. */
bool caches_narrow(struct graph *, enum elem to);
/* Inputs for adapters of low rank, "RANK[:TARGETS]", in an imported graph (adapters.c). false after a usage error. */
bool adapters_add(struct graph *imported, const char *spec);
/* The condition of a fork that was asked for. */
expr_id fork_cond(const struct fork *);
/* Is it known by now at the place at work? */
bool fork_settled(const struct fork *);
/* Walks the rest of the stretch for both ways of the fork that its node number *at asked for. true: one way turned out
 * to be the only one that can run, and the walk goes on in place, with node number *at. */
bool fork_walk(struct legalizer *, struct fork *, const struct stretch *, uint32_t *at);
/* Walks a region in the place of r's node. true: a fork in it has to go on after the node, and is asked for. */
bool inlined_walk(struct rule *r, region_id);
bool legalize_call(struct legalizer *, const struct node *, const struct model_function *);
void legalize_refuse(struct legalizer *, const struct node *, const char *reason);
/* The same for an operator that has no row, with what to do instead. */
void legalize_refuse_unknown(struct legalizer *, const struct node *, const char *reason);
void legalize_report(struct legalizer *);

/* The metadata's key for the labels of an output that is declared as maps (maps.c). */
const char *ml_labels_key(struct arena *, const char *output);
