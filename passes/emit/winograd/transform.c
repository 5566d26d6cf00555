/* Stages of the Winograd template that transform: tiles of the operand, weights, tiles of the result
 * (emit/winograd/winograd.h).
 *
 * The first dim of a transform of tiles is taken in groups of results, so that what waits for the second dim stays in
 * registers. */
#include "passes/emit/winograd/winograd.h"

/* ---- two dims ---------------------------------------------------------------------------------------------------- */

typedef lreg load_fn(struct wino *, uint32_t row, uint32_t column);
typedef void store_fn(struct wino *, uint32_t row, uint32_t column, lreg);

/* Value `number` of a straight-line program whose operands are already in val, or come from load. */
static lreg side_value(struct wino *w, const struct winograd_side *s, uint32_t number, lreg *val, load_fn *load,
                       uint32_t column)
{
    struct em *em = w->em;
    if (val[number].i)
        return val[number];
    if (number < s->n_in)
        return val[number] = load(w, number, column);
    const struct winograd_step *step = &s->steps[number - s->n_in];
    lreg a = side_value(w, s, step->a, val, load, column), b = side_value(w, s, step->b, val, load, column);
    if (step->c == 1 || step->c == -1)
        return val[number] = em_op2(em, step->c == 1 ? L_ADD : L_SUB, a, b);
    lreg in[3] = {b, em_const(em, ELEM_F32, w->lanes, step->c, 0), a};
    return val[number] = em_op(em, L_FMA, (struct ltype){ELEM_F32, w->lanes}, in, 3);
}

/* Both dims of a transform; `group` results of the first at a time. */
static void transform(struct wino *w, const struct winograd_side *s, uint32_t group, load_fn *load, store_fn *store)
{
    for (uint32_t first = 0; first < s->n_out; first += group) {
        lreg mid[WINOGRAD_ALPHA_MAX][WINOGRAD_ALPHA_MAX];
        uint32_t n = s->n_out - first < group ? s->n_out - first : group;
        for (uint32_t j = 0; j < s->n_in; j++) {
            lreg val[WINOGRAD_ALPHA_MAX + WINOGRAD_STEPS_MAX] = {{0}};
            for (uint32_t i = 0; i < n; i++)
                mid[i][j] = side_value(w, s, s->out[first + i], val, load, j);
        }
        for (uint32_t i = 0; i < n; i++) {
            lreg val[WINOGRAD_ALPHA_MAX + WINOGRAD_STEPS_MAX] = {{0}};
            memcpy(val, mid[i], s->n_in * sizeof *val);
            for (uint32_t j = 0; j < s->n_out; j++)
                store(w, first + i, j, side_value(w, s, s->out[j], val, load, j));
        }
    }
}

/* ---- tiles of the operand ---------------------------------------------------------------------------------------- */

/* The largest index below size. */
static int64_t last_of(const struct em *em, expr_id size)
{
    int64_t hi = ex_hi(em->x, size);
    return hi == INT64_MAX ? hi : hi > 0 ? hi - 1 : 0;
}

static expr_id split_pin(struct em *em, expr_id e, expr_id size)
{
    return ex_is_const(em->x, e, NULL) ? e : em_pin(em, e, 0, last_of(em, size));
}

/* Which image, row and column of tiles number `number` of the chunk is at. */
static void tile_place(struct wino *w, expr_id number, bool clamp, expr_id at[3])
{
    struct em *em = w->em;
    struct exprs *x = em->x;
    const struct type *y = value_type(em->g, w->n->out[0]);
    expr_id one = ex_const(x, 1);
    expr_id dims[3] = {ex_max(x, y->dims[0], one), ex_max(x, w->shape.th, one), ex_max(x, w->shape.tw, one)};
    number = ex_add(x, w->first, number);
    if (clamp)
        number = ex_min(x, number, ex_addc(x, w->shape.tiles, -1));
    number = split_pin(em, number, w->shape.tiles);
    point_split(x, number, dims, 3, at);
}

void wino_places(struct wino *w, expr_id blocks)
{
    struct em *em = w->em;
    struct exprs *x = em->x;
    struct em_for l;
    expr_id at[3];
    if (!w->places.i)
        return;
    expr_id tile = em_for_begin(em, &l, ex_const(x, 0), ex_mulc(x, blocks, w->s->mr), NULL, 0);
    tile_place(w, tile, true, at);
    for (int32_t d = 0; d < 3; d++)
        em_scratch_store(em, w->places, ex_addc(x, ex_mulc(x, tile, 3), d), em_index(em, at[d]));
    em_for_end(em, &l, NULL, NULL);
}

/* The same of a tile of a block of the chunk, for what comes next. */
static void tile_at(struct wino *w, expr_id block, expr_id tile, bool clamp)
{
    struct em *em = w->em;
    struct exprs *x = em->x;
    const expr_id size[3] = {value_type(em->g, w->n->out[0])->dims[0], w->shape.th, w->shape.tw};
    expr_id at[3], number = ex_add(x, ex_mulc(x, block, w->s->mr), tile);
    if (!w->places.i)
        tile_place(w, number, clamp, at);
    for (int32_t d = 0; d < 3; d++)
        at[d] = w->places.i ? em_bind(em, em_scratch_load(em, w->places, ex_addc(x, ex_mulc(x, number, 3), d), 1),
                                      last_of(em, size[d]))
                            : split_pin(em, at[d], size[d]);
    w->block = block;
    w->tile = tile;
    w->image = at[0];
    w->y0 = conv_tile_at(x, at[1], w->shape.dilation[0], w->f->m);
    w->x0 = conv_tile_at(x, at[2], w->shape.dilation[1], w->f->m);
}

/* Lanes of vector number `vec` of `channels`. */
static void lanes_at(struct wino *w, expr_id vec, int64_t channels)
{
    struct em *em = w->em;
    expr_id base = ex_mulc(em->x, vec, w->lanes);
    lreg mask = {0};
    if (channels % w->lanes)
        mask = em_tail_mask(em, ex_sub(em->x, ex_const(em->x, channels), base), w->lanes);
    w->lane = ex_add(em->x, base, em_lane(em, w->lanes, mask));
}

/* Where element (row, column) of the tile lies in the image, or in the padding around it. */
static void input_at(struct wino *w, uint32_t row, uint32_t column, expr_id at[4])
{
    struct exprs *x = w->em->x;
    const expr_id p[4] = {w->image, {0}, w->y0, w->x0}, k[3] = {ex_const(x, row), ex_const(x, column), w->lane};
    contraction_point(w->em->g, w->n, 0, p, k, at);
}

static lreg input_load(struct wino *w, uint32_t row, uint32_t column)
{
    struct em *em = w->em;
    expr_id at[4], cond = ex_const(em->x, 1);
    input_at(w, row, column, at);
    for (int32_t d = 0; d < 2; d++)
        if (!em_halo_covers(em, w->n, d, w->f->m))
            cond = ex_and(em->x, cond, em_inside(em, at[2 + d], value_type(em->g, w->n->in[0])->dims[2 + d]));
    return em_load(em, w->n->in[0], at, cond);
}

/* ---- an operand that is computed here (kernel.form.staged) ---- */

/* All of the tile lies in the image. */
static lreg mapped_load(struct wino *w, uint32_t row, uint32_t column)
{
    expr_id at[4];
    input_at(w, row, column, at);
    return em_splat(w->em, em_value(w->em, w->n->in[0], at, ex_const(w->em->x, 1)), w->lanes);
}

/* Elements beside the image are 0, which is not what the map makes of 0: it is computed of the nearest element, and not
 * used. */
static lreg mapped_load_border(struct wino *w, uint32_t row, uint32_t column)
{
    struct em *em = w->em;
    struct exprs *x = em->x;
    expr_id at[4], cond = ex_const(x, 1), zero = ex_const(x, 0);
    input_at(w, row, column, at);
    for (int32_t d = 2; d < 4; d++) {
        expr_id size = value_type(em->g, w->n->in[0])->dims[d];
        cond = ex_and(x, cond, em_inside(em, at[d], size));
        at[d] = ex_max(x, zero, ex_min(x, at[d], ex_addc(x, size, -1)));
    }
    lreg v = em_value(em, w->n->in[0], at, ex_const(x, 1));
    return em_select(em, em_cond(em, cond), em_splat(em, v, w->lanes), em_const(em, ELEM_F32, 1, 0, 0));
}

/* Is all of the tile at hand in the image? none: of no tile it is. */
static expr_id is_inner(struct wino *w, bool *none)
{
    struct em *em = w->em;
    struct exprs *x = em->x;
    uint32_t c;
    const expr_id *lo = node_exprs(w->n, "lo", &c), from[2] = {w->y0, w->x0};
    expr_id inner = ex_const(x, 1);
    int64_t low, n;
    *none = false;
    for (int32_t d = 0; d < 2; d++) {
        expr_id size = value_type(em->g, w->n->in[0])->dims[2 + d], first = ex_sub(x, from[d], lo[d]);
        int64_t apart = w->shape.dilation[d], m = w->f->m * apart, reach = (w->f->alpha - 1) * apart + 1;
        inner = ex_and(x, inner, ex_and(x, ex_le(x, ex_const(x, 0), first), ex_le(x, ex_addc(x, first, reach), size)));
        if (!ex_is_const(x, lo[d], &low) || !ex_is_const(x, size, &n))
            continue;
        int64_t first_inner = low < 0 ? 0 : low % m < apart ? low : low - low % m + m; /* below it there is padding */
        *none |= first_inner - low + reach > n;
    }
    return inner;
}

static void input_store(struct wino *w, uint32_t row, uint32_t column, lreg v)
{
    expr_id point = ex_const(w->em->x, row * w->f->alpha + column);
    em_scratch_store(w->em, w->v, wino_v_at(w, w->part, point, w->block, w->vec, w->tile), v);
}

static void input_tile(struct wino *w, load_fn *load)
{
    transform(w, &w->f->input, w->s->input_rows, load, input_store);
}

/* Tiles within the image ask for nothing, the others for each row and column. */
static void input_mapped(struct wino *w)
{
    struct em *em = w->em;
    struct em_if iff;
    bool none;
    expr_id inner = is_inner(w, &none);
    if (ex_truth(em->x, inner) == TRUE_) {
        input_tile(w, mapped_load);
        return;
    }
    if (none) {
        input_tile(w, mapped_load_border);
        return;
    }
    lreg cond = em_cond(em, inner);
    em_if_begin(em, &iff, cond);
    input_tile(w, mapped_load);
    em_if_end(em, &iff);
    em_if_begin(em, &iff, em_op1(em, L_NOT, cond));
    input_tile(w, mapped_load_border);
    em_if_end(em, &iff);
}

void wino_input(struct wino *w, expr_id blocks)
{
    struct em *em = w->em;
    struct exprs *x = em->x;
    struct em_for b, s, t, v;
    expr_id zero = ex_const(x, 0);
    expr_id block = em_for_begin(em, &b, zero, blocks, NULL, 0);
    w->part = em_for_begin(em, &s, zero, ex_const(x, w->icv / w->s->slice), NULL, 0);
    w->vec = em_for_begin(em, &v, zero, ex_const(x, w->s->slice), NULL, 0);
    lanes_at(w, ex_add(x, ex_mulc(x, w->part, w->s->slice), w->vec), w->ic);
    tile_at(w, block, em_for_begin(em, &t, zero, ex_const(x, w->s->mr), NULL, 0), true);
    if (em->k->form.staged.i)
        input_mapped(w);
    else
        input_tile(w, input_load);
    em_for_end(em, &t, NULL, NULL);
    em_for_end(em, &v, NULL, NULL);
    em_for_end(em, &s, NULL, NULL);
    em_for_end(em, &b, NULL, NULL);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* c[0] v[0] + c[1] v[1] + c[2] v[2] without the terms of 0. */
static lreg scaled_sum(struct wino *w, const double *c, const lreg *v)
{
    struct ltype t = {ELEM_F32, w->lanes};
    lreg sum = {0};
    for (int i = 0; i < 3; i++) {
        if (c[i] == 0)
            continue;
        lreg in[3] = {v[i], em_const(w->em, t.elem, t.lanes, (float)c[i], 0), sum};
        sum = sum.i ? em_op(w->em, L_FMA, t, in, 3) : c[i] == 1 ? v[i] : em_op(w->em, L_MUL, t, in, 2);
    }
    return sum;
}

/* U = G g G' of taps g[column][row], all its points, to `at` of U. */
static void weights_store(struct wino *w, lreg g[3][3], expr_id at)
{
    int64_t point = 0, stride = winograd_u_stride(w->s, w->lanes);
    for (uint32_t a = 0; a < w->f->alpha; a++) {
        lreg row[3];
        for (int c = 0; c < 3; c++)
            row[c] = scaled_sum(w, w->f->g[a], g[c]);
        for (uint32_t b = 0; b < w->f->alpha; b++) {
            lreg u = scaled_sum(w, w->f->g[b], row);
            em_scratch_store(w->em, w->u, ex_addc(w->em->x, at, point++ * stride), u);
        }
    }
}

static lreg widened(struct em *em, lreg v)
{
    struct ltype t = lf_type(em->f, v);
    return t.elem == ELEM_F32 ? v : em_op(em, L_CONVERT, (struct ltype){ELEM_F32, t.lanes}, &v, 1);
}

static void taps_load(struct wino *w, expr_id from, lreg g[3][3])
{
    for (int64_t r = 0; r < 3; r++)
        for (int64_t k = 0; k < 3; k++)
            g[k][r] = widened(w->em,
                              em_scratch_load(w->em, w->weights,
                                              ex_addc(w->em->x, from, r * w->stride[1] + k * w->stride[2]), w->lanes));
}

/* Of weights that are computed where they are read; one number for all lanes where they are alike. */
static void taps_compute(struct wino *w, expr_id vector, expr_id ic, lreg g[3][3])
{
    struct exprs *x = w->em->x;
    lanes_at(w, vector, w->shape.oc);
    for (int64_t r = 0; r < 3; r++)
        for (int64_t k = 0; k < 3; k++) {
            expr_id at[4] = {w->lane, ic, ex_const(x, r), ex_const(x, k)};
            lreg v = widened(w->em, em_value(w->em, w->n->in[1], at, ex_const(x, 1)));
            g[k][r] = em_splat(w->em, v, w->lanes);
        }
}

void wino_weights(struct wino *w, const struct product *p)
{
    struct em *em = w->em;
    struct exprs *x = em->x;
    struct em_for c, v;
    lreg g[3][3];
    int64_t channels = w->s->slice * w->lanes < w->ic ? w->s->slice * w->lanes : w->ic;
    expr_id zero = ex_const(x, 0), j = em_for_begin(em, &v, zero, p->n, NULL, 0);
    expr_id channel = em_for_begin(em, &c, zero, ex_const(x, channels), NULL, 0);
    expr_id ic = ex_add(x, ex_mulc(x, p->slice, channels), channel);
    expr_id vector = ex_add(x, ex_add(x, w->group0, p->vector), j);
    if (w->weights.i)
        taps_load(w, wino_plain_at(w, vector, ic), g);
    else
        taps_compute(w, vector, ic, g);
    for (int64_t tap = 0; tap < w->s->early; tap++) {
        expr_id next = ex_add(x, p->next,
                              ex_mulc(x, ex_div(x, ex_mulc(x, j, w->lanes), ex_const(x, CHANNEL_BLOCK)), w->stride[0]));
        next = ex_add(x, next, ex_mulc(x, channel, w->stride[3]));
        em_prefetch(em, L_PREFETCH2, w->weights,
                    ex_mulc(x, ex_addc(x, next, tap / 3 * w->stride[1] + tap % 3 * w->stride[2]),
                            elem_size(lf_type(em->f, w->weights).elem)));
    }
    weights_store(w, g, ex_add(x, p->u, ex_mulc(x, ex_add(x, ex_mul(x, channel, p->n), j), w->lanes)));
    em_for_end(em, &c, NULL, NULL);
    em_for_end(em, &v, NULL, NULL);
}

/* ---- tiles of the result ----------------------------------------------------------------------------------------- */

static lreg output_load(struct wino *w, uint32_t row, uint32_t column)
{
    expr_id point = ex_const(w->em->x, row * w->f->alpha + column);
    return em_scratch_load(w->em, w->m, wino_m_at(w, w->block, point, w->vec, w->tile), w->lanes);
}

static expr_id result_at(struct wino *w, expr_id row, expr_id column, expr_id at[4])
{
    struct exprs *x = w->em->x;
    const struct type *y = value_type(w->em->g, w->n->out[0]);
    at[0] = w->image;
    at[1] = w->lane;
    at[2] = ex_add(x, w->y0, ex_mulc(x, row, w->shape.dilation[0]));
    at[3] = ex_add(x, w->x0, ex_mulc(x, column, w->shape.dilation[1]));
    return ex_and(x, ex_lt(x, at[2], y->dims[2]), ex_lt(x, at[3], y->dims[3]));
}

static void output_whole(struct wino *w, uint32_t row, uint32_t column, lreg v)
{
    expr_id at[4];
    result_at(w, ex_const(w->em->x, row), ex_const(w->em->x, column), at);
    tile_store(w->em, at, v);
}

static void output_edge(struct wino *w, uint32_t row, uint32_t column, lreg v)
{
    em_scratch_store(w->em, w->edge, ex_const(w->em->x, (int64_t)(row * w->f->m + column) * w->lanes), v);
}

/* Rows or columns of the tile at hand that the image has. */
static expr_id inside(struct wino *w, expr_id from, expr_id size, int64_t dilation)
{
    struct exprs *x = w->em->x;
    expr_id left = ex_ceildiv(x, ex_sub(x, size, from), ex_const(x, dilation));
    return em_pin(w->em, ex_min(x, ex_const(x, w->f->m), left), 1, w->f->m);
}

/* Are all tiles within the image, as its rows and columns are multiples of theirs? */
static bool tiles_divide(struct wino *w)
{
    struct exprs *x = w->em->x;
    const expr_id m = ex_const(x, w->f->m), *dims = value_type(w->em->g, w->n->out[0])->dims + 2;
    return w->shape.dilation[0] == 1 && w->shape.dilation[1] == 1 && ex_is(x, ex_mod(x, dims[0], m), 0) &&
           ex_is(x, ex_mod(x, dims[1], m), 0);
}

/* A tile of an image of dynamic size: most lie within it, and test nothing. */
static void output_tile(struct wino *w)
{
    if (tiles_divide(w)) {
        transform(w, &w->f->output, w->s->output_rows, output_load, output_whole);
        return;
    }
    struct em *em = w->em;
    struct exprs *x = em->x;
    const struct type *y = value_type(em->g, w->n->out[0]);
    struct em_if iff;
    struct em_for r, c;
    expr_id at[4], last = ex_const(x, w->f->m - 1), zero = ex_const(x, 0);
    lreg whole = em_cond(em, result_at(w, last, last, at));
    em_if_begin(em, &iff, whole);
    transform(w, &w->f->output, w->s->output_rows, output_load, output_whole);
    em_if_end(em, &iff);
    em_if_begin(em, &iff, em_op1(em, L_NOT, whole));
    transform(w, &w->f->output, w->s->output_rows, output_load, output_edge);
    expr_id rows = inside(w, w->y0, y->dims[2], w->shape.dilation[0]),
            columns = inside(w, w->x0, y->dims[3], w->shape.dilation[1]);
    expr_id row = em_for_begin(em, &r, zero, rows, NULL, 0), column = em_for_begin(em, &c, zero, columns, NULL, 0);
    expr_id number = ex_add(x, ex_mulc(x, row, w->f->m), column);
    result_at(w, row, column, at);
    tile_store(em, at, em_scratch_load(em, w->edge, ex_mulc(x, number, w->lanes), w->lanes));
    em_for_end(em, &c, NULL, NULL);
    em_for_end(em, &r, NULL, NULL);
    em_if_end(em, &iff);
}

/* Results past the image's edge exist in the last tiles only: rows and columns are tested where it is not known. */
static void output_store(struct wino *w, uint32_t row, uint32_t column, lreg v)
{
    struct em *em = w->em;
    struct exprs *x = em->x;
    const struct type *y = value_type(em->g, w->n->out[0]);
    expr_id at[4] = {w->image, w->lane, ex_addc(x, w->y0, row * w->shape.dilation[0]),
                     ex_addc(x, w->x0, column * w->shape.dilation[1])};
    expr_id in_row = ex_lt(x, at[2], y->dims[2]), in_column = ex_lt(x, at[3], y->dims[3]);
    struct em_if iff;
    if (column == 0 && ex_truth(x, in_row) != TRUE_) {
        em_if_begin(em, &w->row, em_cond(em, in_row));
        w->row_open = true;
    }
    if (em_if_known(em, &iff, in_column))
        tile_store(em, at, v);
    em_if_end(em, &iff);
    if (column + 1 == w->f->m && w->row_open) {
        em_if_end(em, &w->row);
        w->row_open = false;
    }
}

void wino_output(struct wino *w, const struct product *p, expr_id blocks)
{
    struct em *em = w->em;
    struct exprs *x = em->x;
    struct em_for b, t, v;
    expr_id zero = ex_const(x, 0), block = em_for_begin(em, &b, zero, blocks, NULL, 0);
    expr_id tiles = ex_min(x, ex_const(x, w->s->mr), ex_sub(x, w->here, ex_mulc(x, block, w->s->mr)));
    if (!ex_is_const(x, tiles, &(int64_t){0}))
        tiles = em_pin(em, tiles, 1, w->s->mr);
    tile_at(w, block, em_for_begin(em, &t, zero, tiles, NULL, 0), false);
    expr_id vec = em_for_begin(em, &v, zero, p->n, NULL, 0);
    lanes_at(w, ex_add(x, ex_add(x, w->group0, p->vector), vec), w->shape.oc);
    w->vec = vec;
    if (w->edge.i)
        output_tile(w);
    else
        transform(w, &w->f->output, w->s->output_rows, output_load, output_store);
    em_for_end(em, &v, NULL, NULL);
    em_for_end(em, &t, NULL, NULL);
    em_for_end(em, &b, NULL, NULL);
}

void wino_output_ahead(struct wino *w, const struct product *p)
{
    struct em *em = w->em;
    struct exprs *x = em->x;
    struct em_for l;
    const struct storage *s = &em->m->fused.storage[em->k->outs.data[0].i];
    int64_t m = w->f->m, rows = w->s->mr * p->nr * m, share = (rows + w->points - 1) / w->points;
    if (s->rank != 4 || s->dim[1].block != CHANNEL_BLOCK || s->dim[1].inner != 1)
        return; /* lanes do not share a line */
    expr_id first = ex_mulc(x, p->point, share), last = ex_min(x, ex_addc(x, first, share), ex_const(x, rows));
    expr_id item = em_for_begin(em, &l, first, last, NULL, 0), row = ex_mod(x, item, ex_const(x, m)),
            vec = ex_div(x, item, ex_const(x, m));
    tile_at(w, p->block, ex_div(x, vec, ex_const(x, p->nr)), true);
    vec = ex_add(x, ex_add(x, w->group0, p->vector), ex_mod(x, vec, ex_const(x, p->nr)));
    row = ex_mulc(x, row, w->shape.dilation[0]);
    for (int64_t column = 0; column < m; column++) {
        expr_id to[RANK_MAX], at[4] = {w->image, ex_mulc(x, vec, w->lanes), ex_add(x, w->y0, row),
                                       ex_addc(x, w->x0, column * w->shape.dilation[1])};
        tile_domain(em, at, to);
        em_prefetch_out(em, to);
    }
    em_for_end(em, &l, NULL, NULL);
}
