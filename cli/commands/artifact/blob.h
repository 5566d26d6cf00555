/* Concrete tensors outside of any graph: files that mcc run, bench and eval read and write. */
#ifndef MCC_CLI_BLOB_H
#define MCC_CLI_BLOB_H

#include "cli/library/dlpack.h"
#include "cli/library/json.h"
#include "cli/library/options/name_value.h"
#include "ir/graph/graph.h"
#include "runtime/mcc.h"

struct blob {
    enum elem elem;
    int32_t rank;
    int64_t dims[RANK_MAX];
    void *data; /* row-major, packed as in a file: elements under a byte share bytes, lowest bits first */
    size_t size;
};

/* Elements and bytes of a shape; false when they do not fit into 63 bits. */
bool blob_sizes(enum elem, int32_t rank, const int64_t *dims, int64_t *elements, int64_t *bytes);
/* Allocates data for the elem and dims that are set; false after a diagnostic. */
bool blob_alloc(struct context *, struct blob *);

/* Reads .npy, .pb (TensorProto) or raw bytes; raw ones have the elem and dims that *out comes with. */
bool blob_read(struct context *, const char *path, struct blob *out);
/* Writes FOLDER/NAME.FORMAT, whole or not at all; slashes and other bytes that are no file name become '_'. */
bool blob_write(struct context *, const char *folder, const char *name, enum option_format, const struct blob *);
/* Fills the data: floats in [-1, 1), integers in 0..7, from a fixed generator. */
void blob_random(struct blob *, uint64_t seed);

/* .npy (npy.c): are the bytes such a file; the array of one, false after a diagnostic that names `path`; and its
 * bytes. */
bool npy_is(struct span file);
bool npy_parse(struct context *, const char *path, struct span file, struct blob *out);
bool npy_format(struct context *, const struct blob *, struct strbuf *out);

/* One line about the values: "y f32[1,10]: 0.1 0.2 ... (least 0.1, greatest 0.9)". */
void blob_describe(const char *name, const struct blob *, struct strbuf *out);
/* The same as an object (docs/json.md): name, type, dims, the first elements, least and greatest. */
void blob_json(const char *name, const struct blob *, struct json *);
/* Between files and the graph's width (elements under a byte take one each). *out is allocated. */
bool blob_widen(struct context *, const struct blob *, struct tensor *out);
bool blob_pack(struct context *, const struct tensor *, struct blob *out);

#endif
