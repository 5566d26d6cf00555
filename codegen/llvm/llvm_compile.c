/* A function of the loop IR -> a module -> object code, assembly or LLVM text. Worker processes only.
 *
 * No IR passes run: the emitted IR has phis, explicit vectors and aligned accesses, which is all that instruction
 * selection wants; a pass pipeline costs several times the code generation and gives nothing. The machine scheduler
 * is off: it hoists loads across a micro-kernel's accumulators and spills them. So is loop strength reduction, which
 * takes as long as everything else together; llvm_address.c does what these loops need of it. The others that are left
 * out find next to nothing in this code (a thousandth of its size) and together take 6 % of the time.
 */

#include <llvm-c/Analysis.h>
#include <llvm-c/Support.h>
#include <llvm-c/Target.h>

#include "codegen/llvm/llvm.h"

static struct llvm_machine *machines;      /* a worker's cache; a process of its own, so no context owns it */

void llvm_start(void)
{
    static const char *const options[] = {"mcc",
                                          "-enable-misched=false",
                                          "-disable-lsr",
                                          "-disable-machine-cse",
                                          "-x86-machine-combiner=false",
                                          "-x86-cmov-converter=false",
                                          "-disable-copyprop",
                                          "-disable-postra-machine-licm",
                                          "-disable-constant-hoisting",
                                          "-disable-mergeicmps",
                                          "-disable-partial-libcall-inlining",
                                          "-enable-shrink-wrap=false"};
    LLVMParseCommandLineOptions((int)COUNT_OF(options), options, NULL);
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    LLVMInitializeAArch64TargetInfo();
    LLVMInitializeAArch64Target();
    LLVMInitializeAArch64TargetMC();
    LLVMInitializeAArch64AsmPrinter();
    LLVMInitializeRISCVTargetInfo();
    LLVMInitializeRISCVTarget();
    LLVMInitializeRISCVTargetMC();
    LLVMInitializeRISCVAsmPrinter();
    LLVMInitializeARMTargetInfo();
    LLVMInitializeARMTarget();
    LLVMInitializeARMTargetMC();
    LLVMInitializeARMAsmPrinter();
    LLVMInitializeWebAssemblyTargetInfo();
    LLVMInitializeWebAssemblyTarget();
    LLVMInitializeWebAssemblyTargetMC();
    LLVMInitializeWebAssemblyAsmPrinter();
}

/* ---- target machines ---- */

static enum arch arch_of(const char *triple)
{
    static const struct {
        const char *prefix;
        enum arch arch;
    } known[] = {{"x86_64", ARCH_X86_64}, {"aarch64", ARCH_AARCH64}, {"riscv64", ARCH_RISCV64},
                 {"thumb", ARCH_ARM},     {"riscv32", ARCH_RISCV32}, {"wasm32", ARCH_WASM32}};
    for (size_t i = 0; i < COUNT_OF(known); i++)
        if (strncmp(triple, known[i].prefix, strlen(known[i].prefix)) == 0)
            return known[i].arch;
    return ARCH_OTHER;
}

static void learn_features(struct llvm_machine *m)
{
    bool x86 = m->arch == ARCH_X86_64, wasm = m->arch == ARCH_WASM32;
    m->fma = x86                       ? machine_has(m->tm, "+fma") || machine_has(m->tm, "+avx512f")
             : m->arch == ARCH_ARM     ? machine_has(m->tm, "+vfp4d16sp")
             : m->arch == ARCH_RISCV32 ? machine_has(m->tm, "+f")
                                       : m->arch != ARCH_OTHER && !wasm;
    m->fma64 = m->arch == ARCH_ARM       ? machine_has(m->tm, "+vfp4d16") && machine_has(m->tm, "+fp64")
               : m->arch == ARCH_RISCV32 ? machine_has(m->tm, "+d")
                                         : m->fma;
    m->relaxed_madd = wasm && machine_has(m->tm, "+relaxed-simd");
    m->workers = wasm && machine_has(m->tm, "+atomics");
    m->f16 = x86 ? machine_has(m->tm, "+f16c") : m->arch == ARCH_AARCH64;
    m->f16_math = m->arch == ARCH_AARCH64 && machine_has(m->tm, "+fullfp16");
    m->bf16 = x86 && machine_has(m->tm, "+avx512bf16") && machine_has(m->tm, "+avx512vl");
    m->round = x86                   ? machine_has(m->tm, "+sse4.1")
               : m->arch == ARCH_ARM ? machine_has(m->tm, "+fp-armv8d16sp") && machine_has(m->tm, "+fp64")
                                     : m->arch == ARCH_AARCH64 || wasm;
    m->whole64 = x86 && machine_has(m->tm, "+avx512dq");
    m->masks = x86 && machine_has(m->tm, "+avx2");
    m->gathers = x86                       ? machine_has(m->tm, "+avx512f")
                 : m->arch == ARCH_RISCV64 ? machine_has(m->tm, "+v")
                                           : m->arch == ARCH_ARM && machine_has(m->tm, "+mve");
    m->dsp = m->arch == ARCH_ARM && machine_has(m->tm, "+dsp") && !machine_has(m->tm, "+mve");
    m->tiles = x86 && machine_has(m->tm, "+amx-tile") && machine_has(m->tm, "+amx-int8") &&
               machine_has(m->tm, "+amx-bf16");
    m->vbmi = x86 && machine_has(m->tm, "+avx512vbmi");
    m->table_bytes = m->arch == ARCH_AARCH64           ? 16
                     : !x86                            ? 0
                     : machine_has(m->tm, "+avx512bw") ? 64
                     : machine_has(m->tm, "+avx2")     ? 32
                     : machine_has(m->tm, "+ssse3")    ? 16
                                                       : 0;
    dot_learn(m);
    m->madd[0] = x86;
    m->madd[1] = x86 && machine_has(m->tm, "+avx2");
    m->madd[2] = x86 && machine_has(m->tm, "+avx512bw");
    m->vector_bytes = !x86 ? 0 : machine_has(m->tm, "+avx512f") ? 64 : machine_has(m->tm, "+avx") ? 32 : 16;
    m->vector_width = m->vector_bytes == 64 ? "512" : m->vector_bytes == 32 ? "256" : x86 ? "128" : NULL;
}

static bool same_machine(const struct llvm_machine *m, const struct target *t, int opt_level)
{
    return m->opt_level == opt_level && strcmp(m->target.triple, t->triple) == 0 &&
           strcmp(m->target.cpu, t->cpu) == 0 && strcmp(m->target.features, t->features) == 0;
}

static void target_drop(struct target *t)
{
    free((char *)t->triple);
    free((char *)t->cpu);
    free((char *)t->features);
}

/* False when memory ends. */
static bool target_copy(struct target *to, const struct target *t)
{
    *to = (struct target){strdup(t->triple), strdup(t->cpu), strdup(t->features)};
    return to->triple && to->cpu && to->features;
}

static struct llvm_machine *machine_new(const struct target *t, int opt_level, const char **error)
{
    static const LLVMCodeGenOptLevel levels[] = {LLVMCodeGenLevelLess, LLVMCodeGenLevelDefault, LLVMCodeGenLevelDefault,
                                                 LLVMCodeGenLevelAggressive};
    LLVMTargetRef target;
    char *text = NULL;
    struct llvm_machine *m = calloc(1, sizeof *m);
    bool copied = m && target_copy(&m->target, t);
    if (!copied || LLVMGetTargetFromTriple(t->triple, &target, &text)) {
        *error = copied ? "no code generator for this target" : EMIT_NO_MEMORY;
        LLVMDisposeMessage(text);
        if (m)
            target_drop(&m->target);
        free(m);
        return NULL;
    }
    m->opt_level = opt_level;
    m->arch = arch_of(t->triple);
    m->words32 = m->arch == ARCH_ARM || m->arch == ARCH_RISCV32;
    m->bare = strstr(t->triple, "-none") != NULL;
    LLVMTargetMachineOptionsRef options = LLVMCreateTargetMachineOptions();
    LLVMTargetMachineOptionsSetCPU(options, t->cpu);
    LLVMTargetMachineOptionsSetFeatures(options, t->features);
    LLVMTargetMachineOptionsSetCodeGenOptLevel(options, levels[opt_level < 0 || opt_level > 3 ? 2 : opt_level]);
    bool fixed = m->bare || m->arch == ARCH_WASM32; /* linked where it runs */
    LLVMTargetMachineOptionsSetRelocMode(options, fixed ? LLVMRelocStatic : LLVMRelocPIC);
    LLVMTargetMachineOptionsSetCodeModel(options, LLVMCodeModelSmall);
    if (m->arch == ARCH_RISCV64)
        LLVMTargetMachineOptionsSetABI(options, "lp64d");
    if (m->arch == ARCH_RISCV32)
        LLVMTargetMachineOptionsSetABI(options, strstr(t->features, "+f,") ? "ilp32f" : "ilp32");
    m->tm = LLVMCreateTargetMachineWithOptions(target, t->triple, options);
    LLVMDisposeTargetMachineOptions(options);
    learn_features(m);
    m->next = machines;
    machines = m;
    return m;
}

static struct llvm_machine *machine_get(const struct target *t, int opt_level, const char **error)
{
    for (struct llvm_machine *m = machines; m; m = m->next)
        if (same_machine(m, t, opt_level))
            return m;
    return machine_new(t, opt_level, error);
}

/* ---- modules ---- */

static void make_types(struct emitter *e)
{
    e->i1 = LLVMInt1TypeInContext(e->ctx);
    e->i8 = LLVMInt8TypeInContext(e->ctx);
    e->i16 = LLVMInt16TypeInContext(e->ctx);
    e->i32 = LLVMInt32TypeInContext(e->ctx);
    e->i64 = LLVMInt64TypeInContext(e->ctx);
    e->i128 = LLVMInt128TypeInContext(e->ctx);
    e->f32 = LLVMFloatTypeInContext(e->ctx);
    e->f64 = LLVMDoubleTypeInContext(e->ctx);
    e->ptr = LLVMPointerTypeInContext(e->ctx, 0);
    e->nothing = LLVMVoidTypeInContext(e->ctx);
}

static struct compiled copy_out(const char *data, size_t size)
{
    struct compiled r = {malloc(size + 1), size, false};
    if (!r.data)
        return (struct compiled){NULL, 0, true};
    memcpy(r.data, data, size);
    r.data[size] = 0;
    return r;
}

static struct compiled refuse(const char *why)
{
    struct compiled r = copy_out(why, strlen(why));
    r.failed = true;
    return r;
}

static struct compiled print_module(LLVMModuleRef module)
{
    char *text = LLVMPrintModuleToString(module);
    struct compiled r = copy_out(text, strlen(text));
    LLVMDisposeMessage(text);
    return r;
}

static struct compiled make_object(LLVMModuleRef module, struct llvm_machine *m)
{
    size_t size;
    if (!m->generator)
        m->generator = generator_new(m->tm);
    if (!m->generator)
        return refuse("no object writer for this target");
    const char *data = generator_run(m->generator, module, &size);
    return copy_out(data, size);
}

static struct compiled make_assembly(LLVMModuleRef module, const struct llvm_machine *m)
{
    LLVMMemoryBufferRef buffer = NULL;
    char *text = NULL;
    if (LLVMTargetMachineEmitToMemoryBuffer(m->tm, module, LLVMAssemblyFile, &text, &buffer)) {
        struct compiled r = refuse(text);
        LLVMDisposeMessage(text);
        return r;
    }
    struct compiled r = copy_out(LLVMGetBufferStart(buffer), LLVMGetBufferSize(buffer));
    LLVMDisposeMemoryBuffer(buffer);
    return r;
}

/* Bytes of the function's frame: LLVM tells them as a warning, "stack frame size (N) exceeds limit (0) ...". */
static void take_diagnostic(LLVMDiagnosticInfoRef info, void *user)
{
    struct emitter *e = user;
    char *text = LLVMGetDiagInfoDescription(info), *size = strstr(text, "stack frame size (");
    if (size)
        e->frame = strtoull(size + strlen("stack frame size ("), NULL, 10);
    else if (LLVMGetDiagInfoSeverity(info) == LLVMDSError)
        emit_fail(e, "LLVM refuses the function");
    LLVMDisposeMessage(text);
}

/* A function of a static network: its frame's size after its object. */
static struct compiled with_frame(struct emitter *e, struct compiled object)
{
    struct compiled r = {malloc(object.size + sizeof e->frame), object.size + sizeof e->frame, false};
    if (r.data && object.data) {
        memcpy(r.data, object.data, object.size);
        memcpy(r.data + object.size, &e->frame, sizeof e->frame);
    }
    free(object.data);
    return e->error ? refuse(e->error) : r;
}

static struct compiled compile_module(struct emitter *e, struct llvm_machine *m, enum emit_kind kind,
                                      const char *symbol)
{
    char *text = NULL;
    bool ok = emit_function(e, symbol);
    debug_end(e);
    if (!ok)
        return refuse(e->error);
    bool broken = LLVMVerifyModule(e->module, LLVMReturnStatusAction, &text);
    struct compiled r = broken ? refuse(text) : (struct compiled){NULL, 0, false};
    LLVMDisposeMessage(text);
    if (broken)
        return r;
    switch (kind) {
    case EMIT_LLVM: return print_module(e->module);
    case EMIT_ASSEMBLY: return make_assembly(e->module, m);
    default: break;
    }
    return e->is_static ? with_frame(e, make_object(e->module, m)) : make_object(e->module, m);
}

struct compiled llvm_compile(const struct target *target, int opt_level, enum emit_kind kind, bool is_static,
                             const struct debug_text *debug, const struct function *function)
{
    const char *error = NULL;
    struct llvm_machine *m = machine_get(target, opt_level, &error);
    if (!m)
        return refuse(error);
    struct emitter e = {
        .machine = m, .f = function->f, .line = function->line, .origin = function->origin, .is_static = is_static};
    e.ctx = LLVMContextCreate();
    if (is_static)
        LLVMContextSetDiagnosticHandler(e.ctx, take_diagnostic, &e);
    LLVMContextSetDiscardValueNames(e.ctx, kind != EMIT_LLVM);
    /* The name becomes a symbol of an object. */
    e.module = LLVMModuleCreateWithNameInContext(kind == EMIT_OBJECT ? "" : function->symbol, e.ctx);
    e.b = LLVMCreateBuilderInContext(e.ctx);
    LLVMSetTarget(e.module, m->target.triple);
    LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(m->tm);
    LLVMSetModuleDataLayout(e.module, layout);
    LLVMDisposeTargetData(layout);
    make_types(&e);
    debug_begin(&e, debug);
    struct compiled r = compile_module(&e, m, kind, function->symbol);
    LLVMDisposeBuilder(e.b);
    LLVMDisposeModule(e.module);
    LLVMContextDispose(e.ctx);
    return r;
}
