/* Changing an ONNX file in places: operands, initializers, nodes of scaling, outputs (struct editor, frontend.h).
 *
 * Edits gather beside the file's bytes; writing goes through the graph's fields once, and copies what no edit is about.
 * Models before operator set 13 scale along an axis by com.microsoft's operators, which every reader of such files has.
 */
#include "frontend/onnx/gather.h"
#include "frontend/onnx/hooks.h"
#include "frontend/onnx/wire.h"

enum { OPSET_OF_AXES = 13, OPSET_OF_SCALING = 10, IR_OF_CONSTANTS = 4, ATTRIBUTE_INT = 2, ELEM_OF_FLOAT = 1 };
#define CONTRIB "com.microsoft"

struct file_node {
    struct edit_node shown;
    struct span bytes;
    const char **in;               /* as edited */
    uint32_t n_in;
    bool edited;
    struct text_list captured;     /* by its subgraphs */
};
struct stored {
    const char *name;
    struct span bytes;             /* of the TensorProto */
    bool is_float;
};
struct added_node {
    uint32_t before;
    const char *in[3];
    struct span bytes;
};
struct edit_file {
    struct context *ctx;
    const char *path;
    struct span model, graph;
    int64_t ir_version, opset;
    bool has_contrib;
    VEC(struct file_node) nodes;
    VEC(struct stored) tensors;
    struct text_list outputs;
    struct text_list names;        /* all that the file has, and new ones */
    VEC(struct added_node) added;  /* in the order of `before` as far as one place goes */
    VEC(struct stored) constants;
    struct text_list more_outputs;
};

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static double number_of(const struct edit_file *e, struct span node, const char *attribute, double absent)
{
    struct field f, a;
    while (next_field(&node, &f)) {
        if (f.number != 5 || strcmp(text_field(&e->ctx->session, f.body, 1), attribute) != 0)
            continue;
        while (next_field(&f.body, &a)) {
            float real;
            if (a.number == 2 && a.wire == WIRE_FIXED32) {
                memcpy(&real, a.body.data, sizeof real);
                return (double)real;
            }
            if (a.number == 3 && a.wire == WIRE_VARINT)
                return (double)(int64_t)a.value;
        }
    }
    return absent;
}

/* Gemm is a product where it is y = x w + c alone, w either way round. */
static void read_kind(const struct edit_file *e, struct span bytes, struct edit_node *n)
{
    static const struct {
        const char *op;
        enum edit_kind kind;
        struct edit_product product;
    } kinds[] = {
        {"Conv", EDIT_PRODUCT, {.out_axis = 0, .in_axis = 1, .takes_bias = true}},
        {"ConvTranspose", EDIT_PRODUCT, {.out_axis = 1, .in_axis = 0, .takes_bias = true}},
        {"Gemm", EDIT_PRODUCT, {.out_axis = 1, .in_axis = 0, .takes_bias = true, .matrix = true}},
        {"MatMul", EDIT_PRODUCT, {.out_axis = 1, .in_axis = 0, .matrix = true}},
        {"Add", EDIT_SUM, {0}},
        {"Concat", EDIT_CONCAT, {0}},
        {"MaxPool", EDIT_MAX_POOL, {0}},
        {"AveragePool", EDIT_AVERAGE_POOL, {0}},
        {"GlobalAveragePool", EDIT_GLOBAL_POOL, {0}},
        {"Resize", EDIT_RESIZE, {0}},
        {"Relu", EDIT_RELU, {0}},
        {"LeakyRelu", EDIT_LEAKY_RELU, {0}},
        {"Clip", EDIT_CLIP, {0}},
    };
    const char *domain = text_field(&e->ctx->session, bytes, 7);
    for (size_t k = 0; k < COUNT_OF(kinds) && (!*domain || strcmp(domain, "ai.onnx") == 0); k++)
        if (strcmp(kinds[k].op, n->op) == 0) {
            n->kind = kinds[k].kind;
            n->product = kinds[k].product;
        }
    if (n->kind != EDIT_PRODUCT)
        return;
    n->product.groups = n->product.matrix ? 1 : number_of(e, bytes, "group", 1);
    if (strcmp(n->op, "Gemm") == 0 && number_of(e, bytes, "transB", 0) != 0) {
        n->product.out_axis = 0;
        n->product.in_axis = 1;
    }
    if (strcmp(n->op, "Gemm") == 0 && (number_of(e, bytes, "transA", 0) != 0 || number_of(e, bytes, "alpha", 1) != 1 ||
                                       number_of(e, bytes, "beta", 1) != 1))
        n->kind = EDIT_OTHER;
}

static void read_file_node(struct edit_file *e, struct span bytes)
{
    struct arena *arena = &e->ctx->session;
    struct file_node n = {.bytes = bytes};
    struct text_list in = {0}, out = {0};
    struct wire_node all;
    struct field f;
    for (struct span s = bytes; next_field(&s, &f);)
        if (f.wire == WIRE_BYTES && (f.number == 1 || f.number == 2)) {
            VEC_PUSH(arena, &(f.number == 1 ? &in : &out)->items, text_of(arena, f.body));
            VEC_PUSH(arena, &e->names.items, text_of(arena, f.body));
        }
    wire_node_read(arena, bytes, &all);
    for (uint32_t i = 0; i < all.in.items.n; i++)
        if (!text_list_has(&in, all.in.items.data[i]))
            VEC_PUSH(arena, &n.captured.items, all.in.items.data[i]);
    n.shown = (struct edit_node){.op = text_field(arena, bytes, 4),
                                 .name = text_field(arena, bytes, 3),
                                 .in = in.items.data,
                                 .out = out.items.data,
                                 .n_in = in.items.n,
                                 .n_out = out.items.n};
    read_kind(e, bytes, &n.shown);
    VEC_PUSH(arena, &e->nodes, n);
}

static void read_stored(struct edit_file *e, struct span bytes)
{
    struct stored t = {text_field(&e->ctx->session, bytes, 8), bytes, false};
    struct field f;
    for (struct span s = bytes; next_field(&s, &f);)
        t.is_float |= f.number == 2 && f.value == ELEM_OF_FLOAT;
    VEC_PUSH(&e->ctx->session, &e->tensors, t);
    VEC_PUSH(&e->ctx->session, &e->names.items, t.name);
}

static void read_opset(struct edit_file *e, struct span bytes)
{
    const char *domain = text_field(&e->ctx->session, bytes, 1);
    struct field f;
    e->has_contrib |= strcmp(domain, CONTRIB) == 0;
    while (next_field(&bytes, &f))
        if (f.number == 2 && (!*domain || strcmp(domain, "ai.onnx") == 0))
            e->opset = (int64_t)f.value;
}

static void read_graph(struct edit_file *e)
{
    struct arena *arena = &e->ctx->session;
    struct field f;
    for (struct span s = e->graph; next_field(&s, &f);) {
        if (f.number == 1)
            read_file_node(e, f.body);
        else if (f.number == 5)
            read_stored(e, f.body);
        if (f.number == 12)
            VEC_PUSH(arena, &e->outputs.items, text_field(arena, f.body, 1));
        if (f.number == 11 || f.number == 12)
            VEC_PUSH(arena, &e->names.items, text_field(arena, f.body, 1));
    }
}

static void edit_reset(struct edit_file *e)
{
    e->added.n = e->constants.n = e->more_outputs.items.n = 0;
    for (uint32_t i = 0; i < e->nodes.n; i++) {
        struct file_node *n = &e->nodes.data[i];
        n->in = NEW_ARRAY(&e->ctx->session, const char *, n->shown.n_in + 2);
        for (uint32_t k = 0; k < n->shown.n_in; k++)
            n->in[k] = n->shown.in[k];
        n->n_in = n->shown.n_in;
        n->edited = false;
    }
}

static struct edit_file *edit_open(struct context *ctx, const char *path, const struct import_options *options,
                                   struct file_list *files)
{
    struct edit_file *e = NEW(&ctx->session, struct edit_file);
    struct field f;
    e->ctx = ctx;
    e->path = path;
    if (!file_gather(ctx, path, options, files, &e->model))
        return NULL;
    for (struct span s = e->model; next_field(&s, &f);) {
        if (f.number == 1)
            e->ir_version = (int64_t)f.value;
        else if (f.number == 7 && f.wire == WIRE_BYTES)
            e->graph = f.body;
        else if (f.number == 8 && f.wire == WIRE_BYTES)
            read_opset(e, f.body);
    }
    read_graph(e);
    if (e->opset < OPSET_OF_SCALING) {
        error_model(ctx, (src_id){0},
                    "operator set %lld has no QuantizeLinear; convert the network to operator set 10 or later",
                    (long long)e->opset);
        return NULL;
    }
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

static bool edit_constant(struct edit_file *e, const char *name, struct tensor_data *out)
{
    for (uint32_t i = 0; i < e->tensors.n; i++)
        if (e->tensors.data[i].is_float && strcmp(e->tensors.data[i].name, name) == 0)
            return tensor_of_bytes(e->ctx, e->tensors.data[i].bytes, e->path, out);
    return false;
}

static bool edit_is_open(const struct edit_file *e, const char *name)
{
    bool open = text_list_has(&e->outputs, name);
    for (uint32_t i = 0; i < e->nodes.n && !open; i++)
        open = text_list_has(&e->nodes.data[i].captured, name);
    return open;
}

/* ---- edits ------------------------------------------------------------------------------------------------------- */

static const char *new_name(struct edit_file *e, const char *like, const char *what)
{
    const char *first = arena_printf(&e->ctx->session, "%s_%s", like, what), *name = first;
    for (uint32_t k = 2; text_list_has(&e->names, name); k++)
        name = arena_printf(&e->ctx->session, "%s_%u", first, k);
    VEC_PUSH(&e->ctx->session, &e->names.items, name);
    return name;
}

static void edit_set_operand(struct edit_file *e, uint32_t node, uint32_t k, const char *name)
{
    struct file_node *n = &e->nodes.data[node];
    n->in[k] = name;
    n->n_in = n->n_in > k + 1 ? n->n_in : k + 1;
    n->edited = true;
}

static void edit_set_constant(struct edit_file *e, const char *name, const struct tensor_data *t)
{
    struct strbuf text = strbuf_of(&e->ctx->session);
    onnx_tensor_files.write(t->elem, t->dims, t->rank, t->bytes, &text);
    put_text(&text, 8, name);
    VEC_PUSH(&e->ctx->session, &e->constants, ((struct stored){name, {text.data, text.n}, false}));
}

/* QuantizeLinear, or DequantizeLinear, along `axis` (-1: one scale for all). */
static void add_scaling(struct edit_file *e, uint32_t before, bool quantize, const char *const in[3], const char *out,
                        int32_t axis)
{
    struct arena *arena = &e->ctx->session;
    struct added_node n = {before, {in[0], in[1], in[2]}, {0}};
    struct strbuf text = strbuf_of(arena), attribute = strbuf_of(arena);
    for (int k = 0; k < 3; k++)
        put_text(&text, 1, in[k]);
    put_text(&text, 2, out);
    put_text(&text, 3, new_name(e, out, "node"));
    put_text(&text, 4, quantize ? "QuantizeLinear" : "DequantizeLinear");
    if (axis >= 0) {
        put_text(&attribute, 1, "axis");
        put_number(&attribute, 3, (uint64_t)axis);
        put_number(&attribute, 20, ATTRIBUTE_INT);
        put_bytes(&text, 5, attribute.data, attribute.n);
    }
    if (e->opset < OPSET_OF_AXES)
        put_text(&text, 7, CONTRIB);
    n.bytes = (struct span){text.data, text.n};
    VEC_PUSH(arena, &e->added, n);
}

static const char *edit_requantize(struct edit_file *e, uint32_t before, const char *name, float scale, uint8_t zero)
{
    const char *in[3] = {name, new_name(e, name, "scale"), new_name(e, name, "zero_point")};
    const char *bytes = new_name(e, name, "quantized"), *wide = new_name(e, name, "dequantized");
    edit_set_constant(e, in[1], &(struct tensor_data){.elem = ELEM_F32, .bytes = {&scale, sizeof scale}});
    edit_set_constant(e, in[2], &(struct tensor_data){.elem = ELEM_U8, .bytes = {&zero, 1}});
    add_scaling(e, before, true, in, bytes, -1);
    in[0] = bytes;
    add_scaling(e, before, false, in, wide, -1);
    return wide;
}

static const char *edit_dequantize(struct edit_file *e, uint32_t before, const char *like, const struct tensor_data *t,
                                   const float *scales, int32_t axis)
{
    const char *in[3] = {new_name(e, like, "quantized"), new_name(e, like, "scale"), new_name(e, like, "zero_point")};
    const char *wide = new_name(e, like, "dequantized");
    const int64_t *n = &t->dims[axis];
    const size_t size = (size_t)*n * elem_size(t->elem);
    const void *zeros = arena_alloc_array(&e->ctx->session, size, 1);
    edit_set_constant(e, in[0], t);
    edit_set_constant(e, in[2], &(struct tensor_data){.elem = t->elem, .rank = 1, .dims = n, .bytes = {zeros, size}});
    edit_set_constant(
        e, in[1],
        &(struct tensor_data){.elem = ELEM_F32, .rank = 1, .dims = n, .bytes = {scales, (size_t)*n * sizeof *scales}});
    add_scaling(e, before, false, in, wide, axis);
    return wide;
}

static void edit_add_output(struct edit_file *e, const char *name)
{
    if (!text_list_has(&e->outputs, name) && !text_list_has(&e->more_outputs, name))
        VEC_PUSH(&e->ctx->session, &e->more_outputs.items, name);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void put_added(const struct edit_file *e, uint32_t before, struct strbuf *out)
{
    for (uint32_t i = 0; i < e->added.n; i++)
        if (e->added.data[i].before == before)
            put_bytes(out, 1, e->added.data[i].bytes.data, e->added.data[i].bytes.size);
}

static void put_node(const struct file_node *n, struct strbuf *out)
{
    struct field f;
    if (!n->edited) {
        put_bytes(out, 1, n->bytes.data, n->bytes.size);
        return;
    }
    struct strbuf text = strbuf_of(out->arena);
    for (uint32_t k = 0; k < n->n_in; k++)
        put_text(&text, 1, n->in[k] ? n->in[k] : "");
    for (struct span s = n->bytes; next_field(&s, &f);)
        if (f.number != 1)
            strbuf_append(&text, f.whole.data, f.whole.size);
    put_bytes(out, 1, text.data, text.n);
}

/* Does anything read the initializer after the edits? */
static bool is_read(const struct edit_file *e, const char *name)
{
    if (edit_is_open(e, name))
        return true;
    for (uint32_t i = 0; i < e->nodes.n; i++)
        for (uint32_t k = 0; k < e->nodes.data[i].n_in; k++)
            if (e->nodes.data[i].in[k] && strcmp(e->nodes.data[i].in[k], name) == 0)
                return true;
    for (uint32_t i = 0; i < e->added.n; i++)
        if (ROW_NAMED(e->added.data[i].in, 3, name))
            return true;
    return false;
}

static bool is_replaced(const struct edit_file *e, const char *name)
{
    return ROW_NAMED(e->constants.data, e->constants.n, name) != NULL;
}

/* Was it an initializer that nothing reads any more? Older files name them among the inputs, too. */
static bool is_gone(const struct edit_file *e, const char *name)
{
    bool stored = ROW_NAMED(e->tensors.data, e->tensors.n, name), was_read = false;
    for (uint32_t i = 0; i < e->nodes.n && stored && !was_read; i++)
        for (uint32_t k = 0; k < e->nodes.data[i].shown.n_in; k++)
            was_read |= e->nodes.data[i].edited && strcmp(e->nodes.data[i].shown.in[k], name) == 0;
    return stored && was_read && !is_read(e, name);
}

static void put_graph(const struct edit_file *e, struct strbuf *out)
{
    struct cut_type any = {.elem = ELEM_F32, .rank = -1};
    struct field f;
    uint32_t node = 0;
    for (struct span s = e->graph; next_field(&s, &f);) {
        if (f.number == 1) {
            put_added(e, node, out);
            put_node(&e->nodes.data[node++], out);
            continue;
        }
        const char *name = f.number == 5 || f.number == 11 ? text_field(out->arena, f.body, f.number == 5 ? 8 : 1) : "";
        if ((f.number == 5 && is_replaced(e, name)) || ((f.number == 5 || f.number == 11) && is_gone(e, name)))
            continue;
        strbuf_append(out, f.whole.data, f.whole.size);
    }
    put_added(e, node, out);
    for (uint32_t i = 0; i < e->constants.n; i++)
        put_bytes(out, 5, e->constants.data[i].bytes.data, e->constants.data[i].bytes.size);
    for (uint32_t i = 0; i < e->more_outputs.items.n; i++)
        put_port(out, 12, e->more_outputs.items.data[i], &any);
}

static void edit_write(const struct edit_file *e, struct strbuf *out)
{
    struct field f;
    struct strbuf graph = strbuf_of(out->arena), opset = strbuf_of(out->arena);
    put_graph(e, &graph);
    put_number(out, 1, (uint64_t)(e->ir_version > IR_OF_CONSTANTS ? e->ir_version : IR_OF_CONSTANTS));
    for (struct span s = e->model; next_field(&s, &f);)
        if (f.number != 1 && f.number != 7)
            strbuf_append(out, f.whole.data, f.whole.size);
    if (e->added.n && e->opset < OPSET_OF_AXES && !e->has_contrib) {
        put_text(&opset, 1, CONTRIB);
        put_number(&opset, 2, 1);
        put_bytes(out, 8, opset.data, opset.n);
    }
    put_bytes(out, 7, graph.data, graph.n);
}

const struct editor onnx_editor = {
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
