/* What this CPU, with this kernel, can run: RT_CPU_* bits. x86-64 by CPUID and, for register state that the system must
 * save, XGETBV; the others by the auxiliary vector. Levels as in the x86-64 psABI.
 */
#include "runtime/rt_internal.h"

#include "runtime/rt_libc.h"

#if defined(__x86_64__)

struct cpuid { uint32_t a, b, c, d; };

static struct cpuid cpuid(uint32_t leaf, uint32_t sub)
{
    struct cpuid r;
    __asm__ volatile("cpuid" : "=a"(r.a), "=b"(r.b), "=c"(r.c), "=d"(r.d) : "a"(leaf), "c"(sub));
    return r;
}

static bool has_all(uint32_t word, uint32_t bits) { return (word & bits) == bits; }

uint64_t rt_cpu_features(void)
{
    enum { LAHF = 1, LZCNT = 1 << 5 };                                         /* 8000_0001 ecx */
    const uint32_t v2 = 1u << 0 | 1u << 9 | 1u << 13 | 1u << 19 | 1u << 20 | 1u << 23;
                                              /* 1 ecx: SSE3 SSSE3 CMPXCHG16B SSE4.1 SSE4.2 POPCNT */
    const uint32_t v3 = 1u << 12 | 1u << 22 | 1u << 27 | 1u << 28 | 1u << 29;  /* 1 ecx: FMA MOVBE OSXSAVE AVX F16C */
    const uint32_t v3_7 = 1u << 3 | 1u << 5 | 1u << 8;                         /* 7 ebx: BMI1 AVX2 BMI2 */
    const uint32_t v4_7 = 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31; /* 7 ebx: AVX512 F DQ CD BW VL */
    uint64_t features = 0;
    uint32_t leaves = cpuid(0, 0).a;
    uint32_t basic = cpuid(1, 0).c;
    uint32_t extended = cpuid(0x80000000u, 0).a >= 0x80000001u ? cpuid(0x80000001u, 0).c : 0;
    struct cpuid seven = { 0, 0, 0, 0 };
    if (leaves >= 7)
        seven = cpuid(7, 0);
    if (!has_all(basic, v2) || !has_all(extended, LAHF))
        return features;
    features |= RT_CPU_X86_V2;
    if (!has_all(basic, v3) || !has_all(extended, LZCNT) || !has_all(seven.b, v3_7))
        return features;
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if (!has_all(low, 0x6))                        /* xmm, ymm saved */
        return features;
    features |= RT_CPU_X86_V3;
    if (!has_all(seven.b, v4_7) || !has_all(low, 0xe6))   /* opmask, zmm saved too */
        return features;
    features |= RT_CPU_X86_V4;
    if (has_all(seven.c, 1u << 11))
        features |= RT_CPU_X86_VNNI;
    if (seven.a >= 1 && has_all(cpuid(7, 1).a, 1u << 5))
        features |= RT_CPU_X86_BF16;
    return features;
}

#elif defined(__aarch64__)

uint64_t rt_cpu_features(void)
{
    uint64_t features = 0;
    if (getauxval(16 /* AT_HWCAP */) & 1ul << 20 /* ASIMDDP */)
        features |= RT_CPU_ARM_DOTPROD;
    if (getauxval(26 /* AT_HWCAP2 */) & 1ul << 13 /* I8MM */)
        features |= RT_CPU_ARM_I8MM;
    return features;
}

#else

uint64_t rt_cpu_features(void)
{
    return getauxval(16 /* AT_HWCAP */) & 1ul << ('v' - 'a') ? RT_CPU_RISCV_V : 0;
}

#endif
