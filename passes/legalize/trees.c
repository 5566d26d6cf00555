/* TreeEnsembleClassifier and TreeEnsembleRegressor of ai.onnx.ml: all trees walked at once, one level a step.
 *
 * In: the forest as parallel lists of nodes, named by (tree, node). Out: tables over flat node numbers, and for each row
 * of the input and each tree the number of the node it has come to, which is gathered, compared and replaced as many
 * times as the deepest tree is deep. Leaves lead to themselves, so shallow trees wait. Every list is checked: the names
 * are unique, the nodes form trees, classes exist.
 */
#include "passes/legalize/ml.h"

#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 64, TABLE_MAX = 1 << 26 };

struct name { int64_t tree, node, at; };

struct forest {
    const int64_t *trees, *nodes, *features, *yes_ids, *no_ids;   /* attributes, n elements each */
    struct name *names;                       /* sorted */
    int64_t n, n_trees, depth;
    int64_t *feature, *yes, *no, *root;       /* flat node numbers */
    const char *mode;                         /* of every node that is no leaf; NULL: there is none */
};

static int name_compare(const void *a, const void *b)
{
    const struct name *x = a, *y = b;
    if (x->tree != y->tree)
        return x->tree < y->tree ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

/* The flat number of a node, or -1. */
static int64_t node_at(const struct forest *f, int64_t tree, int64_t node)
{
    struct name key = {tree, node, 0};
    const struct name *found = bsearch(&key, f->names, (size_t)f->n, sizeof key, name_compare);
    return found ? found->at : -1;
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

static bool names_read(struct rule *r, struct forest *f)
{
    f->trees = list_of(r, "nodes_treeids", f->n);
    f->nodes = list_of(r, "nodes_nodeids", f->n);
    f->features = list_of(r, "nodes_featureids", f->n);
    f->yes_ids = list_of(r, "nodes_truenodeids", f->n);
    f->no_ids = list_of(r, "nodes_falsenodeids", f->n);
    if (!f->trees || !f->nodes || !f->features || !f->yes_ids || !f->no_ids)
        return false;
    f->names = NEW_ARRAY(&r->b->g->arena, struct name, f->n);
    for (int64_t i = 0; i < f->n; i++)
        f->names[i] = (struct name){f->trees[i], f->nodes[i], i};
    qsort(f->names, (size_t)f->n, sizeof *f->names, name_compare);
    for (int64_t i = 1; i < f->n; i++)
        if (!name_compare(&f->names[i - 1], &f->names[i]))
            return rule_bad(r, "tree %lld has two nodes %lld", (long long)f->names[i].tree, (long long)f->names[i].node);
    return true;
}

/* Fills feature, yes, no of node i, and marks those that it leads to. */
static bool node_read(struct rule *r, struct forest *f, int64_t i, const char *mode, uint8_t *parents)
{
    f->feature[i] = 0;
    f->yes[i] = f->no[i] = i;
    if (!strcmp(mode, "LEAF"))
        return true;
    if (f->mode && strcmp(f->mode, mode))
        return rule_refuse(r, "modes \"%.20s\" and \"%.20s\" in one forest", f->mode, mode);
    f->mode = mode;
    f->feature[i] = f->features[i];
    f->yes[i] = node_at(f, f->trees[i], f->yes_ids[i]);
    f->no[i] = node_at(f, f->trees[i], f->no_ids[i]);
    if (f->feature[i] < 0 || f->yes[i] < 0 || f->no[i] < 0)
        return rule_bad(r, "element %lld of the nodes leads nowhere", (long long)i);
    if (parents[f->yes[i]]++ || parents[f->no[i]]++)
        return rule_bad(r, "element %lld of the nodes leads where another does", (long long)i);
    return true;
}

/* Roots are the nodes without a parent; every node is reached from one, at most DEPTH_MAX below it. */
static bool forest_measure(struct rule *r, struct forest *f, const uint8_t *parents)
{
    struct arena *arena = &r->b->g->arena;
    int64_t *queue = NEW_ARRAY(arena, int64_t, f->n), end = 0, level = 0;
    f->root = NEW_ARRAY(arena, int64_t, f->n);
    for (int64_t i = 0; i < f->n; i++)
        if (!parents[i])
            queue[end++] = f->root[f->n_trees++] = i;
    for (int64_t at = 0; at < end; f->depth++) {
        for (level = end; at < level; at++) {
            int64_t i = queue[at];
            if (f->yes[i] == i)
                continue;
            queue[end++] = f->yes[i];
            queue[end++] = f->no[i];
        }
    }
    if (end != f->n)
        return rule_bad(r, "the nodes are no trees: %lld of %lld can be reached", (long long)end, (long long)f->n);
    if (f->depth > DEPTH_MAX)
        return rule_refuse(r, "a tree of %lld levels", (long long)f->depth);
    return true;
}

static bool forest_read(struct rule *r, struct forest *f)
{
    const struct attr *modes = node_attr(r->node, "nodes_modes");
    struct arena *arena = &r->b->g->arena;
    if (!modes || modes->kind != ATTR_STRS || !modes->n)
        return rule_bad(r, "no nodes_modes");
    f->n = modes->n;
    if (!names_read(r, f))
        return false;
    uint8_t *parents = arena_alloc_array(arena, (size_t)f->n, 1);
    memset(parents, 0, (size_t)f->n);
    f->feature = NEW_ARRAY(arena, int64_t, f->n);
    f->yes = NEW_ARRAY(arena, int64_t, f->n);
    f->no = NEW_ARRAY(arena, int64_t, f->n);
    for (int64_t i = 0; i < f->n; i++)
        if (!node_read(r, f, i, modes->u.strs[i], parents))
            return false;
    return forest_measure(r, f, parents);
}

/* Does the row go where `yes` says? {0} after a refusal. A NaN fails every comparison but NEQ. */
static value_id decision(struct rule *r, const char *mode, value_id x, value_id limit)
{
    static const struct { const char *mode; enum op op; bool swap, not; } rows[] = {
        {"BRANCH_LEQ", OP_LE, false, false}, {"BRANCH_LT", OP_LT, false, false}, {"BRANCH_GTE", OP_LE, true, false},
        {"BRANCH_GT", OP_LT, true, false}, {"BRANCH_EQ", OP_EQ, false, false}, {"BRANCH_NEQ", OP_EQ, false, true},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (!strcmp(rows[i].mode, mode)) {
            value_id y = b_binary(r->b, rows[i].op, rows[i].swap ? limit : x, rows[i].swap ? x : limit);
            return rows[i].not ? b_unary(r->b, OP_NOT, y) : y;
        }
    rule_bad(r, "no mode is called \"%.20s\"", mode);
    return (value_id){0};
}

/* The leaf that each row of x [n, features] comes to in each tree: flat node numbers [n, trees]. */
static value_id leaves(struct rule *r, const struct forest *f, value_id x)
{
    struct builder *b = r->b;
    uint32_t n_values;
    const double *values = rule_floats(r, "nodes_values", &n_values);
    struct attr axis = attr_int("axis", 1);
    expr_id dims[2] = {b_dim(b, x, 0), ex_const(b_exprs(b), f->n_trees)};
    value_id at = b_broadcast(b, b_const(b, ELEM_I64, &f->n_trees, 1, f->root), dims, 2);
    if (f->depth <= 1)
        return at;
    if (n_values != f->n) {
        rule_bad(r, "nodes_values has %u elements, %lld are wanted", n_values, (long long)f->n);
        return (value_id){0};
    }
    value_id limit = b_convert(b, ml_floats(b, values, f->n), v_elem(b, x)), feature = b_const(b, ELEM_I64, &f->n, 1, f->feature);
    value_id yes = b_const(b, ELEM_I64, &f->n, 1, f->yes), no = b_const(b, ELEM_I64, &f->n, 1, f->no);
    for (int64_t d = 1; d < f->depth && at.i; d++) {
        value_id in[2] = {x, b_gather(b, feature, at, 0)};
        value_id go = decision(r, f->mode, b_op(b, OP_GATHER_ELEMENTS, in, 2, &axis, 1), b_gather(b, limit, at, 0));
        at = b_select(b, go, b_gather(b, yes, at, 0), b_gather(b, no, at, 0));
    }
    return at;
}

/* Attributes that say which nodes vote for what. */
struct votes { const char *ids, *trees, *nodes, *weights; };

/* What each node votes for: f32 [nodes, classes]; {0} after a report. */
static value_id votes_read(struct rule *r, const struct forest *f, const struct votes *v, int64_t classes)
{
    uint32_t n, n_weights;
    const int64_t *ids = rule_ints(r, v->ids, &n);
    const int64_t *trees = list_of(r, v->trees, n), *nodes = trees ? list_of(r, v->nodes, n) : NULL;
    const double *weights = rule_floats(r, v->weights, &n_weights);
    if (!nodes || n_weights != n || classes > TABLE_MAX || f->n * classes > TABLE_MAX) {
        rule_refuse(r, "%u %s for %u %s, %lld nodes", n_weights, v->weights, n, v->ids, (long long)f->n);
        return (value_id){0};
    }
    float *table = arena_alloc_array(&r->b->g->arena, (size_t)(f->n * classes), sizeof *table);
    memset(table, 0, (size_t)(f->n * classes) * sizeof *table);
    for (uint32_t i = 0; i < n; i++) {
        int64_t at = node_at(f, trees[i], nodes[i]);
        if (at < 0 || ids[i] < 0 || ids[i] >= classes) {
            rule_bad(r, "element %u of %s is for node %lld, %s %lld", i, v->weights, (long long)nodes[i], v->ids, (long long)ids[i]);
            return (value_id){0};
        }
        table[at * classes + ids[i]] += (float)weights[i];
    }
    int64_t dims[2] = {f->n, classes};
    return b_const(r->b, ELEM_F32, dims, 2, table);
}

static bool forms_served(struct rule *r)
{
    uint32_t n;
    const int64_t *tracks = rule_ints(r, "nodes_missing_value_tracks_true", &n);
    for (uint32_t i = 0; i < n; i++)
        if (tracks[i])
            return rule_refuse(r, "nodes_missing_value_tracks_true");
    static const char *const tensors[] = {"nodes_values_as_tensor", "class_weights_as_tensor", "target_weights_as_tensor",
                                          "base_values_as_tensor"};
    for (size_t i = 0; i < COUNT_OF(tensors); i++)
        if (node_attr(r->node, tensors[i]))
            return rule_refuse(r, "lists as tensors");
    return true;
}

/* The sums of the votes of all trees for each row of x: f32 [rows, classes]. */
static value_id scores(struct rule *r, const struct forest *f, const struct votes *v, int64_t classes, value_id x)
{
    struct builder *b = r->b;
    const int64_t trees = 1;
    x = v_elem(b, x) == ELEM_F64 ? x : b_convert(b, x, ELEM_F32);
    return b_reduce(b, b_gather(b, votes_read(r, f, v, classes), leaves(r, f, x), 0), &trees, 1, "sum", false);
}

/* Of two classes, where all leaves vote for number 0: the sum is the second label's score (docs/numerics.md). */
static bool classify_two(struct rule *r, const struct forest *f, const struct votes *votes, value_id x, const int64_t *labels,
                         const double *base, uint32_t n_base)
{
    struct builder *b = r->b;
    uint32_t n, n_weights;
    const int64_t *ids = rule_ints(r, votes->ids, &n), two = 2;
    const double *weights = rule_floats(r, votes->weights, &n_weights);
    bool logistic = rule_str_is(r, "post_transform", "NONE", "LOGISTIC"), negative = false;
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] != 0)
            return rule_refuse(r, "two classes, and votes for number %lld", (long long)ids[i]);
    if (n_base > 1 || rule_str_is(r, "post_transform", "NONE", "SOFTMAX"))
        return rule_refuse(r, "two classes with %u base_values or SOFTMAX", n_base);
    for (uint32_t i = 0; i < n_weights; i++)
        negative |= weights[i] < 0;
    value_id s = scores(r, f, votes, 1, x);    /* [rows, 1] */
    if (n_base)
        s = b_binary(b, OP_ADD, s, ml_floats(b, base, 1));
    value_id second = b_binary(b, OP_LT, b_splat_like(b, s, negative ? 0 : 0.5), s);
    value_id other = b_binary(b, OP_SUB, b_splat_like(b, s, negative || logistic ? 0 : 1), s), both[2] = {other, s};
    for (int k = 0; logistic && k < 2; k++)
        both[k] = b_unary(b, OP_SIGMOID, both[k]);
    rule_out(r, 0, b_gather(b, b_const(b, ELEM_I64, &two, 1, labels), b_squeeze(b, b_convert(b, second, ELEM_I64), 1), 0));
    rule_out(r, 1, b_concat(b, both, 2, 1));
    return second.i != 0;
}

bool rule_tree_classifier(struct rule *r)
{
    static const struct votes votes = {"class_ids", "class_treeids", "class_nodeids", "class_weights"};
    struct builder *b = r->b;
    struct forest f = {0};
    uint32_t n_classes, n_base;
    const int64_t *labels = rule_ints(r, "classlabels_int64s", &n_classes);
    const double *base = rule_floats(r, "base_values", &n_base);
    int64_t classes = n_classes;
    value_id x = rule_in(r, 0);
    if (!x.i || !classifier_served(r) || !forms_served(r) || !forest_read(r, &f))
        return false;
    if (classes == 2 && v_rank(b, x) == 2)
        return classify_two(r, &f, &votes, x, labels, base, n_base);
    if (classes < 3)
        return rule_refuse(r, "%u classes", n_classes);
    if (v_rank(b, x) != 2 || (base && n_base != n_classes))
        return rule_refuse(r, "input of rank %d, %u labels, %u base_values", (int)v_rank(b, x), n_classes, n_base);
    value_id score = scores(r, &f, &votes, classes, x);
    if (base)
        score = b_binary(b, OP_ADD, score, ml_floats(b, base, n_base));
    return classifier_results(r, score, labels, classes);
}

bool rule_tree_regressor(struct rule *r)
{
    static const struct votes votes = {"target_ids", "target_treeids", "target_nodeids", "target_weights"};
    struct builder *b = r->b;
    struct forest f = {0};
    uint32_t n_base;
    const double *base = rule_floats(r, "base_values", &n_base);
    int64_t targets = rule_int(r, "n_targets", 1);
    bool average = rule_str_is(r, "aggregate_function", "SUM", "AVERAGE");
    value_id x = rule_in(r, 0);
    if (!x.i || !forms_served(r) || !forest_read(r, &f))
        return false;
    if (!rule_str_is(r, "post_transform", "NONE", "NONE"))
        return rule_refuse(r, "post_transform \"%.20s\"", rule_str(r, "post_transform", ""));
    if (!average && !rule_str_is(r, "aggregate_function", "SUM", "SUM"))
        return rule_refuse(r, "aggregate_function \"%.20s\"", rule_str(r, "aggregate_function", ""));
    if (v_rank(b, x) != 2 || targets < 1 || (base && n_base != targets))
        return rule_refuse(r, "input of rank %d, %lld targets, %u base_values", (int)v_rank(b, x), (long long)targets, n_base);
    value_id y = scores(r, &f, &votes, targets, x);
    if (average)
        y = b_binary_f64(b, OP_DIV, y, (double)f.n_trees);
    return rule_result(r, base ? b_binary(b, OP_ADD, y, ml_floats(b, base, n_base)) : y);
}
