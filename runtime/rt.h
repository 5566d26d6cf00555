/* Between generated code and the runtime that is linked into every artifact. Freestanding: no libc headers here
 * beyond stdint/stddef. codegen emits one `mcc_rt_desc mcc_rt_model` per artifact; everything else is C in runtime/.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct mcc_rt_run;   /* one run in progress: error slot, cancel flag, pool, scratch, segments (runtime/rt_run.c) */

/* Kernels, programs and plans share one native signature. args: one 64-bit word per loop-IR argument (a pointer or
 * an index). Kernels execute parallel indices [begin, end); scratch: at least desc.scratch_bytes, 64-aligned, its own
 * for every caller at a time (programs and plans get one too). */
typedef void mcc_rt_fn(const int64_t *args, int64_t begin, int64_t end, char *scratch, struct mcc_rt_run *run);

/* Arguments of a program: input data pointers, output data pointers (NULL for outputs whose extent the data decides),
 * arena, weights, then the values of all symbols, in that order. Input and output data is aligned
 * to its element (bytes of a packed sub-byte tensor: 1), arena and weights to 64; data of zero bytes may be NULL. Ports
 * that carry no tensor of known rank (sequence, optional, map, or ndim -1) pass a struct mcc_rt_value * (rt_ops.h),
 * such outputs NULL. Arguments of a plan: (dims: i64 buffer with all dims of all inputs in order, none for inputs of
 * unknown rank or other kinds; out: i64 buffer). It writes out[0..n_sym) = symbols (0 where only the data tells), then
 * arena bytes, then the dims of all outputs in order (-1: decided by the data). The runtime has checked fixed extents,
 * and for symbolic ones equality, range and step; the plan checks what is left (derived input extents) and fails with
 * MCC_E_SHAPE. */
struct mcc_rt_variant {
    const char *name;              /* "x86-64-v4" */
    uint64_t features; /* bits of rt_cpu.h, all of which must be present; 0: any CPU of the architecture */
    mcc_rt_fn *program;
    const struct mcc_rt_row *rows; /* if the program serves several variants: this one's kernels */
};
struct mcc_rt_row {
    mcc_rt_fn *fn; /* NULL: the variant never comes here */
    const void *data; /* words that the code has in place of constants; NULL: none */
    uint32_t kernel, ns; /* mcc_rt_launch's */
};
/* By kernel index, for events and errors. node (here, in mcc_rt_fail and in mcc_host.event): index into mcc_api.node;
 * a row whose name and op are both "" stands for no node. */
struct mcc_rt_kernel {
    const char *name;
    uint32_t node, arithmetic; /* of the flops: enum products of ir/target/target.h; 0: not known */
    uint64_t flops, bytes;
};

struct mcc_rt_desc {
    const struct mcc_api *api; /* the public table (mcc.h) */
    uint32_t n_sym, n_out_dims, n_in_dims, n_variants;
    mcc_rt_fn *plan;
    const struct mcc_rt_variant *variants; /* best first */
    int64_t scratch_bytes; /* per thread, maximum over kernels, programs and the plan */
    const unsigned char *weights; /* embedded segment, or NULL with a sidecar */
    uint64_t weights_size;
    uint64_t weights_hash; /* XXH64, seed 0, of the weights */
    const char *weights_file; /* sidecar's file name without folder, or NULL */
    uint64_t reserved; /* 0; so `mcc inspect` finds what follows in artifacts of earlier versions, too */
    const uint64_t *port_flags; /* n_in + n_out: MCC_PORT_*, the same as mcc_port.flags; may be NULL */
    const struct mcc_rt_kernel *kernels; /* by the kernel index that mcc_rt_launch gets */
    uint32_t n_kernels, pad;
    /* Sidecar (safetensors): the file is a head of sidecar_head bytes (8 bytes of JSON length, little-endian, then the
     * JSON, padded with spaces to a multiple of 64), then weights_size bytes. The JSON's __metadata__ has to name
     * weights_hash, so that the head's hash stands for the whole. */
    uint64_t sidecar_head;
    uint64_t sidecar_head_hash; /* XXH64, seed 0, of the head */
};
extern const struct mcc_rt_desc mcc_rt_model;

/* Of an artifact with state, mcc_rt_model is the beginning of this. Its api has the ports of the network's own; those
 * of `inner` are followed by the states, in the same arrays. */
struct mcc_rt_state {
    const void *initial; /* NULL: zeros */
    uint64_t bytes, period; /* of initial, which repeats */
    const int64_t *dims;
};
struct mcc_rt_stateful {
    struct mcc_rt_desc outer, inner;
    const struct mcc_rt_state *states;
    uint32_t n_state, pad;
};
extern const struct mcc_rt_stateful mcc_rt_keeping;

/* ---- called by generated code ------------------------------------------------------------------------------ */

/* Runs fn over [0, count) on the pool. Returns non-zero when the run has failed (then the program returns). */
int mcc_rt_launch(struct mcc_rt_run *, mcc_rt_fn *fn, const int64_t *args, int64_t count, uint32_t kernel,
                  int64_t ns_per_index);
/* The same with the kernel that the model's variant has in this row. */
int mcc_rt_launch_row(struct mcc_rt_run *, uint32_t row, const int64_t *args, int64_t count);
/* The number of the model's variant. */
int64_t mcc_rt_variant_number(struct mcc_rt_run *);
/* Records {code, node, text}; the smallest (kernel, parallel index) wins, so every thread count reports the same. text
 * must live as long as the artifact. */
void mcc_rt_fail(struct mcc_rt_run *, int32_t code, uint32_t node, const char *text, int64_t index);
/* Memory for buffers whose size became known only now, 64-aligned; freed when the run ends. Address, or negative
 * (MCC_E_NOMEM, recorded). */
int64_t mcc_rt_segment(struct mcc_rt_run *, int64_t bytes);
/* Declares output k's data (row-major, of the port's element type) and dims when the data decides its extents. dims are
 * copied now, data when the program has returned. Negative when rank or dims make no sense. */
int64_t mcc_rt_output(struct mcc_rt_run *, int64_t k, int64_t rank, const int64_t *dims, const void *data);
/* Does the thread's scratch, which `local` points into, still hold what it made for `tag` at an earlier index of this
 * launch? If not, 0, and it is told that the caller makes it now. One thing for each kernel. */
int64_t mcc_rt_kept(struct mcc_rt_run *, const void *local, int64_t tag);
/* 1 if n - 1 parallel indices of this launch have come here with this counter before, else 0; what they stored before
 * can be seen then. The counter begins with 0, and again after the last one. */
int64_t mcc_rt_arrive(struct mcc_rt_run *, int64_t *counter, int64_t n);
/* For program loops without a launch, once a trip: 0, or negative when the run was cancelled or has failed. */
int64_t mcc_rt_poll(struct mcc_rt_run *);

/* ---- the public functions, for mcc_api --------------------------------------------------------------------------
 * mcc_rt_open, mcc_rt_close, mcc_rt_plan, mcc_rt_ctx_new, mcc_rt_ctx_free, mcc_rt_run_api, mcc_rt_run_dlpack,
 * mcc_rt_cancel, mcc_rt_run_values, mcc_rt_value_release: declared in rt_internal.h with mcc.h's types. */
