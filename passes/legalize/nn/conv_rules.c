/* Conv and ConvTranspose, of floats or of what DequantizeLinear gives.
 *
 * ConvTranspose is a few ordinary convolutions whose results alternate (phases.c). If that does not do, it is `conv`
 * with input dilation over the flipped weights with exchanged channel dims: views, so that nothing is copied and no
 * zero is stored. Output sizes and pads follow the text of ConvTranspose-11/22, in every version; a total of derived
 * pads is halved towards minus infinity, so that a negative one adds rows at the end.
 */
#include "passes/legalize/nn/window.h"

/* f16 sums are rounded once, after the bias. */
static bool conv_finish(struct rule *r, value_id y, enum elem e)
{
    struct builder *b = r->b;
    if (rule_has(r, 2))
        y = b_binary(b, OP_ADD, y, v_channels(b, b_convert(b, v_normal(b, rule_in(r, 2)), v_elem(b, y)), y, 1));
    return rule_result(r, b_convert(b, y, e));
}

bool rule_conv(struct rule *r)
{
    value_id x = rule_in(r, 0), w = v_normal(r->b, rule_in(r, 1));
    enum elem e = v_elem(r->b, x);
    value_id exact;
    if (rule_conv_dequantized(r, &exact))
        return exact.i && conv_finish(r, exact, e);
    if (rule_has(r, 2)) {
        x = v_widen(r->b, x);
        w = v_widen(r->b, w);
    }
    value_id y = rule_conv_core(r, x, w, ELEM_NONE);
    return y.i && conv_finish(r, y, e);
}

/* ---- ConvTranspose ----------------------------------------------------------------------------------------------- */

/* (C, M/g, k...) -> (M, C/g, k... reversed), all by views. */
static value_id weights_turn(struct builder *b, value_id w, int64_t groups, int32_t spatial)
{
    const struct dims d = b_dims(b, w);
    expr_id g = ex_const(b->x, groups), apart[RANK_MAX], out[RANK_MAX];
    int64_t perm[RANK_MAX];
    if (!d.d)
        return (value_id){0};
    apart[0] = g;
    apart[1] = ex_div(b->x, d.d[0], g);
    apart[2] = d.d[1];
    out[0] = ex_mulc(b->x, d.d[1], groups);
    out[1] = apart[1];
    for (int32_t i = 0; i < spatial; i++) {
        apart[3 + i] = out[2 + i] = d.d[2 + i];
        perm[3 + i] = 3 + i;
    }
    perm[0] = 0;
    perm[1] = 2;
    perm[2] = 1;
    value_id v = b_reshape(b, b_transpose(b, b_reshape(b, w, apart, d.rank + 1), perm), out, d.rank);
    for (int32_t i = 0; i < spatial; i++)
        v = v_flip(b, v, 2 + i);
    return v;
}

struct deconv {
    struct spatial s;
    int64_t output_padding[RANK_MAX];
    const int64_t *output_shape; /* NULL: not given; spatial dims only */
};

static bool deconv_read(struct rule *r, int32_t n, struct deconv *d)
{
    uint32_t given;
    if (!spatial_read(r, n, &d->s) || !rule_ints_or(r, "output_padding", n, 0, 0, d->output_padding))
        return false;
    d->output_shape = rule_ints(r, "output_shape", &given);
    if (given == (uint32_t)n + 2) { /* some exporters give N and C too */
        d->output_shape += 2;
        given = (uint32_t)n;
    }
    if (given && given != (uint32_t)n)
        return rule_bad(r, "%u entries of output_shape for %d spatial dimensions", given, (int)n);
    return true;
}

/* Turns the pads of dim i into those of the dilated convolution. */
static void deconv_pads(struct rule *r, struct deconv *d, int32_t i, expr_id size, expr_id reach)
{
    struct spatial *s = &d->s;
    int64_t stride = s->strides[i];
    bool same = s->pad == PAD_SAME_UPPER || s->pad == PAD_SAME_LOWER;
    expr_id begin = s->lo[i], end = s->hi[i];
    if (d->output_shape || same) {
        expr_id whole = ex_add(r->b->x, ex_mulc(r->b->x, ex_addc(r->b->x, size, -1), stride),
                               ex_addc(r->b->x, reach, d->output_padding[i]));
        expr_id want = d->output_shape ? ex_const(r->b->x, d->output_shape[i]) : ex_mulc(r->b->x, size, stride);
        expr_id total = ex_sub(r->b->x, whole, want), half = ex_div(r->b->x, total, ex_const(r->b->x, 2));
        bool upper = s->pad ==
                     PAD_SAME_UPPER; /* in every version: the formula of version 1 contradicts its own auto_pad */
        begin = upper ? half : ex_sub(r->b->x, total, half);
        end = ex_sub(r->b->x, total, begin);
    }
    expr_id edge = ex_addc(r->b->x, reach, -1);
    s->lo[i] = ex_sub(r->b->x, edge, begin);
    s->hi[i] = ex_addc(r->b->x, ex_sub(r->b->x, edge, end), d->output_padding[i]);
}

bool rule_conv_transpose(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0), w = v_normal(b, rule_in(r, 1));
    const struct dims dims = b_dims(b, x), wdims = b_dims(b, w);
    int64_t groups = rule_int(r, "group", 1), xdil[RANK_MAX], channels;
    struct deconv d;
    if (!dims.d || !wdims.d)
        return false;
    if (dims.rank < 3 || dims.rank != wdims.rank)
        return rule_bad(r, "input of rank %d with weights of rank %d", (int)dims.rank, (int)wdims.rank);
    if (groups < 1 || (ex_is_const(b->x, wdims.d[0], &channels) && channels % groups))
        return rule_bad(r, "input channels in %lld groups", (long long)groups);
    if (!deconv_read(r, dims.rank - 2, &d) || !conv_kernel_check(r, wdims.d, d.s.n))
        return false;
    for (int32_t i = 0; i < d.s.n; i++) {
        expr_id reach = spatial_reach(b->x, &d.s, i, wdims.d[2 + i]);
        deconv_pads(r, &d, i, dims.d[2 + i], reach);
        expr_id apart = ex_addc(b->x, ex_mulc(b->x, ex_addc(b->x, dims.d[2 + i], -1), d.s.strides[i]), 1);
        spatial_warn_empty(r, i, dims.d[2 + i], spatial_room(b->x, &d.s, i, apart, reach), 1);
    }
    enum elem e = v_elem(b, x);
    value_id y;
    x = v_widen(b, x);
    w = v_widen(b, w);
    if (conv_by_phases(b, x, w, &d.s, groups, &y))
        return y.i && conv_finish(r, y, e);
    for (int32_t i = 0; i < d.s.n; i++) {
        xdil[i] = d.s.strides[i];
        d.s.strides[i] = 1;
    }
    y = conv_op(b, x, weights_turn(b, w, groups, d.s.n), &d.s, xdil, groups, ELEM_NONE);
    return y.i && conv_finish(r, y, e);
}
