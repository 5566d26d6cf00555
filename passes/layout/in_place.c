/* Which operands a kernel reads at the point alone at which it stores: its result may lie where such an operand was, if
 * nothing reads that later. For microcontrollers, where a residual connection would keep a third feature map. */
#include "passes/layout/layout.h"

enum { AT_POINT = 1, ELSEWHERE = 2 };
struct reads {
    const struct module *m;
    uint8_t *seen; /* by value: how it was met */
    struct met {
        value_id v;
        uint8_t how;
    } *work;
    uint32_t n, cap;
};

static void meet(struct reads *r, value_id v, uint8_t how)
{
    if (!v.i || (r->seen[v.i] & how))
        return;
    r->seen[v.i] |= how;
    if (r->n < r->cap)
        r->work[r->n++] = (struct met){v, how};
}

static bool same_dims(const struct type *a, const struct type *b)
{
    return a->kind == TYPE_TENSOR && a->rank == b->rank && !memcmp(a->dims, b->dims, (size_t)b->rank * sizeof *b->dims);
}

/* Of what the kernel computes itself: a map asks its operands at its own point. */
static void meet_operands(struct reads *r, struct met at, const struct type *result)
{
    node_id def = graph_value(r->m->g, at.v)->def;
    if (!def.i || value_is_const(r->m->g, at.v))
        return;
    const struct node *n = graph_node(r->m->g, def);
    bool map = op_shape(n->op) == SHAPE_MAP;
    for (uint32_t i = 0; i < n->n_in; i++)
        if (n->in[i].i)
            meet(r, n->in[i],
                 map && at.how == AT_POINT && same_dims(value_type(r->m->g, n->in[i]), result) ? AT_POINT : ELSEWHERE);
}

/* Do two values lie in the same memory: a value and its padded copy, a piece and the whole? */
static bool lie_together(const struct module *m, value_id a, value_id b)
{
    const struct storage *x = &m->fused.storage[a.i], *y = &m->fused.storage[b.i];
    return m->fused.constraint[a.i].frame.i == b.i || m->fused.constraint[b.i].frame.i == a.i ||
           (m->plan.buffers.n && x->place == PLACE_ARENA && y->place == PLACE_ARENA && x->buffer == y->buffer);
}

/* Is what lies in v's memory met as another value, too? */
static bool met_again(const struct reads *r, value_id v)
{
    for (uint32_t i = 0; i < r->n; i++)
        if (r->work[i].v.i != v.i && r->m->fused.stored[r->work[i].v.i] && lie_together(r->m, v, r->work[i].v))
            return true;
    return false;
}

uint32_t in_place_operands(const struct module *m, const struct kernel *k, value_id *out)
{
    bool plain = (k->kind == KERNEL_MAP || k->kind == KERNEL_REDUCE || k->kind == KERNEL_CONTRACT) && !k->has_rows &&
                 !k->locals.n && !k->path.n && !k->piece && !k->shares && k->outs.n == 1 && k->region.i == 1 &&
                 !k->form.staged.i && !k->form.product.i && !k->form.winograd && !k->form.attention;
    uint32_t count = 0;
    if (!plain || k->domain.i != k->outs.data[0].i || m->fused.storage[k->domain.i].place != PLACE_ARENA)
        return 0;
    const struct type *t = value_type(m->g, k->domain);
    struct reads r = {.m = m, .cap = 2 * m->fused.n_values};
    r.seen = NEW_ARRAY(m->arena, uint8_t, m->fused.n_values);
    r.work = NEW_ARRAY(m->arena, struct met, r.cap);
    meet_operands(&r, (struct met){k->domain, AT_POINT}, t);
    for (uint32_t i = 0; i < r.n; i++)
        if (!m->fused.stored[r.work[i].v.i])
            meet_operands(&r, r.work[i], t);
    for (uint32_t i = 0; i < r.n && count < IN_PLACE_MOST; i++) {
        value_id v = r.work[i].v;
        if (r.seen[v.i] == AT_POINT && m->fused.storage[v.i].place == PLACE_ARENA &&
            value_type(m->g, v)->elem == t->elem && !met_again(&r, v))
            out[count++] = v;
    }
    return count;
}
