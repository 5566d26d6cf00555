/* The wire format of an ONNX file, read and written directly where bytes are to stay as they are (cut.c, edit.c).
 *
 * The caller has imported the file before, so it is well-formed; lengths are checked all the same. Field numbers:
 * ModelProto ir_version 1, graph 7, opset_import 8; GraphProto node 1, name 2, initializer 5, input 11, output 12,
 * sparse_initializer 15; NodeProto input 1, output 2, name 3, op_type 4, attribute 5, domain 7; AttributeProto name 1,
 * f 2, i 3, g 6, graphs 11; TensorProto dims 1, data_type 2, name 8, data_location 14; ValueInfoProto name 1, type 2.
 */
#pragma once

#include "frontend/frontend.h"
#include "ir/base/text_list.h"

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

struct field {
    uint32_t number, wire;
    struct span whole, body;
    uint64_t value;
};
struct wire_node {
    struct span bytes;
    struct text_list in, out;
};

/* The next field of *s; false at the end or where the bytes make no sense. */
bool next_field(struct span *s, struct field *);
const char *text_of(struct arena *, struct span);
/* The text in the first field `number` of a message; "" without one. */
const char *text_field(struct arena *, struct span message, uint32_t number);
/* A node's operands, those that its subgraphs take from around it included, and results. Omitted ones are left out. */
void wire_node_read(struct arena *, struct span bytes, struct wire_node *out);

void put_number(struct strbuf *out, uint32_t field, uint64_t v);
void put_bytes(struct strbuf *out, uint32_t field, const void *data, size_t size);
void put_text(struct strbuf *out, uint32_t field, const char *text);
/* ValueInfoProto: dims where they are said (rank >= 0); a negative one is left open. */
void put_port(struct strbuf *out, uint32_t field, const char *name, const struct cut_type *t);
