/* schedule: a record for every kernel on one CPU, and one more for kernels with a version. */
#include "passes/schedule/fields.h"

/* The version's record: the cost model's where the size lies in the range, then what the user overrides. */
static bool version_record(const struct site *site, uint32_t kernel, const char *cpu, const struct schedule *of,
                           struct schedule *made, struct schedule_facts *facts)
{
    const struct size_range range = version_range(site->x, &of->version);
    if (!range.size.i)
        return schedule_no_version(site, kernel, cpu);
    struct site within = version_site(site, &range);
    made->kind = of->kind;
    if (of->kind == SCHEDULE_WINOGRAD)
        made->winograd.m = of->winograd.m;
    if (!schedule_choose(&within, made) || !schedule_override(&within, kernel, true, cpu, made))
        return false;
    *facts = schedule_facts(&within, made);
    return true;
}

/* Strict results: the records of a kernel on this CPU and on the artifact's first one give the same bits. */
static bool all_agree(const struct module *m, const struct schedule *of, const struct schedule *version)
{
    const struct cpu_schedules *first = m->plan.schedules.data;
    for (uint32_t i = 0; i < m->fused.kernels.n; i++) {
        const char *name;
        if (!fields_agree(&of[i], &first->of[i], &name) ||
            (of[i].version.size && first->of[i].version.size && !fields_agree(&version[i], &first->version[i], &name)))
            return error_internal(m->ctx, (src_id){kernel_lead(m, &m->fused.kernels.data[i])},
                                  "strict results differ between CPUs: %s", name);
    }
    return true;
}

bool schedule(struct module *m, const char *cpu, const struct machine *mach)
{
    struct arena scratch; /* of one kernel */
    bool ok = true;
    uint32_t n = m->fused.kernels.n;
    struct schedule *of = NEW_ARRAY(m->arena, struct schedule, n + 1),
                    *version = NEW_ARRAY(m->arena, struct schedule, n + 1);
    struct schedule_facts *facts = NEW_ARRAY(m->arena, struct schedule_facts, n + 1),
                          *version_facts = NEW_ARRAY(m->arena, struct schedule_facts, n + 1);
    arena_init(&scratch, m->ctx);
    for (int turn = 0; turn < 2 && ok; turn++) { /* the cost model's records, then what is said of them */
        for (uint32_t i = 0; ok && i < n; i++) {
            struct site site = {m, &m->fused.kernels.data[i], m->g, m->ctx->exprs, &scratch, mach};
            if (!turn)
                of[i].kind = schedule_kind_of(site.k);
            ok = !turn ? schedule_choose(&site, &of[i])
                       : schedule_chosen(&site, &of[i]) && schedule_override(&site, i, false, cpu, &of[i]) &&
                             version_record(&site, i, cpu, &of[i], &version[i], &version_facts[i]);
            if (turn)
                facts[i] = ok ? schedule_facts(&site, &of[i]) : (struct schedule_facts){.ns = 0};
            arena_release(&scratch);
        }
        ok = ok && (turn || versions_choose(m, mach, of));
    }
    VEC_PUSH(m->arena, &m->plan.schedules, ((struct cpu_schedules){cpu, mach, of, facts, version, version_facts}));
    return ok && (!m->asked.strict || all_agree(m, of, version)) && m->ctx->fail == FAIL_NONE;
}
