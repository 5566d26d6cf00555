/* File -> imported graph. */
#ifndef MCC_FRONTEND_H
#define MCC_FRONTEND_H

#include "ir/graph/graph.h"

struct import_options {
    const char *const *overridable; uint32_t n_overridable;   /* initializers that become ports */
    bool allow_hard_links;                                     /* of external data files */
};
/* Reads an ONNX file: every node of the result is OP_ONNX, bound to its own since_version, checked against the
 * schema table. Initializers are OP_CONSTANT nodes at the head of their region, bytes borrowed from the file image in ctx->session.
 * NULL after diagnostics. files: every file read (model, external data), for -MD. */
struct file_list { VEC(const char *) paths; };
struct graph *onnx_import(struct context *, const char *path, const struct import_options *, struct file_list *files);

/* An ONNX file that can be cut down (onnx/cut.c); the caller has imported it before. Session memory; NULL after a
 * diagnostic (unreadable, weights in external files). */
struct onnx_cut;
struct onnx_cut *onnx_cut_open(struct context *, const char *path);
uint32_t onnx_cut_nodes(const struct onnx_cut *);
/* A value's type for a new input or output: dims < 0 are left open. False: not known. */
struct cut_type { enum elem elem; int32_t rank; const int64_t *dims; };
typedef bool cut_type_fn(void *user, const char *name, struct cut_type *);
/* The nodes that keep[] says, with the initializers that they use, as a file's bytes. False, without a diagnostic: a type
 * is missing or nothing would be an output. */
bool onnx_cut_write(const struct onnx_cut *, const bool *keep, cut_type_fn *, void *user, struct strbuf *out);

/* Reads a file that holds one TensorProto; data in session memory, at graph width. False after a diagnostic. */
bool onnx_tensor_read(struct context *, const char *path, struct tensor_data *out);

#endif
