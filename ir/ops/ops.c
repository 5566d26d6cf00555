/* The operator table of ops.def: names, arities, shape classes, declared attributes.
 *
 * The inference column belongs to ir/graph/infer.c, which expands the table again.
 */
#include <string.h>

#include "ir/ops/ops.h"

static const struct op_info op_table[OP_COUNT] = {
    [OP_NONE] = {"none", 0, 0, 0, SHAPE_CONST, ""},
#define OP(id, name, min_in, max_in, n_out, shape, infer, attrs) \
    [OP_##id] = {name, min_in, max_in, n_out, SHAPE_##shape, attrs},
#include "ir/ops/ops.def"
};

const struct op_info *op_info(enum op op)
{
    return &op_table[(unsigned)op < OP_COUNT ? op : OP_NONE];
}

const char *op_name(enum op op)
{
    return op_info(op)->name;
}

enum op op_by_name(const char *name)
{
    for (unsigned op = OP_NONE + 1; op < OP_COUNT; op++)
        if (strcmp(op_table[op].name, name) == 0)
            return (enum op)op;
    return OP_NONE;
}

enum op_shape op_shape(enum op op)
{
    return op_info(op)->shape;
}

uint32_t op_attrs(enum op op, struct op_attr out[OP_ATTR_MAX])
{
    uint32_t n = 0;
    for (const char *p = op_info(op)->attrs; *p && n < OP_ATTR_MAX; n++) {
        size_t len = strcspn(p, ":");
        out[n] = (struct op_attr){.kind = p[len + 1]};
        memcpy(out[n].name, p, len < sizeof out[n].name ? len : sizeof out[n].name - 1);
        p += len + 2;
        out[n].optional = *p == '?';
        p += strcspn(p, " ");
        p += strspn(p, " ");
    }
    return n;
}
