/* How the tensors of a port lie: row-major, or, where a dim has room (mcc_dim.room), as part of a row-major tensor of
 * that extent. Copies between this and whatever strides a caller has.
 */
#include "runtime/rt_internal.h"

#include "runtime/rt_libc.h"

/* Of no port (NULL): none has room. */
static int64_t room_of(const mcc_port *port, int32_t i, int64_t extent)
{
    return port && port->ndim >= 0 && port->dims[i].room > 0 ? port->dims[i].room : extent;
}

bool rt_has_room(const mcc_port *port)
{
    for (int32_t i = 0; i < port->ndim; i++)
        if (port->dims[i].room > 0)
            return true;
    return false;
}

static void port_strides(const mcc_port *port, const int64_t *dims, int32_t rank, int64_t *strides)
{
    int64_t n = 1;
    for (int32_t i = rank - 1; i >= 0; i--) {
        strides[i] = n;
        n *= room_of(port, i, dims[i]);
    }
}

bool rt_port_bytes(const mcc_port *port, int64_t rank, const int64_t *dims, int64_t *bytes)
{
    if (!rt_tensor_bytes(port->dtype, rank, dims, bytes))
        return false;
    if (*bytes == 0 || !rt_has_room(port))
        return true;
    int64_t stride = port->dtype.bits / 8, end = stride, span;
    bool overflow = false;
    for (int32_t i = (int32_t)rank - 1; i >= 0; i--) {
        overflow |= __builtin_mul_overflow(dims[i] - 1, stride, &span) || __builtin_add_overflow(end, span, &end);
        overflow |= __builtin_mul_overflow(stride, room_of(port, i, dims[i]), &stride);
    }
    *bytes = end;
    return !overflow && end <= INT64_MAX - 4096;
}

int rt_check_room(const struct mcc_rt_desc *desc, const int64_t *out_dims, mcc_error *error)
{
    const mcc_api *api = desc->api;
    for (uint32_t k = 0; k < api->n_out; k++) {
        const mcc_port *port = &api->out[k];
        if (!rt_port_has_dims(port, rt_port_flags(desc, api->n_in + k)))
            continue;
        for (int32_t i = 0; i < port->ndim; i++, out_dims++)
            if (port->dims[i].room > 0 && *out_dims > port->dims[i].room)
                return rt_error(error, MCC_E_SHAPE, -1, "output '%s': dim %lld is %lld, and has room for %lld",
                                port->name, (long long)i, (long long)*out_dims, (long long)port->dims[i].room);
    }
    return MCC_OK;
}

/* Strides NULL or as a row-major tensor has them; extents of 1 may have any. */
static bool has_strides(const DLTensor *tensor, const int64_t *wanted)
{
    int64_t compact = 1;
    for (int32_t i = tensor->ndim - 1; i >= 0; i--) {
        if (tensor->shape[i] != 1 && (tensor->strides ? tensor->strides[i] : compact) != (wanted ? wanted[i] : compact))
            return false;
        compact *= tensor->shape[i];
    }
    return true;
}

bool rt_is_compact(const DLTensor *tensor)
{
    return !tensor->strides || has_strides(tensor, NULL);
}

bool rt_lies_like(const mcc_port *port, const DLTensor *tensor)
{
    int64_t strides[RT_RANK_MAX];
    if (!rt_has_room(port))
        return rt_is_compact(tensor);
    port_strides(port, tensor->shape, tensor->ndim, strides);
    return has_strides(tensor, strides);
}

/* ---- copies ---------------------------------------------------------------------------------------------------- */

/* Byte copies: either side may be misaligned. */
static void move_bytes(char *to, const char *from, int64_t bytes)
{
    switch (bytes) {
    case 1: *to = *from; break;
    case 2: memcpy(to, from, 2); break;
    case 4: memcpy(to, from, 4); break;
    case 8: memcpy(to, from, 8); break;
    default: memmove(to, from, (size_t)bytes); break;
    }
}

struct side {
    char *at;
    int64_t strides[RT_RANK_MAX];
};

/* Elements of `size` bytes, in ascending order, no extent 0; what is contiguous on both sides goes at once. */
static void copy_elements(struct side to, struct side from, const int64_t *dims, int32_t rank, int64_t size)
{
    int64_t n = size, at[RT_RANK_MAX] = {0};
    int32_t last = rank - 1;
    for (; last >= 0 && (dims[last] == 1 || (to.strides[last] * size == n && from.strides[last] * size == n)); last--)
        n *= dims[last];
    for (;;) {
        if (last < 0) {
            move_bytes(to.at, from.at, n);
            return;
        }
        for (int64_t i = 0; i < dims[last]; i++)
            move_bytes(to.at + i * to.strides[last] * size, from.at + i * from.strides[last] * size, n);
        int32_t axis = last - 1;
        while (axis >= 0 && ++at[axis] == dims[axis]) {
            to.at -= to.strides[axis] * size * (dims[axis] - 1);
            from.at -= from.strides[axis] * size * (dims[axis] - 1);
            at[axis--] = 0;
        }
        if (axis < 0)
            return;
        to.at += to.strides[axis] * size;
        from.at += from.strides[axis] * size;
    }
}

void rt_copy_input(const mcc_port *port, const DLTensor *tensor, const struct rt_bound *bound)
{
    struct side to = {.at = bound->data}, from = {.at = bound->caller};
    if (tensor->dtype.bits % 8) { /* packed elements are compact */
        memcpy(to.at, from.at, (size_t)bound->bytes);
        return;
    }
    port_strides(port, tensor->shape, tensor->ndim, to.strides);
    if (tensor->strides)
        memcpy(from.strides, tensor->strides, (size_t)tensor->ndim * sizeof *from.strides);
    else
        port_strides(NULL, tensor->shape, tensor->ndim, from.strides);
    copy_elements(to, from, tensor->shape, tensor->ndim, tensor->dtype.bits / 8);
}

void rt_compact(const mcc_port *port, const int64_t *dims, void *ours, void *compact)
{
    struct side to = {.at = compact}, from = {.at = ours};
    for (int32_t i = 0; i < port->ndim; i++)
        if (dims[i] <= 0)
            return;
    port_strides(NULL, dims, port->ndim, to.strides);
    port_strides(port, dims, port->ndim, from.strides);
    copy_elements(to, from, dims, port->ndim, port->dtype.bits / 8);
}
