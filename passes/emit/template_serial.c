/* The templates without tiles: scan and scatter, serial along one dim, and the zeros around a padded value. */
#include "passes/emit/box.h"
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

/* Every point of type t, vectors along dim `vec` of it (-1: none); of dim `cut`, from index `from` on (-1: all). */
static void each_point(struct em *em, const struct type *t, int32_t vec, em_box_fn *fn, int32_t cut, expr_id from)
{
    struct em_box nest = {.fn = fn};
    expr_id idx[RANK_MAX], zero = ex_const(em->x, 0);
    for (int32_t d = 0; d < t->rank; d++) {
        expr_id first = d == cut ? from : zero;
        em_box_add(&nest, d, first, ex_max(em->x, ex_sub(em->x, t->dims[d], first), zero),
                    d == vec ? em->schedule->lines.lanes : 0);
    }
    em_box(em, &nest, idx);
}

static void scatter_copy(const struct em_box_at *h)
{
    struct em *em = h->em;
    const struct node *n = graph_node(em->g, em->k->anchor);
    em_store(em, em->k->outs.data[0], h->idx, em_value(em, n->in[0], h->idx, ex_const(em->x, 1)));
}

static void scatter_update(const struct em_box_at *h)
{
    struct em *em = h->em;
    const struct node *n = graph_node(em->g, em->k->anchor);
    const struct type *x = value_type(em->g, n->in[0]), *it = value_type(em->g, n->in[1]);
    value_id out = em->k->outs.data[0];
    expr_id at[RANK_MAX], iat[RANK_MAX], one = ex_const(em->x, 1);
    const char *monoid = node_str(n, "monoid", "set");
    if (n->op == OP_SCATTER_ELEMENTS) {
        int64_t axis = node_int(n, "axis", 0);
        memcpy(at, h->idx, (size_t)x->rank * sizeof *at);
        at[axis] = em_loaded_index(em, n, em_value(em, n->in[1], h->idx, one), (struct em_point){h->idx, it->rank},
                                   x->dims[axis], one);
    } else {
        int64_t depth = 0;
        int32_t q = it->rank;
        ex_is_const(em->x, it->dims[q - 1], &depth);
        memcpy(iat, h->idx, (size_t)(q - 1) * sizeof *iat);
        for (int64_t j = 0; j < depth; j++) {
            iat[q - 1] = ex_const(em->x, j);
            at[j] = em_loaded_index(em, n, em_value(em, n->in[1], iat, one), (struct em_point){iat, q}, x->dims[j],
                                    one);
        }
        for (int32_t d = (int32_t)depth; d < x->rank; d++)
            at[d] = h->idx[q - 1 + d - depth];
    }
    lreg v = em_value(em, n->in[2], h->idx, one);
    if (strcmp(monoid, "set")) {
        lreg old = em_load_fresh(em, out, at);
        v = em_splat(em, v, lf_type(em->f, old).lanes);
        v = em_op2(em, em_monoid(monoid, register_elem(x->elem)), old, v);
    }
    em_store(em, out, at, v);
}

/* What is not scattered: unless it lies there already, but for what a longer result has behind it. */
static void scatter_rest(struct em *em, const struct type *t, int32_t vec)
{
    struct em_if l;
    if (!em->k->shares) {
        each_point(em, t, vec, scatter_copy, -1, (expr_id){0});
        return;
    }
    value_id past = em->g->inputs.data[em->k->shares - 1].value;
    lreg at[2] = {em_buffer(em, past), em_buffer(em, em->k->outs.data[0])};
    lreg shared = em_op(em, L_SHARED, (struct ltype){ELEM_BOOL, 1}, at, 2);
    em_if_begin(em, &l, em_op2(em, L_EQ, shared, em_const(em, ELEM_BOOL, 1, 0, 0)));
    each_point(em, t, vec, scatter_copy, -1, (expr_id){0});
    em_if_end(em, &l);
    int32_t cut = em->m->wish[past.i].grows - 1;
    if (cut < 0)
        return;
    em_if_begin(em, &l, shared);
    each_point(em, t, vec, scatter_copy, cut, value_type(em->g, past)->dims[cut]);
    em_if_end(em, &l);
}

bool emit_scatter(struct em *em)
{
    const struct node *n = graph_node(em->g, em->k->anchor);
    struct em_for par;
    em_parallel_begin(em, &par, ex_const(em->x, 1));
    const struct type *x = value_type(em->g, n->out[0]), *updates = value_type(em->g, n->in[2]);
    int32_t vec = em->schedule->lines.vec;
    scatter_rest(em, x, vec);
    each_point(em, updates, vec < 0 ? -1 : vec + updates->rank - x->rank, scatter_update, -1, (expr_id){0});
    em_parallel_end(em, &par);
    return !em->failed;
}

/* ---- halos ------------------------------------------------------------------------------------------------------- */

static void halo_zero(const struct em_box_at *h)
{
    struct em *em = h->em;
    value_id v = em->k->outs.data[0];
    em_store(em, v, h->idx, em_const(em, register_elem(value_type(em->g, v)->elem), 1, 0, 0));
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
    struct em_box nest = {.border = true, .fn = halo_zero};
    const int64_t *halo = em->m->storage[v.i].halo;
    for (int32_t d = 2; d < t->rank; d++) {
        em_box_add(&nest, d, ex_const(em->x, -halo[d]), ex_addc(em->x, t->dims[d], halo[d] + halo[t->rank + d]), 0);
        nest.loop[nest.n - 1].size = t->dims[d];
    }
    em_box(em, &nest, idx);
    em_parallel_end(em, &par);
    return !em->failed;
}
