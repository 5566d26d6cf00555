/* com.microsoft: attention as ONNX Runtime's optimizer fuses it, each query head with a key head of its own.
 *
 * A mask adds mask_filter_value where it is 0; what comes after a query in a causal form is -inf. Present is past with
 * the new rows after it, or, of a shared buffer, in their places.
 */
#include "passes/legalize/nn/attention.h"
#include "passes/legalize/nn/window.h"

#include <math.h>

/* Which operand is what; 0: there is none. */
struct operands {
    uint32_t mask, bias, past_key, past_value, past_length, beams, projection;
};
enum { FORM_MULTI_HEAD, FORM_DECODER_MASKED, FORM_ATTENTION, FORM_QUANTIZED };
static const struct operands forms[] = {
    [FORM_MULTI_HEAD] =
        {.mask = 4, .bias = 5, .past_key = 6, .past_value = 7, .past_length = 8, .beams = 9, .projection = 3},
    [FORM_DECODER_MASKED] =
        {.mask = 3, .bias = 4, .past_key = 5, .past_value = 6, .past_length = 7, .beams = 9, .projection = 10},
    [FORM_ATTENTION] = {.mask = 3, .bias = 5, .past_key = 4, .past_length = 6, .projection = 2},
    [FORM_QUANTIZED] = {.mask = 5, .past_key = 8, .projection = 2},
};

struct heads {
    const struct operands *at;
    value_id q, k, v; /* (B, heads, L, d) as the file has them; k and v become those of past and new rows */
    expr_id before; /* rows of past */
};

static bool given(const struct rule *r, uint32_t operand)
{
    return operand && rule_has(r, operand);
}

/* ---- scores ------------------------------------------------------------------------------------------------------ */

/* Keys that sequences have, bool (B, 1, 1, total): (B) lengths, (2 * B) ends and then starts, or (3 * B + 2) lengths
 * and sums of lengths. */
static value_id keys_between(struct rule *r, value_id mask, expr_id batch, expr_id total)
{
    struct builder *b = r->b;
    struct exprs *x = b->x;
    expr_id have = b_count(b, mask), zero = ex_const(x, 0), both = ex_eq(x, have, ex_mulc(x, batch, 2)), hi = batch;
    expr_id sums = ex_eq(x, have, ex_addc(x, ex_mulc(x, batch, 3), 2));
    b_assert(b, ex_or(x, ex_eq(x, have, batch), ex_or(x, both, sums)), EVAL_SHAPE,
             "there is not a length for each sequence");
    value_id key = v_iota(b, ELEM_I64, &total, 1, 0), all = b_convert(b, mask, ELEM_I64);
    value_id end = v_along(b, b_slice_axis(b, all, 0, zero, batch), 0, 4), seen = b_binary(b, OP_LT, key, end);
    if (ex_is(x, both, 0))
        return seen;
    if (!ex_is(x, both, 1)) /* known at run time: without starts, these are 0 */
        all = b_binary(b, OP_MUL, b_pad(b, all, (value_id){0}, &zero, &hi, "constant"), v_expr(b, ELEM_I64, both));
    value_id start = v_along(b, b_slice_axis(b, all, 0, batch, batch), 0, 4);
    return b_binary(b, OP_AND, seen, b_binary(b, OP_LE, start, key));
}

/* What a mask adds to scores of queries (B, H, L, d) over `total` keys: mask_filter_value where it is 0. {0}:
 * refused. */
static value_id mask_added(struct rule *r, const struct heads *a, expr_id total, enum elem wide)
{
    struct builder *b = r->b;
    value_id mask = rule_in(r, a->at->mask), keep = {0};
    int32_t rank = v_rank(b, mask);
    if (!mask.i)
        return mask;
    if (rank == 1)
        keep = keys_between(r, mask, b_dim(b, a->q, 0), total);
    else if (rank == 2 || rank == 3)
        keep = b_binary(b, OP_LT, b_splat_like(b, mask, 0), mask);
    else
        return rule_refuse(r, "the mask has rank %d", (int)rank), (value_id){0};
    while (keep.i && v_rank(b, keep) < 4)
        keep = b_unsqueeze(b, keep, 1);
    value_id low = b_scalar_f64(b, wide, rule_float(r, "mask_filter_value", -10000));
    return b_select(b, keep, b_scalar_f64(b, wide, 0), low);
}

/* The queries over all keys: (B, L, H * d). shown: the scores, wide. */
static value_id attended(struct rule *r, const struct heads *a, value_id *shown)
{
    static const int64_t last[] = {3};
    struct builder *b = r->b;
    if (!a->q.i || !a->k.i || !a->v.i)
        return (value_id){0};
    enum elem narrow = v_elem(b, a->q);
    value_id q = v_widen(b, a->q), k = v_widen(b, a->k), v = v_widen(b, a->v);
    enum elem wide = v_elem(b, q);
    expr_id dims[2] = {b_dim(b, q, 2), b_dim(b, k, 2)};
    value_id scores = scores_scaled(r, grouped_product(r, q, k, true), b_dim(b, q, 3));
    if (given(r, a->at->bias))
        scores = b_binary(b, OP_ADD, scores, b_convert(b, rule_in(r, a->at->bias), wide));
    if (given(r, a->at->mask))
        scores = b_binary(b, OP_ADD, scores, mask_added(r, a, dims[1], wide));
    if (rule_int(r, "unidirectional", 0) && scores.i) {
        value_id row = b_binary(b, OP_ADD, v_iota(b, ELEM_I64, dims, 2, 0), v_expr(b, ELEM_I64, a->before));
        value_id after = b_binary(b, OP_LT, row, v_iota(b, ELEM_I64, dims, 2, 1));
        scores = b_select(b, after, b_scalar_f64(b, wide, -INFINITY), scores);
    }
    if (!scores.i)
        return scores;
    *shown = scores;
    value_id y = grouped_product(r, v_softmax(b, scores, last, 1, false), v, false);
    return b_convert(b, heads_join(b, y), narrow);
}

/* ---- the cache --------------------------------------------------------------------------------------------------- */

/* Past and the new rows become a->k or a->v (*rows); what is present comes back. With past_sequence_length past is a
 * buffer, of which that many rows count; without, all of them do. */
static value_id joined(struct rule *r, struct heads *a, value_id past, value_id *rows)
{
    struct builder *b = r->b;
    if (!past.i || !rows->i || v_rank(b, past) != 4)
        return past.i && rows->i ? rule_bad(r, "past of rank %d", (int)v_rank(b, past)), (value_id){0} : (value_id){0};
    if (!given(r, a->at->past_length)) {
        value_id both[2] = {past, *rows};
        a->before = b_dim(b, past, 2);
        return *rows = b_concat(b, both, 2, 2);
    }
    expr_id one = ex_const(b->x, 1);
    value_id length = b_convert(b, b_reshape(b, rule_in(r, a->at->past_length), &one, 1), ELEM_I64);
    a->before = b_elem(b, length, 0, INT32_MAX);
    if (!a->before.i)
        return a->before.i ? past : (value_id){0};
    expr_id total = ex_add(b->x, a->before, b_dim(b, *rows, 2));
    value_id whole = cache_updated(r, past, *rows, length, total);
    *rows = b_slice_axis(b, whole, 2, ex_const(b->x, 0), total);
    return whole;
}

/* past (2, B, H, P, d), keys before values, and present like it. */
static bool joined_pair(struct rule *r, struct heads *a)
{
    struct builder *b = r->b;
    value_id *rows[2] = {&a->k, &a->v}, parts[2];
    for (uint32_t i = 0; i < 2; i++) {
        value_id past = {0};
        if (given(r, a->at->past_key)) {
            past = b_slice_axis(b, rule_in(r, a->at->past_key), 0, ex_const(b->x, i), ex_const(b->x, 1));
            past = joined(r, a, b_squeeze(b, past, 0), rows[i]);
        } else {
            past = *rows[i];
        }
        parts[i] = b_unsqueeze(b, past, 0);
    }
    if (rule_wants(r, 1))
        rule_out(r, 1, b_concat(b, parts, 2, 0));
    return a->k.i && a->v.i;
}

/* ---- MultiHeadAttention, DecoderMaskedMultiHeadAttention --------------------------------------------------------- */

/* Part k of n of a packed operand, (B, L, H, n, d) or with n widths in its last dim: (B, L, H * d). */
static value_id unpacked_part(struct rule *r, value_id x, int64_t k, int64_t n)
{
    struct builder *b = r->b;
    const struct dims d = b_dims(b, x);
    if (!d.d)
        return (value_id){0};
    if (d.rank == 3) {
        expr_id width = ex_div(b->x, d.d[2], ex_const(b->x, n));
        return b_slice_axis(b, x, 2, ex_mulc(b->x, width, k), width);
    }
    if (d.rank != 5)
        return rule_bad(r, "a packed operand of rank %d", (int)d.rank), (value_id){0};
    expr_id dims[3] = {d.d[0], d.d[1], ex_mul(b->x, d.d[2], d.d[4])};
    return b_reshape(b, b_slice_axis(b, x, 3, ex_const(b->x, k), ex_const(b->x, 1)), dims, 3);
}

/* Query, keys and values as (B, L, width), the last two (B, H, L, d) where they are a cache themselves; with the
 * projection's bias. */
static bool projected(struct rule *r, const struct operands *at, value_id in[3])
{
    struct builder *b = r->b;
    bool key = rule_has(r, 1), value = rule_has(r, 2);
    if (!key && value)
        return rule_bad(r, "a value without a key");
    for (uint32_t i = 0; i < 3; i++)
        in[i] = !key          ? unpacked_part(r, rule_in(r, 0), i, 3)
                : !value && i ? unpacked_part(r, rule_in(r, 1), i - 1, 2)
                              : rule_in(r, i);
    expr_id first = ex_const(b->x, 0);
    for (uint32_t i = 0; i < 3; i++) {
        if (!in[i].i)
            return false;
        if (!given(r, at->projection) || v_rank(b, in[i]) != 3)
            continue;
        expr_id width = b_dim(b, in[i], 2);
        in[i] = b_binary(b, OP_ADD, in[i], b_slice_axis(b, rule_in(r, at->projection), 0, first, width));
        first = ex_add(b->x, first, width);
    }
    return true;
}

/* The row's parameter is the form: MultiHeadAttention or DecoderMaskedMultiHeadAttention. */
bool rule_multi_head_attention(struct rule *r)
{
    struct builder *b = r->b;
    struct heads a = {.at = &forms[r->param], .before = ex_const(b->x, 0)};
    int64_t heads = rule_int(r, "num_heads", 0);
    value_id in[3], present[2], scores = {0};
    if (given(r, a.at->beams))
        return rule_refuse(r, "cache_indirection: beams that share a cache");
    if (given(r, a.at->past_key) != given(r, a.at->past_value))
        return rule_bad(r, "one of past_key and past_value is missing");
    if (!projected(r, a.at, in))
        return false;
    a.q = heads_split(r, in[0], heads);
    present[0] = a.k = heads_split(r, in[1], heads);
    present[1] = a.v = heads_split(r, in[2], heads);
    if (given(r, a.at->past_key)) {
        present[0] = joined(r, &a, rule_in(r, a.at->past_key), &a.k);
        present[1] = joined(r, &a, rule_in(r, a.at->past_value), &a.v);
    }
    rule_out(r, 1, present[0]);
    rule_out(r, 2, present[1]);
    value_id y = attended(r, &a, &scores);
    if (rule_wants(r, 3) && scores.i)
        rule_out(r, 3, b_convert(b, scores, v_elem(b, a.q)));
    return rule_result(r, y);
}

/* ---- Attention, QAttention --------------------------------------------------------------------------------------- */

/* The rows of x times the weights, with bias: (B, L, widths of query, key and value). */
static value_id product(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0), w = rule_in(r, 1);
    if (r->param == FORM_ATTENTION) {
        value_id y = b_matmul(b, v_widen(b, x), v_widen(b, w));
        return rule_has(r, 2) ? b_binary(b, OP_ADD, y, v_widen(b, rule_in(r, 2))) : y;
    }
    value_id zx = rule_has(r, 6) ? rule_in(r, 6) : (value_id){0}, zw = rule_has(r, 7) ? rule_in(r, 7) : (value_id){0};
    return v_product_scaled(b, rule_integer_matmul(r, x, zx, w, zw), rule_in(r, 3), rule_in(r, 4), rule_in(r, 2));
}

/* Heads of query, key and value out of their product. */
static bool product_split(struct rule *r, struct heads *a)
{
    struct builder *b = r->b;
    uint32_t n;
    const int64_t *sizes = rule_ints(r, "qkv_hidden_sizes", &n);
    value_id all = product(r), *parts[3] = {&a->q, &a->k, &a->v};
    if (!all.i)
        return false;
    if (v_rank(b, all) != 3 || (n && n != 3))
        return rule_bad(r, "input of rank %d, %u sizes", (int)v_rank(b, all), n);
    all = b_convert(b, all, v_elem(b, rule_in(r, r->param == FORM_ATTENTION ? 0 : 2)));
    expr_id first = ex_const(b->x, 0), third = ex_div(b->x, b_dim(b, all, 2), ex_const(b->x, 3));
    for (uint32_t i = 0; i < 3; i++) {
        expr_id width = n ? ex_const(b->x, sizes[i]) : third;
        *parts[i] = heads_split(r, b_slice_axis(b, all, 2, first, width), rule_int(r, "num_heads", 0));
        first = ex_add(b->x, first, width);
    }
    return a->q.i && a->k.i && a->v.i;
}

/* The row's parameter is the form: Attention or QAttention. */
bool rule_attention_of_input(struct rule *r)
{
    struct heads a = {.at = &forms[r->param], .before = ex_const(r->b->x, 0)};
    value_id scores;
    if (rule_int(r, "do_rotary", 0))
        return rule_refuse(r, "do_rotary: fuse the model with RotaryEmbedding and MultiHeadAttention");
    if (rule_int(r, "past_present_share_buffer", 0) && !given(r, a.at->past_length))
        return rule_refuse(r, "past_present_share_buffer needs past_sequence_length");
    if (!product_split(r, &a) || !joined_pair(r, &a))
        return false;
    return rule_result(r, attended(r, &a, &scores));
}

/* ---- RotaryEmbedding --------------------------------------------------------------------------------------------- */

enum { STREAMS = 3, SECTIONS_MAX = 1 << 20 };

/* Rows of a cache by three streams of positions, at: 3 x B x L. mrope_section has the number of columns that each
 * stream gives; mrope_layout 0: one stream's columns after the other's, 1: in turns, and the first stream's where a
 * stream has no more. */
static value_id cache_sections(struct rule *r, value_id cache, value_id at)
{
    struct builder *b = r->b;
    uint32_t n;
    const int64_t *size = rule_ints(r, "mrope_section", &n);
    int64_t layout = rule_int(r, "mrope_layout", 0), columns = 0, end[STREAMS];
    for (uint32_t i = 0; i < STREAMS; i++) {
        if (n != STREAMS || size[i] < 0 || size[i] > SECTIONS_MAX || (layout != 0 && layout != 1))
            return rule_bad(r, "mrope_layout or mrope_section"), (value_id){0};
        end[i] = columns += size[i];
    }
    b_assert(b, ex_eq(b->x, b_dim(b, cache, 1), ex_const(b->x, columns)), EVAL_SHAPE,
             "the sections are not as long as a row of a cache");
    value_id y = {0};
    bool *owned = NEW_ARRAY(&b->g->arena, bool, columns + 1);
    for (uint32_t i = 0; i < STREAMS; i++) {
        value_id one = b_slice_axis(b, at, 0, ex_const(b->x, i), ex_const(b->x, 1));
        value_id rows = v_gather(b, cache, b_reshape(b, one, ARRAY(expr_id, b_dim(b, at, 1), b_dim(b, at, 2))), 0);
        for (int64_t c = 0; c < columns; c++)
            owned[c] = layout ? c % STREAMS == i && c < STREAMS * size[i] : i && c >= end[i - 1] && c < end[i];
        y = i ? b_select(b, b_const(b, ELEM_BOOL, &columns, 1, owned), rows, y) : rows;
    }
    return y;
}

/* Operands x, position_ids (one, which the first row has, or B x L; 3 x B x L for MRotaryEmbedding, param 1),
 * cos_cache, sin_cache. Rank 3 without num_heads: heads of the caches' size. */
bool rule_rotary_positions(struct rule *r)
{
    struct builder *b = r->b;
    value_id in = rule_in(r, 0), at = rule_in(r, 1), cache[2], x = in;
    int64_t heads = rule_int(r, "num_heads", 0), size;
    if (!in.i || !at.i || !rule_in(r, 2).i)
        return false;
    expr_id turned = ex_mulc(b->x, b_dim(b, rule_in(r, 2), 1), 2);
    if (v_rank(b, in) == 3 && !heads) {
        if (!ex_is_const(b->x, ex_div(b->x, b_dim(b, in, 2), ex_max(b->x, turned, ex_const(b->x, 1))), &heads))
            return rule_refuse(r, "the number of heads is dynamic");
    }
    x = v_widen(b, heads_split(r, in, heads));
    if (!x.i)
        return false;
    expr_id dims[2] = {b_dim(b, x, 0), b_dim(b, x, 2)};
    if (r->param ? v_rank(b, at) != 3 : v_rank(b, at) > 2)
        return rule_bad(r, "position_ids of rank %d", (int)v_rank(b, at));
    if (r->param)
        b_assert(b, ex_eq(b->x, b_dim(b, at, 0), ex_const(b->x, STREAMS)), EVAL_SHAPE,
                 "not three streams of positions");
    if (v_rank(b, at) == 1)
        at = b_binary(b, OP_ADD, v_iota(b, ELEM_I64, dims, 2, 1), v_scalar(b, at));
    for (uint32_t i = 0; i < 2; i++) {
        value_id rows = r->param ? cache_sections(r, rule_in(r, 2 + i), at) : v_gather(b, rule_in(r, 2 + i), at, 0);
        cache[i] = v_widen(b, b_unsqueeze(b, rows, 1));
    }
    if (!ex_is_const(b->x, turned, &size) && rule_int(r, "rotary_embedding_dim", 0))
        turned = ex_const(b->x, rule_int(r, "rotary_embedding_dim", 0));
    value_id y = heads_turned(b, x, cache[0], cache[1], rule_int(r, "interleaved", 0) != 0, turned);
    if (v_rank(b, in) == 3)
        y = heads_join(b, y);
    return rule_result(r, b_convert(b, y, v_elem(b, in)));
}
