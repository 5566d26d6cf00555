/* The first pass over a file's bytes: checks the protobuf wire format before any decoder sees it.
 *
 * In: the bytes of a ModelProto. Out: a compact copy of the message for protobuf-c, in which the data of tensors is
 * replaced by tokens {offset, length} and fields that the importer does not use are gone. One loop with an explicit
 * stack, so nesting costs a frame of limits.message_depth and no C stack; every length is checked against its parent;
 * singular messages may come in parts (protobuf merges them) but only a few times, because merging copies.
 * Which fields there are comes from protobuf-c's descriptors of onnx.proto.
 *
 * A token can be longer than the bytes it stands for, so a message can grow, but by less than 8 times; its length is
 * written as a varint one byte wider than the original needed (128 times), and patched when the message ends.
 */
#include "frontend/onnx/scan.h"

/* protobuf-c reads lengths of at most 5 bytes: 35 bits, which no file of 2 GiB outgrows even when it grows. */
enum { MERGES_MAX = 64, LENGTH_WIDTH_MAX = 5 };
enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_LEN = 2, WIRE_GROUP = 3, WIRE_GROUP_END = 4, WIRE_32 = 5 };

struct frame {
    const ProtobufCMessageDescriptor *desc;
    size_t end;        /* offset in the file of the first byte after the message */
    size_t patch;      /* where its length goes in out */
    uint32_t width;    /* bytes kept there for it */
    uint32_t merges;   /* singular messages met in it */
};
struct scanner {
    struct context *ctx;
    const uint8_t *data;
    size_t pos;
    size_t field_at;             /* where the current field begins */
    struct frame *stack;
    uint32_t depth;              /* frames in use */
    struct arena *pool;
    uint8_t *out;
    size_t out_n, out_cap;
};

/* Fields of TensorProto whose bytes stay in the file, and the wire type of one unpacked element. */
static const struct {
    uint32_t id, element;
} lifted[] = {
    {4, WIRE_32}, {5, WIRE_VARINT}, {6, WIRE_LEN}, {7, WIRE_VARINT}, {9, WIRE_LEN}, {10, WIRE_64}, {11, WIRE_VARINT},
};
static const char *const wire_names[] = {"a varint", "8 bytes", "a length", "a group", "a group's end", "4 bytes"};

#define scan_fail(s, ...) scan_fail_as((s), FAIL_MODEL, __VA_ARGS__)
#define scan_fail_as(s, fail, fmt, ...)                                                   \
    error_at((s)->ctx, (fail), (src_id){0}, NULL, "byte %zu, in %s: " fmt, (s)->field_at, \
             (s)->stack[(s)->depth - 1].desc->short_name, __VA_ARGS__)

/* ---- reading --------------------------------------------------------------------------------------- */

/* A varint that ends before `end`: at most 10 bytes and 64 bits. */
static bool read_varint(struct scanner *s, size_t end, uint64_t *value)
{
    uint64_t v = 0;
    for (uint32_t i = 0; i < 10; i++) {
        if (s->pos == end)
            return scan_fail(s, "%s", "the data ends inside a number");
        uint8_t b = s->data[s->pos++];
        if (i == 9 && b > 1)
            return scan_fail(s, "%s", "a number of more than 64 bits");
        v |= (uint64_t)(b & 0x7F) << (7 * i);
        if (!(b & 0x80)) {
            *value = v;
            return true;
        }
    }
    return scan_fail(s, "%s", "a number of more than 10 bytes");
}

static bool read_length(struct scanner *s, size_t end, size_t *length)
{
    uint64_t n;
    if (!read_varint(s, end, &n))
        return false;
    if (n > end - s->pos)
        return scan_fail(s, "a length of %llu where %zu bytes are left", (unsigned long long)n, end - s->pos);
    *length = (size_t)n;
    return true;
}

/* Passes over one value of the given wire type. */
static bool skip_value(struct scanner *s, uint32_t wire, size_t end)
{
    uint64_t v;
    size_t n;
    switch (wire) {
    case WIRE_VARINT: return read_varint(s, end, &v);
    case WIRE_LEN:
        if (!read_length(s, end, &n))
            return false;
        break;
    default:
        n = wire == WIRE_64 ? 8 : 4;
        if (n > end - s->pos)
            return scan_fail(s, "a value of %zu bytes where %zu are left", n, end - s->pos);
    }
    s->pos += n;
    return true;
}

/* ---- writing --------------------------------------------------------------------------------------- */

static bool out_reserve(struct scanner *s, size_t n)
{
    if (n <= s->out_cap - s->out_n)
        return true;
    size_t cap = s->out_cap * 2 + n + 1024;
    uint8_t *grown = arena_try(s->pool, cap);
    if (!grown)
        return false;
    if (s->out_n)
        memcpy(grown, s->out, s->out_n);
    s->out = grown;
    s->out_cap = cap;
    return true;
}

static bool out_bytes(struct scanner *s, const void *data, size_t n)
{
    if (!out_reserve(s, n))
        return false;
    if (n)
        memcpy(s->out + s->out_n, data, n);
    s->out_n += n;
    return true;
}

static uint32_t varint_width(uint64_t v)
{
    uint32_t n = 1;
    while (v >>= 7)
        n++;
    return n;
}

static void varint_put(uint8_t *at, uint64_t v, uint32_t width)
{
    for (uint32_t i = 0; i < width; i++, v >>= 7)
        at[i] = (uint8_t)((v & 0x7F) | (i + 1 < width ? 0x80 : 0));
}

static bool out_varint(struct scanner *s, uint64_t v)
{
    uint8_t bytes[10];
    uint32_t n = varint_width(v);
    varint_put(bytes, v, n);
    return out_bytes(s, bytes, n);
}

static bool out_token(struct scanner *s, uint32_t id, size_t offset, size_t length)
{
    uint8_t bytes[TOKEN_SIZE];
    for (uint32_t i = 0; i < 8; i++) {
        bytes[i] = (uint8_t)((uint64_t)offset >> (8 * i));
        bytes[8 + i] = (uint8_t)((uint64_t)length >> (8 * i));
    }
    return out_varint(s, id << 3 | WIRE_LEN) && out_varint(s, TOKEN_SIZE) && out_bytes(s, bytes, TOKEN_SIZE);
}

struct token token_read(const ProtobufCBinaryData *b)
{
    struct token t = {0, 0};
    for (uint32_t i = 0; b->len == TOKEN_SIZE && i < 8; i++) {
        t.offset |= (uint64_t)b->data[i] << (8 * i);
        t.length |= (uint64_t)b->data[8 + i] << (8 * i);
    }
    return t;
}

/* ---- fields ---------------------------------------------------------------------------------------- */

static bool frame_push(struct scanner *s, const ProtobufCMessageDescriptor *desc, uint32_t id, size_t length)
{
    if (s->depth == (uint32_t)s->ctx->limits.message_depth)
        return scan_fail_as(s, FAIL_LIMIT, "messages nested more than %d deep (--limit-message-depth)",
                            s->ctx->limits.message_depth);
    uint32_t width = varint_width(length) + 1;
    if (width > LENGTH_WIDTH_MAX)
        width = LENGTH_WIDTH_MAX;
    if (!out_varint(s, id << 3 | WIRE_LEN) || !out_reserve(s, width))
        return false;
    s->stack[s->depth++] = (struct frame){desc, s->pos + length, s->out_n, width, 0};
    s->out_n += width;
    return true;
}

static void frame_pop(struct scanner *s)
{
    struct frame *f = &s->stack[--s->depth];
    varint_put(s->out + f->patch, s->out_n - f->patch - f->width, f->width);
}

/* Length of the well-formed UTF-8 sequence at p (at most n bytes), 0 when malformed. */
static size_t utf8_length(const uint8_t *p, size_t n)
{
    if (p[0] < 0x80)
        return 1;
    size_t want = p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : 2;
    if (p[0] < 0xC2 || p[0] > 0xF4 || want > n)
        return 0;
    /* the second byte also excludes overlong forms, surrogates and what lies beyond U+10FFFF */
    uint8_t least = p[0] == 0xE0 ? 0xA0 : p[0] == 0xF0 ? 0x90 : 0x80;
    uint8_t most = p[0] == 0xED ? 0x9F : p[0] == 0xF4 ? 0x8F : 0xBF;
    if (p[1] < least || p[1] > most)
        return 0;
    for (size_t i = 2; i < want; i++)
        if ((p[i] & 0xC0) != 0x80)
            return 0;
    return want;
}

static bool check_text(struct scanner *s, const char *field, const uint8_t *p, size_t n)
{
    if (n > (size_t)s->ctx->limits.name_bytes)
        return scan_fail_as(s, FAIL_LIMIT, "%s is a text of %zu bytes, the limit is %d (--limit-name-bytes)", field, n,
                            s->ctx->limits.name_bytes);
    int shown = n > 80 ? 80 : (int)n;
    for (size_t i = 0, used; i < n; i += used) {
        used = p[i] ? utf8_length(p + i, n - i) : 0;
        if (used == 0)
            return scan_fail(s, "%s '%.*s' holds %s", field, shown, (const char *)p,
                             p[i] ? "a byte that is not UTF-8" : "a NUL byte");
    }
    return true;
}

/* Checks the elements of a packed list. */
static bool check_packed(struct scanner *s, uint32_t element, size_t end)
{
    size_t width = element == WIRE_64 ? 8 : element == WIRE_32 ? 4 : 1;
    if ((end - s->pos) % width != 0)
        return scan_fail(s, "a packed list of %zu bytes holds no whole number of elements", end - s->pos);
    uint64_t v;
    while (element == WIRE_VARINT && s->pos < end)
        if (!read_varint(s, end, &v))
            return false;
    s->pos = end;
    return true;
}

static uint32_t field_wire(const ProtobufCFieldDescriptor *f)
{
    switch (f->type) {
    case PROTOBUF_C_TYPE_FLOAT: return WIRE_32;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE: return WIRE_LEN;
    default: return WIRE_VARINT;
    }
}

/* A data field of a tensor: each chunk, packed or one element, becomes a token. */
static bool scan_lifted(struct scanner *s, const ProtobufCFieldDescriptor *f, uint32_t wire, uint32_t element,
                        size_t end)
{
    size_t from = s->pos;
    if (wire == WIRE_LEN) {
        size_t n;
        if (!read_length(s, end, &n))
            return false;
        from = s->pos;
        if (element == WIRE_LEN)
            s->pos += n;
        else if (!check_packed(s, element, s->pos + n))
            return false;
    } else if (wire != element) {
        return scan_fail(s, "field %s has %s, which is not its type", f->name, wire_names[wire]);
    } else if (!skip_value(s, wire, end)) {
        return false;
    }
    return out_token(s, f->id, from, s->pos - from);
}

static bool scan_length_field(struct scanner *s, const ProtobufCFieldDescriptor *f, size_t end)
{
    size_t n;
    if (!read_length(s, end, &n))
        return false;
    const uint8_t *p = s->data + s->pos;
    if (f->type == PROTOBUF_C_TYPE_MESSAGE) {
        struct frame *top = &s->stack[s->depth - 1];
        if (f->label != PROTOBUF_C_LABEL_REPEATED && ++top->merges > MERGES_MAX)
            return scan_fail_as(s, FAIL_LIMIT, "the single field %s comes in more than %d parts", f->name, MERGES_MAX);
        return frame_push(s, f->descriptor, f->id, n);
    }
    if (f->type == PROTOBUF_C_TYPE_STRING && !check_text(s, f->name, p, n))
        return false;
    if (field_wire(f) != WIRE_LEN) {
        if (!check_packed(s, field_wire(f), s->pos + n))
            return false;
    } else {
        s->pos += n;
    }
    return out_varint(s, f->id << 3 | WIRE_LEN) && out_varint(s, n) && out_bytes(s, p, n);
}

static bool scan_known(struct scanner *s, const ProtobufCFieldDescriptor *f, uint32_t wire, size_t end)
{
    if (s->stack[s->depth - 1].desc == &onnx__tensor_proto__descriptor)
        for (uint32_t i = 0; i < COUNT_OF(lifted); i++)
            if (lifted[i].id == f->id)
                return scan_lifted(s, f, wire, lifted[i].element, end);
    uint32_t wants = field_wire(f);
    bool packed = wire == WIRE_LEN && wants != WIRE_LEN && f->label == PROTOBUF_C_LABEL_REPEATED;
    if (wire != wants && !packed)
        return scan_fail(s, "field %s has %s, which is not its type", f->name, wire_names[wire]);
    if (wire == WIRE_LEN)
        return scan_length_field(s, f, end);
    size_t from = s->pos;
    return skip_value(s, wire, end) && out_varint(s, f->id << 3 | wire) && out_bytes(s, s->data + from, s->pos - from);
}

static bool scan_field(struct scanner *s)
{
    size_t end = s->stack[s->depth - 1].end;
    s->field_at = s->pos;
    uint64_t tag;
    if (!read_varint(s, end, &tag))
        return false;
    uint32_t wire = tag & 7;
    if (tag >> 3 == 0 || tag > UINT32_MAX)
        return scan_fail(s, "field number %llu does not exist", (unsigned long long)(tag >> 3));
    if (wire == WIRE_GROUP || wire == WIRE_GROUP_END)
        return scan_fail(s, "field %u is a group, which ONNX does not use", (uint32_t)tag >> 3);
    if (wire > WIRE_32)
        return scan_fail(s, "field %u has the unknown wire type %u", (uint32_t)tag >> 3, wire);
    const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field(s->stack[s->depth - 1].desc,
                                                                                (uint32_t)tag >> 3);
    return f ? scan_known(s, f, wire, end) : skip_value(s, wire, end);
}

bool scan_model(struct context *ctx, struct span file, struct arena *pool, struct span *out)
{
    struct scanner s = {.ctx = ctx, .data = file.data, .pool = pool, .depth = 1};
    s.stack = NEW_ARRAY(pool, struct frame, ctx->limits.message_depth + 1);
    s.stack[0] = (struct frame){&onnx__model_proto__descriptor, file.size, 0, 0, 0};
    while (s.pos < file.size || s.depth > 1) {
        if (s.depth > 1 && s.pos == s.stack[s.depth - 1].end)
            frame_pop(&s);
        else if (!scan_field(&s))
            return false;
    }
    *out = (struct span){s.out, s.out_n};
    return true;
}
