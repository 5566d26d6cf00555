/* Bounds of the keys that a row of an attention sees, from the conditions in front of its softmax. */
#pragma once

#include "passes/module/attention.h"

/* Only keys below v + more (end), or only those from v + more on, have a part: v an integer, at idx, which knows
 * nothing of the key. The others are minus infinity in z, or not above `low`: those have a part in rows whose maximum
 * is not far above (attention_far). */
typedef void attention_bound_fn(void *user, value_id v, const expr_id *idx, bool end, bool more, double low);
/* Calls bound for each bound that holds at a point of z, where the symbol `key` is the key; returns how many. Values
 * that another kernel stores are not looked into: storages must be known. */
uint32_t attention_bounds(const struct module *, const struct attention *, const expr_id *z_point, expr_id key,
                          attention_bound_fn *, void *user);

/* A maximum above this makes the exponentials of all that is not above `low` 0. */
double attention_far(double low);
