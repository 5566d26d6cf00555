/* If, and what control flow shares: walking an imported region, nested legal regions, merging types of values that
 * arrive on two ways.
 *
 * An If whose predicate is known, or follows from the ranges of symbols, has only its live branch looked at. The
 * dims of two run-time branches merge into a selection by the predicate where both are known outside, else into a
 * fresh symbol that the If's result binds.
 */
#include <string.h>

#include "passes/legalize/control.h"
#include "passes/legalize/driver.h"

uint32_t region_n_results(const struct rule *r, region_id region)
{
    return graph_get_region(r->lg->from, region)->results.n;
}

int32_t legalize_unroll_limit(const struct rule *r)
{
    const struct legalize_options *o = r->lg->options;
    return o && o->unroll_nodes > 0 ? o->unroll_nodes : r->lg->ctx->limits.unroll_nodes;
}

bool legalize_region(struct rule *r, region_id region, const struct lval *params, uint32_t n_params,
                     struct lval *results, uint32_t n_results)
{
    struct legalizer *lg = r->lg;
    const struct region *from = graph_get_region(lg->from, region);
    if (from->params.n != n_params || from->results.n != n_results)
        return rule_bad(r, "the body has %u inputs and %u outputs where %u and %u belong", from->params.n,
                        from->results.n, n_params, n_results);
    for (uint32_t i = 0; i < n_params; i++)
        lg->map[from->params.data[i].i] = params[i];
    if (!walk_region(lg, region))
        return false;
    bool ok = true;
    for (uint32_t i = 0; i < n_results; i++) {
        results[i] = from->results.data[i].i ? lg->map[from->results.data[i].i] : (struct lval){.kind = LVAL_NONE};
        ok &= results[i].kind != LVAL_POISON && results[i].kind != LVAL_NONE;
    }
    return ok;
}

/* ---- types that meet --------------------------------------------------------------------------------------------- */

expr_id fresh_dim(struct builder *b, const char *what)
{
    struct exprs *ex = b_exprs(b);
    return ex_sym(ex, sym_new(ex, SYM_VALUE, arena_printf(&b->g->arena, "%s%u", what, sym_count(ex)), 0, INT32_MAX));
}

void fresh_bind(struct builder *b, expr_id dim, value_id v)
{
    sym_id s = ex_as_sym(b_exprs(b), dim);
    if (!s.i || sym_get(b_exprs(b), s)->kind != SYM_VALUE || sym_get(b_exprs(b), s)->value)
        return;
    sym_get(b_exprs(b), s)->value = v.i;
    sym_get(b_exprs(b), s)->elem = UINT32_MAX;
}

void fresh_rebind(struct builder *b, expr_id dim, value_id v)
{
    sym_id s = ex_as_sym(b_exprs(b), dim);
    sym_get(b_exprs(b), s)->value = v.i;
    sym_get(b_exprs(b), s)->elem = UINT32_MAX;
}

bool region_owns(const struct graph *g, region_id inner, value_id v)
{
    for (uint32_t i = 0; i < graph_get_region(g, inner)->params.n; i++)
        if (graph_get_region(g, inner)->params.data[i].i == v.i)
            return true;
    node_id def = graph_value(g, v)->def;
    for (region_id at = def.i ? graph_node(g, def)->parent : (region_id){0}; at.i; at = graph_get_region(g, at)->parent)
        if (at.i == inner.i)
            return true;
    return false;
}

bool dim_escapes(const struct graph *g, region_id inner, expr_id e, uint32_t depth)
{
    struct exprs *ex = g->ctx->exprs;
    sym_id s = ex_as_sym(ex, e);
    if (s.i) {
        const struct symbol *sym = sym_get(ex, s);
        return sym->kind == SYM_VALUE && (!sym->value || region_owns(g, inner, (value_id){sym->value}));
    }
    if (!depth)
        return true;
    for (uint32_t i = 0; i < ex_n_args(ex, e); i++)
        if (dim_escapes(g, inner, ex_arg(ex, e, i), depth - 1))
            return true;
    return false;
}

struct type type_open(struct graph *g, const struct type *t)
{
    struct type inner = {.kind = TYPE_TENSOR, .elem = t->inner ? t->inner->elem : ELEM_F32, .rank = RANK_UNKNOWN};
    struct type open = *t;
    open.inner = arena_copy(&g->arena, &inner, sizeof inner);
    if (t->inner && t->inner->kind != TYPE_TENSOR)
        open.inner = t->inner;
    return open;
}

bool nest_begin(struct builder *b, struct nest *n)
{
    n->outer = b->region;
    n->inner = graph_region(b->g, b->region, (node_id){0});
    b->region = n->inner;
    return true;
}

void nest_end(struct builder *b, const struct nest *n)
{
    b->region = n->outer;
}

/* ---- If ---------------------------------------------------------------------------------------------------------- */

enum truth value_truth(struct builder *b, value_id v)
{
    const struct value *value = graph_value(b->g, v);
    int64_t c;
    if (value->elems && value->n_elems == 1 && value->elems[0].i)
        return ex_truth(b_exprs(b), value->elems[0]);
    if (value_is_const(b->g, v) && v_known_i64(b, v, 0, &c))
        return c ? TRUE_ : FALSE_;
    return UNKNOWN_;
}

struct branches {
    region_id region[2];
    value_id *value[2];
    expr_id cond;            /* of the predicate, as 0 or 1 */
};

static bool merge_dims(struct rule *r, const struct branches *br, const struct type *a, const struct type *c,
                       struct type *out)
{
    struct graph *g = r->b->g;
    struct exprs *ex = b_exprs(r->b);
    expr_id *dims = NEW_ARRAY(&g->arena, expr_id, a->rank + 1);
    for (int32_t i = 0; i < a->rank; i++) {
        dims[i] = a->dims[i];
        bool inside = dim_escapes(g, br->region[0], a->dims[i], 16) || dim_escapes(g, br->region[1], c->dims[i], 16);
        if (inside)
            dims[i] = fresh_dim(r->b, "if_dim");
        else if (a->dims[i].i != c->dims[i].i)
            dims[i] = ex_select(ex, br->cond, a->dims[i], c->dims[i]);
    }
    *out = *a;
    out->dims = dims;
    return true;
}

static bool merge_type(struct rule *r, const struct branches *br, uint32_t i, struct type *out)
{
    struct graph *g = r->b->g;
    const struct type *a = value_type(g, br->value[0][i]), *c = value_type(g, br->value[1][i]);
    if (a->kind != c->kind || a->elem != c->elem)
        return rule_bad(r, "the branches give different types for output %u", i + 1);
    if (a->kind != TYPE_TENSOR) {
        *out = type_equal(a, c) ? *a : type_open(g, a);
        return true;
    }
    if (a->rank != c->rank) {
        struct strbuf text;
        strbuf_init(&text, &g->arena);
        ex_print(g->ctx->exprs, br->cond, &text);
        return rule_refuse(r, "output %u has rank %d or %d, as the predicate (%.60s) decides at run time; fix the "
                           "dimension that it tests with --input", i + 1, (int)a->rank, (int)c->rank, text.data);
    }
    return merge_dims(r, br, a, c, out);
}

static bool branch_walk(struct rule *r, region_id imported, struct branches *br, int k, uint32_t n)
{
    struct builder *b = r->b;
    struct lval *results = NEW_ARRAY(&b->g->arena, struct lval, n + 1);
    struct nest nest;
    nest_begin(b, &nest);
    br->region[k] = nest.inner;
    bool ok = legalize_region(r, imported, NULL, 0, results, n);
    br->value[k] = NEW_ARRAY(&b->g->arena, value_id, n + 1);
    for (uint32_t i = 0; ok && i < n; i++) {
        br->value[k][i] = lval_force(b, results[i]);
        ok = br->value[k][i].i != 0;
    }
    nest_end(b, &nest);
    return ok;
}

static bool if_build(struct rule *r, value_id cond, const region_id imported[2], uint32_t n)
{
    struct builder *b = r->b;
    struct branches br;
    br.cond = b_elem(b, cond, 0, 0, 1);
    bool ok = br.cond.i != 0;
    for (int k = 0; k < 2; k++)
        ok = branch_walk(r, imported[k], &br, k, n) && ok;
    if (!ok)
        return false;
    struct type *types = NEW_ARRAY(&b->g->arena, struct type, n + 1);
    for (uint32_t i = 0; i < n; i++)
        if (!merge_type(r, &br, i, &types[i]))
            return false;
    node_id id = graph_append(b->g, b->region, OP_IF, b->src, &cond, 1, NULL, 0, types, n);
    for (int k = 0; k < 2; k++) {
        graph_adopt_region(b->g, id, br.region[k]);
        for (uint32_t i = 0; i < n; i++)
            graph_add_result(b->g, br.region[k], br.value[k][i]);
    }
    for (uint32_t i = 0; i < n; i++) {
        value_id v = graph_node(b->g, id)->out[i];
        for (int32_t d = 0; types[i].kind == TYPE_TENSOR && d < types[i].rank; d++)
            fresh_bind(b, types[i].dims[d], v);
        rule_out(r, i, v);
    }
    return true;
}

bool rule_if(struct rule *r)
{
    struct builder *b = r->b;
    const region_id imported[2] = {rule_region(r, "then_branch"), rule_region(r, "else_branch")};
    value_id cond = rule_in(r, 0);
    if (!imported[0].i || !imported[1].i)
        return rule_bad(r, "a branch is missing");
    if (!cond.i || v_elem(b, cond) != ELEM_BOOL)
        return cond.i ? rule_bad(r, "the predicate is not bool") : false;
    cond = v_scalar(b, cond);
    enum truth t = value_truth(b, cond);
    uint32_t n = r->n_out;
    if (t == UNKNOWN_) {
        if (region_n_results(r, imported[0]) != n || region_n_results(r, imported[1]) != n)
            return rule_bad(r, "the branches do not have %u outputs", n);
        return if_build(r, cond, imported, n);
    }
    remark_at(r->lg->ctx, r->node->src, "if", "the predicate is always %s: only that branch is compiled",
              t == TRUE_ ? "true" : "false");
    region_id live = imported[t == TRUE_ ? 0 : 1];
    if (region_n_results(r, live) != n)
        return rule_bad(r, "the branch has %u outputs instead of %u", region_n_results(r, live), n);
    return legalize_region(r, live, NULL, 0, r->out, n);
}
