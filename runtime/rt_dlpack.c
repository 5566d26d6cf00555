/* run_dlpack(): outputs allocated by the artifact, one block each: the managed tensor, its extents, 64-aligned data.
 * Where the data decides a size, the block is the segment that the run made, if the output fills at least half of it.
 * The deleter needs nothing but the block itself, so it works after ctx_free and close, though not after dlclose.
 */
#include "runtime/rt_internal.h"

#include "runtime/rt_libc.h"

struct managed {
    DLManagedTensorVersioned tensor;
    mcc_host host; /* who allocated it */
    size_t bytes;
    int64_t dims[RT_RANK_MAX];
};
_Static_assert(sizeof(struct managed) <= RT_SEGMENT_HEAD && RT_SEGMENT_HEAD % RT_ALIGN == 0,
               "data is behind the header");

static void managed_delete(DLManagedTensorVersioned *tensor)
{
    if (!tensor)
        return;
    struct managed *block = tensor->manager_ctx;
    struct mcc_model owner = {.host = block->host};
    rt_release(&owner, block, block->bytes);
}

/* Makes the memory at `at`, of `bytes` bytes, a block: its header, then the data. */
static DLManagedTensorVersioned *managed_in(void *at, int64_t bytes, const struct mcc_model *model,
                                            const mcc_port *port, int64_t rank, const int64_t *dims)
{
    struct managed *block = at;
    memset(block, 0, sizeof *block);
    block->host = model->host;
    block->bytes = (size_t)bytes;
    memcpy(block->dims, dims, (size_t)rank * sizeof *dims);
    block->tensor = (DLManagedTensorVersioned){
        .version = {1, 1},
        .manager_ctx = block,
        .deleter = managed_delete,
        .dl_tensor = {.data = (char *)at + RT_SEGMENT_HEAD,
                      .device = {kDLCPU, 0},
                      .ndim = (int32_t)rank,
                      .dtype = port->dtype,
                      .shape = block->dims},
    };
    return &block->tensor;
}

static DLManagedTensorVersioned *managed_new(const struct mcc_ctx *ctx, const mcc_port *port, int64_t rank,
                                             const int64_t *dims)
{
    int64_t bytes;
    if (!rt_port_bytes(port, rank, dims, &bytes) || bytes > INT64_MAX - RT_SEGMENT_HEAD - RT_ALIGN)
        return NULL;
    void *block = rt_alloc(ctx->run.model, (size_t)(RT_SEGMENT_HEAD + bytes));
    return block ? managed_in(block, RT_SEGMENT_HEAD + bytes, ctx->run.model, port, rank, dims) : NULL;
}

/* Before the run: blocks for outputs of planned shape. */
static int make_planned(struct mcc_ctx *ctx, DLManagedTensorVersioned **out, uint32_t n, mcc_error *error)
{
    const struct mcc_rt_desc *desc = ctx->run.model->desc;
    const mcc_api *api = desc->api;
    for (uint32_t k = 0; k < n; k++) {
        const mcc_port *port = &api->out[k];
        ctx->args[api->n_in + k] = 0;
        if (!rt_port_is_plain(rt_port_flags(desc, api->n_in + k)))
            return rt_error(error, MCC_E_ARG, -1, "output '%s' is not a plain tensor: only run_values serves it",
                            port->name);
        if (ctx->run.outputs && rt_is_dynamic(desc, k))
            continue;
        out[k] = managed_new(ctx, port, port->ndim, rt_planned_dims(ctx, k));
        if (!out[k])
            return rt_error(error, MCC_E_NOMEM, -1, "output '%s': out of memory", port->name);
        ctx->args[api->n_in + k] = (int64_t)(intptr_t)out[k]->dl_tensor.data;
    }
    return MCC_OK;
}

/* After the run: outputs have no strides. */
static void compact_planned(const struct mcc_ctx *ctx, DLManagedTensorVersioned **out, uint32_t n)
{
    const mcc_api *api = ctx->run.model->api;
    for (uint32_t k = 0; k < n; k++)
        if (out[k] && rt_has_room(&api->out[k]))
            rt_compact(&api->out[k], rt_planned_dims(ctx, k), out[k]->dl_tensor.data, out[k]->dl_tensor.data);
}

/* After the run: what the data decided. */
static int take_dynamic(struct mcc_ctx *ctx, DLManagedTensorVersioned **out, uint32_t n, mcc_error *error)
{
    const mcc_api *api = ctx->run.model->api;
    for (uint32_t k = 0; k < n; k++) {
        int64_t rank, bytes;
        const int64_t *dims;
        const void *data;
        if (out[k])
            continue;
        int code = rt_output_dims(ctx, k, &rank, &dims, &data, error);
        if (code)
            return code;
        rt_tensor_bytes(api->out[k].dtype, rank, dims, &bytes);
        struct rt_segment *made = bytes > 0 ? rt_run_take(&ctx->run, data, bytes) : NULL;
        if (made) {
            out[k] = managed_in(made, made->bytes, ctx->run.model, &api->out[k], rank, dims);
            continue;
        }
        out[k] = managed_new(ctx, &api->out[k], rank, dims);
        if (!out[k])
            return rt_error(error, MCC_E_NOMEM, -1, "output '%s': out of memory", api->out[k].name);
        if (bytes > 0)
            memcpy(out[k]->dl_tensor.data, data, (size_t)bytes);
    }
    return MCC_OK;
}

int rt_run_dlpack_into(mcc_ctx *ctx, const DLTensor *const *in, DLManagedTensorVersioned **out, uint32_t n,
                       DLTensor *const *given, mcc_error *error)
{
    int code = rt_run_begin(ctx, in, out, error);
    if (code)
        return code;
    const mcc_api *api = ctx->run.model->api;
    for (uint32_t k = 0; k < n; k++)
        out[k] = NULL;
    code = rt_run_inputs(ctx, in, RT_DLPACK, error);
    if (!code)
        code = make_planned(ctx, out, n, error);
    for (uint32_t k = n; k < api->n_out; k++)
        ctx->args[api->n_in + k] = (int64_t)(intptr_t)given[k]->data;
    if (!code)
        code = rt_run_program(ctx, error);
    if (!code)
        compact_planned(ctx, out, n);
    if (!code)
        code = take_dynamic(ctx, out, n, error);
    for (uint32_t k = 0; code && k < n; k++) {
        managed_delete(out[k]);
        out[k] = NULL;
    }
    rt_run_end(ctx);
    return code;
}

int mcc_rt_run_dlpack(mcc_ctx *ctx, const DLTensor *const *in, DLManagedTensorVersioned **out, mcc_error *error)
{
    return rt_run_dlpack_into(ctx, in, out, ctx ? ctx->run.model->api->n_out : 0, NULL, error);
}
