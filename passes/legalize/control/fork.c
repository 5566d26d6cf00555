/* Forks: what follows a node in its region is walked once for each of two ways, inside of it.
 *
 * Two things ask for one. An If, or what is like it (branch.c), whose results differ in rank or type: each side goes on
 * with its own. And a rule that has to know something which only the run does (rule_fork): its node is walked on both
 * sides too, with the fact. Splits of one node chain up: "3 elements, or not; if not, 4 or not".
 *
 * Mostly one side cannot run, and becomes a check. Where both reach the end of the region:
 * - results of the same ranks are those of an If around all of it, and the walk goes on behind it;
 * - else, where the region stands in the place of a node (a function's body, a branch that is known), that node's
 * results have several ranks: the fork is passed on, and goes on behind that node;
 * - at the end of the graph the If's result, an output, has the rank that the run chooses;
 * - at the end of a branch or a loop's body it is refused.
 */
#include "passes/legalize/control/fork.h"

#include "ir/graph/infer.h"

/* Forks inside of forks; nodes walked for forks, and legal nodes that came of those: some, and as many as the model has
 * some times over. (A Reshape to a shape of unknown length gives 9 ways and 90 legal nodes, two in a row 81 and 860,
 * each way with kernels of its own.) */
enum { FORKS_MAX = 8, FORK_NODES_FREE = 2000, FORK_NODES_TIMES = 4, FORK_LEGAL_FREE = 400, FORK_LEGAL_TIMES = 32 };

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
    struct strbuf text;
    strbuf_init(&text, r->lg->arena);
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

/* Is r's node being split already? Its next split is no fork inside of another. */
static bool is_link(const struct rule *r)
{
    return r->lg->split.i && r->lg->split.i == r->node->src.i;
}

static bool fork_allowed(const struct rule *r, bool again)
{
    const struct legalizer *lg = r->lg;
    uint32_t legal = lg->fork_legal + (lg->n_forks ? lg->to->nodes.n - lg->fork_start : 0);
    return (lg->n_forks < FORKS_MAX || (again && is_link(r))) &&
           lg->fork_nodes / FORK_NODES_TIMES < lg->from->nodes.n + FORK_NODES_FREE &&
           legal < FORK_LEGAL_FREE + FORK_LEGAL_TIMES * (uint64_t)lg->from->nodes.n;
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

static bool fork_sides(struct fork *f, region_id region, uint32_t next);

/* Side k goes on in its place, with the results that it has. true: the rest is to be walked in place. */
static bool side_enter(struct fork *f, int k, region_id region, uint32_t next)
{
    struct fork *sub = f->side[k].sub;
    if (sub) {
        sub->rule = f->rule;
        return fork_sides(sub, region, next);
    }
    fork_enter(f, k);
    return true;
}

struct rest {
    struct fork *fork;
    int k;
    region_id region;
    uint32_t next;
};

/* Those that come from outside are what they were. */
static void results_set(struct legalizer *lg, region_id region, const struct lowered *results)
{
    const struct region *from = graph_get_region(lg->from, region);
    for (uint32_t i = 0; i < from->results.n; i++)
        if (region_defines(lg, region, from->results.data[i]))
            lg->map[from->results.data[i].i] = results[i];
}

/* What the region's results are now; those made in front of the fork, which a fork in one side makes its own, are to be
 * the same for the other side. */
static struct lowered *results_read(const struct legalizer *lg, const struct region *region)
{
    struct lowered *now = NEW_ARRAY(lg->arena, struct lowered, region->results.n + 1);
    for (uint32_t i = 0; i < region->results.n; i++)
        now[i] = region->results.data[i].i ? lg->map[region->results.data[i].i]
                                           : (struct lowered){.kind = LOWERED_NONE};
    return now;
}

/* What follows the node in its region, behind way k. */
static bool rest_walk(struct rule *r, struct side *s, void *data)
{
    const struct rest *rest = data;
    struct legalizer *lg = r->lg;
    const struct region *region = graph_get_region(lg->from, rest->region);
    const struct lowered *before = results_read(lg, region);
    if (side_enter(rest->fork, rest->k, rest->region, rest->next))
        walk_rest(lg, rest->region, rest->next);
    s->sub = lg->passed_on;
    lg->passed_on = NULL;
    bool ok = true;
    const struct lowered *behind = results_read(lg, region);
    results_set(lg, rest->region, before);
    for (uint32_t i = 0; !s->sub && i < s->n; i++) {
        s->results[i] = behind[i];
        ok = ok && s->results[i].kind != LOWERED_POISON && s->results[i].kind != LOWERED_NONE;
        if (ok && rest->region.i == 1 && s->results[i].kind == LOWERED_VALUE)
            ok = declared_fits(lg, &lg->from->outputs.data[i], s->results[i].v);
    }
    return ok;
}

/* ---- the end of the region --------------------------------------------------------------------------------------- */

/* Result `output` has several ranks at the end of the region. */
static bool fork_pass_on(const struct fork *f, const struct side side[2], region_id region, uint32_t output)
{
    struct legalizer *lg = f->rule.lg;
    struct fork *on = NEW(lg->arena, struct fork);
    *on = (struct fork){.rule = f->rule, .ways = f->ways, .side = {side[0], side[1]}, .output = output};
    if (lg->inlined.i != region.i)
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

/* Both sides reach the region's end: those of its results that differ are results of an If around them. */
static bool fork_merge(struct fork *f, struct side side[2], region_id region, struct lowered *results)
{
    struct rule *r = &f->rule;
    struct graph *g = r->b->g;
    uint32_t *pick = NEW_ARRAY(&g->arena, uint32_t, side[0].n + 1), n = 0;
    for (int k = 0; k < 2; k++)
        if (side[k].sub)
            return fork_pass_on(f, side, region, side[k].sub->output);
    for (uint32_t i = 0; i < side[0].n; i++) {
        results[i] = side[0].results[i];
        if (side[0].values[i].i == side[1].values[i].i)
            continue;
        if (!types_meet(r, side, i) && !(region.i == 1 && ranks_meet(g, &side[0], &side[1], i)))
            return fork_pass_on(f, side, region, i);
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
static bool fork_sides(struct fork *f, region_id region, uint32_t next)
{
    struct rule *r = &f->rule;
    struct legalizer *lg = r->lg;
    uint32_t n = graph_get_region(lg->from, region)->results.n;
    struct side side[2] = {side_new(r->b, f->side[0].region, n), side_new(r->b, f->side[1].region, n)};
    struct rest rest[2] = {{f, 0, region, next}, {f, 1, region, next}};
    struct lowered *results = NEW_ARRAY(lg->arena, struct lowered, n + 1);
    side_walk(r, f->ways.cond, false, &side[1], rest_walk, &rest[1]);
    if (side[1].outcome == BROKEN) {
        fork_keep(f, 0, &side[1], f->side[0].sub);
        return side_enter(f, 0, region, next);
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
        ok = fork_merge(f, side, region, results);
    } else {
        sides_report(r, side);
        if (!f->again && side[0].outcome != BROKEN && side[1].outcome != BROKEN)
            fork_refuse(r, f); /* what has no lowering may come of the rank */
        ok = false;
    }
    for (uint32_t i = 0; !ok && i < n; i++)
        results[i] = (struct lowered){.kind = LOWERED_POISON};
    results_set(lg, region, results);
    return false;
}

bool fork_walk(struct legalizer *lg, struct fork *f, region_id region, uint32_t *at)
{
    bool link = f->again && is_link(&f->rule);
    const src_id outer = lg->b.src, split = lg->split;
    lg->b.src = f->rule.node->src;
    if (f->again)
        lg->split = lg->b.src;
    else
        ++*at;
    if (!lg->n_forks)
        lg->fork_start = lg->to->nodes.n;
    lg->n_forks += !link;
    bool in_place = fork_sides(f, region, *at);
    lg->n_forks -= !link;
    if (!lg->n_forks)
        lg->fork_legal += lg->to->nodes.n - lg->fork_start;
    lg->split = split;
    lg->b.src = outer;
    return in_place;
}
