/* plan: offsets of arena buffers.
 *
 * Life of a buffer: from the first kernel that writes it (or its halo) to the last that reads it, in execution order;
 * what a nested region touches lives as long as the node that owns the region runs. Sizes that are all multiples of one
 * common factor (the batch) are packed as intervals, largest first; other symbolic sizes share slots, in order.
 * lives.c finds the gaps between those that live at the same time.
 */

#include "passes/layout/layout.h"
#include "passes/layout/lives.h"
#include "passes/module/access_function.h"

enum { ALIGN = 64, SLOTS_LOOKED_AT = 1024 };
struct planner {
    struct module *m;
    struct graph *g;
    struct exprs *x;
    uint32_t *position;          /* by kernel: when it runs, in program order of the top region */
    uint32_t *seen;              /* by node: the last turn of touch_inputs that met it */
    VEC(value_id) work;          /* of touch_inputs */
};

/* ---- lives ----------------------------------------------------------------------------------------------- */

static void touch(struct planner *p, value_id v, uint32_t at)
{
    const struct storage *s = &p->m->fused.storage[v.i];
    if (s->place != PLACE_ARENA)
        return;
    struct buffer *b = &p->m->plan.buffers.data[s->buffer];
    if (b->first > at)
        b->first = at;
    if (b->last < at)
        b->last = at;
}

/* Everything in memory that v is computed from inside a kernel; of the kernel's outputs together, a node once. */
static void touch_inputs(struct planner *p, value_id v, uint32_t at, uint32_t turn)
{
    p->work.n = 0;
    VEC_PUSH(p->m->arena, &p->work, v);
    while (p->work.n) {
        value_id u = p->work.data[--p->work.n];
        if (!u.i)
            continue;
        touch(p, u, at);
        node_id def = graph_value(p->g, u)->def;
        if (!def.i || (p->m->fused.stored[u.i] && u.i != v.i) || value_is_const(p->g, u) || p->seen[def.i] == turn)
            continue;
        p->seen[def.i] = turn;
        const struct node *n = graph_node(p->g, def);
        for (uint32_t k = 0; k < n->n_in; k++)
            VEC_PUSH(p->m->arena, &p->work, n->in[k]);
    }
}

static uint32_t owner_kernel(const struct planner *p, region_id r)
{
    node_id owner = {0};
    while (r.i != 1) {
        owner = graph_get_region(p->g, r)->owner;
        if (!owner.i)   /* a region that no node has, and all inside */
            return 0;
        r = graph_node(p->g, owner)->parent;
    }
    return owner.i ? p->m->fused.kernel_of[owner.i] : 0;
}

/* A carried value's result lies in one of the places that its parameter, the body's result and, when there is no trip,
 * its first value have: they live as long as that is read. */
static bool extend_through_loop(struct planner *p, const struct node *n)
{
    int64_t carried = node_int(n, "n_carried", 0);
    const struct region *body = graph_get_region(p->g, n->region[0]);
    bool longer = false;
    for (int64_t c = 0; c < carried; c++) {
        const struct storage *out = &p->m->fused.storage[n->out[c].i];
        uint32_t last = out->place == PLACE_ARENA ? p->m->plan.buffers.data[out->buffer].last : p->m->fused.order.n;
        value_id from[3] = {view_plain(p->g, n->in[2 + c]), body->params.data[2 + c], body->results.data[1 + c]};
        for (int k = 0; k < 3; k++) {
            const struct storage *s = &p->m->fused.storage[from[k].i];
            if (s->place != PLACE_ARENA || p->m->plan.buffers.data[s->buffer].last >= last)
                continue;
            p->m->plan.buffers.data[s->buffer].last = last;
            longer = true;
        }
    }
    return longer;
}

/* Lives are handed on from loop to loop: with the numbers of kernels in one region, against them in another. */
static void extend_through_loops(struct planner *p)
{
    const uint32_t n = p->m->fused.kernels.n;
    bool again = true;
    for (uint32_t sweep = 0; again; sweep++) {
        again = false;
        for (uint32_t i = 0; i < n; i++) {
            const struct kernel *k = &p->m->fused.kernels.data[sweep % 2 ? i : n - 1 - i];
            if (k->kind == KERNEL_CONTROL && graph_node(p->g, k->anchor)->op == OP_LOOP)
                again |= extend_through_loop(p, graph_node(p->g, k->anchor));
        }
    }
}

static void find_lives(struct planner *p)
{
    struct module *m = p->m;
    p->seen = NEW_ARRAY(m->arena, uint32_t, p->g->nodes.n);
    for (uint32_t i = 0; i < m->plan.buffers.n; i++)
        m->plan.buffers.data[i].first = UINT32_MAX;
    for (uint32_t i = 0; i < m->fused.order.n; i++)
        p->position[m->fused.order.data[i]] = i;
    for (uint32_t i = 0; i < m->fused.kernels.n; i++) {
        struct kernel *k = &m->fused.kernels.data[i];
        uint32_t owner = k->region.i == 1 ? i + 1 : owner_kernel(p, k->region);
        uint32_t at = owner ? p->position[owner - 1] : 0;
        for (uint32_t o = 0; o < k->outs.n; o++) {
            touch(p, k->outs.data[o], at);
            touch_inputs(p, k->piece ? k->domain : k->outs.data[o], at, i + 1);
        }
        if (k->kind == KERNEL_CONTROL || k->kind == KERNEL_OPAQUE) {
            const struct node *n = graph_node(p->g, k->anchor);
            for (uint32_t o = 0; o < n->n_in; o++)
                touch(p, view_plain(p->g, n->in[o]), at);
        }
    }
    for (uint32_t r = 2; r < p->g->regions.n; r++) { /* parameters and results of nested regions */
        const struct region *region = graph_get_region(p->g, (region_id){r});
        if (!region->owner.i)
            continue;
        uint32_t owner = owner_kernel(p, (region_id){r});
        for (uint32_t i = 0; owner && i < region->params.n; i++)
            touch(p, region->params.data[i], p->position[owner - 1]);
        for (uint32_t i = 0; owner && i < region->results.n; i++)
            touch(p, region->results.data[i], p->position[owner - 1]);
    }
    extend_through_loops(p);
    /* What the program reads to bind a symbol is read right after the kernel that stores it: nothing to add. */
}

/* ---- results in the memory of operands --------------------------------------------------------------------------- */

static bool lie_alike(const struct storage *a, const struct storage *b)
{
    if (a->rank != b->rank || a->origin.i != b->origin.i || a->size.i != b->size.i || !a->halo != !b->halo)
        return false;
    for (int32_t d = 0; d < a->rank; d++)
        if (a->dim[d].block != b->dim[d].block || a->dim[d].outer.i != b->dim[d].outer.i ||
            a->dim[d].inner != b->dim[d].inner ||
            (a->halo && (a->halo[d] != b->halo[d] || a->halo[a->rank + d] != b->halo[b->rank + d])))
            return false;
    return true;
}

/* A result takes the place of an operand that is read for the last time, each element at its own point. Pieces of a
 * concat's result stay where that is. */
static void update_in_place(struct planner *p)
{
    struct module *m = p->m;
    for (uint32_t at = 0; at < m->fused.order.n; at++) {
        struct kernel *k = &m->fused.kernels.data[m->fused.order.data[at]];
        value_id from[IN_PLACE_MOST];
        uint32_t n = in_place_operands(m, k, from);
        k->in_place = false;
        for (uint32_t i = 0; i < n; i++) {
            struct storage *to = &m->fused.storage[k->outs.data[0].i], *s = &m->fused.storage[from[i].i];
            struct buffer *mine = &m->plan.buffers.data[to->buffer], *of = &m->plan.buffers.data[s->buffer];
            if (mine == of || mine->value.i != k->outs.data[0].i || mine->segment || of->segment || mine->first != at ||
                of->last != at || mine->bytes.i != of->bytes.i || !lie_alike(to, s))
                continue;
            struct storage *copy = &m->fused.storage[m->fused.constraint[k->outs.data[0].i].frame.i];
            of->last = mine->last;
            mine->first = UINT32_MAX;
            if (copy->buffer == to->buffer) /* it is not a piece of another value */
                copy->buffer = s->buffer;
            to->buffer = s->buffer;
            k->in_place = true;
            break;
        }
    }
}

/* ---- packing ------------------------------------------------------------------------------------------------ */

/* The symbol of which every size is a multiple, if there is one: {0} when all are constant. */
static bool common_factor(const struct planner *p, sym_id *factor)
{
    *factor = (sym_id){0};
    for (uint32_t i = 0; i < p->m->plan.buffers.n; i++) {
        const struct buffer *b = &p->m->plan.buffers.data[i];
        int64_t c;
        expr_id coef, rest;
        if (b->segment || b->first == UINT32_MAX || ex_is_const(p->x, b->bytes, &c))
            continue;
        sym_id sym = ex_first_sym(p->x, b->bytes);
        if (sym_get(p->x, sym)->kind != SYM_SHAPE || (factor->i && factor->i != sym.i) ||
            !ex_linear(p->x, b->bytes, sym, &coef, &rest) || !ex_is_const(p->x, coef, &c) || !ex_is(p->x, rest, 0))
            return false;
        *factor = sym;
    }
    return true;
}

static int64_t unit_bytes(const struct planner *p, const struct buffer *b, sym_id factor)
{
    int64_t c = 0;
    expr_id coef, rest;
    if (!ex_is_const(p->x, b->bytes, &c) && ex_linear(p->x, b->bytes, factor, &coef, &rest))
        ex_is_const(p->x, coef, &c);
    return (c + ALIGN - 1) / ALIGN * ALIGN;
}

/* A buffer, and where it is packed (bytes for one of the common factor). */
struct packed {
    uint32_t buffer;
    int64_t offset, size;
};

static int by_size(const void *a, const void *b)
{
    const struct packed *x = *(struct packed *const *)a, *y = *(struct packed *const *)b;
    return x->size != y->size ? (x->size < y->size) - (x->size > y->size)
                              : (x->buffer > y->buffer) - (x->buffer < y->buffer);
}

/* One after the other, each into the lowest gap: what all take. */
static int64_t pack_in_order(const struct planner *p, struct packed *const *order, uint32_t n)
{
    struct arena arena;
    struct lives lives = {.arena = &arena};
    int64_t total = 0;
    arena_init(&arena, p->m->ctx);
    lives_begin(&lives, p->m->fused.order.n);
    for (uint32_t k = 0; k < n; k++) {
        struct packed *at = order[k];
        const struct buffer *b = &p->m->plan.buffers.data[at->buffer];
        if (!lives_gap(&lives, b->first, b->last, at->size, &at->offset))
            at->offset = total;
        lives_add(&lives, b->first, b->last, at->offset, at->size);
        total = at->offset + at->size > total ? at->offset + at->size : total;
    }
    arena_release(&arena);
    return total;
}

/* What lives while the kernel runs that has most: nothing takes less. */
static int64_t most_alive(const struct planner *p, struct packed *const *order, uint32_t n)
{
    int64_t most = 0;
    for (uint32_t k = 0; k < p->m->fused.order.n; k++) {
        int64_t sum = 0;
        for (uint32_t i = 0; i < n; i++) {
            const struct buffer *b = &p->m->plan.buffers.data[order[i]->buffer];
            sum += b->first <= k && k <= b->last ? order[i]->size : 0;
        }
        most = sum > most ? sum : most;
    }
    return most;
}

/* Other orders, in which one buffer comes earlier or later, as long as bytes can be saved. */
static int64_t pack_tighter(const struct planner *p, struct packed **order, uint32_t n, int64_t total)
{
    enum { TRIES = 1000, BUFFERS_MOST = 200 };
    int64_t least = n <= BUFFERS_MOST ? most_alive(p, order, n) : total;
    uint64_t drawn = 1;
    for (uint32_t t = 0; t < TRIES && total > least; t++) {
        uint32_t from = (uint32_t)((drawn = hash_mix(drawn, t)) % n), to = (uint32_t)((drawn >> 32) % n);
        struct packed *moved = order[from];
        memmove(order + from, order + from + 1, (n - from - 1) * sizeof *order);
        memmove(order + to + 1, order + to, (n - to - 1) * sizeof *order);
        order[to] = moved;
        int64_t takes = pack_in_order(p, order, n);
        if (takes <= total) {
            total = takes;
            continue;
        }
        memmove(order + to, order + to + 1, (n - to - 1) * sizeof *order);
        memmove(order + from + 1, order + from, (n - from - 1) * sizeof *order);
        order[from] = moved;
    }
    return pack_in_order(p, order, n);
}

static void pack_intervals(struct planner *p, sym_id factor)
{
    struct module *m = p->m;
    uint32_t n = m->plan.buffers.n, n_packed = 0;
    struct packed *all = NEW_ARRAY(m->arena, struct packed, n + 1),
                  **order = NEW_ARRAY(m->arena, struct packed *, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        const struct buffer *b = &m->plan.buffers.data[i];
        if (b->segment || b->first == UINT32_MAX)
            continue;
        all[i] = (struct packed){.buffer = i, .size = unit_bytes(p, b, factor)};
        order[n_packed++] = &all[i];
    }
    qsort(order, n_packed, sizeof *order, by_size); /* the largest first */
    int64_t total = pack_in_order(p, order, n_packed);
    if (module_machine(m)->span)
        total = pack_tighter(p, order, n_packed, total);
    expr_id unit = factor.i ? ex_max(p->x, ex_sym(p->x, factor), ex_const(p->x, 1)) : ex_const(p->x, 1);
    for (uint32_t i = 0; i < n; i++)
        m->plan.buffers.data[i].offset = ex_mulc(p->x, unit, all[i].offset);
    m->plan.arena_bytes = ex_mulc(p->x, unit, total);
}

static expr_id round_up(const struct planner *p, expr_id bytes)
{
    return ex_mulc(p->x, ex_ceildiv(p->x, bytes, ex_const(p->x, ALIGN)), ALIGN);
}

static int by_first(const void *a, const void *b)
{
    const struct buffer *x = *(struct buffer *const *)a, *y = *(struct buffer *const *)b;
    return x->first != y->first ? (x->first > y->first) - (x->first < y->first) : (x > y) - (x < y);
}

static void pack_slots(struct planner *p)
{
    struct module *m = p->m;
    struct slot {
        expr_id bytes;
        uint32_t free_after;
    } *slots = NEW_ARRAY(m->arena, struct slot, m->plan.buffers.n + 1);
    uint32_t n_slots = 0, n = m->plan.buffers.n;
    struct buffer **order = NEW_ARRAY(m->arena, struct buffer *, n + 1);
    uint32_t placed = 0;
    for (uint32_t i = 0; i < n; i++)
        if (!m->plan.buffers.data[i].segment && m->plan.buffers.data[i].first != UINT32_MAX)
            order[placed++] = &m->plan.buffers.data[i];
    qsort(order, placed, sizeof *order, by_first);
    for (uint32_t k = 0; k < placed; k++) {
        struct buffer *b = order[k];
        uint32_t best = n_slots;
        for (uint32_t s = 0; s < n_slots && s < SLOTS_LOOKED_AT; s++) {
            if (slots[s].free_after >= b->first)
                continue;
            if (best == n_slots || slots[s].bytes.i == b->bytes.i)
                best = s;
        }
        if (best == n_slots)
            slots[n_slots++].bytes = b->bytes;
        else
            slots[best].bytes = ex_max(p->x, slots[best].bytes, b->bytes);
        slots[best].free_after = b->last;
        b->slot = best;
    }
    expr_id at = ex_const(p->x, 0), *start = NEW_ARRAY(m->arena, expr_id, n_slots + 1);
    for (uint32_t s = 0; s < n_slots; s++) {
        start[s] = at;
        at = ex_add(p->x, at, round_up(p, slots[s].bytes));
    }
    for (uint32_t k = 0; k < placed; k++)
        order[k]->offset = start[order[k]->slot];
    m->plan.arena_bytes = at;
}

bool plan_memory(struct module *m)
{
    struct planner p = {.m = m, .g = m->g, .x = m->ctx->exprs};
    sym_id factor;
    p.position = NEW_ARRAY(m->arena, uint32_t, m->fused.kernels.n + 1);
    find_lives(&p);
    for (uint32_t i = 0; i < m->plan.buffers.n; i++) {
        struct buffer *b = &m->plan.buffers.data[i];
        b->segment = late_expr(p.x, b->bytes) || (ex_is(p.x, b->bytes, 0) && late_type(p.x, value_type(p.g, b->value)));
        if (b->segment)
            m->fused.storage[b->value.i].place = PLACE_SEGMENT;
    }
    if (module_machine(m)->span)
        update_in_place(&p);
    if (common_factor(&p, &factor))
        pack_intervals(&p, factor);
    else
        pack_slots(&p);
    int64_t least = ex_lo(p.x, m->plan.arena_bytes), limit = m->ctx->limits.arena_bytes;
    if (least > limit)
        error_limit(m->ctx, (src_id){0},
                    "the working memory takes %lld bytes at least, the limit is %lld (--limit-arena-bytes)",
                    (long long)least, (long long)limit);
    return m->ctx->fail == FAIL_NONE;
}
