/* A set of values at points, by open addressing (visited.h). */
#include "passes/module/visited.h"

static size_t point_size(const struct visited *s, value_id v, const expr_id *idx)
{
    return idx ? (size_t)value_type(s->g, v)->rank * sizeof *idx : 0;
}

static struct visited_point *slot_of(const struct visited *s, value_id v, const expr_id *idx)
{
    size_t size = point_size(s, v, idx);
    uint64_t i = hash_mix(v.i, size ? hash_bytes(idx, size) : 0);
    for (;; i++) {
        struct visited_point *p = &s->slots[i & (s->n_slots - 1)];
        if (!p->value.i || (p->value.i == v.i && (!size || !memcmp(p->idx, idx, size))))
            return p;
    }
}

static void grow(struct visited *s)
{
    struct visited_point *old = s->slots;
    uint32_t n_old = s->n_slots;
    s->n_slots = n_old ? 2 * n_old : 32;
    s->slots = NEW_ARRAY(s->arena, struct visited_point, s->n_slots);
    for (uint32_t i = 0; i < n_old; i++)
        if (old[i].value.i)
            *slot_of(s, old[i].value, old[i].idx) = old[i];
}

bool visit(struct visited *s, value_id v, const expr_id *idx)
{
    if (2 * s->n >= s->n_slots)
        grow(s);
    struct visited_point *p = slot_of(s, v, idx);
    if (p->value.i)
        return false;
    size_t size = point_size(s, v, idx);
    *p = (struct visited_point){v, size ? arena_copy(s->arena, idx, size) : NULL};
    s->n++;
    return true;
}
