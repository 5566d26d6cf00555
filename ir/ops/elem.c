/* Element types: the table of elem.def. */
#include "ir/ops/ops.h"

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
    const struct elem_row *row = ROW_NAMED(elem_table + 1, ELEM_COUNT - 1, name);
    return row ? (enum elem)(row - elem_table) : ELEM_NONE;
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
