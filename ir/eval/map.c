/* Interpretation of constants, elementwise operators and conversions (see eval.c). */
#include "ir/eval/eval.h"

enum eval_status eval_constant(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    uint32_t rank;
    const int64_t *dims = node_ints(n, "dims", &rank);
    const struct attr *data = node_attr(n, "data");
    (void)in;
    *out = (struct tensor){.kind = TYPE_TENSOR, .elem = node_elem(n, "elem"), .rank = (int32_t)rank, .present = true};
    out->dims = arena_copy(e->arena, dims, rank * sizeof *dims);
    out->data = (void *)(uintptr_t)data->u.data.data;   /* shared and only read */
    return EVAL_OK;
}

enum eval_status eval_identity(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    (void)n;
    *out = tensor_copy(e, in[0]);
    return EVAL_OK;
}

enum eval_status eval_map(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    const void *data[3] = {0};
    enum elem elem = in[n->op == OP_SELECT ? 1 : 0]->elem;
    TRY(eval_result(e, n, 0, out));
    int64_t count = tensor_count(out);
    for (uint32_t i = 0; i < n->n_in; i++) {
        if (tensor_count(in[i]) != count)
            return eval_fail(e, EVAL_SHAPE, "%s: operand %u has %lld elements instead of %lld", op_name(n->op), i + 1,
                             (long long)tensor_count(in[i]), (long long)count);
        data[i] = in[i]->data;
    }
    enum eval_status status = map_eval_in(e->g->ctx, n->op, elem, (size_t)count, data, out->data);
    if (status == EVAL_VALUE)
        return eval_fail(e, status, "%s: division by zero", op_name(n->op));
    if (status != EVAL_OK)
        return eval_fail(e, status, "%s is not defined for %s", op_name(n->op), elem_name(elem));
    return EVAL_OK;
}

enum eval_status eval_convert(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    TRY(eval_result(e, n, 0, out));
    int64_t count = tensor_count(out);
    if (tensor_count(in[0]) != count)
        return eval_fail(e, EVAL_SHAPE, "%s: shapes differ", op_name(n->op));
    if (n->op == OP_BITCAST)
        memcpy(out->data, in[0]->data, (size_t)count * elem_size(out->elem));
    else if (eval_in_field(e, in[0]->elem) || eval_in_field(e, out->elem))
        return field_convert(in[0]->elem, in[0]->data, out->elem, out->data, (size_t)count, node_int(n, "saturate", 1),
                             node_str(n, "round", NULL))
                   ? EVAL_OK
                   : eval_fail(e, EVAL_UNSUPPORTED, "convert of %s to %s has no meaning in the field",
                               elem_name(in[0]->elem), elem_name(out->elem));
    else
        elems_convert(in[0]->elem, in[0]->data, out->elem, out->data, (size_t)count, node_int(n, "saturate", 1),
                      node_str(n, "round", "even"));
    return EVAL_OK;
}

enum eval_status eval_iota(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    int64_t axis = node_int(n, "axis", 0);
    (void)in;
    TRY(eval_result(e, n, 0, out));
    int64_t count = tensor_count(out), inner = dims_count(out->dims + axis + 1, out->rank - (int32_t)axis - 1);
    for (int64_t k = 0; k < count; k++)
        eval_put_i64(e->g->ctx, out->elem, k / inner % out->dims[axis], (char *)out->data + k * elem_size(out->elem));
    return EVAL_OK;
}

enum eval_status eval_from_exprs(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    uint32_t count;
    const expr_id *list = node_exprs(n, "exprs", &count);
    int64_t v;
    (void)in;
    TRY(eval_result(e, n, 0, out));
    for (uint32_t i = 0; i < count && i < tensor_count(out); i++) {
        TRY(eval_expr(e, list[i], &v));
        eval_put_i64(e->g->ctx, out->elem, v, (char *)out->data + i * elem_size(out->elem));
    }
    return EVAL_OK;
}
