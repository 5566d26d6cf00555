/* The table of target CPUs, ir/target/target.def, as rows. */
#ifndef MCC_IR_TARGET_H
#define MCC_IR_TARGET_H

#include "ir/base/base.h"

struct machine {                 /* what the passes choose by; 0 in a member: unknown */
    uint32_t vector_bytes;       /* 64, 32, 16 */
    uint32_t registers;          /* of vectors */
    uint32_t fma_per_cycle, fma_latency, loads_per_cycle;   /* whole vectors */
    uint32_t l1_kib, l2_kib, l3_kib;                        /* data, one core's share */
    bool dot_u8, dot_bf16;       /* L_DOT is an instruction */
};
struct target_row {
    const char *arch, *name;
    bool standard;               /* in every artifact unless options say otherwise */
    const char *triple, *cpu, *features;    /* as LLVM names them */
    struct machine machine;
};

extern const struct target_row target_rows[];   /* best first within an architecture */
extern const uint32_t target_count;

/* The row of that name; NULL: none. */
const struct target_row *target_find(const char *name);
/* What the name of row t ends in, "v3" for "x86-64-v3"; all of it where another of these n rows, of the same architecture, ends so. */
const char *target_short_name(const struct target_row *rows, uint32_t n, const struct target_row *t);
/* The whole table as text, for people. */
void target_print(struct strbuf *);

#endif
