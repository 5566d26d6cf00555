/* A transform of known length is a product with the table of its roots of unity, or two of them: with n = n1 n2,
 * t = n2 t1 + t2 and k = k1 + n1 k2,
 *
 *     X[k] = sum over t2 of w^(n1 t2 k2) * (sum over t1 of x[t] * w^((n2 t1 + t2) k1)),  w = exp(-2 pi i / n)
 *
 * The inner sum is a product for each t2, which has the twiddle factors in its table. So n (n1 + 2 n2) multiply-adds of
 * f64 take the place of n^2, and tables are small; transforms for which they are not, or whose length is known only at
 * run time, call the runtime (OP_DFT). Frames that overlap are slices of one tensor.
 */
#include "passes/legalize/math/dft.h"

#include <math.h>

enum { TABLES_MOST = 1 << 17 /* elements */, ONE_STAGE = 16 /* at most so long */, PIECES_MOST = 32 };

struct stages {
    struct builder *b;
    int64_t n, n1, n2, parts, results, k2; /* k2: as many as `results` takes */
    double sign, scale;
};

/* exp(sign 2 pi i k / n), the angle reduced to an eighth of the circle without rounding. */
static void unit_root(const struct stages *s, int64_t k, double root[2])
{
    int64_t octant = 8 * (k % s->n) / s->n, rest = 8 * (k % s->n) - octant * s->n;
    double x = (double)(octant & 1 ? s->n - rest : rest) / (double)s->n * (M_PI / 4), c = cos(x), d = sin(x);
    bool swap = octant == 1 || octant == 2 || octant == 5 || octant == 6;
    root[0] = (swap ? d : c) * (octant >= 2 && octant <= 5 ? -1 : 1);
    root[1] = (swap ? c : d) * (octant >= 4 ? -s->sign : s->sign);
}

/* What part p of an element adds to part q of a result that has the factor root. */
static double part_of(const double root[2], int64_t p, int64_t q)
{
    return p == q ? root[0] : p ? -root[1] : root[1];
}

/* [n2, n1, parts, 2 n1]: t2, t1, part; part and k1. */
static value_id first_table(const struct stages *s)
{
    int64_t dims[4] = {s->n2, s->n1, s->parts, 2 * s->n1}, at = 0;
    double *table = NEW_ARRAY(&s->b->g->arena, double, s->n * s->parts * 2 * s->n1), root[2];
    for (int64_t t2 = 0; t2 < s->n2; t2++)
        for (int64_t t1 = 0; t1 < s->n1; t1++)
            for (int64_t pq = 0; pq < 2 * s->parts; pq++)
                for (int64_t k1 = 0; k1 < s->n1; k1++) {
                    unit_root(s, (s->n2 * t1 + t2) * k1, root);
                    table[at++] = part_of(root, pq / 2, pq % 2);
                }
    return b_const(s->b, ELEM_F64, dims, 4, table);
}

/* [n2, parts, 2 k2]: t2, part; k2 and part. */
static value_id second_table(const struct stages *s, int64_t parts)
{
    int64_t dims[3] = {s->n2, parts, 2 * s->k2}, at = 0;
    double *table = NEW_ARRAY(&s->b->g->arena, double, s->n2 *parts * s->k2 * 2), root[2];
    for (int64_t t2 = 0; t2 < s->n2; t2++)
        for (int64_t p = 0; p < parts; p++)
            for (int64_t k2 = 0; k2 < s->k2; k2++) {
                unit_root(s, s->n1 * t2 * k2, root);
                for (int64_t q = 0; q < 2; q++)
                    table[at++] = part_of(root, p, q) * s->scale;
            }
    return b_const(s->b, ELEM_F64, dims, 3, table);
}

static value_id product(struct builder *b, value_id x, value_id y, int64_t batch, const int64_t *of_x,
                        const int64_t *of_y)
{
    static const int64_t first[] = {0};
    value_id in[2] = {x, y};
    uint32_t batches = batch >= 0;
    struct attr attrs[4] = {attr_ints("batch_a", &batch, batches), attr_ints("batch_b", first, batches),
                            attr_ints("contract_a", of_x, 2), attr_ints("contract_b", of_y, 2)};
    return b_op(b, OP_DOT, in, 2, attrs, 4);
}

/* The sizes that take the fewest multiply-adds with tables that are not too large; false: there are none. */
static bool stages_choose(struct stages *s)
{
    int64_t least = INT64_MAX;
    for (int64_t n1 = 1; n1 <= (s->n <= ONE_STAGE ? 1 : s->n / 2); n1++) {
        if (s->n % n1)
            continue;
        int64_t n2 = s->n / n1, k2 = (s->results + n1 - 1) / n1;
        int64_t tables = 2 * n2 * k2 * (n1 > 1 ? 2 : s->parts) + (n1 > 1 ? 2 * s->n * s->parts * n1 : 0);
        int64_t cost = 2 * s->n * k2 * (n1 > 1 ? 2 : s->parts) + (n1 > 1 ? 2 * s->n * s->parts * n1 : 0);
        if (tables > TABLES_MOST || cost >= least)
            continue;
        least = cost;
        s->n1 = n1;
        s->n2 = n2;
        s->k2 = k2;
    }
    return least < INT64_MAX;
}

/* x: [rows, n, parts] -> [rows, results, 2] */
static value_id stages_build(const struct stages *s, value_id x, expr_id rows)
{
    struct builder *b = s->b;
    static const int64_t leading[] = {0, 1}, middle[] = {1, 2}, swap[] = {0, 2, 1, 3};
    expr_id n1 = ex_const(b->x, s->n1), n2 = ex_const(b->x, s->n2), two = ex_const(b->x, 2);
    expr_id apart[4] = {rows, n1, n2, ex_const(b->x, s->parts)}, inner[4] = {n2, rows, two, n1},
            split[4] = {rows, n1, ex_const(b->x, s->k2), two}, joined[3] = {rows, ex_const(b->x, s->k2 * s->n1), two};
    value_id y;
    if (s->n1 == 1)
        return b_reshape(b, product(b, x, second_table(s, s->parts), -1, middle, leading), joined, 3);
    y = product(b, b_reshape(b, x, apart, 4), first_table(s), 2, (const int64_t[]){1, 3}, middle);
    y = product(b, b_reshape(b, y, inner, 4), second_table(s, 2), -1, (const int64_t[]){0, 2}, leading);
    y = b_reshape(b, b_transpose(b, b_reshape(b, y, split, 4), swap), joined, 3);
    return b_slice_axis(b, y, 1, ex_const(b->x, 0), ex_const(b->x, s->results));
}

/* {0}: not by products. */
static value_id by_products(struct builder *b, value_id x, const struct dft *t)
{
    enum { LENGTH_MOST = 1 << 16 };
    struct stages s = {.b = b, .sign = t->inverse ? 1 : -1, .scale = 1};
    int64_t extent;
    struct dims x_dims = b_dims(b, x);
    expr_id rows = ex_const(b->x, 1), three[3], out[RANK_MAX];
    int32_t rank = x_dims.rank;
    if (!x_dims.d || !ex_is_const(b->x, t->length, &s.n) || !ex_is_const(b->x, x_dims.d[t->axis], &extent) ||
        extent != s.n || !ex_is_const(b->x, x_dims.d[rank - 1], &s.parts) || s.n < 1 || s.n > LENGTH_MOST ||
        (t->onesided && (t->inverse || s.parts != 1)))
        return (value_id){0};
    s.results = t->onesided ? s.n / 2 + 1 : s.n;
    s.scale = t->inverse ? 1.0 / (double)s.n : 1;
    if (!stages_choose(&s))
        return (value_id){0};
    x = v_move_axis(b, x, t->axis, rank - 2);
    x_dims = b_dims(b, x);
    if (!x_dims.d)
        return (value_id){0};
    for (int32_t i = 0; i + 2 < rank; i++) {
        rows = ex_mul(b->x, rows, x_dims.d[i]);
        out[i] = x_dims.d[i];
    }
    three[0] = rows;
    three[1] = x_dims.d[rank - 2];
    three[2] = x_dims.d[rank - 1];
    out[rank - 2] = ex_const(b->x, s.results);
    out[rank - 1] = ex_const(b->x, 2);
    value_id y = stages_build(&s, b_reshape(b, x, three, 3), rows);
    return v_move_axis(b, b_reshape(b, y, out, rank), rank - 2, t->axis);
}

value_id dft_build(struct builder *b, value_id x, const struct dft *t)
{
    value_id y = by_products(b, x, t);
    struct attr attrs[] = {attr_int("axis", t->axis), attr_int("inverse", t->inverse), attr_expr("length", t->length),
                           attr_int("onesided", t->onesided)};
    return y.i ? y : b_op(b, OP_DFT, &x, 1, attrs, 4);
}

/* Frame f is parts f, f + 1, ... of `step` samples, of which the last may be too long. */
static value_id frames_of_parts(struct builder *b, value_id x, int64_t step, int64_t length, expr_id count)
{
    int64_t n = (length + step - 1) / step;
    expr_id zero = ex_const(b->x, 0), none[3] = {zero, zero, zero}, parts = ex_addc(b->x, count, n - 1),
            apart[4] = {b_dim(b, x, 0), parts, ex_const(b->x, step), b_dim(b, x, 2)}, all = ex_mulc(b->x, parts, step),
            more[3] = {zero, ex_max(b->x, ex_sub(b->x, all, b_dim(b, x, 1)), zero), zero};
    value_id piece[PIECES_MOST];
    x = b_slice_axis(b, b_pad(b, x, (value_id){0}, none, more, "constant"), 1, zero, all);
    x = b_reshape(b, x, apart, 4);
    for (int64_t i = 0; i < n; i++)
        piece[i] = b_slice_axis(b, x, 1, ex_const(b->x, i), count);
    return b_slice_axis(b, b_concat(b, piece, (uint32_t)n, 2), 2, zero, ex_const(b->x, length));
}

value_id dft_frames(struct builder *b, value_id x, expr_id step, expr_id length, expr_id count)
{
    int64_t by, n;
    if (ex_is_const(b->x, step, &by) && ex_is_const(b->x, length, &n) && by <= n && n <= PIECES_MOST * by)
        return frames_of_parts(b, x, by, n, count);
    expr_id dims[2] = {count, length};
    value_id at = b_binary(b, OP_MUL, v_iota(b, ELEM_I64, dims, 2, 0), v_expr(b, ELEM_I64, step));
    return b_gather(b, x, b_binary(b, OP_ADD, at, v_iota(b, ELEM_I64, dims, 2, 1)), 1);
}
