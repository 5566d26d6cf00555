/* What this CPU, with this kernel, can run: a bit for each row of rt_cpu.def. x86-64 by CPUID and, for register state
 * that the system must save, XGETBV; the others by the auxiliary vector.
 */
#include "runtime/rt_cpu.h"

#include "runtime/os.h"

#if defined(__x86_64__)

struct cpuid {
    uint32_t a, b, c, d;
};

static struct cpuid cpuid(uint32_t leaf, uint32_t sub)
{
    struct cpuid r;
    __asm__ volatile("cpuid" : "=a"(r.a), "=b"(r.b), "=c"(r.c), "=d"(r.d) : "a"(leaf), "c"(sub));
    return r;
}

/* Takes back what the system does not save the registers for: AVX, AVX-512, AMX. Other features imply one of these. */
static void drop_unsaved(uint32_t *words)
{
    const uint32_t osxsave = 1u << 27, avx = 1u << 28, avx512f = 1u << 16, amx = 1u << 22 | 1u << 24 | 1u << 25;
    uint32_t low = 0, high;
    if (words[X86_1_ECX] & osxsave)
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & 0x6) != 0x6) /* xmm, ymm */
        words[X86_1_ECX] &= ~avx;
    if ((low & 0xe6) != 0xe6) /* opmask, zmm too */
        words[X86_7_EBX] &= ~avx512f;
    if ((low & 0x60000) != 0x60000) /* shapes and contents of tiles */
        words[X86_7_EDX] &= ~amx;
}

uint64_t rt_cpu_features(void)
{
    static const struct {
        uint8_t word, bit;
    } rows[] = {
#define X86(id, name, word, bit, implied) {word, bit},
#include "runtime/rt_cpu.def"
    };
    uint32_t words[X86_WORDS] = {[X86_1_ECX] = cpuid(1, 0).c};
    if (cpuid(0, 0).a >= 7) {
        struct cpuid seven = cpuid(7, 0);
        words[X86_7_EBX] = seven.b;
        words[X86_7_ECX] = seven.c;
        words[X86_7_EDX] = seven.d;
        struct cpuid more = seven.a >= 1 ? cpuid(7, 1) : (struct cpuid){0, 0, 0, 0};
        words[X86_71_EAX] = more.a;
        words[X86_71_EDX] = more.d;
    }
    if (cpuid(0x80000000u, 0).a >= 0x80000001u)
        words[X86_EXT_ECX] = cpuid(0x80000001u, 0).c;
    drop_unsaved(words);
    uint64_t features = 0;
    for (uint32_t i = 0; i < RT_X86_COUNT; i++)
        features |= (uint64_t)(words[rows[i].word] >> rows[i].bit & 1) << i;
    return features;
}

bool rt_cpu_runs(uint64_t features, uint64_t needs)
{
    return (needs & ~features) == 0 && (!(needs >> RT_X86_AMXTILE & 1) || os_tiles());
}

#elif defined(__aarch64__)

uint64_t rt_cpu_features(void)
{
    static const struct {
        uint32_t bits;
        uint8_t vector;
    } rows[] = {
#define ARM(id, name, vector, bits, implied) {bits, vector},
#include "runtime/rt_cpu.def"
    };
    uint64_t features = 0;
    for (uint32_t i = 0; i < RT_ARM_COUNT; i++)
        features |= (uint64_t)((os_cpu_word(rows[i].vector) & rows[i].bits) == rows[i].bits) << i;
    return features;
}

#else

uint64_t rt_cpu_features(void)
{
    static const uint32_t rows[] = {
#define RISCV(id, name, bits, implied) bits,
#include "runtime/rt_cpu.def"
    };
    uint64_t features = 0, present = os_cpu_word(16 /* AT_HWCAP */);
    for (uint32_t i = 0; i < RT_RISCV_COUNT; i++)
        features |= (uint64_t)((present & rows[i]) == rows[i]) << i;
    return features;
}

#endif

#if !defined(__x86_64__)
bool rt_cpu_runs(uint64_t features, uint64_t needs)
{
    return (needs & ~features) == 0;
}
#endif
