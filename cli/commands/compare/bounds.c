/* Bounds of rounding: see bounds.h.
 *
 * The interpreter of the loop IR runs each launch with running error analysis (ir/loop/interp/error.c), of as many
 * parallel indices as its work allows, on what the machine code of the kernels before has stored: that is exact where
 * the reference starts from it as well, as mcc diff has kept it, and off by its own bounds where not.
 */
#include "cli/commands/compare/bounds.h"

#include <math.h>

enum { TABLE_LEAST = 1 << 12, TABLE_MOST = 1 << 23 };

/* ---- by address -------------------------------------------------------------------------------------------------- */

static struct bound_entry *find(const struct bounds *b, uintptr_t at)
{
    uint64_t i = hash_mix(0, at) & (b->cap - 1);
    while (b->table[i].at && b->table[i].at != at)
        i = (i + 1) & (b->cap - 1);
    return &b->table[i];
}

static void grow(struct bounds *b, struct arena *arena)
{
    const struct bound_entry *old = b->table;
    const uint64_t cap = b->cap;
    b->cap = cap ? 2 * cap : TABLE_LEAST;
    b->table = NEW_ARRAY(arena, struct bound_entry, b->cap);
    for (uint64_t i = 0; i < cap; i++)
        if (old[i].at)
            *find(b, old[i].at) = old[i];
}

static bool is_weight(const struct bounds *b, const void *at)
{
    const unsigned char *p = at;
    return p >= b->weights && p - b->weights < b->weights_bytes;
}

double bounds_read(void *user, enum elem elem, const void *at)
{
    struct code_check *m = user;
    const struct bounds *b = m->bounds;
    if (is_weight(b, at))
        return elem == ELEM_F32 ? loop_constant_error(elem, elem_to_f64(elem, at)) : 0;
    const struct bound_entry *e = find(b, (uintptr_t)code_real(m, (unsigned char *)(uintptr_t)at));
    if (!e->at)
        return b->blind ? (double)INFINITY : 0;
    if (e->kernel != b->kernel && b->of[e->kernel].kept)
        return 0;
    return isnan(e->error) ? (double)INFINITY : e->error;
}

void bounds_write(void *user, enum elem elem, void *at, double error)
{
    struct code_check *m = user;
    struct bounds *b = m->bounds;
    struct arena *arena = &m->run.c.ctx->session;
    const uintptr_t real = (uintptr_t)code_real(m, at);
    (void)elem;
    if (2 * b->n >= b->cap && b->cap < TABLE_MOST)
        grow(b, arena);
    struct bound_entry *e = find(b, real);
    if (!e->at && 4 * b->n >= 3 * b->cap) { /* no more room: not known */
        b->of[b->kernel].why = "too many elements were stored before";
        b->blind = true;
        return;
    }
    b->n += !e->at;
    *e = (struct bound_entry){real, error, b->kernel, b->launch};
    VEC_PUSH(arena, &b->written, real);
}

/* ---- launches ---------------------------------------------------------------------------------------------------- */

void bounds_indices(struct code_check *m, bool whole)
{
    struct bounds *b = m->bounds;
    for (uint32_t i = 0; i < b->written.n && !whole; i++)
        find(b, b->written.data[i])->error = NAN;
    b->written.n = 0;
}

bool bounds_begin(struct code_check *m, const char *symbol)
{
    struct bounds *b = m->bounds;
    const uint32_t kernel = (uint32_t)strtoul(symbol + 1, NULL, 10);
    if (*symbol != 'k' || kernel >= m->run.c.module->fused.kernels.n) {
        b->blind = true;
        return false;
    }
    b->kernel = kernel;
    b->launch = ++b->launches;
    if (b->of[kernel].partial) {
        b->of[kernel].why = "it is launched more than once, and takes long to interpret";
        b->blind |= !b->of[kernel].kept;
        return false;
    }
    return true;
}

static void keep_errors(struct code_check *m, value_id v)
{
    struct bounds *b = m->bounds;
    struct arena scratch;
    int64_t n;
    arena_init(&scratch, m->run.c.ctx);
    const void **at = capture_places(&m->run, &scratch, v, &n);
    double *error = at ? NEW_ARRAY(&m->run.c.ctx->session, double, (size_t)n + 1) : NULL;
    for (int64_t i = 0; at && i < n; i++) {
        const struct bound_entry *e = find(b, (uintptr_t)at[i]);
        const bool now = e->at && e->kernel == b->kernel && (e->launch == b->launch || !b->of[b->kernel].partial);
        error[i] = now ? e->error : (double)NAN;
    }
    b->error[v.i] = error;
    arena_release(&scratch);
}

void bounds_end(struct code_check *m, bool all)
{
    struct bounds *b = m->bounds;
    struct kernel_bounds *of = &b->of[b->kernel];
    const struct kernel *k = &m->run.c.module->fused.kernels.data[b->kernel];
    of->partial |= !all;
    b->blind |= !all && !of->kept;
    for (uint32_t i = 0; i < k->outs.n; i++)
        if (m->run.got[k->outs.data[i].i] && m->run.maker[k->outs.data[i].i] == b->kernel)
            keep_errors(m, k->outs.data[i]);
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

struct bounds *bounds_of(const struct capture *run, const char *library)
{
    struct context *ctx = run->c.ctx;
    const struct module *module = run->c.module;
    struct bounds *b = NEW(&ctx->session, struct bounds);
    struct code_check *m = NEW(&ctx->session, struct code_check);
    m->run = *run;
    m->bounds = b;
    grow(b, &ctx->session);
    b->of = NEW_ARRAY(&ctx->session, struct kernel_bounds, module->fused.kernels.n + 1);
    b->error = NEW_ARRAY(&ctx->session, double *, run->c.graph->values.n + 1);
    for (uint32_t i = 0; i < module->fused.kernels.n; i++) {
        const struct kernel *k = &module->fused.kernels.data[i];
        b->of[i].kept = k->outs.n > 0;
        for (uint32_t j = 0; j < k->outs.n; j++)
            b->of[i].kept &= run->got[k->outs.data[j].i] && run->maker[k->outs.data[j].i] == i;
    }
    const char *why = code_program(m, library);
    if (why)
        return error_usage(ctx, "--bounds: %s", why), NULL;
    return ctx->fail == FAIL_NONE ? b : NULL;
}
