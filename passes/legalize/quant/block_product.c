/* Products of activations by weights of 2, 4 or 8 bits in blocks, in integers: each block of a row of the activations
 * becomes bytes with a scale of its own, and a block's products are summed exactly.
 *
 *   sum over blocks of scale_x * scale_w * (sum of qx * (qw - zero))
 *
 * qx is i8 with scale_x = max |x| / 127, and qw as it stands in the weights, u8. What zero takes away is zero times the
 * sum of the block's qx, which no column has to add up again. A block is summed in the order in which the weights'
 * bytes hold its numbers, the first numbers of four bytes, then the second ones: a register of bytes then is four
 * numbers of each column as it is, after one mask or shift, and the activations are stored in that order.
 */
#include "passes/legalize/driver.h"
#include "passes/legalize/quant/blocks.h"

enum { GROUP = 4, STEPS = 127 };

/* Numbers that four bytes hold: a group of each of their numbers. */
static int64_t numbers_together(const struct blocks *s)
{
    return GROUP * 8 / s->bits;
}

value_id v_in_blocks(struct builder *b, value_id x, const struct blocks *s)
{
    int32_t rank = v_rank(b, x);
    expr_id lo[RANK_MAX], hi[RANK_MAX], dims[RANK_MAX + 1];
    for (int32_t d = 0; d < rank; d++) {
        lo[d] = ex_const(b->x, 0);
        hi[d] = ex_const(b->x, d == rank - 1 ? s->count * s->size - s->k : 0);
        dims[d] = b_dim(b, x, d);
    }
    dims[rank - 1] = ex_const(b->x, s->count);
    dims[rank] = ex_const(b->x, s->size);
    return b_reshape(b, b_pad(b, x, (value_id){0}, lo, hi, "constant"), dims, rank + 1);
}

/* x (..., count, size) as (..., count, size / together, together), in the order of the bytes' bits: of four bytes the
 * first number of each, then the second of each. Eight of 4 bits are numbers 0, 2, 4, 6, 1, 3, 5, 7. */
static value_id in_order(struct builder *b, value_id x, const struct blocks *s)
{
    int32_t rank = v_rank(b, x);
    int64_t together = numbers_together(s), perm[RANK_MAX];
    expr_id dims[RANK_MAX];
    for (int32_t d = 0; d < rank - 1; d++)
        dims[d] = b_dim(b, x, d);
    dims[rank - 1] = ex_const(b->x, s->size / together);
    dims[rank] = ex_const(b->x, GROUP);
    dims[rank + 1] = ex_const(b->x, together / GROUP);
    x = b_reshape(b, x, dims, rank + 2);
    for (int32_t d = 0; d < rank; d++)
        perm[d] = d;
    perm[rank] = rank + 1;
    perm[rank + 1] = rank;
    dims[rank] = ex_const(b->x, together);
    return b_reshape(b, b_transpose(b, x, perm), dims, rank + 1);
}

/* The activations as bytes in order, their scales, and what the weights' zero points are multiplied with: less the
 * blocks' sums times their scales, and times the zero point where it is the same for all. */
static void quantize(struct builder *b, value_id x, const struct blocks *s, double zero, value_id out[3])
{
    x = v_in_blocks(b, x, s);
    if (!x.i)
        return;
    int64_t last = v_rank(b, x) - 1;
    value_id most = b_reduce(b, b_unary(b, OP_ABS, x), &last, 1, "max", true);
    value_id scale = b_binary_f64(b, OP_DIV, most, STEPS);
    value_id none = b_binary_f64(b, OP_EQ, most, 0), steps = b_splat_like(b, most, STEPS);
    value_id by = b_select(b, none, b_splat_like(b, most, 0), b_binary(b, OP_DIV, steps, most));
    value_id q = b_clamp(b, b_unary(b, OP_ROUND, b_binary(b, OP_MUL, x, by)), -STEPS, STEPS);
    out[0] = b_copy(b, in_order(b, b_convert(b, q, ELEM_I8), s));
    out[1] = b_unsqueeze(b, scale, v_rank(b, scale)); /* (..., count, 1, 1), as scales of blocks are */
    int64_t axes[2] = {last, last + 1};
    value_id sums = b_convert(b, b_reduce(b, b_convert(b, out[0], ELEM_I32), axes, 2, "sum", true), ELEM_F32);
    out[2] = b_binary_f64(b, OP_MUL, b_binary(b, OP_MUL, sums, out[1]), -zero);
}

/* Several products of one value share what it is quantized to. */
static const struct block_quantized *quantized(struct rule *r, value_id x, const struct blocks *s, double zero)
{
    struct legalizer *lg = r->lg;
    for (uint32_t i = 0; i < lg->block_quantized.n; i++) {
        const struct block_quantized *q = &lg->block_quantized.data[i];
        if (q->x.i == x.i && q->region.i == r->b->region.i && q->size == s->size && q->bits == s->bits &&
            q->zero == zero)
            return q;
    }
    struct block_quantized q = {.x = x, .region = r->b->region, .size = s->size, .bits = s->bits, .zero = zero};
    quantize(r->b, x, s, zero, q.q);
    VEC_PUSH(lg->arena, &lg->block_quantized, q);
    return &lg->block_quantized.data[lg->block_quantized.n - 1];
}

int32_t blocks_dims(const struct blocks *s, const int64_t *dims, int32_t n, int64_t *out)
{
    int32_t before = s->many ? 1 : 0;
    out[0] = s->many;
    memcpy(out + before, dims, (size_t)n * sizeof *dims);
    return before + n;
}

/* v as n dims, after that of several matrices, of which the chosen one is left. */
static value_id chosen(struct builder *b, const struct blocks *s, value_id v, const int64_t *dims)
{
    int64_t all[RANK_MAX];
    int32_t rank = blocks_dims(s, dims, 4, all);
    v = v_reshape_i(b, v, all, rank);
    return s->many ? b_slice_axis(b, v, 0, s->chosen, ex_const(b->x, 1)) : v;
}

/* The weights as numbers [n, count, size / together, together]: u8, or i8 where products are of signed bytes and the
 * numbers fit. */
static value_id numbers(struct rule *r, const struct blocks *s)
{
    struct builder *b = r->b;
    struct attr type = attr_elem("elem", ELEM_I8);
    int32_t rank = s->many ? 5 : 4;
    int64_t per = 8 / s->bits, all[5] = {s->many, s->n, s->count, s->size / numbers_together(s), GROUP};
    value_id part[4], bytes = v_reshape_i(b, s->bytes, all + 5 - rank, rank);
    for (int64_t k = 0; k < per && per > 1; k++) {
        value_id moved = k ? b_binary_f64(b, OP_SHR, bytes, (double)(k * s->bits)) : bytes;
        moved = b_binary_f64(b, OP_AND, moved, (double)((1 << s->bits) - 1));
        moved = s->e2m1 ? v_e2m1_numbers(b, moved) : moved;
        part[k] = b_unsqueeze(b, r->lg->options->signed_bytes ? b_op(b, OP_BITCAST, &moved, 1, &type, 1) : moved,
                              rank - 1);
    }
    all[4] = numbers_together(s);
    return chosen(b, s, per > 1 ? b_concat(b, part, (uint32_t)per, rank - 1) : bytes, all + 1);
}

value_id block_product(struct rule *r, value_id x, const struct blocks *s)
{
    struct builder *b = r->b;
    int64_t dims[4] = {s->n, s->count, 1, 1}, contract_b[3], contract_a[3], rank = v_rank(b, x);
    const struct block_quantized *q = quantized(r, x, s, s->zero.i || s->least.i ? 1 : (double)s->middle);
    value_id in[6] = {q->q[0], numbers(r, s), q->q[1], chosen(b, s, s->scale, dims), q->q[2]};
    value_id offsets = in[4];
    if (s->zero.i)
        in[5] = chosen(b, s, s->zero, dims);
    for (int64_t i = 0; i < 3; i++) {
        contract_a[i] = rank - 1 + i;
        contract_b[i] = (s->many ? 2 : 1) + i;
    }
    struct attr attrs[] = {attr_ints("batch_a", NULL, 0), attr_ints("batch_b", NULL, 0),
                           attr_ints("contract_a", contract_a, 3), attr_ints("contract_b", contract_b, 3)};
    value_id y = b_op(b, OP_DOT, in, s->least.i ? 4 : s->zero.i ? 6 : 5, attrs, 4);
    if (s->many)
        y = b_squeeze(b, y, (int32_t)rank - 1);
    if (!s->least.i || !y.i)
        return y;
    return v_less_least(b, y, b_squeeze(b, b_squeeze(b, offsets, (int32_t)rank + 1), (int32_t)rank), s);
}
