/* GGUF's block types: products by, and rows of, matrices whose blocks hold integers with scales of their own.
 *
 * Every type is the same algebra, (number - middle) * scale - least, for 16 or 32 elements at a time. What the types
 * differ in is where the bits lie. The numbers become those of MatMulNBits, 4 bits packed in the order of the elements,
 * or a byte each (5 and 6 bits); scales of two parts (f16 for 256 elements, 6 or 8 bits for each block) stay in two
 * parts. All of it is operators over the file's bytes, which are written piece by piece; kernels decode the numbers as
 * they load them. Copies say what is stored.
 */
#include "passes/legalize/driver.h"
#include "passes/legalize/nn/window.h"
#include "passes/legalize/quant/blocks.h"

/* Where in a block's bytes the parts are; -1: there is none. */
struct format {
    const char *name;
    int64_t elements, bytes; /* of a block of the file */
    int64_t size, bits, middle; /* of the blocks made of it */
    int64_t d, least; /* f16: scale; minimum, times -1 without `parts` */
    int64_t parts; /* 6 bits each: 8 scales and 8 minima; of Q6_K: 16 scales of i8 */
    int64_t low, low_bytes, low_group; /* 4 bits of each number: first those of a group of bytes' low bits */
    int64_t high, high_bytes, high_bits, high_group; /* what stands above them */
    int64_t shift; /* added to the numbers */
    bool e2m1; /* the numbers are floats of 4 bits, d is an exponent of 8 */
};
static const struct format formats[] = {
    {"Q4_0", 32, 18, 32, 4, 8, 0, -1, -1, 2, 16, 16, -1, 0, 0, 0, 0, false},
    {"Q4_1", 32, 20, 32, 4, 0, 0, 2, -1, 4, 16, 16, -1, 0, 0, 0, 0, false},
    {"Q5_0", 32, 22, 32, 8, 128, 0, -1, -1, 6, 16, 16, 2, 4, 1, 1, 112, false},
    {"Q5_1", 32, 24, 32, 8, 0, 0, 2, -1, 8, 16, 16, 4, 4, 1, 1, 0, false},
    {"Q8_0", 32, 34, 32, 8, 128, 0, -1, -1, -1, 0, 0, 2, 32, 8, 1, 128, false},
    {"Q4_K", 256, 144, 32, 4, 0, 0, 2, 4, 16, 128, 32, -1, 0, 0, 0, 0, false},
    {"Q5_K", 256, 176, 32, 8, 0, 0, 2, 4, 48, 128, 32, 16, 32, 1, 32, 0, false},
    {"Q6_K", 256, 210, 16, 8, 128, 208, -1, 192, 0, 128, 64, 128, 64, 2, 32, 96, false},
    {"MXFP4", 32, 17, 32, 4, 12, 0, -1, -1, 1, 16, 16, -1, 0, 0, 0, 0, true},
};

/* ---- the parts of blocks ----------------------------------------------------------------------------------------- */

/* v with these dims, after that of several matrices. */
static value_id shaped(struct builder *b, const struct blocks *s, value_id v, const int64_t *dims, int32_t n)
{
    int64_t all[RANK_MAX];
    int32_t rank = blocks_dims(s, dims, n, all);
    return v_reshape_i(b, v, all, rank);
}

/* Bytes at .. at + n - 1 of each block: u8 [rows, blocks, n]. */
static value_id field(struct builder *b, value_id raw, int64_t at, int64_t n)
{
    return b_slice_axis(b, raw, v_rank(b, raw) - 1, ex_const(b->x, at), ex_const(b->x, n));
}

/* An f16 of each block: [rows, blocks]. */
static value_id half(struct builder *b, value_id raw, int64_t at)
{
    const struct attr type = attr_elem("elem", ELEM_F16);
    value_id low = b_convert(b, field(b, raw, at, 1), ELEM_U16);
    value_id high = b_binary_f64(b, OP_SHL, b_convert(b, field(b, raw, at + 1, 1), ELEM_U16), 8);
    value_id bits = b_binary(b, OP_OR, low, high);
    return bits.i ? b_copy(b, b_squeeze(b, b_op(b, OP_BITCAST, &bits, 1, &type, 1), v_rank(b, bits) - 1)) : bits;
}

/* 2^(e - 128), half of what an exponent e8m0 is, as e2m1's numbers are doubled: bf16 has them all. */
static value_id power(struct builder *b, value_id e)
{
    enum { MANTISSA = 7, SUBNORMALS = 2, LEAST = 1 << 5 };
    const struct attr type = attr_elem("elem", ELEM_BF16);
    e = b_convert(b, e, ELEM_U16);
    value_id small = b_binary(b, OP_LT, e, b_splat_like(b, e, SUBNORMALS));
    value_id bits = b_select(b, small, b_binary(b, OP_SHL, b_splat_like(b, e, LEAST), e),
                             b_binary_f64(b, OP_SHL, b_binary_f64(b, OP_SUB, e, 1), MANTISSA));
    return bits.i ? b_copy(b, b_squeeze(b, b_op(b, OP_BITCAST, &bits, 1, &type, 1), v_rank(b, bits) - 1)) : bits;
}

static value_id masked(struct builder *b, value_id x, int64_t shift, int64_t bits)
{
    x = shift ? b_binary_f64(b, OP_SHR, x, (double)shift) : x;
    return shift + bits < 8 ? b_binary_f64(b, OP_AND, x, (double)((1 << bits) - 1)) : x;
}

/* Numbers of `bits` bits from groups of bytes: first the lowest bits of the group's bytes, then the next ones. u8
 * [rows, count, size], or packed again, two neighbours in a byte: [rows, count, size / 2]. */
static value_id planes(struct builder *b, value_id bytes, int64_t bits, int64_t group, bool packed,
                       const struct blocks *s)
{
    int64_t per = 8 / bits, dims[4] = {s->n, s->count * s->size / (group * per), 1, group};
    int64_t made[3] = {s->n, s->count, packed ? s->size / 2 : s->size};
    int32_t last = s->many ? 4 : 3;
    value_id part[8];
    bytes = shaped(b, s, bytes, dims, 4);
    for (int64_t i = 0; i < per; i++) {
        part[i] = masked(b, bytes, i * bits, bits);
        part[i] = packed ? b_packed(b, part[i], bits, last) : part[i];
    }
    return shaped(b, s, per > 1 ? b_concat(b, part, (uint32_t)per, last - 1) : bytes, made, 3);
}

/* The numbers as MatMulNBits has them, in the shape in which products read them: u8 [rows, count, ..., 4]. */
static value_id numbers(struct builder *b, value_id raw, const struct format *f, const struct blocks *s)
{
    int64_t dims[4] = {s->n, s->count, s->size * f->bits / 32, 4};
    value_id x = {0};
    if (f->low_bytes)
        x = planes(b, field(b, raw, f->low, f->low_bytes), 4, f->low_group, f->bits == 4, s);
    if (f->high_bytes) {
        value_id above = planes(b, field(b, raw, f->high, f->high_bytes), f->high_bits, f->high_group, false, s);
        x = f->low_bytes ? b_binary(b, OP_OR, x, b_binary_f64(b, OP_SHL, above, 4)) : above;
    }
    if (f->shift)
        x = b_binary_f64(b, f->high_bits == 8 ? OP_XOR : OP_ADD, x, (double)f->shift);
    return b_copy(b, shaped(b, s, x, dims, 4));
}

/* The 6-bit scales of Q4_K and Q5_K, or their minima: u8 [rows, blocks * 8]. The first four lie in bytes 0 to 3, or 4
 * to 7; of the others 4 bits are in the low, or high, half of bytes 8 to 11, and 2 above the first four. */
static value_id sixes(struct builder *b, value_id parts, bool minima, const struct blocks *s)
{
    value_id first = field(b, parts, minima ? 4 : 0, 4), others = field(b, parts, 8, 4);
    value_id high = b_binary_f64(b, OP_SHL, masked(b, first, 6, 2), 4);
    value_id both[2] = {masked(b, first, 0, 6), b_binary(b, OP_OR, masked(b, others, minima ? 4 : 0, 4), high)};
    return b_copy(b, shaped(b, s, b_concat(b, both, 2, s->many ? 3 : 2), ARRAY(int64_t, s->n, s->count)));
}

/* ---- matrices ---------------------------------------------------------------------------------------------------- */

/* What a matrix of blocks is made of; of several matrices all have one dim more in front. */
struct parts {
    value_id bytes; /* as numbers() makes them */
    value_id d, scales; /* f16 or bf16 [rows, blocks of the file]; u8 or i8 [rows, count], {0}: 1 everywhere */
    value_id least, minima; /* the same; {0}: there are none */
};

static void parts_make(struct builder *b, value_id w, const struct format *f, const struct blocks *s, struct parts *p)
{
    const struct attr type = attr_elem("elem", ELEM_I8);
    int64_t dims[3] = {s->n, s->k / f->elements, f->bytes}, sums[2] = {s->n, s->count};
    value_id raw = shaped(b, s, w, dims, 3);
    *p = (struct parts){.bytes = numbers(b, raw, f, s)};
    p->d = f->e2m1 ? power(b, field(b, raw, f->d, 1)) : half(b, raw, f->d);
    if (f->least >= 0)
        p->least = half(b, raw, f->least);
    if (f->parts >= 0 && f->least >= 0) {
        value_id parts = field(b, raw, f->parts, 12);
        p->scales = sixes(b, parts, false, s);
        p->minima = sixes(b, parts, true, s);
    } else if (f->parts >= 0) {
        value_id scales = field(b, raw, f->parts, 16);
        p->scales = b_copy(b, shaped(b, s, b_op(b, OP_BITCAST, &scales, 1, &type, 1), sums, 2));
    }
}

/* The format and sizes of the node's matrix, operand `at`, and its parts, which nodes of one matrix share. False after
 * a diagnostic. */
static bool matrix_read(struct rule *r, uint32_t at, int32_t rank, const char *name, const struct format **format,
                        struct blocks *s, struct parts *p)
{
    struct builder *b = r->b;
    value_id w = rule_in(r, at);
    int64_t bytes;
    const struct format *f = NULL;
    for (uint32_t i = 0; i < sizeof formats / sizeof *formats; i++)
        f = strcmp(formats[i].name, name) == 0 ? &formats[i] : f;
    if (!w.i)
        return false;
    if (!f || v_elem(b, w) != ELEM_U8 || v_rank(b, w) != rank)
        return rule_bad(r, "a matrix of %.20s, %s of rank %d", name, elem_name(v_elem(b, w)), (int)v_rank(b, w));
    *s = (struct blocks){.bits = f->bits, .size = f->size, .middle = f->middle, .e2m1 = f->e2m1};
    if ((rank == 3 && !ex_is_const(b->x, b_dim(b, w, 0), &s->many)) ||
        !ex_is_const(b->x, b_dim(b, w, rank - 2), &s->n) || !ex_is_const(b->x, b_dim(b, w, rank - 1), &bytes) ||
        bytes % f->bytes || !mul_i64(bytes / f->bytes, f->elements, &s->k))
        return rule_bad(r, "rows that are not blocks of %lld bytes", (long long)f->bytes);
    s->count = s->k / s->size;
    *format = f;
    for (uint32_t i = 0; i < r->lg->ggml.n; i++)
        if (r->lg->ggml.data[i].w.i == w.i && r->lg->ggml.data[i].region.i == b->region.i)
            return memcpy(p, r->lg->ggml.data[i].part, sizeof *p), true;
    parts_make(b, w, f, s, p);
    struct ggml_parts made = {.w = w, .region = b->region};
    memcpy(made.part, p, sizeof *p);
    VEC_PUSH(r->lg->arena, &r->lg->ggml, made);
    return p->bytes.i && p->d.i;
}

/* d times the scales of a block's parts: f32 (..., count) of d (..., blocks of the file). */
static value_id factors(struct builder *b, value_id d, value_id scales, const struct format *f, const struct blocks *s)
{
    d = b_convert(b, d, ELEM_F32);
    if (!d.i || !scales.i)
        return d;
    d = v_blocks_spread(b, d, v_rank(b, d) - 1, f->elements / f->size, ex_const(b->x, s->count));
    return b_binary(b, OP_MUL, d, b_convert(b, scales, ELEM_F32));
}

/* What is taken away of each number times scale. */
static value_id leasts(struct builder *b, const struct parts *p, const struct format *f, const struct blocks *s)
{
    value_id y = factors(b, p->least, p->minima, f, s);
    return y.i && !p->minima.i ? b_unary(b, OP_NEG, y) : y;
}

static bool is_blocks(struct rule *r, uint32_t at)
{
    return v_elem(r->b, rule_in(r, at)) == ELEM_U8;
}

bool ggml_matrix(struct rule *r, uint32_t at, int32_t rank, const char *type, struct blocks *s)
{
    const struct format *f;
    struct parts p;
    if (!matrix_read(r, at, rank, type, &f, s, &p))
        return false;
    s->bytes = p.bytes;
    s->scale = factors(r->b, p.d, p.scales, f, s);
    if (p.least.i)
        s->least = leasts(r->b, &p, f, s);
    return s->scale.i && (s->least.i || !p.least.i);
}

/* Operands x (..., k), matrix (n, k) of floats, or of blocks (n, bytes of a row): x by its transpose. Products by
 * blocks round x to bytes by blocks, as those of ggml do, unless the user wants them exact. */
bool rule_ggml_mul_mat(struct rule *r)
{
    static const int64_t turn[] = {1, 0};
    struct builder *b = r->b;
    struct blocks s;
    value_id x = rule_in(r, 0);
    if (!x.i || !rule_in(r, 1).i)
        return false;
    if (!is_blocks(r, 1))
        return rule_result(r, b_matmul(b, x, b_transpose(b, b_convert(b, rule_in(r, 1), ELEM_F32), turn)));
    if (!ggml_matrix(r, 1, 2, rule_str(r, "type", ""), &s))
        return false;
    bool bytes = r->lg->options->bytes != BYTES_NEVER;
    return rule_result(r, bytes ? block_product(r, x, &s) : blocks_product(r, x, &s));
}

/* Operands matrix, as that of MulMat, and the numbers of rows (...): f32 (..., k). Parts are looked up before they are
 * decoded. */
bool rule_ggml_get_rows(struct rule *r)
{
    struct builder *b = r->b;
    const struct format *f;
    struct blocks s;
    struct parts p;
    value_id ids = rule_in(r, 1);
    if (!ids.i || !rule_in(r, 0).i)
        return false;
    if (!is_blocks(r, 0))
        return rule_result(r, b_convert(b, b_gather(b, rule_in(r, 0), ids, 0), ELEM_F32));
    if (!matrix_read(r, 0, 2, rule_str(r, "type", ""), &f, &s, &p))
        return false;
    value_id *all[] = {&p.bytes, &p.d, &p.scales, &p.least, &p.minima};
    for (uint32_t i = 0; i < sizeof all / sizeof *all; i++)
        *all[i] = all[i]->i ? b_gather(b, *all[i], ids, 0) : *all[i];
    int32_t rank = v_rank(b, ids);
    expr_id dims[RANK_MAX];
    if (rank > RANK_MAX - 3)
        return rule_refuse(r, "rows of rank %d", (int)rank);
    for (int32_t d = 0; d < rank; d++)
        dims[d] = b_dim(b, ids, d);
    dims[rank] = ex_const(b->x, s.count);
    dims[rank + 1] = ex_const(b->x, s.size * s.bits / 8);
    value_id y = v_unpacked(b, b_reshape(b, p.bytes, dims, rank + 2), s.bits, ex_const(b->x, s.size));
    y = b_binary(b, OP_MUL, v_numbers(b, y, &s), b_unsqueeze(b, factors(b, p.d, p.scales, f, &s), rank + 1));
    if (p.least.i)
        y = b_binary(b, OP_SUB, y, b_unsqueeze(b, leasts(b, &p, f, &s), rank + 1));
    dims[rank] = ex_const(b->x, s.k);
    return y.i && rule_result(r, b_reshape(b, y, dims, rank + 1));
}

/* ---- rotary angles ----------------------------------------------------------------------------------------------- */

/* Operands tokens (B, L), mask (B, T), frequencies (n) [, frequencies where T is above `length`]: cosines and sines of
 * every token's position times the frequencies, times `magnitude`, (B * L, n), and the rows' numbers (B, L). The tokens
 * are the last ones of their sequence, or its first ones where L is T, as GroupQueryAttention has it. */
bool rule_ggml_rotary_angles(struct rule *r)
{
    struct builder *b = r->b;
    value_id ids = rule_in(r, 0), mask = rule_in(r, 1), by = rule_in(r, 2);
    int64_t one = 1;
    if (!ids.i || !mask.i || !by.i || v_rank(b, ids) != 2 || v_rank(b, mask) != 2 || v_rank(b, by) != 1)
        return by.i && rule_bad(r, "tokens, mask or frequencies of other ranks");
    expr_id dims[2] = {b_dim(b, ids, 0), b_dim(b, ids, 1)}, total = b_dim(b, mask, 1);
    expr_id rows = ex_mul(b->x, dims[0], dims[1]), lines[2] = {rows, ex_const(b->x, 1)};
    if (rule_has(r, 3)) {
        value_id is_long = v_expr(b, ELEM_BOOL, ex_lt(b->x, ex_const(b->x, rule_int(r, "length", 0)), total));
        by = b_select(b, is_long, rule_in(r, 3), by);
    }
    value_id before = b_binary(b, OP_SUB, b_reduce(b, mask, &one, 1, "sum", true), v_expr(b, ELEM_I64, dims[1]));
    before = b_binary(b, OP_MUL, before, v_expr(b, ELEM_I64, ex_not(b->x, ex_eq(b->x, dims[1], total))));
    value_id at = b_binary(b, OP_ADD, v_iota(b, ELEM_I64, dims, 2, 1), before);
    value_id angle = b_binary(b, OP_MUL, b_reshape(b, b_convert(b, at, ELEM_F32), lines, 2), b_unsqueeze(b, by, 0));
    double magnitude = rule_float(r, "magnitude", 1);
    rule_out(r, 0, v_affine(b, b_unary(b, OP_COS, angle), magnitude, 0));
    rule_out(r, 1, v_affine(b, b_unary(b, OP_SIN, angle), magnitude, 0));
    rule_out(r, 2, b_reshape(b, v_iota(b, ELEM_I64, &rows, 1, 0), dims, 2));
    return angle.i != 0;
}
