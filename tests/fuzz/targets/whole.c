/* A file through all of the compiler but LLVM: import, legalize, the passes, schedule, loop IR for one CPU. What
 * -verify-each finds wrong is an internal error too.
 */
#include <stdlib.h>

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

static void compile(struct context *ctx, const char *path)
{
    struct options options;
    options_init(&options);
    set(ctx, &options, "march", "x86-64-v3");
    set(ctx, &options, "verify-each", NULL);
    set(ctx, &options, "limit-tensor-bytes", "16777216");
    set(ctx, &options, "limit-fold-bytes", "1048576");
    set(ctx, &options, "limit-compile-heap", "536870912");
    compile_model(ctx, &options, path, "emit", (struct report){.put = put_nothing});
}

int compile_bytes(const uint8_t *data, size_t size)
{
    return fuzz_bytes(data, size, compile);
}
