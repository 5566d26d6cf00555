/* mcc prove, and proofs as a part of other commands: mcc MODEL --prove, mcc report MODEL --prove. */

#include "cli/commands/artifact/artifact.h"
#include "cli/commands/command.h"
#include "cli/commands/compare/code_check.h"
#include "cli/commands/compare/prove.h"
#include "cli/commands/temporary.h"

static bool claim(struct context *ctx, uint32_t proved, uint32_t variants)
{
    return error_at(ctx, FAIL_CLAIM, (src_id){0}, NULL, "not all is proved: %u of %u CPU variants", proved, variants);
}

/* ---- as a part --------------------------------------------------------------------------------------------------- */

/* A network, for a CPU of which this machine runs something? */
static bool can_prove(struct context *ctx, const struct options *o)
{
    if (artifact_meant(o->files.items.data[0]))
        return error_usage(ctx, "a network is proved, not a compiled one: mcc prove MODEL.onnx");
    return target_serves(ctx, o, true);
}

static void copy(struct prove *p, struct arena *arena, struct proof *out)
{
    struct strbuf text, *value = NEW(arena, struct strbuf);
    struct json j = {.out = value};
    *out = (struct proof){.proved = certificate_count(p), .variants = p->run.c.targets.n};
    out->all = out->proved == out->variants;
    strbuf_init(&text, arena);
    strbuf_init(value, arena);
    certificate_text(p, &text);
    certificate_json(p, out->all, &j);
    out->text = text.n ? text.data : "";
    out->json = (struct span){value->data, value->n};
    for (uint32_t v = 0; v < out->variants && out->all; v++)
        VEC_PUSH(arena, &out->note.items, certificate_note(p, &p->all[v], arena));
}

bool proof_make(struct context *ctx, const struct options *o, struct proof *out)
{
    if (!can_prove(ctx, o))
        return false;
    struct options proving = *o; /* what is written and printed is the other command's */
    proving.output = proving.depend_file = NULL;
    proving.depend = proving.depend_phony = proving.save_temps = proving.save_record = proving.time_trace = false;
    proving.stats = proving.time_passes = proving.print_after_all = proving.print_changed = false;
    proving.print_after = (struct text_list){0};
    proving.rpass = proving.rpass_missed = proving.rpass_analysis = NULL;
    struct context *apart = context_new();
    if (!apart)
        return error_limit(ctx, (src_id){0}, "out of memory");
    apart->unwind = ctx->unwind;
    ctx->apart = apart; /* whose files a signal removes, too */
    struct prove *p = NEW(&ctx->session, struct prove);
    const bool done = prove_network(apart, &proving, p);
    if (done)
        copy(p, &ctx->session, out);
    report_diagnostics(apart, terminal_report(), o);
    if (!done) /* the reason has been said */
        ctx->fail = apart->fail != FAIL_NONE ? apart->fail : FAIL_INTERNAL;
    ctx->apart = NULL;
    context_free(apart);
    return done;
}

enum fail compile_proved(struct context *ctx, const struct options *o, const char *model)
{
    struct proof proof;
    if (o->stop_after || o->emit == OPT_EMIT_STATIC || o->emit == OPT_EMIT_C)
        return fail_usage(ctx, "'prove': a library or an object notes that it is proved; leave %s out",
                          o->stop_after ? "-stop-after" : "--emit");
    if (!proof_make(ctx, o, &proof))
        return ctx->fail;
    struct strbuf text = strbuf_of(&ctx->session);
    strbuf_printf(&text, "%s", o->quiet ? "" : proof.text);
    terminal_print(&text);
    ctx->model_path = model;
    if (!proof.all) {
        claim(ctx, proof.proved, proof.variants);
        return ctx->fail;
    }
    struct compilation c = {.ctx = ctx, .options = o, .report = terminal_report(), .proof = &proof.note};
    return compile_keep(&c, model, NULL);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

/* Text, JSON, the file of -o. */
static void certify(struct prove *p)
{
    const struct options *o = p->run.c.options;
    struct context *ctx = p->run.c.ctx;
    const uint32_t proved = certificate_count(p), variants = p->run.c.targets.n;
    struct strbuf text = strbuf_of(&ctx->session);
    if (o->document)
        certificate_json(p, proved == variants, &o->document->result);
    else if (!o->quiet)
        certificate_text(p, &text);
    terminal_print(&text);
    if (o->output) {
        struct json j = {.out = &text};
        text.n = 0;
        certificate_json(p, proved == variants, &j);
        strbuf_append(&text, "\n", 1);
        if (!output_write(ctx, o->output, text.data, text.n))
            return;
    }
    if (!code_agrees(p->machine))
        error_at(ctx, FAIL_CLAIM, (src_id){0}, NULL, "machine code was not found to have the loop IR's bits");
    else if (proved < variants)
        claim(ctx, proved, variants);
}

enum fail command_prove(struct context *ctx, struct options *o)
{
    struct prove *p = NEW(&ctx->session, struct prove);
    struct file_list read = {0};
    VEC_PUSH(&ctx->session, &read.paths, o->files.items.data[0]);
    if (o->output && (!output_check(ctx, o->output) || !output_differs(ctx, o->output, &read, o->config)))
        return ctx->fail;
    const bool found = can_prove(ctx, o) && prove_network(ctx, o, p);
    if (found)
        certify(p);
    else if (ctx->fail == FAIL_NONE) /* no verdict is no proof */
        error_internal(ctx, (src_id){0}, "the proof ended early");
    if (p->code_context)
        context_free(p->code_context);
    return ctx->fail;
}
