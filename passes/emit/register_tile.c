/* Register tiles: how an extent is cut into them, and the micro-kernel. */
#include "passes/emit/register_tile.h"

/* Tiles of k points for all points of [0, n) from `done` on, if n has so many. Where more are left than the size below
 * has, a last one ends at n, and begins in the one before. Returns the points that are then done. */
static expr_id tiles_again(struct em *em, expr_id n, expr_id done, int64_t k, int64_t below, em_tile_fn *fn, void *user)
{
    struct exprs *x = em->x;
    struct em_for l;
    int64_t most = ex_hi(x, n);
    bool again = below + 1 < k;
    expr_id zero = ex_const(x, 0), left = ex_addc(x, ex_sub(x, n, done), again ? k - 1 - below : 0),
            count = ex_div(x, left, ex_const(x, k));
    if (again)
        count = ex_select(x, ex_le(x, ex_const(x, k), n), count, zero);
    expr_id i = em_for_begin(em, &l, zero, count, NULL, 0), at = ex_add(x, done, ex_mulc(x, i, k));
    if (again)
        at = em_pin(em, ex_min(x, at, ex_addc(x, n, -k)), 0, most == INT64_MAX || most < k ? most : most - k);
    fn(user, at, (uint32_t)k);
    em_for_end(em, &l, NULL, NULL);
    expr_id end = ex_add(x, done, ex_mulc(x, count, k));
    return again ? ex_min(x, end, n) : end;
}

void em_tiles(struct em *em, expr_id n, int64_t size, enum tile_rest rest, em_tile_fn *fn, void *user)
{
    struct exprs *x = em->x;
    struct em_for l;
    int64_t c = 0;
    expr_id zero = ex_const(x, 0), done = zero;
    bool known = ex_is_const(x, n, &c);
    if (known && c < 1)
        return;
    if (!known && tile_again(rest)) {
        for (int64_t k = size; k > 0; k = tile_below(k, rest))
            done = tiles_again(em, n, done, k, tile_below(k, rest), fn, user);
        return;
    }
    struct even e = even_split(c, size);
    for (int64_t k = known ? e.small + 1 : size, next; k > 0; k = next) {
        next = known ? (k > e.small ? e.small : 0) : tile_below(k, rest);
        if (known && k > e.small && !e.large)
            continue;
        expr_id count = known ? ex_const(x, k > e.small ? e.large : e.tiles - e.large)
                              : ex_div(x, ex_sub(x, n, done), ex_const(x, k));
        if (ex_is(x, count, 0))
            continue;
        expr_id i = em_for_begin(em, &l, zero, count, NULL, 0);
        fn(user, ex_add(x, done, ex_mulc(x, i, k)), (uint32_t)k);
        em_for_end(em, &l, NULL, NULL);
        done = ex_add(x, done, ex_mulc(x, count, k));
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

void em_tiles_from(struct em *em, expr_id from, expr_id n, int64_t size, enum tile_rest rest, em_tile_fn *fn,
                   void *user)
{
    em_tiles(em, n, size, rest, part_tile, &(struct part){em, from, fn, user});
}

void em_tiles_part(struct em *em, expr_id n, int64_t size, enum tile_rest rest, expr_id first, int64_t count,
                   em_tile_fn *fn, void *user)
{
    struct exprs *x = em->x;
    struct em_for l;
    int64_t c;
    if (!ex_is_const(x, n, &c)) {
        expr_id from = ex_mulc(x, first, size);
        em_tiles_from(em, from, ex_min(x, ex_sub(x, n, from), ex_const(x, count * size)), size, rest, fn, user);
        return;
    }
    if (c < 1)
        return;
    struct even e = even_split(c, size);
    expr_id large = ex_const(x, e.large), end = ex_min(x, ex_addc(x, first, count), ex_const(x, e.tiles));
    if (e.large) {
        expr_id i = em_for_begin(em, &l, ex_min(x, first, large), ex_min(x, end, large), NULL, 0);
        fn(user, ex_mulc(x, i, e.small + 1), (uint32_t)e.small + 1);
        em_for_end(em, &l, NULL, NULL);
    }
    expr_id i = em_for_begin(em, &l, ex_max(x, first, large), ex_max(x, end, large), NULL, 0);
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
    if (w == rest)
        base = w == 1 ? base : ex_add(x, base, em_lane(em, w, (lreg){0}));
    else
        base = em_tail(em, base, ex_const(x, rest), w);
    piece[vectors] = ex_addc(x, base, (int64_t)vectors * lanes);
    of[vectors] = w;
    return vectors + 1;
}

void em_tile_product(struct em *em, enum lop op, const lreg factors[2], lreg *sum)
{
    lreg in[3] = {factors[0], factors[1], *sum};
    if (op == L_FMA)
        em_unify(em, in, 3);
    if (op == L_DOT && lf_type(em->f, in[1]).elem == ELEM_U8) { /* takes the unsigned one first */
        in[0] = factors[1];
        in[1] = factors[0];
    }
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
                em_tile_product(em, op, in[(j - 1) % 2][i], &acc[i * vectors + (j - 1) % vectors]);
    }
}

void em_tile_step(struct em *em, enum lop op, uint32_t rows, uint32_t vectors, em_operands_fn *operands, void *user,
                  lreg *acc)
{
    for (uint32_t i = 0; i < rows; i++)
        for (uint32_t j = 0; j < vectors; j++) {
            lreg in[2];
            if (operands(user, i, j, in))
                em_tile_product(em, op, in, &acc[i * vectors + j]);
        }
}

/* Rows a and b, each 8 bytes as an i64 or half `lane` of a register of two, {0}: zeros, in one register of `type`. */
static lreg matrix_pair(struct em *em, struct ltype type, lreg a, lreg b, int32_t lane)
{
    lreg row[2] = {a, b};
    bool whole = true;
    for (uint32_t i = 0; i < 2; i++)
        whole &= !row[i].i || lf_type(em->f, row[i]).lanes > 1;
    for (uint32_t i = 0; i < 2; i++) {
        if (!row[i].i)
            row[i] = em_const(em, ELEM_I64, whole ? 2 : 1, 0, 0);
        else if (!whole && lf_type(em->f, row[i]).lanes > 1)
            row[i] = em_extract(em, row[i], (uint32_t)lane);
    }
    lreg v = em_shuffle(em, row[0], row[1], (const uint8_t[]){0, whole ? 2 : 1, 1, 3}, whole ? 4 : 2);
    v = whole ? em_part(em, v, 2 * (uint32_t)lane, 2) : v;
    return em_op(em, L_BITCAST, type, &v, 1);
}

/* The rows in pairs; {0}: neither of a pair has anything to add. Returns a row that has; else how many there are. */
static uint32_t matrix_pairs(struct em *em, const struct em_matrix *m, em_operands_fn *operands, void *user, lreg *pair)
{
    lreg row[EM_POINTS + 1], in[2] = {{0}};
    uint32_t any = m->rows;
    for (uint32_t i = 0; i < m->rows; i++) {
        row[i] = operands(user, i, 0, in) ? in[0] : (lreg){0};
        any = row[i].i ? i : any;
    }
    row[m->rows] = (lreg){0};
    for (uint32_t i = 0; i < m->rows && any < m->rows; i += 2) {
        struct ltype type = {m->elem, lf_type(em->f, in[1]).lanes / 2};
        pair[i] = row[i].i || row[i + 1].i ? matrix_pair(em, type, row[i], row[i + 1], m->lane) : (lreg){0};
    }
    return any;
}

void em_tile_step_matrix(struct em *em, const struct em_matrix *m, em_operands_fn *operands, void *user, lreg *acc)
{
    lreg pair[EM_POINTS], in[2];
    uint32_t any = matrix_pairs(em, m, operands, user, pair);
    for (uint32_t j = 0; j < m->vectors && any < m->rows; j++) {
        operands(user, any, j, in);
        uint32_t half = lf_type(em->f, in[1]).lanes / 2;
        for (uint32_t columns = 0; columns < 2; columns++) {
            lreg right = em_part(em, in[1], columns * half, half);
            for (uint32_t i = 0; i < m->rows; i += 2)
                if (pair[i].i)
                    em_tile_product(em, L_MATDOT, (lreg[]){pair[i], right}, &acc[(i + columns) * m->vectors + j]);
        }
    }
}

void em_tile_rows_of_matrix(struct em *em, uint32_t rows, uint32_t vectors, lreg *acc)
{
    for (uint32_t i = 0; i < rows; i += 2)
        for (uint32_t j = 0; j < vectors; j++) {
            lreg *upper = &acc[i * vectors + j], *lower = upper + vectors, left = *upper, right = *lower;
            *upper = em_shuffle(em, left, right, (const uint8_t[]){0, 1, 4, 5}, 4);
            *lower = em_shuffle(em, left, right, (const uint8_t[]){2, 3, 6, 7}, 4);
        }
}

void em_tile_loop(struct em *em, expr_id lo, expr_id hi, uint32_t n, lreg *acc, em_step_fn *fn, void *user)
{
    struct em_for l;
    lreg inner[EM_POINTS];
    expr_id i = em_for_begin(em, &l, lo, hi, acc, n);
    memcpy(inner, l.params, n * sizeof *inner);
    fn(user, i, inner);
    em_for_end(em, &l, inner, acc);
}
