/* Convolutions as core operators: what Conv, ConvTranspose and their quantized forms share. */
#include "passes/legalize/nn/window.h"

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
        s->lo[i] = ex_const(r->b->x, use ? lo : 0);
        s->hi[i] = ex_const(r->b->x, use ? hi : 0);
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
    int64_t n, left;
    if (ex_is_const(r->b->x, size, &n) && n > 0 && ex_is_const(r->b->x, room, &left) && left < 0 && left >= -stride)
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
        if (ex_cmp_eq(r->b->x, w[2 + i], ex_const(r->b->x, kernel[i])) == FALSE_)
            return rule_bad(r, "kernel_shape differs from the weights");
    return true;
}

static value_id conv_core(struct builder *b, value_id x, value_id w, const struct spatial *s, const int64_t *xdil,
                          int64_t groups, enum elem acc)
{
    value_id in[2] = {x, w};
    uint32_t n = (uint32_t)s->n;
    struct attr attrs[7] = {
        attr_ints("strides", s->strides, n),
        attr_exprs("lo", s->lo, n),
        attr_exprs("hi", s->hi, n),
        attr_ints("dilations", s->dilations, n),
        attr_ints("xdil", xdil, n),
        attr_int("groups", groups),
        attr_elem("acc", acc),
    };
    return b_op(b, OP_CONV, in, 2, attrs, acc == ELEM_NONE ? 6 : 7);
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
    int64_t size, taps, lo, hi, first = 0, stride = s->strides[i], dilation = s->dilations[i];
    if (!ex_is_const(b->x, b_dim(b, x, 2 + i), &size) || !ex_is_const(b->x, b_dims(b, w).d[2 + i], &taps) ||
        !ex_is_const(b->x, s->lo[i], &lo) || !ex_is_const(b->x, s->hi[i], &hi) || size < 1 || taps < 1 || lo < 0 ||
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
    s->lo[i] = ex_const(b->x, lo - first * dilation);
    s->hi[i] = ex_const(b->x, hi - (taps - 1 - last) * dilation);
    s->dilations[i] = first == last ? 1 : dilation;
    return b_slice_axis(b, w, 2 + i, ex_const(b->x, first), ex_const(b->x, last - first + 1));
}

enum { FAR_TAPS_MOST = 25 };

/* Results first .. first + n - 1 of a dim read elements of the map by tap t. */
struct tap_range {
    int64_t first, n;
};

/* n results of a dim that read elements of the map by the same taps: tap, tap + 1, ... */
struct tap_piece {
    int64_t n, tap, taps;
};

/* A convolution whose taps lie so far apart that most of what they read is padding. */
struct far_taps {
    int32_t n; /* spatial dims */
    int64_t taps[RANK_MAX], size[RANK_MAX], lo[RANK_MAX], results[RANK_MAX], dilation[RANK_MAX];
    struct tap_piece piece[RANK_MAX]; /* at hand */
};

static struct tap_range tap_range(const struct far_taps *f, int32_t i, int64_t t)
{
    int64_t before = f->lo[i] - t * f->dilation[i], first = before > 0 ? before : 0, end = f->size[i] + before;
    end = end < f->results[i] ? end : f->results[i];
    return (struct tap_range){first, end > first ? end - first : 0};
}

/* Steps 1, sizes known, taps a third of the map or more apart, and at most two of three points that they are computed
 * at lie inside of the map. */
static bool taps_are_far(struct builder *b, value_id x, value_id w, const struct spatial *s, const int64_t *xdil,
                         int64_t groups, struct far_taps *f)
{
    enum { INSIDE_OF_3 = 2, DILATION_LEAST = 4 };
    const struct dims wd = b_dims(b, w);
    double inside = 1, all = 1;
    int64_t taps = 1, hi;
    f->n = s->n;
    for (int32_t i = 0; i < s->n; i++) {
        if (!ex_is_const(b->x, b_dim(b, x, 2 + i), &f->size[i]) || !ex_is_const(b->x, wd.d[2 + i], &f->taps[i]) ||
            !ex_is_const(b->x, s->lo[i], &f->lo[i]) || !ex_is_const(b->x, s->hi[i], &hi) || f->lo[i] < 0 || hi < 0 ||
            s->strides[i] != 1 || xdil[i] != 1 || f->taps[i] > FAR_TAPS_MOST || f->lo[i] > INT32_MAX ||
            hi > INT32_MAX || f->size[i] > INT32_MAX || s->dilations[i] > INT32_MAX)
            return false;
        f->dilation[i] = s->dilations[i];
        f->results[i] = f->size[i] + f->lo[i] + hi - (f->taps[i] - 1) * f->dilation[i];
        taps *= f->taps[i];
        if (f->results[i] < 1 || taps > FAR_TAPS_MOST ||
            (f->taps[i] > 1 && (f->dilation[i] < DILATION_LEAST || 3 * f->dilation[i] < f->size[i])))
            return false;
        int64_t sum = 0;
        for (int64_t t = 0; t < f->taps[i]; t++)
            sum += tap_range(f, i, t).n;
        inside *= (double)sum;
        all *= (double)(f->taps[i] * f->results[i]);
    }
    return groups == 1 && taps > 1 && 3 * inside <= INSIDE_OF_3 * all;
}

/* The piece that begins with result `first`. */
static struct tap_piece piece_at(const struct far_taps *f, int32_t i, int64_t first)
{
    int64_t end = f->results[i];
    struct tap_piece p = {0};
    for (int64_t t = 0; t < f->taps[i]; t++) {
        struct tap_range r = tap_range(f, i, t);
        if (first >= r.first && first < r.first + r.n && p.taps++ == 0)
            p.tap = t;
        if (r.n > 0 && first < r.first && r.first < end)
            end = r.first;
        if (first < r.first + r.n && r.first + r.n < end)
            end = r.first + r.n;
    }
    p.n = end - first;
    return p;
}

/* The piece f->piece: a convolution without padding by the taps that lie inside of the map, or zeros if none does. */
static value_id piece_of(struct builder *b, value_id x, value_id w, const struct far_taps *f, enum elem acc)
{
    struct spatial s = {.n = f->n};
    int64_t ones[RANK_MAX];
    expr_id starts[RANK_MAX], taps[RANK_MAX], dims[RANK_MAX] = {b_dim(b, x, 0), b_dim(b, w, 0)};
    bool reads = true;
    for (int32_t d = 0; d < 2; d++) {
        starts[d] = ex_const(b->x, 0);
        taps[d] = b_dim(b, w, d);
        ones[d] = 1;
    }
    for (int32_t d = 0; d < f->n; d++) {
        const struct tap_piece *p = &f->piece[d];
        reads &= p->taps > 0;
        ones[2 + d] = s.strides[d] = 1;
        s.dilations[d] = p->taps > 1 ? f->dilation[d] : 1;
        s.lo[d] = s.hi[d] = ex_const(b->x, 0);
        starts[2 + d] = ex_const(b->x, p->tap);
        taps[2 + d] = ex_const(b->x, p->taps);
        dims[2 + d] = ex_const(b->x, p->n);
    }
    if (!reads)
        return b_splat_f64(b, acc == ELEM_NONE ? v_elem(b, x) : acc, 0, dims, 2 + f->n);
    return conv_core(b, x, b_slice(b, w, starts, taps, ones), &s, ones, 1, acc);
}

/* The results as pieces along dims i, i + 1, ..., of what dims before read of x. */
static value_id taps_apart(struct builder *b, value_id x, value_id w, struct far_taps *f, int32_t i, enum elem acc)
{
    value_id part[2 * FAR_TAPS_MOST + 1];
    uint32_t n = 0;
    if (i == f->n)
        return piece_of(b, x, w, f, acc);
    for (int64_t first = 0; first < f->results[i]; first += f->piece[i].n) {
        const struct tap_piece p = f->piece[i] = piece_at(f, i, first);
        int64_t from = first + p.tap * f->dilation[i] - f->lo[i], reach = p.n + (p.taps - 1) * f->dilation[i];
        value_id read = p.taps ? b_slice_axis(b, x, 2 + i, ex_const(b->x, from), ex_const(b->x, reach)) : x;
        part[n++] = taps_apart(b, read, w, f, i + 1, acc);
    }
    return n == 1 ? part[0] : b_concat(b, part, n, 2 + i);
}

/* Zeros around the spatial dims of the operand are padding of the convolution, where its window reaches over them. */
static value_id pads_take(struct builder *b, value_id x, value_id w, struct spatial *s, const int64_t *xdil)
{
    const struct node *pad = value_node(b->g, x);
    uint32_t n;
    if (!pad || pad->op != OP_PAD || pad->n_in != 1 || strcmp(node_str(pad, "mode", "constant"), "constant") != 0)
        return x;
    const expr_id *lo = node_exprs(pad, "lo", &n), *hi = node_exprs(pad, "hi", &n);
    struct spatial all = *s;
    for (int32_t i = 0; i < 2; i++)
        if (!ex_is(b->x, lo[i], 0) || !ex_is(b->x, hi[i], 0))
            return x;
    for (int32_t i = 0; i < s->n; i++) {
        int64_t reach = ex_lo(b->x, spatial_reach(b->x, s, i, b_dim(b, w, 2 + i)));
        all.lo[i] = ex_add(b->x, s->lo[i], lo[2 + i]);
        all.hi[i] = ex_add(b->x, s->hi[i], hi[2 + i]);
        if (xdil[i] != 1 || ex_lo(b->x, lo[2 + i]) < 0 || ex_lo(b->x, hi[2 + i]) < 0 ||
            ex_hi(b->x, all.lo[i]) >= reach || ex_hi(b->x, all.hi[i]) >= reach)
            return x;
    }
    *s = all;
    return pad->in[0];
}

value_id conv_op(struct builder *b, value_id x, value_id w, const struct spatial *spatial, const int64_t *xdil,
                 int64_t groups, enum elem acc)
{
    struct spatial s = *spatial;
    struct far_taps f;
    if (x.i && w.i)
        x = pads_take(b, x, w, &s, xdil);
    for (int32_t i = 0; i < s.n && x.i && w.i; i++)
        w = xdil[i] == 1 ? taps_crop(b, x, w, &s, i) : w;
    if (x.i && w.i && taps_are_far(b, x, w, &s, xdil, groups, &f))
        return taps_apart(b, x, w, &f, 0, acc);
    return conv_core(b, x, w, &s, xdil, groups, acc);
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
    const struct dims dims = b_dims(r->b, x), wdims = b_dims(r->b, w);
    if (!dims.d || !wdims.d)
        return false;
    if (dims.rank < 3 || dims.rank != wdims.rank)
        return rule_bad(r, "input of rank %d with weights of rank %d", (int)dims.rank, (int)wdims.rank);
    if (!spatial_read(r, dims.rank - 2, s) || !conv_kernel_check(r, wdims.d, s->n))
        return false;
    for (int32_t i = 0; i < s->n; i++) {
        expr_id reach = spatial_reach(r->b->x, s, i, wdims.d[2 + i]);
        spatial_same(r->b->x, s, i, dims.d[2 + i], reach);
        spatial_warn_empty(r, i, dims.d[2 + i], spatial_room(r->b->x, s, i, dims.d[2 + i], reach), s->strides[i]);
    }
    return true;
}

value_id rule_conv_core(struct rule *r, value_id x, value_id w, enum elem acc)
{
    struct spatial s;
    return rule_conv_spatial(r, x, w, &s) ? conv_build(r->b, x, w, &s, rule_int(r, "group", 1), acc) : (value_id){0};
}
