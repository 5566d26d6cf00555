/* Features of CPUs as bits (rt_cpu.def): what `open` finds, and what mcc asks it to find. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    X86_1_ECX,
    X86_7_EBX,
    X86_7_ECX,
    X86_7_EDX,
    X86_71_EAX,
    X86_71_EDX,
    X86_EXT_ECX,
    X86_WORDS
};   /* of CPUID: leaf, register */
enum { ARM_HWCAP = 16, ARM_HWCAP2 = 26 };    /* of the auxiliary vector */

enum {
#define X86(id, name, word, bit, implied) RT_X86_##id,
#include "runtime/rt_cpu.def"
    RT_X86_COUNT
};
enum {
#define ARM(id, name, vector, bits, implied) RT_ARM_##id,
#include "runtime/rt_cpu.def"
    RT_ARM_COUNT
};
enum {
#define RISCV(id, name, bits, implied) RT_RISCV_##id,
#include "runtime/rt_cpu.def"
    RT_RISCV_COUNT
};
_Static_assert(RT_X86_COUNT <= 64 && RT_ARM_COUNT <= 64 && RT_RISCV_COUNT <= 64, "a feature is a bit of 64");

/* Features of this CPU that the system lets a process use: bit RT_X86_* (RT_ARM_*, RT_RISCV_*). */
uint64_t rt_cpu_features(void);
/* Do `features` of this CPU hold all of `needs`? Where these have state that a process has to ask for, it asks. */
bool rt_cpu_runs(uint64_t features, uint64_t needs);
