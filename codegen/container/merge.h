/* Objects of a model and of the runtime as they become one file, for formats whose linker makes no relocatable ones:
 * the objects, the names that they define, and the product as it is written.
 */
#pragma once

#include "codegen/container/container.h"

struct merge_name {
    const char *name;
    uint32_t member, symbol; /* the object that defines it, and its symbol there */
    const char *as; /* another name, whose definition this is; NULL: it is one */
    uint32_t next;
};
struct merging {
    struct arena *arena;
    struct span *objects; /* the table's, those of units, then those of the runtime */
    uint32_t n, n_model; /* n_model: those that are not the runtime's */
    VEC(struct merge_name) names;
    uint32_t heads[1024]; /* name + 1 by hash */
};

/* Fills the objects, and the names of units that have the code of others; prefix: of every symbol in the format. */
void merging_begin(struct merging *, struct linking *, const char *prefix);
/* The first definition of a name stays. as: see above. */
void merging_define(struct merging *, const char *name, uint32_t member, uint32_t symbol, const char *as);
/* NULL: it is defined nowhere here. */
const struct merge_name *merging_find(const struct merging *, const char *name);

/* Writes the product: head, the weights, tail. desc: its table, which lies at desc_at of head. front: the first bytes
 * of an archive with one member of this size. False after a diagnostic. */
bool merging_write(const struct linked *, struct mcc_rt_desc *desc, uint64_t desc_at, struct span head,
                   struct span tail, struct span (*front)(struct arena *, const char *symbol, uint64_t member_size));
