/* Walks through decision trees (OP_WALK): the lanes of a point go side by side, each by scalar loads, a few at a time,
 * until all of them have come to a leaf. Gathers would wait for the slowest lane of a vector, and cost more than the
 * loads they are made of.
 */
#include "passes/emit/emit.h"

enum { CHAINS = 8 }; /* as many as a core keeps busy with and has registers for */

/* The lanes of a walk: the row and the node that each of them is at, as symbols. */
struct walk {
    const struct node *n;
    expr_id row[LOOP_LANES_MAX], at[LOOP_LANES_MAX];
    uint32_t lanes;
};

static lreg i64(struct em *em, int64_t v)
{
    return em_const(em, ELEM_I64, 1, 0, v);
}

/* Does the node at hand send a row with this number to the one behind its next? kind: {0}, of all nodes 0. */
static lreg goes(struct em *em, lreg x, lreg number, lreg kind)
{
    lreg most = em_op2(em, L_LE, x, number);
    if (!kind.i)
        return most;
    lreg how = em_op2(em, L_AND, kind, i64(em, 3)), nan = em_op2(em, L_LE, i64(em, 4), kind);
    lreg is = em_select(em, em_op2(em, L_EQ, how, i64(em, 1)), em_op2(em, L_LE, number, x),
                        em_select(em, em_op2(em, L_EQ, how, i64(em, 2)), em_op2(em, L_EQ, x, number), most));
    return em_op2(em, L_OR, is, em_op2(em, L_AND, nan, em_op2(em, L_NE, x, x)));
}

/* The nodes that the rows come to by a step from nodes `at`. */
static void walk_step(struct em *em, const struct walk *w, const expr_id *row, const lreg *at, uint32_t n, lreg *to)
{
    value_id x = w->n->in[0], table = w->n->in[1];
    expr_id always = ex_const(em->x, 1), columns = value_type(em->g, x)->dims[1];
    int64_t nodes = ex_lo(em->x, value_type(em->g, table)->dims[0]), most = ex_hi(em->x, columns);
    struct ltype i = {ELEM_I64, 1}, f = {ELEM_F64, 1};
    for (uint32_t k = 0; k < n; k++) {
        expr_id of[2] = {em_bind(em, at[k], nodes - 1), ex_const(em->x, 0)};
        lreg word = em_value(em, table, of, always);
        of[1] = always;
        lreg number = em_value(em, table, of, always);
        lreg column = em_op2(em, L_AND, word, i64(em, 0xfffffff));
        lreg kind = node_int(w->n, "kinds", 0) ? em_op2(em, L_AND, em_op2(em, L_SHR, word, i64(em, 28)), i64(em, 7))
                                               : (lreg){0};
        expr_id point[2] = {row[k], em_bind(em, column, most == INT64_MAX ? most : most - 1)};
        lreg v = em_value(em, x, point, always);
        if (lf_type(em->f, v).elem != ELEM_F64)
            v = em_op(em, L_CONVERT, f, &v, 1);
        lreg go = goes(em, v, em_op(em, L_BITCAST, f, &number, 1), kind);
        to[k] = em_op2(em, L_ADD, em_op2(em, L_SHR, word, i64(em, 32)), em_op(em, L_CONVERT, i, &go, 1));
    }
}

/* n lanes from number `first` on, all the way; trips: steps at most. */
static void walk_lanes(struct em *em, const struct walk *w, uint32_t first, uint32_t n, expr_id trips, lreg *end)
{
    struct em_for l;
    lreg carried[CHAINS + 1] = {em_const(em, ELEM_BOOL, 1, 0, 1)}, next[CHAINS + 1];
    for (uint32_t k = 0; k < n; k++)
        carried[k + 1] = em_index(em, w->at[first + k]);
    em_for_begin(em, &l, ex_const(em->x, 0), trips, carried, n + 1);
    l.is_while = true;
    walk_step(em, w, w->row + first, l.params + 1, n, next + 1);
    for (uint32_t k = 0; k < n; k++) {
        lreg moved = em_op2(em, L_NE, next[k + 1], l.params[k + 1]);
        next[0] = k ? em_op2(em, L_OR, next[0], moved) : moved;
    }
    em_for_end(em, &l, next, carried);
    for (uint32_t k = 0; k < n; k++)
        end[k] = carried[k + 1];
}

/* Index e, a lane of it each; where lanes may be past the end of the dim, its last one in their place. */
static void lanes_of(struct em *em, expr_id e, expr_id dim, uint32_t lanes, bool clamp, expr_id *out)
{
    uint32_t own = em_expr_lanes(em, e);
    int64_t hi = ex_hi(em->x, dim);
    hi = hi == INT64_MAX ? hi : hi > 0 ? hi - 1 : 0;
    lreg v = own ? em_index_lanes(em, e, lanes) : em_index(em, e);
    if (clamp) {
        lreg in[2] = {v, em_index(em, ex_addc(em->x, dim, -1))};
        em_unify(em, in, 2);
        v = em_op2(em, L_MIN, in[0], in[1]);
    }
    for (uint32_t k = 0; k < lanes; k++)
        out[k] = !own && k ? out[0] : em_bind(em, own ? em_extract(em, v, k) : v, hi);
}

/* Does a point exist in any lane? As an expression. */
static expr_id any_of(struct em *em, expr_id cond)
{
    return ex_truth(em->x, cond) == TRUE_ ? cond : em_bind(em, em_any(em, em_cond(em, cond)), 1);
}

lreg em_walk(struct em *em, const struct node *n, const expr_id *idx, expr_id cond)
{
    const struct type *x = value_type(em->g, n->in[0]), *t = value_type(em->g, n->out[0]);
    uint32_t rows = em_expr_lanes(em, idx[0]), trees = em_expr_lanes(em, idx[1]);
    struct walk *w = NEW(em->arena, struct walk);
    lreg end[LOOP_LANES_MAX], result = {0};
    struct em_hoist h;
    *w = (struct walk){.n = n, .lanes = rows ? rows : trees ? trees : 1};
    expr_id any = any_of(em, cond), point[3] = {idx[0], idx[1], any};
    bool clamp = em_lanes_live(em, idx, 2).i || ex_truth(em->x, any) != TRUE_;
    em_hoist_begin(em, &h, point, 3, 1);
    lanes_of(em, idx[0], x->dims[0], w->lanes, clamp, w->row);
    lanes_of(em, idx[1], t->dims[1], w->lanes, clamp, w->at);
    expr_id trips = ex_select(em->x, any, ex_const(em->x, node_int(n, "depth", 0)), ex_const(em->x, 0));
    for (uint32_t k = 0; k < w->lanes; k += CHAINS)
        walk_lanes(em, w, k, w->lanes - k < CHAINS ? w->lanes - k : CHAINS, trips, end + k);
    for (uint32_t k = 0; k < w->lanes; k++) {
        lreg at = em_op(em, L_CONVERT, (struct ltype){ELEM_I32, 1}, &end[k], 1);
        result = !k ? (w->lanes > 1 ? em_splat(em, at, w->lanes) : at) : em_insert(em, result, at, k);
    }
    em_hoist_end(em, &h);
    return result;
}
