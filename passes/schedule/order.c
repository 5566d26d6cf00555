/* In which order a reduction goes through what it reduces: its dims, and a convolution's input channels as they lie.
 *
 * Where the operand is a view of what is stored, channel k of the operand is channel f(k) of memory: another start (a
 * slice), or every g-th one from several places (a channel shuffle, which is a reshape, a transpose and a reshape).
 * Looping over k = j * g + i with the residue i outside makes f(k) = j + a constant for each i, so the inner loops walk
 * through memory with plain addresses and whole blocks; the weights, which have one row for each k, are read g rows
 * apart. The view itself is never made. What is found here only orders and cuts the loops: any answer is correct.
 */
#include "passes/module/compressed.h"
#include "passes/schedule/schedule.h"

/* A divisor g of n for which e holds (s mod g); 0: none. */
static int64_t modulus_of(const struct site *site, expr_id e, sym_id s, int64_t n, int depth)
{
    int64_t g;
    if (depth > 16 || !ex_uses(site->x, e, s))
        return 0;
    if (ex_kind(site->x, e) == EX_MOD && ex_as_sym(site->x, ex_arg(site->x, e, 0)).i == s.i &&
        ex_is_const(site->x, ex_arg(site->x, e, 1), &g) && g > 1 && n % g == 0)
        return g;
    for (uint32_t i = 0; i < ex_n_args(site->x, e); i++)
        if ((g = modulus_of(site, ex_arg(site->x, e, i), s, n, depth + 1)))
            return g;
    return 0;
}

/* Channel idx[1] of v -> point of the stored value under views; {0} when something else is computed on the way. */
static value_id stored_point(const struct site *site, value_id v, expr_id *idx)
{
    v = behind_views(site->m, v, idx);
    return site->m->fused.storage[v.i].place == PLACE_NONE ? (value_id){0} : v;
}

static sym_id channel_point(const struct site *site, const struct type *t, int64_t n, int64_t g, int64_t i,
                            expr_id *idx)
{
    expr_id s = point_along(site, ex_const(site->x, n / g));
    for (int32_t d = 0; d < t->rank; d++)
        idx[d] = ex_const(site->x, 0);
    idx[1] = ex_addc(site->x, ex_mulc(site->x, s, g), i);
    return ex_as_sym(site->x, s);
}

/* Where in its block channel i of every g starts, when it walks along a blocked dim; -1 otherwise. */
static int64_t phase_of(const struct site *site, value_id x, int64_t n, int64_t g, int64_t i, int64_t *block)
{
    expr_id idx[RANK_MAX] = {{0}}, coef, rest;
    int64_t at;
    sym_id s = channel_point(site, value_type(site->g, x), n, g, i, idx);
    value_id base = stored_point(site, x, idx);
    if (!base.i)
        return -1;
    const struct storage *st = &site->m->fused.storage[base.i];
    for (int32_t d = 0; d < st->rank; d++)
        if (st->dim[d].block && ex_linear(site->x, idx[d], s, &coef, &rest) && ex_is(site->x, coef, 1) &&
            ex_is_const(site->x, rest, &at) && at >= 0) {
            *block = st->dim[d].block;
            return at % st->dim[d].block;
        }
    return -1;
}

/* Of operand x [N, C, ...]; runs of one channel after another when nothing is known. staged: it lies in scratch. */
static struct channel_order channel_order(const struct site *site, value_id x, bool staged)
{
    struct channel_order o = {.residues = 1};
    expr_id idx[RANK_MAX] = {{0}};
    const struct type *t = value_type(site->g, x);
    int64_t n, block = 0;
    if (t->rank < 2 || !ex_is_const(site->x, t->dims[1], &n) || n < 1)
        return o;
    if (staged) {
        o.block = CHANNEL_BLOCK;
        return o;
    }
    sym_id s = channel_point(site, t, n, 1, 0, idx);
    value_id base = stored_point(site, x, idx);
    for (int32_t d = 0; base.i && d < value_type(site->g, base)->rank && o.residues == 1; d++) {
        int64_t g = modulus_of(site, idx[d], s, n, 0);
        if (g > 1 && g <= MAX_RESIDUES)
            o.residues = (uint32_t)g;
    }
    for (uint32_t i = 0; i < o.residues; i++) {
        o.phase[i] = phase_of(site, x, n, o.residues, i, &block);
        if (o.phase[i] < 0)
            return o;
    }
    o.block = block;
    return o;
}

/* ---- reduced dims ------------------------------------------------------------------------------------------------ */

static void rdim_add(struct reduced *r, expr_id extent, int64_t block)
{
    r->dim[r->n++] = (struct rdim){.extent = extent, .order = {.residues = 1, .block = block}};
}

static int64_t channel_block(const struct site *site, value_id v, int32_t d)
{
    const struct storage *s = &site->m->fused.storage[v.i];
    return s->place != PLACE_NONE && s->rank > d ? s->dim[d].block : 0;
}

/* Of a constant that is computed where it is read: so many indices `sym` in a row read the same elements of a leaf. */
enum { TOGETHER_MOST = 8, RUNS_MOST = 8 };
struct leaf_runs {
    const struct graph *g;
    struct exprs *x;
    sym_id sym;
    int64_t run[RUNS_MOST];
    uint32_t n;
};

static void find_runs(struct leaf_runs *r, expr_id e, int depth)
{
    int64_t n;
    if (depth > 16 || !ex_uses(r->x, e, r->sym))
        return;
    if ((ex_kind(r->x, e) == EX_DIV || ex_kind(r->x, e) == EX_MOD) &&
        ex_as_sym(r->x, ex_arg(r->x, e, 0)).i == r->sym.i && ex_is_const(r->x, ex_arg(r->x, e, 1), &n) && n > 1 &&
        r->n < RUNS_MOST)
        r->run[r->n++] = n;
    for (uint32_t i = 0; i < ex_n_args(r->x, e); i++)
        find_runs(r, ex_arg(r->x, e, i), depth + 1);
}

static void leaf_runs(void *user, value_id leaf, const expr_id *point)
{
    struct leaf_runs *r = user;
    for (int32_t d = 0; d < value_type(r->g, leaf)->rank; d++)
        find_runs(r, point[d], 0);
}

/* The shortest run of more than `above` indices; 0: there is none. */
static int64_t shortest_run(const struct leaf_runs *r, int64_t above)
{
    int64_t least = 0;
    for (uint32_t i = 0; i < r->n; i++)
        if (r->run[i] > above && (!least || r->run[i] < least))
            least = r->run[i];
    return least;
}

/* The loop over contracted dim d of the second operand goes by the blocks that have a scale, in trips of the elements
 * that lie in one byte: what is read of the block, and of the byte, then leaves the inner loop. */
static void order_by_leaves(const struct site *site, value_id v, int32_t d, struct rdim *dim)
{
    const struct type *t = value_type(site->g, v);
    struct leaf_runs r = {.g = site->g, .x = site->x};
    expr_id idx[RANK_MAX];
    int64_t n;
    for (int32_t i = 0; i < t->rank; i++) {
        if (!ex_is_const(site->x, t->dims[i], &n) || n < 1)
            return;
        idx[i] = point_along(site, t->dims[i]);
    }
    r.sym = ex_as_sym(site->x, idx[d]);
    struct leaf_walk w = {.m = site->m, .leaf = leaf_runs, .user = &r, .stored = true};
    constant_leaves(&w, v, idx);
    n = shortest_run(&r, 0);
    dim->together = n <= TOGETHER_MOST ? n : 0;
    n = shortest_run(&r, dim->together);
    if (!dim->together || n % dim->together == 0)
        dim->order.block = n;
}

static void dims_of_conv(const struct site *site, const struct node *n, bool staged, struct reduced *r)
{
    const struct type *w = value_type(site->g, n->in[1]);
    struct rdim leaves = {.together = 0};
    for (int32_t d = 2; d < w->rank; d++)
        rdim_add(r, w->dims[d], 0);
    bool groups = node_int(n, "groups", 1) != 1;
    rdim_add(r, w->dims[1], groups ? 0 : staged ? CHANNEL_BLOCK : channel_block(site, n->in[0], 1));
    struct rdim *channels = &r->dim[r->n - 1];
    if (groups || dot_group(site->m, n) != 1)
        return;
    channels->order = channel_order(site, n->in[0], staged);
    if (constant_maps(site->m, n->in[1]) <= 1 || channels->order.residues > 1)
        return;
    order_by_leaves(site, n->in[1], 1, &leaves);
    channels->together = leaves.together;
    if (!channels->order.block)
        channels->order.block = leaves.order.block;
}

/* The dims of a reduction; the last ones that are one in memory become one, so that vectors go on from row to row. */
static void dims_of_reduction(const struct site *site, const struct node *n, struct reduced *r)
{
    uint32_t count;
    const int64_t *axes = node_ints(n, "axes", &count);
    const struct type *t = value_type(site->g, n->in[0]);
    int64_t inner, outer;
    for (uint32_t i = 0; i < count; i++)
        rdim_add(r, t->dims[axes[i]], channel_block(site, n->in[0], (int32_t)axes[i]));
    while (r->n > 1 && !site->m->asked.strict && !site->k->locals.n && axes[r->n - 2] + 1 == axes[r->n - 1] &&
           !r->dim[r->n - 2].order.block && !r->dim[r->n - 1].order.block &&
           dims_are_one(site, n->in[0], (int32_t)axes[r->n - 2]) &&
           ex_is_const(site->x, r->dim[r->n - 2].extent, &outer) &&
           ex_is_const(site->x, r->dim[r->n - 1].extent, &inner) && mul_i64(inner, outer, &inner)) {
        r->dim[--r->n - 1].extent = ex_const(site->x, inner);
        r->joined++;
    }
}

void reduced_dims(const struct site *site, const struct node *n, bool staged, struct reduced *r)
{
    uint32_t count;
    r->n = 0;
    r->joined = 1;
    if (n->op == OP_CONV) {
        dims_of_conv(site, n, staged, r);
    } else if (n->op == OP_DOT) {
        const int64_t *ca = node_ints(n, "contract_a", &count), *cb = node_ints(n, "contract_b", &count);
        for (uint32_t i = 0; i < count; i++) { /* equal, but one may be known and the other not */
            expr_id a = value_type(site->g, n->in[0])->dims[ca[i]], b = value_type(site->g, n->in[1])->dims[cb[i]];
            rdim_add(r, ex_is_const(site->x, b, &(int64_t){0}) ? b : a, 0);
            if (constant_maps(site->m, n->in[1]) > 1 && dot_group(site->m, n) == 1)
                order_by_leaves(site, n->in[1], (int32_t)cb[i], &r->dim[r->n - 1]);
        }
    } else if (n->op == OP_REDUCE) {
        dims_of_reduction(site, n, r);
    } else if (n->op == OP_ARGREDUCE || n->op == OP_SEGMENTS) {
        rdim_add(r, value_type(site->g, n->in[0])->dims[node_int(n, "axis", 0)], 0);
    } else {
        const int64_t *kernel = node_ints(n, "kernel", &count);
        for (uint32_t i = 0; i < count; i++)
            rdim_add(r, ex_const(site->x, kernel[i]), 0);
    }
}

/* ---- factors of blocks ------------------------------------------------------------------------------------------- */

struct sym_use {
    const struct graph *g;
    struct exprs *x;
    sym_id sym;
    bool used;
};

static void leaf_use(void *user, value_id leaf, const expr_id *point)
{
    struct sym_use *u = user;
    for (int32_t d = 0; d < value_type(u->g, leaf)->rank; d++)
        u->used |= ex_uses(u->x, point[d], u->sym);
}

bool block_factor(const struct site *site, const struct node *n, struct block_factor *f)
{
    struct reduced r;
    expr_id idx[RANK_MAX] = {{0}};
    int64_t extent;
    *f = (struct block_factor){.product = {0}};
    if ((n->op != OP_DOT && n->op != OP_CONV) || constant_maps(site->m, n->in[1]) <= 1 || dot_group(site->m, n) != 1 ||
        value_type(site->g, n->out[0])->elem != ELEM_F32)
        return false;
    reduced_dims(site, n, false, &r);
    const struct rdim *last = &r.dim[r.n - 1];
    if (!last->order.block || last->order.residues > 1 || !ex_is_const(site->x, last->extent, &extent))
        return false;
    constant_point(site->m, n->in[1], idx);
    int32_t d = n->op == OP_CONV ? 1 : (int32_t)node_ints(n, "contract_b", NULL)[r.n - 1];
    struct sym_use u = {.g = site->g, .x = site->x};
    expr_id step = point_along(site, ex_const(site->x, last->order.block));
    u.sym = ex_as_sym(site->x, step);
    idx[d] = ex_add(site->x, ex_mulc(site->x, idx[d], last->order.block), step);
    value_id behind = behind_views(site->m, n->in[1], idx);
    const struct node *product = value_node(site->g, behind);
    if (!product || product->op != OP_MUL || site->m->fused.storage[behind.i].place != PLACE_NONE)
        return false;
    f->product = behind;
    for (uint32_t o = 0; o < 2; o++) {
        u.used = false;
        struct leaf_walk w = {.m = site->m, .leaf = leaf_use, .user = &u, .stored = true};
        constant_leaves(&w, product->in[o], idx);
        f->factor = o;
        if (!u.used)
            return true;
    }
    return false;
}

bool outer_k(const struct site *site, const struct node *n, struct k_dim *k)
{
    struct reduced r;
    enum elem e = value_type(site->g, n->out[0])->elem;
    if (e != ELEM_F32 || dot_group(site->m, n) != 1 || row_taps(site, n).dim >= 0)
        return false;
    reduced_dims(site, n, false, &r);
    *k = (struct k_dim){.inner = 1};
    for (uint32_t d = r.n; d > 0; d--) {
        const struct rdim *dim = &r.dim[d - 1];
        int64_t extent;
        if (!ex_is_const(site->x, dim->extent, &extent) || extent < 1 || dim->order.residues > 1 ||
            (dim->order.block && dim->order.phase[0]))
            return false;
        if (extent == 1)
            continue;
        if (k->extent && !mul_i64(k->inner, k->extent, &k->inner))
            return false;
        k->dim = d - 1;
        k->extent = extent;
        k->unit = dim->order.block ? dim->order.block : 1;
    }
    return k->extent > 1;
}
