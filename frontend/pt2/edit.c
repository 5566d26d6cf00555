/* Changing a .pt2 file in places (struct editor, frontend.h): quantizers are nodes of quantized_decomposed, new
 * constants buffers. Edits gather beside the file; edit_write.c puts both together.
 */
#include "frontend/pt2/edit.h"

static void edit_reset(struct edit_file *e)
{
    e->constants.n = e->added.n = e->metas.n = e->outputs.n = 0;
    names_init(&e->new_names, &e->p.ctx->session);
    for (uint32_t i = 0; i < e->folded.n; i++)
        if (!edit_value(e, e->folded.data[i].name))
            name_bind(&e->new_names, e->folded.data[i].name, (value_id){1}, 0);
    for (uint32_t i = 0; i < e->nodes.n; i++)
        memcpy(e->nodes.data[i].in, e->nodes.data[i].shown.in, e->nodes.data[i].shown.n_in * sizeof(const char *));
}

static struct edit_file *edit_open(struct context *ctx, const char *path, const struct import_options *options,
                                   struct file_list *files)
{
    struct edit_file *e = NEW(&ctx->session, struct edit_file);
    (void)options;
    if (!pt2_open(&e->p, ctx, path, files) || !pt2_unmoved(&e->p, path))
        return NULL;
    pt2_metas(&e->p, e->p.graph);
    if (!edit_read(e))
        return NULL;
    edit_reset(e);
    return e;
}

static uint32_t edit_n_nodes(const struct edit_file *e)
{
    return e->nodes.n;
}

static const struct edit_node *edit_node(const struct edit_file *e, uint32_t i)
{
    return &e->nodes.data[i].shown;
}

static void edit_set_operand(struct edit_file *e, uint32_t node, uint32_t k, const char *name)
{
    e->nodes.data[node].in[k] = name;
}

static void edit_set_constant(struct edit_file *e, const char *name, const struct tensor_data *t)
{
    struct edit_constant c = {name, *t};
    c.data.dims = arena_copy(&e->p.ctx->session, t->dims, (size_t)t->rank * sizeof *t->dims);
    c.data.bytes.data = arena_copy(&e->p.ctx->session, t->bytes.data, t->bytes.size);
    VEC_PUSH(&e->p.ctx->session, &e->constants, c);
}

/* ---- nodes of quantized_decomposed ------------------------------------------------------------------------------- */

static void arg_begin(struct strbuf *out, const char *name, const char *tag)
{
    json_comma_put(out);
    strbuf_printf(out, "{\"name\":\"%s\",\"kind\":1,\"arg\":{\"as_%s\":", name, tag);
}

static void arg_tensor(struct strbuf *out, const char *name, const char *value)
{
    arg_begin(out, name, "tensor");
    strbuf_printf(out, "{\"name\":");
    json_text_put(out, value);
    strbuf_printf(out, "}}}");
}

static void arg_int(struct strbuf *out, const char *name, const char *tag, int64_t i)
{
    arg_begin(out, name, tag);
    strbuf_printf(out, "%lld}}", (long long)i);
}

/* quant_min, quant_max and dtype. */
static void args_of_type(struct strbuf *out, enum elem elem)
{
    const uint32_t bits = elem_bits(elem), sign = elem_class(elem) == 'I';
    arg_int(out, "quant_min", "int", sign ? -((int64_t)1 << (bits - 1)) : 0);
    arg_int(out, "quant_max", "int", ((int64_t)1 << (bits - sign)) - 1);
    arg_int(out, "dtype", "scalar_type", elem_torch(elem));
}

static struct edit_added node_begin(struct edit_file *e, uint32_t before, const char *op, const char *x,
                                    const char *more, const char *out)
{
    struct edit_added n = {before, {x, more}, out, {0}};
    strbuf_init(&n.json, &e->p.ctx->session);
    strbuf_printf(&n.json, "{\"target\":\"torch.ops.quantized_decomposed.%s.default\",\"inputs\":[", op);
    arg_tensor(&n.json, "input", x);
    return n;
}

static void node_end(struct edit_file *e, struct edit_added *n)
{
    strbuf_printf(&n->json, "],\"outputs\":[{\"as_tensor\":{\"name\":");
    json_text_put(&n->json, n->out);
    strbuf_printf(&n->json, "}}],\"metadata\":{},\"is_hop_single_tensor_return\":null,\"name\":");
    json_text_put(&n->json, n->out);
    strbuf_printf(&n->json, "}");
    VEC_PUSH(&e->p.ctx->session, &e->added, *n);
}

static void add_per_tensor(struct edit_file *e, uint32_t before, const char *op, const char *x, const char *out,
                           float scale, uint8_t zero)
{
    struct edit_added n = node_begin(e, before, op, x, "", out);
    arg_begin(&n.json, "scale", "float");
    json_put(&n.json, &(struct json){.kind = JSON_FLOAT, .u.f = (double)scale});
    strbuf_printf(&n.json, "}}");
    arg_int(&n.json, "zero_point", "int", zero);
    args_of_type(&n.json, ELEM_U8);
    node_end(e, &n);
}

static const char *edit_requantize(struct edit_file *e, uint32_t before, const char *name, float scale, uint8_t zero)
{
    const char *bytes = edit_name(e, name, "quantized"), *wide = edit_name(e, name, "dequantized");
    add_per_tensor(e, before, "quantize_per_tensor", name, bytes, scale, zero);
    add_per_tensor(e, before, "dequantize_per_tensor", bytes, wide, scale, zero);
    VEC_PUSH(&e->p.ctx->session, &e->metas, ((struct edit_meta){bytes, ELEM_U8, name, NULL}));
    VEC_PUSH(&e->p.ctx->session, &e->metas, ((struct edit_meta){wide, ELEM_F32, name, NULL}));
    return wide;
}

static const char *edit_dequantize(struct edit_file *e, uint32_t before, const char *like, const struct tensor_data *t,
                                   const float *scales, int32_t axis)
{
    const char *ints = edit_name(e, like, "quantized"), *scale = edit_name(e, like, "scale"),
               *wide = edit_name(e, like, "dequantized");
    const int64_t *n = &t->dims[axis];
    edit_set_constant(e, ints, t);
    const struct tensor_data *kept = &e->constants.data[e->constants.n - 1].data;
    VEC_PUSH(&e->p.ctx->session, &e->metas,
             ((struct edit_meta){wide, ELEM_F32, NULL, arena_copy(&e->p.ctx->session, kept, sizeof *kept)}));
    edit_set_constant(
        e, scale,
        &(struct tensor_data){.elem = ELEM_F32, .rank = 1, .dims = n, .bytes = {scales, (size_t)*n * sizeof *scales}});
    struct edit_added node = node_begin(e, e->nodes.data[before].before, "dequantize_per_channel", ints, scale, wide);
    arg_tensor(&node.json, "scales", scale);
    arg_begin(&node.json, "zero_points", "none");
    strbuf_printf(&node.json, "true}}");
    arg_int(&node.json, "axis", "int", axis);
    args_of_type(&node.json, t->elem);
    node_end(e, &node);
    return wide;
}

static void edit_add_output(struct edit_file *e, const char *name)
{
    const struct edit_value *v = edit_value(e, name);
    bool is_output = v && v->last == UINT32_MAX;
    if (!is_output && !ROW_NAMED(e->outputs.data, e->outputs.n, name))
        VEC_PUSH(&e->p.ctx->session, &e->outputs, name);
}

const struct editor pt2_editor = {
    .open = edit_open,
    .reset = edit_reset,
    .n_nodes = edit_n_nodes,
    .node = edit_node,
    .constant = edit_constant,
    .is_open = edit_is_open,
    .set_operand = edit_set_operand,
    .set_constant = edit_set_constant,
    .requantize = edit_requantize,
    .dequantize = edit_dequantize,
    .add_output = edit_add_output,
    .write = edit_write,
};
