/* Stages behind legalize: kernels, layouts, memory, loops, objects, artifact. */
#include "cli/compile/backend.h"

#include "cli/options/cpu.h"
#include "cli/mccc.h"
#include "cli/options/targets.h"
#include "passes/schedule/winograd.h"
#include "runtime/mcc.h"
#include "passes/module/access.h"
#include "passes/module/query.h"
#include "passes/schedule/schedule.h"
#include "runtime/rt.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- kernels, layouts, memory ----------------------------------------------------------------------------------- */

static enum winograd_source winograd_source(const char *word)
{
    static const char *const words[] = {
        [WEIGHTS_AUTO] = "auto", [WEIGHTS_DERIVE] = "derive", [WEIGHTS_OPEN] = "open", [WEIGHTS_STORE] = "store"};
    uint32_t k = COUNT_OF(words) - 1;
    while (k > 0 && strcmp(words[k], word) != 0)
        k--;
    return (enum winograd_source)k;
}

bool module_begin(struct compilation *c)
{
    struct module *m = NEW(&c->ctx->session, struct module);
    const struct options *o = c->options;
    m->ctx = c->ctx;
    m->g = c->graph;
    m->arena = &c->ctx->session;
    m->facts = !c->graph ? 0 : c->graph->legal ? IS_LEGAL : IS_IMPORTED;
    m->opt_level = (int)o->level;
    m->layout = !o->layout || !strcmp(o->layout, "auto") ? LAYOUT_AUTO
                : !strcmp(o->layout, "NCHW")             ? LAYOUT_NCHW
                : !strcmp(o->layout, "NHWC")             ? LAYOUT_NHWC
                                                         : LAYOUT_NC16C;
    m->attention = o->level >= 2 && !strcmp(o->attention, "auto");
    m->strassen = o->level >= 2 && !strcmp(o->strassen, "auto");
    m->winograd = o->level < 2 || !strcmp(o->winograd, "off") ? 0
                  : !strcmp(o->winograd, "auto")              ? 6
                                                              : (uint32_t)(o->winograd[0] - '0');
    m->winograd_weights = winograd_source(o->winograd_weights);
    if (strcmp(o->precision, "auto") == 0)
        return error_at(c->ctx, FAIL_USAGE, (src_id){0}, NULL,
                        "'precision': auto is decided by the mcc command for networks as their files have them: not by "
                        "libmcc, not in mcc quantize");
    m->precision = !strcmp(o->precision, "bf16")       ? PRECISION_BF16
                   : !strcmp(o->precision, "f16")      ? PRECISION_F16
                   : !strcmp(o->precision, "f16-sums") ? PRECISION_F16_SUMS
                                                       : PRECISION_F32;
    m->weights_type = !strcmp(o->weights_type, "bf16")  ? WEIGHTS_BF16
                      : !strcmp(o->weights_type, "f16") ? WEIGHTS_F16
                      : !strcmp(o->weights_type, "i8")  ? WEIGHTS_I8
                      : !strcmp(o->weights_type, "i4")  ? WEIGHTS_I4
                                                        : WEIGHTS_AS_THEY_ARE;
    m->broken = o->break_kernel;
    if (o->stats) {
        m->report = NEW(&c->ctx->session, struct strbuf);
        strbuf_init(m->report, &c->ctx->session);
    }
    c->module = m;
    if (!choices_read(c))
        return false;
    m->matdot = targets_matdot(c->ctx, o);
    m->pairs = is_narrowed(m) && targets_pair(c->ctx, o);
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

/* OUTPUT.mcir, whose lines -g names: the text of every function as the workers have it. */
static bool debug_write(struct compilation *c)
{
    struct strbuf text;
    if (!c->options->debug)
        return true;
    strbuf_init(&text, &c->ctx->session);
    for (uint32_t i = 0; i < c->units.n; i++) {
        const struct codegen_unit *u = &c->units.data[i];
        strbuf_printf(&text, "\n# %s for %s\n", u->symbol, u->target->cpu);
        strbuf_append(&text, u->text, strlen(u->text));
    }
    return side_write(c, arena_printf(&c->ctx->session, "%s.mcir", c->output), text.data, text.n);
}

/* The folder of the output without links; as it was given where it has no such path. */
static const char *debug_folder(const struct compilation *c)
{
    const char *slash = strrchr(c->output, '/');
    const char *folder = slash ? arena_strndup(&c->ctx->session, c->output, (size_t)(slash - c->output + 1)) : ".";
    char *real = realpath(folder, NULL);
    if (real)
        folder = arena_strdup(&c->ctx->session, real);
    free(real);
    return folder;
}

static void unit_add(struct compilation *c, const struct target *t, const char *symbol, const char *text)
{
    struct codegen_unit u = {.target = t, .symbol = symbol, .text = text};
    if (c->options->debug) {
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
    struct strbuf text;
    strbuf_init(&text, &c->ctx->session);
    lf_print(f, &text);
    scratch_need(c, f->local_bytes);
    return text.data;
}

static bool emit_variant(struct compilation *c, const struct variant *v, const char *suffix)
{
    struct module *m = c->module;
    if (!emit_kernels(m, c->variants.n, suffix) || !emit_program(m, suffix) || !emit_prepare(m, &v->machine, suffix))
        return false;
    for (uint32_t i = 0; i < m->kernels.n; i++) {
        const struct kernel *k = &m->kernels.data[i];
        if (!k->text) /* code of the program, or inside the kernel of a loop */
            continue;
        unit_add(c, &v->target, k->name, k->text);
        scratch_need(c, k->local_bytes);
        struct art_kernel row = {.name = k->name, .flops = k->flops, .bytes = k->bytes, .node = kernel_lead(m, k)};
        VEC_PUSH(&c->ctx->session, &c->kernel_rows, row);
    }
    for (uint32_t i = 0; i < m->prepare_kernels.n; i++) {
        const struct function_text *k = &m->prepare_kernels.data[i];
        unit_add(c, &v->target, k->name, k->text);
        scratch_need(c, k->local_bytes);
        VEC_PUSH(&c->ctx->session, &c->kernel_rows, ((struct art_kernel){.name = k->name}));
    }
    if (m->prepare)
        unit_add(c, &v->target, m->prepare->name, print_function(c, m->prepare));
    unit_add(c, &v->target, m->program->name, print_function(c, m->program));
    if (!c->variants.n)
        c->first_rows = c->kernel_rows.n;
    struct art_variant row = {.target = &v->target,
                              .name = v->name,
                              .features = v->needs,
                              .program = m->program->name,
                              .prepare = m->prepare ? m->prepare->name : NULL};
    VEC_PUSH(&c->ctx->session, &c->variants, row);
    return true;
}

static struct codegen_options backend_options(const struct compilation *c);

static struct codegen *codegen_of(struct compilation *c)
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
    return c->output && !c->options->stop_after && !c->options->verify_each;
}

/* Workers generate the code of one kernel while the next are emitted. What runs in a loop may become part of a larger
 * kernel, so it waits for the program. */
static void look_after_workers(void *user, const struct kernel *k)
{
    struct compilation *c = user;
    report_step(c, "emit", ++c->n_emitted, c->module->kernels.n * c->targets.n);
    if (!goes_on(c))
        return;
    if (k->region.i == 1)
        codegen_ahead(codegen_of(c), &(struct codegen_unit){.target = &c->targets.data[c->variants.n]->target,
                                                            .symbol = k->name,
                                                            .text = k->text});
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

bool run_schedule(struct compilation *c)
{
    if (!schedules_read(c))
        return false;
    if (goes_on(c))
        codegen_warm(codegen_of(c));
    for (uint32_t i = 0; i < target_count; i++) {
        const struct target_row *row = &target_rows[i];
        if (!target_wanted(c->options, c->module, row))
            continue;
        struct variant *v = NEW(&c->ctx->session, struct variant);
        if (!variant_init(v, c->ctx, row, c->options->mattr))
            return false;
        v->machine = c->machine ? *c->machine : row->machine;
        v->machine.fp16 = variant_has_fp16(v);
        if (!schedule(c->module, row->name, &v->machine))
            return false;
        VEC_PUSH(&c->ctx->session, &c->targets, v);
    }
    if (!c->targets.n)
        return error_at(c->ctx, FAIL_USAGE, (src_id){0}, NULL,
                        "no code variant fits the options --target, --variants and -march (-mcpu=help prints all)");
    choices_check(c);
    return true;
}

void print_schedules(const struct compilation *c, struct strbuf *out)
{
    schedules_print(c->module, out);
}

/* What the names of a variant's functions end in: "_v3". */
static const char *kernel_suffix(struct compilation *c, const struct target_row *row)
{
    char *suffix = arena_printf(&c->ctx->session, "_%s", target_short_name(target_rows, target_count, row));
    for (char *p = strchr(suffix, '-'); p; p = strchr(p, '-'))
        *p = '_';
    return suffix;
}

bool run_emit(struct compilation *c)
{
    c->module->emitted = look_after_workers;
    c->module->user = c;
    for (uint32_t i = 0; i < c->targets.n; i++) {
        const struct variant *v = c->targets.data[i];
        if (i && goes_on(c))
            codegen_give(c);
        if (!emit_variant(c, v, kernel_suffix(c, v->row)))
            return false;
    }
    unit_add(c, &c->targets.data[c->targets.n - 1]->target, "plan", print_function(c, c->module->plan));
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
    const char *told = o->cache ? o->cache : getenv("MCC_CACHE"), *base = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");
    if (o->no_cache)
        return NULL;
    if (told)
        return *told && (o->cache || strcmp(told, "off") != 0) ? told : NULL;
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
    const char *slash = c->output ? strrchr(c->output, '/') : NULL;
    bool debug = o->debug && c->output;
    return (struct codegen_options){
        .debug_file = debug ? arena_printf(&c->ctx->session, "%s.mcir", slash ? slash + 1 : c->output) : NULL,
        .debug_folder = !debug            ? NULL
                        : o->debug_folder ? o->debug_folder
                                          : debug_folder(c),
        .self = o->worker ? o->worker : o->self,
        .jobs = (uint32_t)(o->jobs > 0 ? o->jobs : cpu_usable()),
        .opt_level = (int)o->level,
        .emit = text_kind(o),
        .worker_memory = o->worker_memory,
        .cache = cache_folder(c->ctx, o),
        .cache_bytes = o->cache_bytes,
        .verbose = o->verbose,
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
    struct strbuf text;
    uint32_t found, asked;
    codegen_cached(g, &found, &asked);
    strbuf_init(&text, &c->ctx->session);
    strbuf_printf(&text, "cache: %u of %u functions\n", found, asked);
    c->report.put(c->report.user, TEXT_DATA, text.data, text.n);
}

bool run_codegen(struct compilation *c)
{
    codegen_give(c);
    bool ok = codegen_finish(c->codegen, c->units.data);
    if (c->options->stats)
        report_cached(c, c->codegen);
    return ok;
}

/* ---- the artifact ------------------------------------------------------------------------------------------------ */

static int32_t symbol_index(const struct compilation *c, sym_id s)
{
    struct exprs *x = c->ctx->exprs;
    int32_t n = 0;
    for (sym_id i = sym_next(x, SYM_SHAPE, (sym_id){0}); i.i && i.i != s.i; i = sym_next(x, SYM_SHAPE, i))
        n++;
    return n;
}

static struct art_port port_row(struct compilation *c, const struct port *port)
{
    struct exprs *x = c->ctx->exprs;
    const struct type *t = value_type(c->graph, port->value);
    const struct layout_wish *wish = &c->module->wish[port->value.i];
    uint64_t flags = 0;
    for (; t->kind != TYPE_TENSOR && t->inner; t = t->inner)
        flags |= t->kind == TYPE_SEQUENCE   ? MCC_PORT_SEQUENCE
                 : t->kind == TYPE_OPTIONAL ? MCC_PORT_OPTIONAL
                                            : MCC_PORT_MAP;
    flags |= t->elem == ELEM_STR ? MCC_PORT_STRING : 0;
    if (flags & (MCC_PORT_SEQUENCE | MCC_PORT_OPTIONAL | MCC_PORT_MAP) || t->rank < 0)
        return (struct art_port){.name = port->name, .elem = t->elem, .rank = -1, .flags = flags};
    struct art_dim *dims = NEW_ARRAY(&c->ctx->session, struct art_dim, t->rank > 0 ? t->rank : 1);
    for (int32_t d = 0; d < t->rank; d++) {
        int64_t n;
        sym_id s = ex_as_sym(x, t->dims[d]);
        bool late = late_expr(x, t->dims[d]);
        if (ex_is_const(x, t->dims[d], &n)) {
            dims[d] = (struct art_dim){n, -1, 0, NULL};
        } else if (late) {
            dims[d] = (struct art_dim){-1, -1, 0, NULL};
        } else if (s.i) {
            dims[d] = (struct art_dim){-1, symbol_index(c, s), 0, NULL};
        } else {
            struct strbuf text;
            strbuf_init(&text, &c->ctx->session);
            ex_print(x, t->dims[d], &text);
            dims[d] = (struct art_dim){-2, -1, 0, text.data};
        }
        if (wish->grows == d + 1)
            dims[d].room = (int32_t)wish->room;
    }
    return (struct art_port){.name = port->name, .elem = t->elem, .rank = t->rank, .dims = dims, .flags = flags};
}

/* Does only the run know the shape of this tensor? Then `run` cannot be given memory for it. */
static bool row_is_dynamic(const struct art_port *p)
{
    if (p->flags & (MCC_PORT_SEQUENCE | MCC_PORT_OPTIONAL | MCC_PORT_MAP))
        return false;
    for (int32_t d = 0; d < p->rank; d++)
        if (p->dims[d].extent == -1 && p->dims[d].symbol < 0)
            return true;
    return p->rank < 0;
}

/* mcc_port.alias of an output. */
static uint64_t alias_of(const struct module *m, value_id out)
{
    for (uint32_t i = 0; i < m->kernels.n; i++)
        if (m->kernels.data[i].shares && m->kernels.data[i].outs.data[0].i == out.i)
            return m->kernels.data[i].shares;
    return 0;
}

static void artifact_ports(struct compilation *c, struct artifact *a)
{
    struct graph *g = c->graph;
    struct arena *arena = &c->ctx->session;
    struct art_port *in = NEW_ARRAY(arena, struct art_port, g->inputs.n + 1);
    struct art_port *out = NEW_ARRAY(arena, struct art_port, g->outputs.n + 1);
    for (uint32_t k = 0; k < g->inputs.n; k++) {
        in[k] = port_row(c, &g->inputs.data[k]);
        a->n_in_dims += in[k].rank > 0 ? (uint32_t)in[k].rank : 0;
    }
    for (uint32_t k = 0; k < g->outputs.n; k++) {
        out[k] = port_row(c, &g->outputs.data[k]);
        out[k].alias = alias_of(c->module, g->outputs.data[k].value);
        out[k].flags |= row_is_dynamic(&out[k]) ? MCC_PORT_DYNAMIC : 0;
        a->n_out_dims += out[k].rank > 0 ? (uint32_t)out[k].rank : 0;
    }
    a->in = in;
    a->out = out;
    a->n_in = g->inputs.n;
    a->n_out = g->outputs.n;
}

static void artifact_symbols(struct compilation *c, struct artifact *a)
{
    struct exprs *x = c->ctx->exprs;
    struct art_symbol *sym = NEW_ARRAY(&c->ctx->session, struct art_symbol, sym_count(x) + 1);
    for (sym_id i = sym_next(x, SYM_SHAPE, (sym_id){0}); i.i; i = sym_next(x, SYM_SHAPE, i)) {
        const struct symbol *s = sym_get(x, i);
        sym[a->n_sym++] = (struct art_symbol){s->name, s->lo, s->hi == INT64_MAX ? 0 : s->hi, s->divisor};
    }
    a->sym = sym;
}

/* Links behind each leading node the others that its kernels compute; a node of several kernels goes to the first. */
static void chain_nodes(const struct compilation *c, struct art_node *node)
{
    const struct module *m = c->module;
    uint32_t n = c->ctx->sources.n;
    bool *taken = NEW_ARRAY(&c->ctx->session, bool, n + 1);
    for (uint32_t i = 0; i < m->kernels.n; i++)
        taken[kernel_lead(m, &m->kernels.data[i])] = true;
    for (uint32_t i = 0; i < m->kernels.n; i++) {
        const struct kernel *k = &m->kernels.data[i];
        uint32_t last = kernel_lead(m, k);
        if (!last)
            continue;
        while (node[last].next)
            last = (uint32_t)node[last].next;
        for (uint32_t j = k->nodes.n; j > 0; j--) {
            uint32_t src = graph_node(m->g, k->nodes.data[j - 1])->src.i;
            if (!src || taken[src])
                continue;
            taken[src] = true;
            node[last].next = src;
            last = src;
        }
    }
}

struct art_node *source_rows(struct compilation *c, uint32_t *n)
{
    struct art_node *node = NEW_ARRAY(&c->ctx->session, struct art_node, c->ctx->sources.n + 1);
    for (uint32_t i = 0; i < c->ctx->sources.n; i++) {
        const struct source *s = &c->ctx->sources.data[i];
        node[i] = (struct art_node){
            .name = source_label(s), .op = s->op ? s->op : "", .source = s->origin ? s->origin : ""};
    }
    /* A node's cost is that of the kernels that bear its name, in the best variant. */
    for (uint32_t i = 0; i < c->first_rows; i++) {
        const struct art_kernel *k = &c->kernel_rows.data[i];
        if (k->node < c->ctx->sources.n) {
            node[k->node].flops += k->flops;
            node[k->node].bytes += k->bytes;
            node[k->node].kernels++;
        }
    }
    chain_nodes(c, node);
    *n = c->ctx->sources.n;
    return node;
}

static bool write_text(struct compilation *c)
{
    struct strbuf text;
    strbuf_init(&text, &c->ctx->session);
    print_code(c, &text);
    return output_write(c->ctx, c->output, text.data, text.n);
}

/* The file's metadata as mcc_api.meta has it. An empty key would end the list, so those are left out. */
static struct span artifact_meta(struct compilation *c)
{
    struct strbuf text;
    strbuf_init(&text, &c->ctx->session);
    for (uint32_t i = 0; i < c->graph->metadata.n; i++) {
        const struct meta *m = &c->graph->metadata.data[i];
        if (!*m->key)
            continue;
        strbuf_append(&text, m->key, strlen(m->key) + 1);
        strbuf_append(&text, m->value, strlen(m->value) + 1);
    }
    strbuf_append(&text, "", 1);
    return (struct span){text.data, text.n};
}

bool run_link(struct compilation *c)
{
    if (c->output && !debug_write(c))
        return false;
    if (c->options->assembly || c->options->emit_llvm)
        return !c->output || write_text(c);
    struct artifact a = {.name = c->graph->name ? c->graph->name : "",
                         .compiler = "mcc " MCCC_VERSION,
                         .target_text = c->variants.data[0].target->triple,
                         .features = c->variants.data[0].name,
                         .variants = c->variants.data,
                         .n_variants = c->variants.n,
                         .kernels = c->kernel_rows.data,
                         .n_kernels = c->kernel_rows.n,
                         .plan = "plan",
                         .scratch_bytes = c->scratch,
                         .const_bytes = (int64_t)c->module->prepared_bytes,
                         .weights = weights_of(c->module),
                         .units = c->units.data,
                         .n_units = c->units.n,
                         .prefix = c->options->prefix ? c->options->prefix : ""};
    if (!c->output)
        return true;
    for (uint32_t i = 1; i < c->variants.n; i++)
        a.features = arena_printf(&c->ctx->session, "%s,%s", a.features, c->variants.data[i].name);
    a.weights.sidecar = a.weights.size ? output_sidecar(c->ctx, c->options, c->output) : NULL;
    if (a.weights.sidecar)
        a.weights.entries = sidecar_entries(c->module);
    a.meta = artifact_meta(c);
    artifact_ports(c, &a);
    artifact_symbols(c, &a);
    a.node = source_rows(c, &a.n_node);
    if (output_kind(c->options, c->output) == OUTPUT_SHARED)
        a.graph = netmap_section(c, &a);
    if (strcmp(c->options->emit, "header") == 0 && !header_write(c, &a))
        return false;
    return codegen_link(c->codegen, &a, output_kind(c->options, c->output), c->output);
}
