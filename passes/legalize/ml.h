/* What the classifiers of ai.onnx.ml share. */
#ifndef MCC_PASSES_LEGALIZE_ML_H
#define MCC_PASSES_LEGALIZE_ML_H

#include "passes/legalize/legalize.h"

/* A list of an attribute as f32 [n]. */
value_id ml_floats(struct builder *, const double *, int64_t n);
/* Are labels and post_transform of a kind that classifier_results serves? false after a refusal. */
bool classifier_served(struct rule *);
/* Of scores f32 [rows, n]: the label of each row's largest (the first of equal ones), and the scores after post_transform. */
bool classifier_results(struct rule *, value_id score, const int64_t *labels, int64_t n);

#endif
