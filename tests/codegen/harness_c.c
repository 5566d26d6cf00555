/* The kernels of a suite printed as C, compiled by the C compiler with its warnings as errors, and run: against the
 * interpreter, and bit by bit against what LLVM made for the same row.
 */
#include "codegen/c/c_internal.h"
#include "tests/codegen/harness.h"
#include "tests/interp/interp.h"

#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

typedef void c_case(const int64_t *args, int64_t count, unsigned char *scratch);

/* A function of the same arguments for each kernel. */
static void put_case(struct strbuf *out, const struct c_function *made, const struct lfunc *f, uint32_t number)
{
    strbuf_printf(out, "void case_%u(const int64_t *args, int64_t count, unsigned char *scratch);\n", number);
    strbuf_printf(out, "void case_%u(const int64_t *args, int64_t count, unsigned char *scratch)\n{\n", number);
    strbuf_printf(out, "    (void)args, (void)scratch;\n    %s%s(", made->fails ? "(void)" : "", made->name);
    for (uint32_t i = 0; i < f->args.n; i++)
        strbuf_printf(out, f->args.data[i].type.lanes ? "args[%u], " : "(void *)(intptr_t)args[%u], ", i);
    strbuf_printf(out, made->scratch ? "count, scratch);\n}\n" : "count);\n}\n");
}

static void write_c(struct suite *s, const struct c_machine *m, const char *path)
{
    struct c_file *c = c_begin(s->ctx, &s->ctx->session, m);
    struct strbuf text;
    struct strbuf cases = strbuf_of(&s->ctx->session);
    for (uint32_t i = 0; i < s->cases.n; i++) {
        if (!c_function(c, s->cases.data[i].f))
            fail_msg("%s: %s", s->cases.data[i].f->name, s->ctx->diags.data[s->ctx->diags.n - 1].text);
        put_case(&cases, &c->functions.data[c->functions.n - 1], s->cases.data[i].f, i);
    }
    text = c_end(c, "", "");
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    assert_int_equal(fwrite(text.data, 1, text.n, out), text.n);
    assert_int_equal(fwrite(cases.data, 1, cases.n, out), cases.n);
    assert_int_equal(fclose(out), 0);
}

static void run_c(struct suite *s, const char *path, const char *cpu, bool unfused)
{
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        fail_msg("%s", dlerror());
    for (uint32_t i = 0; i < s->cases.n; i++) {
        struct kernel_case *k = &s->cases.data[i];
        struct linterp_arg *want = case_interpreted(s, k), *got = case_arguments(s, k);
        int64_t words[CASE_ARGS];
        char name[32];
        c_case *fn;
        snprintf(name, sizeof name, "case_%u", i);
        void *at = dlsym(lib, name);
        assert_non_null(at);
        memcpy(&fn, &at, sizeof fn);
        unsigned char *scratch = aligned_alloc(64, ((size_t)k->f->local_bytes + 127) & ~(size_t)63);
        for (uint32_t a = 0; a < k->f->args.n; a++)
            words[a] = got[a].buffer.data ? (int64_t)(intptr_t)got[a].buffer.data : got[a].index;
        fn(words, k->count, scratch);
        case_compare(k, want, got, cpu, unfused && k->unfused, false);
        if (k->compiled)
            case_compare(k, k->compiled, got, cpu, false, true);
        free(scratch);
    }
    dlclose(lib);
}

void suite_run_c(struct suite *s, const struct c_machine *m, const char *flags)
{
    static unsigned built;
    char path[400], library[420], command[1200];
    const char *cc = getenv("CC");
    snprintf(path, sizeof path, "%s.%d.%u.c", program_invocation_name, (int)getpid(), built++);
    snprintf(library, sizeof library, "%s.so", path);
    write_c(s, m, path);
#ifdef __SANITIZE_ADDRESS__ /* the printer is looked at; what cc makes of it has no sanitizer */
    unlink(path);
    return;
#endif
    snprintf(command, sizeof command,
             "%s -std=c11 -O1 -Wall -Wextra -Wconversion -Werror %s -shared -fPIC -o '%s' '%s'", cc ? cc : "cc", flags,
             library, path);
    if (system(command) != 0)
        fail_msg("%s", command);
    run_c(s, library, m->row, !m->fma);
    unlink(path);
    unlink(library);
}
