/* Buffers by when they live: which of those entered so far live at the same time as another one? */
#ifndef MCC_PASSES_LIVES_H
#define MCC_PASSES_LIVES_H

#include "passes/module/module.h"

/* A buffer that lives from kernel `first` to kernel `last` of the run, and where it is packed (bytes). */
struct packed {
    uint32_t buffer, first, last;
    int64_t offset, size;
    struct packed *next;      /* of those that begin at the same kernel */
};
struct lives {
    struct arena *arena;
    struct packed **begin;    /* by kernel: those that begin there */
    /* A segment tree over the kernels: a buffer stands at the O(log n) nodes that together cover its life. */
    VEC(struct life_entry {
        struct packed *b;
        uint32_t next;
    })
    entries;                  /* [0] unused */
    uint32_t *node, n_leaves;
    struct packed **found;    /* what lives_find has found */
    uint64_t work;            /* steps of all searches */
};

/* For a run of n_kernels kernels and at most n buffers. */
void lives_begin(struct lives *, uint32_t n_kernels, uint32_t n);
void lives_add(struct lives *, struct packed *);
/* The buffers that live at some time from `first` to `last`, into found. False: the searches up to now have taken so
 * many steps that this one is left out (thousands of buffers that all live at the same time). */
bool lives_find(struct lives *, uint32_t first, uint32_t last, uint32_t *n);

#endif
