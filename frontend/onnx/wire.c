/* The wire format of an ONNX file: see wire.h. */
#include "frontend/onnx/wire.h"

enum { DEPTH_MAX = 200 };

bool next_field(struct span *s, struct field *f)
{
    const char *start = s->data;
    uint64_t tag, size = 0;
    if (!s->size || !span_varint(s, &tag))
        return false;
    f->number = (uint32_t)(tag >> 3);
    f->wire = tag & 7;
    f->value = 0;
    if (f->wire == WIRE_VARINT ? !span_varint(s, &f->value) : f->wire == WIRE_BYTES && !span_varint(s, &size))
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

const char *text_of(struct arena *arena, struct span s)
{
    return arena_strndup(arena, s.data, s.size);
}

const char *text_field(struct arena *arena, struct span message, uint32_t number)
{
    struct field f;
    while (next_field(&message, &f))
        if (f.number == number && f.wire == WIRE_BYTES)
            return text_of(arena, f.body);
    return "";
}

static void read_captures(struct arena *, struct span graph, struct text_list *out, int depth);

static void read_node(struct arena *arena, struct span bytes, struct wire_node *out, int depth)
{
    struct field f, a;
    *out = (struct wire_node){.bytes = bytes};
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
static void read_captures(struct arena *arena, struct span graph, struct text_list *out, int depth)
{
    struct text_list own = {0}, used = {0};
    struct field f;
    if (depth > DEPTH_MAX)
        return;
    while (next_field(&graph, &f)) {
        struct wire_node node;
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
        if (!text_list_has(&own, used.items.data[i]))
            VEC_PUSH(arena, &out->items, used.items.data[i]);
}

void wire_node_read(struct arena *arena, struct span bytes, struct wire_node *out)
{
    read_node(arena, bytes, out, 0);
}

void put_number(struct strbuf *out, uint32_t field, uint64_t v)
{
    strbuf_varint(out, field << 3 | WIRE_VARINT);
    strbuf_varint(out, v);
}

void put_bytes(struct strbuf *out, uint32_t field, const void *data, size_t size)
{
    strbuf_varint(out, field << 3 | WIRE_BYTES);
    strbuf_varint(out, size);
    strbuf_append(out, data, size);
}

void put_text(struct strbuf *out, uint32_t field, const char *text)
{
    put_bytes(out, field, text, strlen(text));
}

void put_port(struct strbuf *out, uint32_t field, const char *name, const struct cut_type *t)
{
    struct strbuf shape = strbuf_of(out->arena), tensor = strbuf_of(out->arena), type = strbuf_of(out->arena),
                  port = strbuf_of(out->arena);
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
