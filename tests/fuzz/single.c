/* See single.h. */
#include "tests/fuzz/single.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool single_result(struct draw *d, value_id v)
{
    graph_add_result(d->g, (region_id){1}, v);
    VEC_PUSH(&d->g->arena, &d->g->outputs, ((struct port){"y", NULL, v}));
    d->g->legal = true;
    draw_bind(d, d->extent);
    return true;
}

/* Largest error over largest value; not a number when anything is not finite. */
static double error_of(const struct tensor *want, const struct tensor *have)
{
    const float *a = want->data, *b = have->data;
    double scale = 1e-30, worst = 0;
    for (int64_t i = 0; i < tensor_count(want); i++) {
        double e = fabs((double)a[i] - (double)b[i]);
        scale = fabs((double)a[i]) > scale ? fabs((double)a[i]) : scale;
        worst = isnan(worst) || e <= worst ? worst : e;      /* a NaN stays */
    }
    return worst / scale;
}

/* Runs graph number `seed`; false after a line that tells why. */
static bool agrees(struct draw *d, const struct way *way, double limit, struct strbuf *why, double *error)
{
    struct tensor want = {0}, have = {0};
    struct arena *arena = &d->ctx->session;
    const char *text = "";
    char self[400] = "";
    if (graph_eval(d->g, d->inputs, &want, arena, &text) != EVAL_OK) {
        strbuf_printf(why, "reference: %s", text);
        return false;
    }
    if (readlink("/proc/self/exe", self, sizeof self - 40) <= 0)
        return false;
    const char *path = arena_printf(arena, "%s.%ld.so", self, (long)getpid());
    struct native *native = way->native ? native_make(d, way, path, why) : NULL;
    struct loops *loops = way->native ? NULL : loops_make(d, way, why);
    bool ran = native ? native_run(native, &have) : loops && loops_run(loops, &have);
    if (native)
        native_close(native);
    if (!ran)
        return false;
    *error = error_of(&want, &have);
    if (*error <= limit)
        return true;
    strbuf_printf(why, "error %g of the largest value", *error);
    return false;
}

struct totals {
    uint32_t used;
    double worst;
};
static bool try_graph(const struct single *s, uint64_t seed, bool native, struct totals *t)
{
    struct context *ctx = context_new();
    struct draw *d = NEW(&ctx->session, struct draw);
    struct way way = s->way(seed);
    way.native = native;
    way.variant = "native";
    way.threads = 3;
    jmp_buf unwind;
    volatile bool ok = false, built = false;
    double error = 0;
    struct strbuf why = strbuf_of(&ctx->session);
    *d = (struct draw){.ctx = ctx,
                       .g = graph_new(ctx),
                       .x = ctx->exprs,
                       .state = seed * 0x2545f4914f6cdd1du + 1,
                       .largest_leaf = 1 << 19};
    d->b = builder_in(d->g, (region_id){1});
    ctx->unwind = &unwind;
    if (setjmp(unwind) == 0) {
        built = s->build(d);
        ok = built && agrees(d, &way, s->limit(&way), &why, &error);
    }
    t->used += built;
    t->worst = error > t->worst ? error : t->worst;
    if (!ok && (built || ctx->fail != FAIL_NONE)) {
        strbuf_printf(&why, "\n");
        graph_print(d->g, &why, false);
        diags_append(ctx, &why);
        way_print(&way, &why);
        printf("# seed %llu: %s\n", (unsigned long long)seed, why.data);
    }
    ok |= !built && ctx->fail == FAIL_NONE;
    context_free(ctx);
    return ok;
}

uint32_t single_many(const struct single *s, uint64_t n, uint64_t seed, bool native)
{
    struct totals t = {0, 0};
    uint32_t bad = 0;
    for (uint64_t i = 0; i < n && bad < 5; i++)
        bad += !try_graph(s, seed + i, native, &t);
    printf("# %u graphs of %s %s, largest error %.2g of scale\n", t.used, s->name, native ? "compiled" : "interpreted",
           t.worst);
    return bad + (t.used < n / 2);
}
