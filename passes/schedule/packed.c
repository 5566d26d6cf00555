/* Packed points (collapsed loops): if the dim of the lanes has only 2 to 4 points, as the channels of an image do, a
 * vector holds all of them of several points of the loop outside of it, which follow in memory. What is read contiguous
 * along that loop (an image by planes) is a load for each of the few points and shuffles.
 *
 * For images of few channels that are put side by side, and transposed matrices of 2 to 4 columns: 23 of 1432 maps, in
 * 21 of 568 networks, most of them quantized convolutions of 3 channels.
 */
#include "passes/schedule/decisions.h"

enum { POINTS_MOST = 4, LANES_MOST = 128, REGISTERS = 4 };

/* Is the address `step` elements further at the next point? */
static bool advances(const struct site *s, expr_id address, sym_id sym, int64_t step)
{
    expr_id coef, rest;
    return ex_linear(s->x, address, sym, &coef, &rest) && ex_is(s->x, coef, step);
}

/* Operands that follow along `beside` and not along `vec`: are there any? */
struct rows_read {
    const struct site *s;
    sym_id beside, vec;
    bool found;
};

static bool row_view(void *user, const struct node *n, const expr_id *idx)
{
    (void)user;
    (void)idx;
    return n->op != OP_CONCAT;
}

static void row_operand(void *user, value_id v, const expr_id *idx)
{
    struct rows_read *r = user;
    expr_id address = storage_address(r->s->x, &r->s->m->fused.storage[v.i], idx);
    r->found |= advances(r->s, address, r->beside, 1) && ex_uses(r->s->x, address, r->vec) &&
                !advances(r->s, address, r->vec, 1);
}

/* Are the points of vec few, one after another, those of `beside` after them, and read along `beside`? */
static bool lies_beside(const struct site *s, int32_t vec, int32_t beside)
{
    const struct type *t = value_type(s->g, s->k->domain);
    expr_id idx[RANK_MAX];
    int64_t few;
    if (s->k->has_rows || s->k->piece || beside == vec || !ex_is_const(s->x, t->dims[vec], &few) || few < 2 ||
        few > POINTS_MOST)
        return false;
    domain_points(s, idx);
    struct rows_read r = {.s = s, .beside = ex_as_sym(s->x, idx[beside]), .vec = ex_as_sym(s->x, idx[vec])};
    expr_id to = storage_address(s->x, &s->m->fused.storage[s->k->outs.data[0].i], idx);
    if (advances(s, to, r.vec, 1) && advances(s, to, r.beside, few))
        operands_walk(&(struct operand_walk){.site = s, .user = &r, .view = row_view, .operand = row_operand}, idx);
    return r.found;
}

static uint32_t points_most(const struct site *s, int32_t vec)
{
    uint32_t least, most, few = (uint32_t)ex_hi(s->x, value_type(s->g, s->k->domain)->dims[vec]), n = 1;
    map_elements(s, &least, &most);
    while (2 * n * few <= LANES_MOST && 2 * n * few * most <= REGISTERS * s->mach->vector_bytes)
        n *= 2;
    return n;
}

bool packed_serves(const struct site *site, const struct nest_schedule *s)
{
    uint32_t packed = nest_packed(s), over = 0;
    for (uint32_t i = 0; i < s->n_loops; i++)
        over += s->loop[i] == s->vec;
    return over == 1 && packed >= 2 && !(packed & (packed - 1)) && lies_beside(site, s->vec, s->loop[s->n_loops - 2]) &&
           packed <= points_most(site, s->vec) &&
           ex_is(site->x, value_type(site->g, site->k->domain)->dims[s->vec], s->step[s->n_loops - 1]);
}

void packed_choose(const struct site *site, struct nest_schedule *s)
{
    const struct type *t = value_type(site->g, site->k->domain);
    for (int32_t d = 0; d < t->rank && s->vec >= 0 && t->rank >= 2; d++) {
        if (!lies_beside(site, s->vec, d))
            continue;
        uint32_t n = points_most(site, s->vec);
        while (n > 1 && n > extent_hint(site->x, t->dims[d]))
            n /= 2;
        if (n < 2)
            return;
        nest_last(s, d);
        s->step[s->n_loops - 1] = n;
        nest_last(s, s->vec);
        s->step[s->n_loops - 1] = ex_hi(site->x, t->dims[s->vec]);
        return;
    }
}
