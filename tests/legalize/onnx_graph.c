/* See onnx_graph.h. */
#include "tests/legalize/onnx_graph.h"

value_id onnx_input(struct graph *g, const char *name, const int64_t *dims, int32_t rank)
{
    expr_id *e = NEW_ARRAY(&g->arena, expr_id, rank + 1);
    for (int32_t i = 0; i < rank; i++)
        if (dims[i] >= 0)
            e[i] = ex_const(g->ctx->exprs, dims[i]);
    struct type type = {.kind = TYPE_TENSOR, .elem = ELEM_F32, .rank = rank, .dims = e};
    value_id v = graph_param(g, (region_id){1}, type, name);
    struct port port = {.name = name, .value = v, .declared = arena_copy(&g->arena, &type, sizeof type)};
    VEC_PUSH(&g->arena, &g->inputs, port);
    return v;
}

value_id onnx_ints(struct graph *g, region_id r, const int64_t *x, int64_t n)
{
    struct attr attr = attr_ints("value_ints", x, (uint32_t)n);
    return onnx_node(g, r, "", "Constant", 13, NULL, 0, &attr, 1);
}

value_id onnx_node(struct graph *g, region_id r, const char *domain, const char *op, int32_t version,
                   const value_id *in, uint32_t n_in, const struct attr *attr, uint32_t n_attr)
{
    struct source source = {.name = "", .op = op, .domain = domain, .version = version, .output = op};
    src_id src = source_add(g->ctx, source);
    node_id id = graph_append(g, r, OP_IMPORTED, src, in, n_in, attr, n_attr, NULL, 1);
    graph_node(g, id)->op_type = op;
    graph_node(g, id)->domain = domain;
    graph_node(g, id)->overload = "";
    return graph_node(g, id)->out[0];
}

void onnx_output(struct graph *g, const char *name, value_id v)
{
    struct port port = {.name = name, .value = v};
    VEC_PUSH(&g->arena, &g->outputs, port);
    graph_add_result(g, (region_id){1}, v);
}
