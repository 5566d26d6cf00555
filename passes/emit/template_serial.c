/* The templates without tiles: scan and scatter, serial along one dim, and the zeros around a padded value. */
#include "passes/emit/templates.h"

#include <string.h>

/* ---- scan and scatter -------------------------------------------------------------------------------------------- */

bool emit_scan(struct em *em)
{
    const struct node *n = graph_node(em->g, em->k->anchor);
    const struct type *t = value_type(em->g, n->out[0]);
    int32_t axis = (int32_t)node_int(n, "axis", 0);
    const char *monoid = node_str(n, "monoid", "sum");
    bool exclusive = node_int(n, "exclusive", 0), reverse = node_int(n, "reverse", 0);
    const struct lines_schedule *s = &em->schedule->lines;
    struct loop loops[RANK_MAX];
    struct em_for par, l;
    expr_id idx[RANK_MAX], zero = ex_const(em->x, 0), one = ex_const(em->x, 1);
    uint32_t n_loops = 0;
    for (int32_t d = 0; d < t->rank; d++)
        if (d != axis)
            loops[n_loops++] = (struct loop){
                d, d == s->vec ? ex_ceildiv(em->x, t->dims[d], ex_const(em->x, s->lanes)) : t->dims[d], {0}};
    em_parallel_open(em, &par, loops, n_loops);
    for (uint32_t i = 0; i < n_loops; i++)
        idx[loops[i].dim] = loops[i].dim == s->vec ? em_vector_lanes(em, t->dims[s->vec], s->lanes, loops[i].var)
                                                   : loops[i].var;
    lreg init = em_const(em, register_elem(t->elem), s->lanes, !strcmp(monoid, "prod"), !strcmp(monoid, "prod")), last;
    expr_id i = em_for_begin(em, &l, zero, t->dims[axis], 1, &init, 1);
    idx[axis] = reverse ? ex_sub(em->x, ex_addc(em->x, t->dims[axis], -1), i) : i;
    lreg before = l.params[0];
    lreg x = em_splat(em, em_value(em, n->in[0], idx, one), s->lanes),
         after = em_op2(em, em_monoid(monoid, register_elem(t->elem)), before, x);
    em_store(em, em->k->outs.data[0], idx, exclusive ? before : after);
    em_for_end(em, &l, &after, &last);
    em_parallel_end(em, &par);
    return !em->failed;
}

/* Loops over every point of dims, vectors of the schedule's lanes along dim `vec` of them (-1: none); fn at each. Of
 * dim `cut` - 1, where it is not 0, from index `lo` on. */
typedef void point_fn(struct em *, const struct node *, const expr_id *idx);
struct points {
    const struct node *n;
    const struct type *t;
    int32_t vec, at;
    expr_id *idx;
    point_fn *fn;
    int32_t cut;
    expr_id lo;
};
static void each_point(struct em *em, const struct points *p);

static void each_behind(struct em *em, void *user, expr_id points)
{
    struct points inner = *(const struct points *)user;
    inner.idx[inner.at++] = points;
    each_point(em, &inner);
}

static void each_point(struct em *em, const struct points *p)
{
    struct points here = *p;
    struct em_for l;
    if (p->at == p->t->rank) {
        p->fn(em, p->n, p->idx);
        return;
    }
    expr_id lo = p->cut == p->at + 1 ? p->lo : ex_const(em->x, 0), hi = ex_max(em->x, p->t->dims[p->at], lo);
    if (p->at == p->vec) {
        em_vectors(em, lo, ex_sub(em->x, hi, lo), em->schedule->lines.lanes, each_behind, &here);
    } else {
        each_behind(em, &here, em_for_begin(em, &l, lo, hi, 1, NULL, 0));
        em_for_end(em, &l, NULL, NULL);
    }
}

static void scatter_copy(struct em *em, const struct node *n, const expr_id *idx)
{
    em_store(em, em->k->outs.data[0], idx, em_value(em, n->in[0], idx, ex_const(em->x, 1)));
}

static void scatter_update(struct em *em, const struct node *n, const expr_id *idx)
{
    const struct type *x = value_type(em->g, n->in[0]), *it = value_type(em->g, n->in[1]);
    value_id out = em->k->outs.data[0];
    expr_id at[RANK_MAX], iat[RANK_MAX], one = ex_const(em->x, 1);
    const char *monoid = node_str(n, "monoid", "set");
    if (n->op == OP_SCATTER_ELEMENTS) {
        int64_t axis = node_int(n, "axis", 0);
        memcpy(at, idx, (size_t)x->rank * sizeof *at);
        at[axis] = em_loaded_index(em, n, em_value(em, n->in[1], idx, one), (struct em_point){idx, it->rank},
                                   x->dims[axis], one);
    } else {
        int64_t depth = 0;
        int32_t q = it->rank;
        ex_is_const(em->x, it->dims[q - 1], &depth);
        memcpy(iat, idx, (size_t)(q - 1) * sizeof *iat);
        for (int64_t j = 0; j < depth; j++) {
            iat[q - 1] = ex_const(em->x, j);
            at[j] = em_loaded_index(em, n, em_value(em, n->in[1], iat, one), (struct em_point){iat, q}, x->dims[j],
                                    one);
        }
        for (int32_t d = (int32_t)depth; d < x->rank; d++)
            at[d] = idx[q - 1 + d - depth];
    }
    lreg v = em_value(em, n->in[2], idx, one);
    if (strcmp(monoid, "set")) {
        lreg old = em_load_fresh(em, out, at);
        v = em_splat(em, v, lf_type(em->f, old).lanes);
        v = em_op2(em, em_monoid(monoid, register_elem(x->elem)), old, v);
    }
    em_store(em, out, at, v);
}

/* What is not scattered: unless it lies there already, but for what a longer result has behind it. */
static void scatter_rest(struct em *em, const struct points *all)
{
    struct em_if l;
    if (!em->k->shares) {
        each_point(em, all);
        return;
    }
    value_id past = em->g->inputs.data[em->k->shares - 1].value;
    lreg at[2] = {em_buffer(em, past), em_buffer(em, em->k->outs.data[0])};
    lreg shared = em_op(em, L_SHARED, (struct ltype){ELEM_BOOL, 1}, at, 2);
    em_if_begin(em, &l, em_op2(em, L_EQ, shared, em_const(em, ELEM_BOOL, 1, 0, 0)));
    each_point(em, all);
    em_if_end(em, &l);
    struct points behind = *all;
    behind.cut = em->m->wish[past.i].grows;
    if (!behind.cut)
        return;
    behind.lo = value_type(em->g, past)->dims[behind.cut - 1];
    em_if_begin(em, &l, shared);
    each_point(em, &behind);
    em_if_end(em, &l);
}

bool emit_scatter(struct em *em)
{
    const struct node *n = graph_node(em->g, em->k->anchor);
    struct em_for par;
    expr_id idx[RANK_MAX];
    em_parallel_begin(em, &par, ex_const(em->x, 1));
    const struct type *x = value_type(em->g, n->out[0]), *updates = value_type(em->g, n->in[2]);
    int32_t vec = em->schedule->lines.vec;
    scatter_rest(em, &(struct points){.n = n, .t = x, .vec = vec, .idx = idx, .fn = scatter_copy});
    each_point(em, &(struct points){.n = n,
                                    .t = updates,
                                    .vec = vec < 0 ? -1 : vec + updates->rank - x->rank,
                                    .idx = idx,
                                    .fn = scatter_update});
    em_parallel_end(em, &par);
    return !em->failed;
}

/* ---- halos ------------------------------------------------------------------------------------------------------- */

static void halo_fill(struct em *em, value_id v, int32_t d, expr_id *idx, bool border);

static void halo_range(struct em *em, value_id v, int32_t d, expr_id *idx, expr_id lo, expr_id hi, bool border)
{
    struct em_for l;
    if (ex_cmp_lt(em->x, lo, hi) == FALSE_)
        return;
    idx[d] = em_for_begin(em, &l, lo, hi, 1, NULL, 0);
    halo_fill(em, v, d + 1, idx, border);
    em_for_end(em, &l, NULL, NULL);
}

/* Zeros at every position of dims d.. that lies outside the value in some dim. */
static void halo_fill(struct em *em, value_id v, int32_t d, expr_id *idx, bool border)
{
    const struct storage *s = &em->m->storage[v.i];
    const struct type *t = value_type(em->g, v);
    if (d == t->rank) {
        if (border)
            em_store(em, v, idx, em_const(em, register_elem(t->elem), 1, 0, 0));
        return;
    }
    expr_id zero = ex_const(em->x, 0), lo = ex_const(em->x, -s->halo[d]),
            hi = ex_addc(em->x, t->dims[d], s->halo[s->rank + d]);
    if (border) {
        halo_range(em, v, d, idx, lo, hi, true);
        return;
    }
    halo_range(em, v, d, idx, lo, zero, true);
    halo_range(em, v, d, idx, t->dims[d], hi, true);
    if (d + 1 < t->rank)
        halo_range(em, v, d, idx, zero, t->dims[d], false);
}

bool emit_halo(struct em *em)
{
    value_id v = em->k->outs.data[0];
    const struct type *t = value_type(em->g, v);
    uint32_t lanes = em->schedule->halo_lanes;
    struct loop loops[2] = {{0, t->dims[0], {0}}, {1, ex_ceildiv(em->x, t->dims[1], ex_const(em->x, lanes)), {0}}};
    struct em_for par;
    expr_id idx[RANK_MAX];
    bool blocked = em->m->storage[v.i].dim[1].block != 0;
    em_parallel_open(em, &par, loops, 2);
    idx[0] = loops[0].var;
    expr_id base = ex_mulc(em->x, loops[1].var, lanes);
    /* Blocks are stored whole, so their last lanes may be written too; row-major channels end at the last one. */
    lreg mask = blocked ? (lreg){0} : em_tail_mask(em, ex_sub(em->x, t->dims[1], base), lanes);
    idx[1] = ex_add(em->x, base, em_lane(em, lanes, mask));
    halo_fill(em, v, 2, idx, false);
    em_parallel_end(em, &par);
    return !em->failed;
}
