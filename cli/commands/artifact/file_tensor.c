/* Tensors in files: NumPy's .npy (npy.c), those of the formats' frontends, raw bytes. */
#include "cli/commands/artifact/file_tensor.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>

#include "cli/library/compile/compile.h"
#include "ir/base/file.h"

enum { DESCRIBE_MAX = 8 };

/* ---- element types -------------------------------------------------------------------------------------- */

bool file_tensor_sizes(enum elem elem, int32_t rank, const int64_t *dims, int64_t *elements, int64_t *bytes)
{
    int64_t n = 1, bits;
    for (int32_t i = 0; i < rank; i++)
        if (dims[i] < 0 || !mul_i64(n, dims[i], &n))
            return false;
    if (!mul_i64(n, elem_dlpack(elem).bits, &bits) || !add_i64(bits, 7, &bits))
        return false;
    *elements = n;
    *bytes = bits / 8;
    return true;
}

bool file_tensor_alloc(struct context *ctx, struct file_tensor *b)
{
    int64_t elements, bytes;
    if (!file_tensor_sizes(b->elem, b->rank, b->dims, &elements, &bytes) || bytes > ctx->limits.tensor_bytes)
        return error_limit(ctx, (src_id){0}, "a tensor of more than %lld bytes (--limit-tensor-bytes)",
                           (long long)ctx->limits.tensor_bytes);
    b->size = (size_t)bytes;
    b->data = arena_alloc(&ctx->session, b->size + 64);
    return true;
}

/* From one byte an element, or whole bytes, to the packed form; size: bytes of `from`. */
static void elems_pack(enum elem elem, const void *from, size_t size, void *to)
{
    uint32_t bits = elem_bits(elem);
    if (bits == 0 || bits >= 8) {
        memcpy(to, from, size);
        return;
    }
    const unsigned char *wide = from;
    unsigned char *packed = to;
    uint32_t per = 8 / bits, mask = (1u << bits) - 1;
    for (size_t i = 0; i < size; i++)
        packed[i / per] = (unsigned char)(packed[i / per] | (wide[i] & mask) << i % per * bits);
}

bool file_tensor_widen(struct context *ctx, const struct file_tensor *b, struct tensor *out)
{
    int64_t elements, bytes;
    uint32_t bits = elem_bits(b->elem);
    if (!file_tensor_sizes(b->elem, b->rank, b->dims, &elements, &bytes))
        return error_limit(ctx, (src_id){0}, "a tensor's size does not fit into 63 bits");
    *out = (struct tensor){.kind = TYPE_TENSOR, .elem = b->elem, .rank = b->rank, .present = true};
    out->dims = arena_copy(&ctx->session, b->dims, sizeof b->dims);
    out->data = b->data;
    if (bits == 0 || bits >= 8)
        return true;
    unsigned char *wide = arena_alloc_array(&ctx->session, (size_t)elements + 1, 1);
    const unsigned char *packed = b->data;
    uint32_t per = 8 / bits, mask = (1u << bits) - 1, sign = elem_class(b->elem) == 'I' ? 1u << (bits - 1) : 0;
    for (int64_t i = 0; i < elements; i++) {
        uint32_t v = packed[i / per] >> (uint32_t)(i % per) * bits & mask;
        wide[i] = (unsigned char)((v ^ sign) - sign);
    }
    out->data = wide;
    return true;
}

bool file_tensor_pack(struct context *ctx, const struct tensor *t, struct file_tensor *out)
{
    int64_t elements, bytes;
    *out = (struct file_tensor){.elem = t->elem, .rank = t->rank};
    if (t->kind != TYPE_TENSOR || t->elem == ELEM_STR)
        return error_model(ctx, (src_id){0}, "sequences, optionals, maps and strings cannot be written to files");
    memcpy(out->dims, t->dims, sizeof *t->dims * (size_t)t->rank);
    if (!file_tensor_alloc(ctx, out) || !file_tensor_sizes(t->elem, t->rank, t->dims, &elements, &bytes))
        return false;
    elems_pack(t->elem, t->data, (size_t)elements * elem_size(t->elem), out->data);
    return true;
}

/* ---- files ----------------------------------------------------------------------------------------------------- */

static bool tensor_file(struct context *ctx, const char *path, struct span *out)
{
    struct file_bytes file;
    if (file_whole(ctx, path, INT64_MAX, &file) != FILE_OK)
        return file.why && error_env(ctx, "cannot read '%s': %s", path, file.why);
    *out = (struct span){file.data, file.size};
    return true;
}

static bool raw_parse(struct context *ctx, const char *path, struct span file, struct file_tensor *out)
{
    if (!file_tensor_alloc(ctx, out))
        return false;
    if (out->size != file.size)
        return error_env(ctx, "'%s' has %zu bytes, the input takes %zu (--dim gives symbolic dimensions)", path,
                         file.size, out->size);
    memcpy(out->data, file.data, file.size);
    return true;
}

bool file_tensor_read(struct context *ctx, const char *path, struct file_tensor *out)
{
    struct span file;
    const char *suffix = strrchr(path, '.');
    const struct tensor_files *files = suffix ? tensor_files_by_suffix(suffix) : NULL;
    if (files) {
        struct tensor_data tensor;
        if (!files->read(ctx, path, &tensor))
            return false;
        *out = (struct file_tensor){.elem = tensor.elem, .rank = tensor.rank};
        memcpy(out->dims, tensor.dims, sizeof *tensor.dims * (size_t)tensor.rank);
        if (!file_tensor_alloc(ctx, out))
            return false;
        elems_pack(out->elem, tensor.bytes.data, tensor.bytes.size, out->data);
        return true;
    }
    if (!tensor_file(ctx, path, &file))
        return false;
    if (npy_is(file))
        return npy_parse(ctx, path, file, out);
    return raw_parse(ctx, path, file, out);
}

const char *file_tensor_name(struct arena *arena, const char *name)
{
    char *file = arena_strdup(arena, *name ? name : "_");
    for (char *p = file; *p; p++)
        if (*p == '/' || (unsigned char)*p < 32 || (p == file && *p == '.'))
            *p = '_';
    return file;
}

bool file_tensor_write(struct context *ctx, const char *folder, const char *name, enum option_format format,
                       const struct file_tensor *b)
{
    static const char *const suffixes[n_option_format] = {
        [OPT_FORMAT_NPY] = "npy", [OPT_FORMAT_PB] = "pb", [OPT_FORMAT_RAW] = "raw"};
    const char *suffix = suffixes[format];
    const struct tensor_files *files;
    const char *file = file_tensor_name(&ctx->session, name);
    struct strbuf text = strbuf_of(&ctx->session);
    if (format == OPT_FORMAT_NPY) {
        if (!npy_format(ctx, b, &text))
            return false;
    } else if ((files = tensor_files_by_suffix(arena_printf(&ctx->session, ".%s", suffix)))) {
        files->write(b->elem, b->dims, b->rank, (struct span){b->data, b->size}, &text);
    } else {
        strbuf_append(&text, b->data, b->size);
    }
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return error_env(ctx, "cannot make folder '%s': %s", folder, strerror(errno));
    return output_write(ctx, arena_printf(&ctx->session, "%s/%s.%s", folder, file, suffix), text.data ? text.data : "",
                        text.n);
}

/* ---- random values ----------------------------------------------------------------------------------------------- */

uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

void file_tensor_random(struct file_tensor *b, uint64_t seed)
{
    char class = elem_class(b->elem);
    uint32_t bits = elem_bits(b->elem);
    if (bits < 8 || class == 'C') {
        /* Packed types: any bits. Complex ones: pairs of floats. */
        enum elem part = b->elem == ELEM_C64 ? ELEM_F32 : ELEM_F64;
        for (size_t i = 0; class != 'C' && i < b->size; i++)
            ((unsigned char *)b->data)[i] = (unsigned char)random_next(&seed);
        for (size_t i = 0; class == 'C' && i < b->size; i += elem_size(part))
            elem_from_f64(part, (double)(random_next(&seed) >> 11) * 0x1p-52 - 1, (char *)b->data + i);
        return;
    }
    size_t step = bits / 8;
    for (size_t i = 0; i + step <= b->size; i += step) {
        uint64_t r = random_next(&seed);
        if (class == 'F')
            elem_from_f64(b->elem, (double)(r >> 11) * 0x1p-52 - 1, (char *)b->data + i);
        else
            elem_from_i64(b->elem, (int64_t)(class == 'B' ? r >> 63 : r >> 61), (char *)b->data + i);
    }
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

/* The least and the greatest element; false: there is none, or its type has no order. */
static bool file_tensor_range(const struct file_tensor *b, int64_t *elements, double *least, double *greatest)
{
    int64_t bytes;
    uint32_t bits = elem_bits(b->elem);
    if (bits < 8 || elem_class(b->elem) == 'C' || !file_tensor_sizes(b->elem, b->rank, b->dims, elements, &bytes) ||
        !*elements)
        return false;
    *least = INFINITY, *greatest = -INFINITY;
    for (int64_t i = 0; i < *elements; i++) {
        double v = elem_to_f64(b->elem, (const char *)b->data + (size_t)i * (bits / 8));
        *least = v < *least ? v : *least;
        *greatest = v > *greatest ? v : *greatest;
    }
    return true;
}

void file_tensor_json(const char *name, const struct file_tensor *b, struct json *j)
{
    int64_t elements;
    double least, greatest;
    bool range = file_tensor_range(b, &elements, &least, &greatest);
    JSON_GROUP(j, NULL, "{", j_text("name", name), j_text("type", elem_name(b->elem)));
    json_open(j, "dims", '[');
    for (int32_t i = 0; i < b->rank; i++)
        json_int(j, NULL, b->dims[i]);
    json_close(j, "]");
    json_open(j, "first", '[');
    for (int64_t i = 0; range && i < elements && i < DESCRIBE_MAX; i++)
        json_real(j, NULL, elem_to_f64(b->elem, (const char *)b->data + (size_t)i * (elem_bits(b->elem) / 8)));
    json_close(j, "]");
    JSON_ADD(j, j_real("least", range ? least : NAN), j_real("greatest", range ? greatest : NAN));
    json_close(j, "}");
}

void file_tensor_describe(const char *name, const struct file_tensor *b, struct strbuf *out)
{
    int64_t elements;
    double least, greatest;
    size_t step = elem_bits(b->elem) / 8;
    strbuf_printf(out, "%s %s[", name, elem_name(b->elem));
    for (int32_t i = 0; i < b->rank; i++)
        strbuf_printf(out, i ? ",%lld" : "%lld", (long long)b->dims[i]);
    strbuf_printf(out, "]");
    if (!file_tensor_range(b, &elements, &least, &greatest)) {
        strbuf_printf(out, "\n");
        return;
    }
    for (int64_t i = 0; i < elements && i < DESCRIBE_MAX; i++)
        strbuf_printf(out, "%s %.6g", i ? "" : ":", elem_to_f64(b->elem, (const char *)b->data + (size_t)i * step));
    strbuf_printf(out, "%s (least %.6g, greatest %.6g)\n", elements > DESCRIBE_MAX ? " ..." : "", least, greatest);
}
