/* A file through all of the compiler but LLVM: import, legalize, the passes, schedule, loop IR for one CPU. What
 * -verify-each finds wrong is an internal error too.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/library/compile/compile.h"
#include "tests/fuzz/targets/target.h"

static void put_nothing(void *user, int kind, const char *text, size_t size)
{
    (void)user, (void)kind, (void)text, (void)size;
}

static void set(struct context *ctx, struct options *o, const char *name, const char *value)
{
    const struct option *def = option_find(name, 'C');
    if (!def || !option_set(ctx, o, def, value, FAIL_USAGE))
        abort();
}

int compile_bytes(const uint8_t *data, size_t size)
{
    struct context *ctx = context_new();
    struct options options;
    jmp_buf here;
    if (!ctx)
        return 0;
    options_init(&options);
    ctx->unwind = &here;
    if (setjmp(here) == 0) {
        set(ctx, &options, "march", "x86-64-v3");
        set(ctx, &options, "verify-each", NULL);
        set(ctx, &options, "limit-tensor-bytes", "16777216");
        set(ctx, &options, "limit-fold-bytes", "1048576");
        set(ctx, &options, "limit-compile-heap", "536870912");
    }
    ctx->unwind = NULL;
    if (ctx->fail != FAIL_NONE)
        abort();
    if (compile_model(ctx, &options, file_of(data, size), "emit", (struct report){.put = put_nothing}) ==
        FAIL_INTERNAL) {
        for (uint32_t i = 0; i < ctx->diags.n; i++)
            fprintf(stderr, "%s\n", ctx->diags.data[i].text);
        abort();
    }
    context_free(ctx);
    return 0;
}
