/* What is prefetched for the tile at hand: lines of panels by the steps of a contraction (em.ahead,
 * emit/reduce_step.c), and what the next chunk's staged operand is computed from.
 */
#include "passes/emit/producer.h"
#include "passes/emit/tiled.h"

void ahead_begin(struct em *em, const struct tiling *t)
{
    em->ahead = (struct em_ahead){.dim = t->s->vec, .near = t->s->near};
}

/* Panels of 16 columns of a block of vectors. */
static int64_t panels_of(const struct tiling *t)
{
    return ((int64_t)t->s->nr * t->s->lanes + CHANNEL_BLOCK - 1) / CHANNEL_BLOCK;
}

enum { LINE = 64 };

/* Of a dynamic number of rows: into how many shares are the next block's panels cut, a power of two, so that as many
 * tiles prefetch one each, and how many bytes does each step prefetch? All at once, by the steps of one tile, are more
 * than a core has on the way from L3. */
static expr_id shares_of(struct em *em, const struct tiling *t, expr_id *bytes)
{
    struct exprs *x = em->x;
    const enum tile_rest rest = tile_rest(&em->site, t->n, t->s);
    int64_t least = t->s->ta; /* points of the smallest tile that prefetches */
    for (int64_t k = least; k * 2 >= t->s->ta; k = tile_below(k, rest))
        least = k;
    expr_id tiles = ex_div(x, ex_addc(x, tile_extent(x, t->t, t->s, t->s->a), t->s->ta - least), ex_const(x, t->s->ta)),
            shares = ex_const(x, 1);
    if (t->s->split)
        tiles = ex_min(x, tiles, ex_const(x, t->s->split));
    *bytes = ex_const(x, LINE);
    for (int64_t n = 2; n <= t->s->shares; n *= 2) {
        expr_id more = ex_le(x, ex_const(x, n), tiles);
        shares = ex_select(x, more, ex_const(x, n), shares);
        *bytes = ex_select(x, more, ex_const(x, LINE / n), *bytes);
    }
    *bytes = em_pin(em, *bytes, 1, LINE);
    return em_pin(em, shares, 1, LINE);
}

void ahead_open_tile(struct em *em, const struct tiling *t, expr_id tile, uint32_t count)
{
    struct exprs *x = em->x;
    struct em_ahead *a = &em->ahead;
    bool rows = t->n->op == OP_DOT;
    int64_t panels = panels_of(t), least = rows ? 1 : 2; /* tiles that there are, mostly */
    a->far = (expr_id){0};
    a->near = t->s->near;
    a->tile = tile;
    a->tiles = t->s->shares;
    if (t->s->matmul || count * (rows ? 2 : 4) < t->s->ta) { /* its steps take no longer than what they read */
        a->near = 0;
        return;
    }
    a->n = (uint32_t)((panels + least - 1) / least);
    if (!t->s->early || a->n > AHEAD_MOST)
        return;
    a->far = ex_const(x, LINE);
    bool shared = t->s->shares > 0;
    expr_id zero = ex_const(x, 0), panel = shared ? zero : ex_mulc(x, tile, a->n),
            next = shared ? ex_lt(x, tile, shares_of(em, t, &a->far)) : ex_lt(x, panel, ex_const(x, panels)),
            from = em_pin(em, ex_select(x, next, panel, zero), 0, panels);
    from = ex_add(x, ex_mulc(x, from, CHANNEL_BLOCK),
                  ex_mulc(x, em_pin(em, next, 0, 1), (int64_t)t->s->nr * t->s->lanes));
    for (uint32_t i = 0; i < a->n; i++)
        a->panel[i] = ex_addc(x, from, (int64_t)i * CHANNEL_BLOCK);
    a->cut = em->facts->k.dim;
    a->now = a->k = zero;
    a->bytes = shared ? ex_select(x, next, ex_mulc(x, ex_mul(x, tile, a->far), t->s->early), zero) : zero;
}

void ahead_tile(struct em *em, struct tiling *t, expr_id tile, int64_t tiles)
{
    struct exprs *x = em->x;
    struct em_ahead *a = &em->ahead;
    int64_t panels = panels_of(t);
    a->far = (expr_id){0};
    a->tile = tile;
    a->tiles = tiles;
    if (t->s->matmul || !t->s->early || tiles < 2 || (panels + tiles - 1) / tiles > AHEAD_MOST)
        return;
    int64_t shares = tiles > panels ? tiles / panels : 1,
            line = CHANNEL_BLOCK * elem_size(value_type(em->g, t->n->in[1])->elem);
    bool part = t->k.sums.i, same = part && !t->k.last;
    a->n = (uint32_t)((panels + tiles - 1) / tiles);
    for (uint32_t i = 0; i < a->n; i++) {
        expr_id panel = ex_mulc(x, ex_mod(x, ex_addc(x, ex_mulc(x, tile, a->n), i), ex_const(x, panels)),
                                CHANNEL_BLOCK);
        a->panel[i] = ex_addc(x, panel, same ? 0 : (int64_t)t->s->nr * t->s->lanes);
    }
    int64_t far = (line + shares - 1) / shares;
    a->far = ex_const(x, far);
    a->cut = em->facts->k.dim;
    a->now = part ? ex_mulc(x, t->k.from, em->facts->k.inner) : ex_const(x, 0);
    a->k = same ? ex_addc(x, t->k.from, t->s->k_block) : ex_const(x, 0);
    a->bytes = ex_mulc(x, ex_div(x, tile, ex_const(x, panels)), shares > 1 ? far * t->s->early : 0);
}

void em_stage_ahead(struct em *em, const struct em_producer *p, expr_id *const *points, uint32_t n_points, expr_id next)
{
    struct exprs *x = em->x;
    value_id v = p->source;
    const struct type *t = value_type(em->g, p->value);
    expr_id at[RANK_MAX], last = {0};
    int32_t row = t->rank - 2, column = t->rank - 1;
    for (uint32_t i = 0; v.i && i < n_points; i++) {
        for (int32_t d = 0; d < t->rank; d++)
            at[d] = points[i][d];
        expr_id number = ex_addc(x, ex_add(x, ex_mul(x, at[row], t->dims[column]), at[column]), p->box.extent[column]);
        at[1] = ex_addc(x, next, -CHANNEL_BLOCK);
        at[row] = ex_div(x, number, t->dims[column]);
        at[column] = ex_mod(x, number, t->dims[column]);
        expr_id bytes = em_bytes(em, v, at);
        if (i == 0 || bytes.i != last.i)
            em_prefetch(em, L_PREFETCH2, em_buffer(em, v), bytes);
        last = bytes;
    }
}
