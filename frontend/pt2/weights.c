/* Parameters, buffers and constants: the record's bytes as they are, seen through the tensor's strides.
 *
 * Elements that fill memory in some order of the dims are a constant of the dims in that order, and a permutation of
 * it; repeated ones (stride 0) are expanded. Other strides leave gaps: those elements are copied once.
 */
#include "frontend/pt2/pt2.h"

struct strided {
    const char *name;
    enum elem elem;
    uint32_t rank;
    int64_t sizes[RANK_MAX], strides[RANK_MAX], offset;
    struct span storage;
};

#define refuse(p, s, ...) error_at((p)->ctx, FAIL_MODEL, (src_id){0}, (s)->name, __VA_ARGS__)

static bool ints_read(struct pt2 *p, const struct strided *s, const struct json *list, int64_t *out)
{
    uint32_t n = 0;
    if (!json_is(list, JSON_LIST) || list->n != s->rank)
        return refuse(p, s, "sizes and strides of this tensor are not %u numbers each", s->rank);
    for (const struct json *e = json_first(list); e; e = e->next)
        if (!json_as_int(json_get(e, "as_int"), &out[n++]) || out[n - 1] < 0)
            return refuse(p, s, "a size or stride of this tensor is not a number from 0 on");
    return true;
}

static bool strided_read(struct pt2 *p, const struct json *entry, const char *name, struct strided *s)
{
    const struct json *meta = json_get(entry, "tensor_meta");
    struct type type;
    *s = (struct strided){.name = name};
    if (!meta_type(p, meta, name, false, &type))
        return false;
    s->elem = type.elem;
    s->rank = (uint32_t)type.rank;
    if (!ints_read(p, s, json_get(meta, "sizes"), s->sizes) || !ints_read(p, s, json_get(meta, "strides"), s->strides))
        return false;
    if (!json_as_int(json_get(json_get(meta, "storage_offset"), "as_int"), &s->offset) || s->offset < 0)
        return refuse(p, s, "the storage offset of this tensor is not a number from 0 on");
    return true;
}

/* The number of elements, each of which lies within the storage. */
static bool bounds_check(struct pt2 *p, const struct strided *s, int64_t *count)
{
    int64_t last = s->offset, have = (int64_t)s->storage.size / elem_size(s->elem);
    bool fits = true;
    *count = 1;
    for (uint32_t i = 0; i < s->rank; i++) {
        int64_t reach = 0;
        if (s->sizes[i] == 0) {
            *count = 0;
            return true;
        }
        fits = fits && mul_i64(s->sizes[i] - 1, s->strides[i], &reach) && add_i64(last, reach, &last) &&
               (s->strides[i] == 0 || mul_i64(*count, s->sizes[i], count));
    }
    if (!fits || last >= have || *count > have)
        return refuse(p, s, "its sizes and strides reach past the %lld elements that the file has of it",
                      (long long)have);
    return true;
}

static bool is_dense(const struct strided *s, const int64_t *order)
{
    int64_t inner = 1;
    for (uint32_t k = s->rank; k-- > 0;) {
        int64_t d = order[k];
        if (s->sizes[d] == 1 || s->strides[d] == 0)
            continue;
        if (s->strides[d] != inner)
            return false;
        inner *= s->sizes[d];
    }
    return true;
}

/* Dims by descending stride; those of one element, or of one that is repeated, first. As they are, where that fills
 * memory: weights of 1 x 1 convolutions stay what all others are. */
static void order_dims(const struct strided *s, int64_t order[RANK_MAX])
{
    for (uint32_t i = 0; i < s->rank; i++)
        order[i] = i;
    if (is_dense(s, order))
        return;
    for (uint32_t i = 0; i < s->rank; i++) {
        uint32_t k = i;
        int64_t stride = s->sizes[i] == 1 || s->strides[i] == 0 ? INT64_MAX : s->strides[i];
        for (; k > 0; k--) {
            int64_t d = order[k - 1], before = s->sizes[d] == 1 || s->strides[d] == 0 ? INT64_MAX : s->strides[d];
            if (before >= stride)
                break;
            order[k] = d;
        }
        order[k] = i;
    }
}

/* Elements with gaps between them, packed; dims in that order. */
static const void *packed(struct pt2 *p, const struct strided *s, const int64_t *dims, const int64_t *order,
                          int64_t count)
{
    int64_t size = elem_size(s->elem), index[RANK_MAX] = {0}, at = s->offset;
    char *out = arena_alloc_array(&p->ctx->session, (size_t)count, (size_t)size);
    const char *from = s->storage.data;
    for (int64_t n = 0; n < count; n++) {
        memcpy(out + n * size, from + at * size, (size_t)size);
        for (uint32_t k = s->rank; k-- > 0;) {
            int64_t stride = dims[k] == 1 ? 0 : s->strides[order[k]];
            at += stride;
            if (++index[k] < dims[k])
                break;
            at -= stride * dims[k];
            index[k] = 0;
        }
    }
    return out;
}

static bool bools_check(struct pt2 *p, const struct strided *s, const uint8_t *bytes, int64_t count)
{
    for (int64_t i = 0; s->elem == ELEM_BOOL && i < count; i++)
        if (bytes[i] > 1)
            return refuse(p, s, "a boolean of this tensor is %u", bytes[i]);
    return true;
}

static value_id strided_import(struct pt2 *p, const struct strided *s)
{
    int64_t count, order[RANK_MAX], dims[RANK_MAX], back[RANK_MAX];
    bool permuted = false, expanded = false;
    if (!bounds_check(p, s, &count))
        return (value_id){0};
    if (!count)
        return pt2_constant(p, s->elem, s->sizes, (int32_t)s->rank, "", s->name);
    order_dims(s, order);
    for (uint32_t k = 0; k < s->rank; k++) {
        int64_t d = order[k];
        bool repeated = s->strides[d] == 0 && s->sizes[d] > 1;
        dims[k] = repeated ? 1 : s->sizes[d];
        back[d] = k;
        permuted |= d != k;
        expanded |= repeated;
    }
    const void *bytes = is_dense(s, order) ? (const char *)s->storage.data + s->offset * elem_size(s->elem)
                                           : packed(p, s, dims, order, count);
    if (!bools_check(p, s, bytes, count))
        return (value_id){0};
    value_id v = pt2_constant(p, s->elem, dims, (int32_t)s->rank, bytes, s->name);
    if (permuted)
        v = pt2_append_ints(p, (src_id){0}, "permute.default", v, "dims", back, s->rank);
    if (expanded)
        v = pt2_append_ints(p, (src_id){0}, "expand.default", v, "size", s->sizes, s->rank);
    return v;
}

/* The record is one of the archive, or of the archive of torch.save in it. */
static bool storage_read(struct pt2 *p, const struct names *table, const char *folder, const char *path,
                         struct span *out)
{
    struct pt2_inside *inside = &p->inside[table == &p->constants];
    if (!inside->root)
        return pt2_record(p, arena_printf(&p->scratch, "data/%s/%s", folder, path), out);
    struct zip_record *r = zip_find(&inside->zip, arena_printf(&p->scratch, "%s%s", inside->root, path));
    return r ? zip_read(&inside->zip, r, out)
             : pt2_refuse(p, "%s has no record '%s': save the program again", inside->zip.what, path);
}

/* What the file says of the parameter, and its storage. */
static bool weight_find(struct pt2 *p, struct names *table, const char *folder, const char *name, struct strided *s)
{
    const struct binding *b = name_lookup(table, name);
    const struct json *entry = b ? p->entries.data[b->value.i] : NULL;
    const char *path = json_as_text(json_get(entry, "path_name"));
    const struct json *pickled = json_get(entry, "use_pickle");
    *s = (struct strided){.name = name};
    if (!path)
        return refuse(p, s, "the file has no values for it: save the program again, with its weights");
    if (json_is(pickled, JSON_BOOL) && pickled->u.truth)
        return refuse(p, s,
                      "it is of a subclass of Tensor, which is stored as a pickle; make it a plain tensor before "
                      "the export");
    return strided_read(p, entry, name, s) && storage_read(p, table, folder, path, &s->storage);
}

bool weight_bytes(struct pt2 *p, bool constant, const char *name, struct tensor_data *out)
{
    struct strided s;
    int64_t count, order[RANK_MAX], reach = 0;
    if (!weight_find(p, constant ? &p->constants : &p->weights, constant ? "constants" : "weights", name, &s) ||
        !bounds_check(p, &s, &count))
        return false;
    if (elem_class(s.elem) == 'C')
        return refuse(
            p, &s,
            "it is written and holds complex numbers, which is not supported: keep real and imaginary parts apart");
    order_dims(&s, order);
    for (uint32_t k = s.rank; count && k-- > 0;) {
        int64_t size = s.sizes[order[k]], stride = s.strides[order[k]];
        if (size > 1 && stride <= reach)
            return refuse(
                p, &s, "it is written, and its elements share memory: give them their own (clone()) and export again");
        reach += (size - 1) * stride;
    }
    for (uint32_t i = 0; i < s.rank; i++)
        order[i] = i;
    const void *bytes = count && is_dense(&s, order) ? (const char *)s.storage.data + s.offset * elem_size(s.elem)
                        : count                      ? packed(p, &s, s.sizes, order, count)
                                                     : "";
    *out = (struct tensor_data){.elem = s.elem,
                                .rank = (int32_t)s.rank,
                                .dims = arena_copy(&p->ctx->session, s.sizes, s.rank * sizeof *s.sizes),
                                .bytes = {bytes, (size_t)(count * elem_size(s.elem))}};
    return bools_check(p, &s, bytes, count);
}

/* Complex numbers as their parts, which lie side by side: a last dim of two. */
static value_id complex_import(struct pt2 *p, struct strided *s)
{
    if (s->rank >= RANK_MAX)
        return refuse(p, s, "complex numbers of rank %u are not supported", s->rank), (value_id){0};
    for (uint32_t k = 0; k < s->rank; k++)
        if (!mul_i64(s->strides[k], 2, &s->strides[k]))
            return refuse(p, s, "a stride is larger than memory"), (value_id){0};
    if (!mul_i64(s->offset, 2, &s->offset))
        return refuse(p, s, "an offset is larger than memory"), (value_id){0};
    enum elem whole = s->elem;
    s->elem = whole == ELEM_C64 ? ELEM_F32 : ELEM_F64;
    s->sizes[s->rank] = 2;
    s->strides[s->rank++] = 1;
    value_id v = strided_import(p, s);
    if (!v.i)
        return v;
    v = pt2_append_ints(p, (src_id){0}, "view_as_complex.default", v, "dims", NULL, 0);
    graph_value(p->g, v)->type = pt2_any(whole);
    return v;
}

value_id weight_import(struct pt2 *p, struct names *table, const char *folder, const char *name)
{
    struct strided s;
    if (!weight_find(p, table, folder, name, &s))
        return (value_id){0};
    return elem_class(s.elem) == 'C' ? complex_import(p, &s) : strided_import(p, &s);
}
