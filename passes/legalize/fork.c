/* Forks: what depends on a node in its region is walked once for each of two ways, inside of it. (What does not is
 * walked before: walk.c.)
 *
 * Two things ask for one. An If, or what is like it (branch.c), whose results differ in rank or type: each side goes on
 * with its own. And a rule that has to know something which only the run does (rule_fork): its node is walked on both
 * sides too, with the fact. Splits of one node chain up: "3 elements, or not; if not, 4 or not".
 *
 * Mostly one side cannot run, and becomes a check. Where both reach the end of what is to be walked:
 * - results of the same ranks are those of an If around all of it, and the walk goes on after it;
 * - else, where the region stands in the place of a node (a function's body, a branch that is known), that node's
 * results have several ranks: the fork is passed on, and goes on after that node;
 * - at the end of the graph the If's result, an output, has the rank that the run chooses;
 * - at the end of a branch or a loop's body it is refused.
 */
#include "passes/legalize/fork.h"

#include "ir/graph/infer.h"

/* Forks inside of forks; nodes walked for forks, and legal nodes that came of those: some for each outermost one, and
 * as many as the model has some times over. (A Reshape to a shape of unknown length gives 9 ways and 90 legal nodes,
 * two in a row 81 and 860, each way with kernels of its own.) */
enum { FORKS_MAX = 8, FORK_NODES_FREE = 8000, FORK_NODES_TIMES = 4, FORK_LEGAL_FREE = 400, FORK_LEGAL_TIMES = 32 };

/* ---- asking ------------------------------------------------------------------------------------------------------ */

/* What output `output` is, on all ways: two of the types, and the ranks. */
struct seen {
    const struct type *a, *b;
    int32_t least, most;
};

static void types_seen(const struct graph *g, const struct side *s, uint32_t output, struct seen *seen)
{
    for (int k = 0; s->sub && k < 2; k++)
        types_seen(g, &s->sub->side[k], output, seen);
    if (s->sub)
        return;
    const struct type *t = value_type(g, s->values[output]);
    if (!seen->a)
        seen->a = t;
    if (!seen->b || (seen->b->kind == seen->a->kind && seen->b->elem == seen->a->elem))
        seen->b = t;
    seen->least = t->rank < seen->least ? t->rank : seen->least;
    seen->most = t->rank > seen->most ? t->rank : seen->most;
}

/* A rank or a number is for the run to say, and one more fork would be too many, or there is no place for one. */
static bool fork_refuse(struct rule *r, const struct fork *f)
{
    struct graph *g = r->b->g;
    struct seen seen = {.least = RANK_MAX};
    struct strbuf text = strbuf_of(r->lg->arena);
    ex_print(g->ctx->exprs, f->ways.cond, &text);
    if (f->again)
        return rule_refuse(
            r,
            "the rank of what follows depends on whether %.60s, and on too much else; fix the operands' sizes with "
            "--input",
            text.data);
    for (int k = 0; k < 2; k++)
        types_seen(g, &f->side[k], f->output, &seen);
    bool ranks = seen.a->kind == TYPE_TENSOR && seen.b->kind == TYPE_TENSOR && seen.a->elem == seen.b->elem;
    const char *is = ranks
                         ? arena_printf(r->lg->arena, "has rank %d %s %d", (int)seen.least,
                                        seen.most == seen.least + 1 ? "or" : "to", (int)seen.most)
                         : arena_printf(r->lg->arena, "is %.60s or %.60s", type_text(g, seen.a), type_text(g, seen.b));
    return rule_refuse(
        r, "output %u %s, as the predicate (%.60s) decides at run time; fix the dimension that it tests with --input",
        f->output + 1, is, text.data);
}

/* Is r's node being split already? Its next split is not a fork inside another. */
static bool is_link(const struct rule *r)
{
    return r->lg->split.i && r->lg->split.i == r->node->src.i;
}

/* What forks cost so far, except for what is free of each outermost one. */
static uint64_t spent_over(const struct legalizer *lg, const struct spent *s, uint32_t free)
{
    uint32_t now = lg->n_forks ? s->n - s->start : 0;
    return (uint64_t)s->over + (now > free ? now - free : 0);
}

static bool fork_allowed(const struct rule *r, bool again)
{
    struct legalizer *lg = r->lg;
    uint64_t nodes = lg->from->nodes.n;
    lg->fork_legal.n = lg->to->nodes.n;
    return (lg->n_forks < FORKS_MAX || (again && is_link(r))) &&
           spent_over(lg, &lg->fork_nodes, FORK_NODES_FREE) < FORK_NODES_TIMES * nodes &&
           spent_over(lg, &lg->fork_legal, FORK_LEGAL_FREE) < FORK_LEGAL_TIMES * nodes;
}

bool fork_ask(struct rule *r, struct fork *f)
{
    if (!fork_allowed(r, f->again))
        return fork_refuse(r, f);
    f->rule = *r;
    f->rule.node = arena_copy(r->lg->arena, r->node, sizeof *r->node);
    r->lg->fork = f;
    for (uint32_t i = 0; i < r->n_out; i++)
        r->out[i] = (struct lowered){.kind = LOWERED_POISON}; /* nobody reads the results but what fork_walk walks */
    return true;
}

expr_id fork_cond(const struct fork *f)
{
    return f->ways.cond;
}

bool fork_settled(const struct fork *f)
{
    return fact_find(f->rule.lg, f->ways.cond) != UNKNOWN_;
}

void rule_fork(struct rule *r, expr_id cond, const char *holds, const char *fails)
{
    struct builder *b = r->b;
    struct fork *f = NEW(&b->g->arena, struct fork);
    f->again = true;
    f->ways = (struct ways){.cond = cond, .cond_value = v_expr(b, ELEM_BOOL, cond), .name = {holds, fails}};
    for (int k = 0; k < 2; k++)
        f->side[k] = side_new(b, graph_region(b->g, b->region, (node_id){0}), 0);
    if (f->ways.cond_value.i)
        fork_ask(r, f);
}

bool inlined_walk(struct rule *r, region_id region)
{
    struct legalizer *lg = r->lg;
    const region_id outer = lg->inlined;
    lg->inlined = region;
    walk_region(lg, region);
    lg->inlined = outer;
    struct fork *f = lg->passed_on;
    lg->passed_on = NULL;
    return f && fork_ask(r, f);
}

/* ---- walking ----------------------------------------------------------------------------------------------------- */

/* Gives the node the results of one side. */
static void fork_enter(const struct fork *f, int k)
{
    for (uint32_t i = 0; !f->again && i < f->rule.n_out; i++)
        if (f->rule.node->out[i].i)
            f->rule.lg->map[f->rule.node->out[i].i] = f->side[k].results[i];
}

static bool fork_sides(struct fork *f, const struct stretch *, uint32_t next);

/* Side k goes on in its place, with the results that it has. true: the rest is to be walked in place. */
static bool side_enter(struct fork *f, int k, const struct stretch *s, uint32_t next)
{
    struct fork *sub = f->side[k].sub;
    if (sub) {
        sub->rule = f->rule;
        return fork_sides(sub, s, next);
    }
    fork_enter(f, k);
    return true;
}

struct rest {
    struct fork *fork;
    int k;
    const struct stretch *stretch;
    uint32_t next;
};

static uint32_t result_place(const struct stretch *s, uint32_t i)
{
    return s->result ? s->result[i] : i;
}

static value_id result_of(const struct legalizer *lg, const struct stretch *s, uint32_t i)
{
    return graph_get_region(lg->from, s->region)->results.data[result_place(s, i)];
}

/* Is v the result of a node of that very region? */
static bool region_defines(const struct legalizer *lg, region_id r, value_id v)
{
    node_id def = v.i ? graph_value(lg->from, v)->def : (node_id){0};
    return def.i && graph_node(lg->from, def)->parent.i == r.i;
}

/* Those that come from outside are what they were. */
static void results_set(struct legalizer *lg, const struct stretch *s, const struct lowered *results)
{
    for (uint32_t i = 0; i < s->n_results; i++) {
        const value_id v = result_of(lg, s, i);
        if (region_defines(lg, s->region, v))
            lg->map[v.i] = results[i];
    }
}

/* What the stretch's results are now; those made before the fork, which a fork in one side makes its own, are to
 * be the same for the other side. */
static struct lowered *results_read(const struct legalizer *lg, const struct stretch *s)
{
    struct lowered *now = NEW_ARRAY(lg->arena, struct lowered, s->n_results + 1);
    for (uint32_t i = 0; i < s->n_results; i++) {
        const value_id v = result_of(lg, s, i);
        now[i] = v.i ? lg->map[v.i] : (struct lowered){.kind = LOWERED_NONE};
    }
    return now;
}

/* What follows the node in its stretch, after way k. */
static bool rest_walk(struct rule *r, struct side *s, void *data)
{
    const struct rest *rest = data;
    const struct stretch *stretch = rest->stretch;
    struct legalizer *lg = r->lg;
    const struct lowered *before = results_read(lg, stretch);
    if (side_enter(rest->fork, rest->k, stretch, rest->next))
        walk_rest(lg, stretch, rest->next);
    s->sub = lg->passed_on;
    lg->passed_on = NULL;
    bool ok = true;
    const struct lowered *after = results_read(lg, stretch);
    results_set(lg, stretch, before);
    for (uint32_t i = 0; !s->sub && i < s->n; i++) {
        s->results[i] = after[i];
        ok = ok && s->results[i].kind != LOWERED_POISON && s->results[i].kind != LOWERED_NONE;
        if (ok && stretch->region.i == 1 && s->results[i].kind == LOWERED_VALUE)
            ok = declared_fits(lg, &lg->from->outputs.data[result_place(stretch, i)], s->results[i].v);
    }
    return ok;
}

/* ---- the end of the region --------------------------------------------------------------------------------------- */

/* A side with all results of the region: those that do not come of the stretch are what they are on either side. */
static struct side side_whole(const struct legalizer *lg, const struct stretch *s, const struct side *part)
{
    const struct stretch all = {.region = s->region, .n_results = graph_get_region(lg->from, s->region)->results.n};
    struct side whole = *part;
    whole.n = all.n_results;
    whole.results = results_read(lg, &all);
    whole.values = NEW_ARRAY(lg->arena, value_id, all.n_results + 1);
    for (uint32_t i = 0; !part->sub && i < part->n; i++) {
        whole.results[result_place(s, i)] = part->results[i];
        whole.values[result_place(s, i)] = part->values[i];
    }
    return whole;
}

/* Result `output` of the region has several ranks at its end. */
static bool fork_pass_on(const struct fork *f, const struct side side[2], const struct stretch *s, uint32_t output)
{
    struct legalizer *lg = f->rule.lg;
    struct fork *on = NEW(lg->arena, struct fork);
    *on = (struct fork){.rule = f->rule, .ways = f->ways, .output = output};
    for (int k = 0; k < 2; k++)
        on->side[k] = side_whole(lg, s, &side[k]);
    if (lg->inlined.i != s->region.i)
        return fork_refuse(&on->rule, on);
    lg->passed_on = on;
    return false;
}

/* May output i be a tensor of a rank that the run chooses? Elements narrower than a byte are packed as the rank
 * says. */
static bool ranks_meet(const struct graph *g, const struct side *a, const struct side *b, uint32_t i)
{
    const struct type *x = value_type(g, a->values[i]), *y = value_type(g, b->values[i]);
    return x->kind == TYPE_TENSOR && y->kind == TYPE_TENSOR && x->elem == y->elem && elem_bits(x->elem) >= 8;
}

/* Both sides reach the end: those of the results that differ are results of an If around them. */
static bool fork_merge(struct fork *f, struct side side[2], const struct stretch *s, struct lowered *results)
{
    struct rule *r = &f->rule;
    struct graph *g = r->b->g;
    uint32_t *pick = NEW_ARRAY(&g->arena, uint32_t, side[0].n + 1), n = 0;
    for (int k = 0; k < 2; k++)
        if (side[k].sub)
            return fork_pass_on(f, side, s, side[k].sub->output);
    for (uint32_t i = 0; i < side[0].n; i++) {
        results[i] = side[0].results[i];
        if (side[0].values[i].i == side[1].values[i].i)
            continue;
        if (!types_meet(r, side, i) && !(s->region.i == 1 && ranks_meet(g, &side[0], &side[1], i)))
            return fork_pass_on(f, side, s, result_place(s, i));
        pick[n++] = i;
    }
    node_id id = if_append(r, side, &f->ways, pick, n);
    for (uint32_t i = 0; i < n; i++)
        results[pick[i]] = lowered_value(graph_node(g, id)->out[i]);
    return true;
}

static void rest_remark(struct rule *r, const struct fork *f, const struct side *s, int k)
{
    remark_at(r->lg->ctx, r->node->src, "if",
              "after %s '%.200s' cannot run, so the run checks that it is not chosen: %s", f->ways.name[k],
              source_name(r->lg, s->where), s->why);
}

/* The regions of forks that were inside of a side which now stands in place. */
static void fork_hang(struct graph *g, const struct fork *f, region_id parent)
{
    for (int k = 0; f && k < 2; k++) {
        graph_hang_region(g, f->side[k].region, parent);
        fork_hang(g, f->side[k].sub, f->side[k].region);
    }
}

/* Side k stays alone, in place. */
static void fork_keep(struct fork *f, int k, const struct side *other, struct fork *sub)
{
    rest_remark(&f->rule, f, other, 1 - k);
    side_keep(&f->rule, &f->ways, k, other, f->side[k].region);
    fork_hang(f->rule.b->g, sub, f->rule.b->region);
}

/* true: the rest goes on in place, with side 0. */
static bool fork_sides(struct fork *f, const struct stretch *s, uint32_t next)
{
    struct rule *r = &f->rule;
    struct legalizer *lg = r->lg;
    uint32_t n = s->n_results;
    struct side side[2] = {side_new(r->b, f->side[0].region, n), side_new(r->b, f->side[1].region, n)};
    struct rest rest[2] = {{f, 0, s, next}, {f, 1, s, next}};
    struct lowered *results = NEW_ARRAY(lg->arena, struct lowered, n + 1);
    side_walk(r, f->ways.cond, false, &side[1], rest_walk, &rest[1]);
    if (side[1].outcome == BROKEN) {
        fork_keep(f, 0, &side[1], f->side[0].sub);
        return side_enter(f, 0, s, next);
    }
    side_walk(r, f->ways.cond, true, &side[0], rest_walk, &rest[0]);
    int alone = side_alone(side);
    bool ok = true;
    if (alone >= 0) {
        fork_keep(f, alone, &side[1 - alone], side[alone].sub);
        results = side[alone].results;
        lg->passed_on = side[alone].sub;
        ok = !side[alone].sub;
    } else if (side[0].outcome == RUNS && side[1].outcome == RUNS) {
        ok = fork_merge(f, side, s, results);
    } else {
        sides_report(r, side);
        if (!f->again && side[0].outcome != BROKEN && side[1].outcome != BROKEN)
            fork_refuse(r, f); /* what has no lowering may come of the rank */
        ok = false;
    }
    for (uint32_t i = 0; !ok && i < n; i++)
        results[i] = (struct lowered){.kind = LOWERED_POISON};
    results_set(lg, s, results);
    return false;
}

static void spent_begin(struct legalizer *lg)
{
    lg->fork_nodes.start = lg->fork_nodes.n;
    lg->fork_legal.start = lg->to->nodes.n;
}

static void spent_end(struct legalizer *lg)
{
    lg->fork_legal.n = lg->to->nodes.n;
    lg->fork_nodes.over = spent_over(lg, &lg->fork_nodes, FORK_NODES_FREE);
    lg->fork_legal.over = spent_over(lg, &lg->fork_legal, FORK_LEGAL_FREE);
}

bool fork_walk(struct legalizer *lg, struct fork *f, const struct stretch *s, uint32_t *at)
{
    bool link = f->again && is_link(&f->rule), outermost = !lg->n_forks;
    const src_id outer = lg->b.src, split = lg->split;
    lg->b.src = f->rule.node->src;
    if (f->again)
        lg->split = lg->b.src;
    else
        ++*at;
    if (outermost)
        spent_begin(lg);
    lg->n_forks += !link;
    bool in_place = fork_sides(f, s, *at);
    if (outermost)
        spent_end(lg);
    lg->n_forks -= !link;
    lg->split = split;
    lg->b.src = outer;
    return in_place;
}
