/* Loop IR to a running shared object: y[i] = x[i] * w[i mod 16] where x[i] >= 0, for any number of elements, with both
 * variants, one copy of the weights, the table, and the runtime; then what the file itself promises.
 *
 * The test is its own worker: it is started again with --worker.
 */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "codegen/codegen.h"
#include "runtime/mcc.h"
#include "runtime/mcc_note.h"
#include "runtime/rt.h"
#include "runtime/rt_cpu.h"

static const char kernel_text[] = "kernel @scale {\n"
                                  "  arg %0 : buffer f32 in align 4 noalias\n"
                                  "  arg %1 : buffer f32 in align 64 noalias\n"
                                  "  arg %2 : buffer f32 out align 4 noalias\n"
                                  "  arg %3 : index\n"
                                  "  %4 = const index 0\n"
                                  "  %5 = const index 16\n"
                                  "  parallel %6 = %4 to %3 {\n"
                                  "    %7 = load f32 %0[%6]\n"
                                  "    %8 = const f32 0\n"
                                  "    %9 = le bool %8, %7\n"
                                  "    check %9 code -9 node 0 \"negative\"\n"
                                  "    %10 = floormod index %6, %5\n"
                                  "    %11 = load f32 %1[%10]\n"
                                  "    %12 = mul f32 %7, %11\n"
                                  "    store %2[%6], %12\n"
                                  "  }\n"
                                  "}\n";
static const char program_text[] = "program @%s {\n"
                                   "  arg %%0 : buffer f32 in align 4\n"
                                   "  arg %%1 : buffer f32 out align 4\n"
                                   "  arg %%2 : buffer u8 out align 64\n"
                                   "  arg %%3 : buffer u8 in align 64\n"
                                   "  arg %%4 : index\n"
                                   "  %%5 = const index 0\n"
                                   "  %%6 = offset buffer f32 %%3, %%5\n"
                                   "  launch @%s(%%0, %%6, %%1, %%4) count %%4 grain 1 node 0\n"
                                   "}\n";
static const char plan_text[] = "plan @plan {\n"
                                "  arg %0 : buffer i64 in align 8\n"
                                "  arg %1 : buffer i64 out align 8\n"
                                "  %2 = const index 0\n"
                                "  %3 = load index %0[%2]\n"
                                "  store %1[%2], %3\n"
                                "  %4 = const index 1\n"
                                "  store %1[%4], %2\n"
                                "  %5 = const index 2\n"
                                "  store %1[%5], %3\n"
                                "}\n";

static const struct target v2 = {"x86_64-unknown-linux-gnu", "x86-64-v2", ""};
static const struct target v3 = {"x86_64-unknown-linux-gnu", "x86-64-v3", ""};
static uint64_t weights_size;

static float weight(uint64_t i)
{
    return (float)(i % 1021) - 300.5f;
}

static bool write_weights(void *user, bool (*put)(void *, const void *, size_t), void *sink)
{
    float block[2][1024]; /* in turns: put keeps one while the other is filled */
    (void)user;
    for (uint64_t at = 0; at < weights_size / 4; at += 1024) {
        uint64_t n = weights_size / 4 - at < 1024 ? weights_size / 4 - at : 1024;
        float *part = block[at / 1024 % 2];
        for (uint64_t i = 0; i < n; i++)
            part[i] = weight(at + i);
        if (!put(sink, part, n * 4))
            return false;
    }
    return put(sink, NULL, 0);
}

static void fill(struct context *ctx, struct codegen_unit *units, struct artifact *a, uint32_t jobs,
                 struct codegen_options *options)
{
    static const mcc_dim dims[] = {{-1, 0, 0, NULL}};
    static const struct art_port in = {"x", ELEM_F32, 1, dims, 0, 0}, out = {"y", ELEM_F32, 1, dims, 0, 0};
    static const struct art_symbol symbol = {"n", 0, 0, 1};
    static const mcc_node node = {"scale1", "Mul", "", 1, 8, 1, 0};
    static const struct art_variant variants[] = {{&v3, "x86-64-v3", 1ull << RT_X86_AVX2, "program.v3", NULL},
                                                  {&v2, "x86-64-v2", 1ull << RT_X86_SSE42, "program.v2", NULL}};
    static const struct art_kernel kernels[] = {{"scale.v3", 0, 0, 1, 8, 1, 0, false},
                                                {"scale.v2", 0, 0, 1, 8, 1, 1, false}};
    units[0] = (struct codegen_unit){.target = &v3, .symbol = "scale.v3", .text = kernel_text};
    units[1] = (struct codegen_unit){.target = &v2, .symbol = "scale.v2", .text = kernel_text};
    units[2] = (struct codegen_unit){.target = &v3, .symbol = "program.v3", .text = NULL};
    units[2].text = arena_printf(&ctx->session, program_text, "program.v3", "scale.v3");
    units[3] = (struct codegen_unit){.target = &v2, .symbol = "program.v2", .text = NULL};
    units[3].text = arena_printf(&ctx->session, program_text, "program.v2", "scale.v2");
    units[4] = (struct codegen_unit){.target = &v2, .symbol = "plan", .text = plan_text};
    *options = (struct codegen_options){.self = "/proc/self/exe", .jobs = jobs, .opt_level = 2};
    *a = (struct artifact){.name = "scale",
                           .compiler = "test",
                           .target_text = "x86_64",
                           .features = "",
                           .in = &in,
                           .out = &out,
                           .n_in = 1,
                           .n_out = 1,
                           .sym = &symbol,
                           .n_sym = 1,
                           .node = &node,
                           .n_node = 1,
                           .variants = variants,
                           .n_variants = 2,
                           .kernels = kernels,
                           .n_kernels = 2,
                           .plan = "plan",
                           .n_in_dims = 1,
                           .n_out_dims = 1,
                           .scratch_bytes = 64,
                           .weights = {.size = weights_size, .write = write_weights},
                           .units = units,
                           .n_units = 5,
                           .prefix = ""};
}

static void build(const char *path, uint32_t jobs, const char *prefix, enum output_kind kind)
{
    struct context *ctx = context_bare();
    struct codegen_unit units[5];
    struct codegen_options options;
    struct artifact a;
    jmp_buf unwind;
    assert_non_null(ctx);
    ctx->unwind = &unwind;
    volatile bool ok = false;
    if (setjmp(unwind) == 0) {
        fill(ctx, units, &a, jobs, &options);
        a.prefix = prefix;
        struct codegen *g = codegen_begin(ctx, &ctx->session, &options);
        codegen_add(g, units, 5);
        ok = codegen_finish(g, units) && codegen_link(g, &a, kind, path);
        codegen_end(g);
    }
    for (uint32_t i = 0; i < ctx->diags.n; i++)
        print_error("%s\n", ctx->diags.data[i].text);
    assert_true(ok);
    context_free(ctx);
}

static const char *temporary(const char *name)
{
    static char path[4][300];
    static int k;
    char *p = path[k++ % 4];
    snprintf(p, sizeof path[0], "%s.%s", program_invocation_name, name);
    return p;
}

static void run_both_variants(const mcc_api *api)
{
    float x[1000], y[1000];
    for (uint32_t variant = 0; variant <= 2; variant++) {
        mcc_host host = {.size = sizeof host, .flags = variant, .threads = 2};
        mcc_model *model = NULL;
        mcc_ctx *ctx = NULL;
        mcc_error error = {0};
        int64_t shape[1] = {1000};
        DLTensor in = {x, {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, shape, NULL, 0}, out = in;
        const DLTensor *ins[] = {&in};
        DLTensor *outs[] = {&out};
        out.data = y;
        for (int i = 0; i < 1000; i++)
            x[i] = (float)i, y[i] = -1;
        int code = api->open(&host, &model, &error);
        if (code == MCC_E_CPU)
            continue;
        assert_int_equal(code, MCC_OK);
        assert_int_equal(api->ctx_new(model, NULL, 0, &ctx, &error), MCC_OK);
        code = api->run(ctx, ins, outs, &error);
        if (code != MCC_OK)
            print_error("%s\n", error.text);
        assert_int_equal(code, MCC_OK);
        for (int i = 0; i < 1000; i++)
            assert_true(y[i] == (float)i * weight((uint64_t)i % 16));
        x[700] = -1;         /* the kernel's check: code, node and text come through, and the context lives on */
        assert_int_equal(api->run(ctx, ins, outs, &error), MCC_E_VALUE);
        assert_int_equal(error.node, 0);
        assert_non_null(strstr(error.text, "negative"));
        x[700] = 1;
        assert_int_equal(api->run(ctx, ins, outs, &error), MCC_OK);
        api->ctx_free(ctx);
        api->close(model);
    }
}

static void test_run(void **state)
{
    (void)state;
    weights_size = 100000;
    const char *path = temporary("run.so");
    build(path, 2, "", OUTPUT_SHARED);
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        print_error("%s\n", dlerror());
    assert_non_null(lib);
    union {
        void *p;
        const mcc_api *(*query)(uint32_t);
    } query = {dlsym(lib, "mcc_query")};
    assert_non_null(query.p);
    assert_null(query.query(99));
    const mcc_api *api = query.query(MCC_ABI);
    assert_non_null(api);
    assert_string_equal(api->name, "scale");
    assert_int_equal(api->n_in, 1);
    assert_string_equal(api->in[0].name, "x");
    assert_int_equal(api->in[0].dims[0].symbol, 0);
    assert_string_equal(api->sym[0].name, "n");
    assert_string_equal(api->node[0].op, "Mul");
    run_both_variants(api);
    dlclose(lib);
    unlink(path);
}

static unsigned char *read_file(const char *path, size_t *size)
{
    struct stat st;
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    unsigned char *data = malloc((size_t)st.st_size);
    assert_int_equal(read(fd, data, (size_t)st.st_size), st.st_size);
    close(fd);
    *size = (size_t)st.st_size;
    return data;
}

/* One export, no executable or writable surprise, a sealed note whose hash is right, weights in place. */
static void test_file(void **state)
{
    (void)state;
    size_t size;
    weights_size = 40004;
    const char *path = temporary("file.so");
    build(path, 1, "foo", OUTPUT_SHARED);
    unsigned char *data = read_file(path, &size);
    Elf64_Ehdr head;
    memcpy(&head, data, sizeof head);
    assert_int_equal(head.e_shoff + head.e_shnum * sizeof(Elf64_Shdr), size);
    struct mcc_note note = {0};
    int n_note = 0, n_stack = 0, n_relro = 0;
    for (int i = 0; i < head.e_phnum; i++) {
        Elf64_Phdr p;
        memcpy(&p, data + head.e_phoff + (size_t)i * sizeof p, sizeof p);
        assert_false((p.p_flags & PF_X) && (p.p_flags & PF_W));
        n_stack += p.p_type == PT_GNU_STACK && !(p.p_flags & PF_X);
        n_relro += p.p_type == PT_GNU_RELRO;
        assert_int_not_equal(p.p_type, PT_TLS);
        if (p.p_type == PT_NOTE) {
            n_note++;
            assert_int_equal(p.p_filesz, sizeof note);
            memcpy(&note, data + p.p_offset, sizeof note);
            memset(data + p.p_offset + offsetof(struct mcc_note, hash), 0, 8);
        }
    }
    assert_int_equal(n_note, 1);
    assert_int_equal(n_stack, 1);
    assert_int_equal(n_relro, 1);
    assert_int_equal(note.sealed, 1);
    assert_int_equal(note.file_size, size);
    assert_int_equal(note.weights_size, weights_size);
    assert_string_equal(note.query, "foo_mcc_query");
    for (uint64_t i = 0; i < weights_size / 4; i++) {
        float w;
        memcpy(&w, data + note.weights_offset + 4 * i, 4);
        assert_true(w == weight(i));
    }
    memmove(data + note.weights_offset, data + note.weights_offset + weights_size,
            size - note.weights_offset - weights_size);
    assert_int_equal(XXH64(data, size - weights_size, 0), note.hash);
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(lib);
    assert_null(dlsym(lib, "mcc_query"));
    assert_non_null(dlsym(lib, "foo_mcc_query"));
    dlclose(lib);
    free(data);
    unlink(path);
}

static void test_same_bytes(void **state)
{
    (void)state;
    size_t n1, n2;
    weights_size = 64;
    const char *one = temporary("one.so"), *two = temporary("two.so");
    build(one, 1, "", OUTPUT_SHARED);
    build(two, 3, "", OUTPUT_SHARED);
    unsigned char *a = read_file(one, &n1), *b = read_file(two, &n2);
    assert_int_equal(n1, n2);
    assert_memory_equal(a, b, n1);
    free(a);
    free(b);
    unlink(one);
    unlink(two);
}

static void test_without_weights(void **state)
{
    (void)state;
    weights_size = 0;
    const char *path = temporary("none.so");
    build(path, 1, "", OUTPUT_SHARED);
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(lib);
    dlclose(lib);
    unlink(path);
}

/* Two relocatable outputs in one library: nothing of theirs collides. */
static void test_objects(void **state)
{
    (void)state;
    char command[1000];
    const char *one = temporary("one.o"), *two = temporary("two.o"), *path = temporary("both.so");
    static const char *const queries[] = {"one_mcc_query", "two_mcc_query"};
    weights_size = 4096;
    build(one, 1, "one", OUTPUT_OBJECT);
    build(two, 1, "two", OUTPUT_OBJECT);
    snprintf(command, sizeof command, "cc -shared -o '%s' '%s' '%s'", path, one, two);
    assert_int_equal(system(command), 0);
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        print_error("%s\n", dlerror());
    assert_non_null(lib);
    assert_null(dlsym(lib, "mcc_query"));
    for (size_t i = 0; i < COUNT_OF(queries); i++) {
        union {
            void *p;
            const mcc_api *(*query)(uint32_t);
        } query = {dlsym(lib, queries[i])};
        assert_non_null(query.p);
        run_both_variants(query.query(MCC_ABI));
    }
    dlclose(lib);
    unlink(one);
    unlink(two);
    unlink(path);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_run), cmocka_unit_test(test_file),
                                       cmocka_unit_test(test_same_bytes), cmocka_unit_test(test_without_weights),
                                       cmocka_unit_test(test_objects)};
    if (argc > 1 && strcmp(argv[1], "--worker") == 0)
        return codegen_worker();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
