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

/* ---- loops over a list of extents ------------------------------------------------------------------------------- */

void em_parallel_open(struct em *em, struct em_for *p, struct loop *loops, uint32_t n)
{
    expr_id extents[RANK_MAX + 4], vars[RANK_MAX + 4], count = ex_const(em->x, 1), one = ex_const(em->x, 1);
    for (uint32_t i = 0; i < n; i++) {
        count = ex_mul(em->x, count, loops[i].extent);
        extents[i] = ex_lo(em->x, loops[i].extent) >= 1 ? loops[i].extent : ex_max(em->x, loops[i].extent, one);
    }
    expr_id flat = em_parallel_begin(em, p, count);
    if (ex_is(em->x, count, 1))
        flat = ex_const(em->x, 0);
    point_split(em->x, flat, extents, (int32_t)n, vars);
    for (uint32_t i = 0; i < n; i++) {
        int64_t hi = ex_hi(em->x, loops[i].extent);
        loops[i].var = ex_is_const(em->x, vars[i], &(int64_t){0}) ? vars[i]
                                                                  : em_pin(em, vars[i], 0,
                                                                           hi == INT64_MAX ? hi
                                                                           : hi > 0        ? hi - 1
                                                                                           : 0);
    }
}

expr_id em_vector_lanes(struct em *em, expr_id n, uint32_t lanes, expr_id vector)
{
    expr_id base = ex_mulc(em->x, vector, lanes);
    bool whole = ex_is(em->x, ex_mod(em->x, n, ex_const(em->x, lanes)), 0);
    lreg mask = whole ? (lreg){0} : em_tail_mask(em, ex_sub(em->x, n, base), lanes);
    return ex_add(em->x, base, em_lane(em, lanes, mask));
}

void em_vectors(struct em *em, expr_id first, expr_id n, uint32_t lanes, vector_fn *fn, void *user)
{
    expr_id w = ex_const(em->x, lanes), full = ex_div(em->x, n, w), rest = ex_mod(em->x, n, w),
            zero = ex_const(em->x, 0);
    int64_t c;
    if (!ex_is_const(em->x, full, &c) || c > 0) {
        struct em_for l;
        expr_id t = em_for_begin(em, &l, zero, full, 1, NULL, 0);
        fn(em, user, ex_add(em->x, first, ex_add(em->x, ex_mulc(em->x, t, lanes), em_lane(em, lanes, (lreg){0}))));
        em_for_end(em, &l, NULL, NULL);
    }
    if (ex_is(em->x, rest, 0))
        return;
    struct em_if iff;   /* nothing that the tail loads may move above its test */
    expr_id base = ex_add(em->x, first, ex_mulc(em->x, full, lanes));
    bool guard = !ex_is_const(em->x, rest, &c);
    if (guard)
        em_if_begin(em, &iff, em_cond(em, ex_lt(em->x, zero, rest)));
    fn(em, user, em_tail(em, guard ? em_pin(em, base, 0, INT64_MAX) : base, rest, lanes));
    if (guard)
        em_if_end(em, &iff);
}

/* ---- the pass ---------------------------------------------------------------------------------------------------- */

static template_fn *const templates[] = {
    [SCHEDULE_MAP] = emit_map,           [SCHEDULE_TILED] = emit_tiled,
    [SCHEDULE_WINOGRAD] = emit_winograd, [SCHEDULE_ATTENTION] = emit_attention,
    [SCHEDULE_SCAN] = emit_scan,         [SCHEDULE_SCATTER] = emit_scatter,
    [SCHEDULE_HALO] = emit_halo,
};

bool emit_kernels(struct module *m, uint32_t variant, const char *suffix)
{
    const struct cpu_schedules *v = &m->schedules.data[variant];
    struct arena scratch; /* of one kernel */
    bool ok = true;
    arena_init(&scratch, m->ctx);
    for (uint32_t i = 0; ok && i < m->kernels.n; i++) {
        const struct schedule *s = &v->of[i];
        const struct site site = {m, &m->kernels.data[i], m->g, m->ctx->exprs, &scratch, v->mach};
        struct em em;
        if (s->kind == SCHEDULE_NONE)
            continue;
        site.k->flops = s->flops;
        site.k->ns = s->ns;
        ok = em_begin(&em, &site, s, arena_printf(&scratch, "k%u%s", i, suffix)) && templates[s->kind](&em) &&
             em_finish(&em);
        arena_release(&scratch);
        if (ok && m->emitted)
            m->emitted(m->user, site.k);
    }
    return ok && m->ctx->fail == FAIL_NONE;
}
