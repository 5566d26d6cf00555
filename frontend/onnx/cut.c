/* Cutting an ONNX file down: some of its nodes as a file of their own, every kept byte as it was.
 *
 * The file's wire format is read here directly, one level at a time, since the importer's decoded form has lost what it
 * does not need. The caller has imported the file before, so it is well-formed; lengths are checked all the same. Field
 * numbers: ModelProto graph 7; GraphProto node 1, name 2, initializer 5, input 11, output 12, sparse_initializer 15;
 * NodeProto input 1, output 2, attribute 5; AttributeProto g 6, graphs 11; TensorProto name 8, data_location 14;
 * ValueInfoProto name 1, type 2.
 */
#include <string.h>

#include "frontend/onnx/hooks.h"
#include "frontend/onnx/scan.h"

enum { DEPTH_MAX = 200 };
enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

struct field {
    uint32_t number, wire;
    struct span whole, body;
    uint64_t value;
};
struct name_list {
    VEC(const char *) items;
};
struct cut_node {
    struct span bytes;
    struct name_list in, out;
};
struct cut_tensor {
    struct span bytes;
    const char *name;
    uint32_t field;
};
struct cut_file {
    struct context *ctx;
    struct span model, graph;
    VEC(struct cut_node) nodes;
    VEC(struct cut_tensor) tensors;
    struct name_list outputs;
    bool external;
};

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static bool read_varint(struct span *s, uint64_t *out)
{
    const unsigned char *p = s->data;
    *out = 0;
    for (size_t i = 0; i < s->size && i < 10; i++) {
        *out |= (uint64_t)(p[i] & 127) << (7 * i);
        if (p[i] < 128) {
            *s = (struct span){p + i + 1, s->size - i - 1};
            return true;
        }
    }
    return false;
}

/* The next field of *s; false at the end or where the bytes make no sense. */
static bool next_field(struct span *s, struct field *f)
{
    const char *start = s->data;
    uint64_t tag, size = 0;
    if (!s->size || !read_varint(s, &tag))
        return false;
    f->number = (uint32_t)(tag >> 3);
    f->wire = tag & 7;
    f->value = 0;
    if (f->wire == WIRE_VARINT ? !read_varint(s, &f->value) : f->wire == WIRE_BYTES && !read_varint(s, &size))
        return false;
    if (f->wire == WIRE_FIXED64 || f->wire == WIRE_FIXED32)
        size = f->wire == WIRE_FIXED64 ? 8 : 4;
    else if (f->wire != WIRE_VARINT && f->wire != WIRE_BYTES)
        return false;
    if (size > s->size)
        return false;
    f->body = (struct span){s->data, (size_t)size};
    *s = (struct span){(const char *)s->data + size, s->size - (size_t)size};
    f->whole = (struct span){start, (size_t)((const char *)s->data - start)};
    return true;
}

static const char *text_of(struct arena *arena, struct span s)
{
    return arena_strndup(arena, s.data, s.size);
}

static bool is_one_of(const struct name_list *names, const char *name)
{
    for (uint32_t i = 0; i < names->items.n; i++)
        if (strcmp(names->items.data[i], name) == 0)
            return true;
    return false;
}

/* The text in the first field `number` of a message; "" without one. */
static const char *text_field(struct arena *arena, struct span message, uint32_t number)
{
    struct field f;
    while (next_field(&message, &f))
        if (f.number == number && f.wire == WIRE_BYTES)
            return text_of(arena, f.body);
    return "";
}

static void read_captures(struct arena *, struct span graph, struct name_list *out, int depth);

static void read_node(struct arena *arena, struct span bytes, struct cut_node *out, int depth)
{
    struct field f, a;
    *out = (struct cut_node){.bytes = bytes};
    while (next_field(&bytes, &f)) {
        if (f.wire != WIRE_BYTES)
            continue;
        if ((f.number == 1 || f.number == 2) && f.body.size)
            VEC_PUSH(arena, &(f.number == 1 ? &out->in : &out->out)->items, text_of(arena, f.body));
        while (f.number == 5 && next_field(&f.body, &a))
            if (a.wire == WIRE_BYTES && (a.number == 6 || a.number == 11))
                read_captures(arena, a.body, &out->in, depth + 1);
    }
}

/* Appends what a subgraph takes from around it. */
static void read_captures(struct arena *arena, struct span graph, struct name_list *out, int depth)
{
    struct name_list own = {0}, used = {0};
    struct field f;
    if (depth > DEPTH_MAX)
        return;
    while (next_field(&graph, &f)) {
        struct cut_node node;
        if (f.number == 1) {
            read_node(arena, f.body, &node, depth);
            for (uint32_t i = 0; i < node.in.items.n; i++)
                VEC_PUSH(arena, &used.items, node.in.items.data[i]);
            for (uint32_t i = 0; i < node.out.items.n; i++)
                VEC_PUSH(arena, &own.items, node.out.items.data[i]);
        } else if (f.number == 5 || f.number == 11) {
            VEC_PUSH(arena, &own.items, text_field(arena, f.body, f.number == 5 ? 8 : 1));
        } else if (f.number == 12) {
            VEC_PUSH(arena, &used.items, text_field(arena, f.body, 1));
        }
    }
    for (uint32_t i = 0; i < used.items.n; i++)
        if (!is_one_of(&own, used.items.data[i]))
            VEC_PUSH(arena, &out->items, used.items.data[i]);
}

static void read_tensor(struct cut_file *c, const struct field *f)
{
    struct arena *arena = &c->ctx->session;
    struct span body = f->body;
    struct field part;
    struct cut_tensor t = {f->whole, "", f->number};
    if (f->number == 15 && (!next_field(&body, &part) || part.number != 1))
        return;
    t.name = text_field(arena, f->number == 15 ? part.body : f->body, 8);
    body = f->body;
    while (next_field(&body, &part))
        c->external |= f->number == 5 && part.number == 14 && part.value == 1;
    VEC_PUSH(arena, &c->tensors, t);
}

static struct cut_file *cut_open(struct context *ctx, const char *path)
{
    struct cut_file *c = NEW(&ctx->session, struct cut_file);
    struct field f;
    c->ctx = ctx;
    if (!file_read(ctx, path, &c->model))
        return NULL;
    for (struct span s = c->model; next_field(&s, &f);)
        if (f.number == 7 && f.wire == WIRE_BYTES)
            c->graph = f.body;
    for (struct span s = c->graph; next_field(&s, &f);) {
        struct cut_node node;
        if (f.number == 1) {
            read_node(&ctx->session, f.body, &node, 0);
            VEC_PUSH(&ctx->session, &c->nodes, node);
        } else if (f.number == 5 || f.number == 15) {
            read_tensor(c, &f);
        } else if (f.number == 12) {
            VEC_PUSH(&ctx->session, &c->outputs.items, text_field(&ctx->session, f.body, 1));
        }
    }
    if (c->external) {
        error_model(ctx, (src_id){0}, "weights in external files: save the network as one file first");
        return NULL;
    }
    return c;
}

static uint32_t cut_n_nodes(const struct cut_file *c)
{
    return c->nodes.n;
}

/* ---- writing --------------------------------------------------------------------------------------------------- */

static void put_number(struct strbuf *out, uint32_t field, uint64_t v)
{
    strbuf_varint(out, field << 3 | WIRE_VARINT);
    strbuf_varint(out, v);
}

static void put_bytes(struct strbuf *out, uint32_t field, const void *data, size_t size)
{
    strbuf_varint(out, field << 3 | WIRE_BYTES);
    strbuf_varint(out, size);
    strbuf_append(out, data, size);
}

/* ValueInfoProto: dims where they are said; a negative one is left open. */
static void put_port(struct strbuf *out, uint32_t field, const char *name, const struct cut_type *t)
{
    struct strbuf shape, tensor, type, port;
    strbuf_init(&shape, out->arena);
    strbuf_init(&tensor, out->arena);
    strbuf_init(&type, out->arena);
    strbuf_init(&port, out->arena);
    for (int32_t d = 0; d < t->rank; d++) {
        struct strbuf dim;
        strbuf_init(&dim, out->arena);
        if (t->dims[d] >= 0)
            put_number(&dim, 1, (uint64_t)t->dims[d]);
        put_bytes(&shape, 1, dim.n ? dim.data : "", dim.n);
    }
    put_number(&tensor, 1, (uint64_t)elem_onnx(t->elem));
    if (t->rank >= 0)
        put_bytes(&tensor, 2, shape.n ? shape.data : "", shape.n);
    put_bytes(&type, 1, tensor.data, tensor.n);
    put_bytes(&port, 1, name, strlen(name));
    put_bytes(&port, 2, type.data, type.n);
    put_bytes(out, field, port.data, port.n);
}

/* A set of names by hash: a collision would only make a candidate that the command refuses. */
struct name_set {
    uint64_t *slot;
    uint64_t mask;
};

static struct name_set set_new(struct arena *arena, size_t most)
{
    uint64_t size = 16;
    while (size < 2 * most)
        size *= 2;
    return (struct name_set){NEW_ARRAY(arena, uint64_t, size), size - 1};
}

/* Adds name when `add`; was it there? */
static bool set_has(struct name_set *s, const char *name, bool add)
{
    uint64_t hash = hash_bytes(name, strlen(name)) | 1, i = hash >> 8 & s->mask;
    for (; s->slot[i]; i = (i + 1) & s->mask)
        if (s->slot[i] == hash)
            return true;
    if (add)
        s->slot[i] = hash;
    return false;
}

struct writing {
    const struct cut_file *c;
    const bool *keep;
    struct name_set made, used, stored, ports;
    struct strbuf graph;
};

static void collect_names(struct writing *w, struct arena *arena)
{
    size_t n = w->c->tensors.n + 1;
    for (uint32_t i = 0; i < w->c->nodes.n; i++)
        n += w->c->nodes.data[i].in.items.n + w->c->nodes.data[i].out.items.n;
    w->made = set_new(arena, n);
    w->used = set_new(arena, n);
    w->stored = set_new(arena, n);
    w->ports = set_new(arena, n);
    for (uint32_t i = 0; i < w->c->nodes.n; i++) {
        const struct cut_node *node = &w->c->nodes.data[i];
        for (uint32_t k = 0; w->keep[i] && k < node->in.items.n; k++)
            set_has(&w->used, node->in.items.data[k], true);
        for (uint32_t k = 0; w->keep[i] && k < node->out.items.n; k++)
            set_has(&w->made, node->out.items.data[k], true);
    }
    for (uint32_t i = 0; i < w->c->tensors.n; i++)
        set_has(&w->stored, w->c->tensors.data[i].name, true);
}

static bool put_inputs(struct writing *w, cut_type_fn *type_of, void *user)
{
    for (uint32_t i = 0; i < w->c->nodes.n; i++) {
        const struct cut_node *node = &w->c->nodes.data[i];
        for (uint32_t k = 0; w->keep[i] && k < node->in.items.n; k++) {
            const char *name = node->in.items.data[k];
            struct cut_type type;
            if (set_has(&w->made, name, false) || set_has(&w->stored, name, false) || set_has(&w->ports, name, true))
                continue;
            if (!type_of(user, name, &type))
                return false;
            put_port(&w->graph, 11, name, &type);
        }
    }
    return true;
}

/* What was an output, and what nothing that is kept reads. */
static bool put_outputs(struct writing *w, cut_type_fn *type_of, void *user)
{
    int64_t open_dims[RANK_MAX];
    uint32_t n = 0;
    for (int32_t d = 0; d < RANK_MAX; d++)
        open_dims[d] = -1;
    for (uint32_t i = 0; i < w->c->nodes.n; i++) {
        const struct cut_node *node = &w->c->nodes.data[i];
        for (uint32_t k = 0; w->keep[i] && k < node->out.items.n; k++) {
            const char *name = node->out.items.data[k];
            struct cut_type type;
            if ((set_has(&w->used, name, false) && !is_one_of(&w->c->outputs, name)) || !type_of(user, name, &type))
                continue;
            type.dims = open_dims;      /* smaller inputs change them */
            put_port(&w->graph, 12, name, &type);
            n++;
        }
    }
    return n > 0;
}

static bool cut_write(const struct cut_file *c, const bool *keep, cut_type_fn *type_of, void *user, struct strbuf *out)
{
    struct writing w = {.c = c, .keep = keep};
    struct field f;
    strbuf_init(&w.graph, out->arena);
    collect_names(&w, out->arena);
    for (uint32_t i = 0; i < c->nodes.n; i++)
        if (keep[i])
            put_bytes(&w.graph, 1, c->nodes.data[i].bytes.data, c->nodes.data[i].bytes.size);
    put_bytes(&w.graph, 2, "reduced", strlen("reduced"));
    for (uint32_t i = 0; i < c->tensors.n; i++)
        if (set_has(&w.used, c->tensors.data[i].name, false))
            strbuf_append(&w.graph, c->tensors.data[i].bytes.data, c->tensors.data[i].bytes.size);
    if (!put_inputs(&w, type_of, user) || !put_outputs(&w, type_of, user))
        return false;
    for (struct span s = c->model; next_field(&s, &f);)
        if (f.number != 7)
            strbuf_append(out, f.whole.data, f.whole.size);
    put_bytes(out, 7, w.graph.data, w.graph.n);
    return true;
}

const struct cutter onnx_cutter = {cut_open, cut_n_nodes, cut_write};
