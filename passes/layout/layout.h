/* Layout: where and in which order every stored value lies.
 *
 * In: kernels (passes/fuse). Out: module.fused.storage of everything that is stored, and the arena. Its passes are rows
 * of passes/module/passes.def, one file each, and hand on module.fused.constraint: what readers and writers ask of a
 * value's place.
 */
#ifndef MCC_PASSES_LAYOUT_LAYOUT_H
#define MCC_PASSES_LAYOUT_LAYOUT_H

#include "passes/module/module.h"

struct layouter {
    struct module *m;
    struct graph *g;
    struct exprs *x;
    struct layout_constraint *constraint;    /* by value */
    bool *computed;              /* by value: a constant that no one stores, as it is computed where it is read */
    uint32_t *numbers;           /* hashed: weight + 1 of a number */
    double *taps;                /* by value: elements of all slices of taps of a constant */
};
static inline struct layouter layouter_of(struct module *m)
{
    return (struct layouter){.m = m, .g = m->g, .x = m->ctx->exprs, .constraint = m->fused.constraint};
}
static inline bool fixed(const struct layouter *l, expr_id e, int64_t *n)
{
    return ex_is_const(l->x, e, n);
}

/* Sequences, optionals and tensors of unknown rank are the runtime's: the program carries their address. */
static inline bool in_memory(const struct type *t)
{
    return t->kind == TYPE_TENSOR && t->rank >= 0;
}

/* layout_transform.c: a storage of v's rank whose index 0 is element 0, without strides; place and halo are kept. */
void storage_new(struct layouter *, value_id v);
/* find_readers.c: by value, whether a call of the runtime, a region or the program reads or writes it, which know of no
 * strides. */
bool *read_as_a_whole(const struct module *);
/* in_place.c: the operands, `most` at most, in whose memory the result of the kernel may lie if they lie alike. */
uint32_t in_place_operands(const struct module *, const struct kernel *, value_id *out, uint32_t most);
enum { IN_PLACE_MOST = 8 };
/* All dims in their order, but `fastest` last; -1: as they are. */
void order_default(int32_t rank, int32_t fastest, int32_t *order);

#endif
