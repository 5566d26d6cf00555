/* Convolutions by weights that are mostly zeros, as sums of parts of lines.
 *
 *   conv(x [b, c, ...], w)       ->   rows without gaps(sparse(windows(planes(x))))
 *
 * The operand lies in planes, one for each channel (with strides s, one for each remainder of s: phases): what tap
 * (y, x) of a channel reads at a point lies a constant number of elements after the point. A plane begins and ends with
 * zeros, and each of its rows ends with a gap of zeros, which is the padding of the next row as well. Results keep the
 * gaps, so that maps and convolutions after them go on with lines (sparse_lines.c); what lies in gaps is not a result.
 *
 * Planes are the operand's lines between zeros, its gaps cleared; or the operand of the product before it is put into
 * planes, and the product computed anew; or else they are a padded copy.
 */
#include "passes/graph/sparse.h"
#include "passes/module/access_function.h"

enum { EXTENT_MOST = 1 << 24 };

/* A convolution: spatial dims of operand and result, kernel; where taps read. */
struct planes {
    struct lines at;   /* of the result */
    int64_t in[SPATIAL_MOST], kernel[SPATIAL_MOST], lo[SPATIAL_MOST];
    int64_t apart[SPATIAL_MOST]; /* elements between neighbours of a plane along a dim */
    int64_t before, beyond; /* elements that taps read before a point, at most, and after it */
    const int64_t *strides, *dilations;
    int64_t taps, groups, channels, per_group, phases;
    int64_t size, first; /* elements of a plane; where its first point lies */
    int64_t head, rows;  /* of a padded copy: rows before the first point; all rows */
    bool known, pointwise;
};

static int64_t round_up(int64_t n)
{
    return (n + LINE_ELEMENTS - 1) / LINE_ELEMENTS * LINE_ELEMENTS;
}

/* ---- geometry ---------------------------------------------------------------------------------------------------- */

/* What tap k of dim d reads at point 0: so many elements after the first one of a phase. */
static int64_t tap_at(const struct planes *p, int32_t d, int64_t k, int64_t *phase)
{
    int64_t at = k * p->dilations[d] - p->lo[d], s = p->strides[d], place = at >= 0 ? at / s : -((s - 1 - at) / s);
    *phase = at - place * s;
    return place;
}

static bool planes_of(const struct module *m, const struct node *n, struct planes *p)
{
    struct exprs *x = m->ctx->exprs;
    const struct type *t = value_type(m->g, n->in[0]), *w = value_type(m->g, n->in[1]),
                      *y = value_type(m->g, n->out[0]);
    uint32_t c;
    const expr_id *lo = node_exprs(n, "lo", &c), *hi = node_exprs(n, "hi", &c);
    const int64_t *xdil = node_ints(n, "xdil", &c);
    *p = (struct planes){.at.n = t->rank - 2, .taps = 1, .phases = 1, .known = true, .pointwise = true};
    p->strides = node_ints(n, "strides", &c);
    p->dilations = node_ints(n, "dilations", &c);
    p->groups = node_int(n, "groups", 1);
    if (p->at.n < 1 || p->at.n > SPATIAL_MOST || !ex_is_const(x, t->dims[1], &p->channels) ||
        !ex_is_const(x, w->dims[1], &p->per_group))
        return false;
    for (int32_t d = 0; d < p->at.n; d++) {
        if (xdil[d] != 1 || !ex_is_const(x, w->dims[2 + d], &p->kernel[d]) || !mul_i64(p->taps, p->kernel[d], &p->taps))
            return false;
        p->pointwise &= p->kernel[d] == 1 && ex_is(x, lo[d], 0) && ex_is(x, hi[d], 0);
        p->known &= ex_is_const(x, t->dims[2 + d], &p->in[d]) && ex_is_const(x, y->dims[2 + d], &p->at.out[d]) &&
                    ex_is_const(x, lo[d], &p->lo[d]) && p->lo[d] >= 0 && p->lo[d] < EXTENT_MOST && p->in[d] > 0 &&
                    p->in[d] < EXTENT_MOST && p->at.out[d] > 0 && p->at.out[d] < EXTENT_MOST &&
                    p->kernel[d] < EXTENT_MOST && p->strides[d] < EXTENT_MOST &&
                    (p->kernel[d] - 1) * p->dilations[d] < EXTENT_MOST;
    }
    p->pointwise &= p->groups == 1;
    return p->known || p->pointwise;
}

/* Where rows have these pitches (0: as short as can be): what taps read before and after a point. false: rows are too
 * short, so that a tap would read the next row's points. */
static bool planes_pitch(struct planes *p, const int64_t *pitch)
{
    int64_t after[SPATIAL_MOST], front[SPATIAL_MOST], phase, apart = 1;
    p->before = p->beyond = 0;
    for (int32_t d = p->at.n - 1; d >= 0; d--) {
        int64_t first = tap_at(p, d, 0, &phase), last = tap_at(p, d, p->kernel[d] - 1, &phase),
                count = (p->in[d] + p->strides[d] - 1) / p->strides[d];
        front[d] = first < 0 ? -first : 0;
        after[d] = last > 0 ? last : 0;
        int64_t least = p->at.out[d] + after[d];
        least = count + front[d] > least ? count + front[d] : least;
        if (d && pitch && pitch[d] < least)
            return false;
        p->at.pitch[d] = !d ? p->at.out[0] : pitch ? pitch[d] : least;
        p->apart[d] = apart;
        int64_t reach;
        if (!mul_i64(front[d], apart, &reach) || !add_i64(p->before, reach, &p->before) ||
            !mul_i64(after[d], apart, &reach) || !add_i64(p->beyond, reach, &p->beyond) ||
            !mul_i64(apart, p->at.pitch[d], &apart))
            return false;
    }
    p->at.points = apart;
    return apart < INT32_MAX / 2 && p->before < INT32_MAX / 4 && p->beyond < INT32_MAX / 4;
}

static bool planes_fit(const struct planes *p, int64_t channels)
{
    int64_t all;
    return mul_i64(channels, p->phases, &all) && mul_i64(all, p->size, &all) && all <= INT32_MAX;
}

/* The operand's lines between zeros. */
static bool planes_of_lines(struct planes *p, const struct lines *at, int64_t masks)
{
    for (int32_t d = 0; d < p->at.n; d++)
        if (p->strides[d] != 1)
            return false;
    if (at->points > masks || !planes_pitch(p, at->pitch) || at->points < p->at.points)
        return false;
    p->at.points = at->points;
    p->first = round_up(p->before);
    p->size = round_up(p->first + at->points + p->beyond);
    return planes_fit(p, p->channels);
}

/* A padded copy, by whole rows. */
static bool planes_of_copy(struct planes *p)
{
    if (!planes_pitch(p, NULL))
        return false;
    p->phases = 1;
    for (int32_t d = 0; d < p->at.n; d++)
        if (!mul_i64(p->phases, p->strides[d], &p->phases))
            return false;
    p->at.points = round_up(p->at.points);
    p->head = (p->before + p->apart[0] - 1) / p->apart[0];
    p->first = p->head * p->apart[0];
    p->rows = whole_rows(p->first + p->at.points + p->beyond, p->apart[0], p->phases);
    p->size = p->rows * p->apart[0];
    return planes_fit(p, p->channels);
}

/* Where tap `tap` of a channel reads in all planes at point 0. */
static int64_t tap_place(const struct planes *p, int64_t channel, int64_t tap)
{
    int64_t phase[SPATIAL_MOST], at = p->first, of = 0;
    for (int32_t d = p->at.n - 1; d >= 0; d--) {
        at += tap_at(p, d, tap % p->kernel[d], &phase[d]) * p->apart[d];
        tap /= p->kernel[d];
    }
    for (int32_t d = 0; d < p->at.n; d++)
        of = of * p->strides[d] + phase[d];
    return (channel * p->phases + of) * p->size + at;
}

/* Is an element of the plane of a phase, so many after the first point, one of the operand? */
static bool is_point(const struct planes *p, int64_t phase, int64_t at)
{
    bool inside = at >= 0;
    for (int32_t d = p->at.n - 1; d >= 0 && inside; d--) {
        int64_t i = d ? at % p->at.pitch[d] : at;
        at /= p->at.pitch[d];
        inside = i * p->strides[d] + phase % p->strides[d] < p->in[d];
        phase /= p->strides[d];
    }
    return inside;
}

/* ---- operands ---------------------------------------------------------------------------------------------------- */

/* line [b, c, phases * count], of which each phase begins at `first` after its first point, with zeros in the gaps. */
static value_id clear_gaps(struct sparse *s, struct builder *b, const struct planes *p, value_id line, int64_t first,
                           int64_t count)
{
    int64_t size = p->phases * count, points = 0;
    uint8_t *inside = NEW_ARRAY(&b->g->arena, uint8_t, size);
    for (int64_t i = 0; i < size; i++)
        points += inside[i] = is_point(p, i / count, first + i % count);
    if (points == size)
        return line;
    s->masks -= size;
    return b_select(b, b_const(b, ELEM_BOOL, &size, 1, inside), line, b_scalar_f64(b, ELEM_F32, 0));
}

static value_id flat_line(struct builder *b, const struct planes *p, value_id v, int64_t channels)
{
    return b_reshape(b, v, ARRAY(expr_id, b_dim(b, v, 0), ex_const(b->x, channels * p->phases * p->size)));
}

static value_id planes_of_line(struct sparse *s, struct builder *b, const struct planes *p, value_id line)
{
    value_id parts[3];
    int64_t after = p->size - p->first - p->at.points;
    uint32_t n = 0;
    expr_id dims[3] = {b_dim(b, line, 0), ex_const(b->x, p->channels), ex_const(b->x, p->first)};
    if (p->first)
        parts[n++] = b_splat_f64(b, ELEM_F32, 0, dims, 3);
    parts[n++] = clear_gaps(s, b, p, line, 0, p->at.points);
    dims[2] = ex_const(b->x, after);
    if (after)
        parts[n++] = b_splat_f64(b, ELEM_F32, 0, dims, 3);
    return flat_line(b, p, n > 1 ? b_concat(b, parts, n, 2) : b_copy(b, parts[0]), p->channels);
}

/* Padded, cut to whole rows of phases: [b, channels, phases ..., rows ...], copied. */
static value_id planes_copied(struct builder *b, const struct planes *p, value_id v)
{
    struct exprs *x = b->x;
    const struct dims of = b_dims(b, v);
    expr_id lo[RANK_MAX], hi[RANK_MAX], split[RANK_MAX], zero = ex_const(x, 0);
    int64_t perm[RANK_MAX] = {0, 1}, channels = 0;
    lo[0] = hi[0] = lo[1] = hi[1] = zero;
    split[0] = of.d[0];
    split[1] = of.d[1];
    ex_is_const(x, of.d[1], &channels);
    for (int32_t d = 0; d < p->at.n; d++) {
        int64_t s = p->strides[d], front = d ? 0 : p->head * s, rows = d ? p->at.pitch[d] : p->rows,
                above = rows * s - p->in[d] - front;
        if (above < 0)
            v = b_slice_axis(b, v, 2 + d, zero, ex_const(x, p->in[d] + above));
        lo[2 + d] = ex_const(x, front);
        hi[2 + d] = ex_const(x, above > 0 ? above : 0);
        split[2 + 2 * d] = ex_const(x, rows);
        split[3 + 2 * d] = ex_const(x, s);
        perm[2 + d] = 3 + 2 * d;
        perm[2 + p->at.n + d] = 2 + 2 * d;
    }
    v = b_pad(b, v, (value_id){0}, lo, hi, "constant");
    if (p->phases > 1)
        v = b_transpose(b, b_reshape(b, v, split, 2 + 2 * p->at.n), perm);
    return flat_line(b, p, b_copy(b, v), channels);
}

/* The operand of a product before, in planes: [b, channels, phases and points]. */
static value_id operand_in_planes(struct builder *b, void *user, const struct product *of)
{
    const struct planes *p = user;
    expr_id in[SPATIAL_MOST];
    for (int32_t d = 0; d < p->at.n; d++)
        in[d] = ex_const(b->x, p->in[d]);
    value_id v = planes_copied(b, p, product_points(b, of, in));
    const expr_id dims[3] = {b_dim(b, of->operand, 0), b_dim(b, of->operand, 1), ex_const(b->x, p->phases * p->size)};
    return b_reshape(b, v, dims, 3);
}

static value_id planes_again(struct sparse *s, struct builder *b, struct planes *p, value_id line)
{
    struct again again = {operand_in_planes, p, p->phases * p->size};
    value_id v = flat_again(s, b, line, &again);
    return flat_line(b, p, b_copy(b, clear_gaps(s, b, p, v, -p->first, p->size)), p->channels);
}

/* ---- convolutions ------------------------------------------------------------------------------------------------ */

/* One tap: lines of the operand as they are, or a copy of the points that are read. */
static value_id pointwise(struct sparse *s, node_id id, const struct planes *p, const struct rows *r)
{
    const struct node n = *graph_node(s->m->g, id);
    struct builder b = builder_before(s->m->g, id);
    const struct type y = *value_type(b.g, n.out[0]);
    const struct flat *f = flat_of(s, n.in[0]);
    struct lines at = p->at;
    struct product of = {.operand = n.in[0], .strides = p->strides, .rows = *r};
    bool same = true;
    expr_id dims[3] = {y.dims[0], ex_const(b.x, p->channels), ex_const(b.x, 1)};
    for (int32_t d = 0; d < at.n; d++) {
        same &= p->strides[d] == 1;
        dims[2] = ex_mul(b.x, dims[2], y.dims[2 + d]);
        at.pitch[d] = at.out[d];
    }
    bool bytes = r->elem != ELEM_F32;
    if (f && same && !bytes) {
        at = f->at;
        of.line = sparse_product(&b, r, f->line);
    } else {
        value_id v = b_reshape(&b, product_points(&b, &of, y.dims + 2), dims, 3);
        of.line = sparse_product(&b, r, b_copy(&b, v));
        if (bytes || !p->known || !ex_is_const(b.x, dims[2], &at.points))
            return b_reshape(&b, of.line, y.dims, y.rank);
    }
    product_add(s, &of);
    return flat_value(s, &b, of.line, &at, true, y.dims);
}

value_id sparse_conv(struct sparse *s, node_id id)
{
    struct module *m = s->m;
    const struct node n = *graph_node(m->g, id);
    struct exprs *x = m->ctx->exprs;
    const struct type w = *value_type(m->g, n.in[1]), y = *value_type(m->g, n.out[0]);
    struct planes p;
    struct rows r = {.by_rows = true};
    int64_t size, points = POINTS_LEAST;
    if (!planes_of(m, &n, &p) || !ex_is_const(x, w.dims[0], &r.n) || !mul_i64(p.taps, p.per_group, &r.k) ||
        !mul_i64(r.k, r.n, &size) || (!p.pointwise && w.elem != ELEM_F32))
        return (value_id){0};
    expr_id all = ex_const(x, 1);
    for (int32_t d = 0; d < p.at.n; d++)
        all = ex_mul(x, all, y.dims[2 + d]);
    bool known = ex_is_const(x, all, &points);
    if (is_small(m, size, points) || (known && points < (m->asked.always ? 1 : POINTS_LEAST)))
        return (value_id){0};
    const struct flat *f = flat_of(s, n.in[0]);
    bool in_place = f && (p.pointwise || planes_of_lines(&p, &f->at, s->masks)), again = false;
    if (!in_place && !p.pointwise) {
        int64_t channels = f && f->alone && graph_value(m->g, n.in[0])->n_uses == 1 ? again_channels(s, f->line, 0) : 0;
        if (!planes_of_copy(&p))
            return (value_id){0};
        again = channels > 0 && channels <= p.channels && planes_fit(&p, channels) && p.size <= s->masks / p.phases;
    }
    bool winograd = p.taps == 9 && p.at.n == 2 && p.strides[0] == 1 && p.strides[1] == 1 && p.kernel[0] == 3;
    double dense = conv_depthwise(m->g, &n) ? COST_DEPTHWISE : winograd ? COST_WINOGRAD : 1;
    double copied = in_place || again ? 0 : (double)points * (double)(p.channels * p.phases + r.n);
    if (!rows_read(m, n.in[1], &r) ||
        !(m->asked.always || pays(&r, (double)points, copied, p.taps > 1 ? COST_SHIFTED : COST_ELEMENT, dense)))
        return (value_id){0};
    if (p.pointwise)
        return pointwise(s, id, &p, &r);
    for (int64_t row = 0; row < r.n; row++)
        for (int32_t i = r.starts[row]; i < r.starts[row + 1]; i++) {
            int64_t channel = row / (r.n / p.groups) * p.per_group + r.places[i] / p.taps;
            r.places[i] = (int32_t)tap_place(&p, channel, r.places[i] % p.taps);
        }
    struct builder b = builder_before(m->g, id);
    value_id v = in_place ? planes_of_line(s, &b, &p, f->line)
                 : again  ? planes_again(s, &b, &p, f->line)
                          : planes_copied(&b, &p, n.in[0]);
    struct attr attr = attr_int("size", p.at.points);
    v = sparse_product(&b, &r, b_op(&b, OP_WINDOWS, &v, 1, &attr, 1));
    return flat_value(s, &b, v, &p.at, false, y.dims);
}
