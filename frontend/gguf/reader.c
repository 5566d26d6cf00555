/* GGUF files: the header, keys and their values, what the tensors are and where they lie.
 *
 * Versions 2 and 3, little-endian. Every count and length is one of 64 bits that the file claims: each is compared with
 * the bytes that are left before anything is made of it. Values stay where they are in the file.
 */
#include "frontend/gguf/gguf.h"

#include <math.h>

enum { ENTRIES_MOST = 1 << 16, NAME_MOST = 1 << 16, ALIGNMENT = 32 };

static const uint8_t kind_bytes[GGUF_KINDS] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8}; /* the least of one element */

static const struct gguf_type types[] = {
#define TYPE(name, number, elements, bytes, elem) {#name, number, elements, bytes, elem},
#include "frontend/gguf/types.def"
};

/* ---- bytes ----------------------------------------------------------------------------------------------------- */

static uint64_t little(const uint8_t *at, uint32_t n)
{
    uint64_t v = 0;
    for (uint32_t i = n; i > 0; i--)
        v = v << 8 | at[i - 1];
    return v;
}

/* The next n bytes; NULL: there are not so many. */
static const uint8_t *take(struct gguf *p, uint64_t n)
{
    const uint8_t *at = p->data + p->at;
    if (n > p->size - p->at)
        return NULL;
    p->at += n;
    return at;
}

static bool take_number(struct gguf *p, uint32_t bytes, uint64_t *out)
{
    const uint8_t *at = take(p, bytes);
    *out = at ? little(at, bytes) : 0;
    return at;
}

/* A name of the file, scratch memory; NULL after a diagnostic. */
static const char *take_name(struct gguf *p, const char *what, uint64_t i)
{
    uint64_t begin = p->at, n;
    const uint8_t *at = take_number(p, 8, &n) ? take(p, n) : NULL;
    if (!at)
        return gguf_refuse(p, "%s %llu, at byte %llu: its name reaches past the end of the file", what,
                           (unsigned long long)i, (unsigned long long)begin),
               NULL;
    if (n == 0 || n > NAME_MOST || memchr(at, 0, n))
        return gguf_refuse(p, "%s %llu, at byte %llu: a name of %llu bytes%s; the limit is %d", what,
                           (unsigned long long)i, (unsigned long long)begin, (unsigned long long)n,
                           n > 0 && n <= NAME_MOST ? " with a NUL" : "", NAME_MOST),
               NULL;
    return arena_strndup(&p->scratch, (const char *)at, n);
}

/* ---- keys ------------------------------------------------------------------------------------------------------ */

/* Steps over n elements; false: they reach past the end. */
static bool step_over(struct gguf *p, enum gguf_kind kind, uint64_t n)
{
    uint64_t length, bytes;
    if (kind != GGUF_STRING)
        return !__builtin_mul_overflow(n, (uint64_t)kind_bytes[kind], &bytes) && take(p, bytes);
    for (; n > 0; n--)
        if (!take_number(p, 8, &length) || !take(p, length))
            return false;
    return true;
}

static bool value_read(struct gguf *p, struct gguf_key *k)
{
    uint64_t kind, elem;
    if (!take_number(p, 4, &kind))
        return gguf_refuse(p, "key '%s' at byte %llu has no value", k->name, (unsigned long long)k->at);
    elem = kind;
    k->n = 1;
    if (kind == GGUF_ARRAY && (!take_number(p, 4, &elem) || !take_number(p, 8, &k->n)))
        return gguf_refuse(p, "key '%s' at byte %llu: its array has no elements", k->name, (unsigned long long)k->at);
    if (kind >= GGUF_KINDS || elem >= GGUF_KINDS)
        return gguf_refuse(p, "key '%s' at byte %llu has a value of type %llu, which is unknown", k->name,
                           (unsigned long long)k->at, (unsigned long long)(kind >= GGUF_KINDS ? kind : elem));
    if (elem == GGUF_ARRAY)
        return gguf_refuse(p, "key '%s' at byte %llu: arrays of arrays are not supported", k->name,
                           (unsigned long long)k->at);
    k->kind = (enum gguf_kind)kind;
    k->elem = (enum gguf_kind)elem;
    k->data = p->data + p->at;
    return step_over(p, k->elem, k->n) ||
           gguf_refuse(p, "key '%s' at byte %llu: its %llu elements reach past the end of the file", k->name,
                       (unsigned long long)k->at, (unsigned long long)k->n);
}

static bool keys_read(struct gguf *p, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        struct gguf_key k = {.at = p->at};
        if (!(k.name = take_name(p, "key", i)) || !value_read(p, &k))
            return false;
        if (name_lookup(&p->key_names, k.name))
            return gguf_refuse(p, "key '%s' at byte %llu is there twice", k.name, (unsigned long long)k.at);
        VEC_PUSH(&p->scratch, &p->keys, k);
        name_bind(&p->key_names, k.name, (value_id){p->keys.n}, 0);
    }
    return true;
}

const struct gguf_key *gguf_find(struct gguf *p, const char *name)
{
    const struct binding *b = name_lookup(&p->key_names, name);
    return b ? &p->keys.data[b->value.i - 1] : NULL;
}

struct span gguf_string(const struct gguf_key *k)
{
    return (struct span){k->data + 8, (size_t)little(k->data, 8)};
}

bool gguf_whole(const struct gguf_key *k, uint64_t i, int64_t *out)
{
    uint32_t bytes = kind_bytes[k->elem];
    uint64_t v = k->elem == GGUF_STRING || i >= k->n ? 0 : little(k->data + i * bytes, bytes);
    bool is_signed = k->elem == GGUF_I8 || k->elem == GGUF_I16 || k->elem == GGUF_I32 || k->elem == GGUF_I64;
    if (i >= k->n || k->elem == GGUF_STRING || k->elem == GGUF_F32 || k->elem == GGUF_F64 || k->elem == GGUF_BOOL)
        return false;
    if (is_signed)
        *out = bytes == 8 ? (int64_t)v : (int64_t)(v << (64 - 8 * bytes)) >> (64 - 8 * bytes);
    else
        *out = (int64_t)v;
    return is_signed || v <= INT64_MAX;
}

double gguf_number(const struct gguf_key *k, uint64_t i)
{
    int64_t whole;
    float f;
    double d;
    if (gguf_whole(k, i, &whole))
        return (double)whole;
    if (i < k->n && k->elem == GGUF_F32)
        return memcpy(&f, k->data + i * sizeof f, sizeof f), f;
    if (i < k->n && k->elem == GGUF_F64)
        return memcpy(&d, k->data + i * sizeof d, sizeof d), d;
    return NAN;
}

/* ---- tensors --------------------------------------------------------------------------------------------------- */

#define tensor_refuse(p, t, ...) error_at((p)->ctx, FAIL_MODEL, (src_id){0}, (t)->name, __VA_ARGS__)

static bool type_read(struct gguf *p, struct gguf_tensor *t, uint64_t number)
{
    for (uint32_t i = 0; i < COUNT_OF(types); i++)
        if (types[i].number == number)
            t->type = &types[i];
    if (!t->type)
        return tensor_refuse(p, t, "a tensor of type %llu, which is unknown", (unsigned long long)number);
    return t->type->elements ||
           tensor_refuse(
               p, t,
               "a tensor of %s; supported are F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K, "
               "MXFP4: "
               "quantize the model to one of them",
               t->type->name);
}

/* The file has the innermost dim first. */
static bool dims_read(struct gguf *p, struct gguf_tensor *t)
{
    uint64_t rank, dim;
    int64_t count = 1;
    if (!take_number(p, 4, &rank))
        return tensor_refuse(p, t, "the file ends within its dims, at byte %llu", (unsigned long long)p->at);
    if (rank < 1 || rank > GGUF_RANK_MAX)
        return tensor_refuse(p, t, "rank %llu, there are 1 to %d", (unsigned long long)rank, GGUF_RANK_MAX);
    t->rank = (int32_t)rank;
    for (int32_t d = t->rank - 1; d >= 0; d--) {
        if (!take_number(p, 8, &dim))
            return tensor_refuse(p, t, "the file ends within its dims, at byte %llu", (unsigned long long)p->at);
        if (dim < 1 || dim > INT64_MAX || !mul_i64(count, (int64_t)dim, &count))
            return tensor_refuse(p, t, "dim %d is %llu", (int)d, (unsigned long long)dim);
        t->dims[d] = (int64_t)dim;
    }
    return true;
}

static bool size_read(struct gguf *p, struct gguf_tensor *t)
{
    int64_t row = t->dims[t->rank - 1], bytes = 0;
    if (row % t->type->elements)
        return tensor_refuse(p, t, "rows of %lld elements, %s has blocks of %lld", (long long)row, t->type->name,
                             (long long)t->type->elements);
    bool fits = mul_i64(row / t->type->elements, t->type->bytes, &bytes);
    for (int32_t d = 0; fits && d < t->rank - 1; d++)
        fits = mul_i64(bytes, t->dims[d], &bytes);
    if (!fits || bytes > p->ctx->limits.tensor_bytes)
        return error_at(p->ctx, FAIL_LIMIT, (src_id){0}, t->name,
                        "more than %lld bytes, the limit for one tensor (--limit-tensor-bytes)",
                        (long long)p->ctx->limits.tensor_bytes);
    t->size = bytes;
    return true;
}

static bool tensors_read(struct gguf *p, uint64_t n, uint64_t *offsets)
{
    for (uint64_t i = 0; i < n; i++) {
        struct gguf_tensor t = {0};
        uint64_t number;
        if (!(t.name = take_name(p, "tensor", i)) || !dims_read(p, &t))
            return false;
        if (!take_number(p, 4, &number) || !take_number(p, 8, &offsets[i]))
            return tensor_refuse(p, &t, "the file ends within what it says of the tensor, at byte %llu",
                                 (unsigned long long)p->at);
        if (!type_read(p, &t, number) || !size_read(p, &t))
            return false;
        if (name_lookup(&p->tensor_names, t.name))
            return tensor_refuse(p, &t, "two tensors have this name");
        VEC_PUSH(&p->scratch, &p->tensors, t);
        name_bind(&p->tensor_names, t.name, (value_id){p->tensors.n}, 0);
    }
    return true;
}

/* Where the tensors' bytes lie: behind all that was read, from a multiple of the alignment on. */
static bool tensors_place(struct gguf *p, const uint64_t *offsets)
{
    const struct gguf_key *k = gguf_find(p, "general.alignment");
    int64_t alignment = ALIGNMENT;
    if (k && (k->kind != GGUF_U32 || !gguf_whole(k, 0, &alignment) || alignment < GGUF_ALIGNMENT_LEAST ||
              alignment > GGUF_ALIGNMENT_MOST || (alignment & (alignment - 1))))
        return gguf_refuse(p, "key 'general.alignment' is %lld, no power of two from %d to %d", (long long)alignment,
                           GGUF_ALIGNMENT_LEAST, GGUF_ALIGNMENT_MOST);
    uint64_t step = (uint64_t)alignment, begin = (p->at + step - 1) / step * step;
    for (uint32_t i = 0; i < p->tensors.n; i++) {
        struct gguf_tensor *t = &p->tensors.data[i];
        if (offsets[i] % step)
            return tensor_refuse(p, t, "its offset %llu is not a multiple of the alignment, %llu",
                                 (unsigned long long)offsets[i], (unsigned long long)step);
        if (begin > p->size || offsets[i] > p->size - begin || (uint64_t)t->size > p->size - begin - offsets[i])
            return tensor_refuse(p, t, "its %lld bytes at offset %llu reach past the end of the file",
                                 (long long)t->size, (unsigned long long)offsets[i]);
        t->data = p->data + begin + offsets[i];
    }
    return true;
}

struct gguf_tensor *gguf_tensor(struct gguf *p, const char *name)
{
    const struct binding *b = name_lookup(&p->tensor_names, name);
    return b ? &p->tensors.data[b->value.i - 1] : NULL;
}

/* ---- the file -------------------------------------------------------------------------------------------------- */

bool gguf_read(struct gguf *p)
{
    uint64_t version, n_tensors, n_keys;
    if (!take(p, 4) || !take_number(p, 4, &version))
        return gguf_refuse(p, "the file ends within its header");
    if (version >> 16 && !(version & 0xffff))
        return gguf_refuse(p, "a big-endian file: convert the model on a little-endian machine");
    if (version != 2 && version != 3)
        return gguf_refuse(p, "version %llu of GGUF, this mcc reads 2 and 3: convert the model again",
                           (unsigned long long)version);
    if (!take_number(p, 8, &n_tensors) || !take_number(p, 8, &n_keys))
        return gguf_refuse(p, "the file ends within its header");
    if (n_tensors > ENTRIES_MOST || n_keys > ENTRIES_MOST)
        return error_limit(p->ctx, (src_id){0}, "%llu tensors and %llu keys, the limit is %d each",
                           (unsigned long long)n_tensors, (unsigned long long)n_keys, ENTRIES_MOST);
    uint64_t *offsets = NEW_ARRAY(&p->scratch, uint64_t, n_tensors + 1);
    return keys_read(p, n_keys) && tensors_read(p, n_tensors, offsets) && tensors_place(p, offsets);
}
