/* Every offset is compared with the file's size before it is followed: offsets lead forwards, except from a table to
 * its description, and nothing is nested. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "half.h"
#include "onnx_adapter.h"

enum { PARAMETERS_MAX = 1 << 12, DIM_MAX = 1 << 30, FORMAT_VERSION = 1 };
enum { OF_VERSION, OF_PARAMETERS = 3 };             /* fields of the file's table */
enum { OF_NAME, OF_DIMS, OF_TYPE, OF_BYTES };       /* of a parameter's */

/* ONNX's numbers of element types. */
static const struct type {
    uint32_t number, bytes;
    enum number_type type;
} types[] = {{1, 4, NUMBER_F32}, {10, 2, NUMBER_F16}, {16, 2, NUMBER_BF16}};

struct parameter {
    int64_t shape[2];
    const unsigned char *bytes;
    const struct type *type;
};

__attribute__((format(printf, 2, 3))) static int refuse(struct onnx_adapter *a, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(a->why, sizeof a->why, format, list);
    va_end(list);
    return 0;
}

/* ---- flatbuffers ------------------------------------------------------------------------------------------------- */

/* n bytes at `at`, little-endian; 0: the file has them not. */
static int number(const struct onnx_adapter *a, size_t at, size_t n, uint64_t *value)
{
    if (at > a->size || n > a->size - at)
        return 0;
    *value = 0;
    while (n-- > 0)
        *value = *value << 8 | a->data[at + n];
    return 1;
}

/* Where the table's field is, of n bytes. 0: it has none, or its description is not in the file. */
static int field(const struct onnx_adapter *a, size_t table, size_t slot, size_t n, size_t *at)
{
    uint64_t back, described, size, offset, any;
    if (!number(a, table, 4, &back))
        return 0;
    int64_t from = (int64_t)table - (int32_t)back;
    size_t entry = 4 + 2 * slot;
    if (from < 0 || !number(a, (size_t)from, 2, &described) || !number(a, (size_t)from + 2, 2, &size) ||
        entry + 2 > described || !number(a, (size_t)from + entry, 2, &offset) || offset < 4 || offset + n > size ||
        !number(a, table + offset, n, &any))
        return 0;
    *at = table + offset;
    return 1;
}

/* What the offset at `at` leads to. */
static int follow(const struct onnx_adapter *a, size_t at, size_t *to)
{
    uint64_t offset;
    if (!number(a, at, 4, &offset) || offset > a->size - at)
        return 0;
    *to = at + offset;
    return 1;
}

/* A field that is a list of `each` bytes: where its n elements begin. */
static int list(const struct onnx_adapter *a, size_t table, size_t slot, size_t each, size_t *at, uint64_t *n)
{
    size_t to;
    if (!field(a, table, slot, 4, &to) || !follow(a, to, &to) || !number(a, to, 4, n) || *n > (a->size - to - 4) / each)
        return 0;
    *at = to + 4;
    return 1;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

int onnx_adapter_is(const char *path)
{
    char first[8] = "";
    FILE *file = fopen(path, "rb");
    int is = file && fread(first, 1, sizeof first, file) == sizeof first && memcmp(first + 4, "TORT", 4) == 0;
    if (file)
        fclose(file);
    return is;
}

static int read_whole(struct onnx_adapter *a, const char *path)
{
    struct stat st;
    FILE *file = fopen(path, "rb");
    int ok = file && fstat(fileno(file), &st) == 0 && S_ISREG(st.st_mode) && st.st_size >= 8 && st.st_size <= INT32_MAX;
    a->size = ok ? (size_t)st.st_size : 0;
    a->data = ok ? malloc(a->size) : NULL;
    ok = a->data && fread(a->data, 1, a->size, file) == a->size;
    if (file)
        fclose(file);
    return ok || refuse(a, "%.200s cannot be read, or has more than 2 GB", path);
}

int onnx_adapter_open(struct onnx_adapter *a, const char *path)
{
    size_t root = 0, at;
    uint64_t n = 0, version = 0;
    *a = (struct onnx_adapter){0};
    int ok = read_whole(a, path);
    if (ok && (memcmp(a->data + 4, "TORT", 4) != 0 || !follow(a, 0, &root) || !field(a, root, OF_VERSION, 4, &at) ||
               !number(a, at, 4, &version) || !list(a, root, OF_PARAMETERS, 4, &a->list, &n) || n > PARAMETERS_MAX))
        ok = refuse(a, "%.150s is no .onnx_adapter file, or a damaged one", path);
    if (ok && version != FORMAT_VERSION)
        ok = refuse(a, "%.150s has format version %llu, not 1", path, (unsigned long long)version);
    a->n = (uint32_t)n;
    if (!ok)
        onnx_adapter_close(a);
    return ok;
}

const char *onnx_adapter_name(struct onnx_adapter *a, uint32_t i)
{
    size_t table, at;
    uint64_t n;
    if (!follow(a, a->list + 4 * (size_t)i, &table) || !list(a, table, OF_NAME, 1, &at, &n) || at + n == a->size ||
        a->data[at + n] || strlen((const char *)a->data + at) != n)
        return refuse(a, "parameter %u has no name", (unsigned)i), NULL;
    return (const char *)a->data + at;
}

static int parameter_find(struct onnx_adapter *a, const char *name, struct parameter *p)
{
    size_t table = 0, one = 0, at = 0, dims = 0, bytes = 0, length = strlen(name);
    uint64_t rank = 0, n = 0, value = 0;
    *p = (struct parameter){0};
    for (uint32_t i = 0; i < a->n; i++) {
        if (!follow(a, a->list + 4 * (size_t)i, &one) || !list(a, one, OF_NAME, 1, &at, &n))
            return refuse(a, "parameter %u has no name", (unsigned)i);
        if (n != length || memcmp(a->data + at, name, length) != 0)
            continue;
        if (table)
            return refuse(a, "there are two tensors '%.200s'", name);
        table = one;
    }
    if (!table)
        return refuse(a, "there is no tensor '%.200s'", name);
    if (!list(a, table, OF_DIMS, 8, &dims, &rank) || rank != 2)
        return refuse(a, "tensor '%.150s' is not a matrix", name);
    for (size_t d = 0; d < 2; d++) {
        if (!number(a, dims + 8 * d, 8, &value) || value > DIM_MAX)
            return refuse(a, "tensor '%.150s' is not a matrix", name);
        p->shape[d] = (int64_t)value;
    }
    if (field(a, table, OF_TYPE, 4, &at) && number(a, at, 4, &value))
        for (size_t k = 0; k < sizeof types / sizeof *types; k++)
            p->type = types[k].number == value ? &types[k] : p->type;
    if (!p->type)
        return refuse(a, "tensor '%.150s' is not of f32, f16 or bf16", name);
    if (!list(a, table, OF_BYTES, 1, &bytes, &n) || n != (uint64_t)p->shape[0] * (uint64_t)p->shape[1] * p->type->bytes)
        return refuse(a, "tensor '%.150s' has not as many bytes as numbers", name);
    p->bytes = a->data + bytes;
    return 1;
}

int onnx_adapter_shape(struct onnx_adapter *a, const char *name, int64_t shape[2])
{
    struct parameter p;
    int ok = parameter_find(a, name, &p);
    if (ok)
        memcpy(shape, p.shape, sizeof p.shape);
    return ok;
}

float *onnx_adapter_read_turned(struct onnx_adapter *a, const char *name)
{
    struct parameter p;
    if (!parameter_find(a, name, &p))
        return NULL;
    size_t rows = (size_t)p.shape[0], columns = (size_t)p.shape[1];
    float *turned = malloc((rows * columns + 1) * sizeof *turned);
    for (size_t i = 0; turned && i < rows; i++)
        for (size_t j = 0; j < columns; j++)
            turned[j * rows + i] = number_decode(p.bytes + (i * columns + j) * p.type->bytes, p.type->type);
    if (!turned)
        refuse(a, "no memory for tensor '%.150s'", name);
    return turned;
}

void onnx_adapter_close(struct onnx_adapter *a)
{
    free(a->data);
    a->data = NULL;
    a->n = 0;
}
