/* Element types as DLPack has them, which artifacts and their callers use. */
#include "cli/library/dlpack.h"

static const struct {
    uint8_t code, bits;
} elem_rows[] = {
    {0, 0},
#define ELEM(id, name, number, bits, bytes, code, class) {code, bits == 0 ? 128 : bits},
#include "ir/ops/elem.def"
};

DLDataType elem_dlpack(enum elem e)
{
    return (DLDataType){elem_rows[e].code, e == ELEM_STR ? 128 : elem_rows[e].bits, 1};
}

enum elem elem_by_dlpack(DLDataType type)
{
    for (enum elem e = ELEM_NONE + 1; e < ELEM_COUNT; e++) {
        DLDataType t = elem_dlpack(e);
        if (t.code == type.code && t.bits == type.bits)
            return e;
    }
    return ELEM_NONE;
}
