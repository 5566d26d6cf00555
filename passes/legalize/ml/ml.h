/* What the operators of ai.onnx.ml share. */
#pragma once

#include "passes/legalize/legalize.h"

/* post_transform, in the order of TreeEnsemble's numbers. */
enum ml_post { POST_NONE, POST_SOFTMAX, POST_LOGISTIC, POST_SOFTMAX_ZERO, POST_PROBIT, POST_COUNT };
/* The attribute post_transform; false after rule_bad. */
bool ml_post_read(struct rule *, enum ml_post *);
/* Scores [rows, n] of any float type after the transform. */
value_id ml_post(struct builder *, value_id scores, enum ml_post);

/* Names of classes: integers, or strings where `ints` is NULL. */
struct ml_labels {
    uint32_t n;
    const int64_t *ints;
    const char *const *strings;
};
/* From the attribute `ints` or from classlabels_strings; false after a refusal. */
bool ml_labels_read(struct rule *, const char *ints, struct ml_labels *);
/* The labels of the classes whose numbers `at` (i64) holds. */
value_id ml_label(struct rule *, const struct ml_labels *, value_id at);

/* At most so many classes have probabilities (couple.c). */
enum { SVM_PROBABLE = 16 };
/* Scores f32 [rows, pairs] of n classes' pairs (i, j), i < j -> probabilities [rows, n]; prob_a, prob_b: pairs of each.
 * {0}: refused. */
value_id svm_probabilities(struct rule *, value_id score, int64_t n, const double *prob_a, const double *prob_b);

/* Of scores [rows, n]: the label of each row's largest (the first of equal ones), and the scores after the transform as
 * f32. */
bool classifier_results(struct rule *, value_id score, const struct ml_labels *, enum ml_post);
