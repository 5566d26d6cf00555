/* Shared by verify_module.c and verify_memory.c: a module under examination. */
#pragma once

#include "passes/module/access_function.h"

struct check {
    struct module *m;
    struct graph *g;
    struct exprs *x;
    struct arena arena;
    struct graph_numbers n;      /* for messages */
    uint32_t *maker;             /* by value: kernel + 1 that stores it */
    uint32_t *inside, *last;     /* by node: kernel + 1 that was looked at last, or last of all, and computes it */
    uint32_t *seen, turn;        /* by value: the last turn that met it */
    uint32_t *reads;             /* by value: those of the attention that is looked at */
    VEC(value_id) work;
    bool ok;
};
PRINTF_LIKE(3, 4)
void violated(struct check *, int number, const char *fmt, ...);

/* Calls read for each value that kernel `index` reads from memory. */
typedef void read_fn(struct check *, uint32_t index, value_id v);
void kernel_reads(struct check *, uint32_t index, read_fn *read);
/* Invariants of places, storages and buffers, as far as the facts go. */
void verify_memory(struct check *);
