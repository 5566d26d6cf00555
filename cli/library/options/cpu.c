/* The table of CPU features at work: names to bits. */
#include "cli/library/options/cpu.h"

#include "cli/library/options/nearest.h"
#include "runtime/rt_cpu.h"

#include <sched.h>

enum { BIT_BASE = -1, BIT_TUNING = -2 };
struct feature {
    const char *arch, *name;
    int bit;
    uint64_t implied;
};

#define X(id) (1ull << RT_X86_##id)
#define A(id) (1ull << RT_ARM_##id)
static const struct feature feature_rows[] = {
#define X86(id, name, word, bit, implied) {"x86_64", name, RT_X86_##id, implied},
#define ARM(id, name, vector, bits, implied) {"aarch64", name, RT_ARM_##id, implied},
#define RISCV(id, name, bits, implied) {"riscv64", name, RT_RISCV_##id, implied},
#define BASE(arch, name) {arch, name, BIT_BASE, 0},
#define TUNING(arch, name) {arch, name, BIT_TUNING, 0},
#include "runtime/rt_cpu.def"
};

/* What LLVM's names of whole CPUs in ir/target/target.def stand for, beyond the architecture's base; the psABI's
 * levels. */
#define V2 (X(CX16) | X(SAHF) | X(POPCNT) | X(SSE42))
#define V3 (V2 | X(XSAVE) | X(AVX2) | X(BMI) | X(BMI2) | X(F16C) | X(FMA) | X(LZCNT) | X(MOVBE))
#define V4 (V3 | X(AVX512BW) | X(AVX512CD) | X(AVX512DQ) | X(AVX512VL))
static const struct {
    const char *name;
    uint64_t bits;
} cpu_rows[] = {
    {"x86-64", 0},       {"x86-64-v2", V2},   {"x86-64-v3", V3}, {"x86-64-v4", V4}, {"generic", 0},
    {"generic-rv64", 0}, {"generic-rv32", 0}, {"cortex-m4", 0},  {"cortex-m7", 0},  {"cortex-m55", 0},
};

static const struct feature *feature_find(const char *arch, const char *name)
{
    for (size_t i = 0; i < COUNT_OF(feature_rows); i++)
        if (strcmp(feature_rows[i].arch, arch) == 0 && strcmp(feature_rows[i].name, name) == 0)
            return &feature_rows[i];
    return NULL;
}

/* `bits` and all that they imply. */
static uint64_t with_implied(const char *arch, uint64_t bits)
{
    for (uint64_t before = ~bits; before != bits;) {
        before = bits;
        for (size_t i = 0; i < COUNT_OF(feature_rows); i++) {
            const struct feature *f = &feature_rows[i];
            if (f->bit >= 0 && bits >> f->bit & 1 && strcmp(f->arch, arch) == 0)
                bits |= f->implied;
        }
    }
    return bits;
}

/* `bits` less those that are `gone` or imply it. */
static uint64_t without(const char *arch, uint64_t bits, int gone)
{
    uint64_t left = bits;
    for (int k = 0; k < 64; k++)
        if (bits >> k & 1 && with_implied(arch, 1ull << k) >> gone & 1)
            left &= ~(1ull << k);
    return left;
}

void cpu_list(const char *arch, struct strbuf *out)
{
    const char *comma = "";
    for (size_t i = 0; i < COUNT_OF(feature_rows); i++)
        if (feature_rows[i].bit >= 0 && strcmp(feature_rows[i].arch, arch) == 0) {
            strbuf_printf(out, "%s%s", comma, feature_rows[i].name);
            comma = ", ";
        }
}

static bool refuse_feature(struct context *ctx, const char *arch, const char *word)
{
    struct nearest near = nearest_to(word + 1);
    for (size_t i = 0; i < COUNT_OF(feature_rows); i++)
        if (strcmp(feature_rows[i].arch, arch) == 0 && (feature_rows[i].bit != BIT_BASE || *word == '+'))
            nearest_try(&near, feature_rows[i].name);
    struct strbuf list = strbuf_of(&ctx->session);
    cpu_list(arch, &list);
    return error_usage(ctx,
                       "'mattr': '%s' is not a feature of %s that can be tested when the network is "
                       "opened%s%s%s; these can: %s",
                       word, arch, near.found ? "; did you mean '" : "", near.found ? near.found : "",
                       near.found ? "'?" : "", list.n ? list.data : "none");
}

/* One "+name" or "-name". */
static bool apply(struct context *ctx, const char *arch, const char *word, uint64_t *bits)
{
    const struct feature *f = *word == '+' || *word == '-' ? feature_find(arch, word + 1) : NULL;
    if ((*word != '+' && *word != '-') || !word[1])
        return error_usage(ctx, "'mattr' takes features such as +avx512vnni,-fma, not '%s'", word);
    if (!f)
        return refuse_feature(ctx, arch, word);
    if (*word == '-' && f->bit == BIT_BASE)
        return error_usage(ctx, "'mattr': code for %s needs '%s', which cannot be disabled", arch, f->name);
    if (f->bit >= 0)
        *bits = *word == '+' ? with_implied(arch, *bits | 1ull << f->bit) : without(arch, *bits, f->bit);
    return true;
}

bool cpu_bits(struct context *ctx, const char *arch, const char *cpu, const char *features, uint64_t *bits)
{
    size_t k = 0;
    while (k < COUNT_OF(cpu_rows) && strcmp(cpu_rows[k].name, cpu) != 0)
        k++;
    if (k == COUNT_OF(cpu_rows))
        return error_internal(ctx, (src_id){0}, "the features of the CPU '%s' are unknown", cpu);
    *bits = with_implied(arch, cpu_rows[k].bits);
    for (const char *p = features; *p;) {
        size_t n = strcspn(p, ",");
        if (!apply(ctx, arch, arena_strndup(&ctx->session, p, n), bits))
            return false;
        p += n + (p[n] == ',');
    }
    return true;
}

uint32_t cpu_usable(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return n > 0 ? (uint32_t)n : 1;
}

const char *cpu_arch(void)
{
#if defined(__aarch64__)
    return "aarch64";
#elif defined(__riscv)
    return "riscv64";
#else
    return "x86_64";
#endif
}

bool cpu_runs(struct context *ctx, const struct target_row *t)
{
    uint64_t needs = 0;
    return strcmp(t->arch, cpu_arch()) == 0 && cpu_bits(ctx, t->arch, t->cpu, t->features, &needs) &&
           rt_cpu_runs(rt_cpu_features(), needs);
}
