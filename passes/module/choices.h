/* Choices that the user makes in place of the cost model's, for the kernel around one node (--choose NODE:KEY=VALUE).
 *
 * A pass asks where it decides; a choice that nobody asked for, or that cannot be had, ends as a warning. */
#pragma once

#include "passes/module/module.h"

void choice_add(struct module *, struct choice);
/* The last one made for the node of this name; NULL: none. */
struct choice *choice_latest(const struct module *, const char *node, enum choice_key);
/* The one made before it of the same key for the same node; NULL: none. */
struct choice *choice_before(const struct module *, const struct choice *);
/* The last one made for a node of the kernel, or for this node; NULL: none. It counts as asked for. */
struct choice *choice_of_kernel(const struct module *, const struct kernel *, enum choice_key);
struct choice *choice_of_node(const struct module *, node_id, enum choice_key);
enum { CHUNK_BYTES_MOST = 16 << 20 };     /* scratch that a chosen chunk may take */
/* Warns that it cannot be had, and why. */
void choice_refuse(const struct module *, const struct choice *, const char *why);
