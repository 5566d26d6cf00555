/* The bounded first pass over an ONNX file, and its decoding into protobuf-c's structs. */
#pragma once

#include "ir/base/base.h"

#include "frontend/onnx/onnx.pb-c.h"

/* What the scanner writes in place of a tensor's data: a byte range of the file. 16 bytes, little-endian. */
struct token {
    uint64_t offset, length;
};
enum { TOKEN_SIZE = 16 };
struct token token_read(const ProtobufCBinaryData *);

/* Protobuf's own limit: a message has at most 2 GiB - 1. */
#define MODEL_FILE_MAX (((int64_t)1 << 31) - 1)
/* Reads the whole file into ctx->session. False after a diagnostic: FAIL_ENV unless it is empty or too large. */
bool file_read(struct context *, const char *path, struct span *out);
/* NULL, or what the first bytes make the file look like: "a gzip archive". */
const char *file_looks_like(struct span);

/* Checks the wire format of a ModelProto without recursion and writes the compact copy (onnx.proto) into `out`,
 * memory of `pool`. False after a diagnostic with the byte offset. */
bool scan_model(struct context *, struct span file, struct arena *pool, struct span *out);

/* Scans and decodes; the messages live in `pool`. NULL after a diagnostic. */
Onnx__ModelProto *model_decode(struct context *, struct span file, struct arena *pool);
