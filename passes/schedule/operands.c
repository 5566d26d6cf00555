/* What the value that a map computes is computed of: the stored values under its nodes and views, each at its point. */
#include "passes/module/visited.h"
#include "passes/schedule/schedule.h"

expr_id point_along(const struct site *s, expr_id extent)
{
    int64_t hi = ex_hi(s->x, extent), last = hi == INT64_MAX ? hi : hi > 0 ? hi - 1 : 0;
    return ex_sym(s->x, sym_new(s->x, SYM_LOOP, arena_printf(s->arena, "t%u", sym_count(s->x)), 0, last));
}

void domain_points(const struct site *s, expr_id *idx)
{
    const struct type *t = value_type(s->g, s->k->domain);
    for (int32_t d = 0; d < t->rank; d++)
        idx[d] = point_along(s, t->dims[d]);
}

static void walk(const struct operand_walk *w, struct visited *seen, value_id v, const expr_id *idx, uint32_t nesting)
{
    const struct site *s = w->site;
    if (nesting > 64 && w->other)
        *w->other = true;
    if (nesting > 64 || value_is_splat(s->g, v, &(double){0}, &(int64_t){0}) || !visit(seen, v, idx))
        return;
    if (s->m->fused.storage[v.i].place != PLACE_NONE && s->k->outs.data[0].i != v.i) {
        if (w->operand)
            w->operand(w->user, v, idx);
        return;
    }
    const struct node *n = value_node(s->g, v);
    bool view = n && op_shape(n->op) == SHAPE_VIEW, map = n && op_shape(n->op) == SHAPE_MAP;
    if (view ? !w->view(w->user, n, idx) : !map) {
        if (w->other && !view)
            *w->other = true;
        return;
    }
    for (uint32_t k = 0; k < n->n_in && (n->op == OP_CONCAT || k < (view ? 1 : 3)); k++) {
        expr_id at[RANK_MAX];
        walk(w, seen, operand_at(s->g, n, k, idx, at), at, nesting + 1);
    }
}

static void walk_of(const struct operand_walk *w, value_id v, const expr_id *idx)
{
    walk(w, &(struct visited){.g = w->site->g, .arena = w->site->arena}, v, idx, 0);
}

void operands_walk(const struct operand_walk *w, const expr_id *idx)
{
    walk_of(w, w->site->k->domain, idx);
}

/* ---- dims that are one ------------------------------------------------------------------------------------------- */

struct joined {
    const struct site *s;
    sym_id outer, inner;
    int64_t extent; /* of the inner dim */
    bool apart;
};

static bool joined_view(void *user, const struct node *n, const expr_id *idx)
{
    struct joined *j = user;
    (void)idx;
    j->apart |= n->op == OP_CONCAT || n->op == OP_PAD;
    return !j->apart;
}

static void joined_operand(void *user, value_id v, const expr_id *idx)
{
    struct joined *j = user;
    struct exprs *x = j->s->x;
    expr_id address = storage_address(x, &j->s->m->fused.storage[v.i], idx), coef, rest;
    int64_t inner = 0, outer = 0, step;
    bool linear = (!ex_uses(x, address, j->outer) ||
                   (ex_linear(x, address, j->outer, &coef, &rest) && ex_is_const(x, coef, &outer))) &&
                  (!ex_uses(x, address, j->inner) ||
                   (ex_linear(x, address, j->inner, &coef, &rest) && ex_is_const(x, coef, &inner)));
    j->apart |= !linear || !mul_i64(inner, j->extent, &step) || step != outer;
}

bool dims_are_one(const struct site *s, value_id v, int32_t outer)
{
    const struct type *t = value_type(s->g, v);
    struct joined j = {.s = s};
    expr_id idx[RANK_MAX];
    int64_t n;
    if (!ex_is_const(s->x, t->dims[outer], &n) || n < 1 || !ex_is_const(s->x, t->dims[outer + 1], &j.extent) ||
        j.extent < 1 || !mul_i64(n, j.extent, &n))
        return false;
    for (int32_t d = 0; d < t->rank; d++)
        idx[d] = point_along(s, t->dims[d]);
    j.outer = ex_as_sym(s->x, idx[outer]);
    j.inner = ex_as_sym(s->x, idx[outer + 1]);
    const struct operand_walk w = {
        .site = s, .user = &j, .view = joined_view, .operand = joined_operand, .other = &j.apart};
    if (s->k->domain.i == v.i && s->m->fused.storage[s->k->outs.data[0].i].place != PLACE_NONE)
        joined_operand(&j, s->k->outs.data[0], idx);
    walk_of(&w, v, idx);
    return !j.apart;
}
