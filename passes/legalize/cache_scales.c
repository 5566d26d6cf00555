/* Scales of caches of integers (cache_scales.h). */
#include "passes/legalize/cache_scales.h"

enum { BLOCK = 32, LARGEST = 127 };

/* Elements that share a scale: BLOCK or half of it where that divides the last dim, else all of it; 0: it is open. */
static int64_t block_of(struct graph *g, const struct type *t)
{
    int64_t size;
    if (!ex_is_const(g->ctx->exprs, t->dims[t->rank - 1], &size))
        return 0;
    return size % BLOCK == 0 ? BLOCK : size % (BLOCK / 2) == 0 ? BLOCK / 2 : size;
}

bool scales_dims(struct graph *g, const struct type *t, expr_id dims[RANK_MAX])
{
    struct exprs *x = g->ctx->exprs;
    int64_t size, block = block_of(g, t);
    if (!block || t->rank >= RANK_MAX || !ex_is_const(x, t->dims[t->rank - 1], &size) || size < 1)
        return false;
    memcpy(dims, t->dims, (size_t)t->rank * sizeof *dims);
    dims[t->rank - 1] = ex_const(x, size / block);
    return true;
}

/* Dims of a tensor whose last one is split into blocks: one more than t has, the last one `inner`. */
static void blocks_dims(struct graph *g, const struct type *t, int64_t inner, expr_id dims[RANK_MAX])
{
    scales_dims(g, t, dims);
    dims[t->rank] = ex_const(g->ctx->exprs, inner);
}

/* What v repeats along its last dim; {0}: it does not. */
static value_id repeated(const struct graph *g, value_id v)
{
    const struct node *n = value_node(g, v);
    if (!n || n->op != OP_BROADCAST)
        return (value_id){0};
    const struct type *t = value_type(g, n->in[0]);
    bool same = t->rank == 0 || ex_is(g->ctx->exprs, t->dims[t->rank - 1], 1);
    return same ? n->in[0] : (value_id){0};
}

bool scales_move(struct graph *g, const struct node *n, uint32_t operand)
{
    struct exprs *x = g->ctx->exprs;
    const struct type *from = value_type(g, n->in[operand]), *to = value_type(g, n->out[0]);
    int32_t last = to->rank - 1;
    double fill;
    int64_t places;
    uint32_t count;
    if (from->rank < 1 || last < 0 || from->dims[from->rank - 1].i != to->dims[last].i)
        return false;
    switch (n->op) {
    case OP_IDENTITY:
    case OP_RESHAPE: return true;
    case OP_SLICE:
        return node_ints(n, "steps", &count)[last] == 1; /* and all of the last dim, which keeps its extent */
    case OP_PAD:
        return strcmp(node_str(n, "mode", ""), "constant") == 0 && ex_is(x, node_exprs(n, "lo", &count)[last], 0) &&
               (n->n_in < 2 || (value_const_f64(g, n->in[1], &fill, 1) && fill == 0));
    case OP_TRANSPOSE: return node_ints(n, "perm", &count)[last] == last;
    case OP_CONCAT: return node_int(n, "axis", 0) != last;
    case OP_SELECT: return repeated(g, n->in[0]).i;
    case OP_SCATTER_ELEMENTS: /* whole rows: their blocks are those of the cache */
        return node_int(n, "axis", 0) != last && repeated(g, n->in[1]).i &&
               value_type(g, n->in[1])->dims[last].i == to->dims[last].i;
    case OP_SCATTER_ND: {
        const struct type *at = value_type(g, n->in[1]);
        return at->rank > 0 && ex_is_const(x, at->dims[at->rank - 1], &places) && places <= last;
    }
    default: return false;
    }
}

value_id scales_operand(struct builder *b, const struct node *n, uint32_t operand)
{
    value_id v = n->in[operand];
    const struct type *t = value_type(b->g, v);
    expr_id dims[RANK_MAX];
    if (n->op != OP_SELECT && n->op != OP_SCATTER_ELEMENTS)
        return v;
    if (!scales_dims(b->g, t, dims))
        return (value_id){0};
    return b_broadcast(b, repeated(b->g, v), dims, t->rank);
}

value_id scales_step(struct builder *b, const struct node *n, const value_id *in, uint32_t n_in)
{
    struct attr attr[8];
    const struct type *t = value_type(b->g, n->out[0]);
    expr_id dims[RANK_MAX], sizes[RANK_MAX];
    uint32_t n_attr = n->n_attr < 8 ? n->n_attr : 8;
    if (!scales_dims(b->g, t, dims))
        return (value_id){0};
    memcpy(attr, n->attr, n_attr * sizeof *attr);
    for (uint32_t i = 0; i < n_attr; i++) {
        if (n->op == OP_RESHAPE && strcmp(attr[i].name, "dims") == 0)
            attr[i].u.exprs = dims;
        if (n->op == OP_SLICE && strcmp(attr[i].name, "sizes") == 0) {
            memcpy(sizes, attr[i].u.exprs, (size_t)t->rank * sizeof *sizes);
            sizes[t->rank - 1] = dims[t->rank - 1];
            attr[i].u.exprs = sizes;
        }
    }
    return b_op(b, n->op, in, n_in, attr, n_attr);
}

struct narrow scales_narrowed(struct builder *b, value_id x, enum elem to)
{
    struct narrow y = {{0}, {0}};
    expr_id blocks[RANK_MAX], dims[RANK_MAX];
    if (!x.i)
        return y;
    const struct type *t = value_type(b->g, x);
    if (!scales_dims(b->g, t, dims))
        return y;
    const struct type whole = *t;
    int64_t axis = whole.rank;
    blocks_dims(b->g, &whole, block_of(b->g, &whole), blocks);
    value_id by_block = b_reshape(b, b_convert(b, x, ELEM_F32), blocks, whole.rank + 1);
    value_id most = b_reduce(b, b_unary(b, OP_ABS, by_block), &axis, 1, "max", true);
    value_id scale = b_binary_f64(b, OP_DIV, most, LARGEST);
    y.scales = b_reshape(b, scale, dims, whole.rank);
    value_id q = b_unary(b, OP_ROUND, b_binary(b, OP_DIV, by_block, scale)); /* of zeros NaN, which converts to 0 */
    y.numbers = b_reshape(b, b_convert(b, q, to), whole.dims, whole.rank);
    return y;
}

value_id scales_widened(struct builder *b, struct narrow x, enum elem to)
{
    expr_id blocks[RANK_MAX];
    if (!x.numbers.i || !x.scales.i)
        return (value_id){0};
    const struct type whole = *value_type(b->g, x.numbers);
    blocks_dims(b->g, &whole, block_of(b->g, &whole), blocks);
    value_id wide = b_convert(b, b_reshape(b, x.numbers, blocks, whole.rank + 1), ELEM_F32);
    wide = b_binary(b, OP_MUL, wide, b_unsqueeze(b, x.scales, whole.rank));
    return b_convert(b, b_reshape(b, wide, whole.dims, whole.rank), to);
}
