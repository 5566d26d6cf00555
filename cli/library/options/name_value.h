/* NAME=VALUE items of options: sizes of symbolic dimensions (--dim), files and seeds of inputs (-i). */
#pragma once

#include "cli/library/options/options.h"

/* The feed for input `name` among NAME=... texts: what follows the '=', or NULL. */
const char *feed_find(const struct text_list *, const char *name);
/* Refuses feeds for names that are none of names[n]. */
bool feeds_known(struct context *, const struct text_list *, const char *const *names, uint32_t n);
/* Refuses --dim for names that are none of names[n] (NULL entries: no name). */
bool dims_known(struct context *, const struct text_list *, const char *const *names, uint32_t n);
/* The seed of the feed random[:SEED]; `otherwise` where it has none. */
bool feed_seed(struct context *, const char *feed, uint64_t otherwise, uint64_t *out);
/* --dim NAME=N: *out stays as it is when the name is not given. */
bool dim_find(struct context *, const struct text_list *, const char *name, int64_t *out);
