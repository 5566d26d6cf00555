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
#include "passes/emit/producer.h"
#include "passes/emit/templates.h"

static template_fn *const templates[] = {
#define KIND(id, name, what) [SCHEDULE_##id] = emit_##name,
#include "passes/schedule/fields.def"
};

static bool emit_kernel(const struct site *site, const struct schedule *s, const struct schedule_facts *facts,
                        const char *name)
{
    struct em em;
    site->k->flops = facts->flops;
    site->k->arithmetic = facts->arithmetic;
    site->k->ns = s->ns;
    em_begin(&em, site, s, facts, name);
    em_producers_begin(&em);
    return templates[s->kind](&em) && em_finish(&em);
}

/* The kernel's second form, from the module in which the size lies in the range. */
static bool emit_version(const struct site *site, const struct size_range *range, const struct kernel_version *before,
                         const struct schedule *s, const struct schedule_facts *facts, const char *name)
{
    struct site within = version_site(site, range);
    within.k = arena_copy(site->m->arena, site->k, sizeof *site->k);
    within.k->args.n = 0;
    if (before->of && before->as.i == within.m->within.i)
        within.k->args = before->of->args;
    site->k->version = (struct kernel_version){within.k, *range, within.m->within};
    return emit_kernel(&within, s, facts, name);
}

bool emit_kernels(struct module *m, uint32_t variant, const char *suffix)
{
    const struct cpu_schedules *v = &m->plan.schedules.data[variant];
    struct arena scratch; /* of one kernel */
    bool ok = true;
    arena_init(&scratch, m->ctx);
    for (uint32_t i = 0; ok && i < m->fused.kernels.n; i++) {
        const struct site site = {m, &m->fused.kernels.data[i], m->g, m->ctx->exprs, &scratch, v->mach};
        const struct size_range range = version_range(site.x, &v->of[i].version);
        if (v->of[i].kind == SCHEDULE_NONE)
            continue;
        struct kernel_version before = {.of = NULL};
        if (m->asked.one_program)
            before = site.k->version;
        else
            site.k->args.n = 0;
        site.k->version = (struct kernel_version){.of = NULL};
        ok = (!range.size.i || emit_version(&site, &range, &before, &v->version[i], &v->version_facts[i],
                                            arena_printf(&scratch, "k%uversion%s", i, suffix))) &&
             emit_kernel(&site, &v->of[i], &v->facts[i], arena_printf(&scratch, "k%u%s", i, suffix));
        arena_release(&scratch);
        if (ok && m->asked.emitted)
            m->asked.emitted(m->asked.user, site.k);
    }
    return ok && m->ctx->fail == FAIL_NONE;
}
