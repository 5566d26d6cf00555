/* Transposed convolutions by phases: a stride of s is s ordinary convolutions, each with every s-th tap of the kernel,
 * whose results alternate along the dim. No zeros are stored and none are multiplied.
 *
 * With begin = taps the output cuts off in front, output o reads tap begin + o - s * i of input i. For begin + o = s *
 * j + r these are the taps r, r + s, ...; so phase r at j is a convolution of x[j], x[j - 1], ... with them. Where s
 * divides the kernel's extents the phases are the output channels of one convolution; else each phase is its own,
 * written next to the others. The results are put in order by views: (N, phases, M, L) -> (N, M, L, phases) -> (N, M, L
 * * phases).
 */
#include "passes/legalize/nn/window.h"

enum { PHASES_MAX = 16, LANES = 16 };
struct phases {
    struct builder *b;
    struct exprs *x;
    const struct spatial *s;         /* strides: the input's dilation; pads: those of the dilated convolution */
    int32_t n;                       /* spatial dims */
    int64_t groups, count, k[RANK_MAX], begin[RANK_MAX], first[RANK_MAX], after[RANK_MAX];
    const expr_id *xd, *wd;          /* (N, C, ...), (C, M / groups, ...) */
    bool stacked;
};

static int64_t div_down(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

static bool phases_read(struct phases *p)
{
    bool strided = false;
    p->stacked = true;
    p->count = 1;
    for (int32_t i = 0; i < p->n; i++) {
        int64_t s = p->s->strides[i], lo, hi;
        if (!ex_is_const(p->x, p->wd[2 + i], &p->k[i]) || !ex_is_const(p->x, p->s->lo[i], &lo) ||
            !ex_is_const(p->x, p->s->hi[i], &hi) || p->s->dilations[i] != 1 || s > p->k[i] || s > PHASES_MAX ||
            p->k[i] > INT32_MAX || lo > INT32_MAX || lo < -INT32_MAX)
            return false;
        p->begin[i] = p->k[i] - 1 - lo;
        p->first[i] = div_down(p->begin[i], s);
        p->after[i] = div_down(hi, s);
        p->stacked &= p->k[i] % s == 0;
        p->count *= s;
        strided |= s > 1;
    }
    int64_t channels;   /* of a phase: as lanes they fill whole vectors, or all phases fit into one */
    if (!ex_is_const(p->x, p->wd[1], &channels) || (channels % LANES != 0 && channels > LANES / p->count))
        p->stacked = false;
    return strided && p->count <= PHASES_MAX;
}

/* Output channels of a convolution with these taps of each dim: pads that begin all phases at the same j. */
static value_id convolve(struct phases *p, value_id x, value_id w, const int64_t *taps)
{
    struct spatial s = {.n = p->n};
    for (int32_t i = 0; i < p->n; i++) {
        s.strides[i] = s.dilations[i] = 1;
        s.lo[i] = ex_const(p->x, taps[i] - 1 - p->first[i]);
        s.hi[i] = ex_const(p->x, p->after[i]);
    }
    return conv_build(p->b, x, w, &s, p->groups, ELEM_NONE);
}

/* (C, M / g, k...) -> (g * phases * M / g, C / g, taps...): all phases, a kernel's extents being whole strides. */
static value_id weights_stacked(struct phases *p, value_id w, int64_t *taps)
{
    expr_id g = ex_const(p->x, p->groups), apart[RANK_MAX] = {g, ex_div(p->x, p->wd[0], g), p->wd[1]};
    expr_id out[RANK_MAX] = {ex_mulc(p->x, p->wd[1], p->groups * p->count), apart[1]};
    int64_t perm[RANK_MAX] = {0};
    for (int32_t i = 0; i < p->n; i++) {
        taps[i] = p->k[i] / p->s->strides[i];
        apart[3 + 2 * i] = out[2 + i] = ex_const(p->x, taps[i]);
        apart[4 + 2 * i] = ex_const(p->x, p->s->strides[i]);
        perm[1 + i] = 4 + 2 * i;
        perm[3 + p->n + i] = 3 + 2 * i;
    }
    perm[1 + p->n] = 2;
    perm[2 + p->n] = 1;
    value_id v = b_reshape(p->b, w, apart, 3 + 2 * p->n);
    for (int32_t i = 0; i < p->n; i++)
        v = v_flip(p->b, v, 3 + 2 * i);
    return b_reshape(p->b, b_transpose(p->b, v, perm), out, 2 + p->n);
}

/* (C, M / g, k...) -> (M, C / g, taps...): every stride-th tap from `phase` on, the last first. */
static value_id weights_of_phase(struct phases *p, value_id w, const int64_t *phase, int64_t *taps)
{
    expr_id g = ex_const(p->x, p->groups), apart[RANK_MAX] = {g, ex_div(p->x, p->wd[0], g), p->wd[1]};
    expr_id out[RANK_MAX] = {ex_mulc(p->x, p->wd[1], p->groups), apart[1]};
    expr_id start[RANK_MAX] = {ex_const(p->x, 0), ex_const(p->x, 0)}, size[RANK_MAX] = {p->wd[0], p->wd[1]};
    int64_t step[RANK_MAX] = {1, 1}, perm[RANK_MAX] = {0, 2, 1};
    for (int32_t i = 0; i < p->n; i++) {
        int64_t s = p->s->strides[i];
        taps[i] = (p->k[i] - phase[i] + s - 1) / s;
        start[2 + i] = ex_const(p->x, phase[i] + s * (taps[i] - 1));
        size[2 + i] = apart[3 + i] = out[2 + i] = ex_const(p->x, taps[i]);
        step[2 + i] = -s;
        perm[3 + i] = 3 + i;
    }
    value_id v = b_reshape(p->b, b_slice(p->b, w, start, size, step), apart, 3 + p->n);
    return b_reshape(p->b, b_transpose(p->b, v, perm), out, 2 + p->n);
}

/* All phases as channels: (N, groups * phases * M / groups, L...) when stacked, else (N, phases * M, L...). */
static value_id convolve_all(struct phases *p, value_id x, value_id w)
{
    int64_t taps[RANK_MAX], phase[RANK_MAX];
    value_id each[PHASES_MAX];
    if (p->stacked) {
        value_id turned = weights_stacked(p, w, taps);
        return convolve(p, x, turned, taps);
    }
    for (int64_t c = 0; c < p->count; c++) {
        int64_t rest = c;
        for (int32_t i = p->n - 1; i >= 0; i--) {
            phase[i] = rest % p->s->strides[i];
            rest /= p->s->strides[i];
        }
        value_id turned = weights_of_phase(p, w, phase, taps);
        each[c] = convolve(p, x, turned, taps);
    }
    return b_concat(p->b, each, (uint32_t)p->count, 1);
}

/* Phases from the channels to their places along the spatial dims, and the part that the output has of that. */
static value_id interleave(struct phases *p, value_id y)
{
    int32_t n = p->n;
    const struct dims d = b_dims(p->b, y);
    expr_id apart[RANK_MAX], out[RANK_MAX], length[RANK_MAX];
    int64_t perm[RANK_MAX] = {0, 1, 2 + n}, groups = p->stacked ? p->groups : 1;
    if (!d.d)
        return (value_id){0};
    apart[0] = out[0] = d.d[0];
    apart[1] = ex_const(p->x, groups);
    out[1] = ex_mulc(p->x, p->wd[1], p->groups);
    apart[2 + n] = ex_div(p->x, out[1], apart[1]);
    for (int32_t i = 0; i < n; i++) {
        int64_t s = p->s->strides[i];
        apart[2 + i] = ex_const(p->x, s);
        apart[3 + n + i] = d.d[2 + i];
        perm[3 + 2 * i] = 3 + n + i;
        perm[4 + 2 * i] = 2 + i;
        out[2 + i] = ex_mulc(p->x, d.d[2 + i], s);
        length[i] = ex_addc(
            p->x,
            ex_add(p->x, ex_mulc(p->x, ex_addc(p->x, p->xd[2 + i], -1), s), ex_add(p->x, p->s->lo[i], p->s->hi[i])),
            2 - p->k[i]);
    }
    y = b_reshape(p->b, b_transpose(p->b, b_reshape(p->b, y, apart, 3 + 2 * n), perm), out, 2 + n);
    for (int32_t i = 0; i < n; i++)
        if (length[i].i != out[2 + i].i)
            y = b_slice_axis(p->b, y, 2 + i, ex_const(p->x, p->begin[i] - p->first[i] * p->s->strides[i]), length[i]);
    return y;
}

bool conv_by_phases(struct builder *b, value_id x, value_id w, const struct spatial *s, int64_t groups, value_id *y)
{
    struct phases p = {.b = b, .x = b->x, .s = s, .n = s->n, .groups = groups};
    p.xd = b_dims(b, x).d;
    p.wd = b_dims(b, w).d;
    if (!p.xd || !p.wd || 3 + 2 * p.n > RANK_MAX || !phases_read(&p))
        return false;
    for (int32_t i = 0; i < p.n; i++)
        if (ex_lo(p.x, p.xd[2 + i]) < p.first[i] - p.after[i])
            return false;   /* all of it may be cut off: the general form says what then */
    *y = interleave(&p, convolve_all(&p, x, w));
    return true;
}
