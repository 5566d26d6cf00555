/* Networks with state: tensors that a context keeps from run to run (mcc_state).
 *
 * For the rest of the runtime they are the last inputs and outputs of another table of ports (struct mcc_rt_stateful).
 * A context here is one of that network, and two buffers for each state: a run reads one and writes the other, and they
 * change places when it has succeeded. A state whose output may be its input's memory (mcc_port.alias) has one, of
 * which a run writes some rows.
 */
#include "runtime/rt_internal.h"

#include "runtime/rt_libc.h"

struct state_ctx {
    mcc_ctx *inner;
    struct mcc_model *model;
    uint32_t busy;
    bool owned;
    size_t size; /* of the block, which begins here */
    const DLTensor **in; /* n_in + n_state pointers, of which the last point to `now` */
    DLTensor **out; /* the same of outputs and `next` */
    DLManagedTensorVersioned **managed;
    mcc_value *in_value, *out_value;
    DLTensor *now, *next; /* n_state */
};

static const struct mcc_rt_stateful *stateful(void)
{
    return &mcc_rt_keeping;
}

static uint32_t user_in(void)
{
    return stateful()->inner.api->n_in - stateful()->n_state;
}

static uint32_t user_out(void)
{
    return stateful()->inner.api->n_out - stateful()->n_state;
}

static bool in_place(uint32_t k)
{
    return stateful()->inner.api->out[user_out() + k].alias == (uint64_t)user_in() + k + 1;
}

int mcc_rt_state_open(const mcc_host *host, mcc_model **result, mcc_error *error)
{
    int code = rt_open_desc(&stateful()->outer, host, result, error); /* which has the hashes of the weights */
    if (code)
        return code;
    (*result)->desc = &stateful()->inner;
    (*result)->api = stateful()->inner.api;
    return MCC_OK;
}

/* ---- contexts ---------------------------------------------------------------------------------------------------- */

/* Hands out pieces of a block; NULL: only counts. */
struct piece {
    char *at;
    int64_t used;
};

static void *take(struct piece *p, int64_t bytes)
{
    void *result = p->at ? p->at + p->used : NULL;
    p->used += rt_round_up(bytes);
    return result;
}

static int64_t ctx_lay_out(struct state_ctx *s, char *at)
{
    const struct mcc_rt_stateful *desc = stateful();
    const mcc_api *api = desc->inner.api;
    struct piece p = {at, 0};
    take(&p, sizeof *s);
    s->in = take(&p, api->n_in * (int64_t)sizeof *s->in);
    s->out = take(&p, api->n_out * (int64_t)sizeof *s->out);
    s->managed = take(&p, api->n_out * (int64_t)sizeof *s->managed);
    s->in_value = take(&p, api->n_in * (int64_t)sizeof *s->in_value);
    s->out_value = take(&p, api->n_out * (int64_t)sizeof *s->out_value);
    s->now = take(&p, desc->n_state * (int64_t)sizeof *s->now);
    s->next = take(&p, desc->n_state * (int64_t)sizeof *s->next);
    for (uint32_t k = 0; k < desc->n_state; k++) {
        const mcc_port *port = &api->in[user_in() + k];
        void *now = take(&p, (int64_t)desc->states[k].bytes);
        void *next = in_place(k) ? now : take(&p, (int64_t)desc->states[k].bytes);
        if (!at)
            continue;
        s->now[k] = (DLTensor){.data = now,
                               .device = {kDLCPU, 0},
                               .ndim = port->ndim,
                               .dtype = port->dtype,
                               .shape = (int64_t *)(uintptr_t)desc->states[k].dims};
        s->next[k] = s->now[k];
        s->next[k].data = next;
        s->in[user_in() + k] = &s->now[k];
        s->out[user_out() + k] = &s->next[k];
    }
    return p.used;
}

static void states_begin(struct state_ctx *s)
{
    const struct mcc_rt_stateful *desc = stateful();
    for (uint32_t k = 0; k < desc->n_state; k++) {
        const struct mcc_rt_state *state = &desc->states[k];
        char *to = s->now[k].data;
        if (!state->initial) {
            memset(to, 0, (size_t)state->bytes);
            continue;
        }
        memcpy(to, state->initial, (size_t)state->period);
        for (uint64_t done = state->period; done < state->bytes; done *= 2)
            memcpy(to + done, to, (size_t)(state->bytes - done < done ? state->bytes - done : done));
    }
}

int mcc_rt_state_ctx_new(mcc_model *model, void *mem, size_t bytes, mcc_ctx **result, mcc_error *error)
{
    if (!model || !result)
        return rt_error(error, MCC_E_ARG, -1, "ctx_new: %s is NULL", model ? "the result" : "the model");
    *result = NULL;
    struct state_ctx start = {.model = model, .owned = !mem};
    size_t skip = mem ? (size_t)(-(uintptr_t)mem % RT_ALIGN) : 0;
    start.size = (size_t)ctx_lay_out(&start, NULL);
    if (mem && (bytes < skip || bytes - skip < start.size))
        return rt_error(error, MCC_E_NOMEM, -1, "ctx_new: %lld bytes are too few, the state takes %lld",
                        (long long)bytes, (long long)(skip + start.size));
    char *at = mem ? (char *)mem + skip : rt_alloc(model, start.size);
    if (!at)
        return rt_error(error, MCC_E_NOMEM, -1, "ctx_new: out of memory");
    int code = mcc_rt_ctx_new(model, mem ? at + start.size : NULL, mem ? bytes - skip - start.size : 0, &start.inner,
                              error);
    if (code) {
        if (!mem)
            rt_release(model, at, start.size);
        return code;
    }
    struct state_ctx *s = (struct state_ctx *)(void *)at;
    *s = start;
    ctx_lay_out(s, at);
    states_begin(s);
    *result = (mcc_ctx *)(void *)s;
    return MCC_OK;
}

void mcc_rt_state_ctx_free(mcc_ctx *ctx)
{
    struct state_ctx *s = (struct state_ctx *)(void *)ctx;
    if (!s)
        return;
    struct mcc_model owner = {.host = s->model->host};
    mcc_ctx *inner = s->inner;
    if (s->owned)
        rt_release(&owner, s, s->size);
    mcc_rt_ctx_free(inner);
}

void mcc_rt_state_cancel(mcc_ctx *ctx)
{
    if (ctx)
        mcc_rt_cancel(((struct state_ctx *)(void *)ctx)->inner);
}

void mcc_rt_state_value_release(mcc_ctx *ctx, mcc_value *value)
{
    if (ctx)
        mcc_rt_value_release(((struct state_ctx *)(void *)ctx)->inner, value);
}

int mcc_rt_state_plan(const mcc_model *model, const DLTensor *const *in, int64_t *const *out_shape, size_t *ctx_bytes,
                      mcc_error *error)
{
    if (!model || (!in && user_in() > 0))
        return rt_error(error, MCC_E_ARG, -1, "plan: %s is NULL", model ? "the array of inputs" : "the model");
    const mcc_api *api = stateful()->inner.api;
    struct state_ctx s = {0};
    size_t state = (size_t)ctx_lay_out(&s, NULL), tables = (size_t)(api->n_in + api->n_out) * sizeof(void *);
    size_t bytes = tables + stateful()->n_state * sizeof(DLTensor);
    char *memory = rt_alloc(model, bytes);
    if (!memory)
        return rt_error(error, MCC_E_NOMEM, -1, "plan: out of memory");
    memset(memory, 0, bytes);
    const DLTensor **tensors = (const DLTensor **)(void *)memory;
    int64_t **shapes = (int64_t **)(void *)(tensors + api->n_in);
    DLTensor *own = (DLTensor *)(void *)(memory + tables);
    for (uint32_t k = 0; k < user_in(); k++)
        tensors[k] = in[k];
    for (uint32_t k = 0; k < user_out() && out_shape; k++)
        shapes[k] = out_shape[k];
    for (uint32_t k = 0; k < stateful()->n_state; k++) {
        const mcc_port *port = &api->in[user_in() + k];
        own[k] = (DLTensor){.device = {kDLCPU, 0},
                            .ndim = port->ndim,
                            .dtype = port->dtype,
                            .shape = (int64_t *)(uintptr_t)stateful()->states[k].dims};
        tensors[user_in() + k] = &own[k];
    }
    int code = mcc_rt_plan(model, tensors, shapes, ctx_bytes, error);
    rt_release(model, memory, bytes);
    if (!code && ctx_bytes && __builtin_add_overflow(*ctx_bytes, state + RT_ALIGN, ctx_bytes))
        return rt_error(error, MCC_E_SHAPE, -1, "the workspace for these shapes overflows");
    return code;
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static int begin(struct state_ctx *s, const char *what, mcc_error *error)
{
    if (!s)
        return rt_error(error, MCC_E_ARG, -1, "%s: the context is NULL", what);
    if (__atomic_exchange_n(&s->busy, 1, __ATOMIC_ACQUIRE))
        return rt_error(error, MCC_E_BUSY, -1, "%s: the context is in a run", what);
    return MCC_OK;
}

static int end(struct state_ctx *s, int code)
{
    __atomic_store_n(&s->busy, 0, __ATOMIC_RELEASE);
    return code;
}

static int begin_run(struct state_ctx *s, const void *in, const void *out, mcc_error *error)
{
    if ((!in && user_in() > 0) || (!out && user_out() > 0))
        return rt_error(error, MCC_E_ARG, -1, "run: the array of %s is NULL", in ? "outputs" : "inputs");
    return begin(s, "run", error);
}

static int begin_tensors(struct state_ctx *s, const DLTensor *const *in, const void *out, mcc_error *error)
{
    int code = begin_run(s, in, out, error);
    for (uint32_t k = 0; !code && k < user_in(); k++)
        s->in[k] = in[k];
    return code;
}

/* The run has succeeded. */
static void states_turn(struct state_ctx *s)
{
    for (uint32_t k = 0; k < stateful()->n_state; k++) {
        void *now = s->now[k].data;
        s->now[k].data = s->next[k].data;
        s->next[k].data = now;
    }
}

/* The run has written the states elsewhere: all have to fit before one is taken. */
static int state_fits(uint32_t k, const DLTensor *t, mcc_error *error)
{
    const mcc_port *port = &stateful()->inner.api->in[user_in() + k];
    bool fits = t && t->ndim == port->ndim;
    for (int32_t d = 0; fits && d < t->ndim; d++)
        fits = t->shape[d] == stateful()->states[k].dims[d];
    return fits ? MCC_OK : rt_error(error, MCC_E_SHAPE, -1, "run: the state '%s' has another shape now", port->name);
}

int mcc_rt_state_run(mcc_ctx *ctx, const DLTensor *const *in, DLTensor *const *out, mcc_error *error)
{
    struct state_ctx *s = (struct state_ctx *)(void *)ctx;
    int code = begin_tensors(s, in, out, error);
    if (code)
        return code;
    for (uint32_t k = 0; k < user_out(); k++)
        s->out[k] = out[k];
    code = mcc_rt_run_api(s->inner, s->in, s->out, error);
    if (!code)
        states_turn(s);
    return end(s, code);
}

int mcc_rt_state_run_dlpack(mcc_ctx *ctx, const DLTensor *const *in, DLManagedTensorVersioned **out, mcc_error *error)
{
    struct state_ctx *s = (struct state_ctx *)(void *)ctx;
    int code = begin_tensors(s, in, out, error);
    if (code)
        return code;
    code = rt_run_dlpack_into(s->inner, s->in, s->managed, user_out(), s->out, error);
    if (!code)
        states_turn(s);
    for (uint32_t k = 0; k < user_out(); k++)
        out[k] = code ? NULL : s->managed[k];
    return end(s, code);
}

int mcc_rt_state_run_values(mcc_ctx *ctx, const mcc_value *in, mcc_value *out, mcc_error *error)
{
    struct state_ctx *s = (struct state_ctx *)(void *)ctx;
    int code = begin_run(s, in, out, error);
    if (code)
        return code;
    for (uint32_t k = 0; k < user_in(); k++)
        s->in_value[k] = in[k];
    for (uint32_t k = 0; k < stateful()->n_state; k++)
        s->in_value[user_in() + k] = (mcc_value){.kind = MCC_TENSOR, .present = 1, .tensor = &s->now[k]};
    code = mcc_rt_run_values(s->inner, s->in_value, s->out_value, error);
    const bool made = !code;
    const mcc_value *next = s->out_value + user_out();
    for (uint32_t k = 0; !code && k < stateful()->n_state; k++)
        code = state_fits(k, next[k].tensor, error);
    for (uint32_t k = 0; !code && k < stateful()->n_state; k++)
        memcpy(s->now[k].data, (const char *)next[k].tensor->data + next[k].tensor->byte_offset,
               (size_t)stateful()->states[k].bytes);
    for (uint32_t k = code ? 0 : user_out(); made && k < user_out() + stateful()->n_state; k++)
        mcc_rt_value_release(s->inner, &s->out_value[k]);
    for (uint32_t k = 0; k < user_out(); k++)
        out[k] = code ? (mcc_value){0} : s->out_value[k];
    return end(s, code);
}

/* ---- what hosts see of it ---------------------------------------------------------------------------------------- */

int mcc_rt_state_reset(mcc_ctx *ctx, mcc_error *error)
{
    struct state_ctx *s = (struct state_ctx *)(void *)ctx;
    int code = begin(s, "reset", error);
    if (code)
        return code;
    states_begin(s);
    return end(s, MCC_OK);
}

int mcc_rt_state_tensor(mcc_ctx *ctx, uint32_t k, DLTensor *tensor, mcc_error *error)
{
    struct state_ctx *s = (struct state_ctx *)(void *)ctx;
    int code = begin(s, "state", error);
    if (code)
        return code;
    if (!tensor || k >= stateful()->n_state)
        return end(
            s, rt_error(error, MCC_E_ARG, -1, "state: %s", tensor ? "there is no such state" : "the tensor is NULL"));
    *tensor = s->now[k];
    return end(s, MCC_OK);
}
