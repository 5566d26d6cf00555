/* layout_transform: the storage function of every computed value, as its readers and writers ask
 * (module.fused.constraint).
 *
 * Channels in blocks of 16 (NC16c), or channels last, or plain; zero padding is a halo around the value. Each value of
 * the arena gets a buffer. Constants come later (store_constants).
 */
#include "passes/layout/layout.h"
#include "passes/module/analysis.h"

void storage_new(struct layouter *l, value_id v)
{
    struct storage *s = &l->m->fused.storage[v.i];
    s->rank = value_type(l->g, v)->rank;
    s->dim = NEW_ARRAY(l->m->arena, struct dim_layout, s->rank + 1);
    s->origin = ex_const(l->x, 0);
}

/* Vectors that cross cache lines cost twice: a contraction's copy of its second operand, which only it reads, has rows
 * of whole vectors. */
static bool pads_rows(const struct layouter *l, value_id v)
{
    const struct value *value = graph_value(l->g, v);
    int64_t n;
    int32_t d = l->constraint[v.i].fastest - 1;
    return d >= 0 && value->n_uses == 1 && value_op(l->g, v) == OP_IDENTITY &&
           elem_size(value_type(l->g, v)->elem) == 4 && fixed(l, value_type(l->g, v)->dims[d], &n) &&
           n > 2 * CHANNEL_BLOCK;
}

/* Strides for dims in the given order, outermost first; halo widths are added to the extents. */
static void storage_strides(struct layouter *l, value_id v, const int32_t *order, int32_t block_dim)
{
    struct storage *s = &l->m->fused.storage[v.i];
    const struct type *t = value_type(l->g, v);
    expr_id stride = ex_const(l->x, block_dim >= 0 ? CHANNEL_BLOCK : 1);
    for (int32_t i = s->rank - 1; i >= 0; i--) {
        int32_t d = order[i];
        expr_id extent = l->constraint[v.i].grows == d + 1 ? ex_const(l->x, l->constraint[v.i].room) : t->dims[d];
        s->dim[d].outer = stride;
        if (i == s->rank - 1 && pads_rows(l, v))
            extent = ex_mulc(l->x, ex_ceildiv(l->x, extent, ex_const(l->x, CHANNEL_BLOCK)), CHANNEL_BLOCK);
        if (d == block_dim) {
            s->dim[d].block = CHANNEL_BLOCK;
            s->dim[d].inner = 1;
            extent = ex_ceildiv(l->x, extent, ex_const(l->x, CHANNEL_BLOCK));
        }
        if (s->halo) {
            s->origin = ex_add(l->x, s->origin, ex_mulc(l->x, stride, s->halo[d]));
            extent = ex_addc(l->x, extent, s->halo[d] + s->halo[s->rank + d]);
        }
        stride = ex_mul(l->x, stride, extent);
    }
    s->size = stride;
}

void order_default(int32_t rank, int32_t fastest, int32_t *order)
{
    int32_t n = 0;
    for (int32_t d = 0; d < rank; d++)
        if (d != fastest)
            order[n++] = d;
    if (fastest >= 0 && fastest < rank)
        order[n] = fastest;
}

/* The padded copy of v: around it, in its halo. */
static void storage_frame(struct layouter *l, value_id v)
{
    struct storage *s = &l->m->fused.storage[v.i], *of = &l->m->fused.storage[l->constraint[v.i].frame.i];
    const struct node *pad = graph_node(l->g, graph_value(l->g, l->constraint[v.i].frame)->def);
    const expr_id *lo = node_exprs(pad, "lo", NULL);
    memcpy(of->dim, s->dim, (size_t)s->rank * sizeof *s->dim);
    of->origin = s->origin;
    for (int32_t d = 0; d < s->rank; d++)
        of->origin = ex_sub(l->x, of->origin, ex_mul(l->x, s->dim[d].outer, lo[d]));
    of->size = s->size;
    of->buffer = s->buffer;
}

/* By value: does a product by tile registers read it? These read 64 bytes of a row at a step, so channels must lie
 * together. Other CPUs lose little by that (docs/reference/strict.md), but a depthwise convolution loads the taps of a
 * block of channels at once and needs blocks. */
static bool *read_by_tiles(const struct layouter *l)
{
    bool *tiles = NEW_ARRAY(l->m->arena, bool, l->m->fused.n_values);
    for (int taps = 0; taps < 2; taps++)
        for (uint32_t i = 0; i < l->m->fused.kernels.n; i++) {
            node_id anchor = l->m->fused.kernels.data[i].anchor;
            const struct node *n = anchor.i ? graph_node(l->g, anchor) : NULL;
            if (n && n->op == OP_CONV && dot_kind_of(l->m, n) != DOT_KINDS && conv_by_taps(l->m, n) == taps)
                tiles[n->in[0].i] = !taps;
        }
    return tiles;
}

bool layout_transform(struct module *m)
{
    struct layouter layouter = layouter_of(m), *l = &layouter;
    int32_t order[RANK_MAX];
    bool tiles = m->asked.layout == LAYOUT_AUTO && (module_machine(m)->tiles || m->asked.strict),
         *last = tiles ? read_by_tiles(l) : NULL;
    for (uint32_t i = 1; i < l->m->fused.n_values; i++) {
        value_id v = {i};
        struct storage *s = &l->m->fused.storage[i];
        if (s->place == PLACE_NONE || value_type(l->g, v)->kind != TYPE_TENSOR)
            continue;
        storage_new(l, v);
        if (l->constraint[i].blocked && (m->asked.layout == LAYOUT_NHWC || (last && last[i]))) {
            order_default(s->rank, 1, order);
            storage_strides(l, v, order, -1);
        } else if (l->constraint[i].blocked) {
            order_default(s->rank, -1, order);
            storage_strides(l, v, order, 1);
        } else {
            order_default(s->rank, l->constraint[i].fastest - 1, order);
            storage_strides(l, v, order, -1);
        }
        if (s->place != PLACE_ARENA)
            continue;
        expr_id bytes = ex_mulc(l->x, s->size, elem_size(value_type(l->g, v)->elem));
        s->buffer = l->m->plan.buffers.n;
        VEC_PUSH(l->m->arena, &l->m->plan.buffers, ((struct buffer){.bytes = bytes, .value = v}));
    }
    for (uint32_t i = 1; i < l->m->fused.n_values; i++)
        if (l->constraint[i].frame.i)
            storage_frame(l, (value_id){i});
    return true;
}
