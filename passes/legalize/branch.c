/* If, and whatever else gives its results on one of two ways as the run decides.
 *
 * A predicate that is known, that follows from the ranges of symbols, or that an enclosing If has decided, leaves one
 * branch to look at. Else both are walked, on trial, and
 * - one that cannot run at the sizes at hand (its types contradict each other, or a check in it always fails) becomes
 * an assert of the predicate before the other, which then stands in the place of the If;
 * - where both can, the dims of their results merge into a selection by the predicate where both are known outside,
 * else into a fresh symbol that the If's result binds;
 * - where a result's rank or type differs, the If cannot have a type: what follows it is walked once for each branch
 * (fork.c).
 */
#include "ir/graph/infer.h"
#include "passes/legalize/fork.h"

/* ---- one side, on trial ------------------------------------------------------------------------------------------ */

const char *source_name(const struct legalizer *lg, src_id src)
{
    return source_label(source_get(lg->ctx, src));
}

static void errors_take(struct rule *r, const struct diag_mark *mark, struct side *s)
{
    s->outcome = REFUSED;
    if (!diag_take(r->lg->ctx, mark, &s->errors))
        return;
    s->outcome = BROKEN;
    const struct diag *first = s->errors.data;
    while (first->severity != SEV_ERROR) /* diag_take promises one */
        first++;
    s->where = first->src.i ? first->src : r->node->src;
    s->why = first->text;
}

void side_walk(struct rule *r, expr_id cond, bool holds, struct side *s, side_fn *walk, void *data)
{
    struct legalizer *lg = r->lg;
    struct builder *b = r->b;
    const struct diag_mark mark = diag_mark(lg->ctx), *outer_trial = lg->trial;
    uint32_t n_refusals = lg->refusals.n, n_facts = lg->facts.n;
    const region_id outer = b->region, outer_whole = b->whole;
    b->region = b->whole = s->region;
    lg->trial = &mark;
    VEC_PUSH(lg->arena, &lg->facts, ((struct fact){.cond = cond, .holds = holds}));
    bool ok = walk(r, s, data);
    for (uint32_t i = 0; ok && !s->sub && i < s->n; i++) {
        s->values[i] = lowered_force(b, s->results[i]);
        ok = s->values[i].i != 0;
    }
    lg->facts.n = n_facts;
    lg->trial = outer_trial;
    b->region = outer;
    b->whole = outer_whole;
    s->outcome = ok ? RUNS : REFUSED;
    if (lg->ctx->n_errors != mark.n_errors)
        errors_take(r, &mark, s);
    if (s->outcome == BROKEN)
        lg->refusals.n = n_refusals; /* what cannot run need not be served */
}

struct side side_new(struct builder *b, region_id region, uint32_t n)
{
    return (struct side){.region = region,
                         .n = n,
                         .results = NEW_ARRAY(&b->g->arena, struct lowered, n + 1),
                         .values = NEW_ARRAY(&b->g->arena, value_id, n + 1)};
}

/* ---- one side is left -------------------------------------------------------------------------------------------- */

int side_alone(const struct side side[2])
{
    for (int k = 0; k < 2; k++)
        if (side[k].outcome == RUNS && side[1 - k].outcome == BROKEN)
            return k;
    return -1;
}

void sides_report(struct rule *r, const struct side side[2])
{
    for (int k = 0; k < 2; k++)
        if (side[k].outcome == BROKEN && side[1 - k].outcome != REFUSED)
            diag_put_back(r->lg->ctx, &side[k].errors);
}

void side_keep(struct rule *r, const struct ways *ways, int k, const struct side *other, region_id region)
{
    expr_id cond = ways->cond;
    struct builder *b = r->b;
    struct legalizer *lg = r->lg;
    struct fact fact = {.cond = cond, .holds = k == 0};
    src_id outer = b->src;
    b->src = other->where;
    b_assert(b, k == 0 ? cond : ex_not(b->x, cond), EVAL_SHAPE, "%.180s; only %s of '%.60s' can run", other->why,
             ways->name[k], source_name(lg, r->node->src));
    b->src = outer;
    graph_splice_region(b->g, region);
    VEC_PUSH(lg->arena, &lg->facts, fact);
}

/* ---- both are left: types that meet ------------------------------------------------------------------------------ */

/* Is there a type for a value that is an x or a y? */
static bool is_common(struct graph *g, const struct type *x, const struct type *y)
{
    struct type t = *x;
    if (x->kind == TYPE_TENSOR)
        return y->kind == TYPE_TENSOR && x->elem == y->elem && x->rank == y->rank;
    return type_join(g, &t, y);
}

/* Where one side gives an optional and the other its content, the content becomes an optional, too. */
static void optional_align(struct rule *r, struct side side[2], uint32_t i)
{
    struct builder *b = r->b;
    for (int k = 0; k < 2; k++) {
        const struct type *have = value_type(b->g, side[k].values[i]), *other = value_type(b->g, side[1 - k].values[i]);
        struct type held = other->kind == TYPE_OPTIONAL && other->inner ? *other->inner : (struct type){0};
        if (held.kind == TYPE_UNKNOWN || !type_join(b->g, &held, have))
            continue;
        const region_id outer = b->region;
        b->region = side[k].region;
        side[k].values[i] = b_op(b, OP_OPT_MAKE, &side[k].values[i], 1, NULL, 0);
        side[k].results[i] = lowered_value(side[k].values[i]);
        b->region = outer;
    }
}

bool types_meet(struct rule *r, struct side side[2], uint32_t i)
{
    struct graph *g = r->b->g;
    optional_align(r, side, i);
    return is_common(g, value_type(g, side[0].values[i]), value_type(g, side[1].values[i]));
}

enum { MERGED_PARTS = 100 }; /* of a dim as a selection; a longer one is a symbol */

static const expr_id *merge_dims(struct rule *r, const struct side side[2], expr_id cond, const struct type *a,
                                 const struct type *c)
{
    struct graph *g = r->b->g;
    expr_id *dims = NEW_ARRAY(&g->arena, expr_id, a->rank + 1);
    for (int32_t i = 0; i < a->rank; i++) {
        dims[i] = a->dims[i];
        bool inside = dim_escapes(g, side[0].region, a->dims[i], 16) || dim_escapes(g, side[1].region, c->dims[i], 16);
        if (!inside && a->dims[i].i != c->dims[i].i)
            dims[i] = ex_select(r->b->x, cond, a->dims[i], c->dims[i]);
        if (inside || (a->dims[i].i != c->dims[i].i && ex_size(r->b->x, dims[i]) > MERGED_PARTS))
            dims[i] = b_symbol(r->b, "if_dim", INT32_MAX);
    }
    return dims;
}

/* Of values whose types meet, except for a rank perhaps. */
static struct type merge_type(struct rule *r, const struct side side[2], expr_id cond, uint32_t i)
{
    struct graph *g = r->b->g;
    const struct type *a = value_type(g, side[0].values[i]), *c = value_type(g, side[1].values[i]);
    struct type t = *a;
    if (a->kind == TYPE_TENSOR) {
        t.rank = a->rank == c->rank ? a->rank : RANK_UNKNOWN;
        t.dims = t.rank == RANK_UNKNOWN ? NULL : merge_dims(r, side, cond, a, c);
        return t;
    }
    for (int k = 0; k < 2; k++)
        type_meet(g, side[k].region, &t, c);
    return t;
}

node_id if_append(struct rule *r, const struct side side[2], const struct ways *ways, const uint32_t *pick, uint32_t n)
{
    struct builder *b = r->b;
    struct type *types = NEW_ARRAY(&b->g->arena, struct type, n + 1);
    for (uint32_t i = 0; i < n; i++)
        types[i] = merge_type(r, side, ways->cond, pick[i]);
    node_id id = graph_append(b->g, b->region, OP_IF, b->src, &ways->cond_value, 1, NULL, 0, types, n);
    for (int k = 0; k < 2; k++) {
        graph_adopt_region(b->g, id, side[k].region);
        for (uint32_t i = 0; i < n; i++)
            graph_add_result(b->g, side[k].region, side[k].values[pick[i]]);
    }
    for (uint32_t i = 0; i < n; i++) {
        value_id v = graph_node(b->g, id)->out[i];
        for (int32_t d = 0; types[i].kind == TYPE_TENSOR && d < types[i].rank; d++)
            fresh_bind(b, types[i].dims[d], v);
    }
    return id;
}

/* ---- two ways ---------------------------------------------------------------------------------------------------- */

enum truth fact_find(const struct legalizer *lg, expr_id cond)
{
    expr_id not = ex_not(lg->ctx->exprs, cond);
    for (uint32_t i = lg->facts.n; i-- > 0;) {
        const struct fact *f = &lg->facts.data[i];
        if (f->cond.i == cond.i || f->cond.i == not.i)
            return f->holds == (f->cond.i == cond.i) ? TRUE_ : FALSE_;
    }
    return UNKNOWN_;
}

struct way {
    const struct ways *ways;
    int k;
};

static bool way_walk(struct rule *r, struct side *s, void *data)
{
    const struct way *way = data;
    return way->ways->walk(r, way->ways->data[way->k], s->results, s->n);
}

/* Does anything in the file read result i? */
static bool is_used(const struct rule *r, uint32_t i)
{
    return rule_wants(r, i) && graph_value(r->lg->from, r->node->out[i])->n_uses > 0;
}

bool rule_either(struct rule *r, const struct ways *ways)
{
    struct builder *b = r->b;
    struct fork *f = NEW(&b->g->arena, struct fork);
    f->ways = *ways;
    for (int k = 0; k < 2; k++) {
        struct way way = {.ways = ways, .k = k};
        f->side[k] = side_new(b, graph_region(b->g, b->region, (node_id){0}), r->n_out);
        side_walk(r, ways->cond, k == 0, &f->side[k], way_walk, &way);
    }
    int alone = side_alone(f->side);
    if (alone >= 0) {
        const struct side *other = &f->side[1 - alone];
        warn_at(r->lg->ctx, r->node->src, "if", "%s cannot run at these sizes, choosing it fails the run: '%.200s': %s",
                ways->name[1 - alone], source_name(r->lg, other->where), other->why);
        side_keep(r, ways, alone, other, f->side[alone].region);
        memcpy(r->out, f->side[alone].results, r->n_out * sizeof *r->out);
        return true;
    }
    if (f->side[0].outcome != RUNS || f->side[1].outcome != RUNS) {
        sides_report(r, f->side);
        return false;
    }
    uint32_t *used = NEW_ARRAY(&b->g->arena, uint32_t, r->n_out + 1), n = 0;
    for (f->output = 0; f->output < r->n_out; f->output++) {
        r->out[f->output] = (struct lowered){.kind = LOWERED_POISON};
        if (!is_used(r, f->output))
            continue;
        if (!types_meet(r, f->side, f->output))
            return fork_ask(r, f);
        used[n++] = f->output;
    }
    node_id id = if_append(r, f->side, ways, used, n);
    for (uint32_t i = 0; i < n; i++)
        rule_out(r, used[i], graph_node(b->g, id)->out[i]);
    return true;
}

/* ---- If ---------------------------------------------------------------------------------------------------------- */

static bool branch_walk(struct rule *r, const void *data, struct lowered *results, uint32_t n)
{
    const region_id *imported = data;
    return legalize_region(r, *imported, NULL, 0, results, n);
}

/* The predicate is known. */
static bool if_inline(struct rule *r, region_id live)
{
    const struct region *from = graph_get_region(r->lg->from, live);
    bool ok = true;
    if (from->results.n != r->n_out || from->params.n)
        return rule_bad(r, "the branch has %u inputs and %u outputs, 0 and %u are wanted", from->params.n,
                        from->results.n, r->n_out);
    if (inlined_walk(r, live))
        return true;
    for (uint32_t i = 0; i < r->n_out; i++) {
        value_id v = from->results.data[i];
        r->out[i] = v.i ? r->lg->map[v.i] : (struct lowered){.kind = LOWERED_NONE};
        ok &= r->out[i].kind != LOWERED_POISON && r->out[i].kind != LOWERED_NONE;
    }
    return ok;
}

bool rule_if(struct rule *r)
{
    struct builder *b = r->b;
    region_id imported[2] = {rule_region(r, "then_branch"), rule_region(r, "else_branch")};
    value_id cond = rule_in(r, 0);
    if (!imported[0].i || !imported[1].i)
        return rule_bad(r, "a branch is missing");
    if (!cond.i || v_elem(b, cond) != ELEM_BOOL)
        return cond.i ? rule_bad(r, "the predicate is not bool") : false;
    cond = v_scalar(b, cond);
    if (!cond.i)
        return false;
    enum truth t = value_truth(b, cond);
    expr_id e = t == UNKNOWN_ ? b_elem(b, cond, 0, 1) : (expr_id){0};
    if (e.i)
        t = fact_find(r->lg, e);
    uint32_t n = r->n_out;
    if (t == UNKNOWN_) {
        if (region_n_results(r, imported[0]) != n || region_n_results(r, imported[1]) != n)
            return rule_bad(r, "the branches do not have %u outputs", n);
        struct ways ways = {.cond_value = cond,
                            .cond = e,
                            .walk = branch_walk,
                            .data = {&imported[0], &imported[1]},
                            .name = {"the then branch", "the else branch"}};
        return e.i && rule_either(r, &ways);
    }
    remark_at(r->lg->ctx, r->node->src, "if", "the predicate is always %s%s: only that branch is compiled",
              t == TRUE_ ? "true" : "false", e.i ? " here" : "");
    return if_inline(r, imported[t == TRUE_ ? 0 : 1]);
}
