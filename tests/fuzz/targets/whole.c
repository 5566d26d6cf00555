/* A file through all of the compiler but LLVM, or a part of it: import, legalize, the passes, schedule, loop IR for one
 * CPU. What -verify-each finds wrong is an internal error too, and so is a text of a graph or module that does not read
 * back.
 */
#include <stdio.h>
#include <stdlib.h>

#include "cli/library/compile/compile.h"
#include "tests/fuzz/targets/target.h"
#include "tests/text/text.h"

static void set(struct context *ctx, struct options *o, const char *name, const char *value)
{
    const struct option *def = option_find(name, 'C');
    if (!def || !option_set(ctx, o, def, value, FAIL_USAGE))
        abort();
}

static const char *last_stage;

static void compile(struct context *ctx, const char *path)
{
    struct options options;
    struct read_back texts = {.like = ctx};
    options_init(&options);
    set(ctx, &options, "march", "x86-64-v3");
    set(ctx, &options, "verify-each", NULL);
    set(ctx, &options, "print-after-all", NULL);
    set(ctx, &options, "print-constants", NULL);
    set(ctx, &options, "limit-tensor-bytes", "16777216");
    set(ctx, &options, "limit-fold-bytes", "1048576");
    set(ctx, &options, "limit-compile-heap", "536870912");
    compile_model(ctx, &options, path, last_stage, (struct report){.user = &texts, .put = read_back_put});
    if (texts.why[0])
        error_internal(ctx, (src_id){0}, "%s", texts.why);
}

int compile_bytes(const uint8_t *data, size_t size, const char *last)
{
    last_stage = last;
    return fuzz_bytes(data, size, compile);
}
