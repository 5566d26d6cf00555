/* place_pieces: operands of a stored concat that are stored themselves lie where the concat's result has them: nothing
 * is copied.
 *
 * fuse writes a stored concat piece by piece. What only the concat reads is computed by the piece's kernel, in its
 * place. What others read as well has a kernel and a place of its own, and the piece's kernel would copy it. Here such
 * an operand gets the strides of the result, from where it begins in it, and the copying kernel goes. A value lies in
 * one result at most, that of the last concat; results nest (dense blocks: every concat is the head of the next).
 *
 * For convolutional networks with concats (Inception, SqueezeNet, DenseNet): it changes 3 of the 554 networks of
 * ../shared/models that compile, and one of the 14 of `make bench`.
 */
#include "passes/module/access_function.h"
#include "passes/module/analysis.h"

static bool in_top_region(const struct module *m, value_id v)
{
    node_id def = graph_value(m->g, v)->def;
    return def.i && graph_node(m->g, def)->parent.i == 1;
}

static bool is_plain_arena(const struct module *m, value_id v)
{
    const struct storage *s = &m->fused.storage[v.i];
    return m->fused.stored[v.i] && s->place == PLACE_ARENA && !s->halo && !m->fused.constraint[v.i].plain &&
           !m->fused.constraint[v.i].fastest && in_top_region(m, v) && !late_expr(m->ctx->exprs, s->size);
}

/* Blocks that only the piece has: a kernel may write all lanes of one. */
static bool fills_blocks(const struct module *m, const struct node *concat, uint32_t piece)
{
    int64_t axis = node_int(concat, "axis", 0), size;
    const struct dim_layout *whole = &m->fused.storage[concat->out[0].i].dim[axis];
    return !whole->block || (ex_is_const(m->ctx->exprs, value_type(m->g, concat->in[piece])->dims[axis], &size) &&
                             size % whole->block == 0);
}

/* Gives operand `piece` its place in the result; false: it keeps its own. */
static bool place_piece(struct module *m, const struct node *concat, uint32_t piece)
{
    struct storage *own = &m->fused.storage[concat->in[piece].i];
    const struct storage *whole = &m->fused.storage[concat->out[0].i];
    expr_id origin;
    for (int32_t d = 0; d < own->rank; d++)
        if (own->dim[d].block != whole->dim[d].block || own->dim[d].inner != whole->dim[d].inner)
            return false;
    if (own->rank != whole->rank || !fills_blocks(m, concat, piece) || !piece_start(m, concat, piece, &origin))
        return false;
    memcpy(own->dim, whole->dim, (size_t)own->rank * sizeof *own->dim);
    own->origin = ex_add(m->ctx->exprs, whole->origin, origin);
    own->size = whole->size;
    own->buffer = whole->buffer;
    return true;
}

bool place_pieces(struct module *m)
{
    bool *gone = NEW_ARRAY(m->arena, bool, m->fused.kernels.n + 1),
         *placed = NEW_ARRAY(m->arena, bool, m->fused.n_values), any = false;
    for (uint32_t i = 0; i < m->fused.kernels.n;
         i++) { /* fuse made the last kernel first: results before what lies in them */
        const struct kernel *k = &m->fused.kernels.data[i];
        const struct node *concat = k->piece ? value_node(m->g, k->outs.data[0]) : NULL;
        /* the program takes the last piece's kernel for the end of the result */
        if (!concat || k->piece == concat->n_in || placed[k->domain.i] || k->domain.i != concat->in[k->piece - 1].i ||
            !is_plain_arena(m, k->domain) || !is_plain_arena(m, concat->out[0]))
            continue;
        gone[i] = placed[k->domain.i] = place_piece(m, concat, k->piece - 1);
        any |= gone[i];
    }
    if (any)
        kernels_remove(m, gone);
    return true;
}
