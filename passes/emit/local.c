/* Values kept for the length of a row: scratch that is filled by the first stage that wants it, when that is a
 * reduction over exactly these points, else by a loop before it (fuse/store.c decides which values; docs/kernels.md).
 * The row's indices are the same at the filling and at every use; the others address the buffer. A use at another row,
 * or where the filling cannot be seen, computes the value as ever. */
#include "passes/emit/emit.h"

#include <string.h>

struct em_local {
    value_id value;
    uint32_t inner; /* dims that address the buffer; the others are the row */
    struct storage storage;
    lreg buffer;
    bool filling, full;
    bool riding; /* the reduction at hand passes every point once, and stores what it computes */
    bool partial; /* ... but some of its points only under a condition */
    int depth; /* level of the filling loop, ... */
    lblock home; /* ... and its block */
    expr_id row[RANK_MAX];
};

void em_locals_begin(struct em *em)
{
    const struct kernel *k = em->k;
    em->locals = NEW_ARRAY(em->arena, struct em_local, k->locals.n + 1);
    for (uint32_t i = 0; i < k->locals.n; i++) {
        struct em_local *l = &em->locals[i];
        const struct type *t = value_type(em->g, k->locals.data[i].value);
        int64_t stride = 1, n;
        l->value = k->locals.data[i].value;
        l->inner = k->locals.data[i].inner;
        l->storage = (struct storage){
            .rank = t->rank, .dim = NEW_ARRAY(em->arena, struct dim_layout, t->rank + 1), .origin = ex_const(em->x, 0)};
        for (int32_t d = t->rank - 1; d >= 0; d--) {
            bool in = l->inner >> d & 1 && ex_is_const(em->x, t->dims[d], &n);
            l->storage.dim[d].outer = ex_const(em->x, in ? stride : 0);
            stride *= in ? n : 1;
        }
        l->buffer = em_scratch(em, register_elem(t->elem), stride);
    }
}

static bool same_row(const struct em_local *l, const expr_id *idx)
{
    for (int32_t d = 0; d < l->storage.rank; d++)
        if (!(l->inner >> d & 1) && l->row[d].i != idx[d].i)
            return false;
    return true;
}

/* The level at which the row of a point is known; 0: it has lanes. */
static int row_depth(const struct em *em, const struct em_local *l, const expr_id *idx)
{
    int depth = em->floor > 1 ? em->floor : 1;
    for (uint32_t i = 0; i < em->syms.n; i++)
        for (int32_t d = 0; d < l->storage.rank; d++) {
            const struct em_sym *s = &em->syms.data[i];
            if ((l->inner >> d & 1) || !ex_uses(em->x, idx[d], s->sym))
                continue;
            if (s->lanes)
                return 0;
            if (s->depth > depth)
                depth = s->depth;
        }
    return depth;
}

static void fill_point(struct em *em, struct em_local *l, expr_id *idx)
{
    lreg v = em_compute(em, l->value, idx, ex_const(em->x, 1));
    em_store_at(em, l->buffer, &l->storage, lf_type(em->f, l->buffer).elem, idx, v);
}

static void fill_loops(struct em *em, struct em_local *l, int32_t d, int32_t last, uint32_t lanes, expr_id *idx)
{
    const struct type *t = value_type(em->g, l->value);
    struct em_for loop;
    int64_t n = 1;
    while (d < l->storage.rank && !(l->inner >> d & 1))
        d++;
    if (d == l->storage.rank) {
        fill_point(em, l, idx);
        return;
    }
    expr_id zero = ex_const(em->x, 0);
    if (d != last) {
        idx[d] = em_for_begin(em, &loop, zero, t->dims[d], 1, NULL, 0);
        fill_loops(em, l, d + 1, last, lanes, idx);
        em_for_end(em, &loop, NULL, NULL);
        return;
    }
    ex_is_const(em->x, t->dims[d], &n);
    if (n / lanes) {
        expr_id i = em_for_begin(em, &loop, zero, ex_const(em->x, n / lanes), 1, NULL, 0);
        idx[d] = ex_add(em->x, ex_mulc(em->x, i, lanes), em_lane(em, lanes, (lreg){0}));
        fill_point(em, l, idx);
        em_for_end(em, &loop, NULL, NULL);
    }
    if (n % lanes) {
        idx[d] = em_tail(em, ex_const(em->x, n / lanes * lanes), ex_const(em->x, n % lanes), lanes);
        fill_point(em, l, idx);
    }
}

static void fill(struct em *em, struct em_local *l, int depth, const expr_id *idx)
{
    expr_id at[RANK_MAX];
    lblock saved[EM_LEVELS];
    int top = em->top, floor = em->floor;
    int32_t last = l->storage.rank - 1;
    uint32_t lanes = em->schedule->kept[l - em->locals].lanes;
    while (last > 0 && !(l->inner >> last & 1))
        last--;
    memcpy(at, idx, (size_t)l->storage.rank * sizeof *at);
    memcpy(l->row, at, sizeof l->row);
    memcpy(saved, em->level, sizeof saved);
    em->top = depth;
    em->floor = depth; /* a loop of one trip is no loop: its statements stay here all the same */
    l->depth = depth;
    l->home = em->level[depth];
    l->filling = true;
    fill_loops(em, l, 0, last, lanes, at);
    l->filling = false;
    l->full = true;
    em->floor = floor;
    memcpy(em->level, saved, sizeof saved);
    em->top = top;
}

static struct em_local *local_of(struct em *em, value_id v)
{
    for (uint32_t i = 0; i < em->k->locals.n; i++)
        if (em->locals[i].value.i == v.i)
            return &em->locals[i];
    return NULL;
}

static bool local_seen(const struct em *em, const struct em_local *l)
{
    return l->full && l->depth <= em->top && em->level[l->depth].i == l->home.i;
}

/* A reduction of v over the given dims is about to run its loops in the level now on top: true when it fills v's buffer
 * on the way. em_local_ride_end follows its loops. */
bool em_local_ride(struct em *em, value_id v, const int64_t *axes, uint32_t n_axes)
{
    struct em_local *l = local_of(em, v);
    uint32_t mask = 0;
    for (uint32_t i = 0; i < n_axes; i++)
        mask |= axes[i] < 32 ? 1u << axes[i] : 0;
    if (!l || l->filling || l->riding || l->inner != mask || local_seen(em, l))
        return false;
    l->riding = true;
    l->full = l->partial = false;
    l->depth = em->top;
    l->home = em->level[em->top];
    return true;
}

bool em_local_rides(struct em *em, value_id v)
{
    const struct em_local *l = local_of(em, v);
    return l && l->riding && !l->filling;
}

void em_local_ride_end(struct em *em, value_id v)
{
    struct em_local *l = local_of(em, v);
    l->riding = false;
    l->full = !l->partial;
}

static lreg ride(struct em *em, struct em_local *l, const expr_id *idx, expr_id cond)
{
    l->partial |= ex_truth(em->x, cond) != TRUE_;
    l->filling = true; /* the value itself, not from the buffer */
    lreg v = em_compute(em, l->value, idx, cond);
    l->filling = false;
    memcpy(l->row, idx, (size_t)l->storage.rank * sizeof *idx);
    em_store_at(em, l->buffer, &l->storage, lf_type(em->f, l->buffer).elem, idx, v);
    return v;
}

/* Is v one of them, and can it be had from its buffer at this point? */
bool em_local_value(struct em *em, value_id v, const expr_id *idx, expr_id cond, lreg *result)
{
    struct em_local *l = local_of(em, v);
    if (!l || l->filling)
        return false;
    if (l->riding) {
        *result = ride(em, l, idx, cond);
        return true;
    }
    bool seen = local_seen(em, l);
    if (seen && !same_row(l, idx))
        return false;
    if (!seen) { /* outside of a pad or of a concat's piece there is nothing to fill the row with */
        if (ex_truth(em->x, cond) != TRUE_)
            return false;
        int depth = row_depth(em, l, idx);
        if (!depth || depth > em->top)
            return false;
        fill(em, l, depth, idx);
    }
    int floor = em->floor;
    if (em->floor < l->depth) /* not above the loop that fills it */
        em->floor = l->depth;
    *result = em_load_at(em, l->buffer, &l->storage, lf_type(em->f, l->buffer).elem, idx, cond);
    em->floor = floor;
    return true;
}
