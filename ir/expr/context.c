/* A whole context: what ir/base knows of it, and its index expressions. */
#include "ir/expr/expr.h"

/* False when memory ends. */
static bool exprs_begin(struct context *ctx)
{
    jmp_buf point;
    if (setjmp(point))
        return false;
    ctx->unwind = &point;
    ctx->exprs = exprs_new(ctx);
    ctx->unwind = NULL;
    return true;
}

struct context *context_new(void)
{
    struct context *ctx = context_bare();
    if (!ctx || exprs_begin(ctx))
        return ctx;
    context_free(ctx);
    return NULL;
}
