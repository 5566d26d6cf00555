/* What the files of the ONNX importer share. */
#pragma once

#include "frontend/frontend.h"
#include "frontend/names.h"
#include "frontend/onnx/scan.h"

struct external;

struct opset_scope {
    const struct opset *data;
    uint32_t n;
};

struct importer {
    struct context *ctx;
    struct graph *g;
    const char *path;                /* of the model file */
    const struct import_options *options;
    struct file_list *files;
    struct arena scratch;            /* decoded messages and tables; released when the import ends */
    struct arena *keep;              /* where attribute_import puts what an attribute holds */
    uint8_t *file;                   /* the model's bytes, session memory */
    size_t file_size;
    struct names names;              /* values of the graph being imported, by name and scope */
    struct names dims;               /* dim_param -> symbol */
    struct names symbols;            /* symbol names taken -> the dim_param they stand for */
    struct names functions;          /* key of a function -> its index + 1 */
    struct external *external;
    const Onnx__ModelProto *model;
    struct opset_scope opsets;       /* of the model or of the function being imported */
    bool in_function;
};

/* More of them than any operator has; lists of them are searched one by one. */
enum { ATTRIBUTES_MAX = 1000, OPSETS_MAX = 1000 };

/* What an error about a tensor is about: a node, a named tensor, or both. */
struct where {
    src_id src;
    const char *tensor;
};
#define refuse_as(im, w, fail, ...) error_at((im)->ctx, (fail), (w).src, (w).tensor, __VA_ARGS__)
#define refuse(im, w, ...) refuse_as((im), (w), FAIL_MODEL, __VA_ARGS__)
bool rank_allowed(struct importer *, struct where, size_t rank); /* else a diagnostic */

/* types.c */
/* A declared type; dims are expressions, 0 where the file says nothing. False after a diagnostic. */
bool type_import(struct importer *, const Onnx__TypeProto *, struct where, struct type *out);

/* tensors.c: the one reader of TensorProto, wherever it stands. Data is borrowed from the file or session memory, at
 * graph width, aligned to its element. The tensor's name, dims: session memory. */
bool tensor_import(struct importer *, const Onnx__TensorProto *, struct where, struct tensor_data *out);
/* Makes a sparse tensor dense. */
bool sparse_import(struct importer *, const Onnx__SparseTensorProto *, struct where, struct tensor_data *out);

/* external.c: `size` bytes of a tensor's external data, 16-aligned, session memory. The size is known beforehand. */
bool external_read(struct importer *, const Onnx__TensorProto *, struct where, size_t size, struct span *out);

/* attributes.c: everything but subgraphs, which node_import fills in later (kind ATTR_REGION, region 0). */
bool attribute_import(struct importer *, const Onnx__AttributeProto *, struct where, struct attr *out);
enum {
    ONNX_ATTR_FLOAT = 1,
    ONNX_ATTR_INT,
    ONNX_ATTR_STRING,
    ONNX_ATTR_TENSOR,
    ONNX_ATTR_GRAPH,
    ONNX_ATTR_FLOATS,
    ONNX_ATTR_INTS,
    ONNX_ATTR_STRINGS,
    ONNX_ATTR_TENSORS,
    ONNX_ATTR_GRAPHS,
    ONNX_ATTR_SPARSE,
    ONNX_ATTR_SPARSES,
    ONNX_ATTR_TYPE,
    ONNX_ATTR_TYPES
};

/* order.c: an order of the nodes in which values are made before they are read, also by subgraphs; the names that the
 * nodes make are bound (names.h) with their producers. NULL after a diagnostic that names a cycle. Scratch memory. */
uint32_t *nodes_order(struct importer *, Onnx__NodeProto *const *nodes, uint32_t n);

/* nodes.c: all nodes of a graph or function body, in dependency order; binds what they make. depth: nesting of the
 * graph. */
bool nodes_import(struct importer *, Onnx__NodeProto *const *nodes, size_t n, region_id, uint32_t depth);

/* graphs.c */
/* The contents of a subgraph into `r`, an empty region; src: the node it belongs to. */
bool subgraph_import(struct importer *, const Onnx__GraphProto *, region_id r, src_id src, uint32_t depth);
/* The top graph: ports, initializers, nodes, results. */
bool graph_import(struct importer *, const Onnx__GraphProto *);

/* resolve.c */
/* The value that a text means; {0} after a diagnostic when nothing visible has that name. */
value_id value_resolve(struct importer *, const char *name, src_id src, const char *role);
/* The source record of a node, for messages; version: since_version or 0. */
src_id node_source(struct importer *, const Onnx__NodeProto *, int32_t version);

/* functions.c */
bool functions_import(struct importer *);

/* calls.c */
/* Counts calls before anybody inlines: no recursion, depth and total size within limits. */
bool functions_count(struct importer *);
/* A function's key in importer.functions; scratch memory. */
char *function_key(struct importer *, const char *domain, const char *name, const char *overload);
/* The function that a node calls; NULL when none has this domain, name and overload. */
const struct model_function *function_find(struct importer *, const char *domain, const char *name,
                                           const char *overload);
/* A call: no more inputs and outputs than the function has, known attributes. */
bool call_check(struct importer *, const struct model_function *, const Onnx__NodeProto *, src_id);

/* opsets.c */
/* "" for both spellings of the default domain. */
const char *domain_normal(const char *);
/* Opset imports of the model (0 of them: IR versions before 3) or of a function; the domains normalised. */
bool opsets_import(struct importer *, Onnx__OperatorSetIdProto *const *, size_t n, const char *of, struct opset **out,
                   uint32_t *n_out);
