/* layout_transform: where and in which order every stored value lies.
 *
 * Feature maps of convolution regions are blocked by 16 channels (NC16c; or NHWC, or plain, by option) from the first
 * kernel that writes one to the last that reads it; conversions are whatever kernel reads a port or writes one, since
 * reading and writing go through storage functions anyway. Zero padding becomes a halo around the stored value.
 * Weights of contractions lie in panels of 16 output channels [N/16][K][16]; every other reader of the same constant
 * reads it there too, so it is stored once. Dims along which a constant does not change take no room.
 */
#include "passes/module/access.h"
#include "passes/module/query.h"
#include "passes/module/choices.h"
#include "passes/module/module.h"
#include "passes/layout/pieces.h"
#include "passes/schedule/winograd.h"

#include <string.h>

enum { MIN_BLOCKED = 8 };
struct layouter {
    struct module *m;
    struct graph *g;
    struct exprs *x;
    bool *blocked;               /* by value: wants channel blocks */
    bool *plain;                 /* by value: read by a runtime call or a region: row-major */
    int32_t *fastest;            /* by value: dim to lie innermost + 1; 0: the last */
};

static bool fixed(const struct layouter *l, expr_id e, int64_t *n) { return ex_is_const(l->x, e, n); }

/* ---- storage of one value -------------------------------------------------------------------------------------- */

static void storage_new(struct layouter *l, value_id v)
{
    struct storage *s = &l->m->storage[v.i];
    s->rank = value_type(l->g, v)->rank;
    s->dim = NEW_ARRAY(l->m->arena, struct dim_layout, s->rank + 1);
    s->origin = ex_const(l->x, 0);
}

/* Vectors that cross cache lines cost twice: a contraction's copy of its second operand, which only it reads, has rows of
 * whole vectors. */
static bool pads_rows(const struct layouter *l, value_id v)
{
    const struct value *value = graph_value(l->g, v);
    int64_t n;
    int32_t d = l->fastest[v.i] - 1;
    return d >= 0 && value->n_uses == 1 && value_op(l->g, v) == OP_IDENTITY && elem_size(value_type(l->g, v)->elem) == 4 &&
           fixed(l, value_type(l->g, v)->dims[d], &n) && n > 2 * CHANNEL_BLOCK;
}

/* Strides for dims in the given order, outermost first; halo widths are added to the extents. */
static void storage_strides(struct layouter *l, value_id v, const int32_t *order, int32_t block_dim)
{
    struct storage *s = &l->m->storage[v.i];
    const struct type *t = value_type(l->g, v);
    expr_id stride = ex_const(l->x, block_dim >= 0 ? CHANNEL_BLOCK : 1);
    for (int32_t i = s->rank - 1; i >= 0; i--) {
        int32_t d = order[i];
        expr_id extent = t->dims[d];
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

static void order_default(int32_t rank, int32_t fastest, int32_t *order)
{
    int32_t n = 0;
    for (int32_t d = 0; d < rank; d++)
        if (d != fastest)
            order[n++] = d;
    if (fastest >= 0 && fastest < rank)
        order[n] = fastest;
}

/* ---- which values are blocked ------------------------------------------------------------------------------------- */

static bool may_block(const struct layouter *l, value_id v)
{
    const struct type *t = value_type(l->g, v);
    int64_t c;
    return l->m->stored[v.i] && l->m->storage[v.i].place == PLACE_ARENA && !l->plain[v.i] && !l->fastest[v.i] &&
           t->rank >= 3 && fixed(l, t->dims[1], &c) && c >= MIN_BLOCKED && elem_size(t->elem) <= 4;
}

static bool is_windowed(const struct node *n)
{
    return n->op == OP_CONV || n->op == OP_WINDOW || n->op == OP_ARGWINDOW;
}

/* What a convolution with lanes of pixels reads and writes. */
static void shun_blocks(struct layouter *l)
{
    for (uint32_t i = 0; i < l->m->kernels.n; i++) {
        const struct kernel *k = &l->m->kernels.data[i];
        if (!k->anchor.i || !conv_pixel_lanes(l->m, graph_node(l->g, k->anchor)))
            continue;
        l->blocked[k->outs.data[0].i] = false;
        l->blocked[graph_node(l->g, k->anchor)->in[0].i] = false;
    }
}

/* What a staged operand is computed from, in its own shape. */
static void want_staged_blocks(struct layouter *l, const struct kernel *k)
{
    const struct type *t = value_type(l->g, k->staged), *in;
    for (uint32_t j = 0; j < k->nodes.n; j++) {
        const struct node *n = graph_node(l->g, k->nodes.data[j]);
        for (uint32_t o = 0; o < n->n_in; o++) {
            in = n->in[o].i ? value_type(l->g, n->in[o]) : NULL;
            if (in && in->rank == t->rank && may_block(l, n->in[o]) && in->dims[1].i == t->dims[1].i)
                l->blocked[n->in[o].i] = true;
        }
    }
}

/* What the user wants of a kernel's result. */
static void told_blocks(struct layouter *l)
{
    for (uint32_t i = 0; i < l->m->kernels.n; i++) {
        const struct kernel *k = &l->m->kernels.data[i];
        const struct choice *told = k->outs.n == 1 ? choice_of_kernel(l->m, k, CHOOSE_LAYOUT) : NULL;
        if (told && told->n[0] && !may_block(l, k->outs.data[0]))
            choice_refuse(l->m, told, "the result has to be plain, or has too few channels");
        else if (told)
            l->blocked[k->outs.data[0].i] = told->n[0];
    }
}

static void want_blocks(struct layouter *l)
{
    struct module *m = l->m;
    for (uint32_t i = 0; i < m->kernels.n; i++) {
        struct kernel *k = &m->kernels.data[i];
        if (!k->anchor.i || !is_windowed(graph_node(l->g, k->anchor)))
            continue;
        const struct node *n = graph_node(l->g, k->anchor);
        if (k->path.n == 0 && value_type(l->g, k->outs.data[0])->rank == value_type(l->g, n->out[0])->rank && may_block(l, k->outs.data[0]))
            l->blocked[k->outs.data[0].i] = true;
        if (may_block(l, n->in[0]))
            l->blocked[n->in[0].i] = true;
        if (k->staged.i)
            want_staged_blocks(l, k);
    }
    shun_blocks(l);
    told_blocks(l);
    /* Elementwise kernels follow what they read; against the order too, for what feeds a blocked value. */
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = m->kernels.n; i > 0; i--) {
            struct kernel *k = &m->kernels.data[i - 1];
            if (k->kind != KERNEL_MAP || k->has_rows || !may_block(l, k->outs.data[0]))
                continue;
            for (uint32_t j = 0; j < k->nodes.n; j++) {
                const struct node *n = graph_node(l->g, k->nodes.data[j]);
                for (uint32_t o = 0; o < n->n_in; o++)
                    if (n->in[o].i && l->blocked[n->in[o].i] &&
                        value_type(l->g, n->in[o])->rank == value_type(l->g, k->outs.data[0])->rank)
                        l->blocked[k->outs.data[0].i] = true;
            }
        }
    shun_blocks(l);
    told_blocks(l);
}

/* Zero padding of the convolutions that read v, as a halo: {lower widths, upper widths}. */
static void plan_halo(struct layouter *l, const struct kernel *kernel)
{
    const struct node *n = graph_node(l->g, kernel->anchor);
    int64_t tile = kernel->winograd ? kernel->winograd : 1;   /* read whole */
    value_id v = n->in[0];
    struct storage *s = &l->m->storage[v.i];
    int32_t rank = value_type(l->g, v)->rank;
    int64_t need[2 * RANK_MAX] = {0};
    bool any = false;
    if (s->place != PLACE_ARENA || l->plain[v.i] || l->fastest[v.i])
        return;
    for (int32_t d = 2; d < rank; d++) {
        if (!conv_reach(l->g, n, d - 2, tile, &need[d], &need[rank + d]) || need[d] > 64 || need[rank + d] > 64)
            return;
        any |= need[d] || need[rank + d];
    }
    if (!any)
        return;
    if (!s->halo)
        s->halo = NEW_ARRAY(l->m->arena, int64_t, 2 * rank);
    for (int32_t d = 0; d < 2 * rank; d++)
        if (need[d] > s->halo[d])
            s->halo[d] = need[d];
}

/* ---- computed values --------------------------------------------------------------------------------------------------- */

/* Sequences, optionals and tensors of unknown rank are the runtime's: the program carries their address. */
static bool in_memory(const struct type *t) { return t->kind == TYPE_TENSOR && t->rank >= 0; }

static void place_ports(struct layouter *l)
{
    struct graph *g = l->g;
    for (uint32_t k = 0; k < g->inputs.n; k++) {
        struct storage *s = &l->m->storage[g->inputs.data[k].value.i];
        if (!in_memory(value_type(g, g->inputs.data[k].value)))
            continue;
        s->place = PLACE_INPUT;
        s->port = k;
    }
    for (uint32_t k = 0; k < g->outputs.n; k++) {
        struct storage *s = &l->m->storage[g->outputs.data[k].value.i];
        if (!in_memory(value_type(g, g->outputs.data[k].value)))
            continue;
        if (!late_type(l->x, value_type(g, g->outputs.data[k].value)))   /* else the caller cannot know its size */
            s->place = PLACE_OUTPUT;
        s->port = k;
        l->plain[g->outputs.data[k].value.i] = true;
    }
    for (uint32_t v = 1; v < l->m->n_values; v++)
        if (l->m->stored[v] && l->m->storage[v].place == PLACE_NONE && in_memory(value_type(g, (value_id){v})))
            l->m->storage[v].place = PLACE_ARENA;
}

/* The second operand of a contraction wants its last free dim contiguous: that is where the lanes go. */
static void want_order(struct layouter *l, const struct node *n)
{
    int32_t free_dim[RANK_MAX], count = dot_free(l->g, n, free_dim);
    value_id b = n->in[1];
    if (count > 0 && l->m->stored[b.i] && l->m->storage[b.i].place == PLACE_ARENA && !l->plain[b.i])
        l->fastest[b.i] = free_dim[count - 1] + 1;
}

/* Too few to be blocked: groups of channels lie together where the channels are innermost. */
static bool few_channels(const struct layouter *l, value_id x)
{
    int64_t c;
    return l->m->stored[x.i] && l->m->storage[x.i].place == PLACE_ARENA && !l->plain[x.i] &&
           fixed(l, value_type(l->g, x)->dims[1], &c) && c < MIN_BLOCKED;
}

static void read_demands(struct layouter *l)
{
    for (uint32_t i = 0; i < l->m->kernels.n; i++) {
        struct kernel *k = &l->m->kernels.data[i];
        if (!k->anchor.i)
            continue;
        const struct node *n = graph_node(l->g, k->anchor);
        if (k->kind == KERNEL_OPAQUE || k->kind == KERNEL_CONTROL) {
            for (uint32_t o = 0; o < n->n_in; o++)
                l->plain[view_plain(l->g, n->in[o]).i] = true;
            for (uint32_t o = 0; o < k->outs.n; o++)
                l->plain[k->outs.data[o].i] = true;
        }
    }
    for (uint32_t r = 2; r < l->g->regions.n; r++) {
        const struct region *region = graph_get_region(l->g, (region_id){r});
        for (uint32_t i = 0; i < region->params.n; i++)
            l->plain[region->params.data[i].i] = true;
        for (uint32_t i = 0; i < region->results.n; i++)
            l->plain[region->results.data[i].i] = true;
    }
    for (sym_id s = sym_next(l->x, SYM_VALUE, (sym_id){0}); s.i; s = sym_next(l->x, SYM_VALUE, s)) {
        const struct symbol *sym = sym_get(l->x, s);
        if (sym->value && sym->value < l->m->n_values)
            l->plain[sym->value] = true;
    }
    for (uint32_t i = 0; i < l->m->kernels.n; i++) {   /* now that it is known what has to stay row-major */
        const struct kernel *k = &l->m->kernels.data[i];
        const struct node *n = k->anchor.i ? graph_node(l->g, k->anchor) : NULL;
        if (n && n->op == OP_DOT)
            want_order(l, n);
        else if (n && n->op == OP_CONV && dot_group(l->m, n) > 1 && few_channels(l, n->in[0]))
            l->fastest[n->in[0].i] = 2;
    }
}

static void store_values(struct layouter *l)
{
    int32_t order[RANK_MAX];
    for (uint32_t i = 1; i < l->m->n_values; i++) {
        value_id v = {i};
        struct storage *s = &l->m->storage[i];
        if (s->place == PLACE_NONE || value_type(l->g, v)->kind != TYPE_TENSOR)
            continue;
        int64_t *halo = s->halo;
        storage_new(l, v);
        s->halo = halo;
        if (l->blocked[i] && l->m->layout == LAYOUT_NHWC) {
            order_default(s->rank, 1, order);
            storage_strides(l, v, order, -1);
        } else if (l->blocked[i]) {
            order_default(s->rank, -1, order);
            storage_strides(l, v, order, 1);
        } else {
            order_default(s->rank, l->fastest[i] - 1, order);
            storage_strides(l, v, order, -1);
        }
        if (s->place != PLACE_ARENA)
            continue;
        expr_id bytes = ex_mulc(l->x, s->size, elem_size(value_type(l->g, v)->elem));
        s->buffer = l->m->buffers.n;
        VEC_PUSH(l->m->arena, &l->m->buffers, ((struct buffer){.bytes = bytes, .value = v}));
    }
}

/* The zeros of a halo are written anew in each run, by a kernel of their own right behind the one that stores the value. */
static void halo_kernels(struct layouter *l)
{
    uint32_t n = l->m->kernels.n;
    for (uint32_t i = 0; i < n; i++) {
        const struct kernel *k = &l->m->kernels.data[i];
        for (uint32_t o = 0; o < k->outs.n; o++) {
            value_id v = k->outs.data[o];
            struct kernel h = {.kind = KERNEL_HALO, .region = k->region, .order = k->order};
            if (!l->m->storage[v.i].halo || k->piece > 1)
                continue;
            VEC_PUSH(l->m->arena, &h.outs, v);
            VEC_PUSH(l->m->arena, &l->m->kernels, h);
            k = &l->m->kernels.data[i];
        }
    }
}

/* ---- constants ------------------------------------------------------------------------------------------------------------- */

/* v = a conversion of narrower floats (f16 or bf16 weights that the arithmetic wants as f32): those are stored, and
 * widened where they are read. */
static bool widens(const struct layouter *l, const struct node *n)
{
    if (n->op != OP_CONVERT)
        return false;
    enum elem from = value_type(l->g, n->in[0])->elem, to = value_type(l->g, n->out[0])->elem;
    return (from == ELEM_F16 || from == ELEM_BF16) && to == ELEM_F32;
}

/* Through views that move nothing, to the value that is stored; packed: perm[d] is the dim of the root that dim d of v is. */
static value_id const_root(struct layouter *l, value_id v, bool packed, int64_t *perm)
{
    uint32_t count;
    for (int32_t d = 0; d < value_type(l->g, v)->rank; d++)
        perm[d] = d;
    for (;;) {
        if (!graph_value(l->g, v)->def.i || l->m->storage[v.i].place != PLACE_NONE)   /* packed already: read there */
            return v;
        const struct node *n = graph_node(l->g, graph_value(l->g, v)->def);
        if (n->op == OP_TRANSPOSE) {
            const int64_t *p = node_ints(n, "perm", &count);
            for (int32_t d = 0; packed && d < value_type(l->g, v)->rank; d++)
                perm[d] = p[perm[d]];
        } else if (n->op != OP_IDENTITY && !widens(l, n) && (packed || (n->op != OP_BROADCAST && n->op != OP_RESHAPE))) {
            return v;
        }
        v = n->in[0];
    }
}

/* group > 1: so many elements of the innermost dim of the order lie together in each lane of block_dim. */
static void const_store(struct layouter *l, value_id root, const int32_t *order, int32_t block_dim, bool dense, uint32_t group)
{
    struct storage *s = &l->m->storage[root.i];
    const struct type *t = value_type(l->g, root);
    uint32_t invariant = dense ? 0 : value_const_invariant(l->g, root);
    storage_new(l, root);
    s->place = PLACE_WEIGHTS;
    bool panels = block_dim >= 0 && !(invariant >> block_dim & 1), grouped = panels && group > 1;
    if (grouped)
        invariant &= ~(1u << order[s->rank - 1]);
    int64_t stride = (panels ? CHANNEL_BLOCK : 1) * (grouped ? (int64_t)group : 1), n;
    for (int32_t i = s->rank - 1; i >= 0; i--) {
        int32_t d = order[i];
        if (!fixed(l, t->dims[d], &n))
            n = 1;
        if (invariant >> d & 1) {
            s->dim[d] = (struct dim_layout){0, ex_const(l->x, 0), 0};
            stride *= n != 0;    /* an element for all of them, where there are any */
            continue;
        }
        s->dim[d].outer = ex_const(l->x, stride);
        if (d == block_dim) {
            s->dim[d].block = CHANNEL_BLOCK;
            s->dim[d].inner = grouped ? group : 1;
            n = (n + CHANNEL_BLOCK - 1) / CHANNEL_BLOCK;
        } else if (grouped && i == s->rank - 1) {
            s->dim[d].block = group;
            s->dim[d].inner = 1;
            n = (n + group - 1) / group;
        }
        if (!mul_i64(stride, n, &stride))
            context_unwind(l->m->ctx, FAIL_LIMIT, (src_id){0}, "a constant of more than 2^63 bytes");
    }
    s->size = ex_const(l->x, stride);
    s->buffer = l->m->weights.n;
    VEC_PUSH(l->m->arena, &l->m->weights, ((struct weight){.value = root, .storage = s}));
}

/* The second operand of a contraction: panels of CHANNEL_BLOCK lanes, reduced dims inside in the order they are looped. */
static void const_pack(struct layouter *l, const struct node *n)
{
    value_id w = n->in[1];
    int64_t perm[RANK_MAX];
    int32_t order[RANK_MAX], lanes = 0;
    if (!value_is_const(l->g, w) || value_is_splat(l->g, w, &(double){0}, &(int64_t){0}))
        return;
    value_id root = const_root(l, w, true, perm);
    if (l->m->storage[root.i].place != PLACE_NONE || !weight_order(l->g, n, perm, order, &lanes))
        return;
    const_store(l, root, order, conv_pixel_lanes(l->m, n) ? -1 : lanes, false, dot_group(l->m, n));
}

/* Does a slice of a constant lie in what is stored already, in the same order and at a whole cache line? */
static bool is_stored_part(const struct layouter *l, value_id v)
{
    const struct node *n = graph_node(l->g, graph_value(l->g, v)->def);
    const struct storage *s = &l->m->storage[n->in[0].i];
    const struct type *t = value_type(l->g, n->in[0]);
    uint32_t count;
    const expr_id *starts = node_exprs(n, "starts", &count);
    const int64_t *steps = node_ints(n, "steps", &count);
    int64_t at = 0, stride = 1, start, outer, dim;
    if (s->place != PLACE_WEIGHTS)
        return false;
    for (int32_t d = t->rank - 1; d >= 0; d--) {
        if (s->dim[d].block || steps[d] != 1 || !fixed(l, starts[d], &start) || !fixed(l, s->dim[d].outer, &outer) ||
            !fixed(l, t->dims[d], &dim) || outer != stride)
            return false;
        at += start * stride;
        stride *= dim;
    }
    return at * (int64_t)elem_size(t->elem) % 64 == 0;
}

static void const_plain(struct layouter *l, value_id v, bool parts)
{
    int64_t perm[RANK_MAX];
    int32_t order[RANK_MAX];
    if (!v.i || !value_is_const(l->g, v) || value_type(l->g, v)->kind != TYPE_TENSOR ||
        value_is_splat(l->g, v, &(double){0}, &(int64_t){0}))
        return;
    value_id root = const_root(l, v, false, perm);
    enum op op = value_op(l->g, root);
    if (l->m->storage[root.i].place != PLACE_NONE || op == OP_IOTA || op == OP_FROM_EXPRS)
        return;
    if (op == OP_SLICE && (!parts || is_stored_part(l, root)))
        return;
    order_default(value_type(l->g, root)->rank, -1, order);
    const_store(l, root, order, -1, false, 1);
}

/* What a runtime call or a region reads has to lie row-major and whole, a splat too. */
static void const_dense(struct layouter *l, value_id v)
{
    int32_t order[RANK_MAX];
    if (!v.i || !value_is_const(l->g, v) || value_type(l->g, v)->kind != TYPE_TENSOR ||
        l->m->storage[v.i].place != PLACE_NONE)
        return;
    order_default(value_type(l->g, v)->rank, -1, order);
    const_store(l, v, order, -1, true, 1);
}

/* A view that several kernels read belongs to none of them. Where a size of the run makes it (a row for each image of the batch),
 * it is no constant itself, but what it shows may be one. */
static void views_of_constants(struct layouter *l)
{
    for (uint32_t i = 1; i < l->g->nodes.n; i++) {
        const struct node *n = graph_node(l->g, (node_id){i});
        if (n->dead || op_shape(n->op) != SHAPE_VIEW || value_is_const(l->g, n->out[0]))
            continue;
        for (uint32_t o = 0; o < n->n_in; o++)
            const_plain(l, n->in[o], true);
    }
}

static void store_constants(struct layouter *l)
{
    for (uint32_t i = 0; i < l->m->kernels.n; i++) {
        const struct kernel *k = &l->m->kernels.data[i];
        if (k->kind != KERNEL_OPAQUE && k->kind != KERNEL_CONTROL)
            continue;
        const struct node *n = graph_node(l->g, k->anchor);
        for (uint32_t o = 0; o < n->n_in; o++)
            const_dense(l, n->in[o]);
    }
    /* Panels first: plain readers then read the panels. They lie in the order of the run (fuse made the last kernel first), so
     * that what is asked for behind a kernel's last panel is the next kernel's first. Slices last: they may lie in what is stored
     * then. */
    for (int pass = 0; pass < 3; pass++)
        for (uint32_t i = l->m->kernels.n; i > 0; i--) {
            struct kernel *k = &l->m->kernels.data[i - 1];
            for (uint32_t j = 0; j < k->nodes.n; j++) {
                const struct node *n = graph_node(l->g, k->nodes.data[j]);
                bool is_anchor = k->nodes.data[j].i == k->anchor.i;
                if (pass == 0 && (n->op == OP_CONV || n->op == OP_DOT) && !(is_anchor && winograd_store(l->m, k)))
                    const_pack(l, n);
                for (uint32_t o = 0; pass > 0 && o < n->n_in; o++)
                    if (!(is_anchor && k->prepared && o == 1))      /* stored transformed */
                        const_plain(l, n->in[o], pass == 2);
            }
        }
    views_of_constants(l);
    for (uint32_t r = 2; r < l->g->regions.n; r++) {
        const struct region *region = graph_get_region(l->g, (region_id){r});
        for (uint32_t i = 0; i < region->results.n; i++)
            const_plain(l, region->results.data[i], true);
    }
}

bool layout_transform(struct module *m)
{
    struct layouter l = {.m = m, .g = m->g, .x = m->ctx->exprs};
    m->storage = NEW_ARRAY(m->arena, struct storage, m->n_values);
    l.blocked = NEW_ARRAY(m->arena, bool, m->n_values);
    l.plain = NEW_ARRAY(m->arena, bool, m->n_values);
    l.fastest = NEW_ARRAY(m->arena, int32_t, m->n_values);
    place_ports(&l);
    read_demands(&l);
    if (m->layout != LAYOUT_NCHW && m->opt_level > 0)
        want_blocks(&l);
    winograd_choose(m, l.blocked);
    partials_attach(m, l.blocked, l.plain);
    for (uint32_t i = 0; i < m->kernels.n; i++) {
        const struct kernel *k = &m->kernels.data[i];
        if (k->anchor.i && graph_node(m->g, k->anchor)->op == OP_CONV)
            plan_halo(&l, k);
    }
    store_values(&l);
    if (m->opt_level > 0)
        layout_pieces(m, l.plain, l.fastest);
    halo_kernels(&l);
    store_constants(&l);
    winograd_constants(m);
    return m->ctx->fail == FAIL_NONE;
}
