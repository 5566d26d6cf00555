/* Rows of ir/target/target.def. */
#include "ir/target/target.h"

#include <stdio.h>

const struct target_row target_rows[] = {
#define ROW(arch, name, when, cpu, features, ...) {arch, name, TARGET_##when, cpu, features, {__VA_ARGS__}},
/* Words that stand for several columns are replaced first. */
#define TARGET(...) ROW(__VA_ARGS__)
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

static const char *tail(const char *name)
{
    const char *dash = strrchr(name, '-');
    return dash ? dash + 1 : name;
}

const char *const products_names[PRODUCTS] = {[PRODUCTS_F32] = "f32",
                                              [PRODUCTS_BF16] = "bf16",
                                              [PRODUCTS_INT8] = "int8",
                                              [PRODUCTS_BF16_TILES] = "bf16-tiles",
                                              [PRODUCTS_INT8_TILES] = "int8-tiles"};

const char *target_short_name(const struct target_row *rows, uint32_t n, const struct target_row *t)
{
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(rows[i].name, t->name) != 0 && !strcmp(rows[i].arch, t->arch) &&
            !strcmp(tail(rows[i].name), tail(t->name)))
            return t->name;
    return tail(t->name);
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
        strbuf_printf(out, "%-18s %-8s %-6u %-9u %-12s %-5u %-22s %s%s%s%s\n", t->name, t->arch, m->vector_bytes,
                      m->registers, fma, m->loads_per_cycle, caches, t->cpu, *t->features ? " " : "", t->features,
                      t->when == TARGET_ALWAYS   ? "  (in every artifact)"
                      : t->when == TARGET_OF_USE ? "  (where it is of use)"
                                                 : "");
    }
    strbuf_printf(
        out,
        "vector: bytes of a register; fma/cycle: whole vectors, and the latency. -march=native is the best row that this\n"
        "machine runs; -mattr adds to the features.\n");
}
