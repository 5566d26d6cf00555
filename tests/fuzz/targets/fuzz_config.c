/* A configuration file (YAML). */
#include <stdio.h>
#include <stdlib.h>

#include "cli/library/compile/compile.h"
#include "tests/fuzz/targets/target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct context *ctx = context_new();
    struct options options;
    jmp_buf here;
    if (!ctx)
        return 0;
    options_init(&options);
    ctx->unwind = &here;
    if (setjmp(here) == 0)
        config_load(ctx, &options, file_of(data, size), 'C');
    if (ctx->fail == FAIL_INTERNAL)
        abort();
    context_free(ctx);
    return 0;
}
