/* The walk through all trees at once, one level a step: for each row of the input and each tree the number of the slot
 * it has come to, which is gathered, compared and replaced as many times as the deepest tree is deep. Leaves lead to
 * themselves, so shallow trees wait.
 */
#include "passes/legalize/ml/forest.h"

#include <math.h>
#include <stdlib.h>

/* ---- slots ------------------------------------------------------------------------------------------------------- */

/* The slots of a forest that is being made: which node each one is, and the others of the same node. */
struct slots {
    int64_t n, *node, *next, *first; /* next: by slot, first: by node; -1: none */
};

/* A tree by its root. */
struct tree {
    int64_t levels, root, at;
};

static int deeper_first(const void *a, const void *b)
{
    const struct tree *x = a, *y = b;
    if (x->levels != y->levels)
        return x->levels > y->levels ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

static void slot_add(struct slots *s, int64_t node)
{
    s->node[s->n] = node;
    s->next[s->n] = s->first[node];
    s->first[node] = s->n++;
}

/* Leaves compare with NaN, so they lead to themselves. */
bool forest_slots(struct rule *r, struct forest *f, struct votes *votes)
{
    struct arena *arena = &r->b->g->arena;
    int64_t most = f->n_trees + 1, n_votes = 0;
    for (int64_t i = 0; i < f->n; i++)
        most += f->branch[i] ? 2 : 0;
    if (most > FOREST_TABLE_MAX)
        return rule_refuse(r, "trees of %lld nodes", (long long)most);
    struct slots s = {0, NEW_ARRAY(arena, int64_t, most), NEW_ARRAY(arena, int64_t, most),
                      NEW_ARRAY(arena, int64_t, f->n)};
    int64_t *children = NEW_ARRAY(arena, int64_t, f->n), *pair = NEW_ARRAY(arena, int64_t, most);
    struct forest old = *f;
    for (int64_t i = 0; i < f->n; i++)
        s.first[i] = children[i] = -1;
    struct tree *tree = NEW_ARRAY(arena, struct tree, f->n_trees);
    for (int64_t t = 0; t < f->n_trees; t++)
        tree[t] = (struct tree){old.levels[old.root[t]], old.root[t], t};
    qsort(tree, (size_t)f->n_trees, sizeof *tree, deeper_first);
    f->levels = NEW_ARRAY(arena, int64_t, f->n_trees);
    for (int64_t t = 0; t < f->n_trees; t++) {
        slot_add(&s, tree[t].root);
        f->levels[t] = tree[t].levels;
    }
    for (int64_t k = 0; k < s.n; k++) { /* grows: what a slot leads to comes behind it */
        int64_t i = s.node[k];
        if (children[i] < 0 && old.branch[i]) {
            children[i] = s.n;
            slot_add(&s, old.no[i]);
            slot_add(&s, old.yes[i]);
        }
        pair[k] = old.branch[i] ? children[i] : k;
    }
    slot_add(&s,
             s.node[s.n - 1]); /* nobody comes to it, but the table's largest number plus one is inside of the tables */
    pair[s.n - 1] = 0;
    forest_room(r, f, s.n, f->elem, f->elem);
    f->children = pair;
    for (int64_t k = 0; k < s.n; k++) {
        int64_t i = s.node[k];
        f->feature[k] = old.feature[i];
        f->branch[k] = old.branch[i];
        f->missing[k] = old.missing[i];
        f->limit[k] = old.branch[i] ? old.limit[i] : NAN; /* so a leaf leads to itself */
    }
    for (int64_t i = 0; i < votes->n; i++)
        for (int64_t k = s.first[votes->at[i]]; k >= 0; k = s.next[k])
            n_votes++;
    int64_t *at = NEW_ARRAY(arena, int64_t, n_votes), *id = NEW_ARRAY(arena, int64_t, n_votes), n = 0;
    double *weight = NEW_ARRAY(arena, double, n_votes);
    for (int64_t i = 0; i < votes->n; i++)
        for (int64_t k = s.first[votes->at[i]]; k >= 0; k = s.next[k]) {
            at[n] = k;
            id[n] = votes->id[i];
            weight[n++] = votes->weight[i];
        }
    votes->at = at;
    votes->id = id;
    votes->weight = weight;
    votes->n = n;
    return true;
}

/* ---- the walk ---------------------------------------------------------------------------------------------------- */

/* As i32: FOREST_TABLE_MAX slots at most. */
static value_id table_of(struct builder *b, const int64_t *list, int64_t n)
{
    int32_t *narrow = NEW_ARRAY(&b->g->arena, int32_t, n);
    for (int64_t i = 0; i < n; i++)
        narrow[i] = (int32_t)list[i];
    return b_const(b, ELEM_I32, &n, 1, narrow);
}

/* 1 where a node compares by `branch`; BRANCH_NONE: where a NaN goes where `yes` says. */
static value_id nodes_with(struct builder *b, const struct forest *f, enum branch branch)
{
    uint8_t *list = arena_alloc_array(&b->g->arena, (size_t)f->n, 1);
    for (int64_t i = 0; i < f->n; i++)
        list[i] = branch == BRANCH_NONE ? f->missing[i] : f->branch[i] == branch;
    return b_const(b, ELEM_BOOL, &f->n, 1, list);
}

static value_id limits_of(struct builder *b, const struct forest *f)
{
    if (f->elem == ELEM_F32)
        return v_floats(b, f->limit, f->n);
    return b_const(b, ELEM_F64, &f->n, 1, f->limit);
}

struct step {
    value_id feature, limit, children, with[BRANCH_COUNT];
}; /* with: {0} where no node is one */

static struct step step_new(struct builder *b, const struct forest *f)
{
    struct step s = {table_of(b, f->feature, f->n), limits_of(b, f), table_of(b, f->children, f->n), {{0}}};
    bool has[BRANCH_COUNT] = {false};
    for (int64_t i = 0; i < f->n; i++) {
        has[f->branch[i]] |= f->branch[i] != BRANCH_NONE;
        has[BRANCH_NONE] |= f->missing[i] != 0;
    }
    for (int k = 0; k < BRANCH_COUNT; k++)
        if (has[k])
            s.with[k] = nodes_with(b, f, (enum branch)k);
    return s;
}

/* Do the rows go where `yes` says? A NaN fails every comparison. */
static value_id decision(struct builder *b, const struct step *s, value_id x, value_id at)
{
    value_id limit = b_gather(b, s->limit, at, 0), go = {0};
    for (int k = BRANCH_LE; k < BRANCH_COUNT; k++) {
        if (!s->with[k].i)
            continue;
        value_id is = b_binary(b, k == BRANCH_EQ ? OP_EQ : OP_LE, k == BRANCH_GE ? limit : x,
                               k == BRANCH_GE ? x : limit);
        go = go.i ? b_select(b, b_gather(b, s->with[k], at, 0), is, go) : is;
    }
    if (s->with[BRANCH_NONE].i)
        go = b_binary(b, OP_OR, go,
                      b_binary(b, OP_AND, b_unary(b, OP_ISNAN, x), b_gather(b, s->with[BRANCH_NONE], at, 0)));
    return go;
}

value_id forest_walk(struct rule *r, const struct forest *f, value_id x, int64_t first, int64_t n)
{
    struct builder *b = r->b;
    struct attr axis = attr_int("axis", 1);
    expr_id dims[2] = {b_dim(b, x, 0), ex_const(b_exprs(b), n)};
    int64_t *root = NEW_ARRAY(&b->g->arena, int64_t, n);
    for (int64_t t = 0; t < n; t++)
        root[t] = first + t;
    value_id at = b_broadcast(b, table_of(b, root, n), dims, 2);
    x = b_convert(b, x, f->elem);
    struct step s = step_new(b, f);
    for (int64_t d = 1; d < f->levels[first] && at.i; d++) {
        value_id in[2] = {x, b_gather(b, s.feature, at, 0)};
        value_id go = decision(b, &s, b_op(b, OP_GATHER_ELEMENTS, in, 2, &axis, 1), at);
        at = b_binary(b, OP_ADD, b_gather(b, s.children, at, 0), b_convert(b, go, ELEM_I32));
    }
    return at;
}

int64_t forest_group(const struct forest *f, int64_t first)
{
    enum { TREES_LEAST = 8 };
    int64_t n = 0, left = f->n_trees - first;
    while (n < left && 4 * f->levels[first + n] > 3 * f->levels[first])
        n++;
    return n < TREES_LEAST || left - n < TREES_LEAST ? left : n;
}
