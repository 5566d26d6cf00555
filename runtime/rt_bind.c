/* Callers' tensors -> checked pointers: presence, device, type, rank, extents against the port's declaration, strides,
 * alignment. Nothing here trusts a size: products and pointer arithmetic are checked for overflow. A host that lies
 * about the memory behind a pointer cannot be caught.
 */
#include "runtime/rt_internal.h"

bool rt_tensor_bytes(DLDataType dtype, int64_t rank, const int64_t *dims, int64_t *bytes)
{
    int64_t n = 1;
    bool overflow = false;
    for (int64_t i = 0; i < rank; i++) {
        if (dims[i] <= 0) {
            *bytes = 0;
            return true;
        }
        overflow |= __builtin_mul_overflow(n, dims[i], &n);
    }
    int64_t bits = dtype.bits;
    if (bits >= 8)
        overflow |= __builtin_mul_overflow(n, bits / 8, &n);
    else
        overflow |= __builtin_mul_overflow(n, bits, &n), n = n / 8 + (n % 8 != 0);
    *bytes = n;
    return !overflow && n <= INT64_MAX - 4096;
}

uint64_t rt_port_flags(const struct mcc_rt_desc *desc, uint32_t port)
{
    const mcc_api *api = desc->api;
    if (desc->port_flags)
        return desc->port_flags[port];
    return port < api->n_in ? api->in[port].flags : api->out[port - api->n_in].flags;
}

/* ---- form ------------------------------------------------------------------------------------------------- */

/* The name that numpy and the compiler have for it; NULL: none. */
static const char *dtype_name(DLDataType t)
{
    if (t.lanes != 1)
        return NULL;
    switch (t.code << 8 | t.bits) {
    case kDLInt << 8 | 2: return "int2";
    case kDLInt << 8 | 4: return "int4";
    case kDLInt << 8 | 8: return "int8";
    case kDLInt << 8 | 16: return "int16";
    case kDLInt << 8 | 32: return "int32";
    case kDLInt << 8 | 64: return "int64";
    case kDLUInt << 8 | 2: return "uint2";
    case kDLUInt << 8 | 4: return "uint4";
    case kDLUInt << 8 | 8: return "uint8";
    case kDLUInt << 8 | 16: return "uint16";
    case kDLUInt << 8 | 32: return "uint32";
    case kDLUInt << 8 | 64: return "uint64";
    case kDLFloat << 8 | 16: return "float16";
    case kDLFloat << 8 | 32: return "float32";
    case kDLFloat << 8 | 64: return "float64";
    case kDLBfloat << 8 | 16: return "bfloat16";
    case kDLBool << 8 | 8: return "bool";
    case kDLComplex << 8 | 64: return "complex64";
    case kDLComplex << 8 | 128: return "complex128";
    case kDLOpaqueHandle << 8 | 128: return "string";
    case kDLFloat8_e4m3fn << 8 | 8: return "float8_e4m3fn";
    case kDLFloat8_e4m3fnuz << 8 | 8: return "float8_e4m3fnuz";
    case kDLFloat8_e5m2 << 8 | 8: return "float8_e5m2";
    case kDLFloat8_e5m2fnuz << 8 | 8: return "float8_e5m2fnuz";
    case kDLFloat8_e8m0fnu << 8 | 8: return "float8_e8m0fnu";
    case kDLFloat4_e2m1fn << 8 | 4: return "float4_e2m1fn";
    default: return NULL;
    }
}

static int check_dtype(const char *side, const mcc_port *port, DLDataType got, mcc_error *error)
{
    DLDataType want = port->dtype;
    if (got.code == want.code && got.bits == want.bits && got.lanes == want.lanes)
        return MCC_OK;
    const char *name = dtype_name(got), *wanted = dtype_name(want);
    if (!wanted)
        wanted = "another";
    if (name)
        return rt_error(error, MCC_E_DTYPE, -1, "%s '%s': %s where %s is expected", side, port->name, name, wanted);
    return rt_error(error, MCC_E_DTYPE, -1, "%s '%s': elements of DLPack type {%lld, %lld, %lld} where %s is expected",
                    side, port->name, (long long)got.code, (long long)got.bits, (long long)got.lanes, wanted);
}

static int check_form(const char *side, const mcc_port *port, const DLTensor *tensor, mcc_error *error)
{
    if (!tensor)
        return rt_error(error, MCC_E_ARG, -1, "%s '%s': the tensor is NULL", side, port->name);
    DLDeviceType device = tensor->device.device_type;
    if (device != kDLCPU && device != kDLCUDAHost && device != kDLROCMHost)
        return rt_error(error, MCC_E_ARG, -1, "%s '%s': device type %lld is not the CPU", side, port->name,
                        (long long)device);
    int code = check_dtype(side, port, tensor->dtype, error);
    if (code)
        return code;
    if (port->ndim >= 0 ? tensor->ndim != port->ndim : tensor->ndim < 0 || tensor->ndim > RT_RANK_MAX)
        return rt_error(error, MCC_E_SHAPE, -1, "%s '%s': rank %lld where %lld is expected", side, port->name,
                        (long long)tensor->ndim, (long long)port->ndim);
    if (tensor->ndim > 0 && !tensor->shape)
        return rt_error(error, MCC_E_ARG, -1, "%s '%s': the shape is NULL", side, port->name);
    for (int32_t i = 0; port->ndim < 0 && i < tensor->ndim; i++)
        if (tensor->shape[i] < 0)
            return rt_error(error, MCC_E_SHAPE, -1, "%s '%s': dim %lld is negative", side, port->name, (long long)i);
    return MCC_OK;
}

int rt_read_dims(const struct mcc_rt_desc *desc, const DLTensor *const *in, bool values, int64_t *dims, bool *changed,
                 mcc_error *error)
{
    const mcc_api *api = desc->api;
    uint32_t n = 0;
    *changed = false;
    for (uint32_t k = 0; k < api->n_in; k++) {
        const mcc_port *port = &api->in[k];
        uint64_t flags = rt_port_flags(desc, k);
        if (!rt_port_is_plain(flags) && !values)
            return rt_error(error, MCC_E_ARG, -1, "input '%s' is not a plain tensor: only run_values serves it",
                            port->name);
        if (!rt_port_is_tensor(flags))
            continue;
        int code = check_form("input", port, in[k], error);
        if (code)
            return code;
        for (int32_t i = 0; i < port->ndim; i++, n++) {
            *changed |= dims[n] != in[k]->shape[i];
            dims[n] = in[k]->shape[i];
        }
    }
    return MCC_OK;
}

/* ---- extents ------------------------------------------------------------------------------------------------ */

static int check_symbol(const mcc_api *api, const mcc_port *port, int32_t axis, int64_t extent, mcc_error *error)
{
    const mcc_symbol *symbol = &api->sym[port->dims[axis].symbol];
    if (extent < symbol->min || (symbol->max > 0 && extent > symbol->max))
        return rt_error(error, MCC_E_SHAPE, -1, "input '%s': dim %lld is %lld, but '%s' goes from %lld to %lld",
                        port->name, (long long)axis, (long long)extent, symbol->name, (long long)symbol->min,
                        (long long)symbol->max);
    int64_t step = symbol->step > 0 ? symbol->step : 1;
    if (extent % step != 0)
        return rt_error(error, MCC_E_SHAPE, -1, "input '%s': dim %lld is %lld, but '%s' must be a multiple of %lld",
                        port->name, (long long)axis, (long long)extent, symbol->name, (long long)step);
    return MCC_OK;
}

/* The first place of a symbol before (port k, axis), to compare with: its extent, or -1. */
static int64_t symbol_before(const struct mcc_rt_desc *desc, const int64_t *dims, int32_t symbol, uint32_t k,
                             int32_t axis, const char **where)
{
    const mcc_api *api = desc->api;
    uint32_t n = 0;
    for (uint32_t p = 0; p <= k; p++) {
        const mcc_port *port = &api->in[p];
        if (!rt_port_has_dims(port, rt_port_flags(desc, p)))
            continue;
        int32_t end = p == k ? axis : port->ndim;
        for (int32_t i = 0; i < end; i++)
            if (port->dims[i].extent == -1 && port->dims[i].symbol == symbol) {
                *where = port->name;
                return dims[n + (uint32_t)i];
            }
        n += (uint32_t)port->ndim;
    }
    return -1;
}

static int check_extent(const struct mcc_rt_desc *desc, const int64_t *dims, uint32_t k, int32_t axis, int64_t extent,
                        mcc_error *error)
{
    const mcc_api *api = desc->api;
    const mcc_port *port = &api->in[k];
    const mcc_dim *dim = &port->dims[axis];
    if (extent < 0)
        return rt_error(error, MCC_E_SHAPE, -1, "input '%s': dim %lld is negative", port->name, (long long)axis);
    if (dim->extent >= 0 && extent != dim->extent)
        return rt_error(error, MCC_E_SHAPE, -1, "input '%s': dim %lld is %lld where %lld is expected", port->name,
                        (long long)axis, (long long)extent, (long long)dim->extent);
    if (dim->extent != -1 || dim->symbol < 0 || (uint32_t)dim->symbol >= api->n_sym)
        return MCC_OK;
    const char *where = NULL;
    int64_t before = symbol_before(desc, dims, dim->symbol, k, axis, &where);
    if (where && before != extent)
        return rt_error(error, MCC_E_SHAPE, -1, "input '%s': dim %lld ('%s') is %lld, but %lld in input '%s'",
                        port->name, (long long)axis, api->sym[dim->symbol].name, (long long)extent, (long long)before,
                        where);
    return where ? MCC_OK : check_symbol(api, port, axis, extent, error);
}

int rt_check_dims(const struct mcc_rt_desc *desc, const int64_t *dims, mcc_error *error)
{
    const mcc_api *api = desc->api;
    uint32_t n = 0;
    for (uint32_t k = 0; k < api->n_in; k++) {
        const mcc_port *port = &api->in[k];
        if (!rt_port_has_dims(port, rt_port_flags(desc, k)))
            continue;
        for (int32_t i = 0; i < port->ndim; i++) {
            int code = check_extent(desc, dims, k, i, dims[n + (uint32_t)i], error);
            if (code)
                return code;
        }
        int64_t bytes;
        if (!rt_port_bytes(port, port->ndim, dims + n, &bytes))
            return rt_error(error, MCC_E_SHAPE, -1, "input '%s': its size overflows", port->name);
        n += (uint32_t)port->ndim;
    }
    return MCC_OK;
}

/* ---- data ----------------------------------------------------------------------------------------------------- */

/* Largest power of two up to 16 that divides the element: complex f64 takes 8, strings (two words) 8. */
static uint32_t element_align(DLDataType dtype)
{
    if (dtype.code == kDLComplex)
        return dtype.bits / 16u;
    return dtype.bits <= 8 ? 1 : dtype.bits >= 64 ? 8 : dtype.bits / 8u;
}

/* Lowest and highest byte offset that a strided tensor of whole-byte elements reaches; false on overflow. */
static bool stride_range(const DLTensor *tensor, int64_t element, int64_t *low, int64_t *high)
{
    int64_t reach[2] = {0, element};
    bool overflow = false;
    for (int32_t i = 0; i < tensor->ndim; i++) {
        int64_t span;
        overflow |= __builtin_mul_overflow(tensor->shape[i] - 1, tensor->strides[i], &span);
        overflow |= __builtin_mul_overflow(span, element, &span);
        overflow |= __builtin_add_overflow(reach[span > 0], span, &reach[span > 0]);
    }
    *low = reach[0];
    *high = reach[1];
    return !overflow;
}

/* Address of the first element; false when offset and size run past the address space. */
static bool tensor_address(const DLTensor *tensor, int64_t low, int64_t high, char **address)
{
    uintptr_t at;
    *address = NULL;
    if (__builtin_add_overflow((uintptr_t)tensor->data, tensor->byte_offset, &at))
        return false;
    uintptr_t top;
    if (__builtin_add_overflow(at, (uintptr_t)high, &top) || (low < 0 && at < 0 - (uintptr_t)low))
        return false;
    *address = (char *)at;
    return true;
}

int rt_bind_input(const mcc_port *port, const DLTensor *tensor, struct rt_bound *bound, mcc_error *error)
{
    bound->caller = NULL;
    bound->data = tensor->data;
    bound->element = element_align(tensor->dtype);
    if (bound->bytes == 0)
        return MCC_OK;
    if (!tensor->data)
        return rt_error(error, MCC_E_ARG, -1, "input '%s': data is NULL", port->name);
    bool compact = rt_is_compact(tensor);
    int64_t low = 0, high = bound->bytes;
    if (!compact && tensor->dtype.bits % 8 != 0)
        return rt_error(error, MCC_E_ARG, -1, "input '%s': packed elements must be compact", port->name);
    if ((!compact && !stride_range(tensor, tensor->dtype.bits / 8, &low, &high)) ||
        !tensor_address(tensor, low, high, &bound->data))
        return rt_error(error, MCC_E_ARG, -1, "input '%s': strides or byte_offset leave the address space", port->name);
    if (!rt_lies_like(port, tensor) || (uintptr_t)bound->data % bound->element != 0)
        bound->caller = bound->data;
    return MCC_OK;
}

int rt_bind_output(const mcc_port *port, const DLTensor *tensor, const int64_t *dims, struct rt_bound *bound,
                   mcc_error *error)
{
    int code = check_form("output", port, tensor, error);
    if (code)
        return code;
    for (int32_t i = 0; i < port->ndim; i++)
        if (tensor->shape[i] != dims[i])
            return rt_error(error, MCC_E_SHAPE, -1, "output '%s': dim %lld is %lld where %lld is expected", port->name,
                            (long long)i, (long long)tensor->shape[i], (long long)dims[i]);
    bound->caller = NULL;
    bound->data = tensor->data;
    bound->element = element_align(tensor->dtype);
    if (bound->bytes == 0)
        return MCC_OK;
    if (!tensor->data)
        return rt_error(error, MCC_E_ARG, -1, "output '%s': data is NULL", port->name);
    bool like = rt_lies_like(port, tensor);
    if (!like && !rt_is_compact(tensor))
        return rt_error(error, MCC_E_ARG, -1, "output '%s': must be compact, row-major%s", port->name,
                        rt_has_room(port) ? ", or have the strides of its room" : "");
    if (!tensor_address(tensor, 0, bound->bytes, &bound->data))
        return rt_error(error, MCC_E_ARG, -1, "output '%s': byte_offset leaves the address space", port->name);
    if ((uintptr_t)bound->data % bound->element != 0)
        return rt_error(error, MCC_E_ARG, -1, "output '%s': data must be aligned to %lld bytes", port->name,
                        (long long)bound->element);
    bound->caller = like ? NULL : bound->data;
    return MCC_OK;
}
