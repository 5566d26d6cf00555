/* Values inside a run: tensors of unknown rank, sequences, optionals, maps as immutable handles. Everything is owned by
 * the run and goes with it, also after an error or cancel, so nothing is counted: a handle costs its bytes until the
 * run ends.
 */
#include "runtime/rt_internal.h"
#include "runtime/ops/rt_ops.h"

#include "runtime/rt_libc.h"

enum { SMALL_PIECE = 4096, SMALL_MAX = 1024 };

static const struct {
    uint8_t bytes, code, bits;
} elems[RT_ELEM_COUNT] = {
#define ELEM(id, name, onnx, bits, bytes, code, class) [RT_ELEM_##id] = {bytes, code, bits ? bits : 128 /* a text */},
#include "ir/ops/elem.def"
};

int64_t rt_elem_bytes(int64_t elem)
{
    return elem > 0 && elem < RT_ELEM_COUNT ? elems[elem].bytes : 0;
}

DLDataType rt_elem_dtype(int64_t elem)
{
    if (elem <= 0 || elem >= RT_ELEM_COUNT)
        return (DLDataType){0, 0, 0};
    return (DLDataType){elems[elem].code, elems[elem].bits, 1};
}

int64_t rt_elem_of(DLDataType dtype)
{
    for (int64_t i = 1; i < RT_ELEM_COUNT; i++)
        if (elems[i].code == dtype.code && elems[i].bits == dtype.bits && dtype.lanes == 1)
            return i;
    return RT_ELEM_NONE;
}

void *rt_run_alloc(struct mcc_rt_run *run, int64_t bytes)
{
    if (bytes > SMALL_MAX || bytes < 0) {
        int64_t at = mcc_rt_segment(run, bytes);
        return at < 0 ? NULL : (void *)(intptr_t)at;
    }
    bytes = bytes ? (bytes + 15) & -(int64_t)16 : 16;
    if (run->small_end - run->small < bytes) {
        int64_t at = mcc_rt_segment(run, SMALL_PIECE);
        if (at < 0)
            return NULL;
        run->small = (char *)(intptr_t)at;
        run->small_end = run->small + SMALL_PIECE;
    }
    void *result = run->small;
    run->small += bytes;
    return result;
}

struct rt_mark rt_run_mark(const struct mcc_rt_run *run)
{
    return (struct rt_mark){run->segments, run->spare, run->small, run->small_end};
}

void rt_run_reset(struct mcc_rt_run *run, struct rt_mark mark)
{
    while (run->segments != mark.segments) {
        struct rt_segment *segment = run->segments;
        run->segments = segment->next;
        rt_release(run->model, segment, (size_t)segment->bytes);
    }
    run->spare = mark.spare;
    run->small = mark.small;
    run->small_end = mark.small_end;
}

struct mcc_rt_value *rt_value_tensor(struct mcc_rt_run *run, int64_t elem, int64_t rank, const int64_t *dims,
                                     const void *data)
{
    struct mcc_rt_value *value = rt_run_alloc(run, sizeof *value);
    int64_t n = 1;
    if (!value)
        return NULL;
    for (int64_t i = 0; i < rank; i++)
        if (__builtin_mul_overflow(n, dims[i], &n)) {
            mcc_rt_fail(run, MCC_E_SHAPE, 0, "a tensor's size overflows", 0);
            return NULL;
        }
    *value = (struct mcc_rt_value){MCC_TENSOR, elem, rank, n, dims, data, NULL};
    return value;
}

/* A sequence, optional or map with room for its items (of a map: 2 n). */
struct mcc_rt_value *rt_value_list(struct mcc_rt_run *run, int64_t kind, int64_t elem, int64_t n,
                                   struct mcc_rt_value ***items)
{
    int64_t slots = kind == MCC_MAP ? 2 * n : n;
    struct mcc_rt_value *value = rt_run_alloc(run, sizeof *value);
    *items = rt_run_alloc(run, slots * (int64_t)sizeof **items);
    if (!value || !*items)
        return NULL;
    *value = (struct mcc_rt_value){kind, elem, -1, n, NULL, NULL, *items};
    return value;
}

int64_t mcc_rt_tensor(struct mcc_rt_run *run, int64_t elem, int64_t rank, const int64_t *dims, const void *data)
{
    if (rank < 0 || rank > RT_RANK_MAX) {
        mcc_rt_fail(run, MCC_E_SHAPE, 0, "a tensor's rank is out of range", 0);
        return MCC_E_SHAPE;
    }
    struct mcc_rt_value *value = rt_value_tensor(run, elem, rank, dims, data);
    int64_t bytes;
    if (!value || __builtin_mul_overflow(value->n, rt_elem_bytes(elem), &bytes))
        return MCC_E_NOMEM;
    int64_t *own_dims = rt_run_alloc(run, rank * (int64_t)sizeof *dims);
    void *own = rt_run_alloc(run, bytes);
    if (!own_dims || !own)
        return MCC_E_NOMEM;
    memcpy(own_dims, dims, (size_t)rank * sizeof *dims);
    if (bytes > 0)
        memcpy(own, data, (size_t)bytes);
    value->dims = own_dims;
    value->data = own;
    return (int64_t)(intptr_t)value;
}

int64_t mcc_rt_output_value(struct mcc_rt_run *run, int64_t k, struct mcc_rt_value *value)
{
    const mcc_api *api = run->model->api;
    if (!run->outputs || k < 0 || k >= (int64_t)api->n_out) {
        mcc_rt_fail(run, MCC_E_ARG, 0, "no such output", 0);
        return MCC_E_ARG;
    }
    struct rt_output *output = &run->outputs[k];
    output->value = value;
    if (value->kind == MCC_TENSOR && rt_port_is_tensor(rt_port_flags(run->model->desc, api->n_in + (uint32_t)k)))
        return mcc_rt_output(run, k, value->rank, value->dims, value->data);
    return 0;
}

int64_t mcc_rt_seq_length(struct mcc_rt_run *run, const struct mcc_rt_value *seq)
{
    (void)run;
    return seq->n;
}

int64_t mcc_rt_opt_has(struct mcc_rt_run *run, const struct mcc_rt_value *value)
{
    (void)run;
    return value->kind != MCC_OPTIONAL || value->n > 0;
}

int64_t mcc_rt_value_rank(struct mcc_rt_run *run, const struct mcc_rt_value *value)
{
    (void)run;
    return value->rank;
}

int64_t mcc_rt_value_dim(struct mcc_rt_run *run, const struct mcc_rt_value *value, int64_t axis)
{
    (void)run;
    return axis >= 0 && axis < value->rank ? value->dims[axis] : 1;
}

int64_t mcc_rt_value_data(struct mcc_rt_run *run, const struct mcc_rt_value *value)
{
    (void)run;
    return (int64_t)(intptr_t)value->data;
}
