/* Convolutions as core operators: what Conv, ConvTranspose and their quantized forms share. */
#include "passes/legalize/nn/window.h"

#include <string.h>

bool rule_ints_or(struct rule *r, const char *name, int32_t n, int64_t absent, int64_t least, int64_t *out)
{
    uint32_t given;
    const int64_t *list = rule_ints(r, name, &given);
    if (given && given != (uint32_t)n)
        return rule_bad(r, "%u %s for %d spatial dimensions", given, name, (int)n);
    for (int32_t i = 0; i < n; i++) {
        out[i] = given ? list[i] : absent;
        if (out[i] < least)
            return rule_bad(r, "%s holds %lld", name, (long long)out[i]);
    }
    return true;
}

bool spatial_read(struct rule *r, int32_t n, struct spatial *s)
{
    uint32_t n_pads;
    const int64_t *pads = rule_ints(r, "pads", &n_pads);
    const char *mode = rule_str(r, "auto_pad", "NOTSET");
    static const char *const modes[] = {"NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"};
    s->n = n;
    s->pad = PAD_COUNT;
    for (unsigned i = 0; i < COUNT_OF(modes); i++)
        if (strcmp(mode, modes[i]) == 0 || (i == 0 && !*mode))
            s->pad = (enum auto_pad)i;
    if (s->pad == PAD_COUNT)
        return rule_bad(r, "auto_pad is \"%.40s\"", mode);
    if (n < 1 || n > RANK_MAX - 2)
        return rule_bad(r, "%d spatial dimensions", (int)n);
    if (!rule_ints_or(r, "strides", n, 1, 1, s->strides) || !rule_ints_or(r, "dilations", n, 1, 1, s->dilations))
        return false;
    if (n_pads && n_pads != 2 * (uint32_t)n)
        return rule_bad(r, "%u pads for %d spatial dimensions", n_pads, (int)n);
    for (int32_t i = 0; i < n; i++) {
        int64_t lo = n_pads ? pads[i] : 0, hi = n_pads ? pads[n + i] : 0;
        if (lo < 0 || hi < 0)
            return rule_bad(r, "negative pads");
        bool use = s->pad == PAD_NOTSET;
        s->lo[i] = ex_const(b_exprs(r->b), use ? lo : 0);
        s->hi[i] = ex_const(b_exprs(r->b), use ? hi : 0);
    }
    return true;
}

void spatial_same(struct exprs *ex, struct spatial *s, int32_t i, expr_id size, expr_id reach)
{
    if (s->pad != PAD_SAME_UPPER && s->pad != PAD_SAME_LOWER)
        return;
    expr_id stride = ex_const(ex, s->strides[i]), out = ex_ceildiv(ex, size, stride);
    expr_id need = ex_sub(ex, ex_add(ex, ex_mulc(ex, ex_addc(ex, out, -1), s->strides[i]), reach), size);
    expr_id total = ex_max(ex, need, ex_const(ex, 0)), half = ex_div(ex, total, ex_const(ex, 2));
    expr_id rest = ex_sub(ex, total, half);
    s->lo[i] = s->pad == PAD_SAME_UPPER ? half : rest;
    s->hi[i] = s->pad == PAD_SAME_UPPER ? rest : half;
}

expr_id spatial_reach(struct exprs *ex, const struct spatial *s, int32_t i, expr_id kernel)
{
    return ex_addc(ex, ex_mulc(ex, ex_addc(ex, kernel, -1), s->dilations[i]), 1);
}

expr_id spatial_room(struct exprs *ex, const struct spatial *s, int32_t i, expr_id size, expr_id reach)
{
    return ex_sub(ex, ex_add(ex, size, ex_add(ex, s->lo[i], s->hi[i])), reach);
}

void spatial_warn_empty(struct rule *r, int32_t i, expr_id size, expr_id room, int64_t stride)
{
    struct exprs *ex = b_exprs(r->b);
    int64_t n, left;
    if (ex_is_const(ex, size, &n) && n > 0 && ex_is_const(ex, room, &left) && left < 0 && left >= -stride)
        warn_at(r->b->g->ctx, r->node->src, "empty",
                "dimension %d, of %lld elements, becomes empty: the window is larger by %lld "
                "than it is with its padding",
                (int)i + 2, (long long)n, (long long)-left);
}

bool conv_kernel_check(struct rule *r, const expr_id *w, int32_t n)
{
    uint32_t given;
    const int64_t *kernel = rule_ints(r, "kernel_shape", &given);
    if (given && given != (uint32_t)n)
        return rule_bad(r, "kernel_shape has %u entries for %d spatial dimensions", given, (int)n);
    for (uint32_t i = 0; i < given; i++)
        if (ex_cmp_eq(b_exprs(r->b), w[2 + i], ex_const(b_exprs(r->b), kernel[i])) == FALSE_)
            return rule_bad(r, "kernel_shape differs from the weights");
    return true;
}

/* Does tap t of dim i read an element of the operand for some result? */
static bool tap_reads(int64_t t, int64_t size, int64_t lo, int64_t results, int64_t stride, int64_t dilation)
{
    int64_t at = t * dilation - lo; /* of the first result; o results on: o * stride more */
    int64_t o = at < 0 ? (-at + stride - 1) / stride : 0;
    return o < results && at + o * stride < size;
}

/* Cuts off the first and last taps of dim i that read nothing but padding: of a small map, or with a large dilation. */
static value_id taps_crop(struct builder *b, value_id x, value_id w, struct spatial *s, int32_t i)
{
    enum { EXTENT_MOST = 1 << 24 };
    struct exprs *ex = b_exprs(b);
    int32_t rank;
    int64_t size, taps, lo, hi, first = 0, stride = s->strides[i], dilation = s->dilations[i];
    if (!ex_is_const(ex, b_dim(b, x, 2 + i), &size) || !ex_is_const(ex, b_dims(b, w, &rank)[2 + i], &taps) ||
        !ex_is_const(ex, s->lo[i], &lo) || !ex_is_const(ex, s->hi[i], &hi) || size < 1 || taps < 1 || lo < 0 ||
        hi < 0 || size > EXTENT_MOST || taps > EXTENT_MOST || lo > EXTENT_MOST || hi > EXTENT_MOST ||
        dilation > EXTENT_MOST || stride > EXTENT_MOST)
        return w;
    int64_t reach = (taps - 1) * dilation + 1, last = taps - 1;
    if (size + lo + hi < reach)
        return w;
    int64_t results = (size + lo + hi - reach) / stride + 1;
    while (first < last && (first + 1) * dilation <= lo && !tap_reads(first, size, lo, results, stride, dilation))
        first++;
    while (last > first && (taps - last) * dilation <= hi && !tap_reads(last, size, lo, results, stride, dilation))
        last--;
    if (first == 0 && last == taps - 1)
        return w;
    s->lo[i] = ex_const(ex, lo - first * dilation);
    s->hi[i] = ex_const(ex, hi - (taps - 1 - last) * dilation);
    s->dilations[i] = first == last ? 1 : dilation;
    return b_slice_axis(b, w, 2 + i, ex_const(ex, first), ex_const(ex, last - first + 1));
}

value_id conv_op(struct builder *b, value_id x, value_id w, const struct spatial *spatial, const int64_t *xdil,
                 int64_t groups, enum elem acc)
{
    struct spatial s = *spatial;
    for (int32_t i = 0; i < s.n && x.i && w.i; i++)
        w = xdil[i] == 1 ? taps_crop(b, x, w, &s, i) : w;
    value_id in[2] = {x, w};
    uint32_t n = (uint32_t)s.n;
    struct attr attrs[7] = {
        attr_ints("strides", s.strides, n),
        attr_exprs("lo", s.lo, n),
        attr_exprs("hi", s.hi, n),
        attr_ints("dilations", s.dilations, n),
        attr_ints("xdil", xdil, n),
        attr_int("groups", groups),
        attr_elem("acc", acc),
    };
    return b_op(b, OP_CONV, in, 2, attrs, acc == ELEM_NONE ? 6 : 7);
}

value_id conv_build(struct builder *b, value_id x, value_id w, const struct spatial *s, int64_t groups, enum elem acc)
{
    int64_t ones[RANK_MAX];
    for (int32_t i = 0; i < s->n; i++)
        ones[i] = 1;
    return conv_op(b, x, w, s, ones, groups, acc);
}

bool rule_conv_spatial(struct rule *r, value_id x, value_id w, struct spatial *s)
{
    struct exprs *ex = b_exprs(r->b);
    int32_t rank, rank_w;
    const expr_id *dims = b_dims(r->b, x, &rank), *wdims = b_dims(r->b, w, &rank_w);
    if (!dims || !wdims)
        return false;
    if (rank < 3 || rank != rank_w)
        return rule_bad(r, "input of rank %d with weights of rank %d", (int)rank, (int)rank_w);
    if (!spatial_read(r, rank - 2, s) || !conv_kernel_check(r, wdims, s->n))
        return false;
    for (int32_t i = 0; i < s->n; i++) {
        expr_id reach = spatial_reach(ex, s, i, wdims[2 + i]);
        spatial_same(ex, s, i, dims[2 + i], reach);
        spatial_warn_empty(r, i, dims[2 + i], spatial_room(ex, s, i, dims[2 + i], reach), s->strides[i]);
    }
    return true;
}

value_id rule_conv_core(struct rule *r, value_id x, value_id w, enum elem acc)
{
    struct spatial s;
    if (!rule_conv_spatial(r, x, w, &s))
        return (value_id){0};
    return conv_build(r->b, x, w, &s, rule_int(r, "group", 1), acc);
}
