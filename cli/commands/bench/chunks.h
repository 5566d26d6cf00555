/* Which thread worked when: what mcc_host.chunk tells mcc bench, for the share of a kernel that is lost to waiting and
 * for --trace. */
#pragma once

#include "cli/commands/artifact/session.h"

struct chunk {
    uint32_t node;
    uint64_t from, to;
}; /* ns, of the runtime's clock */

/* One thread's. Only that thread writes while a run is in progress. */
struct thread_chunks {
    double *busy; /* ns by node, in all runs */
    struct chunk *last; /* of the last run */
    uint32_t n, lost; /* kept in `last`; beyond its room */
};
struct chunks {
    uint32_t threads, nodes;
    struct thread_chunks *of;
};

/* Room for so many threads; keep: the last run's chunks too. */
void chunks_open(struct arena *, struct chunks *, uint32_t threads, uint32_t nodes, bool keep);
/* mcc_host.chunk: user is a struct chunks. Threads beyond its number are not counted. */
void chunks_add(struct chunks *, uint32_t node, uint32_t thread, uint64_t from, uint64_t to);
/* Before a run: forgets the last one's chunks. */
void chunks_begin(struct chunks *);
/* The share of `ns`, which kernels of the node took in all runs, that its threads were not busy: 0 to 1. */
double chunks_idle(const struct chunks *, uint32_t node, double ns);
/* --trace: the last run's chunks as JSON of Chrome's trace viewer, a row for each thread. False after a diagnostic. */
bool chunks_write(struct session *, const struct chunks *, const char *path);
