/* Which dims a register tile goes along and how many points it holds: the least cost of tile_cost.c. */
#include "passes/schedule/tile_cost.h"

enum { MAX_TB = 4 };

/* What too few parallel indices count, where the whole takes long enough for threads to share it. Rows that do not
 * divide evenly into tiles are one index. */
static int64_t share_cost(const struct site *site, const struct type *t, int64_t cost, uint64_t steps, int64_t vectors,
                          const struct tile_schedule *c)
{
    int64_t indices = (vectors + c->nr - 1) / c->nr, extent, cycles;
    if (c->flat || c->b < 0 || !mul_i64(cost, steps > INT32_MAX ? INT32_MAX : (int64_t)steps, &cycles) ||
        cycles / STEP / RATE_CYCLES_PER_NS < RATE_SHARED_NS)
        return 0;
    for (int32_t d = 0; d < t->rank && indices < RATE_SHARED_INDICES; d++)
        if (d != c->vec && d != c->a && d != c->b && ex_is_const(site->x, t->dims[d], &extent) &&
            !mul_i64(indices, extent, &indices))
            return 0;
    if (tile_rows_apart(site->x, t, c) && !mul_i64(indices, tile_count(site->x, t, c), &indices))
        return 0;
    return indices < RATE_SHARED_INDICES ? cost / RATE_SHARED_PART : 0;
}

/* How much the code of a sum of products counts. Those of bytes are written out for a block of channels, and bytes are
 * rounded after each. Without an instruction for dot products a smaller tile costs more than the model knows. */
static int64_t code_weight(const struct site *site, const struct node *n)
{
    enum elem e = value_type(site->g, site->k->domain)->elem;
    bool bytes = elem_size(e) == 1 && elem_class(e) != 'F';
    if (!bytes || dot_group(site->m, n) <= 1)
        return 1;
    return anchor_emulated(site, n) ? RATE_CODE_OF_EMULATED : RATE_CODE_OF_BYTES;
}

/* Does what follows the anchor hold a function of some hundred statements for each vector of points? */
static bool has_long_map(const struct site *site)
{
    for (uint32_t i = 0; i < site->k->nodes.n; i++)
        if (lf_math_is_long(graph_node(site->g, site->k->nodes.data[i])->op))
            return true;
    return false;
}

/* A single row's product waits for its panels, and two lines of them at once arrive as fast as eight: blocks as narrow
 * as give each thread one that is long enough, of whole lines. */
static uint32_t narrow_vectors(const struct site *site, const struct type *t, const struct tile_schedule *c,
                               int64_t vectors, const struct anchor_step *step)
{
    int64_t points = 1, extent, line = site->mach->vector_bytes < 64 ? 64 / site->mach->vector_bytes : 1;
    for (int32_t d = 0; d < t->rank; d++)
        if (d != c->vec && (!ex_is_const(site->x, t->dims[d], &extent) || !mul_i64(points, extent, &points)))
            return c->nr;
    int64_t steps = step->n > INT32_MAX ? INT32_MAX : (int64_t)step->n,
            cost = tile_cost((struct anchor_extent){1, .known = true}, (struct anchor_extent){1, .known = true},
                             vectors, 1, 1, c->nr, step),
            cycles;
    if (points != 1 || c->vec < 0 || !mul_i64(cost, steps, &cycles))
        return c->nr;
    int64_t indices = cycles / STEP / RATE_CYCLES_PER_NS / RATE_SHARED_LEAST_NS;
    indices = indices > RATE_SHARED_MOST ? RATE_SHARED_MOST : indices;
    if (indices < 2)
        return c->nr;
    int64_t nr = vectors / indices / line * line, least = RATE_ROW_LINES * line;
    nr = nr < least ? least : nr;
    return nr < c->nr ? (uint32_t)nr : c->nr;
}

/* Where channels are points along a, those of a group share what they read if a tile has whole groups, or a group whole
 * tiles: else each index of the loop over tiles has groups of its own. */
static bool parts_groups(int64_t channels, int64_t per_group, int64_t ta)
{
    return per_group && (channels % ta != 0 || (ta % per_group != 0 && per_group % ta != 0));
}

/* Points along a of a product with one vector of columns: each step reads a line of each row, and those of rows that
 * lie whole pages apart share a set of L1. With more than its ways none is there at the next step. */
static int64_t rows_most(const struct site *site, const struct node *n, int64_t most)
{
    enum { PAGE = 4096, WAYS = 8 };
    const struct storage *s = &site->m->fused.storage[n->in[0].i];
    int32_t free_dim[RANK_MAX], count = n->op == OP_DOT ? dot_free(site->g, n, 0, free_dim) : 0;
    int64_t apart;
    return count > 0 && s->place != PLACE_NONE && most > WAYS &&
                   ex_is_const(site->x, s->dim[free_dim[count - 1]].outer, &apart) && apart > 0 &&
                   apart * (int64_t)elem_size(value_type(site->g, n->in[0])->elem) % PAGE == 0
               ? WAYS
               : most;
}

void tile_choose(const struct site *site, struct schedule *out)
{
    const struct node *n = graph_node(site->g, site->k->anchor);
    const struct type *t = value_type(site->g, n->out[0]);
    struct tile_schedule c = {
        .nr = 1, .ta = 1, .tb = 1, .interleave = RATE_INTERLEAVE, .interleave_least = RATE_INTERLEAVE_LEAST};
    int64_t max_ta = MAX_TA;
    tile_form(site, n, &c, &max_ta);
    bool rows = anchor_is_window(site, n) && c.a >= 0 && c.a < c.vec;
    int64_t max_apart = rows || has_long_map(site) ? 4 : 8; /* where points share nothing */
    struct anchor_extent v = anchor_extent(site, t, c.vec), a = anchor_extent(site, t, c.a),
                         b = anchor_extent(site, t, c.b);
    int64_t vectors = (v.n + c.lanes - 1) / c.lanes;
    if (c.flat) {
        a = (struct anchor_extent){a.n * b.n, .known = a.known && b.known};
        b = (struct anchor_extent){1, .known = true};
    }
    bool contraction = anchor_contracts(site, n);
    const struct anchor_step step = anchor_step(site, n, &c);
    int64_t regs = site->mach->registers, least = INT64_MAX, weight = code_weight(site, n);
    bool segments = n->op == OP_SEGMENTS; /* a step's place and factor serve all vectors */
    int64_t max_nr = c.vec < 0 || (!v.known && !segments) ? 1
                     : !v.known                           ? 4
                     : contraction || segments            ? TILE_VECTORS_MOST
                     : n->op == OP_REDUCE                 ? max_apart
                                                          : 1;
    /* What is left of a line of dynamic length are a few points, whose sums a second vector hides the latency of. */
    bool lines = anchor_is_window(site, n) && step.points && c.a >= 0 && !a.known && v.known;
    if (lines)
        max_nr = 2;
    int64_t first_nr = 1, whole = CHANNEL_BLOCK / c.lanes;
    if (site->k->form.product.i && c.vec >= 0 && v.known) /* points share broadcasts within a block of channels */
        first_nr = max_nr = vectors < 1 ? 1 : vectors < whole ? vectors : whole;
    if (vectors <= 1)
        max_ta = rows_most(site, n, max_ta);
    for (int64_t nr = first_nr; nr <= max_nr && nr <= (vectors > 0 ? vectors : 1); nr++)
        for (int64_t tb = 1; tb <= (c.b >= 0 && b.known ? MAX_TB : 1) && tb <= b.n; tb++)
            for (int64_t ta = 1; ta <= (c.a >= 0 && c.vec >= 0 ? max_ta : 1) && (ta <= a.n || ta == 1); ta++) {
                struct tile_schedule with = c;
                with.nr = (uint32_t)nr;
                with.ta = (uint32_t)ta;
                with.tb = (uint32_t)tb;
                if (!tile_fits_row(site, n, &step.row, &with) || (!contraction && ta * (lines ? nr : 1) > max_apart))
                    continue;
                struct anchor_step of = step;
                of.shared = step.shared && !parts_groups(a.n, step.per_group, ta);
                int64_t cost = tile_cost(a, b, vectors > 0 ? vectors : 1, ta, tb, nr, &of);
                int64_t both = cost + tile_code_cost(cost, a, b, v.n, &with, regs, weight, step.rest) +
                               share_cost(site, t, cost, step.n, vectors, &with);
                if (both < least) {
                    least = both;
                    c = with;
                }
            }
    c.chunk = out->tile.chunk;
    int64_t all;
    if (contraction && v.known && mul_i64(tile_cost(a, b, vectors, c.ta, c.tb, c.nr, &step), (int64_t)step.n, &all))
        matmul_choose(site, vectors, all, &c);
    if (contraction && v.known && !c.matmul)
        c.nr = narrow_vectors(site, t, &c, vectors, &step);
    if (out->tile.nr) { /* given */
        c.tb = out->tile.tb;
        c.ta = out->tile.ta;
        c.nr = out->tile.nr;
        c.matmul = matmul_serves(site, &c) && c.matmul;
    }
    out->tile = c;
}
