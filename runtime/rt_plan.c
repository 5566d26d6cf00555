/* plan(): output shapes and context bytes for input shapes, by the artifact's generated plan function. Strides and,
 * where data is given, its alignment are looked at, because awkward inputs are copied into the context.
 */
#include "runtime/rt_internal.h"

int rt_run_plan(const struct mcc_model *model, const int64_t *dims, int64_t *out, char *scratch, mcc_error *error)
{
    const struct mcc_rt_desc *desc = model->desc;
    struct mcc_rt_run run = {.model = (struct mcc_model *)model, .threads = 1, .scratch = scratch};
    int64_t args[2] = {(int64_t)(intptr_t)dims, (int64_t)(intptr_t)out};
    for (uint32_t i = 0; i < desc->n_sym; i++)
        out[i] = 0;
    desc->plan(args, 0, 0, scratch, &run);
    int code = rt_error_run(&run, error);
    return code ? code : rt_check_room(desc, out + desc->n_sym + 1, error);
}

int rt_plan_arena(const struct mcc_model *model, const int64_t *out, int64_t *bytes, mcc_error *error)
{
    *bytes = out[model->desc->n_sym];
    if (*bytes < 0 || *bytes > INT64_MAX / 2)
        return rt_error(error, MCC_E_SHAPE, -1, "the workspace for these shapes overflows");
    *bytes = rt_round_up(*bytes);
    return MCC_OK;
}

/* Bytes of copies that these inputs need. */
static int copy_bytes(const struct mcc_model *model, const DLTensor *const *in, int64_t *bytes, mcc_error *error)
{
    const mcc_api *api = model->api;
    *bytes = 0;
    for (uint32_t k = 0; k < api->n_in; k++) {
        struct rt_bound bound = {.bytes = 0};
        if (!rt_port_is_tensor(rt_port_flags(model->desc, k)))
            continue;
        DLTensor tensor = *in[k];
        if (!tensor.data)
            tensor.data = (void *)(uintptr_t)RT_ALIGN; /* only its alignment is looked at */
        if (!rt_port_bytes(&api->in[k], tensor.ndim, tensor.shape, &bound.bytes))
            return rt_error(error, MCC_E_SHAPE, -1, "input '%s': its size overflows", api->in[k].name);
        int code = rt_bind_input(&api->in[k], &tensor, &bound, error);
        if (code)
            return code;
        if (bound.caller && __builtin_add_overflow(*bytes, rt_round_up(bound.bytes), bytes))
            return rt_error(error, MCC_E_SHAPE, -1, "input '%s': its size overflows", api->in[k].name);
    }
    return MCC_OK;
}

static void give_shapes(const struct mcc_model *model, const int64_t *out_dims, int64_t *const *out_shape)
{
    const mcc_api *api = model->api;
    for (uint32_t k = 0; k < api->n_out; k++) {
        if (!rt_port_has_dims(&api->out[k], rt_port_flags(model->desc, api->n_in + k)))
            continue;
        for (int32_t i = 0; i < api->out[k].ndim; i++, out_dims++)
            if (out_shape && out_shape[k])
                out_shape[k][i] = *out_dims;
    }
}

static int plan_with(const struct mcc_model *model, const DLTensor *const *in, int64_t *words, char *scratch,
                     int64_t *const *out_shape, size_t *ctx_bytes, mcc_error *error)
{
    const struct mcc_rt_desc *desc = model->desc;
    int64_t *dims = words, *out = words + desc->n_in_dims;
    int64_t arena, copies, total;
    bool changed;
    int code = rt_read_dims(desc, in, true, dims, &changed, error);
    if (!code)
        code = rt_check_dims(desc, dims, error);
    if (!code)
        code = rt_run_plan(model, dims, out, scratch, error);
    if (!code)
        code = rt_plan_arena(model, out, &arena, error);
    if (!code)
        code = copy_bytes(model, in, &copies, error);
    if (code)
        return code;
    total = rt_ctx_fixed_bytes(model) + rt_ctx_scratch_bytes(model) + RT_ALIGN;
    if (__builtin_add_overflow(total, arena, &total) || __builtin_add_overflow(total, copies, &total))
        return rt_error(error, MCC_E_SHAPE, -1, "the workspace for these shapes overflows");
    if (ctx_bytes)
        *ctx_bytes = (size_t)total;
    give_shapes(model, out + desc->n_sym + 1, out_shape);
    return MCC_OK;
}

int mcc_rt_plan(const mcc_model *model, const DLTensor *const *in, int64_t *const *out_shape, size_t *ctx_bytes,
                mcc_error *error)
{
    if (!model || (!in && model->api->n_in > 0))
        return rt_error(error, MCC_E_ARG, -1, "plan: %s is NULL", model ? "the array of inputs" : "the model");
    const struct mcc_rt_desc *desc = model->desc;
    size_t words = (size_t)desc->n_in_dims + desc->n_sym + 1 + desc->n_out_dims;
    size_t table = (size_t)rt_round_up((int64_t)(words * sizeof(int64_t)));
    size_t bytes = table + (size_t)model->scratch;
    char *memory = rt_alloc(model, bytes);
    if (!memory)
        return rt_error(error, MCC_E_NOMEM, -1, "plan: out of memory");
    int code = plan_with(model, in, (int64_t *)(void *)memory, memory + table, out_shape, ctx_bytes, error);
    rt_release(model, memory, bytes);
    return code;
}
