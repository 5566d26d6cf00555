/* Quotients in f32 that are computed as products with a reciprocal, where that is what the operator that the pieces
 * stand for does: LayerNormalization's x / sqrt(variance + epsilon), Gelu's x / sqrt 2. A vector division takes as long
 * as ten multiplications. The last bit may differ (docs/notes/onnx-decisions.md); any other division is exact.
 */
#include "passes/legalize/legalize.h"

#include <math.h>

/* erf(x / c) -> erf(x * (1 / c)); the quotient stays for others that read it. */
bool rule_erf(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0);
    const struct node *quotient = v_defining(b, x, OP_DIV);
    double c;
    if (quotient && v_elem(b, x) == ELEM_F32 && v_splat_f64(b, quotient->in[1], &c) && fabs(c) > 0x1p-100 &&
        fabs(c) < 0x1p100)
        x = b_binary_f64(b, OP_MUL, quotient->in[0], 1 / c);
    return rule_result(r, b_unary(b, OP_ERF, x));
}

/* Does one element of v meet many of x: has x more dims, or is v known to be 1 along one where x is not? */
static bool is_repeated(struct builder *b, value_id v, value_id x)
{
    const struct dims dims = b_dims(b, v), dims_x = b_dims(b, x);
    bool repeated = dims.rank < dims_x.rank;
    for (int32_t d = 0; d < dims.rank && dims.rank <= dims_x.rank; d++)
        repeated |= ex_is(b->x, dims.d[d], 1) && !ex_is(b->x, dims_x.d[dims_x.rank - dims.rank + d], 1);
    return repeated;
}

/* x / sqrt(v), v one for many elements of x: x * (1 / sqrt(v)). A root lies within 2^-75 and 2^64, or is 0, infinity or
 * NaN, for all of which the product is what the quotient would be. False: another division. */
bool quotient_by_root(struct rule *r, value_id x, value_id root)
{
    struct builder *b = r->b;
    if (v_elem(b, x) != ELEM_F32 || v_elem(b, root) != ELEM_F32 || !v_defining(b, root, OP_SQRT) ||
        !is_repeated(b, root, x))
        return false;
    value_id inverse = b_binary(b, OP_DIV, b_splat_like(b, root, 1), root);
    return rule_result(r, b_binary(b, OP_MUL, x, inverse));
}
