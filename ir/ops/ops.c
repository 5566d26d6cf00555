/* The operator table of ops.def: names, arities, shape classes, costs, declared attributes. Its other columns belong to
 * the files that they name, which expand the table again.
 */
#include "ir/ops/ops.h"

static const struct op_info op_table[OP_COUNT] = {
    [OP_NONE] = {"none", 0, 0, 0, SHAPE_CONST, COST_SOME, MEMORY_GIVEN, ""},
#define OP(id, name, least, most, results, shape, cost, infer, eval, lattice, read, check, idle, attrs) \
    [OP_##id] = {name, least, most, results, SHAPE_##shape, COST_##cost, MEMORY_GIVEN, attrs},
#define CALL(id, name, least, most, results, infer, eval, check, call, memory, fold, attrs) \
    [OP_##id] = {name, least, most, results, SHAPE_OPAQUE, COST_SOME, MEMORY_##memory, attrs},
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

enum op_shape op_shape(enum op op)
{
    return op_info(op)->shape;
}

enum op_cost op_cost(enum op op)
{
    return op_info(op)->cost;
}

bool op_is_pointwise(enum op op)
{
    enum op_shape shape = op_shape(op);
    return shape == SHAPE_MAP || shape == SHAPE_POINT || shape == SHAPE_INDEX;
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
