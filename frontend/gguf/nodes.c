/* Nodes of the imported graph of a GGUF file: operators of ONNX, of com.microsoft, and those of block types ("ggml") */
#include "frontend/gguf/gguf.h"

enum { ONNX_VERSION = 23 };

/* ---- ports and constants --------------------------------------------------------------------------------------- */

expr_id gguf_symbol(struct gguf *p, const char *name)
{
    sym_id s = sym_find(p->ctx->exprs, name);
    return ex_sym(p->ctx->exprs, s.i ? s : sym_new(p->ctx->exprs, SYM_SHAPE, name, 0, INT64_MAX));
}

value_id gguf_input(struct gguf *p, const char *name, enum elem elem, const expr_id *dims, int32_t rank)
{
    const char *own = arena_strdup(&p->ctx->session, name);
    struct type type = {.kind = TYPE_TENSOR,
                        .elem = elem,
                        .rank = rank,
                        .dims = arena_copy(&p->g->arena, dims, (size_t)rank * sizeof *dims)};
    value_id v = graph_param(p->g, (region_id){1}, type, own);
    struct port port = {own, arena_copy(&p->g->arena, &type, sizeof type), v};
    VEC_PUSH(&p->g->arena, &p->g->inputs, port);
    return v;
}

void gguf_output(struct gguf *p, const char *name, value_id v)
{
    struct port port = {.name = arena_strdup(&p->ctx->session, name), .value = v};
    graph_value(p->g, v)->name = port.name;
    VEC_PUSH(&p->g->arena, &p->g->outputs, port);
    graph_add_result(p->g, (region_id){1}, v);
}

value_id gguf_constant(struct gguf *p, enum elem elem, const int64_t *dims, int32_t rank, const void *data,
                       const char *name)
{
    return graph_constant(p->g, (region_id){1}, elem, dims, rank, data, name);
}

value_id gguf_int(struct gguf *p, int64_t i)
{
    return gguf_constant(p, ELEM_I64, &(int64_t){1}, 1, arena_copy(&p->ctx->session, &i, sizeof i), "");
}

/* ---- operators ------------------------------------------------------------------------------------------------- */

bool gguf_append(struct gguf *p, const struct gguf_op *o, value_id *out, uint32_t n_out)
{
    for (uint32_t i = 0; i < n_out; i++)
        out[i] = (value_id){0};
    if (p->ctx->n_errors)
        return false;
    const char *name = arena_strdup(&p->ctx->session, o->name);
    struct source s = {.name = name, .op = o->op, .domain = o->domain, .version = o->version, .output = name};
    node_id id = graph_append(p->g, (region_id){1}, OP_IMPORTED, source_add(p->ctx, s), o->in, o->n_in, o->attrs,
                              o->n_attrs, NULL, n_out);
    struct node *node = graph_node(p->g, id);
    node->domain = o->domain;
    node->op_type = o->op;
    node->overload = "";
    for (uint32_t i = 0; i < n_out; i++)
        out[i] = node->out[i];
    return true;
}

value_id gguf_unary(struct gguf *p, const char *op, const char *name, value_id x)
{
    value_id y;
    gguf_append(p, &(struct gguf_op){"", op, ONNX_VERSION, name, &x, 1, NULL, 0}, &y, 1);
    return y;
}

value_id gguf_binary(struct gguf *p, const char *op, const char *name, value_id x, value_id y)
{
    value_id z;
    gguf_append(p, &(struct gguf_op){"", op, ONNX_VERSION, name, ARRAY(value_id, x, y), NULL, 0}, &z, 1);
    return z;
}

value_id gguf_scaled(struct gguf *p, const char *name, value_id x, double by)
{
    float f = (float)by;
    return by == 1 ? x
                   : gguf_binary(p, "Mul", name, x,
                                 gguf_constant(p, ELEM_F32, NULL, 0, arena_copy(&p->ctx->session, &f, sizeof f), ""));
}

/* ---- weights --------------------------------------------------------------------------------------------------- */

#define tensor_refuse(p, t, ...) error_at((p)->ctx, FAIL_MODEL, (src_id){0}, (t)->name, __VA_ARGS__)

/* "3 x 4", in scratch memory. */
static const char *shape_text(struct gguf *p, const int64_t *dims, int32_t rank)
{
    struct strbuf out = strbuf_of(&p->scratch);
    for (int32_t d = 0; d < rank; d++)
        strbuf_printf(&out, d ? " x %lld" : "%lld", (long long)dims[d]);
    return out.data;
}

/* Has the tensor that shape? Else a diagnostic. */
static bool shape_is(struct gguf *p, const struct gguf_tensor *t, const int64_t *dims, int32_t rank, bool floats)
{
    if (t->rank == rank && memcmp(t->dims, dims, (size_t)rank * sizeof *dims) == 0 &&
        !(floats && t->type->elem == ELEM_U8))
        return true;
    return tensor_refuse(p, t, "it should be %s%s, and is %s of %s", shape_text(p, dims, rank), floats ? " floats" : "",
                         shape_text(p, t->dims, t->rank), t->type->name);
}

value_id gguf_floats(struct gguf *p, const char *name, const int64_t *dims, int32_t rank)
{
    struct gguf_tensor *t = gguf_tensor(p, name);
    if (!t)
        return gguf_refuse(p, "the file has no tensor '%s'", name), (value_id){0};
    if (!shape_is(p, t, dims, rank, true))
        return (value_id){0};
    if (!t->v.i)
        t->v = gguf_constant(p, t->type->elem, t->dims, rank, t->data, t->name);
    t->used = true;
    if (t->type->elem == ELEM_F32)
        return t->v;
    const struct attr to = attr_int("to", 1); /* FLOAT of TensorProto.DataType */
    value_id y;
    gguf_append(p, &(struct gguf_op){"", "Cast", ONNX_VERSION, name, &t->v, 1, &to, 1}, &y, 1);
    return y;
}

value_id gguf_vector(struct gguf *p, const char *name, int64_t length)
{
    return gguf_floats(p, name, &length, 1);
}

value_id gguf_weights(struct gguf *p, const char *name, int64_t many, int64_t rows, int64_t columns)
{
    struct gguf_tensor *t = gguf_tensor(p, name);
    int32_t rank = many ? 3 : 2;
    int64_t dims[3] = {many, rows, columns};
    if (!t)
        return gguf_refuse(p, "the file has no tensor '%s'", name), (value_id){0};
    if (!shape_is(p, t, dims + 3 - rank, rank, false))
        return (value_id){0};
    if (t->type->elem == ELEM_U8)
        dims[2] = columns / t->type->elements * t->type->bytes;
    if (!t->v.i)
        t->v = gguf_constant(p, t->type->elem, dims + 3 - rank, rank, t->data, t->name);
    t->used = true;
    return t->v;
}

value_id gguf_product(struct gguf *p, const char *name, value_id x, int64_t rows, int64_t columns)
{
    const char *weight = arena_printf(&p->scratch, "%s.weight", name);
    const char *bias = arena_printf(&p->scratch, "%s.bias", name);
    const value_id in[2] = {x, gguf_weights(p, weight, 0, rows, columns)};
    value_id y;
    if (!in[1].i)
        return in[1];
    const struct attr attrs[] = {attr_str("type", gguf_tensor(p, weight)->type->name), attr_int("columns", columns)};
    gguf_append(p, &(struct gguf_op){"ggml", "MulMat", 1, name, in, 2, attrs, 2}, &y, 1);
    return gguf_tensor(p, bias) ? gguf_binary(p, "Add", bias, y, gguf_vector(p, bias, rows)) : y;
}
