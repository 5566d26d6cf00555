/* File -> imported graph. Which formats there are is one table (formats.def); nothing outside of this folder names one.
 *
 * In: a file. Out: a graph in imported form, every node of which is OP_IMPORTED with the operator's domain, name and
 * version, for passes/legalize to lower by the rules of that domain. A frontend is a folder below this one
 * (docs/add-a-frontend.md).
 */
#pragma once

#include "ir/graph/graph.h"

struct import_options {
    const char *const *overridable;
    uint32_t n_overridable; /* initializers that become ports */
    bool allow_hard_links; /* of external data files */
};
struct file_list {
    VEC(const char *) paths;
};

/* Reads a file. Constants are OP_CONSTANT nodes at the head of their region, their bytes in ctx->session. NULL after
 * diagnostics. options: NULL: none. files: takes every file that was read (network, external data), for -MD; NULL: not
 * wanted. */
typedef struct graph *import_fn(struct context *, const char *path, const struct import_options *options,
                                struct file_list *files);

/* ---- what a format may be able to do besides: NULL in struct format_hooks where it cannot ------------------------ */

/* Cutting a file down to some of its nodes (mcc reduce); the caller has imported it before. */
struct cut_file; /* the frontend's own */
/* A value's type for a new input or output: dims < 0 are left open. False: not known. */
struct cut_type {
    enum elem elem;
    int32_t rank;
    const int64_t *dims;
};
typedef bool cut_type_fn(void *user, const char *name, struct cut_type *);
struct cutter {
    /* Session memory, external data included, whose files it adds to the list; NULL after a diagnostic. */
    struct cut_file *(*open)(struct context *, const char *path, const struct import_options *, struct file_list *);
    uint32_t (*n_nodes)(const struct cut_file *);
    /* The nodes that keep[] says, with the constants that they use, as a file's bytes. False, without a diagnostic: a
     * type is missing or nothing would be an output. */
    bool (*write)(const struct cut_file *, const bool *keep, cut_type_fn *, void *user, struct strbuf *out);
};

/* Changing a file in places (mcc quantize): what is not changed keeps its bytes. The caller has imported it before. */
struct edit_file; /* the frontend's own, session memory; edits gather in it */
/* What a node does, as far as quantization has to know. */
enum edit_kind {
    EDIT_OTHER,
    EDIT_PRODUCT, /* operand 0 by operand 1, plus operand 2 if there is one */
    EDIT_SUM,
    EDIT_CONCAT,
    EDIT_MAX_POOL,
    EDIT_AVERAGE_POOL,
    EDIT_GLOBAL_POOL,
    EDIT_RESIZE, /* of operand 0 */
    EDIT_RELU,
    EDIT_LEAKY_RELU,
    EDIT_CLIP
};
struct edit_node {
    const char *op, *name; /* for messages */
    const char *const *in, *const *out; /* "": omitted, or a value that must stay what it is */
    uint32_t n_in, n_out;
    enum edit_kind kind;
    struct edit_product {
        int32_t out_axis, in_axis; /* of operand 1 */
        double groups;
        bool matrix; /* operand 1 has rank 2, and the channels of operand 0 are its last dim; else they are dim 1 */
        bool takes_bias;
    } product;
};
struct editor {
    /* External data is read, too, and stands in what is written; its files are added to the list. NULL after a
     * diagnostic. */
    struct edit_file *(*open)(struct context *, const char *path, const struct import_options *, struct file_list *);
    /* Forgets all edits. */
    void (*reset)(struct edit_file *);
    /* Nodes of the top graph as the file has them. */
    uint32_t (*n_nodes)(const struct edit_file *);
    const struct edit_node *(*node)(const struct edit_file *, uint32_t);
    /* A constant, as the file has it, of f32; false: there is none. Session memory. */
    bool (*constant)(struct edit_file *, const char *name, struct tensor_data *out);
    /* Is the value an output of the network, or taken from the top graph by a body inside of a node? */
    bool (*is_open)(const struct edit_file *, const char *name);
    /* The edits. Operand k of a node, which may be one more than it has. */
    void (*set_operand)(struct edit_file *, uint32_t node, uint32_t k, const char *name);
    /* Another value of a constant that is there. */
    void (*set_constant)(struct edit_file *, const char *name, const struct tensor_data *);
    /* The value as u8 and as f32 again, in front of node `before`; the name of the latter. */
    const char *(*requantize)(struct edit_file *, uint32_t before, const char *name, float scale, uint8_t zero);
    /* A new constant of integers as f32, with a scale for each place along the axis, for node `before`; its name. */
    const char *(*dequantize)(struct edit_file *, uint32_t before, const char *like, const struct tensor_data *,
                              const float *scales, int32_t axis);
    /* The value becomes an output as well, of whatever type and shape it has. */
    void (*add_output)(struct edit_file *, const char *name);
    /* The file's bytes; constants that nothing reads any more are left out. */
    void (*write)(const struct edit_file *, struct strbuf *out);
};

/* Files that hold one tensor. */
struct tensor_files {
    const char *suffix; /* ".pb" */
    /* Data in session memory, at graph width. False after a diagnostic. */
    bool (*read)(struct context *, const char *path, struct tensor_data *out);
    /* bytes: packed, as in a .npy file. */
    void (*write)(enum elem, const int64_t *dims, int32_t rank, struct span bytes, struct strbuf *out);
};

/* What the format's standard says of its operators, for --list-ops. */
struct operator_facts {
    /* The operator's next version after `version` (0: its first one) that is not deprecated; 0: there is none. */
    int32_t (*version_after)(const char *domain, const char *op, int32_t version);
    /* The domain as lists show it. Static. */
    const char *(*domain_shown)(const char *domain, const char *op, int32_t version);
    /* Which element types the operands of that version may have, a group for each type variable in the operands' order,
     * "/" between them: "f32,f64/i32,i64". Types for which `has` is false are left out, and groups that are then empty
     * say "-". */
    void (*types_print)(const char *domain, const char *op, int32_t version, bool (*has)(enum elem, const void *),
                        const void *data, struct strbuf *out);
};

struct format_hooks {
    const struct cutter *cutter;
    const struct editor *editor;
    const struct tensor_files *tensors;
    const struct operator_facts *operators;
};

/* ---- the table --------------------------------------------------------------------------------------------------- */

struct format {
    const char *name, *suffix, *magic; /* "ONNX", ".onnx", "" */
    size_t magic_at;
    import_fn *import;
    const struct format_hooks *hooks; /* never NULL */
};
/* By the file's first bytes, else by its name, else the first row. Never NULL. */
const struct format *format_of(const char *path);
const struct format *format_by_suffix(const char *path); /* NULL: no row has it */
/* With the importer of the file's format. */
import_fn network_import;
const struct tensor_files *tensor_files_by_suffix(const char *suffix); /* NULL: no format has such files */
/* Of the format that has the operator; NULL: none says anything of it. */
const struct operator_facts *operator_facts(const char *domain, const char *op);

/* ---- the frontends, a folder each -------------------------------------------------------------------------------- */

#define FORMAT(name, suffix, magic, at, import, hooks) import_fn import;
#include "frontend/formats.def"
extern const struct format_hooks onnx_hooks, pt2_hooks, no_hooks;
