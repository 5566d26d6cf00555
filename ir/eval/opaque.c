/* Interpretation of sort, nonzero, unique, nms, dft, det and rng (see eval.c). */
#include <math.h>

#include "ir/eval/eval.h"
#include "ir/ops/field.h"

/* In the field a function of floats gets the numbers that residues stand for, and gives residues. */
static double number_at(const struct eval *e, enum elem elem, const void *p)
{
    return eval_in_field(e, elem) && field_holds(elem) ? field_to_real(field_load(elem, p)) : elem_to_f64(elem, p);
}

static void put_number(const struct eval *e, enum elem elem, double x, void *p)
{
    elem_from_f64(elem, x, p);
    if (eval_in_field(e, elem) && field_holds(elem))
        field_store(elem, field_from_real(elem_to_f64(elem, p)), false, p);
}

/* ---- ordering ---------------------------------------------------------------------------------------------------- */

/* An int64 that orders as the number does; NaNs are largest, both zeros equal. */
static int64_t order_key_of(double number)
{
    double x = number + 0.0;
    int64_t bits;
    if (isnan(x))
        return INT64_MAX;
    memcpy(&bits, &x, sizeof bits);
    return bits < 0 ? INT64_MIN - bits : bits;
}

static int64_t order_key(enum elem elem, const void *p)
{
    if (elem == ELEM_U64)
        return elem_to_i64(elem, p) ^ INT64_MIN;
    if (elem_class(elem) != 'F')
        return elem_to_i64(elem, p);
    return order_key_of(elem_to_f64(elem, p));
}

/* Rows of `width` keys, compared lexicographically. */
struct keys {
    const int64_t *data;
    int64_t width;
    bool descending;
};

static int compare_rows(const struct keys *k, int64_t a, int64_t b)
{
    for (int64_t i = 0; i < k->width; i++) {
        int64_t x = k->data[a * k->width + i], y = k->data[b * k->width + i];
        if (x != y)
            return (x < y) != k->descending ? -1 : 1;
    }
    return 0;
}

/* Sorts the row numbers 0 .. n - 1, stably, by merging from the bottom up. */
static int64_t *sort_rows(struct eval *e, const struct keys *k, int64_t n)
{
    int64_t *from = NEW_ARRAY(e->arena, int64_t, n + 1), *to = NEW_ARRAY(e->arena, int64_t, n + 1);
    for (int64_t i = 0; i < n; i++)
        from[i] = i;
    for (int64_t width = 1; width < n; width *= 2) {
        for (int64_t base = 0; base < n; base += 2 * width) {
            int64_t mid = base + width < n ? base + width : n, end = base + 2 * width < n ? base + 2 * width : n;
            int64_t l = base, r = mid;
            for (int64_t i = base; i < end; i++)
                to[i] = r >= end || (l < mid && compare_rows(k, from[l], from[r]) <= 0) ? from[l++] : from[r++];
        }
        int64_t *swap = from;
        from = to;
        to = swap;
    }
    return from;
}

enum eval_status eval_sort(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    const struct tensor *x = in[0];
    int32_t axis = (int32_t)node_int(n, "axis", 0);
    int64_t dim = x->dims[axis], inner = dims_count(x->dims + axis + 1, x->rank - axis - 1);
    int64_t lines = dim ? tensor_count(x) / dim : 0, count = dim, dims[RANK_MAX];
    size_t size = elem_size(x->elem);
    if (node_expr(n, "count").i)
        TRY(eval_expr(e, node_expr(n, "count"), &count));
    if (count < 0 || count > dim)
        return eval_fail(e, EVAL_VALUE, "the first %lld of %lld", (long long)count, (long long)dim);
    memcpy(dims, x->dims, (size_t)x->rank * sizeof *dims);
    dims[axis] = count;
    TRY(eval_tensor(e, &out[0], x->elem, x->rank, dims));
    TRY(eval_tensor(e, &out[1], ELEM_I64, x->rank, dims));
    int64_t *data = NEW_ARRAY(e->arena, int64_t, dim + 1);
    struct keys keys = {data, 1, node_int(n, "descending", 0)};
    for (int64_t line = 0; line < lines; line++) {
        int64_t base = line / inner * dim * inner + line % inner, to = line / inner * count * inner + line % inner;
        for (int64_t i = 0; i < dim; i++)
            data[i] = order_key(x->elem, (char *)x->data + (size_t)(base + i * inner) * size);
        const int64_t *order = sort_rows(e, &keys, dim);
        for (int64_t i = 0; i < count; i++) {
            memcpy((char *)out[0].data + (size_t)(to + i * inner) * size,
                   (char *)x->data + (size_t)(base + order[i] * inner) * size, size);
            ((int64_t *)out[1].data)[to + i * inner] = order[i];
        }
    }
    return EVAL_OK;
}

enum eval_status eval_nonzero(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    const struct tensor *x = in[0];
    int64_t count = tensor_count(x), found = 0, at[RANK_MAX] = {0}, dims[2] = {x->rank, 0};
    size_t size = elem_size(x->elem);
    (void)n;
    for (int64_t i = 0; i < count; i++)
        dims[1] += elem_to_f64(x->elem, (char *)x->data + (size_t)i * size) != 0;
    TRY(eval_tensor(e, out, ELEM_I64, 2, dims));
    for (int64_t i = 0; i < count; i++) {
        if (elem_to_f64(x->elem, (char *)x->data + (size_t)i * size) != 0) {
            for (int32_t d = 0; d < x->rank; d++)
                ((int64_t *)out->data)[d * dims[1] + found] = at[d];
            found++;
        }
        dims_next(x->dims, x->rank, at);
    }
    return EVAL_OK;
}

/* ---- unique ------------------------------------------------------------------------------------------------------ */

struct groups {
    int64_t n, *first, *count, *group_of;
}; /* by group; group_of: by slice */

/* Groups equal slices; numbered in sorted order, or in order of first appearance. */
static struct groups group_slices(struct eval *e, const struct keys *keys, int64_t n, bool sorted)
{
    struct groups g = {0, NEW_ARRAY(e->arena, int64_t, n + 1), NEW_ARRAY(e->arena, int64_t, n + 1),
                       NEW_ARRAY(e->arena, int64_t, n + 1)};
    const int64_t *order = sort_rows(e, keys, n);
    for (int64_t i = 0; i < n; i++) {
        if (i == 0 || compare_rows(keys, order[i - 1], order[i]) != 0)
            g.first[g.n++] = order[i]; /* stable sort: the first of its equals */
        g.group_of[order[i]] = g.n - 1;
        g.count[g.n - 1]++;
    }
    if (sorted)
        return g;
    int64_t *number = NEW_ARRAY(e->arena, int64_t, n + 1), *count = NEW_ARRAY(e->arena, int64_t, n + 1), next = 0;
    for (int64_t i = 0; i < n; i++)
        if (g.first[g.group_of[i]] == i) {
            count[next] = g.count[g.group_of[i]];
            number[g.group_of[i]] = next++;
        }
    next = 0;
    int64_t *first = NEW_ARRAY(e->arena, int64_t, n + 1);
    for (int64_t i = 0; i < n; i++)
        if (g.first[g.group_of[i]] == i)
            first[next++] = i;
    for (int64_t i = 0; i < n; i++)
        g.group_of[i] = number[g.group_of[i]];
    g.first = first;
    g.count = count;
    return g;
}

enum eval_status eval_unique(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    const struct tensor *x = in[0];
    int32_t axis = (int32_t)node_int(n, "axis", -1);
    int64_t slices = axis < 0 ? tensor_count(x) : x->dims[axis], dims[RANK_MAX], one_dim[1];
    int64_t inner = axis < 0 ? 1 : dims_count(x->dims + axis + 1, x->rank - axis - 1);
    int64_t outer = axis < 0 ? 1 : dims_count(x->dims, axis);
    size_t size = elem_size(x->elem);
    struct keys keys = {NULL, outer * inner, false};
    int64_t *data = NEW_ARRAY(e->arena, int64_t, slices *keys.width + 1);
    for (int64_t s = 0; s < slices; s++)
        for (int64_t i = 0; i < keys.width; i++)
            data[s * keys.width + i] = order_key(
                x->elem, (char *)x->data + (size_t)((i / inner * slices + s) * inner + i % inner) * size);
    keys.data = data;
    struct groups g = group_slices(e, &keys, slices, node_int(n, "sorted", 1));
    memcpy(dims, x->dims, (size_t)x->rank * sizeof *dims);
    dims[axis < 0 ? 0 : axis] = one_dim[0] = g.n;
    TRY(eval_tensor(e, &out[0], x->elem, axis < 0 ? 1 : x->rank, dims));
    TRY(eval_tensor(e, &out[1], ELEM_I64, 1, one_dim));
    TRY(eval_tensor(e, &out[2], ELEM_I64, 1, &slices));
    TRY(eval_tensor(e, &out[3], ELEM_I64, 1, one_dim));
    for (int64_t u = 0; u < g.n; u++)
        for (int64_t o = 0; o < outer; o++)
            memcpy((char *)out[0].data + (size_t)((o * g.n + u) * inner) * size,
                   (char *)x->data + (size_t)((o * slices + g.first[u]) * inner) * size, (size_t)inner * size);
    memcpy(out[1].data, g.first, (size_t)g.n * sizeof *g.first);
    memcpy(out[2].data, g.group_of, (size_t)slices * sizeof *g.group_of);
    memcpy(out[3].data, g.count, (size_t)g.n * sizeof *g.count);
    return EVAL_OK;
}

/* ---- non-maximum suppression (ONNX NonMaxSuppression-11) --------------------------------------------------------- */

struct box {
    double y1, x1, y2, x2;
};

static double smaller(double x, double y)
{
    return x < y ? x : y;
}

static double larger(double x, double y)
{
    return x > y ? x : y;
}

static struct box read_box(const struct eval *e, const struct tensor *boxes, int64_t i, bool center)
{
    double c[4];
    for (int k = 0; k < 4; k++)
        c[k] = number_at(e, boxes->elem, (char *)boxes->data + (size_t)(i * 4 + k) * elem_size(boxes->elem));
    if (center)
        return (struct box){c[1] - c[3] / 2, c[0] - c[2] / 2, c[1] + c[3] / 2, c[0] + c[2] / 2};
    return (struct box){smaller(c[0], c[2]), smaller(c[1], c[3]), c[0] < c[2] ? c[2] : c[0], c[1] < c[3] ? c[3] : c[1]};
}

/* Of a box that was selected and another one; NaN is not less, nor more. Boxes without common points stay at any
 * threshold. */
static double overlap(struct box a, struct box b)
{
    double h = smaller(a.y2, b.y2) - larger(a.y1, b.y1), w = smaller(a.x2, b.x2) - larger(a.x1, b.x1);
    double common = h > 0 && w > 0 ? h * w : 0;
    double of_a = (a.y2 - a.y1) * (a.x2 - a.x1), of_b = (b.y2 - b.y1) * (b.x2 - b.x1), both = of_a + of_b - common;
    return common > 0 && of_a > 0 && of_b > 0 && both > 0 ? common / both : (double)-INFINITY;
}

/* Boxes kept of one batch and class, best first; returns how many. */
static int64_t suppress(struct eval *e, const struct tensor *scores, int64_t line, const struct box *boxes, int64_t n,
                        int64_t limit, double iou, double threshold, int64_t *keep)
{
    int64_t *data = NEW_ARRAY(e->arena, int64_t, n + 1), kept = 0;
    size_t size = elem_size(scores->elem);
    const char *score = (const char *)scores->data + (size_t)(line * n) * size;
    for (int64_t i = 0; i < n; i++)
        data[i] = order_key_of(number_at(e, scores->elem, score + (size_t)i * size));
    struct keys keys = {data, 1, true};
    const int64_t *order = sort_rows(e, &keys, n);
    for (int64_t i = 0; i < n && kept < limit; i++) {
        double have = number_at(e, scores->elem, score + (size_t)order[i] * size);
        bool free = have == have && !(have <= threshold); /* NaN is not a threshold */
        for (int64_t k = 0; free && k < kept; k++)
            free = !(overlap(boxes[keep[k]], boxes[order[i]]) > iou);
        if (free)
            keep[kept++] = order[i];
    }
    return kept;
}

enum eval_status eval_nms(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    int64_t batches = in[1]->dims[0], classes = in[1]->dims[1], boxes = in[1]->dims[2], total = 0;
    int64_t limit = elem_to_i64(in[2]->elem, in[2]->data);
    double iou = number_at(e, in[3]->elem, in[3]->data), threshold = number_at(e, in[4]->elem, in[4]->data);
    if (in[0]->dims[0] != batches || in[0]->dims[1] != boxes || in[0]->dims[2] != 4)
        return eval_fail(e, EVAL_SHAPE, "nms: boxes and scores do not fit");
    int64_t *rows = NEW_ARRAY(e->arena, int64_t, batches *classes *boxes * 3 + 1);
    int64_t *keep = NEW_ARRAY(e->arena, int64_t, boxes + 1);
    struct box *list = NEW_ARRAY(e->arena, struct box, boxes + 1);
    for (int64_t line = 0; line < batches * classes; line++) {
        for (int64_t i = 0; i < boxes; i++)
            list[i] = read_box(e, in[0], line / classes * boxes + i, node_int(n, "center", 0));
        int64_t kept = suppress(e, in[1], line, list, boxes, limit, iou, threshold, keep);
        for (int64_t i = 0; i < kept; i++, total++) {
            rows[total * 3] = line / classes;
            rows[total * 3 + 1] = line % classes;
            rows[total * 3 + 2] = keep[i];
        }
    }
    int64_t dims[2] = {total, 3};
    TRY(eval_tensor(e, out, ELEM_I64, 2, dims));
    memcpy(out->data, rows, (size_t)total * 3 * sizeof *rows);
    return EVAL_OK;
}

/* ---- transforms and determinants --------------------------------------------------------------------------------- */

/* One coefficient by definition; x: n complex numbers, turn: exp(2 pi i k / n) by k. */
static void dft_term(const double *x, const double *turn, int64_t n, int64_t k, double sign, double *re, double *im)
{
    *re = *im = 0;
    for (int64_t j = 0, phase = 0; j < n; j++, phase = (phase + k) % n) {
        double c = turn[2 * phase], s = sign * turn[2 * phase + 1];
        *re += x[2 * j] * c - x[2 * j + 1] * s;
        *im += x[2 * j] * s + x[2 * j + 1] * c;
    }
}

/* Reads a line of `have` numbers of `parts` parts into n complex ones: cut, filled with zeros, or, from a onesided
 * spectrum, completed by its conjugates. */
static void dft_line(const struct eval *e, const struct tensor *x, int64_t base, int64_t stride, int64_t have,
                     int64_t parts, double *line, int64_t n, bool mirror)
{
    size_t size = elem_size(x->elem);
    memset(line, 0, (size_t)(2 * n) * sizeof *line);
    for (int64_t j = 0; j < n && j < have; j++)
        for (int64_t p = 0; p < parts; p++)
            line[2 * j + p] = number_at(e, x->elem, (char *)x->data + (size_t)(base + j * stride * parts + p) * size);
    for (int64_t j = n / 2 + 1; mirror && j < n; j++) {
        line[2 * j] = line[2 * (n - j)];
        line[2 * j + 1] = -line[2 * (n - j) + 1];
    }
}

enum eval_status eval_dft(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    const struct tensor *x = in[0];
    int32_t axis = (int32_t)node_int(n, "axis", 0);
    bool inverse = node_int(n, "inverse", 0), onesided = node_int(n, "onesided", 0);
    int64_t length, parts = x->dims[x->rank - 1], have = x->dims[axis];
    TRY(eval_expr(e, node_expr(n, "length"), &length));
    TRY(eval_result(e, n, 0, out));
    if (length < 1 || tensor_count(out) == 0 || length > INT32_MAX)
        return length < 1 ? eval_fail(e, EVAL_VALUE, "dft of length %lld", (long long)length) : EVAL_OK;
    int64_t inner = dims_count(x->dims + axis + 1, x->rank - axis - 2), lines = dims_count(x->dims, axis) * inner;
    int64_t makes = out->dims[axis], out_parts = out->dims[out->rank - 1];
    double *turn = NEW_ARRAY(e->arena, double, 2 * length), *line = NEW_ARRAY(e->arena, double, 2 * length), r[2];
    for (int64_t k = 0; k < length; k++) {
        turn[2 * k] = cos(2 * M_PI * (double)k / (double)length);
        turn[2 * k + 1] = sin(2 * M_PI * (double)k / (double)length);
    }
    for (int64_t l = 0; l < lines; l++) {
        dft_line(e, x, (l / inner * have * inner + l % inner) * parts, inner, have, parts, line, length,
                 inverse && onesided);
        for (int64_t k = 0; k < makes; k++) {
            time_spend(e->g->ctx, (uint64_t)length);
            dft_term(line, turn, length, k, inverse ? 1 : -1, &r[0], &r[1]);
            for (int64_t p = 0; p < out_parts; p++)
                put_number(e, out->elem, inverse ? r[p] / (double)length : r[p],
                           (char *)out->data + (size_t)(((l / inner * makes + k) * inner + l % inner) * out_parts + p) *
                                                   elem_size(out->elem));
        }
    }
    return EVAL_OK;
}

/* Gaussian elimination with row pivots; destroys a. */
static double determinant(struct context *ctx, double *a, int64_t n)
{
    double det = 1;
    for (int64_t c = 0; c < n; c++) {
        int64_t pivot = c;
        for (int64_t r = c + 1; r < n; r++)
            if (fabs(a[r * n + c]) > fabs(a[pivot * n + c]))
                pivot = r;
        if (a[pivot * n + c] == 0)
            return 0;
        for (int64_t k = 0; pivot != c && k < n; k++) {
            double t = a[c * n + k];
            a[c * n + k] = a[pivot * n + k];
            a[pivot * n + k] = t;
        }
        det *= pivot != c ? -a[c * n + c] : a[c * n + c];
        for (int64_t r = c + 1; r < n; r++) {
            time_spend(ctx, (uint64_t)(n - c));
            double f = a[r * n + c] / a[c * n + c];
            for (int64_t k = c; k < n; k++)
                a[r * n + k] -= f * a[c * n + k];
        }
    }
    return det;
}

enum eval_status eval_det(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    const struct tensor *x = in[0];
    int64_t m = x->dims[x->rank - 1];
    if (x->dims[x->rank - 2] != m)
        return eval_fail(e, EVAL_SHAPE, "det: a matrix is not square");
    TRY(eval_result(e, n, 0, out));
    double *a = NEW_ARRAY(e->arena, double, m *m + 1);
    for (int64_t i = 0; i < tensor_count(out); i++) {
        for (int64_t k = 0; k < m * m; k++)
            a[k] = number_at(e, x->elem, (char *)x->data + (size_t)(i * m * m + k) * elem_size(x->elem));
        put_number(e, out->elem, determinant(e->g->ctx, a, m), (char *)out->data + (size_t)i * elem_size(out->elem));
    }
    return EVAL_OK;
}

/* ---- random numbers: mt19937 (Matsumoto & Nishimura 1998), doubles of 53 bits, normals by the polar method ------- */

struct mt {
    uint32_t state[624];
    uint32_t at;
    bool has_spare;
    double spare;
};

static void mt_seed(struct mt *m, uint32_t seed)
{
    *m = (struct mt){.at = 624};
    m->state[0] = seed;
    for (uint32_t i = 1; i < 624; i++)
        m->state[i] = 1812433253u * (m->state[i - 1] ^ m->state[i - 1] >> 30) + i;
}

static uint32_t mt_next(struct mt *m)
{
    if (m->at == 624) {
        for (uint32_t i = 0; i < 624; i++) {
            uint32_t y = (m->state[i] & 0x80000000u) | (m->state[(i + 1) % 624] & 0x7fffffffu);
            m->state[i] = m->state[(i + 397) % 624] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);
        }
        m->at = 0;
    }
    uint32_t y = m->state[m->at++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

static double mt_double(struct mt *m)
{
    uint32_t hi = mt_next(m) >> 5, lo = mt_next(m) >> 6;
    return (hi * 67108864.0 + lo) / 9007199254740992.0;
}

static double mt_normal(struct mt *m)
{
    double x, y, r;
    if (m->has_spare) {
        m->has_spare = false;
        return m->spare;
    }
    do {
        x = 2 * mt_double(m) - 1;
        y = 2 * mt_double(m) - 1;
        r = x * x + y * y;
    } while (r >= 1 || r == 0);
    r = sqrt(-2 * log(r) / r);
    m->spare = r * x;
    m->has_spare = true;
    return r * y;
}

enum eval_status eval_rng(struct eval *e, const struct node *n, struct tensor *const *in, struct tensor *out)
{
    double a = node_float(n, "a", 0), b = node_float(n, "b", 1), seed = node_float(n, "seed", 0);
    bool normal = strcmp(node_str(n, "kind", "uniform"), "normal") == 0;
    struct mt *m = NEW(e->arena, struct mt);
    (void)in;
    TRY(eval_result(e, n, 0, out));
    mt_seed(m, seed >= 0 && seed < 4294967296.0 ? (uint32_t)seed : 0);
    for (int64_t i = 0; i < tensor_count(out); i++) /* uniform in [a, b); normal with mean a and deviation b */
        put_number(e, out->elem, normal ? a + b * mt_normal(m) : a + (b - a) * mt_double(m),
                   (char *)out->data + (size_t)i * elem_size(out->elem));
    return EVAL_OK;
}
