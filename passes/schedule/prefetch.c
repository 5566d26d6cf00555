/* Lines of panels that the steps of a contraction ask for before they are due (em.ahead, emit/step.c). */
#include "passes/schedule/tiled.h"

enum { NEAR_STEPS = 16 };

/* Panels that only a few tiles read come from memory as fast as that gives them, while the others compute: there each tile
 * asks for its share of the next block's panels, when these and its own fit the second-level cache. The panels of a product
 * come from there for each row of tiles: its steps ask for the lines that are due some steps later. */
void ahead_choose(struct em *em, struct tiling *t)
{
    bool dot = t->n->op == OP_DOT;
    em->ahead = (struct em_ahead){.dim = t->vec};
    if (!t->slice || t->points < 2 || !(t->fixed_b || t->flat || dot || t->k.blocks))
        return;
    if (dot && t->slice > (int64_t)em->mach->l1_kib * 1024 / 2)
        em->ahead.near = NEAR_STEPS * dot_group(em->m, t->n);
    if (t->k.blocks)
        t->early = t->k.size * t->k.cut.inner;
    else if (t->points <= (dot ? FEW_ROWS : FEW_POINTS) && t->slice <= (int64_t)em->mach->l2_kib * 1024 * 5 / 16)
        t->early = (int64_t)tile_steps(em, t->n);
}

void ahead_tile(struct em *em, struct tiling *t, expr_id tile, int64_t tiles)
{
    struct exprs *x = em->x;
    struct em_ahead *a = &em->ahead;
    int64_t panels = ((int64_t)t->nr * t->lanes + CHANNEL_BLOCK - 1) / CHANNEL_BLOCK;
    a->far = 0;
    if (!t->early || tiles < 2 || (panels + tiles - 1) / tiles > AHEAD_MOST)
        return;
    int64_t shares = tiles > panels ? tiles / panels : 1, line = CHANNEL_BLOCK * elem_size(value_type(em->g, t->n->in[1])->elem);
    bool part = t->k.sums.i, same = part && !t->k.last;
    a->n = (uint32_t)((panels + tiles - 1) / tiles);
    for (uint32_t i = 0; i < a->n; i++) {
        expr_id panel = ex_mulc(x, ex_mod(x, ex_addc(x, ex_mulc(x, tile, a->n), i), ex_const(x, panels)), CHANNEL_BLOCK);
        a->panel[i] = ex_addc(x, panel, same ? 0 : (int64_t)t->nr * t->lanes);
    }
    a->far = (line + shares - 1) / shares;
    a->cut = t->k.cut.dim;
    a->now = part ? ex_mulc(x, t->k.from, t->k.cut.inner) : ex_const(x, 0);
    a->k = same ? ex_addc(x, t->k.from, t->k.size) : ex_const(x, 0);
    a->bytes = ex_mulc(x, ex_div(x, tile, ex_const(x, panels)), shares > 1 ? a->far * t->early : 0);
}
