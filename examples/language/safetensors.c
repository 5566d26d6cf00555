/* Nothing that a file says is used before it was compared with the file's size. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "half.h"
#include "safetensors.h"

enum { HEADER_MAX = 1 << 24, DIM_MAX = 1 << 30 };

static const struct type {
    const char *name;
    uint64_t bytes;
} types[] = {{"F32", 4}, {"F16", 2}, {"BF16", 2}}; /* in the order of number_type */

enum { TYPES = sizeof types / sizeof *types };

struct matrix {
    int64_t shape[2];
    uint64_t from, count; /* from: in bytes of the tensors' */
    int type;
};

__attribute__((format(printf, 2, 3))) static int refuse(struct safetensors *s, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(s->why, sizeof s->why, format, list);
    va_end(list);
    return 0;
}

static int header_read(struct safetensors *s, const char *path, uint64_t size)
{
    unsigned char first[8] = {0};
    uint64_t n = 0;
    json_error_t error;
    if (fread(first, 1, sizeof first, s->file) != sizeof first)
        return refuse(s, "%.150s is no safetensors file: it has less than 8 bytes", path);
    for (int i = 7; i >= 0; i--)
        n = n << 8 | first[i];
    if (n < 2 || n > HEADER_MAX || n > size - sizeof first)
        return refuse(s, "%.150s is no safetensors file: a header of %llu bytes in a file of %llu", path,
                      (unsigned long long)n, (unsigned long long)size);
    char *text = malloc((size_t)n);
    int ok = text && fread(text, 1, (size_t)n, s->file) == n;
    s->header = ok ? json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES, &error) : NULL;
    free(text);
    if (!ok)
        return refuse(s, "%.150s cannot be read", path);
    s->data = n + sizeof first;
    s->bytes = size - s->data;
    return json_is_object(s->header) || refuse(s, "%.100s: its header is not a JSON object: %.100s", path,
                                               s->header ? "another kind of value" : error.text);
}

int safetensors_open(struct safetensors *s, const char *path)
{
    struct stat st;
    *s = (struct safetensors){.file = fopen(path, "rb")};
    int ok = s->file && fstat(fileno(s->file), &st) == 0 && S_ISREG(st.st_mode);
    ok = ok ? header_read(s, path, (uint64_t)st.st_size) : refuse(s, "%.200s: no such file", path);
    if (!ok)
        safetensors_close(s);
    return ok;
}

/* A number of the list, from 0 to most. */
static int number(const json_t *list, size_t i, int64_t most, int64_t *value)
{
    const json_t *n = json_array_get(list, i);
    *value = json_integer_value(n);
    return json_is_integer(n) && *value >= 0 && *value <= most;
}

static int matrix_find(struct safetensors *s, const char *name, struct matrix *m)
{
    const json_t *row = json_object_get(s->header, name), *shape = json_object_get(row, "shape");
    const json_t *place = json_object_get(row, "data_offsets");
    const char *type = json_string_value(json_object_get(row, "dtype"));
    int64_t from = 0, to = 0, most = s->bytes < INT64_MAX ? (int64_t)s->bytes : INT64_MAX;
    if (!row)
        return refuse(s, "there is no tensor '%.200s'", name);
    m->type = 0;
    while (m->type < TYPES && (!type || strcmp(type, types[m->type].name)))
        m->type++;
    if (m->type == TYPES)
        return refuse(s, "tensor '%.150s' is of type '%.40s', not F32, F16 or BF16", name, type ? type : "none");
    if (json_array_size(shape) != 2 || !number(shape, 0, DIM_MAX, &m->shape[0]) ||
        !number(shape, 1, DIM_MAX, &m->shape[1]))
        return refuse(s, "tensor '%.150s' is not a matrix", name);
    m->count = (uint64_t)m->shape[0] * (uint64_t)m->shape[1];
    if (json_array_size(place) != 2 || !number(place, 0, most, &from) || !number(place, 1, most, &to) || from > to ||
        (uint64_t)(to - from) != m->count * types[m->type].bytes)
        return refuse(s, "tensor '%.150s': its data_offsets are not those of so many numbers in this file", name);
    m->from = (uint64_t)from;
    return 1;
}

int safetensors_shape(struct safetensors *s, const char *name, int64_t shape[2])
{
    struct matrix m;
    int ok = matrix_find(s, name, &m);
    if (ok)
        memcpy(shape, m.shape, sizeof m.shape);
    return ok;
}

float *safetensors_read(struct safetensors *s, const char *name)
{
    struct matrix m;
    if (!matrix_find(s, name, &m))
        return NULL;
    size_t count = (size_t)m.count, each = (size_t)types[m.type].bytes;
    float *numbers = malloc((count + 1) * sizeof *numbers);
    unsigned char *raw = numbers ? (unsigned char *)numbers + count * (sizeof *numbers - each) : NULL;
    if (!numbers || fseeko(s->file, (off_t)(s->data + m.from), SEEK_SET) != 0 ||
        fread(raw, each, count, s->file) != count) {
        refuse(s, numbers ? "tensor '%.150s' cannot be read" : "no memory for tensor '%.150s'", name);
        free(numbers);
        return NULL;
    }
    for (size_t i = 0; i < count; i++) /* bytes of narrow numbers are at the end: none is overwritten before its turn */
        numbers[i] = number_decode(raw + i * each, (enum number_type)m.type);
    return numbers;
}

void safetensors_close(struct safetensors *s)
{
    if (s->file)
        fclose(s->file);
    json_decref(s->header);
    s->file = NULL;
    s->header = NULL;
}
