/* store_constants: where the constants that kernels read lie in the file.
 *
 * Weights of contractions lie in panels of 16 output channels [N/16][K][16]; every other reader of the same constant
 * reads it there too, so it is stored once. Dims along which a constant does not change take no room. Of constants that
 * are computed where they are read (passes/module/compressed.h) it is their leaves that are stored, each in panels of
 * its own. One element everywhere is a part of the code, except for scales and zero points of kernels that compute with
 * bytes.
 */
#include "passes/module/attention.h"
#include "passes/module/compressed.h"
#include "passes/module/analysis.h"
#include "passes/layout/layout.h"
#include "passes/module/winograd.h"

enum { NUMBER_SLOTS = 4096, PROBES = 16 };
enum { NUMBERS_MOST = 64 }; /* of a kernel: it may have 255 arguments */

/* Through views that move nothing, to the value that is stored. perm[d]: the dim of the root that dim d of v is; NULL:
 * nobody asks, and dims may be others. */
static value_id const_root(struct layouter *l, value_id v, int64_t *perm)
{
    for (int32_t d = 0; perm && d < value_type(l->g, v)->rank; d++)
        perm[d] = d;
    while (!l->computed[v.i] && l->m->fused.storage[v.i].place == PLACE_NONE) { /* packed already: read there */
        if (!perm && (value_op(l->g, v) == OP_BROADCAST || value_op(l->g, v) == OP_RESHAPE))
            v = value_node(l->g, v)->in[0];
        else if (!weight_step(l->g, &v, perm))
            break;
    }
    return v;
}

/* Equal numbers lie in the file once, though each is a value of its own (ir/graph/pool.c): weights without padding. */
static bool number_is_stored(struct layouter *l, value_id v, struct storage *s)
{
    double f = 0;
    int64_t i = 0;
    if (!value_is_splat(l->g, v, &f, &i))
        return false;
    for (int32_t d = 0; d < s->rank; d++)
        if (s->dim[d].block)
            return false;
    uint64_t key = hash_mix(s->size.i, hash_mix((uint64_t)i, hash_bytes(&f, sizeof f)));
    uint32_t *slot = &l->numbers[key % NUMBER_SLOTS], probes = 0;
    for (; *slot && probes < PROBES; slot = &l->numbers[(key + ++probes) % NUMBER_SLOTS]) {
        const struct weight *w = &l->m->plan.weights.data[*slot - 1];
        if (l->m->fused.storage[w->value.i].size.i == s->size.i && splats_equal(l->g, v, w->value)) {
            s->buffer = *slot - 1;
            return true;
        }
    }
    *slot = l->m->plan.weights.n + 1;
    return false;
}

/* group > 1: so many elements of the innermost dim of the order lie together in each lane of block_dim. */
static void const_store(struct layouter *l, value_id root, const int32_t *order, int32_t block_dim, bool dense,
                        uint32_t group)
{
    struct storage *s = &l->m->fused.storage[root.i];
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
            stride *= n != 0; /* an element for all of them, where there are any */
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
    if (number_is_stored(l, root, s))
        return;
    s->buffer = l->m->plan.weights.n;
    VEC_PUSH(l->m->arena, &l->m->plan.weights, ((struct weight){.value = root}));
}

/* ---- constants that are computed where they are read ------------------------------------------------------------- */

struct leaf_store {
    struct layouter *l;
    expr_id lanes; /* the point's index along which lanes lie; {0}: there are none */
    uint32_t group; /* bytes of each lane that lie together, along the leaf's last dim */
};

/* Panels where the lanes walk along one of its dims; the others keep their order. */
static void leaf_store(void *user, value_id leaf, const expr_id *point)
{
    const struct leaf_store *s = user;
    int32_t order[RANK_MAX], rank = value_type(s->l->g, leaf)->rank, lanes = leaf_lanes(s->l->m, leaf, point, s->lanes);
    if (s->l->m->fused.storage[leaf.i].place != PLACE_NONE)
        return;
    order_default(rank, -1, order);
    for (int32_t d = lanes; d > 0; d--)
        order[d] = d - 1;
    if (lanes >= 0)
        order[0] = lanes;
    const_store(s->l, leaf, order, lanes, false, s->group);
}

static void leaf_inside(void *user, value_id v, const expr_id *point)
{
    const struct leaf_store *s = user;
    (void)point;
    s->l->computed[v.i] = true;
}

/* lanes: the dim of v that they lie along; -1: none. */
static void leaves_store(struct layouter *l, value_id v, int32_t lanes, uint32_t group)
{
    struct leaf_store store = {.l = l, .group = group};
    expr_id idx[RANK_MAX];
    constant_point(l->m, v, idx);
    if (lanes >= 0)
        store.lanes = idx[lanes];
    struct leaf_walk w = {.m = l->m, .leaf = leaf_store, .inside = leaf_inside, .user = &store, .lanes = store.lanes};
    constant_leaves(&w, v, idx);
}

/* ---- readers ----------------------------------------------------------------------------------------------------- */

/* What scales the second operand's blocks lies as its panels do: a number for each lane, side by side. */
static void scales_pack(struct layouter *l, const struct node *n)
{
    int32_t free_dim[RANK_MAX], count = dot_free(l->g, n, 1, free_dim);
    for (uint32_t o = 3; count && o < n->n_in; o += 2) {
        value_id scale = weight_whole(l->g, n->in[o]);
        if (value_is_const(l->g, scale) && !l->computed[scale.i])
            leaves_store(l, scale, free_dim[count - 1], 1);
    }
}

/* Elements of known number; 0: they are not known. */
static double elements(const struct layouter *l, const struct type *t)
{
    double n = 1;
    int64_t dim;
    for (int32_t d = 0; d < t->rank; d++)
        n *= fixed(l, t->dims[d], &dim) ? (double)dim : 0;
    return n;
}

/* Elements of a slice of taps; 0: it is none. */
static double taps_of(const struct layouter *l, const struct node *n)
{
    if (n->dead || n->op != OP_SLICE || !value_is_const(l->g, n->out[0]) || value_type(l->g, n->out[0])->rank < 3)
        return 0;
    const struct type *whole = value_type(l->g, n->in[0]), *part = value_type(l->g, n->out[0]);
    const int64_t *steps = node_ints(n, "steps", NULL);
    for (int32_t d = 0; d < part->rank; d++)
        if (steps[d] != 1 || (d < 2 && part->dims[d].i != whole->dims[d].i))
            return 0;
    return elements(l, part);
}

/* Elements of the slices of taps of each constant: pieces of a convolution with far taps share some. */
static void taps_count(struct layouter *l)
{
    l->taps = NEW_ARRAY(l->m->arena, double, l->m->g->values.n);
    for (uint32_t i = 1; i < l->g->nodes.n; i++) {
        const struct node *n = graph_node(l->g, (node_id){i});
        if (taps_of(l, n) > 0)
            l->taps[n->in[0].i] += taps_of(l, n);
    }
}

/* The weights that convolution n reads a slice of taps of, if they are smaller than all such slices together: then they
 * lie in panels, and the slices are read there. {0}: not so. */
static value_id taps_whole(struct layouter *l, const struct node *n, int64_t *perm)
{
    value_id w = n->in[1], whole;
    node_id def = graph_value(l->g, w)->def;
    const struct node *slice = graph_node(l->g, def);
    if (!def.i || n->op != OP_CONV || node_int(n, "groups", 1) != 1 || taps_of(l, slice) <= 0 ||
        l->taps[slice->in[0].i] <= elements(l, value_type(l->g, slice->in[0])))
        return (value_id){0};
    whole = const_root(l, slice->in[0], perm);
    const struct storage *s = &l->m->fused.storage[whole.i];
    return !l->computed[whole.i] && (s->place == PLACE_NONE || s->dim[perm[0]].block == CHANNEL_BLOCK) ? whole
                                                                                                       : (value_id){0};
}

/* The second operand of a contraction: panels of CHANNEL_BLOCK lanes, reduced dims inside in the order they are
 * looped. */
static void const_pack(struct layouter *l, const struct node *n)
{
    value_id w = weight_whole(l->g, n->in[1]);
    int64_t perm[RANK_MAX];
    int32_t order[RANK_MAX], lanes = 0;
    if (!value_is_const(l->g, w) || value_is_splat(l->g, w, &(double){0}, &(int64_t){0}))
        return;
    if (dot_scaled(n))
        scales_pack(l, n);
    value_id root = const_root(l, w, perm), whole;
    if (l->m->fused.storage[root.i].place != PLACE_NONE || l->computed[root.i] ||
        !weight_order(l->g, n, perm, order, &lanes))
        return;
    if (conv_pixel_lanes(l->m, n)) /* each is a number that all lanes share: too dear to be computed for every tile */
        const_store(l, root, order, -1, false, dot_group(l->m, n));
    else if ((dot_group(l->m, n) == 1 || dot_scaled(n)) && constant_is_compressed(l->m, root, lanes))
        leaves_store(l, root, lanes, dot_group(l->m, n));
    else if ((whole = taps_whole(l, n, perm)).i && weight_order(l->g, n, perm, order, &lanes)) {
        if (l->m->fused.storage[whole.i].place == PLACE_NONE)
            const_store(l, whole, order, lanes, false, panel_group(l->m, n));
        l->computed[root.i] = true;
    } else
        const_store(l, root, order, lanes, false, panel_group(l->m, n));
}

/* Scales and zero points of a kernel that computes with bytes, unless they are too many for its arguments. */
static void const_numbers(struct layouter *l, const struct kernel *k)
{
    VEC(value_id) numbers = {0};
    for (uint32_t j = 0; j < k->nodes.n; j++) {
        const struct node *n = graph_node(l->g, k->nodes.data[j]);
        for (uint32_t o = 0; op_shape(n->op) == SHAPE_MAP && o < n->n_in; o++)
            if (value_is_const(l->g, n->in[o]) && splat_is_number(l->g, n->in[o]))
                VEC_PUSH(l->m->arena, &numbers, const_root(l, n->in[o], NULL));
    }
    for (uint32_t i = 0; numbers.n <= NUMBERS_MOST && i < numbers.n; i++)
        if (l->m->fused.storage[numbers.data[i].i].place == PLACE_NONE &&
            op_shape(value_op(l->g, numbers.data[i])) != SHAPE_POINT) {
            int32_t order[RANK_MAX];
            order_default(value_type(l->g, numbers.data[i])->rank, -1, order);
            const_store(l, numbers.data[i], order, -1, false, 1);
        }
}

/* Does a slice of a constant lie in what is stored already, in the same order and at a whole cache line? */
static bool is_stored_part(const struct layouter *l, value_id v)
{
    const struct node *n = value_node(l->g, v);
    const struct storage *s = &l->m->fused.storage[n->in[0].i];
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

/* The dim of what v repeats that had better be contiguous: that of the rows, which the lanes of an attention go along
 * (a bias of its scores, a mask). -1: none. */
static int32_t fastest_dim(const struct layouter *l, const struct kernel *k, value_id v)
{
    if (!k->form.attention || k->form.attention->rows_of != 0 || !v.i)
        return -1;
    const struct type *t = value_type(l->g, v), *root = value_type(l->g, value_unspread(l->g, v));
    const struct type *scores = value_type(l->g, graph_node(l->g, k->form.attention->scores)->out[0]);
    if (t->kind != TYPE_TENSOR || t->rank != scores->rank || t->rank < 3 || root->rank < 2)
        return -1;
    for (int32_t d = 0; d < t->rank; d++)
        if (t->dims[d].i != scores->dims[d].i)
            return -1;
    for (int32_t d = root->rank - 2; d < root->rank; d++)
        if (root->dims[d].i != t->dims[t->rank - root->rank + d].i)
            return -1;
    return root->rank - 2;
}

/* by_row: only some of its rows are read. fastest: the dim of what v repeats that is contiguous, -1: the last one. */
static void const_plain(struct layouter *l, value_id v, bool parts, bool by_row, int32_t fastest)
{
    int32_t order[RANK_MAX];
    if (!v.i || !value_is_const(l->g, v) || value_type(l->g, v)->kind != TYPE_TENSOR ||
        value_is_splat(l->g, v, &(double){0}, &(int64_t){0}))
        return;
    value_id root = const_root(l, v, NULL);
    enum op op = value_op(l->g, root);
    if (l->m->fused.storage[root.i].place != PLACE_NONE || l->computed[root.i] || op_shape(op) == SHAPE_POINT)
        return;
    if (by_row && constant_is_compressed(l->m, root, -1)) {
        leaves_store(l, root, -1, 1);
        return;
    }
    if (op == OP_SLICE && (!parts || is_stored_part(l, root)))
        return;
    order_default(value_type(l->g, root)->rank, root.i == value_unspread(l->g, v).i ? fastest : -1, order);
    const_store(l, root, order, -1, false, 1);
}

/* What a runtime call or a region reads has to lie row-major and whole, a splat too. */
static void const_dense(struct layouter *l, value_id v)
{
    int32_t order[RANK_MAX];
    if (!v.i || !value_is_const(l->g, v) || value_type(l->g, v)->kind != TYPE_TENSOR ||
        l->m->fused.storage[v.i].place != PLACE_NONE)
        return;
    order_default(value_type(l->g, v)->rank, -1, order);
    const_store(l, v, order, -1, true, 1);
}

/* A view that several kernels read belongs to none of them. Where a size of the run makes it (a row for each image of
 * the batch), it is not a constant itself, but what it shows may be one. */
static void views_of_constants(struct layouter *l)
{
    for (uint32_t i = 1; i < l->g->nodes.n; i++) {
        const struct node *n = graph_node(l->g, (node_id){i});
        if (n->dead || op_shape(n->op) != SHAPE_VIEW || value_is_const(l->g, n->out[0]))
            continue;
        for (uint32_t o = 0; o < n->n_in; o++)
            const_plain(l, n->in[o], true, false, -1);
    }
}

bool store_constants(struct module *m)
{
    struct layouter layouter = layouter_of(m), *l = &layouter;
    l->computed = NEW_ARRAY(m->arena, bool, m->g->values.n);
    l->numbers = NEW_ARRAY(m->arena, uint32_t, NUMBER_SLOTS);
    taps_count(l);
    for (uint32_t i = 0; i < l->m->fused.kernels.n; i++) {
        const struct kernel *k = &l->m->fused.kernels.data[i];
        if (k->kind != KERNEL_OPAQUE && k->kind != KERNEL_CONTROL)
            continue;
        const struct node *n = graph_node(l->g, k->anchor);
        for (uint32_t o = 0; o < n->n_in; o++) /* a view of a constant of dims that the run makes is read there, too */
            const_dense(l, !n->in[o].i || value_is_const(l->g, n->in[o]) ? n->in[o] : view_plain(l->g, n->in[o]));
    }
    /* Panels first: plain readers then read the panels. They lie in the order of the run (fuse made the last kernel
     * first), so that what is prefetched after a kernel's last panel is the next kernel's first. Slices last: they may
     * lie in what is stored then. */
    for (int pass = 0; pass < 3; pass++)
        for (uint32_t i = l->m->fused.kernels.n; i > 0; i--) {
            const struct kernel *k = &l->m->fused.kernels.data[i - 1];
            for (uint32_t j = 0; j < k->nodes.n; j++) {
                const struct node *n = graph_node(l->g, k->nodes.data[j]);
                if (pass == 0 && (n->op == OP_CONV || n->op == OP_DOT))
                    const_pack(l, n);
                uint32_t n_in;
                const value_id *in = kernel_operands(k, n, &n_in);
                for (uint32_t o = 0; pass > 0 && o < n_in; o++)
                    const_plain(l, in[o], pass == 2, o == 0 && op_shape(n->op) == SHAPE_INDEX,
                                fastest_dim(l, k, in[o]));
            }
        }
    for (uint32_t i = 0; i < l->m->fused.kernels.n; i++)
        if (kernel_has_bytes(l->g, &l->m->fused.kernels.data[i]))
            const_numbers(l, &l->m->fused.kernels.data[i]);
    views_of_constants(l);
    for (uint32_t r = 2; r < l->g->regions.n; r++) {
        const struct region *region = graph_get_region(l->g, (region_id){r});
        for (uint32_t i = 0; i < region->results.n; i++)
            const_plain(l, region->results.data[i], true, false, -1);
    }
    for (uint32_t i = 0; i < m->fused.kernels.n; i++)
        if (m->fused.kernels.data[i].form.winograd && !winograd_serves(m, &m->fused.kernels.data[i]))
            m->fused.kernels.data[i].form.winograd =
                0; /* others read its weights row-major: U is not derived from those */
    return true;
}
