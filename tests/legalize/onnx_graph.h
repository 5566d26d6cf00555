/* Imported graphs for tests, node by node, as the frontend would make them. */
#ifndef MCC_TESTS_LEGALIZE_ONNX_GRAPH_H
#define MCC_TESTS_LEGALIZE_ONNX_GRAPH_H

#include "ir/graph/graph.h"

/* A graph input of f32 with these dims; -1: a symbol of its own. */
value_id onnx_input(struct graph *, const char *name, const int64_t *dims, int32_t rank);
value_id onnx_ints(struct graph *, region_id, const int64_t *x, int64_t n);
/* One node with one result at this since_version. */
value_id onnx_node(struct graph *, region_id, const char *domain, const char *op, int32_t version, const value_id *in,
                   uint32_t n_in, const struct attr *, uint32_t n_attr);
/* The value becomes an output of the model. */
void onnx_output(struct graph *, const char *name, value_id);

#endif
