/* Loops over the points of a box (emit/box.h). */
#include "passes/emit/box.h"
#include "passes/emit/register_tile.h"

void em_box_add(struct em_box *n, int32_t dim, expr_id first, expr_id count, uint32_t lanes)
{
    n->loop[n->n++] = (struct em_box_loop){.dim = dim, .first = first, .n = count, .lanes = lanes};
}

static void box_loops(const struct em_box_at *h);

static void box_index(struct em_box_at h, expr_id index)
{
    h.idx[h.box->loop[h.depth++].dim] = index;
    box_loops(&h);
}

/* Whole vectors of the loop's points, then the partial one. */
static void box_vectors(const struct em_box_at *h, const struct em_box_loop *l)
{
    struct em *em = h->em;
    expr_id w = ex_const(em->x, l->lanes), full = ex_div(em->x, l->n, w), rest = ex_mod(em->x, l->n, w);
    expr_id zero = ex_const(em->x, 0), base = ex_add(em->x, l->first, ex_mulc(em->x, full, l->lanes));
    struct em_if iff;
    if (!ex_is(em->x, full, 0)) {
        struct em_for loop;
        expr_id t = em_for_begin(em, &loop, zero, full, NULL, 0);
        expr_id points = ex_add(em->x, ex_mulc(em->x, t, l->lanes), em_lane(em, l->lanes, (lreg){0}));
        box_index(*h, ex_add(em->x, l->first, points));
        em_for_end(em, &loop, NULL, NULL);
    }
    if (ex_is(em->x, rest, 0) || !em_if_known(em, &iff, ex_lt(em->x, zero, rest)))
        return;
    if (iff.block.i && !ex_is_const(em->x, base, &(int64_t){0})) /* nothing that it loads may move above its test */
        base = em_pin(em, base, 0, INT64_MAX);
    box_index(*h, em_tail(em, base, rest, l->lanes));
    em_if_end(em, &iff);
}

static void box_tile(void *user, expr_id index, uint32_t count)
{
    const struct em_box_at *h = user;
    const struct em_box_loop *l = &h->box->loop[h->depth];
    h->idx[l->dim] = ex_add(h->em->x, ex_max(h->em->x, l->first, ex_const(h->em->x, 0)), index);
    struct em_box_at here = *h;
    here.count = count;
    h->box->fn(&here);
}

/* Indices lo .. hi - 1 of the loop. */
static void box_range(struct em_box_at h, expr_id lo, expr_id hi, bool inside)
{
    struct em_for l;
    if (ex_cmp_lt(h.em->x, lo, hi) == FALSE_)
        return;
    h.inside = inside;
    box_index(h, em_for_begin(h.em, &l, lo, hi, NULL, 0));
    em_for_end(h.em, &l, NULL, NULL);
}

/* An index that lies beside the value or not, as the run says. */
static void box_asked(struct em_box_at h, expr_id index, expr_id size)
{
    struct em *em = h.em;
    struct em_if iff;
    expr_id inside = em_inside(em, index, size);
    if (ex_truth(em->x, inside) == TRUE_) {
        box_index(h, index);
        return;
    }
    lreg cond = em_cond(em, inside);
    em_if_begin(em, &iff, cond);
    box_index(h, index);
    em_if_end(em, &iff);
    em_if_begin(em, &iff, em_op1(em, L_NOT, cond));
    h.inside = false;
    box_index(h, index);
    em_if_end(em, &iff);
}

/* What lies before the value, in it and after it; of a border, before and after it first. */
static void box_cut(struct em_box_at h, const struct em_box_loop *l, expr_id end)
{
    struct exprs *x = h.em->x;
    bool last = h.depth + 1 == h.box->n, border = h.box->border;
    expr_id zero = ex_const(x, 0), from = ex_max(x, l->first, zero), to = ex_min(x, l->size, end),
            after = ex_max(x, l->size, l->first);
    box_range(h, l->first, ex_min(x, zero, end), false);
    if (border)
        box_range(h, after, end, false);
    if (last && h.box->tile)
        em_tiles(h.em, ex_sub(x, to, from), h.box->tile, REST_POINTS, box_tile, &h);
    else if (!last || !border)
        box_range(h, from, to, true);
    if (!border)
        box_range(h, after, end, false);
}

static void box_loops(const struct em_box_at *h)
{
    struct em *em = h->em;
    const struct em_box_loop *l = &h->box->loop[h->depth];
    struct em_for loop;
    if (h->depth == h->box->n) {
        h->box->fn(h);
        return;
    }
    bool known = ex_is_const(em->x, l->first, &(int64_t){0}), asked = h->inside && l->size.i;
    expr_id end = ex_add(em->x, l->first, l->n);
    if (l->lanes) {
        box_vectors(h, l);
    } else if (known && asked) {
        box_cut(*h, l, end);
    } else if (known) {
        box_range(*h, l->first, end, h->inside);
    } else {
        expr_id index = ex_add(em->x, l->first, em_for_begin(em, &loop, ex_const(em->x, 0), l->n, NULL, 0));
        if (asked)
            box_asked(*h, index, l->size);
        else
            box_index(*h, index);
        em_for_end(em, &loop, NULL, NULL);
    }
}

void em_box(struct em *em, const struct em_box *box, expr_id *idx)
{
    box_loops(&(struct em_box_at){em, box, idx, 1, true, 0});
}
