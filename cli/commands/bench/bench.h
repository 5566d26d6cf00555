/* What mcc bench measures: measure.c fills it, bench.c prints it, roofline.c judges it, bench_json.c hands it on. */
#pragma once

#include "cli/commands/bench/calibrate.h"
#include "cli/commands/bench/chunks.h"
#include "cli/library/compile/backend.h"
#include "cli/library/json.h"
#include "cli/commands/artifact/session.h"

enum { SAMPLES_MAX = 1000 };     /* runs whose kernels are told apart */

/* Per source node, with all kernels that bear its name. */
struct kernel_time {
    uint32_t node;
    uint64_t calls;              /* in all runs */
    double started, now;         /* ns: of the kernel at hand, and of this run so far */
    float *sample;               /* ns of each run, by run */
    double ns, all;              /* their median, their sum: profile_close */
    double flops[PRODUCTS];   /* of its kernels that ran, each once */
};
struct profile {
    struct kernel_time *nodes;
    uint32_t n, runs;
    struct chunks chunks;        /* of several threads, or for --trace; threads 0: not asked for */
    bool *launched;              /* by kernel of the artifact: mcc_rt_kernel */
    uint32_t n_launched;
};

/* An artifact with its times. ctx and options are the caller's. */
struct measure {
    struct context *ctx;
    const struct options *options;
    const char *library;
    struct session s;            /* open after measure() */
    double *ns;                  /* of whole runs, ascending */
    uint32_t runs;
    size_t workspace;            /* bytes */
    struct profile profile;      /* by node, until profile_sort */
    bool by_dims;                /* operations and bytes are counted for --dim, not for the symbols' least values */
    bool counted;                /* after measure(): these are the sizes of the runs */
};

/* Loads the library and runs it as --runs says, twice; false after a diagnostic. measure_end closes it either way. */
bool measure(struct measure *, const char *library);
void measure_end(void *measure);
/* Operations of a run; 0: not known, since they were counted for other sizes. */
uint64_t measure_flops(const struct measure *);
/* ns that the multiply-adds of a node's kernels, each run once, take at the peak of their arithmetic; 0: not known. */
double measure_peak_ns(const struct measure *, const struct kernel_time *, const struct calibration *);
/* That of most of these multiply-adds. */
enum products kernel_arithmetic(const struct kernel_time *);
uint64_t measure_file_bytes(const struct measure *);
/* As an object (docs/json.md); roofline: with the limits of the machine, which are measured now. */
void measure_json(struct measure *, const char *key, bool roofline, struct json *);
void calibration_json(const struct calibration *, const char *key, struct json *);

/* Can the output `path` be written, and is it not the command's file? */
bool beside_ok(struct context *, const struct options *, const char *path);
/* The kernels that take longest first. */
void profile_sort(struct profile *);
/* How often a run goes through all kernels of the node: once, or as often as a loop around them turns. */
double profile_turns(const struct session *, const struct profile *, const struct kernel_time *);
/* Kernels against the limits of the machine, those first that lose most time to them. */
bool roofline_known(const struct measure *); /* false after an error: nothing is counted for these sizes */
void roofline_print(struct measure *, const struct calibration *);
/* --profile: writes the times by source node, whole or not at all (profile.c, which has the form). */
bool profile_write(struct session *, const struct profile *, const char *path);
/* Reads what mcc bench --profile wrote: ns[i] of node i, below 0 where it leads no kernel. The file must have been made
 * from an artifact of the same network with the same options; false after a diagnostic. */
bool profile_read(struct context *, const char *path, const mcc_node *, uint32_t n, double *ns);
/* One line for each thing that was measured. */
void calibration_print(struct context *, const struct calibration *);
