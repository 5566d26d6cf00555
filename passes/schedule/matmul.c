/* A contraction by L_MATMUL, whose tiles of 16 rows by 16 columns take a line of 64 bytes of each row at a step: where
 * the operands lie as that reads them, which register tiles it has, and what they cost.
 *
 * The rows of a tile lie equally far apart in the first operand, the elements of a step together; so feature maps have
 * their channels last (layout_transform). Panels of the second operand are those of L_DOT. A tile has one or two sets
 * of rows, which have to be of one size in all of the kernel: a last set that would be shorter begins earlier, and some
 * rows are computed twice. Of a dynamic number of rows, tiles of 32 and 16 are such products, and the rest is summed by
 * L_DOT. The sums go through scratch to the epilogue.
 *
 * A scaled product has one set of rows by one vector after the other, and an L_MATMUL for each block; its sums are
 * loaded from scratch, scaled, and added in registers, in the order that sums by L_DOT have. Packed numbers are
 * unpacked into scratch before, once for all rows.
 */
#include "passes/schedule/tile_cost.h"

enum {
    VECTORS = 2,
    SCALED_VECTORS = 3 /* by 8 rows of the remainder: 24 accumulators, which fit the registers */,
    SETS = 2,
    GROUP_BYTES = 4,
    LEAST_BYTES = 16 /* of a step, else its products are mostly idle */
};

static bool is_fixed(const struct site *site, expr_id e, int64_t *n)
{
    return ex_is_const(site->x, e, n) && *n >= 0 && *n <= INT32_MAX;
}

/* Elements of a step: the longest of whole groups that divides them all. */
static int64_t step_elements(int64_t extent, int64_t size)
{
    int64_t group = GROUP_BYTES / size;
    for (int64_t k = MATMUL_BYTES / size; k * size >= LEAST_BYTES; k -= group)
        if (extent % k == 0)
            return k;
    return 0;
}

/* Are all taps along spatial dim d read where the operand lies, its halo included? */
static bool taps_lie(const struct site *site, const struct node *n, int32_t d)
{
    const struct storage *s = &site->m->fused.storage[n->in[0].i];
    int64_t below, above;
    if (node_ints(n, "xdil", NULL)[d] != 1 || conv_bounded(site->m, n, d) ||
        !conv_reach(site->g, n, d, 1, &below, &above))
        return false;
    return (below <= 0 && above <= 0) || (s->halo && s->halo[2 + d] >= below && s->halo[s->rank + 2 + d] >= above);
}

bool matmul_unpacks(const struct module *m, const struct node *n, const struct tile_schedule *c)
{
    return c->matmul && dot_scaled(n) && m->fused.storage[n->in[1].i].place == PLACE_NONE;
}

static bool add_loop(struct lmatmul *m, int64_t n, int64_t a, int64_t b)
{
    if (n == 1)
        return true;
    if (m->n_loops == MATMUL_LOOPS)
        return false;
    m->loop[m->n_loops].n = n;
    m->loop[m->n_loops].a = a;
    m->loop[m->n_loops++].b = b;
    return true;
}

/* The dims of both operands that are reduced together, outermost first, and how far the first one's indices are apart;
 * their number. */
static uint32_t reduced_pairs(const struct node *n, int32_t rank, int32_t dim[RANK_MAX][2], int64_t *times)
{
    uint32_t count, i = 0;
    if (n->op == OP_DOT) {
        const int64_t *a = node_ints(n, "contract_a", &count), *b = node_ints(n, "contract_b", &count);
        for (; i < count; i++) {
            dim[i][0] = (int32_t)a[i];
            dim[i][1] = (int32_t)b[i];
            times[i] = 1;
        }
        return count;
    }
    const int64_t *dilations = node_ints(n, "dilations", &count);
    for (; (int32_t)i < rank - 2; i++) {
        dim[i][0] = dim[i][1] = 2 + (int32_t)i;
        times[i] = dilations[i];
    }
    dim[i][0] = dim[i][1] = 1;
    times[i] = 1;
    return i + 1;
}

/* Pairs whose indices follow one another in both operands become one: the taps of a row and their channels, if nothing
 * lies between the points of the map. So the few channels of a picture fill a step. */
static uint32_t joined(uint32_t count, int64_t extent[RANK_MAX], int64_t a[RANK_MAX], int64_t b[RANK_MAX])
{
    for (; count > 1 && a[count - 2] == a[count - 1] * extent[count - 1] &&
           b[count - 2] == b[count - 1] * extent[count - 1];
         count--) {
        extent[count - 2] *= extent[count - 1];
        a[count - 2] = a[count - 1];
        b[count - 2] = b[count - 1];
    }
    return count;
}

/* How far the indices of the reduced dims lie apart in the panels: in those of scratch, one dim after the other. */
static bool panels_apart(const struct site *site, const struct node *n, uint32_t count, int32_t dim[RANK_MAX][2],
                         const int64_t extent[RANK_MAX], int64_t b[RANK_MAX])
{
    const struct storage *s = &site->m->fused.storage[n->in[1].i];
    const struct dim_layout *panel = &s->dim[dim[count - 1][1]];
    const int64_t group = GROUP_BYTES / elem_size(value_type(site->g, n->in[1])->elem);
    b[count - 1] = MATMUL_COLUMNS; /* of one element: those of a group lie together */
    if (s->place == PLACE_NONE) {
        for (uint32_t i = count - 1; i > 0; i--)
            b[i - 1] = b[i] * extent[i];
        return extent[count - 1] % group == 0;
    }
    for (uint32_t i = 0; i + 1 < count; i++)
        if (s->dim[dim[i][1]].block || !is_fixed(site, s->dim[dim[i][1]].outer, &b[i]))
            return false;
    return panel->block == group && panel->inner == 1 && ex_is(site->x, panel->outer, group * MATMUL_COLUMNS);
}

static bool loops_of(const struct site *site, const struct node *n, struct matmul_form *f)
{
    const struct storage *sa = &site->m->fused.storage[n->in[0].i];
    const struct type *w = value_type(site->g, n->in[1]);
    struct lmatmul *m = &f->m;
    int32_t dim[RANK_MAX][2];
    int64_t times[RANK_MAX], extents[RANK_MAX], as[RANK_MAX], bs[RANK_MAX], all = 1;
    uint32_t count = reduced_pairs(n, w->rank, dim, times), outside = dot_scaled(n) ? 1 : 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct dim_layout *la = &sa->dim[dim[i][0]];
        if (la->block || !is_fixed(site, w->dims[dim[i][1]], &extents[i]) || extents[i] < 1 ||
            !mul_i64(all, extents[i], &all) || all > INT32_MAX || !is_fixed(site, la->outer, &as[i]) ||
            !mul_i64(as[i], times[i], &as[i]) || as[i] > INT32_MAX)
            return false;
    }
    if (count <= outside || as[count - 1] != 1 || !panels_apart(site, n, count, dim, extents, bs))
        return false;
    int64_t *extent = extents + outside, *a = as + outside, *b = bs + outside;
    f->blocks = outside ? extents[0] : 0;
    count = joined(count - outside, extent, a, b);
    if (!(m->k = step_elements(extent[count - 1], elem_size(w->elem))))
        return false;
    extent[count - 1] /= m->k;
    a[count - 1] = m->k;
    b[count - 1] = m->k * MATMUL_COLUMNS;
    for (uint32_t i = 0; i < count; i++)
        if (!add_loop(m, extent[i], a[i], b[i]))
            return false;
    if (!m->n_loops)
        m->loop[m->n_loops++].n = 1;
    return true;
}

/* Elements of the first operand between results along dim d. */
static bool apart_along(const struct site *site, const struct node *n, int32_t d, int64_t *apart)
{
    const struct storage *s = &site->m->fused.storage[n->in[0].i];
    uint32_t count;
    int32_t of = d;
    if (n->op == OP_DOT) {
        int32_t free_dim[RANK_MAX], n_free = dot_free(site->g, n, 0, free_dim);
        node_ints(n, "batch_a", &count);
        if (d < (int32_t)count || d >= (int32_t)count + n_free)
            return false;
        of = free_dim[d - (int32_t)count];
    }
    int64_t stride = n->op == OP_CONV && d >= 2 ? node_ints(n, "strides", &count)[d - 2] : 1; /* images: no stride */
    return !s->dim[of].block && is_fixed(site, s->dim[of].outer, apart) && mul_i64(*apart, stride, apart) &&
           *apart <= INT32_MAX;
}

static bool serves_kernel(const struct site *site, const struct node *n, const struct tile_schedule *c)
{
    const struct kernel *k = site->k;
    const struct storage *storage = site->m->fused.storage;
    if (!site->mach->tiles || k->kind != KERNEL_CONTRACT || k->outs.n != 1 || k->form.staged.i || k->form.product.i ||
        dot_kind_of(site->m, n) == DOT_KINDS || conv_by_taps(site->m, n) || conv_pixel_lanes(site->m, n) ||
        c->vec < 0 || c->a < 0 || c->chunk || c->lanes != MATMUL_COLUMNS)
        return false;
    for (uint32_t i = 0; i < k->locals.n; i++)
        if (k->locals.data[i].value.i == n->in[0].i)
            return false;
    return storage[n->in[0].i].place != PLACE_NONE &&
           (storage[n->in[1].i].place == PLACE_WEIGHTS || dot_scaled(n)); /* the latter: if unpacked (unpacks) */
}

bool matmul_open(const struct site *site, const struct tile_schedule *c)
{
    const struct node *n = graph_node(site->g, site->k->anchor);
    const struct type *t = value_type(site->g, n->out[0]);
    return n->op == OP_DOT && c->a >= 0 && (c->b < 0 || c->flat) &&
           !ex_is_const(site->x, tile_extent(site->x, t, c, c->a), &(int64_t){0});
}

int64_t matmul_rows(const struct site *site, const struct tile_schedule *c)
{
    const struct type *t = value_type(site->g, graph_node(site->g, site->k->anchor)->out[0]);
    return anchor_extent(site, t, c->a).n * (c->flat ? anchor_extent(site, t, c->b).n : 1);
}

/* The points along a, both dims' where they are numbered through; a guess of a dynamic number. */
static bool points_of(const struct site *site, const struct type *t, const struct tile_schedule *c, int64_t *n)
{
    if (!matmul_open(site, c))
        return ex_is_const(site->x, tile_extent(site->x, t, c, c->a), n) && *n > 0;
    *n = matmul_rows(site, c);
    return *n >= SETS * MATMUL_COLUMNS;
}

bool matmul_form(const struct site *site, const struct tile_schedule *c, struct matmul_form *f)
{
    const struct node *n = graph_node(site->g, site->k->anchor);
    const struct type *t = value_type(site->g, n->out[0]);
    int64_t extent, columns, width;
    bool even = c->flat && n->op == OP_DOT; /* rows numbered through lie equally far apart (tile_facts.c) */
    *f = (struct matmul_form){0};
    if (!serves_kernel(site, n, c) || !points_of(site, t, c, &extent) ||
        !ex_is_const(site->x, t->dims[c->vec], &width) || !loops_of(site, n, f) ||
        !apart_along(site, n, c->a, &f->m.stride) || (c->b >= 0 && !even && !apart_along(site, n, c->b, &f->of_row)))
        return false;
    for (int32_t d = 0; n->op == OP_CONV && d < t->rank - 2; d++)
        if (!taps_lie(site, n, d))
            return false;
    if (c->flat && !even && (!ex_is_const(site->x, t->dims[c->a], &columns) || f->of_row != columns * f->m.stride))
        return false;
    int32_t lanes = n->op == OP_CONV ? 0 : -1, free_b[RANK_MAX];
    if (n->op == OP_DOT) {
        int32_t n_free = dot_free(site->g, n, 1, free_b);
        lanes = n_free ? free_b[n_free - 1] : -1;
    }
    const struct storage *sb = &site->m->fused.storage[n->in[1].i];
    if (f->blocks && width % MATMUL_COLUMNS) /* a loop goes over whole vectors */
        return false;
    if (sb->place == PLACE_NONE)
        return lanes >= 0;
    return lanes >= 0 && sb->dim[lanes].block == MATMUL_COLUMNS && is_fixed(site, sb->dim[lanes].outer, &f->m.apart) &&
           f->m.apart > 0;
}

/* The sizes of the tiles along a, the larger one first; the same twice if there is one. */
static bool sizes_of(const struct site *site, const struct type *t, const struct tile_schedule *c, int64_t size[2])
{
    int64_t n;
    if (!points_of(site, t, c, &n))
        return false;
    size[0] = size[1] = c->ta;
    if (matmul_open(site, c))
        return c->ta % MATMUL_COLUMNS == 0;
    struct even e = even_split(n, c->ta);
    size[0] = e.small + (e.large > 0);
    size[1] = e.small;
    return e.small > 0;
}

static uint32_t vectors_most(const struct site *site)
{
    return dot_scaled(graph_node(site->g, site->k->anchor)) ? SCALED_VECTORS : VECTORS;
}

/* Weights that the kernel computes are unpacked to scratch once for all tiles. Builds expressions: ask last. */
static bool unpacks(const struct site *site, const struct tile_schedule *c)
{
    const struct node *n = graph_node(site->g, site->k->anchor);
    return site->m->fused.storage[n->in[1].i].place == PLACE_WEIGHTS || decode_bytes(site, c) > 0;
}

bool matmul_serves(const struct site *site, const struct tile_schedule *c)
{
    struct matmul_form f;
    const struct type *t = value_type(site->g, graph_node(site->g, site->k->anchor)->out[0]);
    int64_t size[2];
    if (c->nr > vectors_most(site) || c->tb > SETS || c->ta > SETS * MATMUL_COLUMNS || !matmul_form(site, c, &f) ||
        !sizes_of(site, t, c, size))
        return false;
    if (f.blocks && (c->tb > 1 || c->ta > MATMUL_COLUMNS || size[0] != size[1]))
        return false; /* their sums are in registers; a tile has one shape, as setting it takes longer than a block */
    return (size[0] == size[1] || size[1] >= MATMUL_COLUMNS) && (c->tb == 1 || size[0] <= MATMUL_COLUMNS) &&
           unpacks(site, c);
}

struct lmatmul matmul_tile(const struct matmul_form *f, int64_t columns, int64_t rows, uint32_t vectors)
{
    struct lmatmul m = f->m;
    bool two = rows > 1 || columns > MATMUL_COLUMNS;
    m.rows = columns > MATMUL_COLUMNS ? MATMUL_COLUMNS : columns;
    m.place = !two ? 0 : rows > 1 ? columns : columns - MATMUL_COLUMNS;
    m.second = !two ? 0 : rows > 1 ? f->of_row : m.place * m.stride;
    m.apart = vectors > 1 ? m.apart : 0;
    return m;
}

/* Of one tile, all steps: cycles * STEP. */
static int64_t one_tile(const struct matmul_form *f, int64_t columns, int64_t rows, int64_t vectors)
{
    const struct lmatmul m = matmul_tile(f, columns, rows, (uint32_t)vectors);
    int64_t sets = m.place ? SETS : 1, trips = 1, each = m.rows < RATE_TILE_LEAST ? RATE_TILE_LEAST : m.rows;
    for (uint32_t l = 0; l < m.n_loops; l++)
        trips *= m.loop[l].n;
    int64_t products = sets * vectors * each, loads = (sets + vectors) * RATE_TILE_LOAD;
    if (f->blocks)
        return f->blocks * (trips * (products + RATE_TILE_LOAD) + vectors * m.rows * RATE_TILE_SCALED) * STEP;
    return (trips * ((products > loads ? products : loads) + RATE_TILE_STEP) + sets * vectors * RATE_TILE_SUMS) * STEP;
}

int64_t matmul_cost(const struct site *site, const struct tile_schedule *c, int64_t vectors)
{
    const struct type *t = value_type(site->g, graph_node(site->g, site->k->anchor)->out[0]);
    struct matmul_form f;
    int64_t n, rows = 1, cost = 0;
    if (!matmul_form(site, c, &f) || !points_of(site, t, c, &n))
        return INT64_MAX;
    if (c->b >= 0 && !c->flat && !ex_is_const(site->x, t->dims[c->b], &rows))
        return INT64_MAX;
    struct even e = even_split(n, c->ta);
    for (int part = 0; part < 4; part++) { /* whole tiles of vectors and rows, and what is left of both */
        int64_t nr = part & 1 ? vectors % c->nr : c->nr, tb = part & 2 ? 1 : c->tb,
                times = (part & 1 ? nr > 0 : vectors / c->nr) * (part & 2 ? rows % c->tb : rows / c->tb);
        if (times)
            cost += times *
                    (e.large * one_tile(&f, e.small + 1, tb, nr) + (e.tiles - e.large) * one_tile(&f, e.small, tb, nr));
    }
    return cost;
}

void matmul_choose(const struct site *site, int64_t vectors, int64_t cost, struct tile_schedule *c)
{
    const struct type *t = value_type(site->g, graph_node(site->g, site->k->anchor)->out[0]);
    struct matmul_form f;
    int64_t n, rows = 1, least = cost;
    if (!matmul_form(site, c, &f) || !points_of(site, t, c, &n) ||
        (c->b >= 0 && !c->flat && !ex_is_const(site->x, t->dims[c->b], &rows)))
        return;
    struct tile_schedule best = *c;
    for (uint32_t nr = 1; nr <= vectors_most(site) && nr <= vectors; nr++)
        for (uint32_t tb = 1; tb <= (rows > 1 && !c->flat ? SETS : 1); tb++)
            for (uint32_t ta = 1; ta <= SETS * MATMUL_COLUMNS && ta <= n; ta++) {
                struct tile_schedule with = *c;
                with.matmul = true;
                with.nr = nr;
                with.tb = tb;
                with.ta = ta;
                int64_t of = matmul_serves(site, &with) ? matmul_cost(site, &with, vectors) : INT64_MAX;
                if (of < least) {
                    least = of;
                    best = with;
                }
            }
    *c = best;
}
