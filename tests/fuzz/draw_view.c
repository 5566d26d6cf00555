/* Random views, gathers, scatters and calls of the runtime (draw.h). */
#include "tests/fuzz/draw.h"

#include <math.h>
#include <string.h>

/* An extent that nothing else says: computed from the symbols now and then. */
static expr_id free_extent(struct draw *d)
{
    return d->n_symbols && draw_chance(d, 35) ? draw_size(d, draw_int(d, 0, 1), 9) : draw_extent(d);
}

static value_id broadcast(struct draw *d, const struct drawn *x, const struct type *t)
{
    expr_id dims[RANK_MAX];
    int32_t more = (int32_t)draw_int(d, 0, 1), rank = t->rank + more;
    for (int32_t i = 0; i < rank; i++) {
        dims[i] = i < more ? free_extent(d) : t->dims[i - more];
        if (i >= more && ex_is(d->x, dims[i], 1) && draw_chance(d, 50))
            dims[i] = free_extent(d);
    }
    return b_broadcast(&d->b, x->v, dims, rank);
}

/* Merges neighbours, splits a dim, adds or drops ones. */
static value_id reshape(struct draw *d, const struct drawn *x, const struct type *t)
{
    expr_id dims[RANK_MAX];
    int32_t n = 0;
    for (int32_t i = 0; i < t->rank; i++) {
        int64_t c;
        if (draw_chance(d, 10))
            dims[n++] = ex_const(d->x, 1);
        if (n && draw_chance(d, 35)) {
            dims[n - 1] = ex_mul(d->x, dims[n - 1], t->dims[i]);
        } else if (ex_is_const(d->x, t->dims[i], &c) && c > 3 && draw_chance(d, 30)) {
            int64_t a = 2 + draw_int(d, 0, 2);
            if (c % a == 0) {
                dims[n++] = ex_const(d->x, draw_chance(d, 50) ? a : c / a);
                dims[n] = ex_div(d->x, t->dims[i], dims[n - 1]);
                n++;
            } else {
                dims[n++] = t->dims[i];
            }
        } else if (!ex_is(d->x, t->dims[i], 1) || draw_chance(d, 70)) {
            dims[n++] = t->dims[i];
        }
    }
    if (draw_chance(d, 10) || (n == 0 && draw_chance(d, 50)))
        dims[n++] = ex_const(d->x, 1);
    return b_reshape(&d->b, x->v, dims, n);
}

static value_id transpose(struct draw *d, const struct drawn *x, const struct type *t)
{
    int64_t perm[RANK_MAX];
    for (int32_t i = 0; i < t->rank; i++) {
        int64_t j = draw_int(d, 0, i);
        perm[i] = perm[j];
        perm[j] = i;
    }
    return b_transpose(&d->b, x->v, perm);
}

static value_id slice(struct draw *d, const struct drawn *x, const struct type *t)
{
    expr_id starts[RANK_MAX], sizes[RANK_MAX];
    int64_t steps[RANK_MAX], n;
    for (int32_t i = 0; i < t->rank; i++) {
        starts[i] = ex_const(d->x, 0);
        sizes[i] = t->dims[i];
        steps[i] = 1;
        if (d->n_symbols && draw_chance(d, 30)) {   /* a part that sizes say */
            sizes[i] = ex_min(d->x, draw_size(d, 0, 40), t->dims[i]);
            starts[i] = ex_min(d->x, draw_size(d, 0, 40), ex_sub(d->x, t->dims[i], sizes[i]));
        } else if (draw_chance(d, 25)) {   /* backwards, whole */
            starts[i] = ex_addc(d->x, t->dims[i], -1);
            steps[i] = -1;
        } else if (ex_is_const(d->x, t->dims[i], &n) && n > 1 && draw_chance(d, 55)) {
            int64_t step = draw_int(d, 1, 3), start = draw_int(d, 0, n - 1);
            bool back = draw_chance(d, 25);
            int64_t room = back ? start / step + 1 : (n - 1 - start) / step + 1;
            starts[i] = ex_const(d->x, start);
            sizes[i] = ex_const(d->x, draw_int(d, (room + 1) / 2, room));
            steps[i] = back ? -step : step;
        } else if (!ex_is_const(d->x, t->dims[i], &n) && draw_chance(d, 40)) {   /* the lower or the upper half */
            sizes[i] = ex_div(d->x, t->dims[i], ex_const(d->x, 2));
            if (draw_chance(d, 50))
                starts[i] = ex_sub(d->x, t->dims[i], sizes[i]);
        }
    }
    return b_slice(&d->b, x->v, starts, sizes, steps);
}

static value_id pad(struct draw *d, const struct drawn *x, const struct type *t, double *mag)
{
    static const char *const modes[] = {"constant", "constant", "reflect", "edge", "wrap"};
    const char *mode = DRAW_PICK(d, modes);
    expr_id lo[RANK_MAX], hi[RANK_MAX];
    value_id fill = {0};
    for (int32_t i = 0; i < t->rank; i++) {
        lo[i] = draw_chance(d, 40) ? draw_size(d, 1, 3) : ex_const(d->x, 0);
        hi[i] = draw_chance(d, 40) ? draw_size(d, 1, 3) : ex_const(d->x, 0);
    }
    if (!strcmp(mode, "constant") && draw_chance(d, 50)) {
        fill = b_scalar_f64(&d->b, t->elem, 1);
        *mag = fmax(*mag, 1);
    }
    return b_pad(&d->b, x->v, fill, lo, hi, mode);
}

static void concat(struct draw *d)
{
    struct drawn x = draw_value(d, draw_chance(d, 80) ? "F" : "BIUF", 1), r;
    if (!x.v.i)
        return;
    const struct type t = *drawn_type(d, &x);
    int32_t axis = (int32_t)draw_int(d, 0, t.rank - 1);
    uint32_t n = (uint32_t)draw_int(d, 2, 4);
    value_id in[4];
    r = x;
    for (uint32_t k = 0; k < n; k++) {
        struct drawn y = x;
        if (k && d->n && draw_chance(d, 60)) {   /* another of the same shape except for the axis */
            y = d->value[draw_int(d, 0, (int64_t)d->n - 1)];
            const struct type *u = drawn_type(d, &y);
            bool fits = u->elem == t.elem && u->rank == t.rank;
            for (int32_t i = 0; fits && i < t.rank; i++)
                fits = i == axis || u->dims[i].i == t.dims[i].i;
            if (!fits)
                y.v.i = 0;
        }
        if (!y.v.i || (k && draw_chance(d, 30))) {
            expr_id dims[RANK_MAX];
            memcpy(dims, t.dims, (size_t)t.rank * sizeof *dims);
            dims[axis] = draw_extent(d);
            y = draw_leaf(d, t.elem, dims, t.rank, draw_chance(d, 30));
        }
        if (!y.v.i)
            return;
        in[k] = y.v;
        r.mag = fmax(r.mag, y.mag);
        r.err = fmax(r.err, y.err);
        r.places = y.places > r.places ? y.places : r.places;
    }
    draw_keep(d, drawn_make(d, b_concat(&d->b, in, n, axis), r.mag, r.err, r.places));
}

static void iota(struct draw *d)
{
    static const enum elem elems[] = {ELEM_F32, ELEM_I64, ELEM_I32};
    expr_id dims[RANK_MAX];
    int32_t rank = draw_shape(d, 1, dims);
    enum elem e = DRAW_PICK(d, elems);
    if (draw_chance(d, 40))
        dims[rank - 1] = free_extent(d);
    if (draw_chance(d, 30)) {
        expr_id elements[3] = {draw_size(d, -60, 60), d->n_symbols ? draw_symbol(d) : ex_const(d->x, 5),
                               draw_size(d, -60, 3)};
        int64_t n = draw_int(d, 1, 3);
        draw_keep(d, drawn_make(d, b_from_exprs(&d->b, ELEM_I64, elements, (uint32_t)n, &n, 1), 64, 0, 0));
        return;
    }
    struct attr attr[3] = {attr_elem("elem", e), attr_exprs("dims", dims, (uint32_t)rank),
                           attr_int("axis", draw_int(d, 0, rank - 1))};
    draw_keep(d, drawn_make(d, b_op(&d->b, OP_IOTA, NULL, 0, attr, 3), 64, 0, 0));
}

void draw_view(struct draw *d)
{
    int64_t k = draw_int(d, 0, 99);
    if (k < 15) {
        concat(d);
        return;
    }
    if (k < 20) {
        iota(d);
        return;
    }
    struct drawn x = draw_value(d, draw_chance(d, 80) ? "F" : "BIUF", draw_chance(d, 90) ? 1 : 0);
    if (!x.v.i || drawn_type(d, &x)->rank > 6)
        return;
    struct type t = *drawn_type(d, &x);
    value_id v = k < 30   ? broadcast(d, &x, &t)
                 : k < 50 ? reshape(d, &x, &t)
                 : k < 70 ? transpose(d, &x, &t)
                 : k < 88 ? slice(d, &x, &t)
                          : pad(d, &x, &t, &x.mag);
    draw_keep(d, drawn_like(d, v, &x));
}

/* ---- gathers and scatters ---------------------------------------------------------------------------------------- */

static struct drawn indices_for(struct draw *d, const expr_id *dims, int32_t rank, int64_t n)
{
    enum elem e = draw_chance(d, 60) ? ELEM_I64 : ELEM_I32;
    return draw_indices(d, e, dims, rank, draw_chance(d, 50) ? -n : 0, n - 1);
}

static void gather(struct draw *d, const struct drawn *x, const struct type *t)
{
    expr_id dims[RANK_MAX];
    int32_t rank = (int32_t)draw_int(d, 0, 2), axis = (int32_t)draw_int(d, 0, t->rank - 1);
    for (int32_t i = 0; i < rank; i++)
        dims[i] = ex_const(d->x, draw_int(d, 1, 6));
    struct drawn idx = indices_for(d, dims, rank, draw_places(d, t->dims[axis]));
    draw_keep(d, drawn_like(d, b_gather(&d->b, x->v, idx.v, axis), x));
}

/* Index shape for the elements operators: no larger than t away from the axis. */
static int32_t elements_shape(struct draw *d, const struct type *t, int32_t axis, expr_id *dims)
{
    int64_t n;
    for (int32_t i = 0; i < t->rank; i++) {
        dims[i] = t->dims[i];
        if (ex_is_const(d->x, t->dims[i], &n) && (i == axis || draw_chance(d, 40)))
            dims[i] = ex_const(d->x, draw_int(d, 1, n));
    }
    return t->rank;
}

static void gather_elements(struct draw *d, const struct drawn *x, const struct type *t)
{
    expr_id dims[RANK_MAX];
    int32_t axis = (int32_t)draw_int(d, 0, t->rank - 1), rank = elements_shape(d, t, axis, dims);
    struct drawn idx = indices_for(d, dims, rank, draw_places(d, t->dims[axis]));
    value_id in[2] = {x->v, idx.v};
    struct attr a = attr_int("axis", axis);
    if (idx.v.i)
        draw_keep(d, drawn_like(d, b_op(&d->b, OP_GATHER_ELEMENTS, in, 2, &a, 1), x));
}

/* Tuples of k indices, all below the least of the dims that they address. */
static struct drawn tuples_for(struct draw *d, const struct type *t, int32_t first, const expr_id *lead, int32_t n_lead,
                               int32_t k)
{
    expr_id dims[RANK_MAX];
    int64_t n = INT32_MAX;
    memcpy(dims, lead, (size_t)n_lead * sizeof *dims);
    dims[n_lead] = ex_const(d->x, k);
    for (int32_t i = 0; i < k; i++)
        n = draw_places(d, t->dims[first + i]) < n ? draw_places(d, t->dims[first + i]) : n;
    return indices_for(d, dims, n_lead + 1, n);
}

static void gather_nd(struct draw *d, const struct drawn *x, const struct type *t)
{
    expr_id lead[RANK_MAX];
    int32_t batch = (int32_t)draw_int(d, 0, t->rank - 1), k = (int32_t)draw_int(d, 1, t->rank - batch), n = batch;
    if (draw_chance(d, 60) && batch)
        k = (int32_t)draw_int(d, 1, t->rank - (n = batch = 0));
    memcpy(lead, t->dims, (size_t)batch * sizeof *lead);
    if (draw_chance(d, 70))
        lead[n++] = ex_const(d->x, draw_int(d, 1, 5));
    struct drawn idx = tuples_for(d, t, batch, lead, n, k);
    value_id in[2] = {x->v, idx.v};
    struct attr a = attr_int("batch", batch);
    if (idx.v.i)
        draw_keep(d, drawn_like(d, b_op(&d->b, OP_GATHER_ND, in, 2, &a, 1), x));
}

static void scatter(struct draw *d, const struct drawn *x, const struct type *t)
{
    static const char *const monoids[] = {"set", "set", "sum", "min", "max", "prod"};
    const char *monoid = elem_class(t->elem) == 'B' ? "set" : DRAW_PICK(d, monoids);
    bool elements = draw_chance(d, 50);
    int32_t axis = (int32_t)draw_int(d, 0, t->rank - 1), rank = 0;
    expr_id dims[RANK_MAX];
    struct drawn idx, up;
    if (elements) {
        rank = elements_shape(d, t, axis, dims);
        idx = indices_for(d, dims, rank, draw_places(d, t->dims[axis]));
    } else {
        int32_t k = (int32_t)draw_int(d, 1, t->rank);
        dims[rank++] = ex_const(d->x, draw_int(d, 1, 5));
        idx = tuples_for(d, t, 0, dims, rank, k);
        for (int32_t i = k; i < t->rank; i++)
            dims[rank++] = t->dims[i];
    }
    up = draw_leaf(d, t->elem, dims, rank, draw_chance(d, 30));
    if (!idx.v.i || !up.v.i || (!strcmp(monoid, "prod") && (draw_count(d, &up) > 6 || x->mag > 20)))
        return;
    double n = (double)draw_count(d, &up), mag = fmax(x->mag, up.mag);
    int places = x->places > up.places ? x->places : up.places;
    double eps = elem_eps(t->elem);
    if (!strcmp(monoid, "sum"))
        mag = x->mag + n * up.mag;
    if (!strcmp(monoid, "prod")) {
        mag = fmax(1, x->mag) * pow(fmax(1, up.mag), n);
        places = x->places + (int)n * up.places;
    }
    bool fold = strcmp(monoid, "set") && strcmp(monoid, "min") && strcmp(monoid, "max");
    double err = x->err && fold ? x->err * fmax(1, mag / fmax(x->mag, 1e-9)) + n * eps * mag : x->err;
    value_id in[3] = {x->v, idx.v, up.v};
    struct attr a[2] = {elements ? attr_int("axis", axis) : attr_str("monoid", monoid), attr_str("monoid", monoid)};
    struct drawn r = drawn_make(
        d, b_op(&d->b, elements ? OP_SCATTER_ELEMENTS : OP_SCATTER_ND, in, 3, a, elements ? 2 : 1), mag, err, places);
    if (r.err && fold)
        r.err += n * eps * mag;
    draw_keep(d, r);
}

void draw_index(struct draw *d)
{
    struct drawn x = draw_value(d, draw_chance(d, 80) ? "F" : "BIUF", 1);
    if (!x.v.i)
        return;
    struct type t = *drawn_type(d, &x);
    int64_t k = draw_int(d, 0, 99);
    if (t.rank > 5)
        return;
    if (k < 30)
        gather(d, &x, &t);
    else if (k < 45)
        gather_elements(d, &x, &t);
    else if (k < 60)
        gather_nd(d, &x, &t);
    else
        scatter(d, &x, &t);
}

/* ---- calls of the runtime ---------------------------------------------------------------------------------------- */

void draw_call(struct draw *d)
{
    struct drawn x = draw_value(d, draw_chance(d, 70) ? "F" : "BIU", 1);
    if (!x.v.i || !drawn_exact(&x))
        return;
    struct type t = *drawn_type(d, &x);
    if (draw_chance(d, 70)) {
        value_id out[2];
        struct attr a[2] = {attr_int("axis", draw_int(d, 0, t.rank - 1)), attr_int("descending", draw_int(d, 0, 1))};
        if (elem_class(t.elem) == 'B' || !b_op_multi(&d->b, OP_SORT, &x.v, 1, a, 2, out, 2))
            return;
        draw_keep(d, drawn_like(d, out[0], &x));
        draw_keep(d, drawn_make(d, out[1], DRAW_ELEMENTS, 0, 0));
        return;
    }
    if (d->n_late == COUNT_OF(d->late) || d->nesting)
        return;
    int64_t hi = INT32_MAX;
    ex_is_const(d->x, b_count(&d->b, x.v), &hi);
    const char *name = arena_printf(&d->g->arena, "found%u", d->n_late);
    struct attr a = attr_expr("count", ex_sym(d->x, sym_new(d->x, SYM_VALUE, name, 0, hi)));
    value_id v = b_op(&d->b, OP_NONZERO, &x.v, 1, &a, 1);
    if (v.i && draw_chance(d, 50))
        v = b_transpose(&d->b, v, (int64_t[]){1, 0});
    if (v.i && draw_chance(d, 40))
        v = b_binary_f64(&d->b, OP_MUL, v, 3);
    if (v.i)
        d->late[d->n_late++] = drawn_make(d, v, 1e9, 0, 0);
}
