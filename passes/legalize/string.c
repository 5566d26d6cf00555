/* Operators on strings: equality and concatenation, with broadcasting, as functions over whole buffers. */
#include "passes/legalize/legalize.h"

static value_id spread(struct rule *r, value_id v, const expr_id *dims, int32_t rank)
{
    int32_t have;
    const expr_id *from = b_dims(r->b, v, &have);
    bool same = from && have == rank;
    for (int32_t i = 0; same && i < rank; i++)
        same = from[i].i == dims[i].i;
    struct attr attrs[] = {attr_str("fn", "spread"), attr_elem("elem", ELEM_STR), attr_exprs("dims", dims, (uint32_t)rank)};
    return same ? v : b_op(r->b, OP_STRING, &v, 1, attrs, 3);
}

/* Equal of strings, and StringConcat where the row's parameter is none. */
bool rule_string_binary(struct rule *r)
{
    struct builder *b = r->b;
    value_id in[2] = {rule_in(r, 0), rule_in(r, 1)};
    int32_t ranks[2];
    if (!in[0].i || !in[1].i)
        return false;
    if (!v_is_string(b, in[0]) || !v_is_string(b, in[1]))
        return rule_bad(r, "an operand is no tensor of strings");
    const expr_id *a = b_dims(b, in[0], &ranks[0]), *c = b_dims(b, in[1], &ranks[1]);
    expr_id dims[RANK_MAX];
    int32_t rank = b_broadcast_dims(b, a, ranks[0], c, ranks[1], dims);
    if (rank < 0)
        return false;
    for (int k = 0; k < 2; k++) {
        in[k] = spread(r, in[k], dims, rank);
        if (!in[k].i)
            return false;
    }
    bool equal = r->param == OP_EQ;
    struct attr attrs[] = {attr_str("fn", equal ? "equal" : "concat"), attr_elem("elem", equal ? ELEM_BOOL : ELEM_STR),
                           attr_exprs("dims", dims, (uint32_t)rank)};
    return rule_result(r, b_op(b, OP_STRING, in, 2, attrs, 3));
}
