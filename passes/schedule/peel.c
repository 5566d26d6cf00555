/* Peeled segments: where the vectors of a map begin anew. A point outside an image comes from another place than one
 * inside (mirrored, the nearest, the other end, a constant), and a concat reads another operand from some point on: a
 * vector that holds both kinds computes indices for each lane, or takes both and selects. Cut there, each part is loads
 * as they lie.
 *
 * For paddings that are not zero, and pads and concats inside of maps: 5 of 1432 maps, in 5 of 568 networks (on
 * x86-64-v3), a spectrogram's mirrored ends and a quantized convolution's operand among them.
 */
#include "passes/schedule/decisions.h"

enum { FOUND_MOST = 16 };

struct peels {
    const struct site *s;
    sym_id sym; /* of the lanes' dim */
    int64_t extent, at[FOUND_MOST];
    uint32_t n;
    bool gathers, many; /* one of them saves a gather; there are more than FOUND_MOST */
};

/* The value's index e changes its ways at the constant `at`. */
static void found(struct peels *c, expr_id e, int64_t at)
{
    expr_id coef, rest;
    int64_t base, point;
    uint32_t i = 0;
    if (!ex_linear(c->s->x, e, c->sym, &coef, &rest) || !ex_is(c->s->x, coef, 1) ||
        !ex_is_const(c->s->x, rest, &base) || !sub_i64(at, base, &point) || point <= 0 || point >= c->extent)
        return;
    while (i < c->n && c->at[i] < point)
        i++;
    if (i < c->n && c->at[i] == point)
        return;
    if (c->n == FOUND_MOST) {
        c->many = true;
        return;
    }
    memmove(c->at + i + 1, c->at + i, (c->n - i) * sizeof *c->at);
    c->at[i] = point;
    c->n++;
}

static void pad_peels(struct peels *c, const struct node *n, const expr_id *idx)
{
    const struct type *from = value_type(c->s->g, n->in[0]);
    const expr_id *lo = node_exprs(n, "lo", &(uint32_t){0});
    for (int32_t d = 0; d < from->rank; d++) {
        uint32_t before = c->n;
        int64_t first, size;
        if (!ex_is_const(c->s->x, lo[d], &first) || !ex_is_const(c->s->x, from->dims[d], &size))
            continue;
        found(c, idx[d], first);
        found(c, idx[d], first + size);
        c->gathers |= c->n > before && strcmp(node_str(n, "mode", "constant"), "constant") != 0;
    }
}

/* Of a concat the points where an operand ends, up to one of unknown extent. */
static bool view_peels(void *user, const struct node *n, const expr_id *idx)
{
    struct peels *c = user;
    int64_t axis = node_int(n, "axis", 0), begin = 0, size;
    if (n->op == OP_PAD)
        pad_peels(c, n, idx);
    for (uint32_t k = 0; n->op == OP_CONCAT && k < n->n_in; k++) {
        if (!ex_is_const(c->s->x, value_type(c->s->g, n->in[k])->dims[axis], &size) || !add_i64(begin, size, &begin))
            break;
        found(c, idx[axis], begin);
    }
    return !c->many;
}

static int64_t vectors_between(const struct peels *c, int64_t lanes)
{
    int64_t n = 0, from = 0;
    for (uint32_t i = 0; i <= c->n; i++) {
        int64_t to = i < c->n ? c->at[i] : c->extent;
        n += (to - from + lanes - 1) / lanes;
        from = to;
    }
    return n;
}

/* The dim whose points vectors take. */
static int32_t peels_dim(const struct nest_schedule *s)
{
    return nest_packed(s) ? s->loop[s->n_loops - 2] : s->vec;
}

bool peels_serve(const struct site *site, const struct nest_schedule *s)
{
    int64_t extent, before = 0;
    bool alone = s->n_loops && s->loop[s->n_loops - 1] == s->vec && s->parallel < s->n_loops && !site->k->has_rows;
    for (uint32_t i = 0, over = 0; i < s->n_loops && alone; i++)
        alone = s->loop[i] != peels_dim(s) || !over++;
    if (s->n_peels > PEELS_MOST || !alone ||
        !ex_is_const(site->x, value_type(site->g, site->k->domain)->dims[peels_dim(s)], &extent))
        return !s->n_peels;
    for (uint32_t i = 0; i < s->n_peels; i++) {
        if (s->peel[i] <= before || s->peel[i] >= extent)
            return false;
        before = s->peel[i];
    }
    return true;
}

/* A gather costs more than the vectors that are not full; what is selected or masked may not add many. */
void peels_choose(const struct site *site, struct nest_schedule *s)
{
    struct exprs *x = site->x;
    const struct type *t = value_type(site->g, site->k->domain);
    struct peels c = {.s = site};
    expr_id idx[RANK_MAX];
    uint32_t points = nest_packed(s) ? nest_packed(s) : nest_lanes(s);
    if (s->vec < 0 || !ex_is_const(x, t->dims[peels_dim(s)], &c.extent))
        return;
    domain_points(site, idx);
    c.sym = ex_as_sym(x, idx[peels_dim(s)]);
    operands_walk(&(struct operand_walk){.site = site, .user = &c, .view = view_peels}, idx);
    int64_t whole = (c.extent + points - 1) / points;
    if (c.many || c.n > PEELS_MOST || !c.n || (!c.gathers && vectors_between(&c, points) > whole + whole / 4))
        return;
    for (uint32_t i = 0; i < c.n; i++)
        s->peel[i] = (int32_t)c.at[i];
    s->n_peels = c.n;
    if (!peels_serve(site, s))
        s->n_peels = 0;
}
