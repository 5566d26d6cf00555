/* Kernels run twice, by the loop IR's interpreter and as machine code of each CPU variant, and compared. */
#ifndef MCC_TESTS_CODEGEN_HARNESS_H
#define MCC_TESTS_CODEGEN_HARNESS_H

#include "codegen/c/c_source.h"
#include "codegen/codegen.h"
#include "codegen/wire.h"
#include "ir/target/platform.h"
#include "runtime/rt.h"

#include <sys/types.h>

enum { CASE_ARGS = 64 };

/* Looks on after a case was compared, with its arguments as the machine code takes them. */
typedef void case_hook(int64_t count, mcc_rt_fn *, const int64_t *args, const char *cpu);

struct case_arg {
    void *data;
    int64_t bytes;
    int64_t index;
};   /* data: initial contents; NULL: an index */
struct kernel_case {
    struct lfunc *f;
    struct case_arg arg[CASE_ARGS];
    int64_t count;               /* parallel indices */
    case_hook *hook;             /* or NULL */
    struct linterp_arg *compiled; /* the arguments after the run of the last variant that c_machine is compared with */
    bool unfused; /* floats may differ by a rounding where the target has no fma */
};
struct suite {
    struct context *ctx;
    VEC(struct kernel_case) cases;
    uint64_t seed;
    bool tiles; /* for CPUs with AMX only */
};

/* Statements into a block, for short tests. */
struct build {
    struct lfunc *f;
    lblock b;
};

struct suite *suite_new(void);
void suite_free(struct suite *);
uint64_t suite_random(struct suite *);
/* A case whose kernel has no arguments yet. */
struct kernel_case *case_new(struct suite *, const char *name);
/* Arguments, in order; values %1, %2, ... A buffer gets n elements: random ones with the type's extremes, or, for out,
 * bytes that the kernel has to overwrite. */
lreg case_buffer(struct suite *, struct kernel_case *, enum elem, uint32_t flags, int64_t n);
lreg case_index(struct kernel_case *, int64_t value);
/* Appends `parallel i = 0 to count` (argument count) to the body; its block, and the variable. */
struct build case_parallel(struct kernel_case *, lreg *i);

/* Where bytes between elements of the interpreted and the compiled run differ, prints and fails the test. */
void suite_run(struct suite *);

/* Has this CPU AMX, and may this process use it? */
bool suite_has_tiles(void);

/* The kernels as C of this row, compiled with these flags (harness_c.c). */
void suite_run_c(struct suite *, const struct c_machine *, const char *flags);
/* Arguments before and after the interpreter's run. */
struct linterp_arg *case_arguments(struct suite *, const struct kernel_case *);
struct linterp_arg *case_interpreted(struct suite *, const struct kernel_case *);
/* Fails where they differ. unfused: except for a rounding. exact: in the sign of a zero, too. */
void case_compare(const struct kernel_case *, const struct linterp_arg *want, const struct linterp_arg *got,
                  const char *cpu, bool unfused, bool exact);

/* A worker (this program with --worker) that has answered the job. *end: our end of its socket; closed, the worker
 * ends. */
pid_t worker_answered(const struct wire_job *, int *end);

lreg op1(struct build, enum lop, struct ltype, lreg);
lreg op2(struct build, enum lop, struct ltype, lreg, lreg);
lreg op3(struct build, enum lop, struct ltype, lreg, lreg, lreg);
lreg op4(struct build, enum lop, struct ltype, lreg, lreg, lreg, lreg);
lreg number(struct build, struct ltype, int64_t);
lreg index_of(struct build, int64_t);
lreg load(struct build, struct ltype, lreg buffer, lreg at);
void store(struct build, lreg buffer, lreg at, lreg value);
void store_masked(struct build, lreg buffer, lreg at, lreg value, lreg mask);

#define T(e, n) ((struct ltype){ELEM_##e, n})
#define TINDEX T(I64, 1)

/* codegen_begin to codegen_end, of all units at once. */
bool codegen_objects(struct context *, struct arena *, const struct codegen_options *, struct codegen_unit *,
                     uint32_t n);

#endif
