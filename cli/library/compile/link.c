/* The last stage: the rows of the artifact's table, and its file. */
#include "cli/library/compile/backend.h"

#include "cli/library/compile/build_note.h"
#include "cli/library/mccc.h"
#include "cli/library/options/targets.h"
#include "passes/module/access_function.h"
#include "passes/module/analysis.h"

/* What the rows of ports are made with: the artifact's number of each shape symbol, and mcc_port.alias of each value */
struct port_facts {
    int32_t *symbol;
    uint64_t *alias;
};

static struct port_facts port_facts(const struct compilation *c)
{
    struct exprs *x = c->ctx->exprs;
    const struct module *m = c->module;
    struct port_facts f = {NEW_ARRAY(&c->ctx->session, int32_t, sym_count(x) + 1),
                           NEW_ARRAY(&c->ctx->session, uint64_t, m->g->values.n)};
    int32_t n = 0;
    for (sym_id i = sym_next(x, SYM_SHAPE, (sym_id){0}); i.i; i = sym_next(x, SYM_SHAPE, i))
        f.symbol[i.i] = n++;
    for (uint32_t i = m->fused.kernels.n; i > 0; i--)
        if (m->fused.kernels.data[i - 1].shares)
            f.alias[m->fused.kernels.data[i - 1].outs.data[0].i] = m->fused.kernels.data[i - 1].shares;
    return f;
}

static struct art_port port_row(struct compilation *c, const struct port_facts *f, const struct port *port, bool input)
{
    struct exprs *x = c->ctx->exprs;
    const struct type *t = value_type(c->graph, port->value);
    const struct layout_constraint *constraint = &c->module->fused.constraint[port->value.i];
    uint64_t flags = 0;
    for (; t->kind != TYPE_TENSOR && t->inner; t = t->inner)
        flags |= t->kind == TYPE_SEQUENCE   ? MCC_PORT_SEQUENCE
                 : t->kind == TYPE_OPTIONAL ? MCC_PORT_OPTIONAL
                                            : MCC_PORT_MAP;
    flags |= t->elem == ELEM_STR ? MCC_PORT_STRING : 0;
    if (flags & (MCC_PORT_SEQUENCE | MCC_PORT_OPTIONAL | MCC_PORT_MAP) || t->rank < 0)
        return (struct art_port){.name = port->name, .elem = t->elem, .rank = -1, .flags = flags};
    mcc_dim *dims = NEW_ARRAY(&c->ctx->session, mcc_dim, t->rank > 0 ? t->rank : 1);
    for (int32_t d = 0; d < t->rank; d++) {
        int64_t n;
        sym_id s = input ? port_symbol(c->graph, port, d) : ex_as_sym(x, t->dims[d]);
        bool late = late_expr(x, t->dims[d]);
        if (!s.i && ex_is_const(x, t->dims[d], &n)) {
            dims[d] = (mcc_dim){n, -1, 0, NULL};
        } else if (late) {
            dims[d] = (mcc_dim){-1, -1, 0, NULL};
        } else if (s.i) {
            dims[d] = (mcc_dim){-1, f->symbol[s.i], 0, NULL};
        } else {
            struct strbuf text = strbuf_of(&c->ctx->session);
            ex_print(x, t->dims[d], &text);
            dims[d] = (mcc_dim){-2, -1, 0, text.data};
        }
        if (constraint->grows == d + 1)
            dims[d].room = (int32_t)constraint->room;
    }
    return (struct art_port){.name = port->name, .elem = t->elem, .rank = t->rank, .dims = dims, .flags = flags};
}

/* Is the shape of this tensor known only at run time? Then `run` cannot be given memory for it. */
static bool row_is_dynamic(const struct art_port *p)
{
    if (p->flags & (MCC_PORT_SEQUENCE | MCC_PORT_OPTIONAL | MCC_PORT_MAP))
        return false;
    for (int32_t d = 0; d < p->rank; d++)
        if (p->dims[d].extent == -1 && p->dims[d].symbol < 0)
            return true;
    return p->rank < 0;
}

static void artifact_ports(struct compilation *c, struct artifact *a)
{
    struct graph *g = c->graph;
    struct arena *arena = &c->ctx->session;
    struct port_facts facts = port_facts(c);
    struct art_port *in = NEW_ARRAY(arena, struct art_port, g->inputs.n + 1);
    struct art_port *out = NEW_ARRAY(arena, struct art_port, g->outputs.n + 1);
    for (uint32_t k = 0; k < g->inputs.n; k++) {
        in[k] = port_row(c, &facts, &g->inputs.data[k], true);
        a->n_in_dims += in[k].rank > 0 ? (uint32_t)in[k].rank : 0;
    }
    for (uint32_t k = 0; k < g->outputs.n; k++) {
        out[k] = port_row(c, &facts, &g->outputs.data[k], false);
        out[k].alias = facts.alias[g->outputs.data[k].value.i];
        out[k].flags |= row_is_dynamic(&out[k]) ? MCC_PORT_DYNAMIC : 0;
        a->n_out_dims += out[k].rank > 0 ? (uint32_t)out[k].rank : 0;
    }
    a->n_state = g->states.n;
    struct art_state *states = NEW_ARRAY(arena, struct art_state, g->states.n + 1);
    for (uint32_t k = 0; k < g->states.n; k++)
        states[k] = (struct art_state){g->states.data[k].initial.bytes, g->states.data[k].initial.dims};
    /* a state is nobody's memory but its own */
    for (uint32_t k = 0, n_in = graph_user_inputs(g), n_out = graph_user_outputs(g); k < g->outputs.n; k++)
        if (k < n_out ? out[k].alias > n_in : out[k].alias != (uint64_t)n_in + (k - n_out) + 1)
            out[k].alias = 0;
    a->states = states;
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
        sym[a->n_sym++] = (struct art_symbol){s->name, s->given.lo, s->given.hi == INT64_MAX ? 0 : s->given.hi,
                                              s->given.divisor};
    }
    a->sym = sym;
}

/* Links after each leading node the others that its kernels compute; a node of several kernels goes to the first. */
static void chain_nodes(const struct compilation *c, mcc_node *node)
{
    const struct module *m = c->module;
    uint32_t n = c->ctx->sources.n;
    bool *taken = NEW_ARRAY(&c->ctx->session, bool, n + 1);
    uint32_t *tail = NEW_ARRAY(&c->ctx->session, uint32_t, n + 1); /* by leading node: the last of its chain */
    for (uint32_t i = 0; i < m->fused.kernels.n; i++)
        taken[kernel_lead(m, &m->fused.kernels.data[i])] = true;
    for (uint32_t i = 0; i < m->fused.kernels.n; i++) {
        const struct kernel *k = &m->fused.kernels.data[i];
        uint32_t lead = kernel_lead(m, k), last = lead && tail[lead] ? tail[lead] : lead;
        if (!last)
            continue;
        for (uint32_t j = k->nodes.n; j > 0; j--) {
            uint32_t src = graph_node(m->g, k->nodes.data[j - 1])->src.i;
            if (!src || taken[src])
                continue;
            taken[src] = true;
            node[last].next = src;
            last = src;
        }
        tail[lead] = last;
    }
}

mcc_node *source_rows(struct compilation *c, uint32_t *n)
{
    mcc_node *node = NEW_ARRAY(&c->ctx->session, mcc_node, c->ctx->sources.n + 1);
    for (uint32_t i = 0; i < c->ctx->sources.n; i++) {
        const struct source *s = &c->ctx->sources.data[i];
        node[i] = (mcc_node){.name = source_label(s), .op = s->op ? s->op : "", .source = s->origin ? s->origin : ""};
    }
    /* A node's cost is that of the kernels that bear its name, in the best variant. */
    for (uint32_t i = 0; i < c->first_rows; i++) {
        const struct art_kernel *k = &c->kernel_rows.data[i];
        if (k->node < c->ctx->sources.n && !k->version) {
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
    struct strbuf text = strbuf_of(&c->ctx->session);
    print_code(c, &text);
    return output_write(c->ctx, c->output, text.data, text.n);
}

/* The file's metadata as mcc_api.meta has it, and the promise of --strict, which no file may give. An empty key would
 * end the list, so those are left out. */
static struct span artifact_meta(struct compilation *c)
{
    static const char strict[] = "mcc.strict";
    struct strbuf text = strbuf_of(&c->ctx->session);
    if (c->options->strict)
        strbuf_append(&text, "mcc.strict\0true", sizeof "mcc.strict\0true");
    for (uint32_t i = 0; i < c->graph->metadata.n; i++) {
        const struct meta *m = &c->graph->metadata.data[i];
        if (!*m->key || strcmp(m->key, strict) == 0)
            continue;
        strbuf_append(&text, m->key, strlen(m->key) + 1);
        strbuf_append(&text, m->value, strlen(m->value) + 1);
    }
    strbuf_append(&text, "", 1);
    return (struct span){text.data, text.n};
}

/* OUTPUT.mcir, whose lines -g names: the text of every function as the workers have it. */
static bool debug_write(struct compilation *c)
{
    if (!c->options->debug || c->expected)
        return true;
    struct strbuf text = strbuf_of(&c->ctx->session);
    for (uint32_t i = 0; i < c->units.n; i++) {
        const struct codegen_unit *u = &c->units.data[i];
        strbuf_printf(&text, "\n# %s for %s\n", u->symbol, u->target->cpu);
        strbuf_append(&text, u->text, strlen(u->text));
    }
    return side_write(c, arena_printf(&c->ctx->session, "%s.mcir", c->output), text.data, text.n);
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
                         .n_rows = c->n_rows,
                         .kernels = c->kernel_rows.data,
                         .n_kernels = c->kernel_rows.n,
                         .plan = "plan",
                         .scratch_bytes = c->scratch,
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
    if (c->options->emit != OPT_EMIT_C && !build_note_make(c, &a.build))
        return false;
    artifact_ports(c, &a);
    artifact_symbols(c, &a);
    a.node = source_rows(c, &a.n_node);
    if (output_kind(c->options, c->output) == OUTPUT_SHARED)
        a.graph = graph_map_section(c, &a);
    if (targets_static(c->options))
        return static_write(c, &a);
    if (c->options->emit == OPT_EMIT_HEADER && !header_write(c, &a))
        return false;
    bool ok = codegen_link(c->codegen, &a, output_kind(c->options, c->output), c->output);
    time_end(c->ctx); /* the output is there: nothing after it fails for that */
    return ok;
}
