/* The walk over the nodes of a region, in their order except for forks (fork.c).
 *
 * A node that asks for a fork waits, and so does all that depends on it: what does not is walked first, once. What then
 * waits falls into groups of which none depends on another. Each is walked for both ways of its first fork, up to its
 * own end, so the forks of two groups lie one after the other, and not one in each way of the other. Groups whose
 * forks ask about the same condition are one: the one fork may say what the other wants to know. So are all of a region
 * that stands in the place of a node, which can go on after it with results of several ranks once.
 */
#include "passes/legalize/driver.h"

/* Nodes looked at for what depends on forks; past that, all that follows a fork goes with it. */
enum { LOOKS_MAX = 1 << 22 };

static bool trial_over(const struct legalizer *lg)
{
    return lg->trial && lg->ctx->n_errors != lg->trial->n_errors;
}

static bool is_walked(const struct legalizer *lg, node_id id)
{
    return !graph_node(lg->from, id)->dead && lg->live[id.i];
}

/* Walks the node. The fork that it asks for, or NULL. */
static struct fork *node_asks(struct legalizer *lg, node_id id)
{
    if (!is_walked(lg, id))
        return NULL;
    node_walk(lg, graph_node(lg->from, id));
    struct fork *fork = lg->fork;
    lg->fork = NULL;
    return fork;
}

/* ---- what waits -------------------------------------------------------------------------------------------------- */

struct waiting {
    node_id node;
    struct fork *fork; /* that it asks for; NULL: it depends on one that waits */
    uint32_t group; /* one of its group that comes before it; itself: the first */
};

struct apart {
    struct legalizer *lg;
    struct arena arena;
    VEC(struct waiting) waiting;
    uint32_t found; /* group of those that the node at hand depends on */
};
#define NO_GROUP UINT32_MAX

static uint32_t group_of(struct apart *a, uint32_t i)
{
    struct waiting *w = a->waiting.data;
    for (; w[i].group != i; i = w[i].group)
        w[i].group = w[w[i].group].group;
    return i;
}

static uint32_t groups_join(struct apart *a, uint32_t x, uint32_t y)
{
    x = group_of(a, x);
    y = group_of(a, y);
    uint32_t first = x < y ? x : y;
    a->waiting.data[x].group = a->waiting.data[y].group = first;
    return first;
}

/* The place of the node that makes v among those that wait, or NO_GROUP. */
static uint32_t waits_for(const struct apart *a, value_id v)
{
    node_id def = v.i ? graph_value(a->lg->from, v)->def : (node_id){0};
    uint32_t at = def.i ? a->lg->waits[def.i] : 0;
    return def.i && at < a->waiting.n && a->waiting.data[at].node.i == def.i ? at : NO_GROUP;
}

static void value_look(struct apart *a, value_id v)
{
    uint32_t at = waits_for(a, v);
    if (at != NO_GROUP)
        a->found = a->found == NO_GROUP ? group_of(a, at) : groups_join(a, a->found, at);
}

/* Which of those that wait does the node depend on, its regions included? */
static void node_look(struct apart *a, const struct node *node)
{
    a->lg->fork_looks++;
    for (uint32_t i = 0; i < node->n_in; i++)
        value_look(a, node->in[i]);
    for (uint32_t k = 0; k < node->n_region; k++) {
        const struct region *r = graph_get_region(a->lg->from, node->region[k]);
        for (uint32_t i = 0; i < r->nodes.n; i++)
            node_look(a, graph_node(a->lg->from, r->nodes.data[i]));
        for (uint32_t i = 0; i < r->results.n; i++)
            value_look(a, r->results.data[i]);
    }
}

static void node_wait(struct apart *a, node_id id, uint32_t group)
{
    a->lg->waits[id.i] = a->waiting.n;
    VEC_PUSH(&a->arena, &a->waiting, ((struct waiting){.node = id, .group = group}));
}

/* Where the place is kept of the node that asks for a fork with this condition. */
static uint32_t *cond_place(struct legalizer *lg, expr_id cond)
{
    while (lg->cond_waits.n <= cond.i)
        VEC_PUSH(lg->arena, &lg->cond_waits, 0);
    return &lg->cond_waits.data[cond.i];
}

/* The node waits as it asks for the fork. Is it to be in a group with another one that does? */
static void fork_wait(struct apart *a, node_id id, struct fork *fork, bool together)
{
    const uint32_t last = a->waiting.n;
    const expr_id cond[] = {fork_cond(fork), ex_not(a->lg->ctx->exprs, fork_cond(fork))};
    node_wait(a, id, last);
    a->waiting.data[last].fork = fork;
    if (together)
        groups_join(a, 0, last);
    for (size_t k = 0; k < COUNT_OF(cond); k++) {
        const uint32_t at = *cond_place(a->lg, cond[k]);
        const struct fork *other = at < last ? a->waiting.data[at].fork : NULL;
        if (other && fork_cond(other).i == cond[k].i)
            groups_join(a, at, last);
    }
    *cond_place(a->lg, cond[0]) = last;
}

/* Walks what does not depend on a fork; the rest waits. */
static void rest_part(struct apart *a, const struct stretch *s, uint32_t at, struct fork *fork)
{
    struct legalizer *lg = a->lg;
    const bool together = lg->inlined.i == s->region.i;
    fork_wait(a, s->nodes[at], fork, together);
    for (uint32_t i = at + 1; i < s->n && !trial_over(lg); i++) {
        const node_id id = s->nodes[i];
        if (!is_walked(lg, id))
            continue;
        a->found = NO_GROUP;
        node_look(a, graph_node(lg->from, id));
        if (a->found != NO_GROUP)
            node_wait(a, id, a->found);
        else if ((fork = node_asks(lg, id)))
            fork_wait(a, id, fork, together);
    }
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

/* Lists of all groups in a row: where that of the group whose first waits at i begins, and its length. */
struct lists {
    uint32_t *begin, *n;
};

static struct lists lists_new(struct arena *arena, uint32_t n)
{
    return (struct lists){.begin = NEW_ARRAY(arena, uint32_t, n), .n = NEW_ARRAY(arena, uint32_t, n)};
}

/* From counts to places; the counts are made anew as the lists are filled. */
static uint32_t lists_place(struct lists *l, uint32_t n)
{
    uint32_t total = 0;
    for (uint32_t i = 0; i < n; i++) {
        l->begin[i] = total;
        total += l->n[i];
        l->n[i] = 0;
    }
    return total;
}

/* group[i]: the nodes that wait and are of the group whose first waits at i, and their results; none elsewhere. */
static struct stretch *groups_list(struct apart *a, const struct stretch *s)
{
    struct arena *arena = &a->arena;
    const struct region *r = graph_get_region(a->lg->from, s->region);
    const uint32_t n = a->waiting.n;
    struct lists nodes = lists_new(arena, n), results = lists_new(arena, n);
    for (uint32_t i = 0; i < n; i++)
        nodes.n[group_of(a, i)]++;
    for (uint32_t i = 0, at; i < r->results.n; i++)
        if ((at = waits_for(a, r->results.data[i])) != NO_GROUP)
            results.n[group_of(a, at)]++;
    node_id *node = NEW_ARRAY(arena, node_id, lists_place(&nodes, n) + 1);
    uint32_t *result = NEW_ARRAY(arena, uint32_t, lists_place(&results, n) + 1);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t g = group_of(a, i);
        node[nodes.begin[g] + nodes.n[g]++] = a->waiting.data[i].node;
    }
    for (uint32_t i = 0, at; i < r->results.n; i++)
        if ((at = waits_for(a, r->results.data[i])) != NO_GROUP) {
            uint32_t g = group_of(a, at);
            result[results.begin[g] + results.n[g]++] = i;
        }
    struct stretch *group = NEW_ARRAY(arena, struct stretch, n);
    for (uint32_t i = 0; i < n; i++)
        group[i] = (struct stretch){.region = s->region,
                                    .nodes = node + nodes.begin[i],
                                    .n = nodes.n[i],
                                    .result = result + results.begin[i],
                                    .n_results = results.n[i]};
    a->lg->fork_looks += n + r->results.n;
    return group;
}

/* Walks the rest of the stretch, whose node number `at` asked for the fork, as the head of this file says. What of it
 * goes on in place. */
static struct stretch forks_walk(struct legalizer *lg, const struct stretch *s, uint32_t at, struct fork *fork)
{
    struct apart a = {.lg = lg};
    uint32_t facts = lg->facts.n;
    arena_init(&a.arena, lg->ctx);
    rest_part(&a, s, at, fork);
    const struct stretch *group = groups_list(&a, s);
    node_id *nodes = NEW_ARRAY(lg->arena, node_id, a.waiting.n);
    struct stretch on = {.region = s->region, .nodes = nodes, .result = s->result, .n_results = s->n_results};
    for (uint32_t i = 0; i < a.waiting.n && !trial_over(lg); i++) {
        fork = a.waiting.data[i].fork;
        at = 0;
        /* what was walked since may have settled it: then the node itself can tell */
        bool settled = group[i].n && lg->facts.n > facts && fork_settled(fork);
        if (group[i].n && (settled || fork_walk(lg, fork, &group[i], &at)))
            for (; at < group[i].n; at++)
                nodes[on.n++] = group[i].nodes[at];
    }
    arena_release(&a.arena);
    return on;
}

/* ---- the walk ---------------------------------------------------------------------------------------------------- */

/* The results of a walk that was given up; what stands before it, or comes from outside, keeps what it is. */
static void stretch_poison(struct legalizer *lg, const struct stretch *s, uint32_t first)
{
    for (uint32_t i = first; i < s->n; i++)
        node_poison(lg, graph_node(lg->from, s->nodes[i]));
}

void walk_rest(struct legalizer *lg, const struct stretch *s, uint32_t first)
{
    uint32_t facts = lg->facts.n, block_quantized = lg->block_quantized.n, ggml = lg->ggml.n,
             calibrated = lg->calibrated.n;
    struct stretch now = *s;
    for (uint32_t i = first; i < now.n && !trial_over(lg);) {
        struct fork *fork = node_asks(lg, now.nodes[i]);
        if (!fork) {
            i++;
        } else if (lg->fork_looks < LOOKS_MAX) {
            now = forks_walk(lg, &now, i, fork);
            i = 0;
        } else if (!fork_walk(lg, fork, &now, &i)) {
            break;
        }
    }
    lg->facts.n = facts;
    lg->block_quantized.n = block_quantized;
    lg->ggml.n = ggml;
    lg->calibrated.n = calibrated;
    if (trial_over(lg))
        stretch_poison(lg, s, first);
}

bool walk_region(struct legalizer *lg, region_id r)
{
    const struct region *region = graph_get_region(lg->from, r);
    const struct stretch all = {
        .region = r, .nodes = region->nodes.data, .n = region->nodes.n, .n_results = region->results.n};
    walk_rest(lg, &all, 0);
    return true;
}
