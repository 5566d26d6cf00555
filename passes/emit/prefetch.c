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

void ahead_open_tile(struct em *em, const struct tiling *t, expr_id tile, uint32_t count)
{
    enum { LINE = 64 };
    struct exprs *x = em->x;
    struct em_ahead *a = &em->ahead;
    bool rows = t->n->op == OP_DOT;
    int64_t panels = panels_of(t), least = rows ? 1 : 2; /* tiles that there are, mostly */
    a->far = 0;
    a->near = t->s->near;
    if (count * (rows ? 2 : 4) < t->s->ta) { /* its steps take no longer than what they read */
        a->near = 0;
        return;
    }
    a->n = (uint32_t)((panels + least - 1) / least);
    if (!t->s->early || a->n > AHEAD_MOST)
        return;
    expr_id panel = ex_mulc(x, tile, a->n), next = ex_lt(x, panel, ex_const(x, panels)),
            from = em_pin(em, ex_select(x, next, panel, ex_const(x, 0)), 0, panels);
    from = ex_add(x, ex_mulc(x, from, CHANNEL_BLOCK),
                  ex_mulc(x, em_pin(em, next, 0, 1), (int64_t)t->s->nr * t->s->lanes));
    for (uint32_t i = 0; i < a->n; i++)
        a->panel[i] = ex_addc(x, from, (int64_t)i * CHANNEL_BLOCK);
    a->far = LINE;
    a->cut = em->facts->k.dim;
    a->now = a->k = a->bytes = ex_const(x, 0);
}

void ahead_tile(struct em *em, struct tiling *t, expr_id tile, int64_t tiles)
{
    struct exprs *x = em->x;
    struct em_ahead *a = &em->ahead;
    int64_t panels = panels_of(t);
    a->far = 0;
    if (!t->s->early || tiles < 2 || (panels + tiles - 1) / tiles > AHEAD_MOST)
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
    a->far = (line + shares - 1) / shares;
    a->cut = em->facts->k.dim;
    a->now = part ? ex_mulc(x, t->k.from, em->facts->k.inner) : ex_const(x, 0);
    a->k = same ? ex_addc(x, t->k.from, t->s->k_block) : ex_const(x, 0);
    a->bytes = ex_mulc(x, ex_div(x, tile, ex_const(x, panels)), shares > 1 ? a->far * t->s->early : 0);
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
