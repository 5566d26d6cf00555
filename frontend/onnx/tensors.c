/* TensorProto -> tensor_data: the one reader of tensors, for initializers, attributes, sparse parts, everywhere.
 *
 * Sizes are checked before anything is allocated, so a claim costs nothing. Data comes from exactly one place: raw
 * bytes, the typed field that belongs to the element type, or an external file. Raw bytes at graph width are borrowed
 * from the file image (see aligned); sub-byte elements are unpacked to one byte each, bools become 0 or 1, strings
 * spans.
 */
#include "frontend/onnx/import.h"

/* ---- sizes ------------------------------------------------------------------------------------------------ */

struct size {
    int64_t count;
    size_t packed, wide;
};   /* elements; bytes in the file; bytes in the graph */

static bool size_compute(struct importer *im, struct where w, const struct tensor_data *t, struct size *out)
{
    int64_t count = 1, bits, wide;
    bool empty = false, fits = true;
    for (int32_t i = 0; i < t->rank; i++) {
        if (t->dims[i] < 0)
            return refuse(im, w, "dim %d is %lld", i, (long long)t->dims[i]);
        empty = empty || t->dims[i] == 0;
    }
    for (int32_t i = 0; i < t->rank && !empty; i++)
        fits = fits && mul_i64(count, t->dims[i], &count);
    if (empty)
        count = 0;
    if (!fits || !mul_i64(count, elem_bits(t->elem) ? elem_bits(t->elem) : 1, &bits) ||
        !mul_i64(count, elem_size(t->elem), &wide) || bits > INT64_MAX - 7)
        return refuse(im, w, "the product of its dims does not fit into 64 bits");
    *out = (struct size){count, (size_t)((bits + 7) / 8), (size_t)wide};
    return true;
}

/* After the data is known to be there. */
static bool size_allowed(struct importer *im, struct where w, const struct size *size)
{
    if ((int64_t)size->wide > im->ctx->limits.tensor_bytes)
        return refuse_as(im, w, FAIL_LIMIT,
                         "the tensor has %zu bytes, and the limit for one is %lld (--limit-tensor-bytes)", size->wide,
                         (long long)im->ctx->limits.tensor_bytes);
    return true;
}

/* ---- where the data is -------------------------------------------------------------------------------------- */

enum { FIELD_FLOAT, FIELD_INT32, FIELD_STRING, FIELD_INT64, FIELD_DOUBLE, FIELD_UINT64, FIELD_RAW, FIELD_COUNT };
static const char *const field_names[FIELD_COUNT] = {
    "float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data", "raw_data",
};
struct chunks {
    size_t n;
    const ProtobufCBinaryData *data;
};

static void fields_collect(const Onnx__TensorProto *t, struct chunks out[FIELD_COUNT])
{
    out[FIELD_FLOAT] = (struct chunks){t->n_float_data, t->float_data};
    out[FIELD_INT32] = (struct chunks){t->n_int32_data, t->int32_data};
    out[FIELD_STRING] = (struct chunks){t->n_string_data, t->string_data};
    out[FIELD_INT64] = (struct chunks){t->n_int64_data, t->int64_data};
    out[FIELD_DOUBLE] = (struct chunks){t->n_double_data, t->double_data};
    out[FIELD_UINT64] = (struct chunks){t->n_uint64_data, t->uint64_data};
    /* An empty raw_data beside another field is what some writers leave behind: no data. */
    bool raw = t->has_raw_data && token_read(&t->raw_data).length > 0;
    out[FIELD_RAW] = (struct chunks){raw, &t->raw_data};
}

/* The typed field in which elements of a type travel. */
static int field_of_elem(enum elem e)
{
    switch (e) {
    case ELEM_F32:
    case ELEM_C64: return FIELD_FLOAT;
    case ELEM_F64:
    case ELEM_C128: return FIELD_DOUBLE;
    case ELEM_I64: return FIELD_INT64;
    case ELEM_U32:
    case ELEM_U64: return FIELD_UINT64;
    case ELEM_STR: return FIELD_STRING;
    default: return FIELD_INT32;
    }
}

/* ---- raw bytes ------------------------------------------------------------------------------------------------ */

/* The bytes at an address fit for their elements. Protobuf puts data anywhere; a header of at least 4 bytes, decoded
 * long ago, precedes it, so data that is off by that much moves down in the image; anything else is copied. */
static const void *aligned(struct importer *im, size_t offset, size_t size, uint32_t width)
{
    uint8_t *data = im->file + offset;
    uintptr_t off = (uintptr_t)data & ((width > 8 ? 8 : width) - 1);
    if (off == 0)
        return data;
    if (off > 4 || off > offset)
        return arena_copy(&im->ctx->session, data, size);
    return memmove(data - off, data, size);
}

/* Sub-byte elements, the first in the low bits. */
static uint8_t *unpack_bits(struct importer *im, const uint8_t *packed, int64_t count, enum elem elem)
{
    uint32_t bits = elem_bits(elem), per_byte = 8 / bits, mask = (1u << bits) - 1, sign = 1u << (bits - 1);
    uint8_t *out = arena_alloc(&im->ctx->session, (size_t)count);
    for (int64_t i = 0; i < count; i++) {
        uint32_t v = (uint32_t)(packed[i / per_byte] >> (i % per_byte * bits)) & mask;
        out[i] = (uint8_t)(elem_class(elem) == 'I' ? (v ^ sign) - sign : v);
    }
    return out;
}

/* Any byte but 0 is true. */
static const uint8_t *normal_bools(struct importer *im, const uint8_t *bytes, int64_t count)
{
    int64_t i = 0;
    while (i < count && bytes[i] <= 1)
        i++;
    if (i == count)
        return bytes;
    uint8_t *out = arena_alloc(&im->ctx->session, (size_t)count);
    for (i = 0; i < count; i++)
        out[i] = bytes[i] != 0;
    return out;
}

static const void *widen(struct importer *im, const void *packed, int64_t count, enum elem elem)
{
    if (elem_bits(elem) < 8)
        return unpack_bits(im, packed, count, elem);
    return elem == ELEM_BOOL ? normal_bools(im, packed, count) : packed;
}

static bool raw_import(struct importer *im, const Onnx__TensorProto *t, struct where w, const struct size *size,
                       struct tensor_data *out)
{
    struct token token = token_read(&t->raw_data);
    if (out->elem == ELEM_STR)
        return refuse(im, w, "strings cannot be in raw_data");
    if (token.length != size->packed)
        return refuse(im, w, "raw_data has %llu bytes, the dims want %zu", (unsigned long long)token.length,
                      size->packed);
    if (!size_allowed(im, w, size))
        return false;
    const void *data = aligned(im, token.offset, token.length, elem_bits(out->elem) < 8 ? 1 : elem_size(out->elem));
    out->bytes = (struct span){widen(im, data, size->count, out->elem), size->wide};
    return true;
}

static bool external_import(struct importer *im, const Onnx__TensorProto *t, struct where w, const struct size *size,
                            struct tensor_data *out)
{
    struct span bytes;
    if (out->elem == ELEM_STR)
        return refuse(im, w, "strings cannot be in external data");
    if (!external_read(im, t, w, size->packed, &bytes))
        return false;
    out->bytes = (struct span){widen(im, bytes.data, size->count, out->elem), size->wide};
    return true;
}

/* ---- typed fields ----------------------------------------------------------------------------------------------- */

/* The scanner has checked every varint. */
static uint64_t varint_next(const uint8_t **p)
{
    uint64_t v = 0;
    for (uint32_t shift = 0;; shift += 7) {
        uint8_t b = *(*p)++;
        v |= (uint64_t)(b & 0x7F) << shift;
        if (!(b & 0x80))
            return v;
    }
}

/* The range of one entry of an integer field: of elements, or of packed bytes. */
static void entry_range(enum elem e, int64_t *lo, int64_t *hi)
{
    uint32_t bits = elem_bits(e);
    if (bits < 8) { /* a byte of packed elements; some writers sign-extend it */
        *lo = -128;
        *hi = 255;
    } else if (elem_class(e) == 'I') {
        *lo = bits == 64 ? INT64_MIN : -((int64_t)1 << (bits - 1));
        *hi = bits == 64 ? INT64_MAX : ((int64_t)1 << (bits - 1)) - 1;
    } else {
        *lo = 0;
        *hi = bits >= 64 ? INT64_MAX : ((int64_t)1 << bits) - 1;
    }
}

static bool entry_store(struct importer *im, struct where w, enum elem e, uint64_t raw, uint8_t *at, uint32_t width)
{
    int64_t lo, hi, v = (int64_t)raw;
    entry_range(e, &lo, &hi);
    /* negative 32-bit numbers in 5 bytes: not canonical, but read by every decoder */
    if (e == ELEM_I32 && v > INT32_MAX && v <= (int64_t)UINT32_MAX)
        v -= (int64_t)1 << 32;
    if (e != ELEM_U64 && (v < lo || v > hi))
        return refuse(im, w, "%s holds %lld, which is no %s", field_names[field_of_elem(e)], (long long)v,
                      elem_name(e));
    for (uint32_t i = 0; i < width; i++)
        at[i] = (uint8_t)((uint64_t)v >> (8 * i));
    return true;
}

/* Varint entries -> little-endian entries of `width` bytes. */
static bool varints_import(struct importer *im, struct where w, const struct chunks *c, size_t entries, enum elem e,
                           uint32_t width, uint8_t **out)
{
    size_t n = 0;
    for (size_t k = 0; k < c->n; k++) {
        struct token t = token_read(&c->data[k]);
        for (size_t i = 0; i < t.length; i++)
            n += !(im->file[t.offset + i] & 0x80);
    }
    if (n != entries)
        return refuse(im, w, "%s has %zu entries, the dims want %zu", field_names[field_of_elem(e)], n, entries);
    uint8_t *at = *out = arena_alloc_array(&im->ctx->session, entries, width);
    for (size_t k = 0; k < c->n; k++) {
        struct token t = token_read(&c->data[k]);
        const uint8_t *p = im->file + t.offset, *end = p + t.length;
        for (; p < end; at += width)
            if (!entry_store(im, w, e, varint_next(&p), at, width))
                return false;
    }
    return true;
}

/* Fixed-width entries lie in the file as they do in memory: one chunk is borrowed. */
static bool fixed_import(struct importer *im, struct where w, const struct chunks *c, size_t bytes, enum elem e,
                         const void **out)
{
    uint32_t width = field_of_elem(e) == FIELD_FLOAT ? 4 : 8;
    size_t have = 0;
    for (size_t k = 0; k < c->n; k++)
        have += (size_t)token_read(&c->data[k]).length;
    if (have != bytes)
        return refuse(im, w, "%s has %zu entries, the dims want %zu", field_names[field_of_elem(e)], have / width,
                      bytes / width);
    if (c->n == 1) {
        *out = aligned(im, (size_t)token_read(c->data).offset, bytes, width);
        return true;
    }
    uint8_t *at = arena_alloc(&im->ctx->session, bytes);
    *out = at;
    for (size_t k = 0; k < c->n; k++) {
        struct token t = token_read(&c->data[k]);
        memcpy(at, im->file + t.offset, t.length);
        at += t.length;
    }
    return true;
}

static bool strings_import(struct importer *im, struct where w, const struct chunks *c, size_t count,
                           struct tensor_data *out)
{
    if (c->n != count)
        return refuse(im, w, "string_data has %zu entries, the dims want %zu", c->n, count);
    struct span *spans = NEW_ARRAY(&im->ctx->session, struct span, count);
    for (size_t i = 0; i < count; i++) {
        struct token t = token_read(&c->data[i]);
        spans[i] = (struct span){im->file + t.offset, (size_t)t.length};
    }
    out->bytes = (struct span){spans, count * sizeof *spans};
    return true;
}

static bool typed_import(struct importer *im, struct where w, int field, const struct chunks *c,
                         const struct size *size, struct tensor_data *out)
{
    enum elem e = out->elem;
    if (field != field_of_elem(e))
        return refuse(im, w, "elements of %s cannot be in %s", elem_name(e), field_names[field]);
    if (field == FIELD_STRING)
        return strings_import(im, w, c, (size_t)size->count, out);
    const void *data = NULL;
    uint8_t *packed = NULL;
    bool fixed = field == FIELD_FLOAT || field == FIELD_DOUBLE, sub_byte = elem_bits(e) < 8;
    if (!fixed) {
        size_t entries = sub_byte ? size->packed : (size_t)size->count;
        if (!varints_import(im, w, c, entries, e, sub_byte ? 1 : elem_size(e), &packed))
            return false;
        data = packed;
    } else if (!fixed_import(im, w, c, size->wide, e, &data)) {
        return false;
    }
    out->bytes = (struct span){widen(im, data, size->count, e), size->wide};
    return size_allowed(im, w, size);
}

/* ---- dense tensors ----------------------------------------------------------------------------------------------- */

static bool head_import(struct importer *im, const Onnx__TensorProto *t, struct where w, struct tensor_data *out)
{
    *out = (struct tensor_data){0};
    if (!t->has_data_type)
        return refuse(im, w, "the tensor has no data_type");
    out->elem = t->data_type > 0 && t->data_type < 1000 ? elem_by_onnx((int32_t)t->data_type) : ELEM_NONE;
    if (out->elem == ELEM_NONE)
        return refuse(im, w, "data_type %lld is unknown", (long long)t->data_type);
    if (!rank_allowed(im, w, t->n_dims))
        return false;
    if (t->segment)
        return refuse(im, w, "tensors in segments are not supported");
    out->rank = (int32_t)t->n_dims;
    out->dims = arena_copy(&im->ctx->session, t->dims, t->n_dims * sizeof *t->dims);
    out->name = t->name ? arena_strdup(&im->ctx->session, t->name) : NULL;
    return true;
}

bool tensor_import(struct importer *im, const Onnx__TensorProto *t, struct where w, struct tensor_data *out)
{
    struct size size;
    struct chunks fields[FIELD_COUNT];
    if (!head_import(im, t, w, out) || !size_compute(im, w, out, &size))
        return false;
    fields_collect(t, fields);
    int found = -1;
    for (int f = 0; f < FIELD_COUNT; f++) {
        if (fields[f].n && found >= 0)
            return refuse(im, w, "its data is in %s and in %s", field_names[found], field_names[f]);
        if (fields[f].n)
            found = f;
    }
    if (t->has_data_location && t->data_location != 0 && t->data_location != 1)
        return refuse(im, w, "data_location %lld is unknown", (long long)t->data_location);
    bool external = t->has_data_location && t->data_location == 1;
    if (external && found >= 0)
        return refuse(im, w, "its data is external and in %s", field_names[found]);
    if (!external && t->n_external_data)
        return refuse(im, w, "it has entries for external data but is not marked as external");
    if (size.count == 0 && found >= 0)
        return refuse(im, w, "the tensor has no elements, and data in %s", field_names[found]);
    if (size.count == 0)
        return true;
    if (external)
        return external_import(im, t, w, &size, out);
    if (found < 0)
        return refuse(im, w, "the tensor has no data, and its dims want %lld elements", (long long)size.count);
    if (found == FIELD_RAW)
        return raw_import(im, t, w, &size, out);
    return typed_import(im, w, found, &fields[found], &size, out);
}

/* ---- sparse tensors ---------------------------------------------------------------------------------------------- */

/* Position in the dense tensor of sparse element k, -1 when it is outside. Indices are linear or one row per
 * element. */
static int64_t sparse_position(const struct tensor_data *dense, const struct tensor_data *indices, int64_t k,
                               int64_t count)
{
    const int64_t *index = indices->bytes.data;
    if (indices->rank == 1)
        return index[k] < 0 || index[k] >= count ? -1 : index[k];
    int64_t at = 0;
    for (int32_t d = 0; d < dense->rank; d++) {
        int64_t i = index[k * dense->rank + d];
        if (i < 0 || i >= dense->dims[d])
            return -1;
        at = at * dense->dims[d] + i; /* below count, which fits */
    }
    return at;
}

static bool sparse_fill(struct importer *im, struct where w, const struct tensor_data *values,
                        const struct tensor_data *indices, int64_t count, const struct tensor_data *dense, uint8_t *out)
{
    uint32_t width = elem_size(dense->elem);
    int64_t last = -1;
    for (int64_t k = 0; k < values->dims[0]; k++) {
        int64_t at = sparse_position(dense, indices, k, count);
        if (at < 0)
            return refuse(im, w, "sparse index %lld is outside the dims", (long long)k);
        if (at <= last)
            return refuse(im, w, "sparse index %lld is not above the one before it", (long long)k);
        memcpy(out + (size_t)at * width, (const uint8_t *)values->bytes.data + (size_t)k * width, width);
        last = at;
    }
    return true;
}

static bool sparse_parts(struct importer *im, const Onnx__SparseTensorProto *s, struct where w,
                         struct tensor_data *values, struct tensor_data *indices, struct tensor_data *out)
{
    if (!s->values || !s->indices)
        return refuse(im, w, "the sparse tensor has no %s", s->values ? "indices" : "values");
    if (!tensor_import(im, s->values, w, values) || !tensor_import(im, s->indices, w, indices))
        return false;
    if (values->rank != 1 || values->elem == ELEM_STR)
        return refuse(im, w, "the values of a sparse tensor must be a list of numbers");
    if (s->n_dims == 0 || s->n_dims > RANK_MAX)
        return refuse(im, w, "the sparse tensor has rank %zu, which is not supported", s->n_dims);
    bool rows = indices->rank == 2 && indices->dims[1] == (int64_t)s->n_dims;
    if (indices->elem != ELEM_I64 || (indices->rank != 1 && !rows))
        return refuse(im, w, "the indices of a sparse tensor must be int64, one number or one row for each value");
    if (indices->dims[0] != values->dims[0])
        return refuse(im, w, "there are %lld sparse indices for %lld values", (long long)indices->dims[0],
                      (long long)values->dims[0]);
    *out = (struct tensor_data){.elem = values->elem, .rank = (int32_t)s->n_dims, .name = values->name};
    out->dims = arena_copy(&im->ctx->session, s->dims, s->n_dims * sizeof *s->dims);
    return true;
}

bool sparse_import(struct importer *im, const Onnx__SparseTensorProto *s, struct where w, struct tensor_data *out)
{
    struct tensor_data values, indices;
    struct size size;
    if (!sparse_parts(im, s, w, &values, &indices, out) || !size_compute(im, w, out, &size))
        return false;
    /* dense data out of nearly nothing: held to the budget of folded constants */
    if ((int64_t)size.wide > im->ctx->limits.fold_total || !size_allowed(im, w, &size))
        return refuse_as(im, w, FAIL_LIMIT,
                         "the sparse tensor has %zu bytes when dense, and the limit is %lld (--limit-fold-total)",
                         size.wide, (long long)im->ctx->limits.fold_total);
    uint8_t *dense = arena_alloc(&im->ctx->session, size.wide);
    out->bytes = (struct span){dense, size.wide};
    return sparse_fill(im, w, &values, &indices, size.count, out, dense);
}
