/* Numbers of less than 8 bits in bytes, along one dim: the first of a byte in its lowest bits. */
#include "ir/build/build.h"

value_id b_unpacked(struct builder *b, value_id bytes, int64_t bits, int32_t axis)
{
    const struct dims dims = b_dims(b, bytes);
    value_id parts[8];
    expr_id wide[RANK_MAX];
    if (!dims.d || bits == 8 || dims.rank >= RANK_MAX || axis < 0 || axis >= dims.rank)
        return dims.d && bits == 8 ? bytes : (value_id){0};
    bytes = b_convert(b, bytes, ELEM_I32);
    for (int32_t i = 0; i < dims.rank; i++)
        wide[i] = i == axis ? ex_mulc(b->x, dims.d[i], 8 / bits) : dims.d[i];
    for (int64_t k = 0; k < 8 / bits; k++) {
        value_id moved = b_binary_f64(b, OP_SHR, bytes, (double)(k * bits));
        parts[k] = b_unsqueeze(b, b_binary_f64(b, OP_AND, moved, (1 << bits) - 1), axis + 1);
    }
    return b_reshape(b, b_concat(b, parts, (uint32_t)(8 / bits), axis + 1), wide, dims.rank);
}

value_id b_packed(struct builder *b, value_id x, int64_t bits, int32_t axis)
{
    const struct dims dims = b_dims(b, x);
    expr_id starts[RANK_MAX], sizes[RANK_MAX];
    int64_t steps[RANK_MAX];
    value_id bytes = {0};
    if (!dims.d || bits == 8 || axis < 0 || axis >= dims.rank)
        return dims.d && bits == 8 ? x : (value_id){0};
    for (int64_t k = 0; k < 8 / bits; k++) {
        for (int32_t i = 0; i < dims.rank; i++) {
            starts[i] = ex_const(b->x, i == axis ? k : 0);
            sizes[i] = i == axis ? ex_div(b->x, dims.d[i], ex_const(b->x, 8 / bits)) : dims.d[i];
            steps[i] = i == axis ? 8 / bits : 1;
        }
        value_id part = b_slice(b, x, starts, sizes, steps);
        part = k ? b_binary_f64(b, OP_SHL, part, (double)(k * bits)) : part;
        bytes = bytes.i ? b_binary(b, OP_OR, bytes, part) : part;
    }
    return bytes;
}
