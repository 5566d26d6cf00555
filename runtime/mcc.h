/* The C interface of every artifact (.so, .o, .a) that mcc writes. Self-contained: no other header of mcc is needed,
 * and the DLPack 1.1 structs below are those of dlpack.h (include that first to use it instead).
 *
 *     const mcc_api *api = mcc_query(MCC_ABI);
 *     api->open(NULL, &model, &error);
 *     api->ctx_new(model, NULL, 0, &ctx, &error);
 *     api->run(ctx, inputs, outputs, &error);
 *
 * All functions return MCC_OK or a negative MCC_E_*; the text is in the caller's mcc_error, which may be NULL. Nothing
 * prints, exits, sets errno, raises a signal or keeps state between threads. Everything here works from C and C++.
 */
#ifndef MCC_H
#define MCC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- DLPack 1.1 ------------------------------------------------------------------------------------------- */

#ifndef DLPACK_DLPACK_H_
#define DLPACK_DLPACK_H_

#define DLPACK_MAJOR_VERSION 1
#define DLPACK_MINOR_VERSION 1

#ifdef __cplusplus
typedef enum : int32_t {
#else
typedef enum {
#endif
    kDLCPU = 1,
    kDLCUDA = 2,
    kDLCUDAHost = 3,
    kDLOpenCL = 4,
    kDLVulkan = 7,
    kDLMetal = 8,
    kDLVPI = 9,
    kDLROCM = 10,
    kDLROCMHost = 11,
    kDLExtDev = 12,
    kDLCUDAManaged = 13,
    kDLOneAPI = 14,
    kDLWebGPU = 15,
    kDLHexagon = 16,
    kDLMAIA = 17
} DLDeviceType;

typedef enum {
    kDLInt = 0,
    kDLUInt = 1,
    kDLFloat = 2,
    kDLOpaqueHandle = 3,
    kDLBfloat = 4,
    kDLComplex = 5,
    kDLBool = 6,
    kDLFloat8_e3m4 = 7,
    kDLFloat8_e4m3 = 8,
    kDLFloat8_e4m3b11fnuz = 9,
    kDLFloat8_e4m3fn = 10,
    kDLFloat8_e4m3fnuz = 11,
    kDLFloat8_e5m2 = 12,
    kDLFloat8_e5m2fnuz = 13,
    kDLFloat8_e8m0fnu = 14,
    kDLFloat6_e2m3fn = 15,
    kDLFloat6_e3m2fn = 16,
    kDLFloat4_e2m1fn = 17
} DLDataTypeCode;

typedef struct {
    uint32_t major, minor;
} DLPackVersion;
typedef struct {
    DLDeviceType device_type;
    int32_t device_id;
} DLDevice;
typedef struct {
    uint8_t code, bits;
    uint16_t lanes;
} DLDataType;
typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape;
    int64_t *strides;        /* in elements; NULL: compact, row-major */
    uint64_t byte_offset;
} DLTensor;
typedef struct DLManagedTensor {
    DLTensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;

#define DLPACK_FLAG_BITMASK_READ_ONLY (1UL << 0UL)
#define DLPACK_FLAG_BITMASK_IS_COPIED (1UL << 1UL)
#define DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED (1UL << 2UL)
typedef struct DLManagedTensorVersioned {
    DLPackVersion version;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    DLTensor dl_tensor;
} DLManagedTensorVersioned;

#endif /* DLPACK_DLPACK_H_ */

/* ---- mcc ---------------------------------------------------------------------------------------------------- */

#define MCC_ABI 1u

enum {
    MCC_OK = 0,
    MCC_E_ARG = -1,          /* a NULL, a wrong count, an overlap, a closed model */
    MCC_E_SHAPE = -2,
    MCC_E_DTYPE = -3,
    MCC_E_NOMEM = -4,
    MCC_E_IO = -5,           /* a file is missing, short, damaged or foreign */
    MCC_E_CPU = -6,          /* this CPU lacks what the code needs */
    MCC_E_CANCELLED = -7,
    MCC_E_BUSY = -8,         /* the context is in a run on another thread */
    MCC_E_VALUE = -9         /* what the data says can't be done: index out of range, zero divisor, trip count */
};

/* mcc_value.kind */
enum { MCC_TENSOR = 0, MCC_SEQUENCE = 1, MCC_OPTIONAL = 2, MCC_MAP = 3 };

/* mcc_port.flags. A port with one of the first four is served by run_values only. */
enum {
    MCC_PORT_SEQUENCE = 1,
    MCC_PORT_OPTIONAL = 2,
    MCC_PORT_MAP = 4,
    MCC_PORT_STRING = 8,
    MCC_PORT_DYNAMIC =
        16    /* output, a tensor: the data decides extents or rank. Served by run_dlpack and run_values only */
};

/* mcc_host.flags */
enum {
    MCC_HOST_VARIANT = 0xff,           /* bits 0-7: CPU variant index + 1; 0: the best that this CPU runs */
    MCC_HOST_VERIFY_WEIGHTS = 0x100    /* open hashes all of the weights */
};

typedef struct mcc_model mcc_model;   /* immutable; any thread */
typedef struct mcc_ctx mcc_ctx;       /* one run at a time */

typedef struct {
    int32_t code, node;
    char text[248];
} mcc_error;   /* node: index into mcc_api.node, or -1 */

/* A named extent: the multiples of step from min to max. step 0 counts as 1, max 0 as no bound. */
typedef struct {
    const char *name;
    int64_t min, max, step;
    uint64_t reserved[2];
} mcc_symbol;

/* extent >= 0: fixed. -1: the symbol with index `symbol`, or, symbol -1, decided by the data. -2: derived, see expr.
 * room: not 0 where memory has room for so many, whatever the extent of a run: the strides of the dims before it are
 * those of a row-major tensor with extent `room` here. */
typedef struct {
    int64_t extent;
    int32_t symbol, room;
    const char *expr;
} mcc_dim;

/* ndim -1: the run decides the rank. Elements narrower than a byte are packed, the first in the low bits.
 * alias: of an output, k + 1 where it may be the memory of in[k]: a cache of which a run writes some rows. 0: of none.
 * Where a dim of both has room, the output may be longer than the input in it. */
typedef struct {
    const char *name;
    const mcc_dim *dims;
    int32_t ndim;
    DLDataType dtype;
    uint64_t flags, alias, reserved[1];
} mcc_port;

/* A node of the source model; one without a name goes by that of its first output. Row 0 may stand for none: its name
 * is
 * "". A node that leads kernels (mcc_host.event names it) has their number, their flops and bytes when each runs once,
 * and next: the row of a further node that the same kernels compute, whose next is another one, and so on to 0. */
typedef struct {
    const char *name, *op, *source;
    uint64_t flops, bytes, kernels, next;
} mcc_node;

/* What a port carries when a plain tensor is not enough. */
typedef struct mcc_value {
    int32_t kind; /* MCC_TENSOR, ... */
    int32_t present; /* optional: holds a value; else 1 */
    DLTensor *tensor; /* strings: dtype {kDLOpaqueHandle, 128, 1}, elements {const char *utf8; size_t bytes} */
    size_t n; /* sequence: elements; optional: 0 or 1; map: entries */
    struct mcc_value *item; /* sequence: elements; optional: its value; map: n keys, then n values */
} mcc_value;

/* Host services; any member may be NULL or 0, and so may the pointer to all of it. */
typedef struct {
    size_t size; /* sizeof(mcc_host) that the host was compiled with */
    void *user; /* handed to every callback */
    uint32_t threads; /* at most so many work at a run, the caller included; 0: as many as the process may use */
    uint32_t flags; /* MCC_HOST_* */
    void *(*alloc)(void *user, size_t bytes, size_t align); /* align: a power of two, at least 16; NULL on failure */
    void (*release)(void *user, void *p, size_t bytes);
    /* Calls body(arg, i) once for every i < n, on any threads, and returns when all have returned; else the run fails
     * with MCC_E_ARG. May be called from several threads at once and from inside a body. */
    void (*parallel)(void *user, size_t n, void (*body)(void *arg, size_t i), void *arg);
    /* Before (end 0) and after (end 1) each kernel, on the thread that called run; node: index into mcc_api.node. */
    void (*event)(void *user, uint32_t node, int end, uint64_t ns);
    const char *weights_path; /* sidecar file; NULL: found beside the library */
    const void *weights; /* the sidecar's bytes instead; must outlive the model */
    size_t weights_size;
    /* After each part of a kernel, on the thread that ran it, from several threads at once; thread 0 called run. */
    void (*chunk)(void *user, uint32_t node, uint32_t thread, uint64_t from_ns, uint64_t to_ns);
    /* Before each kernel, on the thread that called run: how many parts it can be cut into at most, and what one is
     * estimated to take. kernel numbers the kernels of the artifact. */
    void (*launch)(void *user, uint32_t node, uint32_t kernel, int64_t count, int64_t ns);
} mcc_host;

typedef struct mcc_api {
    uint32_t abi, n_in, n_out, n_sym, n_node;
    uint32_t state; /* where mcc_state is, in bytes from here (mcc_state_of); 0: there is none */
    size_t size; /* sizeof(mcc_api) that the artifact was compiled with */
    const char *name, *compiler, *target;
    const char *features; /* the CPU variants, best first: "x86-64-v4,x86-64-v3" */
    const char
        *meta; /* the model's metadata: key, value, key, value, ..., each ended by a NUL; an empty key ends all */
    const mcc_port *in, *out;
    const mcc_symbol *sym;
    const mcc_node *node;

    int (*open)(const mcc_host *, mcc_model **, mcc_error *);
    /* Gives the model back; NULL is fine. Contexts that are still alive only allow ctx_free afterwards: a run on one
     * is MCC_E_ARG. No run may be in progress. */
    void (*close)(mcc_model *);
    /* Shapes of all outputs for these input shapes (data may be NULL; where it is not, its alignment counts):
     * out_shape[k] has room for out[k].ndim extents, -1 = the data decides; out_shape or its members may be NULL.
     * ctx_bytes: what ctx_new needs to run these shapes without allocating; buffers whose size the data decides come on
     * top. */
    int (*plan)(const mcc_model *, const DLTensor *const *in, int64_t *const *out_shape, size_t *ctx_bytes,
                mcc_error *);
    /* mem NULL: the context grows as runs need. Otherwise runs use these bytes only, or fail with MCC_E_NOMEM; mem must
     * live until ctx_free. */
    int (*ctx_new)(mcc_model *, void *mem, size_t bytes, mcc_ctx **, mcc_error *);
    void (*ctx_free)(mcc_ctx *);
    /* Inputs are read only during the call: any strides, any alignment, CPU memory. Outputs are the caller's buffers:
     * compact, aligned to the element, overlapping neither each other nor an input; but an output with an alias may be
     * exactly that input's memory, of equal extents, compact and aligned. Then the run writes its new rows only, and
     * after an error the rows are undefined. A port with a dim that has room is best given with the strides of that
     * room: what is compact instead is copied, an output through memory that the run allocates. */
    int (*run)(mcc_ctx *, const DLTensor *const *in, DLTensor *const *out, mcc_error *);
    /* As run, but outputs are allocated; each belongs to the caller, who calls its deleter, before dlclose. On failure
     * no output is left. */
    int (*run_dlpack)(mcc_ctx *, const DLTensor *const *in, DLManagedTensorVersioned **out, mcc_error *);
    /* Ends the run in progress on the context, from any thread, with MCC_E_CANCELLED; without one, no effect. */
    void (*cancel)(mcc_ctx *);
    /* As run for every kind of port: fills out[0..n_out), each to be given back by value_release. */
    int (*run_values)(mcc_ctx *, const mcc_value *in, mcc_value *out, mcc_error *);
    /* Releases what run_values put into *value. */
    void (*value_release)(mcc_ctx *, mcc_value *);
} mcc_api;

/* What a network with state has besides: tensors that a context keeps from run to run, and that each successful run
 * replaces. A failed run leaves them as they were, but of caches, which are written in place, rows may be written. */
typedef struct mcc_state {
    size_t size; /* sizeof(mcc_state) that the artifact was compiled with */
    uint32_t n, pad;
    const mcc_port *port;
    /* All as in a new context. */
    int (*reset)(mcc_ctx *, mcc_error *);
    /* State k as it is: the context's memory, compact, to be read (saved) or written (restored) until the next call
     * with the context. */
    int (*tensor)(mcc_ctx *, uint32_t k, DLTensor *, mcc_error *);
} mcc_state;

/* NULL: the network has none. */
static inline const mcc_state *mcc_state_of(const mcc_api *api)
{
    const void *at = api;
#ifdef __cplusplus
    at = static_cast<const char *>(at) + api->state;
    return api->state ? static_cast<const mcc_state *>(at) : nullptr;
#else
    at = (const char *)at + api->state;
    return api->state ? (const mcc_state *)at : NULL;
#endif
}

/* The artifact's only symbol (or PREFIX_mcc_query). NULL: cannot serve that ABI. */
const mcc_api *mcc_query(uint32_t abi);

#ifdef __cplusplus
}
#endif

#endif
