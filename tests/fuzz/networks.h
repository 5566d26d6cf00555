/* Small networks that together have every kind of kernel and every decision of a schedule: what test_schedules draws
 * records for. */
#ifndef MCC_TESTS_FUZZ_NETWORKS_H
#define MCC_TESTS_FUZZ_NETWORKS_H

#include "tests/fuzz/ways.h"

struct network {
    const char *name;
    void (*build)(struct draw *); /* a result or several; nodes are called "n" and their number */
    uint32_t winograd;
    enum option_precision precision;
    enum layout_choice layout;
};
extern const struct network networks[];
extern const uint32_t network_count;

/* The network's graph; NULL after a diagnostic. */
struct draw *network_draw(struct context *, const struct network *);
/* The graph of a file as tests/passes/graphs has them; NULL after a diagnostic, or where it has more symbols than a
 * drawn one. */
struct draw *network_read(struct context *, const char *text);

#endif
