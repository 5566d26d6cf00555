/* File -> imported graph. */
#ifndef MCC_FRONTEND_H
#define MCC_FRONTEND_H

#include "ir/graph.h"

struct import_options {
    const char *const *overridable; uint32_t n_overridable;   /* initializers that become ports */
    bool allow_hard_links;                                     /* of external data files */
};
/* Reads an ONNX file: every node of the result is OP_ONNX, bound to its own since_version, checked against the
 * schema table. Initializers are OP_CONSTANT nodes at the head of their region, bytes borrowed from the file image in ctx->session.
 * NULL after diagnostics. files: every file read (model, external data), for -MD. */
struct file_list { VEC(const char *) paths; };
struct graph *onnx_import(struct context *, const char *path, const struct import_options *, struct file_list *files);

/* Reads a file that holds one TensorProto; data in session memory, at graph width. False after a diagnostic. */
bool onnx_tensor_read(struct context *, const char *path, struct tensor_data *out);

#endif
