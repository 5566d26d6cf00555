/* Layout: assigns memory and a layout to every stored value.
 *
 * In: kernels (passes/fuse). Out: module.fused.storage of every stored value, and the arena. The passes are rows of
 * passes/module/passes.def, one file each. They communicate through module.fused.constraint: what readers and writers
 * of a value require of its layout.
 */
#pragma once

#include "passes/module/module.h"

struct layouter {
    struct module *m;
    struct graph *g;
    struct exprs *x;
    struct layout_constraint *constraint;    /* by value */
    bool *computed;              /* by value: a constant that is not stored, because its readers compute it */
    uint32_t *numbers;           /* hash table: weight + 1 of a splat constant */
    double *taps;                /* by value: number of elements in all slices of taps of a constant */
};
static inline struct layouter layouter_of(struct module *m)
{
    return (struct layouter){.m = m, .g = m->g, .x = m->ctx->exprs, .constraint = m->fused.constraint};
}
static inline bool fixed(const struct layouter *l, expr_id e, int64_t *n)
{
    return ex_is_const(l->x, e, n);
}

/* Is the value a tensor in memory? The runtime owns sequences, optionals and tensors of unknown rank; the program only
 * has their address. */
static inline bool in_memory(const struct type *t)
{
    return t->kind == TYPE_TENSOR && t->rank >= 0;
}

/* layout_transform.c: resets the storage of v: rank of v, origin 0, no strides. Keeps place and halo. */
void storage_new(struct layouter *, value_id v);
/* find_readers.c: by value, true if a call of the runtime, a region or the program reads or writes it. These need
 * row-major memory. The array is in the module's arena. */
bool *read_as_a_whole(const struct module *);
/* in_place.c: stores to `out` at most IN_PLACE_MOST operands whose memory the kernel's result may reuse if the layouts
 * are equal; returns their number. */
uint32_t in_place_operands(const struct module *, const struct kernel *, value_id *out);
enum { IN_PLACE_MOST = 8 };
/* Stores the dims in ascending order, except that `fastest` comes last; -1: no exception. */
void order_default(int32_t rank, int32_t fastest, int32_t *order);
