/* Slice, Pad, CenterCropPad, Trilu, DepthToSpace and their like: parts of tensors, mostly views.
 *
 * Starts, ends and pads may be known only at run time; a run-time step turns the view into a gather. Negative pads
 * crop: the result is "pad the original, then crop" also where one axis has both signs (as PyTorch does).
 */
#include "passes/legalize/legalize.h"

/* ---- Slice --------------------------------------------------------------------------------------------------- */

struct cut {
    expr_id start, end, step;
};   /* of one dim, as written: negative values count from the end */

/* A bound far outside means "to the end": symbols must not be compared with it, sums not overflow. */
static expr_id bound_normalize(struct exprs *ex, expr_id e, expr_id dim)
{
    int64_t c;
    if (ex_is_const(ex, e, &c)) {
        if (c >= INT32_MAX)
            return dim;
        return c <= -INT32_MAX ? ex_const(ex, -1) : c < 0 ? ex_addc(ex, dim, c) : e;
    }
    return ex_lo(ex, e) >= 0 ? e : ex_select(ex, ex_lt(ex, e, ex_const(ex, 0)), ex_add(ex, e, dim), e);
}

static expr_id clamp(struct exprs *ex, expr_id e, int64_t lo, expr_id hi)
{
    return ex_max(ex, ex_min(ex, e, hi), ex_const(ex, lo));
}

/* Start and number of elements for a step of known sign and magnitude. */
static void cut_resolve(struct exprs *ex, const struct cut *c, expr_id dim, bool forward, expr_id magnitude,
                        expr_id *start, expr_id *size)
{
    expr_id s = bound_normalize(ex, c->start, dim), e = bound_normalize(ex, c->end, dim);
    expr_id zero = ex_const(ex, 0), last = ex_addc(ex, dim, -1);
    *start = forward ? clamp(ex, s, 0, dim) : clamp(ex, s, 0, last);
    expr_id end = forward ? clamp(ex, e, 0, dim) : clamp(ex, e, -1, last);
    expr_id span = forward ? ex_sub(ex, end, *start) : ex_sub(ex, *start, end);
    *size = ex_max(ex, ex_ceildiv(ex, span, magnitude), zero);
    if (!forward)
        *size = ex_min(ex, *size, dim);   /* an empty dim has no last element to begin at */
}

/* The dim through an index tensor: start + step * iota. */
static value_id cut_gather(struct builder *b, value_id x, int32_t axis, const struct cut *c, expr_id dim)
{
    expr_id zero = ex_const(b->x, 0), up_start, up_size, down_start, down_size;
    expr_id up = ex_lt(b->x, zero, c->step), one = ex_const(b->x, 1);
    cut_resolve(b->x, c, dim, true, ex_max(b->x, c->step, one), &up_start, &up_size);
    cut_resolve(b->x, c, dim, false, ex_max(b->x, ex_mulc(b->x, c->step, -1), one), &down_start, &down_size);
    expr_id size = ex_select(b->x, up, up_size, down_size), start = ex_select(b->x, up, up_start, down_start);
    b_assert(b, ex_not(b->x, ex_eq(b->x, c->step, zero)), -9, "slice step is 0");
    value_id i = v_iota(b, ELEM_I64, &size, 1, 0);
    i = b_binary(b, OP_MUL, i, v_expr(b, ELEM_I64, c->step));
    i = b_binary(b, OP_ADD, i, v_expr(b, ELEM_I64, start));
    return b_gather(b, x, i, axis);
}

#define STEP_MAX ((int64_t)1 << 40)
enum { CUT_PARTS = 300 };        /* of the expression of a start or a size; a longer one is computed by the run */

static bool slice_cuts(struct rule *r, value_id x, const struct cut *cuts)
{
    const struct dims dims = b_dims(r->b, x);
    expr_id starts[RANK_MAX], sizes[RANK_MAX];
    int64_t steps[RANK_MAX];
    bool indirect = false;
    for (int32_t d = 0; d < dims.rank; d++) {
        if (!ex_is_const(r->b->x, cuts[d].step, &steps[d])) {
            indirect = true;
            starts[d] = ex_const(r->b->x, 0);
            sizes[d] = dims.d[d];
            steps[d] = 1;
            continue;
        }
        if (steps[d] == 0)
            return rule_bad(r, "step is 0");
        /* beyond any dim a longer step makes no difference, and shorter ones cannot overflow */
        steps[d] = steps[d] > STEP_MAX ? STEP_MAX : steps[d] < -STEP_MAX ? -STEP_MAX : steps[d];
        bool forward = steps[d] > 0;
        cut_resolve(r->b->x, &cuts[d], dims.d[d], forward, ex_const(r->b->x, forward ? steps[d] : -steps[d]),
                    &starts[d], &sizes[d]);
        starts[d] = b_brief(r->b, starts[d], CUT_PARTS);
        sizes[d] = b_brief(r->b, sizes[d], CUT_PARTS);
    }
    value_id y = b_slice(r->b, x, starts, sizes, steps);
    for (int32_t d = 0; indirect && d < dims.rank; d++) {
        int64_t step;
        if (!ex_is_const(r->b->x, cuts[d].step, &step))
            y = cut_gather(r->b, y, d, &cuts[d], dims.d[d]);
    }
    return rule_result(r, y);
}

/* Operands 1 to 4, all as long as one of known length is. If their number is dynamic, they are filled
 * up to the rank: axis `rank`, which no dim has, means none. true: they were. */
static bool slice_operands(struct rule *r, int32_t rank, value_id in[5])
{
    struct builder *b = r->b;
    int64_t n = -1;
    for (uint32_t i = 1; i < 5; i++) {
        in[i] = rule_in(r, i);
        if (in[i].i && n < 0)
            ex_is_const(b->x, b_count(b, in[i]), &n);
    }
    for (uint32_t i = 1; i < 5 && n >= 0; i++)
        in[i] = in[i].i && !v_count_known(b, in[i]) ? v_exactly(b, in[i], (uint32_t)n) : in[i];
    if (!in[1].i || n >= 0)
        return false;
    if (!in[3].i) {
        expr_id all = b_dim(b, in[1], 0);
        in[3] = v_iota(b, ELEM_I64, &all, 1, 0);
    }
    for (uint32_t i = 1; i < 5; i++)
        in[i] = !in[i].i ? in[i] : i == 3 ? v_axes_padded(b, in[i], rank) : v_padded(b, in[i], (uint32_t)rank, i == 4);
    return true;
}

/* Starts or ends of a slice backwards, to which 1 is added. If the run computes them, they may be too large for that.
 */
static value_id bounds_clamped(struct builder *b, value_id v)
{
    bool known = !v.i || value_is_const(b->g, v) || graph_value(b->g, v)->n_elems || v_elem(b, v) != ELEM_I64;
    return known ? v : b_clamp(b, v, -(double)STEP_MAX, (double)STEP_MAX);
}

/* Elements k of starts, ends, steps go to the dim that element k of axes names, now or at run time. */
bool rule_slice(struct rule *r)
{
    value_id x = rule_in(r, 0), in[5];
    int32_t axis;
    uint32_t n, n_end, n_axes = 0, n_step = 0;
    const struct dims dims = b_dims(r->b, x);
    struct cut cuts[RANK_MAX];
    if (!dims.d)
        return false;
    bool filled = slice_operands(r, dims.rank, in);
    /* No dim is so long that a longer step makes a difference. */
    value_id clamped = in[4].i ? b_clamp(r->b, in[4], INT32_MIN, INT32_MAX) : in[4];
    const expr_id *steps = in[4].i ? b_elems(r->b, clamped, INT32_MIN, INT32_MAX, &n_step) : NULL;
    bool backward = false;
    for (uint32_t k = 0; steps && k < n_step; k++)
        backward |= ex_lo(r->b->x, steps[k]) < 0;
    for (uint32_t i = 1; i < 3 && backward; i++)
        in[i] = bounds_clamped(r->b, in[i]);
    const expr_id *starts = b_elems(r->b, in[1], INT64_MIN, INT64_MAX, &n);
    const expr_id *ends = b_elems(r->b, in[2], INT64_MIN, INT64_MAX, &n_end);
    const expr_id *axes = in[3].i ? b_elems(r->b, in[3], -dims.rank, dims.rank - 1 + filled, &n_axes) : NULL;
    if (!starts || !ends || (rule_has(r, 3) && !axes) || (rule_has(r, 4) && !steps))
        return false;
    if (n_end != n || (axes && n_axes != n) || (steps && n_step != n) || n > (uint32_t)dims.rank)
        return rule_bad(r, "%u starts, %u ends, %u axes, %u steps for rank %d", n, n_end, n_axes, n_step,
                        (int)dims.rank);
    for (int32_t d = 0; d < dims.rank; d++)
        cuts[d] = (struct cut){ex_const(r->b->x, 0), dims.d[d], ex_const(r->b->x, 1)};
    for (uint32_t k = 0; k < n; k++) {
        int64_t at = k;
        struct cut cut = {starts[k], ends[k], steps ? steps[k] : ex_const(r->b->x, 1)};
        if (!axes || ex_is_const(r->b->x, axes[k], &at)) {
            if (!rule_axis(r, at, dims.rank, &axis))
                return false;
            cuts[axis] = cut;
            continue;
        }
        for (int32_t d = 0; d < dims.rank; d++) {
            expr_id here = ex_or(r->b->x, ex_eq(r->b->x, axes[k], ex_const(r->b->x, d)),
                                 ex_eq(r->b->x, axes[k], ex_const(r->b->x, d - dims.rank)));
            cuts[d].start = ex_select(r->b->x, here, cut.start, cuts[d].start);
            cuts[d].end = ex_select(r->b->x, here, cut.end, cuts[d].end);
            cuts[d].step = ex_select(r->b->x, here, cut.step, cuts[d].step);
        }
    }
    return slice_cuts(r, x, cuts);
}

bool rule_slice_old(struct rule *r)
{
    value_id x = rule_in(r, 0);
    int32_t axis;
    uint32_t n, n_end, n_axes;
    const struct dims dims = b_dims(r->b, x);
    const int64_t *starts = rule_ints(r, "starts", &n), *ends = rule_ints(r, "ends", &n_end);
    const int64_t *axes = rule_ints(r, "axes", &n_axes);
    struct cut cuts[RANK_MAX];
    if (!dims.d)
        return false;
    if (n != n_end || (n_axes && n_axes != n) || n > (uint32_t)dims.rank)
        return rule_bad(r, "%u starts, %u ends, %u axes for rank %d", n, n_end, n_axes, (int)dims.rank);
    for (int32_t d = 0; d < dims.rank; d++)
        cuts[d] = (struct cut){ex_const(r->b->x, 0), dims.d[d], ex_const(r->b->x, 1)};
    for (uint32_t k = 0; k < n; k++) {
        if (!rule_axis(r, n_axes ? axes[k] : k, dims.rank, &axis))
            return false;
        cuts[axis].start = ex_const(r->b->x, starts[k]);
        cuts[axis].end = ex_const(r->b->x, ends[k]);
    }
    return slice_cuts(r, x, cuts);
}

/* ---- Pad ----------------------------------------------------------------------------------------------------- */

/* Pads of any sign; all of lo and hi have an entry per dim. */
static value_id pad_signed(struct rule *r, value_id x, value_id fill, const expr_id *lo, const expr_id *hi,
                           const char *mode)
{
    const struct dims dims = b_dims(r->b, x);
    expr_id zero = ex_const(r->b->x, 0), plus_lo[RANK_MAX], plus_hi[RANK_MAX], starts[RANK_MAX], sizes[RANK_MAX];
    int64_t steps[RANK_MAX];
    for (int32_t d = 0; d < dims.rank; d++) {
        steps[d] = 1;
        plus_lo[d] = ex_max(r->b->x, lo[d], zero);
        plus_hi[d] = ex_max(r->b->x, hi[d], zero);
        starts[d] = ex_sub(r->b->x, plus_lo[d], lo[d]);
        sizes[d] = ex_add(r->b->x, dims.d[d], ex_add(r->b->x, lo[d], hi[d]));
        if (strcmp(mode, "reflect") == 0 && ex_hi(r->b->x, dims.d[d]) < 1 &&
            (ex_lo(r->b->x, plus_lo[d]) > 0 || ex_lo(r->b->x, plus_hi[d]) > 0))
            return rule_bad(r, "dimension %d is empty: there is nothing to reflect", (int)d), (value_id){0};
        if (ex_hi(r->b->x, sizes[d]) < 0)
            return rule_bad(r, "more is cropped off dimension %d than it has", (int)d), (value_id){0};
        if (ex_lo(r->b->x, sizes[d]) < 0)
            b_assert(r->b, ex_le(r->b->x, zero, sizes[d]), -2, "more is cropped off dimension %d than it has", (int)d);
    }
    return b_slice(r->b, b_pad(r->b, x, fill, plus_lo, plus_hi, mode), starts, sizes, steps);
}

static bool pad_mode(struct rule *r, const char **mode)
{
    static const char *const modes[] = {"constant", "reflect", "edge", "wrap"};
    *mode = rule_str(r, "mode", "constant");
    return ROW_NAMED(modes, COUNT_OF(modes), *mode) || rule_bad(r, "no mode is called \"%.40s\"", *mode);
}

bool rule_pad_old(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0), fill = {0};
    int32_t rank = v_rank(b, x);
    uint32_t n;
    const char *mode;
    const int64_t *pads = rule_ints(r, r->version < 2 ? "paddings" : "pads", &n);
    expr_id lo[RANK_MAX], hi[RANK_MAX];
    if (!x.i || !pad_mode(r, &mode))
        return false;
    if (n != 2 * (uint32_t)rank)
        return rule_bad(r, "%u pads for rank %d", n, (int)rank);
    for (int32_t d = 0; d < rank; d++) {
        lo[d] = ex_const(b->x, pads[d]);
        hi[d] = ex_const(b->x, pads[rank + d]);
    }
    if (rule_float(r, "value", 0) != 0)
        fill = b_scalar_f64(b, v_elem(b, x), rule_float(r, "value", 0));
    return rule_result(r, pad_signed(r, x, fill, lo, hi, mode));
}

/* Adds pads k and n + k to the dims that axes[k] names (all in order when NULL). */
static bool pads_place(struct rule *r, const expr_id *pads, uint32_t n, const expr_id *axes, int32_t rank, expr_id *lo,
                       expr_id *hi)
{
    struct exprs *ex = r->b->x;
    expr_id times[RANK_MAX], one = ex_const(ex, 1); /* that the run names each dim */
    bool seen[RANK_MAX] = {false};
    for (int32_t d = 0; d < rank; d++)
        lo[d] = hi[d] = times[d] = ex_const(ex, 0);
    for (uint32_t k = 0; k < n; k++) {
        int64_t at = k;
        int32_t axis;
        if (!axes || ex_is_const(ex, axes[k], &at)) {
            if (!rule_axis(r, at, rank, &axis))
                return false;
            if (seen[axis])
                return rule_bad(r, "axis %lld is named twice", (long long)at);
            seen[axis] = true;
            lo[axis] = pads[k];
            hi[axis] = pads[n + k];
            continue;
        }
        for (int32_t d = 0; d < rank; d++) {
            expr_id here = ex_or(ex, ex_eq(ex, axes[k], ex_const(ex, d)), ex_eq(ex, axes[k], ex_const(ex, d - rank)));
            lo[d] = ex_select(ex, here, pads[k], lo[d]);
            hi[d] = ex_select(ex, here, pads[n + k], hi[d]);
            times[d] = ex_add(ex, times[d], here);
        }
    }
    for (int32_t d = 0; d < rank; d++)
        b_assert(r->b, ex_le(ex, ex_add(ex, times[d], ex_const(ex, seen[d])), one), EVAL_VALUE,
                 "axis %d is named twice", (int)d);
    return true;
}

/* If the number of axes is dynamic, they and the pads are filled up to the rank: axis `rank`, which no
 * dim has, means none. Else as they stand, the other's number being that of whichever is known. *filled: they were. */
static void pad_operands(struct rule *r, int32_t rank, value_id *pads, value_id *axes, bool *filled)
{
    struct builder *b = r->b;
    int64_t n;
    *pads = rule_in(r, 1);
    *axes = rule_in(r, 3);
    *filled = axes->i && pads->i && !v_count_known(b, *axes) && !v_count_known(b, *pads);
    if (!*filled) {
        if (axes->i && pads->i && ex_is_const(b->x, b_count(b, *pads), &n))
            *axes = v_exactly(b, *axes, (uint32_t)n / 2);
        return;
    }
    expr_id count = b_dim(b, *axes, 0);
    b_assert(b, ex_eq(b->x, b_dim(b, *pads, 0), ex_mulc(b->x, count, 2)), EVAL_SHAPE,
             "there are not two pads for each axis");
    value_id half[2] = {b_slice_axis(b, *pads, 0, ex_const(b->x, 0), count), b_slice_axis(b, *pads, 0, count, count)};
    for (int i = 0; i < 2; i++)
        half[i] = v_padded(b, half[i], (uint32_t)rank, 0);
    *pads = b_concat(b, half, 2, 0);
    *axes = v_axes_padded(b, *axes, rank);
}

bool rule_pad(struct rule *r)
{
    value_id x = rule_in(r, 0), fill = {0};
    int32_t rank = v_rank(r->b, x);
    uint32_t n, n_axes = (uint32_t)rank;
    const char *mode;
    expr_id lo[RANK_MAX], hi[RANK_MAX];
    const expr_id *pads, *axes = NULL;
    value_id given, named;
    bool filled;
    if (!x.i)
        return false;
    pad_operands(r, rank, &given, &named, &filled);
    if (named.i && !(axes = b_elems(r->b, named, -rank, rank - 1 + filled, &n_axes)))
        return false;
    pads = b_elems(r->b, v_exactly(r->b, given, 2 * n_axes), INT32_MIN, INT32_MAX, &n);
    if (!pads || !pad_mode(r, &mode))
        return false;
    if (n != 2 * n_axes)
        return rule_bad(r, "%u pads for %u axes", n, n_axes);
    if (rule_has(r, 2))
        fill = v_scalar(r->b, rule_in(r, 2));
    if (strcmp(mode, "constant") != 0)
        fill = (value_id){0};
    return pads_place(r, pads, n_axes, axes, rank, lo, hi) && rule_result(r, pad_signed(r, x, fill, lo, hi, mode));
}

/* Centered crop or zero padding to the sizes given for axes; an odd rest goes to the end. */
bool rule_center_crop_pad(struct rule *r)
{
    value_id x = rule_in(r, 0);
    int32_t axis;
    uint32_t n, n_axes;
    const struct dims dims = b_dims(r->b, x);
    const expr_id *want;
    const int64_t *axes = rule_ints(r, "axes", &n_axes);
    expr_id lo[RANK_MAX], hi[RANK_MAX], two = ex_const(r->b->x, 2), zero = ex_const(r->b->x, 0);
    want = b_elems(r->b, v_exactly(r->b, rule_in(r, 1), axes ? n_axes : (uint32_t)dims.rank), 0, INT32_MAX, &n);
    if (!dims.d || !want)
        return false;
    if (n != (axes ? n_axes : (uint32_t)dims.rank))
        return rule_bad(r, "%u sizes for %u axes", n, axes ? n_axes : (uint32_t)dims.rank);
    for (int32_t d = 0; d < dims.rank; d++)
        lo[d] = hi[d] = zero;
    for (uint32_t k = 0; k < n; k++) {
        if (!rule_axis(r, axes ? axes[k] : k, dims.rank, &axis))
            return false;
        expr_id grow = ex_sub(r->b->x, want[k], dims.d[axis]), cut = ex_mulc(r->b->x, grow, -1);
        expr_id front = ex_select(r->b->x, ex_lt(r->b->x, grow, zero), ex_mulc(r->b->x, ex_div(r->b->x, cut, two), -1),
                                  ex_div(r->b->x, grow, two));
        lo[axis] = front;
        hi[axis] = ex_sub(r->b->x, grow, front);
    }
    return rule_result(r, pad_signed(r, x, (value_id){0}, lo, hi, "constant"));
}

/* ---- DepthToSpace, SpaceToDepth, ReverseSequence ---------------------------------------------------------------- */

/* Its square must fit; no tensor has so many channels. */
static bool block_fits(struct rule *r, int32_t rank, int64_t size)
{
    return rank == 4 && size >= 1 && size <= INT32_MAX
               ? true
               : rule_bad(r, "input of rank %d, blocksize %lld", (int)rank, (long long)size);
}

bool rule_depth_to_space(struct rule *r)
{
    value_id x = rule_in(r, 0);
    const struct dims d = b_dims(r->b, x);
    int64_t s = rule_int(r, "blocksize", 0);
    bool crd = rule_str_is(r, "mode", "DCR", "CRD");
    if (!d.d || !block_fits(r, d.rank, s))
        return false;
    expr_id block = ex_const(r->b->x, s), depth = ex_div(r->b->x, d.d[1], ex_const(r->b->x, s * s));
    expr_id apart[6] = {d.d[0], crd ? depth : block, block, crd ? block : depth, d.d[2], d.d[3]};
    static const int64_t perm_dcr[] = {0, 3, 4, 1, 5, 2}, perm_crd[] = {0, 1, 4, 2, 5, 3};
    value_id y = b_transpose(r->b, b_reshape(r->b, x, apart, 6), crd ? perm_crd : perm_dcr);
    expr_id out[4] = {d.d[0], depth, ex_mulc(r->b->x, d.d[2], s), ex_mulc(r->b->x, d.d[3], s)};
    return rule_result(r, b_reshape(r->b, y, out, 4));
}

bool rule_space_to_depth(struct rule *r)
{
    value_id x = rule_in(r, 0);
    const struct dims d = b_dims(r->b, x);
    int64_t s = rule_int(r, "blocksize", 0);
    if (!d.d || !block_fits(r, d.rank, s))
        return false;
    expr_id block = ex_const(r->b->x, s), h = ex_div(r->b->x, d.d[2], block), w = ex_div(r->b->x, d.d[3], block);
    expr_id apart[6] = {d.d[0], d.d[1], h, block, w, block};
    static const int64_t perm[] = {0, 3, 5, 1, 2, 4};
    expr_id out[4] = {d.d[0], ex_mulc(r->b->x, d.d[1], s * s), h, w};
    return rule_result(r, b_reshape(r->b, b_transpose(r->b, b_reshape(r->b, x, apart, 6), perm), out, 4));
}

/* Position t of sequence n comes from len[n] - 1 - t while t < len[n]. */
bool rule_reverse_sequence(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0), lens = rule_in(r, 1);
    int64_t time_axis = rule_int(r, "time_axis", 0), batch_axis = rule_int(r, "batch_axis", 1);
    const struct dims dims = b_dims(b, x);
    if (!dims.d || !lens.i)
        return false;
    if (time_axis + batch_axis != 1 || dims.rank < 2)
        return rule_bad(r, "time_axis and batch_axis must be 0 and 1 in some order");
    value_id t = v_iota(b, ELEM_I64, dims.d, dims.rank, (int32_t)time_axis);
    value_id len = b_broadcast(b, v_along(b, b_convert(b, lens, ELEM_I64), (int32_t)batch_axis, dims.rank), dims.d,
                               dims.rank);
    value_id back = b_binary(b, OP_SUB, b_binary_f64(b, OP_SUB, len, 1), t);
    value_id idx = b_select(b, b_binary(b, OP_LT, t, len), back, t);
    return rule_result(r, b_gather_elements(b, x, idx, (int32_t)time_axis));
}

/* ---- Trilu ------------------------------------------------------------------------------------------------------- */

bool rule_trilu(struct rule *r)
{
    struct builder *b = r->b;
    value_id x = rule_in(r, 0);
    const struct dims dims = b_dims(b, x);
    bool upper = rule_int(r, "upper", 1) != 0;
    if (!dims.d)
        return false;
    if (dims.rank < 2)
        return rule_bad(r, "rank %d", (int)dims.rank);
    value_id row = v_iota(b, ELEM_I64, dims.d + dims.rank - 2, 2, 0),
             col = v_iota(b, ELEM_I64, dims.d + dims.rank - 2, 2, 1);
    if (rule_has(r, 1))
        row = b_binary(b, OP_ADD, row, v_scalar(b, rule_in(r, 1)));
    value_id keep = upper ? b_binary(b, OP_LE, row, col) : b_binary(b, OP_LE, col, row);
    return rule_result(r, b_select(b, keep, x, b_splat_like(b, x, 0)));
}
