/* The operand that a kernel computes for itself (kernel.form.staged): scratch with all channels of a chunk of an
 * image's points, filled before the products and read by them in its place.
 *
 *   scratch[block of 16 channels][point of the chunk][channel of the block]
 *
 * Where the convolution has several taps, the points are whole rows, as many as the chunk's results read, and rows and
 * columns of zeros where those reach beyond the image.
 */
#include "passes/module/access.h"
#include "passes/emit/templates.h"
#include "passes/emit/tile.h"

enum { SOURCE_DEPTH = 16 };

static void stage_storage(struct em *em, expr_id first, int64_t most)
{
    struct exprs *x = em->x;
    struct storage *s = &em->stage.storage;
    const struct type *t = value_type(em->g, em->k->form.staged);
    *s = (struct storage){.rank = t->rank, .dim = NEW_ARRAY(em->arena, struct dim_layout, t->rank)};
    for (int32_t d = 0; d < t->rank; d++)
        s->dim[d].outer = ex_const(x, 0);
    s->dim[1] = (struct dim_layout){CHANNEL_BLOCK, ex_const(x, most * CHANNEL_BLOCK), 1};
    s->dim[t->rank - 1].outer = ex_const(x, CHANNEL_BLOCK);
    s->dim[t->rank - 2].outer = ex_mulc(x, t->dims[t->rank - 1], CHANNEL_BLOCK);
    s->origin = ex_mulc(x, first, -CHANNEL_BLOCK);
}

/* Points range[0] .. range[0] + range[1] of the image at the channels of idx. */
static void fill_points(struct em *em, expr_id *idx, const void *arg)
{
    struct exprs *x = em->x;
    const struct type *t = value_type(em->g, em->k->form.staged);
    const expr_id *range = arg;
    struct em_for l;
    expr_id at = ex_add(x, range[0], em_for_begin(em, &l, ex_const(x, 0), range[1], 1, NULL, 0));
    idx[t->rank - 2] = ex_div(x, at, t->dims[t->rank - 1]);
    idx[t->rank - 1] = ex_mod(x, at, t->dims[t->rank - 1]);
    lreg v = em_compute(em, em->k->form.staged, idx, ex_const(x, 1));
    em_store_at(em, em->stage.buffer, &em->stage.storage, t->elem, idx, v);
    em_for_end(em, &l, NULL, NULL);
}

/* The stored value of the same shape that v is computed from; the first one, if there are several. */
static value_id source_of(const struct em *em, value_id v, int depth)
{
    node_id def = graph_value(em->g, v)->def;
    value_id found = {0};
    if (!type_same_shape(value_type(em->g, v), value_type(em->g, em->k->form.staged)))
        return found;
    if (em->m->storage[v.i].place != PLACE_NONE)
        return v;
    const struct node *n = def.i && depth <= SOURCE_DEPTH ? graph_node(em->g, def) : NULL;
    for (uint32_t k = 0; n && k < n->n_in && !found.i && op_is_pointwise(n->op); k++)
        found = source_of(em, n->in[k], depth + 1);
    return found;
}

void em_stage_ahead(struct em *em, expr_id *const *points, uint32_t n_points, expr_id next)
{
    struct exprs *x = em->x;
    value_id v = em->stage.source;
    const struct type *t = value_type(em->g, em->k->form.staged);
    expr_id at[RANK_MAX], last = {0};
    int32_t row = t->rank - 2, column = t->rank - 1;
    for (uint32_t i = 0; v.i && i < n_points; i++) {
        for (int32_t d = 0; d < t->rank; d++)
            at[d] = points[i][d];
        expr_id number = ex_addc(x, ex_add(x, ex_mul(x, at[row], t->dims[column]), at[column]), em->stage.most);
        at[1] = ex_addc(x, next, -CHANNEL_BLOCK);
        at[row] = ex_div(x, number, t->dims[column]);
        at[column] = ex_mod(x, number, t->dims[column]);
        expr_id bytes = em_bytes(em, v, at);
        if (i == 0 || bytes.i != last.i)
            em_prefetch(em, L_PREFETCH2, em_buffer(em, v), bytes);
        last = bytes;
    }
}

/* Fills in the points of all channels, vector by vector: fn does those at the channels of idx. */
typedef void fill_fn(struct em *, expr_id *idx, const void *arg);
static void fill_channels(struct em *em, expr_id *idx, fill_fn *fn, const void *arg)
{
    struct exprs *x = em->x;
    const struct type *t = value_type(em->g, em->k->form.staged);
    int64_t channels = 0, lanes = em->schedule->tile.stage_lanes;
    ex_is_const(x, t->dims[1], &channels);
    if (channels / lanes) {
        struct em_for l;
        expr_id vector = em_for_begin(em, &l, ex_const(x, 0), ex_const(x, channels / lanes), 1, NULL, 0);
        idx[1] = ex_add(x, ex_mulc(x, vector, lanes), em_lane(em, (uint32_t)lanes, (lreg){0}));
        fn(em, idx, arg);
        em_for_end(em, &l, NULL, NULL);
    }
    if (channels % lanes) {
        idx[1] = em_tail(em, ex_const(x, channels / lanes * lanes), ex_const(x, channels % lanes), (uint32_t)lanes);
        fn(em, idx, arg);
    }
}

static int64_t channel_blocks(const struct em *em)
{
    int64_t channels = 0;
    ex_is_const(em->x, value_type(em->g, em->k->form.staged)->dims[1], &channels);
    return (channels + CHANNEL_BLOCK - 1) / CHANNEL_BLOCK;
}

void em_stage_fill(struct em *em, const expr_id *point, expr_id first, expr_id count, int64_t most)
{
    const struct type *t = value_type(em->g, em->k->form.staged);
    expr_id idx[RANK_MAX], range[2] = {first, count};
    for (int32_t d = 0; d < t->rank; d++)
        idx[d] = point[d];
    em->stage.buffer = em_scratch(em, t->elem, channel_blocks(em) * CHANNEL_BLOCK * most);
    stage_storage(em, first, most);
    fill_channels(em, idx, fill_points, range);
    em->stage.level = em->top;
    em->stage.most = most;
    em->stage.source = em->schedule->tile.stage_ahead ? source_of(em, em->k->form.staged, 0) : (value_id){0};
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static void zeros(struct em *em, expr_id *idx, int64_t from, int64_t to)
{
    struct em_for l;
    const struct storage *s = &em->stage.storage;
    enum elem e = value_type(em->g, em->k->form.staged)->elem;
    if (from >= to)
        return;
    idx[3] = em_for_begin(em, &l, ex_const(em->x, from), ex_const(em->x, to), 1, NULL, 0);
    for (uint32_t p = 0; p < em->stage.n_pieces; p++) {
        idx[1] = em->stage.piece[p];
        em_store_at(em, em->stage.buffer, s, e, idx, em_const(em, e, 1, 0, 0));
    }
    em_for_end(em, &l, NULL, NULL);
}

/* `count` points of a row of the product, from column `at` on: what a register tile of any kernel is, but that its
 * results go to scratch. */
struct tile_fill {
    struct em *em;
    const expr_id *idx;
};
static void fill_tile(void *user, expr_id at, uint32_t count)
{
    const struct tile_fill *f = user;
    struct em *em = f->em;
    struct em_interleave w;
    expr_id *points[EM_POINTS];
    lreg acc[EM_POINTS];
    const struct node *n = graph_node(em->g, em->k->form.product);
    uint32_t n_points = 0;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t p = 0; p < em->stage.n_pieces; p++) {
            expr_id *point = arena_copy(em->arena, f->idx, RANK_MAX * sizeof *f->idx);
            point[1] = em->stage.piece[p];
            point[3] = ex_addc(em->x, at, i);
            points[n_points++] = point;
        }
    em_reduce_points(em, n, n_points, points, ex_const(em->x, 1), acc);
    em_interleave_begin(em, &w);
    em->anchor = n->out[0];
    for (uint32_t i = 0; i < n_points && !em->failed; i++) {
        em->anchor_value = acc[i];
        lreg v = em_compute(em, em->k->form.staged, points[i], ex_const(em->x, 1));
        em_store_at(em, em->stage.buffer, &em->stage.storage, ELEM_F32, points[i], v);
        em_interleave_next(em, &w);
    }
    em->anchor = (value_id){0};
    em_interleave_end(em, &w, &em->schedule->tile);
}

static void fill_columns(struct em *em, expr_id *idx, int64_t columns)
{
    struct em_for l;
    uint32_t tile = em->schedule->tile.stage_columns;
    if (tile) {
        em_tiles(em, ex_const(em->x, columns), tile, fill_tile, &(struct tile_fill){em, idx});
        return;
    }
    idx[3] = em_for_begin(em, &l, ex_const(em->x, 0), ex_const(em->x, columns), 1, NULL, 0);
    for (uint32_t p = 0; p < em->stage.n_pieces; p++) {
        idx[1] = em->stage.piece[p];
        lreg v = em_compute(em, em->k->form.staged, idx, ex_const(em->x, 1));
        em_store_at(em, em->stage.buffer, &em->stage.storage, value_type(em->g, em->k->form.staged)->elem, idx, v);
    }
    em_for_end(em, &l, NULL, NULL);
}

/* Row idx[2], which is in the image or not at all. */
static void fill_row(struct em *em, expr_id *idx, const struct stage_rows *r)
{
    struct exprs *x = em->x;
    const struct type *t = value_type(em->g, em->k->form.staged);
    struct em_if iff;
    expr_id inside = em_inside(em, idx[2], t->dims[2]);
    bool always = ex_truth(x, inside) == TRUE_;
    lreg cond = always ? (lreg){0} : em_cond(em, inside);
    if (!always)
        em_if_begin(em, &iff, cond);
    zeros(em, idx, -r->left, 0);
    fill_columns(em, idx, r->columns);
    zeros(em, idx, r->columns, r->width - r->left);
    if (always)
        return;
    em_if_end(em, &iff);
    em_if_begin(em, &iff, em_op1(em, L_NOT, cond));
    zeros(em, idx, -r->left, r->width - r->left);
    em_if_end(em, &iff);
}

struct row_range {
    expr_id first;
    struct stage_rows extent;
    bool by_piece;
};
static void fill_rows(struct em *em, expr_id *idx, const void *arg)
{
    const struct row_range *r = arg;
    struct em_for l;
    const expr_id all = idx[1]; /* where all channels are gone through, a vector at a time */
    if (!r->by_piece) {
        em->stage.piece = &all;
        em->stage.n_pieces = 1;
    }
    expr_id row = em_for_begin(em, &l, ex_const(em->x, 0), ex_const(em->x, r->extent.rows), 1, NULL, 0);
    idx[2] = ex_add(em->x, r->first, row);
    fill_row(em, idx, &r->extent);
    em_for_end(em, &l, NULL, NULL);
}

void em_stage_rows(struct em *em, const struct node *n, const expr_id *point, expr_id row, int64_t rows,
                   const expr_id *channels, uint32_t n_channels)
{
    struct exprs *x = em->x;
    uint32_t c;
    struct row_range r = {.by_piece = n_channels > 0};
    expr_id idx[RANK_MAX] = {point[0]};
    stage_extent(&em->site, n, rows, &r.extent);
    r.first = ex_sub(x, ex_mulc(x, row, node_ints(n, "strides", &c)[0]), node_exprs(n, "lo", &c)[0]);
    int64_t line = r.extent.width * CHANNEL_BLOCK, block = n_channels ? 0 : r.extent.rows * line;
    struct storage *s = &em->stage.storage;
    *s = (struct storage){.rank = 4, .dim = NEW_ARRAY(em->arena, struct dim_layout, 4)};
    s->dim[0].outer = ex_const(x, 0);
    s->dim[1] = (struct dim_layout){CHANNEL_BLOCK, ex_const(x, block), 1};
    s->dim[2].outer = ex_const(x, line);
    s->dim[3].outer = ex_const(x, CHANNEL_BLOCK);
    s->origin = ex_addc(x, ex_mulc(x, r.first, -line), r.extent.left * CHANNEL_BLOCK);
    em->stage.buffer = em_scratch(em, value_type(em->g, em->k->form.staged)->elem,
                                  (n_channels ? 1 : channel_blocks(em)) * r.extent.rows * line);
    if (n_channels) {
        em->stage.piece = channels;
        em->stage.n_pieces = n_channels;
        fill_rows(em, idx, &r);
    } else {
        fill_channels(em, idx, fill_rows, &r);
    }
    em->stage.level = em->top;
    em->stage.rows = true;
}

lreg em_stage_value(struct em *em, const expr_id *idx, expr_id cond)
{
    int floor = em->floor;
    if (em->floor < em->stage.level) /* not above the loops that fill it */
        em->floor = em->stage.level;
    lreg v = em_load_at(em, em->stage.buffer, &em->stage.storage, value_type(em->g, em->k->form.staged)->elem, idx,
                        cond);
    em->floor = floor;
    return v;
}
