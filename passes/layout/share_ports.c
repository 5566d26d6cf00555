/* share-ports: a cache that is an input and, with some rows written, an output may be one piece of memory.
 *
 *   present = scatter(pad(past), rows, new)        a caller who gives one pointer for both has only the new rows
 *   present = concat(past, new)                    written
 *
 * In: kernels, places. Out: kernel.shares, wish.room. It is the caller's choice at each run: the kernel, or the program
 * for it, asks whether both are at one address and else copies as ever, and the runtime allows no overlap but this one
 * (rt_run.c).
 *
 * A scatter's extents are equal then. Nothing else may read the input, at whatever time, and what the scatter takes as
 * its operand must be the input itself where the extents are equal: views may cut it from the first element on and put
 * zeros behind it, but not put them in place of what they have cut.
 *
 * A concat's input is one of a length that has room (symbol.room): both ports then have the strides of that room, so
 * that the rows of the one are rows of the other. Whoever else reads the input reads rows that nobody writes. But calls
 * of the runtime, regions and the program know of no strides: what they read stays compact, and is copied.
 */
#include "passes/layout/layout.h"
#include "passes/module/module.h"
#include "passes/module/query.h"

#include <string.h>

static bool all_zero(struct exprs *x, const expr_id *e, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!ex_is(x, e[i], 0))
            return false;
    return true;
}

/* From the first element on, each of them; but in dims of `padded`, which get zeros behind it, the whole. */
static bool cuts_the_end(struct graph *g, const struct node *slice, uint32_t padded)
{
    const struct type *from = value_type(g, slice->in[0]), *t = value_type(g, slice->out[0]);
    uint32_t n;
    const int64_t *steps = node_ints(slice, "steps", &n);
    for (uint32_t d = 0; d < n; d++)
        if (steps[d] != 1 || ((padded >> d & 1) && from->dims[d].i != t->dims[d].i))
            return false;
    return all_zero(g->ctx->exprs, node_exprs(slice, "starts", &n), n);
}

/* Nothing in front; notes the dims that get something behind. */
static bool pads_the_end(struct graph *g, const struct node *pad, uint32_t *padded)
{
    uint32_t n;
    const expr_id *hi = node_exprs(pad, "hi", &n);
    for (uint32_t d = 0; d < n; d++)
        *padded |= ex_is(g->ctx->exprs, hi[d], 0) ? 0 : 1u << d;
    return !strcmp(node_str(pad, "mode", "constant"), "constant") &&
           all_zero(g->ctx->exprs, node_exprs(pad, "lo", &n), n);
}

/* The input that v is where their extents are equal, read by nothing else; {0}: none. */
static value_id input_behind(const struct module *m, value_id v)
{
    uint32_t padded = 0;
    while (graph_value(m->g, v)->n_uses == 1 && graph_value(m->g, v)->def.i) {
        const struct node *n = graph_node(m->g, graph_value(m->g, v)->def);
        bool same = n->op == OP_IDENTITY || (n->op == OP_SLICE && cuts_the_end(m->g, n, padded)) ||
                    (n->op == OP_PAD && pads_the_end(m->g, n, &padded));
        if (!same || m->stored[v.i])
            return (value_id){0};
        v = n->in[0];
    }
    return graph_value(m->g, v)->n_uses == 1 ? v : (value_id){0};
}

static void share(struct module *m, struct kernel *k)
{
    if (k->kind != KERNEL_SCATTER || k->region.i != 1)
        return;
    const struct node *n = graph_node(m->g, k->anchor);
    if (k->outs.data[0].i != n->out[0].i || m->storage[n->out[0].i].place != PLACE_OUTPUT)
        return;
    value_id past = input_behind(m, n->in[0]);
    if (!past.i || m->storage[past.i].place != PLACE_INPUT)
        return;
    const struct type *from = value_type(m->g, past), *t = value_type(m->g, n->out[0]);
    /* of floats: elements of integers may be known to the program as numbers too, which is a reader that is no node */
    if (from->elem == t->elem && from->rank == t->rank && elem_class(t->elem) == 'F')
        k->shares = m->storage[past.i].port + 1;
}

/* May v, of a concat along `axis`, have the strides of so much room? */
static bool may_grow(const struct module *m, value_id v, enum place place, const bool *whole, int32_t axis)
{
    const struct layout_wish *w = &m->wish[v.i];
    return m->storage[v.i].place == place && !whole[v.i] && (!w->grows || w->grows == axis + 1);
}

static void share_first_piece(struct module *m, struct kernel *k, const bool *whole)
{
    if (k->piece != 1 || k->region.i != 1)
        return;
    const struct node *n = graph_node(m->g, graph_value(m->g, k->outs.data[0])->def);
    value_id past = n->in[0], present = n->out[0];
    int32_t axis = (int32_t)node_int(n, "axis", 0);
    const struct type *from = value_type(m->g, past), *to = value_type(m->g, present);
    sym_id s = ex_as_sym(m->ctx->exprs, from->dims[axis]);
    if (!s.i || !sym_get(m->ctx->exprs, s)->room || from->elem == ELEM_STR || elem_bits(from->elem) < 8 ||
        !may_grow(m, past, PLACE_INPUT, whole, axis) || !may_grow(m, present, PLACE_OUTPUT, whole, axis))
        return;
    for (int32_t d = 0; d < from->rank; d++)
        if (d != axis && from->dims[d].i != to->dims[d].i)
            return;
    m->wish[past.i].grows = m->wish[present.i].grows = axis + 1;
    m->wish[past.i].room = m->wish[present.i].room = sym_get(m->ctx->exprs, s)->hi;
    k->shares = m->storage[past.i].port + 1;
}

bool share_ports(struct module *m)
{
    const bool *whole = read_as_a_whole(m);
    for (uint32_t i = 0; i < m->kernels.n; i++) {
        share(m, &m->kernels.data[i]);
        share_first_piece(m, &m->kernels.data[i], whole);
    }
    return true;
}
