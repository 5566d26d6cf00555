/* All kernels of a suite become one artifact per CPU variant, whose program mentions every kernel so that the linker
 * keeps it; their addresses come from the file's symbol table. */
#include "harness.h"

#include "ir/target/target.h"
#include "runtime/rt_cpu.h"
#include "tests/interp/interp.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- building ---- */

struct suite *suite_new(void)
{
    struct suite *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->ctx = context_bare();
    assert_non_null(s->ctx);
    s->seed = UINT64_C(0x9e3779b97f4a7c15);
    return s;
}

void suite_free(struct suite *s)
{
    context_free(s->ctx);
    free(s);
}

uint64_t suite_random(struct suite *s)
{
    s->seed ^= s->seed << 13;
    s->seed ^= s->seed >> 7;
    s->seed ^= s->seed << 17;
    return s->seed * UINT64_C(0x2545f4914f6cdd1d);
}

struct kernel_case *case_new(struct suite *s, const char *name)
{
    struct kernel_case k = {.f = lf_new(s->ctx, &s->ctx->session, LROLE_KERNEL, name), .count = 1};
    VEC_PUSH(&s->ctx->session, &s->cases, k);
    return &s->cases.data[s->cases.n - 1];
}

/* One element: bits at random, small numbers, or the ends of the type. */
static void random_element(struct suite *s, enum elem elem, unsigned char *to)
{
    static const double special[] = {0,
                                     -0.0,
                                     1,
                                     -1,
                                     0.5,
                                     1.5,
                                     2.5,
                                     -2.5,
                                     127,
                                     128,
                                     255,
                                     65504,
                                     65520,
                                     2147483648.0,
                                     -2147483649.0,
                                     9.3e18,
                                     1.9e19,
                                     3.4e38,
                                     1e-40,
                                     1e-45,
                                     1e300,
                                     448,
                                     464,
                                     57344,
                                     2147483647.75,
                                     4294967295.5,
                                     4294967296.0,
                                     1234567890123.75,
                                     4503599627370497.5,
                                     9223372036854774784.0};
    uint64_t r = suite_random(s), bits = suite_random(s);
    uint32_t size = elem_size(elem), width = elem_bits(elem);
    if (elem_class(elem) == 'F' && r % 4 != 0) {
        double x = ((double)(r >> 8 & 0xffff) - 32768) / 64;
        if (r % 4 == 1)
            x = special[(r >> 8) % COUNT_OF(special)];
        elem_from_f64(elem, (r >> 40) % 2 ? -x : x, to);
        return;
    }
    if (elem_class(elem) != 'F' && r % 4 == 0)
        bits = r % 8 ? (uint64_t)1 << (width - 1) : ((uint64_t)1 << (width - 1)) - 1;
    else if (elem_class(elem) != 'F' && r % 4 == 1)
        bits = (uint64_t)((int64_t)(r >> 8 & 15) - 8);
    if (elem == ELEM_BOOL)
        bits &= 1;
    else if (elem_class(elem) == 'I' && width < 8)
        bits = (uint64_t)((int64_t)(bits << (64 - width)) >> (64 - width));
    else if (width < 8)
        bits &= (1u << width) - 1;
    memcpy(to, &bits, size);
}

lreg case_buffer(struct suite *s, struct kernel_case *k, enum elem elem, uint32_t flags, int64_t n)
{
    uint32_t size = elem_size(elem);
    unsigned char *data = arena_alloc(&s->ctx->session, (size_t)n * size + 64);
    data += -(uintptr_t)data % 64;
    for (int64_t i = 0; i < n; i++)
        random_element(s, elem, data + i * size);
    k->arg[k->f->args.n] = (struct case_arg){data, n * size, 0};
    return lf_arg(k->f, (struct ltype){elem, 0}, flags | LARG_NOALIAS, 64, NULL);
}

lreg case_index(struct kernel_case *k, int64_t value)
{
    k->arg[k->f->args.n] = (struct case_arg){NULL, 0, value};
    return lf_arg(k->f, TINDEX, 0, 0, NULL);
}

struct build case_parallel(struct kernel_case *k, lreg *i)
{
    struct build body = {k->f, {1}};
    lreg count = case_index(k, k->count), in[2] = {index_of(body, 0), count};
    lblock inner = lf_block(k->f);
    *i = lf_value(k->f, TINDEX);
    VEC_PUSH(k->f->arena, &k->f->blocks.data[inner.i].params, *i);
    struct lstmt *p = lf_stmt(k->f, (lblock){1}, L_PARALLEL, in, 2);
    p->block[0] = inner;
    return (struct build){k->f, inner};
}

lreg op1(struct build b, enum lop op, struct ltype t, lreg x)
{
    return lf_op(b.f, b.b, op, t, &x, 1);
}

lreg op2(struct build b, enum lop op, struct ltype t, lreg x, lreg y)
{
    return lf_op(b.f, b.b, op, t, (lreg[]){x, y}, 2);
}

lreg op3(struct build b, enum lop op, struct ltype t, lreg x, lreg y, lreg z)
{
    return lf_op(b.f, b.b, op, t, (lreg[]){x, y, z}, 3);
}

lreg op4(struct build b, enum lop op, struct ltype t, lreg x, lreg y, lreg z, lreg w)
{
    return lf_op(b.f, b.b, op, t, (lreg[]){x, y, z, w}, 4);
}

lreg number(struct build b, struct ltype t, int64_t value)
{
    lreg v = lf_op(b.f, b.b, L_CONST, t, NULL, 0);
    struct lblk *blk = &b.f->blocks.data[b.b.i];
    struct lstmt *s = &blk->stmts.data[blk->stmts.n - 1];
    if (elem_class(t.elem) == 'F')
        s->fimm = (double)value;
    else
        s->imm = value;
    return v;
}

lreg index_of(struct build b, int64_t value)
{
    return number(b, TINDEX, value);
}

lreg load(struct build b, struct ltype t, lreg buffer, lreg at)
{
    return op2(b, L_LOAD, t, buffer, at);
}

void store(struct build b, lreg buffer, lreg at, lreg value)
{
    op3(b, L_STORE, (struct ltype){0}, buffer, at, value);
}

void store_masked(struct build b, lreg buffer, lreg at, lreg value, lreg mask)
{
    op4(b, L_STORE, (struct ltype){0}, buffer, at, value, mask);
}

/* ---- compiling ---- */

/* The first are run where the CPU allows, those of aarch64 under qemu-user; all are compiled and linked, which fails
 * when an object wants a function of a compiler's library. Behind these: the rows of target.def for aarch64, each set
 * of features once. */
struct variant {
    struct target target;
    bool fma;
};
static const struct variant native_variants[] = {
    {{"x86_64-unknown-linux-gnu", "x86-64-v2", ""}, false},
    {{"x86_64-unknown-linux-gnu", "x86-64-v3", ""}, true},
    {{"x86_64-unknown-linux-gnu", "x86-64-v4", ""}, true},
    {{"x86_64-unknown-linux-gnu", "x86-64-v4", "+avx512vnni"}, true},
    {{"x86_64-unknown-linux-gnu", "x86-64-v4", "+avx512vnni,+avx512bf16"}, true},
    {{"x86_64-unknown-linux-gnu", "x86-64-v4", "+avx512vnni,+avx512bf16,+amx-tile,+amx-int8,+amx-bf16"}, true},
    {{"aarch64-unknown-linux-gnu", "generic", "+neon,+fullfp16"}, true},
    {{"riscv64-unknown-linux-gnu", "generic-rv64", "+m,+a,+f,+d,+c"}, true},
};

/* Of the first variants: the same bits as C. */
static const struct c_machine c_rows[] = {{.row = "x86-64-v2"}, {.row = "x86-64-v3", .fma = true}};

bool suite_has_tiles(void)
{
    const uint64_t needs = 1ull << RT_X86_AVX512VL | 1ull << RT_X86_AVX512BF16 | 1ull << RT_X86_AVX512VNNI |
                           1ull << RT_X86_AMXINT8 | 1ull << RT_X86_AMXBF16 | 1ull << RT_X86_AMXTILE;
#if defined(__x86_64__)
    return rt_cpu_runs(rt_cpu_features(), needs);
#else
    return needs == 0;
#endif
}

static bool has_tiles(const struct variant *v)
{
    return strstr(v->target.features, "+amx-tile") != NULL;
}

static bool cpu_runs(size_t variant)
{
    if (variant == 1)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (has_tiles(&native_variants[variant]))
        return suite_has_tiles();
    if (variant > 3 || (variant == 3 && !__builtin_cpu_supports("avx512vnni")))
        return false;
    return variant == 0 || (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"));
}

static const char *symbol_of(struct suite *s, uint32_t i)
{
    return arena_printf(&s->ctx->session, "kernel.%u", i);
}

static const char *program_of(struct suite *s)
{
    struct strbuf text = strbuf_of(&s->ctx->session);
    strbuf_printf(&text, "program @main {\n  %%0 = const index 0\n");
    for (uint32_t i = 0; i < s->cases.n; i++)
        strbuf_printf(&text, "  launch @kernel.%u() count %%0 grain 1 node 0\n", i);
    strbuf_printf(&text, "}\n");
    return text.data;
}

static bool no_weights(void *user, bool (*put)(void *, const void *, size_t), void *sink)
{
    return user || put(sink, "", 0);
}

static bool compile_suite(struct suite *s, const struct variant *v, const char *path)
{
    struct arena *arena = &s->ctx->session;
    uint32_t n = s->cases.n;
    struct codegen_unit *units = NEW_ARRAY(arena, struct codegen_unit, n + 1);
    struct art_kernel *kernels = NEW_ARRAY(arena, struct art_kernel, n);
    struct codegen_options options = {.self = "/proc/self/exe", .jobs = 2, .opt_level = 2};
    for (uint32_t i = 0; i < n; i++) {
        struct strbuf text = strbuf_of(arena);
        lf_print(s->cases.data[i].f, &text);
        units[i] = (struct codegen_unit){.target = &v->target, .symbol = symbol_of(s, i), .text = text.data};
        kernels[i].name = units[i].symbol;
    }
    units[n] = (struct codegen_unit){.target = &v->target, .symbol = "main", .text = program_of(s)};
    struct art_variant variant = {.target = &v->target, .name = v->target.cpu, .program = "main"};
    struct artifact a = {.name = "suite",
                         .compiler = "",
                         .target_text = "",
                         .features = "",
                         .variants = &variant,
                         .n_variants = 1,
                         .kernels = kernels,
                         .n_kernels = n,
                         .plan = "main",
                         .weights = {.write = no_weights},
                         .units = units,
                         .n_units = n + 1,
                         .prefix = ""};
    struct codegen *g = codegen_begin(s->ctx, arena, &options);
    codegen_add(g, units, n + 1);
    bool ok = codegen_finish(g, units) && codegen_link(g, &a, OUTPUT_SHARED, path);
    codegen_end(g);
    return ok;
}

/* Where the kernels are in the library, counted from mcc_query, as its symbol table has them. */
static int64_t *find_kernels(struct suite *s, const char *path)
{
    struct stat st;
    int64_t *at = NEW_ARRAY(&s->ctx->session, int64_t, s->cases.n + 1), query = 0;
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    unsigned char *file = malloc((size_t)st.st_size);
    assert_int_equal(read(fd, file, (size_t)st.st_size), st.st_size);
    close(fd);
    const Elf64_Ehdr *h = (void *)file;
    const Elf64_Shdr *sec = (void *)(file + h->e_shoff);
    for (uint32_t k = 0; k < h->e_shnum; k++) {
        if (sec[k].sh_type != SHT_SYMTAB)
            continue;
        const Elf64_Sym *sym = (void *)(file + sec[k].sh_offset);
        const char *names = (char *)file + sec[sec[k].sh_link].sh_offset;
        for (uint64_t i = 0; i < sec[k].sh_size / sizeof *sym; i++) {
            const char *name = names + sym[i].st_name;
            unsigned which;
            if (strcmp(name, "mcc_query") == 0)
                query = (int64_t)sym[i].st_value;
            else if (sscanf(name, "kernel.%u", &which) == 1 && !strstr(name, "index"))
                at[which] = (int64_t)sym[i].st_value;
        }
    }
    free(file);
    assert_int_not_equal(query, 0);
    for (uint32_t i = 0; i < s->cases.n; i++) {
        assert_int_not_equal(at[i], 0);
        at[i] -= query;
    }
    return at;
}

/* ---- running and comparing ---- */

struct linterp_arg *case_arguments(struct suite *s, const struct kernel_case *k)
{
    struct linterp_arg *args = NEW_ARRAY(&s->ctx->session, struct linterp_arg, CASE_ARGS);
    for (uint32_t i = 0; i < k->f->args.n; i++) {
        const struct case_arg *a = &k->arg[i];
        args[i].index = a->index;
        if (!a->data)
            continue;
        unsigned char *copy = arena_alloc(&s->ctx->session, (size_t)a->bytes + 64);
        copy += -(uintptr_t)copy % 64;
        memcpy(copy, a->data, (size_t)a->bytes);
        args[i].buffer = (struct lbuffer){copy, a->bytes};
    }
    return args;
}

static bool same_element(enum elem elem, const void *a, const void *b, bool unfused, bool exact)
{
    if (memcmp(a, b, elem_size(elem)) == 0)
        return true;
    if (elem_class(elem) != 'F')
        return false;
    double x = elem_to_f64(elem, a), y = elem_to_f64(elem, b), m = x < 0 ? -x : x;
    if ((x != x && y != y) || (x == y && !exact))
        return true;
    return unfused && (x - y < 1e-4 * m + 1e-30 && y - x < 1e-4 * m + 1e-30);
}

void case_compare(const struct kernel_case *k, const struct linterp_arg *want, const struct linterp_arg *got,
                  const char *cpu, bool unfused, bool exact)
{
    for (uint32_t i = 0; i < k->f->args.n; i++) {
        enum elem elem = k->f->args.data[i].type.elem;
        uint32_t size = elem_size(elem);
        for (int64_t at = 0; at < want[i].buffer.bytes; at += size) {
            const char *a = (char *)want[i].buffer.data + at, *b = (char *)got[i].buffer.data + at;
            if (same_element(elem, a, b, unfused, exact))
                continue;
            uint64_t x = 0, y = 0;
            memcpy(&x, a, size);
            memcpy(&y, b, size);
            fail_msg("%s, %s: argument %u (%s), element %lld: %s 0x%llx (%g), compiled 0x%llx (%g)", k->f->name, cpu, i,
                     elem_name(elem), (long long)(at / size), exact ? "by LLVM" : "interpreted", (unsigned long long)x,
                     elem_to_f64(elem, a), (unsigned long long)y, elem_to_f64(elem, b));
        }
    }
}

struct linterp_arg *case_interpreted(struct suite *s, const struct kernel_case *k)
{
    struct linterp_arg *want = case_arguments(s, k);
    struct linterp_result r = lf_interpret(k->f, want, 0, k->count, NULL);
    if (r.code)
        fail_msg("%s: interpreter: %d %s", k->f->name, r.code, r.text ? r.text : "");
    return want;
}

static void run_case(struct suite *s, struct kernel_case *k, mcc_rt_fn *fn, const struct variant *v)
{
    struct linterp_arg *want = case_interpreted(s, k), *got = case_arguments(s, k);
    int64_t words[CASE_ARGS];
    unsigned char *scratch = aligned_alloc(64, ((size_t)k->f->local_bytes + 127) & ~(size_t)63);
    for (uint32_t i = 0; i < k->f->args.n; i++)
        words[i] = got[i].buffer.data ? (int64_t)(intptr_t)got[i].buffer.data : got[i].index;
    /* Two chunks, as two threads would claim them. */
    fn(words, 0, k->count / 2, (char *)scratch, NULL);
    fn(words, k->count / 2, k->count, (char *)scratch, NULL);
    case_compare(k, want, got, v->target.cpu, k->unfused && !v->fma, false);
    k->compiled = got;
    if (k->hook)
        k->hook(k->count, fn, words, v->target.cpu);
    free(scratch);
}

static void run_native(struct suite *s, const struct variant *v, const char *path, const int64_t *at)
{
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(lib);
    char *query = dlsym(lib, "mcc_query");
    assert_non_null(query);
    for (uint32_t i = 0; i < s->cases.n; i++) {
        mcc_rt_fn *fn;
        char *address = query + at[i];
        memcpy(&fn, &address, sizeof fn);
        run_case(s, &s->cases.data[i], fn, v);
    }
    dlclose(lib);
}

/* ---- on another machine: tests/targets/kernels.c under qemu-user ---- */

static void put_word(FILE *out, int64_t w)
{
    assert_int_equal(fwrite(&w, sizeof w, 1, out), 1);
}

static void write_cases(struct suite *s, const char *path, const int64_t *at)
{
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    put_word(out, s->cases.n);
    for (uint32_t c = 0; c < s->cases.n; c++) {
        const struct kernel_case *k = &s->cases.data[c];
        put_word(out, at[c]);
        put_word(out, k->count);
        put_word(out, (int64_t)k->f->local_bytes);
        put_word(out, k->f->args.n);
        for (uint32_t i = 0; i < k->f->args.n; i++) {
            const struct case_arg *a = &k->arg[i];
            put_word(out, a->data ? a->bytes : -1);
            if (a->data)
                assert_int_equal(fwrite(a->data, 1, (size_t)a->bytes, out), a->bytes);
            else
                put_word(out, a->index);
        }
    }
    assert_int_equal(fclose(out), 0);
}

static void read_results(struct suite *s, const char *path, const struct variant *v)
{
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    for (uint32_t c = 0; c < s->cases.n; c++) {
        struct kernel_case *k = &s->cases.data[c];
        struct linterp_arg *want = case_interpreted(s, k), *got = case_arguments(s, k);
        for (uint32_t i = 0; i < k->f->args.n; i++)
            if (k->arg[i].data)
                assert_int_equal(fread(got[i].buffer.data, 1, (size_t)k->arg[i].bytes, in), k->arg[i].bytes);
        case_compare(k, want, got, v->target.features, k->unfused && !v->fma, false);
    }
    fclose(in);
}

static void run_foreign(struct suite *s, const struct variant *v, const char *path, const int64_t *at)
{
    char cases[440], results[440], command[2000];
    const char *build = getenv("MCC_BUILD");
    snprintf(cases, sizeof cases, "%s.cases", path);
    snprintf(results, sizeof results, "%s.results", path);
    write_cases(s, cases, at);
    snprintf(command, sizeof command,
             "qemu-aarch64 -cpu max -L /usr/aarch64-linux-gnu '%s/tests/targets/kernels-aarch64' '%s' '%s' '%s'",
             build ? build : "build", path, cases, results);
    assert_int_equal(system(command), 0);
    read_results(s, results, v);
    unlink(cases);
    unlink(results);
}

static void run_variant(struct suite *s, const struct variant *v, bool native)
{
    char path[400];
    bool foreign = strncmp(v->target.triple, "aarch64", 7) == 0;
    static unsigned built; /* a name of its own: dlopen takes a loaded library for the same */
    snprintf(path, sizeof path, "%s.%d.%u.so", program_invocation_name, (int)getpid(), built++);
    bool ok = compile_suite(s, v, path);
    for (uint32_t i = 0; i < s->ctx->diags.n; i++)
        print_error("%s\n", s->ctx->diags.data[i].text);
    assert_true(ok);
    if (native)
        run_native(s, v, path, find_kernels(s, path));
    else if (foreign)
        run_foreign(s, v, path, find_kernels(s, path));
    unlink(path);
}

static bool is_first_of_its_features(uint32_t row)
{
    for (uint32_t i = 0; i < row; i++)
        if (!strcmp(target_rows[i].arch, target_rows[row].arch) &&
            !strcmp(target_rows[i].features, target_rows[row].features))
            return false;
    return true;
}

void suite_run(struct suite *s)
{
    jmp_buf unwind;
    s->ctx->unwind = &unwind;
    if (setjmp(unwind) != 0)
        fail_msg("unwound: %s", s->ctx->diags.n ? s->ctx->diags.data[0].text : "");
    for (uint32_t i = 0; i < s->cases.n; i++)
        if (!lf_finish(s->cases.data[i].f))
            fail_msg("%s: %s", s->cases.data[i].f->name, s->ctx->diags.data[0].text);
    for (size_t v = 0; v < COUNT_OF(native_variants); v++) {
        if (s->tiles && !has_tiles(&native_variants[v]))
            continue;
        run_variant(s, &native_variants[v], cpu_runs(v));
        if (v < COUNT_OF(c_rows) && cpu_runs(v))
            suite_run_c(s, &c_rows[v], c_rows[v].fma ? "-mfma" : "");
    }
    for (uint32_t i = 0; i < target_count && !s->tiles; i++) {
        const struct target_row *t = &target_rows[i];
        if (!strcmp(t->arch, "aarch64") && is_first_of_its_features(i))
            run_variant(s, &(struct variant){{platform_find(t->arch, NULL)->triple, t->cpu, t->features}, true}, false);
    }
}

/* ---- workers ---- */

pid_t worker_answered(const struct wire_job *job, int *end)
{
    int fd[2];
    struct wire_result result;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(fd[1], 0);
        dup2(fd[1], 1);
        close(fd[0]);
        execl("/proc/self/exe", "mcc", "--worker", (char *)NULL);
        _exit(9);
    }
    close(fd[1]);
    assert_int_equal(write(fd[0], job, sizeof *job), sizeof *job);
    assert_int_equal(read(fd[0], &result, sizeof result), sizeof result);
    *end = fd[0];
    return child;
}

bool codegen_objects(struct context *ctx, struct arena *arena, const struct codegen_options *options,
                     struct codegen_unit *units, uint32_t n)
{
    struct codegen *g = codegen_begin(ctx, arena, options);
    codegen_add(g, units, n);
    bool ok = codegen_finish(g, units);
    codegen_end(g);
    return ok;
}
