/* Dynamic axes of a known number: masks over dims, and the dims that go or come with them, as
 * expressions. Those are kept short (b_brief): each is made of all that were before it.
 */
#include "passes/legalize/legalize.h"

enum { BRIEF = 40 }; /* parts of an expression */

value_id v_axes_padded(struct builder *b, value_id axes, int32_t rank)
{
    value_id v = b_convert(b, axes, ELEM_I64);
    value_id beyond = b_unary(b, OP_NOT, b_binary_f64(b, OP_LT, v, rank));
    return v_padded(b, b_binary(b, OP_ADD, v, b_convert(b, beyond, ELEM_I64)), (uint32_t)rank, rank);
}

bool rule_axis_mask_open(struct rule *r, value_id axes, int32_t rank, int32_t last, expr_id mask[RANK_MAX], uint32_t *n)
{
    struct exprs *ex = r->b->x;
    const expr_id *e = b_elems(r->b, axes, -rank, last, n);
    if (!e)
        return false;
    for (int32_t d = 0; d < rank; d++) {
        mask[d] = ex_const(ex, 0);
        for (uint32_t k = 0; k < *n; k++)
            mask[d] = ex_or(ex, mask[d],
                            ex_or(ex, ex_eq(ex, e[k], ex_const(ex, d)), ex_eq(ex, e[k], ex_const(ex, d - rank))));
    }
    b_brief_all(r->b, mask, (uint32_t)rank, BRIEF);
    return true;
}

bool rule_axis_mask(struct rule *r, value_id axes, int32_t rank, expr_id mask[RANK_MAX], uint32_t *n)
{
    return rule_axis_mask_open(r, axes, rank, rank - 1, mask, n);
}

void rule_dims_kept(struct rule *r, const expr_id *dims, const expr_id *mask, int32_t rank, int32_t n_kept,
                    expr_id *out)
{
    struct exprs *ex = r->b->x;
    expr_id before = ex_const(ex, 0);
    for (int32_t k = 0; k < n_kept; k++)
        out[k] = ex_const(ex, 0);
    for (int32_t d = 0; d < rank; d++) {
        expr_id kept = ex_not(ex, mask[d]);
        for (int32_t k = 0; k < n_kept; k++)
            out[k] = ex_select(ex, ex_and(ex, kept, ex_eq(ex, before, ex_const(ex, k))), dims[d], out[k]);
        before = b_brief(r->b, ex_add(ex, before, kept), BRIEF);
    }
    b_brief_all(r->b, out, (uint32_t)n_kept, BRIEF);
    b_assert(r->b, ex_eq(ex, before, ex_const(ex, n_kept)), EVAL_VALUE, "axes are named twice");
}

void rule_dims_spread(struct rule *r, const expr_id *dims, int32_t rank, const expr_id *mask, int32_t total,
                      expr_id *out)
{
    struct exprs *ex = r->b->x;
    expr_id before = ex_const(ex, 0);
    for (int32_t j = 0; j < total; j++) {
        expr_id kept = ex_not(ex, mask[j]);
        out[j] = ex_const(ex, 1);
        for (int32_t d = 0; d < rank; d++)
            out[j] = ex_select(ex, ex_and(ex, kept, ex_eq(ex, before, ex_const(ex, d))), dims[d], out[j]);
        before = b_brief(r->b, ex_add(ex, before, kept), BRIEF);
    }
    b_brief_all(r->b, out, (uint32_t)total, BRIEF);
    b_assert(r->b, ex_eq(ex, before, ex_const(ex, rank)), EVAL_VALUE, "axes are named twice");
}
