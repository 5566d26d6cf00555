/* schedule: a record for every kernel on one CPU. */
#include "passes/schedule/schedule.h"

bool schedule(struct module *m, const char *cpu, const struct machine *mach)
{
    struct arena scratch;    /* of one kernel */
    bool ok = true;
    struct schedule *of = NEW_ARRAY(m->arena, struct schedule, m->fused.kernels.n + 1);
    struct schedule_facts *facts = NEW_ARRAY(m->arena, struct schedule_facts, m->fused.kernels.n + 1);
    arena_init(&scratch, m->ctx);
    for (uint32_t i = 0; ok && i < m->fused.kernels.n; i++) {
        struct site site = {m, &m->fused.kernels.data[i], m->g, m->ctx->exprs, &scratch, mach};
        of[i].kind = schedule_kind_of(site.k);
        ok = schedule_choose(&site, &of[i]) && schedule_chosen(&site, &of[i]) && schedule_told(&site, i, cpu, &of[i]);
        facts[i] = ok ? schedule_facts(&site, &of[i]) : (struct schedule_facts){.ns = 0};
        arena_release(&scratch);
    }
    VEC_PUSH(m->arena, &m->plan.schedules, ((struct cpu_schedules){cpu, mach, of, facts}));
    return ok && m->ctx->fail == FAIL_NONE;
}
