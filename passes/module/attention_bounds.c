/* Which keys a row of an attention can see at all: what causal masks and windows say, before any score is computed.
 *
 * After a select between the scores and minus infinity, a key whose condition is false has no part in the softmax;
 * nor after a sum of the scores and a select between minus infinity and whatever. A condition that compares the key's
 * number with something that knows nothing of keys is a bound for each row. Exporters also take large numbers for
 * infinity, the lowest float in sums: their keys have no part in a row whose maximum is far above, which only the run
 * knows.
 */
#include "passes/module/attention_bounds.h"

#include "passes/module/analysis.h"

#include <math.h>

enum { DEPTH_MOST = 24, VISITS_MOST = 512 };
#define SELECTED_LOW -1e4 /* what takes the place of a score: below what scores are */
#define ADDED_LOW -3e38   /* what is added to a score ... */
#define SUM_LOW -2e38     /* ... is this at most with it: scores are below 1e38 */
#define NO_PART 110       /* exp(-NO_PART) is 0 in f32 */

struct bounds {
    const struct module *m;
    struct graph *g;
    struct exprs *x;
    expr_id key;
    attention_bound_fn *bound;
    void *user;
    double low; /* what hidden keys have at most, by the select at hand */
    uint32_t n, visits;
};

double attention_far(double low)
{
    return (float)(low + NO_PART - 1e-6 * low);
}

/* What is deeper, or after too many others, is not looked into. */
static bool beyond(struct bounds *b, uint32_t depth)
{
    return depth > DEPTH_MOST || ++b->visits > VISITS_MOST;
}

/* The node that makes v in this kernel; NULL: v is stored, or an input. */
static const struct node *computed_by(const struct bounds *b, value_id v)
{
    return b->m->fused.storage[v.i].place == PLACE_NONE ? value_node(b->g, v) : NULL;
}

static bool is_plain_view(const struct node *n)
{
    return n->op == OP_BROADCAST || n->op == OP_RESHAPE || n->op == OP_TRANSPOSE || n->op == OP_IDENTITY;
}

/* Is v at idx the number of the key? That is known of what is stored, too. */
static bool is_key(const struct bounds *b, value_id v, const expr_id *idx)
{
    expr_id at[RANK_MAX];
    const struct node *n = value_node(b->g, v);
    for (uint32_t depth = 0; n && depth < DEPTH_MOST && is_plain_view(n); depth++) {
        n = value_node(b->g, operand_at(b->g, n, 0, idx, at));
        idx = at;
    }
    return n && n->op == OP_IOTA && idx[node_int(n, "axis", 0)].i == b->key.i;
}

/* Does v at idx depend on the key? If unknown, yes. */
static bool knows_keys(struct bounds *b, value_id v, const expr_id *idx, uint32_t depth)
{
    const struct node *n = computed_by(b, v);
    expr_id at[RANK_MAX];
    if (n && n->op == OP_IOTA)
        return ex_uses(b->x, idx[node_int(n, "axis", 0)], ex_as_sym(b->x, b->key));
    if (!n || op_shape(n->op) == SHAPE_POINT || op_shape(n->op) == SHAPE_CONST) {
        for (int32_t d = 0; d < value_type(b->g, v)->rank; d++)
            if (ex_uses(b->x, idx[d], ex_as_sym(b->x, b->key)))
                return true;
        return false;
    }
    if (beyond(b, depth) || (!is_plain_view(n) && op_shape(n->op) != SHAPE_MAP))
        return true;
    for (uint32_t k = 0; k < n->n_in; k++)
        if (knows_keys(b, operand_at(b->g, n, k, idx, at), at, depth + 1))
            return true;
    return false;
}

/* Which operand a select has to choose to be `yes`, since the other one never is; 0: either may do. */
static uint32_t yes_operand(const struct bounds *b, const struct node *n, bool yes)
{
    int64_t other = 0;
    for (uint32_t k = 1; n->op == OP_SELECT && k < 3; k++)
        if (value_is_splat(b->g, n->in[3 - k], &(double){0}, &other) && (other != 0) != yes)
            return k;
    return 0;
}

/* Keys are seen only where v at idx is `yes`. */
static void condition(struct bounds *b, value_id v, const expr_id *idx, bool yes, uint32_t depth)
{
    const struct node *n = computed_by(b, v);
    expr_id at[RANK_MAX];
    if (!n || beyond(b, depth))
        return;
    uint32_t chosen = yes_operand(b, n, yes);
    if (chosen) { /* Trilu of a mask */
        condition(b, n->in[0], idx, chosen == 1, depth + 1);
        condition(b, n->in[chosen], idx, yes, depth + 1);
        return;
    }
    if (is_plain_view(n) || n->op == OP_NOT || n->op == (yes ? OP_AND : OP_OR)) {
        for (uint32_t k = 0; k < n->n_in; k++)
            condition(b, operand_at(b->g, n, k, idx, at), at, n->op == OP_NOT ? !yes : yes, depth + 1);
        return;
    }
    if ((n->op != OP_LE && n->op != OP_LT) || elem_class(value_type(b->g, n->in[0])->elem) != 'I')
        return;
    for (uint32_t k = 0; k < 2; k++) {
        if (!is_key(b, n->in[k], idx) || knows_keys(b, n->in[1 - k], idx, 0))
            continue;
        /* key < v: below v; else from v on. key <= v: below v + 1; else from there on. v < key: from v + 1 on; else
         * below that. v <= key: from v on; else below v. */
        bool end = yes == (k == 0), more = (n->op == OP_LE) == (k == 0);
        b->bound(b->user, n->in[1 - k], idx, end, more, b->low);
        b->n++;
    }
}

/* Which operand of a select is chosen for the keys that are seen, where the other one is minus infinity, or as good as
 * that; 0: none. Notes what hidden keys have. added: it is a summand of z. */
static uint32_t seen_operand(struct bounds *b, const struct node *n, bool added)
{
    double other = 0;
    for (uint32_t k = 1; n->op == OP_SELECT && k < 3; k++) {
        if (!value_is_splat(b->g, n->in[3 - k], &other, &(int64_t){0}) ||
            !(other <= (added ? ADDED_LOW : SELECTED_LOW)))
            continue;
        b->low = isinf(other) || !added ? other : SUM_LOW;
        return k;
    }
    return 0;
}

/* Keys are seen only where v at idx, a summand of the scores, is not minus infinity. */
static void summand(struct bounds *b, value_id v, const expr_id *idx, uint32_t depth)
{
    const struct node *n = computed_by(b, v);
    expr_id at[RANK_MAX];
    if (!n || beyond(b, depth))
        return;
    uint32_t seen = seen_operand(b, n, true);
    if (seen)
        condition(b, n->in[0], idx, seen == 1, 0);
    for (uint32_t k = 0; k < n->n_in; k++)
        if (is_plain_view(n) || n->op == OP_ADD || (seen && k == seen))
            summand(b, operand_at(b->g, n, k, idx, at), at, depth + 1);
}

uint32_t attention_bounds(const struct module *m, const struct attention *a, const expr_id *z_point, expr_id key,
                          attention_bound_fn *bound, void *user)
{
    struct bounds b = {m, m->g, m->ctx->exprs, key, bound, user, 0, 0, 0};
    bool added = false;
    expr_id idx[RANK_MAX];
    memcpy(idx, z_point, (size_t)value_type(m->g, a->z)->rank * sizeof *idx);
    for (uint32_t i = 0; i < a->to_scores.n; i++) {
        const struct attention_step *s = &a->to_scores.data[i];
        const struct node *n = graph_node(m->g, s->node);
        if (op_shape(n->op) == SHAPE_VIEW) {
            operand_at(b.g, n, s->operand, idx, idx);
            continue;
        }
        uint32_t seen = seen_operand(&b, n, added);
        added |= n->op == OP_ADD;
        if (seen && s->operand == seen)
            condition(&b, n->in[0], idx, seen == 1, 0);
        else if (n->op == OP_ADD)
            summand(&b, n->in[1 - s->operand], idx, 0);
        else
            break; /* what comes after may make something else of minus infinity */
    }
    return b.n;
}
