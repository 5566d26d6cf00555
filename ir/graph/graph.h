/* The tensor graph: SSA values, nodes with named attributes, nested regions for control flow.
 *
 * Forms: *imported* (every node is OP_IMPORTED, most types unknown) -> *legal* (core operators of ops.def, every type
 * known). Ids are 32-bit and typed, 0 = none; pointers into the graph's arrays do not survive a call that adds
 * to them. Captures need no marking: a region may use any value of an enclosing region that dominates it.
 */
#pragma once

#include "ir/base/base.h"
#include "ir/expr/expr.h"
#include "ir/ops/ops.h"

INDEX_TYPE(value_id);
INDEX_TYPE(node_id);
INDEX_TYPE(region_id);

/* ---- types ------------------------------------------------------------------------------------------ */

enum type_kind { TYPE_UNKNOWN, TYPE_TENSOR, TYPE_SEQUENCE, TYPE_OPTIONAL, TYPE_MAP };
enum { RANK_NONE = -2, RANK_UNKNOWN = -1, RANK_MAX = 32 };
struct type {
    enum type_kind kind;
    enum elem elem;              /* tensor; map: key type */
    int32_t rank; /* of a tensor; RANK_UNKNOWN; RANK_NONE: element of a sequence that is always empty */
    const expr_id *dims; /* rank of them; expr 0 = unknown (imported form only) */
    const struct type *inner; /* element of a sequence or optional, value of a map */
};
bool type_equal(const struct type *, const struct type *);
bool type_same_shape(const struct type *, const struct type *);

/* ---- attributes: named, on every node ------------------------------------------------------------------- */

enum attr_kind {
    ATTR_INT = 'i',
    ATTR_INTS = 'I',
    ATTR_FLOAT = 'f',
    ATTR_FLOATS = 'F',
    ATTR_STR = 's',
    ATTR_STRS = 'S',
    ATTR_EXPR = 'e',
    ATTR_EXPRS = 'E',
    ATTR_ELEM = 't',
    ATTR_DATA = 'd',
    ATTR_TENSOR = 'T', /* imported form: a constant tensor */
    ATTR_TENSORS = 'L',
    ATTR_REGION = 'R', /* imported form: a subgraph; regions[] of the node in attribute order */
    ATTR_TYPE = 'P', /* imported form: TypeProto */
    ATTR_REF = 'r' /* imported form, inside functions: the name of the function's attribute */
};
struct tensor_data {
    enum elem elem;
    int32_t rank;
    const int64_t *dims;
    struct span bytes; /* row-major, graph width; strings: array of struct span */
    const char *name; /* initializer name or NULL */
};
struct attr {
    const char *name;
    enum attr_kind kind;
    uint32_t n; /* lists */
    union {
        int64_t i;
        double f;
        const char *s; /* may hold NULs only in imported STRING attributes: then len */
        expr_id e;
        enum elem elem;
        struct span data;
        const int64_t *ints;
        const double *floats;
        const char *const *strs;
        const expr_id *exprs;
        const struct tensor_data *tensor; /* ATTR_TENSOR; ATTR_TENSORS: array of n */
        region_id region;
        const struct type *type;
    } u;
};

/* ---- nodes, values, regions ------------------------------------------------------------------------------- */

struct node {
    enum op op;
    src_id src;
    region_id parent;
    uint32_t n_in, n_out, n_attr, n_region;
    value_id *in; /* imported form: {0} = omitted operand */
    value_id *out; /* imported form: {0} = omitted result */
    struct attr *attr;
    region_id *region;
    bool dead; /* erased; skipped by everybody */
    /* imported form (OP_IMPORTED) only */
    const char *op_type, *domain, *overload;
};
struct value {
    struct type type;
    node_id def; /* {0}: parameter of a region */
    uint32_t result; /* which result of def, or which parameter */
    const char *name; /* from the file, or NULL; not unique */
    /* Value lattice: known elements of a small integer/bool tensor, flat, row-major; NULL: nothing known.
     * elems[k].i == 0: that element is unknown. Bool as 0/1. */
    const expr_id *elems;
    uint32_t n_elems;
    uint32_t n_uses; /* maintained by graph_*; results of regions count */
    uint32_t users; /* the first of its entries in graph.users; 0: none */
};
struct region {
    node_id owner; /* {0}: the top region or a function */
    region_id parent;
    uint32_t depth; /* of nesting: 0 for the top region and functions */
    VEC(node_id) nodes; /* in execution order */
    uint32_t position; /* where in nodes the last search ended */
    VEC(value_id) params;
    VEC(value_id) results;
};
struct port {
    const char *name;
    const struct type *declared;
    value_id value;
};
/* A condition on a symbol that the plan checks before the run starts. code, text and src are those of the check that it
 * replaces. The symbol's own bounds include the condition; if they are one number, the number replaces the symbol
 * (port_symbol). */
struct size_check {
    sym_id sym;
    struct sym_bounds bounds;
    sym_id same; /* sym must equal this symbol, which replaces it; {0}: sym must be within bounds */
    bool unless_empty; /* the condition may fail in a run whose outputs are all empty (symbol.filled) */
    int64_t code;
    src_id src;
    const char *text;
};
struct model_function { /* imported form: ModelProto.functions */
    const char *domain, *name, *overload;
    region_id body;
    VEC(const char *) attr_names; /* without a default */
    VEC(struct attr) attr_defaults;
    VEC(struct opset {
        const char *domain;
        int64_t version;
    })
    opsets;
};
/* A value that the context keeps between runs. The last inputs of the network are the states, and the last outputs are
 * their new values, in the same order. */
struct graph_state {
    struct tensor_data initial;
};
struct graph {
    struct context *ctx;
    struct arena arena;
    const char *name;
    VEC(struct node) nodes; /* [0] unused */
    VEC(struct value) values; /* [0] unused */
    VEC(struct region) regions; /* [0] unused; [1] top */
    VEC(struct port) inputs, outputs; /* of the top region, in the file's order */
    VEC(struct graph_state) states;
    VEC(struct size_check) size_checks;
    VEC(struct model_function) functions;
    VEC(struct opset) opsets; /* domain "" for ai.onnx */
    VEC(struct meta {
        const char *key;
        const char *value;
    })
    metadata;
    int64_t ir_version;
    /* Users of each value, in lists (graph_user). An entry is added with a use, and stays when the use is removed. */
    VEC(struct graph_user {
        node_id node; /* {0}: the use is a result of `region` */
        region_id region;
        uint32_t at; /* which operand or result it is */
        uint32_t next;
    })
    users; /* [0] unused */
    bool legal;
    uint32_t n_pooled; /* constants of the file below this id differ from one another (ir/graph/pool.c) */
    uint8_t *constness; /* by value: cache of ir/graph/constness.c */
    uint32_t constness_cap;
    struct folds *folds, *residues; /* caches of ir/eval/fold.c, the second one in the field; NULL: none yet */
    VEC(struct concat_begins {
        uint32_t n;
        expr_id *begin;
    })
    begins; /* by node: what concat_begin has computed */
};

/* Does a number or another symbol replace the symbol? */
static inline bool size_check_replaces(const struct size_check *c)
{
    return c->same.i || c->bounds.lo == c->bounds.hi;
}
/* The symbol that names dim d of an input; {0}: none. */
sym_id port_symbol(const struct graph *, const struct port *, int32_t d);

struct graph *graph_new(struct context *);
void graph_free(struct graph *);
/* A new empty region. With an owner it becomes the owner's last region. Unwinds if the nesting exceeds the limits of
 * subgraph and call depth together, so passes may recurse over regions. */
region_id graph_region(struct graph *, region_id parent, node_id owner);
/* Makes a region without an owner the last region of a node. */
void graph_adopt_region(struct graph *, node_id owner, region_id region);
/* Moves the nodes of inner, which has no owner, to the end of its parent region, and leaves inner empty. */
void graph_splice_region(struct graph *, region_id inner);
/* Gives a region without an owner another parent. The regions of its nodes move with it. */
void graph_hang_region(struct graph *, region_id, region_id parent);
struct node *graph_node(const struct graph *, node_id);
struct value *graph_value(const struct graph *, value_id);
struct region *graph_get_region(const struct graph *, region_id);
/* The index along its axis at which operand k of a concat begins; k == n_in: the extent of the result. The types of the
 * operands must not change afterwards. For a node without results, which is not in the graph yet, call it for k = 0, 1,
 * ... in order. */
expr_id concat_begin(const struct graph *, const struct node *, uint32_t k);
const struct type *value_type(const struct graph *, value_id);
/* The operator that defines v; OP_NONE for parameters. */
enum op value_op(const struct graph *, value_id);
const struct node *value_node(const struct graph *,
                              value_id); /* the node that computes it; NULL: a parameter, or {0} */

/* Appends a parameter to a region. */
value_id graph_param(struct graph *, region_id, struct type, const char *name);
/* Appends a node; its results get the given types (copied; out NULL: unknown types). Attributes and operands are
 * copied too, except for the bytes of ATTR_DATA and of tensors, which the graph borrows. */
node_id graph_append(struct graph *, region_id, enum op, src_id, const value_id *in, uint32_t n_in,
                     const struct attr *attr, uint32_t n_attr, const struct type *out, uint32_t n_out);
/* Appends a constant of that name, whose bytes the graph borrows. */
value_id graph_constant(struct graph *, region_id, enum elem, const int64_t *dims, int32_t rank, const void *data,
                        const char *name);
/* As graph_append, before an existing node of the same region. */
node_id graph_insert_before(struct graph *, node_id where, enum op, src_id, const value_id *in, uint32_t n_in,
                            const struct attr *attr, uint32_t n_attr, const struct type *out, uint32_t n_out);
/* Iterates over the uses of v: the first one for NULL, else the one after `before`; NULL at the end. The order is
 * unspecified, and a use may come twice. The pointer is invalid after a new use is added. */
const struct graph_user *graph_user(const struct graph *, value_id, const struct graph_user *before);
/* Number of inputs and outputs that callers see: all but the states, which come last. */
uint32_t graph_user_inputs(const struct graph *);
uint32_t graph_user_outputs(const struct graph *);
/* Is v a tensor of state k's element type and dims? */
bool graph_state_fits(const struct graph *, uint32_t k, value_id);
/* Index of the network's first output that is v; UINT32_MAX: v is not an output. */
uint32_t value_output(const struct graph *, value_id);
void graph_set_operand(struct graph *, node_id, uint32_t i, value_id);
void graph_replace_uses(struct graph *, value_id old,
                        value_id with); /* operands, region results and outputs everywhere */
void graph_value_describe(struct graph *, value_id to, value_id from); /* copies the name and the known elements */
void graph_erase(struct graph *, node_id); /* results must be unused */
/* Replaces the only result of a node by `by`, copies its name and known elements, and erases the node. by {0}: does
 * nothing. */
void graph_replace(struct graph *, node_id, value_id by);
void graph_add_result(struct graph *, region_id, value_id);
void graph_set_result(struct graph *, region_id, uint32_t i, value_id); /* of the top region: the output too */
/* Erases dead nodes: those on which no result of the top region and no assert depends, through operands or through
 * symbols that they bind. An assert lives as long as the node whose region contains it. Compacts node lists, and pools
 * the constants of a legal graph. */
void graph_sweep(struct graph *);
/* Pools constants (ir/graph/pool.c): merges equal ones and moves all to the beginning of the top region, where every
 * node may read them. live, by node: set to false for constants that are no longer read; returns whether there are any.
 */
bool graph_pool(struct graph *, struct arena *, bool *live);

/* ---- attribute access: absent = default ----------------------------------------------------------------------- */

const struct attr *node_attr(const struct node *, const char *name);
int64_t node_int(const struct node *, const char *name, int64_t absent);
double node_float(const struct node *, const char *name, double absent);
const char *node_str(const struct node *, const char *name, const char *absent);
/* NULL and *n 0 when absent; n may be NULL. */
const int64_t *node_ints(const struct node *, const char *name, uint32_t *n);
const expr_id *node_exprs(const struct node *, const char *name, uint32_t *n);
expr_id node_expr(const struct node *, const char *name);
enum elem node_elem(const struct node *, const char *name);

/* Equal if names, kinds and contents are. The hash covers only some bytes of long data. */
bool attr_equal(const struct attr *, const struct attr *);
uint64_t attr_hash(const struct attr *);

struct attr attr_int(const char *name, int64_t);
struct attr attr_ints(const char *name, const int64_t *, uint32_t n);
struct attr attr_exprs(const char *name, const expr_id *, uint32_t n);
struct attr attr_expr(const char *name, expr_id);
struct attr attr_float(const char *name, double);
struct attr attr_str(const char *name, const char *);
struct attr attr_elem(const char *name, enum elem);
struct attr attr_data(const void *, size_t);

/* ---- inference (ir/graph/infer.c): result types of a core operator ----------------------------------------------- */

/* Fills out[n_out]; false after a diagnostic at src when operands and attributes do not fit. */
bool op_infer(struct graph *, enum op, src_id, const value_id *in, uint32_t n_in, const struct attr *attr,
              uint32_t n_attr, struct type *out, uint32_t n_out);

/* ---- constants --------------------------------------------------------------------------------------------------- */

/* True when v is computed from constants alone (a lazy constant): OP_CONSTANT, or pure over such. Cached. */
bool value_is_const(const struct graph *, value_id);

/* ---- verifier, text ---------------------------------------------------------------------------------------------- */

/* Checks the invariants numbered at the head of ir/graph/verify_graph.c; each violation is one FAIL_INTERNAL
 * diagnostic. */
bool graph_verify(struct graph *);
/* Text form (.mcir; docs/mcir.md), which tests read back to the same graph. Constants above 64 bytes print as dense hex
 * only with full set, else as `...`. */
void graph_print(const struct graph *, struct strbuf *, bool full);
/* The numbers of values, nodes, regions and sources in that text, from 1 in order of appearance. The arrays are indexed
 * by id; 0: the text does not contain it. They are in the arena. Parsing the text gives nodes and regions these ids. */
struct graph_numbers {
    const uint32_t *value, *node, *region, *src;
    const bool *symbol; /* by id: the text uses it */
    const src_id *srcs; /* by number - 1 */
    uint32_t n_srcs;
};
struct graph_numbers graph_numbers(const struct graph *, struct arena *);
/* graphviz */
void graph_dot(const struct graph *, struct strbuf *);
