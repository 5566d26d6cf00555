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

/* The schema table: the operator's next version behind `version` (0: its first one) that is not deprecated; 0: there is none. */
int32_t onnx_version_after(const char *domain, const char *op, int32_t version);
/* Is it written by exporters in the default domain, though ONNX does not have that operator, or not that version of it? */
bool onnx_version_is_foreign(const char *domain, const char *op, int32_t version);
/* Which element types the operands of that version may have, a group for each type variable in the operands' order, "/" between
 * them: "f32,f64/i32,i64". Types for which `has` is false are left out, and groups that are then empty say "-". */
void onnx_types_print(const char *domain, const char *op, int32_t version, bool (*has)(enum elem, const void *), const void *data, struct strbuf *out);

#endif
