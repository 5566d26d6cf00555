/* What ONNX's frontend can do besides importing: the parts of onnx_hooks (frontend/frontend.h). */
#pragma once

#include "frontend/frontend.h"

extern const struct cutter onnx_cutter;                     /* cut.c */
extern const struct editor onnx_editor;                     /* edit.c */
extern const struct tensor_files onnx_tensor_files;         /* tensor_file.c */
extern const struct operator_facts onnx_operator_facts;     /* schemas.c */

/* The TensorProto in these bytes; path: for messages. False after a diagnostic. (tensor_file.c) */
bool tensor_of_bytes(struct context *, struct span bytes, const char *path, struct tensor_data *out);

/* The same of a tensor whose data is external: its bytes as that file has them, session memory, checked as on import */
bool external_of_bytes(struct context *, struct span bytes, const char *path, const struct import_options *,
                       struct file_list *, struct span *out);
