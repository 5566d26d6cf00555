/* An .npy file, as run and eval read their inputs. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/commands/artifact/file_tensor.h"
#include "tests/fuzz/targets/target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct context *ctx = context_new();
    struct file_tensor packed = {0};
    jmp_buf here;
    if (!ctx)
        return 0;
    ctx->unwind = &here;
    if (setjmp(here) == 0)
        file_tensor_read(ctx, file_of(data, size), &packed);
    if (ctx->fail == FAIL_INTERNAL)
        abort();
    context_free(ctx);
    return 0;
}
