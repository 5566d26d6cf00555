/* sparsify: contractions with a constant that is mostly zeros read and multiply its other elements only.
 *
 *   dot(x [m, k], w [k, n])      ->   transpose(sparse(transpose(x)))
 *   conv(x [b, c, ...], w)       ->   slice(reshape(sparse(windows(x by phases, padded, flat))))
 *
 *   sparse(x [k, l])             =    segments(v[j] * gather(x, i)[j, l], starts)
 *
 * v has the elements of the constant that are not zero, row after row, i their places along k, and starts says where
 * each row begins: compressed sparse rows (CSR). Lanes lie along l: points of an image, rows of a product. A step loads
 * a place and an element, which four to eight vectors of points share, and is one multiply-add for each. Everything is
 * core operators, so the rest of the compiler knows no sparse constants. Results differ from dense ones in the order of
 * sums, and where zeros would have met an infinity or NaN.
 *
 * A convolution reads its operand, padded, as one flat row for each image: what tap (y, x) of channel c reads at a
 * point lies a constant number of elements after the point. With strides s the rows of each remainder of s are apart
 * (phases). Between two lines of the result are a few points that nobody reads.
 *
 * In and out: a legal graph. After fold-factors, which needs the dense weights.
 */
#include "ir/build/build.h"
#include "passes/module/access_function.h"
#include "passes/module/compressed.h"
#include "passes/module/module.h"

#include <string.h>

enum {
    PIECE = 4096,
    POINTS_LEAST = 32,       /* two vectors */
    ELEMENTS_LEAST = 4096,   /* of the constant */
    ELEMENTS_MOST = 1 << 28,
    SPATIAL_MOST = 3
};
#define ZEROS_LEAST 0.6

/* Costs in multiply-adds of a dense kernel (measured, AVX-512): */
#define COST_ELEMENT 2.6  /* a non-zero element times a point, */
#define COST_SHIFTED 4.0  /* which is not aligned, as it lies beside the point of a tap */
#define COST_COPY 10.0    /* a point of an operand or result that is copied */
#define COST_WINOGRAD 0.5 /* of the multiply-adds of a 3 x 3 convolution */

/* A constant [n, k] by the elements of its rows that are not zero, row after row. */
struct rows {
    int64_t n, k, all; /* rows; elements of one; non-zero elements of all */
    bool by_rows;      /* the constant is [n, k], else [k, n] */
    int32_t *starts;   /* [n + 1] */
    float *values;     /* [all] */
    int32_t *places;   /* [all] */
};

/* ---- the constant ------------------------------------------------------------------------------------------------ */

/* Element e of the constant, in the order of its dims, is one of a row. */
static void element_place(const struct rows *r, int64_t e, int64_t *row, int64_t *place)
{
    *row = r->by_rows ? e / r->k : e % r->n;
    *place = r->by_rows ? e % r->k : e / r->n;
}

/* Called for each element that is not zero, in the order of the constant's dims. */
typedef void element_fn(struct rows *, int64_t row, int64_t place, float value);

static bool elements_read(struct module *m, value_id w, struct rows *r, element_fn *each)
{
    float piece[PIECE];
    int64_t size = r->n * r->k, row, place;
    for (int64_t at = 0; at < size; at += PIECE) {
        int64_t count = size - at < PIECE ? size - at : PIECE;
        if (!const_read(m->g, w, at, count, piece))
            return false;
        for (int64_t i = 0; i < count; i++)
            if (piece[i] != 0) {
                element_place(r, at + i, &row, &place);
                each(r, row, place, piece[i]);
            }
    }
    return true;
}

static void element_count(struct rows *r, int64_t row, int64_t place, float value)
{
    (void)place, (void)value;
    r->starts[row + 1]++;
    r->all++;
}

/* starts[row] is where the row's next element goes; in the end, where the next row begins. */
static void element_add(struct rows *r, int64_t row, int64_t place, float value)
{
    r->values[r->starts[row]] = value;
    r->places[r->starts[row]++] = (int32_t)place;
}

/* Is the constant worth reading as a whole? */
static bool has_zeros(struct module *m, value_id w, int64_t size)
{
    float piece[PIECE];
    int64_t count = size < PIECE ? size : PIECE, zeros = 0;
    if (constant_is_compressed(m, w, -1) || !const_read(m->g, w, (size - count) / 2, count, piece))
        return false;
    for (int64_t i = 0; i < count; i++)
        zeros += piece[i] == 0;
    return (double)zeros >= ZEROS_LEAST / 2 * (double)count;
}

/* r: n, k and by_rows. */
static bool rows_read(struct module *m, value_id w, struct rows *r)
{
    int64_t size = r->n * r->k;
    if (!has_zeros(m, w, size))
        return false;
    r->starts = NEW_ARRAY(m->arena, int32_t, r->n + 1);
    if (!elements_read(m, w, r, element_count) || !r->all || (double)r->all > (1 - ZEROS_LEAST) * (double)size)
        return false;
    r->values = NEW_ARRAY(m->arena, float, r->all);
    r->places = NEW_ARRAY(m->arena, int32_t, r->all);
    for (int64_t i = 0; i < r->n; i++)
        r->starts[i + 1] += r->starts[i];
    if (!elements_read(m, w, r, element_add))
        return false;
    memmove(r->starts + 1, r->starts, (size_t)r->n * sizeof *r->starts);
    r->starts[0] = 0;
    return true;
}

/* ---- products of the rows ---------------------------------------------------------------------------------------- */

/* x [..., t, l], of which the places count t: [..., n, l]. */
static value_id sparse_product(struct builder *b, const struct rows *r, value_id x)
{
    int64_t all[2] = {r->all, 1}, lines = r->n + 1;
    value_id places = b_const(b, ELEM_I32, all, 1, r->places), values = b_const(b, ELEM_F32, all, 2, r->values);
    int32_t axis = b_dims(b, x).rank - 2;
    value_id products = b_binary(b, OP_MUL, b_gather(b, x, places, axis), values);
    value_id in[2] = {products, b_const(b, ELEM_I32, &lines, 1, r->starts)};
    struct attr attr = attr_int("axis", axis);
    return b_op(b, OP_SEGMENTS, in, 2, &attr, 1);
}

/* Is the sparse form of a contraction at so many points, copied: of operand and result, faster? */
static bool pays(const struct rows *r, double points, double copied, double each, double dense)
{
    double sparse = (double)r->all * points * each + copied * COST_COPY;
    return sparse < (double)r->n * (double)r->k * points * dense;
}

/* A product of f32 by a constant, which no option makes narrower: options come first, whatever the number of rows. */
static bool is_f32_contraction(const struct module *m, node_id id)
{
    const struct node *n = graph_node(m->g, id);
    return !n->dead && (n->op == OP_DOT || n->op == OP_CONV) && n->n_in == 2 && !node_attr(n, "acc") &&
           !node_attr(n, "part") && value_is_const(m->g, n->in[1]) && !value_is_const(m->g, n->in[0]) &&
           value_type(m->g, n->in[0])->elem == ELEM_F32 && value_type(m->g, n->in[1])->elem == ELEM_F32 &&
           precision_wanted(m, id) == PRECISION_F32 && weights_wanted(m, id) == WEIGHTS_AS_THEY_ARE;
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

static value_id sparse_dot(struct module *m, node_id id)
{
    const struct node n = *graph_node(m->g, id);
    struct exprs *x = m->ctx->exprs;
    const struct type *t = value_type(m->g, n.in[0]), *w = value_type(m->g, n.in[1]);
    struct dot_dims d;
    struct rows r;
    uint32_t count;
    int64_t k, cols, points, size, rank = t->rank;
    expr_id back[RANK_MAX], flat[2] = {ex_const(x, 1)};
    if (w->rank != 2 || !dot_dims(m->g, &n, 1, &d) || d.n_batch || !ex_is_const(x, w->dims[d.contract], &k) ||
        !ex_is_const(x, w->dims[d.free], &cols) || !mul_i64(k, cols, &size) ||
        size < (m->asked.always ? 1 : ELEMENTS_LEAST) || size > ELEMENTS_MOST ||
        node_ints(&n, "contract_a", &count)[0] != rank - 1 || count != 1)
        return (value_id){0};
    for (int32_t i = 0; i + 1 < rank; i++) {
        back[i] = t->dims[i];
        flat[0] = ex_mul(x, flat[0], t->dims[i]);
    }
    back[rank - 1] = ex_const(x, cols);
    flat[1] = ex_const(x, k);
    if (!ex_is_const(x, flat[0], &points))
        points = POINTS_LEAST;
    r = (struct rows){.n = cols, .k = k, .by_rows = d.contract == 1};
    if (points < (m->asked.always ? 1 : POINTS_LEAST) || !rows_read(m, n.in[1], &r) ||
        !(m->asked.always || pays(&r, (double)points, (double)points * (double)(k + cols), COST_ELEMENT, 1)))
        return (value_id){0};
    struct builder b = builder_before(m->g, id);
    const int64_t turn[2] = {1, 0};
    value_id a = b_copy(&b, b_transpose(&b, b_reshape(&b, n.in[0], flat, 2), turn));
    return b_reshape(&b, b_transpose(&b, sparse_product(&b, &r, a), turn), back, (int32_t)rank);
}

/* ---- convolutions ------------------------------------------------------------------------------------------------ */

/* A convolution's spatial dims: of the operand, the result, the kernel; rows of a phase. */
struct planes {
    int32_t n;
    int64_t in[SPATIAL_MOST], out[SPATIAL_MOST], kernel[SPATIAL_MOST], lo[SPATIAL_MOST], rows[SPATIAL_MOST];
    const int64_t *strides, *dilations;
    int64_t channels, phases, size, points; /* elements of a phase; of a row of results, some of which nobody reads */
    bool pointwise;
};

static bool planes_of(const struct module *m, const struct node *n, struct planes *p)
{
    struct exprs *x = m->ctx->exprs;
    const struct type *t = value_type(m->g, n->in[0]), *w = value_type(m->g, n->in[1]),
                      *y = value_type(m->g, n->out[0]);
    uint32_t c;
    const expr_id *lo = node_exprs(n, "lo", &c), *hi = node_exprs(n, "hi", &c);
    const int64_t *xdil = node_ints(n, "xdil", &c);
    *p = (struct planes){.n = t->rank - 2, .phases = 1, .size = 1, .points = 1, .pointwise = true};
    p->strides = node_ints(n, "strides", &c);
    p->dilations = node_ints(n, "dilations", &c);
    if (p->n < 1 || p->n > SPATIAL_MOST || node_int(n, "groups", 1) != 1 || !ex_is_const(x, t->dims[1], &p->channels))
        return false;
    for (int32_t d = 0; d < p->n; d++) {
        if (xdil[d] != 1 || !ex_is_const(x, w->dims[2 + d], &p->kernel[d]))
            return false;
        p->pointwise &= p->kernel[d] == 1 && ex_is(x, lo[d], 0) && ex_is(x, hi[d], 0);
    }
    int64_t beyond = 0;
    for (int32_t d = 0; d < p->n && !p->pointwise; d++) {
        int64_t reach = (p->kernel[d] - 1) * p->dilations[d] / p->strides[d], whole;
        if (!ex_is_const(x, t->dims[2 + d], &p->in[d]) || !ex_is_const(x, y->dims[2 + d], &p->out[d]) ||
            !ex_is_const(x, lo[d], &p->lo[d]) || p->lo[d] < 0 || p->in[d] < 1 || p->out[d] < 1 ||
            !add_i64(p->out[d], reach, &p->rows[d]) || !mul_i64(p->rows[d], p->strides[d], &whole) || whole <= p->lo[d])
            return false;
        beyond += d ? reach : 0;
    }
    p->rows[0] += beyond > 0; /* the last points that nobody reads */
    for (int32_t d = 0; d < p->n && !p->pointwise; d++)
        if (!mul_i64(p->size, p->rows[d], &p->size) || !mul_i64(p->phases, p->strides[d], &p->phases) ||
            !mul_i64(p->points, d ? p->rows[d] : p->out[d], &p->points))
            return false;
    int64_t all;
    return mul_i64(p->channels, p->phases, &all) && mul_i64(all, p->size, &all) && all <= INT32_MAX;
}

/* Where tap `tap` of a channel reads, beside the point, in the flat row. */
static int64_t tap_place(const struct planes *p, int64_t channel, int64_t tap)
{
    int64_t phase = 0, place = 0, at[SPATIAL_MOST];
    for (int32_t d = p->n; d > 0; d--) {
        at[d - 1] = tap % p->kernel[d - 1] * p->dilations[d - 1];
        tap /= p->kernel[d - 1];
    }
    for (int32_t d = 0; d < p->n; d++) {
        phase = phase * p->strides[d] + at[d] % p->strides[d];
        place = place * p->rows[d] + at[d] / p->strides[d];
    }
    return (channel * p->phases + phase) * p->size + place;
}

/* The operand with its padding, cut to whole rows of phases: [b, channels, phases ..., rows ...], copied, and flat. */
static value_id flat_planes(struct builder *b, const struct planes *p, value_id v)
{
    struct exprs *x = b->g->ctx->exprs;
    const struct dims of = b_dims(b, v);
    expr_id lo[RANK_MAX], hi[RANK_MAX], split[RANK_MAX], zero = ex_const(x, 0), flat[2] = {of.d[0]};
    int64_t perm[RANK_MAX] = {0, 1};
    lo[0] = hi[0] = lo[1] = hi[1] = zero;
    split[0] = of.d[0];
    split[1] = of.d[1];
    for (int32_t d = 0; d < p->n; d++) {
        int64_t whole = p->rows[d] * p->strides[d], above = whole - p->in[d] - p->lo[d];
        if (above < 0)
            v = b_slice_axis(b, v, 2 + d, zero, ex_const(x, p->in[d] + above));
        lo[2 + d] = ex_const(x, p->lo[d]);
        hi[2 + d] = ex_const(x, above > 0 ? above : 0);
        split[2 + 2 * d] = ex_const(x, p->rows[d]);
        split[3 + 2 * d] = ex_const(x, p->strides[d]);
        perm[2 + d] = 3 + 2 * d;
        perm[2 + p->n + d] = 2 + 2 * d;
    }
    v = b_pad(b, v, (value_id){0}, lo, hi, "constant");
    if (p->phases > 1)
        v = b_transpose(b, b_reshape(b, v, split, 2 + 2 * p->n), perm);
    flat[1] = ex_const(x, p->channels * p->phases * p->size);
    return b_reshape(b, b_copy(b, v), flat, 2);
}

/* What kernels of one element read: [b, channels, points]. */
static value_id read_points(struct builder *b, const struct planes *p, value_id v, const expr_id *dims, expr_id points)
{
    struct exprs *x = b->g->ctx->exprs;
    expr_id starts[RANK_MAX], sizes[RANK_MAX], flat[3] = {dims[0], ex_const(x, p->channels), points};
    int64_t steps[RANK_MAX];
    for (int32_t d = 0; d < p->n + 2; d++) {
        starts[d] = ex_const(x, 0);
        sizes[d] = d == 1 ? flat[1] : dims[d];
        steps[d] = d < 2 ? 1 : p->strides[d - 2];
    }
    return b_reshape(b, b_slice(b, v, starts, sizes, steps), flat, 3);
}

static value_id sparse_conv(struct module *m, node_id id)
{
    const struct node n = *graph_node(m->g, id);
    struct exprs *x = m->ctx->exprs;
    const struct type w = *value_type(m->g, n.in[1]), y = *value_type(m->g, n.out[0]);
    struct planes p;
    struct rows r;
    int64_t channels, size, taps = 1, points = POINTS_LEAST;
    if (!planes_of(m, &n, &p) || !ex_is_const(x, w.dims[0], &channels))
        return (value_id){0};
    for (int32_t d = 0; d < p.n; d++)
        if (!mul_i64(taps, p.kernel[d], &taps))
            return (value_id){0};
    int64_t k;
    bool known = true;
    if (!mul_i64(taps, p.channels, &k) || !mul_i64(k, channels, &size) ||
        size < (m->asked.always ? 1 : ELEMENTS_LEAST) || size > ELEMENTS_MOST)
        return (value_id){0};
    expr_id places = ex_const(x, 1);
    for (int32_t d = 0; d < p.n; d++)
        places = ex_mul(x, places, y.dims[2 + d]);
    known = ex_is_const(x, places, &points);
    r = (struct rows){.n = channels, .k = k, .by_rows = true};
    bool winograd = taps == 9 && p.n == 2 && p.strides[0] == 1 && p.strides[1] == 1 && p.kernel[0] == 3;
    if ((known && points < (m->asked.always ? 1 : POINTS_LEAST)) || !rows_read(m, n.in[1], &r) ||
        !(m->asked.always || pays(&r, (double)points, (double)points * (double)(p.channels * p.phases + channels),
                                  taps > 1 ? COST_SHIFTED : COST_ELEMENT, winograd ? COST_WINOGRAD : 1)))
        return (value_id){0};
    struct builder b = builder_before(m->g, id);
    if (p.pointwise) {
        value_id v = b_copy(&b, read_points(&b, &p, n.in[0], y.dims, places));
        return b_reshape(&b, sparse_product(&b, &r, v), y.dims, y.rank);
    }
    for (int64_t i = 0; i < r.all; i++)
        r.places[i] = (int32_t)tap_place(&p, r.places[i] / taps, r.places[i] % taps);
    value_id v = flat_planes(&b, &p, n.in[0]);
    struct attr attr = attr_int("size", p.points);
    v = sparse_product(&b, &r, b_op(&b, OP_WINDOWS, &v, 1, &attr, 1));
    expr_id lines[RANK_MAX] = {y.dims[0], y.dims[1], y.dims[2]};
    for (int32_t d = 1; d < p.n; d++)
        lines[2 + d] = ex_const(x, p.rows[d]);
    v = b_reshape(&b, v, lines, y.rank);
    for (int32_t d = 1; d < p.n; d++)
        v = b_slice_axis(&b, v, 2 + d, ex_const(x, 0), y.dims[2 + d]);
    return v;
}

bool sparsify(struct module *m)
{
    uint32_t n_nodes = m->g->nodes.n;
    for (uint32_t i = 1; i < n_nodes; i++) {
        const struct node *n = graph_node(m->g, (node_id){i});
        value_id y = {0};
        if (is_f32_contraction(m, (node_id){i}))
            y = n->op == OP_DOT ? sparse_dot(m, (node_id){i}) : sparse_conv(m, (node_id){i});
        if (y.i)
            graph_replace(m->g, (node_id){i}, y);
    }
    graph_sweep(m->g);
    return m->ctx->fail == FAIL_NONE;
}
