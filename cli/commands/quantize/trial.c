/* Networks that run here on samples: see trial.h.
 *
 * Each is compiled in a context of its own, which is gone before the network runs: however many are tried, memory holds
 * the constants of one.
 */
#include "cli/commands/quantize/trial.h"

#include <math.h>

#include "cli/commands/command.h"
#include "cli/commands/temporary.h"
#include "ir/eval/eval.h"

void trial_options(const struct options *given, struct options *plain)
{
    *plain = *given;
    options_reset(plain, 'T');
    plain->march = "native";
    plain->quiet = true;
}

void trial_outputs(struct trial *t, const struct graph *g)
{
    t->n_want = graph_user_outputs(g);
    t->names = NEW_ARRAY(&t->ctx->session, const char *, t->n_want + 1);
    for (uint32_t i = 0; i < t->n_want; i++)
        t->names[i] = arena_strdup(&t->ctx->session, g->outputs.data[i].name);
}

/* ---- compiled and open ------------------------------------------------------------------------------------------- */

struct trying {
    struct trial *trial;
    const struct options *options;
    const char *model;
    void (*use)(void *user);
    void *user;
};

bool compile_apart(struct context *ctx, const struct options *o, const char *model, const char *last,
                   struct product_probe *probe, compiled_fn *use, void *user)
{
    struct context *apart = context_new();
    if (!apart)
        return error_limit(ctx, (src_id){0}, "out of memory");
    ctx->apart = apart; /* whose files a signal removes, too */
    struct compilation c = {.ctx = apart, .options = o, .report = terminal_report(), .probe = probe};
    enum fail fail = compile_keep(&c, model, last);
    ctx->apart = NULL;
    if (fail == FAIL_NONE && use)
        use(user, &c);
    context_free(apart);
    if (fail != FAIL_NONE)
        ctx->fail = fail; /* which has been said */
    return fail == FAIL_NONE;
}

static void compile_and_use(void *user, const char *library)
{
    struct trying *y = user;
    struct context *ctx = y->trial->ctx;
    struct options compiling = *y->options;
    mcc_host host = {.size = sizeof host, .event = y->trial->event, .user = y->trial->event_user};
    host.threads = host.event ? 1 : 0;
    const char *path = ctx->model_path;
    compiling.output = library;
    if (!compile_apart(ctx, &compiling, y->model, NULL, y->trial->probe, NULL, NULL))
        return;
    bool open = session_open(&y->trial->s, ctx, y->trial->options, library, &host);
    ctx->model_path = path;
    if (open)
        y->use(y->user);
}

static void end_session(void *user)
{
    session_close(&((struct trying *)user)->trial->s);
}

bool trial_run(struct trial *t, const struct options *compiling, const char *model, void (*use)(void *user), void *user)
{
    struct trying y = {t, compiling, model, use, user};
    t->s = (struct session){0};
    return with_temporary(t->ctx, "net.so", compile_and_use, end_session, &y) && t->ctx->fail == FAIL_NONE;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static bool run_sample(struct trial *t, uint32_t k, DLManagedTensorVersioned **out)
{
    struct session *s = &t->s;
    DLTensor *in = NEW_ARRAY(&t->ctx->session, DLTensor, t->samples.n_inputs + 1);
    const DLTensor **at = NEW_ARRAY(&t->ctx->session, const DLTensor *, t->samples.n_inputs + 1);
    in[t->samples.n_inputs] = (DLTensor){&t->product, {kDLCPU, 0}, 0, elem_dlpack(ELEM_I64), NULL, NULL, 0};
    at[t->samples.n_inputs] = &in[t->samples.n_inputs]; /* of a probe */
    for (uint32_t i = 0; i < t->samples.n_inputs; i++) {
        struct file_tensor *b = &t->samples.of[k * t->samples.n_inputs + i];
        in[i] = (DLTensor){b->data, {kDLCPU, 0}, b->rank, elem_dlpack(b->elem), b->dims, NULL, 0};
        at[i] = &in[i];
    }
    return session_reset(s) &&
           (s->api->run_dlpack(s->run, at, out, &s->error) == MCC_OK || session_error(s, "a sample"));
}

const void *trial_data(const DLTensor *t)
{
    return (const char *)t->data + t->byte_offset;
}

static bool trial_begin(struct trial *t)
{
    struct arena *arena = &t->ctx->session;
    for (uint32_t i = 0; i < t->n_want; i++)
        if (t->s.api->out[i].flags & ~(uint64_t)MCC_PORT_DYNAMIC)
            return error_at(t->ctx, FAIL_USAGE, (src_id){0}, t->s.api->out[i].name,
                            "this output is not a tensor, and only tensors can be compared");
    if (!samples_load(&t->s, &t->options->samples, &t->samples))
        return false;
    if (t->samples.drawn)
        warn_at(
            t->ctx, (src_id){0}, "samples",
            "the inputs are drawn at random, and real ones may behave otherwise; give some with --sample NAME=FILE");
    t->want = NEW_ARRAY(arena, struct tensor, (size_t)t->samples.n * t->n_want + 1);
    t->error = NEW_ARRAY(arena, struct deviation, t->n_want + 1);
    return true;
}

/* Numbers of a byte and more; what else there is is not held against anything. */
static bool is_measured(enum elem elem)
{
    return elem_bits(elem) >= 8 && elem_class(elem) != 'C' && elem_class(elem) != 'S';
}

static void keep_outputs(struct trial *t, uint32_t k, DLManagedTensorVersioned *const *out)
{
    struct arena *arena = &t->ctx->session;
    for (uint32_t i = 0; i < t->n_want; i++) {
        const DLTensor *from = &out[i]->dl_tensor;
        struct tensor *w = &t->want[k * t->n_want + i];
        *w = (struct tensor){.kind = TYPE_TENSOR, .elem = elem_by_dlpack(from->dtype), .rank = from->ndim};
        w->dims = arena_copy(arena, from->shape, sizeof *from->shape * (size_t)from->ndim);
        if (is_measured(w->elem))
            w->data = arena_copy(arena, trial_data(from), (size_t)tensor_count(w) * elem_size(w->elem));
    }
}

bool trial_observe(struct trial *t, trial_see *see, void *user)
{
    const bool first = !t->want;
    if (first && !trial_begin(t))
        return false;
    const uint32_t n = t->s.api->n_out;
    DLManagedTensorVersioned **out = NEW_ARRAY(&t->ctx->session, DLManagedTensorVersioned *, n + 1);
    bool ok = true;
    for (uint32_t k = 0; ok && k < t->samples.n; k++) {
        if (!first && t->use && !t->use[k])
            continue;
        if (!run_sample(t, k, out))
            return false;
        ok = !see || see(user, k, out);
        if (ok && first)
            keep_outputs(t, k, out);
        for (uint32_t i = 0; i < n; i++)
            out[i]->deleter(out[i]);
    }
    return ok;
}

double trial_worst(const struct trial *t, double (*measure)(const struct deviation *))
{
    double worst = 0;
    for (uint32_t i = 0; i < t->n_want; i++)
        worst = fmax(worst, measure(&t->error[i]));
    return worst;
}
