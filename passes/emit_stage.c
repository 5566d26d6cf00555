/* The operand that a kernel computes for itself (kernel.staged): scratch with all channels of a chunk of an image's points,
 * filled before the products and read by them in its place.
 *
 *   scratch[block of 16 channels][point of the chunk][channel of the block]
 */
#include "passes/schedule.h"

enum { SOURCE_DEPTH = 16 };

static void stage_storage(struct em *em, expr_id first, int64_t most)
{
    struct exprs *x = em->x;
    struct storage *s = &em->stage.storage;
    const struct type *t = value_type(em->g, em->k->staged);
    *s = (struct storage){.rank = t->rank, .dim = NEW_ARRAY(em->arena, struct dim_layout, t->rank)};
    for (int32_t d = 0; d < t->rank; d++)
        s->dim[d].outer = ex_const(x, 0);
    s->dim[1] = (struct dim_layout){CHANNEL_BLOCK, ex_const(x, most * CHANNEL_BLOCK), 1};
    s->dim[t->rank - 1].outer = ex_const(x, CHANNEL_BLOCK);
    s->dim[t->rank - 2].outer = ex_mulc(x, t->dims[t->rank - 1], CHANNEL_BLOCK);
    s->origin = ex_mulc(x, first, -CHANNEL_BLOCK);
}

/* Points [0, count) of the chunk at the channels of idx. */
static void fill_points(struct em *em, expr_id *idx, expr_id first, expr_id count)
{
    struct exprs *x = em->x;
    const struct type *t = value_type(em->g, em->k->staged);
    struct em_for l;
    expr_id at = ex_add(x, first, em_for_begin(em, &l, ex_const(x, 0), count, 1, NULL, 0));
    idx[t->rank - 2] = ex_div(x, at, t->dims[t->rank - 1]);
    idx[t->rank - 1] = ex_mod(x, at, t->dims[t->rank - 1]);
    lval v = em_compute(em, em->k->staged, idx, ex_const(x, 1));
    em_store_at(em, em->stage.buffer, &em->stage.storage, t->elem, idx, v);
    em_for_end(em, &l, NULL, NULL);
}

/* The stored value of the same shape that v is computed from; the first one, if there are several. */
static value_id source_of(const struct em *em, value_id v, int depth)
{
    node_id def = graph_value(em->g, v)->def;
    value_id found = {0};
    if (!type_same_shape(value_type(em->g, v), value_type(em->g, em->k->staged)))
        return found;
    if (em->m->storage[v.i].place != PLACE_NONE)
        return v;
    const struct node *n = def.i && depth <= SOURCE_DEPTH ? graph_node(em->g, def) : NULL;
    for (uint32_t k = 0; n && k < n->n_in && !found.i && op_shape(n->op) == SHAPE_MAP; k++)
        found = source_of(em, n->in[k], depth + 1);
    return found;
}

/* Is an image more than what the second cache may still hold of it when it comes to be read? Filling then waits for lines, one
 * miss for each: asking for the next chunk's while this one's products are computed gives large images 10 % of their time,
 * and takes 3 % from small ones. */
static bool is_far(const struct em *em, const struct type *t)
{
    int64_t bytes = elem_size(t->elem), n;
    for (int32_t d = 1; d < t->rank; d++)
        if (!ex_is_const(em->x, t->dims[d], &n) || !mul_i64(bytes, n, &bytes))
            return false;
    return em->m->always || bytes > (int64_t)em->mach.l2_kib * 1024 * 3 / 8;
}

void em_stage_ahead(struct em *em, expr_id *const *points, uint32_t n_points, expr_id next)
{
    struct exprs *x = em->x;
    value_id v = em->stage.source;
    const struct type *t = value_type(em->g, em->k->staged);
    expr_id at[RANK_MAX], last = {0};
    int32_t row = t->rank - 2, column = t->rank - 1;
    for (uint32_t i = 0; v.i && i < n_points; i++) {
        for (int32_t d = 0; d < t->rank; d++)
            at[d] = points[i][d];
        expr_id number = ex_addc(x, ex_add(x, ex_mul(x, at[row], t->dims[column]), at[column]), em->stage.most);
        at[1] = ex_addc(x, next, -CHANNEL_BLOCK);
        at[row] = ex_div(x, number, t->dims[column]);
        at[column] = ex_mod(x, number, t->dims[column]);
        expr_id bytes = ex_mulc(x, em_address(em, &em->m->storage[v.i], at), elem_size(t->elem));
        if (i == 0 || bytes.i != last.i)
            em_prefetch(em, L_PREFETCH2, em_buffer(em, v), bytes);
        last = bytes;
    }
}

void em_stage_fill(struct em *em, const expr_id *point, expr_id first, expr_id count, int64_t most)
{
    struct exprs *x = em->x;
    const struct type *t = value_type(em->g, em->k->staged);
    expr_id idx[RANK_MAX], zero = ex_const(x, 0);
    int64_t channels = 0, lanes = em_lanes(em, t->elem) < CHANNEL_BLOCK ? em_lanes(em, t->elem) : CHANNEL_BLOCK;
    ex_is_const(x, t->dims[1], &channels);
    for (int32_t d = 0; d < t->rank; d++)
        idx[d] = point[d];
    em->stage.buffer = em_scratch(em, t->elem, (channels + CHANNEL_BLOCK - 1) / CHANNEL_BLOCK * CHANNEL_BLOCK * most);
    stage_storage(em, first, most);
    if (channels / lanes) {
        struct em_for l;
        expr_id vector = em_for_begin(em, &l, zero, ex_const(x, channels / lanes), 1, NULL, 0);
        idx[1] = ex_add(x, ex_mulc(x, vector, lanes), em_lane(em, (uint32_t)lanes, (lval){0}));
        fill_points(em, idx, first, count);
        em_for_end(em, &l, NULL, NULL);
    }
    if (channels % lanes) {
        idx[1] = em_tail(em, ex_const(x, channels / lanes * lanes), ex_const(x, channels % lanes), (uint32_t)lanes);
        fill_points(em, idx, first, count);
    }
    em->stage.level = em->top;
    em->stage.most = most;
    em->stage.source = is_far(em, t) ? source_of(em, em->k->staged, 0) : (value_id){0};
}

lval em_stage_value(struct em *em, const expr_id *idx, expr_id cond)
{
    int floor = em->floor;
    if (em->floor < em->stage.level)    /* not above the loops that fill it */
        em->floor = em->stage.level;
    lval v = em_load_at(em, em->stage.buffer, &em->stage.storage, value_type(em->g, em->k->staged)->elem, idx, cond);
    em->floor = floor;
    return v;
}
