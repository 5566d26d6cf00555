/* run_values(): every kind of port. Values of the host become handles for the run (tensors borrowed where they are
 * compact and aligned, else copied); results become one block per output that owns all of its parts: value_release
 * finds its size in front of the first. Nesting is at most optional(sequence(tensor)) or sequence(map), so recursion is
 * bounded by DEPTH_MAX whatever the host passes.
 */
#include "runtime/rt_internal.h"
#include "runtime/ops/rt_ops.h"

#include "runtime/rt_libc.h"

enum { DEPTH_MAX = 4 };

/* ---- in ------------------------------------------------------------------------------------------------------ */

/* What a value looks like at a port, and one level further in. */
static int32_t kind_of(uint64_t flags)
{
    return flags & MCC_PORT_OPTIONAL   ? MCC_OPTIONAL
           : flags & MCC_PORT_SEQUENCE ? MCC_SEQUENCE
           : flags & MCC_PORT_MAP      ? MCC_MAP
                                       : MCC_TENSOR;
}

static uint64_t flags_inside(uint64_t flags)
{
    return flags & MCC_PORT_OPTIONAL   ? flags & ~(uint64_t)MCC_PORT_OPTIONAL
           : flags & MCC_PORT_SEQUENCE ? flags & ~(uint64_t)MCC_PORT_SEQUENCE
                                       : flags & ~(uint64_t)MCC_PORT_MAP;
}

static int take_tensor(struct mcc_rt_run *run, const mcc_port *port, const DLTensor *tensor, bool keys,
                       struct mcc_rt_value **result, mcc_error *error)
{
    if (!tensor || tensor->ndim < 0 || tensor->ndim > RT_RANK_MAX || (tensor->ndim > 0 && !tensor->shape) ||
        tensor->device.device_type != kDLCPU)
        return rt_error(error, MCC_E_ARG, -1, "input '%s': a tensor inside is NULL or has no sensible shape",
                        port->name);
    bool same = tensor->dtype.code == port->dtype.code && tensor->dtype.bits == port->dtype.bits;
    if ((!same && !keys) || tensor->dtype.lanes != 1 || tensor->dtype.bits < 8)
        return rt_error(error, MCC_E_DTYPE, -1, "input '%s': a tensor inside has another type", port->name);
    struct rt_bound bound;
    for (int32_t i = 0; i < tensor->ndim; i++)
        if (tensor->shape[i] < 0)
            return rt_error(error, MCC_E_SHAPE, -1, "input '%s': dim %lld is negative", port->name, (long long)i);
    if (!rt_tensor_bytes(tensor->dtype, tensor->ndim, tensor->shape, &bound.bytes))
        return rt_error(error, MCC_E_SHAPE, -1, "input '%s': its size overflows", port->name);
    int code = rt_bind_input(port, tensor, &bound, error);
    if (code)
        return code;
    if (bound.caller) {
        bound.data = rt_run_alloc(run, bound.bytes);
        if (!bound.data)
            return rt_error_run(run, error);
        rt_copy_input(port, tensor, &bound);
    }
    *result = rt_value_tensor(run, rt_elem_of(tensor->dtype), tensor->ndim, tensor->shape, bound.data);
    return rt_error_run(run, error);
}

static int take_value(struct mcc_rt_run *run, const mcc_port *port, const mcc_value *value, uint64_t flags, int depth,
                      struct mcc_rt_value **result, mcc_error *error)
{
    int32_t kind = kind_of(flags);
    if (value->kind != kind || depth > DEPTH_MAX)
        return rt_error(error, MCC_E_ARG, -1, "input '%s': a value of kind %lld where %lld is expected", port->name,
                        (long long)value->kind, (long long)kind);
    if (kind == MCC_TENSOR)
        return take_tensor(run, port, value->tensor, false, result, error);
    size_t n = kind == MCC_OPTIONAL ? value->present != 0 : value->n;
    size_t slots = kind == MCC_MAP ? 2 * n : n;
    if (n > (size_t)INT32_MAX || (n > 0 && !value->item))
        return rt_error(error, MCC_E_ARG, -1, "input '%s': items are NULL or too many", port->name);
    struct mcc_rt_value **items;
    *result = rt_value_list(run, kind, rt_elem_of(port->dtype), (int64_t)n, &items);
    if (!*result)
        return rt_error_run(run, error);
    for (size_t i = 0; i < slots; i++) {
        bool keys = kind == MCC_MAP && i < n;
        int code = keys ? take_tensor(run, port, value->item[i].tensor, true, &items[i], error)
                        : take_value(run, port, &value->item[i], flags_inside(flags), depth + 1, &items[i], error);
        if (code)
            return code;
    }
    return MCC_OK;
}

static int take_inputs(struct mcc_ctx *ctx, const mcc_value *in, mcc_error *error)
{
    const struct mcc_rt_desc *desc = ctx->run.model->desc;
    for (uint32_t k = 0; k < desc->api->n_in; k++) {
        uint64_t flags = rt_port_flags(desc, k);
        struct mcc_rt_value *value = NULL;
        if (rt_port_is_tensor(flags))
            continue;
        int code = take_value(&ctx->run, &desc->api->in[k], &in[k], flags, 0, &value, error);
        if (code)
            return code;
        ctx->args[k] = (int64_t)(intptr_t)value;
    }
    return MCC_OK;
}

/* The plain tensors among the inputs, as run takes them. */
static int bind_tensors(struct mcc_ctx *ctx, const mcc_value *in, mcc_error *error)
{
    const struct mcc_rt_desc *desc = ctx->run.model->desc;
    const mcc_api *api = desc->api;
    const DLTensor **tensors = rt_run_alloc(&ctx->run, ((int64_t)api->n_in + 1) * (int64_t)sizeof *tensors);
    if (!tensors)
        return rt_error_run(&ctx->run, error);
    for (uint32_t k = 0; k < api->n_in; k++) {
        tensors[k] = NULL;
        if (!rt_port_is_tensor(rt_port_flags(desc, k)))
            continue;
        if (in[k].kind != MCC_TENSOR)
            return rt_error(error, MCC_E_ARG, -1, "input '%s': a tensor is expected", api->in[k].name);
        tensors[k] = in[k].tensor;
    }
    return rt_run_inputs(ctx, tensors, RT_VALUES, error);
}

/* ---- out --------------------------------------------------------------------------------------------------------- */

/* Hands out pieces of one block, or with base NULL only counts: the same walk does both. */
struct builder {
    char *base;
    int64_t used;
    bool overflow;
};

struct block_head {
    struct mcc_ctx *ctx;
    int64_t bytes;
}; /* in the RT_ALIGN bytes before the first piece */

static void *take(struct builder *b, int64_t bytes, int64_t align)
{
    int64_t at = (b->used + align - 1) & -align;
    b->overflow |= bytes < 0 || __builtin_add_overflow(at, bytes, &b->used);
    return b->base ? b->base + at : NULL;
}

static void give_strings(struct builder *b, const struct rt_string *from, struct rt_string *to, int64_t n)
{
    for (int64_t i = 0; i < n && !b->overflow; i++) {
        char *text = take(b, (int64_t)from[i].bytes, 1);
        if (!text)
            continue;
        if (from[i].bytes > 0)
            memcpy(text, from[i].utf8, from[i].bytes);
        to[i] = (struct rt_string){text, from[i].bytes};
    }
}

static void give_tensor(struct builder *b, const struct mcc_rt_value *value, mcc_value *to)
{
    DLDataType dtype = rt_elem_dtype(value->elem);
    DLTensor *tensor = take(b, sizeof *tensor, 16);
    int64_t *dims = take(b, value->rank * (int64_t)sizeof *dims, 16);
    int64_t bytes;
    b->overflow |= !rt_tensor_bytes(dtype, value->rank, value->dims, &bytes);
    void *data = take(b, bytes, RT_ALIGN);
    if (value->elem == RT_ELEM_STR)
        give_strings(b, value->data, data, value->n);
    if (!tensor)
        return;
    memcpy(dims, value->dims, (size_t)value->rank * sizeof *dims);
    if (value->elem != RT_ELEM_STR && bytes > 0)
        memcpy(data, value->data, (size_t)bytes);
    *tensor = (DLTensor){
        .data = data, .device = {kDLCPU, 0}, .ndim = (int32_t)value->rank, .dtype = dtype, .shape = dims};
    *to = (mcc_value){.kind = MCC_TENSOR, .present = 1, .tensor = tensor};
}

/* `to` is written only when the block exists. */
static void give_value(struct builder *b, const struct mcc_rt_value *value, mcc_value *to, int depth)
{
    if (value->kind == MCC_TENSOR) {
        give_tensor(b, value, to);
        return;
    }
    int64_t slots = value->kind == MCC_MAP ? 2 * value->n : value->n;
    mcc_value *items = take(b, slots * (int64_t)sizeof *items, 16);
    for (int64_t i = 0; i < slots && depth < DEPTH_MAX && !b->overflow; i++)
        give_value(b, value->items[i], items ? &items[i] : NULL, depth + 1);
    if (items)
        *to = (mcc_value){.kind = (int32_t)value->kind,
                          .present = value->kind != MCC_OPTIONAL || value->n > 0,
                          .n = (size_t)value->n,
                          .item = items};
}

static int give_output(struct mcc_ctx *ctx, const mcc_port *port, const struct mcc_rt_value *value, mcc_value *to,
                       mcc_error *error)
{
    struct builder count = {NULL, RT_ALIGN, false};
    mcc_value unused;
    give_value(&count, value, &unused, 0);
    char *block = count.overflow ? NULL : rt_alloc(ctx->run.model, (size_t)count.used);
    if (!block)
        return rt_error(error, MCC_E_NOMEM, -1, "output '%s': out of memory", port->name);
    struct builder build = {block, RT_ALIGN, false};
    give_value(&build, value, to, 0);
    *(struct block_head *)(void *)block = (struct block_head){ctx, count.used};
    return MCC_OK;
}

void mcc_rt_value_release(mcc_ctx *ctx, mcc_value *value)
{
    if (!ctx || !value)
        return;
    void *first = value->kind == MCC_TENSOR ? (void *)value->tensor : (void *)value->item;
    if (first) {
        char *block = (char *)first - RT_ALIGN;
        rt_release(ctx->run.model, block, (size_t)((struct block_head *)(void *)block)->bytes);
    }
    *value = (mcc_value){0};
}

/* Buffers for outputs of planned shape; they live in the run and are copied afterwards like all others. */
static int place_outputs(struct mcc_ctx *ctx, mcc_error *error)
{
    const struct mcc_rt_desc *desc = ctx->run.model->desc;
    const mcc_api *api = desc->api;
    for (uint32_t k = 0; k < api->n_out; k++) {
        ctx->args[api->n_in + k] = 0;
        if (ctx->run.outputs && rt_is_dynamic(desc, k))
            continue;
        void *data = rt_run_alloc(&ctx->run, ctx->bound[api->n_in + k].bytes);
        if (!data)
            return rt_error_run(&ctx->run, error);
        if (api->out[k].dtype.code == kDLOpaqueHandle)
            memset(data, 0, (size_t)ctx->bound[api->n_in + k].bytes);
        ctx->args[api->n_in + k] = (int64_t)(intptr_t)data;
    }
    return MCC_OK;
}

static int give_outputs(struct mcc_ctx *ctx, mcc_value *out, mcc_error *error)
{
    const mcc_api *api = ctx->run.model->api;
    for (uint32_t k = 0; k < api->n_out; k++) {
        int64_t rank;
        const int64_t *dims;
        const void *data;
        int code = MCC_OK;
        struct mcc_rt_value *value = ctx->run.outputs ? ctx->run.outputs[k].value : NULL;
        if (!value) {
            code = rt_output_dims(ctx, k, &rank, &dims, &data, error);
            if (code)
                return code;
            void *planned = (void *)(intptr_t)ctx->args[api->n_in + k];
            if (!data && rt_has_room(&api->out[k]))
                rt_compact(&api->out[k], dims, planned, planned);
            if (!data)
                data = planned;
            value = rt_value_tensor(&ctx->run, rt_elem_of(api->out[k].dtype), rank, dims, data);
            if (!value)
                return rt_error_run(&ctx->run, error);
        }
        code = give_output(ctx, &api->out[k], value, &out[k], error);
        if (code)
            return code;
    }
    return MCC_OK;
}

int mcc_rt_run_values(mcc_ctx *ctx, const mcc_value *in, mcc_value *out, mcc_error *error)
{
    int code = rt_run_begin(ctx, in, out, error);
    if (code)
        return code;
    const mcc_api *api = ctx->run.model->api;
    for (uint32_t k = 0; k < api->n_out; k++)
        out[k] = (mcc_value){0};
    code = bind_tensors(ctx, in, error);
    if (!code)
        code = take_inputs(ctx, in, error);
    if (!code)
        code = place_outputs(ctx, error);
    if (!code)
        code = rt_run_program(ctx, error);
    if (!code)
        code = give_outputs(ctx, out, error);
    for (uint32_t k = 0; code && k < api->n_out; k++)
        mcc_rt_value_release(ctx, &out[k]);
    rt_run_end(ctx);
    return code;
}
