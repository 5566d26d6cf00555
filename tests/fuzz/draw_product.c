/* Random products: plain, parallel, in blocks that have scales (draw.h). */
#include "tests/fuzz/draw.h"

static void shuffle(struct draw *d, int64_t *p, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        int64_t j = draw_int(d, 0, i);
        p[i] = p[j];
        p[j] = i;
    }
}

static void dot(struct draw *d)
{
    struct drawn x = draw_value(d, draw_chance(d, 85) ? "F" : "IU", 1);
    if (!x.v.i || drawn_type(d, &x)->rank > 5)
        return;
    const struct type t = *drawn_type(d, &x);
    int64_t pa[RANK_MAX], pb[RANK_MAX], batch[2][RANK_MAX], con[2][RANK_MAX];
    uint32_t nb = 0, nc = 0;
    expr_id dims[RANK_MAX], shuffled[RANK_MAX];
    int32_t rank = 0;
    double terms = 1, out = 1;
    shuffle(d, pa, t.rank);
    for (int32_t i = 0; i < t.rank; i++) {
        int64_t k = draw_int(d, 0, 99), size = draw_dim(d, t.dims[pa[i]]);
        if (k < 25 && t.rank > 2) {
            batch[0][nb++] = pa[i];
            out *= (double)size;
        } else if (k < 60 || (i == t.rank - 1 && nc == 0)) {
            con[0][nc++] = pa[i];
            terms *= (double)size;
        } else {
            out *= (double)size;
        }
    }
    for (uint32_t i = 0; i < nb; i++)
        dims[rank++] = t.dims[batch[0][i]];
    for (uint32_t i = 0; i < nc; i++)
        dims[rank++] = t.dims[con[0][i]];
    for (int64_t k = draw_int(d, 0, 2); k > 0; k--) {
        dims[rank] = draw_extent(d);
        out *= (double)draw_dim(d, dims[rank++]);
    }
    shuffle(d, pb, rank);
    if (draw_chance(d, 30)) /* natural order */
        for (int32_t i = 0; i < rank; i++)
            pb[i] = i;
    for (int32_t i = 0; i < rank; i++)
        shuffled[pb[i]] = dims[i];
    for (uint32_t i = 0; i < nb; i++)
        batch[1][i] = pb[i];
    for (uint32_t i = 0; i < nc; i++)
        con[1][i] = pb[nb + i];
    if (out > DRAW_ELEMENTS || d->work + out * terms > DRAW_WORK)
        return;
    struct drawn y = draw_leaf(d, t.elem, shuffled, rank, draw_chance(d, 60));
    struct attr a[5] = {attr_ints("batch_a", batch[0], nb), attr_ints("batch_b", batch[1], nb),
                        attr_ints("contract_a", con[0], nc), attr_ints("contract_b", con[1], nc),
                        attr_elem("acc", ELEM_I32)};
    if (!y.v.i)
        return;
    d->work += out * terms;
    bool swap = draw_chance(d, 15);
    value_id in[2] = {swap ? y.v : x.v, swap ? x.v : y.v};
    if (swap) {
        a[0] = attr_ints("batch_a", batch[1], nb), a[1] = attr_ints("batch_b", batch[0], nb);
        a[2] = attr_ints("contract_a", con[1], nc), a[3] = attr_ints("contract_b", con[0], nc);
    }
    bool acc = elem_class(t.elem) != 'F' && elem_size(t.elem) < 4;
    value_id v = b_op(&d->b, OP_DOT, in, 2, a, acc ? 5 : 4);
    if (v.i)
        draw_keep(d, draw_summed(d, v, terms, x.mag * y.mag, x.err * y.mag + y.err * x.mag, x.places + y.places));
}

/* Several narrow products of one operand by constants, mostly with biases: what merge_products looks for. */
static void parallel_products(struct draw *d)
{
    struct drawn x = draw_value(d, "F", 1);
    if (!x.v.i || drawn_type(d, &x)->rank > 4)
        return;
    const struct type t = *drawn_type(d, &x);
    int64_t con[2] = {draw_chance(d, 70) ? t.rank - 1 : draw_int(d, 0, t.rank - 1), draw_int(d, 0, 1)}, k;
    bool biased = draw_chance(d, 60);
    if (!ex_is_const(d->x, t.dims[con[0]], &k) || !k)
        return;
    struct attr a[4] = {attr_ints("batch_a", NULL, 0), attr_ints("batch_b", NULL, 0), attr_ints("contract_a", con, 1),
                        attr_ints("contract_b", con + 1, 1)};
    for (int64_t i = draw_int(d, 2, 4); i > 0; i--) {
        int64_t n = draw_chance(d, 80) ? draw_int(d, 1, 20) : draw_int(d, 21, 70);
        double out = (double)(draw_count(d, &x) / k * n), terms = (double)k;
        expr_id dims[2];
        dims[con[1]] = t.dims[con[0]];
        dims[1 - con[1]] = ex_const(d->x, n);
        if (out > DRAW_ELEMENTS || d->work + out * terms > DRAW_WORK)
            return;
        struct drawn w = draw_leaf(d, t.elem, dims, 2, draw_chance(d, 90));
        if (!w.v.i)
            return;
        d->work += out * terms;
        value_id in[2] = {x.v, w.v};
        value_id v = b_op(&d->b, OP_DOT, in, 2, a, 4);
        if (!v.i)
            return;
        struct drawn y = draw_summed(d, v, terms, x.mag * w.mag, x.err * w.mag + w.err * x.mag, x.places + w.places);
        if (biased && draw_chance(d, 85))
            y = draw_binary(d, OP_ADD, y, draw_leaf(d, t.elem, &dims[1 - con[1]], 1, draw_chance(d, 90)));
        draw_keep(d, y);
    }
}

/* Bytes in blocks that have scales, mostly as MatMulNBits has them: i8 by u8, each of a byte or unpacked from some,
 * scales that are constants; sometimes without offsets, and in other orders of the dims. */
static void scaled_product(struct draw *d)
{
    bool usual = draw_chance(d, 70), offset = draw_chance(d, 70), zeros = offset && draw_chance(d, 50);
    int64_t blocks = draw_int(d, 1, 5), inner = draw_int(d, 1, 4),
            last = usual ? 4 * draw_int(d, 1, 4) : draw_int(d, 1, 9);
    int64_t n = draw_int(d, 1, 70), con[2][3],
            rows = draw_chance(d, 50)   ? 1
                   : draw_chance(d, 70) ? draw_int(d, 2, 20)
                                        : 16 * draw_int(d, 1, 3);
    double terms = (double)(inner * last), out = (double)(rows * n);
    struct drawn x[6];
    for (uint32_t o = 0; o < 6; o++) {
        int64_t order[4] = {0, 1, 2, 3}, size[4] = {o & 1 ? n : rows, blocks, inner, last};
        expr_id dims[4];
        if (!usual && o < 2)
            shuffle(d, order, 4);
        for (uint32_t i = 0; i < 3 && o < 2; i++)
            con[o][i] = order[i + 1];
        int64_t free_dim = 6 - con[o & 1][0] - con[o & 1][1] - con[o & 1][2];
        dims[free_dim] = ex_const(d->x, size[0]);
        for (uint32_t i = 0; i < 3; i++)
            dims[con[o & 1][i]] = ex_const(d->x, o > 1 && i ? 1 : size[i + 1]);
        enum elem e = o > 1 ? ELEM_F32 : (o == 0) == (usual || draw_chance(d, 50)) ? ELEM_I8 : ELEM_U8;
        x[o] = draw_leaf(d, e, dims, 4, draw_chance(d, o & 1 ? 90 : 10));
        if (!x[o].v.i)
            return;
    }
    if (out > DRAW_ELEMENTS || d->work + out * terms * (double)blocks > DRAW_WORK)
        return;
    d->work += out * terms * (double)blocks;
    if (usual && draw_chance(d, 50)) /* the upper half of each byte */
        x[1].v = b_binary_f64(&d->b, OP_SHR, x[1].v, 4);
    struct attr a[4] = {attr_ints("batch_a", NULL, 0), attr_ints("batch_b", NULL, 0),
                        attr_ints("contract_a", con[0], 3), attr_ints("contract_b", con[1], 3)};
    value_id in[6];
    for (uint32_t o = 0; o < 6; o++)
        in[o] = x[o].v;
    value_id v = b_op(&d->b, OP_DOT, in, !offset ? 4 : zeros ? 6 : 5, a, 4);
    double mag = (terms * 255 * 128 * x[2].mag + x[4].mag * (zeros ? x[5].mag : 1)) * x[3].mag;
    if (v.i)
        draw_keep(d, draw_summed(d, v, (double)blocks, mag, 8 * elem_eps(ELEM_F32) * mag, 0));
}

void draw_product(struct draw *d)
{
    if (draw_chance(d, 15))
        draw_wide(d);
    else if (draw_chance(d, 10))
        draw_squeeze(d);
    else if (draw_chance(d, 10))
        scaled_product(d);
    else if (draw_chance(d, 12))
        parallel_products(d);
    else if (draw_chance(d, 60))
        draw_conv(d);
    else
        dot(d);
}
