/* Features of CPUs by name: what -mattr= may say, and which bits `open` has to find for it (runtime/rt_cpu.def). */
#pragma once

#include "ir/target/target.h"

/* The features that code for LLVM's `cpu` with `features` ("+fma4,-avx2", or "") may use, as RT_X86_* (RT_ARM_*,
 * RT_RISCV_*) bits of the architecture: the cpu's own, those that are added with all that they imply, less those that
 * are taken away with all that imply them. What LLVM or `open` does not know is a usage error; bits are then
 * unspecified. */
bool cpu_bits(struct context *, const char *arch, const char *cpu, const char *features, uint64_t *bits);
/* The features that cpu_bits() takes for an architecture because `open` can test them: "adx, aes, ...". */
void cpu_list(const char *arch, struct strbuf *);
/* Does this machine run the row's code? False for foreign architectures. */
bool cpu_runs(struct context *, const struct target_row *);
/* CPUs that this process may use, at least 1. */
uint32_t cpu_usable(void);
/* The architecture of this process, as ir/target/target.def calls it. */
const char *cpu_arch(void);
