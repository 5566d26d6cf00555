/* The pipeline: the stages of passes/module/passes.def as a table, and the driver that runs, verifies, times and prints
 * them.
 *
 * A stage reads and writes fields of struct compilation, a pass those of its module; both record diagnostics. Only the
 * driver prints.
 */
#include "cli/library/compile/backend.h"
#include "cli/library/options/nearest.h"

/* ---- the table --------------------------------------------------------------------------------------------- */

#define STAGE(name, function, needs, makes, print, verify, always)
#define PASS(name, function, needs, makes, when)        \
    static bool when_##function(const struct module *m) \
    {                                                   \
        (void)m;                                        \
        return (when);                                  \
    }
#include "passes/module/passes.def"
#undef STAGE
#undef PASS

const struct stage stage_table[] = {
#define STAGE(name, function, needs, makes, print, verify, always) \
    {name, needs, makes, function, NULL, NULL, print, verify, always},
#define PASS(name, function, needs, makes, when) \
    {name, needs, makes, NULL, function, when_##function, print_module, verify_module, false},
#include "passes/module/passes.def"
#undef STAGE
#undef PASS
};
const uint32_t stage_count = COUNT_OF(stage_table);

const struct stage *stage_find(const char *name)
{
    return ROW_NAMED(stage_table, stage_count, name);
}

static bool stage_known(struct context *ctx, const char *name)
{
    if (stage_find(name))
        return true;
    struct nearest near = nearest_to(name);
    for (uint32_t i = 0; i < stage_count; i++)
        nearest_try(&near, stage_table[i].name);
    return error_usage(ctx,
                       near.found ? "there is no stage '%s'; did you mean '%s'?"
                                  : "there is no stage '%s' (--list-stages names them)",
                       name, near.found);
}

bool stages_known(struct context *ctx, const struct options *o)
{
    for (uint32_t i = 0; i < o->print_after.items.n; i++)
        if (!stage_known(ctx, o->print_after.items.data[i]))
            return false;
    if (o->stop_after && strcmp(o->stop_after, stage_table[stage_count - 1].name) == 0)
        return error_usage(ctx,
                           "'stop-after': %s is the last stage, and what it makes is the output; leave the option out",
                           o->stop_after);
    return !o->stop_after || stage_known(ctx, o->stop_after);
}

/* ---- one stage ----------------------------------------------------------------------------------------------- */

static void report_text(const struct compilation *c, int kind, const struct strbuf *text)
{
    if (text->n)
        c->report.put(c->report.user, kind, text->data, text->n);
}

static void report_times(const struct compilation *c, const struct stage_cost *cost)
{
    double total = 0;
    struct strbuf text = strbuf_of(&c->ctx->session);
    strbuf_printf(&text, "%-20s %10s %12s\n", "stage", "ms", "heap KiB");
    for (uint32_t i = 0; i < stage_count; i++) {
        if (!cost[i].ran)
            continue;
        strbuf_printf(&text, "%-20s %10.2f %12lld\n", stage_table[i].name, cost[i].ms,
                      (long long)(cost[i].heap / 1024));
        total += cost[i].ms;
    }
    strbuf_printf(&text, "%-20s %10.2f %12lld\n", "total", total, (long long)(c->ctx->heap_used / 1024));
    report_text(c, TEXT_LOG, &text);
}

static void report_line(const struct compilation *c, const char *line)
{
    c->report.put(c->report.user, TEXT_LOG, line, strlen(line));
}

void report_step(const struct compilation *c, const char *stage, uint32_t done, uint32_t of)
{
    if (c->report.step && !c->options->quiet && !c->options->verbose)
        c->report.step(c->report.user, stage, done, of);
}

static void report_start(const struct compilation *c, const struct stage *stage)
{
    report_step(c, stage->name, 0, 0);
    if (c->options->verbose)
        report_line(c, arena_printf(&c->ctx->session, "mcc: %s\n", stage->name));
}

static void report_skipped(const struct compilation *c, const struct stage *stage)
{
    const struct options *o = c->options;
    if (o->print_after_all || o->print_changed || text_list_has(&o->print_after, stage->name))
        report_line(c, arena_printf(&c->ctx->session, "// after %s: left out\n", stage->name));
}

/* What -print-after, -print-changed and -save-temps show of a stage's program. */
static bool report_program(struct compilation *c, const struct stage *stage)
{
    const struct options *o = c->options;
    bool all = o->print_after_all || text_list_has(&o->print_after, stage->name);
    if (!all && !o->print_changed && !o->save_temps)
        return true;
    struct strbuf text = strbuf_of(&c->ctx->session), head = strbuf_of(&c->ctx->session);
    if (stage->print)
        stage->print(c, &text);
    uint64_t hash = hash_bytes(text.data ? text.data : "", text.n);
    bool changed = stage->print && hash != c->printed;
    strbuf_printf(&head, "// after %s%s\n", stage->name, all || changed ? "" : ": no change");
    if (all || o->print_changed)
        report_text(c, TEXT_LOG, &head);
    if (all || (o->print_changed && changed))
        report_text(c, TEXT_LOG, &text);
    c->printed = stage->print ? hash : c->printed;
    if (!o->save_temps || !stage->print || !c->output)
        return true;
    const char *suffix = arena_printf(&c->ctx->session, "%02d-%s.txt", (int)(stage - stage_table) + 1, stage->name);
    return side_write(c, output_beside(c->ctx, c->output, suffix), text.data ? text.data : "", text.n);
}

/* Is the stage in its place? */
static bool facts_hold(struct compilation *c, const struct stage *stage)
{
    uint32_t missing = stage->needs & ~c->module->facts;
    bool late = stage->pass && stage->needs < HAS_KERNELS && (c->module->facts & HAS_KERNELS);
    if (!missing && !late)
        return true;
    struct strbuf text = strbuf_of(&c->ctx->session);
    facts_print(missing ? missing : HAS_KERNELS, &text);
    return error_internal(c->ctx, (src_id){0},
                          missing ? "the stage '%s' comes before what it needs: %s" : "the stage '%s' comes after: %s",
                          stage->name, text.data);
}

bool stage_run(struct compilation *c, const struct stage *stage, struct stage_cost *cost)
{
    const struct options *o = c->options;
    struct module *m = c->module;
    if (stage->when && !stage->when(m)) {
        report_skipped(c, stage);
        return true;
    }
    if (!facts_hold(c, stage) || time_is_over(c->ctx))
        return false;
    report_start(c, stage);
    *cost = (struct stage_cost){.start = time_now() * 1e3, .heap = -c->ctx->heap_used};
    bool ok = (stage->pass ? stage->pass(m) : stage->run(c)) && c->ctx->fail == FAIL_NONE;
    cost->ms = time_now() * 1e3 - cost->start;
    cost->heap += c->ctx->heap_used;
    cost->ran = true;
    if (!ok)
        return false;
    m->facts |= stage->makes;
    if (m->report) {
        report_text(c, TEXT_DATA, m->report);
        m->report->n = 0;
    }
    return report_program(c, stage) && (!stage->verify || !(o->verify_each || stage->always) || stage->verify(c));
}

static bool write_stopped(struct compilation *c, const struct stage *stage)
{
    struct strbuf text = strbuf_of(&c->ctx->session);
    if (stage->print)
        stage->print(c, &text);
    if (c->output)
        return output_write(c->ctx, c->output, text.data ? text.data : "", text.n);
    report_text(c, TEXT_DATA, &text);
    return true;
}

/* ---- all of them --------------------------------------------------------------------------------------------- */

bool stages_run(struct compilation *c, const char *first)
{
    struct stage_cost *cost = c->costs = NEW_ARRAY(&c->ctx->session, struct stage_cost, stage_count);
    const struct options *o = c->options;
    const struct stage *stage = first ? stage_find(first) : stage_table;
    bool ok = true;
    for (; ok && stage < stage_table + stage_count; stage++) {
        ok = stage_run(c, stage, &cost[stage - stage_table]);
        if (ok && o->stop_after && strcmp(o->stop_after, stage->name) == 0) {
            ok = write_stopped(c, stage);
            break;
        }
        if (c->last && strcmp(c->last, stage->name) == 0)
            break;
    }
    if (o->time_passes)
        report_times(c, cost);
    return ok && (!o->time_trace || !c->output || trace_write(c));
}
