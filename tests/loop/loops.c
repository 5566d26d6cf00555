/* Helpers of the loop IR's tests. */
#include "loops.h"

#include <string.h>

int loops_setup(void **state)
{
    struct context *ctx = context_bare();
    *state = ctx;
    return ctx ? 0 : -1;
}

int loops_teardown(void **state)
{
    context_free(*state);
    return 0;
}

struct lfunc *loops_parse(struct context *ctx, const char *text)
{
    return lf_parse(ctx, &ctx->session, &text);
}

const char *loops_last_error(struct context *ctx)
{
    return ctx->diags.n ? ctx->diags.data[ctx->diags.n - 1].text : "";
}

struct lfunc *loops_load(struct context *ctx, const char *text)
{
    struct lfunc *f = loops_parse(ctx, text);
    if (!f || !lf_verify(f))
        fail_msg("%s\nin\n%s", loops_last_error(ctx), text);
    return f;
}

char *loops_print(struct context *ctx, const struct lfunc *f)
{
    struct strbuf out = strbuf_of(&ctx->session);
    lf_print(f, &out);
    return out.data;
}
