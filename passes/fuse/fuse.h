/* What the parts of fuse share: the walk over the nodes (fuse.c), what consumers demand of a value (demand.c), and
 * whether it is stored (store.c). */
#ifndef MCC_PASSES_FUSE_H
#define MCC_PASSES_FUSE_H

#include "passes/module/module.h"

#define DEMAND_NONE 0u
#define DEMAND_MANY UINT32_MAX
struct demand {
    uint32_t kernel; /* id + 1, or DEMAND_NONE, or DEMAND_MANY */
    bool hard; /* memory wanted: stored, or a cheap view of something stored */
    bool bijective; /* wanted at exactly the points of the kernel's domain */
    bool several_points; /* wanted at different points of the same kernel */
    uint32_t context; /* node.i of the inner reduction that wants it; 0: the kernel's own points */
    const expr_id *idx; /* point in terms of the kernel's domain symbols */
    node_id via; /* consumer through which the demand came first */
    uint32_t depth; /* nodes between the value and what is stored */
};
struct fuser {
    struct module *m;
    struct graph *g;
    struct exprs *x;
    struct demand *demand; /* by value */
    bool *required; /* by value */
    VEC(sym_id) domain_first; /* by kernel: first of its domain symbols (consecutive) */
};

/* demand.c: the kernel wants v in memory. */
void demand_hard(struct fuser *, value_id v, uint32_t kernel, uint32_t depth);
/* The kernel of `from` wants v, an operand of node via, at the points idx. */
void demand_at(struct fuser *, value_id v, node_id via, const struct demand *from, const expr_id *idx, bool bijective,
               uint32_t context);
/* Demands on the operands of an elementwise node or a view that is computed inside a kernel. */
void demand_operands(struct fuser *, node_id, const struct demand *);
/* Demands of an inner or anchoring `reduce` on its operand: the result's point plus fresh symbols for the axes. */
void demand_reduce_operand(struct fuser *, node_id, const struct demand *);
void demand_segments(struct fuser *, node_id, const struct demand *);
/* Is every index a bare domain symbol (or a constant)? Then which dims does it use? */
bool demand_row_mask(const struct fuser *, const struct demand *, int32_t rank, uint32_t *mask);
/* A fresh symbol for the indices of a dim of this extent. */
sym_id demand_symbol(struct fuser *, expr_id extent, const char *name);

/* store.c: is node n's result, which is demanded so, stored by a kernel of its own? */
bool store_wanted(const struct fuser *, const struct node *n, const struct demand *, bool required);
/* Is v better stored than computed, though it is wanted at each point once? Where it is dear, or costs nothing there.
 */
bool store_pays(const struct fuser *, value_id v);
/* Is the index of gather n dear, and does it fetch so few elements that vectors had better compute and store it? */
bool dear_index(const struct fuser *, const struct node *n);
/* Is v, which several stages of a row want, dear enough to be kept for the row? And where. */
bool store_row(const struct fuser *, value_id v, const struct demand *, struct row_local *out);

#endif
