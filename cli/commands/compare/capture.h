/* A run of a network that was compiled here, which keeps what every kernel stores (mcc diff).
 *
 * Nothing is added to the code. It runs on one thread, and after each kernel's end (mcc_host.event) what the kernel has
 * stored is copied from where the plan put it, the arena or an output, through its storage function. Kernels inside
 * loops and branches are left out. Extents that the data decides are read from what the run has stored before, and
 * from the arguments of launches, which also say where the memory is that the run asked for.
 */
#pragma once

#include "cli/library/compile/compile.h"
#include "cli/commands/artifact/session.h"

/* Of a row of the artifact's kernels. */
struct captured_row {
    bool known, found;
    uint32_t kernel;
    const struct kernel *code; /* as its variant has it; NULL: not known */
};

struct capture {
    struct compilation c;
    struct session s;
    struct arena *arena;           /* of what one run keeps; NULL: the session's */
    struct tensor **got;           /* by value: what a kernel stored, NULL where it could not be read */
    uint32_t *maker;               /* by value: the kernel that stored got */
    uint32_t launched;             /* the last launch's row of c.kernel_rows */
    double ns;                     /* what the launches so far are estimated to take as floats */
    uint32_t ended;                /* the kernel whose end the host hears of; UINT32_MAX: it is none, or not known */
    bool *ran;                     /* by kernel: it has ended, wherever it is */
    const bool *keep;              /* by value: the run keeps it; NULL: all are kept */
    int64_t *symbols;              /* by symbol id; meaningful where known */
    bool *known;                   /* by symbol id: the shapes say it, or the run has so far */
    const struct kernel *code;     /* of the last launch, as its variant has it; NULL: not known */
    struct captured_row *rows;     /* of c.kernel_rows; NULL: nothing was launched */
};

/* mcc_host.launch and mcc_host.event, with the capture as mcc_host.user. */
void capture_launch(void *user, uint32_t node, uint32_t kernel, int64_t count, int64_t ns);
void capture_event(void *user, uint32_t node, int end, uint64_t ns);
/* Are the kernel's results among what a run keeps? */
bool capture_keeps(const struct kernel *);
/* Elements of a value of this type at the sizes at hand; 0: the data decides them. */
double capture_count(const struct capture *, const struct type *);
/* Evaluates an expression of shapes and of numbers that the run has computed so far. False: it needs others. */
bool capture_number(const struct capture *, expr_id, int64_t *out);
/* Before the run, when the inputs are there. */
void capture_begin(struct capture *);
/* Where the run has the elements of a value that a kernel stored, in row-major order, *n in all, in
 * the arena; NULL: not there. */
const void **capture_places(const struct capture *, struct arena *, value_id, int64_t *n);
/* "kernel k3 (tiled; conv1, relu1)" */
const char *capture_words(const struct capture *, uint32_t kernel);
