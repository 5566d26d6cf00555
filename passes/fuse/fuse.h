/* Interfaces between the parts of fuse: the walk over the nodes (fuse.c), the demand of consumers on a value
 * (demand.c), and the decision whether to store it (store.c). */
#pragma once

#include "passes/module/module.h"

#define DEMAND_NONE 0u
#define DEMAND_MANY UINT32_MAX
struct demand {
    uint32_t kernel; /* id + 1, or DEMAND_NONE, or DEMAND_MANY */
    bool hard; /* the consumer reads memory: the value must be stored, or be a cheap view of a stored value */
    bool bijective; /* the kernel reads it at exactly the points of its domain */
    bool several_points; /* the kernel reads it at different points */
    uint32_t context; /* node.i of the inner reduction that reads it; 0: the kernel's own points */
    const expr_id *idx; /* the point, in the kernel's domain symbols */
    node_id via; /* the first consumer */
    uint32_t depth; /* number of nodes between the value and the stored value */
};
struct fuser {
    struct module *m;
    struct graph *g;
    struct exprs *x;
    struct demand *demand; /* by value */
    bool *required; /* by value */
    VEC(sym_id) domain_first; /* by kernel: first of its domain symbols (consecutive) */
};

/* demand.c: records that the kernel reads v from memory. */
void demand_hard(struct fuser *, value_id v, uint32_t kernel, uint32_t depth);
/* Records that the kernel of `from` reads v, an operand of node via, at the points idx. */
void demand_at(struct fuser *, value_id v, node_id via, const struct demand *from, const expr_id *idx, bool bijective,
               uint32_t context);
/* Records the demands of an elementwise node or a view, which a kernel computes, on its operands. */
void demand_operands(struct fuser *, node_id, const struct demand *);
/* Records the demand of an inner or anchoring `reduce` on its operand: the result's point, and new symbols for the
 * axes.
 */
void demand_reduce_operand(struct fuser *, node_id, const struct demand *);
void demand_segments(struct fuser *, node_id, const struct demand *);
/* Is every index a domain symbol or a constant? Then *mask has the bits of the domain's dims that occur. */
bool demand_row_mask(const struct fuser *, const struct demand *, int32_t rank, uint32_t *mask);
/* A new symbol for the indices of a dim of this extent. */
sym_id demand_symbol(struct fuser *, expr_id extent, const char *name);

/* store.c: should a kernel of its own store the result of node n, given this demand? */
bool store_wanted(const struct fuser *, const struct node *n, const struct demand *, bool required);
/* Is it faster to store v than to compute it, although each point is read once? */
bool store_pays(const struct fuser *, value_id v);
/* Is the index of gather n expensive, and does n read so few elements that vector code should compute and store the
 * index? */
bool dear_index(const struct fuser *, const struct node *n);
/* Is v, which several stages of a row read, expensive enough for a row buffer? Then *out describes the buffer. */
bool store_row(const struct fuser *, value_id v, const struct demand *, struct row_local *out);
