/* What the forms of attention share: heads, products of grouped heads, rotary embeddings. */
#pragma once

#include "passes/legalize/legalize.h"

/* (B, L, H * d) -> (B, H, L, d); rank 4 stays as it is. */
value_id heads_split(struct rule *, value_id x, int64_t heads);
/* (B, H, L, d) -> (B, L, H * d). */
value_id heads_join(struct builder *, value_id x);
/* Query heads and the key heads that they share: `each` queries a key. False after a diagnostic. */
struct head_groups {
    expr_id batch, heads, keys, rows, each;
};
bool head_groups(struct rule *, value_id q, value_id k, struct head_groups *);
/* Heads that share keys as rows of one product, so that keys and values are read once for all of them: x, which
 * broadcasts to (B, Hq, L, n), as (B, Hkv, Hq / Hkv * L, n); and back. */
value_id heads_folded(struct builder *, const struct head_groups *, value_id x);
value_id heads_unfolded(struct builder *, const struct head_groups *, value_id x);
/* a (B, Hq, L, d) times c (B, Hkv, d, S) or its transpose, Hq a multiple of Hkv; (B, Hq, L, S). */
value_id grouped_product(struct rule *, value_id a, value_id c, bool transpose);
/* Times the attribute scale, by default 1 / sqrt(head size). */
value_id scores_scaled(struct rule *, value_id scores, expr_id size);
/* cap * tanh(x / cap); x where the cap is 0. */
value_id scores_capped(struct builder *, value_id x, double cap);
/* Takes n elements of the last of x's 4 dims: element `first` and every second one after it. {0}: x is not a tensor. */
value_id every_second(struct builder *, value_id x, int64_t first, expr_id n);
/* The first `turned` elements of each head of x (B, H, L, d) turned by cosines and sines (B or 1, 1, L, turned / 2):
 * pairs are neighbours where interleaved, else elements of the two halves. */
value_id heads_turned(struct builder *, value_id x, value_id cosines, value_id sines, bool interleaved, expr_id turned);
/* A cache (B, H, P, d) with the rows (B, H, L, d) in their places: after the first `before` (i64, one or one a
 * sequence). It has max(P, total) rows; those that neither gives are 0. */
value_id cache_updated(struct rule *, value_id cache, value_id rows, value_id before, expr_id total);

enum { STATES_MOST = 8 }; /* state_window */
/* The last state of operand 3 [window, ...], from which a run goes on. */
value_id v_state_last(struct rule *, int64_t window);
