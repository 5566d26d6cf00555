/* Rows of ir/target/target.def, and which of them this machine runs. */
#include "ir/target/target.h"

#include <stdio.h>
#include <string.h>

const struct target_row target_rows[] = {
#define TARGET(arch, name, standard, triple, cpu, features, needs, bytes, registers, fma, latency, loads, l1, l2, l3) \
    {arch, name, standard, triple, cpu, features, needs, {bytes, registers, fma, latency, loads, l1, l2, l3, \
     ((needs) & CPU_X86_VNNI) != 0, ((needs) & CPU_X86_BF16) != 0}},
#include "ir/target/target.def"
};
const uint32_t target_count = COUNT_OF(target_rows);

const struct target_row *target_find(const char *name)
{
    for (uint32_t i = 0; i < target_count; i++)
        if (!strcmp(target_rows[i].name, name))
            return &target_rows[i];
    return NULL;
}

#if defined(__x86_64__)
static const char host_arch[] = "x86_64";
static uint64_t host_features(void)
{
    uint64_t f = 0;
    __builtin_cpu_init();
    f |= __builtin_cpu_supports("x86-64-v2") ? CPU_X86_V2 : 0;
    f |= __builtin_cpu_supports("x86-64-v3") ? CPU_X86_V3 : 0;
    f |= __builtin_cpu_supports("x86-64-v4") ? CPU_X86_V4 : 0;
    f |= __builtin_cpu_supports("avx512vnni") ? CPU_X86_VNNI : 0;
    f |= __builtin_cpu_supports("avx512bf16") ? CPU_X86_BF16 : 0;
    return f;
}
#elif defined(__aarch64__)
static const char host_arch[] = "aarch64";
static uint64_t host_features(void) { return 0; }
#else
static const char host_arch[] = "riscv64";
static uint64_t host_features(void) { return 0; }
#endif

bool target_runs_here(const struct target_row *t)
{
    return !strcmp(t->arch, host_arch) && (t->needs & ~host_features()) == 0;
}

void target_print(struct strbuf *out)
{
    strbuf_printf(out, "%-18s %-8s %-6s %-9s %-12s %-5s %-22s %s\n", "name (-march=)", "arch", "vector", "registers",
                  "fma/cycle", "loads", "L1, L2, L3 KiB", "features");
    for (uint32_t i = 0; i < target_count; i++) {
        const struct target_row *t = &target_rows[i];
        const struct machine *m = &t->machine;
        char fma[32], caches[64];
        snprintf(fma, sizeof fma, "%u in %u", m->fma_per_cycle, m->fma_latency);
        snprintf(caches, sizeof caches, "%u, %u, %u", m->l1_kib, m->l2_kib, m->l3_kib);
        strbuf_printf(out, "%-18s %-8s %-6u %-9u %-12s %-5u %-22s %s%s%s%s\n", t->name, t->arch, m->vector_bytes, m->registers,
                      fma, m->loads_per_cycle, caches, t->cpu, *t->features ? " " : "", t->features,
                      t->standard ? "  (in every artifact)" : "");
    }
    strbuf_printf(out, "vector: bytes of a register; fma/cycle: whole vectors, and the latency. -march=native is the best row that this\n"
                       "machine runs; -mattr adds to the features.\n");
}
