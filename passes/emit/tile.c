/* Register tiles: how an extent is cut into them, and the micro-kernel. */
#include "passes/emit/tile.h"

#include <string.h>

void em_tiles(struct em *em, expr_id n, int64_t size, em_tile_fn *fn, void *user)
{
    struct exprs *x = em->x;
    struct em_for l;
    int64_t c = 0;
    expr_id zero = ex_const(x, 0), done = zero;
    bool known = ex_is_const(x, n, &c);
    if (known && c < 1)
        return;
    struct even e = even_split(c, size);
    int64_t sizes[3] = {known ? e.small + 1 : size, known ? e.small : size >= 8 ? 4 : size >= 4 ? 2 : 1, known ? 0 : 1};
    for (uint32_t k = 0; k < 3; k++) {
        if (sizes[k] < 1 || (k > 0 && sizes[k] == sizes[k - 1]) || (known && k == 0 && !e.large))
            continue;
        expr_id count = known ? ex_const(x, k ? e.tiles - e.large : e.large)
                              : ex_div(x, ex_sub(x, n, done), ex_const(x, sizes[k]));
        expr_id i = em_for_begin(em, &l, zero, count, 1, NULL, 0);
        fn(user, ex_add(x, done, ex_mulc(x, i, sizes[k])), (uint32_t)sizes[k]);
        em_for_end(em, &l, NULL, NULL);
        done = ex_add(x, done, ex_mulc(x, count, sizes[k]));
    }
}

/* A part of an open extent, seen from the whole. */
struct part {
    struct em *em;
    expr_id from;
    em_tile_fn *fn;
    void *user;
};

static void part_tile(void *user, expr_id at, uint32_t count)
{
    const struct part *p = user;
    p->fn(p->user, ex_add(p->em->x, p->from, at), count);
}

void em_tiles_part(struct em *em, expr_id n, int64_t size, expr_id first, int64_t count, em_tile_fn *fn, void *user)
{
    struct exprs *x = em->x;
    struct em_for l;
    int64_t c;
    if (!ex_is_const(x, n, &c)) {
        struct part p = {em, ex_mulc(x, first, size), fn, user};
        em_tiles(em, ex_min(x, ex_sub(x, n, p.from), ex_const(x, count * size)), size, part_tile, &p);
        return;
    }
    if (c < 1)
        return;
    struct even e = even_split(c, size);
    expr_id large = ex_const(x, e.large), end = ex_min(x, ex_addc(x, first, count), ex_const(x, e.tiles));
    if (e.large) {
        expr_id i = em_for_begin(em, &l, ex_min(x, first, large), ex_min(x, end, large), 1, NULL, 0);
        fn(user, ex_mulc(x, i, e.small + 1), (uint32_t)e.small + 1);
        em_for_end(em, &l, NULL, NULL);
    }
    expr_id i = em_for_begin(em, &l, ex_max(x, first, large), ex_max(x, end, large), 1, NULL, 0);
    fn(user, ex_addc(x, ex_mulc(x, i, e.small), e.large), (uint32_t)e.small);
    em_for_end(em, &l, NULL, NULL);
}

void em_tile_number(struct em *em, const struct even *e, expr_id number, em_tile_fn *fn, void *user)
{
    struct exprs *x = em->x;
    struct em_if iff;
    expr_id border = ex_const(x, e->large);
    if (!e->large) {
        fn(user, ex_mulc(x, number, e->small), (uint32_t)e->small);
        return;
    }
    em_if_begin(em, &iff, em_cond(em, ex_lt(x, number, border)));
    fn(user, ex_mulc(x, em_pin(em, number, 0, e->large - 1), e->small + 1), (uint32_t)e->small + 1);
    em_if_end(em, &iff);
    em_if_begin(em, &iff, em_cond(em, ex_le(x, border, number)));
    fn(user, ex_addc(x, ex_mulc(x, em_pin(em, number, e->large, e->tiles - 1), e->small), e->large),
       (uint32_t)e->small);
    em_if_end(em, &iff);
}

uint32_t em_pieces(struct em *em, expr_id base, uint32_t vectors, uint32_t rest, uint32_t lanes, expr_id *piece,
                   uint32_t *of)
{
    struct exprs *x = em->x;
    for (uint32_t v = 0; v < vectors; v++) {
        piece[v] = ex_addc(x, ex_add(x, base, em_lane(em, lanes, (lreg){0})), (int64_t)v * lanes);
        of[v] = lanes;
    }
    if (!rest)
        return vectors;
    uint32_t w = 1;
    while (w < rest)
        w *= 2;
    lreg mask = w == rest ? (lreg){0} : em_tail_mask(em, ex_const(x, rest), w);
    piece[vectors] = ex_addc(x, w == 1 ? base : ex_add(x, base, em_lane(em, w, mask)), (int64_t)vectors * lanes);
    of[vectors] = w;
    return vectors + 1;
}

static void tile_product(struct em *em, enum lop op, const lreg factors[2], lreg *sum)
{
    lreg in[3] = {factors[0], factors[1], *sum};
    if (op == L_FMA)
        em_unify(em, in, 3);
    *sum = em_op(em, op, lf_type(em->f, in[2]), in, 3);
}

void em_tile_steps_by_vector(struct em *em, enum lop op, uint32_t rows, uint32_t vectors, uint32_t steps,
                             em_operands_fn *operands, void *user, lreg *acc)
{
    lreg in[2][EM_POINTS][2];
    bool there[2][EM_POINTS];
    for (uint32_t j = 0; j <= vectors * steps; j++) {
        for (uint32_t i = 0; i < rows && j < vectors * steps; i++)
            there[j % 2][i] = operands(user, i, j, in[j % 2][i]);
        for (uint32_t i = 0; i < rows && j > 0; i++)
            if (there[(j - 1) % 2][i])
                tile_product(em, op, in[(j - 1) % 2][i], &acc[i * vectors + (j - 1) % vectors]);
    }
}

void em_tile_step(struct em *em, enum lop op, uint32_t rows, uint32_t vectors, em_operands_fn *operands, void *user,
                  lreg *acc)
{
    for (uint32_t i = 0; i < rows; i++)
        for (uint32_t j = 0; j < vectors; j++) {
            lreg in[2];
            if (operands(user, i, j, in))
                tile_product(em, op, in, &acc[i * vectors + j]);
        }
}

void em_tile_loop(struct em *em, expr_id lo, expr_id hi, uint32_t n, lreg *acc, em_step_fn *fn, void *user)
{
    struct em_for l;
    lreg inner[EM_POINTS];
    expr_id i = em_for_begin(em, &l, lo, hi, 1, acc, n);
    memcpy(inner, l.params, n * sizeof *inner);
    fn(user, i, inner);
    em_for_end(em, &l, inner, acc);
}
