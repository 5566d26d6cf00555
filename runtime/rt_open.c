/* open() and close(): host services, the CPU variant, weights. A model is counted by its contexts: close() while some
 * are alive stops its threads and refuses further runs; the last ctx_free gives the memory back. The pointer itself is
 * dead after close() to everybody but these contexts, so a second close() is the host's error.
 */
#include "runtime/rt_internal.h"

#include "runtime/rt_cpu.h"
#include "runtime/rt_libc.h"

/* Members that the host's struct is too old to have stay zero. */
static int take_host(struct mcc_model *model, const mcc_host *host, mcc_error *error)
{
    if (!host)
        return MCC_OK;
    if (host->size < offsetof(mcc_host, alloc))
        return rt_error(error, MCC_E_ARG, -1, "open: mcc_host.size is %lld", (long long)host->size);
    memcpy(&model->host, host, host->size < sizeof *host ? host->size : sizeof *host);
    if (model->host.weights && model->host.weights_size == 0)
        return rt_error(error, MCC_E_ARG, -1, "open: weights without weights_size");
    return MCC_OK;
}

static int choose_variant(struct mcc_model *model, mcc_error *error)
{
    const struct mcc_rt_desc *desc = model->desc;
    uint64_t features = rt_cpu_features();
    uint32_t asked = model->host.flags & MCC_HOST_VARIANT;
    if (asked > desc->n_variants)
        return rt_error(error, MCC_E_ARG, -1, "open: there is no CPU variant %lld, only %lld", (long long)asked,
                        (long long)desc->n_variants);
    for (uint32_t i = 0; i < desc->n_variants; i++) {
        const struct mcc_rt_variant *variant = &desc->variants[i];
        if (asked && i != asked - 1)
            continue;
        if (rt_cpu_runs(features, variant->features)) {
            model->variant = variant;
            return MCC_OK;
        }
    }
    return rt_error(error, MCC_E_CPU, -1, "this CPU cannot run the code, which needs at least %s",
                    desc->variants[asked ? asked - 1 : desc->n_variants - 1].name);
}

void rt_model_drop(struct mcc_model *model)
{
    if (__atomic_sub_fetch(&model->references, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    rt_weights_close(model);
    struct mcc_model copy = {.host = model->host};
    rt_release(&copy, model, sizeof *model);
}

int rt_open_desc(const struct mcc_rt_desc *desc, const mcc_host *host, mcc_model **result, mcc_error *error)
{
    if (!result)
        return rt_error(error, MCC_E_ARG, -1, "open: the result is NULL");
    *result = NULL;
    struct mcc_model start = {.desc = desc, .api = desc->api, .references = 1};
    start.scratch = rt_round_up(desc->scratch_bytes) + RT_ALIGN;
    int code = take_host(&start, host, error);
    if (!code)
        code = choose_variant(&start, error);
    if (code)
        return code;
    start.threads = start.host.threads ? start.host.threads : rt_cpu_count();
    if (start.threads > RT_THREADS_MAX)
        start.threads = RT_THREADS_MAX;
    rt_pool_init(&start.pool, start.threads);
    struct mcc_model *model = rt_alloc(&start, sizeof *model);
    if (!model)
        return rt_error(error, MCC_E_NOMEM, -1, "open: out of memory");
    *model = start;
    code = rt_weights_open(model, error);
    if (code) {
        rt_pool_close(model);
        rt_model_drop(model);
        return code;
    }
    model->seen = model->host.event || model->host.chunk || model->host.launch;
    *result = model;
    return MCC_OK;
}

int mcc_rt_open(const mcc_host *host, mcc_model **result, mcc_error *error)
{
    return rt_open_desc(&mcc_rt_model, host, result, error);
}

void mcc_rt_close(mcc_model *model)
{
    if (!model || __atomic_exchange_n(&model->closed, 1, __ATOMIC_ACQ_REL))
        return;
    rt_pool_close(model);
    rt_model_drop(model);
}
