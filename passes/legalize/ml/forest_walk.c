/* The walk through trees: OP_WALK over slots, of which the two that a node leads to are neighbours. */
#include "passes/legalize/ml/forest.h"

#include <math.h>

enum {
    COLUMNS_MAX = 1 << 28,
    GROUP_MOST = 16, /* trees that a kernel's index goes through ... */
    GROUP_LEAST = 8,
    GROUP_BYTES = 1 << 16 /* ... whose slots stay near the core */
};

/* ---- slots ------------------------------------------------------------------------------------------------------- */

/* The slots of a forest that is being made: which node each one is, and the others of the same node. */
struct slots {
    int64_t n, *node, *next, *first; /* next: by slot, first: by node; -1: none */
};

static void slot_add(struct slots *s, int64_t node)
{
    s->node[s->n] = node;
    s->next[s->n] = s->first[node];
    s->first[node] = s->n++;
}

/* Many trees are counted in groups, the last of which is filled up with trees of a leaf that nobody votes at. */
static void forest_groups(struct forest *f, int64_t slots)
{
    int64_t bytes = slots / f->n_trees * (int64_t)sizeof(int64_t[2]);
    f->real = f->n_trees;
    if (f->n_trees <= 2 * GROUP_MOST)
        return;
    f->group = GROUP_MOST * bytes > GROUP_BYTES ? GROUP_LEAST : GROUP_MOST;
    f->n_trees = (f->n_trees + f->group - 1) / f->group * f->group;
}

/* Behind a slot's node the two that it leads to; a node that several lead to has its slots once. */
static void slot_grow(struct slots *s, const struct forest *f, int64_t k, int64_t *children)
{
    int64_t i = s->node[k];
    if (children[i] >= 0 || !f->branch[i])
        return;
    children[i] = s->n;
    slot_add(s, f->no[i]);
    slot_add(s, f->yes[i]);
}

/* Votes of nodes become votes of all their slots. */
static void slots_vote(struct arena *arena, const struct slots *s, struct votes *votes)
{
    int64_t most = 0, n = 0;
    for (int64_t i = 0; i < votes->n; i++)
        for (int64_t k = s->first[votes->at[i]]; k >= 0; k = s->next[k])
            most++;
    int64_t *at = NEW_ARRAY(arena, int64_t, most), *id = NEW_ARRAY(arena, int64_t, most);
    double *weight = NEW_ARRAY(arena, double, most);
    for (int64_t i = 0; i < votes->n; i++)
        for (int64_t k = s->first[votes->at[i]]; k >= 0; k = s->next[k]) {
            at[n] = k;
            id[n] = votes->id[i];
            weight[n++] = votes->weight[i];
        }
    *votes = (struct votes){n, at, id, weight, votes->elem};
}

bool forest_slots(struct rule *r, struct forest *f, struct votes *votes)
{
    struct arena *arena = &r->b->g->arena;
    int64_t most = f->n_trees + GROUP_MOST;
    for (int64_t i = 0; i < f->n; i++)
        most += f->branch[i] ? 2 : 0;
    if (most > FOREST_TABLE_MAX)
        return rule_refuse(r, "the trees have %lld nodes", (long long)most);
    struct slots s = {0, NEW_ARRAY(arena, int64_t, most), NEW_ARRAY(arena, int64_t, most),
                      NEW_ARRAY(arena, int64_t, f->n)};
    int64_t *children = NEW_ARRAY(arena, int64_t, f->n);
    struct forest old = *f;
    for (int64_t i = 0; i < f->n; i++)
        s.first[i] = children[i] = -1;
    forest_groups(f, most);
    for (int64_t t = 0; t < old.n_trees; t++)
        slot_add(&s, old.root[t]);
    for (; s.n < f->n_trees; s.n++)
        s.node[s.n] = -1;
    for (int64_t t = 0; t < old.n_trees; t++) { /* tree by tree: what a row reads lies together */
        int64_t k = s.n;
        slot_grow(&s, &old, t, children);
        for (; k < s.n; k++)
            slot_grow(&s, &old, k, children);
    }
    forest_room(r, f, s.n, f->elem, f->elem);
    for (int64_t k = 0; k < s.n; k++) {
        int64_t i = s.node[k];
        f->limit[k] = NAN;
        if (i < 0 || !old.branch[i])
            continue;
        f->feature[k] = old.feature[i];
        f->branch[k] = old.branch[i];
        f->missing[k] = old.missing[i];
        f->limit[k] = old.limit[i];
        f->no[k] = children[i];
    }
    slots_vote(arena, &s, votes);
    return true;
}

/* ---- the walk ---------------------------------------------------------------------------------------------------- */

/* A slot as OP_WALK has it. */
static void slot_word(const struct forest *f, int64_t k, int64_t word[2])
{
    static const uint8_t kinds[] = {[BRANCH_NONE] = 0, [BRANCH_LE] = 0, [BRANCH_GE] = 1, [BRANCH_EQ] = 2};
    int64_t kind = kinds[f->branch[k]] + (f->branch[k] && f->missing[k] ? 4 : 0);
    word[0] = f->no[k] << 32 | kind << 28 | f->feature[k];
    double limit = f->elem == ELEM_F32 ? (double)(float)f->limit[k] : f->limit[k];
    memcpy(&word[1], &limit, sizeof word[1]);
}

/* [rows, trees] in groups: [groups, rows, trees of a group]. */
static value_id in_groups(struct builder *b, value_id leaf, const struct forest *f)
{
    static const int64_t perm[] = {1, 0, 2};
    if (!f->group)
        return leaf;
    expr_id dims[3] = {b_dim(b, leaf, 0), ex_const(b->x, f->n_trees / f->group), ex_const(b->x, f->group)};
    return b_transpose(b, b_reshape(b, leaf, dims, 3), perm);
}

value_id forest_walk(struct rule *r, const struct forest *f, value_id x)
{
    struct builder *b = r->b;
    if (f->depth < 2)
        return in_groups(b, v_iota(b, ELEM_I32, ARRAY(expr_id, b_dim(b, x, 0), ex_const(b->x, f->n_trees)), 1), f);
    int64_t *words = NEW_ARRAY(&b->g->arena, int64_t, 2 * f->n), table[2] = {f->n, 2}, columns = 0;
    bool kinds = false;
    for (int64_t k = 0; k < f->n; k++) {
        slot_word(f, k, words + 2 * k);
        kinds |= words[2 * k] >> 28 & 7;
        columns = f->feature[k] >= columns ? f->feature[k] + 1 : columns;
    }
    if (columns > COLUMNS_MAX)
        return rule_refuse(r, "feature %lld", (long long)columns - 1), (value_id){0};
    b_assert(b, ex_le(b->x, ex_const(b->x, columns), b_dim(b, x, 1)), EVAL_VALUE,
             "the trees compare feature %lld, the input has fewer", (long long)columns - 1);
    struct attr attrs[] = {attr_int("trees", f->n_trees), attr_int("depth", f->depth - 1), attr_int("kinds", kinds)};
    value_id in[2] = {b_convert(b, x, f->elem), b_const(b, ELEM_I64, table, 2, words)};
    return in_groups(b, b_op(b, OP_WALK, in, 2, attrs, 3), f);
}
