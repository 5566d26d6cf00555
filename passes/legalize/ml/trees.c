/* TreeEnsembleClassifier, TreeEnsembleRegressor and TreeEnsemble of ai.onnx.ml: the votes of the leaves that each row
 * comes to (forest.c), put together for each class or target.
 */
#include "passes/legalize/ml/forest.h"

#include <math.h>

enum how { HOW_AVERAGE, HOW_SUM, HOW_MIN, HOW_MAX, HOW_COUNT }; /* in the order of TreeEnsemble's aggregate_function */

static const struct {
    const char *name, *monoid;
    enum op op; /* of the monoid */
    double start;
} hows[HOW_COUNT] = {
    {"AVERAGE", "sum", OP_ADD, 0},
    {"SUM", "sum", OP_ADD, 0},
    {"MIN", "min", OP_MIN, INFINITY},
    {"MAX", "max", OP_MAX, -INFINITY},
};

/* Votes as tables: weight [nodes, classes], and who has voted, where not every leaf votes for every class. */
struct ballot {
    value_id weight, voted;
};

static bool ballot_read(struct rule *r, const struct forest *f, const struct votes *v, int64_t classes, enum how how,
                        enum elem elem, struct ballot *out)
{
    struct builder *b = r->b;
    if (classes < 1 || classes > FOREST_TABLE_MAX || f->n > FOREST_TABLE_MAX / classes)
        return rule_refuse(r, "there are %lld nodes for %lld classes or targets", (long long)f->n, (long long)classes);
    int64_t n = f->n * classes, dims[2] = {f->n, classes};
    double *weight = NEW_ARRAY(&b->g->arena, double, n);
    uint8_t *voted = arena_alloc_array(&b->g->arena, (size_t)n, 1);
    bool all = true;
    memset(voted, 0, (size_t)n);
    for (int64_t i = 0; i < n; i++)
        weight[i] = hows[how].start;
    for (int64_t i = 0; i < v->n; i++) {
        int64_t at = v->at[i] * classes + v->id[i];
        weight[at] = how == HOW_MIN   ? fmin(weight[at], v->weight[i])
                     : how == HOW_MAX ? fmax(weight[at], v->weight[i])
                                      : weight[at] + v->weight[i];
        voted[at] = 1;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t slot = i / classes;
        all &= voted[i] || f->branch[slot] != BRANCH_NONE || (slot >= f->real && slot < f->n_trees);
    }
    value_id table = elem == ELEM_F64 ? b_const(b, ELEM_F64, dims, 2, weight)
                                      : v_reshape_i(b, v_floats(b, weight, n), dims, 2);
    *out = (struct ballot){table, (value_id){0}};
    if (!all && (how == HOW_MIN || how == HOW_MAX))
        out->voted = b_const(b, ELEM_BOOL, dims, 2, voted);
    return true;
}

/* [groups, rows, trees of a group, classes], or one group without that dim, to [rows, classes]. A group is a kernel's
 * index for each row, so that its trees stay near the core from row to row. */
static value_id counted(struct builder *b, value_id votes, const char *monoid)
{
    const int64_t trees = v_rank(b, votes) - 2, groups = 0;
    value_id y = b_reduce(b, votes, &trees, 1, monoid, false);
    return trees > 1 ? b_reduce(b, y, &groups, 1, monoid, false) : y;
}

/* The votes of all trees for each row of x: [rows, classes], f64 where x or the weights are, else f32; 0 for a class
 * that no tree votes for. {0} after a report. */
static value_id tally(struct rule *r, const struct forest *nodes, const struct votes *v, int64_t classes, enum how how,
                      value_id x)
{
    struct builder *b = r->b;
    struct ballot ballot = {0};
    struct forest f = *nodes;
    struct votes votes = *v;
    enum elem elem = v_elem(b, x) == ELEM_F64 || v->elem == ELEM_F64 ? ELEM_F64 : ELEM_F32;
    for (int64_t i = 0; i < v->n; i++)
        if (v->id[i] < 0 || v->id[i] >= classes)
            return rule_bad(r, "element %lld of the votes is for number %lld of %lld", (long long)i,
                            (long long)v->id[i], (long long)classes),
                   (value_id){0};
    if (!forest_slots(r, &f, &votes) || !ballot_read(r, &f, &votes, classes, how, elem, &ballot))
        return (value_id){0};
    value_id leaf = forest_walk(r, &f, x), voted = {0};
    if (!leaf.i)
        return leaf;
    value_id y = counted(b, b_gather(b, ballot.weight, leaf, 0), hows[how].monoid);
    if (ballot.voted.i)
        voted = counted(b, b_gather(b, ballot.voted, leaf, 0), "or");
    if (how == HOW_AVERAGE)
        y = b_binary_f64(b, OP_DIV, y, (double)f.real);
    return voted.i ? b_select(b, voted, y, b_splat_like(b, y, 0)) : y;
}

static value_id add_base(struct builder *b, value_id y, const double *base, int64_t n)
{
    return base ? b_binary(b, OP_ADD, y, b_convert(b, b_const(b, ELEM_F64, &n, 1, base), v_elem(b, y))) : y;
}

static bool rank_is_two(struct rule *r, value_id x)
{
    return v_rank(r->b, x) == 2 || rule_refuse(r, "the input has rank %d", (int)v_rank(r->b, x));
}

/* ---- classifier -------------------------------------------------------------------------------------------------- */

/* Of two classes, where all votes are for one: their sum is the second label's score (docs/notes/onnx-decisions.md). */
static bool classify_one(struct rule *r, const struct forest *f, const struct votes *v, value_id x,
                         const struct ml_labels *labels, const double *base, uint32_t n_base, enum ml_post post)
{
    struct builder *b = r->b;
    bool negative = false, second_votes = v->id[0] == 1, logistic = post == POST_LOGISTIC;
    if (n_base > (second_votes ? 0 : 1) || (!second_votes && post == POST_PROBIT))
        return rule_refuse(r, "two classes, votes for one, %u base_values and post_transform \"%.20s\"", n_base,
                           rule_str(r, "post_transform", "NONE"));
    int64_t *id = NEW_ARRAY(&b->g->arena, int64_t, v->n);
    for (int64_t i = 0; i < v->n; i++) {
        negative |= v->weight[i] < 0;
        id[i] = 0;
    }
    struct votes single = {v->n, v->at, id, v->weight, v->elem};
    value_id s = add_base(b, tally(r, f, &single, 1, HOW_SUM, x), base, n_base); /* [rows, 1] */
    value_id second = b_binary(b, OP_LT, b_splat_like(b, s, negative ? 0 : 0.5), s);
    value_id other = b_binary(b, OP_SUB, b_splat_like(b, s, negative || logistic ? 0 : 1), s);
    value_id both[2] = {second_votes ? b_splat_like(b, s, 0) : other, s}, score = b_concat(b, both, 2, 1);
    rule_out(r, 0, ml_label(r, labels, b_squeeze(b, b_convert(b, second, ELEM_I64), 1)));
    if (second_votes || logistic)
        score = ml_post(b, score, post);
    rule_out(r, 1, b_convert(b, score, ELEM_F32));
    return second.i != 0;
}

bool rule_tree_classifier(struct rule *r)
{
    static const struct vote_names names = {"class_ids", "class_treeids", "class_nodeids", "class_weights",
                                            "class_weights_as_tensor"};
    struct builder *b = r->b;
    struct forest f = {0};
    struct votes v = {0};
    struct ml_labels labels;
    uint32_t n_base;
    enum elem base_elem;
    enum ml_post post;
    const double *base = ml_numbers(r, "base_values", "base_values_as_tensor", &n_base, &base_elem);
    value_id x = rule_in(r, 0);
    if (!x.i || !ml_labels_read(r, "classlabels_int64s", &labels) || !ml_post_read(r, &post) || !rank_is_two(r, x) ||
        !forest_read_named(r, &names, v_elem(b, x), &f, &v))
        return false;
    bool one = v.n > 0;
    for (int64_t i = 1; i < v.n; i++)
        one &= v.id[i] == v.id[0];
    if (labels.n == 2 && one && (v.id[0] == 0 || v.id[0] == 1))
        return classify_one(r, &f, &v, x, &labels, base, n_base, post);
    if (labels.n < 2 || (base && n_base != labels.n))
        return rule_refuse(r, "there are %u labels and %u base_values", labels.n, n_base);
    value_id score = add_base(b, tally(r, &f, &v, labels.n, HOW_SUM, x), base, n_base);
    return classifier_results(r, score, &labels, post);
}

/* ---- regressors -------------------------------------------------------------------------------------------------- */

bool rule_tree_regressor(struct rule *r)
{
    static const struct vote_names names = {"target_ids", "target_treeids", "target_nodeids", "target_weights",
                                            "target_weights_as_tensor"};
    struct builder *b = r->b;
    struct forest f = {0};
    struct votes v = {0};
    uint32_t n_base;
    enum elem base_elem;
    enum ml_post post;
    enum how how = HOW_AVERAGE;
    const double *base = ml_numbers(r, "base_values", "base_values_as_tensor", &n_base, &base_elem);
    int64_t targets = rule_int(r, "n_targets", 1);
    value_id x = rule_in(r, 0);
    while (how < HOW_COUNT && !rule_str_is(r, "aggregate_function", "SUM", hows[how].name))
        how++;
    if (how == HOW_COUNT)
        return rule_bad(r, "aggregate_function \"%.20s\"", rule_str(r, "aggregate_function", ""));
    if (!x.i || !ml_post_read(r, &post) || !rank_is_two(r, x) || !forest_read_named(r, &names, v_elem(b, x), &f, &v))
        return false;
    if (base && n_base != targets)
        return rule_bad(r, "%u base_values for %lld targets", n_base, (long long)targets);
    value_id y = add_base(b, tally(r, &f, &v, targets, how, x), base, n_base);
    return rule_result(r, b_convert(b, ml_post(b, y, post), ELEM_F32));
}

bool rule_tree_ensemble(struct rule *r)
{
    struct builder *b = r->b;
    struct forest f = {0};
    struct votes v = {0};
    int64_t how = rule_int(r, "aggregate_function", HOW_SUM), post = rule_int(r, "post_transform", POST_NONE);
    value_id x = rule_in(r, 0);
    if (!x.i || !rank_is_two(r, x))
        return false;
    if (how < 0 || how >= HOW_COUNT || post < 0 || post >= POST_COUNT)
        return rule_bad(r, "aggregate_function %lld, post_transform %lld", (long long)how, (long long)post);
    if (!forest_read_indexed(r, v_elem(b, x), &f, &v))
        return false;
    value_id y = tally(r, &f, &v, rule_int(r, "n_targets", 1), (enum how)how, x);
    return rule_result(r, b_convert(b, ml_post(b, y, (enum ml_post)post), v_elem(b, x)));
}
