/* The table of target CPUs, ir/target/target.def, as rows. */
#ifndef MCC_IR_TARGET_H
#define MCC_IR_TARGET_H

#include "ir/base/base.h"

enum {   /* what a CPU has, as the runtime asks it: RT_CPU_* of runtime/rt.h, checked to be equal in cli/backend.c */
    CPU_X86_V2 = 1 << 0, CPU_X86_V3 = 1 << 1, CPU_X86_V4 = 1 << 2, CPU_X86_VNNI = 1 << 3, CPU_X86_BF16 = 1 << 4,
    CPU_ARM_DOTPROD = 1 << 8, CPU_ARM_I8MM = 1 << 9, CPU_RISCV_V = 1 << 16
};
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
    uint64_t needs;              /* CPU_* bits */
    struct machine machine;
};

extern const struct target_row target_rows[];   /* best first within an architecture */
extern const uint32_t target_count;

/* The row of that name; NULL: none. */
const struct target_row *target_find(const char *name);
/* Does this process's CPU run the row's code? False for foreign architectures. */
bool target_runs_here(const struct target_row *);
/* The whole table as text, for people. */
void target_print(struct strbuf *);

#endif
