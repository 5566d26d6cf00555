/* Subnormal numbers among the weights of convolutions and in scale, shift and mean of BatchNormalization count as 0.
 *
 * Channels that training has switched off decay to them: weights, scale and shift of some 1e-40. Beside the other
 * channels they are nothing, but each multiplication that meets one costs the CPU a hundred cycles, and what such a
 * channel computes are subnormal numbers again, for the next layer to meet. Only constants of the file are looked at,
 * and only those that hold normal numbers too: where all are subnormal, their size may be meant.
 */
#include "passes/legalize/legalize.h"

#include <float.h>

enum {
    PIECE = 4096, /* elements read at a time */
    STEP = 256    /* ... looked at at a time: a number that the compiler knows, so that it takes several at once */
};

/* Elements of a float32 constant of the file; 0: something else, or of a size that is not known. */
static int64_t constant_size(struct builder *b, value_id v)
{
    const struct value *value = graph_value(b->g, v);
    int64_t n = 1, d;
    if (!v.i || !value->def.i || graph_node(b->g, value->def)->op != OP_CONSTANT || v_elem(b, v) != ELEM_F32)
        return 0;
    const struct dims dims = b_dims(b, v);
    for (int32_t i = 0; dims.d && i < dims.rank; i++)
        if (!ex_is_const(b->x, dims.d[i], &d) || !mul_i64(n, d, &n))
            return 0;
    return dims.d ? n : 0;
}

/* Which kinds there are among n elements and the zeros after them, up to a multiple of STEP. */
static void kinds_of(const uint32_t *bits, int64_t n, bool *subnormal, bool *normal)
{
    const int32_t largest = (1 << 23) - 1;      /* of the subnormal numbers, without the sign */
    int32_t small = 0, large = 0;
    for (int64_t i = 0; i < n; i += STEP) {
        for (int64_t k = i; k < i + STEP; k++) {
            int32_t size = (int32_t)(bits[k] & INT32_MAX);
            large |= size > largest;
            small |= (size > 0) & (size <= largest);
        }
    }
    *subnormal |= small != 0;
    *normal |= large != 0;
}

value_id v_normal(struct builder *b, value_id v)
{
    uint32_t bits[PIECE];
    int64_t size = constant_size(b, v);
    bool subnormal = false, normal = false;
    for (int64_t at = 0; at < size && !(subnormal && normal); at += PIECE) {
        int64_t n = size - at < PIECE ? size - at : PIECE;
        if (!const_read(b->g, v, at, n, bits))
            return (value_id){0};
        memset(bits + n, 0, (size_t)(PIECE - n) * sizeof *bits);
        kinds_of(bits, n, &subnormal, &normal);
    }
    if (!subnormal || !normal)
        return v;
    return b_select(b, b_binary_f64(b, OP_LT, b_unary(b, OP_ABS, v), FLT_MIN), b_splat_like(b, v, 0), v);
}
