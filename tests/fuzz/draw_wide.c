/* Random products and convolutions of bytes and halves that sum in a wider type, of so many terms, rows and columns
 * that they fill tiles of registers, next to multiples of what a tile takes; and what networks put behind (draw.h). */
#include "tests/fuzz/draw.h"

struct operands {
    enum elem x, w, acc; /* acc ELEM_NONE: the operands' */
};
static const struct operands kinds[] = {
    {ELEM_U8, ELEM_I8, ELEM_I32},   {ELEM_U8, ELEM_I8, ELEM_I32},    {ELEM_I8, ELEM_I8, ELEM_I32},
    {ELEM_U8, ELEM_U8, ELEM_I32},   {ELEM_I8, ELEM_U8, ELEM_I32},    {ELEM_BF16, ELEM_BF16, ELEM_F32},
    {ELEM_F16, ELEM_F16, ELEM_F32}, {ELEM_F32, ELEM_F32, ELEM_NONE}, {ELEM_I16, ELEM_I16, ELEM_I32}};

static bool affordable(struct draw *d, double out, double terms)
{
    if (out > 2 * DRAW_ELEMENTS || d->work + out * terms > DRAW_WORK)
        return false;
    d->work += out * terms;
    return true;
}

/* Bias, scale; to bytes again. */
static void keep_sums(struct draw *d, struct drawn r, int32_t channels)
{
    if (!r.v.i)
        return;
    struct type t = *drawn_type(d, &r);
    if (draw_chance(d, 40)) {
        expr_id dims[RANK_MAX];
        for (int32_t i = 0; i < t.rank; i++)
            dims[i] = i == channels ? t.dims[i] : ex_const(d->x, 1);
        r = draw_binary(d, OP_ADD, r, draw_leaf(d, t.elem, dims, t.rank, draw_chance(d, 80)));
    }
    if (r.v.i && t.elem == ELEM_I32 && draw_chance(d, 60)) {
        r = drawn_make(d, b_convert(&d->b, r.v, ELEM_F32), 0x1p31, 0, 0); /* sums of any bytes are below 2^24 here */
        r.v = b_binary_f64(&d->b, OP_MUL, r.v, 1.0 / (double)(1 << draw_int(d, 0, 9)));
        r.v = b_clamp(&d->b, b_unary(&d->b, OP_ROUND, r.v), 0, 127);
        if (draw_chance(d, 80))
            r.v = b_convert(&d->b, r.v, draw_chance(d, 50) ? ELEM_U8 : ELEM_I8);
        r = drawn_make(d, r.v, 127, 0, 0);
    }
    draw_keep(d, r);
}

/* The value of the pool that is as such an operand has to be, or a new one. */
static struct drawn operand(struct draw *d, enum elem e, const expr_id *dims, int32_t rank, bool constant)
{
    for (uint32_t k = 0; k < d->n && !constant; k++) {
        const struct type *t = drawn_type(d, &d->value[k]);
        bool fits = t->elem == e && t->rank == rank;
        for (int32_t i = 0; fits && i < rank; i++)
            fits = t->dims[i].i == dims[i].i;
        if (fits)
            return d->value[k];
    }
    return draw_leaf(d, e, dims, rank, constant);
}

static struct drawn summed(struct draw *d, value_id v, double terms, struct drawn x, struct drawn w)
{
    if (!v.i || elem_class(value_type(d->g, v)->elem) != 'F')
        return drawn_make(d, v, 1e9, 0, 0);
    return draw_summed(d, v, terms, x.mag * w.mag, x.err * w.mag + w.err * x.mag, x.places + w.places);
}

static expr_id rows_of(struct draw *d)
{
    static const int64_t rows[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33};
    return d->n_symbols && draw_chance(d, 50) ? draw_symbol(d) : ex_const(d->x, DRAW_PICK(d, rows));
}

static void wide_product(struct draw *d)
{
    static const int64_t terms[] = {16, 31, 32, 33, 48, 63, 64, 65, 96, 127, 128, 130, 192};
    static const int64_t columns[] = {1, 8, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65, 80};
    struct operands o = DRAW_PICK(d, kinds);
    expr_id k = ex_const(d->x, DRAW_PICK(d, terms)), n = ex_const(d->x, DRAW_PICK(d, columns));
    int32_t lead = draw_chance(d, 50) ? 1 : 2;
    bool batch = lead == 2 && draw_chance(d, 30), turned = draw_chance(d, 30);
    expr_id dims[3], other[3];
    for (int32_t i = 0; i < lead; i++)
        dims[i] = lead == 2 && i == 0 && draw_chance(d, 70) ? ex_const(d->x, draw_int(d, 1, 3)) : rows_of(d);
    dims[lead] = k;
    other[0] = dims[0];
    other[batch] = turned ? n : k;
    other[batch + 1] = turned ? k : n;
    double out = (double)draw_dim(d, n), sums = (double)draw_dim(d, k);
    for (int32_t i = 0; i < lead; i++)
        out *= (double)draw_dim(d, dims[i]);
    if (!affordable(d, out, sums))
        return;
    struct drawn x = operand(d, o.x, dims, lead + 1, false);
    struct drawn w = draw_leaf(d, o.w, other, batch + 2, !batch && draw_chance(d, 80));
    const int64_t zero = 0, ca = lead, cb = batch + turned;
    struct attr a[5] = {attr_ints("batch_a", &zero, batch), attr_ints("batch_b", &zero, batch),
                        attr_ints("contract_a", &ca, 1), attr_ints("contract_b", &cb, 1), attr_elem("acc", o.acc)};
    value_id in[2] = {x.v, w.v};
    if (x.v.i && w.v.i)
        keep_sums(d, summed(d, b_op(&d->b, OP_DOT, in, 2, a, o.acc ? 5 : 4), sums, x, w), lead);
}

static void wide_conv(struct draw *d)
{
    static const int64_t channels[] = {1, 3, 4, 8, 15, 16, 17, 24, 32, 33, 40};
    struct operands o = DRAW_PICK(d, kinds);
    int32_t n = draw_chance(d, 70) ? 2 : draw_chance(d, 50) ? 1 : 3;
    int64_t groups = draw_chance(d, 80) ? 1 : draw_int(d, 2, 4), c = DRAW_PICK(d, channels), m = DRAW_PICK(d, channels);
    int64_t strides[3], dilations[3], one[3] = {1, 1, 1};
    expr_id lo[3], hi[3], dims[5], kernel[5] = {ex_const(d->x, groups * m), ex_const(d->x, c)};
    double out = (double)(groups * m), sums = (double)c;
    dims[0] = d->n_symbols && draw_chance(d, 50) ? draw_symbol(d) : ex_const(d->x, draw_int(d, 1, 2));
    dims[1] = ex_const(d->x, groups * c);
    out *= (double)draw_dim(d, dims[0]);
    for (int32_t i = 0; i < n; i++) {
        int64_t taps = draw_chance(d, 40) ? 1 : draw_int(d, 2, 3), size = draw_int(d, 1, n == 1 ? 30 : n == 2 ? 11 : 5);
        strides[i] = draw_chance(d, 70) ? 1 : draw_int(d, 2, 3);
        dilations[i] = draw_chance(d, 85) ? 1 : 2;
        int64_t reach = (taps - 1) * dilations[i], pad = draw_chance(d, 60) ? reach / 2 : draw_int(d, 0, reach);
        size = size + 2 * pad > reach ? size : reach + 1;
        dims[2 + i] = d->n_symbols && draw_chance(d, 12) ? draw_symbol(d) : ex_const(d->x, size);
        if (draw_dim(d, dims[2 + i]) + 2 * pad <= reach)
            return;
        kernel[2 + i] = ex_const(d->x, taps);
        lo[i] = hi[i] = ex_const(d->x, pad);
        sums *= (double)taps;
        out *= (double)(draw_dim(d, dims[2 + i]) / strides[i] + 1);
    }
    if (!affordable(d, out, sums))
        return;
    struct drawn x = operand(d, o.x, dims, n + 2, false), w = draw_leaf(d, o.w, kernel, n + 2, draw_chance(d, 90));
    uint32_t k = (uint32_t)n;
    struct attr a[] = {attr_ints("strides", strides, k), attr_exprs("lo", lo, k),
                       attr_exprs("hi", hi, k),          attr_ints("dilations", dilations, k),
                       attr_ints("xdil", one, k),        attr_int("groups", groups),
                       attr_elem("acc", o.acc)};
    value_id in[2] = {x.v, w.v};
    if (x.v.i && w.v.i)
        keep_sums(d, summed(d, b_op(&d->b, OP_CONV, in, 2, a, o.acc ? 7 : 6), sums, x, w), 1);
}

void draw_wide(struct draw *d)
{
    if (draw_chance(d, 50))
        wide_product(d);
    else
        wide_conv(d);
}
