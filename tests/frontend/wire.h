/* Writing ONNX files by hand for tests: protobuf's wire format, the messages of a small model, a fixture that
 * imports. */
#ifndef MCC_TESTS_FRONTEND_WIRE_H
#define MCC_TESTS_FRONTEND_WIRE_H

#include "frontend/frontend.h"

struct wire {
    uint8_t *data;
    size_t n, cap;
}; /* a message under construction; wire_free when done */

void wire_free(struct wire *);
void wire_append(struct wire *, const void *, size_t n);
void wire_int(struct wire *, uint32_t field, int64_t v);
void wire_f32(struct wire *, uint32_t field, float v);
void wire_data(struct wire *, uint32_t field, const void *, size_t n);
void wire_text(struct wire *, uint32_t field, const char *);
/* Adds a sub-message and frees it. */
void wire_message(struct wire *, uint32_t field, struct wire *);

/* Attributes; all return a message to be added to a node as field 5. */
struct wire attribute_int(const char *name, int64_t v);
struct wire attribute_graph(const char *name, struct wire graph);
struct wire attribute_tensor(const char *name, struct wire tensor);

/* Lists of names are separated by blanks; "_" stands for the empty name. */
struct wire node(const char *op, const char *inputs, const char *outputs);
struct wire value_info(const char *name, int32_t elem, const char *dims); /* dims: "n 3 ?", NULL: no shape */
struct wire tensor_raw(const char *name, int32_t elem, const char *dims, const void *data, size_t n);
struct wire tensor_floats(const char *name, const char *dims, const float *, size_t n);

void graph_node_add(struct wire *graph, struct wire n);
void graph_input(struct wire *graph, struct wire value);
void graph_output(struct wire *graph, struct wire value);
void graph_init(struct wire *graph, struct wire tensor);
void opset(struct wire *holder, uint32_t field, const char *domain, int64_t version);
/* A model around a graph: IR version 8, opset 17. */
struct wire model(struct wire graph);
/* z = Relu(x + w), x and z float[2,3], w float[3]. */
struct wire model_add(void);

/* ---- importing ------------------------------------------------------------------------------------------------ */

struct fixture {
    struct context *ctx;
    struct import_options options;
    char dir[64], path[96];
    struct file_list files;
};
int fixture_open(void **state);
int fixture_close(void **state);
/* Writes bytes to a file of the fixture's folder. */
void file_put(const struct fixture *, const char *name, const void *, size_t n);
/* Imports the message, which it frees; a fresh context each time. NULL: refused, or unwound. */
struct graph *import(struct fixture *, struct wire message);
struct graph *import_bytes(struct fixture *, const void *, size_t n);
/* Again what is in the fixture's file; allocation number `failing` fails, 0: none. */
struct graph *import_file(struct fixture *, int64_t failing);
/* The message is refused with this class and a diagnostic that holds `says`. Frees the message. */
void assert_refused(struct fixture *, struct wire message, enum fail, const char *says);
/* Fails the test with the diagnostics unless g. */
struct graph *assert_imported(struct fixture *, struct graph *g);
/* All diagnostics as text. */
const char *messages(struct fixture *);

/* The first node of that operator (ONNX type, or "constant"); NULL. */
const struct node *node_of(const struct graph *, const char *op);
/* The first constant of that name. */
const struct node *constant_of(const struct graph *, const char *name);

#endif
