/* Sequences and optionals (ONNX SequenceInsert-11, SequenceErase-11, ConcatFromSequence-11, SplitToSequence-11,
 * Optional-15): each function makes a new immutable value; tensors inside are shared.
 */
#include "runtime/rt_internal.h"
#include "runtime/ops/rt_ops.h"

#include "runtime/rt_libc.h"

static int64_t address(const struct mcc_rt_value *value)
{
    return value ? (int64_t)(intptr_t)value : MCC_E_NOMEM;
}

static int64_t fail(struct mcc_rt_run *run, int32_t code, int64_t node, const char *text)
{
    mcc_rt_fail(run, code, (uint32_t)node, text, 0);
    return code;
}

int64_t mcc_rt_seq_new(struct mcc_rt_run *run, int64_t elem)
{
    struct mcc_rt_value **items;
    return address(rt_value_list(run, MCC_SEQUENCE, elem, 0, &items));
}

/* seq with `item` at `position` (item NULL: without what is there). */
static int64_t edited(struct mcc_rt_run *run, const struct mcc_rt_value *seq, struct mcc_rt_value *item,
                      int64_t position)
{
    struct mcc_rt_value **items;
    int64_t skip = item ? 0 : 1;
    struct mcc_rt_value *result = rt_value_list(run, MCC_SEQUENCE, seq->elem, seq->n + 1 - 2 * skip, &items);
    if (!result)
        return MCC_E_NOMEM;
    memcpy(items, seq->items, (size_t)position * sizeof *items);
    if (item)
        items[position] = item;
    memcpy(items + position + 1 - skip, seq->items + position + skip,
           (size_t)(seq->n - position - skip) * sizeof *items);
    return address(result);
}

int64_t mcc_rt_seq_insert(struct mcc_rt_run *run, int64_t node, struct mcc_rt_value *seq, struct mcc_rt_value *item,
                          int64_t position)
{
    if (position < -seq->n || position > seq->n)
        return fail(run, MCC_E_VALUE, node, "sequence position out of range");
    return edited(run, seq, item, position < 0 ? position + seq->n : position);
}

int64_t mcc_rt_seq_append(struct mcc_rt_run *run, struct mcc_rt_value *seq, struct mcc_rt_value *item)
{
    return edited(run, seq, item, seq->n);
}

int64_t mcc_rt_seq_erase(struct mcc_rt_run *run, int64_t node, struct mcc_rt_value *seq, int64_t position)
{
    if (position < -seq->n || position >= seq->n)
        return fail(run, MCC_E_VALUE, node, "sequence position out of range");
    return edited(run, seq, NULL, position < 0 ? position + seq->n : position);
}

int64_t mcc_rt_seq_at(struct mcc_rt_run *run, int64_t node, struct mcc_rt_value *seq, int64_t position)
{
    if (position < -seq->n || position >= seq->n)
        return fail(run, MCC_E_VALUE, node, "sequence position out of range");
    return address(seq->items[position < 0 ? position + seq->n : position]);
}

int64_t mcc_rt_opt_new(struct mcc_rt_run *run, int64_t elem, struct mcc_rt_value *value)
{
    struct mcc_rt_value **items;
    struct mcc_rt_value *result = rt_value_list(run, MCC_OPTIONAL, elem, value != NULL, &items);
    if (result && value)
        items[0] = value;
    return address(result);
}

int64_t mcc_rt_opt_get(struct mcc_rt_run *run, int64_t node, struct mcc_rt_value *value)
{
    if (value->kind != MCC_OPTIONAL)
        return address(value);
    if (value->n == 0)
        return fail(run, MCC_E_VALUE, node, "the optional is empty");
    return address(value->items[0]);
}

/* ---- concat ---------------------------------------------------------------------------------------------------- */

/* All items alike except for the axis (stacking: alike); their extents along the axis add up in *sum. */
static bool items_fit(const struct mcc_rt_value *seq, int64_t axis, bool stack, int64_t *sum)
{
    const struct mcc_rt_value *first = seq->items[0];
    *sum = 0;
    for (int64_t i = 0; i < seq->n; i++) {
        const struct mcc_rt_value *item = seq->items[i];
        if (item->kind != MCC_TENSOR || item->rank != first->rank || item->elem != first->elem)
            return false;
        for (int64_t k = 0; k < first->rank; k++)
            if ((stack || k != axis) && item->dims[k] != first->dims[k])
                return false;
        if (__builtin_add_overflow(*sum, stack ? 1 : item->dims[axis], sum))
            return false;
    }
    return true;
}

static int64_t product(const int64_t *dims, int64_t from, int64_t to)
{
    int64_t n = 1;
    for (int64_t i = from; i < to; i++)
        n *= dims[i];
    return n;
}

int64_t mcc_rt_seq_concat(struct mcc_rt_run *run, int64_t node, struct mcc_rt_value *seq, int64_t axis,
                          int64_t new_axis)
{
    if (seq->n == 0)
        return fail(run, MCC_E_SHAPE, node, "an empty sequence cannot be concatenated");
    const struct mcc_rt_value *first = seq->items[0];
    int64_t rank = first->rank + (new_axis != 0), sum, bytes, size = rt_elem_bytes(first->elem);
    if (axis < 0)
        axis += rank;
    if (axis < 0 || axis >= rank || rank > RT_RANK_MAX || !items_fit(seq, axis, new_axis != 0, &sum))
        return fail(run, MCC_E_SHAPE, node, "the sequence's tensors do not fit together");
    int64_t *dims = rt_run_alloc(run, rank * (int64_t)sizeof *dims);
    if (!dims)
        return MCC_E_NOMEM;
    for (int64_t i = 0; i < rank; i++)
        dims[i] = i == axis ? sum : first->dims[i - (new_axis && i > axis)];
    struct mcc_rt_value *result = rt_value_tensor(run, first->elem, rank, dims, NULL);
    if (!result)
        return MCC_E_NOMEM;
    if (__builtin_mul_overflow(result->n, size, &bytes))
        return fail(run, MCC_E_SHAPE, node, "the concatenation's size overflows");
    char *to = rt_run_alloc(run, bytes);
    if (!to)
        return MCC_E_NOMEM;
    result->data = to;
    int64_t outer = product(dims, 0, axis);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < seq->n; i++) {
            const struct mcc_rt_value *item = seq->items[i];
            int64_t piece = item->n / outer * size;
            if (piece > 0)
                memcpy(to, (const char *)item->data + o * piece, (size_t)piece);
            to += piece;
        }
    return address(result);
}

/* ---- split ------------------------------------------------------------------------------------------------------- */

/* Number of pieces, or negative. */
static int64_t piece_count(const int64_t *split, int64_t n_split, int64_t extent)
{
    if (n_split < 0)
        return extent;
    if (n_split == 0)
        return *split > 0 ? extent / *split + (extent % *split != 0) : -1;
    int64_t sum = 0;
    for (int64_t i = 0; i < n_split; i++)
        if (split[i] < 0 || __builtin_add_overflow(sum, split[i], &sum))
            return -1;
    return sum == extent ? n_split : -1;
}

/* Elements [at, at + extent) along the axis as a tensor of its own. */
static struct mcc_rt_value *piece(struct mcc_rt_run *run, const struct mcc_rt_value *tensor, int64_t axis, int64_t at,
                                  int64_t extent, bool keep)
{
    int64_t size = rt_elem_bytes(tensor->elem), rank = tensor->rank - !keep, *dims;
    int64_t outer = product(tensor->dims, 0, axis), inner = product(tensor->dims, axis + 1, tensor->rank) * size;
    dims = rt_run_alloc(run, rank * (int64_t)sizeof *dims);
    char *data = rt_run_alloc(run, outer * extent * inner);
    if (!dims || !data)
        return NULL;
    for (int64_t i = 0; i < rank; i++)
        dims[i] = keep && i == axis ? extent : tensor->dims[i + (!keep && i >= axis)];
    const char *from = (const char *)tensor->data + at * inner;
    for (int64_t o = 0; o < outer && extent * inner > 0; o++)
        memcpy(data + o * extent * inner, from + o * tensor->dims[axis] * inner, (size_t)(extent * inner));
    return rt_value_tensor(run, tensor->elem, rank, dims, data);
}

int64_t mcc_rt_seq_split(struct mcc_rt_run *run, int64_t node, struct mcc_rt_value *tensor, const int64_t *split,
                         int64_t n_split, int64_t axis, int64_t keepdims)
{
    if (axis < 0)
        axis += tensor->rank;
    if (axis < 0 || axis >= tensor->rank)
        return fail(run, MCC_E_SHAPE, node, "the axis to split is out of range");
    int64_t extent = tensor->dims[axis], n = piece_count(split, n_split, extent), at = 0;
    if (n < 0)
        return fail(run, MCC_E_VALUE, node, "the split sizes do not fit the axis");
    struct mcc_rt_value **items;
    struct mcc_rt_value *result = rt_value_list(run, MCC_SEQUENCE, tensor->elem, n, &items);
    if (!result)
        return MCC_E_NOMEM;
    for (int64_t i = 0; i < n; i++) {
        int64_t size = n_split < 0 ? 1 : n_split == 0 ? *split : split[i];
        if (size > extent - at)
            size = extent - at;
        items[i] = piece(run, tensor, axis, at, size, n_split >= 0 || keepdims);
        if (!items[i])
            return MCC_E_NOMEM;
        at += size;
    }
    return address(result);
}
