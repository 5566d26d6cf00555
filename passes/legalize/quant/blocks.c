/* com.microsoft: weights of 2, 4 or 8 bits in blocks that have a scale, and maybe a zero point, each.
 *
 * A byte holds 8 / bits numbers, the first in its lowest bits. They become f32 as the operators define it, (q - zero) *
 * scale; later products are those of f32.
 */
#include "passes/legalize/driver.h"
#include "passes/legalize/quant/blocks.h"
#include "passes/legalize/nn/window.h"

enum {
    LEVEL_BYTES = 4,
    EXACT_BLOCK = 65536, /* products of a byte by a byte, in 31 bits */
    BLOCK_DIMS = 3 /* that a row becomes more than one */
};

value_id v_unpacked(struct builder *b, value_id bytes, int64_t bits, expr_id count)
{
    int32_t last = v_rank(b, bytes) - 1;
    return b_slice_axis(b, b_unpacked(b, bytes, bits, last), last, ex_const(b->x, 0), count);
}

/* ---- MatMulNBits ------------------------------------------------------------------------------------------------- */

/* Zero points as f32 [n, count]: packed like the weights, or as floats. {0}: none. */
static value_id zero_points(struct rule *r, const struct blocks *s)
{
    struct builder *b = r->b;
    if (!rule_has(r, 3))
        return (value_id){0};
    value_id zero = rule_in(r, 3);
    bool packed = v_elem(b, zero) == ELEM_U8;
    zero = v_reshape_i(b, zero, ARRAY(int64_t, s->n, packed ? (s->count * s->bits + 7) / 8 : s->count));
    return b_convert(b, packed ? v_unpacked(b, zero, s->bits, ex_const(b->x, s->count)) : zero, ELEM_F32);
}

static bool blocks_read(struct rule *r, struct blocks *s)
{
    *s = (struct blocks){.k = rule_int(r, "K", 0),
                         .n = rule_int(r, "N", 0),
                         .bits = rule_int(r, "bits", 4),
                         .size = rule_int(r, "block_size", 0)};
    if (s->k < 1 || s->n < 1 || s->k > INT32_MAX || s->n > INT32_MAX || s->size < 16 || s->size > INT32_MAX ||
        (s->size & (s->size - 1)))
        return rule_bad(r, "K %lld, N %lld, blocks of %lld", (long long)s->k, (long long)s->n, (long long)s->size);
    if (s->bits != 2 && s->bits != 4 && s->bits != 8)
        return rule_refuse(r, "the weights have %lld bits", (long long)s->bits);
    if (rule_has(r, 4))
        return rule_refuse(r, "g_idx: rows of the weights in another order; ONNX Runtime calls it deprecated");
    if (rule_int(r, "weight_prepacked", 0))
        return rule_refuse(r, "the weights are prepacked for a GPU: export them without");
    s->count = (s->k + s->size - 1) / s->size;
    s->middle = INT64_C(1) << (s->bits - 1);
    return true;
}

bool blocks_allow_bytes(struct rule *r, const struct blocks *s, bool by_file)
{
    enum bytes_when when = r->lg->options->bytes;
    bool yes = (when == BYTES_BY_FILE ? by_file : when == BYTES_ALWAYS) && s->size <= EXACT_BLOCK;
    const value_id parts[] = {s->bytes, s->scale, s->zero};
    for (uint32_t k = 0; k < COUNT_OF(parts); k++)
        yes &= !parts[k].i || value_is_const(r->b->g, parts[k]);
    return yes;
}

value_id v_less_least(struct builder *b, value_id y, value_id negated_sums, const struct blocks *s)
{
    static const int64_t turn[] = {1, 0};
    value_id by_least = s->many ? v_product_chosen(b, negated_sums, s->least, s->chosen, 2)
                                : b_matmul(b, negated_sums, b_transpose(b, s->least, turn));
    return b_binary(b, OP_ADD, y, by_least);
}

/* The low 3 bits of a float e2m1 are 0, 1, 2, 3, 4, 6, 8, 12 halves, the fourth is the sign. */
enum { E2M1_MIDDLE = 12, E2M1_SIGN = 3, E2M1_BELOW = 7 };
static const uint32_t e2m1_halves = 0xc8643210; /* 4 bits each */

value_id v_numbers(struct builder *b, value_id q, const struct blocks *s)
{
    if (!s->e2m1) {
        q = b_convert(b, q, ELEM_F32);
        return s->middle && !s->zero.i ? b_binary(b, OP_SUB, q, b_scalar_f64(b, ELEM_F32, (double)s->middle)) : q;
    }
    value_id at = b_binary_f64(b, OP_SHL, b_binary_f64(b, OP_AND, b_convert(b, q, ELEM_U32), E2M1_BELOW), 2);
    value_id halves = b_binary_f64(b, OP_AND, b_binary(b, OP_SHR, b_splat_like(b, at, e2m1_halves), at), 15);
    value_id sign = b_convert(b, b_binary_f64(b, OP_SHR, q, E2M1_SIGN), ELEM_F32);
    return b_binary(b, OP_MUL, b_convert(b, halves, ELEM_F32), v_affine(b, sign, -2, 1));
}

/* As u8 in registers of bytes, where there is no table of 4 bits: n, and what it is above 4 and 6; ~n is -n - 1. */
value_id v_e2m1_numbers(struct builder *b, value_id bytes)
{
    enum { MORE = 4 + 2 * 6 };
    value_id low = b_binary_f64(b, OP_AND, bytes, E2M1_BELOW), sign = b_binary_f64(b, OP_SHR, bytes, E2M1_SIGN);
    value_id n = b_binary(b, OP_ADD, low, b_binary_f64(b, OP_MAX, low, 4));
    n = b_binary(b, OP_ADD, n, b_binary_f64(b, OP_SHL, b_binary_f64(b, OP_MAX, low, 6), 1));
    n = b_binary(b, OP_XOR, b_binary_f64(b, OP_SUB, n, MORE), b_unary(b, OP_NEG, sign));
    return b_binary(b, OP_ADD, n, b_binary_f64(b, OP_ADD, sign, E2M1_MIDDLE));
}

value_id v_product_chosen(struct builder *b, value_id x, value_id w, expr_id chosen, int64_t along)
{
    value_id in[2] = {x, b_slice_axis(b, w, 0, chosen, ex_const(b->x, 1))};
    struct attr attrs[] = {attr_ints("batch_a", NULL, 0), attr_ints("batch_b", NULL, 0),
                           attr_ints("contract_a", ARRAY(int64_t, 1)), attr_ints("contract_b", &along, 1)};
    return b_squeeze(b, b_op(b, OP_DOT, in, 2, attrs, 4), 1);
}

value_id blocks_product(struct rule *r, value_id x, const struct blocks *s)
{
    static const int64_t turn[] = {1, 0};
    struct builder *b = r->b;
    expr_id k = ex_const(b->x, s->k);
    int64_t lines[3] = {s->many, s->n, s->count * s->size * s->bits / 8}, last = v_rank(b, x);
    int32_t rank = s->many ? 3 : 2;
    value_id bytes = v_reshape_i(b, s->bytes, lines + 3 - rank, rank);
    value_id q = v_numbers(b, v_unpacked(b, bytes, s->bits, k), s);
    if (s->zero.i)
        q = b_binary(b, OP_SUB, q, v_blocks_spread(b, s->zero, rank - 1, s->size, k));
    value_id w = b_binary(b, OP_MUL, q, v_blocks_spread(b, s->scale, rank - 1, s->size, k));
    value_id y = s->many ? v_product_chosen(b, x, w, s->chosen, 2) : w.i ? b_matmul(b, x, b_transpose(b, w, turn)) : w;
    if (!s->least.i || !y.i)
        return y;
    return v_less_least(b, y, b_unary(b, OP_NEG, b_reduce(b, v_in_blocks(b, x, s), &last, 1, "sum", false)), s);
}

/* Operands A (..., K), B u8 [N, blocks, bytes of one], scales, [zero points, g_idx, bias]. */
bool rule_matmul_nbits(struct rule *r)
{
    struct builder *b = r->b;
    struct blocks s;
    value_id in = rule_in(r, 0), bytes = rule_in(r, 1), scales = rule_in(r, 2);
    if (!in.i || !bytes.i || !scales.i || !blocks_read(r, &s))
        return false;
    int64_t blocks[2] = {s.n, s.count};
    s.bytes = bytes;
    s.zero = zero_points(r, &s);
    s.scale = b_convert(b, v_reshape_i(b, scales, blocks, 2), ELEM_F32);
    bool rounded = blocks_allow_bytes(r, &s, rule_int(r, "accuracy_level", 0) == LEVEL_BYTES) &&
                   v_rank(b, in) <= RANK_MAX - BLOCK_DIMS;
    value_id x = v_widen(b, in), y = rounded ? block_product(r, x, &s) : blocks_product(r, x, &s);
    if (rule_has(r, 5))
        y = b_binary(b, OP_ADD, y, v_channels(b, v_widen(b, rule_in(r, 5)), y, v_rank(b, y) - 1));
    return rule_result(r, b_convert(b, y, v_elem(b, in)));
}

/* ---- GatherBlockQuantized ---------------------------------------------------------------------------------------- */

struct table {
    int64_t bits, block;
    int32_t rank, gather, quantize; /* axes of the data */
    value_id row, known; /* the indices, 0 in place of those that no row has; which have one */
};

/* Data, scales or zero points at the indices. */
static value_id looked_up(struct builder *b, const struct table *t, value_id x)
{
    bool one = x.i && ex_is(b->x, b_dim(b, x, t->gather), 1); /* scales for all rows */
    return b_gather(b, x, one ? b_binary_f64(b, OP_MUL, t->row, 0) : t->row, t->gather);
}

/* (q - zero) * scale; q is f32, blocks are along axis. zero {0}: 0. */
static value_id dequantized(struct builder *b, const struct table *t, value_id q, value_id scale, value_id zero,
                            int32_t axis)
{
    if (!q.i || !scale.i)
        return (value_id){0};
    expr_id size = b_dim(b, q, axis);
    value_id *both[2] = {&scale, &zero};
    for (uint32_t i = 0; i < 2; i++) {
        if (!both[i]->i)
            continue;
        *both[i] = b_convert(b, *both[i], ELEM_F32);
        if (t->block && v_rank(b, *both[i]))
            *both[i] = v_blocks_spread(b, *both[i], axis, t->block, size);
    }
    if (zero.i)
        q = b_binary(b, OP_SUB, q, zero);
    return b_binary(b, OP_MUL, q, scale);
}

/* The indices, and which of them lie in the table: others give zeros. */
static void rows_read(struct rule *r, struct table *t)
{
    struct builder *b = r->b;
    value_id at = b_convert(b, rule_in(r, 1), ELEM_I64), n = v_expr(b, ELEM_I64, b_dim(b, rule_in(r, 0), t->gather));
    value_id zero = b_splat_like(b, at, 0);
    value_id wrapped = b_select(b, b_binary(b, OP_LT, at, zero), b_binary(b, OP_ADD, at, n), at);
    t->known = b_binary(b, OP_AND, b_binary(b, OP_LE, zero, wrapped), b_binary(b, OP_LT, wrapped, n));
    t->row = b_select(b, t->known, wrapped, zero);
}

static bool table_read(struct rule *r, struct table *t)
{
    struct builder *b = r->b;
    value_id data = rule_in(r, 0), scales = rule_in(r, 2);
    enum elem e = v_elem(b, data);
    if (!data.i || !scales.i || !rule_in(r, 1).i)
        return false;
    *t = (struct table){.bits = e == ELEM_U8 ? rule_int(r, "bits", 4) : 8,
                        .block = rule_int(r, "block_size", 128),
                        .rank = v_rank(b, data)};
    if (!rule_axis(r, rule_int(r, "gather_axis", 0), t->rank, &t->gather) ||
        !rule_axis(r, rule_int(r, "quantize_axis", 1), t->rank, &t->quantize))
        return false;
    if (v_rank(b, scales) != t->rank || (t->bits != 2 && t->bits != 4 && t->bits != 8))
        return rule_bad(r, "scales of rank %d for data of rank %d, %lld bits", (int)v_rank(b, scales), (int)t->rank,
                        (long long)t->bits);
    if (t->block < 0 || t->block > INT32_MAX || (t->block == 0 && elem_class(e) != 'F'))
        return rule_bad(r, "blocks of %lld", (long long)t->block);
    if (t->bits < 8 && (t->gather == t->rank - 1 || t->gather == t->quantize))
        return rule_refuse(r, "packed numbers are gathered along the axis of the packing or of the blocks");
    if (t->rank + v_rank(b, rule_in(r, 1)) >= RANK_MAX)
        return rule_refuse(r, "the data has rank %d and the indices rank %d", (int)t->rank,
                           (int)v_rank(b, rule_in(r, 1)));
    rows_read(r, t);
    return t->row.i != 0;
}

/* All numbers of a byte tensor, or of zero points that are packed as it is. */
static value_id all_unpacked(struct builder *b, const struct table *t, value_id x, expr_id count)
{
    return b_convert(b, t->bits < 8 ? v_unpacked(b, x, t->bits, count) : x, ELEM_F32);
}

/* Operands data, indices, scales, [zero points]. Rows are looked up before they are dequantized, so that the table
 * stays as it is; along the axis of the blocks all of it is dequantized before. */
bool rule_gather_block_quantized(struct rule *r)
{
    struct builder *b = r->b;
    struct table t;
    if (!table_read(r, &t))
        return false;
    value_id data = rule_in(r, 0), scale = rule_in(r, 2), zero = {0}, y;
    int32_t rank_i = v_rank(b, t.row), last = t.rank - 1, axis = t.quantize + (t.quantize > t.gather ? rank_i - 1 : 0);
    expr_id width = ex_mulc(b->x, b_dim(b, data, last), 8 / t.bits), scales = b_dim(b, scale, last);
    enum elem narrow = v_elem(b, scale);
    if (rule_has(r, 3))
        zero = rule_in(r, 3);
    else if (v_elem(b, data) == ELEM_U8)
        zero = b_scalar_f64(b, ELEM_F32, (double)(1 << (t.bits - 1)));
    if (t.gather == t.quantize) {
        y = dequantized(b, &t, b_convert(b, data, ELEM_F32), scale, zero, t.quantize);
        y = looked_up(b, &t, y);
    } else {
        value_id q = all_unpacked(b, &t, looked_up(b, &t, data), width);
        if (rule_has(r, 3))
            zero = all_unpacked(b, &t, looked_up(b, &t, zero), scales);
        y = dequantized(b, &t, q, looked_up(b, &t, scale), zero, axis);
    }
    if (!y.i)
        return false;
    value_id known = t.known;
    for (int32_t i = 0; i < t.gather; i++)
        known = b_unsqueeze(b, known, 0);
    for (int32_t i = t.gather; i < last; i++)
        known = b_unsqueeze(b, known, v_rank(b, known));
    y = b_select(b, known, y, b_splat_like(b, y, 0));
    return rule_result(r, b_convert(b, y, narrow));
}
