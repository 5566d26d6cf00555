/* Concrete tensors outside of any graph: files that mcc run, bench and eval read and write. */
#pragma once

#include "cli/library/dlpack.h"
#include "cli/library/json.h"
#include "cli/library/options/name_value.h"
#include "ir/eval/interpreter.h"
#include "runtime/mcc.h"

struct file_tensor {
    enum elem elem;
    int32_t rank;
    int64_t dims[RANK_MAX];
    void *data; /* row-major, packed as in a file: elements under a byte share bytes, lowest bits first */
    size_t size;
};

/* Elements and bytes of a shape; false when they do not fit into 63 bits. */
bool file_tensor_sizes(enum elem, int32_t rank, const int64_t *dims, int64_t *elements, int64_t *bytes);
/* Allocates data for the elem and dims that are set; false after a diagnostic. */
bool file_tensor_alloc(struct context *, struct file_tensor *);

/* Reads .npy, .pb (TensorProto) or raw bytes; raw ones have the elem and dims that *out comes with. */
bool file_tensor_read(struct context *, const char *path, struct file_tensor *out);
/* NAME as a file name: slashes and other bytes that are none become '_'. */
const char *file_tensor_name(struct arena *, const char *name);
/* Writes FOLDER/NAME.FORMAT, whole or not at all. */
bool file_tensor_write(struct context *, const char *folder, const char *name, enum option_format,
                       const struct file_tensor *);
/* Steele, Lea and Flood's SplitMix64. */
uint64_t random_next(uint64_t *state);
/* Fills the data: floats in [-1, 1), integers in 0..7, from a fixed generator. */
void file_tensor_random(struct file_tensor *, uint64_t seed);

/* .npy (npy.c): are the bytes such a file; the array of one, false after a diagnostic that names `path`; and its
 * bytes. */
bool npy_is(struct span file);
bool npy_parse(struct context *, const char *path, struct span file, struct file_tensor *out);
bool npy_format(struct context *, const struct file_tensor *, struct strbuf *out);

/* One line about the values: "y f32[1,10]: 0.1 0.2 ... (least 0.1, greatest 0.9)". */
void file_tensor_describe(const char *name, const struct file_tensor *, struct strbuf *out);
/* The same as an object (docs/json.md): name, type, dims, the first elements, least and greatest. */
void file_tensor_json(const char *name, const struct file_tensor *, struct json *);
/* Between files and the graph's width (elements under a byte take one each). *out is allocated. */
bool file_tensor_widen(struct context *, const struct file_tensor *, struct tensor *out);
bool file_tensor_pack(struct context *, const struct tensor *, struct file_tensor *out);
