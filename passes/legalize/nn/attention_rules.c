/* Attention, FlexAttention, RotaryEmbedding and the linear and convolutional forms that go with them.
 *
 * Query heads that share a key head are folded into rows of one product, so keys and values are never repeated.
 * Softcap comes before the mask (ONNX 1.22). f16 computes in f32 and rounds once per result.
 */
#include "passes/legalize/nn/attention.h"

#include <math.h>

value_id heads_split(struct rule *r, value_id x, int64_t heads)
{
    struct builder *b = r->b;
    const struct dims d = b_dims(b, x);
    static const int64_t perm[] = {0, 2, 1, 3};
    if (!d.d || d.rank == 4)
        return d.d ? x : (value_id){0};
    if (d.rank != 3 || heads < 1)
        return rule_bad(r, "rank %d with %lld heads", (int)d.rank, (long long)heads), (value_id){0};
    expr_id apart[4] = {d.d[0], d.d[1], ex_const(b->x, heads), ex_div(b->x, d.d[2], ex_const(b->x, heads))};
    return b_transpose(b, b_reshape(b, x, apart, 4), perm);
}

value_id heads_join(struct builder *b, value_id x)
{
    static const int64_t perm[] = {0, 2, 1, 3};
    const struct dims d = b_dims(b, x);
    if (!d.d)
        return (value_id){0};
    return b_reshape(b, b_transpose(b, x, perm), ARRAY(expr_id, d.d[0], d.d[2], ex_mul(b->x, d.d[1], d.d[3])));
}

bool head_groups(struct rule *r, value_id q, value_id k, struct head_groups *g)
{
    const struct dims dq = b_dims(r->b, q), dk = b_dims(r->b, k);
    if (!dq.d || !dk.d)
        return false;
    *g = (struct head_groups){dq.d[0], dq.d[1], dk.d[1], dq.d[2], ex_const(r->b->x, 1)};
    if (ex_cmp_eq(r->b->x, dq.d[1], dk.d[1]) == TRUE_)
        return true;
    g->each = ex_div(r->b->x, dq.d[1], ex_max(r->b->x, dk.d[1], ex_const(r->b->x, 1)));
    return ex_cmp_eq(r->b->x, ex_mul(r->b->x, g->each, dk.d[1]), dq.d[1]) != FALSE_ ||
           rule_bad(r, "the number of query heads is not a multiple of the number of key heads");
}

value_id heads_folded(struct builder *b, const struct head_groups *g, value_id x)
{
    const struct dims d = b_dims(b, x);
    if (!d.d || ex_is(b->x, g->each, 1))
        return x;
    expr_id n = d.d[d.rank - 1], wide[4] = {g->batch, g->heads, g->rows, n};
    expr_id out[4] = {g->batch, g->keys, ex_mul(b->x, g->rows, g->each), n};
    return b_reshape(b, b_broadcast(b, x, wide, 4), out, 4);
}

value_id heads_unfolded(struct builder *b, const struct head_groups *g, value_id x)
{
    const struct dims d = b_dims(b, x);
    if (!d.d || ex_is(b->x, g->each, 1))
        return x;
    expr_id out[4] = {g->batch, g->heads, g->rows, d.d[3]}; /* of one batch alone: keys of another do not fit */
    return b_reshape(b, x, out, 4);
}

value_id grouped_product(struct rule *r, value_id a, value_id c, bool transpose)
{
    static const int64_t swap[] = {0, 1, 3, 2};
    struct builder *b = r->b;
    struct head_groups g;
    if (!head_groups(r, a, c, &g))
        return (value_id){0};
    c = transpose ? b_transpose(b, c, swap) : c;
    return heads_unfolded(b, &g, b_matmul(b, heads_folded(b, &g, a), c));
}

value_id scores_scaled(struct rule *r, value_id scores, expr_id size)
{
    struct builder *b = r->b;
    int64_t n;
    bool known = ex_is_const(b->x, size, &n);
    if (node_attr(r->node, "scale"))
        return v_affine(b, scores, rule_float(r, "scale", 1), 0);
    if (known)
        return v_affine(b, scores, n > 0 ? 1 / sqrt((double)n) : 1, 0);
    return scores.i ? b_binary(b, OP_DIV, scores, b_unary(b, OP_SQRT, v_expr(b, v_elem(b, scores), size))) : scores;
}

value_id cache_updated(struct rule *r, value_id cache, value_id rows, value_id before, expr_id total)
{
    struct builder *b = r->b;
    const struct dims dims = b_dims(b, rows), have = b_dims(b, cache);
    static const int64_t ones[] = {1, 1, 1, 1};
    if (!dims.d || !have.d || !before.i || dims.rank != 4)
        return (value_id){0};
    /* an open dim becomes the one that is known: what follows reads memory in order */
    expr_id whole[4] = {dims.d[0], dims.d[1], have.rank == 4 ? have.d[2] : dims.d[2], dims.d[3]};
    expr_id zero = ex_const(b->x, 0), lo[4] = {zero, zero, zero, zero}, hi[4] = {zero, zero, zero, zero};
    if (!rule_shaped(r, cache, "past", whole, 4))
        return (value_id){0};
    hi[2] = ex_sub(b->x, ex_max(b->x, total, have.d[2]), have.d[2]);
    cache = b_pad(b, b_slice(b, cache, lo, whole, ones), (value_id){0}, lo, hi, "constant");
    return v_rows_set(b, cache, b_binary(b, OP_ADD, v_iota(b, ELEM_I64, dims.d, 3, 2), v_along(b, before, 0, 3)), rows,
                      2);
}

/* ---- Attention --------------------------------------------------------------------------------------------------- */

struct attention {
    value_id q, k, v; /* 4-d, wide */
    value_id past; /* past key or {0} */
    enum elem wide;
};

/* Bias from the mask operand: bool false is -inf; shorter than the keys means -inf at the end. */
static value_id mask_bias(struct rule *r, const struct attention *a)
{
    struct builder *b = r->b;
    value_id mask = rule_in(r, 3);
    int32_t rank = v_rank(b, mask);
    if (!mask.i || rank < 1)
        return (value_id){0};
    if (v_elem(b, mask) == ELEM_BOOL) {
        value_id zero = b_scalar_f64(b, a->wide, 0), low = b_scalar_f64(b, a->wide, -INFINITY);
        mask = b_select(b, mask, zero, low);
    }
    mask = b_convert(b, mask, a->wide);
    expr_id lo[RANK_MAX], hi[RANK_MAX];
    for (int32_t i = 0; i < rank; i++)
        lo[i] = hi[i] = ex_const(b->x, 0);
    expr_id keys = b_dim(b, a->k, 2), given = b_dim(b, mask, rank - 1);
    hi[rank - 1] = ex_max(b->x, ex_sub(b->x, keys, given), lo[0]);
    mask = b_pad(b, mask, b_scalar_f64(b, a->wide, -INFINITY), lo, hi, "constant");
    b_assert(b, ex_le(b->x, given, keys), EVAL_SHAPE, "the mask has more keys than there are");
    return b_slice_axis(b, mask, rank - 1, lo[0], keys);
}

/* -inf where key j is after query i: queries follow the past, or are the last ones of the lens[batch] keys that
 * count. */
static value_id causal_bias(struct builder *b, const struct attention *a, value_id lens)
{
    expr_id rows = b_dim(b, a->q, 2), dims[2] = {rows, b_dim(b, a->k, 2)};
    value_id row = v_iota(b, ELEM_I64, dims, 2, 0), col = v_iota(b, ELEM_I64, dims, 2, 1), before = {0};
    if (a->past.i)
        before = v_expr(b, ELEM_I64, b_dim(b, a->past, 2));
    else if (lens.i)
        before = b_binary(b, OP_SUB, v_along(b, b_convert(b, lens, ELEM_I64), 0, 4), v_expr(b, ELEM_I64, rows));
    if (before.i)
        row = b_binary(b, OP_ADD, row, before);
    return b_select(b, b_binary(b, OP_LT, row, col), b_scalar_f64(b, a->wide, -INFINITY), b_scalar_f64(b, a->wide, 0));
}

/* -inf for keys past nonpad_kv_seqlen[batch]. */
static value_id length_bias(struct builder *b, const struct attention *a, value_id lens)
{
    expr_id n = b_dim(b, a->k, 2);
    value_id col = v_iota(b, ELEM_I64, &n, 1, 0);
    value_id inside = b_binary(b, OP_LT, col, v_along(b, b_convert(b, lens, ELEM_I64), 0, 4));
    return b_select(b, inside, b_scalar_f64(b, a->wide, 0), b_scalar_f64(b, a->wide, -INFINITY));
}

value_id scores_capped(struct builder *b, value_id x, double cap)
{
    return cap > 0 ? b_binary_f64(b, OP_MUL, b_unary(b, OP_TANH, b_binary_f64(b, OP_DIV, x, cap)), cap) : x;
}

/* Rows without any key are 0 (onnx/onnx#8068); only a mask or a length makes such rows. */
static value_id attention_softmax(struct rule *r, value_id scores, enum elem wide)
{
    static const int64_t last[] = {3};
    struct builder *b = r->b;
    enum elem precision = rule_elem_attr(r, "softmax_precision", wide);
    if (elem_class(precision) != 'F' || elem_size(precision) < 4)
        precision = ELEM_F32;
    scores = b_convert(b, scores, precision);
    bool every = !rule_has(r, 3) && !rule_has(r, 6);
    return b_convert(b, every ? v_softmax(b, scores, last, 1, false) : v_softmax_masked(b, scores, last, 1), wide);
}

static value_id both_biases(struct builder *b, value_id a, value_id c)
{
    return a.i && c.i ? b_binary(b, OP_ADD, a, c) : a.i ? a : c;
}

/* What is added to the scores, or {0}. A causal mask that follows the lengths leaves out what is past them too. */
static value_id attention_bias(struct rule *r, const struct attention *a)
{
    struct builder *b = r->b;
    value_id bias = {0}, lens = rule_has(r, 6) ? rule_in(r, 6) : (value_id){0};
    bool causal = rule_int(r, "is_causal", 0) != 0;
    if (rule_has(r, 3))
        bias = mask_bias(r, a);
    if (causal)
        bias = both_biases(b, bias, causal_bias(b, a, lens));
    if (lens.i && (!causal || a->past.i))
        bias = both_biases(b, bias, length_bias(b, a, lens));
    return bias;
}

static bool attention_read(struct rule *r, struct attention *a)
{
    struct builder *b = r->b;
    value_id in[3];
    for (uint32_t i = 0; i < 3; i++) {
        in[i] = heads_split(r, rule_in(r, i), rule_int(r, i ? "kv_num_heads" : "q_num_heads", 0));
        if (!in[i].i)
            return false;
    }
    for (uint32_t i = 0; i < 2; i++)
        if (rule_has(r, 4 + i)) {
            in[1 + i] = b_concat(b, ARRAY(value_id, rule_in(r, 4 + i), in[1 + i]), 2);
        }
    rule_out(r, 1, in[1]);
    rule_out(r, 2, in[2]);
    *a = (struct attention){v_widen(b, in[0]), v_widen(b, in[1]), v_widen(b, in[2]), rule_in(r, 4), ELEM_NONE};
    a->wide = v_elem(b, a->q);
    return a->k.i && a->v.i;
}

bool rule_attention(struct rule *r)
{
    struct builder *b = r->b;
    struct attention a;
    struct head_groups g;
    int64_t mode = rule_int(r, "qk_matmul_output_mode", 0);
    if (!attention_read(r, &a))
        return false;
    enum elem narrow = v_elem(b, rule_in(r, 0));
    if (!head_groups(r, a.q, a.k, &g))
        return false;
    value_id scores = grouped_product(r, heads_folded(b, &g, a.q), a.k, true), bias, shown;
    scores = scores_capped(b, scores_scaled(r, scores, b_dim(b, a.q, 3)), rule_float(r, "softcap", 0));
    shown = scores;
    bias = attention_bias(r, &a);
    if (bias.i)
        scores = b_binary(b, OP_ADD, scores, heads_folded(b, &g, bias));
    if (mode == 2)
        shown = scores;
    value_id p = attention_softmax(r, scores, a.wide);
    if (mode == 3)
        shown = p;
    if (rule_wants(r, 3))
        rule_out(r, 3, b_convert(b, heads_unfolded(b, &g, shown), narrow));
    value_id y = heads_unfolded(b, &g, grouped_product(r, p, a.v, false));
    if (v_rank(b, rule_in(r, 0)) == 3)
        y = heads_join(b, y);
    return rule_result(r, b_convert(b, y, narrow));
}

/* One tensor through a graph attribute, where there is one. */
static value_id modified(struct rule *r, const char *name, value_id x)
{
    region_id region = rule_region(r, name);
    struct lowered in = lowered_value(x), out;
    if (!region.i || !x.i)
        return x;
    if (!legalize_region(r, region, &in, 1, &out, 1) || out.kind != LOWERED_VALUE)
        return (value_id){0};
    return b_convert(r->b, out.v, v_elem(r->b, x));
}

bool rule_flex_attention(struct rule *r)
{
    struct builder *b = r->b;
    value_id q = rule_in(r, 0), k = rule_in(r, 1), v = rule_in(r, 2);
    static const int64_t last[] = {3};
    if (!q.i || !k.i || !v.i)
        return false;
    if (v_rank(b, q) != 4 || v_rank(b, k) != 4 || v_rank(b, v) != 4)
        return rule_bad(r, "operands must have rank 4");
    enum elem narrow = v_elem(b, q), wide = v_elem(b, v_widen(b, q));
    enum elem precision = rule_elem_attr(r, "softmax_precision", wide);
    value_id scores = grouped_product(r, v_widen(b, q), v_widen(b, k), true);
    scores = scores_scaled(r, scores, b_dim(b, q, 3));
    scores = modified(r, "score_mod", b_convert(b, b_convert(b, scores, narrow), precision));
    value_id p = modified(r, "prob_mod", scores.i ? v_softmax(b, scores, last, 1, false) : scores);
    value_id y = grouped_product(r, v_widen(b, p), b_convert(b, v, v_elem(b, v_widen(b, p))), false);
    return rule_result(r, b_convert(b, y, v_elem(b, v)));
}

/* ---- RotaryEmbedding --------------------------------------------------------------------------------------------- */

/* Caches (rows, d/2), taken at position_ids, or (B, L, d/2) as they stand -> (B, 1, L, d/2). */
static value_id rotary_cache(struct rule *r, uint32_t i)
{
    struct builder *b = r->b;
    value_id cache = rule_in(r, i);
    if (rule_has(r, 3))
        cache = v_gather(b, cache, rule_in(r, 3), 0);
    if (cache.i && v_rank(b, cache) != 3)
        return rule_bad(r, "cache of rank %d", (int)v_rank(b, cache)), (value_id){0};
    return v_widen(b, b_unsqueeze(b, cache, 1));
}

value_id every_second(struct builder *b, value_id x, int64_t first, expr_id n)
{
    static const int64_t steps[] = {1, 1, 1, 2};
    const struct dims d = b_dims(b, x);
    if (!d.d)
        return (value_id){0};
    expr_id zero = ex_const(b->x, 0), starts[4] = {zero, zero, zero, ex_const(b->x, first)},
            sizes[4] = {d.d[0], d.d[1], d.d[2], n};
    return b_slice(b, x, starts, sizes, steps);
}

/* Every second element from `first` on, or one half. */
static value_id rotary_half(struct builder *b, value_id x, int first, bool interleaved, expr_id half)
{
    return interleaved ? every_second(b, x, first, half) : b_slice_axis(b, x, 3, ex_mulc(b->x, half, first), half);
}

value_id heads_turned(struct builder *b, value_id x, value_id cosines, value_id sines, bool interleaved, expr_id turned)
{
    struct exprs *ex = b->x;
    if (!x.i || !cosines.i || !sines.i)
        return (value_id){0};
    expr_id size = b_dim(b, x, 3), zero = ex_const(ex, 0), half = ex_div(ex, turned, ex_const(ex, 2));
    b_assert(b, ex_eq(ex, ex_mulc(ex, half, 2), turned), EVAL_SHAPE,
             "an odd number of elements of each head is rotated");
    b_assert(b, ex_le(ex, turned, size), EVAL_SHAPE, "a head has fewer elements than are rotated");
    b_assert(b, ex_and(ex, ex_eq(ex, b_dim(b, cosines, 3), half), ex_eq(ex, b_dim(b, sines, 3), half)), EVAL_SHAPE,
             "a row of a cache is not half as long as the rotated part of a head");
    value_id head = b_slice_axis(b, x, 3, zero, turned), tail = b_slice_axis(b, x, 3, turned, ex_sub(ex, size, turned));
    value_id x1 = rotary_half(b, head, 0, interleaved, half), x2 = rotary_half(b, head, 1, interleaved, half);
    value_id real = b_binary(b, OP_SUB, b_binary(b, OP_MUL, cosines, x1), b_binary(b, OP_MUL, sines, x2));
    value_id imag = b_binary(b, OP_ADD, b_binary(b, OP_MUL, sines, x1), b_binary(b, OP_MUL, cosines, x2));
    value_id parts[2] = {real, imag}, y;
    if (interleaved) {
        parts[0] = b_unsqueeze(b, real, 4);
        parts[1] = b_unsqueeze(b, imag, 4);
        y = b_reshape(b, b_concat(b, parts, 2, 4), b_dims(b, head).d, 4);
    } else {
        y = b_concat(b, parts, 2, 3);
    }
    return ex_is(ex, ex_sub(ex, size, turned), 0) ? y : b_concat(b, ARRAY(value_id, y, tail), 3);
}

bool rule_rotary_embedding(struct rule *r)
{
    struct builder *b = r->b;
    value_id in = rule_in(r, 0), x = v_widen(b, heads_split(r, in, rule_int(r, "num_heads", 0)));
    value_id cos_cache = rotary_cache(r, 1), sin_cache = rotary_cache(r, 2);
    if (!x.i || !cos_cache.i || !sin_cache.i)
        return false;
    int64_t partial = rule_int(r, "rotary_embedding_dim", 0);
    expr_id turned = partial ? ex_const(b->x, partial) : b_dim(b, x, 3);
    value_id y = heads_turned(b, x, cos_cache, sin_cache, rule_int(r, "interleaved", 0) != 0, turned);
    if (v_rank(b, in) == 3)
        y = heads_join(b, y);
    return rule_result(r, b_convert(b, y, v_elem(b, in)));
}

/* ---- CausalConvWithState ----------------------------------------------------------------------------------------- */

/* A depthwise convolution with a dynamic number of channels: sums of products over windows. */
static value_id depthwise_sums(struct builder *b, value_id padded, value_id w)
{
    expr_id taps = b_dim(b, w, 2), one = ex_const(b->x, 1);
    expr_id dims[2] = {ex_addc(b->x, ex_sub(b->x, b_dim(b, padded, 2), taps), 1), taps},
            across[4] = {one, b_dim(b, w, 0), one, taps};
    int64_t last = 3;
    b_assert(b, ex_eq(b->x, b_dim(b, w, 1), one), EVAL_SHAPE, "each channel has weights for one");
    value_id at = b_binary(b, OP_ADD, v_iota(b, ELEM_I64, dims, 2, 0), v_iota(b, ELEM_I64, dims, 2, 1));
    value_id products = b_binary(b, OP_MUL, b_gather(b, padded, at, 2), b_reshape(b, w, across, 4));
    return b_reduce(b, products, &last, 1, "sum", false);
}

/* (B, T, ...) as (B, ..., T), all dims between as one. */
static value_id channels_first(struct builder *b, value_id x)
{
    static const int64_t perm[] = {0, 2, 1};
    const struct dims d = b_dims(b, x);
    if (!d.d)
        return (value_id){0};
    expr_id flat[3] = {d.d[0], d.d[1], ex_const(b->x, 1)};
    for (int32_t i = 2; i < d.rank; i++)
        flat[2] = ex_mul(b->x, flat[2], d.d[i]);
    return b_transpose(b, b_reshape(b, x, flat, 3), perm);
}

/* The other way: (B, C, T) with dims from 2 on as `like` has them. */
static value_id channels_last(struct builder *b, value_id x, value_id like)
{
    static const int64_t perm[] = {0, 2, 1};
    const struct dims d = b_dims(b, x), l = b_dims(b, like);
    expr_id out[RANK_MAX];
    if (!d.d || !l.d)
        return (value_id){0};
    memcpy(out, l.d, (size_t)l.rank * sizeof *out);
    out[1] = d.d[2];
    return b_reshape(b, b_transpose(b, x, perm), out, l.rank);
}

value_id v_state_last(struct rule *r, int64_t window)
{
    struct builder *b = r->b;
    value_id past = rule_in(r, 3);
    if (!past.i || v_rank(b, past) < 1)
        return (value_id){0};
    b_assert(b, ex_eq(b->x, b_dim(b, past, 0), ex_const(b->x, window)), EVAL_SHAPE,
             "past_state does not have state_window states");
    return b_squeeze(b, b_slice_axis(b, past, 0, ex_const(b->x, window - 1), ex_const(b->x, 1)), 0);
}

/* The state after each of the last `window` of x's T positions, [window, ...]: `keep` positions of past state and x
 * (`padded`), or zeros where that position is not of x. window 0: after the last one. */
static value_id conv_states(struct rule *r, value_id padded, value_id x, expr_id keep, int64_t window, bool last)
{
    struct builder *b = r->b;
    value_id state[STATES_MOST + 1];
    expr_id all = b_dim(b, padded, 2), length = b_dim(b, x, 2), zero = ex_const(b->x, 0), lo[3] = {zero, zero, zero},
            hi[3] = {zero, zero, zero};
    lo[2] = ex_const(b->x, window);
    value_id longer = window ? b_pad(b, padded, (value_id){0}, lo, hi, "constant") : padded;
    for (int64_t k = 0; k < window || k == 0; k++) {
        int64_t before = window ? window - 1 - k : 0; /* positions after that one */
        expr_id from = ex_addc(b->x, ex_sub(b->x, ex_add(b->x, all, lo[2]), keep), -before);
        value_id s = b_slice_axis(b, longer, 2, window ? from : ex_sub(b->x, all, keep), keep);
        if (before)
            s = b_select(b, v_expr(b, ELEM_BOOL, ex_lt(b->x, ex_const(b->x, before), length)), s,
                         b_splat_like(b, s, 0));
        s = last ? channels_last(b, s, rule_in(r, 0)) : s;
        state[k] = window ? b_unsqueeze(b, s, 0) : s;
    }
    return window > 1 ? b_concat(b, state, (uint32_t)window, 0) : state[0];
}

/* Depthwise convolution over past state (else zeros) and input, whose last positions are the state. */
bool rule_causal_conv(struct rule *r)
{
    struct builder *b = r->b;
    value_id in = rule_in(r, 0), w = rule_in(r, 1), padded;
    int64_t channels = 0, one = 1, dilation = rule_int(r, "dilation", 1), window = rule_int(r, "state_window", 0);
    bool last = rule_int(r, "channels_last", 0) != 0;
    int32_t rank = v_rank(b, in);
    if (!in.i || !w.i)
        return false;
    if ((last ? rank < 3 : rank != 3) || v_rank(b, w) != 3)
        return rule_refuse(r, "the operands have ranks %d and %d", (int)rank, (int)v_rank(b, w));
    if (window < 0 || window > STATES_MOST)
        return rule_bad(r, "state_window %lld", (long long)window);
    if (rule_int(r, "ndim", 1) != 1)
        return rule_refuse(r, "ndim %lld: several spatial dims", (long long)rule_int(r, "ndim", 1));
    if (dilation < 1 || dilation > INT32_MAX)
        return rule_bad(r, "dilation %lld", (long long)dilation);
    bool known = ex_is_const(b->x, b_dim(b, w, 0), &channels);
    if (!known && dilation > 1)
        return rule_refuse(r, "dilation with a dynamic number of channels");
    value_id x = last ? channels_first(b, in) : in;
    expr_id zero = ex_const(b->x, 0), keep = ex_mulc(b->x, ex_addc(b->x, b_dim(b, w, 2), -1), dilation);
    if (rule_has(r, 3)) {
        value_id past = window ? v_state_last(r, window) : rule_in(r, 3);
        value_id both[2] = {last ? channels_first(b, past) : past, x};
        if (v_rank(b, both[0]) == 3)
            b_assert(b, ex_eq(b->x, b_dim(b, both[0], 2), keep), EVAL_SHAPE,
                     "past_state does not have (kernel size - 1) * dilation positions");
        padded = b_concat(b, both, 2, 2);
    } else {
        expr_id lo[3] = {zero, zero, keep}, hi[3] = {zero, zero, zero};
        padded = b_pad(b, x, (value_id){0}, lo, hi, "constant");
    }
    if (!padded.i)
        return false;
    value_id operands[2] = {v_widen(b, padded), v_widen(b, w)};
    struct attr attrs[] = {attr_ints("strides", &one, 1), attr_exprs("lo", &zero, 1),
                           attr_exprs("hi", &zero, 1),    attr_ints("dilations", &dilation, 1),
                           attr_ints("xdil", &one, 1),    attr_int("groups", channels)};
    value_id y = known ? b_op(b, OP_CONV, operands, 2, attrs, 6) : depthwise_sums(b, operands[0], operands[1]);
    if (rule_has(r, 2))
        y = b_binary(b, OP_ADD, y, v_along(b, v_widen(b, rule_in(r, 2)), 1, 3));
    if (!rule_str_is(r, "activation", "none", "none"))
        y = b_binary(b, OP_MUL, y, b_unary(b, OP_SIGMOID, y));
    y = b_convert(b, y, v_elem(b, in));
    rule_out(r, 0, last ? channels_last(b, y, in) : y);
    rule_out(r, 1, conv_states(r, padded, x, keep, window, last));
    return y.i != 0;
}
