/* Which CPUs an artifact has code for: --target, -march, --variants and -mattr against ir/target/target.def. */
#include "cli/library/options/targets.h"

#include "cli/library/options/cpu.h"
#include "cli/library/options/nearest.h"
#include "passes/module/analysis.h"
#include "runtime/rt_cpu.h"

/* ---- words of the options ------------------------------------------------------------------------------------ */

static bool same_part(const char *part, size_t n, const char *word)
{
    return strlen(word) == n && memcmp(part, word, n) == 0;
}

/* The architecture that the triple's first part names; NULL: none of the table. */
static const char *arch_of(const char *triple)
{
    static const struct {
        const char *word, *arch;
    } names[] = {
        {"x86_64", "x86_64"},
        {"aarch64", "aarch64"},
        {"arm64", "aarch64"},
        {"riscv64", "riscv64"},
        {"riscv64gc", "riscv64"},
        {"thumbv7em", "thumbv7em"},
        {"thumbv8.1m.main+mve", "thumbv8.1m.main+mve"},
        {"riscv32imafc", "riscv32imafc"},
        {"riscv32imac", "riscv32imac"},
        {"wasm32", "wasm32"},
    };
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (same_part(triple, strcspn(triple, "-"), names[i].word))
            return names[i].arch;
    return NULL;
}

/* The least version of the system that the platform's code runs on, as its triple ends; "": there is none. */
static const char *least_version(const struct platform *row)
{
    const char *digits = row->triple + strlen(row->triple);
    while (digits[-1] >= '0' && digits[-1] <= '9')
        digits--;
    return digits;
}

/* Does the text name the platform's system? That is the system's name alone, or with a version that has all that is
 * needed, or with the name of a C library: which one does not matter. */
static bool names_system(const char *text, const struct platform *row)
{
    static const struct {
        const char *system, *library;
    } any[] = {{"linux", "-gnu"},   {"linux", "-musl"},  {"linux", "-uclibc"}, {"windows", "-msvc"},
               {"windows", "-gnu"}, {"none", "-eabihf"}, {"none", "-elf"}};
    size_t n = strlen(row->system);
    const char *least = least_version(row), *rest = text + n;
    if (strcmp(text, "darwin") == 0)
        return strcmp(row->system, "macos") == 0;
    if (strncmp(text, row->system, n) != 0)
        return false;
    for (size_t i = 0; i < COUNT_OF(any); i++)
        if (strcmp(row->system, any[i].system) == 0 && strcmp(rest, any[i].library) == 0)
            return true;
    rest += strcmp(row->system, "macos") == 0 && *rest == 'x';
    size_t digits = strspn(rest, "0123456789");
    return !*rest || (*least && digits == strlen(least) && !rest[digits + strspn(rest + digits, ".0123456789")] &&
                      strncmp(rest, least, digits) >= 0);
}

/* The platform of ARCH, or of ARCH-[VENDOR-][linux-]SYSTEM. NULL: none of the table. */
static const struct platform *platform_asked(const char *triple)
{
    const char *arch = arch_of(triple), *p = triple + strcspn(triple, "-"), *kernel = "linux-";
    if (!arch || !*p)
        return arch ? platform_find(arch, NULL) : NULL;
    for (int vendor = 0; vendor < 2 && *p; vendor++, p += strcspn(p, "-")) {
        const char *inner = strncmp(++p, kernel, strlen(kernel)) == 0 ? p + strlen(kernel) : NULL;
        for (uint32_t i = 0; i < platform_count; i++) {
            const struct platform *row = &platforms[i];
            bool linux_itself = strcmp(row->system, "linux") == 0;
            if (strcmp(row->arch, arch) == 0 &&
                (names_system(p, row) || (inner && !linux_itself && names_system(inner, row))))
                return row;
        }
        if (inner)
            return NULL;
    }
    return NULL;
}

static bool target_check(struct context *ctx, const char *triple)
{
    if (triple && strchr(triple, ','))
        return error_usage(ctx, "'target': only mcc compile takes a list of targets");
    if (!triple || platform_asked(triple))
        return true;
    struct strbuf all = strbuf_of(&ctx->session);
    for (uint32_t i = 0; i < platform_count; i++)
        strbuf_printf(&all, "%s%s-%s%s", i ? ", " : "", platforms[i].arch, platforms[i].system,
                      least_version(&platforms[i]));
    return error_usage(ctx, "there is no code for the target '%s'; there is for %s", triple, all.data);
}

/* One word of -march or --variants, which the architecture must have. */
static bool level_check(struct context *ctx, const char *option, const char *arch, const char *word)
{
    struct nearest near = nearest_to(word);
    const struct target_row *foreign = NULL;
    for (uint32_t i = 0; i < target_count; i++) {
        const struct target_row *t = &target_rows[i];
        bool same = strcmp(t->name, word) == 0 || strcmp(target_short_name(target_rows, target_count, t), word) == 0;
        if (same && strcmp(t->arch, arch) == 0)
            return true;
        foreign = same ? t : foreign;
        if (strcmp(t->arch, arch) == 0)
            nearest_try(&near, t->name);
    }
    if (foreign)
        return error_usage(ctx, "'%s': '%s' is a CPU of %s, and the code is for %s (--target says which)", option, word,
                           foreign->arch, arch);
    return error_usage(ctx,
                       near.found ? "'%s': there is no CPU '%s' of %s (-mcpu=help prints all); did you "
                                    "mean '%s'?"
                                  : "'%s': there is no CPU '%s' of %s (-mcpu=help prints all)",
                       option, word, arch, near.found);
}

static bool levels_check(struct context *ctx, const char *option, const char *arch, const char *list)
{
    if (!list || !strcmp(list, "all") || !strcmp(list, "native"))
        return true;
    for (const char *p = list;; p++) {
        size_t n = strcspn(p, ",");
        if (!level_check(ctx, option, arch, arena_strndup(&ctx->session, p, n)))
            return false;
        p += n;
        if (!*p)
            return true;
    }
}

const struct platform *targets_platform(const struct options *o)
{
    char first[64] = "";
    if (!o->target)
        return platform_find(cpu_arch(), NULL);
    size_t n = strcspn(o->target, ",");
    if (n >= sizeof first)
        return NULL;
    memcpy(first, o->target, n);
    return platform_asked(first);
}

bool targets_wasm(const struct options *o)
{
    const struct platform *platform = targets_platform(o);
    return platform && strcmp(platform->container, "wasm") == 0;
}

bool targets_static(const struct options *o)
{
    const struct platform *platform = targets_platform(o);
    return o->emit == OPT_EMIT_STATIC || o->emit == OPT_EMIT_C || targets_wasm(o) ||
           (platform && strcmp(platform->system, "none") == 0);
}

/* A static network has no table from which `open` could choose. */
static bool one_level_check(struct context *ctx, const struct options *o)
{
    const char *list = o->variants ? o->variants : o->march, *option = o->variants ? "variants" : "march";
    if (!targets_static(o) || !list || (!strchr(list, ',') && strcmp(list, "all") != 0))
        return true;
    error_usage(ctx, "'%s': a static network is for one CPU; name one (-mcpu=help)", option);
    return option_blame(ctx, o, option, NULL);
}

/* The architecture of the code: this machine's unless --target names one. */
static const char *wanted_arch(const struct options *o)
{
    bool any = o->emit == OPT_EMIT_C && !o->march && !o->variants; /* C for all: the same on every machine */
    return o->target ? arch_of(o->target) : any ? "x86_64" : cpu_arch();
}

/* ---- rows of the table ----------------------------------------------------------------------------------------- */

/* Is word one of the words of a comma-separated list? */
static bool listed(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = strstr(list, word); p && n; p = strstr(p + 1, word))
        if ((p == list || p[-1] == ',') && (p[n] == 0 || p[n] == ','))
            return true;
    return false;
}

/* Does the system let a process have what the row needs beyond its CPU (os_tiles)? */
static bool system_grants(const struct options *o, const struct target_row *t)
{
    const struct platform *platform = targets_platform(o);
    return !t->machine.tiles || (platform && strcmp(platform->system, "linux") == 0);
}

/* The best row that this machine runs; those of one kind of core alone differ in figures that nothing tells of the
 * machine. */
static bool is_native(struct context *ctx, const struct options *o, const struct target_row *t, const char *arch)
{
    for (uint32_t i = 0; i < target_count; i++)
        if (target_rows[i].when != TARGET_NAMED && system_grants(o, &target_rows[i]) && cpu_runs(ctx, &target_rows[i]))
            return strcmp(arch, target_rows[i].arch) == 0 ? &target_rows[i] == t : t->when == TARGET_ALWAYS;
    return t->when == TARGET_ALWAYS;
}

/* What contractions want of a CPU: dot products, tile registers, sums of f16. */
struct uses {
    bool dot[DOT_KINDS], tiles, halves;
};
enum { TILE_ROWS = 16 };

/* How well the row does what they want, kind by kind: one number, 0 for nothing of it. */
static uint32_t grades_of(const struct target_row *t, const struct uses *uses)
{
    uint32_t grades = uses->halves && !strcmp(t->arch, "aarch64") && listed(t->features, "+fullfp16");
    for (int k = 0; k < DOT_KINDS; k++)
        grades = 4 * grades + (uses->dot[k] ? t->machine.dot[k] : 0);
    return 2 * grades + (uses->tiles && t->machine.tiles);
}

/* Is it a product of so many rows that a tile register is full? Convolutions want images laid out for tiles, which is
 * done for a CPU that is named. */
static bool fills_tiles(const struct graph *g, const struct node *n)
{
    const struct type *y = value_type(g, n->out[0]);
    int64_t rows;
    return n->op == OP_DOT && y->rank >= 2 && ex_is_const(g->ctx->exprs, y->dims[y->rank - 2], &rows) &&
           rows >= TILE_ROWS;
}

/* Has the row what a contraction of the module wants, and no lesser row the same? Then the row is made unasked. */
static bool has_use(const struct module *m, const struct target_row *t)
{
    struct uses uses = {.halves = false};
    for (uint32_t i = 0; i < m->fused.kernels.n; i++) {
        const struct kernel *k = &m->fused.kernels.data[i];
        for (uint32_t j = 0; j < k->nodes.n; j++) { /* the anchor, and what segments sum */
            const struct node *n = graph_node(m->g, k->nodes.data[j]);
            enum dot_kind kind = dot_kind_of(m, n);
            if (kind < DOT_KINDS) {
                uses.dot[kind] = true;
                uses.tiles |= k->nodes.data[j].i == k->anchor.i && fills_tiles(m->g, n);
            }
        }
        uses.halves |= k->anchor.i && node_elem(graph_node(m->g, k->anchor), "part") == ELEM_F16;
    }
    uint32_t grades = grades_of(t, &uses);
    for (const struct target_row *less = t + 1; grades && less < target_rows + target_count; less++)
        if (less->when != TARGET_NAMED && strcmp(less->arch, t->arch) == 0 && grades_of(less, &uses) == grades)
            return false;
    return grades != 0;
}

/* The row of the architecture that all of its CPUs run; strict: of those that have strict results. */
static const struct target_row *least_row(const char *arch, bool strict)
{
    const struct target_row *least = NULL;
    for (uint32_t i = 0; i < target_count; i++)
        if (target_rows[i].when == TARGET_ALWAYS && strcmp(target_rows[i].arch, arch) == 0 &&
            (!strict || target_rows[i].machine.strict))
            least = &target_rows[i];
    return least;
}

/* used: does the network compute with the element types that the row's features are for? */
static bool is_asked(struct context *ctx, const struct options *o, const struct target_row *t, bool used)
{
    const char *arch = wanted_arch(o), *list = o->variants ? o->variants : o->march;
    if (strcmp(arch, t->arch) != 0 || (o->strict && !t->machine.strict))
        return false;
    if (!list && targets_static(o))
        return t == least_row(arch, o->strict);
    if (!list || !strcmp(list, "all"))
        return t->when == TARGET_ALWAYS || (t->when == TARGET_OF_USE && used);
    if (!strcmp(list, "native"))
        return is_native(ctx, o, t, arch);
    return listed(list, t->name) || listed(list, target_short_name(target_rows, target_count, t));
}

/* ---- strict results -------------------------------------------------------------------------------------------- */

/* Every CPU that is named has fused multiply-add. */
static bool strict_check(struct context *ctx, const struct options *o, const char *arch)
{
    const struct target_row *named = NULL;
    bool some = false;
    struct options any = *o;
    any.strict = false;
    for (uint32_t i = 0; i < target_count && o->strict; i++) {
        const struct target_row *t = &target_rows[i];
        if (strcmp(t->arch, arch) != 0)
            continue;
        some |= t->machine.strict;
        if ((o->march || o->variants) && !t->machine.strict && is_asked(ctx, &any, t, false))
            named = t;
    }
    const char *list = o->variants ? o->variants : o->march;
    if (!o->strict || (some && (!named || strcmp(list, "all") == 0)))
        return true;
    error_usage(
        ctx,
        "'strict': there are no strict results on '%s', only on x86-64-v3 and better, AArch64 and RISC-V of 64 bits, "
        "which have fused multiply-add; leave --strict out, or compile for these",
        named ? named->name : arch);
    return option_blame(ctx, o, "strict", NULL);
}

bool variant_is_fused(const struct variant *v)
{
    return strcmp(v->row->arch, "x86_64") != 0 || v->needs >> RT_X86_FMA & 1;
}

bool variant_is_strict(const struct variant *v)
{
    return v->row->machine.strict && variant_is_fused(v);
}

bool targets_check(struct context *ctx, const struct options *o)
{
    uint64_t bits;
    const char *blamed = NULL;
    if (!target_check(ctx, o->target))
        return option_blame(ctx, o, "target", NULL);
    const char *arch = wanted_arch(o), *base = strcmp(arch, "x86_64") == 0 ? "x86-64" : "generic";
    if (!levels_check(ctx, "march", arch, o->march))
        blamed = "march";
    else if (!levels_check(ctx, "variants", arch, o->variants))
        blamed = "variants";
    else if (o->mattr && !cpu_bits(ctx, arch, base, o->mattr, &bits))
        blamed = "mattr";
    return blamed ? option_blame(ctx, o, blamed, NULL) : one_level_check(ctx, o) && strict_check(ctx, o, arch);
}

bool target_wanted(const struct options *o, const struct module *m, const struct target_row *t)
{
    return is_asked(m->ctx, o, t, system_grants(o, t) && has_use(m, t));
}

const struct target_row *targets_best(struct context *ctx, const struct options *o)
{
    for (int used = 0; used < 2; used++)
        for (uint32_t i = 0; i < target_count; i++)
            if (is_asked(ctx, o, &target_rows[i], used))
                return &target_rows[i];
    return target_find(BEST_BY_DEFAULT);
}

bool targets_pair(struct context *ctx, const struct options *o)
{
    bool pairs = false;
    for (uint32_t i = 0; i < target_count; i++)
        pairs |= target_rows[i].machine.dot[DOT_BF16] && is_asked(ctx, o, &target_rows[i], true);
    return pairs;
}

bool targets_signed(struct context *ctx, const struct options *o)
{
    for (uint32_t i = 0; i < target_count; i++)
        if ((target_rows[i].machine.dot[DOT_U8] == DOT_SIGNED || target_rows[i].machine.span) &&
            is_asked(ctx, o, &target_rows[i], true))
            return true;
    return false;
}

uint32_t targets_matdot(struct context *ctx, const struct options *o)
{
    uint32_t kinds = 0;
    for (uint32_t i = 0; i < target_count; i++)
        for (int k = 0; k < DOT_KINDS; k++)
            if (target_rows[i].machine.dot[k] >= DOT_MATRIX && is_asked(ctx, o, &target_rows[i], true))
                kinds |= 1u << k;
    return kinds;
}

bool variant_has_fp16(const struct variant *v)
{
    return !strcmp(v->row->arch, "aarch64") && (v->needs >> RT_ARM_FULLFP16 & 1);
}

bool variant_has_tiles(const struct variant *v)
{
    const uint64_t both = 1ull << RT_X86_AMXINT8 | 1ull << RT_X86_AMXBF16;
    return !strcmp(v->row->arch, "x86_64") && (v->needs & both) == both;
}

bool variant_init(struct variant *v, struct context *ctx, const struct target_row *row, const struct platform *platform,
                  const char *mattr)
{
    const char *own = row->features, *comma = *own && mattr && *mattr ? "," : "";
    *v = (struct variant){.row = row, .name = row->name, .target = {platform->triple, row->cpu, own}};
    if (mattr) {
        char *name = arena_printf(&ctx->session, "%s %s", row->name, mattr);
        for (char *p = strchr(name, ','); p; p = strchr(p, ','))
            *p = ' ';
        v->name = name;
        v->target.features = arena_printf(&ctx->session, "%s%s%s", own, comma, mattr);
    }
    if (!cpu_bits(ctx, row->arch, row->cpu, v->target.features, &v->needs))
        return false;
    const uint64_t f = 1ull << RT_X86_AVX512F,
                   vl = 1ull << RT_X86_AVX512VL; /* LLVM cannot mask the registers of AVX2 then */
    if (strcmp(row->arch, "x86_64") == 0 && (v->needs & (f | vl)) == f)
        return error_usage(ctx,
                           "'mattr': code for '%s' with avx512f and without avx512vl cannot be made; "
                           "add +avx512vl",
                           v->name);
    return true;
}
