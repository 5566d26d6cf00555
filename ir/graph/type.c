/* Tensor types: when are two the same? */
#include "ir/graph/graph.h"

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
