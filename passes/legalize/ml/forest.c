/* Decision trees from both of ONNX's forms.
 *
 * In: nodes as parallel lists, named by (tree, node) or numbered. Out: tables over flat node numbers. Every list is
 * checked: names are unique, references exist, and no path leads back to where it was. Nodes may share what is below
 * them.
 */
#include "passes/legalize/ml/forest.h"

#include <math.h>

enum { MODE_MEMBER = 6 };

/* ---- lists ------------------------------------------------------------------------------------------------------- */

const double *ml_numbers(struct rule *r, const char *list, const char *tensor, uint32_t *n, enum elem *elem)
{
    const struct attr *a = node_attr(r->node, tensor);
    *elem = ELEM_F32;
    if (!a || a->kind != ATTR_TENSOR || elem_class(a->u.tensor->elem) != 'F')
        return rule_floats(r, list, n);
    const struct tensor_data *t = a->u.tensor;
    size_t size = elem_size(t->elem), count = t->bytes.size / size;
    double *out = NEW_ARRAY(&r->b->g->arena, double, count + 1);
    for (size_t i = 0; i < count; i++)
        out[i] = elem_to_f64(t->elem, (const char *)t->bytes.data + i * size);
    *n = (uint32_t)count;
    *elem = t->elem;
    return out;
}

/* As rule_ints, for a list that must have n elements; NULL after rule_bad. */
static const int64_t *list_of(struct rule *r, const char *name, int64_t n)
{
    uint32_t have;
    const int64_t *list = rule_ints(r, name, &have);
    if (list && have == n)
        return list;
    rule_bad(r, "%s has %u elements, %lld are wanted", name, have, (long long)n);
    return NULL;
}

void forest_room(struct rule *r, struct forest *f, int64_t n, enum elem x, enum elem limits)
{
    struct arena *arena = &r->b->g->arena;
    f->n = n;
    f->elem = x == ELEM_F64 || limits == ELEM_F64 ? ELEM_F64 : ELEM_F32;
    f->feature = NEW_ARRAY(arena, int64_t, n);
    f->yes = NEW_ARRAY(arena, int64_t, n);
    f->no = NEW_ARRAY(arena, int64_t, n);
    f->root = NEW_ARRAY(arena, int64_t, n);
    f->limit = NEW_ARRAY(arena, double, n);
    f->branch = NEW_ARRAY(arena, uint8_t, n);
    f->missing = NEW_ARRAY(arena, uint8_t, n);
    for (int64_t i = 0; i < n; i++) {
        f->feature[i] = f->branch[i] = f->missing[i] = 0;
        f->limit[i] = 0;
        f->yes[i] = f->no[i] = i;
    }
}

/* ---- one node ---------------------------------------------------------------------------------------------------- */

static double next_to(const struct forest *f, double limit, double towards)
{
    return f->elem == ELEM_F64 ? nextafter(limit, towards) : (double)nextafterf((float)limit, (float)towards);
}

/* Node i compares by a mode in the order of TreeEnsemble's nodes_modes, 0 to 5. */
static void node_set(struct forest *f, int64_t i, int64_t mode, double limit, int64_t yes, int64_t no, bool missing)
{
    static const uint8_t branches[] = {BRANCH_LE, BRANCH_LE, BRANCH_GE, BRANCH_GE, BRANCH_EQ, BRANCH_EQ};
    bool strict = mode == 1 || mode == 3, differs = mode == 5;
    double end = mode == 1 ? -INFINITY : INFINITY;
    f->branch[i] = branches[mode];
    f->limit[i] = !strict        ? limit
                  : limit == end ? NAN
                                 : next_to(f, limit, end); /* nothing is below -inf: never equal */
    f->yes[i] = differs ? no : yes;
    f->no[i] = differs ? yes : no;
    f->missing[i] = missing && !differs; /* a NaN differs from every number as it is */
}

ASCENDING_NUMBERS(number_compare, double);

/* Is the feature one of n sorted numbers? A search by halves from node i down, *spare on for the other nodes. */
static void member_search(struct forest *f, int64_t i, int64_t *spare, const double *numbers, int64_t n)
{
    int64_t feature = f->feature[i], yes = f->yes[i], no = f->no[i], half = n / 2, side[2];
    bool missing = f->missing[i];
    if (n < 2) {
        node_set(f, i, 4, n ? numbers[0] : NAN, yes, no, missing);
        return;
    }
    for (int k = 0; k < 2; k++) {
        side[k] = (*spare)++;
        f->feature[side[k]] = feature;
        f->yes[side[k]] = yes;
        f->no[side[k]] = no;
        f->missing[side[k]] = missing;
        member_search(f, side[k], spare, k ? numbers + half : numbers, k ? n - half : half);
    }
    node_set(f, i, 0, numbers[half - 1], side[0], side[1], false);
}

/* ---- depth ------------------------------------------------------------------------------------------------------- */

/* Fills depth; where `roots`, root and n_trees too: the nodes that nothing leads to. Refuses paths that go round. */
static bool forest_measure(struct rule *r, struct forest *f, bool roots)
{
    struct arena *arena = &r->b->g->arena;
    int64_t *queue = NEW_ARRAY(arena, int64_t, f->n), *level = NEW_ARRAY(arena, int64_t, f->n), end = 0;
    uint32_t *parents = NEW_ARRAY(arena, uint32_t, f->n);
    memset(parents, 0, (size_t)f->n * sizeof *parents);
    for (int64_t i = 0; i < f->n; i++)
        if (f->branch[i]) {
            parents[f->yes[i]]++;
            parents[f->no[i]]++;
        }
    for (int64_t i = 0; i < f->n; i++) {
        level[i] = 1;
        if (!parents[i])
            queue[end++] = i;
        if (!parents[i] && roots)
            f->root[f->n_trees++] = i;
    }
    for (int64_t at = 0; at < end; at++) {
        int64_t i = queue[at], below[2] = {f->yes[i], f->no[i]};
        f->depth = level[i] > f->depth ? level[i] : f->depth;
        for (int k = 0; k < 2 && f->branch[i]; k++) {
            level[below[k]] = level[i] + 1 > level[below[k]] ? level[i] + 1 : level[below[k]];
            if (--parents[below[k]] == 0)
                queue[end++] = below[k];
        }
    }
    return end == f->n || rule_bad(r, "the nodes are not trees: paths from %lld of %lld go round",
                                   (long long)(f->n - end), (long long)f->n);
}

/* ---- nodes with names: TreeEnsembleClassifier, TreeEnsembleRegressor --------------------------------------------- */

struct name {
    int64_t tree, node, at;
};
struct names {
    struct name *sorted;
    int64_t n;
};

static int name_compare(const void *a, const void *b)
{
    const struct name *x = a, *y = b;
    if (x->tree != y->tree)
        return x->tree < y->tree ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

/* The flat number of a node, or -1. */
static int64_t node_at(const struct names *names, int64_t tree, int64_t node)
{
    struct name key = {tree, node, 0};
    const struct name *found = bsearch(&key, names->sorted, (size_t)names->n, sizeof key, name_compare);
    return found ? found->at : -1;
}

static bool names_read(struct rule *r, struct names *names, const int64_t *trees, const int64_t *nodes)
{
    names->sorted = NEW_ARRAY(&r->b->g->arena, struct name, names->n);
    for (int64_t i = 0; i < names->n; i++)
        names->sorted[i] = (struct name){trees[i], nodes[i], i};
    qsort(names->sorted, (size_t)names->n, sizeof *names->sorted, name_compare);
    for (int64_t i = 1; i < names->n; i++)
        if (!name_compare(&names->sorted[i - 1], &names->sorted[i]))
            return rule_bad(r, "tree %lld has two nodes %lld", (long long)names->sorted[i].tree,
                            (long long)names->sorted[i].node);
    return true;
}

/* The number of a mode, 0 to 5; -1: a leaf; -2: no mode is called this. */
static int mode_number(const char *mode)
{
    static const char *const modes[] = {"BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE",
                                        "BRANCH_GT",  "BRANCH_EQ", "BRANCH_NEQ"};
    const char *const *row = ROW_NAMED(modes, COUNT_OF(modes), mode);
    return row ? (int)(row - modes) : strcmp(mode, "LEAF") ? -2 : -1;
}

static bool votes_read(struct rule *r, const struct vote_names *v, const struct names *names, struct votes *votes)
{
    uint32_t n, n_weights;
    votes->id = rule_ints(r, v->ids, &n);
    votes->weight = ml_numbers(r, v->weights, v->tensor, &n_weights, &votes->elem);
    const int64_t *trees = list_of(r, v->trees, n), *nodes = trees ? list_of(r, v->nodes, n) : NULL;
    if (!nodes)
        return false;
    if (n_weights != n)
        return rule_bad(r, "%u %s for %u %s", n_weights, v->weights, n, v->ids);
    int64_t *at = NEW_ARRAY(&r->b->g->arena, int64_t, n + 1);
    for (uint32_t i = 0; i < n; i++) {
        at[i] = node_at(names, trees[i], nodes[i]);
        if (at[i] < 0)
            return rule_bad(r, "element %u of %s names node %lld of tree %lld: there is none", i, v->nodes,
                            (long long)nodes[i], (long long)trees[i]);
    }
    votes->n = n;
    votes->at = at;
    return true;
}

bool forest_read_named(struct rule *r, const struct vote_names *v, enum elem x, struct forest *f, struct votes *votes)
{
    const struct attr *modes = node_attr(r->node, "nodes_modes");
    if (!modes || modes->kind != ATTR_STRS || !modes->n)
        return rule_bad(r, "no nodes_modes");
    struct names names = {.n = modes->n};
    const int64_t *trees = list_of(r, "nodes_treeids", names.n), *nodes = list_of(r, "nodes_nodeids", names.n);
    const int64_t *features = list_of(r, "nodes_featureids", names.n), *yes = list_of(r, "nodes_truenodeids", names.n);
    const int64_t *no = list_of(r, "nodes_falsenodeids", names.n);
    uint32_t n_limits, n_tracks;
    enum elem limits;
    const double *limit = ml_numbers(r, "nodes_values", "nodes_values_as_tensor", &n_limits, &limits);
    const int64_t *tracks = rule_ints(r, "nodes_missing_value_tracks_true", &n_tracks);
    if (!trees || !nodes || !features || !yes || !no || !names_read(r, &names, trees, nodes))
        return false;
    if ((tracks && n_tracks != names.n) || n_limits != names.n)
        return rule_bad(r, "%u nodes_values and %u nodes_missing_value_tracks_true for %lld nodes", n_limits, n_tracks,
                        (long long)names.n);
    forest_room(r, f, names.n, x, limits);
    for (int64_t i = 0; i < f->n; i++) {
        int mode = mode_number(modes->u.strs[i]);
        if (mode == -1)
            continue;
        int64_t to[2] = {node_at(&names, trees[i], yes[i]), node_at(&names, trees[i], no[i])};
        if (mode < 0)
            return rule_bad(r, "no mode is called \"%.20s\"", modes->u.strs[i]);
        if (features[i] < 0 || to[0] < 0 || to[1] < 0)
            return rule_bad(r, "element %lld of the nodes leads nowhere", (long long)i);
        f->feature[i] = features[i];
        node_set(f, i, mode, limit[i], to[0], to[1], tracks && tracks[i]);
    }
    return votes_read(r, v, &names, votes) && forest_measure(r, f, true);
}

/* ---- nodes with numbers: TreeEnsemble ---------------------------------------------------------------------------- */

struct indexed {
    int64_t n, n_leaves, n_members, spare; /* spare: the next free node after the nodes and the leaves */
    const int64_t *features, *yes, *no, *yes_leaf, *no_leaf, *tracks;
    const double *limit, *members;
    const uint8_t *modes;
};

static bool indexed_read(struct rule *r, struct indexed *d, enum elem *limits)
{
    const struct attr *modes = node_attr(r->node, "nodes_modes");
    const struct tensor_data *t = modes && modes->kind == ATTR_TENSOR ? modes->u.tensor : NULL;
    uint32_t n_limits, n_tracks, n_members;
    enum elem ignored;
    if (!t || t->elem != ELEM_U8 || !t->bytes.size || t->bytes.size > FOREST_TABLE_MAX)
        return rule_bad(r, "nodes_modes is not a tensor of u8");
    d->n = (int64_t)t->bytes.size;
    d->modes = t->bytes.data;
    d->features = list_of(r, "nodes_featureids", d->n);
    d->yes = list_of(r, "nodes_truenodeids", d->n);
    d->no = list_of(r, "nodes_falsenodeids", d->n);
    d->yes_leaf = list_of(r, "nodes_trueleafs", d->n);
    d->no_leaf = list_of(r, "nodes_falseleafs", d->n);
    d->tracks = rule_ints(r, "nodes_missing_value_tracks_true", &n_tracks);
    d->limit = ml_numbers(r, "", "nodes_splits", &n_limits, limits);
    d->members = ml_numbers(r, "", "membership_values", &n_members, &ignored);
    d->n_members = n_members;
    if (!d->features || !d->yes || !d->no || !d->yes_leaf || !d->no_leaf)
        return false;
    if (n_limits != d->n || (d->tracks && n_tracks != d->n))
        return rule_bad(r, "%u nodes_splits and %u nodes_missing_value_tracks_true for %lld nodes", n_limits, n_tracks,
                        (long long)d->n);
    return true;
}

/* The flat number of a branch: leaves stand after the nodes; -1: there is no such one. */
static int64_t branch_at(const struct indexed *d, int64_t is_leaf, int64_t k)
{
    int64_t n = is_leaf ? d->n_leaves : d->n;
    return k < 0 || k >= n ? -1 : is_leaf ? d->n + k : k;
}

/* The members of the next set, sorted; false: there is no further one. */
static bool members_take(struct arena *arena, const struct indexed *d, int64_t *at, double **set, int64_t *n)
{
    int64_t end = *at;
    if (*at > d->n_members)
        return false;
    while (end < d->n_members && !isnan(d->members[end]))
        end++;
    *n = end - *at;
    *set = NEW_ARRAY(arena, double, *n + 1);
    if (*n)
        memcpy(*set, d->members + *at, (size_t)*n * sizeof **set);
    qsort(*set, (size_t)*n, sizeof **set, number_compare);
    *at = end + 1;
    return true;
}

static bool indexed_nodes(struct rule *r, struct forest *f, struct indexed *d)
{
    int64_t member = 0, n_set;
    double *set;
    for (int64_t i = 0; i < d->n; i++) {
        int64_t yes = branch_at(d, d->yes_leaf[i], d->yes[i]), no = branch_at(d, d->no_leaf[i], d->no[i]);
        bool missing = d->tracks && d->tracks[i];
        if (d->features[i] < 0 || yes < 0 || no < 0)
            return rule_bad(r, "element %lld of the nodes leads nowhere", (long long)i);
        if (d->modes[i] > MODE_MEMBER)
            return rule_bad(r, "nodes_modes holds %d", d->modes[i]);
        f->feature[i] = d->features[i];
        if (d->modes[i] != MODE_MEMBER) {
            node_set(f, i, d->modes[i], d->limit[i], yes, no, missing);
            continue;
        }
        if (!members_take(&r->b->g->arena, d, &member, &set, &n_set))
            return rule_bad(r, "membership_values has fewer sets than there are nodes of that mode");
        f->yes[i] = yes;
        f->no[i] = no;
        f->missing[i] = missing;
        member_search(f, i, &d->spare, set, n_set);
    }
    return true;
}

bool forest_read_indexed(struct rule *r, enum elem x, struct forest *f, struct votes *votes)
{
    struct indexed d = {0};
    uint32_t n_leaves, n_weights, n_roots;
    enum elem limits;
    votes->id = rule_ints(r, "leaf_targetids", &n_leaves);
    votes->weight = ml_numbers(r, "", "leaf_weights", &n_weights, &votes->elem);
    const int64_t *roots = rule_ints(r, "tree_roots", &n_roots);
    if (!indexed_read(r, &d, &limits))
        return false;
    if (!n_leaves || n_leaves != n_weights || !n_roots)
        return rule_bad(r, "%u leaf_targetids, %u leaf_weights, %u tree_roots", n_leaves, n_weights, n_roots);
    d.n_leaves = votes->n = n_leaves;
    d.spare = d.n + n_leaves;
    forest_room(r, f, d.n + n_leaves + 2 * d.n_members, x, limits);
    int64_t *at = NEW_ARRAY(&r->b->g->arena, int64_t, n_leaves), *root = NEW_ARRAY(&r->b->g->arena, int64_t, n_roots);
    for (uint32_t i = 0; i < n_leaves; i++)
        at[i] = d.n + i;
    for (uint32_t i = 0; i < n_roots; i++) {
        if (roots[i] < 0 || roots[i] >= d.n)
            return rule_bad(r, "tree_roots holds %lld", (long long)roots[i]);
        root[i] = roots[i];
    }
    votes->at = at;
    f->root = root;
    f->n_trees = n_roots;
    if (!indexed_nodes(r, f, &d))
        return false;
    f->n = d.spare;
    return forest_measure(r, f, false);
}
