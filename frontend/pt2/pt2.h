/* What the files of the .pt2 importer share. */
#pragma once

#include "frontend/frontend.h"
#include "frontend/names.h"
#include "frontend/json.h"
#include "frontend/pt2/schemas.h"
#include "frontend/pt2/zip.h"

/* A value of the graph: a tensor or a number. Tensors that share memory form a tree by how each was made a view of
 * another (mutate.c). */
struct pt2_value {
    const char *name;
    value_id v; /* what it is as of `version`; {0}: an error has been reported */
    uint32_t storage; /* of the tree; an index into pt2.storages */
    uint32_t version;
    uint32_t parent; /* that it is a view of, as index; 0: the root */
    const struct json *view; /* the node that made it one; NULL: it is its parent */
    uint32_t depth; /* in the tree */
    bool maybe; /* whether it shares memory with its parent depends on strides */
};
enum storage_kind {
    STORAGE_RUN, /* the run makes it */
    STORAGE_OPERAND, /* of a graph within a node, from around it */
    STORAGE_KEPT /* outlives the run */
};
struct pt2_storage {
    uint32_t version; /* how often it was written to */
    enum storage_kind kind;
    uint32_t kept; /* if it is kept: index into pt2.kept */
};

enum kept_kind { KEPT_INPUT, KEPT_STATE, KEPT_WEIGHT };
/* A tensor that is there before the run. */
struct pt2_kept {
    enum kept_kind kind;
    const char *name; /* of the input, or of the parameter */
    uint32_t root; /* index into pt2.values */
    value_id first, final; /* what it is at the beginning, and at the end if the file says so ({0}: it does not) */
};

/* An archive of torch.save within a record. */
struct pt2_inside {
    struct zip zip;
    const char *root; /* as pt2.root; NULL: there is no such archive */
};

struct pt2 {
    struct context *ctx;
    struct graph *g;
    struct arena scratch; /* JSON and tables; released when the import ends */
    struct zip zip;
    const char *root; /* the folder that all records are in: "model/", or "" */
    bool flat; /* of PyTorch 2.7 and older, where records lie in no folder of their kind */
    int64_t inflate_left;
    const char *record; /* of the program, below the root */
    const char *tables[2]; /* the records that say where weights and constants lie; NULL: there is none */
    const struct json *program, *graph; /* of the JSON */
    region_id region; /* that nodes are appended to */
    uint32_t depth; /* of the graph that is imported, within nodes */
    int64_t n_imported; /* nodes of the file, each as often as it was imported */
    uint32_t floor; /* names of outer scopes mean nothing */
    enum elem autocast; /* of the wrapper that is being inlined; ELEM_NONE: none */
    struct names names; /* of values -> index into values */
    struct names symbols; /* of dims -> expression */
    struct names inputs; /* of the program, with its weights */
    struct names metas; /* of tensors -> index into meta_list */
    struct names numbers; /* of the run -> the same, of what the file says that they are */
    VEC(const struct json *) meta_list;
    VEC(struct pt2_value) values; /* [0] unused */
    VEC(struct pt2_storage) storages;
    struct pt2_inside inside[2]; /* of weights and constants, where they are pickled */
    struct names weights, constants; /* by the parameter's name -> index into entries */
    VEC(const struct json *) entries; /* of the tables of where weights and constants lie */
    struct names ports; /* names of outputs */
    VEC(struct pt2_kept) kept;
    struct names kept_names[2]; /* of parameters, and of inputs -> index into kept */
    struct names paths[2]; /* records of weights, and of constants -> how many lie there */
    struct names written; /* parameters and buffers that are state */
    bool again; /* one is, of which that was not known */
};

#define pt2_refuse(p, ...) error_model((p)->ctx, (src_id){0}, __VA_ARGS__)

/* import.c */
/* The archive and the JSON of its program. False after a diagnostic. */
bool pt2_open(struct pt2 *, struct context *, const char *path, struct file_list *files);
/* Makes ready for copies of records: reading weights of archives within records has moved bytes in these. */
bool pt2_unmoved(struct pt2 *, const char *path);
/* The record of this name below the root. False after a diagnostic. */
bool pt2_record(struct pt2 *, const char *name, struct span *out);
void pt2_metas(struct pt2 *, const struct json *graph); /* what it says of its tensors and numbers */
const struct json *pt2_specs(const struct pt2 *, const char *which); /* the first of input_specs or output_specs */
const char *pt2_spec_value(const struct json *spec); /* that it is of; NULL: of none */
const char *pt2_spec_owner(
    const struct json *spec); /* the parameter, buffer, constant or input that it names besides */

/* symbols.c */
/* Symbols for range_constraints. */
bool symbols_import(struct pt2 *);
/* An expression of sizes at *at, which is moved to its end; false: there is none that is known. */
bool size_read(struct pt2 *, const char **at, expr_id *);
/* A SymInt: {as_int}, {as_expr} or {as_name}'s absence; {0}: not known. */
expr_id dim_import(struct pt2 *, const struct json *);

/* guards.c */
void guards_narrow(struct pt2 *); /* the symbols to what guards of one symbol say, before anything is made with them */
void guards_import(struct pt2 *); /* checks of the inputs' sizes, in the current region */

/* types.c */
/* By PyTorch's number of the type; ELEM_NONE: no such type here. */
enum elem elem_by_torch(int64_t);
int64_t elem_torch(enum elem);
/* A tensor of that type, of any rank. */
static inline struct type pt2_any(enum elem e)
{
    return (struct type){.kind = TYPE_TENSOR, .elem = e, .rank = RANK_UNKNOWN};
}
/* The type of a TensorMeta; dims are left open unless wanted. False after a diagnostic. */
bool meta_type(struct pt2 *, const struct json *meta, const char *name, bool dims, struct type *out);

/* weights.c: the parameter, buffer or constant of that name, as constant and views of it. {0} after a diagnostic. */
value_id weight_import(struct pt2 *, struct names *table, const char *folder, const char *name);

/* pickle.c: the tensors of a dictionary that torch.save wrote, as entries. */
bool pickle_import(struct pt2 *, const char *record, struct pt2_inside *, struct names *table);
const char *pickle_storage(int64_t type); /* PyTorch's number of it -> "Float" of torch.FloatStorage; NULL: none */
/* pickle_write.c: such a dictionary of a table of entries as JSON; storages that are not in the archive are packed. */
void pickle_put(struct strbuf *out, const struct pt2_inside *, const struct json *table);
/* The same as bytes, row-major. */
bool weight_bytes(struct pt2 *, bool constant, const char *name, struct tensor_data *out);

/* state.c */
void state_root(struct pt2 *, uint32_t index, enum kept_kind, const char *name); /* a value that is there before */
void state_path(struct pt2 *, bool constant, const struct json *entry); /* an entry of the table of weights */
bool state_is_written(struct pt2 *, const char *name);
void state_write(struct pt2 *, const struct pt2_storage *); /* a kept tensor was written */
void states_listed(struct pt2 *); /* marks what the file says is written */
bool state_is_listed(const struct json *spec); /* is this output the new value of something kept? */
bool state_output(struct pt2 *, const struct json *spec, const char *value, src_id);
bool state_input(struct pt2 *, const char *name, const char *value, bool constant);
bool states_output(struct pt2 *); /* after the program's own outputs */

/* arguments.c */
/* What a node of the file is given for an argument: a union; NULL: nothing. */
const struct json *node_arg(const struct json *node, const char *name);

/* nodes.c */
/* "torch.ops.aten.add.Tensor" is domain "aten" and operator "add.Tensor". False after a diagnostic. */
bool pt2_target(struct pt2 *, const struct json *node, const char **domain, const char **op);
/* The pure operator of one that writes to its first operand: "add.Tensor" of "add_.Tensor". NULL: it is none. */
const char *pt2_pure(struct pt2 *, const char *op);
value_id pt2_constant(struct pt2 *, enum elem, const int64_t *dims, int32_t rank, const void *data, const char *name);
/* A node with one tensor and one list of integers. */
value_id pt2_append_ints(struct pt2 *, src_id, const char *op, value_id x, const char *attr, const int64_t *list,
                         uint32_t n);
/* The nodes of a graph, in the current region. */
bool pt2_nodes(struct pt2 *, const struct json *graph);
/* A node of two tensors. */
value_id pt2_append_pair(struct pt2 *, src_id, const char *op, value_id x, value_id y);
/* The tensors in a list along the node's argument dim: op is cat or stack. */
value_id pt2_append_joined(struct pt2 *, src_id, const struct json *node, const char *op, const value_id *list,
                           uint32_t n);
/* A node of the file again with another operand `self`, as operator op of aten (NULL: its own), which may have an
 * operand `src` besides; its first result. */
value_id node_again(struct pt2 *, const struct json *node, value_id self, value_id src, const char *op);
/* The names of a node's results; NULL: one has none. */
const char *const *node_result_names(struct pt2 *, const struct json *node, src_id, uint32_t *n);
/* Appends a node with the results of the file's; {0} after a diagnostic. */
node_id node_results(struct pt2 *, const struct json *node, src_id, const char *domain, const char *op,
                     const value_id *in, uint32_t n_in, const struct attr *, uint32_t n_attrs);

/* subgraphs.c: a node of the domain higher_order. */
bool higher_order_import(struct pt2 *, const struct json *node, src_id, const char *op);

/* mutate.c */
uint32_t value_new(struct pt2 *, const char *name, value_id); /* a root of its own, which no name means */
uint32_t value_add(struct pt2 *, const char *name, value_id); /* the same under its name */
bool pt2_is_bound(const struct pt2 *, const char *name); /* in the current scope */
/* The value as it is now, after all that was written to its memory. {0} after a diagnostic. */
value_id value_now(struct pt2 *, const char *name, src_id, uint32_t *index);
void value_view(struct pt2 *, uint32_t value, uint32_t parent, const struct json *node, enum schema_alias);
/* The value's elements were overwritten. */
bool value_refresh(struct pt2 *, uint32_t value, src_id); /* brings that one up to date */
bool value_write(struct pt2 *, uint32_t value, value_id now, src_id);

/* edit.c */
extern const struct editor pt2_editor;

/* cut.c */
extern const struct cutter pt2_cutter;
