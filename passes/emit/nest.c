/* Loops over the points of a box (emit/nest.h). */
#include "passes/emit/nest.h"
#include "passes/emit/templates.h"
#include "passes/emit/tile.h"

void em_nest_add(struct em_nest *n, int32_t dim, expr_id first, expr_id count, uint32_t lanes)
{
    n->loop[n->n++] = (struct em_nest_loop){.dim = dim, .first = first, .n = count, .lanes = lanes};
}

static void nest_loops(const struct em_nest_at *h);

static void nest_index(struct em_nest_at h, expr_id index)
{
    h.idx[h.nest->loop[h.depth++].dim] = index;
    nest_loops(&h);
}

static void nest_vector(struct em *em, void *user, expr_id points)
{
    (void)em;
    nest_index(*(const struct em_nest_at *)user, points);
}

static void nest_tile(void *user, expr_id index, uint32_t count)
{
    const struct em_nest_at *h = user;
    const struct em_nest_loop *l = &h->nest->loop[h->depth];
    h->idx[l->dim] = ex_add(h->em->x, ex_max(h->em->x, l->first, ex_const(h->em->x, 0)), index);
    struct em_nest_at here = *h;
    here.count = count;
    h->nest->fn(&here);
}

/* Indices lo .. hi - 1 of the loop. */
static void nest_range(struct em_nest_at h, expr_id lo, expr_id hi, bool inside)
{
    struct em_for l;
    if (ex_cmp_lt(h.em->x, lo, hi) == FALSE_)
        return;
    h.inside = inside;
    nest_index(h, em_for_begin(h.em, &l, lo, hi, 1, NULL, 0));
    em_for_end(h.em, &l, NULL, NULL);
}

/* An index that lies beside the value or not, as the run says. */
static void nest_asked(struct em_nest_at h, expr_id index, expr_id size)
{
    struct em *em = h.em;
    struct em_if iff;
    expr_id inside = em_inside(em, index, size);
    if (ex_truth(em->x, inside) == TRUE_) {
        nest_index(h, index);
        return;
    }
    lreg cond = em_cond(em, inside);
    em_if_begin(em, &iff, cond);
    nest_index(h, index);
    em_if_end(em, &iff);
    em_if_begin(em, &iff, em_op1(em, L_NOT, cond));
    h.inside = false;
    nest_index(h, index);
    em_if_end(em, &iff);
}

/* What lies before the value, in it and behind it; of a border, before and behind it first. */
static void nest_cut(struct em_nest_at h, const struct em_nest_loop *l, expr_id end)
{
    struct exprs *x = h.em->x;
    bool last = h.depth + 1 == h.nest->n, border = h.nest->border;
    expr_id zero = ex_const(x, 0), from = ex_max(x, l->first, zero), to = ex_min(x, l->size, end),
            behind = ex_max(x, l->size, l->first);
    nest_range(h, l->first, ex_min(x, zero, end), false);
    if (border)
        nest_range(h, behind, end, false);
    if (last && h.nest->tile)
        em_tiles(h.em, ex_sub(x, to, from), h.nest->tile, nest_tile, &h);
    else if (!last || !border)
        nest_range(h, from, to, true);
    if (!border)
        nest_range(h, behind, end, false);
}

static void nest_loops(const struct em_nest_at *h)
{
    struct em *em = h->em;
    const struct em_nest_loop *l = &h->nest->loop[h->depth];
    struct em_for loop;
    struct em_nest_at here = *h;
    if (h->depth == h->nest->n) {
        h->nest->fn(h);
        return;
    }
    bool known = ex_is_const(em->x, l->first, &(int64_t){0}), asked = h->inside && l->size.i;
    expr_id end = ex_add(em->x, l->first, l->n);
    if (l->lanes) {
        em_vectors(em, l->first, l->n, l->lanes, nest_vector, &here);
    } else if (known && asked) {
        nest_cut(*h, l, end);
    } else if (known) {
        nest_range(*h, l->first, end, h->inside);
    } else {
        expr_id index = ex_add(em->x, l->first, em_for_begin(em, &loop, ex_const(em->x, 0), l->n, 1, NULL, 0));
        if (asked)
            nest_asked(*h, index, l->size);
        else
            nest_index(*h, index);
        em_for_end(em, &loop, NULL, NULL);
    }
}

void em_nest(struct em *em, const struct em_nest *nest, expr_id *idx)
{
    nest_loops(&(struct em_nest_at){em, nest, idx, 1, true, 0});
}
