/* share-ports: a cache that is an input and, with some rows written, an output may be one piece of memory.
 *
 *   present = scatter(pad(past), rows, new)        a caller who gives one pointer for both has only the new rows
 *   present = concat(past, new)                    written
 *
 * In: kernels, places. Out: kernel.shares, constraint.room. It is the caller's choice at each run: the kernel, or the
 * program for it, asks whether both are at one address and else copies as ever, and the runtime allows no overlap but
 * this one (rt_run.c).
 *
 * Of a scatter nothing else may read the input, at whatever time, and what it takes as its operand must be the input
 * itself where the extents are equal: views may cut it from the first element on and put zeros after it, but not put
 * them in place of what they have cut. The extents of a run have to be equal, unless the ports have room.
 *
 * Room: an input of a length that has it (symbol.room), and the output that is longer, both have the strides of that
 * room, so that the rows of the one are rows of the other. A concat needs that. Whoever else reads its input reads rows
 * that nobody writes. But calls of the runtime, regions and the program know of no strides: what they read stays
 * compact.
 *
 * For decoders with caches and streaming networks with buffers: it changes 10 of the 554 networks of ../shared/models
 * that compile.
 */
#include "passes/layout/layout.h"

static bool all_zero(struct exprs *x, const expr_id *e, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!ex_is(x, e[i], 0))
            return false;
    return true;
}

/* From the first element on, each of them; but in dims of `padded`, which get zeros after it, the whole. */
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
    const struct node *n;
    while (graph_value(m->g, v)->n_uses == 1 && (n = value_node(m->g, v))) {
        bool same = n->op == OP_IDENTITY || (n->op == OP_SLICE && cuts_the_end(m->g, n, padded)) ||
                    (n->op == OP_PAD && pads_the_end(m->g, n, &padded));
        if (!same || m->fused.stored[v.i])
            return (value_id){0};
        v = n->in[0];
    }
    return graph_value(m->g, v)->n_uses == 1 ? v : (value_id){0};
}

/* The dim that has room in `past` and may be longer, or shorter, in `present`: all others are equal. -1: none. */
static int32_t growing_dim(const struct module *m, value_id past, value_id present)
{
    const struct type *from = value_type(m->g, past), *to = value_type(m->g, present);
    int32_t found = -1;
    for (int32_t d = 0; d < from->rank; d++) {
        if (from->dims[d].i == to->dims[d].i)
            continue;
        sym_id s = ex_as_sym(m->ctx->exprs, from->dims[d]);
        if (found >= 0 || !s.i || !sym_get(m->ctx->exprs, s)->room)
            return -1;
        found = d;
    }
    return found;
}

/* Gives both the strides of the room, if nobody minds. */
static bool grow(struct module *m, value_id past, value_id present, const bool *whole)
{
    struct layout_constraint *from = &m->fused.constraint[past.i], *to = &m->fused.constraint[present.i];
    int32_t d = growing_dim(m, past, present);
    if (d < 0 || elem_bits(value_type(m->g, past)->elem) < 8 || whole[past.i] || whole[present.i] ||
        (from->grows && from->grows != d + 1))
        return false;
    sym_id s = ex_as_sym(m->ctx->exprs, value_type(m->g, past)->dims[d]);
    from->grows = to->grows = d + 1;
    from->room = to->room = sym_get(m->ctx->exprs, s)->hi;
    return true;
}

static bool is_placed(const struct module *m, value_id past, value_id present)
{
    const struct type *from = value_type(m->g, past), *to = value_type(m->g, present);
    return m->fused.storage[past.i].place == PLACE_INPUT && m->fused.storage[present.i].place == PLACE_OUTPUT &&
           from->elem == to->elem && from->rank == to->rank;
}

/* What a failed run has added to a state, the next one would add again; rows that it has written are written again. */
static bool is_state(const struct module *m, value_id past)
{
    return m->fused.storage[past.i].port >= graph_user_inputs(m->g);
}

/* Does the program read elements of v as numbers? Such a reader is not a node. */
static bool is_number(const struct module *m, value_id v)
{
    sym_id s = sym_next(m->ctx->exprs, SYM_VALUE, (sym_id){0});
    while (s.i && sym_get(m->ctx->exprs, s)->value != v.i)
        s = sym_next(m->ctx->exprs, SYM_VALUE, s);
    return s.i;
}

static void share_scatter(struct module *m, struct kernel *k, const bool *whole)
{
    const struct node *n = graph_node(m->g, k->anchor);
    value_id present = k->outs.data[0], past = input_behind(m, n->in[0]);
    if (present.i != n->out[0].i || !past.i || !is_placed(m, past, present) || is_number(m, past) ||
        (is_state(m, past) && strcmp(node_str(n, "monoid", "set"), "set") != 0))
        return;
    grow(m, past, present, whole);
    k->shares = m->fused.storage[past.i].port + 1;
}

static void share_first_piece(struct module *m, struct kernel *k, const bool *whole)
{
    const struct node *n = value_node(m->g, k->outs.data[0]);
    if (is_placed(m, n->in[0], n->out[0]) && grow(m, n->in[0], n->out[0], whole))
        k->shares = m->fused.storage[n->in[0].i].port + 1;
}

/* Whoever gives a length room wants caches that are not copied. */
static void warn_of_lone_room(const struct module *m, sym_id s)
{
    const struct symbol *sym = sym_get(m->ctx->exprs, s);
    for (uint32_t k = 0; k < m->g->inputs.n; k++) {
        value_id v = m->g->inputs.data[k].value;
        if (m->fused.constraint[v.i].grows &&
            value_type(m->g, v)->dims[m->fused.constraint[v.i].grows - 1].i == ex_sym(m->ctx->exprs, s).i)
            return;
    }
    warn_at(
        m->ctx, (src_id){0}, "room",
        "%.80s<=%lld is a bound and no more: no output is an input of that length and new rows, all other extents equal",
        sym->name, (long long)sym->hi);
}

bool share_ports(struct module *m)
{
    const bool *whole = read_as_a_whole(m);
    for (uint32_t i = 0; i < m->fused.kernels.n; i++) {
        struct kernel *k = &m->fused.kernels.data[i];
        if (k->region.i == 1 && k->kind == KERNEL_SCATTER)
            share_scatter(m, k, whole);
        else if (k->region.i == 1 && k->piece == 1)
            share_first_piece(m, k, whole);
    }
    for (sym_id s = sym_next(m->ctx->exprs, SYM_SHAPE, (sym_id){0}); s.i; s = sym_next(m->ctx->exprs, SYM_SHAPE, s))
        if (sym_get(m->ctx->exprs, s)->room)
            warn_of_lone_room(m, s);
    return true;
}
