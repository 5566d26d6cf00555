/* --emit=static: the network as one C function in an archive, and the header that declares it, next to the archive,
 *
 *     int digits_run(int64_t n, const float picture[][1][8][8], float probability[][10], void *arena);
 *
 * What a function without heap, threads and system calls cannot do is refused with its reason, and so is what has no
 * bound: the header has the bytes of memory and stack.
 */
#include "cli/library/compile/header.h"
#include "cli/library/options/targets.h"

#include "passes/module/analysis.h"

enum {
    CALL_BYTES = 80, /* of stack: a return address, a frame pointer, and what aligns a frame to 64 bytes */
    HELPER_BYTES = 128 /* what memcpy and the compiler's helper functions take */
};

static bool is_c(const struct compilation *c)
{
    return c->options->emit == OPT_EMIT_C;
}

/* ---- what is refused ---- */

static bool refuse(struct compilation *c, src_id src, const char *why)
{
    const char *what = targets_wasm(c->options) ? "WebAssembly" : is_c(c) ? "--emit=c" : "--emit=static";
    return error_model(c->ctx, src, "%s: %s", what, why);
}

static bool symbol_has_bound(struct compilation *c, sym_id id)
{
    const struct symbol *s = sym_get(c->ctx->exprs, id);
    return targets_wasm(c->options) || !entry_takes(c->module, id) || s->given.hi != INT64_MAX ||
           error_at(c->ctx, FAIL_MODEL, (src_id){0}, NULL,
                    "--emit=%s: dimension '%s' has no upper bound, which the memory needs; give one where an input "
                    "has it: --input='x:f32[%s=%lld..64,...]'",
                    is_c(c) ? "c" : "static", s->name, s->name, (long long)s->given.lo);
}

static bool kernel_serves(struct compilation *c, const struct kernel *k)
{
    const struct module *m = c->module;
    if (k->kind == KERNEL_OPAQUE) {
        const struct node *n = graph_node(m->g, k->anchor);
        const struct source *s = source_get(c->ctx, n->src);
        return refuse(c, n->src,
                      arena_printf(&c->ctx->session, "%.64s needs the runtime",
                                   s && s->op && *s->op ? s->op : op_info(n->op)->name));
    }
    for (uint32_t i = 0; i < k->outs.n; i++) {
        const struct value *v = graph_value(m->g, k->outs.data[i]);
        if (m->fused.storage[k->outs.data[i].i].place == PLACE_SEGMENT)
            return refuse(c, v->def.i ? graph_node(m->g, v->def)->src : (src_id){0},
                          "the size of the result is known only at run time");
    }
    return is_c(c) || !k->text || !(strstr(k->text, "= rem f32") || strstr(k->text, "= rem f64")) ||
           refuse(c, (src_id){kernel_lead(m, k)}, "the remainder of floats needs the runtime");
}

/* What is left of calls is memory of loops that grows, and elements narrower than a byte at ports. */
static bool program_serves(struct compilation *c, const struct lfunc *f)
{
    for (uint32_t b = 1; b < f->blocks.n; b++)
        for (uint32_t i = 0; i < f->blocks.data[b].stmts.n; i++) {
            const struct lstmt *s = &f->blocks.data[b].stmts.data[i];
            if (s->op == L_CALL && strcmp(s->name, "mcc_rt_poll") != 0)
                return refuse(
                    c, (src_id){0},
                    strcmp(s->name, "mcc_rt_grow") == 0
                        ? "a loop makes values whose sizes are known only at run time"
                        : "inputs or outputs are not plain tensors of whole bytes, or the data decides sizes");
        }
    return true;
}

bool static_check(struct compilation *c)
{
    const struct module *m = c->module;
    struct exprs *x = c->ctx->exprs;
    bool ok = !m->g->states.n || refuse(c, (src_id){0}, "networks with state are not supported");
    for (sym_id s = sym_next(x, SYM_SHAPE, (sym_id){0}); s.i; s = sym_next(x, SYM_SHAPE, s))
        ok &= symbol_has_bound(c, s);
    for (uint32_t i = 0; i < m->fused.kernels.n; i++)
        ok &= kernel_serves(c, &m->fused.kernels.data[i]);
    return ok && program_serves(c, m->plan.program);
}

/* ---- the entry ---- */

static int64_t kernels_scratch(const struct module *m)
{
    int64_t most = 0;
    for (uint32_t i = 0; i < m->fused.kernels.n; i++)
        for (const struct kernel *k = &m->fused.kernels.data[i]; k; k = k->version.of)
            if (k->text && k->local_bytes > most)
                most = k->local_bytes;
    return (most + 63) & ~(int64_t)63;
}

static const char *symbol_of(const struct compilation *c, const char *what)
{
    return arena_printf(&c->ctx->session, "%s_%s", header_name(c), what);
}

static void unit_add(struct compilation *c, const struct target *t, const char *symbol, const struct lfunc *f)
{
    struct strbuf text = strbuf_of(&c->ctx->session);
    lf_print(f, &text);
    VEC_PUSH(&c->ctx->session, &c->units, ((struct codegen_unit){.target = t, .symbol = symbol, .text = text.data}));
}

bool static_entry(struct compilation *c, const struct target *t)
{
    struct module *m = c->module;
    struct entry e = {.name = symbol_of(c, "run"),
                      .program = m->plan.program->name,
                      .weights = m->plan.weights_bytes ? symbol_of(c, "weights") : NULL,
                      .scratch = kernels_scratch(m)};
    if (!emit_entry(m, &e))
        return false;
    unit_add(c, t, e.name, m->plan.entry_function);
    if (targets_wasm(c->options)) /* it tells extents of outputs and bytes of memory, for the sizes at hand */
        unit_add(c, t, symbol_of(c, "plan"), m->plan.plan_function);
    return true;
}

/* ---- the header ---- */

/* The most that the sizes within the symbols' bounds take. */
static bool arena_bytes(struct compilation *c, int64_t *bytes)
{
    const struct module *m = c->module;
    int64_t arena = ex_hi(c->ctx->exprs, m->plan.arena_bytes);
    return (arena != INT64_MAX && add_i64(arena, m->plan.shared_bytes, bytes) &&
            add_i64(*bytes, kernels_scratch(m), bytes)) ||
           refuse(c, (src_id){0}, "the memory has no bound below 2^63 bytes");
}

/* The entry calls the program, that the kernels, and they nothing but helpers. */
static uint64_t stack_bytes(const struct compilation *c)
{
    uint64_t kernels = 0, above = 0;
    for (uint32_t i = 0; i < c->units.n; i++) {
        const struct codegen_unit *u = &c->units.data[i];
        if (strncmp(u->text, "kernel", 6) != 0)
            above += u->frame + CALL_BYTES;
        else if (u->frame > kernels)
            kernels = u->frame;
    }
    return (above + kernels + CALL_BYTES + HELPER_BYTES + 15) & ~(uint64_t)15;
}

static void put_shape(struct header *h, const struct art_port *p, const char *name)
{
    strbuf_printf(&h->out, " *   %s: %s[", name, elem_name(p->elem));
    for (int32_t d = 0; d < p->rank; d++) {
        const mcc_dim *dim = &p->dims[d];
        strbuf_printf(&h->out, "%s", d ? ", " : "");
        if (dim->extent >= 0)
            strbuf_printf(&h->out, "%lld", (long long)dim->extent);
        else
            strbuf_printf(&h->out, "%s", dim->extent == -1 ? h->sym[dim->symbol] : dim->expr);
        if (dim->room)
            strbuf_printf(&h->out, " of %d", dim->room);
    }
    strbuf_printf(&h->out, "]\n");
}

static void put_comment(struct header *h)
{
    const struct artifact *a = h->a;
    bool c_only = is_c(h->c); /* the C compiler decides on the target and the stack */
    strbuf_printf(
        &h->out,
        "/* Made by mcc for %s%s%s.\n"
        " *\n * %s_run returns %s_OK, or why it failed: a dimension or what follows of it is outside of its\n"
        " * range (%s_E_SHAPE), or the data asks for what cannot be done (%s_E_VALUE). Tensors are row-major\n"
        " * and aligned to their elements, outputs overlap nothing. arena: %s_ARENA_BYTES, aligned to\n"
        " * %s_ARENA_ALIGN, of any content, and of no meaning after the run. The function is reentrant: it changes\n"
        " * outputs and arena alone.",
        a->features, c_only ? "" : ", ", c_only ? "" : a->target_text, h->name, h->upper, h->upper, h->upper, h->upper,
        h->upper);
    if (!c_only)
        strbuf_printf(&h->out, " %s_STACK_BYTES: what the call takes of the stack at most.", h->upper);
    strbuf_printf(&h->out, "\n *\n");
    for (uint32_t i = 0; i < a->n_sym; i++) {
        if (!h->takes[i])
            continue;
        strbuf_printf(&h->out, " *   %s: %lld to %lld", h->sym[i], (long long)a->sym[i].min, (long long)a->sym[i].max);
        strbuf_printf(&h->out, a->sym[i].step > 1 ? ", a multiple of %lld\n" : "\n", (long long)a->sym[i].step);
    }
    for (uint32_t i = 0; i < h->n_in; i++)
        put_shape(h, &a->in[i], h->in[i]);
    for (uint32_t i = 0; i < h->n_out; i++)
        put_shape(h, &a->out[i], h->outs[i]);
    strbuf_printf(&h->out, " */\n");
}

static bool put_header(struct header *h)
{
    struct compilation *c = h->c;
    const char *u = h->upper;
    int64_t arena = 0;
    if (!arena_bytes(c, &arena))
        return false;
    put_comment(h);
    strbuf_printf(&h->out, "#ifndef %s_STATIC_H\n#define %s_STATIC_H\n\n#include <stdint.h>\n\n", u, u);
    strbuf_printf(&h->out, "#define %s_ARENA_BYTES %lld\n#define %s_ARENA_ALIGN 64\n", u, (long long)arena, u);
    if (!is_c(c))
        strbuf_printf(&h->out, "#define %s_STACK_BYTES %llu\n", u, (unsigned long long)stack_bytes(c));
    strbuf_printf(&h->out, "#define %s_WEIGHTS_BYTES %llu\n\n", u, (unsigned long long)h->a->weights.size);
    strbuf_printf(&h->out, "enum { %s_OK = 0, %s_E_SHAPE = %d, %s_E_VALUE = %d };\n\n", u, u, MCC_E_SHAPE, u,
                  MCC_E_VALUE);
    strbuf_printf(&h->out, "#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n");
    header_prototype(h);
    strbuf_printf(&h->out, ";\n\n#ifdef __cplusplus\n}\n#endif\n\n#endif\n");
    return side_write(c, output_beside(c->ctx, c->output, "h"), h->out.data, h->out.n);
}

bool static_write(struct compilation *c, const struct artifact *a)
{
    struct exprs *x = c->ctx->exprs;
    bool *takes = NEW_ARRAY(&c->ctx->session, bool, a->n_sym + 1);
    struct header h = {.c = c, .a = a, .is_static = true, .takes = takes};
    uint32_t n = 0;
    for (sym_id s = sym_next(x, SYM_SHAPE, (sym_id){0}); s.i; s = sym_next(x, SYM_SHAPE, s))
        takes[n++] = entry_takes(c->module, s);
    struct static_network network = {.units = c->units.data,
                                     .n_units = c->units.n,
                                     .entry = symbol_of(c, "run"),
                                     .weights_symbol = symbol_of(c, "weights"),
                                     .weights = a->weights};
    bool wasm = targets_wasm(c->options), ok = header_begin(&h);
    if (wasm) {
        network.plan = symbol_of(c, "plan");
        network.stack = stack_bytes(c);
        network.workers = strstr(c->variants.data[0].target->features, "+atomics") != NULL;
        network.description = describe(c, a,
                                       &(struct description){network.entry, network.plan, kernels_scratch(c->module),
                                                             takes, network.workers ? network.stack : 0});
    }
    ok = ok && (!is_c(c) || c_write(&h)) && (wasm || put_header(&h)) &&
         (is_c(c) || codegen_static(c->codegen, &network, c->output));
    time_end(c->ctx); /* the output is written: a limit reached now fails nothing */
    return ok;
}
