/* What the runtime's files share: the model, the context, checked tensors, text. See rt.h for the other side, the
 * interface to generated code, and mcc.h for what hosts see.
 *
 * A context is one struct followed by tables (rt_ctx.c), and a work region: scratch of every thread, the arena, copies
 * of awkward inputs, then, in caller memory, segments. Nothing is allocated while shapes stay within the region.
 */
#pragma once

#include "runtime/mcc.h"
#include "runtime/rt.h"
#include "runtime/rt_share.h"

#include <stdbool.h>

#define RT_PRINTF(text, first) __attribute__((__format__(__printf__, text, first)))

enum { RT_ALIGN = 64, RT_SEGMENT_HEAD = 448, RT_RANK_MAX = 32, RT_THREADS_MAX = 256 };

/* ---- model ------------------------------------------------------------------------------------------------ */

/* pthread_create and pthread_join; a NULL: this process has no threads. */
struct rt_threads {
    int (*create)(uintptr_t *thread, const void *attributes, void *(*main)(void *), void *arg);
    int (*join)(uintptr_t thread, void **result);
};
struct rt_threads rt_threads_find(void); /* of the system's folder */
void *rt_threads_none(void);

/* One launch: indices [0, count). */
struct rt_job {
    mcc_rt_fn *fn;
    const int64_t *args;
    struct mcc_rt_run *run;
    int64_t count;
    struct rt_cut cut;
    uint32_t kernel;
};

/* Threads that wait for work (rt_pool.c). One job at a time; it stays for whoever has claimed units of it. */
struct rt_pool {
    _Alignas(64) uint32_t done; /* units finished; futex of the caller */
    uint32_t caller_waits;
    uint32_t most; /* job.cut.most, for those who have not claimed yet */
    struct rt_homes homes; /* for the threads asked for; fewer may have started */
    struct rt_job job;
    _Alignas(64) uint32_t epoch; /* counts jobs; futex of idle workers */
    uint32_t sleepers;
    uint32_t stop;
    uint32_t busy; /* a run owns the pool */
    int32_t pid; /* process whose threads these are; 0: none yet; -1: being reset */
    uint32_t n_workers;
    uint64_t spin_ns;
    struct rt_threads threads;
    struct rt_worker {
        struct rt_pool *pool;
        uint32_t index;
        uintptr_t thread;
    } *workers;
};

struct mcc_model {
    const struct mcc_rt_desc *desc;
    const mcc_api *api;
    mcc_host host; /* the caller's, as far as its size reached; rest zero */
    bool seen; /* launches are told to the host: event, chunk or launch */
    const struct mcc_rt_variant *variant;
    const unsigned char *weights;
    void *map; /* sidecar mapped by open; NULL: not ours */
    size_t map_size;
    uint32_t threads; /* the caller included */
    uint32_t references; /* open contexts, + 1 until closed (atomic) */
    uint32_t closed;
    int64_t scratch; /* bytes per thread, multiple of RT_ALIGN; the last RT_ALIGN of them are a struct rt_kept */
    struct rt_pool pool;
};

/* ---- one run ------------------------------------------------------------------------------------------------ */

struct rt_segment {
    struct rt_segment *next;
    int64_t bytes;
}; /* bytes: with this header, which takes RT_SEGMENT_HEAD, so that run_dlpack() can put its own there */
struct rt_output {
    int64_t rank;
    const void *data;
    struct mcc_rt_value *value;
    int64_t dims[RT_RANK_MAX];
};

/* What the kernel of launch number `launch` has left in the thread's scratch (mcc_rt_kept). */
struct rt_kept {
    uint64_t launch;
    int64_t tag;
};

struct mcc_rt_run {
    const void *data; /* the launched row's; generated code reads it here */
    struct mcc_model *model;
    char *scratch; /* threads + 1 pieces of model->scratch bytes; the last is the program's own */
    uint64_t launches; /* so far */
    const struct rt_job *seen; /* the launch that the host hears of, while it runs */
    uint32_t threads;
    int32_t stop; /* 0: go on; else a MCC_E_* (atomic) */
    /* the error slot: guarded by `lock` */
    uint32_t lock;
    int32_t code;
    uint32_t node;
    const char *text;
    int64_t index;
    /* memory whose size the data decides */
    struct rt_segment *segments;
    char *spare, *spare_end; /* caller memory after the work region; NULL: segments are allocated */
    char *small, *small_end; /* rest of the current piece for small allocations */
    struct rt_output *outputs;
};

/* A tensor as the caller gave it, checked. */
struct rt_bound {
    char *data; /* what the program gets: the caller's, or the copy's place */
    char *caller; /* where an input is copied from, or an output to; NULL: it is not */
    int64_t bytes; /* from the first element to the end of the last, as the program has them */
    uint32_t element; /* alignment that the program expects */
};

struct mcc_ctx {
    struct mcc_rt_run run;
    uint32_t busy;
    bool owned; /* allocated by ctx_new */
    bool planned; /* dims, plan and bound[].bytes belong together */
    size_t size; /* of the struct with its tables, or of the caller's memory */
    char *work; /* work region; NULL: none yet */
    size_t work_size;
    int64_t *dims; /* n_in_dims: what the plan was made for */
    int64_t *plan; /* symbols, arena bytes, output dims */
    int64_t *args; /* of the program */
    struct rt_bound *bound; /* n_in + n_out */
};

void rt_model_drop(struct mcc_model *); /* one reference less; frees at none (rt_open.c) */

/* ---- memory and text (rt_error.c) ------------------------------------------------------------------------------ */

void *rt_alloc(const struct mcc_model *, size_t bytes); /* 64-aligned; NULL on failure */
void rt_release(const struct mcc_model *, void *, size_t bytes);

/* Fills *error (may be NULL) and returns code. Formats: %s (names cut to 80 bytes, control bytes as '?'), %lld. */
int rt_error(mcc_error *error, int code, int64_t node, const char *format, ...) RT_PRINTF(4, 5);
/* The run's failure as text with the node's name in front; returns its code, MCC_OK when it did not fail. */
int rt_error_run(const struct mcc_rt_run *, mcc_error *);

/* ---- shapes (rt_bind.c) ------------------------------------------------------------------------------------------ */

static inline int64_t rt_round_up(int64_t n)
{
    return (n + RT_ALIGN - 1) & -(int64_t)RT_ALIGN;
}
/* Bytes of a row-major tensor, sub-byte elements packed; false when they do not fit into 63 bits. Negative dims: 0. */
bool rt_tensor_bytes(DLDataType, int64_t rank, const int64_t *dims, int64_t *bytes);
uint64_t rt_port_flags(const struct mcc_rt_desc *, uint32_t port);
static inline bool rt_port_is_plain(uint64_t flags)
{
    return (flags & (MCC_PORT_SEQUENCE | MCC_PORT_OPTIONAL | MCC_PORT_MAP | MCC_PORT_STRING)) == 0;
}
static inline bool rt_port_is_tensor(uint64_t flags) /* of strings, too */
{
    return (flags & (MCC_PORT_SEQUENCE | MCC_PORT_OPTIONAL | MCC_PORT_MAP)) == 0;
}
/* Ports whose dims take part in n_in_dims / n_out_dims: tensors of known rank. */
static inline bool rt_port_has_dims(const mcc_port *port, uint64_t flags)
{
    return port->ndim >= 0 && rt_port_is_tensor(flags);
}

/* Checks the form of all tensor inputs (present, device, dtype, rank, dims readable) and copies their dims. values:
 * ports that are not plain tensors are allowed, and skipped. changed: whether dims differ from what was in there
 * before.
 */
int rt_read_dims(const struct mcc_rt_desc *, const DLTensor *const *in, bool values, int64_t *dims, bool *changed,
                 mcc_error *);
/* Checks dims against the ports: fixed extents, equal symbols, ranges, steps. */
int rt_check_dims(const struct mcc_rt_desc *, const int64_t *dims, mcc_error *);
/* Where one input's data is and whether it needs a copy (bound->source). */
int rt_bind_input(const mcc_port *, const DLTensor *, struct rt_bound *, mcc_error *);
/* Checks one caller buffer against the planned dims. */
int rt_bind_output(const mcc_port *, const DLTensor *, const int64_t *dims, struct rt_bound *, mcc_error *);
/* Copies a strided or misaligned input to bound->data, as the program has the port. */
void rt_copy_input(const mcc_port *, const DLTensor *, const struct rt_bound *);

/* ---- how tensors lie (rt_stride.c) ------------------------------------------------------------------------------- */

/* rt_tensor_bytes of a tensor of the port, of this rank, up to the end of its last element where a dim has room. */
bool rt_port_bytes(const mcc_port *, int64_t rank, const int64_t *dims, int64_t *bytes);
/* Is it laid out as the program expects of the port? Row-major; before a dim with room the strides are those of it. */
bool rt_lies_like(const mcc_port *, const DLTensor *);
bool rt_is_compact(const DLTensor *);
bool rt_has_room(const mcc_port *);
/* An error unless all dims of the planned outputs fit into their room. */
int rt_check_room(const struct mcc_rt_desc *, const int64_t *out_dims, mcc_error *);
/* From how the program has it to row-major without gaps; both may be at the same place. */
void rt_compact(const mcc_port *, const int64_t *dims, void *ours, void *compact);

/* ---- planning (rt_plan.c) ---------------------------------------------------------------------------------------- */

/* Runs the generated plan: out as in rt.h, n_sym + 1 + n_out_dims words. */
int rt_run_plan(const struct mcc_model *, const int64_t *dims, int64_t *out, char *scratch, mcc_error *);
/* Bytes of arena for a plan's result; checked. */
int rt_plan_arena(const struct mcc_model *, const int64_t *out, int64_t *bytes, mcc_error *);
int64_t rt_ctx_fixed_bytes(const struct mcc_model *); /* the struct with its tables (rt_ctx.c) */
int64_t rt_ctx_scratch_bytes(const struct mcc_model *);
bool rt_is_dynamic(const struct mcc_rt_desc *, uint32_t k); /* output k: the data decides extents, or no tensor */

/* ---- runs (rt_run.c) --------------------------------------------------------------------------------------------- */

enum rt_mode { RT_RUN, RT_DLPACK, RT_VALUES };
/* Takes the context, or MCC_E_BUSY and the like. */
int rt_run_begin(struct mcc_ctx *, const void *in, const void *out, mcc_error *);
/* Checks inputs, plans when shapes changed, makes room, copies awkward inputs; afterwards args of inputs are set. */
int rt_run_inputs(struct mcc_ctx *, const DLTensor *const *in, enum rt_mode, mcc_error *);
/* Runs the program with args of outputs set. */
int rt_run_program(struct mcc_ctx *, mcc_error *);
/* The segment whose memory begins at data and is used by at least half, n bytes of it; the caller owns it from now on.
 * NULL: there is none. */
struct rt_segment *rt_run_take(struct mcc_rt_run *run, const void *data, int64_t n);
/* Frees segments and gives the context back. */
void rt_run_end(struct mcc_ctx *);
/* Planned dims of output k: -1 members are decided by the data. NULL: rank unknown or no tensor. */
const int64_t *rt_planned_dims(const struct mcc_ctx *, uint32_t k);
/* Final dims of output k and, when the data decided them, where its bytes are (else *data NULL). */
int rt_output_dims(const struct mcc_ctx *, uint32_t k, int64_t *rank, const int64_t **dims, const void **data,
                   mcc_error *);

/* ---- values (rt_value.c, rt_values.c) ---------------------------------------------------------------------------- */

/* 16-aligned memory until the run ends; NULL when the run has failed. Many small ones share a segment. */
void *rt_run_alloc(struct mcc_rt_run *, int64_t bytes);
/* Temporary memory: everything allocated after rt_run_mark goes at rt_run_reset. */
struct rt_mark {
    struct rt_segment *segments;
    char *spare, *small, *small_end;
};
struct rt_mark rt_run_mark(const struct mcc_rt_run *);
void rt_run_reset(struct mcc_rt_run *, struct rt_mark);
int64_t rt_elem_bytes(int64_t elem);
DLDataType rt_elem_dtype(int64_t elem);
int64_t rt_elem_of(DLDataType); /* RT_ELEM_NONE: no such element */
/* A value around borrowed dims and data. */
struct mcc_rt_value *rt_value_tensor(struct mcc_rt_run *, int64_t elem, int64_t rank, const int64_t *dims,
                                     const void *data);
struct mcc_rt_value *rt_value_list(struct mcc_rt_run *, int64_t kind, int64_t elem, int64_t n,
                                   struct mcc_rt_value ***items);

/* ---- threads (rt_pool.c) ----------------------------------------------------------------------------------------- */

uint32_t rt_cpu_count(void); /* CPUs that this process may run on, at least 1 */
void rt_kept_reset(struct mcc_rt_run *); /* before the first launch */
void rt_pool_init(struct rt_pool *, uint32_t threads);
void rt_pool_close(struct mcc_model *);

/* ---- weights (rt_weights.c, rt_hash.c) --------------------------------------------------------------------------- */

int rt_weights_open(struct mcc_model *, mcc_error *);
void rt_weights_close(struct mcc_model *);
uint64_t rt_hash(const void *, size_t); /* XXH64, seed 0 */

/* ---- the public functions ---------------------------------------------------------------------------------------- */

int mcc_rt_open(const mcc_host *, mcc_model **, mcc_error *);
int rt_open_desc(const struct mcc_rt_desc *, const mcc_host *, mcc_model **, mcc_error *); /* of any model */
void mcc_rt_close(mcc_model *);
int mcc_rt_plan(const mcc_model *, const DLTensor *const *in, int64_t *const *out_shape, size_t *ctx_bytes,
                mcc_error *);
int mcc_rt_ctx_new(mcc_model *, void *mem, size_t bytes, mcc_ctx **, mcc_error *);
void mcc_rt_ctx_free(mcc_ctx *);
int mcc_rt_run_api(mcc_ctx *, const DLTensor *const *in, DLTensor *const *out, mcc_error *);
int mcc_rt_run_dlpack(mcc_ctx *, const DLTensor *const *in, DLManagedTensorVersioned **out, mcc_error *);
/* The same, but outputs from number n on are given[]: compact, aligned and of their planned shapes. */
int rt_run_dlpack_into(mcc_ctx *, const DLTensor *const *in, DLManagedTensorVersioned **out, uint32_t n,
                       DLTensor *const *given, mcc_error *);
void mcc_rt_cancel(mcc_ctx *);
int mcc_rt_run_values(mcc_ctx *, const mcc_value *in, mcc_value *out, mcc_error *);
void mcc_rt_value_release(mcc_ctx *, mcc_value *);
/* The same of networks with state, and what those have besides (rt_state.c). */
int mcc_rt_state_open(const mcc_host *, mcc_model **, mcc_error *);
int mcc_rt_state_plan(const mcc_model *, const DLTensor *const *in, int64_t *const *out_shape, size_t *ctx_bytes,
                      mcc_error *);
int mcc_rt_state_ctx_new(mcc_model *, void *mem, size_t bytes, mcc_ctx **, mcc_error *);
void mcc_rt_state_ctx_free(mcc_ctx *);
int mcc_rt_state_run(mcc_ctx *, const DLTensor *const *in, DLTensor *const *out, mcc_error *);
int mcc_rt_state_run_dlpack(mcc_ctx *, const DLTensor *const *in, DLManagedTensorVersioned **out, mcc_error *);
void mcc_rt_state_cancel(mcc_ctx *);
int mcc_rt_state_run_values(mcc_ctx *, const mcc_value *in, mcc_value *out, mcc_error *);
void mcc_rt_state_value_release(mcc_ctx *, mcc_value *);
int mcc_rt_state_reset(mcc_ctx *, mcc_error *);
int mcc_rt_state_tensor(mcc_ctx *, uint32_t k, DLTensor *, mcc_error *);
