/* Contractions of narrow elements: several steps of the reduction at once by L_DOT.
 *
 * A *group* is 4 bytes of consecutive elements along the innermost reduced dim: four u8 with four i8 summed in i32, or
 * two bf16 with two bf16 summed in f32. Weights are packed so that a group of each lane lies together
 * ([N/16][K/group][16][group], layout/store_constants.c), and rows of the first operand are groups as they stand; an
 * operand that lies otherwise is put together from single elements. Past the end of the reduced dim a group holds
 * zeros. For L_MATDOT a group is twice as long; where a register is summed into one lane, it is a register.
 */
#include "passes/emit/producer.h"

/* ---- lanes ------------------------------------------------------------------------------------------------------- */

lreg em_insert(struct em *em, lreg v, lreg x, uint32_t lane)
{
    lreg in[2] = {v, x};
    v = em_op(em, L_INSERT, lf_type(em->f, v), in, 2);
    lf_last(em->f, em->level[em_depth(em, in, 2)])->imm = lane;
    return v;
}

/* a0 b0 a1 b1 ... where every item is `size` lanes. */
static lreg interleaved(struct em *em, lreg a, lreg b, uint32_t size)
{
    uint32_t n = lf_type(em->f, a).lanes;
    uint8_t from[256];
    for (uint32_t i = 0; i < 2 * n; i++)
        from[i] = (uint8_t)((i / size & 1) * n + i / size / 2 * size + i % size);
    return em_shuffle(em, a, b, from, 2 * n);
}

/* A scalar group for all lanes. */
static lreg for_lanes(struct em *em, lreg v, uint32_t lanes)
{
    struct ltype t = lf_type(em->f, v);
    struct ltype word = {ELEM_I32, 1};
    if (lanes <= 1)
        return v;
    t.lanes *= lanes;
    v = em_splat(em, em_op(em, L_BITCAST, word, &v, 1), lanes);
    return em_op(em, L_BITCAST, t, &v, 1);
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

struct group {
    value_id v;
    const expr_id *idx;
    int32_t rank, dim; /* elements idx, idx + step along dim ... */
    int64_t step;
    uint32_t size, valid; /* ... of which `valid` exist */
    uint32_t lanes;
    bool whole; /* what lies together, or nothing */
    expr_id cond;
};

/* Where the elements of v lie: in memory, or in scratch, if the kernel computes them for itself. */
struct operand_place {
    const struct storage *storage;
    lreg buffer;
    int floor; /* not to be read above that level */
};

/* False: they are computed. */
static bool place_of(struct em *em, value_id v, struct operand_place *place)
{
    const struct em_producer *p = em_producer_seen(em, v);
    bool stored = em->m->fused.storage[v.i].place != PLACE_NONE &&
                  !value_is_splat(em->g, v, &(double){0}, &(int64_t){0});
    if (p)
        *place = (struct operand_place){&p->storage, p->buffer, p->level};
    else if (stored)
        *place = (struct operand_place){&em->m->fused.storage[v.i], em_buffer(em, v), 0};
    return p || stored;
}

/* An integer or a truth value of one byte; f8 is an f32 in registers. */
static bool is_byte(enum elem e)
{
    return elem_size(e) == 1 && elem_class(e) != 'F';
}

bool em_is_stored(struct em *em, value_id v)
{
    return place_of(em, v, &(struct operand_place){.floor = 0});
}

static void point_at(struct em *em, const struct group *g, uint32_t j, expr_id *idx)
{
    memcpy(idx, g->idx, (size_t)g->rank * sizeof *idx);
    idx[g->dim] = ex_addc(em->x, idx[g->dim], j * g->step);
}

/* Do the elements of the group lie together, whole groups of the lanes side by side? Then one load reads them. The
 * groups of weights are whole: zeros were written after their end. */
static bool load_whole(struct em *em, const struct group *g, lreg *result)
{
    struct operand_place place;
    if (!place_of(em, g->v, &place))
        return false;
    const struct storage *s = place.storage;
    bool part = g->valid < g->size && (s->place != PLACE_WEIGHTS || s->dim[g->dim].block != g->size);
    if (part && g->size != REGISTER_BYTES) /* masked: worth it for many */
        return false;
    expr_id idx[RANK_MAX], first = storage_address(em->x, s, g->idx), coef, rest = first;
    int64_t step;
    for (uint32_t j = 1; j < g->valid; j++) {
        point_at(em, g, j, idx);
        if (!ex_apart(em->x, storage_address(em->x, s, idx), first, &step) || step != (int64_t)j)
            return false;
    }
    const struct em_sym *lane = NULL;
    for (uint32_t i = 0; i < em->syms.n; i++) {
        const struct em_sym *sym = &em->syms.data[i];
        if (!sym->lanes || !ex_uses(em->x, first, sym->sym))
            continue;
        if (lane || sym->vector || !ex_linear(em->x, first, sym->sym, &coef, &rest) ||
            !ex_is_const(em->x, coef, &step) || step != (int64_t)g->size)
            return false;
        lane = sym;
    }
    if (em_expr_lanes(em, g->cond) || (lane && (part || ex_truth(em->x, g->cond) != TRUE_)))
        return false;
    lreg mask = lane ? lane->mask : (lreg){0};
    uint32_t lanes = lane ? lane->lanes : 1, n_in = 2;
    if (mask.i) { /* of lanes -> of elements */
        uint8_t from[256];
        for (uint32_t i = 0; i < lanes * g->size; i++)
            from[i] = (uint8_t)(i / g->size);
        mask = em_shuffle(em, mask, mask, from, lanes * g->size);
    } else if (ex_truth(em->x, g->cond) != TRUE_) {
        mask = em_splat(em, em_cond(em, g->cond), g->size);
    }
    if (part) {
        lreg valid = em_tail_mask(em, ex_const(em->x, g->valid), g->size);
        mask = mask.i ? em_op2(em, L_AND, mask, valid) : valid;
    }
    int floor = em->floor;
    em->floor = floor < place.floor ? place.floor : floor;
    lreg in[3] = {place.buffer, em_index(em, rest), mask};
    n_in += mask.i != 0;
    *result = em_op(em, L_LOAD, (struct ltype){value_type(em->g, g->v)->elem, lanes * g->size}, in, n_in);
    em->floor = floor;
    return true;
}

/* Do the lanes of each element lie together, and the next element's right after them (a depthwise convolution's taps,
 * channels in blocks)? Then one load reads the elements of all lanes, and a shuffle makes groups of them. */
static bool load_turned(struct em *em, const struct group *g, lreg *result)
{
    const struct storage *s = &em->m->fused.storage[g->v.i];
    enum elem e = value_type(em->g, g->v)->elem;
    if (!em_is_stored(em, g->v) || !is_byte(e) || g->size * g->lanes > 64 || ex_truth(em->x, g->cond) != TRUE_)
        return false;
    expr_id idx[RANK_MAX], first = storage_address(em->x, s, g->idx), coef, rest = first;
    const struct em_sym *lane = NULL;
    int64_t step;
    for (uint32_t i = 0; i < em->syms.n; i++) {
        const struct em_sym *sym = &em->syms.data[i];
        if (!sym->lanes || !ex_uses(em->x, first, sym->sym))
            continue;
        if (lane || sym->vector || sym->mask.i || sym->lanes != g->lanes ||
            !ex_linear(em->x, first, sym->sym, &coef, &rest) || !ex_is(em->x, coef, 1))
            return false;
        lane = sym;
    }
    for (uint32_t j = 1; j < g->valid; j++) {
        point_at(em, g, j, idx);
        if (!lane || !ex_apart(em->x, storage_address(em->x, s, idx), first, &step) || step != (int64_t)j * g->lanes)
            return false;
    }
    if (!lane)
        return false;
    uint32_t bytes = g->size * g->lanes, n_in = 2;
    lreg in[3] = {em_buffer(em, g->v), em_index(em, rest)};
    if (g->valid < g->size) /* nothing is read after the last one */
        in[n_in++] = em_tail_mask(em, ex_const(em->x, (int64_t)g->valid * g->lanes), bytes);
    lreg v = em_op(em, L_LOAD, (struct ltype){e, bytes}, in, n_in);
    uint8_t from[256];
    for (uint32_t i = 0; i < bytes; i++)
        from[i] = (uint8_t)(i % g->size * g->lanes + i / g->size);
    *result = em_shuffle(em, v, v, from, bytes);
    return true;
}

/* Element j of the group, as memory holds it; zero where it is not wanted. */
static lreg element(struct em *em, const struct group *g, uint32_t j)
{
    enum elem e = value_type(em->g, g->v)->elem;
    expr_id idx[RANK_MAX];
    point_at(em, g, j, idx);
    lreg v = em_value(em, g->v, idx, g->cond);
    struct ltype t = lf_type(em->f, v);
    if (t.elem != e)
        v = em_op(em, L_CONVERT, (struct ltype){e, t.lanes}, &v, 1);
    if (ex_truth(em->x, g->cond) == TRUE_ || em_is_stored(em, g->v)) /* a masked load is 0 already */
        return v;
    return em_select(em, em_cond(em, g->cond), v, em_const(em, e, 1, 0, 0));
}

static lreg put_together(struct em *em, const struct group *g)
{
    enum elem e = value_type(em->g, g->v)->elem;
    lreg part[REGISTER_BYTES];
    for (uint32_t j = 0; j < g->size; j++)
        part[j] = j < g->valid ? element(em, g, j) : em_const(em, e, 1, 0, 0);
    em_unify(em, part, g->size);
    if (lf_type(em->f, part[0]).lanes == 1) {
        lreg v = em_const(em, e, g->size, 0, 0);
        for (uint32_t j = 0; j < g->valid; j++)
            v = em_insert(em, v, part[j], j);
        return v;
    }
    for (uint32_t n = g->size, width = 1; n > 1; n /= 2, width *= 2)
        for (uint32_t j = 0; j < n / 2; j++)
            part[j] = interleaved(em, part[2 * j], part[2 * j + 1], width);
    return part[0];
}

static lreg group_value(struct em *em, const struct group *g);

/* Of panels whose columns hold two groups together (module/analysis.h: panel_group), one: every second word of both. */
static bool load_half(struct em *em, const struct group *g, lreg *result)
{
    const struct storage *s = &em->m->fused.storage[g->v.i];
    struct group both = *g;
    expr_id idx[RANK_MAX];
    int64_t phase;
    both.size = both.valid = 2 * g->size;
    if (s->place != PLACE_WEIGHTS || s->dim[g->dim].block != (int64_t)both.size ||
        !ex_is_const(em->x, ex_mod(em->x, g->idx[g->dim], ex_const(em->x, both.size)), &phase) || phase % g->size != 0)
        return false;
    memcpy(idx, g->idx, (size_t)g->rank * sizeof *idx);
    idx[g->dim] = ex_addc(em->x, idx[g->dim], -phase);
    both.idx = idx;
    lreg v = group_value(em, &both);
    uint32_t n = lf_type(em->f, v).lanes / 2;
    uint8_t from[256];
    for (uint32_t i = 0; i < n; i++)
        from[i] = (uint8_t)(i / g->size * both.size + i % g->size + (uint32_t)phase);
    *result = em_shuffle(em, v, v, from, n);
    return true;
}

/* The group of what view n shows, in its operand. */
static bool group_after(struct em *em, const struct group *g, const struct node *n, struct group *from, expr_id *first)
{
    expr_id idx[RANK_MAX], at[RANK_MAX], cond = ex_const(em->x, 0);
    uint32_t k = 0;
    int64_t step;
    *from = *g;
    for (uint32_t j = 0; j < g->size; j++) {
        point_at(em, g, j, idx);
        for (k = j ? k : 0; k < n->n_in; k++) {
            view_index(em->g, n, k, idx, j ? at : first, &cond);
            if (j || ex_truth(em->x, cond) != FALSE_)
                break;
        }
        if (k == n->n_in || ex_truth(em->x, cond) != TRUE_)
            return false;
        from->v = n->in[k];
        from->rank = value_type(em->g, from->v)->rank;
        for (int32_t d = 0; j == 1 && d < from->rank; d++)
            if (at[d].i != first[d].i)
                from->dim = d;
        for (int32_t d = 0; j && d < from->rank; d++) {
            if (!ex_apart(em->x, at[d], first[d], &step) || (d != from->dim && step))
                return false;
            if (d == from->dim && j == 1)
                from->step = step;
            if (d == from->dim && step != j * from->step)
                return false;
        }
    }
    from->idx = first;
    return true;
}

/* A group that the kernel computes from bytes: by maps of bytes, element by element as registers hold them, of groups
 * of what is stored. */
static bool compute_group(struct em *em, const struct group *g, lreg *result)
{
    const struct node *n = value_node(em->g, g->v);
    expr_id first[RANK_MAX];
    struct group from;
    lreg in[3] = {{0}};
    double f = 0;
    int64_t i = 0;
    if (!n || em_is_stored(em, g->v) || g->valid < g->size || ex_truth(em->x, g->cond) != TRUE_ ||
        !is_byte(value_type(em->g, g->v)->elem) || value_is_splat(em->g, g->v, &f, &i))
        return false;
    if (op_shape(n->op) == SHAPE_VIEW) {
        if (!group_after(em, g, n, &from, first))
            return false;
        *result = group_value(em, &from);
        return result->i != 0;
    }
    if (op_shape(n->op) != SHAPE_MAP)
        return false;
    for (uint32_t k = 0; k < n->n_in; k++)
        if (!is_byte(value_type(em->g, n->in[k])->elem))
            return false;
    for (uint32_t k = 0; k < n->n_in; k++) {
        enum elem e = value_type(em->g, n->in[k])->elem;
        from = *g;
        from.v = n->in[k];
        in[k] = value_is_splat(em->g, from.v, &f, &i) ? em_const(em, e, g->size * g->lanes, f, i)
                                                      : group_value(em, &from);
        if (!in[k].i)
            return false;
    }
    *result = em_map(em, n, in);
    return true;
}

/* The groups of v for `lanes` lanes; equal questions get the same register. {0}: g->whole, and they do not lie
 * together. */
static lreg group_value(struct em *em, const struct group *g)
{
    uint32_t group = g->lanes << 10 | g->size << 5 | g->valid; /* at most 16 of 16 */
    lreg v = em_recall(em, g->v, g->idx, g->cond, group);
    if (v.i)
        return v;
    bool there = load_whole(em, g, &v) || (!g->whole && (load_turned(em, g, &v) || load_half(em, g, &v))) ||
                 compute_group(em, g, &v);
    if (!there && g->whole)
        return (lreg){0};
    if (!there)
        v = put_together(em, g);
    if (lf_type(em->f, v).lanes == g->size && elem_size(lf_type(em->f, v).elem) * g->size == sizeof(uint32_t))
        v = for_lanes(em, v, g->lanes);
    em_remember(em, g->v, g->idx, g->cond, group, v);
    return v;
}

lreg em_lane_group(struct em *em, value_id v, const expr_id *idx, int32_t dim, uint32_t size, int32_t lane,
                   enum elem acc, expr_id cond)
{
    const struct type *t = value_type(em->g, v);
    enum { WORDS = 1 << 20, WORD = 1 << 21, HALF = 1 << 22, BYTES = 4 };
    expr_id first[RANK_MAX];
    uint32_t bytes = size * elem_size(t->elem), whole = REGISTER_BYTES / elem_size(t->elem);
    if (lane < 0 || ex_truth(em->x, cond) != TRUE_ || (bytes != BYTES && bytes != 2 * BYTES) || em_producer_seen(em, v))
        return (lreg){0};
    bool half = size == 1 && acc == ELEM_F16;
    uint32_t key = size | (half ? HALF : 0);
    lreg word = em_recall(em, v, idx, cond, WORD | key);
    if (word.i)
        return word;
    for (int32_t d = 0; d < t->rank; d++)
        if (em_expr_lanes(em, idx[d]))
            return (lreg){0};
    memcpy(first, idx, (size_t)t->rank * sizeof *idx);
    first[dim] = ex_addc(em->x, first[dim], -lane * (int64_t)size);
    lreg words = em_recall(em, v, first, cond, WORDS | key);
    if (!words.i) {
        struct group g = {.v = v,
                          .idx = first,
                          .rank = t->rank,
                          .dim = dim,
                          .step = 1,
                          .size = whole,
                          .valid = whole,
                          .lanes = 1,
                          .whole = true,
                          .cond = cond};
        words = group_value(em, &g);
        if (!words.i)
            return (lreg){0};
        /* Words of the kind of the sums, whose lanes the instructions take. */
        enum elem e = bytes > BYTES ? ELEM_I64 : elem_class(t->elem) == 'F' ? ELEM_F32 : ELEM_I32;
        struct ltype t_words = {e, REGISTER_BYTES / bytes};
        if (size > 1)
            words = em_op(em, L_BITCAST, t_words, &words, 1);
        if (half) /* all at once */
            words = em_op(em, L_CONVERT, (struct ltype){ELEM_F16, REGISTER_BYTES / bytes}, &words, 1);
        em_remember(em, v, first, cond, WORDS | key, words);
    }
    word = bytes > BYTES ? words : em_extract(em, words, (uint32_t)lane);
    em_remember(em, v, idx, cond, WORD | key, word);
    return word;
}

static struct group group_of(struct em *em, const struct node *n, const struct em_group *at, int o, expr_id cond)
{
    return (struct group){.v = n->in[o],
                          .idx = at->idx[o],
                          .rank = value_type(em->g, n->in[o])->rank,
                          .dim = at->dim[o],
                          .step = at->step[o],
                          .size = at->size,
                          .valid = at->valid,
                          .lanes = at->lanes,
                          .cond = cond};
}

lreg em_panel_group(struct em *em, const struct node *n, const struct em_group *at, expr_id cond)
{
    const struct group g = group_of(em, n, at, 1, cond);
    return group_value(em, &g);
}

void em_dot_group(struct em *em, const struct node *n, const struct em_group *at, expr_id cond_a, expr_id cond_b,
                  lreg in[2])
{
    for (int o = 0; o < 2; o++) {
        struct group g = group_of(em, n, at, o, o ? cond_b : cond_a);
        lreg word = o ? (lreg){0} : em_lane_group(em, g.v, g.idx, g.dim, g.size, at->lane, ELEM_NONE, g.cond);
        if (at->matrix && !o) { /* a row, not for all lanes */
            g.lanes = 1;
            lreg v = word.i ? word : group_value(em, &g);
            in[o] = word.i ? word : em_op(em, L_BITCAST, (struct ltype){ELEM_I64, 1}, &v, 1);
        } else if (word.i) {
            struct ltype t = {value_type(em->g, g.v)->elem, g.size * g.lanes};
            word = em_splat(em, word, g.lanes);
            in[o] = em_op(em, L_BITCAST, t, &word, 1);
        } else {
            in[o] = group_value(em, &g);
        }
    }
}
