/* What ONNX's frontend can do besides importing: the parts of onnx_hooks (frontend/frontend.h). */
#ifndef MCC_FRONTEND_ONNX_HOOKS_H
#define MCC_FRONTEND_ONNX_HOOKS_H

#include "frontend/frontend.h"

extern const struct cutter onnx_cutter;                     /* cut.c */
extern const struct tensor_files onnx_tensor_files;         /* tensor_file.c */
extern const struct operator_facts onnx_operator_facts;     /* schemas.c */

#endif
