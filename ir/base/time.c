/* The processor time of a compilation: see base.h. */
#include "ir/base/base.h"

#include <math.h>
#include <time.h>

static double seconds_of(clockid_t clock)
{
    struct timespec t;
    return clock_gettime(clock, &t) == 0 ? (double)t.tv_sec + (double)t.tv_nsec / 1e9 : 0;
}

double time_now(void)
{
    return seconds_of(CLOCK_MONOTONIC);
}

/* What the calling thread has used since it began. */
static double thread_seconds(void)
{
    return seconds_of(CLOCK_THREAD_CPUTIME_ID);
}

void time_begin(struct context *ctx)
{
    double most = ctx->limits.compile_time;
    ctx->time.most = 0;
    ctx->time.workers = 0;
    if (most <= 0)
        return;
    ctx->time.text = arena_printf(&ctx->session,
                                  "compiling took more than %g s of processor time (--limit-compile-time)", most);
    ctx->time.began = thread_seconds();
    ctx->time.most = most;
}

void time_end(struct context *ctx)
{
    ctx->time.most = 0;
}

double time_left(const struct context *ctx)
{
    const struct time *t = &ctx->time;
    return t->most > 0 ? t->most - (thread_seconds() - t->began) - t->workers : INFINITY;
}

/* One record is enough, however often the answer is yes. */
bool time_is_over(struct context *ctx)
{
    const struct diag *last = ctx->diags.n ? &ctx->diags.data[ctx->diags.n - 1] : NULL;
    ctx->time.work = 0;
    if (ctx->time.most <= 0 || time_left(ctx) > 0)
        return false;
    if (!last || last->text != ctx->time.text)
        limit_record(ctx, ctx->time.text);
    return true;
}

void time_check(struct context *ctx)
{
    if (time_is_over(ctx))
        limit_unwind(ctx);
}
