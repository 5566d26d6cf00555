/* The features of runtime/rt_cpu.def beside LLVM's: every name is one of LLVM's, and what LLVM takes for granted with a
 * feature or a CPU is among the bits that `open` is asked to find.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <llvm-c/TargetMachine.h>

#include "cli/library/options/cpu.h"
#include "ir/target/platform.h"
#include "runtime/rt_cpu.h"

void llvm_start(void); /* of codegen/llvm/llvm.h, which has a struct machine of its own */
bool machine_has(LLVMTargetMachineRef, const char *feature);

struct feature {
    const char *arch, *name;
    int bit;
};
static const struct feature features[] = {
#define X86(id, name, word, bit, implied) {"x86_64", name, RT_X86_##id},
#define ARM(id, name, vector, bits, implied) {"aarch64", name, RT_ARM_##id},
#define RISCV(id, name, bits, implied) {"riscv64", name, RT_RISCV_##id},
#define BASE(arch, name) {arch, name, -1},
#define TUNING(arch, name) {arch, name, -2},
#include "runtime/rt_cpu.def"
};

static LLVMTargetMachineRef machine(const char *triple, const char *cpu, const char *list)
{
    LLVMTargetRef target;
    char *text = NULL;
    assert_int_equal(LLVMGetTargetFromTriple(triple, &target, &text), 0);
    return LLVMCreateTargetMachine(target, triple, cpu, list, LLVMCodeGenLevelDefault, LLVMRelocPIC,
                                   LLVMCodeModelSmall);
}

/* All that LLVM switches on for `cpu` and `list` is in `bits`, and what is in `bits` is switched on. */
static void same_as_llvm(const char *arch, const char *triple, const char *cpu, const char *list, uint64_t bits)
{
    LLVMTargetMachineRef tm = machine(triple, cpu, list);
    for (size_t i = 0; i < COUNT_OF(features); i++) {
        char plus[64];
        if (features[i].bit < 0 || strcmp(features[i].arch, arch) != 0)
            continue;
        snprintf(plus, sizeof plus, "+%s", features[i].name);
        bool here = machine_has(tm, plus), there = bits >> features[i].bit & 1;
        if (here != there)
            fail_msg("%s %s: LLVM %s %s, the table %s", cpu, list, here ? "has" : "lacks", plus,
                     there ? "has it" : "lacks it");
    }
    LLVMDisposeTargetMachine(tm);
}

static const struct target_row *base_row(const char *arch)
{
    const struct target_row *found = NULL;
    for (uint32_t i = 0; i < target_count; i++)
        if (strcmp(target_rows[i].arch, arch) == 0)
            found = &target_rows[i];
    return found;
}

static void test_implied(void **state)
{
    struct context *ctx = *state;
    for (size_t i = 0; i < COUNT_OF(features); i++) {
        const struct target_row *row = base_row(features[i].arch);
        const char *cpu = strcmp(row->arch, "x86_64") == 0 ? "x86-64" : row->cpu;
        char list[128];
        uint64_t bits;
        snprintf(list, sizeof list, "%s%s+%s", row->features, *row->features ? "," : "", features[i].name);
        assert_true(cpu_bits(ctx, row->arch, cpu, list, &bits));
        same_as_llvm(row->arch, platform_find(row->arch, NULL)->triple, cpu, list, bits);
        char minus[64], plus[64]; /* LLVM switches an unknown name neither on nor off, and finds it everywhere */
        snprintf(minus, sizeof minus, "-%s", features[i].name);
        snprintf(plus, sizeof plus, "+%s", features[i].name);
        LLVMTargetMachineRef tm = machine(platform_find(row->arch, NULL)->triple, cpu, minus);
        if (machine_has(tm, plus))
            fail_msg("LLVM does not know %s of %s", plus, row->arch);
        LLVMDisposeTargetMachine(tm);
    }
}

static void test_rows(void **state)
{
    static const char *const more[] = {
        "", "-fma", "-avx2", "+fma4,-avx", "-sse4.1", "+avx512vbmi,-avx512bw", "-avx512f,+avx512vnni"};
    for (uint32_t i = 0; i < target_count; i++)
        for (size_t k = 0; k < COUNT_OF(more); k++) {
            const struct target_row *t = &target_rows[i];
            char list[128];
            uint64_t bits;
            if (k && strcmp(t->arch, "x86_64") != 0)
                break;
            snprintf(list, sizeof list, "%s%s%s", t->features, *t->features && k ? "," : "", more[k]);
            assert_true(cpu_bits(*state, t->arch, t->cpu, list, &bits));
            same_as_llvm(t->arch, platform_find(t->arch, NULL)->triple, t->cpu, list, bits);
        }
}

/* gcc's own look at this CPU, for the levels that it knows. */
static void test_this_machine(void **state)
{
#if defined(__x86_64__)
    static const char *const cpus[] = {"x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"};
    bool have[] = {true, false, false, false};
    __builtin_cpu_init();
    have[1] = __builtin_cpu_supports("x86-64-v2");
    have[2] = __builtin_cpu_supports("x86-64-v3");
    have[3] = __builtin_cpu_supports("x86-64-v4");
    for (size_t i = 0; i < COUNT_OF(cpus); i++) {
        uint64_t bits;
        assert_true(cpu_bits(*state, "x86_64", cpus[i], "", &bits));
        assert_int_equal(rt_cpu_runs(rt_cpu_features(), bits), have[i]);
    }
#else
    (void)state;
#endif
}

static void refused(struct context *ctx, const char *arch, const char *list, const char *word)
{
    uint64_t bits;
    assert_false(cpu_bits(ctx, arch, strcmp(arch, "x86_64") == 0 ? "x86-64-v3" : "generic", list, &bits));
    const char *text = ctx->diags.data[ctx->diags.n - 1].text;
    if (!strstr(text, word))
        fail_msg("'%s' lacks '%s'", text, word);
}

static void test_refused(void **state)
{
    refused(*state, "x86_64", "+nosuch", "; these can: cx16, ");
    refused(*state, "x86_64", "+avx512vni", "did you mean 'avx512vnni'?");
    refused(*state, "x86_64", "+amx-fp16", "these can");
    refused(*state, "x86_64", "+dotprod", "is not a feature of x86_64");
    refused(*state, "aarch64", "+fma4", "is not a feature of aarch64");
    refused(*state, "aarch64", "+doptrod", "did you mean 'dotprod'?");
    refused(*state, "riscv64", "+zba", "these can: v");
    refused(*state, "x86_64", "-sse2", "cannot be disabled");
    refused(*state, "x86_64", "avx2", "such as");
    refused(*state, "x86_64", "+fma,,-avx", "such as");
}

static int start(void **state)
{
    llvm_start();
    *state = context_bare();
    return *state ? 0 : 1;
}

static int end(void **state)
{
    context_free(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_implied),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_this_machine),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, start, end);
}
