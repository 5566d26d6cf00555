/* run(): inputs checked and bound, planned when shapes changed, the variant's program called, outputs checked against
 * the plan. With unchanged shapes nothing is planned, allocated or asked of the system: a few hundred instructions and
 * one atomic, so that the smallest models are not bound by their call.
 */
#include "runtime/rt_internal.h"

#include "runtime/rt_fp.h"

/* ---- begin, end --------------------------------------------------------------------------------------------- */

int rt_run_begin(struct mcc_ctx *ctx, const void *in, const void *out, mcc_error *error)
{
    if (!ctx)
        return rt_error(error, MCC_E_ARG, -1, "run: the context is NULL");
    struct mcc_model *model = ctx->run.model;
    if (__atomic_load_n(&model->closed, __ATOMIC_ACQUIRE))
        return rt_error(error, MCC_E_ARG, -1, "run: the model is closed");
    if ((!in && model->api->n_in > 0) || (!out && model->api->n_out > 0))
        return rt_error(error, MCC_E_ARG, -1, "run: the array of %s is NULL", in ? "outputs" : "inputs");
    if (__atomic_exchange_n(&ctx->busy, 1, __ATOMIC_ACQUIRE))
        return rt_error(error, MCC_E_BUSY, -1, "run: the context is in a run");
    struct mcc_rt_run *run = &ctx->run;
    run->code = 0;
    run->index = 0;
    __atomic_store_n(&run->stop, 0, __ATOMIC_RELAXED);
    run->spare = NULL;
    run->small = run->small_end = NULL;
    if (run->outputs)
        for (uint32_t k = 0; k < model->api->n_out; k++) {
            run->outputs[k].rank = -1;
            run->outputs[k].value = NULL;
        }
    return MCC_OK;
}

void rt_run_end(struct mcc_ctx *ctx)
{
    struct mcc_rt_run *run = &ctx->run;
    while (run->segments) {
        struct rt_segment *segment = run->segments;
        run->segments = segment->next;
        rt_release(run->model, segment, (size_t)segment->bytes);
    }
    __atomic_store_n(&ctx->busy, 0, __ATOMIC_RELEASE);
}

/* ---- memory whose size the data decides ---------------------------------------------------------------------- */

int64_t mcc_rt_segment(struct mcc_rt_run *run, int64_t bytes)
{
    static const char text[] = "out of memory for a buffer whose size the data decides";
    if (bytes < 0 || bytes > INT64_MAX / 2) {
        mcc_rt_fail(run, MCC_E_NOMEM, 0, text, 0);
        return MCC_E_NOMEM;
    }
    bytes = rt_round_up(bytes ? bytes : 1);
    if (run->spare) {
        if (run->spare_end - run->spare < bytes) {
            mcc_rt_fail(run, MCC_E_NOMEM, 0, text, 0);
            return MCC_E_NOMEM;
        }
        char *at = run->spare;
        run->spare += bytes;
        return (int64_t)(intptr_t)at;
    }
    struct rt_segment *segment = rt_alloc(run->model, (size_t)bytes + RT_SEGMENT_HEAD);
    if (!segment) {
        mcc_rt_fail(run, MCC_E_NOMEM, 0, text, 0);
        return MCC_E_NOMEM;
    }
    segment->bytes = bytes + RT_SEGMENT_HEAD;
    segment->next = run->segments;
    run->segments = segment;
    return (int64_t)(intptr_t)((char *)segment + RT_SEGMENT_HEAD);
}

struct rt_segment *rt_run_take(struct mcc_rt_run *run, const void *data, int64_t n)
{
    for (struct rt_segment **at = &run->segments; *at; at = &(*at)->next) {
        struct rt_segment *segment = *at;
        if ((char *)segment + RT_SEGMENT_HEAD != data || n < (segment->bytes - RT_SEGMENT_HEAD) / 2)
            continue;
        *at = segment->next;
        return segment;
    }
    return NULL;
}

int64_t mcc_rt_output(struct mcc_rt_run *run, int64_t k, int64_t rank, const int64_t *dims, const void *data)
{
    const mcc_api *api = run->model->api;
    int64_t bytes;
    if (!run->outputs || k < 0 || k >= (int64_t)api->n_out || rank < 0 || rank > RT_RANK_MAX ||
        !rt_tensor_bytes(api->out[k].dtype, rank, dims, &bytes)) {
        mcc_rt_fail(run, MCC_E_SHAPE, 0, "an output's extents make no sense", 0);
        return MCC_E_SHAPE;
    }
    struct rt_output *output = &run->outputs[k];
    output->rank = rank;
    output->data = data;
    for (int64_t i = 0; i < rank; i++)
        output->dims[i] = dims[i] < 0 ? 0 : dims[i];
    return 0;
}

/* ---- inputs ----------------------------------------------------------------------------------------------------- */

const int64_t *rt_planned_dims(const struct mcc_ctx *ctx, uint32_t k)
{
    const struct mcc_rt_desc *desc = ctx->run.model->desc;
    const mcc_api *api = desc->api;
    const int64_t *dims = ctx->plan + desc->n_sym + 1;
    for (uint32_t p = 0; p < k; p++)
        if (rt_port_has_dims(&api->out[p], rt_port_flags(desc, api->n_in + p)))
            dims += api->out[p].ndim;
    return rt_port_has_dims(&api->out[k], rt_port_flags(desc, api->n_in + k)) ? dims : NULL;
}

/* Sizes of all ports for the dims in ctx, kept until dims change. Symbols go to the end of the program's arguments. */
static int port_sizes(struct mcc_ctx *ctx, mcc_error *error)
{
    const struct mcc_rt_desc *desc = ctx->run.model->desc;
    const mcc_api *api = desc->api;
    uint32_t n = 0;
    for (uint32_t k = 0; k < api->n_in; k++) {
        ctx->bound[k].bytes = 0;
        if (!rt_port_has_dims(&api->in[k], rt_port_flags(desc, k)))
            continue;
        rt_port_bytes(&api->in[k], api->in[k].ndim, ctx->dims + n, &ctx->bound[k].bytes);
        n += (uint32_t)api->in[k].ndim;
    }
    for (uint32_t k = 0; k < api->n_out; k++) {
        const int64_t *dims = rt_planned_dims(ctx, k);
        struct rt_bound *bound = &ctx->bound[api->n_in + k];
        bound->bytes = 0;
        if (dims && !rt_port_bytes(&api->out[k], api->out[k].ndim, dims, &bound->bytes))
            return rt_error(error, MCC_E_SHAPE, -1, "output '%s': its size overflows", api->out[k].name);
    }
    for (uint32_t i = 0; i < desc->n_sym; i++)
        ctx->args[api->n_in + api->n_out + 2 + i] = ctx->plan[i];
    return MCC_OK;
}

/* Makes the work region at least `bytes` long. One that grows again grows by half as much more, if there is memory, so
 * that runs which are a little longer each time, steps of a decoder, seldom allocate. */
static int work_reserve(struct mcc_ctx *ctx, int64_t bytes, mcc_error *error)
{
    if (ctx->work && (uint64_t)bytes <= ctx->work_size)
        return MCC_OK;
    bool again = ctx->work && (int64_t)ctx->work_size > rt_ctx_scratch_bytes(ctx->run.model);
    size_t size = (size_t)bytes + (again ? (size_t)bytes / 2 : 0);
    if (!ctx->owned)
        return rt_error(error, MCC_E_NOMEM, -1, "run: these shapes take %lld bytes of workspace, the context has %lld",
                        (long long)bytes, (long long)ctx->work_size);
    rt_release(ctx->run.model, ctx->work, ctx->work_size);
    ctx->work_size = 0;
    ctx->work = rt_alloc(ctx->run.model, size);
    if (!ctx->work && again)
        ctx->work = rt_alloc(ctx->run.model, size = (size_t)bytes);
    if (!ctx->work)
        return rt_error(error, MCC_E_NOMEM, -1, "run: out of memory for %lld bytes of workspace", (long long)bytes);
    ctx->work_size = size;
    return MCC_OK;
}

/* The plan needs scratch, which lies in the work region: so that comes first, without an arena. */
static int replan(struct mcc_ctx *ctx, mcc_error *error)
{
    struct mcc_model *model = ctx->run.model;
    int64_t scratch = rt_ctx_scratch_bytes(model);
    ctx->planned = false;
    int code = rt_check_dims(model->desc, ctx->dims, error);
    if (!code)
        code = work_reserve(ctx, scratch, error);
    if (!code)
        code = rt_run_plan(model, ctx->dims, ctx->plan, ctx->work, error);
    if (!code)
        code = port_sizes(ctx, error);
    ctx->planned = code == MCC_OK;
    return code;
}

/* Looks at every tensor's data; *copies: bytes for those that need a copy. */
static int bind_inputs(struct mcc_ctx *ctx, const DLTensor *const *in, int64_t *copies, mcc_error *error)
{
    const struct mcc_rt_desc *desc = ctx->run.model->desc;
    const mcc_api *api = desc->api;
    *copies = 0;
    for (uint32_t k = 0; k < api->n_in; k++) {
        struct rt_bound *bound = &ctx->bound[k];
        bound->caller = NULL;
        if (!rt_port_is_tensor(rt_port_flags(desc, k)))
            continue;
        if (api->in[k].ndim < 0 && !rt_tensor_bytes(in[k]->dtype, in[k]->ndim, in[k]->shape, &bound->bytes))
            return rt_error(error, MCC_E_SHAPE, -1, "input '%s': its size overflows", api->in[k].name);
        int code = rt_bind_input(&api->in[k], in[k], bound, error);
        if (code)
            return code;
        if (bound->caller && __builtin_add_overflow(*copies, rt_round_up(bound->bytes), copies))
            return rt_error(error, MCC_E_SHAPE, -1, "input '%s': its size overflows", api->in[k].name);
    }
    return MCC_OK;
}

/* Cuts the work region: scratch, arena, copies, and in caller memory the rest for segments. */
static void lay_out(struct mcc_ctx *ctx, const DLTensor *const *in, int64_t arena, int64_t copies)
{
    struct mcc_model *model = ctx->run.model;
    const mcc_api *api = model->api;
    int64_t scratch = rt_ctx_scratch_bytes(model);
    ctx->run.scratch = ctx->work;
    char *at = ctx->work + scratch + arena;
    if (!ctx->owned) {
        ctx->run.spare = at + copies;
        ctx->run.spare_end = ctx->work + ctx->work_size;
    }
    int64_t *args = ctx->args;
    for (uint32_t k = 0; k < api->n_in; k++) {
        struct rt_bound *bound = &ctx->bound[k];
        if (bound->caller) {
            bound->data = at;
            at += rt_round_up(bound->bytes);
            rt_copy_input(&api->in[k], in[k], bound);
        }
        args[k] = (int64_t)(intptr_t)bound->data;
        if (api->in[k].ndim < 0 && rt_port_is_tensor(rt_port_flags(model->desc, k)))
            args[k] = (int64_t)(intptr_t)rt_value_tensor(&ctx->run, rt_elem_of(in[k]->dtype), in[k]->ndim, in[k]->shape,
                                                         bound->data);
    }
    args += api->n_in + api->n_out;
    args[0] = (int64_t)(intptr_t)(ctx->work + scratch);
    args[1] = (int64_t)(intptr_t)model->weights;
}

int rt_run_inputs(struct mcc_ctx *ctx, const DLTensor *const *in, enum rt_mode mode, mcc_error *error)
{
    struct mcc_model *model = ctx->run.model;
    bool changed;
    int code = rt_read_dims(model->desc, in, mode == RT_VALUES, ctx->dims, &changed, error);
    if (code) {
        ctx->planned = false;   /* dims may be half written */
        return code;
    }
    if (changed || !ctx->planned) {
        code = replan(ctx, error);
        if (code)
            return code;
    }
    int64_t arena, copies, total = rt_ctx_scratch_bytes(model);
    code = rt_plan_arena(model, ctx->plan, &arena, error);
    if (!code)
        code = bind_inputs(ctx, in, &copies, error);
    if (code)
        return code;
    if (__builtin_add_overflow(total, arena, &total) || __builtin_add_overflow(total, copies, &total))
        return rt_error(error, MCC_E_SHAPE, -1, "the workspace for these shapes overflows");
    code = work_reserve(ctx, total, error);
    if (code)
        return code;
    lay_out(ctx, in, arena, copies);
    return rt_error_run(&ctx->run, error);
}

/* ---- the program ------------------------------------------------------------------------------------------------- */

int rt_run_program(struct mcc_ctx *ctx, mcc_error *error)
{
    struct mcc_model *model = ctx->run.model;
    rt_kept_reset(&ctx->run);
    struct rt_fp fp = rt_fp_enter();
    model->variant->program(ctx->args, 0, 0, ctx->run.scratch + model->threads * (size_t)model->scratch, &ctx->run);
    rt_fp_leave(fp);
    return rt_error_run(&ctx->run, error);
}

int rt_output_dims(const struct mcc_ctx *ctx, uint32_t k, int64_t *rank, const int64_t **dims, const void **data,
                   mcc_error *error)
{
    const mcc_api *api = ctx->run.model->api;
    *data = NULL;
    if (!rt_is_dynamic(ctx->run.model->desc, k)) {
        *rank = api->out[k].ndim;
        *dims = rt_planned_dims(ctx, k);
        return MCC_OK;
    }
    const struct rt_output *output = &ctx->run.outputs[k];
    if (output->rank < 0)
        return rt_error(error, MCC_E_VALUE, -1, "output '%s': the run did not produce it", api->out[k].name);
    *rank = output->rank;
    *dims = output->dims;
    *data = output->data;
    return MCC_OK;
}

/* ---- outputs in the caller's buffers ----------------------------------------------------------------------------- */

struct extent {
    uintptr_t at, bytes;
};

static bool overlaps(struct extent a, struct extent b)
{
    return a.bytes > 0 && b.bytes > 0 && a.at < b.at + b.bytes && b.at < a.at + a.bytes;
}

/* The memory of port p: where the run reads an input, and the caller's of an output. */
static struct extent port_extent(const struct mcc_ctx *ctx, uint32_t p)
{
    const mcc_api *api = ctx->run.model->api;
    const struct rt_bound *bound = &ctx->bound[p];
    int64_t bytes = bound->bytes;
    if (p < api->n_in || !bound->caller)
        return (struct extent){(uintptr_t)bound->data, (uintptr_t)bytes};
    const mcc_port *port = &api->out[p - api->n_in]; /* compact */
    rt_tensor_bytes(port->dtype, port->ndim, rt_planned_dims(ctx, p - api->n_in), &bytes);
    return (struct extent){(uintptr_t)bound->caller, (uintptr_t)bytes};
}

/* Is output k the memory of the input that it may share, and as long in each dim without room? */
static bool is_alias(const struct mcc_ctx *ctx, uint32_t k, uint32_t in)
{
    const struct mcc_rt_desc *desc = ctx->run.model->desc;
    const mcc_api *api = desc->api;
    const int64_t *dims = ctx->dims, *out = rt_planned_dims(ctx, k);
    if (api->out[k].alias != (uint64_t)in + 1 || api->in[in].ndim != api->out[k].ndim || !out ||
        ctx->bound[in].data != ctx->bound[api->n_in + k].data || ctx->bound[api->n_in + k].caller)
        return false;
    for (uint32_t p = 0; p < in; p++)
        if (rt_port_has_dims(&api->in[p], rt_port_flags(desc, p)))
            dims += api->in[p].ndim;
    for (int32_t i = 0; i < api->out[k].ndim; i++)
        if (dims[i] != out[i] && !(api->in[in].dims[i].room && api->out[k].dims[i].room))
            return false;
    return true;
}

/* Copied inputs lie in the workspace, so an output may be where the original was. */
static int check_overlap(const struct mcc_ctx *ctx, uint32_t k, mcc_error *error)
{
    const mcc_api *api = ctx->run.model->api;
    struct extent out = port_extent(ctx, api->n_in + k);
    for (uint32_t p = 0; p < api->n_in + k; p++)
        if (overlaps(out, port_extent(ctx, p)) && (p >= api->n_in || !is_alias(ctx, k, p)))
            return rt_error(error, MCC_E_ARG, -1, "output '%s' overlaps %s '%s'", api->out[k].name,
                            p < api->n_in ? "input" : "output",
                            p < api->n_in ? api->in[p].name : api->out[p - api->n_in].name);
    if (overlaps(out, (struct extent){(uintptr_t)ctx->work, ctx->work_size}))
        return rt_error(error, MCC_E_ARG, -1, "output '%s' overlaps the context's memory", api->out[k].name);
    return MCC_OK;
}

static int bind_outputs(struct mcc_ctx *ctx, DLTensor *const *out, mcc_error *error)
{
    const struct mcc_rt_desc *desc = ctx->run.model->desc;
    const mcc_api *api = desc->api;
    const int64_t *dims = ctx->plan + desc->n_sym + 1;
    for (uint32_t k = 0; k < api->n_out; k++) {
        const mcc_port *port = &api->out[k];
        struct rt_bound *bound = &ctx->bound[api->n_in + k];
        uint64_t flags = rt_port_flags(desc, api->n_in + k);
        if (!rt_port_is_plain(flags))
            return rt_error(error, MCC_E_ARG, -1, "output '%s' is not a plain tensor: only run_values serves it",
                            port->name);
        if (ctx->run.outputs && rt_is_dynamic(desc, k))
            return rt_error(error, MCC_E_ARG, -1, "output '%s': the data decides its shape, only run_dlpack serves it",
                            port->name);
        int code = rt_bind_output(port, out[k], dims, bound, error);
        if (!code)
            code = check_overlap(ctx, k, error);
        if (!code && bound->caller) {
            bound->data = rt_run_alloc(&ctx->run, bound->bytes);
            code = rt_error_run(&ctx->run, error);
        }
        if (code)
            return code;
        dims += port->ndim;
        ctx->args[api->n_in + k] = (int64_t)(intptr_t)bound->data;
    }
    return MCC_OK;
}

/* What the caller wants compact and the program has made in memory with room. */
static void give_compact(const struct mcc_ctx *ctx)
{
    const mcc_api *api = ctx->run.model->api;
    for (uint32_t k = 0; k < api->n_out; k++) {
        const struct rt_bound *bound = &ctx->bound[api->n_in + k];
        if (bound->caller)
            rt_compact(&api->out[k], rt_planned_dims(ctx, k), bound->data, bound->caller);
    }
}

int mcc_rt_run_api(mcc_ctx *ctx, const DLTensor *const *in, DLTensor *const *out, mcc_error *error)
{
    int code = rt_run_begin(ctx, in, out, error);
    if (code)
        return code;
    code = rt_run_inputs(ctx, in, RT_RUN, error);
    if (!code)
        code = bind_outputs(ctx, out, error);
    if (!code)
        code = rt_run_program(ctx, error);
    if (!code)
        give_compact(ctx);
    rt_run_end(ctx);
    return code;
}
