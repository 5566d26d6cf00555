/* Row buffers: values kept for the length of a row (kernel.locals). The first stage that wants one fills it, if that is
 * a reduction over exactly these points, else a loop before it (fuse/store.c decides which values; docs/kernels.md). A
 * use at another row, or where the filling cannot be seen, computes the value as ever.
 *
 * The row of the result is filled once, before any loop of the last stage, which overwrites it: never under a
 * condition, inside of which it could be filled, or read, again. */
#include "passes/emit/producer.h"

void em_row_buffer_begin(struct em *em, struct em_producer *p, const struct row_local *local)
{
    const struct type *t = value_type(em->g, local->value);
    struct em_layout l = {.lanes = -1};
    p->on_demand = true;
    for (int32_t d = 0; d < t->rank; d++) {
        p->box.first[d] = ex_const(em->x, 0);
        if (local->inner >> d & 1) {
            p->box.extent[d] = 1;
            ex_is_const(em->x, t->dims[d], &p->box.extent[d]);
            l.order[l.n++] = d;
        }
    }
    p->in_result = local->in_result;
    if (p->in_result) {
        p->value = local->value;
        p->storage = em->m->fused.storage[em->k->outs.data[0].i];
        p->buffer = em_buffer(em, em->k->outs.data[0]);
    } else {
        em_producer_begin(em, p, local->value, &l);
    }
}

/* The level at which the row of a point is known; 0: it has lanes, or may not be filled there. */
static int row_depth(const struct em *em, const struct em_producer *p, const expr_id *idx)
{
    int depth = 1;
    for (uint32_t i = 0; i < em->syms.n; i++)
        for (int32_t d = 0; d < p->storage.rank; d++) {
            const struct em_sym *s = &em->syms.data[i];
            if (p->box.extent[d] || !ex_uses(em->x, idx[d], s->sym))
                continue;
            if (s->lanes)
                return 0;
            if (s->depth > depth)
                depth = s->depth;
        }
    return depth >= em->floor ? depth : p->in_result ? 0 : em->floor;
}

/* Is p the row of the result that has been filled before? */
static bool is_spent(const struct em_producer *p)
{
    return p->in_result && p->home.i;
}

static void row_is(struct em_producer *p, const expr_id *idx)
{
    for (int32_t d = 0; d < p->storage.rank; d++)
        if (!p->box.extent[d])
            p->box.first[d] = idx[d];
}

static void fill_point(const struct em_box_at *h)
{
    em_producer_point(h->em, h->box->user, h->idx, ex_const(h->em->x, 1));
}

bool em_row_buffer_fill(struct em *em, struct em_producer *p, const expr_id *idx, expr_id cond)
{
    struct em_box nest = {.fn = fill_point, .user = p};
    expr_id at[RANK_MAX];
    lblock saved[EM_LEVELS];
    int top = em->top, floor = em->floor, depth = row_depth(em, p, idx);
    /* Outside of a pad or of a concat's piece there is nothing to fill the row with. */
    if (ex_truth(em->x, cond) != TRUE_ || !depth || depth > top || is_spent(p))
        return false;
    memcpy(at, idx, (size_t)p->storage.rank * sizeof *at);
    for (int32_t d = 0; d < p->storage.rank; d++)
        if (p->box.extent[d])
            em_box_add(&nest, d, p->box.first[d], value_type(em->g, p->value)->dims[d], 0);
    if (nest.n)
        nest.loop[nest.n - 1].lanes = em->schedule->producer[p - em->producers].lanes;
    row_is(p, idx);
    memcpy(saved, em->level, sizeof saved);
    em->top = depth;
    em->floor = depth; /* a loop of one trip is no loop: its statements stay here all the same */
    em_box(em, &nest, at);
    em_producer_filled(em, p);
    em->floor = floor;
    memcpy(em->level, saved, sizeof saved);
    em->top = top;
    return true;
}

bool em_row_buffer_carry_begin(struct em *em, value_id v, const int64_t *axes, uint32_t n_axes, const expr_id *point)
{
    struct em_producer *p = em_producer_of(em, v);
    expr_id idx[RANK_MAX];
    uint32_t mask = 0;
    for (uint32_t i = 0; i < n_axes; i++)
        mask |= axes[i] < 32 ? 1u << axes[i] : 0;
    if (!p || !p->on_demand || p->filling || p->carried || em_producer_open(em, p))
        return false;
    for (int32_t d = 0; d < p->storage.rank; d++)
        if ((p->box.extent[d] > 0) != (mask >> d & 1))
            return false;
    for (int32_t d = 0; d < p->storage.rank; d++)
        idx[d] = mask >> d & 1 ? p->box.first[d] : *point++;
    if (is_spent(p) || (p->in_result && row_depth(em, p, idx) != em->top))
        return false;
    p->carried = true;
    p->partial = false;
    em_producer_filled(em, p);
    return true;
}

lreg em_row_buffer_carry(struct em *em, struct em_producer *p, const expr_id *idx, expr_id cond)
{
    p->partial |= ex_truth(em->x, cond) != TRUE_;
    row_is(p, idx);
    return em_producer_point(em, p, idx, cond);
}

void em_row_buffer_carry_end(struct em *em, value_id v)
{
    struct em_producer *p = em_producer_of(em, v);
    p->carried = false;
    if (p->partial) {
        p->home = (lblock){0};
        p->on_demand = !p->in_result;
    }
}
