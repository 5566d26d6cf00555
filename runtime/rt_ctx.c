/* Contexts: where a run keeps its tables and its workspace. Either the host gives one block, then nothing is ever
 * allocated, or the context allocates through the host and grows with the shapes (rt_run.c).
 */
#include "runtime/rt_internal.h"

#include "runtime/rt_libc.h"

bool rt_is_dynamic(const struct mcc_rt_desc *desc, uint32_t k)
{
    const mcc_port *port = &desc->api->out[k];
    uint64_t flags = rt_port_flags(desc, desc->api->n_in + k);
    if ((flags & MCC_PORT_DYNAMIC) || !rt_port_has_dims(port, flags))
        return true;
    for (int32_t i = 0; i < port->ndim; i++)
        if (port->dims[i].extent == -1 && port->dims[i].symbol < 0)
            return true;
    return false;
}

/* Outputs of which the program tells shape and place need a record each. */
static uint32_t record_count(const struct mcc_rt_desc *desc)
{
    for (uint32_t k = 0; k < desc->api->n_out; k++)
        if (rt_is_dynamic(desc, k))
            return desc->api->n_out;
    return 0;
}

static size_t word_count(const struct mcc_rt_desc *desc)
{
    return (size_t)desc->n_in_dims + desc->n_sym + 1 + desc->n_out_dims + desc->api->n_in + desc->api->n_out + 2 +
           desc->n_sym;
}

int64_t rt_ctx_fixed_bytes(const struct mcc_model *model)
{
    const struct mcc_rt_desc *desc = model->desc;
    size_t ports = (size_t)desc->api->n_in + desc->api->n_out;
    return rt_round_up((int64_t)(sizeof(struct mcc_ctx) + word_count(desc) * sizeof(int64_t) +
                                 ports * sizeof(struct rt_bound) + record_count(desc) * sizeof(struct rt_output)));
}

int64_t rt_ctx_scratch_bytes(const struct mcc_model *model)
{
    return ((int64_t)model->threads + 1) * model->scratch;
}

static void place_tables(struct mcc_ctx *ctx, const struct mcc_rt_desc *desc)
{
    const mcc_api *api = desc->api;
    int64_t *words = (int64_t *)(void *)(ctx + 1);
    ctx->dims = words;
    ctx->plan = ctx->dims + desc->n_in_dims;
    ctx->args = ctx->plan + desc->n_sym + 1 + desc->n_out_dims;
    ctx->bound = (struct rt_bound *)(void *)(words + word_count(desc));
    if (record_count(desc))
        ctx->run.outputs = (struct rt_output *)(void *)(ctx->bound + api->n_in + api->n_out);
}

/* A block of the host's: the context at its start, the rest is the work region. */
static int ctx_in_memory(struct mcc_model *model, void *mem, size_t bytes, mcc_ctx **result, mcc_error *error)
{
    size_t skip = (size_t)(-(uintptr_t)mem % RT_ALIGN), fixed = (size_t)rt_ctx_fixed_bytes(model);
    if (bytes < skip || bytes - skip < fixed || bytes - skip - fixed < (size_t)rt_ctx_scratch_bytes(model))
        return rt_error(error, MCC_E_NOMEM, -1, "ctx_new: %lld bytes are too few, a context takes %lld",
                        (long long)bytes, (long long)(skip + fixed) + (long long)rt_ctx_scratch_bytes(model));
    struct mcc_ctx *ctx = (struct mcc_ctx *)(void *)((char *)mem + skip);
    memset(ctx, 0, fixed);
    ctx->work = (char *)ctx + fixed;
    ctx->work_size = (bytes - skip - fixed) / RT_ALIGN * RT_ALIGN;
    *result = ctx;
    return MCC_OK;
}

static int ctx_allocated(struct mcc_model *model, mcc_ctx **result, mcc_error *error)
{
    size_t fixed = (size_t)rt_ctx_fixed_bytes(model);
    struct mcc_ctx *ctx = rt_alloc(model, fixed);
    if (!ctx)
        return rt_error(error, MCC_E_NOMEM, -1, "ctx_new: out of memory");
    memset(ctx, 0, fixed);
    ctx->owned = true;
    ctx->size = fixed;
    *result = ctx;
    return MCC_OK;
}

int mcc_rt_ctx_new(mcc_model *model, void *mem, size_t bytes, mcc_ctx **result, mcc_error *error)
{
    if (!model || !result)
        return rt_error(error, MCC_E_ARG, -1, "ctx_new: %s is NULL", model ? "the result" : "the model");
    *result = NULL;
    if (__atomic_load_n(&model->closed, __ATOMIC_ACQUIRE))
        return rt_error(error, MCC_E_ARG, -1, "ctx_new: the model is closed");
    int code = mem ? ctx_in_memory(model, mem, bytes, result, error) : ctx_allocated(model, result, error);
    if (code)
        return code;
    (*result)->run.model = model;
    (*result)->run.threads = model->threads;
    place_tables(*result, model->desc);
    __atomic_fetch_add(&model->references, 1, __ATOMIC_RELAXED);
    return MCC_OK;
}

void mcc_rt_ctx_free(mcc_ctx *ctx)
{
    if (!ctx)
        return;
    struct mcc_model *model = ctx->run.model;
    if (ctx->owned) {
        rt_release(model, ctx->work, ctx->work_size);
        rt_release(model, ctx, ctx->size);
    }
    rt_model_drop(model);
}

void mcc_rt_cancel(mcc_ctx *ctx)
{
    int32_t going = 0;
    if (ctx && __atomic_load_n(&ctx->busy, __ATOMIC_ACQUIRE))
        __atomic_compare_exchange_n(&ctx->run.stop, &going, MCC_E_CANCELLED, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}
