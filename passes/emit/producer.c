/* Values in scratch, whatever fills them (emit/producer.h). */
#include "passes/emit/producer.h"

void em_producers_begin(struct em *em)
{
    const struct kernel *k = em->k;
    em->producers = NEW_ARRAY(em->arena, struct em_producer, k->locals.n + 2);
    em->staged = &em->producers[k->locals.n];
    em->decoded = em->staged + 1;
    for (uint32_t i = 0; i < k->locals.n; i++)
        em_row_buffer_begin(em, &em->producers[i], &k->locals.data[i]);
}

struct em_producer *em_producer_of(const struct em *em, value_id v)
{
    for (uint32_t i = 0; i < em->k->locals.n + 2; i++)
        if (em->producers[i].value.i == v.i)
            return &em->producers[i];
    return NULL;
}

bool em_producer_open(const struct em *em, const struct em_producer *p)
{
    return p->home.i && p->level <= em->top && em->level[p->level].i == p->home.i;
}

const struct em_producer *em_producer_seen(const struct em *em, value_id v)
{
    const struct em_producer *p = em_producer_of(em, v);
    return p && em_producer_open(em, p) ? p : NULL;
}

void em_producer_begin(struct em *em, struct em_producer *p, value_id v, const struct em_layout *l)
{
    struct exprs *x = em->x;
    const struct type *t = value_type(em->g, v);
    int32_t last = t->rank - 1;
    int64_t group = l->group ? l->group : 1, stride = l->lanes < 0 ? 1 : l->block * group;
    struct storage *s = &p->storage;
    p->value = v;
    p->home = (lblock){0};
    *s = (struct storage){
        .rank = t->rank, .dim = NEW_ARRAY(em->arena, struct dim_layout, t->rank + 1), .origin = ex_const(x, 0)};
    for (int32_t d = 0; d < t->rank; d++)
        s->dim[d].outer = ex_const(x, 0);
    for (uint32_t i = l->n; i > 0; i--) {
        int32_t d = l->order[i - 1];
        int64_t n = p->box.extent[d], blocks = (n + l->block - 1) / (l->block ? l->block : 1);
        if (d == l->lanes) {
            s->dim[d] = (struct dim_layout){l->block, ex_const(x, blocks > 1 ? stride : 0), group};
            if (group > 1 && blocks > 1) /* they begin with a whole one */
                s->origin = ex_sub(x, s->origin, ex_mulc(x, ex_div(x, p->box.first[d], ex_const(x, l->block)), stride));
            stride *= blocks;
            continue;
        }
        if (i == l->n && group > 1) {
            s->dim[d] = (struct dim_layout){group, ex_const(x, stride), 1};
            stride *= n / group;
            continue;
        }
        s->dim[d].outer = ex_const(x, stride);
        if (d == last && p->box.flat)
            s->dim[d - 1].outer = ex_mulc(x, t->dims[d], stride);
        s->origin = ex_sub(x, s->origin, ex_mulc(x, p->box.first[d], stride));
        stride *= n;
    }
    if (!p->buffer.i)
        p->buffer = em_scratch(em, t->elem, stride);
}

static enum elem elem_of(const struct em *em, const struct em_producer *p)
{
    return lf_type(em->f, p->buffer).elem;
}

lreg em_producer_point(struct em *em, struct em_producer *p, const expr_id *idx, expr_id cond)
{
    bool filling = p->filling;
    p->filling = true;
    lreg v = em_compute(em, p->value, idx, cond);
    p->filling = filling;
    em_store_at(em, p->buffer, &p->storage, elem_of(em, p), idx, v);
    return v;
}

void em_producer_zero(struct em *em, const struct em_producer *p, const expr_id *idx)
{
    em_store_at(em, p->buffer, &p->storage, elem_of(em, p), idx, em_const(em, elem_of(em, p), 1, 0, 0));
}

void em_producer_filled(struct em *em, struct em_producer *p)
{
    p->level = em->top;
    p->home = em->level[em->top];
}

/* Does the point have the indices that stand still? */
static bool holds(const struct em_producer *p, const expr_id *idx)
{
    for (int32_t d = 0; d < p->storage.rank; d++)
        if (!p->box.extent[d] && !(p->box.flat && d + 2 == p->storage.rank) && p->box.first[d].i != idx[d].i)
            return false;
    return true;
}

bool em_produced(struct em *em, value_id v, const expr_id *idx, expr_id cond, lreg *result)
{
    struct em_producer *p = em_producer_of(em, v);
    if (!p || p->filling)
        return false;
    if (p->carried) {
        *result = em_row_buffer_carry(em, p, idx, cond);
        return true;
    }
    bool open = em_producer_open(em, p);
    if (open && !holds(p, idx) && p->padded) { /* what is not in scratch might not be in the image */
        em->failed = true;
        error_internal(em->m->ctx, (src_id){0}, "kernel %s reads outside of what it has staged", em->f->name);
    }
    if (open ? !holds(p, idx) : !p->on_demand || !em_row_buffer_fill(em, p, idx, cond))
        return false;
    int floor = em->floor;
    if (em->floor < p->level) /* not above the loop that fills it */
        em->floor = p->level;
    *result = em_load_at(em, p->buffer, &p->storage, elem_of(em, p), idx, cond);
    em->floor = floor;
    return true;
}
