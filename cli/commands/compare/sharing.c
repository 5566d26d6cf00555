/* Outputs in the memory of inputs: see sharing.h. */
#include "cli/commands/compare/sharing.h"

#include "cli/library/dlpack.h"

enum { ALIGN = 64 };

static void give_back(DLManagedTensorVersioned *t)
{
    guard_release(t->manager_ctx, t->dl_tensor.data);
}

static uint64_t bytes_of(const DLTensor *t)
{
    uint64_t n = 1;
    for (int32_t k = 0; k < t->ndim; k++)
        n *= (uint64_t)t->shape[k];
    return (n * elem_bits(elem_by_dlpack(t->dtype)) + 7) / 8;
}

/* The input whose memory output i may have; -1: none, or of other extents. */
static int64_t input_of(const struct prove *p, uint32_t i, const int64_t *shape)
{
    const mcc_port *port = &p->run.s.api->out[i];
    const int64_t k = (int64_t)port->alias - 1;
    const DLTensor *in = k < 0 ? NULL : &p->run.s.in_tensor[k];
    return in && in->ndim == port->ndim && memcmp(in->shape, shape, (size_t)port->ndim * sizeof *shape) == 0 ? k : -1;
}

/* The extents of all outputs. False: data decides some, the network takes no such inputs, or none may share. */
static bool plan(struct prove *p, int64_t **shape)
{
    struct session *s = &p->run.s;
    size_t bytes;
    bool known = true, any = false;
    for (uint32_t i = 0; i < s->api->n_out; i++) {
        known &= s->api->out[i].ndim >= 0 && !s->api->out[i].flags;
        any |= s->api->out[i].alias != 0;
        shape[i] = NEW_ARRAY(&p->draw, int64_t, RANK_MAX + 1);
    }
    if (!known || !any || s->api->plan(s->lib->model, s->in_pointer, shape, &bytes, &s->error) != MCC_OK)
        return false;
    any = false;
    for (uint32_t i = 0; i < s->api->n_out; i++)
        any |= input_of(p, i, shape[i]) >= 0;
    return any;
}

bool sharing_run(struct prove *p)
{
    struct session *s = &p->run.s;
    const uint32_t n_in = s->api->n_in, n_out = s->api->n_out;
    int64_t **shape = NEW_ARRAY(&p->draw, int64_t *, n_out + 1);
    const DLTensor **in = NEW_ARRAY(&p->draw, const DLTensor *, n_in + 1);
    DLTensor **out = NEW_ARRAY(&p->draw, DLTensor *, n_out + 1);
    DLManagedTensorVersioned *all = NEW_ARRAY(&p->draw, DLManagedTensorVersioned, n_out + 1);
    if (!plan(p, shape))
        return false;
    memcpy(in, s->in_pointer, n_in * sizeof *in);
    for (uint32_t i = 0; i < n_out; i++) {
        const mcc_port *port = &s->api->out[i];
        const int64_t from = input_of(p, i, shape[i]);
        DLTensor *t = out[i] = &all[i].dl_tensor;
        *t = (DLTensor){.device = {kDLCPU, 0}, .ndim = port->ndim, .dtype = port->dtype, .shape = shape[i]};
        const uint64_t bytes = bytes_of(t);
        all[i].manager_ctx = &p->guard;
        all[i].deleter = give_back;
        t->data = guard_alloc(&p->guard, &p->run.c.ctx->session, bytes ? bytes : 1, ALIGN);
        if (from < 0 || !t->data)
            continue;
        memcpy(t->data, s->in_tensor[from].data, bytes);
        in[from] = t;
    }
    p->code = s->api->run(s->run, in, out, &s->error);
    for (uint32_t i = 0; i < n_out; i++) {
        p->out[i] = p->code == MCC_OK ? &all[i] : NULL;
        if (!p->out[i] && out[i]->data)
            guard_release(&p->guard, out[i]->data);
    }
    return true;
}
