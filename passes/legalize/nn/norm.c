/* Normalisations and Dropout.
 *
 * BatchNormalization for inference becomes x * scale + shift with scale and shift lazy constants, so that it folds
 * into a neighbouring convolution. Everything computes in f32 at least and rounds once.
 */
#include "passes/legalize/legalize.h"

value_id v_normalized(struct builder *b, value_id x, const int64_t *axes, uint32_t n, double eps, bool centre,
                      value_id *mean, value_id *inv)
{
    *mean = b_mean(b, x, axes, n, true);
    value_id centred = centre ? b_binary(b, OP_SUB, x, *mean) : x;
    value_id var = b_mean(b, b_binary(b, OP_MUL, centred, centred), axes, n, true);
    value_id dev = b_unary(b, OP_SQRT, b_binary_f64(b, OP_ADD, var, eps));
    *inv = b_binary(b, OP_DIV, b_splat_like(b, dev, 1), dev);
    return b_binary(b, OP_MUL, centred, *inv);
}

value_id v_scaled(struct builder *b, value_id y, value_id scale, value_id bias)
{
    if (scale.i)
        y = b_binary(b, OP_MUL, y, b_convert(b, scale, v_elem(b, y)));
    return bias.i ? b_binary(b, OP_ADD, y, b_convert(b, bias, v_elem(b, y))) : y;
}

/* ---- BatchNormalization ------------------------------------------------------------------------------------------ */

struct stats {
    value_id scale, bias, mean, var;
};

static value_id batch_apply(struct builder *b, value_id x, const struct stats *s, double eps)
{
    int32_t axis = v_rank(b, x) > 1 ? 1 : 0;
    value_id dev = b_unary(b, OP_SQRT, b_binary_f64(b, OP_ADD, s->var, eps));
    value_id scale = b_binary(b, OP_DIV, s->scale, dev);
    value_id shift = b_binary(b, OP_SUB, s->bias, b_binary(b, OP_MUL, s->mean, scale));
    value_id y = b_binary(b, OP_MUL, x, v_channels(b, scale, x, axis));
    return b_binary(b, OP_ADD, y, v_channels(b, shift, x, axis));
}

/* Statistics of this batch; running ones = running * momentum + batch * (1 - momentum). Versions 7 to 13 may want those
 * of the batch too: its mean, and what ONNX Runtime gives as the saved variance, 1 / sqrt(variance + epsilon). */
static bool batch_train(struct rule *r, value_id x, struct stats *s, double eps, enum elem e)
{
    struct builder *b = r->b;
    double momentum = rule_float(r, "momentum", 0.9);
    int32_t rank = v_rank(b, x);
    int64_t axes[RANK_MAX];
    uint32_t n = 0;
    value_id running_mean = s->mean, running_var = s->var, centre;
    for (int32_t i = 0; i < rank; i++)
        if (i != 1)
            axes[n++] = i;
    s->mean = b_mean(b, x, axes, n, false);
    centre = b_binary(b, OP_SUB, x, v_along(b, s->mean, 1, rank));
    s->var = b_mean(b, b_binary(b, OP_MUL, centre, centre), axes, n, false);
    rule_out(r, 0, b_convert(b, batch_apply(b, x, s, eps), e));
    value_id mean = b_binary(b, OP_ADD, v_affine(b, running_mean, momentum, 0), v_affine(b, s->mean, 1 - momentum, 0));
    value_id var = b_binary(b, OP_ADD, v_affine(b, running_var, momentum, 0), v_affine(b, s->var, 1 - momentum, 0));
    enum elem em = v_elem(b, rule_in(r, 3));
    rule_out(r, 1, b_convert(b, mean, em));
    rule_out(r, 2, b_convert(b, var, em));
    if (rule_wants(r, 3))
        rule_out(r, 3, b_convert(b, s->mean, em));
    value_id dev = b_unary(b, OP_SQRT, b_binary_f64(b, OP_ADD, s->var, eps));
    if (rule_wants(r, 4))
        rule_out(r, 4, b_convert(b, b_binary(b, OP_DIV, b_splat_like(b, dev, 1), dev), em));
    return true;
}

/* Before version 14, whoever wants more than the result trains; before version 7 the lack of is_test says it. */
static bool batch_trains(const struct rule *r)
{
    bool more = false;
    for (uint32_t i = 1; i < r->n_out; i++)
        more |= rule_wants(r, i);
    return r->version >= 14 ? rule_int(r, "training_mode", 0) != 0 : more;
}

/* spatial = 0: all four are of x's shape without the batch. */
static value_id batch_by_place(struct rule *r, value_id x, const struct stats *s, double eps)
{
    struct builder *b = r->b;
    const value_id all[] = {s->scale, s->bias, s->mean, s->var};
    for (uint32_t i = 0; i < COUNT_OF(all); i++)
        if (v_rank(b, all[i]) + 1 != v_rank(b, x))
            return rule_bad(r, "operand %u of rank %d, spatial = 0", i + 1, (int)v_rank(b, all[i])), (value_id){0};
    value_id dev = b_unary(b, OP_SQRT, b_binary_f64(b, OP_ADD, s->var, eps));
    value_id y = b_binary(b, OP_DIV, b_binary(b, OP_SUB, x, s->mean), dev);
    return b_binary(b, OP_ADD, b_binary(b, OP_MUL, y, s->scale), s->bias);
}

bool rule_batch_norm(struct rule *r)
{
    struct builder *b = r->b;
    value_id in = rule_in(r, 0), x = v_widen(b, in);
    double eps = rule_float(r, "epsilon", 1e-5);
    struct stats s;
    value_id *all[] = {&s.scale, &s.bias, &s.mean, &s.var};
    for (uint32_t i = 0; i < 4; i++)
        *all[i] = b_convert(b, i < 3 ? v_normal(b, rule_in(r, 1 + i)) : rule_in(r, 4), v_elem(b, x));
    if (!x.i || !s.scale.i || !s.bias.i || !s.mean.i || !s.var.i)
        return false;
    if (r->version < 9 && !rule_int(r, "spatial", 1))
        return batch_trains(r)
                   ? rule_refuse(
                         r,
                         "it is in training mode with statistics per activation (spatial = 0): export the model in evaluation mode")
                   : rule_result(r, b_convert(b, batch_by_place(r, x, &s, eps), v_elem(b, in)));
    if (r->version >= 7 && batch_trains(r)) {
        warn_at(b->g->ctx, r->node->src, "training",
                "normalises by the statistics of the batch at hand, as in training; networks "
                "are meant to be exported in evaluation mode");
        return v_rank(b, x) < 2 ? rule_bad(r, "input of rank %d", (int)v_rank(b, x))
                                : batch_train(r, x, &s, eps, v_elem(b, in));
    }
    for (uint32_t i = 1; i < r->n_out; i++)
        if (rule_wants(r, i))
            return rule_refuse(r, "version %d is in training mode: export the model in evaluation mode",
                               (int)r->version);
    if (r->version < 7 && !rule_int(r, "is_test", 0))
        return rule_refuse(r, "version %d is in training mode (is_test = 0): export the model in evaluation mode",
                           (int)r->version);
    return rule_result(r, b_convert(b, batch_apply(b, x, &s, eps), v_elem(b, in)));
}

/* ---- over parts of the shape ------------------------------------------------------------------------------------- */

static uint32_t axes_from(int64_t *axes, int32_t from, int32_t rank)
{
    for (int32_t i = from; i < rank; i++)
        axes[i - from] = i;
    return (uint32_t)(rank - from);
}

value_id v_groups(struct builder *b, value_id x, int64_t groups)
{
    const struct dims dims = b_dims(b, x);
    expr_id all[RANK_MAX] = {dims.d[0], ex_const(b->x, groups), ex_div(b->x, dims.d[1], ex_const(b->x, groups))};
    expr_id extent = all[2];
    for (int32_t d = 2; d < dims.rank; d++) {
        all[d + 1] = dims.d[d];
        extent = ex_mul(b->x, extent, dims.d[d]);
    }
    bool one = ex_is_const(b->x, extent, NULL);
    all[2] = one ? extent : all[2];
    return b_reshape(b, x, all, one ? 3 : dims.rank + 1);
}

/* Exporters write GroupNormalization as this operator on a Reshape. */
static value_id apart(struct builder *b, value_id x)
{
    const struct node *n = v_defining(b, x, OP_RESHAPE);
    const struct dims flat = b_dims(b, x), from = b_dims(b, n ? n->in[0] : (value_id){0});
    int64_t groups, channels;
    if (!from.d || flat.rank != 3 || from.rank < 3 || from.rank >= RANK_MAX || ex_is_const(b->x, flat.d[2], NULL) ||
        flat.d[0].i != from.d[0].i || !ex_is_const(b->x, flat.d[1], &groups) ||
        !ex_is_const(b->x, from.d[1], &channels) || groups < 1 || channels % groups)
        return x;
    return v_groups(b, n->in[0], groups);
}

bool rule_instance_norm(struct rule *r)
{
    struct builder *b = r->b;
    value_id in = rule_in(r, 0), x = v_widen(b, apart(b, in)), mean, inv;
    int32_t rank = v_rank(b, x), rank_in = v_rank(b, in);
    int64_t axes[RANK_MAX];
    if (!x.i || rank < 3)
        return x.i ? rule_bad(r, "input of rank %d", (int)rank) : false;
    value_id y = v_normalized(b, x, axes, axes_from(axes, 2, rank), rule_float(r, "epsilon", 1e-5), true, &mean, &inv);
    y = v_scaled(b, y, v_channels(b, rule_in(r, 1), y, 1), v_channels(b, rule_in(r, 2), y, 1));
    if (rank != rank_in)
        y = b_reshape(b, y, b_dims(b, in).d, rank_in);
    return rule_result(r, b_convert(b, y, v_elem(b, in)));
}

/* Version 18 says a scale and a bias for each group; exporters wrote one for each channel, as version 21 has them. */
static bool scale_by_channel(struct rule *r, expr_id channels, int64_t groups)
{
    int64_t n, c;
    value_id scale = rule_in(r, 1);
    return v_rank(r->b, scale) == 1 && ex_is_const(r->b->x, b_dim(r->b, scale, 0), &n) &&
           ex_is_const(r->b->x, channels, &c) && n == c && n != groups;
}

/* Version 18: scale and bias per group; 21: per channel. */
bool rule_group_norm(struct rule *r)
{
    struct builder *b = r->b;
    value_id in = rule_in(r, 0), x = v_widen(b, in), mean, inv;
    const struct dims d = b_dims(b, x);
    int64_t groups = rule_int(r, "num_groups", 0), axes[RANK_MAX];
    if (!d.d || d.rank < 2 || d.rank >= RANK_MAX || groups < 1)
        return d.d ? rule_bad(r, "input of rank %d in %lld groups", (int)d.rank, (long long)groups) : false;
    value_id y = v_groups(b, x, groups);
    y = v_normalized(b, y, axes, axes_from(axes, 2, v_rank(b, y)), rule_float(r, "epsilon", 1e-5), true, &mean, &inv);
    bool by_group = r->version < 21 && !scale_by_channel(r, d.d[1], groups);
    if (by_group)
        y = v_scaled(b, y, v_channels(b, rule_in(r, 1), y, 1), v_channels(b, rule_in(r, 2), y, 1));
    y = b_reshape(b, y, d.d, d.rank);
    if (!by_group)
        y = v_scaled(b, y, v_channels(b, rule_in(r, 1), y, 1), v_channels(b, rule_in(r, 2), y, 1));
    return rule_result(r, b_convert(b, y, v_elem(b, in)));
}

bool rule_layer_norm(struct rule *r)
{
    struct builder *b = r->b;
    value_id in = rule_in(r, 0), x = v_widen(b, in), mean, inv;
    int32_t rank = v_rank(b, x), axis;
    int64_t axes[RANK_MAX];
    if (!x.i || !rule_axis(r, rule_int(r, "axis", -1), rank, &axis))
        return false;
    value_id y = v_normalized(b, x, axes, axes_from(axes, axis, rank), rule_float(r, "epsilon", 1e-5), true, &mean,
                              &inv);
    y = v_scaled(b, y, rule_in(r, 1), rule_in(r, 2));
    enum elem stash = rule_elem_attr(r, "stash_type", ELEM_F32);
    rule_out(r, 0, b_convert(b, y, v_elem(b, in)));
    rule_out(r, 1, b_convert(b, mean, stash));
    rule_out(r, 2, b_convert(b, inv, stash));
    return true;
}

/* x over the root of its mean square along the axes, scaled. */
static value_id rms_normalized(struct builder *b, value_id x, const int64_t *axes, uint32_t n, double eps,
                               value_id scale)
{
    value_id square = b_mean(b, b_binary(b, OP_MUL, x, x), axes, n, true);
    value_id rms = b_unary(b, OP_SQRT, b_binary_f64(b, OP_ADD, square, eps));
    return v_scaled(b, b_binary(b, OP_DIV, x, rms), scale, (value_id){0});
}

/* com.microsoft SkipLayerNormalization (param 0) and SkipSimplifiedLayerNormalization (param 1): operands x, skip,
 * gamma, [beta], bias; the last result is the sum before normalising. */
bool rule_skip_layer_norm(struct rule *r)
{
    struct builder *b = r->b;
    value_id in = rule_in(r, 0), mean = {0}, inv = {0};
    value_id x = b_binary(b, OP_ADD, v_widen(b, in), v_widen(b, rule_in(r, 1)));
    uint32_t bias = r->param ? 3 : 4;
    if (rule_has(r, bias))
        x = b_binary(b, OP_ADD, x, v_widen(b, rule_in(r, bias)));
    if (!x.i)
        return false;
    int64_t axis = v_rank(b, x) - 1;
    double eps = rule_float(r, "epsilon", 1e-12);
    value_id y;
    if (r->param) {
        y = rms_normalized(b, x, &axis, 1, eps, rule_in(r, 2));
    } else {
        y = v_normalized(b, x, &axis, 1, eps, true, &mean, &inv);
        y = v_scaled(b, y, rule_in(r, 2), rule_in(r, 3));
        rule_out(r, 1, mean);
        rule_out(r, 2, inv);
    }
    if (r->param && (rule_wants(r, 1) || rule_wants(r, 2)))
        return rule_refuse(r, "the results mean and inv_std_var are used");
    rule_out(r, 0, b_convert(b, y, v_elem(b, in)));
    rule_out(r, 3, b_convert(b, x, v_elem(b, in)));
    return true;
}

/* com.microsoft: rows of tables of words, places and segments, added up and normalised; the mask's count of words; the
 * sum. */
bool rule_embed_layer_norm(struct rule *r)
{
    struct builder *b = r->b;
    value_id words = rule_in(r, 0), place = rule_in(r, 3), mean, inv;
    if (!words.i || !place.i)
        return false;
    if (v_rank(b, words) != 2 || v_rank(b, place) != 2)
        return rule_bad(r, "ids of rank %d, places of rank %d", (int)v_rank(b, words), (int)v_rank(b, place));
    expr_id rows = b_dim(b, words, 1), batch = b_dim(b, words, 0);
    enum elem narrow = v_elem(b, place);
    place = rule_has(r, 8) ? v_gather(b, place, rule_in(r, 8), 0) : b_slice_axis(b, place, 0, ex_const(b->x, 0), rows);
    value_id x = b_binary(b, OP_ADD, v_widen(b, v_gather(b, rule_in(r, 2), words, 0)), v_widen(b, place));
    if (rule_has(r, 1) && rule_has(r, 4))
        x = b_binary(b, OP_ADD, x, v_widen(b, v_gather(b, rule_in(r, 4), rule_in(r, 1), 0)));
    if (!x.i)
        return false;
    int64_t last = 2, one = 1;
    value_id y = v_normalized(b, x, &last, 1, rule_float(r, "epsilon", 1e-12), true, &mean, &inv);
    rule_out(r, 0, b_convert(b, v_scaled(b, y, rule_in(r, 5), rule_in(r, 6)), narrow));
    if (rule_wants(r, 1))
        rule_out(r, 1,
                 rule_has(r, 7) ? b_reduce(b, rule_in(r, 7), &one, 1, "sum", false)
                                : b_splat_f64(b, ELEM_I32, 0, &batch, 1));
    rule_out(r, 2, b_convert(b, x, narrow));
    return r->out[0].kind == LOWERED_VALUE && r->out[0].v.i;
}

bool rule_rms_norm(struct rule *r)
{
    struct builder *b = r->b;
    value_id in = rule_in(r, 0), x = v_widen(b, in);
    int32_t rank = v_rank(b, x), axis;
    int64_t axes[RANK_MAX];
    if (!x.i || !rule_axis(r, rule_int(r, "axis", -1), rank, &axis))
        return false;
    uint32_t n = axes_from(axes, axis, rank);
    value_id y = rms_normalized(b, x, axes, n, rule_float(r, "epsilon", 1e-5), rule_in(r, 1));
    return rule_result(r, b_convert(b, y, v_elem(b, in)));
}

/* com.microsoft: each group of as many elements as there are scales, normalised, times the activation of its gates. */
bool rule_gated_rms_norm(struct rule *r)
{
    struct builder *b = r->b;
    value_id in = rule_in(r, 0), scale = rule_in(r, 1), gate = v_widen(b, rule_in(r, 2));
    const struct dims dims = b_dims(b, in);
    bool sigmoid = rule_str_is(r, "activation", "silu", "sigmoid");
    if (!in.i || !scale.i || !gate.i)
        return false;
    if (!sigmoid && !rule_str_is(r, "activation", "silu", "silu") && !rule_str_is(r, "activation", "silu", "swish"))
        return rule_bad(r, "activation '%s'", rule_str(r, "activation", "silu"));
    if (dims.rank < 1 || dims.rank >= RANK_MAX || v_rank(b, scale) != 1)
        return rule_bad(r, "x of rank %d, scale of rank %d", (int)dims.rank, (int)v_rank(b, scale));
    expr_id groups[RANK_MAX], size = b_dim(b, scale, 0);
    int64_t last = dims.rank;
    for (int32_t i = 0; i < dims.rank; i++)
        groups[i] = dims.d[i];
    groups[last - 1] = ex_div(b->x, dims.d[last - 1], ex_max(b->x, size, ex_const(b->x, 1)));
    groups[last] = size;
    value_id y = b_reshape(b, v_widen(b, in), groups, dims.rank + 1);
    y = rms_normalized(b, y, &last, 1, rule_float(r, "epsilon", 1e-5), scale);
    y = b_reshape(b, y, dims.d, dims.rank);
    value_id open = b_unary(b, OP_SIGMOID, gate);
    y = b_binary(b, OP_MUL, y, sigmoid ? open : b_binary(b, OP_MUL, gate, open));
    return rule_result(r, b_convert(b, y, v_elem(b, in)));
}

/* com.microsoft: x + y * gate, a gate for each row, product and sum rounded to their type. */
bool rule_gated_add(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0), y = rule_in(r, 1), gate = rule_in(r, 2);
    if (rule_has(r, 3))
        return rule_refuse(r, "gate_weight: only ONNX Runtime's CUDA provider has it");
    if (!x.i || !y.i || !gate.i)
        return false;
    int32_t rank = v_rank(b, x);
    if (rank < 1 || v_rank(b, y) != rank || v_rank(b, gate) != rank)
        return rule_bad(r, "x of rank %d, y of %d, gate of %d", (int)rank, (int)v_rank(b, y), (int)v_rank(b, gate));
    for (int32_t i = 0; i < rank; i++) {
        expr_id dim = b_dim(b, x, i), rows = i < rank - 1 ? dim : ex_const(b->x, 1);
        b_assert(b, ex_and(b->x, ex_eq(b->x, b_dim(b, y, i), dim), ex_eq(b->x, b_dim(b, gate, i), rows)), EVAL_SHAPE,
                 "y is not of x's shape, or the gate not one for each row");
    }
    return rule_result(r, b_binary(b, OP_ADD, x, b_binary(b, OP_MUL, y, gate)));
}

/* (x - mean) / (deviation + 1e-9) over axes, default all but channels. */
bool rule_mean_variance_norm(struct rule *r)
{
    struct builder *b = r->b;
    value_id in = rule_in(r, 0), x = v_widen(b, in);
    static const int64_t usual[] = {0, 2, 3};
    int64_t sorted[RANK_MAX];
    uint32_t n;
    int32_t rank = v_rank(b, x);
    const int64_t *axes = rule_ints(r, "axes", &n);
    if (!x.i)
        return false;
    if (!axes) {
        axes = usual;
        n = 3;
    }
    if (!rule_axes_sorted(r, axes, n, rank, sorted))
        return false;
    value_id centred = b_binary(b, OP_SUB, x, b_mean(b, x, sorted, n, true));
    value_id var = b_mean(b, b_binary(b, OP_MUL, centred, centred), sorted, n, true);
    value_id dev = b_binary_f64(b, OP_ADD, b_unary(b, OP_SQRT, var), 1e-9);
    return rule_result(r, b_convert(b, b_binary(b, OP_DIV, centred, dev), v_elem(b, in)));
}

/* x divided by its p-norm along axis; a zero norm gives zero. */
bool rule_lp_norm(struct rule *r)
{
    struct builder *b = r->b;
    value_id in = rule_in(r, 0), x = v_widen(b, in);
    int32_t axis;
    int64_t p = rule_int(r, "p", 2);
    if (!x.i || !rule_axis(r, rule_int(r, "axis", -1), v_rank(b, x), &axis))
        return false;
    if (p != 1 && p != 2)
        return rule_bad(r, "p is %lld", (long long)p);
    int64_t at = axis;
    value_id norm = p == 1 ? b_reduce(b, b_unary(b, OP_ABS, x), &at, 1, "sum", true)
                           : b_unary(b, OP_SQRT, b_reduce(b, b_binary(b, OP_MUL, x, x), &at, 1, "sum", true));
    value_id zero = b_splat_like(b, x, 0);
    value_id is_zero = b_binary(b, OP_EQ, norm, b_splat_like(b, norm, 0));
    value_id y = b_select(b, is_zero, zero, b_binary(b, OP_DIV, x, norm));
    return rule_result(r, b_convert(b, y, v_elem(b, in)));
}

/* ---- Dropout ----------------------------------------------------------------------------------------------------- */

static value_id mask_ones(struct builder *b, value_id x, enum elem e)
{
    const struct dims dims = b_dims(b, x);
    return dims.d ? b_splat_f64(b, e, 1, dims.d, dims.rank) : (value_id){0};
}

/* Versions below 12: inference only; 1 and 6 with is_test = 0 would train. */
bool rule_dropout_old(struct rule *r)
{
    value_id x = rule_in(r, 0);
    if (r->version < 7 && !rule_int(r, "is_test", 0))
        return rule_refuse(r, "version %d is in training mode (is_test = 0): export the model in evaluation mode",
                           (int)r->version);
    rule_out(r, 0, x);
    if (rule_wants(r, 1))
        rule_out(r, 1, mask_ones(r->b, x, r->version < 10 ? v_elem(r->b, x) : ELEM_BOOL));
    return true;
}

/* Training keeps where u >= ratio, u uniform in [0, 1) from the seed, and scales by 1 / (1 - ratio). */
bool rule_dropout(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0);
    int64_t training = 0;
    double ratio = 0.5;
    const struct dims dims = b_dims(b, x);
    if (!dims.d)
        return false;
    value_id flag = rule_in(r, 2), rate = rule_in(r, 1);
    bool train_known = !rule_has(r, 2) || v_known_i64(b, flag, 0, &training);
    bool rate_known = !rule_has(r, 1) || v_known_f64(b, rate, &ratio);
    if ((train_known && !training) || (rate_known && ratio == 0)) {
        rule_out(r, 0, x);
        if (rule_wants(r, 1))
            rule_out(r, 1, mask_ones(b, x, ELEM_BOOL));
        return true;
    }
    if (train_known)
        warn_at(b->g->ctx, r->node->src, "training",
                "drops elements at random, as in training; networks are meant to be exported in "
                "evaluation mode");
    value_id u = rule_random_units(r, dims.d, dims.rank, (double)rule_int(r, "seed", 0));
    value_id p = rule_has(r, 1) ? b_convert(b, v_scalar(b, rate), ELEM_F64) : b_scalar_f64(b, ELEM_F64, 0.5);
    value_id keep = b_unary(b, OP_NOT, b_binary(b, OP_LT, u, p));
    enum elem e = v_elem(b, x);
    value_id wide = v_widen(b, x);
    value_id scale = b_convert(
        b, b_binary(b, OP_DIV, b_scalar_f64(b, ELEM_F64, 1), b_binary(b, OP_SUB, b_scalar_f64(b, ELEM_F64, 1), p)),
        v_elem(b, wide));
    value_id kept = b_binary(b, OP_MUL, b_binary(b, OP_MUL, b_convert(b, keep, v_elem(b, wide)), wide), scale);
    value_id y = b_convert(b, kept, e);
    if (!train_known) {
        value_id on = v_scalar(b, flag);
        y = b_select(b, on, y, x);
        keep = b_binary(b, OP_OR, keep, b_unary(b, OP_NOT, on));
    }
    rule_out(r, 0, y);
    rule_out(r, 1, keep);
    return true;
}
