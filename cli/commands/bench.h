/* What mcc bench gathers about kernels: bench.c fills it, roofline.c judges it. */
#ifndef MCC_CLI_BENCH_H
#define MCC_CLI_BENCH_H

#include "cli/commands/calibrate.h"
#include "cli/commands/chunks.h"
#include "cli/session.h"

enum { SAMPLES_MAX = 1000 };     /* runs whose kernels are told apart */

/* Per source node, with all kernels that bear its name. */
struct kernel_time {
    uint32_t node;
    uint64_t calls;              /* in all runs */
    double started, now;         /* ns: of the kernel at hand, and of this run so far */
    float *sample;               /* ns of each run, by run */
    double ns, all;              /* their median, their sum: profile_close */
};
struct profile {
    struct kernel_time *nodes;
    uint32_t n, runs;
    struct chunks chunks;        /* of several threads, or for --trace; threads 0: not asked for */
};

/* How often a run goes through all kernels of the node: once, or as often as a loop around them turns. */
double profile_turns(const struct session *, const struct profile *, const struct kernel_time *);
/* Kernels against the limits of the machine, those first that lose most time to them. */
void roofline_print(struct session *, struct profile *, const struct calibration *);
/* --profile: writes the times by source node, whole or not at all (profile.c, which has the form). */
bool profile_write(struct session *, const struct profile *, const char *path);
/* One line for each thing that was measured. */
void calibration_print(struct context *, const struct calibration *);

#endif
