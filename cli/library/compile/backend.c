/* Stages after legalize: kernels, layouts, memory, loops, objects (the artifact: link.c). */
#include "cli/library/compile/backend.h"

#include "cli/library/compile/header.h"
#include "cli/library/options/name_value.h"
#include "cli/library/options/cpu.h"
#include "cli/library/options/targets.h"
#include "ir/base/file.h"
#include "passes/schedule/schedule.h"

#include <sys/stat.h>

/* ---- kernels, layouts, memory ----------------------------------------------------------------------------------- */

/* The words of options and what they mean to passes; not listed: 0. */
static const enum layout_choice layouts[n_option_layout] = {
    [OPT_LAYOUT_NCHW] = LAYOUT_NCHW, [OPT_LAYOUT_NHWC] = LAYOUT_NHWC, [OPT_LAYOUT_NC16C] = LAYOUT_NC16C};
static const uint32_t winograd_most[n_option_winograd] = {
    [OPT_WINOGRAD_AUTO] = 6, [OPT_WINOGRAD_2] = 2, [OPT_WINOGRAD_4] = 4, [OPT_WINOGRAD_6] = 6};
/* exact and int8 are for MatMulNBits alone (run_legalize): f32 here. */
static const enum precision precisions[n_option_precision] = {[OPT_PRECISION_BF16] = PRECISION_BF16,
                                                              [OPT_PRECISION_F16] = PRECISION_F16,
                                                              [OPT_PRECISION_F16_SUMS] = PRECISION_F16_SUMS};
static const enum weights_type weights_types[n_option_weights_type] = {
#define WEIGHTS(id, ...) [OPT_WEIGHTS_TYPE_##id] = WEIGHTS_##id,
#include "passes/module/weights.def"
};

/* mcc bench counts operations for the sizes that it measures. */
static bool sizes_given(struct compilation *c)
{
    struct module *m = c->module;
    const struct text_list *dims = &c->options->dims;
    for (uint32_t i = 0; i < dims->items.n; i++) {
        const char *text = dims->items.data[i], *sign = strchr(text, '=');
        struct extent_given given = {.symbol = arena_strndup(m->arena, text, sign ? (size_t)(sign - text) : 0)};
        if (!dim_find(c->ctx, dims, given.symbol, &given.value))
            return false;
        VEC_PUSH(m->arena, &m->asked.counted_at, given);
    }
    return true;
}

/* For all products, or for a node? */
static bool asks_for_half_sums(const struct module *m)
{
    bool asks = m->asked.precision == PRECISION_F16_SUMS;
    for (uint32_t i = 0; i < m->asked.choices.n; i++)
        asks |= m->asked.choices.data[i].key == CHOOSE_PRECISION && m->asked.choices.data[i].n[0] == PRECISION_F16_SUMS;
    return asks;
}

/* A product by the range that its rows have together? */
static bool asks_for_dynamic(const struct module *m)
{
    bool asks = false;
    for (uint32_t i = 0; i < m->asked.choices.n; i++) {
        const struct choice *c = &m->asked.choices.data[i];
        asks |= c->key == CHOOSE_PRECISION && c->n[0] == PRECISION_INT8 && !(c->range[0] < c->range[1]);
    }
    return asks;
}

bool module_begin(struct compilation *c)
{
    struct module *m = NEW(&c->ctx->session, struct module);
    const struct options *o = c->options;
    m->ctx = c->ctx;
    m->g = c->graph;
    m->arena = &c->ctx->session;
    m->facts = !c->graph ? 0 : c->graph->legal ? IS_LEGAL : IS_IMPORTED;
    m->asked.opt_level = (int)o->level;
    m->asked.layout = layouts[o->layout];
    m->asked.attention = o->level >= 2 && o->attention == OPT_ATTENTION_AUTO;
    m->asked.sparse = o->level >= 2 && o->sparse == OPT_SPARSE_AUTO;
    m->asked.winograd = o->level < 2 ? 0 : winograd_most[o->winograd];
    if (o->precision == OPT_PRECISION_AUTO)
        return error_usage(
            c->ctx,
            "'precision': only the mcc command supports auto, and only for networks as their files have them; libmcc and mcc "
            "quantize do not");
    if (o->error || o->metric)
        return error_usage(c->ctx,
                           "'%s': only the mcc command searches; give libmcc the configuration of --save-choices",
                           o->error ? "error" : "metric");
    m->asked.precision = precisions[o->precision];
    m->asked.weights_type = weights_types[o->weights_type];
    m->asked.broken = o->break_kernel;
    m->asked.probe = c->probe;
    if (o->stats) {
        m->report = NEW(&c->ctx->session, struct strbuf);
        strbuf_init(m->report, &c->ctx->session);
    }
    c->module = m;
    if (!choices_read(c) || !sizes_given(c))
        return false;
    if (o->strict && asks_for_half_sums(m))
        return error_usage(c->ctx, "'strict': only some CPUs sum in f16, so results with f16-sums differ; use f16");
    if (o->strict && asks_for_dynamic(m))
        return error_usage(
            c->ctx, "'strict': precision=int8 takes the range of all rows of a run, which would not be what they "
                    "are alone; give a range, int8:LEAST,MOST");
    m->asked.strict = o->strict;
    m->asked.best = o->strict ? target_find(BEST_BY_DEFAULT) : targets_best(c->ctx, o);
    if (m->asked.layout == LAYOUT_AUTO && module_machine(m)->span) /* without padded channels */
        m->asked.layout = LAYOUT_NHWC;
    m->asked.matdot = targets_matdot(c->ctx, o);
    m->asked.pairs = is_narrowed(m) && !o->strict && targets_pair(c->ctx, o);
    return true;
}

void print_module(const struct compilation *c, struct strbuf *out)
{
    if (c->options->dot && !(c->module->facts & HAS_KERNELS))
        graph_dot(c->module->g, out);
    else
        module_print(c->module, out, c->options->print_full);
}

/* ---- loops ------------------------------------------------------------------------------------------------------- */

enum { DEBUG_GAP = 2 }; /* lines before each function's text in OUTPUT.mcir: none, then the CPU */

/* Where the option leaves it open: the output's folder without links, or as it was given if it has no such path. */
const char *debug_folder(const struct compilation *c)
{
    if (c->options->debug_folder)
        return c->options->debug_folder;
    const char *slash = strrchr(c->output, '/');
    const char *folder = slash ? arena_strndup(&c->ctx->session, c->output, (size_t)(slash - c->output + 1)) : ".";
    char *real = realpath(folder, NULL);
    if (real)
        folder = arena_strdup(&c->ctx->session, real);
    free(real);
    return folder;
}

static void unit_add(struct compilation *c, const struct target *t, const char *symbol, const char *text, src_id src)
{
    struct codegen_unit u = {.target = t, .symbol = symbol, .text = text};
    if (c->options->debug) {
        u.origin = source_get(c->ctx, src)->origin;
        u.line = c->debug_lines + DEBUG_GAP + 1;
        c->debug_lines += DEBUG_GAP;
        for (const char *p = text; (p = strchr(p, '\n')); p++)
            c->debug_lines++;
    }
    VEC_PUSH(&c->ctx->session, &c->units, u);
}

static void scratch_need(struct compilation *c, int64_t bytes)
{
    if (bytes > c->scratch)
        c->scratch = bytes;
}

static const char *print_function(struct compilation *c, const struct lfunc *f)
{
    struct strbuf text = strbuf_of(&c->ctx->session);
    lf_print(f, &text);
    scratch_need(c, f->local_bytes);
    return text.data;
}

/* Of a static network: kernels and versions of them with one body are one function, whose name launches take. */
static void share_kernels(struct module *m)
{
    const struct lfunc *f = m->plan.program;
    VEC(struct kernel *) all = {0};
    for (uint32_t i = 0; i < m->fused.kernels.n; i++)
        for (struct kernel *k = &m->fused.kernels.data[i]; k; k = k->version.of)
            VEC_PUSH(m->arena, &all, k);
    const struct kernel **first = NEW_ARRAY(m->arena, const struct kernel *, all.n + 1);
    for (uint32_t i = 0; i < all.n; i++) {
        const char *body = all.data[i]->text ? strchr(all.data[i]->text, '\n') : NULL;
        for (uint32_t j = 0; body && j < i && !first[i]; j++)
            if (all.data[j]->text && strcmp(strchr(all.data[j]->text, '\n'), body) == 0)
                first[i] = all.data[j];
    }
    for (uint32_t b = 1; b < f->blocks.n; b++)
        for (uint32_t s = 0; s < f->blocks.data[b].stmts.n; s++)
            for (uint32_t i = 0; i < all.n; i++) {
                struct lstmt *l = &f->blocks.data[b].stmts.data[s];
                if (l->op == L_LAUNCH && first[i] && strcmp(l->name, all.data[i]->name) == 0)
                    l->name = first[i]->name;
            }
    for (uint32_t i = 0; i < all.n; i++)
        if (first[i])
            all.data[i]->text = NULL;
}

/* Unless it is code of the program, or inside the kernel of a loop. */
static void kernel_add(struct compilation *c, const struct variant *v, struct kernel *k, bool version)
{
    int64_t grain = c->module->asked.grain_ns;
    struct art_kernel row = {.name = k->name,
                             .flops = k->flops,
                             .arithmetic = k->arithmetic,
                             .bytes = k->bytes,
                             .ns = grain ? grain : k->ns,
                             .node = kernel_lead(c->module, k),
                             .version = version};
    if (!k->text)
        return;
    row.unit = c->units.n;
    unit_add(c, &v->target, k->name, k->text, (src_id){row.node});
    scratch_need(c, k->local_bytes);
    c->units.data[c->units.n - 1].by_row = c->base != NULL;
    k->row = c->kernel_rows.n;
    VEC_PUSH(&c->ctx->session, &c->kernel_rows, row);
}

static void kernels_add(struct compilation *c, const struct variant *v, struct kernel *kernels)
{
    for (uint32_t i = 0; i < c->module->fused.kernels.n; i++)
        for (struct kernel *k = &kernels[i]; k; k = k->version.of)
            kernel_add(c, v, k, k != &kernels[i]);
    if (v == c->targets.data[0])
        c->first_rows = c->kernel_rows.n;
}

static void variant_add(struct compilation *c, const struct variant *v)
{
    VEC_PUSH(&c->ctx->session, &c->variants,
             ((struct art_variant){.target = &v->target, .name = v->name, .features = v->needs}));
}

static bool emit_variant(struct compilation *c, const struct variant *v, const char *suffix)
{
    struct module *m = c->module;
    if (!emit_kernels(m, c->variants.n, suffix))
        return false;
    struct kernel *level = m->fused.kernels.data;
    if (!c->base && !emit_program(m, &level, &suffix, 1))
        return false;
    const bool last = v == c->targets.data[c->targets.n - 1]; /* the next level overwrites these */
    VEC_PUSH(m->arena, &c->levels, last ? level : arena_copy(m->arena, level, m->fused.kernels.n * sizeof *level));
    if (c->base) { /* the program follows */
        variant_add(c, v);
        return true;
    }
    if (targets_static(c->options)) {
        if (!static_check(c))
            return false;
        share_kernels(m);
    }
    kernels_add(c, v, level);
    variant_add(c, v);
    c->variants.data[c->variants.n - 1].program = m->plan.program->name;
    unit_add(c, &v->target, m->plan.program->name, print_function(c, m->plan.program), (src_id){0});
    return true;
}

/* The CPU level that every other one includes: one program compiled for it serves all. NULL: there is none. */
static const struct variant *program_base(const struct compilation *c)
{
    const struct variant *base = c->targets.data[c->targets.n - 1];
    bool serves = c->targets.n > 1 && c->targets.n <= PROGRAM_LEVELS;
    for (uint32_t i = 0; i < c->targets.n; i++)
        serves &= (base->needs & ~c->targets.data[i]->needs) == 0;
    return serves ? base : NULL;
}

/* One program for all levels, and what it launches at each. */
static bool emit_base(struct compilation *c)
{
    struct module *m = c->module;
    if (!emit_program(m, c->levels.data, c->suffixes.data, c->levels.n))
        return false;
    for (uint32_t v = 0; v < c->variants.n; v++)
        kernels_add(c, c->targets.data[v], c->levels.data[v]);
    unit_add(c, &c->base->target, m->plan.program->name, print_function(c, m->plan.program), (src_id){0});
    c->n_rows = m->plan.rows.n;
    for (uint32_t v = 0; v < c->variants.n; v++) {
        uint32_t *rows = NEW_ARRAY(&c->ctx->session, uint32_t, m->plan.rows.n + 1);
        for (uint32_t i = 0; i < m->plan.rows.n; i++) {
            const struct kernel *k = m->plan.rows.data[i].of[v];
            rows[i] = k && k->text ? k->row : ART_NO_KERNEL; /* what only a loop's kernel launched is part of that */
        }
        c->variants.data[v].program = m->plan.program->name;
        c->variants.data[v].rows = rows;
    }
    return true;
}

static struct codegen_options backend_options(const struct compilation *c);

struct codegen *codegen_of(struct compilation *c)
{
    if (!c->codegen) {
        const struct codegen_options o = backend_options(c);
        c->codegen = codegen_begin(c->ctx, &c->ctx->session, &o);
    }
    return c->codegen;
}

/* Gives the workers what has been scheduled since the last time. */
static void codegen_give(struct compilation *c)
{
    codegen_add(codegen_of(c), c->units.data + c->n_given, c->units.n - c->n_given);
    c->n_given = c->units.n;
}

/* Is code generation certain to follow? Verification comes before it. */
static bool goes_on(const struct compilation *c)
{
    return c->output && !c->in_field && !c->options->mutate && !c->options->stop_after && !c->options->verify_each &&
           c->options->emit != OPT_EMIT_C;
}

/* Workers generate the code of one kernel while the next are emitted. What runs in a loop may become part of a larger
 * kernel, so it waits for the program. */
static void look_after_workers(void *user, const struct kernel *k)
{
    struct compilation *c = user;
    report_step(c, "emit", ++c->n_emitted, c->module->fused.kernels.n * c->targets.n);
    if (!goes_on(c))
        return;
    for (; k && k->region.i == 1; k = k->version.of)
        codegen_ahead(codegen_of(c), &(struct codegen_unit){.target = &c->targets.data[c->variants.n]->target,
                                                            .symbol = k->name,
                                                            .text = k->text,
                                                            .by_row = c->base != NULL});
    codegen_step(codegen_of(c));
}

enum { SCHEDULES_MOST = 64 << 20 };
static bool schedules_read(struct compilation *c)
{
    struct span text;
    const char *path = c->options->schedules;
    return !path || (text_file_read(c->ctx, path, "schedules", SCHEDULES_MOST, &text) &&
                     schedules_parse(c->module, path, text.data));
}

/* Records for CPUs that the artifact has no code for. */
static void overrides_check(const struct compilation *c)
{
    const struct module *m = c->module;
    const char *cpus = "";
    for (uint32_t i = 0; i < c->targets.n; i++)
        cpus = arena_printf(m->arena, "%s%s%s", cpus, i ? ", " : "", c->targets.data[i]->row->name);
    for (uint32_t t = 0; t < target_count; t++) {
        uint32_t n = 0, line = 0;
        for (uint32_t i = 0; i < m->asked.overrides.n; i++)
            if (strcmp(m->asked.overrides.data[i].cpu, target_rows[t].name) == 0 && !n++)
                line = m->asked.overrides.data[i].line;
        for (uint32_t i = 0; i < c->targets.n; i++)
            n = c->targets.data[i]->row == &target_rows[t] ? 0 : n;
        if (n)
            warn_at(c->ctx, (src_id){0}, "schedules",
                    "%s:%u: %s for %s not used: the code is for %s (-march and --variants name the CPUs)",
                    m->asked.overrides_path, line, n == 1 ? "the record" : arena_printf(m->arena, "the %u records", n),
                    n == 1 ? arena_printf(m->arena, "%s is", target_rows[t].name)
                           : arena_printf(m->arena, "%s are", target_rows[t].name),
                    cpus);
    }
}

/* The CPUs that code is for. */
static bool variants_init(struct compilation *c)
{
    for (uint32_t i = 0; i < target_count; i++) {
        const struct target_row *row = &target_rows[i];
        if (!target_wanted(c->options, c->module, row))
            continue;
        struct variant *v = NEW(&c->ctx->session, struct variant);
        if (!variant_init(v, c->ctx, row, targets_platform(c->options), c->options->mattr))
            return false;
        if (c->options->strict && !variant_is_strict(v))
            return error_usage(
                c->ctx,
                "'strict': code for '%s' has no fused multiply-add; leave --strict out, or do not take fma "
                "away",
                v->name);
        v->machine = c->machine ? *c->machine : row->machine;
        v->machine.fp16 = variant_has_fp16(v);
        v->machine.tiles = variant_has_tiles(v) && !targets_static(c->options); /* nobody asks for them */
        VEC_PUSH(&c->ctx->session, &c->targets, v);
    }
    return c->targets.n ||
           error_usage(c->ctx,
                       "no code variant fits the options --target, --variants and -march (-mcpu=help prints all)");
}

bool run_schedule(struct compilation *c)
{
    if (!schedules_read(c) || !variants_init(c))
        return false;
    if (recall_take(c))
        return true;
    if (goes_on(c))
        codegen_warm(codegen_of(c));
    for (uint32_t i = 0; i < c->targets.n; i++)
        if (!schedule(c->module, c->targets.data[i]->row->name, &c->targets.data[i]->machine))
            return false;
    choices_check(c);
    overrides_check(c);
    return true;
}

void print_schedules(const struct compilation *c, struct strbuf *out)
{
    schedules_print(c->module, out);
}

/* What the names of a variant's functions end in: "_v3"; of a static network's "_NAME", as two can be in one program */
static const char *kernel_suffix(struct compilation *c, const struct target_row *row)
{
    if (targets_static(c->options))
        return arena_printf(&c->ctx->session, "_%s", header_name(c));
    char *suffix = arena_printf(&c->ctx->session, "_%s", target_short_name(target_rows, target_count, row));
    for (char *p = strchr(suffix, '-'); p; p = strchr(p, '-'))
        *p = '_';
    return suffix;
}

/* Its loops; NULL after a diagnostic. */
static struct lfunc *unit_parse(struct compilation *c, const struct codegen_unit *u)
{
    const char *text = u->text;
    struct lfunc *f = lf_parse(c->ctx, &c->ctx->session, &text);
    return f || error_internal(c->ctx, (src_id){0}, "the loops of '%s' are not valid", u->symbol) ? f : NULL;
}

/* The names of the parts of its kernels end in what those of its kernels end in. */
static const char *unit_suffix(const struct compilation *c, const struct codegen_unit *u)
{
    for (uint32_t i = 0; i < c->targets.n && !targets_static(c->options); i++)
        if (u->target == &c->targets.data[i]->target)
            return c->suffixes.data[i];
    return NULL;
}

/* Parts that other kernels have, too, become functions of their own. */
static bool share_parts(struct compilation *c, const struct target *t, struct lfunc *f)
{
    for (uint32_t i = 0; i < f->parts.n; i++) {
        const struct lfunc *part = f->parts.data[i];
        const char *text = print_function(c, f->parts.data[i]);
        uint32_t k = 0;
        while (k < c->units.n && strcmp(c->units.data[k].symbol, part->name) != 0)
            k++;
        if (k == c->units.n)
            unit_add(c, t, part->name, text, (src_id){0});
        else if (strcmp(c->units.data[k].text, text) != 0)
            return error_internal(c->ctx, (src_id){0}, "two functions are called '%s'", part->name);
    }
    f->parts.n = 0;
    return true;
}

/* Kernels compute in the field, and so does the graph from here on: weights are packed, not computed with. */
static bool enter_field(struct compilation *c)
{
    int64_t site = c->options->mutate - 1;
    const uint32_t n = c->units.n;
    uint32_t marks = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct codegen_unit *u = &c->units.data[i];
        struct lowered_kernel row = {
            .kernel = u->symbol,
            .facts = {.marked = !c->options->in_field, .first = marks, .shares = unit_suffix(c, u)}};
        struct lfunc *f = unit_parse(c, u);
        if (!f)
            return false;
        bool mutated = site >= 0 && lf_mutate(f, &site), kernel = f->role == LROLE_KERNEL;
        site = mutated ? -1 : site;
        row.loops = mutated ? print_function(c, f) : u->text;
        bool lowers = kernel && lf_field(f, &row.facts);
        if (kernel && !lowers && c->options->in_field)
            return error_usage(c->ctx, "--in-field: '%s': %s", u->symbol, row.facts.why);
        marks += row.facts.blocks;
        if (kernel)
            VEC_PUSH(&c->ctx->session, &c->lowered, row);
        if (!lowers && !(mutated && !kernel))
            continue;
        if (!lf_finish(f) || (row.facts.shares && !share_parts(c, u->target, f)))
            return false;
        c->units.data[i].text = print_function(c, f);
    }
    c->marks = marks;
    graph_enter_field(c->graph, &c->constants);
    return site < 0 || error_usage(c->ctx, "--mutate: there are fewer statements");
}

/* One statement of all functions becomes another one. */
static bool mutate(struct compilation *c)
{
    int64_t site = c->options->mutate - 1;
    for (uint32_t i = 0; i < c->units.n && !c->mutated; i++) {
        struct codegen_unit *u = &c->units.data[i];
        struct lfunc *f = unit_parse(c, u);
        if (!f)
            return false;
        if (!lf_mutate(f, &site))
            continue;
        if (!lf_finish(f))
            return false;
        c->mutated = i + 1;
        c->meant = u->text;
        u->text = print_function(c, f);
    }
    return c->mutated || error_usage(c->ctx, "--mutate: there are fewer statements");
}

bool run_emit(struct compilation *c)
{
    if (c->recalled)
        return true;
    c->module->asked.emitted = look_after_workers;
    c->module->asked.user = c;
    c->base = program_base(c);
    c->module->asked.one_program = c->base != NULL;
    for (uint32_t i = 0; i < c->targets.n; i++) {
        const struct variant *v = c->targets.data[i];
        if (i && goes_on(c))
            codegen_give(c);
        const char *suffix = kernel_suffix(c, v->row);
        VEC_PUSH(&c->ctx->session, &c->suffixes, suffix);
        if (!emit_variant(c, v, suffix))
            return false;
    }
    if (c->base && !emit_base(c))
        return false;
    if (c->options->break_kernel && !c->module->asked.broke)
        return error_usage(c->ctx, "--break-kernel: no kernel with floats computes a node '%s'",
                           c->options->break_kernel);
    const struct target *last = &c->targets.data[c->targets.n - 1]->target;
    if (!targets_static(c->options))
        unit_add(c, last, "plan", print_function(c, c->module->plan.plan_function), (src_id){0});
    else if (!static_entry(c, last))
        return false;
    if (c->in_field ? !enter_field(c) : c->options->mutate && !mutate(c))
        return false;
    const struct options *o = c->options;
    return !(o->rpass || o->rpass_missed || o->rpass_analysis || o->save_record) || remarks_report(c);
}

void print_loops(const struct compilation *c, struct strbuf *out)
{
    for (uint32_t i = 0; i < c->units.n; i++)
        strbuf_printf(out, "# %s\n%s\n", c->units.data[i].target->cpu, c->units.data[i].text);
}

/* Every function's text parses back and obeys the rules of the loop IR. */
bool verify_loops(struct compilation *c)
{
    for (uint32_t i = 0; i < c->units.n; i++) {
        const char *text = c->units.data[i].text;
        struct lfunc *f = lf_parse(c->ctx, &c->ctx->session, &text);
        if (!f || !lf_finish(f))
            return error_internal(c->ctx, (src_id){0}, "the loops of '%s' are not valid", c->units.data[i].symbol);
    }
    return true;
}

/* ---- objects ----------------------------------------------------------------------------------------------------- */

/* What the workers make: text where it is asked for, or where nothing follows that could read objects. */
static enum emit_kind text_kind(const struct options *o)
{
    bool last = o->stop_after && strcmp(o->stop_after, "codegen") == 0;
    return o->emit_llvm ? EMIT_LLVM : o->assembly || last ? EMIT_ASSEMBLY : EMIT_OBJECT;
}

/* The folder of compiled functions, or NULL. The user's own one is made where it is not there yet. */
static const char *cache_folder(struct context *ctx, const struct options *o)
{
    const char *asked = o->cache ? o->cache : getenv("MCC_CACHE"), *base = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");
    if (o->no_cache)
        return NULL;
    if (asked)
        return *asked && (o->cache || strcmp(asked, "off") != 0) ? asked : NULL;
    if (!base || *base != '/')
        base = home && *home == '/' ? arena_printf(&ctx->session, "%s/.cache", home) : NULL;
    if (!base)
        return NULL;
    (void)mkdir(base, 0700); /* where it fails, the folder in it does too */
    return arena_printf(&ctx->session, "%s/mcc", base);
}

static void report_made(const void *user, uint32_t done, uint32_t of)
{
    report_step(user, "codegen", done, of);
}

static struct codegen_options backend_options(const struct compilation *c)
{
    const struct options *o = c->options;
    bool debug = o->debug && c->output;
    return (struct codegen_options){
        .debug_file = debug ? arena_printf(&c->ctx->session, "%s.mcir", path_name(c->output)) : NULL,
        .debug_folder = debug ? debug_folder(c) : NULL,
        .self = o->worker ? o->worker : o->self,
        .jobs = (uint32_t)(o->jobs > 0 ? o->jobs : cpu_usable()),
        .opt_level = (int)o->level,
        .emit = text_kind(o),
        .is_static = targets_static(o),
        .worker_memory = o->worker_memory,
        .cache = cache_folder(c->ctx, o),
        .cache_bytes = o->cache_bytes,
        .verbose = o->verbose,
        .require_sandbox = o->require_sandbox,
        .no_sandbox_warning = o->no_warn_sandbox,
        .made = report_made,
        .user = c};
}

/* Text of all functions; of objects the names, the CPUs that they are for and their sizes. */
void print_code(const struct compilation *c, struct strbuf *out)
{
    for (uint32_t i = 0; i < c->units.n; i++) {
        const struct codegen_unit *u = &c->units.data[i];
        if (text_kind(c->options) == EMIT_OBJECT)
            strbuf_printf(out, "%s for %s: an object of %llu bytes%s%s\n", u->symbol, u->target->cpu,
                          (unsigned long long)u->object.size, u->same ? ", the same as " : "",
                          u->same ? u->same->symbol : "");
        else
            strbuf_append(out, u->object.data, u->object.size);
    }
}

static void report_cached(const struct compilation *c, const struct codegen *g)
{
    uint32_t found, asked;
    codegen_cached(g, &found, &asked);
    for (uint32_t i = 0; c->recalled && i < c->units.n; i++)
        found = asked += c->units.data[i].same == NULL;
    struct strbuf text = strbuf_of(&c->ctx->session);
    strbuf_printf(&text, "cache: %u of %u functions\n", found, asked);
    c->report.put(c->report.user, TEXT_DATA, text.data, text.n);
}

bool run_codegen(struct compilation *c)
{
    if (c->options->emit == OPT_EMIT_C && !c->options->stop_after)
        return true; /* static_write makes C of the loops */
    if (!c->recalled)
        codegen_give(c);
    bool ok = codegen_finish(c->codegen, c->units.data) && (c->recalled || recall_keep(c));
    if (c->options->stats)
        report_cached(c, c->codegen);
    return ok;
}
