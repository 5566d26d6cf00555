/* Element types and tensor types: the tables of elem.def, comparison of types. */
#include <string.h>

#include "ir/graph/graph.h"

static const struct elem_row {
    const char *name;
    int32_t onnx;
    uint32_t bits, size;
    char class;
} elem_table[ELEM_COUNT] = {
    [ELEM_NONE] = {"none", 0, 0, 0, 0},
#define ELEM(id, name, onnx, bits, size, dlpack, class) [ELEM_##id] = {name, onnx, bits, size, #class[0]},
#include "ir/ops/elem.def"
};

static const struct elem_row *elem_row(enum elem e)
{
    return &elem_table[(unsigned)e < ELEM_COUNT ? e : ELEM_NONE];
}

const char *elem_name(enum elem e)
{
    return elem_row(e)->name;
}

enum elem elem_by_name(const char *name)
{
    for (unsigned e = ELEM_NONE + 1; e < ELEM_COUNT; e++)
        if (strcmp(elem_table[e].name, name) == 0)
            return (enum elem)e;
    return ELEM_NONE;
}

enum elem elem_by_onnx(int32_t data_type)
{
    for (unsigned e = ELEM_NONE + 1; e < ELEM_COUNT; e++)
        if (elem_table[e].onnx == data_type)
            return (enum elem)e;
    return ELEM_NONE;
}

int32_t elem_onnx(enum elem e)
{
    return elem_row(e)->onnx;
}

uint32_t elem_size(enum elem e)
{
    return elem_row(e)->size;
}

uint32_t elem_bits(enum elem e)
{
    return elem_row(e)->bits;
}

char elem_class(enum elem e)
{
    return elem_row(e)->class;
}

bool type_same_shape(const struct type *a, const struct type *b)
{
    if (a->kind != TYPE_TENSOR || b->kind != TYPE_TENSOR || a->rank != b->rank || a->rank < 0)
        return false;
    for (int32_t i = 0; i < a->rank; i++)
        if (a->dims[i].i != b->dims[i].i || a->dims[i].i == 0)
            return false;
    return true;
}

bool type_equal(const struct type *a, const struct type *b)
{
    for (; a && b; a = a->inner, b = b->inner) {
        if (a->kind != b->kind)
            return false;
        if (a->kind == TYPE_UNKNOWN)
            return true;
        if (a->kind == TYPE_MAP && a->elem != b->elem)
            return false;
        if (a->kind != TYPE_TENSOR)
            continue;
        if (a->elem != b->elem || a->rank != b->rank)
            return false;
        for (int32_t i = 0; i < a->rank; i++)
            if (a->dims[i].i != b->dims[i].i)
                return false;
        return true;
    }
    return !a && !b;
}
