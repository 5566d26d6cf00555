/* Scans, serial along one dim, scatters, whose updates have an order, and the zeros around a padded value: what their
 * loop nests (emit/nest.c) do at a point.
 */
#include "passes/emit/templates.h"

/* ---- scan and scatter -------------------------------------------------------------------------------------------- */

/* All of the axis. */
static void scan_line(struct em *em, void *user, expr_id *idx)
{
    const struct node *n = user;
    const struct type *t = value_type(em->g, n->out[0]);
    int32_t axis = (int32_t)node_int(n, "axis", 0), vec = em->schedule->nest.vec;
    const char *monoid = node_str(n, "monoid", "sum");
    bool exclusive = node_int(n, "exclusive", 0), reverse = node_int(n, "reverse", 0), prod = !strcmp(monoid, "prod");
    struct em_for l;
    uint32_t lanes = vec < 0 ? 0 : em_expr_lanes(em, idx[vec]);
    lreg init = em_const(em, register_elem(t->elem), lanes ? lanes : 1, prod, prod), last;
    expr_id i = em_for_begin(em, &l, ex_const(em->x, 0), t->dims[axis], &init, 1);
    idx[axis] = reverse ? ex_sub(em->x, ex_addc(em->x, t->dims[axis], -1), i) : i;
    lreg before = l.params[0];
    lreg x = em_splat(em, em_value(em, n->in[0], idx, ex_const(em->x, 1)), lanes ? lanes : 1),
         after = em_op2(em, em_monoid(monoid, register_elem(t->elem)), before, x);
    em_store(em, em->k->outs.data[0], idx, exclusive ? before : after);
    em_for_end(em, &l, &after, &last);
}

bool emit_scan(struct em *em)
{
    struct node *n = graph_node(em->g, em->k->anchor);
    em_nest(em, &em->schedule->nest, value_type(em->g, n->out[0])->dims, scan_line, n);
    return !em->failed;
}

/* Nodes of a scatter, and the points that it copies: of dim `cut` - 1, where it is not 0, from index `lo` on. */
struct scatter {
    const struct node *n;
    int32_t cut;
    expr_id lo;
};

static void scatter_copy(struct em *em, void *user, expr_id *idx)
{
    const struct scatter *s = user;
    expr_id at[RANK_MAX];
    memcpy(at, idx, (size_t)value_type(em->g, s->n->out[0])->rank * sizeof *at);
    if (s->cut)
        at[s->cut - 1] = ex_add(em->x, s->lo, at[s->cut - 1]);
    em_store(em, em->k->outs.data[0], at, em_value(em, s->n->in[0], at, ex_const(em->x, 1)));
}

static void scatter_update(struct em *em, void *user, expr_id *idx)
{
    const struct node *n = ((const struct scatter *)user)->n;
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

/* What is not scattered: unless it lies there already, except for what a longer result has after it. */
static void scatter_rest(struct em *em, struct scatter *s)
{
    struct em_if l;
    const struct nest_schedule *nest = &em->schedule->nest;
    const struct type *t = value_type(em->g, s->n->out[0]);
    if (!em->k->shares) {
        em_nest_serial(em, nest, t->dims, scatter_copy, s);
        return;
    }
    value_id past = em->g->inputs.data[em->k->shares - 1].value;
    lreg at[2] = {em_buffer(em, past), em_buffer(em, em->k->outs.data[0])};
    lreg shared = em_op(em, L_SHARED, (struct ltype){ELEM_BOOL, 1}, at, 2);
    em_if_begin(em, &l, em_op2(em, L_EQ, shared, em_const(em, ELEM_BOOL, 1, 0, 0)));
    em_nest_serial(em, nest, t->dims, scatter_copy, s);
    em_if_end(em, &l);
    s->cut = em->m->fused.constraint[past.i].grows;
    if (!s->cut)
        return;
    expr_id extents[RANK_MAX];
    memcpy(extents, t->dims, (size_t)t->rank * sizeof *extents);
    s->lo = value_type(em->g, past)->dims[s->cut - 1];
    extents[s->cut - 1] = ex_max(em->x, ex_sub(em->x, t->dims[s->cut - 1], s->lo), ex_const(em->x, 0));
    em_if_begin(em, &l, shared);
    em_nest_serial(em, nest, extents, scatter_copy, s);
    em_if_end(em, &l);
}

bool emit_scatter(struct em *em)
{
    const struct nest_schedule *nest = &em->schedule->nest;
    struct scatter s = {.n = graph_node(em->g, em->k->anchor)};
    const struct type *updates = value_type(em->g, s.n->in[2]);
    struct nest_schedule over = {.vec = nest->vec < 0 ? -1 : nest->vec + updates->rank - (int32_t)nest->n_loops};
    struct em_for par;
    for (int32_t d = 0; d < updates->rank; d++)
        nest_add(&over, d, d == over.vec ? nest_lanes(nest) : 1);
    em_parallel_begin(em, &par, ex_const(em->x, 1));
    scatter_rest(em, &s);
    em_nest_serial(em, &over, updates->dims, scatter_update, &s);
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
    idx[d] = em_for_begin(em, &l, lo, hi, NULL, 0);
    halo_fill(em, v, d + 1, idx, border);
    em_for_end(em, &l, NULL, NULL);
}

/* Zeros at every position of dims d.. that lies outside the value in some dim. */
static void halo_fill(struct em *em, value_id v, int32_t d, expr_id *idx, bool border)
{
    const struct storage *s = &em->m->fused.storage[v.i];
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

static void halo_vector(struct em *em, void *user, expr_id *idx)
{
    (void)user;
    halo_fill(em, em->k->outs.data[0], 2, idx, false);
}

bool emit_halo(struct em *em)
{
    value_id v = em->k->outs.data[0];
    const struct type *t = value_type(em->g, v);
    expr_id block = ex_const(em->x, nest_lanes(&em->schedule->nest)),
            extents[2] = {t->dims[0], ex_mul(em->x, ex_ceildiv(em->x, t->dims[1], block), block)};
    if (!em->m->fused.storage[v.i].dim[1].block) /* blocks are stored whole, rows of channels end at the last one */
        extents[1] = t->dims[1];
    em_nest(em, &em->schedule->nest, extents, halo_vector, NULL);
    return !em->failed;
}
