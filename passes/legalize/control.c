/* What the rules of control flow share: walking an imported region, nested legal regions, dims that only exist inside
 * of one, what is known of a predicate.
 */

#include "ir/graph/infer.h"
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

bool legalize_region(struct rule *r, region_id region, const struct lowered *params, uint32_t n_params,
                     struct lowered *results, uint32_t n_results)
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
        results[i] = from->results.data[i].i ? lg->map[from->results.data[i].i]
                                             : (struct lowered){.kind = LOWERED_NONE};
        ok &= results[i].kind != LOWERED_POISON && results[i].kind != LOWERED_NONE;
    }
    return ok;
}

/* ---- types that meet --------------------------------------------------------------------------------------------- */

void fresh_bind(struct builder *b, expr_id dim, value_id v)
{
    sym_id s = ex_as_sym(b->x, dim);
    if (!s.i || sym_get(b->x, s)->kind != SYM_VALUE || sym_get(b->x, s)->value)
        return;
    sym_get(b->x, s)->value = v.i;
    sym_get(b->x, s)->elem = UINT32_MAX;
}

void fresh_rebind(struct builder *b, expr_id dim, value_id v)
{
    sym_id s = ex_as_sym(b->x, dim);
    sym_get(b->x, s)->value = v.i;
    sym_get(b->x, s)->elem = UINT32_MAX;
}

/* Is v a parameter of region inner, or defined within it? */
static bool region_owns(const struct graph *g, region_id inner, value_id v)
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

/* The same, with dims unknown that only exist within inner. */
static const struct type *type_free(struct graph *g, region_id inner, const struct type *t)
{
    struct type *free = arena_copy(&g->arena, t, sizeof *free);
    if (t->kind != TYPE_TENSOR)
        free->inner = t->inner ? type_free(g, inner, t->inner) : NULL;
    if (t->kind != TYPE_TENSOR || t->rank <= 0)
        return free;
    expr_id *dims = arena_copy(&g->arena, t->dims, (size_t)t->rank * sizeof *dims);
    for (int32_t i = 0; i < t->rank; i++)
        if (dims[i].i && dim_escapes(g, inner, dims[i], 16))
            dims[i] = (expr_id){0};
    free->dims = dims;
    return free;
}

bool type_meet(struct graph *g, region_id inner, struct type *a, const struct type *b)
{
    if (a->kind == TYPE_TENSOR || !type_join(g, a, b))
        return false;
    *a = *type_free(g, inner, a);
    return true;
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

/* ---- predicates -------------------------------------------------------------------------------------------------- */

enum truth value_truth(struct builder *b, value_id v)
{
    const struct value *value = graph_value(b->g, v);
    int64_t c;
    if (value->elems && value->n_elems == 1 && value->elems[0].i)
        return ex_truth(b->x, value->elems[0]);
    if (value_is_const(b->g, v) && v_known_i64(b, v, 0, &c))
        return c ? TRUE_ : FALSE_;
    return UNKNOWN_;
}
