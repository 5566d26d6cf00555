/* Between the parts of the loop IR's interpreter: values and control (ir/loop/interp.c), statements that compute
 * (ir/loop/interp_compute.c) and those that touch memory (ir/loop/interp_memory.c). */
#ifndef MCC_IR_LOOP_INTERP_H
#define MCC_IR_LOOP_INTERP_H

#include "ir/loop/internal.h"

/* Bytes of a buffer; init: one flag per byte of a local, NULL elsewhere (everything defined). */
struct memory {
    uint8_t *data, *init;
    int64_t bytes;
};

struct slot { /* one value */
    uint8_t *data, *undef; /* lanes * element size, lanes */
    uint8_t *spare, *spare_undef; /* block parameters: what the next trip carries */
    bool any_undef, spare_any;
    struct memory mem, spare_mem; /* buffers */
    enum elem elem;
    uint32_t lanes;
};

struct segment {
    int64_t address, bytes;
};

struct interp {
    const struct lfunc *f;
    struct arena arena;
    struct slot *slots;
    const struct linterp_host *host;
    struct linterp_result result;
    int64_t begin, end;
    bool stopped;
    VEC(uint32_t) locals; /* values that are locals: forgotten at each parallel index */
    VEC(struct segment) segments; /* memory handed out by mcc_rt_segment */
    VEC(struct linterp_arg) call_args;
};

typedef void exec_fn(struct interp *, const struct lstmt *);

/* Ends the run: a rule is broken. */
void interp_broken(struct interp *, const struct lstmt *, const char *what);
/* Are all lanes defined? Else a rule is broken. */
bool interp_defined(struct interp *, const struct lstmt *, const struct slot *, const char *as);

static inline struct slot *slot_in(struct interp *in, const struct lstmt *s, uint32_t operand)
{
    return &in->slots[s->in[operand].i];
}

static inline struct slot *slot_out(struct interp *in, const struct lstmt *s)
{
    return &in->slots[s->out[0].i];
}

void slot_define(struct slot *); /* all lanes */
int64_t slot_index(const struct slot *);
void slot_set_index(struct slot *, int64_t value);

/* Statements by their rule in ir/loop/loop.def: interp_compute.c. */
exec_fn exec_const, exec_same, exec_dot, exec_matdot, exec_compare, exec_select, exec_convert, exec_bitcast, exec_splat,
    exec_extract, exec_insert, exec_shuffle, exec_hreduce;
/* interp_memory.c */
exec_fn exec_load, exec_store, exec_local, exec_offset, exec_address, exec_shared;

#endif
