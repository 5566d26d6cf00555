/* emit_kernels: every kernel becomes a loop-IR function, from a few templates, as its record says (passes/schedule).
 *
 * map      loops over the stored value's points, lanes along the dim where memory is contiguous; dims that inner
 *          reductions depend on are outermost (rows)
 * tiled    an anchor (conv, dot, window, reduce) at TA x TB x NR points at once (emit/reduce.c): with accumulators in
 *          registers this is the micro-kernel; the stored value is evaluated at the same points (epilogue)
 * scan, scatter   serial along one dim
 *
 * Parallel indices are flattened outer loops; their number depends on the shape only.
 */
#include "passes/emit/templates.h"

static template_fn *const templates[] = {
    [SCHEDULE_MAP] = emit_map,           [SCHEDULE_TILED] = emit_tiled,
    [SCHEDULE_WINOGRAD] = emit_winograd, [SCHEDULE_ATTENTION] = emit_attention,
    [SCHEDULE_SCAN] = emit_scan,         [SCHEDULE_SCATTER] = emit_scatter,
    [SCHEDULE_HALO] = emit_halo,
};

bool emit_kernels(struct module *m, uint32_t variant, const char *suffix)
{
    const struct cpu_schedules *v = &m->plan.schedules.data[variant];
    struct arena scratch; /* of one kernel */
    bool ok = true;
    arena_init(&scratch, m->ctx);
    for (uint32_t i = 0; ok && i < m->fused.kernels.n; i++) {
        const struct schedule *s = &v->of[i];
        const struct site site = {m, &m->fused.kernels.data[i], m->g, m->ctx->exprs, &scratch, v->mach};
        struct em em;
        if (s->kind == SCHEDULE_NONE)
            continue;
        site.k->flops = v->facts[i].flops;
        site.k->ns = s->ns;
        ok = em_begin(&em, &site, s, &v->facts[i], arena_printf(&scratch, "k%u%s", i, suffix)) &&
             templates[s->kind](&em) && em_finish(&em);
        arena_release(&scratch);
        if (ok && m->asked.emitted)
            m->asked.emitted(m->asked.user, site.k);
    }
    return ok && m->ctx->fail == FAIL_NONE;
}
