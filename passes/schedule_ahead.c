/* Lines of panels that the steps of a contraction ask for before they are due (em.ahead, emit_step.c). */
#include "passes/schedule_tiled.h"

enum { NEAR_STEPS = 16, FEW_ROWS = 64 };

/* Panels that only a few tiles read come from memory as fast as that gives them, while the others compute: there each tile
 * asks for its share of the next block's panels, when these and its own fit the second-level cache. The panels of a product
 * come from there for each row of tiles: its steps ask for the lines that are due some steps later. */
void ahead_choose(struct em *em, struct tiling *t)
{
    int64_t points = 1, n, slice, l2 = (int64_t)em->mach.l2_kib * 1024;
    bool dot = t->n->op == OP_DOT, groups = t->n->op == OP_CONV && node_int(t->n, "groups", 1) != 1;
    em->ahead = (struct em_ahead){.dim = t->vec};
    if (em->k->kind != KERNEL_CONTRACT || t->vec < 0 || groups || t->chunk || !(t->fixed_b || t->flat || (dot && t->a >= 0)) ||
        em->m->storage[t->n->in[1].i].place != PLACE_WEIGHTS)
        return;
    for (int32_t d = 0; d < t->t->rank; d++)
        if (d != t->vec && (!ex_is_const(em->x, t->t->dims[d], &n) || !mul_i64(points, n, &points)))
            return;
    int64_t steps = (int64_t)tile_steps(em, t->n), group = dot_group(em->m, t->n);
    if (points < 2 || !mul_i64(steps / group, (int64_t)t->nr * em->mach.vector_bytes, &slice))
        return;
    if (dot && slice > (int64_t)em->mach.l1_kib * 1024 / 2)
        em->ahead.near = NEAR_STEPS * group;
    if (points > (dot ? FEW_ROWS : FEW_POINTS))
        return;
    if (slice <= l2 * 5 / 16)
        t->early = steps;
    else if (block_choose(em, t, steps, slice))
        t->early = t->k.steps;
}

void ahead_tile(struct em *em, struct tiling *t, expr_id tile, int64_t tiles)
{
    struct exprs *x = em->x;
    struct em_ahead *a = &em->ahead;
    a->far = 0;
    if (!t->early || tiles < 2 || (t->nr + tiles - 1) / tiles > AHEAD_MOST)
        return;
    int64_t shares = tiles > t->nr ? tiles / t->nr : 1, line = em->mach.vector_bytes / dot_group(em->m, t->n);
    bool same = t->k.sums.i && !t->k.last;
    a->n = (uint32_t)((t->nr + tiles - 1) / tiles);
    for (uint32_t i = 0; i < a->n; i++) {
        expr_id vector = ex_mod(x, ex_addc(x, ex_mulc(x, tile, a->n), i), ex_const(x, t->nr));
        a->vector[i] = ex_mulc(x, ex_addc(x, vector, same ? 0 : t->nr), t->lanes);
    }
    a->far = (line + shares - 1) / shares;
    a->now = t->k.sums.i ? t->k.from : ex_const(x, 0);
    a->k = same ? ex_addc(x, a->now, t->k.steps) : ex_const(x, 0);
    a->bytes = ex_mulc(x, ex_div(x, tile, ex_const(x, t->nr)), shares > 1 ? a->far * t->early : 0);
}
