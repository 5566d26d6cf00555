/* runtime/mcc.h as hosts were compiled with when docs/abi.md promised what number 1 means: the oldest header that must
 * work with every artifact of that number (test_abi.py). It never changes. */
#ifndef MCC_H
#define MCC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

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
    int64_t *strides;
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

#endif

#define MCC_ABI 1u

enum {
    MCC_OK = 0,
    MCC_E_ARG = -1,
    MCC_E_SHAPE = -2,
    MCC_E_DTYPE = -3,
    MCC_E_NOMEM = -4,
    MCC_E_IO = -5,
    MCC_E_CPU = -6,
    MCC_E_CANCELLED = -7,
    MCC_E_BUSY = -8,
    MCC_E_VALUE = -9
};

enum { MCC_TENSOR = 0, MCC_SEQUENCE = 1, MCC_OPTIONAL = 2, MCC_MAP = 3 };

enum { MCC_PORT_SEQUENCE = 1, MCC_PORT_OPTIONAL = 2, MCC_PORT_MAP = 4, MCC_PORT_STRING = 8, MCC_PORT_DYNAMIC = 16 };

enum { MCC_HOST_VARIANT = 0xff, MCC_HOST_VERIFY_WEIGHTS = 0x100 };

typedef struct mcc_model mcc_model;
typedef struct mcc_ctx mcc_ctx;

typedef struct {
    int32_t code, node;
    char text[248];
} mcc_error;

typedef struct {
    const char *name;
    int64_t min, max, step;
    uint64_t reserved[2];
} mcc_symbol;

typedef struct {
    int64_t extent;
    int32_t symbol, pad;
    const char *expr;
} mcc_dim;

typedef struct {
    const char *name;
    const mcc_dim *dims;
    int32_t ndim;
    DLDataType dtype;
    uint64_t flags, reserved[2];
} mcc_port;

typedef struct {
    const char *name, *op, *source;
    uint64_t flops, bytes, kernels, next;
} mcc_node;

typedef struct mcc_value {
    int32_t kind;
    int32_t present;
    DLTensor *tensor;
    size_t n;
    struct mcc_value *item;
} mcc_value;

typedef struct {
    size_t size;
    void *user;
    uint32_t threads;
    uint32_t flags;
    void *(*alloc)(void *user, size_t bytes, size_t align);
    void (*release)(void *user, void *p, size_t bytes);

    void (*parallel)(void *user, size_t n, void (*body)(void *arg, size_t i), void *arg);

    void (*event)(void *user, uint32_t node, int end, uint64_t ns);
    const char *weights_path;
    const void *weights;
    size_t weights_size;
} mcc_host;

typedef struct mcc_api {
    uint32_t abi, n_in, n_out, n_sym, n_node, pad;
    size_t size;
    const char *name, *compiler, *target;
    const char *features;
    const char *meta;
    const mcc_port *in, *out;
    const mcc_symbol *sym;
    const mcc_node *node;

    int (*open)(const mcc_host *, mcc_model **, mcc_error *);

    void (*close)(mcc_model *);

    int (*plan)(const mcc_model *, const DLTensor *const *in, int64_t *const *out_shape, size_t *ctx_bytes,
                mcc_error *);

    int (*ctx_new)(mcc_model *, void *mem, size_t bytes, mcc_ctx **, mcc_error *);
    void (*ctx_free)(mcc_ctx *);

    int (*run)(mcc_ctx *, const DLTensor *const *in, DLTensor *const *out, mcc_error *);

    int (*run_dlpack)(mcc_ctx *, const DLTensor *const *in, DLManagedTensorVersioned **out, mcc_error *);

    void (*cancel)(mcc_ctx *);

    int (*run_values)(mcc_ctx *, const mcc_value *in, mcc_value *out, mcc_error *);

    void (*value_release)(mcc_ctx *, mcc_value *);
} mcc_api;

const mcc_api *mcc_query(uint32_t abi);

#ifdef __cplusplus
}
#endif

#endif
