/* In which order a convolution goes through its input channels: the order in which they lie.
 *
 * Where the operand is a view of what is stored, channel k of the operand is channel f(k) of memory: another start (a slice),
 * or every g-th one from several places (a channel shuffle, which is a reshape, a transpose and a reshape). Looping over
 * k = j * g + i with the residue i outside makes f(k) = j + a constant for each i, so the inner loops walk through memory
 * with plain addresses and whole blocks; the weights, which have one row for each k, are read g rows apart. The view itself
 * is never made. What is found here only orders and cuts the loops: any answer is correct.
 */
#include "passes/emit/split.h"

#include <string.h>

/* A divisor g of n for which e holds (s mod g); 0: none. */
static int64_t modulus_of(const struct em *em, expr_id e, sym_id s, int64_t n, int depth)
{
    int64_t g;
    if (depth > 16 || !ex_uses(em->x, e, s))
        return 0;
    if (ex_kind(em->x, e) == EX_MOD && ex_as_sym(em->x, ex_arg(em->x, e, 0)).i == s.i &&
        ex_is_const(em->x, ex_arg(em->x, e, 1), &g) && g > 1 && n % g == 0)
        return g;
    for (uint32_t i = 0; i < ex_n_args(em->x, e); i++)
        if ((g = modulus_of(em, ex_arg(em->x, e, i), s, n, depth + 1)))
            return g;
    return 0;
}

/* Channel idx[1] of v -> point of the stored value behind views; {0} when something else is computed on the way. */
static value_id stored_point(const struct em *em, value_id v, expr_id *idx)
{
    expr_id next[RANK_MAX], cond;
    for (int steps = 0; steps < 64 && em->m->storage[v.i].place == PLACE_NONE && graph_value(em->g, v)->def.i; steps++) {
        const struct node *n = graph_node(em->g, graph_value(em->g, v)->def);
        if (op_shape(n->op) != SHAPE_VIEW || n->op == OP_CONCAT || n->op == OP_PAD)
            break;
        view_index(em->g, n, 0, idx, next, &cond);
        memcpy(idx, next, sizeof next);
        v = n->in[0];
    }
    return em->m->storage[v.i].place == PLACE_NONE ? (value_id){0} : v;
}

static sym_id channel_point(struct em *em, const struct type *t, int64_t n, int64_t g, int64_t i, expr_id *idx)
{
    sym_id s = sym_new(em->x, SYM_LOOP, arena_printf(em->arena, "%s.c%u", em->f->name, sym_count(em->x)), 0, n / g - 1);
    for (int32_t d = 0; d < t->rank; d++)
        idx[d] = ex_const(em->x, 0);
    idx[1] = ex_addc(em->x, ex_mulc(em->x, ex_sym(em->x, s), g), i);
    return s;
}

/* Where in its block channel i of every g starts, when it walks along a blocked dim; -1 otherwise. */
static int64_t phase_of(struct em *em, value_id x, int64_t n, int64_t g, int64_t i, int64_t *block)
{
    expr_id idx[RANK_MAX] = {{0}}, coef, rest;
    int64_t at;
    sym_id s = channel_point(em, value_type(em->g, x), n, g, i, idx);
    value_id base = stored_point(em, x, idx);
    if (!base.i)
        return -1;
    const struct storage *st = &em->m->storage[base.i];
    for (int32_t d = 0; d < st->rank; d++)
        if (st->dim[d].block && ex_linear(em->x, idx[d], s, &coef, &rest) && ex_is(em->x, coef, 1) &&
            ex_is_const(em->x, rest, &at) && at >= 0) {
            *block = st->dim[d].block;
            return at % st->dim[d].block;
        }
    return -1;
}

struct channel_order em_channel_order(struct em *em, value_id x)
{
    struct channel_order o = {.residues = 1};
    expr_id idx[RANK_MAX] = {{0}};
    const struct type *t = value_type(em->g, x);
    int64_t n, block = 0;
    if (t->rank < 2 || !ex_is_const(em->x, t->dims[1], &n) || n < 1)
        return o;
    if (em->stage.buffer.i && em->k->staged.i == x.i) {
        o.block = em->stage.storage.dim[1].block;
        return o;
    }
    sym_id s = channel_point(em, t, n, 1, 0, idx);
    value_id base = stored_point(em, x, idx);
    for (int32_t d = 0; base.i && d < value_type(em->g, base)->rank && o.residues == 1; d++) {
        int64_t g = modulus_of(em, idx[d], s, n, 0);
        if (g > 1 && g <= MAX_RESIDUES)
            o.residues = (uint32_t)g;
    }
    for (uint32_t i = 0; i < o.residues; i++) {
        o.phase[i] = phase_of(em, x, n, o.residues, i, &block);
        if (o.phase[i] < 0)
            return o;
    }
    o.block = block;
    return o;
}
