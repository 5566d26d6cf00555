/* --emit=c: the functions of a static network as C11 (codegen/c), those that it calls. */
#include "cli/library/compile/header.h"

#include "cli/library/mccc.h"
#include "cli/library/options/targets.h"
#include "codegen/c/c_source.h"
#include "ir/base/file.h"
#include "runtime/rt_cpu.h"

static struct c_machine machine_of(const struct variant *v)
{
    bool x86 = strcmp(v->row->arch, "x86_64") == 0, arm = strcmp(v->row->arch, "aarch64") == 0;
    return (struct c_machine){.row = v->name,
                              .aarch64 = arm,
                              .fma = !x86 || v->needs >> RT_X86_FMA & 1,
                              .bf16 = x86 && v->needs >> RT_X86_AVX512BF16 & 1 && v->needs >> RT_X86_AVX512VL & 1,
                              .bfdot = arm && strstr(v->target.features, "+bf16")};
}

static bool is_launched(const struct module *m, const char *kernel)
{
    const struct lfunc *f = m->plan.program;
    for (uint32_t b = 1; b < f->blocks.n; b++)
        for (uint32_t i = 0; i < f->blocks.data[b].stmts.n; i++) {
            const struct lstmt *s = &f->blocks.data[b].stmts.data[i];
            if (s->op == L_LAUNCH && strcmp(s->name, kernel) == 0)
                return true;
        }
    return false;
}

static bool put_functions(struct compilation *c, struct c_file *file)
{
    for (uint32_t i = 0; i < c->units.n; i++) {
        const char *text = c->units.data[i].text;
        struct lfunc *f = lf_parse(c->ctx, &c->ctx->session, &text);
        if (!f || !lf_finish(f))
            return false;
        if ((f->role != LROLE_KERNEL || is_launched(c->module, f->name)) && !c_function(file, f))
            return false;
    }
    return true;
}

/* NAME_run, with the header's words for its arguments. */
static void put_entry(struct header *h, struct c_file *file)
{
    struct arena *arena = &h->c->ctx->session;
    struct header own = *h;
    const char **names = NEW_ARRAY(arena, const char *, h->a->n_sym + h->n_in + h->n_out + 1);
    uint32_t n = 0;
    strbuf_init(&own.out, arena);
    header_prototype(&own);
    for (uint32_t i = 0; i < h->a->n_sym; i++)
        if (h->takes[i])
            names[n++] = h->sym[i];
    for (uint32_t i = 0; i < h->n_in; i++)
        names[n++] = h->in[i];
    for (uint32_t i = 0; i < h->n_out; i++)
        names[n++] = h->outs[i];
    names[n++] = "arena";
    c_export(file, h->c->units.data[h->c->units.n - 1].symbol, own.out.data, names, n);
}

bool c_write(struct header *h)
{
    struct compilation *c = h->c;
    struct arena *arena = &c->ctx->session;
    const struct c_machine machine = machine_of(c->targets.data[0]);
    struct c_file *file = c_begin(c->ctx, arena, &machine);
    const char *header = output_beside(c->ctx, c->output, "h");
    if (!put_functions(c, file) || (h->a->weights.size && !c_weights(file, "weights", &h->a->weights)))
        return false;
    put_entry(h, file);
    struct strbuf out = c_end(file, arena_printf(arena, "/* Made by mcc %s for %s. */\n", MCCC_VERSION, machine.row),
                              path_name(header));
    return output_write(c->ctx, c->output, out.data, out.n);
}
