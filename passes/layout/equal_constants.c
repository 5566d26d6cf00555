/* Constants that are computed alike, and lie in the file alike: stored once.
 *
 * merge_constants.c makes one of equal constants of the file. What rules and passes make of them is made again for each
 * node that reads it: the branches of an If that multiply by one matrix have each their own copy of it in bytes of the
 * other sign, say. They are told apart here, where all of them are there and their storage is known. A constant has the
 * number of the first one that the same operator makes, with equal attributes, of operands of equal numbers.
 */
#include "passes/layout/layout.h"
#include "passes/module/access.h"

enum { DEPTH_MOST = 64 /* what is made of more is equal to itself alone */, SLOTS_LEAST = 64 };

struct equal_constants {
    value_id *first; /* by value: the first one that is equal; {0}: not asked yet */
    value_id *last, *before; /* by value: the last one equal to it that has a weight, and the one before that */
    uint32_t *slots, mask; /* hashed: those that are the first */
};

struct equal_constants *equal_constants_new(const struct module *m)
{
    struct equal_constants *e = NEW(m->arena, struct equal_constants);
    uint32_t n = m->g->values.n, slots = SLOTS_LEAST;
    while (slots / 2 < n && slots < 1u << 31)
        slots *= 2;
    *e = (struct equal_constants){.mask = slots - 1};
    e->first = NEW_ARRAY(m->arena, value_id, n);
    e->last = NEW_ARRAY(m->arena, value_id, n);
    e->before = NEW_ARRAY(m->arena, value_id, n);
    e->slots = NEW_ARRAY(m->arena, uint32_t, slots);
    return e;
}

static uint64_t key_of(const struct layouter *l, value_id v, const struct node *n)
{
    const struct type *t = value_type(l->g, v);
    uint64_t key = hash_mix(n->op, hash_mix(t->elem, (uint64_t)t->rank));
    for (int32_t d = 0; d < t->rank; d++)
        key = hash_mix(key, t->dims[d].i);
    for (uint32_t k = 0; k < n->n_in; k++)
        key = hash_mix(key, l->equal->first[n->in[k].i].i);
    for (uint32_t i = 0; i < n->n_attr; i++)
        key = hash_mix(key, attr_hash(&n->attr[i]));
    return key;
}

static bool made_alike(const struct layouter *l, value_id a, value_id b)
{
    const struct node *x = graph_node(l->g, graph_value(l->g, a)->def),
                      *y = graph_node(l->g, graph_value(l->g, b)->def);
    bool same = x->op == y->op && x->n_in == y->n_in && x->n_attr == y->n_attr &&
                type_equal(value_type(l->g, a), value_type(l->g, b));
    for (uint32_t k = 0; same && k < x->n_in; k++)
        same = l->equal->first[x->in[k].i].i == l->equal->first[y->in[k].i].i;
    for (uint32_t i = 0; same && i < x->n_attr; i++)
        same = attr_equal(&x->attr[i], &y->attr[i]);
    return same;
}

static value_id first_of(struct layouter *l, value_id v, uint32_t depth)
{
    struct equal_constants *e = l->equal;
    const struct node *n = graph_node(l->g, graph_value(l->g, v)->def);
    if (e->first[v.i].i)
        return e->first[v.i];
    e->first[v.i] = v;
    if (depth > DEPTH_MOST || n->n_out != 1 || n->n_region)
        return v;
    for (uint32_t k = 0; k < n->n_in; k++)
        first_of(l, n->in[k], depth + 1);
    uint32_t i = (uint32_t)key_of(l, v, n) & e->mask;
    while (e->slots[i] && !made_alike(l, (value_id){e->slots[i]}, v))
        i = (i + 1) & e->mask;
    if (!e->slots[i])
        e->slots[i] = v.i;
    return e->first[v.i] = (value_id){e->slots[i]};
}

bool weight_is_shared(struct layouter *l, value_id v)
{
    struct storage *s = &l->m->storage[v.i];
    value_id first = first_of(l, v, 0), w = l->equal->last[first.i];
    for (; w.i; w = l->equal->before[w.i])
        if (storage_alike(s, &l->m->storage[w.i])) {
            s->buffer = l->m->storage[w.i].buffer;
            return true;
        }
    l->equal->before[v.i] = l->equal->last[first.i];
    l->equal->last[first.i] = v;
    return false;
}
