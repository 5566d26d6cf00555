/* Fourier transforms, in f64 as ONNX's are (math/dft.c): torch.fft's functions, what they decompose to, stft. */
#include "passes/legalize/aten/complex.h"
#include "passes/legalize/math/dft.h"

#include <math.h>

enum fft_kind { FFT_COMPLEX, FFT_TO_HALF, FFT_FROM_HALF }; /* c2c; r2c, of which half is kept; c2r */
enum fft_norm { NORM_NONE, NORM_ROOT, NORM_ALL }; /* results divided by nothing, the root of the length, the length */

struct fft {
    enum fft_kind kind;
    bool inverse;
    enum fft_norm norm;
    int32_t axes[RANK_MAX]; /* the last one is that of half */
    expr_id lengths[RANK_MAX];
    uint32_t n;
};

/* Along one axis of x, whose last dim has the parts; OP_DFT divides inverses by the length. */
static value_id along_axis(struct builder *b, value_id x, const struct fft *t, uint32_t i, bool half)
{
    expr_id length = t->lengths[i];
    b_assert(b, ex_le(b->x, ex_const(b->x, 1), length), EVAL_SHAPE, "a Fourier transform of no elements");
    return dft_build(b, x, &(struct dft){t->axes[i], t->inverse, half, length});
}

/* All axes; the parts are the last dim of x, and of the result. */
static value_id transformed(struct builder *b, value_id x, const struct fft *t)
{
    expr_id all = ex_const(b->x, 1);
    bool first = t->kind == FFT_TO_HALF;
    for (uint32_t i = 0; i < t->n; i++)
        all = ex_mul(b->x, all, t->lengths[i]);
    if (first)
        x = along_axis(b, x, t, t->n - 1, true);
    for (uint32_t i = 0; i + (t->kind != FFT_COMPLEX) < t->n; i++)
        x = along_axis(b, x, t, i, false);
    if (t->kind == FFT_FROM_HALF)
        x = along_axis(b, x, t, t->n - 1, true);
    int have = t->inverse ? NORM_ALL : NORM_NONE, want = t->norm;
    value_id size = v_expr(b, ELEM_F64, all);
    if (have != want && (have == NORM_ROOT || want == NORM_ROOT))
        size = b_unary(b, OP_SQRT, size);
    return have == want ? x : b_binary(b, want > have ? OP_DIV : OP_MUL, x, size);
}

/* Operand 0 in f64 with its parts as a last dim: one where it is real. */
static value_id parts_in(struct rule *r, bool two)
{
    struct builder *b = r->b;
    if (!complex_is(r, 0) && !two) {
        value_id x = b_convert(b, rule_in(r, 0), ELEM_F64);
        return b_unsqueeze(b, x, v_rank(b, x));
    }
    struct pair x = complex_in(r, 0, "self", ELEM_F64);
    const struct dims dims = b_dims(b, x.re);
    if (!dims.d)
        return (value_id){0};
    const value_id parts[2] = {b_unsqueeze(b, x.re, dims.rank),
                               b_unsqueeze(b, b_broadcast(b, x.im, dims.d, dims.rank), dims.rank)};
    return b_concat(b, parts, 2, dims.rank);
}

static bool transform(struct rule *r, const struct fft *t)
{
    value_id x = parts_in(r, t->kind != FFT_TO_HALF);
    if (complex_is(r, 0) && t->kind == FFT_TO_HALF)
        return rule_bad(r, "the transform is of real numbers, and the operand is complex");
    if (!x.i || (t->n == 0 && t->kind != FFT_COMPLEX))
        return x.i ? rule_bad(r, "the list of dimensions is empty") : false;
    value_id y = transformed(r->b, x, t);
    if (t->kind == FFT_FROM_HALF)
        return y.i && aten_result(r, b_squeeze(r->b, y, v_rank(r->b, y) - 1));
    return y.i && complex_out(r, complex_of(r->b, y));
}

static int32_t rank_in(struct rule *r)
{
    return v_rank(r->b, complex_is(r, 0) ? r->arg[0].items[0].v : rule_in(r, 0));
}

static expr_id dim_in(struct rule *r, int32_t axis)
{
    return b_dim(r->b, complex_is(r, 0) ? r->arg[0].items[0].v : rule_in(r, 0), axis);
}

/* What is left of half an axis of n results was 2 (n - 1) long, where nothing says otherwise. */
static expr_id length_of_half(struct exprs *ex, expr_id n)
{
    return ex_mulc(ex, ex_addc(ex, n, -1), 2);
}

/* _fft_r2c, _fft_c2r, _fft_c2c. param: 0 c2c, 1 r2c, 2 c2r */
bool rule_aten_fft_core(struct rule *r)
{
    struct fft t = {.kind = (enum fft_kind)r->param, .norm = (enum fft_norm)rule_int(r, "normalization", 0)};
    int64_t axes[RANK_MAX];
    int32_t rank = rank_in(r);
    if (!aten_ints_known(r, 1, "dim", axes, &t.n))
        return false;
    if (t.norm > NORM_ALL)
        return rule_bad(r, "there is no normalization %d", (int)t.norm);
    for (uint32_t i = 0; i < t.n; i++) {
        if (!rule_axis(r, axes[i], rank, &t.axes[i]))
            return false;
        t.lengths[i] = dim_in(r, t.axes[i]);
    }
    t.inverse = t.kind == FFT_FROM_HALF || (t.kind == FFT_COMPLEX && !rule_int(r, "forward", 1));
    if (t.kind == FFT_TO_HALF && !rule_int(r, "onesided", 1))
        t.kind = FFT_COMPLEX;
    if (t.kind == FFT_FROM_HALF && t.n && !(t.lengths[t.n - 1] = aten_int(r, 3, "last_dim_size", 0)).i)
        return false;
    return transform(r, &t);
}

/* The axes and lengths of fft_fftn(s, dim) and of fft_fft(n, dim). */
static bool axes_read(struct rule *r, bool many, int32_t rank, struct fft *t)
{
    expr_id lengths[RANK_MAX];
    int64_t axes[RANK_MAX];
    uint32_t n_lengths = 0, n_axes;
    if (!many) {
        axes[0] = rule_int(r, "dim", -1);
        n_axes = 1;
        if (aten_has(r, 1, "n")) {
            n_lengths = 1;
            if (!(lengths[0] = aten_int(r, 1, "n", 0)).i)
                return false;
        }
    } else if (!aten_ints(r, 1, "s", lengths, &n_lengths) || !aten_ints_known(r, 2, "dim", axes, &n_axes)) {
        return false;
    }
    const struct attr *dim = node_attr(r->node, "dim");
    if (n_axes == 0 &&
        !(dim && dim->kind == ATTR_INTS && dim->n == 0)) { /* the last ones, as many as there are lengths, or all */
        n_axes = n_lengths ? n_lengths : (uint32_t)rank;
        for (uint32_t i = 0; i < n_axes; i++)
            axes[i] = (int64_t)i - n_axes;
    }
    if (n_lengths && n_lengths != n_axes)
        return rule_bad(r, "there are %u lengths for %u dimensions", n_lengths, n_axes);
    t->n = n_axes;
    for (uint32_t i = 0; i < n_axes; i++) {
        if (!rule_axis(r, axes[i], rank, &t->axes[i]))
            return false;
        bool half = t->kind == FFT_FROM_HALF && i + 1 == n_axes;
        expr_id whole = dim_in(r, t->axes[i]);
        bool given = n_lengths && !ex_is(r->b->x, lengths[i], -1);
        t->lengths[i] = given ? lengths[i] : half ? length_of_half(r->b->x, whole) : whole;
    }
    return true;
}

/* torch.fft's functions. param: kind; 4 more: inverse; 8 more: lists of lengths and dimensions */
bool rule_aten_fft(struct rule *r)
{
    struct fft t = {.kind = (enum fft_kind)(r->param & 3), .inverse = r->param & 4};
    const char *norm = rule_str(r, "norm", "backward");
    bool forward = strcmp(norm, "forward") == 0;
    t.norm = strcmp(norm, "ortho") == 0 ? NORM_ROOT : forward != t.inverse ? NORM_ALL : NORM_NONE;
    int32_t rank = rank_in(r);
    return axes_read(r, r->param & 8, rank, &t) && transform(r, &t);
}

/* Each dim turned by half its size; param: 1 back again. */
bool rule_aten_fft_shift(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0);
    int64_t axes[RANK_MAX];
    uint32_t n;
    int32_t axis, rank = v_rank(b, x);
    if (!x.i || !aten_ints_known(r, 1, "dim", axes, &n))
        return false;
    for (uint32_t i = 0; i < (n ? n : (uint32_t)rank) && x.i; i++) {
        if (!rule_axis(r, n ? axes[i] : (int64_t)i, rank, &axis))
            return false;
        expr_id dim = b_dim(b, x, axis), half = ex_div(b->x, ex_addc(b->x, dim, r->param ? 0 : 1), ex_const(b->x, 2));
        value_id parts[2] = {b_slice_axis(b, x, axis, half, ex_sub(b->x, dim, half)),
                             b_slice_axis(b, x, axis, ex_const(b->x, 0), half)};
        x = b_concat(b, parts, 2, axis);
    }
    return rule_result(r, x);
}

/* Windows: a - b cos(2 pi i / n) + c cos(4 pi i / n). param: 0 Hann, 1 Hamming, 2 Blackman */
bool rule_aten_window(struct rule *r)
{
    enum { LENGTH_MAX = 1 << 24 };
    static const double terms[][3] = {{0.5, 0.5, 0}, {0.54, 0.46, 0}, {0.42, 0.5, 0.08}};
    int64_t length;
    if (!aten_int_known(r, 0, "window_length", 0, &length))
        return false;
    if (length < 0 || length > LENGTH_MAX)
        return rule_bad(r, "a window cannot have %lld elements", (long long)length);
    double a = aten_float(r, "alpha", terms[r->param][0]), c = terms[r->param][2],
           n = (double)(rule_int(r, "periodic", 1) ? length : length - 1);
    double *list = NEW_ARRAY(&r->b->g->arena, double, length + 1);
    for (int64_t i = 0; i < length; i++) {
        double angle = 2 * M_PI * (double)i / n;
        list[i] = length == 1 ? 1 : a - aten_float(r, "beta", terms[r->param][1]) * cos(angle) + c * cos(2 * angle);
    }
    return aten_result(r, b_const(r->b, ELEM_F64, &length, 1, list));
}

/* ---- stft, istft
 * ------------------------------------------------------------------------------------------------------ */

/* The window in the middle of a frame; {0}: none, and no error if *ok. */
static value_id window_of(struct rule *r, int64_t length, int64_t within, bool *ok)
{
    struct builder *b = r->b;
    struct exprs *ex = b->x;
    expr_id left = ex_const(ex, (length - within) / 2), right = ex_const(ex, length - within - (length - within) / 2);
    expr_id size = ex_const(ex, within);
    value_id w = rule_has(r, 4) ? b_convert(b, rule_in(r, 4), ELEM_F64) : b_splat_f64(b, ELEM_F64, 1, &size, 1);
    *ok = true;
    if (!rule_has(r, 4) && within == length)
        return (value_id){0};
    *ok = w.i != 0;
    return b_pad(b, v_exactly(b, w, (uint32_t)within), (value_id){0}, &left, &right, "constant");
}

/* Frames of a signal [batch, samples], transformed: [batch, frequencies, frames]. param: 1 stft.center */
bool rule_aten_stft(struct rule *r)
{
    static const int64_t perm[] = {0, 2, 1, 3};
    struct builder *b = r->b;
    if (complex_is(r, 0) || (r->param && rule_int(r, "center", 1)))
        return rule_refuse(r, "the operand is complex, or the operator itself pads it: use torch.stft");
    value_id x = b_convert(b, rule_in(r, 0), ELEM_F64);
    int64_t length, hop, within;
    bool single = v_rank(b, x) == 1, onesided = rule_int(r, "onesided", 1) != 0, ok;
    if (!x.i || !aten_int_known(r, 1, "n_fft", 1, &length) || !aten_int_known(r, 2, "hop_length", length / 4, &hop) ||
        !aten_int_known(r, 3, "win_length", length, &within))
        return false;
    if (length < 1 || hop < 1 || within < 1 || within > length || length > INT32_MAX || v_rank(b, x) > 2)
        return rule_bad(r, "frames of %lld elements, %lld apart, with windows of %lld are impossible",
                        (long long)length, (long long)hop, (long long)within);
    x = b_unsqueeze(b, single ? b_unsqueeze(b, x, 0) : x, 2);
    expr_id room = ex_addc(b->x, b_dim(b, x, 1), -length), size = ex_const(b->x, length);
    b_assert(b, ex_le(b->x, ex_const(b->x, 0), room), EVAL_SHAPE, "a frame is longer than the signal");
    expr_id count = ex_addc(b->x, ex_div(b->x, room, ex_const(b->x, hop)), 1);
    value_id frames = dft_frames(b, x, ex_const(b->x, hop), size, count), window = window_of(r, length, within, &ok);
    if (!ok)
        return false;
    if (window.i)
        frames = b_binary(b, OP_MUL, frames, v_along(b, window, 2, 4));
    value_id y = dft_build(b, frames, &(struct dft){2, false, onesided, size});
    if (aten_flag(r, "normalized"))
        y = b_binary_f64(b, OP_MUL, y, 1 / sqrt((double)length));
    y = b_transpose(b, y, perm);
    y = single ? b_squeeze(b, y, 0) : y;
    return complex_result(r) ? complex_out(r, complex_of(b, y)) : aten_result(r, y);
}

/* Frames [batch, count, length], each `hop` after the one before, added up where they overlap: [batch, samples]. */
static value_id overlapped(struct builder *b, value_id frames, int64_t length, int64_t hop, expr_id samples)
{
    const expr_id none = ex_const(b->x, 0), by = ex_const(b->x, hop);
    int64_t n = (length + hop - 1) / hop;
    const expr_id low[3] = {none, none, none}, rest[3] = {none, none, ex_const(b->x, n * hop - length)};
    frames = b_pad(b, frames, (value_id){0}, low, rest, "constant");
    const struct dims d = b_dims(b, frames);
    value_id sum = {0};
    if (!d.d)
        return sum;
    for (int64_t k = 0; k < n; k++) {
        const expr_id before[3] = {none, ex_const(b->x, k), none}, after[3] = {none, ex_const(b->x, n - 1 - k), none};
        value_id part = b_slice_axis(b, frames, 2, ex_const(b->x, k * hop), by);
        part = b_pad(b, part, (value_id){0}, before, after, "constant");
        sum = k ? b_binary(b, OP_ADD, sum, part) : part;
    }
    const expr_id flat[2] = {d.d[0], ex_mulc(b->x, ex_addc(b->x, d.d[1], n - 1), hop)};
    return b_slice_axis(b, b_reshape(b, sum, flat, 2), 1, none, samples);
}

/* A window reaches each of the samples. */
static bool reached(struct builder *b, value_id weight)
{
    value_id none = b_convert(b, b_binary(b, OP_LT, weight, b_splat_like(b, weight, 1e-11)), ELEM_U8);
    expr_id any = b_elem(b, b_convert(b, b_reduce(b, none, ARRAY(int64_t, 0, 1), "max", false), ELEM_I64), 0, 1);
    if (any.i)
        b_assert(b, ex_eq(b->x, any, ex_const(b->x, 0)), EVAL_SHAPE, "there are samples that no window reaches");
    return any.i != 0;
}

/* The frequencies are those of frames of this length: half of them, or all. */
static void frequencies_are(struct rule *r, expr_id have, int64_t length)
{
    struct exprs *ex = r->b->x;
    bool given = aten_has(r, 7, "onesided"), half = !given || aten_flag(r, "onesided");
    expr_id few = ex_eq(ex, have, ex_const(ex, length / 2 + 1)), all = ex_eq(ex, have, ex_const(ex, length));
    b_assert(r->b,
             !given ? ex_or(ex, few, all)
             : half ? few
                    : all,
             EVAL_SHAPE, "the frequencies are not those of frames of %lld", (long long)length);
}

/* The signal [batch, samples] that these frames [batch, frequencies, frames] are of. */
bool rule_aten_istft(struct rule *r)
{
    enum { OVERLAPS_MAX = 64 };
    static const int64_t turned[] = {0, 2, 1, 3};
    struct builder *b = r->b;
    int64_t length, hop, within;
    bool single = rank_in(r) == 2, ok, centred = rule_int(r, "center", 1) != 0;
    value_id x = parts_in(r, true);
    if (!x.i || !aten_int_known(r, 1, "n_fft", 1, &length) || !aten_int_known(r, 2, "hop_length", length / 4, &hop) ||
        !aten_int_known(r, 3, "win_length", length, &within))
        return false;
    if (length < 1 || hop < 1 || within < 1 || within > length || length > INT32_MAX ||
        v_rank(b, x) != (single ? 3 : 4))
        return rule_bad(r, "frames of %lld, %lld apart, windows of %lld", (long long)length, (long long)hop,
                        (long long)within);
    if (aten_flag(r, "return_complex") || (length - 1) / hop >= OVERLAPS_MAX)
        return rule_refuse(r, "the result is complex, or more than %d windows overlap", OVERLAPS_MAX);
    x = b_transpose(b, single ? b_unsqueeze(b, x, 0) : x, turned);
    frequencies_are(r, b_dim(b, x, 2), length);
    expr_id none = ex_const(b->x, 0), count = b_dim(b, x, 1), size = ex_const(b->x, length);
    x = b_slice_axis(b, x, 2, none, ex_const(b->x, length / 2 + 1));
    b_assert(b, ex_le(b->x, ex_const(b->x, 1), count), EVAL_SHAPE, "no frames");
    const struct fft t = {.kind = FFT_FROM_HALF,
                          .inverse = true,
                          .norm = aten_flag(r, "normalized") ? NORM_ROOT : NORM_ALL,
                          .axes = {2},
                          .lengths = {size},
                          .n = 1};
    value_id y = b_squeeze(b, transformed(b, x, &t), 3), window = window_of(r, length, within, &ok);
    if (!y.i || !ok)
        return false;
    const expr_id one[3] = {ex_const(b->x, 1), count, size};
    window = window.i ? b_broadcast(b, window, one, 3) : b_splat_f64(b, ELEM_F64, 1, one, 3);
    expr_id all = ex_addc(b->x, ex_mulc(b->x, ex_addc(b->x, count, -1), hop), length),
            begin = ex_const(b->x, centred ? length / 2 : 0);
    y = overlapped(b, b_binary(b, OP_MUL, y, window), length, hop, all);
    value_id weight = overlapped(b, b_binary(b, OP_MUL, window, window), length, hop, all);
    bool given = aten_has(r, 8, "length");
    expr_id wanted = given ? aten_int(r, 8, "length", 0) : ex_sub(b->x, all, ex_mulc(b->x, begin, 2));
    if (!wanted.i)
        return false;
    expr_id left = given ? ex_min(b->x, wanted, ex_sub(b->x, all, begin)) : wanted;
    b_assert(b, ex_and(b->x, ex_le(b->x, none, wanted), ex_le(b->x, none, left)), EVAL_SHAPE, "no samples are left");
    weight = b_slice_axis(b, weight, 1, begin, left);
    if (!reached(b, weight))
        return false;
    y = b_binary(b, OP_DIV, b_slice_axis(b, y, 1, begin, left), weight);
    const expr_id low[2] = {none, none}, rest[2] = {none, ex_sub(b->x, wanted, left)};
    y = b_pad(b, y, (value_id){0}, low, rest, "constant");
    return aten_result(r, single ? b_squeeze(b, y, 0) : y);
}
