/* Which bytes of the arena are taken, by when: where does another buffer fit? */
#pragma once

#include "ir/base/base.h"

/* Bytes that are taken: disjoint ranges with gaps between them, in ascending order. */
struct taken {
    struct byte_range {
        int64_t begin, end;
    } *data;
    uint32_t n, cap;
};
/* A segment tree over the kernels of the run. Buffers that lie side by side are one range, so a node has few of them
 * however many buffers live. */
struct lives {
    struct arena *arena;
    struct life {
        struct taken whole;   /* as long as all kernels below the node run */
        struct taken some;    /* while some kernel below the node runs */
    } *node;
    uint32_t n_leaves;
    uint64_t work;            /* steps up to now */
};

void lives_begin(struct lives *, uint32_t n_kernels);
/* A buffer that lives from kernel `first` to kernel `last` of the run lies at an offset. */
void lives_add(struct lives *, uint32_t first, uint32_t last, int64_t offset, int64_t size);
/* The lowest offset of `size` bytes that are free from `first` to `last`. False: that would take too many steps, after
 * tens of thousands of gaps between buffers. */
bool lives_gap(struct lives *, uint32_t first, uint32_t last, int64_t size, int64_t *offset);
