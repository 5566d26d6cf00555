/* com.microsoft GroupQueryAttention: what onnxruntime-genai's models attend by.
 *
 * Sequence b of the batch has seqlens_k[b] + 1 tokens with the new ones. Those stand after its earlier ones, or at the
 * cache's beginning where the run is a prompt: as many new tokens as there are in all. Present is past with the new
 * rows in their places, as long as the longer of past and total_sequence_length; rows that no token has are as in past,
 * or 0. Query i sees the keys up to its own place, of a local window the last ones. Softcap comes before the bias. A
 * quantized cache holds x / scale rounded, by bytes or by nibbles with 8 added; the new rows, too, are attended to as
 * the cache has them.
 *
 * A cache of a window (sliding_window_cache) has C rows, at least as many as the window, and holds the last tokens from
 * row 0 on. When a token more would not fit, as many are forgotten as leave the window: multiples of C - window + 1, a
 * number that depends on how many tokens there have been, not on the runs they came in. What it held and the new rows
 * stand in a buffer of their own, by which queries see all keys of their windows; present is the end of that.
 */
#include "passes/legalize/nn/attention.h"
#include "passes/legalize/nn/window.h"

#include <math.h>

enum {
    IN_QUERY,
    IN_KEY,
    IN_VALUE,
    IN_PAST_KEY,
    IN_PAST_VALUE,
    IN_LENGTHS,
    IN_TOTAL,
    IN_COS,
    IN_SIN,
    IN_POSITIONS,
    IN_BIAS,
    IN_SINK,
    IN_KEY_SCALE,
    IN_VALUE_SCALE,
    IN_QUERY_NORM,
    IN_KEY_NORM
};

struct grouped {
    value_id q, k, v; /* (B, heads, L, d), as the file has them */
    value_id place; /* i64 [B]: of the first new token in its sequence */
    value_id before; /* i64 [B]: tokens of the cache before the new ones */
    value_id lengths; /* i64 [B]: tokens of the cache with the new ones */
    value_id forgotten,
        dropped; /* i64 [B]: tokens that a cache of a window has no more, and those that go now; or {0} */
    expr_id rows, total, size; /* new tokens, of the longest sequence, head size */
    expr_id prompt; /* is all of the longest sequence new? */
    int64_t hq, hkv;
    struct head_groups groups;
};

/* One of the three parts of a packed query, or an operand of its own, by heads. */
static value_id part_of(struct rule *r, const struct grouped *a, uint32_t i)
{
    struct builder *b = r->b;
    int64_t heads[3] = {a->hq, a->hkv, a->hkv}, first = 0;
    if (rule_has(r, IN_KEY))
        return heads_split(r, rule_in(r, i), heads[i]);
    for (uint32_t k = 0; k < i; k++)
        first += heads[k];
    value_id cut = b_slice_axis(b, rule_in(r, 0), 2, ex_mulc(b->x, a->size, first), ex_mulc(b->x, a->size, heads[i]));
    return heads_split(r, cut, heads[i]);
}

/* x / sqrt(mean(x^2) + epsilon) * weight over each head. */
static value_id head_normed(struct rule *r, value_id x, uint32_t weight)
{
    struct builder *b = r->b;
    static const int64_t last[] = {3};
    if (!rule_has(r, weight))
        return x;
    enum elem e = v_elem(b, x);
    x = v_widen(b, x);
    value_id square = b_mean(b, b_binary(b, OP_MUL, x, x), last, 1, true);
    value_id root = b_unary(b, OP_SQRT, b_binary_f64(b, OP_ADD, square, rule_float(r, "qk_norm_epsilon", 1e-6)));
    value_id y = b_binary(b, OP_MUL, b_binary(b, OP_DIV, x, root), v_channels(b, v_widen(b, rule_in(r, weight)), x, 3));
    return b_convert(b, y, e);
}

/* Places of the new tokens, i64 (B, L): position_ids, of which a prompt reads the first one only, or after the earlier
 * ones. */
static value_id places(struct rule *r, const struct grouped *a)
{
    struct builder *b = r->b;
    expr_id dims[2] = {b_dim(b, a->q, 0), a->rows}, none[2] = {ex_const(b->x, 0), ex_const(b->x, 0)},
            one[2] = {ex_const(b->x, 1), ex_const(b->x, 1)};
    static const int64_t steps[] = {1, 1};
    value_id count = b_binary(b, OP_ADD, v_iota(b, ELEM_I64, dims, 2, 1), v_along(b, a->place, 0, 2));
    if (!rule_has(r, IN_POSITIONS))
        return count;
    value_id given = b_broadcast(b, rule_in(r, IN_POSITIONS), dims, 2);
    value_id first = b_binary(b, OP_ADD, v_iota(b, ELEM_I64, dims, 2, 1), b_slice(b, given, none, one, steps));
    return b_select(b, v_expr(b, ELEM_BOOL, a->prompt), first, given);
}

static bool rotate(struct rule *r, struct grouped *a)
{
    struct builder *b = r->b;
    value_id at = places(r, a), cache[2], *heads[2] = {&a->q, &a->k};
    bool interleaved = rule_int(r, "rotary_interleaved", 0) != 0;
    if (!rule_has(r, IN_COS) || !rule_has(r, IN_SIN))
        return rule_bad(r, "do_rotary without cos_cache and sin_cache");
    for (uint32_t i = 0; i < 2; i++)
        cache[i] = v_widen(b, b_unsqueeze(b, v_gather(b, rule_in(r, IN_COS + i), at, 0), 1));
    if (!cache[0].i || !cache[1].i)
        return false;
    expr_id turned = ex_mulc(b->x, b_dim(b, cache[0], 3), 2);
    for (uint32_t i = 0; i < 2; i++)
        *heads[i] = b_convert(b, heads_turned(b, v_widen(b, *heads[i]), cache[0], cache[1], interleaved, turned),
                              v_elem(b, *heads[i]));
    return a->q.i && a->k.i;
}

/* ---- quantized caches -------------------------------------------------------------------------------------------- */

/* The scale of past i, for (B, Hkv, L, d): one number, or one for each channel; {0}: the cache holds what it is
 * given. */
static value_id cache_scale(struct rule *r, const struct grouped *a, uint32_t i)
{
    struct builder *b = r->b;
    const char *kind = i == IN_PAST_KEY ? "k_quant_type" : "v_quant_type";
    uint32_t operand = i == IN_PAST_KEY ? IN_KEY_SCALE : IN_VALUE_SCALE;
    if (rule_str_is(r, kind, "NONE", "NONE"))
        return (value_id){0};
    if (rule_str_is(r, kind, "NONE", "PER_TENSOR"))
        return v_scalar(b, rule_in(r, operand));
    expr_id dims[4] = {ex_const(b->x, 1), ex_const(b->x, a->hkv), ex_const(b->x, 1), a->size};
    return b_reshape(b, rule_in(r, operand), dims, 4);
}

/* New rows as the cache holds them, of element type e. */
static value_id packed(struct builder *b, const struct grouped *a, value_id x, value_id scale, enum elem e)
{
    if (!scale.i)
        return x;
    x = b_binary(b, OP_DIV, v_widen(b, x), scale);
    if (e == ELEM_F8E4M3FN)
        return b_convert(b, x, e);
    x = b_unary(b, OP_ROUND, x);
    if (e == ELEM_I8)
        return b_convert(b, x, e);
    expr_id half = ex_div(b->x, a->size, ex_const(b->x, 2));
    x = b_convert(b, b_binary_f64(b, OP_ADD, b_clamp(b, x, -8, 7), 8), ELEM_U8);
    value_id high = b_binary_f64(b, OP_MUL, every_second(b, x, 1, half), 16);
    return b_binary(b, OP_OR, every_second(b, x, 0, half), high);
}

static value_id unpacked(struct builder *b, const struct grouped *a, value_id x, value_id scale)
{
    enum elem e = v_elem(b, x);
    if (!scale.i || !x.i)
        return v_widen(b, x);
    if (e == ELEM_U8)
        x = b_binary_f64(b, OP_SUB, b_convert(b, v_unpacked(b, x, 4, a->size), ELEM_F32), 8);
    return b_binary(b, OP_MUL, b_convert(b, x, ELEM_F32), scale);
}

/* Do the element type of the caches and what the node says of them go together? */
static bool cache_served(struct rule *r)
{
    static const char *const kinds[] = {"k_quant_type", "v_quant_type"};
    int64_t bits = rule_int(r, "kv_cache_bit_width", 0);
    for (uint32_t i = 0; i < 2; i++) {
        enum elem e = v_elem(r->b, rule_in(r, IN_PAST_KEY + i));
        bool none = rule_str_is(r, kinds[i], "NONE", "NONE");
        if (!none && !rule_str_is(r, kinds[i], "NONE", "PER_TENSOR") &&
            !rule_str_is(r, kinds[i], "NONE", "PER_CHANNEL"))
            return rule_bad(r, "%s \"%.40s\"", kinds[i], rule_str(r, kinds[i], ""));
        if (!none && (!rule_has(r, IN_PAST_KEY) || !rule_has(r, IN_KEY_SCALE + i)))
            return rule_refuse(r, "the quantized cache has no past or no scales");
        if (none ? e != v_elem(r->b, rule_in(r, 0)) && e != ELEM_NONE
                 : e != ELEM_F8E4M3FN && !(e == ELEM_I8 && (bits == 8 || bits == 0)) && !(e == ELEM_U8 && bits == 4))
            return rule_refuse(r, "the cache is of %s, %s, %lld bits", elem_name(e),
                               none ? "not quantized" : "quantized", (long long)bits);
    }
    return true;
}

/* ---- caches of a window ------------------------------------------------------------------------------------------ */

/* Of so many tokens, how many a cache of `rows` rows has forgotten, `step` at a time. */
static value_id forgotten_of(struct builder *b, value_id tokens, expr_id rows, expr_id step)
{
    value_id more = b_binary_f64(b, OP_MAX, b_binary(b, OP_SUB, tokens, v_expr(b, ELEM_I64, rows)), 0);
    more = b_binary(b, OP_ADD, more, v_expr(b, ELEM_I64, ex_addc(b->x, step, -1)));
    value_id by = v_expr(b, ELEM_I64, step);
    return b_binary(b, OP_MUL, b_binary(b, OP_DIV, more, by), by);
}

/* From here on places are counted from the first token that the cache has. */
static bool window_read(struct rule *r, struct grouped *a)
{
    struct builder *b = r->b;
    int64_t window = rule_int(r, "local_window_size", -1);
    if (!rule_int(r, "sliding_window_cache", 0))
        return true;
    if (window < 1 || !rule_int(r, "causal", 1) || !rule_has(r, IN_PAST_KEY))
        return rule_bad(r, "sliding_window_cache without past_key, local_window_size or causal");
    if (rule_wants(r, 3))
        return rule_refuse(r, "output_qk with sliding_window_cache");
    const struct dims past = b_dims(b, rule_in(r, IN_PAST_KEY)), same = b_dims(b, rule_in(r, IN_PAST_VALUE));
    if (!past.d || !same.d || past.rank != 4 || same.rank != 4)
        return past.d && same.d && rule_bad(r, "past of rank %d", (int)past.rank);
    expr_id rows = past.d[2], step = ex_addc(b->x, rows, 1 - window);
    b_assert(b, ex_le(b->x, ex_const(b->x, window), rows), EVAL_SHAPE, "the cache has fewer rows than the window");
    b_assert(b, ex_eq(b->x, rows, same.d[2]), EVAL_SHAPE, "past_key and past_value differ in their rows");
    if (rule_has(r, IN_BIAS)) { /* read from each sequence's first held token on, so nothing else compares the width */
        const struct dims bias = b_dims(b, rule_in(r, IN_BIAS));
        if (!bias.d || bias.rank != 4)
            return bias.d && rule_bad(r, "attention_bias of rank %d", (int)bias.rank);
        b_assert(b, ex_eq(b->x, bias.d[3], a->total), EVAL_SHAPE,
                 "attention_bias does not have total_sequence_length columns");
    }
    step = ex_max(b->x, step, ex_const(b->x, 1));
    a->forgotten = forgotten_of(b, a->before, rows, step);
    a->dropped = b_binary(b, OP_SUB, forgotten_of(b, a->lengths, rows, step), a->forgotten);
    a->before = b_binary(b, OP_SUB, a->before, a->forgotten);
    a->lengths = b_binary(b, OP_SUB, a->lengths, a->forgotten);
    a->total = ex_add(b->x, rows, a->rows);
    return a->dropped.i && a->before.i;
}

/* x from element first[b] of `axis` on, for each sequence b: n elements, repeating the last where there are no more. x
 * is of rank 4 and of 1 or B sequences. */
static value_id from_each(struct builder *b, value_id x, value_id first, int32_t axis, expr_id n)
{
    int64_t perm[4] = {0, axis}, back[4] = {0};
    const struct dims d = b_dims(b, x);
    const struct attr attrs[] = {attr_int("batch", 1), attr_int("clamp", 1)};
    if (!d.d || !first.i)
        return (value_id){0};
    expr_id all[4] = {b_dim(b, first, 0), d.d[1], d.d[2], d.d[3]}, at[3] = {all[0], n, ex_const(b->x, 1)};
    for (int32_t i = 1, to = 2; i < 4; i++)
        if (i != axis)
            perm[to++] = i;
    for (int64_t i = 0; i < 4; i++)
        back[perm[i]] = i;
    value_id in[2] = {b_transpose(b, b_broadcast(b, x, all, 4), perm),
                      b_binary(b, OP_ADD, v_iota(b, ELEM_I64, at, 3, 1), v_along(b, first, 0, 3))};
    return b_transpose(b, b_op(b, OP_GATHER_ND, in, 2, attrs, 2), back);
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

/* Past i with the new rows as it holds them. */
static value_id updated(struct rule *r, const struct grouped *a, uint32_t i)
{
    struct builder *b = r->b;
    value_id past = rule_in(r, i), fresh = i == IN_PAST_KEY ? a->k : a->v;
    value_id rows = packed(b, a, fresh, cache_scale(r, a, i), v_elem(b, past));
    return cache_updated(r, past, rows, a->before, a->total);
}

static value_id present(struct rule *r, const struct grouped *a, uint32_t i, value_id updated)
{
    if (!a->dropped.i || !updated.i)
        return updated;
    return from_each(r->b, updated, a->dropped, 2, b_dim(r->b, rule_in(r, i), 2));
}

/* May a query see a key: bool, for scores of folded heads. Places are folded before they are compared, by row and not
 * by key. */
static value_id sight(struct rule *r, const struct grouped *a)
{
    struct builder *b = r->b;
    int64_t window = rule_int(r, "local_window_size", -1);
    expr_id line[4] = {ex_const(b->x, 1), ex_const(b->x, 1), a->rows, ex_const(b->x, 1)};
    value_id key = v_iota(b, ELEM_I64, &a->total, 1, 0);
    if (!rule_int(r, "causal", 1))
        return b_binary(b, OP_LT, key, v_along(b, a->lengths, 0, 4));
    value_id row = b_binary(b, OP_ADD, v_iota(b, ELEM_I64, line, 4, 2), v_along(b, a->before, 0, 4));
    row = heads_folded(b, &a->groups, row);
    value_id seen = b_binary(b, OP_LE, key, row);
    if (window > 0)
        seen = b_binary(b, OP_AND, seen, b_binary(b, OP_LT, b_binary_f64(b, OP_SUB, row, (double)window), key));
    return seen;
}

static value_id probabilities(struct rule *r, const struct grouped *a, value_id scores)
{
    struct builder *b = r->b;
    static const int64_t last[] = {3};
    if (rule_has(r, IN_SINK))
        return v_softmax_sink(b, scores, last,
                              heads_folded(b, &a->groups, v_along(b, v_widen(b, rule_in(r, IN_SINK)), 1, 4)));
    return rule_int(r, "smooth_softmax", 0) == 1
               ? v_softmax_sink(b, scores, last, b_scalar_f64(b, v_elem(b, scores), 0))
               : v_softmax(b, scores, last, 1, false);
}

/* Queries over the first `total` keys. */
static value_id attended(struct rule *r, const struct grouped *a, value_id k, value_id v)
{
    struct builder *b = r->b;
    expr_id zero = ex_const(b->x, 0);
    enum elem narrow = v_elem(b, a->q);
    value_id q = heads_folded(b, &a->groups, v_widen(b, a->q));
    k = unpacked(b, a, b_slice_axis(b, k, 2, zero, a->total), cache_scale(r, a, IN_PAST_KEY));
    v = unpacked(b, a, b_slice_axis(b, v, 2, zero, a->total), cache_scale(r, a, IN_PAST_VALUE));
    value_id scores = scores_scaled(r, grouped_product(r, q, k, true), a->size);
    scores = scores_capped(b, scores, rule_float(r, "softcap", 0));
    if (rule_has(r, IN_BIAS)) {
        value_id bias = v_widen(b, rule_in(r, IN_BIAS));
        bias = a->forgotten.i ? from_each(b, bias, a->forgotten, 3, a->total) : bias;
        scores = b_binary(b, OP_ADD, scores, heads_folded(b, &a->groups, bias));
    }
    if (!scores.i)
        return scores;
    scores = b_select(b, sight(r, a), scores, b_scalar_f64(b, v_elem(b, scores), -INFINITY));
    value_id p = probabilities(r, a, scores);
    if (rule_wants(r, 3))
        rule_out(r, 3,
                 b_convert(b, heads_unfolded(b, &a->groups, rule_int(r, "qk_output", 0) == 1 ? scores : p), narrow));
    return b_convert(b, heads_join(b, heads_unfolded(b, &a->groups, grouped_product(r, p, v, false))), narrow);
}

static bool grouped_read(struct rule *r, struct grouped *a)
{
    struct builder *b = r->b;
    *a = (struct grouped){.hq = rule_int(r, "num_heads", 0), .hkv = rule_int(r, "kv_num_heads", 0)};
    const struct dims dims = b_dims(b, rule_in(r, IN_QUERY));
    if (!dims.d || !rule_in(r, IN_LENGTHS).i || !rule_in(r, IN_TOTAL).i)
        return false;
    if (dims.rank != 3 || a->hq < 1 || a->hkv < 1 || a->hq > INT32_MAX || a->hkv > INT32_MAX || a->hq % a->hkv)
        return rule_bad(r, "query of rank %d with %lld heads, %lld of keys", (int)dims.rank, (long long)a->hq,
                        (long long)a->hkv);
    if (rule_has(r, IN_KEY) != rule_has(r, IN_VALUE) || rule_has(r, IN_PAST_KEY) != rule_has(r, IN_PAST_VALUE))
        return rule_bad(r, "one of key and value, or of past_key and past_value, is missing");
    int64_t heads = rule_has(r, IN_KEY) ? a->hq : a->hq + 2 * a->hkv;
    a->rows = dims.d[1];
    a->size = ex_div(b->x, dims.d[2], ex_const(b->x, heads));
    b_assert(b, ex_eq(b->x, ex_mulc(b->x, a->size, heads), dims.d[2]), EVAL_SHAPE,
             "the heads do not divide the width of the query");
    value_id *parts[3] = {&a->q, &a->k, &a->v};
    for (uint32_t i = 0; i < 3; i++)
        if (!(*parts[i] = part_of(r, a, i)).i)
            return false;
    if (!head_groups(r, a->q, a->k, &a->groups))
        return false;
    b_assert(b, ex_eq(b->x, b_dim(b, a->k, 2), a->rows), EVAL_SHAPE, "there are not as many new keys as queries");
    value_id one = b_reshape(b, rule_in(r, IN_TOTAL), (expr_id[]){ex_const(b->x, 1)}, 1);
    a->total = rule_has(r, IN_PAST_KEY) ? b_elem(b, one, 0, INT32_MAX) : a->rows;
    b_assert(b, ex_eq(b->x, b_count(b, rule_in(r, IN_LENGTHS)), dims.d[0]), EVAL_SHAPE,
             "there is not a length for each sequence");
    value_id lengths = b_reshape(b, rule_in(r, IN_LENGTHS), dims.d, 1);
    a->lengths = b_binary_f64(b, OP_ADD, b_convert(b, lengths, ELEM_I64), 1);
    a->prompt = ex_eq(b->x, a->rows, a->total);
    value_id behind = v_expr(b, ELEM_I64, ex_not(b->x, a->prompt));
    a->before = b_binary(b, OP_MUL, b_binary(b, OP_SUB, a->lengths, v_expr(b, ELEM_I64, a->rows)), behind);
    a->place = a->before;
    return a->total.i && a->before.i && window_read(r, a);
}

bool rule_group_query_attention(struct rule *r)
{
    struct grouped a;
    if (!cache_served(r) || !grouped_read(r, &a))
        return false;
    a.q = head_normed(r, a.q, IN_QUERY_NORM);
    a.k = head_normed(r, a.k, IN_KEY_NORM);
    if (rule_int(r, "do_rotary", 0) == 1 && !rotate(r, &a))
        return false;
    value_id k = a.k, v = a.v;
    if (rule_has(r, IN_PAST_KEY)) {
        k = updated(r, &a, IN_PAST_KEY);
        v = updated(r, &a, IN_PAST_VALUE);
    }
    rule_out(r, 1, present(r, &a, IN_PAST_KEY, k));
    rule_out(r, 2, present(r, &a, IN_PAST_VALUE, v));
    return rule_result(r, attended(r, &a, k, v));
}
