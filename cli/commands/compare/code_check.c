/* mcc prove --machine: the machine code of an artifact against the loop IR that it was made of, bit for bit.
 *
 * The network is compiled as always and loaded. It runs as any artifact does, and again where memory that it has not
 * written holds NaN, which must not change what it computes. Then the interpreter of the loop IR runs the plan and the
 * program on the same inputs, and what the program launches is compared, launch by launch (code_launch.c); machine code
 * goes on from there. So plan and program are compared as well: by sizes and outputs.
 */
#include "cli/commands/compare/bounds.h"

#include "cli/commands/artifact/session.h"
#include "cli/commands/command.h"
#include "cli/commands/compare/prove.h"
#include "cli/library/options/cpu.h"
#include "cli/library/options/targets.h"

/* Of symbols that --dim does not give, after the least ones. */
static const int64_t more_sizes[] = {2, 7, 16, 33};
enum { ELEMENTS_MOST = 1 << 20 };

/* ---- one run ----------------------------------------------------------------------------------------------------- */

static uint32_t find_unit(const struct code_check *m, const char *symbol)
{
    const struct compilation *c = &m->run.c;
    uint32_t i = 0;
    while (i < c->units.n && strcmp(c->units.data[i].symbol, symbol) != 0)
        i++;
    return i;
}

static void *copy_aligned(struct code_check *m, const void *data, int64_t bytes)
{
    unsigned char *block = arena_alloc(&m->run.c.ctx->session, (size_t)bytes + 2 * RT_ALIGN);
    block += (uintptr_t)(-(uintptr_t)block % RT_ALIGN);
    return data && bytes > 0 ? memcpy(block, data, (size_t)bytes) : block;
}

/* The words that the artifact's plan has made, by the interpreter. NULL: the same; else what is wrong. */
static const char *check_plan(struct code_check *m)
{
    const struct mcc_rt_desc *desc = m->native->run.model->desc;
    const uint32_t unit = find_unit(m, "plan"), n = desc->n_sym + 1 + desc->n_out_dims;
    int64_t *out = NEW_ARRAY(&m->run.c.ctx->session, int64_t, n);
    const struct linterp_arg args[2] = {
        {.buffer = {m->native->dims, (int64_t)(desc->n_in_dims * sizeof *out)}},
        {.buffer = {out, (int64_t)(n * sizeof *out)}},
    };
    const struct linterp_host host = {.user = m, .call = code_call};
    struct lfunc *f = unit < m->run.c.units.n ? code_function(m, unit) : NULL;
    if (!f)
        return "its plan is not there";
    struct linterp_result r = lf_interpret(f, args, 0, 1, &host);
    if (r.code)
        return arena_printf(&m->run.c.ctx->session, "the loop IR of its plan ends with %d: %s", r.code,
                            r.text ? r.text : "");
    return memcmp(out, m->native->plan, n * sizeof *out) == 0 ? NULL : "its plan computes other sizes than the loop IR";
}

/* Does the data decide an extent of output k? */
static bool is_late(const struct code_check *m, uint32_t k)
{
    return m->run.s.api->out[k].flags & MCC_PORT_DYNAMIC;
}

/* The program's arguments: the artifact's own memory, except for outputs and weights. */
static struct linterp_arg *program_arguments(struct code_check *m)
{
    const struct mcc_rt_desc *desc = m->native->run.model->desc;
    const uint32_t ports = desc->api->n_in + desc->api->n_out;
    struct linterp_arg *args = NEW_ARRAY(&m->run.c.ctx->session, struct linterp_arg, ports + 2 + desc->n_sym);
    int64_t bytes[2] = {m->native->plan[desc->n_sym], (int64_t)desc->weights_size};
    m->regions.n = 0;
    for (uint32_t i = 0; i < ports; i++) {
        struct lbuffer *b = &args[i].buffer;
        b->bytes = m->native->bound[i].bytes;
        b->data = i < desc->api->n_in               ? m->native->bound[i].data
                  : is_late(m, i - desc->api->n_in) ? NULL
                  : m->bounds                       ? (void *)(intptr_t)m->native->args[i]
                                                    : copy_aligned(m, NULL, b->bytes);
        if (b->data)
            code_region(m, b->data, b->bytes, false);
    }
    args[ports].buffer = (struct lbuffer){(void *)(intptr_t)m->native->args[ports], bytes[0]};
    args[ports + 1].buffer = (struct lbuffer){m->weights, bytes[1]};
    code_region(m, args[ports].buffer.data, bytes[0], false);
    code_region(m, m->weights, bytes[1], true);
    for (uint32_t i = 0; i < desc->n_sym; i++)
        args[ports + 2 + i].index = m->native->plan[i];
    return args;
}

static void interpret_program(void *user)
{
    struct code_check *m = user;
    const struct linterp_host host = {.user = m, .launch = code_launch, .call = code_call};
    m->result = lf_interpret(m->program, m->args, 0, 1, &host);
}

/* NULL: the outputs are those of the artifact's run. */
static const char *check_outputs(struct code_check *m, const struct linterp_arg *args, DLManagedTensorVersioned **out)
{
    const mcc_api *api = m->run.s.api;
    for (uint32_t k = 0; k < api->n_out; k++) {
        const DLTensor *t = &out[k]->dl_tensor;
        const bool late = is_late(m, k);
        const void *data = late ? m->native->run.outputs[k].data : args[api->n_in + k].buffer.data;
        int64_t elements, bytes;
        if (!file_tensor_sizes(elem_by_dlpack(t->dtype), t->ndim, t->shape, &elements, &bytes) || (bytes && !data) ||
            (bytes && memcmp((const char *)t->data + t->byte_offset, data, (size_t)bytes) != 0))
            return arena_printf(&m->run.c.ctx->session, "output '%s' of its program differs from the loop IR's",
                                api->out[k].name);
    }
    return NULL;
}

/* mcc_host.alloc, .release and .event */
static void *on_alloc(void *user, size_t bytes, size_t align)
{
    struct code_check *m = user;
    return guard_alloc(&m->guard, &m->run.c.ctx->session, bytes, align);
}

static void on_release(void *user, void *data, size_t bytes)
{
    struct code_check *m = user;
    (void)bytes;
    guard_release(&m->guard, data);
}

static void on_event(void *user, uint32_t node, int end, uint64_t ns)
{
    struct code_check *m = user;
    (void)node, (void)ns;
    if (++m->events > PROVE_EVENTS)
        m->run.s.api->cancel(m->run.s.run);
    if (!end && m->spoils && m->events <= PROVE_SPOILED)
        guard_spoil_scratch(m->run.s.run, GUARD_NAN);
}

static void run_network(void *user)
{
    struct code_check *m = user;
    struct session *s = &m->run.s;
    m->code = s->api->run_dlpack(s->run, s->in_pointer, m->out, &s->error);
}

/* The artifact's run, which stores its outputs in `out`. Why it says nothing; NULL: it ended, be it in an error. */
static const char *run_artifact(struct code_check *m, DLManagedTensorVersioned **out)
{
    m->out = out;
    m->events = 0;
    const int fault = guard_call(m->run.c.ctx, run_network, m);
    if (fault)
        return arena_printf(&m->run.c.ctx->session, PROVE_FAULT, fault);
    if (!guard_holds(&m->guard))
        return PROVE_BEYOND;
    return m->code && m->events > PROVE_EVENTS ? PROVE_ENDLESS : NULL;
}

static bool same_tensor(const DLTensor *a, const DLTensor *b)
{
    int64_t elements, bytes;
    return a->ndim == b->ndim && memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0 &&
           file_tensor_sizes(elem_by_dlpack(a->dtype), a->ndim, a->shape, &elements, &bytes) &&
           (!bytes ||
            memcmp((const char *)a->data + a->byte_offset, (const char *)b->data + b->byte_offset, (size_t)bytes) == 0);
}

/* NULL: the run gives the same outputs where memory that it has not written holds NaN. */
static const char *check_memory(struct code_check *m, DLManagedTensorVersioned **want)
{
    const mcc_api *api = m->run.s.api;
    DLManagedTensorVersioned **got = NEW_ARRAY(&m->run.c.ctx->session, DLManagedTensorVersioned *, api->n_out + 1);
    guard_spoil_work(m->run.s.run, GUARD_NAN);
    m->spoils = true;
    const char *why = run_artifact(m, got);
    m->spoils = false;
    if (why || m->code)
        return why ? why : "its run fails where memory held other numbers before";
    for (uint32_t k = 0; k < api->n_out; k++) {
        if (!why && !same_tensor(&want[k]->dl_tensor, &got[k]->dl_tensor))
            why = arena_printf(&m->run.c.ctx->session, "output '%s' depends on what memory held before the run",
                               api->out[k].name);
        got[k]->deleter(got[k]);
    }
    return why;
}

/* What its program does at the sizes of the inputs. */
static void run_once(struct code_check *m)
{
    struct context *ctx = m->run.c.ctx;
    struct code_variant *v = &m->variants[m->variant];
    const uint32_t n = m->run.s.api->n_out, program = find_unit(m, m->run.c.variants.data[m->variant].program);
    DLManagedTensorVersioned **out = NEW_ARRAY(&ctx->session, DLManagedTensorVersioned *, n + 1);
    v->program = run_artifact(m, out);
    const int code = m->code;
    if (!v->program && !code)
        v->program = check_memory(m, out);
    if (!m->native->planned || v->program) /* sizes that do not go together */
        return;
    m->program = program < m->run.c.units.n ? code_function(m, program) : NULL;
    v->program = m->program ? check_plan(m) : "its program is not there";
    if (!v->program) {
        for (uint32_t i = 0; i < m->run.c.units.n; i++)
            m->of[i].seen = 0;
        m->args = program_arguments(m);
        const int fault = guard_call(ctx, interpret_program, m);
        const struct linterp_result *r = &m->result;
        if (fault)
            v->program = arena_printf(&ctx->session, PROVE_FAULT, fault);
        else if (r->code != code)
            v->program = arena_printf(&ctx->session, "its program ends with %d, the loop IR with %d: %s", code, r->code,
                                      r->text ? r->text : "");
        else if (!code)
            v->program = check_outputs(m, m->args, out);
    }
    for (uint32_t i = 0; i < n && !code; i++)
        out[i]->deleter(out[i]);
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

/* Inputs of another size in the place of all that --dim does not give; false: there are none, or they do not fit. */
static bool resize(struct code_check *m, int64_t size)
{
    m->open |= sizing_forms(&m->sizing) > 0;
    return sizing_put(&m->sizing, size, SIZES_SAME, ELEMENTS_MOST) &&
           (sizing_holds(&m->sizing) || sizing_mend(&m->sizing, true, 1 + size / 2 % 2)) &&
           session_elements(&m->run.s) <= ELEMENTS_MOST;
}

static bool serves(const struct code_check *m)
{
    const mcc_api *api = m->run.s.api;
    bool plain = !api->state;
    for (uint32_t i = 0; i < api->n_in + api->n_out; i++)
        plain &= !((i < api->n_in ? &api->in[i] : &api->out[i - api->n_in])->flags & ~(uint64_t)MCC_PORT_DYNAMIC);
    return plain;
}

const char *code_program(struct code_check *m, const char *library)
{
    m->native = (struct mcc_ctx *)(void *)m->run.s.run;
    const struct mcc_model *model = m->native->run.model;
    m->variant = (uint32_t)(model->variant - model->desc->variants);
    m->of = NEW_ARRAY(&m->run.c.ctx->session, struct agreement, m->run.c.units.n + 1);
    m->unfused = !variant_is_fused(m->run.c.targets.data[m->variant]);
    if (!serves(m) || !m->native->planned)
        return "only networks of tensors without state have bounds";
    if (!code_symbols(m, library))
        return "the artifact's symbols cannot be read";
    m->weights = copy_aligned(m, model->weights, (int64_t)model->desc->weights_size);
    m->bounds->weights = m->weights;
    m->bounds->weights_bytes = (int64_t)model->desc->weights_size;
    const uint32_t program = find_unit(m, m->run.c.variants.data[m->variant].program);
    struct lfunc *f = program < m->run.c.units.n ? code_function(m, program) : NULL;
    const struct linterp_host host = {.user = m, .launch = code_launch, .call = code_call};
    if (!f)
        return "its program is not there";
    const struct linterp_result r = lf_interpret(f, program_arguments(m), 0, 1, &host);
    return r.code ? arena_printf(&m->run.c.ctx->session, "the loop IR of the program ends with %d: %s", r.code,
                                 r.text ? r.text : "")
                  : NULL;
}

static bool run_variant(struct code_check *m, const char *library, uint32_t variant)
{
    struct context *ctx = m->run.c.ctx;
    const mcc_host host = {.size = sizeof host,
                           .user = m,
                           .threads = 1,
                           .alloc = on_alloc,
                           .release = on_release,
                           .event = on_event,
                           .flags = variant + 1};
    m->sizing = (struct sizing){
        .session = &m->run.s, .given = m->run.c.options, .running = *m->run.c.options, .graph = m->run.c.graph};
    m->sizing.running.output = NULL;
    m->variant = variant;
    m->unfused = !variant_is_fused(m->run.c.targets.data[variant]);
    if (!session_open(&m->run.s, ctx, &m->sizing.running, library, &host) || !code_symbols(m, library))
        return false;
    ctx->model_path = m->run.c.options->files.items.data[0];
    m->variants[variant].ran = true;
    if (!serves(m)) {
        m->variants[variant].program = "only networks of tensors without state are compared";
        session_close(&m->run.s);
        return true;
    }
    m->native = (struct mcc_ctx *)(void *)m->run.s.run;
    const struct mcc_model *model = m->native->run.model;
    m->weights = copy_aligned(m, model->weights, (int64_t)model->desc->weights_size);
    bool ok = session_feed(&m->run.s, true);
    if (ok && !sizing_holds(&m->sizing))
        sizing_mend(&m->sizing, true, 1);
    if (ok)
        run_once(m);
    for (uint32_t k = 0; ok && k < COUNT_OF(more_sizes) && !m->variants[variant].program; k++)
        if (resize(m, more_sizes[k]))
            run_once(m);
    for (uint32_t i = 0; i < m->run.c.units.n; i++)
        m->variants[variant].any |= m->run.c.units.data[i].target == &m->run.c.targets.data[variant]->target &&
                                    m->of[i].elements;
    ok = ok && ctx->fail == FAIL_NONE;
    session_close(&m->run.s);
    return ok;
}

struct code_check *code_run(struct context *ctx, const struct options *o, const char *library)
{
    struct code_check *m = NEW(&ctx->session, struct code_check);
    struct options *compiling = NEW(&ctx->session, struct options);
    *compiling = *o;
    compiling->output = library;
    compiling->emit = OPT_EMIT_NONE;
    compiling->weights = OPT_WEIGHTS_EMBEDDED;
    m->run.c = (struct compilation){.ctx = ctx, .options = compiling, .report = terminal_report()};
    if (compile_keep(&m->run.c, o->files.items.data[0], NULL) != FAIL_NONE)
        return NULL;
    m->run.c.options = o;
    m->of = NEW_ARRAY(&ctx->session, struct agreement, m->run.c.units.n + 1);
    m->variants = NEW_ARRAY(&ctx->session, struct code_variant, m->run.c.targets.n + 1);
    for (uint32_t v = 0; v < m->run.c.targets.n; v++) {
        m->variants[v].name = m->run.c.targets.data[v]->name;
        if (cpu_runs(ctx, m->run.c.targets.data[v]->row) && !run_variant(m, library, v))
            return NULL;
    }
    return m;
}
